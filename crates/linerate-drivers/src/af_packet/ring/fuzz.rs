//! Receive rings over memory that anything may have written.

use super::*;

const UNIT: usize = 4096;
const UNITS: usize = 4;

/// A ring that holds these bytes.
fn ring(hand_over: HandOver, bytes: &[u8]) -> RxRing {
    let memory = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC)
        .expect("memory for a test");
    rustix::fs::ftruncate(&memory, (UNIT * UNITS) as u64).expect("memory for a test");
    let bytes = &bytes[..bytes.len().min(UNIT * UNITS)];
    rustix::io::pwrite(&memory, bytes, 0).expect("memory for a test");
    RxRing {
        ring: Mapping::new(memory, UNIT, UNITS).expect("memory for a test"),
        hand_over,
        open: false,
        next: 0,
        left: 0,
        losing: false,
    }
}

/// Takes any bytes as the contents of a ring of four blocks: frames lie in their block, and each
/// block is given back after no more frames than it has room for. The first byte chooses the
/// hand-over.
///
/// # Panics
/// Where that does not hold.
pub(crate) fn check(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else {
        return;
    };
    let hand_over = if first & 1 == 0 {
        HandOver::Block
    } else {
        HandOver::Frame
    };
    let mut ring = ring(hand_over, bytes);
    let most = UNITS * (UNIT / size_of::<libc::tpacket3_hdr>() + 2);
    let (mut frames, mut nothing) = (0, 0);
    // A unit that held nothing, or ended early, is given back by the next call.
    while nothing <= 2 * UNITS {
        match ring.next() {
            Some(frame) => {
                assert!(frame.data.len() <= UNIT);
                std::hint::black_box(frame.data.iter().fold(0_u8, |sum, byte| sum ^ byte));
                frames += 1;
                assert!(frames <= most, "more frames than there is room for");
            }
            None => nothing += 1,
        }
    }
    assert!(!ring.open, "a unit is not given back");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use linerate_testkit::Random;

    /// A ring whose first block holds frames of these lengths, as the kernel lays them out; V3.
    fn block(lens: &[usize]) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let put = |bytes: &mut Vec<u8>, at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        let header = offset_of!(libc::tpacket_block_desc, hdr);
        let of_block = |field: usize| header + field;
        let status = offset_of!(libc::tpacket_hdr_v1, block_status);
        let count = offset_of!(libc::tpacket_hdr_v1, num_pkts);
        let first = offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);
        put(&mut bytes, of_block(status), libc::TP_STATUS_USER);
        put(&mut bytes, of_block(count), lens.len() as u32);
        put(&mut bytes, of_block(first), 48);
        let mut at = 48;
        for (index, &len) in lens.iter().enumerate() {
            let mac = 96_u16;
            let step = (usize::from(mac) + len).next_multiple_of(16);
            let step = if index + 1 < lens.len() { step } else { 0 };
            put(&mut bytes, at, step as u32);
            let snap = offset_of!(libc::tpacket3_hdr, tp_snaplen);
            put(&mut bytes, at + snap, len as u32);
            put(
                &mut bytes,
                at + offset_of!(libc::tpacket3_hdr, tp_len),
                len as u32,
            );
            let tp_mac = at + offset_of!(libc::tpacket3_hdr, tp_mac);
            bytes[tp_mac..tp_mac + 2].copy_from_slice(&mac.to_ne_bytes());
            at += step;
        }
        bytes
    }

    fn frames(block: &[u8]) -> Vec<usize> {
        let mut ring = ring(HandOver::Block, block);
        std::iter::from_fn(|| ring.next().map(|frame| frame.data.len())).collect()
    }

    #[test]
    fn a_block_gives_its_frames() {
        assert_eq!(frames(&block(&[60, 1514, 61])), [60, 1514, 61]);
    }

    #[test]
    fn a_block_that_lies_about_its_frames_ends_where_it_does() {
        let count =
            offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, num_pkts);
        let mut lying = block(&[60, 60]);
        lying[count..count + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(frames(&lying), [60, 60]);
        check(&[&[0], &lying[..]].concat());
        // The next frame would be the same again.
        let mut circular = block(&[60]);
        circular[count..count + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(frames(&circular), [60]);
        check(&[&[0], &circular[..]].concat());
    }

    #[test]
    fn changed_blocks_stay_in_bounds_and_are_given_back() {
        let sound = block(&[60, 128, 1514, 60]);
        let mut random = Random::new(1);
        for round in 0..4000 {
            let mut bytes = [&[(round % 2) as u8], &sound[..], &sound[..]].concat();
            for _ in 0..1 + round % 6 {
                // Most of what matters stands at the front, in words.
                let at = match random.below(4) {
                    0 => random.below(bytes.len()),
                    _ => 1 + random.below(400),
                };
                let any = random.bits() as u8;
                bytes[at] = random.of(&[0, 1, 0xff, any]);
            }
            check(&bytes);
        }
    }
}
