//! `af_xdp:IFACE`: frames of a Linux interface, past its network stack.
//!
//! The primary pool *is* the memory that the kernel writes frames to and sends them from (the
//! UMEM), so a packet that comes in on one such port leaves through another without being touched.
//! An XDP program, made here and attached as long as the port is started (or the process lives,
//! however it dies), hands over the frames of the chosen queues; with `filter=` only those named,
//! and the rest stays the kernel's: ssh goes on working on the same interface.
//!
//! | what | how |
//! |---|---|
//! | interface | up, with an MTU that fits a slot: 2094 with the usual pool |
//! | pool | small slots, staggered (unaligned chunks) or aligned; packets of other pools are copied. Zero copy takes aligned ones |
//! | queues | each its own AF_XDP socket with both halves; more than the interface has is an error: `ethtool -L` |
//! | modes | native if the driver can, else generic; zero-copy if driver and pool can, else copy; see the port's facts. A device on a bus, whose driver might, asks for an aligned pool, unless `copy=on` |
//! | checksums | local senders leave them unfinished on virtual interfaces, and AF_XDP does not say which: see `csum=` |
//! | VLAN | tags that the interface or a veth's peer offloads are lost: `ethtool -K IFACE rxvlan off`, `ethtool -K PEER txvlan off` |
//! | oversized frames | in native mode a veth's peer sends none (the kernel turns its TSO off); in generic mode they are dropped as `oversize`: `ethtool -K IFACE gro off lro off`, `ethtool -K PEER tso off gso off` |
//! | `gro=on` | TCP segments are joined, and sent by packet sockets; not with zero-copy |
//! | interface deleted | the link goes down, the queues have nothing; an interface of that name that comes up is attached |
//! | needs | CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF; the pool in locked memory: CAP_IPC_LOCK or `ulimit -l`; Linux 5.10 |
//!
//! Read `queue` (the hot path), `queue_pair` (a queue's socket, how it dies and comes back), `ring`
//! (what is shared with the kernel, and which slots it has), `zero_copy`, `device` and `program`
//! (XDP), `privileged` (what takes privileges), `sys`.

mod device;
mod options;
pub(crate) mod privileged;
mod program;
mod queue;
mod queue_pair;
mod ring;
mod sys;
#[cfg(test)]
mod tests;
mod zero_copy;

pub use options::OPTIONS;

use crate::{Counters, Opener, PortKind};
use device::{Device, Found};
use linerate_core::packet::{Pool, Pools};
use linerate_core::port::{
    Link, Port, PortConfig, PortError, PortInfo, PortStats, QueueStats, Queues, Spec,
};
use options::{Choice, Mode, Options};
use queue::{Rx, Tx};
use queue_pair::{QueuePair, Shape};
use std::sync::Arc;

/// The row of this driver in [`KINDS`](crate::KINDS).
pub const KIND: PortKind = PortKind {
    name: "af_xdp",
    summary: "a Linux interface past the network stack, by XDP: all frames or chosen flows",
    example: "af_xdp:eth0,queues=2",
    options: OPTIONS,
    open: |spec, drivers| Ok(Box::new(open(spec, &drivers.opener, drivers.joins)?)),
};

/// Entries of a ring where the pool is large enough.
const RING: u32 = 2048;
/// And at least.
const MIN_RING: u32 = 64;

/// Opens a port; the interface must exist. `joins`: TCP segments are joined where the options do
/// not say, if the interface is a virtual one.
///
/// # Errors
/// [`PortError`] names a wrong option, or why the interface is not to be had.
pub fn open(spec: &Spec, opener: &Arc<dyn Opener>, joins: bool) -> Result<AfXdpPort, PortError> {
    let device = Device::new(spec, opener, joins)?;
    let found = device.find()?;
    let port = AfXdpPort {
        device: Arc::new(device),
        opened: found,
        running: None,
        counters: Counters::default(),
    };
    port.check_queues(
        port.device.options.queues.unwrap_or(0),
        "receive",
        port.opened.rx_queues,
    )?;
    Ok(port)
}

/// A port on an interface.
pub struct AfXdpPort {
    device: Arc<Device>,
    /// The interface as it was when last looked at.
    opened: Found,
    running: Option<Running>,
    counters: Counters,
}

struct Running {
    queue_pairs: Vec<Arc<QueuePair>>,
    rx_queues: u16,
    completes: bool,
    ring: u32,
}

impl AfXdpPort {
    fn options(&self) -> &Options {
        &self.device.options
    }

    /// The longest frame that a slot has room for, beside a tag.
    fn slot_room(&self) -> usize {
        let queue_pair = self
            .running
            .iter()
            .flat_map(|running| &running.queue_pairs)
            .next();
        queue_pair.map_or(usize::MAX, |queue_pair| queue_pair.pool.room_bytes() - 4)
    }

    /// Queues from the first one on, at most as many as the user wants.
    fn max_queues(&self, device: u16) -> u16 {
        let there = device.saturating_sub(self.options().start_queue);
        self.options()
            .queues
            .map_or(there, |queues| queues.min(there))
    }

