//! Bytes of a frame and its length, compared with numbers: `tcp[13] & 2 != 0`, `len > 1000`.

use super::cursor::Cursor;
use super::{FilterError, has_frame_protocol, is_later_fragment};
use crate::{EtherType, ethernet, protocol, vlan};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The length of the frame.
    Length,
    /// Big-endian bytes: so many (1, 2 or 4) from an offset in a header on.
    Bytes {
        /// Where the offset counts from.
        base: Base,
        /// The first byte.
        offset: u32,
        /// How many.
        size: u8,
    },
}

/// A header that bytes are counted from. A frame without it does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The Ethernet header.
    Link,
    /// What is behind the Ethernet header and the tags, of this EtherType.
    Network(EtherType),
    /// What is behind an IPv4 header with this protocol, in the first fragment.
    Transport(u8),
    /// What is behind an IPv6 header that says ICMPv6.
    Icmp6,
}

/// What is done before the comparison, in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `&`
    And,
    /// `|`
    Or,
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `<<`
    Left,
    /// `>>`
    Right,
}

/// How numbers are compared, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `=`, `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compare {
    /// What is compared.
    pub of: Of,
    /// What is done with it before.
    pub with: Option<(Arithmetic, u32)>,
    /// How.
    pub relation: Relation,
    /// With what.
    pub value: u32,
}

impl Compare {
    /// Bytes from `offset` on, as they are.
    pub(super) fn byte(base: Base, offset: u32, relation: Relation, value: u32) -> Self {
        let size = 1;
        Self {
            of: Of::Bytes { base, offset, size },
            with: None,
            relation,
            value,
        }
    }

    /// The length of the frame.
    pub(super) fn length(relation: Relation, value: u32) -> Self {
        Self {
            of: Of::Length,
            with: None,
            relation,
            value,
        }
    }

    /// `None` where the frame ends before a byte that is asked for.
    pub(super) fn run(&self, frame: &[u8], tags: usize) -> Option<bool> {
        let read = match self.of {
            Of::Length => u32::try_from(frame.len()).unwrap_or(u32::MAX),
            Of::Bytes { base, offset, size } => {
                let Some(start) = base.start(frame, tags)? else {
                    return Some(false);
                };
                let at = start.checked_add(offset as usize)?;
                let bytes = frame.get(at..at.checked_add(size.into())?)?;
                bytes
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
            }
        };
        let number = match self.with {
            None => read,
            Some((Arithmetic::And, by)) => read & by,
            Some((Arithmetic::Or, by)) => read | by,
            Some((Arithmetic::Add, by)) => read.wrapping_add(by),
            Some((Arithmetic::Subtract, by)) => read.wrapping_sub(by),
            Some((Arithmetic::Multiply, by)) => read.wrapping_mul(by),
            // As the kernel does: such a frame does not match. The grammar lets none through.
            Some((Arithmetic::Divide, by)) => read.checked_div(by)?,
            Some((Arithmetic::Left, by)) => read.checked_shl(by).unwrap_or(0),
            Some((Arithmetic::Right, by)) => read.checked_shr(by).unwrap_or(0),
        };
        Some(match self.relation {
            Relation::Equal => number == self.value,
            Relation::Unequal => number != self.value,
            Relation::Less => number < self.value,
            Relation::AtMost => number <= self.value,
            Relation::Greater => number > self.value,
            Relation::AtLeast => number >= self.value,
        })
    }
}

impl Base {
    /// The names that may stand before a bracket.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "ether" | "link" => Self::Link,
            "ip" => Self::Network(EtherType::IPV4),
            "ip6" => Self::Network(EtherType::IPV6),
            "arp" => Self::Network(EtherType::ARP),
            "tcp" => Self::Transport(protocol::TCP),
            "udp" => Self::Transport(protocol::UDP),
            "icmp" => Self::Transport(protocol::ICMP),
            "sctp" => Self::Transport(protocol::SCTP),
            "icmp6" => Self::Icmp6,
            _ => return None,
        })
    }

    /// Where it begins in a frame; `Some(None)` where the frame has none.
    fn start(self, frame: &[u8], tags: usize) -> Option<Option<usize>> {
        let l3 = ethernet::HEADER_LEN + tags * vlan::TAG_LEN;
        let has = |ethertype| has_frame_protocol(frame, l3, ethertype);
        Some(match self {
            Self::Link => Some(0),
            Self::Network(ethertype) => has(ethertype)?.then_some(l3),
            Self::Transport(protocol) => {
                let is_one = has(EtherType::IPV4)?
                    && *frame.get(l3 + 9)? == protocol
                    && !is_later_fragment(frame, l3)?;
                match is_one {
                    true => Some(l3 + usize::from(*frame.get(l3)? & 0x0f) * 4),
                    false => None,
                }
            }
            Self::Icmp6 => {
                let is_one = has(EtherType::IPV6)? && *frame.get(l3 + 6)? == protocol::ICMPV6;
                is_one.then_some(l3 + 40)
            }
        })
    }
}

