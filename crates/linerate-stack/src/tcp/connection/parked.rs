//! A connection on which nothing is under way, in a third of the room.
//!
//! Most of a [`Connection`] is about data: what was sent, what was received, losses, timers. One
//! that is idle has none of that, and a server may have a million of those. [`Connection::park`]
//! keeps what such a connection has learned and agreed upon, and [`Parked::wake`] makes a
//! connection of it again, which goes on as if nothing had been. What is forgotten is what could
//! only be used for data that were acknowledged long ago: which reduction of the window may be
//! undone, what congestion control has counted of a round trip, RACK's newest delivery.

use super::{Active, Awaits, Connection, Phase, State, is};
use crate::tcp::config::Config;
use crate::tcp::congestion::{self, Algorithm, Cubic, NewReno, Usage};
use crate::tcp::rate::OutOfWindow;
use crate::tcp::receive::{Autotune, ReceiveQueue, Window};
use crate::tcp::rtt::Rtt;
use crate::tcp::soft::SoftError;

/// What may be due of a connection that has nothing under way: it is not idle then.
const BUSY: u32 = is::ACK_NOW
    | is::ACK_DUE
    | is::ECE_DUE
    | is::CWR_DUE
    | is::FIN_QUEUED
    | is::FIN_SEEN
    | is::ORPHAN
    | is::FRTO
    | is::RENEGED
    | is::STARVED
    | is::PACED;

/// The algorithms whose state is small. BBR's model of the path is most of a record.
#[derive(Clone, Copy)]
enum Kept {
    Cubic(Cubic),
    NewReno(NewReno),
}

/// An idle connection.
#[derive(Clone, Copy)]
pub struct Parked {
    rtt: Rtt,
    window: congestion::Window,
    algorithm: Kept,
    autotune: Autotune,
    other_at: u64,
    is: u32,
    snd_nxt: u32,
    snd_wnd: u32,
    snd_wl1: u32,
    max_wnd: u32,
    rcv_next: u32,
    rcv_window: Window,
    ts_offset: u32,
    ts_recent: u32,
    ts_recent_at: u32,
    last_received_ms: u32,
    last_data_ms: u32,
    last_sent_ms: u32,
    out_of_window: OutOfWindow,
    user_timeout_ms: u32,
    send_limit: u32,
    keep_idle_s: u16,
    keep_interval_s: u16,
    advertised_mss: u16,
    path_mss: u16,
    ack_delay_ms: u16,
    rcv_mss: u16,
    keep_count: u8,
    snd_scale: u8,
    quick_acks: u8,
    ping_pong: u8,
    rack_steps: u8,
    rack_persist: u8,
    retries: u8,
    /// Whether the last urgent byte is kept apart, and the soft error: each with half of the bits.
    odds: u8,
}

const _: () = assert!(size_of::<Parked>() <= 248);

