//! The workers, as control sees them: what they are asked between two bursts.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use linerate_core::packet::{Pool, Pools};
use linerate_core::run::{Stage as _, WorkerHandle};

use super::balance::Held;
use linerate_appliance::runtime::Running;
use linerate_routing::plane::counters::{Counters, Traffic};
use linerate_routing::plane::hits::Hits;
use linerate_routing::rib::Rib;
use linerate_routing::worker::RouterStage;

/// Workers at work, and what was last heard of them.
pub(super) struct Workers {
    /// They and their ports.
    pub(super) running: Running<RouterStage>,
    /// Of each worker, for this generation of the settings.
    pub(super) counters: Vec<Arc<Counters>>,
    /// What waits in them.
    pub(super) held: Held,
    /// The last ticket that a traced packet was given.
    pub(super) tickets: Arc<AtomicU64>,
}

impl Workers {
    pub(super) fn new(running: Running<RouterStage>) -> Self {
        Self {
            running,
            counters: Vec::new(),
            held: Held::default(),
            tickets: Arc::default(),
        }
    }

    /// The slow one.
    pub(super) fn slow(&self) -> &WorkerHandle<RouterStage> {
        let last = self.running.handles().last();
        last.expect("the slow worker is there as long as the others")
    }

    /// Pools of the slow one; none where it has ended.
    pub(super) fn slow_pools(&self) -> Pools {
        let pools = self
            .slow()
            .call(|worker| worker.egress.cache.pools().cloned().collect());
        Pools::new(pools.unwrap_or_else(|_| Vec::<Pool>::new()))
    }

    /// Has each look at the newest tables: a sleeping one holds the copy that is to be written.
    pub(super) fn catch_up(&self) {
        for worker in self.running.handles() {
            // One that has ended holds no table.
            let _ = worker.call(|worker| match &mut worker.stage {
                RouterStage::Fast(fast) => fast.catch_up(),
                RouterStage::Slow(slow) => slow.catch_up(),
            });
        }
    }

    /// Has each look into the forwarding tables that there are now.
    pub(super) fn exchange_tables(&self, rib: &Rib) {
        for worker in self.running.handles() {
            let (fib4, fib6, _) = rib.readers();
            // One that has ended looks nothing up. The tables before are freed here.
            let old = worker.call(move |worker| match &mut worker.stage {
                RouterStage::Fast(fast) => fast.exchange(fib4, fib6),
                RouterStage::Slow(slow) => slow.exchange(fib4, fib6),
            });
            drop(old);
        }
    }

    /// Learns what waits in them. Returns what access lists have met since the last time.
    pub(super) fn ask(&mut self) -> Vec<Hits> {
        let mut held = Held::default();
        let mut hits: Vec<Hits> = Vec::new();
        for worker in self.running.handles() {
            let asked = worker.call(|worker| match &mut worker.stage {
                RouterStage::Fast(fast) => Ok((fast.take_hits(), fast.held_packets())),
                RouterStage::Slow(slow) => Err(slow.held_packets()),
            });
            // One that has ended holds nothing that it would ever let go of.
            match asked {
                Ok(Ok((hit, fragments))) => {
                    hits.push(hit);
                    held.fragments += fragments;
                }
                Ok(Err(neighbour)) => held.neighbour += neighbour,
                Err(_) => {}
            }
        }
        self.held = held;
        hits
    }

    /// Finds the counters of each.
    pub(super) fn learn_counters(&mut self) {
        let counters = self.running.handles().filter_map(|worker| {
            let counters = worker.call(|worker| match &mut worker.stage {
                RouterStage::Fast(fast) => fast.counters(),
                RouterStage::Slow(slow) => slow.counters(),
            });
            counters.ok()
        });
        self.counters = counters.collect();
    }

    /// What all have counted of an interface.
    pub(super) fn traffic(&self, name: &str, read: impl Fn(&Traffic) -> u64) -> u64 {
        let of = self.counters.iter().filter_map(|worker| worker.of(name));
        of.map(read).sum()
    }
}
