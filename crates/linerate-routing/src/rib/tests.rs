//! The hops of packets after changes by sources, looked up in the published tables as a worker
//! would.

mod model;

use linerate_wire::MacAddr;

use super::route::Unused;
use super::testing::*;
use super::*;
use crate::plane::hops::{Action, Hop};

#[test]
fn what_comes_with_an_address() {
    let mut bench = Bench::new();
    for (address, action) in [
        ("192.0.2.1", Action::Local),
        ("192.0.2.2", Action::Glean),
        ("192.0.2.255", Action::Broadcast),
        ("255.255.255.255", Action::Broadcast),
        ("0.1.2.3", Action::Martian),
        ("127.0.0.1", Action::Martian),
        ("240.0.0.1", Action::Martian),
        ("224.0.0.5", Action::Multicast),
        ("2001:db8:1::1", Action::Local),
        ("2001:db8:1::", Action::Local),
        ("2001:db8:1::2", Action::Glean),
        ("ff02::1", Action::Multicast),
        ("fe80::1", Action::Local),
        ("::1", Action::Martian),
        ("::ffff:10.0.0.1", Action::Martian),
    ] {
        assert_eq!(bench.action(address), Some(action), "{address}");
    }
    assert_eq!(bench.action("198.51.100.1"), None);
    assert_eq!(bench.hop("192.0.2.9").interface.get(), Some(WAN));
    bench.rib.addresses(WAN, &[cidr("198.51.100.0/31")]);
    bench.commit();
    assert_eq!(bench.action("192.0.2.2"), None);
    assert_eq!(bench.action("198.51.100.0"), Some(Action::Local));
    assert_eq!(bench.action("198.51.100.1"), Some(Action::Glean));
}

#[test]
fn a_gateway_becomes_known() {
    let mut bench = Bench::new();
    bench.add("0.0.0.0/0", Source::Static, &to(&["192.0.2.254"]));
    bench.commit();
    let hop = bench.hop("8.8.8.8");
    assert_eq!(
        (hop.action, gateway(&hop)),
        (Action::Resolve, ip("192.0.2.254"))
    );
    assert_eq!((hop.macs.src(), hop.mtu), (MacAddr::local(0), 1500));
    let number = bench.number(0, ip("8.8.8.8"));
    let mac = MacAddr::local(77);
    bench.rib.neighbour(WAN, ip("192.0.2.254"), Some(mac));
    bench.commit();
    assert_eq!(
        bench.number(0, ip("8.8.8.8")),
        number,
        "no route was touched"
    );
    let hop = bench.hop("8.8.8.8");
    assert_eq!((hop.action, hop.macs.dst()), (Action::Forward, mac));
    assert_eq!(bench.hop("192.0.2.254").macs.dst(), mac);
    bench
        .rib
        .neighbour(WAN, ip("192.0.2.254"), Some(MacAddr::local(78)));
    bench.commit();
    assert_eq!(bench.hop("8.8.8.8").macs.dst(), MacAddr::local(78));
    assert_eq!(bench.hop("192.0.2.254").macs.dst(), MacAddr::local(78));
    bench.rib.neighbour(WAN, ip("192.0.2.254"), None);
    bench.commit();
    assert_eq!(bench.action("8.8.8.8"), Some(Action::Resolve));
    assert_eq!(bench.action("192.0.2.254"), Some(Action::Glean));
}

#[test]
fn neighbours_have_routes_only_where_nothing_better_is() {
    let mut bench = Bench::new();
    let mac = Some(MacAddr::local(9));
    bench.rib.neighbour(WAN, ip("203.0.113.5"), mac); // not in its network
    bench.rib.neighbour(LAN, ip("192.0.2.7"), mac); // in another's network
    bench.rib.neighbour(WAN, ip("192.0.2.130"), mac);
    bench.rib.neighbour(WAN, ip("192.0.2.1"), mac); // our own address
    bench.rib.neighbour(WAN, ip("fe80::5"), mac); // known by interface only
    bench.commit();
    assert_eq!(bench.action("203.0.113.5"), None);
    assert_eq!(bench.action("192.0.2.7"), Some(Action::Glean));
    assert_eq!(bench.action("192.0.2.1"), Some(Action::Local));
    assert_eq!(bench.action("fe80::5"), Some(Action::Local));
    assert_eq!(bench.action("192.0.2.130"), Some(Action::Forward));
    // Part of the network is routed elsewhere now.
    bench.add("192.0.2.128/25", Source::Static, &to(&["10.0.0.2"]));
    bench.commit();
    assert_eq!(gateway(&bench.hop("192.0.2.130")), ip("10.0.0.2"));
    bench.del("192.0.2.128/25", Source::Static);
    bench.commit();
    assert_eq!(bench.action("192.0.2.130"), Some(Action::Forward));
    bench.add("192.0.2.130/32", Source::Fpm, &To::Blackhole);
    bench.commit();
    assert_eq!(bench.action("192.0.2.130"), Some(Action::Blackhole));
}

