//! `bench diff a.json b.json`: better, worse or noise, row by row.
//!
//! A row is better or worse where the whole interval of its ratio is. The interval comes from
//! repeated results by their ranks, widened by the precision of the searches; where there are too
//! few results to know their spread, changes below a margin are noise.

use std::path::PathBuf;

use serde::Serialize;

use crate::report::{self as reports, Report, Throughput, VerdictWord};
use linerate_appliance::error::Error;
use linerate_appliance::output::{self, Cell, Column, Table, Tone};

/// Exit code where something is worse.
const WORSE: u8 = 3;
/// Least coverage of an interval.
const COVERAGE: f64 = 0.9;
/// What single throughputs and single latencies differ by from run to run without a cause.
const THROUGHPUT_MARGIN: f64 = 0.05;
const LATENCY_MARGIN: f64 = 0.2;

/// Compare two reports: better, worse or noise, row by row; exits with 3 where something is worse
#[derive(clap::Parser)]
pub struct Args {
    /// The report to compare with
    before: PathBuf,
    /// The report to judge
    after: PathBuf,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// How a figure changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Change {
    Better,
    Worse,
    Noise,
}

impl Change {
    fn word(self) -> (&'static str, Tone) {
        match self {
            Self::Better => ("better", Tone::Good),
            Self::Worse => ("worse", Tone::Bad),
            Self::Noise => ("noise", Tone::Dim),
        }
    }
}

/// One figure of both reports.
#[derive(Clone, Debug, Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    before: f64,
    after: f64,
    /// After over before, and its interval; `None` where one of them is 0.
    ratio: Option<f64>,
    interval: Option<(f64, f64)>,
    change: Change,
}

/// The whole comparison.
#[derive(Clone, Debug, Default, Serialize)]
struct Comparison {
    /// Differences between the two apart from the results.
    notes: Vec<String>,
    rows: Vec<Row>,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let (before, after) = (reports::read(&args.before)?, reports::read(&args.after)?);
    let found = compare(&before, &after);
    if found.rows.is_empty() {
        return Err(Error::Usage {
            problem: format!(
                "{} and {} have no result in common",
                args.before.display(),
                args.after.display()
            ),
            fix: "compare reports of the same kind that share a frame size".into(),
        });
    }
    match args.json {
        true => output::print_json(&found)?,
        false => output::print(&text(&found, output::colour()))?,
    }
    match found.rows.iter().any(|row| row.change == Change::Worse) {
        true => Err(Error::Found(WORSE)),
        false => Ok(()),
    }
}

fn compare(before: &Report, after: &Report) -> Comparison {
    let mut found = Comparison {
        notes: notes(before, after),
        rows: Vec::new(),
    };
    throughputs(&mut found, before, after);
    latencies(&mut found, before, after);
    bursts(&mut found, before, after);
    soaks(&mut found, before, after);
    found
}

/// Whether more is better.
#[derive(Clone, Copy, PartialEq)]
enum Good {
    More,
    Less,
}

/// One row out of all results of both. `widths` is how coarse each was measured, relative.
fn row(
    what: String,
    unit: &'static str,
    good: Good,
    (before, after): (&[f64], &[f64]),
    widths: (f64, f64),
    margin: f64,
) -> Option<Row> {
    let (old, new) = (reports::median(before)?, reports::median(after)?);
    let Some(found) = reports::ratio(before, after) else {
        // From or to 0: no ratio, and not noise either.
        let change = match (old > 0.0, new > 0.0) {
            (false, true) if good == Good::More => Change::Better,
            (true, false) if good == Good::More => Change::Worse,
            _ => Change::Noise,
        };
        return Some(Row {
            what,
            unit,
            before: old,
            after: new,
            ratio: None,
            interval: None,
            change,
        });
    };
    // A search's result may be below the truth by its width, never above.
    let mut low = found.low / (1.0 + widths.0);
    let mut high = found.high * (1.0 + widths.1);
    if found.coverage < COVERAGE - 1e-9 {
        low = low.min(found.ratio * (1.0 - margin));
        high = high.max(found.ratio * (1.0 + margin));
    }
    let change = match good {
        _ if low <= 1.0 && high >= 1.0 => Change::Noise,
        Good::More if low > 1.0 => Change::Better,
        Good::Less if high < 1.0 => Change::Better,
        _ => Change::Worse,
    };
    Some(Row {
        what,
        unit,
        before: old,
        after: new,
        ratio: Some(found.ratio),
        interval: Some((low, high)),
        change,
    })
}

