//! Requirements of RFC 4787, 5382, 5508 and 6888, one by one, on a small network: zone 1 is
//! inside (interface 1), zone 2 outside (interface 2).

use super::*;
use crate::nat::log::Event;
use crate::nat::mapping::Filtering;
use crate::nat::nat64::Prefix64;
use crate::nat::nptv6::Prefixes;
use crate::nat::ports::bucket_of;
use crate::nat::rules::{Config, Forward, Nat64, Nptv6, Place, Pool, SourceRule, Static};
use crate::nat::testing::tuple;
use linerate_core::random::Random;
use linerate_wire::protocol::{ICMP, TCP, UDP};
use std::collections::HashSet;
use std::ops::RangeInclusive;

const INSIDE: At = At {
    zone: 1,
    interface: 1,
};
const OUTSIDE: At = At {
    zone: 2,
    interface: 2,
};
const TO_OUTSIDE: Place = Place {
    zone: Some(2),
    interface: None,
};

fn pool(first: &str, last: &str) -> Pool {
    Pool::new(
        "pool",
        vec![(first.parse().unwrap(), last.parse().unwrap())],
    )
}

fn to_pool(pool: u16) -> SourceRule {
    SourceRule {
        from: Place::default(),
        to: TO_OUTSIDE,
        source: Some(linerate_routing::model::Prefix::of([10, 0, 0, 0].into(), 8).unwrap()),
        destination: None,
        protocol: None,
        action: Action::Pool(pool),
    }
}

/// Source NAT of 10.0.0.0/8 to a pool.
fn config(pool: Pool) -> Config {
    Config {
        pools: vec![pool],
        sources: vec![to_pool(0)],
        ..Config::default()
    }
}

struct Net {
    nat: Nat,
    random: Random,
}

impl Net {
    fn new(config: Config) -> Self {
        let limits = Limits {
            mappings: 100_000,
            subscribers: 1000,
            records: 100,
        };
        let rules = Arc::new(Rules::new(config, None));
        Self {
            nat: Nat::new(rules, &limits, Bits::ALL, 0, Seed(5)).unwrap(),
            random: Random::new(7),
        }
    }

    fn one(change: impl FnOnce(&mut Pool)) -> Self {
        let mut pool = pool("198.51.100.1", "198.51.100.1");
        change(&mut pool);
        Self::new(config(pool))
    }

    /// The first packet of a flow, on its whole way.
    fn send(&mut self, tuple: Tuple, from: At, to: At) -> Result<Translated, Refused> {
        let bucket = 40;
        let first = First {
            tuple,
            from,
            bucket,
        };
        let destination = self.nat.destination(&first)?;
        let random = self.random.bits();
        self.nat.source(&first, &destination, to, 1000, random)
    }

    fn out(&mut self, src: &str, dst: &str, protocol: u8) -> Result<Translated, Refused> {
        self.send(tuple(src, dst, protocol), INSIDE, OUTSIDE)
    }

    fn back(&mut self, src: &str, dst: &str, protocol: u8) -> Result<Translated, Refused> {
        self.send(tuple(src, dst, protocol), OUTSIDE, INSIDE)
    }

    fn end(&mut self, src: &str, dst: &str, protocol: u8, flow: &Translated) {
        let original = tuple(src, dst, protocol);
        self.nat.release(flow.held, &original, &flow.tuple, 1, 2000);
    }

    fn nothing_is_taken(&self) {
        assert!(self.nat.mappings.is_empty() && self.nat.subscribers.is_empty());
        for id in (0..self.nat.rules.outsides().len()).map(|id| AddressId(id as u16)) {
            for protocol in Protocol::ALL {
                assert_eq!(self.nat.ports.free(id, protocol), 64_512);
            }
        }
    }
}

fn src(flow: &Translated) -> String {
    flow.tuple.src.to_string()
}

#[test]
fn rfc_4787_req_1_and_rfc_5382_req_1_a_mapping_is_independent_of_the_endpoint() {
    for protocol in [UDP, TCP] {
        let mut net = Net::one(|_| ());
        let a = net.out("10.0.0.1:4000", "192.0.2.1:53", protocol).unwrap();
        let b = net.out("10.0.0.1:4000", "192.0.2.2:54", protocol).unwrap();
        assert_eq!((src(&a), src(&b)), ("198.51.100.1:4000".into(), src(&a)));
        assert_eq!((a.tuple.dst, net.nat.mappings.len()), (a.tuple.dst, 1));
        net.end("10.0.0.1:4000", "192.0.2.1:53", protocol, &a);
        assert_eq!(net.nat.mappings.len(), 1);
        net.end("10.0.0.1:4000", "192.0.2.2:54", protocol, &b);
        net.nothing_is_taken();
    }
}

