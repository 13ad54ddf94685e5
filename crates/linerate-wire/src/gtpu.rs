//! GTP-U version 1 (3GPP TS 29.281): a user's packet in a UDP datagram, under a tunnel endpoint
//! identifier (TEID), perhaps with extension headers.

use core::fmt;

use crate::{
    EtherType, Layer, Malformed,
    bytes::{be16, be32, put32},
    mpls,
};

/// The UDP destination port.
pub const PORT: u16 = 2152;

/// Length in bytes of the part that is always there.
pub const HEADER_LEN: usize = 8;

/// Length in bytes of sequence number, N-PDU number and next extension type: all there as soon as
/// one of them means something.
pub const OPTIONAL_LEN: usize = 4;

/// Extension headers walked before a message is refused.
pub const MAX_EXTENSIONS: usize = 8;

mod field {
    pub(super) const FLAGS: usize = 0;
    pub(super) const MESSAGE: usize = 1;
    pub(super) const LENGTH: usize = 2;
    pub(super) const TEID: usize = 4;
    pub(super) const SEQUENCE: usize = 8;
    pub(super) const N_PDU: usize = 10;
    pub(super) const NEXT_EXTENSION: usize = 11;
}

/// Version 1, protocol type GTP (not GTP').
const VERSION_TYPE: u8 = 0x30;
const EXTENSION: u8 = 0x04;
const SEQUENCE: u8 = 0x02;
const N_PDU: u8 = 0x01;

/// Message types (TS 29.281 6.1).
#[allow(missing_docs)] // each constant is the message of that name
pub mod message {
    pub const ECHO_REQUEST: u8 = 1;
    pub const ECHO_RESPONSE: u8 = 2;
    pub const ERROR_INDICATION: u8 = 26;
    pub const SUPPORTED_EXTENSIONS: u8 = 31;
    pub const END_MARKER: u8 = 254;
    /// The one that carries a user's packet.
    pub const G_PDU: u8 = 255;
}

/// Extension header type: the QoS flow of a 5G session (TS 38.415).
pub const PDU_SESSION_CONTAINER: u8 = 0x85;

/// A message whose length and extension headers fit the bytes present.
#[derive(Clone, Copy, Debug)]
pub struct Gtpu<T> {
    bytes: T,
    header_len: usize,
}

/// One extension header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its type.
    pub kind: u8,
    /// Its content, 2 to 1018 bytes.
    pub content: &'a [u8],
}

/// The extension headers of a message, each or why it cannot be.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    kind: u8,
    rest: &'a [u8],
}

/// The header of a G-PDU without optional fields, for a packet of `payload_len` bytes.
pub const fn header(teid: u32, payload_len: u16) -> [u8; HEADER_LEN] {
    let ([m, n], [a, b, c, d]) = (payload_len.to_be_bytes(), teid.to_be_bytes());
    [VERSION_TYPE, message::G_PDU, m, n, a, b, c, d]
}

