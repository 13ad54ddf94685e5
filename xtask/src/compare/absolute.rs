//! Rows with a limit of their own and no peer: memory overhead, build time, C dependencies.

use std::time::Instant;

use super::machine::Cpus;
use super::ours::Linerate;
use crate::error::TaskError;
use crate::process;

/// A figure that must not be above its limit.
pub(super) struct Absolute {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) limit: f64,
    /// Long ones run only when `--only` names them.
    pub(super) on_request: bool,
    pub(super) measure: fn(Option<&Linerate>, &Cpus) -> Result<f64, TaskError>,
}

#[rustfmt::skip]
pub(super) const ABSOLUTES: &[Absolute] = &[
    Absolute { name: "mem.pool.overhead_percent",  unit: "%",      limit: 3.0,   on_request: false, measure: pool_overhead },
    Absolute { name: "build.release.cold_seconds", unit: "s",      limit: 120.0, on_request: true,  measure: cold_build },
    Absolute { name: "build.c_dependencies",       unit: "crates", limit: 0.0,   on_request: true,  measure: c_dependencies },
];

/// What a pool costs over slots x slot size.
fn pool_overhead(linerate: Option<&Linerate>, cpus: &Cpus) -> Result<f64, TaskError> {
    let linerate = linerate.ok_or_else(|| TaskError::Missing {
        what: "this row has no peer side".into(),
        fix: "leave out --peer-only".into(),
    })?;
    Ok(linerate
        .micro("mem.pool.overhead", 0.1, &cpus.list(false))?
        .value)
}

/// A release build into an empty folder, everything downloaded before.
fn cold_build(_: Option<&Linerate>, _: &Cpus) -> Result<f64, TaskError> {
    process::read(&mut process::cargo(&["fetch", "--locked"]))?;
    let folder = process::target_dir().join("compare/cold");
    let remove = || match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TaskError::file(&folder)(error))
        }
        _ => Ok(()),
    };
    remove()?;
    let mut cargo = process::cargo(&[
        "build",
        "--release",
        "--locked",
        "--offline",
        "--package",
        "linerate",
    ]);
    let began = Instant::now();
    process::read(cargo.arg("--target-dir").arg(&folder))?;
    let seconds = began.elapsed().as_secs_f64();
    remove()?;
    Ok(seconds)
}

/// Crates that compile or look for C code; none may be below the default build of `linerate`.
const C_BUILDERS: &[&str] = &["cc", "cmake", "bindgen", "pkg-config", "autotools", "vcpkg"];

fn c_dependencies(_: Option<&Linerate>, _: &Cpus) -> Result<f64, TaskError> {
    let tree = [
        "tree",
        "--package",
        "linerate",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
    ];
    let tree = process::read(&mut process::cargo(&tree))?;
    let mut found: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| C_BUILDERS.contains(name))
        .collect();
    found.sort_unstable();
    found.dedup();
    for name in &found {
        eprintln!("C dependency: {name} (see `cargo tree --package linerate --invert {name}`)");
    }
    Ok(found.len() as f64)
}
