//! One connection: the state machine of RFC 9293 3.10, and what it knows of its two directions.
//!
//! A [`Connection`] takes segments, time and calls of its user, and gives segments and [events]. It
//! knows neither addresses nor ports: its [`Wire`] does, which also finds the slots that segments
//! go out in. What connections of one lcore share, arenas and configuration, is in a [`Shared`].
//! Nothing is allocated after that has been made.
//!
//! | file | what |
//! |---|---|
//! | `input` | a segment arrives (RFC 9293 3.10.7): which are acceptable, what is done with them |
//! | `predicted` | the short way of both, for segments that nearly all are |
//! | `acknowledge` | what an ACK says of what was sent: SACK, round trips |
//! | `recovery` | losses: RACK-TLP, NewReno, F-RTO, undoing, PRR |
//! | `output` | what may be sent: windows, Nagle, retransmissions, ACKs |
//! | `timers` | deadlines, and what they do |
//! | `fast_open` | data in a SYN (RFC 7413) |
//! | `learned` | what is shared with later connections to the host (RFC 9040) |
//! | `open` | how connections begin, actively, passively or by a cookie |
//! | `parked` | idle ones, in less room |
//! | `mtu` | the path's MTU, found by probes |
//! | `urgent` | where urgent data ends |
//! | `user` | what its user asks of it: read, write, close, abort, options |
//!
//! [events]: event

mod acknowledge;
mod fast_open;
mod input;
mod learned;
mod moving;
mod mtu;
mod open;
mod output;
mod parked;
mod predicted;
mod recovery;
mod timers;
mod urgent;
mod user;

#[cfg(test)]
mod tests;

pub use fast_open::FastSyn;
pub use moving::Detached;
pub use open::{Active, Agreed, Passive};
pub use parked::Parked;
pub use user::{Info, Keepalive};

use std::net::IpAddr;

use linerate_core::packet::{Packet, PoolCache};

use super::config::Config;
use super::congestion::rate::Delivery;
use super::congestion::{Controller, Usage};
use super::few::Few;
use super::metrics::Metrics;
use super::mtu_search::MtuSearch;
use super::pacing::Pacer;
use super::prr::Prr;
use super::rate::{Challenges, OutOfWindow};
use super::receive::{Autotune, Pieces, ReceiveQueue, Window};
use super::rtt::Rtt;
use super::segment::{Header, Usual};
use super::send_buffer::{Chunks, SendBuffer};
use super::sent::{Records, Sent};
use super::soft::SoftError;
use super::stats::Stats;
use super::urgent::Urgent;

/// State of a connection (RFC 9293 3.3.2); one that listens is no connection here, and one in
/// TIME-WAIT only for as long as it takes to make a [record](super::time_wait) of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// There is none (any more).
    #[default]
    Closed,
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and answered.
    SynReceived,
    /// Data flows.
    Established,
    /// We have sent a FIN.
    FinWait1,
    /// Our FIN was acknowledged.
    FinWait2,
    /// The peer has sent a FIN.
    CloseWait,
    /// Both have sent FINs, the peer has not acknowledged ours.
    Closing,
    /// The peer has sent a FIN and then we have.
    LastAck,
    /// Both FINs were acknowledged.
    TimeWait,
}

impl State {
    /// Whether both ends know each other's sequence numbers (RFC 9293 3.3.2).
    #[inline(always)]
    pub fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::SynSent | Self::SynReceived)
    }

    /// Whether the user may still send.
    #[inline(always)]
    pub fn may_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// Whether the peer may still send.
    #[inline(always)]
    pub fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}

