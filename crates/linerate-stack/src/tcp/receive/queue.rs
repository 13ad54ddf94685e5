//! Where an arriving segment goes.

use linerate_core::packet::{Burst, Packet, PoolCache};

use super::arrival::{Arrival, Place};
use super::pieces::{NIL, Pieces, Span};
use super::room::{FRESH_BYTES, Limits, Reason};
use super::{TINY, seq};

/// How many of the last touched runs are remembered: as many as an acknowledgement reports at most
/// (RFC 2018 3).
pub(super) const RECENT: usize = 4;

/// What one connection has received and not given to its application.
///
/// It links pieces of its stack's [`Pieces`], and so must be [cleared](Self::clear) before it is
/// dropped; otherwise these stay in use. All calls take the same arena.
#[derive(Debug)]
pub struct ReceiveQueue {
    /// RCV.NXT.
    pub(super) next: u32,
    /// Bytes that may be read.
    pub(super) readable: u32,
    /// First and last piece of those.
    pub(super) head: u32,
    pub(super) tail: u32,
    /// First pieces of the first and of the last run. The runs are one chain, by sequence number:
    /// disjoint, behind `next`, and with holes between them.
    pub(super) first_run: u32,
    pub(super) last_run: u32,
    /// Bytes of all runs.
    pub(super) out_of_order: u32,
    /// Bytes of all slots.
    pub(super) charged: u32,
    /// Pieces in both chains.
    pub(super) pieces: u16,
    pub(super) runs: u16,
    /// Slots that came since pieces were copied together, in [`FRESH_BYTES`].
    pub(super) fresh: u16,
    /// First pieces of the runs that were touched last, the last one first.
    pub(super) recent: [u32; RECENT],
    /// A duplicate to be reported; nothing where both ends are the same.
    pub(super) duplicate: (u32, u32),
}

const _: () = assert!(size_of::<ReceiveQueue>() <= 64);

/// What became of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// By how much RCV.NXT advanced, in bytes: this segment, and runs that it reached.
    pub advanced_bytes: u32,
    /// It was kept behind a hole: answer at once with a duplicate acknowledgement (RFC 5681 4.2).
    pub is_out_of_order: bool,
    /// Its first part that was there already, by sequence numbers, the second behind the last byte
    /// (RFC 2883 4).
    pub duplicate: Option<(u32, u32)>,
    /// It advanced RCV.NXT while runs were waiting: acknowledge at once (RFC 5681 4.2).
    pub filled_hole: bool,
    /// It was not kept.
    pub refused: Option<Reason>,
}

impl ReceiveQueue {
    /// An empty queue. `next` is the sequence number of the first byte: the one behind the peer's
    /// SYN (RFC 9293 3.4).
    pub fn new(next: u32) -> Self {
        Self {
            next,
            readable: 0,
            head: NIL,
            tail: NIL,
            first_run: NIL,
            last_run: NIL,
            out_of_order: 0,
            charged: 0,
            pieces: 0,
            runs: 0,
            fresh: 0,
            recent: [NIL; RECENT],
            duplicate: (0, 0),
        }
    }

    /// RCV.NXT: the sequence number of the first byte that is missing. A FIN's own number is not
    /// counted here.
    #[inline]
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Bytes of the runs behind the first hole.
    #[inline]
    pub fn out_of_order_bytes(&self) -> u32 {
        self.out_of_order
    }

    /// Runs behind the first hole: as many as there are holes.
    #[inline]
    pub fn runs(&self) -> u16 {
        self.runs
    }

    /// Bytes of all slots that it keeps.
    #[inline]
    pub fn charged_bytes(&self) -> u32 {
        self.charged
    }

    /// Slots that it keeps.
    #[inline]
    pub fn pieces(&self) -> u16 {
        self.pieces
    }

    /// Whether there is nothing to it but RCV.NXT: no bytes, and no duplicate to report.
    #[inline]
    pub fn is_blank(&self) -> bool {
        self.pieces == 0 && self.duplicate.0 == self.duplicate.1
    }

