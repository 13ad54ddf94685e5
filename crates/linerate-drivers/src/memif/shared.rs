//! What the workers of a port, its control thread and its owner share.

use super::gauge::Gauge;
use super::receive::{Fault, RxRing};
use super::ring::Regions;
use super::transmit::TxRing;
use crate::peer::gate::Gate;
use crate::peer::kick::{self, Notify, Wakeups};
use crate::peer::violations::{Violation, Violations};
use linerate_core::port::RingFill;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A started port.
pub(super) struct Shared {
    pub(super) rx: Vec<Gate<Option<RxRing>>>,
    /// By ring, which are at least as many as transmit queues.
    pub(super) tx: Vec<Gate<Option<TxRing>>>,
    /// Transmit rings in use. A peer may have fewer than we have queues; then some share one.
    pub(super) tx_rings: AtomicUsize,
    /// One for each receive queue.
    pub(super) wakeups: Vec<Wakeups>,
    pub(super) notify: Notify,
    pub(super) violations: Arc<Violations>,
    /// Wakes the control thread.
    pub(super) bell: OwnedFd,
    pub(super) stop: AtomicBool,
    fault: Mutex<Option<Fault>>,
    /// By direction and number, for those who look: no worker takes this.
    gauges: Mutex<BTreeMap<(&'static str, usize), Gauge>>,
    state: Mutex<State>,
}

/// How the connection is, for people.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Why there is none; `None` while there is one.
    pub(super) down: Option<String>,
    pub(super) peer: Option<Peer>,
}

/// Who is at the other end, and what was agreed on.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// The program, and its interface.
    pub(super) name: String,
    pub(super) interface: String,
    /// `process 4711 of user 1000`.
    pub(super) process: String,
    /// Rings from client to server, and from server to client.
    pub(super) rings: (usize, usize),
    pub(super) ring_size: u16,
    pub(super) regions: usize,
    pub(super) sealed: bool,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(
        (rx, tx): (usize, usize),
        notify: Notify,
        violations: Arc<Violations>,
    ) -> std::io::Result<Self> {
        let wakeups: std::io::Result<Vec<Wakeups>> = (0..rx).map(|_| Wakeups::new()).collect();
        Ok(Self {
            rx: (0..rx).map(|_| Gate::new(None)).collect(),
            tx: (0..tx).map(|_| Gate::new(None)).collect(),
            tx_rings: AtomicUsize::new(0),
            wakeups: wakeups?,
            notify,
            violations,
            bell: kick::new_eventfd()?,
            stop: AtomicBool::new(false),
            fault: Mutex::new(None),
            gauges: Mutex::default(),
            state: Mutex::new(State {
                down: Some("it has just been started".into()),
                peer: None,
            }),
        })
    }

    pub(super) fn state(&self) -> State {
        held(&self.state).clone()
    }

    pub(super) fn set_down(&self, reason: String) {
        *held(&self.state) = State {
            down: Some(reason),
            peer: None,
        };
    }

    pub(super) fn set_up(&self, peer: Peer) {
        *held(&self.state) = State {
            down: None,
            peer: Some(peer),
        };
    }

    /// For a worker: what its peer did. The control thread disconnects.
    #[cold]
    pub(super) fn report(&self, fault: Fault) {
        held(&self.fault).get_or_insert(fault);
        kick::ring(&self.bell);
    }

    /// For the control thread.
    pub(super) fn take_fault(&self, regions: &Regions) -> Option<Fault> {
        let fault = held(&self.fault).take();
        // What a worker saw then were zeros.
        if regions.is_lost() {
            let detail = "a file shrank under its mapping".to_owned();
            return Some((Violation::MemoryLost, detail));
        }
        fault
    }

    /// Takes all rings from the workers: after this no worker has anything of the peer's.
    pub(super) fn take_rings(&self) {
        self.tx_rings.store(0, Ordering::Relaxed);
        for gate in &self.rx {
            drop(gate.change().take());
        }
        for gate in &self.tx {
            drop(gate.change().take());
        }
        held(&self.gauges).clear();
        for wakeups in &self.wakeups {
            wakeups.unwatch();
        }
        held(&self.fault).take();
    }

    /// Gives a worker the ring that it receives from, after `first` inside the gate.
    pub(super) fn put_rx(&self, index: usize, ring: RxRing, first: impl FnOnce(&mut RxRing)) {
        let gauge = ring.gauge();
        first(self.rx[index].change().insert(ring));
        held(&self.gauges).insert(("receive", index), gauge);
    }

    /// Gives workers a ring that they send to.
    pub(super) fn put_tx(&self, index: usize, ring: TxRing) {
        let gauge = ring.gauge();
        *self.tx[index].change() = Some(ring);
        held(&self.gauges).insert(("transmit", index), gauge);
    }

    /// How full the rings are.
    pub(super) fn fill(&self) -> Vec<RingFill> {
        let gauges = held(&self.gauges);
        let fill = |(&(direction, queue), gauge): (&(_, usize), &Gauge)| RingFill {
            direction,
            queue: queue as u16,
            waiting: gauge.waiting().into(),
            size: gauge.size().into(),
        };
        gauges.iter().map(fill).collect()
    }

    /// Descriptors of each ring; 0 without one.
    pub(super) fn ring_size(&self) -> u16 {
        held(&self.gauges).values().next().map_or(0, Gauge::size)
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
