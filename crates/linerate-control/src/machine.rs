//! What a configuration needs of this machine: interfaces without addresses of the kernel that no
//! other router uses, network name spaces, folders.
//!
//! `--check` lists all that is missing; a start and a reload refuse it before they change anything.

use std::path::{Path, PathBuf};

use linerate_core::port::Spec;
use rustix::net::sockopt::socket_peercred;

use super::config::{Config, PortConfig};
use super::extension::Appliance;
use linerate_appliance::error::Error;
use linerate_appliance::nearest::offer;
use linerate_appliance::netlink::host_interface::{Kernel, Link};
use linerate_appliance::runtime::claim;
use linerate_appliance::socket::usual_socket;
use linerate_routing::model::Cidr;

/// Where `ip netns` keeps its names.
const NETNS: &str = "/run/netns";
/// The folder that a router makes for its socket.
const OF_THE_MACHINE: &str = "/run/linerate";

/// One problem of the machine.
struct Hindrance {
    /// The part of the file that it concerns.
    of: String,
    problem: String,
    fix: String,
}

/// The kind of a port and the interface of the kernel that it is on, where it is on one.
pub(crate) fn interface_of(spec: &str) -> Option<(String, String)> {
    let spec: Spec = spec.parse().ok()?;
    let both = (spec.kind().to_string(), spec.target().to_string());
    matches!(spec.kind(), "af_packet" | "af_xdp").then_some(both)
}

/// Checks that the machine has all that the file at `path` needs, and that nothing else uses it,
/// except a router that runs from the same file.
///
/// # Errors
/// All problems, in one error.
pub(crate) fn check(path: &Path, config: &Config) -> Result<(), Error> {
    let mut found = hindrances(config)?;
    let socket = config.router.control.clone().unwrap_or_else(usual_socket);
    let own = listener(&socket);
    for port in &config.ports {
        let Some(interface) = claim::wanted(&port.spec) else {
            continue;
        };
        let holder = claim::holder(&interface);
        // A listener whose process is unknown counts as the router that runs from this file.
        let is_own = |by: &Option<i32>| own.is_some() && (by.is_none() || *by == own);
        if let Some(by) = holder.filter(|by| !is_own(by)) {
            let problem = claim::taken(&interface, by);
            let (problem, fix) = problem.split_once("; ").unwrap_or((&problem, ""));
            found.push(Hindrance::of(port, problem, fix));
        }
    }
    outcome(config.appliance, path, &found)
}

/// The same without the check for running routers: a start takes its interfaces itself.
///
/// # Errors
/// All problems, in one error.
pub(crate) fn check_start(path: &Path, config: &Config) -> Result<(), Error> {
    outcome(config.appliance, path, &hindrances(config)?)
}

/// Checks that the kernel has no addresses on the interfaces of these ports, which a reload adds.
///
/// # Errors
/// All problems, in one error.
pub(crate) fn check_ports<'a>(
    appliance: Appliance,
    path: &Path,
    ports: impl IntoIterator<Item = &'a PortConfig>,
) -> Result<(), Error> {
    let mut found = Vec::new();
    of_ports(ports, &mut found)?;
    outcome(appliance, path, &found)
}

fn hindrances(config: &Config) -> Result<Vec<Hindrance>, Error> {
    let mut found = Vec::new();
    of_ports(&config.ports, &mut found)?;
    for port in &config.ports {
        of_files(port, &mut found);
    }
    let spaces = config
        .interfaces
        .iter()
        .filter(|one| one.host_interface.is_some());
    let mut spaces: Vec<&str> = spaces
        .filter_map(|one| config.vrfs[one.vrf as usize].netns.as_deref())
        .collect();
    spaces.sort_unstable();
    spaces.dedup();
    for space in spaces {
        if !Path::new(NETNS).join(space).exists() {
            found.push(Hindrance {
                of: format!("netns `{space}`"),
                problem: "there is no such network name space".into(),
                fix: format!("`ip netns add {space}`"),
            });
        }
    }
    if let Some(socket) = &config.router.control {
        let of = format!("control `{}`", socket.display());
        let folder = folder(socket);
        if folder != Path::new(OF_THE_MACHINE) {
            of_folder(&of, &folder, &mut found);
        }
    }
    Ok(found)
}

/// Problems of ports on interfaces of the kernel.
fn of_ports<'a>(
    ports: impl IntoIterator<Item = &'a PortConfig>,
    found: &mut Vec<Hindrance>,
) -> Result<(), Error> {
    let below = |port: &'a PortConfig| Some((port, interface_of(&port.spec)?.1));
    let below: Vec<_> = ports.into_iter().filter_map(below).collect();
    if below.is_empty() {
        return Ok(());
    }
    let mut kernel = Kernel::open(None)?;
    let links = kernel.links()?;
    for (port, name) in below {
        let Some(link) = links.iter().find(|link| link.name == name) else {
            let names = links.iter().map(|link| link.name.as_str());
            let problem = format!("there is no interface `{name}`");
            found.push(Hindrance::of(port, &problem, &offer(&name, names)));
            continue;
        };
        if !link.up {
            let problem = format!("interface `{name}` is down");
            let fix = format!("bring it up: `ip link set {name} up`");
            found.push(Hindrance::of(port, &problem, &fix));
        }
        // With a filter the kernel answers what the filter does not match.
        if claim::wanted(&port.spec).is_some() {
            of_addresses(port, link, &kernel.addresses(link.index)?, found);
        }
    }
    Ok(())
}

