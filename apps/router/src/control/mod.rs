//! The control thread: it alone changes anything while the router runs.
//!
//! Whoever wants something sends a [`Job`]: clients of the socket, signals, the slow worker, the
//! kernel and FRR. [`Control::run`] takes them one after the other, commits route changes in
//! batches, and ticks. Workers are only spoken to between two bursts ([`stage`]).
//!
//! `start` brings a router up, `reload` and `ports` exchange its configuration, `show` and
//! `metrics` say how it is, `traces` what becomes of packets; `embedded` is a router inside of
//! another program.

mod acls;
mod balance;
mod cleared;
mod difference;
mod embedded;
mod generation;
mod handle;
mod host_interfaces;
mod kernel;
mod metrics;
mod notify;
mod ports;
mod reload;
mod report;
mod server;
mod show;
mod start;
mod sysctl_guard;
#[cfg(test)]
mod tests;
mod traces;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use linerate_core::packet::{Pool, Pools};
use linerate_core::run::{Stage as _, WorkerHandle};
use linerate_drivers::Opener;
use linerate_wire::MacAddr;
use serde_json::{Value, json};

use super::config::Config;
use acls::AclLogger;
use balance::Held;
use cleared::Cleared;
use host_interfaces::{HostInterfaces, Wanted};
use kernel::Kernel;
use linerate_appliance::control::mailbox::Job;
use linerate_appliance::error::Error;
use linerate_appliance::privilege::{self, Privileged};
use linerate_appliance::runtime::{Running, Sample};
use linerate_appliance::socket::Problem;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::counters::{Counters, Traffic};
use linerate_routing::plane::hits::Hits;
use linerate_routing::plane::settings::Settings;
use linerate_routing::plane::{self};
use linerate_routing::rib::{Progress, Rib};
use linerate_routing::worker::{RouterStage, on_slow};
use notify::Notify;
use sysctl_guard::SysctlGuard;

pub use embedded::Embedded;
pub(crate) use start::{Run, place, start};

/// Between two looks at links, and two ticks of the workers' timers.
const TICK: Duration = Duration::from_millis(100);
/// Longest time that a route change waits for others to be published with it.
const BATCH: Duration = Duration::from_millis(10);
/// Jobs done before changes are published in any case.
const BATCH_JOBS: usize = 1024;
/// Over which time rates are shown.
const RATES: Duration = Duration::from_secs(1);

/// How reloads went.
#[derive(Clone, Copy, Debug, Default)]
struct Reloads {
    done: u64,
    refused: u64,
}

/// A router at work.
pub(crate) struct Control {
    /// The configuration file.
    path: PathBuf,
    config: Config,
    /// Whether the routing table has turned static routes away.
    turned_away: bool,
    settings: Arc<Settings>,
    /// What the workers have: those, or in the midst of a reload the interfaces besides that are to
    /// go.
    installed: Arc<Settings>,
    running: Running<RouterStage>,
    /// Who opens what takes privileges.
    privileged: Arc<dyn Privileged>,
    rib: Rib,
    host_interfaces: HostInterfaces,
    kernel: Option<Kernel>,
    /// Of each worker, for this generation of the settings.
    counters: Vec<Arc<Counters>>,
    /// Whether packets can come and go, by port, as it was last seen.
    links: BTreeMap<u16, bool>,
    began: Instant,
    /// Counters at the beginning, and about a second ago.
    first: Sample,
    previous: Sample,
    sampled: Instant,
    reloads: Reloads,
    /// What waits in the workers.
    held: Held,
    /// What counters were when somebody cleared them.
    cleared: Option<Cleared>,
    /// The last ticket that a traced packet was given.
    tickets: Arc<AtomicU64>,
    /// Whether the kernel or FRR may have more to say.
    fed: bool,
    /// Since when route changes wait for publication.
    dirty: Option<Instant>,
    ticked: Instant,
    /// When the next line of statistics is due, and the sample that it counts from.
    period: Option<(Instant, Sample)>,
    /// When all ends.
    end: Option<Instant>,
    /// Whether the host interfaces' links are held down, so that neighbours turn elsewhere.
    draining: bool,
    /// Whether lines are JSON.
    json: bool,
    /// Who tells of what access lists have met.
    acl_logger: AclLogger,
    /// What the kernel was told about the interfaces of ports.
    sysctl_guard: SysctlGuard,
    /// Who started the router as a service.
    notify: Notify,
}

