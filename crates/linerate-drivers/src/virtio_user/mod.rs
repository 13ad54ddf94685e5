//! virtio_user: the driver of a virtio network device that another process plays, over a vhost-user
//! socket.
//!
//! # Synopsis
//! ```text
//! virtio_user:PATH[,role=client|server][,queues=N][,size=N][,buffer=BYTES][,packed=on|off]
//!     [,in_order=on|off][,mergeable=on|off][,inflight=on|off][,offloads=on|off]
//!     [,trust=none|full][,owner=USER][,mode=OCTAL]
//! ```
//!
//! # Description
//! What a guest's driver is to its virtual machine monitor: this port shares memory of its own, in
//! which its rings and buffers are, with a back end (DPDK's `net_vhost`, Open vSwitch, VPP, a
//! `vhost` port) that listens at PATH. Frames are copied between those buffers and the pool, so the
//! peer sees frames that were sent to it and nothing else. The memory is a sealed file and a fresh
//! one for each peer.
//!
//! What is asked for is what is offered to the back end: it may take less (no packed ring, fewer
//! queues), which `ctl show ports` shows. Frames longer than a buffer go as chains, and come as
//! several buffers where the back end knows mergeable ones.
//!
//! The peer is not trusted with more than that memory: what it writes there, also to the rings, is
//! checked as a guest's is. *Reconnect*: a client tries every 100 ms, a server listens on.
//!
//! *Trust* (`trust=full`): nothing is copied. The pool is the memory that the peer maps, descriptors
//! say where packets lie, and free slots are lent to be filled, so the peer can read and write every
//! packet of that pool at any time. That is for peers that run the user's own code (docs/adr/0043).
//! What it writes to the rings is checked as ever.
//!
//! *In flight* (`inflight=on`): where the back end offers to record what it has under way
//! (INFLIGHT_SHMFD), a new one that connects as the same user gets the rings as the one that ended
//! left them, and what is in them arrives. It then sees frames that were meant for the other one,
//! and the record costs both sides some stores a frame; so it is off unless it is asked for.
//!
//! # See also
//! Virtio 1.2, QEMU's `docs/interop/vhost-user.rst`, DPDK's `net_virtio_user`, `vhost` for the
//! other end.

mod session;

use crate::peer::exposed::{self, ExposedPools, UNSTARTED};
use crate::vhost::control::{MODE, OWNER, ROLE, Role};
use crate::vhost::message::MOST_FILES;
use crate::vhost::{self, Base, LARGEST_FRAME_BYTES, MOST_PAIRS};
use crate::virtqueue::frames::LEAST_BUFFER_BYTES;
use crate::{Opener, PortKind};
use linerate_core::packet::Pools;
use linerate_core::port::{
    Link, OptionHelp, Port, PortConfig, PortError, PortInfo, PortStats, Queues, Spec,
};
use session::{FrontEnd, Lending, Wish};
use std::sync::Arc;

/// The row in the drivers' table.
pub const KIND: PortKind = PortKind {
    name: "virtio_user",
    summary: "the driver of a virtio network device of another process, over a vhost-user socket",
    example: "virtio_user:/run/vm.sock,queues=2,size=1024",
    options: OPTIONS,
    open: |spec, drivers| Ok(Box::new(open(spec, &drivers.opener)?)),
};

/// The options of [`open`].
pub const OPTIONS: &[OptionHelp] = &[
    ROLE,
    vhost::QUEUES,
    OptionHelp {
        key: "size",
        value: "N",
        help: "entries of each ring, a power of two from 64 to 32768; default 256",
    },
    OptionHelp {
        key: "buffer",
        value: "BYTES",
        help: "of each buffer, 1024 to 65536; default 2048",
    },
    OptionHelp {
        key: "packed",
        value: "on|off",
        help: "packed rings rather than split ones; default on",
    },
    OptionHelp {
        key: "in_order",
        value: "on|off",
        help: "buffers come back in order; default on",
    },
    OptionHelp {
        key: "mergeable",
        value: "on|off",
        help: "longer frames come in several buffers; default on",
    },
    OptionHelp {
        key: "inflight",
        value: "on|off",
        help: "what a back end leaves in the rings when it ends is for the next one; default off",
    },
    OptionHelp {
        key: "trust",
        value: "none|full",
        help: "full: packets stay in the pool, which the peer reads and writes; default none: they \
               are copied",
    },
    vhost::OFFLOADS,
    OWNER,
    MODE,
];

