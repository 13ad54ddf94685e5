//! Receive and transmit queues of a TAP: one system call for a frame, as the device wants it.

use super::channel::Channel;
use crate::pace::Pace;
use crate::{offload, vnet};
use linerate_core::packet::{Burst, Packet, Pool, PoolCache};
use linerate_core::port::{DropReason, QueueStats, RxQueue, SleepOn, TxQueue};
use linerate_wire::{ethernet, vlan};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// A receive queue. It holds a slot of each class to read into.
pub(super) struct Receiver {
    channel: Arc<Channel>,
    /// `None` while there is no TAP.
    fd: Option<Arc<OwnedFd>>,
    pace: Pace,
    index: u16,
    small: Spare,
    /// Takes what is too long for the small slot.
    large: Option<Spare>,
    stats: Arc<QueueStats>,
}

/// A slot to read into, and where the next one comes from.
struct Spare {
    pool: Pool,
    packet: Option<Packet>,
}

impl Spare {
    fn new(pool: &Pool) -> Self {
        Self {
            pool: pool.clone(),
            packet: None,
        }
    }

    /// The slot, its whole room shown as data.
    fn ready(&mut self, cache: &mut PoolCache) -> Option<&mut Packet> {
        if self.packet.is_none() {
            let mut packet = cache.get(&self.pool)?;
            packet.set_len(self.pool.room_bytes());
            self.packet = Some(packet);
        }
        self.packet.as_mut()
    }

    /// The slot with a frame of `len` bytes in it.
    fn take(&mut self, len: usize) -> Option<Packet> {
        let mut packet = self.packet.take()?;
        packet.truncate(len);
        Some(packet)
    }
}

/// What a read brought.
enum Read {
    Frame(Packet),
    Dropped(DropReason),
    Nothing,
    Gone,
}

impl Receiver {
    pub(super) fn new(
        channel: Arc<Channel>,
        index: u16,
        primary: &Pool,
        large: Option<&Pool>,
        stats: Arc<QueueStats>,
    ) -> Self {
        Self {
            fd: channel.current(),
            channel,
            pace: Pace::new(),
            index,
            small: Spare::new(primary),
            large: large.filter(|&pool| pool != primary).map(Spare::new),
            stats,
        }
    }

    fn read(&mut self, fd: &OwnedFd, cache: &mut PoolCache) -> Read {
        let mut header = [0; vnet::LEN];
        let Some(small) = self.small.ready(cache) else {
            return self.discard(fd);
        };
        let head = small.len();
        // Without a large slot a long frame is cut, noticed by its length, and dropped.
        let large = self.large.as_mut().and_then(|spare| spare.ready(cache));
        let mut none = [];
        let rest = match large {
            Some(packet) => packet.data_mut().get_mut(head..).unwrap_or_default(),
            None => &mut none[..],
        };
        let room = vnet::LEN + head + rest.len();
        let mut parts = [
            IoSliceMut::new(&mut header),
            IoSliceMut::new(small.data_mut()),
            IoSliceMut::new(rest),
        ];
        let len = match rustix::io::readv(fd, &mut parts) {
            // it may have been cut
            Ok(len) if len == room => return Read::Dropped(DropReason::Oversize),
            Ok(len) if len < vnet::LEN + ethernet::HEADER_LEN => {
                return Read::Dropped(DropReason::Malformed);
            }
            Ok(len) => len - vnet::LEN,
            Err(Errno::AGAIN | Errno::INTR) => return Read::Nothing,
            Err(_) => return Read::Gone,
        };
        let packet = if len <= head {
            self.small.take(len)
        } else {
            self.join(head, len)
        };
        let Some(mut packet) = packet else {
            return Read::Dropped(DropReason::NoBuffer);
        };
        packet.set_port(self.index);
        // The kernel counts a tag that it put back, so nothing shifts.
        if !vnet::read(&header, packet.meta_mut(), 0) {
            cache.free_one(packet);
            return Read::Dropped(DropReason::Malformed);
        }
        Read::Frame(packet)
    }

    /// The large slot, whose tail was read in place, with the head from the small one.
    fn join(&mut self, head: usize, len: usize) -> Option<Packet> {
        let small = self.small.packet.as_ref()?;
        let mut packet = self.large.as_mut()?.take(len)?;
        packet
            .data_mut()
            .get_mut(..head)?
            .copy_from_slice(small.data());
        Some(packet)
    }

    /// Takes a frame for which there is no slot from the TAP, so that later ones are fresh.
    #[cold]
    fn discard(&mut self, fd: &OwnedFd) -> Read {
        match rustix::io::read(fd, &mut [0; vnet::LEN]) {
            Ok(_) => Read::Dropped(DropReason::NoBuffer),
            Err(Errno::AGAIN | Errno::INTR) => Read::Nothing,
            Err(_) => Read::Gone,
        }
    }
}

