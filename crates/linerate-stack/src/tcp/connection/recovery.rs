//! Losses: how they are noticed, repaired, and found to have been none.
//!
//! With SACK losses are found by RACK (RFC 8985), or by the rules of RFC 6675 where RACK is off;
//! without, by duplicate ACKs (RFC 5681 3.2, RFC 6582). The phases and their transitions are those
//! of Linux, since RFCs describe one mechanism each and say little of how they meet:
//!
//! ```text
//!            dup ACK, SACK           loss found
//!   Open ───────────────► Disorder ─────────────► Recovery ──┐ all acknowledged up to
//!    │ ▲                     │                      │  ▲      │ the recovery point, or
//!    │ └──────── ECE ──► Cwr ┘                timeout  │      │ the losses were none
//!    └────── timeout ──► Loss ◄────────────────────┘   │      ▼
//!                          └───────────────────────────┘    Open
//! ```

use super::acknowledge::told;
use super::{Awaits, Connection, Context, Phase, Wire, is};
use crate::tcp::congestion::{Ack, Congestion, Signal};
use crate::tcp::pacing::Growth;
use crate::tcp::prr::{Flight, Prr};
use crate::tcp::sent::{NIL, Record, Sent, mark};
use crate::tcp::seq;

/// Duplicate ACKs, or segments above, that make one lost (RFC 5681 3.2, RFC 6675 2).
const DUP_THRESH: u32 = 3;
/// Recoveries for which RACK keeps a wider reordering window (RFC 8985 6.2 step 4).
pub(super) const PERSIST: u8 = 16;

/// An ACK as recovery sees it.
pub(super) struct Told {
    pub(super) flags: u16,
    /// RFC 5681 2.
    pub(super) is_duplicate: bool,
    /// By how much SND.UNA has advanced.
    pub(super) newly_acked: u32,
    /// How much SACKs have told of.
    pub(super) newly_sacked: u32,
    /// The time stamp that it echoes.
    pub(super) echo: Option<u32>,
}

impl Told {
    /// One that tells of nothing else.
    pub(super) fn of(flags: u16) -> Self {
        Self {
            flags,
            is_duplicate: false,
            newly_acked: 0,
            newly_sacked: 0,
            echo: None,
        }
    }

    fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }
}

impl Connection {
    /// RFC 8985 6.2 step 2: the newest transmission that has been delivered.
    #[inline]
    pub(super) fn advance_rack(&mut self, now_ns: u64, record: &Record) {
        let rtt = now_ns.saturating_sub(record.sent_ns);
        if record.has(mark::EVER_RETRANS) && rtt < self.rtt.min_rtt_ns(now_ns).unwrap_or(0) {
            // It is the original's acknowledgment, most likely.
            return;
        }
        self.rack_rtt_ns = rtt;
        if is_sent_after(
            (record.sent_ns, record.end),
            (self.rack_sent_ns, self.rack_end),
        ) {
            (self.rack_sent_ns, self.rack_end) = (record.sent_ns, record.end);
            self.is |= is::RACK_ADVANCED;
        }
    }

    /// An ACK that is not plain: of a duplicate, a SACK, ECE, or while losses are repaired.
    pub(super) fn on_trouble<W: Wire>(&mut self, cx: &mut Context<'_, W>, told: &Told) {
        if told.has(told::ECE) {
            // What ECN says is true: nothing of it is undone.
            self.has_undo = false;
        }
        let is_recovered = seq::ge(self.snd_una, self.recovery_point);
        match self.phase {
            Phase::Open => self.retrans_stamp = 0,
            Phase::Cwr if is_recovered && self.snd_una != self.recovery_point => {
                self.end_reduction(cx);
                self.phase = Phase::Open;
            }
            Phase::Recovery if is_recovered => {
                self.reset_dup_acks();
                if self.try_undo_recovery(cx, told) {
                    return;
                }
            }
            _ => {}
        }
        match self.phase {
            Phase::Recovery => {
                if told.has(told::ADVANCED) {
                    if !self.is(is::SACK) {
                        self.on_partial_ack(told.newly_acked);
                    }
                    if self.try_undo_partial(cx, told) {
                        return;
                    }
                } else if !self.is(is::SACK) && told.is_duplicate {
                    self.add_dup_ack();
                }
                if self.try_undo_dsack(cx) {
                    self.try_to_open(cx, told);
                }
                self.find_losses(cx, told);
                if self.phase != Phase::Recovery && self.is_time_to_recover() {
                    self.enter_recovery(cx, told);
                }
            }
            Phase::Loss => {
                self.in_loss(cx, told);
                if self.phase == Phase::Open && told.has(told::ADVANCED) {
                    self.reset_dup_acks();
                }
                let lost = self.find_losses(cx, told);
                if self.phase != Phase::Open && lost & told::LOST_RETRANS == 0 {
                    return;
                }
                self.may_recover(cx, told);
            }
            Phase::Open | Phase::Disorder | Phase::Cwr => {
                if !self.is(is::SACK) {
                    if told.has(told::ADVANCED) {
                        self.reset_dup_acks();
                    }
                    if told.is_duplicate {
                        self.add_dup_ack();
                    }
                }
                if matches!(self.phase, Phase::Open | Phase::Disorder) {
                    self.try_undo_dsack(cx);
                }
                self.find_losses(cx, told);
                self.may_recover(cx, told);
            }
        }
    }

