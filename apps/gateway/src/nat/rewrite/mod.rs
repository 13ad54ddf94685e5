//! What translation writes into a packet: addresses, ports, and the checksums that cover them.
//!
//! Checksums are brought up to date by differences (RFC 1624), never summed anew: an error that
//! was in a packet is still in it. Sums are of words as they lie in memory, for a ones' complement
//! sum does not depend on the order of bytes (RFC 1071 2 (B)).
//!
//! | packets | function |
//! |---|---|
//! | TCP and UDP of a flow, whole | [`Translation4::write`], [`Translation6::write`] |
//! | whatever else: ICMP queries, fragments, other protocols, with options | [`write_any`] |
//! | ICMP errors, with the header that they quote | [`write_error`] |
//!
//! A packet whose transport checksum the sender left to the network card (`CSUM_PARTIAL`) has the
//! pseudo-header's sum there: only addresses change it.
//!
//! A flow's first packet gives the differences, which the packets after it use.
//!
//! Everything is checked before the first byte is written: `false` says that the packet is as it
//! was, because something does not lie within it.

mod error;
#[cfg(test)]
mod tests;

pub use error::write_error;

use std::ops::Range;

use linerate_wire::{EtherType, FlowKey4, FlowKey6, Headers, checksum, protocol};

/// How much the sums over a packet's addresses, and over addresses and ports, grow by translation.
/// Kept with a flow: 4 bytes say it for both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    addresses: u16,
    all: u16,
}

impl Differences {
    /// Of packets with addresses and ports `from` that get those of `to`: bytes in any order, the
    /// same in both.
    #[inline(always)]
    fn new(from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Self {
        let addresses = difference(from.0, to.0);
        let all = checksum::add(addresses, difference(from.1, to.1));
        Self { addresses, all }
    }

    /// Those of packets of the other direction.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            addresses: !self.addresses,
            all: !self.all,
        }
    }
}

/// What is added to a sum, in memory order, when the bytes `from` become `to`.
#[inline(always)]
pub(super) fn difference(from: &[u8], to: &[u8]) -> u16 {
    checksum::add(checksum::sum(to), !checksum::sum(from)).to_be()
}

/// A checksum, in memory order, after what it covers grew by `difference`: RFC 1624, equation 3.
#[inline(always)]
pub(super) const fn grown(checksum: u16, difference: u16) -> u16 {
    !checksum::add(!checksum, difference)
}

/// What the checksum field of TCP or UDP is to be.
#[inline(always)]
fn field(old: u16, differences: Differences, is_udp: bool, is_partial: bool) -> u16 {
    if is_partial {
        return checksum::add(old, differences.addresses);
    }
    let new = grown(old, differences.all);
    match is_udp {
        // RFC 768: 0 says that there is none, and a computed 0 is sent as all ones.
        true if old == 0 => 0,
        true => checksum::nonzero(new),
        false => new,
    }
}

/// What the packets of one direction of a flow become, in IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation4 {
    /// Source, destination.
    addresses: [u8; 8],
    /// Source, destination.
    ports: [u8; 4],
    differences: Differences,
}

/// What the packets of one direction of a flow become, in IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation6 {
    addresses: [u8; 32],
    ports: [u8; 4],
    differences: Differences,
}

macro_rules! translation {
    ($name:ident, $key:ident, $addresses:literal, $ports:literal) => {
        impl $name {
            /// Packets of the flow `from` become such of the flow `to`.
            #[inline]
            pub fn new(from: &$key, to: &$key) -> Self {
                let differences = Differences::new(
                    (&from.0[..$addresses], &from.0[$addresses..$ports]),
                    (&to.0[..$addresses], &to.0[$addresses..$ports]),
                );
                Self::with(to, differences)
            }

            /// With the [`differences`](Self::differences) that are known from the flow's first
            /// packet.
            #[inline(always)]
            pub fn with(to: &$key, differences: Differences) -> Self {
                let (mut addresses, mut ports) = ([0; $addresses], [0; 4]);
                addresses.copy_from_slice(&to.0[..$addresses]);
                ports.copy_from_slice(&to.0[$addresses..$ports]);
                Self {
                    addresses,
                    ports,
                    differences,
                }
            }

            /// How much sums grow.
            pub fn differences(&self) -> Differences {
                self.differences
            }

            /// What [`write_any`] and [`write_error`] take.
            pub fn to(&self) -> To<'_> {
                To {
                    addresses: &self.addresses,
                    ports: self.ports,
                }
            }
        }
    };
}
translation!(Translation4, FlowKey4, 8, 12);
translation!(Translation6, FlowKey6, 32, 36);

