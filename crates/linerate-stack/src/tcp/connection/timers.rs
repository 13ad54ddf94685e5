//! Deadlines: retransmission (RFC 6298), loss probes and reordering (RFC 8985), window probes (RFC
//! 9293 3.8.6.1), delayed ACKs (3.8.6.3), keepalive (3.8.4), and what ends a connection.
//!
//! A connection has three: one of the sender, one of the ACK, one of everything slow. The stack
//! keeps one timer for each connection, at the earliest; a deadline that has moved back is found
//! out when that timer fires.

use super::{Awaits, Connection, Context, Error, Phase, State, Wire, event, is};
use crate::tcp::seq;
use crate::tcp::soft::SoftError;

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
/// What a loss probe allows for an ACK that is delayed (RFC 8985 7.2: WCDelAckT).
const WORST_ACK_DELAY_NS: u64 = 200 * MILLISECOND;
/// Longest time between two window probes (Linux: TCP_RTO_MAX).
const PROBE_MAX_NS: u64 = 120 * SECOND;
/// How long a peer with a closed window may say nothing (Linux: twice TCP_RTO_MAX).
const SHUT_SILENCE_MS: u32 = 240_000;

/// The nanosecond before a deadline; the last one before none.
#[inline(always)]
fn before(at_ns: u64) -> u64 {
    at_ns.wrapping_sub(1)
}

