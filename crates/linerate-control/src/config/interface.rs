//! `[[interface]]`, and the interfaces that ports without one get.

use std::net::IpAddr;

use super::{Acl, InterfaceConfig, PortConfig, RouterStanza, VrfConfig, words};
use linerate_appliance::config::{At, Notes, Section};
use linerate_appliance::nearest::offer;
use linerate_routing::model::{Cidr, Vrf};
use linerate_routing::plane::settings::{Advertise, Policer, Urpf};

/// Longest name of a kernel interface in bytes (IFNAMSIZ less its end).
const HOST_INTERFACE_BYTES: usize = 15;
/// The legal addresses of a loopback, for errors.
const HOSTS: &str = "addresses that stand alone, such as \"10.255.0.1/32\" or \"2001:db8::1/128\"";
/// Smallest MTU of a link that carries IPv6 (RFC 8200 5).
const LEAST_MTU6: u16 = 1280;

/// An interface, and its lines in the file.
pub(super) struct Entry {
    pub(super) config: InterfaceConfig,
    line: usize,
    /// Line of each address.
    addresses: Vec<usize>,
}

/// The names that interfaces refer to.
struct Known<'a> {
    router: &'a RouterStanza,
    ports: &'a [At<PortConfig>],
    vrfs: &'a [VrfConfig],
    acls: &'a [Acl],
}

pub(super) fn interfaces(
    file: &Section<'_>,
    notes: &Notes,
    router: &RouterStanza,
    ports: &[At<PortConfig>],
    vrfs: &[VrfConfig],
    acls: &[Acl],
) -> Vec<Entry> {
    let known = Known {
        router,
        ports,
        vrfs,
        acls,
    };
    let mut all: Vec<Entry> = Vec::new();
    let mut configured = vec![false; ports.len()];
    for section in file.tables("interface", "tables: [[interface]] with port and addresses") {
        if let Some(entry) = known.interface(&section) {
            if let Some(port) = entry.config.port {
                configured[usize::from(port)] = true;
            }
            all.push(entry);
        }
        section.end();
    }
    for (number, port) in ports.iter().enumerate() {
        // Of two ports of one name the first gets the interface; `ports` has reported the second.
        let first = |other: &At<PortConfig>| other.value.name == port.value.name;
        if !configured[number] && ports.iter().position(first) == Some(number) {
            all.push(known.bare(number as u16, port, notes));
        }
    }
    check_names(&all, notes, vrfs);
    check_addresses(&all, notes);
    all
}

