//! Our addresses: detection of duplicates and announcements (RFC 4862 5.4, RFC 5227).

use super::*;

fn detecting(addresses: &[(&str, u8)]) -> InterfaceConfig {
    let addresses = addresses.iter().map(|(text, len)| (ip(text), *len));
    InterfaceConfig {
        addresses: addresses.collect(),
        detect4: true,
        detect6: true,
        ..lan()
    }
}

fn detecting4() -> (World, IpAddr) {
    let mut world = World::empty(Config::default());
    world.set(detecting(&[("192.0.2.1", 24)]));
    (world, ip("192.0.2.1"))
}

#[test]
fn rfc_5227_2_1_three_probes_then_two_announcements() {
    for seed in 0..20 {
        let mut world = World::empty(Config {
            seed,
            ..Config::default()
        });
        world.set(detecting(&[("192.0.2.1", 24)]));
        let (start, mut log) = (world.now_ns, Vec::new());
        for _ in 0..120 {
            world.pass(100);
            let at = (world.now_ns - start) / MILLISECOND;
            log.extend(world.said().into_iter().map(|words| (at, words)));
        }
        let (times, words): (Vec<u64>, Vec<String>) = log.into_iter().unzip();
        let (probe, announcement) = (
            "all: ARP who has 192.0.2.1, tell 0.0.0.0",
            "all: ARP who has 192.0.2.1, tell 192.0.2.1",
        );
        assert_eq!(
            words,
            [probe, probe, probe, announcement, announcement],
            "seed {seed}"
        );
        // PROBE_WAIT, PROBE_MIN to PROBE_MAX twice, ANNOUNCE_WAIT, ANNOUNCE_INTERVAL; a tick each.
        assert!(times[0] <= 1100, "{times:?}");
        for pair in times[..3].windows(2) {
            assert!((1000..=2100).contains(&(pair[1] - pair[0])), "{times:?}");
        }
        assert!((2000..=2100).contains(&(times[3] - times[2])), "{times:?}");
        assert!((2000..=2100).contains(&(times[4] - times[3])), "{times:?}");
        let unique = Event::Unique {
            interface: 0,
            address: ip("192.0.2.1"),
        };
        assert_eq!(world.events(), [unique]);
    }
}

#[test]
fn rfc_5227_2_1_1_an_answer_to_a_probe_is_a_duplicate() {
    let duplicate = Event::Duplicate {
        interface: 0,
        address: ip("192.0.2.1"),
        mac: HOST,
    };
    for frame in [
        is_at("192.0.2.1", HOST),
        who_has("192.0.2.9", HOST, "192.0.2.1"),
        who_has("192.0.2.1", HOST, "0.0.0.0"), // both probe at once
    ] {
        let (mut world, address) = detecting4();
        world.pass(1500);
        let _ = world.hear(&frame);
        assert_eq!(world.events(), [duplicate]);
        world.said();
        world.pass(60_000);
        assert!(world.said().is_empty() && !world.table.is_usable(0, address));
        // It belongs to another station: we do not answer for it, and it is a normal neighbour.
        let heard = world.hear(&who_has("192.0.2.1", OTHER, "192.0.2.9"));
        assert_eq!(heard, Err(Ignored::NotForUs));
    }
}

#[test]
fn rfc_5227_2_1_1_what_others_ask_and_our_own_probe_are_no_conflict() {
    let (mut world, address) = detecting4();
    world.pass(1500);
    let asked = who_has("192.0.2.1", HOST, "192.0.2.9");
    assert_eq!(
        world.hear(&asked),
        Err(Ignored::NotForUs),
        "not answered yet"
    );
    let echo = who_has("192.0.2.1", US, "0.0.0.0");
    assert_eq!(world.hear(&echo), Err(Ignored::Own));
    world.pass(10_000);
    assert!(world.table.is_usable(0, address));
}

