//! Messages as zebra and the kernel send them, until packets follow.

use linerate_wire::MacAddr;
use linerate_wire::rtnetlink::build::Builder;
use linerate_wire::rtnetlink::{Messages, attribute, kind};

use super::*;
use crate::plane::hops::Action;
use crate::rib::testing::{Bench, LAN, WAN, gateway, ip, prefix};
use std::net::IpAddr;

const MAIN: u32 = 254;

fn said(message: &[u8]) -> Option<Said> {
    let message = Messages::new(message).next().unwrap().unwrap();
    Said::of(&message.read().unwrap())
}

fn rtm(what: u16, net: [u8; 4], len: u8, protocol: u8) -> Builder {
    Builder::new(what, 0)
        .fixed(&[2, len, 0, 0, MAIN as u8, protocol, 0, 1, 0, 0, 0, 0])
        .address(attribute::route::DST, net.into())
        .u32(attribute::route::PRIORITY, 20)
}

fn route_by(net: [u8; 4], index: u32, gateway: [u8; 4]) -> Said {
    let message = rtm(kind::NEW_ROUTE, net, 24, 186)
        .address(attribute::route::GATEWAY, gateway.into())
        .u32(attribute::route::OIF, index);
    said(&message.finish(0)).unwrap()
}

fn route_to(net: [u8; 4], object: u32) -> Said {
    let message = rtm(kind::NEW_ROUTE, net, 24, 186).u32(attribute::route::NH_ID, object);
    said(&message.finish(0)).unwrap()
}

fn one(id: u32, index: u32, gateway: [u8; 4]) -> Said {
    let message = Builder::new(kind::NEW_NEXTHOP, 0)
        .fixed(&[2, 0, 11, 0, 0, 0, 0, 0])
        .u32(attribute::nexthop::ID, id)
        .address(attribute::nexthop::GATEWAY, gateway.into())
        .u32(attribute::nexthop::OIF, index);
    said(&message.finish(0)).unwrap()
}

fn group(id: u32, members: &[(u32, u16)]) -> Said {
    let message = Builder::new(kind::NEW_NEXTHOP, 0)
        .fixed(&[0; 8])
        .u32(attribute::nexthop::ID, id)
        .group(members);
    said(&message.finish(0)).unwrap()
}

fn no_route(net: [u8; 4]) -> Said {
    said(&rtm(kind::DEL_ROUTE, net, 24, 186).finish(0)).unwrap()
}

/// Kernel interface 11 is wan's host interface, 12 lan's; 2 is not ours.
fn feed(bench: &mut Bench) -> Feed {
    feed_of(Source::Fpm, bench)
}

fn kernel(bench: &mut Bench) -> Feed {
    feed_of(Source::Kernel, bench)
}

fn feed_of(source: Source, bench: &mut Bench) -> Feed {
    let mut feed = Feed::new(source);
    feed.set_tables([(MAIN, 0), (10, 1)]);
    feed.set_interface(&mut bench.rib, 11, Some(WAN));
    feed.set_interface(&mut bench.rib, 12, Some(LAN));
    feed
}

/// Packets of routes by a virtual device of the kernel are handed to the kernel, whichever speaker
/// sends the route, while the device exists and where there is no next hop of ours.
#[test]
fn routes_by_devices_of_the_kernels_are_the_hosts() {
    let mut bench = Bench::new();
    let mut feed = kernel(&mut bench);
    let rib = &mut bench.rib;
    // The connected route that the kernel adds for an address: RTPROT_KERNEL.
    let network = |index| {
        let message = rtm(kind::NEW_ROUTE, [10, 9, 0, 0], 24, 2);
        said(&message.u32(attribute::route::OIF, index).finish(0)).unwrap()
    };
    // Before the device is known its routes are left out; afterwards they are requested again.
    feed.apply(rib, &network(7));
    assert_eq!(feed.set_host(rib, 7, true), Some(true));
    assert_eq!(feed.set_host(rib, 7, true), None);
    feed.apply(rib, &network(7));
    feed.apply(rib, &route_by([198, 51, 100, 0], 7, [10, 9, 0, 2]));
    bench.commit();
    for to in ["10.9.0.2", "198.51.100.1"] {
        assert_eq!(bench.action(to), Some(Action::Host), "{to}");
    }
    // A gateway without an interface, in the device's network.
    let next_hop = NextHop {
        gateway: Some(ip("10.9.0.2")),
        interface: None,
        weight: 1,
    };
    let key = Key::of(Source::Static, 0);
    let to = To::NextHops(vec![next_hop]);
    let inserted = bench.rib.insert(0, prefix("198.51.101.0/24"), key, &to);
    assert!(inserted.is_ok());
    bench.commit();
    assert_eq!(bench.action("198.51.101.1"), Some(Action::Host));
    // A network of a host interface is known from its address; one of a hardware interface is left
    // out.
    feed.apply(&mut bench.rib, &network(11));
    feed.apply(&mut bench.rib, &network(2));
    bench.commit();
    assert_eq!(bench.action("10.9.0.2"), None);
    // When the device is removed, the routes that led there have to be sent again.
    assert_eq!(feed.set_host(&mut bench.rib, 7, false), Some(true));
}