#[test]
fn the_nearest_source_wins_and_the_next_takes_over() {
    let mut bench = Bench::new();
    bench.add("198.51.100.0/24", Source::Kernel, &to(&["192.0.2.3"]));
    bench.add("198.51.100.0/24", Source::Fpm, &to(&["192.0.2.2"]));
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.100.9")), ip("192.0.2.2"));
    bench.add("198.51.100.0/24", Source::Static, &To::Prohibit);
    bench.commit();
    assert_eq!(bench.action("198.51.100.9"), Some(Action::Prohibit));
    assert_eq!(bench.why("198.51.100.0/24"), Use::Best);
    bench.del("198.51.100.0/24", Source::Static);
    bench.del("198.51.100.0/24", Source::Fpm);
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.100.9")), ip("192.0.2.3"));
    bench.del("198.51.100.0/24", Source::Kernel);
    bench.commit();
    assert_eq!(bench.action("198.51.100.9"), None);
}

#[test]
fn a_route_without_a_way_is_kept_and_not_used() {
    let mut bench = Bench::new();
    bench.add("198.51.100.0/24", Source::Static, &to(&["203.0.113.1"]));
    bench.add("198.51.100.0/24", Source::Fpm, &to(&["192.0.2.2"]));
    bench.add("10.9.0.0/16", Source::Static, &to(&["192.0.2.1"]));
    bench.add("127.1.0.0/16", Source::Fpm, &to(&["192.0.2.2"]));
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("192.0.2.2"));
    assert_eq!(bench.why("10.9.0.0/16"), Use::No(Unused::NoGateway));
    assert_eq!(bench.why("127.1.0.0/16"), Use::No(Unused::Martian));
    assert_eq!(bench.action("127.1.0.1"), Some(Action::Martian));
    let unused = |bench: &Bench| {
        let shown: Vec<_> = bench.rib.show(0, prefix("198.51.100.0/24")).collect();
        shown
            .iter()
            .map(|route| (route.key.source, route.used))
            .collect::<Vec<_>>()
    };
    assert!(unused(&bench).contains(&(Source::Static, Use::No(Unused::NoRoute))));
    // Now a route leads to the gateway.
    bench.add("203.0.113.0/24", Source::Static, &to(&["10.0.0.9"]));
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("10.0.0.9"));
    assert!(unused(&bench).contains(&(Source::Fpm, Use::Backup)));
    bench.del("203.0.113.0/24", Source::Static);
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("192.0.2.2"));
}

#[test]
fn no_gateway_is_behind_the_default_route_or_its_own() {
    let mut bench = Bench::new();
    bench.add("0.0.0.0/0", Source::Static, &to(&["192.0.2.2"]));
    bench.add("198.51.100.0/24", Source::Static, &to(&["203.0.113.1"]));
    bench.add("172.16.0.0/12", Source::Static, &to(&["10.0.0.2"]));
    bench.add("172.16.0.0/16", Source::Static, &to(&["172.16.0.1"]));
    // In a connected network a gateway is reached whatever the route is.
    bench.add("192.0.2.128/25", Source::Static, &to(&["192.0.2.129"]));
    bench.commit();
    assert_eq!(bench.why("198.51.100.0/24"), Use::No(Unused::NoRoute));
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("192.0.2.2"));
    assert_eq!(bench.why("172.16.0.0/16"), Use::No(Unused::Circle));
    assert_eq!(gateway(&bench.hop("172.16.9.9")), ip("10.0.0.2"));
    assert_eq!(gateway(&bench.hop("192.0.2.130")), ip("192.0.2.129"));
    bench.add("172.16.0.0/24", Source::Static, &to(&["10.0.0.3"]));
    bench.commit();
    assert_eq!(gateway(&bench.hop("172.16.9.9")), ip("10.0.0.3"));
}