#[test]
fn rfc_4862_5_4_2_one_solicitation_and_a_second_of_silence() {
    let mut world = World::empty(Config::default());
    world.set(detecting(&[("2001:db8::1", 64), ("fe80::1", 64)]));
    let (a, b) = (ip("2001:db8::1"), ip("fe80::1"));
    world.pass(1000);
    let mut said = world.said();
    said.sort();
    let probes = [
        "group: :: > ff02::1:ff00:1 neighbour solicitation 2001:db8::1",
        "group: :: > ff02::1:ff00:1 neighbour solicitation fe80::1",
    ];
    assert_eq!(said, probes);
    assert!(!world.table.is_usable(0, a) && !world.table.is_usable(0, b));
    let heard = world.hear(&ns(HOST, "2001:db8::7", "2001:db8::1"));
    assert_eq!(
        heard,
        Err(Ignored::NotForUs),
        "5.4: no answer while tentative"
    );
    world.pass(1100);
    assert!(world.table.is_usable(0, a) && world.table.is_usable(0, b));
    world.pass(2100);
    let said = world.said();
    let announced = "group: fe80::1 > ff02::1 neighbour advertisement fe80::1 RO";
    assert_eq!(
        said.iter().filter(|words| *words == announced).count(),
        2,
        "{said:?}"
    );
}

#[test]
fn rfc_4862_5_4_3_and_5_4_4_duplicates() {
    for frame in [
        ns(HOST, "::", "2001:db8::1"),
        na(
            HOST,
            v6("2001:db8::1"),
            ndp::ALL_NODES,
            v6("2001:db8::1"),
            Some(HOST),
            "O",
        ),
    ] {
        let mut world = World::empty(Config::default());
        world.set(detecting(&[("2001:db8::1", 64), ("fe80::1", 64)]));
        world.pass(200);
        let _ = world.hear(&frame);
        let duplicate = Event::Duplicate {
            interface: 0,
            address: ip("2001:db8::1"),
            mac: HOST,
        };
        assert_eq!(world.events(), [duplicate]);
        world.pass(10_000);
        assert!(!world.table.is_usable(0, ip("2001:db8::1")));
        assert!(world.table.is_usable(0, ip("fe80::1")));
    }
}

#[test]
fn rfc_4862_5_4_addresses_that_the_kernel_has_verified_are_not_probed() {
    let address = ip("2001:db8::1");
    let verified = InterfaceConfig {
        verified: vec![address],
        ..detecting(&[("2001:db8::1", 64), ("fe80::1", 64)])
    };
    let announced = "group: 2001:db8::1 > ff02::1 neighbour advertisement 2001:db8::1 RO";
    // From the beginning.
    let mut world = World::empty(Config::default());
    world.set(verified.clone());
    assert_eq!(world.said(), [announced]);
    assert!(world.table.is_usable(0, address) && !world.table.is_usable(0, ip("fe80::1")));
    // While it is probed for.
    let mut world = World::empty(Config::default());
    world.set(detecting(&[("2001:db8::1", 64), ("fe80::1", 64)]));
    world.pass(500);
    world.said();
    assert!(!world.table.is_usable(0, address));
    world.set(verified.clone());
    assert_eq!(world.said(), [announced]);
    let unique = Event::Unique {
        interface: 0,
        address,
    };
    assert_eq!(world.events(), [unique]);
    // A repetition changes nothing, and does not make a duplicate address ours.
    world.pass(10_000);
    world.said();
    world.set(verified.clone());
    assert!(world.said().is_empty());
    let mut world = World::empty(Config::default());
    world.set(detecting(&[("2001:db8::1", 64), ("fe80::1", 64)]));
    let _ = world.hear(&ns(HOST, "::", "2001:db8::1"));
    world.set(verified);
    assert!(!world.table.is_usable(0, address));
}

#[test]
fn rfc_4861_7_2_6_without_detection_addresses_are_used_and_announced_at_once() {
    let mut world = World::empty(Config::default());
    world.set(lan());
    let announced = [
        "all: ARP who has 192.0.2.1, tell 192.0.2.1",
        "group: 2001:db8::1 > ff02::1 neighbour advertisement 2001:db8::1 RO",
        "group: fe80::1 > ff02::1 neighbour advertisement fe80::1 RO",
    ];
    assert_eq!(world.said(), announced);
    world
        .hear(&who_has("192.0.2.1", HOST, "192.0.2.7"))
        .unwrap();
    world.said();
    world.pass(10_000);
    assert_eq!(world.said(), announced, "and once again");
    assert_eq!(world.events(), []);
}