    fn check_queues(
        &self,
        asked: u16,
        direction: &'static str,
        device: u16,
    ) -> Result<(), PortError> {
        let options = self.options();
        let max = device.saturating_sub(options.start_queue);
        if asked <= max && max > 0 {
            return Ok(());
        }
        let fix = format!(
            "use fewer, or give `{name}` more: `ethtool -L {name} combined {wanted}` (or rx and \
             tx, and a veth needs `numrxqueues` when made)",
            name = options.interface,
            wanted = options.start_queue + asked,
        );
        Err(PortError::TooManyQueues {
            port: options.port.clone(),
            direction,
            asked,
            max,
            fix,
        })
    }

    /// Whether its device might write to the pool itself. Whether its driver can, a socket that is
    /// bound shows.
    fn may_be_zero_copy(&self) -> bool {
        let options = self.options();
        match options.copy {
            Choice::Off => true,
            Choice::Auto => options.mode != Mode::Generic && !self.opened.is_virtual,
            Choice::On => false,
        }
    }

    fn check_pool(&self, pool: &Pool) -> Result<(), PortError> {
        let options = self.options();
        if options.copy == Choice::Off && !zero_copy::is_aligned(pool.slot_bytes()) {
            let (name, bytes) = (pool.name(), pool.slot_bytes());
            let reason = format!(
                "pool `{name}` has slots of {bytes} bytes, and zero-copy loses those that cross a \
                 page: give it a pool of aligned slots, or use `copy=auto`"
            );
            return Err(options.unsupported(reason));
        }
        if !(2048..=4096).contains(&pool.slot_bytes()) {
            let (name, bytes) = (pool.name(), pool.slot_bytes());
            let reason = format!(
                "pool `{name}` has slots of {bytes} bytes, AF_XDP takes 2048 to 4096: let the \
                 first pool be one of small slots"
            );
            return Err(options.unsupported(reason));
        }
        let mtu = self.opened.mtu;
        let max = pool.room_bytes() - linerate_wire::ethernet::HEADER_LEN - 4;
        if mtu as usize > max {
            let reason = format!(
                "frames must fit the slots of pool `{}`; `ip link set {} mtu {max}`",
                pool.name(),
                options.interface
            );
            return Err(PortError::Mtu {
                port: options.port.clone(),
                mtu,
                reason,
            });
        }
        Ok(())
    }

    /// Entries of each ring: as asked, or at most what a quarter of the pool fills.
    fn ring(&self, rx_queues: u16, pool: &Pool) -> Result<u32, PortError> {
        let queues = u32::from(rx_queues.max(1));
        let affordable = (pool.slots() / 4 / queues).max(1);
        let automatic = (1 << affordable.ilog2()).clamp(MIN_RING, RING);
        let ring = self.options().ring.unwrap_or(automatic);
        let needed = ring * u32::from(rx_queues);
        if needed >= pool.slots() {
            let (port, pool_name) = (self.options().port.clone(), pool.name().into());
            return Err(PortError::PoolTooSmall {
                port,
                pool: pool_name,
                slots: pool.slots(),
                needed,
            });
        }
        Ok(ring)
    }

