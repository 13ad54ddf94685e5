//! Accepts clients and gives each its threads. Dropping the [`Server`] disconnects them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connection::{Access, Asker, refusal, serve};
use super::listen::{Address, Listener};
use super::owner::{ControlHandle, line};
use super::wire::Wire;
use linerate_appliance::control::acceptor::{Acceptor, Clients, Places};
use linerate_appliance::error::Error;

/// Limit of clients at a time.
const CLIENTS: Clients = Clients {
    listener: "listener",
    client: "client",
    most: 64,
};

/// Listeners and clients of one session.
pub(crate) struct Server {
    control: ControlHandle,
    closing: Arc<AtomicBool>,
    places: Places,
    listeners: Vec<Acceptor>,
}

/// What the threads of a listener need.
#[derive(Clone)]
struct Door {
    control: ControlHandle,
    closing: Arc<AtomicBool>,
    places: Places,
    access: Access,
    token: Option<Arc<str>>,
}

impl Server {
    pub(crate) fn new(control: ControlHandle) -> Self {
        Self {
            control,
            closing: Arc::default(),
            places: Places::default(),
            listeners: Vec::new(),
        }
    }

    /// The flag that is set when the session ends: waiting calls give up then.
    pub(crate) fn closing(&self) -> Arc<AtomicBool> {
        self.closing.clone()
    }

    /// Accepts clients at `address`; over TCP they have to know `token`. Returns the address for
    /// TCP.
    ///
    /// # Errors
    /// The address is in use, or needs a token.
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
                    problem: format!("{address}: anyone who reaches that port could send traffic"),
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
        let closing = self.closing.clone();
        let accept = move |time_ms| listener.accept(time_ms);
        let admit = move |wire| door.admit(wire);
        let acceptor = Acceptor::start(CLIENTS.listener, closing, accept, admit)?;
        self.listeners.push(acceptor);
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
            control: self.control.clone(),
            closing: self.closing.clone(),
            places: self.places.clone(),
            access: Access::FULL,
            token: None,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also ends clients that did not come by a listener.
        self.closing.store(true, Ordering::SeqCst);
    }
}

impl Door {
    fn admit(&self, wire: Wire) -> io::Result<()> {
        let asker = Asker::new(self.control.clone(), self.access, self.closing.clone());
        let token = self.token.clone();
        // It ends with the client, whatever the reason.
        let serve = move |wire| _ = serve(wire, asker, token.as_deref());
        self.places.admit(CLIENTS, wire, serve, |mut wire| {
            let answer = refusal(
                format!("{} clients are connected already", CLIENTS.most),
                "close some of them",
            );
            // It is short: a socket takes it at once, unless the client does not read.
            let _ = io::Write::write_all(&mut wire, &line(&answer));
        })
    }
}
