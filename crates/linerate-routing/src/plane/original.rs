//! Headers as a packet's sender has written them, which go with a translated packet to the slow
//! worker: if nobody answers for the next hop, the error is for that sender, and quotes what it
//! has sent (RFC 5508 4.2).
//!
//! They lie behind the packet's data, where its slot has room and nobody looks.

use linerate_core::packet::Packet;
use linerate_wire::EtherType;
use linerate_wire::ethernet::HEADER_LEN;

/// As much of a packet as translation changes: up to the checksum of TCP behind IPv6, or behind
/// most options of IPv4.
pub(super) const ORIGINAL: usize = 64;

/// Where the headers are that the sender of a punted packet has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Headers {
    /// In their place.
    #[default]
    Same,
    /// Behind the packet's data.
    Behind,
    /// Nowhere: no error is sent.
    Lost,
}

impl Headers {
    pub(super) fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Same,
            1 => Self::Behind,
            _ => Self::Lost,
        }
    }
}

/// Makes a frame what its sender sent, whose headers are `grew` bytes longer now, if they are those
/// of the other version of IP.
pub(super) fn restore(packet: &mut Packet, original: &[u8; ORIGINAL], grew: Option<i16>) {
    if let Some(grew) = grew {
        let Some(mut link) = packet.data().first_chunk::<HEADER_LEN>().copied() else {
            return;
        };
        let ethertype = match original[0] >> 4 {
            4 => EtherType::IPV4,
            _ => EtherType::IPV6,
        };
        link[HEADER_LEN - 2..].copy_from_slice(&ethertype.0.to_be_bytes());
        let bytes = usize::from(grew.unsigned_abs());
        let has_room = match grew > 0 {
            true => packet.trim_front(bytes),
            false => packet.prepend(bytes).is_some(),
        };
        if !has_room {
            return;
        }
        if let Some(place) = packet.data_mut().first_chunk_mut() {
            *place = link;
        }
    }
    let frame = packet.data_mut();
    let headers = frame.get_mut(HEADER_LEN..).unwrap_or_default();
    let len = headers.len().min(ORIGINAL);
    headers[..len].copy_from_slice(&original[..len]);
}

/// Puts the original headers behind a frame.
pub(super) fn put(packet: &mut Packet, original: &[u8; ORIGINAL]) -> Headers {
    let len = packet.len();
    // RFC 1812 4.3.2.7: there is no error about a fragment other than the first.
    let is_later = match packet.data().get(HEADER_LEN..HEADER_LEN + 8) {
        Some(&[first, .., a, b]) if first >> 4 == 4 => u16::from_be_bytes([a, b]) & 0x1fff != 0,
        _ => false,
    };
    if is_later || !packet.set_len(len + ORIGINAL) {
        return Headers::Lost;
    }
    packet.data_mut()[len..].copy_from_slice(original);
    packet.truncate(len);
    Headers::Behind
}

/// Reads the headers that lie behind a frame; false if there is no room for them.
pub(super) fn read(packet: &mut Packet, original: &mut [u8; ORIGINAL]) -> bool {
    let len = packet.len();
    if !packet.set_len(len + ORIGINAL) {
        return false;
    }
    original.copy_from_slice(&packet.data()[len..]);
    packet.truncate(len);
    true
}

/// Makes a packet what its sender has sent; false if that is not known.
pub(super) fn take(packet: &mut Packet, headers: Headers) -> bool {
    let len = packet.len();
    match headers {
        Headers::Same => return true,
        Headers::Behind if packet.set_len(len + ORIGINAL) => {}
        Headers::Behind | Headers::Lost => return false,
    }
    let (frame, original) = packet.data_mut().split_at_mut(len);
    let headers = frame.get_mut(HEADER_LEN..).unwrap_or_default();
    let most = headers.len().min(ORIGINAL);
    headers[..most].copy_from_slice(&original[..most]);
    packet.truncate(len);
    true
}
