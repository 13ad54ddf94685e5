//! What an application wrote and the peer has not acknowledged.
//!
//! A stack has one arena of [`Chunks`], each of [`CHUNK_BYTES`]. A connection has a [`SendBuffer`],
//! 32 bytes, which links some of them. Bytes are copied twice at most: by
//! [`write`](SendBuffer::write) (or formatted in place, [`reserve`](SendBuffer::reserve)), and by
//! [`copy_out`](SendBuffer::copy_out) into each frame, which sums them too (RFC 1071).
//! Frames are made anew for each retransmission, so nothing here is shared with a device.
//!
//! Offsets count from the first byte that is not acknowledged, SND.UNA. Two cursors remember where
//! the last new byte and the last retransmitted byte were read: a sender goes up in both, and so
//! finds each segment's chunk in O(1). Elsewhere a look-up walks from the first chunk.
//!
//! # Size of a chunk
//!
//! 33 cache lines: about one segment and a half. Chunks of a power of two all begin in the same few
//! sets of the caches, where many connections keep their first and often only bytes: with an odd
//! number of lines a question of 64 bytes on each of 1000 connections took half the time. Chunks of
//! 4 KiB saved a tenth in bulk over those of 1 KiB; but each connection with an unacknowledged byte
//! holds one, so that 10,000 answers under way take 20 MiB with these. `tests/speed.rs` measures
//! both.

mod chunks;
#[cfg(test)]
mod tests;

use std::io::IoSlice;

use linerate_wire::checksum;

pub use chunks::{CHUNK_BYTES, Chunks};

use chunks::NIL;

/// A place in the chain: a chunk, and the offset of its first byte. The offset is negative where
/// some of it are acknowledged.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    chunk: u32,
    at: i32,
}

/// The bytes of one connection. It holds no chunk where it has none.
///
/// It links chunks of its stack's [`Chunks`], and so must be [cleared](Self::clear) before it is
/// dropped; otherwise these stay in use. All calls take the same arena.
///
/// ```
/// use linerate_stack::tcp::send_buffer::{Chunks, SendBuffer};
/// use linerate_wire::checksum;
/// let mut chunks = Chunks::new(100)?;
/// let mut buffer = SendBuffer::new();
/// assert_eq!(buffer.write(&mut chunks, b"hello, world", 64 << 10), 12);
/// let mut payload = [0; 5];
/// let sum = buffer.copy_out(&chunks, 7, &mut payload);
/// assert_eq!((&payload, sum), (b"world", Some(checksum::sum(b"world"))));
/// buffer.discard(&mut chunks, 12); // acknowledged
/// assert_eq!(chunks.in_use(), 0);
/// # Ok::<(), linerate_core::MemError>(())
/// ```
#[derive(Debug)]
pub struct SendBuffer {
    head: u32,
    tail: u32,
    /// Bytes that are not acknowledged.
    len: u32,
    /// Bytes of the first chunk that are.
    skip: u32,
    /// Where the last new byte was read.
    fresh: Cursor,
    /// Where the last byte before that was read.
    again: Cursor,
}

const _: () = assert!(size_of::<SendBuffer>() == 32);

impl Default for SendBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl SendBuffer {
    /// Most bytes in a buffer: offsets have a sign, as sequence numbers do (RFC 9293 3.4).
    pub const MAX_BYTES: u32 = 1 << 30;