    fn mode_facts(&self, facts: &mut Vec<(&'static str, String)>) {
        let Some(running) = &self.running else { return };
        let options = self.options();
        let (mode, refused) = self.device.mode();
        let zero_copy = !running.queue_pairs.is_empty()
            && running
                .queue_pairs
                .iter()
                .all(|queue_pair| queue_pair.is_zero_copy());
        let copy = if zero_copy { "zero-copy" } else { "copy" };
        let wakeup = if options.wakeup {
            "need_wakeup"
        } else {
            "always kicked"
        };
        facts.push(("mode", format!("{mode}, {copy}, {wakeup}")));
        if let Some(reason) = refused {
            facts.push(("native mode", format!("not to be had: {reason}")));
        }
        if let Some(queue_pair) = running.queue_pairs.first() {
            let bytes = queue_pair.pool.slot_bytes();
            let kind = if zero_copy::is_aligned(bytes) {
                "aligned"
            } else {
                "unaligned"
            };
            facts.push((
                "memory",
                format!(
                    "pool `{}`, {kind} chunks of {bytes} bytes",
                    queue_pair.pool.name()
                ),
            ));
        }
        facts.push(("rings", format!("{} entries", running.ring)));
        let checksums = if running.completes {
            "unfinished ones are completed"
        } else {
            "taken as they come"
        };
        facts.push(("checksums", checksums.into()));
        let filter = options
            .filter_text
            .as_deref()
            .unwrap_or("none: every frame comes here");
        facts.push(("filter", filter.into()));
        if options.joins && !zero_copy {
            let how = "TCP segments are joined, and sent by a packet socket";
            facts.push(("gro", how.into()));
        }
        if options.busy_poll_us > 0 {
            facts.push(("busy poll", format!("{} us", options.busy_poll_us)));
        }
        self.warnings(mode, running, facts);
    }

    fn warnings(&self, mode: &str, running: &Running, facts: &mut Vec<(&'static str, String)>) {
        let (name, found) = (&self.options().interface, &self.opened);
        if mode == "generic" && found.merges {
            facts.push((
                "warning",
                format!(
                    "GRO merges frames before they come here, and those are \
                dropped as oversize: `ethtool -K {name} gro off`"
                ),
            ));
        }
        if mode == "generic" && found.driver == "veth" {
            facts.push((
                "warning",
                "frames that the veth's peer leaves uncut are dropped as \
                oversize: `ethtool -K PEER tso off gso off` there"
                    .into(),
            ));
        }
        if found.strips_vlan && !found.is_virtual {
            facts.push((
                "warning",
                format!("VLAN tags are taken off and lost: `ethtool -K {name} rxvlan off`"),
            ));
        }
        let used = running.rx_queues;
        if used < found.rx_queues {
            let rest = found.rx_queues - used;
            facts.push((
                "warning",
                format!(
                    "frames of the {rest} other receive queues stay with \
                the kernel: `ethtool -L {name} combined {used}`"
                ),
            ));
        }
    }
}

impl Port for AfXdpPort {
    fn info(&self) -> PortInfo {
        let mut facts = vec![("driver", self.opened.driver.clone())];
        self.mode_facts(&mut facts);
        // A missing interface has no address.
        let (mac, mtu) = self.device.wire().unwrap_or((None, self.opened.mtu));
        let frame_bytes = mtu as usize + linerate_wire::ethernet::HEADER_LEN;
        PortInfo {
            name: self.options().port.clone(),
            kind: "af_xdp",
            mac,
            // Of an interface that got a larger MTU since, no more than a slot takes.
            max_frame_bytes: frame_bytes.min(self.slot_room()),
            max_rx_queues: self.max_queues(self.opened.rx_queues),
            max_tx_queues: self.max_queues(self.opened.tx_queues),
            numa_node: numa_node(&self.options().interface),
            tx_offloads: false,
            aligned_pool: self.may_be_zero_copy(),
            exposed_pool: false,
            facts,
        }
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        if self.running.is_some() {
            return Err(self
                .options()
                .unsupported("it is started already: stop it first".into()));
        }
        self.opened = self.device.find()?;
        self.check_queues(config.rx_queues, "receive", self.opened.rx_queues)?;
        self.check_queues(config.tx_queues, "transmit", self.opened.tx_queues)?;
        let pool = pools.primary();
        self.check_pool(pool)?;
        let ring = self.ring(config.rx_queues, pool)?;
        let completes = match self.options().csum {
            Choice::Auto => self.opened.is_virtual,
            choice => choice == Choice::On,
        };
        let rx: Vec<_> = (0..config.rx_queues.into())
            .map(|index| self.counters.rx(index))
            .collect();
        let tx: Vec<_> = (0..config.tx_queues.into())
            .map(|index| self.counters.tx(index))
            .collect();
        let mut queue_pairs = Vec::new();
        for index in 0..config.rx_queues.max(config.tx_queues) {
            let half = |stats: &[Arc<QueueStats>]| stats.get(usize::from(index)).cloned();
            let queue = u32::from(self.options().start_queue + index);
            let shape = Shape {
                queue,
                ring,
                port_index: config.index,
                rx: half(&rx),
                tx: half(&tx),
            };
            match QueuePair::open(&self.device, pool, shape) {
                Ok(queue_pair) => queue_pairs.push(queue_pair),
                Err(error) => {
                    self.device.detach();
                    return Err(error);
                }
            }
        }
        let mut queues = Queues::default();
        for (queue_pair, stats) in queue_pairs.iter().zip(&rx) {
            queues.rx.push(Box::new(Rx::new(
                queue_pair.clone(),
                stats.clone(),
                completes,
            )));
        }
        for (queue_pair, stats) in queue_pairs.iter().zip(&tx) {
            queues
                .tx
                .push(Box::new(Tx::new(queue_pair.clone(), stats.clone(), pools)));
        }
        self.running = Some(Running {
            queue_pairs,
            rx_queues: config.rx_queues,
            completes,
            ring,
        });
        Ok(queues)
    }

    fn link(&self) -> Link {
        self.device.link()
    }

    fn stats(&self) -> PortStats {
        if let Some(running) = &self.running {
            running
                .queue_pairs
                .iter()
                .for_each(|queue_pair| queue_pair.count_drops());
        }
        self.counters.sum()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        if running
            .queue_pairs
            .iter()
            .any(|queue_pair| Arc::strong_count(queue_pair) > 1)
        {
            return Err(self.options().unsupported(
                "its queues are still in use: drop them before the port is stopped".into(),
            ));
        }
        self.device.detach();
        // Each queue pair closes its socket and takes back what the kernel had.
        self.running = None;
        Ok(())
    }
}

impl Drop for AfXdpPort {
    fn drop(&mut self) {
        self.device.detach();
    }
}

/// Of the device below an interface; virtual ones have none.
fn numa_node(interface: &str) -> Option<u32> {
    let path = format!("/sys/class/net/{interface}/device/numa_node");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
