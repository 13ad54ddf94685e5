//! Geneve (RFC 8926): any EtherType in a UDP datagram, with a network identifier and options.

use core::fmt;

use crate::{
    EtherType, Layer, Malformed,
    bytes::{be16, be32, put32},
};

/// The UDP destination port.
pub const PORT: u16 = 6081;

/// Length in bytes of a header without options.
pub const HEADER_LEN: usize = 8;

/// Length in bytes of an option's header.
pub const OPTION_HEADER_LEN: usize = 4;

mod field {
    pub(super) const VERSION_LEN: usize = 0;
    pub(super) const FLAGS: usize = 1;
    pub(super) const PROTOCOL: usize = 2;
    pub(super) const VNI: usize = 4;
}

const CONTROL: u8 = 0x80;
const CRITICAL: u8 = 0x40;

/// A header whose options lie within the bytes present, and what is behind it.
#[derive(Clone, Copy, Debug)]
pub struct Geneve<T>(T);

/// One option of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelOption<'a> {
    /// The class that defines the type (IANA "Geneve Option Class").
    pub class: u16,
    /// The type, its critical bit included.
    pub kind: u8,
    /// 0 to 124 bytes, a multiple of 4.
    pub data: &'a [u8],
}

/// The options of a header, each or why it cannot be: after a reason there is nothing more.
#[derive(Clone, Debug)]
pub struct TunnelOptions<'a>(&'a [u8]);

/// A header without options for network `vni`, of which the low 24 bits count.
pub const fn header(vni: u32, protocol: EtherType) -> [u8; HEADER_LEN] {
    let ([_, a, b, c], [p, q]) = (vni.to_be_bytes(), protocol.0.to_be_bytes());
    [0, 0, p, q, a, b, c, 0]
}

impl<T: AsRef<[u8]>> Geneve<T> {
    /// Takes `bytes`, the payload of a datagram to [`PORT`], if version and length fit them
    /// (RFC 8926 3.4).
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self, Malformed> {
        let present = bytes.as_ref().len();
        if present < HEADER_LEN {
            return Err(Malformed::Truncated(Layer::Geneve));
        }
        let geneve = Geneve(bytes);
        if geneve.0.as_ref()[field::VERSION_LEN] >> 6 != 0 {
            return Err(Malformed::Version(Layer::Geneve));
        }
        if geneve.header_len() > present {
            return Err(Malformed::HeaderLength(Layer::Geneve));
        }
        Ok(geneve)
    }

    /// Length in bytes of the header with options, 8 to 260.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + usize::from(self.0.as_ref()[field::VERSION_LEN] & 0x3f) * 4
    }

    /// Whether this is a control packet, for the tunnel's end and not for what is behind it.
    #[inline]
    pub fn is_control(&self) -> bool {
        self.0.as_ref()[field::FLAGS] & CONTROL != 0
    }

    /// Whether an option is among them that the tunnel's end must know or else drop the packet.
    #[inline]
    pub fn has_critical_options(&self) -> bool {
        self.0.as_ref()[field::FLAGS] & CRITICAL != 0
    }

    /// What is inside; [`EtherType::TRANSPARENT_ETHERNET`] for a frame.
    #[inline]
    pub fn protocol(&self) -> EtherType {
        EtherType(be16(self.0.as_ref(), field::PROTOCOL))
    }

    /// The network identifier, 24 bits.
    #[inline]
    pub fn vni(&self) -> u32 {
        be32(self.0.as_ref(), field::VNI) >> 8
    }

    /// The options, from the first.
    #[inline]
    pub fn options(&self) -> TunnelOptions<'_> {
        TunnelOptions(&self.0.as_ref()[HEADER_LEN..self.header_len()])
    }

    /// What follows the options.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[self.header_len()..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Geneve<T> {
    /// Sets the network identifier: the low 24 bits of `vni`.
    #[inline]
    pub fn set_vni(&mut self, vni: u32) {
        let bytes = self.0.as_mut();
        let reserved = be32(bytes, field::VNI) & 0xff;
        put32(bytes, field::VNI, vni << 8 | reserved);
    }
}

