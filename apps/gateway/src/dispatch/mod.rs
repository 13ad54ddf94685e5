//! Dispatch: which worker has the state of a packet's flow, and how packets and state get there.
//!
//! All state of flows is in 256 buckets, and a bucket has one owner, so flows need no locks. The
//! hash of a NIC cannot choose the owner: behind a NAT the two directions of a flow have no
//! field in common (`docs/gateway-dispatch.md` has what else was considered). So each worker that
//! receives a packet says its bucket, and hands it to the owner through a ring.
//!
//! | file | what |
//! |---|---|
//! | [`bucket`] | the keyed hash of flows and hosts, and the bucket that a pool's port says |
//! | [`class`] | which of the two a packet goes by |
//! | [`frame`] | the same of one whole frame, for captures |
//! | [`owners`] | who owns which bucket; moves that even out loads |
//! | [`sorter`] | a worker's part: what is its own stays, the rest is handed over |
//! | [`across`] | what becomes of packets whose owner is on another NUMA node |
//! | [`stage`] | dispatch as a stage of the gateway's path |
//! | `modes` | which modes a plan and a configuration can have |
//! | [`moves`] | buckets move to another worker under load, in order and without loss |
//! | `state` | what moves: the flows of a worker's path, and what they hold of NAT |
//! | `control` | who has buckets moved: a user, or loads that are not even |

pub mod across;
pub mod bucket;
pub mod class;
pub(crate) mod control;
pub mod frame;
pub(crate) mod modes;
pub mod moves;
pub mod owners;
pub mod sorter;
pub mod stage;
mod state;
#[cfg(test)]
mod tests;

pub use bucket::{BUCKETS, Bucket, Hash};
pub use class::{Classes, Marked, Marks};
pub use moves::{Going, Gone, move_buckets};
pub use owners::{Move, Owner, Owners};
pub use sorter::Sorter;
