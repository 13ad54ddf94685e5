//! Packets that the host handles itself: ARP, Neighbor Discovery, ping, fragments, ICMP errors.

use std::net::{IpAddr, SocketAddr};

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_wire::ethernet::HEADER_LEN as L2;
use linerate_wire::icmp::{v4, v6};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, FlowKey, Headers, parse, protocol};

use super::config::InterfaceId;
use super::inbound::{ErrorKind, IcmpError, Inbound, MAX_ERRORS};
use super::mtu::plateau;
use super::refuse::Refused;
use super::{Counted, Host, address};
use crate::icmp::{Error4, Error6, echo4, echo6};
use crate::neighbour::Ignored;
use crate::reassembly::Outcome;

/// How many incomplete datagrams one turn may end.
const EXPIRY_BUDGET: usize = 256;

impl Host {
    /// A host answers for its own addresses alone.
    pub(super) fn arp(&mut self, packet: Packet, now_ns: u64, out: &mut Egress) {
        let Some(id) = self.interface_of(packet.port()) else {
            return out.drop_one(self.reasons.no_interface, packet);
        };
        let (todo, nowhere) = (&mut self.todo, |_| false);
        let heard = self
            .neighbours
            .arp(id.0, packet.data(), &nowhere, now_ns, todo);
        self.heard(packet, heard, out);
    }

    pub(super) fn nd(&mut self, packet: Packet, now_ns: u64, out: &mut Egress) {
        let Some(id) = self.interface_of(packet.port()) else {
            return out.drop_one(self.reasons.no_interface, packet);
        };
        let (todo, nowhere) = (&mut self.todo, |_| false);
        let heard = self
            .neighbours
            .ndp(id.0, packet.data(), &nowhere, now_ns, todo);
        self.heard(packet, heard, out);
    }

    /// Frees a message, and does what the neighbour table says. One that concerns others has done
    /// what it came for.
    fn heard(&mut self, packet: Packet, heard: Result<(), Ignored>, out: &mut Egress) {
        self.stats.neighbour_messages += 1;
        self.due_ns = 0;
        match heard {
            Ok(()) | Err(Ignored::Unasked | Ignored::NotForUs) => out.consume_one(packet),
            Err(_) => out.drop_one(self.reasons.neighbour_ignored, packet),
        }
        self.settle(out);
    }

    /// Answers a ping in its own slot (RFC 1122 3.2.2.6, RFC 4443 4.2): the reply is routed as any
    /// packet, and fragmented where the request was.
    pub(super) fn echo(&mut self, mut packet: Packet, now_ns: u64, out: &mut Egress) {
        let l3 = usize::from(packet.meta().l3_offset);
        // With one link header for requests with a tag (of priority only) and without.
        if l3 < L2 || !packet.trim_front(l3 - L2) {
            return out.drop_one(self.reasons.icmp_ignored, packet);
        }
        let ip = &mut packet.data_mut()[L2..];
        let is_v4 = ip.first().is_some_and(|version| version >> 4 == 4);
        let is_reply = if is_v4 { echo4(ip) } else { echo6(ip) };
        let Some((src, dst, len)) = ends(ip).filter(|_| is_reply) else {
            return out.drop_one(self.reasons.icmp_ignored, packet);
        };
        packet.truncate(L2 + len);
        packet.meta_mut().offload = linerate_core::packet::Offload::NONE;
        let on = address::is_link_scoped(dst).then(|| self.interface_of(packet.port()));
        match self.path_on(on.flatten(), Some(src), dst) {
            Ok((path, _)) => {
                self.stats.echo_replies += 1;
                // What comes of it is counted.
                let _ = self.send_frame(path, packet, dst, now_ns, out);
            }
            Err(_) => out.drop_one(self.reasons.no_route, packet),
        }
    }

    /// A fragment: the datagram goes to `whole` once it is whole.
    pub(super) fn fragment(
        &mut self,
        packet: Packet,
        whole: Option<&mut Burst>,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let l3 = usize::from(packet.meta().l3_offset);
        let Some(whole) = whole else {
            return out.drop_one(self.reasons.bad_extension, packet);
        };
        self.due_ns = 0;
        match self.reassembler.push(packet, l3, 0, now_ns, &mut out.cache) {
            Outcome::Held => {}
            Outcome::Whole(packet) => {
                if let Err(packet) = whole.push(packet) {
                    out.drop_one(self.reasons.no_buffer, packet);
                }
            }
            Outcome::Dropped(refusal, packet) => {
                // RFC 8200 4.5.
                let ip = packet.data().get(l3..).unwrap_or_default();
                if let Some(error) = refusal.error6(ip) {
                    self.refuse(&packet, l3, Refused::V6(error), now_ns, out);
                }
                out.show_dropped(refusal.name(), &packet);
                out.cache.free_one(packet);
            }
        }
    }

