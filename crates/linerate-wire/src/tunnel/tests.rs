use super::*;
use crate::{FlowKey, FlowKey4, gre, mpls::Entry, parse};
use proptest::prelude::*;
use std::{vec, vec::Vec};

/// A packet and the EtherType that names it.
type Packet = (EtherType, Vec<u8>);

fn ethernet((ethertype, packet): Packet) -> Vec<u8> {
    [&[2; 12][..], &ethertype.0.to_be_bytes(), &packet].concat()
}

fn ip(v6: bool, protocol: u8, payload: &[u8]) -> Packet {
    let len = payload.len() as u16;
    if v6 {
        let mut header = [1; 40];
        header[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, protocol, 64]);
        header[4..6].copy_from_slice(&len.to_be_bytes());
        (EtherType::IPV6, [&header, payload].concat())
    } else {
        let mut header = [1; 20];
        header[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0]);
        header[2..4].copy_from_slice(&(20 + len).to_be_bytes());
        (EtherType::IPV4, [&header, payload].concat())
    }
}

fn udp(v6: bool, port: u16, payload: &[u8]) -> Packet {
    let mut header = [0; 8];
    header[2..4].copy_from_slice(&port.to_be_bytes());
    header[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    ip(v6, protocol::UDP, &[&header, payload].concat())
}

/// 1.1.1.1:1000 > 1.1.1.1:80.
fn innermost_packet() -> Packet {
    let mut header = [0; 20];
    header[..4].copy_from_slice(&[3, 232, 0, 80]);
    header[12] = 0x50;
    ip(false, protocol::TCP, &header)
}

/// The packet in one more tunnel, and which. `how` chooses; where it cannot hold what is inside,
/// it is GRE.
fn wrap(how: u8, v6: bool, id: u32, inside: Packet) -> (TunnelKind, Option<u32>, Packet) {
    let (vni, is_ip) = (id >> 8, inside.0 != EtherType::MPLS);
    let (kind, id, packet) = match how {
        0 => {
            let payload = [&vxlan::header(vni)[..], &ethernet(inside)].concat();
            (TunnelKind::Vxlan, Some(vni), udp(v6, vxlan::PORT, &payload))
        }
        1 => {
            // A tag inside, and an option of four bytes.
            let tagged = [&[0, 5][..], &inside.0.0.to_be_bytes(), &inside.1].concat();
            let frame = ethernet((EtherType::VLAN, tagged));
            let mut header = geneve::header(vni, EtherType::TRANSPARENT_ETHERNET).to_vec();
            header[0] = 2;
            header.extend([1, 2, 3, 1, 0, 0, 0, 0]);
            let payload = [header, frame].concat();
            (
                TunnelKind::Geneve,
                Some(vni),
                udp(v6, geneve::PORT, &payload),
            )
        }
        2 => {
            let payload = [&geneve::header(vni, inside.0)[..], &inside.1].concat();
            (
                TunnelKind::Geneve,
                Some(vni),
                udp(v6, geneve::PORT, &payload),
            )
        }
        3 if is_ip => {
            let payload = [&gtpu::header(id, inside.1.len() as u16)[..], &inside.1].concat();
            (TunnelKind::Gtpu, Some(id), udp(v6, gtpu::PORT, &payload))
        }
        4 if is_ip => {
            let labels = [
                Entry::new(3, 0, false, 9).0,
                Entry::new(vni >> 4, 0, true, 9).0,
            ];
            let packet = [labels.as_flattened(), &inside.1].concat();
            (TunnelKind::Mpls, Some(vni >> 4), (EtherType::MPLS, packet))
        }
        5 if is_ip => {
            let protocol = match inside.0 {
                EtherType::IPV4 => protocol::IPV4,
                _ => protocol::IPV6,
            };
            (TunnelKind::Ip, None, ip(v6, protocol, &inside.1))
        }
        6 => {
            let header = gre::header_with_key(EtherType::TRANSPARENT_ETHERNET, id);
            let payload = [&header[..], &ethernet(inside)].concat();
            (TunnelKind::Gre, Some(id), ip(v6, protocol::GRE, &payload))
        }
        _ => {
            let payload = [&gre::header(inside.0)[..], &inside.1].concat();
            (TunnelKind::Gre, None, ip(v6, protocol::GRE, &payload))
        }
    };
    (kind, id, packet)
}

/// Every offset lies in the packet around it.
fn hold_together(frame: &[u8], found: &Tunnelled) {
    let mut around = found.outer;
    let mut whole = true;
    for tunnel in found.tunnels() {
        assert!(whole, "nothing follows what is not known");
        assert!(around.l3 <= tunnel.header && tunnel.header <= around.end);
        if let Some(inner) = tunnel.inner {
            let start = tunnel.l2.unwrap_or(tunnel.header);
            assert!(tunnel.header <= start && start <= inner.l3);
            assert!(inner.l3 <= inner.end && inner.end <= around.end);
            assert!(inner.l4.is_none_or(|l4| inner.l3 < l4 && l4 <= inner.end));
            around = inner;
        }
        whole = tunnel.inner.is_some();
    }
    assert!(around == *found.innermost() && around.end <= frame.len());
}

#[test]
fn vxlan_is_walked_to_the_inner_ports() {
    let (.., packet) = wrap(0, false, 77 << 8, innermost_packet());
    let mut frame = ethernet(packet);
    frame.extend([0; 3]); // padding
    let found = parse_tunnelled(&frame).unwrap();
    let tunnel = *found.tunnels().next().unwrap();
    assert_eq!((tunnel.kind, tunnel.id), (TunnelKind::Vxlan, Some(77)));
    assert_eq!((tunnel.header, tunnel.l2), (42, Some(50)));
    let inner = tunnel.inner.unwrap();
    assert_eq!((inner.l3, inner.l4, inner.end), (64, Some(84), 104));
    assert_eq!(found.stopped, None);
    let key = FlowKey4::new([1; 4], [1; 4], 1000, 80, protocol::TCP);
    assert_eq!(found.innermost().flow_key(&frame), Some(FlowKey::V4(key)));
}

#[test]
fn what_is_wrong_inside_leaves_the_outer_headers() {
    let (.., packet) = wrap(0, false, 0, innermost_packet());
    let mut frame = ethernet(packet);
    frame[64] = 0x55;
    let found = parse_tunnelled(&frame).unwrap();
    assert_eq!(found.outer, parse(&frame).unwrap());
    assert_eq!(found.stopped, Some(Malformed::Version(Layer::Ipv4)));
    assert_eq!((found.tunnels().count(), found.innermost().l3), (0, 14));
    frame[42] = 0;
    let reason = found.outer.tunnel(&frame);
    assert_eq!(reason, Err(Malformed::Version(Layer::Vxlan)));
    frame[14] = 0x65;
    assert_eq!(
        parse_tunnelled(&frame),
        Err(Malformed::Version(Layer::Ipv4))
    );
}

#[test]
fn nothing_is_looked_for_in_fragments() {
    for flags in [0x20, 0x01] {
        let (.., mut packet) = wrap(5, false, 0, innermost_packet());
        packet.1[6] = flags;
        let frame = ethernet(packet);
        let found = parse_tunnelled(&frame).unwrap();
        assert_eq!((found.tunnels().count(), found.stopped), (0, None));
    }
}

#[test]
fn the_inner_packet_ends_with_what_carries_it() {
    // One byte less in the datagram, GTP-U message or IP packet: the inner packet does not fit.
    let (.., mut packet) = wrap(0, false, 0, innermost_packet());
    packet.1[25] -= 1;
    let too_long = Some(Malformed::TotalLength(Layer::Ipv4));
    let stopped = |packet: Packet| parse_tunnelled(&ethernet(packet)).unwrap().stopped;
    assert_eq!(stopped(packet), too_long);
    let (.., mut packet) = wrap(3, false, 0, innermost_packet());
    packet.1[31] -= 1;
    assert_eq!(stopped(packet), too_long);
    let (.., mut packet) = wrap(5, true, 0, innermost_packet());
    packet.1[5] -= 1;
    assert_eq!(stopped(packet), too_long);
}

#[test]
fn tunnels_that_do_not_tell_have_no_inner_headers() {
    let only = |packet: Packet| {
        let frame = ethernet(packet);
        let found = parse_tunnelled(&frame).unwrap();
        hold_together(&frame, &found);
        assert_eq!(found.stopped, None);
        let tunnels: Vec<_> = found.tunnels().copied().collect();
        let [tunnel] = tunnels[..] else { panic!() };
        (tunnel.kind, tunnel.id, tunnel.inner)
    };
    let label = Entry::new(100, 0, true, 64).0;
    let pseudo_wire = [&label[..], &[0; 30]].concat();
    assert_eq!(
        only((EtherType::MPLS_UPSTREAM, pseudo_wire)),
        (TunnelKind::Mpls, Some(100), None)
    );
    let mut echo = gtpu::header(0, 0);
    echo[1] = gtpu::message::ECHO_REQUEST;
    assert_eq!(
        only(udp(true, gtpu::PORT, &echo)),
        (TunnelKind::Gtpu, Some(0), None)
    );
    let mut control = geneve::header(3, EtherType::IPV4);
    control[1] = 0x80;
    assert_eq!(
        only(udp(false, geneve::PORT, &control)),
        (TunnelKind::Geneve, Some(3), None)
    );
    // One that tells, though of no IP.
    let (kind, id, inner) = only(ip(false, protocol::GRE, &[0, 0, 0x88, 0xbe, 1, 2, 3]));
    let inner = inner.unwrap();
    assert_eq!((kind, id), (TunnelKind::Gre, None));
    assert_eq!((inner.ethertype, inner.l4), (EtherType(0x88be), None));
}

#[test]
fn the_wrong_frame_has_no_tunnel() {
    for how in 0..8 {
        let (.., packet) = wrap(how, false, 1, innermost_packet());
        let frame = ethernet(packet);
        let headers = parse(&frame).unwrap();
        for len in 0..headers.end {
            assert_eq!(headers.tunnel(&frame[..len]), Ok(None));
        }
    }
}

proptest! {
    #[test]
    fn nested_tunnels_are_walked_as_deep_as_promised(layers in prop::collection::vec((0u8..8,
        any::<bool>(), any::<u32>()), 0..6)) {
        let (mut packet, mut expected) = (innermost_packet(), vec![]);
        for (how, v6, id) in layers {
            let (kind, id, wrapped) = wrap(how, v6, id, packet);
            packet = wrapped;
            expected.insert(0, (kind, id));
        }
        let frame = ethernet(packet);
        let found = parse_tunnelled(&frame).unwrap();
        hold_together(&frame, &found);
        let tunnels: Vec<_> = found.tunnels().map(|tunnel| (tunnel.kind, tunnel.id)).collect();
        prop_assert_eq!(&tunnels[..], &expected[..expected.len().min(MAX_TUNNELS)]);
        if expected.len() <= MAX_TUNNELS {
            let key = FlowKey4::new([1; 4], [1; 4], 1000, 80, protocol::TCP);
            prop_assert_eq!(found.innermost().flow_key(&frame), Some(FlowKey::V4(key)));
            prop_assert_eq!(found.stopped, None);
        } else {
            prop_assert_eq!(found.stopped, Some(Malformed::TooDeep(Layer::Tunnel)));
        }
    }

    #[test]
    fn never_panics(layers in prop::collection::vec((0u8..8, any::<bool>(), any::<u32>()), 1..5),
        changes: [(usize, u8); 3], cut: usize) {
        let mut packet = innermost_packet();
        for (how, v6, id) in layers {
            packet = wrap(how, v6, id, packet).2;
        }
        let mut frame = ethernet(packet);
        for (at, value) in changes {
            let at = at % frame.len();
            frame[at] = value;
        }
        if let Ok(found) = parse_tunnelled(&frame) {
            hold_together(&frame, &found);
        }
        frame.truncate(cut % frame.len());
        if let Ok(found) = parse_tunnelled(&frame) {
            hold_together(&frame, &found);
        }
    }
}
