//! The thread that listens, reads and decodes.
//!
//! There is one peer at a time: while it is connected, others are refused. It stays until it closes
//! the connection or TCP's keep-alive fails. Of a peer on this machine the kernel knows the user
//! ([`owner`]), and only configured users are admitted, because a peer decides where packets go.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_wire::fpm::Stream;
use linerate_wire::rtnetlink::Messages;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::owner::{self, Owner};
use crate::feed::Said;
use linerate_appliance::error::Error;

/// Batches on the way to control: a batch is what one read gave, 256 KiB of stream at most.
const UNDER_WAY: usize = 32;
/// Time between two refusals that are reported.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// An event of the thread.
#[derive(Debug)]
pub enum Event {
    /// A peer connected.
    Connected(SocketAddr),
    /// The statements of whole frames, so that related ones arrive together.
    Said {
        /// The statements, in the order of the stream.
        said: Vec<Said>,
        /// Number of frames that they came in.
        frames: u32,
        /// Messages in these frames that were not about routes.
        ignored: u32,
    },
    /// A connection was refused, and why; of many, few are reported.
    Refused {
        /// The refused peer.
        peer: SocketAddr,
        /// The reason.
        why: String,
    },
    /// The connection ended.
    Disconnected {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        why: String,
        /// Whether the peer broke the protocol.
        lied: bool,
    },
}

