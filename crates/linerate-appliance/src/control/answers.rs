//! The methods that every appliance answers: `show`, `metrics`, `capture`, `trace`, `reload` and
//! `stop`.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};

use super::http::Http;
use super::server::{Server, Service, say};
use super::taps::Taps;
use super::{capture, show, trace};
use crate::error::Error;
use crate::nearest::offer;
use crate::socket::unix::UnixDoor;
use crate::socket::{Problem, Request};

/// All methods, for those who mistype one.
const METHODS: [&str; 6] = ["show", "metrics", "capture", "trace", "reload", "stop"];

/// Where an appliance may be asked; nowhere when nothing is said.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The socket of `linerate ctl`.
    pub control: Option<PathBuf>,
    /// The address of the metrics page.
    pub metrics: Option<SocketAddr>,
}

/// What an appliance that has no methods of its own says. Each client's thread has a clone.
pub trait Answers: Clone + Send + Sync + 'static {
    /// Where its packets can be watched.
    ///
    /// # Errors
    /// It has ended.
    fn taps(&self) -> Result<Taps, Problem>;

    /// All of a table, of which `params` says more.
    ///
    /// # Errors
    /// It has none of that name, or has ended.
    fn table(&self, what: &str, params: &Value) -> Result<show::Found, Problem>;

    /// The page of metrics.
    ///
    /// # Errors
    /// It has ended.
    fn metrics(&self) -> Result<String, Problem>;

    /// Reads its files again, and says what has changed.
    ///
    /// # Errors
    /// They are wrong, or there are none.
    fn reload(&self) -> Result<Value, Problem>;

    /// Ends it.
    ///
    /// # Errors
    /// It has ended.
    fn stop(&self) -> Result<(), Problem>;
}

/// The listeners of an appliance. Dropping them sends clients away.
pub struct Listeners {
    _server: Option<Server>,
    /// The metrics page, where there is one.
    pub http: Option<Http>,
}

impl Listeners {
    /// Listens at these places.
    ///
    /// # Errors
    /// A place is taken, or cannot be had.
    pub fn at(places: &Places, answers: &impl Answers) -> Result<Self, Error> {
        let server = places.control.as_deref().map(|path| {
            let door = UnixDoor::open(path, false, "--control PATH")?;
            Server::listen(door, Methods(answers.clone()))
        });
        let http = places.metrics.map(|address| {
            let answers = answers.clone();
            Http::listen(address, Arc::new(move || answers.metrics().ok()))
        });
        Ok(Self {
            _server: server.transpose()?,
            http: http.transpose()?,
        })
    }
}

#[derive(Clone)]
struct Methods<A>(A);

impl<A: Answers> Service for Methods<A> {
    fn serve(
        &self,
        request: Request,
        stream: &mut UnixStream,
        closing: &AtomicBool,
    ) -> io::Result<bool> {
        let (id, params) = (request.id, request.params);
        let result = match request.method.as_deref().unwrap_or("") {
            "capture" => {
                capture::serve(stream.try_clone()?, id, &params, self.0.taps(), closing)?;
                return Ok(false);
            }
            "trace" => {
                trace::serve(stream, id, &params, closing, |filter, count| {
                    trace::of_points(self.0.taps()?, &filter, count)
                })?;
                return Ok(true);
            }
            "show" => {
                let what = params.get("what").and_then(Value::as_str).unwrap_or("");
                let found = self.0.table(what, &params);
                found.map(|found| found.answer(&params))
            }
            "metrics" => self.0.metrics().map(|page| json!({ "text": page })),
            "reload" => self.0.reload(),
            "stop" => self.0.stop().map(|()| json!({ "text": "ending" })),
            other => {
                let problem = format!("there is no method `{other}` here");
                Err(Problem::new(problem, offer(other, METHODS)))
            }
        };
        say(stream, id, result)?;
        Ok(true)
    }
}
