//! Packets through the whole path of a worker: two links, a table, and flows.
//!
//! `wan` is outside and `lan` inside; see [`linerate_routing::plane::testing`] for the network.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use linerate_appliance::config::{self, Section};
use linerate_core::packet::Burst;
use linerate_core::run::Stage;
use linerate_routing::plane::testing::{
    Frame, HOST_MAC, LAN_MAC, Lab, Left, ROUTER_MAC, SLOW, WAN_MAC, forwarded, udp,
};
use linerate_routing::plane::{Change, Fast, Slow};
use linerate_stack::neighbour::Config;
use linerate_tables::flow::Cursor;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::tcp::flag::{ACK, FIN, RST, SYN};
use linerate_wire::{checksum, protocol};

use crate::config::{FlowsConfig, Stanzas};
use crate::nat::rules::{Action, Place, Pool, SourceRule};
use crate::path::GatewayPath;
use crate::policy;
use crate::stages::flows::{Flows, Shared};

mod balanced;
mod floods;
mod limits;
mod nat64;
mod nat64_cut;
mod policies;
mod reloads;
mod services;
mod translated;

const OUTSIDE: u16 = 0;
const INSIDE: u16 = 1;

/// A gateway between the links of a [`Lab`].
struct Gate {
    lab: Lab,
    fast: Fast,
    shared: Shared,
}

/// Two zones, and what may begin between them.
fn stanzas(policies: &str) -> Stanzas {
    let zones = "[[zone]]\nname = \"outside\"\ninterfaces = [\"wan\"]\n\
                 [[zone]]\nname = \"inside\"\ninterfaces = [\"lan\"]\n";
    let text = format!("{zones}{policies}");
    let read = |file: &Section<'_>| policy::stanza::read(file, &["wan", "lan"], Path::new(""));
    let parsed = config::parse(&text, read);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    Stanzas {
        flows: FlowsConfig {
            ipv4: 64,
            ipv6: 64,
            ..FlowsConfig::default()
        },
        policy: parsed.value,
        ..Stanzas::default()
    }
}

/// Who is inside may begin all, who is outside nothing.
const USUAL: &str = "[[policy]]\nfrom = \"inside\"\nto = \"outside\"\ndefault = \"permit\"\n";

impl Gate {
    fn new(stanzas: &Stanzas) -> Self {
        Self::with(Lab::new(), stanzas)
    }

    fn with(mut lab: Lab, stanzas: &Stanzas) -> Self {
        let setup = lab.setup();
        let shared = Shared::new(stanzas, &setup.settings, None).unwrap();
        let flows = Flows::new(shared.clone(), 0, 0, &mut lab.egress);
        let path = Box::new(GatewayPath::new(&setup, flows.unwrap()));
        let fast = Fast::new(setup, path, &mut lab.egress);
        Self { lab, fast, shared }
    }

    /// What leaves when a frame comes in by a port.
    fn sends(&mut self, port: u16, frame: &Frame) -> Vec<Left> {
        let frame = Frame {
            dst_mac: if port == OUTSIDE { WAN_MAC } else { LAN_MAC },
            ..frame.clone()
        };
        self.lab.run(&mut self.fast, port, &[frame.bytes()])
    }

    /// Whether a frame that comes in by a port goes on, and for which reason it was dropped.
    fn passes(&mut self, port: u16, frame: &Frame) -> Result<Vec<u8>, String> {
        let before = self.lab.drops();
        let left = self.sends(port, frame);
        let drops = self.lab.drops();
        let new = |(name, count): (&String, &u64)| {
            (before.get(name) != Some(count)).then(|| name.clone())
        };
        match drops.iter().find_map(new) {
            Some(reason) => Err(reason),
            None => {
                assert_eq!(left.len(), 1, "{left:?}");
                let there = &left[0].frame;
                Ok(there.clone())
            }
        }
    }

    /// The same for a frame that must be forwarded as in a router.
    #[track_caller]
    fn forwards(&mut self, port: u16, frame: &Frame) {
        let sent = self.passes(port, frame).unwrap();
        let (dst, src) = match port {
            OUTSIDE => (ROUTER_MAC, LAN_MAC),
            _ => (HOST_MAC, WAN_MAC),
        };
        assert_eq!(sent, forwarded(frame.bytes(), dst, src));
    }

    #[track_caller]
    fn refuses(&mut self, port: u16, frame: &Frame, reason: &str) {
        assert_eq!(self.passes(port, frame), Err(reason.to_string()));
    }

