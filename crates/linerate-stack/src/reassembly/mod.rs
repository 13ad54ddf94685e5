//! Reassembly of IPv4 (RFC 791) and IPv6 (RFC 8200, RFC 5722) fragments.
//!
//! A [`Reassembler`] has one owner, the lcore that the fragments come to (a NIC hashes all
//! fragments of a datagram by their addresses alone, so they come to one).
//! [`push`](Reassembler::push) takes a packet and returns its outcome;
//! [`expire`](Reassembler::expire) ends datagrams that waited too long. Read `piece` for the
//! parsing of a fragment, `datagram` for the placement of its bytes, `table` for lookup, age and
//! eviction.
//!
//! # How it works
//!
//! A datagram is assembled in one slot, as every packet is in one slot. It is that of the fragment
//! that comes first, if the datagram's part up to its end fits; each later one is copied to its
//! place and freed at once. So a datagram takes one slot for any number of fragments, and each byte
//! is copied at most once (a first fragment that comes first is not copied at all). Where it gets
//! too long for a slot it moves to one of a larger class.
//!
//! Received bytes are recorded as runs, the complement of RFC 815's holes. A fragment whose bytes
//! are all there already and equal is a duplicate, and dropped, even if it is a part of a run (RFC
//! 8200 4.5 exempts only exact duplicates); any other overlap abandons the datagram (RFC 5722, RFC
//! 8200 4.5; for IPv4 alike).
//!
//! # Bounds
//!
//! | what | bound | then |
//! |---|---|---|
//! | datagrams | [`Config::max_datagrams`] | the oldest is evicted |
//! | of one source (IPv4 address, IPv6 /64; by a keyed hash) | [`Config::max_per_source`] and the newest | that source's oldest is evicted |
//! | bytes of the slots held | [`Config::max_bytes`] | the oldest is evicted |
//! | bytes of large slots | half of that | the oldest in a large slot is evicted |
//! | time | [`Config::timeout4_ns`], [`Config::timeout6_ns`] | [`expire`](Reassembler::expire) ends it |
//! | runs of a datagram | 36: any 72 fragments in any order | it is abandoned |
//!
//! All memory of its own (276 bytes per datagram) is allocated at set-up. A fragment costs O(1),
//! and its bytes.
//!
//! ```
//! use linerate_core::packet::{Pool, PoolCache, PoolConfig, SlotClass};
//! use linerate_stack::reassembly::{Config, Outcome, Reassembler};
//!
//! // Slots for what is received, and some for datagrams that get too long for them.
//! let small = Pool::new(&PoolConfig::new("rx", 256))?;
//! let large = Pool::new(&PoolConfig { class: SlotClass::Large, ..PoolConfig::new("large", 16) })?;
//! let mut cache = PoolCache::new(&[small, large]);
//! let mut reassembler = Reassembler::new(&Config::default())?;
//! // The halves of a UDP datagram of 3000 bytes from 10.0.0.1 to 10.0.0.2; no Ethernet header.
//! let mut first = [0; 20 + 1480];
//! first[..24].copy_from_slice(&[
//!     0x45, 0, 0x05, 0xdc, 0, 1, 0x20, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, //
//!     0, 53, 0, 53,
//! ]);
//! let mut last = [0; 20 + 1520];
//! last[..20].copy_from_slice(&[
//!     0x45, 0, 0x06, 0x04, 0, 1, 0, 185, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
//! ]);
//! let (l3, vrf, now_ns) = (0, 0, 0);
//! let first = cache.copy_of(&first).expect("a fresh pool has free slots");
//! assert!(matches!(reassembler.push(first, l3, vrf, now_ns, &mut cache), Outcome::Held));
//! let last = cache.copy_of(&last).expect("a fresh pool has free slots");
//! let Outcome::Whole(datagram) = reassembler.push(last, l3, vrf, now_ns, &mut cache) else {
//!     panic!("both halves are there");
//! };
//! assert_eq!(datagram.len(), 20 + 3000);
//! # Ok::<(), linerate_core::MemError>(())
//! ```

