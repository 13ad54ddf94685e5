//! Numbers that look random and are the same on both sides of a comparison.

/// The finaliser of splitmix64: `mixed` in xtask/peer/peer.h.
pub(super) fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The `number`-th of an even stream below `bound`.
pub(super) fn below(number: u64, bound: u64) -> u64 {
    mixed(number) % bound
}
