//! Segments find their connections; those that have none find a listener, a record, or a reset.

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_wire::tcp::flag;
use linerate_wire::{FlowKey, FlowKey4, FlowKey6, protocol};

use super::Stack;
use super::config::IpOptions;
use super::slots::{Slots, is};
use super::way::Way;
use crate::host::{
    Arrived, BELOW, ErrorKind, IcmpError, InterfaceId, IpFields, Path, PathMtu, key_of, ones,
};
use crate::tcp::connection::{Active, Connection, Context, Ecn, FastSyn, Passive};
use crate::tcp::connection::{Shape, Wire};
use crate::tcp::fast_open::{FastOpen, Verdict};
use crate::tcp::isn::Offsets;
use crate::tcp::segment::{Header, Segment, SynOptions};
use crate::tcp::soft::SoftError;
use crate::tcp::time_wait::{self, Answer, Reply, TimeWait};
use crate::tcp::tuple::{self, Tuple};

/// What ECN marks in the traffic class (RFC 3168 5).
const CE: u8 = 0b11;

impl Stack {
    /// Takes a received burst, in whole frames, each with the number of its port in its metadata.
    /// Nothing stays in it.
    pub fn receive(&mut self, burst: &mut Burst, now_ns: u64, out: &mut Egress) {
        self.receive_train(burst, now_ns, out);
        if burst.is_empty() && !self.host.has_waiting() {
            return;
        }
        // There is one: it comes back at the end of each call. (To put another in its place
        // meanwhile would be to clear and allocate 10 KiB for each burst.)
        let mut inbound = self.inbound.take().unwrap_or_default();
        if self.host.receive_plain(burst, &mut inbound) {
            self.on_segments(burst, &mut inbound, now_ns, out);
            self.inbound = Some(inbound);
            return self.settle_touched(now_ns, out);
        }
        self.host.receive(burst, now_ns, &mut inbound, out);
        for error in inbound.errors() {
            self.on_icmp(error, now_ns, out);
        }
        // Both also look for errors of their own.
        if inbound.udp() != 0 || !inbound.errors().is_empty() {
            self.udp
                .deliver(&mut self.host, burst, &mut inbound, now_ns, out);
        }
        if inbound.echo() != 0 || !inbound.errors().is_empty() {
            self.ping
                .deliver(&mut self.host, burst, &mut inbound, now_ns, out);
        }
        let tcp = inbound.tcp();
        if tcp != 0 {
            self.on_segments(burst, &mut inbound, now_ns, out);
        }
        if !burst.is_empty() {
            self.host.drop_unclaimed(burst, &mut inbound, now_ns, out);
        }
        self.inbound = Some(inbound);
        self.settle_touched(now_ns, out);
    }

    /// Takes the segments at the front of a burst with no option but time stamps that are of the
    /// connection whose segment came last: a flow's come one behind the other, and what is
    /// common to them is done once. Each is read where it is judged. One that is alone is looked
    /// up; of a burst all are, together, where the first is of another.
    #[inline(always)]
    fn receive_train(&mut self, burst: &mut Burst, now_ns: u64, out: &mut Egress) {
        let Some(first) = burst.as_packets().first() else {
            return;
        };
        let version = self.host.own_version();
        let last = self.slots.last_of(first, version);
        let found = last.or_else(|| {
            let key = key_of(first).filter(|_| burst.len() == 1)?;
            self.slots.find_one4(&key)
        });
        let Some(index) = found.filter(|_| !self.host.has_waiting()) else {
            return;
        };
        let mut front = burst.front();
        let packets = self.with(index, now_ns, out, |connection, cx| {
            let FlowKey::V4(key) = cx.wire.key else {
                return 0;
            };
            let mut packets = 0;
            while let Some(segment) = (front.peek())
                .and_then(|packet| cx.wire.host.usual_segment(packet, key, last.is_some()))
                && let Some(packet) = front.next()
            {
                connection.on_segment(cx, &segment, packet, BELOW as u32);
                packets += 1;
            }
            if packets > 0 {
                connection.push(cx);
            }
            packets
        });
        if packets > 0 {
            self.slots.note_last(found, version);
            self.host.count_plain(packets);
            out.consumed(packets);
            self.settle(index, now_ns, out);
        }
    }