#[test]
fn routes_by_host_interfaces_are_followed_and_others_are_not() {
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    feed.apply(
        &mut bench.rib,
        &route_by([198, 51, 100, 0], 11, [192, 0, 2, 2]),
    );
    feed.apply(
        &mut bench.rib,
        &route_by([198, 51, 101, 0], 2, [192, 0, 2, 2]),
    );
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("192.0.2.2"));
    assert_eq!(bench.action("198.51.101.1"), None);
    // A route that changes to another interface than ours is removed.
    feed.apply(
        &mut bench.rib,
        &route_by([198, 51, 100, 0], 2, [192, 0, 2, 2]),
    );
    bench.commit();
    assert_eq!(bench.action("198.51.100.1"), None);
    assert_eq!((feed.counts.added, feed.counts.not_ours), (1, 2));
}

/// zebra has one route for a prefix. Newer releases do not send the removal of a route that one of
/// its own, the kernel's or a local one replaces.
#[test]
fn what_the_kernel_made_itself_is_left_out() {
    let mut bench = Bench::new();
    let net = [198, 51, 100, 0];
    let by_kernel = rtm(kind::NEW_ROUTE, net, 24, 2).u32(attribute::route::OIF, 11);
    let local = Builder::new(kind::NEW_ROUTE, 0)
        .fixed(&[2, 24, 0, 0, MAIN as u8, 186, 0, 2, 0, 0, 0, 0])
        .address(attribute::route::DST, net.into());
    for kernels in [by_kernel, local] {
        let kernels = said(&kernels.finish(0)).unwrap();
        let mut fpm = feed(&mut bench);
        fpm.apply(&mut bench.rib, &kernels);
        bench.commit();
        assert_eq!(bench.action("198.51.100.1"), None);
        fpm.apply(&mut bench.rib, &route_by(net, 11, [192, 0, 2, 2]));
        fpm.apply(&mut bench.rib, &kernels);
        bench.commit();
        assert_eq!(bench.action("198.51.100.1"), None);
        // The kernel has several, and sends the removal of each.
        let mut kernel = kernel(&mut bench);
        kernel.apply(&mut bench.rib, &route_by(net, 11, [192, 0, 2, 2]));
        kernel.apply(&mut bench.rib, &kernels);
        bench.commit();
        assert_eq!(bench.action("198.51.100.1"), Some(Action::Resolve));
        kernel.apply(&mut bench.rib, &no_route(net));
    }
}

#[test]
fn an_update_is_a_withdrawal_and_a_route_in_one() {
    // As zebra 8.4 sends it.
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    feed.apply(
        &mut bench.rib,
        &route_by([198, 51, 100, 0], 11, [192, 0, 2, 2]),
    );
    bench.commit();
    let withdrawn = rtm(kind::DEL_ROUTE, [198, 51, 100, 0], 24, 186).finish(0);
    feed.apply(&mut bench.rib, &said(&withdrawn).unwrap());
    feed.apply(
        &mut bench.rib,
        &route_by([198, 51, 100, 0], 12, [10, 0, 0, 2]),
    );
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("10.0.0.2"));
    feed.apply(&mut bench.rib, &said(&withdrawn).unwrap());
    bench.commit();
    assert_eq!(bench.action("198.51.100.1"), None);
    assert_eq!(feed.counts.removed, 2);
}

