//! One packet at a time, by [`linerate_wire`]: what is right, and the way of uncommon frames.

use linerate_core::packet::{Offload, Packet};
use linerate_wire::checksum::add;
use linerate_wire::flow::FlowKey;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{Covered, EtherType, Headers, parse, protocol, vlan};

use super::{Check, Parsed};
use crate::simd::checksum::Sum;

/// Parses `packet`, which is at `index` in its burst, and judges what `check` says. The bits of
/// `index` in `parsed` must be zero.
pub(super) fn one(packet: &mut Packet, index: usize, parsed: &mut Parsed, check: Check) {
    let bit = 1 << index;
    let offload = packet.meta().offload;
    let frame = packet.data();
    let mut l4_is_right = None;
    let (mut l3, mut l4) = (0, 0);
    let found = match (parse(frame), check) {
        (Err(reason), Check::Network(..)) => network(frame).ok_or(reason),
        (found, _) => found,
    };
    match found {
        Err(reason) => {
            parsed.class.malformed |= bit;
            parsed.reasons[index] = reason;
        }
        Ok(headers) => {
            classify(frame, &headers, index, parsed);
            (l3, l4) = (headers.l3, headers.l4.unwrap_or(0));
            if let Check::Network(_, station) = check {
                let is_ip = (parsed.class.v4 | parsed.class.v6) & bit;
                parsed.class.ours |= is_ip & u64::from(is_to(station, frame)) << index;
            }
            if let Check::Network(sum, _) | Check::All(sum) = check {
                parsed.checks.ip_bad |= u64::from(!ip_is_good(frame, &headers, sum)) << index;
                parsed.checks.expired |= u64::from(is_expired(frame, &headers)) << index;
            }
            if let Check::All(sum) = check {
                l4_is_right = check_l4(frame, &headers, offload, sum);
            }
        }
    }
    if let Check::All(_) = check {
        parsed.checks.note(index, l4_is_right);
    }
    let meta = packet.meta_mut();
    // At most 4 tags, and at most 9 extension headers of 2 KiB each: both fit.
    meta.l3_offset = l3 as u8;
    meta.l4_offset = l4 as u16;
}

/// The headers of a frame whose network header is sound, whatever is behind it.
fn network(frame: &[u8]) -> Option<Headers> {
    let at = vlan::untagged(frame).ok()?;
    let packet = &frame[at.offset..];
    let (len, protocol, is_fragment) = match at.ethertype {
        EtherType::IPV4 => {
            let ip = Ipv4::new_checked(packet).ok()?;
            (ip.total_len(), ip.protocol(), ip.is_fragment())
        }
        EtherType::IPV6 => {
            let ip = Ipv6::new_checked(packet).ok()?;
            let next = ip.next_header();
            (ip.total_len(), next, next == protocol::FRAGMENT)
        }
        _ => return None,
    };
    Some(Headers {
        ethertype: at.ethertype,
        outer_tci: at.outer_tci,
        l3: at.offset,
        end: at.offset + len,
        protocol: Some(protocol),
        is_fragment,
        l4: None,
        ports: None,
    })
}

/// Whether a frame is to a station: see [`Check::Network`].
#[inline(always)]
pub(super) fn is_to(station: u64, frame: &[u8]) -> bool {
    let front = frame.first_chunk::<8>();
    front.is_some_and(|&front| u64::from_le_bytes(front) << 16 == station << 16)
        && station >> 48 == 0
}

/// Whether the packet may go no further; frames that are not IP may go as far as they like.
fn is_expired(frame: &[u8], headers: &Headers) -> bool {
    let life = match headers.ethertype {
        EtherType::IPV4 => frame[headers.l3 + 8],
        EtherType::IPV6 => frame[headers.l3 + 7],
        _ => return false,
    };
    life <= 1
}

fn classify(frame: &[u8], headers: &Headers, index: usize, parsed: &mut Parsed) {
    let class = &mut parsed.class;
    let set = |mask: &mut u64, is: bool| *mask |= u64::from(is) << index;
    set(&mut class.vlan, headers.outer_tci.is_some());
    set(&mut class.group, frame[0] & 1 != 0);
    parsed.vlan_tci[index] = headers.outer_tci.unwrap_or(0);
    parsed.end[index] = headers.end as u32;
    match headers.flow_key(frame) {
        Some(FlowKey::V4(key)) => {
            parsed.keys4[index] = key;
            parsed.src4[index] = key.src().to_bits();
            parsed.dst4[index] = key.dst().to_bits();
            set(&mut class.v4, true);
            set(&mut class.icmp, key.protocol() == protocol::ICMP);
            set(&mut class.options, frame[headers.l3] & 0x0f != 5);
        }
        Some(FlowKey::V6(key)) => {
            parsed.keys6[index] = key;
            set(&mut class.v6, true);
            set(&mut class.icmp, key.protocol() == protocol::ICMPV6);
            // Its next header (RFC 8200 3).
            set(&mut class.options, is_extension(frame[headers.l3 + 6]));
        }
        None => set(&mut class.other, true),
    }
    set(&mut class.fragment, headers.is_fragment);
    set(&mut class.tcp, headers.protocol == Some(protocol::TCP));
    set(&mut class.udp, headers.protocol == Some(protocol::UDP));
}

/// Whether it is an extension header that a key looks behind (RFC 8200 4).
fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AH
            | protocol::DEST_OPTIONS
    )
}

/// Whether the IPv4 header's checksum is right, or there is none.
fn ip_is_good(frame: &[u8], headers: &Headers, sum: Sum) -> bool {
    headers.ethertype != EtherType::IPV4 || {
        let header_len = usize::from(frame[headers.l3] & 0x0f) * 4;
        sum(&frame[headers.l3..headers.l3 + header_len]) == 0xffff
    }
}

/// Whether the TCP or UDP checksum is right; `None` where it is not to be checked.
fn check_l4(frame: &[u8], headers: &Headers, offload: Offload, sum: Sum) -> Option<bool> {
    let covered = covered(frame, headers)?;
    let is_v4 = headers.ethertype == EtherType::IPV4;
    let no_checksum = headers.protocol == Some(protocol::UDP) && covered.stands() == 0;
    let right = || add(covered.pseudo, sum(covered.bytes)) == 0xffff;
    judge(offload, is_v4, no_checksum, right)
}

/// The same, given what is known: whether UDP says that it has none, and how to find out.
#[inline(always)]
pub(super) fn judge(
    offload: Offload,
    is_v4: bool,
    no_checksum: bool,
    right: impl FnOnce() -> bool,
) -> Option<bool> {
    match () {
        () if offload.intersects(Offload::CSUM_PARTIAL) => None,
        () if offload.intersects(Offload::CSUM_VALID) => Some(true),
        // RFC 768 allows it, RFC 8200 8.1 does not.
        () if no_checksum => (!is_v4).then_some(false),
        () => Some(right()),
    }
}

/// What is to be summed of a frame; `None` where there is no TCP or UDP checksum that this packet
/// alone could be checked by.
pub(super) fn covered<'a>(frame: &'a [u8], headers: &Headers) -> Option<Covered<'a>> {
    match headers.protocol? {
        protocol::TCP | protocol::UDP => headers.covered(frame),
        _ => None,
    }
}
