//! The arena of one stack.

use std::fmt;

use linerate_core::MemError;
use linerate_core::mem::HugeArray;

use super::Cursor;

/// Bytes of a chunk: an odd number of cache lines, see [the module](super).
pub const CHUNK_BYTES: usize = 33 * 64;

/// No chunk.
pub(super) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Chunk([u8; CHUNK_BYTES]);

/// Apart from the bytes, so that a walk over chunks touches one cache line for eight of them.
#[derive(Clone, Copy)]
struct Link {
    /// The following chunk of the buffer; of a free one, the next free one.
    next: u32,
    /// Bytes that were written.
    len: u32,
}

/// All chunks of one stack: a fixed number of them, made at start on the largest pages to be had.
pub struct Chunks {
    chunks: HugeArray<Chunk>,
    links: HugeArray<Link>,
    /// First of those not in use: the one that was given back last, which is still in the cache.
    free: u32,
    in_use: u32,
}

impl Chunks {
    /// An arena of `count` chunks (at most 2^32 - 2).
    ///
    /// # Errors
    /// As [`HugeArray::from_fn`].
    pub fn new(count: u32) -> Result<Self, MemError> {
        let count = count.min(NIL - 1);
        let link = |index: usize| Link {
            next: match index as u32 + 1 {
                next if next < count => next,
                _ => NIL,
            },
            len: 0,
        };
        let chunk = Chunk([0; CHUNK_BYTES]);
        Ok(Self {
            chunks: HugeArray::filled("tcp send", count as usize, chunk)?,
            links: HugeArray::from_fn("tcp send links", count as usize, link)?,
            free: if count == 0 { NIL } else { 0 },
            in_use: 0,
        })
    }

    /// Chunks, in use or not.
    pub fn count(&self) -> u32 {
        self.links.len() as u32
    }

    /// Whether a buffer can have one more.
    #[inline]
    pub fn has_free(&self) -> bool {
        self.free != NIL
    }

    /// Chunks that buffers hold.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// An empty one.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        let at = self.free;
        let link = self.links.get_mut(at as usize)?;
        self.free = link.next;
        *link = Link { next: NIL, len: 0 };
        self.in_use += 1;
        Some(at)
    }

    /// One with these bytes, which fit.
    #[inline(always)]
    pub(super) fn take_with(&mut self, bytes: &[u8]) -> Option<u32> {
        let at = self.free;
        let link = self.links.get_mut(at as usize)?;
        let room = self.chunks.get_mut(at as usize)?.0.get_mut(..bytes.len())?;
        room.copy_from_slice(bytes);
        self.free = link.next;
        *link = Link {
            next: NIL,
            len: bytes.len() as u32,
        };
        self.in_use += 1;
        Some(at)
    }

    /// Gives one back. Returns the following one.
    #[inline]
    pub(super) fn release(&mut self, at: u32) -> u32 {
        let link = &mut self.links[at as usize];
        let next = std::mem::replace(&mut link.next, self.free);
        self.free = at;
        self.in_use -= 1;
        next
    }

    #[inline]
    pub(super) fn link(&mut self, tail: u32, next: u32) {
        self.links[tail as usize].next = next;
    }

    /// The bytes that were written.
    #[inline]
    pub(super) fn bytes(&self, at: u32) -> &[u8] {
        let len = self.links[at as usize].len as usize;
        &self.chunks[at as usize].0[..len]
    }

    /// The rest of a chunk.
    #[inline]
    pub(super) fn room_mut(&mut self, at: u32) -> &mut [u8] {
        let len = self.links[at as usize].len as usize;
        &mut self.chunks[at as usize].0[len..]
    }

    /// Bytes were written to the rest, which has so many.
    #[inline]
    pub(super) fn extend(&mut self, at: u32, count: usize) {
        self.links[at as usize].len += count as u32;
    }

    /// To the following chunk.
    #[inline]
    pub(super) fn step(&self, cursor: Cursor) -> Cursor {
        let link = self.links[cursor.chunk as usize];
        Cursor {
            chunk: link.next,
            at: cursor.at + link.len as i32,
        }
    }
}

impl fmt::Debug for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks")
            .field("count", &self.count())
            .field("in_use", &self.in_use)
            .finish_non_exhaustive()
    }
}
