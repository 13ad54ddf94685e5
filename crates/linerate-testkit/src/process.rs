//! A program that runs beside a test and does not outlive it.

use crate::wait;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Lines that a program has printed so far.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Each of them.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// All in one.
    pub fn text(&self) -> String {
        self.all().join("\n")
    }

    /// Collects from a pipe until its end.
    fn collect(&self, pipe: impl Read + Send + 'static) -> JoinHandle<()> {
        let lines = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                lines.0.lock().unwrap().push(line);
            }
        })
    }
}

/// A running program. Dropping it kills it.
pub struct Running {
    what: String,
    child: Child,
    stdin: Option<ChildStdin>,
    readers: Vec<JoinHandle<()>>,
    /// What it prints.
    pub stdout: Lines,
    /// What it complains of.
    pub stderr: Lines,
}

impl Running {
    /// Starts it. The program must not fork: only this one process is ended.
    pub fn start(command: &mut Command) -> Self {
        Self::spawn(command, Stdio::null())
    }

    /// Starts one that is [told](Self::tell) what to do.
    pub fn start_to_tell(command: &mut Command) -> Self {
        Self::spawn(command, Stdio::piped())
    }

    fn spawn(command: &mut Command, stdin: Stdio) -> Self {
        let what = format!("{command:?}");
        let command = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let (stdout, stderr) = (Lines::default(), Lines::default());
        let readers = vec![
            stdout.collect(child.stdout.take().unwrap()),
            stderr.collect(child.stderr.take().unwrap()),
        ];
        Self {
            what,
            stdin: child.stdin.take(),
            child,
            readers,
            stdout,
            stderr,
        }
    }

    /// Writes a line to its standard input, which it keeps until it ends.
    #[track_caller]
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it was started to be told");
        writeln!(stdin, "{line}").unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).unwrap()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until something holds; fails at once if the program ends before.
    #[track_caller]
    pub fn wait(&mut self, what: &str, mut holds: impl FnMut(&Lines, &Lines) -> bool) {
        let (stdout, stderr) = (self.stdout.clone(), self.stderr.clone());
        wait(what, || {
            let ended = !self.is_alive();
            let held = holds(&stdout, &stderr);
            assert!(
                held || !ended,
                "{} ended: {}\n{}",
                self.what,
                stdout.text(),
                stderr.text()
            );
            held
        });
    }

    /// Waits for its end, and for all that it printed.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let what = format!("the end of {}", self.what);
        let mut status = None;
        wait(&what, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        status.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks a program to end as Ctrl-C does.
pub fn interrupt(running: &Running) {
    running.signal(Signal::INT);
}

/// Keeps this thread on the CPU where it runs, until the guard is dropped.
pub fn pin_here() -> Pinned {
    let before = sched_getaffinity(None).unwrap();
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
    Pinned(before)
}

/// See [`pin_here`].
pub struct Pinned(CpuSet);

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}
