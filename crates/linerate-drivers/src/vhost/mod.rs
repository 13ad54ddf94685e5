//! vhost: a port to a guest, or to whoever drives a virtio network device over a vhost-user socket.
//!
//! # Synopsis
//! ```text
//! vhost:PATH[,role=server|client][,queues=N][,offloads=on|off][,owner=USER][,mode=OCTAL]
//! ```
//!
//! # Description
//! The device's side of virtio (1.2) in a process of its own: QEMU, or another process' virtio-user
//! driver, connects to the socket PATH and says where the guest's memory and rings are. `@name` is
//! an abstract socket. Frames are copied between the guest's buffers and the pool; no memory of
//! ours is ever the guest's.
//!
//! Split and packed rings, in order or not, mergeable buffers, indirect descriptors, event index,
//! several queues, each enabled by itself. A guest may leave checksums and segmentation to us
//! (`offloads=on`; for unsegmented frames there must be a pool of large slots), and is left them
//! where it offers; for others they are finished here.
//!
//! **The peer is not trusted.** Whatever it writes to its rings, whenever, it can make us read and
//! write its own regions only. One that breaks the protocol is cut off, by reason counted, and may
//! connect again; `ctl show ports` says what it did. The state machine and the parser take any
//! message at any time.
//!
//! *Reconnect*: a server goes on listening, a client tries every 100 ms. What is in the rings stays
//! there: a driver that tracks what is in flight (`GET_INFLIGHT_FD`; `virtio_user` with
//! `inflight=on`) hands it to whoever is its device next. *Live migration*: pages that we write to
//! are logged while the front end asks for it.
//!
//! # See also
//! QEMU's `docs/interop/vhost-user.rst`, DPDK's `net_vhost`, `virtio_user` for the other end.

pub(crate) mod config;
pub(crate) mod control;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub(crate) mod message;
mod session;

use crate::peer::violations::Violations;
use crate::virtqueue::queue::{Receiver, Sender};
use crate::{Counters, Opener, PortKind};
use control::{Control, MODE, OWNER, ROLE, Role, Shared, Side, Where};
use linerate_core::packet::Pools;
use linerate_core::port::{
    Link, OptionHelp, Port, PortConfig, PortError, PortInfo, PortStats, Queues, RingFill, Spec,
};
use linerate_wire::{ethernet, vlan};
use session::Backend;
pub(crate) use session::{Offer, describe, inflight_fields, memory_file};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The row in the drivers' table.
pub const KIND: PortKind = PortKind {
    name: "vhost",
    summary: "a guest's virtio network device, over a vhost-user socket",
    example: "vhost:/run/vm.sock,queues=2",
    options: OPTIONS,
    open: |spec, drivers| Ok(Box::new(open(spec, &drivers.opener)?)),
};

/// The options of [`open`].
pub const OPTIONS: &[OptionHelp] = &[ROLE, QUEUES, OFFLOADS, OWNER, MODE];

pub(crate) const QUEUES: OptionHelp = OptionHelp {
    key: "queues",
    value: "N",
    help: "most pairs of queues, 1 to 64; default 1",
};
pub(crate) const OFFLOADS: OptionHelp = OptionHelp {
    key: "offloads",
    value: "on|off",
    help: "leave checksums and segmentation to the other side where it agrees; default on",
};

/// Most pairs: a message has 8 bits for a ring's number.
pub(crate) const MOST_PAIRS: u16 = 64;
/// Longest frame that is sent whole, a tag aside: jumbo frames, as guests have them.
pub(crate) const MAX_FRAME_BYTES: usize = 9000 + ethernet::HEADER_LEN;
/// Frames of any length fit slots with so much room.
pub(crate) const LARGEST_FRAME_BYTES: usize = 65_535 + ethernet::HEADER_LEN + vlan::TAG_LEN;

/// Reads the options; [`Port::start`] makes the socket.
///
/// # Errors
/// [`PortError::BadValue`].
pub fn open(spec: &Spec, opener: &Arc<dyn Opener>) -> Result<Vhost, PortError> {
    Ok(Vhost {
        base: Base::read(spec, opener, Role::Server)?,
        pairs: spec.number("queues", 1, 1..=MOST_PAIRS)?,
        offloads: spec.switch("offloads", true)?,
    })
}

/// A port to a virtio driver.
pub struct Vhost {
    base: Base,
    pairs: u16,
    offloads: bool,
}

/// What ports over a vhost-user socket have in common, whichever side of the device they are.
pub(crate) struct Base {
    port: String,
    at: Where,
    opener: Arc<dyn Opener>,
    counters: Counters,
    violations: Arc<Violations>,
    /// Notifications of all starts.
    notified: Arc<AtomicU64>,
    running: Option<Running>,
}

impl Base {
    /// Reads the options that both sides have; `role` is the usual one.
    pub(crate) fn read(
        spec: &Spec,
        opener: &Arc<dyn Opener>,
        role: Role,
    ) -> Result<Self, PortError> {
        Ok(Self {
            port: spec.name(),
            at: Where::read(spec, role)?,
            opener: opener.clone(),
            counters: Counters::default(),
            violations: Arc::default(),
            notified: Arc::default(),
            running: None,
        })
    }

