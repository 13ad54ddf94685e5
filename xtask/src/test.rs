//! `cargo xtask test`: everything that tests need, then every test, then one line of counts.
//!
//! Long scenarios are `#[ignore = "long: ..."]` tests and run with `--all` only. Tests that need
//! root, a kernel feature or a package decide that themselves and say so (see [`crate::libtest`]).

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::Args;

use crate::error::TaskError;
use crate::libtest::{Event, Reader, Tally};
use crate::undo::Undo;
use crate::{packages, process};

/// Building and testing must be over by then.
const LIMIT: Duration = Duration::from_secs(45 * 60);
/// How long they should take, building included, on two cores.
const PROMISE: Duration = Duration::from_secs(8 * 60);
/// The same with the long scenarios, many of which are hostile for ten minutes each.
const LIMIT_ALL: Duration = Duration::from_secs(4 * 60 * 60);

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Install missing Debian packages without asking (the default where CI=true)
    #[arg(long)]
    pub(crate) yes: bool,
    /// Run the long scenarios too
    #[arg(long)]
    pub(crate) all: bool,
    /// Install nothing and ask nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) no_install: bool,
}

/// Runs the tests and prints the closing line.
pub(crate) fn run(options: &Options) -> Result<ExitCode, TaskError> {
    let tally = tally(options)?;
    println!("{tally}");
    Ok(if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What builds all tests and runs none.
pub(crate) fn build() -> Command {
    process::cargo(&["test", "--workspace", "--no-run"])
}

/// Runs the tests and prints everything but the closing line.
pub(crate) fn tally(options: &Options) -> Result<Tally, TaskError> {
    let mut notes = provide_packages(options);
    if !process::is_root() {
        notes.push("not root: scenarios in network namespaces skip themselves".into());
    }
    let limit = if options.all { LIMIT_ALL } else { LIMIT };
    let began = Instant::now();
    let deadline = began + limit;
    println!("building the tests");
    let tally = match process::run(&mut build()) {
        Ok(()) => run_suites(options.all, deadline, limit)?,
        Err(error) => {
            println!("{error}");
            Tally {
                failed: 1,
                ..Tally::default()
            }
        }
    };
    for (reason, count) in &tally.reasons {
        println!("skipped {count}: {reason}");
    }
    if !options.all && began.elapsed() > PROMISE {
        notes.push(format!(
            "{} s: more than the {} minutes that this is to take",
            began.elapsed().as_secs(),
            PROMISE.as_secs() / 60
        ));
    }
    for note in notes {
        println!("note: {note}");
    }
    Ok(tally)
}

/// Installs what is missing, if we may; what is missing afterwards is named, with what goes
/// untested.
fn provide_packages(options: &Options) -> Vec<String> {
    let missing = packages::missing(options.all);
    if missing.is_empty() {
        return Vec::new();
    }
    let ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    let decided = if options.no_install {
        Some(false)
    } else {
        (options.yes || ci).then_some(true)
    };
    if packages::consent(&missing, decided)
        && let Err(error) = packages::install(&missing)
    {
        println!("{error}");
    }
    let missing = packages::missing(options.all);
    let mut notes: Vec<String> = missing
        .iter()
        .map(|package| format!("without {}: no {}", package.name, package.used_for))
        .collect();
    if !missing.is_empty() {
        notes.push(format!(
            "to get them: {}",
            packages::install_command(&missing)
        ));
    }
    notes
}

fn run_suites(all: bool, deadline: Instant, limit: Duration) -> Result<Tally, TaskError> {
    let mut command = process::cargo(&["test", "--workspace", "--no-fail-fast", "--"]);
    command.arg("--show-output");
    // Suites that ask cargo for the program would have it build all crates once more: those that
    // fuzzing needs have other features in the workspace than under the program alone.
    let program = process::target_dir().join("debug/linerate");
    if program.is_file() {
        command.env("LINERATE_BINARY", program);
    }
    if all {
        command.arg("--include-ignored");
    }
    // One pipe for both streams keeps cargo's suite names in order with the suites' own output.
    let (output, input) = std::io::pipe().map_err(TaskError::file("pipe"))?;
    let also = input.try_clone().map_err(TaskError::file("pipe"))?;
    command.stdout(input).stderr(also).process_group(0);
    let mut child = command.spawn().map_err(|source| TaskError::Start {
        program: process::spelled(&command),
        source,
    })?;
    drop(command); // with it go our copies of the pipe's writing end
    let mut undo = Undo::new()?;
    undo.add(&format!("kill -s TERM -- -{}", child.id()))?;

    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while matches!(output.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if sender.send(text).is_err() {
                break;
            }
        }
    });

    let mut reader = Reader::default();
    let mut progress = Progress::new();
    let timed_out = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(event) = reader.line(&line) {
                    progress.show(event, reader.suite());
                }
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if timed_out {
        drop(undo); // ends the whole group
        progress.show(
            Event::Show(format!(
                "{}: not finished within {} minutes, ended",
                reader.suite(),
                limit.as_secs() / 60
            )),
            "",
        );
    }
    let status = child.wait().map_err(TaskError::file("cargo test"))?;
    let (mut tally, last) = reader.finish();
    if let Some(event) = last {
        progress.show(event, "");
    }
    if !status.success() && tally.failed == 0 {
        println!("`cargo test` failed ({status})");
        tally.failed = 1;
    }
    Ok(tally)
}

/// A line per suite, and on a terminal a count that moves while the suite runs.
struct Progress {
    terminal: bool,
    ended: usize,
    started: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            terminal: std::io::stdout().is_terminal(),
            ended: 0,
            started: Instant::now(),
        }
    }

    fn show(&mut self, event: Event, suite: &str) {
        match event {
            Event::TestEnded => {
                self.ended += 1;
                if self.terminal {
                    print!("\r\x1b[K  {suite}: {} tests", self.ended);
                    let _ = std::io::stdout().flush();
                }
                return;
            }
            Event::SuiteEnded {
                suite,
                passed,
                failed,
                skipped,
            } => {
                self.clear();
                let seconds = self.started.elapsed().as_secs_f64();
                println!(
                    "  {suite:45} {passed:4} passed {failed:3} failed {skipped:3} skipped \
                     {seconds:6.1} s"
                );
            }
            Event::Show(line) => {
                self.clear();
                println!("  {line}");
                return;
            }
        }
        self.ended = 0;
        self.started = Instant::now();
    }

    fn clear(&self) {
        if self.terminal {
            print!("\r\x1b[K");
        }
    }
}