#[test]
fn endpoint_dependent_flows_have_a_port_each() {
    let mut net = Net::one(|pool| pool.is_independent = false);
    let a = net.out("10.0.0.1:4000", "192.0.2.1:53", UDP).unwrap();
    let b = net.out("10.0.0.1:4000", "192.0.2.2:53", UDP).unwrap();
    assert_ne!(src(&a), src(&b));
    assert!(net.nat.mappings.is_empty());
    // Nobody else may use them, from outside or inside.
    assert_eq!(
        net.back("192.0.2.9:53", "198.51.100.1:4000", UDP),
        Err(Refused::NoMapping)
    );
    net.end("10.0.0.1:4000", "192.0.2.1:53", UDP, &a);
    net.end("10.0.0.1:4000", "192.0.2.2:53", UDP, &b);
    net.nothing_is_taken();
}

#[test]
fn rfc_4787_req_2_a_host_has_one_outside_address() {
    let mut net = Net::new(config(pool("198.51.100.1", "198.51.100.8")));
    let mut all = HashSet::new();
    for host in 1..60 {
        let flow = |net: &mut Net, port| {
            let src = format!("10.0.0.{host}:{port}");
            net.out(&src, "192.0.2.1:53", UDP)
                .unwrap()
                .tuple
                .src
                .address
        };
        let addresses: HashSet<_> = (1000..1020).map(|port| flow(&mut net, port)).collect();
        assert_eq!(addresses.len(), 1);
        all.extend(addresses);
    }
    assert_eq!(all.len(), 8);
    // "Arbitrary" pooling spreads a host.
    let mut arbitrary = pool("198.51.100.1", "198.51.100.8");
    arbitrary.is_paired = false;
    let mut net = Net::new(config(arbitrary));
    let flow = |port| {
        let flow = net
            .out(&format!("10.0.0.1:{port}"), "192.0.2.1:53", UDP)
            .unwrap();
        flow.tuple.src.address
    };
    assert!((1000..1040).map(flow).collect::<HashSet<_>>().len() > 4);
}

#[test]
fn rfc_4787_req_3_and_rfc_5382_req_7_no_port_is_overloaded() {
    let mut net = Net::one(|_| ());
    let a = net.out("10.0.0.1:4000", "192.0.2.1:53", TCP).unwrap();
    let b = net.out("10.0.0.2:4000", "192.0.2.1:53", TCP).unwrap();
    assert_eq!(src(&a), "198.51.100.1:4000");
    assert_ne!(src(&b), src(&a));
    assert!(b.tuple.src.port >= 1024 && bucket_of(b.tuple.src.port) == 40);
}

#[test]
fn rfc_4787_req_4_parity_is_kept_and_pairs_stay_pairs() {
    let mut net = Net::one(|_| ());
    net.out("10.0.0.9:5000", "192.0.2.1:53", UDP).unwrap();
    net.out("10.0.0.9:5001", "192.0.2.1:53", UDP).unwrap();
    // Another host's RTP and RTCP, in either order.
    for (first, second) in [
        ("10.0.0.1:5000", "10.0.0.1:5001"),
        ("10.0.0.2:5001", "10.0.0.2:5000"),
    ] {
        let a = net.out(first, "192.0.2.1:53", UDP).unwrap().tuple.src;
        let b = net.out(second, "192.0.2.1:53", UDP).unwrap().tuple.src;
        assert_eq!((a.port ^ 1, a.address), (b.port, b.address));
        assert!(a.port > 5001 || a.port < 5000);
    }
}

#[test]
fn rfc_4787_req_8_and_rfc_5382_req_3_filtering() {
    use Filtering::*;
    for (filtering, same_port, same_address, others) in [
        (EndpointIndependent, true, true, true),
        (AddressDependent, true, true, false),
        (AddressAndPortDependent, false, false, false),
    ] {
        let mut net = Net::one(|pool| pool.filtering = filtering);
        let flow = net.out("10.0.0.1:4000", "192.0.2.1:53", UDP).unwrap();
        let mut admits = |src: &str| match net.back(src, "198.51.100.1:4000", UDP) {
            Ok(inward) => {
                assert_eq!(inward.tuple.dst.to_string(), "10.0.0.1:4000");
                assert_eq!(inward.tuple.src.to_string(), src);
                net.end(src, "198.51.100.1:4000", UDP, &inward);
                true
            }
            Err(why) => {
                assert_eq!(why, Refused::Filtered);
                false
            }
        };
        // (A packet of the very flow would be found before it comes here.)
        assert_eq!(admits("192.0.2.1:53"), same_port, "{filtering:?}");
        assert_eq!(admits("192.0.2.1:54"), same_address, "{filtering:?}");
        assert_eq!(admits("192.0.2.2:53"), others, "{filtering:?}");
        net.end("10.0.0.1:4000", "192.0.2.1:53", UDP, &flow);
        let after = net.back("192.0.2.1:53", "198.51.100.1:4000", UDP);
        assert_eq!(after, Err(Refused::NoMapping));
        net.nothing_is_taken();
    }
}