impl Control {
    /// Does what is asked and what is due, until all ends.
    fn run(&mut self, jobs: &Receiver<Job<Self>>) -> Result<(), Error> {
        loop {
            match jobs.recv_timeout(self.time_left(Instant::now())) {
                Ok(job) => {
                    job(self);
                    // What came together is published together.
                    jobs.try_iter().take(BATCH_JOBS).for_each(|job| job(self));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if self.fed {
                self.fed = self.feed();
            }
            let now = Instant::now();
            if self.dirty.is_some_and(|since| now >= since + BATCH) {
                self.commit();
            }
            if now >= self.ticked + TICK {
                self.ticked = now;
                self.tick(now)?;
            }
            if self.end.is_some_and(|end| now >= end) {
                return Ok(());
            }
        }
    }

    /// How long nothing is due.
    fn time_left(&self, now: Instant) -> Duration {
        if self.fed {
            return Duration::ZERO;
        }
        let dues = [
            Some(self.ticked + TICK),
            self.dirty.map(|since| since + BATCH),
            self.end,
        ];
        let next = dues.into_iter().flatten().min().unwrap_or(now);
        next.saturating_duration_since(now)
    }

    /// Ends as soon as it has done what was asked before.
    fn stop(&mut self) {
        self.end_after(Duration::ZERO);
    }

    /// What the slow worker learned.
    fn neighbour(&mut self, event: plane::Event) {
        match event {
            plane::Event::Neighbour {
                interface,
                address,
                mac,
            } => {
                self.rib.neighbour(InterfaceId(interface), address, mac);
                self.changed();
            }
            plane::Event::Unique { .. } => {}
            plane::Event::Duplicate {
                interface,
                address,
                mac,
            } => {
                let name = self.interface_name(interface);
                eprintln!("warning: {name}: {address} is {mac}'s, too: it is not used here");
            }
            plane::Event::Conflict {
                interface,
                address,
                mac,
            } => {
                let name = self.interface_name(interface);
                eprintln!("warning: {name}: {mac} speaks from {address}, which is ours");
            }
        }
    }

    fn interface_name(&self, number: u16) -> &str {
        let interface = self.settings.interfaces.get(usize::from(number));
        interface.map_or("?", |interface| &interface.name)
    }

    /// Routes have changed: they are published soon.
    fn changed(&mut self) {
        self.dirty.get_or_insert_with(Instant::now);
    }

    /// Publishes what has changed, or a part of it; what is left is still due.
    fn commit(&mut self) {
        match self.rib.commit() {
            Progress::Done => self.dirty = None,
            Progress::More => {}
            Progress::Blocked => self.catch_up(),
        }
    }

    /// Publishes all that has changed.
    fn publish(&mut self) {
        loop {
            match self.rib.commit() {
                Progress::Done => break,
                Progress::More => {}
                Progress::Blocked => self.catch_up(),
            }
        }
        self.dirty = None;
    }

    /// Has every worker look at the newest tables: a sleeping one holds the copy that is to be
    /// written.
    fn catch_up(&self) {
        for worker in self.running.handles() {
            // One that has ended holds no table.
            let _ = worker.call(|worker| match &mut worker.stage {
                RouterStage::Fast(fast) => fast.catch_up(),
                RouterStage::Slow(slow) => slow.catch_up(),
            });
        }
    }

    /// What is due ten times a second.
    fn tick(&mut self, now: Instant) -> Result<(), Error> {
        if !self.privileged.is_alive() {
            return Err(privilege::ended());
        }
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
        self.tell_hits(&hits, now);
        self.look_at_ports(&BTreeSet::new());
        self.running.warn();
        // A time of grace may be over, though nobody says anything.
        self.fed |= self.kernel.is_some();
        if now >= self.sampled + RATES {
            let sample = Sample::take(&self.running);
            // Inputs that ended bring nothing more, so only then are the workers asked.
            let quiet = sample.received() == self.previous.received();
            self.previous = sample;
            self.sampled = now;
            if quiet && self.host_interfaces.is_empty() && self.running.is_ended() {
                self.end_after(Duration::ZERO);
            }
        }
        if let Some((due, since)) = &self.period
            && now >= *due
        {
            let sample = Sample::take(&self.running);
            self.say_period(&sample.since(since))?;
            self.begin_period(now, sample);
        }
        // Every worker has answered.
        self.notify.alive(now);
        Ok(())
    }

    fn begin_period(&mut self, now: Instant, sample: Sample) {
        self.period = self.config.router.period.map(|time| (now + time, sample));
    }

    /// Ends in that time, if not sooner.
    fn end_after(&mut self, time: Duration) {
        let end = Instant::now() + time;
        self.end = Some(self.end.map_or(end, |known| known.min(end)));
    }

    /// Holds the host interfaces' links down, so that routing turns elsewhere, and ends after
    /// `time`.
    fn drain(&mut self, time: Duration) -> Result<Value, Problem> {
        self.draining = true;
        self.make_alike_all();
        self.end_after(time);
        let seconds = time.as_secs_f64();
        Ok(json!({ "text": format!("forwarding for {seconds} s more"), "seconds": seconds }))
    }

    /// The slow worker.
    fn slow(&self) -> &WorkerHandle<RouterStage> {
        let last = self.running.handles().last();
        last.expect("the slow worker is there as long as the others")
    }

    /// What all workers have counted of an interface.
    fn traffic(&self, name: &str, read: impl Fn(&Traffic) -> u64) -> u64 {
        let of = self.counters.iter().filter_map(|worker| worker.of(name));
        of.map(read).sum()
    }

    fn learn_counters(&mut self) {
        let counters = self.running.handles().filter_map(|worker| {
            let counters = worker.call(|worker| match &mut worker.stage {
                RouterStage::Fast(fast) => fast.counters(),
                RouterStage::Slow(slow) => slow.counters(),
            });
            counters.ok()
        });
        self.counters = counters.collect();
    }

    /// Has every worker look into the forwarding tables that there are now.
    fn exchange_tables(&self) {
        for worker in self.running.handles() {
            let (fib4, fib6, _) = self.rib.readers();
            // One that has ended looks nothing up. The tables before are freed here.
            let old = worker.call(move |worker| match &mut worker.stage {
                RouterStage::Fast(fast) => fast.exchange(fib4, fib6),
                RouterStage::Slow(slow) => slow.exchange(fib4, fib6),
            });
            drop(old);
        }
    }

    /// Makes the host interfaces that are not there yet.
    fn start_host_interfaces(&mut self) -> Result<(), Error> {
        let pools: Option<Vec<Pool>> = self
            .slow()
            .call(|worker| worker.egress.cache.pools().cloned().collect())
            .ok();
        let slow = self.slow().clone();
        let opener: Arc<dyn Opener> = self.privileged.clone();
        self.host_interfaces
            .start(&slow, &Pools::new(pools.unwrap_or_default()), &opener)
    }

    /// Takes what the kernel sends by host interfaces that the slow worker has been told of.
    fn hear_host_interfaces(&mut self) {
        let slow = self.slow().clone();
        self.host_interfaces.listen(&slow);
    }

    /// Takes the host interfaces away that nobody wants any more.
    fn retain_host_interfaces(&mut self, wanted: &[Wanted]) -> Vec<Error> {
        let slow = self.slow().clone();
        self.host_interfaces.retain(wanted, &slow)
    }

    /// Looks for the gateways of static routes before a packet asks for them, and pins the
    /// configured neighbours; lets go of those of the `old` configuration.
    fn follow_neighbours(&mut self, old: &Config) {
        let (before, now) = (old.gateways(), self.config.gateways());
        let gone = before.difference(&now).map(|&gateway| (gateway, false));
        let new = now.difference(&before).map(|&gateway| (gateway, true));
        for ((id, address), is_held) in gone.chain(new) {
            on_slow(self.slow(), move |slow, egress| {
                slow.hold(id, address, is_held, egress)
            });
        }
        let new = self.config.neighbours.clone();
        let gone = old.neighbours.iter().filter(|one| {
            let same = |other: &&super::config::NeighbourConfig| {
                (other.interface, other.address) == (one.interface, one.address)
            };
            new.iter().find(same).is_none()
        });
        let mut pins: Vec<(InterfaceId, IpAddr, Option<MacAddr>)> =
            gone.map(|one| (one.interface, one.address, None)).collect();
        for one in &new {
            if !old.neighbours.contains(one) {
                pins.push((one.interface, one.address, Some(one.mac)));
            }
        }
        for (id, address, mac) in pins {
            self.rib.neighbour(id, address, mac);
            let pinned = on_slow(self.slow(), move |slow, egress| {
                slow.pin(id, address, mac, egress)
            });
            if pinned == Some(false) && mac.is_some() {
                eprintln!("warning: there is no room to pin {address}");
            }
        }
    }
}