impl Translation4 {
    /// Translates a whole TCP or UDP packet, whose headers begin at `l3` and `l4`.
    #[inline(always)]
    #[must_use = "false means that the packet is as it was"]
    pub fn write(
        &self,
        frame: &mut [u8],
        l3: usize,
        l4: usize,
        is_udp: bool,
        is_partial: bool,
    ) -> bool {
        let check_at = l4 + if is_udp { 6 } else { 16 };
        if frame.len() < check_at + 2 || l4 < l3 + 20 {
            return false;
        }
        change(frame, check_at, |old| {
            field(old, self.differences, is_udp, is_partial)
        });
        change(frame, l3 + 10, |old| grown(old, self.differences.addresses));
        put(frame, l3 + 12, &self.addresses);
        put(frame, l4, &self.ports);
        true
    }
}

impl Translation6 {
    /// Translates a whole TCP or UDP packet, whose headers begin at `l3` and `l4`.
    #[inline(always)]
    #[must_use = "false means that the packet is as it was"]
    pub fn write(
        &self,
        frame: &mut [u8],
        l3: usize,
        l4: usize,
        is_udp: bool,
        is_partial: bool,
    ) -> bool {
        let check_at = l4 + if is_udp { 6 } else { 16 };
        if frame.len() < check_at + 2 || l4 < l3 + 40 {
            return false;
        }
        change(frame, check_at, |old| {
            field(old, self.differences, is_udp, is_partial)
        });
        put(frame, l3 + 8, &self.addresses);
        put(frame, l4, &self.ports);
        true
    }
}

/// Changes the word at an offset that lies within the frame.
#[inline(always)]
pub(super) fn change(frame: &mut [u8], at: usize, new: impl FnOnce(u16) -> u16) {
    if let Some(word) = frame.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *word = new(u16::from_ne_bytes(*word)).to_ne_bytes();
    }
}

/// Stores bytes at an offset where they lie within the frame.
#[inline(always)]
fn put<const N: usize>(frame: &mut [u8], at: usize, bytes: &[u8; N]) {
    if let Some(place) = frame.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = *bytes;
    }
}

/// The addresses and ports that a packet gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To<'a> {
    /// Source and destination: 8 bytes, or 32.
    pub addresses: &'a [u8],
    /// Source and destination. The identifier of an ICMP query is its source port, that of an
    /// answer its destination port, as in `track::Query`'s keys.
    pub ports: [u8; 4],
}

/// Where what is translated stands in the network header.
struct Shape {
    addresses: usize,
    header_checksum: Option<usize>,
    header_len: usize,
}

impl Shape {
    /// Of the version that has addresses of such a length.
    fn of(headers: &Headers, to: &To<'_>) -> Option<Self> {
        match (headers.ethertype, to.addresses.len()) {
            (EtherType::IPV4, 8) => Some(Self {
                addresses: 12,
                header_checksum: Some(10),
                header_len: 20,
            }),
            (EtherType::IPV6, 32) => Some(Self {
                addresses: 8,
                header_checksum: None,
                header_len: 40,
            }),
            _ => None,
        }
    }
}

/// What of an upper layer is translated, in bytes from its start.
pub(super) struct Upper {
    /// Ports, or the identifier of a query: where, and which of the new ports.
    ports: Option<(usize, Range<usize>)>,
    checksum: Option<usize>,
    /// Whether the checksum covers addresses.
    has_pseudo: bool,
    /// RFC 768: whether a checksum of 0 says that there is none.
    is_optional: bool,
}

impl Upper {
    const NOTHING: Self = Self {
        ports: None,
        checksum: None,
        has_pseudo: false,
        is_optional: false,
    };

    /// `bytes` begins with the upper layer's header and ends where the packet does.
    pub(super) fn of(ethertype: EtherType, number: u8, bytes: &[u8]) -> Self {
        /// Datagram Congestion Control Protocol (RFC 4340), and UDP-Lite (RFC 3828).
        const DCCP: u8 = 33;
        const UDP_LITE: u8 = 136;
        let is_v6 = ethertype == EtherType::IPV6;
        let with_pseudo = |ports, checksum| Self {
            ports,
            checksum: Some(checksum),
            has_pseudo: true,
            is_optional: number == protocol::UDP,
        };
        let identifier = identifier_of(is_v6, bytes).map(|which| (4, which));
        match number {
            protocol::TCP => with_pseudo(Some((0, 0..4)), 16),
            protocol::UDP => with_pseudo(Some((0, 0..4)), 6),
            // No flow key has their ports.
            DCCP | UDP_LITE => with_pseudo(None, 6),
            protocol::ICMP if !is_v6 => Self {
                ports: identifier,
                checksum: Some(2),
                ..Self::NOTHING
            },
            protocol::ICMPV6 if is_v6 => Self {
                ports: identifier,
                checksum: Some(2),
                has_pseudo: true,
                ..Self::NOTHING
            },
            // SCTP's checksum covers no address (RFC 9260 6.8), ESP and GRE have none that does.
            _ => Self::NOTHING,
        }
    }
}

