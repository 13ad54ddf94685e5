//! Floods: memory stays bounded, and good connections go on.

use linerate_wire::tcp::{Tcp, flag};
use linerate_wire::{EtherType, checksum, ethernet, ipv4, protocol};

use super::*;
use crate::tcp::segment::{Header, SynOptions};

/// A frame of a segment from a host that does not exist to the second end.
fn forged(number: u32, port: u16, header: &Header, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = ([10, 1, (number >> 8) as u8, number as u8], [192, 0, 2, 2]);
    let mut segment = vec![0; header.len()];
    header.write(port, 80, &mut segment);
    segment.extend(payload);
    let len = segment.len() as u16;
    let pseudo = checksum::pseudo_v4(src, dst, protocol::TCP, len);
    Tcp::new_checked(&mut segment[..])
        .unwrap()
        .fill_checksum(pseudo);
    let mut frame =
        ethernet::header(MacAddr::local(2), MacAddr::local(1), EtherType::IPV4).to_vec();
    frame.extend(ipv4::header(
        0,
        64,
        protocol::TCP,
        src.into(),
        dst.into(),
        len,
    ));
    frame.extend(segment);
    frame
}

fn syn(number: u32, port: u16) -> Vec<u8> {
    let header = Header {
        seq: number.wrapping_mul(77),
        flags: flag::SYN,
        window: 1000,
        timestamps: Some((5, 0)),
        syn: Some(SynOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            fast_open: None,
        }),
        ..Header::default()
    };
    forged(number, port, &header, &[])
}

fn flooded() -> (Pair, ListenerId) {
    let mut pair = Pair::new();
    let now_ns = pair.now_ns;
    let listen = Listen {
        half_open: 16,
        ..Listen::on(80)
    };
    let listener = pair.ends[1].io(now_ns).listen(listen).unwrap();
    let route = crate::host::Route::by(
        ("0.0.0.0".parse().unwrap(), 0),
        [192, 0, 2, 1].into(),
        crate::host::InterfaceId::LOOPBACK,
    );
    let id = pair.ends[1].stack.host().interface_of(0).unwrap();
    let route = crate::host::Route {
        interface: id,
        ..route
    };
    pair.ends[1].stack.host().add_route(route).unwrap();
    // The neighbour is known before the flood begins.
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).close(client);
    pair.ends[1].io(now_ns).close(server);
    pair.calm();
    (pair, listener)
}

#[test]
fn rfc_4987_a_flood_of_syns_is_answered_by_cookies_and_good_ones_get_in() {
    let (mut pair, listener) = flooded();
    let now_ns = pair.now_ns;
    let frames: Vec<_> = (0..2000).map(|number| syn(number, 1000)).collect();
    pair.ends[1].receive(&frames, now_ns);
    assert_eq!(pair.ends[1].stack.connections(), 16);
    let stats = *pair.ends[1].stack.stats();
    assert_eq!(stats.cookies_sent, 2000 - 16);
    pair.ends[1].line.lock().unwrap().clear();
    // One that answers its cookie has a connection with all that it asked for.
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    let info = pair.ends[1].io(now_ns).info(server).unwrap();
    assert!(info.sack && info.timestamps);
    assert_eq!(info.scales, (7, 7));
    assert_eq!(pair.ends[1].stack.stats().cookies_good, 1);
    pair.ends[0].io(now_ns).write(client, &[1; 50_000]).unwrap();
    pair.calm();
    pair.pass(S);
    let now_ns = pair.now_ns;
    assert_eq!(pair.ends[1].io(now_ns).readable(server), 50_000);
    // Half-open ones go when nobody answers: five retransmissions, 63 s.
    pair.pass(130 * S);
    assert_eq!(pair.ends[1].stack.connections(), 1);
    assert_eq!(pair.ends[1].stack.shared.records.used(), 0);
}