impl Known<'_> {
    /// The interface of a port that no [[interface]] names.
    fn bare(&self, number: u16, port: &At<PortConfig>, notes: &Notes) -> Entry {
        let name = port.value.name.clone();
        let host_interface = format!("lr-{name}");
        if self.router.kernel && !is_host_interface_name(&host_interface) {
            let problem =
                format!("its host interface in the kernel would be called `{host_interface}`");
            let legal = "a shorter name, or an [[interface]] with a host interface of its own";
            notes.error(port.line, "port.name", problem, legal);
        }
        Entry {
            config: InterfaceConfig {
                name,
                port: Some(number),
                vlan: None,
                vrf: 0,
                addresses: Vec::new(),
                mtu: None,
                host_interface: self.router.kernel.then_some(host_interface),
                urpf: Urpf::Off,
                proxy: false,
                answered: Vec::new(),
                redirects: true,
                reassemble: false,
                acl_in: None,
                acl_out: None,
                policer: None,
                advertise: None,
            },
            line: port.line,
            addresses: Vec::new(),
        }
    }

    fn interface(&self, section: &Section<'_>) -> Option<Entry> {
        match section.switch("loopback").is_some_and(|at| at.value) {
            true => self.loopback(section),
            false => self.of_port(section),
        }
    }

    /// A loopback: an interface without a port, hence with few of the keys.
    fn loopback(&self, section: &Section<'_>) -> Option<Entry> {
        let name = section.required("name", "a name such as \"lo0\"");
        let line = name.as_ref().map_or(section.line, |name| name.line);
        let name = name.map(|at| at.value);
        let vrf = self.vrf(section);
        let addresses = section.texts("addresses", HOSTS, host);
        let host_interface = self.host_interface(section, name.as_deref());
        Some(Entry {
            config: InterfaceConfig {
                name: name?,
                vrf,
                addresses: addresses.iter().map(|at| at.value).collect(),
                host_interface,
                ..InterfaceConfig::empty()
            },
            line,
            addresses: addresses.iter().map(|at| at.line).collect(),
        })
    }

    fn of_port(&self, section: &Section<'_>) -> Option<Entry> {
        let port = section.required("port", "the name of a [[port]]");
        let port = port.and_then(|at| {
            let names = self.ports.iter().map(|port| port.value.name.as_str());
            let found = names.clone().position(|name| name == at.value);
            if found.is_none() {
                let problem = format!("there is no port `{}`", at.value);
                section.wrong(at.line, "port", problem, offer(&at.value, names));
            }
            found
        });
        let vlan = section.number::<u16>("vlan", 1..=4094).map(|at| at.value);
        let vrf = self.vrf(section);
        let addresses = section.texts("addresses", words::CIDR, address);
        let mtu = section.number::<u16>("mtu", 68..=65_521);
        if let Some(at) = mtu.as_ref().filter(|at| at.value < LEAST_MTU6)
            && addresses
                .iter()
                .any(|address| address.value.address.is_ipv6())
        {
            let legal = format!("{LEAST_MTU6} or more (RFC 8200 5), or no IPv6 addresses");
            section.wrong(
                at.line,
                "mtu",
                format!("{} is too small for IPv6", at.value),
                legal,
            );
        }
        let name = section.text("name", "a text");
        let line = name.as_ref().map_or(section.line, |name| name.line);
        let usual = || {
            let port = &self.ports[port?].value.name;
            Some(vlan.map_or_else(|| port.clone(), |vlan| format!("{port}.{vlan}")))
        };
        let name = name.map(|at| at.value).or_else(usual);
        let host_interface = self.host_interface(section, name.as_deref());
        let choices = [
            ("off", Urpf::Off),
            ("loose", Urpf::Loose),
            ("strict", Urpf::Strict),
        ];
        let switch = |key, default| section.switch(key).map_or(default, |at| at.value);
        let config = InterfaceConfig {
            vlan,
            vrf,
            addresses: addresses.iter().map(|at| at.value).collect(),
            mtu: mtu.map(|at| at.value),
            host_interface,
            urpf: section
                .choice("urpf", &choices)
                .map_or(Urpf::Off, |at| at.value),
            proxy: switch("proxy", false),
            answered: Vec::new(),
            redirects: switch("redirects", true),
            reassemble: switch("reassemble", false),
            acl_in: self.acl(section, "acl_in"),
            acl_out: self.acl(section, "acl_out"),
            policer: policer(section),
            advertise: advertise(section, &addresses),
            // Last, so that the other keys are checked as well.
            port: Some(port? as u16),
            name: name?,
        };
        Some(Entry {
            config,
            line,
            addresses: addresses.iter().map(|at| at.line).collect(),
        })
    }

    fn vrf(&self, section: &Section<'_>) -> Vrf {
        let Some(at) = section.text("vrf", "the name of a [[vrf]], or default") else {
            return 0;
        };
        vrf_named(section, &at, self.vrfs)
    }

    fn acl(&self, section: &Section<'_>, key: &'static str) -> Option<u16> {
        let at = section.text(key, "the name of an [[acl]]")?;
        let names = self.acls.iter().map(|acl| acl.name.as_str());
        let found = names.clone().position(|name| name == at.value);
        if found.is_none() {
            let problem = format!("there is no access list `{}`", at.value);
            section.wrong(at.line, key, problem, offer(&at.value, names));
        }
        found.map(|number| number as u16)
    }

    fn host_interface(&self, section: &Section<'_>, name: Option<&str>) -> Option<String> {
        const LEGAL: &str = "1 to 15 bytes without blanks and `/`, or false for no host interface";
        let stated = match section.value("host_interface") {
            None => None,
            Some((value, line)) => match (value.get_ref().as_str(), value.get_ref().as_bool()) {
                (_, Some(false)) => return None,
                (Some(text), _) => Some((text.to_string(), line)),
                _ => {
                    section.wrong(line, "host_interface", "this is no name", LEGAL);
                    return None;
                }
            },
        };
        let (host_interface, line) =
            stated.or_else(|| Some((format!("lr-{}", name?), section.line)))?;
        if !self.router.kernel {
            return None;
        }
        if !is_host_interface_name(&host_interface) {
            let problem = format!("`{host_interface}` is no name of a kernel interface");
            section.wrong(line, "host_interface", problem, LEGAL);
        }
        Some(host_interface)
    }
}