    /// Whether it keeps nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// Adds the payload of a segment, which is the `span` of `packet`'s data and begins with
    /// sequence number `seq`. The part of `span` that the packet does not have is ignored, and so
    /// are bytes at and behind [`Limits::window_end`].
    ///
    /// The packet is kept or freed to `cache`. Its data may be changed: headers are not needed any
    /// more. See [the module](super) for overlaps, limits and cost.
    pub fn insert(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        packet: Packet,
        span: Span,
        seq: u32,
        limits: &Limits,
    ) -> Inserted {
        let mut inserted = Inserted::default();
        let len = span
            .len
            .min((packet.len() as u32).saturating_sub(span.start));
        let stands_alone = len > TINY || len > 0 && self.tail == NIL;
        if seq == self.next && self.first_run == NIL && stands_alone {
            let slot_bytes = packet.slot_bytes() as u32;
            let fits = seq::le(seq.wrapping_add(len), limits.window_end)
                && pieces.has_room(slot_bytes)
                && !pieces.is_too_large(slot_bytes)
                && self.charged.saturating_add(slot_bytes) <= limits.bytes
                && self.pieces < limits.pieces;
            if fits {
                self.append(pieces, packet, Span { len, ..span }, slot_bytes);
                inserted.advanced_bytes = len;
                return inserted;
            }
        }
        let span = Span { len, ..span };
        if pieces.is_too_large(packet.slot_bytes() as u32)
            && let Some(parts) = divided(cache, &packet, span)
        {
            let inserted = self.insert_parts(pieces, cache, parts, seq, limits);
            cache.free_one(packet);
            return inserted;
        }
        self.insert_one(pieces, cache, packet, span, seq, limits)
    }

    /// What one slot has.
    fn insert_one(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        packet: Packet,
        Span { start, len }: Span,
        seq: u32,
        limits: &Limits,
    ) -> Inserted {
        let mut inserted = Inserted::default();
        let mut new = Arrival {
            packet,
            start,
            seq,
            end: seq.wrapping_add(len),
        };
        if len > 0 {
            match self.admit(pieces, cache, &mut new, limits, &mut inserted) {
                Ok(Some(place)) => {
                    self.link(pieces, cache, new, place, &mut inserted);
                    return inserted;
                }
                Ok(None) => pieces.stats.duplicates += 1,
                Err(reason) => {
                    pieces.stats.refused += 1;
                    inserted.refused = Some(reason);
                }
            }
        }
        cache.free_one(new.packet);
        inserted
    }

    /// The bytes of one segment, in several slots: each as a segment of its own.
    #[cold]
    fn insert_parts(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        mut parts: Burst,
        mut seq: u32,
        limits: &Limits,
    ) -> Inserted {
        pieces.stats.divided += 1;
        let (mut all, mut refused) = (Inserted::default(), None);
        for part in parts.drain() {
            let len = part.len() as u32;
            pieces.stats.copied_bytes += u64::from(len);
            let one = self.insert_one(pieces, cache, part, Span { start: 0, len }, seq, limits);
            all.advanced_bytes += one.advanced_bytes;
            all.is_out_of_order |= one.is_out_of_order;
            all.filled_hole |= one.filled_hole;
            all.duplicate = match (all.duplicate, one.duplicate) {
                // As long as it goes on without a gap, one block says it.
                (Some((from, to)), Some((next, end))) if to == next => Some((from, end)),
                (before, now) => before.or(now),
            };
            refused = refused.or(one.refused);
            seq = seq.wrapping_add(len);
        }
        // A segment of which some was kept was not refused: the sender hears of the rest by what is
        // not acknowledged.
        let is_kept = all.advanced_bytes > 0 || all.is_out_of_order;
        all.refused = refused.filter(|_| !is_kept);
        all
    }

    /// What comes next, and there is no hole: a piece of its own, behind all others.
    #[inline(always)]
    fn append(&mut self, pieces: &mut Pieces, packet: Packet, span: Span, slot_bytes: u32) {
        let fresh = (slot_bytes / FRESH_BYTES).min(u16::MAX.into());
        self.fresh = self.fresh.saturating_add(fresh as u16);
        self.charged += slot_bytes;
        self.pieces += 1;
        let at = pieces.keep(packet, span, self.next);
        match self.tail {
            NIL => self.head = at,
            tail => pieces.at_mut(tail).next = at,
        }
        self.tail = at;
        self.next = self.next.wrapping_add(span.len);
        self.readable += span.len;
    }

