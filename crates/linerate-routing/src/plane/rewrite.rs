//! What forwarding changes in a frame: addresses of the link, time to live, header checksum.
//!
//! One packet at a time: the addresses come from its hop, which is at hand where this is called,
//! and each store goes to a line of its own anyway.

use linerate_tables::rewrite::one_less4;
use linerate_wire::ethernet::{HEADER_LEN, set_macs};

use super::hops::Hop;

/// Readies an untagged IPv4 frame for its hop. False, and nothing of use written, where the frame is
/// shorter than its headers: the parser has let in none of those.
#[inline(always)]
pub(super) fn forward4(frame: &mut [u8], hop: &Hop) -> bool {
    let Some(front) = frame.first_chunk_mut::<34>() else {
        return false;
    };
    let old = u32::from_le_bytes([front[22], front[23], front[24], front[25]]);
    front[22..26].copy_from_slice(&one_less4(old).to_le_bytes());
    set_macs(front, hop.dst, hop.src)
}

/// The same of IPv6, which has no checksum.
#[inline(always)]
pub(super) fn forward6(frame: &mut [u8], hop: &Hop) -> bool {
    let Some(front) = frame.first_chunk_mut::<{ HEADER_LEN + 40 }>() else {
        return false;
    };
    front[21] = front[21].wrapping_sub(1);
    set_macs(front, hop.dst, hop.src)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::MacAddr;
    use linerate_wire::ipv4::Ipv4;

    #[test]
    fn the_checksum_is_what_the_whole_header_sums_to_whatever_it_was() {
        let hop = Hop {
            dst: MacAddr::local(1),
            src: MacAddr::local(2),
            ..Hop::default()
        };
        for ident in 0..=u16::MAX {
            let mut frame = [0_u8; 60];
            frame[14..34].copy_from_slice(&[
                0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
            ]);
            frame[18..20].copy_from_slice(&ident.to_be_bytes());
            let mut ip = Ipv4::new_checked(&mut frame[14..]).expect("written above");
            ip.fill_checksum();
            assert!(forward4(&mut frame, &hop));
            let mut expected = frame;
            let mut ip = Ipv4::new_checked(&mut expected[14..]).expect("written above");
            assert!(ip.verify(), "{ident}");
            ip.fill_checksum();
            assert_eq!(ip.ttl(), 63);
            assert_eq!(frame, expected, "{ident}");
            assert_eq!(frame[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        }
    }
}
