//! How the application gets the bytes: copied, looked at, or with their slots.

use std::io::IoSliceMut;

use linerate_core::packet::{Packet, PoolCache};

use super::pieces::{NIL, Pieces, Span};
use super::queue::ReceiveQueue;

impl ReceiveQueue {
    /// Bytes that may be read.
    #[inline]
    pub fn readable(&self) -> u32 {
        self.readable
    }

    /// Moves up to `out.len()` bytes to `out`. Returns how many. A slot without bytes left goes
    /// back to `cache`.
    pub fn read(&mut self, pieces: &mut Pieces, cache: &mut PoolCache, out: &mut [u8]) -> usize {
        let mut done = 0;
        while self.head != NIL && done < out.len() {
            let bytes = pieces.at(self.head).bytes();
            let count = bytes.len().min(out.len() - done);
            out[done..done + count].copy_from_slice(&bytes[..count]);
            done += count;
            self.consume(pieces, cache, count as u32);
        }
        done
    }

    /// As [`read`](Self::read), into one buffer after the other.
    pub fn read_vectored(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        out: &mut [IoSliceMut<'_>],
    ) -> usize {
        let buffers = out.iter_mut();
        buffers.map(|buffer| self.read(pieces, cache, buffer)).sum()
    }

    /// Copies bytes from the `offset`-th on to `out`, and leaves them in the queue. Returns how
    /// many.
    pub fn peek(&self, pieces: &Pieces, offset: u32, out: &mut [u8]) -> usize {
        let (mut skip, mut done) = (offset as usize, 0);
        for bytes in self.slices(pieces) {
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            let bytes = &bytes[skipped..];
            let count = bytes.len().min(out.len() - done);
            out[done..done + count].copy_from_slice(&bytes[..count]);
            done += count;
            if done == out.len() {
                break;
            }
        }
        done
    }

    /// The readable bytes, slot by slot.
    pub fn slices<'a>(&self, pieces: &'a Pieces) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let piece = (at != NIL).then(|| pieces.at(at))?;
            at = piece.next;
            Some(piece.bytes())
        })
    }

    /// The readable bytes of the first slot, where a parser may work in place; empty where there
    /// are none. [`discard`](Self::discard) takes them off.
    #[inline]
    pub fn front<'a>(&self, pieces: &'a Pieces) -> &'a [u8] {
        match self.head {
            NIL => &[],
            head => pieces.at(head).bytes(),
        }
    }

    /// Takes the first slot out, with the place of its readable bytes in the packet's data. The
    /// caller has both from now on, and the queue is no longer charged with them.
    pub fn take(&mut self, pieces: &mut Pieces) -> Option<(Packet, Span)> {
        let head = self.head;
        let piece = (head != NIL).then(|| pieces.at(head))?;
        let span = Span {
            start: piece.start,
            len: piece.len,
        };
        self.readable -= span.len;
        Some((self.pop(pieces), span))
    }

    /// Drops up to `count` readable bytes. Returns how many.
    pub fn discard(&mut self, pieces: &mut Pieces, cache: &mut PoolCache, count: u32) -> u32 {
        let mut left = count;
        while self.head != NIL && left > 0 {
            let bytes = pieces.at(self.head).len.min(left);
            left -= bytes;
            self.consume(pieces, cache, bytes);
        }
        count - left
    }

    /// Drops everything, and frees all slots. RCV.NXT stays.
    pub fn clear(&mut self, pieces: &mut Pieces, cache: &mut PoolCache) {
        for mut at in [self.head, self.first_run] {
            while at != NIL {
                let next = pieces.at(at).next;
                let packet = self.give_up(pieces, at);
                cache.free_one(packet);
                at = next;
            }
        }
        *self = Self::new(self.next);
    }

    /// Drops bytes of the first piece, which has so many.
    #[inline]
    fn consume(&mut self, pieces: &mut Pieces, cache: &mut PoolCache, count: u32) {
        self.readable -= count;
        let piece = pieces.at_mut(self.head);
        if count < piece.len {
            piece.skip(count);
            return;
        }
        let packet = self.pop(pieces);
        // One by one: the cache's stack is where a burst of them would go, too.
        cache.free_one(packet);
    }

    /// Unlinks the first piece.
    #[inline]
    fn pop(&mut self, pieces: &mut Pieces) -> Packet {
        let head = self.head;
        self.head = pieces.at(head).next;
        if self.head == NIL {
            self.tail = NIL;
        }
        self.give_up(pieces, head)
    }
}
