//! The session's thread: it alone owns the [`Session`], and runs requests one after the other.
//! Other threads have a [`ControlHandle`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_core::run::ledger::Balance;
use serde_json::Value;

use super::names::list;
use super::pktgen::Parts;
use super::protocol::{Event, Problem};
use crate::Snapshot;
use crate::session::{PortAsked, Session};
use crate::stream::StreamSpec;
use linerate_appliance::control::mailbox::{Job, Mailbox};
use linerate_appliance::error::Error;

/// A finished line, its end included, on its way to a client.
pub(super) type Outgoing = Arc<[u8]>;

/// The session, and its subscribers.
pub(crate) struct Control {
    session: Option<Session>,
    /// Since when there is one.
    pub(super) began: Instant,
    /// Where a run file or a file of commands was loaded from.
    pub(super) profile: String,
    /// Whether `quit` was given.
    pub(super) quitting: bool,
    /// Parts of ranges that Pktgen's `range` has set so far, by port and key.
    pub(super) ranges: HashMap<(u16, String), Parts>,
    subscribers: Vec<Subscriber>,
    next_subscriber: u64,
}

/// A client that is sent snapshots.
struct Subscriber {
    number: u64,
    /// Of the request.
    id: Value,
    period: Duration,
    due: Instant,
    out: SyncSender<Outgoing>,
    skipped: u64,
}

/// Asks the session's thread.
#[derive(Clone)]
pub(crate) struct ControlHandle(pub(super) Mailbox<Control>);

