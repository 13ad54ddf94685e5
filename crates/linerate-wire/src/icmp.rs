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

pub(crate) mod field {
    pub(super) const KIND: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(crate) const CHECKSUM: usize = 2;
    pub(super) const ECHO_IDENT: usize = 4;
    pub(super) const ECHO_SEQ: usize = 6;
}

/// Types of ICMP for IPv4 (RFC 792, RFC 950, RFC 1256).
#[allow(missing_docs)] // each constant is the message of that name
pub mod v4 {
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const SOURCE_QUENCH: u8 = 4;
    pub const REDIRECT: u8 = 5;
    pub const ECHO_REQUEST: u8 = 8;
    pub const ROUTER_ADVERTISEMENT: u8 = 9;
    pub const ROUTER_SOLICITATION: u8 = 10;
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;
    pub const MASK_REPLY: u8 = 18;

    /// Whether a type asks or answers: RFC 1122 3.2.2. All others, the unknown ones too, count as
    /// errors, which no error answers.
    pub const fn is_query(kind: u8) -> bool {
        // Echo, router discovery, and timestamp, information and mask with their replies.
        matches!(
            kind,
            ECHO_REPLY | ECHO_REQUEST | ROUTER_ADVERTISEMENT | ROUTER_SOLICITATION | 13
                ..=MASK_REPLY
        )
    }
}

/// Types of ICMPv6 (RFC 4443, RFC 4861); those below 128 are errors.
#[allow(missing_docs)] // each constant is the message of that name
pub mod v6 {
    pub const UNREACHABLE: u8 = 1;
    pub const PACKET_TOO_BIG: u8 = 2;
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO_REQUEST: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    pub const REDIRECT: u8 = 137;
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

    /// Sets the type field of a message whose checksum verifies, so that it still does (RFC 1624).
    #[inline]
    pub fn change_kind(&mut self, kind: u8) {
        let message = self.0.as_mut();
        let old = be16(message, field::KIND);
        message[field::KIND] = kind;
        let new = be16(message, field::KIND);
        let value = checksum::update16(be16(message, field::CHECKSUM), old, new);
        put16(message, field::CHECKSUM, value);
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

    #[test]
    fn rfc_1122_3_2_2_tells_queries_from_errors() {
        let queries: Vec<u8> = (0..=255).filter(|kind| v4::is_query(*kind)).collect();
        assert_eq!(queries, [0, 8, 9, 10, 13, 14, 15, 16, 17, 18]);
    }

    #[test]
    fn a_changed_kind_keeps_the_checksum_right() {
        let mut bytes = ECHO;
        let mut icmp = Icmp::new_checked(&mut bytes[..]).unwrap();
        icmp.change_kind(v4::ECHO_REPLY);
        assert!(icmp.verify(0));
        assert_eq!(bytes[..4], [0x00, 0x00, 0x96, 0xfe]);
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
