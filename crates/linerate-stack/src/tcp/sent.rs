//! What was sent and is not acknowledged: one record for each frame, the scoreboard of RFC 6675 and
//! the times of RFC 8985.
//!
//! The records of all connections of a stack lie in one [`Records`]; a connection has a [`Sent`],
//! two lists through them: by sequence number, without gaps from SND.UNA to SND.NXT, and by the
//! time of their last transmission, which has only those that are in flight or lost, not those that
//! a SACK has acknowledged. A frame longer than a segment is one record until a SACK or a loss
//! divides it; records that are acknowledged by SACK and touch become one.

use super::congestion::rate::SendStamp;
use super::seq;

/// No record.
pub const NIL: u32 = u32::MAX;

/// What befell the bytes of a record.
pub mod mark {
    /// A SACK has acknowledged them.
    pub const SACKED: u8 = 1;
    /// They count as lost.
    pub const LOST: u8 = 2;
    /// A retransmission of them is in flight.
    pub const RETRANS: u8 = 4;
    /// They have been retransmitted, ever.
    pub const EVER_RETRANS: u8 = 8;
    /// They begin with a SYN, which has a sequence number and no byte.
    pub const SYN: u8 = 16;
    /// They end with a FIN, likewise.
    pub const FIN: u8 = 32;
}

/// Bytes that were sent as one frame.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// First sequence number.
    pub seq: u32,
    /// Sequence number behind the last.
    pub end: u32,
    /// When they were sent last, in nanoseconds.
    pub sent_ns: u64,
    /// What delivery was like when they were sent.
    pub stamp: SendStamp,
    next: u32,
    prev: u32,
    later: u32,
    earlier: u32,
    /// Bits of [`mark`].
    pub marks: u8,
    /// Whether it is in the list by time.
    is_timed: bool,
    is_free: bool,
}

impl Record {
    /// Sequence numbers of it.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.end.wrapping_sub(self.seq)
    }

    /// Whether it has none: never.
    pub fn is_empty(&self) -> bool {
        self.seq == self.end
    }

    /// Whether any of these marks is set.
    #[inline(always)]
    pub fn has(&self, marks: u8) -> bool {
        self.marks & marks != 0
    }
}

/// The records of all connections of a stack.
pub struct Records {
    all: Vec<Record>,
    free: u32,
    used: usize,
    limit: usize,
}

impl Records {
    /// Room for `limit` records.
    pub fn new(limit: usize) -> Self {
        Self {
            all: Vec::with_capacity(limit),
            free: NIL,
            used: 0,
            limit: limit.min(NIL as usize),
        }
    }

    /// Records in use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Records that are free.
    pub fn room(&self) -> usize {
        self.limit - self.used
    }

    /// Whether there is room for what is new: some is left for what has to be divided, or nothing
    /// could be sent again where all are in use.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.room() > self.limit / 64
    }

    fn take(&mut self, record: Record) -> Option<u32> {
        let index = match self.free {
            NIL if self.all.len() < self.limit => {
                self.all.push(record);
                self.all.len() as u32 - 1
            }
            NIL => return None,
            index => {
                self.free = self.all[index as usize].next;
                self.all[index as usize] = record;
                index
            }
        };
        self.used += 1;
        Some(index)
    }

    fn give(&mut self, index: u32) {
        let free = self.free;
        let record = &mut self.all[index as usize];
        debug_assert!(!record.is_free);
        (record.is_free, record.next) = (true, free);
        self.free = index;
        self.used -= 1;
    }
}

impl std::ops::Index<u32> for Records {
    type Output = Record;

    #[inline(always)]
    fn index(&self, index: u32) -> &Record {
        &self.all[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Records {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut Record {
        &mut self.all[index as usize]
    }
}

/// The records of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    head: u32,
    tail: u32,
    oldest: u32,
    newest: u32,
    /// Where the last SACK block ended its walk, for the next.
    hint: u32,
    count: u32,
}

impl Default for Sent {
    fn default() -> Self {
        Self::new()
    }
}

impl Sent {
    /// None.
    pub const fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            oldest: NIL,
            newest: NIL,
            hint: NIL,
            count: 0,
        }
    }

