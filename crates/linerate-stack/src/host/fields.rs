//! What all IP headers of a connection have in common beside its addresses: Diffserv field, time to
//! live, flow label.

use linerate_wire::protocol;

use super::Ends;

/// The time to live, or hop limit, that is sent where nobody says otherwise (as Linux).
pub const DEFAULT_TTL: u8 = crate::icmp::TTL;
/// The lower two bits of the octet that has the Diffserv field are those of ECN (RFC 3168 5).
const DSCP_SHIFT: u32 = 2;
/// The largest codepoint (RFC 2474 3: 6 bits).
pub const MAX_DSCP: u8 = 63;

/// Words of IP headers, as far as they are the same for all segments of a TCP connection: so what a
/// connection has set costs its segments nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpFields {
    /// The first one. IPv4: version, header length and type of service, and a total length of 0
    /// (RFC 791 3.1). IPv6: version, traffic class, flow label (RFC 8200 3).
    pub(super) first: u32,
    /// The third one of IPv4, its checksum 0: time to live and protocol. Also of IPv6. Bit 0, which
    /// is none of these: see [`CUT`].
    pub(super) life: u32,
}

/// In [`IpFields::life`]: routers may cut what goes (RFC 791 3.2).
const CUT: u32 = 1;

impl IpFields {
    /// Those of IPv4, with a [codepoint](MAX_DSCP) and a time to live of at least 1.
    #[inline]
    pub(crate) const fn v4(dscp: u8, ttl: u8) -> Self {
        let class = ((dscp & MAX_DSCP) as u32) << DSCP_SHIFT;
        Self {
            first: 0x4500_0000 | class << 16,
            life: life(ttl),
        }
    }

    /// Those of IPv6.
    #[inline]
    pub(crate) const fn v6(dscp: u8, hop_limit: u8, flow_label: u32) -> Self {
        let class = ((dscp & MAX_DSCP) as u32) << DSCP_SHIFT;
        Self {
            first: 6 << 28 | class << 20 | flow_label & 0x000f_ffff,
            life: life(hop_limit),
        }
    }

    const fn is_v6(self) -> bool {
        self.first >> 28 == 6
    }

    /// The codepoint (RFC 2474 3).
    pub(crate) const fn dscp(self) -> u8 {
        self.tos() >> DSCP_SHIFT
    }

    /// The octet that has it, without ECN.
    #[inline]
    pub(crate) const fn tos(self) -> u8 {
        match self.is_v6() {
            true => (self.first >> 20) as u8,
            false => (self.first >> 16) as u8,
        }
    }

    /// The time to live, or hop limit.
    #[inline]
    pub(crate) const fn ttl(self) -> u8 {
        (self.life >> 24) as u8
    }

    /// The flow label; 0 over IPv4.
    #[inline]
    pub(crate) const fn flow_label(self) -> u32 {
        match self.is_v6() {
            true => self.first & 0x000f_ffff,
            false => 0,
        }
    }

    /// Whether routers may cut packets: then they have no [words](Self::words) in common.
    #[inline(always)]
    pub(crate) const fn may_be_cut(self) -> bool {
        self.life & CUT != 0
    }

    /// The same, and routers may: on an IPv4 path that takes less than is believed of one.
    pub(crate) const fn cut(self) -> Self {
        Self {
            life: self.life | CUT,
            ..self
        }
    }

    /// The same with another codepoint.
    pub(crate) const fn with_dscp(self, dscp: u8) -> Self {
        let other = match self.is_v6() {
            true => Self::v6(dscp, self.ttl(), self.flow_label()),
            false => Self::v4(dscp, self.ttl()),
        };
        Self {
            life: self.life,
            ..other
        }
    }

    /// The same with another time to live, of at least 1.
    pub(crate) const fn with_ttl(self, ttl: u8) -> Self {
        Self {
            life: life(ttl) | self.life & CUT,
            ..self
        }
    }

    /// The words of an IPv4 header of `total` bytes, of what is not to be [cut](Self::cut), with
    /// the bits of ECN `ecn`.
    #[inline(always)]
    pub(super) fn words(self, total: u32, ecn: u8, (src, dst): (u32, u32)) -> [u32; 5] {
        const DONT_FRAGMENT: u32 = 0x4000;
        // RFC 791 3.1; the identification of what is not to be fragmented is 0 (RFC 6864 4.1).
        let first = self.first | u32::from(ecn) << 16 | total;
        let mut words = [first, DONT_FRAGMENT, self.life, src, dst];
        // RFC 1071 2 (C): words of any width add up to the same.
        let sum = words.iter().map(|&word| u64::from(word)).sum();
        words[2] = self.life | u32::from(!linerate_wire::checksum::fold(sum));
        words
    }

    /// The header that [`Host::transmit`](super::Host::transmit) makes of them, for TCP.
    #[inline]
    pub(crate) fn header(self, ends: Ends, ecn: u8, checksum: super::Checksum) -> super::Header {
        super::Header {
            ends,
            protocol: protocol::TCP,
            tos: self.tos() | ecn,
            ttl: self.ttl(),
            dont_fragment: !self.may_be_cut(),
            flow_label: self.flow_label(),
            checksum,
        }
    }
}

/// The word of IPv4 that has a time to live. RFC 1122 3.2.1.7: what has none MUST NOT be sent.
#[inline]
const fn life(ttl: u8) -> u32 {
    let ttl = if ttl == 0 { 1 } else { ttl };
    (ttl as u32) << 24 | (protocol::TCP as u32) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_told_and_nothing_else_changes() {
        for fields in [IpFields::v4(0, 64), IpFields::v6(0, 64, 0xa_bcde)] {
            let label = fields.flow_label();
            for dscp in 0..=MAX_DSCP {
                let set = fields.with_dscp(dscp).with_ttl(dscp + 1);
                assert_eq!((set.dscp(), set.ttl()), (dscp, dscp + 1));
                assert_eq!((set.tos(), set.flow_label()), (dscp << 2, label));
                assert_eq!(set.with_dscp(0).with_ttl(64), fields);
            }
            // More than there is room for does not spill, and what has no life gets the least.
            assert_eq!(fields.with_dscp(0xff).dscp(), MAX_DSCP);
            assert_eq!(fields.with_ttl(0).ttl(), 1);
            let cut = fields.cut().with_dscp(7).with_ttl(9);
            assert_eq!((cut.dscp(), cut.ttl(), cut.may_be_cut()), (7, 9, true));
            assert!(!fields.may_be_cut());
        }
    }

    #[test]
    fn words_are_an_ipv4_header() {
        let (src, dst) = (0xc000_0201, 0xcb00_71ff);
        for (dscp, ttl, ecn) in [(0, 64, 0), (46, 255, 2), (63, 1, 3)] {
            let words = IpFields::v4(dscp, ttl).words(1500, ecn, (src, dst));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let tos = dscp << 2 | ecn;
            let (from, to) = (src.into(), dst.into());
            let mut expected = linerate_wire::ipv4::header(tos, ttl, 6, from, to, 1480).to_vec();
            assert_eq!(bytes[..4], expected[..4]);
            // That of the wire crate may say something else of fragments.
            expected[4..8].copy_from_slice(&bytes[4..8]);
            assert_eq!(bytes[8..10], expected[8..10]);
            assert!(linerate_wire::checksum::verify(&bytes));
        }
    }
}
