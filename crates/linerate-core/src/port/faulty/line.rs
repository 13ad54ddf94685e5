//! The bad wire of one queue: packets come in at a time, and go out at later ones.
//!
//! Time is an argument, so tests need no clock. A packet meets its faults when it comes in; from
//! then on only the time matters at which it goes out. Nothing here sleeps or sends.

use super::faults::{Ce, Jitter, LineFaults, LossBursts};
use super::link::Link;
use crate::packet::{Packet, PoolCache, Pools};
use crate::port::{Counter, DropReason, QueueStats};
use crate::random::Random;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::{EtherType, checksum, vlan};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Fewest packets that a line keeps: two bursts, each packet doubled.
const FEWEST_KEPT: usize = 256;

/// What befell the packets of one queue, written by the lcore that polls it.
#[derive(Debug, Default)]
pub(super) struct FaultCounts {
    lost: Counter,
    /// Found no room before the link.
    overflowed: Counter,
    doubled: Counter,
    /// Came behind a later packet; not those whose double went before.
    reordered: Counter,
    flipped: Counter,
    marked: Counter,
}

impl FaultCounts {
    /// Sums over queues by kind, those that happened.
    pub(super) fn sum(all: &[Arc<Self>]) -> Vec<(&'static str, u64)> {
        let sum = |read: fn(&Self) -> &Counter| all.iter().map(|counts| read(counts).read()).sum();
        let rows = [
            ("loss", sum(|counts| &counts.lost)),
            ("queue", sum(|counts| &counts.overflowed)),
            ("dup", sum(|counts| &counts.doubled)),
            ("reorder", sum(|counts| &counts.reordered)),
            ("flip", sum(|counts| &counts.flipped)),
            ("ce", sum(|counts| &counts.marked)),
        ];
        let rows = rows.into_iter();
        rows.filter(|&(_, count): &(_, u64)| count > 0).collect()
    }
}

/// A packet that is under way.
struct Kept {
    /// From when on it may go out.
    due_ns: u64,
    /// Among those of one time, and where the time does not matter: in which order.
    place: u64,
    /// The how many-th it came in.
    number: u64,
    /// Whether it counts as reordered when a later one has gone before.
    counts: bool,
    packet: Packet,
}

/// The first to go out is the greatest, as [`BinaryHeap`] wants.
impl Ord for Kept {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due_ns, other.place).cmp(&(self.due_ns, self.place))
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Kept {}

/// What was drawn for one packet.
struct Fate {
    is_lost: bool,
    is_doubled: bool,
    is_reordered: bool,
    is_flipped: bool,
    is_marked: bool,
    /// Which bit flips.
    bit: u64,
    /// What its delay differs by.
    jitter_ns: i64,
}

/// The bad wire of one queue.
pub(super) struct Line {
    faults: LineFaults,
    /// Draws loss, doubles, reordering and flips.
    random: Random,
    /// Draws all else: with or without that, a seed loses and doubles the same packets.
    random2: Random,
    /// In a burst of losses.
    is_bad: bool,
    link: Option<Link>,
    kept: BinaryHeap<Kept>,
    /// Waits for the next packet, to go out behind it.
    swapped: Option<Kept>,
    /// Packets that came in, and places given.
    came: u64,
    places: u64,
    /// The latest that any is due that must not be overtaken.
    last_due_ns: u64,
    /// The highest number that went out.
    highest: u64,
    most: usize,
    pools: Pools,
    stats: Arc<QueueStats>,
    counts: Arc<FaultCounts>,
}

