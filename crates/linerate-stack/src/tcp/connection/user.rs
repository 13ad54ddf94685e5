//! What its user asks of a connection: RFC 9293 3.9.1 and 3.10.

use linerate_core::packet::Packet;

use super::{Awaits, Connection, Context, Error, Phase, State, Wire, event, is};
use crate::tcp::config::Config;
use crate::tcp::congestion::Algorithm;
use crate::tcp::receive::Span;
use crate::tcp::send_buffer::CHUNK_BYTES;
use crate::tcp::seq;
use crate::tcp::soft::SoftError;

/// When an idle connection is probed (RFC 9293 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Seconds without a segment before the first probe.
    pub idle_s: u16,
    /// Seconds between two.
    pub interval_s: u16,
    /// Probes without an answer that end it.
    pub count: u8,
}

/// What is known of a connection, as Linux' `tcp_info` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its state.
    pub state: State,
    /// What congestion control is doing.
    pub phase: Phase,
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// Congestion window in bytes.
    pub cwnd_bytes: u32,
    /// Slow start threshold in bytes.
    pub ssthresh_bytes: u32,
    /// Payload bytes of a segment that is sent.
    pub mss: u16,
    /// The longest payload received of late, in bytes.
    pub rcv_mss: u16,
    /// What our SYN tells the peer, in bytes (RFC 9293 3.7.1: the MSS option).
    pub advertised_mss: u16,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// Ours.
    pub rcv_wnd: u32,
    /// Shifts of both windows: the peer's, ours.
    pub scales: (u8, u8),
    /// Smoothed round trip in nanoseconds, if there is one.
    pub srtt_ns: Option<u64>,
    /// Its variation in nanoseconds.
    pub rttvar_ns: u64,
    /// The least of late in nanoseconds.
    pub min_rtt_ns: Option<u64>,
    /// Retransmission timeout in nanoseconds.
    pub rto_ns: u64,
    /// Bytes sent and not acknowledged.
    pub unacked_bytes: u32,
    /// Of those, bytes that SACKs have told of.
    pub sacked_bytes: u32,
    /// Bytes that count as lost.
    pub lost_bytes: u32,
    /// Retransmitted bytes in flight.
    pub retrans_bytes: u32,
    /// Bytes written and not sent.
    pub unsent_bytes: u32,
    /// Bytes that can be read.
    pub readable_bytes: u32,
    /// Timeouts in a row.
    pub retries: u8,
    /// Loss probes, window probes or keepalive probes without an answer.
    pub probes: u8,
    /// Whether these were agreed upon.
    pub sack: bool,
    /// Time stamps.
    pub timestamps: bool,
    /// ECN.
    pub ecn: bool,
    /// Whether a SYN had data that were taken (RFC 7413).
    pub syn_data: bool,
    /// The last soft error that the user has not taken.
    pub soft_error: Option<SoftError>,
}

impl Connection {
    /// Bytes that [`write`](Self::write) takes now.
    #[inline]
    pub fn writable(&self) -> u32 {
        let is_open =
            self.state.may_send() || matches!(self.state, State::SynSent | State::SynReceived);
        match is_open && !self.is(is::FIN_QUEUED) {
            true => self.send_room().saturating_sub(self.buffer.len()),
            false => 0,
        }
    }

    /// How much may wait: twice the congestion window, so that there is always something to send,
    /// and no more, so that a slow peer does not hold what others could use.
    fn send_room(&self) -> u32 {
        let most = self
            .control
            .window
            .cwnd_bytes
            .saturating_mul(2)
            .max(64 << 10);
        most.min(self.send_limit)
    }

