//! The four rings that a socket shares with the kernel, and the slots that are in its hands.
//!
//! Positions only increase and wrap at 2^32; an entry's index is its position modulo the ring's
//! size, so no position, however wrong, leaves the ring. One side writes `producer`, the other
//! `consumer`. See the kernel's Documentation/networking/af_xdp.rst.
#![allow(unsafe_code)]

use super::sys::Mapping;
use linerate_core::packet::{Packet, Pool};
use rustix::net::xdp::{XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING};
use rustix::net::xdp::{
    XDP_UMEM_PGOFF_FILL_RING, XSK_UNALIGNED_BUF_OFFSET_SHIFT, XdpDesc, XdpRingOffset,
};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const NEED_WAKEUP: u32 = 1;

/// One of a socket's rings.
#[derive(Clone, Copy)]
pub(super) enum RingKind {
    Fill,
    Completion,
    Rx,
    Tx,
}

/// What an entry may be: plain numbers, for which any bits are a value.
///
/// # Safety
/// `Copy`, without padding, and as the kernel lays it out.
pub(super) unsafe trait Entry: Copy {}
// SAFETY: fill and completion rings hold addresses.
unsafe impl Entry for u64 {}
// SAFETY: `repr(C)` with the fields of `struct xdp_desc`.
unsafe impl Entry for XdpDesc {}

/// A mapped ring of `T`, seen from either side.
struct Shared<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    _mapping: Mapping,
}

// SAFETY: the pointers lead into the mapping, which moves with them.
unsafe impl<T: Entry> Send for Shared<T> {}

impl<T: Entry> Shared<T> {
    fn map(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let page_offset = match kind {
            RingKind::Fill => XDP_UMEM_PGOFF_FILL_RING,
            RingKind::Completion => XDP_UMEM_PGOFF_COMPLETION_RING,
            RingKind::Rx => XDP_PGOFF_RX_RING,
            RingKind::Tx => XDP_PGOFF_TX_RING,
        };
        let entries_bytes = size as usize * size_of::<T>();
        let mapping = Mapping::of_ring(socket, page_offset, offsets.desc as usize + entries_bytes)?;
        let word = |offset| Ok::<_, io::Error>(mapping.part(offset, size_of::<u32>())?.cast());
        Ok(Self {
            producer: word(offsets.producer)?,
            consumer: word(offsets.consumer)?,
            // Kernels before 5.4 have no flags: then the entries' first bits would be read.
            flags: word(
                offsets
                    .flags
                    .ok_or_else(|| io::Error::other("needs Linux 5.4 or later"))?,
            )?,
            entries: mapping.part(offsets.desc, entries_bytes)?.cast(),
            mask: size - 1,
            _mapping: mapping,
        })
    }

    #[inline(always)]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, aligned by the kernel, and touched by atomics only.
        unsafe { self.producer.as_ref() }
    }

    #[inline(always)]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline(always)]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    #[inline(always)]
    fn entry(&self, position: u32) -> NonNull<T> {
        // SAFETY: the masked index is below the number of entries.
        unsafe { self.entries.add((position & self.mask) as usize) }
    }
}

/// The side that writes: of the fill and transmit rings.
pub(super) struct Producer<T> {
    ring: Shared<T>,
    /// Next position to write.
    head: u32,
    /// The kernel's position when last read.
    tail: u32,
}

impl<T: Entry> Producer<T> {
    /// Maps a ring of `size` entries, a power of two.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self {
            ring: Shared::map(socket, kind, offsets, size)?,
            head: 0,
            tail: 0,
        })
    }

    /// Free entries; the kernel's position is read only where fewer than `want` were known.
    #[inline]
    pub(super) fn room(&mut self, want: usize) -> usize {
        let size = self.ring.mask + 1;
        if size.wrapping_sub(self.head.wrapping_sub(self.tail)) < want as u32 {
            // Acquire: the kernel has read the entries that will be overwritten.
            self.tail = self.ring.consumer().load(Ordering::Acquire);
        }
        size.saturating_sub(self.head.wrapping_sub(self.tail)) as usize
    }

    /// Writes an entry; there must be room, or an older one is lost.
    #[inline(always)]
    pub(super) fn push(&mut self, entry: T) {
        // SAFETY: an entry of the ring; the kernel reads it after `publish` only.
        unsafe { self.ring.entry(self.head).write(entry) };
        self.head = self.head.wrapping_add(1);
    }

    /// Shows the kernel what was pushed.
    #[inline(always)]
    pub(super) fn publish(&self) {
        // Release: the entries are written before the position.
        self.ring.producer().store(self.head, Ordering::Release);
    }

    /// Entries that the kernel has not taken yet.
    #[inline]
    pub(super) fn pending(&mut self) -> usize {
        self.tail = self.ring.consumer().load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail) as usize
    }

    /// Whether the kernel sleeps until it is kicked.
    #[inline(always)]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The side that reads: of the receive and completion rings.
