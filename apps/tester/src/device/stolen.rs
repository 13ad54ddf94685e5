//! CPU time that other threads took from the lcores of a trial: it distinguishes a device's loss
//! from that of a busy machine.

use std::collections::HashMap;
use std::fs;

use linerate_core::env::Clock;
use linerate_core::run::HistogramSnapshot;

/// Below this sum a loss is not attributed to other threads.
const LEAST_NS: u64 = 200_000;

/// CPU time that other threads took during a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stolen {
    /// Over all lcores involved.
    pub sum_ns: u64,
    /// Longest gap, where that is known; otherwise the sum.
    pub longest_ns: u64,
}

impl Stolen {
    /// Why a trial that missed `missing` frames at `pps` does not count: so many frames came while
    /// an lcore did not run. A far larger loss is the device's.
    pub fn explains(&self, missing: u64, pps: f64) -> Option<String> {
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

/// The threads whose CPU time does not count as stolen: the generator's and the device's.
#[derive(Clone, Debug, Default)]
pub struct Involved {
    /// Names of threads of this process: the lcores, which must have their CPUs.
    pub lcores: Vec<String>,
    /// Processes, and threads of the kernel, that do the device's work. They may wait for their
    /// CPU.
    pub others: Vec<u32>,
}

/// The scheduler's accounting of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Books {
    is_lcore: bool,
    /// Where it ran last.
    cpu: u32,
    ran_ns: u64,
    /// Time that it was ready to run and waited.
    waited_ns: u64,
}

/// Readings at the beginning of a trial.
pub struct StartReadings {
    involved: Involved,
    books: HashMap<u32, Books>,
    gaps: Vec<HistogramSnapshot>,
    steal_ticks: u64,
    by_books: bool,
}

impl StartReadings {
    /// Begins to watch. `gaps` are the device's. Where lcores spend long in system calls, or share
    /// a CPU, long rounds are no sign of stolen time: with `by_books` the scheduler's accounting is
    /// used instead.
    pub fn begin(involved: Involved, gaps: Vec<HistogramSnapshot>, by_books: bool) -> Self {
        Self {
            books: read(&involved),
            involved,
            gaps,
            steal_ticks: steal_ticks(),
            by_books,
        }
    }

