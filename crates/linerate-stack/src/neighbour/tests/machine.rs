//! The states of one neighbour (RFC 4861 7.2 and 7.3), for ARP and Neighbor Discovery alike.

use super::*;

#[test]
fn rfc_4861_7_2_2_three_solicitations_a_second_apart_and_then_unreachable() {
    let mut world = World::new();
    let asked = "all: ARP who has 192.0.2.7, tell 192.0.2.1";
    assert_eq!(world.send("192.0.2.7", 1), None);
    assert_eq!(world.said(), [asked]);
    world.pass(900);
    assert!(world.said().is_empty());
    world.pass(100);
    assert_eq!(world.said(), [asked]);
    world.pass(1000);
    assert_eq!(world.said(), [asked]);
    assert_eq!(world.state("192.0.2.7"), Some(State::Incomplete));
    world.pass(1000);
    assert_eq!(world.said(), [""; 0]);
    assert_eq!(world.dropped(), [(1, DropReason::Unresolved)]);
    assert_eq!(world.state("192.0.2.7"), Some(State::Failed));
    // RFC 1122 2.3.2.1: no flood of requests to a host that does not answer.
    world.send("192.0.2.7", 2);
    assert_eq!(world.dropped(), [(2, DropReason::Unresolved)]);
    assert!(world.said().is_empty());
    world.pass(1000);
    assert_eq!(world.state("192.0.2.7"), None);
    world.send("192.0.2.7", 3);
    assert_eq!(world.said(), [asked]);
    assert_eq!(world.events(), [], "routing got no event");
}

#[test]
fn rfc_4861_7_2_2_solicitations_go_to_the_targets_group() {
    let mut world = World::new();
    world.send("2001:db8::7", 1);
    world.send("fe80::7", 2);
    world.send("2001:db8:9::7", 3); // a gateway that a route says is on link
    let asked = [
        "group: 2001:db8::1 > ff02::1:ff00:7 neighbour solicitation 2001:db8::7",
        "group: fe80::1 > ff02::1:ff00:7 neighbour solicitation fe80::7",
        "group: fe80::1 > ff02::1:ff00:7 neighbour solicitation 2001:db8:9::7",
    ];
    assert_eq!(world.said(), asked);
    world.pass(1000);
    assert_eq!(world.said().len(), 3);
    world.pass(2000);
    let dropped = [1, 2, 3].map(|first| (first, DropReason::Unresolved));
    assert_eq!(world.dropped(), dropped);
}

#[test]
fn rfc_826_request_byte_by_byte() {
    let mut world = World::new();
    world.send("192.0.2.7", 1);
    let mut wanted = vec![0xff; 6];
    wanted.extend([2, 0, 0, 0, 0, 1, 8, 6]);
    wanted.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1]);
    wanted.extend([0, 0, 0, 0, 0, 0, 192, 0, 2, 7]);
    wanted.resize(60, 0);
    let (interface, frame) = world.out.frames().next().unwrap();
    assert_eq!((interface, frame), (0, &wanted[..]));
}

#[test]
fn packets_wait_and_leave_in_order_with_the_answer() {
    for (address, answer) in [
        ("192.0.2.7", is_at("192.0.2.7", HOST)),
        (
            "2001:db8::7",
            na(
                HOST,
                v6("2001:db8::7"),
                v6("2001:db8::1"),
                v6("2001:db8::7"),
                Some(HOST),
                "SO",
            ),
        ),
    ] {
        let mut world = World::new();
        for first in 1..=3 {
            world.send(address, first);
        }
        assert_eq!(world.said().len(), 1, "one solicitation for all of them");
        assert_eq!(world.table.queued(), (3, 300));
        world.pass(300);
        world.hear(&answer).unwrap();
        assert_eq!(world.released(), [(1, HOST), (2, HOST), (3, HOST)]);
        assert_eq!(world.events(), [told(address, Some(HOST))]);
        assert_eq!(world.send(address, 4), Some(HOST));
        assert_eq!(world.released(), [(4, HOST)]);
        assert_eq!(world.events(), [], "nothing new");
        assert_eq!((world.table.queued(), world.said().len()), ((0, 0), 0));
    }
}

