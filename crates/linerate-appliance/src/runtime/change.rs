//! Adds and removes ports while workers run.
//!
//! A port is added in two steps: [`Running::add_port`] opens and starts it and gives every worker
//! an outlet to it, which may fail; [`Running::listen`] makes workers poll it, which cannot. In
//! between the caller updates the workers' tables. It is removed in the opposite order, when no
//! worker sends to it any more.
//!
//! The ports of the start receive into a common pool. An added port has pools of its own, which
//! workers are told of; they are kept for the next port like it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_core::env::Role;
use linerate_core::packet::{Pool, Pools};
use linerate_core::port::PortConfig;
use linerate_core::ring::{Push, spsc};
use linerate_core::run::{Inlet, Stage, TxPath, Worker};
use linerate_drivers::Drivers;

use super::wiring::{self, PortShape, Share};
use super::{DRAIN, HAND_OFF, HAND_OFF_INLET, Member, OpenPort, OpenPorts, Options, Running};
use crate::error::Error;

/// What distinguishes pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Needs {
    rx_queues: u16,
    aligned: bool,
    exposed: bool,
    oversized: bool,
    numa_node: Option<u32>,
}

/// State of added ports.
#[derive(Default)]
pub(super) struct Added {
    /// By number of the port.
    pools: BTreeMap<u16, (Needs, Pools)>,
    /// Pools of removed ports.
    spare: Vec<(Needs, Pools)>,
    /// Receive queues that are not polled yet, and the worker for each.
    waiting: Vec<(usize, Inlet)>,
}

impl Added {
    /// Pools of added ports, also removed ones.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Pool> {
        let pools = self.pools.values().chain(&self.spare);
        pools.flat_map(|(_, pools)| pools.iter())
    }

    pub(super) fn forget_queues(&mut self) {
        self.waiting.clear();
    }
}

