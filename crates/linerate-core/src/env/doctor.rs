//! What this machine supports, what it lacks, and the exact command that adds it.
//!
//! [`Probes`] tries what only a trial shows; everything else is read from files. The evaluation is
//! pure, so tests can examine other machines. Nothing here is required by `linerate demo`.

mod cores;
mod memory;
mod ports;
mod probe;

pub use probe::Probes;

use super::{Clock, ClockSource, Stolen, Topology, Tree};

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What it belongs to: `memory`, `ports`, `privileges`, `cores`, `time`, `peers`.
    pub area: &'static str,
    /// The capability.
    pub name: String,
    /// Whether it is there.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What it is good for.
    pub purpose: &'static str,
    /// The command, or the one sentence, that gets it.
    pub fix: Option<String>,
}

/// Whether a capability is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is there and good.
    Ok,
    /// It works but will cost speed.
    Poor,
    /// It is not there.
    Missing,
}

impl State {
    /// As shown and as written to JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Poor => "poor",
            Self::Missing => "missing",
        }
    }
}

impl Check {
    fn new(area: &'static str, name: impl Into<String>, purpose: &'static str) -> Self {
        Self {
            area,
            name: name.into(),
            state: State::Ok,
            found: String::new(),
            purpose,
            fix: None,
        }
    }

    fn ok(mut self, found: impl Into<String>) -> Self {
        self.found = found.into();
        self
    }

    fn poor(mut self, found: impl Into<String>, fix: impl Into<String>) -> Self {
        (self.state, self.found, self.fix) = (State::Poor, found.into(), Some(fix.into()));
        self
    }

    fn missing(mut self, found: impl Into<String>, fix: impl Into<String>) -> Self {
        (self.state, self.found, self.fix) = (State::Missing, found.into(), Some(fix.into()));
        self
    }
}

/// The machine as the doctor sees it.
#[derive(Debug)]
pub struct Patient<'a> {
    /// Its CPUs and files.
    pub topology: &'a Topology,
    /// Its clock.
    pub clock: &'a Clock,
    /// What was tried.
    pub probes: &'a Probes,
    /// Samples of stolen time, one per usable CPU.
    pub stolen: &'a [Stolen],
    /// The path of the program that needs capabilities, for `setcap`.
    pub program: &'a str,
}

impl Patient<'_> {
    /// Every finding, grouped by area.
    pub fn examine(&self) -> Vec<Check> {
        let mut checks = memory::checks(self);
        checks.extend(ports::checks(self));
        checks.extend(cores::checks(self));
        checks.push(self.clock_check());
        checks.push(self.stolen_check());
        checks.push(self.dpdk_check());
        checks
    }

    fn tree(&self) -> &Tree {
        self.topology.tree()
    }

    /// `sudo ` unless the user is root already.
    fn sudo(&self) -> &'static str {
        if self.probes.root { "" } else { "sudo " }
    }

    /// The command that writes `value` to the files `path`.
    fn write_command(&self, value: impl std::fmt::Display, path: &str) -> String {
        format!("echo {value} | {}tee {path}", self.sudo())
    }

    fn clock_check(&self) -> Check {
        let check = Check::new(
            "time",
            "clock",
            "timestamps and rates without a system call",
        );
        let source = self.clock.source();
        match source {
            ClockSource::Tsc { .. } => check.ok(source.to_string()),
            ClockSource::Monotonic { .. } => check.poor(
                source.to_string(),
                "give the guest an invariant TSC (QEMU: -cpu host,+invtsc); on a host that you \
                 trust boot with tsc=reliable",
            ),
        }
    }

    fn stolen_check(&self) -> Check {
        let check = Check::new(
            "time",
            "CPU stolen by others",
            "a polling lcore loses packets while others run",
        );
        let Some(worst) = self
            .stolen
            .iter()
            .max_by(|a, b| a.share.total_cmp(&b.share))
        else {
            return check.ok("not sampled");
        };
        let cpu = worst
            .cpu
            .map_or_else(String::new, |cpu| format!("CPU {cpu}: "));
        let host = worst.host_share.map_or_else(String::new, |share| {
            format!(", {:.1}% to other guests", share * 100.0)
        });
        let found = format!(
            "{cpu}{:.1}% of {} ms, longest gap {} us{host}",
            worst.share * 100.0,
            worst.window_ns / 1_000_000,
            worst.longest_gap_ns / 1000
        );
        if worst.share < 0.02 && worst.host_share.unwrap_or(0.0) < 0.02 {
            return check.ok(found);
        }
        check.poor(
            found,
            "stop what `ps -eo psr,pcpu,comm --sort=-pcpu | head` shows; in a VM, \
            pin its CPUs on the host",
        )
    }

    fn dpdk_check(&self) -> Check {
        let check = Check::new(
            "peers",
            "DPDK",
            "only to compare with, by `cargo xtask compare`",
        );
        let directories = [
            "usr/local/lib/x86_64-linux-gnu",
            "usr/local/lib64",
            "usr/local/lib",
            "usr/lib/x86_64-linux-gnu",
            "usr/lib/aarch64-linux-gnu",
            "usr/lib64",
            "usr/lib",
        ];
        let version = directories.iter().find_map(|directory| {
            let file = self
                .tree()
                .read(&format!("{directory}/pkgconfig/libdpdk.pc"))?;
            let line = file
                .lines()
                .find_map(|line| line.strip_prefix("Version:"))?;
            Some(line.trim().to_string())
        });
        let testpmd = ["usr/local/bin", "usr/bin"]
            .iter()
            .any(|d| self.tree().exists(&format!("{d}/dpdk-testpmd")));
        let fix = format!("{}apt-get install dpdk dpdk-dev libdpdk-dev", self.sudo());
        match (version, testpmd) {
            (Some(version), true) => check.ok(format!("{version}, with dpdk-testpmd")),
            (Some(version), false) => {
                check.missing(format!("{version}, without dpdk-testpmd"), fix)
            }
            (None, true) => check.missing("programs without the development files", fix),
            (None, false) => check.missing("not installed", fix),
        }
    }
}

#[cfg(test)]
mod tests;
