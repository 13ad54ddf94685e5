//! Up to 64 packets on the worker's stack: the unit of everything on the hot path.
#![allow(unsafe_code)]

mod parts;

pub use parts::Parts;

use super::meta::{Handle, Line, line_at};
use super::packet::Packet;
use crate::ring::Batch;
use std::borrow::BorrowMut;
use std::fmt;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;

/// An array of up to [`Burst::CAPACITY`] owned packets, in order.
///
/// ```
/// use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
/// let pool = Pool::new(&PoolConfig::new("rx", 256))?;
/// let mut cache = PoolCache::new(&[pool.clone()]);
/// let mut burst = Burst::new();
/// assert_eq!(cache.fill(&pool, &mut burst, 32), 32);
/// for packet in burst.iter_mut() {
///     packet.set_data(&[0; 60]);
/// }
/// cache.free(&mut burst);
/// # Ok::<(), linerate_core::MemError>(())
/// ```
#[repr(C, align(64))]
pub struct Burst {
    /// First, so that block copies do not straddle cache lines.
    handles: [MaybeUninit<u32>; Self::CAPACITY],
    /// Ticks of the worker's clock when the burst was polled.
    pub now: u64,
    /// The port that the packets came from, as the application numbers its ports.
    pub port: u16,
    len: u32,
    limit: u32,
}

impl Burst {
    /// Most packets that a burst holds.
    pub const CAPACITY: usize = 64;

    /// An empty burst.
    #[inline]
    pub const fn new() -> Self {
        Self {
            now: 0,
            port: 0,
            len: 0,
            limit: Self::CAPACITY as u32,
            handles: [MaybeUninit::uninit(); Self::CAPACITY],
        }
    }

    /// An empty burst that takes at most `room` packets (at most [`Burst::CAPACITY`]).
    #[inline]
    pub fn with_room(room: usize) -> Self {
        let mut burst = Self::new();
        burst.limit = room.min(Self::CAPACITY) as u32;
        burst
    }

    /// Packets in it.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it has none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One bit for each packet, by its position: the lowest for the first.
    #[inline(always)]
    pub fn mask(&self) -> u64 {
        match self.len {
            0 => 0,
            len => u64::MAX >> (Self::CAPACITY as u32 - len),
        }
    }

    /// Packets that still fit.
    #[inline(always)]
    pub fn room(&self) -> usize {
        (self.limit - self.len) as usize
    }

