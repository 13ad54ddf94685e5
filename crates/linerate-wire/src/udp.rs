//! UDP (RFC 768).

use core::fmt;

use crate::{
    Layer, Malformed,
    bytes::{be16, put16},
    checksum,
};

/// Length in bytes of the header.
pub const HEADER_LEN: usize = 8;

pub(crate) mod field {
    pub(crate) const SRC_PORT: usize = 0;
    pub(crate) const DST_PORT: usize = 2;
    pub(crate) const LENGTH: usize = 4;
    pub(crate) const CHECKSUM: usize = 6;
}

/// A datagram whose length field lies within the header and the bytes present.
#[derive(Clone, Copy, Debug)]
pub struct Udp<T>(T);

impl<T: AsRef<[u8]>> Udp<T> {
    /// Takes `bytes` (which may be longer than the datagram) if the length field fits them.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let present = bytes.as_ref().len();
        if present < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Udp));
        }
        let udp = Udp(bytes);
        if !(HEADER_LEN..=present).contains(&udp.len()) {
            return Err(Malformed::TotalLength(Layer::Udp));
        }
        Ok(udp)
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

    /// Length in bytes of header and payload; at least [`HEADER_LEN`].
    #[inline]
    #[allow(clippy::len_without_is_empty)] // never empty: it counts the header
    pub fn len(&self) -> usize {
        be16(self.0.as_ref(), field::LENGTH).into()
    }

    /// The checksum field; zero means none (IPv4 only).
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), field::CHECKSUM)
    }

    /// What follows the header, up to the length field.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..self.len()]
    }

    /// Whether the checksum verifies; `pseudo` is the pseudo-header's sum. A zero field is "no
    /// checksum", which IPv4 allows and IPv6 does not (RFC 8200 8.1): the caller knows which.
    #[inline]
    pub fn verify(&self, pseudo: u16) -> bool {
        let datagram = &self.0.as_ref()[..self.len()];
        self.checksum() == 0 || checksum::add(pseudo, checksum::sum(datagram)) == 0xffff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
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

    /// Computes and stores the checksum; `pseudo` is the pseudo-header's sum.
    #[inline]
    pub fn fill_checksum(&mut self, pseudo: u16) {
        let len = self.len();
        let datagram = &mut self.0.as_mut()[..len];
        put16(datagram, field::CHECKSUM, 0);
        let value = checksum::nonzero(!checksum::add(pseudo, checksum::sum(datagram)));
        put16(datagram, field::CHECKSUM, value);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Udp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "UDP {} > {} len {}",
            self.src_port(),
            self.dst_port(),
            self.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    /// 192.168.1.1:48896 > 192.168.1.2:53, "\xaa\0\0\xff", and two bytes of padding.
    const BYTES: [u8; 14] = [
        0xbf, 0x00, 0x00, 0x35, 0x00, 0x0c, 0x12, 0x4d, 0xaa, 0x00, 0x00, 0xff, 0x00, 0x00,
    ];

    fn pseudo() -> u16 {
        checksum::pseudo_v4([192, 168, 1, 1], [192, 168, 1, 2], protocol::UDP, 12)
    }

    #[test]
    fn reads_a_datagram() {
        let udp = Udp::new_checked(&BYTES[..]).unwrap();
        assert_eq!(udp.to_string(), "UDP 48896 > 53 len 12");
        assert_eq!(udp.payload(), [0xaa, 0x00, 0x00, 0xff]);
        assert!(udp.verify(pseudo()));
    }

    #[test]
    fn lengths_are_checked_once() {
        assert_eq!(
            Udp::new_checked(&BYTES[..7]).unwrap_err(),
            Malformed::Truncated(Layer::Udp)
        );
        assert_eq!(
            Udp::new_checked(&BYTES[..11]).unwrap_err(),
            Malformed::TotalLength(Layer::Udp)
        );
        let mut short = BYTES;
        short[5] = 7;
        assert_eq!(
            Udp::new_checked(&short[..]).unwrap_err(),
            Malformed::TotalLength(Layer::Udp)
        );
    }

    #[test]
    fn a_computed_zero_is_sent_as_all_ones() {
        let mut bytes = [0, 0, 0, 0, 0, 8, 0, 0];
        let mut udp = Udp::new_checked(&mut bytes[..]).unwrap();
        udp.fill_checksum(0xfff7); // with the length it sums to all ones
        assert_eq!(udp.checksum(), 0xffff);
        assert!(udp.verify(0xfff7));
    }

    proptest! {
        #[test]
        fn filled_checksums_verify(mut payload: Vec<u8>, src: u16, dst: u16, pseudo in 1u16..) {
            let len = HEADER_LEN + payload.len();
            payload.splice(0..0, [0; HEADER_LEN]);
            put16(&mut payload, field::LENGTH, len as u16);
            let mut udp = Udp::new_checked(&mut payload[..]).unwrap();
            udp.set_src_port(src);
            udp.set_dst_port(dst);
            udp.fill_checksum(pseudo);
            prop_assert_ne!(udp.checksum(), 0);
            prop_assert!(udp.verify(pseudo));
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            if let Ok(udp) = Udp::new_checked(&bytes) {
                let _ = (udp.payload(), udp.verify(0), udp.to_string());
            }
        }
    }
}
