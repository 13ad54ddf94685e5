//! One stream of every kind of frame, through `linerate pktgen` into a file, and decoded by tshark
//! with all checksums checked.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use linerate_core::env::PrivateFolder;

/// Frames of each stream.
const FRAMES: usize = 4;

/// A stream, what tshark calls the layers of its frames, and for some fields their values: of each
/// frame all, with commas between; with spaces between frames.
struct Case {
    line: &'static str,
    layers: &'static str,
    fields: &'static [(&'static str, &'static str)],
}

const fn case(
    line: &'static str,
    layers: &'static str,
    fields: &'static [(&'static str, &'static str)],
) -> Case {
    Case {
        line,
        layers,
        fields,
    }
}

const CASES: &[Case] = &[
    case(
        "udp dst=198.19.0.1-198.19.0.254 sport=1024-65535/3 dport=20000-20001 ttl=64,128,255",
        "eth:ethertype:ip:udp:data",
        &[
            ("ip.src", "198.18.0.1 198.18.0.1 198.18.0.1 198.18.0.1"),
            ("ip.dst", "198.19.0.1 198.19.0.2 198.19.0.3 198.19.0.4"),
            ("udp.srcport", "1024 1027 1030 1033"),
            ("udp.dstport", "20000 20001 20000 20001"),
            ("ip.ttl", "64 128 255 64"),
            ("frame.len", "60 60 60 60"),
            ("ip.len", "46 46 46 46"),
        ],
    ),
    case(
        "udp dport=20000 size=64-1518/7 dscp=0-63/20 ecn=0-3 ip_id=1-9",
        "eth:ethertype:ip:udp:data",
        &[
            ("frame.len", "60 67 74 81"),
            ("udp.length", "26 33 40 47"),
            ("ip.dsfield.dscp", "0 20 40 60"),
            ("ip.dsfield.ecn", "0 1 2 3"),
            ("ip.id", "0x0001 0x0002 0x0003 0x0004"),
        ],
    ),
    case(
        "udp dport=20000 size=imix:68*7,570*4,1518*1 payload=abc vlan=100.5-200.5/50",
        "eth:ethertype:vlan:ethertype:ip:udp:data",
        &[("vlan.id", "100 150 200 100"), ("vlan.priority", "5 5 5 5")],
    ),
    case(
        "udp dport=20000 vlan=7 inner_vlan=8-9 size=72 payload=random",
        "eth:ethertype:ieee8021ad:ethertype:vlan:ethertype:ip:udp:data",
        &[("ieee8021ad.id", "7 7 7 7"), ("vlan.id", "8 9 8 9")],
    ),
    case(
        "udp src=random dst=random:10.0.0.0/8 sport=random dport=random:20000-20999 \
         size=random:64-1518",
        "eth:ethertype:ip:udp:data",
        &[],
    ),
    case(
        "udp dport=20000 signature=off payload=inc",
        "eth:ethertype:ip:udp:data",
        &[],
    ),
    case(
        "tcp sport=30000 dport=20000-20009 flags=S,SA,FPU,0 seq=4294967290-4294967295/5 ack=0-9/3",
        "eth:ethertype:ip:tcp:data",
        &[
            ("tcp.dstport", "20000 20001 20002 20003"),
            ("tcp.flags", "0x0002 0x0012 0x0029 0x0000"),
            ("tcp.seq_raw", "4294967290 4294967295 4294967290 4294967295"),
            ("tcp.ack_raw", "0 3 6 9"),
        ],
    ),
    case(
        "icmp icmp_id=7 icmp_seq=1-9 size=65",
        "eth:ethertype:ip:icmp:data",
        &[("icmp.type", "8 8 8 8"), ("icmp.ident", "7 7 7 7")],
    ),
    case(
        "icmp icmp_type=0",
        "eth:ethertype:ip:icmp:data",
        &[("icmp.type", "0 0 0 0")],
    ),
    case(
        "ipv4 proto=253-254",
        "eth:ethertype:ip:data",
        &[("ip.proto", "253 254 253 254")],
    ),
    case(
        "udp6 dport=20000 dst=2001:2::1-2001:2::ff flow_label=5-6 dscp=46,0 ttl=9 size=84-85",
        "eth:ethertype:ipv6:udp:data",
        &[
            ("ipv6.dst", "2001:2::1 2001:2::2 2001:2::3 2001:2::4"),
            ("ipv6.src", "2001:2::1 2001:2::1 2001:2::1 2001:2::1"),
            ("ipv6.hlim", "9 9 9 9"),
            ("ipv6.plen", "26 27 26 27"),
            ("ipv6.flow", "0x000005 0x000006 0x000005 0x000006"),
            ("ipv6.tclass.dscp", "46 0 46 0"),
        ],
    ),
    case(
        "udp6 src=random dst=random:2001:2::/48 sport=random dport=random:20000-20999 \
         size=random:84-1518",
        "eth:ethertype:ipv6:udp:data",
        &[],
    ),
    case(
        "tcp6 dport=20000 sport=30000-30009 vlan=5",
        "eth:ethertype:vlan:ethertype:ipv6:tcp:data",
        &[("tcp.srcport", "30000 30001 30002 30003")],
    ),
    case(
        "icmp6 icmp_seq=1-9 size=91",
        "eth:ethertype:ipv6:icmpv6:data",
        &[
            ("icmpv6.type", "128 128 128 128"),
            ("icmpv6.echo.sequence_number", "1 2 3 4"),
        ],
    ),
    case(
        "ipv6 proto=253",
        "eth:ethertype:ipv6:data",
        &[("ipv6.nxt", "253 253 253 253")],
    ),
    case(
        "eth ethertype=0x88b5-0x88b6 src_mac=02:00:00:00:00:01-02:00:00:00:00:03",
        "eth:ethertype:data",
        &[
            ("eth.type", "0x88b5 0x88b6 0x88b5 0x88b6"),
            (
                "eth.src",
                "02:00:00:00:00:01 02:00:00:00:00:02 02:00:00:00:00:03 02:00:00:00:00:01",
            ),
        ],
    ),
    case(
        "arp src=198.18.0.1-198.18.0.9 dst=198.19.0.0/24",
        "eth:ethertype:arp",
        &[
            ("arp.opcode", "1 1 1 1"),
            (
                "arp.src.proto_ipv4",
                "198.18.0.1 198.18.0.2 198.18.0.3 198.18.0.4",
            ),
            (
                "arp.dst.proto_ipv4",
                "198.19.0.1 198.19.0.2 198.19.0.3 198.19.0.4",
            ),
        ],
    ),
    case(
        "arp arp_op=2 src=198.18.0.11-198.18.0.12 src_mac=02:00:00:00:00:05-02:00:00:00:00:06",
        "eth:ethertype:arp",
        &[
            ("arp.opcode", "2 2 2 2"),
            (
                "arp.src.hw_mac",
                "02:00:00:00:00:05 02:00:00:00:00:06 02:00:00:00:00:05 02:00:00:00:00:06",
            ),
        ],
    ),
    case(
        "udp vxlan=5-6 outer_sport=50000-50009 dport=20000 dst=198.19.0.1-198.19.0.3 size=120-121",
        "eth:ethertype:ip:udp:vxlan:eth:ethertype:ip:udp:data",
        &[
            ("vxlan.vni", "5 6 5 6"),
            ("udp.dstport", "4789,20000 4789,20000 4789,20000 4789,20000"),
            ("udp.srcport", "50000,1024 50001,1024 50002,1024 50003,1024"),
            (
                "ip.dst",
                "198.19.0.1,198.19.0.1 198.19.0.1,198.19.0.2 198.19.0.1,198.19.0.3 \
                 198.19.0.1,198.19.0.1",
            ),
        ],
    ),
    case(
        "tcp6 vxlan=7 outer_src=2001:2::1-2001:2::9 outer_dst=2001:2::f outer_vlan=9 seq=0-9 \
         sport=30000 dport=20000",
        "eth:ethertype:vlan:ethertype:ipv6:udp:vxlan:eth:ethertype:ipv6:tcp:data",
        &[("vxlan.vni", "7 7 7 7"), ("tcp.seq_raw", "0 1 2 3")],
    ),
    case(
        "icmp vxlan=8 outer_src=2001:2::1 outer_dst=random icmp_seq=random src=random \
         size=random:200-300",
        "eth:ethertype:ipv6:udp:vxlan:eth:ethertype:ip:icmp:data",
        &[],
    ),
    case(
        "arp vxlan=9 outer_src=198.18.0.7",
        "eth:ethertype:ip:udp:vxlan:eth:ethertype:arp",
        &[("arp.opcode", "1 1 1 1")],
    ),
    case(
        "udp mpls=100-101 vlan=7 dport=20000 sport=20001 size=80-81",
        "eth:ethertype:vlan:ethertype:mpls:ip:udp:data",
        &[
            ("mpls.label", "100 101 100 101"),
            ("mpls.bottom", "1 1 1 1"),
            ("mpls.ttl", "64 64 64 64"),
            ("vlan.id", "7 7 7 7"),
        ],
    ),
    case(
        "tcp6 mpls=16 inner_mpls=1000-1009 sport=30000 dport=20000",
        "eth:ethertype:mpls:ipv6:tcp:data",
        &[
            ("mpls.label", "16,1000 16,1001 16,1002 16,1003"),
            ("mpls.bottom", "0,1 0,1 0,1 0,1"),
        ],
    ),
    case(
        "udp gre=7-8 outer_dst=198.19.0.1-198.19.0.3 outer_ttl=9 sport=20000 dport=20001 \
         size=100-101",
        "eth:ethertype:ip:gre:ip:udp:data",
        &[
            ("gre.key", "0x00000007 0x00000008 0x00000007 0x00000008"),
            ("gre.proto", "0x0800 0x0800 0x0800 0x0800"),
            ("ip.ttl", "9,64 9,64 9,64 9,64"),
            (
                "ip.dst",
                "198.19.0.1,198.19.0.1 198.19.0.2,198.19.0.1 198.19.0.3,198.19.0.1 \
                 198.19.0.1,198.19.0.1",
            ),
        ],
    ),
    case(
        "tcp6 gre=random outer_src=2001:2::1 outer_vlan=9 seq=0-9 sport=30000 dport=20000",
        "eth:ethertype:vlan:ethertype:ipv6:gre:ipv6:tcp:data",
        &[
            ("tcp.seq_raw", "0 1 2 3"),
            ("gre.proto", "0x86dd 0x86dd 0x86dd 0x86dd"),
        ],
    ),
    case(
        "arp gre=9",
        "eth:ethertype:ip:gre:eth:ethertype:arp",
        &[
            ("arp.opcode", "1 1 1 1"),
            ("gre.proto", "0x6558 0x6558 0x6558 0x6558"),
        ],
    ),
    case(
        "udp gtpu=5-6 outer_sport=2152 dport=20000 sport=20001 src=198.18.0.1-198.18.0.4 \
         size=random:120-200",
        "eth:ethertype:ip:udp:gtp:ip:udp:data",
        &[
            ("gtp.teid", "0x00000005 0x00000006 0x00000005 0x00000006"),
            ("gtp.message", "0xff 0xff 0xff 0xff"),
            ("udp.dstport", "2152,20000 2152,20000 2152,20000 2152,20000"),
        ],
    ),
    case(
        "icmp6 gtpu=7 outer_src=2001:2::1 icmp_seq=1-9",
        "eth:ethertype:ipv6:udp:gtp:ipv6:icmpv6:data",
        &[("gtp.teid", "0x00000007 0x00000007 0x00000007 0x00000007")],
    ),
];

