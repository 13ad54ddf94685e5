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
    #[error("an RSS key of {given} bytes; it takes 40 to 256, NICs take 40, 48 or 52")]
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
        "the hash is not affine over GF(2): input {input:02x?} gives {hash:#010x}, but its bits \
         add up to {affine:#010x}; choose Toeplitz or a CRC"
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
        "a RETA of {given} entries; it takes a power of two up to {most}, such as {below} or \
         {above}"
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
        "no port leads to queue {queue}: with this key the free bits decide {rank} of the {bits} \
         bits that index the RETA; free more bits, or use another key or tuple"
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
        "pairs of an even port and the next have bit 0 to themselves; keep it with \
         `PortField::keeping(1)`"
    )]
    RssPairs,
    /// Neighbouring ports that always part.
    #[error(
        "no even port and its next both lead to queue {queue}: bit 0 of the port moves every entry \
         of that queue to another; fill the RETA in another order, or use another key"
    )]
    RssNoPair {
        /// The queue wanted.
        queue: u16,
    },
    /// An unknown NIC family.
    #[error("no RSS profile `{name}`; use one of {}", names.join(", "))]
    RssProfile {
        /// The name asked for.
        name: String,
        /// The names there are.
        names: Vec<&'static str>,
    },
    /// A NIC whose key is random, and was not given.
    #[error(
        "profile {profile} draws its key of {bytes} bytes at random; give the key that `ethtool \
         -x` shows"
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
        "profile {profile} does not hash the ports of protocol {protocol}, so no port changes the \
         queue; choose among addresses, or have the NIC hash ports (`ethtool -N IFACE rx-flow-hash \
         udp4 sdfn`)"
    )]
    RssPortsNotHashed {
        /// The NIC family.
        profile: &'static str,
        /// IP protocol.
        protocol: u8,
    },
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
    /// More memory than a routing table may have.
    #[error(
        "the {what} would need {need_bytes} bytes and may have {budget_bytes}: raise its budget"
    )]
    LpmBudget {
        /// Which of its parts.
        what: &'static str,
        /// Bytes that the change would come to.
        need_bytes: usize,
        /// Bytes allowed.
        budget_bytes: usize,
    },
    /// A lookup table that is shared does not grow, and what it was made with is used up.
    #[error(
        "the IPv6 routing table's {room} {what} are all in use, and it cannot grow: make it for \
         more routes (`routes` and `budget_bytes` of its configuration)"
    )]
    LpmRoom {
        /// What there are too few of.
        what: &'static str,
        /// How many there are.
        room: usize,
    },
    /// A number of VRFs that cannot be.
    #[error("a routing table has 1 to {max} VRFs, not {vrfs}")]
    LpmVrfs {
        /// The number as given.
        vrfs: u32,
        /// The most there can be.
        max: u32,
    },
    /// A route for a VRF that does not exist.
    #[error("there is no VRF {vrf}: the routing table was made with {vrfs}, numbered from 0")]
    LpmNoVrf {
        /// The VRF as given.
        vrf: u32,
        /// How many there are.
        vrfs: u32,
    },
    /// A next hop with a reserved value.
    #[error("{hop:#x} says that there is no route: choose another number for the next hop")]
    LpmHop {
        /// The next hop as given.
        hop: u32,
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
    /// A rule has an impossible condition.
    #[error("rule of priority {priority}: {reason}")]
    AclRule {
        /// Its priority.
        priority: u32,
        /// Why not.
        reason: crate::acl::RuleError,
    },
    /// A rule's match and categories are those of another: one of the two could never win.
    #[error(
        "rule of priority {priority} asks what the rule of priority {other} asks: remove that first"
    )]
    AclDuplicate {
        /// The new rule's priority.
        priority: u32,
        /// The priority of the one in the table.
        other: u32,
    },
    /// There is no rule to remove or to count.
    #[error("no rule with this match is in categories {categories:#x}: name all it was added with")]
    AclNoSuchRule {
        /// The categories asked for.
        categories: u16,
    },
    /// The table would exceed its memory budget.
    #[error(
        "an access list of {rules} rules may need {needed} bytes, its budget is {budget}: raise \
         it, or use fewer rules"
    )]
    AclBudget {
        /// How many rules there would be.
        rules: usize,
        /// What they may need.
        needed: usize,
        /// What there may be.
        budget: usize,
    },
    /// A line of a rule file is not a rule; nothing was loaded.
    #[error("line {line}: {reason}")]
    AclFile {
        /// The line's number, the first being 1.
        line: usize,
        /// Why it is not.
        reason: crate::acl::LineError,
    },
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