    fn may_recover<W: Wire>(&mut self, cx: &mut Context<'_, W>, told: &Told) {
        match self.is_time_to_recover() {
            true => self.enter_recovery(cx, told),
            false => self.try_to_open(cx, told),
        }
    }

    fn is_time_to_recover(&self) -> bool {
        match self.is(is::SACK) {
            true => self.lost > 0,
            false => u32::from(self.dup_acks) >= DUP_THRESH && self.sent.count() > 0,
        }
    }

    fn try_to_open<W: Wire>(&mut self, cx: &mut Context<'_, W>, told: &Told) {
        // What was sent again and is not acknowledged may still turn out to be needless.
        let head = self.sent.first();
        let is_repairing =
            self.retrans > 0 || head != NIL && cx.shared.records[head].has(mark::EVER_RETRANS);
        if !is_repairing {
            self.retrans_stamp = 0;
        }
        if told.has(told::ECE) {
            self.enter_cwr(cx, Signal::Ecn);
        }
        if self.phase != Phase::Cwr {
            // Not because something could be undone still: without the phase Open there is no loss
            // probe (RFC 8985 7.2), and a D-SACK is heard in any.
            let is_disorder = self.sacked + self.lost + self.retrans > 0 || self.dup_acks > 0;
            let before = self.phase;
            self.phase = match is_disorder {
                true => Phase::Disorder,
                false => Phase::Open,
            };
            if before != self.phase {
                self.recovery_point = self.snd_nxt;
            }
        }
    }

    // Without SACK: RFC 6582, each duplicate ACK stands for a segment that has left the network.

    fn add_dup_ack(&mut self) {
        self.dup_acks = self.dup_acks.saturating_add(1);
        self.count_dup_acks();
    }

    /// What duplicate ACKs say has left the network: not the segment that is missing, and in a
    /// recovery no more than was under way when it began (RFC 9937 6.2), or a receiver that makes
    /// them up would have as much new data as it likes.
    fn count_dup_acks(&mut self) {
        let outstanding = self.snd_nxt.wrapping_sub(self.snd_una);
        let mut most = outstanding.saturating_sub(self.lost.max(self.mss.into()));
        if self.phase == Phase::Recovery {
            most = most.min(self.prr.recover_fs_bytes());
        }
        let left = u32::from(self.dup_acks).saturating_mul(self.mss.into());
        self.sacked = left.min(most);
    }

    fn reset_dup_acks(&mut self) {
        if !self.is(is::SACK) {
            (self.dup_acks, self.sacked) = (0, 0);
        }
    }

    /// RFC 6582 3.2 step 3: what the partial ACK has acknowledged was among those that left, but
    /// for the one that was missing.
    fn on_partial_ack(&mut self, newly_acked: u32) {
        let left = newly_acked.div_ceil(u32::from(self.mss).max(1));
        let left = left.saturating_sub(1).min(u8::MAX.into()) as u8;
        self.dup_acks = self.dup_acks.saturating_sub(left);
        self.count_dup_acks();
    }

