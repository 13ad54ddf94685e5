//! Scenarios that need a guest, for features that this machine may lack.
//!
//! The guest is Debian's kernel under QEMU, without any privilege on this machine. Its root file
//! system is this machine's, read-only, so it has the same programs, with this test binary, which
//! it runs with a filter. Read [`linerate_testkit::guest`] for the machine.
//!
//! [`vhost`]'s guests are told from here what to do.
//!
//! `cargo xtask test --all` provides QEMU, and the kernel and a static busybox in `target/guest`.

pub(crate) mod vhost;

use linerate_testkit::cli::binary;
use linerate_testkit::guest::{self, First};
use linerate_testkit::process::Running;
use linerate_testkit::{Scratch, harness::Test, tests};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: boots a guest under emulation"]
    customers_on_a_trunk_as_the_kernel_of_a_guest_has_them,
    #[ignore = "long: boots a guest under emulation"]
    the_routers_unit_as_the_systemd_of_a_guest_runs_it,
    #[ignore = "long: boots a guest under emulation"]
    direct_return_to_the_kernel_of_a_guest,
    #[ignore = "long: boots a guest under emulation"]
    a_guest_and_its_host_share_a_file,
];

/// VRF and VLAN devices of the kernel as the oracle.
fn customers_on_a_trunk_as_the_kernel_of_a_guest_has_them() {
    guest::runs("router::trunk::", First::Script);
}

/// Tunnels of the kernel as the other side of a balancer.
fn direct_return_to_the_kernel_of_a_guest() {
    guest::runs("router::gateway::returns::", First::Script);
}

/// The router's unit under a real systemd. In the guest this test is the scenario.
fn the_routers_unit_as_the_systemd_of_a_guest_runs_it() {
    match guest::is_here() {
        true => crate::router::service::as_the_unit_says(),
        false => guest::runs("vm::the_routers_unit", First::Systemd),
    }
}

/// `shm:` over QEMU's ivshmem-plain: l2fwd here sends back what pktgen in the guest sends.
fn a_guest_and_its_host_share_a_file() {
    if guest::is_here() {
        return all_comes_back_from_the_host();
    }
    let folder = Scratch::new();
    let file = folder.path().join("ring");
    let port = format!("shm:{},size=256", file.display());
    let mut l2fwd = Command::new(binary());
    let mut l2fwd = Running::start(l2fwd.args(["l2fwd", &port, "--no-mac-update"]));
    let bytes = || std::fs::metadata(&file).map_or(0, |found| found.len());
    l2fwd.wait("the server's file", |_, _| bytes() > 0);
    let backend = format!(
        "memory-backend-file,id=shm0,share=on,mem-path={},size={}",
        file.display(),
        bytes()
    );
    let device = ["-object", &backend, "-device", "ivshmem-plain,memdev=shm0"];
    guest::runs_with(
        "vm::a_guest_and_its_host",
        First::Script,
        &device.map(String::from),
    );
    assert!(l2fwd.is_alive(), "{}", l2fwd.stderr.text());
}

/// In the guest: twice, for the first client leaves and another one comes.
fn all_comes_back_from_the_host() {
    let file = shared_memory().expect("QEMU gave the guest such a device");
    for count in [500, 1000] {
        let mut pktgen = Command::new(binary());
        pktgen.args(["pktgen", "--headless", "--json", "--seed", "7"]);
        pktgen.args(["-p", &format!("shm:{},role=client", file.display())]);
        pktgen.args(["-s", &format!("udp rate=1kpps count={count} size=64-1518")]);
        let output = pktgen.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let counts: Value = serde_json::from_slice(&output.stdout).expect(&said);
        let tally = &counts["streams"][0]["tally"];
        assert_eq!(tally["sent"], tally["received"], "{counts} {said}");
        assert!(tally["sent"].as_u64() > Some(count / 2), "{counts} {said}");
        assert_eq!([&tally["lost"], &tally["reordered"]], [0, 0], "{counts}");
    }
}

/// The memory of the guest's ivshmem device, switched on.
fn shared_memory() -> Option<PathBuf> {
    let devices = std::fs::read_dir("/sys/bus/pci/devices").unwrap();
    let is = |device: &PathBuf, name: &str, value: &str| {
        std::fs::read_to_string(device.join(name)).is_ok_and(|text| text.trim() == value)
    };
    let mut devices = devices.map(|device| device.unwrap().path());
    let found = devices.find(|at| is(at, "vendor", "0x1af4") && is(at, "device", "0x1110"))?;
    std::fs::write(found.join("enable"), "1").unwrap();
    Some(found.join("resource2"))
}
