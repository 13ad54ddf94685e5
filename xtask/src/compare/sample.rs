//! One figure of one side: what a measuring process prints on its line of JSON.

use std::process::Command;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::TaskError;
use crate::process;

/// `{"row","value","unit","pages","peer_name","detail":{..},"note"}`; ours has no `peer_name`,
/// `note` is optional.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Sample {
    pub(super) value: f64,
    #[serde(default)]
    pub(super) pages: String,
    #[serde(default)]
    pub(super) peer_name: String,
    #[serde(default)]
    pub(super) detail: Map<String, Value>,
    /// What a reader must know beside the figure.
    pub(super) note: Option<String>,
}

/// Runs `command`, which ends by itself, and reads its JSON line.
pub(super) fn sample(command: &mut Command) -> Result<Sample, TaskError> {
    parse(&process::spelled(command), &process::read(command)?)
}

/// The last line of `text` that is a JSON object, as a sample with a value that makes sense.
pub(super) fn parse(who: &str, text: &str) -> Result<Sample, TaskError> {
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    let sample: Option<Sample> = line.and_then(|line| serde_json::from_str(line).ok());
    sample
        .filter(|sample| sample.value.is_finite() && sample.value >= 0.0)
        .ok_or_else(|| TaskError::Unexpected {
            who: who.to_owned(),
            text: process::last_lines(text, 3).trim().to_owned(),
            expected: "a line {\"row\",\"value\",\"unit\",\"pages\",\"detail\"}",
        })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn takes_the_last_json_line() {
        let text = "warming up\n{\"row\":\"r\",\"value\":1.5,\"unit\":\"ns\",\"pages\":\"2 \
            MiB\",\"detail\":{\"slots\":1024}}\n";
        let sample = parse("peer", text).unwrap();
        assert_eq!((sample.value, sample.pages.as_str()), (1.5, "2 MiB"));
        assert_eq!(sample.detail["slots"], 1024);
    }

    #[test]
    fn says_what_it_got_instead() {
        let error = parse("peer ring", "no such row\n").unwrap_err().to_string();
        assert!(
            error.contains("peer ring") && error.contains("no such row"),
            "{error}"
        );
    }
}
