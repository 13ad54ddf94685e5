//! SCTP (RFC 9260): the common header, a walk over the chunks, and the CRC32C.

use core::fmt;

use crate::{
    Layer, Malformed,
    bytes::{array, be16, be32, put16, put32},
    crc32c,
};

/// Length in bytes of the common header.
pub const HEADER_LEN: usize = 12;

/// Length in bytes of a chunk's header.
pub const CHUNK_HEADER_LEN: usize = 4;

mod field {
    pub(super) const SRC_PORT: usize = 0;
    pub(super) const DST_PORT: usize = 2;
    pub(super) const VERIFICATION_TAG: usize = 4;
    pub(super) const CHECKSUM: usize = 8;
}

/// Chunk types (RFC 9260 3.2) that middle boxes act on.
#[allow(missing_docs)] // each constant is the chunk of that name
pub mod chunk {
    pub const DATA: u8 = 0;
    pub const INIT: u8 = 1;
    pub const INIT_ACK: u8 = 2;
    pub const SACK: u8 = 3;
    pub const HEARTBEAT: u8 = 4;
    pub const HEARTBEAT_ACK: u8 = 5;
    pub const ABORT: u8 = 6;
    pub const SHUTDOWN: u8 = 7;
    pub const SHUTDOWN_ACK: u8 = 8;
    pub const ERROR: u8 = 9;
    pub const COOKIE_ECHO: u8 = 10;
    pub const COOKIE_ACK: u8 = 11;
    pub const SHUTDOWN_COMPLETE: u8 = 14;
}

/// A packet of at least the common header.
#[derive(Clone, Copy, Debug)]
pub struct Sctp<T>(T);

/// One chunk of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Its type: see [`chunk`].
    pub kind: u8,
    /// Flags, whose meaning the type decides.
    pub flags: u8,
    /// What follows the chunk's header, padding not included.
    pub value: &'a [u8],
}

/// The chunks of a packet, each or why it cannot be: after a reason there is nothing more.
#[derive(Clone, Debug)]
pub struct Chunks<'a>(&'a [u8]);

impl<T: AsRef<[u8]>> Sctp<T> {
    /// Takes `bytes`, which end where the IP packet does, unless they are shorter than the header.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        match bytes.as_ref().len() {
            HEADER_LEN.. => Ok(Sctp(bytes)),
            _ => Err(Malformed::Truncated(Layer::Sctp)),
        }
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(self.0.as_ref(), field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(self.0.as_ref(), field::DST_PORT)
    }

    /// The tag by which the receiver knows the association; zero with an INIT.
    #[inline]
    pub fn verification_tag(&self) -> u32 {
        be32(self.0.as_ref(), field::VERIFICATION_TAG)
    }

    /// The checksum field: a CRC32C, the only number that is stored little endian.
    #[inline]
    pub fn checksum(&self) -> u32 {
        u32::from_le_bytes(array(self.0.as_ref(), field::CHECKSUM))
    }

    /// The chunks, from the first.
    #[inline]
    pub fn chunks(&self) -> Chunks<'_> {
        Chunks(&self.0.as_ref()[HEADER_LEN..])
    }

    /// Whether the checksum verifies. There is no pseudo-header. Reads the whole packet.
    pub fn verify(&self) -> bool {
        self.checksum() == checksum_of(self.0.as_ref())
    }
}