    /// An empty one.
    pub const fn new() -> Self {
        let nowhere = Cursor { chunk: NIL, at: 0 };
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
            skip: 0,
            fresh: nowhere,
            again: nowhere,
        }
    }

    /// Bytes that are not acknowledged, sent or not.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes, as long as the buffer has fewer than `limit` (at most
    /// [`MAX_BYTES`](Self::MAX_BYTES)) and the arena has chunks. Returns how many.
    pub fn write(&mut self, chunks: &mut Chunks, bytes: &[u8], limit: u32) -> usize {
        let wanted = bytes.len().min(self.room(limit));
        let mut left = &bytes[..wanted];
        // What nearly all writes are: few bytes, and nothing waits.
        if self.tail == NIL
            && left.len() <= CHUNK_BYTES
            && !left.is_empty()
            && let Some(chunk) = chunks.take_with(left)
        {
            (self.head, self.tail) = (chunk, chunk);
            self.len = left.len() as u32;
            return left.len();
        }
        while !left.is_empty() {
            if self.tail_room(chunks) == 0 && !self.grow(chunks) {
                break;
            }
            let room = chunks.room_mut(self.tail);
            let count = room.len().min(left.len());
            let (now, later) = left.split_at(count);
            room[..count].copy_from_slice(now);
            chunks.extend(self.tail, count);
            left = later;
        }
        let done = wanted - left.len();
        self.len += done as u32;
        done
    }

    /// As [`write`](Self::write), from one slice after the other.
    pub fn write_vectored(
        &mut self,
        chunks: &mut Chunks,
        slices: &[IoSlice<'_>],
        limit: u32,
    ) -> usize {
        let mut done = 0;
        for bytes in slices {
            let count = self.write(chunks, bytes, limit);
            done += count;
            if count < bytes.len() {
                break;
            }
        }
        done
    }

    /// `count` bytes of room behind the last byte, whatever they hold, for the application to write
    /// to. They belong to the buffer once [committed](Self::commit); until then nothing else may be
    /// called but reads and another `reserve`.
    ///
    /// `None` if the buffer would have more than `limit`, the arena has no chunk, or `count` is
    /// more than [`CHUNK_BYTES`]. The rest of a chunk that is too small is left unused.
    pub fn reserve<'a>(
        &mut self,
        chunks: &'a mut Chunks,
        count: usize,
        limit: u32,
    ) -> Option<&'a mut [u8]> {
        if count > CHUNK_BYTES || count > self.room(limit) {
            return None;
        }
        if self.tail_room(chunks) < count && !self.grow(chunks) {
            return None;
        }
        match self.tail {
            NIL => Some(&mut []),
            tail => chunks.room_mut(tail).get_mut(..count),
        }
    }

    /// Appends the first `count` bytes that were reserved; what is more than the last chunk's room
    /// is not appended. Returns how many. A chunk that was reserved for none is given back.
    pub fn commit(&mut self, chunks: &mut Chunks, count: usize) -> usize {
        let count = count.min(self.tail_room(chunks));
        if count > 0 {
            chunks.extend(self.tail, count);
            self.len += count as u32;
        } else if self.len == 0 {
            self.clear(chunks);
        }
        count
    }

    /// Copies the bytes from `offset` on to all of `out`, and returns their ones' complement sum as
    /// if the first were at an even offset ([`checksum::sum`]). `None`, and nothing is copied,
    /// where the buffer does not have so many.
    #[inline]
    pub fn copy_out(&mut self, chunks: &Chunks, offset: u32, out: &mut [u8]) -> Option<u16> {
        // Part by part: a chunk that was just copied is summed from the first-level cache. One loop
        // that does both took as long, since the sum is what takes the time.
        let copy = |out: &mut [u8], bytes: &[u8]| {
            out.copy_from_slice(bytes);
            checksum::sum(bytes)
        };
        self.copy_with(chunks, offset, out, copy)
    }

    /// The same without the sum, which a device adds (`CSUM_PARTIAL`). Returns whether the buffer
    /// had so many bytes.
    #[inline]
    pub fn copy_out_unsummed(&mut self, chunks: &Chunks, offset: u32, out: &mut [u8]) -> bool {
        let copy = |out: &mut [u8], bytes: &[u8]| {
            out.copy_from_slice(bytes);
            0
        };
        self.copy_with(chunks, offset, out, copy).is_some()
    }

    #[inline]
    fn copy_with(
        &mut self,
        chunks: &Chunks,
        offset: u32,
        out: &mut [u8],
        copy: impl Fn(&mut [u8], &[u8]) -> u16,
    ) -> Option<u16> {
        let end = (offset as usize).checked_add(out.len())?;
        if end > self.len as usize {
            return None;
        }
        if out.is_empty() {
            return Some(0);
        }
        let cursor = self.seek(chunks, offset);
        let from = (offset as i32 - cursor.at) as usize;
        let first = chunks.bytes(cursor.chunk);
        if let Some(bytes) = first.get(from..from + out.len()) {
            return Some(copy(out, bytes));
        }
        Some(self.copy_chunks(chunks, cursor, from, out, copy))
    }

    /// The same over several chunks; the cursor that was there goes to the last one.
    fn copy_chunks(
        &mut self,
        chunks: &Chunks,
        begin: Cursor,
        mut from: usize,
        mut out: &mut [u8],
        copy: impl Fn(&mut [u8], &[u8]) -> u16,
    ) -> u16 {
        let (mut cursor, mut sum, mut is_odd) = (begin, 0, false);
        loop {
            let bytes = &chunks.bytes(cursor.chunk)[from..];
            let count = bytes.len().min(out.len());
            let (now, later) = out.split_at_mut(count);
            let part = copy(now, &bytes[..count]);
            // RFC 1071 2 (B): the sum of a part at an odd offset has its bytes swapped.
            let part = if is_odd { part.swap_bytes() } else { part };
            sum = checksum::add(sum, part);
            is_odd ^= count % 2 == 1;
            out = later;
            if out.is_empty() {
                break;
            }
            cursor = chunks.step(cursor);
            from = 0;
        }
        match self.fresh.chunk == begin.chunk {
            true => self.fresh = cursor,
            false => self.again = cursor,
        }
        sum
    }

    /// The chunk that has the byte at `offset`, which exists. A cursor goes there.
    #[inline]
    fn seek(&mut self, chunks: &Chunks, offset: u32) -> Cursor {
        let offset = offset as i32;
        let is_fresh = self.fresh.chunk == NIL || offset >= self.fresh.at;
        let mut cursor = match is_fresh {
            true => self.fresh,
            false => self.again,
        };
        if cursor.chunk == NIL || offset < cursor.at {
            cursor = Cursor {
                chunk: self.head,
                at: -(self.skip as i32),
            };
        }
        while offset - cursor.at >= chunks.bytes(cursor.chunk).len() as i32 {
            cursor = chunks.step(cursor);
        }
        match is_fresh {
            true => self.fresh = cursor,
            false => self.again = cursor,
        }
        cursor
    }

    /// Drops up to `count` bytes at the front, which are acknowledged. Returns how many. Chunks
    /// without bytes left are given back, and the last one too where all is acknowledged.
    pub fn discard(&mut self, chunks: &mut Chunks, count: u32) -> u32 {
        if count >= self.len {
            let count = self.len;
            self.clear(chunks);
            return count;
        }
        self.len -= count;
        self.skip += count;
        self.fresh.at -= count as i32;
        self.again.at -= count as i32;
        loop {
            let held = chunks.bytes(self.head).len() as u32;
            if self.skip < held {
                return count;
            }
            self.skip -= held;
            let next = chunks.release(self.head);
            for cursor in [&mut self.fresh, &mut self.again] {
                if cursor.chunk == self.head {
                    cursor.chunk = NIL;
                }
            }
            self.head = next;
        }
    }

    /// Drops everything, and gives all chunks back.
    pub fn clear(&mut self, chunks: &mut Chunks) {
        let mut at = self.head;
        while at != NIL {
            at = chunks.release(at);
        }
        *self = Self::new();
    }

    /// Bytes until `limit`.
    fn room(&self, limit: u32) -> usize {
        limit.min(Self::MAX_BYTES).saturating_sub(self.len) as usize
    }

    /// Bytes until the last chunk is full.
    #[inline]
    fn tail_room(&self, chunks: &Chunks) -> usize {
        match self.tail {
            NIL => 0,
            tail => CHUNK_BYTES - chunks.bytes(tail).len(),
        }
    }

    /// Appends an empty chunk.
    fn grow(&mut self, chunks: &mut Chunks) -> bool {
        let Some(chunk) = chunks.take() else {
            return false;
        };
        match self.tail {
            NIL => self.head = chunk,
            tail => chunks.link(tail, chunk),
        }
        self.tail = chunk;
        true
    }
}
