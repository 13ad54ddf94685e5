//! smoltcp's side of the rows of TCP: a package of its own in xtask/peer-smoltcp, so that nothing
//! of ours depends on smoltcp.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine::Cpus;
use super::sample::{self, Sample};
use crate::error::TaskError;
use crate::process;

/// Builds it for this machine, as the C programs of other rows are; where the program is.
pub(super) fn build() -> Result<PathBuf, TaskError> {
    let folder = process::target_dir().join("compare/smoltcp");
    let mut cargo = process::cargo(&["build", "--release", "--locked", "--quiet"]);
    cargo
        .args(["--manifest-path", "xtask/peer-smoltcp/Cargo.toml"])
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", "-C target-cpu=native");
    process::read(&mut cargo)?;
    Ok(folder.join("release/peer-smoltcp"))
}

/// Runs a row on the worker's CPU.
pub(super) fn measure(
    program: &Path,
    row: &str,
    seconds: f64,
    cpus: &Cpus,
) -> Result<Sample, TaskError> {
    let mut command = Command::new("taskset");
    command
        .args(["-c", &cpus.worker.to_string()])
        .arg(program)
        .args([row, &seconds.to_string()]);
    sample::sample(&mut command)
}