#[test]
fn groups_of_objects_follow_their_members() {
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    // The route comes before its object, and is kept until the object comes.
    feed.apply(&mut bench.rib, &route_to([198, 51, 100, 0], 30));
    bench.commit();
    assert_eq!(bench.action("198.51.100.1"), None);
    feed.apply(&mut bench.rib, &one(10, 11, [192, 0, 2, 2]));
    feed.apply(&mut bench.rib, &one(20, 12, [10, 0, 0, 2]));
    feed.apply(&mut bench.rib, &group(30, &[(10, 1), (20, 3)]));
    bench.commit();
    let shares = |bench: &Bench| {
        let route = bench.route_to(ip("198.51.100.1")).unwrap();
        let shares = route
            .resolved
            .iter()
            .map(|next_hop| (next_hop.gateway.unwrap(), next_hop.weight));
        let mut shares: Vec<_> = shares.collect();
        shares.sort();
        shares
    };
    assert_eq!(
        shares(&bench),
        [(ip("10.0.0.2"), 48), (ip("192.0.2.2"), 16)]
    );
    feed.apply(&mut bench.rib, &one(10, 11, [192, 0, 2, 3]));
    bench.commit();
    assert_eq!(
        shares(&bench),
        [(ip("10.0.0.2"), 48), (ip("192.0.2.3"), 16)]
    );
    feed.apply(&mut bench.rib, &Said::NoObject { id: 20 });
    bench.commit();
    assert_eq!(shares(&bench), [(ip("192.0.2.3"), 1)]);
}

#[test]
fn a_speaker_that_comes_back_with_other_numbers_changes_nothing() {
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    feed.apply(&mut bench.rib, &one(10, 11, [192, 0, 2, 2]));
    feed.apply(&mut bench.rib, &one(20, 12, [10, 0, 0, 2]));
    feed.apply(&mut bench.rib, &group(30, &[(10, 1), (20, 1)]));
    for third in 0..100 {
        let object = [10, 20, 30][third as usize % 3];
        feed.apply(&mut bench.rib, &route_to([198, 51, third, 0], object));
    }
    bench.commit();
    let before = bench.rib.counts();
    feed.begin(&mut bench.rib);
    // 10 and 20 are swapped.
    feed.apply(&mut bench.rib, &one(20, 11, [192, 0, 2, 2]));
    feed.apply(&mut bench.rib, &one(10, 12, [10, 0, 0, 2]));
    feed.apply(&mut bench.rib, &group(77, &[(20, 1), (10, 1)]));
    for third in 0..99 {
        let object = [20, 10, 77][third as usize % 3];
        feed.apply(&mut bench.rib, &route_to([198, 51, third, 0], object));
    }
    bench.commit();
    assert_eq!(
        bench.rib.counts().published,
        before.published,
        "nothing was written"
    );
    assert_eq!(gateway(&bench.hop("198.51.0.1")), ip("192.0.2.2"));
    assert_eq!(feed.end(&mut bench.rib), 1);
    bench.commit();
    assert_eq!(bench.action("198.51.99.1"), None);
    assert_eq!(gateway(&bench.hop("198.51.1.1")), ip("10.0.0.2"));
}

#[test]
fn host_interfaces_may_come_after_the_routes() {
    let mut bench = Bench::new();
    let mut feed = Feed::new(Source::Fpm);
    feed.set_tables([(MAIN, 0)]);
    feed.apply(&mut bench.rib, &one(10, 11, [192, 0, 2, 2]));
    feed.apply(&mut bench.rib, &route_to([198, 51, 100, 0], 10));
    bench.commit();
    assert_eq!(bench.action("198.51.100.1"), None);
    feed.set_interface(&mut bench.rib, 11, Some(WAN));
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("192.0.2.2"));
    let mut shown = bench.rib.show(0, prefix("198.51.100.0/24"));
    assert!(shown.any(|route| route.key.source == Source::Fpm));
}

