//! Rows of two processes, one a core, joined by a port that both open: memif, virtio-user with
//! vhost-user, shared memory.
//!
//! Ours is `linerate bench port` twice, DPDK's `xtask/peer/port.c` twice: both have the same roles
//! and count in the same way. The first end loads, on the other CPU; the second answers, on the
//! worker's, and is the server, which has to be there first. Where DPDK has several ways each is
//! tried, and the fastest counts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::json;

use super::crossing::{self, Forwarder};
use super::hugepages::Hugepages;
use super::machine::Cpus;
use super::ours::Linerate;
use super::peer;
use super::sample::{self, Sample};
use super::{progress, testpmd};
use crate::error::TaskError;
use crate::private_folder::PrivateFolder;
use crate::process;
use crate::undo::Undo;

/// How long each way is tried at most, in s.
const TRIAL: f64 = 0.3;
/// How long two processes may take beyond what they measure: either waits 30 s for the other.
const GRACE: Duration = Duration::from_secs(45);

/// What one row measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) job: Job,
    /// Without frame check sequence.
    pub(super) frame_bytes: usize,
    pub(super) ours: Joint,
    pub(super) peer: Joint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    /// From the first end to the second.
    OneWay,
    /// The same with one end of ours and one of DPDK's, in either direction; the slower one counts.
    Mixed,
    /// There and back.
    Echo,
    /// One frame at a time, there and back.
    RoundTrip,
}

impl Job {
    /// What the ends do.
    fn roles(self) -> [&'static str; 2] {
        match self {
            Job::OneWay | Job::Mixed => ["source", "sink"],
            Job::Echo => ["exchange", "echo"],
            Job::RoundTrip => ["ping", "echo"],
        }
    }
}

/// What joins the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joint {
    Memif,
    /// memif whose client sends from its own slots, which the server can read and write.
    MemifZeroCopy,
    /// virtio-user at the first end, vhost-user at the second.
    Vhost,
    /// The same in every mode that a user can choose, also with the pool lent to the second end:
    /// DPDK's virtio-user has no other.
    VhostBest,
    Shm,
}

/// The two ends, by their places.
const FIRST: usize = 0;
const SECOND: usize = 1;

impl Joint {
    /// Where a forwarder takes in and sends out: vhost-user joins guests, so it has two.
    fn count(self, job: Job) -> usize {
        match (self, job) {
            (Joint::Vhost | Joint::VhostBest, Job::Echo) => 2,
            _ => 1,
        }
    }

    /// The port as we write it; `options` are more of the first end's.
    fn ours(self, end: usize, path: &Path, options: &str) -> String {
        let path = path.display();
        match (self, end) {
            (Joint::Memif, FIRST) => format!("memif:{path},role=client{options}"),
            (Joint::MemifZeroCopy, FIRST) => {
                format!("memif:{path},role=client,trust=full{options}")
            }
            (Joint::Memif | Joint::MemifZeroCopy, _) => format!("memif:{path},role=server"),
            (Joint::Vhost | Joint::VhostBest, FIRST) => {
                format!("virtio_user:{path},role=client{options}")
            }
            (Joint::Vhost | Joint::VhostBest, _) => format!("vhost:{path},role=server"),
            (Joint::Shm, FIRST) => format!("shm:{path},role=client{options}"),
            (Joint::Shm, _) => format!("shm:{path},role=server"),
        }
    }

    /// The port as DPDK writes it; `way` has the options of virtio_user.
    fn dpdk(self, end: usize, number: usize, path: &Path, way: &Way) -> String {
        let path = path.display();
        let memif = |role: &str, more: &str| {
            format!("net_memif{number},role={role},socket={path},socket-abstract=no{more}")
        };
        match (self, end) {
            (Joint::Memif, FIRST) => memif("client", ""),
            (Joint::MemifZeroCopy, FIRST) => memif("client", ",zero-copy=yes"),
            (Joint::Memif | Joint::MemifZeroCopy, _) => memif("server", ""),
            (Joint::Vhost | Joint::VhostBest, FIRST) => {
                format!("net_virtio_user{number},path={path}{}", way.options)
            }
            (Joint::Vhost | Joint::VhostBest, _) => format!("net_vhost{number},iface={path}"),
            (Joint::Shm, _) => unreachable!("DPDK has no such ports, and no row asks for them"),
        }
    }

