//! RFC 791, RFC 1812 and what amends them.

use super::super::counters::Sent;
use super::super::punt::Reason;
use super::super::testing::*;
use crate::model::Cidr;
use crate::plane::hops::{Action, Hop};
use linerate_wire::MacAddr;
use linerate_wire::ipv4::Ipv4;

/// Type and code of the only frame that left, an ICMP error from `wan` to the host.
fn error(left: &[Left]) -> (u8, u8) {
    assert_eq!(left.len(), 1, "one error: {left:?}");
    assert_eq!(left[0].port, 0);
    let frame = &left[0].frame;
    assert_eq!(frame[..6], HOST_MAC.0);
    assert_eq!(frame[6..12], WAN_MAC.0);
    let ip = Ipv4::new_checked(&frame[14..]).unwrap();
    assert!(ip.verify() && ip.protocol() == 1);
    // RFC 1812 4.3.2.4: the address of the interface that it leaves by.
    assert_eq!(ip.src().to_string(), "192.0.2.1");
    assert_eq!(ip.dst().to_string(), "192.0.2.7");
    (ip.payload()[0], ip.payload()[1])
}

#[test]
fn rfc1812_5_2_1_2_unicast_is_forwarded_by_its_route() {
    let frame = Frame::new().bytes();
    let left = Lab::new().passes(&frame);
    let expected = Left {
        port: 1,
        frame: forwarded(frame, ROUTER_MAC, LAN_MAC),
        punt: None,
    };
    assert_eq!(left, [expected]);
}

#[test]
fn rfc1812_5_2_1_2_packets_to_own_addresses_are_delivered_locally() {
    let frame = Frame {
        dst: "192.0.2.1",
        ttl: 1, // 5.3.1: not looked at
        ..Frame::new()
    };
    Lab::new().punts(&frame.bytes(), Reason::Local);
    // Any interface may have the address.
    let frame = Frame::to("198.51.100.1");
    Lab::new().punts(&frame.bytes(), Reason::Local);
}

#[test]
fn rfc1812_5_2_2_1_shorter_than_a_header() {
    let mut frame = Frame::new().bytes();
    frame.truncate(33);
    Lab::new().ignores(&frame, "bad_length");
    frame.truncate(13);
    Lab::new().ignores(&frame, "truncated");
}

#[test]
fn rfc1812_5_2_2_2_wrong_checksum() {
    for at in [14 + 1, 14 + 10, 14 + 19] {
        let mut frame = Frame::new().bytes();
        frame[at] ^= 1;
        Lab::new().ignores(&frame, "bad_checksum");
    }
    // With options, for the scalar path.
    let mut frame = Frame {
        options: vec![1; 4],
        ..Frame::new()
    }
    .bytes();
    frame[14 + 20] ^= 2;
    Lab::new().ignores(&frame, "bad_checksum");
}

#[test]
fn rfc1812_5_2_2_3_wrong_version() {
    let mut frame = Frame::new().bytes();
    frame[14] = 0x55;
    Lab::new().ignores(&frame, "bad_version");
}

#[test]
fn rfc1812_5_2_2_4_header_shorter_than_20_bytes() {
    let mut frame = Frame::new().bytes();
    frame[14] = 0x44;
    Lab::new().ignores(&frame, "bad_header_length");
}

#[test]
fn rfc1812_5_2_2_5_total_length_below_the_header_or_beyond_the_frame() {
    for total in [19_u16, 47] {
        let mut frame = Frame::new().bytes();
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        Lab::new().ignores(&frame, "bad_length");
    }
}

#[test]
fn rfc1812_5_2_2_upper_layers_are_no_concern_of_a_router() {
    let mut frame = Frame::new().bytes();
    frame[14 + 24..14 + 26].copy_from_slice(&9999_u16.to_be_bytes()); // UDP's length
    Lab::new().forwards(&frame);
    let frame = Frame {
        protocol: 6,
        payload: vec![0; 3], // no TCP header
        ..Frame::new()
    }
    .bytes();
    Lab::new().forwards(&frame);
}

#[test]
fn rfc1812_5_2_2_padding_goes_no_further_than_its_link() {
    let mut frame = Frame::new().bytes();
    let sound = forwarded(frame.clone(), ROUTER_MAC, LAN_MAC);
    frame.extend([0xee; 40]);
    let (left, _) = Lab::new().one(0, &frame);
    assert_eq!(left[0].frame, sound);
    // The same where the neighbour has to be resolved first.
    let mut frame = Frame {
        dst: "10.3.0.1",
        ..Frame::new()
    }
    .bytes();
    frame.extend([0xee; 40]);
    let (left, _) = Lab::new().one(0, &frame);
    assert_eq!((left[0].port, left[0].frame.len()), (SLOW, sound.len()));
}

