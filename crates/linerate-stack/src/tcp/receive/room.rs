//! What happens when a connection or the stack keeps too much: pieces are copied together, dropped
//! from the highest sequence number, or refused.

use linerate_core::packet::{Packet, PoolCache};

use super::arrival::{Arrival, Place};
use super::pieces::{NIL, Pieces};
use super::queue::ReceiveQueue;
use super::seq;

/// What one connection may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sequence number behind the window: RCV.NXT + RCV.WND. At most 2^30 behind RCV.NXT (RFC 7323
    /// 2.3).
    pub window_end: u32,
    /// Bytes of slots.
    pub bytes: u32,
    /// Pieces.
    pub pieces: u16,
    /// Runs, which is holes, and so how many an arrival may have to be compared with.
    pub runs: u16,
}

impl Limits {
    /// Runs where nothing else is said. Their first pieces fit the first-level cache, so that even
    /// the whole search costs little more than one access to memory.
    pub const RUNS: u16 = 256;

    /// Bytes of a small slot, rounded up.
    const SLOT_BYTES: u32 = 2560;

    /// Limits under which a window of `window_bytes` of in-order data always finds room, however
    /// small its segments are. Pieces that were copied together are charged with at most twice
    /// their bytes and a slot for each run; an eighth more may come before they are copied together
    /// again. Sixteen slots are granted for runs: where there are more, runs go.
    pub fn for_window(window_end: u32, window_bytes: u32) -> Self {
        let bytes = (window_bytes / 4)
            .saturating_mul(9)
            .saturating_add(20 * Self::SLOT_BYTES);
        let pieces = (bytes / 1024).min(u16::MAX.into());
        Self {
            window_end,
            bytes,
            pieces: pieces as u16,
            runs: Self::RUNS,
        }
    }
}

/// Why a segment was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// All its bytes are behind the window.
    Window,
    /// The connection keeps as many bytes of slots as it may.
    Bytes,
    /// The connection keeps as many pieces as it may.
    Pieces,
    /// The connection has as many holes as it may.
    Runs,
    /// The stack keeps as many slots as it may.
    Stack,
}

/// Unit in which new slots are counted: no slot is smaller, so that a visit of each piece costs no
/// more of them.
pub(super) const FRESH_BYTES: u32 = 2048;

/// A sum over some pieces.
#[derive(Clone, Copy, Default)]
struct Amount {
    pieces: u32,
    bytes: u32,
}

impl Amount {
    fn add(&mut self, slot_bytes: u32) {
        self.pieces += 1;
        self.bytes = self.bytes.saturating_add(slot_bytes);
    }
}

impl ReceiveQueue {
    /// Makes room for an arrival. Returns whether pieces have moved, so that its place must be
    /// looked up again.
    #[inline]
    pub(super) fn make_room(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        new: &mut Arrival,
        place: Place,
        limits: &Limits,
    ) -> Result<bool, Reason> {
        match self.lack(pieces, new, place, limits) {
            None => Ok(false),
            Some(reason) => {
                self.make_room_late(pieces, cache, new, place, (limits, reason))?;
                Ok(true)
            }
        }
    }

    #[cold]
    fn make_room_late(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        new: &mut Arrival,
        mut place: Place,
        (limits, reason): (&Limits, Reason),
    ) -> Result<(), Reason> {
        // A run less would be more than one segment less.
        if reason == Reason::Runs {
            return Err(reason);
        }
        let span = new.span();
        if let Some(packet) = smaller(cache, span.len, new.packet.slot_bytes()) {
            pieces.stats.copied_bytes += u64::from(span.len);
            cache.free_one(new.rehouse(packet));
        }
        let is_due = u32::from(self.fresh) * 8 >= self.charged / FRESH_BYTES;
        if is_due && self.pieces > 1 {
            self.collapse(pieces, cache);
            place = self.place_again(pieces, new);
        }
        if self.lack(pieces, new, place, limits).is_none() {
            return Ok(());
        }
        self.prune(pieces, cache, new, place, limits);
        place = self.place_again(pieces, new);
        match self.lack(pieces, new, place, limits) {
            None => Ok(()),
            // What the application waits for is always kept, for otherwise a limit below one slot
            // would stop the connection.
            Some(Reason::Bytes | Reason::Pieces) if self.is_first(new) => Ok(()),
            Some(reason) => Err(reason),
        }
    }

