//! What we find in real and deliberately broken frames, and through the tunnels in them, against
//! what tshark finds.

use std::{fs, net::IpAddr, path::Path, process::Command};

use linerate_testkit::{Scratch, capture, ethernet_frames, has};
use linerate_wire::{
    FlowKey, Headers, parse, parse_tunnelled, protocol,
    tunnel::{TunnelKind, Tunnelled},
};

/// Fields of tshark's, each with all its occurrences in a frame.
const FIELDS: &[&str] = &[
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
    "sctp.srcport",
    "sctp.dstport",
    "ip.dsfield.dscp",
    "tcp.flags",
    "icmp.type",
    "icmp.code",
    "icmpv6.type",
    "icmpv6.code",
    "vxlan.vni",
    "geneve.vni",
    "gre.key",
    "gtp.teid",
    "vlan.id",
    "ieee8021ad.id",
];

/// Tunnels that tshark gives a name, and the field with their number.
const TUNNELS: &[(TunnelKind, &str, Option<&str>)] = &[
    (TunnelKind::Vxlan, "vxlan", Some("vxlan.vni")),
    (TunnelKind::Geneve, "geneve", Some("geneve.vni")),
    (TunnelKind::Gre, "gre", Some("gre.key")),
    (TunnelKind::Gtpu, "gtp", Some("gtp.teid")),
    (TunnelKind::Mpls, "mpls", None), // it shows all labels, we the last
];

/// Headers that we do not know but tshark does, and which tunnels may stand behind.
const UNKNOWN: &[&str] = &["cmd", "avsp", "nsh"];

/// Our answers, in the order of [`FIELDS`].
struct Answers(Vec<Vec<String>>);

impl Answers {
    fn put(&mut self, field: &str, value: impl ToString) {
        let at = FIELDS.iter().position(|known| *known == field);
        let at = at.expect("a field that is asked for");
        self.0[at].push(value.to_string());
    }

    fn add_packet(&mut self, frame: &[u8], headers: &Headers) {
        let Some(key) = headers.flow_key(frame) else {
            return;
        };
        let (src, dst): (IpAddr, IpAddr) = match key {
            FlowKey::V4(key) => (key.src().into(), key.dst().into()),
            FlowKey::V6(key) => (key.src().into(), key.dst().into()),
        };
        let version = if src.is_ipv4() { "ip" } else { "ipv6" };
        self.put(&format!("{version}.src"), src);
        self.put(&format!("{version}.dst"), dst);
        if src.is_ipv4() {
            self.put("ip.dsfield.dscp", headers.dscp(frame).expect("it is IPv4"));
        }
        if let Some((src, dst)) = headers.ports {
            let layer = match headers.protocol {
                Some(protocol::TCP) => "tcp",
                Some(protocol::UDP) => "udp",
                _ => "sctp",
            };
            self.put(&format!("{layer}.srcport"), src);
            self.put(&format!("{layer}.dstport"), dst);
        }
    }

    fn of(frame: &[u8], found: &Tunnelled) -> Answers {
        let mut answers = Answers(vec![vec![]; FIELDS.len()]);
        answers.add_packet(frame, &found.outer);
        for tunnel in found.tunnels() {
            let known = TUNNELS.iter().find(|known| known.0 == tunnel.kind);
            if let (Some((.., Some(field))), Some(id)) = (known, tunnel.id) {
                answers.put(field, id);
            }
            if let Some(inner) = &tunnel.inner {
                answers.add_packet(frame, inner);
            }
        }
        let last = found.innermost();
        // tshark does not show those of half a header.
        let whole = last.l4.is_some_and(|l4| last.end - l4 >= 8);
        if let (Some((kind, code)), true) = (last.icmp_type_code(frame), whole) {
            let layer = if last.protocol == Some(protocol::ICMP) {
                "icmp"
            } else {
                "icmpv6"
            };
            answers.put(&format!("{layer}.type"), kind);
            answers.put(&format!("{layer}.code"), code);
        }
        if let Some(flags) = last.tcp_flags(frame) {
            answers.put("tcp.flags", flags);
        }
        if let Ok(Some(quoted)) = last.quoted(frame) {
            answers.add_packet(frame, &quoted);
        }
        if let Some(tci) = found.outer.outer_tci {
            let field = match frame[12..14] {
                [0x88, 0xa8] => "ieee8021ad.id",
                _ => "vlan.id",
            };
            answers.put(field, tci & 0xfff);
        }
        answers
    }
}

