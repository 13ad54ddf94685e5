//! Frame sizes as users write them, FCS included.

use std::fmt;
use std::str::FromStr;

use super::values::{Notation, Values, Varying, number};
use crate::units::{LEAST_FRAME, MOST_FRAME};

/// Largest frame, FCS included: a jumbo frame (Pktgen's `-j`).
pub(super) const MOST_JUMBO: usize = 9600;

/// The simple IMIX, as CSIT sends it over IPv4: 7:4:1.
const IMIX: &[(u16, u32)] = &[(64, 7), (570, 4), (MOST_FRAME as u16, 1)];

/// Most frames in one round of a mix: its weights are divided by their greatest common divisor.
const MOST_ROUND: u32 = 4096;

/// Frame sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    Each(Values),
    Imix,
    /// Sizes and how many of each there are in a round.
    Mix(Vec<(u16, u32)>),
}

impl Sizes {
    /// The values that a generator takes frame sizes from.
    pub fn values(&self) -> Values {
        match self {
            Self::Each(Values::Random) => Values::RandomOf {
                first: LEAST_FRAME as u128,
                last: MOST_FRAME as u128,
            },
            Self::Each(values) => values.clone(),
            Self::Imix => round(IMIX),
            Self::Mix(mix) => round(mix),
        }
    }
}

/// One round of a mix, each size spread evenly over it (smooth weighted round robin).
fn round(mix: &[(u16, u32)]) -> Values {
    let divisor = mix.iter().fold(0, |all, &(_, weight)| gcd(all, weight));
    let mix: Vec<_> = mix
        .iter()
        .map(|&(size, weight)| (size, i64::from(weight / divisor)))
        .collect();
    let total: i64 = mix.iter().map(|&(_, weight)| weight).sum();
    let mut credit = vec![0; mix.len()];
    let next = |_| {
        for (credit, &(_, weight)) in credit.iter_mut().zip(&mix) {
            *credit += weight;
        }
        let best = (0..mix.len()).max_by_key(|&at| (credit[at], std::cmp::Reverse(at)));
        let best = best.expect("a mix has a size");
        credit[best] -= total;
        u128::from(mix[best].0)
    };
    Values::List((0..total).map(next).collect())
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "imix" {
            return Ok(Self::Imix);
        }
        if let Some(mix) = text.strip_prefix("imix:") {
            return parse_mix(mix);
        }
        let most = MOST_JUMBO as u128;
        let each = Varying::parse(Notation::Number, most, text)?;
        match each.bounds() {
            Some((least, _)) if least < LEAST_FRAME as u128 => Err(format!(
                "{least} is under {LEAST_FRAME}, Ethernet's least, FCS included"
            )),
            _ => Ok(Self::Each(each.values)),
        }
    }
}

fn parse_mix(text: &str) -> Result<Sizes, String> {
    let item = |item: &str| {
        let (size, weight) = item.split_once('*').unwrap_or((item, "1"));
        let weight = number(weight).filter(|weight| (1..=u128::from(u16::MAX)).contains(weight));
        match (size.parse::<Sizes>()?, weight) {
            (Sizes::Each(Values::Fixed(size)), Some(weight)) => Ok((size as u16, weight as u32)),
            _ => Err(format!(
                "`{item}` is no SIZE*WEIGHT with a weight of 1 to 65535"
            )),
        }
    };
    let mix: Result<Vec<_>, _> = text.split(',').map(item).collect();
    let mix = mix?;
    let divisor = mix.iter().fold(0, |all, &(_, weight)| gcd(all, weight));
    let frames: u32 = mix.iter().map(|&(_, weight)| weight / divisor).sum();
    if frames > MOST_ROUND {
        return Err(format!(
            "a round has {frames} frames; write smaller weights, {MOST_ROUND} in sum at most"
        ));
    }
    Ok(Sizes::Mix(mix))
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each(values) => Varying {
                notation: Notation::Number,
                values: values.clone(),
            }
            .fmt(f),
            Self::Imix => f.write_str("imix"),
            Self::Mix(mix) => {
                let items = mix.iter().map(|(size, weight)| format!("{size}*{weight}"));
                write!(f, "imix:{}", items.collect::<Vec<_>>().join(","))
            }
        }
    }
}
