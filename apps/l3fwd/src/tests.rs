//! The stage with each kind of table: bytes that come out of each port, and the reasons of drops.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig, Pools};
use linerate_core::port::{Port, PortConfig};
use linerate_core::run::{Egress, Stage, TxPath as Out};
use linerate_tables::acl::{Bits, Match, Range};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::{FlowKey4, FlowKey6, set_macs};

use super::stage::{NextHop, path};
use super::*;

const NEXT: [Macs; 2] = [
    Macs::new(MacAddr::local(0), MacAddr::local(10)),
    Macs::new(MacAddr::local(1), MacAddr::local(11)),
];

/// UDP from 10.0.0.1:1000 to this address and port; a sound IPv4 header.
fn udp4(dst: [u8; 4], dst_port: u16, ttl: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, ttl, 17, 0, 0]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, dst[0], dst[1], dst[2], dst[3]]);
    frame[34..36].copy_from_slice(&1000_u16.to_be_bytes());
    frame[36..38].copy_from_slice(&dst_port.to_be_bytes());
    frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
    Ipv4::new_checked(&mut frame[14..]).unwrap().fill_checksum();
    frame
}

/// UDP from 2001:db8::1, port 1000, to 2001:db8:<net>::2.
fn udp6(net: u8, dst_port: u16, hops: u8) -> Vec<u8> {
    let mut frame = vec![0; 80];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x86, 0xdd]);
    frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 26, 17, hops]);
    for (at, net, host) in [(22, 0, 1), (38, net, 2)] {
        frame[at..at + 4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        (frame[at + 5], frame[at + 15]) = (net, host);
    }
    frame[54..56].copy_from_slice(&1000_u16.to_be_bytes());
    frame[56..58].copy_from_slice(&dst_port.to_be_bytes());
    frame[58..60].copy_from_slice(&26_u16.to_be_bytes());
    frame
}

/// What the wire crate makes of a frame that goes out of a port.
fn expected(frame: &[u8], port: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let l3 = linerate_wire::parse(&frame).map_or(14, |headers| headers.l3);
    match frame[l3] >> 4 {
        4 => assert!(Ipv4::new_checked(&mut frame[l3..]).unwrap().decrement_ttl()),
        _ => frame[l3 + 7] -= 1,
    }
    assert!(set_macs(&mut frame, NEXT[port].dst(), NEXT[port].src()));
    frame
}

type Sent = [Vec<Vec<u8>>; 2];

/// Runs bursts of frames through a stage with two ports.
fn forward(lookup: impl Lookup, frames: &[Vec<u8>]) -> (Sent, BTreeMap<String, u64>) {
    let pool = Pool::new(&PoolConfig::new("stage", 1024)).unwrap();
    let pools = Pools::new(vec![pool.clone()]);
    let mut egress = Egress::new(PoolCache::new(pools.as_slice()));
    let mut rx = Vec::new();
    let mut ports = Vec::new();
    for port in 0..2 {
        let mut looped = linerate_drivers::ring::looped("stage", 1, 512);
        let mut queues = looped.start(&PortConfig::default(), &pools).unwrap();
        egress.set_outlet(port, Some(Out::Queue(queues.tx.remove(0))));
        rx.push(queues.rx.remove(0));
        ports.push(looped);
    }
    let hops = [
        NextHop::out(0, NEXT[0]),
        NextHop::out(1, NEXT[1]),
        NextHop::denied(),
    ];
    let mut stage = path(Box::new(lookup), &hops, &mut egress);
    for frames in frames.chunks(64) {
        let mut burst = Burst::new();
        egress.cache.fill(&pool, &mut burst, frames.len());
        for (packet, frame) in burst.iter_mut().zip(frames) {
            packet.set_data(frame);
        }
        stage.run(&mut burst, &mut (), &mut egress);
        assert!(burst.is_empty());
        egress.flush();
    }
    let sent = [0, 1].map(|port: usize| {
        let mut frames = Vec::new();
        let mut burst = Burst::new();
        while rx[port].rx_burst(&mut burst, &mut egress.cache) > 0 {
            frames.extend(burst.iter().map(|packet| packet.data().to_vec()));
            egress.cache.free(&mut burst);
        }
        frames
    });
    let drops = egress.drop_counts();
    let drops = drops.lock().unwrap();
    let drops = drops
        .iter()
        .map(|(name, count)| (name.clone(), count.read()));
    (sent, drops.filter(|(_, count)| *count > 0).collect())
}

