//! Time: ticks of the invariant TSC, calibrated against CLOCK_MONOTONIC_RAW.
//!
//! Where the TSC is not reliable the clock falls back to `clock_gettime` (a tick is then one
//! nanosecond) and [`Clock::source`] says why. A clock is a small value: calibrate one at start,
//! copy it to every lcore.
#![allow(unsafe_code)]

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::Tree;

/// Converts between ticks and nanoseconds, and reads the time in ticks.
///
/// ```
/// use linerate_core::env::Clock;
/// let clock = Clock::calibrate();
/// let start = clock.now();
/// let elapsed_ns = clock.ns(clock.now().saturating_sub(start));
/// assert!(elapsed_ns < 1_000_000_000);
/// println!("{}", clock.source());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    tsc: bool,
    /// Nanoseconds per tick, and ticks per nanosecond, times 2^48: below 1e-9 off for any TSC
    /// between 1 MHz and 60 GHz.
    ns_per_tick: u64,
    ticks_per_ns: u64,
    source: ClockSource,
}

/// Where a clock's ticks come from, and how well they are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClockSource {
    /// The invariant time stamp counter.
    Tsc {
        /// Its rate.
        mhz: f64,
        /// The bound on the rate's error against CLOCK_MONOTONIC_RAW, in parts per million.
        error_ppm: f64,
    },
    /// `clock_gettime(CLOCK_MONOTONIC_RAW)`, one tick per nanosecond.
    Monotonic {
        /// Why the TSC is not used.
        reason: &'static str,
    },
}

const FRACTION_BITS: u32 = 48;

/// How long each of the two calibration intervals lasts at least: 16 ms in all.
const INTERVAL: Duration = Duration::from_millis(8);

impl Clock {
    /// Calibrates the TSC (about 16 ms, asleep), or falls back.
    pub fn calibrate() -> Self {
        Self::calibrate_for(2 * INTERVAL)
    }

    /// As [`Clock::calibrate`], asleep for so long: a second makes the rate's error so small that
    /// figures may be quoted (well below 1 ppm). What is shorter than [`Clock::calibrate`] takes as
    /// long.
    pub fn calibrate_for(time: Duration) -> Self {
        let interval = INTERVAL.max(time / 2);
        match tsc_usable(&Tree::machine()).and_then(|()| calibrate_tsc(interval)) {
            Ok(clock) => clock,
            Err(reason) => Self::monotonic(reason),
        }
    }

    /// The fallback: nanoseconds of `clock_gettime`. [`Clock::source`] shows `reason`.
    pub fn monotonic(reason: &'static str) -> Self {
        let one = 1 << FRACTION_BITS;
        Self {
            tsc: false,
            ns_per_tick: one,
            ticks_per_ns: one,
            source: ClockSource::Monotonic { reason },
        }
    }

    /// The time in ticks, from an arbitrary start. One `rdtsc`, not ordered against the loads
    /// around it; ticks of two CPUs may be compared.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        if self.tsc { rdtsc() } else { monotonic_ns() }
    }

    /// As [`now`](Self::now), once the loads before it have come back: what took their time is
    /// over.
    #[inline(always)]
    pub fn now_after_loads(&self) -> u64 {
        if self.tsc {
            load_fence();
        }
        self.now()
    }

    /// A duration in ticks as nanoseconds, rounded down.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        scale(ticks, self.ns_per_tick)
    }

    /// A duration in nanoseconds as ticks, rounded down.
    #[inline]
    pub fn ticks(&self, ns: u64) -> u64 {
        scale(ns, self.ticks_per_ns)
    }

    /// Ticks per second.
    pub fn hz(&self) -> f64 {
        match self.source {
            ClockSource::Tsc { mhz, .. } => mhz * 1e6,
            ClockSource::Monotonic { .. } => 1e9,
        }
    }

    /// Whether its ticks are those of an invariant counter: the same on all CPUs, at one rate, and
    /// read without the kernel. Times below a microsecond are worth quoting by such a clock only.
    pub fn is_invariant(&self) -> bool {
        self.tsc
    }

    /// Where the ticks come from.
    pub fn source(&self) -> ClockSource {
        self.source
    }
}