    /// All segments of a burst: looked up together, then one by one.
    fn on_segments(
        &mut self,
        burst: &mut Burst,
        inbound: &mut crate::host::Inbound,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let mut found = [None; Burst::CAPACITY];
        let count = burst.len();
        if inbound.v6() & inbound.tcp() != inbound.tcp() {
            let mut keys = [[0; 16]; Burst::CAPACITY];
            for (to, key) in keys.iter_mut().zip(inbound.keys4()) {
                *to = key.0;
            }
            self.slots.find4(&keys[..count], &mut found[..count]);
        }
        let tcp = inbound.tcp();
        for (index, found) in found[..count].iter_mut().enumerate() {
            if tcp >> index & 1 == 0 {
                continue;
            }
            if inbound.v6() >> index & 1 != 0 {
                *found = self.slots.find(&inbound.key(index));
            }
            match (*found, inbound.key(index)) {
                (Some(slot), _) => self.slots.prefetch(slot),
                (None, FlowKey::V4(key)) if !self.lingering4.is_empty() => {
                    self.lingering4.prefetch(&key);
                }
                _ => {}
            }
        }
        let mut segments = Burst::new();
        let all = burst.mask();
        burst.parts().take(tcp & all, &mut segments);
        out.consumed(segments.len() as u64);
        let inserted = self.slots.inserted;
        let version = self.host.own_version();
        for (packet, index) in segments.drain().zip(ones(tcp & all)) {
            let (key, arrived) = (inbound.key(index), inbound.arrived(index));
            let found = match found[index] {
                // An earlier segment of the burst has made one.
                None => self.slots.find_new(inserted, &key),
                found => found,
            };
            self.on_segment(packet, key, arrived, found, now_ns, out);
            // What has come from this host itself says nothing of what comes from a port.
            let found = found.filter(|_| arrived.interface != InterfaceId::LOOPBACK);
            self.slots.note_last(found, version);
        }
        inbound.keep(all & !tcp);
    }

    #[inline]
    fn on_segment(
        &mut self,
        packet: Packet,
        key: FlowKey,
        arrived: &Arrived,
        found: Option<u32>,
        now_ns: u64,
        out: &mut Egress,
    ) {
        // An earlier segment of the burst may have ended it.
        let found = match found {
            Some(slot) if self.slots[slot].is & is::INDEXED == 0 || self.slots[slot].key != key => {
                self.slots.find(&key)
            }
            found => found,
        };
        let mut packet = packet;
        if let (None, FlowKey::V4(key)) = (found, &key) {
            packet = match self.answer_flood(packet, key, arrived, now_ns, out) {
                Ok(()) => return,
                Err(packet) => packet,
            };
        }
        let Some(mut segment) = Segment::read(arrived.l4(&packet)) else {
            return out.cache.free_one(packet);
        };
        segment.is_ce = arrived.tos & CE == CE;
        let Some(index) = found else {
            return self.on_stranger(packet, key, arrived, &segment, now_ns, out);
        };
        self.deliver(index, &segment, packet, arrived, now_ns, out);
    }

    #[inline]
    fn deliver(
        &mut self,
        index: u32,
        segment: &Segment,
        packet: Packet,
        arrived: &Arrived,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let l4 = arrived.l4.into();
        self.with(index, now_ns, out, |connection, cx| {
            connection.on_segment(cx, segment, packet, l4);
        });
        self.touch(index);
    }

