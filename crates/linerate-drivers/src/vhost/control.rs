//! The thread of a port that speaks vhost-user: accepts or connects, again and again, and hands
//! messages to the side that it plays.

use super::message::{Channel, End, Message};
use crate::Opener;
use crate::peer::kick::{self, Wakeups};
use crate::peer::violations::{Violation, Violations};
use crate::peer::{UnixAccess, UnixAddress, UnixKind, socket};
use crate::virtqueue::queue::Queue;
use linerate_core::port::{Link, OptionHelp, PortError, Spec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two attempts to connect, and two looks at what nobody rings for.
const TURN: Duration = Duration::from_millis(100);

/// Who makes the socket and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
}

/// Where the peer is, as both kinds of port are told.
#[derive(Clone, Debug)]
pub(crate) struct Where {
    pub(crate) address: UnixAddress,
    pub(crate) role: Role,
    pub(crate) access: UnixAccess,
}

/// The options that say so.
pub(crate) const ROLE: OptionHelp = OptionHelp {
    key: "role",
    value: "server|client",
    help: "who makes the socket; default server for vhost, client for virtio_user",
};
pub(crate) const OWNER: OptionHelp = OptionHelp {
    key: "owner",
    value: "USER",
    help: "whose the socket is that a server makes; default who runs this",
};
pub(crate) const MODE: OptionHelp = OptionHelp {
    key: "mode",
    value: "OCTAL",
    help: "its permission bits, such as 0660; default as the umask says",
};

impl Where {
    pub(crate) fn read(spec: &Spec, default: Role) -> Result<Self, PortError> {
        let target = spec.required_target("the path of a socket, such as /run/vm.sock")?;
        let address =
            UnixAddress::parse(target).map_err(|expected| spec.bad("target", expected))?;
        let role = match spec.text("role") {
            None => default,
            Some("server") => Role::Server,
            Some("client") => Role::Client,
            Some(_) => return Err(spec.bad("role", "`server` or `client`")),
        };
        let owner = spec.text("owner").map(|text| {
            UnixAccess::user(text).ok_or_else(|| spec.bad("owner", "a user's name or number"))
        });
        let mode = spec.text("mode").map(|text| {
            UnixAccess::mode(text).ok_or_else(|| spec.bad("mode", "permission bits such as 0660"))
        });
        let access = UnixAccess {
            owner: owner.transpose()?,
            mode: mode.transpose()?,
        };
        Ok(Self {
            address,
            role,
            access,
        })
    }
}

/// What people are told of the peer.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) link: Link,
    pub(crate) facts: Vec<(&'static str, String)>,
}

/// What the port, its workers and its thread share while it is started.
#[derive(Debug)]
pub(crate) struct Shared {
    /// By number: the receive queue of pair i of the driver is 2i, its transmit queue 2i + 1.
    pub(crate) queues: Vec<Arc<Queue>>,
    /// What our receive queues sleep on, by pair.
    pub(crate) wakeups: Vec<Arc<Wakeups>>,
    pub(crate) status: Mutex<Status>,
    pub(crate) violations: Arc<Violations>,
    /// Notifications that peers were sent.
    pub(crate) notified: Arc<AtomicU64>,
    pub(crate) bell: Arc<OwnedFd>,
    stop: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        pairs: usize,
        violations: Arc<Violations>,
        notified: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let bell = Arc::new(kick::new_eventfd()?);
        let wakeups = (0..pairs).map(|_| Wakeups::new().map(Arc::new));
        Ok(Self {
            queues: (0..2 * pairs)
                .map(|_| Arc::new(Queue::new(bell.clone())))
                .collect(),
            wakeups: wakeups.collect::<io::Result<_>>()?,
            status: Mutex::new(Status {
                link: Link::Down("no peer yet".into()),
                facts: Vec::new(),
            }),
            violations,
            notified,
            bell,
            stop: AtomicBool::new(false),
        })
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes every queue from its worker.
    pub(crate) fn rest(&self) {
        self.queues.iter().for_each(|queue| queue.rest());
        self.wakeups.iter().for_each(|wakeups| wakeups.unwatch());
    }

    /// What a worker found a queue's peer to break.
    fn broken(&self) -> Option<(usize, Violation)> {
        let mut queues = self.queues.iter().enumerate();
        queues.find_map(|(index, queue)| Some((index, queue.broken()?)))
    }

    fn is_lost(&self) -> bool {
        self.queues.iter().any(|queue| queue.is_lost())
    }
}

/// One end of the protocol: what it does with a peer, from its connection to its end.
pub(crate) trait Side: Send + 'static {
    /// A peer is there.
    fn connected(&mut self, channel: &mut Channel) -> Result<(), End>;
    /// It sent a message.
    fn message(&mut self, channel: &mut Channel, message: Message) -> Result<(), End>;
    /// It will be gone, for this reason; its queues still run.
    fn leaves(&mut self, _: &End) {}
    /// It is gone. Queues rest already.
    fn gone(&mut self);
}

