//! Checks before a run: known causes of wrong benchmarks that can be read from the machine.

use std::process::Command;
use std::time::Duration;

use linerate_core::env::{Clock, ClockSource, CpuList, Stolen, Topology, Tree};

use crate::device::{Cpus, Setup};
use crate::report::Check;
use linerate_appliance::error::Error;

/// Share of a CPU, 0 to 1, that other threads may take without a warning.
const STOLEN: f64 = 0.02;

/// CPU time that other threads take of each CPU now.
///
/// # Errors
/// Where the machine's files cannot be read at all.
pub(super) fn stolen(clock: Clock) -> Result<Vec<Stolen>, Error> {
    let topology = Topology::machine()?;
    Ok(Stolen::sample_all(
        &topology,
        &clock,
        Duration::from_millis(50),
    )?)
}

/// Looks at the machine and at the path; `stolen` is from before the path was built.
///
/// # Errors
/// Where the machine's files cannot be read at all.
pub(super) fn checks(
    setup: &Setup,
    frame_bytes: usize,
    clock: &Clock,
    stolen: &[Stolen],
) -> Result<Vec<Check>, Error> {
    let topology = Topology::machine()?;
    let mut checks = vec![clock_source(clock), cpus(&setup.cpus, &topology)];
    checks.extend(machine(&topology, &setup.cpus));
    checks.push(taken(stolen, &setup.cpus));
    for side in &setup.sides {
        let (kind, rest) = side.spec.split_once(':').unwrap_or((&side.spec, ""));
        let name = rest.split(',').next().unwrap_or_default();
        if matches!(kind, "af_packet" | "af_xdp") {
            checks.extend(interface(name, frame_bytes, &topology));
        }
    }
    Ok(checks)
}

fn check(what: &str, well: bool, seen: impl Into<String>) -> Check {
    Check {
        what: what.into(),
        well,
        seen: seen.into(),
    }
}

fn clock_source(clock: &Clock) -> Check {
    let source = clock.source();
    let invariant = matches!(source, ClockSource::Tsc { .. });
    check("clock", invariant, source.to_string())
}

/// The assignment of CPUs, and whether other tasks may run there.
fn cpus(cpus: &Cpus, topology: &Topology) -> Check {
    let involved = cpus.generator.iter().chain(&cpus.device);
    let isolated = involved
        .clone()
        .all(|&cpu| topology.cpu(cpu).is_some_and(|cpu| cpu.isolated));
    let list = |cpus: &[u32]| match cpus {
        [] => "elsewhere".into(),
        cpus => format!("on CPU {}", cpus.iter().copied().collect::<CpuList>()),
    };
    let seen = format!(
        "generator {}, device {}{}; {}",
        list(&cpus.generator),
        list(&cpus.device),
        if cpus.shared() {
            ": they share a CPU"
        } else {
            ""
        },
        if isolated {
            "isolated"
        } else {
            "not isolated: other tasks may run there"
        }
    );
    check("CPUs", isolated && !cpus.shared(), seen)
}