/// tshark's value as ours: it writes some numbers in hexadecimal.
fn plain(field: &str, value: &str) -> String {
    match value
        .strip_prefix("0x")
        .map(|hex| u64::from_str_radix(hex, 16).expect("hexadecimal"))
    {
        // With the bits above the eight flags.
        Some(flags) if field == "tcp.flags" => (flags & 0xff).to_string(),
        Some(number) => number.to_string(),
        None => value.to_string(),
    }
}

/// A line a frame: its protocols, and then the [`FIELDS`], with tabs between.
fn ask_tshark(capture: &Path) -> String {
    let mut tshark = Command::new("tshark");
    tshark.arg("-nr").arg(capture);
    // Frame by frame; and no tunnels on ports that are not theirs (MPLS, an old one of VXLAN's).
    for option in ["ip.defragment:FALSE", "ipv6.defragment:FALSE"] {
        tshark.args(["-o", option]);
    }
    for port in ["udp.port==6635,data", "udp.port==8472,data"] {
        tshark.args(["-d", port]);
    }
    tshark.args(["-T", "fields", "-E", "occurrence=a"]);
    for field in ["frame.protocols"].iter().chain(FIELDS) {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).expect("tshark writes text")
}

#[test]
fn the_parser_agrees_with_tshark() {
    if !has(&["tshark"]) {
        return;
    }
    let Some(mut frames) = ethernet_frames() else {
        return;
    };
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tunnels");
    let seeds = fs::read_dir(seeds).unwrap();
    frames.extend(seeds.map(|seed| fs::read(seed.unwrap().path()).unwrap()));
    let folder = Scratch::new();
    let all = folder.path().join("all.pcap");
    fs::write(&all, capture::pcap(&frames)).unwrap();
    let text = ask_tshark(&all);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), frames.len());

    let (mut wrong, mut tunnels, mut compared) = (0, 0, 0);
    for (number, (frame, line)) in frames.iter().zip(lines).enumerate() {
        let Ok(found) = parse_tunnelled(frame) else {
            continue;
        };
        compared += 1;
        tunnels += found.tunnels().count();
        let ours = Answers::of(frame, &found);
        let (protocols, theirs) = line.split_once('\t').unwrap();
        let in_sight = found.stopped.is_none()
            && !found.innermost().is_fragment
            && !UNKNOWN.iter().any(|name| protocols.contains(name));
        // They look into more than we do, but not at other things; and we miss no tunnel.
        let mut differ = |what: &str, ours: &[String], theirs: &[String], all: bool| {
            let complete = !(all && in_sight) || ours.len() == theirs.len();
            if !theirs.starts_with(ours) || !complete {
                wrong += 1;
                println!("frame {number} {protocols}: {what} {ours:?}, by tshark {theirs:?}");
            }
        };
        for ((field, theirs), ours) in FIELDS.iter().zip(theirs.split('\t')).zip(&ours.0) {
            let values = theirs.split(',').filter(|value| !value.is_empty());
            let theirs: Vec<_> = values.map(|value| plain(field, value)).collect();
            let is_id = TUNNELS.iter().any(|(.., id)| *id == Some(*field));
            differ(field, ours, &theirs, is_id);
        }
        let named = |name: &str| TUNNELS.iter().any(|(_, known, _)| *known == name);
        let theirs: Vec<_> = protocols
            .split(':')
            .filter(|name| named(name))
            .map(str::to_string)
            .collect();
        let ours: Vec<_> = found
            .tunnels()
            .filter_map(|tunnel| TUNNELS.iter().find(|(kind, ..)| *kind == tunnel.kind))
            .map(|(_, name, _)| name.to_string())
            .collect();
        differ("tunnels", &ours, &theirs, true);
    }
    println!("{compared} frames, {tunnels} tunnels");
    assert_eq!(wrong, 0, "fields that differ from tshark's; see above");
}

#[test]
fn lengths_and_checksums_of_all_frames_are_right() {
    let Some(frames) = ethernet_frames() else {
        return;
    };
    for frame in &frames {
        for len in 0..=frame.len().min(300) {
            let frame = &frame[..len];
            let Ok(found) = parse_tunnelled(frame) else {
                continue;
            };
            assert_eq!(parse(frame), Ok(found.outer));
            let mut around = found.outer;
            for tunnel in found.tunnels() {
                assert!(around.l3 <= tunnel.header && tunnel.header <= around.end);
                if let Some(inner) = tunnel.inner {
                    assert!(tunnel.header <= inner.l3 && inner.l3 <= inner.end);
                    assert!(inner.end <= around.end);
                    around = inner;
                }
            }
            if let Ok(Some(quoted)) = around.quoted(frame) {
                assert!(around.l4.unwrap() < quoted.l3 && quoted.end <= around.end);
            }
        }
    }
}
