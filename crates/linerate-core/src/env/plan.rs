//! The plan: roles on logical slots, slots on CPUs.
//!
//! An appliance is written against roles and configured with slots; the CPU of a slot depends on
//! the machine. So the same `[plan]` runs on another machine, another numbering of hyper-threads or
//! a small virtual machine. One slot is one lcore. Two lcores share a CPU only where the mapping
//! says so, or where there are more slots than CPUs: that is a warning.

mod place;
mod roles;

use std::fmt;

use super::{CpuList, EnvError, Topology};

/// What an lcore does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Background and control: sleeps most of the time.
    Bg,
    /// Polls ports and hands packets out: always busy. The default role of an lcore.
    #[default]
    Io,
    /// Processes packets (an execution unit): always busy.
    Eu,
}

impl Role {
    /// All roles, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Bg, Self::Io, Self::Eu];

    /// The key in `[plan]`, and the start of the lcores' names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bg => "bg",
            Self::Io => "io",
            Self::Eu => "eu",
        }
    }

    /// The role with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Whether its lcores poll, and so fill their CPU.
    pub fn is_busy(self) -> bool {
        self != Self::Bg
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The `[plan]` stanza as written: lists such as `0,2-4`, or nothing where it shall be chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanSpec {
    /// Slots of [`Role::Bg`].
    pub bg: Option<String>,
    /// Slots of [`Role::Io`].
    pub io: Option<String>,
    /// Slots of [`Role::Eu`].
    pub eu: Option<String>,
    /// The CPU behind each slot: slot n is the n-th of the list.
    pub cpus: Option<String>,
}

impl PlanSpec {
    /// The slots that a role was given.
    pub fn role(&self, role: Role) -> Option<&str> {
        match role {
            Role::Bg => self.bg.as_deref(),
            Role::Io => self.io.as_deref(),
            Role::Eu => self.eu.as_deref(),
        }
    }
}

/// A port that the io lcores will poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlace {
    /// What the user calls it.
    pub name: String,
    /// Its NUMA node, where it has one.
    pub node: Option<u32>,
}

/// One lcore of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// `io0`, `io1`, `eu0`: the role and a number within it.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its slot.
    pub slot: u32,
    /// The CPU to bind it to.
    pub cpu: u32,
    /// The NUMA node of that CPU.
    pub node: u32,
}

/// Which lcore runs where, and what is wrong with that.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The lcores: bg, then io, then eu, each in the order written.
    pub lcores: Vec<Placement>,
    /// What will cost speed.
    pub warnings: Vec<Warning>,
    /// The roles whose slots were chosen here because the stanza left them out.
    pub chosen: Vec<Role>,
}

impl Plan {
    /// Places the lcores of `spec` on the CPUs that `topology` allows, near `ports`.
    ///
    /// ```
    /// use linerate_core::env::{Plan, PlanSpec, Role, Topology};
    /// let plan = Plan::build(&PlanSpec::default(), &Topology::machine()?, &[])?;
    /// assert!(plan.role(Role::Io).count() >= 1);
    /// # Ok::<(), linerate_core::env::EnvError>(())
    /// ```
    pub fn build(
        spec: &PlanSpec,
        topology: &Topology,
        ports: &[PortPlace],
    ) -> Result<Self, EnvError> {
        let order = place::order(topology, ports);
        if order.is_empty() {
            return Err(EnvError::NoCpus);
        }
        let mapping = place::mapping(spec, topology)?;
        let lanes = match &mapping {
            Some(cpus) => cpus.len(),
            None => place::cores(topology, &order),
        };
        let slots = roles::assign(spec, lanes)?;
        let cpus = match &mapping {
            Some(mapping) => place::by_mapping(&slots, mapping)?,
            None => place::by_order(&slots, &order, topology)?,
        };
        let mut lcores = Vec::with_capacity(cpus.len());
        for (slot, cpu) in slots.list.iter().zip(cpus) {
            let number = lcores
                .iter()
                .filter(|l: &&Placement| l.role == slot.role)
                .count();
            lcores.push(Placement {
                name: format!("{}{number}", slot.role),
                role: slot.role,
                slot: slot.number,
                cpu,
                node: topology.cpu(cpu).map_or(0, |cpu| cpu.node),
            });
        }
        let warnings = warnings(&lcores, topology, ports);
        Ok(Self {
            lcores,
            warnings,
            chosen: slots.chosen,
        })
    }

    /// The plan of a program that has no lcores of other `roles`: without them, and without
    /// warnings of them.
    #[must_use]
    pub fn of_roles(mut self, roles: &[Role], topology: &Topology, ports: &[PortPlace]) -> Self {
        self.lcores.retain(|lcore| roles.contains(&lcore.role));
        self.warnings = warnings(&self.lcores, topology, ports);
        self
    }

    /// The lcores of one role.
    pub fn role(&self, role: Role) -> impl Iterator<Item = &Placement> {
        self.lcores.iter().filter(move |lcore| lcore.role == role)
    }

