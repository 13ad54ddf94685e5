//! Takes a changed configuration over while packets are forwarded: all of it, or nothing.
//!
//! Whatever can be refused is refused first: the file, what cannot change, ports that cannot be opened, memory
//! for access lists and VRFs, twins that the kernel does not make. From then on nothing fails. Workers get settings that know the old and
//! the new interfaces, then routes are changed, then the old interfaces go: at no time does a route
//! lead to an interface that a worker does not know, and none is taken away before its successor is
//! there.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Control;
use super::generation;
use super::stage::RouterStage;
use crate::apps::router::config::{Config, PortConfig, RouteConfig, RouteTo, VrfConfig};
use crate::apps::router::model::InterfaceId;
use crate::apps::router::plane::settings::Settings;
use crate::apps::router::rib::{Key, Source, To, Way};
use crate::error::Error;
use crate::socket::Problem;

/// What a reload changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Changes {
    ports: usize,
    vrfs: usize,
    interfaces: usize,
    routes: usize,
    neighbours: usize,
    acls: usize,
}

impl Control {
    /// Somebody asked for a reload, and hears what came of it.
    pub(super) fn reload_asked(&mut self) -> Result<Value, Problem> {
        self.notify.reloading();
        let outcome = self.reload();
        let last = match &outcome {
            Ok(changes) => changes.text(),
            Err(error) => format!("refused: {error}"),
        };
        self.notify
            .ready(&format!("{}; last reload: {last}", self.status()));
        match outcome {
            Ok(changes) => {
                self.reloads.done += 1;
                Ok(json!({
                    "text": changes.text(),
                    "ports": changes.ports,
                    "vrfs": changes.vrfs,
                    "interfaces": changes.interfaces,
                    "routes": changes.routes,
                    "neighbours": changes.neighbours,
                    "acls": changes.acls,
                    "warnings": self.config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
                }))
            }
            Err(error) => {
                self.reloads.refused += 1;
                Err(error.into())
            }
        }
    }

    /// SIGHUP: what came of it goes to standard error.
    pub(super) fn reload_signalled(&mut self) {
        match self.reload_asked() {
            Ok(result) => {
                let text = result["text"].as_str().unwrap_or_default().to_string();
                eprintln!("reload: {text}");
            }
            Err(problem) => {
                eprintln!("reload refused: {problem}\nfix: {}", problem.fix);
            }
        }
    }

    fn reload(&mut self) -> Result<Changes, Error> {
        let config = Config::read(&self.path)?;
        self.refuse_restarts(&config)?;
        let config = config.keeping(&self.config, |number| self.twins.has(number));
        let added = self.add_ports(&config)?;
        let infos = self.port_infos();
        let wanted = generation::twins(&config, &infos);
        let old_wanted = generation::twins(&self.config, &infos);
        for twin in &wanted {
            self.twins.allot(twin.clone());
        }
        let made = self.make(&config, &infos);
        let settings = match made {
            Ok(settings) => settings,
            Err(error) => {
                // As it was before.
                for twin in &old_wanted {
                    self.twins.allot(twin.clone());
                }
                for error in self.retain_twins(&old_wanted) {
                    error.print();
                }
                if let Some(kernel) = &mut self.kernel {
                    kernel.close_spaces(&self.config);
                }
                self.remove_ports(&added);
                return Err(error);
            }
        };
        let changes = Changes::between(&self.config, &config);
        let old = std::mem::replace(&mut self.config, config);
        self.hush_ports();
        self.install(&Arc::new(with_old(&settings, &self.settings)));
        self.hear_twins();
        self.running.listen();
        self.settings = Arc::new(settings);
        self.forget_others(&old);
        if let Some(kernel) = &mut self.kernel {
            kernel.follow_vrfs(&self.config, &mut self.rib);
        }
        self.follow(&old);
        self.publish();
        self.install(&self.settings.clone());
        for error in self.retain_twins(&wanted) {
            error.print();
        }
        self.retain_ports();
        self.remove_addresses(&old);
        self.liken_all();
        Ok(changes)
    }

    /// Settings for a configuration, room for its VRFs, and its twins: the part that may fail.
    fn make(&mut self, config: &Config, infos: &generation::Infos) -> Result<Settings, Error> {
        let old = Some((&self.config, &*self.settings));
        let settings = generation::settings(config, infos, |name| self.twins.number(name), old)?;
        let vrfs = config.vrfs.len() as u32;
        if vrfs > self.rib.vrfs() {
            self.publish();
            self.rib.widen(vrfs)?;
            self.exchange_tables();
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.open_spaces(config)?;
        }
        self.start_twins()?;
        Ok(self.with_learned(settings))
    }

    /// What cannot change under a running router is refused by name.
    fn refuse_restarts(&self, new: &Config) -> Result<(), Error> {
        let mut fixed: Vec<&str> = Vec::new();
        if new.plan != self.config.plan {
            fixed.push("[plan] is another");
        }
        if new.router != self.config.router {
            fixed.push("[router] is another");
        }
        if fixed.is_empty() {
            return Ok(());
        }
        Err(Error::Usage {
            problem: format!(
                "{}: not while the router runs: {}",
                self.path.display(),
                fixed.join(", ")
            ),
            fix: "restart the router, or undo these changes and reload the rest".into(),
        })
    }

