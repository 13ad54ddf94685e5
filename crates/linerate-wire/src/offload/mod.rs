//! What an offloading sender left undone: unfinished checksums here, oversized frames in
//! [`Segments`]; and joining segments for a device that takes such frames, in [`Joint`].
//!
//! Linux hands such frames to packet sockets, TAPs and guests, and "finishing" means the same for
//! all of them: the checksum field holds the folded, uncomplemented pseudo-header sum, and the
//! checksum is that of everything from the layer-4 header to the frame's end (virtio 1.2 5.1.6.2,
//! `VIRTIO_NET_HDR_F_NEEDS_CSUM`).

mod join;
#[cfg(test)]
mod join_tests;
mod segment;
#[cfg(test)]
mod tests;

pub use join::{FrameClass, Joint, TcpFrame};
pub use segment::Segments;

use crate::{bytes::put16, checksum, parse, protocol};

/// Finishes a partial checksum: sums `frame[csum_start..]` and stores the complement at
/// `csum_start + csum_offset`. False (and nothing written) where the field is beyond the frame.
///
/// A zero is stored as all ones, as Linux does for every protocol: UDP needs it, and elsewhere the
/// two are equal.
#[inline]
#[must_use = "false means that the offsets do not fit the frame"]
pub fn complete_partial(frame: &mut [u8], csum_start: u16, csum_offset: u16) -> bool {
    let (start, offset) = (usize::from(csum_start), usize::from(csum_offset));
    match frame.get_mut(start..) {
        Some(covered) if covered.len() >= offset + 2 => {
            let value = checksum::nonzero(checksum::checksum(covered));
            put16(covered, offset, value);
            true
        }
        _ => false,
    }
}

/// Where a checksum looks unfinished: `(csum_start, csum_offset)` for [`complete_partial`] of a
/// TCP or UDP frame whose checksum field equals its pseudo-header sum.
///
/// For receivers without this information, such as AF_XDP. It cannot do harm: a finished checksum
/// has that value once in 65536 frames, and then the sum of everything, field included, is all
/// ones, its checksum is the field's value again, and finishing it changes nothing. Frames padded
/// with other than zeros must be cut to [`Headers::end`](crate::Headers) first.
#[inline]
pub fn looks_partial(frame: &[u8]) -> Option<(u16, u16)> {
    let headers = parse(frame).ok()?;
    if !matches!(headers.protocol?, protocol::TCP | protocol::UDP) {
        return None;
    }
    let (covered, l4) = (headers.covered(frame)?, headers.l4?);
    if covered.bytes.len() != headers.end - l4 {
        return None; // bytes behind the datagram, which its checksum does not cover
    }
    let is_partial = covered.stands() == covered.pseudo;
    is_partial.then_some((u16::try_from(l4).ok()?, covered.field as u16))
}