mod config;
mod datagram;
mod header;
mod piece;
mod refusal;
mod table;
#[cfg(test)]
mod tests;

use linerate_core::MemError;
use linerate_core::packet::{Burst, Packet, PoolCache};

pub use config::{Config, Held, Outcome, Stats};
use datagram::Added;
use piece::{Piece, Shape};
pub use refusal::Refusal;
use table::{NONE, Table};

/// Slots of more bytes than this are of a large class.
const SMALL_BYTES: usize = 4096;

/// Reassembles datagrams, bounded in bytes and time.
pub struct Reassembler {
    config: Config,
    table: Table,
    /// Bytes of the slots held, and of the large ones.
    bytes: usize,
    large_bytes: usize,
    stats: Stats,
}

impl Reassembler {
    /// An empty reassembler, with memory up to its limits.
    ///
    /// # Errors
    /// No memory.
    pub fn new(config: &Config) -> Result<Self, MemError> {
        Ok(Self {
            config: config.clone(),
            table: Table::new(config)?,
            bytes: 0,
            large_bytes: 0,
            stats: Stats::default(),
        })
    }

    /// Takes a packet of which the IP header stands at byte `l3`, received in `vrf` at `now_ns`.
    ///
    /// The caller has checked the IPv4 header's checksum (RFC 1812 5.2.2). Any bytes are handled
    /// without panic. Larger slots come from the pools that `cache` was made for, and freed packets
    /// go to it.
    #[inline]
    pub fn push(
        &mut self,
        mut packet: Packet,
        l3: usize,
        vrf: u32,
        now_ns: u64,
        cache: &mut PoolCache,
    ) -> Outcome {
        let mut piece = Piece::default();
        match piece.read(packet.data(), l3, vrf) {
            Ok(Shape::Fragment) => {}
            Ok(Shape::Whole) => {
                self.stats.passed += 1;
                packet.meta_mut().l3_offset = l3 as u8;
                return Outcome::Whole(packet);
            }
            Ok(Shape::Atomic) => {
                self.stats.passed += 1;
                header::strip_atomic(&mut packet, &piece);
                return Outcome::Whole(packet);
            }
            Err(refusal) => {
                self.stats.fragments += 1;
                return self.refuse(refusal, packet);
            }
        }
        self.stats.fragments += 1;
        if let Some(at) = self.table.find_last(&piece.key) {
            return self.add(at, &piece, packet, cache);
        }
        self.tie(cache);
        match self.table.find(&piece.key) {
            Some(at) => self.add_older(at, &piece, packet, cache),
            None => self.open(&piece, packet, now_ns, cache),
        }
    }

    /// Ends datagrams whose time is over, `budget` of them at most, and returns the first fragments
    /// of those that have one, unchanged, for an ICMP Time Exceeded with code 1 (RFC 792, RFC 8200
    /// 4.5). Ends no more than `first_fragments` has room for. Returns how many it ended: when that
    /// is the budget, or the burst is full, there may be more.
    pub fn expire(
        &mut self,
        now_ns: u64,
        budget: usize,
        cache: &mut PoolCache,
        first_fragments: &mut Burst,
    ) -> usize {
        let mut ended = 0;
        while ended < budget && first_fragments.room() > 0 {
            let Some(at) = self.table.overdue(now_ns) else {
                break;
            };
            let has_first = self.table.at_mut(at).show_first();
            let packet = self.end(at, Refusal::TimedOut);
            ended += 1;
            let unsent = match has_first {
                true => first_fragments.push(packet).err(),
                false => Some(packet),
            };
            if let Some(packet) = unsent {
                cache.free_one(packet);
            }
        }
        ended
    }

    /// When the next datagram expires: [`expire`](Self::expire) has nothing to do before.
    pub fn next_expiry_ns(&self) -> Option<u64> {
        self.table.next_expiry_ns()
    }

