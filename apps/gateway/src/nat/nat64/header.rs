//! Network headers of one version for those of the other: RFC 7915 4.1 and 5.1.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::packet::Packet;
use linerate_wire::{EtherType, Headers, checksum, ipv4, ipv6, protocol};

use super::{Prefix64, icmp};
use crate::nat::Tuple;
use crate::nat::rewrite::{Upper, change, difference, write_upper};

/// An IPv6 header with a fragment header, ICMP, and that once more for what an error quotes.
const MOST: usize = 48 + 8 + 48;

/// Behind this many bytes an IPv4 packet that comes from IPv6 is not to be fragmented: RFC 7915
/// 5.1.
const DF_ABOVE: usize = 1260;

/// Why a packet has no counterpart in the other version. It is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Untranslatable {
    /// It is not what its headers say, or its tuple is not of the other version.
    Malformed,
    /// A part of a datagram that is none without the others.
    Fragment,
    /// A type or code of ICMP that says nothing in the other version.
    Icmp,
    /// A route is ahead of it (RFC 7915 4.1, 5.1).
    Routed,
}

/// The bytes that take the place of the first ones of a packet, from its network header on.
#[derive(Clone, Debug)]
pub struct Front {
    bytes: [u8; MOST],
    len: usize,
    /// How many bytes of the packet it takes the place of.
    pub replaced: usize,
    /// Where the packet ends now, in bytes from the start of the frame as it was.
    pub end: usize,
    pub ethertype: EtherType,
}

impl Front {
    fn new(ethertype: EtherType, end: usize) -> Self {
        Self {
            bytes: [0; MOST],
            len: 0,
            replaced: 0,
            end,
            ethertype,
        }
    }

    /// Nothing yet, for a part of another.
    pub(super) fn new_like(other: &Self) -> Self {
        Self::new(other.ethertype, other.end)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        // Two headers of each kind at most.
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
            self.len = end;
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// Lets an IPv4 packet that comes from IPv6 be fragmented on its way, under an identification:
    /// RFC 7915 5.1.1, of one that its sender has sent in fragments.
    pub fn may_be_cut(&mut self, ident: u16) {
        let Some(header) = self.bytes_mut().first_chunk_mut::<20>() else {
            return;
        };
        header[4..6].copy_from_slice(&ident.to_be_bytes());
        header[6] &= !0x40;
        header[10..12].fill(0);
        let sum = checksum::checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    /// Puts the front into a packet whose network header begins at `l3`: false, and no change, if
    /// there is no room before it.
    #[must_use = "false means that the packet is half translated: drop it"]
    pub fn put(&self, packet: &mut Packet, l3: usize) -> bool {
        let mut link = [0; 64];
        let Some(place) = link.get_mut(..l3) else {
            return false;
        };
        match packet.data().get(..l3) {
            Some(bytes) => place.copy_from_slice(bytes),
            None => return false,
        }
        packet.truncate(self.end);
        let has_room = match self.len.checked_sub(self.replaced) {
            Some(more) => packet.prepend(more).is_some(),
            None => packet.trim_front(self.replaced - self.len),
        };
        if !has_room {
            return false;
        }
        let data = packet.data_mut();
        let Some(front) = data.get_mut(..l3 + self.len) else {
            return false;
        };
        front[..l3].copy_from_slice(&link[..l3]);
        if let Some(at) = l3.checked_sub(2) {
            front[at..l3].copy_from_slice(&self.ethertype.0.to_be_bytes());
        }
        front[l3..].copy_from_slice(self.bytes());
        true
    }
}

/// The addresses of a tuple, both IPv6.
pub(super) fn pair6(tuple: &Tuple) -> Option<(Ipv6Addr, Ipv6Addr)> {
    match (tuple.src.address, tuple.dst.address) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some((src, dst)),
        _ => None,
    }
}

/// The addresses of a tuple, both IPv4.
pub(super) fn pair4(tuple: &Tuple) -> Option<(Ipv4Addr, Ipv4Addr)> {
    match (tuple.src.address, tuple.dst.address) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some((src, dst)),
        _ => None,
    }
}

/// Ports of a tuple as they lie in a packet.
pub(super) fn ports(tuple: &Tuple) -> [u8; 4] {
    let ([a, b], [c, d]) = (tuple.src.port.to_be_bytes(), tuple.dst.port.to_be_bytes());
    [a, b, c, d]
}