    /// Appends a packet; gives it back where the burst is full.
    ///
    /// # Errors
    /// The packet itself, if the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.room() == 0 {
            return Err(packet);
        }
        self.handles[self.len()] = MaybeUninit::new(packet.into_handle().get());
        self.len += 1;
        Ok(())
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        let last = self.len().checked_sub(1)?;
        let handle = self.handle(last);
        self.len -= 1;
        // SAFETY: the burst owned it, and does no more.
        Some(unsafe { Packet::from_handle(handle) })
    }

    /// The packets, to read.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Packet> {
        self.as_packets().iter()
    }

    /// The packets, to change in place.
    #[inline]
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Packet> {
        self.as_packets_mut().iter_mut()
    }

    /// The packets as a slice.
    #[inline]
    pub fn as_packets(&self) -> &[Packet] {
        // SAFETY: the first `len` handles are initialised and owned by the burst, and a `Packet`
        // is exactly such a handle (repr(transparent), never 0).
        unsafe { std::slice::from_raw_parts(self.handles.as_ptr().cast(), self.len()) }
    }

    /// The packets as a slice, to change or to put into another order.
    #[inline]
    pub fn as_packets_mut(&mut self) -> &mut [Packet] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.handles.as_mut_ptr().cast(), self.len()) }
    }

    /// Moves up to `count` packets from the front to another burst, as many as it has room for.
    /// The rest moves up. Returns how many went.
    #[inline]
    pub fn move_front(&mut self, count: usize, to: &mut Self) -> usize {
        let count = count.min(self.len()).min(to.room());
        // SAFETY: the handles change their owner, because this burst forgets them.
        unsafe { to.extend_from_handles(&self.handles()[..count]) };
        // SAFETY: the other burst owns them now.
        unsafe { self.forget_front(count) };
        count
    }

    /// To take packets from the front, looking at each before.
    #[inline(always)]
    pub fn front(&mut self) -> Front<&mut Self> {
        Front::new(self)
    }

    /// Takes the packets out in order, one by one; those not taken are dropped.
    #[inline]
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Packet> {
        let taken = std::mem::replace(self, Self::with_room(self.limit as usize));
        (self.now, self.port) = (taken.now, taken.port);
        Front::new(taken)
    }

    /// Keeps the packets for which `keep` is true, in order; the others go to `rejected`, which
    /// must have room for them: those that do not fit stay.
    #[inline]
    pub fn retain(&mut self, rejected: &mut Self, mut keep: impl FnMut(&mut Packet) -> bool) {
        let len = self.len();
        // Should `keep` panic, no packet may be in two places: those not yet looked at are lost,
        // and the ledger says so.
        self.len = 0;
        for index in 0..len {
            // SAFETY: below the old length, so initialised; each is looked at once.
            let handle = unsafe { self.handles[index].assume_init() };
            let handle = NonZeroU32::new(handle).expect("handles are never 0");
            // SAFETY: the burst owned it, and has forgotten it.
            let mut packet = unsafe { Packet::from_handle(handle) };
            let to = if keep(&mut packet) || rejected.room() == 0 {
                &mut *self
            } else {
                &mut *rejected
            };
            // `self` has room: it holds no more than were looked at.
            to.handles[to.len as usize] = MaybeUninit::new(packet.into_handle().get());
            to.len += 1;
        }
    }

    /// Sum of the packets' lengths in bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes_of_front(self.len())
    }

    /// Sum of the lengths of the first `count` packets, in bytes.
    #[inline]
    pub fn bytes_of_front(&self, count: usize) -> u64 {
        let base = crate::mem::space::base();
        let handles = self.handles()[..count].iter();
        // SAFETY: the burst owns these slots, so their lines are mapped and nobody writes them.
        handles
            .map(|&handle| u64::from(unsafe { (*line_at(base, handle)).len }))
            .sum()
    }

    /// Prefetches the metadata of all packets.
    #[inline]
    pub fn prefetch(&self) {
        for packet in self.iter() {
            crate::arch::prefetch_read(std::ptr::from_ref::<Line>(packet.line()));
        }
    }

    #[inline(always)]
    pub(crate) fn handles(&self) -> &[u32] {
        // SAFETY: the first `len` handles are initialised.
        unsafe { std::slice::from_raw_parts(self.handles.as_ptr().cast(), self.len()) }
    }

    #[inline(always)]
    fn handle(&self, index: usize) -> Handle {
        NonZeroU32::new(self.handles()[index]).expect("handles are never 0")
    }

    /// Where the next handles go, and how many fit: for block copies from rings.
    #[inline(always)]
    pub(crate) fn spare(&mut self) -> &mut [MaybeUninit<u32>] {
        let (len, limit) = (self.len as usize, self.limit as usize);
        &mut self.handles[len..limit]
    }

    /// Owns `count` more handles, written into [`Burst::spare`].
    ///
    /// # Safety
    /// They are initialised, not 0, and nobody else's.
    #[inline(always)]
    pub(crate) unsafe fn grow(&mut self, count: usize) {
        debug_assert!(count <= self.room());
        self.len += count as u32;
    }

    /// Takes ownership of handles.
    ///
    /// # Safety
    /// Nobody else owns them, none is 0, and they fit.
    #[inline(always)]
    pub(crate) unsafe fn extend_from_handles(&mut self, handles: &[u32]) {
        debug_assert!(handles.len() <= self.room());
        let spare = &mut self.spare()[..handles.len()];
        spare.write_copy_of_slice(handles);
        self.len += handles.len() as u32;
    }

    /// Gives up the ownership of the first `count` packets.
    ///
    /// # Safety
    /// Somebody else owns them now.
    #[inline(always)]
    pub(crate) unsafe fn forget_front(&mut self, count: usize) {
        let len = self.len();
        debug_assert!(count <= len);
        if count < len {
            self.handles.copy_within(count..len, 0);
        }
        self.len = (len - count) as u32;
    }
}

