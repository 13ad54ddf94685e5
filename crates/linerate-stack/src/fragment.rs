//! Cutting datagrams to an MTU (RFC 791 3.2, RFC 1812 5.2.6; RFC 8200 4.5 for IPv6).
//!
//! [`Cut`] borrows the packet and writes its fragments to fresh ones, in order, a burst at a time:
//! a datagram may have more fragments than a burst holds. The packet stays as it is, for the caller
//! to free.
//!
//! A router cuts IPv4 only, and not packets with "don't fragment". IPv6 is fragmented by its sender
//! only: here, by a node that has reassembled the packet before.
//!
//! ```
//! use linerate_core::packet::{Burst, Pool, PoolCache, PoolConfig};
//! use linerate_stack::fragment::Cut;
//!
//! let mut cache = PoolCache::new(&[Pool::new(&PoolConfig::new("rx", 256))?]);
//! let mut datagram = [0; 220];
//! datagram[..20].copy_from_slice(&[
//!     0x45, 0, 0, 220, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
//! ]);
//! let packet = cache.copy_of(&datagram).expect("a fresh pool has free slots");
//! let mut cut = Cut::ipv4(&packet, 0, 100)?;
//! let mut fragments = Burst::new();
//! while !cut.is_done() {
//!     assert!(cut.fill(&mut cache, &mut fragments));
//! }
//! // 80 + 80 + 40 bytes of payload.
//! assert_eq!(fragments.iter().map(|fragment| fragment.len()).collect::<Vec<_>>(), [100, 100, 60]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use linerate_core::packet::{Burst, Offload, Packet, PoolCache};
use linerate_wire::ipv4::{self, Ipv4};
use linerate_wire::ipv6::{self, Ipv6};
use linerate_wire::{checksum, protocol};

/// Longest IPv4 header in bytes.
const HEADER_MOST: usize = 60;
/// Bytes of an IPv6 fragment header.
const FRAGMENT_HEADER: usize = 8;
/// Offsets of fragments are multiples of this many bytes.
const UNIT: usize = 8;
const MORE: u16 = 0x2000;

/// Why a packet was not fragmented. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Uncut {
    /// RFC 1812 5.2.6: the sender gets an ICMP Destination Unreachable, code 4.
    #[error("the packet may not be fragmented")]
    DontFragment,
    /// RFC 791 3.2: not even 8 bytes of payload fit beside the header.
    #[error("an MTU of {mtu} bytes has no room for the header and 8 bytes")]
    Mtu {
        /// As given.
        mtu: usize,
    },
    /// Its headers, or its options, do not fit its bytes, or its offset leaves the datagram.
    #[error("the packet is malformed")]
    Malformed,
}

/// A packet that is being cut. One that fits the MTU becomes one fragment (IPv6: an atomic one).
pub struct Cut<'a> {
    packet: &'a Packet,
    l3: usize,
    /// Header of the fragments: the first one's, then the later ones'.
    headers: [Header; 2],
    /// Where the payload is in the frame, and the next byte of it to send.
    payload: &'a [u8],
    next: usize,
    is_done: bool,
    mtu: usize,
    version: Version,
}

/// The IP header of fragments, with the fields that they share.
#[derive(Clone, Copy)]
struct Header {
    bytes: [u8; HEADER_MOST],
    len: usize,
}

#[derive(Clone, Copy)]
enum Version {
    /// Flags and offset of the packet itself, which may be a fragment.
    V4 { more: bool, offset: usize },
    /// Length of the headers that each fragment repeats, position of the byte that names the next
    /// header, and the fragment header.
    V6 {
        repeated: usize,
        next_at: usize,
        next: u8,
        ident: u32,
    },
}

