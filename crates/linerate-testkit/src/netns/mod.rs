//! Network namespaces and wires: the network of a test. All of it is removed with the values here.
//!
//! ```text
//! left: veth0 ---- vethA :mid: vethB ---- veth1 :right
//! ```

mod unnamed;

pub use unnamed::{Inside, Unnamed};

use crate::process::Running;
use crate::{number, skip};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};

/// A named network namespace.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one without IPv6, so that the kernel itself sends nothing; or returns why the test is
    /// skipped.
    pub fn new(role: &str) -> Option<Self> {
        let namespace = Self::named(role, "add", "")?;
        for which in ["all", "default"] {
            // Absent where the kernel has no IPv6.
            namespace.try_sysctl(&format!("ipv6/conf/{which}/disable_ipv6"), "1");
        }
        namespace.ip("link set lo up");
        Some(namespace)
    }

    /// Makes one with IPv6, whose addresses are usable at once, and which asks for no router.
    pub fn with_ipv6(role: &str) -> Option<Self> {
        Some(Self::named(role, "add", "")?.ready_for_ipv6())
    }

    /// The one of the machine itself, likewise: a guest has nothing else to do with it.
    pub fn of_the_guest(role: &str) -> Option<Self> {
        Some(Self::named(role, "attach", "1")?.ready_for_ipv6())
    }

    fn ready_for_ipv6(self) -> Self {
        for (key, value) in [
            ("accept_dad", "0"),
            ("accept_ra", "0"),
            ("router_solicitations", "0"),
        ] {
            for which in ["all", "default"] {
                self.try_sysctl(&format!("ipv6/conf/{which}/{key}"), value);
            }
        }
        self.ip("link set lo up");
        self
    }

    /// Gives a name to a new one (`add`), or to that of a process (`attach`).
    fn named(role: &str, verb: &str, process: &str) -> Option<Self> {
        sweep();
        let name = format!("lr-{}-{}{role}", std::process::id(), number());
        let mut command = Command::new("ip");
        command.args(["netns", verb, &name]);
        match command.args(process.split_whitespace()).output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let reason = said.lines().next().unwrap_or_default();
                skip(&format!("needs root for network namespaces: {reason}"));
                return None;
            }
            Err(error) => {
                skip(&format!("needs the program ip: {error}"));
                return None;
            }
        }
        Some(Self { name })
    }

    /// As `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets a key below `/proc/sys/net`, which must exist.
    #[track_caller]
    pub fn sysctl(&self, key: &str, value: &str) {
        self.inside(|| std::fs::write(format!("/proc/sys/net/{key}"), value))
            .unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
    }

    fn try_sysctl(&self, key: &str, value: &str) {
        let _ = self.inside(|| std::fs::write(format!("/proc/sys/net/{key}"), value));
    }

    /// A command that will run in it, and be killed if the test's thread ends.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &self.name,
            "setpriv",
            "--pdeathsig",
            "KILL",
            program,
        ]);
        command
    }

    /// Starts a program with these words in it.
    pub fn start(&self, program: &str, words: &str) -> Running {
        Running::start(self.command(program).args(words.split_whitespace()))
    }

    /// Runs a program with these words in it to its end.
    pub fn run(&self, program: &str, words: &str) -> Output {
        self.command(program)
            .args(words.split_whitespace())
            .output()
            .unwrap()
    }

    /// Runs `ip` with these arguments, which must succeed, and returns its output.
    #[track_caller]
    pub fn ip(&self, words: &str) -> String {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name]);
        let output = command.args(words.split_whitespace()).output().unwrap();
        said(words, &output)
    }

    /// Runs `ip` once with a command in each of these lines; all must succeed.
    #[track_caller]
    pub fn ip_lines(&self, lines: &str) {
        let mut command = Command::new("ip");
        let mut child = command
            .args(["-n", &self.name, "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(lines.as_bytes()).unwrap();
        drop(stdin);
        said(lines, &child.wait_with_output().unwrap());
    }

    /// Whether an interface of that name is in it.
    pub fn has(&self, interface: &str) -> bool {
        let mut command = Command::new("ip");
        command
            .args(["-n", &self.name, "link", "show", "dev", interface])
            .output()
            .unwrap()
            .status
            .success()
    }

    /// The hardware address of an interface.
    pub fn mac(&self, interface: &str) -> [u8; 6] {
        let text = self.ip(&format!("-json link show dev {interface}"));
        let links: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut bytes = links[0]["address"].as_str().unwrap().split(':');
        std::array::from_fn(|_| u8::from_str_radix(bytes.next().unwrap(), 16).unwrap())
    }

    /// Frames that the kernel dropped on the way into the interfaces whose names begin so.
    pub fn rx_dropped(&self, name: &str) -> u64 {
        self.device_count(name, 3)
    }

    /// Frames that came into the interfaces whose names begin so.
    pub fn rx_packets(&self, name: &str) -> u64 {
        self.device_count(name, 1)
    }

    /// Sum of a column (received bytes, packets, errors, dropped: proc_pid_net(5)) over interfaces.
    fn device_count(&self, name: &str, column: usize) -> u64 {
        let table = self.inside(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
        let rows = table.lines().filter_map(|row| row.trim().split_once(':'));
        let of_ours = rows.filter(|(interface, _)| interface.starts_with(name));
        let count = |row: &str| row.split_whitespace().nth(column)?.parse::<u64>().ok();
        of_ours.map(|(_, row)| count(row).expect("a count")).sum()
    }

    /// Runs a function in it, on a thread of its own.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.name)).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap();
                work()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Joins `here` in this namespace to `there` in another, both up.
    pub fn wire(&self, here: &str, other: &Self, there: &str, options: &str) {
        self.ip_lines(&format!(
            "link add {here} {options} type veth peer name {there} {options} netns {}\n\
             link set dev {here} up",
            other.name
        ));
        other.ip(&format!("link set dev {there} up"));
    }

    /// Turns the offloads of an interface off: frames cross the wire cut and with checksums.
    pub fn plain(&self, interface: &str) {
        const FEATURES: [&str; 6] = ["tx", "tso", "gso", "gro", "rxvlan", "txvlan"];
        let off = FEATURES.map(|feature| format!("{feature} off")).join(" ");
        // What is fixed already makes ethtool complain.
        self.run("ethtool", &format!("-K {interface} {off}"));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let deleted = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
        if !std::thread::panicking() {
            assert!(
                deleted.is_ok_and(|output| output.status.success()),
                "{} stayed behind",
                self.name
            );
        }
    }
}

/// What `ip` has said, which must have succeeded.
#[track_caller]
fn said(words: &str, output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Frames that found a CPU's queue of arrivals full, anywhere on this machine: the second column
/// of each CPU's row.
pub fn backlog_drops() -> u64 {
    let table = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let dropped = |row: &str| u64::from_str_radix(row.split(' ').nth(1).unwrap(), 16).unwrap();
    table.lines().map(dropped).sum()
}

/// Removes what a test process that was killed could not: its namespaces, and programs in them that
/// did not die with it, because they have changed their user.
fn sweep() {
    for entry in std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().into_string().unwrap_or_default();
        let owner = name
            .strip_prefix("lr-")
            .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            let pids = Command::new("ip").args(["netns", "pids", &name]).output();
            let pids = pids.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            for pid in pids.unwrap_or_default().split_whitespace() {
                if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// Two hosts that only linerate, running in the middle, can join.
pub struct Stand {
    /// The host at [`LEFT`].
    pub left: Namespace,
    /// Where linerate runs.
    pub mid: Namespace,
    /// The host at [`RIGHT`].
    pub right: Namespace,
}

/// The address of the left host.
pub const LEFT: &str = "10.7.0.1";
/// The address of the right host.
pub const RIGHT: &str = "10.7.0.2";

impl Stand {
    /// Hosts on `veth0` and `veth1`; their wires' other ends are `vethA` and `vethB` in the middle.
    pub fn new() -> Option<Self> {
        let stand = Self {
            left: Namespace::new("l")?,
            mid: Namespace::new("m")?,
            right: Namespace::new("r")?,
        };
        stand.left.wire("veth0", &stand.mid, "vethA", "");
        stand.right.wire("veth1", &stand.mid, "vethB", "");
        stand.left.ip(&format!("addr add {LEFT}/24 dev veth0"));
        stand.right.ip(&format!("addr add {RIGHT}/24 dev veth1"));
        Some(stand)
    }

    /// Frames that the kernel dropped on the way into any of the interfaces: those that did not
    /// fit its queue of a CPU's arrivals, which is shared with all else that the machine does.
    pub fn kernel_drops(&self) -> u64 {
        let ends = [&self.left, &self.mid, &self.right];
        ends.map(|end| end.rx_dropped("veth")).iter().sum()
    }

    /// The same without any offload on the way.
    pub fn plain(self) -> Self {
        self.left.plain("veth0");
        self.right.plain("veth1");
        self.mid.plain("vethA");
        self.mid.plain("vethB");
        self
    }

    /// Joins the wires to the kernel's ends of the TAPs `tap0` and `tap1` with a bridge each.
    pub fn bridge_taps(&self) {
        for (at, wire) in ["vethA", "vethB"].into_iter().enumerate() {
            self.mid.ip(&format!(
                "link add br{at} type bridge forward_delay 0 mcast_snooping 0"
            ));
            for part in [wire, &format!("tap{at}")] {
                self.mid.ip(&format!("link set {part} master br{at}"));
            }
            self.mid.ip(&format!("link set br{at} up"));
        }
    }
}
