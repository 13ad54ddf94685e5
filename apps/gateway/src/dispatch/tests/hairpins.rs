//! Hosts inside that reach each other by their outside endpoints, whoever owns their flows: each
//! sees the other's outside, and filters are asked (RFC 4787 REQ-9).

use serde_json::json;

use super::running::{Peer, text};
use super::*;
use crate::GATEWAY;
use crate::nat::mapping::Filtering;
use linerate_control::Embedded;
use linerate_drivers::Drivers;
use linerate_testkit::Scratch;
use std::time::{Duration, Instant};

const FILTERS: [Filtering; 3] = [
    Filtering::EndpointIndependent,
    Filtering::AddressDependent,
    Filtering::AddressAndPortDependent,
];

fn of(filtering: Filtering) -> Config {
    let mut nat = nat();
    nat.pools[0].filtering = filtering;
    // One outside address, so that a contact is one for all.
    let first = nat.pools[0].addresses[0].0;
    nat.pools[0].addresses = vec![(first, first)];
    let first = "2001:db8:f::1".parse().unwrap();
    nat.pools.push(Addresses {
        filtering,
        ..Addresses::new("six", vec![(first, first)])
    });
    nat.sources.push(SourceRule {
        source: Some(prefix("2001:db8:a1::/48")),
        action: Action::Pool(1),
        ..nat.sources[0]
    });
    nat
}

/// Both forms, each filter, and up to four that own flows.
fn each_filter(mut test: impl FnMut(&mut Plant, Filtering)) {
    for handing in [Handing::Among, Handing::ToEu] {
        for filtering in FILTERS {
            for owners in 1..=4 {
                let mut plant = Plant::new(handing, owners, of(filtering));
                test(&mut plant, filtering);
                plant.is_whole();
            }
        }
    }
}

fn host(number: u8, port: u16) -> Endpoint {
    Endpoint::new([10, 1, 0, number], port)
}

fn from_to(src: Endpoint, dst: Endpoint, protocol: u8) -> Tuple {
    Tuple { src, dst, protocol }
}

/// Pairs of hosts: of some both ends have one owner, of others not.
fn pairs() -> impl Iterator<Item = (Endpoint, Endpoint)> {
    (0..20_u8).map(|number| {
        let port = 4000 + u16::from(number) * 3;
        (host(number, port), host(100 + number, port + 1000))
    })
}

/// The same of IPv6: one network has one owner.
fn pairs6() -> impl Iterator<Item = (Endpoint, Endpoint)> {
    (0..8_u16).map(|number| {
        let host = |network: u16| {
            let address = [0x2001, 0xdb8, 0xa1, network, 0, 0, 0, 1];
            Endpoint::new(std::net::Ipv6Addr::from(address), 4000 + network)
        };
        (host(number), host(100 + number))
    })
}

/// Somebody outside.
fn far(host: &Endpoint) -> Endpoint {
    match host.address.is_ipv4() {
        true => Endpoint::new([192, 0, 2, 7], 53),
        false => Endpoint::new(
            std::net::Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 7]),
            53,
        ),
    }
}

/// The outside of a host that sends to somebody outside.
fn outside_of(plant: &mut Plant, host: Endpoint, protocol: u8) -> Endpoint {
    let asks = from_to(host, far(&host), protocol);
    let frame = match protocol {
        protocol::TCP => segment(&asks, INSIDE, SYN, (100, 0)),
        _ => datagram(&asks, INSIDE),
    };
    ends(&the_one(plant.exchange(INSIDE, &[frame.bytes()]), OUTSIDE).frame).src
}

/// What comes out inside of a datagram from inside.
fn says(plant: &mut Plant, src: Endpoint, dst: Endpoint) -> Option<Tuple> {
    let frame = datagram(&from_to(src, dst, protocol::UDP), INSIDE);
    let mut out = plant.exchange(INSIDE, &[frame.bytes()]);
    assert!(out.len() <= 1 && out.iter().all(|out| out.port == INSIDE));
    out.pop().map(|out| ends(&out.frame))
}

