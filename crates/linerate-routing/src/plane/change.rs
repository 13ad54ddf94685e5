//! What a worker takes over between two bursts when the configuration changes.
//!
//! Control makes a [`Change`], with all the memory that it needs, and frees the old one that comes
//! back. The worker exchanges a few pointers, and carries over the state that only it writes:
//! counters, and the levels of policers' buckets. It allocates only for the drop counters of lists
//! whose names are new.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use linerate_core::packet::Burst;
use linerate_core::run::DropId;
use linerate_stack::reassembly::{Config, Reassembler};

use super::counters::Counters;
use super::interface::{Installed, InterfaceState};
use super::local::LocalAddresses;
use super::policer::Meter;
use super::settings::{Interface, Policer, Settings};

/// Another configuration for one worker, and afterwards the one that it had.
pub struct Change {
    pub(super) settings: Arc<Settings>,
    pub(super) installed: Installed,
    /// By interface, and by access list: its index in the old settings, if it was there.
    pub(super) interfaces: Vec<Option<usize>>,
    pub(super) lists: Vec<Option<usize>>,
    /// By interface.
    pub(super) frames: Vec<Burst>,
    pub(super) policers: Vec<Option<(Policer, Meter)>>,
    /// Room for the drop reasons of access lists, in and out.
    pub(super) denied_in: Vec<DropId>,
    pub(super) denied_out: Vec<DropId>,
    pub(super) reassembler: Option<Box<Reassembler>>,
    /// What the appliance's own stages take over, of the type that they know: see
    /// [`PacketPath::install`](super::PacketPath::install).
    pub own: Option<Box<dyn Any + Send>>,
}

impl Change {
    /// A change from settings `old`, with `counters`, to `settings`. Interfaces and lists with the
    /// same name are the same. `queues`: how many workers share each policer's rate.
    pub fn new(settings: Arc<Settings>, old: &Settings, counters: &Counters, queues: u16) -> Self {
        let queues = u64::from(queues.max(1));
        let interfaces = &settings.interfaces;
        let name = |interface: &Interface| interface.name.clone();
        let places = |names: &[String], all: &[String]| -> Vec<Option<usize>> {
            let places: HashMap<&String, usize> = names.iter().zip(0..).collect();
            all.iter().map(|name| places.get(name).copied()).collect()
        };
        let lists = |settings: &Settings| -> Vec<String> {
            settings.acls.iter().map(|list| list.name.clone()).collect()
        };
        let names: Vec<String> = interfaces.iter().map(name).collect();
        let policer = |interface: &Interface| {
            let policer = interface.policer?;
            // Each queue gets its share of rate and burst.
            let (rate, burst) = (policer.rate_bps / 8 / queues, policer.burst_bytes / queues);
            Some((policer, Meter::new(rate, burst)))
        };
        let asks = |settings: &Settings| settings.interfaces.iter().any(|one| one.reassemble);
        let vrfs = interfaces.iter().map(|one| one.vrf + 1).max();
        let local = (0..vrfs.unwrap_or(0)).map(|vrf| LocalAddresses::of(&settings, vrf));
        let states = interfaces.iter().map(InterfaceState::new);
        let installed = Installed {
            interfaces: states.collect(),
            local: local.collect(),
            any_acl_out: interfaces.iter().any(|one| one.acl_out.is_some()),
            counters: Arc::new(Counters::new(&settings, counters)),
        };
        // Without memory for the reassembler fragments are forwarded one by one, and access lists
        // see them as fragments.
        let reassembler = (asks(&settings) && !asks(old))
            .then(|| Reassembler::new(&Config::default()).ok().map(Box::new));
        Self {
            installed,
            interfaces: places(counters.names(), &names),
            lists: places(&lists(old), &lists(&settings)),
            frames: interfaces.iter().map(|_| Burst::new()).collect(),
            policers: interfaces.iter().map(policer).collect(),
            denied_in: Vec::with_capacity(settings.acls.len()),
            denied_out: Vec::with_capacity(settings.acls.len()),
            reassembler: reassembler.flatten(),
            own: None,
            settings,
        }
    }

    /// The counters that the worker will write.
    pub fn counters(&self) -> Arc<Counters> {
        self.installed.counters.clone()
    }
}
