//! The checks on one packet (RFC 1122 3.2.1, RFC 8200 3 and 4, RFC 4291 2): what is to be done
//! with it.

use linerate_core::packet::{Offload, Packet};
use linerate_core::run::DropId;
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::ethernet::HEADER_LEN as L2;
use linerate_wire::icmp::{Icmp, v4, v6};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, protocol};

use super::Host;
use super::address::{self, Whose, is_host4, is_host6};
use super::config::InterfaceId;
use super::inbound::Arrived;
use super::options::{Flaw, Upper, headers6, options4};
use super::refuse::Refused;
use crate::icmp::{Error4, Error6};

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// For the users.
    Keep(Arrived),
    Arp,
    Nd,
    /// A ping to be answered.
    Echo,
    /// An ICMP error, which quotes a packet.
    Quoted,
    Fragment,
    Drop(DropId),
    /// Dropped, and its sender gets an error.
    Refuse(Refused, DropId),
}

/// IEEE 802.1Q 9.6: a tag with this VLAN identifier says the priority only.
const VID: u16 = 0x0fff;
/// The longest link header: with one tag.
const TAGGED: usize = L2 + 4;

impl Host {
    /// Judges the packet at `index` in what was parsed.
    #[cold]
    pub(super) fn judge(&self, index: usize, packet: &Packet, parsed: &Parsed) -> Verdict {
        let (bit, reasons, class): (Mask, _, _) = (1 << index, &self.reasons, &parsed.class);
        let (frame, meta) = (packet.data(), packet.meta());
        let is_looped = packet.port() == InterfaceId::LOOPBACK.0;
        let id = match self.interface_of(packet.port()) {
            Some(id) => id,
            None if is_looped => InterfaceId::LOOPBACK,
            None => return Verdict::Drop(reasons.no_interface),
        };
        let Some(header) = frame.first_chunk::<L2>() else {
            return Verdict::Drop(reasons.truncated);
        };
        let is_group = header[0] & 1 != 0;
        let is_ours = |interface: &super::Interface| header[..6] == interface.config.mac.0;
        if !is_looped && !is_group && !self.at(id).is_some_and(is_ours) {
            return Verdict::Drop(reasons.not_for_us);
        }
        if let Some(malformed) = parsed.reason(index) {
            return Verdict::Drop(reasons.malformed(malformed));
        }
        let is_tagged = class.vlan & bit != 0 && parsed.vlan_tci[index] & VID != 0;
        let was_tagged = meta.offload.intersects(Offload::VLAN) && meta.vlan_tci & VID != 0;
        if is_tagged || was_tagged || usize::from(meta.l3_offset) > TAGGED {
            return Verdict::Drop(reasons.unknown_vlan);
        }
        if class.other & bit != 0 {
            let at = usize::from(meta.l3_offset).saturating_sub(2).max(12);
            let is_arp = frame.get(at..at + 2) == Some(&EtherType::ARP.0.to_be_bytes());
            return match is_arp && !is_looped {
                true => Verdict::Arp,
                false => Verdict::Drop(reasons.not_ip),
            };
        }
        let end = (parsed.end[index] as usize).min(frame.len());
        let Some(ip) = frame.get(usize::from(meta.l3_offset)..end) else {
            return Verdict::Drop(reasons.truncated);
        };
        let seen = Seen {
            index,
            bit,
            id,
            is_looped,
            is_group,
            ip,
            parsed,
            packet,
        };
        let judged = match class.v4 & bit {
            0 => self.judge6(&seen),
            _ => self.judge4(&seen),
        };
        judged.unwrap_or_else(|drop| drop)
    }

