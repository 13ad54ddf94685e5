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
        let gone = net.nat.install(Arc::new(rules), 1);
        gone.iter()
            .map(|mapping| mapping.inside.endpoint.to_string())
            .collect()
    };
    let mut stayed = 0;
    for (flow, src) in &flows {
        let stays = flow.tuple.src.address == std::net::IpAddr::from([198, 51, 100, 2]);
        assert_eq!(gone.contains(src), !stays);
        assert_eq!(
            net.nat.is_permitted(flow.held, &flow.tuple, &flow.tuple, 0),
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
    let gone = net
        .nat
        .install(Arc::new(Rules::new(same, Some(&before))), 1);
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
        assert!(net.nat.install(Arc::new(rules), 1).is_empty(), "all stay");
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

/// Other rules than before.
fn reload(net: &mut Net, config: Config, number: u32) {
    let before = net.nat.rules().clone();
    let rules = Rules::new(config, Some(&before));
    net.nat.install(Arc::new(rules), number);
}

#[test]
fn ports_of_other_blocks_are_not_those_of_flows_from_before() {
    for is_independent in [true, false] {
        let with = |block_ports| {
            let mut pool = pool("198.51.100.1", "198.51.100.1");
            (pool.block_ports, pool.is_independent) = (block_ports, is_independent);
            config(pool)
        };
        let mut net = Net::new(with(0));
        let (from, to) = ("10.0.0.1:4000", "192.0.2.1:53");
        let flow = net.out(from, to, UDP).unwrap();
        let original = tuple(from, to, UDP);
        let permitted = |net: &Net, by| {
            let Translated { held, tuple } = &flow;
            net.nat.is_permitted(*held, &original, tuple, by)
        };
        reload(&mut net, with(16), 1);
        assert!(!permitted(&net, 0) && net.nat.mappings.is_empty());
        reload(&mut net, with(0), 2);
        assert!(!permitted(&net, 0));
        // Another host has the port, and keeps it when the flow from before ends.
        let (other, there) = ("10.0.0.2:4000", "192.0.2.2:53");
        let second = net.out(other, there, UDP).unwrap();
        assert_eq!(src(&second), src(&flow));
        let taken = |net: &Net| !net.nat.ports.is_free(AddressId(0), Protocol::Udp, 4000);
        let ended = (flow.held, original, flow.tuple, 1);
        let ended = net.nat.still_held(ended, 0);
        net.nat.release_all(&[ended], 2000);
        assert!(taken(&net));
        assert!(
            net.nat
                .still_held((second.held, original, second.tuple, 1), 2)
                .0
                == second.held
        );
        net.end(other, there, UDP, &second);
        net.nothing_is_taken();
    }
}

/// A pool of one address, with blocks of so many ports.
fn with_blocks(block_ports: u16) -> Config {
    let mut pool = pool("198.51.100.1", "198.51.100.1");
    pool.block_ports = block_ports;
    config(pool)
}

#[test]
fn a_host_that_was_called_before_a_reload_keeps_nothing_of_it() {
    let (call, here) = (("10.0.0.1:4000", "198.51.100.1:5000"), "10.0.0.2:5000");
    let mut net = Net::new(with_blocks(0));
    net.out(here, "192.0.2.1:53", UDP).unwrap();
    let refused = net.send(tuple(call.0, call.1, UDP), INSIDE, INSIDE);
    assert_eq!((refused, net.nat.calls.len()), (Err(Refused::Filtered), 1));
    reload(&mut net, with_blocks(16), 1);
    reload(&mut net, with_blocks(0), 2);
    let other = net.out("10.0.0.3:4000", "192.0.2.1:53", UDP).unwrap();
    assert_eq!(src(&other), "198.51.100.1:4000");
    net.nat.expire(1000 + 2 * WAIT_MS);
    assert!(net.nat.calls.is_empty());
    assert_eq!(net.nat.mappings.len(), 1);
}

#[test]
fn a_call_that_a_reload_has_ended_can_be_made_again() {
    let (call, here) = (("10.0.0.1:4000", "198.51.100.1:5000"), "10.0.0.2:5000");
    let mut net = Net::new(with_blocks(0));
    for number in 0..2 {
        let called = net.out(here, "192.0.2.1:53", UDP).unwrap();
        let refused = net.send(tuple(call.0, call.1, UDP), INSIDE, INSIDE);
        assert_eq!(refused, Err(Refused::Filtered));
        // Who is called meets the call: it holds the caller's mapping.
        assert_eq!((net.nat.calls.len(), net.nat.mappings.len()), (1, 2));
        if number == 0 {
            reload(&mut net, with_blocks(16), 1);
            assert!(net.nat.calls.is_empty() && net.nat.mappings.is_empty());
            reload(&mut net, with_blocks(0), 2);
        } else {
            net.end(here, "192.0.2.1:53", UDP, &called);
        }
    }
    net.nat.expire(1000 + 2 * WAIT_MS);
    net.nothing_is_taken();
}

#[test]
fn a_port_that_was_illegal_for_a_while_stays_with_its_flow() {
    for is_independent in [true, false] {
        let plain = || {
            let mut pool = pool("198.51.100.1", "198.51.100.1");
            pool.is_independent = is_independent;
            config(pool)
        };
        let mut forwarded = plain();
        forwarded.forwards = vec![Forward {
            outside: [198, 51, 100, 1].into(),
            protocol: Some(Protocol::Udp),
            ports: 4000..=4001,
            inside: [10, 0, 0, 9].into(),
            inside_port: 53,
            from: Place::default(),
            source_pool: None,
        }];
        let mut net = Net::new(plain());
        let (from, to) = ("10.0.0.1:4000", "192.0.2.1:53");
        let flow = net.out(from, to, UDP).unwrap();
        for number in 0..2 {
            reload(&mut net, forwarded.clone(), 1 + number * 3);
            // A reload more, and its bucket has been elsewhere.
            let mut other = forwarded.clone();
            other.pools[0].ports = 1025..=65535;
            reload(&mut net, other, 2 + number * 3);
            let bucket = net.nat.take_bucket(bucket_of(4000));
            assert!(net.nat.put_bucket(bucket, 0).is_empty());
            reload(&mut net, plain(), 3 + number * 3);
            assert!(!net.nat.ports.is_free(AddressId(0), Protocol::Udp, 4000));
            assert!(net.nat.ports.is_free(AddressId(0), Protocol::Udp, 4001));
        }
        let Translated { held, tuple: new } = &flow;
        assert!(net.nat.is_permitted(*held, &tuple(from, to, UDP), new, 0));
        // One that ends meanwhile comes back.
        reload(&mut net, forwarded.clone(), 7);
        net.end(from, to, UDP, &flow);
        reload(&mut net, plain(), 8);
        net.nothing_is_taken();
    }
}

#[test]
fn a_block_without_a_port_of_the_protocol_is_given_back() {
    let make = || {
        let mut pool = pool("198.51.100.1", "198.51.100.1");
        pool.block_ports = 16;
        let mut config = config(pool);
        // No port of TCP is left.
        config.forwards = vec![Forward {
            outside: [198, 51, 100, 1].into(),
            protocol: Some(Protocol::Tcp),
            ports: 1024..=65535,
            inside: [10, 0, 0, 9].into(),
            inside_port: 1024,
            from: Place::default(),
            source_pool: None,
        }];
        Net::new(config)
    };
    let blocks = |net: &mut Net| {
        let take = || net.nat.ports.take_block(AddressId(0), 0, Protocol::Udp, 0);
        std::iter::from_fn(take).count()
    };
    let all = blocks(&mut make());
    let mut net = make();
    let (from, to) = ("10.0.0.1:4000", "192.0.2.1:53");
    let flow = net.out(from, to, UDP).unwrap();
    for _ in 0..5 {
        assert_eq!(net.out(from, to, TCP), Err(Refused::Exhausted));
        let one = net.nat.subscribers.iter().next().unwrap();
        assert_eq!(one.blocks().count(), 1);
    }
    let begun = net.nat.log.len();
    assert_eq!(begun, 1);
    net.end(from, to, UDP, &flow);
    assert!(net.nat.subscribers.is_empty());
    assert_eq!(blocks(&mut net), all);
}

/// TCP of these ports is led inwards, and the pool has blocks of 16.
fn with_forward(ports: RangeInclusive<u16>) -> Config {
    let mut pool = pool("198.51.100.1", "198.51.100.1");
    pool.block_ports = 16;
    let mut config = config(pool);
    config.forwards = vec![Forward {
        outside: [198, 51, 100, 1].into(),
        protocol: Some(Protocol::Tcp),
        inside_port: *ports.start(),
        ports,
        inside: [10, 0, 0, 9].into(),
        from: Place::default(),
        source_pool: None,
    }];
    config
}

#[test]
fn no_host_gets_a_block_without_a_port_of_its_protocol() {
    // The first block of each bucket has ports of UDP alone.
    let mut net = Net::new(with_forward(1024..=4095));
    for host in 1..=12 {
        let flow = net.out(&format!("10.0.0.{host}:4000"), "192.0.2.1:53", TCP);
        assert!(flow.is_ok(), "{host}: {flow:?}");
    }
    // Where those are all that a bucket has left, another bucket has one; and they are there for
    // UDP.
    for host in 13..=40 {
        let flow = net.out(&format!("10.0.0.{host}:4000"), "192.0.2.1:53", TCP);
        assert!(flow.is_ok(), "{host}: {flow:?}");
    }
    let address = AddressId(0);
    let block = net.nat.ports.take_block(address, 40, Protocol::Udp, 0);
    let block = block.expect("the first");
    assert_eq!((block.bucket, block.first()), (40, 80));
    let of_tcp = || net.nat.ports.take_block(address, 40, Protocol::Tcp, 0);
    assert_eq!(std::iter::from_fn(of_tcp).count(), 256 * 15 - 40);
    let of_udp = || net.nat.ports.take_block(address, 40, Protocol::Udp, 0);
    assert_eq!(std::iter::from_fn(of_udp).count(), 255);
}

#[test]
fn a_block_that_a_reload_leaves_no_port_is_nobody_s_when_it_comes_back() {
    let with = |ports| {
        let mut pool = pool("198.51.100.1", "198.51.100.1");
        (pool.block_ports, pool.ports) = (16, ports);
        config(pool)
    };
    let mut net = Net::new(with(1024..=65535));
    let (from, to) = ("10.0.0.1:4000", "192.0.2.1:53");
    let flow = net.out(from, to, UDP).unwrap();
    let block = *net
        .nat
        .subscribers
        .iter()
        .next()
        .unwrap()
        .blocks()
        .next()
        .unwrap();
    // Whichever it is: the range ends below it, or begins above.
    let narrow = match block.first() {
        ..32_768 => 40_960..=65_535,
        _ => 1024..=28_671,
    };
    reload(&mut net, with(narrow), 1);
    net.end(from, to, UDP, &flow);
    assert!(net.nat.subscribers.is_empty());
    for protocol in Protocol::ALL {
        let take = || {
            net.nat
                .ports
                .take_block(AddressId(0), block.bucket, protocol, 0)
        };
        assert!(std::iter::from_fn(take).all(|other| other != block));
    }
    // With its ports it comes back.
    reload(&mut net, with(1024..=65535), 2);
    let take = || {
        net.nat
            .ports
            .take_block(AddressId(0), block.bucket, Protocol::Udp, 0)
    };
    assert!(std::iter::from_fn(take).any(|other| other == block));
}
