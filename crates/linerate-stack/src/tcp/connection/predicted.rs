//! The segments that nearly all are: the next data, or an acknowledgment of what was sent, on a
//! connection that is open and has lost nothing (Jacobson's header prediction, 4BSD Reno).
//!
//! A segment is predicted if each of the tests in `input` and `acknowledge` that could lead
//! elsewhere is known to let it pass. What is left to do for it is what those files do, in the same
//! order: nearly all segments of this crate's tests come this way.
//!
//! What such a connection sends is predicted as well: new data that fits both windows, with nothing
//! but its time stamps to tell.

use linerate_core::packet::Packet;
use linerate_wire::tcp::flag;

use super::acknowledge::{Trips, told};
use super::{Awaits, Connection, Context, Ecn, Phase, State, Wire, is};
use crate::tcp::congestion::{Ack, Congestion};
use crate::tcp::segment::{Segment, Usual};
use crate::tcp::sent::NIL;
use crate::tcp::seq;

/// Flags that say more than that there is data or an acknowledgment.
const CONTROLS: u8 =
    flag::SYN | flag::FIN | flag::RST | flag::ACK | flag::ECE | flag::CWR | flag::URG;
/// States in which even a plain segment is none.
const UNUSUAL: u32 = is::FIN_SEEN | is::READ_SHUT | is::ORPHAN | is::FRTO | is::RENEGED;

/// States in which data are sent with more than their time stamps, or not before something else.
const UNUSUAL_OUT: u32 =
    is::ECN | is::ECE_DUE | is::CORK | is::FIN_QUEUED | is::FIN_SENT | is::STARVED;

/// What came of the attempt to send the usual way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Usually {
    /// A segment went, and there may be more.
    Sent,
    /// The last went.
    Last,
    /// There are no slots.
    NoSlots,
    /// The other way has to be gone.
    Not,
}

impl Connection {
    /// Whether a segment is one of those.
    #[inline(always)]
    pub(super) fn is_predicted(&self, segment: &Segment) -> bool {
        // RFC 7323 5.3: R3 and R4 have nothing against it.
        let is_in_time = match segment.timestamps {
            Some((value, _)) => self.is(is::TIMESTAMPS) && seq::ge(value, self.ts_recent),
            None => !self.is(is::TIMESTAMPS),
        };
        let advance = segment.ack.wrapping_sub(self.snd_una);
        self.state == State::Established
            && segment.flags & CONTROLS == flag::ACK
            && self.is & UNUSUAL == 0
            && self.phase == Phase::Open
            && self.sacked | self.lost | self.retrans == 0
            && self.urgent | self.probe_len == 0
            && !self.has_probe_point
            && is_in_time
            && segment.seq == self.queue.next()
            && seq::le(segment.end(), self.rcv_window.edge())
            && segment.sacks.is_empty()
            && !segment.is_ce
            && advance <= self.snd_nxt.wrapping_sub(self.snd_una)
            // Without either it may be a duplicate (RFC 5681 2).
            && (segment.len > 0 || advance != 0)
    }

