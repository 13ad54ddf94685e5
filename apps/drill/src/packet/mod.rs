//! Packets as bytes: [`build`] makes what a script injects, [`read`](fn@read) takes what the stack
//! under test sent apart, and [`check`] compares that with what the script expects.

pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod icmp;
mod read;
#[cfg(test)]
mod tests;

pub use read::{Layer4, Seen, Segment, read};

use std::fmt;

/// Most bytes of options in a header (RFC 9293 3.1: the data offset has 4 bits).
pub const MAX_OPTION_BYTES: usize = 40;

/// Flags of a TCP header; AE, at bit 8, is the least of the four reserved bits.
pub mod flag {
    #![allow(missing_docs)] // each constant is the flag of that name
    pub const FIN: u16 = 0x01;
    pub const SYN: u16 = 0x02;
    pub const RST: u16 = 0x04;
    pub const PSH: u16 = 0x08;
    pub const ACK: u16 = 0x10;
    pub const URG: u16 = 0x20;
    pub const ECE: u16 = 0x40;
    pub const CWR: u16 = 0x80;
    pub const AE: u16 = 0x100;
}

/// Flags in packetdrill's letters, and in their order there.
const LETTERS: &[(u16, char)] = &[
    (flag::FIN, 'F'),
    (flag::SYN, 'S'),
    (flag::RST, 'R'),
    (flag::PSH, 'P'),
    (flag::URG, 'U'),
    (flag::AE, 'A'),
    (flag::CWR, 'W'),
    (flag::ECE, 'E'),
    (flag::ACK, '.'),
];

/// The experimental option of Fast Open (RFC 7413 appendix A): kind 254, this magic number.
const FAST_OPEN_MAGIC: [u8; 2] = [0xf9, 0x89];

/// One TCP option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    /// End of the list (RFC 9293 3.2).
    Eol,
    /// No operation.
    Nop,
    /// Maximum segment size, in bytes.
    Mss(u16),
    /// Window scale (RFC 7323 2).
    WindowScale(u8),
    /// SACK permitted (RFC 2018 2).
    SackPermitted,
    /// Blocks: left edge, right edge (RFC 2018 3).
    Sack(Vec<(u32, u32)>),
    /// Value and echo reply (RFC 7323 3).
    Timestamps(u32, u32),
    /// A Fast Open cookie, or the request for one (RFC 7413 4.1).
    FastOpen(Vec<u8>),
    /// The same as an experiment.
    FastOpenExperimental(Vec<u8>),
    /// MD5 signature (RFC 2385).
    Md5(Vec<u8>),
    /// Another kind, or a length that is not its own: kind and value.
    Other(u8, Vec<u8>),
}

impl TcpOption {
    /// Bytes in the header.
    pub fn len(&self) -> usize {
        match self {
            Self::Eol | Self::Nop => 1,
            Self::SackPermitted => 2,
            Self::WindowScale(_) => 3,
            Self::Mss(_) => 4,
            Self::Timestamps(..) => 10,
            Self::Sack(blocks) => 2 + 8 * blocks.len(),
            Self::FastOpenExperimental(cookie) => 4 + cookie.len(),
            Self::FastOpen(bytes) | Self::Md5(bytes) | Self::Other(_, bytes) => 2 + bytes.len(),
        }
    }