fn throughputs(found: &mut Comparison, before: &Report, after: &Report) {
    let name = |row: &Throughput| match row.goal.as_str() {
        "throughput" => format!("{} B: throughput", row.frame_bytes),
        goal => format!("{} B: {goal}", row.frame_bytes),
    };
    let same = |a: &Throughput, b: &Throughput| a.frame_bytes == b.frame_bytes && a.goal == b.goal;
    for old in &before.throughput {
        let Some(new) = after.throughput.iter().find(|new| same(old, new)) else {
            found
                .notes
                .push(format!("{}: only in the first", name(old)));
            continue;
        };
        let results = (reports::results(old), reports::results(new));
        let width = |row: &Throughput| match row.upper_pps {
            Some(upper) if row.lower_pps > 0.0 => upper / row.lower_pps - 1.0,
            _ => 0.0,
        };
        found.rows.extend(row(
            name(old),
            "frames/s",
            Good::More,
            (&results.0, &results.1),
            (width(old), width(new)),
            THROUGHPUT_MARGIN,
        ));
        // Goals of one search cost the same.
        if old.goal != "throughput" && old.loss_ratio > 0.0 {
            continue;
        }
        let ticks = ([old.ticks_per_packet], [new.ticks_per_packet]);
        if ticks.0[0] > 0.0 && ticks.1[0] > 0.0 {
            found.rows.extend(row(
                format!("{} B: cost", old.frame_bytes),
                "ticks/packet",
                Good::Less,
                (&ticks.0, &ticks.1),
                (0.0, 0.0),
                THROUGHPUT_MARGIN,
            ));
        }
    }
    for new in &after.throughput {
        if !before.throughput.iter().any(|old| same(old, new)) {
            found
                .notes
                .push(format!("{}: only in the second", name(new)));
        }
    }
}

fn latencies(found: &mut Comparison, before: &Report, after: &Report) {
    for old in &before.latency {
        let mut rows = after.latency.iter();
        let same = rows.find(|new| new.frame_bytes == old.frame_bytes && new.load == old.load);
        let Some(new) = same.filter(|new| new.latency.samples > 0 && old.latency.samples > 0)
        else {
            continue;
        };
        let what = format!("{} B: latency at {}", old.frame_bytes, old.load);
        if (new.pps / old.pps - 1.0).abs() > THROUGHPUT_MARGIN {
            found.notes.push(format!(
                "{what}: that is {:.3} Mpps, then {:.3} Mpps",
                old.pps / 1e6,
                new.pps / 1e6
            ));
        }
        let or = |all: &[f64], one: f64| match all {
            [] => vec![one],
            all => all.to_vec(),
        };
        let figures = [
            (
                "p50",
                or(&old.typical_ns, old.latency.p50_ns),
                or(&new.typical_ns, new.latency.p50_ns),
            ),
            (
                "p99.9",
                or(&old.worst_ns, old.latency.p999_ns),
                or(&new.worst_ns, new.latency.p999_ns),
            ),
        ];
        for (name, old, new) in figures {
            let what = format!("{what}, {name}");
            let margin = LATENCY_MARGIN;
            let values = (old.as_slice(), new.as_slice());
            found
                .rows
                .extend(row(what, "ns", Good::Less, values, (0.0, 0.0), margin));
        }
    }
}

fn bursts(found: &mut Comparison, before: &Report, after: &Report) {
    for old in &before.back_to_back {
        let mut rows = after.back_to_back.iter();
        let Some(new) = rows.find(|new| new.frame_bytes == old.frame_bytes) else {
            continue;
        };
        let values = |of: &[u64]| of.iter().map(|burst| *burst as f64).collect::<Vec<f64>>();
        let (old, new, size) = (values(&old.bursts), values(&new.bursts), old.frame_bytes);
        found.rows.extend(row(
            format!("{size} B: longest burst"),
            "frames",
            Good::More,
            (&old, &new),
            (0.01, 0.01),
            THROUGHPUT_MARGIN,
        ));
    }
}

/// Lost frames are counts: they differ if the difference is more than three of its standard
/// deviations.
fn soaks(found: &mut Comparison, before: &Report, after: &Report) {
    let (Some(old), Some(new)) = (&before.soak, &after.soak) else {
        return;
    };
    let due = |trial: &reports::Trial| trial.intended.max(trial.sent).max(1) as f64;
    let ppm = |trial: &reports::Trial| trial.lost as f64 / due(trial) * 1e6;
    // At least one: a count of 0 does not mean a rate of 0.
    let error = |trial: &reports::Trial| (trial.lost.max(1) as f64).sqrt() / due(trial) * 1e6;
    let (a, b) = (ppm(&old.trial), ppm(&new.trial));
    let margin = 3.0 * (error(&old.trial).powi(2) + error(&new.trial).powi(2)).sqrt();
    found.rows.push(Row {
        what: format!("{} B: lost in the soak", old.frame_bytes),
        unit: "ppm",
        before: a,
        after: b,
        ratio: (a > 0.0 && b > 0.0).then_some(b / a),
        interval: None,
        change: match b - a {
            more if more > margin => Change::Worse,
            more if more < -margin => Change::Better,
            _ => Change::Noise,
        },
    });
}