/// Applies messages to an empty table, with the route to an address that results.
fn alone(messages: &[Builder]) -> (Bench, Feed) {
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    for message in messages {
        if let Some(said) = said(&message.clone().finish(0)) {
            feed.apply(&mut bench.rib, &said);
        }
    }
    bench.commit();
    (bench, feed)
}

fn kind_of(bench: &Bench, net: &str) -> &'static str {
    let mut shown = bench.rib.show(0, prefix(net));
    shown.next().expect("a route").kind
}

/// As `struct rtnexthop` with attributes.
fn way_with(index: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut next_hop = vec![0, 0, 0, 0];
    next_hop.extend(index.to_ne_bytes());
    for (attribute, value) in attributes {
        next_hop.extend((value.len() as u16 + 4).to_ne_bytes());
        next_hop.extend(attribute.to_ne_bytes());
        next_hop.extend(*value);
        next_hop.resize(next_hop.len().next_multiple_of(4), 0);
    }
    let len = (next_hop.len() as u16).to_ne_bytes();
    next_hop[..2].copy_from_slice(&len);
    next_hop
}

const NESTED: u16 = 0x8000;
/// `LWTUNNEL_ENCAP_MPLS`, `LWTUNNEL_ENCAP_SEG6`, and what zebra sends to FPM for VXLAN.
const MPLS: &[u8] = &[1, 0];
const SEG6: &[u8] = &[5, 0];
const VXLAN: &[u8] = &[100, 0];
/// `MPLS_IPTUNNEL_DST`: label 16, bottom of stack.
const LABEL: &[u8] = &[8, 0, 1, 0, 0, 1, 1, 0];

#[test]
fn labels_and_tunnels_are_refused_and_marked() {
    use attribute::{nexthop, route};
    let net = [198, 51, 100, 0];
    let new = || rtm(kind::NEW_ROUTE, net, 24, 186);
    let by = |builder: Builder| {
        builder
            .address(route::GATEWAY, [192, 0, 2, 2].into())
            .u32(route::OIF, 11)
    };
    let object = |encap: &'static [u8]| {
        Builder::new(kind::NEW_NEXTHOP, 0)
            .fixed(&[2, 0, 0, 0, 0, 0, 0, 0])
            .u32(nexthop::ID, 7)
            .address(nexthop::GATEWAY, [192, 0, 2, 2].into())
            .u32(nexthop::OIF, 11)
            .bytes(nexthop::ENCAP_TYPE, encap)
            .bytes(nexthop::ENCAP | NESTED, LABEL)
    };
    let labelled: &[(u16, &[u8])] = &[
        (route::ENCAP_TYPE, MPLS),
        (route::ENCAP, LABEL),
        (route::GATEWAY, &[192, 0, 2, 2]),
    ];
    let plain = way_with(12, &[(route::GATEWAY, &[10, 0, 0, 2])]);
    let two = [way_with(11, labelled), way_with(11, labelled)].concat();
    for messages in [
        // A label, by a route of its own, by each of its next hops, by an object.
        vec![by(new()
            .bytes(route::ENCAP_TYPE, MPLS)
            .bytes(route::ENCAP, LABEL))],
        vec![new().bytes(route::MULTIPATH | NESTED, &two)],
        vec![object(MPLS), new().u32(route::NH_ID, 7)],
        vec![object(SEG6), new().u32(route::NH_ID, 7)],
        // As zebra 8.4 sends EVPN's routes: one attribute behind all next hops, for all of them.
        vec![
            new()
                .bytes(route::MULTIPATH, &[plain.clone(), plain.clone()].concat())
                .bytes(route::ENCAP_TYPE, VXLAN)
                .bytes(route::ENCAP, LABEL),
        ],
    ] {
        let (mut bench, feed) = alone(&messages);
        assert_eq!(kind_of(&bench, "198.51.100.0/24"), "encapsulated");
        // With a less specific route packets could come back to us.
        assert_eq!(bench.action("198.51.100.1"), Some(Action::Unreachable));
        assert_eq!(feed.counts.not_ours, 0);
    }
    // Beside a next hop without labels only that one is used.
    let mixed = [way_with(11, labelled), plain].concat();
    let (mut bench, _) = alone(&[new().bytes(route::MULTIPATH, &mixed)]);
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("10.0.0.2"));
    let group = Builder::new(kind::NEW_NEXTHOP, 0)
        .fixed(&[0; 8])
        .u32(nexthop::ID, 9)
        .group(&[(7, 1), (8, 1)]);
    let other = Builder::new(kind::NEW_NEXTHOP, 0)
        .fixed(&[2, 0, 0, 0, 0, 0, 0, 0])
        .u32(nexthop::ID, 8)
        .address(nexthop::GATEWAY, [10, 0, 0, 2].into())
        .u32(nexthop::OIF, 12);
    let (mut bench, _) = alone(&[object(MPLS), other, group, new().u32(route::NH_ID, 9)]);
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("10.0.0.2"));
    // SIDs of the machine itself are on none of our interfaces: the kernel handles them.
    let sid = new()
        .u32(route::OIF, 2)
        .bytes(route::ENCAP_TYPE, &[7, 0])
        .bytes(route::ENCAP, LABEL);
    let (mut bench, feed) = alone(&[sid]);
    assert_eq!(bench.action("198.51.100.1"), None);
    assert_eq!(feed.counts.not_ours, 1);
}

