//! One lcore's stock of free slots, for each pool a stack of handles.
//!
//! Getting and freeing a burst is a block copy; only when the stack runs dry or full does the
//! cache exchange magazines of 64 with the pool's depot.
#![allow(unsafe_code)]

use super::burst::Burst;
use super::depot::MAGAZINE;
use super::meta::{Line, Offload, line_at, line_of};
use super::packet::Packet;
use super::pool::{HEADROOM_BYTES, Pool, next_of, set_next};
use crate::arch::WordCopy;
use crate::mem::space::base;
use crate::sync::Ordering;
use std::mem::offset_of;
use std::num::NonZeroU32;

/// Handles of one pool that a cache keeps at most between two calls.
const MOST: usize = 512;
/// Room for one burst more, so that a put copies first and looks afterwards.
const CAPACITY: usize = MOST + Burst::CAPACITY;

/// What a receiver writes into each packet of a burst at once: 16 bytes of metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxTemplate {
    /// Length of the data in bytes; must fit the pool's slots.
    pub len: u32,
    /// Index of the receiving port.
    pub port: u16,
    /// What is known of all packets.
    pub offload: Offload,
}

/// One lcore's stock of free slots. Every receive and transmit of that lcore passes through it.
#[derive(Debug)]
pub struct PoolCache {
    /// Nearly always the only one, and so in place: what was just written to it is read again by
    /// the same address, for which the processor does not wait.
    first: Option<Bin>,
    /// The others, if there is a first one.
    others: Vec<Bin>,
    /// How many of the bins are of the pools that it was made for.
    own: usize,
}

/// Aligned, so that block copies of whole bursts do not straddle cache lines.
#[repr(align(64))]
struct Stack([u32; CAPACITY]);

struct Bin {
    /// The pool's slots are the handles that differ from `first` only in bits below `span`, a power
    /// of two.
    first: u32,
    span: u32,
    len: usize,
    /// Most handles kept: [`MOST`], or an eighth of a small pool, so that a few caches cannot
    /// keep all of it from each other.
    limit: usize,
    /// Slots taken from the pool's shared part less those given to it: for the ledger.
    from_shared: i64,
    /// Bytes that a packet of its pool has room for.
    room_bytes: usize,
    copies: WordCopy,
    stack: Box<Stack>,
    pool: Pool,
}

impl PoolCache {
    /// An empty stock for these pools; others are added when first met.
    pub fn new(pools: &[Pool]) -> Self {
        let mut bins = pools.iter().map(|pool| Bin::new(pool.clone()));
        Self {
            first: bins.next(),
            others: bins.collect(),
            own: pools.len(),
        }
    }

    fn bins(&self) -> impl Iterator<Item = &Bin> {
        self.first.iter().chain(&self.others)
    }

    fn bins_mut(&mut self) -> impl Iterator<Item = &mut Bin> {
        self.first.iter_mut().chain(&mut self.others)
    }

    /// Keeps a stack more.
    fn add(&mut self, bin: Bin) -> &mut Bin {
        if self.first.is_none() {
            return self.first.insert(bin);
        }
        self.others.push_mut(bin)
    }