impl TunnelOption<'_> {
    /// Whether a tunnel's end that does not know the type must drop the packet.
    #[inline]
    pub fn is_critical(&self) -> bool {
        self.kind & 0x80 != 0
    }
}

impl<'a> Iterator for TunnelOptions<'a> {
    type Item = Result<TunnelOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = core::mem::take(&mut self.0);
        // Never a part of a header: the options' length is a multiple of four, and so is each.
        let header = bytes.first_chunk::<OPTION_HEADER_LEN>()?;
        let len = OPTION_HEADER_LEN + usize::from(header[3] & 0x1f) * 4;
        let Some((option, rest)) = bytes.split_at_checked(len) else {
            return Some(Err(Malformed::HeaderLength(Layer::Geneve)));
        };
        self.0 = rest;
        Some(Ok(TunnelOption {
            class: be16(header, 0),
            kind: header[2],
            data: &option[OPTION_HEADER_LEN..],
        }))
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Geneve<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Geneve vni {} {}", self.vni(), self.protocol())?;
        for option in self.options() {
            match option {
                Ok(TunnelOption { class, kind, data }) => {
                    write!(f, " option {class:#06x}:{kind:#04x}:{}", data.len())?
                }
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

    /// Two options, one critical with 4 bytes, one empty, and two bytes of payload.
    const BYTES: [u8; 22] = [
        0x03, 0x40, 0x65, 0x58, 0x00, 0x00, 0x0a, 0x00, 0x01, 0x02, 0x80, 0x01, 0xde, 0xad, 0xbe,
        0xef, 0x01, 0x04, 0x02, 0xe0, 0xaa, 0xbb,
    ];

    #[test]
    fn reads_a_header_and_its_options() {
        let geneve = Geneve::new_checked(&BYTES[..]).unwrap();
        assert_eq!(
            geneve.to_string(),
            "Geneve vni 10 0x6558 option 0x0102:0x80:4 option 0x0104:0x02:0"
        );
        assert!(geneve.has_critical_options() && !geneve.is_control());
        assert_eq!(geneve.protocol(), EtherType::TRANSPARENT_ETHERNET);
        assert_eq!(geneve.payload(), [0xaa, 0xbb]);
        let options: Vec<_> = geneve.options().map(Result::unwrap).collect();
        assert_eq!(options[0].data, [0xde, 0xad, 0xbe, 0xef]);
        assert!(options[0].is_critical() && !options[1].is_critical());
    }

    #[test]
    fn lengths_are_checked() {
        let reason = |at: usize, value: u8, len: usize| {
            let mut bytes = BYTES;
            bytes[at] = value;
            Geneve::new_checked(&bytes[..len]).unwrap_err()
        };
        assert_eq!(reason(0, 0, 7), Malformed::Truncated(Layer::Geneve));
        assert_eq!(reason(0, 0x43, 22), Malformed::Version(Layer::Geneve));
        assert_eq!(reason(0, 3, 19), Malformed::HeaderLength(Layer::Geneve));
        let mut bytes = BYTES;
        bytes[11] = 3; // the first option takes more than all
        let geneve = Geneve::new_checked(&bytes[..]).unwrap();
        let options: Vec<_> = geneve.options().collect();
        assert_eq!(options, [Err(Malformed::HeaderLength(Layer::Geneve))]);
    }

    #[test]
    fn writes_a_header() {
        let mut bytes = header(5, EtherType::IPV4);
        let mut geneve = Geneve::new_checked(&mut bytes[..]).unwrap();
        assert_eq!(geneve.to_string(), "Geneve vni 5 IPv4");
        geneve.set_vni(0x0100_0006);
        assert_eq!((geneve.vni(), bytes[7]), (6, 0));
    }

    proptest! {
        #[test]
        fn never_panics(mut bytes: Vec<u8>) {
            if let Some(first) = bytes.first_mut() {
                *first &= 0x3f;
            }
            if let Ok(geneve) = Geneve::new_checked(&bytes) {
                let _ = (geneve.payload(), geneve.to_string());
                prop_assert!(geneve.options().count() <= 63);
            }
        }
    }
}