impl<'a> Cut<'a> {
    /// Cuts an IPv4 packet, of which the header is at byte `l3`, to fragments of at most `mtu`
    /// bytes each. It may be a fragment itself (RFC 791 3.2: offsets and the last one's flag follow
    /// from it).
    ///
    /// # Errors
    /// Why the packet cannot be fragmented.
    pub fn ipv4(packet: &'a Packet, l3: usize, mtu: usize) -> Result<Self, Uncut> {
        let frame = packet.data().get(l3..).ok_or(Uncut::Malformed)?;
        let ip = Ipv4::new_checked(frame).map_err(|_| Uncut::Malformed)?;
        if ip.dont_fragment() {
            return Err(Uncut::DontFragment);
        }
        let (header_len, total) = (ip.header_len(), ip.total_len());
        let offset = ip.fragment_offset();
        if offset + total > usize::from(u16::MAX) {
            return Err(Uncut::Malformed);
        }
        if mtu < header_len + UNIT {
            return Err(Uncut::Mtu { mtu });
        }
        let mut first = Header {
            bytes: [0; HEADER_MOST],
            len: header_len,
        };
        first.bytes[..header_len].copy_from_slice(&frame[..header_len]);
        let later = first.later().ok_or(Uncut::Malformed)?;
        let version = Version::V4 {
            more: ip.more_fragments(),
            offset,
        };
        Ok(Self {
            packet,
            l3,
            headers: [first, later],
            payload: &frame[header_len..total],
            next: 0,
            is_done: false,
            mtu,
            version,
        })
    }

    /// Cuts an IPv6 packet to fragments of at most `mtu` bytes each, under the identification
    /// `ident` (RFC 8200 4.5; unpredictable by RFC 7739). Headers that routers look at are repeated
    /// in each.
    ///
    /// # Errors
    /// Why the packet cannot be fragmented; a fragment is not cut again.
    pub fn ipv6(packet: &'a Packet, l3: usize, mtu: usize, ident: u32) -> Result<Self, Uncut> {
        let frame = packet.data().get(l3..).ok_or(Uncut::Malformed)?;
        let ip = Ipv6::new_checked(frame).map_err(|_| Uncut::Malformed)?;
        if ip.upper_layer().is_ok_and(|upper| upper.is_fragment) {
            return Err(Uncut::DontFragment);
        }
        let frame = &frame[..ip.total_len()];
        let (repeated, next_at) = per_fragment(frame).ok_or(Uncut::Malformed)?;
        let next = frame[next_at];
        if mtu < repeated + FRAGMENT_HEADER + UNIT {
            return Err(Uncut::Mtu { mtu });
        }
        let none = Header {
            bytes: [0; HEADER_MOST],
            len: repeated + FRAGMENT_HEADER,
        };
        let version = Version::V6 {
            repeated,
            next_at,
            next,
            ident,
        };
        Ok(Self {
            packet,
            l3,
            headers: [none; 2],
            payload: &frame[repeated..],
            next: 0,
            is_done: false,
            mtu,
            version,
        })
    }

    /// Whether all of it was written.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Writes fragments to the end of the burst, until that is full or all are written; their slots
    /// are of the pools that `cache` was made for. False if no slot was free: the fragments written
    /// so far stay in the burst, and the rest can be written later or given up.
    pub fn fill(&mut self, cache: &mut PoolCache, out: &mut Burst) -> bool {
        while !self.is_done() && out.room() > 0 {
            let bytes = self.l3 + self.mtu.min(usize::from(u16::MAX));
            let Some(fragment) = cache.get_for(bytes) else {
                return false;
            };
            let fragment = self.write(fragment);
            if let Err(fragment) = out.push(fragment) {
                cache.free_one(fragment);
            }
        }
        true
    }

