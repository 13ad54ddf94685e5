//! A worker's part in dispatch: packets of its own buckets stay in the burst, the others go to
//! their owners' rings; packets that come before their bucket's state wait for it.
//!
//! A full ring drops and is counted, by pair of workers (`tx_full.LCORE`): to wait for another
//! worker would let two of them wait for each other.

use std::collections::VecDeque;
use std::marker::PhantomData;

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet, PoolCache, UserData};
use linerate_core::run::{DropId, Egress};
use linerate_tables::parse::Mask;

use crate::bits::Bits;
use crate::bucket::{BUCKETS, Bucket};
use crate::hand_over::HandOver;
use crate::ones;
use crate::owners::{Loads, Owner, Owners};

/// Packets that may wait in one worker for buckets on their way to it.
pub const ROOM: usize = 4096;

/// What a packet that is handed over carries with it: its bucket, and what else its owner has to
/// know of how it came.
pub trait Mark: UserData {
    /// Its bucket, as the worker said that received it.
    fn bucket(&self) -> Bucket;
}

/// Sorts packets by owner. Those that it hands over are marked as `M` says.
pub struct Sorter<M> {
    /// Who this is; [`NOBODY`] where it only dispatches.
    me: Owner,
    owners: Owners,
    hand_over: HandOver,
    /// Buckets whose state is on its way here.
    awaited: Bits,
    /// The packets that wait for it, in their order; never more than it was made for.
    waiting: VecDeque<Packet>,
    no_room: DropId,
    /// Packets of each bucket that this worker has sorted, where somebody evens loads out.
    loads: Option<Box<Loads>>,
    mark: PhantomData<fn() -> M>,
}

/// The owner of no bucket.
pub const NOBODY: Owner = Owner::MAX;

impl<M: Mark> Sorter<M> {
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
            hand_over: HandOver::new(outlets, isa),
            awaited: Bits::NONE,
            waiting: VecDeque::with_capacity(ROOM),
            no_room: egress.reason("bucket_moves"),
            loads: None,
            mark: PhantomData,
        }
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

    /// Hands those packets at the positions of a mask over whose buckets are others'; the rest
    /// stays in the burst, in order. Returns which positions have left. `mark` says what the packet
    /// at a position carries with it, and `ready` sees what goes to an owner before it does.
    #[inline]
    pub fn sort(
        &mut self,
        burst: &mut Burst,
        (buckets, mask): (&[Bucket; Burst::CAPACITY], Mask),
        mark: impl Fn(usize) -> M,
        ready: impl FnMut(Owner, &mut Burst, &mut PoolCache),
        out: &mut Egress,
    ) -> Mask {
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
            packet.set_user(mark(index));
        }
        self.hand_over.send(burst, others, &owners, ready, out);
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
            let stays = |packet: &mut Packet| !awaited.has(packet.user::<M>().bucket());
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
            match buckets.has(packet.user::<M>().bucket()) {
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
        self.hand_over.sent(egress)
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