/// The control thread's handle of the thread, which ends when this is dropped.
pub struct Listener {
    address: SocketAddr,
    events: Receiver<Event>,
    refused: Arc<AtomicU64>,
    /// A byte makes the thread close the connection; end of file makes it stop.
    orders: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens for peers of these `users` of this machine, and of other machines. `wake` is called
    /// for each event that is sent.
    pub(super) fn start(
        address: SocketAddr,
        users: Vec<u32>,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::Usage {
            problem: format!("cannot listen for FRR on {address}: {error}"),
            fix: "give `fpm` an address of this machine with a free port".into(),
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // A peer that closes before it is accepted must not block the others.
        listener.set_nonblocking(true).map_err(failed)?;
        let (heard, orders) = io::pipe()?;
        let (sender, events) = sync_channel(UNDER_WAY);
        let refused = Arc::new(AtomicU64::new(0));
        let mut server = Server {
            listener,
            users,
            refused: refused.clone(),
            told: None,
            orders: heard,
            events: sender,
            wake: Box::new(wake),
            peer: None,
        };
        let thread = std::thread::Builder::new()
            .name("fpm".into())
            .spawn(move || server.run())?;
        Ok(Self {
            address,
            events,
            refused,
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Closes the connection, since a peer sends everything again only on a new one.
    pub(super) fn hang_up(&mut self) {
        if let Some(orders) = &mut self.orders {
            // If the thread has ended, there is no connection to close.
            let _ = orders.write(&[0]);
        }
    }

    /// The next event, if there is one.
    pub(super) fn next(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Without the receiver the thread does not wait for room, and without the pipe not for
        // events.
        let (_, gone) = sync_channel(0);
        self.events = gone;
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, there is nothing left to end.
            let _ = thread.join();
        }
    }
}

/// The thread ends because its handle was dropped.
struct Ended;

struct Server {
    listener: TcpListener,
    /// Users that may connect from this machine.
    users: Vec<u32>,
    refused: Arc<AtomicU64>,
    /// When a refusal was last reported.
    told: Option<Instant>,
    orders: io::PipeReader,
    events: SyncSender<Event>,
    wake: Box<dyn Fn() + Send>,
    peer: Option<Peer>,
}

struct Peer {
    address: SocketAddr,
    socket: TcpStream,
    stream: Stream,
}

impl Server {
    fn run(&mut self) {
        while self.turn().is_ok() {}
    }

    fn turn(&mut self) -> Result<(), Ended> {
        let [ordered, newcomer, readable] = self.wait();
        if ordered {
            return match self.orders.read(&mut [0]) {
                Ok(1..) => self.hang_up("asked to say all again".into(), false),
                _ => Err(Ended),
            };
        }
        if readable {
            self.read()?;
        }
        if newcomer {
            self.accept()?;
        }
        Ok(())
    }

    /// Whether there is an order, a connection to accept, and something to read from the peer.
    fn wait(&self) -> [bool; 3] {
        let mut fds = vec![
            PollFd::new(&self.orders, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        if let Some(peer) = &self.peer {
            fds.push(PollFd::new(&peer.socket, PollFlags::IN));
        }
        // Interrupted by a signal: nothing is ready, and the next turn waits again.
        if poll(&mut fds, None).is_err() {
            return [false; 3];
        }
        let ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        [ready(0), ready(1), ready(2)]
    }

    fn send(&self, event: Event) -> Result<(), Ended> {
        self.events.send(event).map_err(|_| Ended)?;
        (self.wake)();
        Ok(())
    }

    fn accept(&mut self) -> Result<(), Ended> {
        let Ok((socket, address)) = self.listener.accept() else {
            return Ok(()); // it is gone again
        };
        if let Err(why) = self.admit(&socket, address) {
            return self.refuse(address, why);
        }
        // Keep-alive detects a peer that vanished, so that another can connect.
        if socket.set_nonblocking(true).is_err() || keep_alive(&socket).is_err() {
            return Ok(());
        }
        self.peer = Some(Peer {
            address,
            socket,
            stream: Stream::new(),
        });
        self.send(Event::Connected(address))
    }

    /// Admits a connection, or says why not.
    fn admit(&self, socket: &TcpStream, address: SocketAddr) -> Result<(), String> {
        if let Some(peer) = &self.peer {
            return Err(format!("{} is already connected", peer.address));
        }
        let local = socket.local_addr().map_err(|error| error.to_string())?;
        match owner::of(address, local).map_err(|error| error.to_string())? {
            Owner::User(uid) if !self.users.contains(&uid) => Err(format!(
                "it is of user {uid}, whom the file does not name (`fpm_user`)"
            )),
            Owner::User(_) | Owner::Remote => Ok(()),
        }
    }

    /// Refuses a connection. Reports are limited, since a refused peer that retries would fill the
    /// journal.
    fn refuse(&mut self, peer: SocketAddr, why: String) -> Result<(), Ended> {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if self.told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            return Ok(());
        }
        self.told = Some(Instant::now());
        self.send(Event::Refused { peer, why })
    }

    fn hang_up(&mut self, why: String, lied: bool) -> Result<(), Ended> {
        match self.peer.take() {
            Some(peer) => self.send(Event::Disconnected {
                peer: peer.address,
                why,
                lied,
            }),
            None => Ok(()),
        }
    }

    fn read(&mut self) -> Result<(), Ended> {
        let Some(peer) = &mut self.peer else {
            return Ok(());
        };
        match peer.socket.read(peer.stream.space()) {
            Ok(0) => {
                let why = match peer.stream.rest() {
                    0 => "closed by the peer".to_string(),
                    rest => format!("closed by the peer {rest} bytes into a message"),
                };
                self.hang_up(why, false)
            }
            Ok(bytes) => {
                peer.stream.filled(bytes);
                let (batch, flaw) = decode(&mut peer.stream);
                // The frames before a broken one are valid.
                if let Some(batch) = batch {
                    self.send(batch)?;
                }
                match flaw {
                    Some(why) => self.hang_up(why, true),
                    None => Ok(()),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => self.hang_up(error.to_string(), false),
        }
    }
}

/// Turns on TCP keep-alive: a probe after 10 s of silence, and every 10 s.
fn keep_alive(socket: &TcpStream) -> Result<(), Errno> {
    const SILENCE: Duration = Duration::from_secs(10);
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENCE)?;
    sockopt::set_tcp_keepintvl(socket, SILENCE)?;
    sockopt::set_tcp_keepcnt(socket, 3)
}

/// Decodes all complete frames, and returns the error behind them.
pub(super) fn decode(stream: &mut Stream) -> (Option<Event>, Option<String>) {
    let (mut all, mut frames, mut ignored) = (Vec::new(), 0, 0);
    let flaw = loop {
        match stream.frame() {
            Ok(None) => break None,
            Err(flaw) => break Some(flaw.to_string()),
            Ok(Some(frame)) => {
                let before = all.len();
                match read_frame(frame, &mut all) {
                    Ok(others) => ignored += others,
                    Err(flaw) => {
                        // A frame counts as a whole or not at all.
                        all.truncate(before);
                        break Some(flaw.to_string());
                    }
                }
                frames += 1;
            }
        }
    };
    let batch = (frames > 0).then_some(Event::Said {
        said: all,
        frames,
        ignored,
    });
    (batch, flaw)
}

/// Adds the statements of a frame. Returns how many messages were not about routes.
fn read_frame(frame: &[u8], all: &mut Vec<Said>) -> Result<u32, linerate_wire::rtnetlink::Flaw> {
    let mut ignored = 0;
    for message in Messages::new(frame) {
        match Said::of(&message?.read()?) {
            Some(said) => all.push(said),
            None => ignored += 1,
        }
    }
    Ok(ignored)
}

/// For tests and benchmarks: a peer that sends a stream.
#[cfg(test)]
pub(super) fn peer(address: SocketAddr, bytes: &[u8]) -> io::Result<TcpStream> {
    use std::io::Write;
    let mut socket = TcpStream::connect(address)?;
    socket.write_all(bytes)?;
    Ok(socket)
}
