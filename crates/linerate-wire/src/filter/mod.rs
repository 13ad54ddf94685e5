//! Capture and flow filters: tcpdump's most common words, with tcpdump's meaning.
//!
//! ```
//! # use linerate_wire::filter::Filter;
//! let filter: Filter = "vlan 100 and (tcp port 443 or not src net 10.0.0.0/8)".parse()?;
//! assert!(!filter.matches(&[0; 60]));
//! # Ok::<(), linerate_wire::filter::FilterError>(())
//! ```
//!
//! | words | match |
//! |---|---|
//! | `arp`, `ip`, `ip6` | the EtherType |
//! | `tcp`, `udp`, `sctp`, `esp`, `ah`; `icmp`, `igmp`, `icmp6` | the IP protocol, of IPv4 or IPv6 or, for the last three, their own |
//! | `proto P`, `ip proto P`, `ip6 proto P` | the IP protocol by number or name |
//! | `host A`, `src host A`, `dst host A` | an IPv4 (IP, ARP or RARP) or IPv6 address; `host` may be left out behind `src` and `dst` |
//! | `net A/LEN`, `src net A/LEN`, `dst net A/LEN` | an address in a prefix |
//! | `port N`, `src port N`, `dst port N` | a TCP, UDP or SCTP port, by number or by a service's name; with `tcp`, `udp` or `sctp` before it, of that protocol |
//! | `portrange A-B`, `src portrange A-B`, `dst portrange A-B` | a port in a range, likewise |
//! | `vlan`, `vlan N` | a VLAN tag, with that id |
//! | `ether host M`, `ether src M`, `ether dst M` | a MAC address |
//! | `broadcast`, `multicast`; `ip multicast`, `ip6 multicast` | a MAC address of everybody, of a group; an IP address of a group |
//! | `greater N`, `less N`, `len > N` | the length of the frame: N or more, N or less, compared |
//! | `ip[8] < 5`, `tcp[13] & 2 != 0`, `icmp[icmptype] = icmp-echo` | one, two or four bytes from an offset in a header on (`ip[2:2]`), compared after one operator at most |
//! | `not`, `and`, `or`, `(`, `)` | as `!`, `&&`, `\|\|`; `and` and `or` bind alike and from the left |
//!
//! As in tcpdump (libpcap 1.10, and its answers are what the tests compare with):
//! - what stands behind `vlan` looks behind that tag, to the end of the expression, so
//!   `tcp` does not match tagged frames and `vlan and tcp` matches nothing else;
//! - only the first IPv6 next header counts, or the second behind a fragment header;
//! - a frame that ends before a byte that is asked for does not match, `not` or no `not`.

mod cursor;
mod grammar;
mod relation;
mod services;
#[cfg(test)]
mod tests;

use alloc::{string::String, vec::Vec};
use core::{fmt, net::IpAddr, str::FromStr};

use crate::{EtherType, MacAddr, ethernet, protocol, vlan};

pub use relation::{Arithmetic, Base, Compare, Of, Relation};

/// A compiled filter.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Executed from the first on, over one truth value; jumps go forward.
    program: Vec<Op>,
}

/// One operation of a compiled filter, which other machines (such as the kernel's) may run too.
#[derive(Clone, Debug)]
pub enum Op {
    /// Sets the truth value.
    Test {
        /// The test itself.
        test: Test,
        /// VLAN tags that the test looks behind.
        tags: usize,
    },
    /// Inverts the truth value.
    Not,
    /// Jumps where the truth value is the one given: what makes `and` and `or`.
    JumpIf {
        /// The truth value.
        truth: bool,
        /// Index of the operation to go on with: a later one, or one behind the last.
        to: usize,
    },
}

/// Which end of a packet a word refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where it comes from.
    Src,
    /// Where it goes.
    Dst,
    /// One of them.
    Either,
}

