//! Meaning, errors and robustness. `tests/tcpdump.rs` compares with tcpdump itself.

use super::*;
use etherparse::PacketBuilder;
use proptest::prelude::*;
use std::{format, string::ToString};

fn frame(vlan: Option<u16>, tcp: bool) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut frame = Vec::new();
    let ip = match vlan {
        None => builder.ipv4([10, 0, 0, 1], [192, 168, 7, 9], 64),
        Some(id) => {
            builder
                .single_vlan(id.try_into().unwrap())
                .ipv4([10, 0, 0, 1], [192, 168, 7, 9], 64)
        }
    };
    match tcp {
        true => ip.tcp(1234, 80, 1, 1).write(&mut frame, b"x").unwrap(),
        false => ip.udp(1234, 53).write(&mut frame, b"x").unwrap(),
    }
    frame
}

fn filter(expression: &str) -> Filter {
    expression
        .parse()
        .unwrap_or_else(|error| panic!("{expression}: {error}"))
}

#[test]
fn words_mean_what_tcpdump_means() {
    let tcp = frame(None, true);
    for (expression, expected) in [
        ("", true),
        ("ip", true),
        ("ip6 or arp", false),
        ("tcp", true),
        ("not tcp", false),
        ("not not tcp", true),
        ("!udp && tcp", true),
        ("host 10.0.0.1", true),
        ("dst host 10.0.0.1", false),
        ("dst 192.168.7.9", true),
        ("arp host 10.0.0.1", false),
        ("net 192.168.0.0/16 and src net 10.0.0.0/8", true),
        ("net 0.0.0.0/0", true),
        ("net ::/0", false),
        ("port 80", true),
        ("udp port 80", false),
        ("tcp dst port 80 and src port 1234", true),
        ("ether host 02:00:00:00:00:02", true),
        ("ether src 02:00:00:00:00:02", false),
        ("ether dst host 02:00:00:00:00:02", true),
        ("vlan", false),
        ("portrange 70-90", true),
        ("src portrange 70-90", false),
        ("tcp dst portrange 90-80", true),
        ("udp portrange 70-90", false),
        ("port http and not port ssh", true),
        ("tcp src port http", false),
        ("ip proto 6 and ip proto \\tcp and proto tcp", true),
        ("ip6 proto tcp", false),
        ("multicast or broadcast", false),
        ("ip multicast", false),
        ("greater 55 and less 55 and len == 55", true),
        ("greater 56 or less 54 or len!=55", false),
        ("ip[8] < 65 and ip[8]>=64", true),
        ("tcp[13] & 2 != 0", false),
        ("tcp[tcpflags]&(tcp-syn|tcp-rst) = 0", true),
        ("tcp[2:2] = 80", true),
        ("not udp[0] = 0", true),
        ("(ether[12:2]=0x0800) && len<60", true),
        ("udp or (tcp and not port 443)", true),
        ("tcp or udp and port 53", false), // (tcp or udp) and port 53
        ("tcp or (udp and port 53)", true),
    ] {
        assert_eq!(filter(expression).matches(&tcp), expected, "{expression}");
    }
}

#[test]
fn what_follows_vlan_looks_behind_the_tag() {
    let tagged = frame(Some(5), false);
    assert!(!filter("udp").matches(&tagged));
    assert!(filter("vlan and udp").matches(&tagged));
    assert!(filter("vlan 5 and port 53").matches(&tagged));
    assert!(!filter("vlan 6 or vlan 5").matches(&tagged)); // a tag in the tag
    assert!(filter("udp or vlan").matches(&tagged));
}

#[test]
fn a_frame_that_ends_too_early_matches_nothing() {
    let short = &frame(None, true)[..30];
    assert!(filter("tcp").matches(short));
    assert!(!filter("port 80").matches(short));
    assert!(!filter("not port 80").matches(short));
    assert!(!filter("not tcp").matches(&[]));
}

#[test]
fn later_fragments_have_no_ports() {
    let mut fragment = frame(None, true);
    fragment[21] = 1;
    assert!(filter("tcp and not port 80").matches(&fragment));
}

