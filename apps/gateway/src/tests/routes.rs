//! Routes that go and come back under flows, while policies change.

use super::*;
use linerate_routing::plane::hops::{Action as Leads, Hop};

/// Where the hosts of a side are from now on.
fn leads(gate: &mut Gate, prefix: &str, hop: Hop) {
    let hop = gate.lab.hop(hop);
    gate.lab.route(0, prefix, hop);
    gate.lab.tables();
}

fn nowhere() -> Hop {
    Hop {
        action: Leads::Unreachable,
        ..Hop::default()
    }
}

/// While there is no route, newer policies decide nothing: what they forbid ends as soon as there
/// is one again, and what they permit goes on.
#[test]
fn what_newer_policies_forbid_ends_though_its_route_was_gone_when_they_came() {
    const PREFIX: &str = "192.0.2.7/32";
    for (newer, goes_on) in [(to_port(53, "deny"), true), (to_port(54, "deny"), false)] {
        let mut gate = Gate::new(&stanzas(USUAL));
        let (asks, answers) = datagrams(false);
        gate.forwards(INSIDE, &asks);
        gate.forwards(OUTSIDE, &answers);
        leads(&mut gate, PREFIX, nowhere());
        gate.reload(&newer);
        gate.refuses(INSIDE, &asks, "unreachable");
        assert_eq!(gate.flows(), 1);
        leads(&mut gate, PREFIX, Lab::forward(WAN, "192.0.2.7"));
        match goes_on {
            true => gate.forwards(INSIDE, &asks),
            false => gate.refuses(INSIDE, &asks, "policy"),
        }
        assert_eq!(gate.flows(), usize::from(goes_on));
    }
}