    /// How many.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The record with the lowest sequence number, or [`NIL`].
    #[inline(always)]
    pub fn first(&self) -> u32 {
        self.head
    }

    /// Whether a SACK has told of the first: the receiver has dropped it since, or an ACK would
    /// tell of it (RFC 2018 8).
    #[inline(always)]
    pub fn is_first_sacked(&self, records: &Records) -> bool {
        self.head != NIL && records[self.head].has(mark::SACKED)
    }

    /// The record with the highest.
    #[inline(always)]
    pub fn last(&self) -> u32 {
        self.tail
    }

    /// The record behind `index`.
    #[inline(always)]
    pub fn next(records: &Records, index: u32) -> u32 {
        records[index].next
    }

    /// The record before `index`.
    #[inline(always)]
    pub fn prev(records: &Records, index: u32) -> u32 {
        records[index].prev
    }

    /// Of those in the list by time, the one whose last transmission is the longest ago.
    #[inline(always)]
    pub fn oldest(&self) -> u32 {
        self.oldest
    }

    /// The one that was sent next after `index`.
    #[inline(always)]
    pub fn later(records: &Records, index: u32) -> u32 {
        records[index].later
    }

    /// Appends what is sent now; `None` where there is no room.
    #[inline]
    pub fn push(
        &mut self,
        records: &mut Records,
        (seq, end): (u32, u32),
        marks: u8,
        sent_ns: u64,
        stamp: SendStamp,
    ) -> Option<u32> {
        let index = records.take(Record {
            seq,
            end,
            sent_ns,
            stamp,
            next: NIL,
            prev: self.tail,
            later: NIL,
            earlier: NIL,
            marks,
            is_timed: false,
            is_free: false,
        })?;
        match self.tail {
            NIL => self.head = index,
            tail => records[tail].next = index,
        }
        self.tail = index;
        self.count += 1;
        self.link_newest(records, index);
        Some(index)
    }

    /// Notes that a record is sent again.
    pub fn resent(&mut self, records: &mut Records, index: u32, sent_ns: u64, stamp: SendStamp) {
        self.unlink_time(records, index);
        let record = &mut records[index];
        (record.sent_ns, record.stamp) = (sent_ns, stamp);
        record.marks |= mark::RETRANS | mark::EVER_RETRANS;
        self.link_newest(records, index);
    }

    /// Divides a record at a sequence number within it: the part behind becomes a record of its
    /// own, with the same marks but those of its end. `None` where there is no room.
    pub fn split(&mut self, records: &mut Records, index: u32, at: u32) -> Option<u32> {
        let whole = records[index];
        debug_assert!(seq::gt(at, whole.seq) && seq::lt(at, whole.end));
        let rest = records.take(Record {
            seq: at,
            prev: index,
            later: NIL,
            earlier: NIL,
            marks: whole.marks & !mark::SYN,
            is_timed: false,
            ..whole
        })?;
        let record = &mut records[index];
        (record.end, record.next) = (at, rest);
        record.marks &= !mark::FIN;
        match whole.next {
            NIL => self.tail = rest,
            next => records[next].prev = rest,
        }
        self.count += 1;
        if whole.is_timed {
            // Right behind the other: they were sent at the same time.
            let later = records[index].later;
            records[rest].is_timed = true;
            (records[rest].earlier, records[rest].later) = (index, later);
            records[index].later = rest;
            match later {
                NIL => self.newest = rest,
                later => records[later].earlier = rest,
            }
        }
        Some(rest)
    }

    /// Takes a record out and frees it.
    #[inline]
    pub fn remove(&mut self, records: &mut Records, index: u32) {
        self.unlink_time(records, index);
        let Record { next, prev, .. } = records[index];
        match prev {
            NIL => self.head = next,
            prev => records[prev].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => records[next].prev = prev,
        }
        if self.hint == index {
            self.hint = prev;
        }
        self.count -= 1;
        records.give(index);
    }