impl Plant {
    /// Nothing was lost or kept; what was dropped was filtered.
    fn is_whole(&mut self) {
        for handle in &self.handles {
            let drops = handle.stats().drops();
            assert!(
                drops.iter().all(|(name, _)| name == "nat_filtered"),
                "{drops:?}"
            );
        }
        for worker in &mut self.workers {
            worker
                .stage
                .points(&mut |point| assert_eq!(point.unaccounted, 0, "at {}", point.name));
            assert_eq!(worker.stage.held(), 0);
        }
    }
}

#[test]
fn rfc_4787_req_9_hosts_inside_meet_by_their_outsides_whoever_owns_them() {
    each_filter(|plant, filtering| {
        for (a, b) in pairs() {
            let to_a = outside_of(plant, a, protocol::UDP);
            let to_b = outside_of(plant, b, protocol::UDP);
            let at_b = from_to(to_a, b, protocol::UDP);
            let at_a = from_to(to_b, a, protocol::UDP);
            match filtering {
                Filtering::EndpointIndependent => {
                    assert_eq!(says(plant, a, to_b), Some(at_b));
                }
                // It has not sent there; then it does, and both are through.
                _ => assert_eq!(says(plant, a, to_b), None),
            }
            for _ in 0..3 {
                assert_eq!(says(plant, b, to_a), Some(at_a));
                assert_eq!(says(plant, a, to_b), Some(at_b));
            }
            // From another port of the same host: by address alone it may.
            let other = Endpoint::new([10, 1, 0, 200], a.port);
            let said = says(plant, other, to_b);
            match filtering {
                Filtering::AddressAndPortDependent => assert_eq!(said, None),
                _ => assert_eq!(said.unwrap().dst, b),
            }
        }
    });
}

/// Both ways in a handshake, and the same where both sides begin at once (RFC 5382 REQ-8).
#[test]
fn rfc_5382_req_8_connections_pass_between_hosts_inside_whoever_owns_them() {
    each_filter(|plant, filtering| {
        for (a, b) in pairs().chain(pairs6()) {
            let to_a = outside_of(plant, a, protocol::TCP);
            let to_b = outside_of(plant, b, protocol::TCP);
            let there = from_to(a, to_b, protocol::TCP);
            let back = from_to(b, to_a, protocol::TCP);
            let (at_b, at_a) = (
                from_to(to_a, b, protocol::TCP),
                from_to(to_b, a, protocol::TCP),
            );
            let mut send = |tuple: &Tuple, flags, numbers| {
                let frame = segment(tuple, INSIDE, flags, numbers);
                let mut out = plant.exchange(INSIDE, &[frame.bytes()]);
                assert!(out.len() <= 1);
                out.pop().map(|out| ends(&out.frame))
            };
            let first = send(&there, SYN, (100, 0));
            if filtering == Filtering::EndpointIndependent {
                assert_eq!(first, Some(at_b));
            } else {
                assert_eq!(first, None);
                assert_eq!(send(&back, SYN, (300, 0)), Some(at_a));
                assert_eq!(send(&there, SYN | ACK, (100, 301)), Some(at_b));
            }
            assert_eq!(send(&back, SYN | ACK, (300, 101)), Some(at_a));
            assert_eq!(send(&there, ACK, (101, 301)), Some(at_b));
            assert_eq!(send(&back, ACK, (301, 101)), Some(at_a));
        }
    });
}

/// A host that sends to itself gets its packet from its outside, once.
#[test]
fn a_host_reaches_itself_by_its_outside() {
    each_filter(|plant, _| {
        for (a, _) in pairs() {
            let to_a = outside_of(plant, a, protocol::UDP);
            let at_a = from_to(to_a, a, protocol::UDP);
            assert_eq!(says(plant, a, to_a), Some(at_a));
            assert_eq!(says(plant, a, to_a), Some(at_a));
        }
    });
}