    /// Takes bytes to be sent: as many as there is room for. They go with the next
    /// [`push`](Self::push).
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is no room now; [`Error::Closed`] after a close; what has
    /// ended the connection.
    pub fn write<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        bytes: &[u8],
    ) -> Result<usize, Error> {
        self.may_write()?;
        self.restart_if_idle(cx);
        self.note_user_limit();
        let room = self.writable() as usize;
        let take = bytes.len().min(room);
        let taken = self
            .buffer
            .write(&mut cx.shared.chunks, &bytes[..take], u32::MAX);
        if taken < bytes.len() {
            self.set(is::WRITE_BLOCKED, true);
            self.lack_chunks(taken < take);
        }
        match taken {
            0 if !bytes.is_empty() => Err(Error::WouldBlock),
            taken => Ok(taken),
        }
    }

    /// Room for up to `count` bytes at the end of what is to be sent, for the user to write into:
    /// [`commit`](Self::commit) sends them. Possibly less room than asked for.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn reserve<'a, W: Wire>(
        &mut self,
        cx: &'a mut Context<'_, W>,
        count: usize,
    ) -> Result<&'a mut [u8], Error> {
        self.may_write()?;
        self.restart_if_idle(cx);
        self.note_user_limit();
        // Room lies in one chunk.
        let room = (self.writable() as usize).min(count).min(CHUNK_BYTES);
        if room == 0 {
            self.set(is::WRITE_BLOCKED, true);
            return Err(Error::WouldBlock);
        }
        match self.buffer.reserve(&mut cx.shared.chunks, room, u32::MAX) {
            Some(room) => Ok(room),
            None => {
                self.set(is::WRITE_BLOCKED, true);
                self.lack_chunks(true);
                Err(Error::WouldBlock)
            }
        }
    }

    /// The stack hears of it, since no ACK for this connection may ever come.
    fn lack_chunks(&mut self, lacks: bool) {
        if lacks && !self.lacks_chunks {
            self.lacks_chunks = true;
            self.events |= event::NO_CHUNKS;
        }
    }

    /// Whether a write has found no chunk since the connection was [fed](Self::feed).
    #[inline]
    pub fn lacks_chunks(&self) -> bool {
        self.lacks_chunks
    }

    /// There are chunks again: the user hears that there is room to write, if there is.
    pub fn feed(&mut self) {
        if std::mem::take(&mut self.lacks_chunks) && self.writable() > 0 {
            self.set(is::WRITE_BLOCKED, false);
            self.events |= event::WRITABLE;
        }
    }

    /// The user wants to be told when there is room to write, without having tried to.
    #[inline]
    pub fn want_room(&mut self) {
        self.set(is::WRITE_BLOCKED, true);
    }

    /// Takes the first `count` bytes of the room that was reserved last.
    pub fn commit<W: Wire>(&mut self, cx: &mut Context<'_, W>, count: usize) {
        self.buffer.commit(&mut cx.shared.chunks, count);
    }

    fn may_write(&self) -> Result<(), Error> {
        match self.state {
            _ if self.is(is::FIN_QUEUED) => Err(Error::Closed),
            state if state.may_send() => Ok(()),
            State::SynSent | State::SynReceived => Ok(()),
            _ => Err(self.error.unwrap_or(Error::NotConnected)),
        }
    }

    /// Bytes that can be read.
    #[inline]
    pub fn readable(&self) -> u32 {
        self.queue.readable()
    }

    /// Whether there is an end to be read: the peer has closed, or nothing comes any more.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.queue.readable() == 0
            && (self.is(is::FIN_RECEIVED) || matches!(self.state, State::Closed | State::TimeWait))
    }

    /// Whether the peer sends no more, whatever there is yet to be read (Linux: EPOLLRDHUP).
    #[inline]
    pub fn has_hung_up(&self) -> bool {
        self.is(is::FIN_RECEIVED) || matches!(self.state, State::Closed | State::TimeWait)
    }

    /// Reads up to `out.len()` bytes; 0 is the end.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is nothing yet; what has ended the connection, once all is
    /// read.
    pub fn read<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        if self.queue.readable() == 0 {
            return self.nothing_to_read();
        }
        let most = match self.urgent {
            0 => out.len(),
            _ => self.before_mark(cx.shared, out.len()),
        };
        let out = &mut out[..most];
        let count = self.queue.read(&mut cx.shared.pieces, cx.wire.cache(), out);
        self.after_read(cx);
        Ok(count)
    }

    /// Takes the next piece of what can be read as it came: the packet, and where in its data the
    /// bytes lie. `None` is the end. A last urgent byte within it stays there.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn take<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
    ) -> Result<Option<(Packet, Span)>, Error> {
        if self.queue.readable() == 0 {
            return self.nothing_to_read().map(|_| None);
        }
        let taken = self.queue.take(&mut cx.shared.pieces);
        self.after_read(cx);
        Ok(taken)
    }

    /// The next bytes that can be read, as far as they lie together; they stay. Empty where there
    /// are none.
    #[inline]
    pub fn front<'a, W>(&self, cx: &'a Context<'_, W>) -> &'a [u8] {
        let next = self.queue.front(&cx.shared.pieces);
        match self.urgent {
            0 => next,
            _ => &next[..self.before_mark(cx.shared, next.len())],
        }
    }

    /// Copies the next bytes that can be read to `out`, and leaves them. Returns how many.
    pub fn peek<W>(&self, cx: &Context<'_, W>, out: &mut [u8]) -> usize {
        let most = match self.urgent {
            0 => out.len(),
            _ => self.before_mark(cx.shared, out.len()),
        };
        self.queue.peek(&cx.shared.pieces, 0, &mut out[..most])
    }

    /// Drops up to `count` bytes that can be read. Returns how many.
    pub fn discard<W: Wire>(&mut self, cx: &mut Context<'_, W>, count: u32) -> u32 {
        let dropped = self
            .queue
            .discard(&mut cx.shared.pieces, cx.wire.cache(), count);
        if dropped > 0 {
            self.after_read(cx);
        }
        dropped
    }

    fn nothing_to_read(&self) -> Result<usize, Error> {
        match self.state {
            _ if self.is(is::FIN_RECEIVED | is::READ_SHUT) => Ok(0),
            State::Closed | State::TimeWait => match self.error {
                Some(error) => Err(error),
                None => Ok(0),
            },
            _ => Err(Error::WouldBlock),
        }
    }

    /// The window may have opened: the peer is told of it before long (RFC 9293 3.8.6.2.2).
    fn after_read<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let next = self.queue.next();
        let read = next.wrapping_sub(self.queue.readable());
        let mss = u32::from(self.rcv_mss);
        let most = cx.shared.config.receive_bytes_max;
        self.autotune.on_read(read, mss, most, cx.now_ns);
        if self.urgent != 0 {
            self.settle_urgent(cx);
        }
        let buffer = self.autotune.buffer();
        let free = buffer.saturating_sub(self.queue.readable());
        if self.state.may_receive()
            && !self.is(is::FIN_RECEIVED)
            && self.rcv_window.is_update_due(next, free, buffer, mss)
        {
            self.is |= is::ACK_NOW;
        }
    }

    /// Says that nothing more will be written (RFC 9293 3.10.4); what was written is sent first.
    pub fn shutdown<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            State::SynReceived => {}
            State::SynSent => return self.finish(cx, None),
            _ => return,
        }
        self.set(is::FIN_QUEUED, true);
        self.set(is::CORK, false);
    }

    /// Closes it: nothing more is read or written. What was written is sent first; what was not
    /// read is lost, which the peer is told by a reset (RFC 9293 3.6.1, RFC 2525 2.17). From now on
    /// its user knows it no more.
    pub fn close<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        self.set(is::ORPHAN, true);
        let is_unread = self.queue.readable() > 0;
        self.queue.clear(&mut cx.shared.pieces, cx.wire.cache());
        let is_open = self.state.is_synchronized() || self.is_open_early();
        if is_unread && is_open && self.state != State::TimeWait {
            self.send_reset(cx);
            return self.finish(cx, Some(Error::Aborted));
        }
        self.shutdown(cx);
        if self.state == State::FinWait2 {
            self.set_other(cx);
        }
    }

    /// Ends it at once, with a reset (RFC 9293 3.10.5).
    pub fn abort<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let must_tell = matches!(
            self.state,
            State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
                | State::Closing
                | State::LastAck
        );
        if must_tell {
            self.send_reset(cx);
        }
        self.set(is::ORPHAN, true);
        self.finish(cx, Some(Error::Aborted));
    }

    /// Reads no more: what comes from now on ends the connection.
    pub fn shutdown_read<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        self.queue.clear(&mut cx.shared.pieces, cx.wire.cache());
        self.set(is::READ_SHUT, true);
    }

    /// There is room for the user to write, if it wants to know.
    #[inline]
    pub(super) fn tell_writable(&mut self) {
        // As Linux: when a third is free, so that each ACK is not a call.
        if self.is(is::WRITE_BLOCKED) && self.writable() >= self.send_room() / 3 {
            self.set(is::WRITE_BLOCKED, false);
            self.events |= event::WRITABLE;
        }
    }

    /// Small segments do not wait for others' ACKs (RFC 9293 3.7.4: MUST-17). What waits now is
    /// sent, even if it is [corked](Self::set_cork), as in Linux.
    pub fn set_no_delay<W: Wire>(&mut self, cx: &mut Context<'_, W>, on: bool) {
        self.set(is::NO_DELAY, on);
        if on && self.is(is::CORK) {
            self.set(is::CORK, false);
            self.push(cx);
            self.set(is::CORK, true);
        }
    }

    /// Only full segments are sent, until this is taken back (Linux: TCP_CORK).
    pub fn set_cork(&mut self, on: bool) {
        self.set(is::CORK, on);
    }

    /// ACKs are not delayed; or they are, from the first on, until one has waited in vain (Linux:
    /// TCP_QUICKACK).
    pub fn set_quick_ack(&mut self, on: bool) {
        self.set(is::QUICK_ACK, on);
        self.ping_pong = match on {
            true => 0,
            false => super::output::PING_PONG,
        };
    }

    /// Goes on with another congestion control; the window stays (Linux: TCP_CONGESTION).
    pub fn set_algorithm(&mut self, algorithm: Algorithm, now_ns: u64) {
        // A recovery goes on by PRR to the threshold that it has.
        self.control.set_algorithm(algorithm, now_ns);
        // Not at the rate that the one before has found.
        self.pacer.clear_rate();
        self.pace(self.control.window.is_paced());
    }

    /// Probes an idle peer, or no longer (RFC 9293 3.8.4: off by default).
    pub fn set_keepalive<W: Wire>(&mut self, cx: &Context<'_, W>, keepalive: Option<Keepalive>) {
        self.set(is::KEEPALIVE, keepalive.is_some());
        if let Some(set) = keepalive {
            (self.keep_idle_s, self.keep_interval_s) = (set.idle_s, set.interval_s);
            self.keep_count = set.count;
        }
        self.set_other(cx);
    }

    /// How long what was sent may be unacknowledged, in milliseconds; 0 for the usual (RFC 9293
    /// 3.9.1, RFC 5482).
    pub fn set_user_timeout(&mut self, ms: u32) {
        self.user_timeout_ms = ms;
    }

    /// The most that may be written and unacknowledged, in bytes.
    pub fn set_send_limit(&mut self, bytes: u32) {
        self.send_limit = bytes.max(4096);
    }

    /// The most that it is paced at, in bytes a second; 0 for no limit.
    pub fn set_pacing_limit(&mut self, bytes_per_s: u64) {
        self.pacer.set_limit(bytes_per_s);
    }

    /// What is known of it.
    pub fn info(&self, now_ns: u64) -> Info {
        use crate::tcp::congestion::Congestion;
        Info {
            state: self.state,
            phase: self.phase,
            algorithm: self.control.algorithm.name(),
            cwnd_bytes: self.control.window.cwnd_bytes,
            ssthresh_bytes: self.control.window.ssthresh_bytes,
            mss: self.mss,
            rcv_mss: self.rcv_mss,
            advertised_mss: self.advertised_mss,
            snd_wnd: self.snd_wnd,
            rcv_wnd: self.rcv_window.bytes(self.queue.next()),
            scales: (self.snd_scale, self.rcv_window.scale()),
            srtt_ns: self.rtt.srtt_ns(),
            rttvar_ns: self.rtt.rttvar_ns(),
            min_rtt_ns: self.rtt.min_rtt_ns(now_ns),
            rto_ns: self.rtt.rto_ns(),
            unacked_bytes: self.snd_nxt.wrapping_sub(self.snd_una),
            sacked_bytes: self.sacked,
            lost_bytes: self.lost,
            retrans_bytes: self.retrans,
            unsent_bytes: seq::diff(self.data_end(), self.snd_nxt).max(0) as u32,
            readable_bytes: self.queue.readable(),
            retries: self.retries,
            probes: match self.awaits {
                // Those that were answered count for the time between two, no more.
                Awaits::WindowProbe => self.retries,
                _ => self.probes,
            },
            sack: self.is(is::SACK),
            timestamps: self.is(is::TIMESTAMPS),
            ecn: self.is(is::ECN),
            syn_data: self.is(is::SYN_DATA),
            soft_error: self.soft,
        }
    }

    /// Whether as many retransmissions as R1 were not answered (RFC 9293 3.8.3).
    pub fn is_unanswered(&self, config: &Config) -> bool {
        self.retries > config.retries1
    }

    /// Whether anything waits for a timer.
    pub fn is_idle(&self) -> bool {
        self.sent.count() == 0 && self.awaits == Awaits::Nothing
    }
}

