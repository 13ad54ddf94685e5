//! What can go wrong while setting up. The hot path returns counts instead.

/// Why memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemError {
    /// The one address range of the process could not be reserved.
    #[error(
        "cannot reserve an address range of at least 1 GiB: {source}; raise the limit with `ulimit \
         -v unlimited`"
    )]
    Reserve {
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The reserved range has no gap left that is large enough.
    #[error(
        "no {bytes} bytes left in the reserved address range of {range_bytes} bytes; use fewer or \
         smaller pools"
    )]
    RangeFull {
        /// Bytes asked for.
        bytes: usize,
        /// Size of the whole range.
        range_bytes: usize,
    },
    /// The kernel refused the pages.
    #[error("cannot map {bytes} bytes of {pages} for `{name}`: {source}; {fix}")]
    Map {
        /// Whose memory it was to be.
        name: String,
        /// Bytes asked for.
        bytes: usize,
        /// Kind of page asked for.
        pages: String,
        /// The kernel's error.
        source: std::io::Error,
        /// What to do about it.
        fix: String,
    },
    /// What a peer offered is no memory to share.
    #[error("`{name}` is not mapped: {reason}")]
    Peer {
        /// Whose it is.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A pool was asked for with an impossible shape.
    #[error("pool `{name}`: {reason}")]
    PoolShape {
        /// The pool.
        name: String,
        /// What is wrong, and the legal values.
        reason: String,
    },
}