    fn judge4(&self, seen: &Seen<'_>) -> Result<Verdict, Verdict> {
        let (reasons, parsed) = (&self.reasons, seen.parsed);
        let Ok(ip) = Ipv4::new_checked(seen.ip) else {
            return Err(Verdict::Drop(reasons.bad_length));
        };
        if parsed.checks.ip_bad & seen.bit != 0 {
            return Err(Verdict::Drop(reasons.bad_checksum));
        }
        let (src, dst) = (ip.src().to_bits(), ip.dst().to_bits());
        let (mut to_group, whose) = (false, self.own.find4(dst));
        if seen.is_looped {
            // Our own stack sent it, to an address that was ours then.
            if whose != Some(Whose::Ours) && !ip.dst().is_loopback() {
                return Err(Verdict::Drop(reasons.not_ours));
            }
        } else {
            to_group = self.own.hears4(dst);
            // RFC 1122 3.2.1.3 (a): a host that has no address yet speaks to all.
            let has_none = src == 0 && to_group;
            if !is_host4(src) && !has_none {
                return Err(Verdict::Drop(reasons.martian_source));
            }
            if self.own.find4(src).is_some() {
                return Err(Verdict::Drop(reasons.own_source));
            }
            match whose {
                Some(Whose::Ours) => {}
                _ if to_group => {}
                _ if ip.dst().is_multicast() => return Err(Verdict::Drop(reasons.multicast)),
                _ if !is_host4(dst) => return Err(Verdict::Drop(reasons.martian_destination)),
                _ => return Err(Verdict::Drop(reasons.not_ours)),
            }
            // RFC 1122 3.3.6.
            if seen.is_group && !to_group {
                return Err(Verdict::Drop(reasons.l2_broadcast));
            }
        }
        let refused = |error, reason| Verdict::Refuse(Refused::V4(error), reason);
        match options4(ip.options()) {
            Ok(()) => {}
            Err(Flaw::Silent) => return Err(Verdict::Drop(reasons.source_route)),
            Err(Flaw::Error(error)) => return Err(refused(error, reasons.bad_options)),
        }
        if ip.is_fragment() {
            return Ok(Verdict::Fragment);
        }
        let upper = Upper {
            protocol: ip.protocol(),
            named_at: 9,
            at: ip.header_len(),
        };
        match upper.protocol {
            protocol::TCP | protocol::UDP => {
                self.judge_port(seen, &upper, to_group, ip.tos(), ip.ttl())
            }
            protocol::ICMP => self.judge_icmp4(seen, &upper, to_group, ip.tos(), ip.ttl()),
            // RFC 1122 3.2.2.1.
            _ => Err(refused(
                Error4::ProtocolUnreachable,
                reasons.unknown_protocol,
            )),
        }
    }

    fn judge6(&self, seen: &Seen<'_>) -> Result<Verdict, Verdict> {
        let (reasons, parsed) = (&self.reasons, seen.parsed);
        let Ok(ip) = Ipv6::new_checked(seen.ip) else {
            return Err(Verdict::Drop(reasons.bad_length));
        };
        let has_options = parsed.class.options & seen.bit != 0;
        // Before the addresses: to the group of one that is only being probed for, from one that
        // another station has, and from none at all (RFC 4862 5.4). The table checks all of them.
        if !has_options && !seen.is_looped && is_nd(&ip) {
            return Ok(Verdict::Nd);
        }
        let (src, dst) = (ip.src(), ip.dst());
        let to_group = dst.is_multicast();
        if seen.is_looped {
            if !self.own.has6(dst, None) && !dst.is_loopback() {
                return Err(Verdict::Drop(reasons.not_ours));
            }
        } else {
            if !is_host6(src) {
                return Err(Verdict::Drop(reasons.martian_source));
            }
            if self.own.has6(src, Some(seen.id)) {
                return Err(Verdict::Drop(reasons.own_source));
            }
            if to_group {
                if !self.own.hears6(dst, seen.id) {
                    return Err(Verdict::Drop(reasons.multicast));
                }
            } else if !is_host6(dst) {
                return Err(Verdict::Drop(reasons.martian_destination));
            } else if !self.own.has6(dst, Some(seen.id)) {
                return Err(Verdict::Drop(reasons.not_ours));
            } else if seen.is_group {
                return Err(Verdict::Drop(reasons.l2_broadcast));
            }
        }
        let refused = |error, reason| Verdict::Refuse(Refused::V6(error), reason);
        let upper = match has_options {
            false => Upper {
                protocol: ip.next_header(),
                named_at: 6,
                at: linerate_wire::ipv6::HEADER_LEN,
            },
            true => match headers6(seen.ip) {
                Ok(upper) => upper,
                Err(Flaw::Silent) => return Err(Verdict::Drop(reasons.bad_extension)),
                Err(Flaw::Error(error)) => return Err(refused(error, reasons.bad_extension)),
            },
        };
        let (tos, ttl) = (ip.traffic_class(), ip.hop_limit());
        match upper.protocol {
            protocol::FRAGMENT => Ok(Verdict::Fragment),
            protocol::TCP | protocol::UDP => self.judge_port(seen, &upper, to_group, tos, ttl),
            protocol::ICMPV6 => self.judge_icmp6(seen, &upper, to_group, tos, ttl),
            // RFC 8200 4.7.
            protocol::NO_NEXT => Err(Verdict::Drop(reasons.unknown_protocol)),
            _ => {
                let pointer = upper.named_at;
                let error = Error6::UnknownNextHeader { pointer };
                Err(refused(error, reasons.unknown_protocol))
            }
        }
    }

    /// TCP and UDP.
    fn judge_port(
        &self,
        seen: &Seen<'_>,
        upper: &Upper,
        is_group: bool,
        tos: u8,
        ttl: u8,
    ) -> Result<Verdict, Verdict> {
        let checks = &seen.parsed.checks;
        if checks.l4_bad & seen.bit != 0 {
            return Err(Verdict::Drop(self.reasons.bad_l4_checksum));
        }
        // RFC 9293 3.9.2.3, MUST-57.
        if is_group && upper.protocol == protocol::TCP {
            return Err(Verdict::Drop(self.reasons.tcp_to_group));
        }
        let is_verified = checks.l4_good & seen.bit != 0;
        Ok(Verdict::Keep(seen.arrived(
            upper,
            is_group,
            is_verified,
            tos,
            ttl,
        )))
    }