/// What a user may want to know, bits of [`Connection::take_events`].
pub mod event {
    /// The handshake is over.
    pub const CONNECTED: u16 = 1;
    /// There is data to be read, or the end of it.
    pub const READABLE: u16 = 2;
    /// There is room to write.
    pub const WRITABLE: u16 = 4;
    /// The peer sends no more.
    pub const PEER_CLOSED: u16 = 8;
    /// It has ended by an error, which [`Connection::error`](super::Connection::error) has.
    pub const ERROR: u16 = 16;
    /// It has ended: nothing comes or goes any more.
    pub const CLOSED: u16 = 32;
    /// It has come to TIME-WAIT: a record takes over.
    pub const TIME_WAIT: u16 = 64;
    /// There is urgent data, or its end has moved on.
    pub const URGENT: u16 = 128;
    /// As many retransmissions as R1 were not answered (RFC 9293 3.8.3).
    pub const UNANSWERED: u16 = 256;
    /// There is a soft error, which [`Connection::take_soft_error`](super::Connection) has.
    pub const SOFT_ERROR: u16 = 512;
    /// A write found no chunk in the arena: the stack is to [feed](super::Connection::feed) it.
    pub const NO_CHUNKS: u16 = 1024;
}

/// Why a connection has ended, or cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Error {
    /// The peer has refused it (ECONNREFUSED).
    #[error("connection refused")]
    Refused,
    /// The peer has reset it (ECONNRESET).
    #[error("connection reset by peer")]
    Reset,
    /// The peer has not answered for too long (ETIMEDOUT).
    #[error("connection timed out")]
    TimedOut,
    /// There is no way to the peer (EHOSTUNREACH).
    #[error("no route to host")]
    Unreachable,
    /// It was aborted here (ECONNABORTED).
    #[error("connection aborted")]
    Aborted,
    /// It is not connected, or no longer (ENOTCONN).
    #[error("not connected")]
    NotConnected,
    /// This direction was closed (EPIPE).
    #[error("closed for sending")]
    Closed,
    /// Nothing can be done now: later (EAGAIN).
    #[error("would block")]
    WouldBlock,
}

/// Whether a segment says that it may be marked (RFC 3168 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// No.
    NotCapable,
    /// Yes, with the codepoint ECT(0).
    Capable,
}

/// How a frame is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of payload.
    pub len: u32,
    /// Payload bytes of a segment, where the frame has several; 0 otherwise.
    pub gso_size: u16,
    /// The codepoint of the IP header.
    pub ecn: Ecn,
}

/// The way of a connection's segments: it has addresses, ports and slots.
pub trait Wire {
    /// Sends a frame: `fill` copies the payload into its room. Whether it was sent; if not there is
    /// no slot, and nothing was filled.
    fn send(&mut self, header: &Header, shape: Shape, fill: impl FnOnce(&mut [u8])) -> bool;

    /// The same of one segment whose header is the [usual](Usual) one.
    #[inline]
    fn send_usual(
        &mut self,
        header: Usual,
        len: u32,
        ecn: Ecn,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let shape = Shape {
            len,
            gso_size: 0,
            ecn,
        };
        self.send(&header.into(), shape, fill)
    }

    /// The longest payload that a frame may have in bytes, headers aside: more than a segment's
    /// where the port takes unsegmented frames, 0 otherwise.
    fn gso_bytes(&self) -> u32;

    /// Frees a packet that has done what it came for.
    fn free(&mut self, packet: Packet);

    /// The lcore's slots.
    fn cache(&mut self) -> &mut PoolCache;

    /// The peer's address, by which connections share what they learn.
    fn peer(&self) -> IpAddr;

    /// The neighbour has shown that it receives (RFC 4861 7.3.1).
    fn confirm(&mut self) {}

    /// It has not answered for long: it is asked whether it is still there (RFC 9293 3.8.3).
    fn doubt(&mut self) {}
}

/// What connections of one stack share.
pub struct Shared {
    /// Settings.
    pub config: Config,
    /// What was sent.
    pub records: Records,
    /// What was received.
    pub pieces: Pieces,
    /// What is to be sent.
    pub chunks: Chunks,
    /// Counters.
    pub stats: Stats,
    /// How often unexpected segments are answered.
    pub challenges: Challenges,
    /// What connections to the same host have learned.
    pub metrics: Metrics,
    /// Where urgent data ends.
    pub urgents: Few<Urgent>,
    /// Searches for the MTU of paths.
    pub searches: Few<MtuSearch>,
}

