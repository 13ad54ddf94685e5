//! Byte for byte as the kernel forwards: the same packets go through a twin namespace in which Linux
//! routes, with the same addresses, routes and neighbours, and what comes out is compared.

use super::frame::{IPV4, IPV6, Mac};
use super::instance::{Router, port};
use super::mix::{self, Case, Dice, Expect, FAR, HOST, MTU, ROUTER_A, ROUTER_B};
use crate::capture::{self, Tcpdump};
use crate::has;
use crate::linerate::binary;
use crate::scratch::Scratch;
use crate::stand::{Namespace, backlog_drops};
use crate::traffic::ROUNDS;
use std::collections::BTreeMap;
use std::process::Command;

/// `left: veth0 ---- a :mid: b ---- veth1 :right`, the hosts without addresses: they only look.
struct Bench {
    left: Namespace,
    mid: Namespace,
    right: Namespace,
}

/// Routes that both know, as prefix and what `ip route` says of it.
const ROUTES: [(&str, &str); 12] = [
    ("10.60.0.0/16", "via 10.1.0.2"),
    ("10.20.0.0/16", "via 10.2.0.2"),
    ("10.20.30.0/24", "blackhole"),
    ("10.20.31.0/24", "unreachable"),
    ("10.20.32.0/24", "prohibit"),
    ("240.0.0.0/4", "via 10.1.0.2"),
    ("fd00:60::/32", "via fd00:1::2"),
    ("fd00:20::/32", "via fd00:2::2"),
    ("fd00:20:30::/48", "blackhole"),
    ("fd00:20:31::/48", "unreachable"),
    ("fd00:20:32::/48", "prohibit"),
    ("2001:db8:1::/48", "via fd00:2::2"),
];

const NEIGHBOURS: [(&str, Mac, &str); 4] = [
    ("10.1.0.2", HOST, "a"),
    ("10.2.0.2", FAR, "b"),
    ("fd00:1::2", HOST, "a"),
    ("fd00:2::2", FAR, "b"),
];

fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// What came out: to the right host, and back to the left one.
struct Output {
    forwarded: Vec<Vec<u8>>,
    returned: Vec<Vec<u8>>,
}

impl Bench {
    fn new() -> Option<Self> {
        let bench = Self {
            left: Namespace::new("l")?,
            mid: Namespace::with_ipv6("m")?,
            right: Namespace::new("r")?,
        };
        let wires = [
            (&bench.left, "veth0", HOST, "a", ROUTER_A),
            (&bench.right, "veth1", FAR, "b", ROUTER_B),
        ];
        for (host, interface, mac, port, router) in wires {
            host.wire(interface, &bench.mid, port, "");
            host.plain(interface);
            bench.mid.plain(port);
            host.ip(&format!("link set dev {interface} address {}", text(mac)));
            bench
                .mid
                .ip(&format!("link set dev {port} address {}", text(router)));
        }
        Some(bench)
    }

    /// Linux as the router.
    fn kernel(&self) {
        self.mid.sysctl("ipv4/ip_forward", "1");
        self.mid.sysctl("ipv6/conf/all/forwarding", "1");
        self.mid.sysctl("ipv4/icmp_ratelimit", "0");
        self.mid.sysctl("ipv6/icmp/ratelimit", "0");
        for (which, value) in [("all", "0"), ("default", "0"), ("a", "0"), ("b", "0")] {
            self.mid
                .sysctl(&format!("ipv4/conf/{which}/rp_filter"), value);
        }
        for (port, net) in [("a", 1), ("b", 2)] {
            self.mid
                .ip(&format!("addr add 10.{net}.0.1/24 broadcast + dev {port}"));
            self.mid
                .ip(&format!("addr add fd00:{net}::1/64 dev {port}"));
        }
        self.mid.ip(&format!("link set dev b mtu {MTU}"));
        for (address, mac, port) in NEIGHBOURS {
            self.mid.ip(&format!(
                "neigh replace {address} lladdr {} nud permanent dev {port}",
                text(mac)
            ));
        }
        for (prefix, way) in ROUTES {
            match way.strip_prefix("via ") {
                Some(gateway) => self.mid.ip(&format!("route add {prefix} via {gateway}")),
                None => self.mid.ip(&format!("route add {way} {prefix}")),
            };
        }
    }

