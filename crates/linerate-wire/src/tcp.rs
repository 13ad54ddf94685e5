//! TCP (RFC 9293): the header, not the protocol.

use core::fmt;

use crate::{
    Layer, Malformed,
    bytes::{be16, be32, put16, put32},
    checksum,
};

/// Length in bytes of a header without options.
pub const HEADER_LEN: usize = 20;

pub(crate) mod field {
    pub(crate) const SRC_PORT: usize = 0;
    pub(crate) const DST_PORT: usize = 2;
    pub(crate) const SEQ: usize = 4;
    pub(crate) const ACK: usize = 8;
    pub(crate) const DATA_OFFSET: usize = 12;
    pub(crate) const FLAGS: usize = 13;
    pub(crate) const WINDOW: usize = 14;
    pub(crate) const CHECKSUM: usize = 16;
}

/// Flag bits of byte 13 of the header (RFC 9293 3.1, RFC 3168).
#[allow(missing_docs)] // each constant is the flag of that name
pub mod flag {
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
    pub const ECE: u8 = 0x40;
    pub const CWR: u8 = 0x80;
}

/// A segment whose header, options included, lies within the bytes present.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<T>(T);

impl<T: AsRef<[u8]>> Tcp<T> {
    /// Takes `bytes`, which end where the IP packet does, if the data offset fits them.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let present = bytes.as_ref().len();
        if present < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Tcp));
        }
        let tcp = Tcp(bytes);
        if !(HEADER_LEN..=present).contains(&tcp.header_len()) {
            return Err(Malformed::HeaderLength(Layer::Tcp));
        }
        Ok(tcp)
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

    /// Sequence number of the first payload byte (of the SYN where it is set).
    #[inline]
    pub fn seq(&self) -> u32 {
        be32(self.0.as_ref(), field::SEQ)
    }

    /// Acknowledgment number.
    #[inline]
    pub fn ack(&self) -> u32 {
        be32(self.0.as_ref(), field::ACK)
    }

    /// Length in bytes of the header with options, 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[field::DATA_OFFSET] >> 4) * 4
    }

    /// The flags: bits of [`flag`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.0.as_ref()[field::FLAGS]
    }

    /// Window, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        be16(self.0.as_ref(), field::WINDOW)
    }

    /// The checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), field::CHECKSUM)
    }

    /// The options' bytes: [`options`] reads them.
    #[inline]
    pub fn options(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..self.header_len()]
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[self.header_len()..]
    }

    /// Whether the checksum verifies; `pseudo` is the pseudo-header's sum.
    #[inline]
    pub fn verify(&self, pseudo: u16) -> bool {
        checksum::add(pseudo, checksum::sum(self.0.as_ref())) == 0xffff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
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

    /// Sets the sequence number. The checksum is the caller's.
    #[inline]
    pub fn set_seq(&mut self, seq: u32) {
        put32(self.0.as_mut(), field::SEQ, seq);
    }

    /// Sets the flags. The checksum is the caller's.
    #[inline]
    pub fn set_flags(&mut self, flags: u8) {
        self.0.as_mut()[field::FLAGS] = flags;
    }

    /// Computes and stores the checksum; `pseudo` is the pseudo-header's sum.
    #[inline]
    pub fn fill_checksum(&mut self, pseudo: u16) {
        let segment = self.0.as_mut();
        put16(segment, field::CHECKSUM, 0);
        let value = !checksum::add(pseudo, checksum::sum(segment));
        put16(segment, field::CHECKSUM, value);
    }
}

/// An option of a header (RFC 9293 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// The longest segment that the sender takes, in bytes (RFC 9293 3.7.1).
    MaxSegment(u16),
    /// How far the sender's windows are shifted (RFC 7323 2.2), as sent: above 14 it means 14.
    WindowScale(u8),
    /// The sender takes [`Sack`](TcpOption::Sack) (RFC 2018 2).
    SackPermitted,
    /// Edges of blocks that have arrived, 8 bytes each: left, right (RFC 2018 3).
    Sack(&'a [u8]),
    /// The sender's clock, and the clock that it answers (RFC 7323 3.2).
    Timestamps(u32, u32),
    /// Another kind, or one of these with a length that is not its own: its kind and its value.
    Other(u8, &'a [u8]),
}

/// The options of a header, without padding. Ends at the end of the list, or where an option is
/// longer than what is left.
///
/// ```
/// use linerate_wire::tcp::{TcpOption, options};
/// let bytes = [2, 4, 5, 180, 1, 3, 3, 7];
/// let expected = [TcpOption::MaxSegment(1460), TcpOption::WindowScale(7)];
/// assert!(options(&bytes).eq(expected));
/// ```
pub fn options(bytes: &[u8]) -> impl Iterator<Item = TcpOption<'_>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        while let [1, after @ ..] = rest {
            rest = after; // RFC 9293 3.2: no operation
        }
        let [kind @ 2..=255, len @ 2..=255, ..] = *rest else {
            return None;
        };
        let (option, after) = rest.split_at_checked(usize::from(len))?;
        rest = after;
        let value = &option[2..];
        Some(match (kind, value.len()) {
            (2, 2) => TcpOption::MaxSegment(be16(value, 0)),
            (3, 1) => TcpOption::WindowScale(value[0]),
            (4, 0) => TcpOption::SackPermitted,
            (5, 8 | 16 | 24 | 32) => TcpOption::Sack(value),
            (8, 8) => TcpOption::Timestamps(be32(value, 0), be32(value, 4)),
            _ => TcpOption::Other(kind, value),
        })
    })
}

