//! A router inside of another program, which has the other ends of its ports: no socket, no
//! signals, and nothing printed. It is what benchmarks measure; the rest is the router that users
//! run.

use std::path::Path;
use std::sync::Arc;

use linerate_core::env::{Clock, Lcore, LcoreHandle, Topology};
use linerate_core::run::WorkerStats;
use linerate_core::run::ledger::Balance;
use linerate_drivers::{Drivers, Own};
use serde_json::{Value, json};

use super::server::reload_by;
use super::start::{Access, bring_up, place};
use super::{Control, Run};
use crate::config::Config;
use crate::extension::Appliance;
use linerate_appliance::control::answers::{Answers, Methods};
use linerate_appliance::control::mailbox::Mailbox;
use linerate_appliance::control::path::{self, Measured};
use linerate_appliance::control::reload::Reload;
use linerate_appliance::error::Error;
use linerate_appliance::socket::Problem;
use linerate_appliance::socket::usual_socket;

/// A router at work. It ends with this.
pub struct Embedded {
    mailbox: Mailbox<Control>,
    reload: Reload,
    /// Where control runs.
    cpu: u32,
    control: Option<LcoreHandle<Result<Balance, Error>>>,
    pub clock: Clock,
    /// Name and counters of the first worker that forwards.
    pub worker: (String, Arc<WorkerStats>),
    /// The same of all that forward.
    pub workers: Vec<(String, Arc<WorkerStats>)>,
    /// What its memory is, a line each.
    pub memory: Vec<String>,
}

impl Embedded {
    /// Brings up what the file at `path` says, its ports opened by `drivers`, control on `cpu`.
    ///
    /// # Errors
    /// As for `linerate router` and the like.
    pub fn start(
        appliance: Appliance,
        path: &Path,
        drivers: &mut Drivers,
        cpu: u32,
    ) -> Result<Self, Error> {
        Self::start_on(appliance, path, drivers, cpu, &Topology::machine()?)
    }

    /// The same, as on a machine with that topology.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on(
        appliance: Appliance,
        path: &Path,
        drivers: &mut Drivers,
        cpu: u32,
        topology: &Topology,
    ) -> Result<Self, Error> {
        let mut config = Config::read(appliance, path)?;
        appliance.prepare(&mut config, None)?;
        let plan = place(&config, topology)?;
        let (mailbox, jobs) = Mailbox::new(appliance.name());
        let reload = reload_by(appliance, mailbox.clone(), path, Arc::new(Own));
        let run = Run {
            json: false,
            duration: None,
        };
        let privileged = Access {
            privileged: Arc::new(Own),
            socket: usual_socket(),
        };
        let mut control = bring_up(path, config, &plan, drivers, &mailbox, &run, &privileged)?;
        let clock = control.workers.running.clock();
        let all = control.workers.running.lcores();
        let all = all.map(|(name, _, stats)| (name.to_owned(), stats.clone()));
        let mut workers: Vec<_> = all.collect();
        // The last one does not forward.
        workers.pop();
        let worker = workers.first().cloned();
        let worker = worker.expect("a router has workers");
        let memory = control.workers.running.memory.iter();
        let memory = memory.cloned().collect();
        let control = Lcore::spawn("control", Some(cpu), move || {
            let ran = control.run(&jobs);
            drop(jobs);
            let (_, balance, errors) = control.finish();
            ran.and(Error::all(errors)).map(|()| balance)
        })?;
        Ok(Self {
            mailbox,
            reload,
            cpu,
            control: Some(control),
            clock,
            worker,
            workers,
            memory,
        })
    }

    /// The rows of a table, as clients of its socket see them.
    ///
    /// # Errors
    /// It has ended, or has no such table.
    pub fn show(&self, what: &'static str) -> Result<Value, Problem> {
        self.ask("show", json!({ "what": what }))
    }

    /// Begins a reload of the file, on a thread that ends with it.
    ///
    /// # Errors
    /// There can be no other thread.
    pub fn reload(&self) -> Result<LcoreHandle<Result<Value, Problem>>, Error> {
        let reload = self.reload.clone();
        Ok(Lcore::spawn("reload", Some(self.cpu), move || {
            reload.now()
        })?)
    }

    /// Answers as the control socket does, to a method such as `show`.
    ///
    /// # Errors
    /// What is wrong with the question, or that it has ended.
    pub fn ask(&self, method: &str, params: Value) -> Result<Value, Problem> {
        let methods = Methods::new(self.mailbox.clone(), Some(self.reload.clone()));
        methods.answer(method, params)
    }

    /// Whether workers forward by the routes that `show` tells: a change waits for others that come
    /// with it.
    ///
    /// # Errors
    /// It has ended.
    pub fn is_published(&self) -> Result<bool, Problem> {
        self.mailbox.call(|control| control.schedule.is_published())
    }

    /// Has all stages measured for some seconds.
    ///
    /// # Errors
    /// It has ended.
    pub fn measure(&self) -> Result<(), Problem> {
        self.mailbox
            .call(|control| path::measure(&control.workers.running))
    }

    /// What stages took since, by worker, in the order of [`workers`](Self::workers).
    ///
    /// # Errors
    /// It has ended.
    pub fn measured(&self) -> Result<Vec<Vec<Measured>>, Problem> {
        let all = self
            .mailbox
            .call(|control| path::measured(&control.workers.running))?;
        Ok(all.into_iter().take(self.workers.len()).collect())
    }

    /// Ends it. Returns its books.
    ///
    /// # Errors
    /// What went wrong while it ran, or at the end.
    pub fn stop(mut self) -> Result<Balance, Error> {
        self.mailbox.tell(Control::stop);
        let control = self.control.take().expect("it ends once");
        control.join()?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // The handle waits for the thread when it goes.
        self.mailbox.tell(Control::stop);
    }
}
