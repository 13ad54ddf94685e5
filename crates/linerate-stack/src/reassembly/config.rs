//! Configuration and results of a reassembler.

use linerate_core::packet::Packet;
use linerate_tables::exact::Seed;

use super::Refusal;

/// Limits of a reassembler.
#[derive(Clone, Debug)]
pub struct Config {
    /// Limit of incomplete datagrams.
    pub max_datagrams: u32,
    /// Limit of these from one source, besides the newest of all.
    pub max_per_source: u32,
    /// Limit of held packet memory in bytes, counted in whole slots.
    pub max_bytes: usize,
    /// How long an IPv4 datagram may take from its first fragment on. RFC 791 3.2 suggests 15 s,
    /// RFC 1122 3.3.2 60 to 120 s; Linux has 30 s, and so has the default.
    pub timeout4_ns: u64,
    /// The same for IPv6: 60 s (RFC 8200 4.5).
    pub timeout6_ns: u64,
    /// Key of the hashes.
    pub seed: Seed,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_datagrams: 1024,
            max_per_source: 128,
            max_bytes: 16 << 20,
            timeout4_ns: 30_000_000_000,
            timeout6_ns: 60_000_000_000,
            seed: Seed::random(),
        }
    }
}

/// The outcome for a packet.
#[derive(Debug)]
pub enum Outcome {
    /// A fragment, which waits for the others.
    Held,
    /// A whole datagram: completed by this fragment, or the packet itself if it was not a fragment.
    /// [`Meta::l3_offset`](linerate_core::packet::Meta::l3_offset) says where its header is; the
    /// rest of a datagram's metadata is the first fragment's, without its checksum flags.
    Whole(Packet),
    /// Dropped for this reason; the caller answers and frees the packet.
    Dropped(Refusal, Packet),
}

/// Counts since the start. `fragments` are all in `reassembled`, in `dropped`, or [held](Held).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that were not fragments, and IPv6 atomic fragments.
    pub passed: u64,
    /// Received fragments.
    pub fragments: u64,
    /// Fragments that became part of whole datagrams.
    pub reassembled: u64,
    /// Datagrams made of them.
    pub datagrams: u64,
    /// Fragments dropped, by [`Refusal`] as index: those given back, and those that were held for a
    /// datagram that was abandoned.
    pub dropped: [u64; Refusal::ALL.len()],
}

/// What is held at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Incomplete datagrams.
    pub datagrams: usize,
    /// Their received fragments.
    pub fragments: u64,
    /// Bytes of their slots.
    pub bytes: usize,
}