    pub(crate) fn info(&self, kind: &'static str, pairs: u16, offloads: bool) -> PortInfo {
        PortInfo {
            name: self.port.clone(),
            kind,
            mac: None,
            max_frame_bytes: MAX_FRAME_BYTES,
            max_rx_queues: pairs,
            max_tx_queues: pairs,
            numa_node: None,
            tx_offloads: offloads,
            aligned_pool: false,
            exposed_pool: false,
            facts: self.running.as_ref().map_or(Vec::new(), Running::facts),
        }
    }

    /// Starts control with what `side` makes for so many pairs. `received`: as for [`queues`].
    pub(crate) fn start<S: Side>(
        &mut self,
        info: &PortInfo,
        config: &PortConfig,
        pools: &Pools,
        received: usize,
        side: impl FnOnce(&str, usize, Arc<Shared>) -> S,
    ) -> Result<Queues, PortError> {
        self.counters.check_start(info, config)?;
        self.running = None;
        let pairs = usize::from(config.rx_queues.max(config.tx_queues).max(1));
        let shared = self.shared(pairs)?;
        let side = side(&self.port, pairs, shared.clone());
        let control = Control::start(&self.port, &self.at, &self.opener, shared.clone(), side)?;
        let lends = info.exposed_pool;
        let queues = queues(
            &shared,
            config,
            (pools, lends),
            &mut self.counters,
            received,
        );
        self.running = Some(Running::new(control, shared, received));
        Ok(queues)
    }

    fn shared(&self, pairs: usize) -> Result<Arc<Shared>, PortError> {
        let shared = Shared::new(pairs, self.violations.clone(), self.notified.clone());
        let shared = shared.map_err(|source| PortError::System {
            port: self.port.clone(),
            action: "make descriptors for its queues".into(),
            source,
            fix: "raise the limit of open files with `ulimit -n`".into(),
        });
        shared.map(Arc::new)
    }

    pub(crate) fn link(&self) -> Link {
        match &self.running {
            Some(running) => running.link(),
            None => Link::Down(format!("port `{}` is not started", self.port)),
        }
    }

    pub(crate) fn stats(&self) -> PortStats {
        PortStats {
            violations: self.violations.read(),
            notifications: self.notified.load(Ordering::Relaxed),
            rings: self.running.as_ref().map_or(Vec::new(), Running::rings),
            ..self.counters.sum()
        }
    }

    pub(crate) fn warning(&self) -> Option<String> {
        self.violations.warning()
    }

    pub(crate) fn stop(&mut self) -> Result<(), PortError> {
        self.counters.check_stop(&self.port)?;
        self.running = None;
        self.violations.forget_warning();
        Ok(())
    }
}

/// What there is of a port while it is started.
struct Running {
    /// Ends before what it shares.
    _control: Control,
    shared: Arc<Shared>,
    /// Which queue of a pair we receive from.
    received: usize,
}

impl Running {
    fn new(control: Control, shared: Arc<Shared>, received: usize) -> Self {
        Self {
            _control: control,
            shared,
            received,
        }
    }

    fn link(&self) -> Link {
        self.shared.status().link.clone()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        self.shared.status().facts.clone()
    }

    /// How full the rings are.
    fn rings(&self) -> Vec<RingFill> {
        let mut rings = Vec::new();
        for (direction, first) in [("receive", self.received), ("transmit", 1 - self.received)] {
            let queues = self.shared.queues.iter().skip(first).step_by(2);
            for (queue, of) in queues.enumerate() {
                rings.extend(of.fill().map(|[waiting, size]| RingFill {
                    direction,
                    queue: queue as u16,
                    waiting: waiting.into(),
                    size: size.into(),
                }));
            }
        }
        rings
    }
}

/// The queues of a started port. `received` says which queue of a pair we receive from: 1 as the
/// device, 0 as the driver. `lends`: the peer gets slots of the pools.
fn queues(
    shared: &Shared,
    config: &PortConfig,
    (pools, lends): (&Pools, bool),
    counters: &mut Counters,
    received: usize,
) -> Queues {
    let mut queues = Queues::default();
    for index in 0..usize::from(config.rx_queues) {
        queues.rx.push(Box::new(Receiver::new(
            shared.queues[2 * index + received].clone(),
            shared.wakeups[index].clone(),
            config.index,
            (pools, lends),
            counters.rx(index),
        )));
    }
    let sent = shared.queues.iter().skip(1 - received).step_by(2);
    let sent: Vec<_> = sent.cloned().collect();
    for index in 0..usize::from(config.tx_queues) {
        queues.tx.push(Box::new(Sender::new(
            sent.clone(),
            index,
            MAX_FRAME_BYTES + vlan::TAG_LEN,
            (pools, lends),
            counters.tx(index),
        )));
    }
    queues
}

impl Port for Vhost {
    fn info(&self) -> PortInfo {
        self.base.info(KIND.name, self.pairs, self.offloads)
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        let (info, offloads) = (self.info(), self.offloads);
        let large = pools.for_frame(LARGEST_FRAME_BYTES).is_some();
        self.base
            .start(&info, config, pools, 1, |port, pairs, shared| {
                let offer = Offer {
                    pairs,
                    offloads,
                    large,
                };
                Backend::new(port, offer, shared)
            })
    }

    fn link(&self) -> Link {
        self.base.link()
    }

    fn stats(&self) -> PortStats {
        self.base.stats()
    }

    fn warning(&self) -> Option<String> {
        self.base.warning()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.base.stop()
    }
}
