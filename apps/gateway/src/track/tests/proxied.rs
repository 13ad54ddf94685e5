//! SYN cookies: RFC 4987 3.6, from the flood to the end of the connection.

use linerate_testkit::Random;
use linerate_testkit::frame::{V4, V6};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::tcp::{self, TcpOption, options};
use linerate_wire::{checksum, protocol};

use super::*;
use crate::track::{Cookies, MAX_MADE_LEN, Made, Way};

const MOST: usize = 10;

fn tracker(pickup: Pickup) -> Tracker {
    Tracker::new(pickup, Some(Cookies::new(0x1234, 1400)))
}

/// A SYN as Linux sends it.
fn offer() -> Segment {
    Segment {
        mss: 1460,
        sack_permitted: true,
        window: 64_240,
        ..with_scale(syn(100), 7)
    }
}

fn first(tracker: &mut Tracker, segment: Segment, half_open: usize, now_ms: u64) -> First {
    let is_full = half_open >= MOST;
    tracker.first(b"a key of a flow.", &Upper::Tcp(segment), is_full, now_ms)
}

/// The cookie for a SYN.
fn cookie(tracker: &mut Tracker, syn: Segment) -> u32 {
    match first(tracker, syn, MOST, 0) {
        First::Answer(made) => made.seq,
        other => panic!("{other:?}"),
    }
}

/// A flow that began with a cookie, and the cookie. The server has not answered.
fn proxied(syn: Segment) -> (Flow, u32) {
    let mut tracker = tracker(Pickup::Strict);
    let cookie = cookie(&mut tracker, syn);
    let answer = with_window(ack(syn.seq.wrapping_add(1), cookie.wrapping_add(1)), 502);
    let First::Proxy(tcp, made) = first(&mut tracker, answer, MOST, 100) else {
        panic!("the cookie is valid");
    };
    assert_eq!((made.flags, made.seq, made.ack), (flag::SYN, syn.seq, 0));
    let flow = Flow {
        tcp,
        state: State::Proxied,
        now_ms: 100,
    };
    (flow, cookie)
}

#[test]
fn rfc_4987_3_6_no_cookies_up_to_the_limit() {
    let mut tracker = tracker(Pickup::Strict);
    let begun = first(&mut tracker, offer(), MOST - 1, 0);
    assert!(matches!(begun, First::Begin(_, State::SynSent)));
    let other = first(&mut tracker, ack(101, 7), MOST - 1, 0);
    assert_eq!(other, First::Drop(Reason::TcpNoSyn));
}

#[test]
fn rfc_4987_3_6_beyond_the_limit_a_syn_is_answered_and_no_state_is_kept() {
    let mut tracker = tracker(Pickup::Strict);
    let First::Answer(made) = first(&mut tracker, offer(), MOST, 0) else {
        panic!("a cookie");
    };
    let expected = Made {
        seq: made.seq,
        ack: 101,
        window: 0,
        flags: flag::SYN | flag::ACK,
        mss: 1400,
        scale: 7,
        sack_permitted: true,
    };
    assert_eq!(made, expected);
    let First::Answer(plain) = first(&mut tracker, syn(100), MOST, 0) else {
        panic!("a cookie");
    };
    assert_eq!((plain.scale, plain.sack_permitted), (NO_SCALE, false));
}

