//! How much of a CPU others take: other tasks, the kernel's interrupts, other guests of the host.

use std::time::Duration;

use super::{Clock, EnvError, Lcore, Topology, Tree};

/// What a spinning thread did not get of its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stolen {
    /// The CPU on which it was sampled, if the thread was bound.
    pub cpu: Option<u32>,
    /// How long was sampled.
    pub window_ns: u64,
    /// The share of the window that passed in gaps of more than [`GAP_NS`]: 0 to 1.
    pub share: f64,
    /// The longest gap.
    pub longest_gap_ns: u64,
    /// The share that the hypervisor says it gave to other guests, over all CPUs (`steal` of
    /// /proc/stat); `None` if it does not report it.
    pub host_share: Option<f64>,
}

/// Two readings of the clock further apart than this have had something between them.
pub const GAP_NS: u64 = 2_000;

impl Stolen {
    /// Spins on the calling thread for `window` and adds up the gaps.
    pub fn sample(clock: &Clock, window: Duration) -> Self {
        let before = Steal::read(&Tree::machine());
        let gaps = gaps(
            || clock.now(),
            clock.ticks(GAP_NS),
            clock.ticks(window.as_nanos() as u64),
        );
        let after = Steal::read(&Tree::machine());
        let total = gaps.total.max(1);
        Self {
            cpu: None,
            window_ns: clock.ns(gaps.total),
            share: gaps.lost as f64 / total as f64,
            longest_gap_ns: clock.ns(gaps.longest),
            host_share: before
                .zip(after)
                .and_then(|(before, after)| after.share_since(&before)),
        }
    }

    /// Samples all usable CPUs at once, one bound thread on each.
    pub fn sample_all(
        topology: &Topology,
        clock: &Clock,
        window: Duration,
    ) -> Result<Vec<Self>, EnvError> {
        let spawn = |cpu| {
            let clock = *clock;
            let sample = move || Self {
                cpu: Some(cpu),
                ..Self::sample(&clock, window)
            };
            Lcore::spawn(&format!("stolen{cpu}"), Some(cpu), sample)
        };
        let lcores: Vec<_> = topology
            .allowed()
            .iter()
            .map(spawn)
            .collect::<Result<_, _>>()?;
        lcores.into_iter().map(super::LcoreHandle::join).collect()
    }
}

#[derive(Default)]
struct Gaps {
    total: u64,
    lost: u64,
    longest: u64,
}

fn gaps(mut now: impl FnMut() -> u64, least: u64, window: u64) -> Gaps {
    let start = now();
    let mut gaps = Gaps::default();
    let mut last = start;
    while gaps.total < window {
        let time = now();
        // Saturating: a clock that two CPUs disagree on may step back by a tick when we migrate.
        let step = time.saturating_sub(last);
        if step > least {
            gaps.lost += step;
            gaps.longest = gaps.longest.max(step);
        }
        last = time;
        gaps.total = time.saturating_sub(start);
    }
    gaps
}

/// The first line of /proc/stat: time of all CPUs, in clock ticks.
struct Steal {
    total: u64,
    steal: u64,
}

impl Steal {
    fn read(tree: &Tree) -> Option<Self> {
        let stat = tree.read("proc/stat")?;
        let mut fields = stat.lines().next()?.split_ascii_whitespace();
        if fields.next() != Some("cpu") {
            return None;
        }
        // user nice system idle iowait irq softirq steal; guest times are part of user. proc(5).
        let times: Vec<u64> = fields
            .take(8)
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        let steal = *times.get(7)?;
        Some(Self {
            total: times.iter().sum(),
            steal,
        })
    }

    fn share_since(&self, before: &Self) -> Option<f64> {
        let total = self
            .total
            .checked_sub(before.total)
            .filter(|&total| total > 0)?;
        Some(self.steal.saturating_sub(before.steal) as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_the_steps_above_the_least() {
        let mut times = [0, 10, 20, 520, 530, 460, 540, 1040, 1050].into_iter();
        let gaps = gaps(|| times.next().unwrap(), 100, 1000);
        assert_eq!((gaps.total, gaps.lost, gaps.longest), (1040, 1000, 500));
    }

    #[test]
    fn steal_is_a_share_of_all_time() {
        let stat = |total: u64, steal: u64| Steal { total, steal };
        assert_eq!(stat(300, 50).share_since(&stat(100, 0)), Some(0.25));
        assert_eq!(
            stat(100, 0).share_since(&stat(100, 0)),
            None,
            "no tick has passed"
        );
    }

    #[test]
    fn every_usable_cpu_is_sampled() {
        let topology = Topology::machine().unwrap();
        let clock = Clock::calibrate();
        let samples = Stolen::sample_all(&topology, &clock, Duration::from_millis(5)).unwrap();
        let cpus: Vec<_> = samples.iter().filter_map(|s| s.cpu).collect();
        assert_eq!(cpus, topology.allowed().as_slice());
        assert!(
            samples
                .iter()
                .all(|s| s.window_ns >= 4_900_000 && (0.0..=1.0).contains(&s.share)),
            "{samples:?}"
        );
    }
}
