//! IPv4 (RFC 791): header, options as bytes, checksum, fragments.

use core::{fmt, net::Ipv4Addr};

use crate::{
    Layer, Malformed,
    bytes::{array, be16, put16},
    checksum,
};

/// Length in bytes of a header without options.
pub const HEADER_LEN: usize = 20;

pub(crate) mod field {
    pub(crate) const VERSION_IHL: usize = 0;
    pub(crate) const TOS: usize = 1;
    pub(crate) const TOTAL_LEN: usize = 2;
    pub(crate) const IDENT: usize = 4;
    pub(crate) const FRAGMENT: usize = 6;
    pub(crate) const TTL: usize = 8;
    pub(crate) const PROTOCOL: usize = 9;
    pub(crate) const CHECKSUM: usize = 10;
    pub(crate) const SRC: usize = 12;
    pub(crate) const DST: usize = 16;
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// A packet whose header and total length lie within the bytes present.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<T>(T);

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Takes `bytes` (which may be longer: Ethernet pads) if version and lengths fit them:
    /// RFC 1812 5.2.2 (1), (3), (4), (5). The checksum, (2), is [`verify`](Self::verify)'s.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let ip = Self::new_header(bytes)?;
        if !(ip.header_len()..=ip.0.as_ref().len()).contains(&ip.total_len()) {
            return Err(Malformed::TotalLength(Layer::Ipv4));
        }
        Ok(ip)
    }

    /// Without a look at the total length: for a packet that was cut short on purpose, and must
    /// not be asked for its payload.
    #[inline]
    pub(crate) fn new_header(bytes: T) -> Result<Self, Malformed> {
        let present = bytes.as_ref().len();
        if present < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Ipv4));
        }
        let ip = Ipv4(bytes);
        if ip.0.as_ref()[field::VERSION_IHL] >> 4 != 4 {
            return Err(Malformed::Version(Layer::Ipv4));
        }
        if !(HEADER_LEN..=present).contains(&ip.header_len()) {
            return Err(Malformed::HeaderLength(Layer::Ipv4));
        }
        Ok(ip)
    }

    /// Length in bytes of the header with options, 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[field::VERSION_IHL] & 0x0f) * 4
    }

    /// DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.0.as_ref()[field::TOS]
    }

    /// Length in bytes of header and payload.
    #[inline]
    pub fn total_len(&self) -> usize {
        be16(self.0.as_ref(), field::TOTAL_LEN).into()
    }

    /// Identification, shared by the fragments of one datagram.
    #[inline]
    pub fn ident(&self) -> u16 {
        be16(self.0.as_ref(), field::IDENT)
    }

    /// Whether routers must not fragment it.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        be16(self.0.as_ref(), field::FRAGMENT) & DONT_FRAGMENT != 0
    }

    /// Whether fragments follow this one.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        be16(self.0.as_ref(), field::FRAGMENT) & MORE_FRAGMENTS != 0
    }

    /// Offset in bytes of the payload within the whole datagram; not 0 means no layer-4 header.
    #[inline]
    pub fn fragment_offset(&self) -> usize {
        usize::from(be16(self.0.as_ref(), field::FRAGMENT) & 0x1fff) * 8
    }

    /// Whether this is any fragment of a datagram, the first included.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(self.0.as_ref(), field::FRAGMENT) & (MORE_FRAGMENTS | 0x1fff) != 0
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.0.as_ref()[field::TTL]
    }

    /// Protocol of the payload: see [`protocol`](crate::protocol).
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0.as_ref()[field::PROTOCOL]
    }

    /// The header checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), field::CHECKSUM)
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        array::<4>(self.0.as_ref(), field::SRC).into()
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        array::<4>(self.0.as_ref(), field::DST).into()
    }

    /// The options, not parsed.
    #[inline]
    pub fn options(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..self.header_len()]
    }

    /// What follows the header, without padding beyond the total length.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[self.header_len()..self.total_len()]
    }

    /// Whether the header checksum verifies.
    #[inline]
    pub fn verify(&self) -> bool {
        checksum::verify(&self.0.as_ref()[..self.header_len()])
    }

    /// Sum of the pseudo-header for the whole payload as one layer-4 packet.
    #[inline]
    pub fn pseudo_sum(&self) -> u16 {
        let len = (self.total_len() - self.header_len()) as u16;
        checksum::pseudo_v4(
            self.src().octets(),
            self.dst().octets(),
            self.protocol(),
            len,
        )
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Sets the source address. Checksums are the caller's, see [`checksum::update32`].
    #[inline]
    pub fn set_src(&mut self, address: Ipv4Addr) {
        self.0.as_mut()[field::SRC..field::SRC + 4].copy_from_slice(&address.octets());
    }

    /// Sets the destination address. Checksums are the caller's, see [`checksum::update32`].
    #[inline]
    pub fn set_dst(&mut self, address: Ipv4Addr) {
        self.0.as_mut()[field::DST..field::DST + 4].copy_from_slice(&address.octets());
    }

    /// Takes one off the TTL and corrects the checksum (RFC 1624); false and unchanged where the
    /// TTL is 0 or 1, which is where RFC 1812 5.3.1 wants a Time Exceeded.
    #[inline]
    #[must_use = "false means that the packet must not be forwarded"]
    pub fn decrement_ttl(&mut self) -> bool {
        if self.ttl() <= 1 {
            return false;
        }
        let bytes = self.0.as_mut();
        let old = be16(bytes, field::TTL);
        let check = checksum::update16(be16(bytes, field::CHECKSUM), old, old - 0x0100);
        put16(bytes, field::TTL, old - 0x0100);
        put16(bytes, field::CHECKSUM, check);
        true
    }

    /// Computes and stores the header checksum.
    #[inline]
    pub fn fill_checksum(&mut self) {
        let len = self.header_len();
        let header = &mut self.0.as_mut()[..len];
        put16(header, field::CHECKSUM, 0);
        let value = checksum::checksum(header);
        put16(header, field::CHECKSUM, value);
    }
}

