//! af_packet: an interface of the Linux kernel, through packet sockets.
//!
//! # Synopsis
//! ```text
//! af_packet:IFACE[,queues=N][,fanout=hash|cpu|lb|rnd|qm][,blocks=N][,block_kib=N]
//!           [,handover=block|frame][,gro=on|off][,qdisc_bypass=on|off][,promisc=on|off]
//! ```
//!
//! # Description
//! Works with every interface and every driver, and leaves the kernel its copy of what arrives.
//! Needs CAP_NET_RAW. Frames that this port sends are not received by it again.
//!
//! *Receive*: a ring for each queue; with several queues the kernel spreads flows over them
//! (`fanout`). With `handover=block` it is a TPACKET_V3 ring, whose frames the kernel hands over by
//! the block: when one is full or, at low rates, after 1 ms, the shortest time there is. So a lone
//! frame waits up to 1 ms (on kernels before 6.18, whose timer counts jiffies, up to 8 ms). With
//! `handover=frame` it is a TPACKET_V2 ring, which hands over each frame at once: a ping through
//! two such ports and back takes 0.03 ms at best, where blocks add about 1 ms each way. The price
//! is room, for short frames fill 2 KiB each (packed in blocks, the same memory takes ten times as
//! many), and a system call for each unsegmented frame. On the other hand a trickle uses up a block
//! each millisecond, however little is in it: 128 blocks bear a worker that has to wait 128 ms for
//! its CPU (32 of them, a default before, lost frames on a busy machine), and each queue takes 16
//! MiB.
//!
//! *Transmit*: `sendmmsg`, one call for a burst, and no ring. Measured in turns over veth into an
//! XDP drop (60-byte frames, kernel 6.18), it sends about 1.1 times as many frames for each second
//! of CPU time as TPACKET_V2 and V3 transmit rings, which are equal: a ring spares no copy
//! for short frames, and hands the device fragments, which many have to join again. It also
//! takes frames of any length, and the packets are free when the call returns.
//!
//! With `gro=on` the TCP segments of one burst that a connection's sender has cut are joined, and
//! sent as one unsegmented frame, which the kernel cuts again where the device does not. On a veth
//! that saves nearly all of what a segment costs behind it, and that is most of a router's time,
//! for a frame sent into a veth goes all the way up to its receiver's socket in the sender's time.
//! What is joined is cut into the same frames again; no packet waits for another burst. It is for
//! who forwards: a tester's frames shall arrive as they were sent. On an interface with traffic
//! control it sends everything through that, to keep order.
//!
//! *Correctness*: the kernel strips VLAN tags from frames; they are put back. It passes frames with
//! unfinished checksums and of up to 64 KiB between local interfaces; both arrive as they are, with
//! their [`Offload`](linerate_core::packet::Offload) flags, and are handed to the kernel likewise,
//! for it to finish or cut. Frames longer than a small slot go to a pool of large slots; without
//! one they are dropped as `oversize`.
//!
//! *Interface deleted or down*: the link is down and says why, sent frames are dropped as
//! `link_down`; the port works again within 100 ms of an interface of that name being back.
//!
//! # See also
//! packet(7), Documentation/networking/packet_mmap.rst, DPDK's `net_af_packet`.

mod ring;
mod rx;
mod sys;
pub(crate) mod tx;

use crate::link::{self, Interface};
use crate::{Counters, Opener, PortKind};
use linerate_core::packet::{Burst, Pools};
use linerate_core::port::{
    Link, OptionHelp, Port, PortConfig, PortError, PortInfo, PortStats, Queues, Spec,
};
use linerate_wire::ethernet;
use ring::HandOver;
use rustix::net::sockopt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The row in the drivers' table.
pub const KIND: PortKind = PortKind {
    name: "af_packet",
    summary: "an interface of the Linux kernel, through packet sockets",
    example: "af_packet:eth0,queues=2",
    options: OPTIONS,
    open: |spec, drivers| Ok(Box::new(open(spec, &drivers.opener, drivers.joins)?)),
};

