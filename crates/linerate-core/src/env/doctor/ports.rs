//! Kinds of ports, and the capabilities that they need.

use std::io;

use super::{Check, Patient};

/// Capability numbers of linux/capability.h, and what linerate does with them.
const CAPABILITIES: [(&str, u32, &str); 5] = [
    ("NET_RAW", 13, "open af_packet and af_xdp ports"),
    (
        "NET_ADMIN",
        12,
        "create TAPs, attach XDP programs, set MAC and MTU",
    ),
    ("BPF", 39, "load the XDP program of af_xdp"),
    (
        "SYS_ADMIN",
        21,
        "network name spaces; BPF on kernels before 5.8",
    ),
    (
        "IPC_LOCK",
        14,
        "lock memory beyond the limit, huge pages in shared memory",
    ),
];

pub(super) fn checks(patient: &Patient<'_>) -> Vec<Check> {
    let mut checks = vec![
        af_packet(patient),
        af_xdp(patient),
        bpf(patient),
        tap(patient),
        vfio(patient),
    ];
    checks.extend(CAPABILITIES.map(|(name, number, purpose)| {
        let check = Check::new("privileges", format!("CAP_{name}"), purpose);
        match has(patient, number) {
            true => check.ok("effective"),
            false if name == "SYS_ADMIN" => check.missing("not held", grant(patient, &[name])),
            false => check.missing("not held", grant(patient, &[])),
        }
    }));
    checks
}

fn has(patient: &Patient<'_>, capability: u32) -> bool {
    patient.probes.capabilities >> capability & 1 == 1
}

/// The command that gives the program what ports need, and `more`. It names all at once, because
/// each setcap undoes the one before. Inside a container root may lack capabilities too.
fn grant(patient: &Patient<'_>, more: &[&str]) -> String {
    let names = [&["NET_RAW", "NET_ADMIN", "BPF", "IPC_LOCK"], more].concat();
    if patient.probes.root {
        let flags: Vec<_> = names
            .iter()
            .map(|name| format!("--cap-add {name}"))
            .collect();
        return format!("start the container with {}", flags.join(" "));
    }
    let list: Vec<_> = names
        .iter()
        .map(|name| format!("cap_{}", name.to_ascii_lowercase()))
        .collect();
    format!("sudo setcap {}+ep {}", list.join(","), patient.program)
}

fn is(error: &io::Error, errno: i32) -> bool {
    error.raw_os_error() == Some(errno)
}

fn refused(error: &io::Error) -> bool {
    is(error, libc::EPERM) || is(error, libc::EACCES)
}

fn af_packet(patient: &Patient<'_>) -> Check {
    let check = Check::new(
        "ports",
        "AF_PACKET",
        "af_packet ports: any interface, at the kernel's speed",
    );
    match &patient.probes.af_packet {
        Ok(()) => check.ok("socket opened"),
        Err(e) if refused(e) => check.missing(e.to_string(), grant(patient, &[])),
        Err(e) => check.missing(e.to_string(), "boot a kernel with CONFIG_PACKET"),
    }
}

fn af_xdp(patient: &Patient<'_>) -> Check {
    let check = Check::new(
        "ports",
        "AF_XDP",
        "af_xdp ports: any interface, past most of the kernel",
    );
    match &patient.probes.af_xdp {
        Ok(()) => check.ok("socket opened"),
        Err(e) if refused(e) => check.missing(e.to_string(), grant(patient, &[])),
        Err(e) => check.missing(
            e.to_string(),
            "boot a kernel (4.18 or later) with CONFIG_XDP_SOCKETS",
        ),
    }
}

fn bpf(patient: &Patient<'_>) -> Check {
    let check = Check::new(
        "ports",
        "XDP program",
        "steers an interface's packets to af_xdp",
    );
    match &patient.probes.bpf {
        Ok(()) => check.ok("XSKMAP created, program loaded"),
        Err(e) if refused(e) => check.missing(e.to_string(), grant(patient, &[])),
        Err(e) => check.missing(
            e.to_string(),
            "boot a kernel with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS, and allow bpf(2)",
        ),
    }
}

fn tap(patient: &Patient<'_>) -> Check {
    let check = Check::new(
        "ports",
        "TAP",
        "tap ports: the way to the kernel's own stack",
    );
    match &patient.probes.tun {
        Ok(()) if has(patient, 12) => check.ok("/dev/net/tun opened"),
        Ok(()) => check.missing("opened, but may not create interfaces", grant(patient, &[])),
        Err(e) if is(e, libc::ENOENT) || is(e, libc::ENODEV) => {
            let fix = format!(
                "{}modprobe tun  # in a container: start it with --device /dev/net/tun",
                patient.sudo()
            );
            check.missing(format!("/dev/net/tun: {e}"), fix)
        }
        Err(e) => check.missing(
            format!("/dev/net/tun: {e}"),
            format!("{}chmod 0666 /dev/net/tun", patient.sudo()),
        ),
    }
}

fn vfio(patient: &Patient<'_>) -> Check {
    let check = Check::new("ports", "VFIO", "drivers of our own for PCI network cards");
    let groups = patient.tree().list("sys/kernel/iommu_groups").len();
    match &patient.probes.vfio {
        Ok(()) if groups > 0 => check.ok(format!("/dev/vfio/vfio opened, {groups} IOMMU groups")),
        Ok(()) => check.poor(
            "/dev/vfio/vfio opened, no IOMMU",
            "enable the IOMMU in firmware (VT-d, AMD-Vi) and boot with intel_iommu=on or \
             amd_iommu=on",
        ),
        Err(e) if refused(e) => check.missing(
            format!("/dev/vfio/vfio: {e}"),
            format!("{}chmod 0666 /dev/vfio/vfio", patient.sudo()),
        ),
        Err(e) => check.missing(
            format!("/dev/vfio/vfio: {e}"),
            format!("{}modprobe vfio-pci", patient.sudo()),
        ),
    }
}