impl Connection {
    /// SND.NXT, RCV.NXT, the window field of the last segment and the peer's last time stamp: what
    /// a record in TIME-WAIT has to know.
    pub fn last_words(&self) -> (u32, u32, u16, Option<u32>) {
        let window = self.rcv_window.bytes(self.queue.next()) >> self.rcv_window.scale();
        let ts_recent = self.is(is::TIMESTAMPS).then_some(self.ts_recent);
        let window = window.min(u16::MAX.into()) as u16;
        (self.snd_nxt, self.rcv_nxt(), window, ts_recent)
    }

    /// The path takes segments of at most so many payload bytes, options aside (RFC 1191, RFC
    /// 8201). What was sent in longer ones is sent again (Linux: tcp_simple_retransmit).
    pub fn set_path_mss<W: Wire>(&mut self, cx: &mut Context<'_, W>, path_mss: u16) {
        if self.search != 0 {
            self.limit_mtu_search(cx.shared, path_mss);
        }
        if path_mss >= self.path_mss {
            return;
        }
        self.set_mss(path_mss);
        let before = self.lost;
        let mut index = self.sent.first();
        while index != crate::tcp::sent::NIL {
            // Of unsegmented frames each segment was as long as it could be.
            if cx.shared.records[index].len() > self.mss.into() {
                self.mark_lost(cx, index);
            }
            index = crate::tcp::sent::Sent::next(&cx.shared.records, index);
        }
        if self.lost > before && self.phase != Phase::Loss {
            // The path refused them.
            self.send_again_as_it_is();
        }
        self.push(cx);
    }

