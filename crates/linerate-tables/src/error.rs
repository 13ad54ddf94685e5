//! What can go wrong while a table is set up or changed. A lookup never fails.

/// Why a table could not be made or changed; the table is as it was before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Memory for the table could not be had.
    #[error(transparent)]
    Memory(#[from] linerate_core::MemError),
    // --- rss
    /// A Toeplitz key that is too short or too long.
    #[error("an RSS key of {given} bytes; it takes 40 to 256, NICs take 40 or 52")]
    RssKeyBytes {
        /// Its length.
        given: usize,
    },
    /// A hash of no input, or of more than anybody hashes.
    #[error("a hash of {given} bytes cannot be inverted; give inputs of 1 to {most} bytes")]
    RssInputBytes {
        /// The length asked for.
        given: usize,
        /// The longest.
        most: usize,
    },
    /// A function that is not affine over GF(2), so that no linear algebra inverts it.
    #[error(
        "the hash is not affine over GF(2): input {input:02x?} gives {hash:#010x}, but its bits add up to {affine:#010x}; choose Toeplitz or a CRC"
    )]
    RssNotAffine {
        /// An input that shows it.
        input: Vec<u8>,
        /// What the function gives.
        hash: u32,
        /// What its bits add up to.
        affine: u32,
    },
    // --- exact
    // --- lpm
    // --- acl
    // --- flow, wheel
    // --- meter
    // --- maglev, sketch
}