#[test]
fn what_is_thrown_away_is_thrown_away_as_said() {
    // zebra sends it as the route's type, without any next hop; an object can only be a blackhole.
    for (code, action) in [
        (6, Action::Blackhole),
        (7, Action::Unreachable),
        (8, Action::Prohibit),
    ] {
        let route = Builder::new(kind::NEW_ROUTE, 0)
            .fixed(&[2, 24, 0, 0, MAIN as u8, 186, 0, code, 0, 0, 0, 0])
            .address(attribute::route::DST, [198, 51, 100, 0].into());
        let (mut bench, _) = alone(&[route]);
        assert_eq!(bench.action("198.51.100.1"), Some(action));
    }
    let hole = |id| {
        Builder::new(kind::NEW_NEXTHOP, 0)
            .fixed(&[2, 0, 0, 0, 0, 0, 0, 0])
            .u32(attribute::nexthop::ID, id)
            .bytes(attribute::nexthop::BLACKHOLE, &[])
    };
    let group = Builder::new(kind::NEW_NEXTHOP, 0)
        .fixed(&[0; 8])
        .u32(attribute::nexthop::ID, 9)
        .group(&[(7, 1), (8, 1)]);
    for object in [7, 9] {
        let route = rtm(kind::NEW_ROUTE, [198, 51, 100, 0], 24, 186);
        let route = route.u32(attribute::route::NH_ID, object);
        let (mut bench, _) = alone(&[hole(7), hole(8), group.clone(), route]);
        assert_eq!(bench.action("198.51.100.1"), Some(Action::Blackhole));
    }
}

/// RFC 8950: zebra 8.4 sends an object with an IPv6 gateway, or without objects 169.254.0.1, for
/// which it adds a permanent neighbour; since FRR 10 it sends `RTA_VIA`.
#[test]
fn ipv4_by_an_ipv6_gateway() {
    use attribute::{nexthop, route};
    let far: IpAddr = "fe80::2".parse().unwrap();
    let new = || rtm(kind::NEW_ROUTE, [198, 51, 100, 0], 24, 186);
    let object = Builder::new(kind::NEW_NEXTHOP, 0)
        .fixed(&[2, 0, 0, 0, 0, 0, 0, 0])
        .u32(nexthop::ID, 7)
        .address(nexthop::GATEWAY, far)
        .u32(nexthop::OIF, 11);
    let octets = "fe80::2".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let via = [&10u16.to_ne_bytes()[..], &octets].concat();
    let next_hop = way_with(11, &[(route::VIA, &via)]);
    for (messages, at) in [
        (vec![object, new().u32(route::NH_ID, 7)], far),
        (vec![new().bytes(route::VIA, &via).u32(route::OIF, 11)], far),
        (vec![new().bytes(route::MULTIPATH, &next_hop)], far),
        (
            vec![
                new()
                    .address(route::GATEWAY, [169, 254, 0, 1].into())
                    .u32(route::OIF, 11),
            ],
            ip("169.254.0.1"),
        ),
    ] {
        let (mut bench, _) = alone(&messages);
        let hop = bench.hop("198.51.100.1");
        assert_eq!((hop.action, gateway(&hop)), (Action::Resolve, at));
        bench.rib.neighbour(WAN, at, Some(MacAddr::local(9)));
        bench.commit();
        let hop = bench.hop("198.51.100.1");
        assert_eq!(
            (hop.action, hop.macs.dst()),
            (Action::Forward, MacAddr::local(9))
        );
    }
}

