//! Numbers that look random and are the same on both sides of a comparison.

/// `mixed` in xtask/peer/peer.h.
pub(super) use linerate_core::random::at as mixed;

/// The `number`-th of an even stream below `bound`.
pub(super) fn below(number: u64, bound: u64) -> u64 {
    mixed(number) % bound
}
