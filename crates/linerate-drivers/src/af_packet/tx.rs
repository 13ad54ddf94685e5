//! A transmit queue: one `sendmmsg` for a burst.
//!
//! Two sockets, because the kernel takes frames faster without offload headers: frames that are
//! finished go out on one, runs of unfinished ones on the other. Calls are made in the order
//! of the frames, and both sockets send through the same queue of the device, so order is kept
//! (unless traffic control holds unfinished ones back: finished ones go past it).

use super::{Shared, sys};
use crate::offload;
use crate::pace::Pace;
use linerate_core::packet::{Burst, Offload, PoolCache};
use linerate_core::port::{DropReason, QueueStats, TxQueue};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A transmit queue.
pub(super) struct Sender {
    /// `None` while the interface does not exist.
    sockets: Option<Sockets>,
    shared: Arc<Shared>,
    pace: Pace,
    stats: Arc<QueueStats>,
}

/// The sockets of a transmit queue.
pub(super) struct Sockets {
    /// Takes frames alone.
    pub(super) plain: OwnedFd,
    /// Takes frames behind offload headers.
    pub(super) offloads: OwnedFd,
}

impl Sockets {
    /// Sends the first packets of a burst, those that are all finished or all not.
    fn send(&self, burst: &Burst) -> io::Result<usize> {
        let duties = Offload::CSUM_PARTIAL | Offload::GSO;
        let packets = burst.as_packets();
        if !offload::any(burst, duties) {
            return sys::send_plain(&self.plain, packets);
        }
        let mut unfinished = packets
            .iter()
            .map(|packet| packet.meta().offload.intersects(duties));
        let first = unfinished.next().unwrap_or(false);
        let run = 1 + unfinished.take_while(|&duty| duty == first).count();
        if first {
            sys::send_offloads(&self.offloads, &packets[..run])
        } else {
            sys::send_plain(&self.plain, &packets[..run])
        }
    }
}

impl Sender {
    pub(super) fn new(sockets: Sockets, shared: Arc<Shared>, stats: Arc<QueueStats>) -> Self {
        Self {
            sockets: Some(sockets),
            shared,
            pace: Pace::new(),
            stats,
        }
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

    /// What becomes of the first packet after the kernel refused it: how many packets were taken,
    /// or `None` to keep them for later.
    #[cold]
    fn refused(
        &mut self,
        error: &io::Error,
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
            Some(libc::EMSGSIZE) => (1, DropReason::Oversize),
            Some(libc::EINVAL) => (1, DropReason::Malformed),
            _ => (1, DropReason::Refused),
        };
        Some(self.drop_front(burst, cache, count, reason))
    }
}

impl TxQueue for Sender {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let mut taken = 0;
        offload::put_tags_back(burst);
        while !burst.is_empty() {
            let Some(sockets) = &self.sockets else {
                taken += self.drop_front(burst, cache, burst.len(), DropReason::LinkDown);
                break;
            };
            match sockets.send(burst) {
                Ok(sent) => {
                    self.stats.passed(sent as u64, burst.bytes_of_front(sent));
                    cache.free_front(burst, sent);
                    taken += sent;
                }
                Err(error) => match self.refused(&error, burst, cache) {
                    Some(dropped) => taken += dropped,
                    None => break,
                },
            }
        }
        taken
    }

    fn flush(&mut self, _: &mut PoolCache) {
        if self.sockets.is_none() && self.pace.due(true) {
            self.sockets = self.shared.open_tx().ok();
        }
    }
}
