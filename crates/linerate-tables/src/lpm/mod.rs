//! Longest prefix match for IPv4 and IPv6.
//!
//! Routes are kept twice: as routes, in the control plane's [`Rib`], and compiled for lookups. The
//! compiled form is rebuilt where a route changes, and published to readers with
//! [`linerate_core::publish`]. Addresses are integers in host order.
//!
//! Read [`prefix`] and [`rib`] first, then [`v4`] and [`v6`].

pub mod file;
pub mod prefix;
pub mod rib;
pub mod synth;
pub mod v4;
pub mod v6;

pub use prefix::{Address, Prefix, Prefix4, Prefix6};
pub use rib::Rib;
pub use v4::{Choice, Fib4, Layout, Lpm4, Lpm4Config, Memory, NO_ROUTE, SharedLpm4};
pub use v6::{Fib6, Lpm6, Lpm6Config, SharedLpm6};

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
