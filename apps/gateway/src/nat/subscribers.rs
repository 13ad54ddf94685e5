//! Subscribers: hosts inside that have an outside address, blocks of ports and limits of their own.
//!
//! A host is one only where its pool asks for it: with several addresses of which each host is to
//! have one (RFC 4787 REQ-2, "paired"), with blocks of ports, or with a limit of ports. It is one
//! as long as it has a port.

use std::net::IpAddr;

use linerate_tables::TableError;
use linerate_tables::exact::{Exact, ExactConfig, Seed};

use super::chain::{Chains, NONE};
use super::mapping::octets;
use super::ports::{AddressId, Block};

/// Blocks that a subscriber may have at most.
pub const MOST_BLOCKS: usize = 8;

/// Who it is: a host inside, in its zone, as a client of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Who {
    pub address: IpAddr,
    pub zone: u16,
    pub pool: u16,
}

/// A subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber {
    pub who: Who,
    /// The bucket of its address.
    pub bucket: u8,
    /// The outside address of all its flows.
    pub outside: AddressId,
    /// Ports that it has, of all protocols.
    pub ports: u32,
    /// How many blocks it has.
    held: u16,
    /// Its blocks, and how many ports of each it has.
    blocks: [Option<(Block, u16)>; MOST_BLOCKS],
}

impl Subscriber {
    /// Its blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().flatten().map(|(block, _)| block)
    }

    /// Adds a block; false where it has as many as may be.
    pub fn add(&mut self, block: Block, most: u16) -> bool {
        let most = usize::from(most).min(MOST_BLOCKS);
        match self.blocks[..most].iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some((block, 0));
                self.held += 1;
                true
            }
            None => false,
        }
    }

    /// Whether it may have another block.
    pub fn may_add(&self, most: u16) -> bool {
        let most = usize::from(most).min(MOST_BLOCKS);
        self.blocks[..most].iter().any(Option::is_none)
    }

    /// Counts a port that was taken.
    pub fn take(&mut self, port: u16) {
        self.ports += 1;
        if self.held == 0 {
            return;
        }
        let mut blocks = self.blocks.iter_mut().flatten();
        if let Some((_, used)) = blocks.find(|(block, _)| block.has(port)) {
            *used += 1;
        }
    }

    /// Counts a port that was given back; the block, if it was the block's last port.
    pub fn give(&mut self, port: u16) -> Option<Block> {
        self.ports = self.ports.saturating_sub(1);
        if self.held == 0 {
            return None;
        }
        let has = |place: &&mut Option<(Block, u16)>| {
            place.as_ref().is_some_and(|(block, _)| block.has(port))
        };
        let place = self.blocks.iter_mut().find(has)?;
        let (block, used) = place.as_mut()?;
        *used = used.saturating_sub(1);
        let block = *block;
        if *used != 0 {
            return None;
        }
        *place = None;
        self.held -= 1;
        Some(block)
    }
}

/// The subscribers of one bucket, on the way to another worker.
#[derive(Debug, Default)]
pub struct BucketSubscribers(Vec<Subscriber>);

/// The subscribers that one worker owns.
pub struct Subscribers {
    all: Chains<Subscriber>,
    buckets: Box<[u32; 256]>,
    places: Exact<20, u32>,
}

impl Who {
    fn key(&self) -> [u8; 20] {
        let mut key = [0; 20];
        key[..16].copy_from_slice(&octets(self.address));
        key[16..18].copy_from_slice(&self.zone.to_be_bytes());
        key[18..].copy_from_slice(&self.pool.to_be_bytes());
        key
    }
}

