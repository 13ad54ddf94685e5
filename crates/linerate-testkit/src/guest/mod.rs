//! The guest: QEMU emulates a processor, so neither KVM nor any privilege is needed.

use crate::cli::binary;
use crate::has;
use crate::process::Running;
use crate::{Scratch, skip};
mod initramfs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a guest may take in all. Nothing is measured; emulation takes ten times as long as the
/// machine itself, on a busy one longer.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// What a guest runs as its first process.
#[derive(Clone, Copy, PartialEq)]
pub enum First {
    /// A script that runs the tests, on this machine's root as it is.
    Script,
    /// This machine's systemd, which runs the script as a service, and may change all of the root.
    Systemd,
}

/// Whether this is a guest.
pub fn is_here() -> bool {
    std::env::var_os("LINERATE_GUEST").is_some()
}

/// Where `cargo xtask test --all` puts the kernel.
fn folder() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let root = crates.parent().unwrap();
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root.join(target).join("guest")
}

/// Runs the tests of this binary whose names begin so in a guest; they must pass there.
#[track_caller]
pub fn runs(tests: &str, first: First) {
    runs_with(tests, first, &[]);
}

/// The same in a guest with more devices: options of QEMU's.
#[track_caller]
pub fn runs_with(tests: &str, first: First, devices: &[String]) {
    if !cfg!(target_arch = "x86_64") {
        skip("needs a machine of the guest's architecture, x86-64");
        return;
    }
    if !has(&["qemu-system-x86_64", "setpriv"]) || first == First::Systemd && !has(&["systemctl"]) {
        return;
    }
    let folder = folder();
    if !folder.join("vmlinuz").is_file() || !folder.join("busybox").is_file() {
        skip("needs a kernel for guests in target/guest: cargo xtask test --all --yes");
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.file("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(
        scratch.file("initramfs"),
        initramfs::archive(&folder, first),
    )
    .unwrap();
    let script = format!(
        "export PATH='{}' HOME=/ TMPDIR=/dev/shm LINERATE_GUEST=1 LINERATE_BINARY='{}'\nip link \
         set dev lo up\n\
         exec '{}' {tests} --include-ignored --show-output --test-threads 1\n",
        std::env::var("PATH").unwrap(),
        binary(),
        std::env::current_exe().unwrap().display(),
    );
    std::fs::write(format!("{out}/script"), script).unwrap();
    std::fs::write(format!("{out}/binary"), binary()).unwrap();
    let mut guest = boot(&folder, &scratch, &out, devices);
    let (start, read) = (Instant::now(), |file: &str| std::fs::read_to_string(file));
    while guest.is_alive() {
        assert!(
            start.elapsed() < PATIENCE,
            "the guest still runs:\n{}\n{}",
            read(&scratch.file("console")).unwrap_or_default(),
            read(&format!("{out}/output")).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    guest.end();
    let said = read(&format!("{out}/output")).unwrap_or_default();
    // Prefixed, so that its counts are not taken for ours.
    said.lines().for_each(|line| eprintln!("guest: {line}"));
    let status = read(&format!("{out}/status"));
    assert!(
        status.as_deref().is_ok_and(|status| status.trim() == "0"),
        "the guest ends with {status:?}\n{}\n{}",
        read(&scratch.file("console")).unwrap_or_default(),
        guest.stderr.text()
    );
    // What the guest lacks this machine lacks, too; but its kernel has it all.
    let mut lines = said.lines();
    let reason = |line: &'_ str| {
        let (_, reason) = line.split_once(" ... ignored (")?;
        Some(reason.trim_end_matches(')').to_owned())
    };
    if let Some(reason) = lines.find_map(reason) {
        assert!(!reason.contains("kernel"), "{reason}");
        skip(&reason);
    }
    assert!(
        !said.contains("\nrunning 0 tests"),
        "no test is called {tests}"
    );
}

/// The kernel, and a first root at `root`, of a guest that has nothing else: a busybox, these
/// modules with what they need, and a script to begin with. `None`, with the reason said, where
/// there can be no guest.
pub fn alone(modules: &[&str], script: &str, root: &Path) -> Option<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        skip("needs a machine of the guest's architecture, x86-64");
        return None;
    }
    let folder = folder();
    let files = ["vmlinuz", "busybox", "modules/virtio_net.ko"];
    if !has(&["qemu-system-x86_64"]) {
        return None;
    }
    if !files.iter().all(|file| folder.join(file).is_file()) {
        skip("needs a kernel for guests in target/guest: cargo xtask test --all --yes");
        return None;
    }
    let init = format!(
        "#!/bin/busybox sh\n/bin/busybox --install -s /bin\nexport PATH=/bin\nmount -t proc proc \
         /proc\nmount -t devtmpfs dev /dev\nfor module in $(cat /order); do insmod \
         /modules/$module.ko; done\n{script}\n"
    );
    std::fs::write(root, initramfs::with(&folder, modules, &init)).unwrap();
    Some(folder.join("vmlinuz"))
}

fn boot(folder: &Path, scratch: &Scratch, out: &str, devices: &[String]) -> Running {
    let share = |path: &str, tag: &str, more: &str| {
        format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{more}")
    };
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
    command.args(["-machine", "q35", "-accel", "tcg,thread=multi"]);
    command.args(["-cpu", "max", "-smp", "2", "-m", "1024"]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
    command.args(["-serial", &format!("file:{}", scratch.file("console"))]);
    command.arg("-kernel").arg(folder.join("vmlinuz"));
    command.args(["-initrd", &scratch.file("initramfs")]);
    // The guest measures its TSC while others have its processors: its time would be anything.
    command.args([
        "-append",
        "console=ttyS0 quiet panic=-1 tsc=unstable random.trust_cpu=on",
    ]);
    command.args(["-virtfs", &share("/", "root", ",readonly=on")]);
    command.args(["-virtfs", &share(out, "out", "")]);
    command.args(devices);
    Running::start(&mut command)
}
