//! Packets: what the script injects, and what it expects.

use super::{Arrival, GRACE_US, Runner, World};
use crate::fault::{At, Fault};
use crate::packet::build::{self, About};
use crate::packet::{Layer4, Seen, Segment, TcpOption, check, flag, read};
use crate::script::{Body, Event, PacketSpec, Quoted, TcpSpec, When};

/// A packet that was sent, as numbers of the wire.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    at_us: i64,
    seen: Seen,
}

/// Whose a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Flow(usize),
    Icmp,
    /// Of no connection that the script has.
    Nobody,
}

impl<W: World> Runner<'_, W> {
    pub(super) fn inbound(&mut self, at: At, spec: &PacketSpec) -> Result<(), Fault> {
        let packet = match &spec.body {
            Body::Tcp(tcp) => {
                if build::too_long(tcp.payload_bytes as usize) {
                    let fix = "send at most 65000 bytes at once";
                    return Err(Fault::syntax(at, "the segment fits no IP packet", fix));
                }
                let index = self.flows.of_inbound(spec.ports);
                let scaled = self.config.ts_ecr_scaled;
                let flow = self.flows.get_mut(index);
                let segment = flow.inbound(tcp, scaled).map_err(|echo| {
                    let problem = format!("no outbound packet had TS val {}", echo.0);
                    let fix = "echo a time stamp of one, or use --tcp_ts_ecr_scaled";
                    Fault::syntax(at, problem, fix)
                })?;
                build::segment(&spec.ip, flow.remote, flow.local, &segment)
            }
            Body::Udp(bytes) => {
                if build::too_long(usize::from(*bytes)) {
                    let fix = "send at most 65000 bytes at once";
                    return Err(Fault::syntax(at, "the datagram fits no IP packet", fix));
                }
                let index = self.flows.of_inbound(spec.ports);
                let flow = self.flows.get(index);
                build::datagram(&spec.ip, flow.remote, flow.local, *bytes)
            }
            Body::Icmp(message) => {
                let index = self.flows.of_icmp();
                let flow = self.flows.get(index);
                let seq = match message.quoted {
                    Quoted::Tcp(seq, _) => flow.to_wire(seq),
                    Quoted::Nothing => flow.to_wire(0),
                    Quoted::Udp(_) | Quoted::Raw(_) => 0,
                };
                let about = About {
                    local: flow.local,
                    remote: flow.remote,
                    seq,
                };
                build::icmp(&spec.ip, message, &about)?
            }
        };
        if self.config.trace
            && let Ok(seen) = read(&packet, false)
        {
            let line = format!("{:.6} < {seen}", self.script_seconds(self.last_us));
            self.trace.push(line);
        }
        let problem = |problem| Fault::mismatch(at, format!("not injected: {problem}"));
        self.world.inject(&packet).map_err(problem)
    }

    /// Expects a packet between two times.
    pub(super) fn outbound(
        &mut self,
        event: &Event,
        spec: &PacketSpec,
        from: i64,
        to: i64,
    ) -> Result<(), Fault> {
        let until = to + self.tolerance_us(from) + GRACE_US;
        if let Body::Icmp(message) = &spec.body
            && matches!(message.quoted, Quoted::Tcp(..))
        {
            let problem = "a quoted segment in a message of the stack under test";
            return Err(Fault::unsupported(message.at, problem));
        }
        let (flow, mut sent) = match &spec.body {
            // A SYN tells whose it is, for its port is the stack's choice.
            Body::Tcp(tcp) if tcp.flags & (flag::SYN | flag::ACK) == flag::SYN => {
                let (index, sent) = self.next_syn(event, until)?;
                self.flows.name(index, spec.ports);
                (Some(index), sent)
            }
            Body::Icmp(_) => (None, self.next_of(event, Whose::Icmp, until)?),
            _ => {
                let flow = self.flows.of_outbound(spec.ports);
                let whose = flow.map_or(Whose::Nobody, Whose::Flow);
                (flow, self.next_of(event, whose, until)?)
            }
        };
        // Fields that belong to all of it are checked with its first packet.
        let (first_us, last_us) = self.fit(event, spec, flow, until, &mut sent)?;
        let is_written = match (flow, &spec.body, &mut sent.seen.layer4) {
            (Some(index), Body::Tcp(tcp), Layer4::Tcp(segment)) => {
                let seq = segment.seq;
                let flow = self.flows.get_mut(index);
                flow.outbound(tcp, segment);
                let place = flow.stream.zip(flow.position(seq, segment.flags));
                segment.payload.is_empty()
                    || place
                        .is_some_and(|(stream, at)| self.written.has(stream, at, &segment.payload))
            }
            (_, Body::Udp(_), Layer4::Udp(_, _, payload)) => self.written.take_datagram(payload),
            _ => true,
        };
        let slack = match self.config.ts_tick_us {
            0 => None,
            tick => Some((self.tolerance_us(self.start_us) / i64::from(tick)) as u32),
        };
        let mut wrong = check::differences(spec, &sent.seen, slack);
        if let (Body::Icmp(message), Layer4::Icmp(_, _, _, payload)) =
            (&spec.body, &sent.seen.layer4)
            && let Quoted::Udp(bytes) = message.quoted
        {
            let index = self.flows.of_icmp();
            let flow = self.flows.get(index);
            if !check::quotes_datagram(payload, flow.remote, flow.local, bytes) {
                wrong.push(format!(
                    "what is quoted is no datagram of {bytes} bytes from there"
                ));
            }
        }
        if !is_written {
            wrong.push("the payload is not what was written".into());
        }
        if !wrong.is_empty() {
            let problem = format!("{}; sent was {}", wrong.join(", "), sent.seen);
            return Err(Fault::mismatch(event.at, problem));
        }
        self.check_time(event, from, to, (first_us, last_us))?;
        self.last_us = self.last_us.max(last_us);
        Ok(())
    }

    /// At the end of a script: what was sent by then was asked for.
    pub(super) fn nothing_left(&mut self, at: At) -> Result<(), Fault> {
        let now = self.world.now_us();
        while let Some(arrival) = self.world.next_packet(now) {
            let at_us = arrival.at_us;
            if let Some(seen) = self.taken_apart(at, &arrival)? {
                self.trace_sent(at_us, &seen);
                let sent = Sent { at_us, seen };
                let whose = self.whose(&sent);
                self.aside.push_back((whose, sent));
            }
        }
        let Some((_, sent)) = self.aside.pop_front() else {
            return Ok(());
        };
        let (at_s, shown) = (self.script_seconds(sent.at_us), self.shown(&sent.seen));
        let problem =
            format!("at the end: {shown} was sent at {at_s:.6} s, and nobody expected it");
        Err(Fault::mismatch(at, problem))
    }

    /// The next packet of a connection that opens, or of the current one.
    fn next_syn(&mut self, event: &Event, until: i64) -> Result<(usize, Sent), Fault> {
        for at in 0..self.aside.len() {
            let (whose, sent) = &self.aside[at];
            let index = match whose {
                _ if !is_syn(sent) => None,
                Whose::Flow(index) => Some(*index),
                _ => {
                    let (local, remote) = sent.seen.ends();
                    self.flows.of_syn(local, remote)
                }
            };
            if let Some(index) = index
                && let Some((_, sent)) = self.aside.remove(at)
            {
                return Ok((index, sent));
            }
        }
        loop {
            let sent = self.next_sent(event, until)?;
            let (local, remote) = sent.seen.ends();
            if is_syn(&sent)
                && let Some(index) = self.flows.of_syn(local, remote)
            {
                return Ok((index, sent));
            }
            let whose = self.whose(&sent);
            // What the current connection sends instead of its SYN is the fault to show.
            if let Whose::Flow(index) = whose
                && !is_syn(&sent)
                && self.flows.waits_for_syn_of(index)
            {
                return Ok((index, sent));
            }
            self.aside.push_back((whose, sent));
        }
    }

    fn whose(&mut self, sent: &Sent) -> Whose {
        let (local, remote) = sent.seen.ends();
        match sent.seen.layer4 {
            Layer4::Icmp(..) => Whose::Icmp,
            _ => match self.flows.of_seen(local, remote) {
                Some(index) => Whose::Flow(index),
                None => Whose::Nobody,
            },
        }
    }

    /// The next packet between the script's two hosts.
    fn next_sent(&mut self, event: &Event, until: i64) -> Result<Sent, Fault> {
        loop {
            let Some(arrival) = self.world.next_packet(until) else {
                return Err(Fault::mismatch(event.at, self.absent(event, until)));
            };
            let at_us = arrival.at_us;
            if let Some(seen) = self.taken_apart(event.at, &arrival)? {
                self.trace_sent(at_us, &seen);
                return Ok(Sent { at_us, seen });
            }
        }
    }

    fn trace_sent(&mut self, at_us: i64, seen: &Seen) {
        if !self.config.trace {
            return;
        }
        let shown = self.shown(seen);
        let line = format!("{:.6} > {shown}", self.script_seconds(at_us));
        self.trace.push(line);
    }

    /// A packet in the script's numbers, as far as they are known.
    fn shown(&mut self, seen: &Seen) -> Seen {
        let (local, remote) = seen.ends();
        let mut shown = seen.clone();
        if let (Some(index), Layer4::Tcp(segment)) =
            (self.flows.of_seen(local, remote), &mut shown.layer4)
        {
            *segment = self.flows.get(index).shown(segment);
        }
        shown
    }

    /// The next packet of a connection, or the next ICMP message. Others are put aside.
    fn next_of(&mut self, event: &Event, wanted: Whose, until: i64) -> Result<Sent, Fault> {
        let is_wanted = |whose: Whose| whose == wanted && whose != Whose::Nobody;
        let aside = self.aside.iter().position(|(whose, _)| is_wanted(*whose));
        if let Some((_, sent)) = aside.and_then(|at| self.aside.remove(at)) {
            return Ok(sent);
        }
        loop {
            let sent = self.next_sent(event, until)?;
            let whose = self.whose(&sent);
            if is_wanted(whose) {
                return Ok(sent);
            }
            self.aside.push_back((whose, sent));
        }
    }

    fn absent(&self, event: &Event, until: i64) -> String {
        let until = self.script_seconds(until);
        let range = if event.when == When::Any {
            "at any time"
        } else {
            "in time"
        };
        format!("no packet was sent {range}; waited until {until:.6} s")
    }

    /// A packet between the script's two hosts; `None` for others.
    fn taken_apart(&self, at: At, arrival: &Arrival) -> Result<Option<Seen>, Fault> {
        let packet = &arrival.packet;
        let remote = self.flows.remote();
        let to_remote = match remote {
            std::net::IpAddr::V4(address) => packet.get(16..20) == Some(&address.octets()),
            std::net::IpAddr::V6(address) => packet.get(24..40) == Some(&address.octets()),
        };
        if !to_remote {
            return Ok(None);
        }
        let seen = read(packet, arrival.partial);
        seen.map(Some)
            .map_err(|problem| Fault::mismatch(at, format!("sent was {problem}")))
    }

    /// Makes the payload as long as the script expects: adds the packets behind, or cuts, which
    /// leaves the rest for later. Returns when the first and the last of it were sent.
    ///
    /// How a stack divides what it sends at once between frames larger than the segment size is its
    /// own affair; `--strict_segments` is for scripts about that.
    fn fit(
        &mut self,
        event: &Event,
        spec: &PacketSpec,
        flow: Option<usize>,
        until: i64,
        sent: &mut Sent,
    ) -> Result<(i64, i64), Fault> {
        let (first_us, mut last_us) = (sent.at_us, sent.at_us);
        let (Body::Tcp(tcp), Some(index)) = (&spec.body, flow) else {
            return Ok((first_us, last_us));
        };
        let wanted = tcp.payload_bytes as usize;
        if self.config.strict_segments || wanted == 0 {
            return Ok((first_us, last_us));
        }
        let whose = Whose::Flow(index);
        let mut are_several = false;
        while bytes(sent).is_some_and(|bytes| (1..wanted).contains(&bytes)) {
            let more = match self.next_of(event, whose, until) {
                Ok(more) => more,
                // What came is what the message should show.
                Err(_) => break,
            };
            let at_us = more.at_us;
            if let Err(other) = join(sent, more) {
                self.aside.push_front((whose, *other));
                break;
            }
            last_us = last_us.max(at_us);
            are_several = true;
        }
        // Linux has PSH in every frame of several segments, so that receivers pass it on at once;
        // one that sends them singly has it where its data ends (RFC 9293 3.9.1: MUST-61).
        if let Layer4::Tcp(segment) = &mut sent.seen.layer4
            && are_several
        {
            segment.flags |= tcp.flags & flag::PSH;
        }
        if let Some(rest) = cut(sent, tcp, wanted) {
            self.aside.push_front((whose, rest));
        }
        Ok((first_us, last_us))
    }
}

