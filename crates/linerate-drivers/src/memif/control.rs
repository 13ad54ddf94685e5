//! The control thread of a port: connects, negotiates, watches over the connection, ends it.
//!
//! One connection at a time. A client tries again and again; a server is handed connections by the
//! [listener](super::listener) of its socket, which has read the first message of each.

use super::exposed::Exposed;
use super::message::{LEN, Message};
use super::negotiation::{Offer, Told};
use super::receive::Fault;
use super::ring::Regions;
use super::shared::{Peer, Shared};
use super::{Role, Settings};
use crate::peer::kick::{self, Notifier};
use crate::peer::socket::{self, Received, UnixKind};
use crate::peer::violations::Violation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two tries to connect, and two looks at what nothing wakes us for.
const AGAIN: Duration = Duration::from_millis(100);
/// What a negotiation may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 5 });
/// Messages that are looked at before the other work is: a flood does not keep us from stopping.
const AT_ONCE: usize = 64;

/// A connection that waits for its port.
pub(super) struct Incoming {
    pub(super) socket: OwnedFd,
    pub(super) init: Message,
}

/// Where the listener puts connections for a port.
pub(super) type Inbox = Arc<Mutex<VecDeque<Incoming>>>;

/// The control thread's own things.
pub(super) struct Control {
    pub(super) settings: Settings,
    pub(super) shared: Arc<Shared>,
    pub(super) notifier: Notifier,
    /// A server's.
    pub(super) inbox: Inbox,
    /// A client's pools that the peer maps.
    pub(super) exposed: Option<Exposed>,
}

/// Why a connection ends.
pub(super) enum End {
    /// Nobody is there any more, or said so.
    Gone(String),
    /// We do not want it, for this reason.
    Refused(String),
    /// The peer broke the protocol.
    Fault(Fault),
}

pub(super) fn bad(detail: impl Into<String>) -> End {
    End::Fault((Violation::MessageBad, detail.into()))
}

/// How far a connection is.
pub(super) enum Phase {
    /// A client waits for HELLO.
    Hello,
    /// A client sends these, the next one with each ACK, and then waits for CONNECTED.
    Telling(VecDeque<(Message, Option<OwnedFd>)>, Offer),
    /// A server collects what the client says.
    Listening(Told),
    /// The rings are in use.
    Up,
}

pub(super) struct Connection {
    socket: OwnedFd,
    began: Instant,
    pub(super) phase: Phase,
    pub(super) peer: Peer,
    pub(super) regions: Arc<Regions>,
}

impl Connection {
    fn new(socket: OwnedFd, phase: Phase) -> Self {
        let process = socket::peer_of(socket.as_fd()).unwrap_or_default();
        Self {
            socket,
            began: Instant::now(),
            phase,
            peer: Peer {
                process,
                ..Peer::default()
            },
            regions: Arc::new(Regions(Vec::new())),
        }
    }

    pub(super) fn say(&self, message: &Message, file: Option<&OwnedFd>) -> Result<(), End> {
        let file: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        match socket::send(self.socket.as_fd(), &message.write(), &file) {
            Ok(LEN) => Ok(()),
            Ok(_) => Err(End::Gone("a message went only in part".into())),
            Err(error) => Err(End::Gone(format!(
                "the peer does not take messages: {error}"
            ))),
        }
    }
}

impl Control {
    /// Runs until the port stops.
    pub(super) fn run(mut self) {
        let mut connection: Option<Connection> = None;
        let mut tried: Option<Instant> = None;
        while !self.shared.stops() {
            if connection.is_none() {
                connection = self.connect(&mut tried);
            }
            self.wait(connection.as_ref());
            if let Some(now) = &mut connection
                && let Err(end) = self.serve(now)
            {
                self.end(now, end);
                connection = None;
            }
            self.refuse_others(connection.is_some());
        }
        if let Some(mut now) = connection {
            self.end(&mut now, End::Refused("the interface was stopped".into()));
        }
    }

    /// Sleeps until something happens.
    fn wait(&self, connection: Option<&Connection>) {
        let timeout = Timespec::try_from(AGAIN).ok();
        let mut polled = vec![PollFd::new(&self.shared.bell, PollFlags::IN)];
        if let Some(connection) = connection {
            polled.push(PollFd::new(&connection.socket, PollFlags::IN));
        }
        let _ = poll(&mut polled, timeout.as_ref());
        kick::drain(&self.shared.bell);
    }

