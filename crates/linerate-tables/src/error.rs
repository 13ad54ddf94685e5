//! What can go wrong while a table is set up or changed. A lookup never fails.

/// Why a table could not be made or changed; the table is as it was before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Memory for the table could not be had.
    #[error(transparent)]
    Memory(#[from] linerate_core::MemError),
    // --- rss
    // --- exact
    // --- lpm
    /// A prefix whose text cannot be read.
    #[error("{text:?} is no prefix: {reason}")]
    PrefixSyntax {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A prefix with bits set beyond its length.
    #[error("{given} has bits set beyond its length: write {fixed}")]
    HostBits {
        /// The prefix as given.
        given: String,
        /// The prefix of that length.
        fixed: String,
    },
    /// A prefix longer than an address.
    #[error("a prefix of {len} bits is longer than an address: {max} is the most")]
    PrefixTooLong {
        /// The length as given.
        len: u8,
        /// Bits of an address.
        max: u8,
    },
    /// More routes than fit 32-bit indices, or than memory holds.
    #[error("the route store cannot grow beyond {routes} routes: {reason}")]
    RibFull {
        /// Routes in it.
        routes: usize,
        /// What stopped it.
        reason: String,
    },
    /// A line of a file of prefixes that cannot be taken; none of the file was.
    #[error("line {line}: {reason}")]
    PrefixLine {
        /// Its number, from 1 on.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    // --- acl
    // --- flow, wheel
    // --- meter
    // --- maglev, sketch
}