    /// So many milliseconds later.
    fn later(&mut self, ms: u64) {
        self.lab.now += ms * 1_000_000;
        let (lab, fast) = (&mut self.lab, &mut self.fast);
        while fast.turn(lab.now, &mut (), &mut lab.egress) <= lab.now {}
    }

    /// Flows that are known of both families.
    fn flows(&mut self) -> usize {
        let path = self.fast.path::<GatewayPath>().unwrap();
        path.flows().v4().len() + path.flows().v6().len()
    }

    /// Packets and bytes of all flows of a family, of both directions.
    fn counts(&mut self, v6: bool) -> [[u64; 2]; 2] {
        let flows = self.fast.path::<GatewayPath>().unwrap().flows();
        let mut sums = [[0; 2]; 2];
        let mut add = |packets: [u64; 2], bytes: [u64; 2]| {
            for at in 0..2 {
                sums[0][at] += packets[at];
                sums[1][at] += bytes[at];
            }
        };
        let mut cursor = Cursor::default();
        match v6 {
            false => flows
                .v4()
                .dump(&mut cursor, 64, |flow| add(flow.packets, flow.bytes)),
            true => flows
                .v6()
                .dump(&mut cursor, 64, |flow| add(flow.packets, flow.bytes)),
        };
        sums
    }

    /// Gives it other policies, as control does.
    fn reload(&mut self, stanzas: &Stanzas) {
        let settings = Arc::new(self.lab.settings.clone());
        self.shared = Shared::new(stanzas, &settings, Some(&self.shared)).unwrap();
        let counters = self.fast.counters();
        let mut change = Change::new(settings.clone(), &settings, &counters, 1);
        change.own = Some(Box::new(self.shared.part(0)));
        let had = self.fast.install(change, &mut self.lab.egress);
        assert!(had.own.is_some(), "what it had comes back");
    }
}

/// What the host behind the gateway sends, and what comes back.
fn both(forward: Frame) -> (Frame, Frame) {
    let back = Frame {
        src: forward.dst,
        dst: forward.src,
        ..forward.clone()
    };
    (forward, back)
}

/// A datagram from port 5000 to 53 of either family, from inside.
fn datagrams(v6: bool) -> (Frame, Frame) {
    let (inside, outside) = match v6 {
        false => ("10.1.0.9", "192.0.2.7"),
        true => ("2001:db8:a1::9", "2001:db8::7"),
    };
    let (asks, mut answers) = both(Frame::between(inside, outside));
    answers.payload = udp(18);
    answers.payload[..4].copy_from_slice(&[0, 53, 0x13, 0x88]);
    (asks, answers)
}

/// A segment of the connection of `datagrams` from inside, or back, with these numbers.
fn segment(v6: bool, is_back: bool, flags: u8, (seq, ack): (u32, u32)) -> Frame {
    let (asks, answers) = datagrams(v6);
    let frame = if is_back { answers } else { asks };
    let (src_port, dst_port) = if is_back { (22, 5000) } else { (5000, 22) };
    Frame {
        protocol: protocol::TCP,
        payload: linerate_wire::tcp::header(src_port, dst_port, seq, ack, flags).to_vec(),
        ..frame
    }
    .summed()
}

/// An echo request from inside, or its answer.
fn echo(v6: bool, is_back: bool, ident: u8) -> Frame {
    let (asks, answers) = datagrams(v6);
    let (protocol, kinds) = match v6 {
        false => (protocol::ICMP, [8, 0]),
        true => (protocol::ICMPV6, [128, 129]),
    };
    Frame {
        protocol,
        payload: vec![kinds[usize::from(is_back)], 0, 0, 0, 0, ident, 0, 1],
        ..if is_back { answers } else { asks }
    }
}

#[test]
fn answers_pass_and_questions_from_outside_do_not() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&stanzas(USUAL));
        let (asks, answers) = datagrams(v6);
        gate.refuses(OUTSIDE, &answers, "policy");
        gate.forwards(INSIDE, &asks);
        gate.forwards(OUTSIDE, &answers);
        gate.forwards(INSIDE, &asks);
        assert_eq!(gate.flows(), 1);
        // An answer to another port is none.
        let mut other = answers.clone();
        other.payload[3] = 0x89;
        gate.refuses(OUTSIDE, &other, "policy");
    }
}