/// The options of [`open`].
pub const OPTIONS: &[OptionHelp] = &[
    OptionHelp {
        key: "queues",
        value: "N",
        help: "most receive queues, 1 to 64; default 1",
    },
    OptionHelp {
        key: "fanout",
        value: "hash|cpu|lb|rnd|qm",
        help: "how several queues share frames: by flow, by the CPU or device queue they came in \
            on, in turns, at random; default hash",
    },
    OptionHelp {
        key: "blocks",
        value: "N",
        help: "blocks of each receive ring, 2 to 1024; default 128",
    },
    OptionHelp {
        key: "block_kib",
        value: "N",
        help: "KiB of a block, a power of two from 4 to 4096; at least 128 for unsegmented frames; \
            default 128",
    },
    OptionHelp {
        key: "handover",
        value: "block|frame",
        help: "when received frames come: in blocks, full or after 1 ms (TPACKET_V3), or at once \
            (TPACKET_V2); default block",
    },
    OptionHelp {
        key: "gro",
        value: "on|off",
        help: "join TCP segments before sending; default: on for a router's virtual interfaces",
    },
    OptionHelp {
        key: "qdisc_bypass",
        value: "on|off",
        help: "send finished frames past the kernel's traffic control; default on",
    },
    OptionHelp {
        key: "promisc",
        value: "on|off",
        help: "receive frames for other stations too; default on",
    },
];

/// Most transmit queues: each is but a socket.
const MAX_TX_QUEUES: u16 = 64;

/// Bytes, kernel overhead included, that may wait in a socket; less where the system says so.
const BUFFER_BYTES: usize = 4 << 20;

/// Reads the options and looks the interface up. `joins`: TCP segments are joined where the options
/// do not say, if the interface is a virtual one.
///
/// # Errors
/// [`PortError::BadValue`], [`PortError::NoInterface`], or [`PortError::Unsupported`] where it is
/// no Ethernet device.
pub fn open(spec: &Spec, opener: &Arc<dyn Opener>, joins: bool) -> Result<AfPacket, PortError> {
    let interface = Interface::named_by(spec, opener)?;
    let block_kib = spec.number("block_kib", 128_usize, 4..=4096)?;
    if !block_kib.is_power_of_two() {
        return Err(spec.bad("block_kib", "a power of two from 4 to 4096"));
    }
    let hand_over = match spec.text("handover").unwrap_or("block") {
        "block" => HandOver::Block,
        "frame" => HandOver::Frame,
        _ => return Err(spec.bad("handover", "block or frame")),
    };
    let fanout = match spec.text("fanout").unwrap_or("hash") {
        "hash" => libc::PACKET_FANOUT_HASH,
        "cpu" => libc::PACKET_FANOUT_CPU,
        "lb" => libc::PACKET_FANOUT_LB,
        "rnd" => libc::PACKET_FANOUT_RND,
        "qm" => libc::PACKET_FANOUT_QM,
        _ => return Err(spec.bad("fanout", "hash, cpu, lb, rnd or qm")),
    };
    let port = spec.name();
    let mac = interface
        .mac()
        .map_err(|error| interface.failed(&port, "read the address", error))?;
    if mac.is_none() {
        return Err(PortError::Unsupported {
            reason: format!("`{}` is no Ethernet device", interface.name()),
            port,
        });
    }
    Ok(AfPacket {
        shared: Arc::new(Shared {
            port,
            shape: ring::Shape {
                block_bytes: block_kib << 10,
                blocks: spec.number("blocks", 128_usize, 2..=1024)?,
                hand_over,
            },
            fanout,
            sending: tx::Sending {
                qdisc_bypass: spec.switch("qdisc_bypass", true)?,
                joins: spec.switch("gro", joins && interface.driver().1)?,
            },
            interface,
            promiscuous: spec.switch("promisc", true)?,
            group: Mutex::new(None),
        }),
        queues: spec.number("queues", 1_u16, 1..=64)?,
        slot_room: usize::MAX,
        counters: Counters::default(),
    })
}

/// Opens a packet socket, with room for frames to be sent and for those too long for a receive
/// ring.
pub(crate) fn open_socket() -> io::Result<OwnedFd> {
    let socket = sys::socket()?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
    }
    if sockopt::set_socket_send_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES);
    }
    Ok(socket)
}