/// Governor, turbo, hardware threads, NUMA, huge pages.
fn machine(topology: &Topology, cpus: &Cpus) -> Vec<Check> {
    let tree = topology.tree();
    let involved: Vec<_> = cpus
        .generator
        .iter()
        .chain(&cpus.device)
        .filter_map(|&cpu| topology.cpu(cpu))
        .collect();
    let governors: Vec<&str> = involved
        .iter()
        .filter_map(|cpu| cpu.governor.as_deref())
        .collect();
    let governor = match governors.first() {
        None => check("frequency governor", true, "none: the host decides"),
        Some(_) => check(
            "frequency governor",
            governors.iter().all(|governor| *governor == "performance"),
            governors.join(", "),
        ),
    };
    let threads = involved.iter().filter(|cpu| cpu.siblings.len() > 1).count();
    let smt = match threads {
        0 => check("hardware threads", true, "each CPU is a core of its own"),
        some => check(
            "hardware threads",
            false,
            format!("{some} of the CPUs involved share a core with another"),
        ),
    };
    let mut nodes: Vec<u32> = involved.iter().map(|cpu| cpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let huge: u64 = ["2048", "1048576"]
        .iter()
        .filter_map(|kib| {
            tree.number::<u64>(&format!(
                "sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages"
            ))
        })
        .sum();
    let thp = tree.read("sys/kernel/mm/transparent_hugepage/enabled");
    vec![
        governor,
        turbo(tree),
        smt,
        check("NUMA", nodes.len() <= 1, format!("nodes {nodes:?}")),
        check(
            "huge pages",
            huge > 0 || thp.is_some(),
            format!(
                "{huge} free; transparent: {}",
                thp.as_deref().unwrap_or("none")
            ),
        ),
    ]
}

/// Whether clock rates rise and fall with heat.
fn turbo(tree: &Tree) -> Check {
    let intel = tree.number::<u32>("sys/devices/system/cpu/intel_pstate/no_turbo");
    let generic = tree.number::<u32>("sys/devices/system/cpu/cpufreq/boost");
    match intel.map(|off| off == 0).or(generic.map(|on| on == 1)) {
        None => check("turbo", true, "cannot be read: the host decides"),
        Some(true) => check("turbo", false, "on: rates depend on heat"),
        Some(false) => check("turbo", true, "off"),
    }
}

/// What other threads took of the CPUs involved just before.
fn taken(stolen: &[Stolen], cpus: &Cpus) -> Check {
    let involved = stolen.iter().filter(|sample| {
        let here = |cpu: u32| cpus.generator.contains(&cpu) || cpus.device.contains(&cpu);
        sample.cpu.is_some_and(here)
    });
    let worst = involved.max_by(|a, b| a.share.total_cmp(&b.share));
    match worst {
        None => check("taken by others", true, "not sampled"),
        Some(worst) => check(
            "taken by others",
            worst.share < STOLEN,
            format!(
                "{:.1} % of CPU {}, at most {:.2} ms at once{}",
                worst.share * 100.0,
                worst.cpu.unwrap_or_default(),
                worst.longest_gap_ns as f64 * 1e-6,
                worst.host_share.map_or(String::new(), |share| format!(
                    "; the hypervisor gave {:.1} % away",
                    share * 100.0
                ))
            ),
        ),
    }
}

/// MTU, queues, offloads, flow control and node of an interface.
fn interface(name: &str, frame_bytes: usize, topology: &Topology) -> Vec<Check> {
    let mut checks = Vec::new();
    let ip = output("ip", &["-j", "-d", "link", "show", name]);
    let links: serde_json::Value = serde_json::from_str(&ip).unwrap_or_default();
    let link = &links[0];
    if let Some(mtu) = link["mtu"].as_u64() {
        // Without the header, its tag and the FCS.
        let needed = frame_bytes.saturating_sub(18) as u64;
        checks.push(check(
            &format!("{name}: MTU"),
            mtu >= needed,
            format!("{mtu}, {needed} needed"),
        ));
    }
    if let Some(queues) = link["num_rx_queues"].as_u64() {
        checks.push(check(
            &format!("{name}: receive queues"),
            true,
            queues.to_string(),
        ));
    }
    let features = output("ethtool", &["-k", name]);
    let on: Vec<&str> = [
        "tx-checksumming",
        "tcp-segmentation-offload",
        "generic-segmentation-offload",
        "generic-receive-offload",
        "large-receive-offload",
    ]
    .into_iter()
    .filter(|feature| features.contains(&format!("{feature}: on")))
    .collect();
    if !features.is_empty() {
        // The generator's frames are not segmented, so these do not affect them; LRO would join
        // frames.
        checks.push(check(
            &format!("{name}: offloads"),
            !on.contains(&"large-receive-offload"),
            match on.is_empty() {
                true => "none on".into(),
                false => on.join(", "),
            },
        ));
    }
    let pause = output("ethtool", &["-a", name]);
    if pause.contains("RX:") {
        let paused = pause.lines().any(|line| {
            (line.starts_with("RX:") || line.starts_with("TX:")) && line.ends_with("on")
        });
        checks.push(check(
            &format!("{name}: flow control"),
            !paused,
            if paused {
                "on: pauses hide loss"
            } else {
                "off"
            },
        ));
    }
    if let Ok(Some(node)) = topology.interface_node(name) {
        checks.push(check(&format!("{name}: NUMA node"), true, node.to_string()));
    }
    checks
}

/// What a program prints; nothing where it is missing or fails.
fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_a_machine_are_reported() {
        let sample = |cpu, share| Stolen {
            cpu: Some(cpu),
            share,
            ..Stolen::default()
        };
        let cpus = Cpus {
            generator: vec![0],
            device: vec![1],
        };
        let check = taken(&[sample(0, 0.01), sample(1, 0.3), sample(2, 0.9)], &cpus);
        assert!(
            !check.well && check.seen.contains("30.0 % of CPU 1"),
            "{check:?}"
        );
        assert!(taken(&[sample(0, 0.01)], &cpus).well);
        assert!(!clock_source(&Clock::monotonic("a test")).well);
    }
}