/// tshark's number of a warning (`PI_WARN`); those of errors are larger.
const WARNING: u32 = 0x60_0000;

/// The destination that tells a stream's frames: number `number`.
fn address(number: usize) -> String {
    format!("02:00:00:00:02:{number:02x}")
}

/// Sends all streams into `capture`.
fn generate(capture: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.arg("pktgen").arg("-p");
    command.arg(format!("pcap:tx={}", capture.display()));
    command.args(["--duration", "5", "--json", "--seed", "1"]);
    for (number, case) in CASES.iter().enumerate() {
        let in_tunnel = ["vxlan=", "gre=", "gtpu="]
            .iter()
            .any(|key| case.line.contains(key));
        let outer = if in_tunnel { "outer_" } else { "" };
        let line = format!(
            "{} count={FRAMES} {outer}dst_mac={}",
            case.line,
            address(number)
        );
        command.args(["-s", &line]);
    }
    let output = command.output().expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

#[test]
fn the_dissector_reads_what_was_signed() {
    if Command::new("tshark").arg("--version").output().is_err() {
        linerate_testkit::skip("the dissector in tshark: no tshark; apt install tshark");
        return;
    }
    let folder = PrivateFolder::new("dissector").unwrap();
    let (capture, script) = (folder.join("all.pcapng"), folder.join("linerate.lua"));
    let linerate = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        let output = command.arg("pktgen").args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        output.stdout
    };
    std::fs::write(&script, linerate(&["--print", "dissector"])).unwrap();
    let port = format!("pcap:tx={}", capture.display());
    let streams = [
        "size=64-70 count=3",
        "tcp6 vxlan=5 count=2",
        "signature=off count=2",
    ];
    let mut args = vec!["-p", &*port, "--json", "--session", "4242"];
    for stream in &streams {
        args.extend(["-s", stream]);
    }
    linerate(&args);

    let mut tshark = Command::new("tshark");
    tshark.arg("-nr").arg(&capture).arg("-X");
    tshark.arg(format!("lua_script:{}", script.display()));
    // Root's scripts are not run by some builds unless they are told to.
    tshark.args(["-T", "fields", "-Y", "linerate"]);
    for field in ["session", "stream", "sequence"] {
        tshark.args(["-e", &format!("linerate.{field}")]);
    }
    let output = tshark.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !stderr.contains("Lua"),
        "{stderr}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let expected = [
        "4242\t0\t0",
        "4242\t0\t1",
        "4242\t0\t2",
        "4242\t1\t0",
        "4242\t1\t1",
    ];
    assert_eq!(lines, expected, "{stderr}");
}

