//! How connections begin: RFC 9293 3.5, with the options of RFC 7323, 2018, 3168 and 7413.

use linerate_core::packet::Packet;
use linerate_wire::tcp::flag;

use super::fast_open::FastSyn;
use super::{Awaits, Connection, Context, Ecn, Error, Shape, State, Wire, event, is};
use crate::tcp::config::{Config, EcnMode};
use crate::tcp::congestion::{Controller, Usage, initial_window};
use crate::tcp::fast_open::FastOpen;
use crate::tcp::receive::{Autotune, ReceiveQueue, Window};
use crate::tcp::rtt::Rtt;
use crate::tcp::segment::{Header, Sacks, Segment, SynOptions};
use crate::tcp::sent::mark;
use crate::tcp::seq;

/// The segment size where a peer names none (RFC 9293 3.7.1).
const DEFAULT_MSS: u16 = 536;

/// What a connection that is opened here has to know.
#[derive(Clone, Copy, Debug)]
pub struct Active {
    /// Initial sequence number (RFC 6528).
    pub iss: u32,
    /// What is added to our clock in time stamps (RFC 7323 5.4).
    pub ts_offset: u32,
    /// Longest payload that our link takes in a segment without options, in bytes: what we tell the
    /// peer (RFC 9293 3.7.1: MMS_R).
    pub link_mss: u16,
    /// The same of the path, by what is known of its MTU.
    pub path_mss: u16,
}

impl Active {
    /// The same with segments of at most so many bytes, either way (Linux: TCP_MAXSEG).
    #[must_use]
    pub fn limited(self, max_segment: Option<u16>) -> Self {
        let most = max_segment.unwrap_or(u16::MAX).max(super::output::MIN_MSS);
        Self {
            link_mss: self.link_mss.min(most),
            path_mss: self.path_mss.min(most),
            ..self
        }
    }
}

/// What one has to know that is opened by a peer.
#[derive(Clone, Copy, Debug)]
pub struct Passive {
    /// As for one that is opened here.
    pub active: Active,
    /// The SYN's options.
    pub syn: SynOptions,
}

/// What a SYN cookie has kept of a handshake.
#[derive(Clone, Copy, Debug)]
pub struct Agreed {
    /// Whether ECN was agreed upon.
    pub ecn: bool,
    /// The peer's first sequence number.
    pub irs: u32,
    /// The shift of our windows that the peer was told, where they are scaled.
    pub rcv_scale: u8,
}

impl Connection {
    /// Inlined, since a parked connection that wakes would be copied once more (`tcp.rr.1m`: 10 %).
    #[inline(always)]
    pub(super) fn blank(config: &Config, own: &Active, now_ns: u64) -> Self {
        let control = Controller::new(config.algorithm, own.path_mss, config.pacing, now_ns);
        Self {
            state: State::Closed,
            phase: Default::default(),
            awaits: Awaits::Nothing,
            snd_scale: 0,
            is: if config.keepalive { is::KEEPALIVE } else { 0 },
            snd_una: own.iss,
            snd_nxt: own.iss,
            snd_wnd: 0,
            snd_wl1: 0,
            data_seq: own.iss.wrapping_add(1),
            mss: own.path_mss,
            path_mss: own.path_mss,
            rcv_wup: 0,
            quick_acks: 0,
            ping_pong: 0,
            retries: 0,
            events: 0,
            error: None,
            soft: None,
            soft_seq: 0,
            probes: 0,
            ts_offset: own.ts_offset,
            ts_recent: 0,
            ts_recent_at: 0,
            last_received_ms: (now_ns / 1_000_000) as u32,
            last_data_ms: 0,
            last_sent_ms: 0,
            ack_delay_ms: super::output::ACK_DELAY_MIN_MS,
            rcv_mss: DEFAULT_MSS.min(own.link_mss),
            sent: Default::default(),
            buffer: Default::default(),
            queue: ReceiveQueue::new(0),
            rcv_window: Window::new(0, 0),
            fin_seq: 0,
            send_at: 0,
            ack_at: 0,
            other_at: 0,
            sacked: 0,
            lost: 0,
            retrans: 0,
            lost_unsent: 0,
            iss: own.iss,
            irs: 0,
            max_wnd: 0,
            recovery_point: own.iss,
            small_end: own.iss,
            probe_point: 0,
            has_probe_point: false,
            holds: false,
            lacks_chunks: false,
            urgent: 0,
            is_urgent_apart: false,
            search: 0,
            probe_len: 0,
            has_undo: false,
            control,
            rtt: Rtt::new(),
            delivery: Default::default(),
            prr: Default::default(),
            pacer: Default::default(),
            autotune: Autotune::new(config.receive_bytes, 0, 0, now_ns),
            rack_sent_ns: 0,
            rack_rtt_ns: 0,
            rack_end: own.iss,
            rack_fack: own.iss,
            rack_round: own.iss,
            rack_steps: 1,
            rack_persist: 0,
            dup_acks: 0,
            undo_point: 0,
            undo_retrans: 0,
            retrans_stamp: 0,
            usage: Usage::new(own.iss),
            out_of_window: Default::default(),
            user_timeout_ms: 0,
            keep_idle_s: config.keep_idle_s,
            keep_interval_s: config.keep_interval_s,
            keep_count: config.keep_count,
            advertised_mss: own.link_mss,
            send_limit: config.send_bytes_max,
        }
    }

