//! A worker's part in dispatch: packets of its own buckets stay in the burst, the others go to
//! their owners' rings; packets that come before their bucket's state wait for it.
//!
//! A full ring drops and is counted, by pair of workers (`tx_full.LCORE`): to wait for another
//! worker would let two of them wait for each other.

use std::collections::VecDeque;

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet, UserData};
use linerate_core::run::{DropId, Egress};
use linerate_routing::plane::ones;
use linerate_tables::parse::Mask;
use linerate_tables::rewrite::Scatter;

use super::across::Across;
use super::bucket::{BUCKETS, Bucket};
use super::owners::{Loads, Owner, Owners};
use crate::nat::bits::Bits;

/// Packets that may wait in one worker for buckets on their way to it.
pub(super) const ROOM: usize = 4096;

/// What a packet that is handed over carries with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// The interface that it came by.
    pub interface: u16,
    /// Its bucket, as the worker said that received it.
    pub bucket: Bucket,
    /// Whether it was put together from fragments.
    pub is_whole: bool,
    /// Whether it has turned: it comes from inside with an outside source.
    pub has_turned: bool,
    /// Whether the headers that its sender wrote lie behind it.
    pub has_original: bool,
}

/// What is known of the packets of a burst that is sorted, besides their buckets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sorted {
    /// Those that are sorted at all.
    pub mask: Mask,
    /// Those that were put together from fragments.
    pub whole: Mask,
    /// Whether they have turned.
    pub turned: bool,
    /// Those whose original headers lie behind them.
    pub originals: Mask,
}

impl UserData for Handed {
    #[inline(always)]
    fn from_words([first, _]: [u64; 2]) -> Self {
        Self {
            interface: first as u16,
            bucket: (first >> 16) as u8,
            is_whole: first >> 24 & 1 != 0,
            has_turned: first >> 25 & 1 != 0,
            has_original: first >> 26 & 1 != 0,
        }
    }

    #[inline(always)]
    fn into_words(self) -> [u64; 2] {
        let bucket = u64::from(self.bucket) << 16;
        let first = u64::from(self.interface) | bucket | u64::from(self.is_whole) << 24;
        let turned = u64::from(self.has_turned) << 25 | u64::from(self.has_original) << 26;
        [first | turned, 0]
    }
}

/// Sorts packets by owner.
pub struct Sorter {
    /// Who this is; [`NOBODY`] where it only dispatches.
    me: Owner,
    owners: Owners,
    /// The outlet that leads to each owner.
    outlets: Vec<u16>,
    scatter: Scatter,
    /// Buckets whose state is on its way here.
    awaited: Bits,
    /// The packets that wait for it, in their order; never more than it was made for.
    waiting: VecDeque<Packet>,
    no_room: DropId,
    /// Packets of each bucket that this worker has sorted, where somebody evens loads out.
    loads: Option<Box<Loads>>,
    /// How packets get to owners on other NUMA nodes, where there are any.
    across: Option<Box<Across>>,
}

/// The owner of no bucket.
pub const NOBODY: Owner = Owner::MAX;

impl Sorter {
    /// For owner `me` of those that `outlets` lead to, by number.
    pub fn new(
        me: Owner,
        owners: Owners,
        outlets: Vec<u16>,
        isa: Isa,
        egress: &mut Egress,
    ) -> Self {
        Self {
            me,
            owners,
            outlets,
            scatter: Scatter::new(isa),
            awaited: Bits::NONE,
            waiting: VecDeque::with_capacity(ROOM),
            no_room: egress.reason("bucket_moves"),
            loads: None,
            across: None,
        }
    }

    /// Has owners on other NUMA nodes.
    pub fn set_across(&mut self, across: Option<Box<Across>>) {
        self.across = across;
    }

    /// How packets get to those.
    pub fn across(&mut self) -> Option<&mut Across> {
        self.across.as_deref_mut()
    }

    /// Counts the packets of each bucket from now on, or no longer.
    pub fn count_loads(&mut self, counts: bool) {
        self.loads = match (counts, self.loads.take()) {
            (false, _) => None,
            (true, known) => Some(known.unwrap_or_else(|| Box::new([0; BUCKETS]))),
        };
    }

    /// Packets of each bucket that it has sorted since it counts.
    pub fn loads(&self) -> Option<&Loads> {
        self.loads.as_deref()
    }