    /// DPDK's ways.
    fn ways(self) -> &'static [Way] {
        match self {
            Joint::Vhost | Joint::VhostBest => VHOST,
            _ => MEMIF,
        }
    }

    /// Ours: options of the first end.
    fn our_ways(self) -> &'static [&'static str] {
        match self {
            Joint::Vhost => &["", ",size=1024", ",packed=off", ",packed=off,size=1024"],
            Joint::VhostBest => &[
                "",
                ",trust=full",
                ",trust=full,size=1024",
                ",trust=full,packed=off",
            ],
            _ => &[""],
        }
    }
}

/// One of DPDK's ways to do it.
#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    options: &'static str,
    burst: u8,
}

const MEMIF: &[Way] = &[
    Way {
        name: "memif, bursts of 32",
        options: "",
        burst: 32,
    },
    Way {
        name: "memif, bursts of 64",
        options: "",
        burst: 64,
    },
];

/// Vectorized paths want no mergeable buffers, and packed ones in-order, too.
const VHOST: &[Way] = &[
    vhost("split", ""),
    vhost("split of 1024", ",queue_size=1024"),
    vhost("split in-order", ",in_order=1,mrg_rxbuf=0"),
    vhost(
        "split in-order of 1024",
        ",in_order=1,mrg_rxbuf=0,queue_size=1024",
    ),
    vhost("split vectorized", ",in_order=0,mrg_rxbuf=0,vectorized=1"),
    vhost("packed", ",packed_vq=1"),
    vhost("packed of 1024", ",packed_vq=1,queue_size=1024"),
    vhost(
        "packed in-order vectorized",
        ",packed_vq=1,in_order=1,mrg_rxbuf=0,vectorized=1",
    ),
    vhost(
        "packed in-order vectorized of 1024",
        ",packed_vq=1,in_order=1,mrg_rxbuf=0,vectorized=1,queue_size=1024",
    ),
];

const fn vhost(name: &'static str, options: &'static str) -> Way {
    Way {
        name,
        options,
        burst: 32,
    }
}

/// Who runs an end.
#[derive(Clone, Copy)]
enum Who<'a> {
    Linerate(&'a Linerate),
    Dpdk,
}

/// Everything that the processes of a row need.
pub(super) struct Ends<'a> {
    pair: Pair,
    cpus: Cpus,
    pages: &'a Hugepages,
    /// `xtask/peer/port.c`, compiled.
    port: &'a Path,
    version: &'a str,
    /// What turned out fastest: of DPDK's ways, and of ours.
    way: Way,
    our_way: &'static str,
    folder: PrivateFolder,
}

