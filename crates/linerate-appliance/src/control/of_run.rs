//! What an appliance can be asked that has nothing of its own to say: the tables and metrics of its
//! run, and its packets as captures and traces. The thread that watches the
//! [run](crate::runtime::watch()) answers.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use linerate_core::run::Stage;
use serde_json::Value;

use super::answers::{Answers, Listeners, Methods, Places, cleared};
use super::cleared::Cleared;
use super::exposition::Exposition;
use super::mailbox::{Job, Mailbox};
use super::metrics;
use super::reload::{self, Outcomes, Reload};
use super::show::{self, Rows, Table};
use super::tables::RunTables;
use super::taps::Taps;
use crate::error::Error;
use crate::notify::Notify;
use crate::runtime::{Readings, Running, Signals};
use crate::socket::Problem;
use crate::socket::unix::UnixDoor;

/// Tables and metrics that an appliance has besides those of all.
pub struct More<S: Stage + 'static> {
    /// Its tables.
    pub tables: &'static [&'static Table],
    /// Adds the rows of one of them that have a name; an empty one has each.
    pub rows: fn(&Running<S>, &Table, &str, &mut Rows),
    /// Adds its metrics.
    pub metrics: fn(&Running<S>, &mut Exposition),
}

/// A run, as those who ask about it find it.
pub struct Asked<S: Stage + 'static> {
    /// The workers and their ports.
    pub running: Running<S>,
    /// Since when is counted.
    pub readings: Readings,
    /// What counters were when somebody cleared them.
    pub cleared: Option<Cleared>,
    /// Whether somebody wants it to end.
    pub is_to_end: bool,
    /// What the appliance shows besides.
    pub more: Option<More<S>>,
    /// Who hears of reloads.
    pub manager: Notify,
    /// How the run is, for the service manager.
    pub status: String,
}

/// Listeners of a run, and what their clients want to have done.
pub struct Control<S: Stage + 'static> {
    /// First, so that who waits is told before others wait for it.
    jobs: Receiver<Job<Asked<S>>>,
    _listeners: Listeners,
    _hangups: Option<Signals>,
}

impl<S: Stage + 'static> Control<S> {
    /// Listens; `door` is the socket of `linerate ctl`, where it is open already. `read` is how the
    /// run's files are read again, where it has any.
    ///
    /// # Errors
    /// A place is taken, or cannot be had.
    pub fn listen(
        places: &Places,
        door: Option<Arc<UnixDoor>>,
        read: Option<reload::Read<S>>,
    ) -> Result<Self, Error> {
        let (mailbox, jobs) = Mailbox::new("run");
        let reload = read.map(|read| reload_by(read, mailbox.clone()));
        let hangups = reload.clone().map(Reload::on_hangup);
        Ok(Self {
            jobs,
            _listeners: Listeners::at(places, door, Methods::new(mailbox, reload))?,
            _hangups: hangups.transpose()?,
        })
    }

    /// Does what clients have asked for since.
    pub fn serve(&self, asked: &mut Asked<S>) {
        self.jobs.try_iter().for_each(|job| job(asked));
    }
}

/// Reads on the thread that asks, and takes over on the one that watches the run.
fn reload_by<S: Stage + 'static>(mut read: reload::Read<S>, mailbox: Mailbox<Asked<S>>) -> Reload {
    Reload::new(move || {
        mailbox.call(|asked| asked.manager.reloading())?;
        let read = read();
        let last = match &read {
            Ok((changes, _)) => changes.text(),
            Err(error) => format!("refused: {error}"),
        };
        let read = read.map(|(changes, take_over)| (changes.value(), take_over));
        mailbox.call(move |asked| {
            let outcome = read.map(|(changes, take_over)| {
                asked.take_over(take_over);
                changes.into()
            });
            let status = format!("{}; last reload: {last}", asked.status);
            asked.manager.ready(&status);
            outcome.map_err(Problem::from)
        })?
    })
}

impl<S: Stage + 'static> Asked<S> {
    fn take_over(&mut self, take_over: reload::TakeOver<S>) {
        take_over(&self.running);
        // Stages may be new, and count from 0.
        if let Some(mut cleared) = self.cleared.take() {
            cleared.retain(|table| self.tables().rows(table));
            self.cleared = Some(cleared);
        }
    }

    fn tables(&self) -> RunTables<'_, S> {
        RunTables {
            running: &self.running,
            readings: &self.readings,
            does: |_, _| "forwards",
            others: Vec::new(),
        }
    }
}

impl<S: Stage + 'static> Answers for Asked<S> {
    fn taps(&mut self) -> Result<Taps, Problem> {
        Ok(self.running.taps())
    }

    fn table(&mut self, what: &str, params: &Value) -> Result<Rows, Problem> {
        let own = self.more.as_ref().map_or(&[][..], |more| more.tables);
        let table = Table::find(&[&RunTables::<S>::ALL, own].concat(), what)?;
        let mut filter = show::filter(params);
        if let Some(more) = self.more.as_ref().filter(|_| own.contains(&table)) {
            let mut rows = Rows::asked(params);
            (more.rows)(&self.running, table, &filter, &mut rows);
            return Ok(rows);
        }
        let found = self.tables().found(table, &mut filter);
        Ok(found.asked(table, self.cleared.as_ref(), &filter, params))
    }

    fn clear(&mut self) -> Result<Value, Problem> {
        let tables = self.tables();
        let rows = |table: &Table| tables.rows(table);
        self.cleared = Some(Cleared::new(Instant::now(), &RunTables::<S>::ALL, rows));
        Ok(cleared())
    }

    fn metrics(&mut self, reloads: Option<&Outcomes>) -> Result<String, Problem> {
        let mut page = Exposition::default();
        metrics::run(&self.running, self.readings.began, reloads, &mut page);
        if let Some(more) = &self.more {
            (more.metrics)(&self.running, &mut page);
        }
        Ok(page.end())
    }

    fn stop(&mut self) {
        self.is_to_end = true;
    }
}