/// A burst that is being taken apart.
/// The packets of a burst from the first on, as many as are taken; the others stay. The burst has
/// none until this is dropped: who forgets it has lost the others, and the ledger says so.
pub struct Front<B: BorrowMut<Burst>> {
    burst: B,
    /// Those before it are given out.
    next: usize,
    /// Those before it are this one's.
    len: usize,
}

impl<B: BorrowMut<Burst>> Front<B> {
    #[inline(always)]
    fn new(mut burst: B) -> Self {
        let len = std::mem::take(&mut burst.borrow_mut().len) as usize;
        Self {
            burst,
            next: 0,
            len,
        }
    }

    /// The one that would be taken next.
    #[inline(always)]
    pub fn peek(&self) -> Option<&Packet> {
        let handle = self.burst.borrow().handles[..self.len].get(self.next)?;
        // SAFETY: it was the burst's, so it is initialised, and is given out by `next` alone; a
        // `Packet` is exactly such a handle (repr(transparent), never 0).
        Some(unsafe { &*std::ptr::from_ref(handle).cast::<Packet>() })
    }
}

impl<B: BorrowMut<Burst>> Iterator for Front<B> {
    type Item = Packet;

    #[inline(always)]
    fn next(&mut self) -> Option<Packet> {
        let handle = self.burst.borrow().handles[..self.len].get(self.next)?;
        // SAFETY: it was the burst's, so it is initialised.
        let handle = unsafe { handle.assume_init() };
        let handle = NonZeroU32::new(handle).expect("handles are never 0");
        self.next += 1;
        // SAFETY: each handle is given out once, and the burst has none meanwhile.
        Some(unsafe { Packet::from_handle(handle) })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.len - self.next;
        (left, Some(left))
    }
}

impl<B: BorrowMut<Burst>> ExactSizeIterator for Front<B> {}

impl<B: BorrowMut<Burst>> Drop for Front<B> {
    #[inline(always)]
    fn drop(&mut self) {
        let burst = self.burst.borrow_mut();
        burst.len = self.len as u32;
        // SAFETY: those were given out as packets.
        unsafe { burst.forget_front(self.next) };
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Burst {
    #[inline]
    fn drop(&mut self) {
        if !self.is_empty() {
            while let Some(packet) = self.pop() {
                drop(packet);
            }
        }
    }
}

impl fmt::Debug for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

const _: () =
    assert!(size_of::<Packet>() == size_of::<u32>() && align_of::<Packet>() == align_of::<u32>());

// SAFETY: the packets lie one after the other from the start of `handles`, the free room up to the
// limit behind them, and a `Packet` is laid out as its handle.
unsafe impl Batch<Packet> for Burst {
    #[inline(always)]
    fn filled(&self) -> &[Packet] {
        self.as_packets()
    }

    #[inline(always)]
    unsafe fn take_front(&mut self, count: usize) {
        // SAFETY: the caller moved the first `count` elsewhere.
        unsafe { self.forget_front(count) };
    }

    #[inline(always)]
    fn vacant(&mut self, want: usize) -> &mut [MaybeUninit<Packet>] {
        let spare = self.spare();
        let count = want.min(spare.len());
        let start = spare.as_mut_ptr().cast();
        // SAFETY: the first `count` of the spare handles, seen as the packets they will be.
        unsafe { std::slice::from_raw_parts_mut(start, count) }
    }

    #[inline(always)]
    unsafe fn append(&mut self, count: usize) {
        // SAFETY: the caller initialised that many, so they are packets that the burst now owns.
        unsafe { self.grow(count) };
    }
}
