//! The common part of forwarding apps around their stages: open the ports, make pools for them,
//! start them, place workers by the plan, run, and stop everything without losing packets under
//! way.
//!
//! Read [`wiring`] for the assignment of queues. [`OpenPorts`] has opened ports; [`Running`] has
//! running workers, whose ports `change` adds and removes and whose packets `books` accounts for;
//! [`watch()`] shows statistics until the end. [`forward()`] does all of it in order.

mod args;
mod books;
mod change;
pub mod claim;
mod forward;
mod observe;
mod pools;
mod readings;
mod separation;
mod show;
mod signals;
#[cfg(test)]
mod tests;
mod watch;
pub mod wiring;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use linerate_core::env::{Clock, Lcore, LcoreHandle, Placement, Role};
use linerate_core::packet::{Pool, PoolCache, Pools};
use linerate_core::port::{Port, PortConfig, PortInfo, PortStats, Queues};
use linerate_core::ring::spsc;
use linerate_core::run::ledger::Balance;
use linerate_core::run::{
    ByRole, Egress, Idle, Inlet, Stage, TxPath, Worker, WorkerHandle, WorkerStats,
};
use linerate_drivers::Drivers;
use linerate_tables::rss::FrameHash;

use crate::error::Error;
use claim::Claim;
use pools::near;
use wiring::{PortShape, Share};

pub use args::{PlanArgs, Run, RunArgs, RunFile, RunKeys};
pub use forward::{forward, places, source};
pub use observe::{LcoreRow, Reading, Sample};
pub use readings::Readings;
pub use separation::Separation;
pub use show::planned;
pub use signals::{Interrupts, Signals};
pub use watch::{WatchOptions, watch};

/// Packets that a ring between two workers holds.
const HAND_OFF: usize = 1024;
/// Inlets from rings are numbered from here, apart from those of receive queues.
const HAND_OFF_INLET: u16 = 1 << 15;
/// How long packets between two workers may take to leave at the end.
const DRAIN: Duration = Duration::from_secs(1);

/// One port, opened.
pub struct OpenPort {
    /// Its number for workers.
    pub number: u16,
    /// Its name for users.
    pub name: String,
    /// The port itself.
    pub port: Box<dyn Port>,
    /// Facts from its driver.
    pub info: PortInfo,
    /// The interface that it needs exclusively, and the claim to it while workers forward by it.
    wants: Option<String>,
    claim: Option<Arc<Claim>>,
    /// Whether its [warning](Port::warning) has been printed.
    pub is_warned: bool,
}

impl OpenPort {
    /// Prints a port's warning once, when it occurs.
    fn warn(&mut self) {
        if !self.is_warned
            && let Some(text) = self.port.warning()
        {
            self.is_warned = true;
            eprintln!("warning: port {}: {text}; packets go on", self.name);
        }
    }
}

/// How workers are to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Receive queues of each port.
    pub queues: u16,
    /// Largest burst.
    pub burst: usize,
    /// Slots of the main pool; chosen by the ports where absent.
    pub pool_slots: Option<u32>,
    /// Whether idle lcores sleep.
    pub sleep: bool,
    /// Whether idle lcores never yield their CPU: for exclusive CPUs.
    pub spin: bool,
}

impl Options {
    /// How the worker of a share idles.
    fn idle(&self, share: &Share) -> Idle {
        let ladder = Idle {
            sleep: self.sleep || share.role == Role::Bg,
            ..Idle::default()
        };
        match self.spin && share.role != Role::Bg {
            true => Idle {
                polls: u32::MAX,
                ..ladder
            },
            false => ladder,
        }
    }
}

/// Drivers whose ring ports can play the NICs of
/// [`PROFILES`](linerate_tables::rss::PROFILES).
pub fn drivers() -> Drivers {
    Drivers::new().playing_nics(FrameHash::make)
}

/// Opened ports, and the drivers that know the rings among them.
pub struct OpenPorts {
    /// The ports, by number.
    pub ports: Vec<OpenPort>,
    /// The clock of all workers.
    pub clock: Clock,
    /// Whether there are slots of 64 KiB even if no port receives into them.
    needs_large: bool,
    /// NUMA nodes of workers that packets are copied for.
    copied_to: Vec<u32>,
    /// Where there are such: by place of the port, the node of the worker that polls it.
    polled_on: Vec<Option<u32>>,
}

