//! RFC 8200, RFC 4443, RFC 4291.

use super::super::punt::Reason;
use super::super::testing::*;
use linerate_wire::MacAddr;
use linerate_wire::icmp::Icmp;
use linerate_wire::ipv6::Ipv6;

/// Type, code and the word behind the checksum of the only frame that left, an ICMPv6 error to the
/// host.
fn error(left: &[Left]) -> (u8, u8, u32) {
    assert_eq!(left.len(), 1, "one error: {left:?}");
    assert_eq!((left[0].port, &left[0].frame[..6]), (0, &HOST_MAC.0[..]));
    let ip = Ipv6::new_checked(&left[0].frame[14..]).unwrap();
    assert_eq!(ip.src().to_string(), "2001:db8::1");
    assert_eq!(ip.dst().to_string(), "2001:db8::7");
    let upper = ip.upper_layer().unwrap();
    let icmp = Icmp::new_checked(ip.payload()).unwrap();
    assert!(icmp.verify(ip.pseudo_sum(&upper)));
    let payload = ip.payload();
    let word = u32::from_be_bytes(payload[4..8].try_into().unwrap());
    (icmp.kind(), icmp.code(), word)
}

#[test]
fn rfc8200_3_unicast_is_forwarded_with_one_hop_less() {
    let frame = Frame::new6().bytes();
    Lab::new().forwards(&frame);
}

#[test]
fn rfc8200_3_both_families_in_one_burst_keep_their_order_and_ways() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let frames: Vec<Vec<u8>> = (0..64)
        .map(|number| match number % 3 {
            0 => Frame::new6().bytes(),
            1 => Frame::new().bytes(),
            _ => Frame::to("10.2.0.1").bytes(),
        })
        .collect();
    let left = lab.run(&mut fast, 1, &frames);
    // They came by `lan`, which does not have this address.
    assert!(left.is_empty());
    let left = lab.run(&mut fast, 0, &frames);
    let by = |port| left.iter().filter(move |left| left.port == port);
    let ways: Vec<_> = by(1).map(|left| left.frame[12]).collect();
    let expected: Vec<_> = (0..64)
        .filter(|number| number % 3 != 2)
        .map(|number| if number % 3 == 0 { 0x86 } else { 8 })
        .collect();
    assert_eq!(ways, expected);
    let other = by(0).filter(|left| left.frame[23] == 17).count();
    assert_eq!(other, 21);
}

#[test]
fn rfc8200_3_the_hop_limit() {
    for ttl in [0, 1] {
        let frame = Frame {
            ttl,
            ..Frame::new6()
        };
        let left = Lab::new().refuses(&frame.bytes(), "ttl_exceeded");
        assert_eq!(error(&left), (3, 0, 0));
    }
}

#[test]
fn rfc8200_3_version_and_length() {
    let mut frame = Frame::new6().bytes();
    frame[14] = 0x50;
    Lab::new().ignores(&frame, "bad_version");
    let mut frame = Frame::new6().bytes();
    frame[18..20].copy_from_slice(&1000_u16.to_be_bytes());
    Lab::new().ignores(&frame, "bad_length");
    let mut frame = Frame::new6().bytes();
    frame.truncate(53);
    Lab::new().ignores(&frame, "bad_length");
}

#[test]
fn rfc8200_4_extension_headers_pass_unread() {
    // Hop-by-hop with an unknown option, destination options behind it.
    let frame = Frame {
        protocol: 0,
        options: vec![60, 0, 0xbe, 2, 1, 2, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0],
        ..Frame::new6()
    }
    .bytes();
    Lab::new().forwards(&frame);
    // More of them than a parser walks, and one that ends beyond the packet.
    let mut options = [60, 0, 1, 4, 0, 0, 0, 0].repeat(12);
    for options in [options.clone(), {
        options[8 + 1] = 200;
        options
    }] {
        let frame = Frame {
            protocol: 60,
            options,
            ..Frame::new6()
        }
        .bytes();
        Lab::new().forwards(&frame);
    }
}

