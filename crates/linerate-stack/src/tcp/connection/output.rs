//! What is sent, and when: RFC 9293 3.8.6 (windows), 3.7.4 (Nagle), RFC 5681 (congestion window),
//! RFC 1122 4.2.3.2 (delayed ACKs).

use linerate_wire::tcp::flag;

use super::predicted::Usually;
use super::{Awaits, Connection, Context, Ecn, Phase, Shape, State, Wire, is};
use crate::tcp::congestion::Congestion;
use crate::tcp::segment::{Header, Sacks, TIMESTAMPS_LEN};
use crate::tcp::sent::{NIL, Sent, mark};
use crate::tcp::seq;

/// Longest delay of an ACK (RFC 1122 4.2.3.2 has 500 ms; Linux 200).
pub(super) const ACK_DELAY_MAX_MS: u16 = 200;
/// Shortest.
pub(super) const ACK_DELAY_MIN_MS: u16 = 40;
/// How long one waits for slots that were not to be had.
const RETRY_NS: u64 = 1_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
/// Exchanges after which the user counts as one that answers (Linux: pingpong).
pub(super) const PING_PONG: u8 = 3;

/// What came of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Went {
    /// Something went: there may be more.
    Sent,
    /// Nothing more may go now.
    Done,
    /// There are no slots.
    NoSlots,
}

