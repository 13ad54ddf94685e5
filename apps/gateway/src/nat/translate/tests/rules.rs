//! Which rule a first packet gets, and what static rules and forwards make of it.

use super::*;

#[test]
fn static_addresses_are_exchanged_both_ways_and_turn_round() {
    let prefix = |text: &str| {
        let (address, len) = text.split_once('/').unwrap();
        linerate_routing::model::Prefix::of(address.parse().unwrap(), len.parse().unwrap()).unwrap()
    };
    let mut net = Net::new(Config {
        statics: vec![Static {
            inside: prefix("10.0.0.8/29"),
            outside: prefix("203.0.113.16/29"),
            to: TO_OUTSIDE,
        }],
        ..config(pool("198.51.100.1", "198.51.100.1"))
    });
    for protocol in [TCP, ICMP, 50] {
        let out = net.out("10.0.0.9:4000", "192.0.2.1:80", protocol).unwrap();
        assert_eq!(
            (src(&out), out.held),
            ("203.0.113.17:4000".into(), Held::NOTHING)
        );
        let back = net
            .back("192.0.2.1:80", "203.0.113.17:22", protocol)
            .unwrap();
        assert_eq!(back.tuple.dst.to_string(), "10.0.0.9:22");
    }
    // Not on another way, and not another host.
    let inner = net
        .send(tuple("10.0.0.9:4000", "10.1.0.1:80", TCP), INSIDE, INSIDE)
        .unwrap();
    assert_eq!(src(&inner), "10.0.0.9:4000");
    assert!(src(&net.out("10.0.0.7:4000", "192.0.2.1:80", TCP).unwrap()).starts_with("198"));
    let call = tuple("10.0.0.9:4000", "203.0.113.18:80", TCP);
    let hairpin = net.send(call, INSIDE, INSIDE).unwrap();
    assert_eq!(
        hairpin.tuple,
        tuple("203.0.113.17:4000", "10.0.0.10:80", TCP)
    );
}

#[test]
fn forwards_lead_inside_and_fullnat_changes_both_ends() {
    let forward = |ports: RangeInclusive<u16>, inside: [u8; 4], inside_port, source_pool| Forward {
        outside: [198, 51, 100, 1].into(),
        protocol: Some(Protocol::Tcp),
        ports,
        inside: inside.into(),
        inside_port,
        from: Place::default(),
        source_pool,
    };
    let mut second = pool("10.0.0.254", "10.0.0.254");
    second.name = "lan".into();
    let mut both = config(pool("198.51.100.1", "198.51.100.1"));
    both.pools.push(second);
    both.forwards = vec![
        forward(8000..=8009, [10, 0, 0, 5], 80, None),
        forward(443..=443, [10, 0, 0, 6], 8443, Some(1)),
    ];
    let mut net = Net::new(both);
    let web = net
        .back("192.0.2.1:4000", "198.51.100.1:8003", TCP)
        .unwrap();
    assert_eq!(web.tuple, tuple("192.0.2.1:4000", "10.0.0.5:83", TCP));
    for (port, protocol) in [(7999, TCP), (8010, TCP), (8003, UDP)] {
        let other = net.back("192.0.2.1:4000", &format!("198.51.100.1:{port}"), protocol);
        assert_eq!(other, Err(Refused::NoMapping));
    }
    let full = net.back("192.0.2.1:4000", "198.51.100.1:443", TCP).unwrap();
    assert_eq!(full.tuple, tuple("10.0.0.254:4000", "10.0.0.6:8443", TCP));
    net.nat.release(
        full.held,
        &tuple("192.0.2.1:4000", "198.51.100.1:443", TCP),
        &full.tuple,
        2,
        0,
    );
    assert!(net.nat.mappings.is_empty());
    // Nobody inside gets a forwarded port, and from inside the forward turns round.
    let taken = net.out("10.0.0.1:8003", "192.0.2.1:80", TCP).unwrap();
    assert!(!(8000..=8009).contains(&taken.tuple.src.port));
    let call = tuple("10.0.0.1:5555", "198.51.100.1:8000", TCP);
    let hairpin = net.send(call, INSIDE, INSIDE).unwrap();
    assert_eq!(
        hairpin.tuple,
        tuple("198.51.100.1:5555", "10.0.0.5:80", TCP)
    );
}

#[test]
fn the_first_rule_that_fits_decides() {
    let mut rules = config(pool("198.51.100.1", "198.51.100.1"));
    rules.pools.push(pool("203.0.113.1", "203.0.113.1"));
    let to = |prefix: [u8; 4], action| SourceRule {
        destination: linerate_routing::model::Prefix::of(prefix.into(), 24),
        action,
        ..to_pool(0)
    };
    rules.sources = vec![
        to([192, 0, 2, 0], Action::Keep),
        to([192, 0, 3, 0], Action::Pool(1)),
        SourceRule {
            protocol: Some(UDP),
            ..to_pool(1)
        },
        to_pool(0),
    ];
    let mut net = Net::new(rules);
    for (dst, protocol, expected) in [
        ("192.0.2.1:53", UDP, "10.0.0.1:4000"),
        ("192.0.3.1:53", TCP, "203.0.113.1:4000"),
        ("192.0.4.1:53", UDP, "203.0.113.1:4000"),
        ("192.0.4.1:53", TCP, "198.51.100.1:4000"),
    ] {
        // One endpoint may have an outside in each of two pools.
        assert_eq!(
            src(&net.out("10.0.0.1:4000", dst, protocol).unwrap()),
            expected
        );
    }
    let other = net.out("172.16.0.1:4000", "192.0.4.1:53", TCP).unwrap();
    assert_eq!(
        (src(&other), other.held.is_nothing()),
        ("172.16.0.1:4000".into(), true)
    );
    let inner = net
        .send(tuple("10.0.0.1:1", "10.0.0.2:2", TCP), INSIDE, INSIDE)
        .unwrap();
    assert_eq!(src(&inner), "10.0.0.1:1");
}

#[test]
fn protocols_without_ports_have_the_address_of_their_host() {
    let mut net = Net::new(config(pool("198.51.100.1", "198.51.100.8")));
    let esp = net.out("10.0.0.1:0", "192.0.2.1:0", 50).unwrap();
    assert!(src(&esp).starts_with("198.51.100.") && esp.held == Held::NOTHING);
    assert_eq!(
        net.out("10.0.0.1:0", "192.0.2.2:0", 50).unwrap().tuple.src,
        esp.tuple.src
    );
    let udp = net.out("10.0.0.1:4000", "192.0.2.1:53", UDP).unwrap();
    let esp = net.out("10.0.0.1:0", "192.0.2.3:0", 50).unwrap();
    assert_eq!(esp.tuple.src.address, udp.tuple.src.address);
    assert_eq!(
        net.back("192.0.2.1:0", "198.51.100.1:0", 50),
        Err(Refused::NoMapping)
    );
}
