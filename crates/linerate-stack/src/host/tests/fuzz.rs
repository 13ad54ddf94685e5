//! Whatever comes, no panic and no lost slot.

use super::*;
use proptest::prelude::*;

/// A sound frame of some kind.
fn sound(kind: usize, payload: &[u8]) -> Vec<u8> {
    let (h4, p4) = ("192.0.2.1", "192.0.2.9");
    let (h6, p6) = ("2001:db8::1", "2001:db8::9");
    let quote4 = udp_packet(h4, p4, (9, 9), payload);
    let quote6 = tcp_packet(h6, p6, (9, 9), payload);
    let ip = match kind {
        0 => udp_packet(p4, h4, (9, 9), payload),
        1 => udp_packet(p6, h6, (9, 9), payload),
        2 => tcp_packet(p4, h4, (9, 9), payload),
        3 => tcp_packet(p6, h6, (9, 9), payload),
        4 => echo_request(p4, h4, payload),
        5 => echo_request(p6, h6, payload),
        6 => {
            let message = [&[3, 4, 0, 0, 0, 0, 2, 0][..], &quote4].concat();
            packet(p4, h4, protocol::ICMP, &message, Some(2))
        }
        7 => {
            let message = [&[2, 0, 0, 0, 0, 0, 5, 20][..], &quote6].concat();
            packet(p6, h6, protocol::ICMPV6, &message, Some(2))
        }
        8 => {
            // Neighbour solicitation.
            let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
            message.extend(
                at(h6)
                    .to_string()
                    .parse::<std::net::Ipv6Addr>()
                    .unwrap()
                    .octets(),
            );
            message.extend([1, 1, 2, 0, 0, 0, 0, 0x99]);
            let mut ip = packet(p6, h6, protocol::ICMPV6, &message, Some(2));
            ip[7] = 255;
            ip
        }
        9 => {
            let mut arp = ethernet::header(MacAddr::BROADCAST, PEER, EtherType::ARP).to_vec();
            arp.extend([0, 1, 8, 0, 6, 4, 0, 1]);
            arp.extend(PEER.0);
            arp.extend([192, 0, 2, 9, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
            return arp;
        }
        10 => {
            let mut ip = udp_packet(p6, h6, (9, 9), payload);
            let next = ip[6];
            ip[6] = protocol::FRAGMENT;
            let len = (ip.len() - 40 + 8) as u16;
            ip[4..6].copy_from_slice(&len.to_be_bytes());
            ip.splice(40..40, [next, 0, 0, 1, 0, 0, 0, 7]);
            ip
        }
        _ => {
            let mut ip = udp_packet(p4, h4, (9, 9), payload);
            ip[6] = 0x20;
            ip[10..12].fill(0);
            let sum = checksum::checksum(&ip[..20]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ip
        }
    };
    framed(OWN, &ip)
}

fn run(frames: Vec<Frame>) {
    let mut s = Station::new(OWN, &["192.0.2.1/24", "2001:db8::1/64"]);
    let (id, ping) = (
        s.bind_port(9),
        s.ping.open(&mut s.host, Some(0x1234)).unwrap(),
    );
    s.udp
        .connect(&mut s.host, id, socket("192.0.2.9:9"))
        .unwrap();
    for frames in frames.chunks(16) {
        let mut left = s.take_frames(frames);
        for (packet, arrived) in left.iter().zip(s.inbound.all()) {
            assert_eq!(arrived.protocol, protocol::TCP);
            assert_eq!(arrived.l4(packet).len(), arrived.l4_len as usize);
        }
        s.host
            .drop_unclaimed(&mut left, &mut s.inbound, s.now_ns, &mut s.out);
        assert!(left.is_empty());
        while let Some(datagram) = s.udp.recv(id).unwrap() {
            assert_eq!(datagram.payload().len(), datagram.len);
            s.out.consume_one(datagram.packet);
        }
        while let Some(reply) = s.ping.recv(ping).unwrap() {
            assert_eq!(reply.payload().len(), reply.len);
            s.out.consume_one(reply.packet);
        }
        s.now_ns += SECOND;
        s.sent();
        s.check_slots();
    }
    s.now_ns += 100 * SECOND;
    s.receive(&mut Burst::new());
    s.host.shutdown(&mut s.out);
    s.sent();
    assert_eq!(s.host.held(), 0);
    s.check_slots();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_frames(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..40),
    ) {
        run(frames.into_iter().map(Frame::new).collect());
    }

    #[test]
    fn sound_frames_with_changed_bytes(
        frames in prop::collection::vec(
            (
                0_usize..12,
                prop::collection::vec(any::<u8>(), 0..64),
                prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
                any::<prop::sample::Index>(),
                any::<u16>(),
            ),
            1..64,
        ),
    ) {
        let frames = frames.into_iter().map(|(kind, payload, changes, cut, flags)| {
            let mut bytes = sound(kind, &payload);
            for (place, value) in changes {
                let at = place.index(bytes.len());
                bytes[at] = value;
            }
            if flags & 7 == 0 {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            let mut frame = Frame::new(bytes);
            if flags & 0x38 == 0 {
                frame.offload = Offload::CSUM_PARTIAL;
            }
            if flags & 0x1c0 == 0 {
                frame.offload = frame.offload | Offload::GSO_UDP;
                frame.gso_size = flags >> 9;
            }
            frame
        });
        run(frames.collect());
    }
}