    /// Opens a connection: a SYN is sent (RFC 9293 3.10.1).
    pub fn connect<W: Wire>(cx: &mut Context<'_, W>, own: &Active) -> Self {
        let mut new = Self::calling(cx, own);
        new.begin(cx, None, 0);
        new
    }

    /// One that has yet to send its SYN.
    pub(super) fn calling<W: Wire>(cx: &mut Context<'_, W>, own: &Active) -> Self {
        cx.shared.stats.opened_active += 1;
        let mut new = Self::blank(&cx.shared.config, own, cx.now_ns);
        new.state = State::SynSent;
        let config = &cx.shared.config;
        new.set(is::ACTIVE, true);
        new.set(is::TIMESTAMPS, config.timestamps);
        new.set(is::SACK, config.sack);
        new.set(is::ECN, config.ecn == EcnMode::Request);
        new.offer_scale(&cx.shared.config);
        new
    }

    /// A SYN has come to one that listens: it is answered (RFC 9293 3.10.7.2).
    pub fn accept<W: Wire>(cx: &mut Context<'_, W>, own: &Passive, segment: &Segment) -> Self {
        Self::accept_fast(cx, own, segment, FastSyn::default())
    }

    /// The same, with what Fast Open has made of the SYN (RFC 7413 4.2).
    pub fn accept_fast<W: Wire>(
        cx: &mut Context<'_, W>,
        own: &Passive,
        segment: &Segment,
        fast: FastSyn,
    ) -> Self {
        cx.shared.stats.opened_passive += 1;
        let mut new = Self::blank(&cx.shared.config, &own.active, cx.now_ns);
        new.state = State::SynReceived;
        new.offer_scale(&cx.shared.config);
        new.agree(cx, segment, &own.syn);
        let asks = segment.flags & (flag::ECE | flag::CWR) == flag::ECE | flag::CWR;
        new.set(is::ECN, asks && cx.shared.config.ecn != EcnMode::Off);
        if let Some((packet, l4)) = fast.data {
            new.take_early(cx, segment, packet, l4);
        }
        new.begin(cx, fast.answer, 0);
        new
    }

    /// The ACK of a SYN cookie has come: there is a connection, as if its SYN had been kept. The
    /// segment is yet to be [handled](Self::on_segment).
    pub fn resume<W: Wire>(
        cx: &mut Context<'_, W>,
        own: &Passive,
        agreed: &Agreed,
        segment: &Segment,
    ) -> Self {
        cx.shared.stats.opened_passive += 1;
        let mut new = Self::blank(&cx.shared.config, &own.active, cx.now_ns);
        new.state = State::SynReceived;
        // What was told holds, whatever the settings have become since.
        new.set(is::SCALED, true);
        new.rcv_window = Window::new(0, agreed.rcv_scale);
        let syn = Segment {
            seq: agreed.irs,
            flags: flag::SYN,
            window: segment.window,
            timestamps: segment.timestamps,
            ..Segment::default()
        };
        new.agree(cx, &syn, &own.syn);
        new.set(is::ECN, agreed.ecn);
        new.snd_nxt = new.iss.wrapping_add(1);
        new
    }

    /// What both sides say is agreed upon.
    fn agree<W: Wire>(&mut self, cx: &Context<'_, W>, syn: &Segment, options: &SynOptions) {
        let config = &cx.shared.config;
        self.irs = syn.seq;
        let next = syn.seq.wrapping_add(1);
        let buffer = config.receive_bytes;
        self.queue = ReceiveQueue::new(next);
        self.set(is::SACK, config.sack && options.sack_permitted);
        let has_timestamps = config.timestamps && syn.timestamps.is_some();
        self.set(is::TIMESTAMPS, has_timestamps);
        if let Some((value, _)) = syn.timestamps {
            self.ts_recent = value;
            self.ts_recent_at = (cx.now_ns / 1_000_000_000) as u32;
        }
        // RFC 7323 2.2: both or none. Ours is what was offered, and no other: the settings may have
        // changed since.
        let scale = options.window_scale.filter(|_| self.is(is::SCALED));
        let (snd, rcv) = scale.map_or((0, 0), |scale| (scale, self.rcv_window.scale()));
        self.snd_scale = snd;
        self.set(is::SCALED, scale.is_some());
        self.rcv_window = Window::new(next, rcv);
        // What our SYN has told: data may come right behind its answer (RFC 7413 4.2.2).
        let _ = self.rcv_window.offer_syn(next, buffer);
        self.autotune = Autotune::new(buffer, next, next.wrapping_add(buffer), cx.now_ns);
        self.rcv_wup = next;
        self.snd_wl1 = syn.seq;
        self.snd_wnd = syn.window.into();
        self.max_wnd = self.snd_wnd;
        let peer = options.mss.unwrap_or(DEFAULT_MSS);
        self.set_mss(self.path_mss.min(peer));
        // RFC 6928 2: ten of the segments that both sides agree on. Nothing was sent by it yet.
        self.control.window.restart();
    }

