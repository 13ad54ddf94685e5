//! ICMP (RFC 792) and ICMPv6 (RFC 4443): type, code, echo fields and the checksum rule.
//!
//! The two share a layout and differ in the checksum: ICMPv6 covers the pseudo-header, ICMP does
//! not. Pass `pseudo` = 0 for ICMP.

use core::fmt;

use crate::{
    Layer, Malformed,
    bytes::{be16, put16},
    checksum,
};

/// Length in bytes of the header, the type-specific word included.
pub const HEADER_LEN: usize = 8;

mod field {
    pub(super) const KIND: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: usize = 2;
    pub(super) const ECHO_IDENT: usize = 4;
    pub(super) const ECHO_SEQ: usize = 6;
}

/// A message of at least [`HEADER_LEN`] bytes.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<T>(T);

impl<T: AsRef<[u8]>> Icmp<T> {
    /// Takes `bytes`, which end where the IP packet does, unless they are shorter than a header.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        match bytes.as_ref().len() {
            HEADER_LEN.. => Ok(Icmp(bytes)),
            _ => Err(Malformed::Truncated(Layer::Icmp)),
        }
    }

    /// The type field: what the message is, in ICMP or ICMPv6 numbers.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.0.as_ref()[field::KIND]
    }

    /// The code field.
    #[inline]
    pub fn code(&self) -> u8 {
        self.0.as_ref()[field::CODE]
    }

    /// Identifier of an echo request or reply.
    #[inline]
    pub fn echo_ident(&self) -> u16 {
        be16(self.0.as_ref(), field::ECHO_IDENT)
    }

    /// Sequence number of an echo request or reply.
    #[inline]
    pub fn echo_seq(&self) -> u16 {
        be16(self.0.as_ref(), field::ECHO_SEQ)
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }

    /// Whether the checksum verifies; `pseudo` is 0 for ICMP, the pseudo-header's sum for ICMPv6.
    #[inline]
    pub fn verify(&self, pseudo: u16) -> bool {
        checksum::add(pseudo, checksum::sum(self.0.as_ref())) == 0xffff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmp<T> {
    /// Sets the type field. The checksum is the caller's.
    #[inline]
    pub fn set_kind(&mut self, kind: u8) {
        self.0.as_mut()[field::KIND] = kind;
    }

    /// Computes and stores the checksum; `pseudo` is 0 for ICMP.
    #[inline]
    pub fn fill_checksum(&mut self, pseudo: u16) {
        let message = self.0.as_mut();
        put16(message, field::CHECKSUM, 0);
        let value = !checksum::add(pseudo, checksum::sum(message));
        put16(message, field::CHECKSUM, value);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Icmp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ICMP type {} code {}", self.kind(), self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    /// An echo request, identifier 0x1234, sequence 0xabcd.
    const ECHO: [u8; 12] = [
        0x08, 0x00, 0x8e, 0xfe, 0x12, 0x34, 0xab, 0xcd, 0xaa, 0x00, 0x00, 0xff,
    ];

    #[test]
    fn reads_an_echo_request() {
        let icmp = Icmp::new_checked(&ECHO[..]).unwrap();
        assert_eq!(icmp.to_string(), "ICMP type 8 code 0");
        assert_eq!((icmp.echo_ident(), icmp.echo_seq()), (0x1234, 0xabcd));
        assert_eq!(icmp.payload(), [0xaa, 0x00, 0x00, 0xff]);
        assert!(icmp.verify(0));
        assert_eq!(
            Icmp::new_checked(&ECHO[..7]).unwrap_err(),
            Malformed::Truncated(Layer::Icmp)
        );
    }

    proptest! {
        #[test]
        fn filled_checksums_agree_with_etherparse(payload: Vec<u8>, src: [u8; 16], dst: [u8; 16]) {
            let mut bytes = [&ECHO[..8], &payload].concat();
            let pseudo = checksum::pseudo_v6(src, dst, protocol::ICMPV6, bytes.len() as u32);
            let mut icmp = Icmp::new_checked(&mut bytes[..]).unwrap();
            icmp.set_kind(128);
            icmp.fill_checksum(pseudo);
            prop_assert!(icmp.verify(pseudo));
            let oracle = etherparse::Icmpv6Slice::from_slice(&bytes).unwrap();
            prop_assert!(oracle.is_checksum_valid(src, dst));
        }
    }
}