    /// Our router.
    fn linerate(&self, kind: &str, scratch: &Scratch) -> Router {
        let mut config = port(kind, "a", &["10.1.0.1/24", "fd00:1::1/64"], "")
            + &port(
                kind,
                "b",
                &["10.2.0.1/24", "fd00:2::1/64"],
                &format!("mtu = {MTU}"),
            );
        for (address, mac, port) in NEIGHBOURS {
            config += &format!(
                "\n[[neighbour]]\naddress = \"{address}\"\nmac = \"{}\"\ninterface = \"{port}\"\n",
                text(mac)
            );
        }
        for (prefix, way) in ROUTES {
            config += &format!("\n[[route]]\nprefix = \"{prefix}\"\n");
            config += &match way.strip_prefix("via ") {
                Some(gateway) => format!("via = \"{gateway}\"\n"),
                None => format!("{way} = true\n"),
            };
        }
        Router::start(&self.mid, scratch, &config)
    }

    /// Sends frames from the left host, and returns what comes out.
    #[track_caller]
    fn through(&self, file: &str, scratch: &Scratch) -> Output {
        let right = Tcpdump::start(&self.right, "veth1", "in", scratch);
        let left = Tcpdump::start(&self.left, "veth0", "in", scratch);
        replay(&self.left, "veth0", file);
        Output {
            forwarded: right.settled(),
            returned: left.settled(),
        }
    }
}

/// Sends a capture from an interface, no faster than a queue of arrivals can take.
#[track_caller]
fn replay(namespace: &Namespace, interface: &str, file: &str) {
    // Late frames, on a busy machine, are sent all the same.
    let commands = format!("set 0 give_up never\npcap load 0 {file}\npcap start 0\nwait\n");
    let script = format!("{file}.commands");
    std::fs::write(&script, commands).unwrap();
    let mut command = namespace.command(binary());
    command.args([
        "pktgen",
        "--headless",
        "--json",
        "-p",
        &format!("af_packet:{interface}"),
    ]);
    let output = command.args(["-f", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Frames by the number of the packet that they are of.
type ByNumber<'a> = BTreeMap<u32, Vec<&'a [u8]>>;

/// What is behind a packet's end is Ethernet's: we send no frame shorter than its 60 bytes, Linux
/// leaves that to the device. It is not compared.
fn by_number(frames: &[Vec<u8>]) -> ByNumber<'_> {
    let mut sorted = ByNumber::new();
    for frame in frames {
        if let Some(number) = mix::number_of(frame) {
            let word = |at| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
            let end = match frame[14] >> 4 {
                4 => 14 + word(16),
                _ => 54 + word(18),
            };
            let frame = &frame[..end.min(frame.len())];
            sorted.entry(number).or_default().push(frame);
        }
    }
    sorted
}

/// Where forwarded frames are not as expected: the kind, and both outputs.
fn disagreements(cases: &[Case], ours: &Output, theirs: &Output) -> Vec<String> {
    let (ours, theirs) = (by_number(&ours.forwarded), by_number(&theirs.forwarded));
    let mut found = Vec::new();
    for (number, case) in (0..).zip(cases) {
        let [ours, theirs] =
            [&ours, &theirs].map(|all| all.get(&number).cloned().unwrap_or_default());
        let agree = match case.kind.expect {
            Expect::Same => ours == theirs,
            Expect::KernelOnly(_) => ours.is_empty() && !theirs.is_empty(),
            Expect::UsOnly(_) => !ours.is_empty() && theirs.is_empty(),
            Expect::Otherwise(_) => ours.len() == theirs.len() && ours != theirs,
        };
        if !agree {
            found.push(format!(
                "{} (packet {number}, {:?})\n  in     {:02x?}\n  ours   {:02x?}\n  theirs {:02x?}",
                case.kind.name,
                case.kind.expect,
                short(&case.frame),
                ours.iter().map(|frame| short(frame)).collect::<Vec<_>>(),
                theirs.iter().map(|frame| short(frame)).collect::<Vec<_>>()
            ));
        }
    }
    found
}

/// The headers of a frame, and its length.
fn short(frame: &[u8]) -> (usize, &[u8]) {
    (frame.len(), &frame[..frame.len().min(70)])
}

/// What an ICMP error says: everything but the outer header's fields that are each system's own
/// (identification, TTL, class), and how much of the packet is quoted.
#[derive(Debug)]
struct Told {
    addresses: Vec<u8>,
    /// Type, code, and the four bytes behind the checksum.
    head: Vec<u8>,
    quoted: Vec<u8>,
}

impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        let len = self.quoted.len().min(other.quoted.len());
        self.addresses == other.addresses
            && self.head == other.head
            && len >= 28
            && self.quoted[..len] == other.quoted[..len]
    }
}