    /// The distinct CPUs in use, ascending.
    pub fn cpus(&self) -> CpuList {
        distinct(self.lcores.iter().map(|lcore| lcore.cpu))
    }

    /// The stanza that gives this very plan, with `cpus` where the slots are numbered without gaps.
    pub fn spec(&self) -> PlanSpec {
        let role = |role| {
            Some(
                self.role(role)
                    .map(|l| l.slot)
                    .collect::<CpuList>()
                    .to_string(),
            )
        };
        let mut by_slot: Vec<_> = self.lcores.iter().map(|l| (l.slot, l.cpu)).collect();
        by_slot.sort_unstable();
        let dense = by_slot
            .iter()
            .enumerate()
            .all(|(n, (slot, _))| n == *slot as usize);
        let cpus = dense.then(|| {
            by_slot
                .iter()
                .map(|(_, cpu)| *cpu)
                .collect::<CpuList>()
                .to_string()
        });
        PlanSpec {
            bg: role(Role::Bg),
            io: role(Role::Io),
            eu: role(Role::Eu),
            cpus,
        }
    }
}

/// What will cost speed, though the plan works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// More busy lcores than CPUs for them.
    OverCommitted {
        /// The names of the busy lcores that share a CPU with another one.
        lcores: Vec<String>,
        /// The CPUs they share.
        cpus: CpuList,
    },
    /// Two busy lcores on the hardware threads of one core.
    Siblings {
        /// One lcore and its CPU.
        first: (String, u32),
        /// The other.
        second: (String, u32),
    },
    /// No io lcore on the NUMA node of a port.
    OffNode {
        /// The port.
        port: String,
        /// Its node.
        node: u32,
        /// The nodes on which io lcores run.
        polled_from: CpuList,
    },
    /// A background lcore on the CPU of a busy one.
    SharedWithBg {
        /// The background lcore.
        bg: String,
        /// The busy lcore.
        busy: String,
        /// Their CPU.
        cpu: u32,
    },
}

impl Warning {
    /// A short name, for machines.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::OverCommitted { .. } => "over-committed",
            Self::Siblings { .. } => "siblings",
            Self::OffNode { .. } => "off-node",
            Self::SharedWithBg { .. } => "shared-with-bg",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverCommitted { lcores, cpus } => {
                write!(
                    f,
                    "over-committed: busy lcores {} share CPU {cpus}; each waits while another \
                     runs",
                    lcores.join(", ")
                )
            }
            Self::Siblings { first, second } => write!(
                f,
                "{} (CPU {}) and {} (CPU {}) are both busy on hardware threads of one core: expect \
                 well under twice the work of one",
                first.0, first.1, second.0, second.1
            ),
            Self::OffNode {
                port,
                node,
                polled_from,
            } => write!(
                f,
                "port {port} is on NUMA node {node}, but io lcores run only on node {polled_from}: \
                 each packet crosses the link"
            ),
            Self::SharedWithBg { bg, busy, cpu } => {
                write!(
                    f,
                    "{bg} shares CPU {cpu} with busy {busy}: background work will show as gaps in \
                     it"
                )
            }
        }
    }
}

fn warnings(lcores: &[Placement], topology: &Topology, ports: &[PortPlace]) -> Vec<Warning> {
    let busy: Vec<_> = lcores.iter().filter(|l| l.role.is_busy()).collect();
    let mut warnings = Vec::new();
    let crowded: Vec<_> = busy
        .iter()
        .filter(|a| busy.iter().filter(|b| b.cpu == a.cpu).count() > 1)
        .collect();
    if !crowded.is_empty() {
        let cpus = distinct(crowded.iter().map(|l| l.cpu));
        let lcores = crowded.iter().map(|l| l.name.clone()).collect();
        warnings.push(Warning::OverCommitted { lcores, cpus });
    }
    for (i, a) in busy.iter().enumerate() {
        let siblings = topology.cpu(a.cpu).map(|cpu| &cpu.siblings);
        for b in busy[i + 1..].iter().filter(|b| b.cpu != a.cpu) {
            if siblings.is_some_and(|siblings| siblings.contains(b.cpu)) {
                let (first, second) = ((a.name.clone(), a.cpu), (b.name.clone(), b.cpu));
                warnings.push(Warning::Siblings { first, second });
            }
        }
    }
    let polled_from = distinct(busy.iter().filter(|l| l.role == Role::Io).map(|l| l.node));
    for port in ports {
        if let Some(node) = port.node.filter(|&node| !polled_from.contains(node)) {
            warnings.push(Warning::OffNode {
                port: port.name.clone(),
                node,
                polled_from: polled_from.clone(),
            });
        }
    }
    for bg in lcores.iter().filter(|l| l.role == Role::Bg) {
        if let Some(busy) = busy.iter().find(|l| l.cpu == bg.cpu) {
            warnings.push(Warning::SharedWithBg {
                bg: bg.name.clone(),
                busy: busy.name.clone(),
                cpu: bg.cpu,
            });
        }
    }
    warnings
}

fn distinct(numbers: impl Iterator<Item = u32>) -> CpuList {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().collect()
}

#[cfg(test)]
mod tests;
