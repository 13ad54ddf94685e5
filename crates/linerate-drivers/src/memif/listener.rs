//! The listening sockets of servers: one for each path, shared by the interfaces on it.
//!
//! Its thread accepts, says HELLO, and reads the first message, which names the interface; then the
//! connection is that port's.

use super::control::{Inbox, Incoming, PATIENCE};
use super::message::{LEN, Message, VERSION};
use super::ring::MAX_LOG2_SIZE;
use super::shared::Shared;
use crate::Opener;
use crate::peer::kick;
use crate::peer::socket::{self, Received, UnixAccess, UnixAddress, UnixKind};
use crate::peer::violations::Violation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections that have not said which interface they want; the oldest goes first.
const MOST_STRANGERS: usize = 64;

/// The listeners of one [`Drivers`](crate::Drivers), by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listeners(Arc<Mutex<HashMap<UnixAddress, Weak<Listener>>>>);

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A listening socket with its thread.
pub(super) struct Listener {
    common: Arc<Common>,
    access: UnixAccess,
    address: UnixAddress,
    /// Device and number of the socket's path: another one of that name is not ours to remove.
    path: Option<(u64, u64)>,
    thread: Option<JoinHandle<()>>,
}

struct Common {
    socket: OwnedFd,
    bell: OwnedFd,
    stop: AtomicBool,
    program: String,
    interfaces: Mutex<Vec<Interface>>,
}

/// A port on the socket.
#[derive(Clone)]
pub(super) struct Interface {
    pub(super) id: u32,
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: Inbox,
}

/// A port's place on a socket, for as long as it is started.
pub(super) struct Place {
    listener: Arc<Listener>,
    id: u32,
}

/// Why a port has no place.
pub(super) enum NoPlace {
    /// An interface with that number is there.
    Taken,
    /// The socket is there with another owner or mode.
    Access,
    /// The kernel's.
    Listen(io::Error),
}

impl Listeners {
    /// Puts a port on the socket of that address, which is made where there is none.
    pub(super) fn join(
        &self,
        opener: &dyn Opener,
        address: &UnixAddress,
        access: UnixAccess,
        program: &str,
        interface: Interface,
    ) -> Result<Place, NoPlace> {
        let mut known = held(&self.0);
        let listener = match known.get(address).and_then(Weak::upgrade) {
            Some(listener) if listener.access != access => return Err(NoPlace::Access),
            Some(listener) => listener,
            None => {
                let listener = Listener::open(opener, address, access, program);
                let listener = Arc::new(listener.map_err(NoPlace::Listen)?);
                known.insert(address.clone(), Arc::downgrade(&listener));
                listener
            }
        };
        let id = interface.id;
        let mut interfaces = held(&listener.common.interfaces);
        if interfaces.iter().any(|other| other.id == id) {
            return Err(NoPlace::Taken);
        }
        interfaces.push(interface);
        drop(interfaces);
        Ok(Place { listener, id })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        held(&self.listener.common.interfaces).retain(|interface| interface.id != self.id);
    }
}

