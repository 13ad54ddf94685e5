use linerate_wire::arp::Arp;

use super::*;

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn addrs(text: &str) -> Vec<PortAddr> {
    text.split(' ').map(|addr| addr.parse().unwrap()).collect()
}

/// A tick is a nanosecond.
fn clock() -> Clock {
    Clock::monotonic("ticks of a test")
}

const OWN_ADDRS: &str = "192.0.2.1/24 192.0.2.9/24 2001:db8::1/64";
const PEER_ADDRS: &str = "192.0.2.2/24 2001:db8::2/64";

fn own() -> Responder {
    Responder::new(OWN, addrs(OWN_ADDRS), &clock()).unwrap()
}

fn peer() -> Responder {
    Responder::new(PEER, addrs(PEER_ADDRS), &clock()).unwrap()
}

fn reply(responder: &mut Responder, frame: &[u8]) -> Option<Vec<u8>> {
    responder.handle(1_000_000_000, frame).map(<[u8]>::to_vec)
}

/// The event for a frame that the responder does not answer.
fn event(responder: &mut Responder, now: u64, frame: &[u8]) -> Option<Event> {
    responder.events.clear();
    assert_eq!(responder.handle(now, frame), None);
    responder.events.pop()
}

/// An echo request from [`own`] to the peer.
fn ping(to: IpAddr, ids: (u16, u16), now: u64, payload_bytes: usize) -> Vec<u8> {
    echo_request(
        (OWN, &addrs(OWN_ADDRS)),
        (PEER, to),
        ids,
        now,
        payload_bytes,
    )
    .unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// `frame` with two tags.
fn tagged(frame: &[u8]) -> Vec<u8> {
    let tags = [0x88, 0xa8, 0x00, 0x05, 0x81, 0x00, 0x60, 0x07];
    [&frame[..12], &tags, &frame[12..]].concat()
}

#[test]
fn an_arp_request_is_answered_byte_for_byte() {
    let mut request = vec![0xff; 6];
    request.extend(PEER.0);
    request.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    request.extend(PEER.0);
    request.extend([192, 0, 2, 2, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9]);
    let mut answer = PEER.0.to_vec();
    answer.extend(OWN.0);
    answer.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    answer.extend(OWN.0);
    answer.extend([192, 0, 2, 9]);
    answer.extend(PEER.0);
    answer.extend([192, 0, 2, 2]);
    answer.resize(60, 0);
    assert_eq!(reply(&mut own(), &request), Some(answer.clone()));
    let answer = tagged(&answer[..42]);
    assert_eq!(
        reply(&mut own(), &tagged(&request)).map(|reply| reply[..50].to_vec()),
        Some(answer),
        "the tags come back"
    );
    // RFC 5227 2.1.1: a probe has no sender address yet, and is answered too.
    request[28..32].fill(0);
    assert!(reply(&mut own(), &request).is_some());
    // An unknown address, a gratuitous request, a group address as the sender.
    let last = request.len() - 1;
    for (at, byte) in [(last, 7), (28, 192), (6, 3), (22, 3), (0, 2)] {
        let mut other = request.clone();
        if at == 28 {
            other[28..32].copy_from_slice(&[192, 0, 2, 9]);
            let conflict = Event::Conflict {
                ip: ip("192.0.2.9"),
                mac: PEER,
            };
            assert_eq!(event(&mut own(), 0, &other), Some(conflict));
        }
        other[at] = byte;
        assert_eq!(reply(&mut own(), &other), None, "byte {at}");
    }
}

#[test]
fn two_responders_find_and_ping_each_other_over_both_protocols() {
    for (from, to) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
        let (mut a, mut b) = (own(), peer());
        let (from, to) = (ip(from), ip(to));
        let question = a.who_has(to).unwrap();
        assert!(question.len() >= 60);
        assert_eq!(reply(&mut own(), &question), None, "not its own address");
        let answer = reply(&mut b, &question).unwrap();
        assert_eq!(
            event(&mut a, 0, &answer),
            Some(Event::Resolved { ip: to, mac: PEER })
        );
        for payload_bytes in [16, 17, 56, 1400] {
            for tags in [false, true] {
                let ping = ping(to, (77, 5), 1000, payload_bytes);
                let ping = if tags { tagged(&ping) } else { ping };
                let answer = reply(&mut b, &ping).unwrap();
                assert_eq!(answer.len(), ping.len());
                let pong = Event::Pong {
                    from: to,
                    ident: 77,
                    sequence: 5,
                    rtt_ticks: 234,
                    hops_left: 64,
                };
                assert_eq!(event(&mut a, 1234, &answer), Some(pong), "{from}");
            }
        }
        // Another host's echo is not ours.
        let mut strange = ping(to, (1, 1), 0, 16);
        let mark = strange
            .windows(8)
            .position(|bytes| *bytes == PING_MARK)
            .unwrap();
        // The checksum does not see that two words changed places.
        strange[mark..mark + 4].rotate_left(2);
        let answer = reply(&mut b, &strange).unwrap();
        assert_eq!(event(&mut a, 1, &answer), None);
    }
    let len = |question: Vec<u8>| question.len();
    assert_eq!(own().who_has(ip("2001:db8::2")).map(len), Some(86));
    let v4 = addrs("192.0.2.1/24");
    assert_eq!(source_for(&v4, ip("203.0.113.1")), Some(ip("192.0.2.1")));
    let mut v4 = Responder::new(OWN, v4, &clock()).unwrap();
    assert_eq!(v4.who_has(ip("2001:db8::2")), None);
}

