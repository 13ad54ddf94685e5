//! SYNs that are answered without a record, and the connections that come of them (RFC 4987 3.6).
//!
//! A forged SYN should cost as little as possible: its answer is written into its own slot, along
//! the path that the last one of the same route had.

use linerate_core::packet::{Offload, Packet};
use linerate_core::run::Egress;
use linerate_wire::tcp::flag;
use linerate_wire::{FlowKey, FlowKey4};

use super::Stack;
use super::config::IpOptions;
use super::slots::is;
use super::way::finish_checksum;
use crate::host::{Arrived, BELOW, Path};
use crate::tcp::connection::{Agreed, Connection, Passive};
use crate::tcp::cookie::{Echo, Offer};
use crate::tcp::receive::Window;
use crate::tcp::segment::{Header, Sacks, Segment, SynOptions, Usual, UsualSyn};

impl Stack {
    /// Answers a SYN without keeping anything of it.
    #[allow(clippy::too_many_arguments)] // what a SYN is
    pub(super) fn send_cookie(
        &mut self,
        (packet, l4): (Packet, usize),
        key: &FlowKey,
        segment: &Segment,
        options: &SynOptions,
        (max_segment, ip): (Option<u16>, IpOptions),
        now_ns: u64,
        out: &mut Egress,
    ) {
        let (local, remote, header_len) = match key {
            FlowKey::V4(key) => (key.dst().into(), key.src().into(), 40),
            FlowKey::V6(key) => (key.dst().into(), key.src().into(), 60),
        };
        let Some(path) = self.host.path_back(local, remote) else {
            return out.cache.free_one(packet);
        };
        let most = max_segment.unwrap_or(u16::MAX);
        let config = &self.shared.config;
        let has_ts = config.timestamps && segment.timestamps.is_some();
        let asks = segment.flags & (flag::ECE | flag::CWR) == flag::ECE | flag::CWR;
        let offer = Offer {
            mss: options.mss.unwrap_or(536),
            window_scale: options
                .window_scale
                .filter(|_| config.window_scaling && has_ts),
            sack: config.sack && options.sack_permitted && has_ts,
            ecn: asks && has_ts && config.ecn != crate::tcp::config::EcnMode::Off,
            has_ts,
        };
        let cookie = match key {
            FlowKey::V4(key) => self.cookies.make(key, segment.seq, &offer, now_ns),
            FlowKey::V6(key) => self.cookies.make(key, segment.seq, &offer, now_ns),
        };
        let config = &self.shared.config;
        let scale = Window::scale_for(config.receive_bytes_max);
        self.cookies.tell_scale(scale, now_ns);
        let echo = segment.timestamps.map_or(0, |(value, _)| value);
        let header = Header {
            seq: cookie.isn,
            ack: segment.seq.wrapping_add(1),
            flags: flag::SYN | flag::ACK | if offer.ecn { flag::ECE } else { 0 },
            window: config.receive_bytes.min(u16::MAX.into()) as u16,
            urgent: 0,
            timestamps: cookie.ts_val.map(|value| (value, echo)),
            sacks: Sacks::NONE,
            syn: Some(SynOptions {
                mss: Some(path.link_mtu().saturating_sub(header_len).min(most)),
                window_scale: offer.window_scale.map(|_| scale),
                sack_permitted: offer.sack,
                fast_open: None,
            }),
        };
        let went = match key {
            FlowKey::V4(key) if l4 == BELOW && self.host.sends_plain(path, header.len()) => {
                self.answer_in_place(packet, key, path, (&header, ip), out)
            }
            key => {
                out.cache.free_one(packet);
                self.send_bare(key, path, (&header, ip), now_ns, out)
            }
        };
        self.stats.cookies_sent += u64::from(went);
    }

