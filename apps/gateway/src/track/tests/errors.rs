//! ICMP: queries, and errors with what they quote.

use linerate_stack::icmp::{Error4, Error6, error4, error6};
use linerate_testkit::frame::{self, V4, V6};
use linerate_wire::flow::{FlowKey, FlowKey4};
use linerate_wire::{parse, protocol, tcp};

use super::*;
use crate::track::{Query, Quote};

const A: &str = "10.0.0.1";
const B: &str = "192.0.2.1";
const A6: &str = "2001:db8::1";
const B6: &str = "2001:db8::2";

fn tcp4(src_port: u16, dst_port: u16, seq: u32) -> Vec<u8> {
    let mut segment = tcp::header(src_port, dst_port, seq, 0, flag::ACK).to_vec();
    segment.extend([0; 100]);
    V4::new(A, B, protocol::TCP).packet(&segment)
}

fn framed(packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    frame::ethernet([2; 6], [4; 6], ethertype, packet)
}

/// A router's error about this packet.
fn about(packet: &[u8]) -> Vec<u8> {
    let mut out = [0; 1500];
    let len = match packet[0] >> 4 {
        4 => error4(
            packet,
            Error4::PortUnreachable,
            "9.9.9.9".parse().unwrap(),
            &mut out,
        ),
        _ => {
            let error = Error6::PacketTooBig { mtu: 1400 };
            error6(packet, error, "2001:db8::9".parse().unwrap(), &mut out)
        }
    };
    framed(&out[..len.expect("an error answers it")])
}

fn quote(frame: &[u8]) -> Result<Quote, Reason> {
    Quote::read(frame, &parse(frame).unwrap())
}

/// What the upper layer of a frame is.
fn upper(frame: &[u8]) -> Result<Upper, Reason> {
    let headers = parse(frame).unwrap();
    let is_v6 = headers.ethertype == linerate_wire::EtherType::IPV6;
    Upper::read(
        is_v6,
        headers.protocol.unwrap(),
        &frame[headers.l4.unwrap()..headers.end],
    )
}

#[test]
fn rfc_5508_req_1_a_query_and_its_answer_have_mirrored_keys() {
    let ask = framed(&V4::new(A, B, protocol::ICMP).packet(&frame::echo(77, 1, b"x")));
    let mut reply = framed(&V4::new(B, A, protocol::ICMP).packet(&frame::echo(77, 1, b"x")));
    reply[34] = 0;
    let key = |frame: &[u8]| {
        let Ok(Upper::Query(query)) = upper(frame) else {
            panic!("a query");
        };
        let Some(FlowKey::V4(key)) = parse(frame).unwrap().flow_key(frame) else {
            panic!("IPv4");
        };
        (query.asks, query.key4(key))
    };
    let (asks, asked) = key(&ask);
    let (answers, answered) = key(&reply);
    assert!(asks && !answers);
    assert_eq!(asked.reversed(), answered);
    assert_eq!((asked.src_port(), asked.dst_port()), (77, 8));
    // A query of the other host with this identifier is another flow.
    let other = framed(&V4::new(B, A, protocol::ICMP).packet(&frame::echo(77, 1, b"x")));
    assert_ne!(key(&other).1, answered);

    let six = V6::new(A6, B6, protocol::ICMPV6);
    let ask = framed(&six.packet(&frame::echo6(&six.pseudo(), 78, 1, b"x")));
    let expected = Query {
        ident: 78,
        kind: 128,
        asks: true,
    };
    assert_eq!(upper(&ask), Ok(Upper::Query(expected)));
    assert_eq!(expected.ports(), (78, 128));
}

#[test]
fn rfc_792_and_rfc_4443_each_type_is_a_query_an_answer_an_error_or_dropped() {
    let read = |v6, kind| {
        let number = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
        Upper::read(v6, number, &[kind, 0, 0, 0, 0, 7, 0, 0])
    };
    let mut seen = [0; 4];
    for (v6, kind) in (0..=255).flat_map(|kind| [(false, kind), (true, kind)]) {
        let expected = match (v6, kind) {
            (false, 8 | 13 | 15 | 17) | (true, 128) => 0,
            (false, 0 | 14 | 16 | 18) | (true, 129) => 1,
            (false, 3 | 11 | 12) | (true, 1..=4) => 2,
            _ => 3,
        };
        let is = match read(v6, kind) {
            Ok(Upper::Query(query)) => usize::from(!query.asks),
            Ok(Upper::Error) => 2,
            other => {
                assert_eq!(other, Err(Reason::IcmpType));
                3
            }
        };
        assert_eq!(is, expected, "{v6} {kind}");
        seen[is] += 1;
    }
    assert_eq!(seen, [5, 5, 7, 495]);
    let short = Upper::read(false, protocol::ICMP, &[8, 0, 0, 0, 0, 0, 0]);
    assert_eq!(short, Err(Reason::IcmpHeader));
    // The other version's is a protocol as any.
    assert_eq!(Upper::read(true, protocol::ICMP, &[]), Ok(Upper::Other));
    assert_eq!(Upper::read(false, protocol::ICMPV6, &[]), Ok(Upper::Other));
}

