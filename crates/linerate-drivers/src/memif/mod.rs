//! memif: shared memory with another process, as VPP and DPDK speak it.
//!
//! # Synopsis
//! ```text
//! memif:PATH[,id=N][,role=server|client][,queues=N][,ring_size=N][,buffer=N][,secret=TEXT]
//!     [,trust=none|full][,owner=USER][,mode=OCTAL][,mac=ADDRESS]
//! memif:@NAME[,...]
//! ```
//!
//! # Description
//! Protocol 2.0 of FD.io VPP's memif, Ethernet mode. The server listens on a Unix socket; the
//! client connects, makes the memory (a sealed memfd), and tells where the rings are. Either side
//! may be VPP, DPDK's `net_memif`, libmemif, or another `linerate`. Several interfaces may share a
//! server's socket, each with a number of its own (`id`); `@name` is a socket without a path.
//!
//! Frames are copied into the shared memory and out of it, and each number of the peer's is loaded
//! once, checked, and then used: a peer can spoil its own frames and nothing else. One that breaks
//! the protocol is disconnected, counted by reason (`violations`), and may connect again.
//!
//! A client with `trust=full` copies nothing: its pool is the shared memory, descriptors point into
//! packets, and free slots are lent to the peer, which can read and write every packet of that pool
//! at any time. That is for peers that run the user's own code (docs/adr/0043).
//!
//! A frame that is longer than a buffer goes in several. Nothing is lost to a full ring: `tx_burst`
//! leaves what does not fit. Without a peer frames are dropped as `no_peer`.
//!
//! Either side may go and come back: a server goes on to listen, a client tries every 100 ms.
//!
//! Workers that poll have notifications turned off; before one sleeps it asks for them
//! ([`SleepOn::Fd`](linerate_core::port::SleepOn)).
//!
//! A peer with fewer rings than we have queues: the transmit queues share them, and receive queues
//! without one stay empty. A client that wants more is refused.
//!
//! # Options
//! ```text
//! id         the interface's number on the socket; default 0
//! role       server: listen and map what the client sends; client: connect; default server
//! queues     most queues each way, 1 to 64; default 1
//! ring_size  a client's descriptors in each ring, a power of two, 16 to 16384; default 1024
//! buffer     a client's bytes in each buffer, 256 to 65536; default 2048
//! trust      full: a client's pool is what the peer maps; default none
//! secret     at most 24 bytes that client and server must share
//! owner      user that owns a server's socket: a number, or a name of /etc/passwd
//! mode       its permission bits, such as 0660; default as the umask says
//! mac        address to be shown; default one that follows from socket, id and role
//! ```
//!
//! # See also
//! VPP's src/plugins/memif and extras/libmemif, DPDK's `net_memif`; docs/adr/0028, 0043.

mod control;
mod exposed;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod gauge;
mod layout;
mod listener;
mod message;
mod negotiation;
mod options;
mod queue;
mod receive;
mod ring;
mod shared;
mod transmit;

pub(crate) use listener::Listeners;

use crate::null::MAX_FRAME_BYTES;
use crate::offload::Finisher;
use crate::peer::exposed::UNSTARTED;
use crate::peer::kick::{self, Notifier};
use crate::peer::violations::Violations;
use crate::{Counters, Drivers, PortKind};
use control::Control;
use exposed::Exposed;
use linerate_core::packet::Pools;
use linerate_core::port::{Link, Port, PortConfig, PortError, PortInfo, PortStats, Queues, Spec};
use listener::{Interface, NoPlace, Place};
use options::{Role, Settings};
use queue::{Receiver, Sender};
use receive::Slots;
use shared::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The row in the drivers' table.
pub const KIND: PortKind = PortKind {
    name: "memif",
    summary: "shared memory with another process (VPP, DPDK, libmemif, linerate)",
    example: "memif:/run/x.sock,id=0,role=server",
    options: options::OPTIONS,
    open: |spec, drivers: &mut Drivers| Ok(Box::new(open(spec, drivers)?)),
};