impl Connection {
    /// When [`on_timer`](Self::on_timer) has to be called at the latest; `None` if never.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        // One less, so that never is later than all.
        let [send, ack, other] = [self.send_at, self.ack_at, self.other_at].map(before);
        let least = send.min(ack).min(other).checked_add(1);
        // Only where the pacer held something back: a peer's window or Nagle may do so as well, and
        // the pacer's time, which has passed then, would be due again and again.
        match self.is(is::PACED) && self.state != State::Closed {
            false => least,
            true => Some(least.unwrap_or(u64::MAX).min(self.pacer.next_ns())),
        }
    }

    /// Handles what is due.
    pub fn on_timer<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if self.ack_at != 0 && self.ack_at <= cx.now_ns {
            self.on_ack_timer(cx);
        }
        if self.send_at != 0 && self.send_at <= cx.now_ns {
            self.send_at = 0;
            match std::mem::take(&mut self.awaits) {
                Awaits::Nothing => {}
                Awaits::Rto => self.on_timeout(cx),
                Awaits::LossProbe => self.on_loss_probe(cx),
                Awaits::Reordering => self.on_reordering(cx),
                Awaits::WindowProbe => self.on_window_probe(cx),
            }
        }
        if self.other_at != 0 && self.other_at <= cx.now_ns {
            self.on_other(cx);
        }
        if self.state != State::Closed {
            self.push(cx);
        }
    }

    /// Waits for something of the sender's, instead of what it waited for.
    #[inline]
    pub(super) fn await_until(&mut self, what: Awaits, at_ns: u64) {
        (self.awaits, self.send_at) = (what, at_ns);
    }

    /// RFC 6298 5.1 to 5.3: the timer runs while something is under way, anew from each ACK.
    #[inline]
    pub(super) fn rearm<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if self.sent.count() == 0 {
            (self.awaits, self.send_at) = (Awaits::Nothing, 0);
            return;
        }
        let mut rto_ns = self.rtt.rto_ns();
        if self.is(is::RENEGED) {
            // What SACK has told of stays away: soon all of it is sent again.
            rto_ns = rto_ns.min((self.rtt.srtt_ns().unwrap_or(0) / 2).max(10 * MILLISECOND));
        } else if matches!(self.awaits, Awaits::LossProbe | Awaits::Reordering) {
            // RFC 8985 7.2: the timeout counts from the transmission of the first.
            let first = cx.shared.records[self.sent.first()].sent_ns;
            let due_ns = (first + rto_ns).saturating_sub(cx.now_ns);
            rto_ns = due_ns.clamp(1, rto_ns);
        }
        self.await_until(Awaits::Rto, cx.now_ns + rto_ns);
    }

    /// RFC 8985 7.2. Whether a probe is scheduled. `has_advanced`: for an ACK of something new.
    #[inline]
    pub(super) fn schedule_loss_probe<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        has_advanced: bool,
    ) -> bool {
        let may = self.is(is::SACK)
            && cx.shared.config.rack
            && cx.shared.config.loss_probes
            && self.phase == Phase::Open
            && self.sacked == 0
            && self.sent.count() > 0
            && !self.has_probe_point
            && self.state.is_synchronized();
        if !may
            || !matches!(
                self.awaits,
                Awaits::Nothing | Awaits::Rto | Awaits::LossProbe
            )
        {
            return false;
        }
        let srtt_ns = self.rtt.srtt_ns().unwrap_or(0);
        let mut probe_ns = match srtt_ns {
            0 => SECOND,
            srtt_ns => 2 * srtt_ns + 2 * MILLISECOND,
        };
        if self.sent.count() == 1 {
            probe_ns += WORST_ACK_DELAY_NS;
        }
        let first = cx.shared.records[self.sent.first()].sent_ns;
        let from = match has_advanced {
            true => cx.now_ns, // RFC 6298 5.3: the timeout starts anew
            false => first,
        };
        let timeout_at = from + self.rtt.rto_ns();
        let at = (cx.now_ns + probe_ns).min(timeout_at.max(cx.now_ns + 1));
        // Also where the timeout is first: then the probe is sent at that time, and the timeout
        // counts from it (RFC 8985 7.2, TLP_calc_PTO).
        self.await_until(Awaits::LossProbe, at);
        true
    }

    /// The timer of RFC 9293 3.8.6.1, with the timeout's back-off.
    pub(super) fn await_window<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if matches!(self.awaits, Awaits::WindowProbe) {
            return;
        }
        let wait_ns = self.probe_wait_ns();
        // Nothing is under way: what was sent again before is answered, and the user timeout counts
        // from what the peer has said last.
        self.retrans_stamp = 0;
        self.await_until(Awaits::WindowProbe, cx.now_ns + wait_ns);
    }

    fn probe_wait_ns(&self) -> u64 {
        let shift = u32::from(self.probes.min(16));
        (self.rtt.rto_ns() << shift).min(PROBE_MAX_NS)
    }

    /// RFC 6298 5.4 to 5.7, RFC 9293 3.8.3.
    fn on_timeout<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if self.sent.count() == 0 {
            return;
        }
        cx.shared.stats.timeouts += 1;
        self.has_probe_point = false;
        if self.is_given_up(cx) {
            return self.give_up(cx);
        }
        if self.retries >= cx.shared.config.retries1 {
            self.on_r1(cx);
        }
        if self.state.is_synchronized() {
            self.enter_loss(cx);
        } else if self.sent.first() != crate::tcp::sent::NIL {
            self.mark_lost(cx, self.sent.first());
        }
        let before = self.retries;
        self.retries = before.saturating_add(1);
        if self.resend_first(cx) {
            self.rtt.backoff();
        } else {
            // Only what was sent can have gone unanswered (RFC 9293 3.8.3): the peer is not to pay
            // for slots that we lack.
            self.retries = before.max(1);
            cx.shared.stats.no_slots += 1;
        }
        let wait_ns = self.rtt.rto_ns().min(self.user_timeout_left_ns(cx));
        self.await_until(Awaits::Rto, cx.now_ns + wait_ns);
    }

    /// RFC 9293 3.8.3 (SHLD-9): the user is told, and IP, that nothing arrives.
    #[cold]
    fn on_r1<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if self.retries == cx.shared.config.retries1 {
            cx.shared.stats.unanswered += 1;
            self.events |= event::UNANSWERED;
            cx.wire.doubt();
        }
        self.on_black_hole(cx);
    }

    /// How long the user still waits for an answer to what was sent again: the user timeout is kept
    /// whenever the next retransmission would be (RFC 9293 3.9.1).
    fn user_timeout_left_ns<W: Wire>(&self, cx: &Context<'_, W>) -> u64 {
        if self.user_timeout_ms == 0 || !self.state.is_synchronized() || self.retrans_stamp == 0 {
            return u64::MAX;
        }
        let since = self.ts_now(cx.now_ns).wrapping_sub(self.retrans_stamp);
        u64::from(self.user_timeout_ms.saturating_sub(since).max(1)) * MILLISECOND
    }

    /// Whether retransmissions have gone on for too long: R2 of RFC 9293 3.8.3, or the user's
    /// limit.
    fn is_given_up<W: Wire>(&self, cx: &Context<'_, W>) -> bool {
        let config = &cx.shared.config;
        let most = match self.state {
            State::SynSent => config.syn_retries,
            State::SynReceived => config.syn_ack_retries,
            _ if self.is(is::ORPHAN) => config.orphan_retries,
            _ => config.retries,
        };
        if self.user_timeout_ms != 0 && self.state.is_synchronized() {
            return self.is_over_user_timeout(cx);
        }
        if self.snd_wnd == 0 && self.state.is_synchronized() && !self.is(is::ORPHAN) {
            // RFC 9293 3.8.6 (SHLD-17): one that takes its window back, and answers, is not dead.
            let now_ms = (cx.now_ns / MILLISECOND) as u32;
            let silent_ms = now_ms.wrapping_sub(self.last_received_ms);
            return self.retries >= most && silent_ms > SHUT_SILENCE_MS;
        }
        self.retries >= most
    }

    /// RFC 9293 3.9.1: the user timeout counts from the first transmission that is unanswered.
    fn is_over_user_timeout<W: Wire>(&self, cx: &Context<'_, W>) -> bool {
        let since = match self.retrans_stamp {
            0 => {
                let now_ms = (cx.now_ns / MILLISECOND) as u32;
                now_ms.wrapping_sub(self.last_received_ms)
            }
            stamp => self.ts_now(cx.now_ns).wrapping_sub(stamp),
        };
        (self.retries > 0 || self.probes > 0) && since >= self.user_timeout_ms
    }

    fn give_up<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        cx.shared.stats.given_up += 1;
        if self.state == State::SynReceived {
            return self.finish(cx, Some(Error::TimedOut));
        }
        // As Linux (tcp_write_err): what ICMP has said of what is unanswered still.
        let soft = self.soft.filter(|_| self.is_under_way(self.soft_seq));
        let error = soft.map_or(Error::TimedOut, SoftError::as_error);
        self.finish(cx, Some(self.error.unwrap_or(error)));
    }

    /// RFC 8985 7.3.
    fn on_loss_probe<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if self.sent.count() == 0 {
            return;
        }
        if !self.has_probe_point && self.send_probe(cx) {
            cx.shared.stats.loss_probes += 1;
        }
        // The timeout counts from the probe.
        self.await_until(Awaits::Rto, cx.now_ns + self.rtt.rto_ns());
    }

    /// RFC 8985 6.2 step 5: what was waited for did not come.
    fn on_reordering<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let before = self.in_flight();
        let wait_ns = self.mark_overtaken(cx);
        if self.in_flight() != before {
            self.recover_by_timer(cx);
        }
        match wait_ns {
            Some(wait_ns) => self.await_until(Awaits::Reordering, cx.now_ns + wait_ns.max(1)),
            None => {
                self.awaits = Awaits::Reordering;
                self.rearm(cx);
            }
        }
    }

    fn on_window_probe<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let has_new = seq::gt(self.data_end(), self.snd_nxt)
            || self.is(is::FIN_QUEUED) && !self.is(is::FIN_SENT);
        if self.sent.count() > 0 || !has_new {
            self.probes = 0;
            return;
        }
        let most = match self.is(is::ORPHAN) {
            true => cx.shared.config.orphan_retries,
            false => cx.shared.config.retries,
        };
        // RFC 9293 3.8.6.1 (MUST-37): one whose peer answers stays open, whatever the window. Not
        // an orphan: nobody is there who could end it.
        let count = match self.is(is::ORPHAN) {
            true => self.probes,
            false => self.retries,
        };
        if count >= most || self.user_timeout_ms != 0 && self.is_over_user_timeout(cx) {
            return self.give_up(cx);
        }
        self.send_window_probe(cx);
        self.probes = self.probes.saturating_add(1);
        if self.sent.count() == 0 {
            // An answer sets them to 0; the probes, by which the time between two grows, go on.
            self.retries = self.retries.saturating_add(1);
            let wait_ns = self.probe_wait_ns();
            self.await_until(Awaits::WindowProbe, cx.now_ns + wait_ns);
        } else {
            self.rearm(cx);
        }
    }

    /// A probe was answered with nothing new.
    pub(super) fn on_probe_answer(&mut self) {
        if self.awaits == Awaits::WindowProbe && self.snd_wnd > 0 {
            (self.awaits, self.send_at) = (Awaits::Nothing, 0);
        }
    }

    fn on_ack_timer<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        self.ack_at = 0;
        if !self.is(is::ACK_DUE) {
            return;
        }
        // The user did not answer in time: it answers no more for a while, or later.
        if self.ping_pong >= super::output::PING_PONG {
            self.ping_pong = 0;
            self.ack_delay_ms = super::output::ACK_DELAY_MIN_MS;
        } else {
            let longer = self.ack_delay_ms.saturating_mul(2);
            self.ack_delay_ms = longer.min(super::output::ACK_DELAY_MAX_MS);
        }
        cx.shared.stats.delayed_acks += 1;
        self.send_ack(cx);
    }

    /// Sets the slow deadline to what comes first: keepalive, or the end of FIN-WAIT-2.
    pub(super) fn set_other<W: Wire>(&mut self, cx: &Context<'_, W>) {
        self.other_at = match self.state {
            State::FinWait2 if self.is(is::ORPHAN) => {
                cx.now_ns + u64::from(cx.shared.config.fin_timeout_ms) * MILLISECOND
            }
            state if state.is_synchronized() && self.is(is::KEEPALIVE) => {
                cx.now_ns + u64::from(self.keep_idle_s) * SECOND
            }
            _ => 0,
        };
    }

    fn on_other<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        self.other_at = 0;
        if self.is(is::STARVED) {
            // Slots may be there by now.
            self.set(is::STARVED, false);
            return self.set_other(cx);
        }
        if self.state == State::FinWait2 && self.is(is::ORPHAN) {
            // Nobody reads what may come: RFC 9293 3.6.1 allows it, Linux: tcp_fin_timeout.
            return self.finish(cx, None);
        }
        if self.is(is::KEEPALIVE) && self.state.is_synchronized() {
            self.on_keepalive(cx);
        }
    }

    /// RFC 9293 3.8.4.
    fn on_keepalive<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let now_ms = (cx.now_ns / MILLISECOND) as u32;
        let idle_ms = now_ms.wrapping_sub(self.last_received_ms);
        let limit_ms = u32::from(self.keep_idle_s) * 1000;
        // What is under way is watched by other timers.
        if self.sent.count() > 0 || self.awaits == Awaits::WindowProbe {
            self.other_at = cx.now_ns + u64::from(limit_ms.max(1)) * MILLISECOND;
            return;
        }
        if idle_ms < limit_ms {
            self.probes = 0;
            self.other_at = cx.now_ns + u64::from(limit_ms - idle_ms) * MILLISECOND;
            return;
        }
        let is_over = match self.user_timeout_ms {
            0 => self.probes >= self.keep_count,
            limit => self.probes > 0 && idle_ms >= limit,
        };
        if is_over {
            self.send_reset(cx);
            cx.shared.stats.given_up += 1;
            return self.finish(cx, Some(Error::TimedOut));
        }
        if self.send_keepalive(cx) {
            self.probes = self.probes.saturating_add(1);
            cx.shared.stats.keepalives += 1;
        }
        self.other_at = cx.now_ns + u64::from(self.keep_interval_s.max(1)) * SECOND;
    }
}
