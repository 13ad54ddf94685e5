//! Free ports: which ports of which outside address nobody uses.
//!
//! A port says which bucket of flows it belongs to ([`bucket_of`]), so that whoever receives a
//! packet from outside knows the owner of its flow from the port alone. A port and the next odd one
//! are in one bucket, for pairs (RFC 4787 4.2.3), and even ports alone are spread over all buckets.
//! A bucket has 256 *places* in each address and protocol: one bit each, 4 words.
//!
//! | operation | work |
//! |---|---|
//! | take this port, give it back | a bit, and two summaries of what has some |
//! | take any, of a parity, of a bucket, of any bucket here | at most three searches in 256 bits |
//! | refuse, where there is none | the same |
//! | take a block | as many steps as a bucket has blocks, in each that has none with such a port |
//! | an address of a pool that has a free port | a search in 4096 bits |
//! | a bucket leaves or comes | as many steps as there are addresses |
//!
//! Ports below 1024 are taken by name alone (RFC 4787 REQ-3 a: a low port for a low port, where
//! the pool has them), never by chance.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use linerate_core::arch::prefetch_read;

use super::Protocol;
use super::bits::{Bits, Wide};

/// The bucket that a port of an outside address belongs to.
#[inline]
pub const fn bucket_of(port: u16) -> u8 {
    (port >> 1) as u8
}

/// Where in its bucket a port is.
#[inline]
const fn place_of(port: u16) -> u8 {
    (port >> 9 << 1 | port & 1) as u8
}

/// The port at a place of a bucket.
#[inline]
const fn port_at(bucket: u8, place: u8) -> u16 {
    (place as u16 >> 1) << 9 | (bucket as u16) << 1 | place as u16 & 1
}

/// Distance between two ports of one bucket and parity: the step size of a block's ports in logs
/// (RFC 8158 5.2, `portRangeStepSize`).
pub const STEP: u16 = 512;

/// Places of even ports.
const EVEN: Bits = Bits([0x5555_5555_5555_5555; 4]);
/// Places of ports from 1024 on.
const HIGH: Bits = Bits([!0xf, u64::MAX, u64::MAX, u64::MAX]);

/// Buckets, and places in each.
const BUCKETS: usize = 256;

/// The most addresses of a pool.
pub const POOL_ADDRESSES: usize = Wide::LIMIT;

/// An outside address, by its place in [`Rules`](super::rules::Rules).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressId(pub u16);

/// The ports of an address that may be given to flows: what is configured, less what is static.
#[derive(Clone, PartialEq, Eq)]
pub struct Legal(Box<[[Bits; Protocol::COUNT]; BUCKETS]>);

impl Legal {
    /// The same range for each protocol; identifiers of ICMP queries have no range.
    pub fn new(range: RangeInclusive<u16>) -> Self {
        let mut legal = Self(Box::new([[Bits::NONE; Protocol::COUNT]; BUCKETS]));
        for protocol in Protocol::ALL {
            let range = match protocol {
                Protocol::Icmp => 0..=u16::MAX,
                _ => range.clone(),
            };
            for port in range {
                legal.0[usize::from(bucket_of(port))][protocol.index()].set(place_of(port));
            }
        }
        legal
    }

    /// Takes out what a static rule uses.
    pub fn exclude(&mut self, protocol: Protocol, ports: RangeInclusive<u16>) {
        for port in ports {
            self.0[usize::from(bucket_of(port))][protocol.index()].clear(place_of(port));
        }
    }

    /// Whether a port may be given.
    pub fn has(&self, protocol: Protocol, port: u16) -> bool {
        self.of(bucket_of(port), protocol).has(place_of(port))
    }

    /// How many ports from 1024 on may be given.
    pub fn high(&self, protocol: Protocol) -> u32 {
        let high = |places: &[Bits; Protocol::COUNT]| places[protocol.index()].and(HIGH).len();
        self.0.iter().map(high).sum()
    }

