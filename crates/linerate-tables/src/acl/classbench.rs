//! ClassBench filter sets, a rule a line:
//!
//! ```text
//! @192.0.2.0/24  198.51.100.7/32  0 : 65535  80 : 80  0x06/0xFF  0x1000/0x1000
//! ```
//!
//! Source and destination, source and destination ports, protocol and its mask, and, where it is
//! there, what Taylor and Turner's generator calls flags: the TCP flags in the high byte of 16
//! bits. Earlier lines win. IPv6 sets, as ClassBench-ng writes them, look the same. Bits behind a
//! prefix's length do not count, and numbers may be decimal (`0/0` is any protocol), as in the sets
//! that DPDK ships. Empty lines and those that begin with `#` are skipped.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::rule::{Bits, Match, Prefix, Range, Rule, Rule4, Rule6, RuleError};
use super::words6;
use crate::TableError;

/// Why a line of a rule file is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum LineError {
    #[error("a rule begins with @")]
    NoAt,
    #[error("{field} is missing: expected {expected}")]
    Missing {
        field: &'static str,
        expected: &'static str,
    },
    #[error("{field} is {word:?}: expected {expected}")]
    Word {
        field: &'static str,
        word: String,
        expected: &'static str,
    },
    #[error("{field}: {reason}")]
    Rule {
        field: &'static str,
        reason: RuleError,
    },
    #[error("unknown field {word:?} behind the rule")]
    Unknown { word: String },
    #[error("the same rule as in line {line}")]
    Duplicate { line: usize },
}

/// Reads an IPv4 filter set. Priority and value of a rule are the number of its line.
///
/// # Errors
/// For the first line that is not a rule, or asks what an earlier one asks.
///
/// ```
/// use linerate_tables::acl::classbench;
/// let error = classbench::read4("@10.0.0.0/8 0.0.0.0/0 0 : 65535 9 : 8 0x06/0xFF").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "line 1: destination port: range 9 to 8 is reversed: write the smaller number first"
/// );
/// ```
pub fn read4(text: &str) -> Result<Vec<Rule4>, TableError> {
    read(text, |word| {
        let address: Ipv4Addr = word.parse().ok()?;
        Some([address.into()])
    })
}

/// Reads an IPv6 filter set, as [`read4`] does.
///
/// # Errors
/// As [`read4`].
pub fn read6(text: &str) -> Result<Vec<Rule6>, TableError> {
    read(text, |word| {
        let address: Ipv6Addr = word.parse().ok()?;
        Some(words6(address))
    })
}

fn read<const W: usize>(
    text: &str,
    address: impl Fn(&str) -> Option<[u32; W]>,
) -> Result<Vec<Rule<W>>, TableError> {
    let mut seen = std::collections::HashMap::new();
    let mut rules = Vec::new();
    for (line, words) in (1..).zip(text.lines()) {
        let words = words.trim();
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        let rule = rule(words, &address).and_then(|matching| match seen.insert(matching, line) {
            Some(line) => Err(LineError::Duplicate { line }),
            None => Ok(matching),
        });
        let matching = rule.map_err(|reason| TableError::AclFile { line, reason })?;
        let number = u32::try_from(line).unwrap_or(u32::MAX);
        rules.push(Rule::new(number, matching, number));
    }
    Ok(rules)
}

fn rule<const W: usize>(
    line: &str,
    address: &impl Fn(&str) -> Option<[u32; W]>,
) -> Result<Match<W>, LineError> {
    let mut words = Words(line.strip_prefix('@').ok_or(LineError::NoAt)?);
    let rule = Match {
        src: words.prefix("source", address)?,
        dst: words.prefix("destination", address)?,
        src_ports: words.range("source port")?,
        dst_ports: words.range("destination port")?,
        protocol: words.protocol()?,
        tcp_flags: words.flags()?,
        ..Match::ANY
    };
    match words.next() {
        Some(word) => Err(LineError::Unknown { word: word.into() }),
        None => Ok(rule),
    }
}

