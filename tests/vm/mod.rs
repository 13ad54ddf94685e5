//! Scenarios that need a guest, for features that this machine may lack.
//!
//! The guest is Debian's kernel under QEMU, without any privilege on this machine. Its root file
//! system is this machine's, read-only, so it has the same programs, with this test binary, which
//! it runs with a filter. Read [`linerate_testkit::guest`] for the machine.
//!
//! `cargo xtask test --all` provides QEMU, and the kernel and a static busybox in `target/guest`.

use linerate_testkit::guest::{self, First};
use linerate_testkit::{harness::Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    #[ignore = "long: boots a guest under emulation"]
    customers_on_a_trunk_as_the_kernel_of_a_guest_has_them,
    #[ignore = "long: boots a guest under emulation"]
    the_routers_unit_as_the_systemd_of_a_guest_runs_it,
];

/// VRF and VLAN devices of the kernel as the oracle.
fn customers_on_a_trunk_as_the_kernel_of_a_guest_has_them() {
    guest::runs("router::trunk::", First::Script);
}

/// The router's unit under a real systemd. In the guest this test is the scenario.
fn the_routers_unit_as_the_systemd_of_a_guest_runs_it() {
    match guest::is_here() {
        true => crate::router::service::as_the_unit_says(),
        false => guest::runs("vm::the_routers_unit", First::Systemd),
    }
}
