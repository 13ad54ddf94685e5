//! `router.veth.tcp`: one TCP connection between two hosts, through linerate's router and through
//! Linux.
//!
//! ```text
//! iperf3 -c  h0 ------- a :middle: b ------- h1  iperf3 -s
//! ```
//!
//! Twice the same three namespaces: in the middle of one is linerate, Linux forwards in the other.
//! Hosts are Linux for both. In `.plain` no interface has offloads: every frame crosses the wires
//! cut, and with its checksum. linerate has one worker for both ports or one for each, and ports of
//! the kind that is fastest here; the row says which. Linux runs where its scheduler has it run:
//! that is on both CPUs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::crossing::{self, Forwarder};
use super::machine::Cpus;
use super::ours::Linerate;
use super::progress;
use super::sample::Sample;
use super::veth::{self, ip};
use crate::error::TaskError;
use crate::process;
use crate::undo::Undo;

/// What linerate's ports may be: `KIND:` and then options.
const KINDS: [(&str, &str); 3] = [
    ("af_packet", ""),
    ("af_packet", ",handover=frame"),
    ("af_xdp", ""),
];

/// How linerate is to forward.
#[derive(Clone, Copy)]
struct Variant {
    kind: (&'static str, &'static str),
    /// Each port has a worker of its own, the second one on the CPU of the slow worker.
    two_workers: bool,
}

impl Variant {
    fn all() -> impl Iterator<Item = Self> {
        let variants = |kind| [false, true].map(|two_workers| Self { kind, two_workers });
        KINDS.into_iter().flat_map(variants)
    }

    fn name(self) -> String {
        let workers = if self.two_workers {
            "two workers"
        } else {
            "one worker"
        };
        format!("{}{}, {workers}", self.kind.0, self.kind.1)
    }
}

const PORTS: [&str; 2] = ["a", "b"];
const HOSTS: [&str; 2] = ["h0", "h1"];
/// How long each kind is tried at most, in s.
const TRIAL: f64 = 1.0;

/// Both places, gone when the `undo` that they were made with is, and what turned out fastest.
pub(super) struct Tcp {
    ours: Place,
    linux: Place,
    /// The CPUs of the slow worker and of the fast one.
    cpus: [usize; 2],
    variant: Variant,
}

/// Two hosts and what is between them.
struct Place {
    hosts: [String; 2],
    middle: String,
}

impl Tcp {
    pub(super) fn create(undo: &mut Undo, cpus: &Cpus, plain: bool) -> Result<Self, TaskError> {
        if process::find_program("iperf3").is_none() {
            return Err(TaskError::Missing {
                what: "there is no iperf3".into(),
                fix: "apt-get install --no-install-recommends iperf3".into(),
            });
        }
        let tcp = Self {
            ours: Place::create(undo, "o", plain)?,
            linux: Place::create(undo, "x", plain)?,
            cpus: [cpus.other.unwrap_or(cpus.worker), cpus.worker],
            variant: Variant {
                kind: KINDS[0],
                two_workers: false,
            },
        };
        for (net, port) in PORTS.iter().enumerate() {
            let address = format!("10.255.{net}.1/24");
            ip(&[
                "-n",
                &tcp.linux.middle,
                "addr",
                "add",
                &address,
                "dev",
                port,
            ])?;
        }
        let forward = "net.ipv4.ip_forward=1";
        process::read(veth::inside(&tcp.linux.middle, "sysctl").args(["-qw", forward]))?;
        Ok(tcp)
    }

    /// Finds out which way is the fastest.
    pub(super) fn choose(
        &mut self,
        row: &str,
        linerate: &Linerate,
        seconds: f64,
    ) -> Result<(), TaskError> {
        self.variant = crossing::best(Variant::all(), |variant| {
            let gbps = self.through(linerate, variant, seconds.min(TRIAL))?.value;
            progress(&format!("{row}: {}: {gbps:.2} Gb/s", variant.name()));
            Ok(gbps)
        })?;
        Ok(())
    }

    /// Through linerate.
    pub(super) fn ours(&self, linerate: &Linerate, seconds: f64) -> Result<Sample, TaskError> {
        let mut sample = self.through(linerate, self.variant, seconds)?;
        sample.note = Some(format!("ports: {}", self.variant.name()));
        Ok(sample)
    }

    /// Through Linux.
    pub(super) fn peer(&self, seconds: f64) -> Result<Sample, TaskError> {
        let mut sample = self.linux.measure(seconds)?;
        let kernel = process::read(Command::new("uname").arg("-r"))?;
        sample.peer_name = format!("Linux {} forwarding", kernel.trim());
        Ok(sample)
    }