impl OpenPorts {
    /// Opens ports given as name and specification. The first that fails closes the others.
    pub fn open(specs: &[(Option<String>, String)], clock: Clock) -> Result<Self, Error> {
        Self::open_among(&mut drivers(), specs, clock)
    }

    /// As [`OpenPorts::open`], with `drivers` that know the other ends of its rings.
    pub fn open_among(
        drivers: &mut Drivers,
        specs: &[(Option<String>, String)],
        clock: Clock,
    ) -> Result<Self, Error> {
        let mut ports = Vec::with_capacity(specs.len());
        for (number, (name, spec)) in (0..).zip(specs) {
            let port = drivers.open(spec)?;
            let info = port.info();
            let name = name.clone().unwrap_or_else(|| info.name.clone());
            ports.push(OpenPort {
                number,
                name,
                port,
                info,
                wants: claim::wanted(spec),
                claim: None,
                is_warned: false,
            });
        }
        Ok(Self {
            ports,
            clock,
            needs_large: false,
            copied_to: Vec::new(),
            polled_on: Vec::new(),
        })
    }

    /// Adds large slots, for reassembled packets that are longer than any received one.
    pub fn with_large_slots(mut self) -> Self {
        self.needs_large = true;
        self
    }

    /// Has slots on these NUMA nodes, also where no port is: one of each worker that packets are
    /// copied for ([`PoolCache::copy_into`]). Ports that are on no node receive into slots of the
    /// node that they are polled on.
    pub fn with_slots_on(mut self, nodes: Vec<u32>) -> Self {
        self.copied_to = nodes;
        self
    }