/// What nobody has, and what is none of TCP and UDP, goes nowhere.
#[test]
fn what_nobody_has_is_dropped_where_it_would_be() {
    for handing in [Handing::Among, Handing::ToEu] {
        let mut plant = Plant::new(handing, 3, of(Filtering::EndpointIndependent));
        for (a, _) in pairs() {
            let nobody = Endpoint::new([203, 0, 113, 1], 9);
            assert_eq!(says(&mut plant, a, nobody), None);
            let ping = from_to(a, nobody, protocol::ICMP);
            let ping = echo(&ping, INSIDE, 8, a.port);
            assert!(plant.exchange(INSIDE, &[ping.bytes()]).is_empty());
        }
        let drops = plant.handles.iter().flat_map(|one| one.stats().drops());
        let mut sum = 0;
        for (name, count) in drops {
            assert_eq!(name, "nat_no_mapping");
            sum += count;
        }
        assert_eq!(sum, 40);
    }
}

/// An error is for who has sent what it is about, as that one sent it: of a router inside, and of
/// the gateway itself.
#[test]
fn errors_about_hairpins_come_to_who_has_sent() {
    let error = |about: &[u8], to: Endpoint| {
        let mut payload = vec![3, 3, 0, 0, 0, 0, 0, 0];
        payload.extend(&about[14..14 + 46]);
        let sum = !linerate_wire::checksum::sum(&payload);
        payload[2..4].copy_from_slice(&sum.to_be_bytes());
        let tuple = from_to(host(250, 0), to, protocol::ICMP);
        frame(&tuple, INSIDE, payload).bytes()
    };
    let quoted = |frame: &[u8]| {
        let headers = linerate_wire::parse(frame).unwrap();
        assert_eq!(headers.protocol, Some(protocol::ICMP));
        let inner = [&frame[..14], &frame[14 + 28..]].concat();
        let port = |at: usize| u16::from_be_bytes([inner[at], inner[at + 1]]);
        let address = |at: usize| -> [u8; 4] { *inner[at..].first_chunk().unwrap() };
        let src = Endpoint::new(address(26), port(34));
        from_to(src, Endpoint::new(address(30), port(36)), inner[23])
    };
    each_filter(|plant, filtering| {
        if filtering != Filtering::EndpointIndependent {
            return;
        }
        for (a, b) in pairs() {
            outside_of(plant, a, protocol::UDP);
            let to_b = outside_of(plant, b, protocol::UDP);
            let there = from_to(a, to_b, protocol::UDP);
            let sent = plant.exchange(INSIDE, &[datagram(&there, INSIDE).bytes()]);
            let sent = the_one(sent, INSIDE);
            let about = ends(&sent.frame);
            // Of one about what has come to B, and of one about the answer.
            let told = plant.exchange(INSIDE, &[error(&sent.frame, about.src)]);
            let told = the_one(told, INSIDE).frame;
            assert_eq!((quoted(&told), ends(&told).dst.address), (there, a.address));
            assert_eq!(ends(&told).src.address, to_b.address, "no router inside");
            let answer = from_to(b, about.src, protocol::UDP);
            let sent = plant.exchange(INSIDE, &[datagram(&answer, INSIDE).bytes()]);
            let sent = the_one(sent, INSIDE);
            let told = plant.exchange(INSIDE, &[error(&sent.frame, to_b)]);
            let told = the_one(told, INSIDE).frame;
            assert_eq!(
                (quoted(&told), ends(&told).dst.address),
                (answer, b.address)
            );
        }
    });
    // The policy of the zone says no, where the other host is known.
    let text = "[[zone]]\nname = \"outside\"\ninterfaces = [\"wan\"]\n\
                [[zone]]\nname = \"inside\"\ninterfaces = [\"lan\"]\n\
                [[policy]]\nfrom = \"inside\"\nto = \"outside\"\ndefault = \"permit\"\n\
                [[policy]]\nfrom = \"inside\"\nto = \"inside\"\ndefault = \"reject\"\n";
    let read = |file: &Section<'_>| policy::stanza::read(file, &["wan", "lan"], Path::new(""));
    let parsed = config::parse(text, read);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let all = Stanzas {
        policy: parsed.value,
        ..stanzas(of(Filtering::EndpointIndependent))
    };
    let mut plant = Plant::on(Sockets::default(), Handing::Among, 3, &all);
    for (a, b) in pairs() {
        let to_b = outside_of(&mut plant, b, protocol::UDP);
        let there = from_to(a, to_b, protocol::UDP);
        let told = plant.exchange(INSIDE, &[datagram(&there, INSIDE).bytes()]);
        let told = the_one(told, INSIDE).frame;
        assert_eq!((quoted(&told), ends(&told).dst.address), (there, a.address));
    }
}

