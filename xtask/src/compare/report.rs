//! What came out: a table for people, one JSON document for programs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::absolute::Absolute;
use super::crossing;
use super::http;
use super::rows::Row;
use super::sample::Sample;
use super::stats::{median, spread};

/// The outcome of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Passed,
    Missed,
    /// No target: the figure is for information.
    Shown,
    /// Too few rounds with the cores near, or only one CPU. Never passed.
    Unmeasured,
    /// One side failed to run.
    Failed,
}

impl Status {
    /// The same, or where targets are not judged whether it ran.
    pub(super) fn judged(self, is_judged: bool) -> Status {
        match self {
            Status::Passed | Status::Missed if !is_judged => Status::Shown,
            status => status,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Missed => "missed",
            Status::Shown => "shown",
            Status::Unmeasured => "unmeasured",
            Status::Failed => "failed",
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Status::Passed => "PASS",
            Status::Missed => "miss",
            Status::Shown => "",
            Status::Unmeasured => "unmeasured",
            Status::Failed => "FAILED",
        }
    }
}

/// The rounds of one row.
#[derive(Default)]
pub(super) struct Rounds {
    pub(super) ours: Vec<Sample>,
    pub(super) peer: Vec<Sample>,
    /// The longer round trip between the cores in each round, two-core rows only.
    pub(super) trips_ns: Vec<f64>,
    /// Why there are fewer rounds than asked for.
    pub(super) note: Option<String>,
    pub(super) failed: bool,
}

/// A row with its rounds boiled down.
pub(super) struct Line {
    row: Row,
    pub(super) status: Status,
    ours: Option<f64>,
    peer: Option<f64>,
    ratio: Option<f64>,
    rounds: usize,
    spread: Option<f64>,
    data: Rounds,
}

/// Whether the load was the limit, and not what it was put on.
fn is_limited(sample: &Sample) -> bool {
    sample.detail.contains_key(http::IS_LIMITED)
}

fn values(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.value).collect()
}

impl Line {
    /// `wanted` is the number of rounds asked for; `peer_only` leaves our side empty by intention.
    pub(super) fn new(row: &Row, data: Rounds, wanted: usize, peer_only: bool) -> Line {
        let (ours, peer) = (values(&data.ours), values(&data.peer));
        let rounds = if peer_only { peer.len() } else { ours.len() };
        let spreads = [spread(&ours), spread(&peer)];
        let (ours, peer) = (median(&ours), median(&peer));
        let ratio = ours
            .zip(peer)
            .map(|(ours, peer)| row.unit.ratio(ours, peer));
        let status = match (row.target, ratio) {
            _ if data.failed => Status::Failed,
            _ if rounds < wanted => Status::Unmeasured,
            (Some(target), Some(ratio)) if ratio >= target => Status::Passed,
            // Nobody knows how far ours goes.
            (Some(_), Some(_)) if data.ours.iter().any(is_limited) => Status::Shown,
            (Some(_), Some(_)) => Status::Missed,
            _ => Status::Shown,
        };
        Line {
            row: *row,
            status,
            ours,
            peer,
            ratio,
            rounds,
            spread: spreads.into_iter().flatten().max_by(f64::total_cmp),
            data,
        }
    }

    fn peer_name(&self) -> &str {
        self.data.peer.last().map_or("", |sample| &sample.peer_name)
    }

    /// Why there are no or too few rounds, or what the sides remark.
    fn note(&self) -> Option<&str> {
        let remarks = [&self.data.peer, &self.data.ours].into_iter();
        let remark = || {
            remarks
                .filter_map(|side| side.last()?.note.as_deref())
                .next()
        };
        self.data.note.as_deref().or_else(remark)
    }

    /// The limit of the measurement, if there is a null-forwarding run.
    fn bottleneck(&self) -> Option<String> {
        let null = beside(&self.data.ours)?[crossing::NULL].as_f64()?;
        Some(crossing::bottleneck(self.ours?, null))
    }

    pub(super) fn json(&self) -> Value {
        let mut line = json!({
            "name": self.row.name,
            "unit": self.row.unit.name(),
            "ours": self.ours,
            "peer": self.peer,
            "peer_name": self.peer_name(),
            "ratio": self.ratio,
            "target": self.row.target,
            "rounds": self.rounds,
            "spread": self.spread,
            "status": self.status.name(),
        });
        let pages = |samples: &[Sample]| samples.last().map(|sample| sample.pages.clone());
        for (key, value) in [
            ("pages_ours", pages(&self.data.ours).map(Value::from)),
            ("pages_peer", pages(&self.data.peer).map(Value::from)),
            ("shown_beside", beside(&self.data.peer)),
            ("shown_beside_ours", beside(&self.data.ours)),
            ("core2core_ns", median(&self.data.trips_ns).map(Value::from)),
            ("note", self.note().map(Value::from)),
            ("bottleneck", self.bottleneck().map(Value::from)),
        ] {
            if let Some(value) = value {
                line[key] = value;
            }
        }
        line
    }