impl fmt::Display for ClockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tsc { mhz, error_ppm } => {
                write!(f, "invariant TSC, {mhz:.3} MHz, within {error_ppm:.1} ppm")
            }
            Self::Monotonic { reason } => write!(f, "clock_gettime, 1 ns ({reason})"),
        }
    }
}

fn scale(value: u64, factor: u64) -> u64 {
    ((u128::from(value) * u128::from(factor)) >> FRACTION_BITS) as u64
}

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time stamp counter, reliable or not: for the duration of stages, where a jump is one wrong
/// sample among many. Where there is none, nanoseconds.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    rdtsc()
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn load_fence() {
    // SAFETY: every x86-64 has the instruction, which has no operands. Nothing behind it starts
    // before all in front of it has ended (Intel SDM 2A, LFENCE; AMD: Linux sets DE_CFG bit 1).
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn load_fence() {}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn rdtsc() -> u64 {
    // SAFETY: every x86-64 has the instruction; Linux lets user space run it unless a process asks
    // for PR_TSC_SIGSEGV, which ours does not.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn rdtsc() -> u64 {
    monotonic_ns()
}

/// Whether the CPU promises a constant rate and the kernel has not found the TSC wanting.
#[cfg(target_arch = "x86_64")]
fn tsc_usable(tree: &Tree) -> Result<(), &'static str> {
    use core::arch::x86_64::__cpuid;
    // Intel SDM 19.17.4, AMD APM 3 E.4.6: CPUID 8000_0007h EDX bit 8.
    let invariant =
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx >> 8 & 1 == 1;
    if !invariant {
        return Err("the CPU has no invariant TSC");
    }
    let available = tree.read("sys/devices/system/clocksource/clocksource0/available_clocksource");
    // A hypervisor's clock hides the TSC from the list without calling it unstable.
    match available {
        Some(list)
            if !["tsc", "kvm-clock", "hyperv", "xen"]
                .iter()
                .any(|name| list.contains(name)) =>
        {
            Err("the kernel found the TSC unstable")
        }
        _ => Ok(()),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_usable(_: &Tree) -> Result<(), &'static str> {
    Err("this CPU has no TSC")
}

/// One simultaneous reading of both clocks; `width` bounds how far apart they were read.
#[derive(Clone, Copy)]
struct Sample {
    tsc: u64,
    ns: u64,
    width: u64,
}

/// The tightest of several bracketed readings, so that an interrupt spoils only one of them.
fn sample() -> Sample {
    let read = || {
        let before = rdtsc();
        let ns = monotonic_ns();
        let after = rdtsc();
        let width = after.wrapping_sub(before);
        Sample {
            tsc: before.wrapping_add(width / 2),
            ns,
            width,
        }
    };
    (0..32)
        .map(|_| read())
        .min_by_key(|s| s.width)
        .unwrap_or_else(read)
}

/// The rate between two samples in ticks per nanosecond, and its error bound as a fraction.
fn rate(from: Sample, to: Sample) -> (f64, f64) {
    let ticks = to.tsc.wrapping_sub(from.tsc) as f64;
    let ns = to.ns.saturating_sub(from.ns).max(1) as f64;
    // Each reading is off by at most half its bracket, and CLOCK_MONOTONIC_RAW by its last digit.
    let error = (from.width + to.width) as f64 / 2.0 / ticks.max(1.0) + 2.0 / ns;
    (ticks / ns, error)
}

fn calibrate_tsc(interval: Duration) -> Result<Clock, &'static str> {
    let first = sample();
    std::thread::sleep(interval);
    let middle = sample();
    std::thread::sleep(interval);
    let last = sample();
    let (ticks_per_ns, error) = rate(first, last);
    let (early, early_error) = rate(first, middle);
    let (late, late_error) = rate(middle, last);
    if !(0.001..60.0).contains(&ticks_per_ns) {
        return Err("the TSC runs at no plausible rate");
    }
    // An invariant TSC cannot change its rate; one that does is emulated or was migrated.
    if (early - late).abs() / ticks_per_ns > early_error + late_error + 1e-4 {
        return Err("the TSC changed its rate while it was calibrated");
    }
    let one = (1u64 << FRACTION_BITS) as f64;
    Ok(Clock {
        tsc: true,
        ns_per_tick: (one / ticks_per_ns) as u64,
        ticks_per_ns: (one * ticks_per_ns) as u64,
        source: ClockSource::Tsc {
            mhz: ticks_per_ns * 1000.0,
            error_ppm: error * 1e6,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_invert_each_other_and_do_not_overflow() {
        let clock = Clock {
            tsc: true,
            ns_per_tick: ((1u64 << FRACTION_BITS) as f64 / 2.5961) as u64,
            ticks_per_ns: ((1u64 << FRACTION_BITS) as f64 * 2.5961) as u64,
            source: ClockSource::Tsc {
                mhz: 2596.1,
                error_ppm: 1.0,
            },
        };
        assert_eq!(clock.ticks(1000), 2596);
        // A year of nanoseconds and back: off by less than a millisecond.
        let year_ns = 365 * 86_400 * 1_000_000_000u64;
        assert!(clock.ns(clock.ticks(year_ns)).abs_diff(year_ns) < 1_000_000);
        assert_eq!(clock.ns(0), 0);
        assert_eq!(
            clock.source().to_string(),
            "invariant TSC, 2596.100 MHz, within 1.0 ppm"
        );
    }

    #[test]
    fn the_forced_fallback_counts_nanoseconds_and_says_why() {
        let clock = Clock::monotonic("forced by a test");
        let (a, b) = (clock.now(), clock.now());
        assert!(a <= b);
        assert_eq!((clock.ns(12_345), clock.ticks(12_345)), (12_345, 12_345));
        assert_eq!(
            clock.source().to_string(),
            "clock_gettime, 1 ns (forced by a test)"
        );
        assert_eq!((clock.hz(), clock.is_invariant()), (1e9, false));
    }

    #[test]
    fn a_longer_calibration_has_a_smaller_error() {
        let error = |clock: Clock| match clock.source() {
            ClockSource::Tsc { error_ppm, .. } => Some(error_ppm),
            ClockSource::Monotonic { .. } => None,
        };
        let short = error(Clock::calibrate_for(Duration::ZERO));
        let long = error(Clock::calibrate_for(Duration::from_millis(400)));
        // Ten times as long would leave a tenth; interrupts between the readings cost some of that.
        assert!(short.zip(long).is_none_or(|(short, long)| long < short));
    }

    #[test]
    fn a_calibrated_clock_agrees_with_the_systems() {
        let clock = Clock::calibrate();
        let (outer_start, inner_start) = (monotonic_ns(), clock.now());
        std::thread::sleep(Duration::from_millis(30));
        // An interruption between the two readings only makes the outer interval longer.
        let inner = clock.ns(clock.now() - inner_start);
        let outer = monotonic_ns() - outer_start;
        assert!(
            inner <= outer + outer / 500 && inner >= 29_000_000,
            "{inner} of {outer} ns, {}",
            clock.source()
        );
        if let ClockSource::Tsc { error_ppm, .. } = clock.source() {
            assert!(error_ppm > 0.0, "an error bound of zero is a lie");
        }
    }

    #[test]
    fn the_error_bound_covers_the_brackets() {
        let from = Sample {
            tsc: 0,
            ns: 0,
            width: 100,
        };
        let to = Sample {
            tsc: 20_000_000,
            ns: 10_000_000,
            width: 300,
        };
        let (rate, error) = rate(from, to);
        assert_eq!(rate, 2.0);
        assert!(error > 200.0 / 20_000_000.0 && error < 2.0 * 200.0 / 20_000_000.0);
    }
}
