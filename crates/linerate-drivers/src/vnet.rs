//! `virtio_net_hdr`: how packet sockets, TAPs and guests describe unfinished offloads of a frame.
//!
//! Ten bytes before the frame (virtio 1.2 5.1.6; the legacy form, in the host's byte order), read
//! into a packet's metadata and written from it.

use linerate_core::packet::{Meta, Offload, Packet};
use linerate_wire::offload::Joint;
use linerate_wire::tcp::{HEADER_LEN, Tcp, flag};

/// Length of the header in bytes.
pub(crate) const LEN: usize = 10;

/// The header, as bytes.
pub(crate) type Header = [u8; LEN];

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Writes the header's offloads into the metadata. `shift` is how many bytes longer the frame
/// became before its layer-4 header, by a tag put back. False if the header requires an unsupported
/// offload; the frame must not be sent then.
#[inline]
pub(crate) fn read(header: &Header, meta: &mut Meta, shift: u16) -> bool {
    let [flags, gso, ..] = *header;
    if flags | gso == 0 {
        return true;
    }
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    if flags & DATA_VALID != 0 {
        meta.offload.insert(Offload::CSUM_VALID);
    }
    if flags & NEEDS_CSUM != 0 {
        let Ok(offset) = u8::try_from(word(8)) else {
            return false;
        };
        meta.offload.insert(Offload::CSUM_PARTIAL);
        meta.csum_start = word(6).saturating_add(shift);
        meta.csum_offset = offset;
    }
    let kind = match gso & !GSO_ECN {
        GSO_NONE => return true,
        GSO_TCPV4 => Offload::GSO_TCP4,
        GSO_TCPV6 => Offload::GSO_TCP6,
        GSO_UDP_L4 => Offload::GSO_UDP,
        _ => return false,
    };
    meta.offload.insert(kind);
    meta.gso_size = word(4);
    meta.gso_size > 0
}

/// Writes the header for a packet; all zeros where nothing is left to do.
#[inline]
pub(crate) fn write(packet: &Packet) -> Header {
    let meta = packet.meta();
    if !meta
        .offload
        .intersects(Offload::CSUM_PARTIAL | Offload::GSO)
    {
        return [0; LEN];
    }
    unfinished(packet, meta)
}

/// The header of TCP segments that were joined.
pub(crate) fn tcp(joint: &Joint) -> Header {
    let at = joint.layout();
    let kind = if joint.is_v4() { GSO_TCPV4 } else { GSO_TCPV6 };
    let ecn = if joint.has_cwr() { GSO_ECN } else { 0 };
    let mut header = [NEEDS_CSUM, kind | ecn, 0, 0, 0, 0, 0, 0, 0, 0];
    let words = [at.payload(), joint.gso_size().into(), at.l4(), 16];
    for (to, word) in header[2..].chunks_exact_mut(2).zip(words) {
        to.copy_from_slice(&(word as u16).to_ne_bytes());
    }
    header
}

fn unfinished(packet: &Packet, meta: &Meta) -> Header {
    let mut header = [0; LEN];
    let mut put = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    let offload = meta.offload;
    let l4 = packet
        .data()
        .get(usize::from(meta.csum_start)..)
        .unwrap_or_default();
    let (gso, l4_len) = if offload.contains(Offload::GSO_UDP) {
        (GSO_UDP_L4, linerate_wire::udp::HEADER_LEN)
    } else if offload.intersects(Offload::GSO) {
        let kind = if offload.contains(Offload::GSO_TCP4) {
            GSO_TCPV4
        } else {
            GSO_TCPV6
        };
        // RFC 3168 6.1.2: a device must know that only the first segment may carry CWR.
        let header = Tcp::new_checked(l4).ok();
        let reduced = header.is_some_and(|tcp| tcp.flags() & flag::CWR != 0);
        let ecn = if reduced { GSO_ECN } else { 0 };
        (
            kind | ecn,
            header.map_or(HEADER_LEN, |tcp| tcp.header_len()),
        )
    } else {
        (GSO_NONE, usize::from(meta.csum_offset) + 2)
    };
    if offload.contains(Offload::CSUM_PARTIAL) {
        put(2, meta.csum_start.saturating_add(l4_len as u16));
        put(6, meta.csum_start);
        put(8, meta.csum_offset.into());
    }
    if gso != GSO_NONE {
        put(4, meta.gso_size);
    }
    header[0] = if offload.contains(Offload::CSUM_PARTIAL) {
        NEEDS_CSUM
    } else {
        0
    };
    header[1] = gso;
    header
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_core::packet::{Pool, PoolCache, PoolConfig};

    fn packet(frame: &[u8]) -> Packet {
        let pool = Pool::new(&PoolConfig::new("vnet", 4)).unwrap();
        let mut packet = PoolCache::new(&[]).get(&pool).unwrap();
        assert!(packet.set_data(frame));
        packet
    }

    fn header(flags: u8, gso: u8, words: [u16; 4]) -> Header {
        let mut header = [flags, gso, 0, 0, 0, 0, 0, 0, 0, 0];
        for (to, word) in header[2..].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        header
    }

    #[test]
    fn what_is_read_is_written_back() {
        // Behind 34 bytes of Ethernet and IPv4: a TCP header of 32 bytes, with and without CWR.
        let mut frame = [0; 100];
        frame[34 + 12] = 0x80;
        for (ecn, flags) in [(0, 0x10), (GSO_ECN, 0x90)] {
            frame[34 + 13] = flags;
            for (gso, l4_len) in [(GSO_TCPV4, 32), (GSO_TCPV6, 32), (GSO_UDP_L4, 8)] {
                let ecn = if gso == GSO_UDP_L4 { 0 } else { ecn };
                let sent = header(NEEDS_CSUM, gso | ecn, [34 + l4_len, 1448, 34, 16]);
                let mut packet = packet(&frame);
                assert!(read(&sent, packet.meta_mut(), 0));
                assert_eq!(write(&packet), sent);
            }
        }
        let sent = header(NEEDS_CSUM, GSO_NONE, [34 + 8, 0, 34, 6]);
        let mut packet = packet(&frame);
        assert!(read(&sent, packet.meta_mut(), 0));
        assert_eq!(write(&packet), sent);
    }

    #[test]
    fn a_tag_put_back_moves_the_checksum() {
        let mut packet = packet(&[0; 60]);
        assert!(read(
            &header(NEEDS_CSUM, GSO_NONE, [0, 0, 34, 6]),
            packet.meta_mut(),
            4
        ));
        assert_eq!(
            (packet.meta().csum_start, packet.meta().csum_offset),
            (38, 6)
        );
    }

    #[test]
    fn nothing_to_do_is_all_zeros() {
        let mut packet = packet(&[0; 60]);
        assert!(read(
            &header(DATA_VALID, GSO_NONE, [0; 4]),
            packet.meta_mut(),
            0
        ));
        assert!(packet.meta().offload.contains(Offload::CSUM_VALID));
        assert_eq!(write(&packet), [0; LEN]);
    }

    #[test]
    fn offload_headers_that_cannot_be_completed_are_refused() {
        let mut packet = packet(&[0; 60]);
        let unknown = header(0, 3, [0, 1000, 0, 0]); // UFO, which Linux gave up
        let endless = header(0, GSO_TCPV4, [0, 0, 0, 0]);
        let far = header(NEEDS_CSUM, GSO_NONE, [0, 0, 34, 256]);
        for header in [unknown, endless, far] {
            assert!(!read(&header, packet.meta_mut(), 0), "{header:?}");
        }
    }
}
