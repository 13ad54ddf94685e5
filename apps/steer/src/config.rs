//! The file of `linerate steer`: `[plan]`, `[[port]]`, `[steer]`, `[[interface]]`, `[[route]]`,
//! `[tcp]` and `[[app]]`.

mod apps;
mod tcp;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use linerate_appliance::address::{Cidr, Prefix};
use linerate_appliance::config::{self, At, PortStanza, Section};
use linerate_appliance::error::Error;
use linerate_appliance::runtime::RunFile;
use linerate_appliance::users::User;
use linerate_stack::host::{self, HostConfig, InterfaceConfig};
use linerate_stack::socket::StackConfig;

pub(crate) use apps::path;
pub use apps::{AppStanza, Kind};
pub(crate) use tcp::{FIXED as TCP_FIXED, differences as tcp_differences};

/// What a file says.
#[derive(Clone, Debug)]
pub struct File {
    /// `[plan]`, `[[port]]` and the keys of all in `[steer]`.
    pub all: RunFile,
    /// `[steer]`: how packets come to their lcores.
    pub mode: Mode,
    /// `[steer] user`: who the process becomes that root has started.
    pub user: Option<User>,
    /// `[steer] drain_timeout`: for how long applications that a reload has replaced or removed
    /// may go on with their connections; `None`: until those end.
    pub drain: Option<Duration>,
    /// `[[interface]]`.
    pub interfaces: Vec<Interface>,
    /// `[[route]]`.
    pub routes: Vec<Route>,
    /// `[tcp]`.
    pub stack: StackConfig,
    /// `[[app]]`.
    pub apps: Vec<AppStanza>,
}

/// Most entries of a map.
pub(crate) const MOST_ENTRIES: usize = 1 << 26;

/// `[steer]` but for the keys of all: how packets come to the lcore that has their connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// How they arrive.
    pub arrives: Arrives,
    /// Whether connections may be elsewhere than where a hash says: at the lcore of their user.
    pub application: bool,
    /// Lcores without connections that receive and send for the others.
    pub distributor: Option<Distributor>,
    /// Entries of each home's maps, by family; usually as many as the lcores have connections whose
    /// packets it receives.
    pub map_entries: Option<usize>,
}

/// How packets arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrives {
    /// All ports have one queue, which one lcore polls, and it hands over what is another's.
    Software,
    /// Each lcore polls a queue of each port; what comes to the wrong one is handed over.
    #[default]
    Hardware,
}

/// What lcores of the role io do where those of the role eu have the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distributor {
    /// One or several receive and send.
    Both,
    /// The first receives, the second sends.
    Two,
}

impl Mode {
    fn read(section: &Section<'_>) -> Self {
        #[derive(Clone, Copy, PartialEq)]
        enum Word {
            Software,
            Hardware,
            Application,
        }
        let modes = [
            ("software", Word::Software),
            ("hardware", Word::Hardware),
            ("application", Word::Application),
        ];
        let over = [
            ("software", Arrives::Software),
            ("hardware", Arrives::Hardware),
        ];
        let forms = [("rx+tx", Distributor::Both), ("rx,tx", Distributor::Two)];
        let mode = section.choice("mode", &modes).map(|at| at.value);
        let over = section.choice("over", &over);
        if let Some(at) = over.as_ref().filter(|_| mode != Some(Word::Application)) {
            let problem = "only mode `application` is over another";
            section.wrong(
                at.line,
                "over",
                problem,
                "mode = \"application\", or no such key",
            );
        }
        let arrives = match mode {
            Some(Word::Software) => Arrives::Software,
            Some(Word::Application) => over.map(|at| at.value).unwrap_or_default(),
            Some(Word::Hardware) | None => Arrives::Hardware,
        };
        let distributor = section.choice("distributor", &forms);
        if let Some(at) = distributor
            .as_ref()
            .filter(|_| arrives == Arrives::Hardware)
        {
            let problem = "a NIC distributes by itself";
            section.wrong(
                at.line,
                "distributor",
                problem,
                "mode or over = \"software\"",
            );
        }
        let application = mode == Some(Word::Application);
        let map_entries = section.number("map_entries", 16..=MOST_ENTRIES);
        if let Some(at) = map_entries.as_ref().filter(|_| !application) {
            let problem = "only mode `application` has maps";
            section.wrong(at.line, "map_entries", problem, "mode = \"application\"");
        }
        Self {
            arrives,
            application,
            distributor: distributor.map(|at| at.value),
            map_entries: map_entries.map(|at| at.value),
        }
    }

