//! Addresses that nobody else sends from: the router's own in one VRF, and those of everybody on its
//! networks (RFC 1812 5.3.7, 5.3.8 and 4.2.2.11, RFC 1122 3.2.1.3).
//!
//! Routes know them too, but a lookup of each source would cost as much as forwarding. Up to [`FEW`] IPv4
//! addresses are compared with all sources of a burst at once; more, and those of IPv6, are looked for in
//! bits by their hashes. Both only say which packets to look at: what is found is asked for in full.

use std::net::IpAddr;

use linerate_core::arch::{Vectors, Work};
use linerate_core::packet::Burst;
use linerate_tables::parse::{Mask, Parsed};

use super::engine::ones;
use super::settings::Settings;
use crate::apps::router::model::{Prefix, Vrf};

/// So many comparisons cost less than the look at the bits.
const FEW: usize = 16;

/// Whose an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Router,
    /// The directed broadcast address of an attached network.
    Everybody,
}

/// The addresses of one VRF, those of the link (RFC 4291 2.5.6) aside: they are an interface's.
#[derive(Debug, Default)]
pub(super) struct Ours {
    /// Sorted, each once: the router's before everybody's.
    v4: Vec<(u32, Whose)>,
    v6: Vec<u128>,
    /// IPv4 addresses to compare with; none where there are more.
    few: Vec<u32>,
    bits4: Bits,
    bits6: Bits,
}

impl Ours {
    /// Those of a VRF.
    pub(super) fn of(settings: &Settings, vrf: Vrf) -> Self {
        let mut ours = Self::default();
        let interfaces = settings.interfaces.iter().filter(|own| own.vrf == vrf);
        for cidr in interfaces.flat_map(|interface| &interface.addresses) {
            match (cidr.address, cidr.network()) {
                (IpAddr::V4(address), Prefix::V4(network)) => {
                    ours.v4.push((address.into(), Whose::Router));
                    // RFC 3021: two ends of a link have no broadcast address.
                    if network.len() < 31 {
                        ours.v4.push((network.last(), Whose::Everybody));
                    }
                }
                (IpAddr::V6(address), _) if !address.is_unicast_link_local() => {
                    ours.v6.push(address.to_bits());
                }
                _ => {}
            }
        }
        ours.v4
            .sort_unstable_by_key(|&(address, whose)| (address, whose as u8));
        ours.v4.dedup_by_key(|(address, _)| *address);
        ours.v6.sort_unstable();
        ours.v6.dedup();
        let addresses = ours.v4.iter().map(|(address, _)| *address);
        match ours.v4.len() <= FEW {
            true => ours.few = addresses.collect(),
            false => ours.bits4 = Bits::of(addresses.map(hash4)),
        }
        ours.bits6 = Bits::of(ours.v6.iter().copied().map(hash6));
        ours
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
        let mut found = 0;
        if v4 != 0 {
            let (src, few, bits) = (&parsed.src4, &self.few[..], &self.bits4);
            if vectors.run(AnyOf { src, few }) || bits.hold_any(src) {
                found |= self.search(parsed, v4);
            }
        }
        for index in ones(v6) {
            let source = parsed.keys6[index].src().to_bits();
            if self.bits6.hold(hash6(source)) {
                found |= self.search(parsed, 1 << index);
            }
        }
        found
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

/// Whether any source is one of a few addresses. All places of a burst are looked at, the empty ones too:
/// a length that is known needs no loop for its end.
struct AnyOf<'a> {
    src: &'a [u32; Burst::CAPACITY],
    few: &'a [u32],
}

impl Work for AnyOf<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let mut any = false;
        for &own in self.few {
            for &src in self.src {
                any |= src == own;
            }
        }
        any
    }
}

/// Bits by hashes of addresses: where the bit is not set, the address is none of them.
#[derive(Debug, Default)]
struct Bits {
    words: Box<[u64]>,
    /// How much of a hash is not looked at.
    shift: u32,
}

impl Bits {
    fn of(hashes: impl ExactSizeIterator<Item = u64>) -> Self {
        if hashes.len() == 0 {
            return Self::default();
        }
        // One in 64 of all others is asked for in vain.
        let count = (hashes.len() * 64).next_power_of_two();
        let shift = u64::BITS - count.trailing_zeros();
        let mut words = vec![0; count / 64];
        for hash in hashes {
            let at = hash >> shift;
            words[(at >> 6) as usize] |= 1_u64 << (at & 63);
        }
        let words = words.into();
        Self { words, shift }
    }

    #[inline(always)]
    fn hold(&self, hash: u64) -> bool {
        let at = hash >> self.shift;
        let word = self.words.get((at >> 6) as usize);
        word.is_some_and(|word| word >> (at & 63) & 1 != 0)
    }

    #[inline(always)]
    fn hold_any(&self, src: &[u32; Burst::CAPACITY]) -> bool {
        if self.words.is_empty() {
            return false;
        }
        let mut any = false;
        for &src in src {
            any |= self.hold(hash4(src));
        }
        any
    }
}

/// Fibonacci hashing: the upper bits of the product depend on all of the address.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn hash4(address: u32) -> u64 {
    u64::from(address).wrapping_mul(GOLDEN)
}

#[inline(always)]
fn hash6(address: u128) -> u64 {
    let folded = (address >> 64) as u64 ^ (address as u64).rotate_left(32);
    folded.wrapping_mul(GOLDEN)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::apps::router::plane::testing::{LAN_MAC, interface};
    use linerate_core::env::Isa;

    fn ours(addresses: &[String]) -> Ours {
        let texts: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let settings = Settings {
            interfaces: vec![interface("x", 0, LAN_MAC, &texts)],
            ..Settings::default()
        };
        Ours::of(&settings, 0)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn rfc1812_4_2_2_11_whose_an_address_is() {
        let addresses = [
            "192.0.2.1/24",
            "192.0.2.2/24",
            "198.51.100.8/31",
            "203.0.113.7/32",
            "10.0.0.255/24",
            "2001:db8::1/64",
            "fe80::1/64",
        ];
        let ours = ours(&addresses.map(String::from));
        for (text, whose) in [
            ("192.0.2.2", Some(Whose::Router)),
            ("192.0.2.255", Some(Whose::Everybody)),
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
            assert_eq!(ours.whose(address(text)), whose, "{text}");
        }
    }

    #[test]
    fn sources_are_found_among_few_and_among_many() {
        for count in [0_u32, 1, 8, 9, 500] {
            let v4 = (0..count).map(|n| format!("10.{}.{}.1/24", n >> 8, n & 255));
            let v6 = (0..count).map(|n| format!("2001:db8:{n:x}::1/64"));
            let ours = ours(&v4.chain(v6).collect::<Vec<_>>());
            assert_eq!(ours.few.is_empty(), count == 0 || count > 8);
            let mut parsed = Box::new(Parsed::new());
            let all = u64::from(u32::MAX);
            (parsed.class.v4, parsed.class.v6) = (all, !all);
            for isa in Isa::detect().levels() {
                let find = |parsed: &Parsed, mask| ours.sources(Vectors::up_to(isa), parsed, mask);
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