    #[inline]
    fn of(&self, bucket: u8, protocol: Protocol) -> Bits {
        self.0[usize::from(bucket)][protocol.index()]
    }
}

impl std::fmt::Debug for Legal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |protocol: Protocol| -> u32 {
            self.0
                .iter()
                .map(|places| places[protocol.index()].len())
                .sum()
        };
        let counts = Protocol::ALL.map(count);
        f.debug_tuple("Legal").field(&counts).finish()
    }
}

/// What is known of an outside address beforehand.
#[derive(Clone, Debug)]
pub struct Outside {
    pub address: IpAddr,
    pub legal: Arc<Legal>,
    /// The pool that it belongs to, and which of its addresses it is.
    pub pool: u16,
    pub position: u16,
    /// Ports of a block (a power of two from 4 to 128); 0 where ports are taken one by one.
    pub block_ports: u16,
}

/// Whether ports of other buckets than that of who asks are given: a flow ties the two together,
/// and they can only have one owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Apart {
    /// They are, where the wished port is one, or where the own bucket has none.
    #[default]
    No,
    /// Only where the own bucket has none.
    Preferred,
    /// Never.
    Only,
}

/// Which port would be best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// This one, if it is free.
    pub port: Option<u16>,
    /// Else one of this parity, if there is one (RFC 4787 REQ-4).
    pub odd: Option<bool>,
    /// Of this bucket, if there is one.
    pub bucket: u8,
}

/// Some ports of a bucket that one subscriber has for himself, of every protocol (RFC 6888 REQ-13).
///
/// They are strided: `len / 2` even ports [`STEP`] apart from [`first`](Self::first) on, and as
/// many odd ones, each one above an even one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    pub address: AddressId,
    pub bucket: u8,
    /// Its first place in the bucket.
    place: u8,
    /// How many ports.
    pub len: u16,
}

impl Block {
    /// Its lowest port, which is even.
    pub fn first(&self) -> u16 {
        port_at(self.bucket, self.place)
    }

    /// Its highest even port.
    pub fn last_even(&self) -> u16 {
        self.first() + STEP * (self.len / 2 - 1)
    }

    /// Whether a port is in it.
    pub fn has(&self, port: u16) -> bool {
        bucket_of(port) == self.bucket && self.places().has(place_of(port))
    }

    /// Whether any port from 1024 on of TCP's and UDP's is in it.
    fn has_any(&self, [tcp, udp]: [Bits; 2]) -> bool {
        !tcp.or(udp).and(self.places()).and(HIGH).is_empty()
    }

    fn number(&self) -> u32 {
        u32::from(u16::from(self.place) / self.len)
    }

    fn places(&self) -> Bits {
        let mut bits = Bits::NONE;
        let run = match self.len {
            64.. => u64::MAX,
            len => (1 << len) - 1,
        };
        let (word, shift) = (usize::from(self.place >> 6), self.place & 63);
        bits.0[word] = run << shift;
        if self.len > 64 {
            bits.0[word + 1] = u64::MAX;
        }
        bits
    }
}

/// A bucket's part of one address.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    free: [Bits; Protocol::COUNT],
    /// Blocks that somebody has, by number.
    blocks: u64,
}

/// The free ports of one bucket, on the way to another worker.
#[derive(Debug)]
pub struct BucketPorts {
    bucket: u8,
    /// By [`AddressId`].
    parts: Box<[Part]>,
    /// Ports in use that a reload has made illegal, with the protocol's index; mostly none.
    illegal: BTreeSet<(AddressId, usize, u8)>,
}

impl BucketPorts {
    /// Which bucket.
    pub fn bucket(&self) -> u8 {
        self.bucket
    }
}

/// An address and what is free of it in the buckets that are here.
#[derive(Debug)]
struct Slot {
    outside: Outside,
    /// Buckets that have a free high port: even, odd.
    roomy: [[Bits; 2]; Protocol::COUNT],
    /// How many high ports are free.
    free: [u32; Protocol::COUNT],
    /// Buckets that have a free block.
    blocks: Bits,
}