#[test]
fn ipv6_routes_by_link_local_gateways() {
    let far: IpAddr = "fe80::2".parse().unwrap();
    let route = |what| {
        Builder::new(what, 0)
            .fixed(&[10, 32, 0, 0, MAIN as u8, 188, 0, 1, 0, 0, 0, 0])
            .address(attribute::route::DST, "2001:db8:8000::".parse().unwrap())
            .address(attribute::route::GATEWAY, far)
            .u32(attribute::route::OIF, 12)
    };
    let (mut bench, mut feed) = alone(&[route(kind::NEW_ROUTE)]);
    assert_eq!(gateway(&bench.hop("2001:db8:8000::1")), far);
    let gone = said(&route(kind::DEL_ROUTE).finish(0)).unwrap();
    feed.apply(&mut bench.rib, &gone);
    bench.commit();
    assert_eq!(feed.counts.removed, 1);
    // Routes by source are left out, and so is their withdrawal.
    let by_source =
        Builder::new(kind::NEW_ROUTE, 0).fixed(&[10, 32, 32, 0, MAIN as u8, 188, 0, 1, 0, 0, 0, 0]);
    assert_eq!(said(&by_source.finish(0)), None);
}

#[test]
fn several_ways_have_their_weights() {
    let next_hops = [
        (Some(ip("192.0.2.2")), 11, 3),
        (Some(ip("10.0.0.2")), 12, 1),
        (Some(ip("10.9.9.9")), 2, 60),
    ];
    let route = rtm(kind::NEW_ROUTE, [198, 51, 100, 0], 24, 186).multipath(&next_hops);
    let (mut bench, _) = alone(&[route]);
    let shares = bench.shares("198.51.100.1");
    assert_eq!(shares, [(ip("10.0.0.2"), 16), (ip("192.0.2.2"), 48)]);
}

#[test]
fn tables_of_vrfs_by_number_or_attribute() {
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    feed.set_tables([(MAIN, 0), (1001, 1)]);
    let route = |short, long| {
        let message = Builder::new(kind::NEW_ROUTE, 0)
            .fixed(&[2, 24, 0, 0, short, 186, 0, 6, 0, 0, 0, 0])
            .address(attribute::route::DST, [198, 51, 100, 0].into())
            .u32(attribute::route::TABLE, long);
        said(&message.finish(0)).unwrap()
    };
    feed.apply(&mut bench.rib, &route(0, 1001));
    feed.apply(&mut bench.rib, &route(0, 1002));
    feed.apply(&mut bench.rib, &route(252, 1002));
    bench.commit();
    assert_eq!(bench.action("198.51.100.1"), None);
    let hop = bench.hop_in(1, "198.51.100.1").unwrap();
    assert_eq!(hop.action, Action::Blackhole);
    assert_eq!(feed.counts.not_ours, 2);
}

#[test]
fn unknown_attributes_change_nothing() {
    let odd: &[(u16, &[u8])] = &[(99, &[1, 2, 3]), (0x3fff, &[]), (120, &[0; 200])];
    let plain = rtm(kind::NEW_ROUTE, [198, 51, 100, 0], 24, 186)
        .address(attribute::route::GATEWAY, [192, 0, 2, 2].into())
        .u32(attribute::route::OIF, 11);
    let with = odd
        .iter()
        .fold(plain.clone(), |route, (a, value)| route.bytes(*a, value));
    assert_eq!(said(&with.finish(0)), said(&plain.finish(0)));
    let object = Builder::new(kind::NEW_NEXTHOP, 0)
        .fixed(&[2, 0, 0, 0, 0, 0, 0, 0])
        .u32(attribute::nexthop::ID, 7);
    let with = odd
        .iter()
        .fold(object.clone(), |object, (a, value)| object.bytes(*a, value));
    assert_eq!(said(&with.finish(0)), said(&object.finish(0)));
}

