//! How a policy of the gateway grows with its rules: the decision on a first packet.

use std::fmt::Write;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::path::Path;

use linerate_gateway::policy::{FirstPacket, Policy, stanza};
use linerate_routing::model::InterfaceId;
use linerate_wire::{FlowKey, FlowKey4, protocol};

use super::random::mixed;
use super::{Growth, Point, Run};
use linerate_appliance::config;
use linerate_appliance::error::Error;

pub(super) const GROWTH: &[Growth] = &[Growth {
    name: "policy.decide",
    of: "rules",
    sizes: &[1, 10, 100, 1_000, 10_000, 100_000],
    run: |rules, run| growth(rules as u32, run),
}];

/// Packets that are drawn beforehand.
const DRAWN: u64 = 1 << 12;

/// The host that a rule is about, in 10.0.0.0/8, and its port.
fn host(rule: u32) -> (Ipv4Addr, u16) {
    (
        Ipv4Addr::from(10 << 24 | rule),
        1024 + (rule % 60_000) as u16,
    )
}

/// So many rules, each about a port of a host.
fn policy(rules: u32) -> Result<std::sync::Arc<Policy>, Error> {
    let mut text = String::from(
        "[[zone]]\nname = \"in\"\ninterfaces = [\"a\"]\n\
         [[zone]]\nname = \"out\"\ninterfaces = [\"b\"]\n\
         [[policy]]\nfrom = \"in\"\nto = \"out\"\nrules = [\n",
    );
    for rule in 0..rules {
        let (host, port) = host(rule);
        let _ = writeln!(
            text,
            "{{ action = \"permit\", destination = \"{host}/32\", service = \"tcp/{port}\" }},"
        );
    }
    text += "]\n";
    let names = ["a", "b"];
    let read = config::parse(&text, |file| stanza::read(file, &names, Path::new("")));
    Policy::build(&read.value, &names, None).map_err(|error| Error::Usage {
        problem: error.to_string(),
        fix: "measure fewer rules".into(),
    })
}

/// One packet after the other, as first packets come: each meets a rule drawn at random.
fn growth(rules: u32, run: Run) -> Result<Point, Error> {
    let policy = policy(rules)?;
    let bytes: usize = policy.lists().iter().map(|list| list.bytes()).sum();
    let packet = |number: u64| {
        let (host, port) = host((mixed(number) % u64::from(rules)) as u32);
        let key = FlowKey4::new([192, 0, 2, 1], host.octets(), 4000, port, protocol::TCP);
        FirstPacket::of(FlowKey::V4(key), None, 0)
    };
    let packets: Vec<FirstPacket> = (0..DRAWN).map(packet).collect();
    let ns = run.pinned(move |run| {
        let (from, to) = (policy.zone(InterfaceId(0)), policy.zone(InterfaceId(1)));
        let mut packets = packets.iter().cycle();
        run.time(|| {
            if let Some(packet) = packets.next() {
                black_box(policy.decide(from, to, black_box(packet)));
            }
            1
        })
    })?;
    Ok(Point {
        ns,
        bytes_each: bytes as f64 / f64::from(rules),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_each_rule_is_permitted_by_that_one() {
        let policy = policy(300).unwrap();
        let (from, to) = (policy.zone(InterfaceId(0)), policy.zone(InterfaceId(1)));
        for rule in 0..300 {
            let (host, port) = host(rule);
            let packet = format!("192.0.2.1:4000 > {host}:{port} tcp");
            let decided = policy.decide(from, to, &packet.parse().unwrap());
            assert!(decided.is_permit() && decided.rule == rule);
        }
        let point = growth(100, Run::quick()).unwrap();
        assert!(point.ns > 0.0 && point.bytes_each > 8.0);
    }
}
