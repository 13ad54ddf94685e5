//! The kernel's verifier accepts the programs, and the kernel's answers are the filter's own.

use super::super::sys;
use super::*;
use std::os::fd::AsFd;

const EXPRESSIONS: &[&str] = &[
    "",
    "arp",
    "not arp",
    "ip",
    "ip6",
    "tcp",
    "udp port 53",
    "tcp src port 80",
    "port 53 or arp",
    "not port 53",
    "icmp or icmp6",
    "net 10.0.0.0/8",
    "net 0.0.0.0/0",
    "src net 10.1.0.0/16 and not dst host 10.2.3.5",
    "ip host 10.1.2.3",
    "arp net 10.0.0.0/8",
    "net fc00::/7 or host 2001:db8::1",
    "net ::/0",
    "dst 10.2.3.4 and (udp or tcp) and not (port 80 or port 443)",
    "vlan",
    "vlan 5",
    "vlan 5 and udp port 53",
    "vlan and vlan 7 and ip6",
    "not vlan or arp",
    "ether src 02:00:00:00:00:02",
    "ether host 02:00:00:00:00:01 and not tcp",
];

/// IPv4 with options, as long as `words` says.
fn v4(protocol: u8, words: u8, fragment: u16, ports: [u16; 2]) -> Vec<u8> {
    let mut ip = vec![0; usize::from(words) * 4 + 8];
    ip[0] = 0x40 | words;
    ip[6..8].copy_from_slice(&fragment.to_be_bytes());
    ip[9] = protocol;
    ip[12..20].copy_from_slice(&[10, 1, 2, 3, 10, 2, 3, 4]);
    let l4 = usize::from(words) * 4;
    ip[l4..l4 + 2].copy_from_slice(&ports[0].to_be_bytes());
    ip[l4 + 2..l4 + 4].copy_from_slice(&ports[1].to_be_bytes());
    ip
}

fn v6(next: u8, behind: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut ip = vec![0; 56];
    (ip[0], ip[6]) = (0x60, next);
    ip[8] = 0xfd;
    ip[24..40].copy_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip[40..42].copy_from_slice(&ports[0].to_be_bytes());
    ip[42..44].copy_from_slice(&ports[1].to_be_bytes());
    if behind != 0 {
        ip[40] = behind;
    }
    ip
}

fn ethernet(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02".to_vec();
    for (tag, tpid) in tags.iter().zip([0x8100_u16, 0x88a8, 0x9100]) {
        frame.extend(tpid.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

fn frames() -> Vec<Vec<u8>> {
    let mut payloads = vec![(0x0806, vec![0; 28]), (0x88b5, vec![7; 46])];
    payloads[0].1[14..18].copy_from_slice(&[10, 9, 8, 7]);
    for ports in [[53, 4000], [4000, 53], [80, 443], [9, 9]] {
        for protocol in [1, 6, 17, 132, 50] {
            payloads.push((0x0800, v4(protocol, 5, 0, ports)));
            payloads.push((0x86dd, v6(protocol, 0, ports)));
        }
        payloads.push((0x0800, v4(17, 15, 0x2000, ports)));
        payloads.push((0x0800, v4(17, 5, 0x0010, ports)));
        payloads.push((0x86dd, v6(44, 17, ports)));
        payloads.push((0x86dd, v6(58, 0, ports)));
    }
    let mut frames = Vec::new();
    for (ethertype, payload) in &payloads {
        for tags in [&[][..], &[5], &[0xf005], &[5, 7], &[1, 2, 7]] {
            let frame = ethernet(tags, *ethertype, payload);
            // Whole, and cut at offsets that a test reads.
            for cut in [frame.len(), 24, 30, 35, 36, 53, 54, 56] {
                frames.push(frame[..cut.min(frame.len())].to_vec());
            }
        }
    }
    frames.sort();
    frames.dedup();
    frames
}

#[test]
fn the_kernel_runs_a_filter_as_the_filter_runs_itself() {
    let trial: Filter = "arp".parse().unwrap();
    if sys::load_program(&assemble(&trial, Verdict::Drop).unwrap()).is_err() {
        linerate_testkit::skip("af_xdp: needs CAP_BPF and CAP_NET_ADMIN to load programs");
        return;
    }
    let frames = frames();
    for expression in EXPRESSIONS {
        let filter: Filter = expression.parse().unwrap();
        let insns = assemble(&filter, Verdict::Drop).unwrap();
        let program =
            sys::load_program(&insns).unwrap_or_else(|error| panic!("`{expression}`: {error}"));
        let mut passed = 0;
        for frame in &frames {
            let verdict = sys::test_run(program.as_fd(), frame, 1, 0, &[]).unwrap();
            assert_eq!(
                verdict == 1,
                filter.matches(frame),
                "`{expression}` on {frame:02x?}"
            );
            passed += u32::from(verdict == 1);
        }
        assert!(
            passed > 0,
            "`{expression}` matches none of the test's frames"
        );
    }
}

#[test]
fn filters_that_the_kernel_cannot_run_are_errors() {
    let many = ["vlan"; 9].join(" and ") + " and ip";
    assert!(
        assemble(&many.parse().unwrap(), Verdict::Drop)
            .unwrap_err()
            .contains("VLAN tags")
    );
    let long = vec!["port 1"; 2000].join(" or ");
    assert!(
        assemble(&long.parse().unwrap(), Verdict::Drop)
            .unwrap_err()
            .contains("instructions")
    );
}

#[test]
fn without_a_filter_nothing_of_the_frame_is_looked_at() {
    let insns = assemble(&"".parse().unwrap(), Verdict::ToSocket { map: 3 }).unwrap();
    assert_eq!(insns.len(), 7);
}

#[test]
fn a_refused_program_shows_what_the_verifier_says() {
    let bad = [Insn {
        code: 0x95,
        registers: 0,
        offset: 0,
        imm: 0,
    }];
    let error = sys::load_program(&bad).unwrap_err();
    if error.raw_os_error() == Some(1) {
        linerate_testkit::skip("af_xdp: needs CAP_BPF and CAP_NET_ADMIN to load programs");
        return;
    }
    assert!(error.to_string().contains("R0 !read_ok"), "{error}");
}

#[test]
fn what_the_kernel_is_not_asked_to_compare_is_refused() {
    for expression in [
        "portrange 1-5",
        "greater 100",
        "ip[8] < 5",
        "udp or multicast",
    ] {
        let filter: Filter = expression.parse().unwrap();
        let refused = assemble(&filter, Verdict::Drop).unwrap_err();
        assert!(refused.contains("in the kernel"), "{expression}: {refused}");
    }
}
