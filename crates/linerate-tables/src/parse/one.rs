//! One packet at a time, by [`linerate_wire`]: what is right, and the way of uncommon frames.

use linerate_core::packet::{Offload, Packet};
use linerate_wire::checksum::{add, pseudo_v4, pseudo_v6};
use linerate_wire::flow::FlowKey;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::{self, Ipv6};
use linerate_wire::udp::Udp;
use linerate_wire::{EtherType, Headers, parse, protocol};

use super::Parsed;
use crate::simd::checksum::Sum;

/// What one checksum says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Good,
    Bad,
    Unchecked,
}

/// Parses `packet`, which is at `index` in its burst, and checks its checksums where `check` says
/// how to sum. The bits of `index` in `parsed` must be zero.
pub(super) fn one(packet: &mut Packet, index: usize, parsed: &mut Parsed, check: Option<Sum>) {
    let bit = 1 << index;
    let offload = packet.meta().offload;
    let frame = packet.data();
    let mut l4_check = Check::Unchecked;
    let (mut l3, mut l4) = (0, 0);
    match parse(frame) {
        Err(reason) => {
            parsed.class.malformed |= bit;
            parsed.reasons[index] = reason;
        }
        Ok(headers) => {
            classify(frame, &headers, index, parsed);
            (l3, l4) = (headers.l3, headers.l4.unwrap_or(0));
            if let Some(sum) = check {
                parsed.checks.ip_bad |= u64::from(!ip_is_good(frame, &headers, sum)) << index;
                l4_check = check_l4(frame, &headers, offload, sum);
            }
        }
    }
    if check.is_some() {
        let checks = &mut parsed.checks;
        *match l4_check {
            Check::Good => &mut checks.l4_good,
            Check::Bad => &mut checks.l4_bad,
            Check::Unchecked => &mut checks.l4_unchecked,
        } |= bit;
    }
    let meta = packet.meta_mut();
    // At most 4 tags, and at most 9 extension headers of 2 KiB each: both fit.
    meta.l3_offset = l3 as u8;
    meta.l4_offset = l4 as u16;
}

fn classify(frame: &[u8], headers: &Headers, index: usize, parsed: &mut Parsed) {
    let class = &mut parsed.class;
    let set = |mask: &mut u64, is: bool| *mask |= u64::from(is) << index;
    set(&mut class.vlan, headers.outer_tci.is_some());
    parsed.vlan_tci[index] = headers.outer_tci.unwrap_or(0);
    parsed.end[index] = headers.end as u32;
    match headers.flow_key(frame) {
        Some(FlowKey::V4(key)) => {
            parsed.keys4[index] = key;
            set(&mut class.v4, true);
            set(&mut class.icmp, key.protocol() == protocol::ICMP);
            set(&mut class.options, frame[headers.l3] & 0x0f != 5);
        }
        Some(FlowKey::V6(key)) => {
            parsed.keys6[index] = key;
            set(&mut class.v6, true);
            set(&mut class.icmp, key.protocol() == protocol::ICMPV6);
            let at_once = Some(headers.l3 + ipv6::HEADER_LEN);
            set(&mut class.options, headers.l4 != at_once);
        }
        None => set(&mut class.other, true),
    }
    set(&mut class.fragment, headers.is_fragment);
    set(&mut class.tcp, headers.protocol == Some(protocol::TCP));
    set(&mut class.udp, headers.protocol == Some(protocol::UDP));
}

/// Whether the IPv4 header's checksum is right, or there is none.
fn ip_is_good(frame: &[u8], headers: &Headers, sum: Sum) -> bool {
    headers.ethertype != EtherType::IPV4 || {
        let header_len = usize::from(frame[headers.l3] & 0x0f) * 4;
        sum(&frame[headers.l3..headers.l3 + header_len]) == 0xffff
    }
}

/// What the TCP or UDP checksum says.
fn check_l4(frame: &[u8], headers: &Headers, offload: Offload, sum: Sum) -> Check {
    let Some(covered) = covered(frame, headers) else {
        return Check::Unchecked;
    };
    let Covered { l4, is_udp, pseudo } = covered;
    let no_checksum = is_udp && l4[6..8] == [0, 0];
    let is_v4 = headers.ethertype == EtherType::IPV4;
    match () {
        () if offload.intersects(Offload::CSUM_PARTIAL) => Check::Unchecked,
        () if offload.intersects(Offload::CSUM_VALID) => Check::Good,
        () if no_checksum && is_v4 => Check::Unchecked,
        () if no_checksum => Check::Bad,
        () if add(pseudo, sum(l4)) == 0xffff => Check::Good,
        () => Check::Bad,
    }
}

/// The bytes that a TCP or UDP checksum covers.
pub(super) struct Covered<'a> {
    /// Header and payload.
    pub(super) l4: &'a [u8],
    pub(super) is_udp: bool,
    /// Sum of the pseudo-header.
    pub(super) pseudo: u16,
}

/// What is to be summed of a frame; `None` where there is no TCP or UDP checksum that this packet
/// alone could be checked by.
pub(super) fn covered<'a>(frame: &'a [u8], headers: &Headers) -> Option<Covered<'a>> {
    let (protocol, l4) = (headers.protocol?, headers.l4?);
    let is_udp = protocol == protocol::UDP;
    if headers.is_fragment || !(is_udp || protocol == protocol::TCP) {
        return None;
    }
    let mut l4 = &frame[l4..headers.end];
    if is_udp {
        l4 = &l4[..Udp::new_checked(l4).ok()?.len()];
    }
    let packet = &frame[headers.l3..headers.end];
    let pseudo = if headers.ethertype == EtherType::IPV4 {
        let ip = Ipv4::new_checked(packet).ok()?;
        let (src, dst) = (ip.src().octets(), ip.dst().octets());
        pseudo_v4(src, dst, protocol, l4.len() as u16)
    } else {
        let ip = Ipv6::new_checked(packet).ok()?;
        if ip.upper_layer().ok()?.is_routed {
            return None;
        }
        let (src, dst) = (ip.src().octets(), ip.dst().octets());
        pseudo_v6(src, dst, protocol, l4.len() as u32)
    };
    Some(Covered { l4, is_udp, pseudo })
}
