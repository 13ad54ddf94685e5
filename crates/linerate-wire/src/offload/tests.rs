//! Checksums and segments against etherparse.

use super::*;
use crate::{EtherType, MacAddr, Malformed, bytes::be16, ipv4::Ipv4, ipv6::Ipv6, tcp::flag, vlan};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use std::vec::Vec;

/// A frame with correct checksums. TCP carries all flags that segmentation must place.
fn frame(v6: bool, tcp: bool, tags: usize, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let ip = match v6 {
        false => builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        true => builder.ipv6([0xfd; 16], [0xfe; 16], 64),
    };
    let mut frame = Vec::new();
    if tcp {
        let step = ip
            .tcp(1000, 2000, u32::MAX - 3000, 8192)
            .ack(9)
            .psh()
            .fin()
            .cwr();
        step.options_raw(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8])
            .unwrap()
            .write(&mut frame, payload)
            .unwrap();
    } else {
        ip.udp(1000, 2000).write(&mut frame, payload).unwrap();
    }
    for n in 0..tags {
        frame.splice(0..0, [0; vlan::TAG_LEN]);
        assert!(vlan::insert(&mut frame, EtherType::VLAN, n as u16));
    }
    frame
}

/// Replaces the layer-4 checksum by the pseudo-header sum, as Linux leaves it.
fn make_partial(frame: &mut [u8]) -> (u16, u16) {
    let headers = parse(frame).unwrap();
    let (l3, l4) = (headers.l3, headers.l4.unwrap());
    let (protocol, len) = (headers.protocol.unwrap(), headers.end - l4);
    let address = |at: usize, len: usize| frame[l3 + at..l3 + at + len].to_vec();
    let pseudo = match headers.ethertype {
        EtherType::IPV4 => checksum::sum(
            &[
                address(12, 8),
                std::vec![0, protocol, (len >> 8) as u8, len as u8],
            ]
            .concat(),
        ),
        _ => checksum::sum(
            &[
                address(8, 32),
                std::vec![0, 0, (len >> 8) as u8, len as u8, 0, 0, 0, protocol],
            ]
            .concat(),
        ),
    };
    let offset = if protocol == protocol::TCP { 16 } else { 6 };
    put16(frame, l4 + offset, pseudo);
    (l4 as u16, offset as u16)
}

/// Asserts that each length and checksum is what etherparse computes; gives the layer-4 slice.
fn assert_valid<'a>(frame: &'a [u8]) -> TransportSlice<'a> {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let transport = sliced.transport.unwrap();
    match (sliced.net.unwrap(), &transport) {
        (NetSlice::Ipv4(ip), transport) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            match transport {
                TransportSlice::Tcp(tcp) => assert_eq!(
                    tcp.calc_checksum_ipv4(header.source, header.destination)
                        .unwrap(),
                    tcp.checksum()
                ),
                TransportSlice::Udp(udp) => assert_eq!(
                    udp.to_header()
                        .calc_checksum_ipv4(&header, udp.payload())
                        .unwrap(),
                    udp.checksum()
                ),
                _ => unreachable!(),
            }
        }
        (NetSlice::Ipv6(ip), transport) => {
            let header = ip.header().to_header();
            match transport {
                TransportSlice::Tcp(tcp) => assert_eq!(
                    tcp.calc_checksum_ipv6(header.source, header.destination)
                        .unwrap(),
                    tcp.checksum()
                ),
                TransportSlice::Udp(udp) => assert_eq!(
                    udp.to_header()
                        .calc_checksum_ipv6(&header, udp.payload())
                        .unwrap(),
                    udp.checksum()
                ),
                _ => unreachable!(),
            }
        }
        _ => unreachable!(),
    }
    transport
}

