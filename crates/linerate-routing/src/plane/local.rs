//! Addresses that are no valid source from outside: the router's own in one VRF, and the broadcast
//! addresses of its networks (RFC 1812 5.3.7, 5.3.8 and 4.2.2.11, RFC 1122 3.2.1.3).
//!
//! Routes know them too, but a lookup of each source would cost as much as forwarding. Up to
//! [`FEW`] IPv4 addresses are compared with all sources of a burst at once; more, and those of
//! IPv6, are looked up in a bit array by hash. Both are only filters: a hit is confirmed by an
//! exact lookup.
//!
//! Cost per packet of a full burst, with AVX2, in instructions (callgrind) and TSC cycles: 1.4 and
//! 0.3 for each address to compare with, so 2.7 and 0.7 cycles for two interfaces with a network
//! each, 6.4 and 1.1 for sixteen addresses; by the bits 6.7 and 1.4, in IPv6 12.6 and 2.9.

use std::net::IpAddr;

use linerate_core::arch::{Vectors, Work};
use linerate_core::packet::Burst;
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::FlowKey6;

use super::context::ones;
use super::settings::Settings;
use crate::model::{Prefix, Vrf};

/// Up to so many comparisons cost less than the bit array.
const FEW: usize = 16;

/// Whose an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Router,
    /// The directed broadcast address of an attached network.
    Broadcast,
}

/// The addresses of one VRF, without link-local ones (RFC 4291 2.5.6), which belong to an
/// interface.
#[derive(Debug, Default)]
pub(super) struct LocalAddresses {
    /// Sorted, each once: a router address before a broadcast address.
    v4: Vec<(u32, Whose)>,
    v6: Vec<u128>,
    /// IPv4 addresses to compare with, where they are few; else the bit array is used.
    few: Vec<u32>,
    bits4: Option<Box<Bits>>,
    bits6: Option<Box<Bits>>,
}

impl LocalAddresses {
    /// Those of a VRF.
    pub(super) fn of(settings: &Settings, vrf: Vrf) -> Self {
        let mut local = Self::default();
        let interfaces = settings.interfaces.iter().filter(|own| own.vrf == vrf);
        for cidr in interfaces.flat_map(|interface| &interface.addresses) {
            match (cidr.address, cidr.network()) {
                (IpAddr::V4(address), Prefix::V4(network)) => {
                    local.v4.push((address.into(), Whose::Router));
                    // RFC 3021: two ends of a link have no broadcast address.
                    if network.len() < 31 {
                        local.v4.push((network.last(), Whose::Broadcast));
                    }
                }
                (IpAddr::V6(address), _) if !address.is_unicast_link_local() => {
                    local.v6.push(address.to_bits());
                }
                _ => {}
            }
        }
        local
            .v4
            .sort_unstable_by_key(|&(address, whose)| (address, whose as u8));
        local.v4.dedup_by_key(|(address, _)| *address);
        local.v6.sort_unstable();
        local.v6.dedup();
        let addresses = local.v4.iter().map(|(address, _)| *address);
        match local.v4.len() <= FEW {
            true => local.few = addresses.collect(),
            false => local.bits4 = Bits::of(addresses.map(hash4)),
        }
        local.bits6 = Bits::of(local.v6.iter().map(|bits| hash6(&bits.to_be_bytes())));
        local
    }

    /// Whose address this is, if it is one of them.
    pub(super) fn whose(&self, address: IpAddr) -> Option<Whose> {
        match address {
            IpAddr::V4(v4) => {
                let at = self.v4.binary_search_by_key(&v4.to_bits(), |known| known.0);
                at.ok().map(|at| self.v4[at].1)
            }
            IpAddr::V6(v6) => {
                let found = self.v6.binary_search(&v6.to_bits()).is_ok();
                found.then_some(Whose::Router)
            }
        }
    }

    /// Which packets of `mask` have one of these addresses as their source.
    #[inline(always)]
    pub(super) fn sources(&self, vectors: Vectors, parsed: &Parsed, mask: Mask) -> Mask {
        let (v4, v6) = (mask & parsed.class.v4, mask & parsed.class.v6);
        let mut suspects = 0;
        if v4 != 0 {
            let (src, few) = (&parsed.src4, &self.few[..]);
            let is_met = match &self.bits4 {
                Some(bits) => vectors.run(Met4 { src, bits }),
                None => vectors.run(AnyOf { src, few }),
            };
            suspects |= if is_met { v4 } else { 0 };
        }
        if let Some(bits) = self.bits6.as_ref().filter(|_| v6 != 0) {
            let keys = &parsed.keys6;
            let is_met = vectors.run(Met6 { keys, v6, bits });
            suspects |= if is_met { v6 } else { 0 };
        }
        match suspects {
            0 => 0,
            suspects => self.search(parsed, suspects),
        }
    }

    /// The same, one by one.
    #[cold]
    fn search(&self, parsed: &Parsed, mask: Mask) -> Mask {
        let mut found = 0;
        for index in ones(mask) {
            let source = match parsed.class.v4 >> index & 1 {
                1 => IpAddr::V4(parsed.src4[index].into()),
                _ => IpAddr::V6(parsed.keys6[index].src()),
            };
            found |= Mask::from(self.whose(source).is_some()) << index;
        }
        found
    }
}

/// Whether any source is one of a few addresses. All positions of a burst are compared, empty ones
/// too: a constant length needs no remainder loop.
struct AnyOf<'a> {
    src: &'a [u32; Burst::CAPACITY],
    few: &'a [u32],
}

