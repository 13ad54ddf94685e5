//! Our filters against tcpdump's, over real and deliberately broken frames.

#![allow(clippy::unwrap_used)] // a test

use std::process::Command;

use etherparse::PacketBuilder;
use linerate_testkit::{Scratch, capture, ethernet_frames, has};
use linerate_wire::filter::Filter;

const EXPRESSIONS: &[&str] = &[
    "arp",
    "ip",
    "ip6",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "not tcp",
    "not (ip or ip6 or arp)",
    "tcp or udp and port 53",
    "port 53",
    "src port 53",
    "dst port 443",
    "tcp port 80",
    "udp src port 123",
    "not port 22",
    "host 192.168.0.1",
    "not host 192.168.0.1",
    "net 10.0.0.0/8",
    "src net 192.168.0.0/16 and not dst net 224.0.0.0/4",
    "dst net 224.0.0.0/4",
    "ip net 0.0.0.0/0",
    "arp net 0.0.0.0/0",
    "net ::/0",
    "ip6 net fe80::/10",
    "dst net ff02::/16",
    "ip and net 128.0.0.0/1",
    "ether dst ff:ff:ff:ff:ff:ff",
    "ether host 01:80:c2:00:00:00",
    "vlan",
    "not vlan",
    "vlan and ip",
    "vlan and tcp port 443",
    "vlan and not tcp",
    "vlan and (port 53 or src port 443 or icmp)",
    "ip or vlan and tcp",
    "vlan and vlan",
    "vlan 100",
    "tcp and (port 80 or port 443) or udp and (dst port 53)",
    "! arp && ! ip6 || udp",
    "portrange 1-1024",
    "src portrange 1000-60000",
    "dst portrange 443-53",
    "tcp portrange 20-100",
    "udp dst portrange 50-60",
    "not portrange 0-1023",
    "vlan and portrange 1-1024",
    "port domain",
    "tcp port http",
    "port https",
    "port ssh or port ntp or udp port bootps",
    "port snmp",
    "greater 100",
    "less 60",
    "not greater 61",
    "len > 200",
    "len <= 64",
    "ip proto 17",
    "ip proto \\tcp",
    "ip6 proto 17",
    "ip6 proto \\tcp",
    "proto 1",
    "ip proto 50",
    "sctp",
    "igmp",
    "esp or ah",
    "broadcast",
    "multicast",
    "ether broadcast",
    "ether multicast and not broadcast",
    "ip multicast",
    "ip6 multicast",
    "not ip multicast",
    "ip[8] < 5",
    "ip[8] >= 64",
    "not ip[8] = 64",
    "ip[0] & 0xf != 5",
    "ip[6:2] & 0x1fff != 0",
    "ip[2:2] > 500",
    "ip[12:4] = 0xc0a80001",
    "ip6[6] = 58",
    "ip6[7] < 0377",
    "tcp[13] & 2 != 0",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "not tcp[tcpflags] & tcp-ack = 0",
    "tcp[2:2]=443 or udp[2:2]=53",
    "udp[4:2] - 8 > 100",
    "udp[4:2] / 2 < 40",
    "udp[4:2] << 1 >= 100",
    "udp[4:2] >> 4 = 3",
    "udp[4:2] + 10 = 50",
    "udp[4:2] * 2 = 80",
    "udp[4:2] | 1 = 41",
    "icmp[icmptype] = icmp-echo",
    "icmp[icmptype] != icmp-echo and icmp[icmpcode] = 1",
    "icmp6[icmp6type] = icmp6-neighborsolicit",
    "arp[6:2] = 1",
    "ether[0] & 1 = 0 and ether[12:2] = 0x86dd",
    "vlan and ip[9] = 6",
    "vlan and tcp[13] & 0x10 != 0",
    "tcp[1000] = 0",
    "not tcp[1000] = 0",
];

#[test]
fn filters_pass_the_frames_that_tcpdump_passes() {
    if !has(&["tcpdump"]) {
        return;
    }
    if let Some(frames) = ethernet_frames() {
        compare(&frames);
    }
}

/// The same over frames made here, for machines without captures.
#[test]
fn filters_pass_the_made_frames_that_tcpdump_passes() {
    if has(&["tcpdump"]) {
        compare(&made());
    }
}