#[test]
fn rfc_5508_req_4_an_error_belongs_to_the_flow_of_what_it_quotes() {
    let error = about(&tcp4(1000, 80, 150));
    assert_eq!(upper(&error), Ok(Upper::Error));
    let read = quote(&error).unwrap();
    // As an answer to what it quotes.
    let key = FlowKey4::new([192, 0, 2, 1], [10, 0, 0, 1], 80, 1000, protocol::TCP);
    assert_eq!(read.key, FlowKey::V4(key));
    let udp = V6::new(A6, B6, protocol::UDP);
    let error = about(&udp.packet(&frame::udp(&udp.pseudo(), 53, 4000, b"hello")));
    let FlowKey::V6(key) = quote(&error).unwrap().key else {
        panic!("IPv6");
    };
    assert_eq!(
        key.to_string(),
        "[2001:db8::2]:4000 > [2001:db8::1]:53 proto 17"
    );
    let ask = V4::new(A, B, protocol::ICMP).packet(&frame::echo(77, 1, b"x"));
    // An answer of the asked host.
    let key = FlowKey4::new([192, 0, 2, 1], [10, 0, 0, 1], 8, 77, protocol::ICMP);
    assert_eq!(quote(&about(&ask)).unwrap().key, FlowKey::V4(key));
}

#[test]
fn rfc_5927_4_1_a_quoted_number_is_on_its_way() {
    let mut flow = Flow::established();
    flow.passes(F, data(101, 501, 100), State::Established);
    flow.passes(F, data(201, 501, 100), State::Established);
    flow.passes(R, ack(501, 201), State::Established);
    let check = |flow: &Flow, seq| {
        let error = about(&tcp4(1000, 80, seq));
        quote(&error).unwrap().check(&flow.tcp, R)
    };
    for seq in [201, 250, 300] {
        assert_eq!(check(&flow, seq), Ok(()));
    }
    for seq in [0, 101, 200, 301, 0x8000_0000] {
        assert_eq!(check(&flow, seq), Err(Reason::QuoteSequence), "{seq}");
    }
    // A SYN that cannot be delivered.
    let flow = Flow::opened(syn(100));
    assert_eq!(check(&flow, 100), Ok(()));
    assert_eq!(check(&flow, 101), Err(Reason::QuoteSequence));
    // The other side has sent nothing.
    let error = about(&tcp4(1000, 80, 100));
    let checked = quote(&error).unwrap().check(&flow.tcp, F);
    assert_eq!(checked, Err(Reason::QuoteSequence));
    // A SYN in a connection, which has passed: it and nothing beside it.
    let mut flow = Flow::established();
    assert_eq!(check(&flow, 9000), Err(Reason::QuoteSequence));
    flow.passes_unchanged(F, syn(9000));
    assert_eq!(check(&flow, 9000), Ok(()));
    for seq in [8999, 9001] {
        assert_eq!(check(&flow, seq), Err(Reason::QuoteSequence), "{seq}");
    }
    let error = about(&tcp4(80, 1000, 9000));
    let checked = quote(&error).unwrap().check(&flow.tcp, F);
    assert_eq!(checked, Err(Reason::QuoteSequence));
    flow.passes(R, ack(501, 101), State::Established);
    assert_eq!(check(&flow, 9000), Err(Reason::QuoteSequence));
    // UDP has no numbers.
    let packet = V4::new(A, B, protocol::UDP).packet(&frame::udp(&[0; 8], 53, 4000, b"hello"));
    assert_eq!(
        quote(&about(&packet)).unwrap().check(&Tcp::default(), R),
        Ok(())
    );
}

#[test]
fn rfc_5508_req_3_an_error_with_a_wrong_checksum_is_dropped() {
    for packet in [tcp4(1000, 80, 150), {
        let udp = V6::new(A6, B6, protocol::UDP);
        udp.packet(&frame::udp(&udp.pseudo(), 53, 4000, b"hello"))
    }] {
        let mut error = about(&packet);
        assert!(quote(&error).is_ok());
        *error.last_mut().unwrap() ^= 1;
        assert_eq!(quote(&error), Err(Reason::QuoteChecksum));
    }
}

#[test]
fn rfc_5508_req_3_a_the_quoted_header_has_a_right_checksum_and_the_rest_is_not_looked_at() {
    let quotes = |place: usize| {
        let mut packet = tcp4(1000, 80, 150);
        packet[place] ^= 1;
        quote(&about(&packet))
    };
    // Identification and checksum of the header; the checksum of TCP.
    assert_eq!(quotes(5), Err(Reason::QuoteChecksum));
    assert_eq!(quotes(11), Err(Reason::QuoteChecksum));
    assert!(quotes(20 + 17).is_ok());
}