    /// Cuts what is known of an arrival or outside the window, and makes room for the rest. Returns
    /// its place; `None` if nothing is left of it.
    fn admit(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        new: &mut Arrival,
        limits: &Limits,
        inserted: &mut Inserted,
    ) -> Result<Option<Place>, Reason> {
        if seq::lt(new.seq, self.next) {
            let known = (new.seq, seq::min(new.end, self.next));
            self.note_duplicate(known, inserted);
            if seq::le(new.end, self.next) {
                return Ok(None);
            }
            new.skip_to(self.next);
        }
        if seq::lt(limits.window_end, new.end) {
            if seq::le(limits.window_end, new.seq) {
                return Err(Reason::Window);
            }
            new.end = limits.window_end;
        }
        let run = self.find(pieces, new.seq);
        if run != NIL {
            let end = pieces.run_end(run);
            if seq::lt(new.seq, end) {
                let known = (new.seq, seq::min(new.end, end));
                self.note_duplicate(known, inserted);
                if seq::le(new.end, end) {
                    // RFC 2883 4 (4): the block behind the D-SACK is the run that has it.
                    self.touch(run);
                    return Ok(None);
                }
                new.skip_to(end);
            }
        }
        let mut place = self.place(pieces, new.seq, run);
        if place.behind != NIL {
            let from = pieces.at(place.behind).seq;
            if seq::lt(from, new.end) {
                let to = seq::min(new.end, pieces.run_end(place.behind));
                self.note_duplicate((from, to), inserted);
            }
        }
        if !Self::joins(pieces, new, place) && self.make_room(pieces, cache, new, place, limits)? {
            let run = self.find(pieces, new.seq);
            place = self.place(pieces, new.seq, run);
        }
        Ok(Some(place))
    }

    /// Links an admitted arrival.
    #[inline]
    fn link(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        mut new: Arrival,
        place: Place,
        inserted: &mut Inserted,
    ) {
        let (had_runs, is_next) = (self.first_run != NIL, new.seq == self.next);
        let behind = self.absorb(pieces, cache, &mut new, place.behind);
        let (end, len) = (new.end, new.len());
        let at = self.store(pieces, cache, new, place);
        if is_next {
            self.link_next(pieces, at, place);
            (self.next, self.readable) = (end, self.readable + len);
            self.first_run = behind;
            if behind == NIL {
                self.last_run = NIL;
            }
            inserted.advanced_bytes = len + self.splice(pieces);
            inserted.filled_hole = had_runs;
        } else {
            self.out_of_order += len;
            self.link_behind(pieces, at, place, behind, end);
            inserted.is_out_of_order = true;
        }
    }

    /// Copies the arrival behind the piece before it, or makes it a piece. Returns which.
    #[inline]
    fn store(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        new: Arrival,
        place: Place,
    ) -> u32 {
        if Self::joins(pieces, &new, place) {
            let copied = pieces.at_mut(place.before).append(new.bytes());
            pieces.stats.copied_bytes += copied as u64;
            pieces.stats.coalesced += 1;
            cache.free_one(new.packet);
            return place.before;
        }
        let slot_bytes = new.packet.slot_bytes() as u32;
        let fresh = (slot_bytes / FRESH_BYTES).min(u16::MAX.into());
        self.fresh = self.fresh.saturating_add(fresh as u16);
        self.charged += slot_bytes;
        self.pieces += 1;
        let (span, seq) = (new.span(), new.seq);
        pieces.keep(new.packet, span, seq)
    }

    /// Appends a piece to those that may be read, unless it is the last of them already.
    #[inline]
    fn link_next(&mut self, pieces: &mut Pieces, at: u32, place: Place) {
        match place.before {
            NIL => self.head = at,
            tail if tail == at => return,
            tail => pieces.at_mut(tail).next = at,
        }
        self.tail = at;
    }

    /// Makes a piece the end of the run before it, or a run, and one with the run `behind` if it
    /// reaches that: `end` is the number behind its last byte.
    fn link_behind(&mut self, pieces: &mut Pieces, at: u32, place: Place, behind: u32, end: u32) {
        pieces.at_mut(at).next = behind;
        let run = if place.before == NIL {
            match place.run {
                NIL => self.first_run = at,
                before => {
                    let last = pieces.at(before).last;
                    pieces.at_mut(last).next = at;
                }
            }
            self.runs += 1;
            at
        } else {
            if at != place.before {
                pieces.at_mut(place.before).next = at;
                pieces.at_mut(place.run).last = at;
            }
            place.run
        };
        if behind != NIL && pieces.at(behind).seq == end {
            pieces.at_mut(run).last = pieces.at(behind).last;
            self.runs -= 1;
            self.forget(behind);
        }
        if pieces.run_next(run) == NIL {
            self.last_run = run;
        }
        self.touch(run);
    }

    /// Whether the arrival is copied behind the piece before it.
    #[inline]
    fn joins(pieces: &Pieces, new: &Arrival, place: Place) -> bool {
        place.before != NIL && new.len() <= TINY && pieces.at(place.before).tailroom() >= new.len()
    }

