//! The last 18 bytes of every test frame: session, stream, sequence number and intended send time.
//! They give loss, reordering, duplication and latency per stream, and distinguish the frames of
//! other generators.
//!
//! ```text
//! byte  0..2    check: one's complement, chosen so that the 18 bytes and MAGIC sum to 0 (RFC 1071)
//!       2..8    sequence number, 48 bits (at 148.8 Mpps 21 days)
//!       8..10   session
//!      10..16   intended send time: the low 48 bits of the clock's ticks (30 h at 2.6 GHz)
//!      16..18   stream
//! ```
//!
//! All little endian. Because the sum of the 18 bytes is the same in every frame ([`SUM`]), the
//! checksums of UDP and TCP over a frame do not depend on the content of its signature: they are
//! computed once with the template. It is at the end, where it survives headers that a device adds
//! or removes, and is found without parsing.

/// Bytes at the end of each test frame.
pub const SIGNATURE_BYTES: usize = 18;

/// The words of a signature and this value sum to 0; foreign bytes rarely do.
const MAGIC: u16 = 0x6c72;

/// What a signature adds to a one's complement sum, as it stands in memory, little endian. Swap its
/// bytes for a big-endian sum, once more where the signature begins at an odd offset.
pub const SUM: u16 = !MAGIC;

/// Bits of the send time.
const STAMP_BITS: u32 = 48;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
/// Bits of the sequence number.
const SEQUENCE_BITS: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// The fields of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Number of the session.
    pub session: u16,
    /// Number of the stream within the session.
    pub stream: u16,
    /// Number of the frame within its stream, from 0: 48 bits.
    pub sequence: u64,
    /// Low 48 bits of the ticks at which the frame was to be sent.
    pub stamp: u64,
}

impl Label {
    /// Ticks from the intended send time to `now`; 0 for a stamp of the future (two CPUs' clocks
    /// may differ by some ticks).
    #[inline(always)]
    pub fn age(&self, now: u64) -> u64 {
        let age = now.wrapping_sub(self.stamp) << (64 - STAMP_BITS);
        (age as i64 >> (64 - STAMP_BITS)).max(0) as u64
    }

    /// Writes the signature.
    #[inline(always)]
    pub fn write(&self, tail: &mut [u8; SIGNATURE_BYTES]) {
        let (first, last) = (self.first(), self.last());
        tail[..2].copy_from_slice(&check(first, last).to_le_bytes());
        tail[2..10].copy_from_slice(&first.to_le_bytes());
        tail[10..].copy_from_slice(&last.to_le_bytes());
    }

    /// Reads the signature at the end of a frame; `None` if it is not a signature, or damaged.
    #[inline(always)]
    pub fn read(frame: &[u8]) -> Option<Self> {
        let tail: &[u8; SIGNATURE_BYTES] = frame.last_chunk()?;
        let word = |at: usize| u64::from_le_bytes(*tail[at..].first_chunk().expect("eight bytes"));
        let (first, last) = (word(2), word(10));
        let expected = check(first, last);
        (u16::from_le_bytes([tail[0], tail[1]]) == expected).then_some(Self {
            session: (first >> SEQUENCE_BITS) as u16,
            stream: (last >> STAMP_BITS) as u16,
            sequence: first & SEQUENCE_MASK,
            stamp: last & STAMP_MASK,
        })
    }

    #[inline(always)]
    fn first(&self) -> u64 {
        u64::from(self.session) << SEQUENCE_BITS | self.sequence & SEQUENCE_MASK
    }

    #[inline(always)]
    fn last(&self) -> u64 {
        u64::from(self.stream) << STAMP_BITS | self.stamp & STAMP_MASK
    }
}

/// The check that makes the whole sum up to [`SUM`].
#[inline(always)]
fn check(first: u64, last: u64) -> u16 {
    let (sum, carry) = first.overflowing_add(last);
    let sum = sum + u64::from(carry);
    // 2^64, 2^32 and 2^16 are all 1 in one's complement: the halves add up, with the carry that the
    // lower half of the same sum hands to the upper one.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    let sum = sum.wrapping_add(sum.rotate_left(16)) >> 16;
    let sum = sum + u32::from(MAGIC);
    !((sum + (sum >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::checksum::sum;

    fn written(label: Label) -> [u8; SIGNATURE_BYTES] {
        let mut tail = [0; SIGNATURE_BYTES];
        label.write(&mut tail);
        tail
    }

    fn labels() -> impl Iterator<Item = Label> {
        let mut word = 0x1234_5678_9abc_def1u64;
        let mut next = move || {
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 0x55;
            word
        };
        let edges = [0, 1, SEQUENCE_MASK, 0xffff, 1 << 32].map(|sequence| Label {
            session: sequence as u16,
            stream: sequence as u16,
            sequence,
            stamp: sequence & STAMP_MASK,
        });
        edges.into_iter().chain((0..20_000).map(move |_| Label {
            session: next() as u16,
            stream: next() as u16,
            sequence: next() & SEQUENCE_MASK,
            stamp: next() & STAMP_MASK,
        }))
    }

    #[test]
    fn what_is_written_is_read_and_adds_the_same_to_every_checksum() {
        for label in labels() {
            let tail = written(label);
            assert_eq!(Label::read(&tail), Some(label));
            let total = sum(&tail);
            assert!(
                total == SUM.swap_bytes(),
                "{label:?} sums to {total:#x}, not {:#x}",
                SUM.swap_bytes()
            );
        }
    }

    #[test]
    fn a_flipped_bit_or_foreign_bytes_are_no_signature() {
        let tail = written(labels().nth(100).unwrap());
        for bit in 0..SIGNATURE_BYTES * 8 {
            let mut bad = tail;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Label::read(&bad), None, "bit {bit}");
        }
        assert_eq!(Label::read(&[0; 60]), None);
        assert_eq!(Label::read(&[0xff; 60]), None);
        assert_eq!(Label::read(&[0; 17]), None);
    }

    #[test]
    fn ages_wrap_with_the_stamp_and_are_never_negative() {
        let label = |stamp| Label {
            session: 0,
            stream: 0,
            sequence: 0,
            stamp,
        };
        assert_eq!(label(100).age(1 << 48 | 175), 75);
        assert_eq!(label(STAMP_MASK).age((1 << 48) + 4), 5);
        assert_eq!(label(100).age(90), 0);
    }
}