#[test]
fn rfc_4861_7_3_2_reachable_delay_probe_and_reachable_again() {
    let mut world = World::new();
    world.meet("2001:db8::7", HOST);
    // RFC 4861 6.3.2: between 15 and 45 seconds.
    world.pass(14_900);
    assert_eq!(world.state("2001:db8::7"), Some(State::Reachable));
    world.pass(30_200);
    world.pass(4_900);
    let probe = "7: 2001:db8::1 > 2001:db8::7 neighbour solicitation 2001:db8::7";
    let said = world.said();
    assert!(
        !said.is_empty() && said.iter().all(|words| words == probe),
        "{said:?}"
    );
    // 7.3.3: packets are sent while it is probed.
    let mut world = World::new();
    world.meet("192.0.2.7", HOST);
    while world.state("192.0.2.7") == Some(State::Reachable) {
        world.pass(100);
    }
    assert_eq!(world.state("192.0.2.7"), Some(State::Delay));
    world.pass(4_900);
    assert!(world.said().is_empty());
    world.pass(100);
    assert_eq!(world.state("192.0.2.7"), Some(State::Probe));
    assert_eq!(world.said(), ["7: ARP who has 192.0.2.7, tell 192.0.2.1"]);
    assert_eq!(world.send("192.0.2.7", 1), Some(HOST));
    world.hear(&is_at("192.0.2.7", HOST)).unwrap();
    assert_eq!(world.state("192.0.2.7"), Some(State::Reachable));
    assert_eq!(world.events(), [], "the same MAC address");
}

#[test]
fn rfc_4861_7_3_3_after_three_unanswered_probes_routing_hears_of_it() {
    let mut world = World::new();
    world.meet("192.0.2.7", HOST);
    while world.state("192.0.2.7") != Some(State::Probe) {
        world.pass(100);
    }
    world.pass(2_900);
    assert_eq!(world.said().len(), 3);
    assert_eq!(world.events(), []);
    world.pass(100);
    assert_eq!(world.events(), [told("192.0.2.7", None)]);
    assert_eq!(world.state("192.0.2.7"), Some(State::Failed));
    world.pass(1000);
    assert!(world.table.is_empty());
}

#[test]
fn reachable_times_spread_from_half_to_one_and_a_half() {
    let mut times = Vec::new();
    for seed in 0..50 {
        let mut world = World::with(
            Config {
                seed,
                ..Config::default()
            },
            lan(),
        );
        world.meet("192.0.2.7", HOST);
        let start = world.now_ns;
        while world.state("192.0.2.7") == Some(State::Reachable) {
            world.pass(100);
        }
        times.push((world.now_ns - start) / MILLISECOND);
    }
    let (low, high) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(
        (15_000..19_000).contains(low) && (41_000..=45_100).contains(high),
        "{low} {high}"
    );
}

#[test]
fn rfc_4861_7_3_1_upper_layers_confirm() {
    let mut world = World::new();
    world.meet("192.0.2.7", HOST);
    while world.state("192.0.2.7") != Some(State::Delay) {
        world.pass(100);
    }
    world
        .table
        .confirm(0, ip("192.0.2.7"), world.now_ns, &mut world.out);
    assert_eq!(world.state("192.0.2.7"), Some(State::Reachable));
    world
        .table
        .confirm(0, ip("192.0.2.9"), world.now_ns, &mut world.out);
    assert_eq!(world.table.len(), 1, "a confirmation makes no entry");
}

#[test]
fn who_only_asks_for_us_is_unknown_to_routing_until_a_packet_goes_there() {
    let mut world = World::new();
    world
        .hear(&who_has("192.0.2.1", HOST, "192.0.2.7"))
        .unwrap();
    assert_eq!(world.state("192.0.2.7"), Some(State::Stale));
    assert_eq!(world.events(), []);
    // RFC 4861 7.3.3: the packet is sent at once, the probe five seconds later.
    world.said();
    assert_eq!(world.send("192.0.2.7", 1), Some(HOST));
    assert_eq!(world.released(), [(1, HOST)]);
    assert_eq!(world.events(), [told("192.0.2.7", Some(HOST))]);
    assert_eq!(world.state("192.0.2.7"), Some(State::Delay));
    world.pass(5000);
    assert_eq!(world.said(), ["7: ARP who has 192.0.2.7, tell 192.0.2.1"]);
}

#[test]
fn rfc_1122_2_3_2_1_unused_neighbours_are_removed() {
    let mut world = World::new();
    world
        .hear(&who_has("192.0.2.1", HOST, "192.0.2.7"))
        .unwrap();
    world.said();
    world.pass(1_199_000);
    assert_eq!(world.state("192.0.2.7"), Some(State::Stale));
    world.pass(1_000);
    assert!(world.table.is_empty() && world.said().is_empty());
}

#[test]
fn a_neighbour_that_a_route_needs_is_asked_for_until_it_answers() {
    let mut world = World::new();
    world
        .table
        .hold(0, ip("192.0.2.254"), true, world.now_ns, &mut world.out);
    world.pass(20_000);
    let asked = world.said().len();
    assert!((12..=18).contains(&asked), "three of four seconds: {asked}");
    assert_eq!(world.events(), []);
    world.hear(&is_at("192.0.2.254", HOST)).unwrap();
    assert_eq!(world.events(), [told("192.0.2.254", Some(HOST))]);
    world
        .table
        .hold(0, ip("192.0.2.254"), false, world.now_ns, &mut world.out);
    assert_eq!(world.events(), [told("192.0.2.254", None)]);
    assert!(world.mac("192.0.2.254").is_some(), "still known");
}

