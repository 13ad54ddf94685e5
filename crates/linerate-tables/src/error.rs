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
    // --- acl
    // --- flow, wheel
    // --- meter
    // --- maglev, sketch
}
