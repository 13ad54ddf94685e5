//! Requirements of RFC 4787, 5382, 5508 and 6888, one by one, on a small network: zone 1 is
//! inside (interface 1), zone 2 outside (interface 2).

mod kept;
mod rules;
mod six;

use super::*;
use crate::nat::log::Event;
use crate::nat::mapping::Filtering;
use crate::nat::ports::bucket_of;
use crate::nat::rules::{Config, Forward, Place, Pool, SourceRule, Static};
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
    net.nat.end_calls(&Bits::ALL);
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
