//! Connections that linger after both ends are done, as records of 32 bytes (IPv6: 64).
//!
//! The end that closes first must be able to acknowledge the other's FIN again for twice the
//! maximum segment lifetime, and must keep old segments from a new connection of the same 4-tuple
//! (RFC 9293 3.6.1, MUST-13). That needs no connection: numbers, a time stamp and a time are
//! enough. An orphan in FIN-WAIT-2, whose user is gone and whose peer has not closed yet, needs as
//! little, so it may become a record too, as in Linux.
//!
//! Read `judge` for what a segment gets, `stamp` for how times fit into one word. Here is the
//! table: a ring in order of arrival, which is the order of expiry while no record is restarted,
//! and an index from tuple to place in the ring. A record that is taken out leaves its place, which
//! is free again when it comes to the front. Times are exact for whoever looks a record up; what is
//! late by an out-of-order neighbour is only the memory.
//!
//! | operation | work |
//! |---|---|
//! | a segment | one lookup, one record (one cache line); two hashes where it is answered |
//! | insert | one insert in the index; when full, the oldest record goes |
//! | expire | a record and one removal from the index each, at most as many as asked |
//! | memory | 61 to 64 bytes a record with its share of the index when full, IPv6 150 |
//!
//! ```
//! use linerate_stack::tcp::{secret::Secret, time_wait::{Answer, Config, Kind, Lingering, Segment,
//!     TimeWait}};
//! use linerate_wire::{flow::FlowKey4, tcp::flag};
//! let mut table = TimeWait::<16, FlowKey4>::new(&Config::default(), Secret::random())?;
//! let key = FlowKey4::new([198, 51, 100, 7], [192, 0, 2, 1], 40_000, 80, 6);
//! let facts = Lingering { kind: Kind::TimeWait, snd_nxt: 101, rcv_nxt: 201, window: 500,
//!     ts_recent: None };
//! table.insert(&key, &facts, 0)?;
//! // The peer did not get our last ACK.
//! let fin = Segment { seq: 200, ack: 101, flags: flag::FIN | flag::ACK, payload_bytes: 0,
//!     ts: None };
//! let Some(Answer::Ack(reply)) = table.on_segment(&key, &fin, 1_000_000) else {
//!     panic!("it is acknowledged again");
//! };
//! assert_eq!((reply.seq, reply.ack), (101, 201));
//! assert_eq!(table.on_segment(&key, &fin, 120_000_000_000), None); // it has gone
//! # Ok::<(), linerate_tables::TableError>(())
//! ```

mod judge;
mod stamp;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use linerate_tables::TableError;
use linerate_tables::exact::{Exact, ExactConfig, Seed};

use super::isn::Offsets;
use super::secret::Secret;
use super::tuple::Tuple;
pub use judge::{Answer, Reply, Segment};
use judge::{Judged, Terms};
use stamp::Stamp;

/// How the table is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// The most records, 1 to 2^28; beyond it the oldest goes. Linux' `tcp_max_tw_buckets`.
    pub limit: usize,
    /// Twice the maximum segment lifetime, in nanoseconds, at most 4 hours. RFC 9293 3.4.2 has 4
    /// minutes, Linux and this default one.
    pub time_wait_ns: u64,
    /// How long an orphan waits in FIN-WAIT-2, in nanoseconds, at most 4 hours. Linux'
    /// `tcp_fin_timeout`.
    pub fin_wait2_ns: u64,
    /// Whether new connections have time stamps if their peers offer them (RFC 6191 2).
    pub has_ts: bool,
}

impl Default for Config {
    fn default() -> Self {
        const MINUTE_NS: u64 = 60_000_000_000;
        Self {
            limit: 262_144,
            time_wait_ns: MINUTE_NS,
            fin_wait2_ns: MINUTE_NS,
            has_ts: true,
        }
    }
}

/// Which state a record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Both FINs were acknowledged.
    TimeWait,
    /// Ours was, the peer's has not come, and nobody is left to read.
    FinWait2,
}

