//! Which frames are kept for who steers packets: those that begin or end a connection of ours.

use linerate_wire::ethernet::HEADER_LEN as L2;
use linerate_wire::tcp::flag;

use super::*;

/// A TCP segment with these flags.
fn segment(src: &str, dst: &str, flags: u8) -> Vec<u8> {
    let mut ip = tcp_packet(src, dst, (1000, 80), &[]);
    let header_len = if at(src).is_ipv4() { 20 } else { 40 };
    ip[header_len + 13] = flags;
    ip
}

/// Sends a segment to `dst` as it is, as one that passes through; what leaves at once, and what is
/// kept.
fn sent_and_kept(s: &mut Station, ip: &[u8], dst: &str) -> (usize, usize) {
    let packet = s.out.cache.copy_of(&framed(OWN, ip)).unwrap();
    s.out.made(1);
    let (path, _) = s.host.path(None, at(dst)).unwrap();
    let sent = s
        .host
        .send_frame(path, packet, at(dst), s.now_ns, &mut s.out);
    sent.unwrap();
    (s.sent().len(), kept(s))
}

/// Frees what is kept; how much it was.
fn kept(s: &mut Station) -> usize {
    let kept: Vec<_> = s.host.diverted().collect();
    let count = kept.len();
    for (port, packet) in kept {
        assert_eq!(port, 0);
        s.out.consume_one(packet);
    }
    count
}

#[test]
fn only_what_begins_or_ends_a_connection_of_ours_is_kept() {
    let own = ["192.0.2.1/24", "2001:db8::1/64"];
    for (ours, users, to) in [
        ("192.0.2.1", "100.64.0.7", "192.0.2.9"),
        ("2001:db8::1", "2001:db8:64::7", "2001:db8::9"),
    ] {
        let mut s = Station::new(OWN, &own).knows(&[to]);
        s.host.divert(8, &mut s.out);
        for flags in [flag::SYN, flag::FIN | flag::ACK, flag::SYN | flag::ACK] {
            let from_us = segment(ours, to, flags);
            assert_eq!(sent_and_kept(&mut s, &from_us, to), (0, 1), "{ours}");
            // A user's segment passes through a gateway: nobody here has its connection.
            let from_user = segment(users, to, flags);
            assert_eq!(sent_and_kept(&mut s, &from_user, to), (1, 0), "{users}");
        }
        let middle = segment(ours, to, flag::ACK);
        assert_eq!(sent_and_kept(&mut s, &middle, to), (1, 0));
        s.check_slots();
    }
}

#[test]
fn a_segment_that_passes_through_and_waits_for_its_neighbour_leaves_too() {
    let to = "192.0.2.9";
    let mut s = Station::new(OWN, &["192.0.2.1/24"]).knows(&[]);
    s.host.divert(8, &mut s.out);
    let (from_us, from_user) = (
        segment("192.0.2.1", to, flag::SYN),
        segment("100.64.0.7", to, flag::SYN),
    );
    // The first asks for the neighbour; both wait.
    assert_eq!(sent_and_kept(&mut s, &from_us, to), (1, 0));
    assert_eq!(sent_and_kept(&mut s, &from_user, to), (0, 0));
    let Station { host, out, id, .. } = &mut s;
    assert!(host.add_neighbour(*id, at(to), PEER, out));
    let sent = s.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0].bytes[L2..], from_user[..]);
    assert_eq!(kept(&mut s), 1);
    s.check_slots();
}

#[test]
fn what_there_is_no_room_to_keep_is_dropped_and_counted() {
    let to = "192.0.2.9";
    let mut s = Station::new(OWN, &["192.0.2.1/24"]).knows(&[to]);
    s.host.divert(2, &mut s.out);
    let from_us = segment("192.0.2.1", to, flag::SYN);
    for _ in 0..5 {
        let packet = s.out.cache.copy_of(&framed(OWN, &from_us)).unwrap();
        s.out.made(1);
        let (path, _) = s.host.path(None, at(to)).unwrap();
        let sent = s.host.send_frame(path, packet, at(to), 0, &mut s.out);
        sent.unwrap();
    }
    assert_eq!((kept(&mut s), s.drops("divert_full")), (2, 3));
    s.check_slots();
}
