//! The repository's own tasks: `cargo xtask test`, `ci`, `compare`, `package`, `pictures` and
//! others.
//!
//! Each task is a module with a `run` function; nothing here is published. Start with the
//! [`Task`] table below, then open the module it names.
#![forbid(unsafe_code)]

mod ci;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod clauses;
mod compare;
mod error;
mod figures;
mod libtest;
mod lines;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod links;
mod man;
mod package;
mod packages;
mod pictures;
#[path = "../../crates/linerate-core/src/env/private_folder.rs"]
#[allow(dead_code, unreachable_pub)]
mod private_folder;
mod process;
mod test;
mod undo;
mod unsafe_report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use error::TaskError;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "linerate's own tasks"
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build and run every test; offer to install the Debian packages they use
    Test(test::Options),
    /// What continuous integration runs: format, lints, docs, unsafe, tests, loom, sanitizer, fuzz
    /// corpus
    Ci,
    /// Measure linerate against DPDK on this machine, both sides in turns
    Compare(compare::Options),
    /// Write the man pages
    Man(man::Options),
    /// Make a Debian package
    Package(package::Options),
    /// Draw README's pictures from real runs, and write the tables of docs/results.md
    Pictures(pictures::Options),
    /// List the files that may hold unsafe code; fail where one stands where there is to be none
    UnsafeReport,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Ci => ci::run(),
        Task::Compare(options) => compare::run(&options),
        Task::Man(options) => man::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Pictures(options) => pictures::run(&options),
        Task::UnsafeReport => unsafe_report::run(),
    };
    outcome.unwrap_or_else(|error: TaskError| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}