#[test]
fn rfc_4787_req_9_hairpins_have_outside_addresses_at_both_ends() {
    for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
        let mut net = Net::one(|pool| pool.filtering = filtering);
        let b = net.out("10.0.0.2:6000", "192.0.2.1:53", UDP).unwrap();
        assert_eq!(src(&b), "198.51.100.1:6000");
        let call = tuple("10.0.0.1:4000", "198.51.100.1:6000", UDP);
        let hairpin = net.send(call, INSIDE, INSIDE);
        if filtering == Filtering::AddressDependent {
            // It has not sent to our outside address.
            assert_eq!(hairpin, Err(Refused::Filtered));
            continue;
        }
        let hairpin = hairpin.unwrap();
        assert_eq!(
            hairpin.tuple,
            tuple("198.51.100.1:4000", "10.0.0.2:6000", UDP)
        );
        assert_eq!(net.nat.mappings.len(), 2);
        net.nat.release(hairpin.held, &call, &hairpin.tuple, 1, 0);
        assert_eq!(net.nat.mappings.len(), 1);
        net.end("10.0.0.2:6000", "192.0.2.1:53", UDP, &b);
        net.nothing_is_taken();
    }
}

/// Of two hosts that call each other the second gets through, and only to who has called it.
#[test]
fn rfc_4787_req_9_and_rfc_5382_req_8_hosts_inside_that_call_each_other_meet() {
    let filters = [
        Filtering::AddressDependent,
        Filtering::AddressAndPortDependent,
    ];
    for (filtering, protocol) in filters.iter().flat_map(|one| [(*one, UDP), (*one, TCP)]) {
        let mut net = Net::one(|pool| pool.filtering = filtering);
        let a = net.out("10.0.0.1:4000", "192.0.2.1:53", protocol).unwrap();
        let b = net.out("10.0.0.2:6000", "192.0.2.1:53", protocol).unwrap();
        let call = tuple("10.0.0.1:4000", "198.51.100.1:6000", protocol);
        let back = tuple("10.0.0.2:6000", "198.51.100.1:4000", protocol);
        for _ in 0..3 {
            assert_eq!(net.send(call, INSIDE, INSIDE), Err(Refused::Filtered));
        }
        assert_eq!(net.nat.calls.len(), 1);
        let meets = net.send(back, INSIDE, INSIDE).unwrap();
        let expected = tuple("198.51.100.1:6000", "10.0.0.1:4000", protocol);
        assert_eq!(meets.tuple, expected);
        // From another port, as the filter has it.
        let other = tuple("10.0.0.2:6001", "198.51.100.1:4000", protocol);
        let other = net.send(other, INSIDE, INSIDE);
        assert_eq!(other.is_ok(), filtering == Filtering::AddressDependent);
        if let Ok(other) = other {
            let original = tuple("10.0.0.2:6001", "198.51.100.1:4000", protocol);
            net.nat.release(other.held, &original, &other.tuple, 1, 0);
        }
        // Nobody outside is let in by it.
        let stranger = net.back("192.0.2.99:1", "198.51.100.1:4000", protocol);
        assert_eq!(stranger, Err(Refused::Filtered));
        net.nat.release(meets.held, &back, &meets.tuple, 1, 0);
        net.end("10.0.0.1:4000", "192.0.2.1:53", protocol, &a);
        net.end("10.0.0.2:6000", "192.0.2.1:53", protocol, &b);
        // Calls hold their mappings, and for a time only.
        net.nat.expire(1000 + WAIT_MS - 1);
        assert!(!net.nat.mappings.is_empty());
        net.nat.expire(1000 + WAIT_MS + WAIT_MS);
        assert!(net.nat.calls.is_empty());
        net.nothing_is_taken();
    }
}

#[test]
fn calls_between_hosts_inside_do_not_move_with_their_bucket() {
    let mut net = Net::one(|_| ());
    let b = net.out("10.0.0.2:6000", "192.0.2.1:53", UDP).unwrap();
    let call = tuple("10.0.0.1:4000", "198.51.100.1:6000", UDP);
    assert_eq!(net.send(call, INSIDE, INSIDE), Err(Refused::Filtered));
    assert_eq!((net.nat.calls.len(), net.nat.mappings.len()), (1, 2));
    let moved = net.nat.take_bucket(40);
    assert!(net.nat.calls.is_empty());
    net.nat.put_bucket(moved, 0);
    net.end("10.0.0.2:6000", "192.0.2.1:53", UDP, &b);
    net.nothing_is_taken();
}

