//! Policies in the path: which first packets begin a flow, and what becomes of flows under other
//! policies.

use super::*;
use linerate_routing::plane::hops::{Action as Leads, Hop};
use linerate_routing::plane::testing::WAN;

/// From inside to outside UDP to one port, and what becomes of all else.
fn to_port(port: u16, default: &str) -> Stanzas {
    stanzas(&format!(
        "[[policy]]\nfrom = \"inside\"\nto = \"outside\"\ndefault = \"{default}\"\n\
         rules = [{{ action = \"permit\", service = \"udp/{port}\" }}]\n"
    ))
}

/// A rule that asks for a code of ICMP decides on a query by its code, and a newer one on its flow,
/// even by an answer, which has none of it.
#[test]
fn rules_go_by_the_code_of_a_query() {
    for (v6, protocol, kind) in [(false, "icmp", 8), (true, "icmp6", 128)] {
        let permits = |code: u8| {
            stanzas(&format!(
                "[[policy]]\nfrom = \"inside\"\nto = \"outside\"\ndefault = \"deny\"\n\
                 rules = [{{ action = \"permit\", protocol = \"{protocol}\", icmp_type = {kind}, \
                 icmp_code = {code} }}]\n"
            ))
        };
        let mut gate = Gate::new(&permits(9));
        let with_code = |code: u8, ident| {
            let mut query = echo(v6, false, ident);
            query.payload[1] = code;
            query
        };
        gate.refuses(INSIDE, &with_code(0, 1), "policy");
        gate.refuses(INSIDE, &with_code(8, 1), "policy");
        gate.forwards(INSIDE, &with_code(9, 1));
        // Another policy permits the same: the flow stays, by whichever direction it is asked.
        let mut again = permits(9);
        again.policy.lists[0].rules[0].log = true;
        gate.reload(&again);
        gate.forwards(OUTSIDE, &echo(v6, true, 1));
        gate.reload(&permits(9));
        gate.forwards(INSIDE, &with_code(9, 1));
        assert_eq!(gate.flows(), 1);
        gate.reload(&permits(0));
        gate.refuses(OUTSIDE, &echo(v6, true, 1), "policy");
        assert_eq!(gate.flows(), 0);
    }
}

#[test]
fn interfaces_in_no_zone_forward_nothing() {
    let mut stanzas = stanzas(USUAL);
    stanzas.policy.zones[0].interfaces.clear();
    let mut gate = Gate::new(&stanzas);
    gate.refuses(INSIDE, &datagrams(false).0, "no_zone");
    stanzas.policy = Default::default();
    let mut gate = Gate::new(&stanzas);
    gate.forwards(INSIDE, &datagrams(false).0);
    gate.forwards(OUTSIDE, &datagrams(false).1);
}

#[test]
fn a_list_decides_on_the_first_packet_and_not_on_answers() {
    for v6 in [false, true] {
        let mut gate = Gate::new(&to_port(53, "deny"));
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
    let mut gate = Gate::new(&to_port(54, "reject"));
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
        let open = stanzas(USUAL);
        let (asks, answers) = datagrams(v6);
        // Permitted by both: it goes on, and is known.
        let mut gate = Gate::new(&open);
        gate.forwards(INSIDE, &asks);
        let no_more = USUAL.replace(
            "inside\"\nto = \"outside\"\ndefault = \"permit",
            "outside\"\nto = \"inside\"\ndefault = \"deny",
        );
        gate.reload(&stanzas(&format!("{USUAL}{no_more}")));
        gate.forwards(OUTSIDE, &answers);
        assert_eq!(gate.flows(), 1);
        // Forbidden: it ends, whichever side speaks next.
        for next in [OUTSIDE, INSIDE] {
            let mut gate = Gate::new(&open);
            gate.forwards(INSIDE, &asks);
            gate.forwards(OUTSIDE, &answers);
            gate.reload(&stanzas(""));
            let frame = if next == OUTSIDE { &answers } else { &asks };
            gate.refuses(next, frame, "policy");
            assert_eq!(gate.flows(), 0);
        }
        // A list is asked for the question, though an answer comes first.
        let mut gate = Gate::new(&open);
        gate.forwards(INSIDE, &asks);
        gate.reload(&to_port(53, "deny"));
        gate.forwards(OUTSIDE, &answers);
        assert_eq!(gate.flows(), 1);
    }
}

