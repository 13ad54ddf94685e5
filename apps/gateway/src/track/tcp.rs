//! TCP: which segments may follow which, by flags, windows and sequence numbers.
//!
//! Every segment of a connection passes here, and nothing reaches an end that has not. So of each
//! side there is known what it may have sent and acknowledged, and a segment is let through if its
//! receiver could use it. The bounds are those of van Rooij, "Real Stateful TCP Packet Filtering in
//! IP Filter" (SANE 2000), with the receiver's rule of RFC 9293 3.10.7.4: a segment need not lie
//! within the window, it must touch it. For a sender *s* and a receiver *r*:
//!
//! | bound | condition | else |
//! |---|---|---|
//! | what *r* takes | `seq <= s.max_end`; if bare also `+ 1`, and `s.end` | `tcp_window` |
//! | what *r* may lack | `seq + len >= s.end - r.max_win - 2` | `tcp_old` |
//! | what *r* has sent | `ack <= r.end`, ends of SACK blocks likewise | `tcp_ack_unsent` |
//! | what *s* knows by now | `ack >= r.end - 2 * max(s.max_win, 66000)` | `tcp_ack_old` |
//!
//! An honest sender is never refused: it has sent `s.end` within a window that *r* announced, which
//! is at most `r.max_win` above what *r* lacks, and repeats nothing below that; a keep-alive is one
//! below (RFC 9293 3.8.4). A probe of a closed window is one above (3.8.6.1), and what follows it
//! has the number after it. What is refused as old was overtaken by a whole window: its receiver
//! has it. An acknowledgment is refused as old only if *r* would refuse it too: by RFC 5961 5.2 one
//! a window below what *r* knows to have arrived, which is at most a window below `r.end`.
//!
//! # RST and SYN
//!
//! RFC 5961 lets an end believe a RST only at the very sequence number that it expects, and no SYN
//! at all: anything else in the window is answered by an ACK (a *challenge*), and only the answer
//! to that counts. The same holds here. A RST at an edge (what the receiver has acknowledged, or
//! all that the sender has sent) moves the flow to `reset`; any other in the window passes and
//! changes nothing, so that the ends can challenge; one outside is dropped. A SYN passes and
//! changes nothing, wherever it is: that is how a host that has lost a connection finds out (RFC
//! 9293 3.5.1, RFC 5961 4.2). An end that does not know the connection answers by a SYN-ACK, or a
//! RST of that SYN. If the SYN comes again after [`NOTE_MS`], and the other end has so answered it
//! and said nothing else, neither end knows the connection: [`Verdict::Anew`]. Silence is no
//! answer: the SYN may not have arrived.
//!
//! A flow in `reset` still lets the window's segments through (RFC 7857 2.2), and is what it was
//! before as soon as the side that seemed to send the RST goes on (RFC 6146 3.5.2.2).

use linerate_tables::flow::Direction;
use linerate_wire::tcp::flag;

use super::segment::{Kind, MAX_SCALE, NO_SCALE, Segment, is_after, later};
use super::{Reason, State, Verdict};

/// How far below what a receiver lacks a segment may be: a keep-alive is one below what its sender
/// has acknowledged, and may have sent one above the window, as a probe.
const KEEP_ALIVE: u32 = 2;

/// The window that acknowledgments are taken to be of, at least: 64 KiB and a segment.
const MAX_ACK_LAG: u32 = 66_000;

/// The largest window there is: RFC 7323 2.3.
const LARGEST_WINDOW: u32 = 0xffff << MAX_SCALE;

/// Milliseconds in which a host answers a SYN that it cannot use: less than any TCP waits before
/// it repeats one (RFC 6298 2.1), more than a round trip.
pub const NOTE_MS: u64 = 768;

/// Ticks of [`Tcp::noted`], in milliseconds, and how many it counts.
const NOTE_TICK_MS: u64 = 256;
const NOTE_TICKS: u8 = 0x7f;
/// In [`Tcp::noted`]: the other end has answered the SYN as if there were no connection.
const ANSWERED: u8 = 0x80;