    /// The pools that it has stocks of, those that it was made for first.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.bins().map(|bin| &bin.pool)
    }

    /// Of the pools that it was made for, the one whose slots are the smallest that take a frame of
    /// `bytes`.
    pub fn pool_for(&self, bytes: usize) -> Option<&Pool> {
        let fit = self
            .pools()
            .take(self.own)
            .filter(|pool| pool.room_bytes() >= bytes);
        fit.min_by_key(|pool| pool.room_bytes())
    }

    /// One packet of length 0 from [`pool_for`](Self::pool_for), or `None` (and a counted refusal
    /// where that pool has no free slot).
    #[inline]
    pub fn get_for(&mut self, bytes: usize) -> Option<Packet> {
        let own = self.own;
        if let (Some(bin), 1) = (&mut self.first, own) {
            return match bin.room_bytes >= bytes {
                true => bin.get(),
                false => None,
            };
        }
        let bins = self.bins_mut().take(own);
        let fit = bins.filter(|bin| bin.pool.room_bytes() >= bytes);
        fit.min_by_key(|bin| bin.pool.room_bytes())?.get()
    }

    /// A packet that holds this frame, from [`pool_for`](Self::pool_for): for tools and tests, that
    /// have no port to receive from.
    ///
    /// ```
    /// use linerate_core::packet::{Pool, PoolCache, PoolConfig, SlotClass};
    /// let small = Pool::new(&PoolConfig::new("rx", 256))?;
    /// let large = Pool::new(&PoolConfig {
    ///     class: SlotClass::Large,
    ///     ..PoolConfig::new("jumbo", 16)
    /// })?;
    /// let mut cache = PoolCache::new(&[small, large]);
    /// let packet = cache.copy_of(&[0; 60]).expect("a fresh pool has free slots");
    /// let jumbo = cache.copy_of(&[0; 9000]).expect("a fresh pool has free slots");
    /// assert!(packet.slot_bytes() < jumbo.slot_bytes());
    /// # Ok::<(), linerate_core::MemError>(())
    /// ```
    pub fn copy_of(&mut self, frame: &[u8]) -> Option<Packet> {
        let mut packet = self.get_for(frame.len())?;
        let fits = packet.set_data(frame);
        debug_assert!(fits, "the pool was chosen for the frame");
        Some(packet)
    }

    /// One packet of length 0, or `None` and a counted refusal.
    #[inline]
    pub fn get(&mut self, pool: &Pool) -> Option<Packet> {
        let handle = self.pop(pool)?;
        // SAFETY: the handle left the stack, so the slot is in this call's hands alone.
        Some(unsafe { fresh(handle) })
    }

    /// As [`PoolCache::get`], but leaves the packet's metadata as the slot's last owner left it:
    /// for those who set all of it.
    #[inline]
    pub fn take_one(&mut self, pool: &Pool) -> Option<Packet> {
        let handle = self.pop(pool)?;
        // SAFETY: the handle left the stack, and a free slot's metadata is that of a packet.
        Some(unsafe { Packet::from_handle(handle) })
    }

    /// Adds up to `count` packets of length 0 to the burst; fewer, and a counted refusal, where the
    /// pool runs out. Returns how many.
    #[inline]
    pub fn fill(&mut self, pool: &Pool, burst: &mut Burst, count: usize) -> usize {
        self.fill_with(pool, burst, count, RxTemplate::default())
    }

    /// As [`PoolCache::fill`], with the template's metadata.
    ///
    /// # Panics
    /// If the template's length exceeds the slots' room.
    #[inline]
    pub fn fill_with(
        &mut self,
        pool: &Pool,
        burst: &mut Burst,
        count: usize,
        template: RxTemplate,
    ) -> usize {
        assert!(
            template.len as usize <= pool.room_bytes(),
            "a frame longer than the pool's slots"
        );
        let (base, fresh) = (base(), Fresh::word(template));
        self.draw(pool, burst, count, |handle| {
            // SAFETY: the slot is free and in this cache's hands alone.
            unsafe { reset(line_at(base, handle), fresh) };
        })
    }

    /// As [`PoolCache::fill_with`], with packets that `write` makes: it gets the number of each,
    /// from 0, and the room behind the headroom, whatever that holds, and says how long the packet
    /// is, in bytes, and when it was received. Once over each slot, which is then in the cache.
    ///
    /// # Panics
    /// If a length exceeds the room.
    #[inline(always)]
    pub fn fill_each(
        &mut self,
        pool: &Pool,
        burst: &mut Burst,
        count: usize,
        template: RxTemplate,
        mut write: impl FnMut(usize, &mut [u8]) -> (u32, u64),
    ) -> usize {
        let (base, room_bytes) = (base(), pool.room_bytes());
        let mut number = 0;
        self.draw(pool, burst, count, |handle| {
            let line = line_at(base, handle);
            // SAFETY: the line is mapped, and in this cache's hands alone.
            let slot = unsafe { (*line).slot };
            // SAFETY: a slot is the headroom and the room.
            let start = unsafe { slot.add(HEADROOM_BYTES) };
            // SAFETY: likewise; slots are zeroed memory, and this one is in the cache's hands
            // alone.
            let room = unsafe { std::slice::from_raw_parts_mut(start, room_bytes) };
            let (len, timestamp) = write(number, room);
            assert!(len as usize <= room_bytes, "a packet longer than its slot");
            number += 1;
            // SAFETY: the slot is free and in this cache's hands alone.
            unsafe { reset(line, Fresh::word(RxTemplate { len, ..template })) };
            // SAFETY: as above.
            unsafe { (*line).meta.timestamp = timestamp };
        })
    }

    /// As [`PoolCache::fill`], but leaves the metadata of each packet as the slot's last owner
    /// left it: for receivers that set all of it, or lend the slots to a device.
    #[inline]
    pub fn take(&mut self, pool: &Pool, burst: &mut Burst, count: usize) -> usize {
        self.draw(pool, burst, count, |_| {})
    }

    #[inline(always)]
    fn draw(
        &mut self,
        pool: &Pool,
        burst: &mut Burst,
        count: usize,
        mut set_up: impl FnMut(u32),
    ) -> usize {
        let bin = self.bin(pool);
        let wanted = count.min(burst.room());
        if bin.len < wanted {
            bin.refill(wanted);
        }
        let count = wanted.min(bin.len);
        bin.len -= count;
        let handles = &bin.stack.0[bin.len..bin.len + count];
        handles.iter().for_each(|&handle| set_up(handle));
        let spare = &mut burst.spare()[..count];
        // SAFETY: both parts have `count` words and are borrowed.
        unsafe { (bin.copies.copy)(spare.as_mut_ptr().cast(), handles.as_ptr(), count) };
        // SAFETY: the handles left the stack, so the burst is their only owner.
        unsafe { burst.grow(count) };
        count
    }

    /// Frees all packets of a burst.
    #[inline(always)]
    pub fn free(&mut self, burst: &mut Burst) {
        self.free_front(burst, burst.len());
    }

    /// Frees the first `count` packets of a burst; the rest moves to the front.
    ///
    /// # Panics
    /// If the burst has fewer.
    #[inline(always)]
    pub fn free_front(&mut self, burst: &mut Burst, count: usize) {
        let handles = &burst.handles()[..count];
        if !self.first.as_mut().is_some_and(|bin| bin.put(handles)) {
            self.free_mixed(handles);
        }
        // SAFETY: the cache owns the first `count` now.
        unsafe { burst.forget_front(count) };
    }

    /// Frees one packet.
    #[inline]
    pub fn free_one(&mut self, packet: Packet) {
        let handle = packet.into_handle().get();
        match &mut self.first {
            Some(bin) if bin.owns(handle) => bin.put_one(handle),
            _ => self.free_mixed(&[handle]),
        }
    }

    /// Free slots of a pool that the cache holds.
    pub fn held(&self, pool: &Pool) -> usize {
        self.bins()
            .filter(|bin| bin.pool == *pool)
            .map(|bin| bin.len)
            .sum()
    }

    /// Free slots of all pools that the cache holds.
    pub fn held_total(&self) -> usize {
        self.bins().map(|bin| bin.len).sum()
    }

    /// Slots taken from all pools' shared parts less those given back to them: for the ledger.
    pub fn from_shared(&self) -> i64 {
        self.bins().map(|bin| bin.from_shared).sum()
    }

    /// Handles whose packets were consumed by the caller, of any pool.
    #[cold]
    fn free_mixed(&mut self, handles: &[u32]) {
        // Most are all of one other pool, such as that of another NUMA node.
        if self.others.iter_mut().any(|bin| bin.put(handles)) {
            return;
        }
        for &handle in handles {
            let bin = self.bins_mut().find(|bin| bin.owns(handle));
            match bin {
                Some(bin) => bin.put_one(handle),
                None => self.free_stranger(handle),
            }
        }
    }

    /// Frees the first packet of a pool that this cache has not met, and keeps a stack for more.
    #[cold]
    fn free_stranger(&mut self, handle: u32) {
        let handle = NonZeroU32::new(handle).expect("handles are never 0");
        // SAFETY: the slot's packet was consumed for this.
        match unsafe { Pool::of_slot(handle) } {
            Some(pool) => {
                let mut bin = Bin::new(pool);
                bin.put_one(handle.get());
                self.add(bin);
            }
            // An orphan counts its slots on the return list only.
            // SAFETY: likewise.
            None => drop(unsafe { Packet::from_handle(handle) }),
        }
    }

    /// A handle, or `None` and a counted refusal.
    #[inline(always)]
    fn pop(&mut self, pool: &Pool) -> Option<NonZeroU32> {
        let Some(bin) = &mut self.first else {
            return self.pop_late(pool);
        };
        if bin.len == 0 || bin.pool != *pool {
            return self.pop_late(pool);
        }
        // SAFETY: its length was just looked at.
        Some(unsafe { bin.pop_top() })
    }

    #[cold]
    fn pop_late(&mut self, pool: &Pool) -> Option<NonZeroU32> {
        self.bin(pool).pop()
    }

    #[inline(always)]
    fn bin(&mut self, pool: &Pool) -> &mut Bin {
        if self.first.as_ref().is_none_or(|bin| bin.pool != *pool) {
            return self.find(pool);
        }
        self.first.as_mut().expect("it was just compared")
    }

    #[cold]
    fn find(&mut self, pool: &Pool) -> &mut Bin {
        match self.others.iter().position(|bin| bin.pool == *pool) {
            Some(at) => &mut self.others[at],
            None => self.add(Bin::new(pool.clone())),
        }
    }
}