#[test]
fn gateways_of_the_other_family_and_link_local_ones() {
    let mut bench = Bench::new();
    let over = |gateway: &str| {
        To::NextHops(vec![NextHop {
            interface: Some(LAN),
            ..via(gateway)
        }])
    };
    // RFC 8950: IPv4 over an IPv6 gateway. Link-local gateways are known by their interface.
    bench.add("198.51.100.0/24", Source::Fpm, &over("fe80::9"));
    bench.add("2001:db8:2::/48", Source::Fpm, &over("fe80::9"));
    bench.add("2001:db8:3::/48", Source::Static, &to(&["2001:db8:1::9"]));
    bench.add("2001:db8:4::/48", Source::Static, &to(&["fe80::9"]));
    bench
        .rib
        .neighbour(LAN, ip("fe80::9"), Some(MacAddr::local(9)));
    bench.commit();
    for address in ["198.51.100.1", "2001:db8:2::1"] {
        let hop = bench.hop(address);
        assert_eq!(
            (hop.action, hop.macs.dst()),
            (Action::Forward, MacAddr::local(9))
        );
        assert_eq!(
            (gateway(&hop), hop.interface.get()),
            (ip("fe80::9"), Some(LAN))
        );
    }
    let hop = bench.hop("2001:db8:3::1");
    assert_eq!(
        (hop.action, gateway(&hop)),
        (Action::Resolve, ip("2001:db8:1::9"))
    );
    assert_eq!(bench.why("2001:db8:4::/48"), Use::No(Unused::NoGateway));
}

#[test]
fn circles_are_not_followed() {
    let mut bench = Bench::new();
    bench.add("172.16.0.0/16", Source::Static, &to(&["172.17.0.1"]));
    bench.add("172.17.0.0/16", Source::Static, &to(&["172.16.0.1"]));
    bench.commit();
    assert_eq!(bench.action("172.16.0.1"), None);
    // With a route that breaks the loop both are used, and without it neither.
    bench.add("172.16.0.0/12", Source::Static, &to(&["10.0.0.2"]));
    bench.commit();
    assert_eq!(gateway(&bench.hop("172.16.0.1")), ip("10.0.0.2"));
    assert_eq!(gateway(&bench.hop("172.17.0.1")), ip("10.0.0.2"));
    bench.del("172.16.0.0/12", Source::Static);
    bench.commit();
    assert_eq!(bench.action("172.16.0.1"), None);
    assert_eq!(bench.action("172.17.0.1"), None);
}

#[test]
fn an_interface_goes_down_and_comes_back() {
    let mut bench = Bench::new();
    let mac = Some(MacAddr::local(9));
    bench.rib.neighbour(WAN, ip("192.0.2.2"), mac);
    bench.add("198.51.100.0/24", Source::Fpm, &to(&["192.0.2.2"]));
    bench.add("198.51.100.0/24", Source::Kernel, &to(&["10.0.0.2"]));
    bench.add("203.0.113.0/24", Source::Fpm, &to(&["192.0.2.2"]));
    bench.add("203.0.0.0/16", Source::Fpm, &to(&["10.0.0.2"]));
    bench.commit();
    assert_eq!(bench.hop("198.51.100.1").interface.get(), Some(WAN));
    bench.rib.interface_state(WAN, false);
    bench.commit();
    assert_eq!(bench.hop("198.51.100.1").interface.get(), Some(LAN));
    assert_eq!(bench.hop("203.0.113.1").interface.get(), Some(LAN));
    assert_eq!(bench.action("192.0.2.2"), None);
    assert_eq!(bench.action("192.0.2.1"), Some(Action::Local));
    bench.rib.interface_state(WAN, true);
    bench.commit();
    assert_eq!(bench.hop("198.51.100.1").interface.get(), Some(WAN));
    assert_eq!(bench.hop("203.0.113.1").interface.get(), Some(WAN));
    assert_eq!(bench.action("192.0.2.2"), Some(Action::Forward));
}

