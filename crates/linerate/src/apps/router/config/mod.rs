//! The configuration file of `linerate router`: read, checked as a whole, explained.
//!
//! [`Config::parse`] gives a configuration that can run, or every [`Complaint`] about the file at once.
//! [`section`] reads tables key by key; `stanzas`, `interface`, `route` and `acl` are one kind of stanza
//! each; `explain` is what `--check` prints, `keeping` what a reload does with numbers. What a key means
//! stands in `docs/router.md`.

mod acl;
mod explain;
mod interface;
mod keeping;
mod route;
mod section;
mod stanzas;
#[cfg(test)]
mod tests;
mod words;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use linerate_wire::MacAddr;
use toml::de::DeTable;

use crate::apps::router::model::{Cidr, InterfaceId, Prefix, Vrf};
use crate::apps::router::plane::punt::Rates;
use crate::apps::router::plane::settings::{Advertise, Policer, Urpf};
use crate::config::PlanStanza;
use crate::error::Error;
use crate::users::User;

pub(crate) use acl::Acl;
pub(crate) use explain::explain;
pub(crate) use section::Complaint;
use section::{Notes, Section};

/// Kernel table of the default VRF's routes (RT_TABLE_MAIN).
pub(crate) const MAIN_TABLE: u32 = 254;

/// A configuration that can run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) plan: PlanStanza,
    pub(crate) router: RouterStanza,
    pub(crate) ports: Vec<PortConfig>,
    /// By number; the first is `default`.
    pub(crate) vrfs: Vec<VrfConfig>,
    /// By [`InterfaceId`].
    pub(crate) interfaces: Vec<InterfaceConfig>,
    pub(crate) routes: Vec<RouteConfig>,
    pub(crate) neighbours: Vec<NeighbourConfig>,
    /// By the number that interfaces have for them.
    pub(crate) acls: Vec<Acl>,
    /// What is odd about it, by line.
    pub(crate) warnings: Vec<Complaint>,
}

/// `[router]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouterStanza {
    /// Socket of `linerate ctl`; the usual one where absent.
    pub(crate) control: Option<PathBuf>,
    /// Whose the process is that sees packets, where root starts it; see [`keeper`](super::keeper)
    /// where absent.
    pub(crate) user: Option<User>,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) fpm: Option<SocketAddr>,
    /// Whose zebra may connect on this machine, besides root's; FRR's where absent.
    pub(crate) fpm_user: Option<User>,
    pub(crate) kernel: bool,
    /// Between two lines of statistics.
    pub(crate) period: Option<Duration>,
    /// Most routes of each family, and most neighbours.
    pub(crate) routes: u32,
    pub(crate) neighbours: u32,
    /// Neighbours that do not answer which packets of one source may have asked for a second.
    pub(crate) neighbour_scan: u32,
    /// How long routes stay that FRR or the kernel does not repeat after a restart.
    pub(crate) graceful: Duration,
    /// How much the slow worker gets of each kind of packet at most.
    pub(crate) punts: Rates,
    /// Receive queues of each port, largest burst, packets alive at once.
    pub(crate) queues: u16,
    pub(crate) burst: u16,
    pub(crate) pool_slots: Option<u32>,
    /// Whether idle lcores sleep.
    pub(crate) sleep: bool,
}

impl Default for RouterStanza {
    fn default() -> Self {
        Self {
            control: None,
            user: None,
            metrics: None,
            fpm: None,
            fpm_user: None,
            kernel: true,
            period: Some(Duration::from_secs(10)),
            routes: 1_000_000,
            neighbours: 65_536,
            neighbour_scan: 100,
            graceful: Duration::from_secs(60),
            punts: Rates::default(),
            queues: 1,
            burst: 64,
            pool_slots: None,
            sleep: true,
        }
    }
}

/// `[[port]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortConfig {
    pub(crate) name: String,
    pub(crate) spec: String,
}

impl PortConfig {
    /// What has the number of a port that there is no more, or of something that is none.
    fn gone() -> Self {
        Self {
            name: String::new(),
            spec: String::new(),
        }
    }

    /// Whether it only keeps a number from being used.
    pub(crate) fn is_gone(&self) -> bool {
        self.name.is_empty()
    }
}

/// `[[vrf]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VrfConfig {
    pub(crate) name: String,
    /// Table of its routes in the kernel and in FPM messages.
    pub(crate) table: Option<u32>,
    /// Network name space of its twins, by the name that `ip netns` has for it.
    pub(crate) netns: Option<String>,
    /// Whether the main table of that name space is its, besides its own.
    pub(crate) has_main: bool,
}

impl VrfConfig {
    /// What has the number of a VRF that there is no more.
    fn gone() -> Self {
        Self {
            name: String::new(),
            table: None,
            netns: None,
            has_main: false,
        }
    }

    /// Whether it only keeps a number from being used.
    pub(crate) fn is_gone(&self) -> bool {
        self.name.is_empty()
    }
}

/// `[[interface]]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InterfaceConfig {
    pub(crate) name: String,
    /// Number of its port; a loopback has none.
    pub(crate) port: Option<u16>,
    pub(crate) vlan: Option<u16>,
    pub(crate) vrf: Vrf,
    pub(crate) addresses: Vec<Cidr>,
    /// Largest IP packet in bytes; the port's where absent.
    pub(crate) mtu: Option<u16>,
    /// Name of its twin in the kernel.
    pub(crate) twin: Option<String>,
    pub(crate) urpf: Urpf,
    pub(crate) proxy: bool,
    pub(crate) redirects: bool,
    pub(crate) reassemble: bool,
    pub(crate) acl_in: Option<u16>,
    pub(crate) acl_out: Option<u16>,
    pub(crate) policer: Option<Policer>,
    pub(crate) advertise: Option<Advertise>,
}

