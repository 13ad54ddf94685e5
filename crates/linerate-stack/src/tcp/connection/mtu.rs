//! The path's MTU without ICMP (RFC 4821): segments become shorter where nothing is acknowledged
//! any more, and then longer again, one probe at a time, as in Linux (`tcp_mtu_probing`).
//!
//! A probe is a segment of new data that is longer than the others: if it is lost, only it, that is
//! no sign of congestion. It is the only frame under way that is longer than a segment may be.

use std::net::IpAddr;

use linerate_wire::{ipv4, ipv6, tcp};

use super::output::Went;
use super::{Connection, Context, Phase, Shared, Wire, is};
use crate::tcp::mtu_search::{Least, MtuProbing, MtuSearch};
use crate::tcp::sent::{NIL, Sent, mark};
use crate::tcp::seq;

/// Segments that the window has to allow, so that those behind a probe tell of its loss (RFC 4821
/// 7.4; Linux: tcp_mtu_probe).
const WINDOW: u32 = 11;
/// Segments of new data that have to follow it.
const BEHIND: u32 = 4;

/// Bytes of headers in front of what a segment has room for.
fn header_len(peer: IpAddr) -> u16 {
    let ip = match peer {
        IpAddr::V4(_) => ipv4::HEADER_LEN,
        IpAddr::V6(_) => ipv6::HEADER_LEN,
    };
    (ip + tcp::HEADER_LEN) as u16
}

/// What paths to a peer carry at least.
fn least(peer: IpAddr) -> Least {
    match peer {
        IpAddr::V4(_) => Least::V4,
        IpAddr::V6(_) => Least::V6,
    }
}

