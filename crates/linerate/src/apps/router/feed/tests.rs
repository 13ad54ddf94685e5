//! Messages as zebra and the kernel send them, until packets follow.

use linerate_wire::rtnetlink::build::Builder;
use linerate_wire::rtnetlink::{Messages, attribute, kind};

use super::*;
use crate::apps::router::rib::testing::{Bench, LAN, WAN, gateway, ip, prefix};

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

/// Kernel interface 11 is wan's twin, 12 lan's; 2 is somebody else's.
fn feed(bench: &mut Bench) -> Feed {
    let mut feed = Feed::new(Source::Fpm);
    feed.set_tables([(MAIN, 0), (10, 1)]);
    feed.set_interface(&mut bench.rib, 11, Some(WAN));
    feed.set_interface(&mut bench.rib, 12, Some(LAN));
    feed
}

#[test]
fn routes_by_twins_are_followed_and_others_are_not() {
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
    // A route that leaves by something else from now on is not ours any more.
    feed.apply(
        &mut bench.rib,
        &route_by([198, 51, 100, 0], 2, [192, 0, 2, 2]),
    );
    bench.commit();
    assert_eq!(bench.action("198.51.100.1"), None);
    assert_eq!((feed.counts.added, feed.counts.not_ours), (1, 2));
}

#[test]
fn what_the_kernel_made_itself_is_left_out() {
    let connected = rtm(kind::NEW_ROUTE, [192, 0, 2, 0], 24, 2).u32(attribute::route::OIF, 11);
    assert_eq!(said(&connected.finish(0)), None);
    let local = Builder::new(kind::NEW_ROUTE, 0)
        .fixed(&[2, 32, 0, 0, 255, 186, 0, 2, 0, 0, 0, 0])
        .address(attribute::route::DST, [192, 0, 2, 1].into());
    assert_eq!(said(&local.finish(0)), None);
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
    // In the wrong order, even: the route is kept until its object is known.
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
            .map(|way| (way.gateway.unwrap(), way.weight));
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
    // 10 and 20 have changed places.
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
fn twins_may_come_after_the_routes() {
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
