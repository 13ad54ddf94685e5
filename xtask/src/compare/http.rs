//! `http.*.veth`: linerate's web server and nginx, each on one CPU, asked over a veth pair from the
//! other CPU.
//!
//! ```text
//! load g0 ---- d0 server
//! ```
//!
//! Twice the same two namespaces: in one linerate serves by af_xdp, in the other nginx with one
//! worker by the kernel. The load is wrk, or in rows called `.own` linerate's client by af_xdp,
//! which takes less for a request. Where a frame is worked on behind a veth is the sender's CPU, or
//! by receive packet steering the receiver's: both are tried for either server, and the faster one
//! counts. A server that was not busy all the time was not measured, but its load: then the row is
//! only shown.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::crossing::{self, Forwarder};
use super::machine::Cpus;
use super::ours::Linerate;
use super::progress;
use super::sample::Sample;
use super::veth::{self, ip};
use crate::error::TaskError;
use crate::private_folder::PrivateFolder;
use crate::process;
use crate::undo::Undo;

/// The server's interface and the load's.
const SERVER: &str = "d0";
const LOAD: &str = "g0";
/// Connections at a time.
const CONNECTIONS: &str = "64";
/// How long either way is tried at most, in s.
const TRIAL: f64 = 1.0;
/// Below this share of its CPU it is not the server that limits.
const BUSY: f64 = 0.9;
/// The key of a sample that says so.
pub(super) const IS_LIMITED: &str = "load_is_the_limit";

/// What is asked, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asking {
    /// Whether connections have more than one request.
    pub(super) kept: bool,
    /// Whether the load is linerate's own client.
    pub(super) own: bool,
}

/// Both places, gone when the `undo` that they were made with is.
pub(super) struct Http {
    asking: Asking,
    ours: Place,
    nginx: Place,
    /// The CPUs of the server and of the load.
    cpus: [usize; 2],
    folder: PrivateFolder,
    /// Whether frames are steered to their receiver's CPU: for ours, for nginx.
    steered: [bool; 2],
    /// Runs of our own client, which has an address of its own in each: what lingers of the run
    /// before at the server would else be in the way of its ports.
    runs: Cell<u8>,
}

/// Two namespaces and the pair between them.
struct Place {
    server: String,
    load: String,
}

impl Place {
    /// `kernel` says which end is the kernel's own.
    fn create(undo: &mut Undo, name: &str, kernel: [bool; 2]) -> Result<Self, TaskError> {
        let id = std::process::id();
        let [server, load] = ["s", "c"].map(|part| format!("lrh{name}{part}{id}"));
        for namespace in [&server, &load] {
            veth::quiet_namespace(undo, namespace)?;
        }
        ip(&[
            "link", "add", SERVER, "netns", &server, "type", "veth", "peer", "name", LOAD, "netns",
            &load,
        ])?;
        let ends = [
            (&server, SERVER, "192.0.2.1/24"),
            (&load, LOAD, "192.0.2.2/24"),
        ];
        for ((namespace, interface, address), is_kernels) in ends.into_iter().zip(kernel) {
            ip(&["-n", namespace, "link", "set", "dev", interface, "up"])?;
            if is_kernels {
                ip(&["-n", namespace, "addr", "add", address, "dev", interface])?;
            }
            // What has no checksum yet, or is longer than a frame, is no packet for af_xdp; GRO
            // gives an interface a NAPI of its own, without which veth takes no XDP frames.
            if kernel != [true; 2] {
                let mut command = veth::inside(namespace, "ethtool");
                command.args(["-K", interface, "tx", "off", "tso", "off", "gso", "off"]);
                process::read(command.args(["gro", "on"]))?;
            }
        }
        for (key, value) in [
            // One for each connection of some seconds, and room for those that come at once.
            ("net.ipv4.ip_local_port_range", "1024 65535"),
            ("net.core.somaxconn", "4096"),
        ] {
            for namespace in [&server, &load] {
                let setting = format!("{key}={value}");
                process::read(veth::inside(namespace, "sysctl").args(["-qw", &setting]))?;
            }
        }
        Ok(Self { server, load })
    }

    /// Has frames worked on by their receiver's CPU, or by the sender's.
    fn steer(&self, steered: bool, cpus: [usize; 2]) -> Result<(), TaskError> {
        let ends = [(&self.server, SERVER), (&self.load, LOAD)];
        for ((namespace, interface), cpu) in ends.into_iter().zip(cpus) {
            let mask = if steered {
                crossing::cpu_mask(cpu)
            } else {
                "0".into()
            };
            let text = format!("echo {mask} > /sys/class/net/{interface}/queues/rx-0/rps_cpus");
            process::read(veth::inside(namespace, "sh").args(["-c", &text]))?;
        }
        Ok(())
    }
}

