//! A token bucket in one word: the generic cell rate algorithm (ITU-T I.371), which counts in time.

/// The parameters of buckets of one kind: events a second, and events at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Nanoseconds that an event takes; `None`: no event is allowed.
    gap_ns: Option<u64>,
    /// How far the bucket may run ahead of the time.
    ahead_ns: u64,
}

/// When the bucket will be full again, in nanoseconds; a time in the past means that it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bucket(u64);

impl Rate {
    /// `burst` below 1 counts as 1.
    pub(crate) fn new(per_s: u32, burst: u32) -> Self {
        let gap_ns = (per_s > 0).then(|| 1_000_000_000 / u64::from(per_s));
        Self {
            gap_ns,
            ahead_ns: gap_ns.unwrap_or(0) * u64::from(burst.max(1) - 1),
        }
    }
}

impl Bucket {
    /// Whether the bucket is full.
    pub(crate) fn is_full(self, now_ns: u64) -> bool {
        self.0 <= now_ns
    }

    /// Whether there is a token.
    pub(crate) fn has(self, rate: Rate, now_ns: u64) -> bool {
        rate.gap_ns.is_some() && self.0 <= now_ns.saturating_add(rate.ahead_ns)
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, rate: Rate, now_ns: u64) -> bool {
        let has = self.has(rate, now_ns);
        if let (true, Some(gap_ns)) = (has, rate.gap_ns) {
            self.0 = self.0.max(now_ns).saturating_add(gap_ns);
        }
        has
    }

    /// Puts a token back.
    pub(crate) fn give_back(&mut self, rate: Rate) {
        self.0 = self.0.saturating_sub(rate.gap_ns.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_at_once_and_then_the_rate() {
        let (rate, mut bucket) = (Rate::new(10, 3), Bucket::default());
        let mut at = |now_ns| bucket.take(rate, now_ns);
        assert_eq!([at(5), at(5), at(5), at(5)], [true, true, true, false]);
        assert!(!at(100_000_004) && at(100_000_005) && !at(100_000_006));
        // A long pause fills it, but not beyond the burst.
        let late = 3_600_000_000_000;
        assert_eq!(
            [at(late), at(late), at(late), at(late)],
            [true, true, true, false]
        );
    }

    #[test]
    fn what_is_given_back_is_there_again_and_no_more() {
        let (rate, mut bucket) = (Rate::new(10, 2), Bucket::default());
        let now_ns = 3_600_000_000_000;
        let take = |bucket: &mut Bucket| bucket.take(rate, now_ns);
        assert_eq!([(); 3].map(|()| take(&mut bucket)), [true, true, false]);
        bucket.give_back(rate);
        assert_eq!([(); 2].map(|()| take(&mut bucket)), [true, false]);
        for _ in 0..9 {
            bucket.give_back(rate);
        }
        assert_eq!([(); 3].map(|()| take(&mut bucket)), [true, true, false]);
    }

    #[test]
    fn a_rate_of_zero_allows_nothing() {
        let mut bucket = Bucket::default();
        assert!(!bucket.take(Rate::new(0, 9), 1 << 40) && bucket.is_full(0));
    }
}