/// Free ports of all outside addresses, in the buckets that one worker owns.
pub struct Ports {
    /// By [`AddressId`]; `None` where there is no such address (any longer).
    slots: Vec<Option<Slot>>,
    buckets: Box<[Option<BucketPorts>; BUCKETS]>,
    /// By pool and protocol: the addresses, by position, that have a free high port.
    pools: Vec<[Wide; Protocol::COUNT]>,
    apart: Apart,
}

impl Ports {
    /// Whether ports of other buckets are given from now on.
    pub fn keep_apart(&mut self, apart: Apart) {
        self.apart = apart;
    }

    /// All ports of these addresses free, in the buckets of `mine`.
    pub fn new(outsides: &[Option<Outside>], mine: Bits) -> Self {
        let bucket = |bucket: usize| {
            let bucket = bucket as u8;
            mine.has(bucket).then(|| BucketPorts {
                bucket,
                parts: Box::default(),
                illegal: BTreeSet::new(),
            })
        };
        let mut ports = Self {
            slots: Vec::new(),
            buckets: Box::new(std::array::from_fn(bucket)),
            pools: Vec::new(),
            apart: Apart::No,
        };
        ports.install(outsides);
        ports
    }

    /// Other addresses, or other legal ports of them. Ports of addresses that stay under their
    /// number stay taken; those of others are all free.
    pub fn install(&mut self, outsides: &[Option<Outside>]) {
        // Most reloads change nothing here, and a large pool takes long.
        let known = self
            .slots
            .iter()
            .map(|slot| slot.as_ref().map(|slot| &slot.outside));
        let new = outsides.iter().map(Option::as_ref);
        if self.slots.len() == outsides.len() && known.zip(new).all(|(a, b)| same(a, b)) {
            return;
        }
        let stays: Vec<bool> = (0..outsides.len())
            .map(|at| {
                let old = self.slots.get(at).and_then(Option::as_ref);
                let same = |old: &Slot, new: &Outside| {
                    old.outside.address == new.address && old.outside.block_ports == new.block_ports
                };
                matches!((old, &outsides[at]), (Some(old), Some(new)) if same(old, new))
            })
            .collect();
        for bucket in self.buckets.iter_mut().flatten() {
            let number = bucket.bucket;
            let before = std::mem::take(&mut bucket.illegal);
            let mut illegal = BTreeSet::new();
            let part = |(at, outside): (usize, &Option<Outside>)| {
                let Some(outside) = outside else {
                    return Part::default();
                };
                let mut part = Part::fresh(number, outside);
                if let (true, Some(Some(slot))) = (stays[at], self.slots.get(at)) {
                    let (old, id) = (bucket.parts[at], AddressId(at as u16));
                    let nobodys = Part::fresh(number, &slot.outside).blocks;
                    part.blocks |= old.blocks & !nobodys;
                    for protocol in Protocol::ALL {
                        let index = protocol.index();
                        let was = slot.outside.legal.of(number, protocol);
                        let mut taken = was.and(old.free[index].not());
                        let own = before.range((id, index, 0)..=(id, index, u8::MAX));
                        own.for_each(|(.., place)| taken.set(*place));
                        if outside.block_ports != 0 && !taken.is_empty() {
                            // A block without a legal port is somebody's all the same.
                            part.blocks |= blocks_with(taken, outside.block_ports);
                        }
                        part.free[index] = part.free[index].and(taken.not());
                        let legal = outside.legal.of(number, protocol);
                        let places = taken.and(legal.not());
                        illegal.extend(places.iter().map(|place| (id, index, place)));
                    }
                }
                part
            };
            bucket.parts = outsides.iter().enumerate().map(part).collect();
            bucket.illegal = illegal;
        }
        let slot = |outside: &Outside| Slot {
            outside: outside.clone(),
            roomy: [[Bits::NONE; 2]; Protocol::COUNT],
            free: [0; Protocol::COUNT],
            blocks: Bits::NONE,
        };
        self.slots = outsides.iter().map(|one| one.as_ref().map(slot)).collect();
        let pools = outsides
            .iter()
            .flatten()
            .map(|outside| usize::from(outside.pool) + 1);
        self.pools = vec![[(); Protocol::COUNT].map(|()| Wide::new()); pools.max().unwrap_or(0)];
        let mine = self.mine();
        mine.iter().for_each(|bucket| self.count(bucket, true));
    }