#[test]
fn rfc1812_5_2_4_1_source_routes_are_refused() {
    for kind in [131, 137] {
        let frame = Frame {
            options: vec![kind, 7, 4, 10, 2, 0, 1, 0],
            ..Frame::new()
        };
        let left = Lab::new().refuses(&frame.bytes(), "source_route");
        assert_eq!(error(&left), (3, 5));
    }
}

#[test]
fn rfc1812_5_2_4_2_the_route_is_recorded() {
    let frame = Frame {
        options: vec![7, 7, 4, 0, 0, 0, 0, 0],
        ..Frame::new()
    };
    let left = Lab::new().passes(&frame.bytes());
    let ip = Ipv4::new_checked(&left[0].frame[14..]).unwrap();
    assert!(ip.verify() && ip.ttl() == 63);
    assert_eq!(ip.options(), [7, 7, 8, 198, 51, 100, 1, 0]);
}

#[test]
fn rfc1812_4_2_2_1_other_options_pass_unchanged() {
    // A security label; an unknown option.
    for options in [vec![130, 4, 1, 2], vec![1, 0x9e, 3, 7]] {
        let frame = Frame {
            options,
            ..Frame::new()
        }
        .bytes();
        Lab::new().forwards(&frame);
    }
}

#[test]
fn rfc6398_4_2_router_alert_is_forwarded() {
    let frame = Frame {
        options: vec![148, 4, 0, 0],
        ..Frame::new()
    }
    .bytes();
    for host_interface in [None, Some(5)] {
        let mut lab = Lab::new();
        lab.settings.interfaces[0].host_interface = host_interface;
        let left = lab.passes(&frame);
        let expected = forwarded(frame.clone(), ROUTER_MAC, LAN_MAC);
        assert_eq!((left[0].port, &left[0].frame), (1, &expected));
    }
}

