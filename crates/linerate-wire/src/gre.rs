//! GRE (RFC 2784), with key and sequence number (RFC 2890): any EtherType in an IP packet.
//!
//! With [`EtherType::TRANSPARENT_ETHERNET`] and a key it is NVGRE (RFC 7637). PPTP's version 1
//! and RFC 1701's routing are refused; ERSPAN is an EtherType like any other, not walked.

use core::fmt;

use crate::{
    EtherType, Layer, Malformed,
    bytes::{be16, be32, put16, put32},
    checksum,
};

/// Length in bytes of a header without checksum, key and sequence number.
pub const HEADER_LEN: usize = 4;

mod field {
    pub(super) const FLAGS_VERSION: usize = 0;
    pub(super) const PROTOCOL: usize = 2;
    /// Behind it two reserved bytes; key and sequence number stand behind what is there.
    pub(super) const CHECKSUM: usize = 4;
}

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// RFC 2784 2.3: bits 1, 4 and 5 (routing, strict routing) make a packet to be discarded, those
/// up to bit 12 are ignored; the version must be 0 (2.3.1).
const REFUSED: u16 = 0x4c07;

/// A header whose optional fields lie within the bytes present, and what is behind it.
#[derive(Clone, Copy, Debug)]
pub struct Gre<T>(T);

/// A header without optional fields.
pub const fn header(protocol: EtherType) -> [u8; HEADER_LEN] {
    let [p, q] = protocol.0.to_be_bytes();
    [0, 0, p, q]
}

/// A header with a key.
pub const fn header_with_key(protocol: EtherType, key: u32) -> [u8; HEADER_LEN + 4] {
    let ([p, q], [a, b, c, d]) = (protocol.0.to_be_bytes(), key.to_be_bytes());
    [(KEY >> 8) as u8, 0, p, q, a, b, c, d]
}