#[test]
fn shares_of_several_next_hops() {
    let mut bench = Bench::new();
    let next_hops = |weights: &[(&str, u16)]| {
        let next_hop = |&(gateway, weight): &(&str, u16)| NextHop {
            weight,
            ..via(gateway)
        };
        To::NextHops(weights.iter().map(next_hop).collect())
    };
    let two = next_hops(&[("192.0.2.2", 1), ("10.0.0.2", 3)]);
    bench.add("198.51.100.0/24", Source::Static, &two);
    // Behind it: half of a third next hop's share goes to each again.
    let three = next_hops(&[("198.51.100.1", 1), ("192.0.2.3", 1)]);
    bench.add("203.0.113.0/24", Source::Static, &three);
    bench.commit();
    let shares = bench.shares("198.51.100.1");
    assert_eq!(shares, [(ip("10.0.0.2"), 48), (ip("192.0.2.2"), 16)]);
    let shares = bench.shares("203.0.113.1");
    assert_eq!(
        shares,
        [
            (ip("10.0.0.2"), 24),
            (ip("192.0.2.2"), 8),
            (ip("192.0.2.3"), 32)
        ]
    );
    let number = bench.number(0, ip("203.0.113.1"));
    bench.rib.interface_state(LAN, false);
    bench.commit();
    assert_eq!(bench.number(0, ip("203.0.113.1")), number);
    let shares = bench.shares("203.0.113.1");
    assert_eq!(shares, [(ip("192.0.2.2"), 32), (ip("192.0.2.3"), 32)]);
    assert_eq!(gateway(&bench.hop("198.51.100.1")), ip("192.0.2.2"));
    let shown = bench.route_to(ip("203.0.113.1")).unwrap();
    assert_eq!((shown.next_hops.len(), shown.resolved.len()), (2, 2));
    assert!(shown.resolved.iter().all(|next_hop| next_hop.weight == 32));
}

#[test]
fn a_neighbour_of_a_group_is_one_change() {
    let mut bench = Bench::new();
    let two = to(&["192.0.2.2", "192.0.2.3"]);
    bench.add("198.51.100.0/24", Source::Static, &two);
    bench.commit();
    bench
        .rib
        .neighbour(WAN, ip("192.0.2.3"), Some(MacAddr::local(3)));
    bench.commit();
    let hop = bench.hop("198.51.100.1");
    let hops = bench.hops.read();
    let macs: Vec<MacAddr> = (hops.members(hop.group).iter())
        .map(|&member| hops.get(member).macs.dst())
        .collect();
    assert_eq!(
        macs.iter().filter(|&&mac| mac == MacAddr::local(3)).count(),
        32
    );
}

#[test]
fn objects_take_their_routes_along() {
    let mut bench = Bench::new();
    let object = bench.rib.object();
    for third in 0..200 {
        let prefix = format!("198.51.{third}.0/24");
        bench.add(&prefix, Source::Fpm, &To::Object(object));
    }
    bench.commit();
    assert_eq!(bench.why("198.51.7.0/24"), Use::No(Unused::NoObject));
    bench.rib.redefine(object, Some(to(&["192.0.2.2"])));
    bench.commit();
    assert_eq!(gateway(&bench.hop("198.51.7.1")), ip("192.0.2.2"));
    let published = bench.rib.counts().published;
    bench
        .rib
        .redefine(object, Some(to(&["192.0.2.3", "10.0.0.3"])));
    bench.commit();
    assert_eq!(bench.shares("198.51.7.1").len(), 2);
    bench.rib.redefine(object, Some(To::Blackhole));
    bench.commit();
    assert_eq!(bench.action("198.51.199.1"), Some(Action::Blackhole));
    assert_eq!(
        bench.rib.counts().published,
        published,
        "no route was touched"
    );
    bench.rib.drop_object(object);
    bench.commit();
    assert_eq!(bench.action("198.51.199.1"), Some(Action::Blackhole));
}

#[test]
fn what_is_not_repeated_is_swept() {
    let mut bench = Bench::new();
    for third in 0..10 {
        bench.add(
            &format!("198.51.{third}.0/24"),
            Source::Fpm,
            &to(&["192.0.2.2"]),
        );
        bench.add(
            &format!("203.0.{third}.0/24"),
            Source::Kernel,
            &To::Blackhole,
        );
    }
    bench.commit();
    let published = bench.rib.counts().published;
    bench.rib.mark_stale(Source::Fpm, 0);
    bench.commit();
    assert!(bench.route_to(ip("198.51.1.1")).unwrap().stale);
    for third in 0..9 {
        bench.add(
            &format!("198.51.{third}.0/24"),
            Source::Fpm,
            &to(&["192.0.2.2"]),
        );
    }
    bench.commit();
    assert_eq!(
        bench.rib.counts().published,
        published,
        "nothing was written"
    );
    assert_eq!(
        bench.action("198.51.9.1"),
        Some(Action::Resolve),
        "kept in doubt"
    );
    assert_eq!(bench.rib.sweep(Source::Fpm, 0), 1);
    bench.commit();
    assert_eq!(bench.action("198.51.9.1"), None);
    assert_eq!(bench.action("198.51.8.1"), Some(Action::Resolve));
    assert_eq!(bench.action("203.0.9.1"), Some(Action::Blackhole));
    assert_eq!(bench.rib.sweep(Source::Fpm, 0), 0);
}