#[test]
fn rfc1812_5_2_4_3_the_time_is_recorded() {
    let frame = Frame {
        options: vec![68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ..Frame::new()
    };
    let left = Lab::new().passes(&frame.bytes());
    let ip = Ipv4::new_checked(&left[0].frame[14..]).unwrap();
    assert!(ip.verify());
    let [68, 12, 13, 1, 198, 51, 100, 1, a, b, c, d] = *ip.options() else {
        panic!("the address that it left by: {:?}", ip.options());
    };
    assert!(u32::from_be_bytes([a, b, c, d]) < 24 * 60 * 60 * 1000);
    // RFC 791 3.1: one that is full fifteen times over.
    let wrong = Frame {
        options: vec![68, 8, 9, 0xf0, 0, 0, 0, 0],
        ..Frame::new()
    };
    let left = Lab::new().refuses(&wrong.bytes(), "bad_options");
    assert_eq!(error(&left), (12, 0));
}

#[test]
fn rfc1812_5_3_8_packets_from_own_addresses_are_dropped() {
    let mut lab = Lab::new();
    for redirects in [true, false] {
        lab.settings.interfaces[0].redirects = redirects;
        for (src, dst) in [
            // In transit: of the interface, of another one.
            ("192.0.2.1", "10.1.0.9"),
            ("198.51.100.1", "10.1.0.9"),
            // To us, to a group of the link, to a neighbour.
            ("192.0.2.1", "192.0.2.1"),
            ("198.51.100.1", "192.0.2.1"),
            ("192.0.2.1", "224.0.0.5"),
            ("192.0.2.1", "192.0.2.77"),
        ] {
            lab.ignores(&Frame::between(src, dst).bytes(), "own_source");
        }
        // A neighbour's address is not ours.
        lab.forwards(&Frame::new().bytes());
    }
    // Among others in one burst, and where the packet is not plain.
    let mut fast = lab.fast();
    let ours = Frame::from("198.51.100.1");
    let odd = Frame {
        options: vec![1; 4],
        ..ours.clone()
    };
    let frames = [Frame::new(), ours, Frame::new(), odd].map(|frame| frame.bytes());
    assert_eq!(lab.run(&mut fast, 0, &frames).len(), 2);
    // In another VRF the address is not ours.
    lab.settings.interfaces[1].vrf = 1;
    lab.forwards(&Frame::from("198.51.100.1").bytes());
}

#[test]
fn rfc1812_4_2_2_11_broadcast_sources_are_dropped() {
    let mut lab = Lab::new();
    for src in ["192.0.2.255", "198.51.100.255"] {
        for dst in ["10.1.0.9", "192.0.2.1", "192.0.2.77", "224.0.0.5"] {
            lab.ignores(&Frame::between(src, dst).bytes(), "martian_source");
        }
    }
    // RFC 3021: a /31 has no broadcast address.
    lab.settings.interfaces[1].addresses[0].len = 31;
    lab.forwards(&Frame::from("198.51.100.255").bytes());
}

#[test]
fn our_addresses_are_found_however_many_they_are() {
    let mut lab = Lab::new();
    let more = (0..100).map(|n| format!("203.0.113.{n}/32").parse::<Cidr>().unwrap());
    lab.settings.interfaces[1].addresses.extend(more);
    lab.ignores(&Frame::from("203.0.113.99").bytes(), "own_source");
    lab.ignores(&Frame::from("192.0.2.255").bytes(), "martian_source");
    lab.forwards(&Frame::from("203.0.113.100").bytes());
}

#[test]
fn rfc1812_5_2_5_malformed_options_are_answered() {
    let frame = Frame {
        options: vec![1, 0x9e, 9, 0],
        ..Frame::new()
    };
    let left = Lab::new().refuses(&frame.bytes(), "bad_options");
    assert_eq!(error(&left), (12, 0));
    assert_eq!(left[0].frame[14 + 20 + 4], 22, "the pointer");
}

#[test]
fn rfc1812_5_2_6_what_is_too_long_is_cut() {
    let mut lab = Lab::new();
    lab.narrow("10.1.0.0/16", 100);
    let frame = Frame {
        payload: udp(192),
        ..Frame::new()
    }
    .bytes();
    let left = lab.passes(&frame);
    let mut payload: Vec<u8> = Vec::new();
    for (number, part) in left.iter().enumerate() {
        assert_eq!((part.port, &part.frame[..6]), (1, &ROUTER_MAC.0[..]));
        let ip = Ipv4::new_checked(&part.frame[14..]).unwrap();
        assert!(ip.verify() && ip.ttl() == 63 && ip.total_len() <= 100);
        assert_eq!(ip.fragment_offset(), payload.len());
        assert_eq!(ip.more_fragments(), number + 1 < left.len());
        payload.extend(ip.payload());
    }
    assert_eq!(payload, udp(192));
}

#[test]
fn rfc1191_4_an_error_for_a_packet_with_df_has_the_mtu() {
    let mut lab = Lab::new();
    lab.narrow("10.1.0.0/16", 576);
    let frame = Frame {
        payload: udp(600),
        fragment: 0x4000,
        ..Frame::new()
    };
    let left = lab.refuses(&frame.bytes(), "too_big");
    assert_eq!(error(&left), (3, 4));
    assert_eq!(left[0].frame[14 + 26..14 + 28], 576_u16.to_be_bytes());
}

#[test]
fn rfc1812_5_2_7_1_unreachable_and_prohibited_routes_answer_blackholes_do_not() {
    for (dst, reason, said) in [
        ("11.0.0.1", "no_route", Some((3, 0))),
        ("10.4.0.1", "blackhole", None),
        ("10.5.0.1", "unreachable", Some((3, 1))),
        ("10.6.0.1", "prohibited", Some((3, 13))),
    ] {
        let frame = Frame::to(dst);
        let left = Lab::new().refuses(&frame.bytes(), reason);
        match said {
            Some(said) => assert_eq!(error(&left), said, "{dst}"),
            None => assert!(left.is_empty(), "{dst}"),
        }
    }
}

#[test]
fn rfc1812_5_2_7_2_redirects_go_to_neighbours_with_a_better_first_hop() {
    let frame = Frame::between("192.0.2.9", "10.2.0.1").bytes();
    let mut lab = Lab::new();
    let to_host = lab.hop(Lab::forward(WAN, "192.0.2.7"));
    lab.route(0, "192.0.2.9/32", to_host);
    let left = lab.passes(&frame);
    assert_eq!(left.len(), 2);
    // The packet is forwarded nevertheless.
    assert!(left.contains(&Left {
        port: 0,
        frame: forwarded(frame.clone(), HOST_MAC, WAN_MAC),
        punt: None,
    }));
    let redirect = left.iter().find(|left| left.frame[23] == 1).unwrap();
    assert_eq!(redirect.frame[34..36], [5, 1]);
    assert_eq!(redirect.frame[38..42], [192, 0, 2, 7], "the better gateway");
    // No redirect where they are off, nor to a sender that is no neighbour.
    lab.settings.interfaces[0].redirects = false;
    assert_eq!(lab.one(0, &frame).0.len(), 1);
    lab.settings.interfaces[0].redirects = true;
    let frame = Frame::between("203.0.113.9", "10.2.0.1");
    assert_eq!(lab.one(0, &frame.bytes()).0.len(), 1);
}

#[test]
fn rfc1812_5_2_7_2_no_redirects_between_networks_of_one_link_nor_for_what_goes_no_further() {
    let mut lab = Lab::new();
    let addresses = &mut lab.settings.interfaces[0].addresses;
    addresses.push("203.0.113.1/24".parse().unwrap());
    let to_host = lab.hop(Lab::forward(WAN, "192.0.2.7"));
    let narrow = lab.hop(Hop {
        mtu: 68,
        ..Lab::forward(WAN, "192.0.2.7")
    });
    for host in ["192.0.2.9/32", "203.0.113.9/32"] {
        lab.route(0, host, to_host);
    }
    lab.route(0, "10.9.0.0/16", narrow);
    let frame = |src, dst| Frame {
        src,
        dst,
        ..Frame::new()
    };
    assert_eq!(
        lab.one(0, &frame("192.0.2.9", "10.2.0.1").bytes()).0.len(),
        2
    );
    // On the same link, but not on the gateway's network.
    let (left, drops) = lab.one(0, &frame("203.0.113.9", "10.2.0.1").bytes());
    assert_eq!((left.len(), drops.len()), (1, 0));
    // Too long for the link, with DF: one error, and no redirect.
    let long = Frame {
        fragment: 0x4000,
        payload: udp(100),
        ..frame("192.0.2.9", "10.9.0.1")
    };
    let (left, drops) = lab.one(0, &long.bytes());
    assert_eq!(drops, [("too_big".to_string(), 1)].into());
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].frame[34..36], [3, 4]);
}