    /// Starts ports and workers. `outs` says for each port where its packets go, `lcores` where
    /// workers may run, `stage` makes the pipeline of each.
    pub fn start<S: Stage + 'static>(
        self,
        outs: &[u16],
        lcores: &[&Placement],
        options: &Options,
        stage: impl Fn(&mut Egress) -> S,
    ) -> Result<Running<S>, Error> {
        let outs: Vec<Vec<u16>> = outs.iter().map(|&out| vec![out]).collect();
        let shares = wiring::spread(&self.shapes(outs, options), lcores.len());
        self.start_shares(shares, lcores, options, |_, egress| stage(egress))
    }

    /// Starts ports and workers of two kinds, by the roles of `lcores`: a pipeline of `io` on each
    /// that polls ports, and one of `eu` behind rings from those, each given its place among its
    /// like. An io pipeline sends to the k-th eu one by the k-th number of [`wiring::eus`], and
    /// both send to any port. There [`Burst::port`](linerate_core::packet::Burst) is that number:
    /// the io pipeline writes the input port for the eu pipeline into the packet
    /// ([`Packet::set_port`](linerate_core::packet::Packet::set_port)).
    ///
    /// # Panics
    /// Without an lcore of either role.
    pub fn start_by_role<I: Stage + 'static, E: Stage + 'static>(
        self,
        lcores: &[Placement],
        options: &Options,
        mut io: impl FnMut(usize, &mut Egress) -> I,
        mut eu: impl FnMut(usize, &mut Egress) -> E,
    ) -> Result<Running<ByRole<I, E>>, Error> {
        let of = |role| lcores.iter().filter(move |lcore| lcore.role == role);
        let (io_lcores, eu_lcores) = (of(Role::Io).count(), of(Role::Eu).count());
        assert!(io_lcores > 0 && eu_lcores > 0, "lcores of both roles");
        let shapes = self.shapes(vec![Vec::new(); self.ports.len()], options);
        let shares = wiring::by_role(&shapes, io_lcores, eu_lcores);
        let polling = shares.len() - eu_lcores;
        let lcores: Vec<&Placement> = of(Role::Io).take(polling).chain(of(Role::Eu)).collect();
        self.start_shares(shares, &lcores, options, |index, egress| {
            match index.checked_sub(polling) {
                None => ByRole::Io(io(index, egress)),
                Some(index) => ByRole::Eu(eu(index, egress)),
            }
        })
    }

    /// What there is to spread: `outs` says for each port where its packets go.
    fn shapes(&self, outs: Vec<Vec<u16>>, options: &Options) -> Vec<PortShape> {
        let shape = |(outs, port): (Vec<u16>, &OpenPort)| PortShape {
            rx_queues: options.queues,
            max_tx_queues: port.info.max_tx_queues,
            outs,
        };
        outs.into_iter().zip(&self.ports).map(shape).collect()
    }

    /// Starts ports and workers, one worker for each share, on the lcore of the same place. `stage`
    /// makes the pipeline of each, given its place. The shares determine the queues, not
    /// [`Options::queues`].
    ///
    /// # Panics
    /// If there are more shares than lcores.
    pub fn start_shares<S: Stage + 'static>(
        mut self,
        shares: Vec<Share>,
        lcores: &[&Placement],
        options: &Options,
        mut stage: impl FnMut(usize, &mut Egress) -> S,
    ) -> Result<Running<S>, Error> {
        assert!(shares.len() <= lcores.len(), "an lcore for each share");
        self.claim(&[])?;
        if !self.copied_to.is_empty() {
            self.polled_on = polled_on(&shares, lcores, self.ports.len());
        }
        let polled = |share: &Share| share.polls.len() as u32;
        let pools = self.pools(shares.iter().map(polled).sum(), options.pool_slots)?;
        let configs: Vec<PortConfig> = (0..self.ports.len() as u16)
            .map(|index| PortConfig {
                index,
                rx_queues: wiring::rx_queues(&shares, index).max(1),
                tx_queues: wiring::tx_queues(&shares, index).max(1),
            })
            .collect();
        let mut queues = self.start_ports(&configs, &pools)?;
        let mut workers = Vec::with_capacity(shares.len());
        for (index, (lcore, share)) in lcores.iter().zip(&shares).enumerate() {
            let mut egress = Egress::new(PoolCache::new(near(&pools, Some(lcore.node)).as_slice()));
            let stage = stage(index, &mut egress);
            let (mut worker, handle) = Worker::new(&lcore.name, stage, egress, self.clock)?;
            worker.set_burst(options.burst);
            worker.set_idle(options.idle(share));
            workers.push((worker, handle));
        }
        hand_out(&shares, &mut queues, &mut workers);
        for (share, (worker, _)) in shares.iter().zip(&mut workers) {
            for (number, name) in self.paths(share, lcores) {
                worker.egress.name_outlet(number, name);
            }
        }
        let mut running = Running {
            opened: self,
            added: change::Added::default(),
            gone: PortStats::default(),
            workers: Vec::with_capacity(shares.len()),
            memory: pools.iter().map(Pool::describe).collect(),
            pools,
            watched: AtomicU64::new(0),
        };
        for (((worker, handle), lcore), share) in workers.into_iter().zip(lcores).zip(shares) {
            let thread = Lcore::spawn(&lcore.name, Some(lcore.cpu), move || worker.run(false))?;
            running.workers.push(Member {
                name: lcore.name.clone(),
                cpu: Some(lcore.cpu),
                handle,
                share,
                lcore: Some(thread),
            });
        }
        Ok(running)
    }

    /// Claims the exclusive interfaces of these ports, together with `others` of this process: a
    /// port that another one on its interface replaces keeps the claim until then.
    fn claim(&mut self, others: &[OpenPort]) -> Result<(), Error> {
        for open in &mut self.ports {
            let Some(interface) = &open.wants else {
                continue;
            };
            let mut held = others.iter().filter_map(|other| other.claim.as_ref());
            let held = held.find(|claim| claim.interface == *interface).cloned();
            open.claim = Some(match held {
                Some(held) => held,
                None => Arc::new(Claim::take(interface, &open.info.name)?),
            });
        }
        Ok(())
    }

    /// Names of the outlets of a share: those of ports, and for rings those of the lcores that they
    /// lead to.
    fn paths<'a>(
        &'a self,
        share: &'a Share,
        lcores: &'a [&Placement],
    ) -> impl Iterator<Item = (u16, &'a str)> {
        let sends = share.sends.iter().map(|&(port, _)| port);
        let hand_offs = share.hand_offs.iter().map(|&(port, _)| port);
        let named = |port: u16| {
            let open = self.ports.get(usize::from(port))?;
            Some((port, open.name.as_str()))
        };
        let rings = share.rings.iter();
        let rings = rings.map(|&(number, to)| (number, lcores[to].name.as_str()));
        sends.chain(hand_offs).filter_map(named).chain(rings)
    }

    /// Starts all ports, each by its own of `configs`, or none. Each receives into the pool of its
    /// NUMA node.
    pub fn start_ports(
        &mut self,
        configs: &[PortConfig],
        pools: &Pools,
    ) -> Result<Vec<Queues>, Error> {
        let nodes: Vec<_> = (0..self.ports.len()).map(|at| self.node(at)).collect();
        let mut started = Vec::with_capacity(self.ports.len());
        for ((config, open), node) in configs.iter().zip(&mut self.ports).zip(nodes) {
            match open.port.start(config, &near(pools, node)) {
                Ok(queues) => started.push(queues),
                Err(error) => {
                    drop(started);
                    self.stop_ports();
                    return Err(error.into());
                }
            }
            open.info = open.port.info();
        }
        Ok(started)
    }

    /// The NUMA node whose slots a port receives into, by its place.
    fn node(&self, at: usize) -> Option<u32> {
        let own = self.ports[at].info.numa_node;
        own.or_else(|| self.polled_on.get(at).copied().flatten())
    }

    /// Stops all ports; returns what went wrong.
    pub fn stop_ports(&mut self) -> Vec<Error> {
        let stop = |open: &mut OpenPort| open.port.stop().err().map(Error::from);
        self.ports.iter_mut().filter_map(stop).collect()
    }
}