/// What is known of one side of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Side {
    /// Behind the highest sequence number that it has sent.
    pub(super) end: u32,
    /// The highest that the other side lets it send.
    pub(super) max_end: u32,
    /// The largest window that it has announced; 0: it has not been heard.
    pub(super) max_win: u32,
    /// The highest acknowledgment that it has sent: what it expects is not below.
    pub(super) max_ack: u32,
}

/// The state of a connection, 40 bytes. Zero for flows of other protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tcp {
    /// By direction.
    pub(super) sides: [Side; 2],
    /// With [`SHIFTED`]: what is added to sequence numbers of the reverse direction. With
    /// [`NOTED`]: the sequence number of a SYN, or in `syn_sent` what a challenge acknowledged.
    pub(super) extra: u32,
    /// By direction: the shift of its windows; [`NO_SCALE`] until both have said theirs.
    pub(super) scales: [u8; 2],
    pub(super) flags: u8,
    /// When the SYN was noted, and [`ANSWERED`]; with [`SHIFTED`] which windows are scaled.
    pub(super) noted: u8,
}

const _: () = assert!(size_of::<Tcp>() == 40);

/// The other side has acknowledged the SYN of the side that began.
pub(super) const ACKED: [u8; 2] = [1, 2];
/// A side has sent a FIN: the last that it has sent.
const FIN: [u8; 2] = [4, 8];
/// The RST came from the reverse direction.
const RESET_REVERSE: u8 = 16;
/// Picked up amid a connection: windows are guessed, more may be on its way than was seen.
const GUESSED: u8 = 32;
/// See [`Tcp::extra`].
pub(super) const SHIFTED: u8 = 64;
const NOTED: u8 = 128;

/// The flags of an established connection of which nothing else is to be said.
pub(super) const OPEN: u8 = ACKED[0] | ACKED[1];

impl Tcp {
    /// A connection that begins with this SYN.
    pub(super) fn opened(syn: &Segment) -> Self {
        let mut tcp = Self::default();
        tcp.sides[0] = Side::of_syn(syn);
        tcp.sides[1].max_ack = syn.seq;
        tcp.scales = [syn.scale, NO_SCALE];
        tcp
    }

    /// A connection of which this is the first segment seen.
    pub(super) fn picked_up(segment: &Segment) -> Self {
        let window = (u32::from(segment.window) << MAX_SCALE).max(1);
        let (end, ack) = (segment.end(), segment.ack);
        let forward = Side {
            end,
            max_end: end.wrapping_add(LARGEST_WINDOW),
            max_win: window,
            max_ack: ack,
        };
        let reverse = Side {
            end: ack,
            max_end: ack.wrapping_add(window),
            max_win: 0,
            max_ack: segment.seq,
        };
        Self {
            sides: [forward, reverse],
            scales: [MAX_SCALE; 2],
            flags: OPEN | GUESSED,
            ..Self::default()
        }
    }

    /// Whether sequence numbers change on the way: then [`Tcp::shift`] what passes.
    #[inline(always)]
    pub fn is_shifted(&self) -> bool {
        self.flags & SHIFTED != 0
    }

    /// A further segment of a connection in the state of number `state`, at millisecond `now_ms` of
    /// any clock.
    #[inline(always)]
    pub fn next(
        &mut self,
        direction: Direction,
        segment: &Segment,
        state: u8,
        now_ms: u64,
    ) -> Verdict {
        if self.continues(direction, segment, state) {
            return Verdict::Pass(State::Established);
        }
        self.judge(direction as usize, segment, State::of(state), now_ms)
    }

    /// Takes in a segment of an established connection that has nothing to judge, which stays in
    /// that state. Otherwise does nothing, and [`next`](Self::next) is to judge it.
    #[inline(always)]
    pub fn continues(&mut self, direction: Direction, segment: &Segment, state: u8) -> bool {
        let is_open = state == State::Established as u8 && self.flags == OPEN;
        is_open && segment.is_plain() && self.goes_on(direction, segment)
    }

