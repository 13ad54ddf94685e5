//! Fakes of other machines, read from tests/topologies, and the machine itself.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::env::PrivateFolder;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/topologies")
}

pub(in crate::env) fn fake(name: &str) -> Topology {
    Topology::open(&fixtures().join(name)).unwrap()
}

/// A directory that is removed with the test.
struct Scratch(PrivateFolder);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(PrivateFolder::new(name).unwrap())
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }
}

#[test]
fn one_socket_without_hyper_threading() {
    let topology = fake("one-socket-4");
    assert_eq!(
        (
            topology.packages(),
            topology.nodes(),
            topology.cores(),
            topology.cpus().len()
        ),
        (1, 1, 4, 4)
    );
    assert!(
        topology
            .cpus()
            .iter()
            .all(|cpu| cpu.siblings.len() == 1 && cpu.l2 == cpu.id && cpu.l3 == 0)
    );
    assert_eq!(topology.allowed().to_string(), "0-3");
    assert_eq!(
        topology.interface_node("eth0").unwrap(),
        None,
        "-1 is no node"
    );
}

#[test]
fn fourteen_cores_with_two_threads_each() {
    let topology = fake("one-socket-14x2");
    assert_eq!(
        (
            topology.packages(),
            topology.nodes(),
            topology.cores(),
            topology.cpus().len()
        ),
        (1, 1, 14, 28)
    );
    let cpu = topology.cpu(21).unwrap();
    assert_eq!(
        (cpu.siblings.to_string().as_str(), cpu.core, cpu.l2, cpu.l3),
        ("7,21", 8, 7, 0)
    );
}

#[test]
fn two_sockets_and_the_nodes_of_their_devices() {
    let topology = fake("two-sockets-12x2");
    assert_eq!(
        (
            topology.packages(),
            topology.nodes(),
            topology.cores(),
            topology.cpus().len()
        ),
        (2, 2, 24, 48)
    );
    let cpu = topology.cpu(36).unwrap();
    assert_eq!(
        (
            cpu.package,
            cpu.node,
            cpu.l3,
            cpu.siblings.to_string().as_str()
        ),
        (1, 1, 12, "12,36")
    );
    assert_eq!(topology.interface_node("eth1").unwrap(), Some(1));
    assert_eq!(topology.pci_node("0000:82:00.0").unwrap(), Some(1));
}

#[test]
fn containers_see_only_their_cpuset() {
    let v1 = fake("container-v1");
    assert_eq!(
        (v1.cpus().len(), v1.allowed().to_string().as_str()),
        (28, "2-5,16-17")
    );
    let v2 = fake("container-v2");
    assert_eq!(v2.allowed().to_string(), "3,5,7-8");
}

#[test]
fn a_directory_tree_reads_like_its_listing() {
    for name in [
        "one-socket-14x2",
        "two-sockets-12x2",
        "container-v1",
        "container-v2",
    ] {
        let scratch = Scratch::new(name);
        let listing = fs::read_to_string(fixtures().join(name).join("sysfs.txt")).unwrap();
        let mut files = std::collections::BTreeMap::<&str, String>::new();
        for line in listing.lines().filter(|line| !line.starts_with('#')) {
            let at = if line.starts_with("/proc") {
                0
            } else {
                line.rfind('/').unwrap()
            };
            let colon = at + line[at..].find(':').unwrap();
            files
                .entry(&line[1..colon])
                .or_default()
                .push_str(&format!("{}\n", &line[colon + 1..]));
        }
        for (path, text) in files {
            scratch.write(path, &text);
        }
        let (tree, listing) = (Topology::open(scratch.0.path()).unwrap(), fake(name));
        assert_eq!(tree.cpus(), listing.cpus(), "{name}");
        assert_eq!(tree.allowed(), listing.allowed(), "{name}");
        // A bare copy of /sys works as well; it holds no /proc, and so no cgroup path.
        let sys = Topology::open(&scratch.0.join("sys")).unwrap();
        assert_eq!(sys.cpus(), listing.cpus(), "{name}");
    }
}

#[test]
fn offline_isolated_and_governed_cpus() {
    let scratch = Scratch::new("offline");
    scratch
        .write("sys/devices/system/cpu/online", "0-2\n")
        .write("sys/devices/system/cpu/present", "0-3\n")
        .write("sys/devices/system/cpu/isolated", "1-2\n")
        .write(
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
            "powersave\n",
        )
        .write(
            "sys/devices/system/cpu/cpu1/topology/physical_package_id",
            "-1\n",
        );
    let topology = Topology::open(scratch.0.path()).unwrap();
    assert_eq!(
        (
            topology.offline().to_string(),
            topology.allowed().to_string()
        ),
        ("3".into(), "0-2".into())
    );
    let cpu = topology.cpu(1).unwrap();
    assert!(cpu.isolated && cpu.governor.as_deref() == Some("powersave"));
    assert_eq!(
        (cpu.package, cpu.core, cpu.siblings.to_string()),
        (0, 1, "1".into()),
        "defaults where sysfs is silent"
    );
}

#[test]
fn a_missing_or_foreign_directory_is_an_error_with_a_way_out() {
    for path in ["/nonexistent/machine", env!("CARGO_MANIFEST_DIR")] {
        let error = Topology::open(Path::new(path)).unwrap_err();
        assert!(error.to_string().contains(path), "{error}");
        assert!(error.fix().unwrap().contains("sys/devices/system/cpu"));
    }
    let scratch = Scratch::new("broken");
    scratch.write("sys/devices/system/cpu/online", "0-x\n");
    let error = Topology::open(scratch.0.path()).unwrap_err().to_string();
    assert!(
        error.starts_with("sys/devices/system/cpu/online: `0-x`"),
        "{error}"
    );
    scratch.write("sysfs.txt", "no colon here\n");
    assert!(
        Topology::open(scratch.0.path())
            .unwrap_err()
            .to_string()
            .contains("line 1")
    );
    scratch.write("sysfs.txt", "/etc/passwd:x\n");
    assert!(
        Topology::open(scratch.0.path())
            .unwrap_err()
            .to_string()
            .contains("no online CPU")
    );
}

#[test]
fn device_names_cannot_lead_out_of_their_directory() {
    let topology = fake("two-sockets-12x2");
    for name in ["eth7", "", "..", "../../class/net/eth0"] {
        assert!(
            matches!(
                topology.interface_node(name),
                Err(EnvError::NoDevice { .. })
            ),
            "{name:?}"
        );
        assert!(
            matches!(topology.pci_node(name), Err(EnvError::NoDevice { .. })),
            "{name:?}"
        );
    }
}

#[test]
fn the_machine_itself_has_usable_cpus() {
    let topology = Topology::machine().unwrap();
    assert!(!topology.allowed().is_empty());
    assert!(topology.allowed().iter().all(|id| {
        topology
            .cpu(id)
            .is_some_and(|cpu| cpu.siblings.contains(id))
    }));
    assert_eq!(topology.interface_node("lo").unwrap(), None);
}
