//! Who owns a slot of packet memory.
//!
//! A [`Pool`] is an array of fixed slots with one cache line of [`Meta`] for each, apart from the
//! data. A [`Packet`] is the ownership of one slot: 32 bits that name its metadata line. A
//! [`Burst`] is up to 64 packets on the worker's stack; a [`PoolCache`] is one lcore's stock of
//! free slots. Read `meta`, `packet`, `pool`, `cache` in this order; `depot` is what lies between
//! caches of different lcores, `across` copies packets into slots of another NUMA node.

mod across;
mod burst;
mod cache;
mod depot;
#[cfg(all(test, loom))]
mod loom_tests;
mod meta;
#[allow(clippy::module_inception)]
mod packet;
mod pool;
#[cfg(all(test, not(loom)))]
mod tests;

pub use across::Moved;
pub use burst::{Burst, Parts};
pub use cache::{PoolCache, RxTemplate};
pub use meta::{Meta, Offload, UserData};
pub use packet::Packet;
pub use pool::{Layout, Pool, PoolConfig, PoolStats, Pools, SlotClass};