/// RFC 6191: a SYN of a tuple in TIME-WAIT is no forged one's, however many of those come with it.
#[test]
fn who_comes_back_to_a_lingering_tuple_gets_in_beside_a_flood() {
    let (mut pair, listener) = flooded();
    pair.pass(130 * S);
    let (client, server) = pair.open(listener, false, 80);
    let now_ns = pair.now_ns;
    let (local, ..) = (pair.ends[0].io(now_ns).connections().next()).expect("one is open");
    // The server closes first, so that it is the one to linger.
    pair.ends[1].io(now_ns).close(server);
    pair.calm();
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).close(client);
    pair.calm();
    assert_eq!(pair.ends[1].stack.lingering(), 1);
    pair.pass(2 * S);
    let now_ns = pair.now_ns;
    let before = pair.ends[1].stack.stats().cookies_sent;
    let frames: Vec<_> = (0..200).map(|number| syn(number, 1000)).collect();
    pair.ends[1].receive(&frames, now_ns);
    let cookies = pair.ends[1].stack.stats().cookies_sent - before;
    assert_eq!(cookies, 200 - 16);
    pair.ends[1].line.lock().unwrap().clear();
    let (mut io, to) = (pair.ends[0].io(now_ns), Pair::at(1, false, 80));
    io.connect(Some(local), to).unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    assert!(pair.ends[1].io(now_ns).accept(listener).is_some());
    let stats = pair.ends[1].stack.stats();
    assert_eq!(
        (stats.cookies_sent - before, stats.cookies_good),
        (cookies, 0)
    );
    assert_eq!(pair.ends[1].stack.lingering(), 0);
    pair.ends[1].check_slots();
}

#[test]
fn guessed_cookies_open_nothing() {
    let (mut pair, listener) = flooded();
    let now_ns = pair.now_ns;
    let frames: Vec<_> = (0..20).map(|number| syn(number, 1000)).collect();
    pair.ends[1].receive(&frames, now_ns);
    let acks: Vec<_> = (0..20_000_u32)
        .map(|number| {
            let header = Header {
                seq: 1,
                ack: number.wrapping_mul(0x9e37_79b9),
                flags: flag::ACK,
                window: 100,
                timestamps: Some((6, 1000)),
                ..Header::default()
            };
            forged(number, 2000, &header, b"x")
        })
        .collect();
    pair.ends[1].receive(&acks, now_ns);
    let stats = pair.ends[1].stack.stats();
    assert_eq!((stats.cookies_good, stats.cookies_bad), (0, 20_000));
    assert!(pair.ends[1].io(now_ns).accept(listener).is_none());
    pair.ends[1].check_slots();
}

#[test]
fn segments_without_a_connection_are_answered_and_forgotten() {
    let (mut pair, _) = flooded();
    let now_ns = pair.now_ns;
    for flags in [
        flag::ACK,
        flag::FIN,
        flag::RST,
        flag::FIN | flag::ACK,
        0,
        0xff,
    ] {
        let header = Header {
            seq: 5,
            ack: 6,
            flags,
            ..Header::default()
        };
        let frames: Vec<_> = (0..500).map(|n| forged(n, 9, &header, &[0; 10])).collect();
        pair.ends[1].receive(&frames, now_ns);
        let answers = std::mem::take(&mut *pair.ends[1].line.lock().unwrap());
        let expected = if flags & flag::RST != 0 { 0 } else { 500 };
        assert_eq!(answers.len(), expected, "{flags:#x}");
        assert!(
            answers
                .iter()
                .all(|answer| answer[14 + 20 + 13] & flag::RST != 0)
        );
    }
    assert_eq!(pair.ends[1].stack.connections(), 0);
    pair.ends[1].check_slots();
}

#[test]
fn a_full_stack_refuses_and_recovers() {
    let config = StackConfig {
        connections: 8,
        ..small()
    };
    let mut pair = Pair::with(&small(), &config);
    let now_ns = pair.now_ns;
    let listener = pair.ends[1].io(now_ns).listen(Listen::on(80)).unwrap();
    let mut opened = Vec::new();
    for _ in 0..8 {
        opened.push(pair.open(listener, false, 80));
    }
    let now_ns = pair.now_ns;
    let ninth = pair.ends[0]
        .io(now_ns)
        .connect(None, Pair::at(1, false, 80))
        .unwrap();
    pair.calm();
    let now_ns = pair.now_ns;
    assert!(pair.ends[1].io(now_ns).accept(listener).is_none());
    // Counted: the SYN, or the ACK of its cookie, and one of our own.
    let counted = pair.ends[1].stack.stats().no_room;
    assert!(counted > 0);
    let ours = pair.ends[1]
        .io(now_ns)
        .connect(None, Pair::at(0, false, 80));
    assert!(matches!(ours, Err(ConnectError::NoRoom)));
    assert_eq!(pair.ends[1].stack.stats().no_room, counted + 1);
    let (client, server) = opened.pop().unwrap();
    pair.ends[0].io(now_ns).abort(client);
    pair.ends[1].io(now_ns).close(server);
    pair.calm();
    assert_eq!(pair.ends[1].stack.connections(), 7);
    // Its cookie was answered and refused; a new one gets in.
    let now_ns = pair.now_ns;
    pair.ends[0].io(now_ns).close(ninth);
    pair.open(listener, false, 80);
    assert_eq!(pair.ends[1].stack.connections(), 8);
}
