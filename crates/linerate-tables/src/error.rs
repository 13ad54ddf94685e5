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
    /// A limit that no table can have.
    #[error("{name}: a limit of {limit} entries is out of range: give 1 to 268435456")]
    ExactLimit {
        /// Whose table.
        name: String,
        /// The limit that was asked for.
        limit: usize,
    },
    /// The table holds as many entries as it may.
    #[error(
        "{name}: full at its limit of {limit} entries: remove some, or configure a higher limit"
    )]
    ExactFull {
        /// Whose table.
        name: String,
        /// The configured limit.
        limit: usize,
    },
    /// Too many keys fall into the same buckets, which does not happen under a secret seed.
    #[error(
        "{name}: too many of {entries} keys collide, so its seed is known to whoever chose them: \
         build the table anew with another seed"
    )]
    ExactCollisions {
        /// Whose table.
        name: String,
        /// How many entries it holds.
        entries: usize,
    },
    // --- lpm
    // --- acl
    // --- flow, wheel
    // --- meter
    // --- maglev, sketch
}
