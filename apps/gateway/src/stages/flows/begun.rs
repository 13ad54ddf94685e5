//! The keys of flows that a burst has begun: packets behind them in the burst, which were looked up
//! before, may be of those.

use linerate_wire::FlowKey;

/// Bits of the filter: two keys for each packet set an eighth of them.
const BITS: u32 = 1024;

/// A filter of keys: it knows which are none of them, but for a few.
#[derive(Default)]
pub(super) struct Begun {
    bits: [u64; BITS as usize / 64],
    is_any: bool,
}

impl Begun {
    /// Another burst: nothing has begun.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        if self.is_any {
            *self = Self::default();
        }
    }

    /// A flow has begun that packets of this key, or of its reverse, belong to.
    pub(super) fn add(&mut self, key: &FlowKey) {
        let bit = bit(key);
        self.bits[bit / 64] |= 1 << (bit % 64);
        self.is_any = true;
    }

    /// Whether packets of this key may belong to one of these flows.
    pub(super) fn may_have(&self, key: &FlowKey) -> bool {
        let bit = bit(key);
        self.is_any && self.bits[bit / 64] >> (bit % 64) & 1 != 0
    }
}

/// The same for a key and its reverse: by what both ends have together.
fn bit(key: &FlowKey) -> usize {
    let (addresses, ports) = match key {
        FlowKey::V4(key) => {
            let together = key.src().to_bits() ^ key.dst().to_bits();
            (together.into(), key.src_port() ^ key.dst_port())
        }
        FlowKey::V6(key) => {
            let together = key.src().to_bits() ^ key.dst().to_bits();
            let folded = (together >> 64) as u64 ^ together as u64;
            (folded, key.src_port() ^ key.dst_port())
        }
    };
    let mixed = (addresses ^ u64::from(ports).rotate_right(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - BITS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::{FlowKey4, FlowKey6};

    #[test]
    fn a_key_and_its_reverse_are_found_and_few_others() {
        let v4 = |host: u16, port| {
            let [a, b] = host.to_be_bytes();
            FlowKey4::new([10, 0, a, b], [192, 0, 2, 1], port, 443, 6)
        };
        let mut begun = Begun::default();
        assert!(!begun.may_have(&FlowKey::V4(v4(1, 1024))));
        for host in 0..64 {
            begun.add(&FlowKey::V4(v4(host, 1024)));
        }
        for host in 0..64 {
            let key = v4(host, 1024);
            assert!(begun.may_have(&FlowKey::V4(key)));
            assert!(begun.may_have(&FlowKey::V4(key.reversed())));
        }
        let others = (64..10_064).map(|host| FlowKey::V4(v4(host, 1024)));
        let false_ones = others.filter(|key| begun.may_have(key)).count();
        assert!(false_ones < 1500, "{false_ones} of 10000");
        begun.clear();
        let v6 = FlowKey6::new([0x20; 16], [0xfd; 16], 5000, 53, 17);
        begun.add(&FlowKey::V6(v6));
        assert!(begun.may_have(&FlowKey::V6(v6.reversed())));
        assert!(!begun.may_have(&FlowKey::V4(v4(1, 1024))));
    }
}