impl Control {
    /// Gives a session its thread, which ends after [`ControlHandle::close`], or when no handle is
    /// left.
    pub(crate) fn spawn(
        session: Session,
        profile: String,
    ) -> Result<(ControlHandle, JoinHandle<()>), Error> {
        let (mailbox, jobs) = Mailbox::new("session");
        let control = Self {
            session: Some(session),
            began: Instant::now(),
            profile,
            quitting: false,
            ranges: HashMap::new(),
            subscribers: Vec::new(),
            next_subscriber: 0,
        };
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || control.run(&jobs))?;
        Ok((ControlHandle(mailbox), thread))
    }

    fn run(mut self, jobs: &Receiver<Job<Self>>) {
        while self.session.is_some() {
            let due = self
                .subscribers
                .iter()
                .map(|subscriber| subscriber.due)
                .min();
            let job = match due {
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => jobs.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match job {
                Ok(job) => job(&mut self),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tell(Instant::now());
        }
    }

    /// The session.
    ///
    /// # Errors
    /// It has ended.
    pub(super) fn session(&mut self) -> Result<&mut Session, Problem> {
        self.session.as_mut().ok_or_else(ended)
    }

    /// All counts now.
    pub(super) fn snapshot(&mut self) -> Result<Snapshot, Problem> {
        let mut snapshot = self.session()?.snapshot();
        snapshot.profile.clone_from(&self.profile);
        Ok(snapshot)
    }

    /// Numbers and names of ports.
    pub(super) fn ports(&mut self) -> Result<Vec<(u16, String)>, Problem> {
        let names = self.session()?.port_names();
        Ok((0..).zip(names).collect())
    }

    /// The ports that a list such as `all`, `0,2-3` or `wan` says.
    pub(super) fn ports_of(&mut self, text: &str) -> Result<Vec<u16>, Problem> {
        of_list("port", text, &self.ports()?)
    }

    /// All streams: number, port, and how they are written.
    pub(super) fn specs(&mut self) -> Result<Vec<(u16, u16, StreamSpec)>, Problem> {
        Ok(self.session()?.streams())
    }

    /// Numbers and names of streams.
    pub(super) fn streams(&mut self) -> Result<Vec<(u16, String)>, Problem> {
        let named = |(id, _, spec): (u16, u16, StreamSpec)| (id, spec.name.unwrap_or_default());
        Ok(self.specs()?.into_iter().map(named).collect())
    }

    /// The streams that a list such as `all`, `0,2-3` or `voice` says.
    pub(super) fn streams_of(&mut self, text: &str) -> Result<Vec<u16>, Problem> {
        of_list("stream", text, &self.streams()?)
    }

    /// Sets a key of streams: of all of them or, where it is wrong for one, of none.
    pub(super) fn set_streams(
        &mut self,
        streams: &[u16],
        key: &str,
        value: &str,
    ) -> Result<(), Problem> {
        let before = self.specs()?;
        for (done, &id) in streams.iter().enumerate() {
            let result = self.session()?.set_stream(id, key, value);
            let Err(error) = result else {
                continue;
            };
            for (id, _, spec) in before
                .iter()
                .filter(|(id, _, _)| streams[..done].contains(id))
            {
                // Undo: the old value was valid a moment ago.
                let value = spec.get(key).unwrap_or_else(|| "default".into());
                let _ = self.session()?.set_stream(*id, key, &value);
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Adds streams: all of them or, where one is wrong, none. Returns their numbers.
    pub(super) fn add_streams(&mut self, specs: Vec<StreamSpec>) -> Result<Vec<u16>, Problem> {
        let mut added = Vec::new();
        for spec in specs {
            match self.session()?.add_stream(spec) {
                Ok(id) => added.push(id),
                Err(error) => {
                    self.remove_streams(&added)?;
                    return Err(error.into());
                }
            }
        }
        Ok(added)
    }

    pub(super) fn remove_streams(&mut self, streams: &[u16]) -> Result<(), Problem> {
        for &id in streams {
            self.session()?.remove_stream(id)?;
        }
        Ok(())
    }

    /// Sets a key of ports: of all of them or, where it is wrong for one, of none. A key that
    /// streams have too is taken off theirs, so that they share the port's.
    pub(super) fn set_ports(
        &mut self,
        ports: &[u16],
        key: &str,
        value: &str,
        shared: bool,
    ) -> Result<(), Problem> {
        let session = self.session()?;
        let before: Vec<Option<String>> = ports
            .iter()
            .map(|&port| session.port_key(port, key))
            .collect();
        let own = |(_, port, spec): &&(u16, u16, StreamSpec)| {
            shared && ports.contains(port) && spec.get(key).is_some()
        };
        let specs = self.specs()?;
        let own: Vec<u16> = specs.iter().filter(own).map(|(id, _, _)| *id).collect();
        let mut result = self.set_streams(&own, key, "default");
        for &port in ports {
            if result.is_ok() {
                result = self
                    .session()?
                    .set_port(port, key, value)
                    .map_err(Problem::from);
            }
        }
        if result.is_err() {
            // Undo: the old value was valid a moment ago.
            for (&port, value) in ports.iter().zip(before) {
                let value = value.as_deref().unwrap_or(PortAsked::default_of(key));
                let _ = self.session()?.set_port(port, key, value);
            }
            for (id, _, spec) in specs.iter().filter(|(id, _, _)| own.contains(id)) {
                let value = spec.get(key).unwrap_or_else(|| "default".into());
                let _ = self.session()?.set_stream(*id, key, &value);
            }
        }
        result
    }

    /// Begins to send snapshots to `out`; returns what [`unsubscribe`](Self::unsubscribe) takes.
    pub(super) fn subscribe(
        &mut self,
        id: Value,
        period: Duration,
        out: SyncSender<Outgoing>,
    ) -> u64 {
        self.next_subscriber += 1;
        self.subscribers.push(Subscriber {
            number: self.next_subscriber,
            id,
            period,
            due: Instant::now() + period,
            out,
            skipped: 0,
        });
        self.next_subscriber
    }

    pub(super) fn unsubscribe(&mut self, number: u64) {
        self.subscribers
            .retain(|subscriber| subscriber.number != number);
    }

    /// Sends snapshots to those who are due; one snapshot serves all. A subscriber that does not
    /// read is skipped, and later gets the number of skips.
    fn tell(&mut self, now: Instant) {
        if !self
            .subscribers
            .iter()
            .any(|subscriber| subscriber.due <= now)
        {
            return;
        }
        let Ok(mut snapshot) = self.snapshot() else {
            return;
        };
        self.subscribers.retain_mut(|subscriber| {
            if subscriber.due > now {
                return true;
            }
            subscriber.due = (subscriber.due + subscriber.period).max(now);
            let event = Event {
                id: subscriber.id.clone(),
                event: "snapshot".into(),
                skipped: subscriber.skipped,
                result: std::mem::take(&mut snapshot),
            };
            let line = line(&event);
            snapshot = event.result;
            match subscriber.out.try_send(line) {
                Ok(()) => subscriber.skipped = 0,
                Err(TrySendError::Full(_)) => subscriber.skipped += 1,
                Err(TrySendError::Disconnected(_)) => return false,
            }
            true
        });
    }
}

impl ControlHandle {
    /// Runs `work` on the session's thread and returns its result.
    ///
    /// # Errors
    /// The session has ended.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Control) -> R + Send + 'static,
    ) -> Result<R, Problem> {
        self.0.call(work)
    }

    /// Ends the session; returns its last counts, its ledger, and errors. `None` where it has ended
    /// before.
    pub(crate) fn close(&self) -> Option<(Snapshot, Balance, Vec<Error>)> {
        let close = |control: &mut Control| control.session.take().map(Session::close);
        self.call(close).ok().flatten()
    }
}

/// The numbers that a list says, by number and name.
fn of_list(kind: &str, text: &str, known: &[(u16, String)]) -> Result<Vec<u16>, Problem> {
    let numbers: Vec<u16> = known.iter().map(|(number, _)| *number).collect();
    let names: Vec<&str> = known.iter().map(|(_, name)| name.as_str()).collect();
    list(kind, text, &numbers, &names)
}

/// One line of JSON.
pub(super) fn line(value: &impl serde::Serialize) -> Outgoing {
    let mut line = serde_json::to_vec(value).expect("what is said has only texts as keys");
    line.push(b'\n');
    line.into()
}

pub(super) fn ended() -> Problem {
    Problem::new("the session has ended", "start it again")
}