/// The bytes of a header without options: window, urgent pointer and checksum are zero, the last
/// one for [`Tcp::fill_checksum`].
pub fn header(src_port: u16, dst_port: u16, seq: u32, ack: u32, flags: u8) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    put16(&mut out, field::SRC_PORT, src_port);
    put16(&mut out, field::DST_PORT, dst_port);
    put32(&mut out, field::SEQ, seq);
    put32(&mut out, field::ACK, ack);
    out[field::DATA_OFFSET] = (HEADER_LEN as u8 / 4) << 4;
    out[field::FLAGS] = flags;
    out
}

impl<T: AsRef<[u8]>> fmt::Display for Tcp<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TCP {} > {} ", self.src_port(), self.dst_port())?;
        // tcpdump's letters.
        for (bit, letter) in [
            (flag::SYN, "S"),
            (flag::FIN, "F"),
            (flag::RST, "R"),
            (flag::PSH, "P"),
            (flag::ACK, "."),
        ] {
            if self.flags() & bit != 0 {
                f.write_str(letter)?;
            }
        }
        write!(f, " seq {} len {}", self.seq(), self.payload().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    /// 192.168.1.1:48896 > 192.168.1.2:80 with 4 bytes of options and 4 of payload.
    const BYTES: [u8; 28] = [
        0xbf, 0x00, 0x00, 0x50, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x60, 0x19, 0x01,
        0x23, 0x00, 0x00, 0x00, 0x00, 0x03, 0x03, 0x0c, 0x01, 0xaa, 0x00, 0x00, 0xff,
    ];

    #[test]
    fn reads_a_segment() {
        let tcp = Tcp::new_checked(&BYTES[..]).unwrap();
        assert_eq!(tcp.to_string(), "TCP 48896 > 80 FP. seq 19088743 len 4");
        assert_eq!(
            (tcp.ack(), tcp.window(), tcp.header_len()),
            (0x89ab_cdef, 0x0123, 24)
        );
        assert_eq!(tcp.options(), [3, 3, 12, 1]);
        assert_eq!(tcp.payload(), [0xaa, 0x00, 0x00, 0xff]);
    }

    #[test]
    fn reads_options_up_to_the_first_that_does_not_fit() {
        let read = |bytes: &[u8]| {
            options(bytes)
                .map(|o| std::format!("{o:?}"))
                .collect::<Vec<_>>()
        };
        let syn = [
            2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7,
        ];
        let expected = [
            "MaxSegment(1460)",
            "SackPermitted",
            "Timestamps(1, 2)",
            "WindowScale(7)",
        ];
        assert_eq!(read(&syn), expected);
        assert_eq!(read(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9]).len(), 1);
        // RFC 9293 3.2: an unknown kind has a length too; a kind with a wrong one is unknown.
        assert_eq!(
            read(&[254, 4, 1, 2, 3, 2]),
            ["Other(254, [1, 2])", "Other(3, [])"]
        );
        assert_eq!(read(&[0, 2, 4, 5, 0xb4]), [""; 0]); // the end of the list
        for broken in [&[2][..], &[2, 1, 1], &[2, 0], &[2, 4, 5], &[5, 255, 1]] {
            assert_eq!(read(broken), [""; 0]);
        }
    }

    #[test]
    fn writes_a_header() {
        let bytes = header(48896, 80, 0x0123_4567, 0x89ab_cdef, flag::FIN | flag::ACK);
        assert_eq!(bytes[..12], BYTES[..12]);
        assert_eq!(bytes[12..], [0x50, 0x11, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Tcp::new_checked(&bytes).unwrap().payload(), []);
    }

    #[test]
    fn lengths_are_checked_once() {
        assert_eq!(
            Tcp::new_checked(&BYTES[..19]).unwrap_err(),
            Malformed::Truncated(Layer::Tcp)
        );
        assert_eq!(
            Tcp::new_checked(&BYTES[..23]).unwrap_err(),
            Malformed::HeaderLength(Layer::Tcp)
        );
        let mut short = BYTES;
        short[12] = 0x4f;
        assert_eq!(
            Tcp::new_checked(&short[..]).unwrap_err(),
            Malformed::HeaderLength(Layer::Tcp)
        );
    }

    proptest! {
        #[test]
        fn filled_checksums_verify_here_and_by_etherparse(seq: u32, src: [u8; 4], dst: [u8; 4]) {
            let mut bytes = BYTES;
            let pseudo = checksum::pseudo_v4(src, dst, protocol::TCP, bytes.len() as u16);
            let mut tcp = Tcp::new_checked(&mut bytes[..]).unwrap();
            tcp.set_seq(seq);
            tcp.fill_checksum(pseudo);
            prop_assert!(tcp.verify(pseudo));
            let (oracle, payload) = etherparse::TcpHeader::from_slice(&bytes).unwrap();
            prop_assert_eq!(oracle.calc_checksum_ipv4_raw(src, dst, payload).unwrap(),
                oracle.checksum);
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            if let Ok(tcp) = Tcp::new_checked(&bytes) {
                let _ = (tcp.payload(), tcp.verify(0), tcp.to_string());
                let read: usize = options(tcp.options()).count();
                prop_assert!(read <= 20);
            }
        }
    }
}