/// Links with a small MTU: ICMP errors fit.
#[test]
fn rfc1812_4_3_2_3_errors_fit_the_link_that_they_leave_by() {
    let mut lab = Lab::new();
    let narrow = lab.hop(Hop {
        mtu: 100,
        ..Lab::forward(WAN, "192.0.2.7")
    });
    lab.route(0, "192.0.2.9/32", narrow);
    let frame = Frame {
        src: "192.0.2.9",
        ttl: 1,
        payload: udp(500),
        ..Frame::new()
    };
    let (left, _) = lab.one(0, &frame.bytes());
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].frame.len(), left[0].frame[34]), (114, 11));
    assert_eq!(left[0].frame[42..114], frame.bytes()[14..86]);
}

#[test]
fn rfc1812_5_3_1_the_time_to_live_is_counted_down() {
    for ttl in [0, 1] {
        let frame = Frame {
            ttl,
            ..Frame::new()
        };
        let left = Lab::new().refuses(&frame.bytes(), "ttl_exceeded");
        assert_eq!(error(&left), (11, 0));
        // The packet is quoted unchanged.
        let sent = frame.bytes();
        assert_eq!(left[0].frame[42..42 + 46], sent[14..60]);
    }
    let frame = Frame {
        ttl: 2,
        ..Frame::new()
    }
    .bytes();
    let (left, _) = Lab::new().one(0, &frame);
    assert_eq!(left[0].frame, forwarded(frame, ROUTER_MAC, LAN_MAC));
}

#[test]
fn rfc1812_4_3_2_7_no_errors_about_errors() {
    let mut payload = vec![3, 0, 0, 0, 0, 0, 0, 0];
    payload.extend([0; 28]);
    let frame = Frame {
        protocol: 1,
        ttl: 1,
        payload,
        ..Frame::new()
    };
    Lab::new().ignores(&frame.bytes(), "ttl_exceeded");
    // No error about later fragments, nor to an invalid source.
    let frame = Frame {
        ttl: 1,
        fragment: 5,
        ..Frame::new()
    };
    Lab::new().ignores(&frame.bytes(), "ttl_exceeded");
}