/// The IPv6 header for an IPv4 one, `packet`, which may be cut behind it: RFC 7915 4.1.
pub(super) fn header6(
    packet: &[u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    front: &mut Front,
) -> Result<(), Untranslatable> {
    let header: &[u8; 20] = packet.first_chunk().ok_or(Untranslatable::Malformed)?;
    let header_len = usize::from(header[0] & 15) * 4;
    if has_route_ahead(packet.get(20..header_len).unwrap_or_default()) {
        return Err(Untranslatable::Routed);
    }
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let payload = usize::from(word(2)).checked_sub(header_len);
    let payload = payload.ok_or(Untranslatable::Malformed)?;
    let next = match header[9] {
        protocol::ICMP => protocol::ICMPV6,
        number => number,
    };
    let (flags, is_fragment) = (word(6), word(6) & 0x3fff != 0);
    let (first, len) = match is_fragment {
        true => (protocol::FRAGMENT, payload + 8),
        false => (next, payload),
    };
    let len = u16::try_from(len).map_err(|_| Untranslatable::Malformed)?;
    let mut out = ipv6::header(first, header[8], src, dst, len);
    // The traffic class stands across two bytes.
    out[0] |= header[1] >> 4;
    out[1] = header[1] << 4;
    front.push(&out);
    if is_fragment {
        let offset = (flags & 0x1fff) << 3 | u16::from(flags & 0x2000 != 0);
        let mut out = [next, 0, 0, 0, 0, 0, 0, 0];
        out[2..4].copy_from_slice(&offset.to_be_bytes());
        out[6..].copy_from_slice(&header[4..6]);
        front.push(&out);
    }
    Ok(())
}

/// RFC 7915 4.1: an unexpired source route option.
fn has_route_ahead(mut options: &[u8]) -> bool {
    loop {
        options = match *options {
            [] | [0, ..] => return false,
            [1, ..] => &options[1..],
            [131 | 137, len, pointer, ..] if pointer <= len => return true,
            [_, len, ..] if len >= 2 => options.get(usize::from(len)..).unwrap_or_default(),
            _ => return false,
        };
    }
}

/// The IPv4 header for an IPv6 one, `packet`, whose upper layer begins at `upper` and may be cut:
/// RFC 7915 5.1.
pub(super) fn header4(
    packet: &[u8],
    upper: usize,
    number: u8,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    ident: u16,
    front: &mut Front,
) -> Result<(), Untranslatable> {
    let header: &[u8; 40] = packet.first_chunk().ok_or(Untranslatable::Malformed)?;
    let extensions = packet.get(40..upper).ok_or(Untranslatable::Malformed)?;
    let fragment = fragment_header(header[6], extensions)?;
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let payload = payload.checked_sub(extensions.len());
    let payload = payload.ok_or(Untranslatable::Malformed)?;
    let len = u16::try_from(payload).map_err(|_| Untranslatable::Malformed)?;
    if len > u16::MAX - 20 {
        return Err(Untranslatable::Malformed);
    }
    let tos = header[0] << 4 | header[1] >> 4;
    let number = match number {
        protocol::ICMPV6 => protocol::ICMP,
        number => number,
    };
    let mut out = ipv4::header(tos, header[7], number, src, dst, len);
    let (ident, flags) = match fragment {
        Some([_, _, a, b, _, _, c, d]) => {
            let offset = u16::from_be_bytes([a, b]);
            (u16::from_be_bytes([c, d]), offset >> 3 | (offset & 1) << 13)
        }
        // RFC 7915 5.1: a short packet may be fragmented on its way.
        None if 20 + payload <= DF_ABOVE => (ident, 0),
        None => (0, 0x4000),
    };
    out[4..6].copy_from_slice(&ident.to_be_bytes());
    out[6..8].copy_from_slice(&flags.to_be_bytes());
    out[10..12].fill(0);
    let sum = checksum::checksum(&out);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    front.push(&out);
    Ok(())
}

/// The fragment header among extension headers, the first of which is of that number.
fn fragment_header(mut number: u8, mut headers: &[u8]) -> Result<Option<[u8; 8]>, Untranslatable> {
    let mut found = None;
    while let Some(&[next, len, _, left, ..]) = headers.first_chunk::<8>() {
        let bytes = match number {
            protocol::FRAGMENT => 8,
            protocol::AH => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * 8,
        };
        match number {
            protocol::FRAGMENT => found = headers.first_chunk().copied(),
            protocol::ROUTING if left != 0 => return Err(Untranslatable::Routed),
            _ => {}
        }
        number = next;
        headers = headers.get(bytes..).unwrap_or_default();
    }
    Ok(found)
}

/// Translates an IPv6 packet that becomes one of the tuple `to`. `ident` is a number for the IPv4
/// header, another one for each packet; `mtu` is that of the way out, for what "too big" says.
///
/// # Errors
/// It has no counterpart: it may be changed, and is to be dropped.
pub fn six_to_four(
    frame: &mut [u8],
    headers: &Headers,
    to: &Tuple,
    ident: u16,
    mtu: u16,
    is_partial: bool,
) -> Result<Front, Untranslatable> {
    use Untranslatable::{Fragment, Malformed};
    let (src, dst) = pair4(to).ok_or(Malformed)?;
    let number = headers.protocol.ok_or(Malformed)?;
    let quoted = headers.quoted(frame).map_err(|_| Malformed)?;
    let l4 = headers.l4.ok_or(Fragment)?;
    let frame = frame.get_mut(..headers.end).ok_or(Malformed)?;
    let mut front = Front::new(EtherType::IPV4, headers.end);
    if let Some(quoted) = quoted {
        icmp::error4(frame, headers, &quoted, to, ident, mtu, &mut front)?;
        return Ok(front);
    }
    let packet = frame.get(headers.l3..).ok_or(Malformed)?;
    header4(packet, l4 - headers.l3, number, src, dst, ident, &mut front)?;
    let was: [u8; 32] = *packet[8..].first_chunk().ok_or(Malformed)?;
    front.replaced = l4 - headers.l3;
    let message = frame.get_mut(l4..).ok_or(Malformed)?;
    match number {
        protocol::ICMPV6 if headers.is_fragment => return Err(Fragment),
        protocol::ICMPV6 => icmp::query4(message, &was, to)?,
        _ => {
            let grew = difference(&was, &addresses4(src, dst));
            let upper = Upper::of(EtherType::IPV6, number, message);
            check(&upper, message)?;
            write_upper(message, &upper, grew, &ports(to), is_partial);
        }
    }
    Ok(front)
}

/// Translates an IPv4 packet that becomes one of the tuple `to`. `prefix` is for the addresses of
/// routers that send errors; `mtu` is that of the way out, for what "too big" says.
///
/// # Errors
/// It has no counterpart: it may be changed, and is to be dropped.
pub fn four_to_six(
    frame: &mut [u8],
    headers: &Headers,
    to: &Tuple,
    prefix: &Prefix64,
    mtu: u16,
    is_partial: bool,
) -> Result<Front, Untranslatable> {
    use Untranslatable::{Fragment, Malformed};
    let (src, dst) = pair6(to).ok_or(Malformed)?;
    let number = headers.protocol.ok_or(Malformed)?;
    let quoted = headers.quoted(frame).map_err(|_| Malformed)?;
    let l4 = headers.l4.ok_or(Fragment)?;
    let frame = frame.get_mut(..headers.end).ok_or(Malformed)?;
    let mut front = Front::new(EtherType::IPV6, headers.end);
    if let Some(quoted) = quoted {
        icmp::error6(frame, headers, &quoted, to, prefix, mtu, &mut front)?;
        return Ok(front);
    }
    let packet = frame.get(headers.l3..).ok_or(Malformed)?;
    header6(packet, src, dst, &mut front)?;
    let was: [u8; 8] = *packet[12..].first_chunk().ok_or(Malformed)?;
    front.replaced = l4 - headers.l3;
    let message = frame.get_mut(l4..).ok_or(Malformed)?;
    match number {
        protocol::ICMP if headers.is_fragment => return Err(Fragment),
        protocol::ICMP => icmp::query6(message, src, dst, to)?,
        _ => {
            let grew = difference(&was, &addresses6(src, dst));
            let upper = Upper::of(EtherType::IPV4, number, message);
            check(&upper, message)?;
            let has_none = number == protocol::UDP && message[6..8] == [0, 0];
            // RFC 7915 4.5: IPv6 wants a checksum (RFC 8200 8.1), and only the whole has one.
            if has_none && headers.is_fragment {
                return Err(Fragment);
            }
            write_upper(message, &upper, grew, &ports(to), is_partial);
            if has_none && !is_partial {
                // Which may be less than the packet has (RFC 9868).
                let len = u16::from_be_bytes([message[4], message[5]]);
                let datagram = message.get(..len.into()).ok_or(Malformed)?;
                let (src, dst) = (src.octets(), dst.octets());
                let pseudo = checksum::pseudo_v6(src, dst, number, len.into());
                let sum = checksum::add(pseudo, checksum::sum(datagram));
                change(message, 6, |_| checksum::nonzero(!sum).to_be());
            }
        }
    }
    Ok(front)
}

/// Whether what is to be changed is there.
fn check(upper: &Upper, bytes: &[u8]) -> Result<(), Untranslatable> {
    match upper.fits(bytes) {
        true => Ok(()),
        false => Err(Untranslatable::Malformed),
    }
}

fn addresses4(src: Ipv4Addr, dst: Ipv4Addr) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (src.octets(), dst.octets());
    [a, b, c, d, e, f, g, h]
}

fn addresses6(src: Ipv6Addr, dst: Ipv6Addr) -> [u8; 32] {
    let mut both = [0; 32];
    both[..16].copy_from_slice(&src.octets());
    both[16..].copy_from_slice(&dst.octets());
    both
}
