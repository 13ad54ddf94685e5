//! Sockets, paths and what is sent.

use super::*;
use crate::host::ping::{PingError, Request};
use crate::host::udp::UdpError;

fn station() -> Station {
    Station::new(OWN, &["192.0.2.1/24", "2001:db8::1/64"]).knows(&["192.0.2.9", "2001:db8::9"])
}

fn from_peer(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    framed(OWN, &udp_packet("192.0.2.9", "192.0.2.1", ports, payload))
}

#[test]
fn the_most_specific_socket_gets_a_datagram() {
    let mut s = station();
    let any = s.bind_port(53);
    let one = s.udp.bind(
        &mut s.host,
        Bind {
            address: Some(at("192.0.2.1")),
            port: 53,
            ..Bind::default()
        },
    );
    assert_eq!(one, Err(UdpError::PortTaken), "not without reuse");
    s.udp.close(&s.host, any, &mut s.out).unwrap();
    let reuse = |address: Option<&str>| Bind {
        address: address.map(at),
        port: 53,
        reuse: true,
        ..Bind::default()
    };
    let any = s.bind(reuse(None));
    let any4 = s.bind(reuse(Some("0.0.0.0")));
    let own = s.bind(reuse(Some("192.0.2.1")));
    let connected = s.bind(reuse(Some("192.0.2.1")));
    s.udp
        .connect(&mut s.host, connected, socket("192.0.2.9:77"))
        .unwrap();
    s.take(from_peer((77, 53), b"connected"));
    s.take(from_peer((78, 53), b"own"));
    assert_eq!(s.recv(connected).unwrap().1, b"connected");
    assert_eq!(s.recv(own).unwrap().1, b"own");
    s.udp.close(&s.host, connected, &mut s.out).unwrap();
    s.take(from_peer((77, 53), b"own again"));
    assert_eq!(s.recv(own).unwrap().1, b"own again");
    s.udp.close(&s.host, own, &mut s.out).unwrap();
    // Two alike: a flow stays with one of them, and both get some.
    let mut by_socket = [0; 2];
    for port in 1000..1100 {
        s.take(from_peer((port, 53), b"x"));
        s.take(from_peer((port, 53), b"x"));
        let counts = [any, any4].map(|id| std::iter::from_fn(|| s.recv(id)).count());
        assert!(counts == [2, 0] || counts == [0, 2], "{counts:?}");
        by_socket[usize::from(counts[1] > 0)] += 1;
    }
    assert!(by_socket.iter().all(|count| *count > 20), "{by_socket:?}");
    assert_eq!(s.udp.peek(own), Err(UdpError::Closed));
    s.check_slots();
}

#[test]
fn a_full_queue_drops_and_counts_and_a_closed_socket_gives_its_slots_back() {
    let mut s = station();
    let small = s.bind(Bind {
        port: 53,
        queue_bytes: 3 * 2048,
        ..Bind::default()
    });
    for _ in 0..10 {
        s.take(from_peer((1, 53), b"x"));
    }
    let held = s.udp.waiting(small).unwrap() as u64;
    assert!((1..=3).contains(&held), "charged by slot");
    assert_eq!((s.udp.held(), s.drops("socket_full")), (held, 10 - held));
    s.check_slots();
    s.udp.close(&s.host, small, &mut s.out).unwrap();
    assert_eq!(s.udp.held(), 0);
    s.check_slots();
}

#[test]
fn rfc_6056_3_2_ephemeral_ports_are_unpredictable_and_never_taken_twice() {
    let mut s = station();
    s.udp = Udp::new(&UdpConfig {
        ephemeral: 40_000..=40_049,
        ..UdpConfig::default()
    })
    .unwrap();
    let mut ports = Vec::new();
    for _ in 0..50 {
        let id = s.bind_port(0);
        ports.push(s.udp.local(id).unwrap().1);
    }
    let full = s.udp.bind(&mut s.host, Bind::default());
    assert_eq!(full, Err(UdpError::PortTaken));
    assert!(!ports.is_sorted(), "in no order");
    ports.sort_unstable();
    assert_eq!(ports, (40_000..40_050).collect::<Vec<_>>());
}