#[test]
fn vrfs_do_not_see_each_other() {
    let mut bench = Bench::new();
    let blue = InterfaceId(2);
    bench.rib.set_interface(blue, Some(&interface(blue, 1)));
    bench.rib.interface_state(blue, true);
    bench.rib.addresses(blue, &[cidr("192.0.2.9/24")]);
    let key = Key::of(Source::Static, 0);
    let default = prefix("0.0.0.0/0");
    bench
        .rib
        .insert(1, default, key, &to(&["192.0.2.254"]))
        .unwrap();
    bench
        .rib
        .insert(0, default, key, &to(&["192.0.2.254"]))
        .unwrap();
    bench.commit();
    let interface_of = |hop: Option<Hop>| hop.and_then(|hop| hop.interface.get());
    assert_eq!(interface_of(bench.hop_in(1, "8.8.8.8")), Some(blue));
    assert_eq!(interface_of(bench.hop_in(0, "8.8.8.8")), Some(WAN));
    assert_eq!(
        bench.hop_in(1, "10.0.0.2").map(|h| h.action),
        Some(Action::Resolve)
    );
    assert_eq!(bench.rib.insert(2, default, key, &To::Blackhole), Err(Full));
    // The interface moves, with its addresses.
    bench.rib.set_interface(blue, Some(&interface(blue, 0)));
    bench.commit();
    assert_eq!(bench.hop_in(1, "192.0.2.9"), None);
    assert_eq!(bench.action("192.0.2.9"), Some(Action::Local));
    bench.rib.set_interface(blue, None);
    bench.commit();
    assert_eq!(bench.action("192.0.2.9"), Some(Action::Glean));
}

#[test]
fn a_full_table_turns_away_and_says_so() {
    let mut bench = Bench::empty(&Config {
        routes: 3,
        ..small()
    });
    let key = Key::of(Source::Fpm, 20);
    let nets = ["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8"].map(prefix);
    for net in &nets[..3] {
        bench.rib.insert(0, *net, key, &To::Blackhole).unwrap();
    }
    assert_eq!(bench.rib.insert(0, nets[3], key, &To::Blackhole), Err(Full));
    // Another source's route with a prefix that it has is another route.
    let other = Key::of(Source::Kernel, 0);
    assert_eq!(
        bench.rib.insert(0, nets[0], other, &To::Blackhole),
        Err(Full)
    );
    bench.rib.insert(0, nets[0], key, &To::Prohibit).unwrap();
    bench.commit();
    assert_eq!(bench.action("10.1.1.1"), Some(Action::Prohibit));
    assert_eq!(bench.action("13.1.1.1"), None);
    assert_eq!(bench.rib.counts().turned_away, 2);
    assert!(bench.rib.remove(0, nets[1], key));
    bench.rib.insert(0, nets[3], key, &To::Blackhole).unwrap();
    assert_eq!(bench.rib.counts().routes, [3, 0]);
}

/// Arrays for speed are allocated as routes are added, where permitted: the flat array in two
/// copies.
#[test]
fn a_large_table_has_a_flat_array_if_it_may() {
    use linerate_tables::lpm::{Layout, Prefix4};
    const FLAT_BYTES: usize = 2 * (32 << 20);
    let grown = |flat_vrfs| {
        let mut bench = Bench::empty(&Config {
            routes: FLAT_ROUTES,
            flat_vrfs,
            ..small()
        });
        let key = Key::of(Source::Fpm, 20);
        let mut add = |numbers: std::ops::Range<usize>| {
            for number in numbers {
                let net = Prefix::V4(Prefix4::of((0x01_0000 + number as u32) << 8, 24));
                let to = [To::Blackhole, To::Prohibit][number % 2].clone();
                bench.rib.insert(0, net, key, &to).unwrap();
            }
            bench.commit();
            bench.rib.counts().memory_bytes
        };
        let (half, all) = (add(0..FLAT_ROUTES / 2), add(FLAT_ROUTES / 2..FLAT_ROUTES));
        let addresses: Vec<u32> = (0x0100_0000..).step_by(77).take(500_000).collect();
        let mut found = [vec![0; addresses.len()], vec![0; addresses.len()]];
        for (layout, found) in [Layout::Compact, Layout::Flat].into_iter().zip(&mut found) {
            bench.fib4.read().lookup_by(layout, 0, &addresses, found);
        }
        assert!(found[0] == found[1]);
        all - half
    };
    assert!(grown(0) < FLAT_BYTES);
    assert!(grown(1) > FLAT_BYTES);
}

