//! The kernel's ends of rows of TCP: the program xtask/peer/stream.c, which sends or takes bytes on
//! one CPU in a namespace; and linerate's, which is `linerate steer`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::crossing::Forwarder;
use super::ours::Linerate;
use super::sample::{self, Sample};
use super::{peer, veth};
use crate::error::TaskError;
use crate::process;

/// How long both ends of a connection let pass before they count, and how long they count, in s.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) warm: f64,
    pub(super) seconds: f64,
}

/// The program, built.
pub(super) struct Program(PathBuf);

/// One end, as it runs; killed where it is no longer wanted.
pub(super) struct End {
    child: Child,
    output: BufReader<ChildStdout>,
    name: String,
}

impl Program {
    pub(super) fn build() -> Result<Self, TaskError> {
        peer::build_plain("stream").map(Self)
    }

    /// Takes what so many connections to a port bring, all at once. It listens already.
    pub(super) fn sink(
        &self,
        (namespace, cpu): (&str, usize),
        port: u16,
        connections: usize,
        times: Times,
    ) -> Result<End, TaskError> {
        let words = ["sink".into(), port.to_string(), connections.to_string()];
        let mut end = self.start(namespace, cpu, &words, times)?;
        let mut ready = String::new();
        let read = end.output.read_line(&mut ready);
        match read.is_ok_and(|bytes| bytes > 0) {
            true => Ok(end),
            false => Err(TaskError::Missing {
                what: format!("`{}` did not listen (its reason stands above)", end.name),
                fix: "end who listens there".into(),
            }),
        }
    }

    /// Sends on one connection, which it tries to open for some seconds.
    pub(super) fn source(
        &self,
        (namespace, cpu): (&str, usize),
        (address, port): (&str, u16),
        times: Times,
    ) -> Result<End, TaskError> {
        let words = ["source".into(), address.to_owned(), port.to_string()];
        self.start(namespace, cpu, &words, times)
    }

    fn start(
        &self,
        namespace: &str,
        cpu: usize,
        words: &[String],
        times: Times,
    ) -> Result<End, TaskError> {
        let mut command = veth::inside(namespace, "taskset");
        command.args(["-c", &cpu.to_string()]).arg(&self.0);
        command.args(words);
        command.args([times.warm.to_string(), times.seconds.to_string()]);
        let name = process::spelled(&command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| TaskError::Start {
                program: name.clone(),
                source,
            })?;
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(End {
            child,
            output,
            name,
        })
    }
}

impl End {
    /// What it carried, in Gb/s, when it has ended.
    pub(super) fn sample(mut self) -> Result<Sample, TaskError> {
        let mut text = String::new();
        let read = self.output.read_to_string(&mut text);
        read.map_err(TaskError::file("its output"))?;
        sample::parse(&self.name, &text)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `linerate steer` with a file that says this.
pub(super) fn steer(
    linerate: &Linerate,
    namespace: &str,
    file: &Path,
    text: &str,
) -> Result<Forwarder, TaskError> {
    fs::write(file, text).map_err(TaskError::file(file))?;
    let mut command = veth::inside(namespace, linerate.program());
    command.arg("steer").arg(file);
    Forwarder::start_as("steer", command)
}

/// The kernel's name, as a peer.
pub(super) fn linux() -> Result<String, TaskError> {
    let kernel = process::read(Command::new("uname").arg("-r"))?;
    Ok(format!("Linux {}", kernel.trim()))
}

/// As much room as linerate's connections have (tcp(7): `tcp_rmem`, `tcp_wmem`; the defaults of
/// Linux on a machine with memory enough), and nothing learned from connections before.
pub(super) fn settle(namespace: &str) -> Result<(), TaskError> {
    for setting in [
        "net.ipv4.tcp_rmem=4096 131072 6291456",
        "net.ipv4.tcp_wmem=4096 16384 4194304",
        "net.ipv4.tcp_no_metrics_save=1",
    ] {
        process::read(veth::inside(namespace, "sysctl").args(["-qw", setting]))?;
    }
    Ok(())
}
