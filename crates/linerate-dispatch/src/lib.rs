//! Dispatch: which lcore owns the state of a packet's flow, and how packets and state get there.
//!
//! State of flows is in 256 buckets, and a bucket has one owner, so flows need no locks. Whoever
//! receives a packet says its bucket, by a hash of its own or by that of a NIC, and hands it to the
//! owner through an SPSC ring. Two apps do so, `gateway` and `steer`; what a packet's bucket is,
//! and what lies in a bucket, is theirs.
//!
//! | file | what |
//! |---|---|
//! | [`bucket`] | buckets, and a keyed hash of flows and hosts that says them |
//! | [`owners`] | who owns which bucket; moves that even out loads |
//! | [`hand_over`] | packets of a burst to the rings of their owners |
//! | [`sorter`] | a worker's part: what is its own stays, the rest is handed over |
//! | [`moves`] | buckets move to another worker under load, in order and without loss |
//! | [`bits`] | sets of buckets |
//!
//! A full ring drops, and is counted (`tx_full.LCORE`): a worker that waited for another could wait
//! for one that waits for it. Nothing here is allocated after set-up.

#![forbid(unsafe_code)]

pub mod bits;
pub mod bucket;
pub mod hand_over;
pub mod moves;
pub mod owners;
pub mod sorter;

pub use bits::Bits;
pub use bucket::{BUCKETS, Bucket, Hash};
pub use hand_over::HandOver;
pub use moves::{Going, Gone, Sharded, move_buckets};
pub use owners::{Move, Owner, Owners};
pub use sorter::{Mark, NOBODY, Sorter};

use linerate_tables::parse::Mask;

/// The places of the bits that are set, from the lowest.
#[inline(always)]
pub fn ones(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (lowest < Mask::BITS as usize).then_some(lowest)
    })
}
