//! smoltcp's side of the rows of TCP: a package of its own in xtask/peer-smoltcp, so that nothing
//! of ours depends on smoltcp.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine::Cpus;
use super::sample::{self, Sample};
use crate::error::TaskError;
use crate::process;

/// Builds it for all machines of the architecture, as ours is built, and for this machine, as the C
/// programs of other rows are: 512-bit vectors may make its checksums a third slower. Where the
/// programs are.
pub(super) fn build() -> Result<[PathBuf; 2], TaskError> {
    let folder = process::target_dir().join("compare/smoltcp");
    let program = |name: &str, flags: &str| {
        let folder = folder.join(name);
        let mut cargo = process::cargo(&["build", "--release", "--locked", "--quiet"]);
        cargo
            .args(["--manifest-path", "xtask/peer-smoltcp/Cargo.toml"])
            .arg("--target-dir")
            .arg(&folder)
            .env("RUSTFLAGS", flags);
        process::read(&mut cargo)?;
        Ok(folder.join("release/peer-smoltcp"))
    };
    Ok([
        program("any", "")?,
        program("native", "-C target-cpu=native")?,
    ])
}

/// Runs a row on the worker's CPU, each program in turn: the faster one counts, by the nanoseconds
/// that all these rows have.
pub(super) fn measure(
    [any, native]: &[PathBuf; 2],
    row: &str,
    seconds: f64,
    cpus: &Cpus,
) -> Result<Sample, TaskError> {
    let run = |program: &Path| {
        let mut command = Command::new("taskset");
        command
            .args(["-c", &cpus.worker.to_string()])
            .arg(program)
            .args([row, &seconds.to_string()]);
        sample::sample(&mut command)
    };
    let (any, native) = (run(any)?, run(native)?);
    Ok(if any.value <= native.value {
        any
    } else {
        native
    })
}