impl Subscribers {
    /// Room for so many, which it grows to.
    ///
    /// # Errors
    /// Those of [`Exact::new`].
    pub fn new(limit: usize, seed: Seed) -> Result<Self, TableError> {
        Ok(Self {
            all: Chains::new(),
            buckets: Box::new([NONE; 256]),
            places: Exact::new(&ExactConfig::new("NAT subscribers", limit, seed))?,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those at `count` places from `from` on, and where to go on; `None` at the end.
    pub fn part(&self, from: u32, count: u32) -> (impl Iterator<Item = &Subscriber>, Option<u32>) {
        self.all.part(from, count)
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Subscriber> {
        self.all.iter()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.all.memory_bytes() + self.places.memory_bytes()
    }

    /// The subscriber of that name.
    pub fn get(&self, who: &Who) -> Option<&Subscriber> {
        self.all.get(self.places.lookup(&who.key())?)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, who: &Who) -> Option<&mut Subscriber> {
        self.all.get_mut(self.places.lookup(&who.key())?)
    }

    /// Where the subscriber of that name is, until one leaves.
    pub fn place(&self, who: &Who) -> Option<u32> {
        self.places.lookup(&who.key())
    }

    /// The subscriber there.
    pub fn at(&self, place: u32) -> Option<&Subscriber> {
        self.all.get(place)
    }

    /// The same, to be changed.
    pub fn at_mut(&mut self, place: u32) -> Option<&mut Subscriber> {
        self.all.get_mut(place)
    }

    /// Asks for the memory that tells where a subscriber is.
    #[inline]
    pub fn prefetch(&self, who: &Who) {
        self.places.prefetch(&who.key());
    }

    /// Asks for the memory of a subscriber.
    #[inline]
    pub fn prefetch_at(&self, place: u32) {
        self.all.prefetch(place);
    }

    /// Adds one that has nothing but an address yet; returns its place.
    ///
    /// # Errors
    /// There is no room.
    pub fn insert(&mut self, who: Who, bucket: u8, outside: AddressId) -> Result<u32, TableError> {
        self.put(Subscriber {
            who,
            bucket,
            outside,
            ports: 0,
            held: 0,
            blocks: [None; MOST_BLOCKS],
        })
    }

    fn put(&mut self, subscriber: Subscriber) -> Result<u32, TableError> {
        let first = &mut self.buckets[usize::from(subscriber.bucket)];
        let place = self.all.push(first, subscriber);
        match self.places.insert(&subscriber.who.key(), place) {
            Ok(_) => Ok(place),
            Err(error) => {
                self.all.remove(first, place);
                Err(error)
            }
        }
    }

    /// Takes one out.
    pub fn remove(&mut self, who: &Who) -> Option<Subscriber> {
        let place = self.places.remove(&who.key())?;
        let bucket = usize::from(self.all.get(place)?.bucket);
        self.all.remove(&mut self.buckets[bucket], place)
    }

    /// Takes out those that `stays` declines.
    pub fn retain(&mut self, stays: impl Fn(&Subscriber) -> bool) {
        let gone: Vec<Who> = self
            .all
            .iter()
            .filter(|one| !stays(one))
            .map(|one| one.who)
            .collect();
        for who in gone {
            self.remove(&who);
        }
    }

    /// Gives the pools of all their numbers anew, by their outside addresses.
    pub fn renumber(&mut self, pool: impl Fn(AddressId) -> u16) {
        let is_other = |one: &&Subscriber| one.who.pool != pool(one.outside);
        let others: Vec<Subscriber> = self.all.iter().filter(is_other).copied().collect();
        others.iter().for_each(|one| _ = self.remove(&one.who));
        for mut one in others {
            one.who.pool = pool(one.outside);
            // As many as before, in the same table.
            let _ = self.put(one);
        }
    }

    /// Takes the subscribers of a bucket out, for another worker.
    pub fn take_bucket(&mut self, bucket: u8) -> BucketSubscribers {
        let list = self.all.list(self.buckets[usize::from(bucket)]);
        let who: Vec<Who> = list.map(|subscriber| subscriber.who).collect();
        BucketSubscribers(who.iter().filter_map(|who| self.remove(who)).collect())
    }

    /// Puts in what [`take_bucket`](Self::take_bucket) of another worker took out; returns how
    /// many there is no room for: their flows stay, and are counted no longer.
    pub fn put_bucket(&mut self, subscribers: BucketSubscribers) -> usize {
        let all = subscribers.0.into_iter();
        all.filter(|one| self.put(*one).is_err()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::Protocol;
    use crate::nat::bits::Bits;
    use crate::nat::ports::{Legal, Outside, Ports};
    use std::sync::Arc;

    fn who(host: u8) -> Who {
        Who {
            address: [10, 0, 0, host].into(),
            zone: 1,
            pool: 0,
        }
    }

    #[test]
    fn blocks_are_counted_and_end_with_their_last_port() {
        let outside = Outside {
            address: [198, 51, 100, 1].into(),
            legal: Arc::new(Legal::new(1024..=65535)),
            pool: 0,
            position: 0,
            block_ports: 8,
        };
        let mut ports = Ports::new(&[Some(outside)], Bits::ALL);
        let mut all = Subscribers::new(10, Seed(1)).unwrap();
        all.insert(who(1), 4, AddressId(0)).unwrap();
        let one = all.get_mut(&who(1)).unwrap();
        let mut block = || ports.take_block(AddressId(0), 4, Protocol::Tcp, 1).unwrap();
        let (first, second) = (block(), block());
        assert!(one.may_add(2) && one.add(first, 2) && one.add(second, 2));
        assert!(!one.may_add(2) && !one.add(block(), 2));
        one.take(first.first());
        one.take(first.first() | 1);
        one.take(second.first());
        assert_eq!((one.ports, one.blocks().count()), (3, 2));
        assert_eq!(one.give(first.first()), None);
        assert_eq!(one.give(first.first() | 1), Some(first));
        assert_eq!(
            (one.ports, one.blocks().count(), one.may_add(2)),
            (1, 1, true)
        );
    }

    #[test]
    fn subscribers_move_with_their_bucket() {
        let mut here = Subscribers::new(100, Seed(1)).unwrap();
        for host in 0..100 {
            here.insert(who(host), host % 10, AddressId(host.into()))
                .unwrap();
        }
        assert!(here.insert(who(100), 0, AddressId(0)).is_err() && here.len() == 100);
        let mut there = Subscribers::new(16, Seed(2)).unwrap();
        assert_eq!(there.put_bucket(here.take_bucket(3)), 0);
        assert_eq!((here.len(), there.len()), (90, 10));
        assert!(here.get(&who(3)).is_none() && here.take_bucket(3).0.is_empty());
        assert_eq!(there.get(&who(13)).unwrap().outside, AddressId(13));
        assert_eq!(there.put_bucket(here.take_bucket(4)), 4);
        here.retain(|one| one.outside.0 < 50);
        assert_eq!((here.len(), here.iter().count()), (40, 40));
        assert!(here.remove(&who(0)).is_some() && here.remove(&who(0)).is_none());
        assert!(!here.is_empty() && here.memory_bytes() > 0);
    }
}
