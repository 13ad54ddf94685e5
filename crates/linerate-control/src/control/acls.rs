//! Access lists, as seen from outside: how often each rule decided, and which packets met the rules
//! that say `log = true`, those of the appliance's own lists among them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Control;
use crate::config::Config;
use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_routing::plane::acl::Verdict;
use linerate_routing::plane::hits::{Hit, Hits};
use linerate_routing::plane::lists::Gate;

/// Lines a second that tell of packets; more are counted, and their number told.
const LINES: u64 = 10;

/// How many packets were told of lately.
pub(super) struct AclLogger {
    /// Since when.
    since: Instant,
    told: u64,
    untold: u64,
}

impl AclLogger {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            told: 0,
            untold: 0,
        }
    }

    /// Whether another packet may be told of.
    fn may(&mut self) -> bool {
        let may = self.told < LINES;
        match may {
            true => self.told += 1,
            false => self.untold += 1,
        }
        may
    }

    /// When a second is over, how many packets were not told of in it.
    fn rest(&mut self, now: Instant) -> Option<u64> {
        if now < self.since + Duration::from_secs(1) {
            return None;
        }
        let untold = self.untold;
        *self = Self::new(now);
        Some(untold).filter(|untold| *untold > 0)
    }
}

impl Control {
    /// Tells of packets that met rules which want that, of access lists and of the appliance's own.
    pub(super) fn tell_hits(&mut self, workers: &[Hits], now: Instant) {
        let (lines, more) = self.config.appliance.logged(&self.at_work());
        for line in lines {
            if self.acl_logger.may() {
                eprintln!("{line}");
            }
        }
        self.acl_logger.untold += more;
        for hits in workers {
            for hit in hits.iter() {
                if self.acl_logger.may() {
                    let name = self.interface_name(hit.gate.interface().0);
                    eprintln!("{}", line(&self.config, hit, name));
                }
            }
            self.acl_logger.untold += hits.more;
        }
        if let Some(untold) = self.acl_logger.rest(now) {
            eprintln!("rules that log met {untold} more packets in the last second");
        }
    }

    /// How many packets a rule has decided on, by its list's place and its own; one behind the last
    /// stands for none.
    fn acl_packets(&self, list: usize, rule: usize) -> u64 {
        let workers = self.workers.counters.iter();
        workers.map(|worker| worker.hits(list, rule)).sum()
    }

    /// What lists have decided: three samples for each list, whatever number of rules it has. Rule
    /// by rule it is for [`Control::acl_rows`] to say.
    pub(super) fn acl_metrics(&self, page: &mut Exposition) {
        page.family(
            "acl_packets",
            FamilyKind::Counter,
            "packets",
            "Packets that an access list decided on, and how.",
        );
        for (number, acl) in self.config.acls.iter().enumerate() {
            let mut sums = Verdict::ALL.map(|verdict| (verdict, 0));
            let actions = acl.rules.iter().map(|rule| rule.action);
            for (rule, action) in actions.chain([acl.default]).enumerate() {
                let packets = self.acl_packets(number, rule);
                let same = sums.iter_mut().filter(|sum| sum.0 == action);
                same.for_each(|sum| sum.1 += packets);
            }
            for (action, packets) in sums {
                let labels = [("acl", acl.name.as_str()), ("action", action.name())];
                page.sample(&labels, packets);
            }
        }
    }

    /// A row for each rule, and one for the default of each list.
    pub(super) fn acl_rows(&self) -> Vec<Value> {
        let packets = |list, rule| self.acl_packets(list, rule);
        let mut rows = Vec::new();
        for (number, acl) in self.config.acls.iter().enumerate() {
            for (at, rule) in acl.rules.iter().enumerate() {
                rows.push(json!({
                    "acl": acl.name,
                    "rule": (at + 1).to_string(),
                    "action": rule.action.name(),
                    "packets": packets(number, at),
                    "matches": rule.to_string(),
                    "log": rule.log,
                }));
            }
            rows.push(json!({
                "acl": acl.name,
                "rule": "default",
                "action": acl.default.name(),
                "packets": packets(number, acl.rules.len()),
                "matches": "all others",
                "log": false,
            }));
        }
        rows
    }
}

/// `acl edge rule 3: deny in by wan: 10.0.0.1:1024 > 10.1.0.1:22 tcp, 60 bytes`.
fn line(config: &Config, hit: &Hit, interface: &str) -> String {
    let acl = config.acls.get(usize::from(hit.list));
    let (name, verdict) = (acl.map_or("?", |acl| &acl.name), hit.verdict.name());
    let direction = match hit.gate {
        Gate::In(_) => "in",
        Gate::Out(_) => "out",
    };
    let (rule, flow) = (hit.rule + 1, hit.flow);
    format!("acl {name} rule {rule}: {verdict} {direction} by {interface}: {flow}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_and_the_number_of_the_rest() {
        let start = Instant::now();
        let mut acl_logger = AclLogger::new(start);
        assert_eq!((0..25).filter(|_| acl_logger.may()).count(), 10);
        assert_eq!(acl_logger.rest(start + Duration::from_millis(900)), None);
        assert_eq!(acl_logger.rest(start + Duration::from_secs(1)), Some(15));
        assert!(acl_logger.may());
        assert_eq!(acl_logger.rest(start + Duration::from_secs(3)), None);
    }
}