    /// Never: an option has at least its kind.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Appends its bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let kind = match self {
            Self::Eol => return out.push(0),
            Self::Nop => return out.push(1),
            Self::Mss(_) => 2,
            Self::WindowScale(_) => 3,
            Self::SackPermitted => 4,
            Self::Sack(_) => 5,
            Self::Timestamps(..) => 8,
            Self::Md5(_) => 19,
            Self::FastOpen(_) => 34,
            Self::FastOpenExperimental(_) => 254,
            Self::Other(kind, _) => *kind,
        };
        // No script's options are longer than a header's, so the length fits.
        out.extend([kind, self.len() as u8]);
        match self {
            Self::Eol | Self::Nop | Self::SackPermitted => {}
            Self::Mss(mss) => out.extend(mss.to_be_bytes()),
            Self::WindowScale(shift) => out.push(*shift),
            Self::Sack(blocks) => {
                for (left, right) in blocks {
                    out.extend(left.to_be_bytes());
                    out.extend(right.to_be_bytes());
                }
            }
            Self::Timestamps(value, echo) => {
                out.extend(value.to_be_bytes());
                out.extend(echo.to_be_bytes());
            }
            Self::FastOpenExperimental(cookie) => {
                out.extend(FAST_OPEN_MAGIC);
                out.extend(cookie);
            }
            Self::FastOpen(bytes) | Self::Md5(bytes) | Self::Other(_, bytes) => out.extend(bytes),
        }
    }

    /// Takes the options of a header apart, padding and all. An option that is longer than what is
    /// left ends them, as [`TcpOption::Other`].
    pub fn read_all(mut bytes: &[u8]) -> Vec<Self> {
        let mut options = Vec::new();
        while let Some((&kind, rest)) = bytes.split_first() {
            if kind <= 1 {
                options.push(if kind == 0 { Self::Eol } else { Self::Nop });
                bytes = rest;
                continue;
            }
            let len = rest.first().map_or(0, |len| usize::from(*len));
            let Some(value) = bytes.get(2..len) else {
                options.push(Self::Other(kind, rest.to_vec()));
                break;
            };
            options.push(Self::read(kind, value));
            bytes = &bytes[len..];
        }
        options
    }

    fn read(kind: u8, value: &[u8]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]])
        };
        match (kind, value.len()) {
            (2, 2) => Self::Mss(u16::from_be_bytes([value[0], value[1]])),
            (3, 1) => Self::WindowScale(value[0]),
            (4, 0) => Self::SackPermitted,
            (5, len) if len > 0 && len % 8 == 0 => Self::Sack(
                (0..len)
                    .step_by(8)
                    .map(|at| (word(at), word(at + 4)))
                    .collect(),
            ),
            (8, 8) => Self::Timestamps(word(0), word(4)),
            (19, _) => Self::Md5(value.to_vec()),
            (34, _) => Self::FastOpen(value.to_vec()),
            (254, 2..) if value.starts_with(&FAST_OPEN_MAGIC) => {
                Self::FastOpenExperimental(value[2..].to_vec())
            }
            _ => Self::Other(kind, value.to_vec()),
        }
    }
}

/// In the language's form.
impl fmt::Display for TcpOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        match self {
            Self::Eol => f.write_str("eol"),
            Self::Nop => f.write_str("nop"),
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::WindowScale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => f.write_str("sackOK"),
            Self::Sack(blocks) => {
                f.write_str("sack")?;
                blocks
                    .iter()
                    .try_for_each(|(left, right)| write!(f, " {left}:{right}"))
            }
            Self::Timestamps(value, echo) => write!(f, "TS val {value} ecr {echo}"),
            Self::FastOpen(cookie) | Self::FastOpenExperimental(cookie) => {
                f.write_str(if matches!(self, Self::FastOpen(_)) {
                    "FO"
                } else {
                    "FOEXP"
                })?;
                if !cookie.is_empty() {
                    f.write_str(" ")?;
                }
                hex(f, cookie)
            }
            Self::Md5(digest) => {
                f.write_str("md5 ")?;
                hex(f, digest)
            }
            Self::Other(kind, value) => {
                write!(f, "kind {kind} ")?;
                hex(f, value)
            }
        }
    }
}

/// Flags in packetdrill's letters, `-` for none.
pub(crate) fn flag_letters(flags: u16) -> String {
    if flags == 0 {
        return "-".into();
    }
    let set = LETTERS.iter().filter(|(bit, _)| flags & bit != 0);
    set.map(|(_, letter)| letter).collect()
}
