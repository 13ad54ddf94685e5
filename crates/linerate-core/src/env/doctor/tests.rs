//! A patient on paper: every finding in its good and its bad form, with the command that cures it.

use super::*;
use crate::env::PrivateFolder;
use std::io;

fn errno(code: i32) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(code))
}

fn unprivileged() -> Probes {
    Probes {
        af_packet: errno(libc::EPERM),
        af_xdp: errno(libc::EAFNOSUPPORT),
        bpf: errno(libc::EPERM),
        tun: errno(libc::ENOENT),
        vfio: errno(libc::ENOENT),
        memlock_bytes: Some(64 << 10),
        capabilities: 0,
        root: false,
    }
}

fn privileged() -> Probes {
    Probes {
        af_packet: Ok(()),
        af_xdp: Ok(()),
        bpf: Ok(()),
        tun: Ok(()),
        vfio: Ok(()),
        memlock_bytes: None,
        capabilities: u64::MAX,
        root: true,
    }
}

fn examine(listing: &str, probes: &Probes, share: f64) -> Vec<Check> {
    let folder = PrivateFolder::new("doctor").unwrap();
    let path = folder.join("listing.txt");
    std::fs::write(&path, listing).unwrap();
    let topology = Topology::open(&path);
    let stolen = [Stolen {
        cpu: Some(1),
        window_ns: 200_000_000,
        share,
        longest_gap_ns: 8_000_000,
        host_share: None,
    }];
    let clock = Clock::monotonic("the CPU has no invariant TSC");
    Patient {
        topology: &topology.unwrap(),
        clock: &clock,
        probes,
        stolen: &stolen,
        program: "/usr/bin/linerate",
    }
    .examine()
}

fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks
        .iter()
        .find(|check| check.name == name)
        .unwrap_or_else(|| panic!("no check {name}"))
}

const POOR: &str = "\
/sys/devices/system/cpu/online:0-3
/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor:powersave
/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages:0
/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages:0
/sys/kernel/mm/transparent_hugepage/enabled:always madvise [never]
/proc/irq/24/smp_affinity_list:0-3
/proc/irq/25/effective_affinity_list:0
/proc/irq/25/smp_affinity_list:0-3
/proc/irq/default_smp_affinity:f
";

const GOOD: &str = "\
/sys/devices/system/cpu/online:0-7
/sys/devices/system/cpu/isolated:2-7
/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor:performance
/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages:1024
/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages:1000
/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages:4
/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages:4
/sys/kernel/mm/transparent_hugepage/enabled:always [madvise] never
/sys/kernel/iommu_groups/0/type:DMA
/proc/irq/24/smp_affinity_list:0
/usr/lib/x86_64-linux-gnu/pkgconfig/libdpdk.pc:Name: DPDK
/usr/lib/x86_64-linux-gnu/pkgconfig/libdpdk.pc:Version: 22.11.11
/usr/bin/dpdk-testpmd:binary
";

#[test]
fn a_poor_machine_is_told_what_to_run() {
    let checks = examine(POOR, &unprivileged(), 0.08);
    let fix = |name| find(&checks, name).fix.clone().unwrap_or_default();
    assert_eq!(
        fix("2 MiB huge pages"),
        "echo 512 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    );
    assert_eq!(
        fix("transparent huge pages"),
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    );
    assert_eq!(
        fix("locked memory"),
        "sudo prlimit --pid $$ --memlock=unlimited:unlimited"
    );
    // Each setcap undoes the one before, so all of them are the same command.
    let setcap = "sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep /usr/bin/linerate";
    for name in [
        "AF_PACKET",
        "XDP program",
        "CAP_NET_RAW",
        "CAP_NET_ADMIN",
        "CAP_BPF",
        "CAP_IPC_LOCK",
    ] {
        assert_eq!(fix(name), setcap, "{name}");
    }
    assert!(fix("AF_XDP").contains("CONFIG_XDP_SOCKETS"));
    assert!(fix("TAP").starts_with("sudo modprobe tun"));
    assert_eq!(
        fix("isolated CPUs"),
        "add to the kernel's command line: isolcpus=1-3 nohz_full=1-3 rcu_nocbs=1-3"
    );
    assert!(fix("frequency governor").starts_with("echo performance | sudo tee"));
    assert!(fix("interrupt affinity").starts_with("echo 0 | sudo tee /proc/irq/"));
    assert_eq!(
        find(&checks, "interrupt affinity").found,
        "1 of 2 go to CPU 1-3"
    );
    assert!(
        find(&checks, "CPU stolen by others")
            .found
            .starts_with("CPU 1: 8.0% of 200 ms, longest gap 8000 us")
    );
    assert_eq!(find(&checks, "clock").state, State::Poor);
    assert_eq!(find(&checks, "DPDK").state, State::Missing);
    for check in &checks {
        assert_eq!(check.state == State::Ok, check.fix.is_none(), "{check:?}");
        assert!(
            !check.found.is_empty() && !check.purpose.is_empty(),
            "{check:?}"
        );
    }
}

#[test]
fn a_good_machine_is_left_alone() {
    let checks = examine(GOOD, &privileged(), 0.001);
    let bad: Vec<_> = checks
        .iter()
        .filter(|c| c.state != State::Ok)
        .map(|c| c.name.as_str())
        .collect();
    assert_eq!(bad, ["clock"], "its clock is the forced fallback");
    assert_eq!(find(&checks, "DPDK").found, "22.11.11, with dpdk-testpmd");
    assert_eq!(find(&checks, "isolated CPUs").found, "2-7");
}

#[test]
fn root_needs_no_sudo_but_may_lack_capabilities() {
    let checks = examine(
        POOR,
        &Probes {
            root: true,
            ..unprivileged()
        },
        0.0,
    );
    assert_eq!(
        find(&checks, "AF_PACKET").fix.as_deref(),
        Some(
            "start the container with --cap-add NET_RAW --cap-add NET_ADMIN --cap-add BPF \
             --cap-add IPC_LOCK"
        )
    );
    assert!(
        find(&checks, "2 MiB huge pages")
            .fix
            .as_deref()
            .unwrap()
            .starts_with("echo 512 | tee")
    );
}

#[test]
fn the_machine_itself_can_be_examined() {
    let probes = Probes::run();
    let topology = Topology::machine().unwrap();
    let clock = Clock::monotonic("test");
    let checks = Patient {
        topology: &topology,
        clock: &clock,
        probes: &probes,
        stolen: &[],
        program: "x",
    }
    .examine();
    assert!(checks.len() >= 18);
    // What the kernel lets us do and what our capabilities promise agree, name spaces aside.
    if probes.af_packet.is_ok() {
        assert_eq!(find(&checks, "CAP_NET_RAW").state, State::Ok);
    }
}