/// The number of a VRF that a key names; an unknown one is an error.
pub(super) fn vrf_named(section: &Section<'_>, at: &At<String>, vrfs: &[VrfConfig]) -> Vrf {
    let names = vrfs.iter().map(|vrf| vrf.name.as_str());
    match names.clone().position(|name| name == at.value) {
        Some(number) => number as Vrf,
        None => {
            let problem = format!("there is no VRF `{}`", at.value);
            section.wrong(at.line, "vrf", problem, offer(&at.value, names));
            0
        }
    }
}

/// dev_valid_name() of Linux.
fn is_host_interface_name(name: &str) -> bool {
    let bad = |c: char| c.is_whitespace() || c == '/' || c == ':';
    (1..=HOST_INTERFACE_BYTES).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(bad)
}

/// An address that an interface can have.
fn address(text: &str) -> Result<Cidr, String> {
    let cidr: Cidr = text.parse()?;
    let network = cidr.network();
    let wrong = match cidr.address {
        IpAddr::V4(v4) => {
            // RFC 1122 3.2.1.3; RFC 3021 lets both ends of a /31 be hosts.
            let host = u32::MAX.checked_shr(cidr.len.into()).unwrap_or(0);
            let bits = u32::from(v4) & host;
            let ends = cidr.len < 31 && (bits == 0 || bits == host);
            let reason = match bits == 0 {
                _ if !ends => "",
                true => "the network itself",
                false => "its broadcast address",
            };
            if v4.is_unspecified() || v4.is_loopback() || v4.is_multicast() || v4.octets()[0] >= 240
            {
                "not an address of a host"
            } else {
                reason
            }
        }
        IpAddr::V6(v6) if v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() => {
            "not an address of a host"
        }
        // RFC 4291 2.6.1: the Subnet-Router anycast address; RFC 6164 lets routers share a /127.
        IpAddr::V6(_) if cidr.len < 127 && network.first() == cidr.address => "the network itself",
        IpAddr::V6(_) => "",
    };
    match wrong {
        "" => Ok(cidr),
        wrong => Err(format!("`{text}` is {wrong}")),
    }
}

/// An address of a loopback, which needs the full prefix length (/32 or /128).
fn host(text: &str) -> Result<Cidr, String> {
    let cidr = address(text)?;
    match is_host(cidr) {
        true => Ok(cidr),
        false => Err(format!("`{text}` is a network, and a loopback has no link")),
    }
}

fn policer(section: &Section<'_>) -> Option<Policer> {
    const LEGAL: &str = "a table such as { rate = \"100Mbit\", burst = \"64kB\" }";
    let table = section.table("interface.policer", "policer", LEGAL)?;
    table.requires("rate", LEGAL);
    let rate = table.read("rate", words::RATE, words::rate);
    table.requires("burst", LEGAL);
    let burst = table.read("burst", words::SIZE, words::size);
    table.end();
    Some(Policer {
        rate_bps: rate?.value,
        burst_bytes: burst?.value,
    })
}

