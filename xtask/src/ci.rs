//! `cargo xtask ci`: every check, each timed, a table at the end, and last the tests' closing line.
//!
//! Tests wait for much of their time. What later steps need is built meanwhile ([`build_ahead`]),
//! by processes that give way to them.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::error::TaskError;
use crate::libtest::Tally;
use crate::{lines, process, test, unsafe_report};

/// More than this on two cores is a fault of ours, not of the machine.
const BUDGET: Duration = Duration::from_secs(20 * 60);

const SANITIZED: &str = "x86_64-unknown-linux-gnu";

enum Outcome {
    Passed,
    Failed,
    /// With the reason.
    Skipped(String),
}

/// One line of the table below.
struct Step {
    name: &'static str,
    run: fn(&mut Tally) -> Result<Outcome, TaskError>,
}

#[rustfmt::skip]
const STEPS: &[Step] = &[
    Step { name: "format",        run: |_| checked(&mut process::cargo(&["fmt", "--all", "--check"])) },
    Step { name: "lines",         run: |_| lines() },
    Step { name: "clippy",        run: |_| checked(&mut process::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])) },
    Step { name: "docs",          run: |_| docs() },
    Step { name: "unsafe report", run: |_| unsafe_code() },
    Step { name: "test build",    run: |_| checked(&mut test::build()) },
    Step { name: "test",          run: tests },
    Step { name: "loom",          run: |_| loom() },
    Step { name: "thread sanitizer", run: |_| sanitizer(&THREAD) },
    Step { name: "address sanitizer", run: |_| sanitizer(&ADDRESS) },
];

/// Runs all the steps, even after a failure.
pub(crate) fn run() -> Result<ExitCode, TaskError> {
    let started = Instant::now();
    let mut tally = Tally::default();
    let mut table = Vec::new();
    for step in STEPS {
        println!("==> {}", step.name);
        let began = Instant::now();
        let outcome = (step.run)(&mut tally).unwrap_or_else(|error| {
            println!("{error}");
            Outcome::Failed
        });
        table.push((step.name, outcome, began.elapsed()));
    }
    println!();
    let mut failed = false;
    for (name, outcome, took) in &table {
        let said = match outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
        };
        failed |= matches!(outcome, Outcome::Failed);
        println!("{name:17} {:7.1} s  {said}", took.as_secs_f64());
    }
    let took = started.elapsed();
    println!("{:17} {:7.1} s", "total", took.as_secs_f64());
    if took > BUDGET {
        println!(
            "over the budget of {} minutes: shorten the slowest step, or mark its tests #[ignore = \
             \"long: ...\"]",
            BUDGET.as_secs() / 60
        );
    }
    println!("{tally}");
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn checked(command: &mut Command) -> Result<Outcome, TaskError> {
    process::run(command).map(|()| Outcome::Passed)
}

fn lines() -> Result<Outcome, TaskError> {
    Ok(match lines::check()? {
        true => Outcome::Passed,
        false => Outcome::Failed,
    })
}