#[test]
fn a_host_interface_made_again_has_two_numbers_for_a_while() {
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    feed.apply(&mut bench.rib, &one(10, 11, [192, 0, 2, 2]));
    feed.apply(&mut bench.rib, &route_to([198, 51, 100, 0], 10));
    feed.apply(
        &mut bench.rib,
        &route_by([198, 51, 101, 0], 11, [192, 0, 2, 2]),
    );
    bench.commit();
    let published = bench.rib.counts().published;
    // The kernel gives it another number, which FRR uses from now on; earlier routes stay.
    assert!(!feed.set_interface(&mut bench.rib, 21, Some(WAN)));
    bench.commit();
    for address in ["198.51.100.1", "198.51.101.1"] {
        assert_eq!(gateway(&bench.hop(address)), ip("192.0.2.2"));
    }
    feed.apply(&mut bench.rib, &one(10, 21, [192, 0, 2, 2]));
    feed.apply(
        &mut bench.rib,
        &route_by([198, 51, 101, 0], 21, [192, 0, 2, 2]),
    );
    bench.commit();
    assert_eq!(bench.rib.counts().published, published, "nothing changed");
    // Without that interface both numbers are unknown.
    feed.forget_interface(&mut bench.rib, WAN);
    bench.commit();
    assert_eq!(bench.action("198.51.100.1"), None);
}

/// FRR sends nothing when a link goes down and up; its gateways there are unusable meanwhile, and
/// so are all its routes.
#[test]
fn a_link_that_goes_and_comes_costs_no_route() {
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    feed.apply(&mut bench.rib, &one(10, 11, [192, 0, 2, 2]));
    feed.apply(&mut bench.rib, &one(20, 12, [10, 0, 0, 2]));
    feed.apply(&mut bench.rib, &group(30, &[(10, 1), (20, 1)]));
    feed.apply(&mut bench.rib, &route_to([198, 51, 100, 0], 10));
    feed.apply(&mut bench.rib, &route_to([198, 51, 101, 0], 30));
    feed.apply(
        &mut bench.rib,
        &route_by([198, 51, 102, 0], 11, [192, 0, 2, 3]),
    );
    bench.commit();
    for _ in 0..2 {
        bench.rib.interface_state(WAN, false);
        bench.commit();
        assert_eq!(bench.action("198.51.100.1"), None);
        assert_eq!(bench.action("198.51.102.1"), None);
        assert_eq!(gateway(&bench.hop("198.51.101.1")), ip("10.0.0.2"));
        bench.rib.interface_state(WAN, true);
        bench.commit();
        assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("192.0.2.2"));
        assert_eq!(gateway(&bench.hop("198.51.102.1")), ip("192.0.2.3"));
        assert_eq!(bench.action("198.51.101.1"), Some(Action::Multipath));
    }
}

#[test]
fn who_speaks_of_a_host_interface_too_soon_has_to_be_asked_again() {
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    let early = route_by([198, 51, 100, 0], 21, [192, 0, 2, 2]);
    feed.apply(&mut bench.rib, &early);
    // An object is remembered, a route without an object is not.
    feed.apply(&mut bench.rib, &one(10, 22, [10, 0, 0, 2]));
    feed.apply(&mut bench.rib, &route_to([198, 51, 101, 0], 10));
    assert!(!feed.set_interface(&mut bench.rib, 22, Some(LAN)));
    assert!(feed.set_interface(&mut bench.rib, 21, Some(WAN)));
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.101.1")), ip("10.0.0.2"));
}

