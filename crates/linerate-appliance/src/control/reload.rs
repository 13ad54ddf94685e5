//! A reload: the files that a run was started with are read again and taken over, all of them or
//! nothing, when `linerate ctl reload` or SIGHUP asks for it.
//!
//! The thread that asks reads and checks; the one that owns the run takes over, so that others are
//! answered meanwhile. An appliance says how it [reads](Read) and what is to be done then.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use signal_hook::consts::SIGHUP;

use crate::error::Error;
use crate::runtime::{Running, Signals};
use crate::socket::Problem;

/// What an appliance without a control thread of its own does for a reload: it reads its files and
/// makes tables of them, on the thread that asks. What it returns is what differs, and what puts it
/// in force, which cannot fail.
pub type Read<S> = Box<dyn FnMut() -> Result<(Changes, TakeOver<S>), Error> + Send>;

/// Puts in force what was read, on the thread that watches the run.
pub type TakeOver<S> = Box<dyn FnOnce(&Running<S>) + Send>;

/// Reads the files and has them taken over. Clones do so one at a time: what was read later is
/// taken over later.
#[derive(Clone)]
pub struct Reload {
    again: Arc<Mutex<dyn FnMut() -> Result<Value, Problem> + Send>>,
    /// Behind a lock of its own: who is asked meanwhile does not wait for the reload.
    outcomes: Arc<Mutex<Outcomes>>,
}

/// How reloads went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Those that were taken over.
    pub done: u64,
    /// Those of which nothing was.
    pub refused: u64,
    /// Whether the last was refused; before the first none was.
    pub is_last_refused: bool,
    /// How long the last took, from the reading of the files on.
    pub last: Duration,
}

impl Outcomes {
    fn add(&mut self, is_refused: bool, took: Duration) {
        match is_refused {
            true => self.refused += 1,
            false => self.done += 1,
        }
        (self.is_last_refused, self.last) = (is_refused, took);
    }
}

impl Reload {
    /// A reload that is done by `again`, which returns what has changed.
    pub fn new(again: impl FnMut() -> Result<Value, Problem> + Send + 'static) -> Self {
        Self {
            again: Arc::new(Mutex::new(again)),
            outcomes: Arc::default(),
        }
    }

    /// How all went so far.
    pub fn outcomes(&self) -> Outcomes {
        *self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads, on this thread.
    ///
    /// # Errors
    /// Nothing has changed: a file is wrong, or asks for what cannot be.
    pub fn now(&self) -> Result<Value, Problem> {
        // One that panicked has changed nothing, or all.
        let mut again = self.again.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let outcome = again();
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.add(outcome.is_err(), began.elapsed());
        outcome
    }

    /// Reloads on each SIGHUP while the result lives, and says on standard error what came of it.
    /// Signals that come in the midst of a reload are one more when it is done.
    ///
    /// # Errors
    /// There can be no handler or no thread.
    pub fn on_hangup(self) -> io::Result<Signals> {
        let heard = move |_| match self.now() {
            Ok(result) => eprintln!("reload: {}", result["text"].as_str().unwrap_or_default()),
            Err(problem) => eprintln!("reload refused: {problem}\nfix: {}", problem.fix),
        };
        Signals::catch("reload", &[SIGHUP], heard)
    }
}

/// What a reload has changed: how many of what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(Vec<(&'static str, &'static str, usize)>);

impl Changes {
    /// Adds that `count` of `what` (in the singular: `route added`) have changed, which JSON has as
    /// `key`.
    #[must_use]
    pub fn and(mut self, key: &'static str, what: &'static str, count: usize) -> Self {
        self.0.push((key, what, count));
        self
    }

    /// `changed: 2 routes added, 1 port`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (_, what, count) in self.0.iter().filter(|(_, _, count)| *count > 0) {
            let before = if text.is_empty() { "changed: " } else { ", " };
            let _ = write!(text, "{before}{count} {}", plural(what, *count));
        }
        match text.is_empty() {
            true => "nothing changed".into(),
            false => text,
        }
    }

    /// As the answer to who asked: the text and the counts.
    pub fn value(&self) -> Map<String, Value> {
        let counts = self
            .0
            .iter()
            .map(|(key, _, count)| ((*key).into(), (*count).into()));
        [("text".into(), self.text().into())]
            .into_iter()
            .chain(counts)
            .collect()
    }
}

/// `routes added` of `route added`.
fn plural(what: &str, count: usize) -> String {
    let (noun, rest) = what.split_at(
        what.find(" added")
            .or(what.find(" removed"))
            .unwrap_or(what.len()),
    );
    match count {
        1 => what.into(),
        _ => format!("{noun}s{rest}"),
    }
}

/// That keys are other than they were which cannot change under the run that goes by `name`.
///
/// # Errors
/// There are such keys.
pub fn refuse(path: &Path, name: &str, keys: &[String]) -> Result<(), Error> {
    if keys.is_empty() {
        return Ok(());
    }
    let is_other: Vec<String> = keys.iter().map(|key| format!("{key} is another")).collect();
    Err(Error::Usage {
        problem: format!(
            "{}: not while {name} runs: {}",
            path.display(),
            is_other.join(", ")
        ),
        fix: format!("restart {name}, or undo these changes and reload the rest"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_in_words_and_numbers() {
        let changes = Changes::default().and("ports", "port", 1);
        let changes = changes.and("routes_added", "route added", 2);
        let changes = changes.and("routes_removed", "route removed", 1);
        let changes = changes.and("acls", "access list", 0);
        let text = "changed: 1 port, 2 routes added, 1 route removed";
        assert_eq!(changes.text(), text);
        let value = Value::Object(changes.value());
        assert_eq!(
            (&value["routes_added"], &value["acls"]),
            (&2.into(), &0.into())
        );
        assert_eq!(value["text"], text);
        assert_eq!(Changes::default().text(), "nothing changed");
    }

    #[test]
    fn outcomes_are_counted_and_the_last_one_stays() {
        let mut answers = [true, false, true].into_iter();
        let reload = Reload::new(move || match answers.next() {
            Some(true) => Ok(Value::Null),
            _ => Err(Problem::new("wrong", "right it")),
        });
        let counted = |reload: &Reload| {
            let answer = reload.clone().now();
            let Outcomes {
                done,
                refused,
                is_last_refused,
                ..
            } = reload.outcomes();
            assert_eq!(answer.is_err(), is_last_refused);
            (done, refused)
        };
        assert_eq!(reload.outcomes(), Outcomes::default());
        let all = [(); 3].map(|()| counted(&reload));
        assert_eq!(all, [(1, 0), (1, 1), (2, 1)]);
    }

    #[test]
    fn what_cannot_change_is_named() {
        let path = Path::new("l2fwd.toml");
        assert!(refuse(path, "l2fwd", &[]).is_ok());
        let keys = ["[plan]".into(), "l2fwd.queues".into()];
        let error = refuse(path, "l2fwd", &keys).unwrap_err();
        assert_eq!(
            error.to_string(),
            "l2fwd.toml: not while l2fwd runs: [plan] is another, l2fwd.queues is another"
        );
    }
}