/// What is left of a line.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let left = self.0.trim_start();
        let end = left.find(char::is_whitespace).unwrap_or(left.len());
        let (word, left) = left.split_at(end);
        self.0 = left;
        (!word.is_empty()).then_some(word)
    }

    /// The next word, as `read` understands it.
    fn read<T>(
        &mut self,
        field: &'static str,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, LineError> {
        let word = self.next().ok_or(LineError::Missing { field, expected })?;
        read(word).ok_or_else(|| LineError::Word {
            field,
            word: word.into(),
            expected,
        })
    }

    fn prefix<const W: usize>(
        &mut self,
        field: &'static str,
        address: &impl Fn(&str) -> Option<[u32; W]>,
    ) -> Result<Prefix<W>, LineError> {
        let expected = match W {
            1 => "an IPv4 prefix like 192.0.2.0/24",
            _ => "an IPv6 prefix like 2001:db8::/32",
        };
        let (words, len) = self.read(field, expected, |word| {
            let (words, len) = word.split_once('/')?;
            Some((address(words)?, u8::try_from(number(len)?).ok()?))
        })?;
        let bits = 32 * W as u32;
        match u32::from(len) <= bits {
            true => Ok(Prefix::of(words, len)),
            false => Err(LineError::Rule {
                field,
                reason: RuleError::PrefixLength { len, bits },
            }),
        }
    }

    fn range(&mut self, field: &'static str) -> Result<Range, LineError> {
        let expected = "two ports like 0 : 65535";
        let low = self.read(field, expected, number)?;
        self.read(field, expected, |word| (word == ":").then_some(()))?;
        let high = self.read(field, expected, number)?;
        Range::new(low, high).map_err(|reason| LineError::Rule { field, reason })
    }

    fn protocol(&mut self) -> Result<Bits, LineError> {
        let field = "protocol";
        let bits = |word: &str| pair(word).filter(|(value, mask)| value | mask <= 0xff);
        let (value, mask) = self.read(field, "value/mask like 0x06/0xFF or 0/0", bits)?;
        Bits::new(value, mask).map_err(|reason| LineError::Rule { field, reason })
    }

    fn flags(&mut self) -> Result<Bits, LineError> {
        if self.0.trim_start().is_empty() {
            return Ok(Bits::ANY);
        }
        let field = "flags";
        let expected = "TCP flags and their mask, each shifted by 8, like 0x1000/0x1000";
        let bits = |word: &str| pair(word).filter(|(value, mask)| (value | mask) & 0xff == 0);
        let (value, mask) = self.read(field, expected, bits)?;
        Bits::new(value >> 8, mask >> 8).map_err(|reason| LineError::Rule { field, reason })
    }
}

/// A number in hexadecimal with 0x, or in decimal. Not in octal, which C would read.
fn number(word: &str) -> Option<u16> {
    let (digits, radix) = match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (word, 10),
    };
    // from_str_radix takes a sign.
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let octal = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    let number = u16::from_str_radix(digits, radix).ok()?;
    (plain && !octal).then_some(number)
}

/// Two numbers, a slash between them.
fn pair(word: &str) -> Option<(u16, u16)> {
    let (value, mask) = word.split_once('/')?;
    Some((number(value)?, number(mask)?))
}

/// Writes rules in the order given; what the format has no field for is left out.
pub fn write<const W: usize>(rules: &[Match<W>]) -> String {
    let line = |rule: &Match<W>| {
        let flags = [rule.tcp_flags.value(), rule.tcp_flags.mask()].map(|bits| bits << 8);
        format!(
            "@{}\t{}\t{} : {}\t{} : {}\t{:#04x}/{:#04x}\t{:#06x}/{:#06x}\n",
            rule.src,
            rule.dst,
            rule.src_ports.low(),
            rule.src_ports.high(),
            rule.dst_ports.low(),
            rule.dst_ports.high(),
            rule.protocol.value(),
            rule.protocol.mask(),
            flags[0],
            flags[1],
        )
    };
    rules.iter().map(line).collect()
}