impl<'a> Ends<'a> {
    pub(super) fn create(
        undo: &mut Undo,
        pair: Pair,
        cpus: &Cpus,
        (port, version): (&'a Path, &'a str),
        pages: &'a Hugepages,
    ) -> Result<Ends<'a>, TaskError> {
        let folder = private_folder(undo)?;
        for end in [FIRST, SECOND] {
            let files = testpmd::runtime_folder(&file_prefix(end));
            undo.add(&format!("rm -rf '{files}'"))?;
        }
        Ok(Ends {
            pair,
            cpus: *cpus,
            pages,
            port,
            version,
            way: pair.peer.ways()[0],
            our_way: pair.ours.our_ways()[0],
            folder,
        })
    }

    /// Finds out which ways are the fastest.
    pub(super) fn choose(
        &mut self,
        row: &str,
        linerate: Option<&Linerate>,
        seconds: f64,
    ) -> Result<(), TaskError> {
        let Pair {
            job, ours, peer, ..
        } = self.pair;
        let seconds = seconds.min(TRIAL);
        let trial = |name: &str, sample: Sample| {
            progress(&format!("{row}: {name}: {:.2}", sample.value));
            match job {
                // The shorter the better.
                Job::RoundTrip => -sample.value,
                _ => sample.value,
            }
        };
        self.way = crossing::best(peer.ways().iter().copied(), |way| {
            self.way = way;
            Ok(trial(
                way.name,
                self.measure(peer, [Who::Dpdk; 2], seconds)?,
            ))
        })?;
        if let (Some(linerate), [_, _, ..]) = (linerate, ours.our_ways()) {
            self.our_way = crossing::best(ours.our_ways().iter().copied(), |way| {
                self.our_way = way;
                Ok(trial(&format!("ours{way}"), self.ours(linerate, seconds)?))
            })?;
        }
        Ok(())
    }

    /// Ours on both sides, or on either.
    pub(super) fn ours(&self, linerate: &Linerate, seconds: f64) -> Result<Sample, TaskError> {
        let ours = Who::Linerate(linerate);
        let joint = self.pair.ours;
        let mut sample = match self.pair.job {
            Job::Mixed => {
                let to_dpdk = self.measure(joint, [ours, Who::Dpdk], seconds)?;
                let from_dpdk = self.measure(joint, [Who::Dpdk, ours], seconds)?;
                let values = [to_dpdk.value, from_dpdk.value];
                let mut slower = match values[0] < values[1] {
                    true => to_dpdk,
                    false => from_dpdk,
                };
                for (key, value) in ["to_dpdk_mpps", "from_dpdk_mpps"].into_iter().zip(values) {
                    slower.detail.insert(key.into(), json!(value));
                }
                slower
            }
            _ => self.measure(joint, [ours; 2], seconds)?,
        };
        if joint.our_ways().len() > 1 {
            let more = self.our_way;
            sample.note = Some(format!(
                "ours: {}",
                joint.ours(FIRST, Path::new("PATH"), more)
            ));
        }
        Ok(sample)
    }

    /// DPDK on both sides.
    pub(super) fn peer(&self, seconds: f64) -> Result<Sample, TaskError> {
        let mut sample = self.measure(self.pair.peer, [Who::Dpdk; 2], seconds)?;
        sample.peer_name = format!("DPDK {} {}", self.version, self.way.name);
        Ok(sample)
    }

    /// Runs both ends. The figure is the first one's, but of one way what arrived at the second.
    fn measure(&self, joint: Joint, who: [Who; 2], seconds: f64) -> Result<Sample, TaskError> {
        let paths: Vec<PathBuf> = (0..joint.count(self.pair.job))
            .map(|number| self.folder.join(format!("{number}.sock")))
            .collect();
        // Left by whoever had them last.
        for path in &paths {
            let _ = fs::remove_file(path);
        }
        let [first, second] =
            [FIRST, SECOND].map(|end| self.command(joint, end, who[end], &paths, seconds));
        let [first, second] = run(
            first,
            second,
            &paths,
            Duration::from_secs_f64(4.0 * seconds),
        )?;
        Ok(match self.pair.job {
            Job::OneWay | Job::Mixed => {
                let mut sample = second;
                let refused = first.detail.get(REFUSED).cloned().unwrap_or_default();
                sample.detail.insert(REFUSED.into(), refused);
                sample
            }
            Job::Echo | Job::RoundTrip => first,
        })
    }

    fn command(
        &self,
        joint: Joint,
        end: usize,
        who: Who,
        paths: &[PathBuf],
        seconds: f64,
    ) -> Command {
        let other = self.cpus.other.unwrap_or(self.cpus.worker);
        let cpu = [other, self.cpus.worker][end];
        let role = self.pair.job.roles()[end];
        let (seconds, bytes) = (seconds.to_string(), self.pair.frame_bytes.to_string());
        match who {
            Who::Linerate(linerate) => {
                let mut command = Command::new(linerate.program());
                command.args(["bench", "port", role, "--json", "--hold"]);
                command.args(["--seconds", &seconds, "--bytes", &bytes]);
                command.args(["--cpus", &cpu.to_string()]);
                command.args(paths.iter().map(|path| joint.ours(end, path, self.our_way)));
                command
            }
            Who::Dpdk => {
                let mut command = Command::new(self.port);
                command.args([role, &seconds, &bytes, &self.way.burst.to_string()]);
                let prefix = file_prefix(end);
                command.args(peer::eal(&format!("0@{cpu}"), self.pages, &prefix, false));
                if let Hugepages::Mounted(_) = self.pages {
                    // The other end is given the files: virtio-user has few places for them.
                    command.arg("--single-file-segments");
                }
                let vdevs = paths.iter().enumerate();
                command.args(vdevs.map(|(number, path)| {
                    format!("--vdev={}", joint.dpdk(end, number, path, &self.way))
                }));
                command
            }
        }
    }
}

