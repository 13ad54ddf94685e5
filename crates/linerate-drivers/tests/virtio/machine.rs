//! A guest of QEMU's that has nothing but a busybox and a script, and one that is told what to do
//! through QEMU's own socket (QMP).

use linerate_testkit::Scratch;
use linerate_testkit::process::Running;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// Emulation is slow, on a busy machine more so.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// A network device, `eth0` and so on of the guest, in the order in which they are given.
pub(crate) struct Nic {
    /// Where a `vhost` port listens. QEMU connects, and tries again each second.
    pub(crate) socket: String,
    /// More options of the device: `,mac=...`.
    pub(crate) options: String,
}

/// A machine with a processor, and memory that other processes can share.
pub(crate) struct Machine {
    pub(crate) qemu: Running,
    /// Of QMP.
    pub(crate) socket: String,
    console: String,
}

impl Machine {
    /// Begins to boot it.
    pub(crate) fn boot(
        scratch: &Scratch,
        kernel: &str,
        name: &str,
        nics: &[Nic],
        more: &[&str],
    ) -> Self {
        let file = |what: &str| scratch.file(&format!("{name}.{what}"));
        let (socket, console) = (file("qmp"), file("console"));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        command.args(["-machine", "q35,memory-backend=mem", "-accel", "tcg"]);
        command.args(["-object", "memory-backend-memfd,id=mem,size=192M,share=on"]);
        command.args(["-cpu", "max", "-m", "192M"]);
        command.args(["-nodefaults", "-display", "none"]);
        command.args(["-serial", &format!("file:{console}")]);
        command.args(["-kernel", kernel, "-initrd", &scratch.file("initramfs")]);
        let words = "console=ttyS0 quiet panic=-1 tsc=unstable ipv6.disable=1";
        command.args(["-append", words]);
        for (at, Nic { socket, options }) in nics.iter().enumerate() {
            let chardev = format!("socket,id=c{at},path={socket},reconnect=1");
            command.args(["-chardev", &chardev]);
            command.args(["-netdev", &format!("vhost-user,id=n{at},chardev=c{at}")]);
            // Without vectors: see docs/ports.md.
            let device = format!("virtio-net-pci,netdev=n{at},vectors=0{options}");
            command.args(["-device", &device]);
        }
        command.args(["-qmp", &format!("unix:{socket},server=on,wait=off")]);
        command.args(more);
        Self {
            qemu: Running::start(&mut command),
            socket,
            console,
        }
    }

    /// What the guest has said.
    pub(crate) fn said(&self) -> String {
        let said = std::fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Panics where QEMU has ended.
    #[track_caller]
    pub(crate) fn lives(&mut self) {
        let is_alive = self.qemu.is_alive();
        assert!(is_alive, "{}{}", self.said(), self.qemu.stderr.text());
    }

    /// Waits until the guest has said a word.
    #[track_caller]
    pub(crate) fn wait(&mut self, word: &str) {
        let start = Instant::now();
        while !self.said().contains(word) {
            self.lives();
            assert!(start.elapsed() < PATIENCE, "no {word}: {}", self.said());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Has QEMU do something, and returns its answer.
    pub(crate) fn ask(&self, command: &str) -> String {
        let mut socket = UnixStream::connect(&self.socket).unwrap();
        let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
        let mut answer = String::new();
        for command in [
            None,
            Some("{\"execute\": \"qmp_capabilities\"}"),
            Some(command),
        ] {
            if let Some(command) = command {
                socket.write_all(command.as_bytes()).unwrap();
            }
            answer = lines.next().unwrap().unwrap();
            while answer.contains("\"event\"") {
                answer = lines.next().unwrap().unwrap();
            }
        }
        answer
    }

    /// Has QEMU begin to send the machine's state to where a URI says.
    pub(crate) fn migrate(&self, uri: &str) {
        let begun = self.ask(&format!(
            "{{\"execute\": \"migrate\", \"arguments\": {{\"uri\": \"{uri}\"}}}}"
        ));
        assert!(begun.contains("return"), "{begun}");
    }

    /// What QEMU says of a migration that has begun.
    pub(crate) fn migrated(&self) -> String {
        let state = self.ask("{\"execute\": \"query-migrate\"}");
        assert!(!state.contains("\"failed\""), "{state}");
        state
    }
}