#[test]
fn a_broadcast_wants_permission_and_goes_to_each_socket() {
    let mut s = station();
    let id = s.bind_port(67);
    assert_eq!(s.send(id, b"x", "192.0.2.255:68"), Err(UdpError::Broadcast));
    assert_eq!(
        s.send(id, b"x", "255.255.255.255:68"),
        Err(UdpError::Broadcast)
    );
    let may = s.bind(Bind {
        port: 68,
        broadcast: true,
        reuse: true,
        ..Bind::default()
    });
    let also = s.bind(Bind {
        port: 68,
        reuse: true,
        ..Bind::default()
    });
    for to in ["192.0.2.255:67", "255.255.255.255:67"] {
        s.send(may, b"all", to).unwrap();
        let sent = s.sent();
        assert_eq!(
            (sent.len(), &sent[0].bytes[..6]),
            (1, &[0xff; 6][..]),
            "{to}"
        );
    }
    let datagram = udp_packet("192.0.2.9", "192.0.2.255", (67, 68), b"to all");
    s.take(framed(MacAddr::BROADCAST, &datagram));
    for id in [may, also] {
        assert_eq!(s.recv(id).unwrap().1, b"to all");
    }
    // To a port without a socket: no error (RFC 1122 3.2.2).
    let datagram = udp_packet("192.0.2.9", "192.0.2.255", (67, 69), b"to all");
    assert!(s.answers(framed(MacAddr::BROADCAST, &datagram)).is_empty());
    s.check_slots();
}

#[test]
fn packets_to_our_own_addresses_come_back_and_are_bounded() {
    let mut s = Station::with(OWN, &["192.0.2.1/24", "2001:db8::1/64"], |config, _| {
        config.loopback_pkts = 4;
    });
    s.sent();
    let server = s.bind_port(53);
    let client = s.bind_port(54);
    for (to, from) in [
        ("127.0.0.1:53", "127.0.0.1:54"),
        ("127.9.9.9:53", "127.9.9.9:54"),
        ("[::1]:53", "[::1]:54"),
        ("192.0.2.1:53", "192.0.2.1:54"),
        ("[2001:db8::1]:53", "[2001:db8::1]:54"),
    ] {
        s.send(client, to.as_bytes(), to).unwrap();
        assert!(s.host.has_waiting() && s.sent().is_empty());
        assert_eq!(s.host.turn(7, &mut s.out), 7, "at once");
        s.receive(&mut Burst::new());
        assert_eq!(s.recv(server), Some((from.into(), to.as_bytes().to_vec())));
    }
    for n in 0..9 {
        let full = Err(UdpError::Unsent(Unsent::LoopbackFull));
        let expected = if n < 4 { Ok(()) } else { full };
        assert_eq!(s.send(client, b"x", "127.0.0.1:53"), expected);
    }
    assert_eq!((s.host.held(), s.drops("loopback_full")), (4, 5));
    s.receive(&mut Burst::new());
    assert_eq!(std::iter::from_fn(|| s.recv(server)).count(), 4);
    // Errors come back too, and pings.
    s.udp
        .connect(&mut s.host, client, socket("127.0.0.1:9"))
        .unwrap();
    s.send(client, b"nobody", "").unwrap();
    let id = s.ping.open(&mut s.host, Some(5)).unwrap();
    let Station {
        host, ping, out, ..
    } = &mut s;
    ping.send(host, id, &Request::new(at("::1"), 3, b"me"), 0, out)
        .unwrap();
    for _ in 0..3 {
        s.receive(&mut Burst::new());
    }
    let fault = s.udp.take_fault(client).unwrap().unwrap();
    assert_eq!(fault.kind, ErrorKind::PortUnreachable);
    let reply = s.ping.recv(id).unwrap().unwrap();
    assert_eq!((reply.seq, reply.payload()), (3, &b"me"[..]));
    s.out.consume_one(reply.packet);
    s.check_slots();
    // From outside nobody speaks for us, nor to 127.0.0.1.
    s.take(framed(
        OWN,
        &udp_packet("192.0.2.9", "127.0.0.1", (1, 53), b"x"),
    ));
    s.take(framed(
        OWN,
        &udp_packet("127.0.0.1", "192.0.2.1", (1, 53), b"x"),
    ));
    s.take(framed(
        OWN,
        &udp_packet("192.0.2.1", "192.0.2.1", (1, 53), b"x"),
    ));
    let drops = ["martian_destination", "martian_source", "own_source"].map(|name| s.drops(name));
    assert_eq!((drops, s.recv(server)), ([1; 3], None));
}