/// Of what the first end tried to send, in %.
const REFUSED: &str = "refused_percent";

/// Without huge pages DPDK keeps files, and the two ends must not meet in them.
fn file_prefix(end: usize) -> String {
    format!("{}-{end}", peer::file_prefix())
}

fn private_folder(undo: &mut Undo) -> Result<PrivateFolder, TaskError> {
    let folder = PrivateFolder::new("compare");
    let folder = folder.map_err(TaskError::file(std::env::temp_dir()))?;
    undo.add(&format!("rm -rf '{}'", folder.path().display()))?;
    Ok(folder)
}

/// Starts the second, waits until it listens at `paths`, starts the first, and waits for what both
/// have measured. Then both are ended: until they are they go on, so that neither leaves the other
/// alone.
fn run(
    first: Command,
    second: Command,
    paths: &[PathBuf],
    time: Duration,
) -> Result<[Sample; 2], TaskError> {
    let deadline = Instant::now() + time + GRACE;
    let mut second = Process::start(second)?;
    while !paths.iter().all(|path| path.exists()) {
        second.look_at(deadline)?;
    }
    let mut first = Process::start(first)?;
    loop {
        let samples = [first.sample()?, second.sample()?];
        if let [Some(first), Some(second)] = samples {
            return Ok([first, second]);
        }
        first.look_at(deadline)?;
        second.look_at(deadline)?;
    }
}

/// One end at work; ended with this value.
struct Process {
    name: String,
    child: Child,
    /// Where its lines come.
    lines: Receiver<String>,
    /// The one that has its figure.
    figure: Option<String>,
    log: PathBuf,
}

