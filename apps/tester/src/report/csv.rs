//! The CSV form: one row per result, empty where a column has no meaning for it.

use linerate_traffic::figures::Latency;
use linerate_traffic::units::{l1_bps, l2_bps};

use super::stats::{deviation, median, quantile};
use super::{Report, Throughput, Trial};

/// Name and meaning of each column, in order. Frame sizes include the FCS, rates are over all
/// directions.
pub(crate) const COLUMNS: &[(&str, &str)] = &[
    (
        "section",
        "`throughput` (also NDR, PDR), `baseline`, `latency`, `loss`, `back2back`, `recovery`, \
         `soak`, `self-test`, `scaling`, `profile`, \
         `connections`",
    ),
    ("subject", "the device, or the baseline's name"),
    ("frame_bytes", "frame size, FCS included"),
    (
        "load",
        "goal of the search, the load at which it was measured, or the function of a profile",
    ),
    ("verdict", "the report's verdict"),
    ("label", "what the results may be called"),
    ("pps", "the result, frames a second"),
    ("l2_bps", "bits a second, frames with FCS"),
    (
        "l1_bps",
        "bits a second with preamble and gap, 20 bytes a frame",
    ),
    ("line_percent", "of the line's rate; empty without a wire"),
    (
        "asked_pps",
        "frames a second asked for in the trial that is quoted",
    ),
    ("sent", "frames sent in it"),
    ("received", "frames received in it"),
    (
        "lost",
        "frames lost in it; what was not sent in time is lost too",
    ),
    ("lost_ppm", "lost for a million that were due"),
    ("unsent", "frames not sent in time"),
    ("trial_s", "its length in seconds"),
    ("lower_pps", "the search's lower bound"),
    (
        "upper_pps",
        "its upper bound; empty where all that could be offered went through",
    ),
    ("conditional_pps", "conditional throughput (RFC 9971)"),
    ("trials", "trials of the search"),
    ("repeats", "searches"),
    ("median_pps", "of the searches' results"),
    ("sd_pps", "their standard deviation"),
    ("p10_pps", "their 10th percentile"),
    ("p90_pps", "their 90th percentile"),
    (
        "connections",
        "opened at that rate, torn down at it, or known at once",
    ),
    ("cores", "of the device"),
    (
        "ticks_per_packet",
        "clock ticks of the device's cores for a packet; empty where they are not ours",
    ),
    (
        "ns_per_packet",
        "the same in ns; of a foreign device, time between packets",
    ),
    ("samples", "frames timed"),
    ("min_ns", "latency"),
    ("mean_ns", "latency"),
    ("p50_ns", "latency"),
    ("p90_ns", "latency"),
    ("p99_ns", "latency"),
    ("p999_ns", "latency, 99.9th percentile"),
    ("p9999_ns", "latency, 99.99th percentile"),
    ("max_ns", "latency"),
    ("pdv_ns", "delay variation: p99.9 less min"),
    (
        "jitter_ns",
        "mean difference of successive latencies (RFC 3550)",
    ),
    ("burst_mean", "frames of the longest burst without loss"),
    ("burst_min", "the shortest of the repeats"),
    ("burst_max", "the longest of the repeats"),
    ("burst_sd", "standard deviation of the repeats"),
    (
        "implied_buffer_s",
        "mean burst over the line's frame rate (RFC 9004)",
    ),
    (
        "corrected_buffer_s",
        "less what was forwarded meanwhile (RFC 9004)",
    ),
    (
        "recovery_ns",
        "from the drop of the load to the last lost frame (RFC 2544 26.5)",
    ),
];

/// A row under construction: values by column name.
struct Row(Vec<String>);

impl Row {
    fn new(report: &Report, section: &str, subject: &str, frame_bytes: usize) -> Self {
        let mut row = Self(vec![String::new(); COLUMNS.len()]);
        row.set("section", section);
        row.set("subject", subject);
        row.set("frame_bytes", frame_bytes);
        row.set("verdict", report.verdict.word.name());
        row.set("label", &report.compliance.label);
        row
    }

    fn set(&mut self, column: &str, value: impl ToString) {
        let at = COLUMNS.iter().position(|(name, _)| *name == column);
        let at = at.expect("rows name columns of the table above");
        self.0[at] = quoted(&value.to_string());
    }