    /// Gives all workers new settings; what they had is freed here.
    pub(super) fn install(&mut self, settings: &Arc<Settings>) {
        for worker in self.running.handles() {
            let settings = settings.clone();
            // One that has ended needs none.
            let old = worker.call(move |worker| match &mut worker.stage {
                RouterStage::Fast(fast) => fast.install(settings, &mut worker.egress),
                RouterStage::Slow(slow) => slow.install(settings, &mut worker.egress),
            });
            drop(old);
        }
        self.learn_counters();
    }

    /// Changes the routing table from the `old` configuration's to that of the one in force.
    fn follow(&mut self, old: &Config) {
        let (config, settings) = (&self.config, &self.settings);
        for (id, interface) in (0..).zip(&config.interfaces) {
            let (id, index) = (InterfaceId(id), usize::from(id));
            if interface.is_gone() {
                continue;
            }
            self.rib
                .set_interface(id, Some(&settings.interfaces[index]));
            self.rib
                .addresses(id, &settings.interfaces[index].addresses);
        }
        let routes = routes_of(config);
        for (place, to) in &routes {
            let (vrf, prefix, key) = *place;
            // Beyond the limit it is counted as turned away, and shown so.
            let _ = self.rib.insert(vrf, prefix, key.into(), to);
        }
        for (vrf, prefix, key) in routes_of(old).into_keys() {
            if !routes.contains_key(&(vrf, prefix, key)) {
                self.rib.remove(vrf, prefix, key.into());
            }
        }
        for (id, before) in (0..).zip(&old.interfaces) {
            let now = config.interfaces.get(usize::from(id));
            if !before.is_gone() && now.is_none_or(|now| now.is_gone()) {
                self.rib.set_interface(InterfaceId(id), None);
            }
        }
        self.follow_neighbours(old);
        // Interfaces that are new, or on another port, are told anew.
        self.links.clear();
        self.refresh_links();
    }
}

/// A key of a static route, for comparing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Distance(u8);

impl From<Distance> for Key {
    fn from(distance: Distance) -> Self {
        Self {
            distance: distance.0,
            ..Self::of(Source::Static, 0)
        }
    }
}

type Place = (
    crate::apps::router::model::Vrf,
    crate::apps::router::model::Prefix,
    Distance,
);

/// The static routes of a configuration, by what makes each the only one of its kind.
pub(super) fn routes_of(config: &Config) -> HashMap<Place, To> {
    let of = |route: &RouteConfig| {
        let place = (route.vrf, route.prefix, Distance(route.distance));
        (place, to(&route.to))
    };
    config.routes.iter().map(of).collect()
}

fn to(to: &RouteTo) -> To {
    match to {
        RouteTo::Blackhole => To::Blackhole,
        RouteTo::Unreachable => To::Unreachable,
        RouteTo::Prohibit => To::Prohibit,
        RouteTo::Via(ways) => To::Ways(
            ways.iter()
                .map(|via| Way {
                    gateway: via.address,
                    interface: via.interface,
                    weight: via.weight,
                })
                .collect(),
        ),
    }
}

/// The new settings, and behind them the interfaces that are about to go: nothing comes in there any
/// more, but routes still lead there.
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
fn without_lists(
    interface: crate::apps::router::plane::settings::Interface,
) -> crate::apps::router::plane::settings::Interface {
    crate::apps::router::plane::settings::Interface {
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

impl Changes {
    fn between(old: &Config, new: &Config) -> Self {
        let interfaces = (0..old.interfaces.len().max(new.interfaces.len()))
            .filter(|&index| old.interfaces.get(index) != new.interfaces.get(index));
        let (before, after) = (routes_of(old), routes_of(new));
        let added = after
            .iter()
            .filter(|(place, to)| before.get(place) != Some(to));
        let removed = before.keys().filter(|place| !after.contains_key(place));
        let differ = |a: &[crate::apps::router::config::NeighbourConfig],
                      b: &[crate::apps::router::config::NeighbourConfig]| {
            a.iter().filter(|one| !b.contains(one)).count()
        };
        let acls = new
            .acls
            .iter()
            .filter(|acl| !old.acls.contains(acl))
            .count()
            + old
                .acls
                .iter()
                .filter(|acl| !new.acls.iter().any(|other| other.name == acl.name))
                .count();
        Self {
            ports: differ_by_number(&old.ports, &new.ports, PortConfig::is_gone),
            vrfs: differ_by_number(&old.vrfs, &new.vrfs, VrfConfig::is_gone),
            interfaces: interfaces.count(),
            routes: added.count() + removed.count(),
            neighbours: differ(&old.neighbours, &new.neighbours)
                + differ(&new.neighbours, &old.neighbours),
            acls,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (count, what) in [
            (self.ports, "port"),
            (self.vrfs, "VRF"),
            (self.interfaces, "interface"),
            (self.routes, "route"),
            (self.neighbours, "neighbour"),
            (self.acls, "access list"),
        ] {
            if count > 0 {
                let before = if text.is_empty() { "changed: " } else { ", " };
                let plural = if count == 1 { "" } else { "s" };
                let _ = write!(text, "{before}{count} {what}{plural}");
            }
        }
        match text.is_empty() {
            true => "nothing changed".into(),
            false => text,
        }
    }
}
