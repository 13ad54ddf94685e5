//! A receive queue: copies frames from the ring into slots.

use super::ring::{Frame, RxRing};
use super::{Shared, sys};
use crate::pace::Pace;
use crate::vnet;
use linerate_core::packet::{Burst, Packet, Pool, PoolCache, Pools};
use linerate_core::port::{DropReason, PortConfig, QueueStats, RxQueue, SleepOn};
use linerate_wire::{EtherType, ethernet, vlan};
use std::os::fd::AsRawFd;
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

/// Copies a frame into a slot and puts a stripped tag back.
#[inline]
fn receive(
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
    packet.meta_mut().port = port;
    let mut shift = 0;
    if let Some((tpid, tci)) = frame.tag {
        // A fresh packet has headroom for many tags, and the frame a whole header.
        shift = vlan::TAG_LEN as u16;
        let tagged = packet.prepend(vlan::TAG_LEN).is_some()
            && vlan::insert(packet.data_mut(), EtherType(tpid), tci);
        debug_assert!(tagged, "a fresh packet takes a tag");
    }
    if !vnet::read(&frame.vnet, packet.meta_mut(), shift) {
        cache.free_one(packet);
        return Err(DropReason::Malformed);
    }
    Ok(packet)
}

impl RxQueue for Receiver {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let before = burst.len();
        let mut bytes = 0;
        let mut losing = false;
        if let Some(ring) = &mut self.ring {
            while burst.room() > 0 {
                let Some(frame) = ring.next() else { break };
                let fits = frame.data.len() <= self.room;
                let pool = if fits { Some(&self.pool) } else { self.pools.for_frame(frame.data.len()) };
                let received = match pool {
                    Some(pool) => receive(&frame, pool, cache, self.index),
                    None => Err(DropReason::Oversize),
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
        self.ring.as_ref().map_or(SleepOn::Nothing, |ring| SleepOn::Fd(ring.socket().as_raw_fd()))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.count_losses();
    }
}