/// What is kept of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lingering {
    /// Its state.
    pub kind: Kind,
    /// The sequence number behind our FIN; the peer has acknowledged it.
    pub snd_nxt: u32,
    /// The next one expected: behind the peer's FIN in TIME-WAIT.
    pub rcv_nxt: u32,
    /// The window field of our last segment, as sent. What is within is judged by it unscaled.
    pub window: u16,
    /// The peer's latest time stamp, if the connection has them. Ours are the tuple's
    /// [`Offsets`], so they are not kept.
    pub ts_recent: Option<u32>,
}

/// What became of records, since the start. `inserted` is the sum of the others and of the
/// [`len`](TimeWait::len).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All that there were.
    pub inserted: u64,
    /// Those whose time was over.
    pub expired: u64,
    /// Those that went to make room.
    pub evicted: u64,
    /// Those that [`remove`](TimeWait::remove) took, or a newer one of the same tuple replaced.
    pub removed: u64,
    /// Orphans that a segment ended: a reset, or data that nobody reads.
    pub ended: u64,
    /// Segments that got no answer since the last one was less than half a second ago. Not
    /// records.
    pub unanswered: u64,
}

/// Records between the one that expires and the one whose place in the index is asked for, which
/// are nowhere near one another.
const FETCH_AHEAD: usize = 4;

/// A lingering connection. Two IPv4 records are a cache line, and none is in two.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Record<C> {
    tuple: C,
    window: u16,
    snd_nxt: u32,
    rcv_nxt: u32,
    /// Zero without time stamps.
    ts_recent: u32,
    stamp: Stamp,
}

const _: () = assert!(size_of::<Record<[u8; 14]>>() == 32 && size_of::<Record<[u8; 38]>>() == 64);

/// The lingering connections of one stack and IP version.
pub struct TimeWait<const K: usize, T: Tuple<K>> {
    /// From a tuple to its record's ticket.
    index: Exact<K, u32>,
    /// Records by ticket, the oldest first; never longer than `limit`.
    ring: VecDeque<Record<T::Compact>>,
    /// The ticket of the first. Each record gets the next one; they wrap.
    first: u32,
    limit: usize,
    secret: Secret,
    terms: Terms,
    counts: Counts,
}

impl<const K: usize, T: Tuple<K>> TimeWait<K, T> {
    /// None yet. `secret` is that of the stack's [`Offsets`]. Room for all records is reserved now,
    /// and touched when it is used.
    ///
    /// # Errors
    /// [`TableError::ExactLimit`] for a limit of 0 or above 2^28, and [`TableError::Memory`].
    pub fn new(config: &Config, secret: Secret) -> Result<Self, TableError> {
        let index = ExactConfig::new("lingering connections", config.limit, Seed::random());
        Ok(Self {
            index: Exact::new(&index)?,
            ring: VecDeque::with_capacity(config.limit),
            first: 0,
            limit: config.limit,
            secret,
            terms: Terms::new(config),
            counts: Counts::default(),
        })
    }

    /// Whether new connections have time stamps from now on, if their peers offer them.
    pub fn set_has_ts(&mut self, has_ts: bool) {
        self.terms.has_ts = has_ts;
    }

    /// How many records there are. Some may be over and not [expired](Self::expire) yet.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a record of this tuple, which may be over.
    #[inline]
    pub fn has(&self, tuple: &T) -> bool {
        !self.is_empty() && self.index.lookup(tuple.bytes()).is_some()
    }

    /// Asks for the memory of a tuple's record that is looked for soon.
    #[inline]
    pub fn prefetch(&self, tuple: &T) {
        self.index.prefetch(tuple.bytes());
    }

    /// What became of all.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// All memory, in bytes, the ring's reserved part included.
    pub fn memory_bytes(&self) -> usize {
        let ring = self.ring.capacity() * size_of::<Record<T::Compact>>();
        size_of::<Self>() + ring + self.index.memory_bytes()
    }