#[test]
fn a_port_with_offloads_gets_unfinished_checksums_and_another_finished_ones() {
    for offloads in [false, true] {
        let mut s = Station::with(OWN, &["192.0.2.1/24", "2001:db8::1/64"], |_, interface| {
            interface.tx_offloads = offloads;
        })
        .knows(&["192.0.2.9", "2001:db8::9"]);
        let id = s.bind_port(53);
        for (to, l4) in [("192.0.2.9:5", 34), ("[2001:db8::9]:5", 54)] {
            s.send(id, b"checksum", to).unwrap();
            let sent = s.sent().remove(0);
            let headers = linerate_wire::parse(&sent.bytes).unwrap();
            assert_eq!(sent.offload.intersects(Offload::CSUM_PARTIAL), offloads);
            assert_eq!(headers.is_l4_right(&sent.bytes), Some(!offloads));
            assert_eq!(
                headers.is_ipv4_right(&sent.bytes),
                (l4 == 34).then_some(true)
            );
            if offloads {
                assert_eq!(sent.csum, (l4, 6));
                // The pseudo-header's sum stands there, so that the sum over all is right.
                let mut bytes = sent.bytes.clone();
                let start = usize::from(l4);
                let sum = checksum::nonzero(checksum::checksum(&bytes[start..]));
                bytes[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
                assert_eq!(headers.is_l4_right(&bytes), Some(true));
            }
            // Fragments are finished in any case.
            s.send(id, &[1; 4000], to).unwrap();
            let sent = s.sent();
            assert_eq!(sent.len(), 3);
            assert!(sent.iter().all(|frame| frame.offload == Offload::NONE));
        }
    }
}

#[test]
fn unfinished_checksums_and_glued_datagrams_of_this_machine_are_taken() {
    let mut s = station();
    let id = s.bind_port(53);
    let mut frame = Frame::new(from_peer((1, 53), &[0; 250]));
    for (n, byte) in frame.bytes[42..].iter_mut().enumerate() {
        *byte = (n / 100) as u8;
    }
    assert!(s.take_frames(&[frame.clone()]).is_empty());
    assert_eq!((s.recv(id), s.drops("bad_l4_checksum")), (None, 1));
    frame.offload = Offload::CSUM_PARTIAL | Offload::GSO_UDP;
    frame.gso_size = 100;
    assert!(s.take_frames(&[frame]).is_empty());
    for (value, len) in [(0, 100), (1, 100), (2, 50)] {
        assert_eq!(s.recv(id).unwrap().1, vec![value; len]);
    }
    assert_eq!(s.recv(id), None);
    s.check_slots();
}

/// A guest's frame of 65 kB that says it is glued from single bytes costs no slot for each; one to
/// a broadcast address is cut for all who are bound to it.
#[test]
fn glued_datagrams_are_bounded_and_cut_for_groups_too() {
    let mut s = station();
    let id = s.bind_port(53);
    let glued = |mut bytes: Vec<u8>, gso_size| {
        if gso_size == 1 {
            bytes = from_peer((1, 53), &[7; 129]);
        }
        Frame {
            offload: Offload::CSUM_PARTIAL | Offload::GSO_UDP,
            gso_size,
            ..Frame::new(bytes)
        }
    };
    assert!(s.take_frames(&[glued(Vec::new(), 1)]).is_empty());
    assert_eq!((s.recv(id), s.drops("bad_length")), (None, 1));
    let mut to_all = udp_packet("192.0.2.9", "192.0.2.255", (1, 53), &[5; 250]);
    to_all[8] = 64;
    let frame = glued(framed(MacAddr::BROADCAST, &to_all), 100);
    let _ = s.take_frames(&[frame]);
    let lens: Vec<usize> = std::iter::from_fn(|| s.recv(id))
        .map(|it| it.1.len())
        .collect();
    assert_eq!(lens, [100, 100, 50]);
    s.check_slots();
}

/// RFC 1122 3.2.1.3 (g): what goes back to the host itself takes no router, and what is known of
/// the router's path stays.
#[test]
fn rfc1122_3_2_1_3_g_paths_back_to_loopback_take_no_router() {
    for loopback_first in [true, false] {
        let mut s = station();
        let default = Route::by((at("0.0.0.0"), 0), at("192.0.2.254"), s.id);
        s.host.add_route(default).unwrap();
        let (own, far) = (at("127.0.0.1"), at("203.0.113.7"));
        let mut peers = [(own, own), (at("192.0.2.1"), far)];
        if !loopback_first {
            peers.reverse();
        }
        let paths = peers.map(|(ours, peer)| s.host.path_back(ours, peer).unwrap());
        let again = peers.map(|(ours, peer)| s.host.path_back(ours, peer).unwrap());
        assert_eq!(paths, again);
        let ports = paths.map(|path| s.host.port_of(path));
        let expected = match loopback_first {
            true => [None, Some(0)],
            false => [Some(0), None],
        };
        assert_eq!(ports, expected);
    }
}

#[test]
fn tcp_stays_in_the_burst_with_its_facts() {
    let mut s = station();
    let id = s.bind_port(53);
    let mut tcp4 = tcp_packet("192.0.2.9", "192.0.2.1", (80, 1000), b"data");
    tcp4[1] = 0x2b; // DSCP 10, congestion experienced
    let sum = ipv4::HEADER_LEN;
    tcp4[10..12].fill(0);
    let value = checksum::checksum(&tcp4[..sum]);
    tcp4[10..12].copy_from_slice(&value.to_be_bytes());
    let mut tcp6 = tcp_packet("2001:db8::9", "2001:db8::1", (80, 1001), b"more data");
    (tcp6[0], tcp6[1]) = (0x62, 0xb0);
    let mut frames = vec![
        from_peer((1, 53), b"udp"),
        framed(OWN, &tcp4),
        framed(OWN, &echo_request("192.0.2.9", "192.0.2.1", b"ping")),
        framed(OWN, &tcp6),
        from_peer((2, 53), b"udp too"),
    ];
    frames[1].extend([0; 6]); // Ethernet pads
    let frames: Vec<Frame> = frames.into_iter().map(Frame::new).collect();
    let mut left = s.take_frames(&frames);
    assert_eq!(
        (left.len(), s.inbound.tcp(), s.inbound.udp(), s.inbound.v6()),
        (2, 3, 0, 2)
    );
    let (first, second) = (*s.inbound.arrived(0), *s.inbound.arrived(1));
    assert_eq!(
        (first.tos, first.ttl, first.l4, first.l4_len),
        (0x2b, 64, 34, 24)
    );
    assert_eq!(
        (second.tos, second.ttl, second.l4, second.l4_len),
        (0x2b, 64, 54, 29)
    );
    assert!(first.is_verified && !first.is_v6 && second.is_v6);
    assert_eq!(&first.l4(&left.as_packets()[0])[20..], b"data");
    let addresses = (at("2001:db8::9"), at("2001:db8::1"));
    assert_eq!(second.addresses(&left.as_packets()[1]), addresses);
    assert_eq!(
        s.inbound.key(0).to_string(),
        "192.0.2.9:80 > 192.0.2.1:1000 proto 6"
    );
    assert_eq!(s.inbound.keys6()[1].dst_port(), 1001);
    let got: Vec<_> = std::iter::from_fn(|| s.recv(id))
        .map(|(_, payload)| payload)
        .collect();
    assert_eq!(got, [b"udp".to_vec(), b"udp too".to_vec()]);
    assert_eq!(s.sent().len(), 1, "the ping's answer");
    s.host
        .drop_unclaimed(&mut left, &mut s.inbound, 0, &mut s.out);
    assert_eq!(s.drops("no_listener"), 2);
    s.check_slots();
}

#[test]
fn errors_about_tcp_segments_are_reported_with_what_they_quote() {
    let mut s = station();
    let quote = tcp_packet("192.0.2.1", "203.0.113.5", (1000, 443), b"x");
    let mut quote = quote[..28].to_vec();
    quote[24..28].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
    let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &quote].concat();
    let icmp = packet(
        "198.51.100.7",
        "192.0.2.1",
        protocol::ICMP,
        &message,
        Some(2),
    );
    s.take(framed(OWN, &icmp));
    let expected = IcmpError {
        kind: ErrorKind::HostUnreachable,
        from: at("198.51.100.7"),
        local: socket("192.0.2.1:1000"),
        remote: socket("203.0.113.5:443"),
        protocol: protocol::TCP,
        seq: 0xdead_beef,
        interface: s.id,
    };
    assert_eq!(s.inbound.errors(), [expected]);
    // Of another host's packet: not ours to know.
    let quote = &tcp_packet("192.0.2.7", "203.0.113.5", (1000, 443), b"x")[..28];
    let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], quote].concat();
    let icmp = packet(
        "198.51.100.7",
        "192.0.2.1",
        protocol::ICMP,
        &message,
        Some(2),
    );
    s.take(framed(OWN, &icmp));
    assert!(s.inbound.errors().is_empty());
    assert_eq!(s.drops("icmp_not_ours"), 1);
}