#[test]
fn rfc1812_4_3_2_8_errors_are_limited() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let frame = Frame {
        ttl: 1,
        ..Frame::new()
    }
    .bytes();
    let mut sent = 0;
    for _ in 0..10 {
        sent += lab.run(&mut fast, 0, &vec![frame.clone(); 64]).len();
    }
    // The burst that one destination gets: the clock does not advance.
    assert_eq!(sent, 10);
    let limited = fast.counters().icmp(Sent::Limited);
    assert_eq!(sent as u64 + limited, 640);
}

#[test]
fn rfc1812_4_3_2_8_packets_that_get_no_error_do_not_use_up_the_rate() {
    let mut lab = Lab::new();
    let mut fast = lab.fast();
    let dying = Frame {
        ttl: 1,
        ..Frame::new()
    };
    // An ICMP error, a later fragment, a packet from the unspecified address: none is answered.
    let error = Frame {
        protocol: 1,
        payload: vec![3, 1, 0, 0, 0, 0, 0, 0],
        ..dying.clone()
    };
    let later = Frame {
        fragment: 6,
        ..dying.clone()
    };
    let nowhere = Frame {
        src: "203.0.113.1",
        ..dying.clone()
    };
    for frame in [error, later, nowhere] {
        let frames = vec![frame.bytes(); 60];
        assert!(lab.run(&mut fast, 0, &frames).is_empty());
    }
    let counters = fast.counters();
    assert_eq!(counters.icmp(Sent::Withheld), 180);
    assert_eq!(counters.icmp(Sent::Limited), 0);
    assert_eq!(counters.icmp(Sent::TimeExceeded), 0);
    assert_eq!(lab.run(&mut fast, 0, &vec![dying.bytes(); 10]).len(), 10);
}

#[test]
fn rfc1812_5_3_4_a_link_broadcast_is_one_for_ip_too() {
    let frame = Frame {
        dst_mac: MacAddr::BROADCAST,
        ..Frame::new()
    };
    Lab::new().ignores(&frame.bytes(), "l2_broadcast");
    let frame = Frame {
        dst_mac: MacAddr::BROADCAST,
        dst: "192.0.2.1",
        ..Frame::new()
    };
    Lab::new().ignores(&frame.bytes(), "l2_broadcast");
    let frame = Frame {
        dst_mac: MacAddr::BROADCAST,
        dst: "192.0.2.255",
        ..Frame::new()
    };
    Lab::new().punts(&frame.bytes(), Reason::Local);
}

#[test]
fn rfc1812_5_3_5_1_the_limited_broadcast_stays() {
    // A DHCP client has no address yet (RFC 2131).
    let frame = Frame {
        dst_mac: MacAddr::BROADCAST,
        src: "0.0.0.0",
        dst: "255.255.255.255",
        ..Frame::new()
    };
    Lab::new().punts(&frame.bytes(), Reason::Local);
}

#[test]
fn rfc2644_directed_broadcasts_are_not_forwarded() {
    let frame = Frame::to("198.51.100.255");
    Lab::new().ignores(&frame.bytes(), "directed_broadcast");
}

#[test]
fn rfc1812_5_3_7_martian_sources() {
    for src in [
        "127.0.0.1",
        "0.1.2.3",
        "224.0.0.9",
        "255.255.255.255",
        "241.0.0.1",
    ] {
        let frame = Frame::from(src);
        Lab::new().ignores(&frame.bytes(), "martian_source");
    }
    // The unspecified source is valid on its own link only.
    let frame = Frame::from("0.0.0.0");
    Lab::new().ignores(&frame.bytes(), "martian_source");
}

#[test]
fn rfc1812_5_3_7_martian_destinations() {
    let mut lab = Lab::new();
    // Even with a default route.
    let hop = lab.hop(Lab::forward(LAN, "198.51.100.2"));
    lab.route(0, "0.0.0.0/0", hop);
    for dst in [
        "127.0.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "240.0.0.1",
        "255.255.255.254",
    ] {
        let frame = Frame::to(dst);
        lab.ignores(&frame.bytes(), "martian_destination");
    }
    // And by a route with the action `Martian`.
    let hop = lab.hop(Hop {
        action: Action::Martian,
        ..Hop::default()
    });
    lab.route(0, "192.0.0.0/24", hop);
    let frame = Frame::to("192.0.0.9");
    lab.refuses(&frame.bytes(), "martian_destination");
}

