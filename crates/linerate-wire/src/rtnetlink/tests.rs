//! Messages as the kernel and zebra send them, byte by byte where it matters, and anything else.

use super::build::{Builder, CREATE, REPLACE, REQUEST};
use super::route::ONLINK;
use super::*;
use crate::MacAddr;
use core::net::{IpAddr, Ipv6Addr};
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

fn read(bytes: &[u8]) -> Result<Body<'_>, Flaw> {
    Messages::new(bytes).next().expect("a message")?.read()
}

fn rtm(len: u8, table: u8, kind: u8) -> [u8; 12] {
    [2, len, 0, 0, table, 186, 0, kind, 0, 0, 0, 0]
}

/// `ip route add 10.1.0.0/16 via 192.0.2.1 dev 3 metric 20`, as a little-endian kernel writes it.
#[test]
#[cfg(target_endian = "little")]
fn a_route_from_its_bytes() {
    let bytes: &[u8] = &[
        60, 0, 0, 0, 24, 0, 1, 5, 7, 0, 0, 0, 0, 0, 0, 0, // header
        2, 16, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0, // rtmsg
        8, 0, 1, 0, 10, 1, 0, 0, // RTA_DST
        8, 0, 6, 0, 20, 0, 0, 0, // RTA_PRIORITY
        8, 0, 5, 0, 192, 0, 2, 1, // RTA_GATEWAY
        8, 0, 4, 0, 3, 0, 0, 0, // RTA_OIF
    ];
    let built = Builder::new(kind::NEW_ROUTE, REQUEST | CREATE | REPLACE)
        .fixed(&rtm(16, 254, 1))
        .address(attribute::route::DST, [10, 1, 0, 0].into())
        .u32(attribute::route::PRIORITY, 20)
        .address(attribute::route::GATEWAY, [192, 0, 2, 1].into())
        .u32(attribute::route::OIF, 3)
        .finish(7);
    assert_eq!(built, bytes);
    let Ok(Body::NewRoute(route)) = read(bytes) else {
        panic!("no route");
    };
    assert_eq!(route.destination, IpAddr::from([10, 1, 0, 0]));
    assert_eq!((route.len, route.table, route.metric), (16, 254, 20));
    assert_eq!((route.protocol, route.kind), (186, RouteKind::Unicast));
    let next_hops: Vec<Via> = route.vias().collect();
    assert_eq!(next_hops.len(), 1);
    assert_eq!(next_hops[0].gateway, Some(IpAddr::from([192, 0, 2, 1])));
    assert_eq!((next_hops[0].interface, next_hops[0].weight), (3, 1));
}

#[test]
fn several_ways_with_weights() {
    let next_hops = [
        (Some(IpAddr::from([192, 0, 2, 1])), 3, 1),
        (None, 4, 10),
        (Some("2001:db8::1".parse().unwrap()), 5, 256),
    ];
    let bytes = Builder::new(kind::NEW_ROUTE, REQUEST)
        .fixed(&rtm(0, 0, 1))
        .u32(attribute::route::TABLE, 1000)
        .multipath(&next_hops)
        .finish(0);
    let Ok(Body::NewRoute(route)) = read(&bytes) else {
        panic!("no route");
    };
    assert_eq!((route.len, route.table), (0, 1000));
    assert_eq!(route.destination, IpAddr::from([0; 4]));
    let got = route
        .vias()
        .map(|via| (via.gateway, via.interface, via.weight));
    assert_eq!(got.collect::<Vec<_>>(), next_hops);
}

#[test]
fn an_ipv4_route_over_an_ipv6_gateway() {
    // RFC 8950; the kernel says it as RTA_VIA.
    let gateway: Ipv6Addr = "fe80::1".parse().unwrap();
    let via = [&10u16.to_ne_bytes()[..], &gateway.octets()].concat();
    let bytes = Builder::new(kind::NEW_ROUTE, 0)
        .fixed(&rtm(8, 254, 1))
        .address(attribute::route::DST, [10, 0, 0, 0].into())
        .bytes(attribute::route::VIA, &via)
        .u32(attribute::route::OIF, 2)
        .finish(0);
    let Ok(Body::NewRoute(route)) = read(&bytes) else {
        panic!("no route");
    };
    assert_eq!(route.vias().next().unwrap().gateway, Some(gateway.into()));
}