#[test]
fn a_path_ends_with_its_routes_and_is_renewed_by_the_next_packet() {
    let mut s = station().knows(&["192.0.2.254", "192.0.2.253"]);
    let by = |via: &str, s: &Station| Route::by((at("203.0.113.0"), 24), at(via), s.id);
    let first = by("192.0.2.254", &s);
    s.host.add_route(first).unwrap();
    let (mut path, source) = s.host.path(None, at("203.0.113.5")).unwrap();
    assert_eq!(source, at("192.0.2.1"));
    let header = Header {
        ends: Ends::new(source, at("203.0.113.5")).unwrap(),
        protocol: 253,
        tos: 0,
        ttl: 9,
        dont_fragment: true,
        flow_label: 0,
        checksum: Checksum::Done,
    };
    let mut send = |s: &mut Station| {
        let packet = s.out.cache.copy_of(b"payload").unwrap();
        s.out.made(1);
        s.host.transmit(&mut path, packet, &header, 0, &mut s.out)
    };
    send(&mut s).unwrap();
    s.host.add_route(by("192.0.2.253", &s)).unwrap();
    s.host.remove_route(&first);
    send(&mut s).unwrap();
    assert_eq!(s.sent().len(), 2);
    assert!(s.host.remove_route(&by("192.0.2.253", &s)));
    assert_eq!(send(&mut s), Err(Unsent::Unreachable(Unreachable::NoRoute)));
    assert_eq!(s.drops("no_route"), 1);
    // And with the address that it comes from.
    let default = Route::by((at("0.0.0.0"), 0), at("192.0.2.254"), s.id);
    s.host.add_route(default).unwrap();
    send(&mut s).unwrap();
    assert!(s.host.remove_interface(s.id, &mut s.out));
    assert_eq!(send(&mut s), Err(Unsent::Unreachable(Unreachable::NotOurs)));
    s.check_slots();
}