#[test]
fn rfc_5508_req_1_queries_of_any_destination_have_one_identifier() {
    let mut net = Net::one(|_| ());
    let a = net.out("10.0.0.1:77", "192.0.2.1:8", ICMP).unwrap();
    let b = net.out("10.0.0.1:77", "192.0.2.2:8", ICMP).unwrap();
    assert_eq!(
        (src(&a), src(&b)),
        ("198.51.100.1:77".into(), "198.51.100.1:77".into())
    );
    let c = net.out("10.0.0.2:77", "192.0.2.1:8", ICMP).unwrap();
    assert!(src(&c) != src(&a) && c.tuple.dst.port == 8);
    // A ping from outside has an identifier of its own: it is for nobody.
    assert_eq!(
        net.back("192.0.2.1:77", "198.51.100.1:8", ICMP),
        Err(Refused::NoMapping)
    );
    net.end("10.0.0.1:77", "192.0.2.1:8", ICMP, &a);
    net.end("10.0.0.1:77", "192.0.2.2:8", ICMP, &b);
    net.end("10.0.0.2:77", "192.0.2.1:8", ICMP, &c);
    net.nothing_is_taken();
}

#[test]
fn rfc_5382_req_4_what_nobody_asked_for_is_refused_and_counted() {
    let mut net = Net::one(|_| ());
    let scan = (1..=1000_u16).map(|port| {
        let dst = format!("198.51.100.1:{port}");
        net.back("192.0.2.66:4000", &dst, TCP)
    });
    assert!(
        scan.collect::<Vec<_>>()
            .iter()
            .all(|one| *one == Err(Refused::NoMapping))
    );
    assert_eq!(
        net.nat.refused()[Refused::NoMapping as usize],
        (Refused::NoMapping, 1000)
    );
    net.nothing_is_taken();
    // At an interface's own address it is for the gateway.
    let mut net = Net::one(|pool| pool.is_interface = true);
    let own = tuple("192.0.2.66:4000", "198.51.100.1:22", TCP);
    let flow = net.send(own, OUTSIDE, OUTSIDE).unwrap();
    assert_eq!((flow.tuple, flow.held), (own, Held::NOTHING));
}

#[test]
fn the_last_port_is_given_and_then_refusals_are_counted() {
    for is_independent in [true, false] {
        let mut net = Net::one(|pool| {
            pool.is_independent = is_independent;
            pool.ports = 2000..=2999;
        });
        let mut last = None;
        for port in 0..1000 {
            let src = format!("10.0.{}.1:{}", port / 250, 5000 + port);
            last = Some((src.clone(), net.out(&src, "192.0.2.1:53", TCP).unwrap()));
        }
        let again = net.out("10.0.0.99:1", "192.0.2.1:53", TCP);
        assert_eq!(again, Err(Refused::Exhausted));
        let (from, flow) = last.unwrap();
        net.end(&from, "192.0.2.1:53", TCP, &flow);
        let next = net.out("10.0.0.99:1", "192.0.2.1:53", TCP).unwrap();
        assert_eq!(next.tuple.src, flow.tuple.src);
        assert_eq!(net.nat.refused()[Refused::Exhausted as usize].1, 1);
    }
}

#[test]
fn rfc_6888_req_4_ports_of_one_host_are_limited() {
    let mut net = Net::one(|pool| pool.host_ports = Some(10));
    let mut flows = Vec::new();
    for port in 1..=10 {
        flows.push(
            net.out(&format!("10.0.0.1:{port}"), "192.0.2.1:53", UDP)
                .unwrap(),
        );
    }
    assert_eq!(
        net.out("10.0.0.1:11", "192.0.2.1:53", UDP),
        Err(Refused::Limit)
    );
    // Another host has its own; a port that has a mapping needs none.
    assert!(net.out("10.0.0.2:11", "192.0.2.1:53", UDP).is_ok());
    assert!(net.out("10.0.0.1:1", "192.0.2.2:53", UDP).is_ok());
    net.end("10.0.0.1:2", "192.0.2.1:53", UDP, &flows[1]);
    assert!(net.out("10.0.0.1:11", "192.0.2.1:53", UDP).is_ok());
}

