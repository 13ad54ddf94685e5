//! Compares written frames with frames that another crate builds from the same values.

mod model;

use std::collections::{BTreeMap, HashSet};

use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
use linerate_wire::checksum;
use linerate_wire::ethernet::MacAddr;
use proptest::prelude::*;

use super::{KEYS, Stream, StreamSpec};
use crate::signature::{Label, SIGNATURE_BYTES};
use model::{nth, reference};

const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x11]);
const DST: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x22]);

fn compile(line: &str) -> Stream {
    let spec: StreamSpec = line
        .parse()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    spec.compile(7, SRC, DST, 1)
        .unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn refused(line: &str) -> String {
    let spec: StreamSpec = line
        .parse()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    match spec.compile(7, SRC, DST, 1) {
        Ok(_) => panic!("{line}: compiled"),
        Err(error) => error.to_string(),
    }
}

/// Checks that frames 0 to `count` equal the model's.
fn check(line: &str, count: usize) {
    let line = format!("{line} payload=abc");
    let spec: StreamSpec = line
        .parse()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    let mut stream = compile(&line);
    let sizes = spec.size.as_ref().map(super::size::Sizes::values);
    for (number, frame) in stream.frames(0, count).iter().enumerate() {
        if let Some(sizes) = &sizes {
            assert_eq!(
                frame.len() as u128 + 4,
                nth(sizes, number),
                "{line}: length of frame {number}"
            );
        }
        let mut tail = &frame[frame.len()..];
        if spec.has_signature() {
            let label = Label::read(frame)
                .unwrap_or_else(|| panic!("{line}: frame {number} is not signed"));
            assert_eq!((label.stream, label.sequence), (7, number as u64));
            tail = &frame[frame.len() - SIGNATURE_BYTES..];
        }
        let wanted = reference(&spec, number, frame.len(), tail);
        assert_eq!(hex(frame), hex(&wanted), "{line}: frame {number}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

/// Lines over every kind of frame; in each something varies.
const LINES: &[&str] = &[
    "udp",
    "udp size=64 dst=198.19.0.1-198.19.0.254 sport=1024-65535/3 dport=1-7 ttl=3,64,255",
    "udp src_mac=02:00:00:00:00:00-02:00:00:00:01:ff dst_mac=02:00:00:00:00:01,02:00:00:00:00:02",
    "udp src_mac=00:00:00:00:00:00-ff:ff:ff:ff:ff:f0/65537",
    "udp dscp=0-63 ecn=0-3 ip_id=0-65535/7 vlan=1-4094",
    "udp dscp=10 ecn=1-2 vlan=5.3-9.3 inner_vlan=7,9.7",
    "udp vlan=5 inner_vlan=6 size=72-200",
    "tcp flags=S,SA,FA,0 seq=4294967000-4294967295/9 ack=0-9",
    "tcp sport=1-1 dport=80 size=76-1518",
    "icmp icmp_type=8,0 icmp_code=0-3 icmp_id=7-70 icmp_seq=0-65535",
    "icmp size=64-99",
    "ipv4 proto=200-253 src=1.2.3.4,255.255.255.255,0.0.0.1",
    "ipv4 size=64-80 signature=off",
    "ipv6 proto=253 signature=off size=64-99",
    "udp6 size=84-300 dst=2001:2::1-2001:2::ff flow_label=0-1048575/77 dscp=0-63 ecn=0-3",
    "udp6 flow_label=5 dscp=9-11",
    "udp6 src=2001:2::-2001:2:0:0:ffff:ffff:ffff:ffff/72340172838076673",
    "udp6 dst=2001:2::/48",
    "udp6 src=2001:2::ff,2001:2:1::1,2001:3:ffff:ffff:ffff:ffff:ffff:ffff",
    "tcp6 flags=1-255 ttl=1-255 size=100",
    "icmp6 icmp_id=1-3 icmp_seq=1-500 size=90-91",
    "eth ethertype=0x88b5,0x0800,0x88f7 vlan=1-3",
    "eth size=64,65,66,1518,9600",
    "arp src=198.18.0.1-198.18.0.9 dst=198.19.0.0/24 src_mac=02:00:00:00:00:00-02:00:00:00:00:09",
    "arp arp_op=2 dst_mac=02:00:00:00:00:01-02:00:00:00:00:03",
    "udp size=imix",
    "udp size=imix:64*28,570*16,1518*4 dst=198.19.0.1-198.19.0.3",
    "udp size=64-1518 sport=1-1000",
    "udp size=9600",
    "udp size=128 ttl=1-255",
    "udp size=129",
    "udp size=100",
    "udp size=192 sport=1-9",
    "udp size=2000-2007 sport=1-9 signature=off",
    "udp signature=off",
    "udp vxlan=5",
    "udp vxlan=1-16777215/999 outer_sport=49152-65535 outer_ttl=1-9 dst=198.19.0.1-198.19.0.254 \
     size=114-400",
    "udp vxlan=5-9 outer_src=2001:2::1 outer_dst=2001:2::2-2001:2::99 outer_vlan=3.1-5.1 sport=1-9 \
     outer_dscp=0-63",
    "tcp6 vxlan=5 outer_src=2001:2::1-2001:2::4 outer_dst=2001:2::2 size=178-300 seq=0-9 vlan=3 \
     src_mac=02:00:00:00:00:00-02:00:01:00:00:00",
    "arp vxlan=7 outer_src_mac=02:00:00:00:00:01 outer_dst_mac=02:00:00:00:00:02 \
     outer_dport=4789-4799",
    "eth vxlan=7 outer_src=2001:2::1 outer_dst=2001:2::2 ethertype=0x88b5-0x88b6",
    "icmp vxlan=7 outer_src=2001:2::1 outer_dst=2001:2::2 icmp_seq=1-9 dst=198.19.0.1-198.19.0.7 \
     ttl=5-9 dscp=1-3",
    "udp mpls=16-1048575/77 size=72-300 vlan=4 dst=198.19.0.1-198.19.0.9",
    "tcp6 mpls=100 inner_mpls=16-99 seq=0-9 size=104-200",
    "udp gre=5",
    "tcp gre=0-4294967295/65537 outer_ttl=1-9 outer_dscp=0-63 dst=198.19.0.1-198.19.0.254 \
     size=110-400",
    "udp6 gre=5-9 outer_src=2001:2::1 outer_dst=2001:2::2-2001:2::99 outer_vlan=3.1-5.1 sport=1-9 \
     size=160-200",
    "arp gre=7 src_mac=02:00:00:00:00:00-02:00:01:00:00:00",
    "udp gtpu=1-4294967295/65537 outer_sport=2152 dport=1-9 size=100-400",
    "icmp6 gtpu=5 outer_src=2001:2::1-2001:2::4 outer_dst=2001:2::2 icmp_seq=1-9 size=150-300",
];

#[test]
fn frames_are_as_the_model_builds_them() {
    for line in LINES {
        check(line, 300);
    }
}

#[test]
fn every_size_of_every_kind_has_right_lengths_and_checksums() {
    for line in [
        "udp size=64-1518",
        "udp size=64-1518 signature=off sport=1-65535/257",
        "tcp size=76-1518 seq=0-4294967295/65537",
        "icmp size=64-1518 icmp_seq=0-65535",
        "udp6 size=84-1518 dst=2001:2::1-2001:2::fff",
        "udp vxlan=3 size=134-1518 outer_src=2001:2::1 outer_dst=2001:2::2 dport=1-999",
        "udp gtpu=3 size=124-1518 outer_src=2001:2::1 outer_dst=2001:2::2 dport=1-999",
    ] {
        check(line, 1455);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_fixed_values_and_sizes_give_the_models_frame(
        src: u32, dst: u32, sport: u16, dport: u16, ttl: u8, tos in 0u8..64,
        size in 146usize..2000, tunnel: bool, kind in 0usize..3
    ) {
        let kind = ["udp", "tcp", "icmp"][kind];
        let ports = if kind == "icmp" { String::new() } else { format!("sport={sport},{dport} \
            dport={dport}") };
        let tunnel = if tunnel { "vxlan=99 outer_src=2001:2::7 outer_dst=2001:2::8" } else { "" };
        let [src, dst] = [src, dst].map(std::net::Ipv4Addr::from);
        check(&format!("{kind} src={src} dst={dst},{src} ttl={ttl} dscp={tos} size={size} {ports} \
            {tunnel}"), 3);
    }
}

#[test]
fn a_udp_checksum_that_comes_to_zero_is_sent_as_all_ones() {
    // Over all destination ports the sum takes every value but one.
    let mut stream = compile("udp dport=0-65535");
    let mut ones = 0;
    for burst in 0..1024 {
        for frame in stream.frames(burst * 64, 64) {
            let sum = u16::from_be_bytes([frame[40], frame[41]]);
            assert_ne!(sum, 0);
            ones += usize::from(sum == 0xffff);
        }
    }
    assert!((1..=2).contains(&ones), "{ones} all ones");
    // TCP has no such rule.
    let mut stream = compile("tcp dport=0-65535");
    let zeros = (0..1024).flat_map(|burst| stream.frames(burst * 64, 64));
    assert!((1..=2).contains(&zeros.filter(|frame| frame[50..52] == [0, 0]).count()));
}

/// Verifies the checksums of a plain or tunnelled frame with etherparse; returns its innermost
/// flow.
fn verify(frame: &[u8], line: &str) -> String {
    let headers =
        PacketHeaders::from_ethernet_slice(frame).unwrap_or_else(|error| panic!("{line}: {error}"));
    let payload = headers.payload.slice();
    let transport = headers.transport.as_ref();
    let mut flow = String::new();
    match (&headers.net, transport) {
        (Some(NetHeaders::Ipv4(ip, _)), over) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "{line}");
            flow += &format!("{:?} {:?}", ip.source, ip.destination);
            let wanted = match over {
                Some(TransportHeader::Udp(udp)) if udp.checksum == 0 => Some(0),
                Some(over) => {
                    let mut over = over.clone();
                    over.update_checksum_ipv4(ip, payload).unwrap();
                    sum_of(&over)
                }
                None => None,
            };
            assert_eq!(over.and_then(sum_of), wanted, "{line}");
        }
        (Some(NetHeaders::Ipv6(ip, _)), over) => {
            flow += &format!("{:?} {:?}", ip.source, ip.destination);
            let wanted = over.and_then(|over| {
                let mut over = over.clone();
                over.update_checksum_ipv6(ip, payload).unwrap();
                sum_of(&over)
            });
            assert_eq!(over.and_then(sum_of), wanted, "{line}");
        }
        _ => {}
    }
    match transport {
        Some(TransportHeader::Udp(udp)) if udp.destination_port == 4789 => {
            return verify(&payload[8..], line);
        }
        Some(TransportHeader::Udp(udp)) => {
            flow += &format!(" {} {}", udp.source_port, udp.destination_port)
        }
        Some(TransportHeader::Tcp(tcp)) => {
            flow += &format!(" {} {}", tcp.source_port, tcp.destination_port)
        }
        _ => {}
    }
    flow
}

fn sum_of(over: &TransportHeader) -> Option<u16> {
    Some(match over {
        TransportHeader::Udp(udp) => udp.checksum,
        TransportHeader::Tcp(tcp) => tcp.checksum,
        TransportHeader::Icmpv4(icmp) => icmp.checksum,
        TransportHeader::Icmpv6(icmp) => icmp.checksum,
        _ => return None,
    })
}

#[test]
fn random_fields_have_right_checksums_and_new_flows() {
    for (line, least) in [
        (
            "udp dst=random sport=random dport=random src_mac=random ttl=random dscp=random",
            3000,
        ),
        (
            "udp6 src=random dst=random sport=random flow_label=random dscp=random ecn=random",
            3000,
        ),
        (
            "tcp dst=random:198.19.0.0/24 flags=random seq=random ack=random vlan=random \
             size=random:80-1518",
            254,
        ),
        ("tcp6 size=random:100-9600 src=random:2001:2::/64", 3000),
        (
            "udp vxlan=random outer_sport=random outer_dst=random dst=random",
            3000,
        ),
        (
            "udp vxlan=random outer_src=2001:2::1 outer_dst=random dst=random size=random:140-300",
            3000,
        ),
        ("icmp6 src=random icmp_id=random icmp_seq=random", 3000),
    ] {
        let mut stream = compile(line);
        let frames = stream.frames(0, 3000);
        let flows: HashSet<_> = frames.iter().map(|frame| verify(frame, line)).collect();
        assert!(flows.len() >= least, "{line}: {} flows", flows.len());
        assert_eq!(
            frames,
            compile(line).frames(0, 3000),
            "{line}: the same seed, the same frames"
        );
        let other = line
            .parse::<StreamSpec>()
            .unwrap()
            .compile(7, SRC, DST, 2)
            .unwrap()
            .frames(0, 3000);
        assert_ne!(frames, other, "{line}: another seed");
    }
}

#[test]
fn flow_sets_are_exact() {
    let flows = |line: &str, count| -> BTreeMap<String, usize> {
        let mut flows = BTreeMap::new();
        for frame in compile(line).frames(0, count) {
            *flows.entry(verify(&frame, line)).or_insert(0) += 1;
        }
        flows
    };
    // 30,000 asked for, 30,000 seen.
    let seen = flows("udp sport=random:10000-39999", 30_000);
    assert_eq!(seen.len(), 30_000);
    let seen = flows("udp dst=198.19.0.0/24", 254 * 3);
    assert!(seen.len() == 254 && seen.values().all(|&count| count == 3));
    let seen = flows("udp dst=random:198.19.0.0/24", 254 * 4);
    assert!(seen.len() == 254 && seen.values().all(|&count| count == 4));
    let seen = flows("udp dst=random:198.19.0.0/24 sport=random:1-254", 254 * 16);
    assert!(
        seen.len() > 254 * 15,
        "new pairs in each pass: {}",
        seen.len()
    );
    let seen = flows("udp sport=1-100/3 dport=7,8", 68);
    assert_eq!(
        seen.len(),
        34,
        "as many as the least common multiple of 34 and 2"
    );
}

#[test]
fn what_a_port_refused_is_written_again() {
    for line in LINES
        .iter()
        .chain(&["udp dst=random sport=random:1-77 size=random:64-99"])
    {
        let wanted = compile(line).frames(0, 400);
        let mut stream = compile(line);
        let mut next = 0;
        // The port takes 37 of 64; and the sequence restarts once, and jumps ahead once.
        while next + 64 <= 400 {
            assert_eq!(
                stream.frames(next as u64, 64),
                wanted[next..next + 64],
                "{line} from {next}"
            );
            next += 37;
        }
        assert_eq!(stream.frames(0, 100), wanted[..100], "{line} anew");
        assert_eq!(stream.frames(333, 3), wanted[333..336], "{line} ahead");
        assert_eq!(
            stream.frames(334, 64)[..60],
            wanted[334..394],
            "{line} after a small burst"
        );
    }
}

#[test]
fn packets_get_the_same_bytes_and_stamps() {
    let pool = Pool::new(&PoolConfig::new("test", 256)).unwrap();
    let mut cache = PoolCache::new(std::slice::from_ref(&pool));
    for line in LINES {
        let (mut stream, wanted) = (compile(line), compile(line).frames(5, 64));
        if stream.max_len() > pool.room_bytes() {
            continue;
        }
        let mut burst = Burst::new();
        assert_eq!(cache.fill(&pool, &mut burst, 64), 64);
        let stamps: Vec<u64> = (1000..1064).collect();
        stream.write(burst.as_packets_mut(), &stamps, 5);
        for (number, packet) in burst.iter().enumerate() {
            let mut wanted = wanted[number].clone();
            if !line.contains("signature=off") {
                let label = Label::read(packet.data()).unwrap();
                assert_eq!(
                    (label.stamp, label.sequence),
                    (1000 + number as u64, 5 + number as u64)
                );
                label.write(wanted.last_chunk_mut().unwrap());
            }
            assert_eq!(packet.data(), wanted, "{line}");
        }
        cache.free(&mut burst);
    }
}

#[test]
fn what_contradicts_itself_is_refused_with_the_fix() {
    for (line, wanted) in [
        (
            "udp flags=S",
            "flags=S: UDP over IPv4 has no such field; write kind=tcp",
        ),
        ("udp6 size=64", "IPv6"),
        (
            "udp6 size=64",
            "these frames need 84: 14 Ethernet + 40 IPv6 + 8 UDP + 18 signature + 4 FCS",
        ),
        ("udp6 size=66", "or signature=off"),
        ("udp6 size=imix", "size=imix:84*7"),
        ("tcp size=64", "need 76"),
        ("udp vlan=1 size=64", "4 VLAN"),
        ("udp vlan=1 size=64-100", "need 68"),
        ("udp vxlan=1 size=random:64-1000", "need 114"),
        (
            "arp sport=1",
            "arp has no such field; write kind=udp or kind=tcp",
        ),
        ("eth src=198.18.0.1", "eth has no such field"),
        ("udp outer_src=198.18.0.1", "give vxlan="),
        ("udp inner_vlan=3", "no service tag"),
        ("udp src=198.18.0.1 dst=2001:2::1", "are of two families"),
        (
            "udp6 src=198.18.0.1",
            "is IPv4, and kind=udp6 is over IPv6; change the address, or write kind=udp",
        ),
        ("ipv4 dst=2001:2::1", "write kind=ipv6"),
        ("arp src=2001:2::1", "is over IPv4"),
        ("udp flow_label=1 src=198.18.0.1", "write IPv6 addresses"),
        ("udp6 ip_id=1", "write IPv4 addresses"),
        ("ipv4 proto=17", "would lack its header; write kind=udp"),
        ("udp proto=200", "write kind=ipv4 or kind=ipv6"),
        ("eth ethertype=0x10", "would be a length"),
        ("udp ethertype=0x0800", "write kind=eth"),
        ("icmp dport=9", "write kind=udp or kind=tcp"),
        ("pcap=x.pcap", "a capture has its own frames"),
        (
            "udp vxlan=1 outer_src=198.18.0.1 outer_dst=2001:2::1",
            "of two families",
        ),
    ] {
        let error = refused(line);
        assert!(error.contains(wanted), "{line}: {error}");
    }
}

#[test]
fn kinds_are_inferred() {
    for (line, kind) in [
        ("", "IPv4 / UDP"),
        ("flags=S", "IPv4 / TCP"),
        ("flags=S dst=2001:2::1", "IPv6 / TCP"),
        ("icmp_seq=5", "IPv4 / ICMP"),
        ("dst=2001:2::/64", "IPv6 / UDP"),
        ("icmp dst=2001:2::/64", "IPv6 / ICMPv6"),
        ("flow_label=7", "IPv6 / UDP"),
        ("arp_op=2", "ARP"),
        ("ethertype=0x88b5", "Ethernet 0x88b5"),
        ("proto=99", "IPv4"),
        ("proto=99 src=2001:2::1", "IPv6"),
        ("vxlan=5 flags=S", "IPv4 / UDP / VXLAN / IPv4 / TCP"),
    ] {
        assert_eq!(compile(line).view().kind, kind, "{line}");
    }
}

#[test]
fn least_sizes_and_means_count_the_check_sequence() {
    for (line, len, mean) in [
        ("udp", 60, 64.0),
        ("udp6", 80, 84.0),
        ("tcp", 72, 76.0),
        ("udp signature=off", 60, 64.0),
        ("udp6 signature=off", 62, 66.0),
        ("udp size=64-66", 62, 65.0),
        ("udp size=random:64-1518", 1514, 791.0),
        (
            "udp size=imix",
            1514,
            (7.0 * 64.0 + 4.0 * 570.0 + 1518.0) / 12.0,
        ),
        ("udp size=9600", 9596, 9600.0),
    ] {
        let stream = compile(line);
        assert_eq!(
            (stream.max_len(), stream.mean_frame_bytes()),
            (len, mean),
            "{line}"
        );
    }
}

#[test]
fn a_mix_is_spread_over_its_round() {
    let sizes: Vec<_> = compile("udp size=imix")
        .frames(0, 12)
        .iter()
        .map(Vec::len)
        .collect();
    assert_eq!(sizes.iter().filter(|&&size| size == 60).count(), 7);
    assert_eq!(sizes.iter().filter(|&&size| size == 566).count(), 4);
    assert!(
        sizes.windows(3).all(|three| three.contains(&60)),
        "{sizes:?}"
    );
}

#[test]
fn templates_show_what_was_asked_or_the_default() {
    let view =
        compile("udp vlan=5.1 inner_vlan=6 dst=198.19.0.0/24 size=64-99 signature=off payload=abc")
            .view();
    assert_eq!(
        (view.vlan.as_str(), view.dst_ip.as_str()),
        ("5.1,6", "198.19.0.1-198.19.0.254")
    );
    assert_eq!(
        (view.src_ip.as_str(), view.dst_port.as_str()),
        ("198.18.0.1", "9")
    );
    assert_eq!(
        (view.src_mac, view.dst_mac),
        (SRC.to_string(), DST.to_string())
    );
    assert_eq!(
        (view.size.as_str(), view.pattern.as_str()),
        ("64-99", "abc")
    );
}

#[test]
fn every_field_changes_frames_and_is_in_the_models_lines() {
    let all: Vec<&str> = LINES
        .iter()
        .flat_map(|line| line.split_whitespace())
        .collect();
    for help in KEYS.iter().filter(|help| help.row.is_some()) {
        let given = |word: &&str| word.split_once('=').is_some_and(|(key, _)| key == help.key);
        assert!(
            all.iter().any(given),
            "no line of the model has {}",
            help.key
        );
    }
    assert!(checksum::verify(&compile("udp").frames(0, 1)[0][14..34]));
}

/// Destination, source port and VLAN of the first frames of a tagged stream.
fn digits(line: &str, count: usize) -> Vec<(u8, u16, u16)> {
    let frames = compile(line).frames(0, count);
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let of = |frame: &Vec<u8>| (frame[37], word(frame, 38), word(frame, 14) & 0xfff);
    frames.iter().map(of).collect()
}

#[test]
fn nested_fields_run_like_the_digits_of_a_counter() {
    let line = "udp vlan=5,6 dst=198.19.0.1-198.19.0.3 sport=10-11 size=68-72/4";
    let nested = digits(&format!("{line} nest=dst,sport,vlan"), 200);
    let expected = (0..200u16).map(|n| (n % 3 + 1, n / 3 % 2 + 10, n / 6 % 2 + 5));
    let expected: Vec<_> = expected
        .map(|(dst, port, id)| (dst as u8, port, id))
        .collect();
    assert_eq!(nested, expected);
    // Fields of a tuple advance together, and unnamed fields advance with every frame.
    let tuples = "udp vlan=5,6 dst=198.19.0.1-198.19.0.3 sport=10,30,20 nest=dst+sport,vlan";
    let expected =
        (0..200usize).map(|n| (n as u8 % 3 + 1, [10, 30, 20][n % 3], n as u16 / 3 % 2 + 5));
    assert_eq!(digits(tuples, 200), expected.collect::<Vec<_>>());
    let plain = (0..200u16).map(|n| (n as u8 % 3 + 1, n / 2 % 2 + 10, n % 2 + 5));
    let plain = plain.collect::<Vec<_>>();
    assert_eq!(digits(&format!("{line} nest=vlan,sport"), 200), plain);
    // Jumps ahead and back, as for a port that took less than it was given.
    let mut whole = compile(&format!("{line} nest=dst,sport,vlan"));
    let all = whole.frames(0, 300);
    for first in [250, 3, 64, 65, 0] {
        assert_eq!(
            whole.frames(first, 40)[..],
            all[first as usize..][..40],
            "from {first}"
        );
    }
    let written = format!("{line} nest=dst,sport,vlan")
        .parse::<StreamSpec>()
        .unwrap();
    assert_eq!(written.to_string().parse::<StreamSpec>().unwrap(), written);
    for (line, why) in [
        ("dst=198.19.0.1 nest=dst", "`dst` does not vary"),
        ("dst=198.19.0.1-198.19.0.2 nest=dst,dst", "there twice"),
        ("nest=rate", "`rate` is no field"),
        (
            "dst=198.19.0.1-198.19.0.2 sport=1-3 nest=dst+sport",
            "has 3 values and `dst` 2",
        ),
    ] {
        let compiled = line
            .parse()
            .and_then(|spec: StreamSpec| spec.compile(7, SRC, DST, 1));
        let error = compiled.map(drop).unwrap_err();
        assert!(error.problem.contains(why), "{line}: {error}");
    }
}

#[test]
fn tunnels_and_labels_that_make_no_sense_are_refused() {
    for (line, why) in [
        ("udp gre=1 vxlan=2", "two tunnels"),
        ("arp gtpu=1", "IP packets alone"),
        ("udp inner_mpls=5", "no label before it"),
        ("arp mpls=5", "no such field"),
        ("udp gre=1 mpls=5", "no such field"),
        ("udp gre=1 vlan=5", "no such field"),
        ("udp gre=1 outer_sport=5", "no such field"),
        ("udp mpls=1048576", "is over 1048575"),
        ("udp gtpu=1 size=64", "need"),
    ] {
        let compiled = line
            .parse()
            .and_then(|spec: StreamSpec| spec.compile(7, SRC, DST, 1));
        let error = compiled.map(drop).unwrap_err();
        assert!(error.problem.contains(why), "{line}: {error}");
        assert!(!error.fix.is_empty());
    }
}