    fn through(
        &self,
        linerate: &Linerate,
        variant: Variant,
        seconds: f64,
    ) -> Result<Sample, TaskError> {
        let folder = process::target_dir().join("compare");
        fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
        let file = folder.join("router.veth.tcp.toml");
        // In a folder with a short name: a socket's path has 107 bytes at most.
        let socket = std::env::temp_dir().join(format!("{}.sock", self.ours.middle));
        let [slow, fast] = self.cpus;
        let plan = match variant.two_workers {
            true => format!("io = \"1-2\"\ncpus = \"{slow},{fast},{slow}\""),
            false => format!("io = \"1\"\ncpus = \"{slow},{fast}\""),
        };
        let (kind, options) = variant.kind;
        let mut text = format!(
            "[plan]\nbg = \"0\"\n{plan}\n[router]\ncontrol = \"{}\"\nkernel = false\nperiod = 0\n",
            socket.display()
        );
        for (net, port) in PORTS.iter().enumerate() {
            text += &format!(
                "[[port]]\nname = \"{port}\"\nspec = \"{kind}:{port}{options}\"\n\
                 [[interface]]\nport = \"{port}\"\naddresses = [\"10.255.{net}.1/24\"]\n"
            );
        }
        fs::write(&file, text).map_err(TaskError::file(&file))?;
        let mut command = veth::inside(&self.ours.middle, linerate.program());
        command.arg("router").arg(file);
        let mut forwarder = Forwarder::start(command)?;
        let sample = self.ours.measure(seconds);
        forwarder.stop();
        sample
    }
}

impl Place {
    fn create(undo: &mut Undo, name: &str, plain: bool) -> Result<Self, TaskError> {
        let id = std::process::id();
        let [left, middle, right] = ["l", "m", "r"].map(|part| format!("lrt{name}{part}{id}"));
        for namespace in [&left, &middle, &right] {
            veth::quiet_namespace(undo, namespace)?;
        }
        let hosts = [left, right];
        for net in 0..2 {
            let (host, end, port) = (&hosts[net], HOSTS[net], PORTS[net]);
            ip(&[
                "link", "add", end, "netns", host, "type", "veth", "peer", "name", port, "netns",
                &middle,
            ])?;
            for (namespace, interface) in [(host, end), (&middle, port)] {
                ip(&["-n", namespace, "link", "set", "dev", interface, "up"])?;
                let words = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
                if plain {
                    let mut command = veth::inside(namespace, "ethtool");
                    process::read(command.args(["-K", interface]).args(words))?;
                }
            }
            let address = format!("10.255.{net}.2/24");
            ip(&["-n", host, "addr", "add", &address, "dev", end])?;
            let gateway = format!("10.255.{net}.1");
            ip(&["-n", host, "route", "add", "default", "via", &gateway])?;
        }
        Ok(Self { hosts, middle })
    }

    /// What one connection carries from the first host to the second, in Gb/s.
    fn measure(&self, seconds: f64) -> Result<Sample, TaskError> {
        let mut command = veth::inside(&self.hosts[1], "iperf3");
        command.args(["--server", "--one-off", "--forceflush"]);
        let name = process::spelled(&command);
        let start = |source| TaskError::Start {
            program: name.clone(),
            source,
        };
        let mut server = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(start)?;
        let output = server.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(output).lines();
        let listens = lines.any(|line| line.is_ok_and(|line| line.contains("listening")));
        // It says no more than fits the pipe, which stays open as long as it lives.
        let seconds = (seconds.ceil().max(1.0) as u64).to_string();
        let said = process::read(veth::inside(&self.hosts[0], "iperf3").args([
            "--client",
            "10.255.1.2",
            "--time",
            &seconds,
            "--json",
        ]));
        if said.is_err() || !listens {
            let _ = server.kill();
        }
        let _ = server.wait();
        let said = said?;
        let report: Option<Value> = serde_json::from_str(&said).ok();
        let sums = report.as_ref().map(|report| &report["end"]);
        let bits = sums.and_then(|end| end["sum_received"]["bits_per_second"].as_f64());
        let Some((sums, bits)) = sums.zip(bits) else {
            return Err(TaskError::Unexpected {
                who: "iperf3".into(),
                text: process::last_lines(&said, 3),
                expected: "end.sum_received.bits_per_second",
            });
        };
        let mut sample = Sample {
            value: bits / 1e9,
            pages: String::new(),
            peer_name: String::new(),
            detail: Default::default(),
            note: None,
        };
        let retransmits = sums["sum_sent"]["retransmits"].as_f64().unwrap_or(0.0);
        sample
            .detail
            .insert("retransmits".into(), json!(retransmits));
        Ok(sample)
    }
}