/// Where a datagram has its number.
const NUMBER: usize = 14 + 20 + 8;

fn numbered(tuple: &Tuple, number: u32) -> Frame {
    let mut frame = datagram(tuple, INSIDE);
    frame.payload[8..12].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Pairs that ask and answer by their outsides, while `between` is called all the time: each
/// question and answer comes, once, in order.
fn converse(peers: &mut [Peer; 2], each: u32, between: &mut dyn FnMut()) {
    let [wan, lan] = peers;
    let patience = Instant::now() + Duration::from_secs(120);
    let all: Vec<(Endpoint, Endpoint)> = pairs().collect();
    let mut outsides: BTreeMap<Endpoint, Endpoint> = BTreeMap::new();
    for host in all.iter().flat_map(|(a, b)| [*a, *b]) {
        lan.send(&datagram(&from_to(host, far(&host), protocol::UDP), INSIDE));
        while !outsides.contains_key(&host) {
            for sent in wan.receive() {
                outsides.insert(host, ends(&sent).src);
            }
            assert!(Instant::now() < patience, "{host} has no outside");
            std::thread::yield_now();
        }
    }
    // Both sides call until they hear each other, whatever filters they have.
    const CALL: u32 = u32::MAX;
    let mut heard = BTreeSet::new();
    while heard.len() < 2 * all.len() {
        for (a, b) in &all {
            for (from, to) in [(a, b), (b, a)] {
                if !heard.contains(from) || !heard.contains(to) {
                    lan.send(&numbered(
                        &from_to(*from, outsides[to], protocol::UDP),
                        CALL,
                    ));
                }
            }
        }
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            heard.extend(lan.receive().iter().map(|frame| ends(frame).dst));
            std::thread::yield_now();
        }
        assert!(Instant::now() < patience, "{} have heard", heard.len());
    }
    let mut asked = vec![0; all.len()];
    let mut served = vec![0; all.len()];
    let mut answered = vec![0; all.len()];
    while answered.iter().any(|&count| count < each) {
        for (at, (a, b)) in all.iter().enumerate() {
            while asked[at] < each && asked[at] - answered[at] < 4 {
                let tuple = from_to(*a, outsides[b], protocol::UDP);
                lan.send(&numbered(&tuple, asked[at]));
                asked[at] += 1;
            }
        }
        for frame in lan.receive() {
            let number = u32::from_be_bytes(*frame[NUMBER..].first_chunk().unwrap());
            let tuple = ends(&frame);
            let at = all.iter().position(|(a, b)| [a, b].contains(&&tuple.dst));
            let at = at.unwrap();
            let (a, b) = all[at];
            if number == CALL {
                continue;
            }
            if tuple.dst == b {
                assert_eq!((tuple.src, number), (outsides[&a], served[at]), "in order");
                served[at] += 1;
                lan.send(&numbered(&from_to(b, tuple.src, protocol::UDP), number));
            } else {
                assert_eq!(
                    (tuple.src, number),
                    (outsides[&b], answered[at]),
                    "in order"
                );
                answered[at] += 1;
            }
        }
        assert!(
            Instant::now() < patience,
            "{asked:?} {served:?} {answered:?}"
        );
        between();
        std::thread::yield_now();
    }
}