/// Bytes of payload of a segment.
fn bytes(sent: &Sent) -> Option<usize> {
    match &sent.seen.layer4 {
        Layer4::Tcp(segment) => Some(segment.payload.len()),
        _ => None,
    }
}

/// Whether it is a SYN, or a SYN-ACK.
fn is_syn(sent: &Sent) -> bool {
    matches!(&sent.seen.layer4, Layer4::Tcp(segment) if segment.flags & flag::SYN != 0)
}

/// Appends a segment that follows without a gap, and differs in nothing that all of one write's
/// have alike; gives it back otherwise.
fn join(sent: &mut Sent, more: Sent) -> Result<(), Box<Sent>> {
    let of_ip = |seen: &Seen| (seen.tos, seen.ttl, seen.flow_label);
    let is_alike = of_ip(&sent.seen) == of_ip(&more.seen);
    match (&mut sent.seen.layer4, &more.seen.layer4) {
        (Layer4::Tcp(segment), Layer4::Tcp(behind)) if is_alike && follows(segment, behind) => {
            // The last one says whether that was all.
            segment.flags = (segment.flags & !ENDS) | behind.flags;
            segment.payload.extend(&behind.payload);
            (segment.ack, segment.window) = (behind.ack, behind.window);
            segment.options.clone_from(&behind.options);
            Ok(())
        }
        _ => Err(Box::new(more)),
    }
}