impl Line {
    /// A line with nothing on it. `stream` tells the queues of a port apart.
    pub(super) fn new(
        faults: &LineFaults,
        (seed, stream): (u64, u64),
        pools: &Pools,
        stats: Arc<QueueStats>,
        counts: Arc<FaultCounts>,
    ) -> Self {
        let seed = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            faults: *faults,
            random: Random::new(seed),
            random2: Random::new(!seed),
            is_bad: false,
            link: (faults.rate_bps > 0).then(|| Link::new(faults.rate_bps, faults.queue)),
            kept: BinaryHeap::new(),
            swapped: None,
            came: 0,
            places: 0,
            last_due_ns: 0,
            highest: 0,
            most: most_kept(faults, pools),
            pools: pools.clone(),
            stats,
            counts,
        }
    }

    /// Whether it needs to be told the time.
    pub(super) fn is_timed(&self) -> bool {
        self.faults.is_timed()
    }

    /// Packets that may come in now.
    pub(super) fn room(&self) -> usize {
        // One packet may become two.
        self.most.saturating_sub(self.held()) / 2
    }

    /// Packets on it.
    pub(super) fn held(&self) -> usize {
        self.kept.len() + usize::from(self.swapped.is_some())
    }

    /// Counts packets that are lost with the queue.
    pub(super) fn abandon(&self, packets: usize) {
        self.stats.dropped(DropReason::Injected, packets as u64);
    }

    /// Takes one packet in.
    pub(super) fn enter(&mut self, mut packet: Packet, now_ns: u64, cache: &mut PoolCache) {
        let fate = self.draw();
        let number = self.came;
        self.came += 1;
        if fate.is_lost {
            self.stats.dropped(DropReason::Injected, 1);
            self.counts.lost.add(1);
            return cache.free_one(packet);
        }
        let bits = packet.len() as u64 * 8;
        if fate.is_flipped && bits > 0 {
            let bit = fate.bit % bits;
            packet.data_mut()[bit as usize / 8] ^= 1 << (bit % 8);
            self.counts.flipped.add(1);
        }
        let is_marked = match (self.faults.ce, &mut self.link) {
            (Ce::QueueAbove(length), Some(link)) => link.is_longer(now_ns, length),
            _ => fate.is_marked,
        };
        if is_marked && mark_ce(packet.data_mut()) {
            self.counts.marked.add(1);
        }
        let second = match fate.is_doubled {
            true => self.copy(&packet, cache),
            false => None,
        };
        self.counts.doubled.add(u64::from(second.is_some()));
        let is_swapped = fate.is_reordered && self.faults.reorder_ns == 0;
        let late_ns = match fate.is_reordered {
            true => self.faults.reorder_ns,
            false => 0,
        };
        let counts = !(is_swapped && second.is_some());
        if let Some(due_ns) = self.pass(&packet, now_ns, fate.jitter_ns) {
            let due_ns = due_ns.saturating_add(late_ns);
            let kept = Kept {
                due_ns,
                place: 0,
                number,
                counts,
                packet,
            };
            if is_swapped && self.swapped.is_none() {
                self.swapped = Some(kept);
            } else {
                self.put(kept);
                if let Some(mut swapped) = self.swapped.take() {
                    swapped.due_ns = swapped.due_ns.max(due_ns);
                    self.put(swapped);
                }
            }
        } else {
            self.overflow(packet, cache);
        }
        let Some(second) = second else {
            return;
        };
        match self.pass(&second, now_ns, fate.jitter_ns) {
            Some(due_ns) => self.put(Kept {
                due_ns,
                place: 0,
                number,
                counts: false,
                packet: second,
            }),
            None => self.overflow(second, cache),
        }
    }

    /// Draws what befalls a packet: the same number of values for each, whatever its faults.
    fn draw(&mut self) -> Fate {
        let LineFaults {
            loss,
            dup,
            reorder,
            flip,
            ..
        } = self.faults;
        let [is_lost, is_doubled, is_reordered, is_flipped] =
            [loss, dup, reorder, flip].map(|chance| self.random.unit() < chance);
        let bit = self.random.bits();
        let turn = self.random2.unit();
        let burst_loss = self.random2.unit();
        let mark = self.random2.unit();
        let spread = [(); 3].map(|()| self.random2.bits());
        let is_lost_in_burst = self.faults.burst.is_some_and(|bursts| {
            let LossBursts { enter, leave, loss } = bursts;
            self.is_bad = match self.is_bad {
                true => turn >= leave,
                false => turn < enter,
            };
            self.is_bad && burst_loss < loss
        });
        Fate {
            is_lost: is_lost || is_lost_in_burst,
            is_doubled,
            is_reordered,
            is_flipped,
            is_marked: matches!(self.faults.ce, Ce::Chance(chance) if mark < chance),
            bit,
            jitter_ns: jitter_ns(&self.faults, spread),
        }
    }

    /// Sends a packet over the link: when it arrives at the other end, or `None` where it finds no
    /// room before it.
    fn pass(&mut self, packet: &Packet, now_ns: u64, jitter_ns: i64) -> Option<u64> {
        let left_ns = match &mut self.link {
            Some(link) => link.send(now_ns, packet.len() as u64)?,
            None => now_ns,
        };
        let delay_ns = self.faults.delay_ns.saturating_add_signed(jitter_ns);
        let mut due_ns = left_ns.saturating_add(delay_ns);
        if self.faults.keep_order {
            due_ns = due_ns.max(self.last_due_ns);
            self.last_due_ns = due_ns;
        }
        Some(due_ns)
    }

    fn overflow(&mut self, packet: Packet, cache: &mut PoolCache) {
        self.stats.dropped(DropReason::Injected, 1);
        self.counts.overflowed.add(1);
        cache.free_one(packet);
    }

    fn put(&mut self, mut kept: Kept) {
        kept.place = self.places;
        self.places += 1;
        self.kept.push(kept);
    }

    fn copy(&self, packet: &Packet, cache: &mut PoolCache) -> Option<Packet> {
        let mut copy = cache.get(self.pools.for_frame(packet.len())?)?;
        copy.copy_meta(packet);
        copy.set_data(packet.data()).then_some(copy)
    }

    /// Nothing comes in now, so a packet that waits for another to change places with waits no
    /// longer than until it is due.
    pub(super) fn stop_waiting(&mut self, now_ns: u64) {
        if let Some(swapped) = self.swapped.take_if(|swapped| swapped.due_ns <= now_ns) {
            self.put(swapped);
        }
    }

    /// The next packet that is due.
    pub(super) fn leave(&mut self, now_ns: u64) -> Option<Packet> {
        if self.kept.len() <= self.faults.delay_pkts || self.kept.peek()?.due_ns > now_ns {
            return None;
        }
        let kept = self.kept.pop()?;
        let is_late = kept.number < self.highest && kept.counts;
        self.counts.reordered.add(u64::from(is_late));
        self.highest = self.highest.max(kept.number);
        Some(kept.packet)
    }

    /// When the next packet is due, perhaps past; `None` where time alone brings none.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        let kept = self
            .kept
            .peek()
            .filter(|_| self.kept.len() > self.faults.delay_pkts);
        let all = kept.into_iter().chain(&self.swapped);
        all.map(|kept| kept.due_ns).min()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.abandon(self.held());
    }
}