#[test]
fn hosts_inside_meet_in_a_running_gateway_while_buckets_move() {
    for (plan, mode, owners) in [
        ("io = \"1-3\"\n", "balanced", [0, 1, 2]),
        ("io = \"1-2\"\neu = \"3-5\"\n", "dispatcher", [2, 3, 4]),
    ] {
        for filtering in ["independent", "address", "address-port"] {
            let scratch = Scratch::new();
            let file = scratch.file("gateway.toml");
            let pool = format!("filtering = \"{filtering}\"\n[[nat.source]]");
            let text = text(plan, mode, "").replace("[[nat.source]]", &pool);
            let text = text.replace(", \"203.0.113.2\"", "");
            std::fs::write(&file, &text).unwrap();
            // Between hosts inside all is permitted, whether it is said or not.
            let other = "[[policy]]\nfrom = \"inside\"\nto = \"inside\"\ndefault = \"permit\"\n";
            let texts = [text.clone() + other, text];
            let mut drivers = Drivers::new();
            let mut peers = [("ring:wan,size=2048", 0), ("ring:lan,size=2048", 1)]
                .map(|(spec, number)| Peer::new(&mut drivers, spec, number));
            let gateway = Embedded::start(GATEWAY, Path::new(&file), &mut drivers, 0).unwrap();
            let (mut random, mut moved, mut reloads) = (Random::new(3), 0, 0);
            let mut next = Instant::now();
            converse(&mut peers, 60, &mut || {
                if Instant::now() < next {
                    return;
                }
                if moved > 4 * reloads && reloads < 4 {
                    std::fs::write(&file, &texts[reloads % 2]).unwrap();
                    gateway.reload().unwrap().join().unwrap().unwrap();
                    reloads += 1;
                }
                next = Instant::now() + Duration::from_millis(3);
                let (bucket, worker) = (random.below(256), random.of(&owners));
                let asked = json!({ "bucket": bucket, "worker": worker });
                let told = gateway.ask("move", asked).unwrap();
                moved += told["buckets"].as_array().unwrap().len();
            });
            assert!(
                moved > 0 && reloads > 0,
                "{mode} {filtering}: {moved}, {reloads}"
            );
            let drops = gateway.show("drops").unwrap();
            for row in drops["rows"].as_array().unwrap() {
                assert!(row.to_string().contains("nat_filtered"), "{mode}: {row}");
            }
            let books = gateway.stop().unwrap();
            assert_eq!(books.missing, 0, "{mode} {filtering}: {books}");
        }
    }
}

/// Hosts of the other side that have addresses of those inside, too: their answers are none that
/// turn, since sources that leave there are translated.
#[test]
fn answers_from_outside_meet_their_flows_whatever_addresses_are_inside() {
    for handing in [Handing::Among, Handing::ToEu] {
        let mut nat = of(Filtering::AddressAndPortDependent);
        nat.sources[0].source = Some(prefix("0.0.0.0/0"));
        let mut plant = Plant::new(handing, 3, nat);
        for asks in hosts(protocol::UDP) {
            let sent = plant.exchange(INSIDE, &[datagram(&asks, INSIDE).bytes()]);
            let outside = ends(&the_one(sent, OUTSIDE).frame);
            let back = datagram(&outside.reversed(), OUTSIDE);
            let back = the_one(plant.exchange(OUTSIDE, &[back.bytes()]), INSIDE);
            assert_eq!(ends(&back.frame), asks.reversed());
        }
        plant.is_exact();
    }
}