/// A frame with this differentiated services code point.
fn marked(frame: &Frame, dscp: u8) -> Vec<u8> {
    let mut bytes = Frame {
        dst_mac: LAN_MAC,
        ..frame.clone()
    }
    .bytes();
    if frame.src.contains(':') {
        bytes[14] |= dscp >> 2;
        bytes[15] |= dscp << 6;
    } else {
        bytes[15] = dscp << 2;
        bytes[24..26].fill(0);
        let sum = checksum::checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

#[test]
fn rules_go_by_the_code_point_of_the_first_packet_and_are_logged() {
    for v6 in [false, true] {
        let voice = |more: &str| {
            let rule = "{ action = \"permit\", dscp = 46, log = true, name = \"voice\" }";
            let policy = "[[policy]]\nfrom = \"inside\"\nto = \"outside\"\n";
            stanzas(&format!("{policy}rules = [{rule}{more}]\n"))
        };
        let mut gate = Gate::new(&voice(""));
        let (asks, answers) = datagrams(v6);
        gate.refuses(INSIDE, &asks, "policy");
        let left = gate.lab.run(&mut gate.fast, INSIDE, &[marked(&asks, 46)]);
        assert_eq!(left.len(), 1);
        let logged = |gate: &mut Gate| {
            let flows = gate.fast.path::<GatewayPath>().unwrap().flows();
            let hits = flows.take_logged();
            let line = |hit| gate.shared.policy.line(hit, "lan");
            (hits.iter().map(line).collect::<Vec<_>>(), hits.more)
        };
        let ends = match v6 {
            false => "10.1.0.9:5000 > 192.0.2.7:53 udp, 60 bytes",
            true => "[2001:db8:a1::9]:5000 > [2001:db8::7]:53 udp, 80 bytes",
        };
        let line = format!("policy inside > outside rule 1 (voice): permit in by lan: {ends}");
        assert_eq!(logged(&mut gate), (vec![line.clone()], 0));
        assert_eq!(logged(&mut gate), (vec![], 0));
        // What older lists have logged is counted when others come, by which it has other numbers.
        let mut other = asks.clone();
        other.payload[1] += 1;
        gate.lab.run(&mut gate.fast, INSIDE, &[marked(&other, 46)]);
        gate.reload(&voice(", { action = \"deny\" }"));
        assert_eq!(logged(&mut gate), (vec![], 1));
        // Answers have another code point, and do not end the flow that a new policy permits.
        gate.forwards(OUTSIDE, &answers);
        assert_eq!(logged(&mut gate).0, [line]);
        assert_eq!(gate.flows(), 2);
    }
}

#[test]
fn a_reload_ends_what_it_refuses_and_counts_it_and_its_counters_come_from_control() {
    let mut gate = Gate::new(&to_port(53, "deny"));
    let (asks, answers) = datagrams(false);
    gate.forwards(INSIDE, &asks);
    let decided = |gate: &Gate, rule: usize| gate.shared.hits.all()[0].hits(5, rule);
    assert_eq!(decided(&gate, 0), 1);
    // The list stays: its counters go on.
    let before = "[[policy]]\nfrom = \"outside\"\nto = \"inside\"\n";
    let mut same = to_port(53, "deny");
    same.policy.lists.extend(stanzas(before).policy.lists);
    gate.reload(&same);
    gate.forwards(OUTSIDE, &answers);
    assert_eq!(decided(&gate, 0), 2);
    // Another list: new counters, which control reads and the worker writes.
    gate.reload(&to_port(54, "deny"));
    assert_eq!([0, 1].map(|rule| decided(&gate, rule)), [0, 0]);
    gate.refuses(OUTSIDE, &answers, "policy");
    assert_eq!([0, 1].map(|rule| decided(&gate, rule)), [0, 1]);
    let counts = gate.fast.path::<GatewayPath>().unwrap().flows().counts();
    assert_eq!((counts.forbidden, counts.begun), (1, 1));
    assert_eq!(gate.flows(), 0);
}

/// While there is no route, nobody knows between which zones a flow is: newer policies decide on it
/// as soon as there is one again.
#[test]
fn newer_policies_decide_on_a_flow_once_it_has_a_route_again() {
    let leads = |gate: &mut Gate, hop: Hop| {
        let hop = gate.lab.hop(hop);
        gate.lab.route(0, "192.0.2.7/32", hop);
        gate.lab.tables();
    };
    for (newer, goes_on) in [(to_port(53, "deny"), true), (to_port(54, "deny"), false)] {
        let mut gate = Gate::new(&stanzas(USUAL));
        let (asks, answers) = datagrams(false);
        gate.forwards(INSIDE, &asks);
        gate.forwards(OUTSIDE, &answers);
        let nowhere = Hop {
            action: Leads::Unreachable,
            ..Hop::default()
        };
        leads(&mut gate, nowhere);
        gate.reload(&newer);
        gate.refuses(INSIDE, &asks, "unreachable");
        assert_eq!(gate.flows(), 1, "it waits for a route");
        leads(&mut gate, Lab::forward(WAN, "192.0.2.7"));
        match goes_on {
            true => gate.forwards(INSIDE, &asks),
            false => gate.refuses(INSIDE, &asks, "policy"),
        }
        assert_eq!(gate.flows(), usize::from(goes_on));
    }
}
