//! The values of one field from frame to frame, as users write them.
//!
//! ```text
//! 80                        the same in every frame
//! 1024-65535                one more in each frame, then from the start again
//! 1024-65535/3              three more
//! 80,443,8080               each in turn
//! random:1024-65535         each once, in random order, then all again in another
//! random                    the same over all that makes sense for the field
//! 198.19.0.0/24             the hosts of a prefix in turn (not the network's and broadcast addresses)
//! random:2001:2::/48        the hosts of a prefix in random order
//! ```

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_wire::ethernet::MacAddr;
use linerate_wire::tcp::flag;

/// How a field's values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// Decimal, or hexadecimal after `0x`.
    Number,
    /// Hexadecimal.
    Hex,
    Mac,
    /// An address of either family: only for a bare `random`, which names none.
    Address,
    V4,
    V6,
    /// `id` or `id.priority`, kept as tag control information.
    Tag,
    /// Letters of `CEUAPRSF`, or a number.
    TcpFlags,
}

/// The values of one field from frame to frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Varying {
    pub notation: Notation,
    pub values: Values,
}

/// The values as numbers, without their notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    Fixed(u128),
    /// `first`, `first + step` and so on to `last` at most, then `first` again.
    Range {
        first: u128,
        last: u128,
        step: u128,
    },
    List(Vec<u128>),
    /// Random over the field's default range.
    Random,
    RandomOf {
        first: u128,
        last: u128,
    },
}

impl Values {
    /// The length of the period; for random values each comes once in it.
    pub(super) fn count(&self) -> u128 {
        match self {
            Self::Fixed(_) | Self::Random => 1,
            Self::Range { first, last, step } => ((last - first) / step).saturating_add(1),
            Self::List(list) => list.len() as u128,
            Self::RandomOf { first, last } => (last - first).saturating_add(1),
        }
    }
}

const TCP_LETTERS: [(char, u8); 8] = [
    ('C', flag::CWR),
    ('E', flag::ECE),
    ('U', flag::URG),
    ('A', flag::ACK),
    ('P', flag::PSH),
    ('R', flag::RST),
    ('S', flag::SYN),
    ('F', flag::FIN),
];

