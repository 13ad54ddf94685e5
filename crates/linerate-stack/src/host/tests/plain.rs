//! The short ways in and out do what the long ones do.

use linerate_wire::{FlowKey4, ethernet::HEADER_LEN as L2};
use proptest::prelude::*;

use super::*;

const HOST: &str = "192.0.2.1";
const OTHER: &str = "192.0.2.9";

fn station() -> Station {
    Station::new(OWN, &["192.0.2.1/24"]).knows(&[OTHER])
}

/// A frame as it came in, by both ways.
fn by_both(frame: &Frame) {
    let mut s = station();
    let mut packet = s.out.cache.copy_of(&frame.bytes).unwrap();
    packet.set_port(0);
    packet.meta_mut().offload = frame.offload;
    let short = s.host.plain_segment(&packet);
    s.out.cache.free_one(packet);
    let mut left = s.take_frames(std::slice::from_ref(frame));
    if let Some((key, arrived)) = short {
        assert_eq!(s.inbound.all(), [arrived]);
        assert_eq!(s.inbound.keys4(), [key]);
    }
    s.out.cache.free(&mut left);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_the_short_way_takes_in_the_long_one_takes_as_well(
        payload in prop::collection::vec(any::<u8>(), 0..80),
        padding in 0_usize..8,
        // The front, where the headers are, and those bits that make nearly no difference.
        flips in prop::collection::vec((0_usize..60, any::<u8>()), 0..3),
        offload in prop::sample::select(vec![
            Offload::NONE,
            Offload::CSUM_VALID,
            Offload::CSUM_PARTIAL,
            Offload::VLAN,
        ]),
        mends in any::<bool>(),
    ) {
        let mut bytes = framed(OWN, &tcp_packet(OTHER, HOST, (1000, 80), &payload));
        bytes.extend(vec![0xee; padding]);
        for (at, bits) in flips {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bits;
            }
        }
        if mends {
            // So that other checks are met than that of the header's checksum.
            let ip = &mut bytes[L2..L2 + 20];
            ip[10..12].fill(0);
            let sum = checksum::checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        by_both(&Frame { offload, ..Frame::new(bytes) });
    }
}

#[test]
fn a_plain_segment_takes_the_short_way() {
    let s = station();
    let mut cache = PoolCache::new(&s.pools);
    for payload in [0, 1, 64, 1448] {
        let ip = tcp_packet(OTHER, HOST, (1000, 80), &vec![7; payload]);
        let mut packet = cache.copy_of(&framed(OWN, &ip)).unwrap();
        packet.set_port(0);
        let (key, arrived) = s.host.plain_segment(&packet).unwrap();
        assert_eq!((key.src_port(), key.dst_port()), (1000, 80));
        assert_eq!(arrived.l4_len as usize, 20 + payload);
        packet.data_mut()[L2 + 20 + 3] ^= 1;
        assert!(s.host.plain_segment(&packet).is_none(), "a wrong checksum");
        cache.free_one(packet);
    }
}

#[test]
fn a_frame_is_the_same_by_the_short_way_out() {
    let mut s = station();
    let Ok((mut path, _)) = s.host.path(None, at(OTHER)) else {
        panic!("it is on the link");
    };
    for (payload, dscp, ecn) in [(0_usize, 0, 0), (1, 0, 2), (64, 46, 0), (1440, 63, 2)] {
        let (tos, ttl) = (dscp << 2 | ecn, 64 + payload as u8);
        let fields = IpFields::v4(dscp, ttl);
        let ip = tcp_packet(HOST, OTHER, (80, 1000), &vec![9; payload]);
        let segment = &ip[20..];
        let packet = s.out.cache.copy_of(segment).unwrap();
        let ends = Ends::new(at(HOST), at(OTHER)).unwrap();
        let header = fields.header(ends, ecn, Checksum::At(16));
        s.out.made(1);
        let now_ns = s.now_ns;
        s.host
            .transmit(&mut path, packet, &header, now_ns, &mut s.out)
            .unwrap();
        // The first packet has found out the neighbour.
        assert!(s.host.sends_plain(path, segment.len()));
        let mut packet = s.out.cache.copy_of(segment).unwrap();
        packet.prepend(BELOW).unwrap();
        let key = FlowKey4::new([192, 0, 2, 9], [192, 0, 2, 1], 1000, 80, protocol::TCP);
        s.out.made(1);
        s.host
            .send_plain(path, packet, &key, (fields, ecn), &mut s.out);
        let sent = s.sent();
        assert_eq!(sent[0].bytes, sent[1].bytes);
        assert_eq!((sent[0].bytes[L2 + 1], sent[0].bytes[L2 + 8]), (tos, ttl));
        check_sums(&sent[0]);
    }
    assert!(
        !s.host.sends_plain(path, 1481),
        "longer than the link takes"
    );
    s.check_slots();
}