    /// The keys that say another thing in `new`.
    pub(crate) fn differences(&self, new: &Self) -> Vec<String> {
        // `over` says the rest of it.
        let mode = |mode: &Self| match mode.application {
            true => None,
            false => Some(mode.arrives),
        };
        let is_over = self.application && new.application && self.arrives != new.arrives;
        let all = [
            ("steer.mode", mode(self) != mode(new)),
            ("steer.over", is_over),
            ("steer.distributor", self.distributor != new.distributor),
            ("steer.map_entries", self.map_entries != new.map_entries),
        ];
        let differing = all.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(key, _)| key.to_owned()).collect()
    }
}

/// What a port says of interfaces on it.
#[derive(Clone, Copy, Debug)]
pub struct PortFacts {
    /// Its MAC address.
    pub mac: linerate_wire::MacAddr,
    /// The longest IP packet that it takes, in bytes.
    pub longest: usize,
    /// Whether it takes frames to be cut, with checksums to be added.
    pub tx_offloads: bool,
}

/// `[[interface]]`: addresses on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Number of the port.
    pub port: u16,
    /// With prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Longest IP packet in bytes, where it is not the port's.
    pub mtu: Option<u16>,
    /// Our MAC address, where it is not the port's.
    pub mac: Option<linerate_wire::MacAddr>,
}

/// What says another thing of interfaces in `new` and cannot while connections live: neighbours
/// know the MAC address, and connections have agreed upon segments by the MTU. Addresses can come
/// and go, and so can whole interfaces.
pub(crate) fn interface_differences(old: &File, new: &File) -> Vec<String> {
    let both = old.interfaces.iter().filter_map(|interface| {
        let same = |other: &&Interface| other.port == interface.port;
        Some((interface, new.interfaces.iter().find(same)?))
    });
    let mut keys = Vec::new();
    for (old, new) in both {
        let differing = [("mtu", old.mtu != new.mtu), ("mac", old.mac != new.mac)];
        let differing = differing.into_iter().filter(|(_, differs)| *differs);
        keys.extend(differing.map(|(key, _)| format!("interface.{key}")));
    }
    keys.dedup();
    keys
}

impl Interface {
    /// It as stacks have it, on a port that says so much.
    pub(crate) fn on(&self, port: &PortFacts) -> InterfaceConfig {
        // Unless it is said: no frames for wires that may not take them.
        let usual = port.longest.clamp(1280, 1500) as u16;
        InterfaceConfig {
            port: self.port,
            mac: self.mac.unwrap_or(port.mac),
            addresses: self.addresses.clone(),
            mtu: self.mtu.unwrap_or(usual),
            tx_offloads: port.tx_offloads,
            ..InterfaceConfig::default()
        }
    }
}

/// `[[route]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network.
    pub to: (IpAddr, u8),
    /// The router.
    pub via: IpAddr,
    /// The place of its interface in the file.
    pub interface: usize,
}

/// `[steer]` but for the keys of all.
#[derive(Default)]
pub(crate) struct Own {
    pub(crate) mode: Mode,
    pub(crate) user: Option<User>,
    pub(crate) drain: Option<Duration>,
}

/// How long a drain takes where the file does not say.
const DRAIN: Duration = Duration::from_secs(60);

/// `drain_timeout`: seconds, or 0 for no end.
fn drain(section: &Section<'_>) -> Option<Duration> {
    let drain = section
        .seconds("drain_timeout")
        .map_or(DRAIN, |at| at.value);
    Some(drain).filter(|drain| !drain.is_zero())
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        config::read(path, Self::of)
    }

    /// `[plan]`, `[[port]]` and `[steer]`, which has all that needs privileges.
    pub(crate) fn names(file: &Section<'_>) -> (RunFile, Own) {
        RunFile::read(file, "steer", |section| Own {
            mode: Mode::read(section),
            user: config::user(section, "user"),
            drain: drain(section),
        })
    }

    /// The file in a section.
    pub(crate) fn of(file: &Section<'_>) -> Self {
        let (all, Own { mode, user, drain }) = Self::names(file);
        if all.ports.is_empty() {
            let legal = "at least one [[port]] with name and spec";
            (file.notes()).error(1, "port", "there is no port", legal);
        }
        let interfaces = interfaces(file, &all.ports);
        let routes = routes(file, &interfaces);
        let stack = tcp::read(file);
        let apps = apps::read(file, &stack);
        if !mode.application && apps.iter().any(|app| app.by_user.is_some()) {
            let legal = "[steer] mode = \"application\"";
            let problem = "an application wants connections at the lcore of their user";
            (file.notes()).error(1, "app.user", problem, legal);
        }
        file.end();
        Self {
            all,
            mode,
            user,
            drain,
            interfaces,
            routes,
            stack,
            apps,
        }
    }
}