/// Names of offsets and of values, as in tcpdump.
const NAMES: &[(&str, u32)] = &[
    ("icmp-echo", 8),
    ("icmp-echoreply", 0),
    ("icmp-paramprob", 12),
    ("icmp-redirect", 5),
    ("icmp-timxceed", 11),
    ("icmp-unreach", 3),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-neighboradvert", 136),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-packettoobig", 2),
    ("icmp6code", 1),
    ("icmp6type", 0),
    ("icmpcode", 1),
    ("icmptype", 0),
    ("tcp-ack", 0x10),
    ("tcp-cwr", 0x80),
    ("tcp-ece", 0x40),
    ("tcp-fin", 0x01),
    ("tcp-push", 0x08),
    ("tcp-rst", 0x04),
    ("tcp-syn", 0x02),
    ("tcp-urg", 0x20),
    ("tcpflags", 13),
];

/// Reads a comparison, and says where it ends; `None` where none begins.
pub(super) fn relation(words: Cursor<'_>) -> Result<Option<(Compare, Cursor<'_>)>, FilterError> {
    let mut pieces = words.cut(piece_len);
    let first = pieces.next();
    let of = match (first.text, Base::of(first.text), pieces.peek().text) {
        ("len", _, _) => Of::Length,
        (_, Some(base), "[") => {
            pieces.next();
            let offset = number(&mut pieces, "expected an offset in bytes, as in ip[8]")?;
            let mut size = 1;
            if pieces.take(":") {
                let word = pieces.peek();
                size = number(&mut pieces, "expected 1, 2 or 4 bytes, as in ip[2:2]")?;
                if !matches!(size, 1 | 2 | 4) {
                    return Err(word.wrong("expected 1, 2 or 4 bytes, as in ip[2:2]"));
                }
            }
            pieces.expect("]", "expected : or ], as in ip[2:2]")?;
            let size = size as u8;
            Of::Bytes { base, offset, size }
        }
        _ => return Ok(None),
    };
    let mut with = None;
    let operator = pieces.peek();
    if let Some(arithmetic) = arithmetic(operator.text) {
        pieces.next();
        let word = pieces.peek();
        let by = value(&mut pieces)?;
        if arithmetic == Arithmetic::Divide && by == 0 {
            return Err(word.wrong("nothing is divided by 0"));
        }
        with = Some((arithmetic, by));
    }
    let word = pieces.next();
    let relation = match word.text {
        "=" | "==" => Relation::Equal,
        "!=" => Relation::Unequal,
        "<" => Relation::Less,
        "<=" => Relation::AtMost,
        ">" => Relation::Greater,
        ">=" => Relation::AtLeast,
        _ if with.is_some() && arithmetic(word.text).is_some() => {
            return Err(word.wrong("one operator at most before the comparison"));
        }
        _ => return Err(word.wrong("expected a comparison, as in `ip[8] < 5`")),
    };
    let value = value(&mut pieces)?;
    let compare = Compare {
        of,
        with,
        relation,
        value,
    };
    Ok(Some((compare, pieces)))
}

fn arithmetic(text: &str) -> Option<Arithmetic> {
    Some(match text {
        "&" => Arithmetic::And,
        "|" => Arithmetic::Or,
        "+" => Arithmetic::Add,
        "-" => Arithmetic::Subtract,
        "*" => Arithmetic::Multiply,
        "/" => Arithmetic::Divide,
        "<<" => Arithmetic::Left,
        ">>" => Arithmetic::Right,
        _ => return None,
    })
}

/// The pieces of a comparison need no spaces between them.
fn piece_len(rest: &str) -> usize {
    let is_name = |c: char| c.is_ascii_alphanumeric();
    // Names have hyphens inside, as tcp-syn; numbers have none.
    let is_letter = rest.starts_with(|c: char| c.is_ascii_alphabetic());
    let in_word = |c: char| is_name(c) || is_letter && c == '-';
    match rest.find(|c| !in_word(c)) {
        Some(0) => {
            let two = ["==", "!=", "<=", ">=", "<<", ">>", "&&", "||"];
            match two.iter().find(|two| rest.starts_with(**two)) {
                Some(two) => two.len(),
                None => rest.chars().next().map_or(0, char::len_utf8),
            }
        }
        Some(len) => len,
        None => rest.len(),
    }
}

/// A number, or the name of one.
fn number(pieces: &mut Cursor<'_>, reason: &'static str) -> Result<u32, FilterError> {
    let word = pieces.next();
    let known = NAMES.iter().find(|(name, _)| *name == word.text);
    let number = || match word.text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if word.text.len() > 1 && word.text.starts_with('0') => {
            u32::from_str_radix(word.text, 8).ok()
        }
        None => word.text.parse().ok(),
    };
    let number = known.map(|(_, number)| *number).or_else(number);
    number.ok_or_else(|| word.wrong(reason))
}

/// A number, or several in parentheses, or'd.
fn value(pieces: &mut Cursor<'_>) -> Result<u32, FilterError> {
    const VALUE: &str = "expected a number, or names such as (tcp-syn|tcp-ack)";
    if !pieces.take("(") {
        return number(pieces, VALUE);
    }
    let mut value = number(pieces, VALUE)?;
    while pieces.take("|") {
        value |= number(pieces, VALUE)?;
    }
    pieces.expect(")", "expected | or )")?;
    Ok(value)
}
