//! Access lists: ordered rules over several fields, and the first of them that a packet matches.
//!
//! A [`Rule`] asks for prefixes, ranges and bits of a packet's fields ([`Match`]) and says a value.
//! An [`Acl`] answers for a burst of [`PacketKey`]s which value each gets: that of the matching
//! rule with the smallest priority. Rules are added and removed one at a time; [`AclWriter`] does
//! it while lcores read. IPv4 and IPv6 have tables of their own ([`Acl4`], [`Acl6`]).
//!
//! Rules lie in blocks of eight, compared at once (`block.rs`); a few trees, none of them deep,
//! lead each packet to a block or two of each (`tree.rs`, `build.rs`). Read `rule.rs` first, then
//! `table.rs`; ADR 11 has what else was tried.
//!
//! | | cost, n rules |
//! |---|---|
//! | classify | O(log n) steps for each of at most 8 trees, and the last leaf: below |
//! | insert, remove | at most 16 leaves of 4 blocks, and the last leaf |
//! | rebuild | O(n log n) |
//! | memory | 250 to 430 bytes a rule for IPv4, more for IPv6; and 100 KiB |
//!
//! The worst case: rules that leave both addresses open and differ in ranges of ports alone have
//! few bits by which trees could part them, and rules that differ in none of the bits that trees
//! know (VLAN, length) have no such bits. They lie in the last leaf, which is looked through eight
//! rules at a time, the winners first: n/8 comparisons for a packet that matches none.

mod arena;
pub(crate) mod block;
mod build;
pub mod classbench;
mod counters;
mod explain;
pub mod generate;
pub(crate) mod key;
pub(crate) mod lookup;
mod rule;
pub(crate) mod rules;
mod shared;
mod table;
#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
pub(crate) mod tree;
pub(crate) mod window;

pub use classbench::LineError;
pub use counters::{HitCounters, HitReader};
pub use explain::{Explanation, PassedOver};
pub use key::{PacketKey, PacketKey4, PacketKey6, words6};
pub use rule::{
    Bits, Field, Fragment, Match, Match4, Match6, Prefix, Range, Rule, Rule4, Rule6, RuleError,
    TAGGED,
};
pub use shared::{AclChange, AclWriter};
pub use table::{Acl, Acl4, Acl6, AclConfig};