fn longest() -> Longest {
    let routes4 = [("198.18.0.0/24", 0), ("198.18.0.128/25", 1)];
    let routes6 = [("2001:db8:1::/48", 1), ("2001:db8:2::/48", 0)];
    Longest::new(
        &routes4.map(|(text, hop)| (text.parse().unwrap(), hop)),
        &routes6.map(|(text, hop)| (text.parse().unwrap(), hop)),
    )
    .unwrap()
}

#[test]
fn each_packet_leaves_by_its_longest_match_with_one_hop_less() {
    let mut frames = Vec::new();
    let mut wanted: Sent = Default::default();
    let mut no_route = 0;
    for number in 0..300_usize {
        let (frame, port) = match number % 5 {
            0 => (udp4([198, 18, 0, 7], 9, 64), Some(0)),
            1 => (udp4([198, 18, 0, 200], 9, 2), Some(1)),
            2 => (udp6(1, 9, 255), Some(1)),
            3 => (udp6(2, 9, 2), Some(0)),
            _ => (udp4([198, 19, 0, 1], 9, 64), None),
        };
        // Runs of one kind, so that some bursts are all alike.
        if (number / 64) % 2 == 0 || number % 5 == 0 {
            match port {
                Some(port) => wanted[port].push(expected(&frame, port)),
                None => no_route += 1,
            }
            frames.push(frame);
        }
    }
    let (sent, drops) = forward(longest(), &frames);
    assert_eq!(sent, wanted);
    assert_eq!(drops, BTreeMap::from([("no_route".to_string(), no_route)]));
}

#[test]
fn rfc1812_5_2_2_and_5_3_1_what_is_not_to_be_forwarded_is_dropped_with_its_reason() {
    let sound = udp4([198, 18, 0, 7], 9, 64);
    let changed = |at: usize, value: u8| {
        let mut frame = sound.clone();
        frame[at] = value;
        frame
    };
    let refill = |mut frame: Vec<u8>| {
        Ipv4::new_checked(&mut frame[14..]).unwrap().fill_checksum();
        frame
    };
    let mut arp = sound.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    let frames = [
        changed(25, sound[25] ^ 1),  // the checksum
        changed(14, 0x44),           // a header of 16 bytes
        changed(14, 0x65),           // version 6 behind IPv4's type
        changed(17, 200),            // longer than the frame
        sound[..33].to_vec(),        // cut
        udp4([198, 18, 0, 7], 9, 1), // its last hop
        udp4([198, 18, 0, 7], 9, 0),
        udp6(1, 9, 1),
        arp,
        changed(0, 3), // to a group of the link layer: RFC 1812 5.3.4
        vec![0xff; 14],
        refill(changed(39, 99)), // UDP's length: no business of a router's
        sound.clone(),
    ];
    let (sent, drops) = forward(longest(), &frames);
    assert_eq!(sent[0], [expected(&frames[11], 0), expected(&sound, 0)]);
    assert!(sent[1].is_empty());
    let wanted = [
        ("bad_checksum", 1),
        ("link_group", 1),
        ("malformed", 4),
        ("not_ip", 2),
        ("ttl_expired", 3),
    ];
    let wanted: BTreeMap<_, _> = wanted.map(|(name, n)| (name.to_string(), n)).into();
    assert_eq!(drops, wanted);
}

#[test]
fn a_vlan_tag_stays() {
    let mut frame = udp4([198, 18, 0, 7], 9, 64);
    frame.splice(12..12, [0x81, 0, 0, 100]);
    let (sent, drops) = forward(longest(), std::slice::from_ref(&frame));
    assert_eq!(sent[0], [expected(&frame, 0)]);
    assert!(drops.is_empty(), "{drops:?}");
}

