//! A transmit queue: one `sendmmsg` for a burst.
//!
//! Two sockets, because the kernel takes frames faster without offload headers: frames that are
//! finished go out on one, runs of unfinished ones on the other. Calls are made in the order
//! of the frames, and both sockets send through the same queue of the device, so order is kept
//! (unless traffic control holds unfinished ones back: finished ones go past it).
//!
//! With `gro=on` TCP segments of the burst are joined, each payload gathered from where it is: one
//! frame for the kernel's way through its device and up the stack behind it, instead of forty.

use super::sys;
use crate::link::Interface;
use crate::offload::{self, merge::Merger};
use crate::pace::Pace;
use crate::vnet;
use linerate_core::packet::{Burst, Offload, Packet, PoolCache};
use linerate_core::port::{DropReason, QueueStats, TxQueue};
use linerate_wire::ethernet;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Parts of a call's frames: each packet's data, and no more heads or offload headers than packets.
const PARTS_MOST: usize = 2 * sys::SEND_MOST;

/// How frames are to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// Finished frames go past the kernel's traffic control.
    pub(crate) qdisc_bypass: bool,
    /// TCP segments are joined.
    pub(crate) joins: bool,
}

/// A transmit queue.
pub(crate) struct Sender {
    /// `None` while the interface does not exist.
    sockets: Option<Sockets>,
    /// Opens them again.
    open: Box<dyn Fn() -> Option<Sockets> + Send>,
    joins: bool,
    merger: Merger,
    pace: Pace,
    stats: Arc<QueueStats>,
}

/// The sockets of a transmit queue.
pub(crate) struct Sockets {
    /// Takes frames alone.
    plain: OwnedFd,
    /// Takes frames behind offload headers.
    offloads: OwnedFd,
    /// Longest frame that the interface took when they were opened, VLAN tags aside.
    max_frame_bytes: usize,
}

