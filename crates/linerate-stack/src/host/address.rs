//! Kinds of addresses, and which of them are the host's own (RFC 1122 3.2.1.3, RFC 4291 2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_wire::{MacAddr, ndp};

use super::config::InterfaceId;

/// 224.0.0.1, which every host is in (RFC 1112 4).
const ALL_HOSTS: u32 = 0xe000_0001;

/// What an IPv4 address is to this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// One of ours.
    Ours,
    /// The directed broadcast address of an attached network, or its old form of all zeros
    /// (RFC 1122 3.3.6).
    Broadcast,
}

/// The addresses that are used, of all interfaces. A packet is for us whatever interface it comes
/// by (the weak model of RFC 1122 3.3.4.2, as Linux has it), but for link-local ones.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses {
    /// Sorted, each once.
    v4: Vec<(u32, Whose)>,
    /// Sorted; with the interface that a link-local one belongs to.
    v6: Vec<(u128, InterfaceId)>,
    /// Solicited-node groups (RFC 4291 2.7.1), sorted.
    groups: Vec<(u128, InterfaceId)>,
    /// Bits of all in `v4` and `v6`, by hash: where an address's bit is not set it is none of them,
    /// which spares most sources the search.
    filter4: u64,
    filter6: u64,
}

impl OwnAddresses {
    /// Of these addresses, each with its prefix length and interface.
    pub(super) fn of(all: impl Iterator<Item = (IpAddr, u8, InterfaceId)>) -> Self {
        let mut own = Self::default();
        for (address, len, interface) in all {
            match address {
                IpAddr::V4(v4) => {
                    own.v4.push((v4.to_bits(), Whose::Ours));
                    // RFC 3021: the two ends of a link have no broadcast address.
                    if len < 31 {
                        let hosts = u32::MAX >> len;
                        own.v4.push((v4.to_bits() | hosts, Whose::Broadcast));
                        own.v4.push((v4.to_bits() & !hosts, Whose::Broadcast));
                    }
                }
                IpAddr::V6(v6) => {
                    own.v6.push((v6.to_bits(), interface));
                    let group = ndp::solicited_node(v6);
                    own.groups.push((group.to_bits(), interface));
                }
            }
        }
        // An address of ours comes first, and stays where a network's edge is the same.
        own.v4.sort_unstable();
        own.v4.dedup_by_key(|(address, _)| *address);
        own.v6.sort_unstable();
        own.groups.sort_unstable();
        own.filter4 = own.v4.iter().fold(0, |bits, (v4, _)| bits | bit4(*v4));
        own.filter6 = own.v6.iter().fold(0, |bits, (v6, _)| bits | bit6(*v6));
        own
    }

    /// What an IPv4 address is; `None`: not of this host.
    #[inline]
    pub(super) fn find4(&self, address: u32) -> Option<Whose> {
        if self.filter4 & bit4(address) == 0 {
            return None;
        }
        let at = self.v4.binary_search_by_key(&address, |(known, _)| *known);
        at.ok().map(|at| self.v4[at].1)
    }

    /// Whether an IPv6 address is ours to a packet of this interface; `None`: on any.
    #[inline]
    pub(super) fn has6(&self, address: Ipv6Addr, by: Option<InterfaceId>) -> bool {
        let bits = address.to_bits();
        if self.filter6 & bit6(bits) == 0 {
            return false;
        }
        let from = self.v6.partition_point(|(known, _)| *known < bits);
        let mut same = self.v6[from..].iter().take_while(|own| own.0 == bits);
        match by.filter(|_| address.is_unicast_link_local()) {
            Some(by) => same.any(|(_, interface)| *interface == by),
            None => same.next().is_some(),
        }
    }

    /// Whether it is an address of ours, on any interface.
    #[inline]
    pub(super) fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.find4(v4.to_bits()) == Some(Whose::Ours),
            IpAddr::V6(v6) => self.has6(v6, None),
        }
    }

    /// Whether IPv4 packets to this group or broadcast address are for us.
    pub(super) fn hears4(&self, address: u32) -> bool {
        address == ALL_HOSTS || address == u32::MAX || self.find4(address) == Some(Whose::Broadcast)
    }

    /// Whether IPv6 packets to this group are for us on the interface.
    pub(super) fn hears6(&self, group: Ipv6Addr, by: InterfaceId) -> bool {
        group == ndp::ALL_NODES || self.groups.binary_search(&(group.to_bits(), by)).is_ok()
    }
}

/// Fibonacci hashing: the upper bits of the product depend on all of the address.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn bit4(address: u32) -> u64 {
    1 << (u64::from(address).wrapping_mul(GOLDEN) >> 58)
}

#[inline(always)]
fn bit6(address: u128) -> u64 {
    let halves = (address as u64) ^ ((address >> 64) as u64).rotate_left(32);
    1 << (halves.wrapping_mul(GOLDEN) >> 58)
}

/// Whether a host may have this IPv4 address: not in network 0 or 127, no group, not reserved
/// (RFC 1122 3.2.1.3 (a), (b), (g); RFC 1112 4).
#[inline]
pub(super) fn is_host4(address: u32) -> bool {
    let network = address >> 24;
    network != 0 && network != 127 && network < 224
}