fn split(frame: &[u8], gso_size: u16) -> Vec<Vec<u8>> {
    let mut segments = Segments::new(frame, gso_size).unwrap();
    let (count, mut buffer) = (segments.remaining(), std::vec![0xee; segments.max_len()]);
    let mut out = Vec::new();
    while let Some(len) = segments.write_next(&mut buffer) {
        out.push(buffer[..len].to_vec());
    }
    assert_eq!((out.len(), segments.remaining()), (count, 0));
    out
}

#[test]
fn flags_and_sequence_numbers_stand_where_they_belong() {
    let whole = frame(false, true, 1, &[7; 2500]);
    let segments = split(&whole, 1000);
    let expected = [(1000, flag::CWR), (1000, 0), (500, flag::FIN | flag::PSH)];
    for (i, (segment, (len, flags))) in segments.iter().zip(expected).enumerate() {
        let TransportSlice::Tcp(tcp) = assert_valid(segment) else {
            panic!("not TCP")
        };
        assert_eq!(tcp.payload().len(), len);
        assert_eq!(
            tcp.sequence_number(),
            (u32::MAX - 3000).wrapping_add(1000 * i as u32)
        );
        assert_eq!(segment[14 + 4 + 20 + 13], flags | flag::ACK);
        assert_eq!(
            segment[18 + 4..18 + 6],
            (i as u16).to_be_bytes(),
            "identification"
        );
    }
    assert_eq!(segments.len(), 3);
}

#[test]
fn what_cannot_be_split_is_refused() {
    let tcp = frame(false, true, 0, &[7; 100]);
    assert_eq!(
        Segments::new(&tcp, 0).unwrap_err(),
        Malformed::NotSegmentable
    );
    let mut fragment = tcp.clone();
    fragment[20] = 0x20;
    assert_eq!(
        Segments::new(&fragment, 10).unwrap_err(),
        Malformed::NotSegmentable
    );
    let mut icmp = tcp.clone();
    icmp[23] = protocol::ICMP;
    assert_eq!(
        Segments::new(&icmp, 10).unwrap_err(),
        Malformed::NotSegmentable
    );
    let mut arp = [0; 60];
    assert!(crate::set_macs(
        &mut arp,
        MacAddr::BROADCAST,
        MacAddr::local(1)
    ));
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(
        Segments::new(&arp, 10).unwrap_err(),
        Malformed::NotSegmentable
    );
}

#[test]
fn a_short_buffer_skips_nothing() {
    let whole = frame(true, true, 0, &[7; 100]);
    let mut segments = Segments::new(&whole, 60).unwrap();
    let mut buffer = [0; 200];
    assert_eq!(segments.write_next(&mut buffer[..100]), None);
    assert_eq!(segments.remaining(), 2);
    assert_eq!(segments.write_next(&mut buffer), Some(segments.max_len()));
    assert_eq!(
        segments.write_next(&mut buffer),
        Some(segments.max_len() - 20)
    );
    assert_eq!(segments.write_next(&mut buffer), None);
}

#[test]
fn segments_of_65535_bytes_of_ip_come_out_whole() {
    let payload: Vec<u8> = (0..65535 - 20 - 32).map(|i| (i * 7) as u8).collect();
    let segments = split(&frame(false, true, 0, &payload), 1448);
    assert_eq!(segments.len(), 46);
    assert!(segments.iter().all(|s| s.len() <= 1514));
}

#[test]
fn offsets_beyond_the_frame_are_refused() {
    let mut bytes = [1; 20];
    assert!(!complete_partial(&mut bytes, 21, 0));
    assert!(!complete_partial(&mut bytes, 4, 15));
    assert!(!complete_partial(&mut bytes, u16::MAX, u16::MAX));
    assert_eq!(bytes, [1; 20]);
    assert!(complete_partial(&mut bytes, 4, 14));
}

/// Sets the layer-4 checksum to what our pseudo-header sum would be, right or wrong.
fn assert_not_taken(mut bytes: Vec<u8>, offset: usize, pseudo: u16) {
    let l4 = parse(&bytes).unwrap().l4.unwrap();
    put16(&mut bytes, l4 + offset, pseudo);
    assert_eq!(looks_partial(&bytes), None);
}