impl Work for AnyOf<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        // One element per position, or the compiler interchanges the loops.
        let mut hits = [0_u32; Burst::CAPACITY];
        for &own in self.few {
            for (hit, &src) in hits.iter_mut().zip(self.src) {
                *hit |= if src == own { u32::MAX } else { 0 };
            }
        }
        hits.iter().fold(0, |all, hit| all | hit) != 0
    }
}

/// Bits by hashes of addresses: where the bit is not set, the address is none of them. With a
/// hundred addresses three in a thousand others are false positives.
#[derive(Debug)]
struct Bits([u64; 512]);

impl Bits {
    fn of(hashes: impl Iterator<Item = u64>) -> Option<Box<Self>> {
        let mut bits: Option<Box<Self>> = None;
        for hash in hashes {
            let bits = bits.get_or_insert_with(|| Box::new(Self([0; 512])));
            bits.0[(hash >> 55) as usize] |= 1 << (hash >> 49 & 63);
        }
        bits
    }

    /// The bit of a hash, lowest, among others.
    #[inline(always)]
    fn look(&self, hash: u64) -> u64 {
        self.0[(hash >> 55) as usize] >> (hash >> 49 & 63)
    }
}

/// Whether the bit of any source is set.
struct Met4<'a> {
    src: &'a [u32; Burst::CAPACITY],
    bits: &'a Bits,
}

impl Work for Met4<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let looks = self.src.iter().map(|&src| self.bits.look(hash4(src)));
        looks.fold(0, |all, look| all | look) & 1 != 0
    }
}

/// The same of IPv6, of the packets in `v6`.
struct Met6<'a> {
    keys: &'a [FlowKey6; Burst::CAPACITY],
    v6: Mask,
    bits: &'a Bits,
}

impl Work for Met6<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let (mut left, mut all) = (self.v6, 0);
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            all |= self.bits.look(hash6(&self.keys[index].0));
        }
        all & 1 != 0
    }
}

/// Fibonacci hashing: the upper bits of the product depend on all of the address.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn hash4(address: u32) -> u64 {
    u64::from(address).wrapping_mul(GOLDEN)
}

/// The hash of the source that a key, or an address alone, begins with, in network order.
#[inline(always)]
fn hash6(key: &[u8]) -> u64 {
    let half = |at: usize| {
        let mut half = [0; 8];
        half.copy_from_slice(&key[at..at + 8]);
        u64::from_le_bytes(half)
    };
    (half(0).rotate_left(32) ^ half(8)).wrapping_mul(GOLDEN)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::plane::testing::{LAN_MAC, interface};
    use linerate_core::env::Isa;

    fn local(addresses: &[String]) -> LocalAddresses {
        let texts: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let settings = Settings {
            interfaces: vec![interface("x", 0, LAN_MAC, &texts)],
            ..Settings::default()
        };
        LocalAddresses::of(&settings, 0)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn rfc1812_4_2_2_11_kinds_of_addresses() {
        let addresses = [
            "192.0.2.1/24",
            "192.0.2.2/24",
            "198.51.100.8/31",
            "203.0.113.7/32",
            "10.0.0.255/24",
            "2001:db8::1/64",
            "fe80::1/64",
        ];
        let local = local(&addresses.map(String::from));
        for (text, whose) in [
            ("192.0.2.2", Some(Whose::Router)),
            ("192.0.2.255", Some(Whose::Broadcast)),
            ("192.0.2.0", None),
            ("198.51.100.8", Some(Whose::Router)),
            ("198.51.100.9", None),
            ("203.0.113.7", Some(Whose::Router)),
            // Who has it is the router.
            ("10.0.0.255", Some(Whose::Router)),
            ("2001:db8::1", Some(Whose::Router)),
            ("2001:db8::2", None),
            ("fe80::1", None),
        ] {
            assert_eq!(local.whose(address(text)), whose, "{text}");
        }
    }

    #[test]
    fn sources_are_found_among_few_and_among_many() {
        for count in [0_u32, 1, 8, 9, 500] {
            let v4 = (0..count).map(|n| format!("10.{}.{}.1/24", n >> 8, n & 255));
            let v6 = (0..count).map(|n| format!("2001:db8:{n:x}::1/64"));
            let local = local(&v4.chain(v6).collect::<Vec<_>>());
            assert_eq!(local.few.is_empty(), count == 0 || count > 8);
            let mut parsed = Box::new(Parsed::new());
            let all = u64::from(u32::MAX);
            (parsed.class.v4, parsed.class.v6) = (all, !all);
            for isa in Isa::detect().levels() {
                let find = |parsed: &Parsed, mask| local.sources(Vectors::up_to(isa), parsed, mask);
                for index in 0..64 {
                    parsed.src4[index] = 0x0b00_0001 + index as u32;
                    parsed.keys6[index].0[..16].fill(index as u8);
                }
                assert_eq!(find(&parsed, u64::MAX), 0);
                if count == 0 {
                    continue;
                }
                let last = count - 1;
                parsed.src4[3] = 0x0a00_0001 | last << 8;
                parsed.src4[31] = 0x0a00_00ff | last << 8;
                parsed.keys6[63].0[..16].copy_from_slice(
                    &format!("2001:db8:{last:x}::1")
                        .parse::<std::net::Ipv6Addr>()
                        .unwrap()
                        .octets(),
                );
                assert_eq!(
                    find(&parsed, u64::MAX),
                    1 << 3 | 1 << 31 | 1 << 63,
                    "{count}"
                );
                assert_eq!(find(&parsed, !(1 << 3)), 1 << 31 | 1 << 63);
            }
        }
    }
}
