//! NAT in the path: addresses of hosts inside are others outside, also in what errors quote.

use super::*;
use crate::nat::Protocol;
use crate::nat::nptv6::Prefixes;
use crate::nat::ports::bucket_of;
use crate::nat::rules::Nptv6;
use crate::stages::flows::buckets::Scan;

#[test]
fn hosts_inside_share_an_address_outside_and_each_gets_its_answers() {
    let mut gate = Gate::new(&masquerade("192.0.2.1", 1024..=65535));
    let server = ("192.0.2.7".parse().unwrap(), 53);
    let mut outsides = Vec::new();
    for host in ["10.1.0.9", "10.1.0.10"] {
        let asks = Frame {
            src: host,
            ..datagrams(false).0
        };
        let sent = gate.passes(INSIDE, &asks).unwrap();
        let (from, to) = ends(&sent);
        assert_eq!((from.0, to), ("192.0.2.1".parse().unwrap(), server));
        // The time to live is less by one, and nothing else has changed.
        assert_eq!((sent.len(), sent[22]), (asks.bytes().len(), 63));
        let back = gate
            .passes(OUTSIDE, &answer_to("192.0.2.1", from.1))
            .unwrap();
        let inside = (host.parse().unwrap(), 5000);
        assert_eq!(ends(&back), (server, inside));
        outsides.push(from.1);
    }
    // RFC 4787 REQ-3: no two hosts have one port, and the first one's is preserved.
    assert_eq!(outsides[0], 5000);
    assert_ne!(outsides[0], outsides[1]);
    assert_eq!(gate.flows(), 2);
    // Another port of the address is the gateway's own.
    let own = answer_to("192.0.2.1", 7);
    assert_eq!(gate.passes(OUTSIDE, &own), Ok(own.bytes()));
}

#[test]
fn connections_and_pings_are_translated_with_right_checksums() {
    let mut gate = Gate::new(&masquerade("192.0.2.1", 1024..=65535));
    let sent = gate
        .passes(INSIDE, &segment(false, false, SYN, (100, 0)))
        .unwrap();
    let (from, _) = ends(&sent);
    assert_eq!(from.0.to_string(), "192.0.2.1");
    let mut answer = Frame {
        dst: "192.0.2.1",
        ..segment(false, true, SYN | ACK, (300, 101))
    };
    answer.payload[2..4].copy_from_slice(&from.1.to_be_bytes());
    let back = gate.passes(OUTSIDE, &answer.summed()).unwrap();
    assert_eq!(ends(&back).1, ("10.1.0.9".parse().unwrap(), 5000));

    let mut ping = echo(false, false, 9);
    let sum = !checksum::sum(&ping.payload);
    ping.payload[2..4].copy_from_slice(&sum.to_be_bytes());
    let sent = gate.passes(INSIDE, &ping).unwrap();
    assert_eq!(ends(&sent).0.0.to_string(), "192.0.2.1");
    let mut pong = Frame {
        dst: "192.0.2.1",
        ..echo(false, true, 9)
    };
    // As the translated question has it.
    pong.payload[4..6].copy_from_slice(&sent[38..40]);
    let sum = !checksum::sum(&pong.payload);
    pong.payload[2..4].copy_from_slice(&sum.to_be_bytes());
    let back = gate.passes(OUTSIDE, &pong).unwrap();
    assert_eq!(ends(&back).1.0.to_string(), "10.1.0.9");
    assert_eq!(back[38..40], [0, 9]);
}

