//! A record's kind and times in one word.
//!
//! | bits | what |
//! |---|---|
//! | 31, 30 | kind: 0 for a free place |
//! | 29 | whether the connection has time stamps |
//! | 28 to 8 | when it began to linger, or was restarted: in steps of 2^24 ns (17 ms) |
//! | 7 to 0 | when it last answered a segment without data: in steps of 2^27 ns (134 ms) |
//!
//! The first time goes around in 9.8 hours and lies at most half of that back, since no record
//! lives longer than 4 hours and the table expires them. It is rounded down and the duration up, so
//! a record is never over early, and at most two steps late. The second goes around in 34 seconds:
//! an answer may be left out for half a second 34 seconds after the last one, which harms nobody.

use super::super::rate::OUT_OF_WINDOW_INTERVAL_NS;
use super::Kind;

/// Steps of the first time.
const SINCE_SHIFT: u32 = 24;
const SINCE_BITS: u32 = 21;
const SINCE_MASK: u32 = (1 << SINCE_BITS) - 1;
/// Steps of the second.
const ANSWERED_SHIFT: u32 = 27;
const ANSWERED_MASK: u32 = 0xff;
/// Steps between two answers.
const ANSWER_STEPS: u32 = OUT_OF_WINDOW_INTERVAL_NS.div_ceil(1 << ANSWERED_SHIFT) as u32;

const KIND_SHIFT: u32 = 30;
const HAS_TS: u32 = 1 << 29;
const SINCE_AT: u32 = 8;

/// The longest duration: half of what the first time can express is more than this.
const STEPS_MAX: u32 = ((4 * 3_600_000_000_000_u64) >> SINCE_SHIFT) as u32;
const _: () = assert!(STEPS_MAX < (SINCE_MASK >> 1));

/// The word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u32);

/// How long a record lives, in steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duration(u32);

impl Duration {
    /// At most 4 hours.
    pub(super) fn from_ns(ns: u64) -> Self {
        let steps = ns.div_ceil(1 << SINCE_SHIFT);
        Self(steps.min(STEPS_MAX.into()) as u32)
    }
}

impl Stamp {
    /// A place without a record.
    pub(super) const FREE: Self = Self(0);

    pub(super) fn new(kind: Kind, has_ts: bool, now_ns: u64) -> Self {
        let kind = match kind {
            Kind::TimeWait => 1,
            Kind::FinWait2 => 2,
        };
        let ts = if has_ts { HAS_TS } else { 0 };
        // It may answer at once.
        let answered = answered_at(now_ns).wrapping_sub(ANSWER_STEPS) & ANSWERED_MASK;
        Self(kind << KIND_SHIFT | ts | since_at(now_ns) << SINCE_AT | answered)
    }

    /// `None` for a free place.
    #[inline]
    pub(super) fn kind(self) -> Option<Kind> {
        match self.0 >> KIND_SHIFT {
            1 => Some(Kind::TimeWait),
            2 => Some(Kind::FinWait2),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn has_ts(self) -> bool {
        self.0 & HAS_TS != 0
    }

    /// Begins anew, as TIME-WAIT.
    pub(super) fn restart(&mut self, now_ns: u64) {
        let answered = self.0 & ANSWERED_MASK;
        self.0 = Self::new(Kind::TimeWait, self.has_ts(), now_ns).0 & !ANSWERED_MASK | answered;
    }

    /// Whether a segment without data may be answered; noted if so.
    pub(super) fn may_answer(&mut self, now_ns: u64) -> bool {
        let now = answered_at(now_ns);
        let may = now.wrapping_sub(self.0) & ANSWERED_MASK >= ANSWER_STEPS;
        if may {
            self.0 = self.0 & !ANSWERED_MASK | now;
        }
        may
    }

    /// Steps since the beginning. A clock that is a moment behind is at the beginning.
    #[inline]
    fn age(self, now_ns: u64) -> u32 {
        let age = since_at(now_ns).wrapping_sub(self.0 >> SINCE_AT) & SINCE_MASK;
        if age > SINCE_MASK >> 1 { 0 } else { age }
    }

    #[inline]
    pub(super) fn is_over(self, after: Duration, now_ns: u64) -> bool {
        self.age(now_ns) > after.0
    }

    /// The first nanosecond at which it is over, as seen from one at which it may not be.
    pub(super) fn over_at_ns(self, after: Duration, now_ns: u64) -> u64 {
        let began = (now_ns >> SINCE_SHIFT).saturating_sub(self.age(now_ns).into());
        (began + u64::from(after.0) + 1).saturating_mul(1 << SINCE_SHIFT)
    }

    pub(super) fn is_older_than_1_s(self, now_ns: u64) -> bool {
        self.is_over(Duration::from_ns(1_000_000_000), now_ns)
    }
}

#[inline]
fn since_at(now_ns: u64) -> u32 {
    (now_ns >> SINCE_SHIFT) as u32 & SINCE_MASK
}

#[inline]
fn answered_at(now_ns: u64) -> u32 {
    (now_ns >> ANSWERED_SHIFT) as u32 & ANSWERED_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_place_is_free_until_it_is_taken() {
        assert_eq!(Stamp::FREE.kind(), None);
        for kind in [Kind::TimeWait, Kind::FinWait2] {
            for has_ts in [false, true] {
                let mut stamp = Stamp::new(kind, has_ts, u64::MAX);
                assert_eq!((stamp.kind(), stamp.has_ts()), (Some(kind), has_ts));
                stamp.restart(0);
                assert_eq!(
                    (stamp.kind(), stamp.has_ts()),
                    (Some(Kind::TimeWait), has_ts)
                );
            }
        }
    }

    #[test]
    fn answers_are_half_a_second_apart() {
        for start in [0, 7 * S, u64::MAX - 3 * S] {
            let mut stamp = Stamp::new(Kind::TimeWait, true, start);
            assert!(stamp.may_answer(start) && !stamp.may_answer(start + S / 4));
            stamp.restart(start + S / 4);
            assert!(!stamp.may_answer(start + S * 2 / 5) && stamp.may_answer(start + S));
            assert!(!stamp.may_answer(start + S + S / 4));
            assert!(stamp.may_answer(start + 2 * S));
        }
    }

    proptest! {
        /// Never early, and at most two steps late.
        #[test]
        fn a_record_is_over_when_its_time_is(start in 0..1_u64 << 60, after in 0..14_400 * S) {
            let stamp = Stamp::new(Kind::TimeWait, false, start);
            let duration = Duration::from_ns(after);
            let over = stamp.over_at_ns(duration, start);
            prop_assert!((after + 1..=after + (2 << SINCE_SHIFT)).contains(&(over - start)));
            prop_assert!(!stamp.is_over(duration, over - 1) && stamp.is_over(duration, over));
            prop_assert_eq!(stamp.over_at_ns(duration, over - 1), over);
            prop_assert!(!stamp.is_over(duration, start.saturating_sub(S)));
        }

        #[test]
        fn any_times_are_times(start: u64, now: u64, after: u64) {
            let mut stamp = Stamp::new(Kind::FinWait2, false, start);
            let duration = Duration::from_ns(after);
            let _ = (stamp.is_over(duration, now), stamp.over_at_ns(duration, now));
            let _ = stamp.may_answer(now);
        }
    }
}
