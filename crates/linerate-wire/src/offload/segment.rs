//! Splitting an oversized TCP or UDP frame: what a NIC does for TSO and USO, Linux for GSO.

use crate::{
    EtherType, Headers, Malformed,
    bytes::{array, be16, be32, put16, put32},
    checksum, ipv4, ipv6, parse, protocol,
    tcp::{self, flag},
    udp,
};

/// The segments of one oversized frame, written one by one into buffers of the caller's.
///
/// Headers are repeated with their lengths, IPv4 identification (one up per segment), TCP sequence
/// number and flags made right; every checksum is computed in full, so it does not matter whether
/// the frame's own was finished. For TCP this is TSO; for UDP it is `UDP_SEGMENT`, in which every
/// segment is a datagram of its own.
///
/// ```
/// # use linerate_wire::offload::Segments;
/// # fn send(_: &[u8]) {}
/// # fn forward(frame: &[u8], gso_size: u16) -> Result<(), linerate_wire::Malformed> {
/// let mut segments = Segments::new(frame, gso_size)?;
/// let mut buffer = [0; 2048];
/// while let Some(len) = segments.write_next(&mut buffer) {
///     send(&buffer[..len]);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    frame: &'a [u8],
    v4: bool,
    tcp: bool,
    l3: usize,
    l4: usize,
    /// Offset of the payload, and so the length of every segment's headers.
    payload: usize,
    end: usize,
    gso_size: usize,
    /// Segments written so far, and in total.
    written: usize,
    total: usize,
}

impl<'a> Segments<'a> {
    /// Prepares to split `frame`, VLAN tagged or not, into segments of at most `gso_size` bytes of
    /// layer-4 payload. Bytes beyond the IP packet are left out.
    ///
    /// A frame that is malformed, a fragment, source-routed (IPv6), or neither TCP nor UDP is
    /// refused, and so is a `gso_size` of 0. One without payload, or with no more than `gso_size`,
    /// is a single segment.
    pub fn new(frame: &'a [u8], gso_size: u16) -> Result<Self, Malformed> {
        let Headers {
            ethertype,
            l3,
            end,
            protocol,
            is_fragment,
            l4,
            ..
        } = parse(frame)?;
        let (Some(l4), Some(protocol), false, 1..) = (l4, protocol, is_fragment, gso_size) else {
            return Err(Malformed::NotSegmentable);
        };
        let (header_len, end) = match protocol {
            protocol::TCP => (tcp::Tcp::new_checked(&frame[l4..end])?.header_len(), end),
            protocol::UDP => (
                udp::HEADER_LEN,
                l4 + udp::Udp::new_checked(&frame[l4..end])?.len(),
            ),
            _ => return Err(Malformed::NotSegmentable),
        };
        let v4 = ethertype == EtherType::IPV4;
        if !v4
            && ipv6::Ipv6::new_checked(&frame[l3..])?
                .upper_layer()?
                .is_routed
        {
            return Err(Malformed::NotSegmentable); // the pseudo-header's destination is elsewhere
        }
        let payload = l4 + header_len;
        Ok(Segments {
            frame,
            v4,
            tcp: protocol == protocol::TCP,
            l3,
            l4,
            payload,
            end,
            gso_size: gso_size.into(),
            written: 0,
            total: (end - payload).div_ceil(gso_size.into()).max(1),
        })
    }

    /// Segments not written yet.
    pub fn remaining(&self) -> usize {
        self.total - self.written
    }

    /// Length in bytes of the longest segment: what a buffer for [`write_next`](Self::write_next)
    /// needs.
    pub fn max_len(&self) -> usize {
        self.payload + self.gso_size.min(self.end - self.payload)
    }

    /// Writes the next segment to the start of `out` and gives its length in bytes. `None` after
    /// the last one, and (nothing written, nothing skipped) where `out` is too short.
    pub fn write_next(&mut self, out: &mut [u8]) -> Option<usize> {
        if self.remaining() == 0 {
            return None;
        }
        let from = self.payload + self.written * self.gso_size;
        let data = &self.frame[from..self.end.min(from + self.gso_size)];
        let len = self.payload + data.len();
        let out = out.get_mut(..len)?;
        let (headers, body) = out.split_at_mut(self.payload);
        headers.copy_from_slice(&self.frame[..self.payload]);
        body.copy_from_slice(data);

        let pseudo = if self.v4 {
            self.finish_ipv4(out)
        } else {
            self.finish_ipv6(out)
        };
        let segment = &mut out[self.l4..];
        if self.tcp {
            self.finish_tcp(segment, pseudo);
        } else {
            finish_udp(segment, pseudo);
        }
        self.written += 1;
        Some(len)
    }

    /// Sets length, identification and header checksum; gives the pseudo-header's sum.
    fn finish_ipv4(&self, out: &mut [u8]) -> u16 {
        let (upper_len, header_len) = (out.len() - self.l4, self.l4 - self.l3);
        let header = &mut out[self.l3..self.l4];
        put16(
            header,
            ipv4::field::TOTAL_LEN,
            (header_len + upper_len) as u16,
        );
        let ident = be16(header, ipv4::field::IDENT).wrapping_add(self.written as u16);
        put16(header, ipv4::field::IDENT, ident);
        put16(header, ipv4::field::CHECKSUM, 0);
        let value = checksum::checksum(header);
        put16(header, ipv4::field::CHECKSUM, value);
        let (src, dst) = (
            array(header, ipv4::field::SRC),
            array(header, ipv4::field::DST),
        );
        checksum::pseudo_v4(src, dst, header[ipv4::field::PROTOCOL], upper_len as u16)
    }

    /// Sets the payload length, which counts extension headers; gives the pseudo-header's sum.
    fn finish_ipv6(&self, out: &mut [u8]) -> u16 {
        let (upper_len, header_len) = (out.len() - self.l4, self.l4 - self.l3);
        let header = &mut out[self.l3..self.l4];
        let payload_len = header_len - ipv6::HEADER_LEN + upper_len;
        put16(header, ipv6::field::PAYLOAD_LEN, payload_len as u16);
        let (src, dst) = (
            array(header, ipv6::field::SRC),
            array(header, ipv6::field::DST),
        );
        let protocol = if self.tcp {
            protocol::TCP
        } else {
            protocol::UDP
        };
        checksum::pseudo_v6(src, dst, protocol, upper_len as u32)
    }

    /// Sets the sequence number, the flags and the checksum.
    fn finish_tcp(&self, segment: &mut [u8], pseudo: u16) {
        let ahead = (self.written * self.gso_size) as u32;
        let seq = be32(segment, tcp::field::SEQ).wrapping_add(ahead);
        put32(segment, tcp::field::SEQ, seq);
        if self.written > 0 {
            segment[tcp::field::FLAGS] &= !flag::CWR; // RFC 3168 6.1.2: once per reduction
        }
        if self.remaining() > 1 {
            segment[tcp::field::FLAGS] &= !(flag::FIN | flag::PSH);
        }
        put16(segment, tcp::field::CHECKSUM, 0);
        let value = !checksum::add(pseudo, checksum::sum(segment));
        put16(segment, tcp::field::CHECKSUM, value);
    }
}

/// Sets the length and the checksum.
fn finish_udp(datagram: &mut [u8], pseudo: u16) {
    let len = datagram.len() as u16;
    put16(datagram, udp::field::LENGTH, len);
    put16(datagram, udp::field::CHECKSUM, 0);
    let value = checksum::nonzero(!checksum::add(pseudo, checksum::sum(datagram)));
    put16(datagram, udp::field::CHECKSUM, value);
}