#[test]
fn an_error_goes_to_the_host_that_it_quotes() {
    let mut error = about(&tcp4(1000, 80, 150));
    error[14 + 19] ^= 1; // the destination of the error
    assert_eq!(quote(&error), Err(Reason::QuoteAddress));
}

#[test]
fn rfc_792_a_quote_has_8_bytes_at_least_of_what_has_ports_or_numbers() {
    let udp = V4::new(A, B, protocol::UDP).packet(&frame::udp(&[0; 8], 53, 4000, b"hello"));
    let ping = V4::new(A, B, protocol::ICMP).packet(&frame::echo(77, 1, b"x"));
    for packet in [tcp4(1000, 80, 150), udp, ping] {
        let whole = about(&packet);
        for len in 0..=28 {
            let mut error = whole[..42 + len].to_vec();
            error[16..18].copy_from_slice(&(28 + len as u16).to_be_bytes());
            error[36..38].fill(0);
            let sum = frame::checksum(&error[34..]);
            error[36..38].copy_from_slice(&sum.to_be_bytes());
            match len {
                28 => assert!(quote(&error).is_ok()),
                _ => assert_eq!(quote(&error), Err(Reason::QuoteMalformed), "{len}"),
            }
        }
    }
}

#[test]
fn rfc_792_a_first_fragment_has_the_ports_of_its_flow_and_a_later_one_none() {
    let mut packet = V4::new(A, B, protocol::UDP).packet(&frame::udp(&[0; 8], 53, 4000, b"hello"));
    packet[6] = 0x20; // more fragments
    let sum = |header: &mut [u8]| {
        header[10..12].fill(0);
        let sum = frame::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    };
    sum(&mut packet[..20]);
    let key = FlowKey4::new([192, 0, 2, 1], [10, 0, 0, 1], 4000, 53, protocol::UDP);
    let first = quote(&about(&packet));
    assert_eq!(first.map(|quote| quote.key), Ok(FlowKey::V4(key)));
    let mut error = about(&packet);
    error[42 + 7] = 9;
    sum(&mut error[42..62]);
    error[36..38].fill(0);
    let sum = frame::checksum(&error[34..]);
    error[36..38].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(quote(&error), Err(Reason::QuoteMalformed));
}

#[test]
fn rfc_1122_3_2_2_an_error_about_an_error_is_no_error() {
    let inner = about(&tcp4(1000, 80, 150));
    // Made by hand: nobody of ours sends one.
    let mut message = vec![3, 1, 0, 0, 0, 0, 0, 0];
    message.extend(&inner[14..14 + 28]);
    let sum = frame::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let error = framed(&V4::new(B, "9.9.9.9", protocol::ICMP).packet(&message));
    assert_eq!(quote(&error), Err(Reason::QuoteMalformed));
}

#[test]
fn rfc_4787_req_12_rfc_5382_req_10_rfc_5508_req_6_no_error_ends_or_refreshes_a_flow() {
    // An error only reads: its check takes the connection by a shared reference, and gives no
    // state. What else of ICMP comes in the flow of another protocol is an error without a flow.
    let mut flow = Flow::established();
    let before = flow.tcp;
    let error = about(&tcp4(1000, 80, 101));
    assert_eq!(
        quote(&error).unwrap().check(&flow.tcp, R),
        Err(Reason::QuoteSequence)
    );
    assert_eq!(
        flow.takes(R, upper(&error).unwrap()),
        Verdict::Drop(Reason::QuoteNoFlow)
    );
    assert_eq!((flow.tcp, flow.state), (before, State::Established));
}

#[test]
fn segments_are_read_once_with_their_options() {
    let mut segment = tcp::header(1, 2, 100, 200, flag::SYN | flag::ACK).to_vec();
    segment[12] = 10 << 4;
    segment[14..16].copy_from_slice(&5000_u16.to_be_bytes());
    segment.extend([
        2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 200,
    ]);
    segment.extend(b"data");
    let Ok(Upper::Tcp(read)) = Upper::read(false, protocol::TCP, &segment) else {
        panic!("a segment");
    };
    let expected = Segment {
        seq: 100,
        len: 5,
        ack: 200,
        sack: 200,
        window: 5000,
        flags: flag::SYN | flag::ACK,
        scale: 14, // RFC 7323 2.3
        mss: 1460,
        sack_permitted: true,
    };
    assert_eq!(read, expected);
    let mut with_sack = tcp::header(1, 2, 100, 200, flag::ACK).to_vec();
    with_sack[12] = 10 << 4;
    with_sack.extend([1, 1, 5, 18]);
    for edge in [300_u32, 400, 210, 250] {
        with_sack.extend(edge.to_be_bytes());
    }
    assert_eq!(Segment::read(&with_sack).unwrap().sack, 400);
    for (len, offset) in [(19, 5), (20, 4), (20, 6), (0, 5), (59, 15)] {
        let mut cut = segment.clone();
        cut.resize(60, 0);
        cut[12] = offset << 4;
        assert_eq!(
            Segment::read(&cut[..len]),
            Err(Reason::TcpHeader),
            "{len} {offset}"
        );
    }
}
