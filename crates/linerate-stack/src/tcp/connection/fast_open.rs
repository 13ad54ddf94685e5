//! Data in a SYN: TCP Fast Open (RFC 7413), both sides, of one connection.
//!
//! A client's first SYN has the option, and data where there is a cookie; when that SYN gets lost,
//! the next has neither (4.1.3.1). What the server has not acknowledged is sent again at once. A
//! server's user has the connection before the handshake is over, and may answer. Which SYNs are
//! taken so is decided where their addresses are known.

use linerate_core::packet::Packet;
use linerate_wire::tcp::flag;

use super::{Active, Connection, Context, State, Wire, event, is};
use crate::tcp::fast_open::FastOpen;
use crate::tcp::receive::{Limits, Span};
use crate::tcp::segment::{Segment, SynOptions};

/// Bytes that a SYN's options may take (Linux: MAX_TCP_OPTION_SPACE).
const OPTIONS_MAX: u16 = 40;
/// The segment size of a server that has not told it yet (RFC 7413 4.1.3: the default of RFC 9293
/// 3.7.1).
const DEFAULT_MSS: u16 = 536;

/// What Fast Open has made of a SYN.
#[derive(Debug, Default)]
pub struct FastSyn {
    /// The option of its answer.
    pub answer: Option<FastOpen>,
    /// Where its data is taken: the SYN itself, and where in its data the TCP header begins.
    pub data: Option<(Packet, u32)>,
}

impl Connection {
    /// Opens a connection with data for its SYN (RFC 7413 4.2). Where no cookie is known the SYN
    /// asks for one, and nothing of `data` is taken; where one is known and there is no data the
    /// SYN has neither. Returns how many bytes were taken: those that the SYN has room for, as in
    /// Linux.
    pub fn connect_fast<W: Wire>(
        cx: &mut Context<'_, W>,
        own: &Active,
        data: &[u8],
    ) -> (Self, usize) {
        let mut new = Self::calling(cx, own);
        let known = cx.shared.metrics.lookup(cx.wire.peer(), cx.now_ns);
        let known = known.unwrap_or_default();
        let is_plain = data.is_empty() && known.cookie.is_some();
        if known.is_fast_open_paused || is_plain {
            new.begin(cx, None, 0);
            return (new, 0);
        }
        new.set(is::FAST_OPEN, true);
        let Some(cookie) = known.cookie else {
            new.begin(cx, Some(FastOpen::REQUEST), 0);
            return (new, 0);
        };
        let mss = new.path_mss.min(known.mss.unwrap_or(DEFAULT_MSS));
        let room = u32::from(mss.saturating_sub(OPTIONS_MAX));
        let most = data.len().min(room as usize);
        let taken = new.write(cx, &data[..most]).unwrap_or(0);
        let len = new.buffer.len();
        new.begin(cx, Some(FastOpen::with(cookie)), len);
        (new, taken)
    }

    /// The answer to a SYN that had the option: what it says for the next one, and what of the data
    /// it has not taken. The data ended at `sent_end`.
    pub(super) fn on_fast_answer<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        options: &SynOptions,
        sent_end: u32,
        retries: u8,
    ) {
        let start = self.iss.wrapping_add(1);
        let sent = sent_end.wrapping_sub(start);
        let taken = self.snd_una.wrapping_sub(start).min(sent);
        let cookie = options
            .fast_open
            .and_then(|option| option.cookie().copied());
        let peer = cx.wire.peer();
        let (stats, metrics) = (&mut cx.shared.stats, &mut cx.shared.metrics);
        if taken > 0 {
            stats.fast_open_active += 1;
            stats.bytes_out += u64::from(taken);
            self.set(is::SYN_DATA, true);
        } else if sent > 0 {
            stats.fast_open_active_refused += 1;
        }
        if cookie.is_some() || taken > 0 {
            metrics.note_fast_open(peer, cookie, options.mss.unwrap_or(DEFAULT_MSS));
        } else if sent > 0 && retries > 0 {
            // RFC 7413 4.1.3.1: only the SYN without data got through.
            metrics.note_fast_open_lost(peer, cx.now_ns);
        }
        if taken < sent {
            // RFC 7413 4.2.2: the server has dropped it, so it was never under way: it goes at once
            // as what is new, and congestion has nothing to do with it.
            self.sent.clear(&mut cx.shared.records);
            (self.sacked, self.lost, self.retrans, self.lost_unsent) = (0, 0, 0, 0);
            self.snd_nxt = self.snd_una;
            self.small_end = self.snd_una;
            self.rearm(cx);
        }
    }

    /// Takes the data of a SYN (RFC 7413 4.2.1): the user has the connection from now on.
    pub(super) fn take_early<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        segment: &Segment,
        packet: Packet,
        l4: u32,
    ) {
        cx.shared.stats.fast_open_passive += 1;
        self.set(is::FAST_OPEN, true);
        if segment.len == 0 {
            return cx.wire.free(packet);
        }
        let (next, buffer) = (self.queue.next(), self.autotune.buffer());
        let inserted = self.queue.insert(
            &mut cx.shared.pieces,
            cx.wire.cache(),
            packet,
            Span {
                start: l4 + u32::from(segment.header_len),
                len: segment.len,
            },
            next,
            &Limits::for_window(next.wrapping_add(buffer), buffer),
        );
        if inserted.advanced_bytes > 0 {
            cx.shared.stats.bytes_in += u64::from(inserted.advanced_bytes);
            self.events |= event::READABLE;
            self.set(is::SYN_DATA, true);
        } else {
            // There is no room: the peer sends it again.
            cx.shared.stats.no_room += 1;
        }
    }

    /// Whether a peer opened it with Fast Open.
    pub fn is_fast_passive(&self) -> bool {
        self.is & (is::FAST_OPEN | is::ACTIVE) == is::FAST_OPEN
    }

    /// Whether its user has it though the handshake is not over: what is written may go (RFC 7413
    /// 4.2.2).
    #[inline]
    pub fn is_open_early(&self) -> bool {
        self.state == State::SynReceived && self.is_fast_passive()
    }

    /// Whether it is the SYN once more whose data was taken. It has none this time (RFC 7413
    /// 4.1.3.1), and lies below the window therefore.
    pub(super) fn is_first_syn_again(&self, segment: &Segment) -> bool {
        segment.flags & (flag::SYN | flag::ACK | flag::RST) == flag::SYN
            && self.is_open_early()
            && segment.seq == self.irs
    }
}
