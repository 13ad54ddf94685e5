//! Two hosts and a wire.

use super::*;
use crate::host::ping::Request;

const A4: &str = "192.0.2.1";
const B4: &str = "192.0.2.2";
const A6: &str = "2001:db8::1";
const B6: &str = "2001:db8::2";

fn pair() -> (Station, Station) {
    let station = |n: u8, v4: &str, v6: &str| {
        let (v4, v6) = (format!("{v4}/24"), format!("{v6}/64"));
        Station::new(MacAddr([2, 0, 0, 0, 0, n]), &[&v4, &v6])
    };
    let (mut a, mut b) = (station(1, A4, A6), station(2, B4, B6));
    exchange(&mut a, &mut b);
    (a, b)
}

fn end(address: &str, port: u16) -> String {
    SocketAddr::new(at(address), port).to_string()
}

#[test]
fn pings_are_answered_over_both_families_of_any_length() {
    for (from, to) in [(A4, B4), (A6, B6)] {
        let (mut a, mut b) = pair();
        let id = a.ping.open(&mut a.host, None).unwrap();
        for (seq, len) in [(1, 0), (2, 56), (3, 1472), (4, 3000), (5, 60_000)] {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let request = Request::new(at(to), seq, &payload);
            let Station {
                host, ping, out, ..
            } = &mut a;
            ping.send(host, id, &request, 0, out).unwrap();
            exchange(&mut a, &mut b).iter().for_each(check_sums);
            let reply = a.ping.recv(id).unwrap().expect("a reply");
            assert_eq!((reply.from, reply.seq, reply.ttl), (at(to), seq, 64));
            assert_eq!(reply.payload(), payload);
            a.out.consume_one(reply.packet);
        }
        assert_eq!(b.host.stats().echo_replies, 5, "{from}");
        assert_eq!((a.all_drops(), b.all_drops()), (vec![], vec![]));
        a.check_slots();
        b.check_slots();
    }
}

#[test]
fn datagrams_go_both_ways_over_both_families() {
    for (a_address, b_address) in [(A4, B4), (A6, B6)] {
        let (mut a, mut b) = pair();
        let (client, server) = (a.bind_port(0), b.bind_port(53));
        let port = a.udp.local(client).unwrap().1;
        assert!((32_768..=60_999).contains(&port));
        for len in [0, 1, 100, 1472, 1473, 5000, 65_507] {
            let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            a.send(client, &payload, &end(b_address, 53)).unwrap();
            exchange(&mut a, &mut b).iter().for_each(check_sums);
            assert_eq!(b.udp.pop_ready(), Some(server));
            let (from, got) = b.recv(server).expect("a datagram");
            assert_eq!(
                (from.as_str(), &got),
                (end(a_address, port).as_str(), &payload)
            );
            b.send(server, &got, &from).unwrap();
            exchange(&mut a, &mut b);
            assert_eq!(a.recv(client), Some((end(b_address, 53), payload)));
        }
        assert_eq!((a.all_drops(), b.all_drops()), (vec![], vec![]));
        a.check_slots();
        b.check_slots();
    }
}

#[test]
fn a_received_packet_goes_back_without_a_copy() {
    let (mut a, mut b) = pair();
    let (client, server) = (a.bind_port(1000), b.bind_port(7));
    a.send(client, b"as it is", &end(B4, 7)).unwrap();
    exchange(&mut a, &mut b);
    let mut datagram = b.udp.recv(server).unwrap().unwrap();
    assert!(datagram.packet.trim_front(datagram.start));
    datagram.packet.truncate(datagram.len);
    let slot = datagram.packet.slot().0;
    let (packet, to) = (datagram.packet, Some(datagram.about.from));
    let Station { host, udp, out, .. } = &mut b;
    udp.send_packet(host, server, packet, to, 0, out).unwrap();
    let _ = slot;
    exchange(&mut a, &mut b);
    assert_eq!(a.recv(client), Some((end(B4, 7), b"as it is".to_vec())));
    b.check_slots();
}

