//! What `bench http` says.

use std::sync::Arc;
use std::time::Duration;

use linerate_appliance::output::{Cell, Column, Table};
use linerate_core::port::Counter;
use linerate_core::run::HistogramSnapshot;
use serde_json::{Value, json};

use crate::http::client::meter::Meter;

/// Below this share of the rate that was asked for, the report says so.
const KEPT_UP: f64 = 0.99;

/// What all clients have counted until some moment.
pub(super) struct Reading {
    latency: HistogramSnapshot,
    requests: u64,
    answers: [u64; 10],
    bytes: u64,
    opened: u64,
    /// Names and values of what should not happen.
    troubles: Vec<(&'static str, u64)>,
    waiting: u64,
}

impl Reading {
    pub(super) fn of(meters: &[Arc<Meter>]) -> Self {
        let sum = |of: fn(&Meter) -> &Counter| meters.iter().map(|one| of(one).read()).sum();
        let mut latency = HistogramSnapshot::default();
        meters.iter().for_each(|one| latency.merge(&one.latency()));
        let class = |class: usize| meters.iter().map(|one| one.answers[class].read()).sum();
        Self {
            latency,
            requests: sum(|one| &one.requests),
            answers: std::array::from_fn(class),
            bytes: sum(|one| &one.bytes),
            opened: sum(|one| &one.opened),
            troubles: vec![
                ("failed", sum(|one| &one.failed)),
                ("timed_out", sum(|one| &one.timed_out)),
                ("wrong", sum(|one| &one.wrong)),
                ("refused", sum(|one| &one.refused)),
                ("unasked", sum(|one| &one.unasked)),
                ("again", sum(|one| &one.again)),
            ],
            waiting: sum(|one| &one.waiting),
        }
    }

    /// What has come since an earlier one. What waits is that of the end.
    fn since(&self, before: &Self) -> Self {
        let troubles = self.troubles.iter().zip(&before.troubles);
        Self {
            latency: self.latency.since(&before.latency),
            requests: self.requests - before.requests,
            answers: std::array::from_fn(|class| self.answers[class] - before.answers[class]),
            bytes: self.bytes - before.bytes,
            opened: self.opened - before.opened,
            troubles: troubles
                .map(|((name, now), (_, before))| (*name, now - before))
                .collect(),
            waiting: self.waiting,
        }
    }
}

/// What was measured.
#[derive(serde::Serialize)]
pub(super) struct Setting {
    pub(super) urls: Vec<String>,
    pub(super) port: String,
    pub(super) lcores: u32,
    pub(super) connections: u32,
    /// Whether connections have more than one request.
    pub(super) kept: bool,
    /// Requests a second that were asked for, in an open loop.
    pub(super) rate: Option<f64>,
}

/// Shares of all answers whose latency is shown, in percent, and the names of those.
const SHARES: [(f64, &str); 6] = [
    (50.0, "p50"),
    (75.0, "p75"),
    (90.0, "p90"),
    (99.0, "p99"),
    (99.9, "p999"),
    (99.99, "p9999"),
];

/// What it came to.
pub(super) struct Report {
    setting: Setting,
    seconds: f64,
    came: Reading,
}

impl Report {
    pub(super) fn new(setting: Setting, before: &Reading, after: &Reading, time: Duration) -> Self {
        Self {
            setting,
            seconds: time.as_secs_f64().max(1e-9),
            came: after.since(before),
        }
    }

    /// Whole answers.
    pub(super) fn answers(&self) -> u64 {
        self.came.answers.iter().sum()
    }

    fn per_s(&self) -> f64 {
        self.answers() as f64 / self.seconds
    }

    fn bits_per_s(&self) -> f64 {
        8.0 * self.came.bytes as f64 / self.seconds
    }

    /// The longest latency: of the whole run a bucket knows no more than its bounds.
    fn longest_ns(&self) -> u64 {
        self.came.latency.percentile(100.0)
    }

    fn shortest_ns(&self) -> u64 {
        self.came.latency.percentile(0.0)
    }

    /// What is to be said of it.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(rate) = self.setting.rate
            && self.per_s() < rate * KEPT_UP
        {
            notes.push(format!(
                "{:.0} requests a second were asked for and {:.0} answered; {} that should have \
                 left were waiting for a connection at the end",
                rate,
                self.per_s(),
                self.came.waiting
            ));
        }
        if self.setting.rate.is_none() {
            notes.push(
                "without --rate requests wait for answers: latencies leave out what others would \
                 have waited"
                    .into(),
            );
        }
        notes
    }