    /// Handles one.
    #[inline]
    pub(super) fn on_predicted<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        segment: &Segment,
        packet: Packet,
        l4: u32,
    ) {
        self.last_received_ms = (cx.now_ns / 1_000_000) as u32;
        // RFC 9293 3.10.7.4: nothing newer has come.
        let window = u32::from(segment.window) << self.snd_scale;
        (self.snd_wl1, self.snd_wnd) = (segment.seq, window);
        self.max_wnd = self.max_wnd.max(window);
        self.on_answer();
        if segment.ack != self.snd_una {
            self.on_plain_ack(cx, segment);
        } else if self.sent.count() == 0 {
            self.on_probe_answer();
        }
        self.note_timestamp(cx, segment);
        if segment.len == 0 {
            return cx.wire.free(packet);
        }
        self.on_data(cx, segment, packet, l4);
        self.decide_ack(cx, segment);
    }

    /// SND.UNA advances, and nothing was lost.
    #[inline]
    fn on_plain_ack<W: Wire>(&mut self, cx: &mut Context<'_, W>, segment: &Segment) {
        let (prior_in_flight, prior_delivered) = (self.in_flight(), self.delivery.delivered());
        self.snd_una = segment.ack;
        self.retries = 0;
        let has_model = !self.control.algorithm.is_by_prr();
        let mut trips = Trips::default();
        if !has_model {
            self.clean_usual(cx, &mut trips);
        }
        let mut told = told::ADVANCED;
        let head = self.sent.first();
        if head != NIL && seq::lt(cx.shared.records[head].seq, self.snd_una) {
            told |= self.clean_records(cx, &mut trips);
        }
        self.clean_buffer(cx);
        let rtt_ns = self.measure(cx, segment, told, &trips);
        cx.wire.confirm();
        if self.sent.count() == 0 {
            (self.awaits, self.send_at) = (Awaits::Nothing, 0);
        } else if !self.schedule_loss_probe(cx, true) {
            self.rearm(cx);
        }
        let rate = has_model.then(|| {
            let least_ns = self.rtt.min_rtt_ns(cx.now_ns);
            let sampler = trips.sampler;
            sampler.finish(&mut self.delivery, cx.now_ns, least_ns)
        });
        let ack = Ack {
            now_ns: cx.now_ns,
            acked_bytes: self.delivery.delivered().wrapping_sub(prior_delivered),
            in_flight_bytes: prior_in_flight,
            lost_bytes: 0,
            rtt_ns,
            srtt_ns: self.rtt.srtt_ns().unwrap_or(0),
            snd_una: self.snd_una,
            snd_nxt: self.snd_nxt,
            is_cwnd_limited: self.usage.is_limited(&self.control.window),
            in_recovery: false,
            delivery: rate.flatten(),
        };
        if ack.acked_bytes > 0 {
            self.control.on_ack(&ack);
            self.note_own_limit();
        }
        self.set_pace(cx);
    }

    /// Frees the records below SND.UNA, as far as they were sent once, for an algorithm that needs
    /// no samples of the delivery rate.
    #[inline(always)]
    fn clean_usual<W: Wire>(&mut self, cx: &mut Context<'_, W>, trips: &mut Trips) {
        let records = &mut cx.shared.records;
        let mut last = None;
        loop {
            let head = self.sent.first();
            if head == NIL {
                break;
            }
            let record = &records[head];
            if record.marks != 0 || seq::gt(record.end, self.snd_una) {
                break;
            }
            trips.acked(record.sent_ns);
            self.delivery.count(record.len());
            last = Some((record.sent_ns, record.end));
            self.sent.remove_first(records);
        }
        // They were sent one after the other, and so the last is the newest (RFC 8985 6.2 step 2).
        if let Some((sent_ns, end)) = last {
            self.rack_rtt_ns = cx.now_ns.saturating_sub(sent_ns);
            (self.rack_sent_ns, self.rack_end) = (sent_ns, end);
            self.is |= is::RACK_ADVANCED;
        }
    }

    /// Sends the next segment of new data, if nothing is unusual about it.
    #[inline(always)]
    pub(super) fn send_usual<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> Usually {
        let mss = u32::from(self.mss);
        let unsent = self.data_end().wrapping_sub(self.snd_nxt);
        let len = unsent.min(mss);
        let in_flight = self.snd_nxt.wrapping_sub(self.snd_una);
        let is_usual = len > 0
            && self.is & (UNUSUAL_OUT | is::TIMESTAMPS) == is::TIMESTAMPS
            && self.state.may_send()
            && self.phase == Phase::Open
            && self.sacked | self.lost | self.retrans == 0
            && self.urgent | self.search == 0
            && in_flight + mss <= self.control.window.cwnd_bytes
            && in_flight + len <= self.snd_wnd
            && !self.pacer.is_on()
            && !self.queue.has_sack()
            && (unsent <= mss || cx.wire.gso_bytes() == 0)
            && (len == mss || self.may_send_small(unsent, false))
            && cx.shared.records.has_room();
        if !is_usual {
            return Usually::Not;
        }
        let seq_no = self.snd_nxt;
        // RFC 9293 3.9.1 (MUST-61): nothing follows, or nothing can.
        let is_last = unsent == len || in_flight + len == self.snd_wnd;
        let flags = flag::ACK | if is_last { flag::PSH } else { 0 };
        if !self.transmit_usual(cx, seq_no, len, flags) {
            return Usually::NoSlots;
        }
        let stamp = self.delivery.on_send(cx.now_ns, self.sent.count() == 0);
        let end = seq_no.wrapping_add(len);
        let records = &mut cx.shared.records;
        let pushed = self.sent.push(records, (seq_no, end), 0, cx.now_ns, stamp);
        debug_assert!(pushed.is_some());
        self.snd_nxt = end;
        if len != mss {
            self.small_end = end;
        }
        self.note_answer(cx.now_ns);
        cx.shared.stats.bytes_out += u64::from(len);
        match unsent == len {
            true => Usually::Last,
            false => Usually::Sent,
        }
    }

    /// Writes a segment whose only option are time stamps. What it acknowledges is noted.
    #[inline(always)]
    pub(super) fn transmit_usual<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        seq_no: u32,
        len: u32,
        flags: u8,
    ) -> bool {
        let header = Usual {
            seq: seq_no,
            ack: self.rcv_nxt(),
            flags,
            window: self.announce(),
            timestamps: (self.ts_now(cx.now_ns), self.ts_recent),
        };
        let offset = seq_no.wrapping_sub(self.data_seq);
        let (buffer, chunks) = (&mut self.buffer, &cx.shared.chunks);
        let went = cx.wire.send_usual(header, len, Ecn::NotCapable, |room| {
            // What is sent is in the buffer: it is discarded when it is acknowledged, not before.
            if len > 0 {
                buffer.copy_out_unsummed(chunks, offset, room);
            }
        });
        if went {
            self.acknowledged(header.ack);
            cx.shared.stats.segments_out += 1;
        }
        went
    }
}
