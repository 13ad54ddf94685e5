//! What clients may ask of a router: what every appliance answers, `drain`, `explain` and `move`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_wire::filter::Filter;
use serde_json::Value;

use super::{Control, generation};
use crate::config::Config;
use crate::extension::Appliance;
use crate::question::Question;
use linerate_appliance::control::answers::{Answers, Later, cleared};
use linerate_appliance::control::cleared::Cleared;
use linerate_appliance::control::mailbox::Mailbox;
use linerate_appliance::control::reload::{Outcomes, Reload};
use linerate_appliance::control::show::{Rows, filter};
use linerate_appliance::control::taps::Taps;
use linerate_appliance::control::trace::Begun;
use linerate_appliance::privilege::Privileged;
use linerate_appliance::socket::Problem;

/// A reload: it reads `file`, as whoever is `privileged` may, on the thread that asks, and has
/// control take it over.
pub(super) fn reload_by(
    appliance: Appliance,
    control: Mailbox<Control>,
    file: &Path,
    privileged: Arc<dyn Privileged>,
) -> Reload {
    let file = file.to_path_buf();
    Reload::new(move || {
        let mut config = Config::of(appliance, &file, privileged.configuration(&file));
        if let Ok(read) = &mut config {
            // What takes long is made here, while control answers others.
            let (built, acls, lists) = control.call(|control| {
                let (acls, lists) = (&control.config.acls, &control.settings.acls);
                (control.built.clone(), acls.clone(), lists.clone())
            })?;
            let prepared = generation::compile(read, (&acls, &lists))
                .and_then(|()| appliance.prepare(read, built.as_ref()));
            config = prepared.and(config);
        }
        control.call(move |control| control.reload(config))?
    })
}

impl Answers for Control {
    const OWN: &'static [&'static str] = &["drain", "explain", "move"];

    /// At ports, and at host interfaces that somebody names.
    fn taps(&mut self) -> Result<Taps, Problem> {
        let host_interfaces = self.host_interfaces.iter();
        let names = host_interfaces
            .map(|host_interface| (host_interface.number, host_interface.wanted.name.clone()));
        Ok(self.workers.running.taps().with_others(names.collect()))
    }

    fn table(&mut self, what: &str, params: &Value) -> Result<Rows, Problem> {
        self.show(what, params)
    }

    fn clear(&mut self) -> Result<Value, Problem> {
        let cleared_now = Cleared::new(Instant::now(), &super::show::TABLES, |table| {
            self.rows(table)
        });
        self.cleared = Some(cleared_now);
        Ok(cleared())
    }

    fn metrics(&mut self, reloads: Option<&Outcomes>) -> Result<String, Problem> {
        Ok(self.page(reloads))
    }

    fn stop(&mut self) {
        self.schedule.end_after(Duration::ZERO);
    }

    fn trace(&mut self, filter: &Option<Filter>, count: u32) -> Option<Begun> {
        Some(self.begin_trace(filter, count))
    }

    fn clear_rows(&mut self, what: &str, params: &Value) -> Result<Later, Problem> {
        let (filter, at_work) = (filter(params), self.at_work());
        self.config.appliance.clear(what, &filter, &at_work)
    }

    fn own(&mut self, method: &str, params: &Value) -> Result<Value, Problem> {
        if method == "explain" {
            return self.config.appliance.explain_flow(&Question {
                flow: params["flow"].as_str().unwrap_or_default(),
                from: params["in"].as_str().unwrap_or_default(),
                config: &self.config,
                settings: &self.settings,
                built: self.built.as_ref(),
                rib: &self.rib,
                running: Some(&self.workers.running),
            });
        }
        if method == "move" {
            return (self.config.appliance).move_bucket(params, &self.at_work());
        }
        let seconds = params["seconds"].as_f64();
        let seconds = seconds.filter(|seconds| (0.0..=3600.0).contains(seconds));
        let seconds = seconds.ok_or_else(|| {
            let problem = format!(
                "drain: seconds is {}, which is no such time",
                params["seconds"]
            );
            Problem::new(problem, "give seconds, 0 to 3600")
        })?;
        Ok(self.drain(Duration::from_secs_f64(seconds)))
    }
}