    /// Ends datagrams whose fragments did not come in time; their senders get an error if the first
    /// fragment came (RFC 1122 3.3.2, RFC 8200 4.5).
    pub(super) fn expire_fragments(&mut self, now_ns: u64, out: &mut Egress) {
        let mut first = Burst::new();
        self.reassembler
            .expire(now_ns, EXPIRY_BUDGET, &mut out.cache, &mut first);
        for packet in first.drain() {
            let l3 = usize::from(packet.meta().l3_offset);
            let is_v4 = packet
                .data()
                .get(l3)
                .is_some_and(|version| version >> 4 == 4);
            let error = match is_v4 {
                true => Refused::V4(Error4::ReassemblyExceeded),
                false => Refused::V6(Error6::ReassemblyExceeded),
            };
            self.refuse(&packet, l3, error, now_ns, out);
            out.show_dropped("fragment_timed_out", &packet);
            out.cache.free_one(packet);
        }
        self.count_fragments(out);
    }

    /// Counts what the reassembler has put together and dropped since the last time.
    pub(super) fn count_fragments(&mut self, out: &mut Egress) {
        let stats = self.reassembler.stats();
        let known = &mut self.counted;
        let (datagrams, fragments) = (stats.datagrams, stats.reassembled);
        if (datagrams, fragments) != (known.datagrams, known.fragments) {
            let (joined, used) = (datagrams - known.datagrams, fragments - known.fragments);
            // Each datagram is in the slot of one of its fragments.
            out.consumed(used - joined);
            self.stats.reassembled += joined;
        }
        for (at, (now, before)) in stats.dropped.iter().zip(known.dropped).enumerate() {
            if *now != before {
                out.count_drops(self.reasons.fragment[at], now - before);
            }
        }
        *known = Counted {
            dropped: stats.dropped,
            datagrams,
            fragments,
        };
    }

    /// An ICMP error that somebody sent.
    pub(super) fn quoted(&mut self, packet: Packet, inbound: &mut Inbound, out: &mut Egress) {
        let id = self.interface_of(packet.port());
        let id = id.unwrap_or(InterfaceId::LOOPBACK);
        let Some(error) = self.read_error(packet.data(), id) else {
            return out.drop_one(self.reasons.icmp_not_ours, packet);
        };
        if !inbound.report(error) {
            return out.drop_one(self.reasons.icmp_too_many, packet);
        }
        self.stats.errors_reported += 1;
        out.consume_one(packet);
    }

    /// `None` where it quotes no packet that can be ours.
    fn read_error(&self, frame: &[u8], interface: InterfaceId) -> Option<IcmpError> {
        let headers = parse(frame).ok()?;
        let quoted = headers.quoted(frame).ok()??;
        let message = frame.get(headers.l4?..headers.end)?.first_chunk::<8>()?;
        let kind = match headers.ethertype {
            EtherType::IPV4 => kind4(message, frame.get(quoted.l3..)?)?,
            _ => kind6(message)?,
        };
        let (from, ..) = ends(&frame[headers.l3..])?;
        let error = error_of(frame, &quoted, kind, from, interface)?;
        self.is_own(error.local.ip()).then_some(error)
    }

    /// A packet of ours, a frame, did not get far, as its neighbour did not answer, or this host
    /// itself refused it: its socket gets the error that a router or host would send (RFC 1122 2.4,
    /// RFC 4861 7.2.2).
    pub(super) fn report_locally(&mut self, packet: &Packet, kind: ErrorKind) {
        let frame = packet.data();
        let Ok(headers) = parse(frame) else { return };
        let Some((from, ..)) = frame.get(headers.l3..).and_then(ends) else {
            return;
        };
        let error = error_of(frame, &headers, kind, from, InterfaceId::LOOPBACK);
        // What only passes through is nobody's here.
        if let Some(error) = error
            && self.is_own(error.local.ip())
            && self.local_errors.len() < MAX_ERRORS
        {
            self.local_errors.push(error);
        }
    }
}

/// Source, destination and length of the IP packet that `ip` begins with.
fn ends(ip: &[u8]) -> Option<(IpAddr, IpAddr, usize)> {
    match ip.first()? >> 4 {
        4 => {
            let ip = Ipv4::new_checked(ip).ok()?;
            Some((ip.src().into(), ip.dst().into(), ip.total_len()))
        }
        _ => {
            let ip = Ipv6::new_checked(ip).ok()?;
            Some((ip.src().into(), ip.dst().into(), ip.total_len()))
        }
    }
}

