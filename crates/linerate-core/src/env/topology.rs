//! The machine's CPUs as sysfs describes them: cores, packages, NUMA nodes, shared caches, and
//! which of them this process may use. Read below any root (see [`Tree`]), so tests fake machines.

use std::path::Path;

use super::{CpuList, EnvError, Tree, affinity};

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";
const CGROUPS: &str = "sys/fs/cgroup";

/// One online CPU (a hardware thread).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: u32,
    /// The socket.
    pub package: u32,
    /// The core's number, unique only within its package.
    pub core: u32,
    /// The NUMA node.
    pub node: u32,
    /// The hardware threads of the same core, this one included.
    pub siblings: CpuList,
    /// The lowest CPU that shares the level 2 cache: equal for two CPUs that share it.
    pub l2: u32,
    /// The lowest CPU that shares the level 3 cache.
    pub l3: u32,
    /// Kept free of other tasks by `isolcpus=`.
    pub isolated: bool,
    /// The frequency governor, where the machine has one.
    pub governor: Option<String>,
}

/// All online CPUs, and those that this process may use.
#[derive(Clone, Debug)]
pub struct Topology {
    tree: Tree,
    cpus: Vec<Cpu>,
    offline: CpuList,
    allowed: CpuList,
}

impl Topology {
    /// The machine that the program runs on, with the affinity of this process.
    pub fn machine() -> Result<Self, EnvError> {
        Self::from_tree(Tree::machine())
    }

    /// A machine described by files at `path`; see [`Tree::open`].
    pub fn open(path: &Path) -> Result<Self, EnvError> {
        let topology = Self::from_tree(Tree::open(path)?)?;
        if topology.cpus.is_empty() {
            let reason = "describes no online CPU".into();
            return Err(EnvError::NoTopology {
                path: path.into(),
                reason,
            });
        }
        Ok(topology)
    }

    fn from_tree(tree: Tree) -> Result<Self, EnvError> {
        let affinity = match tree.is_machine() {
            true => Some(affinity::allowed().map_err(|source| EnvError::System {
                what: "sched_getaffinity".into(),
                source,
            })?),
            false => None,
        };
        // Without sysfs (some sandboxes) only the affinity is known; each CPU is then its own core.
        let online = match read_list(&tree, &format!("{CPUS}/online"))? {
            Some(list) => list,
            None => affinity.clone().unwrap_or_else(|| cpu_directories(&tree)),
        };
        let isolated = read_list(&tree, &format!("{CPUS}/isolated"))?.unwrap_or_default();
        let present = read_list(&tree, &format!("{CPUS}/present"))?.unwrap_or_default();
        let nodes = nodes(&tree)?;
        let mut cpus = Vec::with_capacity(online.len());
        for id in online.iter() {
            let node = nodes
                .iter()
                .find(|(_, cpus)| cpus.contains(id))
                .map_or(0, |(node, _)| *node);
            cpus.push(read_cpu(&tree, id, node, isolated.contains(id))?);
        }
        let cpuset = cpuset(&tree)?;
        let in_cpuset = |id: u32| cpuset.as_ref().is_none_or(|set| set.contains(id));
        // isolcpus= takes CPUs out of every affinity it inherits, but not out of reach: that is its
        // use.
        let usable = |id: u32| match &affinity {
            Some(set) => set.contains(id) || isolated.contains(id) && in_cpuset(id),
            None => in_cpuset(id),
        };
        let allowed = online.iter().filter(|&id| usable(id)).collect();
        let offline = present.iter().filter(|&id| !online.contains(id)).collect();
        Ok(Self {
            tree,
            cpus,
            offline,
            allowed,
        })
    }

    /// The online CPUs, by number.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The online CPU with this number.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// The online CPUs that this process may use: its cpuset and affinity, and isolated CPUs.
    pub fn allowed(&self) -> &CpuList {
        &self.allowed
    }

    /// The CPUs that are there but switched off.
    pub fn offline(&self) -> &CpuList {
        &self.offline
    }

    /// The files the topology was read from.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// How many packages have an online CPU.
    pub fn packages(&self) -> usize {
        count(self.cpus.iter().map(|cpu| cpu.package))
    }

    /// How many NUMA nodes have an online CPU.
    pub fn nodes(&self) -> usize {
        count(self.cpus.iter().map(|cpu| cpu.node))
    }

    /// How many cores have an online hardware thread.
    pub fn cores(&self) -> usize {
        count(
            self.cpus
                .iter()
                .map(|cpu| cpu.siblings.iter().min().unwrap_or(cpu.id)),
        )
    }

    /// The NUMA node of a network interface; `None` where it has none (virtual devices, one node).
    pub fn interface_node(&self, name: &str) -> Result<Option<u32>, EnvError> {
        let path = format!("sys/class/net/{name}");
        if !is_name(name) || !self.tree.exists(&path) {
            return Err(EnvError::NoDevice {
                kind: "interface",
                name: name.into(),
            });
        }
        Ok(self.node_in(&format!("{path}/device/numa_node")))
    }