    /// CPU time taken since then. `own` is the generator's: the sum and the longest of its gaps in
    /// ns.
    pub fn end(&self, gaps: &[HistogramSnapshot], own: (u64, u64), clock: Clock) -> Stolen {
        if self.by_books {
            let waited = taken(&self.books, &read(&self.involved));
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

/// Nanoseconds that others took of the lcores' CPUs. While one lcore waits, another involved thread
/// may run, which does not count: on each CPU only the time counts that an lcore waited beyond the
/// time that all other involved threads ran there.
fn taken(before: &HashMap<u32, Books>, after: &HashMap<u32, Books>) -> u64 {
    let since = |(thread, now): (&u32, &Books)| {
        let then = before.get(thread);
        Books {
            ran_ns: now
                .ran_ns
                .saturating_sub(then.map_or(0, |then| then.ran_ns)),
            waited_ns: now
                .waited_ns
                .saturating_sub(then.map_or(0, |then| then.waited_ns)),
            ..*now
        }
    };
    let threads: Vec<Books> = after.iter().map(since).collect();
    let mut by_cpu: HashMap<u32, u64> = HashMap::new();
    for lcore in threads.iter().filter(|thread| thread.is_lcore) {
        let there = threads.iter().filter(|thread| thread.cpu == lcore.cpu);
        let ran: u64 = there.map(|thread| thread.ran_ns).sum();
        let taken = lcore.waited_ns.saturating_sub(ran - lcore.ran_ns);
        let most = by_cpu.entry(lcore.cpu).or_default();
        *most = taken.max(*most);
    }
    by_cpu.values().sum()
}

/// The accounting of all threads involved, by number.
fn read(involved: &Involved) -> HashMap<u32, Books> {
    let mut books = HashMap::new();
    let mut tasks = |process: &str, is_lcore: fn(&Involved, &str) -> bool, all: bool| {
        let tasks = fs::read_dir(format!("/proc/{process}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let is_lcore = is_lcore(involved, read("comm").trim_end());
            let number = task.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(number) = number.filter(|_| is_lcore || all) {
                // schedstat: time on the CPU, and time in its queue (sched-stats.rst of the
                // kernel).
                let mut times = [0; 2];
                let words = read("schedstat");
                for (time, word) in times.iter_mut().zip(words.split_whitespace()) {
                    *time = word.parse().unwrap_or(0);
                }
                books.insert(
                    number,
                    Books {
                        is_lcore,
                        cpu: last_cpu(&read("stat")),
                        ran_ns: times[0],
                        waited_ns: times[1],
                    },
                );
            }
        }
    };
    // The kernel keeps 15 bytes of a name.
    let named = |involved: &Involved, comm: &str| {
        let is = |name: &String| name.as_bytes().iter().take(15).eq(comm.as_bytes());
        involved.lcores.iter().any(is)
    };
    tasks("self", named, false);
    for process in &involved.others {
        tasks(&process.to_string(), |_, _| false, true);
    }
    books
}

/// proc_pid_stat(5): field 39; a name with blanks, the second, is in brackets.
fn last_cpu(stat: &str) -> u32 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let field = fields.split_whitespace().nth(36);
    field.and_then(|cpu| cpu.parse().ok()).unwrap_or(0)
}

/// The kernel's softirq threads on these CPUs, which do work such as forwarding.
pub(crate) fn softirq_threads(cpus: &[u32]) -> Vec<u32> {
    let names: Vec<String> = cpus.iter().map(|cpu| format!("ksoftirqd/{cpu}")).collect();
    processes(|_, comm| names.iter().any(|name| name == comm))
}

/// The children of a process.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    processes(|stat, _| {
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        fields.split_whitespace().nth(1) == Some(&parent.to_string())
    })
}

/// Processes that `is` selects by `stat` and name.
fn processes(is: impl Fn(&str, &str) -> bool) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = all.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).ok();
        is(&read("stat")?, read("comm")?.trim_end()).then_some(number)
    });
    found.collect()
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

    fn books(is_lcore: bool, cpu: u32, ran_ms: u64, waited_ms: u64) -> Books {
        Books {
            is_lcore,
            cpu,
            ran_ns: ran_ms * 1_000_000,
            waited_ns: waited_ms * 1_000_000,
        }
    }

    #[test]
    fn what_generator_and_device_take_of_each_other_is_no_theft() {
        let none = HashMap::new();
        let of = |threads: &[Books]| {
            let after = (0..).zip(threads.iter().copied()).collect();
            taken(&none, &after) / 1_000_000
        };
        // Each had its own CPU, and one had to wait.
        assert_eq!(of(&[books(true, 0, 97, 3), books(true, 1, 100, 0)]), 3);
        // Both want the same CPU, without a third thread.
        assert_eq!(of(&[books(true, 0, 50, 50), books(true, 0, 50, 50)]), 0);
        // A third thread takes a third of it.
        assert_eq!(of(&[books(true, 0, 34, 66), books(true, 0, 33, 67)]), 33);
        // The device is the kernel, which runs where the generator does; its waiting time is the
        // device's own.
        assert_eq!(of(&[books(true, 0, 60, 40), books(false, 0, 40, 60)]), 0);
        assert_eq!(of(&[books(true, 0, 40, 60), books(false, 0, 20, 80)]), 40);
    }

    #[test]
    fn a_thread_is_found_with_its_cpu_whatever_it_is_called() {
        // Fields 3 to 38, and the one that counts.
        let stat = format!("7 (a ) b) S {} 17 5 0", ["1"; 35].join(" "));
        assert_eq!(last_cpu(&stat), 17);
        let child = std::process::Command::new("sleep").arg("30").spawn();
        let mut child = child.expect("sleep is there");
        assert!(children(std::process::id()).contains(&child.id()));
        child
            .kill()
            .and_then(|()| child.wait().map(drop))
            .expect("it ends");
    }

    #[test]
    fn the_time_that_a_thread_waited_for_its_cpu_is_found_by_its_name() {
        // Two threads that want the same CPU at the same time cannot both have it.
        let cpu = linerate_core::env::allowed_cpus()
            .expect("the mask is readable")
            .as_slice()[0];
        let name = "stolen-test".to_string();
        let watch = StartReadings::begin(
            Involved {
                lcores: vec![name.clone()],
                others: Vec::new(),
            },
            Vec::new(),
            true,
        );
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
