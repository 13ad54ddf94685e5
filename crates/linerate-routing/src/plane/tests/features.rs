//! Optional features of interfaces: reverse path filtering, policing, and all of it at once.

use super::super::hops::{Action, Hop};
use super::super::punt::{Rates, Reason};
use super::super::settings::{Policer, Urpf};
use super::super::testing::*;
use super::super::{Fast, Setup};
use super::lists::list;

#[test]
fn rfc3704_2_2_strict_wants_the_way_back() {
    for (src, passes) in [
        ("192.0.2.9", true),     // on this link
        ("10.2.0.1", true),      // behind the host
        ("10.7.0.1", true),      // one of two ways
        ("10.1.0.1", false),     // behind the router, elsewhere
        ("198.51.100.9", false), // on another link
        ("11.0.0.1", false),     // no route
        ("10.4.0.1", false),     // discarded
        ("198.51.100.1", false), // our own
    ] {
        let mut lab = Lab::new();
        lab.settings.interfaces[0].urpf = Urpf::Strict;
        let frame = Frame::from(src);
        let (left, drops) = lab.one(0, &frame.bytes());
        assert_eq!(left.len(), usize::from(passes), "{src}");
        assert_eq!(count(&drops, "urpf"), u64::from(!passes), "{src}");
    }
    for (src, passes) in [("2001:db8::9", true), ("2001:db8:a1::1", false)] {
        let mut lab = Lab::new();
        lab.settings.interfaces[0].urpf = Urpf::Strict;
        let frame = Frame::from(src);
        assert_eq!(
            lab.one(0, &frame.bytes()).0.len(),
            usize::from(passes),
            "{src}"
        );
    }
}

#[test]
fn rfc3704_2_4_loose_wants_any_way_but_the_default() {
    for (src, passes) in [("10.1.0.1", true), ("10.3.0.1", true), ("11.0.0.1", false)] {
        let mut lab = Lab::new();
        lab.settings.interfaces[0].urpf = Urpf::Loose;
        let default = lab.hop(Hop {
            is_default: true,
            ..Lab::forward(WAN, "192.0.2.7")
        });
        lab.route(0, "0.0.0.0/0", default);
        let frame = Frame::from(src);
        assert_eq!(
            lab.one(0, &frame.bytes()).0.len(),
            usize::from(passes),
            "{src}"
        );
    }
    // The same where the default route has several next hops.
    let mut lab = Lab::new();
    lab.settings.interfaces[0].urpf = Urpf::Loose;
    let ways = ["192.0.2.7", "192.0.2.8"].map(|gateway| lab.hop(Lab::forward(WAN, gateway)));
    let default = lab.group(&ways, true);
    lab.route(0, "0.0.0.0/0", default);
    let frame = Frame::from("11.0.0.1");
    let (left, drops) = lab.one(0, &frame.bytes());
    assert_eq!((left.len(), count(&drops, "urpf")), (0, 1));
    // A DHCP request passes nevertheless.
    let mut lab = Lab::new();
    lab.settings.interfaces[0].urpf = Urpf::Strict;
    let frame = Frame {
        dst_mac: linerate_wire::MacAddr::BROADCAST,
        src: "0.0.0.0",
        dst: "255.255.255.255",
        ..Frame::new()
    };
    assert_eq!(lab.one(0, &frame.bytes()).0.len(), 1);
}

#[test]
fn rfc2697_a_policer_lets_its_burst_and_rate_through() {
    let mut lab = Lab::new();
    lab.settings.interfaces[0].policer = Some(Policer {
        rate_bps: 8 * 46_000, // 1000 packets of 46 bytes a second
        burst_bytes: 46 * 10,
    });
    let mut fast = lab.fast();
    let frames = vec![Frame::new().bytes(); 20];
    assert_eq!(lab.run(&mut fast, 0, &frames).len(), 10);
    lab.now += 5_000_000; // 5 ms
    assert_eq!(lab.run(&mut fast, 0, &frames).len(), 5);
    assert_eq!(count(&lab.drops(), "policed"), 25);
    // A reload that does not change the policer does not fill its bucket.
    lab.reload(&mut fast, lab.settings.clone());
    assert_eq!(lab.run(&mut fast, 0, &frames).len(), 0);
}

