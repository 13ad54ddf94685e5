//! NAT64: IPv6 hosts reach IPv4 ones by a prefix (RFC 6146, RFC 6052), and their packets' headers
//! are translated (RFC 7915).
//!
//! Which addresses and ports a packet gets is [`Nat`](super::Nat)'s to say, as for all translation:
//! a flow has an IPv6 key on one side and an IPv4 key on the other. Here are prefixes, and headers:
//! [`six_to_four`] and [`four_to_six`] change what is behind the network header in place, and
//! return the [`Front`] that takes the place of the bytes before it, longer or shorter. The cost is
//! that of the headers, not of the packet.
//!
//! Fragments have been put together before; what is longer than the other side's MTU is fragmented
//! or answered after (RFC 7915 4: a packet of IPv4 that may be fragmented goes in pieces of 1280
//! bytes).

mod header;
mod icmp;
#[cfg(test)]
mod tests;

pub use header::{Front, Untranslatable, four_to_six, six_to_four};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_tables::lpm::Prefix6;
use linerate_wire::{icmp as wire, protocol};

use super::Tuple;

/// A prefix that IPv4 addresses are embedded behind (RFC 6052 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix64(Prefix6);

impl Prefix64 {
    /// Legal lengths.
    pub const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

    /// The well-known prefix, 64:ff9b::/96 (RFC 6052 2.1).
    pub fn well_known() -> Self {
        Self(Prefix6::of(0x0064_ff9b << 96, 96))
    }

    /// `None` for a length that is not legal, or bits 64 to 71 that are not zero.
    pub fn new(prefix: Prefix6) -> Option<Self> {
        let is_legal = Self::LENGTHS.contains(&prefix.len());
        (is_legal && prefix.first().to_be_bytes()[8] == 0).then_some(Self(prefix))
    }

    /// The prefix.
    pub fn prefix(&self) -> Prefix6 {
        self.0
    }

    /// Where the octets of an IPv4 address go: behind the prefix, around octet 8.
    fn places(&self) -> [usize; 4] {
        let mut at = usize::from(self.0.len() / 8);
        [(); 4].map(|()| {
            at += usize::from(at == 8);
            at += 1;
            at - 1
        })
    }

    /// The prefixes that have the IPv6 addresses of these IPv4 ones, and no others.
    pub fn blocks(&self, first: u32, last: u32) -> impl Iterator<Item = Prefix6> + '_ {
        let mut next = Some(first).filter(|first| *first <= last);
        std::iter::from_fn(move || {
            let from = next?;
            let left = u64::from(last - from) + 1;
            // As many as begin at a multiple of their number, and are left.
            let bits = from.trailing_zeros().min(left.ilog2());
            next = u32::try_from(u64::from(from) + (1 << bits)).ok();
            next = next.filter(|next| *next <= last);
            let fixed = self.0.len() + 32 - bits as u8;
            // Octet 8 is none of the address (RFC 6052 2.2).
            let skipped = if self.0.len() <= 64 && fixed > 64 {
                8
            } else {
                0
            };
            Some(Prefix6::of(self.embed(from.into()).into(), fixed + skipped))
        })
    }

    /// The IPv6 address of an IPv4 one.
    pub fn embed(&self, address: Ipv4Addr) -> Ipv6Addr {
        let mut octets = self.0.first().to_be_bytes();
        for (at, octet) in self.places().into_iter().zip(address.octets()) {
            octets[at] = octet;
        }
        octets.into()
    }

    /// The IPv4 address in an IPv6 one; `None` for one of another prefix.
    pub fn extract(&self, address: IpAddr) -> Option<Ipv4Addr> {
        let IpAddr::V6(v6) = address else { return None };
        let octets = v6.octets();
        self.0
            .contains(v6.into())
            .then(|| self.places().map(|at| octets[at]).into())
    }
}

/// A tuple of IPv4 addresses that has IPv6's number and types of ICMP, with those of IPv4.
pub(super) fn tuple4(tuple: &Tuple) -> Tuple {
    let mut out = *tuple;
    if tuple.protocol == protocol::ICMPV6 {
        out.protocol = protocol::ICMP;
        out.dst.port = wire::v4::ECHO_REQUEST.into();
    }
    out
}