    /// The last run that begins at or before `seq`.
    #[inline]
    pub(super) fn find(&self, pieces: &mut Pieces, seq: u32) -> u32 {
        let begins_by = |pieces: &Pieces, run: u32| seq::le(pieces.at(run).seq, seq);
        if self.first_run == NIL || !begins_by(pieces, self.first_run) {
            return NIL;
        }
        if begins_by(pieces, self.last_run) {
            return self.last_run;
        }
        let mut run = self.first_run;
        for &recent in self.recent.iter().take_while(|&&recent| recent != NIL) {
            let is_nearer = seq::lt(pieces.at(run).seq, pieces.at(recent).seq);
            if is_nearer && begins_by(pieces, recent) {
                run = recent;
            }
        }
        // The last run begins later, so that the walk ends before it.
        loop {
            pieces.stats.visits += 1;
            let next = pieces.run_next(run);
            if next == NIL || !begins_by(pieces, next) {
                return run;
            }
            run = next;
        }
    }

    /// The place of an arrival that begins with `seq`, where `run` begins before it and does not
    /// reach behind `seq`.
    pub(super) fn place(&self, pieces: &Pieces, seq: u32, run: u32) -> Place {
        let (last, behind) = match run {
            NIL => (NIL, self.first_run),
            run => (pieces.at(run).last, pieces.run_next(run)),
        };
        let before = match last {
            NIL if seq == self.next => self.tail,
            NIL => NIL,
            last if pieces.at(last).end() == seq => last,
            _ => NIL,
        };
        Place {
            run,
            before,
            behind,
        }
    }

    /// Takes from the runs that begin with `behind` what lies wholly inside the arrival, whose
    /// bytes it becomes, and cuts the arrival where a piece reaches farther. Returns the first run
    /// that is left; the caller links it.
    fn absorb(
        &mut self,
        pieces: &mut Pieces,
        cache: &mut PoolCache,
        new: &mut Arrival,
        behind: u32,
    ) -> u32 {
        let mut run = behind;
        while run != NIL && seq::lt(pieces.at(run).seq, new.end) {
            let piece = pieces.at(run);
            if seq::lt(new.end, piece.end()) {
                new.end = piece.seq;
                break;
            }
            // What came first stays.
            let at = (new.start + piece.seq.wrapping_sub(new.seq)) as usize;
            let (len, next, last) = (piece.len, piece.next, piece.last);
            new.packet.data_mut()[at..at + len as usize].copy_from_slice(piece.bytes());
            pieces.stats.copied_bytes += u64::from(len);
            if run == last {
                self.forget(run);
                self.runs -= 1;
            } else {
                pieces.at_mut(next).last = last;
                self.rename(run, next);
            }
            self.out_of_order -= len;
            let packet = self.give_up(pieces, run);
            cache.free_one(packet);
            run = next;
        }
        run
    }

    /// Moves the first run to the bytes that may be read, if RCV.NXT has reached it. Returns its
    /// length in bytes. The run behind it has a hole before it, and stays.
    #[inline]
    fn splice(&mut self, pieces: &mut Pieces) -> u32 {
        let run = self.first_run;
        if run == NIL || pieces.at(run).seq != self.next {
            return 0;
        }
        let last = pieces.at(run).last;
        let bytes = pieces.at(last).end().wrapping_sub(self.next);
        self.first_run = pieces.at(last).next;
        if self.first_run == NIL {
            self.last_run = NIL;
        }
        pieces.at_mut(last).next = NIL;
        pieces.at_mut(self.tail).next = run;
        self.tail = last;
        self.next = self.next.wrapping_add(bytes);
        self.readable += bytes;
        self.out_of_order -= bytes;
        self.runs -= 1;
        self.forget(run);
        bytes
    }

    /// Takes a piece off the books; the caller has unlinked it.
    #[inline]
    pub(super) fn give_up(&mut self, pieces: &mut Pieces, at: u32) -> Packet {
        let packet = pieces.release(at);
        self.charged -= packet.slot_bytes() as u32;
        self.pieces -= 1;
        packet
    }
}

/// The bytes of a packet in as many small slots as they take; `None` where there are not so many
/// free, or more than a burst has.
#[cold]
fn divided(cache: &mut PoolCache, packet: &Packet, span: Span) -> Option<Burst> {
    let pool = cache.pool_for(1)?.clone();
    let bytes = packet.data().get(span.start as usize..)?;
    let bytes = bytes.get(..span.len as usize)?;
    let count = bytes.len().div_ceil(pool.room_bytes());
    if count > Burst::CAPACITY || pool.slot_bytes() * 2 > packet.slot_bytes() {
        return None;
    }
    let mut parts = Burst::new();
    if cache.fill(&pool, &mut parts, count) < count {
        cache.free(&mut parts);
        return None;
    }
    for (part, bytes) in parts.iter_mut().zip(bytes.chunks(pool.room_bytes())) {
        let fits = part.set_data(bytes);
        debug_assert!(fits, "a part is as long as the slot has room");
    }
    Some(parts)
}
