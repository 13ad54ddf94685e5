//! A guest that a test tells what to do, command by command, while it does something itself.
//!
//! They go through the folder that both see: the test writes `N.do`, the guest answers with what it
//! says in `N.out` and, at the end, `N.status`. One that boots again goes on with the next number.

use super::{First, Machine, kernel};
use crate::process::Running;
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a command may take, the guest's boot included.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

const SCRIPT: &str = r#"
n=0
while :; do
  if [ -e /mnt/$n.status ]; then
    n=$((n + 1))
  elif [ -e /mnt/$n.do ]; then
    sh /mnt/$n.do > /mnt/$n.out 2>&1
    echo $? > /mnt/part
    mv /mnt/part /mnt/$n.status
  else
    sleep 0.05
  fi
done
"#;

/// A guest at work. Dropping it ends it.
pub struct Guest {
    kernel: PathBuf,
    devices: Vec<String>,
    machine: Machine,
    /// The number of the next command.
    next: u32,
}

impl Guest {
    /// Begins to boot one with these devices (options of QEMU's), and does not wait for it; none,
    /// with the reason said, where there can be no guest.
    pub fn start(devices: &[String]) -> Option<Self> {
        let kernel = kernel(&[])?;
        Some(Self {
            machine: Machine::boot(&kernel, First::Script, SCRIPT, devices),
            kernel,
            devices: devices.to_vec(),
            next: 0,
        })
    }

    /// Runs lines of shell to their end, which must be a good one, and returns what they say.
    #[track_caller]
    pub fn run(&mut self, commands: &str) -> String {
        let (status, said) = self.outcome(commands);
        assert_eq!(status, "0", "in the guest: {commands}\n{said}");
        said
    }

    /// The same with any end: the exit status, and what was said.
    #[track_caller]
    pub fn outcome(&mut self, commands: &str) -> (String, String) {
        let number = self.begin(commands);
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.machine.read(&format!("{number}.status")) {
                break status.trim().to_owned();
            }
            let is_late = start.elapsed() > PATIENCE;
            assert!(
                !is_late && self.machine.qemu.is_alive(),
                "the guest does not answer to: {commands}\n{}",
                self.machine.said()
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        let said = self.machine.read(&format!("{number}.out"));
        (status, said.unwrap_or_default())
    }

    /// Has the guest begin, once it has done what came before. Returns the number of the command.
    fn begin(&mut self, commands: &str) -> u32 {
        let number = self.next;
        self.next += 1;
        let file = |name: &str| self.machine.shared.join(name);
        std::fs::write(file("begun"), commands).unwrap();
        std::fs::rename(file("begun"), file(&format!("{number}.do"))).unwrap();
        number
    }

    /// Resets it as a crash would: the kernel ends no driver. It boots again.
    #[track_caller]
    pub fn reset(&mut self) {
        let number = self.next;
        self.begin(&format!(
            "echo 0 > /mnt/{number}.status; echo b > /proc/sysrq-trigger"
        ));
        let file = format!("{number}.status");
        crate::wait("the guest's reset", || self.machine.read(&file).is_some());
    }

    /// Kills the machine (SIGKILL), and begins to boot a fresh one.
    #[track_caller]
    pub fn replace(&mut self) {
        self.qemu().signal(Signal::KILL);
        self.qemu().end();
        self.machine = Machine::boot(&self.kernel, First::Script, SCRIPT, &self.devices);
        self.next = 0;
    }

    /// The machine.
    pub fn qemu(&mut self) -> &mut Running {
        &mut self.machine.qemu
    }
}