/// Reads the options; [`Port::start`] makes or connects the socket.
///
/// # Errors
/// [`PortError::BadValue`].
pub fn open(spec: &Spec, drivers: &Drivers) -> Result<Memif, PortError> {
    Ok(Memif {
        settings: options::read(spec, &drivers.opener)?,
        listeners: drivers.memifs.clone(),
        counters: Counters::default(),
        violations: Arc::default(),
        notified: Arc::default(),
        running: None,
    })
}

/// A memif interface.
pub struct Memif {
    settings: Settings,
    listeners: Listeners,
    counters: Counters,
    violations: Arc<Violations>,
    /// Notifications of all starts.
    notified: Arc<AtomicU64>,
    running: Option<Running>,
}

/// What is there between start and stop.
struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    /// A client's pools that the peer maps.
    exposed: Option<Exposed>,
    /// A server's place on its socket.
    _place: Option<Place>,
}

impl Memif {
    fn system(&self, action: impl Into<String>, source: std::io::Error, fix: &str) -> PortError {
        PortError::System {
            port: self.settings.port.clone(),
            action: action.into(),
            source,
            fix: fix.into(),
        }
    }

    /// A server's place on its socket.
    fn listen(&self, interface: Interface) -> Result<Option<Place>, PortError> {
        let Settings {
            address,
            access,
            opener,
            program,
            port,
            id,
            role,
            ..
        } = &self.settings;
        if *role == Role::Client {
            return Ok(None);
        }
        let place = self
            .listeners
            .join(&**opener, address, *access, program, interface);
        let unsupported = |reason: String| PortError::Unsupported {
            port: port.clone(),
            reason,
        };
        match place {
            Ok(place) => Ok(Some(place)),
            Err(NoPlace::Taken) => Err(unsupported(format!(
                "another port has id {id} on `{address}`; give each its own with id="
            ))),
            Err(NoPlace::Access) => Err(unsupported(format!(
                "another port listens on `{address}` with another owner= or mode=; they share \
                 the socket, so give both the same"
            ))),
            Err(NoPlace::Listen(error)) => {
                let fix = "choose a path in a folder that is there and can be written to, or \
                           stop who uses it";
                Err(self.system(format!("listen on `{address}`"), error, fix))
            }
        }
    }

    /// The pools that the peer maps, where it is trusted with them.
    fn expose(&self, config: &PortConfig, pools: &Pools) -> Result<Option<Exposed>, PortError> {
        let Settings {
            port,
            trusts,
            log2_size,
            buffer_bytes,
            ..
        } = &self.settings;
        if !trusts {
            return Ok(None);
        }
        let exposed = Exposed::of(pools, *buffer_bytes, config);
        let exposed = exposed.map_err(|reason| PortError::Unsupported {
            port: port.clone(),
            reason,
        })?;
        // Each receive ring holds as many free slots as it has descriptors.
        let needed = u32::from(config.rx_queues) << log2_size;
        exposed.pools.can_lend(port, needed)?;
        Ok(Some(exposed))
    }

    /// For people: what the peer may do.
    fn trust(&self) -> String {
        let running = self.running.as_ref();
        match running.and_then(|running| running.exposed.as_ref()) {
            Some(exposed) => exposed.pools.describe(),
            None if self.settings.trusts => UNSTARTED.into(),
            None => "none: frames are copied".into(),
        }
    }

    fn receivers(&mut self, shared: &Arc<Shared>, config: &PortConfig, pools: &Pools) -> Queues {
        let mut queues = Queues::default();
        for index in 0..usize::from(config.rx_queues) {
            queues.rx.push(Box::new(Receiver {
                shared: shared.clone(),
                index,
                slots: Slots {
                    pools: pools.clone(),
                    port: config.index,
                },
                stats: self.counters.rx(index),
                lends: self.settings.trusts,
            }));
        }
        for index in 0..usize::from(config.tx_queues) {
            queues.tx.push(Box::new(Sender {
                shared: shared.clone(),
                index,
                finisher: Finisher::new(pools),
                stats: self.counters.tx(index),
                lends: self.settings.trusts,
                sent: false,
            }));
        }
        queues
    }
}

