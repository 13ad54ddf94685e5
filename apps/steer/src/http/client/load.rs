//! When requests leave: at once, or by a schedule that does not wait for answers.

/// How requests come about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Each connection asks again when it has its answer (a closed loop).
    Closed,
    /// So many a second, whatever has become of those before (an open loop). Where all connections
    /// are busy, requests wait for one, and their latency counts from when they should have left.
    Open {
        /// Requests a second.
        per_s: f64,
        /// What is between two.
        arrivals: Arrivals,
    },
}

/// What is between two requests of an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Always the same time.
    #[default]
    Even,
    /// As of many users who know nothing of each other: exponentially distributed times.
    Poisson,
}

/// The times at which requests should leave.
#[derive(Clone, Debug)]
pub struct Schedule {
    gap_ns: f64,
    arrivals: Arrivals,
    start_ns: u64,
    /// The next one's time after the start. As a fraction its error stays below a nanosecond for
    /// months.
    next_ns: f64,
    state: u64,
}

impl Schedule {
    /// From `start_ns` on; `seed` tells lcores apart. `None` for a closed loop.
    pub fn new(load: Load, start_ns: u64, seed: u64) -> Option<Self> {
        let Load::Open { per_s, arrivals } = load else {
            return None;
        };
        let mut schedule = Self {
            gap_ns: 1e9 / per_s.max(1e-3),
            arrivals,
            start_ns,
            next_ns: 0.0,
            // A state of 0 would stay so.
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        schedule.advance();
        Some(schedule)
    }

    /// When the next request should leave, in nanoseconds.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.next_ns as u64)
    }

    /// That one has left.
    #[inline]
    pub fn advance(&mut self) {
        self.next_ns += match self.arrivals {
            Arrivals::Even => self.gap_ns,
            Arrivals::Poisson => -self.gap_ns * self.uniform().ln(),
        };
    }

    /// About how many should have left by now and have not.
    pub fn waiting(&self, now_ns: u64) -> u64 {
        (now_ns.saturating_sub(self.due_ns()) as f64 / self.gap_ns) as u64
    }

    /// Above 0, up to 1 (xorshift, Marsaglia 2003).
    fn uniform(&mut self) -> f64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((self.state >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_keeps_its_rate() {
        for arrivals in [Arrivals::Even, Arrivals::Poisson] {
            let load = Load::Open {
                per_s: 10_000.0,
                arrivals,
            };
            let mut schedule = Schedule::new(load, 5_000, 7).unwrap();
            let (mut last, mut squares) = (5_000, 0.0);
            for _ in 0..100_000 {
                let gap = schedule.due_ns() - last;
                last = schedule.due_ns();
                squares += (gap as f64 / 1e5 - 1.0).powi(2);
                schedule.advance();
            }
            let rate = 100_000.0 * 1e9 / (last - 5_000) as f64;
            assert!((rate - 10_000.0).abs() < 200.0, "{arrivals:?}: {rate}");
            // The variance of an exponential distribution is the square of its mean.
            let variance = squares / 100_000.0;
            let expected = if arrivals == Arrivals::Even { 0.0 } else { 1.0 };
            assert!(
                (variance - expected).abs() < 0.1,
                "{arrivals:?}: {variance}"
            );
        }
    }

    #[test]
    fn what_should_have_left_is_known() {
        let load = Load::Open {
            per_s: 1000.0,
            arrivals: Arrivals::Even,
        };
        let schedule = Schedule::new(load, 0, 1).unwrap();
        assert_eq!(schedule.due_ns(), 1_000_000);
        assert_eq!(schedule.waiting(500_000), 0);
        assert_eq!(schedule.waiting(11_000_000), 10);
        assert!(Schedule::new(Load::Closed, 0, 1).is_none());
    }
}
