//! The `machine` object of every JSON report, and its one-line form for people.

use std::time::Duration;

use linerate_core::env::{Clock, ClockSource, Machine, Stolen, Topology};
use serde::Serialize;

use crate::error::Error;

/// Facts about the machine, as written to JSON.
#[derive(Debug, Serialize)]
pub struct MachineFacts {
    cpu_model: String,
    isa: String,
    cpus: usize,
    cores: usize,
    packages: usize,
    nodes: usize,
    usable_cpus: Vec<u32>,
    clock: String,
    /// Ticks per microsecond.
    clock_mhz: f64,
    clock_error_ppm: f64,
    kernel: String,
    memory_bytes: u64,
    page_bytes: usize,
    huge_pages: Vec<HugePages>,
    transparent_huge_pages: Option<String>,
    hypervisor: Option<String>,
    /// The share of a CPU that other threads took when it was sampled: 0 to 1.
    stolen_share: f64,
    stolen_longest_gap_ns: u64,
    /// The share that the hypervisor says it gave to other guests.
    host_stolen_share: Option<f64>,
}

#[derive(Debug, Serialize)]
struct HugePages {
    page_bytes: u64,
    total: u64,
    free: u64,
}

impl MachineFacts {
    /// The facts about this machine, with a short sample of stolen time on the calling thread.
    pub fn gather(clock: &Clock) -> Result<Self, Error> {
        let topology = Topology::machine()?;
        let stolen = Stolen::sample(clock, Duration::from_millis(20));
        Ok(Machine::gather(&topology, clock, stolen).into())
    }

    /// `AMD EPYC, 2 CPUs under KVM, 2596 MHz TSC, Linux 6.18.44`
    pub fn line(&self) -> String {
        let under = self
            .hypervisor
            .as_ref()
            .map_or_else(String::new, |name| format!(" under {name}"));
        let release = self.kernel.split(' ').next().unwrap_or_default();
        let plural = if self.cpus == 1 { "" } else { "s" };
        format!(
            "{}, {} CPU{plural}{under}, Linux {release}, {}",
            self.cpu_model, self.cpus, self.isa
        )
    }
}

impl From<Machine> for MachineFacts {
    fn from(machine: Machine) -> Self {
        let (clock_mhz, clock_error_ppm) = match machine.clock {
            ClockSource::Tsc { mhz, error_ppm } => (mhz, error_ppm),
            // Nanoseconds of the clock that errors are relative to.
            ClockSource::Monotonic { .. } => (1000.0, 0.0),
        };
        let huge_pages = machine.huge_pages.iter().map(|pages| HugePages {
            page_bytes: pages.page_bytes,
            total: pages.total,
            free: pages.free,
        });
        Self {
            isa: machine.isa.to_string(),
            cpus: machine.cpus,
            cores: machine.cores,
            packages: machine.packages,
            nodes: machine.nodes,
            usable_cpus: machine.usable_cpus.as_slice().to_vec(),
            clock: machine.clock.to_string(),
            clock_mhz,
            clock_error_ppm,
            memory_bytes: machine.memory_bytes,
            page_bytes: machine.page_bytes,
            huge_pages: huge_pages.collect(),
            stolen_share: machine.stolen.share,
            stolen_longest_gap_ns: machine.stolen.longest_gap_ns,
            host_stolen_share: machine.stolen.host_share,
            cpu_model: machine.cpu_model,
            kernel: machine.kernel,
            transparent_huge_pages: machine.transparent_huge_pages,
            hypervisor: machine.hypervisor,
        }
    }
}