impl Port for Memif {
    fn info(&self) -> PortInfo {
        let role = match self.settings.role {
            Role::Server => "server",
            Role::Client => "client",
        };
        let mut facts = vec![("role", role.to_owned())];
        facts.push(("trust", self.trust()));
        if let Some(running) = &self.running {
            facts.extend(running.facts());
        }
        PortInfo {
            name: self.settings.port.clone(),
            kind: KIND.name,
            mac: Some(self.settings.mac),
            max_frame_bytes: MAX_FRAME_BYTES,
            max_rx_queues: self.settings.queues,
            max_tx_queues: self.settings.queues,
            numa_node: None,
            tx_offloads: false,
            aligned_pool: false,
            exposed_pool: self.settings.trusts,
            facts,
        }
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        self.counters.check_start(&self.info(), config)?;
        let exposed = self.expose(config, pools)?;
        // A peer expects a ring each way, also from who only sends.
        let rings = |queues: u16| usize::from(queues.max(1));
        let (rx, tx) = (rings(config.rx_queues), rings(config.tx_queues));
        let fix = "raise the limit of open files (ulimit -n)";
        let notifier = Notifier::new(tx, self.notified.clone());
        let notifier = notifier.map_err(|error| self.system("make an eventfd", error, fix))?;
        let violations = self.violations.clone();
        let shared = Shared::new((rx, tx), notifier.handle(), violations);
        let shared = shared.map_err(|error| self.system("make an eventfd", error, fix))?;
        let shared = Arc::new(shared);
        let control = Control {
            settings: self.settings.clone(),
            shared: shared.clone(),
            notifier,
            inbox: Arc::default(),
            exposed: exposed.clone(),
        };
        shared.set_down(match self.settings.role {
            Role::Server => format!("waits for a client on `{}`", self.settings.address),
            Role::Client => format!("not yet connected to `{}`", self.settings.address),
        });
        let place = self.listen(Interface {
            id: self.settings.id,
            shared: shared.clone(),
            inbox: control.inbox.clone(),
        })?;
        let name = self.settings.interface.clone();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || control.run());
        let thread = thread.map_err(|error| {
            let fix = "raise the limit of processes (ulimit -u)";
            self.system("start its control thread", error, fix)
        })?;
        let queues = self.receivers(&shared, config, pools);
        self.running = Some(Running {
            shared,
            thread,
            exposed,
            _place: place,
        });
        Ok(queues)
    }

    fn link(&self) -> Link {
        let Some(running) = &self.running else {
            return Link::Down(format!("port `{}` is not started", self.settings.port));
        };
        match running.shared.state().down {
            None => Link::Up,
            Some(reason) => Link::Down(reason),
        }
    }

    fn stats(&self) -> PortStats {
        let now = self.running.as_ref();
        PortStats {
            violations: self.violations.read(),
            notifications: self.notified.load(Ordering::Relaxed),
            rings: now.map_or(Vec::new(), |now| now.shared.fill()),
            ..self.counters.sum()
        }
    }

    fn warning(&self) -> Option<String> {
        self.violations.warning()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.counters.check_stop(&self.settings.port)?;
        if let Some(running) = self.running.take() {
            running.end();
        }
        self.violations.forget_warning();
        Ok(())
    }
}

impl Drop for Memif {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.end();
        }
    }
}

impl Running {
    /// Disconnects.
    fn end(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        kick::ring(&self.shared.bell);
        let _ = self.thread.join();
    }

    /// For people: who the peer is, and what was agreed on.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let Some(peer) = self.shared.state().peer else {
            return Vec::new();
        };
        let (to_server, to_client) = peer.rings;
        let sealed = if peer.sealed { "sealed" } else { "not sealed" };
        vec![
            ("peer", peer.name),
            ("peer interface", peer.interface),
            ("peer process", peer.process),
            (
                "rings",
                format!("{to_server} to the server, {to_client} to the client"),
            ),
            ("ring size", peer.ring_size.to_string()),
            ("regions", format!("{} ({sealed})", peer.regions)),
        ]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