impl Listener {
    fn open(
        opener: &dyn Opener,
        address: &UnixAddress,
        access: UnixAccess,
        program: &str,
    ) -> io::Result<Self> {
        let socket = opener.listen_unix(address, UnixKind::Messages, access)?;
        let path = address
            .path()
            .and_then(|path| std::fs::symlink_metadata(path).ok());
        let common = Arc::new(Common {
            socket,
            bell: kick::new_eventfd()?,
            stop: AtomicBool::new(false),
            program: program.into(),
            interfaces: Mutex::default(),
        });
        let thread = {
            let common = common.clone();
            let builder = std::thread::Builder::new().name(format!("memif {address}"));
            builder.spawn(move || common.run())?
        };
        Ok(Self {
            common,
            access,
            address: address.clone(),
            path: path.map(|found| (found.dev(), found.ino())),
            thread: Some(thread),
        })
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.address)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::Relaxed);
        kick::ring(&self.common.bell);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let Some(path) = self.address.path() else {
            return;
        };
        let found = std::fs::symlink_metadata(path);
        if found.is_ok_and(|found| Some((found.dev(), found.ino())) == self.path) {
            // Where that is not allowed, who listens next takes the path over.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A connection that has not said which interface it wants.
struct Stranger {
    socket: OwnedFd,
    since: Instant,
}

impl Common {
    fn run(&self) {
        let mut strangers: VecDeque<Stranger> = VecDeque::new();
        while !self.stop.load(Ordering::Relaxed) {
            let mut polled = vec![
                PollFd::new(&self.bell, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::IN),
            ];
            let sockets = strangers.iter().map(|stranger| &stranger.socket);
            polled.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
            // With strangers there is a deadline.
            let timeout = Timespec::try_from(Duration::from_millis(200)).ok();
            let timeout = timeout.filter(|_| !strangers.is_empty());
            if poll(&mut polled, timeout.as_ref()).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            kick::drain(&self.bell);
            for stranger in std::mem::take(&mut strangers) {
                strangers.extend(self.listen_to(stranger));
            }
            match socket::accept(self.socket.as_fd()) {
                Ok(Some(socket)) => strangers.extend(self.greet(socket)),
                Ok(None) => {}
                // Out of descriptors, most likely: the connection waits.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
            if strangers.len() > MOST_STRANGERS {
                strangers.pop_front();
            }
        }
    }

    fn greet(&self, socket: OwnedFd) -> Option<Stranger> {
        let interfaces = held(&self.interfaces);
        let most = |queues: fn(&Shared) -> usize| {
            let counts = interfaces.iter().map(|interface| queues(&interface.shared));
            (counts.max().unwrap_or(1) - 1) as u16
        };
        let hello = Message::Hello {
            name: self.program.clone(),
            versions: (VERSION, VERSION),
            max_region: u16::from(u8::MAX),
            max_to_server: most(|shared| shared.rx.len()),
            max_to_client: most(|shared| shared.tx.len()),
            max_log2_size: MAX_LOG2_SIZE,
        };
        drop(interfaces);
        let since = Instant::now();
        let said = socket::send(socket.as_fd(), &hello.write(), &[]);
        said.is_ok().then_some(Stranger { socket, since })
    }

    /// Takes the first message of a connection; the connection again, if none has come.
    fn listen_to(&self, stranger: Stranger) -> Option<Stranger> {
        let mut buffer = [0; LEN];
        let message = match socket::receive(stranger.socket.as_fd(), &mut buffer, 0) {
            Received::Nothing if stranger.since.elapsed() < PATIENCE => return Some(stranger),
            Received::Nothing => {
                return self.refuse(&stranger, Violation::TooSlow, "no INIT came");
            }
            Received::Closed => return None,
            Received::TooMuch => {
                let detail = "the first message is too long, or has descriptors";
                return self.refuse(&stranger, Violation::FilesBad, detail);
            }
            Received::Message(len, _) => Message::read(&buffer[..len]),
        };
        let Some(init @ Message::Init { id, .. }) = message else {
            return self.refuse(
                &stranger,
                Violation::MessageBad,
                "the first message is no INIT",
            );
        };
        let interfaces = held(&self.interfaces);
        match interfaces.iter().find(|interface| interface.id == id) {
            Some(interface) => {
                let incoming = Incoming {
                    socket: stranger.socket,
                    init,
                };
                held(&interface.inbox).push_back(incoming);
                kick::ring(&interface.shared.bell);
            }
            None => say_no(&stranger, format!("no interface has the id {id}")),
        }
        None
    }

    /// A stranger's violation is counted at the first interface.
    fn refuse(&self, stranger: &Stranger, violation: Violation, detail: &str) -> Option<Stranger> {
        if let Some(interface) = held(&self.interfaces).first() {
            interface.shared.violations.count(violation, detail);
        }
        say_no(stranger, format!("{}: {detail}", violation.name()));
        None
    }
}

fn say_no(stranger: &Stranger, reason: String) {
    let refusal = Message::Disconnect { code: 0, reason };
    let _ = socket::send(stranger.socket.as_fd(), &refusal.write(), &[]);
}
