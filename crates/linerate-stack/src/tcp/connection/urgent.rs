//! Urgent data of one connection: RFC 9293 3.8.5, as RFC 6093 has it. It stays in the stream, and
//! what is said of it is where it ends; or its last byte is kept apart, as BSD and Linux do unless
//! SO_OOBINLINE is set.
//!
//! Sequence numbers `end` lie behind the last urgent byte (RFC 9293 3.8.5: MUST-62). The *mark* is
//! in front of that byte.

use linerate_wire::tcp::flag;

use super::{Connection, Context, Error, Shared, Wire, event};
use crate::tcp::segment::Segment;
use crate::tcp::seq;
use crate::tcp::urgent::Urgent;

impl Connection {
    /// Writes bytes whose last one ends urgent data (Linux: MSG_OOB). New applications have no use
    /// for it (RFC 9293 3.8.5: SHLD-13).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_urgent<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        bytes: &[u8],
    ) -> Result<usize, Error> {
        let count = self.write(cx, bytes)?;
        if count == bytes.len() && count > 0 {
            let mut urgent = cx.shared.urgents.get(self.urgent);
            urgent.sent = Some(self.data_end());
            cx.shared.urgents.set(&mut self.urgent, urgent);
        }
        Ok(count)
    }

    /// Bytes to be read up to the end of urgent data, whether they have come or not; `None` where
    /// nothing urgent is ahead (RFC 9293 3.8.5: MUST-33).
    pub fn urgent(&self, shared: &Shared) -> Option<u32> {
        let end = shared.urgents.get(self.urgent).received?;
        u32::try_from(seq::diff(end, self.read_seq()))
            .ok()
            .filter(|&left| left > 0)
    }

    /// Whether the next byte to be read is the last urgent one, or the one behind it where that is
    /// kept apart (POSIX: sockatmark).
    pub fn is_at_mark(&self, shared: &Shared) -> bool {
        let urgent = shared.urgents.get(self.urgent);
        let in_line = u32::from(!self.is_out_of_line(&urgent));
        let mark = urgent.received.map(|end| end.wrapping_sub(in_line));
        mark == Some(self.read_seq())
    }

    /// Whether there is urgent data that its user has not read (Linux: EPOLLPRI).
    #[inline]
    pub fn has_urgent(&self, shared: &Shared) -> bool {
        if self.urgent == 0 {
            return false;
        }
        let urgent = shared.urgents.get(self.urgent);
        urgent.byte.is_some() || !urgent.is_taken && self.urgent(shared).is_some()
    }

    /// Whether the last urgent byte is kept apart from the others (Linux: SO_OOBINLINE off). It is
    /// not, by default: RFC 6093 6.
    pub fn set_urgent_apart(&mut self, on: bool) {
        self.is_urgent_apart = on;
    }

    /// The last urgent byte, which is kept apart; each is given once. `None` where there is none.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where it was announced, and has not come yet.
    pub fn read_urgent<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> Result<Option<u8>, Error> {
        let mut urgent = cx.shared.urgents.get(self.urgent);
        if !self.is_urgent_apart || urgent.is_taken {
            return Ok(None);
        }
        if urgent.byte.is_none() {
            let Some(end) = urgent.received else {
                return Ok(None);
            };
            let offset = end.wrapping_sub(1).wrapping_sub(self.read_seq());
            let mut byte = [0];
            if self.queue.peek(&cx.shared.pieces, offset, &mut byte) == 0 {
                return Err(Error::WouldBlock);
            }
            urgent.byte = Some(byte[0]);
        }
        let byte = urgent.byte.take();
        urgent.is_taken = urgent.received.is_some();
        cx.shared.urgents.set(&mut self.urgent, urgent);
        Ok(byte)
    }

    /// Sequence number of the next byte that is read.
    fn read_seq(&self) -> u32 {
        self.queue.next().wrapping_sub(self.queue.readable())
    }

    /// Whether the last urgent byte has left the stream.
    fn is_out_of_line(&self, urgent: &Urgent) -> bool {
        self.is_urgent_apart && urgent.received == Some(self.read_seq())
    }

    /// How many of `count` bytes lie before the mark: a read ends there, so that its user finds it
    /// (as BSD's); one that begins there goes on.
    #[cold]
    pub(super) fn before_mark(&self, shared: &Shared, count: usize) -> usize {
        let Some(end) = shared.urgents.get(self.urgent).received else {
            return count;
        };
        match seq::diff(end.wrapping_sub(1), self.read_seq()) {
            ..=0 => count,
            ahead => count.min(ahead as usize),
        }
    }

    /// The pointer of a segment that begins at `seq_no`; 0 where urgent data ends before it. What
    /// ends farther away than a pointer reaches is still ahead: the farthest tells so (MUST-31: of
    /// any length).
    #[cold]
    pub(super) fn urgent_pointer(&self, shared: &Shared, seq_no: u32) -> u16 {
        let end = shared.urgents.get(self.urgent).sent;
        end.map_or(0, |end| {
            seq::diff(end, seq_no).clamp(0, u16::MAX.into()) as u16
        })
    }

    /// RFC 9293 3.10.7.4, sixth. MUST-32: the user is told when there is urgent data, and when its
    /// end moves on.
    pub(super) fn note_urgent<W: Wire>(&mut self, cx: &mut Context<'_, W>, segment: &Segment) {
        if !segment.has(flag::URG) || !self.state.may_receive() {
            return;
        }
        let end = segment.seq.wrapping_add(segment.urgent.into());
        let mut urgent = cx.shared.urgents.get(self.urgent);
        let known = urgent.received.unwrap_or(self.read_seq());
        if seq::le(end, known) {
            return;
        }
        // Of the byte that was the last before nobody can ask any more.
        (urgent.received, urgent.byte, urgent.is_taken) = (Some(end), None, false);
        if cx.shared.urgents.set(&mut self.urgent, urgent) {
            self.events |= event::URGENT;
        }
    }

    /// Takes the last urgent byte out of the stream where it comes next, and forgets what was
    /// acknowledged or read.
    #[cold]
    pub(super) fn settle_urgent<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let mut urgent = cx.shared.urgents.get(self.urgent);
        let is_next = urgent.received.map(|end| end.wrapping_sub(1)) == Some(self.read_seq());
        if self.is_urgent_apart && is_next && self.queue.readable() > 0 {
            let mut byte = [0];
            self.queue
                .read(&mut cx.shared.pieces, cx.wire.cache(), &mut byte);
            urgent.byte = (!urgent.is_taken).then_some(byte[0]);
        }
        let (una, read) = (self.snd_una, self.read_seq());
        urgent.sent = urgent.sent.filter(|end| seq::gt(*end, una));
        let is_out = self.is_out_of_line(&urgent);
        urgent.received = urgent.received.filter(|end| is_out || seq::gt(*end, read));
        urgent.is_taken &= urgent.received.is_some();
        cx.shared.urgents.set(&mut self.urgent, urgent);
    }

    /// Gives its number back: with nothing sent or received any more there is nothing urgent.
    pub(super) fn release_urgent(&mut self, shared: &mut Shared) {
        shared.urgents.set(&mut self.urgent, Urgent::default());
    }
}