/// By port: the NUMA node of the worker that polls its first queue.
fn polled_on(shares: &[Share], lcores: &[&Placement], ports: usize) -> Vec<Option<u32>> {
    let on = |port: usize| {
        let polls = |share: &Share| share.polls.iter().any(|&(of, _)| usize::from(of) == port);
        let mut placed = shares.iter().zip(lcores);
        placed
            .find(|(share, _)| polls(share))
            .map(|(_, lcore)| lcore.node)
    };
    (0..ports).map(on).collect()
}

/// Gives each worker its queues, and rings to the queues of others.
fn hand_out<S: Stage>(
    shares: &[Share],
    queues: &mut [Queues],
    workers: &mut [(Worker<S>, WorkerHandle<S>)],
) {
    let mut rx: Vec<Vec<_>> = queues
        .iter_mut()
        .map(|queues| queues.rx.drain(..).map(Some).collect())
        .collect();
    let mut tx: Vec<Vec<_>> = queues
        .iter_mut()
        .map(|queues| queues.tx.drain(..).map(Some).collect())
        .collect();
    for (index, share) in shares.iter().enumerate() {
        for &(port, queue) in &share.polls {
            if let Some(taken) = rx[usize::from(port)]
                .get_mut(usize::from(queue))
                .and_then(Option::take)
            {
                workers[index].0.add_inlet(Inlet::queue(port, queue, taken));
            }
        }
        for &(port, queue) in &share.sends {
            if let Some(taken) = tx[usize::from(port)]
                .get_mut(usize::from(queue))
                .and_then(Option::take)
            {
                workers[index]
                    .0
                    .set_outlet(port, Some(TxPath::Queue(taken)));
            }
        }
        let number = HAND_OFF_INLET + index as u16;
        let hand_offs = share
            .hand_offs
            .iter()
            .map(|&(port, owner)| (port, owner, true));
        let rings = share.rings.iter().map(|&(port, to)| (port, to, false));
        for (port, to, is_hand_off) in hand_offs.chain(rings) {
            let (putter, taker) = spsc::ring(HAND_OFF);
            let doorbell = workers[to].1.doorbell().clone();
            workers[to].0.add_inlet(match is_hand_off {
                true => Inlet::hand_off(port, number, taker),
                false => Inlet::ring(port, number, taker),
            });
            workers[index]
                .0
                .set_outlet(port, Some(TxPath::Ring(putter, doorbell)));
        }
    }
}

/// One worker at work.
struct Member<S> {
    name: String,
    cpu: Option<u32>,
    handle: WorkerHandle<S>,
    share: Share,
    /// `None` after it is joined.
    lcore: Option<LcoreHandle<Worker<S>>>,
}

/// Started ports and workers at work. Dropping it stops both.
pub struct Running<S: Stage + 'static> {
    opened: OpenPorts,
    workers: Vec<Member<S>>,
    added: change::Added,
    /// Counts of removed ports.
    gone: PortStats,
    /// Sizes and pages of the pools, one line each.
    pub memory: Vec<String>,
    /// The pools of the start.
    pools: Pools,
    /// How often taps were set.
    watched: AtomicU64,
}

