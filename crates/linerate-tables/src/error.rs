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
    /// A redirection table of a size that no hash can index.
    #[error(
        "a RETA of {given} entries; it takes a power of two up to {most}, such as {below} or {above}"
    )]
    RetaSize {
        /// Entries asked for.
        given: usize,
        /// The next legal size below.
        below: usize,
        /// The next legal size above.
        above: usize,
        /// The largest legal size.
        most: usize,
    },
    /// No queue, or more queues than entries.
    #[error("{queues} queues behind a RETA of {size} entries; use 1 to {size} queues")]
    RetaQueues {
        /// Entries.
        size: usize,
        /// Queues asked for.
        queues: usize,
    },
    /// The free port lies outside of what is hashed.
    #[error("a port at byte {byte} of a hash over {input_bytes} bytes; free a port that is hashed")]
    RssField {
        /// Where the port begins.
        byte: usize,
        /// What the hash covers.
        input_bytes: usize,
    },
    /// A tuple without the port that is free.
    #[error("a tuple of {given} bytes has no port to choose; give {needed} bytes or more")]
    RssTuple {
        /// Its length.
        given: usize,
        /// The least that holds the port.
        needed: usize,
    },
    /// No RETA entry leads to the queue.
    #[error("no RETA entry leads to queue {queue}; the table uses queues below {queues}")]
    RssNoQueue {
        /// The queue wanted.
        queue: u16,
        /// One more than the highest queue in the table.
        queues: usize,
    },
    /// No port leads to the queue.
    #[error(
        "no port leads to queue {queue}: with this key the free bits decide {rank} of the {bits} bits that index the RETA; free more bits, or use another key or tuple"
    )]
    RssUnreachable {
        /// The queue wanted.
        queue: u16,
        /// Rank of the free bits.
        rank: u32,
        /// Bits that index the RETA.
        bits: u32,
    },
    /// Pairs of neighbouring ports of which the parity is free.
    #[error(
        "pairs of an even port and the next have bit 0 to themselves; keep it with `PortField::keeping(1)`"
    )]
    RssPairs,
    /// A NIC family that nobody described.
    #[error("no RSS profile `{name}`; use one of {}", names.join(", "))]
    RssProfile {
        /// The name asked for.
        name: String,
        /// The names there are.
        names: Vec<&'static str>,
    },
    /// A NIC whose key is drawn at random, and nobody gave it.
    #[error(
        "profile {profile} draws its key of {bytes} bytes at random; give the key that `ethtool -x` shows"
    )]
    RssKeyUnknown {
        /// The NIC family.
        profile: &'static str,
        /// The key's length.
        bytes: usize,
    },
    /// A key of a length that this NIC does not take.
    #[error("a key of {given} bytes for profile {profile}; it takes {needed}")]
    RssKeyOf {
        /// The NIC family.
        profile: &'static str,
        /// The key's length.
        given: usize,
        /// The length that it takes.
        needed: usize,
    },
    /// Ports that do not change the hash cannot be chosen by it.
    #[error(
        "profile {profile} does not hash the ports of protocol {protocol}, so no port changes the queue; choose among addresses, or have the NIC hash ports (`ethtool -N IFACE rx-flow-hash udp4 sdfn`)"
    )]
    RssPortsNotHashed {
        /// The NIC family.
        profile: &'static str,
        /// IP protocol.
        protocol: u8,
    },
    // --- exact
    // --- lpm
    // --- acl
    // --- flow, wheel
    // --- meter
    // --- maglev, sketch
}
