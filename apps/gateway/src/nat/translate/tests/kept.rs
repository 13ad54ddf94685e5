//! What translation keeps: through reloads, in buckets that move, and when flows end.

use super::*;

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

/// RFC 4787 REQ-2: a host keeps its address while it has a mapping, though the pool had a single
/// address when it got it; and its ports are counted once, however often the pool grows.
#[test]
fn rfc_4787_req_2_a_host_keeps_its_address_when_its_pool_grows() {
    let install = |net: &mut Net, last: &str| {
        let before = net.nat.rules().clone();
        let rules = Rules::new(config(pool("198.51.100.1", last)), Some(&before));
        assert!(net.nat.install(Arc::new(rules)).is_empty(), "all stay");
    };
    let mut net = Net::one(|_| ());
    let (a, b) = ("192.0.2.1:53", "192.0.2.2:53");
    let ports = 4000..4020;
    let flows = |net: &mut Net, to: &str| -> Vec<_> {
        let flow = |port| {
            let from = format!("10.0.0.1:{port}");
            let flow = net.out(&from, to, UDP).unwrap();
            assert_eq!(src(&flow), format!("198.51.100.1:{port}"));
            (from, flow)
        };
        ports.clone().map(flow).collect()
    };
    let first = net.out("10.0.0.1:99", a, UDP).unwrap();
    for _ in 0..3 {
        install(&mut net, "198.51.100.9");
        let one = net.nat.subscribers.iter().next().unwrap();
        assert_eq!((net.nat.subscribers.len(), one.ports), (1, 1));
        let more = flows(&mut net, b);
        install(&mut net, "198.51.100.1");
        assert!(net.nat.subscribers.is_empty());
        for (from, flow) in more {
            net.end(&from, b, UDP, &flow);
        }
    }
    install(&mut net, "198.51.100.9");
    net.end("10.0.0.1:99", a, UDP, &first);
    net.nothing_is_taken();
}