impl<S: Stage + 'static> Running<S> {
    /// All ports.
    pub fn ports(&self) -> &[OpenPort] {
        &self.opened.ports
    }

    /// Reads each port's facts again. Returns the old facts of ports whose MAC address or longest
    /// frame changed, by number. The facts of a missing device stay.
    pub fn look_again(&mut self) -> Vec<(u16, PortInfo)> {
        let mut changed = Vec::new();
        for open in &mut self.opened.ports {
            let now = open.port.info();
            let is_gone = now.mac.is_none() && open.info.mac.is_some();
            let facts = |info: &PortInfo| (info.mac, info.max_frame_bytes);
            if !is_gone && facts(&now) != facts(&open.info) {
                changed.push((open.number, std::mem::replace(&mut open.info, now)));
            }
        }
        changed
    }

    /// Prints warnings of ports since the last call.
    pub fn warn(&mut self) {
        self.opened.ports.iter_mut().for_each(OpenPort::warn);
    }

    /// Counts of all ports, also removed ones.
    pub fn stats(&self) -> PortStats {
        let mut all = self.gone.clone();
        for open in &self.opened.ports {
            all.merge(&open.port.stats());
        }
        all
    }

    /// The clock of all ticks.
    pub fn clock(&self) -> Clock {
        self.opened.clock
    }

    /// Name, CPU and counters of each worker.
    pub fn lcores(&self) -> impl Iterator<Item = (&str, Option<u32>, &Arc<WorkerStats>)> {
        self.workers
            .iter()
            .map(|worker| (worker.name.as_str(), worker.cpu, worker.handle.stats()))
    }

    /// Handles of the workers, in the order of the shares.
    pub fn handles(&self) -> impl Iterator<Item = &WorkerHandle<S>> {
        self.workers.iter().map(|worker| &worker.handle)
    }

    /// Whether no worker expects another packet: its input files are at their ends, or it has
    /// panicked.
    pub fn is_ended(&self) -> bool {
        let ended = |worker: &Member<S>| worker.handle.call(Worker::inputs_ended).unwrap_or(true);
        self.workers.iter().all(ended)
    }

    /// Ends in order: stop receiving, forward packets under way, join workers, take the ledger,
    /// stop ports. Returns the last counters, the ledger, and errors.
    pub fn stop(mut self) -> (Sample, Balance, Vec<Error>) {
        let before = Sample::take(&self);
        let (balance, mut errors) = self.stop_workers();
        let sample = Sample::take(&self).with_links_of(before);
        errors.extend(self.opened.stop_ports());
        self.opened.ports.clear();
        (sample, balance, errors)
    }

    fn stop_workers(&mut self) -> (Balance, Vec<Error>) {
        self.added.forget_queues();
        let mut inlets = Vec::new();
        for worker in &self.workers {
            for &(port, queue) in &worker.share.polls {
                let take = move |worker: &mut Worker<S>| worker.take_inlet(port, queue);
                if let Ok(Some(inlet)) = worker.handle.call(take) {
                    inlets.push((worker.name.clone(), inlet));
                }
            }
        }
        // Packets that all workers have handed over, and taken from each other. An ended worker
        // does neither any more.
        let sums = || {
            let calls = self.workers.iter();
            let calls = calls.map(|worker| worker.handle.call(|worker| worker.handed_and_taken()));
            calls
                .flatten()
                .fold((0, 0), |(handed, taken), of| (handed + of.0, taken + of.1))
        };
        let deadline = Instant::now() + DRAIN;
        let mut taken_before = None;
        while Instant::now() < deadline {
            let (handed, taken) = sums();
            if taken_before == Some(handed) {
                break;
            }
            taken_before = Some(taken);
            if taken != handed {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        self.workers.iter().for_each(|worker| worker.handle.stop());
        let lcores = self
            .workers
            .iter_mut()
            .filter_map(|worker| worker.lcore.take());
        let outcomes: Vec<_> = lcores.map(LcoreHandle::join).collect();
        let (mut stopped, mut errors) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            match outcome {
                Ok(worker) => stopped.push(worker),
                Err(error) => errors.push(error.into()),
            }
        }
        let balance = self.balance_of(&mut stopped, &inlets, errors.is_empty());
        (balance, errors)
    }
}

impl<S: Stage + 'static> Drop for Running<S> {
    fn drop(&mut self) {
        self.stop_workers();
        self.opened.stop_ports();
    }
}