#[test]
fn errors_point_at_the_word() {
    for (expression, expected) in [
        (
            "tcp prot 80",
            "filter, at `prot` (character 5): expected and, or, or the end of the filter",
        ),
        ("tcp and", "the filter ends too early: expected one of arp"),
        (
            "port nosuch",
            "filter, at `nosuch` (character 6): expected a port number, 0 to 65535",
        ),
        (
            "tcp port ntp",
            "filter, at `ntp` (character 10): this service",
        ),
        (
            "portrange 5",
            "filter, at `5` (character 11): expected two ports",
        ),
        (
            "ip proto what",
            "filter, at `what` (character 10): expected an IP protocol",
        ),
        (
            "ip broadcast",
            "filter, at `broadcast` (character 4): which address",
        ),
        (
            "greater many",
            "filter, at `many` (character 9): expected a length",
        ),
        ("ip[8 < 5", "filter, at `<` (character 6): expected : or ]"),
        (
            "ip[8:3] < 5",
            "filter, at `3` (character 6): expected 1, 2 or 4",
        ),
        (
            "ip[8] 5",
            "filter, at `5` (character 7): expected a comparison",
        ),
        (
            "ip[8] & 1 & 2 = 0",
            "filter, at `&` (character 11): one operator",
        ),
        (
            "ip[8] / 0 = 0",
            "filter, at `0` (character 9): nothing is divided",
        ),
        (
            "tcp[13] & (tcp-syn != 0",
            "filter, at `!=` (character 20): expected | or )",
        ),
        (
            "ip[x] = 0",
            "filter, at `x` (character 4): expected an offset",
        ),
        ("len >", "the filter ends too early: expected a number"),
        (
            "gre[0] = 0",
            "filter, at `gre[0]` (character 1): expected one of arp",
        ),
        ("port 65536", "filter, at `65536`"),
        (
            "host 10.0.0",
            "filter, at `10.0.0` (character 6): expected an IPv4 or IPv6 address",
        ),
        (
            "src foo",
            "filter, at `foo` (character 5): expected host, net, port or an address",
        ),
        (
            "net 10.0.0.0",
            "filter, at `10.0.0.0` (character 5): expected an address and a prefix",
        ),
        (
            "net 10.0.0.1/8",
            "filter, at `10.0.0.1/8` (character 5): the address has bits set",
        ),
        (
            "net fd00::/129",
            "filter, at `fd00::/129` (character 5): the prefix is longer",
        ),
        (
            "ip6 host 10.0.0.1",
            "filter, at `10.0.0.1` (character 10): expected an IPv6 address",
        ),
        (
            "ip port 80",
            "filter, at `port` (character 4): expected and, or",
        ),
        (
            "ip src port 80",
            "filter, at `port` (character 8): ports go with tcp and udp",
        ),
        (
            "tcp src 10.0.0.1",
            "filter, at `10.0.0.1` (character 9): expected port",
        ),
        (
            "vlan 4096",
            "filter, at `4096` (character 6): expected a VLAN id",
        ),
        (
            "ether proto 5",
            "filter, at `proto` (character 7): expected host, src, dst, broadcast",
        ),
        (
            "ether host 1:2",
            "filter, at `1:2` (character 12): expected a MAC address",
        ),
        ("(tcp", "filter, at `(` (character 1): has no ) to it"),
        (
            "(tcp udp)",
            "filter, at `udp` (character 6): expected and, or, or )",
        ),
        (
            "tcp)",
            "filter, at `)` (character 4): expected and, or, or the end",
        ),
        ("!udp&&tcp", "filter, at `udp&&tcp` (character 2)"),
    ] {
        let error = expression.parse::<Filter>().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{expression}: {error}");
    }
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = |n| format!("{}tcp{}", "(".repeat(n), ")".repeat(n)).parse::<Filter>();
    assert!(deep(64).is_ok());
    assert!(deep(65).unwrap_err().to_string().contains("64 parentheses"));
    assert!(filter(&format!("{}udp", "not ".repeat(10_001))).matches(&frame(None, true)));
    let long = format!("{}tcp", "tcp or ".repeat(10_000));
    assert!(
        long.parse::<Filter>()
            .unwrap_err()
            .to_string()
            .contains("longer than 64 KiB")
    );
}

const WORDS: &[&str] = &[
    "arp",
    "ip",
    "ip6",
    "tcp",
    "udp",
    "icmp",
    "host",
    "net",
    "port",
    "src",
    "dst",
    "vlan",
    "ether",
    "and",
    "or",
    "not",
    "(",
    ")",
    "portrange 20-30",
    "ip[2:2]",
    "tcp[13]",
    "len",
    "&",
    "<",
    "!=",
    "[",
    "proto",
    "multicast",
    "greater",
    "10.0.0.1",
    "10.0.0.0/8",
    "::1",
    "80",
    "5",
    "02:00:00:00:00:01",
    "é",
];

proptest! {
    #[test]
    fn never_panics(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..12),
        noise in ".{0,20}", frame: Vec<u8>,
    ) {
        let _ = noise.parse::<Filter>();
        if let Ok(filter) = words.join(" ").parse::<Filter>() {
            let _ = filter.matches(&frame);
        }
    }
}
