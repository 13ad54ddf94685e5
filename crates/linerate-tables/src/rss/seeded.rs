//! Numbers that look random and are the same every time (SplitMix64, Steele et al. 2014): for
//! probing a hash, never for anything that an opponent should not guess.

#[derive(Clone, Debug)]
pub(super) struct Seeded(pub(super) u64);

impl Seeded {
    pub(super) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
