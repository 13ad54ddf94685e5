//! `router.veth.64` and `gateway.veth.*`: three namespaces in a row, with the forwarder in the
//! middle one.
//!
//! ```text
//! feeder g0 ------- a :middle: b ------- s0 sink
//! ```
//!
//! The feeder (see [`veth`]) and the sink, a plain interface, are in the kernel and the same for
//! all: linerate's router, its l2fwd, which does nothing but receive and send, and Linux. The
//! feeder runs on the other CPU, and there the kernel also takes its frames in at `a`. linerate's
//! worker runs on the worker's CPU, and there the kernel sends what it sends, down to the sink.
//! Linux may have the worker's CPU as well: each of [`Placement`]'s ways is tried, and the fastest
//! counts. So are af_xdp and af_packet for linerate's ports, and ways to write the kernel's rules.
//!
//! Flows are established once they have been answered, from the sink's side; both sides of the
//! comparison keep the port of who begins a flow where it is free, so answers find it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::firewall::{self, Form};
use super::machine::{Cpus, kernel_threads};
use super::ours::Linerate;
use super::sample::Sample;
use super::veth::{self, FarEnd, ip};
use super::{progress, testpmd};
use crate::error::TaskError;
use crate::private_folder::PrivateFolder;
use crate::process;
use crate::undo::Undo;

const FEEDER: &str = "g0";
const SINK: &str = "s0";
/// Where frames are sent behind the router: to a station that is not there, so the sink's stack
/// drops them as the first thing it does. An XDP program would cost more where frames come without
/// room for it.
const NOBODY: &str = "02:00:00:00:00:05";
/// The ports in the middle.
const PORTS: [&str; 2] = ["a", "b"];
/// How long each way is tried at most, in s.
const TRIAL: f64 = 0.5;
/// How long flows are answered before they are measured.
const ANSWERS: Duration = Duration::from_millis(300);
/// How long a forwarder may take to end.
const STOP: Duration = Duration::from_secs(10);

/// Kinds of port that reach an interface of the kernel's.
const KINDS: [&str; 2] = ["af_xdp", "af_packet"];

/// What the middle does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Packets are routed.
    Route,
    /// A firewall and NAT, and packets of 1024 flows that have been answered.
    Established,
    /// The same, and each packet begins a flow.
    New,
}

impl Job {
    /// Of how many flows the feeder's packets are: 2 to the power of this.
    fn flow_bits(self) -> u32 {
        match self {
            Self::Route => 0,
            Self::Established => 10,
            Self::New => 27,
        }
    }

    fn forms(self) -> &'static [Option<Form>] {
        match self {
            Self::Route => &[None],
            _ => &[Some(Form::ALL[0]), Some(Form::ALL[1])],
        }
    }
}

/// Where Linux forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// In the softirq of the CPU that feeds.
    Feeder,
    /// Taken in there, and steered to the worker's (receive packet steering).
    Steered,
    /// In a thread on the worker's CPU (threaded NAPI).
    Thread,
}

impl Placement {
    const ALL: [Self; 3] = [Self::Feeder, Self::Steered, Self::Thread];

    fn name(self) -> &'static str {
        match self {
            Self::Feeder => "on the feeder's CPU",
            Self::Steered => "steered to the worker's CPU",
            Self::Thread => "by threaded NAPI on the worker's CPU",
        }
    }
}

/// The namespaces; removed with the `undo` that they were made with.
pub(super) struct Crossing {
    job: Job,
    /// Of the feeder, the middle and the sink.
    namespaces: [String; 3],
    xgen: PathBuf,
    feeder_cpu: usize,
    worker_cpu: usize,
    /// What turned out fastest.
    kind: &'static str,
    placement: Placement,
    form: Option<Form>,
    folder: PrivateFolder,
}

