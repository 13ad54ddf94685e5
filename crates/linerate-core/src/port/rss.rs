//! Receive side scaling as a port has it: what is known of it, and who hashes for a port that plays
//! a NIC.
//!
//! Drivers know no NIC families (ADR 51): a crate above them implements [`RssHash`], and a driver
//! is given the function that makes one.

use crate::packet::Burst;
use std::fmt::Debug;

/// The RSS of a port as it is set up, for who wants to know the queue of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RssSetup {
    /// The family of NICs: `ixgbe`.
    pub profile: String,
    /// The hash key, as `ethtool -x` shows it.
    pub key: Vec<u8>,
    /// The redirection table: the queue of each entry. The low bits of the hash index it, so it has
    /// a power of two.
    pub reta: Vec<u16>,
}

/// How a NIC hashes what it receives. Each lcore that hashes has its own.
pub trait RssHash: Debug + Send + Sync {
    /// Hashes the packets of a burst, by position; returns one bit for each that the NIC hashes.
    /// The others, such as ARP, come to queue 0. May note offsets of headers in the packets'
    /// metadata; their bytes stay as they are.
    fn hash(&mut self, burst: &mut Burst, hashes: &mut [u32; Burst::CAPACITY]) -> u64;

    /// One that hashes alike.
    fn another(&self) -> Box<dyn RssHash>;

    /// The family of NICs.
    fn profile(&self) -> &str;

    /// The hash key.
    fn key(&self) -> &[u8];

    /// Entries of the redirection table: a power of two.
    fn reta_entries(&self) -> usize;
}

/// Makes the hash of a NIC family by its name, with this key or the family's default one. An error
/// says what would be right.
pub type MakeRssHash = fn(&str, Option<&[u8]>) -> Result<Box<dyn RssHash>, String>;