/// An address of the kernel on a port's interface: with `af_packet` the kernel answers beside the
/// router, with `af_xdp` it receives nothing any more.
fn of_addresses(port: &PortConfig, link: &Link, all: &[Cidr], found: &mut Vec<Hindrance>) {
    // These disappear when the sysctl guard silences the kernel on the interface.
    let counts = |cidr: &&Cidr| match cidr.address {
        std::net::IpAddr::V4(_) => true,
        std::net::IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    let had: Vec<String> = all.iter().filter(counts).map(Cidr::to_string).collect();
    if had.is_empty() {
        return;
    }
    let name = &link.name;
    let what = match port.spec.starts_with("af_xdp") {
        true => "receives nothing there any more (logins over it are cut off)",
        false => "answers there beside the router",
    };
    let problem = format!("the kernel has {} on `{name}`, and {what}", had.join(", "));
    let (four, six): (Vec<&Cidr>, Vec<&Cidr>) =
        (all.iter().filter(counts)).partition(|cidr| cidr.address.is_ipv4());
    let mut take: Vec<String> = four
        .iter()
        .map(|cidr| format!("ip addr del {cidr} dev {name}"))
        .collect();
    if !six.is_empty() {
        // Addresses from router advertisements would come again.
        take.push(format!("sysctl -w net.ipv6.conf.{name}.disable_ipv6=1"));
    }
    let fix = format!(
        "give the router the addresses that it is to answer for (`addresses = {had:?}` of its \
         [[interface]]), and take it from the kernel: `{}`",
        take.join("; ")
    );
    found.push(Hindrance::of(port, &problem, &fix));
}

/// Files that a port reads and writes.
fn of_files(port: &PortConfig, found: &mut Vec<Hindrance>) {
    let Ok(spec) = port.spec.parse::<Spec>() else {
        return;
    };
    let is_pcap = spec.kind() == "pcap";
    let written = [("capture", true), ("trace", true), ("tx", is_pcap)];
    for (key, _) in written.iter().filter(|(_, is_file)| *is_file) {
        if let Some(file) = spec.text(key).filter(|file| *file != "-") {
            let of = format!("port `{}` ({key}={file})", port.name);
            of_folder(&of, &folder(Path::new(file)), found);
        }
    }
    if let Some(file) = spec
        .text("rx")
        .filter(|file| is_pcap && !Path::new(file).is_file())
    {
        let problem = format!("there is no file `{file}`");
        found.push(Hindrance::of(port, &problem, "name a capture to read"));
    }
    if let Some(space) = spec
        .text("netns")
        .filter(|space| !Path::new(NETNS).join(space).exists())
    {
        let problem = format!("there is no network name space `{space}`");
        found.push(Hindrance::of(
            port,
            &problem,
            &format!("`ip netns add {space}`"),
        ));
    }
}

fn of_folder(of: &str, folder: &Path, found: &mut Vec<Hindrance>) {
    if !folder.is_dir() {
        let folder = folder.display();
        found.push(Hindrance {
            of: of.into(),
            problem: format!("there is no folder `{folder}`"),
            fix: format!("`mkdir -p {folder}`"),
        });
    }
}

/// The folder of a file.
fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder.into(),
        _ => ".".into(),
    }
}

/// The process that listens at a socket.
fn listener(socket: &Path) -> Option<i32> {
    let stream = std::os::unix::net::UnixStream::connect(socket).ok()?;
    let peer = socket_peercred(stream).ok()?;
    Some(peer.pid.as_raw_nonzero().get())
}

impl Hindrance {
    fn of(port: &PortConfig, problem: &str, fix: &str) -> Self {
        Self {
            of: format!("port `{}` ({})", port.name, port.spec),
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

/// All problems as one error.
fn outcome(appliance: Appliance, path: &Path, found: &[Hindrance]) -> Result<(), Error> {
    let (name, file) = (appliance.name(), path.display());
    match found {
        [] => Ok(()),
        [one] => Err(Error::Usage {
            problem: format!("{file}: {}: {}", one.of, one.problem),
            fix: one.fix.clone(),
        }),
        several => {
            let lines = several
                .iter()
                .map(|one| format!("\n{}: {}: {}", one.of, one.problem, one.fix));
            Err(Error::Usage {
                problem: format!(
                    "{file}: {} problems of this machine{}",
                    several.len(),
                    lines.collect::<String>()
                ),
                fix: format!("correct these; `linerate {name} {file} --check` looks again"),
            })
        }
    }
}