/// Everything that a connection works with while something happens to it.
pub struct Context<'a, W> {
    /// The time in nanoseconds.
    pub now_ns: u64,
    /// What it shares with others.
    pub shared: &'a mut Shared,
    /// Its way out.
    pub wire: &'a mut W,
}

/// What congestion control is doing, as Linux names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nothing unusual.
    #[default]
    Open,
    /// A duplicate ACK or a SACK came, which may be of reordering.
    Disorder,
    /// The window goes down for a mark of ECN or a probe that found a loss.
    Cwr,
    /// Losses are repaired without a timeout.
    Recovery,
    /// A timeout has struck.
    Loss,
}

/// What a timer of the sender waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Awaits {
    #[default]
    Nothing,
    /// RFC 6298.
    Rto,
    /// RFC 8985 7.2.
    LossProbe,
    /// RFC 8985 6.2 step 5.
    Reordering,
    /// RFC 9293 3.8.6.1.
    WindowProbe,
}

/// Yes or no, packed.
mod is {
    /// The peer takes SACK and we do.
    pub(super) const SACK: u32 = 1;
    /// Time stamps in every segment.
    pub(super) const TIMESTAMPS: u32 = 1 << 1;
    /// ECN was agreed upon.
    pub(super) const ECN: u32 = 1 << 2;
    /// ACKs have ECE until a CWR comes (RFC 3168 6.1.3).
    pub(super) const ECE_DUE: u32 = 1 << 3;
    /// The next new segment has CWR (RFC 3168 6.1.2).
    pub(super) const CWR_DUE: u32 = 1 << 4;
    /// The user wants no Nagle.
    pub(super) const NO_DELAY: u32 = 1 << 5;
    /// The user holds back what is no full segment.
    pub(super) const CORK: u32 = 1 << 6;
    /// A FIN follows what is in the buffer.
    pub(super) const FIN_QUEUED: u32 = 1 << 7;
    /// It has been sent.
    pub(super) const FIN_SENT: u32 = 1 << 8;
    /// The peer's has come in order.
    pub(super) const FIN_RECEIVED: u32 = 1 << 9;
    /// An ACK is to be sent at once.
    pub(super) const ACK_NOW: u32 = 1 << 10;
    /// One is to be sent.
    pub(super) const ACK_DUE: u32 = 1 << 11;
    /// Keepalive is on.
    pub(super) const KEEPALIVE: u32 = 1 << 12;
    /// The user has closed it, and knows it no more.
    pub(super) const ORPHAN: u32 = 1 << 13;
    /// F-RTO goes on (RFC 5682).
    pub(super) const FRTO: u32 = 1 << 14;
    /// The loss probe was a retransmission.
    pub(super) const PROBE_RETRANS: u32 = 1 << 15;
    /// The window has limited what was sent just now.
    pub(super) const CWND_LIMITED: u32 = 1 << 16;
    /// The user could not write all.
    pub(super) const WRITE_BLOCKED: u32 = 1 << 17;
    /// RACK has seen reordering.
    pub(super) const REORDERING: u32 = 1 << 18;
    /// RACK's newest delivery has changed.
    pub(super) const RACK_ADVANCED: u32 = 1 << 19;
    /// A D-SACK came in this round (RFC 8985 6.2 step 4).
    pub(super) const DSACK_SEEN: u32 = 1 << 20;
    /// It was opened here.
    pub(super) const ACTIVE: u32 = 1 << 21;
    /// Delayed ACKs are off for good (Linux: TCP_QUICKACK).
    pub(super) const QUICK_ACK: u32 = 1 << 22;
    /// The pacer has held something back.
    pub(super) const PACED: u32 = 1 << 23;
    /// The head was acknowledged by SACK only, and is missing now (RFC 2018 8).
    pub(super) const RENEGED: u32 = 1 << 24;
    /// No more is read: what comes is discarded.
    pub(super) const READ_SHUT: u32 = 1 << 25;
    /// The peer's FIN has come, possibly ahead of data.
    pub(super) const FIN_SEEN: u32 = 1 << 26;
    /// Windows are scaled.
    pub(super) const SCALED: u32 = 1 << 27;
    /// The last reduction of the window was undone.
    pub(super) const UNDONE: u32 = 1 << 29;
    /// There was no slot for what was to be sent.
    pub(super) const STARVED: u32 = 1 << 28;
    /// Fast Open (RFC 7413): our SYN had its option; or the peer's had a cookie, and the user has
    /// the connection before the handshake is over.
    pub(super) const FAST_OPEN: u32 = 1 << 30;
    /// A SYN had data that were taken.
    pub(super) const SYN_DATA: u32 = 1 << 31;
}