#[test]
fn the_kernels_copies_give_way_to_what_frr_says() {
    let mut bench = Bench::new();
    let (mut fpm, mut kernel) = (feed(&mut bench), kernel(&mut bench));
    let by_bgp = |third, far| route_by([198, 51, third, 0], 11, [192, 0, 2, far]);
    let by_hand = |third| {
        let route = rtm(kind::NEW_ROUTE, [198, 51, third, 0], 24, 4);
        said(&route.u32(attribute::route::OIF, 12).finish(0)).unwrap()
    };
    for third in 1..4 {
        kernel.apply(&mut bench.rib, &by_bgp(third, 2));
    }
    kernel.apply(&mut bench.rib, &by_hand(4));
    let sources = |bench: &Bench| {
        let shown = bench.rib.show(0, prefix("198.51.0.0/16"));
        let shown = shown.filter(|route| prefix("198.51.0.0/16").contains(route.prefix.first()));
        shown
            .map(|route| route.key.source.name())
            .collect::<Vec<_>>()
    };
    assert_eq!(sources(&bench), ["kernel"; 4]);
    // Each route is in the table once.
    for third in 1..3 {
        fpm.apply(&mut bench.rib, &by_bgp(third, 3));
    }
    assert_eq!(sources(&bench), ["fpm", "fpm", "kernel", "kernel"]);
    assert_eq!(bench.rib.counts().routes[0], 4);
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.1.1")), ip("192.0.2.3"));
    // While FRR is connected, only those routes of the kernel count that FRR has not sent.
    kernel.told_by_frr = true;
    kernel.begin(&mut bench.rib);
    for third in 1..4 {
        kernel.apply(&mut bench.rib, &by_bgp(third, 2));
    }
    kernel.apply(&mut bench.rib, &by_hand(4));
    assert_eq!(kernel.end(&mut bench.rib), 0);
    assert_eq!(sources(&bench), ["fpm", "fpm", "kernel", "kernel"]);
    // FRR's route stands beside one that a user has added to the kernel.
    fpm.apply(&mut bench.rib, &by_bgp(4, 3));
    assert_eq!(bench.rib.counts().routes[0], 5);
    // When FRR has ended, the kernel's routes are added again before FRR's are removed.
    fpm.begin(&mut bench.rib);
    kernel.told_by_frr = false;
    kernel.begin(&mut bench.rib);
    for third in 1..4 {
        kernel.apply(&mut bench.rib, &by_bgp(third, 2));
    }
    kernel.apply(&mut bench.rib, &by_hand(4));
    kernel.end(&mut bench.rib);
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.1.1")), ip("192.0.2.3"));
    assert_eq!(fpm.end(&mut bench.rib), 3);
    bench.commit();
    assert_eq!(sources(&bench), ["kernel"; 4]);
    assert_eq!(gateway(&bench.hop("198.51.1.1")), ip("192.0.2.2"));
}

#[test]
fn a_full_table_takes_frrs_route_for_the_kernels() {
    let mut bench = Bench::new();
    let (mut fpm, mut kernel) = (feed(&mut bench), kernel(&mut bench));
    let route = |number: u32| {
        let [_, _, high, low] = (number << 4).to_be_bytes();
        let message = rtm(kind::NEW_ROUTE, [172, 16 + high, low, 0], 24, 186)
            .address(attribute::route::GATEWAY, [192, 0, 2, 2].into());
        said(&message.u32(attribute::route::OIF, 11).finish(0)).unwrap()
    };
    // As many as there is room for.
    for number in 0..1000 {
        kernel.apply(&mut bench.rib, &route(number));
    }
    for number in 0..1001 {
        fpm.apply(&mut bench.rib, &route(number));
    }
    assert_eq!((fpm.counts.added, fpm.counts.full), (1000, 1));
    bench.commit();
    assert_eq!(bench.rib.counts().routes[0], 1000);
    // Removing a route that is not in the table changes nothing.
    fpm.begin(&mut bench.rib);
    assert_eq!(fpm.end(&mut bench.rib), 1000);
    bench.commit();
    assert_eq!(bench.rib.counts().routes[0], 0);
}

#[test]
fn there_is_an_end_to_objects() {
    let mut bench = Bench::new();
    let mut feed = feed(&mut bench);
    for id in 0..300_000 {
        feed.apply(
            &mut bench.rib,
            &Said::Object {
                id,
                to: Told::Blackhole,
            },
        );
    }
    assert_eq!(feed.counts.full, 300_000 - (1 << 18));
    feed.apply(&mut bench.rib, &route_to([198, 51, 100, 0], 299_999));
    feed.apply(&mut bench.rib, &route_to([198, 51, 100, 0], 7));
    bench.commit();
    assert_eq!(bench.action("198.51.100.1"), Some(Action::Blackhole));
}
