//! A segment arrives: RFC 9293 3.10.7, in its order.

use linerate_core::packet::Packet;
use linerate_wire::tcp::flag;

use super::output::{ACK_DELAY_MIN_MS, PING_PONG};
use super::{Connection, Context, Error, State, Wire, event, is};
use crate::tcp::receive::{Limits, Span};
use crate::tcp::segment::Segment;
use crate::tcp::seq;

/// Time stamps that are older say nothing (RFC 7323 5.5): 24 days, in seconds.
const PAWS_S: u32 = 24 * 24 * 3600;
/// ACKs that go at once when data begins to come (Linux: TCP_MAX_QUICKACKS).
const QUICK_ACKS: u8 = 16;

impl Connection {
    /// Handles a segment of this connection, whose header begins at `l4` of the packet's data. What
    /// has to be answered is sent, but for what [`push`](Self::push) sends: the caller calls that
    /// once for all segments that have come.
    pub fn on_segment<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        segment: &Segment,
        packet: Packet,
        l4: u32,
    ) {
        cx.shared.stats.segments_in += 1;
        if self.is_predicted(segment) {
            return self.on_predicted(cx, segment, packet, l4);
        }
        match self.state {
            State::Closed | State::TimeWait => cx.wire.free(packet),
            State::SynSent => self.in_syn_sent(cx, segment, packet, l4),
            _ => self.in_others(cx, segment, packet, l4),
        }
    }

    /// RFC 9293 3.10.7.4.
    fn in_others<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        segment: &Segment,
        packet: Packet,
        l4: u32,
    ) {
        if self.is_first_syn_again(segment) {
            self.on_syn(cx, segment);
            return cx.wire.free(packet);
        }
        if !self.is_acceptable(cx, segment) {
            return cx.wire.free(packet);
        }
        // Second: RST. RFC 5961 3.2.
        if segment.has(flag::RST) {
            self.on_reset(cx, segment);
            return cx.wire.free(packet);
        }
        // Fourth: SYN.
        let answer;
        let mut segment = segment;
        if segment.has(flag::SYN) {
            if !self.is_both_open(segment) {
                self.on_syn(cx, segment);
                return cx.wire.free(packet);
            }
            answer = Segment {
                seq: segment.end(),
                flags: flag::ACK,
                len: 0,
                // The window of a SYN is not scaled (RFC 7323 2.2): the next has it.
                window: segment.window >> self.snd_scale,
                ..*segment
            };
            segment = &answer;
            // It waits for an answer as we do.
            self.is |= is::ACK_NOW;
        }
        // Fifth: ACK.
        if !segment.has(flag::ACK) {
            return cx.wire.free(packet);
        }
        self.last_received_ms = (cx.now_ns / 1_000_000) as u32;
        if self.state == State::SynReceived && !self.establish(cx, segment) {
            return cx.wire.free(packet);
        }
        if !self.on_ack(cx, segment) {
            return cx.wire.free(packet);
        }
        // Only now: a blind segment, whose ACK is wrong, must not set the clock (RFC 5961 5.2).
        self.note_timestamp(cx, segment);
        self.after_ack(cx);
        if self.state == State::Closed || self.state == State::TimeWait {
            return cx.wire.free(packet);
        }
        self.note_ecn(cx, segment);
        self.note_urgent(cx, segment);
        if segment.len > 0 {
            self.on_data(cx, segment, packet, l4);
        } else {
            cx.wire.free(packet);
        }
        if segment.has(flag::FIN) {
            self.note_fin(segment);
        }
        if self.urgent != 0 {
            self.settle_urgent(cx);
        }
        self.take_fin(cx);
        self.decide_ack(cx, segment);
    }

    /// First: the sequence number (RFC 9293 3.10.7.4, RFC 7323 5.3).
    #[inline]
    fn is_acceptable<W: Wire>(&mut self, cx: &mut Context<'_, W>, segment: &Segment) -> bool {
        if self.is(is::TIMESTAMPS)
            && let Some((value, _)) = segment.timestamps
            && seq::lt(value, self.ts_recent)
            && !segment.has(flag::RST)
        {
            let age_s = ((cx.now_ns / 1_000_000_000) as u32).wrapping_sub(self.ts_recent_at);
            // A bare ACK that was overtaken has nothing that could be mistaken for another's, if it
            // says nothing of the window (as Linux: tcp_disordered_ack).
            let window = u32::from(segment.window) << self.snd_scale;
            let is_bare = segment.len == 0
                && segment.seq == self.rcv_nxt()
                && segment.ack == self.snd_una
                && window == self.snd_wnd
                && !segment.has(flag::SYN | flag::FIN);
            if age_s < PAWS_S && !is_bare {
                cx.shared.stats.too_old += 1;
                self.answer_unacceptable(cx, segment);
                return false;
            }
        }
        let next = self.rcv_nxt();
        let edge = self.rcv_window.edge();
        // As Linux: also what lies below RCV.NXT, but not below what was acknowledged last, which
        // the peer may not have seen.
        let is_in = seq::ge(segment.end(), seq::min(self.rcv_wup, next))
            && seq::le(segment.seq, seq::max(edge, next));
        if is_in {
            return true;
        }
        cx.shared.stats.out_of_window += 1;
        if !segment.has(flag::RST) {
            self.answer_unacceptable(cx, segment);
        }
        false
    }

    /// `<SEQ=SND.NXT><ACK=RCV.NXT>`, unless one went a moment ago: two ends that both find the
    /// other's ACKs unacceptable would not end otherwise.
    fn answer_unacceptable<W: Wire>(&mut self, cx: &mut Context<'_, W>, segment: &Segment) {
        let is_data = segment.len > 0 && !segment.has(flag::SYN);
        if is_data && self.is(is::SACK) && seq::le(segment.end(), self.rcv_nxt()) {
            // RFC 2883 4.1.
            self.queue.report_duplicate((segment.seq, segment.end()));
        }
        if is_data || self.out_of_window.allow(cx.now_ns) {
            self.is |= is::ACK_NOW;
            self.send_ack(cx);
        }
    }

    /// RFC 5961 7: no more than a few in a while, for all connections together.
    pub(super) fn challenge<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if self.out_of_window.allow(cx.now_ns) && cx.shared.challenges.allow(cx.now_ns) {
            cx.shared.stats.challenges += 1;
            self.is |= is::ACK_NOW;
            self.send_ack(cx);
        }
    }

    /// RFC 5961 3.2: a reset counts if it is exactly the next.
    fn on_reset<W: Wire>(&mut self, cx: &mut Context<'_, W>, segment: &Segment) {
        if segment.seq != self.rcv_nxt() {
            return self.challenge(cx);
        }
        cx.shared.stats.resets_in += 1;
        let error = match self.state {
            State::SynReceived if self.is(is::ACTIVE) => Error::Refused,
            State::CloseWait => Error::Closed,
            _ => Error::Reset,
        };
        match self.state {
            State::Closing | State::LastAck => self.finish(cx, None),
            _ => self.finish(cx, Some(error)),
        }
    }

    /// RFC 9293 3.5, figure 8: the answer to a SYN that crossed the peer's. All that is new in it
    /// is its ACK.
    fn is_both_open(&self, segment: &Segment) -> bool {
        self.state == State::SynReceived
            && self.is(is::ACTIVE)
            && segment.has(flag::ACK)
            && segment.seq == self.irs
            && segment.seq_len() == 1
            && segment.ack == self.snd_nxt
    }

    /// RFC 5961 4.2; before the handshake is over, the SYN again.
    fn on_syn<W: Wire>(&mut self, cx: &mut Context<'_, W>, segment: &Segment) {
        if self.state == State::SynReceived && segment.seq == self.irs {
            if self.out_of_window.allow(cx.now_ns) {
                self.send_syn(cx);
            }
            return;
        }
        self.challenge(cx);
    }

    /// RFC 7323 4.3: the time stamp to echo is of a segment that spans what was acknowledged last.
    #[inline]
    pub(super) fn note_timestamp<W: Wire>(&mut self, cx: &Context<'_, W>, segment: &Segment) {
        if let Some((value, _)) = segment.timestamps
            && self.is(is::TIMESTAMPS)
            && seq::le(segment.seq, self.rcv_wup)
            && (seq::ge(value, self.ts_recent) || self.is_timestamp_old(cx))
        {
            self.ts_recent = value;
            self.ts_recent_at = (cx.now_ns / 1_000_000_000) as u32;
        }
    }

    fn is_timestamp_old<W: Wire>(&self, cx: &Context<'_, W>) -> bool {
        ((cx.now_ns / 1_000_000_000) as u32).wrapping_sub(self.ts_recent_at) >= PAWS_S
    }

    /// RFC 3168 6.1.3: ECE is said until the peer says CWR.
    #[inline]
    fn note_ecn<W: Wire>(&mut self, cx: &mut Context<'_, W>, segment: &Segment) {
        if !self.is(is::ECN) {
            return;
        }
        if segment.has(flag::CWR) {
            self.set(is::ECE_DUE, false);
            if segment.len > 0 {
                self.is |= is::ACK_NOW;
            }
        }
        if segment.is_ce && segment.len > 0 {
            cx.shared.stats.ce_in += 1;
            if !self.is(is::ECE_DUE) {
                self.is |= is::ACK_NOW;
            }
            self.set(is::ECE_DUE, true);
        }
    }

    /// What our FIN's acknowledgment does (RFC 9293 3.10.7.4 fifth).
    #[inline]
    fn after_ack<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if !self.is_fin_acked() {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.set_other(cx);
            }
            State::Closing => self.enter_time_wait(cx),
            State::LastAck => self.finish(cx, None),
            _ => {}
        }
    }

    fn enter_time_wait<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        self.state = State::TimeWait;
        self.events |= event::TIME_WAIT;
        self.leave_metrics(cx, true);
        self.release_sending(cx);
        (self.send_at, self.other_at) = (0, 0);
    }

    /// Seventh: the data.
    #[inline]
    pub(super) fn on_data<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        segment: &Segment,
        packet: Packet,
        l4: u32,
    ) {
        if !self.state.may_receive() || self.is(is::FIN_RECEIVED) {
            // Behind a FIN there is nothing (RFC 9293 3.10.7.4).
            return cx.wire.free(packet);
        }
        if self.is(is::READ_SHUT | is::ORPHAN) && seq::gt(segment.end(), self.rcv_nxt()) {
            // RFC 9293 3.6.1: nobody will read it, and the peer has to know.
            cx.shared.stats.data_after_close += 1;
            self.send_reset(cx);
            self.finish(cx, Some(Error::Aborted));
            return cx.wire.free(packet);
        }
        let len = segment.len;
        let limits = Limits::for_window(self.rcv_window.edge(), self.autotune.buffer());
        let span = Span {
            start: l4 + u32::from(segment.header_len),
            len,
        };
        let inserted = self.queue.insert(
            &mut cx.shared.pieces,
            cx.wire.cache(),
            packet,
            span,
            segment.seq,
            &limits,
        );
        self.note_rhythm(cx, len);
        if inserted.refused.is_some() {
            cx.shared.stats.no_room += 1;
            self.is |= is::ACK_NOW;
            return;
        }
        if inserted.advanced_bytes > 0 {
            cx.shared.stats.bytes_in += u64::from(inserted.advanced_bytes);
            self.events |= event::READABLE;
            self.is |= is::ACK_DUE;
            self.measure_receiver(cx, segment);
        }
        if inserted.is_out_of_order {
            cx.shared.stats.out_of_order += 1;
        }
        // RFC 5681 4.2.
        if inserted.is_out_of_order || inserted.filled_hole || inserted.duplicate.is_some() {
            self.is |= is::ACK_NOW;
        }
    }

    #[inline]
    fn measure_receiver<W: Wire>(&mut self, cx: &Context<'_, W>, segment: &Segment) {
        match segment.timestamps {
            Some((_, echo)) if self.is(is::TIMESTAMPS) && echo != 0 => {
                let ticks = self.ts_now(cx.now_ns).wrapping_sub(echo);
                self.autotune.on_echo(u64::from(ticks.max(1)) * 1_000_000);
            }
            _ => {
                let (next, edge) = (self.queue.next(), self.rcv_window.edge());
                self.autotune.on_segment(next, edge, cx.now_ns);
            }
        }
    }

    /// How data comes decides for how long its ACKs are delayed (as Linux: the first go at once,
    /// then a delay that follows the time between segments).
    #[inline]
    fn note_rhythm<W: Wire>(&mut self, cx: &Context<'_, W>, len: u32) {
        let now_ms = (cx.now_ns / 1_000_000) as u32;
        let whole = len.min(self.advertised_mss.into()) as u16;
        self.rcv_mss = self.rcv_mss.max(whole);
        if self.last_data_ms == 0 {
            self.quick_acks = self.quick_acks_for_window();
            self.ack_delay_ms = ACK_DELAY_MIN_MS;
        } else {
            let since = now_ms.wrapping_sub(self.last_data_ms);
            let rto_ms = (self.rtt.rto_ns() / 1_000_000) as u32;
            if since <= u32::from(ACK_DELAY_MIN_MS) / 2 {
                self.ack_delay_ms = self.ack_delay_ms / 2 + ACK_DELAY_MIN_MS / 2;
            } else if since < self.ack_delay_ms.into() {
                self.ack_delay_ms = (u32::from(self.ack_delay_ms / 2) + since).min(rto_ms) as u16;
            } else if since > rto_ms {
                // A pause: the peer's window has begun anew.
                self.quick_acks = self.quick_acks.max(self.quick_acks_for_window());
            }
        }
        self.last_data_ms = now_ms.max(1);
    }

    fn quick_acks_for_window(&self) -> u8 {
        let window = self.rcv_window.bytes(self.queue.next());
        let segments = window / (2 * u32::from(self.rcv_mss.max(1)));
        segments.clamp(2, QUICK_ACKS.into()) as u8
    }

    /// Eighth: the FIN. It counts when all before it has come.
    fn note_fin(&mut self, segment: &Segment) {
        if !self.is(is::FIN_SEEN) && self.state.may_receive() {
            self.fin_seq = segment.seq.wrapping_add(segment.len);
            self.set(is::FIN_SEEN, true);
        }
        self.is |= is::ACK_NOW;
    }

    #[inline]
    fn take_fin<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let is_due = self.is & (is::FIN_SEEN | is::FIN_RECEIVED) == is::FIN_SEEN
            && self.queue.next() == self.fin_seq;
        if !is_due {
            return;
        }
        self.is |= is::FIN_RECEIVED | is::ACK_NOW;
        self.events |= event::PEER_CLOSED | event::READABLE;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => {
                // The record answers what comes again; this FIN is answered here.
                self.send_ack(cx);
                self.enter_time_wait(cx);
            }
            _ => {}
        }
    }

    /// Whether an ACK goes at once, later, or not (RFC 9293 3.8.6.3, RFC 5681 4.2): at least for
    /// every second full segment.
    #[inline]
    pub(super) fn decide_ack<W: Wire>(&mut self, cx: &mut Context<'_, W>, segment: &Segment) {
        if self.is & (is::ACK_DUE | is::ACK_NOW) != is::ACK_DUE {
            return;
        }
        if segment.len == 0 {
            return;
        }
        let unacknowledged = self.queue.next().wrapping_sub(self.rcv_wup);
        let is_quick = self.quick_acks > 0 && self.ping_pong < PING_PONG || self.is(is::QUICK_ACK);
        if unacknowledged > self.rcv_mss.into() || is_quick {
            self.is |= is::ACK_NOW;
        } else if self.ack_at == 0 {
            let rtt_ms = self.rtt.srtt_ns().map_or(u64::MAX, |ns| ns / 1_000_000);
            let delay_ms = u64::from(self.ack_delay_ms).min(rtt_ms.max(ACK_DELAY_MIN_MS.into()));
            self.ack_at = cx.now_ns + delay_ms * 1_000_000;
        }
    }

    /// RCV.NXT, the FIN counted.
    #[inline(always)]
    pub(super) fn rcv_nxt(&self) -> u32 {
        self.queue
            .next()
            .wrapping_add(u32::from(self.is(is::FIN_RECEIVED)))
    }
}
