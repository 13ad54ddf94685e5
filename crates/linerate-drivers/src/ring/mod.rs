//! ring: ports of one process, joined through memory.
//!
//! # Synopsis
//! ```text
//! ring:NAME[,size=N][,back=N][,queues=N][,loop=on][,rss=PROFILE[,key=HEX]]
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
//! With `rss` both ends play NICs of a family: a packet comes to the receive queue that the hash of
//! its addresses and ports says, by whatever transmit queue it was sent, and has that hash in its
//! metadata. The redirection table leads to the queues that the end was started with, in turns;
//! what is not hashed comes to queue 0. A full receive queue then loses packets, which the
//! receiving end counts as `missed`. The sender's lcore hashes. How is the business of a
//! [`RssHash`], which is given from above ([`Drivers::playing_nics`](crate::Drivers)).
//!
//! # Options
//! ```text
//! size    packets that each queue holds, rounded up to a power of two; default 1024
//! back    the same for the queues of the end that is opened second; default size
//! queues  queues each way; default 1. The second end may leave all out, or repeat them.
//! loop    on: one port whose transmit queues feed its own receive queues
//! rss     play a NIC of this family, such as ixgbe (see `linerate bench rss`); 64 queues at most
//! key     its hash key, hex digits; default: the one that the family's driver sets
//! ```
//!
//! # See also
//! DPDK's `net_ring`. [`pair`] makes two ends, [`pair_of_nics`] two that play NICs, and [`looped`]
//! a loop, without a name.

mod channel;
mod nic;
mod registry;

pub(crate) use registry::Registry;

use crate::null::MAX_FRAME_BYTES;
use crate::{Counters, PortKind};
use channel::Channel;
use linerate_core::packet::Pools;
use linerate_core::port::{
    DropReason, Link, OptionHelp, Port, PortConfig, PortError, PortInfo, PortStats, QueueStats,
    Queues, RssHash, RssSetup, RxQueue, TxQueue,
};
use nic::Nic;
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
        OptionHelp {
            key: "rss",
            value: "NIC",
            help: "play a NIC such as ixgbe (see bench rss): what is sent comes to the queue that \
                its hash says, and is lost if that is full",
        },
        OptionHelp {
            key: "key",
            value: "HEX",
            help: "key of that hash; default: the driver's, where it has one",
        },
    ],
    open: |spec, drivers| Ok(Box::new(drivers.rings.open(spec, drivers.rss_hash)?)),
};

/// One direction of a wire.
#[derive(Clone)]
enum Lines {
    /// Channel *i* leads from transmit queue *i* to receive queue *i*.
    Straight(Vec<Arc<Channel>>),
    /// The receiving end plays a NIC.
    Spread(Arc<Nic>),
}

impl Lines {
    /// Lines for `queues` queues with rings of `size` packets, to a NIC if there is a hash.
    fn new(queues: u16, size: usize, bells: bool, hash: Option<&dyn RssHash>) -> Self {
        match hash {
            None => Self::Straight(channel::channels(queues, size, bells)),
            Some(hash) => Self::Spread(Arc::new(Nic::new(queues, size, bells, hash))),
        }
    }

    fn queues(&self) -> u16 {
        match self {
            Self::Straight(channels) => channels.len() as u16,
            Self::Spread(nic) => nic.queues(),
        }
    }

    fn is_heard(&self) -> bool {
        match self {
            Self::Straight(channels) => channels.iter().any(|channel| channel.is_heard()),
            Self::Spread(nic) => nic.rings().any(|channel| channel.is_heard()),
        }
    }

    /// Packets that a ring holds.
    fn capacity(&self) -> usize {
        match self {
            Self::Straight(channels) => channels.first().map_or(0, |channel| channel.capacity()),
            Self::Spread(nic) => nic.rings().next().map_or(0, |channel| channel.capacity()),
        }
    }

    fn listen(&self, index: usize, stats: Arc<QueueStats>) -> Box<dyn RxQueue> {
        match self {
            Self::Straight(channels) => Box::new(Channel::listen(&channels[index], stats)),
            Self::Spread(nic) => Box::new(nic.listen(index, &stats)),
        }
    }

    fn send(&self, index: usize, stats: Arc<QueueStats>) -> Box<dyn TxQueue> {
        match self {
            Self::Straight(channels) => Box::new(Channel::send(&channels[index], stats)),
            Self::Spread(nic) => Box::new(Nic::send(nic, index, stats)),
        }
    }
}

/// One end of a wire, or a loop.
pub struct RingPort {
    name: String,
    /// What its transmit queues feed.
    out: Lines,
    /// What feeds its receive queues.
    into: Lines,
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
    joined(name, [(); 2].map(|()| Lines::new(queues, size, true, None)))
}

/// The same, of ends that play NICs with this hash. `queues` are 64 at most, and each ring from a
/// transmit to a receive queue holds `size` packets.
///
/// # Panics
/// As [`pair`].
pub fn pair_of_nics(
    name: &str,
    queues: u16,
    size: usize,
    hash: &dyn RssHash,
) -> (RingPort, RingPort) {
    joined(
        name,
        [(); 2].map(|()| Lines::new(queues, size, true, Some(hash))),
    )
}

fn joined(name: &str, [there, back]: [Lines; 2]) -> (RingPort, RingPort) {
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
    RingPort::looped(name, queues, size, None)
}

impl RingPort {
    fn new(name: &str, out: &Lines, into: &Lines) -> Self {
        Self {
            name: format!("ring:{name}"),
            out: out.clone(),
            into: into.clone(),
            counters: Counters::default(),
            _taken: Arc::default(),
        }
    }

    fn looped(name: &str, queues: u16, size: usize, hash: Option<&dyn RssHash>) -> Self {
        let lines = Lines::new(queues, size, false, hash);
        Self::new(name, &lines, &lines)
    }
}

impl Port for RingPort {
    fn info(&self) -> PortInfo {
        let queues = self.out.queues();
        let mut facts = vec![("queue packets", self.out.capacity().to_string())];
        if let Some(rss) = self.rss() {
            let used = rss.reta.iter().max().map_or(0, |&queue| queue + 1);
            let (profile, entries) = (rss.profile, rss.reta.len());
            facts.push((
                "rss",
                format!("{profile}, {entries} entries for {used} queues"),
            ));
        }
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
            facts,
        }
    }

    fn start(&mut self, config: &PortConfig, _: &Pools) -> Result<Queues, PortError> {
        self.counters.check_start(&self.info(), config)?;
        if let Lines::Spread(nic) = &self.into {
            nic.spread(config.rx_queues);
        }
        let (rx, tx) = (0..config.rx_queues.into(), 0..config.tx_queues.into());
        Ok(Queues {
            rx: rx
                .map(|index| self.into.listen(index, self.counters.rx(index)))
                .collect(),
            tx: tx
                .map(|index| self.out.send(index, self.counters.tx(index)))
                .collect(),
        })
    }

    fn link(&self) -> Link {
        if self.out.is_heard() {
            return Link::Up;
        }
        Link::Down(format!(
            "the other end of `{}` is not open and started",
            self.name
        ))
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.counters.sum();
        if let Lines::Spread(nic) = &self.into
            && nic.missed() > 0
        {
            let (_, name) = DropReason::ALL[DropReason::Missed as usize];
            stats.rx_drops.push((name, nic.missed()));
        }
        stats
    }

    fn rss(&self) -> Option<RssSetup> {
        match &self.into {
            Lines::Straight(_) => None,
            Lines::Spread(nic) => Some(nic.setup()),
        }
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.counters.check_stop(&self.name)
    }
}
