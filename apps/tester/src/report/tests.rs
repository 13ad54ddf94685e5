//! Every form of a report has all its content.

use super::{Profile, Report, VerdictWord, csv, example, html, json, read, text};
use crate::method::Measurement;
use linerate_appliance::error::Error;
use linerate_core::env::PrivateFolder;

fn all() -> Vec<Report> {
    let others = Measurement::ALL
        .into_iter()
        .filter(|kind| *kind != Measurement::Rfc2544);
    let mut all: Vec<Report> = others.map(|kind| example::of(kind, 7)).collect();
    all.push(example::rfc2544(7));
    all.push(Report::default());
    all
}

/// Whether two lines are equal up to rounding of numbers.
fn same(a: &str, b: &str) -> bool {
    let number = |line: &str| {
        let value = line.rsplit(' ').next().unwrap_or_default();
        value.trim_end_matches(',').parse::<f64>().ok()
    };
    match (number(a), number(b)) {
        (Some(a), Some(b)) => (a - b).abs() <= a.abs() * 1e-12,
        _ => a == b,
    }
}

#[test]
fn json_reads_back_as_it_was_written() {
    let folder = PrivateFolder::new("report").unwrap();
    let path = folder.join("back.json");
    for mut report in all() {
        report.version = super::VERSION;
        let text = json(&report);
        std::fs::write(&path, &text).unwrap();
        let back = json(&read(&path).unwrap());
        assert_eq!(
            text.lines().count(),
            back.lines().count(),
            "{}",
            report.kind
        );
        for (one, two) in text.lines().zip(back.lines()) {
            assert!(same(one, two), "{one} | {two}");
        }
    }
}

#[test]
fn what_is_no_report_is_named_with_what_to_do() {
    let folder = PrivateFolder::new("report").unwrap();
    let path = folder.join("bad.json");
    let cases = [
        ("", "not a report"),
        ("{}", "no `version`"),
        ("{\"version\": 99}", "version 99"),
        ("{\"version\": 1, \"kind\": 5}", "not a report"),
        ("[1, 2]", "no `version`"),
    ];
    for (text, wanted) in cases {
        std::fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(wanted) && said.contains("bad.json"), "{said}");
        assert!(error.fix().is_some());
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(read(&path), Err(Error::File { .. })));
}

/// Functions of all profiles.
fn functions(report: &Report) -> usize {
    let roles = report.profiles.iter().flat_map(Profile::roles);
    roles.map(|role| role.functions.len()).sum()
}

/// The forms of a gateway beside each other.
#[test]
fn a_profile_is_in_every_form() {
    let report = example::rfc2544(7);
    let text = text(&report, false);
    let lines: Vec<&str> = text.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.starts_with("What a packet costs"));
    let table = &lines[at.unwrap() + 1..];
    assert!(table[0].contains("dispatcher eu"), "{text}");
    let row = |name: &str| table.iter().find(|line| line.starts_with(name)).unwrap();
    assert!(
        row("flow_lookup: flow table").contains("50.0 (35.7 %)"),
        "{text}"
    );
    assert!(row("waiting").ends_with("50.0 %"), "{text}");
    assert!(text.contains("780.5 k/s"), "{text}");
    let page = html(&report);
    assert!(page.contains("780.5 k/s") && page.contains("261120"));
    assert!(page.contains("What a packet costs, by function"));
    assert!(page.contains("50.0 (35.7 %)"));
    let csv = csv(&report);
    let hand_over = csv
        .lines()
        .find(|line| line.contains("profile,") && line.contains("hand_over"));
    assert!(hand_over.unwrap().contains(",9,"), "{hand_over:?}");
}

#[test]
fn csv_has_a_row_for_each_result_and_a_value_or_nothing_in_each_column() {
    for report in all() {
        let text = csv(&report);
        let rows = report.throughput.len()
            + report
                .baselines
                .iter()
                .map(|of| of.throughput.len())
                .sum::<usize>()
            + report.latency.len()
            + report.loss.len()
            + report.back_to_back.len()
            + report.recovery.len()
            + usize::from(report.soak.is_some())
            + report.self_test.len()
            + report.scaling.len()
            + functions(&report)
            + report.connections.len() * 3;
        assert_eq!(text.lines().count(), rows + 1, "{}", report.kind);
        for line in text.lines() {
            let mut inside = false;
            let commas = line.chars().filter(|letter| {
                inside ^= *letter == '"';
                *letter == ',' && !inside
            });
            assert_eq!(commas.count() + 1, csv::COLUMNS.len(), "{line}");
            assert!(!line.contains("NaN") && !line.contains("inf"), "{line}");
        }
    }
    let page = include_str!("../../../../docs/bench-reports.md");
    for (name, meaning) in csv::COLUMNS {
        assert!(
            page.contains(&format!("| `{name}` | {meaning} |")),
            "{name} is not documented"
        );
    }
}