#[test]
fn exact_match_asks_for_all_five() {
    let key4 = FlowKey4::new([10, 0, 0, 1], [198, 18, 0, 7], 1000, 9, 17);
    let frame6 = udp6(1, 9, 64);
    let address = |at: usize| *frame6[at..].first_chunk().unwrap();
    let key6 = FlowKey6::new(address(22), address(38), 1000, 9, 17);
    let lookup = ExactMatch::new(&[(key4, 1)], &[(key6, 0)]).unwrap();
    let frames = [
        udp4([198, 18, 0, 7], 9, 64),
        udp4([198, 18, 0, 7], 10, 64),
        frame6.clone(),
        udp6(1, 10, 64),
        udp4([198, 18, 0, 8], 9, 64),
    ];
    let (sent, drops) = forward(lookup, &frames);
    assert_eq!(
        sent,
        [vec![expected(&frames[2], 0)], vec![expected(&frames[0], 1)]]
    );
    assert_eq!(drops, BTreeMap::from([("no_route".to_string(), 3)]));
}

#[test]
fn the_first_match_of_an_access_list_forwards_or_denies() {
    const DENIED: u32 = 2;
    let rules4 = [
        (
            Match {
                dst_ports: Range::one(53),
                protocol: Bits::byte(17),
                ..Match::ANY
            },
            DENIED,
        ),
        (Match::ANY, 1),
    ];
    let rules6 = [(
        Match {
            dst_ports: Range::new(1, 99).unwrap(),
            ..Match::ANY
        },
        0,
    )];
    let lookup = FirstMatch::new(&rules4, &rules6).unwrap();
    let dns = udp4([198, 18, 0, 7], 53, 64);
    let mut fragment = dns.clone();
    fragment[20] = 0x20; // the first of its datagram: nobody looks at ports
    Ipv4::new_checked(&mut fragment[14..])
        .unwrap()
        .fill_checksum();
    let frames = [
        dns,
        udp4([198, 18, 0, 7], 54, 64),
        fragment,
        udp6(1, 99, 64),
        udp6(1, 100, 64),
    ];
    let (sent, drops) = forward(lookup, &frames);
    let ip4 = [expected(&frames[1], 1), expected(&frames[2], 1)];
    assert_eq!(sent, [vec![expected(&frames[3], 0)], ip4.to_vec()]);
    let wanted = BTreeMap::from([("acl_deny".to_string(), 1), ("no_route".to_string(), 1)]);
    assert_eq!(drops, wanted);
}

#[test]
fn without_entries_ports_have_what_dpdk_gives_them() {
    let ports = Ports(["a", "b", "c"].map(String::from).into());
    let of = |mode| or_dpdks_own(Tables::new(3), mode, &ports);
    for mode in [Mode::Lpm, Mode::Fib] {
        let tables = of(mode).unwrap();
        let routes: Vec<_> = tables
            .v4
            .routes
            .iter()
            .map(|(p, hop)| format!("{p} {hop}"))
            .collect();
        assert_eq!(
            routes,
            ["198.18.0.0/24 0", "198.18.1.0/24 1", "198.18.2.0/24 2"]
        );
        assert_eq!(tables.v6.routes[2].0.to_string(), "2001:200:0:2::/64");
    }
    let flows = of(Mode::Em).unwrap();
    let key = FlowKey4::new([198, 18, 1, 1], [198, 18, 1, 0], 9, 9, 17);
    assert_eq!(flows.v4.flows[1], (key, 1));
    let error = of(Mode::Acl).unwrap_err();
    assert!(error.to_string().contains("without entries"), "{error}");
}

#[test]
fn eth_dest_names_a_port_and_an_address() {
    let ports = Ports(["pcap:rx=a,tx=b", "lan"].map(String::from).into());
    let read = |text: &str| port_and_mac(text, &ports);
    assert_eq!(
        read("1,02:00:00:00:00:fe").unwrap(),
        (1, MacAddr::local(0xfe))
    );
    assert_eq!(read("pcap:rx=a,tx=b,02:00:00:00:00:fe").unwrap().0, 0);
    for (text, what) in [
        ("2,02:00:00:00:00:fe", "no port `2`"),
        ("lan", "no port and address"),
        ("lan,02:00", "no address follows"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.what.contains(what), "{text}: {error:?}");
        assert!(!error.legal.is_empty());
    }
}