/// The thread, while the port is started. Ends on drop.
#[derive(Debug)]
pub(crate) struct Control {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens, if that is the role, and starts the thread.
    ///
    /// # Errors
    /// [`PortError::System`] where the socket cannot be had.
    pub(crate) fn start(
        port: &str,
        at: &Where,
        opener: &Arc<dyn Opener>,
        shared: Arc<Shared>,
        side: impl Side,
    ) -> Result<Self, PortError> {
        let failed = |action: String, source, fix: &str| PortError::System {
            port: port.into(),
            action,
            source,
            fix: fix.into(),
        };
        let listener = match at.role {
            Role::Client => None,
            Role::Server => {
                let listen = opener.listen_unix(&at.address, UnixKind::Stream, at.access);
                let action = format!("listen on `{}`", at.address);
                let fix = "the folder must exist and be writable, and nobody else use the socket";
                Some(listen.map_err(|error| failed(action, error, fix))?)
            }
        };
        let turns = Turns {
            at: at.clone(),
            listener,
            opener: opener.clone(),
            shared: shared.clone(),
            side,
        };
        let builder = std::thread::Builder::new().name(format!("{port} control"));
        let thread = builder
            .spawn(move || turns.run())
            .map_err(|error| failed("start a thread".into(), error, "end other programs"))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        kick::ring(&self.shared.bell);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Turns<S> {
    at: Where,
    listener: Option<OwnedFd>,
    opener: Arc<dyn Opener>,
    shared: Arc<Shared>,
    side: S,
}

impl<S: Side> Turns<S> {
    fn run(mut self) {
        while let Some(socket) = self.peer() {
            // What rang for an earlier peer; a stop that this swallows is seen right after.
            kick::drain(&self.shared.bell);
            if self.stops() {
                break;
            }
            let who = socket::peer_of(socket.as_fd());
            let end = self.serve(Channel::new(socket));
            self.side.leaves(&end);
            self.shared.rest();
            self.side.gone();
            let who = who.as_deref().unwrap_or("the peer");
            let down = match end {
                End::Stopped => break,
                End::Closed => format!("{who} closed the connection"),
                End::Unfit(reason) => {
                    self.pause();
                    format!("{who} does not fit: {reason}")
                }
                End::Broke(violation, detail) => {
                    self.shared.violations.count(violation, &detail);
                    self.pause();
                    format!("{who} was cut off: {} ({detail})", violation.name())
                }
            };
            let mut status = self.shared.status();
            status.link = Link::Down(down);
            status.facts.clear();
        }
        self.shared.rest();
        if let (Some(_), Some(path)) = (&self.listener, self.at.address.path()) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn stops(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// A turn's time, unless the port stops.
    fn pause(&self) {
        let turn = Timespec::try_from(TURN).ok();
        let mut fds = [PollFd::new(&*self.shared.bell, PollFlags::IN)];
        let _ = poll(&mut fds, turn.as_ref());
        if !self.stops() {
            kick::drain(&self.shared.bell);
        }
    }

    /// Waits for a peer; `None` when the port stops.
    fn peer(&self) -> Option<OwnedFd> {
        while !self.stops() {
            let found = match &self.listener {
                Some(listener) => socket::accept(listener.as_fd()).ok().flatten(),
                None => {
                    let (address, kind) = (&self.at.address, UnixKind::Stream);
                    self.opener.connect_unix(address, kind).ok()
                }
            };
            if found.is_some() {
                return found;
            }
            let turn = Timespec::try_from(TURN).ok();
            let mut fds = vec![PollFd::new(&*self.shared.bell, PollFlags::IN)];
            let listener = self.listener.as_ref();
            fds.extend(listener.map(|fd| PollFd::new(fd, PollFlags::IN)));
            let _ = poll(&mut fds, turn.as_ref());
            if !self.stops() {
                kick::drain(&self.shared.bell);
            }
        }
        None
    }

    fn serve(&mut self, mut channel: Channel) -> End {
        let mut turn = || {
            self.side.connected(&mut channel)?;
            loop {
                while let Some(message) = channel.receive()? {
                    self.side.message(&mut channel, message)?;
                    if self.shared.stop.load(Ordering::Relaxed) {
                        return Err(End::Stopped);
                    }
                }
                let wait = Timespec::try_from(TURN).ok();
                let mut fds = [
                    PollFd::from_borrowed_fd(channel.socket(), PollFlags::IN),
                    PollFd::new(&*self.shared.bell, PollFlags::IN),
                ];
                let _ = poll(&mut fds, wait.as_ref());
                if self.shared.stop.load(Ordering::Relaxed) {
                    return Err(End::Stopped);
                }
                kick::drain(&self.shared.bell);
                if let Some((index, violation)) = self.shared.broken() {
                    return Err(End::Broke(violation, format!("queue {index}")));
                }
                if self.shared.is_lost() {
                    let detail = "a region's file became shorter".into();
                    return Err(End::Broke(Violation::MemoryLost, detail));
                }
            }
        };
        let end: Result<(), End> = turn();
        match end {
            Err(end) => end,
            Ok(()) => End::Closed,
        }
    }
}