/// An interface of the kernel.
pub struct AfPacket {
    shared: Arc<Shared>,
    queues: u16,
    /// The longest frame that a slot has room for, beside a tag; no bound before there are slots.
    slot_room: usize,
    counters: Counters,
}

/// What the port and its queues know.
#[derive(Debug)]
struct Shared {
    port: String,
    interface: Interface,
    shape: ring::Shape,
    fanout: u32,
    sending: tx::Sending,
    promiscuous: bool,
    /// The fan-out group of the receive queues: number of the interface, and id.
    group: Mutex<Option<(i32, u16)>>,
}

impl Port for AfPacket {
    fn info(&self) -> PortInfo {
        let Shared {
            port,
            interface,
            sending,
            ..
        } = &*self.shared;
        let mtu = interface.mtu().unwrap_or(1500) as usize;
        PortInfo {
            name: port.clone(),
            kind: KIND.name,
            mac: interface.mac().ok().flatten(),
            // Of an interface that got a larger MTU since, no more than a slot takes.
            max_frame_bytes: (mtu + ethernet::HEADER_LEN).min(self.slot_room),
            max_rx_queues: self.queues,
            max_tx_queues: MAX_TX_QUEUES,
            numa_node: None,
            tx_offloads: true,
            aligned_pool: false,
            exposed_pool: false,
            facts: vec![
                ("receive", self.shared.shape.to_string()),
                (
                    "transmit",
                    format!(
                        "sendmmsg, {} traffic control{}",
                        if sending.qdisc_bypass {
                            "past"
                        } else {
                            "through"
                        },
                        if sending.joins {
                            ", TCP segments joined"
                        } else {
                            ""
                        }
                    ),
                ),
            ],
        }
    }

    fn start(&mut self, config: &PortConfig, pools: &Pools) -> Result<Queues, PortError> {
        self.counters.check_start(&self.info(), config)?;
        let Shared { port, group, .. } = &*self.shared;
        self.check_interface(pools)?;
        let rooms = pools.iter().map(|pool| pool.room_bytes());
        self.slot_room = rooms
            .max()
            .unwrap_or(0)
            .saturating_sub(linerate_wire::vlan::TAG_LEN);
        let pool = pools.primary();
        let needed = u32::from(config.rx_queues) * Burst::CAPACITY as u32;
        if pool.slots() < needed {
            return Err(PortError::PoolTooSmall {
                port: port.clone(),
                pool: pool.name().into(),
                slots: pool.slots(),
                needed,
            });
        }
        *group.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut queues = Queues::default();
        for index in 0..usize::from(config.rx_queues) {
            let ring = self
                .shared
                .open_rx(config.rx_queues)
                .map_err(|error| self.refused(error))?;
            let shared = self.shared.clone();
            let queue = rx::Receiver::new(ring, shared, config, pools, self.counters.rx(index));
            queues.rx.push(Box::new(queue));
        }
        for index in 0..usize::from(config.tx_queues) {
            let (shared, how) = (self.shared.clone(), self.shared.sending);
            let sockets = tx::Sockets::open(&shared.interface, how)
                .map_err(|(action, error)| self.refused(Refused(action, error)))?;
            let open = move || tx::Sockets::open(&shared.interface, how).ok();
            let stats = self.counters.tx(index);
            let queue = tx::Sender::new(Some(sockets), how.joins, stats, open);
            queues.tx.push(Box::new(queue));
        }
        Ok(queues)
    }

    fn link(&self) -> Link {
        self.shared.interface.link()
    }

    fn stats(&self) -> PortStats {
        self.counters.sum()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.counters.check_stop(&self.shared.port)
    }
}

