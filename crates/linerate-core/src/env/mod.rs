//! What the program stands on: CPUs, threads, time, and what the machine can do.
//!
//! Everything is a value read once and passed on; nothing here is global, so any number of
//! runtimes live in one process. Read in this order: [`Tree`] (files below a root that tests
//! fake), [`Topology`] (CPUs, caches, NUMA), [`Plan`] (roles on slots on CPUs), [`Lcore`]
//! (a pinned thread), [`Clock`] (ticks and nanoseconds), then what reports and the doctor say
//! about a machine: [`Machine`], [`Stolen`], [`doctor`].

mod affinity;
mod clock;
mod cpu;
mod cpulist;
pub mod doctor;
mod error;
mod lcore;
mod machine;
mod plan;
mod private_folder;
mod stolen;
mod suggest;
mod topology;
mod tree;

pub use affinity::allowed as allowed_cpus;
pub(crate) use clock::ticks;
pub use clock::{Clock, ClockSource};
pub use cpu::Isa;
pub use cpulist::CpuList;
pub use error::EnvError;
pub use lcore::{Lcore, LcoreHandle};
pub use machine::{HugePages, Machine};
pub use plan::{Placement, Plan, PlanSpec, PortPlace, Role, Warning};
pub use private_folder::PrivateFolder;
pub use stolen::{GAP_NS, Stolen};
pub use suggest::{LcoreLoad, Suggestion};
pub use topology::{Cpu, Topology};
pub use tree::Tree;
