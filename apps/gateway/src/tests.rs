//! Packets through the whole path of a worker: two links, a table, and flows.
//!
//! `wan` is outside and `lan` inside; see [`linerate_routing::plane::testing`] for the network.

use std::sync::Arc;

use linerate_core::run::Stage;
use linerate_routing::plane::acl::{AccessList, AclRule, Verdict};
use linerate_routing::plane::testing::{
    Frame, HOST_MAC, LAN_MAC, Lab, ROUTER_MAC, WAN_MAC, forwarded, udp,
};
use linerate_routing::plane::{Change, Fast};
use linerate_tables::acl::{Bits, Match, Match4, Match6, Range};
use linerate_wire::protocol;
use linerate_wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::config::{FlowsConfig, PolicyConfig, Stanzas, ZoneConfig};
use crate::path::GatewayPath;
use crate::policy::Policies;
use crate::stages::flows::Flows;

const OUTSIDE: u16 = 0;
const INSIDE: u16 = 1;

/// A gateway between the links of a [`Lab`].
struct Gate {
    lab: Lab,
    fast: Fast,
}

/// Two zones, and what may begin between them.
fn stanzas(policies: &[(usize, usize, Option<u16>, Verdict)]) -> Stanzas {
    let zone = |name: &str, interface: &str| ZoneConfig {
        name: name.into(),
        interfaces: vec![interface.into()],
    };
    let policy = |&(from, to, acl, default): &_| PolicyConfig {
        from,
        to,
        acl,
        default,
    };
    Stanzas {
        flows: FlowsConfig {
            ipv4: 64,
            ipv6: 64,
            symmetric_rss: false,
        },
        zones: vec![zone("outside", "wan"), zone("inside", "lan")],
        policies: policies.iter().map(policy).collect(),
    }
}

/// Who is inside may begin all, who is outside nothing.
const USUAL: [(usize, usize, Option<u16>, Verdict); 1] = [(1, 0, None, Verdict::Permit)];

impl Gate {
    fn new(stanzas: &Stanzas) -> Self {
        Self::with(Lab::new(), stanzas)
    }

    fn with(mut lab: Lab, stanzas: &Stanzas) -> Self {
        let setup = lab.setup();
        let policies = Arc::new(Policies::new(stanzas, &setup.settings));
        let flows = Flows::new(&stanzas.flows, policies, 0, &mut lab.egress);
        let path = Box::new(GatewayPath::new(&setup, flows.unwrap()));
        let fast = Fast::new(setup, path, &mut lab.egress);
        Self { lab, fast }
    }

    /// Whether a frame that comes in by a port goes on, and for which reason it was dropped.
    fn passes(&mut self, port: u16, frame: &Frame) -> Result<Vec<u8>, String> {
        let before = self.lab.drops();
        let frame = Frame {
            dst_mac: if port == OUTSIDE { WAN_MAC } else { LAN_MAC },
            ..frame.clone()
        };
        let left = self.lab.run(&mut self.fast, port, &[frame.bytes()]);
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

    /// Gives it other policies, as control does.
    fn reload(&mut self, stanzas: &Stanzas) {
        let settings = Arc::new(self.lab.settings.clone());
        let policies: linerate_control::Own = Arc::new(Policies::new(stanzas, &settings));
        let counters = self.fast.counters();
        let mut change = Change::new(settings.clone(), &settings, &counters, 1);
        change.own = Some(Box::new(policies));
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

/// A segment of the connection of `datagrams` from inside, or back.
fn segment(v6: bool, is_back: bool, flags: u8) -> Frame {
    let (asks, answers) = datagrams(v6);
    let frame = if is_back { answers } else { asks };
    let (src_port, dst_port) = if is_back { (22, 5000) } else { (5000, 22) };
    Frame {
        protocol: protocol::TCP,
        payload: linerate_wire::tcp::header(src_port, dst_port, 100, 7, flags).to_vec(),
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
        let mut gate = Gate::new(&stanzas(&USUAL));
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
        let mut gate = Gate::new(&stanzas(&USUAL));
        for flags in [ACK, SYN | ACK, RST, FIN | ACK, 0] {
            gate.refuses(INSIDE, &segment(v6, false, flags), "tcp_no_flow");
        }
        gate.refuses(OUTSIDE, &segment(v6, true, SYN), "policy");
        gate.forwards(INSIDE, &segment(v6, false, SYN));
        gate.forwards(OUTSIDE, &segment(v6, true, SYN | ACK));
        gate.forwards(INSIDE, &segment(v6, false, ACK));
        assert_eq!(gate.flows(), 1);
        // What is established lives for two hours and more (RFC 5382 REQ-5).
        gate.later(7_000_000);
        assert_eq!(gate.flows(), 1);
        gate.forwards(OUTSIDE, &segment(v6, true, FIN | ACK));
        gate.later(300_000);
        assert_eq!(gate.flows(), 0);
        gate.refuses(OUTSIDE, &segment(v6, true, ACK), "tcp_no_flow");
    }
}

#[test]
fn rfc5508_3_1_pings_are_told_apart_by_their_identifiers() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&stanzas(&USUAL));
        gate.refuses(OUTSIDE, &echo(v6, true, 1), "icmp_no_flow");
        gate.forwards(INSIDE, &echo(v6, false, 1));
        gate.forwards(OUTSIDE, &echo(v6, true, 1));
        gate.refuses(OUTSIDE, &echo(v6, true, 2), "icmp_no_flow");
        assert_eq!(gate.flows(), 1);
    }
}

