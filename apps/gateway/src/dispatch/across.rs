//! Packets whose owner is on another NUMA node: by pointer, or as a copy.
//!
//! *By pointer* the owner gets what it always gets, four bytes that name the packet, and reads from
//! the memory of the other node what it touches. That is one line of metadata and one or two of
//! headers, which it prefetches for the whole burst. *As a copy* the packet is in memory of the
//! owner's node: the worker that hands it over has it in its caches, and writes it there past them
//! ([`PoolCache::copy_into`]). That is worth its while for what reads the payload.
//!
//! Who hands packets over does not know their flows. It knows by which interface they come, so from
//! which zone, and what services rules may give to flows of that zone in that direction
//! ([`Plan::reads_from`]).

use std::sync::Arc;

use linerate_core::arch::CACHE_PAIR;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache};
use linerate_dispatch::Owner;
use linerate_routing::model::InterfaceId;

use super::handed::Handed;
use crate::policy::Policy;
use crate::services::Plan;

/// The longest frame that `auto` never copies, in bytes: what it carries comes with its headers,
/// since processors fetch lines in pairs.
const SHORT_BYTES: usize = CACHE_PAIR;

/// `[dispatch] across_sockets`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A copy where a service may read the payload, else a pointer.
    #[default]
    Auto,
    /// Always a pointer.
    Pointer,
    /// Always a copy.
    Copy,
}

impl By {
    pub(crate) const ALL: [(&str, Self); 3] = [
        ("auto", Self::Auto),
        ("pointer", Self::Pointer),
        ("copy", Self::Copy),
    ];
}

/// Whose payload services may read.
#[derive(Clone, Debug)]
pub struct Readers {
    /// Which zone an interface is in.
    pub policy: Arc<Policy>,
    /// What is read of packets from a zone.
    pub plan: Arc<Plan>,
}

impl Readers {
    fn read(&self, interface: u16) -> bool {
        let zone = self.policy.zone(InterfaceId(interface));
        self.plan.reads_from(zone)
    }
}

/// Packets that one worker has handed to owners on other nodes, but for those that were in memory
/// of the owner's node as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By pointer.
    pub by_pointer: u64,
    /// As copies.
    pub by_copy: u64,
    /// Of those by pointer: they were to be copied, but the other node had no free slot for them.
    pub refused: u64,
}

/// The part of a worker with owners on other nodes.
#[derive(Debug)]
pub struct Across {
    by: By,
    /// By owner: the pools of its node; `None`: it is on this worker's.
    far: Vec<Option<Vec<Pool>>>,
    readers: Readers,
    counts: Counts,
}

impl Across {
    /// For owners whose pools are these; `None` where all are on this worker's node.
    pub fn new(by: By, far: &[Option<Vec<Pool>>], readers: Readers) -> Option<Box<Self>> {
        let is_any = far.iter().any(Option::is_some);
        is_any.then(|| {
            Box::new(Self {
                by,
                far: far.to_vec(),
                readers,
                counts: Counts::default(),
            })
        })
    }

    /// Goes by other rules and services.
    pub fn install(&mut self, readers: Readers) {
        self.readers = readers;
    }

    /// What it has handed over.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Readies packets of one interface for their owner.
    #[cold]
    pub fn ready(
        &mut self,
        owner: Owner,
        interface: u16,
        packets: &mut Burst,
        cache: &mut PoolCache,
    ) {
        let Some(Some(pools)) = self.far.get(usize::from(owner)) else {
            return;
        };
        let least = match self.by {
            By::Pointer => usize::MAX,
            By::Copy => 0,
            By::Auto if self.readers.read(interface) => SHORT_BYTES + 1,
            By::Auto => usize::MAX,
        };
        // What lies behind a packet that has turned would not come with a copy.
        let is_wanted =
            |packet: &Packet| packet.len() >= least && !packet.user::<Handed>().has_original;
        let moved = cache.copy_into(pools, packets, is_wanted);
        self.counts.by_pointer += packets.len() as u64 - moved.copied - moved.there;
        self.counts.by_copy += moved.copied;
        self.counts.refused += moved.refused;
    }
}
