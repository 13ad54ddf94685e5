//! Takes clients and gives each its threads. Dropping the [`Server`] sends them away.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use super::connection::{Access, Asker, refusal, serve};
use super::desk::{DeskHandle, line};
use super::listen::{Address, Listener};
use super::wire::Wire;
use linerate_appliance::error::Error;

/// Clients at once.
const CLIENTS: usize = 64;
/// How often a listener looks whether all ends.
const LOOK_MS: u32 = 100;

/// Listeners and clients of one session.
pub(crate) struct Server {
    desk: DeskHandle,
    closing: Arc<AtomicBool>,
    clients: Arc<AtomicUsize>,
    listeners: Vec<JoinHandle<()>>,
}

/// What the threads of a listener need.
#[derive(Clone)]
struct Door {
    desk: DeskHandle,
    closing: Arc<AtomicBool>,
    clients: Arc<AtomicUsize>,
    access: Access,
    token: Option<Arc<str>>,
}

/// Counts a client while it is here.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    pub(crate) fn new(desk: DeskHandle) -> Self {
        Self {
            desk,
            closing: Arc::default(),
            clients: Arc::default(),
            listeners: Vec::new(),
        }
    }

    /// What is set once all ends: who waits gives up then.
    pub(crate) fn closing(&self) -> Arc<AtomicBool> {
        self.closing.clone()
    }

    /// Takes clients at `address`; over TCP they have to know `token`. Returns where, for TCP.
    ///
    /// # Errors
    /// The address is taken, or wants a token.
    pub(crate) fn listen(
        &mut self,
        address: &Address,
        change: bool,
        token: Option<&str>,
    ) -> Result<Option<SocketAddr>, Error> {
        let (listener, at, token) = match (address, token) {
            (Address::Unix(path), _) => (Listener::unix(path)?, None, None),
            (Address::Tcp(_), None) => {
                return Err(Error::Usage {
                    problem: format!("{address}: whoever reaches that port could send traffic"),
                    fix: "add --token-file FILE, a secret that clients have to know".into(),
                });
            }
            (Address::Tcp(tcp), Some(token)) => {
                let (listener, at) = Listener::tcp(tcp)?;
                (listener, Some(at), Some(token.into()))
            }
        };
        let door = Door {
            access: Access {
                change,
                files: matches!(address, Address::Unix(_)),
            },
            token,
            ..self.door()
        };
        let take = move || door.take(&listener);
        let thread = std::thread::Builder::new()
            .name("listener".into())
            .spawn(take)?;
        self.listeners.push(thread);
        Ok(at)
    }

    /// Serves one client over a socket that is connected already, such as half of a pair.
    pub(crate) fn adopt(&self, wire: Wire, access: Access) -> Result<(), Error> {
        let door = Door {
            access,
            ..self.door()
        };
        Ok(door.admit(wire)?)
    }

    fn door(&self) -> Door {
        Door {
            desk: self.desk.clone(),
            closing: self.closing.clone(),
            clients: self.clients.clone(),
            access: Access::FULL,
            token: None,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        for listener in self.listeners.drain(..) {
            // A panic there was printed already.
            let _ = listener.join();
        }
    }
}

impl Door {
    /// Takes clients until all ends.
    fn take(&self, listener: &Listener) {
        while !self.closing.load(Ordering::SeqCst) {
            match listener.accept(LOOK_MS) {
                Ok(None) => {}
                Ok(Some(wire)) => {
                    // A client that cannot have its threads is gone; others may still come.
                    let _ = self.admit(wire);
                }
                // Too many open files, mostly: it may get better.
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(100)),
            }
        }
    }

    fn admit(&self, mut wire: Wire) -> io::Result<()> {
        let seat = Seat(self.clients.clone());
        if self.clients.fetch_add(1, Ordering::SeqCst) >= CLIENTS {
            let answer = refusal(
                format!("{CLIENTS} clients are connected already"),
                "close some of them",
            );
            // It is short: a socket takes it at once, or the client does not listen.
            let _ = io::Write::write_all(&mut wire, &line(&answer));
            return Ok(());
        }
        let asker = Asker::new(self.desk.clone(), self.access, self.closing.clone());
        let token = self.token.clone();
        let work = move || {
            let _seat = seat;
            // It ends with the client, whatever the reason.
            let _ = serve(wire, asker, token.as_deref());
        };
        std::thread::Builder::new()
            .name("client".into())
            .spawn(work)?;
        Ok(())
    }
}