impl Upper {
    /// Whether all that is translated lies within the upper layer's bytes.
    pub(super) fn fits(&self, bytes: &[u8]) -> bool {
        let ports = self.ports.as_ref().map(|(at, which)| at + which.len());
        let wanted = [ports, self.checksum.map(|at| at + 2)];
        wanted.into_iter().flatten().all(|end| end <= bytes.len())
    }
}

/// Which of the new ports is the identifier of an ICMP message, if it has one (RFC 5508 3.1, RFC
/// 4443 4): the source's of a query, the destination's of an answer.
fn identifier_of(is_v6: bool, message: &[u8]) -> Option<Range<usize>> {
    match (is_v6, message.first()?) {
        // Echo, timestamp, information, address mask.
        (false, 8 | 13 | 15 | 17) | (true, 128) => Some(0..2),
        (false, 0 | 14 | 16 | 18) | (true, 129) => Some(2..4),
        _ => None,
    }
}

/// Translates any packet but an ICMP error, `headers` being what was parsed of `frame`.
///
/// Of a fragment that is not the first the addresses alone change. A first one has the checksum of
/// the whole datagram, and only the addresses and ports are changed that the checksum covers: so
/// one datagram's fragments are to be translated alike. Other protocols than TCP, UDP and ICMP are
/// translated by addresses alone.
#[must_use = "false means that the packet is as it was"]
pub fn write_any(frame: &mut [u8], headers: &Headers, to: &To<'_>, is_partial: bool) -> bool {
    let (Some(shape), Some(number)) = (Shape::of(headers, to), headers.protocol) else {
        return false;
    };
    let Some(frame) = frame.get_mut(..headers.end) else {
        return false;
    };
    if headers.l3 + shape.header_len > headers.end {
        return false;
    }
    let Some(l4) = headers.l4 else {
        write_addresses(frame, headers.l3, &shape, to.addresses);
        return true;
    };
    let Some(bytes) = frame.get(l4..) else {
        return false;
    };
    let upper = Upper::of(headers.ethertype, number, bytes);
    if !upper.fits(bytes) {
        return false;
    }
    let addresses = write_addresses(frame, headers.l3, &shape, to.addresses);
    let Some(bytes) = frame.get_mut(l4..) else {
        return false;
    };
    write_upper(bytes, &upper, addresses, &to.ports, is_partial);
    true
}

/// Writes the addresses, and the header's checksum; returns how much their sum grew.
fn write_addresses(frame: &mut [u8], l3: usize, shape: &Shape, new: &[u8]) -> u16 {
    let start = l3 + shape.addresses;
    let old = &mut frame[start..start + new.len()];
    let grew = difference(old, new);
    old.copy_from_slice(new);
    if let Some(at) = shape.header_checksum {
        change(frame, l3 + at, |old| grown(old, grew));
    }
    grew
}

/// Writes what of an upper layer lies within `bytes`, when the addresses' sum grew by `addresses`.
pub(super) fn write_upper(
    bytes: &mut [u8],
    upper: &Upper,
    addresses: u16,
    new_ports: &[u8; 4],
    is_partial: bool,
) {
    let mut grew = if upper.has_pseudo { addresses } else { 0 };
    if let Some((at, which)) = &upper.ports
        && let Some(ports) = bytes.get_mut(*at..at + which.len())
    {
        let new_ports = &new_ports[which.clone()];
        let by_ports = difference(ports, new_ports);
        ports.copy_from_slice(new_ports);
        // The sum of the pseudo-header alone has no ports.
        grew = checksum::add(grew, if is_partial { 0 } else { by_ports });
    }
    if let Some(at) = upper.checksum {
        change(bytes, at, |old| match is_partial {
            true => checksum::add(old, grew),
            false if !upper.is_optional => grown(old, grew),
            false if old == 0 => 0,
            false => checksum::nonzero(grown(old, grew)),
        });
    }
}
