//! Lengths in NAT64: what may be fragmented is, by the other version's rules (RFC 7915 4, 5.1).

use linerate_wire::ipv4::Ipv4;

use super::nat64::{HOST, POOL, SERVER, translating};
use super::*;

/// A gateway that puts fragments together, as interfaces in zones do.
fn gate() -> Gate {
    let mut lab = Lab::new();
    for interface in &mut lab.settings.interfaces {
        interface.reassemble = true;
    }
    Gate::with(lab, &translating())
}

/// A datagram of so many bytes from the host to port 53 of the server.
fn asks(len: usize) -> Frame {
    let mut asks = Frame {
        dst: SERVER,
        payload: udp(len),
        ..datagrams(true).0
    };
    let bytes = asks.bytes();
    let ip = Ipv6::new_checked(&bytes[14..]).unwrap();
    let pseudo = ip.pseudo_sum(&ip.upper_layer().unwrap());
    let sum = !checksum::add(checksum::sum(&asks.payload), pseudo);
    asks.payload[6..8].copy_from_slice(&sum.to_be_bytes());
    asks
}

/// What the server answers to a port, of so many bytes, which may be fragmented.
fn answers(port: u16, len: usize) -> Frame {
    let mut answer = answer_to(POOL, 0);
    answer.payload = udp(len);
    answer.payload[..2].copy_from_slice(&53_u16.to_be_bytes());
    answer.payload[2..4].copy_from_slice(&port.to_be_bytes());
    answer
}

/// The fragments that a datagram of IPv4 is cut to behind so many bytes each.
fn cut4(whole: &Frame, at: usize) -> Vec<Vec<u8>> {
    let parts: Vec<&[u8]> = whole.payload.chunks(at).collect();
    let part = |(number, bytes): (usize, &&[u8])| {
        let more = if number + 1 == parts.len() { 0 } else { 0x2000 };
        Frame {
            dst_mac: WAN_MAC,
            fragment: more | (number * at / 8) as u16,
            payload: bytes.to_vec(),
            ..whole.clone()
        }
    };
    let parts = parts.iter().enumerate().map(part);
    parts.map(|part| part.bytes()).collect()
}

/// The same of IPv6.
fn cut6(whole: &Frame, at: usize) -> Vec<Vec<u8>> {
    let parts: Vec<&[u8]> = whole.payload.chunks(at).collect();
    let part = |(number, bytes): (usize, &&[u8])| {
        let more = u16::from(number + 1 != parts.len());
        let [a, b] = ((number * at) as u16 | more).to_be_bytes();
        Frame {
            dst_mac: LAN_MAC,
            protocol: protocol::FRAGMENT,
            options: vec![whole.protocol, 0, a, b, 0, 0, 0xab, 0xcd],
            payload: bytes.to_vec(),
            ..whole.clone()
        }
    };
    let parts = parts.iter().enumerate().map(part);
    parts.map(|part| part.bytes()).collect()
}

/// What fragments of IPv6 carry that have this identification, come in order, and are as long as
/// RFC 7915 4 has them.
#[track_caller]
fn joined6(left: &[Left], ident: u32) -> Vec<u8> {
    let (mut whole, count) = (Vec::new(), left.len());
    for (number, left) in left.iter().enumerate() {
        let ip = Ipv6::new_checked(&left.frame[14..]).unwrap();
        let bytes = &left.frame[14..14 + ip.total_len()];
        assert!(bytes.len() <= 1280, "{}", bytes.len());
        assert_eq!(
            (left.port, bytes[6], bytes[7]),
            (INSIDE, protocol::FRAGMENT, 63)
        );
        assert_eq!(bytes[40..42], [protocol::UDP, 0]);
        let place = u16::from_be_bytes([bytes[42], bytes[43]]);
        assert_eq!(usize::from(place & !7), whole.len());
        whole.extend(&bytes[48..]);
        assert_eq!(place & 1 != 0, number + 1 != count);
        assert_eq!(bytes[44..48], ident.to_be_bytes());
    }
    whole
}

/// A UDP message is what its sender sent, but for the ports, and has a right checksum.
#[track_caller]
fn is_of(message: &[u8], sent: &Frame, (src, dst): (IpAddr, IpAddr)) {
    assert_eq!(message[8..], sent.payload[8..], "what it carries");
    let len = message.len() as u32;
    let pseudo = match (src, dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            checksum::pseudo_v6(src.octets(), dst.octets(), protocol::UDP, len)
        }
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let addresses = [src.octets(), dst.octets()].concat();
            let last = [0, protocol::UDP, message[4], message[5]];
            checksum::sum(&[&addresses[..], &last].concat())
        }
        _ => panic!("of one family"),
    };
    assert_eq!(checksum::add(pseudo, checksum::sum(message)), 0xffff);
}

