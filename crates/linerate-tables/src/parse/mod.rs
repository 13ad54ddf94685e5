//! A burst at once: where each packet's headers are, its flow key, and whether its checksums hold.
//!
//! [`Parser`] takes a [`Burst`] and fills a [`Parsed`]: one bit per packet in each class, one array
//! per kind of key, all by position in the burst, ready for the bulk lookups of the tables. Header
//! offsets go into each packet's metadata. A router asks for [`Parser::parse_network`], a firewall
//! for [`Parser::parse_checked`]. Checksums of slices, and filling them, are [`Checksums`]'s.
//!
//! Common frames (no tag or one; IPv4 without options or IPv6 without extension headers; TCP, UDP,
//! ICMP or anything else but SCTP above it; no fragment) go through a kernel: with AVX-512 sixteen
//! to a step and without a branch on what they hold, elsewhere one by one at constant offsets. All
//! others go through [`linerate_wire::parse()`], which also says what is right: whatever a kernel
//! does must be what it gives.
//!
//! Memory: a `Parsed` is 4.5 KiB, kept by the worker from burst to burst. Time: linear in the
//! packets, and in the bytes where checksums are wanted.

mod checksum;
pub(crate) mod common;
mod one;
#[cfg(test)]
#[cfg(not(linerate_threads))]
pub(crate) mod tests;

pub use checksum::{Checksums, Crc32c};

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Offload};
use linerate_wire::{FlowKey4, FlowKey6, Layer, MacAddr, Malformed};

use crate::simd;

/// Positions of a burst as bits: bit `i` is packet `i`.
pub type Mask = u64;

/// What kind of packet is where. A malformed packet is in `malformed` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// IPv4 packets.
    pub v4: Mask,
    /// IPv6 packets.
    pub v6: Mask,
    /// TCP over either, fragments included.
    pub tcp: Mask,
    /// UDP over either, fragments included.
    pub udp: Mask,
    /// ICMP over IPv4 and ICMPv6 over IPv6, fragments included.
    pub icmp: Mask,
    /// Fragments of IP datagrams, the first included: their keys have no ports.
    pub fragment: Mask,
    /// IPv4 options or IPv6 extension headers are present.
    pub options: Mask,
    /// Frames with a tag among their bytes; one that the port took off stands in the metadata.
    pub vlan: Mask,
    /// Whole frames that are not IP: ARP and the like.
    pub other: Mask,
    /// Frames to a group of stations: multicast or broadcast, of the link layer.
    pub group: Mask,
    /// IP packets in frames to the station that [`Parser::parse_for`] was told; none otherwise.
    pub ours: Mask,
    /// Frames that are not what they claim to be: [`Parsed::reason`] tells why.
    pub malformed: Mask,
}

/// What the checksums say, and the lives. After [`Parser::parse_checked`] each packet is in one of
/// `l4_good`, `l4_bad` and `l4_unchecked`; otherwise in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// IPv4 packets with a wrong header checksum.
    pub ip_bad: Mask,
    /// Packets with a time to live or hop limit of 1 or 0, which are not to be forwarded (RFC 1812
    /// 5.3.1, RFC 8200 3).
    pub expired: Mask,
    /// TCP and UDP checksums that are right, by [`CSUM_VALID`] or by summing.
    ///
    /// [`CSUM_VALID`]: linerate_core::packet::Offload::CSUM_VALID
    pub l4_good: Mask,
    /// TCP and UDP checksums that are wrong; UDP over IPv6 without one (RFC 8200 8.1) is here.
    pub l4_bad: Mask,
    /// Nothing to check: neither TCP nor UDP, a fragment, malformed, UDP over IPv4 without a
    /// checksum (RFC 768), a route still ahead in the routing header, or a sender on this machine
    /// that left it unfinished ([`CSUM_PARTIAL`]).
    ///
    /// [`CSUM_PARTIAL`]: linerate_core::packet::Offload::CSUM_PARTIAL
    pub l4_unchecked: Mask,
}