#[test]
fn what_takes_labels_or_a_tunnel_says_so() {
    let route = || {
        Builder::new(kind::NEW_ROUTE, 0)
            .fixed(&rtm(16, 254, 1))
            .address(attribute::route::DST, [10, 1, 0, 0].into())
    };
    let next_hops = [(Some(IpAddr::from([192, 0, 2, 1])), 3, 1), (None, 4, 1)];
    let label = [0, 0, 17, 1];
    // With NLA_F_NESTED, and without.
    for encap in [attribute::route::ENCAP | 0x8000, attribute::route::ENCAP] {
        for (route, next_hops) in [
            (route().u32(attribute::route::OIF, 3), 1),
            (route().multipath(&next_hops), 2),
        ] {
            let bytes = route
                .bytes(attribute::route::ENCAP_TYPE, &[1, 0])
                .bytes(encap, &label)
                .finish(0);
            let Ok(Body::NewRoute(route)) = read(&bytes) else {
                panic!("no route");
            };
            assert_eq!(
                route.vias().filter(|via| via.encapsulated).count(),
                next_hops
            );
        }
    }
}

#[test]
fn routes_of_frr_are_told_by_their_protocol() {
    let by = |protocol| {
        let fixed = [2, 0, 0, 0, 254, protocol, 0, 1, 0, 0, 0, 0];
        let bytes = Builder::new(kind::NEW_ROUTE, 0).fixed(&fixed).finish(0);
        matches!(read(&bytes), Ok(Body::NewRoute(route)) if route.by_zebra())
    };
    // RTPROT_ZEBRA, BABEL, BGP, OSPF, ZSTATIC, SRTE; KERNEL, BOOT, STATIC, BIRD, DHCP, KEEPALIVED.
    assert!([11, 42, 186, 188, 196, 198].into_iter().all(by));
    assert!(![2, 3, 4, 12, 16, 18].into_iter().any(by));
}

#[test]
fn next_hops_and_groups() {
    let one = Builder::new(kind::NEW_NEXTHOP, 0)
        .fixed(&[2, 0, 11, 0, ONLINK, 0, 0, 0])
        .u32(attribute::nexthop::ID, 7)
        .address(attribute::nexthop::GATEWAY, [192, 0, 2, 1].into())
        .u32(attribute::nexthop::OIF, 3)
        .finish(0);
    let Ok(Body::NewNexthop(one)) = read(&one) else {
        panic!("no next hop");
    };
    assert!(!one.is_group() && !one.blackhole && one.id == 7);
    assert!(one.via.onlink == cfg!(target_endian = "little"));
    let group = Builder::new(kind::NEW_NEXTHOP, 0)
        .fixed(&[0; 8])
        .u32(attribute::nexthop::ID, 9)
        .group(&[(7, 1), (8, 300)])
        .finish(0);
    let Ok(Body::NewNexthop(group)) = read(&group) else {
        panic!("no next hop");
    };
    assert!(group.is_group());
    assert_eq!(group.members().collect::<Vec<_>>(), [(7, 1), (8, 300)]);
    let nameless = Builder::new(kind::NEW_NEXTHOP, 0).fixed(&[0; 8]).finish(0);
    assert!(matches!(read(&nameless), Ok(Body::Other)));
}

#[test]
fn links_addresses_and_neighbours() {
    let link = Builder::new(kind::NEW_LINK, 0)
        .fixed(&[0, 0, 1, 0])
        .fixed(&4u32.to_ne_bytes())
        .fixed(&0x1_0043u32.to_ne_bytes())
        .fixed(&[0; 4])
        .bytes(attribute::link::NAME, b"lr-wan\0")
        .bytes(attribute::link::ADDRESS, &[2, 0, 0, 0, 0, 1])
        .u32(attribute::link::MTU, 1500)
        .finish(0);
    let Ok(Body::NewLink(link)) = read(&link) else {
        panic!("no link");
    };
    assert_eq!((link.index, link.name, link.mtu), (4, "lr-wan", Some(1500)));
    assert!(link.up && link.carrier && link.mac == Some(MacAddr::local(1)));
    assert!(!link.loopback && link.kind.is_none() && link.table.is_none());

    let address = Builder::new(kind::NEW_ADDRESS, 0)
        .fixed(&[2, 24, 0x80, 0])
        .fixed(&4u32.to_ne_bytes())
        .address(attribute::address::ADDRESS, [192, 0, 2, 2].into())
        .address(attribute::address::LOCAL, [192, 0, 2, 1].into())
        .finish(0);
    let Ok(Body::NewAddress(address)) = read(&address) else {
        panic!("no address");
    };
    assert_eq!((address.index, address.len), (4, 24));
    assert_eq!(address.address, IpAddr::from([192, 0, 2, 1]));
    assert!(!address.tentative());

    let neighbour = Builder::new(kind::DEL_NEIGHBOUR, 0)
        .fixed(&[10, 0, 0, 0])
        .fixed(&4u32.to_ne_bytes())
        .fixed(&0x80u16.to_ne_bytes())
        .fixed(&[0, 1])
        .address(attribute::neighbour::DST, "fe80::9".parse().unwrap())
        .bytes(attribute::neighbour::LLADDR, &[2, 0, 0, 0, 0, 9])
        .finish(0);
    let Ok(Body::DelNeighbour(neighbour)) = read(&neighbour) else {
        panic!("no neighbour");
    };
    assert!(neighbour.permanent() && neighbour.mac == Some(MacAddr::local(9)));
}