#[test]
fn rfc_6888_req_13_blocks_of_a_host_are_logged_instead_of_its_sessions() {
    let mut net = Net::one(|pool| (pool.block_ports, pool.blocks) = (16, 2));
    let mut flows = Vec::new();
    for port in 1..=33 {
        let src = format!("10.0.0.1:{port}");
        match net.out(&src, "192.0.2.1:53", TCP) {
            Ok(flow) => flows.push((flow, src)),
            Err(why) => assert_eq!(why, Refused::Limit),
        }
    }
    // A bucket's first block has 4 ports below 1024.
    assert!(flows.len() == 32 || flows.len() == 28);
    // The blocks have UDP ports too; another host has other blocks.
    let same = net.out("10.0.0.1:33", "192.0.2.1:53", UDP).unwrap();
    let other = net.out("10.0.0.2:33", "192.0.2.1:53", TCP).unwrap();
    let ports: HashSet<u16> = flows.iter().map(|(flow, _)| flow.tuple.src.port).collect();
    let buckets: HashSet<u8> = ports.iter().map(|&port| bucket_of(port)).collect();
    assert_eq!((ports.len(), buckets), (flows.len(), HashSet::from([40])));
    assert!(ports.contains(&same.tuple.src.port) && !ports.contains(&other.tuple.src.port));
    let records = net.nat.log.take(Vec::new());
    assert_eq!(records.len(), 3);
    assert!(
        records
            .iter()
            .all(|record| record.event == Event::BlockBegins)
    );
    let json = records[0].json(0);
    assert!(json.contains("\"step\":512,\"ports\":16"), "{json}");
    for (flow, src) in &flows {
        net.end(src, "192.0.2.1:53", TCP, flow);
    }
    net.end("10.0.0.1:33", "192.0.2.1:53", UDP, &same);
    net.end("10.0.0.2:33", "192.0.2.1:53", TCP, &other);
    let ended = net.nat.log.take(Vec::new());
    assert!(ended.len() == 3 && ended.iter().all(|one| one.event == Event::BlockEnds));
    net.nothing_is_taken();
}

#[test]
fn sessions_are_logged_where_the_pool_says_so() {
    for is_independent in [true, false] {
        let mut net = Net::one(|pool| (pool.logs, pool.is_independent) = (true, is_independent));
        let flow = net.out("10.0.0.1:4000", "192.0.2.1:53", UDP).unwrap();
        net.end("10.0.0.1:4000", "192.0.2.1:53", UDP, &flow);
        let events = net.nat.log.take(Vec::new());
        let expected = match is_independent {
            true => [Event::MappingBegins, Event::MappingEnds],
            false => [Event::SessionBegins, Event::SessionEnds],
        };
        assert!(events.iter().map(|record| record.event).eq(expected));
        assert_eq!((events[0].time_ms, events[1].time_ms), (1000, 2000));
        assert_eq!(events[1].inside.to_string(), "10.0.0.1:4000");
    }
}

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

/// NAT64 by 64:ff9b::/96 to one address.
fn sixty_four(filtering: Filtering) -> Net {
    let mut config = config(pool("198.51.100.1", "198.51.100.1"));
    config.pools[0].filtering = filtering;
    config.nat64 = vec![Nat64 {
        prefix: Prefix64::well_known(),
        pool: 0,
        from: Place {
            zone: Some(1),
            interface: None,
        },
    }];
    Net::new(config)
}

#[test]
fn rfc_6146_3_5_ipv6_hosts_have_bindings_of_ipv4() {
    let mut net = sixty_four(Filtering::AddressDependent);
    let server = "[64:ff9b::192.0.2.1]:53";
    let a = net.out("[2001:db8::1]:4000", server, UDP).unwrap();
    assert_eq!(a.tuple, tuple("198.51.100.1:4000", "192.0.2.1:53", UDP));
    // One binding for all destinations, and none for others.
    let b = net
        .out("[2001:db8::1]:4000", "[64:ff9b::192.0.2.2]:53", UDP)
        .unwrap();
    assert_eq!((b.tuple.src, net.nat.mappings.len()), (a.tuple.src, 1));
    // Address-dependent filtering (RFC 6146 3.5.1.2): the server's other port may answer.
    let inward = net.back("192.0.2.1:54", "198.51.100.1:4000", UDP).unwrap();
    let expected = tuple("[64:ff9b::192.0.2.1]:54", "[2001:db8::1]:4000", UDP);
    assert_eq!(inward.tuple, expected);
    let other = net.back("192.0.2.3:53", "198.51.100.1:4000", UDP);
    assert_eq!(other, Err(Refused::Filtered));
    let ping = net
        .out("[2001:db8::1]:77", "[64:ff9b::192.0.2.1]:128", 58)
        .unwrap();
    assert_eq!(ping.tuple, tuple("198.51.100.1:77", "192.0.2.1:8", ICMP));
    net.end("192.0.2.1:54", "198.51.100.1:4000", UDP, &inward);
    net.end("[2001:db8::1]:77", "[64:ff9b::192.0.2.1]:128", 58, &ping);
    net.end("[2001:db8::1]:4000", server, UDP, &a);
    net.end("[2001:db8::1]:4000", "[64:ff9b::192.0.2.2]:53", UDP, &b);
    net.nothing_is_taken();
    // Other protocols, other zones, other addresses.
    let esp = net.out("[2001:db8::1]:0", "[64:ff9b::192.0.2.1]:0", 50);
    assert_eq!(esp, Err(Refused::Protocol));
    let outer = net.back("[2001:db8::1]:4000", server, UDP).unwrap();
    assert_eq!(outer.tuple, tuple("[2001:db8::1]:4000", server, UDP));
    let six = net
        .out("[2001:db8::1]:4000", "[2001:db8:9::1]:53", UDP)
        .unwrap();
    assert_eq!(
        (src(&six), six.held),
        ("[2001:db8::1]:4000".into(), Held::NOTHING)
    );
}