impl Checks {
    /// Notes whether the TCP or UDP checksum of the packet at `index` is right, if it was checked.
    #[inline(always)]
    fn note(&mut self, index: usize, is_right: Option<bool>) {
        self.l4_good |= Mask::from(is_right == Some(true)) << index;
        self.l4_bad |= Mask::from(is_right == Some(false)) << index;
        self.l4_unchecked |= Mask::from(is_right.is_none()) << index;
    }
}

/// What is known of a burst, by position in it. A field says something of the packets of its class
/// alone: elsewhere it holds what was there before.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Parsed {
    /// Flow keys of IPv4 packets, in zone 0.
    pub keys4: [FlowKey4; Burst::CAPACITY],
    /// Flow keys of IPv6 packets, in zone 0.
    pub keys6: [FlowKey6; Burst::CAPACITY],
    /// Source addresses of IPv4 packets, in host order.
    pub src4: [u32; Burst::CAPACITY],
    /// Destination addresses of IPv4 packets, in host order, as an LPM takes them.
    pub dst4: [u32; Burst::CAPACITY],
    /// Where the network packet ends, in bytes from the start of the data: padding lies beyond. The
    /// frame's length where it is not IP.
    pub end: [u32; Burst::CAPACITY],
    /// Tag control information of the outermost tag, of those in [`Classes::vlan`].
    pub vlan_tci: [u16; Burst::CAPACITY],
    /// Which packets are what.
    pub class: Classes,
    /// What the checksums say: all zero after [`Parser::parse`].
    pub checks: Checks,
    /// All flags that any packet of the burst has.
    pub offloads: Offload,
    /// Bytes of all frames.
    pub bytes: u64,
    reasons: [Malformed; Burst::CAPACITY],
}

impl Parsed {
    /// Nothing known.
    pub const fn new() -> Self {
        Self {
            keys4: [FlowKey4([0; 16]); Burst::CAPACITY],
            keys6: [FlowKey6([0; 40]); Burst::CAPACITY],
            src4: [0; Burst::CAPACITY],
            dst4: [0; Burst::CAPACITY],
            end: [0; Burst::CAPACITY],
            vlan_tci: [0; Burst::CAPACITY],
            class: Classes {
                v4: 0,
                v6: 0,
                tcp: 0,
                udp: 0,
                icmp: 0,
                fragment: 0,
                options: 0,
                vlan: 0,
                other: 0,
                group: 0,
                ours: 0,
                malformed: 0,
            },
            checks: Checks {
                ip_bad: 0,
                expired: 0,
                l4_good: 0,
                l4_bad: 0,
                l4_unchecked: 0,
            },
            offloads: Offload::NONE,
            bytes: 0,
            reasons: [Malformed::Truncated(Layer::Ethernet); Burst::CAPACITY],
        }
    }

    /// The first `count` of [`keys4`](Self::keys4) as the bytes that an exact match is asked for.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn keys4_bytes(&self, count: usize) -> &[[u8; 16]] {
        simd::parse::bytes_of_keys4(&self.keys4[..count])
    }

    /// Why the packet at `index` is malformed; `None` where it is not.
    #[inline]
    pub fn reason(&self, index: usize) -> Option<Malformed> {
        let is_malformed = index < Burst::CAPACITY && self.class.malformed >> index & 1 != 0;
        is_malformed.then(|| self.reasons[index])
    }
}

impl Default for Parsed {
    fn default() -> Self {
        Self::new()
    }
}

/// What is judged besides lengths, and how to sum.
#[derive(Clone, Copy)]
pub(crate) enum Check {
    Nothing,
    /// The header of IPv4, and lives; nothing of what is behind the network header. Also which
    /// frames are to a station, whose address is the lowest 48 bits as they lie in memory; no frame
    /// is to one of more bits.
    Network(simd::checksum::Sum, u64),
    /// IPv4, TCP and UDP, and lives.
    All(simd::checksum::Sum),
}