    /// The NUMA node of a PCI device, named as in `0000:01:00.0`.
    pub fn pci_node(&self, address: &str) -> Result<Option<u32>, EnvError> {
        let path = format!("sys/bus/pci/devices/{address}");
        if !is_name(address) || !self.tree.exists(&path) {
            return Err(EnvError::NoDevice {
                kind: "PCI device",
                name: address.into(),
            });
        }
        Ok(self.node_in(&format!("{path}/numa_node")))
    }

    /// The kernel writes -1 for "no node".
    fn node_in(&self, path: &str) -> Option<u32> {
        u32::try_from(self.tree.number::<i64>(path)?).ok()
    }
}

/// Whether this can be one entry of a directory, and does not lead out of it.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/')
}

fn count(values: impl Iterator<Item = u32>) -> usize {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}

fn read_list(tree: &Tree, path: &str) -> Result<Option<CpuList>, EnvError> {
    tree.read(path)
        .map(|text| CpuList::parse(path, &text))
        .transpose()
}

fn cpu_directories(tree: &Tree) -> CpuList {
    let mut cpus: Vec<u32> = tree
        .list(CPUS)
        .iter()
        .filter_map(|name| name.strip_prefix("cpu")?.parse().ok())
        .filter(|id| tree.read(&format!("{CPUS}/cpu{id}/online")).as_deref() != Some("0"))
        .collect();
    cpus.sort_unstable();
    cpus.into_iter().collect()
}

fn nodes(tree: &Tree) -> Result<Vec<(u32, CpuList)>, EnvError> {
    let mut nodes = Vec::new();
    for name in tree.list(NODES) {
        let Some(number) = name.strip_prefix("node").and_then(|n| n.parse().ok()) else {
            continue;
        };
        if let Some(cpus) = read_list(tree, &format!("{NODES}/{name}/cpulist"))? {
            nodes.push((number, cpus));
        }
    }
    Ok(nodes)
}

fn read_cpu(tree: &Tree, id: u32, node: u32, isolated: bool) -> Result<Cpu, EnvError> {
    let cpu = format!("{CPUS}/cpu{id}");
    let topology = format!("{cpu}/topology");
    // Newer kernels call the file core_cpus_list.
    let siblings = match read_list(tree, &format!("{topology}/thread_siblings_list"))? {
        Some(list) => Some(list),
        None => read_list(tree, &format!("{topology}/core_cpus_list"))?,
    };
    let (mut l2, mut l3) = (id, id);
    for index in tree.list(&format!("{cpu}/cache")) {
        let cache = format!("{cpu}/cache/{index}");
        let shared = read_list(tree, &format!("{cache}/shared_cpu_list"))?;
        let lowest = shared.and_then(|list| list.iter().min()).unwrap_or(id);
        match tree.number(&format!("{cache}/level")) {
            Some(2) => l2 = lowest,
            Some(3) => l3 = lowest,
            _ => {}
        }
    }
    Ok(Cpu {
        id,
        // Some virtual machines write -1 here.
        package: tree
            .number(&format!("{topology}/physical_package_id"))
            .unwrap_or(0),
        core: tree.number(&format!("{topology}/core_id")).unwrap_or(id),
        node,
        siblings: siblings
            .filter(|list| list.contains(id))
            .unwrap_or_else(|| [id].into_iter().collect()),
        l2,
        l3,
        isolated,
        governor: tree.read(&format!("{cpu}/cpufreq/scaling_governor")),
    })
}

/// The CPUs of this process's cgroup; `None` where no cpuset restricts it.
///
/// Inside a container without a cgroup name space, /proc/self/cgroup names a path of the host that
/// is not there; the container's own group is then mounted at the top.
fn cpuset(tree: &Tree) -> Result<Option<CpuList>, EnvError> {
    let groups = tree.read("proc/self/cgroup").unwrap_or_default();
    let (mut v1, mut v2) = (String::new(), String::new());
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        if controllers.is_empty() {
            v2 = path.trim_end_matches('/').into();
        } else if controllers.split(',').any(|name| name == "cpuset") {
            v1 = path.trim_end_matches('/').into();
        }
    }
    let candidates = [
        format!("{CGROUPS}{v2}/cpuset.cpus.effective"),
        format!("{CGROUPS}/cpuset.cpus.effective"),
        format!("{CGROUPS}/cpuset{v1}/cpuset.effective_cpus"),
        format!("{CGROUPS}/cpuset{v1}/cpuset.cpus"),
        format!("{CGROUPS}/cpuset/cpuset.effective_cpus"),
        format!("{CGROUPS}/cpuset/cpuset.cpus"),
    ];
    for path in candidates {
        if let Some(list) = read_list(tree, &path)?.filter(|list| !list.is_empty()) {
            return Ok(Some(list));
        }
    }
    Ok(None)
}

#[cfg(test)]
pub(super) mod tests;