#[test]
fn rfc_6437_3_a_flow_has_a_label_of_its_own() {
    let mut s = station();
    let (a, b) = (s.bind_port(1), s.bind_port(2));
    let label = |s: &mut Station, id, to: &str| {
        s.send(id, b"x", to).unwrap();
        let bytes = s.sent().remove(0).bytes;
        u32::from_be_bytes(bytes[14..18].try_into().unwrap()) & 0x000f_ffff
    };
    let first = label(&mut s, a, "[2001:db8::9]:5");
    assert_ne!(first, 0);
    assert_eq!(label(&mut s, a, "[2001:db8::9]:5"), first);
    let others = [(a, "[2001:db8::9]:6"), (b, "[2001:db8::9]:5")];
    assert!(
        others
            .iter()
            .any(|(id, to)| label(&mut s, *id, to) != first)
    );
}

/// RFC 1122 4.1.4: an application can set them; here at any time.
#[test]
fn rfc_1122_4_1_4_type_of_service_and_time_to_live_can_be_set() {
    let mut s = station();
    let id = s.bind(Bind {
        tos: 0x28,
        ttl: 3,
        ..Bind::default()
    });
    let fields = |s: &mut Station, to: &str| {
        s.send(id, b"x", to).unwrap();
        let bytes = s.sent().remove(0).bytes;
        match bytes[14] >> 4 {
            4 => (bytes[15], bytes[22]),
            _ => (bytes[14] << 4 | bytes[15] >> 4, bytes[21]),
        }
    };
    for to in ["192.0.2.9:5", "[2001:db8::9]:5"] {
        s.udp.set_tos(id, 0x28).unwrap();
        s.udp.set_ttl(id, 3).unwrap();
        assert_eq!(fields(&mut s, to), (0x28, 3));
        s.udp.set_tos(id, 0xb9).unwrap();
        s.udp.set_ttl(id, 255).unwrap();
        assert_eq!(fields(&mut s, to), (0xb9, 255));
        // RFC 1122 3.2.1.7: never 0.
        s.udp.set_ttl(id, 0).unwrap();
        assert_eq!(fields(&mut s, to), (0xb9, 1));
    }
    s.udp.close(&s.host, id, &mut s.out).unwrap();
    assert_eq!(s.udp.set_tos(id, 0), Err(UdpError::Closed));
    assert_eq!(s.udp.set_ttl(id, 1), Err(UdpError::Closed));
}

