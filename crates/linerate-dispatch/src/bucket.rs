//! Which bucket a packet belongs to: a keyed hash of its flow, or of one of its ends.
//!
//! Endpoints are hashed by themselves and added, so both directions of a flow have one bucket, and
//! a subscriber's bucket is that of an endpoint alone. The sum is not linear in the addresses:
//! nobody outside, who does not know the keys, can choose addresses and ports that meet in one
//! bucket. Multiplications of 64 bits and shifts are all that it takes, which an XDP program can
//! do as well.

use linerate_wire::{FlowKey4, FlowKey6};

/// How many buckets there are: the unit of ownership and of moves.
pub const BUCKETS: usize = 256;

/// A bucket's number.
pub type Bucket = u8;

/// A keyed hash, the same on all workers.
#[derive(Clone, Copy, Debug)]
pub struct Hash {
    keys: [u64; 4],
}

impl Hash {
    /// Keys from a seed that nobody else knows.
    pub fn new(seed: u64) -> Self {
        // SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
        let mut state = seed;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            // Odd, so that multiplication by it loses nothing.
            (z ^ (z >> 31)) | 1
        });
        Self { keys }
    }

    /// The bucket of a flow, the same for both directions.
    #[inline(always)]
    pub fn flow4(&self, key: &FlowKey4) -> Bucket {
        let word = u128::from_be_bytes(key.0);
        let (addresses, ports) = ((word >> 64) as u64, (word >> 32) as u32);
        let src = (addresses >> 32) << 16 | u64::from(ports >> 16);
        let dst = (addresses & 0xffff_ffff) << 16 | u64::from(ports & 0xffff);
        bucket(self.end(src).wrapping_add(self.end(dst)))
    }

    /// The same for IPv6.
    #[inline(always)]
    pub fn flow6(&self, key: &FlowKey6) -> Bucket {
        let src = self.fold6(&key.0[..16], key.src_port());
        let dst = self.fold6(&key.0[16..32], key.dst_port());
        bucket(self.end(src).wrapping_add(self.end(dst)))
    }

    /// The bucket of an address and port: of a remote end, where the other one is a service of the
    /// gateway.
    #[inline(always)]
    pub fn end4(&self, address: u32, port: u16) -> Bucket {
        bucket(self.end(u64::from(address) << 16 | u64::from(port)))
    }

    /// The same for IPv6.
    #[inline(always)]
    pub fn end6(&self, address: &[u8; 16], port: u16) -> Bucket {
        bucket(self.end(self.fold6(address, port)))
    }

    /// The bucket of a number that names whom state is about: a subscriber, a session.
    #[inline(always)]
    pub fn number(&self, number: u64) -> Bucket {
        bucket(self.end(number))
    }

    /// The bucket of a host whose addresses are translated: all its flows meet there, with its
    /// mappings, its pooled address and its limits.
    #[inline(always)]
    pub fn host4(&self, address: u32) -> Bucket {
        self.end4(address, 0)
    }

    /// The same for IPv6: the first half of the address, which is the subscriber's (RFC 6177).
    #[inline(always)]
    pub fn host6(&self, address: &[u8; 16]) -> Bucket {
        let mut network = [0; 16];
        network[..8].copy_from_slice(&address[..8]);
        self.end6(&network, 0)
    }

    #[inline(always)]
    fn end(&self, end: u64) -> u64 {
        let mixed = (end ^ self.keys[0]).wrapping_mul(self.keys[1]);
        (mixed ^ (mixed >> 32)).wrapping_mul(self.keys[2])
    }

    #[inline(always)]
    fn fold6(&self, address: &[u8], port: u16) -> u64 {
        let half = |at: usize| {
            let bytes = address[at..at + 8].first_chunk();
            u64::from_be_bytes(*bytes.unwrap_or(&[0; 8]))
        };
        let high = (half(0) ^ self.keys[3]).wrapping_mul(self.keys[1]);
        (half(8) ^ high ^ (high >> 29)).wrapping_mul(self.keys[3]) ^ u64::from(port)
    }
}

/// The upper bits are the ones that all others have gone into.
#[inline(always)]
fn bucket(hash: u64) -> Bucket {
    ((hash ^ (hash >> 23)) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_testkit::Random;

    fn key4(random: &mut Random) -> FlowKey4 {
        FlowKey4(std::array::from_fn(|_| random.below(256) as u8))
    }

    #[test]
    fn both_directions_of_a_flow_have_one_bucket() {
        let (mut random, hash) = (Random::new(1), Hash::new(7));
        for _ in 0..10_000 {
            let key = key4(&mut random);
            assert_eq!(hash.flow4(&key), hash.flow4(&key.reversed()));
            let key = FlowKey6(std::array::from_fn(|_| random.below(256) as u8));
            assert_eq!(hash.flow6(&key), hash.flow6(&key.reversed()));
        }
    }

    /// Pearson's statistic over 256 buckets has a mean of 255 and a deviation of 22.6.
    fn is_even(counts: &[u32; BUCKETS], of: u32) {
        let mean = f64::from(of) / BUCKETS as f64;
        let square = |&count: &u32| (f64::from(count) - mean).powi(2) / mean;
        let sum: f64 = counts.iter().map(square).sum();
        assert!(sum < 255.0 + 6.0 * 22.6, "{sum} {counts:?}");
    }

    #[test]
    fn neighbouring_addresses_and_ports_spread_evenly() {
        const FLOWS: u32 = 100_000;
        for seed in 0..8 {
            let hash = Hash::new(seed);
            let spread = |of: &dyn Fn(u32) -> Bucket| {
                let mut counts = [0; BUCKETS];
                (0..FLOWS).for_each(|flow| counts[usize::from(of(flow))] += 1);
                is_even(&counts, FLOWS);
            };
            let flow = |src: u32, dst: u32, src_port: u16, dst_port: u16| {
                let (src, dst) = (src.to_be_bytes(), dst.to_be_bytes());
                hash.flow4(&FlowKey4::new(src, dst, src_port, dst_port, 6))
            };
            spread(&|n| flow(0x0a00_0000 + n, 0xc000_0201, 40_000, 443));
            spread(&|n| flow(0x0a00_0001, 0xc000_0201 + (n >> 16), n as u16, 443));
            // What a sum of ports or addresses would put into one bucket.
            spread(&|n| flow(0x0a00_0000 + n, 0x0b00_0000 - n, 1000, 1000));
            spread(&|n| hash.host4(0x0a00_0000 + n));
            let address = |n: u32| (0x2001_0db8_u128 << 96 | u128::from(n) << 64).to_be_bytes();
            spread(&|n| hash.host6(&address(n)));
            spread(&|n| {
                let server = (0x2001_0db8_ffff_u128 << 80 | 1).to_be_bytes();
                hash.flow6(&FlowKey6::new(address(n), server, 40_000, 443, 6))
            });
        }
    }

    /// Flows that meet under one key are apart under another.
    #[test]
    fn collisions_are_those_of_the_key() {
        let (a, b) = (Hash::new(1), Hash::new(2));
        let mut random = Random::new(3);
        let keys: Vec<_> = (0..100_000).map(|_| key4(&mut random)).collect();
        let met: Vec<_> = keys.iter().filter(|key| a.flow4(key) == 0).collect();
        let again = met.iter().filter(|key| b.flow4(key) == 0).count();
        assert!(met.len() > 300 && again < 10, "{} {again}", met.len());
    }
}