impl Connection {
    /// The handshake is over. `known`: the MTU that earlier connections have found.
    pub(super) fn begin_mtu_search<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        known: Option<u16>,
    ) {
        let known = known.map(|mtu| mtu.saturating_sub(header_len(cx.wire.peer())));
        let low = match (cx.shared.config.mtu_probing, known) {
            (MtuProbing::Off, _) | (MtuProbing::BlackHole, None) => return,
            (_, Some(known)) => known,
            (MtuProbing::On, None) => least(cx.wire.peer()).base,
        };
        let search = MtuSearch::new(low, self.path_mss, cx.now_ns);
        if !search.is_over() && cx.shared.searches.set(&mut self.search, search) {
            self.set_mss(search.low());
        }
    }

    /// Nothing was acknowledged for as many timeouts as R1: it may be that long segments do not
    /// arrive, and nobody says so (RFC 2923 2.1, RFC 4821 7.7).
    pub(super) fn on_black_hole<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        if cx.shared.config.mtu_probing == MtuProbing::Off || !self.state.is_synchronized() {
            return;
        }
        let (mut search, least) = (cx.shared.searches.get(self.search), least(cx.wire.peer()));
        match search.is_none() {
            true => search = MtuSearch::new(least.base, self.path_mss, cx.now_ns),
            false => _ = search.fall(least, cx.now_ns),
        }
        self.probe_len = 0;
        // One with short segments already has fewer to lose: it is as in Linux, which halves them
        // with the next timeout.
        if cx.shared.searches.set(&mut self.search, search) && search.low() < self.path_mss {
            cx.shared.stats.mtu_black_holes += 1;
            self.set_mss(search.low());
        }
    }

    /// Sends a probe before other new data, if one may go. Whether it went.
    #[cold]
    pub(super) fn send_mtu_probe<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> bool {
        let (mss, cwnd) = (u32::from(self.mss), self.control.window.cwnd_bytes);
        let is_calm = self.phase == Phase::Open && !self.queue.has_sack();
        if self.probe_len != 0 || !is_calm || cwnd < WINDOW * mss {
            return false;
        }
        let mut search = cx.shared.searches.get(self.search);
        if search.is_over() {
            // There was nothing to be found: its segments were short before a black hole was
            // feared.
            self.release_mtu_search(cx.shared);
            return false;
        }
        let size = search.next(cx.now_ns);
        cx.shared.searches.set(&mut self.search, search);
        let Some(size) = size else {
            return false;
        };
        let len = u32::from(size - (self.path_mss - self.mss));
        let unsent = seq::diff(self.data_end(), self.snd_nxt).max(0) as u32;
        let window_end = self.snd_una.wrapping_add(self.snd_wnd);
        let window = seq::diff(window_end, self.snd_nxt).max(0) as u32;
        let may_go = unsent.min(window) >= len + BEHIND * mss
            && self.in_flight() + len <= cwnd
            && self.pacer.may_send(cx.now_ns);
        if !may_go {
            return false;
        }
        let (first, small_end) = (self.snd_nxt, self.small_end);
        // Now, since a frame of this length is not to be cut.
        self.probe_len = len as u16;
        let went = self.send_data(cx, len, false);
        if self.snd_nxt != first.wrapping_add(len) {
            // There was no slot for so long a frame: what went, if any, is an ordinary segment.
            self.probe_len = 0;
            return went == Went::Sent;
        }
        // It is no small segment that others would have to wait for (RFC 9293 3.7.4).
        self.small_end = small_end;
        search.sent(size, first, self.snd_nxt);
        cx.shared.searches.set(&mut self.search, search);
        cx.shared.stats.mtu_probes += 1;
        true
    }

    /// An ACK while a probe is under way.
    #[cold]
    pub(super) fn settle_mtu_probe<W: Wire>(&mut self, cx: &mut Context<'_, W>) {
        let mut search = cx.shared.searches.get(self.search);
        match search.probe() {
            Some((_, end)) if seq::lt(self.snd_una, end) => return,
            Some(_) => search.arrived(),
            None => return self.probe_len = 0,
        }
        self.probe_len = 0;
        self.set_mss(search.low());
        cx.shared.stats.mtu_probes_arrived += 1;
        self.note_found(cx, search.low());
        let rest = if search.is_over() {
            MtuSearch::default()
        } else {
            search
        };
        cx.shared.searches.set(&mut self.search, rest);
    }

    /// Segments of `low` bytes arrive: later connections to the host begin so (RFC 4821 5.2).
    fn note_found<W: Wire>(&self, cx: &mut Context<'_, W>, low: u16) {
        if cx.shared.config.path_metrics {
            let peer = cx.wire.peer();
            let pmtu = low.saturating_add(header_len(peer));
            cx.shared.metrics.note_pmtu(peer, pmtu, cx.now_ns);
        }
    }

    /// Something is lost while a probe is under way. Whether it is the probe, and nothing else:
    /// then its data goes again in segments that arrive, and the window stays (RFC 4821 7.6.2).
    #[cold]
    pub(super) fn is_only_mtu_probe_lost<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> bool {
        let mut search = cx.shared.searches.get(self.search);
        let head = self.sent.first();
        let Some((first, end)) = search.probe().filter(|_| head != NIL) else {
            return false;
        };
        let record = cx.shared.records[head];
        let is_it = matches!(self.phase, Phase::Open | Phase::Disorder)
            && (self.snd_una, record.seq) == (first, first)
            && record.has(mark::LOST)
            && self.lost <= end.wrapping_sub(first);
        if !is_it {
            self.forget_mtu_probe(cx.shared);
            return false;
        }
        // RFC 4821 4: a round trip for each segment of the window.
        let segments = self.control.window.cwnd_bytes / u32::from(self.mss).max(1);
        let round_ns = self.rtt.srtt_ns().unwrap_or(0);
        search.lost(cx.now_ns, round_ns.saturating_mul(segments.into()));
        // Those around it have arrived, which are as long as is known to.
        self.note_found(cx, search.low());
        cx.shared.searches.set(&mut self.search, search);
        cx.shared.stats.mtu_probes_lost += 1;
        self.probe_len = 0;
        // Without SACK only its first part is known to be.
        let mut index = head;
        while index != NIL && seq::lt(cx.shared.records[index].seq, end) {
            self.mark_lost(cx, index);
            index = Sent::next(&cx.shared.records, index);
        }
        self.send_again_as_it_is();
        true
    }

    /// What is lost goes again, and is no congestion: the threshold stays, and no recovery begins
    /// because of it (Linux: tcp_simple_retransmit).
    pub(super) fn send_again_as_it_is(&mut self) {
        self.phase = Phase::Loss;
        self.recovery_point = self.snd_nxt;
        self.has_undo = false;
        self.set(is::FRTO, false);
    }

    /// What became of the probe cannot be told any more.
    #[cold]
    pub(super) fn forget_mtu_probe(&mut self, shared: &mut Shared) {
        let mut search = shared.searches.get(self.search);
        search.forget_probe();
        shared.searches.set(&mut self.search, search);
        self.probe_len = 0;
    }

    /// A router takes no more (RFC 1191, RFC 8201).
    #[cold]
    pub(super) fn limit_mtu_search(&mut self, shared: &mut Shared, most: u16) {
        let mut search = shared.searches.get(self.search);
        search.limit(most);
        shared.searches.set(&mut self.search, search);
    }

    /// Gives its number back.
    pub(super) fn release_mtu_search(&mut self, shared: &mut Shared) {
        shared.searches.set(&mut self.search, MtuSearch::default());
        self.probe_len = 0;
    }
}
