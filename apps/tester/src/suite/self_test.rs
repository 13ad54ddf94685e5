//! The generator by itself: its ports joined to each other by a wire of the same kind, no device.
//! Its result there is an upper limit for any device behind it.

use std::time::Duration;

use linerate_core::env::Clock;
use rustix::time::{ClockId, clock_gettime};

use super::tester::SessionTester;
use crate::method::Load;
use crate::report::SelfTest;
use linerate_appliance::error::Error;

/// The clock is compared with the kernel's for at least this long.
const CALIBRATION_NS: u64 = 1_000_000_000;

/// How far a clock is off CLOCK_MONOTONIC_RAW, from when it was made.
pub(super) struct ClockCheck {
    clock: Clock,
    began: (u64, u64),
}

impl ClockCheck {
    pub(super) fn begin(clock: Clock) -> Self {
        Self {
            clock,
            began: both(clock),
        }
    }

    /// Parts per million, once the least time has passed.
    pub(super) fn error_ppm(&self) -> f64 {
        loop {
            let (ticks, ns) = both(self.clock);
            let passed = ns - self.began.1;
            if passed >= CALIBRATION_NS {
                let seen = self.clock.ns(ticks - self.began.0);
                return (seen as f64 / passed as f64 - 1.0) * 1e6;
            }
            std::thread::sleep(Duration::from_nanos(CALIBRATION_NS - passed));
        }
    }
}

/// Ticks and nanoseconds at one moment: the closest of several readings.
fn both(clock: Clock) -> (u64, u64) {
    let read = |_| {
        let before = clock.now();
        let time = clock_gettime(ClockId::MonotonicRaw);
        let width = clock.now().saturating_sub(before);
        let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        (width, before + width / 2, ns)
    };
    let closest = (0..16).map(read).min();
    closest.map_or((0, 0), |(_, ticks, ns)| (ticks, ns))
}

/// The generator's maximum at one size, and at half of that its pacing error and the path's
/// latency.
pub(super) fn one(
    tester: &mut SessionTester,
    frame_bytes: usize,
    duration: Duration,
    clock_error_ppm: f64,
) -> Result<SelfTest, Error> {
    tester.with(|running| {
        let load = Load {
            frame_bytes,
            duration,
            ..Load::default()
        };
        let (most, _) = running.offer(&load)?;
        let max_pps = most.trial.received as f64 / most.trial.seconds;
        // The maximum ignores the line rate; an asked rate does not.
        let half = running.at_most_line(Load {
            pps: Some((max_pps / 2.0).max(1.0)),
            ..load
        });
        let (half, snapshot) = running.offer(&half)?;
        let errors = snapshot.ports.iter().map(|port| port.departure_error);
        Ok(SelfTest {
            stand_in: None,
            frame_bytes,
            max_pps,
            clock_error_ppm,
            pacing_error_p99_ns: errors.map(|error| error.p99_ns).fold(0.0, f64::max),
            latency: half.latency,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_held_against_the_kernel_s_for_a_second() {
        let check = ClockCheck::begin(Clock::monotonic("a test"));
        let begun = std::time::Instant::now();
        let ppm = check.error_ppm();
        assert!(begun.elapsed() >= Duration::from_millis(990));
        // It is the same clock, so the difference is only the time between the two readings.
        assert!(ppm.abs() < 1000.0, "{ppm}");
    }
}
