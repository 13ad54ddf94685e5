//! Classification: the tables that a burst of packets is looked up in.
//!
//! Every table works on bursts first and on single keys second, knows its worst case, and has a
//! plain model in its tests. Vector kernels are in [`simd`], each beside a scalar version; a table
//! picks its kernel once, by [`Isa`](linerate_core::env::Isa), and calls it once per burst.
//!
//! | room | answers |
//! |---|---|
//! | [`parse`] | where are the headers, what are the keys, are the checksums right |
//! | [`rss`] | which queue will a NIC give this flow, and which ports land on a queue |
//! | [`exact`] | what belongs to this key |
//! | [`lpm`] | what is the next hop of this address |
//! | [`acl`] | which rule matches this packet first |
//! | [`flow`], [`wheel`] | what do we know of this flow, and when is it forgotten |
//! | [`rewrite`] | what a router writes into what it forwards, and which packets go which way |
//! | [`meter`] | is this flow within its rate |
//! | [`maglev`], [`sketch`] | which backend serves it, and who are the heaviest |
//!
//! Tables that one thread changes while others read are in [`linerate_core::publish`]'s hands.

pub mod acl;
pub mod error;
pub mod exact;
pub mod flow;
pub mod lpm;
pub mod maglev;
pub mod meter;
pub mod parse;
pub mod rewrite;
pub mod rss;
pub mod simd;
pub mod sketch;
mod sync;
pub mod wheel;

pub use error::TableError;