impl Connection {
    /// Whether nothing is under way or due, so that it can be [parked](Self::park).
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.sent.count() == 0
            && self.buffer.is_empty()
            && self.is & BUSY == 0
            && self.state == State::Established
            && self.phase == Phase::Open
            && self.awaits == Awaits::Nothing
            && self.ack_at == 0
            && (self.events, self.probes) == (0, 0)
            && !self.lacks_chunks
            && self.error.is_none()
            && self.queue.is_blank()
            && (self.urgent, self.search) == (0, 0)
            && !self.pacer.has_limit()
    }

    /// What is kept of one that [is quiet](Self::is_quiet); `None` where it is not, or where its
    /// congestion control does not fit.
    pub fn park(&self) -> Option<Parked> {
        if !self.is_quiet() {
            return None;
        }
        let algorithm = match self.control.algorithm {
            Algorithm::Cubic(cubic) => Kept::Cubic(cubic),
            Algorithm::NewReno(reno) => Kept::NewReno(reno),
            Algorithm::Bbr(_) => return None,
        };
        // Each field by name: whoever adds one says here what becomes of it.
        let Self {
            state: _,
            phase: _,
            awaits: _,
            snd_scale,
            is,
            snd_una: _,
            snd_nxt,
            snd_wnd,
            snd_wl1,
            data_seq: _,
            mss: _,
            path_mss,
            rcv_wup: _,
            rcv_window,
            fin_seq: _,
            quick_acks,
            ping_pong,
            retries,
            events: _,
            error: _,
            soft,
            probes: _,
            ts_offset,
            ts_recent,
            ts_recent_at,
            last_received_ms,
            last_data_ms,
            last_sent_ms,
            ack_delay_ms,
            rcv_mss,
            sent: _,
            buffer: _,
            ref queue,
            send_at: _,
            ack_at: _,
            other_at,
            sacked: _,
            lost: _,
            retrans: _,
            lost_unsent: _,
            // Of the handshake.
            iss: _,
            irs: _,
            max_wnd,
            recovery_point: _,
            small_end: _,
            probe_point: _,
            has_probe_point: _,
            holds: _,
            lacks_chunks: _,
            urgent: _,
            is_urgent_apart,
            search: _,
            probe_len: _,
            has_undo: _,
            control: _,
            rtt,
            delivery: _,
            prr: _,
            pacer: _,
            autotune,
            rack_sent_ns: _,
            rack_rtt_ns: _,
            rack_end: _,
            rack_fack: _,
            rack_round: _,
            // Of what was under way.
            soft_seq: _,
            rack_steps,
            rack_persist,
            dup_acks: _,
            undo_point: _,
            undo_retrans: _,
            retrans_stamp: _,
            usage: _,
            out_of_window,
            user_timeout_ms,
            keep_idle_s,
            keep_interval_s,
            keep_count,
            advertised_mss,
            send_limit,
        } = *self;
        Some(Parked {
            rtt,
            window: self.control.window,
            algorithm,
            autotune,
            other_at,
            is,
            snd_nxt,
            snd_wnd,
            snd_wl1,
            max_wnd,
            rcv_next: queue.next(),
            rcv_window,
            ts_offset,
            ts_recent,
            ts_recent_at,
            last_received_ms,
            last_data_ms,
            last_sent_ms,
            out_of_window,
            user_timeout_ms,
            send_limit,
            keep_idle_s,
            keep_interval_s,
            advertised_mss,
            path_mss,
            ack_delay_ms,
            rcv_mss,
            keep_count,
            snd_scale,
            quick_acks,
            ping_pong,
            rack_steps,
            rack_persist,
            retries,
            odds: u8::from(is_urgent_apart) << 4 | SoftError::to_bits(soft),
        })
    }
}

impl Parked {
    /// The connection. Of `config` nothing remains: it has its own settings.
    pub fn wake(&self, config: &Config) -> Connection {
        // Nothing is between SND.UNA and SND.NXT: as before a SYN, which is long acknowledged.
        let own = Active {
            iss: self.snd_nxt,
            ts_offset: self.ts_offset,
            link_mss: self.advertised_mss,
            path_mss: self.path_mss,
        };
        let mut new = Connection::blank(config, &own, 0);
        new.state = State::Established;
        new.is = self.is;
        new.data_seq = self.snd_nxt;
        (new.snd_wnd, new.snd_wl1) = (self.snd_wnd, self.snd_wl1);
        (new.max_wnd, new.snd_scale) = (self.max_wnd, self.snd_scale);
        new.queue = ReceiveQueue::new(self.rcv_next);
        (new.rcv_wup, new.rcv_window) = (self.rcv_next, self.rcv_window);
        (new.ts_recent, new.ts_recent_at) = (self.ts_recent, self.ts_recent_at);
        new.last_received_ms = self.last_received_ms;
        (new.last_data_ms, new.last_sent_ms) = (self.last_data_ms, self.last_sent_ms);
        (new.ack_delay_ms, new.rcv_mss) = (self.ack_delay_ms, self.rcv_mss);
        (new.quick_acks, new.ping_pong) = (self.quick_acks, self.ping_pong);
        (new.retries, new.is_urgent_apart) = (self.retries, self.odds >> 4 != 0);
        new.soft = SoftError::from_bits(self.odds & 15);
        new.soft_seq = self.snd_nxt;
        new.other_at = self.other_at;
        new.control.algorithm = match self.algorithm {
            Kept::Cubic(cubic) => Algorithm::Cubic(cubic),
            Kept::NewReno(reno) => Algorithm::NewReno(reno),
        };
        (new.rtt, new.autotune) = (self.rtt, self.autotune);
        // The segment size follows from the path's and from what is agreed upon.
        new.set_mss(self.path_mss);
        new.control.window = self.window;
        (new.rack_steps, new.rack_persist) = (self.rack_steps, self.rack_persist);
        new.usage = Usage::new(self.snd_nxt);
        new.out_of_window = self.out_of_window;
        new.user_timeout_ms = self.user_timeout_ms;
        (new.keep_idle_s, new.keep_interval_s) = (self.keep_idle_s, self.keep_interval_s);
        new.keep_count = self.keep_count;
        new.send_limit = self.send_limit;
        new.pace(self.window.is_paced());
        new
    }
}