#[test]
fn rfc5095_routing_headers_of_type_0_are_refused() {
    let options = |segments| {
        let mut header = vec![17, 2, 0, segments, 0, 0, 0, 0];
        header.extend([0x20; 16]);
        header
    };
    let frame = |segments| {
        Frame {
            protocol: 43,
            options: options(segments),
            ..Frame::new6()
        }
        .bytes()
    };
    Lab::new().ignores(&frame(1), "routing_header");
    let left = Lab::new().passes(&frame(0));
    assert_eq!(left.len(), 1, "a route at its end is none");
}

#[test]
fn rfc8200_5_large_packets_are_answered_and_not_fragmented() {
    let mut lab = Lab::new();
    lab.narrow("2001:db8:a1::/48", 1280);
    let frame = |len| {
        Frame {
            payload: udp(len),
            ..Frame::new6()
        }
        .bytes()
    };
    let left = lab.refuses(&frame(1280 - 48 + 1), "too_big");
    assert_eq!(error(&left), (2, 0, 1280));
    let left = lab.passes(&frame(1280 - 48));
    assert_eq!(left[0].port, 1);
}

#[test]
fn rfc4443_3_1_unreachable_by_its_cause() {
    for (dst, reason, said) in [
        ("2001:db8:ff::1", "no_route", Some(0)),
        ("2001:db8:a4::1", "blackhole", None),
        ("2001:db8:a5::1", "unreachable", Some(6)),
        ("2001:db8:a6::1", "prohibited", Some(1)),
    ] {
        let frame = Frame::to(dst);
        let left = Lab::new().refuses(&frame.bytes(), reason);
        match said {
            Some(code) => assert_eq!(error(&left), (1, code, 0), "{dst}"),
            None => assert!(left.is_empty(), "{dst}"),
        }
    }
}

#[test]
fn rfc4291_2_5_6_link_local_addresses_stay_on_their_link() {
    let frame = Frame::from("fe80::7");
    let left = Lab::new().refuses(&frame.bytes(), "link_local");
    // RFC 4443 3.1 code 2, to a neighbour on that link.
    let punt = left[0].punt.unwrap();
    assert_eq!((punt.reason, punt.interface), (Reason::Glean, WAN));
    let message = &left[0].frame[54..56];
    assert_eq!(message, [1, 2]);
    let frame = Frame::to("fe80::99");
    Lab::new().ignores(&frame.bytes(), "link_local");
    // Our address of this interface, not that of another one.
    for (dst, is_ours) in [("fe80::10", true), ("fe80::11", false)] {
        let frame = Frame::between("fe80::7", dst);
        match is_ours {
            true => Lab::new().punts(&frame.bytes(), Reason::Local),
            false => Lab::new().ignores(&frame.bytes(), "link_local"),
        }
    }
}

#[test]
fn rfc4291_2_5_2_and_2_5_3_unspecified_and_loopback() {
    for (src, dst, reason) in [
        ("::", "2001:db8:a1::9", "martian_source"),
        ("::1", "2001:db8:a1::9", "martian_source"),
        ("ff02::1", "2001:db8:a1::9", "martian_source"),
        ("::ffff:10.0.0.1", "2001:db8:a1::9", "martian_source"),
        ("2001:db8::7", "::1", "martian_destination"),
        ("2001:db8::7", "::", "martian_destination"),
        ("2001:db8::7", "ff01::1", "martian_destination"),
    ] {
        let frame = Frame::between(src, dst);
        Lab::new().ignores(&frame.bytes(), reason);
    }
}

#[test]
fn rfc4291_2_7_link_local_groups_are_delivered_and_others_dropped() {
    for dst in ["ff02::5", "ff02::1:ff00:1"] {
        let frame = Frame {
            dst_mac: MacAddr([0x33, 0x33, 0, 0, 0, 5]),
            src: "fe80::7",
            dst,
            ..Frame::new6()
        };
        Lab::new().punts(&frame.bytes(), Reason::Local);
    }
    let frame = Frame {
        dst_mac: MacAddr([0x33, 0x33, 0, 0, 0, 5]),
        dst: "ff0e::5",
        ..Frame::new6()
    };
    Lab::new().ignores(&frame.bytes(), "multicast");
}

