//! The facts about a machine without which a measurement means nothing.

use super::{Clock, ClockSource, CpuList, Isa, Stolen, Topology, Tree, cpu};

const HUGE_PAGES: &str = "sys/kernel/mm/hugepages";

/// The facts in every report about the machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The CPU's name.
    pub cpu_model: String,
    /// What it can execute.
    pub isa: Isa,
    /// Online CPUs.
    pub cpus: usize,
    /// Cores among them.
    pub cores: usize,
    /// Sockets among them.
    pub packages: usize,
    /// NUMA nodes among them.
    pub nodes: usize,
    /// The CPUs that this process may use.
    pub usable_cpus: CpuList,
    /// Where ticks come from, and at which rate.
    pub clock: ClockSource,
    /// The kernel's release and version.
    pub kernel: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The size of an ordinary page.
    pub page_bytes: usize,
    /// Each size of huge pages that the kernel offers.
    pub huge_pages: Vec<HugePages>,
    /// The mode of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// The hypervisor, if it is a virtual machine.
    pub hypervisor: Option<String>,
    /// CPU time that other threads took when it was sampled.
    pub stolen: Stolen,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes in a page.
    pub page_bytes: u64,
    /// Pages set aside.
    pub total: u64,
    /// Pages of them not in use.
    pub free: u64,
}

impl Machine {
    /// Gathers the facts. `stolen` is a sample taken by the caller, best beside the measurement.
    pub fn gather(topology: &Topology, clock: &Clock, stolen: Stolen) -> Self {
        let tree = topology.tree();
        let file = |path: &str| tree.read(path).unwrap_or_default();
        let kernel = format!(
            "{} {}",
            file("proc/sys/kernel/osrelease"),
            file("proc/sys/kernel/version")
        );
        Self {
            cpu_model: cpu::model(tree),
            isa: Isa::detect(),
            cpus: topology.cpus().len(),
            cores: topology.cores(),
            packages: topology.packages(),
            nodes: topology.nodes(),
            usable_cpus: topology.allowed().clone(),
            clock: clock.source(),
            kernel: kernel.trim().into(),
            memory_bytes: memory_bytes(tree),
            page_bytes: rustix::param::page_size(),
            huge_pages: huge_pages(tree),
            transparent_huge_pages: transparent_huge_pages(tree),
            hypervisor: cpu::hypervisor(tree),
            stolen,
        }
    }
}

/// Every size of huge pages, smallest first.
pub(super) fn huge_pages(tree: &Tree) -> Vec<HugePages> {
    let mut sizes: Vec<_> = tree
        .list(HUGE_PAGES)
        .iter()
        .filter_map(|name| {
            let kib: u64 = name
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            let number = |file| tree.number(&format!("{HUGE_PAGES}/{name}/{file}"));
            Some(HugePages {
                page_bytes: kib * 1024,
                total: number("nr_hugepages")?,
                free: number("free_hugepages")?,
            })
        })
        .collect();
    sizes.sort_by_key(|pages| pages.page_bytes);
    sizes
}

/// The word in brackets of `always [madvise] never`.
pub(super) fn transparent_huge_pages(tree: &Tree) -> Option<String> {
    let modes = tree.read("sys/kernel/mm/transparent_hugepage/enabled")?;
    Some(modes.split_once('[')?.1.split_once(']')?.0.into())
}

fn memory_bytes(tree: &Tree) -> u64 {
    let info = tree.read("proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_itself_has_all_facts() {
        let topology = Topology::machine().unwrap();
        let machine = Machine::gather(&topology, &Clock::calibrate(), Stolen::default());
        assert!(
            machine.cpus >= 1 && machine.cores >= 1 && machine.memory_bytes > 1 << 20,
            "{machine:?}"
        );
        assert!(
            machine.page_bytes >= 4096
                && !machine.kernel.is_empty()
                && !machine.cpu_model.is_empty()
        );
    }
}
