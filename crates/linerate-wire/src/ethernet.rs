//! Ethernet II frames: addresses, EtherType, and the rewrite that every forwarder does.

use core::{fmt, str::FromStr};

use crate::{
    Layer, Malformed,
    bytes::{array, be16, put16},
};

/// Length in bytes of an Ethernet header without tags.
pub const HEADER_LEN: usize = 14;
/// Bytes of the shortest frame, without FCS: shorter ones are padded (IEEE 802.3 4A.2.3.2.4).
pub const MIN_FRAME_LEN: usize = 60;

mod field {
    use core::ops::Range;
    pub(super) const DST: Range<usize> = 0..6;
    pub(super) const SRC: Range<usize> = 6..12;
    pub(super) const ETHERTYPE: usize = 12;
}

/// A 48-bit MAC address, in wire order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// The locally administered address 02:00:00:00:00:`n`, as DPDK's l2fwd writes it for port `n`.
    pub const fn local(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    /// Whether the group bit is set (broadcast included): IEEE 802 8.2.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether the address is locally administered.
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What is wrong with a MAC address in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMacAddr;

impl fmt::Display for BadMacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address is six pairs of hexadecimal digits, as in 02:00:00:00:00:01")
    }
}

impl core::error::Error for BadMacAddr {}

impl FromStr for MacAddr {
    type Err = BadMacAddr;

    /// Takes six groups of one or two hexadecimal digits, separated by `:` or `-` throughout.
    fn from_str(s: &str) -> Result<Self, BadMacAddr> {
        let separator = if s.contains('-') { '-' } else { ':' };
        let mut groups = s.split(separator);
        let mut mac = [0; 6];
        for byte in &mut mac {
            let group = groups.next().ok_or(BadMacAddr)?;
            // from_str_radix would take a sign.
            if !matches!(group.len(), 1 | 2) || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(BadMacAddr);
            }
            *byte = u8::from_str_radix(group, 16).map_err(|_| BadMacAddr)?;
        }
        if groups.next().is_some() {
            Err(BadMacAddr)
        } else {
            Ok(MacAddr(mac))
        }
    }
}

/// An EtherType, or an IEEE 802.3 length where it is below 0x0600.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EtherType(pub u16);

#[allow(missing_docs)] // each constant is the protocol of that name
impl EtherType {
    pub const IPV4: EtherType = EtherType(0x0800);
    pub const ARP: EtherType = EtherType(0x0806);
    pub const RARP: EtherType = EtherType(0x8035);
    /// A whole frame, inside a tunnel (RFC 1701, RFC 8926).
    pub const TRANSPARENT_ETHERNET: EtherType = EtherType(0x6558);
    pub const MPLS: EtherType = EtherType(0x8847);
    /// MPLS whose label the receiver did not give out (RFC 5332): once of multicast only.
    pub const MPLS_UPSTREAM: EtherType = EtherType(0x8848);
    /// 802.1Q customer tag.
    pub const VLAN: EtherType = EtherType(0x8100);
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// 802.1ad service tag.
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);
    /// The pre-standard outer tag.
    pub const OLD_VLAN: EtherType = EtherType(0x9100);

    /// Whether a VLAN tag follows, of any of the three kinds.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN | Self::OLD_VLAN)
    }

    /// Whether this is a length (IEEE 802.3 with LLC) and not a type.
    #[inline]
    pub const fn is_length(self) -> bool {
        self.0 < 0x0600
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("IPv4"),
            Self::ARP => f.write_str("ARP"),
            Self::IPV6 => f.write_str("IPv6"),
            Self::MPLS => f.write_str("MPLS"),
            Self::VLAN => f.write_str("802.1Q"),
            Self::SERVICE_VLAN => f.write_str("802.1ad"),
            EtherType(other) => write!(f, "0x{other:04x}"),
        }
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtherType(0x{:04x})", self.0)
    }
}

/// A frame of at least [`HEADER_LEN`] bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<T>(T);

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// Takes `frame` unless it is shorter than a header.
    #[inline]
    pub fn new_checked(frame: T) -> Result<Self, Malformed> {
        match frame.as_ref().len() {
            HEADER_LEN.. => Ok(Ethernet(frame)),
            _ => Err(Malformed::Truncated(Layer::Ethernet)),
        }
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> MacAddr {
        MacAddr(array(self.0.as_ref(), field::DST.start))
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> MacAddr {
        MacAddr(array(self.0.as_ref(), field::SRC.start))
    }

    /// The type field right after the addresses: a tag's where the frame is tagged.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.0.as_ref(), field::ETHERTYPE))
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ethernet<T> {
    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, mac: MacAddr) {
        self.0.as_mut()[field::DST].copy_from_slice(&mac.0);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, mac: MacAddr) {
        self.0.as_mut()[field::SRC].copy_from_slice(&mac.0);
    }

    /// Sets the type field.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        put16(self.0.as_mut(), field::ETHERTYPE, ethertype.0);
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Ethernet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} {}", self.src(), self.dst(), self.ethertype())
    }
}

