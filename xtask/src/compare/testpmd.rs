//! A DPDK application while it forwards: started, asked over its telemetry socket, ended.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;

use crate::error::TaskError;
use crate::process;

const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_millis(500);

/// A running application with `ports` ports.
pub(super) struct App {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    log: PathBuf,
    telemetry: Option<OwnedFd>,
    ports: usize,
}

/// Which of a port's counters say how much got through.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    Received,
    Sent,
}

impl App {
    /// Starts `command`, types `typed` to it and waits for its telemetry under `file_prefix`.
    pub(super) fn start(
        mut command: Command,
        file_prefix: &str,
        ports: usize,
        typed: &str,
    ) -> Result<App, TaskError> {
        let name = process::spelled(&command);
        let folder = process::target_dir().join("compare");
        let log = folder.join("testpmd.log");
        let file = File::create(&log).map_err(TaskError::file(&log))?;
        let also = file.try_clone().map_err(TaskError::file(&log))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(file)
            .stderr(also)
            .spawn()
            .map_err(|source| TaskError::Start {
                program: name.clone(),
                source,
            })?;
        let mut stdin = child.stdin.take();
        if let Some(pipe) = &mut stdin {
            pipe.write_all(typed.as_bytes())
                .map_err(TaskError::file("its stdin"))?;
        }
        let mut app = App {
            name,
            child,
            stdin,
            log,
            telemetry: None,
            ports,
        };
        app.telemetry = Some(app.connect(&format!(
            "{}/dpdk_telemetry.v2",
            runtime_folder(file_prefix)
        ))?);
        Ok(app)
    }

    fn connect(&mut self, path: &str) -> Result<OwnedFd, TaskError> {
        let deadline = Instant::now() + START;
        loop {
            if let Some(status) = self.child.try_wait().map_err(TaskError::file(&self.log))? {
                return Err(TaskError::Failed {
                    command: self.name.clone(),
                    status,
                    said: self.said(),
                });
            }
            match try_connect(path) {
                Ok(socket) => return Ok(socket),
                Err(error) if Instant::now() > deadline => {
                    return Err(TaskError::Missing {
                        what: format!(
                            "`{}` opened no telemetry socket {path} ({error}){}",
                            self.name,
                            self.said()
                        ),
                        fix: format!("read {}", self.log.display()),
                    });
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn said(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        process::last_lines(&String::from_utf8_lossy(&text), 8)
    }

    /// The sum of `counter` over all ports.
    pub(super) fn count(&self, counter: Counter) -> Result<u64, TaskError> {
        let field = match counter {
            Counter::Received => "ipackets",
            Counter::Sent => "opackets",
        };
        let mut sum = 0;
        for port in 0..self.ports {
            let request = format!("/ethdev/stats,{port}");
            let answer = self
                .ask(&request)
                .map_err(TaskError::file("DPDK's telemetry socket"))?;
            let parsed: Option<Value> = serde_json::from_str(&answer).ok();
            let stats = parsed
                .as_ref()
                .and_then(|parsed| parsed.get("/ethdev/stats"));
            sum += match stats {
                // The port's queues are not set up yet.
                Some(Value::Null) => 0,
                stats => stats
                    .and_then(|stats| stats[field].as_u64())
                    .ok_or_else(|| TaskError::Unexpected {
                        who: format!("DPDK's telemetry, asked {request},"),
                        text: answer,
                        expected: "the port's counters",
                    })?,
            };
        }
        Ok(sum)
    }

    fn ask(&self, request: &str) -> std::io::Result<String> {
        let socket = self.telemetry.as_ref().expect("connected at start");
        rustix::net::send(socket, request.as_bytes(), SendFlags::NOSIGNAL)?;
        receive(socket)
    }

    /// Ends it as its user would, then waits; kills it if it does not listen.
    pub(super) fn stop(mut self) -> Result<(), TaskError> {
        if let Some(mut pipe) = self.stdin.take() {
            // "Press enter to exit", or the prompt: each takes the one and ignores the other.
            let _ = pipe.write_all(b"\nstop\nquit\n");
        }
        let interrupt = |child: &Child| {
            rustix::process::kill_process(
                rustix::process::Pid::from_child(child),
                rustix::process::Signal::INT,
            )
        };
        let deadline = Instant::now() + STOP;
        let mut interrupted = false;
        while Instant::now() < deadline {
            if self
                .child
                .try_wait()
                .map_err(TaskError::file(&self.log))?
                .is_some()
            {
                return Ok(());
            }
            if !interrupted && Instant::now() + STOP * 3 / 4 > deadline {
                interrupted = interrupt(&self.child).is_ok();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(()) // drop kills it
    }
}

impl Drop for App {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits until `count` moves, lets things settle, and returns its rate in millions a second over
/// `seconds`.
pub(super) fn rate(
    mut count: impl FnMut() -> Result<u64, TaskError>,
    seconds: f64,
) -> Result<f64, TaskError> {
    moving(&mut count)?;
    let (began, before) = (Instant::now(), count()?);
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (ended, after) = (Instant::now(), count()?);
    Ok((after - before) as f64 / (ended - began).as_secs_f64() / 1e6)
}

/// Waits until `count` moves, and lets things settle.
pub(super) fn moving(mut count: impl FnMut() -> Result<u64, TaskError>) -> Result<(), TaskError> {
    let first = count()?;
    let deadline = Instant::now() + START;
    while count()? == first {
        if Instant::now() > deadline {
            return Err(TaskError::Missing {
                what: format!("no packet moved within {} s", START.as_secs()),
                fix: "look at target/compare/*.log".into(),
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(SETTLE);
    Ok(())
}

/// Where DPDK keeps its run-time files: root's, or the user's.
pub(super) fn runtime_folder(file_prefix: &str) -> String {
    let folder = if process::is_root() {
        "/var/run".to_owned()
    } else {
        std::env::var("XDG_RUNTIME_DIR").unwrap_or_else(|_| "/tmp".into())
    };
    format!("{folder}/dpdk/{file_prefix}")
}

fn try_connect(path: &str) -> std::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    receive(&socket)?; // it greets with its version
    Ok(socket)
}

fn receive(socket: &OwnedFd) -> std::io::Result<String> {
    let mut buffer = vec![0u8; 16384]; // the longest message it announces
    let (length, _) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty())?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}