#[test]
fn rfc5508_req4_an_error_about_a_translated_packet_tells_of_the_one_that_was_sent() {
    let mut gate = Gate::new(&masquerade("192.0.2.1", 1024..=65535));
    let asks = datagrams(false).0;
    let sent = gate.passes(INSIDE, &asks).unwrap();
    let port = ends(&sent).0.1;
    let mut outside = Frame {
        src: "192.0.2.1",
        ..asks.clone()
    };
    outside.payload[..2].copy_from_slice(&port.to_be_bytes());
    let told = gate.passes(OUTSIDE, &unreachable(&outside)).unwrap();
    assert_eq!(ends(&told).1.0.to_string(), "10.1.0.9");
    // The quote: addresses and ports as the host had them.
    assert_eq!(told[42 + 12..42 + 24], asks.bytes()[14 + 12..14 + 24]);
}

#[test]
fn rfc5508_4_2_what_the_gateway_says_is_about_what_was_sent() {
    for stanzas in [stanzas(USUAL), masquerade("192.0.2.1", 1024..=65535)] {
        let mut gate = Gate::new(&stanzas);
        let asks = Frame {
            ttl: 1,
            dst_mac: LAN_MAC,
            ..datagrams(false).0
        };
        let left = gate.lab.run(&mut gate.fast, INSIDE, &[asks.bytes()]);
        assert_eq!(left.len(), 1, "{:?}", gate.lab.drops());
        let told = &left[0].frame;
        assert_eq!(
            (left[0].port, told[34]),
            (INSIDE, 11),
            "time exceeded, to inside"
        );
        assert_eq!(ends(told).1.0.to_string(), "10.1.0.9");
        assert_eq!(told[42..42 + 28], asks.bytes()[14..14 + 28]);
    }
}

#[test]
fn rfc5508_4_2_a_host_is_told_that_nobody_answers_for_what_it_sent() {
    for (stanzas, dst) in [
        (stanzas(USUAL), "192.0.2.99"),
        (stanzas(USUAL), "2001:db8::99"),
        (masquerade("192.0.2.1", 1024..=65535), "192.0.2.99"),
        (masquerade("2001:db8::1", 1024..=65535), "2001:db8::99"),
    ] {
        let mut gate = Gate::new(&stanzas);
        let setup = gate.lab.setup();
        let (tell, config) = (Box::new(|_| {}), Config::default());
        let mut slow = Slow::new(setup, config, tell, &mut gate.lab.egress).unwrap();
        gate.lab.now = 1_000_000_000_000_000; // long after any address was probed for
        gate.lab.left();
        let v6 = dst.contains(':');
        let asks = Frame {
            dst,
            dst_mac: LAN_MAC,
            ..datagrams(v6).0
        };
        let mut burst = Burst::new();
        (burst.port, burst.now) = (INSIDE, gate.lab.now);
        burst.push(gate.lab.packet(&asks.bytes())).unwrap();
        gate.fast.run(&mut burst, &mut (), &mut gate.lab.egress);
        gate.lab.take_punts(&mut burst);
        assert_eq!(burst.len(), 1, "{:?}", gate.lab.drops());
        (burst.port, burst.now) = (SLOW, gate.lab.now);
        slow.run(&mut burst, &mut (), &mut gate.lab.egress);
        let mut told = Vec::new();
        for tenths in 1..60 {
            let now = gate.lab.now + tenths * 100_000_000;
            slow.turn(now, &mut (), &mut gate.lab.egress);
            told.extend(gate.lab.left());
        }
        // Destination unreachable, among what is said to find neighbours.
        let (at, kind) = if v6 { (54, 1) } else { (34, 3) };
        told.retain(|left| left.frame[at] == kind && left.port == INSIDE);
        assert_eq!(told.len(), 1, "{:?}", gate.lab.drops());
        let told = &told[0].frame;
        assert_eq!(ends(told).1.0.to_string(), asks.src);
        // The quote: addresses and ports as they came.
        let (from, ends) = if v6 { (62, 8..44) } else { (42, 12..24) };
        assert_eq!(told[from..][ends.clone()], asks.bytes()[14..][ends]);
    }
}

