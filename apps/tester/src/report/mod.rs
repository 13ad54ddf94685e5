//! Reports of `linerate bench`: one [`Report`], and four ways to show it: [`json`], [`csv()`],
//! [`text()`] and [`html()`]. An [`Output`] is a file that was checked to be writable before the
//! run.

mod csv;
#[cfg(test)]
pub(crate) mod example;
mod grid;
mod html;
mod output;
pub(crate) mod profile;
mod schema;
mod stats;
#[cfg(test)]
mod tests;
mod text;

use std::fs;
use std::path::Path;

use linerate_appliance::error::Error;

pub(crate) use csv::csv;
pub(crate) use html::html;
pub(crate) use output::Output;
pub(crate) use profile::{Profile, ProfiledLcore, ProfiledStage};
pub(crate) use schema::*;
pub use stats::median;
pub(crate) use stats::{Ratio, deviation, quantile, ratio};
pub(crate) use text::text;

/// The report as JSON, as [`read`] takes it.
pub(crate) fn json(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("every key is a string");
    text.push('\n');
    text
}

/// Reads a report.
///
/// # Errors
/// The file, and why: it cannot be read, is not a report of `linerate bench`, or has another
/// version.
pub(crate) fn read(path: &Path) -> Result<Report, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::File {
        path: path.into(),
        source,
    })?;
    let usage = |problem: String, fix: &str| Error::Usage {
        problem: format!("{}: {problem}", path.display()),
        fix: fix.into(),
    };
    let fix = "give a file that `linerate bench throughput --json FILE` or its like wrote";
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| usage(format!("not a report of linerate bench: {error}"), fix))?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        None => Err(usage(
            "not a report of linerate bench: it has no `version`".into(),
            fix,
        )),
        Some(version) if version != u64::from(VERSION) => Err(usage(
            format!("a report of version {version}, not {VERSION}"),
            "read it with the linerate that wrote it, or measure again",
        )),
        Some(_) => serde_json::from_value(value)
            .map_err(|error| usage(format!("not a report of linerate bench: {error}"), fix)),
    }
}

/// Lost frames per million due.
pub(crate) fn lost_ppm(trial: &Trial) -> f64 {
    match trial.intended.max(trial.sent) {
        0 => 0.0,
        due => trial.lost as f64 / due as f64 * 1e6,
    }
}

/// Percent of the line rate; `None` without one.
pub(crate) fn line_percent(row: &Throughput) -> Option<f64> {
    row.line_pps
        .filter(|line| *line > 0.0)
        .map(|line| row.pps / line * 100.0)
}

/// How much faster the device is than a baseline at the same size.
pub(crate) fn times(report: &Report, baseline: &Throughput) -> Option<Ratio> {
    let mut rows = report.throughput.iter();
    let device = rows.find(|row| row.frame_bytes == baseline.frame_bytes)?;
    ratio(&results(baseline), &results(device))
}

/// Results of repeated searches, or the single one.
pub(crate) fn results(row: &Throughput) -> Vec<f64> {
    match row.repeats.is_empty() {
        true => vec![row.pps],
        false => row.repeats.clone(),
    }
}
