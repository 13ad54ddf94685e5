//! The host interfaces: for each interface a TAP in the kernel, whose other end the slow worker
//! polls.
//!
//! A host interface is a port like any other, but not among the open ports: it may come and go with
//! a reload. Its number lies behind those of the ports that were there at the start and of the ring
//! to the slow worker.

use std::ops::Range;
use std::sync::Arc;

use linerate_core::packet::Pools;
use linerate_core::port::{Link, Port, PortConfig, PortStats, RxQueue};
use linerate_core::run::{Inlet, TxPath, WorkerHandle};
use linerate_drivers::{Drivers, Opener};
use linerate_wire::MacAddr;

use linerate_appliance::error::Error;
use linerate_routing::worker::RouterStage;

/// What a host interface is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Name of the interface that it is the host interface of.
    pub(super) interface: String,
    /// Name in the kernel, and the name space there.
    pub(super) name: String,
    pub(super) netns: Option<String>,
    pub(super) mac: MacAddr,
    pub(super) mtu: u16,
}

impl Wanted {
    /// Whether both are the same device of the kernel: what else they differ in, it can be told.
    fn is_device_of(&self, other: &Self) -> bool {
        self.name == other.name && self.netns == other.netns
    }

    fn spec(&self) -> String {
        let Self { name, mac, mtu, .. } = self;
        // The kernel's own end takes no IPv6 below its smallest MTU, and no IPv4 below 68.
        let mut spec = format!("tap:{name},mac={mac},mtu={mtu},again=on,oversize=on");
        if let Some(netns) = &self.netns {
            spec += &format!(",netns={netns}");
        }
        spec
    }
}

/// One host interface.
pub(super) struct HostInterface {
    pub(super) wanted: Wanted,
    /// Number of its port.
    pub(super) number: u16,
    /// None until it is started.
    port: Option<Box<dyn Port>>,
    /// What the kernel sends by it, until somebody listens.
    rx: Option<Box<dyn RxQueue>>,
}

impl HostInterface {
    /// Whether the kernel has it.
    fn is_there(&self) -> bool {
        let deleted = |port: &dyn Port| {
            matches!(port.link(),
            Link::Down(why) if why.ends_with("was deleted"))
        };
        self.port.as_deref().is_some_and(|port| !deleted(port))
    }
}

/// All host interfaces.
pub(super) struct HostInterfaces {
    all: Vec<HostInterface>,
    /// Numbers of rings between workers: those of host interfaces are behind them.
    rings: Range<u16>,
    /// Numbers that are ports'.
    ports: Vec<u16>,
    /// What host interfaces counted that have been taken away.
    gone: PortStats,
}