#[test]
fn rfc_1122_4_1_3_1_and_3_a_closed_port_is_reported_to_the_sender() {
    for to in [B4, B6] {
        let (mut a, mut b) = pair();
        let client = a.bind_port(0);
        a.udp
            .connect(&mut a.host, client, socket(&end(to, 9)))
            .unwrap();
        a.send(client, b"anybody?", "").unwrap();
        exchange(&mut a, &mut b).iter().for_each(check_sums);
        assert_eq!(a.udp.pop_ready(), Some(client));
        let fault = a.udp.take_fault(client).unwrap().expect("a fault");
        assert_eq!(fault.kind, ErrorKind::PortUnreachable);
        assert!(fault.kind.is_hard());
        assert_eq!((fault.remote.port(), fault.from), (9, at(to)));
        assert_eq!(a.udp.take_fault(client).unwrap(), None);
        assert_eq!(b.drops("no_listener"), 1);
        b.check_slots();
    }
}

#[test]
fn rfc_4861_7_2_2_a_silent_neighbour_is_reported_to_the_sender() {
    for to in ["192.0.2.77", "2001:db8::77"] {
        let (mut a, _) = pair();
        let client = a.bind_port(0);
        a.send(client, b"anybody?", &end(to, 9)).unwrap();
        assert_eq!(a.host.held(), 1, "it waits");
        a.pass_time(4 * SECOND);
        let fault = a.udp.take_fault(client).unwrap().expect("a fault");
        assert_eq!(
            (fault.kind, fault.remote),
            (ErrorKind::HostUnreachable, socket(&end(to, 9)))
        );
        assert!(!fault.kind.is_hard());
        assert_eq!((a.host.held(), a.drops("neighbour_unresolved")), (0, 1));
        a.check_slots();
    }
}

#[test]
fn rfc_4861_7_3_1_progress_of_upper_layers_saves_probes() {
    for to in [B4, B6] {
        let (mut a, mut b) = pair();
        let (client, _) = (a.bind_port(0), b.bind_port(53));
        a.send(client, b"hello", &end(to, 53)).unwrap();
        exchange(&mut a, &mut b);
        let (path, _) = a.host.path(None, at(to)).unwrap();
        for _ in 0..300 {
            a.pass_time(SECOND);
            a.host.confirm(path, a.now_ns, &mut a.out);
        }
        // Its own addresses are announced by multicast.
        let probes = |a: &mut Station| {
            let sent = a.sent();
            sent.iter().filter(|frame| frame.bytes[0] & 1 == 0).count()
        };
        assert_eq!(probes(&mut a), 0, "nobody was asked");
        a.pass_time(60 * SECOND);
        assert_ne!(probes(&mut a), 0, "without it, somebody is");
    }
}

#[test]
fn a_neighbour_with_another_mac_gets_later_packets_along_the_same_path() {
    let (mut a, mut b) = pair();
    let client = a.bind_port(0);
    let _server = b.bind_port(53);
    a.send(client, b"1", &end(B4, 53)).unwrap();
    exchange(&mut a, &mut b);
    let (path, _) = a.host.path(None, at(B4)).unwrap();
    // Gratuitous ARP, beyond the lock of a second.
    a.pass_time(2 * SECOND);
    let mut arp = ethernet::header(MacAddr::BROADCAST, PEER, EtherType::ARP).to_vec();
    arp.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    for _ in 0..2 {
        arp.extend(PEER.0);
        arp.extend([192, 0, 2, 2]);
    }
    a.take(arp);
    a.sent();
    a.send(client, b"2", &end(B4, 53)).unwrap();
    let sent = a.sent();
    assert_eq!(sent.last().unwrap().bytes[..6], PEER.0);
    assert!(a.host.is_current(path));
}

