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
    /// More timers than a wheel's links can number.
    #[error(
        "timers `{name}`: {asked} asked for, at most {limit} fit one wheel; use several wheels"
    )]
    TooManyTimers {
        /// The wheel.
        name: String,
        /// Timers asked for.
        asked: usize,
        /// The most there can be.
        limit: usize,
    },
    /// Every timer is scheduled.
    #[error("timers `{name}`: all {limit} are scheduled; set it up for more, or cancel some")]
    TimersFull {
        /// The timers.
        name: String,
        /// How many there are.
        limit: usize,
    },
    /// A flow table of an impossible shape.
    #[error("flow table `{name}`: {reason}")]
    Flow {
        /// The table.
        name: String,
        /// What is wrong, and what would do.
        reason: String,
    },
    // --- meter
    /// A meter's rates or bursts that its RFC, or the clock, rules out.
    #[error("meter {kind}: {reason}")]
    Meter {
        /// The kind of meter, and its RFC.
        kind: &'static str,
        /// Which parameter, what is wrong with it, and what would do.
        reason: String,
    },
    // --- maglev, sketch
    /// A Maglev table that cannot be: its size or its backends.
    #[error("maglev: {reason}")]
    Maglev {
        /// What is wrong, and what would do.
        reason: String,
    },
    /// A sketch of an impossible shape.
    #[error("sketch `{name}`: {reason}")]
    Sketch {
        /// The sketch.
        name: String,
        /// What is wrong, and what would do.
        reason: String,
    },
}
