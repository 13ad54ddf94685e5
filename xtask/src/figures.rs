//! The figures that docs and README quote: `docs/figures.toml`, and the tables, the sentence and
//! the picture that are made of them, so that no number is written in two places by hand.

use std::fmt::Write;

use serde::Deserialize;

use crate::compare;
use crate::error::TaskError;
use crate::process;

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    pub(crate) machine: String,
    pub(crate) month: String,
    /// Rows of `compare` that are to be met and have no figure yet.
    #[serde(default)]
    unmeasured: Vec<String>,
    pub(crate) compared: Vec<Compared>,
    limited: Vec<Limited>,
}

/// Ours beside a peer's, in turns.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compared {
    pub(crate) name: String,
    unit: String,
    pub(crate) ours: f64,
    peer: Option<f64>,
    /// Of the medians before they were rounded; above 1 we are faster.
    pub(crate) ratio: f64,
    /// Distance of the highest round's ratio from the lowest one's, in % of the median: below that
    /// a difference says little.
    spread: Option<u32>,
    /// What it is called in README's picture; only some are there.
    pub(crate) picture: Option<String>,
    #[serde(default)]
    note: String,
}

/// A figure that is not to be above a limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limited {
    name: String,
    what: String,
    value: f64,
    unit: String,
    /// Of a row that `compare` does not have.
    limit: Option<f64>,
    #[serde(default)]
    note: String,
}

impl Compared {
    /// The least ratio that counts as met, by `compare`'s table.
    pub(crate) fn target(&self) -> Option<f64> {
        compare::targets().find_map(|(name, target)| (name == self.name).then_some(target))
    }

    pub(crate) fn is_met(&self) -> bool {
        self.target().is_none_or(|target| self.ratio >= target)
    }
}

impl Limited {
    fn limit(&self) -> Option<f64> {
        let known =
            compare::limits().find_map(|(name, limit)| (name == self.name).then_some(limit));
        known.or(self.limit)
    }

    fn is_met(&self) -> bool {
        self.limit().is_none_or(|limit| self.value <= limit)
    }
}

impl Figures {
    pub(crate) fn read() -> Result<Self, TaskError> {
        let path = process::root().join("docs/figures.toml");
        let text = std::fs::read_to_string(&path).map_err(TaskError::file(&path))?;
        toml::from_str(&text).map_err(|error| TaskError::Unexpected {
            who: "docs/figures.toml".into(),
            text: error.to_string(),
            expected: "its own form: see xtask/src/figures.rs",
        })
    }

    /// How many targets and limits are met, and how many are not.
    pub(crate) fn score(&self) -> (usize, usize) {
        let compared = self.compared.iter().filter(|row| row.target().is_some());
        let limited = self.limited.iter().filter(|row| row.limit().is_some());
        let met = compared.clone().filter(|row| row.is_met()).count()
            + limited.clone().filter(|row| row.is_met()).count();
        (met, compared.count() + limited.count() - met)
    }

    /// For README, under its picture.
    pub(crate) fn sentence(&self) -> String {
        let (met, missed) = self.score();
        match self.unmeasured.len() {
            0 => format!("{met} targets met, {missed} missed"),
            unmeasured => format!("{met} targets met, {missed} missed, {unmeasured} not measured"),
        }
    }

    /// For docs/results.md: the machines, and two tables.
    pub(crate) fn tables(&self) -> String {
        let mut text = format!("Measured in {} on {}.\n\n", self.month, self.machine.trim());
        text += "| row | ours | peer | ratio | wanted | spread | |\n";
        text += "|---|---:|---:|---:|---:|---:|---|\n";
        for row in &self.compared {
            let peer = row.peer.map_or(String::new(), |peer| peer.to_string());
            let target = row
                .target()
                .map_or(String::new(), |target| target.to_string());
            let spread = row
                .spread
                .map_or(String::new(), |spread| format!("{spread} %"));
            let _ = writeln!(
                text,
                "| `{}`, {} | {} | {peer} | {} | {target} | {spread} | {} |",
                row.name,
                row.unit,
                row.ours,
                ratio(row.ratio),
                verdict(row.is_met(), &row.note)
            );
        }
        text += "\n| row | figure | at most | |\n|---|---:|---:|---|\n";
        for row in &self.limited {
            let limit = row.limit().map_or(String::new(), |limit| limit.to_string());
            let _ = writeln!(
                text,
                "| `{}`: {}, {} | {} | {limit} | {} |",
                row.name,
                row.what,
                row.unit,
                row.value,
                verdict(row.is_met(), &row.note)
            );
        }
        if !self.unmeasured.is_empty() {
            let rows = self.unmeasured.join("`, `");
            let _ = write!(text, "\nNot measured yet: `{rows}`.\n");
        }
        text
    }
}

/// Two places, where there are any to be told apart.
fn ratio(ratio: f64) -> String {
    match ratio < 10.0 {
        true => format!("{ratio:.2}"),
        false => format!("{ratio:.0}"),
    }
}

fn verdict(is_met: bool, note: &str) -> String {
    match (is_met, note) {
        (true, note) => note.to_owned(),
        (false, "") => "**missed**".to_owned(),
        (false, note) => format!("**missed**: {note}"),
    }
}

/// Puts `new` between the first `begin` and the first `end` behind it; None where there are none.
pub(crate) fn replaced(page: &str, [begin, end]: [&str; 2], new: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}{new}{end}{after}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Nothing that was to be reached is left out of the score.
    #[test]
    fn every_target_has_its_figure() {
        let figures = Figures::read().unwrap();
        let compared = figures.compared.iter().map(|row| row.name.as_str());
        let limited = figures.limited.iter().map(|row| row.name.as_str());
        let unmeasured = figures.unmeasured.iter().map(String::as_str);
        let known: BTreeSet<&str> = compared.chain(limited).collect();
        let there: BTreeSet<&str> = unmeasured.clone().chain(known.iter().copied()).collect();
        let wanted = compare::targets().chain(compare::limits());
        let absent: Vec<&str> = wanted
            .map(|(name, _)| name)
            .filter(|name| !there.contains(name))
            .collect();
        assert!(absent.is_empty(), "docs/figures.toml has no {absent:?}");
        for row in unmeasured {
            let is_wanted = compare::targets()
                .chain(compare::limits())
                .any(|(name, _)| name == row);
            assert!(
                is_wanted && !known.contains(row),
                "{row} is measured, or no row"
            );
        }
        for row in &figures.compared {
            let known = compare::names().any(|name| name == row.name);
            assert!(known, "{}: no row of `compare`", row.name);
        }
        for row in &figures.limited {
            let known = compare::limits().any(|(name, _)| name == row.name);
            assert!(known != row.limit.is_some(), "{}: one limit", row.name);
        }
    }

    #[test]
    fn text_between_markers_is_replaced() {
        let page = "a <x> old </x> b </x>";
        let new = replaced(page, ["<x>", "</x>"], "new").unwrap();
        assert_eq!(new, "a <x>new</x> b </x>");
        assert_eq!(replaced(&new, ["<x>", "</x>"], "new").as_ref(), Some(&new));
        assert_eq!(replaced(page, ["<y>", "</x>"], "new"), None);
    }
}