/// The failed step, and the kernel's error.
pub(crate) type Refused = (&'static str, io::Error);

impl Sockets {
    pub(crate) fn open(interface: &Interface, how: Sending) -> Result<Self, Refused> {
        let step = |action| move |error| (action, error);
        let index = interface.index().map_err(step("find the interface"))?;
        let mtu = interface.mtu().map_err(step("read the MTU"))?;
        // A frame that the kernel has to cut, for a device that does not, goes past no traffic
        // control: __dev_direct_xmit() drops what validate_xmit_skb_list() has made into several.
        // And where some of a connection's frames are joined, the others must not overtake them.
        let (_, is_virtual) = interface.driver();
        let bypass = how.qdisc_bypass && (is_virtual || !how.joins);
        Ok(Self {
            plain: open_one(interface, index, false, bypass)?,
            offloads: open_one(interface, index, true, false)?,
            max_frame_bytes: mtu as usize + ethernet::HEADER_LEN,
        })
    }

    /// Sends the first of the planned runs, those that are all finished or all not; returns how
    /// many runs went.
    fn send(&self, packets: &[Packet], merger: &Merger, first: usize) -> io::Result<usize> {
        let runs = &merger.runs()[first..];
        let mut headers = [[0; vnet::LEN]; sys::SEND_MOST];
        let mut packets_left = packets;
        let mut kind = None;
        // Where each frame's parts end.
        let mut ends = [0; sys::SEND_MOST];
        let mut frames: usize = 0;
        for (run, header) in runs.iter().zip(&mut headers) {
            let (of_run, rest) = packets_left.split_at(run.packets);
            let duty = run.joined.is_some() || of_run[0].meta().offload.intersects(unfinished());
            if duty != *kind.get_or_insert(duty) {
                break;
            }
            if duty && run.joined.is_none() {
                *header = vnet::write(&of_run[0]);
            }
            let before = frames.checked_sub(1).map_or(0, |last| ends[last]);
            ends[frames] = before + run.packets + usize::from(duty);
            frames += 1;
            packets_left = rest;
        }
        let mut parts = [IoSlice::new(&[]); PARTS_MOST];
        let (mut at, mut packet) = (0, packets.iter());
        for (run, header) in runs[..frames].iter().zip(&headers) {
            let skip = run.joined.map_or(0, |joined| joined.payload);
            if kind == Some(true) {
                let head = run.joined.map_or(&header[..], |joined| merger.head(joined));
                parts[at] = IoSlice::new(head);
                at += 1;
            }
            for packet in packet.by_ref().take(run.packets) {
                parts[at] = IoSlice::new(&packet.data()[skip..]);
                at += 1;
            }
        }
        let mut messages: [&[IoSlice<'_>]; sys::SEND_MOST] = [&[]; sys::SEND_MOST];
        let mut start = 0;
        for (message, &end) in messages.iter_mut().zip(&ends[..frames]) {
            *message = &parts[start..end];
            start = end;
        }
        let socket = match kind {
            Some(true) => &self.offloads,
            _ => &self.plain,
        };
        sys::send(socket, &messages[..frames])
    }
}

/// What the kernel finishes of a frame.
fn unfinished() -> Offload {
    Offload::CSUM_PARTIAL | Offload::GSO
}

fn open_one(
    interface: &Interface,
    index: i32,
    offloads: bool,
    bypass: bool,
) -> Result<OwnedFd, Refused> {
    let step = |action| move |error| (action, error);
    let opened = interface.opener().packet_socket(interface.name());
    let socket = opened.map_err(step("open a packet socket"))?;
    if offloads {
        sys::set_number(&socket, libc::PACKET_VNET_HDR, 1)
            .map_err(step("ask for offload headers"))?;
    }
    sys::set_number(&socket, libc::PACKET_QDISC_BYPASS, bypass.into())
        .map_err(step("bypass traffic control"))?;
    sys::bind(&socket, index, 0).map_err(step("bind to the interface"))?;
    Ok(socket)
}

impl Sender {
    pub(crate) fn new(
        sockets: Option<Sockets>,
        joins: bool,
        stats: Arc<QueueStats>,
        open: impl Fn() -> Option<Sockets> + Send + 'static,
    ) -> Self {
        Self {
            sockets,
            open: Box::new(open),
            joins,
            merger: Merger::default(),
            pace: Pace::new(),
            stats,
        }
    }

    /// Plans which packets leave as one frame. Whether some frames are, or are for the kernel to
    /// finish, and there is an interface.
    pub(crate) fn plan(&mut self, burst: &mut Burst) -> bool {
        offload::put_tags_back(burst);
        match &self.sockets {
            Some(sockets) if self.joins && burst.len() > 1 => {
                self.merger.plan(burst, sockets.max_frame_bytes);
            }
            _ => self.merger.plan_alone(burst.len()),
        }
        let some = self.merger.joins() || offload::any(burst, unfinished());
        some && self.sockets.is_some()
    }

    /// Sends what was planned.
    pub(crate) fn send(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let (mut taken, mut run) = (0, 0);
        while !burst.is_empty() {
            let Some(sockets) = &self.sockets else {
                taken += self.drop_front(burst, cache, burst.len(), DropReason::LinkDown);
                break;
            };
            match sockets.send(burst.as_packets(), &self.merger, run) {
                Ok(sent) => {
                    let went = &self.merger.runs()[run..run + sent];
                    let packets = went.iter().map(|run| run.packets).sum();
                    let joined = went.iter().filter(|run| run.joined.is_some());
                    let joined: usize = joined.map(|run| run.packets).sum();
                    self.stats.joined.add(joined as u64);
                    self.stats
                        .passed(packets as u64, burst.bytes_of_front(packets));
                    cache.free_front(burst, packets);
                    taken += packets;
                    run += sent;
                }
                Err(error) => match self.refused(&error, run, burst, cache) {
                    Some(dropped) => {
                        taken += dropped;
                        run += dropped;
                    }
                    None => break,
                },
            }
        }
        taken
    }

    /// Takes `count` packets that will not be sent.
    fn drop_front(
        &self,
        burst: &mut Burst,
        cache: &mut PoolCache,
        count: usize,
        reason: DropReason,
    ) -> usize {
        self.stats.dropped(reason, count as u64);
        cache.free_front(burst, count);
        count
    }

    /// Handles the first frame after the kernel refused it: how many packets were taken, or `None`
    /// to keep them for later.
    #[cold]
    fn refused(
        &mut self,
        error: &io::Error,
        run: usize,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Option<usize> {
        let (count, reason) = match error.raw_os_error() {
            // The socket's or the device's queue is full.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM) => return None,
            Some(libc::ENETDOWN) => (burst.len(), DropReason::LinkDown),
            Some(libc::ENXIO | libc::ENODEV) => {
                self.sockets = None;
                (burst.len(), DropReason::LinkDown)
            }
            // Joining was our idea: its packets may yet go one by one.
            _ if self.merger.runs()[run].joined.is_some() => {
                self.merger.undo(run);
                return Some(0);
            }
            Some(libc::EMSGSIZE) => (1, DropReason::Oversize),
            Some(libc::EINVAL) => (1, DropReason::Malformed),
            _ => (1, DropReason::Refused),
        };
        Some(self.drop_front(burst, cache, count, reason))
    }
}

impl TxQueue for Sender {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        self.plan(burst);
        self.send(burst, cache)
    }

    fn flush(&mut self, _: &mut PoolCache) {
        if self.sockets.is_none() && self.pace.due(true) {
            self.sockets = (self.open)();
        }
    }
}
