//! Why a node cannot be set up.

use linerate_core::MemError;
use linerate_tables::TableError;
use thiserror::Error;

/// Why a node cannot be set up; the message names the setting and the fix.
#[derive(Debug, Error)]
pub enum EpcError {
    /// More cores than identifiers have bits for, or none.
    #[error("{0} cores: a node has 1 to {most}", most = crate::ids::MAX_CORES)]
    Cores(usize),
    /// The core's number is not below their count.
    #[error("core {core} of {count}: cores are numbered from 0")]
    Core {
        /// The number that was given.
        core: u8,
        /// How many cores there are.
        count: u8,
    },
    /// More records than an identifier can number beside its core and its tag.
    #[error("{asked} records for each of {cores} cores: an identifier of 32 bits numbers {most}")]
    Records {
        /// How many were asked for.
        asked: usize,
        /// How many cores there are.
        cores: u8,
        /// The most.
        most: usize,
    },
    /// More requests in flight than sequence numbers of 24 bits tell apart.
    #[error("{asked} requests in flight on each of {cores} cores: sequence numbers allow {most}")]
    Requests {
        /// How many were asked for.
        asked: usize,
        /// How many cores there are.
        cores: u8,
        /// The most.
        most: usize,
    },
    /// A name that no message can carry.
    #[error("the name {0:?} is no access point: labels of 1 to 63 bytes, divided by dots")]
    Apn(String),
    /// The prefix has not an address for each user of each core.
    #[error("a prefix of {prefix_len} bits has no {asked} addresses: take a shorter one")]
    Addresses {
        /// Its length.
        prefix_len: u8,
        /// How many addresses the cores need.
        asked: usize,
    },
    /// A table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}
