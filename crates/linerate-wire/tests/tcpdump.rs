//! Our filters against tcpdump's, over real and deliberately broken frames.

mod captures;

use std::process::Command;

use captures::{all_frames, ethernet_frames, has_tool, write_pcap};
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
];

#[test]
fn filters_pass_the_frames_that_tcpdump_passes() {
    const TEST: &str = "filters against tcpdump";
    if !has_tool(TEST, "tcpdump") {
        return;
    }
    let Some((frames, folder)) = all_frames(TEST) else {
        return;
    };
    let all = folder.join("all.pcap");
    write_pcap(&all, &frames);

    let passed = folder.join("passed.pcap");
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
        let mut theirs = Vec::new();
        ethernet_frames(&passed, &mut theirs);
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
