//! What is seen on the wire, and frames that neither end has sent.

use linerate_wire::tcp::Tcp;
use linerate_wire::{EtherType, checksum, ethernet, icmp, ipv4, protocol};

use super::*;
use crate::tcp::segment::{Header, Segment, SynOptions};

/// A TCP segment of a frame of IPv4.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) src: [u8; 4],
    pub(super) ports: (u16, u16),
    pub(super) segment: Segment,
    pub(super) syn: SynOptions,
    /// Its header and payload.
    pub(super) bytes: Vec<u8>,
}

impl Seen {
    pub(super) fn has(&self, flags: u8) -> bool {
        self.segment.flags & flags == flags
    }

    /// The options, padding included.
    pub(super) fn options(&self) -> &[u8] {
        &self.bytes[20..usize::from(self.segment.header_len)]
    }
}

/// The segment of a frame, if it has one. Its checksum has to be right (RFC 9293 MUST-2).
pub(super) fn seen(frame: &[u8]) -> Option<Seen> {
    let ip = frame.strip_prefix(&frame[..14])?;
    if frame[12..14] != [8, 0] || ip[9] != protocol::TCP {
        return None;
    }
    let (src, dst) = (
        ip[12..16].try_into().unwrap(),
        ip[16..20].try_into().unwrap(),
    );
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let bytes = ip[usize::from(ip[0] & 15) * 4..total].to_vec();
    let pseudo = checksum::pseudo_v4(src, dst, protocol::TCP, bytes.len() as u16);
    let sum = u64::from(checksum::sum(&bytes)) + u64::from(pseudo);
    assert_eq!(checksum::fold(sum), 0xffff, "a bad checksum was sent");
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    Some(Seen {
        src,
        ports: (port(0), port(2)),
        segment: Segment::read(&bytes)?,
        syn: Segment::syn_options(&bytes),
        bytes,
    })
}

/// Every segment that goes over the wire of a pair from now on.
pub(super) fn tap(pair: &mut Pair) -> Arc<Mutex<Vec<Seen>>> {
    let all = Arc::new(Mutex::new(Vec::new()));
    let into = all.clone();
    pair.loses = Box::new(move |frame| {
        into.lock().unwrap().extend(seen(frame));
        false
    });
    all
}

/// A packet of IPv4 to the second end, from the first one's MAC address. `options` are those of the
/// IP header, whole words.
pub(super) fn packet(src: [u8; 4], dst: [u8; 4], upper: u8, options: &[u8], l4: &[u8]) -> Vec<u8> {
    let len = (options.len() + l4.len()) as u16;
    let mut ip = ipv4::header(0, 64, upper, src.into(), dst.into(), len).to_vec();
    ip.extend(options);
    ip[0] += (options.len() / 4) as u8;
    ip[10..12].fill(0);
    let sum = checksum::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame =
        ethernet::header(MacAddr::local(2), MacAddr::local(1), EtherType::IPV4).to_vec();
    frame.extend(ip);
    frame.extend(l4);
    frame
}

/// The bytes of a segment, its checksum filled in.
pub(super) fn segment(
    (src, dst): ([u8; 4], [u8; 4]),
    ports: (u16, u16),
    header: &Header,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; header.len()];
    header.write(ports.0, ports.1, &mut bytes);
    bytes.extend(payload);
    fill(src, dst, &mut bytes);
    bytes
}

/// Fills a segment's checksum in.
pub(super) fn fill(src: [u8; 4], dst: [u8; 4], bytes: &mut [u8]) {
    let pseudo = checksum::pseudo_v4(src, dst, protocol::TCP, bytes.len() as u16);
    Tcp::new_checked(bytes).unwrap().fill_checksum(pseudo);
}

/// An ICMP error to the second end by a router of its network, about a frame that it has sent.
pub(super) fn error(kind: u8, code: u8, word: u32, about: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(word.to_be_bytes());
    message.extend(&about[14..14 + 28]);
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(
        [192, 0, 2, 254],
        [192, 0, 2, 2],
        protocol::ICMP,
        &[],
        &message,
    )
}

/// The types of ICMP messages that tests send.
pub(super) const UNREACHABLE: u8 = icmp::v4::UNREACHABLE;
