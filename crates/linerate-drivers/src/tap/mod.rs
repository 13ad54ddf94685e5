//! tap: an interface of the Linux kernel whose other end is this port.
//!
//! # Synopsis
//! ```text
//! tap:NAME[,queues=N][,mac=ADDRESS][,mtu=N][,up=on|off][,persist=on|off][,again=on|off][,oversize=on|off][,netns=NAME]
//! ```
//!
//! # Description
//! The exception path: what this port sends, the kernel receives on interface NAME, and the other
//! way round. Starting the port makes the TAP, or attaches to one of that name that nobody uses
//! (`ip tuntap add mode tap name NAME [multi_queue]`). Needs CAP_NET_ADMIN, unless the TAP exists
//! and belongs to the user.
//!
//! A TAP made here goes with the last descriptor, on exit as after `kill -9`, unless `persist=on`.
//!
//! Frames pass with a `virtio_net_hdr`. Where there is a pool of large slots the kernel is told
//! that unsegmented frames (TCP, UDP) are welcome; without one it cuts them itself. Partial
//! checksums are always taken. A frame is read straight into a small slot, what does not fit there
//! into a large one, in one system call.
//!
//! The kernel takes frames longer than its MTU, and would forward them; so they are dropped as
//! `oversize`, unless `oversize=on`: for an end that only receives what was put together of
//! fragments.
//!
//! *Deleted while running*: the link is down and says so, sent frames are dropped as `link_down`;
//! the port attaches again within 100 ms of a TAP of that name being back, or makes it anew with
//! `again=on`.
//!
//! The kernel's end may be in another network name space: `netns=` takes a name that `ip netns`
//! shows, and CAP_SYS_ADMIN.
//!
//! # See also
//! Documentation/networking/tuntap.rst, DPDK's `net_tap` and its former KNI.

mod channel;
mod queue;
mod sys;

use crate::link::{self, Interface, NAME_MAX};
use crate::{Counters, Opener, PortKind, TapChange};
use channel::{Channel, Wishes};
use linerate_core::packet::{Pool, Pools};
use linerate_core::port::{
    Link, OptionHelp, Port, PortConfig, PortError, PortInfo, PortStats, Queues, Spec,
};
use linerate_wire::{MacAddr, ethernet, vlan};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The row in the drivers' table.
pub const KIND: PortKind = PortKind {
    name: "tap",
    summary: "an interface of the Linux kernel whose other end is this port",
    example: "tap:t0,queues=2",
    options: OPTIONS,
    open: |spec, drivers| Ok(Box::new(open(spec, &drivers.opener)?)),
};

/// The options of [`open`].
pub const OPTIONS: &[OptionHelp] = &[
    OptionHelp {
        key: "queues",
        value: "N",
        help: "most receive queues, 1 to 64; default 1",
    },
    OptionHelp {
        key: "mac",
        value: "ADDRESS",
        help: "address of the kernel's end; default what it has, or a random one",
    },
    OptionHelp {
        key: "mtu",
        value: "N",
        help: "MTU of the kernel's end, 68 to 65521; default what it has, or 1500",
    },
    OptionHelp {
        key: "up",
        value: "on|off",
        help: "bring the kernel's end up; default on",
    },
    OptionHelp {
        key: "persist",
        value: "on|off",
        help: "keep the TAP after this process; default off for one made here, else as it is",
    },
    OptionHelp {
        key: "again",
        value: "on|off",
        help: "make the TAP anew when somebody deletes it; default off",
    },
    OptionHelp {
        key: "oversize",
        value: "on|off",
        help: "send frames that are longer than the MTU, too; default off",
    },
    OptionHelp {
        key: "netns",
        value: "NAME",
        help: "network name space of the kernel's end, as `ip netns` calls it; default this one",
    },
];

/// Most transmit queues: they share the receive queues' descriptors.
const MAX_TX_QUEUES: u16 = 64;
/// Frames of any length fit slots with so much room.
const LARGEST_FRAME_BYTES: usize = 65_535 + ethernet::HEADER_LEN + vlan::TAG_LEN;