/// Whether a host may have this IPv6 address outside of itself: no group, not unspecified, not
/// loopback (RFC 4291 2.5.2, 2.5.3, 2.7), no IPv4-mapped one, which stands for IPv4 inside a host
/// (RFC 4291 2.5.5.2; RFC 6890 2.2.3: not a source, not a destination).
#[inline]
pub(super) fn is_host6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    let is_mapped = bits >> 32 == 0xffff;
    !address.is_multicast() && bits > 1 && !is_mapped
}

/// Whether an interface can have this address: it is a single host's, and no loopback.
pub fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_host4(v4.to_bits()),
        IpAddr::V6(v6) => is_host6(v6),
    }
}

/// Whether it is one of the addresses of the host itself alone: 127.0.0.0/8 or ::1.
#[inline]
pub(super) fn is_loopback(address: IpAddr) -> bool {
    address.is_loopback()
}

/// The MAC address of a group (RFC 1112 6.4, RFC 2464 7) or of the limited broadcast; `None` where
/// the address is neither.
pub(super) fn group_mac(address: IpAddr) -> Option<MacAddr> {
    match address {
        IpAddr::V4(v4) if v4.is_broadcast() => Some(MacAddr::BROADCAST),
        IpAddr::V4(v4) if v4.is_multicast() => {
            let [_, b, c, d] = v4.octets();
            Some(MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
        }
        IpAddr::V6(v6) if v6.is_multicast() => Some(ndp::multicast_mac(v6)),
        _ => None,
    }
}

/// Whether packets to it stay on a link, so that its interface has to be known (RFC 4007 4): IPv6
/// link-local addresses, and groups of link or interface scope.
pub(super) fn is_link_scoped(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local() || (v6.is_multicast() && v6.octets()[1] & 0x0f <= 2)
        }
        IpAddr::V4(v4) => v4.is_broadcast(),
    }
}

/// An address in 128 bits, IPv4 ones as mapped (RFC 4291 2.5.5.2).
#[inline]
pub(super) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => mapped(v4),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// An IPv4 address as a mapped IPv6 one.
#[inline]
pub(super) fn mapped(address: Ipv4Addr) -> u128 {
    0xffff_u128 << 32 | u128::from(address.to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(texts: &[(&str, u8, u16)]) -> OwnAddresses {
        let all = texts.iter();
        OwnAddresses::of(all.map(|(text, len, id)| (text.parse().unwrap(), *len, InterfaceId(*id))))
    }

    #[test]
    fn rfc_1122_3_2_1_3_kinds_of_ipv4_addresses() {
        let own = own(&[
            ("192.0.2.1", 24, 0),
            ("192.0.2.9", 24, 0),
            ("198.51.100.8", 31, 1),
            ("10.0.0.255", 23, 1),
        ]);
        let find = |text: &str| own.find4(text.parse::<Ipv4Addr>().unwrap().to_bits());
        for (text, whose) in [
            ("192.0.2.9", Some(Whose::Ours)),
            ("192.0.2.255", Some(Whose::Broadcast)),
            ("192.0.2.0", Some(Whose::Broadcast)),
            ("192.0.2.2", None),
            ("198.51.100.8", Some(Whose::Ours)),
            ("198.51.100.9", None),
            ("10.0.0.255", Some(Whose::Ours)),
            ("10.0.1.255", Some(Whose::Broadcast)),
        ] {
            assert_eq!(find(text), whose, "{text}");
        }
        let is_host = |text: &str| is_host4(text.parse::<Ipv4Addr>().unwrap().to_bits());
        for text in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1"] {
            assert!(!is_host(text), "{text}");
        }
        assert!(is_host("1.0.0.1") && is_host("223.255.255.254"));
    }

    #[test]
    fn rfc_4291_2_8_addresses_and_groups_of_an_ipv6_host() {
        let own = own(&[
            ("2001:db8::5:6", 64, 0),
            ("fe80::7", 64, 0),
            ("fe80::7", 64, 1),
        ]);
        let at = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let (a, b, c) = (InterfaceId(0), InterfaceId(1), InterfaceId(2));
        assert!(own.has6(at("2001:db8::5:6"), Some(b)), "the weak model");
        assert!(own.has6(at("fe80::7"), Some(a)) && own.has6(at("fe80::7"), Some(b)));
        assert!(!own.has6(at("fe80::7"), Some(c)) && own.has6(at("fe80::7"), None));
        assert!(own.hears6(at("ff02::1:ff05:6"), a) && !own.hears6(at("ff02::1:ff05:6"), b));
        assert!(own.hears6(at("ff02::1"), c) && !own.hears6(at("ff02::2"), a));
        for text in ["::", "::1", "ff02::1", "::ffff:10.0.0.1"] {
            assert!(!is_host6(at(text)), "{text}");
        }
        assert!(is_host6(at("fe80::1")) && is_host6(at("2001:db8::1")));
    }

    #[test]
    fn rfc_1112_6_4_macs_of_groups() {
        let mac = |text: &str| group_mac(text.parse().unwrap()).map(|mac| mac.to_string());
        assert_eq!(mac("224.129.2.3").as_deref(), Some("01:00:5e:01:02:03"));
        assert_eq!(mac("255.255.255.255").as_deref(), Some("ff:ff:ff:ff:ff:ff"));
        assert_eq!(mac("ff02::1:2").as_deref(), Some("33:33:00:01:00:02"));
        assert_eq!(mac("10.0.0.1"), None);
    }
}