/// Flags that only the last segment of several has.
const ENDS: u16 = flag::PSH | flag::FIN;

/// Whether a segment goes on where another ends: with the same flags, but for those of an end and
/// CWR, which the first has (RFC 3168 6.1.2), with the same urgent data, and with time stamps if
/// that has some.
fn follows(segment: &Segment, behind: &Segment) -> bool {
    let len = segment.payload.len() as u32;
    let flags = (segment.flags ^ behind.flags) & !(ENDS | flag::CWR);
    let urgent = |of: &Segment| (of.flags & flag::URG != 0).then(|| urgent_end(of));
    let has_stamps = |of: &Segment| {
        let mut options = of.options.iter();
        options.any(|option| matches!(option, TcpOption::Timestamps(..)))
    };
    behind.seq == segment.seq.wrapping_add(len)
        && !behind.payload.is_empty()
        && flags == 0
        && urgent(segment) == urgent(behind)
        && has_stamps(segment) == has_stamps(behind)
}

/// The number that an urgent pointer points to.
fn urgent_end(segment: &Segment) -> u32 {
    segment.seq.wrapping_add(segment.urgent.into())
}

/// Cuts a segment behind so many bytes and returns the rest, which has PSH and FIN, as a network
/// card's segmentation does.
fn cut(sent: &mut Sent, spec: &TcpSpec, wanted: usize) -> Option<Sent> {
    let Layer4::Tcp(segment) = &mut sent.seen.layer4 else {
        return None;
    };
    if segment.payload.len() <= wanted || spec.flags & flag::SYN != 0 {
        return None;
    }
    let mut rest = segment.clone();
    rest.payload = segment.payload.split_off(wanted);
    rest.seq = segment.seq.wrapping_add(wanted as u32);
    rest.flags &= !flag::CWR;
    segment.flags &= !(flag::PSH | flag::FIN);
    Some(Sent {
        at_us: sent.at_us,
        seen: Seen {
            layer4: Layer4::Tcp(rest),
            ..sent.seen.clone()
        },
    })
}