    /// The buckets whose ports are here.
    pub fn mine(&self) -> Bits {
        let mut mine = Bits::NONE;
        self.buckets
            .iter()
            .flatten()
            .for_each(|bucket| mine.set(bucket.bucket));
        mine
    }

    /// How many ports from 1024 on are free here.
    pub fn free(&self, address: AddressId, protocol: Protocol) -> u32 {
        self.slot(address)
            .map_or(0, |slot| slot.free[protocol.index()])
    }

    /// An address of a pool that has a free port here: the first from a position on.
    #[inline]
    pub fn roomy(&self, pool: u16, protocol: Protocol, start: u16) -> Option<u16> {
        self.pools.get(usize::from(pool))?[protocol.index()].first_from(start)
    }

    /// Takes a port by name; whether it was free.
    #[inline]
    pub fn take_port(&mut self, address: AddressId, protocol: Protocol, port: u16) -> bool {
        let (bucket, place) = (bucket_of(port), place_of(port));
        let Some(part) = self.part(address, bucket) else {
            return false;
        };
        let free = &mut part.free[protocol.index()];
        let was_free = free.has(place);
        if was_free {
            free.clear(place);
            let left = *free;
            self.note(address, protocol, port, left, false);
        }
        was_free
    }

    /// Takes a port: the best there is of the wish, any free one in the end. `random` decides
    /// between equals (RFC 6056 3.3.1: a random start, then the next free one).
    #[inline]
    pub fn take(
        &mut self,
        address: AddressId,
        protocol: Protocol,
        wish: &Wish,
        random: u64,
    ) -> Option<u16> {
        let port = self.peek(address, protocol, wish, random)?;
        self.take_port(address, protocol, port).then_some(port)
    }

    /// The port that [`take`](Self::take) would take.
    #[inline]
    pub fn peek(
        &self,
        address: AddressId,
        protocol: Protocol,
        wish: &Wish,
        random: u64,
    ) -> Option<u16> {
        if let Some(port) = wish.port
            && (self.apart == Apart::No || bucket_of(port) == wish.bucket)
            && self.is_free(address, protocol, port)
        {
            return Some(port);
        }
        let roomy = self.slot(address)?.roomy[protocol.index()];
        let either = roomy[0].or(roomy[1]);
        let wanted = match wish.odd {
            Some(odd) if !roomy[usize::from(odd)].is_empty() => roomy[usize::from(odd)],
            _ => either,
        };
        let own = match self.apart {
            Apart::No => wanted,
            // Another parity rather than another bucket.
            Apart::Preferred | Apart::Only => either,
        };
        let bucket = match own.has(wish.bucket) {
            true => wish.bucket,
            false if self.apart == Apart::Only => return None,
            false => wanted.first_from(random as u8)?,
        };
        let part = self.buckets[usize::from(bucket)].as_ref()?;
        let part = part.parts.get(usize::from(address.0))?;
        let free = part.free[protocol.index()].and(HIGH);
        Some(port_at(bucket, pick(free, wish.odd, random)?))
    }

