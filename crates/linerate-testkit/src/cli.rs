//! The `linerate` binary: built once, run in a namespace, watched through its JSON lines.

use crate::Scratch;
use crate::netns::Namespace;
use crate::process::Running;
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The binary that cargo builds with the same profile as this test; building it is part of the
/// test. Where it is built already, or nothing can be, as in a guest, `LINERATE_BINARY` names it.
pub fn binary() -> &'static str {
    static BINARY: OnceLock<String> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Ok(built) = std::env::var("LINERATE_BINARY") {
            return built;
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args([
            "build",
            "--package",
            "linerate",
            "--message-format",
            "json-render-diagnostics",
        ]);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        let output = command
            .args(["--manifest-path", manifest])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "linerate does not build: {stderr}");
        let messages = String::from_utf8(output.stdout).unwrap();
        let executables = messages.lines().filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let is_ours =
                message["target"]["name"] == "linerate" && message["target"]["kind"][0] == "bin";
            message["executable"]
                .as_str()
                .filter(|_| is_ours)
                .map(str::to_owned)
        });
        let mut executables: Vec<String> = executables.collect();
        executables.pop().expect("cargo names the executable")
    })
}

/// A copy that any user may run, wherever the sources are.
pub fn public_binary(scratch: &Scratch) -> PathBuf {
    let path = scratch.path().join("linerate");
    std::fs::copy(binary(), &path).unwrap();
    path
}

/// `linerate l2fwd` at work.
pub struct L2fwd(Running);

impl L2fwd {
    /// Starts it with these words in a namespace, and waits until it forwards.
    #[track_caller]
    pub fn start(namespace: &Namespace, words: &str) -> Self {
        let mut l2fwd = Self::begin(namespace, words);
        l2fwd.0.wait("the first line of linerate", |stdout, _| {
            !stdout.all().is_empty()
        });
        l2fwd
    }

    /// Starts it in this process' own namespace, with ports that need no interfaces, and waits for
    /// nothing.
    pub fn alone(words: &str) -> Self {
        let mut command = Command::new(binary());
        command.args(["l2fwd", "--json"]);
        Self(Running::start(command.args(words.split_whitespace())))
    }

    /// Starts it and waits for nothing.
    pub fn begin(namespace: &Namespace, words: &str) -> Self {
        Self(namespace.start(binary(), &format!("l2fwd --json --period 0.2 {words}")))
    }

    /// The newest line.
    #[track_caller]
    pub fn report(&self) -> Report {
        Report::parse(self.0.stdout.all().last().expect("a line of JSON"))
    }

    /// Waits for a line of which something holds.
    #[track_caller]
    pub fn wait(&mut self, what: &str, mut holds: impl FnMut(&Report) -> bool) -> Report {
        let mut found = None;
        self.0.wait(what, |stdout, _| {
            found = stdout
                .all()
                .last()
                .map(|line| Report::parse(line))
                .filter(|report| holds(report));
            found.is_some()
        });
        found.unwrap()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.0.is_alive()
    }

    /// Ends it with a signal, as a user would, and returns the totals.
    #[track_caller]
    pub fn stop(mut self, signal: Signal) -> Report {
        self.0.signal(signal);
        self.totals()
    }

    /// Waits for its own end, and returns the totals.
    #[track_caller]
    pub fn totals(&mut self) -> Report {
        let status = self.0.end();
        let stderr = self.0.stderr.text();
        assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
        let totals = self.report();
        assert_eq!(totals.0["totals"], true, "{totals}");
        totals
    }

    /// kill -9: no chance to tidy up.
    pub fn kill(self) {
        drop(self);
    }

    /// Its standard error.
    pub fn stderr(&self) -> String {
        self.0.stderr.text()
    }
}

/// One line of `l2fwd --json`.
pub struct Report(pub Value);

impl Report {
    fn parse(line: &str) -> Self {
        Self(serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
    }

    /// A counter of a port.
    #[track_caller]
    pub fn count(&self, port: usize, counter: &str) -> u64 {
        let value = &self.0["ports"][port][counter];
        value
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {counter} of port {port} in {self}"))
    }

    /// `up`, or why not.
    pub fn link(&self, port: usize) -> &str {
        self.0["ports"][port]["link"].as_str().unwrap()
    }

    /// Everything that was dropped anywhere, by reason.
    pub fn drops(&self) -> Vec<(String, u64)> {
        let ports = self.0["ports"].as_array().unwrap().iter();
        let lcores = self.0["lcores"].as_array().unwrap().iter();
        let tables = ports
            .flat_map(|port| [&port["rx_drops"], &port["tx_drops"]])
            .chain(lcores.map(|lcore| &lcore["drops"]));
        let counts = tables.flat_map(|table| table.as_object().unwrap().clone());
        counts
            .map(|(reason, count)| (reason, count.as_u64().unwrap()))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
