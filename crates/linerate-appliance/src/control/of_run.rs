//! What an appliance can be asked that has nothing of its own to say: ports, lcores, drops, stages
//! and books as tables, metrics, and its packets as captures and traces. The thread that watches
//! the [run](crate::runtime::watch()) answers.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use linerate_core::run::Stage;
use serde_json::{Value, json};

use super::exposition::Exposition;
use super::http::Http;
use super::mailbox::{Job, Mailbox};
use super::reload::{self, Reload};
use super::server::{Server, Service, say};
use super::{capture, ledger, metrics, path, show, trace};
use crate::error::Error;
use crate::nearest::offer;
use crate::runtime::{Running, Sample, Signals};
use crate::socket::unix::UnixDoor;
use crate::socket::{Problem, Request};

/// All methods, for those who mistype one.
const METHODS: [&str; 6] = ["show", "metrics", "capture", "trace", "reload", "stop"];
/// All tables.
const TABLES: [&str; 5] = ["ports", "lcores", "drops", "path", "ledger"];

/// Where a run may be asked; nowhere when nothing is said.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The socket of `linerate ctl`.
    pub control: Option<PathBuf>,
    /// The address of the metrics page.
    pub metrics: Option<SocketAddr>,
}

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
    _server: Option<Server>,
    /// The metrics page, where there is one.
    pub http: Option<Http>,
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
        let server = places.control.as_deref().map(|path| {
            let door = UnixDoor::open(path, false, "--control PATH")?;
            Server::listen(door, client.clone())
        });
        let http = places.metrics.map(|address| {
            let mailbox = client.mailbox.clone();
            let page = move || mailbox.call(metrics_page).ok();
            Http::listen(address, Arc::new(page))
        });
        Ok(Self {
            jobs,
            _server: server.transpose()?,
            http: http.transpose()?,
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
    metrics::ports(&asked.running, &mut page);
    metrics::captures(&asked.running, &mut page);
    metrics::lcores(&asked.running, &mut page);
    page.end()
}

fn table<S: Stage + 'static>(asked: &mut Asked<S>, params: &Value) -> Result<Value, Problem> {
    let what = params.get("what").and_then(Value::as_str).unwrap_or("");
    let mut filter = params.get("filter").and_then(Value::as_str).unwrap_or("");
    let mut rows = show::Rows::asked(params);
    let running = &asked.running;
    let (names, all): (&[&str], _) = match what {
        "ports" => {
            let warnings = show::warnings(running);
            rows.summary = (!warnings.is_empty()).then(|| warnings.join("\n"));
            (&["name"], show::ports(running, &asked.recent))
        }
        "lcores" => {
            let all = show::lcores(running, &asked.first, &asked.recent, |_, _| "forwards");
            (&["name"], all)
        }
        "drops" => {
            let mut all = show::drops(running, std::iter::empty());
            rows.summary = Some(show::most_first(&mut all));
            (&["reason", "at"], all)
        }
        "path" => {
            if filter == "cycles" {
                path::measure(running);
                filter = "";
            }
            let all: Vec<Value> = path::stages(running).iter().map(show::value).collect();
            let warnings: Vec<String> = path::warnings(&all).collect();
            rows.summary = (!warnings.is_empty()).then(|| warnings.join("\n"));
            (&["stage"], all)
        }
        "ledger" => {
            let (all, verdict) = ledger::rows(&running.balance());
            rows.summary = Some(verdict);
            (&["holder"], all)
        }
        other => {
            let problem = format!("there is no table `{other}` here");
            return Err(Problem::new(problem, offer(other, TABLES)));
        }
    };
    let is_wanted =
        |row: &Value| filter.is_empty() || names.iter().any(|name| row[*name] == *filter);
    for row in all.into_iter().filter(is_wanted) {
        rows.add_with(|| row);
    }
    Ok(rows.end())
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

impl<S: Stage + 'static> Client<S> {
    fn reload(&self) -> Result<Value, Problem> {
        let reload = self.reload.as_ref().ok_or_else(|| {
            Problem::new(
                "there is no file to read again",
                "start it with a file, by --config",
            )
        })?;
        reload.now()
    }
}

impl<S: Stage + 'static> Service for Client<S> {
    fn serve(
        &self,
        request: Request,
        stream: &mut UnixStream,
        closing: &AtomicBool,
    ) -> io::Result<bool> {
        let (id, params) = (request.id, request.params);
        let taps = || self.mailbox.call(|asked| asked.running.taps());
        let result = match request.method.as_deref().unwrap_or("") {
            "capture" => {
                capture::serve(stream.try_clone()?, id, &params, taps(), closing)?;
                return Ok(false);
            }
            "trace" => {
                trace::serve(stream, id, &params, closing, |filter, count| {
                    trace::of_points(taps()?, &filter, count)
                })?;
                return Ok(true);
            }
            "show" => self
                .mailbox
                .call(move |asked| table(asked, &params))
                .and_then(|result| result),
            "metrics" => (self.mailbox.call(metrics_page)).map(|page| json!({ "text": page })),
            "reload" => self.reload(),
            "stop" => self.mailbox.call(|asked| {
                asked.is_to_end = true;
                json!({ "text": "ending" })
            }),
            other => {
                let problem = format!("there is no method `{other}` here");
                Err(Problem::new(problem, offer(other, METHODS)))
            }
        };
        say(stream, id, result)?;
        Ok(true)
    }
}
