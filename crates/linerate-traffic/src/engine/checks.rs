//! Optional checks of receivers: checksums, and the number of flows.

use linerate_core::packet::{Offload, Packet};
use linerate_core::port::Counter;
use linerate_core::random::mixed;
use linerate_wire::flow::FlowKey;
use linerate_wire::{Headers, parse};

/// The checks to make. Each costs some tens of nanoseconds a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Count frames whose IPv4, TCP, UDP or ICMP checksum is wrong.
    pub checksums: bool,
    /// Count the different flows: addresses, protocol and ports.
    pub flows: bool,
}

/// Results of the checks.
#[derive(Default)]
pub struct Found {
    /// Frames with a wrong checksum.
    pub corrupt: Counter,
    flows: Option<Flows>,
}

impl Found {
    pub(super) fn new(checks: Checks) -> Self {
        Self {
            corrupt: Counter::default(),
            flows: checks.flows.then(Flows::new),
        }
    }

    /// Checks received frames.
    #[cold]
    pub(super) fn look(&self, frames: &[Packet], checks: Checks) {
        for packet in frames {
            let frame = packet.data();
            let Ok(headers) = parse(frame) else {
                continue;
            };
            if checks.checksums {
                let right = checksums_are_right(frame, &headers, packet.meta().offload);
                self.corrupt.add(u64::from(!right));
            }
            if let (Some(flows), Some(key)) = (&self.flows, headers.flow_key(frame)) {
                flows.add(&key);
            }
        }
    }

    /// Number of different flows over these queues, of those that count flows; `None` if none does.
    pub fn flows<'a>(queues: impl IntoIterator<Item = &'a Self>) -> Option<u64> {
        let maps: Vec<&Flows> = queues
            .into_iter()
            .filter_map(|queue| queue.flows.as_ref())
            .collect();
        if maps.is_empty() {
            return None;
        }
        let clear = (0..FLOW_WORDS).map(|word| {
            let all = maps.iter().fold(0, |all, map| all | map.0[word].read());
            u64::from(all.count_zeros())
        });
        let bits = FLOW_WORDS as f64 * 64.0;
        let clear: u64 = clear.sum();
        Some((bits * (bits / clear.max(1) as f64).ln()).round() as u64)
    }
}

/// Words of a flow map: a bit for each of 8 million hashes, 1 MiB.
const FLOW_WORDS: usize = 1 << 17;

/// Linear counting (Whang, Vander-Zanden, Taylor 1990): the share of bits that no flow's hash has
/// set gives the number of flows. Exact but for collisions in the tens of flows; standard error
/// 0.03 % up to ten million.
struct Flows(Box<[Counter]>);

impl Flows {
    fn new() -> Self {
        Self((0..FLOW_WORDS).map(|_| Counter::default()).collect())
    }

    fn add(&self, key: &FlowKey) {
        let hash = match key {
            FlowKey::V4(key) => hash(&key.0),
            FlowKey::V6(key) => hash(&key.0),
        };
        let word = &self.0[(hash >> 6) as usize % FLOW_WORDS];
        word.set(word.read() | 1 << (hash & 63));
    }
}

/// Words are mixed in one by one; each step is splitmix64's.
fn hash(key: &[u8]) -> u64 {
    let (words, _) = key.as_chunks::<8>();
    words.iter().fold(0x243f_6a88_85a3_08d3, |hash, word| {
        mixed(hash ^ u64::from_le_bytes(*word))
    })
}

