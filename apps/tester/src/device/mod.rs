//! Devices under test: what is measured between the generator's ports.
//!
//! [`Setup::make`] builds one and the wires to it, and removes all of it when it is dropped;
//! interfaces are in name spaces without names, and programs end with their standard input, so
//! nothing is left however this process ends. [`app`] and [`routed`] are linerate itself, [`linux`]
//! the kernel, [`dpdk`] DPDK's programs, [`wire`] the pairs of ports in between, [`named`] ports
//! that the user names.

mod app;
mod dpdk;
mod linux;
mod named;
mod program;
mod routed;
mod stolen;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod wire;

use std::net::IpAddr;

use linerate_appliance::runtime::drivers;
use linerate_core::env::Clock;
use linerate_drivers::Drivers;
use linerate_wire::ethernet::MacAddr;

use crate::report::{Device, ProfiledLcore};
use linerate_appliance::error::Error;
use linerate_appliance::nearest::offer;
use linerate_appliance::netns::{self, Space};
use linerate_traffic::engine::PortAddr;

pub(crate) use named::{NamedPort, check as check_ports};
pub(crate) use stolen::softirq_threads;
pub use stolen::{Involved, StartReadings, Stolen};
pub(crate) use wire::Wire;

use routed::Form;

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// The generator's ports joined to each other.
    None,
    /// linerate's own l2fwd, in this process.
    L2fwd,
    /// linerate's own router, in this process.
    Router,
    /// linerate's own gateway, in this process, in a form of dispatch.
    Gateway(routed::Form),
    /// Whatever is at the other ends of ports that the user names.
    External,
    /// The Linux bridge.
    Bridge,
    /// Linux forwarding between networks.
    Forward,
    /// Linux forwarding, filtered by nftables.
    Nftables,
    /// DPDK's testpmd.
    Testpmd,
    /// DPDK's l3fwd.
    L3fwd,
}

impl DeviceKind {
    const ALL: [(&'static str, Self); 13] = [
        ("none", Self::None),
        ("l2fwd", Self::L2fwd),
        ("router", Self::Router),
        ("gateway", Self::Gateway(Form::None)),
        ("gateway.rss", Self::Gateway(Form::Rss)),
        ("gateway.dispatcher", Self::Gateway(Form::Dispatcher)),
        ("gateway.balanced", Self::Gateway(Form::Balanced)),
        ("external", Self::External),
        ("bridge", Self::Bridge),
        ("forward", Self::Forward),
        ("nftables", Self::Nftables),
        ("testpmd", Self::Testpmd),
        ("l3fwd", Self::L3fwd),
    ];

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        let row = Self::ALL.iter().find(|(_, kind)| *kind == self);
        row.map_or("", |(name, _)| name)
    }

    /// A gateway in all forms of dispatch.
    pub(crate) fn gateways() -> [Self; 4] {
        [Form::None, Form::Rss, Form::Dispatcher, Form::Balanced].map(Self::Gateway)
    }

    /// Whether it knows connections.
    pub(crate) fn is_gateway(self) -> bool {
        matches!(self, Self::Gateway(_))
    }

    /// The default kind of port: the fastest that reaches it and that this user may open.
    pub(crate) fn usual_wire(self) -> Wire {
        Wire::of(match self {
            _ if self.is_inside() => "ring",
            _ if may_load_programs() => "af_xdp",
            _ => "af_packet",
        })
    }

    /// Whether it is the kernel or another program, and so needs interfaces rather than rings.
    pub(crate) fn needs_interfaces(self) -> bool {
        !self.is_inside() && self != Self::External
    }

    /// Whether it is in this process.
    fn is_inside(self) -> bool {
        matches!(
            self,
            Self::None | Self::L2fwd | Self::Router | Self::Gateway(_)
        )
    }
}

impl std::str::FromStr for DeviceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, kind)) = Self::ALL.iter().find(|(name, _)| *name == text) {
            return Ok(*kind);
        }
        let names = Self::ALL.map(|(name, _)| name);
        let offered = offer(text, names);
        Err(format!("no device is called `{text}`; {offered}"))
    }
}