#[test]
fn rfc3927_7_link_local_addresses_are_not_forwarded() {
    let mut lab = Lab::new();
    let hop = lab.hop(Lab::forward(LAN, "198.51.100.2"));
    lab.route(0, "0.0.0.0/0", hop);
    for (src, dst) in [("169.254.1.1", "10.1.0.9"), ("192.0.2.7", "169.254.1.1")] {
        let frame = Frame::between(src, dst);
        lab.ignores(&frame.bytes(), "link_local");
    }
    // Link-local sources may send to us.
    let frame = Frame::between("169.254.1.1", "192.0.2.1");
    let (left, _) = lab.one(0, &frame.bytes());
    assert_eq!(left[0].punt.unwrap().reason, Reason::Local);
}

#[test]
fn rfc5771_4_link_local_groups_are_delivered_and_others_dropped() {
    let ospf = Frame {
        dst_mac: MacAddr([1, 0, 0x5e, 0, 0, 5]),
        dst: "224.0.0.5",
        ttl: 1,
        protocol: 89,
        ..Frame::new()
    };
    Lab::new().punts(&ospf.bytes(), Reason::Routing);
    let beyond = Frame {
        dst_mac: MacAddr([1, 0, 0x5e, 1, 2, 3]),
        dst: "239.1.2.3",
        ..Frame::new()
    };
    Lab::new().ignores(&beyond.bytes(), "multicast");
}

#[test]
fn rfc826_arp_is_for_the_slow_worker() {
    let mut frame = vec![0xff; 6];
    frame.extend(HOST_MAC.0);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.resize(60, 0);
    Lab::new().punts(&frame, Reason::Arp);
    frame[12..14].copy_from_slice(&[0x88, 0xcc]); // LLDP
    Lab::new().punts(&frame, Reason::Other);
}

#[test]
fn frames_to_other_mac_addresses_are_dropped() {
    let frame = Frame {
        dst_mac: MacAddr::local(0x77),
        ..Frame::new()
    };
    Lab::new().ignores(&frame.bytes(), "not_for_us");
}

#[test]
fn packets_to_unresolved_neighbours_are_punted_with_ttl_and_checksum_updated() {
    let mut lab = Lab::new();
    let frame = Frame::to("10.3.0.1").bytes();
    let left = lab.passes(&frame);
    let punt = left[0].punt.unwrap();
    assert_eq!((punt.reason, punt.interface), (Reason::Resolve, LAN));
    let ip = Ipv4::new_checked(&left[0].frame[14..]).unwrap();
    assert!(ip.verify() && ip.ttl() == 63);
    let frame = Frame::to("198.51.100.77").bytes();
    let (left, _) = lab.one(0, &frame);
    let punt = left[0].punt.unwrap();
    assert_eq!((punt.reason, punt.interface), (Reason::Glean, LAN));
}

#[test]
fn rfc2992_flows_are_spread_and_each_keeps_its_way() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].redirects = false;
    let mut fast = lab.fast();
    let flows: Vec<Vec<u8>> = (0..64)
        .map(|port| {
            let mut payload = udp(18);
            payload[1] = port;
            Frame {
                dst: "10.7.0.1",
                payload,
                ..Frame::new()
            }
            .bytes()
        })
        .collect();
    let first = lab.run(&mut fast, 0, &flows);
    let by_lan = first.iter().filter(|left| left.port == 1).count();
    assert!((16..=48).contains(&by_lan), "{by_lan} of 64");
    assert_eq!(lab.run(&mut fast, 0, &flows), first);
    // All fragments of one datagram take the same member, with ports or without.
    for ident in 0..16_u8 {
        let parts = [0x2000_u16, 0x2003, 3 + 3].map(|fragment| {
            let mut frame = Frame {
                dst: "10.7.0.1",
                fragment,
                ..Frame::new()
            }
            .bytes();
            frame[29] = 16 + ident; // another source
            let mut ip = Ipv4::new_checked(&mut frame[14..]).unwrap();
            ip.fill_checksum();
            frame
        });
        let left = lab.run(&mut fast, 0, &parts);
        assert!(left.iter().all(|part| part.port == left[0].port));
        assert_eq!(left.len(), 3);
    }
}

#[test]
fn vrfs_have_tables_of_their_own() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].vrf = 1;
    let frame = Frame::new().bytes();
    lab.refuses(&frame, "no_route");
    let hop = lab.hop(Lab::forward(LAN, "198.51.100.2"));
    lab.route(1, "10.1.0.0/16", hop);
    let left = lab.passes(&frame);
    assert_eq!(left[0].port, 1);
}