#[test]
fn rfc4861_4_discovery_is_for_the_slow_worker() {
    for (kind, dst) in [
        (135, "ff02::1:ff00:1"),
        (136, "2001:db8::1"),
        (133, "ff02::2"),
    ] {
        let mut payload = vec![0; 24];
        payload[0] = kind;
        let frame = Frame {
            dst_mac: if dst.starts_with("ff") {
                MacAddr([0x33, 0x33, 0, 0, 0, 5])
            } else {
                WAN_MAC
            },
            src: "fe80::7",
            dst,
            ttl: 255,
            protocol: 58,
            payload,
            ..Frame::new6()
        };
        Lab::new().punts(&frame.bytes(), Reason::Nd);
    }
}

#[test]
fn rfc4861_8_2_redirects() {
    let mut lab = Lab::new();
    let hop = lab.hop(Lab::forward(WAN, "fe80::77"));
    lab.route(0, "2001:db8:a2::/48", hop);
    let frame = Frame::to("2001:db8:a2::1").bytes();
    let left = lab.passes(&frame);
    assert_eq!(left.len(), 2);
    let redirect = left.iter().find(|left| left.frame[20] == 58).unwrap();
    let ip = Ipv6::new_checked(&redirect.frame[14..]).unwrap();
    assert_eq!((ip.payload()[0], ip.hop_limit()), (137, 255));
    assert_eq!(ip.src().to_string(), "fe80::10");
}

#[test]
fn rfc6398_4_2_router_alert_is_forwarded() {
    let frame = Frame {
        protocol: 0,
        options: vec![17, 0, 5, 2, 0, 0, 1, 0],
        ..Frame::new6()
    }
    .bytes();
    let mut lab = Lab::new();
    lab.settings.interfaces[0].host_interface = Some(5);
    let left = lab.passes(&frame);
    let expected = forwarded(frame, ROUTER_MAC, LAN_MAC);
    assert_eq!((left[0].port, &left[0].frame), (1, &expected));
}

#[test]
fn rfc1812_5_3_8_packets_from_own_addresses_are_dropped() {
    let mut lab = Lab::new();
    for (src, dst) in [
        ("2001:db8::1", "2001:db8:a1::9"),
        ("2001:db8:1::1", "2001:db8:a1::9"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:db8:1::1", "2001:db8::1"),
        ("fe80::10", "ff02::5"),
    ] {
        let frame = Frame::between(src, dst);
        lab.ignores(&frame.bytes(), "own_source");
    }
    // RFC 4862 5.4: a duplicate of our address is detected.
    let advertisement = Frame {
        src: "2001:db8::1",
        dst: "ff02::1",
        protocol: 58,
        payload: vec![136; 24],
        ..Frame::new6()
    };
    let (left, _) = lab.one(0, &advertisement.bytes());
    assert_eq!(left[0].punt.unwrap().reason, Reason::Nd);
    // Another station's link-local address is not ours.
    let hello = Frame::between("fe80::99", "ff02::5");
    let (left, _) = lab.one(0, &hello.bytes());
    assert_eq!(left[0].punt.unwrap().reason, Reason::Local);
}

#[test]
fn unresolved_neighbours_are_left_to_the_slow_worker() {
    for (dst, reason) in [
        ("2001:db8:a3::1", Reason::Resolve),
        ("2001:db8:1::77", Reason::Glean),
    ] {
        let frame = Frame::to(dst).bytes();
        let (left, _) = Lab::new().one(0, &frame);
        let punt = left[0].punt.unwrap();
        assert_eq!((punt.reason, punt.interface), (reason, LAN));
        assert_eq!(left[0].frame[21], 63);
    }
}

#[test]
fn rfc6438_the_flow_label_distinguishes_flows() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].redirects = false;
    let mut fast = lab.fast();
    let frame = |label: u8, port: u8| {
        let mut payload = udp(18);
        payload[1] = port;
        let mut frame = Frame {
            dst: "2001:db8:a7::1",
            payload,
            ..Frame::new6()
        }
        .bytes();
        frame[17] = label;
        frame
    };
    let mut way = |label, port| lab.run(&mut fast, 0, &[frame(label, port)])[0].port;
    let of_label: Vec<u16> = (1..65).map(|label| way(label, 0)).collect();
    assert!(of_label.contains(&0) && of_label.contains(&1));
    assert!((0..64).all(|port| way(9, port) == of_label[8]));
}