/// RFC 9260 6.8: over the packet with a checksum field of zero.
fn checksum_of(packet: &[u8]) -> u32 {
    let (before, rest) = packet.split_at(field::CHECKSUM);
    let state = crc32c::update(crc32c::update(!0, before), &[0; 4]);
    !crc32c::update(state, &rest[4..])
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Sctp<T> {
    /// Sets the source port. The checksum is the caller's.
    #[inline]
    pub fn set_src_port(&mut self, port: u16) {
        put16(self.0.as_mut(), field::SRC_PORT, port);
    }

    /// Sets the destination port. The checksum is the caller's.
    #[inline]
    pub fn set_dst_port(&mut self, port: u16) {
        put16(self.0.as_mut(), field::DST_PORT, port);
    }

    /// Sets the verification tag. The checksum is the caller's.
    #[inline]
    pub fn set_verification_tag(&mut self, tag: u32) {
        put32(self.0.as_mut(), field::VERIFICATION_TAG, tag);
    }

    /// Computes and stores the checksum.
    pub fn fill_checksum(&mut self) {
        let value = checksum_of(self.0.as_ref()).swap_bytes();
        put32(self.0.as_mut(), field::CHECKSUM, value);
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.0);
        if bytes.is_empty() {
            return None;
        }
        let Some(header) = bytes.first_chunk::<CHUNK_HEADER_LEN>() else {
            return Some(Err(Malformed::Truncated(Layer::Sctp)));
        };
        let len = usize::from(be16(header, 2));
        if !(CHUNK_HEADER_LEN..=bytes.len()).contains(&len) {
            return Some(Err(Malformed::HeaderLength(Layer::Sctp)));
        }
        // RFC 9260 3.2: padded to four bytes, and the padding is not counted. Some leave it out
        // at the very end.
        self.0 = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok(Chunk {
            kind: header[0],
            flags: header[1],
            value: &bytes[CHUNK_HEADER_LEN..len],
        }))
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Sctp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SCTP {} > {} tag {:#010x} chunks",
            self.src_port(),
            self.dst_port(),
            self.verification_tag()
        )?;
        for chunk in self.chunks() {
            match chunk {
                Ok(chunk) => write!(f, " {}:{}", chunk.kind, chunk.value.len())?,
                Err(reason) => write!(f, " ({reason})")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    /// A COOKIE_ACK, and DATA of 12 + 3 bytes with its padding.
    const BYTES: [u8; 36] = [
        0x0b, 0x59, 0x0b, 0x5a, 0x00, 0x00, 0x0e, 0x50, 0x5a, 0x4d, 0xeb, 0x73, // common
        0x0b, 0x00, 0x00, 0x04, // COOKIE_ACK
        0x00, 0x03, 0x00, 0x13, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x2e, 0x61, 0x62, 0x63, 0x00, // DATA
    ];

    #[test]
    fn reads_a_packet() {
        let sctp = Sctp::new_checked(&BYTES[..]).unwrap();
        assert_eq!(
            sctp.to_string(),
            "SCTP 2905 > 2906 tag 0x00000e50 chunks 11:0 0:15"
        );
        let data = sctp.chunks().nth(1).unwrap().unwrap();
        assert_eq!((data.kind, data.flags), (chunk::DATA, 3));
        assert_eq!(data.value[12..], *b"abc");
        assert_eq!(
            Sctp::new_checked(&BYTES[..11]).unwrap_err(),
            Malformed::Truncated(Layer::Sctp)
        );
    }

    #[test]
    fn chunk_lengths_are_checked_and_the_walk_ends() {
        let walk = |at: usize, value: u8, len: usize| -> Vec<_> {
            let mut bytes = BYTES;
            bytes[at] = value;
            let sctp = Sctp::new_checked(&bytes[..len]).unwrap();
            sctp.chunks().map(|chunk| chunk.map(|c| c.kind)).collect()
        };
        let overrun = Err(Malformed::HeaderLength(Layer::Sctp));
        assert_eq!(walk(0, 0, 12), []);
        assert_eq!(walk(0, 0, 35), [Ok(11), Ok(0)]); // no padding at the end
        assert_eq!(walk(0, 0, 34), [Ok(11), overrun]);
        assert_eq!(walk(15, 3, 36), [overrun]);
        assert_eq!(
            walk(0, 0, 18),
            [Ok(11), Err(Malformed::Truncated(Layer::Sctp))]
        );
    }

    #[test]
    fn the_checksum_is_stored_little_endian() {
        let mut bytes = BYTES;
        let mut sctp = Sctp::new_checked(&mut bytes[..]).unwrap();
        assert!(sctp.verify());
        assert_eq!(sctp.checksum().to_le_bytes(), BYTES[8..12]);
        sctp.set_src_port(1);
        sctp.set_dst_port(2);
        sctp.set_verification_tag(3);
        assert!(!sctp.verify());
        sctp.fill_checksum();
        assert!(sctp.verify());
    }

    proptest! {
        #[test]
        fn never_panics(mut bytes: Vec<u8>) {
            if let Ok(mut sctp) = Sctp::new_checked(&mut bytes[..]) {
                let _ = sctp.to_string();
                prop_assert!(sctp.chunks().count() <= 1 + sctp.0.len() / CHUNK_HEADER_LEN);
                sctp.fill_checksum();
                prop_assert!(sctp.verify());
            }
        }
    }
}
