//! Policies as a whole: against a linear search, through reloads, and with 100,000 rules.

mod oracle;
mod reload;
mod stanzas;

use std::path::Path;
use std::sync::Arc;

use linerate_appliance::config::{ConfigError, parse};
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::acl::Verdict;

use super::*;

/// The zones of these tests.
const ZONES: &str = "[[zone]]\nname = \"lan\"\ninterfaces = [\"p0\"]\n\
                     [[zone]]\nname = \"wan\"\ninterfaces = [\"p1\"]\n";
const PORTS: [&str; 2] = ["p0", "p1"];

/// Reads stanzas: errors and warnings as they are shown.
fn read_in(folder: &Path, text: &str) -> (PolicyConfig, Vec<String>, Vec<String>) {
    let parsed = parse(text, |file| {
        let config = stanza::read(file, &PORTS, folder);
        file.end();
        config
    });
    let lines = |list: Vec<ConfigError>| list.iter().map(ConfigError::to_string).collect();
    (parsed.value, lines(parsed.errors), lines(parsed.warnings))
}

/// Reads stanzas that have no errors, behind those of the zones.
fn read(text: &str) -> PolicyConfig {
    let (config, errors, _) = read_in(Path::new("."), &format!("{ZONES}{text}"));
    assert_eq!(errors, [""; 0], "{text}");
    config
}

fn build(text: &str, old: Option<&Arc<Policy>>) -> Arc<Policy> {
    Policy::build(&read(text), &PORTS, old).unwrap()
}

/// A policy from lan to wan, with these rules.
fn rules(rules: &str) -> String {
    format!("[[policy]]\nfrom = \"lan\"\nto = \"wan\"\nrules = [\n{rules}\n]\n")
}

fn lan_and_wan(policy: &Policy) -> (Zone, Zone) {
    (policy.zone(InterfaceId(0)), policy.zone(InterfaceId(1)))
}

/// What a flow, as users write it, gets from lan to wan: the rule's number, 0 for none, and the
/// verdict.
fn says(policy: &Policy, flow: &str) -> (usize, Verdict) {
    let (from, to) = lan_and_wan(policy);
    let packet = flow.parse().unwrap();
    let decision = policy.decide(from, to, &packet);
    let explanation = policy.explain(from, to, &packet);
    assert_eq!(
        explanation.verdict,
        decision.verdict.name(),
        "{explanation}"
    );
    (
        explanation.rule.map_or(0, |rule| rule.number),
        decision.verdict,
    )
}
