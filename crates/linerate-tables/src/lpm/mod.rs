//! Longest prefix match for IPv4 and IPv6.

pub mod file;
pub mod prefix;
pub mod rib;
pub mod synth;

pub use prefix::{Address, Prefix, Prefix4, Prefix6};
pub use rib::Rib;

#[cfg(test)]
mod tests;
