//! What a segment for a lingering connection gets: RFC 9293 3.10.7.4 for TIME-WAIT and FIN-WAIT-2,
//! with RFC 1337 (resets do not end TIME-WAIT), RFC 5961 (challenge ACKs), RFC 6191 (a new SYN) and
//! RFC 7323 5 (old time stamps).

use linerate_wire::tcp::flag;

use super::stamp::{Duration, Stamp};
use super::{Config, Kind, Record};
use crate::tcp::seq;

/// The facts of a segment that count here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its sequence number.
    pub seq: u32,
    /// Its acknowledgment number, if it has the flag.
    pub ack: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Bytes of data.
    pub payload_bytes: u32,
    /// TSval and TSecr, if it has time stamps.
    pub ts: Option<(u32, u32)>,
}

/// What to send, and what else happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Ignore,
    /// This acknowledgement.
    Ack(Reply),
    /// This acknowledgement too, if the stack's budget of challenge ACKs allows it (RFC 5961 7):
    /// [`Challenges`](super::super::rate::Challenges).
    Challenge(Reply),
    /// A reset with this sequence number: data came for an orphan (RFC 9293 3.6.1, SHLD-3). The
    /// record is gone.
    Reset {
        /// SEG.SEQ of the reset; it acknowledges nothing.
        seq: u32,
    },
    /// Nothing: the peer has reset the orphan. The record is gone.
    Closed,
    /// The segment is a new connection's SYN. The listener takes it with this sequence number, and
    /// without a SYN cookie, which could be smaller than the old connection's.
    Reuse {
        /// The initial sequence number to use, larger than all of the old connection's.
        isn: u32,
    },
}

/// An acknowledgement without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// SEG.SEQ.
    pub seq: u32,
    /// SEG.ACK.
    pub ack: u32,
    /// SEG.WND, as it is sent.
    pub window: u16,
    /// TSval and TSecr, if the connection has time stamps.
    pub ts: Option<(u32, u32)>,
}

/// The answer before its numbers are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Ignore,
    /// Nothing, since there was an answer a moment ago.
    Limited,
    Ack,
    Challenge,
    Reset,
    Closed,
    Reuse,
}

/// What applies to all records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    time_wait: Duration,
    fin_wait2: Duration,
    pub(super) has_ts: bool,
}

impl Terms {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            time_wait: Duration::from_ns(config.time_wait_ns),
            fin_wait2: Duration::from_ns(config.fin_wait2_ns),
            has_ts: config.has_ts,
        }
    }

    #[inline]
    fn of(&self, stamp: Stamp) -> Duration {
        match stamp.kind() {
            Some(Kind::FinWait2) => self.fin_wait2,
            _ => self.time_wait,
        }
    }

    #[inline]
    pub(super) fn is_over(&self, stamp: Stamp, now_ns: u64) -> bool {
        stamp.is_over(self.of(stamp), now_ns)
    }

    pub(super) fn over_at_ns(&self, stamp: Stamp, now_ns: u64) -> u64 {
        stamp.over_at_ns(self.of(stamp), now_ns)
    }
}

/// Judges a segment and notes in the record what it changes.
pub(super) fn judge<C>(
    record: &mut Record<C>,
    segment: &Segment,
    terms: &Terms,
    now_ns: u64,
) -> Judged {
    let flags = segment.flags & (flag::SYN | flag::RST | flag::FIN | flag::ACK);
    let is_time_wait = record.stamp.kind() == Some(Kind::TimeWait);
    if is_time_wait && flags == flag::SYN && may_reuse(record, segment, terms) {
        return Judged::Reuse;
    }
    if flags & flag::RST != 0 {
        return reset(record, segment, now_ns);
    }
    // RFC 5961 4.2: a SYN is answered whatever its number.
    if flags & flag::SYN != 0 {
        return limited(record, Judged::Challenge, now_ns);
    }
    match (record.stamp.has_ts(), segment.ts) {
        // RFC 7323 3.2: without the time stamps that it should have it is dropped silently.
        (true, None) => return Judged::Ignore,
        // RFC 7323 5.3 R1.
        (true, Some((ts_val, _))) if seq::gt(record.ts_recent, ts_val) => {
            return refused(record, segment, now_ns);
        }
        _ => {}
    }
    let acknowledges = flags & flag::ACK != 0;
    let is_too_far = acknowledges && seq::gt(segment.ack, record.snd_nxt);
    // The FIN is behind the window in TIME-WAIT, where only it can come, once more; and an orphan
    // takes it even with a window of zero.
    let fin_end = match is_time_wait {
        true => record.rcv_nxt,
        false => record.rcv_nxt.wrapping_add(1),
    };
    let is_fin = flags & flag::FIN != 0 && end(segment) == fin_end;
    if is_fin && acknowledges && !is_too_far {
        note_ts(record, segment);
        record.rcv_nxt = fin_end;
        record.stamp.restart(now_ns);
        return Judged::Ack;
    }
    if !is_acceptable(record, segment) {
        return refused(record, segment, now_ns);
    }
    if !acknowledges {
        return Judged::Ignore;
    }
    // RFC 9293 3.10.7.4, fifth: it acknowledges what was never sent.
    if is_too_far {
        return limited(record, Judged::Challenge, now_ns);
    }
    // RFC 7323 4.3 (2), where Last.ACK.sent is RCV.NXT.
    if !seq::gt(segment.seq, record.rcv_nxt) {
        note_ts(record, segment);
    }
    // RFC 9293 3.10.7.4, seventh: after the peer's FIN there is no text to take. Before it there
    // may be, which nobody is left to read.
    match is_time_wait || !seq::gt(end(segment), record.rcv_nxt) {
        true => Judged::Ignore,
        false => Judged::Reset,
    }
}

