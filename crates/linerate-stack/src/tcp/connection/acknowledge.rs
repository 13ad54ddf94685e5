//! What an ACK says of what was sent (RFC 9293 3.10.7.4 fifth, RFC 2018, RFC 2883, RFC 6675).

use super::recovery::Told;
use super::{Connection, Context, Phase, State, Wire, is};
use crate::tcp::congestion::rate::Sampler;
use crate::tcp::congestion::{Ack, Congestion};
use crate::tcp::segment::Segment;
use crate::tcp::sent::{NIL, Sent, mark};
use crate::tcp::seq;

/// What an ACK has told: bits.
pub(super) mod told {
    /// SND.UNA has advanced.
    pub(crate) const ADVANCED: u16 = 1;
    /// A SACK has told of bytes that were not known to have arrived.
    pub(crate) const SACKED: u16 = 2;
    /// A D-SACK came.
    pub(crate) const DSACK: u16 = 4;
    /// Bytes that were sent once only, before loss was noticed, have arrived.
    pub(crate) const ORIGINAL: u16 = 8;
    /// Bytes that had been sent again are acknowledged.
    pub(crate) const RETRANSMITTED: u16 = 16;
    /// The SYN is.
    pub(crate) const SYN: u16 = 32;
    /// The window has changed.
    pub(crate) const WINDOW: u16 = 64;
    /// The peer has met congestion (RFC 3168 6.1.3).
    pub(crate) const ECE: u16 = 128;
    /// The segment has data or controls of its own.
    pub(crate) const DATA: u16 = 256;
    /// A retransmission was lost as well.
    pub(crate) const LOST_RETRANS: u16 = 512;
}

/// Round trips that an ACK has measured.
#[derive(Default)]
pub(super) struct Trips {
    /// When the first and the last of the bytes were sent that are acknowledged and were sent once.
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// The same of those that a SACK has told of.
    first_sacked_ns: Option<u64>,
    last_sacked_ns: Option<u64>,
    /// Lowest sequence number that arrived behind a higher one.
    reordered: Option<u32>,
    /// What delivery was like.
    pub(super) sampler: Sampler,
}

impl Trips {
    #[inline(always)]
    pub(super) fn acked(&mut self, sent_ns: u64) {
        self.first_ns = self.first_ns.or(Some(sent_ns));
        self.last_ns = Some(sent_ns);
    }

    fn sacked(&mut self, sent_ns: u64) {
        self.first_sacked_ns = self.first_sacked_ns.or(Some(sent_ns));
        self.last_sacked_ns = Some(sent_ns);
    }

    fn reorder(&mut self, seq: u32) {
        if self.reordered.is_none_or(|known| seq::lt(seq, known)) {
            self.reordered = Some(seq);
        }
    }
}

