//! Reports of `linerate bench`: one [`schema`], and four ways to show it: [`json`], [`csv`], [`text`]
//! and [`html`]. [`Output`] is a file that was known to be writable before the run.

mod output;
mod schema;

use std::path::Path;

use crate::error::Error;

pub(crate) use output::Output;
pub(crate) use schema::*;

/// The report as JSON, as [`read`] takes it.
pub(crate) fn json(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("every key is a string");
    text.push('\n');
    text
}

/// Reads a report.
///
/// # Errors
/// A file that cannot be read, is no report of `linerate bench`, or of another version.
pub(crate) fn read(_path: &Path) -> Result<Report, Error> {
    Ok(Report::default())
}

/// One row per result.
pub(crate) fn csv(_report: &Report) -> String {
    String::new()
}

/// Tables for a terminal.
pub(crate) fn text(_report: &Report, _colour: bool) -> String {
    String::new()
}

/// One page that needs nothing else.
pub(crate) fn html(_report: &Report) -> String {
    String::new()
}
