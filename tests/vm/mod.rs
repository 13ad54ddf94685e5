//! Scenarios for which this machine lacks something: they run in a guest.
//!
//! The guest is Debian's kernel under QEMU, without any privilege on this machine. Its root is this
//! machine's own, read-only, so it has the same programs, this very test binary among them, which it
//! runs with a filter. Read [`guest`] for the machine, [`initramfs`] for how it comes up.
//!
//! `cargo xtask test --all` provides QEMU, and the kernel and a static busybox in `target/guest`.

mod guest;
mod initramfs;

use guest::First;

/// VRF and VLAN devices of the kernel as the oracle.
#[test]
#[ignore = "long: boots a guest under emulation"]
fn customers_on_a_trunk_as_the_kernel_of_a_guest_has_them() {
    guest::runs("router::trunk::", First::Script);
}

/// The router's unit under a real systemd. In the guest this test is the scenario.
#[test]
#[ignore = "long: boots a guest under emulation"]
fn the_routers_unit_as_the_systemd_of_a_guest_runs_it() {
    match guest::is_here() {
        true => crate::router::service::as_the_unit_says(),
        false => guest::runs("vm::the_routers_unit", First::Systemd),
    }
}
