//! Which member of a group carries a flow: a hash of what its packets have in common.
//!
//! A flow is a 5-tuple, and the addresses and the protocol where packets have no ports: all
//! fragments of a datagram have the same key (`FlowKey4` leaves their ports out), so they stay
//! together and in order. IPv6 flows are distinguished by their flow label where the source set one
//! (RFC 6438 3), and fragments of IPv6 by addresses and label alone, since a later one does not
//! know its upper layer. The two directions of a flow may take different members.

use linerate_wire::{FlowKey4, FlowKey6};

/// The hash of an IPv4 packet's flow.
#[inline]
pub(super) fn hash4(key: &FlowKey4) -> u32 {
    let words = key.0.as_chunks::<8>().0;
    mix(u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
}

/// The hash of an IPv6 packet's flow, whose label is `label` (20 bits, 0: none).
#[inline]
pub(super) fn hash6(key: &FlowKey6, label: u32, is_fragment: bool) -> u32 {
    let words = key.0.as_chunks::<8>().0;
    let word = |n: usize| u64::from_le_bytes(words[n]);
    let tail = match (label, is_fragment) {
        (0, true) => 0,
        (0, false) => word(4),
        (label, _) => u64::from(label) << 32 | 1,
    };
    let addresses = u64::from(mix(word(0), word(1))) << 32 | u64::from(mix(word(2), word(3)));
    mix(addresses, tail)
}

/// Two rounds of multiply and fold: every bit depends on all of them.
#[inline(always)]
fn mix(a: u64, b: u64) -> u32 {
    let product = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let first = product(a ^ 0x9e37_79b9_7f4a_7c15, b ^ 0xe703_7ed1_a0b4_28db);
    let second = product(first ^ a, 0x8ebc_6af0_9c88_c6e3);
    (second ^ second >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::super::hops::{BUCKETS, HopChange, HopTable};
    use super::*;
    use linerate_core::publish::Apply;

    /// A table whose group 0 has bucket n for its n-th way.
    fn table(seed: u64) -> HopTable {
        let mut table = HopTable::new(seed);
        let group = Box::new(std::array::from_fn(|bucket| bucket as u32));
        table.apply(&HopChange::SetGroup(0, group));
        table
    }

    #[test]
    fn flows_spread_over_all_buckets_evenly() {
        let table = table(7);
        let bucket = |hash| table.member(0, hash) as usize;
        let flows = 64_000;
        let mut counts = [0_u32; BUCKETS];
        let mut counts6 = [0_u32; BUCKETS];
        for flow in 0..flows {
            let port = 1024 + (flow % 60_000) as u16;
            let host = (flow / 60_000) as u8;
            let key = FlowKey4::new([10, 0, 0, host], [192, 0, 2, 1], port, 443, 6);
            counts[bucket(hash4(&key))] += 1;
            let (mut src, dst) = ([0x20; 16], [0x21; 16]);
            src[15] = host;
            let key = FlowKey6::new(src, dst, port, 443, 6);
            counts6[bucket(hash6(&key, 0, false))] += 1;
        }
        for counts in [counts, counts6] {
            // 1000 each; 5 standard deviations are 160.
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(least > Some(&800) && most < Some(&1200), "{counts:?}");
        }
    }

    /// A chain of routers with two next hops each: each gets the flows that the one before sends by
    /// its first next hop.
    #[test]
    fn routers_in_a_row_each_spread_what_comes_to_them() {
        let macs = [0x0200_0000_000a, 0x0200_0000_000b, 0x001b_2101_0203];
        let routers = macs.map(table);
        let mut counts = [[0_u32; 2]; 3];
        for flow in 0..64_000_u32 {
            let [a, b, c, d] = flow.to_be_bytes();
            let key = FlowKey4::new([10, b, c, d], [192, 0, 2, a], 4000, 443, 6);
            for (router, counts) in routers.iter().zip(&mut counts) {
                // Ways have buckets in turns.
                let way = router.member(0, hash4(&key)) as usize % 2;
                counts[way] += 1;
                if way == 1 {
                    break;
                }
            }
        }
        for [first, second] in counts {
            let share = f64::from(first) / f64::from(first + second);
            assert!((0.4..0.6).contains(&share), "{counts:?}");
        }
    }

    #[test]
    fn a_flow_label_stands_for_the_ports() {
        let key = |port| FlowKey6::new([0x20; 16], [0x21; 16], port, 443, 6);
        assert_eq!(hash6(&key(1), 7, false), hash6(&key(2), 7, false));
        assert_ne!(hash6(&key(1), 7, false), hash6(&key(1), 8, false));
        assert_ne!(hash6(&key(1), 0, false), hash6(&key(2), 0, false));
    }

    #[test]
    fn ipv6_fragments_are_distributed_by_addresses() {
        // Behind the fragment header of the first is another extension: the keys differ.
        let first = FlowKey6::new([0x20; 16], [0x21; 16], 0, 0, 17);
        let later = FlowKey6::new([0x20; 16], [0x21; 16], 0, 0, 60);
        assert_eq!(hash6(&first, 0, true), hash6(&later, 0, true));
        assert_eq!(hash6(&first, 9, true), hash6(&later, 9, true));
    }
}