#[test]
fn flaws_are_named() {
    let route = Builder::new(kind::NEW_ROUTE, 0).fixed(&rtm(8, 254, 1));
    let why = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let with = |attribute, value: &[u8]| route.clone().bytes(attribute, value).finish(0);
    assert!(
        why(&with(attribute::route::DST, &[10, 0, 0]))
            .contains("attribute 1 of netlink message 24")
    );
    assert!(why(&with(attribute::route::OIF, &[1])).contains("1 bytes"));
    assert!(
        why(&with(
            attribute::route::MULTIPATH,
            &[9, 0, 0, 0, 0, 0, 0, 0]
        ))
        .contains("attribute 9")
    );
    assert!(why(&with(attribute::route::DST, &[0; 16])).contains("prefix"));
    assert!(why(&route.clone().finish(0)[..20]).contains("says it has 28 bytes, of 20"));
    let short = Builder::new(kind::NEW_ROUTE, 0).fixed(&[2; 11]).finish(0);
    assert!(why(&short).contains("ends after 11"));
    let long = Builder::new(kind::NEW_ROUTE, 0)
        .fixed(&rtm(33, 254, 1))
        .finish(0);
    assert_eq!(read(&long).unwrap_err(), Flaw::Prefix { len: 33 });
    let mut attribute = with(attribute::route::OIF, &[0; 4]);
    attribute[28..30].copy_from_slice(&3u16.to_ne_bytes());
    assert!(why(&attribute).contains("attribute 4 says it has 3 bytes"));
    assert!(why(&[1, 2, 3]).contains("of 3"));
}

#[test]
fn a_flaw_ends_the_walk() {
    let good = Builder::new(kind::NOOP, 0).finish(0);
    let bytes = [&good[..], &[3, 0, 0, 0], &good].concat();
    let found: Vec<bool> = Messages::new(&bytes).map(|m| m.is_ok()).collect();
    assert_eq!(found, [true, false]);
}

proptest! {
    #[test]
    fn never_panics(kind in 0u16..110, body: Vec<u8>) {
        let bytes = Builder::new(kind, 0).fixed(&body).finish(0);
        for message in Messages::new(&bytes) {
            match message.and_then(|message| message.read()) {
                Ok(Body::NewRoute(route)) => drop(route.vias().count()),
                Ok(Body::NewNexthop(nexthop)) => drop(nexthop.members().count()),
                _ => {}
            }
        }
        for message in Messages::new(&body) {
            let _ = message.map(|message| message.read().is_ok());
        }
    }
}

/// `ip link add blue type vrf table 10`, as the kernel tells it; `lo` has a flag for it.
#[test]
fn links_that_are_no_devices() {
    let attribute = |kind: u16, value: &[u8]| {
        let len = (4 + value.len()) as u16;
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let table = attribute(attribute::info::VRF_TABLE, &10u32.to_ne_bytes());
    let info = |kind: &[u8], data: &[u8]| {
        let kind = attribute(attribute::info::KIND, kind);
        [kind, attribute(attribute::info::DATA, data)].concat()
    };
    let link = |flags: u32, info: &[u8]| {
        Builder::new(kind::NEW_LINK, 0)
            .fixed(&[0; 8])
            .fixed(&flags.to_ne_bytes())
            .fixed(&[0; 4])
            .bytes(attribute::link::INFO, info)
            .finish(0)
    };
    for (flags, info, loopback, kind, of_table) in [
        (0, info(b"vrf\0", &table), false, Some("vrf"), Some(10)),
        (0, info(b"dummy\0", &[]), false, Some("dummy"), None),
        // The same number means something else to others.
        (0, info(b"vlan\0", &table), false, Some("vlan"), None),
        (8, Vec::new(), true, None, None),
    ] {
        let link = link(flags, &info);
        let Ok(Body::NewLink(link)) = read(&link) else {
            panic!("no link");
        };
        assert_eq!(
            (link.loopback, link.kind, link.table),
            (loopback, kind, of_table)
        );
    }
    let short = info(b"vrf\0", &attribute(attribute::info::VRF_TABLE, &[10]));
    assert!(matches!(read(&link(0, &short)), Err(Flaw::Value { .. })));
}
