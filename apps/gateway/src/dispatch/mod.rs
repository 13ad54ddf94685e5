//! Dispatch: which worker has the state of a packet's flow, and how packets and state get there.
//!
//! All state of flows is in 256 buckets, and a bucket has one owner, so flows need no locks. The
//! hash of a NIC cannot choose the owner: behind a NAT the two directions of a flow have no
//! field in common (`docs/gateway-dispatch.md` has what else was considered). So each worker that
//! receives a packet says its bucket, and hands it to the owner through a ring. Owners, the sorter
//! and moves are [`linerate_dispatch`]'s; here is what a gateway's buckets are, and what lies in
//! them.
//!
//! | file | what |
//! |---|---|
//! | [`bucket`] | the bucket that a pool's port says |
//! | [`class`] | which of the two a packet goes by |
//! | [`frame`] | the same of one whole frame, for captures |
//! | [`handed`] | what packets that are handed over carry with them |
//! | [`across`] | what becomes of packets whose owner is on another NUMA node |
//! | [`stage`] | dispatch as a stage of the gateway's path |
//! | `modes` | which modes a plan and a configuration can have |
//! | `state` | what moves: the flows of a worker's path, and what they hold of NAT |
//! | `control` | who has buckets moved: a user, or loads that are not even |

pub mod across;
pub mod bucket;
pub mod class;
pub(crate) mod control;
pub mod frame;
pub mod handed;
pub(crate) mod modes;
pub mod stage;
mod state;
#[cfg(test)]
mod tests;

pub use bucket::{BUCKETS, Bucket, Hash};
pub use class::{Classes, Marked, Marks};