/// Other differences, and warnings.
fn notes(before: &Report, after: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differ = |what: &str, a: &str, b: &str| {
        if a != b {
            let or = |text: &str| {
                if text.is_empty() {
                    "none".into()
                } else {
                    text.to_string()
                }
            };
            notes.push(format!("{what} differs: {}, then {}", or(a), or(b)));
        }
    };
    differ("kind", &before.kind, &after.kind);
    differ("device", &before.device.name, &after.device.name);
    differ("label", &before.compliance.label, &after.compliance.label);
    let cores = (
        before.device.cores.to_string(),
        after.device.cores.to_string(),
    );
    differ("number of cores", &cores.0, &cores.1);
    for key in ["cpu_model", "cpus", "hypervisor", "kernel", "clock"] {
        let value = |report: &Report| match report.machine.get(key) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) if !value.is_null() => value.to_string(),
            _ => String::new(),
        };
        // A clock is calibrated anew each time; its source is the first word.
        let value = |report: &Report| match key {
            "clock" => value(report)
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_string(),
            _ => value(report),
        };
        let name = format!("machine's {}", key.replace('_', " "));
        differ(&name, &value(before), &value(after));
    }
    let facts = |report: &Report| [&report.path[..], &report.device.settings[..]].concat();
    let (old, new) = (facts(before), facts(after));
    for (key, value) in &old {
        let other = new.iter().find(|(name, _)| name == key);
        differ(key, value, other.map_or("", |(_, value)| value));
    }
    for (key, value) in &new {
        if !old.iter().any(|(name, _)| name == key) {
            differ(key, "", value);
        }
    }
    for (which, report) in [("first", before), ("second", after)] {
        if report.verdict.word != VerdictWord::Valid {
            notes.push(format!(
                "the {which} is {}: {}",
                report.verdict.word.name(),
                report
                    .verdict
                    .reasons
                    .first()
                    .map_or("", |reason| reason.as_str())
            ));
        }
        if report.interrupted {
            notes.push(format!("the {which} was interrupted"));
        }
    }
    notes
}

