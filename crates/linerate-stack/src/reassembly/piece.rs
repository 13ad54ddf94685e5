//! Reads a fragment's headers.

use linerate_wire::ipv4::{self, Ipv4};
use linerate_wire::ipv6::{self, Ipv6, MAX_EXTENSIONS};
use linerate_wire::protocol;

use super::Refusal;

/// First byte of an IPv4 header without options.
const PLAIN4: u8 = 0x45;
/// The longest IP packet in bytes.
const MOST: usize = 65_535;
/// Bytes of a TCP header that a first fragment must have: up to the flags (RFC 1858 3.2.1).
const TCP_LEAST: usize = 16;
/// Length in bytes of the IPv6 fragment header.
pub(super) const FRAGMENT_HEADER: usize = 8;

/// Which datagram a fragment belongs to.
///
/// IPv4: source, destination, identification, protocol (RFC 791 3.2). IPv6: source, destination and
/// identification; the fragments' next headers may differ (RFC 8200 4.5). And the VRF. The table
/// reads the source out of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key(pub(super) [u64; 5]);

impl PartialEq for Key {
    /// Word by word, since the compiler would call `memcmp`.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let words = self.0.iter().zip(&other.0);
        words.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

/// A fragment, as read from its headers.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) key: Key,
    /// Where its payload belongs in the datagram's: first byte, and the one behind the last.
    pub(super) start: u16,
    pub(super) end: u16,
    pub(super) more: bool,
    pub(super) is_v6: bool,
    /// ECN codepoint, 0 to 3.
    pub(super) ecn: u8,
    /// Next header of what was cut, IPv6 only.
    pub(super) next: u8,
    /// Bytes of the frame before the IP header, and before the payload.
    pub(super) l3: u8,
    pub(super) header_len: u16,
    /// Byte of the frame that names the fragment header as the next one, IPv6 only.
    pub(super) next_at: u16,
}

/// The kind of a packet.
pub(super) enum Shape {
    /// No fragment.
    Whole,
    /// An IPv6 atomic fragment: a whole packet with a fragment header (RFC 6946).
    Atomic,
    Fragment,
}

impl Piece {
    /// Reads the frame's headers from byte `l3` on; unless it is `Whole`, fills in `self`.
    ///
    /// In place: a piece that is moved is read in larger words than it was written in, and each
    /// such read waits until the writes have left the core's store buffer.
    #[inline(always)]
    pub(super) fn read(&mut self, frame: &[u8], l3: usize, vrf: u32) -> Result<Shape, Refusal> {
        // As far as metadata can express it.
        if l3 > usize::from(u8::MAX) {
            return Err(Refusal::Malformed);
        }
        let packet = frame.get(l3..).ok_or(Refusal::Malformed)?;
        match packet.first() {
            Some(&PLAIN4) => self.read4(packet, ipv4::HEADER_LEN, l3, vrf),
            Some(first) if first >> 4 == 4 => self.read4_options(packet, l3, vrf),
            Some(first) if first >> 4 == 6 => self.read6(packet, l3, vrf),
            _ => Err(Refusal::Malformed),
        }
    }

    /// Bytes of payload.
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.end - self.start)
    }

    /// Its payload in the frame that was read.
    #[inline]
    pub(super) fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[usize::from(self.header_len)..][..self.len()]
    }

    /// Length in bytes of a frame of its headers and the datagram's payload up to its end.
    #[inline]
    pub(super) fn frame_end(&self) -> usize {
        usize::from(self.header_len) + usize::from(self.end)
    }

    /// IPv4 with options, or with an impossible header.
    #[inline(never)]
    fn read4_options(&mut self, packet: &[u8], l3: usize, vrf: u32) -> Result<Shape, Refusal> {
        let ip = Ipv4::new_checked(packet).map_err(|_| Refusal::Malformed)?;
        self.read4(packet, ip.header_len(), l3, vrf)
    }

    /// IPv4 with a header of that many bytes.
    #[inline(always)]
    fn read4(
        &mut self,
        packet: &[u8],
        header_len: usize,
        l3: usize,
        vrf: u32,
    ) -> Result<Shape, Refusal> {
        let header = packet.first_chunk::<{ ipv4::HEADER_LEN }>();
        let header = header.ok_or(Refusal::Malformed)?;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if total < header_len || total > packet.len() {
            return Err(Refusal::Malformed);
        }
        // Three bits of flags, of which the last says that more come, and the offset in 8 bytes.
        let cut = u16::from_be_bytes([header[6], header[7]]);
        if cut & 0x3fff == 0 {
            return Ok(Shape::Whole);
        }
        let (more, start) = (cut & 0x2000 != 0, usize::from(cut & 0x1fff) * 8);
        let len = total - header_len;
        check_length(len, more)?;
        if start + total > MOST {
            return Err(Refusal::TooLong);
        }
        let protocol = header[9];
        // RFC 1858 3.2.1 and 3.2.2, RFC 3128 3: a first fragment must not end before the TCP flags,
        // and a second one must not contain them.
        if protocol == protocol::TCP && ((start == 0 && len < TCP_LEAST) || start == 8) {
            return Err(Refusal::Tiny);
        }
        let ident = u16::from_be_bytes([header[4], header[5]]);
        let named = u64::from(ident) << 8 | u64::from(protocol);
        // No IPv6 datagram goes to `::`, so no key of one looks like this.
        self.key.0[0] = word(header, 12);
        self.key.0[1] = u64::from(vrf) << 32 | named;
        self.key.0[4] = u64::MAX;
        self.start = start as u16;
        self.end = (start + len) as u16;
        self.more = more;
        self.ecn = header[1] & 3;
        self.l3 = l3 as u8;
        self.header_len = (l3 + header_len) as u16;
        Ok(Shape::Fragment)
    }

    #[inline(never)]
    fn read6(&mut self, packet: &[u8], l3: usize, vrf: u32) -> Result<Shape, Refusal> {
        let ip = Ipv6::new_checked(packet).map_err(|_| Refusal::Malformed)?;
        let packet = &packet[..ip.total_len()];
        let Some((next_at, at)) = find_fragment_header(packet)? else {
            return Ok(Shape::Whole);
        };
        let header = packet[at..].first_chunk::<FRAGMENT_HEADER>();
        let &[next, _, a, b, id @ ..] = header.ok_or(Refusal::Malformed)?;
        let offset = u16::from_be_bytes([a, b]);
        let (more, start) = (offset & 1 != 0, usize::from(offset & 0xfff8));
        let payload_at = at + FRAGMENT_HEADER;
        let len = packet.len() - payload_at;
        let is_atomic = start == 0 && !more;
        if !is_atomic {
            check_length(len, more)?;
        }
        // RFC 8200 4.5: the payload length of the datagram, extension headers before the fragment
        // header included.
        if at - ipv6::HEADER_LEN + start + len > MOST {
            return Err(Refusal::TooLong);
        }
        if start == 0 && !has_header_chain(next, &packet[payload_at..]) {
            return Err(Refusal::HeaderChain);
        }
        let id = u64::from(u32::from_be_bytes(id));
        let key = Key([
            word(packet, 8),
            word(packet, 16),
            word(packet, 24),
            word(packet, 32),
            u64::from(vrf) << 32 | id,
        ]);
        *self = Self {
            key,
            start: start as u16,
            end: (start + len) as u16,
            more,
            is_v6: true,
            ecn: ip.traffic_class() & 3,
            next,
            l3: l3 as u8,
            header_len: (l3 + payload_at) as u16,
            next_at: (l3 + next_at) as u16,
        };
        Ok(match is_atomic {
            true => Shape::Atomic,
            false => Shape::Fragment,
        })
    }
}