/// A connection. Times are in nanoseconds, and 0 is never.
pub struct Connection {
    // What every segment touches comes first.
    /// Its state.
    state: State,
    phase: Phase,
    awaits: Awaits,
    snd_scale: u8,
    /// Bits of [`is`].
    is: u32,
    snd_una: u32,
    snd_nxt: u32,
    /// The peer's window in bytes.
    snd_wnd: u32,
    /// Sequence number of the segment that the window is of.
    snd_wl1: u32,
    /// Sequence number of the first byte in the send buffer.
    data_seq: u32,
    /// Payload bytes of a segment, options taken off.
    mss: u16,
    /// What the path allows, options not taken off.
    path_mss: u16,
    /// RCV.NXT as the peer knows it.
    rcv_wup: u32,
    rcv_window: Window,
    /// Sequence number of the peer's FIN, once it has been seen.
    fin_seq: u32,
    /// ACKs to send at once before they are delayed.
    quick_acks: u8,
    /// How much the user answers what it receives.
    ping_pong: u8,
    retries: u8,
    /// Events that nobody has taken.
    events: u16,
    error: Option<Error>,
    /// The last soft error that the user has not taken.
    soft: Option<SoftError>,
    /// Loss probes, window probes or keepalive probes under way.
    probes: u8,
    ts_offset: u32,
    ts_recent: u32,
    /// In seconds.
    ts_recent_at: u32,
    /// When a segment came last, in milliseconds.
    last_received_ms: u32,
    /// When data came last, in milliseconds.
    last_data_ms: u32,
    /// When data was sent last, in milliseconds.
    last_sent_ms: u32,
    /// How long ACKs are delayed, in milliseconds.
    ack_delay_ms: u16,
    /// The longest segment of the peer of late.
    rcv_mss: u16,
    sent: Sent,
    buffer: SendBuffer,
    queue: ReceiveQueue,
    // Deadlines.
    send_at: u64,
    ack_at: u64,
    other_at: u64,
    // Bytes that are not in flight, of those between SND.UNA and SND.NXT.
    sacked: u32,
    lost: u32,
    /// Retransmitted bytes in flight.
    retrans: u32,
    /// Lost bytes that are not retransmitted.
    lost_unsent: u32,
    iss: u32,
    irs: u32,
    /// The largest window that the peer ever told.
    max_wnd: u32,
    /// SND.NXT when loss was noticed.
    recovery_point: u32,
    /// Where the last small segment ended (Minshall's form of Nagle).
    small_end: u32,
    /// SND.NXT at the loss probe.
    probe_point: u32,
    has_probe_point: bool,
    /// A short frame waits for more to be written.
    holds: bool,
    /// A write found no chunk in the arena.
    lacks_chunks: bool,
    /// Its number among those with urgent data; 0 if it has none.
    urgent: u16,
    /// The last urgent byte is kept apart.
    is_urgent_apart: bool,
    /// Its number among those that search for the MTU of their path; 0 if it does not.
    search: u16,
    /// Payload bytes of the probe of that search, while one is under way.
    probe_len: u16,
    has_undo: bool,
    control: Controller,
    rtt: Rtt,
    delivery: Delivery,
    prr: Prr,
    pacer: Pacer,
    autotune: Autotune,
    // RACK.
    rack_sent_ns: u64,
    rack_rtt_ns: u64,
    rack_end: u32,
    /// The highest sequence number delivered.
    rack_fack: u32,
    rack_round: u32,
    /// The sequence number that it was about.
    soft_seq: u32,
    rack_steps: u8,
    rack_persist: u8,
    dup_acks: u8,
    undo_point: u32,
    /// Retransmitted bytes that no D-SACK has shown to be needless; -1: nothing was retransmitted.
    undo_retrans: i32,
    /// Time stamp of the first retransmission.
    retrans_stamp: u32,
    usage: Usage,
    out_of_window: OutOfWindow,
    user_timeout_ms: u32,
    keep_idle_s: u16,
    keep_interval_s: u16,
    keep_count: u8,
    advertised_mss: u16,
    send_limit: u32,
}

