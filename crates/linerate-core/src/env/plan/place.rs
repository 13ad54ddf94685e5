//! The CPU of each slot.

use super::roles::{Slot, Slots};
use super::{PlanSpec, PortPlace};
use crate::env::{CpuList, EnvError, Topology};

/// The most lcores that may share a CPU: beyond it a plan is taken for a mistake.
const MOST_PER_CPU: usize = 8;

/// The usable CPUs, best first: one hardware thread of every core before any second thread, and
/// within that the node nearest to the ports, then neighbours in package and cache together.
pub(super) fn order(topology: &Topology, ports: &[PortPlace]) -> Vec<u32> {
    let allowed = topology.allowed();
    let near = near(topology, ports);
    let mut cpus: Vec<_> = topology
        .cpus()
        .iter()
        .filter(|cpu| allowed.contains(cpu.id))
        .collect();
    cpus.sort_by_key(|cpu| {
        let thread = cpu
            .siblings
            .iter()
            .filter(|&other| other < cpu.id && allowed.contains(other))
            .count();
        (
            thread,
            Some(cpu.node) != near,
            cpu.node,
            cpu.package,
            cpu.l3,
            cpu.id,
        )
    });
    cpus.into_iter().map(|cpu| cpu.id).collect()
}

/// The node with most ports; without ports on any node, the one with most usable CPUs.
fn near(topology: &Topology, ports: &[PortPlace]) -> Option<u32> {
    let most = |nodes: Vec<u32>| {
        let count = |node| nodes.iter().filter(|&&n| n == node).count();
        nodes
            .iter()
            .copied()
            .max_by_key(|&node| (count(node), std::cmp::Reverse(node)))
    };
    let of_ports = most(ports.iter().filter_map(|port| port.node).collect());
    let usable = topology.allowed().iter().filter_map(|id| topology.cpu(id));
    of_ports.or_else(|| most(usable.map(|cpu| cpu.node).collect()))
}

/// How many lcores a plan chosen here should have: the cores of the best node; with isolated CPUs,
/// those and one for the background.
pub(super) fn cores(topology: &Topology, order: &[u32]) -> usize {
    let first_threads = || {
        let first = |id: &u32| {
            let siblings = topology.cpu(*id).map(|cpu| &cpu.siblings);
            !siblings.is_some_and(|all| {
                all.iter()
                    .any(|other| other < *id && order.contains(&other))
            })
        };
        order
            .iter()
            .filter(move |id| first(id))
            .filter_map(|id| topology.cpu(*id))
    };
    let isolated = first_threads().filter(|cpu| cpu.isolated).count();
    if isolated > 0 {
        return isolated + 1;
    }
    let best = first_threads().next().map(|cpu| cpu.node);
    first_threads().filter(|cpu| Some(cpu.node) == best).count()
}

/// The CPUs of `cpus = ...`, each one checked.
pub(super) fn mapping(spec: &PlanSpec, topology: &Topology) -> Result<Option<CpuList>, EnvError> {
    let Some(text) = &spec.cpus else {
        return Ok(None);
    };
    let cpus = CpuList::parse("cpus", text)?;
    if cpus.is_empty() {
        return Err(EnvError::Empty { key: "cpus" });
    }
    for (slot, cpu) in cpus.iter().enumerate() {
        let reason = if topology.offline().contains(cpu) {
            "is offline"
        } else if topology.cpu(cpu).is_none() {
            "does not exist on this machine"
        } else if !topology.allowed().contains(cpu) {
            "is not in this process's cpuset"
        } else {
            continue;
        };
        let allowed = topology.allowed().clone();
        return Err(EnvError::CpuUnusable {
            cpu,
            slot: slot as u32,
            reason,
            allowed,
        });
    }
    Ok(Some(cpus))
}

/// The CPU of each slot where the user gave a mapping. Slots that the user did not write may wrap.
pub(super) fn by_mapping(slots: &Slots, mapping: &CpuList) -> Result<Vec<u32>, EnvError> {
    let cpus = mapping.as_slice();
    limit(slots, cpus.len())?;
    let place = |slot: &Slot| match cpus.get(slot.number as usize) {
        Some(&cpu) => Ok(cpu),
        None if slot.chosen => Ok(cpus[slot.number as usize % cpus.len()]),
        None => Err(no_such_slot(
            slot,
            format!(
                "`cpus` names {}, for slots 0-{}",
                cpus.len(),
                cpus.len() - 1
            ),
        )),
    };
    slots.list.iter().map(place).collect()
}

/// The CPU of each slot where the choice is ours: slot n is the n-th CPU of `order`. More slots
/// than CPUs wrap around. Isolated CPUs go to busy lcores, the others to the background.
pub(super) fn by_order(
    slots: &Slots,
    order: &[u32],
    topology: &Topology,
) -> Result<Vec<u32>, EnvError> {
    limit(slots, order.len())?;
    let mut numbers: Vec<u32> = slots.list.iter().map(|slot| slot.number).collect();
    numbers.sort_unstable();
    let wraps = numbers.len() > order.len();
    // A number beyond the CPUs and beyond the lcores too: a mistake rather than a small machine.
    let offered = order.len().max(numbers.len());
    if let Some(slot) = slots
        .list
        .iter()
        .find(|slot| slot.number as usize >= offered)
    {
        let last = order.len() - 1;
        return Err(no_such_slot(
            slot,
            format!("the {} usable CPUs here are slots 0-{last}", order.len()),
        ));
    }
    let is_isolated = |id: &u32| topology.cpu(*id).is_some_and(|cpu| cpu.isolated);
    let (isolated, housekeeping): (Vec<u32>, Vec<u32>) =
        order.iter().partition(|id| is_isolated(id));
    let split = !isolated.is_empty() && !housekeeping.is_empty();
    let mut turns = [0; 2];
    let place = |slot: &Slot| -> u32 {
        if split {
            let busy = slot.role.is_busy();
            // Once the isolated CPUs are used up, busy lcores go on with the others, and around.
            let cpus = if busy {
                [&isolated[..], &housekeeping[1..]].concat()
            } else {
                housekeeping.clone()
            };
            let turn = &mut turns[usize::from(busy)];
            *turn += 1;
            return cpus[(*turn - 1) % cpus.len()];
        }
        let rank = || numbers.partition_point(|&number| number < slot.number);
        order[if wraps {
            rank() % order.len()
        } else {
            slot.number as usize
        }]
    };
    Ok(slots.list.iter().map(place).collect())
}

fn limit(slots: &Slots, cpus: usize) -> Result<(), EnvError> {
    let lcores = slots.list.len();
    match lcores > cpus * MOST_PER_CPU {
        true => Err(EnvError::TooManyLcores {
            lcores,
            cpus,
            most: MOST_PER_CPU,
        }),
        false => Ok(()),
    }
}

fn no_such_slot(slot: &Slot, reason: String) -> EnvError {
    EnvError::NoSuchSlot {
        slot: slot.number,
        role: slot.role.name(),
        reason,
    }
}
