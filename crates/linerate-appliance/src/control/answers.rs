//! The methods that every appliance answers: `show`, `clear`, `metrics`, `capture`, `trace`,
//! `reload` and `stop`, and those that one has of its own.
//!
//! An appliance says what it [answers](Answers), on the thread that owns its run. [`Listeners`]
//! take clients, each of which has a thread on which [`Methods`] ask that one.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_wire::filter::Filter;
use serde_json::{Value, json};

use super::http::Http;
use super::mailbox::Mailbox;
use super::reload::{Outcomes, Reload};
use super::server::{Server, Service, say};
use super::show::Rows;
use super::taps::Taps;
use super::trace::Begun;
use super::{capture, trace};
use crate::error::Error;
use crate::nearest::offer;
use crate::socket::unix::UnixDoor;
use crate::socket::{Problem, Request};

/// The methods of all, for those who mistype one.
const METHODS: [&str; 7] = [
    "show", "clear", "metrics", "capture", "trace", "reload", "stop",
];

/// Where an appliance may be asked; nowhere when nothing is said.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The socket of `linerate ctl`.
    pub control: Option<PathBuf>,
    /// The address of the metrics page.
    pub metrics: Option<SocketAddr>,
}

impl Places {
    /// Opens the socket of `linerate ctl`, if there is to be one.
    ///
    /// # Errors
    /// Another process listens there, or the path cannot be written.
    pub fn door(&self) -> Result<Option<UnixDoor>, Error> {
        let path = self.control.as_deref();
        path.map(|path| UnixDoor::open(path, false, "--control PATH"))
            .transpose()
    }
}

/// What is still to do for an answer, on the thread of who asks.
pub type Later = Box<dyn FnOnce() -> Value + Send>;

/// What an appliance answers, on the thread that owns its run.
pub trait Answers: Sized + 'static {
    /// Methods that it has besides those of all.
    const OWN: &'static [&'static str] = &[];

    /// Where its packets can be watched.
    ///
    /// # Errors
    /// It has ended.
    fn taps(&mut self) -> Result<Taps, Problem>;

    /// The rows of a table that `params` ask for. What takes long of them is
    /// [made later](Rows::later).
    ///
    /// # Errors
    /// It has none of that name, or has ended.
    fn table(&mut self, what: &str, params: &Value) -> Result<Rows, Problem>;

    /// Has tables show counters from 0 on. Returns what is to be said of that, as `text`.
    ///
    /// # Errors
    /// It has ended.
    fn clear(&mut self) -> Result<Value, Problem>;

    /// Ends what `params` ask for of what is called `what`, and says how much that was.
    ///
    /// # Errors
    /// Nothing of that name can be cleared.
    fn clear_rows(&mut self, what: &str, _params: &Value) -> Result<Later, Problem> {
        let problem = format!("there is no `{what}` to clear");
        Err(Problem::new(problem, "clear counters"))
    }

    /// The page of metrics; `reloads` is how those went, where its files can be read again.
    ///
    /// # Errors
    /// It has ended.
    fn metrics(&mut self, reloads: Option<&Outcomes>) -> Result<String, Problem>;

    /// Ends it.
    fn stop(&mut self);

    /// Begins a trace, where its stages have more to say of a packet than that it came by.
    fn trace(&mut self, _filter: &Option<Filter>, _count: u32) -> Option<Begun> {
        None
    }

    /// Why its files cannot be read again, where they cannot.
    fn no_reload() -> Problem {
        Problem::new(
            "there is no file to read again",
            "start it with a file, by --config",
        )
    }

    /// Does what a method of its own says.
    ///
    /// # Errors
    /// Whatever is wrong with what was asked.
    fn own(&mut self, method: &str, _params: &Value) -> Result<Value, Problem> {
        Err(unknown::<Self>(method))
    }
}

/// What is said of a `clear` after which tables show what was counted since.
pub fn cleared() -> Value {
    json!({ "text": "counters are shown from 0; the metrics page goes on" })
}

/// The methods of an appliance, which ask the thread that owns its run. Each client's thread has a
/// clone.
pub struct Methods<A> {
    mailbox: Mailbox<A>,
    reload: Option<Reload>,
}

impl<A> Clone for Methods<A> {
    fn clone(&self) -> Self {
        Self {
            mailbox: self.mailbox.clone(),
            reload: self.reload.clone(),
        }
    }
}

impl<A: Answers> Methods<A> {
    /// They ask by `mailbox`, and have files read again by `reload` where that can be.
    pub fn new(mailbox: Mailbox<A>, reload: Option<Reload>) -> Self {
        Self { mailbox, reload }
    }

    /// The answer to a request that is one.
    ///
    /// # Errors
    /// Whatever is wrong with it, or that the appliance has ended.
    pub fn answer(&self, method: &str, params: Value) -> Result<Value, Problem> {
        let what = params.get("what").and_then(Value::as_str);
        let what = what.unwrap_or("").to_owned();
        match method {
            "show" => {
                let rows = self
                    .mailbox
                    .call(move |owner| owner.table(&what, &params))??;
                Ok(rows.end())
            }
            "clear" if what == "counters" => self.mailbox.call(A::clear)?,
            "clear" => {
                let rest = self
                    .mailbox
                    .call(move |owner| owner.clear_rows(&what, &params))??;
                Ok(rest())
            }
            "metrics" => self.metrics().map(|page| json!({ "text": page })),
            "reload" => self.reload.as_ref().ok_or_else(A::no_reload)?.now(),
            "stop" => {
                self.mailbox.call(A::stop)?;
                Ok(json!({ "text": "ending" }))
            }
            other => match A::OWN.iter().find(|own| **own == other) {
                Some(own) => self.mailbox.call(move |owner| owner.own(own, &params))?,
                None => Err(unknown::<A>(other)),
            },
        }
    }