#[test]
fn rfc_4987_3_6_only_the_cookie_opens_a_connection() {
    let mut strict = tracker(Pickup::Strict);
    let given = cookie(&mut strict, offer());
    for (seq, wrong) in [
        (101, given),
        (101, given ^ 0x100),
        (103, given + 1),
        (99, given + 1),
    ] {
        let segment = first(&mut strict, ack(seq, wrong), MOST, 100);
        assert_eq!(segment, First::Drop(Reason::TcpCookie), "{seq} {wrong}");
    }
    // The first ACK was lost: a probe of the closed window, with data or without.
    for right in [
        data(101, given + 1, 1),
        ack(101, given + 1),
        ack(100, given + 1),
        ack(102, given + 1),
    ] {
        let segment = first(&mut strict, right, MOST, 100);
        assert!(matches!(segment, First::Proxy(..)));
    }
    let late = first(&mut strict, ack(101, given + 1), MOST, 64_000);
    assert_eq!(late, First::Drop(Reason::TcpNoSyn));
    // Who picks connections up still knows a cookie.
    let mut loose = tracker(Pickup::Loose);
    let given = cookie(&mut loose, offer());
    let known = first(&mut loose, ack(101, given + 1), 0, 100);
    assert!(matches!(known, First::Proxy(..)));
    let other = first(&mut loose, ack(101, given), 0, 100);
    assert!(matches!(other, First::Begin(_, State::PickedUp)));
}

#[test]
fn the_server_gets_what_the_client_offered() {
    let (flow, _) = proxied(offer());
    let made = flow.tcp.server_syn();
    assert_eq!((made.mss, made.scale, made.sack_permitted), (1460, 7, true));
    assert_eq!(made.window, 502 << 7);
    let (flow, _) = proxied(syn(100));
    let made = flow.tcp.server_syn();
    assert_eq!(
        (made.mss, made.scale, made.sack_permitted),
        (536, NO_SCALE, false)
    );
}

#[test]
fn the_server_s_answer_joins_both_ends() {
    let (mut flow, cookie) = proxied(offer());
    let answer = Segment {
        window: 65_160,
        ..with_scale(syn_ack(5000, 101), 9)
    };
    flow.drops(R, syn_ack(5000, 102), Reason::TcpHandshake);
    let Verdict::Answer {
        state,
        back,
        onward,
    } = flow.segment(R, answer)
    else {
        panic!("two answers");
    };
    assert_eq!(state, State::Established);
    let back = back.unwrap();
    assert_eq!((back.flags, back.seq, back.ack), (flag::ACK, 101, 5001));
    assert_eq!(back.window, 502); // the server scales by what the client offered
    let onward = onward.unwrap();
    assert_eq!(
        (onward.flags, onward.seq, onward.ack),
        (flag::ACK, cookie.wrapping_add(1), 101)
    );
    assert_eq!(onward.window, 65_160 >> 7);
}

#[test]
fn what_the_client_repeats_repeats_the_syn() {
    let (mut flow, cookie) = proxied(offer());
    let seen = cookie.wrapping_add(1);
    for again in [
        ack(101, seen),
        ack(100, seen),
        data(101, seen, 1),
        fin(101, seen),
    ] {
        let Verdict::Answer {
            state,
            back: None,
            onward: Some(made),
        } = flow.segment(F, again)
        else {
            panic!("the SYN");
        };
        assert_eq!((state, made), (State::Proxied, flow.tcp.server_syn()));
    }
    flow.drops(F, ack(101, cookie), Reason::TcpHandshake);
    flow.drops(F, ack(104, seen), Reason::TcpHandshake);
    flow.drops(F, syn(100), Reason::TcpHandshake);
    assert_eq!(flow.segment(F, syn(9000)), Verdict::Anew);
}

#[test]
fn either_end_may_refuse() {
    let made = |verdict| match verdict {
        Verdict::Answer {
            state,
            back: None,
            onward: Some(made),
        } => (state, made.flags, made.seq, made.ack),
        other => panic!("{other:?}"),
    };
    let (flow, cookie) = proxied(offer());
    let seen = cookie.wrapping_add(1);
    let refusal = segment(flag::RST | flag::ACK, 0, 101, 0);
    let told = made(flow.clone().segment(R, refusal));
    assert_eq!(told, (State::Reset, flag::RST | flag::ACK, seen, 101));
    flow.clone().drops(
        R,
        segment(flag::RST | flag::ACK, 0, 102, 0),
        Reason::TcpReset,
    );
    flow.clone().drops(R, rst(0), Reason::TcpReset);
    let told = made(flow.clone().segment(F, rst(101)));
    assert_eq!(told, (State::Reset, flag::RST, 101, 0));
    flow.clone().drops(F, rst(500), Reason::TcpReset);
    // RFC 9293 3.5.1: the server is in an old connection.
    let Verdict::Answer {
        state: State::Proxied,
        back: Some(reset),
        onward: None,
    } = flow.clone().segment(R, ack(700, 800))
    else {
        panic!("a reset");
    };
    assert_eq!((reset.flags, reset.seq), (flag::RST, 800));
}