fn advertise(section: &Section<'_>, addresses: &[At<Cidr>]) -> Option<Advertise> {
    const LEGAL: &str = "a table such as { interval = 200, lifetime = 1800 }";
    let table = section.table("interface.advertise", "advertise", LEGAL)?;
    // RFC 4861 6.2.1: MaxRtrAdvInterval and AdvDefaultLifetime.
    let interval = table
        .number::<u16>("interval", 4..=1800)
        .map_or(200, |at| at.value);
    let lifetime = table.number::<u16>("lifetime", 0..=9000);
    if let Some(at) = lifetime
        .as_ref()
        .filter(|at| at.value != 0 && at.value < interval)
    {
        let problem = format!("{} s end before the next advertisement", at.value);
        let legal = format!("0, or {interval} (the interval) to 9000");
        table.wrong(at.line, "lifetime", problem, legal);
    }
    if !addresses.iter().any(|at| at.value.address.is_ipv6()) {
        let legal = "an IPv6 address among `addresses`";
        table.wrong(
            table.line,
            "interval",
            "there is nothing to advertise",
            legal,
        );
    }
    let switch = |key| table.switch(key).is_some_and(|at| at.value);
    let advertise = Advertise {
        interval_s: interval,
        lifetime_s: lifetime.map_or(interval.saturating_mul(3).clamp(1800, 9000), |at| at.value),
        managed: switch("managed"),
        other: switch("other"),
    };
    table.end();
    Some(advertise)
}

/// Each interface has a name, a tag of its port and a host interface of its own.
fn check_names(all: &[Entry], notes: &Notes, vrfs: &[VrfConfig]) {
    for (index, entry) in all.iter().enumerate() {
        let (own, before) = (&entry.config, &all[..index]);
        if before.iter().any(|other| other.config.name == own.name) {
            let problem = format!("`{}` names two interfaces", own.name);
            notes.error(entry.line, "interface.name", problem, "a name of its own");
        }
        let tag = |other: &&Entry| {
            own.port.is_some() && (other.config.port, other.config.vlan) == (own.port, own.vlan)
        };
        if let Some(other) = before.iter().find(tag) {
            let what = own
                .vlan
                .map_or("the untagged frames".into(), |vlan| format!("VLAN {vlan}"));
            let problem = format!("`{}` has {what} of that port already", other.config.name);
            notes.error(
                entry.line,
                "interface.vlan",
                problem,
                "another vlan, 1 to 4094",
            );
        }
        let netns = |config: &InterfaceConfig| vrfs[config.vrf as usize].netns.as_deref();
        let host_interface = |other: &&Entry| {
            own.host_interface.is_some()
                && other.config.host_interface == own.host_interface
                && netns(&other.config) == netns(own)
        };
        if let (Some(other), Some(name)) = (before.iter().find(host_interface), &own.host_interface)
        {
            let problem = format!("`{name}` is the host interface of `{}`", other.config.name);
            notes.error(
                entry.line,
                "interface.host_interface",
                problem,
                "a name of its own",
            );
        }
    }
}

/// Within a VRF an address is on one interface, and so is a network.
fn check_addresses(all: &[Entry], notes: &Notes) {
    let mut seen: Vec<(&Entry, Cidr)> = Vec::new();
    for entry in all {
        for (&cidr, &line) in entry.config.addresses.iter().zip(&entry.addresses) {
            let clash = seen.iter().find(|(other, with)| {
                other.config.vrf == entry.config.vrf && clashes(entry, cidr, other, *with)
            });
            if let Some((other, with)) = clash {
                let name = &other.config.name;
                let problem = match with.address == cidr.address {
                    true => format!("`{name}` has {} already", with.address),
                    false => format!("{} overlaps {with} of `{name}`", cidr.network()),
                };
                let legal = "another network, or another vrf";
                notes.error(line, "interface.addresses", problem, legal);
            }
            seen.push((entry, cidr));
        }
    }
}

fn clashes(entry: &Entry, cidr: Cidr, other: &Entry, with: Cidr) -> bool {
    let same_interface = std::ptr::eq(entry, other);
    let link_local = |cidr: Cidr| match cidr.address {
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    if link_local(cidr) && link_local(with) {
        // fe80::/10 is on every link, and a router may have the same address on all of them.
        return same_interface && cidr.address == with.address;
    }
    let overlap = cidr.network().contains(with.network().first())
        || with.network().contains(cidr.network().first());
    cidr.address == with.address || (!same_interface && overlap && !is_host(cidr) && !is_host(with))
}

/// Whether the prefix is a single address.
fn is_host(cidr: Cidr) -> bool {
    cidr.len == if cidr.address.is_ipv4() { 32 } else { 128 }
}