impl Crossing {
    pub(super) fn create(
        undo: &mut Undo,
        job: Job,
        xgen: PathBuf,
        cpus: &Cpus,
    ) -> Result<Crossing, TaskError> {
        let folder = PrivateFolder::new("compare");
        let folder = folder.map_err(TaskError::file(&std::env::temp_dir()))?;
        undo.add(&format!("rm -rf '{}'", folder.path().display()))?;
        let id = std::process::id();
        let namespaces = ["gen", "mid", "snk"].map(|name| format!("lr{name}{id}"));
        for namespace in &namespaces {
            veth::quiet_namespace(undo, namespace)?;
        }
        let [generator, middle, sink] = &namespaces;
        // The feeder's frames come from ...:01 and go to ...:02.
        for (end, mac, namespace, port, port_mac) in [
            (
                FEEDER,
                "02:00:00:00:00:01",
                generator,
                PORTS[0],
                "02:00:00:00:00:02",
            ),
            (
                SINK,
                "02:00:00:00:00:04",
                sink,
                PORTS[1],
                "02:00:00:00:00:03",
            ),
        ] {
            ip(&[
                "link", "add", end, "netns", namespace, "address", mac, "type", "veth", "peer",
                "name", port, "netns", middle, "address", port_mac,
            ])?;
            ip(&["-n", namespace, "link", "set", "dev", end, "up"])?;
            ip(&["-n", middle, "link", "set", "dev", port, "up"])?;
        }
        let crossing = Crossing {
            job,
            xgen,
            feeder_cpu: cpus.other.unwrap_or(cpus.worker),
            worker_cpu: cpus.worker,
            kind: KINDS[0],
            placement: Placement::Feeder,
            form: job.forms()[0],
            namespaces,
            folder,
        };
        // GRO gives the port a NAPI of its own, without which veth takes no XDP frames.
        let fed = match job {
            Job::Established => &PORTS[..],
            Job::Route | Job::New => &PORTS[..1],
        };
        for port in fed {
            process::read(crossing.inside("ethtool").args(["-K", port, "gro", "on"]))?;
        }
        if job != Job::Route {
            firewall::make_room(undo)?;
        }
        // No reverse path check for the feeder's addresses.
        for interface in ["all", PORTS[0], PORTS[1]] {
            crossing.sysctl(&format!("net.ipv4.conf.{interface}.rp_filter=0"))?;
        }
        Ok(crossing)
    }

    /// Finds out which kind of port, which placement and which way to write rules are the fastest.
    pub(super) fn choose(
        &mut self,
        row: &str,
        linerate: Option<&Linerate>,
        seconds: f64,
    ) -> Result<(), TaskError> {
        let trial = |what: &str, through: Result<Through, TaskError>| {
            let mpps = through?.forwarded;
            progress(&format!("{row}: {what}: {mpps:.3} Mpps"));
            Ok(mpps)
        };
        let seconds = seconds.min(TRIAL);
        if let Some(linerate) = linerate {
            self.kind = best(KINDS, |kind| {
                trial(kind, self.through(self.router(linerate, kind)?, seconds))
            })?;
        }
        let forms = self.job.forms().iter();
        let ways = forms.flat_map(|form| Placement::ALL.map(|placement| (*form, placement)));
        (self.form, self.placement) = best(ways, |(form, placement)| {
            let what = described(form, placement);
            trial(&what, self.linux(form, placement, seconds))
        })?;
        Ok(())
    }

    /// linerate's router, and beside it l2fwd over the same ports.
    pub(super) fn ours(&self, linerate: &Linerate, seconds: f64) -> Result<Sample, TaskError> {
        let router = self.through(self.router(linerate, self.kind)?, seconds)?;
        let null = self.through(self.l2fwd(linerate), seconds)?;
        let mut sample = router.sample();
        sample.detail.insert(NULL.into(), json!(null.forwarded));
        let linux = described(self.form, self.placement);
        sample.note = Some(format!("ports: {}; {linux}", self.kind));
        Ok(sample)
    }

    /// Linux, where it forwards fastest.
    pub(super) fn peer(&self, seconds: f64) -> Result<Sample, TaskError> {
        let mut sample = self.linux(self.form, self.placement, seconds)?.sample();
        let kernel = process::read(Command::new("uname").arg("-r"))?;
        let does = match self.job {
            Job::Route => "forwarding",
            _ => "with nftables, conntrack and masquerade",
        };
        sample.peer_name = format!("Linux {} {does}", kernel.trim());
        Ok(sample)
    }

    fn middle(&self) -> &str {
        &self.namespaces[1]
    }

    /// `program` in the middle.
    fn inside(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        veth::inside(self.middle(), program)
    }

    fn sysctl(&self, setting: &str) -> Result<(), TaskError> {
        process::read(self.inside("sysctl").args(["-qw", setting])).map(drop)
    }