    /// Answers a SYN that has the usual options and is for a listener that has no room for another
    /// half-open connection: what nearly all SYNs of a flood are. Otherwise the packet comes back,
    /// and nothing was done.
    #[inline(always)]
    pub(super) fn answer_flood(
        &mut self,
        packet: Packet,
        key: &FlowKey4,
        arrived: &Arrived,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<(), Packet> {
        let Some((seq, syn)) = UsualSyn::of(arrived.l4(&packet)) else {
            return Err(packet);
        };
        let config = &self.shared.config;
        let is_usual = config.timestamps && config.window_scaling && config.sack;
        let is_stranger = !arrived.is_group && !self.lingering4.has(key);
        if !is_usual || !is_stranger || usize::from(arrived.l4) != BELOW {
            return Err(packet);
        }
        let found = self.listeners.find(key.dst().into(), key.dst_port());
        let Some(listener) = found.and_then(|index| self.listeners.at(index)) else {
            return Err(packet);
        };
        let has_room = listener.half_open < listener.listen.half_open && self.slots.room() > 0;
        if has_room || listener.waiting >= listener.listen.backlog {
            return Err(packet);
        }
        let most = listener.listen.max_segment.unwrap_or(u16::MAX);
        let ip = listener.listen.ip;
        let Some(path) = self.host.path_back(key.dst().into(), key.src().into()) else {
            return Err(packet);
        };
        let Some(hop) = self.host.plain_hop(path, UsualSyn::LEN) else {
            return Err(packet);
        };
        let offer = Offer {
            mss: syn.options.mss.unwrap_or(536),
            window_scale: syn.options.window_scale,
            sack: true,
            // It is a SYN and nothing else.
            ecn: false,
            has_ts: true,
        };
        let cookie = self.cookies.make(key, seq, &offer, now_ns);
        let config = &self.shared.config;
        let header = Usual {
            seq: cookie.isn,
            ack: seq.wrapping_add(1),
            flags: flag::SYN | flag::ACK,
            window: config.receive_bytes.min(u16::MAX.into()) as u16,
            timestamps: (cookie.ts_val.unwrap_or(0), syn.timestamps.0),
        };
        let scale = Window::scale_for(config.receive_bytes_max);
        self.cookies.tell_scale(scale, now_ns);
        let mss = path.link_mtu().saturating_sub(40).min(most);
        let ports = (key.dst_port(), key.src_port());
        let words = UsualSyn::words(&header, ports, mss, scale);
        let fields = ip.fields4(config);
        self.host.answer_usual(hop, packet, words, key, fields, out);
        self.stats.cookies_sent += 1;
        Ok(())
    }

    /// Writes a header over the segment that it answers, in the same slot.
    #[inline]
    fn answer_in_place(
        &mut self,
        mut packet: Packet,
        key: &FlowKey4,
        path: Path,
        (header, ip): (&Header, IpOptions),
        out: &mut Egress,
    ) -> bool {
        let len = header.len();
        if !packet.set_len(BELOW + len) {
            out.cache.free_one(packet);
            return false;
        }
        packet.meta_mut().offload = Offload::NONE;
        let tcp = &mut packet.data_mut()[BELOW..];
        let sum = header.write_summed(key.dst_port(), key.src_port(), tcp);
        finish_checksum(key, sum, len, tcp);
        out.made(1);
        let fields = ip.fields4(&self.shared.config);
        self.host.send_plain(path, packet, key, (fields, 0), out);
        true
    }

    /// The ACK of a cookie makes a connection, which its listener counts at once.
    pub(super) fn open_by_cookie(
        &mut self,
        listener_index: u32,
        key: &FlowKey,
        segment: &Segment,
        now_ns: u64,
        out: &mut Egress,
    ) -> Option<u32> {
        if !self.cookies.are_out(now_ns) {
            return None;
        }
        let echo = Echo {
            seq: segment.seq,
            ack: segment.ack,
            ts_ecr: segment.timestamps.map(|(_, echo)| echo),
        };
        let offer = match key {
            FlowKey::V4(key) => self.cookies.check(key, &echo, now_ns),
            FlowKey::V6(key) => self.cookies.check(key, &echo, now_ns),
        };
        let Some(offer) = offer else {
            self.stats.cookies_bad += 1;
            return None;
        };
        let rcv_scale = match key {
            FlowKey::V4(key) => self.cookies.told_scale(key, echo.ts_ecr, now_ns),
            FlowKey::V6(key) => self.cookies.told_scale(key, echo.ts_ecr, now_ns),
        };
        let listener = self.listeners.at(listener_index)?;
        if listener.waiting >= listener.listen.backlog {
            listener.refused += 1;
            self.stats.backlog_full += 1;
            return None;
        }
        let (limit, ip) = (listener.listen.max_segment, listener.listen.ip);
        let (path, own) = self.own(key, Some(segment.ack.wrapping_sub(1)), now_ns)?;
        let passive = Passive {
            active: own.limited(limit),
            syn: SynOptions {
                mss: Some(offer.mss),
                window_scale: offer.window_scale,
                sack_permitted: offer.sack,
                fast_open: None,
            },
        };
        let agreed = Agreed {
            ecn: offer.ecn,
            irs: segment.seq.wrapping_sub(1),
            rcv_scale,
        };
        let index = self.open(key, (path, ip), now_ns, out, |cx| {
            Connection::resume(cx, &passive, &agreed, segment)
        });
        let Some(index) = index else {
            self.stats.no_room += 1;
            return None;
        };
        if let Some(listener) = self.listeners.at(listener_index) {
            listener.half_open += 1;
        }
        let slot = &mut self.slots[index];
        slot.listener = listener_index;
        slot.is |= is::HALF_OPEN;
        self.stats.cookies_good += 1;
        Some(index)
    }
}
