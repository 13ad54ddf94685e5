//! Longest prefix match for IPv4 and IPv6.

pub mod prefix;
pub mod rib;

pub use prefix::{Address, Prefix, Prefix4, Prefix6};
pub use rib::Rib;
