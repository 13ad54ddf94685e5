//! Resets byte by byte, checked by an oracle, and each rule that forbids one.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::TcpHeader;
use proptest::prelude::*;

use super::*;

const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DST: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const SRC6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
const DST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);

/// A segment from port 4660 to 22 with options, without a checksum yet.
fn segment(flags: u8, seq: u32, ack: u32, data: usize) -> Vec<u8> {
    let mut segment = tcp::header(4660, 22, seq, ack, flags).to_vec();
    segment[12] = 0x60;
    segment.extend([2, 4, 5, 0xb4]);
    segment.extend(vec![0xab; data]);
    segment
}

fn packet4(mut segment: Vec<u8>) -> Vec<u8> {
    let len = segment.len() as u16;
    let pseudo = checksum::pseudo_v4(SRC.octets(), DST.octets(), protocol::TCP, len);
    Tcp::new_checked(&mut segment[..])
        .unwrap()
        .fill_checksum(pseudo);
    let mut packet = ipv4::header(0, 9, protocol::TCP, SRC, DST, len).to_vec();
    packet.extend(segment);
    packet
}

/// Behind extension headers, of which the first is `next`.
fn packet6(mut segment: Vec<u8>, next: u8, headers: &[u8]) -> Vec<u8> {
    let len = segment.len() as u16;
    let pseudo = checksum::pseudo_v6(SRC6.octets(), DST6.octets(), protocol::TCP, len.into());
    Tcp::new_checked(&mut segment[..])
        .unwrap()
        .fill_checksum(pseudo);
    let len = len + headers.len() as u16;
    let mut packet = ipv6::header(next, 9, SRC6, DST6, len).to_vec();
    packet.extend(headers);
    packet.extend(segment);
    packet
}

/// The packet with some bytes changed, and its IPv4 header checksum right.
fn with4(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    Ipv4::new_checked(&mut packet[..]).unwrap().fill_checksum();
    packet
}

fn reset(packet: &[u8]) -> Vec<u8> {
    let Refusal::Reset(reset) = refuse(packet, false) else {
        panic!("{:?}", refuse(packet, false));
    };
    let mut out = [0xee; MAX_RESET_LEN + 1];
    let len = reset.write(&mut out).unwrap();
    assert_eq!(reset.write(&mut [0; MAX_RESET_LEN][..len - 1]), None);
    out[..len].to_vec()
}

#[test]
fn rfc_9293_3_10_7_1_what_acknowledges_nothing_is_acknowledged_byte_by_byte() {
    let out = reset(&packet4(segment(flag::SYN, u32::MAX, 0, 0)));
    assert_eq!(
        out[..20],
        ipv4::header(0, 64, protocol::TCP, DST, SRC, 20),
        "with the destination's address"
    );
    // Ports, SEQ 0, ACK of the SYN, 20 bytes, RST and ACK, no window.
    assert_eq!(
        out[20..34],
        [0, 22, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x14]
    );
    assert_eq!((&out[34..36], &out[38..]), (&[0, 0][..], &[0, 0][..]));
    let (flags, seq) = (flag::SYN | flag::FIN, 1000);
    let out = reset(&packet4(segment(flags, seq, 77, 5)));
    assert_eq!(out[28..32], 1007_u32.to_be_bytes(), "data, SYN and FIN");
}

#[test]
fn rfc_9293_3_10_7_1_what_acknowledges_something_is_answered_there() {
    for flags in [
        flag::ACK,
        flag::SYN | flag::ACK,
        flag::FIN | flag::ACK | flag::PSH,
    ] {
        let out = reset(&packet4(segment(flags, 5, 0x89ab_cdef, 9)));
        assert_eq!(out[24..34], [0x89, 0xab, 0xcd, 0xef, 0, 0, 0, 0, 0x50, 4]);
    }
}

#[test]
fn rfc_9293_3_10_7_1_a_reset_is_not_answered() {
    for flags in [flag::RST, flag::RST | flag::ACK, flag::RST | flag::SYN] {
        let packet = packet4(segment(flags, 1, 2, 0));
        assert_eq!(refuse(&packet, false), Refusal::Silence);
        let packet = packet6(segment(flags, 1, 2, 0), protocol::TCP, &[]);
        assert_eq!(refuse(&packet, false), Refusal::Silence);
    }
    let out = reset(&packet4(segment(flag::SYN, 1, 0, 0)));
    assert_eq!(refuse(&out, false), Refusal::Silence, "not our own either");
}

#[test]
fn rfc_9293_3_1_segments_with_wrong_checksums_get_no_reset() {
    for at in [20 + 16, 20 + 24] {
        let mut packet = packet4(segment(flag::SYN, 1, 0, 4));
        packet[at] ^= 1;
        assert_eq!(refuse(&packet, false), Refusal::Silence);
        assert!(matches!(refuse(&packet, true), Refusal::Reset(_)));
    }
}

