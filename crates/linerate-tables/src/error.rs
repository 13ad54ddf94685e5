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
    /// A next hop that means something else.
    #[error("{hop:#x} says that there is no route: choose another number for the next hop")]
    LpmHop {
        /// The next hop as given.
        hop: u32,
    },
    // --- acl
    // --- flow, wheel
    // --- meter
    // --- maglev, sketch
}
