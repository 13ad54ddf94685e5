//! The queues: bursts copied from and to the slots of a ring.

use super::control::Shared;
use super::file::Attached;
use super::layout::{self, RingFault};
use crate::offload::Finisher;
use crate::peer::violations::Violation;
use linerate_core::packet::{Burst, Offload, Packet, Pool, PoolCache, Pools, RxTemplate};
use linerate_core::port::{DropReason, QueueStats, RxQueue, TxQueue};
use linerate_wire::ethernet;
use std::sync::Arc;

/// An end of a ring as long as it can be used, and what is looked at once a burst.
struct End<T> {
    shared: Arc<Shared>,
    queue: u32,
    epoch: u64,
    /// The end, and the mapping that it is in.
    ring: Option<(T, Arc<Attached>)>,
    /// The peer lied: nothing is done until the control thread has been here.
    cut: bool,
}

impl<T> End<T> {
    fn new(shared: Arc<Shared>, queue: u32) -> Self {
        Self {
            epoch: shared.epoch().wrapping_sub(1),
            shared,
            queue,
            ring: None,
            cut: false,
        }
    }

    #[inline(always)]
    fn is_new(&self) -> bool {
        self.epoch != self.shared.epoch()
    }

    #[cold]
    fn cut(&mut self, violation: Violation, detail: &str) {
        if let Some((_, attached)) = &self.ring {
            let detail = format!("queue {}: {detail}", self.queue);
            self.shared.cut(attached, violation, &detail);
        }
        self.cut = true;
    }
}

/// A receive queue.
pub(super) struct Receiver {
    end: End<layout::Receiver>,
    template: RxTemplate,
    small: Pool,
    /// Takes what is too long for a small slot.
    large: Option<Pool>,
    stats: Arc<QueueStats>,
}

impl Receiver {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: u32,
        port: u16,
        pools: &Pools,
        stats: Arc<QueueStats>,
    ) -> Self {
        let small = pools.primary().clone();
        let large = pools.for_frame(layout::MAX_FRAME_BYTES).cloned();
        Self {
            end: End::new(shared, queue),
            template: RxTemplate {
                len: 0,
                port,
                offload: Offload::NONE,
            },
            large: large.filter(|large| *large != small),
            small,
            stats,
        }
    }

    /// Whatever the peer does, frames that wait are received: it may have sent them and ended.
    #[cold]
    fn look(&mut self) {
        let (epoch, now) = self.end.shared.now();
        (self.end.epoch, self.end.cut) = (epoch, false);
        let same = match (&self.end.ring, &now.attached) {
            (Some((_, old)), Some(new)) => Arc::ptr_eq(old, new),
            _ => false,
        };
        if !same {
            self.end.ring = now.attached.map(|attached| {
                let ring = attached
                    .shape
                    .ring(self.end.queue, !attached.sends_to_client());
                let receiver = layout::Receiver::take_up(&attached.memory, ring);
                (receiver, attached)
            });
        }
    }

    /// Frames of which at least one fits no small slot, or is none. Returns how many were dealt
    /// with and what was received of them.
    #[cold]
    fn receive_each(
        &mut self,
        lengths: &[u16],
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> (u32, u64) {
        let Some((ring, attached)) = &self.end.ring else {
            return (0, 0);
        };
        let (mut taken, mut bytes, mut lie) = (0, 0, None);
        for &length in lengths {
            let length = usize::from(length);
            let longest = ring.ring().frame_bytes();
            let fits = |pool: &&Pool| pool.room_bytes() >= length;
            let pool = [Some(&self.small), self.large.as_ref()];
            let slot = pool
                .into_iter()
                .flatten()
                .find(fits)
                .map(|pool| cache.get(pool));
            match slot {
                _ if length > longest => {
                    lie = Some(format!("a frame of {length} bytes in a slot for {longest}"));
                    self.stats.dropped(DropReason::Malformed, 1);
                }
                _ if length < ethernet::HEADER_LEN => {
                    self.stats.dropped(DropReason::Malformed, 1);
                }
                None => self.stats.dropped(DropReason::Oversize, 1),
                Some(None) => break, // no free slot: it stays where it is
                Some(Some(mut packet)) => {
                    packet.set_port(self.template.port);
                    packet.meta_mut().timestamp = burst.now;
                    let fits = packet.set_len(length);
                    debug_assert!(fits, "the pool was chosen for the frame");
                    ring.frames()
                        .read(&attached.memory, taken, packet.data_mut());
                    bytes += length as u64;
                    let pushed = burst.push(packet);
                    debug_assert!(pushed.is_ok(), "the burst had room");
                }
            }
            taken += 1;
        }
        if let Some(lie) = lie {
            self.end.cut(Violation::DescriptorLength, &lie);
        }
        (taken, bytes)
    }
}

