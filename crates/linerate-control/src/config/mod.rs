//! The configuration file of a router: read, checked as a whole, explained.
//!
//! [`Config::parse`] gives a configuration that can run, or every [`ConfigError`] about the file at
//! once, by [`Section`]s. `stanzas`, `interface`, `route` and `acl` are one kind of stanza each;
//! `explain` is what `--check` prints, `keeping` what a reload does with numbers. What a key means
//! stands in `docs/router.md`.

mod acl;
mod explain;
mod interface;
mod keeping;
mod route;
mod stanzas;
#[cfg(test)]
mod tests;
pub mod words;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use linerate_wire::MacAddr;

use crate::extension::{Appliance, Own};
use linerate_appliance::config::{self, Parsed, PlanStanza, Section, Wrong};
use linerate_appliance::error::Error;
use linerate_appliance::privilege::Named;
use linerate_appliance::socket::usual_socket;
use linerate_appliance::users::User;
use linerate_routing::model::{Cidr, InterfaceId, Prefix, Vrf};
use linerate_routing::plane::acl::AccessList;
use linerate_routing::plane::punt::Rates;
use linerate_routing::plane::settings::{Advertise, Policer, Urpf};

pub use acl::Acl;
pub use explain::explain;
pub use linerate_appliance::config::ConfigError;

/// A configuration that can run.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Whose it is.
    pub appliance: Appliance,
    pub plan: PlanStanza,
    pub router: RouterStanza,
    pub ports: Vec<PortConfig>,
    /// By number; the first is `default`.
    pub vrfs: Vec<VrfConfig>,
    /// By [`InterfaceId`].
    pub interfaces: Vec<InterfaceConfig>,
    pub routes: Vec<RouteConfig>,
    pub neighbours: Vec<NeighbourConfig>,
    /// By the number that interfaces refer to them by.
    pub acls: Vec<Arc<Acl>>,
    /// The same, compiled, where that was done on the thread that read the file.
    pub lists: Vec<Arc<AccessList>>,
    /// Stanzas of the appliance's own.
    pub own: Option<Own>,
    /// What the appliance has made of them on the thread that read the file.
    pub prepared: Option<Own>,
    /// Warnings, by line.
    pub warnings: Vec<ConfigError>,
}

/// `[router]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterStanza {
    /// Socket of `linerate ctl`; the usual one where absent.
    pub control: Option<PathBuf>,
    /// The user that the packet process runs as, where root starts it; see
    /// [`privilege`](linerate_appliance::privilege) where absent.
    pub user: Option<User>,
    pub metrics: Option<SocketAddr>,
    pub fpm: Option<SocketAddr>,
    /// The user whose zebra may connect from this machine, besides root; FRR's user where absent.
    pub fpm_user: Option<User>,
    pub kernel: bool,
    /// Time between two lines of statistics.
    pub period: Option<Duration>,
    /// Time after which the router ends by itself.
    pub duration: Option<Duration>,
    /// Limit of routes of each family, and of neighbours.
    pub routes: u32,
    pub neighbours: u32,
    /// How many VRFs may have the arrays that make lookups in a large table faster.
    pub flat_tables: u32,
    /// How many unresolved neighbours the packets of one source may make the router ask for, a
    /// second.
    pub neighbour_scan: u32,
    /// How long routes that FRR or the kernel does not repeat after a restart are kept.
    pub graceful: Duration,
    /// Limits of the packets of each kind that the slow worker gets.
    pub punts: Rates,
    /// Receive queues of each port, largest burst, packets alive at once.
    pub queues: u16,
    pub burst: u16,
    pub pool_slots: Option<u32>,
    /// Whether idle lcores sleep.
    pub sleep: bool,
}

impl Config {
    /// What the configuration needs privileges for.
    pub fn named(&self) -> Named {
        let host = |interface: &InterfaceConfig| {
            let netns = self.vrfs[interface.vrf as usize].netns.clone();
            Some((netns, interface.host_interface.clone()?))
        };
        let control = self.router.control.clone();
        Named {
            ports: self.ports.iter().map(|port| port.spec.clone()).collect(),
            host_interfaces: self.interfaces.iter().filter_map(host).collect(),
            control: control.unwrap_or_else(usual_socket),
            user: self.router.user.clone(),
        }
    }
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
            duration: None,
            routes: 1_000_000,
            neighbours: 65_536,
            flat_tables: 1,
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
pub struct PortConfig {
    pub name: String,
    pub spec: String,
}

impl PortConfig {
    /// Holds the number of a port that was removed, or a number that is not a port's.
    fn gone() -> Self {
        Self {
            name: String::new(),
            spec: String::new(),
        }
    }

    /// Whether this only reserves a number.
    pub fn is_gone(&self) -> bool {
        self.name.is_empty()
    }
}

/// `[[vrf]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VrfConfig {
    pub name: String,
    /// Table of its routes in the kernel and in FPM messages.
    pub table: Option<u32>,
    /// Network name space of its host interfaces, by the name that `ip netns` has for it.
    pub netns: Option<String>,
    /// Whether the VRF also has the main table of that name space.
    pub has_main: bool,
}

impl VrfConfig {
    /// Holds the number of a VRF that was removed.
    fn gone() -> Self {
        Self {
            name: String::new(),
            table: None,
            netns: None,
            has_main: false,
        }
    }

    /// Whether this only reserves a number.
    pub fn is_gone(&self) -> bool {
        self.name.is_empty()
    }
}