/// Reads the options; [`Port::start`] makes the TAP.
///
/// # Errors
/// [`PortError::BadValue`].
pub fn open(spec: &Spec, opener: &Arc<dyn Opener>) -> Result<Tap, PortError> {
    let mac = spec.parsed::<MacAddr>("mac", "an address such as 02:00:00:00:00:01")?;
    if mac.is_some_and(|mac| mac.0[0] & 1 == 1) {
        return Err(spec.bad("mac", "an address of one station: the first byte even"));
    }
    let mtu = spec
        .text("mtu")
        .map(|_| spec.number("mtu", 1500, 68..=65_521))
        .transpose()?;
    let persist = spec
        .text("persist")
        .map(|_| spec.switch("persist", false))
        .transpose()?;
    let queues = spec.number("queues", 1_u16, 1..=64)?;
    Ok(Tap {
        port: spec.name(),
        interface: Arc::new(Interface::named_by(spec, opener)?),
        queues,
        wishes: Wishes {
            mac,
            mtu,
            up: spec.switch("up", true)?,
            again: spec.switch("again", false)?,
        },
        persist,
        sends_oversize: spec.switch("oversize", false)?,
        offloads: None,
        channels: Vec::new(),
        counters: Counters::default(),
    })
}

/// Opens a queue of a TAP, in the name space of the calling thread.
pub(crate) fn open_queue(name: &str, several: bool) -> io::Result<OwnedFd> {
    let fd = sys::device()?;
    sys::attach(&fd, name, several)?;
    Ok(fd)
}

/// Opens a TAP, made if there is none, in the name space of the calling thread, for a program that
/// plays the network itself: no queue, no pool. Frames come and go with a `virtio_net_hdr` of 10
/// bytes, without blocking. The kernel leaves checksums and TCP segmentation to the reader, as it
/// does to a network card.
///
/// # Errors
/// The kernel's.
pub fn open_plain(name: &str) -> io::Result<OwnedFd> {
    let tap = open_queue(name, false)?;
    let tcp = libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    sys::set_offload(&tap, libc::TUN_F_CSUM | tcp)?;
    Ok(tap)
}

/// A TAP.
pub struct Tap {
    port: String,
    interface: Arc<Interface>,
    queues: u16,
    wishes: Wishes,
    persist: Option<bool>,
    /// What is longer than the MTU is sent, too.
    sends_oversize: bool,
    /// What the kernel was told to leave to us.
    offloads: Option<&'static str>,
    channels: Vec<Arc<Channel>>,
    counters: Counters,
}

impl Port for Tap {
    fn info(&self) -> PortInfo {
        let mtu = self
            .interface
            .mtu()
            .ok()
            .or(self.wishes.mtu)
            .unwrap_or(1500);
        PortInfo {
            name: self.port.clone(),
            kind: KIND.name,
            mac: self.interface.mac().ok().flatten().or(self.wishes.mac),
            // The kernel's end takes longer frames than it sends.
            max_frame_bytes: mtu as usize + ethernet::HEADER_LEN,
            max_rx_queues: self.queues,
            max_tx_queues: MAX_TX_QUEUES,
            numa_node: None,
            tx_offloads: true,
            aligned_pool: false,
            exposed_pool: false,
            facts: self
                .offloads
                .iter()
                .map(|&facts| ("receive offloads", facts.into()))
                .collect(),
        }
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        self.counters.check_start(&self.info(), config)?;
        let large = pools.for_frame(LARGEST_FRAME_BYTES);
        self.check_pools(config, pools, large)?;
        let count = usize::from(config.rx_queues.max(1));
        let existed = self.interface.index().is_ok();
        for _ in 0..count {
            let several = self.queues > 1;
            match Channel::open(&self.interface, self.wishes, several, large.is_some()) {
                Ok(channel) => self.channels.push(Arc::new(channel)),
                Err(error) => {
                    self.channels.clear();
                    return Err(self.refused(error, existed));
                }
            }
        }
        self.offloads = Some(self.channels[0].offloads());
        if let Err(error) = self.set_up(pools) {
            self.channels.clear();
            return Err(error);
        }
        let mut queues = Queues::default();
        for index in 0..usize::from(config.rx_queues) {
            let channel = self.channels[index].clone();
            let stats = self.counters.rx(index);
            queues.rx.push(Box::new(queue::Receiver::new(
                channel,
                config.index,
                pools.primary(),
                large,
                stats,
            )));
        }
        for index in 0..usize::from(config.tx_queues) {
            let channel = self.channels[index % count].clone();
            let most = match self.sends_oversize {
                true => LARGEST_FRAME_BYTES,
                false => self.info().max_frame_bytes,
            };
            queues.tx.push(Box::new(queue::Sender::new(
                channel,
                most,
                self.counters.tx(index),
            )));
        }
        Ok(queues)
    }