    /// An ICMP error says that segments do not arrive. It is believed where it quotes something
    /// under way (RFC 5927 4.1), and ends only what is not established (5.2, RFC 1122 4.2.3.9).
    /// Of what goes on the user is told (RFC 9293 3.9.1.8, MUST-47). Whether it was believed.
    pub fn on_unreachable<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        quoted: u32,
        error: SoftError,
    ) -> bool {
        if !self.is_under_way(quoted) {
            return false;
        }
        let is_hard = error.is_hard();
        // Linux gives up on a SYN that was sent again; RFC 1122 4.2.3.9 on a hard error.
        let ends = match self.state {
            State::SynSent => is_hard || self.retries > 0,
            State::SynReceived => is_hard,
            _ => false,
        };
        if ends {
            self.finish(cx, Some(error.as_error()));
        } else if !self.is(is::ORPHAN) {
            cx.shared.stats.soft_errors += 1;
            (self.soft, self.soft_seq) = (Some(error), quoted);
            self.events |= event::SOFT_ERROR;
        }
        true
    }

    /// The last soft error since this was asked last: ICMP has said that something did not arrive,
    /// and the connection goes on (Linux: SO_ERROR, IP_RECVERR).
    pub fn take_soft_error(&mut self) -> Option<SoftError> {
        self.soft.take()
    }

    /// Whether there is one.
    #[inline]
    pub fn has_soft_error(&self) -> bool {
        self.soft.is_some()
    }

    /// Whether a sequence number is of what is not acknowledged (RFC 5927 4.1).
    pub fn is_under_way(&self, quoted: u32) -> bool {
        seq::ge(quoted, self.snd_una) && seq::lt(quoted, self.snd_nxt)
    }
}