    /// Whether windows may be scaled, and our shift: large enough for the largest buffer.
    fn offer_scale(&mut self, config: &Config) {
        let scale = Window::scale_for(config.receive_bytes_max);
        self.set(is::SCALED, config.window_scaling);
        self.rcv_window = Window::new(0, scale);
    }

    /// Sends the SYN for the first time, with the first `len` bytes of the buffer.
    pub(super) fn begin<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        fast_open: Option<FastOpen>,
        len: u32,
    ) {
        let stamp = self.delivery.on_send(cx.now_ns, true);
        let end = self.iss.wrapping_add(1);
        let record = (self.iss, end);
        if self
            .sent
            .push(&mut cx.shared.records, record, mark::SYN, cx.now_ns, stamp)
            .is_none()
        {
            return self.finish(cx, Some(Error::Aborted));
        }
        self.snd_nxt = end;
        // The data have a record of their own: the SYN is sent again without them (RFC 7413
        // 4.1.3.1).
        let data = (end, end.wrapping_add(len));
        let records = &mut cx.shared.records;
        let has_data = len > 0 && self.sent.push(records, data, 0, cx.now_ns, stamp).is_some();
        let len = if has_data { len } else { 0 };
        self.snd_nxt = end.wrapping_add(len);
        // One that cannot be sent now is sent by the timer.
        if !self.send_syn_with(cx, fast_open, len) {
            cx.shared.stats.no_slots += 1;
        }
        self.rearm(cx);
    }

    /// Sends a SYN or the answer to one again.
    pub(super) fn send_syn<W: Wire>(&mut self, cx: &mut Context<'_, W>) -> bool {
        self.send_syn_with(cx, None, 0)
    }

    fn send_syn_with<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        fast_open: Option<FastOpen>,
        len: u32,
    ) -> bool {
        let is_answer = self.state != State::SynSent;
        let mut flags = flag::SYN;
        let mut is_ecn = self.is(is::ECN);
        if is_answer {
            flags |= flag::ACK;
            if is_ecn {
                flags |= flag::ECE;
            }
        } else if is_ecn {
            // RFC 3168 6.1.1.1: a peer or path that does not know ECN may drop such a SYN.
            is_ecn = self.retries < 2;
            if is_ecn {
                flags |= flag::ECE | flag::CWR;
            }
            self.set(is::ECN, is_ecn);
        }
        let scale = self.is(is::SCALED).then(|| self.rcv_window.scale());
        let next = self.rcv_nxt();
        let free = self.autotune.buffer();
        let free = free.saturating_sub(self.queue.readable());
        let header = Header {
            seq: self.iss,
            ack: if is_answer { next } else { 0 },
            flags,
            window: self.rcv_window.offer_syn(next, free),
            urgent: 0,
            timestamps: self
                .is(is::TIMESTAMPS)
                .then(|| (self.ts_now(cx.now_ns), self.ts_recent)),
            sacks: Sacks::NONE,
            syn: Some(SynOptions {
                mss: Some(self.advertised_mss),
                window_scale: scale,
                sack_permitted: self.is(is::SACK),
                fast_open,
            }),
        };
        let shape = Shape {
            len,
            gso_size: 0,
            ecn: Ecn::NotCapable,
        };
        let (buffer, chunks) = (&mut self.buffer, &cx.shared.chunks);
        let went = cx.wire.send(&header, shape, |room| {
            if !room.is_empty() {
                buffer.copy_out_unsummed(chunks, 0, room);
            }
        });
        if went {
            cx.shared.stats.segments_out += 1;
            self.rcv_wup = next;
        }
        went
    }

    /// RFC 9293 3.10.7.3.
    pub(super) fn in_syn_sent<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        segment: &Segment,
        packet: Packet,
        l4: u32,
    ) {
        let header_len = usize::from(segment.header_len);
        let bytes = packet.data().get(l4 as usize..).unwrap_or(&[]);
        let options = Segment::syn_options(&bytes[..header_len.min(bytes.len())]);
        let has_ack = segment.has(flag::ACK);
        if has_ack && (seq::le(segment.ack, self.iss) || seq::gt(segment.ack, self.snd_nxt)) {
            if !segment.has(flag::RST) {
                self.send_reset_of(cx, segment.ack);
            }
            return cx.wire.free(packet);
        }
        // RFC 7323 5.3: an echo that we never sent is of another connection.
        if has_ack
            && self.is(is::TIMESTAMPS)
            && let Some((_, echo)) = segment.timestamps
            && echo != 0
            && self.ts_now(cx.now_ns).wrapping_sub(echo) > 1 << 30
        {
            if !segment.has(flag::RST) {
                self.send_reset_of(cx, segment.ack);
            }
            return cx.wire.free(packet);
        }
        if segment.has(flag::RST) {
            if has_ack {
                cx.shared.stats.resets_in += 1;
                self.finish(cx, Some(Error::Refused));
            }
            return cx.wire.free(packet);
        }
        if !segment.has(flag::SYN) {
            return cx.wire.free(packet);
        }
        let asked_ecn = self.is(is::ECN);
        self.agree(cx, segment, &options);
        self.last_received_ms = (cx.now_ns / 1_000_000) as u32;
        if !has_ack {
            // Both have opened it at once (RFC 9293 3.5, figure 7).
            let asks = segment.flags & (flag::ECE | flag::CWR) == flag::ECE | flag::CWR;
            self.set(is::ECN, asks && cx.shared.config.ecn != EcnMode::Off);
            self.state = State::SynReceived;
            self.send_syn(cx);
            return cx.wire.free(packet);
        }
        // RFC 3168 6.1.1: ECE without CWR agrees.
        let agrees = segment.flags & (flag::ECE | flag::CWR) == flag::ECE;
        self.set(is::ECN, asked_ecn && agrees);
        let retries = self.retries;
        let plain = Segment {
            flags: flag::ACK,
            seq: segment.seq.wrapping_add(1),
            len: 0,
            ..*segment
        };
        self.snd_wl1 = segment.seq;
        self.state = State::Established;
        // The window of a SYN is not scaled.
        let syn_window = u32::from(segment.window);
        let sent_end = self.snd_nxt;
        self.on_ack(cx, &plain);
        if self.is(is::FAST_OPEN) {
            self.on_fast_answer(cx, &options, sent_end, retries);
        }
        self.snd_wnd = syn_window;
        self.max_wnd = syn_window;
        self.after_handshake(cx, retries);
        self.is |= is::ACK_NOW;
        cx.wire.free(packet);
    }

    /// The ACK of our SYN's answer: RFC 9293 3.10.7.4 fifth, SYN-RECEIVED. False where it is not
    /// one.
    pub(super) fn establish<W: Wire>(
        &mut self,
        cx: &mut Context<'_, W>,
        segment: &Segment,
    ) -> bool {
        if seq::le(segment.ack, self.snd_una) || seq::gt(segment.ack, self.snd_nxt) {
            self.send_reset_of(cx, segment.ack);
            return false;
        }
        let retries = self.retries;
        self.state = match self.is(is::FIN_QUEUED) {
            true => State::FinWait1,
            false => State::Established,
        };
        // The window of a SYN is not scaled (RFC 7323 2.2): when both have connected at once. It is
        // answered, for the other one waits for that.
        let is_syn = segment.has(flag::SYN);
        self.is |= if is_syn { is::ACK_NOW } else { 0 };
        let scale = if is_syn { 0 } else { self.snd_scale };
        self.snd_wnd = u32::from(segment.window) << scale;
        self.max_wnd = self.max_wnd.max(self.snd_wnd);
        self.snd_wl1 = segment.seq;
        self.after_handshake(cx, retries);
        true
    }

    fn after_handshake<W: Wire>(&mut self, cx: &mut Context<'_, W>, retries: u8) {
        cx.shared.stats.established += 1;
        self.events |= event::CONNECTED | event::WRITABLE;
        self.retries = 0;
        // RFC 6928 2: by the segment size that was agreed upon, not by what the link takes.
        let window = &mut self.control.window;
        window.cwnd_bytes = window.cwnd_bytes.min(initial_window(self.mss));
        if retries > 0 {
            // RFC 5681 3.1 and RFC 6298 5.7.
            self.control.window.cwnd_bytes = self.mss.into();
            self.rtt.handshake_timed_out();
        }
        self.begin_with_metrics(cx);
        self.retrans_stamp = 0;
        self.recovery_point = self.snd_nxt;
        self.usage = Usage::new(self.snd_nxt);
        self.set_other(cx);
    }
}