#[test]
fn an_interface_is_changed_while_it_is_used() {
    let mut s = station();
    let id = s.bind_port(53);
    s.send(id, b"x", "192.0.2.9:5").unwrap();
    let config = InterfaceConfig {
        mac: OWN,
        addresses: vec![(at("192.0.2.1"), 24), (at("198.51.100.1"), 24)],
        mtu: 1000,
        ..InterfaceConfig::default()
    };
    let Station {
        host, out, id: lan, ..
    } = &mut s;
    let elsewhere = InterfaceConfig {
        port: 5,
        ..config.clone()
    };
    assert!(host.change_interface(*lan, elsewhere, 0, out).is_err());
    host.change_interface(*lan, config, 0, out).unwrap();
    assert!(host.path(None, at("2001:db8::9")).is_err(), "IPv6 is gone");
    assert_eq!(host.routes().count(), 2);
    let (path, source) = host.path(None, at("198.51.100.7")).unwrap();
    assert_eq!((path.link_mtu(), source), (1000, at("198.51.100.1")));
    s.sent();
    s.send(id, &[0; 1200], "192.0.2.9:5").unwrap();
    assert_eq!(
        s.sent().len(),
        2,
        "by the new MTU, to the neighbour known before"
    );
    s.check_slots();
}

#[test]
fn a_host_goes_to_its_lcore() {
    fn is_send<T: Send>() {}
    is_send::<(Host, Udp, Ping, Inbound, Path)>();
}