    fn metrics(&self) -> Result<String, Problem> {
        let reloads = self.reload.as_ref().map(Reload::outcomes);
        self.mailbox
            .call(move |owner| owner.metrics(reloads.as_ref()))?
    }

    fn taps(&self) -> Result<Taps, Problem> {
        self.mailbox.call(A::taps)?
    }

    /// The appliance's own trace, or one of the points of its workers, which this thread sets.
    fn trace(&self, filter: Option<Filter>, count: u32) -> Result<Begun, Problem> {
        let of_points = filter.clone();
        let own = self
            .mailbox
            .call(move |owner| owner.trace(&filter, count))?;
        match own {
            Some(begun) => Ok(begun),
            None => trace::of_points(self.taps()?, &of_points, count),
        }
    }
}

/// That there is no method of that name.
fn unknown<A: Answers>(method: &str) -> Problem {
    let all = METHODS.iter().chain(A::OWN).copied();
    Problem::new(
        format!("there is no method `{method}` here"),
        offer(method, all),
    )
}

impl<A: Answers> Service for Methods<A> {
    fn serve(
        &self,
        request: Request,
        stream: &mut UnixStream,
        closing: &AtomicBool,
    ) -> io::Result<bool> {
        let (id, params) = (request.id, request.params);
        match request.method.as_deref().unwrap_or("") {
            "capture" => {
                capture::serve(stream.try_clone()?, id, &params, self.taps(), closing)?;
                return Ok(false);
            }
            "trace" => trace::serve(stream, id, &params, closing, |filter, count| {
                self.trace(filter, count)
            })?,
            method => say(stream, id, self.answer(method, params))?,
        }
        Ok(true)
    }
}

/// The listeners of an appliance. Dropping them sends clients away.
pub struct Listeners {
    _server: Option<Server>,
    http: Option<Http>,
}

impl Listeners {
    /// Listens at these places; `door` is that of `linerate ctl`, where it is open already.
    ///
    /// # Errors
    /// A place is taken, or cannot be had.
    pub fn at<A: Answers>(
        places: &Places,
        door: Option<Arc<UnixDoor>>,
        methods: Methods<A>,
    ) -> Result<Self, Error> {
        let door = match door {
            Some(door) => Some(door),
            None => places.door()?.map(Arc::new),
        };
        let listeners = Self::behind(door, places.metrics, methods)?;
        if let Some(at) = listeners.metrics() {
            eprintln!("metrics at http://{at}/metrics");
        }
        Ok(listeners)
    }

    /// Listens behind a door that is open already, and at the address of the metrics page.
    ///
    /// # Errors
    /// The address is taken, or cannot be had.
    pub fn behind<A: Answers>(
        door: Option<Arc<UnixDoor>>,
        metrics: Option<SocketAddr>,
        methods: Methods<A>,
    ) -> Result<Self, Error> {
        let server = door.map(|door| Server::listen(door, methods.clone()));
        let page = Arc::new(move || methods.metrics().ok());
        Ok(Self {
            _server: server.transpose()?,
            http: metrics.map(|at| Http::listen(at, page)).transpose()?,
        })
    }

    /// Where the metrics page is, where there is one.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|http| http.at)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::thread;

    /// An owner whose table and whose clearing ask it something themselves.
    struct Asked {
        mailbox: Mailbox<Self>,
        sum: u64,
    }

    impl Answers for Asked {
        fn taps(&mut self) -> Result<Taps, Problem> {
            Err(self.mailbox.ended())
        }

        fn table(&mut self, _: &str, params: &Value) -> Result<Rows, Problem> {
            let (mut rows, mailbox) = (Rows::asked(params), self.mailbox.clone());
            rows.later(move |rows| {
                for _ in 0..3 {
                    let sum = mailbox.call(|owner| owner.sum).unwrap();
                    rows.add_with(|| sum);
                }
            });
            Ok(rows)
        }

        fn clear(&mut self) -> Result<Value, Problem> {
            Ok(cleared())
        }

        fn clear_rows(&mut self, _: &str, _: &Value) -> Result<Later, Problem> {
            let mailbox = self.mailbox.clone();
            let clear = |owner: &mut Self| std::mem::take(&mut owner.sum);
            Ok(Box::new(move || mailbox.call(clear).unwrap().into()))
        }

        fn metrics(&mut self, _: Option<&Outcomes>) -> Result<String, Problem> {
            Ok(String::new())
        }

        fn stop(&mut self) {}
    }

    /// If these waited for what they ask themselves, they would wait for ever.
    #[test]
    fn the_owner_answers_while_a_long_table_is_made() {
        let (mailbox, jobs) = Mailbox::<Asked>::new("run");
        let mut asked = Asked {
            mailbox: mailbox.clone(),
            sum: 7,
        };
        let owner = thread::spawn(move || jobs.iter().take(6).for_each(|job| job(&mut asked)));
        let methods = Methods::new(mailbox, None);
        let shown = methods.answer("show", json!({ "limit": 2 })).unwrap();
        assert_eq!(
            (&shown["rows"], &shown["more"]),
            (&json!([7, 7]), &json!(1))
        );
        let ended = methods.answer("clear", json!({ "what": "flows" }));
        assert_eq!(ended.unwrap(), json!(7));
        owner.join().unwrap();
    }
}