impl<S: Stage + 'static> Running<S> {
    /// The port of that number.
    pub fn port(&self, number: u16) -> Option<&OpenPort> {
        let mut ports = self.opened.ports.iter();
        ports.find(|open| open.number == number)
    }

    /// Opens a port, which gets a free number, and starts it. Workers can send to it; nothing comes
    /// from it before [`listen`](Self::listen).
    ///
    /// # Errors
    /// The number is that of a ring between workers, the port cannot be opened or started, or there
    /// is no memory; nothing has changed then.
    pub fn add_port(
        &mut self,
        drivers: &mut Drivers,
        (number, name, spec): (u16, &str, &str),
        options: &Options,
    ) -> Result<(), Error> {
        self.check_number(number, name)?;
        let specs = [(Some(name.to_string()), spec.to_string())];
        let mut opened = OpenPorts::open_among(drivers, &specs, self.opened.clock)?;
        opened.claim(&self.opened.ports)?;
        let info = &opened.ports[0].info;
        let shape = PortShape {
            rx_queues: options.queues.min(info.max_rx_queues),
            max_tx_queues: info.max_tx_queues,
            outs: Vec::new(),
        };
        let shares = self.shares(number, &shape);
        let needs = Needs {
            rx_queues: shape.rx_queues,
            aligned: info.aligned_pool,
            exposed: info.exposed_pool,
            oversized: opened.has_oversized(),
            numa_node: info.numa_node,
        };
        let spare = &mut self.added.spare;
        let same = spare.iter().position(|(had, _)| *had == needs);
        let pools = match same {
            Some(same) => spare.swap_remove(same).1,
            None => opened.pools(shape.rx_queues.into(), None)?,
        };
        let config = PortConfig {
            index: number,
            rx_queues: shape.rx_queues.max(1),
            tx_queues: wiring::tx_queues(&shares, number).max(1),
        };
        let started = opened.start_ports(&[config], &pools);
        let queues = match started {
            Ok(mut queues) => queues.pop(),
            Err(error) => {
                self.added.spare.push((needs, pools));
                return Err(error);
            }
        };
        self.added.pools.insert(number, (needs, pools.clone()));
        self.meet(&pools);
        let mut rx: Vec<_> = Vec::new();
        let mut tx: Vec<_> = Vec::new();
        if let Some(queues) = queues {
            rx = queues.rx.into_iter().map(Some).collect();
            tx = queues.tx.into_iter().map(Some).collect();
        }
        for (index, share) in shares.into_iter().enumerate() {
            for &(_, queue) in &share.polls {
                if let Some(queue_of) = rx.get_mut(usize::from(queue)).and_then(Option::take) {
                    let inlet = Inlet::queue(number, queue, queue_of);
                    self.added.waiting.push((index, inlet));
                }
            }
            for &(_, queue) in &share.sends {
                if let Some(queue_of) = tx.get_mut(usize::from(queue)).and_then(Option::take) {
                    self.set_path(index, (number, name), TxPath::Queue(queue_of));
                }
            }
            for &(_, owner) in &share.hand_offs {
                let (putter, taker) = spsc::ring(HAND_OFF);
                let from = HAND_OFF_INLET + index as u16;
                let inlet = Inlet::hand_off(number, from, taker);
                let owner = &self.workers[owner].handle;
                let doorbell = owner.doorbell().clone();
                let _ = owner.call(move |worker| worker.add_inlet(inlet));
                self.set_path(index, (number, name), TxPath::Ring(putter, doorbell));
            }
            let mine = &mut self.workers[index].share;
            mine.polls.extend(share.polls);
            mine.sends.extend(share.sends);
            mine.hand_offs.extend(share.hand_offs);
        }
        for open in &mut opened.ports {
            open.number = number;
        }
        self.opened.ports.append(&mut opened.ports);
        Ok(())
    }

    /// Makes workers poll the added ports.
    pub fn listen(&mut self) {
        for (index, inlet) in self.added.waiting.drain(..) {
            // One that has ended polls nothing.
            let _ = self.workers[index]
                .handle
                .call(move |worker| worker.add_inlet(inlet));
        }
    }

    /// Stops a port that no worker sends to any more. Packets handed to it leave first. Returns an
    /// error, if any.
    pub fn remove_port(&mut self, number: u16) -> Option<Error> {
        let place = self
            .opened
            .ports
            .iter()
            .position(|open| open.number == number)?;
        let is_of = |path: &(u16, u16)| path.0 == number;
        let mut queues = Vec::new();
        self.added.waiting.retain(|(_, inlet)| inlet.port != number);
        for member in &self.workers {
            for &(_, queue) in member.share.polls.iter().filter(|path| is_of(path)) {
                let inlet = member
                    .handle
                    .call(move |worker| worker.take_inlet(number, queue));
                queues.push(inlet.ok().flatten());
            }
        }
        let deadline = Instant::now() + DRAIN;
        for index in 0..self.workers.len() {
            let hand_offs = self.workers[index].share.hand_offs.iter();
            let owner = hand_offs
                .clone()
                .find(|hand_off| hand_off.0 == number)
                .map(|hand_off| hand_off.1);
            let Some(owner) = owner else { continue };
            if let Some(TxPath::Ring(ring, _)) = self.take_path(index, number) {
                while ring.meter().read().occupancy > 0 && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            let from = HAND_OFF_INLET + index as u16;
            let owner = &self.workers[owner].handle;
            let _ = owner.call(move |worker| drop(worker.take_inlet(number, from)));
        }
        let mut paths = Vec::new();
        for index in 0..self.workers.len() {
            paths.push(self.take_path(index, number));
            let share = &mut self.workers[index].share;
            share.polls.retain(|path| !is_of(path));
            share.sends.retain(|path| !is_of(path));
            share.hand_offs.retain(|hand_off| hand_off.0 != number);
        }
        // Before the port stops, since queues must not outlive their device.
        drop((queues, paths));
        let mut open = self.opened.ports.remove(place);
        self.gone.merge(&open.port.stats());
        let stopped = open.port.stop();
        self.added.spare.extend(self.added.pools.remove(&number));
        stopped.err().map(Error::from)
    }

    /// Checks that the number is not that of a ring between workers.
    fn check_number(&self, number: u16, name: &str) -> Result<(), Error> {
        let mut shares = self.workers.iter().map(|member| &member.share);
        let is_of_ring = |share: &Share| share.rings.iter().any(|ring| ring.0 == number);
        match shares.any(is_of_ring) {
            true => Err(Error::Usage {
                problem: format!("port {name}: a ring between workers has the number {number}"),
                fix: "give it a number that neither a port nor a ring has".into(),
            }),
            false => Ok(()),
        }
    }

    /// Assigns the queues of a new port to the running workers, as at the start.
    fn shares(&self, number: u16, shape: &PortShape) -> Vec<Share> {
        let like = |member: &Member<S>| Share {
            role: member.share.role,
            ..Share::default()
        };
        let mut shares: Vec<Share> = self.workers.iter().map(like).collect();
        let workers = shares.iter().enumerate();
        let polling = workers.filter(|(_, share)| share.role == Role::Io);
        let pollers: Vec<usize> = polling.map(|(index, _)| index).collect();
        for queue in 0..shape.rx_queues {
            let turn = usize::from(number) + usize::from(queue);
            let poller = pollers.get(turn % pollers.len().max(1)).copied();
            shares[poller.unwrap_or(0)].polls.push((0, queue));
        }
        wiring::reach(&mut shares, std::slice::from_ref(shape), |_, _| true);
        for share in &mut shares {
            share
                .polls
                .iter_mut()
                .for_each(|hand_off| hand_off.0 = number);
            share
                .sends
                .iter_mut()
                .for_each(|hand_off| hand_off.0 = number);
            share
                .hand_offs
                .iter_mut()
                .for_each(|hand_off| hand_off.0 = number);
        }
        shares
    }

    /// Gives a worker an outlet to a port, with a name.
    fn set_path(&self, index: usize, (port, name): (u16, &str), path: TxPath) {
        let name = name.to_string();
        // One that has ended sends nothing.
        let _ = self.workers[index].handle.call(move |worker| {
            worker.set_outlet(port, Some(path));
            worker.egress.name_outlet(port, &name);
        });
    }

    /// Removes a worker's outlet to a port.
    fn take_path(&self, index: usize, port: u16) -> Option<TxPath> {
        let take = move |worker: &mut Worker<S>| worker.set_outlet(port, None);
        self.workers[index].handle.call(take).ok().flatten()
    }

    /// Makes workers prepare their caches for these pools before a packet needs it.
    fn meet(&self, pools: &Pools) {
        for member in &self.workers {
            let pools: Vec<Pool> = pools.iter().cloned().collect();
            let _ = member.handle.call(move |worker| {
                for pool in &pools {
                    if let Some(packet) = worker.egress.cache.get(pool) {
                        worker.egress.cache.free_one(packet);
                    }
                }
            });
        }
    }
}
