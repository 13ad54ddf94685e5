//! The machine's facts, and the two CPUs that everything is pinned to.

use std::path::Path;
use std::process::Command;

use rustix::process::Pid;
use serde_json::{Value, json};

use crate::error::TaskError;
use crate::process;
use crate::undo::Undo;

/// Where processes run: one-core rows on `worker`, two-core rows on both.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cpus {
    pub(super) worker: usize,
    /// The generator, the main thread of DPDK's applications, the other end of a ring.
    pub(super) other: Option<usize>,
}

impl Cpus {
    /// Two CPUs we may run on that are not threads of one core, if there are such; the worker is
    /// the second.
    pub(super) fn choose() -> Result<Cpus, TaskError> {
        let set = rustix::thread::sched_getaffinity(None)
            .map_err(|error| TaskError::file("sched_getaffinity")(error.into()))?;
        let allowed: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect();
        let first = allowed[0];
        let siblings = siblings(first);
        let second = allowed[1..]
            .iter()
            .find(|cpu| !siblings.contains(cpu))
            .or(allowed.get(1));
        Ok(match second {
            Some(&second) => Cpus {
                worker: second,
                other: Some(first),
            },
            None => Cpus {
                worker: first,
                other: None,
            },
        })
    }

    /// As `--cpus` takes them: the worker alone, or the worker and the other.
    pub(super) fn list(&self, both: bool) -> String {
        match self.other {
            Some(other) if both => format!("{},{other}", self.worker),
            _ => self.worker.to_string(),
        }
    }
}

fn siblings(cpu: usize) -> Vec<usize> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    parse_cpu_list(&std::fs::read_to_string(file).unwrap_or_default())
}

/// `0-1,4` as `[0, 1, 4]`.
fn parse_cpu_list(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

/// Ticks of all CPUs together that others took, and all ticks, since boot.
pub(super) fn stolen_ticks() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .take(8)
        .collect();
    (ticks.get(7).copied().unwrap_or(0), ticks.iter().sum())
}

/// What a reader needs to know before believing a figure.
pub(super) fn facts(cpus: &Cpus, pages: &str, weight: &str, dpdk: Option<&str>) -> Value {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model.to_owned());
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory_kib: Option<u64> = meminfo
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok());
    let first_line = |command: &mut Command| {
        let text = process::read(command).ok()?;
        text.lines().next().map(str::to_owned)
    };
    json!({
        "cpu": model,
        "cpus": cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        "hypervisor": cpuinfo.lines().any(|line| line.starts_with("flags") && line.contains(
            " hypervisor")),
        "worker_cpu": cpus.worker,
        "other_cpu": cpus.other,
        "kernel": first_line(Command::new("uname").arg("-r")),
        "memory_mib": memory_kib.map(|kib| kib / 1024),
        "pages": pages,
        "scheduling": weight,
        "dpdk": dpdk,
        "cc": first_line(Command::new("cc").arg("--version")),
        "rustc": first_line(Command::new("rustc").arg("--version").current_dir(process::root())),
        "commit": first_line(Command::new("git").args(["describe", "--always",
        "--dirty"]).current_dir(process::root())),
    })
}

/// Weighs this process session against all others (`sched_autogroup` makes `nice` count only inside
/// one), and with it the kernel threads that run network softirqs: they are of no session, and at
/// nice 0 the veth rows would starve their own NAPI. Returns what was done, in words.
pub(super) fn weigh_session(undo: &mut Undo) -> Result<String, TaskError> {
    let knob = Path::new("/proc/self/autogroup");
    if !knob.exists() {
        return Ok("nice 0 (this kernel has no autogroup)".into());
    }
    undo.add("echo 0 > /proc/self/autogroup")?; // the undo shell is of the same session
    if let Err(error) = std::fs::write(knob, "-20") {
        return Ok(format!("nice 0 (autogroup -20 refused: {error})"));
    }
    for pid in kernel_threads("ksoftirqd/") {
        let before = rustix::process::getpriority_process(Some(pid)).unwrap_or(0);
        undo.add(&format!("renice -n {before} -p {}", pid.as_raw_pid()))?;
        if let Err(error) = rustix::process::setpriority_process(Some(pid), -20) {
            return Ok(format!(
                "session at nice -20, softirqs at {before} ({error})"
            ));
        }
    }
    Ok("session and softirqs at nice -20".into())
}

/// Processes whose names begin so: threads of the kernel have names of their own.
pub(super) fn kernel_threads(name: &str) -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|comm| comm.starts_with(name))
    };
    pids.filter(is_one).filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::parse_cpu_list;

    #[test]
    fn reads_cpu_lists() {
        assert_eq!(parse_cpu_list("0-1,4\n"), [0, 1, 4]);
        assert_eq!(parse_cpu_list("7"), [7]);
        assert_eq!(parse_cpu_list(""), [0usize; 0]);
    }
}