/// Whether no checksum of a frame is wrong; absent ones and those that cannot be checked count as
/// right.
fn checksums_are_right(frame: &[u8], headers: &Headers, offload: Offload) -> bool {
    if headers.is_ipv4_right(frame) == Some(false) {
        return false;
    }
    // Checksums that the sender's device was to finish, or that the receiver's device has checked.
    if offload.intersects(Offload::CSUM_PARTIAL | Offload::CSUM_VALID) {
        return true;
    }
    headers.is_l4_right(frame) != Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::checksum::{self, add};
    use linerate_wire::ipv4::Ipv4;

    /// UDP 198.18.0.1 to `dst`, of 60 bytes, checksums right.
    fn frame(dst: u32, dst_port: u16) -> Vec<u8> {
        let mut frame = vec![0; 60];
        (frame[0], frame[6]) = (2, 2);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        frame[26..30].copy_from_slice(&[198, 18, 0, 1]);
        frame[30..34].copy_from_slice(&dst.to_be_bytes());
        let sum = checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame[36..38].copy_from_slice(&dst_port.to_be_bytes());
        frame[38..40].copy_from_slice(&26u16.to_be_bytes());
        let pseudo = Ipv4::new_checked(&frame[14..]).unwrap().pseudo_sum();
        let sum = checksum::nonzero(!add(pseudo, checksum::sum(&frame[34..])));
        frame[40..42].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn is_right(frame: &[u8]) -> bool {
        let headers = parse(frame).unwrap();
        checksums_are_right(frame, &headers, Offload::NONE)
    }

    #[test]
    fn a_flipped_bit_anywhere_under_a_checksum_is_seen() {
        let good = frame(0xc613_0001, 9);
        assert!(is_right(&good));
        for bit in 14 * 8..60 * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // Some flips make malformed headers, which are not checked here.
            if let Ok(headers) = parse(&bad) {
                let seen = !checksums_are_right(&bad, &headers, Offload::NONE);
                assert!(seen, "bit {bit}");
            }
        }
        let mut without = good.clone();
        without[40..42].copy_from_slice(&[0, 0]);
        assert!(is_right(&without), "over IPv4 UDP may have no checksum");
        let mut other = good;
        other[59] ^= 1;
        let headers = parse(&other).unwrap();
        for offload in [Offload::CSUM_PARTIAL, Offload::CSUM_VALID] {
            assert!(checksums_are_right(&other, &headers, offload));
        }
    }

    #[test]
    fn good_frames_whose_checksum_covers_less_than_the_packet_are_not_corrupt() {
        // A datagram of 22 bytes in a packet with 4 more: legal (RFC 9868 5).
        let mut shorter = frame(0xc613_0001, 9);
        shorter[38..42].copy_from_slice(&[0, 22, 0, 0]);
        let [src, dst] = [26, 30].map(|at| *shorter[at..].first_chunk::<4>().unwrap());
        let pseudo = checksum::pseudo_v4(src, dst, 17, 22);
        let sum = checksum::nonzero(!add(pseudo, checksum::sum(&shorter[34..56])));
        shorter[40..42].copy_from_slice(&sum.to_be_bytes());
        shorter[56..60].copy_from_slice(b"opts");
        assert!(is_right(&shorter));
        shorter[55] ^= 1;
        assert!(!is_right(&shorter));
        // On an IPv6 source route the checksum is for a destination yet to come (RFC 8200 8.1).
        let mut routed = vec![2; 12];
        routed.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 36, 43, 64]);
        routed.extend([0x20; 32]);
        routed.extend([17, 2, 4, 1, 0, 0, 0, 0]);
        routed.extend([0x33; 16]);
        routed.extend([0, 9, 0, 9, 0, 12, 0, 0]);
        routed.extend(b"data");
        let last = checksum::pseudo_v6([0x20; 16], [0x33; 16], 17, 12);
        let sum = checksum::nonzero(!add(last, checksum::sum(&routed[78..])));
        routed[84..86].copy_from_slice(&sum.to_be_bytes());
        assert!(is_right(&routed));
    }

    #[test]
    fn flows_are_counted_within_a_thousandth_over_any_number_of_queues() {
        let checks = Checks {
            flows: true,
            ..Checks::default()
        };
        assert_eq!(Found::flows([&Found::default()]), None);
        assert_eq!(Found::flows([]), None);
        for flows in [0u32, 1, 10, 30_000, 300_000] {
            let queues = [Found::new(checks), Found::new(checks)];
            for flow in 0..flows {
                let frame = frame(0xc613_0000 + flow / 50_000, flow as u16);
                let key = parse(&frame).unwrap().flow_key(&frame).unwrap();
                // Each to one queue, every third to both.
                queues[flow as usize % 2].flows.as_ref().unwrap().add(&key);
                if flow % 3 == 0 {
                    queues[1].flows.as_ref().unwrap().add(&key);
                }
            }
            let distinct = u64::from(flows);
            let told = Found::flows(&queues).unwrap();
            assert!(
                told.abs_diff(distinct) <= distinct / 1000,
                "{told} for {distinct}"
            );
        }
    }
}