    /// A segment of no connection.
    #[cold]
    fn on_stranger(
        &mut self,
        packet: Packet,
        key: FlowKey,
        arrived: &Arrived,
        segment: &Segment,
        now_ns: u64,
        out: &mut Egress,
    ) {
        if arrived.is_group {
            // RFC 9293 3.9.2.3: never.
            return out.cache.free_one(packet);
        }
        let mut isn = None;
        if let Some(answer) = self.ask_lingering(&key, segment, now_ns) {
            match answer {
                Answer::Reuse { isn: next } => isn = Some(next),
                answer => {
                    self.answer_for(&key, answer, now_ns, out);
                    return out.cache.free_one(packet);
                }
            }
        }
        let (local, port) = local_of(&key);
        let Some(listener) = self.listeners.find(local, port) else {
            return self.refuse(packet, &key, segment, now_ns, out);
        };
        match segment.flags & (flag::SYN | flag::ACK | flag::RST) {
            flag::SYN => {
                let options = Segment::syn_options(arrived.l4(&packet));
                let syn = (packet, arrived.l4.into());
                self.on_syn(syn, listener, &key, segment, &options, isn, now_ns, out);
            }
            flag::ACK => match self.open_by_cookie(listener, &key, segment, now_ns, out) {
                Some(index) => self.deliver(index, segment, packet, arrived, now_ns, out),
                None => self.refuse(packet, &key, segment, now_ns, out),
            },
            _ => self.refuse(packet, &key, segment, now_ns, out),
        }
    }

    /// A SYN for a listener, whose TCP header begins at `l4`: RFC 9293 3.10.7.2, RFC 4987.
    #[allow(clippy::too_many_arguments)] // what a SYN is
    fn on_syn(
        &mut self,
        (packet, l4): (Packet, usize),
        listener_index: u32,
        key: &FlowKey,
        segment: &Segment,
        options: &SynOptions,
        isn: Option<u32>,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let Some(listener) = self.listeners.at(listener_index) else {
            return out.cache.free_one(packet);
        };
        if listener.waiting >= listener.listen.backlog {
            listener.refused += 1;
            self.stats.backlog_full += 1;
            return out.cache.free_one(packet);
        }
        let (limit, ip) = (listener.listen.max_segment, listener.listen.ip);
        let is_flooded = listener.half_open >= listener.listen.half_open;
        // A connection that follows one in TIME-WAIT has to begin above it.
        if (is_flooded || self.slots.room() == 0) && isn.is_none() {
            let own = (limit, ip);
            return self.send_cookie((packet, l4), key, segment, options, own, now_ns, out);
        }
        let Some((path, own)) = self.own(key, isn, now_ns) else {
            return out.cache.free_one(packet);
        };
        let (answer, is_early) = self.judge_fast(listener_index, key, segment, options);
        let data = match is_early {
            true => Some((packet, l4 as u32)),
            false => {
                out.cache.free_one(packet);
                None
            }
        };
        let fast = FastSyn { answer, data };
        let passive = Passive {
            active: own.limited(limit),
            syn: *options,
        };
        let Some(index) = self.open(key, (path, ip), now_ns, out, |cx| {
            Connection::accept_fast(cx, &passive, segment, fast)
        }) else {
            self.stats.no_room += 1;
            return;
        };
        self.shared.stats.fast_open_cookies_given += u64::from(answer.is_some());
        if let Some(listener) = self.listeners.at(listener_index) {
            listener.half_open += 1;
            listener.early += u32::from(is_early);
        }
        let slot = &mut self.slots[index];
        slot.listener = listener_index;
        slot.is |= is::HALF_OPEN;
        if is_early {
            self.queue(index, listener_index);
        }
        self.settle(index, now_ns, out);
    }

    /// What Fast Open makes of a SYN (RFC 7413 4.1.2, 4.2.1): the option of its answer, and whether
    /// its data is taken now.
    fn judge_fast(
        &mut self,
        listener: u32,
        key: &FlowKey,
        segment: &Segment,
        options: &SynOptions,
    ) -> (Option<FastOpen>, bool) {
        let mode = self.shared.config.fast_open;
        let Some(listener) = self.listeners.at(listener) else {
            return (None, false);
        };
        let most = listener.listen.fast_open;
        if !mode.server || most == 0 {
            return (None, false);
        }
        let stats = &mut self.shared.stats;
        let needs_none = mode.server_without_cookie && segment.len > 0;
        let (cookie, verdict) = match (&options.fast_open, key) {
            _ if needs_none => (None, Verdict::Valid),
            (None, _) => return (None, false),
            (Some(option), FlowKey::V4(key)) => {
                let cookie = option.answer(self.fast_open.cookie(key));
                (Some(cookie), self.fast_open.verdict(key, option))
            }
            (Some(option), FlowKey::V6(key)) => {
                let cookie = option.answer(self.fast_open.cookie(key));
                (Some(cookie), self.fast_open.verdict(key, option))
            }
        };
        if verdict == Verdict::Give {
            let is_wrong = options.fast_open.is_some_and(|it| it.cookie().is_some());
            stats.fast_open_bad_cookies += u64::from(is_wrong);
            return (cookie, false);
        }
        if listener.early >= most {
            // RFC 7413 5.1: it is as if the client did not know of Fast Open.
            stats.fast_open_overflow += 1;
            return (None, false);
        }
        (cookie.filter(|_| verdict == Verdict::Old), true)
    }

