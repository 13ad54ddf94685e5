//! Linux as the stack under test, in real time: a network name space of the run's own, a TAP in it
//! whose wire the script plays, and system calls on a thread.
//!
//! The TAP is called `tun0`, as packetdrill's device is, and resolves no addresses. The kernel
//! gives it TCP frames of up to 64 KiB, as it gives them to a network card.

mod calls;
mod info;
mod worker;

use crate::call::{Call, Reply};
use crate::fault::{Fault, Kind};
use crate::run::{Arrival, Config, Outcome, Runner, World};
use crate::script::Script;
use crate::settings::{self, DEFAULTS, Line};
use calls::Sockets;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use worker::Worker;

/// Both stations of the wire have it: the kernel asks nobody for addresses.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// `struct virtio_net_hdr`: flags, GSO type, four numbers of 16 bits.
const VNET_BYTES: usize = 10;
const ETHERNET_BYTES: usize = 14;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CSUM: u8 = 1;
/// How long a call without `...` may take before it counts as blocking.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Words of scripts whose values are the kernel's: the cookie of Fast Open that it gives to the
/// usual address, with the key of [`DEFAULTS`].
pub const DEFINES: [(&str, &str); 1] = [("TFO_COOKIE", "3021b9d889017eeb")];

/// Runs a script against the kernel of this machine. `path` is the script's: its shell commands run
/// in that folder.
///
/// A thread of its own is in the name space, which ends with it.
pub fn run(script: &Script, config: &Config, path: &Path) -> Outcome {
    let thread = std::thread::scope(|scope| {
        let name = std::thread::Builder::new().name("drill".into());
        name.spawn_scoped(scope, || inside(script, config, path))
            .map(|thread| thread.join())
    });
    match thread {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => failed(Fault::setup(format!("no thread: {error}"), "try again")),
    }
}

fn failed(fault: Fault) -> Outcome {
    Outcome {
        fault: Some(fault),
        ..Outcome::default()
    }
}

fn inside(script: &Script, config: &Config, path: &Path) -> Outcome {
    match Linux::new(config, path) {
        Ok(mut linux) => Runner::new(&mut linux, config).run(script),
        Err(fault) => failed(fault),
    }
}

pub(crate) struct Linux {
    tap: OwnedFd,
    /// Makes calls that return at once, while the other one waits.
    quick: Worker,
    /// Makes calls that block.
    worker: Worker,
    start: Instant,
    arrivals: VecDeque<Arrival>,
    frame: Vec<u8>,
    folder: PathBuf,
    config: Config,
}

impl Linux {
    fn new(config: &Config, path: &Path) -> Result<Self, Fault> {
        #[expect(
            deprecated,
            reason = "its successor is unsafe for the sake of CLONE_FILES"
        )]
        let unshared = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET);
        unshared.map_err(|error| {
            let problem = format!("no network name space: {error}");
            Fault::setup(
                problem,
                "run it as root, or with CAP_SYS_ADMIN and CAP_NET_ADMIN",
            )
        })?;
        // Of threads: only this one goes before others. What it may not, it does without.
        let _ = rustix::process::setpriority_process(None, -20);
        let tap = linerate_drivers::tap::open_plain("tun0").map_err(|error| {
            Fault::setup(
                format!("no TAP: {error}"),
                "see to /dev/net/tun and CAP_NET_ADMIN",
            )
        })?;
        set_up(config).map_err(|problem| Fault::setup(problem, "install iproute2"))?;
        let no_thread = |error| Fault::setup(format!("no thread: {error}"), "try again");
        let sockets = Arc::new(Sockets::default());
        let quick = Worker::start(&sockets).map_err(no_thread)?;
        let worker = Worker::start(&sockets).map_err(no_thread)?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let linux = Self {
            tap,
            quick,
            worker,
            start: Instant::now(),
            arrivals: VecDeque::new(),
            frame: vec![0; VNET_BYTES + ETHERNET_BYTES + 65_536],
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
            config: config.clone(),
        };
        for (name, value) in DEFAULTS {
            // A kernel that lacks one behaves as its version does.
            let _ = linux.set(name, value);
        }
        Ok(linux)
    }

    /// Reads all frames that are there.
    fn drain(&mut self) {
        while let Ok(len) = rustix::io::read(&self.tap, self.frame.as_mut_slice()) {
            let at_us = self.now_us();
            let Some(packet) = self.frame[..len].get(VNET_BYTES + ETHERNET_BYTES..) else {
                continue;
            };
            let kind = &self.frame[VNET_BYTES + 12..VNET_BYTES + 14];
            if kind == [0x08, 0x00] || kind == [0x86, 0xdd] {
                self.arrivals.push_back(Arrival {
                    at_us,
                    packet: packet.to_vec(),
                    partial: self.frame[0] & NEEDS_CSUM != 0,
                });
            }
        }
    }

    /// Waits for a frame or a system call's end, at most until then. Whether that time is still to
    /// come.
    fn wait(&mut self, until_us: i64) -> bool {
        let left_us = until_us - self.now_us();
        let timeout = Timespec {
            tv_sec: left_us.max(0) / 1_000_000,
            tv_nsec: left_us.max(0) % 1_000_000 * 1000,
        };
        let mut fds = [
            PollFd::new(&self.tap, PollFlags::IN),
            PollFd::from_borrowed_fd(self.worker.bell(), PollFlags::IN),
        ];
        // Interrupted by a signal, it only returns earlier.
        let _ = poll(&mut fds, Some(&timeout));
        self.drain();
        self.worker.quiet();
        left_us > 0
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let set = std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value);
        if name != "tcp_congestion_control" || set.is_ok() {
            return set;
        }
        // Only those that any user may have can be the default of a name space. Each socket can
        // have the others, if the kernel has them.
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
        match known.split_whitespace().any(|known| known == value) {
            true => {
                self.worker.sockets().set_congestion_control(value);
                Ok(())
            }
            false => set,
        }
    }
}

