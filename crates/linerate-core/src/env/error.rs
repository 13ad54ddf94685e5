//! Why the environment could not be read or set up, and what to do about it.

use std::io;
use std::path::PathBuf;

use super::CpuList;

/// An error of the environment. `Display` names the thing and the reason, [`EnvError::fix`] the
/// fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// A CPU or slot list that is not of the form `0,2-4`.
    #[error("{key}: `{text}` is not a list such as `0,2-4`: {reason}")]
    BadList {
        /// The key or file that held the list.
        key: String,
        /// The text as written.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The topology to read is not there, or is no sysfs tree.
    #[error("topology {}: {reason}", path.display())]
    NoTopology {
        /// The directory or listing that was given.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A network interface or PCI device that the machine does not have.
    #[error("{kind} {name}: no such device")]
    NoDevice {
        /// `interface` or `PCI device`.
        kind: &'static str,
        /// The name as written.
        name: String,
    },
    /// One slot was given to two roles, or twice to one.
    #[error("[plan] slot {slot} is given to both {first} and {second}")]
    Overlap {
        /// The slot.
        slot: u32,
        /// The role that named it first.
        first: String,
        /// The role that named it again.
        second: String,
    },
    /// A role without slots, or a mapping without CPUs.
    #[error("[plan] {key} is empty")]
    Empty {
        /// The key.
        key: &'static str,
    },
    /// The cpuset and the online CPUs have nothing in common.
    #[error("no online CPU is in this process's cpuset")]
    NoCpus,
    /// A slot without a CPU.
    #[error("[plan] slot {slot} ({role}) has no CPU: {reason}")]
    NoSuchSlot {
        /// The slot.
        slot: u32,
        /// The role that has the slot.
        role: &'static str,
        /// Why it has no CPU.
        reason: String,
    },
    /// A CPU of the plan that this process may not or cannot use.
    #[error("[plan] CPU {cpu} (slot {slot}) {reason}; usable here: {allowed}")]
    CpuUnusable {
        /// The CPU.
        cpu: u32,
        /// The slot mapped to it.
        slot: u32,
        /// Why it cannot be used.
        reason: &'static str,
        /// The CPUs that can.
        allowed: CpuList,
    },
    /// So many lcores a CPU that no such plan can be meant.
    #[error(
        "[plan] {lcores} lcores on {cpus} usable CPU(s): at most {most} lcores can share a CPU"
    )]
    TooManyLcores {
        /// Lcores wanted.
        lcores: usize,
        /// CPUs there are.
        cpus: usize,
        /// The limit per CPU.
        most: usize,
    },
    /// A report of a finished run from which nothing can be learnt.
    #[error("report: {reason}")]
    BadReport {
        /// What is wrong with it.
        reason: String,
    },
    /// A thread name that the system cannot take.
    #[error("lcore name {name:?}: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The thread of an lcore could not be started.
    #[error("lcore {name}: the thread could not be started: {source}")]
    Spawn {
        /// The lcore.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The thread of an lcore could not be bound to its CPU.
    #[error("lcore {name}: cannot run on CPU {cpu}: {source}; allowed here: {allowed}")]
    Pin {
        /// The lcore.
        name: String,
        /// The CPU.
        cpu: u32,
        /// The CPUs that the process may use.
        allowed: CpuList,
        /// The system's error.
        source: io::Error,
    },
    /// The code that ran on an lcore panicked.
    #[error("lcore {name} panicked: {message}")]
    Panicked {
        /// The lcore.
        name: String,
        /// The panic's message.
        message: String,
    },
    /// A file or call of the system failed.
    #[error("{what}: {source}")]
    System {
        /// The file or call.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl EnvError {
    /// What the user can do about it, as one imperative sentence or command.
    pub fn fix(&self) -> Option<String> {
        Some(match self {
            Self::BadList { key, .. } => {
                format!(
                    "write {key} as numbers and ranges separated by commas, for example \
                    \"0,2-4\""
                )
            }
            Self::NoTopology { .. } => {
                "give a directory that holds sys/devices/system/cpu (a copy or a fake of /sys), or \
                 a file made by `grep -rs . /sys/devices/system/{cpu,node} \
                 /sys/class/net/*/device/numa_node`"
                    .into()
            }
            Self::NoDevice { .. } => "list the devices with `linerate ports` or `ip link`".into(),
            Self::Overlap { .. } => {
                "give each slot to one role; to let two lcores share a CPU, map two slots to it: \
                 cpus = \"0,0,1\""
                    .into()
            }
            Self::Empty { key } => format!(
                "name at least one number in {key}, or leave it out to \
                have it chosen"
            ),
            Self::NoCpus => "widen the container's cpuset, or bring one of its CPUs online".into(),
            Self::NoSuchSlot { .. } => {
                "number the slots from 0 without gaps, lengthen `cpus`, or leave `cpus` out".into()
            }
            Self::CpuUnusable { allowed, .. } => {
                format!(
                    "choose from {allowed}, or widen the container's cpuset or the taskset of \
                    this process"
                )
            }
            Self::TooManyLcores { .. } => "plan fewer lcores, or leave [plan] out to have \
                it chosen"
                .into(),
            Self::BadReport { .. } => "give the JSON report of a finished run, such as `linerate \
                l2fwd --json` prints"
                .into(),
            Self::BadName { .. } => "use 1 to 15 bytes without NUL".into(),
            Self::Spawn { .. } => "raise the limit on threads: `ulimit -u`, or pids.max of the \
                container"
                .into(),
            Self::Pin { allowed, .. } => format!(
                "choose a CPU from {allowed}; `linerate plan` \
                shows a valid choice"
            ),
            Self::Panicked { .. } => return None,
            Self::System { .. } => return None,
        })
    }
}
