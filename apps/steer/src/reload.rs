//! A reload: applications come, go and change while connections live, and so do routes.
//!
//! The file is read and checked, and new applications are made for all lcores, on the thread that
//! asks; then each lcore takes them over between two bursts ([`Apps::change`]). An application is
//! known by its name. One whose stanza says the same stays as it is; one that says another thing is
//! replaced: its listener with what waits there and connections between two exchanges go to the new
//! one, and it ends what it has begun, in [`File::drain`] at most. Settings of TCP are those of
//! connections to come; addresses and interfaces come and go, and connections of those that go end.
//! What is fixed at the start is refused by key, and nothing changes.
//!
//! [`Apps::change`]: crate::app::Apps::change

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use linerate_appliance::config as config_file;
use linerate_appliance::control::reload::{Changes, Read, TakeOver, refuse};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::{Running, Separation};
use linerate_core::run::Worker;
use linerate_stack::host::{self, InterfaceConfig};
use linerate_stack::socket::StackConfig;

use crate::app::{Change, New, Numbers, Tokens};
use crate::config::{AppStanza, File, Kind, PortFacts, Route};
use crate::lcore::{AppMaker, Lcore, Parts};
use crate::steering::plan::Member;

/// A running stack, as far as a reload knows it.
pub(crate) struct Again {
    pub(crate) path: PathBuf,
    pub(crate) separation: Separation,
    /// What the run goes by.
    pub(crate) now: File,
    /// By `[[app]]`: its number.
    pub(crate) numbers: Vec<u8>,
    pub(crate) in_use: Arc<Numbers>,
    /// By number.
    pub(crate) ports: Vec<PortFacts>,
    /// By worker: its number in steering.
    pub(crate) members: Vec<Member>,
    pub(crate) maker: AppMaker,
    /// Applications that were replaced since the last reload: what they have is freed with the next
    /// one, and not by an lcore in the midst of its packets.
    pub(crate) replaced: Vec<Kind>,
}

/// What a route is on each lcore: a network, the router, and the number of the port of its
/// interface, whose place in the file may change.
type By = ((IpAddr, u8), IpAddr, u16);

/// What an lcore takes over.
struct Taken {
    apps: Change,
    gone: Vec<By>,
    new: Vec<By>,
    stack: Option<StackConfig>,
    interfaces: Interfaces,
}

/// What becomes of interfaces.
#[derive(Clone, Default)]
struct Interfaces {
    new: Vec<InterfaceConfig>,
    /// Those with other addresses than before.
    changed: Vec<InterfaceConfig>,
    /// The ports of those that are gone.
    gone: Vec<u16>,
    /// Addresses that are ours no more.
    lost: Vec<IpAddr>,
}

impl Interfaces {
    fn between(old: &File, new: &File, ports: &[PortFacts]) -> Self {
        let mut all = Self::default();
        for interface in &new.interfaces {
            let known = old.interfaces.iter().find(|old| old.port == interface.port);
            let config = || interface.on(&ports[usize::from(interface.port)]);
            match known {
                None => all.new.push(config()),
                Some(known) if known != interface => all.changed.push(config()),
                Some(_) => {}
            }
        }
        let is_there = |port| {
            new.interfaces
                .iter()
                .any(|interface| interface.port == port)
        };
        let gone = old.interfaces.iter().map(|interface| interface.port);
        all.gone = gone.filter(|&port| !is_there(port)).collect();
        let addresses = |file: &File| -> Vec<IpAddr> {
            let interfaces = file.interfaces.iter();
            let own = interfaces.flat_map(|interface| &interface.addresses);
            own.map(|(address, _)| *address).collect()
        };
        let kept = addresses(new);
        let lost = addresses(old).into_iter();
        all.lost = lost.filter(|address| !kept.contains(address)).collect();
        all
    }
}

impl Again {
    /// How a reload reads.
    pub(crate) fn reading(mut self) -> Read<Lcore> {
        Box::new(move || self.read())
    }