#[test]
fn rfc_6296_prefixes_are_exchanged_both_ways_and_in_what_errors_quote() {
    let mut stanzas = stanzas(USUAL);
    let (inside, outside) = ("2001:db8:a1::/48", "2001:db8:f::/48");
    stanzas.nat.nptv6 = vec![Nptv6 {
        prefixes: Prefixes::new(inside.parse().unwrap(), outside.parse().unwrap()),
        to: Place {
            zone: Some(OUTSIDE),
            interface: None,
        },
    }];
    let mut gate = Gate::new(&stanzas);
    let asks = segment(true, false, SYN, (100, 0));
    let sent = gate.passes(INSIDE, &asks).unwrap();
    let (from, to) = ends(&sent);
    assert!(from.0.to_string().starts_with("2001:db8:f:"), "{from:?}");
    assert_eq!((from.1, to.1), (5000, 22));
    // Neutral: no checksum has changed.
    assert_eq!(sent[70..72], asks.bytes()[70..72]);
    let name: &'static str = Box::leak(from.0.to_string().into_boxed_str());
    let told = unreachable(&Frame {
        src: name,
        ..asks.clone()
    });
    let told = gate.passes(OUTSIDE, &told).unwrap();
    assert_eq!(ends(&told).1.0.to_string(), "2001:db8:a1::9");
    assert_eq!(told[62 + 8..62 + 44], asks.bytes()[14 + 8..14 + 44]);
    let answer = Frame {
        dst: name,
        ..segment(true, true, SYN | ACK, (300, 101))
    };
    let back = gate.passes(OUTSIDE, &answer.summed()).unwrap();
    assert_eq!(ends(&back).1, ("2001:db8:a1::9".parse().unwrap(), 5000));
    // Whoever is outside needs a policy.
    let mut other = segment(true, true, SYN, (300, 0));
    other.dst = name;
    other.payload[2..4].copy_from_slice(&5001_u16.to_be_bytes());
    gate.refuses(OUTSIDE, &other.summed(), "policy");
}

#[test]
fn a_port_is_given_back_when_its_flow_ends() {
    let mut gate = Gate::new(&masquerade("192.0.2.1", 5000..=5001));
    let from = |port: u16| {
        let mut frame = datagrams(false).0;
        frame.payload[..2].copy_from_slice(&port.to_be_bytes());
        frame
    };
    for _ in 0..3 {
        for port in [5000, 5001] {
            gate.passes(INSIDE, &from(port)).unwrap();
        }
        gate.refuses(INSIDE, &from(5002), "nat_exhausted");
        gate.later(301_000);
        assert_eq!(gate.flows(), 0);
    }
}

#[test]
fn a_pool_that_goes_ends_its_flows_and_leaves_others() {
    let mut gate = Gate::new(&masquerade("192.0.2.1", 1024..=65535));
    let sent = gate.passes(INSIDE, &datagrams(false).0).unwrap();
    let port = ends(&sent).0.1;
    gate.reload(&masquerade("192.0.2.1", 1024..=65535));
    gate.passes(OUTSIDE, &answer_to("192.0.2.1", port)).unwrap();
    gate.reload(&masquerade("192.0.2.2", 1024..=65535));
    gate.refuses(OUTSIDE, &answer_to("192.0.2.1", port), "nat_gone");
    assert_eq!(gate.flows(), 0);
    let sent = gate.passes(INSIDE, &datagrams(false).0).unwrap();
    assert_eq!(ends(&sent).0.0.to_string(), "192.0.2.2");
}

