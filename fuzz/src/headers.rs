//! Any frame: each header parser on it, then the rewrites of a forwarder.

use linerate_wire::{
    MacAddr, arp::Arp, ethernet::Ethernet, icmp::Icmp, ipv4::Ipv4, ipv6::Ipv6, offload, parse,
    set_macs, tcp::Tcp, udp::Udp, vlan,
};

pub(crate) fn check(frame: &[u8]) {
    views(frame);
    if let Ok(headers) = parse(frame) {
        assert!(headers.l3 <= headers.end && headers.end <= frame.len());
        if let Some(l4) = headers.l4 {
            assert!(headers.l3 <= l4 && l4 <= headers.end);
            views(&frame[l4..headers.end]);
        }
        assert!(headers.ports.is_none() || headers.l4.is_some());
        views(&frame[headers.l3..]);
    }
    rewrites(frame);
}

/// Every accessor of every view that accepts these bytes must return.
fn views(bytes: &[u8]) {
    let text = [
        Ethernet::new_checked(bytes).map(|v| v.to_string()),
        vlan::Vlan::new_checked(bytes).map(|v| v.to_string()),
        Arp::new_checked(bytes).map(|v| v.to_string()),
        Icmp::new_checked(bytes).map(|v| format!("{v} {:?} {}", v.payload(), v.verify(0))),
        Ipv4::new_checked(bytes)
            .map(|v| format!("{v} {:?} {:?} {}", v.options(), v.payload(), v.verify())),
        Ipv6::new_checked(bytes).map(|v| format!("{v} {:?} {:?}", v.payload(), v.upper_layer())),
        Tcp::new_checked(bytes).map(|v| format!("{v} {:?} {:?}", v.options(), v.payload())),
        Udp::new_checked(bytes).map(|v| format!("{v} {:?} {}", v.payload(), v.verify(0))),
    ];
    for answer in text {
        assert!(
            !answer
                .unwrap_or_else(|reason| reason.to_string())
                .is_empty()
        );
    }
}

fn rewrites(frame: &[u8]) {
    let mut copy = frame.to_vec();
    assert_eq!(
        set_macs(&mut copy, MacAddr::local(1), MacAddr::local(2)),
        frame.len() >= 12
    );
    if frame.len() >= 12 {
        assert_eq!(copy[12..], frame[12..]);
    }

    let mut tagged = [&[0; vlan::TAG_LEN], frame].concat();
    if vlan::insert(&mut tagged, linerate_wire::EtherType::VLAN, 5) {
        assert_eq!(vlan::remove(&mut tagged), Some(5));
        assert_eq!(tagged[vlan::TAG_LEN..], *frame);
    }

    let mut copy = frame.to_vec();
    if let Ok(mut ip) = Ipv4::new_checked(&mut copy[..]) {
        ip.fill_checksum();
        let ttl = ip.ttl();
        assert_eq!(ip.decrement_ttl(), ttl > 1);
        assert!(ip.verify());
    }

    // Finishing is idempotent.
    let end = parse(frame).map_or(frame.len(), |headers| headers.end);
    let mut once = frame[..end].to_vec();
    if let Some((start, offset)) = offload::looks_partial(&once) {
        assert!(offload::complete_partial(&mut once, start, offset));
        let mut twice = once.clone();
        if let Some((start, offset)) = offload::looks_partial(&twice) {
            assert!(offload::complete_partial(&mut twice, start, offset));
        }
        assert_eq!(twice, once);
    }
}
