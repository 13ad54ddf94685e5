//! A worker's part in dispatch: packets of its own buckets stay in the burst, the others go to
//! their owners' rings; packets that come before their bucket's state wait for it.
//!
//! A full ring drops and is counted, by pair of workers (`tx_full.LCORE`): to wait for another
//! worker would let two of them wait for each other.

use std::collections::VecDeque;

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet, UserData};
use linerate_core::run::{DropId, Egress};
use linerate_tables::parse::Mask;
use linerate_tables::rewrite::Scatter;

use super::bucket::Bucket;
use super::owners::{Owner, Owners};

/// Packets that may wait in one worker for buckets on their way to it.
const ROOM: usize = 4096;

/// What a packet that is handed over carries with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// The interface that it came by.
    pub interface: u16,
    /// Its bucket, as the worker said that received it.
    pub bucket: Bucket,
}

impl UserData for Handed {
    #[inline(always)]
    fn from_words([first, _]: [u64; 2]) -> Self {
        Self {
            interface: first as u16,
            bucket: (first >> 16) as u8,
        }
    }

    #[inline(always)]
    fn into_words(self) -> [u64; 2] {
        [u64::from(self.interface) | u64::from(self.bucket) << 16, 0]
    }
}

/// Sorts packets by owner.
pub struct Sorter {
    me: Owner,
    owners: Owners,
    /// The outlet that leads to each owner.
    outlets: Vec<u16>,
    scatter: Scatter,
    /// Buckets whose state is on its way here, and the packets that wait for it.
    awaited: Vec<(Bucket, VecDeque<Packet>)>,
    waiting: usize,
    no_room: DropId,
}

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
            awaited: Vec::new(),
            waiting: 0,
            no_room: egress.reason("bucket_moves"),
        }
    }

    /// Hands the packets of other owners' buckets over; the rest stays, in order, and `buckets` is
    /// moved together with it. Returns whether all have stayed, at their positions.
    #[inline]
    pub fn sort(
        &mut self,
        burst: &mut Burst,
        buckets: &mut [Bucket; Burst::CAPACITY],
        interface: u16,
        out: &mut Egress,
    ) -> bool {
        let mut owners = [0; Burst::CAPACITY];
        let mut others: Mask = 0;
        for (index, &bucket) in buckets[..burst.len()].iter().enumerate() {
            let owner = self.owners.of(bucket);
            owners[index] = owner.into();
            others |= Mask::from(owner != self.me) << index;
        }
        if others == 0 {
            return self.awaited.is_empty() || self.hold(burst, buckets, out);
        }
        let mut left = others;
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            let bucket = buckets[index];
            burst.as_packets_mut()[index].set_user(Handed { interface, bucket });
        }
        let outlets = &self.outlets;
        self.scatter
            .by_value(burst, others, &owners, |owner, packets| {
                // One that there is no way to is an outlet that drops and counts.
                let outlet = outlets.get(owner as usize).copied();
                out.send(outlet.unwrap_or(u16::MAX), packets);
            });
        let mut to = 0;
        let mut own = !others;
        while to < burst.len() {
            buckets[to] = buckets[own.trailing_zeros() as usize];
            own &= own - 1;
            to += 1;
        }
        if !self.awaited.is_empty() {
            self.hold(burst, buckets, out);
        }
        false
    }

    /// The same for a burst from another worker, whose packets are this one's already: those whose
    /// bucket is still on its way wait. `buckets` are read from the packets.
    #[inline]
    pub fn admit(
        &mut self,
        burst: &mut Burst,
        buckets: &mut [Bucket; Burst::CAPACITY],
        out: &mut Egress,
    ) {
        for (index, packet) in burst.iter().enumerate() {
            buckets[index] = packet.user::<Handed>().bucket;
        }
        if !self.awaited.is_empty() {
            self.hold(burst, buckets, out);
        }
    }

    /// Puts packets of awaited buckets aside. Returns whether there were none.
    #[cold]
    fn hold(
        &mut self,
        burst: &mut Burst,
        buckets: &mut [Bucket; Burst::CAPACITY],
        out: &mut Egress,
    ) -> bool {
        let before = burst.len();
        let (mut kept, mut at) = (0, 0);
        let mut waits = Burst::new();
        let awaited = &mut self.awaited;
        let mut places = [0; Burst::CAPACITY];
        burst.retain(&mut waits, |_| {
            let bucket = buckets[at];
            at += 1;
            let place = awaited.iter().position(|(of, _)| *of == bucket);
            match place {
                Some(place) => {
                    places[at - 1 - kept] = place;
                    false
                }
                None => {
                    buckets[kept] = bucket;
                    kept += 1;
                    true
                }
            }
        });
        for (packet, place) in waits.drain().zip(places) {
            if self.waiting == ROOM {
                out.drop_one(self.no_room, packet);
                continue;
            }
            self.waiting += 1;
            awaited[place].1.push_back(packet);
        }
        burst.len() == before
    }

    /// Packets of this bucket go to `to` from now on.
    pub fn turn(&mut self, bucket: Bucket, to: Owner) {
        self.owners.set(bucket, to);
    }

    /// The state of this bucket is on its way here: packets that are earlier wait.
    pub fn expect(&mut self, bucket: Bucket) {
        if !self.awaited.iter().any(|(of, _)| *of == bucket) {
            self.awaited.push((bucket, VecDeque::new()));
        }
    }

    /// The state has come, or comes no more: the packets that have waited for it, in their order.
    pub fn release(&mut self, bucket: Bucket) -> VecDeque<Packet> {
        let place = self.awaited.iter().position(|(of, _)| *of == bucket);
        let packets = place.map(|place| self.awaited.swap_remove(place).1);
        let packets = packets.unwrap_or_default();
        self.waiting -= packets.len();
        packets
    }

    /// Packets that wait.
    pub fn held(&self) -> u64 {
        self.waiting as u64
    }

    /// Who owns what, as this worker knows it.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }
}