    /// Abandons everything, as [evicted](Refusal::Evicted).
    pub fn clear(&mut self, cache: &mut PoolCache) {
        while let Some(at) = self.table.oldest() {
            self.evict(at, cache);
        }
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// What is held now.
    pub fn held(&self) -> Held {
        Held {
            datagrams: self.table.len(),
            fragments: self.table.fragments(),
            bytes: self.bytes,
        }
    }

    /// Enters the last datagram into the index and the lists, since another one comes.
    #[inline]
    fn tie(&mut self, cache: &mut PoolCache) {
        let Some(at) = self.table.loose() else {
            return;
        };
        let source = self.table.source(at);
        if let Some(own) = self.table.over_share(source, self.config.max_per_source) {
            self.evict(own, cache);
        }
        self.table.tie(at, source);
    }

    /// The first fragment to come of a new datagram.
    fn open(
        &mut self,
        piece: &Piece,
        packet: Packet,
        now_ns: u64,
        cache: &mut PoolCache,
    ) -> Outcome {
        if self.table.is_full()
            && let Some(oldest) = self.table.oldest()
        {
            self.evict(oldest, cache);
        }
        let bytes = packet.slot_bytes();
        let has_room = packet.headroom() + piece.frame_end() <= bytes;
        let home = if has_room {
            if !self.make_room(bytes, NONE, cache) {
                return self.refuse(Refusal::NoMemory, packet);
            }
            datagram::settle(packet, piece)
        } else {
            let Some(home) = self.larger(piece.frame_end(), NONE, cache) else {
                return self.refuse(Refusal::NoMemory, packet);
            };
            let settled = datagram::settle_in(home, &packet, piece);
            cache.free_one(packet);
            settled
        };
        let bytes = home.packet.len();
        let at = self.table.insert(piece, now_ns);
        self.table.at_mut(at).begin(piece, home);
        self.account(at, bytes);
        Outcome::Held
    }

    /// A fragment of a known datagram other than the last one's.
    #[inline(never)]
    fn add_older(
        &mut self,
        at: u32,
        piece: &Piece,
        packet: Packet,
        cache: &mut PoolCache,
    ) -> Outcome {
        self.add(at, piece, packet, cache)
    }

    /// A fragment of a known datagram.
    #[inline(always)]
    fn add(&mut self, at: u32, piece: &Piece, packet: Packet, cache: &mut PoolCache) -> Outcome {
        match self.table.at_mut(at).take(piece, packet) {
            Ok(spare) => cache.free_one(spare),
            Err((added, packet)) => return self.add_odd(at, piece, added, packet, cache),
        }
        self.added(at)
    }

    /// A fragment that fills no gap, or does not fit the slot.
    #[inline(never)]
    fn add_odd(
        &mut self,
        at: u32,
        piece: &Piece,
        added: Added,
        packet: Packet,
        cache: &mut PoolCache,
    ) -> Outcome {
        match added {
            Added::Ok => {}
            Added::Duplicate => return self.refuse(Refusal::Duplicate, packet),
            Added::Abandon(refusal) => return self.abandon(at, refusal, packet, cache),
        }
        if let Err(refusal) = self.move_to_larger(at, piece, cache) {
            return self.abandon(at, refusal, packet, cache);
        }
        self.table.at_mut(at).place(piece, &packet);
        cache.free_one(packet);
        self.added(at)
    }

    /// A fragment was placed: returns the datagram if it was the last one.
    #[inline(always)]
    fn added(&mut self, at: u32) -> Outcome {
        let datagram = self.table.at_mut(at);
        if !datagram.is_complete() {
            return Outcome::Held;
        }
        let fragments = datagram.fragments();
        let finished = datagram.finish();
        let home = self.release(at);
        match finished {
            Ok(()) => {
                self.stats.reassembled += fragments;
                self.stats.datagrams += 1;
                Outcome::Whole(home)
            }
            Err(refusal) => {
                // The completing fragment is returned for all of them.
                self.stats.dropped[refusal as usize] += fragments;
                Outcome::Dropped(refusal, home)
            }
        }
    }

    /// Moves a datagram to a slot that has room for the fragment too.
    #[cold]
    fn move_to_larger(
        &mut self,
        at: u32,
        piece: &Piece,
        cache: &mut PoolCache,
    ) -> Result<(), Refusal> {
        let bytes = self.table.at(at).frame_bytes_with(piece);
        let home = self.larger(bytes, at, cache);
        let home = home.ok_or(Refusal::NoMemory)?;
        let bytes = home.slot_bytes();
        self.discount(at);
        let old = self.table.at_mut(at).move_to(home, piece);
        self.account(at, bytes);
        cache.free_one(old);
        Ok(())
    }

    /// A fresh packet that takes a frame of `bytes`, within the bounds, for the datagram `own` (or
    /// a new one).
    #[cold]
    fn larger(&mut self, bytes: usize, own: u32, cache: &mut PoolCache) -> Option<Packet> {
        let slot_bytes = cache.pool_for(bytes)?.slot_bytes();
        if !self.make_room(slot_bytes, own, cache) {
            return None;
        }
        if let Some(packet) = cache.get_for(bytes) {
            return Some(packet);
        }
        // Large slots are few: the datagram that has had one the longest is evicted.
        let victim = self.table.oldest_large().filter(|&at| at != own)?;
        self.evict(victim, cache);
        cache.get_for(bytes)
    }

    /// Evicts until a further slot of `bytes` may be held; false if even the datagram `own` would
    /// have to be evicted.
    #[inline]
    fn make_room(&mut self, bytes: usize, own: u32, cache: &mut PoolCache) -> bool {
        if bytes > SMALL_BYTES {
            while self.large_bytes + bytes > self.config.max_bytes / 2 {
                match self.table.oldest_large() {
                    Some(at) if at != own => self.evict(at, cache),
                    _ => return false,
                }
            }
        }
        while self.bytes + bytes > self.config.max_bytes {
            match self.table.oldest() {
                Some(at) if at != own => self.evict(at, cache),
                _ => return false,
            }
        }
        true
    }

    /// Drops a datagram, and the fragment that causes it.
    #[cold]
    fn abandon(
        &mut self,
        at: u32,
        refusal: Refusal,
        packet: Packet,
        cache: &mut PoolCache,
    ) -> Outcome {
        let home = self.end(at, refusal);
        cache.free_one(home);
        self.refuse(refusal, packet)
    }

    #[cold]
    fn evict(&mut self, at: u32, cache: &mut PoolCache) {
        let packet = self.end(at, Refusal::Evicted);
        cache.free_one(packet);
    }

    /// Removes a datagram and counts its fragments as dropped for this reason; returns its slot.
    fn end(&mut self, at: u32, refusal: Refusal) -> Packet {
        self.stats.dropped[refusal as usize] += self.table.at(at).fragments();
        self.release(at)
    }

    /// Removes a datagram, and returns its slot.
    #[inline]
    fn release(&mut self, at: u32) -> Packet {
        self.discount(at);
        self.table.remove(at)
    }

    /// Counts the bytes of the slot that a datagram has from now on.
    #[inline]
    fn account(&mut self, at: u32, bytes: usize) {
        self.bytes += bytes;
        if bytes > SMALL_BYTES {
            self.large_bytes += bytes;
            self.table.mark_large(at);
        }
    }

    /// Subtracts the slot of a datagram.
    #[inline]
    fn discount(&mut self, at: u32) {
        let bytes = self.table.at(at).slot_bytes();
        self.bytes -= bytes;
        if bytes > SMALL_BYTES {
            self.large_bytes -= bytes;
            self.table.unmark_large(at);
        }
    }

    #[inline]
    fn refuse(&mut self, refusal: Refusal, packet: Packet) -> Outcome {
        self.stats.dropped[refusal as usize] += 1;
        Outcome::Dropped(refusal, packet)
    }
}

impl std::fmt::Debug for Reassembler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reassembler")
            .field("held", &self.held())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
