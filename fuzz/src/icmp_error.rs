//! Any IP packet: the errors and resets that answer it are well formed, and are not answered in
//! turn.

use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_stack::icmp::{
    Error4, Error6, MAX_ERROR4_LEN, MAX_ERROR6_LEN, echo4, echo6, error4, error6, redirect6,
};
use linerate_stack::tcp::{MAX_RESET_LEN, Refusal, refuse};
use linerate_wire::icmp::Icmp;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::ndp;
use linerate_wire::tcp::Tcp;

const OURS4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OURS6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

pub(crate) fn check(packet: &[u8]) {
    let mut out = [0; 1500];
    let gateway = Ipv4Addr::new(192, 0, 2, 2);
    for error in [
        Error4::TtlExceeded,
        Error4::FragmentationNeeded { mtu: 1400 },
        Error4::Redirect { gateway },
    ] {
        if let Some(len) = error4(packet, error, OURS4, &mut out) {
            let ip = Ipv4::new_checked(&out[..len]).expect("errors are well formed");
            assert!(len <= MAX_ERROR4_LEN && ip.total_len() == len && ip.verify());
            assert!(Icmp::new_checked(ip.payload()).is_ok_and(|icmp| icmp.verify(0)));
            assert!(packet.starts_with(&out[28..len]));
            let copy = out;
            assert_eq!(error4(&copy[..len], error, OURS4, &mut out), None);
        }
    }
    for error in [
        Error6::HopLimitExceeded,
        Error6::PacketTooBig { mtu: 1400 },
        Error6::UnknownOption { pointer: 42 },
    ] {
        if let Some(len) = error6(packet, error, OURS6, &mut out) {
            let ip = Ipv6::new_checked(&out[..len]).expect("errors are well formed");
            let upper = ip.upper_layer().expect("it is ICMPv6 alone");
            let pseudo = ip.pseudo_sum(&upper);
            assert!(len <= MAX_ERROR6_LEN && ip.total_len() == len);
            assert!(Icmp::new_checked(ip.payload()).is_ok_and(|icmp| icmp.verify(pseudo)));
            assert!(packet.starts_with(&out[48..len]));
            let copy = out;
            assert_eq!(error6(&copy[..len], error, OURS6, &mut out), None);
        }
    }
    if let Some(len) = redirect6(packet, OURS6, None, OURS6, &mut out) {
        assert!(len <= MAX_ERROR6_LEN);
        let accepted = ndp::accept(&out[..len]).expect("redirects are valid");
        assert_eq!(accepted.message.kind(), ndp::MessageKind::Redirect);
    }
    if let Refusal::Reset(reset) = refuse(packet, true) {
        let len = reset.write(&mut out).expect("there is room");
        assert!(len <= MAX_RESET_LEN);
        let is_right = |segment: &[u8], pseudo| {
            Tcp::new_checked(segment)
                .is_ok_and(|tcp| tcp.verify(pseudo) && tcp.payload().is_empty())
        };
        match Ipv4::new_checked(&out[..len]) {
            Ok(ip) => assert!(ip.verify() && is_right(ip.payload(), ip.pseudo_sum())),
            Err(_) => {
                let ip = Ipv6::new_checked(&out[..len]).expect("resets are well formed");
                let upper = ip.upper_layer().expect("it is TCP alone");
                assert!(is_right(ip.payload(), ip.pseudo_sum(&upper)));
            }
        }
        assert_eq!(refuse(&out[..len], false), Refusal::Silence);
    }
    let mut copy = packet.to_vec();
    if echo4(&mut copy) {
        let ip = Ipv4::new_checked(&copy[..]).expect("replies are well formed");
        assert!(ip.verify() && Icmp::new_checked(ip.payload()).is_ok_and(|icmp| icmp.verify(0)));
    } else if !echo6(&mut copy) {
        assert_eq!(copy, packet);
    }
}