    /// What a connection of a 4-tuple begins with, and its path. `None` where there is none.
    pub(super) fn own(
        &mut self,
        key: &FlowKey,
        isn: Option<u32>,
        now_ns: u64,
    ) -> Option<(Path, Active)> {
        let (local, remote) = ends_of(key);
        let header_len = if remote.is_ipv4() { 40 } else { 60 };
        let (path, _) = self.host.path(Some(local), remote).ok()?;
        let PathMtu { bytes, .. } = self.host.mtu(path, remote, now_ns);
        let offsets = match key {
            FlowKey::V4(key) => Offsets::of(&self.secret, key),
            FlowKey::V6(key) => Offsets::of(&self.secret, key),
        };
        let active = Active {
            iss: isn.unwrap_or_else(|| offsets.isn(now_ns)),
            ts_offset: offsets.ts,
            link_mss: path.link_mtu().saturating_sub(header_len),
            path_mss: bytes.saturating_sub(header_len),
        };
        Some((path, active))
    }

    /// Makes a connection and gives it a slot.
    pub(super) fn open(
        &mut self,
        key: &FlowKey,
        (mut path, ip): (Path, IpOptions),
        now_ns: u64,
        out: &mut Egress,
        make: impl FnOnce(&mut Context<'_, Way<'_>>) -> Connection,
    ) -> Option<u32> {
        if self.slots.room() == 0 {
            return None;
        }
        let (_, remote) = ends_of(key);
        let fields = match self.host.mtu(path, remote, now_ns).dont_fragment {
            true => self.fields(key, ip),
            false => self.fields(key, ip).cut(),
        };
        let mut way = Way {
            host: &mut self.host,
            out,
            key,
            path: &mut path,
            fields,
            now_ns,
        };
        let mut cx = Context {
            now_ns,
            shared: &mut self.shared,
            wire: &mut way,
        };
        let connection = make(&mut cx);
        match self.slots.insert(connection, *key, path, fields) {
            Ok(index) => Some(index),
            Err(mut connection) => {
                self.release(&mut connection, key, now_ns, out);
                None
            }
        }
    }

    /// Frees what a connection without a slot holds.
    #[cold]
    fn release(
        &mut self,
        connection: &mut Connection,
        key: &FlowKey,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let mut way = Way {
            host: &mut self.host,
            out,
            key,
            path: &mut Path::UNKNOWN.clone(),
            fields: IpFields::v4(0, 1),
            now_ns,
        };
        connection.release(&mut Context {
            now_ns,
            shared: &mut self.shared,
            wire: &mut way,
        });
    }

    /// What IP headers of a connection have in common.
    #[inline]
    pub(super) fn fields(&self, key: &FlowKey, ip: IpOptions) -> IpFields {
        let config = &self.shared.config;
        match key {
            FlowKey::V4(_) => ip.fields4(config),
            FlowKey::V6(key) => {
                let (local, remote) = (key.local(), key.remote());
                let label = self.host.flow_label(local, remote, protocol::TCP);
                ip.fields6(config, label)
            }
        }
    }

    fn ask_lingering(&mut self, key: &FlowKey, segment: &Segment, now_ns: u64) -> Option<Answer> {
        let segment = time_wait::Segment {
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            payload_bytes: segment.len,
            ts: segment.timestamps,
        };
        match key {
            FlowKey::V4(_) if self.lingering4.is_empty() => None,
            FlowKey::V6(_) if self.lingering6.is_empty() => None,
            FlowKey::V4(key) => self.lingering4.on_segment(key, &segment, now_ns),
            FlowKey::V6(key) => self.lingering6.on_segment(key, &segment, now_ns),
        }
    }

