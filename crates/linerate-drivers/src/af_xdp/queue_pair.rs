//! One queue of the interface: its socket, shared by the receive and the transmit half.
//!
//! The halves poll rings of their own, without locks. What they share is behind a lock that they
//! take only when the socket dies with its interface, or a new one is there: then each hands back
//! its part of the old socket and fetches its part of the new one. Slots that a half had lent
//! return to the pool once the kernel cannot use them any more: when the socket is unbound, or
//! closed by the last holder of the queue pair. Each socket registers the pool for itself, so that
//! one can die and come back without the others; the same pages under two ports are one memory, and
//! packets pass from port to port in place.

use super::device::Device;
use super::ring::{Consumer, Lent, Producer, RingKind};
use super::{sys, zero_copy};
use linerate_core::packet::{Burst, Pool, PoolCache, RxTemplate};
use linerate_core::port::{DropReason, PortError, QueueStats};
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XdpDesc, XdpOptionsFlags, XdpStatistics, XdpUmemReg,
    XdpUmemRegFlags,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval of checks for a missing interface.
const RETRY: Duration = Duration::from_millis(100);
/// How long a driver may take to let go of a queue: it waits for the device, and others for it.
const DEVICE_STOPS: Duration = Duration::from_secs(5);
/// `XDP_MAX_TX_SKB_BUDGET`: frames that one call may send in copy mode (Linux 6.17).
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
const SOL_XDP: i32 = 283;

/// What does not change while a queue pair lives.
pub(super) struct Shape {
    pub(super) queue: u32,
    pub(super) ring: u32,
    pub(super) port_index: u16,
    /// Counters of the halves there are.
    pub(super) rx: Option<Arc<QueueStats>>,
    pub(super) tx: Option<Arc<QueueStats>>,
}

pub(super) struct QueuePair {
    pub(super) device: Arc<Device>,
    pub(super) pool: Pool,
    pub(super) shape: Shape,
    /// Counts up when a socket dies and when a new one is there: odd while one is there.
    generation: AtomicU64,
    /// The receive half found no free slot for the fill ring since the counters were last read.
    pub(super) starved: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    socket: Option<Arc<OwnedFd>>,
    rx: Option<RxPart>,
    tx: Option<TxPart>,
    /// Of halves that were dropped while the socket lived.
    retired: Vec<Lent>,
    /// The kernel's counters when last read, since they start anew with each socket.
    seen: Drops,
    zero_copy: bool,
    last_try: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct Drops {
    ring_full: u64,
    fill_empty: u64,
    dropped: u64,
    /// Entries that the kernel took from the rings and did nothing with: their slots come back with
    /// the socket's end.
    rx_invalid: u64,
    tx_invalid: u64,
}

/// The receive half's part of a socket. The rings unmap before the descriptor goes.
pub(super) struct RxPart {
    pub(super) rx: Consumer<XdpDesc>,
    pub(super) fill: Producer<u64>,
    pub(super) lent: Lent,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) generation: u64,
}

/// The transmit half's part of a socket.
pub(super) struct TxPart {
    pub(super) tx: Producer<XdpDesc>,
    pub(super) completion: Consumer<u64>,
    pub(super) lent: Lent,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) generation: u64,
    /// Longest frame that the interface takes, VLAN tags aside.
    pub(super) max_frame_bytes: usize,
}

impl RxPart {
    /// Lends the kernel free slots until it has a ring of them. How many it lacks.
    pub(super) fn refill(
        &mut self,
        pool: &Pool,
        ring: u32,
        port: u16,
        cache: &mut PoolCache,
    ) -> usize {
        let mut lacking = (ring as usize).saturating_sub(self.lent.count());
        let template = RxTemplate {
            port,
            ..RxTemplate::default()
        };
        let mut slots = Burst::new();
        while lacking > 0 {
            let wanted = lacking.min(Burst::CAPACITY);
            let got = cache.fill_with(pool, &mut slots, wanted, template);
            while let Some(packet) = slots.pop() {
                match self.lent.give(packet) {
                    Ok(offset) => self.fill.push(offset),
                    Err(stranger) => drop(stranger),
                }
            }
            lacking -= got;
            if got < wanted {
                break;
            }
        }
        self.fill.publish();
        lacking
    }
}

impl QueuePair {
    /// Opens the queue's socket; the halves then fetch their parts.
    pub(super) fn open(
        device: &Arc<Device>,
        pool: &Pool,
        shape: Shape,
    ) -> Result<Arc<Self>, PortError> {
        let queue_pair = Self {
            device: device.clone(),
            pool: pool.clone(),
            shape,
            generation: AtomicU64::new(0),
            starved: AtomicBool::new(false),
            state: Mutex::default(),
        };
        queue_pair.connect(&mut queue_pair.lock())?;
        Ok(Arc::new(queue_pair))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket, if there is one.
    #[cfg(test)]
    pub(super) fn socket(&self) -> Option<Arc<OwnedFd>> {
        self.lock().socket.clone()
    }

    /// Whether the socket is still the one that a part is of.
    #[inline(always)]
    pub(super) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == generation
    }

