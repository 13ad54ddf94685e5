//! A receive queue: copies frames from the ring into slots.
//!
//! A frame too long for a ring of V2 comes twice: cut, with its tag, in the ring, and whole, with
//! its offload header, in the socket's queue, in the same order.

use super::ring::{Frame, RxRing, Tag};
use super::{Shared, sys};
use crate::pace::Pace;
use crate::vnet;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, Pools};
use linerate_core::port::{DropReason, PortConfig, QueueStats, RxQueue, SleepOn};
use linerate_wire::{EtherType, ethernet, vlan};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// A receive queue.
pub(super) struct Receiver {
    /// `None` while the interface does not exist.
    ring: Option<RxRing>,
    shared: Arc<Shared>,
    pace: Pace,
    /// Receive queues of the port.
    of: u16,
    index: u16,
    pools: Pools,
    /// Where frames go that fit; others look for a pool.
    pool: Pool,
    room: usize,
    stats: Arc<QueueStats>,
}

impl Receiver {
    pub(super) fn new(
        ring: RxRing,
        shared: Arc<Shared>,
        config: &PortConfig,
        pools: &Pools,
        stats: Arc<QueueStats>,
    ) -> Self {
        let pool = pools.primary().clone();
        Self {
            ring: Some(ring),
            shared,
            pace: Pace::new(),
            of: config.rx_queues,
            index: config.index,
            room: pool.room_bytes(),
            pool,
            pools: pools.clone(),
            stats,
        }
    }

    /// Counts frames that the ring lost, notices that the interface is gone or back.
    #[cold]
    fn look(&mut self) {
        let Some(ring) = &self.ring else {
            self.ring = self.shared.open_rx(self.of).ok();
            return;
        };
        self.count_losses();
        // A pending error keeps the descriptor readable; reading it takes it away.
        let _ = rustix::net::sockopt::socket_error(ring.socket());
        if sys::bound_to(ring.socket()).is_ok_and(|interface| interface < 0) {
            self.ring = None;
        }
    }

    #[cold]
    fn count_losses(&self) {
        if let Some(ring) = &self.ring {
            let drops = sys::take_drops(ring.socket());
            self.stats.dropped(DropReason::Missed, drops.into());
        }
    }
}

/// Copies a frame into a slot.
#[inline]
fn copy(
    frame: &Frame<'_>,
    pool: &Pool,
    cache: &mut PoolCache,
    port: u16,
) -> Result<Packet, DropReason> {
    if frame.data.len() < frame.len {
        return Err(DropReason::Oversize); // longer than a block of the ring
    }
    if frame.len < ethernet::HEADER_LEN {
        return Err(DropReason::Malformed);
    }
    let mut packet = cache.get(pool).ok_or(DropReason::NoBuffer)?;
    packet.set_data(frame.data);
    dress(packet, &frame.vnet, frame.tag, port, cache)
}

/// Reads a frame that was too long for its ring from the socket's queue.
#[cold]
fn take_queued(
    socket: &OwnedFd,
    (len, tag): (usize, Option<Tag>),
    pools: &Pools,
    cache: &mut PoolCache,
    port: u16,
) -> Result<Packet, DropReason> {
    let mut header = [0; vnet::LEN];
    let pool = pools.for_frame(len).ok_or(DropReason::Oversize);
    let slot = pool.and_then(|pool| cache.get(pool).ok_or(DropReason::NoBuffer));
    let mut packet = match slot {
        Ok(packet) => packet,
        Err(reason) => {
            // The next one that was too long must find its own.
            let _ = rustix::io::read(socket, &mut header);
            return Err(reason);
        }
    };
    packet.set_len(len);
    let mut parts = [
        IoSliceMut::new(&mut header),
        IoSliceMut::new(packet.data_mut()),
    ];
    if rustix::io::readv(socket, &mut parts) != Ok(vnet::LEN + len) {
        cache.free_one(packet);
        return Err(DropReason::Malformed);
    }
    dress(packet, &header, tag, port, cache)
}

/// Puts a stripped tag back and notes what is left to do.
#[inline]
fn dress(
    mut packet: Packet,
    header: &vnet::Header,
    tag: Option<Tag>,
    port: u16,
    cache: &mut PoolCache,
) -> Result<Packet, DropReason> {
    packet.set_port(port);
    let mut shift = 0;
    if let Some(Tag { tpid, tci }) = tag {
        // A fresh packet has headroom for many tags, and the frame a whole header.
        shift = vlan::TAG_LEN as u16;
        let tagged = packet.prepend(vlan::TAG_LEN).is_some()
            && vlan::insert(packet.data_mut(), EtherType(tpid), tci);
        debug_assert!(tagged, "a fresh packet takes a tag");
    }
    if vnet::read(header, packet.meta_mut(), shift) {
        return Ok(packet);
    }
    cache.free_one(packet);
    Err(DropReason::Malformed)
}

impl RxQueue for Receiver {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let before = burst.len();
        let mut bytes = 0;
        let mut losing = false;
        if let Some(ring) = &mut self.ring {
            while burst.room() > 0 {
                let Some(frame) = ring.next() else { break };
                let len = frame.data.len();
                let received = if frame.queued && len < frame.len {
                    let frame = (frame.len, frame.tag);
                    take_queued(ring.socket(), frame, &self.pools, cache, self.index)
                } else if len <= self.room {
                    copy(&frame, &self.pool, cache, self.index)
                } else {
                    let pool = self.pools.for_frame(len).ok_or(DropReason::Oversize);
                    pool.and_then(|pool| copy(&frame, pool, cache, self.index))
                };
                match received {
                    Ok(mut packet) => {
                        bytes += packet.len() as u64;
                        packet.meta_mut().timestamp = burst.now;
                        let pushed = burst.push(packet);
                        debug_assert!(pushed.is_ok(), "the burst had room");
                    }
                    Err(reason) => self.stats.dropped(reason, 1),
                }
            }
            losing = ring.take_losing();
        }
        let count = burst.len() - before;
        self.stats.passed(count as u64, bytes);
        if losing {
            self.count_losses();
        }
        if self.pace.due(count == 0) {
            self.look();
        }
        count
    }

    fn sleep_on(&mut self) -> SleepOn {
        self.ring.as_ref().map_or(SleepOn::Nothing, |ring| {
            SleepOn::Fd(ring.socket().as_raw_fd())
        })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.count_losses();
    }
}
