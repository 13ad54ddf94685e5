//! The demo's frames: real Ethernet, IPv4 and UDP headers, then a sequence number, the time at
//! which the frame was to be sent, and a pattern over the rest that depends on both.
//!
//! The generator writes every byte of every frame, and the sink checks every byte, so a frame
//! that comes out wrong anywhere is found. The pattern is `key + i * STEP` in 64-bit words: as
//! plain as loops get that the compiler turns into vectors.

use linerate_wire::checksum::checksum;
use linerate_wire::ethernet::{HEADER_LEN, MacAddr, set_macs};

/// Bytes of frame check sequence: counted in a frame's size (RFC 2544), but not in memory.
pub(super) const FCS_BYTES: usize = 4;
/// Preamble, start delimiter and gap between frames: what each costs on a wire besides itself.
pub(super) const L1_BYTES: usize = 20;
/// Smallest frame, FCS included.
pub(super) const LEAST_BYTES: usize = 64;
/// Largest frame without a tag, FCS included.
pub(super) const MOST_BYTES: usize = 1518;

/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = HEADER_LEN + 20 + 8;
const SEQUENCE: usize = HEADERS;
const STAMP: usize = SEQUENCE + 8;
const PATTERN: usize = STAMP + 8;
/// The golden ratio, to spread bits: 2^64 / phi.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) sequence: u64,
    /// Ticks at which it was to be sent.
    pub(super) stamp: u64,
}

/// All frames of one size and one pair of addresses.
#[derive(Clone)]
pub(super) struct Template {
    headers: [u8; HEADERS],
    /// Length in memory.
    pub(super) len: usize,
    /// Whether the pattern is written and checked, or left out.
    whole: bool,
}

impl Template {
    /// Frames of `frame_bytes`, FCS included, from [`LEAST_BYTES`] to [`MOST_BYTES`].
    pub(super) fn new(frame_bytes: usize, dst: MacAddr, src: MacAddr, whole: bool) -> Self {
        let len = frame_bytes.clamp(LEAST_BYTES, MOST_BYTES) - FCS_BYTES;
        let mut headers = [0; HEADERS];
        let [ip_len, udp_len] =
            [HEADER_LEN, HEADER_LEN + 20].map(|before| ((len - before) as u16).to_be_bytes());
        headers[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
        headers[16..18].copy_from_slice(&ip_len);
        // Time to live 64, protocol 17; addresses of RFC 2544 C.2.2; ports 9 (discard).
        headers[22..24].copy_from_slice(&[64, 17]);
        headers[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 19, 0, 1]);
        headers[34..38].copy_from_slice(&[0, 9, 0, 9]);
        headers[38..40].copy_from_slice(&udp_len);
        let rewritten = set_macs(&mut headers, dst, src);
        debug_assert!(rewritten, "the headers have room for addresses");
        let sum = checksum(&headers[HEADER_LEN..HEADER_LEN + 20]);
        headers[24..26].copy_from_slice(&sum.to_be_bytes());
        Self {
            headers,
            len,
            whole,
        }
    }

    /// Writes a frame into `data`, which has its length.
    #[inline]
    pub(super) fn write(&self, data: &mut [u8], label: Label) {
        let (head, rest) = data.split_at_mut(PATTERN);
        head[..HEADERS].copy_from_slice(&self.headers);
        head[SEQUENCE..STAMP].copy_from_slice(&label.sequence.to_le_bytes());
        head[STAMP..].copy_from_slice(&label.stamp.to_le_bytes());
        if self.whole {
            let mut word = key(label);
            let mut words = rest.chunks_exact_mut(8);
            for chunk in &mut words {
                chunk.copy_from_slice(&word.to_le_bytes());
                word = word.wrapping_add(STEP);
            }
            let tail = words.into_remainder().iter_mut();
            tail.zip(word.to_le_bytes())
                .for_each(|(byte, value)| *byte = value);
        }
    }

    /// Reads a frame back; `None` if any byte of it is wrong.
    #[inline]
    pub(super) fn read(&self, data: &[u8]) -> Option<Label> {
        if data.len() != self.len {
            return None;
        }
        let (head, rest) = data.split_at(PATTERN);
        let word = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().unwrap_or(&[0; 8]));
        let label = Label {
            sequence: word(SEQUENCE),
            stamp: word(STAMP),
        };
        // Arrays, whose length is known: compared in place, without a call.
        let mut wrong = u64::from(head.first_chunk() != Some(&self.headers));
        if self.whole {
            let mut expected = key(label);
            let mut words = rest.chunks_exact(8);
            for chunk in &mut words {
                wrong |= expected ^ u64::from_le_bytes(*chunk.first_chunk().unwrap_or(&[0; 8]));
                expected = expected.wrapping_add(STEP);
            }
            let tail = words.remainder().iter().zip(expected.to_le_bytes());
            tail.for_each(|(byte, value)| wrong |= u64::from(byte ^ value));
        }
        (wrong == 0).then_some(label)
    }
}

/// The pattern's first word: any change of the label changes it.
#[inline]
fn key(label: Label) -> u64 {
    (label.sequence ^ label.stamp.rotate_left(32)).wrapping_mul(STEP)
}