#[test]
fn a_sleeping_worker_blocks_and_loses_nothing() {
    let mut bench = Bench::new();
    bench.add("198.51.100.0/24", Source::Static, &To::Blackhole);
    assert_eq!(bench.rib.commit(), Progress::Done, "its first copy is free");
    bench.add("198.51.101.0/24", Source::Static, &To::Blackhole);
    assert_eq!(bench.rib.commit(), Progress::Blocked);
    bench.add("198.51.102.0/24", Source::Static, &To::Blackhole);
    assert_eq!(bench.rib.commit(), Progress::Blocked);
    bench.commit();
    for third in 100..103 {
        let address = format!("198.51.{third}.1");
        assert_eq!(bench.action(&address), Some(Action::Blackhole));
    }
}

#[test]
fn a_number_is_not_reused_while_a_reader_may_see_it() {
    let mut bench = Bench::new();
    bench.add("198.51.100.0/24", Source::Static, &to(&["192.0.2.2"]));
    bench.commit();
    let old = bench.number(0, ip("198.51.100.1")).unwrap();
    bench.del("198.51.100.0/24", Source::Static);
    // The worker does not look: it may still forward by the old table.
    let stale = bench.fib4.clone();
    assert_ne!(bench.rib.commit(), Progress::More);
    for gateway in 3..60 {
        let to = to(&[&format!("192.0.2.{gateway}")]);
        bench.add(&format!("203.0.{gateway}.0/24"), Source::Static, &to);
        let _ = bench.rib.commit();
        bench.hops.read();
        assert_eq!(bench.hops.read().get(old).gateway[15], 2);
    }
    drop(stale);
    bench.commit();
    // After two publications its number is used again.
    for gateway in 60..70 {
        let to = to(&[&format!("192.0.2.{gateway}")]);
        bench.add(&format!("203.1.{gateway}.0/24"), Source::Static, &to);
        bench.commit();
    }
    assert_ne!(bench.hops.read().get(old).gateway[15], 2);
}

#[test]
fn nothing_is_left_behind() {
    let mut bench = Bench::new();
    let before = bench.rib.counts();
    for round in 0..50u8 {
        for net in 0..20u8 {
            let next_hops = to(&[
                &format!("192.0.2.{}", 2 + net),
                &format!("10.0.0.{}", 2 + round),
            ]);
            bench.add(&format!("198.51.{net}.0/24"), Source::Static, &next_hops);
        }
        bench.add("203.0.113.0/24", Source::Static, &to(&["198.51.1.1"]));
        bench
            .rib
            .neighbour(WAN, ip("192.0.2.5"), Some(MacAddr::local(round)));
        bench.commit();
        for net in 0..20u8 {
            bench.del(&format!("198.51.{net}.0/24"), Source::Static);
        }
        bench.del("203.0.113.0/24", Source::Static);
        bench.rib.neighbour(WAN, ip("192.0.2.5"), None);
        bench.commit();
    }
    // What went last is free after two publications more.
    for _ in 0..3 {
        bench.add("198.51.100.0/24", Source::Static, &To::Blackhole);
        bench.commit();
        bench.del("198.51.100.0/24", Source::Static);
        bench.commit();
    }
    let after = bench.rib.counts();
    assert!(after.hops <= before.hops + 2, "{before:?} {after:?}");
    assert_eq!((after.routes, after.neighbours), ([0, 0], 0));
    assert!(bench.rib.v4.dependents.is_empty());
}

/// Whether only a default route leads to an address, as reverse path filtering asks.
fn is_default(bench: &mut Bench, address: &str) -> bool {
    bench.hop(address).is_default
}

