//! How other threads reach the control thread: events in one queue, and questions among them.

use std::sync::mpsc::{self, Sender, SyncSender};

use super::{Control, Event};
use crate::socket::Problem;

/// Work for the control thread.
pub(super) type Job = Box<dyn FnOnce(&mut Control) + Send>;

/// Asks the control thread. Clones ask the same one.
#[derive(Clone)]
pub(crate) struct Desk {
    events: Sender<Event>,
}

impl Desk {
    pub(super) fn new(events: Sender<Event>) -> Self {
        Self { events }
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
}

fn ended() -> Problem {
    Problem::new("the router has ended", "start it again")
}
