//! TCP resets for segments without a listener (RFC 9293 3.5.2, 3.10.7.1).
//!
//! A host sends one for a port without a listener. A filter that rejects a connection sends one
//! with the destination's address, so that the client gives up at once instead of retrying for
//! minutes. Packets begin at their IP header. The caller adds the frame and the route, asks the
//! [`Limiter`](crate::icmp::Limiter), and checks what a packet alone does not show: no reset
//! answers a link-layer broadcast or multicast, or a packet to a directed broadcast address.
//!
//! ```
//! use linerate_stack::tcp::{Refusal, refuse};
//! # let mut syn = [0x45, 0, 0, 40, 0, 0, 0, 0, 9, 6, 0, 0, 10, 0, 0, 1, 10, 1, 0, 1,
//! #     4, 0, 0, 22, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0];
//! let Refusal::Reset(reset) = refuse(&syn, true) else {
//!     panic!("it is a SYN");
//! };
//! let mut packet = [0; 60];
//! assert_eq!(reset.write(&mut packet), Some(40));
//! assert_eq!(packet[28..32], [0, 0, 0, 8]); // what it acknowledges
//! ```

pub mod receive;
pub mod send_buffer;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use linerate_wire::ipv4::{self, Ipv4};
use linerate_wire::ipv6::{self, Ipv6};
use linerate_wire::tcp::{self, Tcp, flag};
use linerate_wire::{checksum, protocol};

use crate::icmp::{TTL, is_between_hosts, is_from_node};

/// Longest packet with a reset in bytes, IP header included: that of IPv6.
pub const MAX_RESET_LEN: usize = ipv6::HEADER_LEN + tcp::HEADER_LEN;

/// TCP's answer to a packet that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This.
    Reset(Reset),
    /// Nothing: a reset itself (RFC 9293 3.10.7.1), a wrong checksum (3.1), or an address that is
    /// not a single host's.
    Silence,
    /// It is not a TCP segment, or only a part of one: a fragment has no length to acknowledge.
    NotTcp,
}

/// A reset, ready to be written: from the destination of the segment that it refuses, to its
/// source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    seq: u32,
    ack: u32,
    flags: u8,
}

/// How TCP refuses `packet`. `vouched`: the segment's checksum need not be checked, since a device
/// has checked it or the kernel has not finished it.
pub fn refuse(packet: &[u8], vouched: bool) -> Refusal {
    let version = packet.first().map(|byte| byte >> 4);
    let refusal = match version {
        Some(4) => refuse4(packet, vouched),
        Some(6) => refuse6(packet, vouched),
        _ => None,
    };
    refusal.unwrap_or(Refusal::NotTcp)
}

fn refuse4(packet: &[u8], vouched: bool) -> Option<Refusal> {
    let ip = Ipv4::new_checked(packet).ok()?;
    if ip.protocol() != protocol::TCP || ip.is_fragment() {
        return None;
    }
    let segment = Tcp::new_checked(ip.payload()).ok()?;
    let is_sound = is_between_hosts(&ip) && (vouched || segment.verify(ip.pseudo_sum()));
    let ends = (ip.src().into(), ip.dst().into());
    Some(answer(ends, &segment, is_sound))
}

fn refuse6(packet: &[u8], vouched: bool) -> Option<Refusal> {
    let ip = Ipv6::new_checked(packet).ok()?;
    let upper = ip.upper_layer().ok()?;
    // A source-routed packet is not at its destination yet, and its checksum is for the final
    // destination.
    if upper.protocol != protocol::TCP || upper.is_fragment || upper.is_routed {
        return None;
    }
    let segment = Tcp::new_checked(packet.get(upper.offset..ip.total_len())?).ok()?;
    let is_sound = is_from_node(&ip)
        && !ip.dst().is_multicast()
        && (vouched || segment.verify(ip.pseudo_sum(&upper)));
    let ends = (ip.src().into(), ip.dst().into());
    Some(answer(ends, &segment, is_sound))
}

/// RFC 9293 3.10.7.1.
fn answer((src, dst): (IpAddr, IpAddr), segment: &Tcp<&[u8]>, is_sound: bool) -> Refusal {
    let flags = segment.flags();
    if !is_sound || flags & flag::RST != 0 {
        return Refusal::Silence;
    }
    // RFC 9293 3.4: SYN and FIN have a sequence number each.
    let controls = (flags & flag::SYN).count_ones() + (flags & flag::FIN).count_ones();
    let len = segment.payload().len() as u32 + controls;
    let (seq, ack, flags) = match flags & flag::ACK {
        0 => (0, segment.seq().wrapping_add(len), flag::RST | flag::ACK),
        _ => (segment.ack(), 0, flag::RST),
    };
    Refusal::Reset(Reset {
        from: (dst, segment.dst_port()),
        to: (src, segment.src_port()),
        seq,
        ack,
        flags,
    })
}

impl Reset {
    /// The source address: the destination of the refused segment.
    pub fn from(&self) -> IpAddr {
        self.from.0
    }

    /// Where it goes.
    pub fn to(&self) -> IpAddr {
        self.to.0
    }

    /// Writes the packet into `out`, from its IP header on. Returns its length; `None` if it does
    /// not fit.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        const LEN: u16 = tcp::HEADER_LEN as u16;
        let ((from, src_port), (to, dst_port)) = (self.from, self.to);
        let mut segment = tcp::header(src_port, dst_port, self.seq, self.ack, self.flags);
        let mut put = |header: &[u8], pseudo| {
            if let Ok(mut tcp) = Tcp::new_checked(&mut segment) {
                tcp.fill_checksum(pseudo);
            }
            let (front, rest) = out.split_at_mut_checked(header.len())?;
            front.copy_from_slice(header);
            rest.get_mut(..segment.len())?.copy_from_slice(&segment);
            Some(header.len() + segment.len())
        };
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => put(
                &ipv4::header(0, TTL, protocol::TCP, from, to, LEN),
                checksum::pseudo_v4(from.octets(), to.octets(), protocol::TCP, LEN),
            ),
            (IpAddr::V6(from), IpAddr::V6(to)) => put(
                &ipv6::header(protocol::TCP, TTL, from, to, LEN),
                checksum::pseudo_v6(from.octets(), to.octets(), protocol::TCP, LEN.into()),
            ),
            _ => None, // both are of the packet that it refuses
        }
    }
}