    /// Takes an even port and the odd one above it (RFC 4787 4.2.3); returns the even one.
    pub fn take_pair(
        &mut self,
        address: AddressId,
        protocol: Protocol,
        bucket: u8,
        random: u64,
    ) -> Option<u16> {
        let roomy = self.slot(address)?.roomy[protocol.index()];
        let both = roomy[0].and(roomy[1]);
        // A bucket may have free ports of both parities and no pair: then the next one.
        let (mut left, mut at) = (both, bucket);
        if !both.has(bucket) {
            at = both.first_from(random as u8)?;
        }
        loop {
            let free = self.part(address, at)?.free[protocol.index()].and(HIGH);
            let odd = free.and(EVEN.not()).0.map(|word| word >> 1);
            if let Some(place) = free.and(Bits(odd)).first_from((random >> 8) as u8) {
                let port = port_at(at, place);
                self.take_port(address, protocol, port);
                self.take_port(address, protocol, port | 1);
                return Some(port);
            }
            left.clear(at);
            at = left.first_from(random as u8)?;
        }
    }

    /// Takes a port of a block.
    pub fn take_in(
        &mut self,
        block: &Block,
        protocol: Protocol,
        wish: &Wish,
        random: u64,
    ) -> Option<u16> {
        if self.apart == Apart::Only && block.bucket != wish.bucket {
            return None;
        }
        if let Some(port) = wish.port
            && block.has(port)
            && self.take_port(block.address, protocol, port)
        {
            return Some(port);
        }
        let places = block.places().and(HIGH);
        let free = self.part(block.address, block.bucket)?.free[protocol.index()].and(places);
        let port = port_at(block.bucket, pick(free, wish.odd, random)?);
        self.take_port(block.address, protocol, port)
            .then_some(port)
    }

    /// Takes a block with a free port of the protocol, of this bucket if it has one.
    pub fn take_block(
        &mut self,
        address: AddressId,
        bucket: u8,
        protocol: Protocol,
        random: u64,
    ) -> Option<Block> {
        let slot = self.slot(address)?;
        let (len, mut left) = (slot.outside.block_ports, slot.blocks);
        // A bucket may have free blocks, and none with a port of the protocol: then the next one.
        let is_only = self.apart == Apart::Only;
        let mut at = match left.has(bucket) {
            true => bucket,
            false if is_only => return None,
            false => left.first_from(random as u8)?,
        };
        loop {
            let part = self.part(address, at)?;
            let useful = blocks_with(part.free[protocol.index()].and(HIGH), len);
            let free = !part.blocks & all_blocks(len);
            if free & useful != 0 {
                // The first one from a random one on.
                let start = (random >> 8) as u32 % (256 / u32::from(len));
                let turned = (free & useful).rotate_right(start);
                let number = (turned.trailing_zeros() + start) & 63;
                part.blocks |= 1 << number;
                let has_more = free & !(1 << number) != 0;
                self.slot_mut(address)?.blocks.put(at, has_more);
                return Some(Block {
                    address,
                    bucket: at,
                    place: (number as u16 * len) as u8,
                    len,
                });
            }
            if is_only {
                return None;
            }
            left.clear(at);
            at = left.first_from(random as u8)?;
        }
    }

    /// Gives a block back, all of whose ports were. It stays nobody's to have if a reload has left
    /// it no port.
    pub fn give_block(&mut self, block: &Block) {
        let Some(slot) = self.slot(block.address) else {
            return;
        };
        let legal = |protocol| slot.outside.legal.of(block.bucket, protocol);
        if !block.has_any([legal(Protocol::Tcp), legal(Protocol::Udp)]) {
            return;
        }
        let Some(part) = self.part(block.address, block.bucket) else {
            return;
        };
        part.blocks &= !(1 << block.number());
        if let Some(slot) = self.slot_mut(block.address) {
            slot.blocks.set(block.bucket);
        }
    }

    /// Gives a port back; whether it is free by that. The next one who asks may have it.
    #[inline]
    pub fn give(&mut self, address: AddressId, protocol: Protocol, port: u16) -> bool {
        let (bucket, place) = (bucket_of(port), place_of(port));
        let legal = match self.slot(address) {
            Some(slot) => slot.outside.legal.of(bucket, protocol).has(place),
            None => return false,
        };
        if !legal {
            // It does not come back, unless another reload makes it legal.
            self.give_illegal(address, protocol, port);
            return false;
        }
        let Some(part) = self.part(address, bucket) else {
            return false;
        };
        let free = &mut part.free[protocol.index()];
        let was_taken = !free.has(place);
        if was_taken {
            free.set(place);
            let now = *free;
            self.note(address, protocol, port, now, true);
        }
        was_taken
    }