    fn read(&mut self) -> Result<(Changes, TakeOver<Lcore>), Error> {
        let text = self.separation.configuration(&self.path)?;
        let new = config_file::parse(&text, File::of).checked(&self.path)?;
        self.refuse(&new)?;
        let old = &self.now;
        let number_of = |name: &str| {
            let place = old.apps.iter().position(|app| app.name == name);
            place.map(|place| self.numbers[place])
        };
        // The same as they are; others are new, in the place of one of their name or not.
        let stays = |app: &AppStanza| old.apps.iter().any(|other| other.is_same(app));
        let begins: Vec<&AppStanza> = new.apps.iter().filter(|app| !stays(app)).collect();
        let taken = self.take_numbers(begins.len())?;
        let number = |app: &AppStanza| match begins.iter().position(|one| one.name == app.name) {
            Some(place) => Some(taken[place]),
            None => number_of(&app.name),
        };
        let numbers: Vec<u8> = new.apps.iter().filter_map(number).collect();
        let is_new = |name: &str| begins.iter().position(|one| one.name == name);
        let ends: Vec<(u8, Option<u8>)> = old
            .apps
            .iter()
            .zip(&self.numbers)
            .filter_map(|(app, &number)| {
                let successor = is_new(&app.name).map(|place| taken[place]);
                let is_there = new.apps.iter().any(|other| other.name == app.name);
                (successor.is_some() || !is_there).then_some((number, successor))
            })
            .collect();
        let (gone, came) = (routes(old, &new), routes(&new, old));
        let interfaces = Interfaces::between(old, &new, &self.ports);
        let keys = crate::config::tcp_differences(&old.stack, &new.stack);
        let mut all = Vec::with_capacity(self.members.len());
        for &member in &self.members {
            let made = self.made(&begins, &taken, member);
            let begins = made.inspect_err(|_| self.give_back(&taken))?;
            let ends = ends.clone();
            all.push(Taken {
                apps: Change {
                    ends,
                    begins,
                    drain: new.drain,
                },
                gone: gone.clone(),
                new: came.clone(),
                stack: Some(&new.stack).filter(|_| !keys.is_empty()).cloned(),
                interfaces: interfaces.clone(),
            });
        }
        let changed = ends.iter().filter(|(_, next)| next.is_some()).count();
        let changes = Changes::default()
            .and("apps_added", "application added", begins.len() - changed)
            .and("apps_changed", "application", changed)
            .and("apps_removed", "application removed", ends.len() - changed)
            .and("tcp_changed", "[tcp] key", keys.len())
            .and("interfaces_added", "interface added", interfaces.new.len())
            .and("interfaces_changed", "interface", interfaces.changed.len())
            .and(
                "interfaces_removed",
                "interface removed",
                interfaces.gone.len(),
            )
            .and("routes_added", "route added", came.len())
            .and("routes_removed", "route removed", gone.len());
        let is_gone = |number: &u8| ends.iter().any(|(ended, _)| ended == number);
        let both = self.now.apps.iter().zip(&self.numbers);
        self.replaced = both
            .filter(|(_, number)| is_gone(number))
            .map(|(app, _)| app.kind.clone())
            .collect();
        (self.now, self.numbers) = (new, numbers);
        Ok((changes, Box::new(move |running| take_over(running, all))))
    }

    /// What cannot change is refused by key.
    fn refuse(&self, new: &File) -> Result<(), Error> {
        let old = &self.now;
        old.all.refuse_changes(&new.all, &self.path, "steer")?;
        let mut keys = old.mode.differences(&new.mode);
        if old.user != new.user {
            keys.push("steer.user".into());
        }
        keys.extend(crate::config::interface_differences(old, new));
        let all = crate::config::tcp_differences(&old.stack, &new.stack);
        let is_fixed = |key: &String| crate::config::TCP_FIXED.contains(&&key[..]);
        keys.extend(all.into_iter().filter(is_fixed));
        refuse(&self.path, "steer", &keys)?;
        // Their users, tunnels and secrets are this run's.
        let is_node = |app: &&AppStanza| matches!(app.kind, Kind::Epc(_));
        match old.apps.iter().chain(&new.apps).find(is_node) {
            Some(AppStanza { name, .. }) => Err(Error::Usage {
                problem: format!(
                    "{}: [[app]] {name} is a node of an EPC, whose users a reload would lose",
                    self.path.display()
                ),
                fix: "restart it, or have other applications in a run of their own".into(),
            }),
            None => Ok(()),
        }
    }

