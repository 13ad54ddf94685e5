//! Which addresses may stand in a packet that is forwarded.
//!
//! The vector path asks [`is_special4`] and [`is_special6`], which let through ordinary unicast
//! alone; the scalar path classifies the other addresses (`source4`, `destination4` ...).

use std::net::{Ipv4Addr, Ipv6Addr};

/// Why a source is refused, or what a destination is. `Unicast` says nothing about routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressKind {
    Unicast,
    /// For packets between neighbours, never forwarded (RFC 3927 7, RFC 4291 2.5.6).
    LinkLocal,
    /// To a group.
    Multicast,
    /// 255.255.255.255.
    Broadcast,
    /// 0.0.0.0 or `::`, which say "no address (yet)".
    Unspecified,
    /// Not allowed on a wire.
    Martian,
}

/// Whether an IPv4 address (host order) is not ordinary unicast.
#[inline(always)]
pub(super) fn is_special4(address: u32) -> bool {
    let top = address >> 24;
    // Class D and E with the broadcast address, network 0, loopback, link-local.
    (top >= 224) | (top == 0) | (top == 127) | (address >> 16 == 0xa9fe)
}

/// The same for the upper 64 bits of an IPv6 address: 2000::/3 and fc00::/7 are ordinary.
#[inline(always)]
pub(super) fn is_special6(upper: u64) -> bool {
    (upper >> 61 != 1) & (upper >> 57 != 0x7e)
}

/// What kind of IPv4 address this is, as a source or a destination.
pub(super) fn kind4(address: Ipv4Addr) -> AddressKind {
    match address.octets() {
        [0, 0, 0, 0] => AddressKind::Unspecified,
        [255, 255, 255, 255] => AddressKind::Broadcast,
        // RFC 1812 5.3.7: network 0, network 127, class E.
        [0 | 127, ..] | [240..=255, ..] => AddressKind::Martian,
        [224..=239, ..] => AddressKind::Multicast,
        [169, 254, ..] => AddressKind::LinkLocal,
        _ => AddressKind::Unicast,
    }
}

/// What kind of IPv6 address this is.
pub(super) fn kind6(address: Ipv6Addr) -> AddressKind {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressKind::Unspecified,
        // RFC 4291 2.5.3: ::1 never leaves a node. 2.5.5: IPv4-compatible and IPv4-mapped
        // addresses are not to be seen on a wire (RFC 4942 2.2).
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0xffff, ..] => AddressKind::Martian,
        // RFC 4291 2.7: reserved scope 0, and interface-local scope 1, which never leaves a node.
        [group, ..] if group & 0xff00 == 0xff00 => match group & 0xf {
            0 | 1 => AddressKind::Martian,
            _ => AddressKind::Multicast,
        },
        // fe80::/10.
        [first, ..] if first & 0xffc0 == 0xfe80 => AddressKind::LinkLocal,
        _ => AddressKind::Unicast,
    }
}

/// Whether a packet from this source may go on at all, to the router itself included.
pub(super) fn may_be_source(kind: AddressKind) -> bool {
    // RFC 1812 5.3.7 and 4.2.3.1; RFC 4291 2.5.2, 2.5.3, 2.7: groups and loopback never send.
    matches!(
        kind,
        AddressKind::Unicast | AddressKind::LinkLocal | AddressKind::Unspecified
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_special_is_unicast() {
        for (text, kind) in [
            ("0.0.0.0", AddressKind::Unspecified),
            ("0.1.2.3", AddressKind::Martian),
            ("10.0.0.1", AddressKind::Unicast),
            ("126.255.255.255", AddressKind::Unicast),
            ("127.0.0.1", AddressKind::Martian),
            ("128.0.0.0", AddressKind::Unicast),
            ("169.253.255.255", AddressKind::Unicast),
            ("169.254.0.1", AddressKind::LinkLocal),
            ("223.255.255.255", AddressKind::Unicast),
            ("224.0.0.5", AddressKind::Multicast),
            ("239.255.255.255", AddressKind::Multicast),
            ("240.0.0.0", AddressKind::Martian),
            ("255.255.255.254", AddressKind::Martian),
            ("255.255.255.255", AddressKind::Broadcast),
        ] {
            let address: Ipv4Addr = text.parse().expect("written above");
            assert_eq!(kind4(address), kind, "{text}");
            assert_eq!(
                is_special4(u32::from(address)),
                kind != AddressKind::Unicast,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_special_is_unicast_in_ipv6_too() {
        for (text, kind, special) in [
            ("::", AddressKind::Unspecified, true),
            ("::1", AddressKind::Martian, true),
            ("::7f00:1", AddressKind::Martian, true),
            ("::ffff:10.0.0.1", AddressKind::Martian, true),
            ("64:ff9b::a00:1", AddressKind::Unicast, true), // the scalar path forwards it
            ("2001:db8::1", AddressKind::Unicast, false),
            ("3fff:ffff::", AddressKind::Unicast, false),
            ("4000::", AddressKind::Unicast, true),
            ("fc00::1", AddressKind::Unicast, false),
            ("fdff::1", AddressKind::Unicast, false),
            ("fe80::1", AddressKind::LinkLocal, true),
            ("febf::1", AddressKind::LinkLocal, true),
            ("fec0::1", AddressKind::Unicast, true),
            ("ff01::1", AddressKind::Martian, true),
            ("ff02::1", AddressKind::Multicast, true),
            ("ff0e::1", AddressKind::Multicast, true),
        ] {
            let address: Ipv6Addr = text.parse().expect("written above");
            assert_eq!(kind6(address), kind, "{text}");
            let upper = (u128::from(address) >> 64) as u64;
            assert_eq!(is_special6(upper), special, "{text}");
            assert!(special || kind == AddressKind::Unicast, "{text}");
        }
    }
}
