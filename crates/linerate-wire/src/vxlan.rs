//! VXLAN (RFC 7348): an Ethernet frame in a UDP datagram, under a 24-bit network identifier.

use core::fmt;

use crate::{
    Layer, Malformed,
    bytes::{be32, put32},
};

/// The UDP destination port.
pub const PORT: u16 = 4789;

/// Length in bytes of the header.
pub const HEADER_LEN: usize = 8;

mod field {
    pub(super) const FLAGS: usize = 0;
    pub(super) const VNI: usize = 4;
}

/// The I flag: the network identifier is valid. All others are reserved, and ignored.
const VALID_VNI: u8 = 0x08;

/// A header that says which network it is of, and the frame behind it.
#[derive(Clone, Copy, Debug)]
pub struct Vxlan<T>(T);

/// A header for network `vni`, of which the low 24 bits count.
pub const fn header(vni: u32) -> [u8; HEADER_LEN] {
    let [_, a, b, c] = vni.to_be_bytes();
    [VALID_VNI, 0, 0, 0, a, b, c, 0]
}

impl<T: AsRef<[u8]>> Vxlan<T> {
    /// Takes `bytes`, the payload of a datagram to [`PORT`], if they hold a header that has a
    /// network identifier (RFC 7348 5).
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let b = bytes.as_ref();
        if b.len() < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Vxlan));
        }
        if b[field::FLAGS] & VALID_VNI == 0 {
            return Err(Malformed::Version(Layer::Vxlan));
        }
        Ok(Vxlan(bytes))
    }

    /// The network identifier, 24 bits.
    #[inline]
    pub fn vni(&self) -> u32 {
        be32(self.0.as_ref(), field::VNI) >> 8
    }

    /// The frame inside, without frame check sequence.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Vxlan<T> {
    /// Sets the network identifier: the low 24 bits of `vni`.
    #[inline]
    pub fn set_vni(&mut self, vni: u32) {
        let bytes = self.0.as_mut();
        let reserved = be32(bytes, field::VNI) & 0xff;
        put32(bytes, field::VNI, vni << 8 | reserved);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Vxlan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VXLAN vni {}", self.vni())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    const BYTES: [u8; 10] = [0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0x9a, 0xaa, 0xbb];

    #[test]
    fn reads_and_writes_a_header() {
        let mut bytes = BYTES;
        let mut vxlan = Vxlan::new_checked(&mut bytes[..]).unwrap();
        assert_eq!(vxlan.to_string(), "VXLAN vni 1193046");
        assert_eq!(vxlan.payload(), [0xaa, 0xbb]);
        vxlan.set_vni(0xff00_0007);
        assert_eq!(vxlan.vni(), 7);
        assert_eq!(bytes[4..8], [0, 0, 7, 0x9a]);
        assert_eq!(header(0x0012_3456)[..7], BYTES[..7]);
    }

    #[test]
    fn a_header_without_vni_flag_or_whole_length_is_malformed() {
        let mut bytes = BYTES;
        bytes[0] = 0xf7;
        assert_eq!(
            Vxlan::new_checked(&bytes[..]).unwrap_err(),
            Malformed::Version(Layer::Vxlan)
        );
        assert_eq!(
            Vxlan::new_checked(&BYTES[..7]).unwrap_err(),
            Malformed::Truncated(Layer::Vxlan)
        );
        bytes[0] = 0xff; // reserved flags are ignored
        assert!(Vxlan::new_checked(&bytes[..]).is_ok());
    }

    proptest! {
        #[test]
        fn headers_round_trip(vni in 0u32..1 << 24) {
            prop_assert_eq!(Vxlan::new_checked(header(vni)).unwrap().vni(), vni);
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            if let Ok(vxlan) = Vxlan::new_checked(&bytes) {
                let _ = (vxlan.payload(), vxlan.to_string());
            }
        }
    }
}
