//! ring: ports of one process, joined through memory.
//!
//! # Synopsis
//! ```text
//! ring:NAME[,size=N][,back=N][,queues=N][,loop=on]
//! ```
//!
//! # Description
//! The first two openings of a name (by one [`Drivers`](crate::Drivers)) make the two ends of a
//! wire; a third is an error. Transmit queue *i* of one end feeds receive queue *i* of the
//! other through an SPSC ring. Slots move, bytes are not copied. A full ring is no loss:
//! `tx_burst` takes what fits and leaves the rest.
//!
//! An end is there while its receive queues live. Until the other end is there the link is
//! down, and what is sent is dropped and counted as `no_peer`. What lies in the ring when the
//! receiver goes is freed; what came between that and its return is counted as `link_down`.
//!
//! # Options
//! ```text
//! size    packets that each queue holds, rounded up to a power of two; default 1024
//! back    the same for the queues of the end that is opened second; default size
//! queues  queues each way; default 1. The second end may leave all out, or repeat them.
//! loop    on: one port whose transmit queues feed its own receive queues
//! ```
//!
//! # See also
//! DPDK's `net_ring`. [`pair`] makes two ends, and [`looped`] a loop, without a name.

mod channel;
mod registry;

pub(crate) use registry::Registry;

use crate::null::MAX_FRAME_BYTES;
use crate::{Counters, PortKind};
use channel::Channel;
use linerate_core::packet::Pools;
use linerate_core::port::{
    Link, OptionHelp, Port, PortConfig, PortError, PortInfo, PortStats, Queues,
};
use std::sync::Arc;

/// The row in the drivers' table.
pub const KIND: PortKind = PortKind {
    name: "ring",
    summary: "two ports of one process joined by rings, or one that loops",
    example: "ring:a,size=1024",
    options: &[
        OptionHelp {
            key: "size",
            value: "N",
            help: "packets that a queue holds, a power of two; default 1024",
        },
        OptionHelp {
            key: "back",
            value: "N",
            help: "packets that a queue of the end opened second holds; default size",
        },
        OptionHelp {
            key: "queues",
            value: "N",
            help: "queues each way; default 1",
        },
        OptionHelp {
            key: "loop",
            value: "on|off",
            help: "feed what is sent to the port itself; default off",
        },
    ],
    open: |spec, drivers| Ok(Box::new(drivers.rings.open(spec)?)),
};

/// One end of a wire, or a loop.
pub struct RingPort {
    name: String,
    /// Channel *i* is fed by transmit queue *i*.
    out: Vec<Arc<Channel>>,
    /// Channel *i* feeds receive queue *i*.
    into: Vec<Arc<Channel>>,
    counters: Counters,
    /// Tells the registry that this end is taken.
    _taken: Arc<()>,
}

/// The two ends of a wire with `queues` queues each way, each holding `size` packets (rounded up
/// to a power of two).
///
/// # Panics
/// If `size` is 0 or above [`linerate_core::ring::MAX_CAPACITY`].
pub fn pair(name: &str, queues: u16, size: usize) -> (RingPort, RingPort) {
    let (there, back) = (
        channel::channels(queues, size, true),
        channel::channels(queues, size, true),
    );
    (
        RingPort::new(name, &there, &back),
        RingPort::new(name, &back, &there),
    )
}

/// A port whose `queues` transmit queues feed its own receive queues; as for [`pair`].
///
/// # Panics
/// As [`pair`].
pub fn looped(name: &str, queues: u16, size: usize) -> RingPort {
    let channels = channel::channels(queues, size, false);
    RingPort::new(name, &channels, &channels)
}

impl RingPort {
    fn new(name: &str, out: &[Arc<Channel>], into: &[Arc<Channel>]) -> Self {
        Self {
            name: format!("ring:{name}"),
            out: out.to_vec(),
            into: into.to_vec(),
            counters: Counters::default(),
            _taken: Arc::default(),
        }
    }
}

impl Port for RingPort {
    fn info(&self) -> PortInfo {
        let queues = self.out.len() as u16;
        PortInfo {
            name: self.name.clone(),
            kind: KIND.name,
            mac: None,
            max_frame_bytes: MAX_FRAME_BYTES,
            max_rx_queues: queues,
            max_tx_queues: queues,
            numa_node: None,
            tx_offloads: true,
            aligned_pool: false,
            exposed_pool: false,
            facts: vec![("queue packets", self.out[0].capacity().to_string())],
        }
    }

    fn start(&mut self, config: &PortConfig, _: &Pools) -> Result<Queues, PortError> {
        self.counters.check_start(&self.info(), config)?;
        let mut queues = Queues::default();
        for (index, channel) in self.into.iter().enumerate().take(config.rx_queues.into()) {
            queues
                .rx
                .push(Box::new(Channel::listen(channel, self.counters.rx(index))));
        }
        for (index, channel) in self.out.iter().enumerate().take(config.tx_queues.into()) {
            queues
                .tx
                .push(Box::new(Channel::send(channel, self.counters.tx(index))));
        }
        Ok(queues)
    }

    fn link(&self) -> Link {
        if self.out.iter().any(|channel| channel.is_heard()) {
            return Link::Up;
        }
        Link::Down(format!(
            "the other end of `{}` is not open and started",
            self.name
        ))
    }

    fn stats(&self) -> PortStats {
        self.counters.sum()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.counters.check_stop(&self.name)
    }
}
