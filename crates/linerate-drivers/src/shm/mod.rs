//! shm: two ports joined by rings in a shared file.
//!
//! # Synopsis
//! ```text
//! shm:FILE[,role=server|client][,queues=N][,size=N][,buffer=N][,mode=OCTAL][,owner=USER]
//! ```
//!
//! # Description
//! Joins two processes of one machine, in one container or two (share the file's folder), or a host
//! and a guest: QEMU's `ivshmem-plain` shows the guest the file as the memory of a PCI device, and
//! the client opens `/sys/bus/pci/devices/ADDRESS/resource2`. The peer can be any program that
//! keeps to the layout of `docs/shm.md`; `examples/shm_peer.c` is one on a page.
//!
//! Frames are copied into fixed slots and out of them. What tells the receiver that a frame is
//! there stands in the frame's own first cache line, so a frame of 60 bytes moves with one line. A
//! full ring is no loss: `tx_burst` takes what fits and leaves the rest.
//!
//! The server makes the file, or takes over the one that an earlier server left, whose frames under
//! way stay; the client waits for it. Each side may end, by `kill -9` in the middle of a burst too,
//! and come back: it goes on where the rings are. The other one notices within a tenth of a second
//! by the lock that the kernel held for the dead one, or, where that one was in another kernel,
//! within two seconds by its heartbeat; what is sent meanwhile is dropped as `no_peer`. The file
//! stays when both have ended.
//!
//! The peer need not be trusted: it can send nonsense, but reach nothing except for the file. What
//! it does against the layout is counted as a violation, and the queue rests until the next look
//! (at most 100 ms).
//!
//! Nothing wakes a receiver: an idle worker naps (50 us at most by default) and looks. That holds
//! for a guest as well, which no descriptor of the host's can wake.
//!
//! # Options
//! ```text
//! role    server: makes the file and says its shape; client: takes it as it is; default server
//! queues  queues each way, 1 to 64, the same on both sides; default 1
//! size    frames that each ring holds, rounded up to a power of two; default 1024. Of the server.
//! buffer  longest frame, in bytes; default 2048. Of the server.
//! mode    permission bits of a file that the server makes; default 0600
//! owner   user, by name or number, that such a file belongs to; default who runs the server
//! ```
//!
//! # See also
//! `memif` and `vhost`, which peers other than ours speak and which wake who sleeps.

mod control;
mod file;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
pub mod layout;
mod queue;
mod signs;
mod sys;

use crate::peer::UnixAccess;
use crate::{Counters, Opener, PortKind};
use control::{Control, Shared};
use file::{Refusal, Role, Wanted};
use layout::Shape;
use linerate_core::packet::Pools;
use linerate_core::port::{
    Link, OptionHelp, Port, PortConfig, PortError, PortInfo, PortStats, Queues, Spec,
};
use std::path::PathBuf;
use std::sync::Arc;

/// The row in the drivers' table.
pub const KIND: PortKind = PortKind {
    name: "shm",
    summary: "two ports joined by rings in a shared file: processes, containers, guests",
    example: "shm:/dev/shm/lr,role=server",
    options: &[
        OptionHelp {
            key: "role",
            value: "server|client",
            help: "the server makes the file and says its shape; default server",
        },
        OptionHelp {
            key: "queues",
            value: "N",
            help: "queues each way, 1 to 64, the same on both sides; default 1",
        },
        OptionHelp {
            key: "size",
            value: "N",
            help: "frames that a ring holds, a power of two; default 1024; the server's",
        },
        OptionHelp {
            key: "buffer",
            value: "N",
            help: "longest frame in bytes; default 2048; the server's",
        },
        OptionHelp {
            key: "mode",
            value: "OCTAL",
            help: "permission bits of a file that the server makes; default 0600",
        },
        OptionHelp {
            key: "owner",
            value: "USER",
            help: "whose such a file is, by name or number; default who runs the server",
        },
    ],
    open: |spec, drivers| Ok(Box::new(Shm::open(spec, &drivers.opener)?)),
};

const SIZE: u32 = 1024;
const BUFFER: usize = 2048;

/// One side of a shared file.
pub struct Shm {
    name: String,
    wanted: Wanted,
    opener: Arc<dyn Opener>,
    shared: Arc<Shared>,
    /// While started.
    control: Option<Control>,
    counters: Counters,
}