#[test]
fn an_address_that_went_and_came_back_is_not_that_of_flows_from_before() {
    let pool = |address| masquerade(address, 1024..=65535);
    let from = |host| Frame {
        src: host,
        dst: "10.2.0.5",
        ..datagrams(false).0
    };
    let (first, second, third) = (from("10.1.0.9"), from("10.1.0.10"), from("10.1.0.11"));
    // Its next packet ends the flow from before, or its time does.
    for is_silent in [false, true] {
        let mut gate = Gate::new(&pool("192.0.2.1"));
        let before = Frame {
            dst: "10.2.0.6",
            ..first.clone()
        };
        let sent = gate.passes(INSIDE, &before).unwrap();
        assert_eq!(ends(&sent).0.1, 5000);
        gate.reload(&pool("192.0.2.2"));
        gate.reload(&pool("192.0.2.1"));
        gate.later(60_000);
        let sent = gate.passes(INSIDE, &second).unwrap();
        assert_eq!(ends(&sent).0.1, 5000);
        match is_silent {
            false => gate.refuses(INSIDE, &before, "nat_gone"),
            true => gate.later(61_000),
        }
        assert_eq!(gate.flows(), 1);
        // The port is the second host's, and nobody else gets it.
        let sent = gate.passes(INSIDE, &third).unwrap();
        assert_ne!(ends(&sent).0.1, 5000);
        let answer = Frame {
            src: "10.2.0.5",
            ..answer_to("192.0.2.1", 5000)
        };
        let got = gate.passes(OUTSIDE, &answer).unwrap();
        assert_eq!(ends(&got).1.0.to_string(), "10.1.0.10");
    }
}

/// A call holds a port, whose bucket must have the owner that the host's has.
#[test]
fn who_calls_another_host_ties_buckets_as_a_flow_does() {
    let mut gate = Gate::new(&masquerade("192.0.2.1", 1024..=65535));
    gate.table().moves(false);
    let from = |host, dst, ports: [u16; 2]| {
        let mut frame = Frame {
            src: host,
            dst,
            ..datagrams(false).0
        };
        frame.payload[..2].copy_from_slice(&ports[0].to_be_bytes());
        frame.payload[2..4].copy_from_slice(&ports[1].to_be_bytes());
        frame
    };
    let called = from("10.1.0.10", "192.0.2.7", [5000, 53]);
    gate.passes(INSIDE, &called).unwrap();
    let call = from("10.1.0.9", "192.0.2.1", [7000, 5000]);
    gate.refuses(INSIDE, &call, "nat_filtered");
    let key = linerate_wire::FlowKey4::new([10, 1, 0, 9], [192, 0, 2, 1], 7000, 5000, 17);
    let flows = gate.table();
    let bucket = flows.classes().one(&linerate_wire::FlowKey::V4(key));
    assert!(flows.with_bucket(bucket).has(bucket_of(7000)));
    let mut scan = Scan::default();
    while !flows.scan_ties(&mut scan) {}
    assert!(flows.with_bucket(bucket).has(bucket_of(7000)));
    gate.later(300_000);
    let mut scan = Scan::default();
    while !gate.table().scan_ties(&mut scan) {}
    assert_eq!(gate.table().with_bucket(bucket).len(), 1);
    // Whichever of the two buckets leaves first, what the call holds is there to be given back.
    for port in [
        7000,
        2 * u16::from(bucket) + 1022,
        2 * u16::from(bucket) + 1026,
    ] {
        gate.passes(INSIDE, &called).unwrap();
        let call = from("10.1.0.9", "192.0.2.1", [port, 5000]);
        gate.refuses(INSIDE, &call, "nat_filtered");
        let flows = gate.table();
        let buckets = flows.with_bucket(bucket);
        assert!(buckets.has(bucket_of(port)), "{port}");
        let is_free = |flows: &Flows| {
            let nat = flows.nat();
            let id = nat.rules().id("192.0.2.1".parse().unwrap()).unwrap();
            nat.ports.is_free(id, Protocol::Udp, port)
        };
        assert!(!is_free(flows));
        let mut parts = Vec::new();
        loop {
            let (part, is_last) = flows.take_part(&buckets);
            parts.push(part);
            if is_last {
                break;
            }
        }
        // The last comes first.
        while let Some(part) = parts.pop() {
            flows.put_part(part, 0);
        }
        assert!(is_free(flows), "{port}: {bucket}");
    }
}