    /// A new connection, if there is one.
    fn connect(&mut self, tried: &mut Option<Instant>) -> Option<Connection> {
        if self.settings.role == Role::Server {
            let incoming = self.inbox().pop_front()?;
            let mut connection =
                Connection::new(incoming.socket, Phase::Listening(Told::default()));
            match self.begin(&mut connection, incoming.init) {
                Ok(()) => return Some(connection),
                Err(end) => self.end(&mut connection, end),
            }
            return None;
        }
        if tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
            return None;
        }
        *tried = Some(Instant::now());
        let address = &self.settings.address;
        match self
            .settings
            .opener
            .connect_unix(address, UnixKind::Messages)
        {
            Ok(socket) => Some(Connection::new(socket, Phase::Hello)),
            Err(error) => {
                let reason = format!("cannot connect to `{address}`: {error}");
                self.shared.set_down(reason);
                None
            }
        }
    }

    fn inbox(&self) -> std::sync::MutexGuard<'_, VecDeque<Incoming>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that came while there is a connection. One that was killed and is back at once finds
    /// that its end is noticed: that socket is looked at first.
    fn refuse_others(&mut self, connected: bool) {
        if !connected {
            return;
        }
        for incoming in self.inbox().drain(..) {
            let reason = "another peer is connected to this interface".to_owned();
            let refusal = Message::Disconnect { code: 0, reason };
            let _ = socket::send(incoming.socket.as_fd(), &refusal.write(), &[]);
        }
    }

    /// What waits on a connection.
    fn serve(&mut self, connection: &mut Connection) -> Result<(), End> {
        if let Some(fault) = self.shared.take_fault(&connection.regions) {
            return Err(End::Fault(fault));
        }
        if self
            .exposed
            .as_ref()
            .is_some_and(|exposed| exposed.pools.is_lost())
        {
            let detail =
                "huge pages were taken out of a pool that peers map; start anew".to_owned();
            return Err(End::Fault((Violation::MemoryLost, detail)));
        }
        let up = matches!(connection.phase, Phase::Up);
        if !up && connection.began.elapsed() > PATIENCE {
            let detail = format!("no connection after {} s", PATIENCE.as_secs());
            return Err(End::Fault((Violation::TooSlow, detail)));
        }
        for _ in 0..AT_ONCE {
            let mut buffer = [0; LEN];
            match socket::receive(connection.socket.as_fd(), &mut buffer, 1) {
                Received::Nothing => break,
                Received::Closed => return Err(End::Gone("the peer closed its socket".into())),
                Received::TooMuch => {
                    let detail = "a message is too long, or has several descriptors".to_owned();
                    return Err(End::Fault((Violation::FilesBad, detail)));
                }
                Received::Message(len, files) => {
                    let Some(message) = Message::read(&buffer[..len]) else {
                        return Err(bad(format!(
                            "a message of {len} bytes, or of no known type"
                        )));
                    };
                    self.take(connection, message, files)?;
                }
            }
        }
        Ok(())
    }

    /// One message.
    fn take(
        &mut self,
        connection: &mut Connection,
        message: Message,
        mut files: Vec<OwnedFd>,
    ) -> Result<(), End> {
        if files.len() != message.files() {
            let (kind, count) = (message.kind(), files.len());
            let detail = format!("{kind} with {count} descriptors");
            return Err(End::Fault((Violation::FilesBad, detail)));
        }
        let kind = message.kind();
        match (message, &mut connection.phase) {
            (Message::Disconnect { reason, .. }, _) => {
                Err(End::Gone(format!("the peer disconnected: {reason}")))
            }
            (hello @ Message::Hello { .. }, Phase::Hello) => self.introduce(connection, hello),
            (Message::Ack, Phase::Telling(rest, _)) if !rest.is_empty() => {
                let next = rest.pop_front();
                next.map_or(Ok(()), |(next, file)| connection.say(&next, file.as_ref()))
            }
            (Message::Connected { name }, Phase::Telling(rest, _)) if rest.is_empty() => {
                connection.peer.interface = name;
                self.use_own(connection)
            }
            (Message::AddRegion { index, bytes }, Phase::Listening(told)) => {
                told.add_region(index, bytes, files.pop())?;
                connection.say(&Message::Ack, None)
            }
            (Message::AddRing(place), Phase::Listening(told)) => {
                let queues = (self.shared.rx.len(), self.shared.tx.len());
                told.add_ring(place, files.pop(), queues)?;
                connection.say(&Message::Ack, None)
            }
            (Message::Connect { name }, Phase::Listening(_)) => {
                connection.peer.interface = name;
                self.use_told(connection)
            }
            _ => Err(bad(format!("{kind} is out of order"))),
        }
    }

    /// Ends a connection: workers lose its rings first, then the peer is told.
    fn end(&mut self, connection: &mut Connection, end: End) {
        self.shared.take_rings();
        for index in 0..self.shared.tx.len() {
            let taken = self.notifier.set(index, None, "");
            debug_assert!(taken.is_ok(), "to take one back starts no thread");
        }
        let (said, reason) = match end {
            End::Gone(reason) => (None, reason),
            End::Refused(reason) => (Some(reason.clone()), reason),
            End::Fault((violation, detail)) => {
                self.shared.violations.count(violation, &detail);
                let reason = format!("{}: {detail}", violation.name());
                (Some(reason.clone()), reason)
            }
        };
        if let Some(reason) = said {
            let _ = connection.say(&Message::Disconnect { code: 0, reason }, None);
        }
        self.shared.set_down(reason);
    }
}