    #[cold]
    fn give_illegal(&mut self, address: AddressId, protocol: Protocol, port: u16) {
        if let Some(bucket) = &mut self.buckets[usize::from(bucket_of(port))] {
            let one = (address, protocol.index(), place_of(port));
            bucket.illegal.remove(&one);
        }
    }

    /// Asks for the memory that says which ports of this one's bucket are free.
    #[inline]
    pub fn prefetch(&self, address: AddressId, port: u16) {
        if let Some(bucket) = &self.buckets[usize::from(bucket_of(port))] {
            let part = bucket.parts.as_ptr().wrapping_add(usize::from(address.0));
            prefetch_read(part);
            prefetch_read(part.cast::<u8>().wrapping_add(size_of::<Part>() - 1));
        }
    }

    /// Whether a port may be given, and is not.
    pub fn is_free(&self, address: AddressId, protocol: Protocol, port: u16) -> bool {
        let bucket = self.buckets[usize::from(bucket_of(port))].as_ref();
        let part = bucket.and_then(|bucket| bucket.parts.get(usize::from(address.0)));
        part.is_some_and(|part| part.free[protocol.index()].has(place_of(port)))
    }

    /// Takes the ports of a bucket out, for another worker; `None` if they are not here.
    pub fn take_bucket(&mut self, bucket: u8) -> Option<BucketPorts> {
        self.buckets[usize::from(bucket)].as_ref()?;
        self.count(bucket, false);
        self.buckets[usize::from(bucket)].take()
    }

    /// Puts in what [`take_bucket`](Self::take_bucket) of another worker with the same addresses
    /// took out.
    ///
    /// # Errors
    /// The bucket is here already, or was taken out of another set of addresses.
    pub fn put_bucket(&mut self, ports: BucketPorts) -> Result<(), BucketPorts> {
        let place = &mut self.buckets[usize::from(ports.bucket)];
        if place.is_some() || ports.parts.len() != self.slots.len() {
            return Err(ports);
        }
        let bucket = ports.bucket;
        *place = Some(ports);
        self.count(bucket, true);
        Ok(())
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let buckets = self.buckets.iter().flatten();
        let parts: usize = buckets.map(|bucket| size_of_val(&*bucket.parts)).sum();
        let wide = self.pools.len() * Protocol::COUNT * (size_of::<Wide>() + 512);
        parts + wide + self.slots.len() * size_of::<Option<Slot>>() + size_of_val(&*self.buckets)
    }

    #[inline]
    fn slot(&self, address: AddressId) -> Option<&Slot> {
        self.slots.get(usize::from(address.0))?.as_ref()
    }

