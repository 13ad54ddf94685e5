//! What `linerate ctl show backends`, `linerate ctl explain` and the metrics page say of services.

use std::time::Instant;

use linerate_appliance::control::exposition::{Exposition, FamilyKind};
use linerate_appliance::control::show::Rows;
use linerate_appliance::nearest::offer;
use linerate_appliance::socket::Problem;
use serde_json::{Value, json};

use super::board::Standing;
use super::tables::NoBackend;
use super::{Backend, Balance, Chosen, Service};
use crate::nat::Tuple;

/// Flows of backends, by number: those that are known now, and those that have begun.
#[derive(Clone, Debug, Default)]
pub struct FlowCounts {
    /// Known now; empty where nobody has counted.
    pub now: Vec<u64>,
    /// Begun since the backend came.
    pub begun: Vec<u64>,
}

fn of(counts: &[u64], number: u16) -> u64 {
    counts.get(usize::from(number)).copied().unwrap_or(0)
}

/// Adds counts of another worker.
pub fn add(sums: &mut Vec<u64>, more: &[u64]) {
    sums.resize(sums.len().max(more.len()), 0);
    sums.iter_mut()
        .zip(more)
        .for_each(|(sum, more)| *sum += more);
}

/// The word for what a backend gets.
fn state(service: &Service, backend: &Backend, standing: &Standing) -> &'static str {
    match (&service.check, standing.is_up, backend.weight) {
        (Some(_), false, _) => "down",
        (_, _, 0) => "draining",
        (Some(_), true, _) if standing.last.is_none() => "unchecked",
        _ => "up",
    }
}

impl Balance {
    /// Whether there is a balancer of that name, if one is named.
    ///
    /// # Errors
    /// There is none.
    pub fn check(&self, filter: &str) -> Result<(), Problem> {
        let names = || (self.known.config.services.iter()).map(|service| service.name.as_str());
        match filter.is_empty() || names().any(|name| name == filter) {
            true => Ok(()),
            false => Err(Problem::new(
                format!("there is no balancer `{filter}`"),
                offer(filter, names()),
            )),
        }
    }

    /// Adds the backends of that balancer, or of all.
    pub fn rows(&self, filter: &str, counts: &FlowCounts, now: Instant, rows: &mut Rows) {
        let tables = self.board.tables();
        for (at, (service, numbers)) in self.known.services().enumerate() {
            if !filter.is_empty() && service.name != filter {
                continue;
            }
            for (place, (backend, number)) in service.backends.iter().zip(numbers).enumerate() {
                let standing = self.board.standing(*number);
                let share = tables.share(at, place);
                rows.add_with(|| row((service, backend), *number, share, &standing, counts, now));
            }
        }
    }

    /// Adds the families of services to the metrics page.
    pub fn metrics(&self, counts: &FlowCounts, page: &mut Exposition) {
        if self.known.config.services.is_empty() {
            return;
        }
        let help = "Whether a backend is up: its checks say so, or it has none.";
        page.family("backend_up", FamilyKind::Gauge, "", help);
        self.samples(page, |_, number| self.board.standing(number).is_up.into());
        let help = "How many flows a backend gets, relative to the others of its balancer.";
        page.family("backend_weight", FamilyKind::Gauge, "", help);
        self.samples(page, |backend, _| backend.weight.into());
        let help = "Flows that have begun, by backend.";
        page.family("backend_flows_begun", FamilyKind::Counter, "", help);
        self.samples(page, |_, number| of(&counts.begun, number));
    }

    fn samples(&self, page: &mut Exposition, value: impl Fn(&Backend, u16) -> u64) {
        for (service, backend, number) in self.each() {
            let name = backend.to_string();
            let labels = [("balancer", service.name.as_str()), ("backend", &name)];
            page.sample(&labels, value(backend, number));
        }
    }

    /// Where the first packet of a flow goes now, and in which words; `None` where it is for no
    /// service.
    pub fn explain(&self, first: &Tuple) -> Option<(Option<Chosen>, String)> {
        let tables = self.board.tables();
        let at = tables.service(first)?;
        let service = &self.known.config.services[at];
        let name = format!("balancer {} ({})", service.name, service.place());
        Some(match tables.choose(first)? {
            Err(NoBackend) => (None, format!("{name}: no backend is up: rejected")),
            Ok(chosen) => {
                let backend = &service.backends[chosen.place.1];
                let how = match service.form.is_direct() {
                    true => format!("encapsulated ({})", service.form.name()),
                    false => format!("the destination becomes {}", chosen.tuple.dst),
                };
                (Some(chosen), format!("{name}: backend {backend}: {how}"))
            }
        })
    }
}

fn row(
    (service, backend): (&Service, &Backend),
    number: u16,
    share: f64,
    standing: &Standing,
    counts: &FlowCounts,
    now: Instant,
) -> Value {
    let last = standing.last.as_ref();
    let checked = last.map(|(when, _)| now.saturating_duration_since(*when).as_millis() as u64);
    let why = last.and_then(|(_, answer)| answer.as_ref().err());
    json!({
        "balancer": service.name,
        "service": service.place(),
        "form": service.form.name(),
        "backend": backend.to_string(),
        "state": state(service, backend, standing),
        "weight": backend.weight,
        "share_percent": (share * 1000.0).round() / 10.0,
        "flows": of(&counts.now, number),
        "flows_begun": of(&counts.begun, number),
        "check": service.check.as_ref().map(|check| check.kind.name()),
        "checked_ms_ago": checked,
        "why": why,
    })
}
