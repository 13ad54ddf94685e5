//! What it costs to check all that a peer writes: `benches/virtqueue.rs` of the drivers as it is,
//! and the same built without the checks, in turns.

use std::path::Path;

use super::machine::Cpus;
use super::stats::median;
use crate::error::TaskError;
use crate::process;

/// Turns of both.
const ROUNDS: usize = 9;
/// Slices of a turn: some 0.3 s.
const SLICES: &str = "1000";

/// Nanoseconds a frame, with checks and without, of one case.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) ns: [f64; 2],
    /// The median of what the checks cost in a round, in %.
    pub(super) percent: f64,
}

/// Each case of the benchmark.
pub(super) fn cost(cpus: &Cpus) -> Result<Vec<Case>, TaskError> {
    let folder = process::target_dir().join("compare/unchecked");
    // The first run of each builds it.
    run(None, cpus, "1")?;
    run(Some(&folder), cpus, "1")?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push([run(None, cpus, SLICES)?, run(Some(&folder), cpus, SLICES)?]);
    }
    let names = rounds[0][0].iter().map(|(name, _)| name.clone());
    let case = |(index, name): (usize, String)| {
        let of = |side: usize| rounds.iter().map(move |round| round[side][index].1);
        let middle = |values: Vec<f64>| median(&values).unwrap_or(f64::NAN);
        let percent = of(0).zip(of(1));
        let percent = percent.map(|(with, without)| 100.0 * (with / without - 1.0));
        Case {
            name,
            ns: [0, 1].map(|side| middle(of(side).collect())),
            percent: middle(percent.collect()),
        }
    };
    Ok(names.enumerate().map(case).collect())
}

/// Names and figures; `unchecked`: where the build without checks is.
fn run(
    unchecked: Option<&Path>,
    cpus: &Cpus,
    slices: &str,
) -> Result<Vec<(String, f64)>, TaskError> {
    let mut command = process::cargo(&["bench", "--package", "linerate-drivers"]);
    if let Some(folder) = unchecked {
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        command.env("RUSTFLAGS", format!("{flags} --cfg linerate_unchecked"));
        command.env("LINERATE_UNCHECKED", "measure");
        command.arg("--target-dir").arg(folder);
    }
    let cpu = format!("cpu={}", cpus.worker);
    command.args(["--bench", "virtqueue", "--", slices, &cpu]);
    let text = process::read(&mut command)?;
    let figure = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    let figures: Vec<_> = text.lines().filter_map(figure).collect();
    match figures.is_empty() {
        false => Ok(figures),
        true => Err(TaskError::Unexpected {
            who: process::spelled(&command),
            text: process::last_lines(&text, 3).trim().to_owned(),
            expected: "lines of a name and nanoseconds",
        }),
    }
}