/// Where the fragment header of an IPv6 packet is, and where the packet ends.
pub(super) fn fragment_header(packet: &[u8]) -> Option<(usize, usize)> {
    let end = Ipv6::new_checked(packet).ok()?.total_len();
    let (_, at) = find_fragment_header(&packet[..end]).ok()??;
    Some((at, end))
}

/// RFC 791 3.2, RFC 8200 4.5: all but the last are multiples of 8 bytes. None is empty.
#[inline]
fn check_length(len: usize, more: bool) -> Result<(), Refusal> {
    if len == 0 || (more && !len.is_multiple_of(8)) {
        return Err(Refusal::Length);
    }
    Ok(())
}

/// Position of the fragment header, and of the byte that names it: behind the per-fragment headers
/// (RFC 8200 4.5). An authentication header does not belong there, but must not hide it.
fn find_fragment_header(packet: &[u8]) -> Result<Option<(usize, usize)>, Refusal> {
    let (mut next_at, mut at) = (6, ipv6::HEADER_LEN);
    for _ in 0..=MAX_EXTENSIONS {
        match packet[next_at] {
            protocol::FRAGMENT => return Ok(Some((next_at, at))),
            kind => match extension_len(kind, &packet[at..]) {
                None => return Ok(None),
                Some(len) if at + len <= packet.len() => (next_at, at) = (at, at + len),
                Some(_) => return Err(Refusal::Malformed),
            },
        }
    }
    Err(Refusal::Malformed)
}

/// Whether all headers up to the upper layer's are there (RFC 7112 3), the first one being `next`.
fn has_header_chain(mut next: u8, mut rest: &[u8]) -> bool {
    for _ in 0..=MAX_EXTENSIONS {
        let Some(len) = extension_len(next, rest) else {
            return has_upper_header(next, rest);
        };
        let Some((header, behind)) = rest.split_at_checked(len) else {
            return false;
        };
        next = header[0];
        rest = behind;
    }
    false
}

/// Length in bytes of an extension header of this kind at the start of `rest`, larger than `rest`
/// if it is cut off; `None` where it is another kind of header.
fn extension_len(kind: u8, rest: &[u8]) -> Option<usize> {
    let words = rest.get(1).map(|&len| usize::from(len));
    let len = match kind {
        // RFC 8200 4.3, 4.4, 4.6: in 8 bytes beyond the first 8.
        protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DEST_OPTIONS => {
            words.map(|words| (words + 1) * 8)
        }
        // RFC 4302 2.2: in 4 bytes, minus 2.
        protocol::AH => words.map(|words| (words + 2) * 4),
        _ => return None,
    };
    Some(len.unwrap_or(usize::from(u16::MAX)))
}

/// Whether the header of an upper layer is complete; true for an unknown protocol.
fn has_upper_header(upper: u8, rest: &[u8]) -> bool {
    let least = match upper {
        protocol::TCP => match rest.get(12) {
            Some(offset) => usize::from(offset >> 4).max(5) * 4,
            None => return false,
        },
        protocol::UDP => 8,
        protocol::ICMPV6 => 4,
        protocol::SCTP => 12,
        protocol::IPV6 => ipv6::HEADER_LEN,
        protocol::IPV4 => ipv4::HEADER_LEN,
        protocol::NO_NEXT => 0,
        // A fragment of a fragment: RFC 8200 4.1 has one such header at most.
        protocol::FRAGMENT => return false,
        _ => 1,
    };
    rest.len() >= least
}

/// Eight bytes in memory order: keys are only compared and hashed.
#[inline]
fn word(packet: &[u8], at: usize) -> u64 {
    let bytes = packet[at..].first_chunk::<8>();
    u64::from_ne_bytes(*bytes.expect("the header was checked to be there"))
}