#[test]
fn rfc_6146_3_8_hairpins_between_ipv6_hosts() {
    let mut net = sixty_four(Filtering::EndpointIndependent);
    let b = net
        .out("[2001:db8::2]:6000", "[64:ff9b::192.0.2.1]:53", UDP)
        .unwrap();
    let (from, to) = ("[2001:db8::1]:4000", "[64:ff9b::198.51.100.1]:6000");
    let call = net.send(tuple(from, to, UDP), INSIDE, INSIDE).unwrap();
    let expected = tuple("[64:ff9b::198.51.100.1]:4000", "[2001:db8::2]:6000", UDP);
    assert_eq!((call.tuple, net.nat.mappings.len()), (expected, 2));
    // And from an IPv4 host inside.
    let four = tuple("10.0.0.1:5000", "198.51.100.1:6000", UDP);
    let third = net.send(four, INSIDE, INSIDE).unwrap();
    let expected = tuple("[64:ff9b::198.51.100.1]:5000", "[2001:db8::2]:6000", UDP);
    assert_eq!(third.tuple, expected);
    net.nat.release(third.held, &four, &third.tuple, 1, 0);
    net.end(from, to, UDP, &call);
    net.end("[2001:db8::2]:6000", "[64:ff9b::192.0.2.1]:53", UDP, &b);
    net.nothing_is_taken();
    let nobody = net.send(tuple(from, to, UDP), INSIDE, INSIDE);
    assert_eq!(nobody, Err(Refused::NoMapping));
}

#[test]
fn rfc_6296_prefixes_are_exchanged_on_their_way_alone() {
    let (inside, outside) = ("fd01:203:405::/48", "2001:db8:1::/48");
    let prefixes = Prefixes::new(inside.parse().unwrap(), outside.parse().unwrap());
    let to = TO_OUTSIDE;
    let mut net = Net::new(Config {
        nptv6: vec![Nptv6 { prefixes, to }],
        ..Config::default()
    });
    let host = "[fd01:203:405:1::1234]:4000";
    let out = net.out(host, "[2001:db8:9::1]:53", UDP).unwrap();
    assert_eq!(
        (src(&out), out.held),
        ("[2001:db8:1:d550::1234]:4000".into(), Held::NOTHING)
    );
    let back = net
        .back("[2001:db8:9::1]:53", "[2001:db8:1:d550::1234]:4000", UDP)
        .unwrap();
    assert_eq!(back.tuple.dst.to_string(), host);
    let inner = tuple(host, "[fd01:203:405:2::1]:53", UDP);
    assert_eq!(net.send(inner, INSIDE, INSIDE).unwrap().tuple, inner);
    // A packet that turns round has outside addresses at both ends.
    let call = tuple(host, "[2001:db8:1:d551::1]:53", UDP);
    let hairpin = net.send(call, INSIDE, INSIDE).unwrap();
    let expected = tuple(
        "[2001:db8:1:d550::1234]:4000",
        "[fd01:203:405:2::1]:53",
        UDP,
    );
    assert_eq!(hairpin.tuple, expected);
}

#[test]
fn no_room_for_a_mapping_gives_its_port_back() {
    let rules = Arc::new(Rules::new(
        config(pool("198.51.100.1", "198.51.100.1")),
        None,
    ));
    let limits = Limits {
        mappings: 16,
        subscribers: 16,
        records: 0,
    };
    let mut net = Net {
        nat: Nat::new(rules, &limits, Bits::ALL, 0, Seed(5)).unwrap(),
        random: Random::new(1),
    };
    for port in 1..=16 {
        net.out(&format!("10.0.0.1:{port}"), "192.0.2.1:53", UDP)
            .unwrap();
    }
    let free = net.nat.ports.free(AddressId(0), Protocol::Udp);
    assert_eq!(
        net.out("10.0.0.1:17", "192.0.2.1:53", UDP),
        Err(Refused::Full)
    );
    assert_eq!(net.nat.ports.free(AddressId(0), Protocol::Udp), free);
}

