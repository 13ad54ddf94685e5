//! The segments that nearly all are: the next data, or an acknowledgment of what was sent, on a
//! connection that is open and has lost nothing (Jacobson's header prediction, 4BSD Reno).
//!
//! A segment is predicted if each of the tests in `input` and `acknowledge` that could lead
//! elsewhere is known to let it pass. What is left to do for it is what those files do, in the same
//! order: nearly all segments of this crate's tests come this way.

use linerate_core::packet::Packet;
use linerate_wire::tcp::flag;

use super::acknowledge::{Trips, told};
use super::{Awaits, Connection, Context, Phase, State, Wire, is};
use crate::tcp::congestion::{Ack, Congestion};
use crate::tcp::segment::Segment;
use crate::tcp::seq;

/// Flags that say more than that there is data or an acknowledgment.
const CONTROLS: u8 = flag::SYN | flag::FIN | flag::RST | flag::ACK | flag::ECE | flag::CWR;
/// States in which even a plain segment is none.
const UNUSUAL: u32 = is::FIN_SEEN | is::READ_SHUT | is::ORPHAN | is::FRTO | is::RENEGED;

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
        let mut trips = Trips::default();
        let told = told::ADVANCED | self.clean_acked(cx, &mut trips);
        let rtt_ns = self.measure(cx, segment, told, &trips);
        cx.wire.confirm();
        if self.sent.count() == 0 {
            (self.awaits, self.send_at) = (Awaits::Nothing, 0);
        } else if !self.schedule_loss_probe(cx, true) {
            self.rearm(cx);
        }
        let algorithm = &self.control.algorithm;
        let has_model = !algorithm.is_by_prr();
        let least_ns = has_model.then(|| self.rtt.min_rtt_ns(cx.now_ns)).flatten();
        let rate = trips
            .sampler
            .finish(&mut self.delivery, cx.now_ns, least_ns);
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
            delivery: rate.filter(|_| has_model),
        };
        if ack.acked_bytes > 0 {
            self.control.on_ack(&ack);
        }
        self.set_pace(cx);
    }
}