impl Connection {
    /// Handles the acknowledgment of an acceptable segment. False where the segment is to be
    /// dropped: it acknowledges what was never sent, or is too old (RFC 5961 5.2).
    #[inline]
    pub(super) fn on_ack<W: Wire>(&mut self, cx: &mut Context<'_, W>, segment: &Segment) -> bool {
        let ack = segment.ack;
        if seq::gt(ack, self.snd_nxt) {
            cx.shared.stats.acks_of_nothing += 1;
            self.challenge(cx);
            return false;
        }
        let is_old = seq::lt(ack, self.snd_una);
        if is_old && seq::diff(ack, self.snd_una) < -(self.max_wnd.min(1 << 30) as i32) {
            cx.shared.stats.old_acks += 1;
            self.challenge(cx);
            return false;
        }
        let mut flags = 0;
        if segment.seq_len() > 0 {
            flags |= told::DATA;
        }
        if segment.has(linerate_wire::tcp::flag::ECE) && self.is(is::ECN) {
            flags |= told::ECE;
        }
        let (prior_una, prior_in_flight) = (self.snd_una, self.in_flight());
        let prior_delivered = self.delivery.delivered();
        let prior_sacked = self.sacked;
        let mut trips = Trips::default();
        if !is_old && ack != self.snd_una {
            flags |= told::ADVANCED;
            self.snd_una = ack;
            self.retries = 0;
        }
        if !is_old {
            flags |= self.update_window(segment);
            self.on_answer();
        }
        let prior_fack = self.rack_fack;
        if self.sent.count() == 0 {
            if flags & told::ADVANCED == 0 && !is_old {
                self.on_probe_answer();
            }
            if self.is(is::SACK) && !segment.sacks.is_empty() {
                flags |= self.on_sacks(cx, segment, prior_una, &mut trips);
            }
            self.check_probe(cx, ack, flags);
            if flags & told::DSACK != 0 {
                // RFC 2883 4: that the last retransmission was needless comes behind its ACK.
                self.on_trouble(cx, &Told::of(flags & told::DSACK));
            }
            return true;
        }
        if self.is(is::SACK) && !segment.sacks.is_empty() {
            flags |= self.on_sacks(cx, segment, prior_una, &mut trips);
        } else if is_old {
            return true;
        }
        if flags & told::ADVANCED != 0 {
            flags |= self.clean_acked(cx, &mut trips);
            if !self.is(is::SACK) && flags & told::RETRANSMITTED != 0 {
                // What came behind a hole is acknowledged with what has filled it: that it was sent
                // once says nothing of the timeout (RFC 5682 2.1; Linux: tcp_clean_rtx_queue).
                flags &= !told::ORIGINAL;
            }
            if self.probe_len != 0 {
                self.settle_mtu_probe(cx);
            }
        }
        let rtt_ns = self.measure(cx, segment, flags, &trips);
        if let Some(low) = trips.reordered
            && seq::lt(low, prior_fack)
        {
            // RFC 8985 6.2 step 3.
            self.set(is::REORDERING, true);
            cx.shared.stats.reordered += 1;
        }
        // RFC 5681 2: a duplicate acknowledgment.
        let is_duplicate = flags & (told::ADVANCED | told::DATA | told::WINDOW) == 0
            && !is_old
            && self.sent.count() > 0;
        if flags & told::ADVANCED != 0 {
            cx.wire.confirm();
            if self.awaits != super::Awaits::Nothing || self.sent.count() == 0 {
                self.rearm(cx);
            }
        }
        self.check_probe(cx, ack, flags);
        let told = Told {
            flags,
            is_duplicate,
            newly_acked: self.snd_una.wrapping_sub(prior_una),
            newly_sacked: self.sacked.saturating_sub(prior_sacked),
            echo: segment.timestamps.map(|(_, echo)| echo),
        };
        let is_plain = flags & (told::SACKED | told::ECE | told::DSACK) == 0
            && !is_duplicate
            && self.phase == Phase::Open
            && self.sacked == 0;
        // Nothing is sent until the end: what is marked lost now, a retransmission as well, is
        // added here, while the count of what is lost falls by what the ACK has told of.
        let prior_unsent = self.lost_unsent;
        if !is_plain {
            self.on_trouble(cx, &told);
        }
        let lost_bytes = self.lost_unsent.saturating_sub(prior_unsent);
        let delivered = self.delivery.delivered().wrapping_sub(prior_delivered);
        let min_rtt_ns = self.rtt.min_rtt_ns(cx.now_ns);
        let rate = trips
            .sampler
            .finish(&mut self.delivery, cx.now_ns, min_rtt_ns);
        let ack = Ack {
            now_ns: cx.now_ns,
            acked_bytes: delivered,
            in_flight_bytes: prior_in_flight,
            lost_bytes,
            rtt_ns,
            srtt_ns: self.rtt.srtt_ns().unwrap_or(0),
            snd_una: self.snd_una,
            snd_nxt: self.snd_nxt,
            is_cwnd_limited: self.usage.is_limited(&self.control.window),
            in_recovery: match self.control.algorithm.is_by_prr() {
                true => matches!(self.phase, Phase::Recovery | Phase::Cwr),
                false => self.phase == Phase::Recovery && !self.is(is::UNDONE),
            },
            delivery: rate,
        };
        self.control_window(cx, &told, &ack);
        if self.sent.count() > 0 && flags & (told::ADVANCED | told::SACKED) != 0 {
            self.schedule_loss_probe(cx, flags & told::ADVANCED != 0);
        }
        true
    }

