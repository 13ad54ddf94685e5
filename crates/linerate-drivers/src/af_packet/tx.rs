//! A transmit queue: one `sendmmsg` for a burst.

use super::{Shared, sys};
use crate::offload;
use crate::pace::Pace;
use linerate_core::packet::{Burst, PoolCache};
use linerate_core::port::{DropReason, QueueStats, TxQueue};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A transmit queue.
pub(super) struct Sender {
    /// `None` while the interface does not exist.
    socket: Option<OwnedFd>,
    shared: Arc<Shared>,
    pace: Pace,
    stats: Arc<QueueStats>,
}

impl Sender {
    pub(super) fn new(socket: OwnedFd, shared: Arc<Shared>, stats: Arc<QueueStats>) -> Self {
        Self { socket: Some(socket), shared, pace: Pace::new(), stats }
    }

    /// Takes `count` packets that will not be sent.
    fn drop_front(&self, burst: &mut Burst, cache: &mut PoolCache, count: usize, reason: DropReason) -> usize {
        self.stats.dropped(reason, count as u64);
        cache.free_front(burst, count);
        count
    }

    /// What becomes of the first packet after the kernel refused it: how many packets were taken,
    /// or `None` to keep them for later.
    #[cold]
    fn refused(&mut self, error: &std::io::Error, burst: &mut Burst, cache: &mut PoolCache) -> Option<usize> {
        let (count, reason) = match error.raw_os_error() {
            // The socket's or the device's queue is full.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM) => return None,
            Some(libc::ENETDOWN) => (burst.len(), DropReason::LinkDown),
            Some(libc::ENXIO | libc::ENODEV) => {
                self.socket = None;
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
            let Some(socket) = &self.socket else {
                taken += self.drop_front(burst, cache, burst.len(), DropReason::LinkDown);
                break;
            };
            match sys::send(socket, burst.as_packets()) {
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
        if self.socket.is_none() && self.pace.due(true) {
            self.socket = self.shared.open_tx().ok();
        }
    }
}