impl Connection {
    /// Its state.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// The events since they were taken last: bits of [`event`].
    #[inline]
    pub fn take_events(&mut self) -> u16 {
        std::mem::take(&mut self.events)
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn has_no_events(&self) -> bool {
        self.events == 0
    }

    /// Why it has ended.
    pub fn error(&self) -> Option<Error> {
        self.error
    }

    #[inline(always)]
    fn is(&self, what: u32) -> bool {
        self.is & what != 0
    }

    #[inline(always)]
    fn set(&mut self, what: u32, value: bool) {
        match value {
            true => self.is |= what,
            false => self.is &= !what,
        }
    }

    /// Sequence number behind the last byte that the user has written.
    #[inline(always)]
    fn data_end(&self) -> u32 {
        self.data_seq.wrapping_add(self.buffer.len())
    }

    /// Bytes in flight: RFC 6675's pipe.
    #[inline(always)]
    fn in_flight(&self) -> u32 {
        let outstanding = self.snd_nxt.wrapping_sub(self.snd_una);
        (outstanding + self.retrans).saturating_sub(self.sacked + self.lost)
    }

    /// Our clock for time stamps, a tick a millisecond (RFC 7323 5.4).
    #[inline(always)]
    fn ts_now(&self, now_ns: u64) -> u32 {
        ((now_ns / 1_000_000) as u32).wrapping_add(self.ts_offset)
    }

    /// Its end: nothing is kept.
    fn finish<W: Wire>(&mut self, cx: &mut Context<'_, W>, error: Option<Error>) {
        if self.state == State::Closed {
            return;
        }
        let was_open = self.state.is_synchronized() && self.state != State::TimeWait;
        self.state = State::Closed;
        self.error = self.error.or(error);
        self.events |= event::CLOSED | event::READABLE | event::WRITABLE;
        if error.is_some() {
            self.events |= event::ERROR;
        }
        self.leave_metrics(cx, error.is_none() && was_open);
        self.release_sending(cx);
        if error.is_some() || self.is(is::ORPHAN) {
            self.queue.clear(&mut cx.shared.pieces, cx.wire.cache());
        }
        (self.send_at, self.ack_at, self.other_at) = (0, 0, 0);
        self.awaits = Awaits::Nothing;
    }

    /// Frees what was to be sent and what was.
    fn release_sending<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        self.release_mtu_search(cx.shared);
        self.sent.clear(&mut cx.shared.records);
        self.buffer.clear(&mut cx.shared.chunks);
        (self.sacked, self.lost, self.retrans, self.lost_unsent) = (0, 0, 0, 0);
    }

    /// Gives back all that it holds of what is shared: before its record is used for another.
    pub fn release<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        self.release_sending(cx);
        self.release_urgent(cx.shared);
        self.queue.clear(&mut cx.shared.pieces, cx.wire.cache());
        self.state = State::Closed;
    }
}