/// Parses bursts with the best kernel of a level. One per worker; it holds two function pointers.
///
/// ```
/// use linerate_core::env::Isa;
/// use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
/// use linerate_tables::parse::{Parsed, Parser};
/// let mut cache = PoolCache::new(&[Pool::new(&PoolConfig::new("rx", 64))?]);
/// let mut frame = [0; 60]; // UDP 10.0.0.1:53 > 10.0.0.2:4000
/// frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
/// frame[26..40].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 15, 160, 0, 8]);
/// let mut burst = Burst::new();
/// let packet = cache.copy_of(&frame).expect("a fresh pool has free slots");
/// burst.push(packet).expect("a new burst has room");
///
/// let (parser, mut parsed) = (Parser::new(Isa::detect()), Parsed::new());
/// parser.parse(&mut burst, &mut parsed);
/// assert_eq!((parsed.class.v4, parsed.class.udp), (1, 1));
/// assert_eq!(parsed.keys4[0].to_string(), "10.0.0.1:53 > 10.0.0.2:4000 proto 17");
/// assert_eq!(burst.as_packets()[0].meta().l4_offset, 34);
/// # Ok::<(), linerate_core::MemError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    kernel: simd::parse::Kernel,
    sum: simd::checksum::Sum,
}

impl Parser {
    /// The parser for this level.
    pub fn new(isa: Isa) -> Self {
        Self {
            kernel: simd::parse::pick(isa),
            sum: simd::checksum::pick(isa),
        }
    }

    /// Finds headers and keys: sets [`l3_offset`] and [`l4_offset`] of each packet, and fills
    /// `parsed` except for the checksums. [`l4_offset`] becomes 0 where there is no layer-4 header;
    /// both become 0 where the packet is malformed.
    ///
    /// [`l3_offset`]: linerate_core::packet::Meta::l3_offset
    /// [`l4_offset`]: linerate_core::packet::Meta::l4_offset
    #[inline]
    pub fn parse(&self, burst: &mut Burst, parsed: &mut Parsed) {
        self.run(burst, parsed, Check::Nothing);
    }

    /// As [`parse`](Self::parse), and checks the checksums of IPv4, TCP and UDP too.
    #[inline]
    pub fn parse_checked(&self, burst: &mut Burst, parsed: &mut Parsed) {
        self.run(burst, parsed, Check::All(self.sum));
    }

    /// What a router asks, which looks at the network header and no further: as
    /// [`parse`](Self::parse), and checks the checksums of IPv4 headers (RFC 1812 5.2.2 (2)) and
    /// the lives of all packets. A packet with sound lengths but a broken header behind is no less
    /// a packet: it is not malformed, has a key without ports, and no [`l4_offset`].
    ///
    /// [`l4_offset`]: linerate_core::packet::Meta::l4_offset
    #[inline]
    pub fn parse_network(&self, burst: &mut Burst, parsed: &mut Parsed) {
        self.run(burst, parsed, Check::Network(self.sum, u64::MAX));
    }

    /// As [`parse_network`](Self::parse_network), and finds the packets that were sent to
    /// `station`: [`Classes::ours`].
    #[inline]
    pub fn parse_for(&self, burst: &mut Burst, parsed: &mut Parsed, station: MacAddr) {
        let MacAddr([a, b, c, d, e, f]) = station;
        let station = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        self.run(burst, parsed, Check::Network(self.sum, station));
    }

    #[inline(always)]
    fn run(&self, burst: &mut Burst, parsed: &mut Parsed, check: Check) {
        parsed.class = Classes::default();
        parsed.checks = Checks::default();
        (parsed.offloads, parsed.bytes) = (Offload::NONE, 0);
        let all = Mask::MAX
            .checked_shr(Mask::BITS - burst.len() as u32)
            .unwrap_or(0);
        // Sixteen lanes cost the same for one packet.
        let done = match burst.len() {
            ..3 => common::burst(burst.as_packets_mut(), parsed, check),
            _ => (self.kernel)(burst.as_packets_mut(), parsed, check),
        };
        let mut rest = all & !done;
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            one::one(&mut burst.as_packets_mut()[index], index, parsed, check);
        }
    }
}
