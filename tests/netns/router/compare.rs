//! Compares two routers that got the same packets: forwarded frames, byte for byte, and errors to
//! the senders.

use super::instance::Router;
use super::mix::{self, Case, Expect};
use linerate_testkit::Scratch;
use linerate_testkit::capture;
use linerate_testkit::cli::binary;
use linerate_testkit::frame::{IPV4, IPV6};
use linerate_testkit::netns::{Namespace, backlog_drops};
use linerate_testkit::traffic::ROUNDS;
use std::collections::BTreeMap;
use std::process::Command;

/// Output: forwarded frames, and frames back to the senders. Frames of VLANs with their tags.
pub(super) struct Output {
    pub(super) forwarded: Vec<Vec<u8>>,
    pub(super) returned: Vec<Vec<u8>>,
}

/// Sends the same packets through the kernel and through us, repeated if the kernel counted a loss,
/// or our port frames that its worker was too late for; fails if they differ, and returns our
/// output.
#[track_caller]
pub(super) fn agree(
    cases: &[Case],
    theirs: impl Fn() -> Output,
    ours: impl Fn() -> Output,
    router: &Router,
) -> Output {
    for _ in 0..ROUNDS {
        let lost = || backlog_drops() + router.dropped("missed");
        let before = lost();
        let (theirs, ours) = (theirs(), ours());
        let mut wrong = disagreements(cases, &ours, &theirs);
        wrong.extend(untold(cases, &ours, &theirs));
        if !wrong.is_empty() && lost() > before {
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
        // Without any output two routers would always agree.
        assert!(count(&ours) > cases.len() * 3 / 4);
        return ours;
    }
    panic!("frames were lost before anybody saw them in each of {ROUNDS} rounds");
}

/// Of how many packets something was forwarded.
pub(super) fn count(output: &Output) -> usize {
    by_number(&output.forwarded).len()
}

/// Sends a capture from an interface, no faster than a receive queue can take.
#[track_caller]
pub(super) fn replay(namespace: &Namespace, interface: &str, file: &str) {
    // On a busy machine late frames are sent nevertheless.
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

/// A frame's ethertype and where its packet begins, behind the tag if it has one.
fn packet_of(frame: &[u8]) -> Option<(u16, usize)> {
    let ethertype = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    match ethertype(12)? {
        0x8100 => Some((ethertype(16)?, 18)),
        plain => Some((plain, 14)),
    }
}

/// Frames by the number of their packet.
type ByNumber<'a> = BTreeMap<u32, Vec<&'a [u8]>>;

/// Padding behind the packet is not compared: we pad frames to 60 bytes, Linux leaves that to the
/// device.
fn by_number(frames: &[Vec<u8>]) -> ByNumber<'_> {
    let mut sorted = ByNumber::new();
    for frame in frames {
        if let Some(number) = mix::number_of(frame)
            && let Some((_, at)) = packet_of(frame)
        {
            let word = |at| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
            let end = match frame[at] >> 4 {
                4 => at + word(at + 2),
                _ => at + 40 + word(at + 4),
            };
            let frame = &frame[..end.min(frame.len())];
            sorted.entry(number).or_default().push(frame);
        }
    }
    sorted
}

/// Unexpected differences of forwarded frames: the kind, and both outputs.
pub(super) fn disagreements(cases: &[Case], ours: &Output, theirs: &Output) -> Vec<String> {
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

/// Content of an ICMP error without the outer header's fields that each system chooses
/// (identification, TTL, class), and without the length of the quote.
#[derive(Debug)]
struct Told {
    /// The tag, if any.
    link: Vec<u8>,
    addresses: Vec<u8>,
    /// Type, code, and the four bytes behind the checksum.
    head: Vec<u8>,
    quoted: Vec<u8>,
}

impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        let len = self.quoted.len().min(other.quoted.len());
        self.link == other.link
            && self.addresses == other.addresses
            && self.head == other.head
            && len >= 28
            && self.quoted[..len] == other.quoted[..len]
    }
}

fn told(frame: &[u8]) -> Option<Told> {
    let (ethertype, at) = packet_of(frame)?;
    let packet = &frame[at..];
    let (addresses, message) = match ethertype {
        IPV4 if packet.get(9) == Some(&1) => (12..20, 20),
        IPV6 if packet.get(6) == Some(&58) => (8..40, 40),
        _ => return None,
    };
    let icmp = packet.get(message..)?;
    Some(Told {
        link: frame[12..at - 2].to_vec(),
        addresses: packet[addresses].to_vec(),
        head: [&icmp[..2], icmp.get(4..8)?].concat(),
        quoted: icmp[8..].to_vec(),
    })
}

/// Kinds with other ICMP errors than Linux sends, and why.
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

/// Differences of ICMP errors. Both systems limit their rate, so some of either may be missing; but
/// not all of a kind.
pub(super) fn untold(cases: &[Case], ours: &Output, theirs: &Output) -> Vec<String> {
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

/// tshark finds no wrong checksum of these protocols, each at its first occurrence in the frame,
/// since the quote in an ICMP error is cut.
#[track_caller]
pub(super) fn checksums_are_right(frames: &[Vec<u8>], protocols: &[&str], scratch: &Scratch) {
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