impl<T: AsRef<[u8]>> Gre<T> {
    /// Takes `bytes`, which end where the IP packet does, if version and fields fit them.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let present = bytes.as_ref().len();
        if present < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Gre));
        }
        let gre = Gre(bytes);
        if gre.flags() & REFUSED != 0 {
            return Err(Malformed::Version(Layer::Gre));
        }
        if gre.header_len() > present {
            return Err(Malformed::Truncated(Layer::Gre));
        }
        Ok(gre)
    }

    #[inline]
    fn flags(&self) -> u16 {
        be16(self.0.as_ref(), field::FLAGS_VERSION)
    }

    /// Four bytes where the flag is set.
    #[inline]
    fn len_of(&self, flag: u16) -> usize {
        if self.flags() & flag != 0 { 4 } else { 0 }
    }

    /// Length in bytes of the header with its optional fields, 4 to 16.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.len_of(CHECKSUM) + self.len_of(KEY) + self.len_of(SEQUENCE)
    }

    /// What is inside; [`EtherType::TRANSPARENT_ETHERNET`] for a frame.
    #[inline]
    pub fn protocol(&self) -> EtherType {
        EtherType(be16(self.0.as_ref(), field::PROTOCOL))
    }

    /// The checksum field, where there is one.
    #[inline]
    pub fn checksum(&self) -> Option<u16> {
        (self.flags() & CHECKSUM != 0).then(|| be16(self.0.as_ref(), field::CHECKSUM))
    }

    /// The key, where there is one: which of the flows or networks between the two ends. NVGRE's
    /// network is its upper 24 bits.
    #[inline]
    pub fn key(&self) -> Option<u32> {
        let at = HEADER_LEN + self.len_of(CHECKSUM);
        (self.flags() & KEY != 0).then(|| be32(self.0.as_ref(), at))
    }

    /// The sequence number, where there is one.
    #[inline]
    pub fn sequence(&self) -> Option<u32> {
        let at = HEADER_LEN + self.len_of(CHECKSUM) + self.len_of(KEY);
        (self.flags() & SEQUENCE != 0).then(|| be32(self.0.as_ref(), at))
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[self.header_len()..]
    }

    /// Whether the checksum, of header and payload, verifies or is not there.
    #[inline]
    pub fn verify(&self) -> bool {
        self.checksum().is_none() || checksum::verify(self.0.as_ref())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Gre<T> {
    /// Sets the key; false (and nothing written) where the header has none. The checksum is the
    /// caller's.
    #[inline]
    #[must_use = "false means that the header has no key"]
    pub fn set_key(&mut self, key: u32) -> bool {
        let at = HEADER_LEN + self.len_of(CHECKSUM);
        let present = self.flags() & KEY != 0;
        if present {
            put32(self.0.as_mut(), at, key);
        }
        present
    }

    /// Computes and stores the checksum, of header and payload, where the header has one.
    #[inline]
    pub fn fill_checksum(&mut self) {
        if self.checksum().is_some() {
            let bytes = self.0.as_mut();
            put16(bytes, field::CHECKSUM, 0);
            let value = checksum::checksum(bytes);
            put16(bytes, field::CHECKSUM, value);
        }
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Gre<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GRE {}", self.protocol())?;
        if let Some(key) = self.key() {
            write!(f, " key {key}")?;
        }
        if let Some(sequence) = self.sequence() {
            write!(f, " seq {sequence}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    /// All three optional fields and two bytes of payload.
    const BYTES: [u8; 18] = [
        0xb0, 0x00, 0x08, 0x00, 0x38, 0x48, 0x00, 0x00, 0x00, 0x00, 0x04, 0xd2, 0x00, 0x00, 0x00,
        0x2a, 0x0a, 0xbb,
    ];

    #[test]
    fn reads_a_full_header() {
        let gre = Gre::new_checked(&BYTES[..]).unwrap();
        assert_eq!(gre.to_string(), "GRE IPv4 key 1234 seq 42");
        assert_eq!(gre.payload(), [0x0a, 0xbb]);
        assert_eq!((gre.header_len(), gre.checksum()), (16, Some(0x3848)));
        assert!(gre.verify());
    }

    #[test]
    fn fields_are_found_without_those_before_them() {
        let flags = |flags: u8| {
            let mut bytes = BYTES;
            bytes[0] = flags;
            let gre = Gre::new_checked(&bytes[..]).unwrap();
            (gre.header_len(), gre.key(), gre.sequence())
        };
        assert_eq!(flags(0x00), (4, None, None));
        assert_eq!(flags(0x10), (8, None, Some(0x3848_0000)));
        assert_eq!(flags(0x20), (8, Some(0x3848_0000), None));
        assert_eq!(flags(0x30), (12, Some(0x3848_0000), Some(1234)));
        assert_eq!(flags(0x90), (12, None, Some(1234)));
    }

    #[test]
    fn lengths_and_version_are_checked_once() {
        let reason = |at: usize, value: u8, len: usize| {
            let mut bytes = BYTES;
            bytes[at] = value;
            Gre::new_checked(&bytes[..len]).unwrap_err()
        };
        assert_eq!(reason(0, 0xb0, 3), Malformed::Truncated(Layer::Gre));
        assert_eq!(reason(0, 0xb0, 15), Malformed::Truncated(Layer::Gre));
        assert_eq!(reason(0, 0x40, 18), Malformed::Version(Layer::Gre)); // RFC 1701 routing
        assert_eq!(reason(1, 0x01, 18), Malformed::Version(Layer::Gre)); // PPTP
    }

    #[test]
    fn writes_headers() {
        let gre = Gre::new_checked(header(EtherType::IPV6)).unwrap();
        assert_eq!(gre.to_string(), "GRE IPv6");
        let mut bytes = header_with_key(EtherType::TRANSPARENT_ETHERNET, 9);
        let mut gre = Gre::new_checked(&mut bytes[..]).unwrap();
        assert!(gre.set_key(0x0012_3401));
        assert_eq!(gre.to_string(), "GRE 0x6558 key 1192961");
        assert!(gre.verify());
        gre.fill_checksum(); // has none
        assert_eq!(bytes[4..], [0x00, 0x12, 0x34, 0x01]);
        let mut plain = header(EtherType::IPV4);
        assert!(!Gre::new_checked(&mut plain[..]).unwrap().set_key(1));
    }

    proptest! {
        #[test]
        fn never_panics_and_filled_checksums_verify(mut bytes: Vec<u8>, flags in 0u8..16) {
            if let [first, second, ..] = &mut bytes[..] {
                (*first, *second) = (flags << 4 & 0xb0, 0);
            }
            if let Ok(mut gre) = Gre::new_checked(&mut bytes[..]) {
                let _ = (gre.payload(), gre.to_string());
                gre.fill_checksum();
                prop_assert!(gre.verify() || gre.0.iter().all(|b| *b == 0));
            }
        }
    }
}