    fn link(&self) -> Link {
        if self.channels.is_empty() {
            return Link::Down(format!("port `{}` is not started", self.port));
        }
        self.interface.link()
    }

    fn stats(&self) -> PortStats {
        self.counters.sum()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.counters.check_stop(&self.port)?;
        self.channels.clear();
        Ok(())
    }
}

impl Tap {
    /// Each receive queue holds a slot of each class that it reads into.
    fn check_pools(
        &self,
        config: &PortConfig,
        pools: &Pools,
        large: Option<&Pool>,
    ) -> Result<(), PortError> {
        let needed = u32::from(config.rx_queues);
        for pool in [Some(pools.primary()), large].into_iter().flatten() {
            if pool.slots() < needed {
                return Err(PortError::PoolTooSmall {
                    port: self.port.clone(),
                    pool: pool.name().into(),
                    slots: pool.slots(),
                    needed,
                });
            }
        }
        Ok(())
    }

    /// Sets what the user asked for on the kernel's end.
    fn set_up(&self, pools: &Pools) -> Result<(), PortError> {
        let Self {
            interface, port, ..
        } = self;
        let failed = |action| move |error| interface.failed(port, action, error);
        if let Some(mac) = self.wishes.mac {
            let change = TapChange::Mac(mac);
            interface
                .change_tap(change)
                .map_err(failed("set the address"))?;
        }
        if let Some(mtu) = self.wishes.mtu {
            let change = TapChange::Mtu(mtu);
            interface
                .change_tap(change)
                .map_err(failed("set the MTU"))?;
        }
        let mtu = interface.mtu().map_err(failed("read the MTU"))?;
        let room = pools.iter().map(Pool::room_bytes).max().unwrap_or(0);
        let header = ethernet::HEADER_LEN + vlan::TAG_LEN;
        if mtu as usize + header >= room {
            return Err(PortError::Mtu {
                port: port.clone(),
                mtu,
                reason: format!(
                    "its frames fit no slot; at most {} do, or add a pool of large slots",
                    room - header - 1
                ),
            });
        }
        if let Some(persist) = self.persist {
            self.channels[0]
                .set_persist(persist)
                .map_err(failed("set the persistence"))?;
        }
        if self.wishes.up {
            interface
                .change_tap(TapChange::Up(true))
                .map_err(failed("bring up the link"))?;
        }
        Ok(())
    }

    /// What the kernel refused when a queue was opened.
    fn refused(&self, error: channel::Refused, existed: bool) -> PortError {
        let (port, name) = (self.port.clone(), self.interface.name());
        let (action, source, fix) = match error {
            channel::Refused::Attach(source) => match source.raw_os_error() {
                // Naming a TAP is never answered so: it was the device.
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => (
                    format!("open {}", sys::DEVICE),
                    source,
                    "load the driver with `modprobe tun` (in a container: `--device /dev/net/tun`)"
                        .into(),
                ),
                Some(libc::EPERM | libc::EACCES) => {
                    return link::no_permission(
                        &port,
                        format!("make or attach TAP `{name}`"),
                        "CAP_NET_ADMIN",
                    );
                }
                Some(libc::EBUSY) => (
                    format!("attach TAP `{name}`"),
                    source,
                    "another program has it open; end that, or choose another name".into(),
                ),
                Some(libc::EINVAL) if existed => {
                    let (has, wants) = if self.queues > 1 {
                        ("one queue", "multi_queue ")
                    } else {
                        ("several queues", "")
                    };
                    let fix = format!(
                        "`{name}` exists and is no TAP, or one with {has}; delete it, or make it \
                         with `ip tuntap add mode tap {wants}name {name}`"
                    );
                    (format!("attach TAP `{name}`"), source, fix)
                }
                _ => (
                    format!("make TAP `{name}`"),
                    source,
                    format!("names have 1 to {NAME_MAX} bytes; see `ip tuntap`"),
                ),
            },
            channel::Refused::Offload(source) => (
                format!("set the offloads of TAP `{name}`"),
                source,
                "needs Linux 4.8 or newer".into(),
            ),
        };
        PortError::System {
            port,
            action,
            source,
            fix,
        }
    }
}