/// The 16 bytes of a fresh packet's metadata from `len` on.
#[repr(C)]
struct Fresh {
    len: u32,
    start: u16,
    port: u16,
    offload: Offload,
    vlan_tci: u16,
    gso_size: u16,
    csum_start: u16,
}

const _: () = assert!(size_of::<Fresh>() == 16);
const _: () = assert!(offset_of!(Line, start) == 16 + offset_of!(Fresh, start));
const _: () = assert!(offset_of!(Line, port) == 16 + offset_of!(Fresh, port));
const _: () = assert!(offset_of!(Line, meta.offload) == 16 + offset_of!(Fresh, offload));
const _: () = assert!(offset_of!(Line, meta.vlan_tci) == 16 + offset_of!(Fresh, vlan_tci));
const _: () = assert!(offset_of!(Line, meta.gso_size) == 16 + offset_of!(Fresh, gso_size));
const _: () = assert!(offset_of!(Line, meta.csum_start) == 16 + offset_of!(Fresh, csum_start));

impl Fresh {
    /// As one word, since the compiler would write field by field.
    #[inline(always)]
    fn word(template: RxTemplate) -> u128 {
        let RxTemplate { len, port, offload } = template;
        let start = HEADROOM_BYTES as u16;
        let fresh = Self {
            len,
            start,
            port,
            offload,
            vlan_tci: 0,
            gso_size: 0,
            csum_start: 0,
        };
        // SAFETY: 16 bytes without padding, and any bits make a `u128`.
        unsafe { std::mem::transmute::<Self, u128>(fresh) }
    }
}