#[test]
fn rfc3704_2_4_what_only_a_default_route_leads_to_is_marked() {
    let mut bench = Bench::new();
    let one = to(&["192.0.2.254"]);
    bench.add("0.0.0.0/0", Source::Static, &one);
    bench.add("198.51.100.0/24", Source::Static, &one);
    bench.commit();
    assert!(is_default(&mut bench, "8.8.8.8"));
    // By the same gateway, and the gateway itself.
    for address in ["198.51.100.1", "192.0.2.254", "192.0.2.9"] {
        assert!(!is_default(&mut bench, address), "{address}");
    }
    // It follows its neighbour, without a change of routes.
    let number = bench.number(0, ip("8.8.8.8"));
    let mac = MacAddr::local(77);
    bench.rib.neighbour(WAN, ip("192.0.2.254"), Some(mac));
    bench.commit();
    let hop = bench.hop("8.8.8.8");
    assert_eq!(
        (hop.action, hop.macs.dst(), hop.is_default),
        (Action::Forward, mac, true)
    );
    assert!(!is_default(&mut bench, "198.51.100.1"));
    assert!(!is_default(&mut bench, "192.0.2.254"));
    assert_eq!(bench.number(0, ip("8.8.8.8")), number);
    // It is shown like any other.
    let shown = bench.route_to(ip("8.8.8.8")).unwrap();
    assert_eq!(
        (shown.kind, shown.next_hops[0].gateway),
        ("via", Some(ip("192.0.2.254")))
    );
    assert_eq!(shown.resolved[0].mac, Some(mac));
    // When the interface goes down both become unusable, and usable again when it comes up.
    bench.rib.interface_state(WAN, false);
    bench.commit();
    assert_eq!(bench.hop_in(0, "8.8.8.8"), None);
    assert_eq!(bench.hop_in(0, "198.51.100.1"), None);
    bench.rib.interface_state(WAN, true);
    bench.commit();
    assert!(is_default(&mut bench, "8.8.8.8"));
    // IPv6, and blackholes, which reverse path filtering never accepts.
    bench.add("::/0", Source::Static, &to(&["2001:db8:1::fe"]));
    bench.add("0.0.0.0/0", Source::Static, &To::Blackhole);
    bench.commit();
    assert!(is_default(&mut bench, "2001:db8:ff::1"));
    assert_eq!(bench.action("8.8.8.8"), Some(Action::Blackhole));
}

#[test]
fn rfc3704_2_4_default_routes_of_several_ways_and_of_objects_are_marked() {
    let mut bench = Bench::new();
    let before = bench.rib.counts();
    let several = to(&["192.0.2.254", "10.0.0.254"]);
    bench.add("0.0.0.0/0", Source::Static, &several);
    bench.add("198.51.100.0/24", Source::Static, &several);
    bench.commit();
    let (default, other) = (bench.hop("8.8.8.8"), bench.hop("198.51.100.1"));
    assert_eq!(default.action, Action::Multipath);
    assert_eq!((default.is_default, other.is_default), (true, false));
    assert_eq!(default.group, other.group, "one group is enough");
    assert_eq!(bench.shares("8.8.8.8").len(), 2);
    // One of the next hops goes: both have the other.
    bench.rib.interface_state(LAN, false);
    bench.commit();
    let hop = bench.hop("8.8.8.8");
    assert_eq!((gateway(&hop), hop.is_default), (ip("192.0.2.254"), true));
    bench.del("198.51.100.0/24", Source::Static);
    bench.del("0.0.0.0/0", Source::Static);
    bench.commit();
    assert_eq!(bench.hop_in(0, "8.8.8.8"), None);
    // An object: redefined, it leads elsewhere, and is a default route still.
    let object = bench.rib.object();
    bench.rib.redefine(object, Some(to(&["192.0.2.2"])));
    bench.add("0.0.0.0/0", Source::Fpm, &To::Object(object));
    bench.add("198.51.100.0/24", Source::Fpm, &To::Object(object));
    bench.commit();
    assert!(is_default(&mut bench, "8.8.8.8") && !is_default(&mut bench, "198.51.100.1"));
    bench.rib.redefine(object, Some(to(&["192.0.2.3"])));
    bench.commit();
    for (address, default) in [("8.8.8.8", true), ("198.51.100.1", false)] {
        let hop = bench.hop(address);
        assert_eq!((gateway(&hop), hop.is_default), (ip("192.0.2.3"), default));
    }
    bench.rib.redefine(object, Some(To::Blackhole));
    bench.commit();
    assert_eq!(bench.action("8.8.8.8"), Some(Action::Blackhole));
    bench.rib.redefine(object, None);
    bench.commit();
    assert_eq!(bench.hop_in(0, "8.8.8.8"), None);
    // When all is gone, so are its targets, after two publications more.
    bench.del("0.0.0.0/0", Source::Fpm);
    bench.del("198.51.100.0/24", Source::Fpm);
    bench.rib.drop_object(object);
    for _ in 0..3 {
        bench.add("203.0.113.0/24", Source::Static, &To::Blackhole);
        bench.commit();
        bench.del("203.0.113.0/24", Source::Static);
        bench.commit();
    }
    let after = bench.rib.counts();
    assert!(after.hops <= before.hops + 2, "{before:?} {after:?}");
}