#[test]
fn a_reload_keeps_what_stays_and_ends_what_does_not() {
    let first = pool("198.51.100.1", "198.51.100.2");
    let mut net = Net::new(config(first.clone()));
    let mut flows = Vec::new();
    for host in 1..=40 {
        let src = format!("10.0.0.{host}:4000");
        flows.push((net.out(&src, "192.0.2.1:53", UDP).unwrap(), src));
    }
    // One address goes, another comes, and the pool has another number.
    let mut changed = config(pool("198.51.100.2", "198.51.100.3"));
    changed.pools.insert(0, pool("203.0.113.1", "203.0.113.1"));
    changed.sources[0].action = Action::Pool(1);
    let gone: HashSet<_> = {
        let rules = Rules::new(changed, Some(&net.nat.rules));
        let gone = net.nat.install(Arc::new(rules));
        gone.iter()
            .map(|mapping| mapping.inside.endpoint.to_string())
            .collect()
    };
    let mut stayed = 0;
    for (flow, src) in &flows {
        let stays = flow.tuple.src.address == std::net::IpAddr::from([198, 51, 100, 2]);
        assert_eq!(gone.contains(src), !stays);
        assert_eq!(
            net.nat.is_permitted(flow.held, &flow.tuple, &flow.tuple),
            stays
        );
        if stays {
            stayed += 1;
            // The mapping is still the host's.
            let again = net.out(src, "192.0.2.2:53", UDP).unwrap();
            assert_eq!(again.tuple.src, flow.tuple.src);
            net.end(src, "192.0.2.2:53", UDP, &again);
        }
        net.end(src, "192.0.2.1:53", UDP, flow);
    }
    assert!(stayed > 5 && stayed < 35);
    net.nothing_is_taken();
}

#[test]
fn a_reload_of_the_same_file_changes_nothing() {
    let same = config(pool("198.51.100.1", "198.51.100.2"));
    let mut net = Net::new(same.clone());
    let flow = net.out("10.0.0.1:4000", "192.0.2.1:53", UDP).unwrap();
    let before = net.nat.rules.clone();
    let gone = net.nat.install(Arc::new(Rules::new(same, Some(&before))));
    assert!(gone.is_empty() && !Arc::ptr_eq(&before, &net.nat.rules));
    // It is seen without a look at any port.
    let legal = |rules: &Rules| rules.outsides()[0].as_ref().map(|one| one.legal.clone());
    let [old, new] = [legal(&before), legal(&net.nat.rules)].map(Option::unwrap);
    assert!(Arc::ptr_eq(&old, &new));
    let again = net.out("10.0.0.1:4000", "192.0.2.2:53", UDP).unwrap();
    assert_eq!(again.tuple.src, flow.tuple.src);
    net.end("10.0.0.1:4000", "192.0.2.2:53", UDP, &again);
    net.end("10.0.0.1:4000", "192.0.2.1:53", UDP, &flow);
    net.nothing_is_taken();
}

#[test]
fn a_bucket_moves_with_all_that_its_hosts_have() {
    let make = |mine| {
        let mut pool = pool("198.51.100.1", "198.51.100.4");
        pool.block_ports = 16;
        let rules = Arc::new(Rules::new(config(pool), None));
        let limits = Limits {
            mappings: 1000,
            subscribers: 100,
            records: 100,
        };
        let nat = Nat::new(rules, &limits, mine, 0, Seed(5)).unwrap();
        let random = Random::new(1);
        Net { nat, random }
    };
    let (mut here, mut there) = (make(Bits::ALL), make(Bits::NONE));
    let mut flows = Vec::new();
    for host in 1..=3 {
        let src = format!("10.0.0.{host}:4000");
        flows.push((here.out(&src, "192.0.2.1:53", UDP).unwrap(), src));
    }
    assert!(here.nat.companions(40).is_empty());
    let moved = here.nat.take_bucket(40);
    assert!(here.nat.mappings.is_empty() && here.nat.subscribers.is_empty());
    assert!(there.nat.put_bucket(moved, 0).is_empty());
    for (flow, src) in &flows {
        let again = there.out(src, "192.0.2.2:53", UDP).unwrap();
        assert_eq!(again.tuple.src, flow.tuple.src);
        there.end(src, "192.0.2.2:53", UDP, &again);
        there.end(src, "192.0.2.1:53", UDP, flow);
    }
    assert!(there.nat.mappings.is_empty() && there.nat.subscribers.is_empty());
    let back = there.nat.take_bucket(40);
    assert!(here.nat.put_bucket(back, 0).is_empty());
    here.nothing_is_taken();
    assert!(here.nat.memory_bytes() > 0);
}