/// `[[route]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteConfig {
    pub(crate) vrf: Vrf,
    pub(crate) prefix: Prefix,
    pub(crate) to: RouteTo,
    /// The route with the smallest is taken.
    pub(crate) distance: u8,
}

/// Where a static route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteTo {
    Via(Vec<Via>),
    Blackhole,
    Unreachable,
    Prohibit,
}

/// One way: an address, an interface, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Via {
    pub(crate) address: Option<IpAddr>,
    pub(crate) interface: Option<InterfaceId>,
    /// Share among several.
    pub(crate) weight: u16,
}

/// `[[neighbour]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeighbourConfig {
    pub(crate) interface: InterfaceId,
    pub(crate) address: IpAddr,
    pub(crate) mac: MacAddr,
}

impl InterfaceConfig {
    /// Without a port, and asking for nothing: how a loopback begins, and what has the number of an interface that
    /// there is no more.
    fn empty() -> Self {
        Self {
            name: String::new(),
            port: None,
            vlan: None,
            vrf: 0,
            addresses: Vec::new(),
            mtu: None,
            twin: None,
            urpf: Urpf::Off,
            proxy: false,
            redirects: false,
            reassemble: false,
            acl_in: None,
            acl_out: None,
            policer: None,
            advertise: None,
        }
    }

    /// Whether it only keeps a number from being used.
    pub(crate) fn is_gone(&self) -> bool {
        self.name.is_empty()
    }

    /// Whether it has addresses, and no wire.
    pub(crate) fn is_loopback(&self) -> bool {
        self.port.is_none() && !self.is_gone()
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All that is wrong with it, in one error.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        Self::of(path, fs::read_to_string(path))
    }

    /// Checks what was read from a file.
    ///
    /// # Errors
    /// It could not be read; or all that is wrong with it, in one error.
    pub(crate) fn of(path: &Path, read: io::Result<String>) -> Result<Self, Error> {
        let text = read.map_err(|source| Error::File {
            path: path.into(),
            source,
        })?;
        Self::parse(&text).map_err(|complaints| refusal(path, &complaints))
    }

    /// Reads and checks a text.
    ///
    /// # Errors
    /// All that is wrong with it, by line.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<Complaint>> {
        let notes = Notes::new(text);
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let line = error.span().map_or(1, |span| notes.line_of(span.start));
            notes.error(line, "", error.message(), "see https://toml.io");
        }
        let config = Self::build(document.get_ref(), &notes);
        let (errors, warnings) = notes.sorted();
        match errors.is_empty() {
            true => Ok(Self { warnings, ..config }),
            false => Err(errors),
        }
    }

    /// What can be made of a document; what cannot is noted.
    fn build<'a>(document: &'a DeTable<'a>, notes: &'a Notes) -> Self {
        let file = Section::new("", 0, document, notes);
        let plan = stanzas::plan(&file);
        let router = stanzas::router(&file);
        let ports = stanzas::ports(&file);
        let vrfs = stanzas::vrfs(&file);
        let acls = acl::acls(&file);
        let interfaces = interface::interfaces(&file, notes, &router, &ports, &vrfs, &acls);
        let routes = route::routes(&file, notes, &vrfs, &interfaces);
        let neighbours = route::neighbours(&file, notes, &interfaces);
        file.end();
        Self {
            plan,
            router,
            ports: ports.into_iter().map(|port| port.value).collect(),
            vrfs,
            interfaces: interfaces.into_iter().map(|entry| entry.config).collect(),
            routes,
            neighbours,
            acls,
            warnings: Vec::new(),
        }
    }

    /// The gateways of static routes, each with the interface on whose network it is.
    pub(crate) fn gateways(&self) -> HashSet<(InterfaceId, IpAddr)> {
        let mut all = HashSet::new();
        for route in &self.routes {
            let RouteTo::Via(ways) = &route.to else {
                continue;
            };
            for via in ways {
                let Some(address) = via.address else { continue };
                let on = |interface: &&InterfaceConfig| {
                    let mut addresses = interface.addresses.iter();
                    interface.vrf == route.vrf
                        && addresses.any(|cidr| cidr.network().contains(address))
                };
                let around = || self.interfaces.iter().position(|one| on(&one));
                let around = || around().map(|place| InterfaceId(place as u16));
                all.extend(via.interface.or_else(around).map(|id| (id, address)));
            }
        }
        all
    }

    /// The kernel's table of each VRF, by number.
    pub(crate) fn tables(&self) -> impl Iterator<Item = Option<u32>> {
        self.vrfs.iter().map(|vrf| vrf.table)
    }
}

/// One error that shows every complaint, a line each.
fn refusal(path: &Path, complaints: &[Complaint]) -> Error {
    let file = path.display();
    let lines: Vec<String> = complaints
        .iter()
        .map(|complaint| format!("{file}:{complaint}"))
        .collect();
    Error::Usage {
        problem: match lines.as_slice() {
            [one] => one.clone(),
            several => format!(
                "{file}: {} things are wrong\n{}",
                several.len(),
                several.join("\n")
            ),
        },
        fix: format!("correct these lines; `linerate router {file} --check` looks again"),
    }
}