#[test]
fn all_optional_stages_agree_on_one_burst() {
    let mut lab = Lab::new();
    lab.settings.acls = vec![list()];
    let wan = &mut lab.settings.interfaces[0];
    wan.acl_in = Some(0);
    wan.urpf = Urpf::Strict;
    wan.policer = Some(Policer {
        rate_bps: 8,
        burst_bytes: 46 * 40,
    });
    let only = |action| Hop {
        action,
        ..Hop::default()
    };
    let black = lab.hop(only(Action::Blackhole));
    lab.route(0, "10.1.3.0/24", black);
    let mut fast = lab.fast();
    let frames: Vec<Vec<u8>> = (0..64)
        .map(|number| {
            let mut frame = Frame {
                src: ["192.0.2.7", "10.1.0.1"][usize::from(number % 8 == 1)],
                dst: ["10.1.0.9", "10.1.3.9"][usize::from(number % 8 == 3)],
                ..Frame::new()
            };
            frame.payload[3] = if number % 8 == 2 { 53 } else { 54 };
            frame.bytes()
        })
        .collect();
    let left = lab.run(&mut fast, 0, &frames);
    // The first 40 are within the policer's burst: five of each kind.
    let drops = lab.drops();
    assert_eq!(left.len(), 5 * 5);
    assert_eq!(count(&drops, "policed"), 24);
    assert_eq!(count(&drops, "acl_in.edge"), 5);
    assert_eq!(count(&drops, "urpf"), 5);
    assert_eq!(count(&drops, "blackhole"), 5);
}

#[test]
fn a_flood_for_the_router_leaves_routing_protocols_alone() {
    let mut lab = Lab::new();
    let mut punts = Rates::default();
    punts.set(Reason::Local, 10);
    let setup = Setup {
        punts,
        ..lab.setup()
    };
    let mut fast = Fast::new(setup, &mut lab.egress);
    let to_us = |frame: Frame, protocol, src_port: u16, dst_port: u16| {
        let mut payload = udp(18);
        payload[..2].copy_from_slice(&src_port.to_be_bytes());
        payload[2..4].copy_from_slice(&dst_port.to_be_bytes());
        if protocol == 6 {
            payload[12] = 0x50;
        }
        let dst = match frame.src.contains(':') {
            true => "2001:db8::1",
            false => "192.0.2.1",
        };
        let frame = Frame {
            dst,
            protocol,
            payload,
            ..frame
        };
        frame.bytes()
    };
    let flood = [
        (6, 4000, 22),
        (17, 3784, 4000),
        (17, 4000, 179),
        (47, 0, 179),
    ];
    let flood = flood.map(|(protocol, src, dst)| to_us(Frame::new(), protocol, src, dst));
    let flood: Vec<Vec<u8>> = std::iter::repeat_n(flood, 5).flatten().collect();
    let left = lab.run(&mut fast, 0, &flood);
    let reasons = |left: &[Left]| -> Vec<Reason> {
        let punts = left.iter().filter_map(|left| left.punt);
        punts.map(|punt| punt.reason).collect()
    };
    assert_eq!(reasons(&left), [Reason::Local; 2], "a fifth of a second's");
    assert_eq!(lab.drops()["punt_limited"], 18);
    let routing = [
        (6, 4000, 179),
        (6, 179, 4000),
        (6, 4000, 646),
        (17, 646, 646),
        (17, 49152, 3784),
        (17, 49152, 3785),
        (17, 49152, 4784),
        (89, 0, 0),
        (112, 0, 0),
    ];
    let frames: Vec<Vec<u8>> = [Frame::new(), Frame::new6()]
        .into_iter()
        .flat_map(|frame| {
            routing.map(|(protocol, src, dst)| to_us(frame.clone(), protocol, src, dst))
        })
        .collect();
    let left = lab.run(&mut fast, 0, &frames);
    assert_eq!(reasons(&left), [Reason::Routing; 18], "{:?}", lab.drops());
    // Forwarded packets do not count as the router's own sessions.
    let through = Frame {
        protocol: 89,
        ..Frame::new()
    };
    let left = lab.run(&mut fast, 0, &[through.bytes()]);
    assert_eq!((left.len(), left[0].punt), (1, None));
}