#[test]
fn a_bucket_without_room_gives_its_ports_back() {
    let make = |mine, mappings| {
        let mut pool = pool("198.51.100.1", "198.51.100.1");
        pool.host_ports = Some(100);
        let rules = Arc::new(Rules::new(config(pool), None));
        let limits = Limits {
            mappings,
            ..Limits::default()
        };
        let nat = Nat::new(rules, &limits, mine, 0, Seed(5)).unwrap();
        let random = Random::new(1);
        Net { nat, random }
    };
    let (mut here, mut there) = (make(Bits::ALL, 1000), make(Bits::NONE, 16));
    // Ports of bucket 40 alone: 80, 81, 592, ...
    for port in (2..22).map(|step| step * 512 + 80) {
        here.out(&format!("10.0.0.1:{port}"), "192.0.2.1:53", TCP)
            .unwrap();
    }
    let moved = here.nat.take_bucket(40);
    let refused = there.nat.put_bucket(moved, 0);
    assert_eq!((refused.len(), there.nat.mappings.len()), (4, 16));
    let address = AddressId(0);
    assert_eq!(there.nat.ports.free(address, Protocol::Tcp), 252 - 16);
    assert_eq!(
        there
            .nat
            .subscribers
            .iter()
            .map(|one| one.ports)
            .sum::<u32>(),
        16
    );
}

#[test]
fn whatever_begins_and_ends_leaves_nothing_behind() {
    let mut random = Random::new(11);
    for round in 0..6 {
        let mut pool = pool("198.51.100.1", "198.51.100.3");
        pool.is_independent = round & 1 == 0;
        pool.is_paired = round & 2 == 0;
        pool.block_ports = if round == 4 { 32 } else { 0 };
        let mut net = Net::new(config(pool));
        let mut flows: Vec<(Tuple, Translated)> = Vec::new();
        let mut keys = HashSet::new();
        for _ in 0..4000 {
            let host = |random: &mut Random| [10, 0, 0, random.below(20) as u8];
            let src = Endpoint::new(host(&mut random), 1000 + random.below(40) as u16);
            let turns = random.below(4) == 0;
            let dst = match turns {
                true => Endpoint::new([198, 51, 100, 1], 1000 + random.below(40) as u16),
                false => Endpoint::new([192, 0, 2, random.below(3) as u8], 53),
            };
            let protocol = [TCP, UDP][random.below(2) as usize];
            let tuple = Tuple { src, dst, protocol };
            if random.below(3) > 0 {
                let to = if turns { INSIDE } else { OUTSIDE };
                if let Ok(flow) = net.send(tuple, INSIDE, to) {
                    // The stage refuses a flow whose key is another's: then it is taken back.
                    match keys.insert(tuple) && keys.insert(flow.tuple.reversed()) {
                        true => flows.push((tuple, flow)),
                        false => net.nat.release(flow.held, &tuple, &flow.tuple, 1, 0),
                    }
                }
            } else if !flows.is_empty() {
                let at = random.below(flows.len() as u64) as usize;
                let (tuple, flow) = flows.swap_remove(at);
                net.nat.release(flow.held, &tuple, &flow.tuple, 1, 0);
                keys.remove(&tuple);
                keys.remove(&flow.tuple.reversed());
            }
        }
        for (tuple, flow) in flows {
            net.nat.release(flow.held, &tuple, &flow.tuple, 1, 0);
        }
        // Some have called each other, and were not answered.
        let calls = net.nat.calls.len();
        assert!(calls == 0 || round & 1 == 0);
        for _ in 0..=calls {
            net.nat.expire(1000 + 2 * WAIT_MS);
        }
        net.nothing_is_taken();
    }
}

#[test]
fn what_is_foreseen_comes_true_and_many_end_as_one_by_one() {
    for independent in [true, false] {
        let mut pool = pool("198.51.100.1", "198.51.100.4");
        pool.is_independent = independent;
        let mut net = Net::new(config(pool));
        let mut ended: Vec<Released> = Vec::new();
        let mut foreseen = 0;
        for number in 0..100_u16 {
            // Ten hosts, whose ports have up to three flows.
            let (host, port) = (number % 10, 4000 + number / 30);
            let text = format!("10.0.0.{host}:{port}");
            let original = tuple(&text, &format!("203.0.113.{number}:443"), TCP);
            let random = net.random.bits();
            let mut ahead = [Ahead::new(original, INSIDE, 40, random)];
            net.nat.look_ahead(&mut ahead);
            let first = First {
                tuple: original,
                from: INSIDE,
                bucket: 40,
            };
            let destination = net.nat.destination(&first).unwrap();
            let flow = net.nat.source(&first, &destination, OUTSIDE, 1000, random);
            let flow = flow.unwrap();
            foreseen += usize::from(net.nat.likely_source(&ahead[0]) == Some(flow.tuple.src));
            ended.push((flow.held, original, flow.tuple, 1));
        }
        // A known mapping is not looked for.
        assert!(foreseen >= if independent { 40 } else { 100 }, "{foreseen}");
        let (some, rest) = ended.split_at(70);
        net.nat.release_all(some, 2000);
        assert_eq!(net.nat.mappings.is_empty(), !independent);
        assert!(!net.nat.subscribers.is_empty());
        net.nat.release_all(rest, 2000);
        net.nothing_is_taken();
    }
}