#[test]
fn only_a_syn_begins_a_connection() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&stanzas(USUAL));
        for (flags, reason) in [
            (ACK, "track_tcp_no_syn"),
            (SYN | ACK, "track_tcp_no_syn"),
            (RST, "track_tcp_no_syn"),
            (FIN | ACK, "track_tcp_no_syn"),
            (0, "track_tcp_flags"),
        ] {
            gate.refuses(INSIDE, &segment(v6, false, flags, (100, 7)), reason);
        }
        gate.refuses(OUTSIDE, &segment(v6, true, SYN, (300, 0)), "policy");
        gate.forwards(INSIDE, &segment(v6, false, SYN, (100, 0)));
        gate.forwards(OUTSIDE, &segment(v6, true, SYN | ACK, (300, 101)));
        gate.forwards(INSIDE, &segment(v6, false, ACK, (101, 301)));
        assert_eq!(gate.flows(), 1);
        // A blind reset, far from what is expected next (RFC 5961 3).
        let reset = segment(v6, true, RST, (1 << 30, 0));
        gate.refuses(OUTSIDE, &reset, "track_tcp_reset");
        // What is established lives for two hours and more (RFC 5382 REQ-5).
        gate.later(7_000_000);
        assert_eq!(gate.flows(), 1);
        gate.forwards(OUTSIDE, &segment(v6, true, FIN | ACK, (301, 101)));
        gate.forwards(INSIDE, &segment(v6, false, FIN | ACK, (101, 302)));
        gate.later(300_000);
        assert_eq!(gate.flows(), 0);
        let late = segment(v6, true, ACK, (302, 102));
        gate.refuses(OUTSIDE, &late, "track_tcp_no_syn");
    }
}

#[test]
fn what_tracking_refuses_neither_counts_nor_keeps_its_flow_alive() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&stanzas(USUAL));
        gate.forwards(INSIDE, &segment(v6, false, SYN, (100, 0)));
        gate.forwards(OUTSIDE, &segment(v6, true, SYN | ACK, (300, 101)));
        gate.forwards(INSIDE, &segment(v6, false, ACK, (101, 301)));
        let before = gate.counts(v6);
        assert_eq!(before[0], [2, 1]);
        for (flags, numbers, reason) in [
            (RST, (1 << 30, 0), "track_tcp_reset"),
            (ACK, (1 << 30, 101), "track_tcp_window"),
            (ACK, (301, 1 << 30), "track_tcp_ack_unsent"),
            (SYN | FIN, (301, 101), "track_tcp_flags"),
        ] {
            // A stranger who knows the addresses does not keep the connection open.
            gate.later(1_800_000);
            gate.refuses(OUTSIDE, &segment(v6, true, flags, numbers), reason);
        }
        assert_eq!(gate.counts(v6), before);
        gate.later(250_000);
        assert_eq!(gate.flows(), 0);
    }
}

#[test]
fn a_forged_syn_that_nobody_hears_ends_no_connection() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&stanzas(USUAL));
        gate.forwards(INSIDE, &segment(v6, false, SYN, (100, 0)));
        gate.forwards(OUTSIDE, &segment(v6, true, SYN | ACK, (300, 101)));
        gate.forwards(INSIDE, &segment(v6, false, ACK, (101, 301)));
        // The server drops it without a word.
        let right = segment(v6, false, SYN, (9000, 0));
        let mut wrong = right.clone();
        wrong.payload[17] ^= 1;
        gate.later(1000);
        gate.refuses(INSIDE, &wrong, "track_tcp_checksum");
        // One with a right checksum does not live long enough to get there.
        for _ in 0..4 {
            gate.forwards(INSIDE, &right);
            gate.later(1000);
        }
        gate.forwards(OUTSIDE, &segment(v6, true, ACK, (301, 101)));
        gate.forwards(INSIDE, &segment(v6, false, ACK, (101, 301)));
        // The server has forgotten the connection, and the client has begun another.
        gate.forwards(INSIDE, &right);
        let answer = segment(v6, true, SYN | ACK, (1 << 30, 9001));
        gate.refuses(OUTSIDE, &answer, "track_tcp_window");
        gate.later(1000);
        gate.forwards(INSIDE, &right);
        gate.forwards(OUTSIDE, &answer);
        gate.forwards(INSIDE, &segment(v6, false, ACK, (9001, (1 << 30) + 1)));
        assert_eq!(gate.flows(), 1);
    }
}