    /// Keeps a connection from now on. One of the same tuple is replaced; when the table is full,
    /// the oldest record goes.
    ///
    /// # Errors
    /// As [`Exact::insert`]: the table is as it was, and the connection is forgotten.
    pub fn insert(&mut self, tuple: &T, facts: &Lingering, now_ns: u64) -> Result<(), TableError> {
        if self.ring.len() == self.limit {
            self.make_room(now_ns);
        }
        let ticket = self.first.wrapping_add(self.ring.len() as u32);
        if let Some(old) = self.index.insert(tuple.bytes(), ticket)? {
            self.leave(old);
            self.counts.removed += 1;
        }
        self.ring.push_back(Record {
            tuple: tuple.compact(),
            window: facts.window,
            snd_nxt: facts.snd_nxt,
            rcv_nxt: facts.rcv_nxt,
            ts_recent: facts.ts_recent.unwrap_or(0),
            stamp: Stamp::new(facts.kind, facts.ts_recent.is_some(), now_ns),
        });
        self.counts.inserted += 1;
        Ok(())
    }

    /// What a segment for `tuple` gets; `None` where no connection lingers, and the segment is the
    /// listener's.
    ///
    /// After [`Answer::Reuse`] the record is still there: if the SYN turns out to be an old
    /// duplicate, TIME-WAIT goes on (RFC 9293 3.6.1, MAY-2). Look up connections first, and
    /// [`remove`](Self::remove) the record when the new one is established.
    pub fn on_segment(&mut self, tuple: &T, segment: &Segment, now_ns: u64) -> Option<Answer> {
        let ticket = self.index.lookup(tuple.bytes())?;
        let place = self.place(ticket);
        let record = self.ring.get_mut(place)?;
        if self.terms.is_over(record.stamp, now_ns) {
            self.take(tuple, ticket);
            self.counts.expired += 1;
            return None;
        }
        let judged = judge::judge(record, segment, &self.terms, now_ns);
        let answer = match judged {
            Judged::Ignore => Answer::Ignore,
            Judged::Limited => {
                self.counts.unanswered += 1;
                Answer::Ignore
            }
            Judged::Ack => Answer::Ack(self.reply(tuple, place, now_ns)),
            Judged::Challenge => Answer::Challenge(self.reply(tuple, place, now_ns)),
            Judged::Reset => Answer::Reset {
                seq: record.snd_nxt,
            },
            Judged::Closed => Answer::Closed,
            Judged::Reuse => Answer::Reuse {
                isn: beyond(record.snd_nxt, Offsets::of(&self.secret, tuple), now_ns),
            },
        };
        if matches!(answer, Answer::Reset { .. } | Answer::Closed) {
            self.take(tuple, ticket);
            self.counts.ended += 1;
        }
        Some(answer)
    }

    /// What is kept of `tuple`, if it lingers: its port is in use.
    pub fn lookup(&self, tuple: &T, now_ns: u64) -> Option<Lingering> {
        let record = self.current(tuple, now_ns)?;
        Some(Lingering {
            kind: record.stamp.kind()?,
            snd_nxt: record.snd_nxt,
            rcv_nxt: record.rcv_nxt,
            window: record.window,
            ts_recent: record.stamp.has_ts().then_some(record.ts_recent),
        })
    }

    /// The initial sequence number with which our own end may connect again while the old
    /// connection lingers: where time stamps tell the two apart, a second after the last segment,
    /// as Linux' `tcp_tw_reuse`. The record stays until it is [removed](Self::remove).
    pub fn reconnect(&self, tuple: &T, now_ns: u64) -> Option<u32> {
        let record = self.current(tuple, now_ns)?;
        let may = self.terms.has_ts
            && record.stamp.has_ts()
            && record.stamp.kind() == Some(Kind::TimeWait)
            && record.stamp.is_older_than_1_s(now_ns);
        may.then(|| beyond(record.snd_nxt, Offsets::of(&self.secret, tuple), now_ns))
    }

    /// Takes a record out; whether there was one.
    pub fn remove(&mut self, tuple: &T) -> bool {
        let ticket = self.index.lookup(tuple.bytes());
        if let Some(ticket) = ticket {
            self.take(tuple, ticket);
            self.counts.removed += 1;
        }
        ticket.is_some()
    }

