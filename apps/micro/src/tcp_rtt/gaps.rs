//! Times in which a CPU was not a thread's own, as its own clock shows them: what the kernel does
//! not count, such as what a hypervisor takes, is in them, too.

use std::sync::atomic::{AtomicU64, Ordering};

use linerate_core::env::GAP_NS;

/// A packet costs a third of it.
const PACKET_NS: u64 = 1_000;
/// A gap of so much is no short interrupt.
const LONG_NS: u64 = 10_000;
/// Gaps that are remembered. Where more have come since a period began, nothing can be said of it.
const GAPS: usize = 16;

/// The last gaps of a thread. Written by that thread alone.
#[derive(Default)]
pub(super) struct Gaps {
    from_ns: [AtomicU64; GAPS],
    until_ns: [AtomicU64; GAPS],
    count: AtomicU64,
    /// Until when all are here.
    seen_ns: AtomicU64,
}

impl Gaps {
    /// A turn is over that had so many packets. Returns whether there was a gap in it.
    pub(super) fn note(&self, began_ns: u64, ended_ns: u64, packets: usize) -> bool {
        let has_gap = ended_ns - began_ns > GAP_NS + PACKET_NS * packets as u64;
        if has_gap {
            let count = self.count.load(Ordering::Relaxed);
            let at = (count % GAPS as u64) as usize;
            self.from_ns[at].store(began_ns, Ordering::Relaxed);
            self.until_ns[at].store(ended_ns, Ordering::Relaxed);
            self.count.store(count + 1, Ordering::Relaxed);
        }
        self.seen_ns.store(ended_ns, Ordering::Release);
        has_gap
    }

    /// Whether all gaps before then are here: a turn is noted when what it sent has gone.
    pub(super) fn have_seen(&self, ns: u64) -> bool {
        self.seen_ns.load(Ordering::Acquire) > ns
    }

    /// How many there have been.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether one lies in a period, before which there had been `before`; or may have, since not
    /// all that have come since are remembered.
    pub(super) fn touch(&self, period: &Period, before: u64) -> bool {
        let mut gaps = self.from_ns.iter().zip(&self.until_ns);
        let is_touched = gaps.any(|(from_ns, until_ns)| {
            period.from_ns < until_ns.load(Ordering::Relaxed)
                && from_ns.load(Ordering::Relaxed) < period.until_ns
        });
        // The thread may be writing the next one meanwhile, in the place of the oldest.
        is_touched || self.count() - before >= GAPS as u64
    }
}

/// From when the first of some questions was to be asked until none was under way.
pub(super) struct Period {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    pub(super) questions: usize,
    /// How many gaps the client's thread and the server's had seen before.
    pub(super) before: [u64; 2],
}

impl Period {
    /// Without a question yet, after so many gaps.
    pub(super) fn after(before: [u64; 2]) -> Self {
        Self {
            from_ns: u64::MAX,
            until_ns: 0,
            questions: 0,
            before,
        }
    }
}

/// All gaps of a thread while one of the two was asked.
#[derive(Clone, Copy, Default)]
pub(super) struct Lost {
    count: u64,
    /// Of those, the ones of [`LONG_NS`] and more.
    long: u64,
    lost_ns: u64,
    pub(super) longest_ns: u64,
    of_ns: u64,
}

impl Lost {
    /// A turn of so long is over.
    pub(super) fn add(&mut self, turn_ns: u64, has_gap: bool) {
        self.of_ns += turn_ns;
        if has_gap {
            self.count += 1;
            self.long += u64::from(turn_ns >= LONG_NS);
            self.lost_ns += turn_ns;
            self.longest_ns = self.longest_ns.max(turn_ns);
        }
    }

    /// Gaps a second.
    pub(super) fn per_s(&self) -> f64 {
        self.count as f64 * 1e9 / self.of_ns.max(1) as f64
    }

    /// Long ones a second: those that no interrupt of the kernel takes.
    pub(super) fn long_per_s(&self) -> f64 {
        self.long as f64 * 1e9 / self.of_ns.max(1) as f64
    }

    /// The share of the time in them.
    pub(super) fn share(&self) -> f64 {
        self.lost_ns as f64 / self.of_ns.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_another_s_if_a_gap_lies_in_it() {
        let gaps = Gaps::default();
        let touch = |from_ns, until_ns| {
            let period = Period {
                from_ns,
                until_ns,
                questions: 1,
                before: [gaps.count(); 2],
            };
            gaps.touch(&period, period.before[0])
        };
        assert!(!gaps.note(0, 1000, 0));
        // Ten packets explain 12 us, and no more.
        assert!(!gaps.note(1000, 13_000, 10));
        assert!(gaps.have_seen(12_999) && !gaps.have_seen(13_000) && !touch(0, 13_000));
        assert!(gaps.note(13_000, 25_001, 10));
        assert!(touch(0, 13_001) && touch(25_000, 26_000) && touch(0, 30_000));
        assert!(!touch(0, 13_000) && !touch(25_001, 30_000));
        // Only the last ones are known.
        for number in 0..2 * GAPS as u64 {
            let at_ns = 1_000_000 * (1 + number);
            gaps.note(at_ns, at_ns + 10_000, 0);
        }
        assert!(!touch(1_000_000, 1_000_001) && touch(32_000_000, 32_000_001));
    }

    #[test]
    fn of_a_period_with_more_gaps_since_than_are_remembered_nothing_is_said() {
        let gaps = Gaps::default();
        let period = Period {
            from_ns: 0,
            until_ns: 1000,
            questions: 1,
            before: [gaps.count(); 2],
        };
        for number in 1..=GAPS as u64 {
            assert!(!gaps.touch(&period, period.before[0]));
            gaps.note(1_000_000 * number, 1_000_000 * number + 10_000, 0);
        }
        assert!(gaps.touch(&period, period.before[0]));
    }

    #[test]
    fn what_was_lost_is_told_by_count_share_and_the_longest() {
        let mut lost = Lost::default();
        for turn_ns in [1_000, 3_000, 5_000, 1_000] {
            lost.add(turn_ns, turn_ns > 2_000);
        }
        assert_eq!(
            (lost.per_s(), lost.share(), lost.longest_ns),
            (2e5, 0.8, 5_000)
        );
    }
}