/// Packets that a line with these faults keeps at most: what it needs, but no more than half of the
/// pool. Who comes to that bound waits, as before a full ring.
pub(super) fn most_kept(faults: &LineFaults, pools: &Pools) -> usize {
    let half = pools.primary().slots() as usize / 2;
    faults
        .most_kept()
        .min(half)
        .max(FEWEST_KEPT + faults.delay_pkts)
}

/// How much a delay differs, from random bits.
fn jitter_ns(faults: &LineFaults, bits: [u64; 3]) -> i64 {
    let most = faults.jitter_ns as i64;
    match faults.jitter {
        _ if most == 0 => 0,
        Jitter::Uniform => {
            let span = 2 * faults.jitter_ns as u128 + 1;
            ((u128::from(bits[0]) * span) >> 64) as i64 - most
        }
        // Twelve numbers, even from 0 to 1, have the sum 6 and the variance 1, and their sum is
        // very nearly normal. Unlike logarithms and cosines it is the same on every machine.
        Jitter::Normal => {
            let lanes = bits
                .iter()
                .flat_map(|word| [0, 16, 32, 48].map(|shift| word >> shift & 0xffff));
            let sum: u64 = lanes.sum();
            // Each lane is 32,767.5 on average.
            let deviation = i128::from(sum) - 6 * 65_535;
            (deviation * i128::from(most) / 65_536) as i64
        }
    }
}

/// Writes "congestion experienced" into the IP header of a frame whose transport is capable of ECN
/// (RFC 3168 5: ECT(0) or ECT(1)); whether it did. The IPv4 checksum is corrected (RFC 1624).
fn mark_ce(frame: &mut [u8]) -> bool {
    let Ok(found) = vlan::untagged(frame) else {
        return false;
    };
    let Some(packet) = frame.get_mut(found.offset..) else {
        return false;
    };
    match found.ethertype {
        EtherType::IPV4 => {
            let Ok(ip) = Ipv4::new_checked(&*packet) else {
                return false;
            };
            let (tos, sum) = (ip.tos(), ip.checksum());
            if !is_capable(tos) {
                return false;
            }
            let first = |tos: u8| u16::from_be_bytes([packet[0], tos]);
            let sum = checksum::update16(sum, first(tos), first(tos | CE));
            packet[1] = tos | CE;
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            true
        }
        // RFC 8200 7: the traffic class is the second to fourth half byte.
        EtherType::IPV6 if packet.len() >= 40 && packet[0] >> 4 == 6 => {
            let class = packet[1] >> 4;
            let capable = is_capable(class);
            if capable {
                packet[1] |= CE << 4;
            }
            capable
        }
        _ => false,
    }
}

/// The ECN field: the two low bits of the traffic class.
const CE: u8 = 0b11;

fn is_capable(traffic_class: u8) -> bool {
    matches!(traffic_class & CE, 0b01 | 0b10)
}