    /// Frees what is over, looking at `most` records at most; returns how many it looked at. As
    /// many as asked: call it again soon.
    pub fn expire(&mut self, now_ns: u64, most: usize) -> usize {
        for looked in 0..most {
            let Some(front) = self.ring.front().copied() else {
                return looked;
            };
            if let Some(soon) = self.ring.get(FETCH_AHEAD) {
                self.index.prefetch(T::expand(soon.tuple).bytes());
            }
            if front.stamp.kind().is_none() {
                self.pop();
            } else if self.terms.is_over(front.stamp, now_ns) {
                self.index.remove(T::expand(front.tuple).bytes());
                self.pop();
                self.counts.expired += 1;
            } else if self.is_out_of_order(front.stamp, now_ns) {
                self.requeue(front);
            } else {
                return looked;
            }
        }
        most
    }

    /// When [`expire`](Self::expire) has something to do, in nanoseconds; `None` if there is no
    /// record.
    pub fn next_expiry_ns(&self, now_ns: u64) -> Option<u64> {
        let front = self.ring.front()?;
        Some(match front.stamp.kind() {
            Some(_) => self.terms.over_at_ns(front.stamp, now_ns),
            None => now_ns,
        })
    }

    /// Where the record with this ticket is.
    #[inline(always)]
    fn place(&self, ticket: u32) -> usize {
        ticket.wrapping_sub(self.first) as usize
    }

    fn current(&self, tuple: &T, now_ns: u64) -> Option<&Record<T::Compact>> {
        let ticket = self.index.lookup(tuple.bytes())?;
        let record = self.ring.get(self.place(ticket))?;
        (!self.terms.is_over(record.stamp, now_ns)).then_some(record)
    }

    fn reply(&self, tuple: &T, place: usize, now_ns: u64) -> Reply {
        let record = &self.ring[place];
        Reply {
            seq: record.snd_nxt,
            ack: record.rcv_nxt,
            window: record.window,
            ts: record.stamp.has_ts().then(|| {
                let ts_val = Offsets::of(&self.secret, tuple).ts_val(now_ns);
                (ts_val, record.ts_recent)
            }),
        }
    }

    /// Takes a record out of index and ring.
    fn take(&mut self, tuple: &T, ticket: u32) {
        self.index.remove(tuple.bytes());
        self.leave(ticket);
    }

    /// Marks a record's place as free.
    fn leave(&mut self, ticket: u32) {
        let place = self.place(ticket);
        if let Some(record) = self.ring.get_mut(place) {
            record.stamp = Stamp::FREE;
        }
    }

    fn pop(&mut self) {
        self.ring.pop_front();
        self.first = self.first.wrapping_add(1);
    }

    /// Frees the place at the front, whatever is in it.
    #[cold]
    fn make_room(&mut self, now_ns: u64) {
        let Some(front) = self.ring.front().copied() else {
            return;
        };
        if front.stamp.kind().is_some() {
            self.index.remove(T::expand(front.tuple).bytes());
            match self.terms.is_over(front.stamp, now_ns) {
                true => self.counts.expired += 1,
                false => self.counts.evicted += 1,
            }
        }
        self.pop();
    }

    /// Whether the record behind the front one is over before it: the front one was restarted, or
    /// is of the kind that waits longer.
    fn is_out_of_order(&self, front: Stamp, now_ns: u64) -> bool {
        self.ring.get(1).is_some_and(|next| {
            next.stamp.kind().is_none()
                || self.terms.over_at_ns(next.stamp, now_ns) < self.terms.over_at_ns(front, now_ns)
        })
    }

    /// Moves the front record to the back, so that it does not hold up those behind.
    #[cold]
    fn requeue(&mut self, front: Record<T::Compact>) {
        self.pop();
        let ticket = self.first.wrapping_add(self.ring.len() as u32);
        let tuple = T::expand(front.tuple);
        self.index.update(tuple.bytes(), |_| ticket);
        self.ring.push_back(front);
    }
}

/// A sequence number larger than any of the last connection's, and than those of segments that its
/// peer could still take for the old one's: the clock's if that is beyond (RFC 6528 3), else 64 KiB
/// on, as in Linux.
fn beyond(snd_nxt: u32, offsets: Offsets, now_ns: u64) -> u32 {
    const GAP: u32 = u16::MAX as u32 + 2;
    let least = snd_nxt.wrapping_add(GAP);
    let isn = offsets.isn(now_ns);
    match crate::tcp::seq::gt(least, isn) {
        true => least,
        false => isn,
    }
}
