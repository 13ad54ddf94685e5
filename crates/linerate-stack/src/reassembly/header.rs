//! The IP header of a datagram, made of its first fragment's.

use linerate_core::packet::Packet;
use linerate_wire::{checksum, ipv6};

use super::Refusal;
use super::piece::{FRAGMENT_HEADER, Piece};

/// RFC 6946 4: an atomic fragment's header is removed, independent of other fragments with its
/// identification.
pub(super) fn strip_atomic(packet: &mut Packet, piece: &Piece) {
    packet.truncate(piece.frame_end());
    strip(packet, piece.header_len.into(), piece.next_at, piece.next);
    packet.meta_mut().l3_offset = piece.l3;
    let fitting = finish6(&mut packet.data_mut()[usize::from(piece.l3)..], false);
    debug_assert!(fitting.is_ok(), "it is shorter than it came");
}

/// Takes the fragment header out of a frame in which it ends at `header_len` and is announced at
/// `next_at`.
pub(super) fn strip(packet: &mut Packet, header_len: usize, next_at: u16, next: u8) {
    let data = packet.data_mut();
    data[usize::from(next_at)] = next;
    data.copy_within(..header_len - FRAGMENT_HEADER, FRAGMENT_HEADER);
    packet.trim_front(FRAGMENT_HEADER);
}

/// Makes the header of the first fragment that of the datagram: the total length, no flags and no
/// offset, and the checksum brought up to date (RFC 1624).
#[inline]
pub(super) fn finish4(ip: &mut [u8], is_marked: bool) -> Result<(), Refusal> {
    let total = u16::try_from(ip.len()).map_err(|_| Refusal::TooLong)?;
    let header = ip.first_chunk_mut::<20>().ok_or(Refusal::Malformed)?;
    let [first, tos, len_high, len_low, _, _, cut_high, cut_low, ..] = *header;
    let mut sum = u16::from_be_bytes([header[10], header[11]]);
    sum = checksum::update16(sum, u16::from_be_bytes([len_high, len_low]), total);
    sum = checksum::update16(sum, u16::from_be_bytes([cut_high, cut_low]), 0);
    if is_marked {
        let old = u16::from_be_bytes([first, tos]);
        sum = checksum::update16(sum, old, old | 3);
        header[1] = tos | 3;
    }
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[6..8].fill(0);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// The same for IPv6: the payload length.
pub(super) fn finish6(ip: &mut [u8], is_marked: bool) -> Result<(), Refusal> {
    let payload = ip.len() - ipv6::HEADER_LEN;
    let payload = u16::try_from(payload).map_err(|_| Refusal::TooLong)?;
    ip[4..6].copy_from_slice(&payload.to_be_bytes());
    if is_marked {
        ip[1] |= 3 << 4;
    }
    Ok(())
}
