//! How many flows a host and a zone may have, and how long flows live; and what a reload changes.

use super::floods::{between, capped, one};
use super::*;
use crate::track::State;

/// A datagram from a host inside to port 53 of one outside.
fn asks(v6: bool, host: u8, port: u16) -> Frame {
    let mut frame = datagrams(v6).0;
    frame.src = match (v6, host) {
        (false, 1) => "10.1.0.9",
        (false, _) => "10.1.0.10",
        // Of the same /64, and of another.
        (true, 1) => "2001:db8:a1::a",
        (true, _) => "2001:db8:a1:1::9",
    };
    frame.payload[..2].copy_from_slice(&port.to_be_bytes());
    frame
}

#[test]
fn a_host_has_no_more_flows_than_it_may_and_others_have_theirs() {
    for v6 in [false, true] {
        let mut stanzas = stanzas(USUAL);
        stanzas.flows.host = Some(3);
        let mut gate = Gate::new(&stanzas);
        gate.forwards(INSIDE, &datagrams(v6).0);
        for port in 1..3 {
            gate.forwards(INSIDE, &asks(v6, 1, port));
        }
        gate.refuses(INSIDE, &asks(v6, 1, 3), "flow_host");
        gate.forwards(INSIDE, &asks(v6, 1, 2));
        gate.forwards(INSIDE, &asks(v6, 2, 3));
        // More by a reload, fewer by another, which ends none.
        stanzas.flows.host = Some(4);
        gate.reload(&stanzas);
        gate.forwards(INSIDE, &asks(v6, 1, 3));
        stanzas.flows.host = Some(1);
        gate.reload(&stanzas);
        gate.refuses(INSIDE, &asks(v6, 1, 4), "flow_host");
        gate.forwards(OUTSIDE, &datagrams(v6).1);
        assert_eq!(gate.flows(), 5);
        // What has ended counts no more.
        gate.later(181_000);
        assert_eq!(gate.flows(), 0);
        gate.forwards(INSIDE, &asks(v6, 1, 4));
        gate.refuses(INSIDE, &asks(v6, 1, 5), "flow_host");
    }
}

#[test]
fn a_zone_has_no_more_flows_than_it_may_and_another_has_its_own() {
    let both =
        format!("{USUAL}[[policy]]\nfrom = \"outside\"\nto = \"inside\"\ndefault = \"permit\"\n");
    for v6 in [false, true] {
        let mut stanzas = stanzas(&both);
        stanzas.policy.zones[1].flows = Some(2);
        let mut gate = Gate::new(&stanzas);
        gate.forwards(INSIDE, &asks(v6, 1, 1));
        gate.forwards(INSIDE, &asks(v6, 2, 2));
        gate.refuses(INSIDE, &asks(v6, 1, 3), "flow_zone");
        gate.forwards(OUTSIDE, &datagrams(v6).1);
        // Policies are as before: nothing is decided anew.
        let number = gate.shared.clone();
        stanzas.policy.zones[1].flows = Some(3);
        gate.reload(&stanzas);
        assert!(!gate.shared.is(&number));
        assert!(Arc::ptr_eq(&gate.shared.policy, &number.policy));
        gate.forwards(INSIDE, &asks(v6, 1, 3));
        stanzas.policy.zones[1].flows = None;
        gate.reload(&stanzas);
        for port in 4..20 {
            gate.forwards(INSIDE, &asks(v6, 1, port));
        }
        let path = gate.fast.path::<GatewayPath>().unwrap();
        let zones = gate.shared.policy.zones();
        let mut of = |name| path.flows().in_zone(zones.named(name).unwrap().number());
        assert_eq!((of("inside"), of("outside")), (19, 1));
    }
}

#[test]
fn beyond_a_zones_half_open_connections_its_syns_are_answered_by_cookies() {
    let syn = |v6, port| between(v6, false, (port, 22), SYN, (100, 0));
    for v6 in [false, true] {
        let mut stanzas = stanzas(USUAL);
        stanzas.policy.zones[1].half_open = Some(2);
        let mut gate = Gate::new(&stanzas);
        let flags = |gate: &mut Gate, port| one(gate, INSIDE, &syn(v6, port)).flags;
        assert_eq!(flags(&mut gate, 1000), SYN);
        assert_eq!(flags(&mut gate, 1001), SYN);
        assert_eq!(flags(&mut gate, 1002), SYN | ACK);
        let inside = gate.shared.policy.zones().named("inside").unwrap();
        let half_open = |gate: &mut Gate| {
            let path = gate.fast.path::<GatewayPath>().unwrap();
            path.flows().half_open_in(inside.number())
        };
        assert_eq!(half_open(&mut gate), 2);
        // One is confirmed: there is room for another.
        gate.forwards(
            OUTSIDE,
            &between(v6, true, (22, 1000), SYN | ACK, (300, 101)),
        );
        assert_eq!(half_open(&mut gate), 2);
        gate.forwards(INSIDE, &between(v6, false, (1000, 22), ACK, (101, 301)));
        assert_eq!(half_open(&mut gate), 1);
        assert_eq!(flags(&mut gate, 1003), SYN);
        // Of the other zone there is no such limit.
        stanzas.policy.zones[1].half_open = None;
        stanzas.policy.zones[0].half_open = Some(0);
        gate.reload(&stanzas);
        assert_eq!(flags(&mut gate, 1004), SYN);
        // All together, as a reload says.
        gate.reload(&capped(stanzas.clone(), 3));
        assert_eq!(flags(&mut gate, 1005), SYN | ACK);
        gate.reload(&capped(stanzas, 4));
        assert_eq!(flags(&mut gate, 1006), SYN);
    }
}

#[test]
fn flows_live_as_long_as_the_file_says_and_a_reload_says_anew() {
    for v6 in [false, true] {
        let mut stanzas = stanzas(USUAL);
        stanzas.flows.timeouts.set(State::UdpSingle, 10);
        let mut gate = Gate::new(&stanzas);
        gate.forwards(INSIDE, &asks(v6, 1, 1));
        gate.later(9_000);
        assert_eq!(gate.flows(), 1);
        gate.later(1_001);
        assert_eq!(gate.flows(), 0);
        // Longer: a flow that is there lives on.
        gate.forwards(INSIDE, &asks(v6, 1, 1));
        stanzas.flows.timeouts.set(State::UdpSingle, 100);
        gate.reload(&stanzas);
        gate.later(50_000);
        assert_eq!(gate.flows(), 1);
        gate.later(50_001);
        assert_eq!(gate.flows(), 0);
        // Shorter: of flows from then on.
        stanzas.flows.timeouts.set(State::UdpSingle, 5);
        gate.reload(&stanzas);
        gate.forwards(INSIDE, &asks(v6, 1, 1));
        gate.later(5_001);
        assert_eq!(gate.flows(), 0);
    }
}
