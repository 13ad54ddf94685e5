//! Why a peer was cut off: counted by reason, and told once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a peer did that its protocol forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Violation {
    /// A descriptor names a region that there is none of, or bytes outside of it.
    DescriptorOutside,
    /// A descriptor's length is none that its buffer can have.
    DescriptorLength,
    /// A descriptor's number is none of the ring.
    DescriptorIndex,
    /// A descriptor has flags that exclude each other, or is for the other direction.
    DescriptorFlags,
    /// A chain of descriptors is longer than the ring, or never ends.
    ChainTooLong,
    /// An index is further ahead than the ring is long, or went back.
    RingIndex,
    /// A ring is not whole inside a region, not aligned, or not set up.
    RingOutside,
    /// A region is no memory, too short, overlaps another, or its addresses wrap; or what it says
    /// is in flight cannot be.
    RegionBad,
    /// A message of a wrong length, type or order, or with a number out of range.
    MessageBad,
    /// A message has more descriptors than its type, or none where one belongs, or one twice.
    FilesBad,
    /// What is to be notified through is no eventfd.
    NotEventfd,
    /// The peer did not go on with its negotiation.
    TooSlow,
    /// A file shrank under its mapping.
    MemoryLost,
    /// A log of dirty pages is too short for the memory that it is to be of.
    LogOutside,
}

impl Violation {
    /// All of them, in the order of their counters.
    pub(crate) const ALL: [(Self, &'static str); 14] = [
        (Self::DescriptorOutside, "descriptor_outside"),
        (Self::DescriptorLength, "descriptor_length"),
        (Self::DescriptorIndex, "descriptor_index"),
        (Self::DescriptorFlags, "descriptor_flags"),
        (Self::ChainTooLong, "chain_too_long"),
        (Self::RingIndex, "ring_index"),
        (Self::RingOutside, "ring_outside"),
        (Self::RegionBad, "region_bad"),
        (Self::MessageBad, "message_bad"),
        (Self::FilesBad, "files_bad"),
        (Self::NotEventfd, "not_eventfd"),
        (Self::TooSlow, "too_slow"),
        (Self::MemoryLost, "memory_lost"),
        (Self::LogOutside, "log_outside"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The violations of one port's peers. Any thread counts; there is no hot path here, for each ends
/// a connection.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    counts: [AtomicU64; Violation::ALL.len()],
    last: Mutex<Option<String>>,
}

impl Violations {
    /// Counts one. `detail` says what was seen: `ring 2: head is 3000 ahead of tail, the ring has
    /// 1024 entries`.
    #[cold]
    pub(crate) fn count(&self, violation: Violation, detail: &str) {
        self.counts[violation as usize].fetch_add(1, Ordering::Relaxed);
        let line = format!("the peer was cut off: {} ({detail})", violation.name());
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
    }

    /// Those that happened, for [`PortStats`](linerate_core::port::PortStats).
    pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let named = Violation::ALL.iter().map(|&(_, name)| name).zip(counts);
        named.filter(|&(_, count)| count > 0).collect()
    }

    /// The last one, for [`Port::warning`](linerate_core::port::Port::warning).
    pub(crate) fn warning(&self) -> Option<String> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Forgets what [`warning`](Self::warning) says: the port stops.
    pub(crate) fn forget_warning(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::{Violation, Violations};

    #[test]
    fn violations_are_counted_by_reason_and_a_warning_names_the_last() {
        let violations = Violations::default();
        assert!(violations.read().is_empty() && violations.warning().is_none());
        for (index, (violation, name)) in Violation::ALL.into_iter().enumerate() {
            assert_eq!((violation as usize, violation.name()), (index, name));
            violations.count(violation, "as seen");
        }
        violations.count(Violation::RingIndex, "ring 2");
        let read = violations.read();
        assert_eq!(read.len(), Violation::ALL.len());
        assert!(read.contains(&("ring_index", 2)) && read.contains(&("memory_lost", 1)));
        let warning = violations.warning().unwrap_or_default();
        assert!(warning.contains("ring_index (ring 2)"), "{warning}");
    }
}