/// Sets up the metadata of a fresh packet.
///
/// # Safety
/// The caller alone has the slot; `word` is [`Fresh::word`].
#[inline(always)]
unsafe fn reset(line: *mut Line, word: u128) {
    let at = line.wrapping_byte_add(offset_of!(Line, len)).cast::<u128>();
    // SAFETY: the line is mapped, aligned and the caller's; the fields match, as checked above.
    unsafe { at.write(word) };
}

/// A packet of length 0 in a slot.
///
/// # Safety
/// The caller alone has the slot, and gives it up.
#[inline(always)]
unsafe fn fresh(handle: NonZeroU32) -> Packet {
    // SAFETY: the caller's promise.
    unsafe { reset(line_of(handle), Fresh::word(RxTemplate::default())) };
    // SAFETY: likewise, and its line was just set up.
    unsafe { Packet::from_handle(handle) }
}

impl Bin {
    /// One packet of length 0, or `None` and a counted refusal.
    #[inline]
    fn get(&mut self) -> Option<Packet> {
        let handle = self.pop()?;
        // SAFETY: the handle left the stack, so the slot is in this call's hands alone.
        Some(unsafe { fresh(handle) })
    }

    /// A handle, or `None` and a counted refusal.
    #[inline]
    fn pop(&mut self) -> Option<NonZeroU32> {
        // SAFETY: it has one, or `refill` brought one.
        (self.len > 0 || self.refill(1)).then(|| unsafe { self.pop_top() })
    }

    /// The handle on top of the stack.
    ///
    /// # Safety
    /// There is one.
    #[inline(always)]
    unsafe fn pop_top(&mut self) -> NonZeroU32 {
        debug_assert!(self.len > 0, "an empty stack");
        self.len -= 1;
        // SAFETY: the caller's promise, and so there was room for it.
        let handle = unsafe { *self.stack.0.get_unchecked(self.len) };
        // SAFETY: handles are never 0.
        unsafe { NonZeroU32::new_unchecked(handle) }
    }

    fn new(pool: Pool) -> Self {
        let (first, span) = (pool.shared().first(), pool.shared().span());
        let limit = (pool.slots() as usize / 8).min(MOST);
        Self {
            first,
            span,
            len: 0,
            limit,
            from_shared: 0,
            room_bytes: pool.room_bytes(),
            copies: WordCopy::detect(),
            stack: Box::new(Stack([0; CAPACITY])),
            pool,
        }
    }

    #[inline(always)]
    fn owns(&self, handle: u32) -> bool {
        handle ^ self.first < self.span
    }