impl<T: AsRef<[u8]>> Gtpu<T> {
    /// Takes `bytes`, the payload of a datagram to [`PORT`], if version, length and at most
    /// [`MAX_EXTENSIONS`] extension headers fit them.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        if b.len() < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Gtpu));
        }
        let flags = b[field::FLAGS];
        if flags & 0xf0 != VERSION_TYPE {
            return Err(Malformed::Version(Layer::Gtpu));
        }
        let mut gtpu = Gtpu {
            bytes,
            header_len: HEADER_LEN,
        };
        if gtpu.len() > gtpu.bytes.as_ref().len() {
            return Err(Malformed::TotalLength(Layer::Gtpu));
        }
        // TS 29.281 5.1: one flag, and all three fields are there.
        if flags & (EXTENSION | SEQUENCE | N_PDU) != 0 {
            gtpu.header_len += OPTIONAL_LEN;
            if gtpu.header_len > gtpu.len() {
                return Err(Malformed::TotalLength(Layer::Gtpu));
            }
            let mut extensions = gtpu.extensions();
            for (before, extension) in extensions.by_ref().enumerate() {
                extension?;
                if before == MAX_EXTENSIONS {
                    return Err(Malformed::TooDeep(Layer::Gtpu));
                }
            }
            gtpu.header_len = gtpu.len() - extensions.rest.len();
        }
        Ok(gtpu)
    }

    /// Length in bytes of the message: header and payload; at least [`HEADER_LEN`].
    #[inline]
    #[allow(clippy::len_without_is_empty)] // never empty: it counts the header
    pub fn len(&self) -> usize {
        HEADER_LEN + usize::from(be16(self.bytes.as_ref(), field::LENGTH))
    }

    /// Length in bytes of the header with optional fields and extension headers.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.header_len
    }

    #[inline]
    fn flags(&self) -> u8 {
        self.bytes.as_ref()[field::FLAGS]
    }

    /// Message type: see [`message`].
    #[inline]
    pub fn message(&self) -> u8 {
        self.bytes.as_ref()[field::MESSAGE]
    }

    /// Tunnel endpoint identifier, as the receiver gave it out.
    #[inline]
    pub fn teid(&self) -> u32 {
        be32(self.bytes.as_ref(), field::TEID)
    }

    /// Sequence number, where there is one.
    #[inline]
    pub fn sequence(&self) -> Option<u16> {
        (self.flags() & SEQUENCE != 0).then(|| be16(self.bytes.as_ref(), field::SEQUENCE))
    }

    /// N-PDU number, where there is one.
    #[inline]
    pub fn n_pdu(&self) -> Option<u8> {
        (self.flags() & N_PDU != 0).then(|| self.bytes.as_ref()[field::N_PDU])
    }

    /// The extension headers, from the first. None of them is an error: they have been checked.
    #[inline]
    pub fn extensions(&self) -> Extensions<'_> {
        let bytes = &self.bytes.as_ref()[..self.len()];
        let kind = match self.flags() & EXTENSION {
            0 => 0,
            _ => bytes[field::NEXT_EXTENSION],
        };
        // No optional fields, no rest.
        let rest = bytes.get(HEADER_LEN + OPTIONAL_LEN..).unwrap_or_default();
        Extensions { kind, rest }
    }

    /// What follows the headers, up to the length field: of a G-PDU the user's packet (T-PDU).
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.header_len..self.len()]
    }

    /// What the payload is: IPv4 or IPv6 by its first nibble, since the header does not contain it.
    /// `None` for the unknown (a 5G session may carry Ethernet) and where it is no G-PDU.
    #[inline]
    pub fn payload_type(&self) -> Option<EtherType> {
        match self.message() {
            message::G_PDU => mpls::ip_version(self.payload()),
            _ => None,
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Gtpu<T> {
    /// Sets the tunnel endpoint identifier.
    #[inline]
    pub fn set_teid(&mut self, teid: u32) {
        put32(self.bytes.as_mut(), field::TEID, teid);
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let kind = core::mem::take(&mut self.kind);
        if kind == 0 {
            return None;
        }
        // TS 29.281 5.2.1: length in four bytes, itself and the next type included; never zero.
        let len = self.rest.first().map_or(0, |len| usize::from(*len) * 4);
        if len == 0 || len > self.rest.len() {
            return Some(Err(Malformed::HeaderLength(Layer::Gtpu)));
        }
        let (extension, rest) = self.rest.split_at(len);
        (self.kind, self.rest) = (extension[len - 1], rest);
        Some(Ok(Extension {
            kind,
            content: &extension[1..len - 1],
        }))
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Gtpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, teid) = (self.message(), self.teid());
        write!(f, "GTP-U message {message} teid {teid:#010x}")?;
        if let Some(sequence) = self.sequence() {
            write!(f, " seq {sequence}")?;
        }
        for extension in self.extensions().flatten() {
            write!(f, " extension {:#04x}", extension.kind)?;
        }
        write!(f, " len {}", self.payload().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    /// A G-PDU with a sequence number and a PDU session container (uplink, QoS flow 9); the
    /// payload is the first two bytes of an IPv4 header, and two bytes are beyond the message.
    const BYTES: [u8; 20] = [
        0x36, 0xff, 0x00, 0x0a, 0x00, 0x00, 0x12, 0x34, 0x00, 0x2a, 0x00, 0x85, 0x01, 0x10, 0x09,
        0x00, 0x45, 0x00, 0xee, 0xee,
    ];

    #[test]
    fn reads_a_message_with_an_extension() {
        let gtpu = Gtpu::new_checked(&BYTES[..]).unwrap();
        assert_eq!(
            gtpu.to_string(),
            "GTP-U message 255 teid 0x00001234 seq 42 extension 0x85 len 2"
        );
        let session = Extension {
            kind: PDU_SESSION_CONTAINER,
            content: &[0x10, 0x09],
        };
        assert!(gtpu.extensions().eq([Ok(session)]));
        assert_eq!((gtpu.header_len(), gtpu.payload()), (16, &[0x45, 0x00][..]));
        assert_eq!(gtpu.payload_type(), Some(EtherType::IPV4));
        assert_eq!((gtpu.sequence(), gtpu.n_pdu()), (Some(42), None));
    }

    #[test]
    fn unused_optional_fields_are_not_evaluated() {
        let mut bytes = BYTES;
        bytes[0] = 0x31; // only the N-PDU number
        let gtpu = Gtpu::new_checked(&bytes[..]).unwrap();
        assert_eq!((gtpu.sequence(), gtpu.n_pdu()), (None, Some(0)));
        assert_eq!((gtpu.header_len(), gtpu.extensions().count()), (12, 0));
        bytes[0] = 0x30; // none
        let gtpu = Gtpu::new_checked(&bytes[..]).unwrap();
        assert_eq!((gtpu.header_len(), gtpu.extensions().count()), (8, 0));
    }

    #[test]
    fn lengths_are_checked_once() {
        let reason = |at: usize, value: u8, len: usize| {
            let mut bytes = BYTES;
            bytes[at] = value;
            Gtpu::new_checked(&bytes[..len]).unwrap_err()
        };
        assert_eq!(reason(0, 0x30, 7), Malformed::Truncated(Layer::Gtpu));
        assert_eq!(reason(0, 0x56, 20), Malformed::Version(Layer::Gtpu));
        assert_eq!(reason(0, 0x26, 20), Malformed::Version(Layer::Gtpu)); // GTP'
        assert_eq!(reason(3, 13, 20), Malformed::TotalLength(Layer::Gtpu));
        assert_eq!(reason(3, 3, 20), Malformed::TotalLength(Layer::Gtpu));
        assert_eq!(reason(12, 0, 20), Malformed::HeaderLength(Layer::Gtpu));
        assert_eq!(reason(12, 2, 20), Malformed::HeaderLength(Layer::Gtpu));
        assert_eq!(reason(3, 4, 20), Malformed::HeaderLength(Layer::Gtpu));
    }

    #[test]
    fn endless_extensions_are_refused() {
        let chain = |count: u8| {
            let mut bytes = BYTES[..12].to_vec();
            bytes[3] = 4 + 4 * count;
            for left in (0..count).rev() {
                bytes.extend([1, 0, 0, if left == 0 { 0 } else { 0x85 }]);
            }
            Gtpu::new_checked(bytes).map(|gtpu| gtpu.header_len())
        };
        assert_eq!(chain(8), Ok(44));
        assert_eq!(chain(9), Err(Malformed::TooDeep(Layer::Gtpu)));
    }

    #[test]
    fn writes_a_header() {
        let mut bytes = [&header(7, 1)[..], &[0x60]].concat();
        let mut gtpu = Gtpu::new_checked(&mut bytes[..]).unwrap();
        gtpu.set_teid(0xdead_beef);
        assert_eq!(gtpu.to_string(), "GTP-U message 255 teid 0xdeadbeef len 1");
        assert_eq!(gtpu.payload_type(), Some(EtherType::IPV6));
        bytes[1] = message::END_MARKER;
        assert_eq!(Gtpu::new_checked(&bytes).unwrap().payload_type(), None);
    }

    proptest! {
        #[test]
        fn never_panics(flags in 0u8..8, len in 0u8..60,
            tail in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..60)) {
            let bytes = [&[0x30 | flags, 0xff, 0, len][..], &tail].concat();
            if let Ok(gtpu) = Gtpu::new_checked(&bytes) {
                let _ = (gtpu.payload_type(), gtpu.to_string());
                prop_assert_eq!(gtpu.header_len() + gtpu.payload().len(), gtpu.len());
                prop_assert!(gtpu.extensions().all(|extension| extension.is_ok()));
                let extensions: usize = gtpu.extensions().flatten().map(|e| e.content.len(
                    ) + 2).sum();
                let optional = if flags == 0 { 0 } else { OPTIONAL_LEN };
                prop_assert_eq!(gtpu.header_len(), HEADER_LEN + optional + extensions);
            }
        }
    }
}