#[test]
fn what_is_too_long_is_refused_or_cut() {
    let mut s = station();
    let (mut path, source) = s.host.path(None, at("192.0.2.9")).unwrap();
    let mut send = |s: &mut Station, len: usize, dont_fragment| {
        let header = Header {
            ends: Ends::new(source, at("192.0.2.9")).unwrap(),
            protocol: 253,
            tos: 3,
            ttl: 9,
            dont_fragment,
            flow_label: 0,
            checksum: Checksum::Done,
        };
        let packet = s.out.cache.copy_of(&vec![9; len]).unwrap();
        s.out.made(1);
        s.host.transmit(&mut path, packet, &header, 0, &mut s.out)
    };
    send(&mut s, 1480, true).unwrap();
    assert_eq!(send(&mut s, 1481, true), Err(Unsent::TooBig { mtu: 1500 }));
    send(&mut s, 1481, false).unwrap();
    assert_eq!(send(&mut s, 65_516, false), Err(Unsent::Length));
    let sent = s.sent();
    assert_eq!(sent.len(), 3);
    let idents: Vec<u16> = sent
        .iter()
        .map(|frame| u16::from_be_bytes([frame.bytes[18], frame.bytes[19]]))
        .collect();
    assert_eq!(idents[0], 0, "RFC 6864 4.1: atomic");
    assert_eq!(idents[1], idents[2]);
    // RFC 6864 4.2: the next one has another.
    send(&mut s, 1481, false).unwrap();
    let next = s.sent().remove(0).bytes;
    assert_ne!(u16::from_be_bytes([next[18], next[19]]), idents[1]);
    s.check_slots();
}

#[test]
fn gso_frames_leave_whole_with_an_unfinished_checksum() {
    let mut s = station();
    let (mut path, source) = s.host.path(None, at("192.0.2.9")).unwrap();
    let header = Header {
        ends: Ends::new(source, at("192.0.2.9")).unwrap(),
        protocol: protocol::TCP,
        tos: 0,
        ttl: 64,
        dont_fragment: true,
        flow_label: 0,
        checksum: Checksum::At(16),
    };
    let mut packet = s.out.cache.copy_of(&[0; 20_000]).unwrap();
    s.out.made(1);
    packet.meta_mut().offload = Offload::GSO_TCP4 | Offload::CSUM_VALID;
    packet.meta_mut().gso_size = 1448;
    s.host
        .transmit(&mut path, packet, &header, 0, &mut s.out)
        .unwrap();
    let sent = s.sent().remove(0);
    assert_eq!(sent.bytes.len(), 20_034);
    assert_eq!(sent.offload, Offload::GSO_TCP4 | Offload::CSUM_PARTIAL);
    assert_eq!((sent.gso_size, sent.csum), (1448, (34, 16)));
}

#[test]
fn link_local_destinations_need_an_interface_if_there_are_two() {
    let mut s = station();
    assert!(s.host.path(None, at("fe80::9")).is_ok());
    let second = InterfaceConfig {
        port: 1,
        mac: MacAddr([2, 0, 0, 0, 0, 7]),
        addresses: vec![(at("2001:db8:1::1"), 64)],
        ..InterfaceConfig::default()
    };
    let Station { host, out, .. } = &mut s;
    assert!(matches!(
        host.add_interface(
            InterfaceConfig {
                port: 0,
                ..second.clone()
            },
            0,
            out
        ),
        Err(HostError::PortTaken { port: 0 })
    ));
    let second = host.add_interface(second, 0, out).unwrap();
    assert_eq!(
        host.path(None, at("fe80::9")).unwrap_err(),
        Unreachable::NoScope
    );
    let (path, source) = host.path_on(Some(second), None, at("fe80::9")).unwrap();
    assert_eq!((path.interface(), source), (second, at("fe80::ff:fe00:7")));
    let own = host
        .path(Some(at("fe80::ff:fe00:7")), at("fe80::9"))
        .unwrap();
    assert_eq!(own.0.interface(), second, "its source says it");
    assert!(host.path(None, at("10.0.0.1")).is_err());
    let of = |host: &mut Host, src: &str, dst: &str| host.path(Some(at(src)), at(dst)).err();
    assert_eq!(
        of(host, "192.0.2.1", "2001:db8::9"),
        Some(Unreachable::Family)
    );
    assert_eq!(
        of(host, "192.0.2.7", "192.0.2.9"),
        Some(Unreachable::NotOurs)
    );
    assert_eq!(
        of(host, "127.0.0.1", "192.0.2.9"),
        Some(Unreachable::NoRoute)
    );
    assert_eq!(of(host, "192.0.2.1", "192.0.2.9"), None);
}

