//! Values of the keys that are not header fields: kinds, payloads, pacing, times.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::keys::Field;

/// The headers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderKind {
    Eth,
    Arp,
    Ipv4,
    Ipv6,
    /// Over IPv4 or IPv6, as the addresses say.
    Udp,
    Tcp,
    Icmp,
    Udp6,
    Tcp6,
    Icmp6,
}

impl HeaderKind {
    pub const ALL: [(&str, Self); 10] = [
        ("eth", Self::Eth),
        ("arp", Self::Arp),
        ("ipv4", Self::Ipv4),
        ("ipv6", Self::Ipv6),
        ("udp", Self::Udp),
        ("tcp", Self::Tcp),
        ("icmp", Self::Icmp),
        ("udp6", Self::Udp6),
        ("tcp6", Self::Tcp6),
        ("icmp6", Self::Icmp6),
    ];
}

impl fmt::Display for HeaderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(_, kind)| kind == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

/// Fields that run like the digits of a counter, the fastest first; those of one digit go on
/// together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nest(pub(super) Vec<Vec<Field>>);

impl FromStr for Nest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut seen = Vec::new();
        let mut field = |key: &str| {
            let field = Field::of_key(key).ok_or_else(|| format!("`{key}` is no field"))?;
            if seen.contains(&field) {
                return Err(format!("`{key}` is there twice"));
            }
            seen.push(field);
            Ok(field)
        };
        let digits = text
            .split(',')
            .map(|digit| digit.split('+').map(&mut field).collect());
        digits.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Nest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |digit: &Vec<Field>| {
            let keys: Vec<&str> = digit.iter().map(|field| field.key().0).collect();
            keys.join("+")
        };
        f.write_str(&self.0.iter().map(digit).collect::<Vec<_>>().join(","))
    }
}

/// The bytes behind the headers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Payload {
    #[default]
    Zero,
    Ones,
    /// `abcdefghijklmnopqrstuvwxyz` over and over.
    Abc,
    /// 0, 1, 2 and so on.
    Inc,
    /// The same random bytes in each frame.
    Random,
    /// These bytes over and over.
    Hex(Vec<u8>),
}

impl FromStr for Payload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "zero" => Self::Zero,
            "ones" => Self::Ones,
            "abc" => Self::Abc,
            "inc" => Self::Inc,
            "random" => Self::Random,
            _ => match text.strip_prefix("hex:").and_then(hex_bytes) {
                Some(bytes) => Self::Hex(bytes),
                None => return Err("it is no pattern".into()),
            },
        })
    }
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |&[high, low]: &[u8; 2]| Some((digit(high)? << 4 | digit(low)?) as u8);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|bytes| !bytes.is_empty())
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "zero",
            Self::Ones => "ones",
            Self::Abc => "abc",
            Self::Inc => "inc",
            Self::Random => "random",
            Self::Hex(bytes) => {
                f.write_str("hex:")?;
                return bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
            }
        })
    }
}

/// How the gaps between frames, or between bursts, are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pacing {
    /// All alike.
    #[default]
    Constant,
    /// Exponentially: arrivals are a Poisson process.
    Poisson,
}

impl fmt::Display for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
        })
    }
}

const UNITS: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// A time such as `1.5s`, `10ms`, `300us` or `50ns`; to the nanosecond.
pub fn parse_time(text: &str) -> Option<Duration> {
    let (unit, ns) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let (whole, part) = text
        .strip_suffix(unit)
        .map(|number| number.split_once('.').unwrap_or((number, "")))?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let nanoseconds = whole.parse::<u64>().ok()?.checked_mul(*ns)?;
    let part = match part {
        "" => 0,
        part => part.parse::<u64>().ok()? * ns / 10u64.pow(part.len() as u32),
    };
    Some(Duration::from_nanos(nanoseconds.checked_add(part)?))
}

/// The same time as text, in the largest unit that needs no fraction.
pub fn write_time(time: Duration) -> String {
    let ns = time.as_nanos();
    let fits = |(_, unit): &&(&str, u64)| ns.is_multiple_of(u128::from(*unit));
    let (unit, per) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    format!("{}{unit}", ns / u128::from(*per))
}

/// `on` or `off`.
pub fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}
