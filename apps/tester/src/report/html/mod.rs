//! The report as one page: the verdict on top, then charts with their tables, then everything that
//! is needed to judge them.

mod charts;
mod tables;

use std::fmt::Write;

use serde_json::Value;

use super::text::grouped;
use super::{Report, Throughput, VerdictWord, line_percent, lost_ppm, times};
use crate::chart::{duration, escape, plain, short};
use crate::html::document;

/// One self-contained page.
pub(crate) fn html(report: &Report) -> String {
    let mut body = String::new();
    head(&mut body, report);
    charts::throughput(&mut body, report);
    tables::throughput(&mut body, report);
    tables::beside(&mut body, report);
    charts::profiles(&mut body, report);
    tables::connections(&mut body, report);
    charts::spread(&mut body, report);
    charts::latency(&mut body, report);
    tables::latency(&mut body, report);
    charts::loss(&mut body, report);
    tables::bursts(&mut body, report);
    charts::soak(&mut body, report);
    charts::scaling(&mut body, report);
    tables::self_test(&mut body, report);
    conditions(&mut body, report);
    let title = format!(
        "linerate bench {}: {}",
        report.kind,
        report.verdict.word.name()
    );
    document(&escape(&title), &body)
}

/// A number with thin blanks between its groups.
fn figure(value: f64) -> String {
    grouped(value).replace(' ', "\u{202f}")
}

/// What a rate is written in: `(1e6, "Mpps")`.
fn scale(most: f64) -> (f64, &'static str) {
    match most {
        ..1e3 => (1.0, "frames/s"),
        ..1e6 => (1e3, "thousand frames/s"),
        _ => (1e6, "million frames/s"),
    }
}

/// A heading with the sentence below it.
fn section(body: &mut String, title: &str, note: &str) {
    let _ = write!(body, "<h2>{title}</h2><p class=\"note\">{note}</p>");
}

fn head(body: &mut String, report: &Report) {
    let name = match report.device.name.as_str() {
        "" => "the device",
        name => name,
    };
    let title = match report.kind.as_str() {
        "rfc2544" => "RFC 2544",
        "ndr" => "NDR and PDR",
        "throughput" => "Throughput",
        "latency" => "Latency",
        "loss" => "Frame loss",
        "back2back" => "Back-to-back frames",
        "soak" => "Soak",
        other => other,
    };
    let _ = write!(
        body,
        "<h1>{} of {}</h1><p class=\"dim\">{}{}</p>",
        escape(title),
        escape(name),
        escape(&report.began),
        match report.seconds {
            0.0 => String::new(),
            seconds => format!(", {} long", duration_s(seconds)),
        }
    );
    let said: Vec<(String, String)> = report
        .notes()
        .map(|(what, said)| (what.into(), escape(said)))
        .collect();
    if !said.is_empty() {
        body.push_str(&list_of(&said));
    }
    verdict(body, report);
    facts(body, report);
}

