//! CPUs: their number, other tasks on them, their clock rates.

use super::{Check, Patient};
use crate::env::{CpuList, Plan, PlanSpec};

pub(super) fn checks(patient: &Patient<'_>) -> Vec<Check> {
    vec![
        cpus(patient),
        isolation(patient),
        governor(patient),
        interrupts(patient),
    ]
}

/// The CPUs that the plan chosen for this machine keeps busy, and shares with no background lcore.
fn busy(patient: &Patient<'_>) -> CpuList {
    let Ok(plan) = Plan::build(&PlanSpec::default(), patient.topology, &[]) else {
        return CpuList::default();
    };
    let background: Vec<u32> = plan
        .lcores
        .iter()
        .filter(|l| !l.role.is_busy())
        .map(|l| l.cpu)
        .collect();
    plan.cpus()
        .iter()
        .filter(|cpu| !background.contains(cpu))
        .collect()
}

fn cpus(patient: &Patient<'_>) -> Check {
    let topology = patient.topology;
    let check = Check::new("cores", "CPUs", "one for each busy lcore, one for the rest");
    let found = format!(
        "{} of {} usable ({}): {} core(s), {} socket(s), {} NUMA node(s)",
        topology.allowed().len(),
        topology.cpus().len(),
        topology.allowed(),
        topology.cores(),
        topology.packages(),
        topology.nodes()
    );
    if topology.allowed().len() >= 3 {
        return check.ok(found);
    }
    check.poor(
        found,
        "give the machine or container 3 or more CPUs, so that bg, io and eu need \
        not share (`linerate plan`)",
    )
}

fn isolation(patient: &Patient<'_>) -> Check {
    let check = Check::new(
        "cores",
        "isolated CPUs",
        "no other task runs on a polling lcore's CPU",
    );
    let isolated: CpuList = patient
        .topology
        .cpus()
        .iter()
        .filter(|cpu| cpu.isolated)
        .map(|cpu| cpu.id)
        .collect();
    if !isolated.is_empty() {
        return check.ok(isolated.to_string());
    }
    let busy = busy(patient);
    if busy.is_empty() {
        return check.poor(
            "none",
            "a machine with one CPU has none to isolate: give it more",
        );
    }
    check.poor(
        "none",
        format!(
            "add to the kernel's command line: isolcpus={busy} nohz_full={busy} rcu_nocbs={busy}"
        ),
    )
}

fn governor(patient: &Patient<'_>) -> Check {
    let check = Check::new(
        "cores",
        "frequency governor",
        "cores that do not slow down between bursts",
    );
    let usable = patient
        .topology
        .allowed()
        .iter()
        .filter_map(|id| patient.topology.cpu(id));
    let mut governors: Vec<&str> = usable.filter_map(|cpu| cpu.governor.as_deref()).collect();
    governors.sort_unstable();
    governors.dedup();
    match governors[..] {
        [] => check.ok("none here: hypervisor or firmware decides"),
        ["performance"] => check.ok("performance"),
        _ => {
            let files = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
            check.poor(
                governors.join(", "),
                patient.write_command("performance", files),
            )
        }
    }
}

fn interrupts(patient: &Patient<'_>) -> Check {
    let check = Check::new(
        "cores",
        "interrupt affinity",
        "device interrupts stay off the CPUs of polling lcores",
    );
    let tree = patient.tree();
    let busy = busy(patient);
    let numbers: Vec<String> = tree
        .list("proc/irq")
        .into_iter()
        .filter(|n| n.parse::<u32>().is_ok())
        .collect();
    // effective_affinity is where an interrupt really goes; smp_affinity is only where it may go.
    let targets = |irq: &String| {
        let read = |file| {
            tree.read(&format!("proc/irq/{irq}/{file}"))
                .filter(|text| !text.is_empty())
        };
        let text = read("effective_affinity_list").or_else(|| read("smp_affinity_list"))?;
        CpuList::parse("smp_affinity_list", &text).ok()
    };
    let on_busy = numbers
        .iter()
        .filter_map(targets)
        .filter(|cpus| cpus.iter().any(|cpu| busy.contains(cpu)))
        .count();
    let total = numbers.len();
    if on_busy == 0 {
        return check.ok(format!("none of {total} go to CPU {busy}"));
    }
    let rest: CpuList = patient
        .topology
        .cpus()
        .iter()
        .map(|cpu| cpu.id)
        .filter(|&cpu| !busy.contains(cpu))
        .collect();
    let fix = format!(
        "{}  # and stop irqbalance, if it runs",
        patient.write_command(rest, "/proc/irq/[0-9]*/smp_affinity_list")
    );
    check.poor(format!("{on_busy} of {total} go to CPU {busy}"), fix)
}