    /// Takes in what most segments are: nothing old, nothing beyond the window. That is within all
    /// bounds, since no window has been taken back. Otherwise does nothing.
    #[inline(always)]
    fn goes_on(&mut self, direction: Direction, segment: &Segment) -> bool {
        let from = direction as usize;
        let (sender, receiver) = (&self.sides[from], &self.sides[1 - from]);
        let end = segment.end();
        let above = sender.max_end.wrapping_sub(end);
        let again = end.wrapping_sub(sender.end);
        let unsent = receiver.end.wrapping_sub(segment.sack);
        let late = segment.ack.wrapping_sub(sender.max_ack);
        // One branch: none of the differences is negative.
        if ((above | again | unsent | late) as i32) < 0 {
            return false;
        }
        let window = u32::from(segment.window).wrapping_shl(self.scales[from].into());
        // A window of 0 is probed by one byte (RFC 9293 3.8.6.1).
        let right = segment.ack.wrapping_add(window.max(1));
        self.sides[1 - from].max_end = later(right, receiver.max_end);
        let sender = &mut self.sides[from];
        sender.end = end;
        sender.max_ack = segment.ack;
        sender.max_win = sender.max_win.max(window);
        true
    }

    #[inline(never)]
    fn judge(&mut self, from: usize, segment: &Segment, state: State, now_ms: u64) -> Verdict {
        let mut segment = *segment;
        if self.is_shifted() && from == 0 && state != State::Proxied {
            segment.ack = segment.ack.wrapping_sub(self.extra);
            segment.sack = segment.sack.wrapping_sub(self.extra);
        }
        let segment = &segment;
        match (segment.kind(), state) {
            (Kind::Invalid, _) => Verdict::Drop(Reason::TcpFlags),
            (_, State::Proxied) => self.proxied(from, segment),
            (Kind::Syn, State::SynSent) => self.syn_again(from, segment),
            (Kind::Syn, _) => self.syn_late(from, segment, state, now_ms),
            (Kind::SynAck, State::SynSent | State::SynReceived) => self.syn_ack(from, segment),
            (Kind::Reset, State::SynSent) => self.refused(from, segment),
            (Kind::Reset, _) => self.reset(from, segment, state),
            (_, State::SynSent) => self.challenged(from, segment),
            _ => self.synchronized(from, segment, state),
        }
    }

    /// A SYN, and no answer yet.
    fn syn_again(&mut self, from: usize, syn: &Segment) -> Verdict {
        if from == 0 {
            // Another sequence number: the first attempt was given up.
            if syn.seq != self.sides[1].max_ack {
                *self = Self::opened(syn);
            }
            return Verdict::Unchanged;
        }
        // RFC 9293 3.5 figure 7, RFC 5382 REQ-2: simultaneous open.
        self.answered(syn, self.sides[1].max_ack);
        self.flags &= !NOTED;
        Verdict::Pass(State::SynReceived)
    }

    /// A SYN within a connection.
    fn syn_late(&mut self, from: usize, syn: &Segment, state: State, now_ms: u64) -> Verdict {
        match state {
            State::Reset => return Verdict::Anew,
            // RFC 1122 4.2.2.13: a higher number than any of the last connection.
            State::TimeWait if is_after(syn.seq, self.sides[from].end) => return Verdict::Anew,
            _ => {}
        }
        if from != 0 || self.is_shifted() {
            return Verdict::Unchanged;
        }
        let now = (now_ms / NOTE_TICK_MS) as u8 & NOTE_TICKS;
        if self.flags & NOTED != 0 && self.extra == syn.seq {
            let waited = now.wrapping_sub(self.noted) & NOTE_TICKS;
            let has_waited = u64::from(waited) * NOTE_TICK_MS >= NOTE_MS;
            return match has_waited && self.noted & ANSWERED != 0 {
                true => Verdict::Anew,
                false => Verdict::Unchanged,
            };
        }
        (self.extra, self.noted) = (syn.seq, now);
        self.flags |= NOTED;
        Verdict::Unchanged
    }

