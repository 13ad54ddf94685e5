//! Takes a changed configuration over while packets are forwarded: all of it, or nothing.
//!
//! Whatever can be refused is refused first: the file, what cannot change, ports that cannot be
//! opened, memory for access lists and VRFs, host interfaces that the kernel does not make. From
//! then on nothing fails. Workers get settings that know the old and the new interfaces, then
//! routes are changed, then the old interfaces go: at no time does a route lead to an interface
//! that a worker does not know, and none is taken away before its successor is there.
//!
//! The thread that asks reads the file and compiles its lists
//! ([`reload_by`](super::server::reload_by)), so that control answers others meanwhile. Only
//! differences are passed on: a reload that changes only routes does not reach workers, and routes
//! that stay are not written to the table again.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::difference::{self, Difference};
use super::{Control, generation};
use crate::config::{Acl, Config, NeighbourConfig, PortConfig, VrfConfig};
use crate::extension::Own;
use crate::machine;
use linerate_appliance::control::reload::{self, Changes};
use linerate_appliance::error::Error;
use linerate_appliance::socket::Problem;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::Change;
use linerate_routing::plane::settings::{Interface, Settings};

impl Control {
    /// Takes over what was read from the file, and says what came of it.
    pub(super) fn reload(&mut self, read: Result<Config, Error>) -> Result<Value, Problem> {
        self.notify.reloading();
        let outcome = read.and_then(|config| self.take_over(config));
        let last = match &outcome {
            Ok(changes) => changes.text(),
            Err(error) => format!("refused: {error}"),
        };
        self.notify
            .ready(&format!("{}; last reload: {last}", self.status()));
        match outcome {
            Ok(changes) => {
                let warnings = self.config.warnings.iter().map(ToString::to_string);
                let mut answer = changes.value();
                answer.insert("warnings".into(), warnings.collect());
                Ok(answer.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// All of it, or nothing.
    fn take_over(&mut self, config: Config) -> Result<Changes, Error> {
        self.refuse_restarts(&config)?;
        // What a device is like now, not when it was opened.
        self.look_at_ports(&BTreeSet::new());
        let config = config.keeping(&self.config, |number| self.host_interfaces.has(number));
        let is_new = |port: &&PortConfig| !self.config.ports.contains(port);
        let appliance = config.appliance;
        machine::check_ports(appliance, &self.path, config.ports.iter().filter(is_new))?;
        let added = self.add_ports(&config)?;
        let infos = self.port_infos();
        let wanted = generation::host_interfaces(&config, &infos);
        let old_wanted = generation::host_interfaces(&self.config, &infos);
        for host_interface in &wanted {
            self.host_interfaces.allot(host_interface.clone());
        }
        let made = self.make(&config, &infos);
        let (settings, built) = match made {
            Ok(made) => made,
            Err(error) => {
                // As it was before.
                for host_interface in &old_wanted {
                    self.host_interfaces.allot(host_interface.clone());
                }
                for error in self.retain_host_interfaces(&old_wanted) {
                    error.print();
                }
                if let Some(kernel) = &mut self.kernel {
                    kernel.close_spaces(&self.config);
                }
                self.remove_ports(&added);
                return Err(error);
            }
        };
        let old = std::mem::replace(&mut self.config, config);
        self.built = built;
        self.guard_sysctls();
        self.install(&Arc::new(with_old(&settings, &self.settings)));
        self.hear_host_interfaces();
        self.workers.running.listen();
        self.settings = Arc::new(settings);
        self.forget_others(&old);
        if let Some(kernel) = &mut self.kernel {
            kernel.follow_vrfs(&self.config, &mut self.rib);
        }
        let routes = self.follow(&old);
        self.publish();
        self.install(&self.settings.clone());
        for error in self.retain_host_interfaces(&wanted) {
            error.print();
        }
        self.retain_ports();
        self.remove_addresses(&old);
        self.make_alike_all();
        self.retain_cleared();
        Ok(changes(&old, &self.config, routes))
    }

    /// Settings for a configuration, what the appliance makes of its own stanzas, room for its
    /// VRFs, and its host interfaces: the part that may fail.
    fn make(
        &mut self,
        config: &Config,
        infos: &generation::Infos,
    ) -> Result<(Settings, Option<Own>), Error> {
        let old = Some((&self.config, &*self.settings));
        let settings =
            generation::settings(config, infos, |name| self.host_interfaces.number(name), old)?;
        let built = (config.appliance).build(config, &settings, self.built.as_ref())?;
        let vrfs = config.vrfs.len() as u32;
        if vrfs > self.rib.vrfs() {
            self.publish();
            self.rib.widen(vrfs)?;
            self.workers.exchange_tables(&self.rib);
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.open_spaces(config)?;
        }
        self.start_host_interfaces()?;
        Ok((self.with_learned(settings), built))
    }

    /// What cannot change under a running router is refused by name.
    fn refuse_restarts(&self, new: &Config) -> Result<(), Error> {
        let mut keys = Vec::new();
        if new.plan != self.config.plan {
            keys.push("[plan]".into());
        }
        if new.router != self.config.router {
            keys.push("[router]".into());
        }
        keys.extend(new.appliance.refused(&self.config, new));
        let name = format!("the {}", new.appliance.name());
        reload::refuse(&self.path, &name, &keys)
    }

    /// Gives all workers new settings, unless they have such; what they had is freed here.
    pub(super) fn install(&mut self, settings: &Arc<Settings>) {
        let is_same = match (&self.built, &self.installed_own) {
            (Some(new), Some(old)) => Arc::ptr_eq(new, old),
            (new, old) => new.is_none() && old.is_none(),
        };
        if *settings == self.installed && is_same {
            return;
        }
        self.installed_own = self.built.clone();
        let old = std::mem::replace(&mut self.installed, settings.clone());
        let queues = self.config.router.queues;
        for ((number, worker), counters) in
            (self.workers.running.handles().enumerate()).zip(&mut self.workers.counters)
        {
            let mut change = Change::new(settings.clone(), &old, counters, queues);
            let built = self.built.as_ref();
            change.own = built.map(|built| self.config.appliance.part(built, number));
            let new = change.counters();
            let had = worker.call(move |worker| worker.stage.install(change, &mut worker.egress));
            // One that has ended needs none.
            if had.is_ok() {
                *counters = new;
            }
        }
    }

    /// Changes the routing table from the `old` configuration's to that of the one in force.
    /// Returns in how many static routes they differ.
    fn follow(&mut self, old: &Config) -> usize {
        for (id, interface) in (0..).zip(&self.settings.interfaces) {
            if !interface.name.is_empty() {
                self.rib.set_interface(InterfaceId(id), Some(interface));
                self.rib.addresses(InterfaceId(id), &interface.addresses);
            }
        }
        let routes = self.follow_routes(old);
        for (id, before) in (0..).zip(&old.interfaces) {
            let now = self.config.interfaces.get(usize::from(id));
            if !before.is_gone() && now.is_none_or(|now| now.is_gone()) {
                self.rib.set_interface(InterfaceId(id), None);
            }
        }
        self.follow_neighbours(old);
        // Interfaces that are new, or on another port, are told anew.
        self.links.clear();
        self.refresh_links(&BTreeSet::new());
        routes
    }

    /// Tells the routing table of the static routes that differ. Returns how many do.
    fn follow_routes(&mut self, old: &Config) -> usize {
        let difference = Difference::between(&old.routes, &self.config.routes);
        let changed = difference.len();
        let new = match self.turned_away {
            false => difference.new,
            // For some of the others there may be room now.
            true => self.config.routes.iter().collect(),
        };
        let turned_away = difference::insert(&mut self.rib, new);
        for route in difference.gone {
            self.rib
                .remove(route.vrf, route.prefix, difference::key(route));
        }
        self.turned_away = !difference::insert(&mut self.rib, turned_away).is_empty();
        changed
    }
}

/// The new settings, and behind them the interfaces that are about to go: nothing comes in there
/// any more, but routes still lead there.
fn with_old(new: &Settings, old: &Settings) -> Settings {
    let mut both = new.clone();
    for (index, interface) in old.interfaces.iter().enumerate() {
        let goes = interface.clone();
        match both.interfaces.get_mut(index) {
            None => both.interfaces.push(without_lists(goes)),
            Some(slot) if slot.name.is_empty() => *slot = without_lists(goes),
            Some(_) => {}
        }
    }
    both
}

/// Numbers of access lists are those of another configuration.
fn without_lists(interface: Interface) -> Interface {
    Interface {
        acl_in: None,
        acl_out: None,
        ..interface
    }
}

/// How many numbers are another's now, or nobody's any more.
fn differ_by_number<T: PartialEq>(old: &[T], new: &[T], is_gone: impl Fn(&T) -> bool) -> usize {
    let there = |all: &[T], number: usize| -> Option<usize> {
        all.get(number).filter(|one| !is_gone(one)).map(|_| number)
    };
    let differs = |&number: &usize| match (there(old, number), there(new, number)) {
        (Some(_), Some(_)) => old[number] != new[number],
        (before, now) => before != now,
    };
    (0..old.len().max(new.len())).filter(differs).count()
}

/// What a reload has changed, in `routes` static routes besides.
fn changes(old: &Config, new: &Config, routes: usize) -> Changes {
    let interfaces = (0..old.interfaces.len().max(new.interfaces.len()))
        .filter(|&index| old.interfaces.get(index) != new.interfaces.get(index));
    let differ = |a: &[NeighbourConfig], b: &[NeighbourConfig]| {
        a.iter().filter(|one| !b.contains(one)).count()
    };
    let neighbours =
        differ(&old.neighbours, &new.neighbours) + differ(&new.neighbours, &old.neighbours);
    let is_gone = |acl: &&Arc<Acl>| !new.acls.iter().any(|other| other.name == acl.name);
    let acls = new
        .acls
        .iter()
        .filter(|acl| !old.acls.contains(acl))
        .count()
        + old.acls.iter().filter(is_gone).count();
    let ports = differ_by_number(&old.ports, &new.ports, PortConfig::is_gone);
    let vrfs = differ_by_number(&old.vrfs, &new.vrfs, VrfConfig::is_gone);
    let of_router = Changes::default()
        .and("ports", "port", ports)
        .and("vrfs", "VRF", vrfs)
        .and("interfaces", "interface", interfaces.count())
        .and("routes", "route", routes)
        .and("neighbours", "neighbour", neighbours)
        .and("acls", "access list", acls);
    let own = new.appliance.changes(old, new).into_iter();
    own.fold(of_router, |all, (key, what, count)| {
        all.and(key, what, count)
    })
}