/// The bytes of a segment with this many bytes of payload, and their checksum over no addresses.
pub(super) fn bytes(segment: &Segment, option_bytes: &[u8], payload: usize) -> Vec<u8> {
    let mut bytes = tcp::header(1, 2, segment.seq, segment.ack, segment.flags).to_vec();
    bytes[14..16].copy_from_slice(&segment.window.to_be_bytes());
    bytes[12] = ((20 + option_bytes.len()) as u8 / 4) << 4;
    bytes.extend(option_bytes);
    bytes.extend(vec![7; payload]);
    let sum = checksum::checksum(&bytes);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn numbers_and_windows_are_shifted_for_the_connection_s_life_and_checksums_stay_right() {
    let mut random = Random::new(3);
    for (client, server) in [(7, 9), (7, NO_SCALE), (NO_SCALE, 9), (NO_SCALE, NO_SCALE)] {
        let (mut flow, cookie) = proxied(with_scale(offer(), client));
        let answer = with_window(with_scale(syn_ack(5000, 101), server), 40_000);
        flow.segment(R, answer);
        assert_eq!(flow.state, State::Established);
        let (mut sent, mut got) = (101_u32, 5001_u32);
        for _ in 0..50 {
            // The client acknowledges, in its numbers, with SACK blocks at an odd place.
            let in_client = |seq: u32| seq.wrapping_sub(5000).wrapping_add(cookie);
            let window = 100 + random.below(300) as u16;
            let mut options = vec![1, 5, 10];
            options.extend(in_client(got).to_be_bytes());
            options.extend(in_client(got).to_be_bytes());
            options.push(0);
            let segment = with_window(data(sent, in_client(got), 10), window);
            let mut forward = bytes(&segment, &options, 10);
            let read = Segment::read(&forward).unwrap();
            flow.passes(F, read, State::Established);
            flow.tcp.shift(F, &mut forward, false);
            assert!(checksum::verify(&forward));
            let seen = Segment::read(&forward).unwrap();
            assert_eq!((seen.seq, seen.ack, seen.sack), (sent, got, got));
            let bytes_open = u32::from(window) << if client == NO_SCALE { 0 } else { 7 };
            let both_scale = client != NO_SCALE && server != NO_SCALE;
            let as_server = u32::from(seen.window) << if both_scale { 7 } else { 0 };
            assert_eq!(
                as_server,
                bytes_open.min(if both_scale { u32::MAX } else { 0xffff })
            );
            sent += 10;
            // The server answers, in its own.
            let window = 2000 + random.below(3000) as u16;
            let mut reverse = bytes(&with_window(data(got, sent, 20), window), &[], 20);
            let read = Segment::read(&reverse).unwrap();
            flow.passes(R, read, State::Established);
            flow.tcp.shift(R, &mut reverse, false);
            assert!(checksum::verify(&reverse));
            let seen = Segment::read(&reverse).unwrap();
            assert_eq!((seen.seq, seen.ack), (in_client(got), sent));
            let bytes_open = u32::from(window) << if both_scale { 9 } else { 0 };
            let as_client = u32::from(seen.window) << if client == NO_SCALE { 0 } else { 7 };
            // Rounded down to what the client can be told.
            let most = 0xffff << if client == NO_SCALE { 0 } else { 7 };
            assert!(as_client <= bytes_open && bytes_open.min(most) - as_client < 128);
            got += 20;
        }
        // Windows are checked in the server's numbers, and the end is seen.
        let in_client = got.wrapping_sub(5000).wrapping_add(cookie);
        flow.drops(F, data(sent, in_client + 1, 1), Reason::TcpAckUnsent);
        flow.passes(F, fin(sent, in_client), State::HalfClosed);
        flow.passes(R, fin(got, sent + 1), State::Closing);
        flow.passes(F, ack(sent + 1, in_client + 1), State::TimeWait);
    }
}

#[test]
fn rfc_5927_errors_about_shifted_segments() {
    use linerate_stack::icmp::{Error4, error4};
    let (mut flow, cookie) = proxied(offer());
    flow.segment(R, with_window(syn_ack(5000, 101), 40_000));
    flow.passes(R, data(5001, 101, 100), State::Established);
    // A router at the client's side complains about it, in the client's numbers.
    let at_client = cookie.wrapping_add(1);
    let mut segment = tcp::header(80, 1000, at_client, 101, flag::ACK).to_vec();
    segment.extend([0; 100]);
    let packet = V4::new("192.0.2.1", "10.0.0.1", protocol::TCP).packet(&segment);
    let mut out = [0; 1500];
    let error = Error4::FragmentationNeeded { mtu: 1300 };
    let len = error4(&packet, error, "9.9.9.9".parse().unwrap(), &mut out).unwrap();
    let mut frame = linerate_testkit::frame::ethernet([2; 6], [4; 6], 0x0800, &out[..len]);
    let headers = linerate_wire::parse(&frame).unwrap();
    let quote = crate::track::Quote::read(&frame, &headers).unwrap();
    assert_eq!(quote.check(&flow.tcp, F), Ok(()));
    flow.tcp
        .shift_quote(F, &mut frame, &headers, &quote.headers);
    let l4 = quote.headers.l4.unwrap();
    assert_eq!(frame[l4 + 4..l4 + 8], 5001_u32.to_be_bytes());
    assert!(checksum::verify(&frame[headers.l4.unwrap()..headers.end]));
}

#[test]
fn made_segments_have_the_addresses_of_what_caused_them() {
    let made = Made::cookie(&offer(), 77, 1400);
    let segment = tcp::header(1000, 80, 100, 0, flag::SYN);
    let v4 = V4::new("10.0.0.1", "192.0.2.1", protocol::TCP).packet(&segment);
    let mut out = [0; MAX_MADE_LEN];
    for (way, ports) in [(Way::Back, (80, 1000)), (Way::Onward, (1000, 80))] {
        let len = made.write(way, &v4, &mut out).unwrap();
        let ip = Ipv4::new_checked(&out[..len]).unwrap();
        let tcp = tcp::Tcp::new_checked(ip.payload()).unwrap();
        assert!(ip.verify() && tcp.verify(ip.pseudo_sum()));
        assert_eq!((tcp.src_port(), tcp.dst_port()), ports);
        let is_turned = ip.src().to_string() == "192.0.2.1";
        assert_eq!(is_turned, way == Way::Back);
        let expected = [
            TcpOption::MaxSegment(1400),
            TcpOption::SackPermitted,
            TcpOption::WindowScale(7),
        ];
        assert!(options(tcp.options()).eq(expected));
    }
    let v6 = V6::new("2001:db8::1", "2001:db8::2", protocol::TCP).packet(&segment);
    let len = made.write(Way::Back, &v6, &mut out).unwrap();
    assert_eq!(len, MAX_MADE_LEN);
    let ip = Ipv6::new_checked(&out[..len]).unwrap();
    let upper = ip.upper_layer().unwrap();
    let tcp = tcp::Tcp::new_checked(ip.payload()).unwrap();
    assert!(tcp.verify(ip.pseudo_sum(&upper)));
    assert_eq!(ip.src().to_string(), "2001:db8::2");
    assert_eq!((tcp.seq(), tcp.ack(), tcp.window()), (77, 101, 0));
    for room in 0..len {
        assert_eq!(made.write(Way::Back, &v6, &mut out[..room]), None);
    }
    assert_eq!(made.write(Way::Back, &v4[..30], &mut out), None);
    assert_eq!(made.write(Way::Back, &[], &mut out), None);
}