    #[inline]
    fn slot_mut(&mut self, address: AddressId) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(address.0))?.as_mut()
    }

    #[inline]
    fn part(&mut self, address: AddressId, bucket: u8) -> Option<&mut Part> {
        let bucket = self.buckets[usize::from(bucket)].as_mut()?;
        bucket.parts.get_mut(usize::from(address.0))
    }

    /// Brings the summaries up to date with one port that was taken or given, `free` being what
    /// is free in its bucket now.
    #[inline]
    fn note(&mut self, address: AddressId, protocol: Protocol, port: u16, free: Bits, is: bool) {
        if !HIGH.has(place_of(port)) {
            return;
        }
        let of_parity = match port & 1 {
            0 => EVEN,
            _ => EVEN.not(),
        };
        let has_some = !free.and(HIGH).and(of_parity).is_empty();
        let Some(slot) = self.slot_mut(address) else {
            return;
        };
        slot.roomy[protocol.index()][usize::from(port & 1)].put(bucket_of(port), has_some);
        let count = &mut slot.free[protocol.index()];
        *count = if is { *count + 1 } else { *count - 1 };
        let (pool, position, has_some) = (slot.outside.pool, slot.outside.position, *count != 0);
        self.pools[usize::from(pool)][protocol.index()].put(position, has_some);
    }

    /// Adds a bucket to the summaries, or takes it out.
    fn count(&mut self, bucket: u8, is_here: bool) {
        let Some(ports) = &self.buckets[usize::from(bucket)] else {
            return;
        };
        for (slot, part) in self.slots.iter_mut().zip(&ports.parts) {
            let Some(slot) = slot else { continue };
            for protocol in Protocol::ALL {
                let free = part.free[protocol.index()].and(HIGH);
                let parities = [free.and(EVEN), free.and(EVEN.not())];
                for (roomy, free) in slot.roomy[protocol.index()].iter_mut().zip(parities) {
                    roomy.put(bucket, is_here && !free.is_empty());
                }
                let count = &mut slot.free[protocol.index()];
                *count = match is_here {
                    true => *count + free.len(),
                    false => *count - free.len(),
                };
                let room = &mut self.pools[usize::from(slot.outside.pool)][protocol.index()];
                room.put(slot.outside.position, *count != 0);
            }
            let has_block = !part.blocks & all_blocks(slot.outside.block_ports) != 0;
            slot.blocks.put(bucket, is_here && has_block);
        }
    }
}

impl Part {
    /// Everything legal is free.
    fn fresh(bucket: u8, outside: &Outside) -> Self {
        let free = Protocol::ALL.map(|protocol| outside.legal.of(bucket, protocol));
        let (mut blocks, len) = (0, outside.block_ports);
        // A block without a port is nobody's to have.
        for number in (0..256_u16).step_by(len.max(4).into()).filter(|_| len != 0) {
            let block = Block {
                address: AddressId(0),
                bucket,
                place: number as u8,
                len,
            };
            let of = |protocol: Protocol| free[protocol.index()];
            if !block.has_any([of(Protocol::Tcp), of(Protocol::Udp)]) {
                blocks |= 1 << block.number();
            }
        }
        Self { free, blocks }
    }
}

/// Whether nothing is to be done for an address: its legal ports are the very same.
fn same(old: Option<&Outside>, new: Option<&Outside>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return old.is_none() && new.is_none();
    };
    let place = |one: &Outside| (one.address, one.pool, one.position, one.block_ports);
    place(old) == place(new) && Arc::ptr_eq(&old.legal, &new.legal)
}

/// The numbers of all blocks of a bucket, as bits.
const fn all_blocks(len: u16) -> u64 {
    match len {
        0 => 0,
        4 => u64::MAX,
        len => (1 << (256 / len)) - 1,
    }
}

/// The numbers of the blocks that have any of these places, as bits.
fn blocks_with(places: Bits, len: u16) -> u64 {
    let blocks = 256_u32 / u32::from(len);
    // A block of 128 is two words.
    let words = match len {
        128 => [places.0[0] | places.0[1], places.0[2] | places.0[3], 0, 0],
        _ => places.0,
    };
    let per_word = blocks.div_ceil(4).max(1);
    let run = u64::MAX >> (64 - u32::from(len.min(64)));
    let one = |number: u32| {
        let word = words[(number / per_word) as usize & 3];
        let has = word >> (number % per_word * u32::from(len)) & run != 0;
        u64::from(has) << number
    };
    (0..blocks).fold(0, |all, number| all | one(number))
}

/// A place, of that parity if there is one.
#[inline]
fn pick(free: Bits, odd: Option<bool>, random: u64) -> Option<u8> {
    let wanted = match odd {
        Some(true) => free.and(EVEN.not()),
        Some(false) => free.and(EVEN),
        None => free,
    };
    let start = (random >> 8) as u8;
    wanted.first_from(start).or_else(|| free.first_from(start))
}

#[cfg(test)]
mod tests;