impl Varying {
    /// Reads `text`, whose values must be at most `most`.
    ///
    /// # Errors
    /// The problem, as the end of a sentence.
    pub(super) fn parse(notation: Notation, most: u128, text: &str) -> Result<Self, String> {
        let reader = Reader { notation, most };
        if text == "random" {
            return Ok(Self {
                notation,
                values: Values::Random,
            });
        }
        let (is_random, rest) = match text.strip_prefix("random:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let whole = reader.one(rest);
        if let (false, Ok((notation, value))) = (is_random, whole.clone()) {
            let values = Values::Fixed(value);
            return Ok(Self { notation, values });
        }
        if !is_random && rest.contains(',') {
            return reader.list(rest);
        }
        let (notation, first, last, step) = match rest.split_once('-') {
            Some((first, last)) => reader.range(first, last)?,
            None if rest.contains('/') => reader.prefix(rest)?,
            None if whole.is_ok() => return Err(format!("random of one value; write {rest}")),
            None => return Err(whole.err().unwrap_or_default()),
        };
        let values = match (is_random, step) {
            (true, Some(_)) => return Err("random takes no step".into()),
            (true, None) => Values::RandomOf { first, last },
            (false, step) => Values::Range {
                first,
                last,
                step: step.unwrap_or(1),
            },
        };
        Ok(Self { notation, values })
    }

    /// The value, where it is always the same.
    pub(super) fn fixed(&self) -> Option<u128> {
        match self.values {
            Values::Fixed(value) => Some(value),
            _ => None,
        }
    }

    /// Smallest and largest value; `None` for a bare `random`.
    pub(super) fn bounds(&self) -> Option<(u128, u128)> {
        match &self.values {
            Values::Fixed(value) => Some((*value, *value)),
            Values::Range { first, last, .. } | Values::RandomOf { first, last } => {
                Some((*first, *last))
            }
            Values::List(list) => Some((*list.iter().min()?, *list.iter().max()?)),
            Values::Random => None,
        }
    }
}

/// Reads what is written in one notation.
struct Reader {
    notation: Notation,
    most: u128,
}

impl Reader {
    /// One value, and how it was written.
    fn one(&self, text: &str) -> Result<(Notation, u128), String> {
        let bad = |what: &str| Err(format!("`{text}` is no {what}"));
        let (notation, value) = match self.notation {
            Notation::Number | Notation::Hex => match number(text) {
                Some(value) => (self.notation, value),
                None => return bad("number"),
            },
            Notation::Mac => match text.parse::<MacAddr>() {
                Ok(mac) => (Notation::Mac, mac_number(mac)),
                Err(_) => return bad("MAC address like 02:00:00:00:00:01"),
            },
            Notation::Address | Notation::V4 | Notation::V6 => {
                if let Ok(v4) = text.parse::<Ipv4Addr>() {
                    (Notation::V4, u32::from(v4).into())
                } else if let Ok(v6) = text.parse::<Ipv6Addr>() {
                    (Notation::V6, v6.into())
                } else {
                    return bad("IPv4 or IPv6 address");
                }
            }
            Notation::Tag => {
                let (id, priority) = text.split_once('.').unwrap_or((text, "0"));
                match (number(id), number(priority)) {
                    (Some(id @ 0..=4095), Some(priority @ 0..=7)) => {
                        (Notation::Tag, priority << 13 | id)
                    }
                    _ => return bad("VLAN of 0 to 4095, with .0 to .7 for a priority"),
                }
            }
            Notation::TcpFlags => match tcp_flags(text) {
                Some(flags) => (Notation::TcpFlags, flags),
                None => return bad("set of TCP flags; their letters are CEUAPRSF"),
            },
        };
        if value > self.most && notation != Notation::V6 {
            return Err(format!("{text} is over {}, the most it can be", self.most));
        }
        Ok((notation, value))
    }

    fn list(&self, text: &str) -> Result<Varying, String> {
        let items: Result<Vec<_>, _> = text.split(',').map(|item| self.one(item)).collect();
        let items = items?;
        let notation = items[0].0;
        if items.iter().any(|item| item.0 != notation) {
            return Err("IPv4 and IPv6 addresses do not go into one list".into());
        }
        let values = Values::List(items.into_iter().map(|item| item.1).collect());
        Ok(Varying { notation, values })
    }

    /// `first`-`last`, the latter with `/step` or not.
    fn range(
        &self,
        first: &str,
        last: &str,
    ) -> Result<(Notation, u128, u128, Option<u128>), String> {
        let (last_text, step) = match last.split_once('/') {
            Some((last, step)) => (last, Some(step)),
            None => (last, None),
        };
        let (notation, low) = self.one(first)?;
        let (other, mut high) = self.one(last_text)?;
        if notation != other {
            return Err("a range is of one family, IPv4 or IPv6".into());
        }
        if notation == Notation::Tag && !last_text.contains('.') {
            high |= low & 0xe000; // the first one's priority
        }
        if low > high {
            return Err(format!("it runs backwards; write {last_text}-{first}"));
        }
        // A step is a number, or a value in the field's own notation.
        let step = step.map(|text| {
            let value = number(text).or_else(|| self.one(text).ok().map(|one| one.1));
            value
                .filter(|&step| step > 0)
                .ok_or_else(|| format!("`{text}` is no step; write 1 or more"))
        });
        Ok((notation, low, high, step.transpose()?))
    }