#[test]
fn fragments_and_other_protocols_are_not_tcps_to_refuse() {
    let syn = packet4(segment(flag::SYN, 1, 0, 8));
    for fragment in [[0x20, 0], [0x20, 3], [0, 3]] {
        assert_eq!(
            refuse(&with4(syn.clone(), 6, &fragment), false),
            Refusal::NotTcp
        );
    }
    assert_eq!(
        refuse(&with4(syn.clone(), 9, &[17]), false),
        Refusal::NotTcp
    );
    assert_eq!(refuse(&[], false), Refusal::NotTcp);
    // Less than a header.
    let short = with4(syn[..39].to_vec(), 2, &[0, 39]);
    assert_eq!(refuse(&short, true), Refusal::NotTcp);
    for (next, header) in [
        (44, [protocol::TCP, 0, 0, 1, 0, 0, 0, 9]), // the first of several
        (43, [protocol::TCP, 0, 4, 1, 0, 0, 0, 0]), // on its way elsewhere
    ] {
        let packet = packet6(segment(flag::SYN, 1, 0, 0), next, &header);
        assert_eq!(refuse(&packet, true), Refusal::NotTcp);
    }
}

#[test]
fn rfc_1122_3_2_1_3_only_unicast_from_a_single_host_is_answered() {
    let syn = packet4(segment(flag::SYN, 1, 0, 0));
    for (at, address) in [
        (12, [0; 4]),
        (12, [127, 0, 0, 1]),
        (12, [224, 0, 0, 1]),
        (12, [255; 4]),
        (16, [224, 0, 0, 5]),
        (16, [255; 4]),
    ] {
        let packet = with4(syn.clone(), at, &address);
        assert_eq!(refuse(&packet, true), Refusal::Silence, "{address:?}");
    }
    for (at, address) in [(8, "::"), (8, "::1"), (8, "ff02::1"), (24, "ff02::1")] {
        let mut packet = packet6(segment(flag::SYN, 1, 0, 0), protocol::TCP, &[]);
        let octets = address.parse::<Ipv6Addr>().unwrap().octets();
        packet[at..at + 16].copy_from_slice(&octets);
        assert_eq!(refuse(&packet, true), Refusal::Silence, "{address}");
    }
}

#[test]
fn what_is_behind_the_packet_is_no_data_of_the_segment() {
    let mut packet = packet4(segment(flag::SYN, 100, 0, 3));
    packet.extend([0; 14]);
    assert_eq!(reset(&packet)[28..32], 104_u32.to_be_bytes());
}

#[test]
fn options_and_extension_headers_are_stepped_over() {
    let mut packet = packet4(segment(flag::SYN, 100, 0, 0));
    packet.splice(20..20, [1; 8]);
    packet[0] = 0x47;
    let total = packet.len() as u16;
    let packet = with4(packet, 2, &total.to_be_bytes());
    assert_eq!(reset(&packet)[28..32], 101_u32.to_be_bytes());
    let header = [protocol::TCP, 0, 1, 4, 0, 0, 0, 0];
    let out = reset(&packet6(segment(flag::SYN, 100, 0, 0), 60, &header));
    assert_eq!(out[..40], ipv6::header(protocol::TCP, 64, DST6, SRC6, 20));
    assert_eq!(out[48..52], 101_u32.to_be_bytes());
}

proptest! {
    #[test]
    fn resets_are_what_etherparse_reads(flags in 0_u8..64, seq: u32, ack: u32,
        data in 0_usize..100) {
        let flags = flags & !flag::RST;
        let segment = segment(flags, seq, ack, data);
        let out = reset(&packet4(segment.clone()));
        let (read, rest) = TcpHeader::from_slice(&out[20..]).unwrap();
        prop_assert!(read.rst && rest.is_empty() && (read.source_port,
            read.destination_port) == (22, 4660));
        let sum = read.calc_checksum_ipv4_raw(DST.octets(), SRC.octets(), &[]).unwrap();
        prop_assert_eq!(read.checksum, sum);
        let out = reset(&packet6(segment, protocol::TCP, &[]));
        let (read, _) = TcpHeader::from_slice(&out[40..]).unwrap();
        let sum = read.calc_checksum_ipv6_raw(DST6.octets(), SRC6.octets(), &[]).unwrap();
        prop_assert_eq!(read.checksum, sum);
        // RFC 9293 3.10.7.1: the sender of the segment accepts it.
        let has_ack = flags & flag::ACK != 0;
        let controls = u32::from(flags & flag::SYN != 0) + u32::from(flags & flag::FIN != 0);
        let end = seq.wrapping_add(data as u32 + controls);
        prop_assert_eq!(read.ack, !has_ack);
        prop_assert_eq!(read.sequence_number, if has_ack { ack } else { 0 });
        prop_assert_eq!(read.acknowledgment_number, if has_ack { 0 } else { end });
    }

    #[test]
    fn never_panics(bytes: Vec<u8>, vouched: bool) {
        if let Refusal::Reset(reset) = refuse(&bytes, vouched) {
            let _ = reset.write(&mut [0; 30]);
        }
    }
}