#[test]
fn segments_of_one_burst_are_judged_by_what_those_before_have_done() {
    let burst = |gate: &mut Gate, port, frames: &[Frame]| {
        let dst_mac = if port == OUTSIDE { WAN_MAC } else { LAN_MAC };
        let bytes = |frame: &Frame| {
            let frame = frame.clone();
            Frame { dst_mac, ..frame }.bytes()
        };
        let frames: Vec<_> = frames.iter().map(bytes).collect();
        gate.lab.run(&mut gate.fast, port, &frames).len()
    };
    for v6 in [false, true] {
        let back = |flags, numbers, data: &[u8]| {
            let mut frame = segment(v6, true, flags, numbers);
            frame.payload[14..16].fill(0xff);
            frame.payload.extend(data);
            frame.summed()
        };
        let mut gate = Gate::new(&stanzas(USUAL));
        let mut syn = segment(v6, false, SYN, (100, 0));
        syn.payload[14..16].fill(0xff);
        gate.forwards(INSIDE, &syn.summed());
        // RFC 7413: what the server has to say behind its SYN.
        let said = [
            back(SYN | ACK, (300, 101), &[]),
            back(ACK, (301, 101), b"hello"),
        ];
        assert_eq!(
            burst(&mut gate, OUTSIDE, &said),
            2,
            "{:?}",
            gate.lab.drops()
        );
        gate.forwards(INSIDE, &segment(v6, false, ACK, (101, 306)));
        // A reset that was forged, and what the server says: the connection goes on for hours.
        let said = [back(RST, (306, 0), &[]), back(ACK, (306, 101), b"again")];
        assert_eq!(burst(&mut gate, OUTSIDE, &said), 2);
        gate.later(7_000_000);
        assert_eq!(gate.flows(), 1);
    }
}

#[test]
fn rfc5508_3_1_pings_are_told_apart_by_their_identifiers() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&stanzas(USUAL));
        gate.refuses(OUTSIDE, &echo(v6, true, 1), "track_icmp_no_query");
        gate.forwards(INSIDE, &echo(v6, false, 1));
        gate.forwards(OUTSIDE, &echo(v6, true, 1));
        gate.refuses(OUTSIDE, &echo(v6, true, 2), "track_icmp_no_query");
        assert_eq!(gate.flows(), 1);
    }
}

/// What a router beyond says of a packet that it could not deliver.
fn unreachable(about: &Frame) -> Frame {
    match about.src.contains(':') {
        false => unreachable_from("10.2.0.1", about),
        true => unreachable_from("2001:db8:a2::1", about),
    }
}

/// The same, of the router of that address.
fn unreachable_from(router: &'static str, about: &Frame) -> Frame {
    let v6 = about.src.contains(':');
    let mut payload = match v6 {
        false => vec![3, 1, 0, 0, 0, 0, 0, 0],
        true => vec![1, 0, 0, 0, 0, 0, 0, 0],
    };
    payload.extend(&about.bytes()[14..]);
    summed(Frame {
        protocol: if v6 { protocol::ICMPV6 } else { protocol::ICMP },
        payload,
        ..Frame::between(router, about.src)
    })
}

/// An error with its checksum.
fn summed(mut error: Frame) -> Frame {
    error.payload[2..4].fill(0);
    let bytes = error.bytes();
    let headers = linerate_wire::parse(&bytes).unwrap();
    let pseudo = match error.src.contains(':') {
        false => 0,
        true => {
            let ip = Ipv6::new_checked(&bytes[14..]).unwrap();
            ip.pseudo_sum(&ip.upper_layer().unwrap())
        }
    };
    let sum = checksum::sum(&bytes[headers.l4.unwrap()..headers.end]);
    let sum = !checksum::add(sum, pseudo);
    error.payload[2..4].copy_from_slice(&sum.to_be_bytes());
    error
}

#[test]
fn an_error_about_a_packet_of_a_flow_passes_and_no_other() {
    for v6 in [false, true] {
        for asks in [datagrams(v6).0, echo(v6, false, 7)] {
            let mut gate = Gate::new(&stanzas(USUAL));
            // From a router beyond, about what has left.
            let error = unreachable(&asks);
            gate.refuses(OUTSIDE, &error, "track_quote_no_flow");
            gate.forwards(INSIDE, &asks);
            gate.forwards(OUTSIDE, &error);
            assert_eq!(gate.flows(), 1);
        }
    }
}

