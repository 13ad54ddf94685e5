//! What an appliance can be asked that has nothing of its own to say: ports, lcores, drops, stages
//! and books as tables, metrics, and its packets as captures and traces. The thread that watches
//! the [run](crate::runtime::watch()) answers.

use std::sync::mpsc::Receiver;
use std::time::Instant;

use linerate_core::run::Stage;
use serde_json::Value;

use super::answers::{Answers, Listeners, Places};
use super::exposition::Exposition;
use super::mailbox::{Job, Mailbox};
use super::reload::{self, Reload};
use super::show::{self, Found};
use super::taps::Taps;
use super::{ledger, metrics, path};
use crate::error::Error;
use crate::nearest::offer;
use crate::runtime::{Running, Sample, Signals};
use crate::socket::Problem;

/// All tables.
const TABLES: [&str; 5] = ["ports", "lcores", "drops", "path", "ledger"];

/// A run, as those who ask about it find it.
pub struct Asked<S: Stage + 'static> {
    /// The workers and their ports.
    pub running: Running<S>,
    /// Counters at the start.
    pub first: Sample,
    /// Counters about a second ago.
    pub recent: Sample,
    /// Since when it forwards.
    pub began: Instant,
    /// Whether somebody wants it to end.
    pub is_to_end: bool,
}

/// Listeners of a run, and what their clients want to have done.
pub struct Control<S: Stage + 'static> {
    /// First, so that who waits is told before others wait for it.
    jobs: Receiver<Job<Asked<S>>>,
    /// Where it listens.
    pub listeners: Listeners,
    _hangups: Option<Signals>,
}

impl<S: Stage + 'static> Control<S> {
    /// Listens. `read` is how the run's files are read again, where it has any.
    ///
    /// # Errors
    /// A place is taken, or cannot be had.
    pub fn listen(places: &Places, read: Option<reload::Read<S>>) -> Result<Self, Error> {
        let (mailbox, jobs) = Mailbox::new("run");
        let reload = read.map(|read| reload_by(read, mailbox.clone()));
        let client = Client { mailbox, reload };
        let hangups = client.reload.clone().map(Reload::on_hangup);
        Ok(Self {
            jobs,
            listeners: Listeners::at(places, &client)?,
            _hangups: hangups.transpose()?,
        })
    }

    /// Does what clients have asked for since.
    pub fn serve(&self, asked: &mut Asked<S>) {
        self.jobs.try_iter().for_each(|job| job(asked));
    }
}

fn metrics_page<S: Stage + 'static>(asked: &mut Asked<S>) -> String {
    let mut page = Exposition::default();
    metrics::instance(asked.began, &mut page);
    metrics::ports(asked.running.ports(), &mut page);
    metrics::captures(&asked.running, &mut page);
    metrics::lcores(&asked.running, &mut page);
    page.end()
}

fn table<S: Stage + 'static>(
    asked: &mut Asked<S>,
    what: &str,
    mut filter: String,
) -> Result<Found, Problem> {
    let mut summary = None;
    let running = &asked.running;
    let (names, rows): (&[&str], _) = match what {
        "ports" => {
            let warnings = show::warnings(running);
            summary = (!warnings.is_empty()).then(|| warnings.join("\n"));
            (&["name"], show::ports(running, &asked.recent))
        }
        "lcores" => {
            let all = show::lcores(running, &asked.first, &asked.recent, |_, _| "forwards");
            (&["name"], all)
        }
        "drops" => {
            let mut all = show::drops(running, std::iter::empty());
            summary = Some(show::most_first(&mut all));
            (&["reason", "at"], all)
        }
        "path" => {
            if filter == "cycles" {
                path::measure(running);
                filter.clear();
            }
            let all: Vec<Value> = path::stages(running).iter().map(show::value).collect();
            let warnings: Vec<String> = path::warnings(&all).collect();
            summary = (!warnings.is_empty()).then(|| warnings.join("\n"));
            (&["stage"], all)
        }
        "ledger" => {
            let (all, verdict) = ledger::rows(&running.balance());
            summary = Some(verdict);
            (&["holder"], all)
        }
        other => {
            let problem = format!("there is no table `{other}` here");
            return Err(Problem::new(problem, offer(other, TABLES)));
        }
    };
    Ok(Found {
        rows,
        summary,
        names,
        filter,
    })
}

/// Reads on the thread that asks, and takes over on the one that watches the run.
fn reload_by<S: Stage + 'static>(mut read: reload::Read<S>, mailbox: Mailbox<Asked<S>>) -> Reload {
    Reload::new(move || {
        let (changes, take_over) = read()?;
        mailbox.call(move |asked| take_over(&asked.running))?;
        Ok(changes.value().into())
    })
}

/// Asks the thread that watches the run.
struct Client<S: Stage + 'static> {
    mailbox: Mailbox<Asked<S>>,
    reload: Option<Reload>,
}

impl<S: Stage + 'static> Clone for Client<S> {
    fn clone(&self) -> Self {
        Self {
            mailbox: self.mailbox.clone(),
            reload: self.reload.clone(),
        }
    }
}

impl<S: Stage + 'static> Answers for Client<S> {
    fn taps(&self) -> Result<Taps, Problem> {
        self.mailbox.call(|asked| asked.running.taps())
    }

    fn table(&self, what: &str, params: &Value) -> Result<Found, Problem> {
        let (what, filter) = (what.to_owned(), show::filter(params));
        self.mailbox
            .call(move |asked| table(asked, &what, filter))?
    }

    fn metrics(&self) -> Result<String, Problem> {
        self.mailbox.call(metrics_page)
    }

    fn reload(&self) -> Result<Value, Problem> {
        let reload = self.reload.as_ref().ok_or_else(|| {
            Problem::new(
                "there is no file to read again",
                "start it with a file, by --config",
            )
        })?;
        reload.now()
    }

    fn stop(&self) -> Result<(), Problem> {
        self.mailbox.call(|asked| asked.is_to_end = true)
    }
}
