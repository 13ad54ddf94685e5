//! What an appliance can be asked that has nothing of its own to say: ports, lcores, drops, stages
//! and books as tables, metrics, and its packets as captures and traces. The thread that watches the [run](crate::runtime::watch()) answers.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

use linerate_core::run::Stage;
use serde_json::{Value, json};

use super::exposition::Exposition;
use super::http::Http;
use super::server::{Server, Service, say};
use super::{capture, ledger, metrics, path, show, trace};
use crate::error::Error;
use crate::nearest::offer;
use crate::runtime::{Running, Sample};
use crate::socket::unix::UnixDoor;
use crate::socket::{Problem, Request};

/// All methods, for those who mistype one.
const METHODS: [&str; 5] = ["show", "metrics", "capture", "trace", "stop"];
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
pub struct Asked<'a, S: Stage + 'static> {
    /// The workers and their ports.
    pub running: &'a Running<S>,
    /// Counters at the start.
    pub first: &'a Sample,
    /// Counters about a second ago.
    pub recent: &'a Sample,
    /// Since when it forwards.
    pub began: Instant,
    /// Whether somebody wants it to end.
    pub is_to_end: bool,
}

/// Work for the thread that watches the run.
type Job<S> = Box<dyn FnOnce(&mut Asked<'_, S>) + Send>;

/// Listeners of a run, and what their clients want to have done.
pub struct Control<S: Stage + 'static> {
    jobs: Receiver<Job<S>>,
    _server: Option<Server>,
    /// The metrics page, where there is one.
    pub http: Option<Http>,
}

impl<S: Stage + 'static> Control<S> {
    /// Listens.
    ///
    /// # Errors
    /// A place is taken, or cannot be had.
    pub fn listen(places: &Places) -> Result<Self, Error> {
        let (sender, jobs) = mpsc::channel();
        let client = Client { jobs: sender };
        let server = places.control.as_deref().map(|path| {
            let door = UnixDoor::open(path, false, "--control PATH")?;
            Server::listen(door, client.clone())
        });
        let http = places.metrics.map(|address| {
            let client = client.clone();
            let page = move || client.call(metrics_page).ok();
            Http::listen(address, Arc::new(page))
        });
        Ok(Self {
            jobs,
            _server: server.transpose()?,
            http: http.transpose()?,
        })
    }

    /// Does what clients have asked for since.
    pub fn serve(&self, asked: &mut Asked<'_, S>) {
        self.jobs.try_iter().for_each(|job| job(asked));
    }
}

fn metrics_page<S: Stage + 'static>(asked: &mut Asked<'_, S>) -> String {
    let mut page = Exposition::default();
    metrics::instance(asked.began, &mut page);
    metrics::ports(asked.running, &mut page);
    metrics::captures(asked.running, &mut page);
    metrics::lcores(asked.running, &mut page);
    page.end()
}

fn table<S: Stage + 'static>(asked: &mut Asked<'_, S>, params: &Value) -> Result<Value, Problem> {
    let what = params.get("what").and_then(Value::as_str).unwrap_or("");
    let mut filter = params.get("filter").and_then(Value::as_str).unwrap_or("");
    let mut rows = show::Rows::asked(params);
    let running = asked.running;
    let (names, all): (&[&str], _) = match what {
        "ports" => {
            let warnings = show::warnings(running);
            rows.summary = (!warnings.is_empty()).then(|| warnings.join("\n"));
            (&["name"], show::ports(running, asked.recent))
        }
        "lcores" => {
            let all = show::lcores(running, asked.first, asked.recent, |_, _| "forwards");
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

/// Asks the thread that watches the run.
struct Client<S: Stage + 'static> {
    jobs: Sender<Job<S>>,
}

impl<S: Stage + 'static> Clone for Client<S> {
    fn clone(&self) -> Self {
        let jobs = self.jobs.clone();
        Self { jobs }
    }
}

impl<S: Stage + 'static> Client<S> {
    fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Asked<'_, S>) -> R + Send + 'static,
    ) -> Result<R, Problem> {
        let ended = || Problem::new("the run has ended", "start it again");
        let (answer, answered) = mpsc::sync_channel(1);
        let job: Job<S> = Box::new(move |asked| _ = answer.send(work(asked)));
        self.jobs.send(job).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())
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
        let taps = || self.call(|asked| asked.running.taps());
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
                .call(move |asked| table(asked, &params))
                .and_then(|result| result),
            "metrics" => self.call(metrics_page).map(|page| json!({ "text": page })),
            "stop" => self.call(|asked| {
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
