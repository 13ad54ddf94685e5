//! Effects of ARP frames (RFC 826, RFC 1027, RFC 1812 3.3.2, RFC 5227).

use super::*;

#[test]
fn rfc_826_a_request_for_us_is_answered_and_its_sender_learned() {
    let mut world = World::new();
    world
        .hear(&who_has("192.0.2.1", HOST, "192.0.2.7"))
        .unwrap();
    let mut wanted = vec![2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 1, 8, 6];
    wanted.extend([0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1]);
    wanted.extend([2, 0, 0, 0, 0, 7, 192, 0, 2, 7]);
    wanted.resize(60, 0);
    assert_eq!(world.out.frames().next(), Some((0, &wanted[..])));
    assert_eq!(world.mac("192.0.2.7"), Some(HOST));
}

#[test]
fn tagged_requests_are_read() {
    let mut world = World::new();
    let mut frame = who_has("192.0.2.1", HOST, "192.0.2.7");
    frame.splice(12..12, [0x81, 0, 0, 100]);
    world
        .table
        .arp(0, &frame, &|_| false, world.now_ns, &mut world.out)
        .unwrap();
    assert_eq!(world.said(), ["7: ARP 192.0.2.1 is at 02:00:00:00:00:01"]);
}

#[test]
fn rfc_826_requests_for_others_change_what_is_known_and_add_nothing() {
    let mut world = World::new();
    let heard = world.hear(&who_has("192.0.2.9", HOST, "192.0.2.7"));
    assert_eq!(heard, Err(Ignored::NotForUs));
    assert!(world.table.is_empty() && world.said().is_empty());
    world.meet("192.0.2.7", HOST);
    world.pass(2000);
    world
        .hear(&who_has("192.0.2.9", OTHER, "192.0.2.7"))
        .unwrap();
    assert_eq!(world.mac("192.0.2.7"), Some(OTHER));
    assert_eq!(world.events(), [told("192.0.2.7", Some(OTHER))]);
    assert_eq!(
        world.state("192.0.2.7"),
        Some(State::Delay),
        "to be verified"
    );
}

#[test]
fn unasked_replies_make_no_entry() {
    let mut world = World::new();
    assert_eq!(world.hear(&is_at("192.0.2.7", HOST)), Err(Ignored::Unasked));
    let gratuitous = who_has("192.0.2.7", HOST, "192.0.2.7");
    assert_eq!(world.hear(&gratuitous), Err(Ignored::NotForUs));
    assert!(world.table.is_empty() && world.said().is_empty());
}

#[test]
fn of_two_that_answer_the_first_counts_and_a_later_one_may_take_over() {
    let mut world = World::new();
    world.meet("192.0.2.7", HOST);
    world.pass(500);
    assert_eq!(world.hear(&is_at("192.0.2.7", OTHER)), Err(Ignored::Locked));
    assert_eq!(world.mac("192.0.2.7"), Some(HOST));
    world.pass(500);
    // A gratuitous one, as after a failover (RFC 5227 3, VRRP).
    world
        .hear(&who_has("192.0.2.7", OTHER, "192.0.2.7"))
        .unwrap();
    assert_eq!(world.events(), [told("192.0.2.7", Some(OTHER))]);
    // A false MAC address does not last: it is probed, and the probe fails.
    world.said();
    world.pass(5_000);
    assert_eq!(world.said(), ["8: ARP who has 192.0.2.7, tell 192.0.2.1"]);
    world.pass(3_000);
    assert_eq!(world.events(), [told("192.0.2.7", None)]);
}

#[test]
fn only_an_answer_to_us_confirms() {
    let mut world = World::new();
    world.meet("192.0.2.7", HOST);
    while world.state("192.0.2.7") != Some(State::Probe) {
        world.pass(100);
    }
    world
        .hear(&who_has("192.0.2.1", HOST, "192.0.2.7"))
        .unwrap();
    assert_eq!(
        world.state("192.0.2.7"),
        Some(State::Probe),
        "a request does not confirm reachability"
    );
    let broadcast = arp(
        MacAddr::BROADCAST,
        Operation::Reply,
        (HOST, v4("192.0.2.7")),
        (US, v4("192.0.2.1")),
    );
    world.hear(&broadcast).unwrap();
    assert_eq!(
        world.state("192.0.2.7"),
        Some(State::Probe),
        "a broadcast reply does not either"
    );
    world.hear(&is_at("192.0.2.7", HOST)).unwrap();
    assert_eq!(world.state("192.0.2.7"), Some(State::Reachable));
}

#[test]
fn a_sender_off_the_link_is_answered_and_not_learned() {
    let mut world = World::new();
    for sender in ["198.51.100.7", "192.0.2.255", "192.0.2.0"] {
        world.hear(&who_has("192.0.2.1", HOST, sender)).unwrap();
        assert_eq!(world.said().len(), 1, "{sender}");
        assert!(world.table.is_empty(), "{sender}");
    }
}

