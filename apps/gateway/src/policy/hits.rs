//! How often each rule has decided, and which packets rules log.
//!
//! Each worker has its own [`Counts`] and is their only writer; readers add them up. What rules log
//! goes to a [`Hits`] of the worker, which keeps a few packets until control asks and counts the
//! rest.

use std::sync::Arc;

use linerate_core::port::Counter;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::hits::{Hit, Hits};
use linerate_routing::plane::lists::Gate;
use serde_json::{Value, json};

use super::{Decision, FirstPacket, List, Policy};

/// What the rules of one policy have decided at one worker.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// By list: its rules, and last the flows that none of them matched.
    lists: Vec<(Arc<List>, Arc<[Counter]>)>,
}

impl Counts {
    /// Counters for the rules of a policy. Lists that `old` has go on counting.
    pub fn new(policy: &Policy, old: &Self) -> Self {
        let lists = policy.lists().iter().map(|list| {
            // The counters of a changed list begin at 0.
            let same = |(old, _): &&(Arc<List>, _)| Arc::ptr_eq(old, list);
            let known = old.lists.iter().find(same).map(|(_, hits)| hits.clone());
            let new = || (0..=list.rules.len()).map(|_| Counter::default()).collect();
            (list.clone(), known.unwrap_or_else(new))
        });
        Self {
            lists: lists.collect(),
        }
    }

    /// Counts a decision; only the worker may.
    #[inline]
    pub fn hit(&self, decision: &Decision) {
        let list = self.lists.get(usize::from(decision.list));
        if let Some(hits) = list.and_then(|(_, hits)| hits.get(decision.rule as usize)) {
            hits.add(1);
        }
    }

    /// How often a rule has decided; the place behind the last rule stands for none.
    pub fn hits(&self, list: usize, rule: usize) -> u64 {
        let hits = self.lists.get(list).and_then(|(_, hits)| hits.get(rule));
        hits.map_or(0, Counter::read)
    }
}

/// Keeps a packet that a rule logs, which came in by `interface`.
#[cold]
pub fn log(hits: &mut Hits, decision: &Decision, interface: InterfaceId, packet: &FirstPacket) {
    hits.add(Hit {
        list: decision.list,
        rule: decision.rule as usize,
        verdict: decision.verdict,
        gate: Gate::In(interface),
        flow: packet.flow(),
    });
}

impl Policy {
    /// What a log says of a hit: `policy lan > wan rule 3 (web): deny in by p0: FLOW`.
    pub fn line(&self, hit: &Hit, interface: &str) -> String {
        let list = self.lists().get(usize::from(hit.list));
        let name = list.map_or("?", |list| &list.name);
        let rule = match list.and_then(|list| list.rules.get(hit.rule)) {
            Some(rule) => match &rule.name {
                Some(text) => format!("rule {} ({text})", hit.rule + 1),
                None => format!("rule {}", hit.rule + 1),
            },
            None => "no rule".into(),
        };
        let (verdict, flow) = (hit.verdict.name(), hit.flow);
        format!("policy {name} {rule}: {verdict} in by {interface}: {flow}")
    }

    /// The row of a rule, with what workers have counted; the place behind the last rule of a list
    /// stands for its default.
    pub fn row(&self, number: usize, rule: usize, workers: &[Counts]) -> Value {
        let list = &self.lists()[number];
        let decided: u64 = workers.iter().map(|one| one.hits(number, rule)).sum();
        match list.rules.get(rule) {
            Some(of) => json!({
                "policy": list.name,
                "rule": (rule + 1).to_string(),
                "name": of.name,
                "action": of.action.name(),
                "decided": decided,
                "matches": of.show(&list.sets).to_string(),
                "log": of.log,
            }),
            None => json!({
                "policy": list.name,
                "rule": "default",
                "name": null,
                "action": list.default.name(),
                "decided": decided,
                "matches": "all others",
                "log": false,
            }),
        }
    }
}