#[test]
fn packets_for_the_gateway_itself_have_no_flow() {
    let mut gate = Gate::new(&stanzas(""));
    for dst in ["192.0.2.1", "2001:db8::1"] {
        let frame = Frame::to(dst);
        assert_eq!(gate.passes(OUTSIDE, &frame), Ok(frame.bytes()));
    }
    assert_eq!(gate.flows(), 0);
}

#[test]
fn a_full_table_refuses_flows_and_leaves_those_that_it_has() {
    let mut gate = Gate::new(&stanzas(USUAL));
    let (asks, answers) = datagrams(false);
    let from = |port: u16| {
        let mut frame = asks.clone();
        frame.payload[..2].copy_from_slice(&port.to_be_bytes());
        frame
    };
    gate.forwards(INSIDE, &asks);
    for port in 1..64 {
        gate.forwards(INSIDE, &from(port));
    }
    gate.refuses(INSIDE, &from(64), "flow_table");
    gate.forwards(OUTSIDE, &answers);
    // UDP's time (RFC 4787 REQ-5); all end, more than one turn's budget would.
    gate.later(301_000);
    assert_eq!(gate.flows(), 0);
    gate.forwards(INSIDE, &from(64));
}

#[test]
fn a_burst_with_the_first_packets_of_a_flow_begins_it_once() {
    let mut gate = Gate::new(&stanzas(USUAL));
    let frame = |v6| Frame {
        dst_mac: LAN_MAC,
        ..datagrams(v6).0
    };
    // Both families in one burst, each more than once.
    let frames: Vec<Vec<u8>> = (0..30).map(|at| frame(at % 3 == 0).bytes()).collect();
    let left = gate.lab.run(&mut gate.fast, INSIDE, &frames);
    assert_eq!(left.len(), 30);
    assert_eq!(gate.flows(), 2);
}

/// The usual zones, and hosts inside behind an address outside, with these ports.
fn masquerade(address: &str, ports: std::ops::RangeInclusive<u16>) -> Stanzas {
    let mut stanzas = stanzas(USUAL);
    let address = address.parse().unwrap();
    stanzas.nat.pools = vec![Pool {
        is_interface: true,
        ports,
        ..Pool::new("wan", vec![(address, address)])
    }];
    stanzas.nat.sources = vec![SourceRule {
        from: Place::default(),
        to: Place {
            zone: Some(OUTSIDE),
            interface: None,
        },
        source: None,
        destination: None,
        protocol: None,
        action: Action::Pool(0),
    }];
    stanzas
}

/// The ends of a frame, all of whose checksums are right.
#[track_caller]
fn ends(frame: &[u8]) -> ((IpAddr, u16), (IpAddr, u16)) {
    let headers = linerate_wire::parse(frame).unwrap();
    assert_ne!(headers.is_ipv4_right(frame), Some(false));
    assert_ne!(headers.is_l4_right(frame), Some(false));
    match headers.flow_key(frame).unwrap() {
        linerate_wire::FlowKey::V4(key) => (
            (key.src().into(), key.src_port()),
            (key.dst().into(), key.dst_port()),
        ),
        linerate_wire::FlowKey::V6(key) => (
            (key.src().into(), key.src_port()),
            (key.dst().into(), key.dst_port()),
        ),
    }
}

/// A datagram to `port` of an outside address, from the server.
fn answer_to(dst: &'static str, port: u16) -> Frame {
    let mut frame = Frame::between(
        if dst.contains(':') {
            "2001:db8::7"
        } else {
            "192.0.2.7"
        },
        dst,
    );
    frame.payload = udp(18);
    frame.payload[..2].copy_from_slice(&53_u16.to_be_bytes());
    frame.payload[2..4].copy_from_slice(&port.to_be_bytes());
    frame
}

#[test]
fn the_guide_has_a_row_for_each_drop_reason() {
    let gate = Gate::new(&stanzas(USUAL));
    let guides = [
        include_str!("../../../docs/gateway.md"),
        include_str!("../../../docs/router.md"),
    ];
    let rows: Vec<&str> = (guides.iter())
        .flat_map(|guide| guide.lines())
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .map(|(names, _)| names)
        .collect();
    let counts = gate.lab.egress.drop_counts();
    let counts = counts.lock().unwrap();
    let missing: Vec<&str> = (counts.iter().map(|(name, _)| name.as_str()))
        .filter(|name| !name.starts_with("tx_full."))
        .filter(|name| !rows.iter().any(|row| row.contains(&format!("`{name}`"))))
        .collect();
    assert!(missing.is_empty(), "docs/gateway.md lacks: {missing:?}");
}
