//! Packets of our own: their route, and which of our addresses is the source.
//!
//! The source of an error (RFC 1812 4.3.2.4, RFC 4443 2.2) is an address of the interface that it
//! leaves by, the one on the sender's network if there are several; where that has none, one of the
//! interface that the packet came in by, and where that has none either, any of the same VRF, of a
//! loopback first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_wire::MacAddr;

use super::View;
use super::hops::{Action, Hop};
use super::settings::Settings;
use crate::model::{InterfaceId, Vrf};

/// The route of a packet of ours.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutputRoute<'a> {
    /// By a hop of this number.
    Hop(u32, &'a Hop),
    /// To a neighbour on this interface, without a lookup: its address is link-local.
    Link(InterfaceId),
}

/// Whether a packet of ours can leave by a hop.
pub(super) fn leads(hop: &Hop) -> bool {
    let leads_out = matches!(
        hop.action,
        Action::Forward | Action::Resolve | Action::Glean
    );
    leads_out && hop.interface.get().is_some()
}

/// The VRF of an interface.
pub(super) fn vrf(settings: &Settings, id: InterfaceId) -> Vrf {
    let interface = settings.interfaces.get(usize::from(id.0));
    interface.map_or(0, |interface| interface.vrf)
}

/// The hop to an address, for a packet of ours. Any member of a group will do, the same one for the
/// same address.
pub(super) fn route<'a>(view: View<'a>, vrf: Vrf, to: IpAddr) -> (u32, &'a Hop) {
    let (found, hash) = match to {
        IpAddr::V4(v4) => {
            let bits = u32::from(v4);
            (view.fib4.lookup(vrf, bits), bits.wrapping_mul(0x9e37_79b1))
        }
        IpAddr::V6(v6) => {
            let bits = u128::from(v6);
            let folded = (bits >> 64) as u64 ^ bits as u64;
            let hash = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            (view.fib6.lookup(vrf, v6.octets()), hash as u32)
        }
    };
    let number = found.unwrap_or(u32::MAX);
    let hop = view.hops.get(number);
    if hop.action != Action::Multipath {
        return (number, hop);
    }
    let number = view.hops.member(hop.group, hash);
    (number, view.hops.get(number))
}

/// Our address for a packet to `to`, which leaves by `hop` and answers what came in by `id`.
pub(super) fn source4(
    settings: &Settings,
    hop: &Hop,
    id: InterfaceId,
    to: Ipv4Addr,
) -> Option<Ipv4Addr> {
    let next = match hop.gateway {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Ipv4Addr::new(a, b, c, d),
        _ => to,
    };
    let pick = |id: InterfaceId| {
        let interface = settings.interfaces.get(usize::from(id.0))?;
        let mut own = interface.addresses.iter().filter_map(|cidr| {
            let IpAddr::V4(address) = cidr.address else {
                return None;
            };
            Some((address, cidr.network().contains(next.into())))
        });
        let first = own.clone().next();
        own.find(|own| own.1).or(first).map(|own| own.0)
    };
    let out_by = hop.interface.get().and_then(pick);
    out_by
        .or_else(|| pick(id))
        .or_else(|| others(settings, id).find_map(pick))
}

/// The interfaces of the same VRF as `id`; loopbacks first, whose addresses stand for the router
/// (RFC 1812 4.3.2.4).
fn others(settings: &Settings, id: InterfaceId) -> impl Iterator<Item = InterfaceId> {
    let vrf = vrf(settings, id);
    let all = move |is_loopback| {
        let all = (0..).map(InterfaceId).zip(&settings.interfaces);
        let of = all.filter(move |(_, one)| one.vrf == vrf && one.is_loopback() == is_loopback);
        of.map(|(id, _)| id)
    };
    all(true).chain(all(false))
}

/// The same for IPv6; `hop` is absent where the packet leaves by the link that the answered packet
/// came by.
pub(super) fn source6(
    settings: &Settings,
    hop: Option<&Hop>,
    id: InterfaceId,
    to: Ipv6Addr,
) -> Option<Ipv6Addr> {
    let Some(hop) = hop else {
        return link_local(settings, id).or_else(|| global(settings, id, to));
    };
    let out_by = hop.interface.get();
    let out_by = out_by.and_then(|id| global(settings, id, to));
    let own = out_by
        .or_else(|| global(settings, id, to))
        .or_else(|| others(settings, id).find_map(|id| global(settings, id, to)));
    // Better than no answer on a link without any other address.
    own.or_else(|| link_local(settings, id))
}

/// An address of more than link scope, one on the network of `to` if there is one.
fn global(settings: &Settings, id: InterfaceId, to: Ipv6Addr) -> Option<Ipv6Addr> {
    let interface = settings.interfaces.get(usize::from(id.0))?;
    let mut own = interface
        .addresses
        .iter()
        .filter_map(|cidr| match cidr.address {
            IpAddr::V6(address) if !address.is_unicast_link_local() => {
                Some((address, cidr.network().contains(to.into())))
            }
            _ => None,
        });
    let first = own.clone().next();
    own.find(|own| own.1).or(first).map(|own| own.0)
}

/// The link-local address of an interface: a configured one, or the one formed from its MAC address
/// if it has IPv6 addresses (RFC 4862 5.3).
pub(super) fn link_local(settings: &Settings, id: InterfaceId) -> Option<Ipv6Addr> {
    let interface = settings.interfaces.get(usize::from(id.0))?;
    let mut speaks = false;
    for cidr in &interface.addresses {
        if let IpAddr::V6(address) = cidr.address {
            if address.is_unicast_link_local() {
                return Some(address);
            }
            speaks = true;
        }
    }
    speaks.then(|| of_mac(interface.mac))
}

/// RFC 4291 appendix A: the link-local address with the interface identifier of a MAC address.
pub(super) fn of_mac(MacAddr([a, b, c, d, e, f]): MacAddr) -> Ipv6Addr {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&[0xfe, 0x80]);
    address[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    address.into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::settings::NO_PORT;
    use super::super::testing::{LAN, LAN_MAC, WAN, WAN_MAC, interface};
    use super::*;

    #[test]
    fn rfc1812_4_3_2_4_a_loopback_stands_for_the_router() {
        let lan = ["198.51.100.1/24", "2001:db8:1::1/64"];
        let own = ["10.255.0.1/32", "2001:db8::ff/128"];
        let mut settings = Settings {
            interfaces: vec![
                interface("wan", 0, WAN_MAC, &[]),
                interface("lan", 1, LAN_MAC, &lan),
                interface("lo0", NO_PORT, LAN_MAC, &own),
            ],
            ..Settings::default()
        };
        let hop = |id: InterfaceId| Hop {
            interface: id.into(),
            ..Hop::default()
        };
        let from = |settings: &Settings, by: InterfaceId| {
            let four = source4(settings, &hop(by), WAN, [203, 0, 113, 9].into());
            let to = "2001:db8:9::9".parse().unwrap();
            let six = source6(settings, Some(&hop(by)), WAN, to);
            (four.unwrap().to_string(), six.unwrap().to_string())
        };
        let expected = |four: &str, six: &str| (four.to_string(), six.to_string());
        let of_lan = expected("198.51.100.1", "2001:db8:1::1");
        assert_eq!(from(&settings, LAN), of_lan);
        assert_eq!(from(&settings, WAN), expected("10.255.0.1", "2001:db8::ff"));
        // That of another VRF does not.
        settings.interfaces[2].vrf = 1;
        assert_eq!(from(&settings, WAN), of_lan);
    }
}