impl AfPacket {
    /// Refuses an interface that is down, or whose frames fit no slot.
    fn check_interface(&self, pools: &Pools) -> Result<(), PortError> {
        let Shared {
            port, interface, ..
        } = &*self.shared;
        let name = interface.name();
        let failed = |error| interface.failed(port, "read the state", error);
        if !interface.is_up().map_err(failed)? {
            return Err(PortError::Unsupported {
                port: port.clone(),
                reason: format!(
                    "interface `{name}` is down; bring it up with `ip link set {name} up`"
                ),
            });
        }
        let mtu = interface.mtu().map_err(failed)?;
        let room = pools
            .iter()
            .map(|pool| pool.room_bytes())
            .max()
            .unwrap_or(0);
        let header = ethernet::HEADER_LEN + linerate_wire::vlan::TAG_LEN;
        if mtu as usize + header > room {
            let most = room - header;
            return Err(PortError::Mtu {
                port: port.clone(),
                mtu,
                reason: format!(
                    "its frames fit no slot; `ip link set {name} mtu {most}`, or add a pool of \
                     large slots"
                ),
            });
        }
        Ok(())
    }

    /// What the kernel refused when a queue was opened.
    fn refused(&self, error: Refused) -> PortError {
        let Shared {
            port, interface, ..
        } = &*self.shared;
        let Refused(action, source) = error;
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                link::no_permission(port, action.into(), "CAP_NET_RAW")
            }
            Some(libc::ENODEV | libc::ENXIO) => interface.missing(port),
            Some(libc::ENOMEM) => PortError::System {
                port: port.clone(),
                action: action.into(),
                source,
                fix: "use fewer or smaller blocks (`blocks=`, `block_kib=`)".into(),
            },
            _ => PortError::System {
                port: port.clone(),
                action: action.into(),
                source,
                fix: "`linerate doctor` shows what this kernel can do".into(),
            },
        }
    }
}

/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING` of linux/if_packet.h. Kernels before 5.16 do not know it;
/// there our own frames come back to a group.
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;

/// The step that failed when a queue was opened, and the kernel's error.
struct Refused(&'static str, io::Error);

impl Shared {
    fn socket(&self) -> Result<OwnedFd, Refused> {
        let opened = self.interface.opener().packet_socket(self.interface.name());
        opened.map_err(|error| Refused("open a packet socket", error))
    }

    /// Opens a receive queue and joins it to its fan-out group.
    fn open_rx(&self, of: u16) -> Result<ring::RxRing, Refused> {
        let step = |action| move |error| Refused(action, error);
        let index = self.interface.index().map_err(step("find the interface"))?;
        let socket = self.socket()?;
        sys::set_number(&socket, libc::PACKET_VNET_HDR, 1)
            .map_err(step("ask for offload headers"))?;
        // Kernels before 4.20 do not know it; there our own frames come back.
        let _ = sys::set_number(&socket, libc::PACKET_IGNORE_OUTGOING, 1);
        let mtu = self.interface.mtu().map_err(step("read the MTU"))?;
        let ring = ring::RxRing::new(socket, self.shape, mtu as usize)
            .map_err(step("set up a receive ring"))?;
        if self.promiscuous {
            sys::set_promiscuous(ring.socket(), index).map_err(step("listen promiscuously"))?;
        }
        sys::bind(ring.socket(), index, libc::ETH_P_ALL as u16)
            .map_err(step("bind to the interface"))?;
        if of > 1 {
            self.join_group(ring.socket(), index)
                .map_err(step("join a fan-out group"))?;
        }
        Ok(ring)
    }

    /// Puts a receive socket into the port's fan-out group; the first one makes it.
    fn join_group(&self, socket: &OwnedFd, index: i32) -> io::Result<()> {
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, flags) = match *group {
            Some((same, id)) if same == index => (id, 0),
            _ => (0, libc::PACKET_FANOUT_FLAG_UNIQUEID),
        };
        // A group has a hook of its own, which the sockets' setting says nothing to.
        let flags = flags | FANOUT_IGNORE_OUTGOING;
        let value = u32::from(id) | (self.fanout | flags) << 16;
        sys::set_number(socket, libc::PACKET_FANOUT, value.cast_signed())?;
        *group = Some((index, sys::fanout_id(socket)?));
        Ok(())
    }
}

#[cfg(feature = "fuzz")]
pub(crate) use ring::fuzz::check as fuzz;
