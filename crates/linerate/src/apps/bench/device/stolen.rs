//! Time that others took of the lcores involved in a trial: what tells a device's loss from a busy machine's.

use std::collections::HashMap;
use std::fs;

use linerate_core::env::Clock;
use linerate_core::run::HistogramSnapshot;

/// Below this in all, a loss is not put down to others.
const LEAST_NS: u64 = 200_000;

/// What others took during a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stolen {
    /// Over all lcores involved.
    pub(crate) sum_ns: u64,
    /// In one piece, where that is known; otherwise all of it.
    pub(crate) longest_ns: u64,
}

impl Stolen {
    /// Why a trial that missed `missing` frames at `pps` does not count: frames that came while an lcore
    /// was away explain them. A loss that is larger by far is the device's.
    pub(crate) fn explains(&self, missing: u64, pps: f64) -> Option<String> {
        let most = self.sum_ns as f64 * 1e-9 * pps * 1.5;
        (missing > 0 && self.sum_ns >= LEAST_NS && missing as f64 <= most).then(|| {
            format!(
                "CPU taken for {:.1} ms (longest {:.1} ms)",
                self.sum_ns as f64 * 1e-6,
                self.longest_ns as f64 * 1e-6
            )
        })
    }
}

/// Readings at the beginning of a trial.
pub(crate) struct Watch {
    /// Names of the threads that matter.
    lcores: Vec<String>,
    waited_ns: HashMap<String, u64>,
    gaps: Vec<HistogramSnapshot>,
    steal_ticks: u64,
    in_kernel: bool,
}

impl Watch {
    /// Begins to watch. `gaps` are the device's; `in_kernel` says that lcores spend long in system calls,
    /// so that long rounds say nothing and the scheduler's books are read instead.
    pub(crate) fn begin(
        lcores: Vec<String>,
        gaps: Vec<HistogramSnapshot>,
        in_kernel: bool,
    ) -> Self {
        Self {
            waited_ns: waited(&lcores),
            lcores,
            gaps,
            steal_ticks: steal_ticks(),
            in_kernel,
        }
    }

    /// What was taken since then. `own` is the generator's: the sum and the longest of its gaps in ns.
    pub(crate) fn end(&self, gaps: &[HistogramSnapshot], own: (u64, u64), clock: Clock) -> Stolen {
        if self.in_kernel {
            let before = |name: &String| self.waited_ns.get(name).copied().unwrap_or(0);
            let waited = waited(&self.lcores);
            let waited: u64 = waited
                .iter()
                .map(|(name, ns)| ns.saturating_sub(before(name)))
                .sum();
            // USER_HZ is 100 on every machine that this runs on.
            let steal = (steal_ticks().saturating_sub(self.steal_ticks)) * 10_000_000;
            return Stolen {
                sum_ns: waited + steal,
                longest_ns: waited + steal,
            };
        }
        let (mut sum_ns, mut longest_ns) = own;
        for (now, before) in gaps.iter().zip(&self.gaps) {
            let since = now.since(before);
            sum_ns += clock.ns(since.sum);
            longest_ns =
                longest_ns.max(clock.ns(since.buckets().last().map_or(0, |(upper, _)| upper)));
        }
        Stolen { sum_ns, longest_ns }
    }
}

/// Nanoseconds that each named thread of this process was ready to run and did not (second field of
/// schedstat, Documentation/scheduler/sched-stats.rst). Threads of one name are added up.
fn waited(names: &[String]) -> HashMap<String, u64> {
    let mut waited = HashMap::new();
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    for task in tasks.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let comm = read("comm");
        // The kernel keeps 15 bytes of a name.
        let named = |name: &&String| {
            name.as_bytes()
                .iter()
                .take(15)
                .eq(comm.trim_end().as_bytes())
        };
        let Some(name) = names.iter().find(named) else {
            continue;
        };
        let ns = read("schedstat")
            .split_whitespace()
            .nth(1)
            .and_then(|field| field.parse().ok());
        *waited.entry(name.clone()).or_default() += ns.unwrap_or(0u64);
    }
    waited
}

/// Time that the hypervisor gave to others, over all CPUs (proc_stat(5), the eighth field).
fn steal_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    line.split_whitespace()
        .nth(8)
        .and_then(|field| field.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use linerate_core::env::Lcore;

    use super::*;

    #[test]
    fn a_loss_that_the_time_explains_is_no_verdict_and_a_larger_one_is() {
        let stolen = Stolen {
            sum_ns: 3_000_000,
            longest_ns: 2_000_000,
        };
        let why = stolen.explains(2_500, 1e6);
        assert_eq!(
            why.as_deref(),
            Some("CPU taken for 3.0 ms (longest 2.0 ms)")
        );
        assert_eq!(stolen.explains(0, 1e6), None, "nothing was lost");
        assert_eq!(stolen.explains(100_000, 1e6), None, "far more was lost");
        let little = Stolen {
            sum_ns: 100_000,
            longest_ns: 100_000,
        };
        assert_eq!(little.explains(50, 1e6), None);
    }

    #[test]
    fn the_time_that_a_thread_waited_for_its_cpu_is_found_by_its_name() {
        // Two threads that want the same CPU at the same time cannot both have it.
        let cpu = linerate_core::env::allowed_cpus()
            .expect("the mask is readable")
            .as_slice()[0];
        let name = "stolen-test".to_string();
        let watch = Watch::begin(vec![name.clone()], Vec::new(), true);
        let (done, over) = (Arc::new(AtomicBool::new(false)), Duration::from_secs(10));
        let rivals_until = done.clone();
        let rival = Lcore::spawn("rival", Some(cpu), move || {
            while !rivals_until.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let seen = Lcore::spawn(&name, Some(cpu), move || {
            let end = Instant::now() + over;
            loop {
                let stolen = watch.end(&[], (0, 0), Clock::monotonic("a test"));
                if stolen.sum_ns > 1_000_000 || Instant::now() > end {
                    done.store(true, Ordering::Relaxed);
                    return stolen;
                }
            }
        });
        let seen = seen.expect("spawns").join().expect("ends");
        rival.expect("spawns").join().expect("ends");
        assert!(seen.sum_ns > 1_000_000, "{seen:?}");
    }
}