pub(super) struct Consumer<T> {
    ring: Shared<T>,
    /// Next position to read.
    head: u32,
    /// The kernel's position when last read.
    tail: u32,
}

impl<T: Entry> Consumer<T> {
    /// Maps a ring of `size` entries, a power of two.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        kind: RingKind,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self {
            ring: Shared::map(socket, kind, offsets, size)?,
            head: 0,
            tail: 0,
        })
    }

    /// Entries that wait, at most `want`; the kernel's position is read only where fewer were
    /// known.
    #[inline]
    pub(super) fn ready(&mut self, want: usize) -> usize {
        if self.tail.wrapping_sub(self.head) < want as u32 {
            // Acquire: the entries are written before the position.
            self.tail = self.ring.producer().load(Ordering::Acquire);
        }
        (self.tail.wrapping_sub(self.head) as usize).min(want)
    }

    /// Reads an entry that is ready.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> T {
        // SAFETY: an entry of the ring, any bits of which are a value.
        let entry = unsafe { self.ring.entry(self.head).read() };
        self.head = self.head.wrapping_add(1);
        entry
    }

    /// Gives the entries that were popped back to the kernel.
    #[inline(always)]
    pub(super) fn release(&self) {
        // Release: they were read before the kernel overwrites them.
        self.ring.consumer().store(self.head, Ordering::Release);
    }
}

/// The pool's slots that the kernel has through one pair of rings. A bit for each slot, so that a
/// slot comes back once however often its address does, and none is lost when a socket dies with
/// slots somewhere inside the kernel.
pub(super) struct Lent {
    pool: Pool,
    bits: Vec<u64>,
    count: usize,
}

impl Lent {
    pub(super) fn new(pool: Pool) -> Self {
        let words = (pool.slots() as usize).div_ceil(64);
        Self {
            pool,
            bits: vec![0; words],
            count: 0,
        }
    }

    /// Slots that the kernel has.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Lends a packet's slot. Returns its offset in the pool, or the packet if it is another
    /// pool's.
    #[inline(always)]
    pub(super) fn give(&mut self, packet: Packet) -> Result<u64, Packet> {
        let offset = self.pool.lend(packet)?;
        let index = self.index(offset);
        self.bits[index / 64] |= 1 << (index % 64);
        self.count += 1;
        Ok(offset as u64)
    }

    /// Takes the slot back that an address lies in, and says where in the slot; `None` where the
    /// slot was not lent.
    #[inline(always)]
    pub(super) fn take_back(&mut self, address: u64) -> Option<(Packet, usize)> {
        // Unaligned chunks: the data's offset from the slot is in the top 16 bits.
        let base = address & ((1 << XSK_UNALIGNED_BUF_OFFSET_SHIFT) - 1);
        let address = (base + (address >> XSK_UNALIGNED_BUF_OFFSET_SHIFT)) as usize;
        let index = self.index(base as usize);
        let word = self.bits.get_mut(index / 64)?;
        let bit = 1 << (index % 64);
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        self.count -= 1;
        let slot = index * self.pool.slot_bytes();
        // SAFETY: the bit said that the slot was lent, and it is cleared.
        let packet = unsafe { self.pool.take_back(slot) }?;
        Some((packet, address - slot))
    }

    /// Takes all slots back. The socket must be closed or unbound, so that the kernel uses none.
    pub(super) fn reclaim(&mut self) {
        let slot_bytes = self.pool.slot_bytes();
        for word_index in 0..self.bits.len() {
            let mut word = std::mem::take(&mut self.bits[word_index]);
            while word != 0 {
                let index = word_index * 64 + word.trailing_zeros() as usize;
                word &= word - 1;
                // SAFETY: the bit said that the slot was lent, and it is cleared.
                drop(unsafe { self.pool.take_back(index * slot_bytes) });
            }
        }
        self.count = 0;
    }

    /// Index of the slot at an offset. The usual sizes are constants, so that no division is left.
    #[inline(always)]
    fn index(&self, offset: usize) -> usize {
        match self.pool.slot_bytes() {
            2368 => offset / 2368,
            2048 => offset / 2048,
            bytes => offset / bytes,
        }
    }
}