fn told(frame: &[u8]) -> Option<Told> {
    let (addresses, message) = match u16::from_be_bytes(frame.get(12..14)?.try_into().ok()?) {
        IPV4 if frame.get(23) == Some(&1) => (26..34, 34),
        IPV6 if frame.get(20) == Some(&58) => (22..54, 54),
        _ => return None,
    };
    let icmp = frame.get(message..)?;
    Some(Told {
        addresses: frame[addresses].to_vec(),
        head: [&icmp[..2], icmp.get(4..8)?].concat(),
        quoted: icmp[8..].to_vec(),
    })
}

/// Kinds of which hosts are told something else than Linux tells them, and why.
const TOLD_OTHERWISE: [(&str, &str); 3] = [
    (
        "IPv6 unreachable",
        "RFC 4443 3.1 has code 6 for a route that rejects; Linux says no route",
    ),
    (
        "option: longer than the header",
        "RFC 792: the pointer is to the wrong octet, the length; Linux points to the kind",
    ),
    (
        "option: loose source route",
        "RFC 1812 5.2.7.1: source route failed; Linux says nothing",
    ),
];

/// Where ICMP errors are not the same. Both systems limit their rate, so some may be missing of either;
/// but not all of a kind.
fn untold(cases: &[Case], ours: &Output, theirs: &Output) -> Vec<String> {
    let (ours, theirs) = (by_number(&ours.returned), by_number(&theirs.returned));
    let mut found = Vec::new();
    let mut kinds: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let alike = |case: &Case| {
        case.kind.expect == Expect::Same
            && TOLD_OTHERWISE
                .iter()
                .all(|(kind, _)| *kind != case.kind.name)
    };
    for (number, case) in (0..).zip(cases).filter(|(_, case)| alike(case)) {
        let of = |all: &ByNumber<'_>| all.get(&number).and_then(|frames| told(frames.first()?));
        let (ours, theirs) = (of(&ours), of(&theirs));
        let counts = kinds.entry(case.kind.name).or_default();
        counts[0] += usize::from(ours.is_some());
        counts[1] += usize::from(theirs.is_some());
        if ours.is_some() && theirs.is_some() && ours != theirs {
            found.push(format!(
                "{}: we told {ours:02x?}\n  the kernel {theirs:02x?}",
                case.kind.name
            ));
        }
    }
    for (kind, [ours, theirs]) in kinds {
        if ours > 0 && theirs == 0 {
            found.push(format!("{kind}: we told {ours} times, the kernel never"));
        }
        if ours == 0 && theirs > 0 {
            found.push(format!("{kind}: the kernel told {theirs} times, we never"));
        }
    }
    found
}

