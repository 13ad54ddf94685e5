//! Two-core rows count only while the two cores are near.
//!
//! A VM's CPUs are moved about by its host: a ring round trip between them is 110 to 170 ns for
//! minutes, then 700 ns for minutes. Nothing inside shows or controls it, so the round trip is
//! measured before and after each round, and a round that was not near throughout is repeated.

use std::time::{Duration, Instant};

use crate::error::TaskError;

/// A longer round trip than this means that the cores are far apart.
pub(super) const NEAR_NS: f64 = 300.0;
/// All that one run of `compare` waits for near cores.
pub(super) const PATIENCE: Duration = Duration::from_secs(5 * 60);
const PAUSE: Duration = Duration::from_secs(2);

/// How much longer we are willing to wait for near cores.
pub(super) struct Patience {
    left: Duration,
    /// No waiting after this, so that `--only AREA` ends in time.
    latest: Instant,
}

impl Patience {
    pub(super) fn new(left: Duration, latest: Instant) -> Patience {
        Patience { left, latest }
    }

    fn is_over(&self) -> bool {
        self.left.is_zero() || Instant::now() >= self.latest
    }

    /// Runs `round` until `probe` said near before and after it; `None` when patience ran out
    /// first. Returns what the round gave and the longer of its two round trips in ns.
    pub(super) fn near<T>(
        &mut self,
        mut probe: impl FnMut() -> Result<f64, TaskError>,
        mut round: impl FnMut() -> Result<T, TaskError>,
    ) -> Result<Option<(T, f64)>, TaskError> {
        loop {
            let began = Instant::now();
            let before = probe()?;
            if before <= NEAR_NS {
                let result = round()?;
                let after = probe()?;
                if after <= NEAR_NS {
                    return Ok(Some((result, before.max(after))));
                }
            } else if !self.is_over() {
                std::thread::sleep(PAUSE);
            }
            if self.is_over() {
                return Ok(None);
            }
            self.left = self.left.saturating_sub(began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Patience;

    fn patience(left: Duration) -> Patience {
        Patience::new(left, Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn repeats_a_round_that_ended_far() {
        let mut probes = [120.0, 700.0, 130.0, 140.0].into_iter();
        let mut rounds = 0;
        let result = patience(Duration::from_secs(60))
            .near(
                || Ok(probes.next().unwrap()),
                || {
                    rounds += 1;
                    Ok(rounds)
                },
            )
            .unwrap();
        assert_eq!(result, Some((2, 140.0)));
    }

    #[test]
    fn without_patience_a_far_round_is_unmeasured() {
        let result = patience(Duration::ZERO)
            .near(|| Ok(700.0), || Ok(()))
            .unwrap();
        assert_eq!(result, None);
        let near = patience(Duration::ZERO)
            .near(|| Ok(100.0), || Ok(()))
            .unwrap();
        assert_eq!(near, Some(((), 100.0)));
    }
}