    /// Puts at most a burst of handles on the stack, whose packets were consumed. If any is of
    /// another pool, puts none and returns false.
    #[inline(always)]
    fn put(&mut self, handles: &[u32]) -> bool {
        let count = handles.len();
        let free = &mut self.stack.0[self.len..self.len + count];
        // Copied before it is known whose they are: what lies above the top of the stack counts
        // for nothing.
        // SAFETY: both parts have `count` words and are borrowed.
        let differ = unsafe {
            (self.copies.copy_and_compare)(free.as_mut_ptr(), handles.as_ptr(), count, self.first)
        };
        if differ >= self.span {
            return false;
        }
        self.len += count;
        if self.len > self.limit {
            self.spill(self.limit / 2);
        }
        true
    }

    /// Puts one of the pool's own handles on the stack, whose packet was consumed.
    #[inline(always)]
    fn put_one(&mut self, handle: u32) {
        // SAFETY: between two calls it has at most `MOST` handles, and room for a burst more.
        unsafe { *self.stack.0.get_unchecked_mut(self.len) = handle };
        self.len += 1;
        if self.len > self.limit {
            self.spill(self.limit / 2);
        }
    }

    /// Brings the stack up to `wanted`. Whether it did.
    #[cold]
    fn refill(&mut self, wanted: usize) -> bool {
        let shared = self.pool.shared();
        while self.len < wanted {
            let (_, free) = self.stack.0.split_at_mut(self.len);
            let Some(magazine) = free.first_chunk_mut::<MAGAZINE>() else {
                break;
            };
            if !shared.depot.take(magazine) {
                self.take_strays(wanted);
                break;
            }
            self.len += MAGAZINE;
            self.from_shared += MAGAZINE as i64;
        }
        let enough = self.len >= wanted;
        if !enough {
            self.pool.shared().refused.fetch_add(1, Ordering::Relaxed);
        }
        enough
    }

    /// Takes the return list, and spills what is too much.
    fn take_strays(&mut self, wanted: usize) {
        let mut next = self.pool.shared().returns.take_all();
        let mut taken = 0;
        while let Some(handle) = NonZeroU32::new(next) {
            // SAFETY: taken with the list, so in this cache's hands alone.
            next = unsafe { next_of(handle) };
            if self.len == CAPACITY {
                self.spill(wanted);
            }
            self.stack.0[self.len] = handle.get();
            self.len += 1;
            taken += 1;
        }
        self.from_shared += i64::from(taken);
        self.pool
            .shared()
            .strays_taken
            .fetch_add(taken, Ordering::Release);
        let keep = wanted.max(self.limit / 2);
        if self.len > keep {
            self.spill(keep);
        }
    }

    /// Gives away what is above `keep`: magazines to the depot, and the rest to the return list
    /// where it is above the limit.
    #[cold]
    fn spill(&mut self, keep: usize) {
        while self.len >= keep + MAGAZINE {
            let Some(magazine) = self.stack.0[..self.len].last_chunk::<MAGAZINE>() else {
                break;
            };
            if self.pool.shared().depot.put(magazine) {
                self.len -= MAGAZINE;
                self.from_shared -= MAGAZINE as i64;
            } else {
                // A small pool has none; in others all are in other threads' hands for a moment.
                self.push_strays(MAGAZINE);
            }
        }
        if self.len > self.limit.max(keep) {
            self.push_strays(self.len - keep);
        }
    }

    /// Pushes the top `count` handles to the return list as one chain.
    fn push_strays(&mut self, count: usize) {
        let chain = &self.stack.0[self.len - count..self.len];
        let handle = |index: usize| NonZeroU32::new(chain[index]).expect("handles are never 0");
        let Some(last) = count.checked_sub(1) else {
            return;
        };
        for index in 0..last {
            // SAFETY: the slots are free and in this cache's hands alone.
            unsafe { set_next(handle(index), chain[index + 1]) };
        }
        // SAFETY: as above.
        let link = |next: u32| unsafe { set_next(handle(last), next) };
        let freed = self
            .pool
            .shared()
            .returns
            .push(chain[0], count as u32, link);
        debug_assert!(
            !freed,
            "this cache holds a share in the pool, so it is no orphan"
        );
        self.len -= count;
        self.from_shared -= count as i64;
    }
}

impl Drop for Bin {
    fn drop(&mut self) {
        while let Some(magazine) = self.stack.0[..self.len].last_chunk::<MAGAZINE>() {
            if !self.pool.shared().depot.put(magazine) {
                break;
            }
            self.len -= MAGAZINE;
            self.from_shared -= MAGAZINE as i64;
        }
        self.push_strays(self.len);
        // What packets this cache gave away stays on the pool's own books.
        self.pool
            .shared()
            .retired
            .fetch_add(self.from_shared as u64, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Bin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} free of `{}`", self.len, self.pool.name())
    }
}
