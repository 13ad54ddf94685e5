//! Classifies received frames for a port's counters: size class, kind of destination, and the
//! protocols with counters of their own. Tags are skipped.

use linerate_core::packet::{Burst, Packet};
use linerate_wire::ethernet::EtherType;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{protocol, vlan};

use crate::units::{FCS_BYTES, LEAST_FRAME, MOST_FRAME};

/// Least sizes of all `SIZE_CLASSES` but the first. By bytes alone, as RFC 2819 has it: a tagged
/// frame of 1522 bytes is in the last class.
const CLASS_FROM: [u16; 6] = [
    LEAST_FRAME as u16 + 1,
    128,
    256,
    512,
    1024,
    MOST_FRAME as u16 + 1,
];

/// How many of `frames` are in each of `SIZE_CLASSES`. `lengths` are the low 16 bits of their
/// lengths in memory, and 0 beyond; `any` is all the lengths or-ed.
#[inline(always)]
pub(super) fn size_classes(
    frames: &[Packet],
    lengths: &mut [u16; Burst::CAPACITY],
    any: usize,
) -> [u64; 7] {
    if any > usize::from(u16::MAX) {
        // Longer than any class's bound, so the 16 bits saturate.
        for (length, frame) in lengths.iter_mut().zip(frames) {
            *length = frame.len().min(usize::from(u16::MAX)) as u16;
        }
    }
    // A loop over 64 short words without a branch is some vector operations.
    let from = CLASS_FROM.map(|size| {
        let least = size - FCS_BYTES as u16;
        let above = |sum: u16, &len: &u16| sum + u16::from(len >= least);
        u64::from(lengths.iter().fold(0, above))
    });
    let count = frames.len() as u64;
    let mut classes = [count, from[0], from[1], from[2], from[3], from[4], from[5]];
    for (class, above) in from.into_iter().enumerate() {
        classes[class] -= above;
    }
    classes
}

/// Whether a frame of `len` bytes in memory is shorter than Ethernet allows.
#[inline(always)]
pub(super) fn is_runt(len: usize) -> bool {
    len + FCS_BYTES < LEAST_FRAME
}

/// Whether fixed offsets show that only the size of a frame is counted: unicast, untagged, no runt,
/// TCP or UDP, or IPv4 and not ICMP. Most test frames are; the others get [`FrameKind::of`].
#[inline(always)]
pub(super) fn is_plain(frame: &[u8]) -> bool {
    let Some(head) = frame.first_chunk::<{ LEAST_FRAME - FCS_BYTES }>() else {
        return false;
    };
    // Compared in memory order.
    let ethertype = u16::from_ne_bytes([head[12], head[13]]);
    let is_known = if ethertype == EtherType::IPV4.0.to_be() {
        head[23] != protocol::ICMP
    } else {
        ethertype == EtherType::IPV6.0.to_be()
            && (head[20] == protocol::UDP || head[20] == protocol::TCP)
    };
    is_known && head[0] & 1 == 0
}

/// Class of a frame other than its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    Arp,
    /// ICMP, and messages that the port's responder may answer: an echo, or an IPv6 neighbour's
    /// message.
    Icmp {
        helps: bool,
    },
    Other,
}

/// Kind of destination address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cast {
    Unicast,
    Multicast,
    Broadcast,
}

impl Cast {
    /// The kind of a frame's destination; a frame too short for an address counts as unicast.
    pub(super) fn of(frame: &[u8]) -> Self {
        match frame.first_chunk::<6>() {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Self::Broadcast,
            Some(dst) if dst[0] & 1 != 0 => Self::Multicast,
            _ => Self::Unicast,
        }
    }
}

impl FrameKind {
    /// The class of a frame of any bytes.
    pub(super) fn of(frame: &[u8]) -> Self {
        let Ok(untagged) = vlan::untagged(frame) else {
            return Self::Other;
        };
        let packet = &frame[untagged.offset..];
        match untagged.ethertype {
            EtherType::ARP => Self::Arp,
            EtherType::IPV4 => {
                let Ok(ip) = Ipv4::new_checked(packet) else {
                    return Self::Other;
                };
                if ip.protocol() != protocol::ICMP {
                    return Self::Other;
                }
                // RFC 792: echo, and its reply.
                let kind = ip.payload().first().copied().unwrap_or(u8::MAX);
                Self::Icmp {
                    helps: matches!(kind, 0 | 8) && !ip.is_fragment(),
                }
            }
            EtherType::IPV6 => {
                let Ok(ip) = Ipv6::new_checked(packet) else {
                    return Self::Other;
                };
                let Ok(upper) = ip.upper_layer() else {
                    return Self::Other;
                };
                if upper.protocol != protocol::ICMPV6 {
                    return Self::Other;
                }
                let kind = packet.get(upper.offset).copied().unwrap_or(0);
                // RFC 4443 4 (echo) and RFC 4861 4 (135, 136: neighbour solicitation,
                // advertisement).
                Self::Icmp {
                    helps: matches!(kind, 128 | 129 | 135 | 136),
                }
            }
            _ => Self::Other,
        }
    }
}