fn docs() -> Result<Outcome, TaskError> {
    let mut command = process::cargo(&["doc", "--workspace", "--no-deps"]);
    checked(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn unsafe_code() -> Result<Outcome, TaskError> {
    let passed = unsafe_report::run()? == ExitCode::SUCCESS;
    Ok(if passed {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

fn tests(tally: &mut Tally) -> Result<Outcome, TaskError> {
    let options = test::Options {
        yes: true,
        ..test::Options::default()
    };
    let ahead = std::thread::spawn(build_ahead);
    let counted = test::tally(&options);
    // What is left of it has both CPUs, and no step beside it that wants the same folders.
    let _ = ahead.join();
    *tally = counted?;
    Ok(if tally.failed == 0 {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

/// Builds what the steps after the tests run. Whether it succeeds they find out themselves.
fn build_ahead() {
    let sanitizers = [&THREAD, &ADDRESS].into_iter();
    let sanitizers = sanitizers.filter(|_| no_sanitizer().is_none());
    for mut build in std::iter::once(loom_build()).chain(sanitizers.map(sanitizer_build)) {
        let _ = process::output(&mut process::nice(build.arg("--no-run")));
    }
}

/// Leaves out the tests of tables that nobody shares: they are most of what there is to compile,
/// and steps that are about threads have no use for them.
const THREADS_ONLY: &str = "--cfg linerate_threads";

/// The loom models are the tests with `loom` in their path, built with `--cfg loom`.
fn loom() -> Result<Outcome, TaskError> {
    checked(loom_build().args(["--", "loom"]))
}

fn loom_build() -> Command {
    let mut command = process::cargo(&["test", "--lib"]);
    command
        .args(["-p", "linerate-core", "-p", "linerate-tables"])
        .arg("--target-dir")
        .arg(process::target_dir().join("loom"))
        .env("RUSTFLAGS", format!("--cfg loom {THREADS_ONLY}"));
    command
}

/// A sanitizer of the compiler's, and what is run under it.
struct Sanitizer {
    name: &'static str,
    /// For the compiler, besides the sanitizer.
    flags: &'static str,
    /// Parts of the names of the tests, none for all, and how they are run.
    tests: &'static [&'static str],
    /// Its environment variable, and what to put there.
    options: (&'static str, fn() -> String),
}

/// Rings, pools, packets and shared tables across threads.
const THREAD: Sanitizer = Sanitizer {
    name: "thread",
    flags: THREADS_ONLY,
    // Workers give each other what std's `Arc` drops behind a fence, which is invisible to it.
    // One test at a time: each starts the threads that it is about.
    tests: &[
        "--test-threads=1",
        "ring",
        "pool",
        "packet",
        "stress",
        "--skip",
        "run::",
    ],
    options: ("TSAN_OPTIONS", || {
        let known = process::root().join("xtask/tsan-suppressions.txt");
        format!("suppressions={}", known.display())
    }),
};

/// All unsafe code of memory, packets, rings and vector kernels, on the heap and on stacks. (Slots
/// of pools are memory of the kernel's own, which it does not watch: tests/soundness.rs does. Leaks
/// are not looked for: tests lose packets on purpose, and a lost packet keeps its pool.)
const ADDRESS: Sanitizer = Sanitizer {
    name: "address",
    flags: "",
    tests: &[],
    options: ("ASAN_OPTIONS", || {
        "detect_leaks=0:detect_stack_use_after_return=1".into()
    }),
};

fn sanitizer(sanitizer: &Sanitizer) -> Result<Outcome, TaskError> {
    if let Some(reason) = no_sanitizer() {
        return Ok(Outcome::Skipped(reason));
    }
    checked(sanitizer_build(sanitizer).arg("--").args(sanitizer.tests))
}

/// Why there is none here. They need a nightly compiler, of any date.
fn no_sanitizer() -> Option<String> {
    let nightly = process::output(Command::new("rustup").args(["run", "nightly", "rustc", "-V"]));
    if !nightly.is_ok_and(|output| output.status.success()) {
        return Some(
            "no nightly toolchain (rustup toolchain install nightly --profile minimal)".into(),
        );
    }
    (std::env::consts::ARCH != "x86_64").then(|| "set up for x86_64 only".into())
}

fn sanitizer_build(sanitizer: &Sanitizer) -> Command {
    let name = sanitizer.name;
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "test"])
        .args(["--package", "linerate-core"])
        .args(["--package", "linerate-tables"])
        .args(["--lib", "--tests", "--target", SANITIZED, "--target-dir"])
        .arg(process::target_dir().join(format!("{}san", &name[..1])))
        .env(
            "RUSTFLAGS",
            format!(
                "-Zsanitizer={name} -Cunsafe-allow-abi-mismatch=sanitizer {}",
                sanitizer.flags
            ),
        )
        .env(sanitizer.options.0, (sanitizer.options.1)())
        .env_remove("CARGO")
        .env_remove("RUSTC")
        .env_remove("RUSTUP_TOOLCHAIN")
        .current_dir(process::root());
    command
}
