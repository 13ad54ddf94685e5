//! Rates and sizes: the time of a frame on a wire, and how much to send.
//!
//! A frame's size includes its 4 bytes of FCS (RFC 2544), which are not in memory; on the wire 20
//! more pass for it: preamble, start delimiter and the gap (IEEE 802.3 4.4.2). L2 counts the size,
//! L1 all.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bytes of frame check sequence: counted in a frame's size, but not in memory.
pub const FCS_BYTES: usize = 4;
/// Preamble, start delimiter and gap between frames.
pub const L1_BYTES: usize = 20;
/// Smallest frame, FCS included.
pub const LEAST_FRAME: usize = 64;
/// Largest frame without a tag, FCS included.
pub const MOST_FRAME: usize = 1518;
/// Sizes of RFC 2544 section 9.1.
pub const RFC2544_SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// Frames a second that a link of `link_bps` takes, `frame_bytes` with FCS each.
pub fn line_rate_pps(link_bps: f64, frame_bytes: f64) -> f64 {
    link_bps / ((frame_bytes + L1_BYTES as f64) * 8.0)
}

/// Bits a second of the frames alone.
pub fn l2_bps(pps: f64, frame_bytes: f64) -> f64 {
    pps * frame_bytes * 8.0
}

/// Bits a second with preambles and gaps.
pub fn l1_bps(pps: f64, frame_bytes: f64) -> f64 {
    pps * (frame_bytes + L1_BYTES as f64) * 8.0
}

/// How much to send: `max`, `1.5Mpps`, `9.9Gbit/s-L1`, `800Mbit/s-L2`, `99%`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Rate {
    /// As fast as the port accepts frames.
    Max,
    /// Frames a second.
    Pps(f64),
    /// Bits a second, with preambles and gaps.
    L1(f64),
    /// Bits a second of the frames with FCS.
    L2(f64),
    /// Of the port's line rate.
    Percent(f64),
}

impl Rate {
    /// Frames a second; `None`: unlimited. `link_bps` is the port's speed, if known.
    ///
    /// # Errors
    /// A percentage of an unknown speed (other than 100 % and more, which is [`Rate::Max`]).
    pub fn pps(self, frame_bytes: f64, link_bps: Option<f64>) -> Result<Option<f64>, String> {
        Ok(match self {
            Self::Max => None,
            Self::Pps(pps) => Some(pps),
            Self::L1(bps) => Some(line_rate_pps(bps, frame_bytes)),
            Self::L2(bps) => Some(bps / (frame_bytes * 8.0)),
            Self::Percent(percent) => match link_bps {
                Some(link) => Some(line_rate_pps(link, frame_bytes) * percent / 100.0),
                None if percent >= 100.0 => None,
                None => {
                    return Err(format!(
                        "{percent}% of an unknown speed; \
                         give the port a speed (speed=10G), or the rate as pps"
                    ));
                }
            },
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Pps(pps) => write!(f, "{}pps", si(*pps)),
            Self::L1(bps) => write!(f, "{}bit/s-L1", si(*bps)),
            Self::L2(bps) => write!(f, "{}bit/s-L2", si(*bps)),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// `1.5M`: exact, so that what is written can be read back.
fn si(value: f64) -> String {
    let (scale, letter) = match value {
        value if value >= 1e9 => (1e9, "G"),
        value if value >= 1e6 => (1e6, "M"),
        value if value >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let scaled = value / scale;
    match scaled * scale == value {
        true => format!("{scaled}{letter}"),
        false => value.to_string(),
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("`{text}` is no rate; write max, 1.5Mpps, 9.9Gbit/s-L1, 800Mbit/s-L2 or 99%")
        };
        if text.eq_ignore_ascii_case("max") {
            return Ok(Self::Max);
        }
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number: f64 = number.parse().map_err(|_| bad())?;
        let unit = unit.trim_start();
        if unit == "%" {
            return Ok(Self::Percent(number));
        }
        let (factor, unit) = match unit.chars().next() {
            Some('k' | 'K') => (1e3, &unit[1..]),
            Some('M' | 'm') => (1e6, &unit[1..]),
            Some('G' | 'g') => (1e9, &unit[1..]),
            _ => (1.0, unit),
        };
        let value = number * factor;
        match unit.to_ascii_lowercase().as_str() {
            "pps" | "fps" => Ok(Self::Pps(value)),
            "bit/s-l1" | "bps-l1" => Ok(Self::L1(value)),
            "bit/s-l2" | "bps-l2" => Ok(Self::L2(value)),
            "bit/s" | "bps" => Err(format!(
                "`{text}`: of L1 or L2? write {text}-L1 or {text}-L2"
            )),
            _ => Err(bad()),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

/// A link's speed in bits a second, like `10G` or `2500M`.
pub fn parse_speed(text: &str) -> Result<f64, String> {
    let bad = || format!("`{text}` is no speed; write 10G, 2.5G or 100M");
    let (number, factor) = match text.chars().last() {
        Some('G' | 'g') => (&text[..text.len() - 1], 1e9),
        Some('M' | 'm') => (&text[..text.len() - 1], 1e6),
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    if number > 0.0 && number.is_finite() {
        Ok(number * factor)
    } else {
        Err(bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rates_are_those_of_the_table() {
        // Frames a second that Ethernet takes, by link and size: rounded as printed in RFC-style
        // tables.
        let table: [(f64, [f64; 7]); 2] = [
            (
                1e9,
                [
                    1488095.0, 844595.0, 452899.0, 234962.0, 119732.0, 96154.0, 81274.0,
                ],
            ),
            (
                10e9,
                [
                    14880952.0, 8445946.0, 4528986.0, 2349624.0, 1197318.0, 961538.0, 812744.0,
                ],
            ),
        ];
        for (link, row) in table {
            for (size, wanted) in RFC2544_SIZES.into_iter().zip(row) {
                assert_eq!(
                    line_rate_pps(link, size as f64).round(),
                    wanted,
                    "{link} {size}"
                );
            }
        }
        let pps = line_rate_pps(10e9, 64.0);
        assert!((l2_bps(pps, 64.0) / l1_bps(pps, 64.0) - 0.7619).abs() < 1e-4);
    }

    #[test]
    fn rates_are_read_as_they_are_written() {
        for text in [
            "max",
            "1.5Mpps",
            "148800pps",
            "9.9Gbit/s-L1",
            "800Mbit/s-L2",
            "99%",
            "0.5%",
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate), "{text}");
        }
        assert_eq!("14880952pps".parse::<Rate>(), Ok(Rate::Pps(14_880_952.0)));
        for bad in ["", "fast", "10Gbit/s", "1.2.3pps", "-5pps", "10"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn percent_needs_a_wire() {
        let pps = Rate::Percent(50.0).pps(64.0, Some(10e9)).unwrap().unwrap();
        assert_eq!(pps.round(), 7_440_476.0);
        assert!(Rate::Percent(50.0).pps(64.0, None).is_err());
        assert_eq!(Rate::Percent(100.0).pps(64.0, None), Ok(None));
    }
}