    fn answer_for(&mut self, key: &FlowKey, answer: Answer, now_ns: u64, out: &mut Egress) {
        let reply = match answer {
            Answer::Ack(reply) => reply,
            Answer::Challenge(reply) if self.shared.challenges.allow(now_ns) => reply,
            Answer::Reset { seq } => {
                let header = Header {
                    seq,
                    flags: flag::RST,
                    ..Header::default()
                };
                return self.send_to(key, &header, now_ns, out);
            }
            _ => return,
        };
        let Reply {
            seq,
            ack,
            window,
            ts,
        } = reply;
        let header = Header {
            seq,
            ack,
            flags: flag::ACK,
            window,
            timestamps: ts,
            ..Header::default()
        };
        self.send_to(key, &header, now_ns, out);
    }

    /// The reset that a segment without a connection gets (RFC 9293 3.10.7.1).
    fn refuse(
        &mut self,
        packet: Packet,
        key: &FlowKey,
        segment: &Segment,
        now_ns: u64,
        out: &mut Egress,
    ) {
        out.cache.free_one(packet);
        self.stats.no_connection += 1;
        if segment.has(flag::RST) {
            return;
        }
        let header = match segment.has(flag::ACK) {
            true => Header {
                seq: segment.ack,
                flags: flag::RST,
                ..Header::default()
            },
            false => Header {
                ack: segment.end(),
                flags: flag::RST | flag::ACK,
                ..Header::default()
            },
        };
        self.shared.stats.resets_out += 1;
        self.send_to(key, &header, now_ns, out);
    }

    /// Sends a header alone, along a path that is looked up for it.
    fn send_to(&mut self, key: &FlowKey, header: &Header, now_ns: u64, out: &mut Egress) {
        let (local, remote) = ends_of(key);
        if let Ok((path, _)) = self.host.path(Some(local), remote) {
            let ip = IpOptions::default();
            self.send_bare(key, path, (header, ip), now_ns, out);
        }
    }

    pub(super) fn send_bare(
        &mut self,
        key: &FlowKey,
        mut path: Path,
        (header, ip): (&Header, IpOptions),
        now_ns: u64,
        out: &mut Egress,
    ) -> bool {
        let fields = self.fields(key, ip);
        let mut way = Way {
            host: &mut self.host,
            out,
            key,
            path: &mut path,
            fields,
            now_ns,
        };
        let shape = Shape {
            len: 0,
            gso_size: 0,
            ecn: Ecn::NotCapable,
        };
        way.send(header, shape, |_| {})
    }

    /// An ICMP error about something that we sent (RFC 5927, RFC 1191, RFC 8201).
    fn on_icmp(&mut self, error: &IcmpError, now_ns: u64, out: &mut Egress) {
        if error.protocol != protocol::TCP {
            return;
        }
        let key = tuple::of(error.local, error.remote);
        let Some(index) = key.and_then(|key| self.slots.find(&key)) else {
            self.stats.errors_ignored += 1;
            return;
        };
        let seq = error.seq;
        let is_believed = match error.kind {
            ErrorKind::TooBig { mtu } => {
                let connection = self.slots.connection(index);
                let is_ours = connection.is_under_way(seq);
                if is_ours {
                    self.on_too_big(index, error, mtu, now_ns, out);
                }
                is_ours
            }
            kind => self.with(index, now_ns, out, |connection, cx| {
                soft(kind).is_some_and(|error| connection.on_unreachable(cx, seq, error))
            }),
        };
        self.stats.errors_ignored += u64::from(!is_believed);
        self.settle(index, now_ns, out);
    }

    fn on_too_big(
        &mut self,
        index: u32,
        error: &IcmpError,
        mtu: u16,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let remote = error.remote.ip();
        self.host.note_too_big(remote, mtu, now_ns);
        // Whether it is news or not: another connection may have heard of it before.
        let slot = &mut self.slots[index];
        let PathMtu {
            bytes,
            dont_fragment,
        } = self.host.mtu(slot.path, remote, now_ns);
        if bytes == 0 {
            return; // no path is known, nor how long its link takes them
        }
        if !dont_fragment {
            slot.fields = slot.fields.cut();
        }
        let header_len = if remote.is_ipv4() { 40 } else { 60 };
        self.with(index, now_ns, out, |connection, cx| {
            connection.set_path_mss(cx, bytes.saturating_sub(header_len));
        });
    }

