//! Tables that text and page share: subjects beside each other.

use super::profile::{Role, functions};
use super::text::{NONE, grouped, may};
use super::{Connections, Profile, Report, Throughput};
use crate::method::spelled;

/// A table: headings, and as many cells in each row. The first column is text, the others numbers.
pub(super) struct Grid {
    pub(super) headings: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Throughput and ticks for a packet by size, the device first; nothing without two baselines: one
/// has a table of its own.
pub(super) fn beside(report: &Report) -> Option<Grid> {
    if report.baselines.len() < 2 || report.throughput.is_empty() {
        return None;
    }
    let device = (report.device.name.as_str(), report.throughput.as_slice());
    let baselines = report.baselines.iter();
    let baselines = baselines.map(|one| (one.name.as_str(), one.throughput.as_slice()));
    let subjects: Vec<(&str, &[Throughput])> = [device].into_iter().chain(baselines).collect();
    let mut sizes: Vec<usize> = report
        .throughput
        .iter()
        .map(|row| row.frame_bytes)
        .collect();
    sizes.dedup();
    let cell = |rows: &[Throughput], of: fn(&Throughput) -> String, size: usize| {
        let row = rows.iter().find(|row| row.frame_bytes == size);
        row.map_or(NONE.to_string(), of)
    };
    let rate = |row: &Throughput| grouped(row.pps);
    let ticks = |row: &Throughput| {
        let known = (row.ticks_per_packet > 0.0).then_some(row.ticks_per_packet);
        may(known, |ticks| format!("{ticks:.1}"))
    };
    let row = |(name, rows): &(&str, &[Throughput])| {
        let sizes = sizes.iter();
        let rates = sizes.clone().map(|&size| cell(rows, rate, size));
        let first = sizes.take(1).map(|&size| cell(rows, ticks, size));
        [(*name).to_string()]
            .into_iter()
            .chain(rates)
            .chain(first)
            .collect()
    };
    let headings = sizes.iter().map(|size| format!("{size} B"));
    let ticks = sizes
        .iter()
        .take(1)
        .map(|size| format!("ticks/pkt, {size} B"));
    Some(Grid {
        headings: [String::new()]
            .into_iter()
            .chain(headings)
            .chain(ticks)
            .collect(),
        rows: subjects.iter().map(row).collect(),
    })
}

/// Each profile with its roles, by the name of the column that each of them has.
pub(super) fn roles(report: &Report) -> Vec<(String, Role)> {
    let named = |profile: &Profile| {
        let roles = profile.roles();
        let several = roles.len() > 1;
        let name = move |subject: &str, role: &Role| match several {
            true => format!("{subject}: {} {}", role.lcores, role.name),
            false => subject.to_string(),
        };
        let subject = profile.subject.clone();
        let roles = roles.into_iter();
        roles
            .map(move |role| (name(&subject, &role), role))
            .collect::<Vec<_>>()
    };
    report.profiles.iter().flat_map(named).collect()
}

/// Shorter names, since there is little room below a bar and above a column: form and role, and
/// rules where they are others than those of the first.
pub(super) fn labels(names: &[String]) -> Vec<String> {
    let rules = |name: &str| {
        let subject = name.split(": ").next().unwrap_or_default();
        subject.split(", ").nth(2).map(str::to_string)
    };
    let first = names.first().and_then(|name| rules(name));
    let short = |name: &String| {
        let (subject, role) = name.split_once(": ").unwrap_or((name, ""));
        let role = role.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let mut words: Vec<String> = Vec::new();
        words.push(subject.split(", ").nth(1).unwrap_or(subject).into());
        words.extend(Some(role).filter(|role| !role.is_empty()).map(String::from));
        words.extend(rules(name).filter(|rules| Some(rules) != first.as_ref()));
        words.join(" ")
    };
    names.iter().map(short).collect()
}

/// Ticks for a forwarded packet by function, and its share; the functions that nobody has are left
/// out.
pub(super) fn profile(report: &Report) -> Option<Grid> {
    let (names, all): (Vec<String>, Vec<Role>) = roles(report).into_iter().unzip();
    if all.is_empty() {
        return None;
    }
    let mut rows = Vec::new();
    for (name, what) in functions(&all) {
        let cells = all.iter().map(|role| {
            let found = role.functions.iter().find(|function| function.name == name);
            may(found.map(|found| found.ticks), |ticks| {
                let percent = found.map_or(0.0, |found| found.percent);
                format!("{ticks:.1} ({percent:.1} %)")
            })
        });
        let named = match what {
            "" => name.to_string(),
            what => format!("{name}: {what}"),
        };
        rows.push([named].into_iter().chain(cells).collect());
    }
    let sums = |what: &str, of: fn(&Role) -> String| {
        [what.to_string()]
            .into_iter()
            .chain(all.iter().map(of))
            .collect()
    };
    rows.push(sums("all", |role| format!("{:.1}", role.ticks)));
    let waits = |role: &Role| format!("{:.1} %", 100.0 - role.busy_percent);
    rows.push(sums("waiting, of their time", waits));
    Some(Grid {
        headings: ["function".to_string()]
            .into_iter()
            .chain(labels(&names))
            .collect(),
        rows,
    })
}

/// Rates of connections, and how many are known at once.
pub(super) fn connections(report: &Report) -> Option<Grid> {
    let row = |row: &Connections| {
        let [set_up, torn_down, capacity] = spelled(row);
        vec![
            row.subject.clone(),
            row.connections.to_string(),
            set_up,
            torn_down,
            capacity,
            row.trials.to_string(),
        ]
    };
    let headings = ["", "opened", "set up", "torn down", "capacity", "trials"];
    (!report.connections.is_empty()).then(|| Grid {
        headings: headings.map(String::from).to_vec(),
        rows: report.connections.iter().map(row).collect(),
    })
}