    /// Hands those packets of `mask` over whose buckets are others'; the rest stays in the burst,
    /// in order. Returns which positions have left.
    #[inline]
    pub fn sort(
        &mut self,
        burst: &mut Burst,
        buckets: &[Bucket; Burst::CAPACITY],
        sorted: Sorted,
        interface: u16,
        out: &mut Egress,
    ) -> Mask {
        let mask = sorted.mask;
        let mut owners = [0; Burst::CAPACITY];
        let mut others: Mask = 0;
        for (index, &bucket) in buckets[..burst.len()].iter().enumerate() {
            let owner = self.owners.of(bucket);
            owners[index] = owner.into();
            others |= Mask::from(owner != self.me) << index;
        }
        others &= mask;
        if let Some(loads) = &mut self.loads {
            ones(burst.mask() & mask).for_each(|index| loads[usize::from(buckets[index])] += 1);
        }
        let waiting = match self.awaited.is_empty() {
            true => 0,
            false => self.awaited_of(burst.mask() & mask & !others, buckets),
        };
        if others | waiting == 0 {
            return 0;
        }
        let (port, all) = (burst.port, burst.mask());
        for index in ones(others | waiting) {
            let packet = &mut burst.as_packets_mut()[index];
            packet.set_port(port);
            packet.set_user(Handed {
                interface,
                bucket: buckets[index],
                is_whole: sorted.whole >> index & 1 != 0,
                has_turned: sorted.turned,
                has_original: sorted.originals >> index & 1 != 0,
            });
        }
        let (outlets, across) = (&self.outlets, &mut self.across);
        self.scatter
            .by_value(burst, others, &owners, |owner, packets| {
                if let Some(across) = across {
                    across.ready(owner as Owner, interface, packets, &mut out.cache);
                }
                // One that there is no way to is an outlet that drops and counts.
                let outlet = outlets.get(owner as usize).copied();
                out.send(outlet.unwrap_or(u16::MAX), packets);
            });
        if waiting != 0 {
            // The others have left from between them.
            let mut places = ones(all & !others);
            let stays = |_: &mut Packet| places.next().is_none_or(|at| waiting >> at & 1 == 0);
            self.hold(burst, stays, out);
        }
        others | waiting
    }

    /// Takes those of a burst from another worker, whose packets are this one's already, whose
    /// bucket is still on its way: they wait.
    #[inline]
    pub fn admit(&mut self, burst: &mut Burst, out: &mut Egress) {
        if !self.awaited.is_empty() {
            let awaited = self.awaited;
            let stays = |packet: &mut Packet| !awaited.has(packet.user::<Handed>().bucket);
            self.hold(burst, stays, out);
        }
    }

    /// The positions of packets whose buckets are awaited.
    #[cold]
    fn awaited_of(&self, mask: Mask, buckets: &[Bucket; Burst::CAPACITY]) -> Mask {
        ones(mask)
            .filter(|index| self.awaited.has(buckets[*index]))
            .fold(0, |sum, index| sum | 1 << index)
    }

    /// Puts packets of awaited buckets aside: all but those that stay.
    #[cold]
    fn hold(
        &mut self,
        burst: &mut Burst,
        stays: impl FnMut(&mut Packet) -> bool,
        out: &mut Egress,
    ) {
        let mut waits = Burst::new();
        burst.retain(&mut waits, stays);
        for packet in waits.drain() {
            match self.waiting.len() < ROOM {
                true => self.waiting.push_back(packet),
                false => out.drop_one(self.no_room, packet),
            }
        }
    }

    /// Packets of these buckets go to `to` from now on.
    pub fn turn(&mut self, buckets: &Bits, to: Owner) {
        (buckets.iter()).for_each(|bucket| self.owners.set(bucket, to));
    }

    /// The state of these buckets is on its way here: packets that are earlier wait.
    pub fn expect(&mut self, buckets: &Bits) {
        self.awaited = self.awaited.or(*buckets);
    }

    /// The state of these has come, or comes no more: appends the packets that have waited for it
    /// to `to`, in their order.
    pub fn release(&mut self, buckets: &Bits, to: &mut VecDeque<Packet>) {
        self.awaited = self.awaited.and(buckets.not());
        for _ in 0..self.waiting.len() {
            let Some(packet) = self.waiting.pop_front() else {
                return;
            };
            match buckets.has(packet.user::<Handed>().bucket) {
                true => to.push_back(packet),
                false => self.waiting.push_back(packet),
            }
        }
    }

    /// Packets that wait.
    pub fn held(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Packets that this worker has handed to others.
    pub fn handed(&self, egress: &Egress) -> u64 {
        self.outlets.iter().map(|&outlet| egress.sent(outlet)).sum()
    }

    /// Who owns what, as this worker knows it.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Who it is; [`NOBODY`] where it only dispatches.
    pub fn me(&self) -> Owner {
        self.me
    }
}