/// The error about a packet whose headers, perhaps cut short behind 8 bytes of layer 4, are in
/// `frame`; `None` for a packet that no user sends.
fn error_of(
    frame: &[u8],
    headers: &Headers,
    kind: ErrorKind,
    from: IpAddr,
    interface: InterfaceId,
) -> Option<IcmpError> {
    let l4 = frame.get(headers.l4?..)?;
    let word = |at: usize| {
        let bytes = l4.get(at..at + 2).and_then(|word| word.first_chunk::<2>());
        bytes.map(|bytes| u16::from_be_bytes(*bytes))
    };
    let (src, dst): (IpAddr, IpAddr) = match headers.flow_key(frame)? {
        FlowKey::V4(key) => (key.src().into(), key.dst().into()),
        FlowKey::V6(key) => (key.src().into(), key.dst().into()),
    };
    let protocol = headers.protocol?;
    let (local, remote, seq) = match (protocol, headers.ports) {
        (protocol::TCP, Some((src, dst))) => {
            let seq = u32::from(word(4)?) << 16 | u32::from(word(6)?);
            (src, dst, seq)
        }
        (protocol::UDP, Some((src, dst))) => (src, dst, 0),
        (protocol::ICMP | protocol::ICMPV6, _) => {
            // RFC 792, RFC 4443 4.1: identifier and sequence number. Errors about errors are none.
            let is_request = matches!(
                (protocol, l4.first()?),
                (protocol::ICMP, &v4::ECHO_REQUEST) | (protocol::ICMPV6, &v6::ECHO_REQUEST)
            );
            let ident = word(4).filter(|_| is_request)?;
            (ident, 0, u32::from(word(6)?))
        }
        _ => return None,
    };
    Some(IcmpError {
        kind,
        from,
        local: SocketAddr::new(src, local),
        remote: SocketAddr::new(dst, remote),
        protocol,
        seq,
        interface,
    })
}

/// What the first 8 bytes of an ICMP message say of the packet `quote` (RFC 792, RFC 1122 3.2.2.1,
/// RFC 1812 5.2.7.1).
fn kind4(message: &[u8; 8], quote: &[u8]) -> Option<ErrorKind> {
    /// RFC 791 3.2: every link takes that many bytes.
    const LEAST: u16 = 68;
    let [kind, code, _, _, first, _, high, low] = *message;
    Some(match (kind, code) {
        (v4::UNREACHABLE, 0 | 6 | 11) => ErrorKind::NetUnreachable,
        (v4::UNREACHABLE, 1 | 7 | 8 | 12) => ErrorKind::HostUnreachable,
        (v4::UNREACHABLE, 2) => ErrorKind::ProtocolUnreachable,
        (v4::UNREACHABLE, 3) => ErrorKind::PortUnreachable,
        (v4::UNREACHABLE, 4) => {
            let mtu = u16::from_be_bytes([high, low]);
            let total = u16::from_be_bytes([*quote.get(2)?, *quote.get(3)?]);
            match mtu {
                // RFC 1191 5: an old router, which does not say.
                0 => ErrorKind::TooBig {
                    mtu: plateau(total),
                },
                // RFC 1191 3 has no such links, and the packet would have fit the others.
                _ if mtu < LEAST || mtu >= total => return None,
                _ => ErrorKind::TooBig { mtu },
            }
        }
        (v4::UNREACHABLE, 5) => ErrorKind::SourceRouteFailed,
        (v4::UNREACHABLE, 9 | 10 | 13..=15) => ErrorKind::Prohibited,
        (v4::TIME_EXCEEDED, 0) => ErrorKind::TtlExceeded,
        (v4::TIME_EXCEEDED, 1) => ErrorKind::ReassemblyExceeded,
        (v4::PARAMETER_PROBLEM, _) => ErrorKind::ParameterProblem {
            pointer: first.into(),
        },
        _ => return None,
    })
}

/// The same of an ICMPv6 message (RFC 4443 3).
fn kind6(message: &[u8; 8]) -> Option<ErrorKind> {
    let [kind, code, _, _, word @ ..] = *message;
    let word = u32::from_be_bytes(word);
    Some(match (kind, code) {
        (v6::UNREACHABLE, 0 | 6) => ErrorKind::NetUnreachable,
        (v6::UNREACHABLE, 2 | 3) => ErrorKind::HostUnreachable,
        (v6::UNREACHABLE, 4) => ErrorKind::PortUnreachable,
        (v6::UNREACHABLE, 1 | 5) => ErrorKind::Prohibited,
        // RFC 4443 3.2: its code is ignored.
        (v6::PACKET_TOO_BIG, _) => ErrorKind::TooBig {
            mtu: word.min(u16::MAX.into()) as u16,
        },
        (v6::TIME_EXCEEDED, 0) => ErrorKind::TtlExceeded,
        (v6::TIME_EXCEEDED, 1) => ErrorKind::ReassemblyExceeded,
        (v6::PARAMETER_PROBLEM, 1) => ErrorKind::ProtocolUnreachable,
        (v6::PARAMETER_PROBLEM, _) => ErrorKind::ParameterProblem { pointer: word },
        _ => return None,
    })
}