impl HostInterfaces {
    pub(super) fn new(rings: Range<u16>) -> Self {
        Self {
            all: Vec::new(),
            rings,
            ports: Vec::new(),
            gone: PortStats::default(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HostInterface> {
        self.all.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What all have counted, those too that have gone: sent is what went to the kernel, received
    /// what came from it.
    pub(super) fn stats(&self) -> PortStats {
        let mut all = self.gone.clone();
        for host_interface in &self.all {
            all.merge(&host_interface.stats());
        }
        all
    }

    /// What the host interface of an interface has counted.
    pub(super) fn stats_of(&self, interface: &str) -> Option<PortStats> {
        let known = |host_interface: &&HostInterface| host_interface.wanted.interface == interface;
        self.all.iter().rfind(known).map(HostInterface::stats)
    }

    /// Leaves these numbers to ports.
    pub(super) fn leave(&mut self, ports: Vec<u16>) {
        self.ports = ports;
    }

    /// Whether a number is a host interface's, or that of a ring between workers: no port's.
    pub(super) fn has(&self, number: u16) -> bool {
        self.rings.contains(&number)
            || number == u16::MAX
            || self
                .all
                .iter()
                .any(|host_interface| host_interface.number == number)
    }

    /// The number of an interface's host interface, kept for it from now on. One that is there
    /// already stays; netlink gives it its new address and MTU.
    pub(super) fn allot(&mut self, wanted: Wanted) -> u16 {
        let same =
            |host_interface: &&mut HostInterface| host_interface.wanted.is_device_of(&wanted);
        if let Some(known) = self.all.iter_mut().find(same) {
            known.wanted = wanted;
            return known.number;
        }
        let number = (self.rings.end..u16::MAX)
            .find(|number| !self.has(*number) && !self.ports.contains(number))
            .unwrap_or(u16::MAX);
        self.all.push(HostInterface {
            wanted,
            number,
            port: None,
            rx: None,
        });
        number
    }

    /// The number of an interface's host interface.
    pub(super) fn number(&self, interface: &str) -> Option<u16> {
        let known = |host_interface: &&HostInterface| host_interface.wanted.interface == interface;
        // The newest: an older one may be on its way out.
        self.all
            .iter()
            .rfind(known)
            .map(|host_interface| host_interface.number)
    }

    /// Whether the kernel has the host interface of an interface; none where it has no host
    /// interface.
    pub(super) fn is_there(&self, interface: &str) -> Option<bool> {
        let known = |host_interface: &&HostInterface| host_interface.wanted.interface == interface;
        self.all.iter().rfind(known).map(HostInterface::is_there)
    }

    /// Makes those that were allotted and are not there yet. The worker can send to them, so it may
    /// be told of them; nothing comes from them before [`listen`](Self::listen).
    ///
    /// # Errors
    /// What the kernel refused; those before it are there.
    pub(super) fn start(
        &mut self,
        slow: &WorkerHandle<RouterStage>,
        pools: &Pools,
        opener: &Arc<dyn Opener>,
    ) -> Result<(), Error> {
        for host_interface in self
            .all
            .iter_mut()
            .filter(|host_interface| host_interface.port.is_none())
        {
            let mut drivers = Drivers::opened_by(opener.clone());
            let mut port = drivers
                .open(&host_interface.wanted.spec())
                .map_err(advised)?;
            let config = PortConfig {
                index: host_interface.number,
                rx_queues: 1,
                tx_queues: 1,
            };
            let mut queues = port.start(&config, pools).map_err(advised)?;
            host_interface.port = Some(port);
            let number = host_interface.number;
            let tx = queues.tx.pop();
            host_interface.rx = queues.rx.pop();
            // Where the worker has ended, the run ends too, and says why.
            let name = host_interface.wanted.name.clone();
            let _ = slow.call(move |worker| {
                worker.set_outlet(number, tx.map(TxPath::Queue));
                worker.egress.name_outlet(number, &name);
            });
        }
        Ok(())
    }

    /// Has the worker, which knows of them by now, take what the kernel sends.
    pub(super) fn listen(&mut self, slow: &WorkerHandle<RouterStage>) {
        for host_interface in &mut self.all {
            if let Some(rx) = host_interface.rx.take() {
                let number = host_interface.number;
                let _ = slow.call(move |worker| worker.add_inlet(Inlet::queue(number, 0, rx)));
            }
        }
    }

    /// Takes away those that are not among `wanted`; returns what went wrong.
    pub(super) fn retain(
        &mut self,
        wanted: &[Wanted],
        slow: &WorkerHandle<RouterStage>,
    ) -> Vec<Error> {
        let mut errors = Vec::new();
        self.all.retain_mut(|host_interface| {
            let stays = wanted
                .iter()
                .any(|one| one.is_device_of(&host_interface.wanted));
            if !stays {
                let (stats, error) = host_interface.stop(slow);
                self.gone.merge(&stats);
                errors.extend(error);
            }
            stays
        });
        errors
    }
}

impl HostInterface {
    /// What it has counted.
    pub(super) fn stats(&self) -> PortStats {
        let port = self.port.as_ref();
        port.map_or_else(PortStats::default, |port| port.stats())
    }

    /// Takes it away; returns what it has counted, and what went wrong.
    fn stop(&mut self, slow: &WorkerHandle<RouterStage>) -> (PortStats, Option<Error>) {
        let Some(mut port) = self.port.take() else {
            return (PortStats::default(), None);
        };
        let number = self.number;
        let queues = slow.call(move |worker| {
            let inlet = worker.take_inlet(number, 0);
            (inlet, worker.set_outlet(number, None))
        });
        // Before the port stops: a device does not outlive its queues.
        drop((queues, self.rx.take()));
        (port.stats(), port.stop().err().map(Error::from))
    }
}

/// What can be done where the kernel makes no host interfaces.
fn advised(error: linerate_core::port::PortError) -> Error {
    let error = Error::from(error);
    let fix = error.fix().unwrap_or_default();
    Error::Usage {
        problem: format!("the host interface of an interface cannot be made: {error}"),
        fix: format!("{fix}; or do without the kernel: [router] kernel = false"),
    }
}
