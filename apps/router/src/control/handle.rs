//! How other threads reach the control thread: events in one queue, and questions among them.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::{Control, Event};
use crate::config::Config;
use linerate_appliance::privilege::Privileged;
use linerate_appliance::socket::Problem;

/// Work for the control thread.
pub(super) type Job = Box<dyn FnOnce(&mut Control) + Send>;

/// Asks the control thread. Clones ask the same one.
#[derive(Clone)]
pub(crate) struct ControlHandle {
    events: Sender<Event>,
    /// The configuration file, for one reader at a time: what was read later is taken over later.
    file: Arc<Mutex<PathBuf>>,
    /// Who may read it.
    privileged: Arc<dyn Privileged>,
}

impl ControlHandle {
    pub(super) fn new(events: Sender<Event>, file: &Path, privileged: Arc<dyn Privileged>) -> Self {
        Self {
            events,
            file: Arc::new(Mutex::new(file.into())),
            privileged,
        }
    }

    /// Tells it something; nobody is left to tell where it has ended.
    pub(super) fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Has `work` done on the control thread and returns what it returns.
    ///
    /// # Errors
    /// The router has ended.
    pub(super) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Control) -> R + Send + 'static,
    ) -> Result<R, Problem> {
        let (answer, answered): (SyncSender<R>, _) = mpsc::sync_channel(1);
        let job: Job = Box::new(move |control| {
            let _ = answer.send(work(control));
        });
        self.events.send(Event::Job(job)).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())
    }

    /// Reads the configuration file, on this thread, and has control take it over. Returns what has
    /// changed.
    ///
    /// # Errors
    /// Nothing has: the file is wrong, or asks for what cannot be.
    pub(super) fn reload(&self) -> Result<Value, Problem> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let config = Config::of(&file, self.privileged.configuration(&file));
        self.call(move |control| control.reload(config))?
    }
}

fn ended() -> Problem {
    Problem::new("the router has ended", "start it again")
}