    fn may(&mut self, column: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.set(column, value);
        }
    }

    fn rate(&mut self, pps: f64, frame_bytes: usize) {
        self.set("pps", pps);
        self.set("l2_bps", l2_bps(pps, frame_bytes as f64));
        self.set("l1_bps", l1_bps(pps, frame_bytes as f64));
    }

    fn trial(&mut self, trial: &Trial) {
        self.set("asked_pps", trial.asked_pps);
        self.set("sent", trial.sent);
        self.set("received", trial.received);
        self.set("lost", trial.lost);
        self.set("lost_ppm", super::lost_ppm(trial));
        self.set("unsent", trial.unsent);
        self.set("trial_s", trial.seconds);
    }

    fn latency(&mut self, latency: &Latency) {
        self.set("samples", latency.samples);
        if latency.samples == 0 {
            return;
        }
        let times = [
            ("min_ns", latency.min_ns),
            ("mean_ns", latency.mean_ns),
            ("p50_ns", latency.p50_ns),
            ("p90_ns", latency.p90_ns),
            ("p99_ns", latency.p99_ns),
            ("p999_ns", latency.p999_ns),
            ("p9999_ns", latency.p9999_ns),
            ("max_ns", latency.max_ns),
            ("jitter_ns", latency.jitter_ns),
        ];
        for (column, value) in times {
            self.may(column, Some(value));
        }
    }

    fn throughput(mut self, row: &Throughput, cores: u32) -> Self {
        self.set("load", &row.goal);
        self.rate(row.pps, row.frame_bytes);
        self.may("line_percent", super::line_percent(row));
        self.trial(&row.quoted);
        self.set("lower_pps", row.lower_pps);
        self.may("upper_pps", row.upper_pps);
        self.set("conditional_pps", row.conditional_pps);
        self.set("trials", row.trials.len());
        self.set("repeats", row.repeats.len());
        self.may("median_pps", median(&row.repeats));
        self.may("sd_pps", deviation(&row.repeats));
        self.may("p10_pps", quantile(&row.repeats, 0.1));
        self.may("p90_pps", quantile(&row.repeats, 0.9));
        self.may("cores", (cores > 0).then_some(f64::from(cores)));
        let known = row.ticks_per_packet > 0.0;
        self.may("ticks_per_packet", known.then_some(row.ticks_per_packet));
        self.set("ns_per_packet", row.ns_per_packet);
        self
    }
}

/// RFC 4180: quotes where a comma, a quote or a line's end is inside.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}

/// A heading and one row per result.
pub(crate) fn csv(report: &Report) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut text = names.join(",");
    text.push('\n');
    for row in rows(report) {
        text.push_str(&row.0.join(","));
        text.push('\n');
    }
    text
}

fn rows(report: &Report) -> Vec<Row> {
    let device = report.device.name.as_str();
    let mut rows = Vec::new();
    let row = |section, frame_bytes| Row::new(report, section, device, frame_bytes);
    for one in &report.throughput {
        rows.push(row("throughput", one.frame_bytes).throughput(one, report.device.cores));
    }
    for baseline in &report.baselines {
        for one in &baseline.throughput {
            let row = Row::new(report, "baseline", &baseline.name, one.frame_bytes);
            rows.push(row.throughput(one, 0));
        }
    }
    for one in &report.latency {
        let mut row = row("latency", one.frame_bytes);
        row.set("load", &one.load);
        row.rate(one.pps, one.frame_bytes);
        row.trial(&one.trial);
        row.latency(&one.latency);
        row.may("pdv_ns", (one.latency.samples > 0).then_some(one.pdv_ns));
        rows.push(row);
    }
    for one in &report.loss {
        let mut row = row("loss", one.frame_bytes);
        row.set(
            "load",
            format!("{}%", crate::chart::plain(one.offered_percent)),
        );
        row.rate(one.offered_pps, one.frame_bytes);
        row.trial(&one.trial);
        rows.push(row);
    }
    for one in &report.back_to_back {
        let mut row = row("back2back", one.frame_bytes);
        row.rate(one.burst_pps, one.frame_bytes);
        row.set("repeats", one.bursts.len());
        row.set("burst_mean", one.mean);
        row.set("burst_min", one.min);
        row.set("burst_max", one.max);
        row.set("burst_sd", one.sd);
        row.set("implied_buffer_s", one.implied_buffer_s);
        row.set("corrected_buffer_s", one.corrected_buffer_s);
        rows.push(row);
    }
    for one in &report.recovery {
        let mut row = row("recovery", one.frame_bytes);
        row.rate(one.overload_pps, one.frame_bytes);
        row.trial(&one.over);
        row.may("recovery_ns", one.recovery_ns);
        rows.push(row);
    }
    if let Some(one) = &report.soak {
        let mut row = row("soak", one.frame_bytes);
        row.rate(one.pps, one.frame_bytes);
        row.trial(&one.trial);
        row.latency(&one.latency);
        rows.push(row);
    }
    for one in &report.self_test {
        let mut row = Row::new(report, "self-test", "generator", one.frame_bytes);
        row.rate(one.max_pps, one.frame_bytes);
        row.latency(&one.latency);
        rows.push(row);
    }
    for one in &report.scaling {
        let mut row = row("scaling", one.frame_bytes);
        row.rate(one.pps, one.frame_bytes);
        row.set("cores", one.cores);
        rows.push(row);
    }
    for (subject, role) in super::grid::roles(report) {
        let frame_bytes = report.profiles.first().map_or(0, |one| one.frame_bytes);
        for function in &role.functions {
            let mut row = Row::new(report, "profile", &subject, frame_bytes);
            row.set("load", &function.name);
            row.set("cores", role.lcores);
            row.set("ticks_per_packet", function.ticks);
            rows.push(row);
        }
    }
    for one in &report.connections {
        let frame_bytes = report.throughput.first().map_or(0, |row| row.frame_bytes);
        for (load, pps, many) in [
            ("set-up", Some(one.set_up_pps), one.connections),
            ("tear-down", Some(one.torn_down_pps), one.connections),
            ("capacity", None, one.capacity),
        ] {
            let mut row = Row::new(report, "connections", &one.subject, frame_bytes);
            row.set("load", load);
            row.may("pps", pps);
            row.set("connections", many);
            row.set("trials", one.trials);
            rows.push(row);
        }
    }
    rows
}