fn interfaces(file: &Section<'_>, ports: &[PortStanza]) -> Vec<Interface> {
    let mut all: Vec<Interface> = Vec::new();
    for section in file.tables("interface", "tables: [[interface]] with port and addresses") {
        let names: Vec<String> = ports.iter().map(PortStanza::called).collect();
        let names = (0..).zip(names.iter().map(String::as_str));
        let port = match section.requires("port", "the name of a port") {
            true => section.named::<u16>("port", "the name of a port", "port", names),
            false => None,
        };
        let legal = "a list of addresses such as [\"192.0.2.1/24\", \"2001:db8::1/64\"]";
        let addresses = match section.requires("addresses", legal) {
            true => section.texts("addresses", legal, address),
            false => Vec::new(),
        };
        let mtu = section.number("mtu", 576..=65_535_u16);
        let has_v6 = addresses.iter().any(|at| at.value.0.is_ipv6());
        if let Some(at) = mtu.as_ref().filter(|at| has_v6 && at.value < 1280) {
            let problem = format!("{} is too short for IPv6", at.value);
            section.wrong(at.line, "mtu", problem, "1280 or more (RFC 8200 5)");
        }
        let mac = section.parsed("mac", "a MAC address such as \"02:00:00:00:00:01\"");
        if let Some(at) = &port
            && all.iter().any(|other| other.port == at.value)
        {
            let problem = "this port has an interface already";
            section.wrong(at.line, "port", problem, "one [[interface]] for each port");
        }
        section.end();
        if let Some(port) = port {
            all.push(Interface {
                port: port.value,
                addresses: addresses.into_iter().map(|at| at.value).collect(),
                mtu: mtu.map(|at| at.value),
                mac: mac.map(|at| at.value),
            });
        }
    }
    all
}

fn routes(file: &Section<'_>, interfaces: &[Interface]) -> Vec<Route> {
    let mut all = Vec::new();
    let most = HostConfig::default().max_routes;
    for section in file.tables("route", "tables: [[route]] with to and via") {
        let legal = "a network such as \"0.0.0.0/0\"";
        let to = match section.requires("to", legal) {
            true => section.read("to", legal, network),
            false => None,
        };
        let legal = "the address of a router";
        let via = match section.requires("via", legal) {
            true => section.parsed::<IpAddr>("via", legal),
            false => None,
        };
        section.end();
        let (Some(to), Some(via)) = (to, via) else {
            continue;
        };
        if to.value.0.is_ipv4() != via.value.is_ipv4() {
            let problem = "the router is of another address family than the network";
            section.wrong(via.line, "via", problem, "an address of the same family");
            continue;
        }
        let covers = |&(address, len): &(IpAddr, u8)| {
            Prefix::of(address, len).is_some_and(|network| network.contains(via.value))
        };
        let is_near = |one: &Interface| one.addresses.iter().any(covers);
        match interfaces.iter().position(is_near) {
            Some(_) if all.len() == most => {
                let problem = format!("there are more than {most} routes");
                section.wrong(via.line, "to", problem, "fewer and larger networks");
                break;
            }
            Some(interface) => all.push(Route {
                to: to.value,
                via: via.value,
                interface,
            }),
            None => {
                let problem = format!("{} is in no network of an [[interface]]", via.value);
                section.wrong(via.line, "via", problem, "the address of a neighbour");
            }
        }
    }
    all
}

/// An address of ours with the prefix length of its network.
pub(crate) fn address(text: &str) -> Result<(IpAddr, u8), String> {
    let Cidr { address, len } = text.parse()?;
    if !host::is_host(address) {
        return Err(format!("`{address}` is no address of an interface"));
    }
    Ok((address, len))
}

/// A network and its prefix length, without the bits behind it: as stacks have it.
fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let network = text.parse::<Cidr>()?.network();
    Ok((network.first(), network.len()))
}

/// The value of what a file may say.
fn said<T>(at: Option<At<T>>) -> Option<T> {
    at.map(|at| at.value)
}