/// Frames of all kinds that filters ask for.
fn made() -> Vec<Vec<u8>> {
    let mut whole = Vec::new();
    let v4 = |group: bool| {
        let to = if group {
            [224, 0, 0, 9]
        } else {
            [192, 168, 0, 1]
        };
        let mac = if group { [1, 0, 0x5e, 0, 0, 9] } else { [2; 6] };
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], mac).ipv4([10, 0, 0, 1], to, 64)
    };
    let v6 = |group: bool| {
        let mut to = [0; 16];
        to[0] = if group { 0xff } else { 0xfd };
        let mac = if group {
            [0x33, 0x33, 0, 0, 0, 1]
        } else {
            [2; 6]
        };
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], mac).ipv6([0xfe; 16], to, 3)
    };
    for group in [false, true] {
        for port in [22, 53, 80, 123, 443, 1024, 2000] {
            for bytes in [0, 20, 100, 600] {
                let payload = vec![7; bytes];
                let [mut a, mut b, mut c, mut d] = [const { Vec::new() }; 4];
                v4(group).udp(port, 53).write(&mut a, &payload).unwrap();
                v6(group).udp(40_000, port).write(&mut b, &payload).unwrap();
                let syn = v4(group).tcp(port, 443, 1, 1);
                let syn = if bytes < 50 {
                    syn.syn()
                } else {
                    syn.ack(1).fin()
                };
                syn.write(&mut c, &payload).unwrap();
                v6(group)
                    .tcp(2000, port, 1, 1)
                    .write(&mut d, &payload)
                    .unwrap();
                whole.extend([a, b, c, d]);
            }
        }
        let [mut a, mut b] = [const { Vec::new() }; 2];
        v4(group)
            .icmpv4_echo_request(1, 2)
            .write(&mut a, b"ping")
            .unwrap();
        v6(group)
            .icmpv6_echo_request(1, 2)
            .write(&mut b, b"ping")
            .unwrap();
        whole.extend([a, b]);
    }
    // Fragments, options, short times to live, other protocols, ARP and broadcast: by hand.
    let plain = whole[2].clone();
    for (at, value) in [
        (20, 0x20),
        (21, 9),
        (22, 3),
        (23, 50),
        (23, 51),
        (23, 2),
        (23, 132),
    ] {
        let mut other = plain.clone();
        other[at] = value;
        whole.push(other);
    }
    let mut options = plain.clone();
    options[14] = 0x46;
    options.splice(34..34, [1; 4]);
    let mut arp = plain[..42].to_vec();
    arp[..6].fill(0xff);
    arp[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    whole.extend([options, arp]);
    // Each tagged, too.
    for frame in whole.clone() {
        let tag = [0x81, 0, 0, 100];
        whole.push([&frame[..12], &tag, &frame[12..]].concat());
    }
    whole
}

/// Has tcpdump and us read the same frames by all expressions.
fn compare(frames: &[Vec<u8>]) {
    let folder = Scratch::new();
    let all = folder.path().join("all.pcap");
    std::fs::write(&all, capture::pcap(frames)).unwrap();

    let passed = folder.path().join("passed.pcap");
    let mut wrong = 0;
    for expression in EXPRESSIONS {
        // -Z root: do not change the user, which would lose the right to write here.
        let mut tcpdump = Command::new("tcpdump");
        tcpdump
            .args(["-Z", "root", "-r"])
            .arg(&all)
            .arg("-w")
            .arg(&passed)
            .arg(expression);
        let output = tcpdump.output().unwrap();
        assert!(
            output.status.success(),
            "{expression}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let theirs = capture::packets(&passed).into_iter();
        let theirs: Vec<_> = theirs.map(|(_, frame)| frame).collect();
        let filter: Filter = expression.parse().unwrap();
        let ours: Vec<_> = frames
            .iter()
            .filter(|frame| filter.matches(frame))
            .cloned()
            .collect();
        println!(
            "{expression}: tcpdump {} linerate {}",
            theirs.len(),
            ours.len()
        );
        if ours != theirs {
            wrong += 1;
            let first = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            println!("  differ, first at {first:?} of those passed");
        }
    }
    assert_eq!(wrong, 0, "filters that differ from tcpdump; see above");
}