#[test]
fn static_neighbours_are_never_asked_for_or_changed() {
    let mut world = World::new();
    world.send("192.0.2.7", 1);
    world.said();
    assert!(
        world
            .table
            .add_static(0, ip("192.0.2.7"), HOST, &mut world.out)
    );
    assert_eq!(world.released(), [(1, HOST)]);
    assert_eq!(world.events(), [told("192.0.2.7", Some(HOST))]);
    world.pass(3_600_000);
    assert_eq!(world.hear(&is_at("192.0.2.7", OTHER)), Err(Ignored::Static));
    let claim = who_has("192.0.2.1", OTHER, "192.0.2.7");
    assert_eq!(world.hear(&claim), Err(Ignored::Static));
    assert!(
        world.said().is_empty(),
        "a station that claims it gets no answer"
    );
    assert_eq!(world.mac("192.0.2.7"), Some(HOST));
    // Its rightful owner is answered.
    world
        .hear(&who_has("192.0.2.1", HOST, "192.0.2.7"))
        .unwrap();
    assert_eq!(world.said(), ["7: ARP 192.0.2.1 is at 02:00:00:00:00:01"]);
    assert_eq!(world.state("192.0.2.7"), Some(State::Static));
    assert!(world.table.remove(0, ip("192.0.2.7"), &mut world.out));
    assert_eq!(world.events(), [told("192.0.2.7", None)]);
    assert!(!world.table.remove(0, ip("192.0.2.7"), &mut world.out));
    // The same for Neighbor Discovery.
    assert!(
        world
            .table
            .add_static(0, ip("2001:db8::7"), HOST, &mut world.out)
    );
    let claim = na(
        OTHER,
        v6("2001:db8::7"),
        v6("2001:db8::1"),
        v6("2001:db8::7"),
        Some(OTHER),
        "SO",
    );
    assert_eq!(world.hear(&claim), Err(Ignored::Static));
    assert_eq!(
        world.hear(&ns(OTHER, "2001:db8::7", "2001:db8::1")),
        Err(Ignored::Static)
    );
}

#[test]
fn what_is_no_neighbours_address_is_refused() {
    let mut world = World::new();
    for address in [
        "192.0.2.1",
        "224.0.0.5",
        "255.255.255.255",
        "0.0.0.0",
        "127.0.0.1",
        "ff02::1",
        "::",
        "2001:db8::1",
    ] {
        world.send(address, 1);
        assert_eq!(
            world.dropped(),
            [(1, DropReason::NotNeighbour)],
            "{address}"
        );
    }
    assert!(world.said().is_empty() && world.table.is_empty());
    let packet = world.packet(1);
    world.table.resolve(
        9,
        ip("192.0.2.7"),
        Some(packet),
        world.now_ns,
        &mut world.out,
    );
    assert_eq!(world.dropped(), [(1, DropReason::NoInterface)]);
    let mut world = World::with(
        Config::default(),
        InterfaceConfig {
            addresses: vec![(ip("192.0.2.1"), 24)],
            ..lan()
        },
    );
    world.send("2001:db8::7", 1);
    assert_eq!(
        world.dropped(),
        [(1, DropReason::NoInterface)],
        "no IPv6 there"
    );
}

#[test]
fn an_interface_that_goes_takes_its_neighbours_along() {
    let mut world = World::new();
    world.meet("192.0.2.7", HOST);
    world.send("192.0.2.8", 1);
    world.table.remove_interface(0, &mut world.out);
    assert_eq!(world.events(), [told("192.0.2.7", None)]);
    assert_eq!(world.dropped(), [(1, DropReason::Evicted)]);
    assert!(world.table.is_empty());
    assert_eq!(
        world.hear(&is_at("192.0.2.7", HOST)),
        Err(Ignored::NoInterface)
    );
}

#[test]
fn a_new_configuration_keeps_who_is_still_on_the_link() {
    let mut world = World::new();
    world.meet("192.0.2.7", HOST);
    world.meet("2001:db8::7", HOST);
    world.set(InterfaceConfig {
        addresses: vec![(ip("192.0.2.1"), 24), (ip("2001:db8:1::1"), 64)],
        ..lan()
    });
    assert_eq!(world.events(), [told("2001:db8::7", None)]);
    assert_eq!(world.mac("192.0.2.7"), Some(HOST));
    assert!(world.table.is_usable(0, ip("2001:db8:1::1")));
    assert!(!world.table.is_usable(0, ip("2001:db8::1")));
}

#[test]
fn next_due_never_comes_after_what_is_done() {
    let mut world = World::new();
    assert_eq!(world.table.next_due_ns(), None);
    world.send("192.0.2.7", 1);
    let due = world.table.next_due_ns().unwrap();
    assert!(due > world.now_ns && due <= world.now_ns + SECOND);
}