#[test]
fn rfc_1812_3_3_2_impossible_senders_are_ignored() {
    let mut world = World::new();
    world.send("192.0.2.7", 1);
    for mac in [
        MacAddr::BROADCAST,
        MacAddr([1, 0, 0x5e, 0, 0, 1]),
        MacAddr([0; 6]),
    ] {
        assert_eq!(world.hear(&is_at("192.0.2.7", mac)), Err(Ignored::Sender));
        // The frame's sender is a group, independent of the packet (IEEE 802.3 3.2.3).
        let mut frame = is_at("192.0.2.7", HOST);
        frame[6..12].copy_from_slice(&mac.0);
        assert_eq!(world.hear(&frame), Err(Ignored::Sender));
    }
    for sender in ["224.0.0.1", "255.255.255.255", "127.0.0.1"] {
        let frame = who_has("192.0.2.1", HOST, sender);
        assert_eq!(world.hear(&frame), Err(Ignored::Sender), "{sender}");
    }
    assert_eq!(world.state("192.0.2.7"), Some(State::Incomplete));
}

#[test]
fn our_own_frames_and_those_of_others_are_ignored() {
    let mut world = World::new();
    let echo = who_has("192.0.2.7", US, "192.0.2.1");
    assert_eq!(world.hear(&echo), Err(Ignored::Own));
    let mut others = who_has("192.0.2.1", HOST, "192.0.2.7");
    others[..6].copy_from_slice(&OTHER.0);
    assert_eq!(
        world.hear(&others),
        Err(Ignored::NotForUs),
        "a port in promiscuous mode"
    );
    let rarp = arp(
        US,
        Operation::Other(3),
        (HOST, v4("192.0.2.7")),
        (US, v4("192.0.2.1")),
    );
    assert_eq!(world.hear(&rarp), Err(Ignored::NotForUs));
    let short = who_has("192.0.2.1", HOST, "192.0.2.7");
    assert!(matches!(world.hear(&short[..41]), Err(Ignored::Invalid(_))));
    assert_eq!(world.events(), []);
}

#[test]
fn rfc_5227_2_5_probes_for_our_address_are_answered() {
    let mut world = World::new();
    world.hear(&who_has("192.0.2.1", HOST, "0.0.0.0")).unwrap();
    assert_eq!(world.said(), ["7: ARP 192.0.2.1 is at 02:00:00:00:00:01"]);
    assert!(
        world.table.is_empty(),
        "a sender without an address is no neighbour"
    );
}

#[test]
fn rfc_5227_2_4_an_address_is_defended_every_ten_seconds_at_most() {
    let mut world = World::new();
    let rival = who_has("192.0.2.7", HOST, "192.0.2.1");
    for _ in 0..5 {
        assert_eq!(world.hear(&rival), Err(Ignored::Conflict));
        world.pass(1000);
    }
    assert_eq!(world.said(), ["all: ARP who has 192.0.2.1, tell 192.0.2.1"]);
    let conflict = Event::Conflict {
        interface: 0,
        address: ip("192.0.2.1"),
        mac: HOST,
    };
    assert_eq!(world.events(), [conflict]);
    world.pass(5000);
    assert_eq!(
        world.hear(&is_at("192.0.2.1", HOST)),
        Err(Ignored::Conflict)
    );
    assert_eq!((world.said().len(), world.events().len()), (1, 1));
    assert!(world.table.is_usable(0, ip("192.0.2.1")), "we keep it");
    assert!(world.table.is_empty());
}

#[test]
fn rfc_1027_proxies_answer_for_what_is_elsewhere() {
    let mut world = World::with(
        Config::default(),
        InterfaceConfig {
            proxy: true,
            ..lan()
        },
    );
    let request = who_has("198.51.100.9", HOST, "192.0.2.7");
    assert_eq!(
        world.hear(&request),
        Err(Ignored::NotForUs),
        "no route elsewhere"
    );
    world.elsewhere = true;
    world.hear(&request).unwrap();
    assert_eq!(
        world.said(),
        ["7: ARP 198.51.100.9 is at 02:00:00:00:00:01"]
    );
    // No answer to probes, nor to announcements.
    let probe = who_has("198.51.100.9", HOST, "0.0.0.0");
    assert_eq!(world.hear(&probe), Err(Ignored::NotForUs));
    let gratuitous = who_has("198.51.100.9", HOST, "198.51.100.9");
    assert_eq!(world.hear(&gratuitous), Err(Ignored::NotForUs));
    assert_eq!(
        world.hear(&who_has("224.0.0.9", HOST, "192.0.2.7")),
        Err(Ignored::NotForUs)
    );
    let mut world = World::new();
    world.elsewhere = true;
    assert_eq!(
        world.hear(&request),
        Err(Ignored::NotForUs),
        "no proxy there"
    );
}

#[test]
fn answers_are_limited() {
    let config = Config {
        replies_per_s: 100,
        ..Config::default()
    };
    let mut world = World::with(config, lan());
    let request = who_has("192.0.2.1", HOST, "192.0.2.7");
    let heard: Vec<_> = (0..1000).map(|_| world.hear(&request)).collect();
    assert_eq!(world.said().len(), 25);
    assert_eq!(heard[999], Err(Ignored::Limited));
    world.pass(1000);
    world.hear(&request).unwrap();
}
