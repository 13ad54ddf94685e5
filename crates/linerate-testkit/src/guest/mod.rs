//! The guest: QEMU emulates a processor, so neither KVM nor any privilege is needed.
//!
//! Either it runs tests of this binary by itself ([`runs`]), or a test outside tells it what to do
//! ([`Guest`]).

mod initramfs;
mod told;

pub use told::Guest;

use crate::cli::binary;
use crate::has;
use crate::process::Running;
use crate::{Scratch, skip};
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

/// Where `cargo xtask test --all` puts the kernel; none, with the reason said, where there can be
/// no guest.
fn kernel(programs: &[&str]) -> Option<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        skip("needs a machine of the guest's architecture, x86-64");
        return None;
    }
    if !has(&["qemu-system-x86_64", "setpriv"]) || !has(programs) {
        return None;
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let root = crates.parent().unwrap();
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let folder = root.join(target).join("guest");
    let is_there = |file: &&str| folder.join(file).is_file();
    if !["vmlinuz", "busybox", "modules/virtio_net.ko"]
        .iter()
        .all(is_there)
    {
        skip("needs a kernel for guests in target/guest: cargo xtask test --all --yes");
        return None;
    }
    Some(folder)
}

/// Runs the tests of this binary whose names begin so in a guest; they must pass there.
#[track_caller]
pub fn runs(tests: &str, first: First) {
    runs_with(tests, first, &[]);
}

/// The same in a guest with more devices: options of QEMU's.
#[track_caller]
pub fn runs_with(tests: &str, first: First, devices: &[String]) {
    let programs: &[&str] = match first {
        First::Script => &[],
        First::Systemd => &["systemctl"],
    };
    let Some(kernel) = kernel(programs) else {
        return;
    };
    let script = format!(
        "export LINERATE_GUEST=1 LINERATE_BINARY='{}'\n\
         exec '{}' {tests} --include-ignored --show-output --test-threads 1\n",
        binary(),
        std::env::current_exe().unwrap().display(),
    );
    let devices = [&["-no-reboot".to_owned()], devices].concat();
    let mut guest = Machine::boot(&kernel, first, &script, &devices);
    let start = Instant::now();
    while guest.qemu.is_alive() {
        assert!(
            start.elapsed() < PATIENCE,
            "the guest still runs:\n{}\n{}",
            guest.said(),
            guest.read("output").unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    guest.qemu.end();
    let said = guest.read("output").unwrap_or_default();
    // Prefixed, so that its counts are not taken for ours.
    said.lines().for_each(|line| eprintln!("guest: {line}"));
    let status = guest.read("status");
    assert!(
        status.as_deref().is_some_and(|status| status.trim() == "0"),
        "the guest ends with {status:?}\n{}",
        guest.said()
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
    let folder = kernel(&[])?;
    let init = format!(
        "#!/bin/busybox sh\n/bin/busybox --install -s /bin\nexport PATH=/bin\nmount -t proc proc \
         /proc\nmount -t devtmpfs dev /dev\nfor module in $(cat /order); do insmod \
         /modules/$module.ko; done\n{script}\n"
    );
    std::fs::write(root, initramfs::with(&folder, modules, &init)).unwrap();
    Some(folder.join("vmlinuz"))
}

/// One that boots or has booted; dropping it ends it.
struct Machine {
    qemu: Running,
    scratch: Scratch,
    /// What both see: here, and as `/mnt` in the guest.
    shared: PathBuf,
}

impl Machine {
    /// Boots one that runs this script as its root user; its memory is such that other processes
    /// can share it.
    fn boot(kernel: &Path, first: First, script: &str, devices: &[String]) -> Self {
        let scratch = Scratch::new();
        let shared = scratch.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        std::fs::write(scratch.file("initramfs"), initramfs::archive(kernel, first)).unwrap();
        let script = format!(
            "export PATH='{}' HOME=/ TMPDIR=/dev/shm\nip link set dev lo up\n{script}",
            std::env::var("PATH").unwrap(),
        );
        std::fs::write(shared.join("script"), script).unwrap();
        std::fs::write(shared.join("binary"), binary()).unwrap();
        let folder = |path: &str, tag: &str, more: &str| {
            format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{more}")
        };
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        command.args(["-machine", "q35,memory-backend=memory"]);
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]);
        command.args(["-m", "1024", "-object"]);
        command.arg("memory-backend-memfd,id=memory,size=1024M,share=on");
        command.args(["-nodefaults", "-display", "none"]);
        command.args(["-serial", &format!("file:{}", scratch.file("console"))]);
        command.arg("-kernel").arg(kernel.join("vmlinuz"));
        command.args(["-initrd", &scratch.file("initramfs")]);
        // The guest measures its TSC while others have its processors: its time would be anything.
        command.args([
            "-append",
            "console=ttyS0 quiet panic=-1 tsc=unstable random.trust_cpu=on",
        ]);
        command.args(["-virtfs", &folder("/", "root", ",readonly=on")]);
        let out = shared.display().to_string();
        command.args(["-virtfs", &folder(&out, "out", "")]);
        command.args(devices);
        Self {
            qemu: Running::start(&mut command),
            scratch,
            shared,
        }
    }

    /// A file that the guest has written.
    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.shared.join(name)).ok()
    }

    /// What its kernel and QEMU have said.
    fn said(&self) -> String {
        let console = std::fs::read(self.scratch.file("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        format!("{console}\n{}", self.qemu.stderr.text())
    }
}