#[test]
fn the_text_has_the_verdict_first_and_the_columns_of_an_rfc2544_report() {
    let report = example::rfc2544(7);
    let text = text(&report, false);
    assert!(
        text.starts_with("valid  rfc2544 of linerate l2fwd, NDR-1s\n"),
        "{text}"
    );
    let at = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("no {what} in\n{text}"))
    };
    assert!(at("frames/s") < at("Mbit/s L2") && at("Mbit/s L2") < at("Mbit/s L1"));
    for what in [
        "% line",
        "ppm",
        "p10",
        "ticks/pkt",
        "Linux bridge",
        "corrected",
        "p99.99",
    ] {
        at(what);
    }
    let row = text.lines().find(|line| line.starts_with("1518 ")).unwrap();
    assert!(row.contains("812 744") && row.contains("100.00"), "{row}");
}

#[test]
fn rates_of_the_t1_report_are_shown_as_it_should_have() {
    // 64 B, 152 380 691.7 frames/s on 160 Gbit/s: 78 018.9 Mbit/s L2, which is 102 399.8 L1 and 64
    // %.
    let mut report = example::of(Measurement::Throughput, 7);
    let row = &mut report.throughput[0];
    row.pps = 152_380_691.7;
    row.line_pps = Some(linerate_traffic::units::line_rate_pps(160e9, 64.0));
    row.l2_bps = linerate_traffic::units::l2_bps(row.pps, 64.0);
    row.l1_bps = linerate_traffic::units::l1_bps(row.pps, 64.0);
    row.quoted.intended = 1_523_809_520;
    row.quoted.sent = 1_523_809_520;
    row.quoted.received = 1_523_809_309;
    row.quoted.lost = 211;
    let text = text(&report, false);
    let row = text.lines().find(|line| line.starts_with("64 ")).unwrap();
    for figure in ["152 380 692", "78018.9", "102399.8", "64.00", "211", "0.1"] {
        assert!(row.contains(figure), "{figure} in {row}");
    }
}

#[test]
fn pages_are_whole_and_need_nothing_else() {
    for report in all() {
        let page = html(&report);
        for bad in ["NaN", "inf ", "http://", "https://", "src=", "<script"] {
            assert!(!page.contains(bad), "{}: {bad}", report.kind);
        }
        assert!(page.contains(report.verdict.word.name()));
        for tag in ["div", "table", "svg", "ul", "dl", "tr", "p"] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(
                opened,
                page.matches(&format!("</{tag}>")).count(),
                "{}: {tag}",
                report.kind
            );
        }
    }
    let mut report = example::rfc2544(7);
    report.tester = Some("Jo Tester".into());
    report.note = Some("order <7>".into());
    let page = html(&report);
    assert!(text(&report, false).contains("tester: Jo Tester\n  note: order <7>\n"));
    // More columns do not fit a page.
    for table in page.split("<thead>").skip(1) {
        let head = table.split("</thead>").next().unwrap_or_default();
        assert!(head.matches("<th").count() <= 14, "{head}");
    }
    // Of no use to a user of the device.
    assert!(!page.contains("ticks of a clock"));
    for part in [
        "Throughput by frame size",
        "Per port",
        "All ports (2)",
        "From run to run",
        "by load",
        "Latency by frame size",
        "@media print",
        "Jo Tester",
        "order &lt;7&gt;",
        "Loss against",
        "Back-to-back",
        "Recovery",
        "Scaling by cores",
        "by itself",
        "Preflight",
        "Machine",
        "theoretical",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn names_from_outside_do_not_break_the_page() {
    let mut report = example::rfc2544(7);
    report.device.name = "<b>\"&".into();
    report.baselines[0].name = "<i>".into();
    report.verdict.reasons.push("<u>".into());
    report.path.push(("<s>".into(), "<em>".into()));
    let page = html(&report);
    for raw in ["<b>\"", "<i>", "<u>", "<s>", "<em>"] {
        assert!(!page.contains(raw), "{raw}");
    }
}

#[test]
fn exit_codes_tell_verdicts_apart() {
    let words = [
        VerdictWord::Valid,
        VerdictWord::SharedMachine,
        VerdictWord::Noisy,
        VerdictWord::GeneratorLimited,
        VerdictWord::Incomplete,
        VerdictWord::Failed,
    ];
    assert_eq!(words.map(VerdictWord::exit_code), [0, 4, 5, 6, 8, 7]);
    for word in words {
        let said = serde_json::to_value(word).unwrap();
        assert_eq!(said, word.name());
    }
}

/// Of the reports in the documents.
fn kept() -> Report {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reports");
    let path = std::path::Path::new(root).join("throughput-l2fwd-2mpps.json");
    read(&path).unwrap()
}

#[test]
fn a_report_without_the_newer_members_is_read_and_shown() {
    let report = kept();
    assert_eq!(report.throughput.len(), 7);
    assert!(report.throughput.iter().all(|row| row.quoted.missed == 0));
    assert!(html(&report).contains("valid"));
}

/// Writes the pages to look at:
/// `LINERATE_PAGES=/tmp/pages cargo test -- --ignored pages_to_look_at`.
#[test]
#[ignore = "writes pages to look at"]
fn pages_to_look_at() {
    let Some(folder) = std::env::var_os("LINERATE_PAGES") else {
        return;
    };
    let folder = std::path::Path::new(&folder);
    std::fs::write(folder.join("kept.html"), html(&kept())).unwrap();
    for report in all() {
        let path = folder.join(format!("{}.html", report.kind));
        std::fs::write(&path, html(&report)).unwrap();
        std::fs::write(path.with_extension("txt"), text(&report, false)).unwrap();
    }
}