/// The bytes of a header without tags.
pub fn header(dst: MacAddr, src: MacAddr, ethertype: EtherType) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    out[field::DST].copy_from_slice(&dst.0);
    out[field::SRC].copy_from_slice(&src.0);
    put16(&mut out, field::ETHERTYPE, ethertype.0);
    out
}

/// Rewrites both addresses; false (and nothing written) where the frame is shorter than they are.
#[inline(always)]
#[must_use = "false means that the frame was too short and is unchanged"]
pub fn set_macs(frame: &mut [u8], dst: MacAddr, src: MacAddr) -> bool {
    let Some(header) = frame.first_chunk_mut::<12>() else {
        return false;
    };
    // One 8-byte and one 4-byte store; twelve single bytes otherwise (rustc 1.95).
    let wide = |[a, b, c, d, e, f]: [u8; 6]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    let (dst, src) = (wide(dst.0), wide(src.0));
    header[..8].copy_from_slice(&(dst | src << 48).to_le_bytes());
    header[8..].copy_from_slice(&((src >> 16) as u32).to_le_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    const FRAME: [u8; 16] = [
        0x02, 0, 0, 0, 0, 0x01, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x08, 0x00, 0xaa, 0xbb,
    ];

    #[test]
    fn reads_and_writes_a_header() {
        let mut bytes = FRAME;
        let mut frame = Ethernet::new_checked(&mut bytes[..]).unwrap();
        assert_eq!(frame.dst(), MacAddr::local(1));
        assert_eq!(
            frame.to_string(),
            "52:54:00:12:34:56 > 02:00:00:00:00:01 IPv4"
        );
        assert_eq!(frame.payload(), [0xaa, 0xbb]);
        frame.set_dst(MacAddr::BROADCAST);
        frame.set_src(MacAddr::local(2));
        frame.set_ethertype(EtherType::ARP);
        assert_eq!(
            frame.to_string(),
            "02:00:00:00:00:02 > ff:ff:ff:ff:ff:ff ARP"
        );
    }

    #[test]
    fn writes_what_it_reads() {
        let frame = Ethernet::new_checked(&FRAME[..]).unwrap();
        let written = header(frame.dst(), frame.src(), frame.ethertype());
        assert_eq!(written[..], FRAME[..HEADER_LEN]);
    }

    #[test]
    fn a_short_frame_has_no_header() {
        let reason = Ethernet::new_checked(&FRAME[..13]).unwrap_err();
        assert_eq!(
            reason.to_string(),
            "the frame ends inside its Ethernet header"
        );
    }

    #[test]
    fn set_macs_writes_twelve_bytes_or_none() {
        let mut bytes = FRAME;
        assert!(set_macs(&mut bytes, MacAddr::local(7), MacAddr::local(8)));
        assert_eq!(bytes[..12], [2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 0, 8]);
        assert_eq!(bytes[12..], FRAME[12..]);
        let mut short = [1; 11];
        assert!(!set_macs(&mut short, MacAddr::local(7), MacAddr::local(8)));
        assert_eq!(short, [1; 11]);
    }

    #[test]
    fn mac_addresses_in_text() {
        assert_eq!(
            "52-54-00-12-34-56".parse(),
            Ok(MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x56]))
        );
        assert_eq!("2:0:0:0:0:f".parse(), Ok(MacAddr::local(15)));
        for bad in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "02:00:00:00:00:0g",
            "+2:0:0:0:0:1",
            "002:0:0:0:0:1",
            "02:00:00-00:00:01",
        ] {
            assert_eq!(bad.parse::<MacAddr>(), Err(BadMacAddr), "{bad}");
        }
        assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::local(0).is_local());
    }

    proptest! {
        #[test]
        fn text_round_trips(mac: [u8; 6]) {
            prop_assert_eq!(MacAddr(mac).to_string().parse(), Ok(MacAddr(mac)));
        }
    }
}