#[test]
fn only_an_answer_that_was_asked_for_says_where_a_neighbour_is() {
    for to in ["192.0.2.2", "2001:db8::2"].map(ip) {
        let (mut a, mut b, mut other) = (own(), peer(), own());
        let answer = reply(&mut b, &a.who_has(to).unwrap()).unwrap();
        assert_eq!(event(&mut other, 0, &answer), None, "{to}");
        let resolved = Event::Resolved { ip: to, mac: PEER };
        assert_eq!(event(&mut a, 0, &answer), Some(resolved));
        assert_eq!(event(&mut a, 0, &answer), None, "it is known");
        // After another request it is reported again.
        a.who_has(to).unwrap();
        assert_eq!(event(&mut a, 0, &answer), Some(resolved));
    }
}

#[test]
fn a_host_that_asks_whether_its_address_is_free_hears_of_ours_from_all_nodes() {
    let question = peer().who_has(ip("2001:db8::1")).unwrap();
    let mut probe = question.clone();
    // From ::, without the option, and one unit shorter (RFC 4861 7.1.1).
    probe[22..38].fill(0);
    probe.truncate(14 + 40 + 24);
    probe[19] = 24;
    let dst = ndp::solicited_node("2001:db8::1".parse().unwrap()).octets();
    let pseudo = checksum::pseudo_v6([0; 16], dst, protocol::ICMPV6, 24);
    let mut icmp = Icmp::new_checked(&mut probe[54..]).unwrap();
    icmp.fill_checksum(pseudo);
    let answer = reply(&mut own(), &probe).unwrap();
    assert_eq!(answer[..6], [0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(answer[58], 0x20, "no router, not solicited, override");
    let mut peer = peer();
    peer.who_has(ip("2001:db8::1")).unwrap();
    assert_eq!(
        event(&mut peer, 0, &answer),
        Some(Event::Resolved {
            ip: ip("2001:db8::1"),
            mac: OWN
        })
    );
    // Through a router, or with a checksum that is wrong.
    for at in [21, 56] {
        let mut bad = question.clone();
        bad[at] ^= 1;
        assert_eq!(reply(&mut own(), &bad), None);
    }
}

#[test]
fn announcements_name_each_address_and_tell_of_a_conflict() {
    let announced = announcements(OWN, &addrs(OWN_ADDRS), &clock()).unwrap();
    assert_eq!(announced.len(), 3, "and no other");
    for (announcement, addr) in announced.iter().zip(addrs(OWN_ADDRS)) {
        assert_eq!(reply(&mut peer(), announcement), None);
        let theirs = addrs("192.0.2.1 192.0.2.9 2001:db8::1");
        let mut host = Responder::new(PEER, theirs, &clock()).unwrap();
        let conflict = Event::Conflict {
            ip: addr.ip,
            mac: OWN,
        };
        assert_eq!(event(&mut host, 0, announcement), Some(conflict));
    }
}

#[test]
fn replies_are_limited_to_a_thousand_a_second() {
    let question = peer().who_has(ip("192.0.2.1")).unwrap();
    let to = (OWN, ip("192.0.2.1"));
    let echo = echo_request((PEER, &addrs(PEER_ADDRS)), to, (1, 1), 0, 16).unwrap();
    // With tokens of a quarter of a second, or all of them.
    for (asked, saved) in [(question, 250), (echo, 1000)] {
        let (mut own, second) = (own(), 1_000_000_000);
        let replies = |own: &mut Responder, from: u64, to: u64| {
            let at = |n: u64| from + n * (to - from) / 10_000;
            let is_answered = |n: &u64| own.handle(at(*n), &asked).is_some();
            (0..10_000).filter(is_answered).count()
        };
        let first = replies(&mut own, 5 * second, 6 * second);
        assert!((990 + saved..=1000 + saved).contains(&first), "{first}");
        let then = replies(&mut own, 6 * second, 7 * second);
        assert!((990..=1001).contains(&then), "{then}");
        let [arp, _, echoes, limited, _] = own.stats.read().map(|(_, count)| count);
        assert_eq!(arp + echoes + limited, 20_000);
    }
}

#[test]
fn addresses_are_read_as_they_are_written() {
    for text in ["192.0.2.1/24", "10.0.0.1/32", "2001:db8::1/64"] {
        assert_eq!(text.parse::<PortAddr>().unwrap().to_string(), text);
    }
    assert_eq!("192.0.2.1".parse::<PortAddr>().unwrap().prefix_bits, 32);
    for bad in [
        "",
        "192.0.2",
        "192.0.2.1/33",
        "::1/129",
        "0.0.0.0/0",
        "224.0.0.1/4",
        "a/b",
        "1.2.3.4/",
    ] {
        let error = bad.parse::<PortAddr>().unwrap_err();
        assert!(error.contains("write 192.0.2.1/24"), "{error}");
    }
    let addr: PortAddr = "192.0.2.1/24".parse().unwrap();
    assert!(addr.covers(ip("192.0.2.200")) && !addr.covers(ip("192.0.3.1")));
    assert!(!addr.covers(ip("2001:db8::1")));
    assert!(
        "::5/0"
            .parse::<PortAddr>()
            .unwrap()
            .covers(ip("2001:db8::1"))
    );
}

/// Every reply is from the port's MAC and from one of its addresses.
fn assert_own(reply: &[u8]) {
    assert_eq!(reply[6..12], OWN.0);
    assert_eq!(
        reply[0] & 1,
        u8::from(reply[..2] == [0x33, 0x33]),
        "to one host, or all nodes"
    );
    let untagged = vlan::untagged(reply).unwrap();
    let packet = &reply[untagged.offset..];
    let src: IpAddr = match untagged.ethertype {
        EtherType::ARP => Arp::new_checked(packet).unwrap().sender_ip().into(),
        EtherType::IPV4 => Ipv4::new_checked(packet).unwrap().src().into(),
        EtherType::IPV6 => Ipv6::new_checked(packet).unwrap().src().into(),
        other => panic!("a reply of type {other}"),
    };
    assert!(own().addrs.iter().any(|own| own.ip == src), "from {src}");
}

#[test]
fn no_bytes_make_it_panic_or_speak_for_another() {
    let mut word = 0x1234_5678u64;
    let mut random = move || {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x55;
        word >> 8
    };
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for to in ["192.0.2.1", "2001:db8::1"] {
        let (mut peer, theirs) = (peer(), addrs(PEER_ADDRS));
        seeds.push(peer.who_has(ip(to)).unwrap());
        seeds.extend(echo_request((PEER, &theirs), (OWN, ip(to)), (1, 2), 3, 20));
        let question = own().who_has(ip("192.0.2.2")).unwrap();
        seeds.extend(reply(&mut peer, &question));
        let question = own().who_has(ip("2001:db8::2")).unwrap();
        seeds.extend(reply(&mut peer, &question));
    }
    seeds.extend(seeds.clone().iter().map(|frame| tagged(frame)));
    let mut own = own();
    let mut replies = 0;
    for round in 0..100_000u64 {
        let mut frame = match random() % 8 {
            0 => (0..random() % 100).map(|_| random() as u8).collect(),
            seed => seeds[seed as usize * 7 % seeds.len()].clone(),
        };
        for _ in 0..random() % 4 {
            if !frame.is_empty() {
                let at = random() as usize % frame.len();
                frame[at] = random() as u8;
            }
        }
        if random() % 8 == 0 {
            frame.truncate(random() as usize % (frame.len() + 1));
        }
        if let Some(reply) = own.handle(round * 10_000_000, &frame) {
            assert_own(reply);
            replies += 1;
        }
    }
    assert!(replies > 1000, "{replies}");
}

/// The Linux stack resolves the port's addresses and pings them, and answers requests.
#[test]
fn the_kernel_finds_and_pings_the_port_and_is_found_and_pinged() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
    use linerate_core::port::PortConfig;
    use linerate_drivers::Drivers;

    use crate::engine::lcore::Waker;
    use crate::engine::{Books, Boundaries, Helper, Receiver};

    let space = match linerate_testkit::netns::Unnamed::new() {
        Ok(space) => space,
        Err(why) => return linerate_testkit::skip(&why),
    };
    if space.run("ping", "-V").status.success() {
        space.ip("link add gen type veth peer name kernel");
    } else {
        return linerate_testkit::skip("needs the program ping");
    }
    for words in [
        "link set kernel addrgenmode none",
        "link set gen addrgenmode none",
        "addr add 192.0.2.2/24 dev kernel",
        "addr add 2001:db8::2/64 dev kernel nodad",
        "link set kernel up",
        "link set gen up",
    ] {
        space.ip(words);
    }
    let asking = AtomicBool::new(false);
    let (told, stats) = std::thread::scope(|scope| {
        let port = scope.spawn(|| {
            let _inside = space.enter();
            let clock = Clock::calibrate();
            let pools = Pools::new(vec![Pool::new(&PoolConfig::new("test", 4096)).unwrap()]);
            let mut cache = PoolCache::new(pools.as_slice());
            let mut port = Drivers::new().open("af_packet:gen").unwrap();
            let mut queues = port.start(&PortConfig::default(), &pools).unwrap();
            let mut tx = queues.tx.remove(0);
            let own = addrs("192.0.2.1/24 2001:db8::1/64");
            let responder = Responder::new(OWN, own.clone(), &clock).unwrap();
            let (helper, mut replies, events) = Helper::new(responder, Waker::idle());
            let stats = helper.stats();
            let books = Books::new(Boundaries::new(1).into());
            let mut receiver = Receiver::new(queues.rx.remove(0), books, clock);
            receiver.helper = Some(helper);
            let mut told = Vec::new();
            let (mut next, mut round) = (0, 0);
            let pongs = |told: &[Event]| {
                let is_pong = |event: &&Event| matches!(event, Event::Pong { .. });
                told.iter().filter(is_pong).count()
            };
            while pongs(&told) < 4 && round < 100 {
                // Repeats requests, so that a lost frame does not matter; not before the kernel has
                // resolved us, since it would learn from our requests.
                if asking.load(Ordering::Relaxed) && clock.now() >= next {
                    next = clock.now() + clock.ticks(100_000_000);
                    round += 1;
                    let mut burst = Burst::new();
                    cache.fill(pools.primary(), &mut burst, 4);
                    let packets = burst.as_packets_mut();
                    for (at, to) in ["192.0.2.2", "2001:db8::2"].into_iter().enumerate() {
                        let helper = receiver.helper.as_mut().unwrap();
                        assert!(packets[at].set_data(&helper.who_has(ip(to)).unwrap()));
                        let resolved = told.iter().find_map(|event| match event {
                            Event::Resolved { ip, mac } if *ip == self::ip(to) => Some(*mac),
                            _ => None,
                        });
                        let mac = resolved.unwrap_or(MacAddr::BROADCAST);
                        let (from, to) = ((OWN, own.as_slice()), (mac, ip(to)));
                        let ping = echo_request(from, to, (9, round), clock.now(), 56);
                        assert!(packets[at + 2].set_data(&ping.unwrap()));
                    }
                    tx.tx_burst(&mut burst, &mut cache);
                    cache.free(&mut burst);
                }
                receiver.turn(&mut cache);
                replies.send(&mut *tx, &mut cache, |_| {});
                tx.flush(&mut cache);
                told.extend(events.try_iter().map(|(_, event)| event));
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
            drop((receiver, tx, replies));
            port.stop().unwrap();
            (told, stats)
        });
        let mut pinged = true;
        for words in [
            "-c 3 -i 0.1 -W 5 192.0.2.1",
            "-c 3 -i 0.1 -W 5 -s 1400 2001:db8::1",
        ] {
            let output = space.run("ping", words);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            pinged &= output.status.success() && text.contains(" 0% packet loss");
            eprintln!("{text}");
        }
        let neighbours = space.run("ip", "neigh show dev kernel");
        asking.store(true, Ordering::Relaxed);
        let heard = port.join().unwrap();
        let neighbours = String::from_utf8_lossy(&neighbours.stdout).into_owned();
        assert!(pinged, "{neighbours}");
        for own in ["192.0.2.1 lladdr", "2001:db8::1 lladdr"] {
            assert!(neighbours.contains(&format!("{own} {OWN}")), "{neighbours}");
        }
        heard
    });
    for to in ["192.0.2.2", "2001:db8::2"].map(ip) {
        let is_resolved = |event: &Event| matches!(event, Event::Resolved { ip, .. } if *ip == to);
        assert!(told.iter().any(is_resolved), "{to}: {told:?}");
        let is_pong = |event: &Event| {
            matches!(event, Event::Pong { from, ident: 9, rtt_ticks,
            .. } if *from == to && *rtt_ticks > 0)
        };
        assert!(told.iter().any(is_pong), "{to}: {told:?}");
    }
    assert!(stats.arp_replies.read() > 0 && stats.nd_replies.read() > 0);
    assert_eq!((stats.echo_replies.read(), stats.dropped.read()), (6, 0));
}