/// Of each stream, of each frame, of each field, all values with commas between.
fn decode(capture: &Path, fields: &[&str]) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-nr").arg(capture);
    for option in [
        "ip.check_checksum:TRUE",
        "udp.check_checksum:TRUE",
        "tcp.check_checksum:TRUE",
        "tcp.analyze_sequence_numbers:FALSE",
    ] {
        tshark.args(["-o", option]);
    }
    tshark.args(["-T", "fields", "-E", "occurrence=a", "-e", "eth.dst"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let mut streams = BTreeMap::<_, Vec<_>>::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut values = line.split('\t').map(String::from);
        let dst = values.next().unwrap();
        let outermost = dst.split(',').next().unwrap().to_string();
        streams.entry(outermost).or_default().push(values.collect());
    }
    streams
}

#[test]
fn tshark_finds_every_kind_of_frame_as_it_was_asked_for() {
    if Command::new("tshark").arg("--version").output().is_err() {
        linerate_testkit::skip("generated frames against tshark: no tshark; apt install tshark");
        return;
    }
    let folder = PrivateFolder::new("pktgen").unwrap();
    let capture = folder.join("all.pcapng");
    generate(&capture);

    let statuses =
        ["ip", "udp", "tcp", "icmp", "icmpv6"].map(|layer| format!("{layer}.checksum.status"));
    let mut asked: Vec<&str> = vec![
        "frame.protocols",
        "_ws.expert.message",
        "_ws.expert.severity",
    ];
    asked.extend(statuses.iter().map(String::as_str));
    let known = asked.len();
    for (field, _) in CASES.iter().flat_map(|case| case.fields) {
        if !asked.contains(field) {
            asked.push(field);
        }
    }
    let streams = decode(&capture, &asked);

    let mut wrong = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let frames = streams.get(&address(number)).cloned().unwrap_or_default();
        if frames.len() != FRAMES {
            wrong.push(format!(
                "{}: {} frames of {FRAMES}",
                case.line,
                frames.len()
            ));
        }
        for (at, frame) in frames.iter().enumerate() {
            // Chats and notes say what is unusual, and warnings and errors what is wrong.
            let is_bad = |severity: &str| {
                severity
                    .parse()
                    .is_ok_and(|severity: u32| severity >= WARNING)
            };
            if frame[0] != case.layers || frame[2].split(',').any(is_bad) {
                wrong.push(format!(
                    "{}: frame {at} is {}; {}",
                    case.line, frame[0], frame[1]
                ));
            }
            for (layer, status) in statuses.iter().zip(&frame[3..known]) {
                // 0 bad, 1 good, 3 not present: VXLAN's over IPv4.
                let good =
                    |status: &str| status == "1" || status == "3" && layer.starts_with("udp");
                if !status.is_empty() && !status.split(',').all(good) {
                    wrong.push(format!("{}: {layer} of frame {at} is {status}", case.line));
                }
            }
        }
        for (field, wanted) in case.fields {
            let column = asked.iter().position(|asked| asked == field).unwrap();
            let found: Vec<_> = frames.iter().map(|frame| frame[column].as_str()).collect();
            if found.join(" ") != *wanted {
                wrong.push(format!("{}: {field} is {}", case.line, found.join(" ")));
            }
        }
    }
    println!("{} kinds of frame decoded", CASES.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