    fn router(&self, linerate: &Linerate, kind: &str) -> Result<Command, TaskError> {
        let folder = process::target_dir().join("compare");
        fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
        let (file, socket) = (folder.join("router.veth.toml"), self.socket());
        let mut text = configuration(kind, &socket, [self.feeder_cpu, self.worker_cpu]);
        let appliance = match self.job {
            Job::Route => "router",
            Job::Established | Job::New => {
                text += &firewall::stanzas(PORTS);
                "gateway"
            }
        };
        fs::write(&file, text).map_err(TaskError::file(&file))?;
        let mut command = self.inside(linerate.program());
        command.arg(appliance).arg(file);
        Ok(command)
    }

    fn l2fwd(&self, linerate: &Linerate) -> Command {
        let mut command = self.inside(linerate.program());
        let cpus = format!("{},{}", self.feeder_cpu, self.worker_cpu);
        command.args([
            "l2fwd", "--period", "0", "--bg", "0", "--io", "1", "--cpus", &cpus,
        ]);
        command.args(PORTS.map(|port| format!("{}:{port}", self.kind)));
        command
    }

    /// In a folder with a short name: a socket's path has 107 bytes at most.
    fn socket(&self) -> PathBuf {
        self.folder.join("router.sock")
    }

    /// What comes through while `command` forwards, which prints a line when it does.
    fn through(&self, command: Command, seconds: f64) -> Result<Through, TaskError> {
        let mut forwarder = Forwarder::start(command)?;
        let through = self.measure(seconds);
        forwarder.stop();
        through
    }

    fn linux(
        &self,
        form: Option<Form>,
        placement: Placement,
        seconds: f64,
    ) -> Result<Through, TaskError> {
        self.place(placement)?;
        self.address_linux()?;
        if let Some(form) = form {
            firewall::load(self.middle(), form, PORTS, self.folder.path())?;
        }
        self.sysctl("net.ipv4.ip_forward=1")?;
        let through = self.measure(seconds);
        self.sysctl("net.ipv4.ip_forward=0")?;
        if form.is_some() {
            firewall::unload(self.middle())?;
        }
        for port in PORTS {
            // The router refuses ports on which the kernel answers, too. The route goes along.
            ip(&["-n", self.middle(), "addr", "flush", "dev", port])?;
        }
        self.place(Placement::Feeder)?;
        through
    }

    /// Gives the kernel the addresses, the neighbour and the route that the router's file has.
    fn address_linux(&self) -> Result<(), TaskError> {
        let middle = ["-n", self.middle()];
        for (net, port) in PORTS.iter().enumerate() {
            let address = format!("10.255.{net}.1/30");
            ip(&[&middle[..], &["addr", "replace", &address, "dev", port]].concat())?;
        }
        let neighbour = ["neigh", "replace", "10.255.1.2", "lladdr", NOBODY, "dev"];
        ip(&[&middle[..], &neighbour, &[PORTS[1]]].concat())?;
        let route = ["route", "replace", "198.18.0.0/15", "via", "10.255.1.2"];
        ip(&[&middle[..], &route].concat())?;
        Ok(())
    }

    /// Has the kernel take frames of the first port in there.
    fn place(&self, placement: Placement) -> Result<(), TaskError> {
        let port = format!("/sys/class/net/{}", PORTS[0]);
        let mask = match placement {
            Placement::Steered => cpu_mask(self.worker_cpu),
            _ => "0".into(),
        };
        let threaded = u8::from(placement == Placement::Thread);
        let script = format!(
            "echo {mask} > {port}/queues/rx-0/rps_cpus && echo {threaded} > {port}/threaded"
        );
        process::read(self.inside("sh").args(["-c", &script]))?;
        if placement == Placement::Thread {
            let name = format!("napi/{}-", PORTS[0]);
            for pid in kernel_threads(&name) {
                let pid = pid.as_raw_pid().to_string();
                let cpu = self.worker_cpu.to_string();
                process::read(Command::new("taskset").args(["-pc", &cpu, &pid]))?;
                process::read(Command::new("renice").args(["-n", "-20", "-p", &pid]))?;
            }
        }
        Ok(())
    }