/// Reads the options; [`Port::start`] connects.
///
/// # Errors
/// [`PortError::BadValue`].
pub fn open(spec: &Spec, opener: &Arc<dyn Opener>) -> Result<VirtioUser, PortError> {
    let size: u16 = spec.number("size", 256, 64..=32_768)?;
    if !size.is_power_of_two() {
        return Err(spec.bad("size", "a power of two from 64 to 32768"));
    }
    let wish = Wish {
        pairs: spec.number("queues", 1_usize, 1..=MOST_PAIRS.into())?,
        size,
        buffer: spec.number("buffer", 2048, LEAST_BUFFER_BYTES..=65_536)?,
        packed: spec.switch("packed", true)?,
        in_order: spec.switch("in_order", true)?,
        mergeable: spec.switch("mergeable", true)?,
        inflight: spec.switch("inflight", false)?,
        offloads: spec.switch("offloads", true)?,
        large: false,
        lends: false,
    };
    if !wish.buffer.is_multiple_of(64) {
        return Err(spec.bad("buffer", "a multiple of 64"));
    }
    let trusts = exposed::is_full(spec.text("trust")).map_err(|says| spec.bad("trust", says))?;
    if trusts && spec.text("buffer").is_some() {
        return Err(spec.bad(
            "buffer",
            "left out: with `trust=full` slots are the buffers",
        ));
    }
    if trusts && wish.inflight {
        let expected =
            "off with `trust=full`: slots that are in flight come home with the peer's end";
        return Err(spec.bad("inflight", expected));
    }
    Ok(VirtioUser {
        base: Base::read(spec, opener, Role::Client)?,
        wish,
        trusts,
        exposed: None,
    })
}

/// A port to a virtio device.
pub struct VirtioUser {
    base: Base,
    wish: Wish,
    /// The peer maps our pools, which are these since the last start.
    trusts: bool,
    exposed: Option<ExposedPools>,
}

impl VirtioUser {
    /// The pools that the peer maps, where it is trusted with them.
    fn expose(
        &self,
        info: &PortInfo,
        config: &PortConfig,
        pools: &Pools,
    ) -> Result<Option<ExposedPools>, PortError> {
        if !self.trusts {
            return Ok(None);
        }
        let unsupported = |reason| PortError::Unsupported {
            port: info.name.clone(),
            reason,
        };
        let exposed = ExposedPools::of(pools).map_err(unsupported)?;
        let count = exposed.spans().len();
        if count >= MOST_FILES {
            return Err(unsupported(format!(
                "{count} pools are to be shared, and one message takes {} files besides the \
                 rings': make fewer of them exposed ones, or leave `trust=` out",
                MOST_FILES - 1
            )));
        }
        // Each receive ring holds as many free slots as it has descriptors.
        let needed = u32::from(config.rx_queues) * u32::from(self.wish.size);
        exposed.can_lend(&info.name, needed)?;
        Ok(Some(exposed))
    }

    /// For people: what the peer may do.
    fn trust(&self) -> String {
        match &self.exposed {
            Some(exposed) => exposed.describe(),
            None if self.trusts => UNSTARTED.into(),
            None => "none: frames are copied".into(),
        }
    }
}

impl Port for VirtioUser {
    fn info(&self) -> PortInfo {
        let Wish {
            pairs, offloads, ..
        } = self.wish;
        let mut info = self.base.info(KIND.name, pairs as u16, offloads);
        info.exposed_pool = self.trusts;
        info.facts.insert(0, ("trust", self.trust()));
        info
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        let (info, wish) = (self.info(), self.wish);
        let large = pools.for_frame(LARGEST_FRAME_BYTES).is_some();
        let exposed = self.expose(&info, config, pools)?;
        self.exposed.clone_from(&exposed);
        let lending = exposed.map(|pools| Lending {
            pools,
            port: config.index,
            queues: config.rx_queues.into(),
        });
        self.base
            .start(&info, config, pools, 0, |port, pairs, shared| {
                let wish = Wish {
                    pairs,
                    large,
                    ..wish
                };
                FrontEnd::new(port, wish, lending, shared)
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