#[test]
fn udp_shorter_than_its_packet_is_not_taken_for_partial() {
    let mut bytes = frame(false, false, 0, &[7; 10]);
    put16(&mut bytes, 34 + 4, 12);
    let pseudo = Ipv4::new_checked(&bytes[14..]).unwrap().pseudo_sum();
    assert_not_taken(bytes, 6, pseudo);
}

#[test]
fn source_routed_ipv6_is_left_alone() {
    let mut bytes = frame(true, false, 0, &[7; 100]);
    bytes.splice(54..54, [protocol::UDP, 0, 4, 1, 0, 0, 0, 0]); // one segment left
    bytes[20] = protocol::ROUTING;
    put16(&mut bytes, 18, 8 + 108);
    assert_eq!(
        Segments::new(&bytes, 50).unwrap_err(),
        Malformed::NotSegmentable
    );
    let ip = Ipv6::new_checked(&bytes[14..]).unwrap();
    let pseudo = ip.pseudo_sum(&ip.upper_layer().unwrap());
    assert_not_taken(bytes, 6, pseudo);
}

#[test]
fn a_finished_checksum_that_looks_partial_survives() {
    // Search the payload word that makes the finished checksum equal the pseudo-header sum.
    let mut bytes = frame(false, false, 0, &[0; 2]);
    let found = (0..=u16::MAX).any(|word| {
        bytes = frame(false, false, 0, &word.to_be_bytes());
        looks_partial(&bytes).is_some()
    });
    assert!(found);
    let before = bytes.clone();
    let (start, offset) = looks_partial(&bytes).unwrap();
    assert!(complete_partial(&mut bytes, start, offset));
    assert_eq!(bytes, before);
}

proptest! {
    #[test]
    fn partial_frames_are_found_and_finished(v6: bool, tcp: bool, tags in 0usize..3,
        payload: Vec<u8>) {
        let finished = frame(v6, tcp, tags, &payload);
        let mut bytes = finished.clone();
        let field = make_partial(&mut bytes);
        prop_assert_eq!(looks_partial(&bytes), Some(field));
        prop_assert!(complete_partial(&mut bytes, field.0, field.1));
        // A TCP checksum of zero comes out as its other form, all ones.
        let at = usize::from(field.0 + field.1);
        if be16(&finished, at) != 0 {
            prop_assert_eq!(bytes, finished);
        }
    }

    #[test]
    fn segments_reassemble_and_verify(
        v6: bool, tcp: bool, partial: bool, tags in 0usize..3, gso_size in 1u16..2000,
        payload in prop::collection::vec(any::<u8>(), 0..6000), padding in 0usize..8,
    ) {
        let gso_size = gso_size.max((payload.len() / 100) as u16);
        let mut whole = frame(v6, tcp, tags, &payload);
        if partial {
            make_partial(&mut whole);
        }
        whole.extend(std::vec![0xee; padding]);
        let mut reassembled = Vec::new();
        for segment in split(&whole, gso_size) {
            let body = match assert_valid(&segment) {
                TransportSlice::Tcp(tcp) => tcp.payload().to_vec(),
                TransportSlice::Udp(udp) => udp.payload().to_vec(),
                _ => unreachable!(),
            };
            prop_assert!(body.len() <= usize::from(gso_size));
            reassembled.extend(body);
        }
        prop_assert_eq!(reassembled, payload);
    }

    #[test]
    fn never_panics(v6: bool, tcp: bool, at in 0usize..120, byte: u8, gso_size: u16) {
        let mut bytes = frame(v6, tcp, 1, &[0; 40]);
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Some((start, offset)) = looks_partial(&bytes) {
            prop_assert!(complete_partial(&mut bytes, start, offset));
        }
        if let Ok(mut segments) = Segments::new(&bytes, gso_size) {
            while segments.write_next(&mut [0; 256]).is_some() {}
        }
    }
}
