//! Bounds: entries, waiting packets, solicitations (RFC 6583, RFC 4861 7.2.2).

use super::*;

fn small(max_entries: usize) -> World {
    let config = Config {
        max_entries,
        solicits_per_s: 1_000_000,
        total_pkts: 64,
        ..Config::default()
    };
    let mut interface = lan();
    interface.addresses[0] = (ip("10.0.0.1"), 8);
    World::with(config, interface)
}

fn nth(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a01_0000 + n).into()
}

fn resolve(world: &mut World, n: u32, first: Option<u8>) {
    let packet = first.map(|first| world.packet(first));
    world
        .table
        .resolve(0, nth(n), packet, world.now_ns, &mut world.out);
}

fn answer(world: &mut World, n: u32) -> Result<(), Ignored> {
    let IpAddr::V4(sender) = nth(n) else {
        unreachable!("it is IPv4");
    };
    world.hear(&super::arp(
        US,
        Operation::Reply,
        (HOST, sender),
        (US, v4("10.0.0.1")),
    ))
}

#[test]
fn rfc_4861_7_2_2_the_oldest_that_wait_make_room() {
    let mut world = World::new();
    for first in 1..=10 {
        world.send("192.0.2.7", first);
    }
    let dropped = [(1, DropReason::QueueFull), (2, DropReason::QueueFull)];
    assert_eq!(world.dropped(), dropped);
    world.hear(&is_at("192.0.2.7", HOST)).unwrap();
    let released: Vec<u8> = world.released().iter().map(|gone| gone.0).collect();
    assert_eq!(released, [3, 4, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn bytes_that_wait_are_bounded_for_one_and_for_all() {
    let config = Config {
        queue_bytes: 250,
        total_bytes: 450,
        ..Config::default()
    };
    let mut world = World::with(config, lan());
    for first in 1..=3 {
        world.send("192.0.2.7", first);
    }
    assert_eq!(world.dropped(), [(1, DropReason::QueueFull)]);
    world.send("192.0.2.8", 4);
    world.send("192.0.2.8", 5);
    assert_eq!(world.table.queued(), (4, 400));
    // The total limit is reached: the oldest packet for the same neighbour is dropped, or else the
    // new one.
    world.send("192.0.2.8", 6);
    assert_eq!(world.dropped(), [(4, DropReason::QueueFull)]);
    world.send("192.0.2.9", 7);
    assert_eq!(world.dropped(), [(7, DropReason::QueueFull)]);
    assert_eq!(world.table.queued(), (4, 400));
}

#[test]
fn packets_that_wait_are_bounded_in_all() {
    let config = Config {
        total_pkts: 5,
        ..Config::default()
    };
    let mut world = World::with(config, lan());
    for host in 10..20 {
        world.send(&format!("192.0.2.{host}"), host);
    }
    assert_eq!(world.table.queued(), (5, 500));
    assert_eq!(world.dropped().len(), 5);
}

#[test]
fn rfc_6583_a_scan_leaves_half_the_table_to_resolved_neighbours() {
    let mut world = small(100);
    for n in 0..40 {
        resolve(&mut world, n, None);
        answer(&mut world, n).unwrap();
    }
    for n in 1000..3000 {
        resolve(&mut world, n, None);
    }
    let known = world
        .table
        .neighbours()
        .filter(|entry| entry.mac.is_some())
        .count();
    assert_eq!((world.table.len(), known), (90, 40));
    // The neighbour solicited last answers and is added.
    answer(&mut world, 2999).unwrap();
    assert_eq!(
        answer(&mut world, 1000),
        Err(Ignored::Unasked),
        "it had to go"
    );
}

#[test]
fn the_oldest_unresolved_entry_goes_first_and_its_packets_with_it() {
    let mut world = small(8);
    for n in 0..4 {
        resolve(&mut world, n, Some(n as u8));
    }
    resolve(&mut world, 4, Some(4));
    assert_eq!(world.dropped(), [(0, DropReason::Evicted)]);
    assert!(answer(&mut world, 0).is_err() && answer(&mut world, 1).is_ok());
}

#[test]
fn unused_stale_neighbours_make_room_and_those_in_use_stay() {
    let mut world = small(4);
    for n in 0..3 {
        resolve(&mut world, n, None);
        answer(&mut world, n).unwrap();
    }
    let asks = |n: u32| who_has("10.0.0.1", OTHER, &nth(n).to_string());
    world.hear(&asks(50)).unwrap();
    assert_eq!(world.state("10.1.0.50"), Some(State::Stale));
    world.hear(&asks(51)).unwrap();
    assert_eq!(world.state("10.1.0.50"), None, "the older one went");
    resolve(&mut world, 60, Some(60));
    assert_eq!(world.state("10.1.0.51"), None);
    assert_eq!(world.state("10.1.0.60"), Some(State::Incomplete));
    // A station that only asks for us does not evict entries with waiting packets.
    world.said();
    world.hear(&asks(52)).unwrap();
    assert_eq!((world.state("10.1.0.52"), world.said().len()), (None, 1));
    answer(&mut world, 60).unwrap();
    // Of those in use, all with one MAC address, the last one is evicted.
    resolve(&mut world, 61, Some(61));
    assert_eq!(world.dropped(), []);
    let in_use = [0, 1, 2, 60].map(|n| world.table.mac(0, nth(n)));
    assert_eq!(in_use, [Some(HOST), Some(HOST), Some(HOST), None]);
    assert_eq!(world.state("10.1.0.61"), Some(State::Incomplete));
}

/// A MAC address of one host alone.
fn station(n: u32) -> MacAddr {
    let [a, b, c, d] = n.to_be_bytes();
    MacAddr([2, 1, a, b, c, d])
}

/// Looks the `n`th neighbour of an interface up, which answers.
fn meet(world: &mut World, id: u16, n: u32, mac: MacAddr) {
    let (now_ns, out) = (world.now_ns, &mut world.out);
    world.table.resolve(id, nth(n), None, now_ns, out);
    let us = (US, v4("10.0.0.1"));
    let reply = super::arp(
        US,
        Operation::Reply,
        (mac, Ipv4Addr::from_bits(0x0a01_0000 + n)),
        us,
    );
    let heard = world.table.arp(id, &reply, &|_| false, now_ns, out);
    assert!(heard.is_ok(), "{n}: there is room for an entry");
    out.clear();
}

#[test]
fn a_host_that_answers_for_a_whole_network_displaces_only_its_own_entries() {
    let mut world = small(100);
    assert!(world.table.add_static(0, nth(9999), OTHER, &mut world.out));
    let known = |world: &World, hosts: std::ops::Range<u32>| {
        let known = |n: &u32| world.table.mac(0, nth(*n)) == Some(station(*n));
        hosts.filter(known).count()
    };
    for n in 100..120 {
        meet(&mut world, 0, n, station(n));
    }
    for n in 1000..3000 {
        meet(&mut world, 0, n, HOST);
    }
    assert_eq!((world.table.len(), known(&world, 100..120)), (100, 20));
    // Later neighbours are added as well.
    for n in 120..140 {
        meet(&mut world, 0, n, station(n));
    }
    for n in 3000..5000 {
        meet(&mut world, 0, n, HOST);
    }
    assert_eq!((world.table.len(), known(&world, 100..140)), (100, 40));
    assert_eq!(world.table.mac(0, nth(9999)), Some(OTHER), "static");
}

#[test]
fn an_interface_full_of_stations_leaves_the_others_alone_and_its_own_first_ones() {
    let mut world = small(100);
    let mut other = lan();
    other.addresses[0] = (ip("10.0.0.1"), 8);
    world
        .table
        .set_interface(1, other, world.now_ns, &mut world.out);
    for n in 0..10 {
        meet(&mut world, 0, n, station(n));
        meet(&mut world, 1, n, station(n));
    }
    for n in 1000..3000 {
        meet(&mut world, 0, n, station(n));
    }
    for n in 10..20 {
        meet(&mut world, 1, n, station(n));
    }
    let known = |id: u16, hosts: std::ops::Range<u32>| {
        hosts
            .filter(|n| world.table.mac(id, nth(*n)).is_some())
            .count()
    };
    assert_eq!((known(0, 0..10), known(1, 0..20)), (10, 20));
    assert_eq!(
        known(0, 2999..3000),
        1,
        "and a neighbour solicited now is found"
    );
}

#[test]
fn static_neighbours_displace_others_and_are_displaced_by_none() {
    let mut world = small(3);
    for n in 0..3 {
        resolve(&mut world, n, None);
        let _ = answer(&mut world, n);
    }
    world.events();
    for n in 10..13 {
        assert!(world.table.add_static(0, nth(n), OTHER, &mut world.out));
    }
    assert!(!world.table.add_static(0, nth(13), OTHER, &mut world.out));
    for n in 100..200 {
        resolve(&mut world, n, None);
    }
    let states: Vec<_> = world.table.neighbours().map(|entry| entry.state).collect();
    assert_eq!(states, [State::Static; 3]);
}

#[test]
fn held_neighbours_are_displaced_by_none() {
    let mut world = small(4);
    world
        .table
        .hold(0, nth(7), true, world.now_ns, &mut world.out);
    for n in 100..200 {
        resolve(&mut world, n, None);
    }
    assert_eq!(world.state("10.1.0.7"), Some(State::Incomplete));
}

#[test]
fn solicitations_are_limited_and_none_is_forgotten() {
    let config = Config {
        solicits_per_s: 100,
        ..Config::default()
    };
    let mut world = World::with(config, lan());
    for host in 10..60 {
        world.send(&format!("192.0.2.{host}"), host);
    }
    assert_eq!(world.said().len(), 25, "a quarter of a second's at once");
    world.pass(1000);
    let said = world.said();
    assert!((25..=125).contains(&said.len()), "{}", said.len());
    for host in 10..60 {
        let asked = format!("all: ARP who has 192.0.2.{host}, tell 192.0.2.1");
        assert!(host < 35 || said.contains(&asked), "{host}");
    }
}

#[test]
fn rfc_6583_one_source_does_not_use_up_what_all_may_ask_for() {
    let mut world = small(2000);
    let ask = |world: &mut World, source: u8, n: u32| {
        world.out.clear();
        let mut packet = world.packet(0);
        let (src, dst) = (Ipv4Addr::new(203, 0, 113, source), Ipv4Addr::from_bits(n));
        let mut frame = ethernet::header(US, HOST, EtherType::IPV4).to_vec();
        frame.extend(linerate_wire::ipv4::header(0, 9, 17, src, dst, 0));
        assert!(packet.set_data(&frame));
        let now_ns = world.now_ns;
        world
            .table
            .resolve(0, nth(n), Some(packet), now_ns, &mut world.out);
        world
            .out
            .dropped
            .iter()
            .filter(|gone| gone.reason == DropReason::Limited)
            .count()
    };
    for n in 0..SOURCE_BURST {
        assert_eq!(ask(&mut world, 1, n), 0);
    }
    assert_eq!(ask(&mut world, 1, 300), 1);
    let known = ask(&mut world, 1, 0);
    assert_eq!(known, 0, "an entry under resolution needs no further token");
    assert_eq!(ask(&mut world, 2, 301), 0, "other sources are not limited");
    world.pass(100);
    assert_eq!(ask(&mut world, 1, 302), 0);
}

/// One source reaches ten thousand existing hosts as fast as they answer; addresses without a host
/// still count against its limit.
#[test]
fn a_source_with_many_resolved_neighbours_is_not_limited() {
    let mut interface = lan();
    interface.addresses[0] = (ip("10.0.0.1"), 8);
    let config = Config {
        total_pkts: 64,
        ..Config::default()
    };
    let mut world = World::with(config, interface);
    let mut ask = |n: u32, answers: bool| {
        world.out.clear();
        let mut packet = world.packet(0);
        let mut frame = ethernet::header(US, HOST, EtherType::IPV4).to_vec();
        let IpAddr::V4(dst) = nth(n) else {
            unreachable!()
        };
        frame.extend(linerate_wire::ipv4::header(
            0,
            9,
            17,
            v4("203.0.113.1"),
            dst,
            0,
        ));
        assert!(packet.set_data(&frame));
        world
            .table
            .resolve(0, dst.into(), Some(packet), world.now_ns, &mut world.out);
        if answers {
            assert_eq!(world.out.frames().count(), 1, "host {n} is asked for");
            answer(&mut world, n).unwrap();
            assert_eq!(world.released().len(), 1, "host {n}");
        }
        world
            .dropped()
            .iter()
            .filter(|gone| gone.1 == DropReason::Limited)
            .count()
    };
    // All at one moment.
    let limited: usize = (0..10_000).map(|n| ask(n, true)).sum();
    assert_eq!(limited, 0);
    let limited: usize = (10_000..11_000).map(|n| ask(n, false)).sum();
    assert_eq!(limited, 1000 - SOURCE_BURST as usize);
}

#[test]
fn next_hops_of_routes_do_not_queue_behind_a_scan() {
    let config = Config {
        solicits_per_s: 4,
        ..Config::default()
    };
    let mut world = World::with(config, lan());
    for host in 10..60 {
        world.send(&format!("192.0.2.{host}"), host);
    }
    assert_eq!(world.said().len(), 1);
    world
        .table
        .hold(0, ip("192.0.2.254"), true, world.now_ns, &mut world.out);
    assert_eq!(
        world.said(),
        ["all: ARP who has 192.0.2.254, tell 192.0.2.1"]
    );
}

#[test]
fn shutdown_drops_what_waits() {
    let mut world = World::new();
    world.send("192.0.2.7", 1);
    world.table.shutdown(&mut world.out);
    assert_eq!(world.dropped(), [(1, DropReason::Evicted)]);
    assert_eq!(world.table.queued(), (0, 0));
}