    /// RFC 1122 3.2.2.
    fn judge_icmp4(
        &self,
        seen: &Seen<'_>,
        upper: &Upper,
        is_group: bool,
        tos: u8,
        ttl: u8,
    ) -> Result<Verdict, Verdict> {
        let reasons = &self.reasons;
        let message = Icmp::new_checked(seen.ip.get(upper.at..).unwrap_or_default());
        let message = message.map_err(|_| Verdict::Drop(reasons.bad_length))?;
        if !message.verify(0) {
            return Err(Verdict::Drop(reasons.bad_l4_checksum));
        }
        match message.kind() {
            // RFC 1122 3.2.2.6 lets a host ignore pings to a broadcast address.
            v4::ECHO_REQUEST if !is_group => Ok(Verdict::Echo),
            v4::ECHO_REPLY if !is_group => {
                Ok(Verdict::Keep(seen.arrived(upper, is_group, true, tos, ttl)))
            }
            v4::UNREACHABLE | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM if !is_group => {
                Ok(Verdict::Quoted)
            }
            // RFC 6633: source quench; RFC 6918: information and address mask.
            _ => Err(Verdict::Drop(reasons.icmp_ignored)),
        }
    }

    /// RFC 4443 2.4.
    fn judge_icmp6(
        &self,
        seen: &Seen<'_>,
        upper: &Upper,
        is_group: bool,
        tos: u8,
        ttl: u8,
    ) -> Result<Verdict, Verdict> {
        let reasons = &self.reasons;
        let message = Icmp::new_checked(seen.ip.get(upper.at..).unwrap_or_default());
        let message = message.map_err(|_| Verdict::Drop(reasons.bad_length))?;
        let len = seen.ip.len() - upper.at;
        let Ok(ip) = Ipv6::new_checked(seen.ip) else {
            return Err(Verdict::Drop(reasons.bad_length));
        };
        let (src, dst) = (ip.src().octets(), ip.dst().octets());
        let pseudo = linerate_wire::checksum::pseudo_v6(src, dst, protocol::ICMPV6, len as u32);
        if !message.verify(pseudo) {
            return Err(Verdict::Drop(reasons.bad_l4_checksum));
        }
        match message.kind() {
            v6::ECHO_REQUEST if !is_group => Ok(Verdict::Echo),
            v6::ECHO_REPLY if !is_group => {
                Ok(Verdict::Keep(seen.arrived(upper, is_group, true, tos, ttl)))
            }
            v6::UNREACHABLE..=v6::PARAMETER_PROBLEM if !is_group => Ok(Verdict::Quoted),
            133..=v6::REDIRECT if !seen.is_looped => Ok(Verdict::Nd),
            _ => Err(Verdict::Drop(reasons.icmp_ignored)),
        }
    }
}

/// A packet that is being judged.
struct Seen<'a> {
    index: usize,
    bit: Mask,
    id: InterfaceId,
    is_looped: bool,
    /// Whether its frame is to a group of stations.
    is_group: bool,
    /// From the IP header to the packet's end.
    ip: &'a [u8],
    parsed: &'a Parsed,
    packet: &'a Packet,
}

impl Seen<'_> {
    fn arrived(
        &self,
        upper: &Upper,
        is_group: bool,
        is_verified: bool,
        tos: u8,
        ttl: u8,
    ) -> Arrived {
        let l3 = self.packet.meta().l3_offset;
        Arrived {
            l4_len: (self.ip.len() - upper.at) as u32,
            l4: (usize::from(l3) + upper.at) as u16,
            interface: self.id,
            protocol: upper.protocol,
            tos,
            ttl,
            l3,
            is_v6: self.parsed.class.v6 >> self.index & 1 != 0,
            is_group,
            is_verified,
        }
    }
}

/// Whether it is a message of Neighbor Discovery (RFC 4861 4), without extension headers.
fn is_nd(ip: &Ipv6<&[u8]>) -> bool {
    let kind = ip.payload().first();
    ip.next_header() == protocol::ICMPV6 && kind.is_some_and(|kind| (133..=137).contains(kind))
}

/// Whether an IPv4 packet's addresses are those of ordinary unicast: for the quick check of plain
/// packets.
#[inline(always)]
pub(super) fn is_plain4(own: &address::OwnAddresses, src: u32, dst: u32) -> bool {
    is_host4(src) && own.find4(dst) == Some(Whose::Ours) && own.find4(src).is_none()
}