#[test]
fn interfaces_and_routes_are_checked() {
    let mut s = station();
    let Station { host, out, id, .. } = &mut s;
    let mut try_add = |addresses: &[(&str, u8)], mtu| {
        let addresses = addresses
            .iter()
            .map(|(text, len)| (at(text), *len))
            .collect();
        let config = InterfaceConfig {
            port: 3,
            addresses,
            mtu,
            ..InterfaceConfig::default()
        };
        host.add_interface(config, 0, out)
            .map_err(|error| error.to_string())
    };
    for (addresses, mtu, part) in [
        (&[("224.0.0.1", 24)][..], 1500, "224.0.0.1/24"),
        (&[("192.0.2.1", 33)], 1500, "/33"),
        (&[("192.0.2.1", 24)], 60, "68"),
        (&[("2001:db8::1", 64)], 1279, "1280"),
    ] {
        let error = try_add(addresses, mtu).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let wrong = Route::by((at("10.0.0.0"), 8), at("2001:db8::9"), *id);
    assert!(matches!(
        s.host.add_route(wrong),
        Err(HostError::Route { .. })
    ));
    let nowhere = Route::by((at("10.0.0.0"), 8), at("192.0.2.9"), InterfaceId(9));
    assert!(matches!(
        s.host.add_route(nowhere),
        Err(HostError::NoInterface { number: 9 })
    ));
}

#[test]
fn pings_have_identifiers_of_their_own() {
    let mut s = station();
    let a = s.ping.open(&mut s.host, Some(7)).unwrap();
    assert_eq!(s.ping.open(&mut s.host, Some(7)), Err(PingError::Taken));
    let b = s.ping.open(&mut s.host, None).unwrap();
    assert_ne!(a.ident(), b.ident());
    let Station {
        host, ping, out, ..
    } = &mut s;
    let request = Request {
        ttl: 1,
        ..Request::new(at("192.0.2.9"), 4, b"x")
    };
    ping.send(host, b, &request, 0, out).unwrap();
    let sent = s.sent().remove(0).bytes;
    // A router on the way: traceroute.
    let message = [&[11, 0, 0, 0, 0, 0, 0, 0][..], &sent[14..42]].concat();
    let icmp = packet("192.0.2.9", "192.0.2.1", protocol::ICMP, &message, Some(2));
    s.take(framed(OWN, &icmp));
    assert_eq!(s.ping.take_fault(a).unwrap(), None);
    let fault = s.ping.take_fault(b).unwrap().unwrap();
    assert_eq!((fault.kind, fault.seq), (ErrorKind::TtlExceeded, 4));
    s.ping.close(&s.host, b, &mut s.out).unwrap();
    assert_eq!(s.ping.take_fault(b), Err(PingError::Closed));
}

#[test]
fn all_that_begins_together_waits_for_the_neighbour_that_is_asked_for() {
    let mut s = Station::new(OWN, &["192.0.2.1/24"]);
    let id = s.bind_port(7000);
    // Its own address was announced.
    s.sent();
    let to = Some(socket("192.0.2.7:80"));
    for number in 0..400_u32 {
        let sent = s.udp.send_to(
            &mut s.host,
            id,
            &number.to_be_bytes(),
            to,
            s.now_ns,
            &mut s.out,
        );
        sent.unwrap();
    }
    let asked = s.sent();
    assert!(
        asked.len() == 1 && asked[0].bytes[12..14] == [8, 6],
        "{asked:?}"
    );
    // RFC 826: the answer.
    let (mac, own) = (PEER.0, OWN.0);
    let arp = [
        &own[..],
        &mac,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2],
        &mac,
        &[192, 0, 2, 7],
        &own,
        &[192, 0, 2, 1],
    ];
    s.take(arp.concat());
    let sent = s.sent();
    assert_eq!(sent.len(), 400);
    for (frame, number) in sent.iter().zip(0..400_u32) {
        assert_eq!(frame.bytes[42..46], number.to_be_bytes());
    }
    s.check_slots();
}