/// One question about a frame.
#[derive(Clone, Debug)]
pub enum Test {
    /// The EtherType.
    EtherType(EtherType),
    /// The IP protocol.
    Protocol {
        /// Its number.
        protocol: u8,
        /// In IPv4.
        v4: bool,
        /// In IPv6.
        v6: bool,
    },
    /// An address of IP or ARP.
    Net {
        /// Whose.
        side: Side,
        /// The prefix.
        address: IpAddr,
        /// Its length in bits.
        bits: u8,
        /// The EtherType, where one was named before it.
        only: Option<EtherType>,
    },
    /// A layer-4 port.
    Port {
        /// Whose.
        side: Side,
        /// Its number.
        port: u16,
        /// The protocol; else TCP, UDP and SCTP.
        protocol: Option<u8>,
    },
    /// A layer-4 port in a range.
    PortRange {
        /// Whose.
        side: Side,
        /// The lowest.
        first: u16,
        /// The highest.
        last: u16,
        /// The protocol; else TCP, UDP and SCTP.
        protocol: Option<u8>,
    },
    /// Bytes or the length, compared with a number.
    Compare(Compare),
    /// A VLAN tag, with this id.
    Vlan(Option<u16>),
    /// A MAC address.
    Ether {
        /// Whose.
        side: Side,
        /// The address.
        mac: MacAddr,
    },
}

/// What is wrong with a filter, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The word that does not fit; empty where the expression ends too early.
    pub word: String,
    /// Its offset in bytes in the expression.
    pub at: usize,
    /// What is wrong with it, and what would be right.
    pub reason: &'static str,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.word.as_str() {
            "" => write!(f, "the filter ends too early: {}", self.reason),
            word => write!(
                f,
                "filter, at `{word}` (character {}): {}",
                self.at + 1,
                self.reason
            ),
        }
    }
}

impl core::error::Error for FilterError {}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(expression: &str) -> Result<Self, FilterError> {
        Ok(Filter {
            program: grammar::compile(expression)?,
        })
    }
}

impl Filter {
    /// The operations, run from the first on over one truth value that starts as true. A test
    /// that asks for bytes beyond the frame ends the run, and the frame does not pass.
    pub fn program(&self) -> &[Op] {
        &self.program
    }

    /// Whether `frame`, an Ethernet frame or its beginning, passes. An empty filter passes all.
    pub fn matches(&self, frame: &[u8]) -> bool {
        self.run(frame).unwrap_or(false)
    }