    /// The peer is there: what it did not answer counts no more. RFC 9293 3.8.6.1 (SHLD-30): the
    /// time between probes of a window that stays closed goes on to grow.
    #[inline]
    pub(super) fn on_answer(&mut self) {
        match self.awaits {
            super::Awaits::LossProbe => {}
            super::Awaits::WindowProbe if self.snd_wnd == 0 => self.retries = 0,
            super::Awaits::WindowProbe => (self.retries, self.probes) = (0, 0),
            _ => self.probes = 0,
        }
    }

    /// RFC 9293 3.10.7.4: the window of a segment that is not older than the one that it is of.
    #[inline]
    fn update_window(&mut self, segment: &Segment) -> u16 {
        let scale = match segment.has(linerate_wire::tcp::flag::SYN) {
            true => 0,
            false => self.snd_scale,
        };
        let window = u32::from(segment.window) << scale;
        let is_newer = seq::gt(segment.seq, self.snd_wl1)
            || segment.seq == self.snd_wl1
                && (segment.ack != self.snd_una || window > self.snd_wnd);
        let is_of_now = seq::ge(segment.seq, self.snd_wl1);
        if !(is_newer || is_of_now) {
            return 0;
        }
        self.snd_wl1 = segment.seq;
        self.max_wnd = self.max_wnd.max(window);
        let before = std::mem::replace(&mut self.snd_wnd, window);
        match before == window {
            true => 0,
            false => told::WINDOW,
        }
    }

