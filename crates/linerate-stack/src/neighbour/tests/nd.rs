//! Effects of Neighbor Discovery messages (RFC 4861 7.2, 8.2).

use super::*;

/// An advertisement of 2001:db8::7 to us.
fn advertised(mac: Option<MacAddr>, flags: &str) -> Vec<u8> {
    let from = mac.unwrap_or(HOST);
    na(
        from,
        v6("2001:db8::7"),
        v6("2001:db8::1"),
        v6("2001:db8::7"),
        mac,
        flags,
    )
}

#[test]
fn rfc_4861_7_2_4_a_solicitation_for_us_is_answered_and_its_sender_learned() {
    let mut world = World::new();
    world.hear(&ns(HOST, "2001:db8::7", "2001:db8::1")).unwrap();
    let mut wanted = vec![2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    wanted.extend([0x60, 0, 0, 0, 0, 32, 58, 255]);
    wanted.extend(v6("2001:db8::1").octets());
    wanted.extend(v6("2001:db8::7").octets());
    let sum = world.out.frames().next().unwrap().1[56..58].to_vec();
    wanted.extend([136, 0, sum[0], sum[1], 0xe0, 0, 0, 0]);
    wanted.extend(v6("2001:db8::1").octets());
    wanted.extend([2, 1, 2, 0, 0, 0, 0, 1]);
    assert_eq!(world.out.frames().next(), Some((0, &wanted[..])));
    let said = world.said();
    assert_eq!(
        said,
        ["7: 2001:db8::1 > 2001:db8::7 neighbour advertisement 2001:db8::1 RSO"]
    );
    assert_eq!(world.state("2001:db8::7"), Some(State::Stale));
}

#[test]
fn rfc_4861_7_2_4_a_solicitation_from_the_unspecified_address_is_answered_by_multicast() {
    let mut world = World::new();
    world.hear(&ns(HOST, "::", "2001:db8::1")).unwrap();
    let said = ["group: 2001:db8::1 > ff02::1 neighbour advertisement 2001:db8::1 RO"];
    assert_eq!(world.said(), said);
    assert!(world.table.is_empty());
}

#[test]
fn rfc_4861_4_4_a_host_does_not_say_that_it_routes_and_has_the_addresses_given() {
    let host = InterfaceConfig {
        addresses: vec![(ip("2001:db8::1"), 64)],
        host: true,
        ..lan()
    };
    let mut world = World::empty(Config::default());
    world.set(host);
    let announced = ["group: 2001:db8::1 > ff02::1 neighbour advertisement 2001:db8::1 O"];
    assert_eq!(world.said(), announced);
    world.hear(&ns(HOST, "2001:db8::7", "2001:db8::1")).unwrap();
    let answer = ["7: 2001:db8::1 > 2001:db8::7 neighbour advertisement 2001:db8::1 SO"];
    assert_eq!(world.said(), answer);
    let added = ndp::link_local(US).to_string();
    let heard = world.hear(&ns(HOST, "2001:db8::7", &added));
    assert_eq!(heard, Err(Ignored::NotForUs));
}

#[test]
fn rfc_4861_7_2_3_solicitations_for_others_and_without_address_add_nothing() {
    let mut world = World::new();
    let heard = world.hear(&ns(HOST, "2001:db8::7", "2001:db8::9"));
    assert_eq!(heard, Err(Ignored::NotForUs));
    let target = v6("2001:db8::1");
    let message = Message::NeighbourSolicitation {
        target,
        source_mac: None,
    };
    world
        .hear(&nd(HOST, v6("2001:db8::7"), target, message))
        .unwrap();
    assert_eq!(
        world.said().len(),
        1,
        "answered to where the frame came from"
    );
    world
        .hear(&ns(HOST, "2001:db8:5::7", "2001:db8::1"))
        .unwrap();
    assert_eq!(world.said().len(), 1, "answered, but off link");
    assert!(world.table.is_empty());
    world.hear(&ns(HOST, "fe80::7", "2001:db8::1")).unwrap();
    assert_eq!(
        world.state("fe80::7"),
        Some(State::Stale),
        "link-local is on link"
    );
}

#[test]
fn rfc_4861_7_2_3_a_solicitation_with_another_mac_makes_stale() {
    let mut world = World::new();
    world.meet("2001:db8::7", HOST);
    world.pass(2000);
    world.hear(&ns(HOST, "2001:db8::7", "2001:db8::1")).unwrap();
    assert_eq!(
        world.state("2001:db8::7"),
        Some(State::Reachable),
        "nothing new"
    );
    world
        .hear(&ns(OTHER, "2001:db8::7", "2001:db8::1"))
        .unwrap();
    assert_eq!(world.mac("2001:db8::7"), Some(OTHER));
    assert_eq!(
        world.state("2001:db8::7"),
        Some(State::Delay),
        "stale, and in use"
    );
}

#[test]
fn rfc_4861_7_2_5_without_an_entry_or_a_mac_address_nothing_is_learned() {
    let mut world = World::new();
    assert_eq!(
        world.hear(&advertised(Some(HOST), "SO")),
        Err(Ignored::Unasked)
    );
    assert!(world.table.is_empty());
    world.send("2001:db8::7", 1);
    assert_eq!(world.hear(&advertised(None, "SO")), Err(Ignored::Unasked));
    assert_eq!(world.state("2001:db8::7"), Some(State::Incomplete));
    // An unsolicited one releases waiting packets, but does not confirm reachability.
    world.hear(&advertised(Some(HOST), "")).unwrap();
    assert_eq!(world.released(), [(1, HOST)]);
    assert_eq!(world.state("2001:db8::7"), Some(State::Delay));
}

#[test]
fn rfc_4861_7_2_5_each_combination_of_flags_on_a_reachable_entry() {
    // Flags and MAC address of the message; the resulting MAC address and state.
    for (flags, told_mac, mac, state) in [
        ("", Some(HOST), HOST, State::Reachable),
        ("S", Some(HOST), HOST, State::Reachable),
        ("", Some(OTHER), HOST, State::Delay), // (I): doubt
        ("S", Some(OTHER), HOST, State::Delay),
        ("O", Some(OTHER), OTHER, State::Delay), // (II): stale, and in use
        ("SO", Some(OTHER), OTHER, State::Reachable),
        ("O", Some(HOST), HOST, State::Reachable),
        ("S", None, HOST, State::Reachable),
    ] {
        let mut world = World::new();
        world.meet("2001:db8::7", HOST);
        world.pass(2000);
        let _ = world.hear(&advertised(told_mac, flags));
        let found = (
            world.mac("2001:db8::7").unwrap(),
            world.state("2001:db8::7").unwrap(),
        );
        assert_eq!(found, (mac, state), "{flags} {told_mac:?}");
    }
}

#[test]
fn rfc_4861_7_2_5_another_mac_without_override_is_ignored_while_probing() {
    let mut world = World::new();
    world.meet("2001:db8::7", HOST);
    while world.state("2001:db8::7") != Some(State::Probe) {
        world.pass(100);
    }
    assert_eq!(
        world.hear(&advertised(Some(OTHER), "S")),
        Err(Ignored::Unasked)
    );
    assert_eq!(world.state("2001:db8::7"), Some(State::Probe));
    world.hear(&advertised(None, "S")).unwrap();
    assert_eq!(world.state("2001:db8::7"), Some(State::Reachable));
}

#[test]
fn rfc_4861_7_2_5_routers_say_so() {
    let mut world = World::new();
    world.meet("2001:db8::7", HOST);
    let is_router = |world: &World| world.table.neighbours().next().unwrap().is_router;
    assert!(!is_router(&world));
    world.hear(&advertised(Some(HOST), "RS")).unwrap();
    assert!(is_router(&world));
}

#[test]
fn rfc_4861_7_2_5_of_two_that_answer_the_first_counts() {
    let mut world = World::new();
    world.meet("2001:db8::7", HOST);
    assert_eq!(
        world.hear(&advertised(Some(OTHER), "SO")),
        Err(Ignored::Locked)
    );
    assert_eq!(world.mac("2001:db8::7"), Some(HOST));
}

#[test]
fn rfc_4861_7_2_8_proxies_answer_late_and_never_override() {
    let mut world = World::with(
        Config::default(),
        InterfaceConfig {
            proxy: true,
            ..lan()
        },
    );
    let request = ns(HOST, "2001:db8::7", "2001:db8:9::9");
    assert_eq!(
        world.hear(&request),
        Err(Ignored::NotForUs),
        "no route elsewhere"
    );
    world.elsewhere = true;
    world.hear(&request).unwrap();
    assert!(world.said().is_empty(), "the host itself comes first");
    world.pass(1000);
    let said = ["7: fe80::1 > 2001:db8::7 neighbour advertisement 2001:db8:9::9 RS"];
    assert_eq!(world.said(), said);
    // A probe to us alone needs no delay.
    let target = v6("2001:db8:9::9");
    let message = Message::NeighbourSolicitation {
        target,
        source_mac: Some(HOST),
    };
    world
        .hear(&nd(HOST, v6("2001:db8::7"), target, message))
        .unwrap();
    assert_eq!(world.said(), said);
    // Link-local addresses are not proxied.
    assert_eq!(
        world.hear(&ns(HOST, "2001:db8::7", "fe80::9")),
        Err(Ignored::NotForUs)
    );
    // RFC 4862 5.4: a proxy does not answer duplicate detection.
    assert_eq!(
        world.hear(&ns(HOST, "::", "2001:db8:9::9")),
        Err(Ignored::NotForUs)
    );
    world.pass(1000);
    assert!(world.said().is_empty());
}

#[test]
fn a_proxys_waiting_answers_are_bounded() {
    let mut world = World::with(
        Config::default(),
        InterfaceConfig {
            proxy: true,
            ..lan()
        },
    );
    world.elsewhere = true;
    for host in 0..2000 {
        let target = format!("2001:db8:9::{host:x}");
        let _ = world.hear(&ns(HOST, "2001:db8::7", &target));
    }
    world.pass(1000);
    assert_eq!(world.said().len(), 256);
}

#[test]
fn rfc_4861_8_2_redirects_and_other_routers_advertisements_are_ignored() {
    let mut world = World::new();
    let (target, destination) = (v6("fe80::9"), v6("2001:db8:9::9"));
    let message = Message::Redirect {
        target,
        destination,
        target_mac: Some(HOST),
        packet: &[],
    };
    let frame = nd(HOST, v6("fe80::7"), v6("2001:db8::1"), message);
    assert_eq!(world.hear(&frame), Err(Ignored::NotForUs));
    let message = Message::RouterAdvertisement {
        router: ndp::Router::default(),
        source_mac: Some(HOST),
        mtu: None,
        prefixes: &[],
    };
    let frame = nd(HOST, v6("fe80::7"), ndp::ALL_NODES, message);
    assert_eq!(world.hear(&frame), Err(Ignored::NotForUs));
    assert!(world.table.is_empty());
}

#[test]
fn rfc_4861_7_1_invalid_messages_are_ignored() {
    let mut world = World::new();
    let mut far = ns(HOST, "2001:db8::7", "2001:db8::1");
    far[21] = 254;
    assert_eq!(
        world.hear(&far),
        Err(Ignored::Invalid(ndp::Refused::HopLimit))
    );
    let mut wrong = ns(HOST, "2001:db8::7", "2001:db8::1");
    wrong[60] ^= 1;
    assert_eq!(
        world.hear(&wrong),
        Err(Ignored::Invalid(ndp::Refused::Checksum))
    );
    assert!(world.said().is_empty() && world.table.is_empty());
}

#[test]
fn impossible_senders_and_our_own_echo_are_ignored() {
    let mut world = World::new();
    let group = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    let frame = ns(group, "2001:db8::7", "2001:db8::1");
    assert_eq!(world.hear(&frame), Err(Ignored::Sender));
    let frame = ns(US, "2001:db8::7", "2001:db8::1");
    assert_eq!(world.hear(&frame), Err(Ignored::Own));
    let frame = na(
        HOST,
        v6("2001:db8::7"),
        ndp::ALL_NODES,
        v6("2001:db8::7"),
        Some(US),
        "O",
    );
    assert_eq!(
        world.hear(&frame),
        Err(Ignored::Own),
        "our MAC address in another station's message"
    );
}

#[test]
fn rfc_4862_5_4_4_a_rival_is_reported_every_ten_seconds_at_most() {
    let mut world = World::new();
    let rival = [
        ns(HOST, "2001:db8::1", "2001:db8::7"),
        na(
            HOST,
            v6("2001:db8::9"),
            ndp::ALL_NODES,
            v6("2001:db8::1"),
            Some(HOST),
            "O",
        ),
    ];
    for frame in rival.iter().cycle().take(6) {
        assert_eq!(world.hear(frame), Err(Ignored::Conflict));
    }
    let conflict = Event::Conflict {
        interface: 0,
        address: ip("2001:db8::1"),
        mac: HOST,
    };
    assert_eq!(world.events(), [conflict]);
    assert!(world.table.is_usable(0, ip("2001:db8::1")));
}