    /// A SYN with an acknowledgment, before both SYNs are acknowledged.
    fn syn_ack(&mut self, from: usize, segment: &Segment) -> Verdict {
        let to = 1 - from;
        let is_heard = self.sides[from].max_win != 0;
        if !is_heard && from == 0 || !self.acks_syn(from, segment) {
            self.note_answer(from, segment);
            return Verdict::Drop(Reason::TcpHandshake);
        }
        let (sender, end) = (self.sides[from], segment.end());
        if is_heard && sender.end == end {
            // The same SYN, now with an acknowledgment, or again.
            self.sides[from].max_ack = later(segment.ack, sender.max_ack);
        } else if from == 1 && self.flags & ACKED[1] == 0 {
            // The first answer, or one that replaces it: SYN cookies change with time.
            self.answered(segment, segment.ack);
        } else {
            self.note_answer(from, segment);
            return Verdict::Drop(Reason::TcpHandshake);
        }
        self.open_window(to, segment);
        self.flags = (self.flags | ACKED[to]) & !NOTED;
        Verdict::Pass(self.opening())
    }

    /// What a SYN-ACK lets its receiver send; its window is not scaled (RFC 7323 2.2).
    fn open_window(&mut self, to: usize, syn_ack: &Segment) {
        let right = syn_ack.ack.wrapping_add(u32::from(syn_ack.window).max(1));
        self.sides[to].max_end = later(right, self.sides[to].max_end);
    }

    /// The other side's SYN.
    fn answered(&mut self, syn: &Segment, max_ack: u32) {
        let side = Side::of_syn(syn);
        self.sides[1] = Side {
            // What the first SYN lets it send, if that is asked for: RFC 7413.
            max_end: side.end.wrapping_add(self.sides[0].max_win),
            max_ack,
            ..side
        };
        self.sides[0].max_ack = syn.seq;
        self.scales[1] = syn.scale;
    }

    /// Whether a segment acknowledges the SYN of its receiver, and nothing that was not sent.
    fn acks_syn(&self, from: usize, segment: &Segment) -> bool {
        let lag = segment.ack.wrapping_sub(self.max_ack(from)) as i32;
        let least = i32::from(self.flags & ACKED[1 - from] == 0);
        lag >= least && !is_after(segment.sack, self.sides[1 - from].end)
    }

    fn max_ack(&self, side: usize) -> u32 {
        self.sides[side].max_ack
    }

    /// The state before or at the end of the handshake.
    fn opening(&mut self) -> State {
        if self.flags & OPEN != OPEN {
            return State::SynReceived;
        }
        // RFC 7323 2.2: either both scale, or none.
        if self.scales.contains(&NO_SCALE) {
            self.scales = [0; 2];
        }
        self.open()
    }

    /// The state of a connection whose SYNs are acknowledged, by its FINs.
    fn open(&self) -> State {
        let [forward, reverse] = &self.sides;
        match self.flags & (FIN[0] | FIN[1]) {
            0 => State::Established,
            both if both == FIN[0] | FIN[1] => {
                match forward.max_ack == reverse.end && reverse.max_ack == forward.end {
                    true => State::TimeWait,
                    false => State::Closing,
                }
            }
            _ => State::HalfClosed,
        }
    }

    /// A RST before the answer to the SYN.
    fn refused(&mut self, from: usize, reset: &Segment) -> Verdict {
        if from == 1 {
            // RFC 9293 3.10.7.3: it is valid if it acknowledges the SYN.
            if !reset.acks() || !self.acks_syn(1, reset) {
                return Verdict::Drop(Reason::TcpReset);
            }
            self.flags |= RESET_REVERSE;
            return Verdict::Pass(State::Reset);
        }
        if reset.seq == self.sides[0].end {
            self.flags &= !RESET_REVERSE;
            return Verdict::Pass(State::Reset);
        }
        // RFC 9293 3.5.1 figure 9: it ends an old connection of the other side, which has
        // answered the SYN by a challenge. The SYN is still to come again.
        match self.flags & NOTED != 0 && reset.seq == self.extra {
            true => Verdict::Unchanged,
            false => Verdict::Drop(Reason::TcpReset),
        }
    }