    /// Takes the first record out and frees it.
    #[inline]
    pub fn remove_first(&mut self, records: &mut Records) {
        let index = self.head;
        let Record { next, later, .. } = records[index];
        if self.oldest == index {
            // It has no earlier one: nearly always.
            self.oldest = later;
            match later {
                NIL => self.newest = NIL,
                later => records[later].earlier = NIL,
            }
        } else {
            self.unlink_time(records, index);
        }
        self.head = next;
        match next {
            NIL => self.tail = NIL,
            next => records[next].prev = NIL,
        }
        if self.hint == index {
            self.hint = NIL;
        }
        self.count -= 1;
        records.give(index);
    }

    /// Frees all.
    pub fn clear(&mut self, records: &mut Records) {
        while self.head != NIL {
            self.remove(records, self.head);
        }
    }

    /// Notes that a SACK has acknowledged a record: it is in flight no longer. It becomes one with
    /// a neighbour of which that is true as well. Returns the record that has its bytes.
    pub fn sacked(&mut self, records: &mut Records, index: u32) -> u32 {
        self.unlink_time(records, index);
        records[index].marks |= mark::SACKED;
        let mut kept = index;
        let prev = records[index].prev;
        if prev != NIL && records[prev].has(mark::SACKED) {
            self.join(records, prev, index);
            kept = prev;
        }
        let next = records[kept].next;
        if next != NIL && records[next].has(mark::SACKED) {
            self.join(records, kept, next);
        }
        self.hint = kept;
        kept
    }

    /// Makes two neighbours one.
    fn join(&mut self, records: &mut Records, first: u32, second: u32) {
        let other = records[second];
        let record = &mut records[first];
        record.end = other.end;
        record.marks |= other.marks & (mark::FIN | mark::EVER_RETRANS);
        self.remove(records, second);
    }

    /// Forgets what SACKs have acknowledged: the receiver has dropped it (RFC 2018 8). Returns how
    /// many sequence numbers that were.
    pub fn forget_sacked(&mut self, records: &mut Records) -> u32 {
        let (mut index, mut sum) = (self.head, 0_u32);
        while index != NIL {
            if records[index].has(mark::SACKED) {
                records[index].marks &= !mark::SACKED;
                sum = sum.wrapping_add(records[index].len());
                self.unlink_time(records, index);
                self.link_oldest(records, index);
            }
            index = records[index].next;
        }
        sum
    }

    /// Where to look for the record that has `seq`: it, or one before it.
    #[inline]
    pub fn near(&self, records: &Records, seq: u32) -> u32 {
        match self.hint {
            NIL => self.head,
            hint if seq::le(records[hint].seq, seq) => hint,
            _ => self.head,
        }
    }

    fn link_newest(&mut self, records: &mut Records, index: u32) {
        let newest = self.newest;
        let record = &mut records[index];
        (record.earlier, record.later, record.is_timed) = (newest, NIL, true);
        match newest {
            NIL => self.oldest = index,
            newest => records[newest].later = index,
        }
        self.newest = index;
    }

    fn link_oldest(&mut self, records: &mut Records, index: u32) {
        let oldest = self.oldest;
        let record = &mut records[index];
        (record.later, record.earlier, record.is_timed) = (oldest, NIL, true);
        match oldest {
            NIL => self.newest = index,
            oldest => records[oldest].earlier = index,
        }
        self.oldest = index;
    }

    fn unlink_time(&mut self, records: &mut Records, index: u32) {
        let Record {
            later,
            earlier,
            is_timed,
            ..
        } = records[index];
        if !is_timed {
            return;
        }
        records[index].is_timed = false;
        match earlier {
            NIL => self.oldest = later,
            earlier => records[earlier].later = later,
        }
        match later {
            NIL => self.newest = earlier,
            later => records[later].earlier = earlier,
        }
    }
}

impl Sent {
    /// Takes a record out of the list by time.
    pub(super) fn untime(&mut self, records: &mut Records, index: u32) {
        self.unlink_time(records, index);
    }

    /// Puts a record to the end of the list by time.
    pub(super) fn renew(&mut self, records: &mut Records, index: u32) {
        self.unlink_time(records, index);
        self.link_newest(records, index);
    }
}