#[test]
fn an_error_about_a_packet_of_a_flow_passes_and_no_other() {
    for v6 in [false, true] {
        for asks in [datagrams(v6).0, echo(v6, false, 7)] {
            let mut gate = Gate::new(&stanzas(&USUAL));
            // From a router beyond, about what has left.
            let quote = &asks.bytes()[14..];
            let mut payload = match v6 {
                false => vec![3, 1, 0, 0, 0, 0, 0, 0],
                true => vec![1, 0, 0, 0, 0, 0, 0, 0],
            };
            payload.extend(quote);
            let error = Frame {
                protocol: if v6 { protocol::ICMPV6 } else { protocol::ICMP },
                payload,
                ..match v6 {
                    false => Frame::between("10.2.0.1", "10.1.0.9"),
                    true => Frame::between("2001:db8:a2::1", "2001:db8:a1::9"),
                }
            };
            gate.refuses(OUTSIDE, &error, "icmp_no_flow");
            gate.forwards(INSIDE, &asks);
            gate.forwards(OUTSIDE, &error);
            assert_eq!(gate.flows(), 1);
        }
    }
}

#[test]
fn packets_for_the_gateway_itself_have_no_flow() {
    let mut gate = Gate::new(&stanzas(&[]));
    for dst in ["192.0.2.1", "2001:db8::1"] {
        let frame = Frame::to(dst);
        assert_eq!(gate.passes(OUTSIDE, &frame), Ok(frame.bytes()));
    }
    assert_eq!(gate.flows(), 0);
}

#[test]
fn interfaces_in_no_zone_forward_nothing() {
    let mut stanzas = stanzas(&USUAL);
    stanzas.zones[0].interfaces.clear();
    let mut gate = Gate::new(&stanzas);
    gate.refuses(INSIDE, &datagrams(false).0, "no_zone");
    stanzas.zones.clear();
    stanzas.policies.clear();
    let mut gate = Gate::new(&stanzas);
    gate.forwards(INSIDE, &datagrams(false).0);
    gate.forwards(OUTSIDE, &datagrams(false).1);
}

/// A list that permits UDP to one port.
fn to_port<const W: usize>(port: u16) -> Match<W> {
    Match {
        dst_ports: Range::one(port),
        protocol: Bits::byte(protocol::UDP),
        ..Match::ANY
    }
}

fn list(port: u16, default: Verdict) -> Arc<AccessList> {
    let (v4, v6): (Match4, Match6) = (to_port(port), to_port(port));
    let rule = AclRule {
        v4: Some(v4),
        v6: Some(v6),
        verdict: Verdict::Permit,
        log: false,
    };
    Arc::new(AccessList::new("inbound", default, &[rule]).unwrap())
}

#[test]
fn a_list_decides_on_the_first_packet_and_not_on_answers() {
    for v6 in [false, true] {
        let mut lab = Lab::new();
        lab.settings.acls = vec![list(53, Verdict::Deny)];
        let stanzas = stanzas(&[(1, 0, Some(0), Verdict::Deny)]);
        let mut gate = Gate::with(lab, &stanzas);
        let (asks, answers) = datagrams(v6);
        gate.forwards(INSIDE, &asks);
        gate.forwards(OUTSIDE, &answers);
        let mut other = asks.clone();
        other.payload[3] = 54;
        gate.refuses(INSIDE, &other, "policy");
        assert_eq!(gate.flows(), 1);
    }
}

#[test]
fn what_a_policy_rejects_is_answered() {
    let mut lab = Lab::new();
    lab.settings.acls = vec![list(54, Verdict::Reject)];
    let mut gate = Gate::with(lab, &stanzas(&[(1, 0, Some(0), Verdict::Deny)]));
    let frame = Frame {
        dst_mac: LAN_MAC,
        ..datagrams(false).0
    };
    let left = gate.lab.run(&mut gate.fast, INSIDE, &[frame.bytes()]);
    // RFC 1812 5.2.7.1: code 13, administratively prohibited.
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].frame[34..36], [3, 13]);
}

#[test]
fn other_policies_decide_anew_on_flows_in_either_direction() {
    for v6 in [false, true] {
        let open = stanzas(&USUAL);
        let (asks, answers) = datagrams(v6);
        // Permitted by both: it goes on, and is known.
        let mut gate = Gate::new(&open);
        gate.forwards(INSIDE, &asks);
        gate.reload(&stanzas(&[
            (1, 0, None, Verdict::Permit),
            (0, 1, None, Verdict::Deny),
        ]));
        gate.forwards(OUTSIDE, &answers);
        assert_eq!(gate.flows(), 1);
        // Forbidden: it ends, whichever side speaks next.
        for next in [OUTSIDE, INSIDE] {
            let mut gate = Gate::new(&open);
            gate.forwards(INSIDE, &asks);
            gate.forwards(OUTSIDE, &answers);
            gate.reload(&stanzas(&[]));
            let frame = if next == OUTSIDE { &answers } else { &asks };
            gate.refuses(next, frame, "policy");
            assert_eq!(gate.flows(), 0);
        }
        // A list is asked for the question, though an answer comes first.
        let mut lab = Lab::new();
        lab.settings.acls = vec![list(53, Verdict::Deny)];
        let mut gate = Gate::with(lab, &open);
        gate.forwards(INSIDE, &asks);
        gate.reload(&stanzas(&[(1, 0, Some(0), Verdict::Deny)]));
        gate.forwards(OUTSIDE, &answers);
        assert_eq!(gate.flows(), 1);
    }
}

#[test]
fn a_full_table_refuses_flows_and_leaves_those_that_it_has() {
    let mut gate = Gate::new(&stanzas(&USUAL));
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
    let mut gate = Gate::new(&stanzas(&USUAL));
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

#[test]
fn the_guide_has_a_row_for_each_drop_reason() {
    let gate = Gate::new(&stanzas(&USUAL));
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