    /// An ACK before the answer to the SYN.
    fn challenged(&mut self, from: usize, segment: &Segment) -> Verdict {
        if from == 0 || segment.len != 0 {
            return Verdict::Drop(Reason::TcpHandshake);
        }
        // RFC 5961 4.2: the other side is still in an old connection.
        self.extra = segment.ack;
        self.flags |= NOTED;
        Verdict::Unchanged
    }

    /// A RST in a connection: RFC 5961 3.2.
    fn reset(&mut self, from: usize, reset: &Segment, state: State) -> Verdict {
        let (sender, receiver) = (self.sides[from], self.sides[1 - from]);
        // RFC 9293 3.5.2: where there is no connection, the answer to a SYN is numbered 0.
        let refuses = state == State::SynReceived
            && self.flags & ACKED[from] == 0
            && reset.acks()
            && reset.ack == receiver.end;
        let lowest = match self.flags & GUESSED {
            0 => receiver.max_ack,
            _ => sender.end.wrapping_sub(window_of(&receiver)),
        };
        let is_below = is_after(lowest, reset.seq);
        if !refuses && (is_below || is_after(reset.seq, sender.max_end)) {
            self.note_answer(from, reset);
            return Verdict::Drop(Reason::TcpReset);
        }
        let is_edge = reset.seq == receiver.max_ack || reset.seq == sender.end;
        if state == State::Reset || !refuses && !is_edge {
            return Verdict::Unchanged;
        }
        self.flags &= !RESET_REVERSE;
        if from == 1 {
            self.flags |= RESET_REVERSE;
        }
        Verdict::Pass(State::Reset)
    }

    /// A segment without SYN and RST (or a repeated SYN-ACK) of a connection that both sides know.
    fn synchronized(&mut self, from: usize, segment: &Segment, state: State) -> Verdict {
        let to = 1 - from;
        let (kind, end) = (segment.kind(), segment.end());
        let before = self.sides[from];
        if self.flags & ACKED[to] == 0 && !self.acks_syn(from, segment) {
            return Verdict::Drop(Reason::TcpHandshake);
        }
        if let Some(reason) = self.out_of_bounds(from, segment) {
            self.note_answer(from, segment);
            return Verdict::Drop(reason);
        }
        let goes_on = is_after(end, before.end);
        if kind == Kind::SynAck {
            if goes_on {
                self.note_answer(from, segment);
                return Verdict::Drop(Reason::TcpWindow);
            }
            self.open_window(to, segment);
            return Verdict::Unchanged;
        }
        if goes_on && self.flags & FIN[from] != 0 {
            // Nothing follows a FIN that has arrived. If it has not, it was none of the sender's.
            if self.sides[to].max_ack == before.end || state == State::TimeWait {
                return Verdict::Drop(Reason::TcpWindow);
            }
            self.flags &= !FIN[from];
        }
        self.take_in(from, segment);
        self.flags |= ACKED[to];
        if kind == Kind::Fin && end == self.sides[from].end {
            self.flags |= FIN[from];
        }
        if from == 1 && !self.is_shifted() {
            self.flags &= !NOTED;
        }
        match state {
            State::SynReceived => Verdict::Pass(self.opening()),
            State::PickedUp if self.sides[to].max_win == 0 && self.flags & FIN[from] == 0 => {
                Verdict::Pass(state)
            }
            State::TimeWait if kind != Kind::Fin => Verdict::Unchanged,
            State::Reset => {
                let is_sender = (self.flags & RESET_REVERSE != 0) == (from == 1);
                let is_news = goes_on || is_after(segment.ack, before.max_ack);
                Verdict::Pass(match is_sender && is_news && self.flags & OPEN == OPEN {
                    true => self.opening(),
                    false => state,
                })
            }
            _ => Verdict::Pass(self.open()),
        }
    }

