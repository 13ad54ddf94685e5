//! NPTv6 (RFC 6296): one IPv6 prefix for another, without state and without touching checksums.
//!
//! The difference of the two prefixes' sums is taken off one word of the address, so that every
//! sum over the address stays as it was. An address has one translation, and that leads back.

use std::net::{IpAddr, Ipv6Addr};

use linerate_tables::lpm::Prefix6;
use linerate_wire::checksum;

/// A prefix inside and one outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    inside: Prefix6,
    outside: Prefix6,
    /// Added to a word on the way out; its complement on the way in.
    adjustment: u16,
}

impl Prefixes {
    /// The shorter prefix counts as one of the longer one's length, with zeros (RFC 6296 3.1).
    pub fn new(inside: Prefix6, outside: Prefix6) -> Self {
        let len = inside.len().max(outside.len());
        let [inside, outside] = [inside, outside].map(|one| Prefix6::of(one.first(), len));
        let sum = |prefix: Prefix6| checksum::sum(&prefix.first().to_be_bytes());
        Self {
            inside,
            outside,
            adjustment: checksum::add(sum(inside), !sum(outside)),
        }
    }

    /// The prefix inside.
    pub fn inside(&self) -> Prefix6 {
        self.inside
    }

    /// The prefix outside.
    pub fn outside(&self) -> Prefix6 {
        self.outside
    }

    /// Whether an address is of the outside prefix.
    pub fn has_outside(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V6(v6) if self.outside.contains(v6.into()))
    }

    /// What an inside address is outside; `None` for one of another prefix, or without translation.
    pub fn outward(&self, address: IpAddr) -> Option<IpAddr> {
        translated(address, self.inside, self.outside, self.adjustment)
    }

    /// What an outside address is inside; `None` for one of another prefix, or without translation.
    pub fn inward(&self, address: IpAddr) -> Option<IpAddr> {
        translated(address, self.outside, self.inside, !self.adjustment)
    }
}

fn translated(address: IpAddr, from: Prefix6, to: Prefix6, adjustment: u16) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let bits = u128::from(v6);
    if !from.contains(bits) {
        return None;
    }
    let host = u128::MAX.checked_shr(from.len().into()).unwrap_or(0);
    let mut words = Ipv6Addr::from(to.first() | bits & host).segments();
    let at = match from.len() {
        // RFC 6296 3.4: the subnet of a prefix of 48 bits. Its last number cannot be told from 0.
        0..=48 => (words[3] != 0xffff).then_some(3),
        // RFC 6296 3.5: the first word of the interface identifier that is not all ones; one of
        // all zeros is nobody's.
        49..=64 if bits as u64 == 0 => None,
        49..=64 => (4..8).find(|&at| words[at] != 0xffff),
        _ => None,
    }?;
    let new = checksum::add(words[at], adjustment);
    words[at] = if new == 0xffff { 0 } else { new };
    Some(Ipv6Addr::from(words).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefixes(inside: &str, outside: &str) -> Prefixes {
        Prefixes::new(inside.parse().unwrap(), outside.parse().unwrap())
    }

    fn v6(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn rfc_6296_3_6_the_example_is_what_comes_out() {
        let both = prefixes("fd01:203:405::/48", "2001:db8:1::/48");
        let out = both.outward(v6("fd01:203:405:1::1234")).unwrap();
        assert_eq!(out, v6("2001:db8:1:d550::1234"));
        assert_eq!(both.inward(out), Some(v6("fd01:203:405:1::1234")));
    }

    #[test]
    fn rfc_6296_3_4_and_3_5_addresses_without_translation() {
        let both = prefixes("fd01:203:405::/48", "2001:db8:1::/48");
        assert_eq!(both.outward(v6("fd01:203:405:ffff::1")), None);
        let long = prefixes("fd01:203:405:1::/64", "2001:db8:1::/64");
        assert_eq!(long.outward(v6("fd01:203:405:1::")), None);
        assert_eq!(long.outward(v6("fd01:203:405:1:ffff:ffff:ffff:ffff")), None);
        assert!(
            long.outward(v6("fd01:203:405:1:ffff:ffff:ffff:1"))
                .is_some()
        );
        assert_eq!(long.outward(v6("fd01:203:405:2::1")), None);
        assert_eq!(long.outward([10, 0, 0, 1].into()), None);
        assert!(long.has_outside(v6("2001:db8:1::9")) && !long.has_outside(v6("fd01::")));
        let longest = prefixes("fd01::/96", "2001:db8::/96");
        assert_eq!(longest.outward(v6("fd01::1")), None);
    }

    proptest! {
        #[test]
        fn rfc_6296_2_6_translation_is_neutral_to_checksums_and_leads_back(inside: u128,
            outside: u128, host: u128, lens in (1u8..=64, 1u8..=64)) {
            let both = Prefixes::new(Prefix6::of(inside, lens.0), Prefix6::of(outside, lens.1));
            let len = lens.0.max(lens.1);
            let bits = both.inside.first() | host & (u128::MAX >> len);
            let address = Ipv6Addr::from(bits);
            if let Some(IpAddr::V6(out)) = both.outward(address.into()) {
                let sum = |address: Ipv6Addr| match checksum::sum(&address.octets()) {
                    0 => 0xffff, // the two zeros of ones' complement
                    sum => sum,
                };
                prop_assert_eq!(sum(out), sum(address));
                prop_assert!(both.outside.contains(out.into()));
                let back = both.inward(out.into());
                // 0 and all ones are one number: a word of all ones is not used where it counts.
                prop_assert!(back == Some(address.into()) || back.is_none());
            }
        }
    }
}
