//! Our side: `linerate bench micro ROW --seconds S --cpus A[,B] --json`, and for ports that others
//! open, too, `linerate bench port ROLE SPEC --seconds S --cpus A --json`.
//!
//! One line of JSON comes back (see [`super::sample`]). The first CPU is the worker. veth rows run
//! in a namespace.
//!
//! What both sides agree on: rings have 1024 slots (DPDK's hold pointers); one-core ring rows put n
//! in and take n out in turns; pools have 16384 slots (DPDK 16383, its cache 512), of which the
//! `beyond` row has 2048 out at once; `fwd` rows have two ports on one worker and count what both
//! send; in `fwd.ring` 256 frames circle in each loop, in `fwd.pcap` each port repeats 1024 UDP
//! frames of 60 or 1514 bytes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::machine::Cpus;
use super::rows::{Driver, Peer, Row};
use super::sample::{self, Sample};
use super::testpmd;
use super::veth::{self, Veth};
use crate::error::TaskError;
use crate::process;

/// A measuring process that has not ended this long after it should have is ended.
const GRACE_SECONDS: f64 = 60.0;

/// The release build of the `linerate` binary.
pub(super) struct Linerate {
    program: PathBuf,
    quick: bool,
}

impl Linerate {
    /// `quick`: its rows take small tables.
    pub(super) fn build(quick: bool) -> Result<Linerate, TaskError> {
        let mut cargo = process::cargo(&["build", "--release", "--package", "linerate"]);
        process::run(cargo.stdout(Stdio::null()))?;
        Ok(Linerate {
            program: process::target_dir().join("release/linerate"),
            quick,
        })
    }

    pub(super) fn program(&self) -> &std::path::Path {
        &self.program
    }

    pub(super) fn is_quick(&self) -> bool {
        self.quick
    }

    /// The share of its time that the first lcore of a running forwarder was busy.
    pub(super) fn busy_share(&self, socket: &str) -> Result<f64, TaskError> {
        let mut ctl = Command::new(&self.program);
        ctl.args(["ctl", "--socket", socket, "show", "lcores", "--json"]);
        let lcores: Option<Value> = serde_json::from_str(&process::read(&mut ctl)?).ok();
        let busy = lcores.as_ref().and_then(|lcores| {
            let rows = lcores["rows"].as_array()?;
            rows.iter().find_map(|row| row["busy_share"].as_f64())
        });
        Ok(busy.unwrap_or(1.0))
    }

    /// `seconds`, or less in a quick run.
    pub(super) fn shortened(&self, seconds: f64) -> f64 {
        if self.quick {
            seconds.min(super::QUICK_SECONDS)
        } else {
            seconds
        }
    }

    /// The arguments after the name of a program that starts others (`timeout`,
    /// `ip netns exec NS timeout`), for `what` there is to measure.
    fn arguments(&self, what: &[&str], seconds: f64, cpus: &str) -> Vec<OsString> {
        let limit = (seconds * 4.0 + GRACE_SECONDS).to_string();
        let mut arguments: Vec<OsString> = vec!["--foreground".into(), "-k5".into(), limit.into()];
        arguments.push(self.program.clone().into());
        arguments.push("bench".into());
        arguments.extend(what.iter().map(OsString::from));
        let seconds = seconds.to_string();
        let how = ["--seconds", &seconds, "--cpus", cpus, "--json"];
        arguments.extend(how.map(OsString::from));
        arguments
    }

    /// Any row or probe that needs nothing from outside.
    pub(super) fn micro(&self, row: &str, seconds: f64, cpus: &str) -> Result<Sample, TaskError> {
        let what: &[&str] = match self.quick {
            true => &["micro", row, "--quick"],
            false => &["micro", row],
        };
        sample::sample(Command::new("timeout").args(self.arguments(what, seconds, cpus)))
    }

    /// Writes what the row works on; returns the file.
    pub(super) fn input(&self, row: &str) -> Result<PathBuf, TaskError> {
        let folder = process::target_dir().join("compare");
        std::fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
        let file = folder.join(format!("{row}.input"));
        let mut command = Command::new(&self.program);
        process::read(command.args(["bench", "input", row]).arg(&file))?;
        Ok(file)
    }

    /// The round trip between the two CPUs in ns.
    pub(super) fn core_to_core(&self, cpus: &Cpus) -> Result<f64, TaskError> {
        Ok(self.micro("probe.core2core", 0.1, &cpus.list(true))?.value)
    }

    /// One row of the table.
    pub(super) fn run(
        &self,
        row: &Row,
        seconds: f64,
        cpus: &Cpus,
        veth: Option<&Veth>,
    ) -> Result<Sample, TaskError> {
        match (row.peer, veth) {
            (Peer::Veth { driver, tx }, Some(veth)) => {
                self.on_veth(driver, tx, seconds, cpus, veth)
            }
            // Those on one core take the first CPU of the list.
            (peer, _) => {
                let is_on_two = matches!(peer, Peer::TwoCores | Peer::Own { .. });
                self.micro(row.name, seconds, &cpus.list(is_on_two))
            }
        }
    }

    fn on_veth(
        &self,
        driver: Driver,
        tx: bool,
        seconds: f64,
        cpus: &Cpus,
        veth: &Veth,
    ) -> Result<Sample, TaskError> {
        let kind = match driver {
            Driver::AfPacket => "af_packet",
            Driver::AfXdp => "af_xdp",
        };
        // The sink's rate is read while it runs, so it runs a little longer.
        let longer = if tx { seconds + 2.0 } else { seconds };
        let role = if tx { "source" } else { "sink" };
        let what = ["port", role, &format!("{kind}:{}", veth::PORT)];
        let mut command = veth.inside("timeout");
        command.args(self.arguments(&what, longer, &cpus.list(false)));
        let _far_end = veth.far_end()?;
        if !tx {
            return sample::sample(&mut command);
        }
        let name = process::spelled(&command);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| TaskError::Start {
                program: name.clone(),
                source,
            })?;
        let sunk = testpmd::rate(|| veth.sunk(), seconds);
        let output = child
            .wait_with_output()
            .map_err(TaskError::file("its output"))?;
        let mut sample = sample::parse(&name, &String::from_utf8_lossy(&output.stdout))?;
        sample
            .detail
            .insert("own_count".into(), sample.value.into());
        sample.value = sunk?;
        Ok(sample)
    }
}