    /// Marks what counts as lost now.
    fn find_losses<W: Wire>(&mut self, cx: &mut Context<'_, W>, told: &Told) -> u16 {
        if !self.is(is::SACK) {
            let is_partial = self.phase == Phase::Recovery && told.has(told::ADVANCED);
            let is_counted = self.phase != Phase::Loss && u32::from(self.dup_acks) >= DUP_THRESH;
            if is_partial || is_counted {
                self.mark_head_lost(cx);
            }
            return 0;
        }
        if !cx.shared.config.rack {
            return self.find_losses_6675(cx);
        }
        let prior_retrans = self.retrans;
        self.find_losses_rack(cx);
        match prior_retrans > self.retrans {
            true => told::LOST_RETRANS,
            false => 0,
        }
    }

    /// The first segment that is not acknowledged is lost.
    fn mark_head_lost<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let head = self.sent.first();
        if head == NIL || cx.shared.records[head].has(mark::LOST | mark::EVER_RETRANS) {
            return;
        }
        if cx.shared.records[head].len() > self.mss.into() {
            let at = cx.shared.records[head].seq.wrapping_add(self.mss.into());
            let _ = self.sent.split(&mut cx.shared.records, head, at);
        }
        self.mark_lost(cx, head);
        let outstanding = self.snd_nxt.wrapping_sub(self.snd_una);
        self.sacked = self.sacked.min(outstanding.saturating_sub(self.lost));
    }

    /// Counts a record as lost: if a retransmission of it was in flight, that as well.
    pub(super) fn mark_lost<W: Wire>(&mut self, cx: &mut Context<'_, W>, index: u32) {
        let record = &mut cx.shared.records[index];
        let len = record.len();
        if record.has(mark::SACKED) {
            return;
        }
        if record.has(mark::RETRANS) {
            record.marks &= !mark::RETRANS;
            self.retrans = self.retrans.saturating_sub(len);
            cx.shared.stats.lost_retransmissions += 1;
            if record.has(mark::LOST) {
                self.lost_unsent += len;
                return;
            }
        }
        if !record.has(mark::LOST) {
            record.marks |= mark::LOST;
            self.lost += len;
            self.lost_unsent += len;
        }
    }

    /// RFC 6675 4, IsLost(): three segments' bytes have been acknowledged above it.
    fn find_losses_6675<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> u16 {
        let (mut above, mut index) = (0_u32, self.sent.last());
        let limit = (DUP_THRESH - 1) * u32::from(self.mss);
        while index != NIL {
            let record = cx.shared.records[index];
            if record.has(mark::SACKED) {
                above = above.saturating_add(record.len());
            } else if above > limit && !record.has(mark::LOST | mark::EVER_RETRANS) {
                self.mark_lost(cx, index);
            }
            index = Sent::prev(&cx.shared.records, index);
        }
        0
    }

    /// RFC 8985 6.2 step 4: how long a segment may be overtaken before it counts as lost.
    fn reordering_window_ns<W: Wire>(&self, cx: &Context<'_, W>) -> u64 {
        if !self.is(is::REORDERING) {
            let is_repairing = matches!(self.phase, Phase::Recovery | Phase::Loss);
            if is_repairing || self.sacked >= DUP_THRESH * u32::from(self.mss) {
                return 0;
            }
        }
        let quarter = self.rtt.min_rtt_ns(cx.now_ns).unwrap_or(0) / 4;
        let srtt_ns = self.rtt.srtt_ns().unwrap_or(0);
        (quarter * u64::from(self.rack_steps.max(1))).min(srtt_ns)
    }

    /// RFC 8985 6.2 step 4: D-SACKs widen the window for a while.
    fn update_reordering_window(&mut self) {
        // A round that began long ago is over, wherever numbers have got to since.
        let is_open = self.is_under_way(self.rack_round.wrapping_sub(1));
        if self.is(is::DSACK_SEEN) && !is_open {
            self.rack_round = self.snd_nxt;
            self.rack_steps = self.rack_steps.max(1).saturating_add(1);
            self.rack_persist = PERSIST;
            self.set(is::DSACK_SEEN, false);
        } else if self.rack_persist == 0 {
            self.rack_steps = 1;
        }
    }

    /// RFC 8985 6.2 step 5. Arms the reordering timer if something may count as lost later.
    pub(super) fn find_losses_rack<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if !self.is(is::RACK_ADVANCED) {
            return;
        }
        self.set(is::RACK_ADVANCED, false);
        self.update_reordering_window();
        if let Some(wait_ns) = self.mark_overtaken(cx) {
            self.await_until(Awaits::Reordering, cx.now_ns + wait_ns.max(1));
        }
    }

    /// Marks what was sent before the newest delivery, by more than the window. Returns how long
    /// until the next may count as lost.
    pub(super) fn mark_overtaken<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> Option<u64> {
        let window_ns = self.reordering_window_ns(cx);
        let newest = (self.rack_sent_ns, self.rack_end);
        let (mut index, mut wait_ns) = (self.sent.oldest(), None);
        while index != NIL {
            let record = cx.shared.records[index];
            let later = Sent::later(&cx.shared.records, index);
            // Lost and not yet sent again: nothing new is to be learned of it.
            if record.has(mark::LOST) && !record.has(mark::RETRANS) {
                index = later;
                continue;
            }
            if !is_sent_after(newest, (record.sent_ns, record.end)) {
                break;
            }
            let due_ns = record.sent_ns + self.rack_rtt_ns + window_ns;
            match due_ns.checked_sub(cx.now_ns).filter(|&left| left > 0) {
                None => self.mark_lost(cx, index),
                Some(left) => wait_ns = Some(wait_ns.unwrap_or(0).max(left)),
            }
            index = later;
        }
        wait_ns
    }

    /// Begins to repair: RFC 5681 3.2, RFC 6675 5.
    fn enter_recovery<W: Wire>(&mut self, cx: &mut Context<'_, W>, told: &Told) {
        if self.probe_len != 0 && self.is_only_mtu_probe_lost(cx) {
            return;
        }
        cx.shared.stats.recoveries += 1;
        self.begin_undo();
        if self.phase == Phase::Cwr || told.has(told::ECE) {
            // The window went down for a mark, or does: that stays so.
            self.has_undo = false;
        }
        if !matches!(self.phase, Phase::Cwr | Phase::Recovery) {
            let signal = match told.has(told::ECE) {
                true => Signal::Ecn,
                false => Signal::Loss,
            };
            // Without SACK the duplicate ACK that begins it tells of a segment as a SACK would.
            let newly_sacked = match self.is(is::SACK) {
                false if told.is_duplicate => self.mss.into(),
                _ => told.newly_sacked,
            };
            self.reduce(cx, signal, told.newly_acked, newly_sacked);
        }
        self.phase = Phase::Recovery;
        self.recovery_point = self.snd_nxt;
        self.rack_persist = self.rack_persist.saturating_sub(1);
    }

    /// A mark of ECN, or a loss that the loss probe repaired: the window goes down, nothing is
    /// repaired (RFC 3168 6.1.2, RFC 8985 7.4.2).
    fn enter_cwr<W: Wire>(&mut self, cx: &mut Context<'_, W>, signal: Signal) {
        if matches!(self.phase, Phase::Open | Phase::Disorder) {
            self.has_undo = false;
            self.reduce(cx, signal, 0, 0);
            self.phase = Phase::Cwr;
            self.recovery_point = self.snd_nxt;
        }
    }

    /// The window goes down, over a round trip.
    fn reduce<W: Wire>(
        &mut self,
        cx: &Context<'_, W>,
        signal: Signal,
        newly_acked: u32,
        newly_sacked: u32,
    ) {
        self.set(is::UNDONE, false);
        let outstanding = self.snd_nxt.wrapping_sub(self.snd_una);
        self.control.on_congestion(signal, outstanding, cx.now_ns);
        self.prr = Prr::start(Flight {
            outstanding,
            sacked: self.sacked,
            newly_sacked,
            newly_acked,
        });
        self.note_reduction();
    }

    fn note_reduction(&mut self) {
        if self.is(is::ECN) {
            // RFC 3168 6.1.2: the peer stops to say ECE.
            self.set(is::CWR_DUE, true);
        }
    }

    fn end_reduction<W>(&mut self, cx: &Context<'_, W>) {
        if self.is(is::UNDONE) {
            return; // the window is what it was, not what it was to become
        }
        let by_timeout = self.phase == Phase::Loss;
        self.control.on_recovery_end(by_timeout, cx.now_ns);
    }

    /// The timeout: RFC 5681 3.1, RFC 5682 for F-RTO.
    pub(super) fn enter_loss<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let is_new = !matches!(self.phase, Phase::Recovery | Phase::Loss)
            || seq::ge(self.snd_una, self.recovery_point);
        if self.sent.is_first_sacked(&cx.shared.records) {
            // RFC 2018 8: what SACKs have said counts no more, where the first is sent again. (Also
            // one that a SACK has told of while it was the first: no ACK has said so.)
            let forgotten = self.sent.forget_sacked(&mut cx.shared.records);
            self.sacked = self.sacked.saturating_sub(forgotten);
            self.set(is::RENEGED, false);
            cx.shared.stats.reneged += 1;
        }
        self.reset_dup_acks();
        self.mark_timed_out(cx);
        // RFC 5681 3.1: the threshold goes down once for a flight, not again where a recovery has
        // repaired it in vain (Linux: tcp_enter_loss).
        let is_first = matches!(self.phase, Phase::Open | Phase::Disorder)
            || seq::ge(self.snd_una, self.recovery_point)
            || self.phase == Phase::Loss && self.retries == 0;
        if is_first {
            self.begin_undo();
        }
        let outstanding = self.snd_nxt.wrapping_sub(self.snd_una);
        self.control.on_timeout(is_first, outstanding, cx.now_ns);
        // RFC 5681 3.1: one segment, beside what is not taken for lost.
        let window = &mut self.control.window;
        window.cwnd_bytes = window.cwnd_bytes.max(u32::from(self.mss));
        let kept = self.in_flight();
        self.control.window.cwnd_bytes += kept;
        self.phase = Phase::Loss;
        self.recovery_point = self.snd_nxt;
        self.note_reduction();
        // RFC 5682 2.1 step 1: not for a timeout of what was repaired already.
        self.set(
            is::FRTO,
            cx.shared.config.frto && (is_new || self.retries > 0),
        );
    }

    /// What the timeout makes of what is in flight: all is lost but what RACK would still wait for.
    fn mark_timed_out<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let head = self.sent.first();
        let mut index = head;
        let window_ns = self.rtt.min_rtt_ns(cx.now_ns).unwrap_or(0) / 4;
        let srtt_ns = self.rtt.srtt_ns().unwrap_or(0);
        let uses_rack = self.is(is::SACK) && cx.shared.config.rack;
        while index != NIL {
            let record = cx.shared.records[index];
            let due_ns = record.sent_ns + srtt_ns.max(self.rack_rtt_ns) + window_ns;
            let waits = uses_rack && index != head && due_ns > cx.now_ns;
            if !waits {
                self.mark_lost(cx, index);
            }
            index = Sent::next(&cx.shared.records, index);
        }
    }

    /// RFC 5682 3.1 and 2.1, in the phase that follows a timeout.
    fn in_loss<W: Wire>(&mut self, cx: &mut Context<'_, W>, told: &Told) {
        let is_recovered = seq::ge(self.snd_una, self.recovery_point);
        if told.has(told::ADVANCED) && self.may_undo(told) {
            return self.undo_loss(cx, false);
        }
        if self.is(is::FRTO) {
            if told.has(told::ORIGINAL) {
                // Step 3.b: what was sent once has arrived. The timeout was too early.
                cx.shared.stats.spurious_timeouts += 1;
                return self.undo_loss(cx, true);
            }
            if seq::gt(self.snd_nxt, self.recovery_point) {
                if told.has(told::SACKED) || told.is_duplicate {
                    self.set(is::FRTO, false); // step 3.a
                }
            } else if told.has(told::ADVANCED) && !is_recovered {
                self.recovery_point = self.snd_nxt;
                // Step 2.b: new data, if there is any and the window takes it.
                let has_more = seq::gt(self.data_end(), self.snd_nxt);
                let has_window = seq::gt(self.snd_una.wrapping_add(self.snd_wnd), self.snd_nxt);
                if has_more && has_window {
                    return;
                }
                self.set(is::FRTO, false);
            }
        }
        if is_recovered {
            self.try_undo_recovery(cx, told);
            return;
        }
        if !self.is(is::SACK) {
            if seq::gt(self.snd_nxt, self.recovery_point) && told.is_duplicate {
                self.add_dup_ack();
            } else if told.has(told::ADVANCED) {
                self.reset_dup_acks();
            }
        }
    }

    /// Whether, after a timeout, new data goes first (RFC 5682 2.1 step 2.b).
    pub(super) fn is_probing_timeout(&self) -> bool {
        self.phase == Phase::Loss && self.is(is::FRTO) && self.recovery_point == self.snd_nxt
    }

    // Undoing: RFC 3522 (by time stamps), RFC 3708 (by D-SACK), RFC 5682.

    fn begin_undo(&mut self) {
        self.has_undo = true;
        self.set(is::UNDONE, false);
        self.undo_point = self.snd_una;
        self.undo_retrans = match self.retrans {
            0 => -1,
            bytes => bytes.min(i32::MAX as u32) as i32,
        };
        if self.retrans == 0 {
            self.retrans_stamp = 0;
        }
    }

    /// Whether all that was sent again was sent needlessly, as far as is known.
    fn may_undo(&self, told: &Told) -> bool {
        self.has_undo && (self.undo_retrans == 0 || self.is_early(told))
    }

    /// RFC 3522 3.2: the ACK echoes a time before the first retransmission.
    fn is_early(&self, told: &Told) -> bool {
        match told.echo {
            Some(echo) if self.is(is::TIMESTAMPS) && self.retrans_stamp != 0 && echo != 0 => {
                seq::lt(echo, self.retrans_stamp)
            }
            _ => false,
        }
    }

    fn undo_window<W>(&mut self, cx: &mut Context<'_, W>, unmark: bool) {
        cx.shared.stats.undone += 1;
        if unmark {
            // What counted as lost is in flight.
            (self.lost, self.lost_unsent) = (0, 0);
        }
        self.control.undo(cx.now_ns);
        self.has_undo = false;
        self.set(is::UNDONE, true);
        // RFC 8985 6.2: what was found lost had been overtaken.
        self.set(is::RACK_ADVANCED, true);
    }

    fn unmark_lost<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let mut index = self.sent.first();
        while index != NIL {
            cx.shared.records[index].marks &= !mark::LOST;
            index = Sent::next(&cx.shared.records, index);
        }
    }

    fn undo_loss<W: Wire>(&mut self, cx: &mut Context<'_, W>, by_frto: bool) {
        self.unmark_lost(cx);
        self.undo_window(cx, true);
        self.retries = 0;
        self.set(is::FRTO, false);
        self.rtt.clear_backoff();
        if by_frto || self.is(is::SACK) || seq::gt(self.snd_una, self.recovery_point) {
            self.phase = Phase::Open;
        }
    }

    /// All that was sent before loss was noticed is acknowledged. True while the phase is to stay:
    /// without SACK, until more is acknowledged than that (RFC 6582 4).
    fn try_undo_recovery<W: Wire>(&mut self, cx: &mut Context<'_, W>, told: &Told) -> bool {
        if self.may_undo(told) {
            self.undo_window(cx, false);
        }
        if self.snd_una == self.recovery_point && !self.is(is::SACK) {
            // Hold on until there is more: late duplicates are not to begin another recovery.
            if self.retrans == 0 {
                self.retrans_stamp = 0;
            }
            return true;
        }
        self.end_reduction(cx);
        self.phase = Phase::Open;
        self.set(is::FRTO, false);
        false
    }

    fn try_undo_dsack<W>(&mut self, cx: &mut Context<'_, W>) -> bool {
        if self.has_undo && self.undo_retrans == 0 {
            self.undo_window(cx, false);
            return true;
        }
        false
    }

    /// An ACK of a part shows that the first retransmission was needless.
    fn try_undo_partial<W: Wire>(&mut self, cx: &mut Context<'_, W>, told: &Told) -> bool {
        if !(self.has_undo && self.is_early(told)) {
            return false;
        }
        self.set(is::REORDERING, true);
        if self.retrans > 0 {
            // Others are under way: the window waits for them.
            return true;
        }
        self.unmark_lost(cx);
        self.undo_window(cx, true);
        self.try_to_open(cx, told);
        false
    }

    /// RFC 8985 7.4.2: what the ACK says of the loss probe.
    pub(super) fn check_probe<W: Wire>(&mut self, cx: &mut Context<'_, W>, ack: u32, flags: u16) {
        if !self.has_probe_point || seq::lt(ack, self.probe_point) {
            return;
        }
        if !self.is(is::PROBE_RETRANS) {
            self.has_probe_point = false; // it was of new data
        } else if flags & told::DSACK != 0 {
            self.has_probe_point = false; // both have arrived
        } else if seq::gt(ack, self.probe_point) {
            // The probe has repaired a loss: a congestion signal all the same.
            self.has_probe_point = false;
            cx.shared.stats.loss_probe_recoveries += 1;
            self.enter_cwr(cx, Signal::Loss);
        } else if flags & (told::ADVANCED | told::SACKED | told::DATA) == 0 {
            self.has_probe_point = false; // a duplicate ACK at the probe's end: it was needless
        }
    }

    /// The congestion window after an ACK.
    pub(super) fn control_window<W: Wire>(&mut self, cx: &Context<'_, W>, told: &Told, ack: &Ack) {
        let is_reducing =
            matches!(self.phase, Phase::Cwr | Phase::Recovery) && !self.is(is::UNDONE);
        if is_reducing && self.control.algorithm.is_by_prr() {
            // RFC 9937.
            let is_safe = told.has(told::ADVANCED) && ack.lost_bytes == 0;
            let delivered = match self.is(is::SACK) {
                true => ack.acked_bytes,
                false if told.has(told::ADVANCED) || told.is_duplicate => self
                    .prr
                    .delivered_without_sack(told.newly_acked, self.mss.into()),
                false => 0,
            };
            self.follow_prr(delivered, is_safe);
        } else if ack.acked_bytes > 0 && self.counts(told) {
            self.control.on_ack(ack);
            self.note_own_limit();
        }
        self.set_pace(cx);
    }

    /// Where the algorithm limits itself on purpose, what is measured of it says nothing of the
    /// path.
    #[inline(always)]
    pub(super) fn note_own_limit(&mut self) {
        if self.control.algorithm.is_self_limited() {
            self.delivery.on_app_limited(self.in_flight());
        }
    }

    /// Whether an ACK opens the window. RFC 3042 2: one that does not advance does not, but where
    /// the path reorders (as Linux), or for an algorithm with a model of its own.
    fn counts(&self, told: &Told) -> bool {
        let has_model = !self.control.algorithm.is_by_prr();
        let reorders = self.is(is::REORDERING) && told.has(told::SACKED);
        told.has(told::ADVANCED) || has_model || reorders
    }

    fn follow_prr(&mut self, delivered: u32, is_safe: bool) {
        let ssthresh = self.control.window.target_bytes();
        let (in_flight, mss) = (self.in_flight(), u32::from(self.mss));
        if let Some(cwnd) = self
            .prr
            .on_ack(delivered, in_flight, ssthresh, mss, is_safe)
        {
            self.control.window.cwnd_bytes = cwnd.max(mss);
        }
    }

    /// The rate to send at, where segments are paced.
    #[inline]
    pub(super) fn set_pace<W>(&mut self, cx: &Context<'_, W>) {
        self.pace(cx.shared.config.pacing);
    }

    #[inline]
    pub(super) fn pace(&mut self, is_paced: bool) {
        if let Some(rate) = self.control.algorithm.pacing_rate() {
            self.pacer.set_rate(rate);
        } else if is_paced && let Some(srtt_ns) = self.rtt.srtt_ns() {
            let growth = match self.control.window.is_slow_start() {
                true => Growth::Doubling,
                false => Growth::Slow,
            };
            let cwnd = self.control.window.cwnd_bytes;
            self.pacer.set_window(cwnd, srtt_ns, growth);
        } else if !is_paced {
            // Nor at a rate from before a reload.
            self.pacer.clear_rate();
        }
    }
}

/// RFC 8985 6.2: of two sent at the same time the one with the higher sequence number is later.
#[inline(always)]
fn is_sent_after((a_ns, a_end): (u64, u32), (b_ns, b_end): (u64, u32)) -> bool {
    a_ns > b_ns || a_ns == b_ns && seq::gt(a_end, b_end)
}

impl Connection {
    /// The reordering timer has found losses.
    pub(super) fn recover_by_timer<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if matches!(self.phase, Phase::Recovery | Phase::Loss) {
            return;
        }
        self.enter_recovery(cx, &Told::of(0));
        if self.phase == Phase::Recovery && self.control.algorithm.is_by_prr() {
            self.follow_prr(0, false);
        }
    }
}
