//! The control thread: it alone changes anything while the router runs.
//!
//! Whoever wants something sends a [`Job`]: clients of the socket, signals, the slow worker, the
//! kernel and FRR. [`Control::run`] takes them one after the other, commits route changes in
//! batches, and ticks, by its [`schedule`]. [`workers`] are only spoken to between two bursts.
//!
//! `start` brings a router up, `reload` and `ports` exchange its configuration, `show` and
//! `metrics` say how it is, `traces` what becomes of packets, and `server` who may ask for all
//! that; `embedded` is a router inside of another program.

mod acls;
mod balance;
mod difference;
mod embedded;
mod generation;
mod host_interfaces;
mod kernel;
mod metrics;
mod ports;
mod reload;
mod report;
mod schedule;
mod server;
mod show;
mod start;
mod sysctl_guard;
#[cfg(test)]
mod tests;
mod traces;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use linerate_drivers::Opener;
use linerate_wire::MacAddr;
use serde_json::{Value, json};

use super::config::Config;
use super::extension::Own;
use acls::AclLogger;
use host_interfaces::{HostInterfaces, Wanted};
use kernel::Kernel;
use linerate_appliance::control::cleared::Cleared;
use linerate_appliance::control::mailbox::Job;
use linerate_appliance::error::Error;
use linerate_appliance::notify::Notify;
use linerate_appliance::privilege::{self, Privileged};
use linerate_appliance::runtime::{Readings, Sample};
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::settings::Settings;
use linerate_routing::plane::{self};
use linerate_routing::rib::{Progress, Rib};
use linerate_routing::worker::on_slow;
use schedule::Schedule;
use sysctl_guard::SysctlGuard;
use workers::Workers;

pub use embedded::Embedded;
pub(crate) use start::{Run, explain, place, start};

/// Jobs done before changes are published in any case.
const BATCH_JOBS: usize = 1024;

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
    /// What the appliance has made of its own stanzas, and what of that the workers have.
    built: Option<Own>,
    installed_own: Option<Own>,
    workers: Workers,
    /// Who opens what takes privileges.
    privileged: Arc<dyn Privileged>,
    rib: Rib,
    host_interfaces: HostInterfaces,
    kernel: Option<Kernel>,
    /// Whether packets can come and go, by port, as it was last seen.
    links: BTreeMap<u16, bool>,
    readings: Readings,
    schedule: Schedule,
    /// What counters were when somebody cleared them.
    cleared: Option<Cleared>,
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
            match jobs.recv_timeout(self.schedule.time_left(Instant::now())) {
                Ok(job) => {
                    job(self);
                    // What came together is published together.
                    jobs.try_iter().take(BATCH_JOBS).for_each(|job| job(self));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if self.schedule.fed {
                self.schedule.fed = self.feed();
            }
            let now = Instant::now();
            if self.schedule.is_publication_due(now) {
                self.commit();
            }
            if self.schedule.takes_tick(now) {
                self.tick(now)?;
            }
            if self.schedule.is_over(now) {
                return Ok(());
            }
        }
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
                self.schedule.changed();
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

    /// Publishes what has changed, or a part of it; what is left is still due.
    fn commit(&mut self) {
        match self.rib.commit() {
            Progress::Done => self.schedule.published(),
            Progress::More => {}
            Progress::Blocked => self.workers.catch_up(),
        }
    }

    /// Publishes all that has changed.
    fn publish(&mut self) {
        loop {
            match self.rib.commit() {
                Progress::Done => break,
                Progress::More => {}
                Progress::Blocked => self.workers.catch_up(),
            }
        }
        self.schedule.published();
    }

    /// What is due ten times a second.
    fn tick(&mut self, now: Instant) -> Result<(), Error> {
        if !self.privileged.is_alive() {
            return Err(privilege::ended());
        }
        let hits = self.workers.ask();
        self.tell_hits(&hits, now);
        self.config.appliance.tick(&self.at_work());
        self.look_at_ports(&BTreeSet::new());
        self.workers.running.warn();
        // A time of grace may be over, though nobody says anything.
        self.schedule.fed |= self.kernel.is_some();
        if self.readings.is_due(now) {
            // Inputs that ended bring nothing more, so only then are the workers asked.
            let quiet = self
                .readings
                .renew(now, Sample::take(&self.workers.running));
            if quiet && self.host_interfaces.is_empty() && self.workers.running.is_ended() {
                self.schedule.end_after(Duration::ZERO);
            }
        }
        let sample = || Sample::take(&self.workers.running);
        if let Some(reading) = self.readings.period(now, sample) {
            self.say_period(&reading)?;
        }
        // Every worker has answered.
        self.notify.alive(now);
        Ok(())
    }

    /// Holds the host interfaces' links down, so that routing turns elsewhere, and ends after
    /// `time`.
    fn drain(&mut self, time: Duration) -> Value {
        self.draining = true;
        self.make_alike_all();
        self.schedule.end_after(time);
        let seconds = time.as_secs_f64();
        json!({ "text": format!("forwarding for {seconds} s more"), "seconds": seconds })
    }

    /// Makes the host interfaces that are not there yet.
    fn start_host_interfaces(&mut self) -> Result<(), Error> {
        let pools = self.workers.slow_pools();
        let slow = self.workers.slow().clone();
        let opener: Arc<dyn Opener> = self.privileged.clone();
        self.host_interfaces.start(&slow, &pools, &opener)
    }

    /// Takes what the kernel sends by host interfaces that the slow worker has been told of.
    fn hear_host_interfaces(&mut self) {
        let slow = self.workers.slow().clone();
        self.host_interfaces.listen(&slow);
    }

    /// Takes the host interfaces away that nobody wants any more.
    fn retain_host_interfaces(&mut self, wanted: &[Wanted]) -> Vec<Error> {
        let slow = self.workers.slow().clone();
        self.host_interfaces.retain(wanted, &slow)
    }

    /// Looks for the gateways of static routes before a packet asks for them, and pins the
    /// configured neighbours; lets go of those of the `old` configuration.
    fn follow_neighbours(&mut self, old: &Config) {
        let (before, now) = (old.gateways(), self.config.gateways());
        let gone = before.difference(&now).map(|&gateway| (gateway, false));
        let new = now.difference(&before).map(|&gateway| (gateway, true));
        for ((id, address), is_held) in gone.chain(new) {
            on_slow(self.workers.slow(), move |slow, egress| {
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
            let pinned = on_slow(self.workers.slow(), move |slow, egress| {
                slow.pin(id, address, mac, egress)
            });
            if pinned == Some(false) && mac.is_some() {
                eprintln!("warning: there is no room to pin {address}");
            }
        }
    }
}