impl RxQueue for Receiver {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        if self.end.is_new() {
            self.look();
        }
        let Some((ring, attached)) = &mut self.end.ring else {
            return 0;
        };
        if self.end.cut {
            return 0;
        }
        let (memory, frames) = (&attached.memory, ring.frames());
        let mut lengths = [0; Burst::CAPACITY];
        let waiting = frames.waiting(memory, &mut lengths[..burst.room()]);
        if waiting.count == 0 {
            ring.release(memory, 0);
            return 0;
        }
        let lengths = &lengths[..waiting.count];
        let room = self.small.room_bytes().min(ring.ring().frame_bytes());
        let (before, now) = (burst.len(), burst.now);
        let fit = waiting.longest as usize <= room;
        let (taken, bytes) = if fit && waiting.shortest as usize >= ethernet::HEADER_LEN {
            let (small, template) = (&self.small, self.template);
            let taken = cache.fill_each(small, burst, lengths.len(), template, |number, room| {
                let length = usize::from(lengths[number]);
                frames.read(memory, number as u32, &mut room[..length]);
                (length as u32, now)
            });
            let left = lengths[taken..].iter().map(|&length| u64::from(length));
            (taken as u32, waiting.bytes - left.sum::<u64>())
        } else {
            self.receive_each(lengths, burst, cache)
        };
        if let Some((ring, attached)) = &mut self.end.ring {
            ring.release(&attached.memory, taken);
        }
        let received = burst.len() - before;
        if received > 0 {
            self.stats.passed(received as u64, bytes);
        }
        received
    }
}

/// A transmit queue.
pub(super) struct Sender {
    wire: Wire,
    /// Completes what the peer cannot.
    finisher: Finisher,
    stats: Arc<QueueStats>,
}

/// The ring of a transmit queue.
struct Wire {
    end: End<layout::Sender>,
    /// When it was checked last.
    beat: u64,
}

impl Sender {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: u32,
        pools: &Pools,
        stats: Arc<QueueStats>,
    ) -> Self {
        Self {
            wire: Wire {
                beat: shared.beat(),
                end: End::new(shared, queue),
            },
            finisher: Finisher::new(pools),
            stats,
        }
    }
}

impl TxQueue for Sender {
    fn tx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let Self {
            wire,
            finisher,
            stats,
        } = self;
        finisher.tx(burst, cache, stats, |burst, cache| {
            wire.send(burst, cache, stats)
        })
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        if self.finisher.held() > 0 {
            self.tx_burst(&mut Burst::new(), cache);
        }
        // Also while nothing is sent: the receiver may wait for a frame that was overwritten.
        if self.wire.is_due() {
            self.wire.check();
        }
    }

    fn held(&self) -> i64 {
        self.finisher.held()
    }
}

impl Wire {
    /// Nothing is sent while there is no peer.
    #[cold]
    fn look(&mut self) {
        let (epoch, now) = self.end.shared.now();
        (self.end.epoch, self.end.cut) = (epoch, false);
        let attached = now.attached.filter(|_| now.peer.is_ok());
        // Also for a peer that returned: its head may have changed.
        self.end.ring = attached.map(|attached| {
            let ring = attached
                .shape
                .ring(self.end.queue, attached.sends_to_client());
            let sender = layout::Sender::take_up(&attached.memory, ring);
            (sender, attached)
        });
    }

    #[inline(always)]
    fn is_due(&self) -> bool {
        self.beat != self.end.shared.beat()
    }

    /// Once a beat: whether the peer can go on.
    #[cold]
    fn check(&mut self) {
        self.beat = self.end.shared.beat();
        let Some((ring, attached)) = self.end.ring.as_mut().filter(|_| !self.end.cut) else {
            return;
        };
        if let Err(fault) = ring.check(&attached.memory) {
            self.fault(fault);
        }
    }

    #[cold]
    fn fault(&mut self, fault: RingFault) {
        let violation = match fault {
            RingFault::HeadOutside { .. } => Violation::RingIndex,
            RingFault::FrameGone { .. } => Violation::DescriptorIndex,
        };
        self.end.cut(violation, &fault.to_string());
    }

    fn send(&mut self, burst: &mut Burst, cache: &mut PoolCache, stats: &QueueStats) -> usize {
        if self.end.is_new() {
            self.look();
        }
        if self.is_due() {
            self.check();
        }
        let Some((ring, attached)) = self.end.ring.as_mut().filter(|_| !self.end.cut) else {
            let count = burst.len();
            stats.dropped(DropReason::NoPeer, count as u64);
            cache.free(burst);
            return count;
        };
        let memory = &attached.memory;
        let most = ring.ring().frame_bytes();
        // A length of 0 says that there is no frame.
        let fits = |packet: &&Packet| packet.len().wrapping_sub(1) < most;
        let fit = burst.iter().take_while(fits).count();
        let room = match ring.room(memory, fit as u32) {
            Ok(room) => room,
            Err(fault) => {
                self.fault(fault);
                return 0;
            }
        };
        let count = fit.min(room as usize);
        let packets = burst.as_packets();
        ring.send(memory, count as u32, |number| {
            packets[number as usize].data()
        });
        stats.passed(count as u64, burst.bytes_of_front(count));
        cache.free_front(burst, count);
        if count == fit && !burst.is_empty() {
            return count + self.send_behind_unfit(burst, cache, stats);
        }
        count
    }

    /// Drops the frame at the front, which is empty or too long for a slot, and sends those behind
    /// it.
    #[cold]
    fn send_behind_unfit(
        &mut self,
        burst: &mut Burst,
        cache: &mut PoolCache,
        stats: &QueueStats,
    ) -> usize {
        let reason = match burst.as_packets()[0].len() {
            0 => DropReason::Malformed,
            _ => DropReason::Oversize,
        };
        stats.dropped(reason, 1);
        cache.free_front(burst, 1);
        1 + self.send(burst, cache, stats)
    }
}