#[test]
fn more_vrfs_than_there_was_room_for_lead_to_the_same_hops() {
    let mut bench = Bench::new();
    for net in 0..200 {
        let prefix = format!("172.16.{net}.0/24");
        bench.add(&prefix, Source::Fpm, &to(&["192.0.2.254"]));
    }
    bench.add("2001:db8:9::/48", Source::Fpm, &to(&["2001:db8:1::9"]));
    bench.commit();
    let hop = bench.number(0, ip("172.16.77.1"));
    let key = Key::of(Source::Static, 0);
    let default = prefix("0.0.0.0/0");
    assert_eq!(bench.rib.insert(2, default, key, &To::Blackhole), Err(Full));
    bench.rib.widen(4).unwrap();
    assert_eq!(bench.rib.vrfs(), 4);
    // A reader of the old tables still sees the old routes.
    assert_eq!(bench.number(0, "172.16.77.1".parse().unwrap()), hop);
    bench.look_elsewhere();
    assert_eq!(bench.number(0, "172.16.77.1".parse().unwrap()), hop);
    assert!(bench.number(0, "2001:db8:9::1".parse().unwrap()).is_some());
    bench.rib.insert(2, default, key, &To::Blackhole).unwrap();
    bench.del("172.16.77.0/24", Source::Fpm);
    bench.commit();
    assert_eq!(bench.number(0, "172.16.77.1".parse().unwrap()), None);
    let action = |hop: Option<Hop>| hop.map(|hop| hop.action);
    assert_eq!(action(bench.hop_in(2, "8.8.8.8")), Some(Action::Blackhole));
    // Reserved prefixes are reserved in the new VRF, too.
    assert_eq!(action(bench.hop_in(3, "127.0.0.1")), Some(Action::Martian));
    assert_eq!(action(bench.hop_in(3, "8.8.8.8")), None);
    bench.rib.forget(Source::Fpm, 0);
    bench.commit();
    assert_eq!(bench.number(0, "172.16.78.1".parse().unwrap()), None);
}

#[test]
fn own_addresses_on_no_interface() {
    let mut bench = Bench::new();
    let hosts = |all: &[&str]| all.iter().map(|host| host.parse().unwrap()).collect();
    let all = [
        "10.255.0.1",
        "2001:db8::ff",
        "127.0.0.1",
        "::1",
        "192.0.2.1",
    ];
    bench.rib.set_hosts(0, &hosts(&all));
    bench.commit();
    assert_eq!(bench.action("10.255.0.1"), Some(Action::Local));
    assert_eq!(bench.action("2001:db8::ff"), Some(Action::Local));
    assert_eq!(bench.action("127.0.0.1"), Some(Action::Martian));
    // An interface's own stays the interface's.
    assert_eq!(bench.hop("192.0.2.1").interface.get(), Some(WAN));
    bench.rib.set_hosts(0, &hosts(&["10.255.0.2"]));
    bench.commit();
    assert_eq!(bench.action("10.255.0.1"), None);
    assert_eq!(bench.action("10.255.0.2"), Some(Action::Local));
    assert_eq!(bench.action("192.0.2.1"), Some(Action::Local));
}

/// The weak host model (RFC 1122 3.3.4.2): an address is the router's, whatever the link of its
/// interface.
#[test]
fn addresses_of_an_interface_that_is_down_are_answered() {
    let mut bench = Bench::new();
    bench.rib.interface_state(LAN, false);
    bench.commit();
    assert_eq!(bench.action("10.0.0.1"), Some(Action::Local));
    assert_eq!(bench.action("10.0.0.2"), None, "nobody is behind it");
}