    /// Something that does not fit the connection: it may answer the SYN that was noted, by a
    /// SYN-ACK or RST (RFC 9293 3.10.7.1, 3.10.7.2).
    fn note_answer(&mut self, from: usize, segment: &Segment) {
        let is_noted = self.flags & (NOTED | SHIFTED) == NOTED;
        let is_answer = segment.flags & (flag::SYN | flag::RST) != 0 && segment.acks();
        if from == 1 && is_noted && is_answer && segment.ack == self.extra.wrapping_add(1) {
            self.noted |= ANSWERED;
        }
    }

    /// Which bound a segment oversteps, if any.
    fn out_of_bounds(&self, from: usize, segment: &Segment) -> Option<Reason> {
        let (sender, receiver) = (&self.sides[from], &self.sides[1 - from]);
        let most_sent = match self.flags & GUESSED {
            0 => receiver.end,
            _ => receiver.max_end,
        };
        let lowest = sender.end.wrapping_sub(window_of(receiver) + KEEP_ALIVE);
        let behind_probe = later(sender.max_end.wrapping_add(1), sender.end);
        let follows_probe = segment.len == 0 && !is_after(segment.seq, behind_probe);
        let lag = sender.max_win.max(MAX_ACK_LAG);
        if is_after(segment.seq, sender.max_end) && !follows_probe {
            Some(Reason::TcpWindow)
        } else if is_after(lowest, segment.end()) {
            Some(Reason::TcpOld)
        } else if is_after(segment.sack, most_sent) {
            Some(Reason::TcpAckUnsent)
        } else if is_after(receiver.end.wrapping_sub(lag * 2), segment.ack) {
            Some(Reason::TcpAckOld)
        } else {
            None
        }
    }

    /// As [`Tcp::goes_on`] takes in, what may also be old, or reach beyond the window.
    fn take_in(&mut self, from: usize, segment: &Segment) {
        let scale = match self.scales.contains(&NO_SCALE) {
            true => 0,
            false => self.scales[from],
        };
        let window = u32::from(segment.window).wrapping_shl(scale.into());
        let end = segment.end();
        let [forward, reverse] = &mut self.sides;
        let (sender, receiver) = match from {
            0 => (forward, reverse),
            _ => (reverse, forward),
        };
        if is_after(end, sender.max_end) && receiver.max_win != 0 {
            // The receiver may take it, and then acknowledge more than its window was.
            let beyond = end.wrapping_sub(sender.max_end);
            receiver.max_win = receiver.max_win.saturating_add(beyond).min(LARGEST_WINDOW);
        }
        sender.end = later(end, sender.end);
        sender.max_ack = later(segment.ack, sender.max_ack);
        sender.max_win = sender.max_win.max(window).max(1);
        receiver.max_end = later(segment.ack.wrapping_add(window.max(1)), receiver.max_end);
        if self.flags & GUESSED != 0 {
            receiver.end = later(segment.sack, receiver.end);
        }
    }

    /// Whether a side has sent this sequence number, and does not know that it has arrived: RFC
    /// 5927 4.1. The side is that of `direction`. A SYN that was noted is on its way besides.
    pub(super) fn is_on_its_way(&self, direction: Direction, seq: u32) -> bool {
        let side = direction as usize;
        let (sender, receiver) = (&self.sides[side], &self.sides[1 - side]);
        let seq = match self.is_shifted() && side == 1 {
            true => seq.wrapping_sub(self.extra),
            false => seq,
        };
        let is_noted = side == 0 && self.flags & (NOTED | SHIFTED) == NOTED && seq == self.extra;
        is_noted || is_after(sender.end, seq) && !is_after(receiver.max_ack, seq)
    }
}

impl Side {
    /// A side that sends this SYN.
    fn of_syn(syn: &Segment) -> Self {
        Self {
            end: syn.end(),
            max_end: syn.end(),
            max_win: u32::from(syn.window).max(1),
            max_ack: 0,
        }
    }
}

/// The largest window of a side; of one that has not been heard, the largest there is.
fn window_of(side: &Side) -> u32 {
    match side.max_win {
        0 => LARGEST_WINDOW,
        window => window,
    }
}
