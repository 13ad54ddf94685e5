//! `tcp.bulk.tap.*`: one TCP connection between linerate and Linux over a TAP with offloads, and
//! between Linux and Linux over a veth pair, which has them, too.
//!
//! ```text
//! linerate steer (CPU 1) -------- t0  Linux (CPU 0)
//! Linux (CPU 1) h0 ------------- h1  Linux (CPU 0)
//! ```
//!
//! In `.tx` the left end sends, in `.rx` the right one, always on the CPU that linerate has in its
//! place. Where the kernel works on a frame is the sender's CPU, or by receive packet steering the
//! receiver's: both are tried on either side, and the faster one counts. A sink counts what it has
//! read, a source what was acknowledged; the same program does so for both.

use std::fs;

use serde_json::json;

use super::crossing;
use super::machine::Cpus;
use super::ours::Linerate;
use super::progress;
use super::sample::Sample;
use super::stream::{self, Program, Times};
use super::veth::{self, ip};
use crate::error::TaskError;
use crate::private_folder::PrivateFolder;
use crate::process;
use crate::undo::Undo;

/// Who sends, seen from linerate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    In,
}

const TAP: &str = "t0";
const HOSTS: [&str; 2] = ["h0", "h1"];
/// Of the left end and of the right one.
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const PORT: u16 = 5001;
/// How long a window has to open, in s.
const WARM: f64 = 0.3;
/// How long either way is tried at most, in s.
const TRIAL: f64 = 1.0;
/// Below this share of its CPU it is not linerate that limits.
const BUSY: f64 = 0.9;

/// Both places, gone when the `undo` that they were made with is.
pub(super) struct Bulk {
    way: Way,
    program: Program,
    /// Of the kernel's end of the TAP.
    beside: String,
    hosts: [String; 2],
    /// Of the left end and of the right one.
    cpus: [usize; 2],
    folder: PrivateFolder,
    /// Whether frames are steered to their receiver's CPU: for ours, for Linux.
    steered: [bool; 2],
}

impl Bulk {
    pub(super) fn create(undo: &mut Undo, cpus: &Cpus, way: Way) -> Result<Self, TaskError> {
        let folder = PrivateFolder::new("bulk");
        let folder = folder.map_err(TaskError::file(&std::env::temp_dir()))?;
        undo.add(&format!("rm -rf '{}'", folder.path().display()))?;
        let logs = process::target_dir().join("compare");
        fs::create_dir_all(&logs).map_err(TaskError::file(&logs))?;
        let id = std::process::id();
        let [beside, left, right] = ["t", "l", "r"].map(|part| format!("lrb{part}{id}"));
        for namespace in [&beside, &left, &right] {
            veth::quiet_namespace(undo, namespace)?;
            stream::settle(namespace)?;
        }
        ip(&["-n", &beside, "tuntap", "add", "mode", "tap", "name", TAP])?;
        ip(&[
            "link", "add", HOSTS[0], "netns", &left, "type", "veth", "peer", "name", HOSTS[1],
            "netns", &right,
        ])?;
        for (namespace, interface, address) in [
            (&beside, TAP, ADDRESSES[1]),
            (&left, HOSTS[0], ADDRESSES[0]),
            (&right, HOSTS[1], ADDRESSES[1]),
        ] {
            let address = format!("{address}/24");
            ip(&["-n", namespace, "addr", "add", &address, "dev", interface])?;
            ip(&["-n", namespace, "link", "set", "dev", interface, "up"])?;
        }
        Ok(Self {
            way,
            program: Program::build()?,
            beside,
            hosts: [left, right],
            cpus: [cpus.worker, cpus.other.unwrap_or(cpus.worker)],
            folder,
            steered: [false; 2],
        })
    }

    /// Finds out where either is the faster one.
    pub(super) fn choose(
        &mut self,
        row: &str,
        linerate: Option<&Linerate>,
        seconds: f64,
    ) -> Result<(), TaskError> {
        let seconds = seconds.min(TRIAL);
        if let Some(linerate) = linerate {
            self.steered[0] = crossing::best([false, true], |steered| {
                let gbps = self.by_linerate(linerate, steered, seconds)?.value;
                progress(&format!("{row}: ours, {}: {gbps:.2} Gb/s", words(steered)));
                Ok(gbps)
            })?;
        }
        self.steered[1] = crossing::best([false, true], |steered| {
            let gbps = self.by_linux(steered, seconds)?.value;
            progress(&format!("{row}: Linux, {}: {gbps:.2} Gb/s", words(steered)));
            Ok(gbps)
        })?;
        Ok(())
    }