    fn place_again(&self, pieces: &mut Pieces, new: &Arrival) -> Place {
        let run = self.find(pieces, new.seq);
        self.place(pieces, new.seq, run)
    }

    fn is_first(&self, new: &Arrival) -> bool {
        new.seq == self.next && self.head == NIL && self.pieces < u16::MAX
    }

    /// What is missing to keep an arrival.
    #[inline]
    fn lack(
        &self,
        pieces: &Pieces,
        new: &Arrival,
        place: Place,
        limits: &Limits,
    ) -> Option<Reason> {
        let makes_run = || {
            let reaches = place.behind != NIL && seq::le(pieces.at(place.behind).seq, new.end);
            place.before == NIL && new.seq != self.next && !reaches
        };
        if self.runs >= limits.runs && makes_run() {
            return Some(Reason::Runs);
        }
        let slot_bytes = new.packet.slot_bytes() as u32;
        if !pieces.has_room(slot_bytes) {
            return Some(Reason::Stack);
        }
        if self.charged.saturating_add(slot_bytes) > limits.bytes {
            return Some(Reason::Bytes);
        }
        (self.pieces >= limits.pieces).then_some(Reason::Pieces)
    }

    /// Copies neighbouring pieces together: a piece whose bytes fit the slot of the one before it
    /// goes there, and a slot of more than twice the size that the bytes need is exchanged. Of two
    /// neighbours one is then at least half full, and no byte is lost. Returns how many slots this
    /// freed.
    ///
    /// [`insert`](Self::insert) does so at the limits of a connection; the stack may do so at its
    /// own.
    pub fn collapse(&mut self, pieces: &mut Pieces, cache: &mut PoolCache) -> u32 {
        let (slots, bytes) = (pieces.charged_slots(), pieces.charged_bytes());
        if self.head != NIL {
            self.tail = Self::collapse_run(pieces, cache, self.head, self.tail);
        }
        let mut run = self.first_run;
        while run != NIL {
            let last = Self::collapse_run(pieces, cache, run, pieces.at(run).last);
            pieces.at_mut(run).last = last;
            run = pieces.at(last).next;
        }
        let freed = slots - pieces.charged_slots();
        self.pieces -= freed as u16;
        self.charged -= (bytes - pieces.charged_bytes()) as u32;
        self.fresh = 0;
        pieces.stats.collapses += 1;
        pieces.stats.collapsed_slots += u64::from(freed);
        freed
    }

    /// Copies the pieces from `first` to `last`, which have no hole, together. Returns the last.
    fn collapse_run(pieces: &mut Pieces, cache: &mut PoolCache, first: u32, last: u32) -> u32 {
        let (mut to, mut last) = (first, last);
        loop {
            pieces.stats.visits += 1;
            if to == last {
                Self::exchange(pieces, cache, to);
                return last;
            }
            let next = pieces.at(to).next;
            let piece = pieces.at(next);
            let (after, len) = (piece.next, piece.len);
            if pieces.at(to).len + len > pieces.at(to).slot_bytes() {
                Self::exchange(pieces, cache, to);
                to = next;
                continue;
            }
            let start = piece.start as usize;
            let packet = pieces.release(next);
            let bytes = &packet.data()[start..start + len as usize];
            let piece = pieces.at_mut(to);
            let copied = piece.append(bytes);
            piece.next = after;
            pieces.stats.copied_bytes += copied as u64;
            cache.free_one(packet);
            if next == last {
                last = to;
            }
        }
    }

    /// Puts a piece into a slot of at most half the size, if its bytes fit one.
    fn exchange(pieces: &mut Pieces, cache: &mut PoolCache, at: u32) {
        let (len, slot_bytes) = (pieces.at(at).len, pieces.at(at).slot_bytes());
        if let Some(packet) = smaller(cache, len, slot_bytes as usize) {
            let old = pieces.rehouse(at, packet);
            cache.free_one(old);
        }
    }