    /// The hosts of a prefix.
    fn prefix(&self, text: &str) -> Result<(Notation, u128, u128, Option<u128>), String> {
        let (address, length) = text.split_once('/').unwrap_or((text, ""));
        let (notation, address) = self.one(address)?;
        let bits = match notation {
            Notation::V4 => 32,
            Notation::V6 => 128,
            _ => return Err(format!("`{text}` is no range; write FIRST-LAST/STEP")),
        };
        let length: u32 = length
            .parse()
            .ok()
            .filter(|&length| length <= bits)
            .ok_or_else(|| format!("`/{length}` is no prefix length; write /0 to /{bits}"))?;
        let hosts = match bits - length {
            128 => u128::MAX,
            free => (1 << free) - 1,
        };
        if address & hosts != 0 {
            let network = written(notation, address & !hosts);
            return Err(format!("host bits are set; write {network}/{length}"));
        }
        let last = address | hosts;
        Ok(match (notation, bits - length) {
            (_, 0) => {
                let only = written(notation, address);
                return Err(format!("a prefix of one address; write {only}"));
            }
            // RFC 3021: both addresses of a /31 are hosts.
            (_, 1) => (notation, address, last, None),
            (Notation::V4, _) => (notation, address + 1, last - 1, None),
            // RFC 4291 2.6.1: the first is the routers' anycast address.
            _ => (notation, address + 1, last, None),
        })
    }
}

/// A number, decimal or hexadecimal.
pub(super) fn number(text: &str) -> Option<u128> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // from_str_radix would take a sign.
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_alphanumeric());
    plain
        .then(|| u128::from_str_radix(digits, radix).ok())
        .flatten()
}

/// A MAC address as a number.
pub(super) fn mac_number(mac: MacAddr) -> u128 {
    mac.0
        .iter()
        .fold(0, |value, &byte| value << 8 | u128::from(byte))
}

fn tcp_flags(text: &str) -> Option<u128> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return number(text);
    }
    let of = |letter: char| {
        let known = TCP_LETTERS.iter().find(|known| known.0 == letter);
        known.map(|known| u128::from(known.1))
    };
    let mut letters = text
        .to_ascii_uppercase()
        .chars()
        .map(of)
        .collect::<Vec<_>>();
    letters.sort_unstable();
    letters.dedup();
    (letters.len() == text.len() && !text.is_empty())
        .then(|| letters.into_iter().sum())
        .flatten()
}

/// One value in its notation.
pub(super) fn written(notation: Notation, value: u128) -> String {
    match notation {
        Notation::Number | Notation::Address => value.to_string(),
        Notation::Hex => format!("{value:#06x}"),
        Notation::Mac => {
            let bytes = (value as u64).to_be_bytes();
            MacAddr(std::array::from_fn(|at| bytes[2 + at])).to_string()
        }
        Notation::V4 => Ipv4Addr::from(value as u32).to_string(),
        Notation::V6 => Ipv6Addr::from(value).to_string(),
        Notation::Tag => match (value & 0xfff, value >> 13) {
            (id, 0) => id.to_string(),
            (id, priority) => format!("{id}.{priority}"),
        },
        Notation::TcpFlags if value == 0 => "0".into(),
        Notation::TcpFlags => {
            let set = |letter: &&(char, u8)| value & u128::from(letter.1) != 0;
            TCP_LETTERS
                .iter()
                .filter(set)
                .map(|letter| letter.0)
                .collect()
        }
    }
}

impl fmt::Display for Varying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |value: &u128| written(self.notation, *value);
        match &self.values {
            Values::Fixed(value) => f.write_str(&one(value)),
            Values::Range {
                first,
                last,
                step: 1,
            } => write!(f, "{}-{}", one(first), tail(self.notation, *last)),
            Values::Range { first, last, step } => {
                write!(f, "{}-{}/{step}", one(first), tail(self.notation, *last))
            }
            Values::List(list) => f.write_str(&list.iter().map(one).collect::<Vec<_>>().join(",")),
            Values::Random => f.write_str("random"),
            Values::RandomOf { first, last } => {
                write!(f, "random:{}-{}", one(first), tail(self.notation, *last))
            }
        }
    }
}

/// The end of a range: one without a priority would take the first one's.
fn tail(notation: Notation, value: u128) -> String {
    match notation {
        Notation::Tag => format!("{}.{}", value & 0xfff, value >> 13),
        _ => written(notation, value),
    }
}