    pub(super) fn is_zero_copy(&self) -> bool {
        self.lock().zero_copy
    }

    /// Marks the socket of that generation as dead: its interface was deleted.
    pub(super) fn died(&self, generation: u64) {
        let mut state = self.lock();
        if !self.is_current(generation) {
            return;
        }
        self.read_drops(&mut state);
        self.generation.store(generation + 1, Ordering::Release);
        // Parts that were not fetched; the kernel has unbound the socket.
        if let Some(mut part) = state.rx.take() {
            part.lent.reclaim();
        }
        if let Some(mut part) = state.tx.take() {
            part.lent.reclaim();
        }
        state.socket = None;
        state.retired.iter_mut().for_each(Lent::reclaim);
        state.retired.clear();
        state.seen = Drops::default();
    }

    /// The receive part of a socket that is there, or is there again.
    pub(super) fn fetch_rx(&self) -> Option<RxPart> {
        let mut state = self.lock();
        self.revive(&mut state);
        state.rx.take()
    }

    /// The transmit part of a socket that is there, or is there again.
    pub(super) fn fetch_tx(&self) -> Option<TxPart> {
        let mut state = self.lock();
        self.revive(&mut state);
        state.tx.take()
    }

    fn revive(&self, state: &mut State) {
        let due = state.last_try.is_none_or(|last| last.elapsed() >= RETRY);
        if state.socket.is_none() && due {
            state.last_try = Some(Instant::now());
            // Not there yet, or not up yet: the next try will show it.
            let _ = self.connect(state);
        }
    }

    /// Keeps what a half had lent until the socket closes.
    pub(super) fn retire(&self, mut lent: Lent, generation: u64) {
        let mut state = self.lock();
        if self.is_current(generation) {
            state.retired.push(lent);
        } else {
            lent.reclaim();
        }
    }