    fn measure(&self, seconds: f64) -> Result<Through, TaskError> {
        let [generator, _, sink] = &self.namespaces;
        let (cpu, flows) = (
            self.feeder_cpu.to_string(),
            self.job.flow_bits().to_string(),
        );
        let words = ["feed", FEEDER, "60", &cpu, &flows];
        let _feeder = FarEnd::start(generator, &self.xgen, &words)?;
        testpmd::moving(|| self.forwarded())?;
        if self.job == Job::Established {
            let words = ["feed", SINK, "60", &cpu, &flows, "answers"];
            let answers = FarEnd::start(sink, &self.xgen, &words)?;
            std::thread::sleep(ANSWERS);
            drop(answers);
        }
        let (began, before) = (Instant::now(), (self.forwarded()?, self.offered()?));
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let (took, after) = (began.elapsed(), (self.forwarded()?, self.offered()?));
        let mpps = |before: u64, after: u64| (after - before) as f64 / 1e6 / took.as_secs_f64();
        Ok(Through {
            forwarded: mpps(before.0, after.0),
            offered: mpps(before.1, after.1),
        })
    }

    /// Frames that have come to the sink: the same judge for all.
    fn forwarded(&self) -> Result<u64, TaskError> {
        Ok(counters(&self.namespaces[2], SINK)?.received)
    }

    /// Frames that the feeder has sent, those among them for which the first port had no room.
    fn offered(&self) -> Result<u64, TaskError> {
        let counters = counters(&self.namespaces[0], FEEDER)?;
        Ok(counters.sent + counters.unsent)
    }
}

/// Under this name the null-forwarding run stands beside ours, in Mpps.
pub(super) const NULL: &str = "null_forward_mpps";
/// And under this, what the feeder brought.
const OFFERED: &str = "offered_mpps";

/// The forwarded rate, in Mpps.
struct Through {
    forwarded: f64,
    offered: f64,
}

impl Through {
    fn sample(&self) -> Sample {
        let mut sample = Sample {
            value: self.forwarded,
            pages: String::new(),
            peer_name: String::new(),
            detail: Default::default(),
            note: None,
        };
        sample.detail.insert(OFFERED.into(), json!(self.offered));
        sample
    }
}

/// Who was the limit: the router's and the null-forwarding run's rates over the same ports, in
/// Mpps.
pub(super) fn bottleneck(router: f64, null: f64) -> String {
    // A packet's time is the ports' and the router's; without the router it is the ports' alone.
    let ports = (100.0 * router / null).min(100.0);
    let who = match ports {
        50.0.. => "the kernel's ports",
        _ => "the router",
    };
    format!(
        "bottleneck: {who}; null forwarding over the same ports is {null:.3} Mpps, so they take \
         {ports:.0}% of the router's time for a packet"
    )
}

/// A process that forwards.
pub(super) struct Forwarder {
    child: Child,
    // A closed pipe must not end it.
    _output: BufReader<std::process::ChildStdout>,
}

impl Forwarder {
    /// Starts it and waits for its first line.
    pub(super) fn start(command: Command) -> Result<Forwarder, TaskError> {
        Self::start_as("forwarder", command)
    }

    /// The same, of several at a time: each has a log of this name.
    pub(super) fn start_as(log: &str, mut command: Command) -> Result<Forwarder, TaskError> {
        let name = process::spelled(&command);
        let log = process::target_dir().join(format!("compare/{log}.log"));
        let errors = File::create(&log).map_err(TaskError::file(&log))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(|source| TaskError::Start {
                program: name.clone(),
                source,
            })?;
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        let read = output.read_line(&mut first);
        let mut forwarder = Forwarder {
            child,
            _output: output,
        };
        if read.is_ok_and(|bytes| bytes > 0) {
            return Ok(forwarder);
        }
        forwarder.stop();
        Err(TaskError::Missing {
            what: format!(
                "`{name}` did not begin to forward{}",
                process::last_lines(&fs::read_to_string(&log).unwrap_or_default(), 4)
            ),
            fix: format!("read {}", log.display()),
        })
    }