/// tshark finds no wrong checksum of these protocols, each at its first place in the frame: what an
/// ICMP error quotes is cut.
#[track_caller]
fn checksums_are_right(frames: &[Vec<u8>], protocols: &[&str], scratch: &Scratch) {
    let file = scratch.file("ours.pcap");
    std::fs::write(&file, capture::pcap(frames)).unwrap();
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", &file]);
    for protocol in ["ip", "udp", "tcp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let bad = protocols
        .iter()
        .map(|protocol| format!("{protocol}.checksum.status#1 == 0"));
    let bad: Vec<String> = bad.collect();
    let output = command.args(["-Y", &bad.join(" || ")]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        said.trim().is_empty(),
        "tshark finds wrong checksums: {said}"
    );
}

fn agrees(kind: &str, count: usize, seed: u64) {
    if !has(&["tcpdump", "tshark", "ethtool", "setpriv"]) {
        return;
    }
    eprintln!("seed {seed}");
    let cases = mix::cases(count, &mut Dice::new(seed));
    let scratch = Scratch::new();
    let file = scratch.file("mix.pcap");
    let frames: Vec<&[u8]> = cases.iter().map(|case| &case.frame[..]).collect();
    std::fs::write(&file, capture::paced(&frames, 50)).unwrap();
    let (Some(theirs), Some(ours)) = (Bench::new(), Bench::new()) else {
        return;
    };
    theirs.kernel();
    let router = ours.linerate(kind, &scratch);
    for _ in 0..ROUNDS {
        let before = backlog_drops();
        let expected = theirs.through(&file, &scratch);
        let output = ours.through(&file, &scratch);
        let mut wrong = disagreements(&cases, &output, &expected);
        wrong.extend(untold(&cases, &output, &expected));
        if !wrong.is_empty() && backlog_drops() > before {
            continue;
        }
        let total = wrong.len();
        wrong.truncate(12);
        assert!(
            total == 0,
            "{total} disagreements:\n{}\n{}",
            wrong.join("\n"),
            router.show("drops")
        );
        // A mix of which nothing arrives agrees with everything.
        assert!(by_number(&output.forwarded).len() > count * 3 / 4);
        let all = ["ip", "udp", "tcp", "icmp", "icmpv6"];
        checksums_are_right(&output.forwarded, &all, &scratch);
        checksums_are_right(&output.returned, &["ip", "icmp", "icmpv6"], &scratch);
        router.stop();
        return;
    }
    panic!("the kernel lost frames in each of {ROUNDS} rounds");
}

#[test]
fn a_mix_comes_out_as_the_kernel_forwards_it_over_af_packet() {
    agrees("af_packet", 3000, 5);
}

#[test]
fn a_mix_comes_out_as_the_kernel_forwards_it_over_af_xdp() {
    agrees("af_xdp", 3000, 6);
}

#[test]
#[ignore = "long: 100 000 packets"]
fn a_long_mix_comes_out_as_the_kernel_forwards_it() {
    agrees("af_packet", 100_000, 7);
}

/// The kernel against itself: the comparison finds nothing where there is nothing, and the kinds on
/// which we differ from it.
#[test]
fn the_kernel_agrees_with_itself() {
    if !has(&["tcpdump", "ethtool", "setpriv"]) {
        return;
    }
    let cases = mix::cases(1000, &mut Dice::new(8));
    let scratch = Scratch::new();
    let file = scratch.file("mix.pcap");
    let frames: Vec<&[u8]> = cases.iter().map(|case| &case.frame[..]).collect();
    std::fs::write(&file, capture::paced(&frames, 50)).unwrap();
    let Some(bench) = Bench::new() else { return };
    bench.kernel();
    for _ in 0..ROUNDS {
        let before = backlog_drops();
        let [one, other] = [(); 2].map(|()| bench.through(&file, &scratch));
        if backlog_drops() > before {
            continue;
        }
        let differ: Vec<String> = disagreements(&cases, &one, &other);
        let unexplained: Vec<&String> =
            differ.iter().filter(|text| text.contains("Same")).collect();
        assert!(unexplained.is_empty(), "{unexplained:#?}");
        assert!(
            !differ.is_empty(),
            "class E alone is a difference between us and the kernel"
        );
        assert!(untold(&cases, &one, &other).is_empty());
        assert!(by_number(&one.forwarded).len() > cases.len() * 3 / 4);
        return;
    }
    panic!("the kernel lost frames in each of {ROUNDS} rounds");
}