    /// Who uses which 4-tuples.
    pub(super) fn uses(&self) -> Uses<'_> {
        Uses {
            slots: &self.slots,
            lingering4: &self.lingering4,
            lingering6: &self.lingering6,
        }
    }

    /// With which sequence number a connection begins that follows a lingering one.
    pub(super) fn isn_behind(&self, key: &FlowKey, now_ns: u64) -> Option<u32> {
        match key {
            FlowKey::V4(key) => self.lingering4.reconnect(key, now_ns),
            FlowKey::V6(key) => self.lingering6.reconnect(key, now_ns),
        }
    }

    /// Half-open connections of a listener that has closed are ended.
    pub(super) fn drop_half_open(&mut self, listener: u32, now_ns: u64, out: &mut Egress) {
        let all: Vec<u32> = self.slots.indices().collect();
        for index in all {
            let slot = &self.slots[index];
            // One of Fast Open that was accepted is its user's.
            if slot.is & (is::HALF_OPEN | is::OWNED) == is::HALF_OPEN && slot.listener == listener {
                self.with(index, now_ns, out, |connection, cx| connection.abort(cx));
                self.settle(index, now_ns, out);
            }
        }
    }
}

/// Which 4-tuples are in use, by connections or by what lingers of them.
pub(super) struct Uses<'a> {
    pub(super) slots: &'a Slots,
    pub(super) lingering4: &'a TimeWait<16, FlowKey4>,
    pub(super) lingering6: &'a TimeWait<40, FlowKey6>,
}

impl Uses<'_> {
    pub(super) fn has4(&self, key: &FlowKey4, now_ns: u64) -> bool {
        self.slots.find(&FlowKey::V4(*key)).is_some()
            || self.lingering4.lookup(key, now_ns).is_some()
                && self.lingering4.reconnect(key, now_ns).is_none()
    }

    pub(super) fn has6(&self, key: &FlowKey6, now_ns: u64) -> bool {
        self.slots.find(&FlowKey::V6(*key)).is_some()
            || self.lingering6.lookup(key, now_ns).is_some()
                && self.lingering6.reconnect(key, now_ns).is_none()
    }

    pub(super) fn has(&self, key: &FlowKey, now_ns: u64) -> bool {
        match key {
            FlowKey::V4(key) => self.has4(key, now_ns),
            FlowKey::V6(key) => self.has6(key, now_ns),
        }
    }
}

/// What an ICMP error is to TCP; a path that is too narrow is none.
fn soft(kind: ErrorKind) -> Option<SoftError> {
    Some(match kind {
        ErrorKind::TooBig { .. } => return None,
        ErrorKind::NetUnreachable => SoftError::NetUnreachable,
        ErrorKind::HostUnreachable => SoftError::HostUnreachable,
        ErrorKind::ProtocolUnreachable => SoftError::ProtocolUnreachable,
        ErrorKind::PortUnreachable => SoftError::PortUnreachable,
        ErrorKind::SourceRouteFailed => SoftError::SourceRouteFailed,
        ErrorKind::Prohibited => SoftError::Prohibited,
        ErrorKind::TtlExceeded => SoftError::TtlExceeded,
        ErrorKind::ReassemblyExceeded => SoftError::ReassemblyExceeded,
        ErrorKind::ParameterProblem { .. } => SoftError::ParameterProblem,
    })
}

/// Our address and the peer's, of a key as segments have it that arrive.
pub(super) fn ends_of(key: &FlowKey) -> (std::net::IpAddr, std::net::IpAddr) {
    match key {
        FlowKey::V4(key) => (key.dst().into(), key.src().into()),
        FlowKey::V6(key) => (key.dst().into(), key.src().into()),
    }
}

/// Our address and port, of a key as segments have it that arrive.
pub(super) fn local_of(key: &FlowKey) -> (std::net::IpAddr, u16) {
    match key {
        FlowKey::V4(key) => (key.dst().into(), key.dst_port()),
        FlowKey::V6(key) => (key.dst().into(), key.dst_port()),
    }
}