    /// Drops runs from their end, as much as the arrival lacks and at least an eighth of the pieces
    /// behind it; never one that lies before its end, since what is nearer to RCV.NXT is read
    /// sooner.
    fn prune(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        new: &Arrival,
        place: Place,
        limits: &Limits,
    ) {
        let mut walk = Walk::before(place.behind);
        while walk.next != NIL && seq::lt(pieces.at(walk.next).seq, new.end) {
            walk.step(pieces);
        }
        let begin = walk;
        let mut all = Amount::default();
        while walk.next != NIL {
            all.add(pieces.at(walk.next).slot_bytes());
            walk.step(pieces);
        }
        let slot_bytes = new.packet.slot_bytes() as u32;
        let lacks =
            |kept: u32, more: u32, limit: u32| kept.saturating_add(more).saturating_sub(limit);
        let stack_bytes = (pieces.charged_bytes() + u64::from(slot_bytes))
            .saturating_sub(pieces.max_bytes())
            .min(u32::MAX.into()) as u32;
        let bytes = lacks(self.charged, slot_bytes, limits.bytes).max(stack_bytes);
        let count = lacks(self.pieces.into(), 1, limits.pieces.into());
        let keep = Amount {
            pieces: all.pieces.saturating_sub(count.max(all.pieces.div_ceil(8))),
            bytes: all.bytes.saturating_sub(bytes),
        };
        walk = begin;
        let mut kept = Amount::default();
        while walk.next != NIL {
            kept.add(pieces.at(walk.next).slot_bytes());
            if kept.pieces > keep.pieces || kept.bytes > keep.bytes {
                break;
            }
            walk.step(pieces);
        }
        self.cut(pieces, cache, place.run, walk);
    }

    /// Drops all runs (RFC 2018 8): for a stack that has too many slots in all. Returns how many
    /// slots this freed.
    pub fn drop_out_of_order(&mut self, pieces: &mut Pieces, cache: &mut PoolCache) -> u32 {
        let slots = pieces.charged_slots();
        self.cut(pieces, cache, NIL, Walk::before(self.first_run));
        slots - pieces.charged_slots()
    }

    /// Drops the pieces from `walk.next` on; the walk began behind the run `before`.
    fn cut(&mut self, pieces: &mut Pieces, cache: &mut PoolCache, before: u32, mut walk: Walk) {
        if walk.next == NIL {
            return;
        }
        // What stays before the cut: pieces that were walked over, or the run before them.
        let (run, last) = match walk.at {
            NIL if before == NIL => (NIL, NIL),
            NIL => (before, pieces.at(before).last),
            at => (walk.run, at),
        };
        let mut at = walk.next;
        while at != NIL {
            let (is_run, len) = (walk.is_run, pieces.at(at).len);
            walk.step(pieces);
            if is_run {
                self.forget(at);
                self.runs -= 1;
            }
            self.out_of_order -= len;
            pieces.stats.pruned_pieces += 1;
            pieces.stats.pruned_bytes += u64::from(len);
            let packet = self.give_up(pieces, at);
            cache.free_one(packet);
            at = walk.next;
        }
        match run {
            NIL => self.first_run = NIL,
            run => {
                pieces.at_mut(last).next = NIL;
                pieces.at_mut(run).last = last;
            }
        }
        self.last_run = run;
    }
}

/// An empty packet of at most half the size of this slot, which takes so many bytes.
fn smaller(cache: &mut PoolCache, len: u32, slot_bytes: usize) -> Option<Packet> {
    let fit = cache.pool_for(len as usize)?;
    let is_smaller = fit.slot_bytes() * 2 <= slot_bytes;
    is_smaller.then(|| cache.get_for(len as usize))?
}

/// A walk over the pieces of runs.
#[derive(Clone, Copy)]
struct Walk {
    /// The piece that was passed last, and the first piece of its run.
    at: u32,
    run: u32,
    /// The piece to come, and whether it begins a run.
    next: u32,
    is_run: bool,
}

impl Walk {
    /// Before the first piece of a run.
    fn before(run: u32) -> Self {
        Self {
            at: NIL,
            run: NIL,
            next: run,
            is_run: true,
        }
    }

    fn step(&mut self, pieces: &mut Pieces) {
        pieces.stats.visits += 1;
        self.at = self.next;
        if self.is_run {
            self.run = self.at;
        }
        self.next = pieces.at(self.at).next;
        self.is_run = pieces.at(self.run).last == self.at;
    }
}