/// `[[interface]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct InterfaceConfig {
    pub name: String,
    /// Number of its port; a loopback has none.
    pub port: Option<u16>,
    pub vlan: Option<u16>,
    pub vrf: Vrf,
    pub addresses: Vec<Cidr>,
    /// Largest IP packet in bytes; the port's where absent.
    pub mtu: Option<u16>,
    /// Name of its host interface in the kernel.
    pub host_interface: Option<String>,
    pub urpf: Urpf,
    pub proxy: bool,
    /// Addresses besides its own that are its appliance's to answer for, as first and last ones.
    pub answered: Vec<(IpAddr, IpAddr)>,
    pub redirects: bool,
    pub reassemble: bool,
    pub acl_in: Option<u16>,
    pub acl_out: Option<u16>,
    pub policer: Option<Policer>,
    pub advertise: Option<Advertise>,
}

/// `[[route]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    pub vrf: Vrf,
    pub prefix: Prefix,
    pub to: RouteTo,
    /// Of several routes to a prefix the one with the smallest distance is used.
    pub distance: u8,
}

/// Where a static route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTo {
    Via(Vec<Via>),
    Blackhole,
    Unreachable,
    Prohibit,
}

/// One next hop: an address, an interface, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    pub address: Option<IpAddr>,
    pub interface: Option<InterfaceId>,
    /// Share of the flows among several next hops.
    pub weight: u16,
}

/// `[[neighbour]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourConfig {
    pub interface: InterfaceId,
    pub address: IpAddr,
    pub mac: MacAddr,
}

impl InterfaceConfig {
    /// An interface without a port and with defaults: the start of a loopback, and the holder of
    /// the number of an interface that was removed.
    fn empty() -> Self {
        Self {
            name: String::new(),
            port: None,
            vlan: None,
            vrf: 0,
            addresses: Vec::new(),
            mtu: None,
            host_interface: None,
            urpf: Urpf::Off,
            proxy: false,
            answered: Vec::new(),
            redirects: false,
            reassemble: false,
            acl_in: None,
            acl_out: None,
            policer: None,
            advertise: None,
        }
    }

    /// Whether this only reserves a number.
    pub fn is_gone(&self) -> bool {
        self.name.is_empty()
    }

    /// Whether it has addresses and no port.
    pub fn is_loopback(&self) -> bool {
        self.port.is_none() && !self.is_gone()
    }
}

impl Config {
    /// Reads and checks a file of this appliance.
    ///
    /// # Errors
    /// All that is wrong with it, in one error.
    pub fn read(appliance: Appliance, path: &Path) -> Result<Self, Error> {
        Self::of(appliance, path, fs::read_to_string(path))
    }

    /// Checks what was read from a file.
    ///
    /// # Errors
    /// It could not be read; or all that is wrong with it, in one error.
    pub fn of(appliance: Appliance, path: &Path, read: io::Result<String>) -> Result<Self, Error> {
        let text = read.map_err(|source| Error::File {
            path: path.into(),
            source,
        })?;
        Self::parse_for(appliance, &text).map_err(|errors| refusal(appliance, path, errors))
    }

    /// Reads and checks a text of a router.
    ///
    /// # Errors
    /// All that is wrong with it, by line.
    pub fn parse(text: &str) -> Result<Self, Vec<ConfigError>> {
        Self::parse_for(Appliance::default(), text)
    }

    /// Reads and checks a text of this appliance.
    ///
    /// # Errors
    /// All that is wrong with it, by line.
    pub fn parse_for(appliance: Appliance, text: &str) -> Result<Self, Vec<ConfigError>> {
        let Parsed {
            value: config,
            errors,
            warnings,
        } = config::parse(text, |file| Self::build(appliance, file));
        match errors.is_empty() {
            true => Ok(Self { warnings, ..config }),
            false => Err(errors),
        }
    }

    /// Reads what is right in a file; what is wrong is collected as errors.
    fn build(appliance: Appliance, file: &Section<'_>) -> Self {
        let notes = file.notes();
        let plan = config::plan(file);
        let router = stanzas::router(file);
        let ports = stanzas::ports(file);
        let vrfs = stanzas::vrfs(file);
        let acls = acl::acls(file);
        let interfaces = interface::interfaces(file, notes, &router, &ports, &vrfs, &acls);
        let routes = route::routes(file, notes, &vrfs, &interfaces);
        let neighbours = route::neighbours(file, notes, &interfaces);
        let mut config = Self {
            appliance,
            plan,
            router,
            ports: ports.into_iter().map(|port| port.value).collect(),
            vrfs,
            interfaces: interfaces.into_iter().map(|entry| entry.config).collect(),
            routes,
            neighbours,
            acls: acls.into_iter().map(Arc::new).collect(),
            lists: Vec::new(),
            own: None,
            prepared: None,
            warnings: Vec::new(),
        };
        config.own = appliance.read(file, &mut config);
        file.end();
        config
    }

    /// The gateways of static routes, each with the interface on whose network it is.
    pub fn gateways(&self) -> HashSet<(InterfaceId, IpAddr)> {
        let mut all = HashSet::new();
        for route in &self.routes {
            let RouteTo::Via(next_hops) = &route.to else {
                continue;
            };
            for via in next_hops {
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
    pub fn tables(&self) -> impl Iterator<Item = Option<u32>> {
        self.vrfs.iter().map(|vrf| vrf.table)
    }
}

/// One error that shows every error, a line each.
fn refusal(appliance: Appliance, path: &Path, errors: Vec<ConfigError>) -> Error {
    let file = path.display();
    let mut wrong = Wrong::default();
    wrong.add(&file, errors);
    Error::Config(wrong.checked_by(format!("linerate {} {file} --check", appliance.name())))
}
