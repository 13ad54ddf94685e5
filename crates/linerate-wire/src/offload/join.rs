//! Joining TCP segments into an oversized frame: what Linux does for GRO;
//! [`Segments`](super::Segments) undoes it.

use crate::{
    EtherType,
    bytes::{array, be16, be32, put16},
    checksum, ethernet, ipv4, ipv6, parse, protocol,
    tcp::{self, flag},
    vlan,
};
use core::ops::Range;

/// Longest headers that are joined: Ethernet, one VLAN tag, IPv6, TCP with all options.
const MAX_HEADERS: usize = ethernet::HEADER_LEN + vlan::TAG_LEN + ipv6::HEADER_LEN + 60;
/// Largest length of an IPv4 packet, and of an IPv6 payload.
const MAX_LEN: usize = 0xffff;

/// Class of a frame for joining segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// A segment with payload, which may be joined with others.
    Segment(TcpFrame),
    /// TCP that goes alone (SYN, RST, URG, no payload, IP options and the like): what follows it in
    /// its connection must not be joined with what went before it.
    Alone(TcpFrame),
    /// Anything else that is whole.
    Other,
    /// A fragment, or malformed: it may be of any connection.
    Unknown,
}

/// Where the headers of a TCP segment in an Ethernet frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFrame {
    v4: bool,
    l3: usize,
    l4: usize,
    payload: usize,
}

impl FrameClass {
    /// Looks at a frame, VLAN tagged or not.
    #[inline]
    pub fn of(frame: &[u8]) -> Self {
        let Ok(headers) = parse(frame) else {
            return Self::Unknown;
        };
        let (l3, v4) = (headers.l3, headers.ethertype == EtherType::IPV4);
        let l4 = match (headers.is_fragment, headers.protocol, headers.l4) {
            (true, ..) => return Self::Unknown,
            (false, Some(protocol::TCP), Some(l4)) => l4,
            _ => return Self::Other,
        };
        let payload = l4 + usize::from(frame[l4 + tcp::field::DATA_OFFSET] >> 4) * 4;
        let found = TcpFrame {
            v4,
            l3,
            l4,
            payload,
        };
        let ip_len = if v4 {
            ipv4::HEADER_LEN
        } else {
            ipv6::HEADER_LEN
        };
        let special = flag::SYN | flag::RST | flag::URG;
        let may = l3 <= ethernet::HEADER_LEN + vlan::TAG_LEN
            && l4 == l3 + ip_len // no options, no extension headers
            && headers.end == frame.len() // no padding
            && payload < frame.len()
            && frame[l4 + tcp::field::FLAGS] & special == 0;
        if may {
            Self::Segment(found)
        } else {
            Self::Alone(found)
        }
    }
}

impl TcpFrame {
    /// Offset of the IP header.
    pub fn l3(&self) -> usize {
        self.l3
    }

    /// Offset of the TCP header.
    pub fn l4(&self) -> usize {
        self.l4
    }

    /// Offset of the payload.
    pub fn payload(&self) -> usize {
        self.payload
    }

    /// Whether the IPv4 header's checksum is right; IPv6 has none.
    pub fn verify_header(&self, frame: &[u8]) -> bool {
        !self.v4 || checksum::verify(&frame[self.l3..self.l4])
    }

    /// Whether the TCP checksum is right.
    pub fn verify_tcp(&self, frame: &[u8]) -> bool {
        let segment = &frame[self.l4..];
        checksum::add(self.pseudo(frame, segment.len()), checksum::sum(segment)) == 0xffff
    }

    /// Sum of the pseudo-header for so many bytes of TCP.
    fn pseudo(&self, frame: &[u8], len: usize) -> u16 {
        let ip = &frame[self.l3..self.l4];
        if self.v4 {
            let (src, dst) = (array(ip, ipv4::field::SRC), array(ip, ipv4::field::DST));
            checksum::pseudo_v4(src, dst, protocol::TCP, len as u16)
        } else {
            let (src, dst) = (array(ip, ipv6::field::SRC), array(ip, ipv6::field::DST));
            checksum::pseudo_v6(src, dst, protocol::TCP, len as u32)
        }
    }