    /// As tables.
    pub(super) fn text(&self, machine: &str, colour: bool) -> String {
        let Setting {
            urls,
            port,
            lcores,
            connections,
            kept,
            rate,
        } = &self.setting;
        let how = match kept {
            true => "kept",
            false => "one request each",
        };
        let rate = rate.map_or("as fast as answers come".into(), |rate| {
            format!("{rate} requests/s")
        });
        let mut text = format!(
            "{machine}\n{} over {port}, {lcores} lcore(s), {connections} connections, {how}, \
             {rate}, {:.1} s\n\n",
            urls.join(" "),
            self.seconds
        );
        let mut counts = Table::new([
            Column::number("requests/s"),
            Column::number("Mb/s"),
            Column::number("answers"),
            Column::number("2xx"),
            Column::number("other"),
            Column::number("opened"),
        ]);
        let good = self.came.answers[2];
        counts.row([
            Cell::new(format!("{:.0}", self.per_s())),
            Cell::new(format!("{:.1}", self.bits_per_s() / 1e6)),
            Cell::new(self.answers()),
            Cell::new(good),
            Cell::new(self.answers() - good),
            Cell::new(self.came.opened),
        ]);
        text += &counts.render(colour);
        text += "\nlatency in us\n";
        let names = SHARES.iter().map(|(_, name)| Column::number(name));
        let mut latency = Table::new(
            ["min", "mean"]
                .map(Column::number)
                .into_iter()
                .chain(names)
                .chain([Column::number("max")]),
        );
        let us = |ns: f64| Cell::new(format!("{:.1}", ns / 1e3));
        let shares = SHARES
            .iter()
            .map(|(share, _)| self.came.latency.percentile(*share));
        let mean = us(self.came.latency.mean());
        latency.row(
            [us(self.shortest_ns() as f64), mean]
                .into_iter()
                .chain(shares.map(|ns| us(ns as f64)))
                .chain([us(self.longest_ns() as f64)]),
        );
        text += &latency.render(colour);
        let troubles = self.came.troubles.iter().filter(|(_, count)| *count > 0);
        let troubles: Vec<String> = troubles
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        if !troubles.is_empty() {
            text += &format!("\n{}\n", troubles.join(", "));
        }
        for note in self.notes() {
            text += &format!("\n{note}\n");
        }
        text
    }

    /// As one object.
    fn value(&self) -> Value {
        let mut latency = json!({
            "samples": self.came.latency.total,
            "min": self.shortest_ns(),
            "mean": self.came.latency.mean(),
            "max": self.longest_ns(),
        });
        for (share, name) in SHARES {
            latency[name] = self.came.latency.percentile(share).into();
        }
        let buckets: Vec<(u64, u64)> = self.came.latency.buckets().collect();
        latency["buckets"] = json!(buckets);
        let mut value = json!({
            "setting": self.setting,
            "seconds": self.seconds,
            "requests": self.came.requests,
            "answers": self.answers(),
            "per_s": self.per_s(),
            "body_bytes": self.came.bytes,
            "bits_per_s": self.bits_per_s(),
            "opened": self.came.opened,
            "waiting": self.came.waiting,
            "latency_ns": latency,
            "notes": self.notes(),
        });
        for class in 2..6 {
            value[format!("{class}xx")] = self.came.answers[class].into();
        }
        for (name, count) in &self.came.troubles {
            value[*name] = (*count).into();
        }
        value
    }
}

impl serde::Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn report(rate: Option<f64>) -> Report {
        let meter = Arc::new(Meter::default());
        let meters = [meter.clone(), Arc::new(Meter::default())];
        meter.answered(200, 5_000_000);
        let before = Reading::of(&meters);
        for ns in 1..=100 {
            meter.answered(if ns == 7 { 404 } else { 200 }, ns * 1000);
        }
        meter.bytes.add(6400);
        meter.failed.add(3);
        let setting = Setting {
            urls: vec!["http://192.0.2.2/".into()],
            port: "tap:t0".into(),
            lcores: 2,
            connections: 10,
            kept: true,
            rate,
        };
        Report::new(
            setting,
            &before,
            &Reading::of(&meters),
            Duration::from_secs(2),
        )
    }

    #[test]
    fn the_warm_up_is_left_out() {
        let value = report(Some(50.0)).value();
        assert_eq!(
            (value["answers"].as_u64(), value["2xx"].as_u64()),
            (Some(100), Some(99))
        );
        assert_eq!(
            (value["4xx"].as_u64(), value["failed"].as_u64()),
            (Some(1), Some(3))
        );
        assert_eq!(value["per_s"].as_f64(), Some(50.0));
        assert_eq!(value["bits_per_s"].as_f64(), Some(25_600.0));
        let latency = |name: &str| value["latency_ns"][name].as_f64().unwrap();
        assert!((50_000.0..50_500.0).contains(&latency("p50")), "{value}");
        // The 5 ms of the warm-up are not in it.
        assert!((100_000.0..101_000.0).contains(&latency("max")), "{value}");
        assert!(latency("min") <= 1010.0, "{value}");
        assert_eq!(value["notes"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn the_text_says_what_was_not_kept_up_with() {
        let text = report(Some(1000.0)).text("a machine", false);
        assert!(
            text.contains("1000 requests a second were asked for and 50 answered"),
            "{text}"
        );
        assert!(text.contains("failed 3"), "{text}");
        assert!(report(None).text("", false).contains("without --rate"));
    }
}