fn text(found: &Comparison, colour: bool) -> String {
    let mut out = String::new();
    for note in &found.notes {
        out.push_str(&format!("{} {note}\n", Tone::Warn.paint("note:", colour)));
    }
    let mut table = Table::new([
        Column::text("figure"),
        Column::number("before"),
        Column::number("after"),
        Column::text("unit"),
        Column::number("change"),
        Column::number("interval"),
        Column::text(""),
    ]);
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    for row in &found.rows {
        let (word, tone) = row.change.word();
        let value = |value: f64| match value {
            ..1e3 => format!("{value:.1}"),
            _ => format!("{value:.0}"),
        };
        table.row([
            Cell::new(&row.what),
            Cell::new(value(row.before)),
            Cell::new(value(row.after)),
            Cell::new(row.unit),
            Cell::new(row.ratio.map_or("-".into(), percent)),
            Cell::new(row.interval.map_or("-".into(), |(low, high)| {
                format!("{} to {}", percent(low), percent(high))
            })),
            Cell::new(word).tone(tone),
        ]);
    }
    out.push_str(&table.render(colour));
    let count = |change| found.rows.iter().filter(|row| row.change == change).count();
    let counts = [Change::Better, Change::Worse, Change::Noise]
        .map(|change| format!("{} {}", count(change), change.word().0));
    out + &counts.join(", ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Measurement;
    use crate::report::example;

    fn change(found: &Comparison, what: &str) -> Change {
        let row = found.rows.iter().find(|row| row.what == what);
        row.unwrap_or_else(|| panic!("no {what} in {found:?}"))
            .change
    }

    #[test]
    fn the_same_device_in_other_runs_is_noise() {
        for seed in 1..8 {
            let found = compare(&example::rfc2544(1), &example::rfc2544(seed * 100));
            let worse = found.rows.iter().filter(|row| row.change != Change::Noise);
            // 95 % intervals miss the true value now and then.
            assert!(worse.count() <= 3, "seed {seed}:\n{}", text(&found, false));
            assert_eq!(change(&found, "1518 B: throughput"), Change::Noise);
        }
        let report = example::rfc2544(1);
        let found = compare(&report, &report);
        assert!(found.rows.iter().all(|row| row.change == Change::Noise));
        assert!(found.notes.is_empty(), "{:?}", found.notes);
    }

    #[test]
    fn a_tenth_more_or_less_is_seen_both_ways() {
        let slow = example::rfc2544(1);
        let mut fast = example::rfc2544(2);
        for row in &mut fast.throughput {
            let all = [&mut row.pps, &mut row.lower_pps];
            let all = all
                .into_iter()
                .chain(&mut row.upper_pps)
                .chain(&mut row.repeats);
            all.for_each(|pps| *pps *= 1.1);
        }
        for row in &mut fast.latency {
            let all = row.typical_ns.iter_mut().chain(&mut row.worst_ns);
            all.for_each(|ns| *ns *= 0.5);
        }
        let found = compare(&slow, &fast);
        assert_eq!(change(&found, "64 B: throughput"), Change::Better);
        assert_eq!(
            change(&found, "64 B: latency at throughput, p50"),
            Change::Better
        );
        let found = compare(&fast, &slow);
        assert_eq!(change(&found, "64 B: throughput"), Change::Worse);
        assert_eq!(
            change(&found, "64 B: latency at throughput, p99.9"),
            Change::Worse
        );
        assert!(text(&found, false).contains("worse"));
    }

    #[test]
    fn single_results_need_a_clear_difference() {
        let once = |share: f64| {
            let mut report = example::of(Measurement::Ndr, 3);
            for row in &mut report.throughput {
                row.repeats = vec![row.pps * share];
            }
            report
        };
        let found = compare(&once(1.0), &once(1.04));
        assert_eq!(change(&found, "64 B: NDR"), Change::Noise);
        let found = compare(&once(1.0), &once(1.15));
        assert_eq!(change(&found, "64 B: PDR"), Change::Better);
        let found = compare(&once(1.0), &once(0.0));
        assert_eq!(change(&found, "64 B: PDR"), Change::Worse);
    }

    #[test]
    fn other_differences_of_two_reports_are_noted() {
        let before = example::rfc2544(1);
        let mut after = before.clone();
        after.device.name = "Linux bridge".into();
        after.machine["kernel"] = "7.0".into();
        after.path[2].1 = "4096".into();
        after.path.push(("copy".into(), "yes".into()));
        after.throughput.remove(0);
        after.interrupted = true;
        after.verdict.word = VerdictWord::Noisy;
        let found = compare(&before, &after);
        let all = found.notes.join("\n");
        for wanted in [
            "device differs: linerate l2fwd, then Linux bridge",
            "machine's kernel differs: 6.18.44, then 7.0",
            "ring size differs: 1024, then 4096",
            "copy differs: none, then yes",
            "64 B: throughput: only in the first",
            "the second is noisy",
            "interrupted",
        ] {
            assert!(all.contains(wanted), "{wanted} in\n{all}");
        }
    }

    #[test]
    fn soaks_are_compared_by_their_losses() {
        let report = |lost| {
            let mut report = example::of(Measurement::Soak, 3);
            report.soak.as_mut().unwrap().trial.lost = lost;
            report
        };
        let what = "64 B: lost in the soak";
        assert_eq!(
            change(&compare(&report(0), &report(2)), what),
            Change::Noise
        );
        assert_eq!(
            change(&compare(&report(0), &report(50)), what),
            Change::Worse
        );
        assert_eq!(
            change(&compare(&report(500), &report(50)), what),
            Change::Better
        );
    }

    #[test]
    fn the_exit_code_and_errors_are_those_promised() {
        let folder = linerate_core::env::PrivateFolder::new("diff").unwrap();
        let file = |name: &str, report: &Report| {
            let path = folder.join(name);
            reports::Output::reserve(&path)
                .unwrap()
                .write(&reports::json(report))
                .unwrap();
            path
        };
        let mut slow = example::of(Measurement::Throughput, 3);
        let fast = file("fast", &slow);
        for row in &mut slow.throughput {
            row.repeats.iter_mut().for_each(|pps| *pps *= 0.5);
        }
        let slow = file("slow", &slow);
        let loss = file("loss", &example::of(Measurement::Loss, 3));
        let diff = |before: &PathBuf, after: &PathBuf| {
            run(&Args {
                before: before.clone(),
                after: after.clone(),
                json: false,
            })
        };
        assert!(matches!(diff(&fast, &slow), Err(Error::Found(WORSE))));
        assert!(diff(&slow, &fast).is_ok() && diff(&slow, &slow).is_ok());
        let nothing = diff(&fast, &loss).unwrap_err();
        assert!(
            nothing.to_string().contains("no result in common"),
            "{nothing}"
        );
        let absent = folder.join("absent.json");
        assert!(
            diff(&fast, &absent)
                .unwrap_err()
                .to_string()
                .contains("absent.json")
        );
    }
}