impl RxQueue for Receiver {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        // Taken out for the time of the call: a clone would be two shared atomics a burst.
        let Some(fd) = self.fd.take() else {
            if self.pace.due(true) {
                self.fd = self.channel.reopen();
            }
            return 0;
        };
        let (mut count, mut bytes, mut gone) = (0, 0, false);
        for _ in 0..burst.room() {
            match self.read(&fd, cache) {
                Read::Frame(mut packet) => {
                    packet.meta_mut().timestamp = burst.now;
                    bytes += packet.len() as u64;
                    count += 1;
                    let pushed = burst.push(packet);
                    debug_assert!(pushed.is_ok(), "the burst had room");
                }
                Read::Dropped(reason) => self.stats.dropped(reason, 1),
                Read::Nothing => break,
                Read::Gone => {
                    self.channel.bury(&fd);
                    gone = true;
                    break;
                }
            }
        }
        self.fd = (!gone).then_some(fd);
        self.stats.passed(count as u64, bytes);
        count
    }

    fn sleep_on(&mut self) -> SleepOn {
        self.fd
            .as_ref()
            .map_or(SleepOn::Nothing, |fd| SleepOn::Fd(fd.as_raw_fd()))
    }

    fn held(&self) -> i64 {
        let spares = [Some(&self.small), self.large.as_ref()];
        spares
            .into_iter()
            .flatten()
            .filter(|spare| spare.packet.is_some())
            .count() as i64
    }
}

/// A transmit queue.
pub(super) struct Sender {
    channel: Arc<Channel>,
    fd: Option<Arc<OwnedFd>>,
    pace: Pace,
    /// Longest frame that is not cut later on, without a VLAN tag.
    most: usize,
    /// Frames that were too long.
    refused: u64,
    stats: Arc<QueueStats>,
}

impl Sender {
    pub(super) fn new(channel: Arc<Channel>, most: usize, stats: Arc<QueueStats>) -> Self {
        Self {
            fd: channel.current(),
            channel,
            pace: Pace::new(),
            most,
            refused: 0,
            stats,
        }
    }

    /// Whether a frame is longer than the MTU lets it be. The MTU may have been raised since it was
    /// looked at, so it is looked at again, ever more seldom while it stays.
    #[cold]
    fn is_too_long(&mut self, packet: &Packet) -> bool {
        let tagged = vlan::untagged(packet.data()).is_ok_and(|frame| frame.outer_tci.is_some());
        let len = packet.len() - if tagged { vlan::TAG_LEN } else { 0 };
        if len > self.most {
            self.refused += 1;
            if self.refused.is_power_of_two() || self.refused.is_multiple_of(1024) {
                let most = self.channel.max_frame_bytes().unwrap_or(self.most);
                self.refused *= u64::from(most == self.most);
                self.most = most;
            }
        }
        len > self.most
    }

    /// Sends one frame: an error drops it, `None` keeps it.
    fn send(&mut self, fd: &OwnedFd, packet: &Packet) -> Option<Result<(), DropReason>> {
        use linerate_core::packet::Offload;
        // The kernel would take it, and pass on what its MTU forbids.
        let whole = !packet.meta().offload.intersects(Offload::GSO);
        if whole && packet.len() > self.most && self.is_too_long(packet) {
            return Some(Err(DropReason::Oversize));
        }
        let header = vnet::write(packet);
        match rustix::io::writev(fd, &[IoSlice::new(&header), IoSlice::new(packet.data())]) {
            Ok(_) => Some(Ok(())),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => None,
            Err(Errno::INVAL) => Some(Err(DropReason::Malformed)),
            // EIO: the interface is down. EBADFD: it was deleted.
            Err(Errno::IO | Errno::BADFD) => Some(Err(DropReason::LinkDown)),
            Err(_) => Some(Err(DropReason::Refused)),
        }
    }
}

impl TxQueue for Sender {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        offload::put_tags_back(burst);
        let (mut sent, mut bytes, mut taken, mut lost) = (0, 0, 0, false);
        let fd = self.fd.take();
        for packet in burst.iter() {
            let result = match &fd {
                Some(fd) => self.send(fd, packet),
                None => Some(Err(DropReason::LinkDown)),
            };
            match result {
                Some(Ok(())) => {
                    sent += 1;
                    bytes += packet.len() as u64;
                }
                Some(Err(reason)) => {
                    self.stats.dropped(reason, 1);
                    lost |= reason == DropReason::LinkDown;
                }
                None => break,
            }
            taken += 1;
        }
        self.stats.passed(sent, bytes);
        cache.free_front(burst, taken);
        if lost && let Some(fd) = &fd {
            self.channel.bury_if_gone(fd);
        }
        self.fd = fd;
        taken
    }

    fn flush(&mut self, _: &mut PoolCache) {
        if self.pace.due(true) {
            // Cheap while all is well: the same descriptor comes back.
            self.fd = self.channel.reopen();
        }
    }
}