    pub(super) fn text(&self) -> String {
        let number = |value: Option<f64>, digits: usize| match value {
            Some(value) => format!("{value:.digits$}"),
            None => "-".into(),
        };
        let percent = |value: Option<f64>| match value {
            Some(value) => format!("{:.0}%", value * 100.0),
            None => "-".into(),
        };
        let mut text = format!(
            "{:24} {:5} {:>9} {:>9} {:>7} {:>7} {:>7}  {:10}  {}",
            self.row.name,
            self.row.unit.name(),
            number(self.ours, 3),
            number(self.peer, 3),
            number(self.ratio, 2),
            number(self.row.target, 2),
            percent(self.spread),
            self.status.mark(),
            self.peer_name(),
        );
        if let Some(Value::Object(beside)) = beside(&self.data.peer) {
            let beside = beside
                .iter()
                .filter_map(|(key, value)| Some((key, value.as_f64()?)));
            let beside: Vec<String> = beside
                .map(|(key, value)| format!("{key} {}", tidy(value)))
                .collect();
            text.push_str(&format!(" [{}]", beside.join(", ")));
        }
        if let (Some(ours), Some(peer)) = (self.data.ours.last(), self.data.peer.last())
            && !ours.pages.starts_with(&peer.pages)
        // ours says "2 MiB huge pages"
        {
            text.push_str(&format!(
                " (pages: ours {}, peer {})",
                ours.pages, peer.pages
            ));
        }
        let lines = [self.note().map(str::to_owned), self.bottleneck()];
        for line in lines.into_iter().flatten() {
            text.push_str(&format!("\n{:24} {line}", ""));
        }
        text
    }
}

pub(super) const HEAD: &str =
    "row                      unit       ours      peer   ratio  target  spread              peer";

/// 1024 or 0.703.
fn tidy(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

/// The medians of the numbers that one side printed besides its value.
fn beside(samples: &[Sample]) -> Option<Value> {
    let mut columns: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        for (key, value) in &sample.detail {
            columns.entry(key).or_default().extend(value.as_f64());
        }
    }
    let medians: Map<String, Value> = columns
        .into_iter()
        .filter_map(|(key, values)| Some((key.to_owned(), json!(median(&values)?))))
        .collect();
    (!medians.is_empty()).then_some(Value::Object(medians))
}

/// A row with a limit, measured or not.
pub(super) struct Limited {
    row: &'static Absolute,
    value: Result<f64, String>,
    is_judged: bool,
}

impl Limited {
    pub(super) fn new(
        row: &'static Absolute,
        value: Result<f64, String>,
        is_judged: bool,
    ) -> Limited {
        Limited {
            row,
            value,
            is_judged,
        }
    }

    pub(super) fn status(&self) -> Status {
        let status = match (&self.value, self.row.limit) {
            (Ok(_), None) => Status::Shown,
            (Ok(value), Some(limit)) if *value <= limit => Status::Passed,
            (Ok(_), Some(_)) => Status::Missed,
            (Err(_), _) => Status::Failed,
        };
        status.judged(self.is_judged)
    }

    pub(super) fn json(&self) -> Value {
        let mut line = json!({
            "name": self.row.name,
            "unit": self.row.unit,
            "value": self.value.as_ref().ok(),
            "limit": self.row.limit,
            "status": self.status().name(),
        });
        if let Err(error) = &self.value {
            line["note"] = error.as_str().into();
        }
        line
    }

    pub(super) fn text(&self) -> String {
        let (value, note) = match &self.value {
            Ok(value) => (format!("{value:.2}"), String::new()),
            Err(error) => ("-".into(), format!("\n{:24} {error}", "")),
        };
        let limit = self
            .row
            .limit
            .map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
        format!(
            "{:30} {value} {} ({limit})  {}{note}",
            self.row.name,
            self.row.unit,
            self.status().mark()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::super::sample::parse;
    use super::{Line, Rounds, Status};

    fn line(ours: &[f64], peer: &[f64], wanted: usize) -> Line {
        let row = ROWS
            .iter()
            .find(|row| row.name == "ring.spsc.2core.bulk32")
            .unwrap();
        let samples = |values: &[f64]| {
            values
                .iter()
                .map(|value| {
                    parse(
                        "test",
                        &format!("{{\"value\":{value},\"detail\":{{\"x\":{value}}}}}"),
                    )
                    .unwrap()
                })
                .collect()
        };
        let data = Rounds {
            ours: samples(ours),
            peer: samples(peer),
            ..Rounds::default()
        };
        Line::new(row, data, wanted, false)
    }

    #[test]
    fn medians_decide() {
        let passed = line(&[1.0, 1.0, 9.0], &[2.0, 2.5, 2.0], 3);
        assert_eq!(passed.status, Status::Passed);
        let json = passed.json();
        assert_eq!(
            (json["ratio"].as_f64(), json["spread"].as_f64()),
            (Some(2.0), Some(8.0))
        );
        assert_eq!(json["shown_beside"]["x"], 2.0);
        assert_eq!(line(&[1.0], &[1.9], 1).status, Status::Missed);
    }

    #[test]
    fn a_null_forwarding_run_names_the_bottleneck_and_quick_runs_judge_nothing() {
        let mut line = line(&[1.0, 1.0], &[2.0, 2.0], 2);
        assert_eq!(line.bottleneck(), None);
        for sample in &mut line.data.ours {
            sample
                .detail
                .insert(super::crossing::NULL.into(), 2.0.into());
        }
        assert!(line.text().contains("they take 50%"), "{}", line.text());
        assert_eq!(Status::Missed.judged(false), Status::Shown);
        assert_eq!(Status::Failed.judged(false), Status::Failed);
        assert_eq!(Status::Missed.judged(true), Status::Missed);
    }

    #[test]
    fn too_few_near_rounds_never_pass() {
        assert_eq!(line(&[1.0, 1.0], &[9.0, 9.0], 5).status, Status::Unmeasured);
        assert_eq!(line(&[], &[], 5).status, Status::Unmeasured);
    }
}
