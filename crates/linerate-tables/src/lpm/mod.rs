//! Longest prefix match for IPv4 and IPv6.

pub mod file;
pub mod prefix;
pub mod rib;
pub mod synth;
pub mod v6;

pub use prefix::{Address, Prefix, Prefix4, Prefix6};
pub use rib::Rib;
pub use v6::{Change6, Config6, Fib6, Memory6};

#[cfg(test)]
mod tests;