    /// SACK blocks. Those that lie are ignored (RFC 2018 5.1 has nothing of them; Linux does so).
    fn on_sacks<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        segment: &Segment,
        prior_una: u32,
        trips: &mut Trips,
    ) -> u16 {
        let mut flags = 0;
        let blocks = segment.sacks.as_slice();
        let is_dsack = self.is_dsack(blocks, segment.ack);
        let mut sorted = segment.sacks;
        let blocks = sorted.sort();
        if is_dsack {
            flags |= told::DSACK;
            let (left, right) = segment.sacks.as_slice()[0];
            self.on_dsack(cx, left, right, prior_una);
        }
        for &(left, right) in blocks {
            let is_sound =
                seq::lt(left, right) && seq::ge(left, self.snd_una) && seq::le(right, self.snd_nxt);
            if !is_sound {
                // What is acknowledged by now was told by an ACK that was overtaken.
                let is_old = seq::lt(left, right) && seq::le(right, self.snd_una);
                if !(is_old || is_dsack && (left, right) == segment.sacks.as_slice()[0]) {
                    cx.shared.stats.bad_sacks += 1;
                }
                continue;
            }
            flags |= self.on_block(cx, left, right, trips);
        }
        flags
    }

    /// RFC 2883 4: the first block tells of bytes below the acknowledgment, or within the second.
    fn is_dsack(&self, blocks: &[(u32, u32)], ack: u32) -> bool {
        match *blocks {
            [(left, right), ..] if seq::lt(left, ack) => seq::le(right, ack),
            [(left, right), (left2, right2), ..] => seq::ge(left, left2) && seq::le(right, right2),
            _ => false,
        }
    }

    fn on_dsack<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        left: u32,
        right: u32,
        prior_una: u32,
    ) {
        let len = right.wrapping_sub(left);
        // One that tells of what was never sent, or long ago, is a lie.
        if seq::ge(left, right) || len > self.max_wnd.max(1 << 16) || seq::gt(right, self.snd_nxt) {
            cx.shared.stats.bad_sacks += 1;
            return;
        }
        cx.shared.stats.dsacks += 1;
        self.set(is::DSACK_SEEN, true);
        // It is of a retransmission if one was made for the span.
        if self.has_undo && self.undo_retrans > 0 && seq::gt(right, self.undo_point) {
            let len = len.min(i32::MAX as u32) as i32;
            self.undo_retrans = (self.undo_retrans - len).max(0);
        }
        let is_of_probe = self.has_probe_point
            && self.is(is::PROBE_RETRANS)
            && right == self.probe_point
            && seq::le(right, prior_una.max(self.snd_una));
        if is_of_probe {
            // RFC 8985 7.4.2: both the segment and its probe have arrived.
            self.has_probe_point = false;
        }
    }

    /// Bytes from `left` to `right` have arrived.
    fn on_block<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        left: u32,
        right: u32,
        trips: &mut Trips,
    ) -> u16 {
        let mut flags = 0;
        let mut index = self.sent.near(&cx.shared.records, left);
        while index != NIL {
            let record = cx.shared.records[index];
            if seq::ge(record.seq, right) {
                break;
            }
            if seq::le(record.end, left) || record.has(mark::SACKED) {
                index = Sent::next(&cx.shared.records, index);
                continue;
            }
            // A frame is divided where its segments are, so that a peer that tells of single bytes
            // does not make a record of each (Linux: tcp_match_skb_to_sack).
            let mss = u32::from(self.mss).max(1);
            if seq::lt(record.seq, left) {
                let at = left.wrapping_sub(record.seq).next_multiple_of(mss);
                if at >= record.len() {
                    index = Sent::next(&cx.shared.records, index);
                    continue;
                }
                let at = record.seq.wrapping_add(at);
                match self.sent.split(&mut cx.shared.records, index, at) {
                    Some(rest) => index = rest,
                    None => break,
                }
            }
            let record = cx.shared.records[index];
            if seq::gt(record.end, right) {
                let len = seq::diff(right, record.seq).max(0) as u32;
                // A receiver may keep a FIN apart from the bytes before it.
                let is_all_but_fin = record.has(mark::FIN) && len + 1 == record.len();
                let whole = if is_all_but_fin { len } else { len - len % mss };
                let at = record.seq.wrapping_add(whole);
                if whole == 0 || self.sent.split(&mut cx.shared.records, index, at).is_none() {
                    break;
                }
            }
            let index_of = self.on_sacked(cx, index, trips);
            flags |= told::SACKED | index_of.1;
            index = Sent::next(&cx.shared.records, index_of.0);
        }
        flags
    }

    /// A whole record has arrived, ahead of others. Returns where it is now, and what that tells.
    fn on_sacked<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        index: u32,
        trips: &mut Trips,
    ) -> (u32, u16) {
        let record = cx.shared.records[index];
        let len = record.len();
        let mut flags = 0;
        self.advance_rack(cx.now_ns, &record);
        trips
            .sampler
            .deliver(&mut self.delivery, &record.stamp, record.sent_ns, len);
        self.uncount(record.marks, len);
        if !record.has(mark::RETRANS | mark::EVER_RETRANS) {
            if seq::lt(record.seq, self.rack_fack) {
                trips.reorder(record.seq);
            }
            if seq::le(record.end, self.recovery_point) {
                flags |= told::ORIGINAL;
            }
            trips.sacked(record.sent_ns);
        }
        cx.shared.records[index].marks &= !(mark::LOST | mark::RETRANS);
        self.sacked += len;
        if seq::gt(record.end, self.rack_fack) {
            self.rack_fack = record.end;
        }
        (self.sent.sacked(&mut cx.shared.records, index), flags)
    }

    /// Frees the records below SND.UNA, and what was sent of the buffer.
    #[inline]
    fn clean_acked<W: Wire>(&mut self, cx: &mut Context<'_, W>, trips: &mut Trips) -> u16 {
        let flags = self.clean_records(cx, trips);
        self.clean_buffer(cx);
        let is_reneged = self.sent.is_first_sacked(&cx.shared.records);
        self.set(is::RENEGED, is_reneged);
        flags
    }

    /// Frees the records below SND.UNA.
    pub(super) fn clean_records<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        trips: &mut Trips,
    ) -> u16 {
        let mut flags = 0;
        let una = self.snd_una;
        loop {
            let index = self.sent.first();
            if index == NIL || seq::ge(cx.shared.records[index].seq, una) {
                break;
            }
            if seq::gt(cx.shared.records[index].end, una)
                && self
                    .sent
                    .split(&mut cx.shared.records, index, una)
                    .is_none()
            {
                // Without room for another record its acknowledged part is only cut off.
                let record = &mut cx.shared.records[index];
                let cut = una.wrapping_sub(std::mem::replace(&mut record.seq, una));
                let marks = record.marks;
                self.uncount(marks, cut);
                break;
            }
            let record = cx.shared.records[index];
            let len = record.len();
            self.uncount(record.marks, len);
            if record.has(mark::EVER_RETRANS) {
                flags |= told::RETRANSMITTED;
            } else if !record.has(mark::SACKED) {
                trips.acked(record.sent_ns);
                if seq::lt(record.seq, self.rack_fack) {
                    trips.reorder(record.seq);
                }
                if seq::le(record.end, self.recovery_point) {
                    flags |= told::ORIGINAL;
                }
            }
            if !record.has(mark::SACKED) {
                self.advance_rack(cx.now_ns, &record);
                trips
                    .sampler
                    .deliver(&mut self.delivery, &record.stamp, record.sent_ns, len);
            }
            if record.has(mark::SYN) {
                flags |= told::SYN;
            }
            self.sent.remove_first(&mut cx.shared.records);
        }
        flags
    }

    /// `len` sequence numbers with these marks are under way no longer.
    #[inline]
    fn uncount(&mut self, marks: u8, len: u32) {
        if marks & mark::SACKED != 0 {
            self.sacked = self.sacked.saturating_sub(len);
        }
        if marks & mark::RETRANS != 0 {
            self.retrans = self.retrans.saturating_sub(len);
        }
        if marks & mark::LOST != 0 {
            self.lost = self.lost.saturating_sub(len);
            if marks & mark::RETRANS == 0 {
                self.lost_unsent = self.lost_unsent.saturating_sub(len);
            }
        }
    }

    /// Frees what the buffer has below SND.UNA.
    #[inline(always)]
    pub(super) fn clean_buffer<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let una = self.snd_una;
        if seq::lt(self.rack_fack, una) {
            self.rack_fack = una;
        }
        // The buffer has neither SYN nor FIN.
        let acked = seq::diff(una, self.data_seq).max(0) as u32;
        let acked = acked.min(self.buffer.len());
        if acked > 0 {
            self.buffer.discard(&mut cx.shared.chunks, acked);
            self.data_seq = self.data_seq.wrapping_add(acked);
            self.tell_writable();
        }
    }

    /// Round trips, by the rule of Karn and Partridge: by what was sent once, or by time stamps
    /// (RFC 6298 3, RFC 7323 4). Returns what congestion control goes by: the newest.
    #[inline]
    pub(super) fn measure<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        segment: &Segment,
        flags: u16,
        trips: &Trips,
    ) -> Option<u64> {
        let since = |at: u64| cx.now_ns.saturating_sub(at);
        let is_clean = flags & told::RETRANSMITTED == 0;
        let mut trip = trips.first_ns.filter(|_| is_clean).map(since);
        let mut newest = trips.last_ns.filter(|_| is_clean).map(since);
        if trips.first_sacked_ns.is_some() {
            trip = trip.or(trips.first_sacked_ns.map(since));
            newest = trips.last_sacked_ns.map(since);
        }
        if trip.is_none()
            && flags & told::ADVANCED != 0
            && let Some((_, echo)) = segment.timestamps
            && echo != 0
        {
            // A tick is a millisecond.
            let ticks = self.ts_now(cx.now_ns).wrapping_sub(echo);
            if ticks < 1 << 24 {
                trip = Some(u64::from(ticks.max(1)) * 1_000_000);
                newest = trip;
            }
        }
        let trip = trip?;
        self.rtt.sample(trip, cx.now_ns);
        newest.or(Some(trip))
    }

    /// The states that wait for our FIN's acknowledgment.
    pub(super) fn is_fin_acked(&self) -> bool {
        self.is(is::FIN_SENT) && self.snd_una == self.snd_nxt && self.state != State::Closed
    }
}