/// The bytes of a header without options, checksum included, for a payload of `payload_len` bytes.
///
/// The datagram is atomic: not to be fragmented, and its identification, 0, means nothing (RFC 6864
/// 4.1).
pub fn header(
    tos: u8,
    ttl: u8,
    protocol: u8,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    payload_len: u16,
) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    out[field::VERSION_IHL] = 0x45;
    out[field::TOS] = tos;
    put16(&mut out, field::TOTAL_LEN, HEADER_LEN as u16 + payload_len);
    put16(&mut out, field::FRAGMENT, DONT_FRAGMENT);
    out[field::TTL] = ttl;
    out[field::PROTOCOL] = protocol;
    out[field::SRC..field::DST].copy_from_slice(&src.octets());
    out[field::DST..].copy_from_slice(&dst.octets());
    let value = checksum::checksum(&out);
    put16(&mut out, field::CHECKSUM, value);
    out
}

impl<T: AsRef<[u8]>> fmt::Display for Ipv4<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (src, dst, protocol) = (self.src(), self.dst(), self.protocol());
        write!(
            f,
            "IPv4 {src} > {dst} proto {protocol} ttl {} len {}",
            self.ttl(),
            self.total_len()
        )?;
        if self.is_fragment() {
            let more = if self.more_fragments() { "+" } else { "" };
            write!(f, " frag {}:{}{more}", self.ident(), self.fragment_offset())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    /// 192.168.0.1 > 192.168.0.199, with two bytes of payload and two of padding.
    const BYTES: [u8; 24] = [
        0x45, 0x00, 0x00, 0x16, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0xbe, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7, 0xaa, 0xbb, 0x00, 0x00,
    ];

    #[test]
    fn reads_a_header_and_drops_padding() {
        let ip = Ipv4::new_checked(&BYTES[..]).unwrap();
        assert_eq!(
            ip.to_string(),
            "IPv4 192.168.0.1 > 192.168.0.199 proto 17 ttl 64 len 22"
        );
        assert_eq!(ip.payload(), [0xaa, 0xbb]);
        assert!(ip.verify() && ip.dont_fragment() && !ip.is_fragment());
    }

    #[test]
    fn writes_a_header() {
        let (src, dst) = (
            Ipv4Addr::new(192, 168, 0, 1),
            Ipv4Addr::new(192, 168, 0, 199),
        );
        assert_eq!(header(0, 64, 17, src, dst, 2)[..], BYTES[..HEADER_LEN]);
    }

    #[test]
    fn lengths_are_checked_once() {
        let reason = |at: usize, value: u8, len: usize| {
            let mut bytes = BYTES;
            bytes[at] = value;
            Ipv4::new_checked(&bytes[..len]).unwrap_err()
        };
        assert_eq!(reason(0, 0x45, 19), Malformed::Truncated(Layer::Ipv4));
        assert_eq!(reason(0, 0x65, 24), Malformed::Version(Layer::Ipv4));
        assert_eq!(reason(0, 0x44, 24), Malformed::HeaderLength(Layer::Ipv4));
        assert_eq!(reason(0, 0x47, 24), Malformed::HeaderLength(Layer::Ipv4));
        assert_eq!(reason(3, 25, 24), Malformed::TotalLength(Layer::Ipv4));
        assert_eq!(reason(3, 19, 24), Malformed::TotalLength(Layer::Ipv4));
    }

    #[test]
    fn fragments_are_seen() {
        let mut bytes = BYTES;
        bytes[6..8].copy_from_slice(&[0x20, 0xb9]);
        let ip = Ipv4::new_checked(&bytes[..]).unwrap();
        assert!(ip.is_fragment() && ip.more_fragments());
        assert!(ip.to_string().ends_with(" frag 0:1480+"));
    }

    #[test]
    fn the_ttl_stops_at_one() {
        let mut bytes = BYTES;
        let mut ip = Ipv4::new_checked(&mut bytes[..]).unwrap();
        for left in (1..64).rev() {
            assert!(ip.decrement_ttl());
            assert!(ip.verify() && ip.ttl() == left);
        }
        assert!(!ip.decrement_ttl());
        assert_eq!(ip.ttl(), 1);
    }

    proptest! {
        #[test]
        fn checksums_agree_with_etherparse(src: [u8; 4], dst: [u8; 4], ttl: u8,
            words in 0usize..=10) {
            let mut header = etherparse::Ipv4Header::new(8, ttl, etherparse::IpNumber::UDP, src,
                dst).unwrap();
            header.options = etherparse::Ipv4Options::try_from(&[1u8; 40][..words * 4]).unwrap();
            header.set_payload_len(8).unwrap();
            header.header_checksum = header.calc_header_checksum();
            let mut bytes = header.to_bytes().to_vec();
            bytes.extend([0; 8]);
            let expected = bytes.clone();
            let mut ip = Ipv4::new_checked(&mut bytes[..]).unwrap();
            prop_assert!(ip.verify());
            prop_assert_eq!(ip.options(), &[1u8; 40][..words * 4]);
            ip.fill_checksum();
            prop_assert_eq!(bytes, expected);
        }

        #[test]
        fn never_panics(mut bytes: Vec<u8>, shape in prop::bool::ANY) {
            if let (true, Some(first)) = (shape, bytes.first_mut()) {
                *first = 0x40 | *first & 0x0f;
            }
            if let Ok(mut ip) = Ipv4::new_checked(&mut bytes[..]) {
                let _ = (ip.payload().len(), ip.options().len(), ip.verify(), ip.to_string());
                let _ = (ip.pseudo_sum(), ip.decrement_ttl());
                ip.fill_checksum();
                prop_assert!(ip.verify());
            }
        }
    }
}
