//! Segments that begin or end a connection, kept back for who steers packets.
//!
//! Where connections are on lcores that the NIC's hash does not say, a SYN may leave only when the
//! packet's home knows to whom answers go, and a FIN has to be seen there. The host knows nothing
//! of that: it keeps these frames, complete as they are, and [`Host::diverted`] hands them out.
//!
//! Only those from addresses of ours: what passes through this host, such as users' packets at a
//! gateway, is of connections that are nobody's here, so no entry is to be made for them.

use std::net::IpAddr;

use linerate_core::packet::Packet;
use linerate_core::run::{DropId, Egress};
use linerate_wire::tcp::flag;
use linerate_wire::{ethernet::HEADER_LEN as L2, ipv4, ipv6, protocol};

use super::Host;
use super::address::OwnAddresses;

/// Offset of the flags in a TCP header, in bytes (RFC 9293 3.1).
const FLAGS: usize = 13;

pub(super) struct Divert {
    packets: Vec<(u16, Packet)>,
    full: DropId,
}

impl Host {
    /// From now on segments of ours with SYN or FIN do not leave but are kept, `most` at a time;
    /// more are dropped as `divert_full`, as if the network had.
    pub fn divert(&mut self, most: usize, out: &mut Egress) {
        self.diverted = Some(Box::new(Divert {
            packets: Vec::with_capacity(most.max(1)),
            full: out.reason("divert_full"),
        }));
    }

    /// The kept segments, in the order in which they would have left, each with its port.
    pub fn diverted(&mut self) -> impl Iterator<Item = (u16, Packet)> + '_ {
        let packets = self.diverted.as_mut().map(|divert| &mut divert.packets);
        packets.into_iter().flat_map(|packets| packets.drain(..))
    }

    /// How many are kept.
    #[inline]
    pub(super) fn diverted_pkts(&self) -> usize {
        let divert = self.diverted.as_ref();
        divert.map_or(0, |divert| divert.packets.len())
    }

    /// A complete frame leaves by a port.
    #[inline]
    pub(super) fn leave(&mut self, port: u16, packet: Packet, out: &mut Egress) {
        match &mut self.diverted {
            Some(divert) if begins_or_ends(packet.data(), &self.own) => {
                match divert.packets.len() < divert.packets.capacity() {
                    true => divert.packets.push((port, packet)),
                    false => out.drop_one(divert.full, packet),
                }
            }
            _ => out.send_one(port, packet),
        }
    }
}

/// Whether a frame that leaves is from an address of ours and has a SYN or FIN. What this host
/// sends is without tags, options and extension headers, and its EtherType may not be written yet.
#[inline]
fn begins_or_ends(frame: &[u8], own: &OwnAddresses) -> bool {
    let is_v4 = frame.get(L2).is_some_and(|first| first >> 4 == 4);
    let (field, l4) = match is_v4 {
        true => (L2 + 9, L2 + ipv4::HEADER_LEN),
        false => (L2 + 6, L2 + ipv6::HEADER_LEN),
    };
    let is_tcp = frame.get(field) == Some(&protocol::TCP);
    let flags = frame.get(l4 + FLAGS).filter(|_| is_tcp);
    flags.is_some_and(|flags| flags & (flag::SYN | flag::FIN) != 0)
        && source(frame, is_v4).is_some_and(|source| own.has(source))
}

/// The address that a frame is from.
#[inline]
fn source(frame: &[u8], is_v4: bool) -> Option<IpAddr> {
    match is_v4 {
        true => Some(IpAddr::from(*frame.get(L2 + 12..)?.first_chunk::<4>()?)),
        false => Some(IpAddr::from(*frame.get(L2 + 8..)?.first_chunk::<16>()?)),
    }
}
