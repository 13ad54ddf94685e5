//! The key of a flow, in the order in which NICs hash it.

/// An IPv4 5-tuple as 16 bytes, all in network order: source and destination address, source and
/// destination port, protocol, three bytes for the user (a VRF, a zone), zero unless set.
///
/// The first 8 bytes are what RSS hashes for IPv4, the first 12 for TCP, UDP and SCTP over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FlowKey4(pub [u8; 16]);

/// An IPv6 5-tuple as 40 bytes, in the order of [`FlowKey4`]; RSS hashes the first 32 or 36.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FlowKey6(pub [u8; 40]);

impl FlowKey4 {
    /// The key of these fields, the user's bytes zero.
    #[inline]
    pub fn new(src: [u8; 4], dst: [u8; 4], src_port: u16, dst_port: u16, protocol: u8) -> Self {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&src);
        key[4..8].copy_from_slice(&dst);
        key[8..10].copy_from_slice(&src_port.to_be_bytes());
        key[10..12].copy_from_slice(&dst_port.to_be_bytes());
        key[12] = protocol;
        Self(key)
    }

    /// The same flow seen from the other side.
    #[inline]
    pub fn reversed(self) -> Self {
        let k = self.0;
        Self([
            k[4], k[5], k[6], k[7], k[0], k[1], k[2], k[3], k[10], k[11], k[8], k[9], k[12], k[13],
            k[14], k[15],
        ])
    }
}

impl FlowKey6 {
    /// The key of these fields, the user's bytes zero.
    #[inline]
    pub fn new(src: [u8; 16], dst: [u8; 16], src_port: u16, dst_port: u16, protocol: u8) -> Self {
        let mut key = [0; 40];
        key[..16].copy_from_slice(&src);
        key[16..32].copy_from_slice(&dst);
        key[32..34].copy_from_slice(&src_port.to_be_bytes());
        key[34..36].copy_from_slice(&dst_port.to_be_bytes());
        key[36] = protocol;
        Self(key)
    }

    /// The same flow seen from the other side.
    #[inline]
    pub fn reversed(self) -> Self {
        let (mut key, k) = (self.0, self.0);
        key[..16].copy_from_slice(&k[16..32]);
        key[16..32].copy_from_slice(&k[..16]);
        key[32..34].copy_from_slice(&k[34..36]);
        key[34..36].copy_from_slice(&k[32..34]);
        Self(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reversing_twice_is_the_same_flow() {
        let v4 = FlowKey4::new([1, 2, 3, 4], [5, 6, 7, 8], 0x090a, 0x0b0c, 6);
        let expected = [5, 6, 7, 8, 1, 2, 3, 4, 11, 12, 9, 10, 6, 0, 0, 0];
        assert_eq!((v4.reversed().0, v4.reversed().reversed()), (expected, v4));
        let v6 = FlowKey6::new([1; 16], [2; 16], 3, 4, 17);
        assert_eq!(v6.reversed(), FlowKey6::new([2; 16], [1; 16], 4, 3, 17));
    }
}