impl Http {
    pub(super) fn create(undo: &mut Undo, cpus: &Cpus, asking: Asking) -> Result<Self, TaskError> {
        for (program, package) in [
            ("nginx", "nginx"),
            ("wrk", "wrk"),
            ("taskset", "util-linux"),
        ] {
            if process::find_program(program).is_none() {
                return Err(TaskError::Missing {
                    what: format!("there is no {program}"),
                    fix: format!("apt-get install --no-install-recommends {package}"),
                });
            }
        }
        // What servers complain of goes there.
        let logs = process::target_dir().join("compare");
        fs::create_dir_all(&logs).map_err(TaskError::file(&logs))?;
        let folder = PrivateFolder::new("http");
        let folder = folder.map_err(TaskError::file(&std::env::temp_dir()))?;
        undo.add(&format!("rm -rf '{}'", folder.path().display()))?;
        Ok(Self {
            asking,
            ours: Place::create(undo, "o", [false, !asking.own])?,
            nginx: Place::create(undo, "n", [true, !asking.own])?,
            cpus: [cpus.worker, cpus.other.unwrap_or(cpus.worker)],
            folder,
            steered: [false; 2],
            runs: Cell::new(0),
        })
    }

    /// Finds out where either is the faster one.
    pub(super) fn choose(
        &mut self,
        row: &str,
        linerate: Option<&Linerate>,
        load: Option<&Linerate>,
        seconds: f64,
    ) -> Result<(), TaskError> {
        let seconds = seconds.min(TRIAL);
        if let Some(linerate) = linerate {
            self.steered[0] = crossing::best([false, true], |steered| {
                let value = self.by_linerate(linerate, steered, seconds)?.value;
                progress(&format!("{row}: ours, {}: {value:.1} K/s", words(steered)));
                Ok(value)
            })?;
        }
        self.steered[1] = crossing::best([false, true], |steered| {
            let value = self.by_nginx(load, steered, seconds)?.value;
            progress(&format!("{row}: nginx, {}: {value:.1} K/s", words(steered)));
            Ok(value)
        })?;
        Ok(())
    }

    pub(super) fn ours(&self, linerate: &Linerate, seconds: f64) -> Result<Sample, TaskError> {
        self.by_linerate(linerate, self.steered[0], seconds)
    }

    /// `load` is needed where that is our own client.
    pub(super) fn peer(&self, load: Option<&Linerate>, seconds: f64) -> Result<Sample, TaskError> {
        self.by_nginx(load, self.steered[1], seconds)
    }

    fn file(&self, name: &str, text: &str) -> Result<PathBuf, TaskError> {
        let file = self.folder.join(name);
        fs::write(&file, text).map_err(TaskError::file(&file))?;
        Ok(file)
    }

    fn by_linerate(
        &self,
        linerate: &Linerate,
        steered: bool,
        seconds: f64,
    ) -> Result<Sample, TaskError> {
        let [cpu, _] = self.cpus;
        let socket = self.folder.join("ctl.sock");
        let socket = socket.display();
        let text = format!(
            "[plan]\nio = \"0\"\ncpus = \"{cpu}\"\n[steer]\nperiod = 0\ncontrol = \"{socket}\"\n\
             [[port]]\nname = \"lan\"\nspec = \"af_xdp:{SERVER}\"\n\
             [[interface]]\nport = \"lan\"\naddresses = [\"192.0.2.1/24\"]\n\
             [[app]]\nkind = \"http\"\nlisten = 80\nbodies = [\"/64=64\"]\n"
        );
        let file = self.file("steer.toml", &text)?;
        let mut command = veth::inside(&self.ours.server, linerate.program());
        command.arg("steer").arg(file);
        let mut server = Forwarder::start(command)?;
        let (asked, busy) = self.asked(Some(linerate), &self.ours, steered, seconds, || {
            linerate.busy_share(&socket.to_string())
        })?;
        server.stop();
        let mut sample = self.sample(asked, busy, steered);
        if busy < BUSY {
            let load = if self.asking.own { "the client" } else { "wrk" };
            sample.detail.insert(IS_LIMITED.into(), json!(1));
            sample.note = Some(format!(
                "{load} is the limit: linerate was busy {:.0} % of the time",
                busy * 100.0
            ));
        }
        Ok(sample)
    }

    fn by_nginx(
        &self,
        load: Option<&Linerate>,
        steered: bool,
        seconds: f64,
    ) -> Result<Sample, TaskError> {
        let [cpu, _] = self.cpus;
        let folder = self.folder.path().display().to_string();
        let text = format!(
            "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr crit;\n\
             worker_rlimit_nofile 8192;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 60; \
             client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; \
             fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; \
             server {{ listen 192.0.2.1:80 backlog=4096 deferred; \
             location /64 {{ return 200 \"{}\"; }} }} }}\n",
            "x".repeat(64)
        );
        let file = self.file("nginx.conf", &text)?;
        let mut command = veth::inside(&self.nginx.server, "sh");
        // It says nothing by itself; the line is what its start is waited for by.
        let line = format!(
            "(while ! ss -Hltn 'sport = 80' | grep -q .; do sleep 0.01; done; echo ready) & \
             exec taskset -c {cpu} nginx -e stderr -c '{}'",
            file.display()
        );
        command.args(["-c", &line]);
        let mut server = Forwarder::start(command)?;
        let before = server.cpu_seconds()?;
        let began = std::time::Instant::now();
        let (asked, busy) = self.asked(load, &self.nginx, steered, seconds, || {
            let share = (server.cpu_seconds()? - before) / began.elapsed().as_secs_f64();
            Ok(share)
        })?;
        server.stop();
        let mut sample = self.sample(asked, busy, steered);
        sample.peer_name = process::read(Command::new("sh").args(["-c", "nginx -v 2>&1"]))?
            .trim()
            .replace("nginx version: ", "");
        Ok(sample)
    }