    fn addresses(&self) -> Range<usize> {
        if self.v4 {
            self.l3 + ipv4::field::SRC..self.l3 + ipv4::field::DST + 4
        } else {
            self.l3 + ipv6::field::SRC..self.l3 + ipv6::field::DST + 16
        }
    }

    fn ports(&self) -> Range<usize> {
        self.l4..self.l4 + tcp::field::SEQ
    }

    fn flags(&self, frame: &[u8]) -> u8 {
        frame[self.l4 + tcp::field::FLAGS]
    }

    fn seq(&self, frame: &[u8]) -> u32 {
        be32(frame, self.l4 + tcp::field::SEQ)
    }

    fn ident(&self, frame: &[u8]) -> u16 {
        be16(frame, self.l3 + ipv4::field::IDENT)
    }
}

/// Segments of one connection that are joined: the headers of the frame that they make. Their
/// payloads are the caller's to put together.
///
/// What is joined is cut into the same frames again, byte for byte (checksums of zero aside, which
/// have two forms), by [`Segments`](super::Segments), a NIC's TSO and Linux. So addresses, hop
/// limit, DSCP, ECN, acknowledgment, window and options (timestamps among them) are equal; sequence
/// numbers follow each other; all but the last have the same length; PSH and FIN end a frame, and
/// CWR begins one (RFC 3168 6.1.2). The identification of IPv4 counts up by one, also where DF
/// makes it mean nothing (RFC 6864 4.1), for who cuts cannot be told otherwise.
///
/// Who cuts computes every checksum anew. So the caller joins only frames whose checksums are
/// right, or left unfinished: see [`TcpFrame::verify_tcp`].
///
/// ```
/// # use linerate_wire::offload::{Joint, FrameClass};
/// # fn join(one: &[u8], next: &[u8]) -> Option<Vec<u8>> {
/// let (FrameClass::Segment(a), FrameClass::Segment(b)) = (FrameClass::of(one), FrameClass::of(next)) else { return
/// None }; let mut joint = Joint::begin(one, a); if !joint.push(next, b) { return None; } let
/// headers = joint.finish(); Some([headers, &one[a.payload()..], &next[b.payload()..]].concat())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Joint {
    headers: [u8; MAX_HEADERS],
    layout: TcpFrame,
    next_seq: u32,
    next_ident: u16,
    /// Payload of each segment but the last, and of all together.
    gso_size: usize,
    len: usize,
    segments: usize,
    open: bool,
}

impl Joint {
    /// Begins with a frame that [`FrameClass::of`] calls a segment.
    pub fn begin(frame: &[u8], layout: TcpFrame) -> Self {
        let mut headers = [0; MAX_HEADERS];
        headers[..layout.payload].copy_from_slice(&frame[..layout.payload]);
        let len = frame.len() - layout.payload;
        Self {
            headers,
            layout,
            next_seq: layout.seq(frame).wrapping_add(len as u32),
            next_ident: layout.ident(frame).wrapping_add(1),
            gso_size: len,
            len,
            segments: 1,
            open: layout.flags(frame) & (flag::PSH | flag::FIN) == 0,
        }
    }

    /// Whether a frame is of the same connection and direction.
    #[inline]
    pub fn is_of(&self, frame: &[u8], layout: TcpFrame) -> bool {
        self.layout.v4 == layout.v4
            && self.headers[self.layout.ports()] == frame[layout.ports()]
            && self.headers[self.layout.addresses()] == frame[layout.addresses()]
    }