    /// What all its threads have had of any CPU, in s.
    pub(super) fn cpu_seconds(&self) -> Result<f64, TaskError> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        let mut ns = 0;
        for task in fs::read_dir(&tasks)
            .map_err(TaskError::file(&tasks))?
            .flatten()
        {
            // A thread may have ended since. The first of three numbers is the time on a CPU.
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let first = text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
            ns += first.unwrap_or(0);
        }
        Ok(ns as f64 / 1e9)
    }

    /// Ends it as its user would; kills it if it does not listen.
    pub(super) fn stop(&mut self) {
        // An error means that it has ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let deadline = Instant::now() + STOP;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The router's file: slow worker on the first of these CPUs, fast one on the second.
fn configuration(kind: &str, socket: &std::path::Path, cpus: [usize; 2]) -> String {
    let mut text = format!(
        "[plan]\nbg = \"0\"\nio = \"1\"\ncpus = \"{},{}\"\n[router]\ncontrol = \"{}\"\nkernel = \
         false\nperiod = 0\n",
        cpus[0],
        cpus[1],
        socket.display()
    );
    for (net, port) in PORTS.iter().enumerate() {
        text += &format!(
            "[[port]]\nname = \"{port}\"\nspec = \"{kind}:{port}\"\n\
             [[interface]]\nport = \"{port}\"\naddresses = [\"10.255.{net}.1/30\"]\n"
        );
    }
    text += &format!(
        "[[neighbour]]\naddress = \"10.255.1.2\"\nmac = \"{NOBODY}\"\ninterface = \"b\"\n"
    );
    text + "[[route]]\nprefix = \"198.18.0.0/15\"\nvia = \"10.255.1.2\"\n"
}

fn described(form: Option<Form>, placement: Placement) -> String {
    let rules = form.map_or(String::new(), |form| format!(", rules as {}", form.name()));
    format!("Linux {}{rules}", placement.name())
}

/// The one of `all` that `rate` gives the highest figure. What does not run is none of them, unless
/// nothing does.
pub(super) fn best<T: Copy>(
    all: impl IntoIterator<Item = T>,
    mut rate: impl FnMut(T) -> Result<f64, TaskError>,
) -> Result<T, TaskError> {
    let mut found: Option<(T, f64)> = None;
    let mut failed = None;
    for one in all {
        match rate(one) {
            Ok(rate) if found.is_none_or(|(_, best)| rate > best) => found = Some((one, rate)),
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    match (found, failed) {
        (Some((one, _)), _) => Ok(one),
        (None, Some(error)) => Err(error),
        (None, None) => unreachable!("there is one at least"),
    }
}

/// As `rps_cpus` wants it: words of 32 bits, the highest first.
pub(super) fn cpu_mask(cpu: usize) -> String {
    let mut mask = format!("{:x}", 1_u32 << (cpu % 32));
    mask.push_str(&",00000000".repeat(cpu / 32));
    mask
}

#[derive(Debug, PartialEq, Eq)]
struct Counters {
    received: u64,
    sent: u64,
    unsent: u64,
}

fn counters(namespace: &str, interface: &str) -> Result<Counters, TaskError> {
    let text = ip(&["-n", namespace, "-s", "-j", "link", "show", interface])?;
    parse_counters(&text).ok_or_else(|| TaskError::Unexpected {
        who: "ip -s -j link".into(),
        text,
        expected: "stats64",
    })
}

fn parse_counters(text: &str) -> Option<Counters> {
    let links: Value = serde_json::from_str(text).ok()?;
    let stats = &links[0]["stats64"];
    Some(Counters {
        received: stats["rx"]["packets"].as_u64()?,
        sent: stats["tx"]["packets"].as_u64()?,
        unsent: stats["tx"]["dropped"].as_u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_that_runs_is_chosen() {
        let rates = |kind| match kind {
            "x" => Err(TaskError::Missing {
                what: "x".into(),
                fix: String::new(),
            }),
            "y" => Ok(2.0),
            _ => Ok(1.0),
        };
        assert_eq!(best(["x", "z", "y"], rates).unwrap(), "y");
        assert!(best(["x"], rates).is_err());
    }

    #[test]
    fn the_bottleneck_is_the_part_that_takes_most_of_the_time() {
        let text = bottleneck(0.95, 1.0);
        assert!(
            text.contains("ports; ") && text.contains("take 95%"),
            "{text}"
        );
        let text = bottleneck(0.25, 1.0);
        assert!(
            text.contains("the router; ") && text.contains("take 25%"),
            "{text}"
        );
        // Noise: nothing takes more than all of it.
        assert!(bottleneck(1.1, 1.0).contains("take 100%"));
    }

    #[test]
    fn masks_and_counters_as_the_kernel_writes_them() {
        assert_eq!(cpu_mask(1), "2");
        assert_eq!(cpu_mask(33), "2,00000000");
        let text =
            r#"[{"ifname":"g0","stats64":{"rx":{"packets":1},"tx":{"packets":2,"dropped":3}}}]"#;
        let counters = Counters {
            received: 1,
            sent: 2,
            unsent: 3,
        };
        assert_eq!(parse_counters(text), Some(counters));
        assert_eq!(parse_counters("[]"), None);
    }
}