    /// `None` where the frame ended before a byte that was asked for.
    fn run(&self, frame: &[u8]) -> Option<bool> {
        let (mut truth, mut at) = (true, 0);
        while let Some(op) = self.program.get(at) {
            at += 1;
            match op {
                Op::Test { test, tags } => truth = test.run(frame, *tags)?,
                Op::Not => truth = !truth,
                Op::JumpIf { truth: wanted, to } if truth == *wanted => at = *to,
                Op::JumpIf { .. } => {}
            }
        }
        Some(truth)
    }
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

impl Side {
    /// Whether the test holds at the offset of this side, or of either.
    fn any(self, src: usize, dst: usize, test: impl Fn(usize) -> Option<bool>) -> Option<bool> {
        match self {
            Side::Src => test(src),
            Side::Dst => test(dst),
            Side::Either => Some(test(src)? || test(dst)?),
        }
    }
}

impl Test {
    fn run(&self, frame: &[u8], tags: usize) -> Option<bool> {
        let l3 = ethernet::HEADER_LEN + tags * vlan::TAG_LEN;
        let ethertype = || half(frame, l3 - 2).map(EtherType);
        match *self {
            Test::EtherType(wanted) => Some(ethertype()? == wanted),
            Test::Protocol { protocol, v4, v6 } => match ethertype()? {
                EtherType::IPV4 if v4 => Some(*frame.get(l3 + 9)? == protocol),
                EtherType::IPV6 if v6 => {
                    let next = *frame.get(l3 + 6)?;
                    let behind = || frame.get(l3 + 40).map(|next| *next == protocol);
                    Some(next == protocol || next == protocol::FRAGMENT && behind()?)
                }
                _ => Some(false),
            },
            Test::Net {
                side,
                address,
                bits,
                only,
            } => {
                let ethertype = ethertype()?;
                let (src, dst) = match (address, ethertype) {
                    _ if only.is_some_and(|only| only != ethertype) => return Some(false),
                    (IpAddr::V4(_), EtherType::IPV4) => (12, 16),
                    (IpAddr::V4(_), EtherType::ARP | EtherType::RARP) => (14, 24),
                    (IpAddr::V6(_), EtherType::IPV6) => (8, 24),
                    _ => return Some(false),
                };
                side.any(l3 + src, l3 + dst, |at| in_net(frame, at, address, bits))
            }
            Test::Port {
                side,
                port,
                protocol,
            } => {
                let Some(l4) = ports_at(frame, l3, protocol)? else {
                    return Some(false);
                };
                side.any(l4, l4 + 2, |at| Some(half(frame, at)? == port))
            }
            Test::PortRange {
                side,
                first,
                last,
                protocol,
            } => {
                let Some(l4) = ports_at(frame, l3, protocol)? else {
                    return Some(false);
                };
                let holds = |at| Some((first..=last).contains(&half(frame, at)?));
                side.any(l4, l4 + 2, holds)
            }
            Test::Compare(compare) => compare.run(frame, tags),
            Test::Vlan(id) => Some(
                ethertype()?.is_vlan()
                    && match id {
                        Some(id) => half(frame, l3)? & 0x0fff == id,
                        None => true,
                    },
            ),
            Test::Ether { side, mac } => {
                side.any(6, 0, |at| Some(*frame.get(at..)?.first_chunk()? == mac.0))
            }
        }
    }
}

/// Where the ports of a frame are; `Some(None)` where it has none.
fn ports_at(frame: &[u8], l3: usize, protocol: Option<u8>) -> Option<Option<usize>> {
    Some(match half(frame, l3 - 2).map(EtherType)? {
        EtherType::IPV4 if has_ports(*frame.get(l3 + 9)?, protocol) => {
            match is_later_fragment(frame, l3)? {
                true => None,
                false => Some(l3 + usize::from(*frame.get(l3)? & 0x0f) * 4),
            }
        }
        EtherType::IPV6 if has_ports(*frame.get(l3 + 6)?, protocol) => Some(l3 + 40),
        _ => None,
    })
}

/// Whether a frame has this EtherType before the network header at `l3`.
fn has_frame_protocol(frame: &[u8], l3: usize, ethertype: EtherType) -> Option<bool> {
    Some(half(frame, l3 - 2)? == ethertype.0)
}

/// Whether an IPv4 packet is a fragment without the upper header.
fn is_later_fragment(frame: &[u8], l3: usize) -> Option<bool> {
    Some(half(frame, l3 + 6)? & 0x1fff != 0)
}

fn has_ports(protocol: u8, wanted: Option<u8>) -> bool {
    match wanted {
        Some(wanted) => protocol == wanted,
        None => matches!(protocol, protocol::TCP | protocol::UDP | protocol::SCTP),
    }
}

fn in_net(frame: &[u8], at: usize, net: IpAddr, bits: u8) -> Option<bool> {
    let bytes = frame.get(at..)?;
    Some(match net {
        IpAddr::V4(net) => {
            let address = u32::from_be_bytes(*bytes.first_chunk()?);
            (address ^ net.to_bits())
                .checked_shr(32 - u32::from(bits))
                .unwrap_or(0)
                == 0
        }
        IpAddr::V6(net) => {
            let address = u128::from_be_bytes(*bytes.first_chunk()?);
            (address ^ net.to_bits())
                .checked_shr(128 - u32::from(bits))
                .unwrap_or(0)
                == 0
        }
    })
}
