//! `linerate pktgen` from outside: what it sends and counts, what it refuses, what it exits with,
//! and how its JSON interface bears with clients. All on ports in one process; nothing depends on
//! speed.

mod runs;
mod sessions;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const LOOP: &str = "ring:a,loop=on";

fn pktgen(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.arg("pktgen").args(args).stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    pktgen(args).output().expect("the binary runs")
}

/// The JSON of a run that exits with `code`.
fn report(args: &[&str], code: i32) -> Value {
    let output = output(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A run that must fail with exit code 1 before it prints anything; what follows `error: ` and
/// `fix: `.
fn refused(args: &[&str]) -> (String, String) {
    let output = output(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?} printed something");
    let at = stderr
        .find("error: ")
        .unwrap_or_else(|| panic!("{args:?}: {stderr}"));
    let (error, fix) = stderr[at + 7..]
        .split_once("\nfix: ")
        .unwrap_or_else(|| panic!("{args:?}: no fix: {stderr}"));
    (error.into(), fix.into())
}

/// A session that listens and sends nothing by itself. It is killed where a test fails.
struct Running(Child);

impl Running {
    fn start(socket: &str, extra: &[&str]) -> Self {
        let args = [
            &["-p", LOOP, "--json", "--no-start", "--listen", socket],
            extra,
        ]
        .concat();
        let mut command = pktgen(&args);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Waits for its end; the exit code and what it printed.
    fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        (self.0.wait().unwrap().code(), text)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(id, signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client as anyone would write one: lines of JSON.
struct Client<S: Read + Write>(BufReader<S>);

fn connect(socket: &str) -> Client<UnixStream> {
    let late = Instant::now() + Duration::from_secs(30);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => {
                stream
                    .set_read_timeout(Some(Duration::from_secs(30)))
                    .unwrap();
                return Client(BufReader::new(stream));
            }
            Err(error) => assert!(Instant::now() < late, "{socket}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl<S: Read + Write> Client<S> {
    fn send(&mut self, line: &str) {
        self.0
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    /// The next line; null where the session has hung up.
    fn read(&mut self) -> Value {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) | Err(_) => Value::Null,
            Ok(_) => serde_json::from_str(&line).unwrap(),
        }
    }

    fn ask(&mut self, request: Value) -> Value {
        self.send(&request.to_string());
        self.read()
    }

    fn command(&mut self, line: &str) -> Value {
        let answer = self.ask(json!({ "id": 1, "command": line }));
        assert_eq!(answer["id"], 1);
        answer
    }

    /// A command that must succeed.
    fn does(&mut self, line: &str) -> Value {
        let answer = self.command(line);
        assert_eq!(answer["ok"], true, "{line}: {answer}");
        answer["result"].clone()
    }

    fn method(&mut self, name: &str, params: Value) -> Value {
        let answer = self.ask(json!({ "id": "m", "method": name, "params": params }));
        assert_eq!(answer["ok"], true, "{name}: {answer}");
        answer["result"].clone()
    }
}