impl Connection {
    /// Sends what may be sent: what was lost, then what is new, then an ACK if one is due.
    #[inline(always)]
    pub fn push<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        self.set(is::PACED, false);
        if self.lost_unsent > 0 || self.is(is::ACK_NOW) || self.has_new() {
            self.push_some(cx, self.holds);
        }
    }

    /// The same behind a write, which others may follow soon: where the port takes long frames, one
    /// that is not as long as it may be waits behind those that went just now (as Linux does by
    /// `tcp_autocorking`, as long as its queues hold frames of the connection). Whether one does:
    /// then [`push_all`](Self::push_all) is to be called before long.
    #[inline(always)]
    pub fn push_written<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> bool {
        let unsent = self.data_end().wrapping_sub(self.snd_nxt);
        let is_much = self.sent.count() > 0 || unsent > self.mss.into();
        if !is_much || cx.wire.gso_bytes() == 0 {
            self.push(cx);
            return false;
        }
        self.set(is::PACED, false);
        self.push_some(cx, true);
        self.holds = self.has_new() && self.is_short(cx) && self.is_followed(cx);
        self.holds
    }

    /// Sends what may be sent, and what waited for more to be written.
    pub fn push_all<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        self.holds = false;
        self.push(cx);
    }

    /// Whether what is unsent is less than the longest frame, and no end, while others are under
    /// way.
    fn is_short<W: Wire>(&self, cx: &Context<'_, W>) -> bool {
        let unsent = self.data_end().wrapping_sub(self.snd_nxt);
        let most = self.frame_bytes(cx.wire.gso_bytes());
        unsent < most - most % u32::from(self.mss).max(1)
            && self.sent.count() > 0
            && !self.is(is::FIN_QUEUED)
    }

    /// Whether what is written now follows what went just now, or has waited already.
    fn is_followed<W: Wire>(&self, cx: &Context<'_, W>) -> bool {
        let last = self.sent.last();
        self.holds || last != NIL && cx.shared.records[last].sent_ns == cx.now_ns
    }

    /// `waits`: a short frame may wait behind others.
    #[inline(never)]
    fn push_some<W: Wire>(&mut self, cx: &mut Context<'_, W>, waits: bool) {
        let mut went = Went::Done;
        if self.lost_unsent > 0 && !self.is_probing_timeout() {
            went = self.retransmit_lost(cx);
        }
        if went != Went::NoSlots && self.has_new() {
            went = self.send_new(cx, waits);
        }
        if went == Went::NoSlots {
            self.await_slots(cx);
        }
        if self.is(is::ACK_NOW) {
            self.send_ack(cx);
        }
    }

    #[inline(always)]
    fn has_new(&self) -> bool {
        if self.buffer.is_empty() && !self.is(is::FIN_QUEUED) {
            return false;
        }
        let is_open = self.state.is_synchronized() || self.is_open_early();
        is_open
            && (seq::gt(self.data_end(), self.snd_nxt)
                || self.is(is::FIN_QUEUED) && !self.is(is::FIN_SENT))
    }

    fn await_slots<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        cx.shared.stats.no_slots += 1;
        self.set(is::STARVED, true);
        self.other_at = cx.now_ns + RETRY_NS;
    }

    /// New data and the FIN.
    #[inline]
    fn send_new<W: Wire>(&mut self, cx: &mut Context<'_, W>, waits: bool) -> Went {
        let mut was_sent = self.search != 0 && self.send_mtu_probe(cx);
        let went = loop {
            if waits && self.is_short(cx) && self.is_followed(cx) {
                break Went::Done;
            }
            let went = match self.send_usual(cx) {
                Usually::Last => {
                    was_sent = true;
                    break Went::Done;
                }
                Usually::Sent => Went::Sent,
                Usually::NoSlots => Went::NoSlots,
                Usually::Not => self.send_next(cx),
            };
            match went {
                Went::Sent => was_sent = true,
                other => break other,
            }
        };
        if was_sent {
            let in_flight = self.in_flight();
            // A window that is used up has limited, even if just nothing more is there to be sent.
            let is_full = in_flight >= self.control.window.cwnd_bytes;
            let is_limited = self.is(is::CWND_LIMITED) || is_full;
            self.set(is::CWND_LIMITED, false);
            self.usage
                .note_sent(self.snd_una, self.snd_nxt, in_flight, is_limited);
            if self.phase == Phase::Open && self.schedule_loss_probe(cx, false) {
                return went;
            }
            if matches!(self.awaits, Awaits::Nothing | Awaits::WindowProbe) {
                self.rearm(cx);
            }
        }
        // RFC 9293 3.8.6.1: with nothing under way somebody must ask for the window.
        let is_held = went == Went::Done && !self.is(is::PACED);
        if self.sent.count() == 0 && is_held && self.has_new() {
            self.await_window(cx);
        }
        went
    }

    /// The next frame of new data, if one may go.
    #[inline(never)]
    fn send_next<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> Went {
        let unsent = seq::diff(self.data_end(), self.snd_nxt).max(0) as u32;
        let fin = self.is(is::FIN_QUEUED) && !self.is(is::FIN_SENT);
        if unsent == 0 && !fin {
            return Went::Done;
        }
        if !self.pacer.may_send(cx.now_ns) {
            self.set(is::PACED, true);
            return Went::Done;
        }
        let mss = u32::from(self.mss);
        let in_flight = self.in_flight();
        let cwnd = self.control.window.cwnd_bytes;
        let window_end = self.snd_una.wrapping_add(self.snd_wnd);
        let window = seq::diff(window_end, self.snd_nxt).max(0) as u32;
        if unsent == 0 {
            // A FIN alone: RFC 9293 3.10.4. It goes by no congestion window, but by the peer's.
            return match window > 0 || self.snd_una == self.snd_nxt {
                true => self.send_data(cx, 0, true),
                false => Went::Done,
            };
        }
        if in_flight >= cwnd {
            self.set(is::CWND_LIMITED, true);
            return Went::Done;
        }
        let quota = match cwnd - in_flight {
            quota if quota >= mss => quota - quota % mss,
            // Less than a segment of the congestion window is left.
            _ if in_flight > 0 && unsent.min(mss) > cwnd - in_flight => {
                self.set(is::CWND_LIMITED, true);
                return Went::Done;
            }
            _ => mss,
        };
        let most = self.frame_bytes(cx.wire.gso_bytes());
        let most = match self.pacer.is_on() {
            true => most.min(self.pacer.burst_bytes(mss)),
            false => most,
        };
        let mut len = unsent.min(window).min(quota).min(most);
        if len >= mss {
            let rest = len % mss;
            if rest != 0 && (len < unsent || !self.may_send_small(unsent, fin)) {
                len -= rest;
            }
        } else if len < unsent {
            // RFC 9293 3.8.6.2.1: neither a segment nor all there is.
            let is_half = len > 0 && len >= self.max_wnd / 2;
            if !is_half {
                return Went::Done;
            }
        } else if !self.may_send_small(unsent, fin) {
            return Went::Done;
        }
        let ends = len == unsent && fin && len <= most;
        self.send_data(cx, len, ends)
    }

    /// The longest payload of a frame, of `gso_bytes` that the port takes: what the window lets go
    /// in about a millisecond, but two segments, as Linux (tcp_tso_autosize). A queue that is short
    /// for the path would have no room for more at once.
    #[inline]
    fn frame_bytes(&self, gso_bytes: u32) -> u32 {
        let mss = u32::from(self.mss);
        // Each segment of a frame would have the urgent pointer of the first; and beside a probe of
        // the MTU no other frame is longer than a segment.
        let gso_bytes = if self.urgent | self.probe_len == 0 {
            gso_bytes
        } else {
            0
        };
        if gso_bytes <= 2 * mss {
            return gso_bytes.max(mss);
        }
        let Some(srtt_ns) = self.rtt.srtt_ns().filter(|ns| *ns > MILLISECOND_NS) else {
            return gso_bytes;
        };
        let bytes = u64::from(self.control.window.cwnd_bytes) * MILLISECOND_NS / srtt_ns;
        (bytes as u32).clamp(2 * mss, gso_bytes)
    }

    /// Nagle's algorithm (RFC 9293 3.7.4) in Minshall's form, as Linux has it: one small segment at
    /// a time, but full ones do not wait for it.
    #[inline(always)]
    pub(super) fn may_send_small(&self, unsent: u32, fin: bool) -> bool {
        if self.is(is::CORK) && !fin {
            return false;
        }
        // As Linux: what is urgent does not wait either.
        if self.is(is::NO_DELAY)
            || fin
            || self.urgent != 0
            || unsent >= self.mss.into() && self.snd_una == self.snd_nxt
        {
            return true;
        }
        // Nothing small is under way.
        self.snd_una == self.snd_nxt
            || seq::le(self.small_end, self.snd_una)
            || seq::gt(self.small_end, self.snd_nxt)
    }

    /// Sends `len` bytes from SND.NXT on, and the FIN.
    #[inline]
    pub(super) fn send_data<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        len: u32,
        fin: bool,
    ) -> Went {
        if !cx.shared.records.has_room() {
            return Went::NoSlots;
        }
        let seq_no = self.snd_nxt;
        let mut flags = flag::ACK;
        if fin {
            flags |= flag::FIN;
        }
        let end = seq_no.wrapping_add(len);
        // RFC 9293 3.9.1 (MUST-61): nothing follows. Where the peer's window is used up nothing
        // can, until the peer has read this.
        let window_end = self.snd_una.wrapping_add(self.snd_wnd);
        if len > 0 && (end == self.data_end() || end == window_end) {
            flags |= flag::PSH;
        }
        let mut ecn = Ecn::NotCapable;
        if self.is(is::ECN) && len > 0 {
            ecn = Ecn::Capable;
            if self.is(is::CWR_DUE) {
                flags |= flag::CWR;
            }
        }
        if !self.transmit(cx, seq_no, len, flags, ecn) {
            // Slots for long frames may be none, or all in use: then the next segment alone.
            let mss = u32::from(self.mss);
            return match len > mss {
                true => self.send_data(cx, mss, false),
                false => Went::NoSlots,
            };
        }
        if flags & flag::CWR != 0 {
            self.set(is::CWR_DUE, false);
        }
        let is_idle = self.sent.count() == 0;
        let stamp = self.delivery.on_send(cx.now_ns, is_idle);
        let end_seq = end.wrapping_add(fin.into());
        let marks = if fin { mark::FIN } else { 0 };
        let pushed = self.sent.push(
            &mut cx.shared.records,
            (seq_no, end_seq),
            marks,
            cx.now_ns,
            stamp,
        );
        debug_assert!(pushed.is_some());
        self.snd_nxt = end_seq;
        self.set(is::FIN_SENT, self.is(is::FIN_SENT) || fin);
        if !len.is_multiple_of(u32::from(self.mss)) {
            self.small_end = end;
        }
        self.pacer.sent(len, cx.now_ns);
        if matches!(self.phase, Phase::Cwr | Phase::Recovery) {
            self.prr.on_sent(len);
        }
        if len > 0 {
            self.note_answer(cx.now_ns);
        }
        cx.shared.stats.bytes_out += u64::from(len);
        Went::Sent
    }

    /// Data go now.
    #[inline]
    pub(super) fn note_answer(&mut self, now_ns: u64) {
        let now_ms = (now_ns / 1_000_000) as u32;
        // They answer what came a moment ago: ACKs ride on answers.
        if now_ms.wrapping_sub(self.last_data_ms) < self.ack_delay_ms.into() {
            self.ping_pong = self.ping_pong.saturating_add(1);
        }
        self.last_sent_ms = now_ms;
    }

    /// Retransmits what counts as lost, oldest first, as far as the congestion window allows.
    fn retransmit_lost<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> Went {
        let mut index = self.sent.first();
        let mut was_sent = false;
        let mut went = Went::Done;
        while index != NIL && self.lost_unsent > 0 {
            let record = cx.shared.records[index];
            if !record.has(mark::LOST) || record.has(mark::RETRANS | mark::SACKED) {
                index = Sent::next(&cx.shared.records, index);
                continue;
            }
            let in_flight = self.in_flight();
            let cwnd = self.control.window.cwnd_bytes;
            if in_flight >= cwnd {
                break;
            }
            if !self.pacer.may_send(cx.now_ns) {
                self.set(is::PACED, true);
                break;
            }
            went = self.retransmit(cx, index, cwnd - in_flight);
            if went != Went::Sent {
                break;
            }
            was_sent = true;
            index = Sent::next(&cx.shared.records, index);
        }
        if was_sent {
            if matches!(self.awaits, Awaits::Nothing | Awaits::LossProbe) {
                self.rearm(cx);
            }
            return match went {
                Went::NoSlots => Went::NoSlots,
                _ => Went::Sent,
            };
        }
        went
    }

    /// Sends a record again, at most about `budget` bytes of it: the rest becomes another.
    fn retransmit<W: Wire>(&mut self, cx: &mut Context<'_, W>, index: u32, budget: u32) -> Went {
        let record = cx.shared.records[index];
        let mss = u32::from(self.mss).max(1);
        let most = (budget - budget % mss).clamp(mss, self.frame_bytes(cx.wire.gso_bytes()));
        let fin_len = u32::from(record.has(mark::FIN));
        // RFC 9293 3.8.6: not beyond the peer's window, but for the first.
        let window_end = self.snd_una.wrapping_add(self.snd_wnd);
        let room = seq::diff(window_end, record.seq).max(0) as u32;
        // Nor a part of a segment, but of the first: a window that opens byte by byte would make a
        // record of each.
        if room < record.len().min(mss) && record.seq != self.snd_una {
            return Went::Done;
        }
        let most = match room {
            0 => mss,
            room => most.min(room),
        };
        if !record.has(mark::SYN) && record.len() - fin_len > most {
            let at = record.seq.wrapping_add(most);
            if self.sent.split(&mut cx.shared.records, index, at).is_none() {
                return Went::NoSlots;
            }
        }
        match self.resend(cx, index) {
            Went::NoSlots => self.resend_segment(cx, index),
            went => went,
        }
    }

    /// Sends the first segment of a record again that is longer: there was no slot for all of it.
    #[cold]
    fn resend_segment<W: Wire>(&mut self, cx: &mut Context<'_, W>, index: u32) -> Went {
        let record = cx.shared.records[index];
        let mss = u32::from(self.mss);
        if record.has(mark::SYN) || record.len() - u32::from(record.has(mark::FIN)) <= mss {
            return Went::NoSlots;
        }
        let at = record.seq.wrapping_add(mss);
        match self.sent.split(&mut cx.shared.records, index, at) {
            Some(_) => self.resend(cx, index),
            None => Went::NoSlots,
        }
    }

    /// Sends a whole record again.
    fn resend<W: Wire>(&mut self, cx: &mut Context<'_, W>, index: u32) -> Went {
        let record = cx.shared.records[index];
        let went = if record.has(mark::SYN) {
            self.send_syn(cx)
        } else {
            let fin = record.has(mark::FIN);
            let len = record.len() - u32::from(fin);
            let mut flags = flag::ACK;
            if fin {
                flags |= flag::FIN;
            }
            if len > 0 && record.seq.wrapping_add(len) == self.data_end() {
                flags |= flag::PSH;
            }
            // RFC 3168 6.1.5: retransmissions are not ECN-capable.
            self.transmit(cx, record.seq, len, flags, Ecn::NotCapable)
        };
        if !went {
            return Went::NoSlots;
        }
        if self.probe_len != 0 {
            self.forget_mtu_probe(cx.shared);
        }
        let stamp = self.delivery.on_send(cx.now_ns, false);
        let len = record.len();
        if !record.has(mark::RETRANS) {
            self.retrans += len;
            if record.has(mark::LOST) {
                self.lost_unsent = self.lost_unsent.saturating_sub(len);
            }
        }
        self.sent
            .resent(&mut cx.shared.records, index, cx.now_ns, stamp);
        if self.has_undo {
            self.undo_retrans = self.undo_retrans.max(0).saturating_add(len as i32);
        }
        if self.retrans_stamp == 0 {
            self.retrans_stamp = self.ts_now(cx.now_ns).max(1);
        }
        self.pacer.sent(len, cx.now_ns);
        if matches!(self.phase, Phase::Cwr | Phase::Recovery) {
            self.prr.on_sent(len);
        }
        cx.shared.stats.retransmitted += 1;
        Went::Sent
    }

    /// Sends the first record again, whatever the congestion window says: for timers.
    pub(super) fn resend_first<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> bool {
        let index = self.sent.first();
        index != NIL && self.retransmit(cx, index, self.mss.into()) == Went::Sent
    }

    /// The loss probe (RFC 8985 7.3): new data, or the last segment once more.
    pub(super) fn send_probe<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> bool {
        let end = self.snd_nxt;
        let window_end = self.snd_una.wrapping_add(self.snd_wnd);
        let unsent = seq::diff(self.data_end(), self.snd_nxt).max(0) as u32;
        let window = seq::diff(window_end, self.snd_nxt).max(0) as u32;
        let len = unsent.min(window).min(self.mss.into());
        if len > 0 {
            let fin = len == unsent && self.is(is::FIN_QUEUED) && !self.is(is::FIN_SENT);
            self.set(is::PROBE_RETRANS, false);
            self.probe_point = end;
            self.has_probe_point = self.send_data(cx, len, fin) == Went::Sent;
            if self.has_probe_point {
                self.probe_point = self.snd_nxt;
            }
            return self.has_probe_point;
        }
        let mut last = self.sent.last();
        if last == NIL || cx.shared.records[last].has(mark::SACKED) {
            return false;
        }
        let record = cx.shared.records[last];
        if record.len() > u32::from(self.mss) + u32::from(record.has(mark::FIN)) {
            let at = record.end.wrapping_sub(self.mss.into());
            match self.sent.split(&mut cx.shared.records, last, at) {
                Some(rest) => last = rest,
                None => return false,
            }
        }
        if self.resend(cx, last) != Went::Sent {
            return false;
        }
        self.set(is::PROBE_RETRANS, true);
        (self.probe_point, self.has_probe_point) = (end, true);
        true
    }

    /// Asks for the window: one segment if it takes any, else an ACK of what was acknowledged
    /// already, which is answered (RFC 9293 3.8.6.1; Linux does not send a byte either).
    pub(super) fn send_window_probe<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> bool {
        let window_end = self.snd_una.wrapping_add(self.snd_wnd);
        let window = seq::diff(window_end, self.snd_nxt).max(0) as u32;
        let unsent = seq::diff(self.data_end(), self.snd_nxt).max(0) as u32;
        let len = unsent.min(window).min(self.mss.into());
        if len > 0 {
            return self.send_data(cx, len, false) == Went::Sent;
        }
        cx.shared.stats.window_probes += 1;
        if self.urgent != 0 && self.urgent_pointer(cx.shared, self.snd_una) != 0 {
            // RFC 9293 3.8.6.1 (MUST-66): what is urgent is known to the peer before it can be
            // sent; below SND.UNA nobody would look at it.
            self.transmit(cx, self.snd_una, 0, flag::ACK, Ecn::NotCapable);
        }
        self.send_keepalive(cx)
    }

    /// An ACK from below SND.UNA, which the peer answers (RFC 9293 3.8.4).
    pub(super) fn send_keepalive<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> bool {
        let seq_no = self.snd_una.wrapping_sub(1);
        self.transmit(cx, seq_no, 0, flag::ACK, Ecn::NotCapable)
    }

    /// An ACK, now.
    #[inline]
    pub(super) fn send_ack<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if self.state == State::Closed {
            return;
        }
        let is_usual = self.is & (is::TIMESTAMPS | is::ECE_DUE) == is::TIMESTAMPS;
        let went = match is_usual && !self.queue.has_sack() {
            true => self.transmit_usual(cx, self.snd_nxt, 0, flag::ACK),
            false => self.transmit(cx, self.snd_nxt, 0, flag::ACK, Ecn::NotCapable),
        };
        if !went {
            // It is due still.
            cx.shared.stats.no_slots += 1;
            self.is = self.is & !is::ACK_NOW | is::ACK_DUE;
            self.ack_at = cx.now_ns + RETRY_NS;
        }
    }

    /// A reset, from SND.NXT on.
    pub(super) fn send_reset<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        cx.shared.stats.resets_out += 1;
        self.transmit(cx, self.snd_nxt, 0, flag::RST | flag::ACK, Ecn::NotCapable);
    }

    /// A reset that answers a segment with an ACK (RFC 9293 3.10.7.3).
    pub(super) fn send_reset_of<W: Wire>(&mut self, cx: &mut Context<'_, W>, ack: u32) {
        cx.shared.stats.resets_out += 1;
        let header = Header {
            seq: ack,
            flags: flag::RST,
            ..Header::default()
        };
        let shape = Shape {
            len: 0,
            gso_size: 0,
            ecn: Ecn::NotCapable,
        };
        cx.wire.send(&header, shape, |_| {});
    }

    /// Writes a frame. What it acknowledges is noted.
    #[inline(never)]
    fn transmit<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        seq_no: u32,
        len: u32,
        flags: u8,
        ecn: Ecn,
    ) -> bool {
        let mut flags = flags;
        if self.is(is::ECE_DUE) {
            flags |= flag::ECE;
        }
        let timestamps = self
            .is(is::TIMESTAMPS)
            .then(|| (self.ts_now(cx.now_ns), self.ts_recent));
        let mut sacks = Sacks::NONE;
        let mut is_cut = false;
        if self.is(is::SACK) && self.queue.has_sack() {
            let mut blocks = [(0, 0); 4];
            // A full segment has no room for them: then an ACK of its own has them.
            let room = sacks_beside(self.path_mss, len, timestamps.is_some());
            is_cut = room == 0;
            let blocks = &mut blocks[..room];
            let count = self.queue.sack_blocks(&cx.shared.pieces, blocks);
            blocks[..count].iter().for_each(|&block| sacks.push(block));
        }
        let window = self.announce();
        let urgent = match self.urgent {
            0 => 0,
            _ => self.urgent_pointer(cx.shared, seq_no),
        };
        flags |= if urgent != 0 { flag::URG } else { 0 };
        let header = Header {
            seq: seq_no,
            ack: self.rcv_nxt(),
            flags,
            window,
            urgent,
            timestamps,
            sacks,
            syn: None,
        };
        let mss = u32::from(self.mss);
        let shape = Shape {
            len,
            gso_size: if len > mss && len != u32::from(self.probe_len) {
                self.mss
            } else {
                0
            },
            ecn,
        };
        let offset = seq_no.wrapping_sub(self.data_seq);
        let (buffer, chunks) = (&mut self.buffer, &cx.shared.chunks);
        let went = cx.wire.send(&header, shape, |room| {
            // What is sent is in the buffer: it is discarded when it is acknowledged, not before.
            if !room.is_empty() {
                buffer.copy_out_unsummed(chunks, offset, room);
            }
        });
        if went {
            let is_due = is_cut && self.is(is::ACK_NOW);
            self.acknowledged(header.ack);
            self.set(is::ACK_NOW, is_due);
            cx.shared.stats.segments_out += 1;
        }
        went
    }

    /// An ACK has gone, by itself or with something else.
    #[inline]
    pub(super) fn acknowledged(&mut self, ack: u32) {
        self.is &= !(is::ACK_NOW | is::ACK_DUE);
        self.ack_at = 0;
        self.rcv_wup = ack;
        self.quick_acks = self.quick_acks.saturating_sub(1);
    }

    /// The window to tell, as it stands in a header. Its right edge never goes back (RFC 9293
    /// 3.8.6, RFC 7323 2.4).
    #[inline]
    pub(super) fn announce(&mut self) -> u16 {
        let buffer = self.autotune.buffer();
        let free = buffer.saturating_sub(self.queue.readable());
        self.rcv_window
            .offer(self.queue.next(), free, buffer, self.rcv_mss.into())
    }

    /// The payload bytes of a segment: what the path and the peer allow, less the options that
    /// every segment has (RFC 9293 3.7.1, RFC 6691).
    pub(super) fn set_mss(&mut self, path_mss: u16) {
        self.path_mss = path_mss;
        let options = match self.is(is::TIMESTAMPS) {
            true => TIMESTAMPS_LEN as u16,
            false => 0,
        };
        self.mss = path_mss.saturating_sub(options).max(MIN_MSS);
        self.control.window.set_mss(self.mss);
    }

    /// Whether something may be sent that the user gave while nothing was under way for longer
    /// than the timeout: the window begins anew (RFC 5681 4.1).
    pub(super) fn restart_if_idle<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        // What waits was written after the pause, which counts once.
        if self.sent.count() > 0 || self.last_sent_ms == 0 || !self.buffer.is_empty() {
            return;
        }
        let now_ms = (cx.now_ns / 1_000_000) as u32;
        let idle_ns = u64::from(now_ms.wrapping_sub(self.last_sent_ms)) * 1_000_000;
        if idle_ns > 0 {
            let rto_ns = match cx.shared.config.slow_start_after_idle {
                true => self.rtt.rto_ns(),
                false => u64::MAX,
            };
            self.control.on_idle(idle_ns, rto_ns, cx.now_ns);
        }
    }

    /// What is measured of the bytes under way now, and of those written next, is how fast the user
    /// writes: neither window nor losses hold anything back
    /// (draft-cheng-iccrg-delivery-rate-estimation-00 3.4).
    #[inline]
    pub(super) fn note_user_limit(&mut self) {
        if self.control.algorithm.is_by_prr() {
            return; // nobody asks
        }
        let unsent = seq::diff(self.data_end(), self.snd_nxt).max(0) as u32;
        let in_flight = self.in_flight();
        if unsent < self.mss.into()
            && self.lost_unsent == 0
            && in_flight < self.control.window.cwnd_bytes
        {
            self.delivery.on_app_limited(in_flight);
        }
    }
}

/// SACK blocks that a segment has room for beside `len` bytes of payload.
#[inline]
fn sacks_beside(path_mss: u16, len: u32, has_timestamps: bool) -> usize {
    let (most, taken) = match has_timestamps {
        true => (3, TIMESTAMPS_LEN),
        false => (4, 0),
    };
    let room = usize::from(path_mss).saturating_sub(len as usize + taken);
    (room.saturating_sub(4) / 8).min(most)
}

/// The least that a segment has room for, whatever a peer or a path says (Linux: tcp_min_snd_mss):
/// segments of a few bytes would make much work of little data.
pub(super) const MIN_MSS: u16 = 48;
