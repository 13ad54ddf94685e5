//! What a received frame is, for the counts of a port: its size class, whom it is for, and whether it
//! is one of the protocols that are shown apart. Tags are seen through.

use linerate_wire::ethernet::EtherType;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{protocol, vlan};

use crate::apps::pktgen::units::{FCS_BYTES, LEAST_FRAME, MOST_FRAME};

/// Index into `SIZE_CLASSES` of a frame of `len` bytes in memory. By bytes alone, as RFC 2819 has it: a
/// tagged frame of 1522 bytes is in the last class. Runts are in the first.
#[inline(always)]
pub(super) fn size_class(len: usize) -> usize {
    let size = len + FCS_BYTES;
    // Octaves from 64 on; the classes' ends are off the octaves' at 64 itself and at 1518.
    let octave = (usize::BITS - 1 - (size | 32).leading_zeros()) as usize - 5;
    octave.min(5) - usize::from(size == LEAST_FRAME) + usize::from(size > MOST_FRAME)
}

/// Whether a frame of `len` bytes in memory is shorter than Ethernet allows.
#[inline(always)]
pub(super) fn is_runt(len: usize) -> bool {
    len + FCS_BYTES < LEAST_FRAME
}

/// Whether a look at fixed offsets shows that a frame is of no interest but for its size: unicast,
/// untagged, TCP or UDP, or IPv4 and not ICMP. Most test frames are; the others get [`Kind::of`].
#[inline(always)]
pub(super) fn is_plain(frame: &[u8]) -> bool {
    let Some(head) = frame.first_chunk::<24>() else {
        return false;
    };
    let ethertype = EtherType(u16::from_be_bytes([head[12], head[13]]));
    let icmp_free = match ethertype {
        EtherType::IPV4 => head[23] != protocol::ICMP,
        EtherType::IPV6 => head[20] == protocol::UDP || head[20] == protocol::TCP,
        _ => false,
    };
    icmp_free && head[0] & 1 == 0
}

/// What a frame is beyond its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Arp,
    /// ICMP, and what the port's responder may care for: an echo, or an IPv6 neighbour's message.
    Icmp {
        helps: bool,
    },
    Other,
}

/// To whom a frame is addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cast {
    Unicast,
    Multicast,
    Broadcast,
}

impl Cast {
    /// Of a frame; one too short for an address counts as unicast.
    pub(super) fn of(frame: &[u8]) -> Self {
        match frame.first_chunk::<6>() {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Self::Broadcast,
            Some(dst) if dst[0] & 1 != 0 => Self::Multicast,
            _ => Self::Unicast,
        }
    }
}

impl Kind {
    /// Of a frame, whatever its bytes.
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
                // RFC 4443 4 (echo) and RFC 4861 4 (135, 136: neighbour solicitation, advertisement).
                Self::Icmp {
                    helps: matches!(kind, 128 | 129 | 135 | 136),
                }
            }
            _ => Self::Other,
        }
    }
}