impl Process {
    fn start(mut command: Command) -> Result<Process, TaskError> {
        let name = process::spelled(&command);
        let folder = process::target_dir().join("compare");
        fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        // The last few are there to be read.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed) % 4;
        let log = folder.join(format!("pair{number}.log"));
        let errors = fs::File::create(&log).map_err(TaskError::file(&log))?;
        let child = command
            // Its end tells a process that we have died.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn();
        let mut child = child.map_err(|source| TaskError::Start {
            program: name.clone(),
            source,
        })?;
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process {
            name,
            child,
            lines,
            figure: None,
            log,
        })
    }

    /// What it has measured, once it has.
    fn sample(&mut self) -> Result<Option<Sample>, TaskError> {
        let is_figure = |line: &String| line.starts_with('{');
        self.figure = self
            .figure
            .take()
            .or_else(|| self.lines.try_iter().find(is_figure));
        let figure = self.figure.as_ref();
        figure
            .map(|line| sample::parse(&self.name, line))
            .transpose()
    }

    /// Waits a moment; an error once it is too late, or where the process has failed.
    fn look_at(&mut self, deadline: Instant) -> Result<(), TaskError> {
        let said = || {
            let text = fs::read(&self.log).unwrap_or_default();
            process::last_lines(&String::from_utf8_lossy(&text), 4)
        };
        let status = self.child.try_wait().map_err(TaskError::file(&self.name))?;
        match status {
            Some(status) if self.figure.is_none() && !status.success() => Err(TaskError::Failed {
                command: self.name.clone(),
                status,
                said: said(),
            }),
            _ if Instant::now() > deadline => Err(TaskError::Missing {
                what: format!("`{}` did not do its part in time{}", self.name, said()),
                fix: format!("read {}", self.log.display()),
            }),
            _ => {
                std::thread::sleep(Duration::from_millis(10));
                Ok(())
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an idle port costs, and what waking up for a frame does.
pub(super) struct Idle {
    /// Of one CPU, by all threads of the process.
    pub(super) cpu_percent: f64,
    /// Round trips of single frames through the sleeper, in ns.
    pub(super) woken: Sample,
}

/// Milliseconds between two frames: few enough to call it idle, and some to wake up for.
const IDLE_INTERVAL: &str = "200";

/// `linerate l2fwd` on one memif port to which a frame comes now and then.
pub(super) fn idle(linerate: &Linerate, cpus: &Cpus, seconds: f64) -> Result<Idle, TaskError> {
    let mut undo = Undo::new()?;
    let folder = private_folder(&mut undo)?;
    let path = folder.join("0.sock");
    let other = cpus.other.unwrap_or(cpus.worker);
    let mut sleeper = Command::new(linerate.program());
    sleeper.args(["l2fwd", "--period", "0", "--bg", "0", "--io", "1"]);
    sleeper.args(["--cpus", &format!("{other},{}", cpus.worker)]);
    sleeper.arg(Joint::Memif.ours(SECOND, &path, ""));
    let mut sleeper = Forwarder::start(sleeper)?;
    let mut ping = Command::new(linerate.program());
    ping.args([
        "bench",
        "port",
        "ping",
        "--json",
        "--interval",
        IDLE_INTERVAL,
    ]);
    // As long again as it is looked at, for it has to find the other end first.
    ping.args(["--seconds", &(2.0 * seconds).to_string()]);
    ping.args(["--cpus", &other.to_string()]);
    ping.arg(Joint::Memif.ours(FIRST, &path, ""));
    let mut ping = Process::start(ping)?;
    std::thread::sleep(Duration::from_secs_f64(seconds / 2.0));
    let (began, before) = (Instant::now(), sleeper.cpu_seconds()?);
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let used = sleeper.cpu_seconds()? - before;
    let cpu_percent = 100.0 * used / began.elapsed().as_secs_f64();
    let deadline = Instant::now() + Duration::from_secs_f64(seconds) + GRACE;
    let woken = loop {
        if let Some(woken) = ping.sample()? {
            break woken;
        }
        ping.look_at(deadline)?;
    };
    sleeper.stop();
    Ok(Idle { cpu_percent, woken })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: Way = VHOST[2];

    #[test]
    fn both_ends_are_spelled_for_both_sides() {
        let path = Path::new("/run/x/0.sock");
        let ours = |joint: Joint| [FIRST, SECOND].map(|end| joint.ours(end, path, ""));
        assert_eq!(
            ours(Joint::MemifZeroCopy),
            [
                "memif:/run/x/0.sock,role=client,trust=full",
                "memif:/run/x/0.sock,role=server"
            ]
        );
        assert_eq!(
            ours(Joint::Vhost),
            [
                "virtio_user:/run/x/0.sock,role=client",
                "vhost:/run/x/0.sock,role=server"
            ]
        );
        let dpdk = |joint: Joint| [FIRST, SECOND].map(|end| joint.dpdk(end, 1, path, &WAY));
        assert_eq!(
            dpdk(Joint::Vhost),
            [
                "net_virtio_user1,path=/run/x/0.sock,in_order=1,mrg_rxbuf=0",
                "net_vhost1,iface=/run/x/0.sock"
            ]
        );
        assert_eq!(
            dpdk(Joint::MemifZeroCopy)[FIRST],
            "net_memif1,role=client,socket=/run/x/0.sock,socket-abstract=no,zero-copy=yes"
        );
        assert_eq!(Joint::Vhost.count(Job::Echo), 2);
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_end_that_fails_is_quoted_and_the_other_is_ended() {
        let figure = r#"echo '{"value":1.5}'; exec sleep 600"#;
        let time = Duration::from_secs(9);
        let [first, second] = run(shell(figure), shell(figure), &[], time).unwrap();
        assert_eq!([first.value, second.value], [1.5; 2]);
        let fails = "echo no such port >&2; exit 3";
        for ends in [[fails, figure], [figure, fails]] {
            let [first, second] = ends.map(shell);
            let failed = run(first, second, &[], time).unwrap_err().to_string();
            assert!(failed.contains("no such port"), "{failed}");
        }
        // The first one is not even started.
        let never = PathBuf::from("/nonexistent/socket");
        let failed = run(shell("exit 4"), shell(fails), &[never], time);
        let failed = failed.unwrap_err().to_string();
        assert!(failed.contains("no such port"), "{failed}");
    }
}