    /// Whether a frame that [`FrameClass::of`] calls a segment goes on where this ends.
    pub fn continues(&self, frame: &[u8], layout: TcpFrame) -> bool {
        let len = frame.len() - layout.payload;
        let ip_len = self.layout.payload - self.layout.l3 + self.len + len;
        let ip_len = if layout.v4 {
            ip_len
        } else {
            ip_len - ipv6::HEADER_LEN
        };
        // The last one's PSH and FIN are the joined frame's, and the first one's CWR.
        let differing = layout.flags(frame) ^ self.layout.flags(&self.headers);
        self.open
            && self.layout == layout
            && layout.seq(frame) == self.next_seq
            && len <= self.gso_size
            && ip_len <= MAX_LEN
            && layout.flags(frame) & flag::CWR == 0
            && differing & !(flag::CWR | flag::PSH | flag::FIN) == 0
            && (!layout.v4 || layout.ident(frame) == self.next_ident)
            && self.agrees(frame)
    }

    /// Whether all is equal that is not the lengths', the numbers', the flags' or the checksums'.
    fn agrees(&self, frame: &[u8]) -> bool {
        let TcpFrame {
            v4,
            l3,
            l4,
            payload,
        } = self.layout;
        let equal = |range: Range<usize>| self.headers[range.clone()] == frame[range];
        let ip = if v4 {
            equal(0..l3 + ipv4::field::TOTAL_LEN)
                && equal(l3 + ipv4::field::FRAGMENT..l3 + ipv4::field::CHECKSUM)
        } else {
            equal(0..l3 + ipv6::field::PAYLOAD_LEN)
                && equal(l3 + ipv6::field::PAYLOAD_LEN + 2..self.layout.addresses().start)
        };
        ip && equal(self.layout.addresses())
            && equal(self.layout.ports())
            && equal(l4 + tcp::field::ACK..l4 + tcp::field::FLAGS)
            && equal(l4 + tcp::field::WINDOW..l4 + tcp::field::CHECKSUM)
            && equal(l4 + tcp::field::CHECKSUM + 2..payload)
    }

    /// Adds a frame that [continues](Self::continues) it. False, and nothing is added, where it
    /// does not.
    pub fn push(&mut self, frame: &[u8], layout: TcpFrame) -> bool {
        if !self.continues(frame, layout) {
            return false;
        }
        let len = frame.len() - layout.payload;
        let last = layout.flags(frame) & (flag::PSH | flag::FIN);
        self.headers[layout.l4 + tcp::field::FLAGS] |= last;
        self.next_seq = self.next_seq.wrapping_add(len as u32);
        self.next_ident = self.next_ident.wrapping_add(1);
        self.len += len;
        self.segments += 1;
        self.open = last == 0 && len == self.gso_size;
        true
    }

    /// No more frames are added.
    pub fn close(&mut self) {
        self.open = false;
    }

    /// Frames that were joined.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Payload of each frame but the last, in bytes.
    pub fn gso_size(&self) -> u16 {
        self.gso_size as u16
    }

    /// Where the headers are.
    pub fn layout(&self) -> TcpFrame {
        self.layout
    }

    /// Whether it is IPv4.
    pub fn is_v4(&self) -> bool {
        self.layout.v4
    }

    /// Whether the first frame said that the sender has reduced its window.
    pub fn has_cwr(&self) -> bool {
        self.layout.flags(&self.headers) & flag::CWR != 0
    }

    /// The joined frame's headers, lengths made right; the TCP checksum is left unfinished, as
    /// [`complete_partial`](super::complete_partial) and cutting want it.
    pub fn finish(&mut self) -> &[u8] {
        let TcpFrame {
            v4,
            l3,
            l4,
            payload,
        } = self.layout;
        let tcp_len = payload - l4 + self.len;
        if v4 {
            let ip = &mut self.headers[l3..l4];
            put16(ip, ipv4::field::TOTAL_LEN, (l4 - l3 + tcp_len) as u16);
            put16(ip, ipv4::field::CHECKSUM, 0);
            let value = checksum::checksum(ip);
            put16(ip, ipv4::field::CHECKSUM, value);
        } else {
            let at = l3 + ipv6::field::PAYLOAD_LEN;
            put16(&mut self.headers, at, tcp_len as u16);
        }
        let pseudo = self.layout.pseudo(&self.headers, tcp_len);
        put16(&mut self.headers, l4 + tcp::field::CHECKSUM, pseudo);
        &self.headers[..payload]
    }
}
