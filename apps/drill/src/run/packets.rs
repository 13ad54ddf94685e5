//! Packets: what the script injects, and what it expects.

use super::{Arrival, GRACE_US, Runner, World};
use crate::fault::{At, Fault};
use crate::packet::build::{self, About};
use crate::packet::{Layer4, Seen, check, flag, read};
use crate::script::{Body, Event, PacketSpec, Quoted, TcpSpec, When};

/// A packet that was sent, as numbers of the wire.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    at_us: i64,
    seen: Seen,
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
                    _ => 0,
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
        let (flow, mut sent) = match &spec.body {
            // A SYN tells whose it is, for its port is the stack's choice.
            Body::Tcp(tcp) if tcp.flags & (flag::SYN | flag::ACK) == flag::SYN => {
                let (index, sent) = self.next_syn(event, until)?;
                self.flows.name(index, spec.ports);
                (Some(index), sent)
            }
            Body::Icmp(_) => (None, self.next_of(event, spec, None, until)?),
            _ => {
                let flow = self.flows.of_outbound(spec.ports);
                (flow, self.next_of(event, spec, flow, until)?)
            }
        };
        // Fields that belong to all of it are checked with its first packet, time with the last.
        let at_us = self.fit(event, spec, flow, until, &mut sent)?;
        if let (Some(index), Body::Tcp(tcp), Layer4::Tcp(segment)) =
            (flow, &spec.body, &mut sent.seen.layer4)
        {
            self.flows.get_mut(index).outbound(tcp, segment);
        }
        let slack = match self.config.ts_tick_us {
            0 => None,
            tick => Some((self.tolerance_us(self.start_us) / i64::from(tick)) as u32),
        };
        let mut wrong = check::differences(spec, &sent.seen, slack);
        if self.only_zeros && !payload(&sent.seen).iter().all(|byte| *byte == 0) {
            wrong.push("the payload is not what was written".into());
        }
        if !wrong.is_empty() {
            let problem = format!("{}; sent was {}", wrong.join(", "), sent.seen);
            return Err(Fault::mismatch(event.at, problem));
        }
        self.check_time(event, from, to, at_us)?;
        self.last_us = self.last_us.max(at_us);
        Ok(())
    }

    /// The next packet of a connection that opens, or of the current one.
    fn next_syn(&mut self, event: &Event, until: i64) -> Result<(usize, Sent), Fault> {
        let aside = self.aside.iter().position(|(_, sent)| is_syn(sent));
        if let Some(aside) = aside.and_then(|at| self.aside.remove(at)) {
            return Ok(aside);
        }
        loop {
            let sent = self.next_sent(event, until)?;
            let (local, remote) = sent.seen.ends();
            if is_syn(&sent) {
                if let Some(index) = self.flows.of_syn(local, remote) {
                    return Ok((index, sent));
                }
            } else if let Some(index) = self.flows.of_seen(local, remote) {
                // What the current connection sends instead of its SYN is the fault to show.
                if self.flows.waits_for_syn_of(index) {
                    return Ok((index, sent));
                }
                self.aside.push_back((index, sent));
            }
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
        let (local, remote) = seen.ends();
        let mut shown = seen.clone();
        if let (Some(index), Layer4::Tcp(segment)) =
            (self.flows.of_seen(local, remote), &mut shown.layer4)
        {
            *segment = self.flows.get(index).shown(segment);
        }
        let line = format!("{:.6} > {shown}", self.script_seconds(at_us));
        self.trace.push(line);
    }

    /// The next packet of a connection; ICMP messages for `None`. Others are put aside.
    fn next_of(
        &mut self,
        event: &Event,
        spec: &PacketSpec,
        flow: Option<usize>,
        until: i64,
    ) -> Result<Sent, Fault> {
        let aside = self
            .aside
            .iter()
            .position(|(index, _)| Some(*index) == flow);
        if let Some((_, sent)) = aside.and_then(|at| self.aside.remove(at)) {
            return Ok(sent);
        }
        loop {
            let sent = self.next_sent(event, until)?;
            let (local, remote) = sent.seen.ends();
            let icmp = matches!(sent.seen.layer4, Layer4::Icmp(..));
            if icmp {
                // Of the router's and of the neighbours' protocol the script does not speak.
                if matches!(spec.body, Body::Icmp(_)) {
                    return Ok(sent);
                }
                continue;
            }
            let whose = self.flows.of_seen(local, remote);
            match whose {
                Some(_) if whose == flow => return Ok(sent),
                Some(index) => self.aside.push_back((index, sent)),
                None => {}
            }
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
    /// leaves the rest for later. Returns when the last of it was sent.
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
    ) -> Result<i64, Fault> {
        let mut at_us = sent.at_us;
        let (Body::Tcp(tcp), Some(index)) = (&spec.body, flow) else {
            return Ok(at_us);
        };
        if self.config.strict_segments {
            return Ok(at_us);
        }
        let wanted = tcp.payload_bytes as usize;
        if wanted == 0 {
            return Ok(at_us);
        }
        let mut are_several = false;
        while bytes(sent).is_some_and(|bytes| (1..wanted).contains(&bytes)) {
            let more = match self.next_of(event, spec, flow, until) {
                Ok(more) => more,
                // What came is what the message should show.
                Err(_) => break,
            };
            at_us = at_us.max(more.at_us);
            if let Err(other) = join(sent, more) {
                self.aside.push_front((index, *other));
                break;
            }
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
            self.aside.push_front((index, rest));
        }
        Ok(at_us)
    }
}

fn payload(seen: &Seen) -> &[u8] {
    match &seen.layer4 {
        Layer4::Tcp(segment) => &segment.payload,
        Layer4::Udp(_, _, payload) => payload,
        Layer4::Icmp(..) => &[],
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

/// Appends a segment that follows without a gap; gives it back if it does not.
fn join(sent: &mut Sent, more: Sent) -> Result<(), Box<Sent>> {
    let Layer4::Tcp(segment) = &mut sent.seen.layer4 else {
        return Err(Box::new(more));
    };
    let end = segment.seq.wrapping_add(segment.payload.len() as u32);
    match more.seen.layer4 {
        Layer4::Tcp(behind) if behind.seq == end && !behind.payload.is_empty() => {
            // The last one says whether that was all; what else one has, all have.
            let ends = flag::PSH | flag::FIN;
            segment.flags = segment.flags & !ends | behind.flags;
            segment.payload.extend(&behind.payload);
            (segment.ack, segment.window) = (behind.ack, behind.window);
            segment.options = behind.options;
            Ok(())
        }
        layer4 => {
            let seen = Seen {
                layer4,
                ..more.seen
            };
            Err(Box::new(Sent {
                at_us: more.at_us,
                seen,
            }))
        }
    }
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