fn duration_s(seconds: f64) -> String {
    match seconds as u64 {
        ..120 => format!("{seconds:.0} s"),
        whole @ ..7200 => format!("{} min {} s", whole / 60, whole % 60),
        whole => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

fn verdict(body: &mut String, report: &Report) {
    let (class, meaning) = match report.verdict.word {
        VerdictWord::Valid => (
            "good",
            "Nothing was seen that speaks against these figures.",
        ),
        VerdictWord::SharedMachine => (
            "warn",
            "Others took so much of the CPUs that they are in the figures.",
        ),
        VerdictWord::Noisy => (
            "warn",
            "Repeated results differ too much to rely on one of them.",
        ),
        VerdictWord::GeneratorLimited => (
            "warn",
            "The generator, not the device, was the limit: the device may do more.",
        ),
        VerdictWord::Incomplete => (
            "warn",
            "It ended before it was done: what is here is no result yet.",
        ),
        VerdictWord::Failed => ("bad", "These are no results."),
    };
    let _ = write!(
        body,
        "<div class=\"verdict {class}\"><p><b>{}</b> <span class=\"chip\">{}</span>{}</p>\
         <p>{meaning}</p>",
        report.verdict.word.name(),
        escape(&report.compliance.label),
        match report.interrupted {
            true => " <span class=\"chip\">interrupted</span>",
            false => "",
        }
    );
    list(body, &report.verdict.reasons);
    body.push_str("</div>");
}

fn list(body: &mut String, items: &[String]) {
    if items.is_empty() {
        return;
    }
    body.push_str("<ul class=\"plain\">");
    for item in items {
        let _ = write!(body, "<li>{}</li>", escape(item));
    }
    body.push_str("</ul>");
}

/// The main figures.
fn facts(body: &mut String, report: &Report) {
    let mut facts: Vec<(String, String)> = Vec::new();
    let rows = &report.throughput;
    if let Some(first) = rows.first() {
        let (unit, name) = scale(first.pps);
        let of = goal(first);
        facts.push((
            short_rate(first.pps / unit),
            format!("{name} at {} B{of}", first.frame_bytes),
        ));
        if let Some(percent) = line_percent(first) {
            facts.push((
                format!("{percent:.1} %"),
                format!("of line at {} B", first.frame_bytes),
            ));
        }
        let best = rows
            .iter()
            .max_by(|a, b| a.l1_bps.total_cmp(&b.l1_bps))
            .unwrap_or(first);
        facts.push((
            short_rate(best.l1_bps * 1e-9),
            format!("Gbit/s L1 at best ({} L2)", short_rate(best.l2_bps * 1e-9)),
        ));
        let lost: f64 = rows
            .iter()
            .map(|row| lost_ppm(&row.quoted))
            .fold(0.0, f64::max);
        facts.push((short(lost), "ppm lost at most, as quoted".into()));
    }
    if let Some(row) = report.latency.iter().find(|row| row.latency.samples > 0) {
        facts.push((
            duration(row.latency.p99_ns),
            format!("p99 latency, {} B at {}", row.frame_bytes, row.load),
        ));
    }
    for baseline in &report.baselines {
        if let Some(found) = baseline
            .throughput
            .first()
            .and_then(|row| times(report, row))
        {
            facts.push((
                format!("{}×", short(found.ratio)),
                format!("of {}", baseline.name),
            ));
        }
    }
    if let Some(soak) = &report.soak {
        facts.push((
            figure(soak.trial.lost as f64),
            "frames lost in the soak".into(),
        ));
    }
    body.push_str("<div class=\"facts\">");
    for (value, what) in facts {
        let _ = write!(
            body,
            "<div><b>{}</b><span>{}</span></div>",
            escape(&value),
            escape(&what)
        );
    }
    body.push_str("</div>");
}

/// ` (NDR)`, or nothing for the plain throughput.
fn goal(row: &Throughput) -> String {
    match row.goal.as_str() {
        "throughput" | "" => String::new(),
        goal => format!(" ({goal})"),
    }
}

/// Enough digits to distinguish rates.
fn short_rate(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Everything needed to judge or reproduce the figures.
fn conditions(body: &mut String, report: &Report) {
    let departures = &report.compliance.departures;
    if !departures.is_empty() {
        section(
            body,
            "Not as the RFCs have it",
            "What the label leaves out.",
        );
        list(body, departures);
    }
    if !report.preflight.is_empty() {
        section(body, "Preflight", "Looked at before the run.");
        body.push_str("<div class=\"scroll\"><table>");
        for check in &report.preflight {
            let (class, mark) = match check.well {
                true => ("good", "✓"),
                false => ("warn", "✗"),
            };
            let _ = write!(
                body,
                "<tr><td><span class=\"{class}\"><span class=\"tone\">{mark}</span></span> {}</td>\
                 <td class=\"wide\">{}</td></tr>",
                escape(&check.what),
                escape(&check.seen)
            );
        }
        body.push_str("</table></div>");
    }
    let mut run = vec![(
        "command".to_string(),
        format!("<code>{}</code>", escape(&report.command)),
    )];
    run.push(("seed".into(), report.seed.to_string()));
    for goal in &report.goals {
        run.push((
            escape(&format!("goal {}", goal.name)),
            format!(
                "final trial {} s, duration sum {} s, loss ratio {} %, exceed ratio {} %, width \
                 {} %",
                plain(goal.trial_seconds),
                plain(goal.sum_seconds),
                plain(goal.loss_ratio * 100.0),
                plain(goal.exceed_ratio * 100.0),
                plain(goal.width * 100.0)
            ),
        ));
    }
    let escaped = |pairs: &[(String, String)]| -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(key, value)| (escape(key), escape(value)))
            .collect()
    };
    pairs(body, "Run", &run);
    let mut device = escaped(&report.device.settings);
    if report.device.cores > 0 {
        device.push(("cores".into(), report.device.cores.to_string()));
    }
    if let Some(link) = report.device.link_bps {
        device.push(("link".into(), format!("{} Gbit/s", plain(link * 1e-9))));
    } else {
        device.push(("link".into(), "no wire: no line rate".into()));
    }
    device.push(("directions".into(), report.device.directions.to_string()));
    pairs(body, "Device", &device);
    pairs(body, "Path", &escaped(&report.path));
    if let Value::Object(machine) = &report.machine {
        let facts = machine
            .iter()
            .map(|(key, value)| (escape(&key.replace('_', " ")), escape(&spell(value))));
        pairs(body, "Machine", &facts.collect::<Vec<_>>());
    }
}

/// A list of facts; keys and values are HTML already.
fn pairs(body: &mut String, title: &str, pairs: &[(String, String)]) {
    if pairs.is_empty() {
        return;
    }
    let _ = write!(body, "<h2>{title}</h2>{}", list_of(pairs));
}

fn list_of(pairs: &[(String, String)]) -> String {
    let rows = pairs
        .iter()
        .map(|(key, value)| format!("<dt>{key}</dt><dd>{value}</dd>"));
    format!("<dl>{}</dl>", rows.collect::<String>())
}

/// A JSON value for people.
fn spell(value: &Value) -> String {
    match value {
        Value::Null => "unknown".into(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::Number(number) => match number.as_f64() {
            Some(value) if value.fract() != 0.0 => plain((value * 1e4).round() / 1e4),
            Some(value) if value >= 1e6 => figure(value),
            _ => number.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(spell).collect::<Vec<_>>().join(", "),
        Value::Object(members) => {
            let one = |(key, value): (&String, &Value)| {
                format!("{} {}", key.replace('_', " "), spell(value))
            };
            members.iter().map(one).collect::<Vec<_>>().join(" ")
        }
    }
}