/// RFC 6191 2, which goes beyond MAY-2 of RFC 9293 3.6.1 by SHLD-4: whether a SYN is a new
/// connection's, by its time stamp or its number.
fn may_reuse<C>(record: &Record<C>, syn: &Segment, terms: &Terms) -> bool {
    let is_higher = seq::gt(syn.seq, record.rcv_nxt.wrapping_sub(1));
    let new_ts = syn.ts.filter(|_| terms.has_ts);
    match (record.stamp.has_ts(), new_ts) {
        (true, Some((ts_val, _))) => {
            seq::gt(ts_val, record.ts_recent) || (ts_val == record.ts_recent && is_higher)
        }
        // Old segments have no time stamps, and so will not be taken for the new connection's.
        (false, Some(_)) => true,
        (_, None) => is_higher,
    }
}

/// RFC 1337 3: resets do not end TIME-WAIT. RFC 5961 3.2: one that ends FIN-WAIT-2 has the very
/// number that is expected.
fn reset<C>(record: &mut Record<C>, segment: &Segment, now_ns: u64) -> Judged {
    if record.stamp.kind() == Some(Kind::TimeWait) {
        return Judged::Ignore;
    }
    if segment.seq == record.rcv_nxt {
        return Judged::Closed;
    }
    let ahead = segment.seq.wrapping_sub(record.rcv_nxt);
    match ahead < u32::from(record.window) {
        true => limited(record, Judged::Challenge, now_ns),
        false => Judged::Ignore,
    }
}

/// The acknowledgement for what is not acceptable (RFC 9293 3.10.7.4, first). Segments with data
/// cannot be the other end's such acknowledgement, so they are answered without limit.
fn refused<C>(record: &mut Record<C>, segment: &Segment, now_ns: u64) -> Judged {
    match segment.payload_bytes {
        0 => limited(record, Judged::Ack, now_ns),
        _ => Judged::Ack,
    }
}

fn limited<C>(record: &mut Record<C>, answer: Judged, now_ns: u64) -> Judged {
    match record.stamp.may_answer(now_ns) {
        true => answer,
        false => Judged::Limited,
    }
}

/// The sequence number behind the segment.
fn end(segment: &Segment) -> u32 {
    let fin = u32::from(segment.flags & flag::FIN != 0);
    (segment.seq.wrapping_add(segment.payload_bytes)).wrapping_add(fin)
}

/// RFC 9293 3.4: the four cases of the acceptability test.
fn is_acceptable<C>(record: &Record<C>, segment: &Segment) -> bool {
    let window = u32::from(record.window);
    let is_within = |seq: u32| seq.wrapping_sub(record.rcv_nxt) < window;
    match (end(segment) != segment.seq, window) {
        (false, 0) => segment.seq == record.rcv_nxt,
        (false, _) => is_within(segment.seq),
        (true, 0) => false,
        (true, _) => is_within(segment.seq) || is_within(end(segment).wrapping_sub(1)),
    }
}

fn note_ts<C>(record: &mut Record<C>, segment: &Segment) {
    if let (true, Some((ts_val, _))) = (record.stamp.has_ts(), segment.ts) {
        record.ts_recent = ts_val;
    }
}
