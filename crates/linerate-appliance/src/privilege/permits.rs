//! The requests that a configuration permits.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use linerate_core::port::Spec;
use rustix::thread::CapabilitySet;

use super::protocol::Request;
use crate::error::Error;
use crate::users::User;

/// Most room for events that a socket may have, in bytes.
const MOST_ROOM: usize = 64 << 20;
/// Longest time that a socket may keep a CPU polling, in microseconds: as `busy_poll=` has it.
const MOST_BUSY_POLL_US: u32 = 10_000;
/// Longest filter, in bytes.
const MOST_FILTER: usize = 4096;

/// A TAP: its network name space, and its name there.
pub(super) type Tap = (Option<String>, String);

/// The parts of a configuration that need privileges.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// Specifications of ports, `KIND:TARGET[,key=value...]`.
    pub ports: Vec<String>,
    /// Host interfaces: the network name space of each, and its name there.
    pub host_interfaces: Vec<Tap>,
    /// Where the control socket is.
    pub control: PathBuf,
    /// The user that a process started by root becomes; the package's user or nobody when absent.
    pub user: Option<User>,
}

/// Reads the names from a configuration file of an appliance.
pub type ReadNamed = fn(&Path) -> Result<Named, Error>;

/// Names that a configuration has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Permits {
    packet: BTreeSet<String>,
    xdp: BTreeSet<String>,
    /// Of ports.
    taps: BTreeSet<Tap>,
    host_interfaces: BTreeSet<Tap>,
    /// Files that ports read, and those that they write.
    read: BTreeSet<PathBuf>,
    written: BTreeSet<PathBuf>,
}

impl Permits {
    pub(super) fn of(named: &Named) -> Self {
        let mut permits = Self::default();
        for port in &named.ports {
            // The driver reports errors of a specification.
            let Ok(spec) = port.parse::<Spec>() else {
                continue;
            };
            let file = |key| spec.text(key).map(PathBuf::from);
            permits
                .written
                .extend(["capture", "trace"].map(file).into_iter().flatten());
            let name = spec.target().to_string();
            match spec.kind() {
                "af_packet" => _ = permits.packet.insert(name),
                "af_xdp" => _ = permits.xdp.insert(name),
                "tap" => {
                    _ = permits
                        .taps
                        .insert((spec.text("netns").map(Into::into), name))
                }
                "pcap" => {
                    permits.read.extend(file("rx"));
                    permits.written.extend(file("tx"));
                }
                _ => {}
            }
        }
        permits
            .host_interfaces
            .extend(named.host_interfaces.iter().cloned());
        permits
    }

    /// Adds the names of a configuration read later. Earlier ones stay, since the router keeps its
    /// ports if it refuses a reload.
    pub(super) fn add(&mut self, more: Self) {
        self.packet.extend(more.packet);
        self.xdp.extend(more.xdp);
        self.taps.extend(more.taps);
        self.host_interfaces.extend(more.host_interfaces);
        self.read.extend(more.read);
        self.written.extend(more.written);
    }

    /// Whether nothing needs privileges. Files are opened as the router's user.
    pub(super) fn take_none(&self) -> bool {
        self.packet.is_empty() && self.xdp.is_empty() && self.all_taps().next().is_none()
    }

    /// Whether the router locks its pool into memory.
    pub(super) fn locks_memory(&self) -> bool {
        !self.xdp.is_empty()
    }

    /// The capabilities for all of it.
    pub(super) fn capabilities(&self) -> CapabilitySet {
        let mut needed = match self.take_none() {
            true => CapabilitySet::empty(),
            false => CapabilitySet::NET_ADMIN,
        };
        if !self.packet.is_empty() {
            needed |= CapabilitySet::NET_RAW;
        }
        if !self.xdp.is_empty() {
            needed |= CapabilitySet::NET_RAW | CapabilitySet::BPF;
        }
        if self.all_taps().any(|(netns, _)| netns.is_some()) {
            needed |= CapabilitySet::SYS_ADMIN; // to enter that name space
        }
        needed
    }

    /// Whether a request is about what the configuration names.
    pub(super) fn allow(&self, request: &Request) -> bool {
        let is_tap = |netns: &Option<String>, name: &String| {
            self.all_taps().any(|(n, tap)| (n, tap) == (netns, name))
        };
        let is_host_interface = |netns: &Option<String>, name: &String| {
            self.host_interfaces
                .iter()
                .any(|(n, host_interface)| (n, host_interface) == (netns, name))
        };
        match request {
            Request::ControlSocket { netns } => {
                self.all_taps().any(|(n, _)| n.as_ref() == Some(netns))
            }
            // af_xdp sends unsegmented frames through packet sockets.
            Request::PacketSocket { name } => self.packet.contains(name) || self.xdp.contains(name),
            Request::XdpProgram { name, filter } => {
                self.xdp.contains(name) && filter.len() <= MOST_FILTER
            }
            Request::XdpSocket { name, busy_poll_us } => {
                self.xdp.contains(name) && *busy_poll_us <= MOST_BUSY_POLL_US
            }
            Request::XdpAttach { name, .. } | Request::XdpMap { name, .. } => {
                self.xdp.contains(name)
            }
            Request::Tap { netns, name, .. } | Request::ChangeTap { netns, name, .. } => {
                is_tap(netns, name)
            }
            Request::Netlink { netns, room } => {
                self.host_interfaces.iter().any(|(n, _)| n == netns)
                    && room.is_none_or(|room| room <= MOST_ROOM)
            }
            Request::MakeAlike { netns, name, .. } | Request::RemoveAddress { netns, name, .. } => {
                is_host_interface(netns, name)
            }
            Request::Set { setting, value } => {
                let ports = self.packet.iter().chain(&self.xdp);
                let mut all = ports.flat_map(|port| super::settings_of(port));
                value.parse::<u8>().is_ok() && all.any(|(path, _)| path == *setting)
            }
            Request::Configuration | Request::Notes | Request::Note { .. } => true,
            Request::ReadFile { path } => self.read.contains(path),
            Request::WriteFile { path, .. } => self.written.contains(path),
        }
    }

    fn all_taps(&self) -> impl Iterator<Item = &Tap> {
        self.taps.iter().chain(&self.host_interfaces)
    }
}
