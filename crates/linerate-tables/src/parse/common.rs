//! The scalar twin of the vector kernel: the same common frames, one at a time.
//!
//! Reads each field at a constant offset and gives up at the first one that is uncommon.

use linerate_core::packet::Packet;
use linerate_wire::checksum::{add, fold, sum};
use linerate_wire::{EtherType, protocol};

use super::one::{is_to, judge};
use super::{Check, Mask, Parsed};

/// As [`Kernel`](crate::simd::parse::Kernel) says.
pub(crate) fn burst(packets: &mut [Packet], parsed: &mut Parsed, check: Check) -> Mask {
    for packet in &*packets {
        linerate_core::arch::prefetch_read(packet.data().as_ptr());
        parsed.offloads = parsed.offloads | packet.meta().offload;
        parsed.bytes += packet.len() as u64;
    }
    let mut done = 0;
    for (index, packet) in packets.iter_mut().enumerate() {
        let is_done = common(packet, index, parsed, check).is_some();
        done |= Mask::from(is_done) << index;
    }
    done
}

/// What the rest of a network packet says.
struct Upper {
    protocol: u8,
    ports: [u8; 4],
    no_checksum: bool,
}

/// `None`, and nothing said in a class, where the frame is uncommon.
#[inline(always)]
fn common(packet: &mut Packet, index: usize, parsed: &mut Parsed, check: Check) -> Option<()> {
    let offload = packet.meta().offload;
    let frame = packet.data();
    let mut ethertype = EtherType(be16(frame.first_chunk::<14>()?, 12));
    let mut l3 = 14;
    let is_tagged = ethertype.is_vlan();
    if is_tagged {
        let head = frame.first_chunk::<18>()?;
        parsed.vlan_tci[index] = be16(head, 14);
        ethertype = EtherType(be16(head, 16));
        l3 = 18;
    }
    let network = &frame[l3..];
    let is_v4 = ethertype == EtherType::IPV4;
    let (l3_len, addresses, total, life, upper) = if is_v4 {
        let header = network.first_chunk::<20>()?;
        let total = usize::from(be16(header, 2));
        if header[0] != 0x45 || be16(header, 6) & 0x3fff != 0 {
            return None;
        }
        let upper = upper(header[9], network.get(20..total)?)?;
        let key = &mut parsed.keys4[index].0;
        key[..8].copy_from_slice(&header[12..]);
        key[8..].copy_from_slice(&tail(&upper));
        let address = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        (parsed.src4[index], parsed.dst4[index]) = (address(12), address(16));
        if !matches!(check, Check::Nothing) {
            parsed.checks.ip_bad |= Mask::from(sum(header) != 0xffff) << index;
        }
        (20, 12, total, header[8], upper)
    } else if ethertype == EtherType::IPV6 {
        let header = network.first_chunk::<40>()?;
        let total = 40 + usize::from(be16(header, 4));
        if header[0] >> 4 != 6 {
            return None;
        }
        let upper = upper(header[6], network.get(40..total)?)?;
        let key = &mut parsed.keys6[index].0;
        key[..32].copy_from_slice(&header[8..]);
        key[32..].copy_from_slice(&tail(&upper));
        (40, 8, total, header[7], upper)
    } else {
        return None;
    };

    let is_udp = upper.protocol == protocol::UDP;
    let is_tcp = upper.protocol == protocol::TCP;
    if !matches!(check, Check::Nothing) {
        parsed.checks.expired |= Mask::from(life <= 1) << index;
    }
    if let Check::All(sum) = check {
        let right = || {
            // The addresses are the header's last, so that they and layer 4 are one run.
            let rest = u64::from(upper.protocol) + (total - l3_len) as u64;
            add(sum(&network[addresses..total]), fold(rest)) == 0xffff
        };
        let has_checksum = is_udp || is_tcp;
        let told = has_checksum.then(|| judge(offload, is_v4, upper.no_checksum, right));
        parsed.checks.note(index, told.flatten());
    }
    let icmp = if is_v4 {
        protocol::ICMP
    } else {
        protocol::ICMPV6
    };
    let is_group = frame[0] & 1 != 0;
    let is_ours = matches!(check, Check::Network(_, station) if is_to(station, frame));
    let class = &mut parsed.class;
    for (mask, is) in [
        (&mut class.v4, is_v4),
        (&mut class.v6, !is_v4),
        (&mut class.tcp, is_tcp),
        (&mut class.udp, is_udp),
        (&mut class.icmp, upper.protocol == icmp),
        (&mut class.vlan, is_tagged),
        (&mut class.group, is_group),
        (&mut class.ours, is_ours),
    ] {
        *mask |= Mask::from(is) << index;
    }
    parsed.end[index] = (l3 + total) as u32;
    let meta = packet.meta_mut();
    meta.l3_offset = l3 as u8;
    meta.l4_offset = (l3 + l3_len) as u16;
    Some(())
}

/// What follows the addresses in both kinds of key.
#[inline(always)]
fn tail(upper: &Upper) -> [u8; 8] {
    let [a, b, c, d] = upper.ports;
    [a, b, c, d, upper.protocol, 0, 0, 0]
}

/// `None` where the layer-4 header is malformed or uncommon.
#[inline(always)]
fn upper(protocol: u8, bytes: &[u8]) -> Option<Upper> {
    let (ports, no_checksum) = match protocol {
        protocol::TCP => {
            let header = bytes.first_chunk::<20>()?;
            let header_len = usize::from(header[12] >> 4) * 4;
            if !(20..=bytes.len()).contains(&header_len) {
                return None;
            }
            ([header[0], header[1], header[2], header[3]], false)
        }
        protocol::UDP => {
            let header = bytes.first_chunk::<8>()?;
            if usize::from(be16(header, 4)) != bytes.len() {
                return None;
            }
            let ports = [header[0], header[1], header[2], header[3]];
            (ports, header[6..] == [0, 0])
        }
        protocol::HOP_BY_HOP
        | protocol::ROUTING
        | protocol::FRAGMENT
        | protocol::AH
        | protocol::DEST_OPTIONS
        | protocol::SCTP => return None,
        _ => ([0; 4], false),
    };
    Some(Upper {
        protocol,
        ports,
        no_checksum,
    })
}

#[inline(always)]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