    /// Writes the next fragment to a fresh packet that takes the MTU.
    fn write(&mut self, mut fragment: Packet) -> Packet {
        let header = self.headers[usize::from(self.next > 0)];
        let room = self.mtu - header.len;
        let left = self.payload.len() - self.next;
        let (len, is_last) = match left <= room {
            true => (left, true),
            false => (room / UNIT * UNIT, false),
        };
        fragment.copy_meta(self.packet);
        let offload = &mut fragment.meta_mut().offload;
        offload.remove(Offload::CSUM_VALID);
        offload.remove(Offload::CSUM_PARTIAL);
        let fits = fragment.set_len(self.l3 + header.len + len);
        assert!(fits, "the pool was chosen for the MTU");
        let frame = self.packet.data();
        let (link, ip) = fragment.data_mut().split_at_mut(self.l3);
        link.copy_from_slice(&frame[..self.l3]);
        let (written, payload) = ip.split_at_mut(header.len);
        payload.copy_from_slice(&self.payload[self.next..][..len]);
        match self.version {
            Version::V4 { more, offset } => {
                written.copy_from_slice(&header.bytes[..header.len]);
                let units = ((offset + self.next) / UNIT) as u16;
                let more = if more || !is_last { MORE } else { 0 };
                finish4(written, header.len + len, more | units);
            }
            Version::V6 {
                repeated,
                next_at,
                next,
                ident,
            } => {
                let more = u16::from(!is_last);
                let (headers, cut) = written.split_at_mut(repeated);
                headers.copy_from_slice(&frame[self.l3..][..repeated]);
                headers[next_at] = protocol::FRAGMENT;
                let payload_len = (repeated - ipv6::HEADER_LEN + FRAGMENT_HEADER + len) as u16;
                headers[4..6].copy_from_slice(&payload_len.to_be_bytes());
                cut[..2].copy_from_slice(&[next, 0]);
                cut[2..4].copy_from_slice(&(self.next as u16 | more).to_be_bytes());
                cut[4..].copy_from_slice(&ident.to_be_bytes());
            }
        }
        self.next += len;
        self.is_done = is_last;
        fragment
    }
}

impl Header {
    /// The header of fragments but the first: RFC 791 3.1 allows only options with the copied flag
    /// there. `None` where they cannot be read.
    fn later(&self) -> Option<Self> {
        let mut later = *self;
        let (mut at, mut to) = (ipv4::HEADER_LEN, ipv4::HEADER_LEN);
        while at < self.len {
            let kind = self.bytes[at];
            let len = match kind {
                0 => break,
                1 => 1,
                _ => usize::from(*self.bytes[..self.len].get(at + 1)?),
            };
            if len == 0 || (kind != 1 && len < 2) || at + len > self.len {
                return None;
            }
            if kind & 0x80 != 0 {
                later.bytes[to..to + len].copy_from_slice(&self.bytes[at..at + len]);
                to += len;
            }
            at += len;
        }
        later.len = to.next_multiple_of(4);
        later.bytes[to..].fill(0);
        later.bytes[0] = 0x40 | (later.len / 4) as u8;
        Some(later)
    }
}

/// Sets total length, flags, offset and checksum.
fn finish4(header: &mut [u8], total: usize, cut: u16) {
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    header[6..8].copy_from_slice(&cut.to_be_bytes());
    header[10..12].fill(0);
    let sum = checksum::checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// RFC 8200 4.5: the headers that each fragment repeats, up to and with the routing header, else
/// the hop-by-hop options. Their length, and the byte that names what follows.
fn per_fragment(packet: &[u8]) -> Option<(usize, usize)> {
    let (mut repeated, mut repeated_next) = (ipv6::HEADER_LEN, 6);
    let (mut at, mut next_at) = (repeated, repeated_next);
    for _ in 0..=ipv6::MAX_EXTENSIONS {
        let kind = packet[next_at];
        if !matches!(
            kind,
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DEST_OPTIONS
        ) {
            return Some((repeated, repeated_next));
        }
        next_at = at;
        at += (usize::from(*packet.get(at + 1)?) + 1) * 8;
        if at > packet.len() {
            return None;
        }
        if kind != protocol::DEST_OPTIONS {
            (repeated, repeated_next) = (at, next_at);
        }
    }
    None
}

#[cfg(test)]
mod tests;