/// A device as the user asks for it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) kind: DeviceKind,
    /// The generator's kind of port; for a device of ours also the device's.
    pub(crate) wire: Wire,
    /// The generator's ports, where the user names them ([`DeviceKind::External`]).
    pub(crate) ports: Vec<NamedPort>,
    /// What the user calls it.
    pub(crate) name: Option<String>,
    /// Where streams of each port are sent; by default the device's addresses.
    pub(crate) dst_macs: Vec<MacAddr>,
    /// Worker cores of the device.
    pub(crate) cores: usize,
    /// Filter rules that match no frame ([`DeviceKind::Nftables`], [`DeviceKind::Router`] and
    /// [`DeviceKind::Gateway`]).
    pub(crate) rules: u32,
    /// Whether what comes by the second port begins no flow (a gateway).
    pub(crate) one_side: bool,
    /// Destination networks for each direction (devices that route).
    pub(crate) nets: u16,
    /// The assumed speed of the ports; without it they have no line rate.
    pub(crate) speed_bps: Option<f64>,
}

/// The CPUs of the generator and of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpus {
    pub(crate) generator: Vec<u32>,
    pub(crate) device: Vec<u32>,
}

impl Cpus {
    /// The device gets the last `cores` of `usable`, the generator up to four of the others; with
    /// too few they share.
    pub(crate) fn split(usable: &[u32], cores: usize) -> Self {
        let device = cores.clamp(1, usable.len().saturating_sub(1).max(1));
        let (generator, device) = usable.split_at(usable.len() - device.min(usable.len()));
        Self {
            generator: match generator {
                [] => device.to_vec(),
                some => some[..some.len().min(4)].to_vec(),
            },
            device: device.to_vec(),
        }
    }

    /// Whether generator and device share CPUs.
    pub(crate) fn shared(&self) -> bool {
        self.generator.iter().any(|cpu| self.device.contains(cpu))
    }
}

/// What a device can report while it is measured.
pub(crate) trait UnderTest {
    /// Names of its threads, where it has some in this process.
    fn lcores(&self) -> Vec<String> {
        Vec::new()
    }

    /// Other processes that it runs in.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Ticks that its lcores have spent on packets.
    fn busy_ticks(&self) -> Option<u64> {
        None
    }

    /// Gaps: rounds so long that another thread must have had the CPU, as histograms of ticks, one
    /// per lcore.
    fn gaps(&self) -> Vec<linerate_core::run::HistogramSnapshot> {
        Vec::new()
    }

    /// Has its stages measured for some seconds.
    ///
    /// # Errors
    /// It has ended.
    fn measure(&self) -> Result<(), Error> {
        Ok(())
    }

    /// What its stages have taken since they are measured, by lcore; none if it cannot tell.
    ///
    /// # Errors
    /// It has ended.
    fn measured(&self) -> Result<Vec<ProfiledLcore>, Error> {
        Ok(Vec::new())
    }

