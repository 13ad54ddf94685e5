//! Huge pages and locked memory.

use super::{Check, Patient};
use crate::env::machine::{huge_pages, transparent_huge_pages};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Enough locked memory for a pool of 16 k packets, its metadata and the rings of some ports.
const ENOUGH_LOCKED: u64 = 64 * MIB;
const CAP_IPC_LOCK: u32 = 14;

pub(super) fn checks(patient: &Patient<'_>) -> Vec<Check> {
    vec![
        pages(patient, "2 MiB huge pages", 2 * MIB, 512),
        pages(patient, "1 GiB huge pages", GIB, 2),
        transparent(patient),
        locked(patient),
    ]
}

fn pages(patient: &Patient<'_>, name: &'static str, page_bytes: u64, wanted: u64) -> Check {
    let check = Check::new("memory", name, "packet memory with few TLB misses");
    let file = format!(
        "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages",
        page_bytes / 1024
    );
    let Some(pages) = huge_pages(patient.tree())
        .into_iter()
        .find(|p| p.page_bytes == page_bytes)
    else {
        let fix = "use 2 MiB or transparent huge pages; 1 GiB needs a CPU with pdpe1gb and a \
            kernel with CONFIG_HUGETLBFS";
        return check.missing("the CPU or the kernel offers none", fix);
    };
    match (pages.total, pages.free) {
        (0, _) => check.missing("none set aside", patient.write_command(wanted, &file)),
        (total, 0) => check.poor(
            format!("{total}, all in use"),
            patient.write_command(total + wanted, &file),
        ),
        (total, free) => check.ok(format!("{total}, {free} free")),
    }
}

fn transparent(patient: &Patient<'_>) -> Check {
    let check = Check::new(
        "memory",
        "transparent huge pages",
        "the same without setting memory aside",
    );
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    match transparent_huge_pages(patient.tree()).as_deref() {
        Some("never") => check.missing("never", patient.write_command("madvise", file)),
        Some(mode) => check.ok(mode),
        None => check.missing(
            "the kernel has none",
            "boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        ),
    }
}

fn locked(patient: &Patient<'_>) -> Check {
    let check = Check::new(
        "memory",
        "locked memory",
        "memory that a device or AF_XDP reads must not be paged out",
    );
    let may_exceed = patient.probes.capabilities >> CAP_IPC_LOCK & 1 == 1;
    match patient.probes.memlock_bytes {
        None => check.ok("unlimited"),
        Some(bytes) if may_exceed => {
            check.ok(format!("{} KiB, CAP_IPC_LOCK lifts it", bytes / 1024))
        }
        Some(bytes) if bytes >= ENOUGH_LOCKED => check.ok(format!("{} MiB", bytes / MIB)),
        Some(bytes) => {
            let fix = format!(
                "{}prlimit --pid $$ --memlock=unlimited:unlimited",
                patient.sudo()
            );
            check.poor(format!("{} KiB", bytes / 1024), fix)
        }
    }
}