#[test]
fn a_new_mac_address_is_announced_and_known_addresses_are_not() {
    let mut world = World::new();
    world.set(lan());
    world.pass(5000);
    assert!(world.said().is_empty());
    let mac = OTHER;
    world.set(InterfaceConfig { mac, ..lan() });
    let frames: Vec<_> = world
        .out
        .frames()
        .map(|(_, frame)| frame[6..12].to_vec())
        .collect();
    assert_eq!(frames, [mac.0; 3]);
}

#[test]
fn rfc_4862_5_3_a_link_local_address_is_added_where_there_is_none() {
    let mut world = World::empty(Config::default());
    let addresses = vec![(ip("2001:db8::1"), 64)];
    world.set(InterfaceConfig { addresses, ..lan() });
    let made = v6("fe80::ff:fe00:1");
    assert_eq!(world.table.link_local(0), Some(made));
    let addresses = vec![(ip("192.0.2.1"), 24)];
    world.set(InterfaceConfig { addresses, ..lan() });
    assert_eq!(world.table.link_local(0), None, "no IPv6, no address");
}

#[test]
fn rfc_5227_2_1_when_a_link_comes_back_addresses_are_announced_and_neighbours_probed() {
    let mut world = World::new();
    world.meet("192.0.2.7", HOST);
    world.meet("2001:db8::7", HOST);
    world
        .hear(&who_has("192.0.2.1", OTHER, "192.0.2.8"))
        .unwrap();
    let pinned = ip("192.0.2.9");
    assert!(world.table.add_static(0, pinned, OTHER, &mut world.out));
    world.said();
    world.events();
    world.table.link_down(0, world.now_ns);
    let all = ["192.0.2.7", "2001:db8::7", "192.0.2.8", "192.0.2.9"];
    let expected = [State::Stale, State::Stale, State::Stale, State::Static].map(Some);
    assert_eq!(all.map(|who| world.state(who)), expected);
    world.pass(3000);
    assert_eq!(
        (world.said(), world.events()),
        (vec![], vec![]),
        "no requests are sent there"
    );
    world.table.link_up(0, world.now_ns, &mut world.out);
    let mut announced = world.said();
    announced.sort();
    assert_eq!(
        announced,
        [
            "all: ARP who has 192.0.2.1, tell 192.0.2.1",
            "all: ARP who has 192.0.2.7, tell 192.0.2.1",
            "group: 2001:db8::1 > ff02::1 neighbour advertisement 2001:db8::1 RO",
            "group: 2001:db8::1 > ff02::1:ff00:7 neighbour solicitation 2001:db8::7",
            "group: fe80::1 > ff02::1 neighbour advertisement fe80::1 RO",
        ]
    );
    // Neighbours in use are probed at once; others only when a packet needs them.
    let expected = [State::Probe, State::Probe, State::Stale, State::Static].map(Some);
    assert_eq!(all.map(|who| world.state(who)), expected);
    // Another station has the address now.
    world.hear(&is_at("192.0.2.7", OTHER)).unwrap();
    assert_eq!(world.events(), [told("192.0.2.7", Some(OTHER))]);
    // A packet for one of the others is sent, and a multicast probe follows.
    world.said();
    assert_eq!(world.send("192.0.2.8", 1), Some(OTHER));
    assert_eq!(world.said(), ["all: ARP who has 192.0.2.8, tell 192.0.2.1"]);
    world.pass(5000);
    assert_eq!(world.state("192.0.2.7"), Some(State::Reachable));
    assert_eq!(world.state("2001:db8::7"), None, "it is gone");
    let again = world.said();
    let again = again
        .iter()
        .filter(|said| said.starts_with("all: ARP who has 192.0.2.1,"));
    assert_eq!(again.count(), 1, "announced twice");
}

#[test]
fn many_neighbours_are_not_all_asked_at_once_when_their_link_comes_back() {
    let mut world = World::with(
        Config {
            solicits_per_s: 10,
            ..Config::default()
        },
        lan(),
    );
    for host in 10..50 {
        world.send(&format!("192.0.2.{host}"), host);
        world.pass(1000);
        world
            .hear(&is_at(&format!("192.0.2.{host}"), HOST))
            .unwrap();
    }
    world.out.clear();
    world.table.link_up(0, world.now_ns, &mut world.out);
    world.said();
    world.pass(1000);
    let asked = world.said().len();
    assert!((1..25).contains(&asked), "{asked}");
}