    /// Closes the socket, and then takes its slots back. The halves were dropped or have none.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        self.read_drops(&mut state);
        self.device.unmap_queue(self.shape.queue);
        let parts = (state.rx.take(), state.tx.take());
        let mut lent: Vec<Lent> = std::mem::take(&mut state.retired);
        lent.extend(parts.0.map(|part| part.lent));
        lent.extend(parts.1.map(|part| part.lent));
        let zero_copy = state.zero_copy;
        state.socket = None;
        state.seen = Drops::default();
        self.take_back(lent, zero_copy);
    }

    /// Takes back what a socket had that is closed.
    fn take_back(&self, lent: Vec<Lent>, zero_copy: bool) {
        let slots: usize = lent.iter().map(Lent::count).sum();
        let is_free = || self.queue_is_free();
        if slots > 0 && !zero_copy::take_back(lent, zero_copy, DEVICE_STOPS, is_free) {
            let (name, queue) = (&self.device.options.interface, self.shape.queue);
            eprintln!(
                "warning: the device of `{name}` may still write to {slots} slots of queue \
                 {queue}, which are not used again"
            );
        }
    }

    /// Whether no socket's memory is the queue's any more, those closed included: by binding
    /// another one there, without zero copy and with nothing to write to.
    pub(super) fn queue_is_free(&self) -> io::Result<bool> {
        #[repr(align(4096))]
        struct Page([u8; 4096]);
        let options = &self.device.options;
        let Ok(found) = self.device.find() else {
            return Ok(true); // a device that is gone was stopped first
        };
        let page = Box::new(Page([0; 4096]));
        let socket = self.device.opener().xdp_socket(&options.interface, 0)?;
        let umem = XdpUmemReg {
            addr: page.0.as_ptr().addr() as u64,
            len: page.0.len() as u64,
            chunk_size: page.0.len() as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, umem)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, 2)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, 2)?;
        sockopt::set_xdp_tx_ring_size(&socket, 2)?;
        let flags = SocketAddrXdpFlags::XDP_COPY;
        let address = SocketAddrXdp::new(flags, found.index, self.shape.queue);
        match rustix::net::bind(&socket, &address) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::BUSY) => Ok(false),
            Err(rustix::io::Errno::NODEV) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings the drops that the kernel counts into the queues' counters.
    pub(super) fn count_drops(&self) {
        self.read_drops(&mut self.lock());
    }

    fn read_drops(&self, state: &mut State) {
        let Some(statistics) = state
            .socket
            .as_ref()
            .and_then(|fd| sockopt::xdp_statistics(fd).ok())
        else {
            return;
        };
        let XdpStatistics {
            rx_dropped,
            rx_ring_full,
            rx_fill_ring_empty_descs,
            rx_invalid_descs,
            tx_invalid_descs,
            ..
        } = statistics;
        let now = Drops {
            ring_full: rx_ring_full.unwrap_or(0),
            fill_empty: rx_fill_ring_empty_descs.unwrap_or(0).min(rx_dropped),
            dropped: rx_dropped,
            rx_invalid: rx_invalid_descs,
            tx_invalid: tx_invalid_descs,
        };
        let seen = std::mem::replace(&mut state.seen, now);
        if let Some(stats) = &self.shape.rx {
            let add = |reason, count| stats.set_dropped(reason, stats.drops(reason) + count);
            let fill_empty = now.fill_empty - seen.fill_empty;
            // Frames too long for a slot, and those that found no slot, share a counter.
            add(
                DropReason::Oversize,
                (now.dropped - seen.dropped).saturating_sub(fill_empty),
            );
            // All slots wait in the receive ring for someone to poll, unless the pool ran dry.
            let starved = self.starved.swap(false, Ordering::Relaxed);
            add(
                if starved {
                    DropReason::NoBuffer
                } else {
                    DropReason::Missed
                },
                fill_empty,
            );
            add(DropReason::Missed, now.ring_full - seen.ring_full);
            add(DropReason::Refused, now.rx_invalid - seen.rx_invalid);
        }
        if let Some(stats) = &self.shape.tx {
            let refused = stats.drops(DropReason::Refused) + now.tx_invalid - seen.tx_invalid;
            stats.set_dropped(DropReason::Refused, refused);
        }
    }

    /// Makes, binds and registers a socket, and leaves its parts for the halves.
    fn connect(&self, state: &mut State) -> Result<(), PortError> {
        let options = &self.device.options;
        let interface = self.device.find()?;
        if !interface.is_up {
            let name = &options.interface;
            return Err(options.unsupported(format!(
                "interface `{name}` is down: `ip link set {name} up`"
            )));
        }
        let native = self.device.attach(&interface)?;
        let ring = self.shape.ring;
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        let rings =
            |source| options.system("set up the rings", source, "use smaller ones: `ring=512`");

        let socket = Arc::new(self.new_socket()?);
        let fd = socket.as_fd();
        self.register(fd)?;
        sockopt::set_xdp_umem_fill_ring_size(fd, ring).map_err(|error| rings(error.into()))?;
        sockopt::set_xdp_umem_completion_ring_size(fd, ring)
            .map_err(|error| rings(error.into()))?;
        if self.shape.rx.is_some() {
            sockopt::set_xdp_rx_ring_size(fd, ring).map_err(|error| rings(error.into()))?;
        }
        if self.shape.tx.is_some() {
            sockopt::set_xdp_tx_ring_size(fd, ring).map_err(|error| rings(error.into()))?;
        }
        let offsets = sockopt::xdp_mmap_offsets(fd).map_err(|error| rings(error.into()))?;
        let mut rx = None;
        if self.shape.rx.is_some() {
            rx = Some(RxPart {
                rx: Consumer::map(fd, RingKind::Rx, &offsets.rx, ring).map_err(rings)?,
                fill: Producer::map(fd, RingKind::Fill, &offsets.fr, ring).map_err(rings)?,
                lent: Lent::new(self.pool.clone()),
                socket: socket.clone(),
                generation,
            });
        }
        let mut tx = None;
        if self.shape.tx.is_some() {
            tx = Some(TxPart {
                tx: Producer::map(fd, RingKind::Tx, &offsets.tx, ring).map_err(rings)?,
                completion: Consumer::map(fd, RingKind::Completion, &offsets.cr, ring)
                    .map_err(rings)?,
                lent: Lent::new(self.pool.clone()),
                socket: socket.clone(),
                generation,
                max_frame_bytes: interface.mtu as usize + 14,
            });
        }
        if let Some(part) = &mut rx {
            // Before the first poll, so that no frame is lost until then.
            let mut cache = PoolCache::new(std::slice::from_ref(&self.pool));
            part.refill(&self.pool, ring, self.shape.port_index, &mut cache);
        }
        let bound = self.tune_and_bind(fd, interface.index, native);
        let zero_copy = *bound.as_ref().unwrap_or(&false);
        let mapped = bound.and_then(|_| match self.shape.rx {
            Some(_) => self.device.map_queue(self.shape.queue, fd),
            None => Ok(()),
        });
        if let Err(error) = mapped {
            // The socket closes first, so that the kernel has none of the slots.
            let lent = rx.map(|part| part.lent);
            drop((tx, socket));
            self.take_back(lent.into_iter().collect(), zero_copy);
            return Err(self.explain_bind(error));
        }
        (state.rx, state.tx, state.socket, state.zero_copy) = (rx, tx, Some(socket), zero_copy);
        self.generation.store(generation, Ordering::Release);
        Ok(())
    }

    fn new_socket(&self) -> Result<OwnedFd, PortError> {
        let options = &self.device.options;
        let (name, busy_poll_us) = (&options.interface, options.busy_poll_us);
        let opened = self.device.opener().xdp_socket(name, busy_poll_us);
        opened.map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => options.permission(
                "open an AF_XDP socket",
                "CAP_NET_RAW (and CAP_NET_ADMIN for busy polling)",
            ),
            _ => options.system(
                "open an AF_XDP socket",
                error,
                "the kernel needs CONFIG_XDP_SOCKETS",
            ),
        })
    }

    /// Makes the pool's slots the socket's memory.
    fn register(&self, socket: BorrowedFd<'_>) -> Result<(), PortError> {
        let options = &self.device.options;
        let (start, bytes) = self.pool.data_span();
        let aligned = zero_copy::is_aligned(self.pool.slot_bytes());
        let umem = XdpUmemReg {
            addr: start.addr() as u64,
            len: bytes as u64,
            chunk_size: self.pool.slot_bytes() as u32,
            headroom: 0, // besides XDP's own 256 bytes, which are the pool's
            flags: if aligned {
                XdpUmemRegFlags::empty()
            } else {
                XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG
            },
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(socket, umem).map_err(|error| match error {
            rustix::io::Errno::NOBUFS | rustix::io::Errno::PERM => {
                let action = format!(
                    "lock the {} MiB of pool `{}`",
                    bytes >> 20,
                    self.pool.name()
                );
                let fix = "raise the limit with `ulimit -l unlimited` (RLIMIT_MEMLOCK), or give \
                           the program CAP_IPC_LOCK: `sudo setcap \
                           cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep FILE`";
                options.system(&action, error.into(), fix)
            }
            error => {
                let action = format!("register pool `{}`", self.pool.name());
                options.system(
                    &action,
                    error.into(),
                    "before Linux 5.4, use a pool with aligned \
                    slots",
                )
            }
        })
    }

    /// Whether it is zero-copy.
    fn tune_and_bind(
        &self,
        socket: BorrowedFd<'_>,
        ifindex: u32,
        native: bool,
    ) -> io::Result<bool> {
        let options = &self.device.options;
        // One call sends 32 frames, or more where it can be asked for.
        let _ = sys::set_option(
            socket,
            SOL_XDP,
            XDP_MAX_TX_SKB_BUDGET,
            self.shape.ring.min(256),
        );
        let wakeup = if options.wakeup {
            SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
        } else {
            SocketAddrXdpFlags::empty()
        };
        let flags = zero_copy::flags(options.copy, native, self.pool.slot_bytes());
        // `start` has refused such a pool.
        let flags = flags.ok_or(io::ErrorKind::Unsupported)?;
        match bind(socket, flags | wakeup, ifindex, self.shape.queue) {
            // A driver may refuse zero-copy of these chunks instead of doing without.
            Err(error)
                if flags.is_empty()
                    && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) =>
            {
                bind(
                    socket,
                    SocketAddrXdpFlags::XDP_COPY | wakeup,
                    ifindex,
                    self.shape.queue,
                )?;
            }
            result => result?,
        }
        Ok(sockopt::xdp_options(socket)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    fn explain_bind(&self, error: io::Error) -> PortError {
        let options = &self.device.options;
        let (queue, name) = (self.shape.queue, &options.interface);
        let fix = match error.raw_os_error() {
            Some(libc::EBUSY) => {
                "another AF_XDP socket has the queue: stop its owner, or choose others with \
                 `start_queue=`"
            }
            Some(libc::EINVAL) => {
                "the interface has no such queue, or the driver refuses the pool's slots"
            }
            Some(libc::EOPNOTSUPP) => "the driver has no zero-copy: use `copy=auto`",
            _ => "see `ip link`",
        };
        options.system(&format!("bind to queue {queue} of `{name}`"), error, fix)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.close();
    }
}

/// The kernel frees the queue of a closed socket a little later, so a queue just left is waited
/// for.
fn bind(
    socket: BorrowedFd<'_>,
    flags: SocketAddrXdpFlags,
    ifindex: u32,
    queue: u32,
) -> io::Result<()> {
    let address = SocketAddrXdp::new(flags, ifindex, queue);
    let mut tries = 0;
    loop {
        match rustix::net::bind(socket, &address) {
            Err(rustix::io::Errno::BUSY) if tries < 50 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return Ok(result?),
        }
    }
}