    /// Thousands of requests a second, and the share of its time that the server was busy.
    fn asked(
        &self,
        load: Option<&Linerate>,
        place: &Place,
        steered: bool,
        seconds: f64,
        busy: impl FnOnce() -> Result<f64, TaskError>,
    ) -> Result<(f64, f64), TaskError> {
        place.steer(steered, self.cpus)?;
        let cpu = self.cpus[1].to_string();
        let asked = match load.filter(|_| self.asking.own) {
            Some(linerate) => {
                let mut command = veth::inside(&place.load, linerate.program());
                command.args(["bench", "http", "--json", "--port"]);
                command.arg(format!("af_xdp:{LOAD}"));
                self.runs.set(self.runs.get() % 250 + 1);
                command.arg("--address");
                command.arg(format!("192.0.2.{}/24", 1 + self.runs.get()));
                command.args(["--io", "0", "--cpus", &cpu]);
                command.args(["--connections", CONNECTIONS, "--warmup", "0.3"]);
                command.args(["--seconds", &seconds.to_string()]);
                if !self.asking.kept {
                    command.arg("--close");
                }
                of_report(&process::read(command.arg("http://192.0.2.1/64"))?)?
            }
            None => {
                let mut command = veth::inside(&place.load, "taskset");
                command.args(["-c", &cpu, "wrk", "-t", "1", "-c", CONNECTIONS, "-d"]);
                command.arg(format!("{:.0}s", seconds.ceil().max(1.0)));
                if !self.asking.kept {
                    command.args(["-H", "Connection: close"]);
                }
                of_wrk(&process::read(command.arg("http://192.0.2.1/64"))?)?
            }
        };
        Ok((asked, busy()?))
    }

    fn sample(&self, value: f64, busy: f64, steered: bool) -> Sample {
        let mut sample = Sample {
            value,
            pages: String::new(),
            peer_name: String::new(),
            detail: Default::default(),
            note: None,
        };
        sample.detail.insert("busy".into(), json!(busy));
        sample
            .detail
            .insert("steered".into(), json!(u8::from(steered)));
        sample
    }
}

fn words(steered: bool) -> &'static str {
    match steered {
        true => "frames steered to their receiver's CPU",
        false => "frames on their sender's CPU",
    }
}

fn unexpected(who: &str, text: &str, expected: &'static str) -> TaskError {
    TaskError::Unexpected {
        who: who.into(),
        text: process::last_lines(text, 3),
        expected,
    }
}

/// Thousands of requests a second of what wrk says, all of them good.
fn of_wrk(text: &str) -> Result<f64, TaskError> {
    let expected = "Requests/sec: N, without errors";
    if text.contains("Socket errors") || text.contains("Non-2xx") {
        return Err(unexpected("wrk", text, expected));
    }
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    let rate = line.and_then(|rest| rest.trim().parse::<f64>().ok());
    rate.map(|rate| rate / 1e3)
        .ok_or_else(|| unexpected("wrk", text, expected))
}

/// The same of `linerate bench http --json`.
fn of_report(text: &str) -> Result<f64, TaskError> {
    let expected = "per_s, without failed requests";
    let report: Option<Value> = serde_json::from_str(text).ok();
    let is_good = |report: &Value| {
        let counts = ["failed", "timed_out", "wrong"].map(|name| report[name].as_u64());
        counts == [Some(0); 3] && report["answers"] == report["2xx"]
    };
    let rate = report
        .filter(is_good)
        .and_then(|report| report["per_s"].as_f64());
    rate.map(|rate| rate / 1e3)
        .ok_or_else(|| unexpected("linerate bench http", text, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_errors_are_none() {
        let wrk = "Running 1s test @ http://192.0.2.1/64\n  1 threads and 64 connections\n  \
            104000 requests in 1.00s, 20.00MB read\nRequests/sec: 103500.50\nTransfer/sec:  20MB\n";
        assert!(matches!(of_wrk(wrk), Ok(rate) if rate == 103.5005));
        let bad = format!("{wrk}  Socket errors: connect 0, read 3, write 0, timeout 0\n");
        assert!(of_wrk(&bad).is_err() && of_wrk("").is_err());
        let report = |failed: u32| {
            json!({"failed": failed, "timed_out": 0, "wrong": 0, "answers": 7, "2xx": 7,
                "per_s": 7000.0})
            .to_string()
        };
        assert!(matches!(of_report(&report(0)), Ok(rate) if rate == 7.0));
        assert!(of_report(&report(1)).is_err() && of_report("").is_err());
    }
}