    /// Forgets all connections; how many they were, or `None` if it knows none.
    ///
    /// # Errors
    /// It has ended.
    fn forget(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    /// Waits until it forwards, once the generator's ports are open.
    ///
    /// # Errors
    /// It does not.
    fn settle(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Checks that it still runs.
    ///
    /// # Errors
    /// Why not.
    fn check(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// A device that reports nothing.
struct Opaque;

impl UnderTest for Opaque {}

/// One port of the generator.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    /// `KIND:TARGET[,key=value...]`
    pub(crate) spec: String,
    /// The address that its streams are sent to; `None` where it does not matter, or a gateway is
    /// asked for it.
    pub(crate) dst_mac: Option<MacAddr>,
    /// As the user named it.
    pub(crate) named: Option<NamedPort>,
}

impl Side {
    fn new(spec: String, dst_mac: Option<MacAddr>) -> Self {
        Self {
            spec,
            dst_mac,
            named: None,
        }
    }

    /// The address of its own in the family of `like`, or its first.
    pub(crate) fn addr(&self, like: Option<IpAddr>) -> Option<PortAddr> {
        let addrs = self.named.iter().flat_map(|named| &named.asked.addrs);
        let same = |addr: &&PortAddr| like.is_none_or(|like| like.is_ipv4() == addr.ip.is_ipv4());
        addrs.copied().find(|addr| same(&addr))
    }
}

/// A device at work, and the ports for the generator around it.
pub(crate) struct Setup {
    /// The generator's ports, in pairs: what goes into one of a pair comes out of the other.
    pub(crate) sides: Vec<Side>,
    /// The drivers that have the rings among the ports.
    pub(crate) drivers: Drivers,
    pub(crate) device: Device,
    /// Facts about the path.
    pub(crate) path: Vec<(String, String)>,
    pub(crate) under_test: Box<dyn UnderTest>,
    pub(crate) cpus: Cpus,
    /// Where the generator's interfaces are.
    space: Option<Space>,
}

impl Setup {
    /// Builds the wires and the device.
    ///
    /// # Errors
    /// What is missing, and how to get it; on an error nothing is left.
    pub(crate) fn make(asked: &Asked, cpus: Cpus, clock: Clock) -> Result<Self, Error> {
        if asked.kind.needs_interfaces() && asked.wire.is_ring() {
            return Err(Error::Usage {
                problem: format!(
                    "{} is not part of this process, so ring ports do not reach it",
                    asked.kind.name()
                ),
                fix: "give --ports af_packet or --ports af_xdp".into(),
            });
        }
        match asked.kind {
            DeviceKind::None => wire::loopback(asked, cpus),
            DeviceKind::External => external(asked, cpus),
            DeviceKind::L2fwd => app::l2fwd(asked, cpus, clock),
            DeviceKind::Router => routed::set_up(asked, cpus, None),
            DeviceKind::Gateway(form) => routed::set_up(asked, cpus, Some(form)),
            DeviceKind::Bridge => linux::bridge(asked, cpus),
            DeviceKind::Forward => linux::forward(asked, cpus, false),
            DeviceKind::Nftables => linux::forward(asked, cpus, true),
            DeviceKind::Testpmd => dpdk::testpmd(asked, cpus),
            DeviceKind::L3fwd => dpdk::l3fwd(asked, cpus),
        }
    }

    fn new(asked: &Asked, cpus: Cpus, name: String, sides: Vec<Side>) -> Self {
        let dst = |number: usize, side: Side| Side {
            dst_mac: asked.dst_macs.get(number).copied().or(side.dst_mac),
            ..side
        };
        Self {
            sides: sides
                .into_iter()
                .enumerate()
                .map(|(number, side)| dst(number, side))
                .collect(),
            drivers: drivers(),
            device: Device {
                name: asked.name.clone().unwrap_or(name),
                cores: cpus.device.len() as u32,
                link_bps: asked.speed_bps,
                ..Device::default()
            },
            path: Vec::new(),
            under_test: Box::new(Opaque),
            cpus,
            space: None,
        }
    }

    /// Moves the calling thread to where the generator's interfaces are, at `home` where it has no
    /// space of its own: before ports are opened, and before their state is read.
    pub(crate) fn enter(&self, home: &Space) -> Result<(), Error> {
        self.space.as_ref().unwrap_or(home).enter()
    }

    /// Whether frames pass through the kernel, so that an lcore's time in a system call is not a
    /// gap.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.sides
            .iter()
            .any(|side| !side.spec.starts_with("ring:"))
    }

    fn setting(&mut self, key: &str, value: impl ToString) {
        self.device.settings.push((key.into(), value.to_string()));
    }

    fn fact(&mut self, key: &str, value: impl ToString) {
        self.path.push((key.into(), value.to_string()));
    }
}

/// Whether XDP programs may be loaded: by root of the machine, not by one of a user name space.
fn may_load_programs() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    whole && rustix::process::geteuid().is_root()
}

/// Ports that the user names, with anything behind them.
fn external(asked: &Asked, cpus: Cpus) -> Result<Setup, Error> {
    if asked.ports.len() < 2 || !asked.ports.len().is_multiple_of(2) {
        return Err(Error::Usage {
            problem: format!(
                "{} of the generator's ports named for an external device",
                asked.ports.len()
            ),
            fix: "name them in pairs, such as `--port af_xdp:veth0 --port af_xdp:veth1`: what is \
                sent into one comes out of the other"
                .into(),
        });
    }
    let side = |named: &NamedPort| Side {
        named: Some(named.clone()),
        ..Side::new(named.asked.spec.clone(), None)
    };
    let sides = asked.ports.iter().map(side).collect();
    // The device's CPUs are unknown, so the generator may have all of ours.
    let mut generator = cpus.generator.clone();
    generator.extend(
        cpus.device
            .iter()
            .filter(|cpu| !cpus.generator.contains(cpu)),
    );
    let cpus = Cpus {
        generator,
        device: Vec::new(),
    };
    let mut setup = Setup::new(asked, cpus, "external device".into(), sides);
    for (number, named) in asked.ports.iter().enumerate() {
        setup.fact(&format!("generator port {number}"), named);
    }
    Ok(setup)
}

/// Whether a device of this kind on these wires needs name spaces, and so root or a user name
/// space.
pub(crate) fn prepare(asked: &Asked) -> Result<(), Error> {
    match asked.wire.is_ring() || asked.kind == DeviceKind::External {
        true => Ok(()),
        false => netns::as_root(),
    }
}