    /// Numbers for so many new applications.
    fn take_numbers(&self, count: usize) -> Result<Vec<u8>, Error> {
        let lcores = self.members.iter();
        let lcores = lcores.filter(|&&member| member < self.maker.owners).count();
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            match self.in_use.take(lcores) {
                Some(number) => taken.push(number),
                None => {
                    self.give_back(&taken);
                    return Err(Error::Usage {
                        problem: "256 applications run or have connections left".into(),
                        fix: "reload again when some have ended: linerate ctl show apps".into(),
                    });
                }
            }
        }
        Ok(taken)
    }

    fn give_back(&self, taken: &[u8]) {
        taken
            .iter()
            .for_each(|&number| self.in_use.give_back(number));
    }

    /// New applications of an lcore.
    fn made(
        &self,
        begins: &[&AppStanza],
        numbers: &[u8],
        member: Member,
    ) -> Result<Vec<New>, Error> {
        if member >= self.maker.owners {
            return Ok(Vec::new());
        }
        let make = |(&stanza, &number): (&&AppStanza, &u8)| {
            let made = self.maker.make(stanza, member, 0, Tokens::of(number));
            let app = made.map_err(|error| Error::Usage {
                problem: format!("[[app]] {}: {error}", stanza.name),
                fix: format!("change [[app]] {} in the file", stanza.name),
            })?;
            Ok((number, stanza.name.clone(), app))
        };
        begins.iter().zip(numbers).map(make).collect()
    }
}

/// The routes of a file that another one has not.
fn routes(of: &File, other: &File) -> Vec<By> {
    let by = |file: &File, &Route { to, via, interface }: &Route| {
        (to, via, file.interfaces[interface].port)
    };
    let others: Vec<By> = other.routes.iter().map(|route| by(other, route)).collect();
    let all = of.routes.iter().map(|route| by(of, route));
    all.filter(|route| !others.contains(route)).collect()
}

/// Has each worker take its part over; one that has ended needs none.
fn take_over(running: &Running<Lcore>, all: Vec<Taken>) {
    for (worker, taken) in running.handles().zip(all) {
        let take = move |worker: &mut Worker<Lcore>| {
            let Worker { stage, egress, .. } = worker;
            let mut failed = Vec::new();
            let interfaces = taken.interfaces;
            if let Some(Parts { stack, now_ns, .. }) = stage.parts() {
                let mut io = stack.io(now_ns, egress);
                for &address in &interfaces.lost {
                    io.abort_local(address);
                }
            }
            // Homes hear of their ends while it is known by which port they came.
            stage.settle(egress);
            let Some(Parts {
                stack,
                apps,
                now_ns,
            }) = stage.parts()
            else {
                return failed;
            };
            if let Some(new) = taken.stack {
                stack.set_tcp(new.tcp);
                stack.set_challenges(new.challenges_per_s);
                stack.set_ports(new.ports);
            }
            let mut put = |config: InterfaceConfig| {
                let (host, port) = (stack.host(), config.port);
                let done = match host.interface_of(port) {
                    Some(id) => host.change_interface(id, config, now_ns, egress),
                    None => host.add_interface(config, now_ns, egress).map(|_| ()),
                };
                if let Err(error) = done {
                    failed.push(format!("[[interface]] of port {port}: {error}"));
                }
            };
            interfaces.changed.into_iter().for_each(&mut put);
            interfaces.new.into_iter().for_each(&mut put);
            // They make room for the new ones; no packet comes in between.
            for by in &taken.gone {
                if let Some(route) = route(stack.host(), by) {
                    stack.host().remove_route(&route);
                }
            }
            for by in &taken.new {
                if let Some(route) = route(stack.host(), by)
                    && let Err(error) = stack.host().add_route(route)
                {
                    failed.push(format!("[[route]] {}: {error}", by.1));
                }
            }
            for port in interfaces.gone {
                if let Some(id) = stack.host().interface_of(port) {
                    stack.host().remove_interface(id, egress);
                }
            }
            let others = apps.change(taken.apps, &mut stack.io(now_ns, egress));
            failed.extend(
                others
                    .iter()
                    .map(|(name, error)| format!("[[app]] {name}: {error}")),
            );
            failed
        };
        for problem in worker.call(take).unwrap_or_default() {
            eprintln!("warning: {}: {problem}", worker.name());
        }
    }
}

/// A route of the file as a stack has it.
fn route(host: &mut host::Host, &(to, via, port): &By) -> Option<host::Route> {
    let interface = host.interface_of(port)?;
    Some(host::Route::by(to, via, interface))
}