/// The addresses of the server and the host, as IPv6 has them.
fn to_host() -> (IpAddr, IpAddr) {
    (SERVER.parse().unwrap(), HOST.parse().unwrap())
}

/// The outside port of the host.
fn port(gate: &mut Gate) -> u16 {
    let sent = gate.passes(INSIDE, &asks(18)).unwrap();
    ends(&sent).0.1
}

#[test]
fn rfc_7915_4_what_may_be_fragmented_leaves_in_1280_bytes() {
    let mut gate = gate();
    let port = port(&mut gate);
    // 1280 bytes of IPv6: as it is, without a fragment header (RFC 7915 4.1).
    let sent = gate.passes(OUTSIDE, &answers(port, 1232)).unwrap();
    assert_eq!((sent.len(), sent[20]), (14 + 1280, protocol::UDP));
    for len in [1233, 1400, 1472] {
        let answer = answers(port, len);
        let left = gate.sends(OUTSIDE, &answer);
        assert_eq!(left.len(), 2, "{len}: {:?}", gate.lab.drops());
        // RFC 7915 4.1: the low-order bits are those of IPv4.
        is_of(&joined6(&left, 0x1234), &answer, to_host());
    }
    // What may not be fragmented is one packet, or answered.
    let whole = Frame {
        fragment: 0x4000,
        ..answers(port, 1452)
    };
    let sent = gate.passes(OUTSIDE, &whole).unwrap();
    assert_eq!((sent.len(), sent[20]), (14 + 1500, protocol::UDP));
    let long = Frame {
        fragment: 0x4000,
        ..answers(port, 1453)
    };
    let left = gate.sends(OUTSIDE, &long);
    assert_eq!((left.len(), left[0].port), (1, OUTSIDE));
    assert_eq!(left[0].frame[34..36], [3, 4], "fragmentation needed");
    assert_eq!(left[0].frame[40..42], 1480_u16.to_be_bytes());
}

#[test]
fn rfc_7915_4_options_of_any_length_make_no_difference() {
    for words in [1, 5, 10] {
        let mut gate = gate();
        let port = port(&mut gate);
        let answer = Frame {
            options: vec![1; 4 * words],
            ..answers(port, 1400)
        };
        let left = gate.sends(OUTSIDE, &answer);
        assert_eq!(left.len(), 2, "{words}: {:?}", gate.lab.drops());
        is_of(&joined6(&left, 0x1234), &answer, to_host());
        // An error of the gateway's is about IPv4, as long as its header may be.
        let late = Frame { ttl: 1, ..answer };
        let left = gate.sends(OUTSIDE, &late);
        assert_eq!((left.len(), left[0].port), (1, OUTSIDE), "{words}");
        assert_eq!(left[0].frame[12..14], [8, 0]);
        assert_eq!(left[0].frame[34], 11, "time exceeded");
        let len = 20 + 4 * words;
        assert_eq!(left[0].frame[42..42 + len], late.bytes()[14..14 + len]);
    }
}

#[test]
fn rfc_7915_4_what_came_in_fragments_leaves_in_others() {
    let mut gate = gate();
    let port = port(&mut gate);
    let answer = answers(port, 4000);
    let left = gate.lab.run(&mut gate.fast, OUTSIDE, &cut4(&answer, 1480));
    assert_eq!(left.len(), 4, "{:?}", gate.lab.drops());
    is_of(&joined6(&left, 0x1234), &answer, to_host());
}

#[test]
fn rfc_7915_5_1_1_what_was_fragmented_in_ipv6_may_be_in_ipv4() {
    let mut gate = gate();
    let asks = asks(4000);
    let left = gate.lab.run(&mut gate.fast, INSIDE, &cut6(&asks, 1232));
    assert_eq!(left.len(), 3, "{:?}", gate.lab.drops());
    let (mut whole, mut idents) = (Vec::new(), Vec::new());
    for left in &left {
        let ip = Ipv4::new_checked(&left.frame[14..]).unwrap();
        assert!(ip.verify() && !ip.dont_fragment() && ip.total_len() <= 1500);
        assert_eq!((left.port, ip.fragment_offset()), (OUTSIDE, whole.len()));
        whole.extend(ip.payload());
        idents.push([left.frame[18], left.frame[19]]);
    }
    idents.dedup();
    assert_eq!(idents.len(), 1);
    let ends = [POOL, "192.0.2.7"].map(|text| text.parse().unwrap());
    is_of(&whole, &asks, (ends[0], ends[1]));
    // One packet that is as long as a link takes has no such leave (RFC 7915 5.1).
    let sent = gate.passes(INSIDE, &self::asks(1400)).unwrap();
    assert!(Ipv4::new_checked(&sent[14..]).unwrap().dont_fragment());
}