    pub(super) fn ours(&self, linerate: &Linerate, seconds: f64) -> Result<Sample, TaskError> {
        self.by_linerate(linerate, self.steered[0], seconds)
    }

    pub(super) fn peer(&self, seconds: f64) -> Result<Sample, TaskError> {
        self.by_linux(self.steered[1], seconds)
    }

    fn by_linerate(
        &self,
        linerate: &Linerate,
        steered: bool,
        seconds: f64,
    ) -> Result<Sample, TaskError> {
        let [ours, kernels] = self.cpus;
        let times = times(seconds);
        steer_frames(&self.beside, TAP, steered.then_some(kernels))?;
        let right = (self.beside.as_str(), kernels);
        let socket = self.folder.join("ctl.sock");
        let socket = socket.display().to_string();
        let app = match self.way {
            Way::Out => format!(
                "kind = \"source\"\nconnect = \"{}:{PORT}\"\nseconds = 3600\n",
                ADDRESSES[1]
            ),
            Way::In => format!("kind = \"sink\"\nlisten = {PORT}\n"),
        };
        let text = format!(
            "[plan]\nio = \"0\"\ncpus = \"{ours}\"\n[steer]\nperiod = 0\ncontrol = \"{socket}\"\n\
             [[port]]\nname = \"lan\"\nspec = \"tap:{TAP}\"\n\
             [[interface]]\nport = \"lan\"\nmac = \"02:00:00:00:00:01\"\n\
             addresses = [\"{}/24\"]\n[[app]]\n{app}",
            ADDRESSES[0]
        );
        let file = self.folder.join("steer.toml");
        let start = || stream::steer(linerate, &self.beside, &file, &text);
        let (mut steer, end) = match self.way {
            Way::Out => {
                let sink = self.program.sink(right, PORT, 1, times)?;
                (start()?, sink)
            }
            Way::In => {
                let steer = start()?;
                let to = (ADDRESSES[0], PORT);
                (steer, self.program.source(right, to, times)?)
            }
        };
        let sample = end.sample();
        let busy = linerate.busy_share(&socket)?;
        steer.stop();
        let mut sample = self.finished(sample?, steered);
        sample.detail.insert("busy".into(), json!(busy));
        if busy < BUSY {
            let percent = busy * 100.0;
            sample.note = Some(format!(
                "Linux's end is the limit: linerate was busy {percent:.0} % of the time"
            ));
        }
        Ok(sample)
    }

    fn by_linux(&self, steered: bool, seconds: f64) -> Result<Sample, TaskError> {
        let ends = self.hosts.iter().zip(HOSTS).zip(self.cpus);
        for ((namespace, interface), cpu) in ends {
            steer_frames(namespace, interface, steered.then_some(cpu))?;
        }
        let times = times(seconds);
        let (from, to) = match self.way {
            Way::Out => (0, 1),
            Way::In => (1, 0),
        };
        let place = |side: usize| (self.hosts[side].as_str(), self.cpus[side]);
        // Who is not asked goes on a little longer, so that it does not end first.
        let longer = Times {
            seconds: times.seconds + 1.0,
            ..times
        };
        let of = |way| if self.way == way { times } else { longer };
        let sink = self.program.sink(place(to), PORT, 1, of(Way::Out))?;
        let target = (ADDRESSES[to], PORT);
        let source = self.program.source(place(from), target, of(Way::In))?;
        let end = match self.way {
            Way::Out => sink.sample()?,
            Way::In => source.sample()?,
        };
        let mut sample = self.finished(end, steered);
        sample.peer_name = format!("{} over veth", stream::linux()?);
        Ok(sample)
    }

    /// What is told of a run.
    fn finished(&self, mut sample: Sample, steered: bool) -> Sample {
        sample.detail.clear();
        let steered = u8::from(steered);
        sample.detail.insert("steered".into(), json!(steered));
        sample
    }
}

fn times(seconds: f64) -> Times {
    Times {
        warm: WARM,
        seconds,
    }
}

/// Has the kernel work on frames that an interface receives on a CPU, or where they come from.
fn steer_frames(namespace: &str, interface: &str, cpu: Option<usize>) -> Result<(), TaskError> {
    let mask = cpu.map_or("0".into(), crossing::cpu_mask);
    let text = format!("echo {mask} > /sys/class/net/{interface}/queues/rx-0/rps_cpus");
    process::read(veth::inside(namespace, "sh").args(["-c", &text])).map(drop)
}

fn words(steered: bool) -> &'static str {
    match steered {
        true => "frames steered to their receiver's CPU",
        false => "frames on their sender's CPU",
    }
}