#[test]
fn rfc_1191_4_a_reported_mtu_makes_fragments_and_expires() {
    for (own, to, mtu) in [(A4, "198.51.100.9", 1000_u16), (A6, "2001:db8:9::9", 1300)] {
        let (mut a, _) = pair();
        let gateway = if at(to).is_ipv4() {
            "192.0.2.254"
        } else {
            "2001:db8::fe"
        };
        a = a.knows(&[gateway]);
        let any = if at(to).is_ipv4() { "0.0.0.0" } else { "::" };
        let route = Route::by((at(any), 0), at(gateway), a.id);
        a.host.add_route(route).unwrap();
        let client = a.bind_port(4000);
        let payload = [7; 1400];
        a.send(client, &payload, &end(to, 53)).unwrap();
        let sent = a.sent();
        assert_eq!(sent.len(), 1);
        // The router quotes it.
        let quote = &sent[0].bytes[14..14 + 200];
        let [high, low] = mtu.to_be_bytes();
        let (start, upper) = match at(to).is_ipv4() {
            true => ([3, 4, 0, 0, 0, 0, high, low], protocol::ICMP),
            false => ([2, 0, 0, 0, 0, 0, high, low], protocol::ICMPV6),
        };
        let message = [&start[..], quote].concat();
        a.take(framed(
            MacAddr([2, 0, 0, 0, 0, 1]),
            &packet(gateway, own, upper, &message, Some(2)),
        ));
        let (path, _) = a.host.path(None, at(to)).unwrap();
        assert_eq!(a.host.mtu(path, at(to), a.now_ns).bytes, mtu);
        assert_eq!(a.udp.take_fault(client).unwrap(), None);
        a.send(client, &payload, &end(to, 53)).unwrap();
        let sent = a.sent();
        assert_eq!(sent.len(), 2);
        assert!(
            sent.iter()
                .all(|frame| frame.bytes.len() <= 14 + usize::from(mtu))
        );
        // RFC 1191 6.3.
        a.now_ns += 600 * SECOND;
        assert_eq!(a.host.mtu(path, at(to), a.now_ns).bytes, 1500);
        a.check_slots();
    }
}

#[test]
fn two_hosts_find_that_they_have_the_same_address() {
    let mut a = Station::with(
        MacAddr([2, 0, 0, 0, 0, 1]),
        &["2001:db8::1/64"],
        |_, interface| {
            interface.detect6 = true;
        },
    );
    let mut b = Station::new(MacAddr([2, 0, 0, 0, 0, 2]), &["2001:db8::1/64"]);
    assert_eq!(
        a.host.path(None, at("2001:db8::5")).unwrap_err(),
        Unreachable::NoSource,
        "RFC 4862 5.4: not before it is known to be unique"
    );
    b.sent();
    for _ in 0..40 {
        a.pass_time(SECOND / 10);
        exchange(&mut a, &mut b);
    }
    assert!(!a.host.is_usable(a.id, at("2001:db8::1")));
    assert!(
        a.host.is_usable(a.id, at("fe80::ff:fe00:1")),
        "its own link-local address is"
    );
    assert_eq!(a.host.stats().conflicts, 1);
}

#[test]
fn a_host_on_another_lcore_learns_from_copies_and_leaves_the_answers_to_the_first() {
    let addresses = ["192.0.2.1/24", "2001:db8::1/64"];
    let mut first = Station::new(OWN, &addresses);
    let mut second = Station::with(OWN, &addresses, |config, _| {
        config.neighbours.replies_per_s = 0;
    });
    let mut b = Station::new(
        MacAddr([2, 0, 0, 0, 0, 2]),
        &["192.0.2.2/24", "2001:db8::2/64"],
    );
    for station in [&mut first, &mut second, &mut b] {
        station.sent();
    }
    let client = second.bind_port(4000);
    for to in ["192.0.2.2:9", "[2001:db8::2]:9"] {
        second.send(client, b"x", to).unwrap();
        let asked = second.sent();
        assert!(b.take_frames(&asked).is_empty());
        // The answer comes to the queue of the first.
        let answer = b.sent();
        assert!(first.take_frames(&answer).is_empty());
        assert!(second.take_frames(&answer).is_empty());
        assert_eq!(second.sent().len(), 1, "the datagram");
    }
    // Somebody asks, and one of the two answers.
    let mut c = Station::new(PEER, &["192.0.2.9/24", "2001:db8::9/64"]);
    c.sent();
    let asker = c.bind_port(0);
    for to in ["192.0.2.1:9", "[2001:db8::1]:9"] {
        c.send(asker, b"y", to).unwrap();
        let asked = c.sent();
        assert_eq!(asked.len(), 1);
        for (station, answers) in [(&mut first, 1), (&mut second, 0)] {
            assert!(station.take_frames(&asked).is_empty());
            assert_eq!(station.sent().len(), answers);
        }
    }
}