impl Shm {
    /// Reads the options; [`Port::start`] opens the file.
    ///
    /// # Errors
    /// [`PortError::BadValue`].
    pub fn open(spec: &Spec, opener: &Arc<dyn Opener>) -> Result<Self, PortError> {
        let path = PathBuf::from(spec.required_target("a file: `shm:/dev/shm/NAME`")?);
        let role = match spec.text("role") {
            None | Some("server") => Role::Server,
            Some("client") => Role::Client,
            Some(_) => return Err(spec.bad("role", "`server` or `client`")),
        };
        let servers = ["size", "buffer", "mode", "owner"];
        if let Some(key) = servers.iter().find(|key| spec.text(key).is_some())
            && role == Role::Client
        {
            return Err(spec.bad(key, "left out: the server's file says it"));
        }
        let queues = spec.number("queues", 1, 1..=layout::MAX_QUEUES)?;
        let size = spec.number("size", SIZE, 1..=layout::MAX_SLOTS)?;
        let buffer = spec.number("buffer", BUFFER, 60..=layout::MAX_FRAME_BYTES)?;
        let mode = spec.text("mode").map(|text| {
            UnixAccess::mode(text).ok_or_else(|| spec.bad("mode", "permission bits, as 0660"))
        });
        let owner = spec.text("owner").map(|text| {
            UnixAccess::user(text).ok_or_else(|| spec.bad("owner", "a user's name or number"))
        });
        let access = UnixAccess {
            mode: mode.transpose()?,
            owner: owner.transpose()?,
        };
        Ok(Self {
            name: spec.name(),
            wanted: Wanted {
                path,
                role,
                shape: Shape::new(queues, size, buffer),
                access,
            },
            opener: opener.clone(),
            shared: Arc::new(Shared::new()),
            control: None,
            counters: Counters::default(),
        })
    }
}

impl Port for Shm {
    fn info(&self) -> PortInfo {
        let (_, now) = self.shared.now();
        let attached = now.attached.as_deref();
        let shape = attached.map_or(self.wanted.shape, |attached| attached.shape);
        let queues = self.wanted.shape.queues() as u16;
        let mut facts = vec![("role", self.wanted.role.name().into())];
        if let Some(attached) = attached {
            facts.push(("ring slots", shape.slots().to_string()));
            facts.push(("bytes shared", attached.shape.file_bytes().to_string()));
        }
        if let Ok(peer) = &now.peer {
            let (name, process, start) = (&peer.name, peer.process, peer.generation);
            facts.push(("peer", format!("{name}, process {process}, start {start}")));
            facts.push(("peer known by", peer.sign.into()));
        }
        PortInfo {
            name: self.name.clone(),
            kind: KIND.name,
            mac: None,
            max_frame_bytes: shape.frame_bytes(),
            max_rx_queues: queues,
            max_tx_queues: queues,
            numa_node: None,
            tx_offloads: false,
            aligned_pool: false,
            exposed_pool: false,
            facts,
        }
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        self.counters.check_start(&self.info(), config)?;
        self.control = None; // of a start before
        let control = Control::start(
            self.wanted.clone(),
            self.opener.clone(),
            self.shared.clone(),
        );
        self.control = Some(control.map_err(|refusal: Refusal| PortError::Unsupported {
            port: self.name.clone(),
            reason: refusal.into_reason(),
        })?);
        let mut queues = Queues::default();
        for index in 0..config.rx_queues {
            let stats = self.counters.rx(index.into());
            let shared = self.shared.clone();
            let queue = queue::Receiver::new(shared, index.into(), config.index, pools, stats);
            queues.rx.push(Box::new(queue));
        }
        for index in 0..config.tx_queues {
            let stats = self.counters.tx(index.into());
            let queue = queue::Sender::new(self.shared.clone(), index.into(), pools, stats);
            queues.tx.push(Box::new(queue));
        }
        Ok(queues)
    }

    fn link(&self) -> Link {
        match self.shared.now().1.peer {
            Ok(_) => Link::Up,
            Err(reason) => Link::Down(reason),
        }
    }

    fn stats(&self) -> PortStats {
        let (_, now) = self.shared.now();
        // Without a peer nobody takes what waits.
        let attached = now.attached.filter(|_| now.peer.is_ok());
        PortStats {
            violations: self.shared.violations.read(),
            rings: attached.map_or(Vec::new(), |attached| attached.fill()),
            ..self.counters.sum()
        }
    }

    fn warning(&self) -> Option<String> {
        self.shared.violations.warning()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.counters.check_stop(&self.name)?;
        self.control = None;
        self.shared.violations.forget_warning();
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