impl Linux {
    fn set_or_skip(&self, name: &str, value: &str) -> Result<(), (Kind, String)> {
        match self.set(name, value) {
            Err(error) if !DEFAULTS.contains(&(name, value)) => {
                let why = format!("this kernel refuses {name} = {value}: {error}");
                Err((Kind::Unsupported, why))
            }
            _ => Ok(()),
        }
    }

    fn shell(&mut self, command: &str) -> Result<(), (Kind, String)> {
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(&self.folder)
            .env("PACKETDRILL_PID", std::process::id().to_string())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| (Kind::Setup, format!("sh: {error}")))?;
        self.drain();
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let problem = format!("the command failed ({}): {}", output.status, said.trim());
        Err((Kind::Mismatch, problem))
    }
}

/// Brings the TAP up, with addresses and routes, and sets what scripts start with.
fn set_up(config: &Config) -> Result<(), String> {
    for (key, value) in [
        ("accept_dad", "0"),
        ("accept_ra", "0"),
        ("router_solicitations", "0"),
    ] {
        for which in ["all", "default", "tun0"] {
            // Absent where the kernel has no IPv6.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/{key}"), value);
        }
    }
    let (mtu, v4) = (config.mtu, config.local(false));
    let v6 = config.local(true);
    let remote = config.remote();
    let mut lines = format!(
        "link set lo up\n\
         link set tun0 address 02:00:00:00:00:01 mtu {mtu} arp off up\n\
         addr add {v4}/16 dev tun0\n"
    );
    if config.is_v6() {
        lines += &format!("addr add {v6}/64 dev tun0 nodad\n");
    }
    lines += &format!("route add {remote} dev tun0\n");
    ip_batch(&lines)?;
    // Without a queue that paces or shares; some kernels lack it, and most need none.
    let mut tc = Command::new("tc");
    tc.args(["qdisc", "add", "dev", "tun0", "root", "pfifo"]);
    let _ = tc.stderr(Stdio::null()).status();
    Ok(())
}

/// Runs `ip` on these lines.
fn ip_batch(lines: &str) -> Result<(), String> {
    let failed = |error: io::Error| format!("ip: {error}");
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "ip: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

impl World for Linux {
    fn address(&self, is_v6: bool) -> IpAddr {
        self.config.local(is_v6)
    }

    fn now_us(&self) -> i64 {
        self.start.elapsed().as_micros() as i64
    }

    fn sleep_until(&mut self, at_us: i64) {
        while self.wait(at_us) {}
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        let mut frame = vec![0; VNET_BYTES];
        frame.extend(MAC);
        frame.extend(MAC);
        let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
        frame.extend(if is_v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        frame.extend(packet);
        let written = rustix::io::write(&self.tap, &frame);
        written
            .map(|_| ())
            .map_err(|error| format!("the TAP: {error}"))
    }

    fn next_packet(&mut self, until_us: i64) -> Option<Arrival> {
        while self.arrivals.is_empty() && self.wait(until_us) {}
        self.arrivals.pop_front()
    }

    fn call(&mut self, call: Call) -> Result<Reply, String> {
        if matches!(call, Call::Info(_)) {
            // It never blocks, and may be asked while another call does.
            return Ok(self.worker.sockets().make(&call));
        }
        self.quick.begin(call)?;
        let answer = self.quick.answer(CALL_TIMEOUT);
        self.drain();
        let (_, reply) = answer.ok_or("it blocks; write ... and the time when it returns")?;
        Ok(reply)
    }

    fn begin(&mut self, call: Call) -> Result<(), String> {
        self.worker.begin(call)?;
        self.worker.await_block();
        self.drain();
        Ok(())
    }

    fn finished(&mut self, until_us: i64) -> Option<(i64, Reply)> {
        loop {
            if let Some((at, reply)) = self.worker.answer(Duration::ZERO) {
                let at = at.saturating_duration_since(self.start);
                return Some((at.as_micros() as i64, reply));
            }
            if !self.wait(until_us) {
                return None;
            }
        }
    }

    fn command(&mut self, command: &str) -> Result<(), (Kind, String)> {
        let Ok(lines) = settings::of_command(command) else {
            return self.shell(command);
        };
        for line in lines {
            match line {
                Line::LinuxOnly(line) => self.shell(&line)?,
                Line::Set(settings) => {
                    for (name, value) in settings {
                        self.set_or_skip(&name, &value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        self.quick.end();
        self.worker.end();
    }
}

/// A descriptor that several threads use.
type Shared = Arc<OwnedFd>;

/// Whether this machine lets the process make network name spaces; otherwise why not.
///
/// # Errors
/// What is missing.
pub fn available() -> Result<(), String> {
    let tap = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    let tap = tap.map_err(|error| format!("/dev/net/tun: {error}"))?;
    let _ = tap.as_fd();
    let probe = std::thread::spawn(|| {
        #[expect(
            deprecated,
            reason = "its successor is unsafe for the sake of CLONE_FILES"
        )]
        let unshared = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET);
        unshared.map_err(|error| format!("no network name space ({error}): needs root"))
    });
    probe.join().unwrap_or_else(|_| Err("no thread".into()))
}
