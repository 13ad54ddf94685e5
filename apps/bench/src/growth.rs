//! `bench growth`: how each table grows with what it holds, in time and in memory.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use linerate_core::env::Clock;
use serde::Serialize;

use linerate_appliance::error::Error;
use linerate_appliance::output::{self, MachineFacts};
use linerate_micro::{Growth, Run, cpus, growths};
use linerate_tester::chart::{Curve, count, curves, duration, escape};
use linerate_tester::html::document;

#[derive(clap::Parser)]
pub(crate) struct Args {
    /// Tables, by name or prefix; all when absent
    tables: Vec<String>,
    /// Seconds that each point is measured
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// The CPU to pin to
    #[arg(long, value_name = "CPU")]
    cpus: Option<String>,
    /// One JSON object per point
    #[arg(long)]
    json: bool,
    /// Also write the curves as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Serialize)]
struct Line {
    table: &'static str,
    of: &'static str,
    size: u64,
    ns: f64,
    bytes_each: f64,
}

impl Line {
    fn text(&self) -> String {
        format!(
            "{:24} {:>8} {:8} {:10.2} ns {:12.1} bytes each",
            self.table,
            count(self.size as f64),
            self.of,
            self.ns,
            self.bytes_each
        )
    }
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let named = |growth: &&Growth| {
        let begins = |prefix: &String| growth.name.starts_with(prefix.as_str());
        args.tables.is_empty() || args.tables.iter().any(begins)
    };
    let growths: Vec<&Growth> = growths().filter(named).collect();
    if growths.is_empty() {
        return Err(crate::no_such_row(&args.tables));
    }
    let clock = Clock::calibrate();
    let machine = MachineFacts::gather(&clock)?;
    let mut lines = Vec::new();
    for growth in growths {
        for &size in growth.sizes {
            let line = measure(growth, size, args)?;
            let text = match args.json {
                true => serde_json::to_string(&line).map_err(std::io::Error::from)?,
                false => line.text(),
            };
            output::print(&format!("{text}\n"))?;
            lines.push(line);
        }
    }
    match &args.html {
        Some(path) => {
            std::fs::write(path, page(&machine.line(), &lines)).map_err(|source| Error::File {
                path: path.into(),
                source,
            })
        }
        None => Ok(()),
    }
}

fn measure(growth: &Growth, size: u64, args: &Args) -> Result<Line, Error> {
    let run = Run {
        duration: Duration::from_secs_f64(args.seconds.clamp(0.001, 3600.0)),
        cpus: cpus(args.cpus.as_deref())?,
        quick: false,
    };
    let point = (growth.run)(size, run)?;
    Ok(Line {
        table: growth.name,
        of: growth.of,
        size,
        ns: point.ns,
        bytes_each: point.bytes_each,
    })
}

/// The curves, those of one room (`exact`, `lpm4`, ...) in one pair of charts, with all values
/// below.
fn page(machine: &str, lines: &[Line]) -> String {
    let mut body = format!(
        "<h1>How the tables grow</h1><p class=\"dim\">{}</p><p class=\"note\">Time of one lookup \
         in a burst on one core, and all memory of the table over what it holds. Both scales are \
         logarithmic: a flat line costs the same at any size.</p>",
        escape(machine)
    );
    let room = |line: &Line| line.table.split('.').next().unwrap_or_default();
    for lines in lines.chunk_by(|a, b| room(a) == room(b)) {
        let tables: Vec<&[Line]> = lines.chunk_by(|a, b| a.table == b.table).collect();
        let of = lines[0].of;
        let curve = |value: fn(&Line) -> f64| -> Vec<Curve> {
            let points = |table: &[Line]| {
                let point = |line: &Line| (line.size as f64, value(line).max(0.01));
                table.iter().map(point).collect()
            };
            let tables = tables.iter().enumerate();
            tables
                .map(|(colour, table)| Curve {
                    name: table[0].table,
                    colour: colour % 8,
                    dashed: false,
                    points: points(table),
                })
                .collect()
        };
        let _ = write!(
            body,
            "<h2>{}</h2><div class=\"pair\"><div>{}</div><div>{}</div></div>",
            escape(room(&lines[0])),
            curves("time per lookup", of, &curve(|line| line.ns), nanoseconds),
            curves("bytes each", of, &curve(|line| line.bytes_each), count),
        );
        body.push_str(
            "<div class=\"scroll\"><table><tr><th></th><th>size</th><th>ns</th><th>bytes \
            each</th></tr>",
        );
        for line in lines {
            let _ = write!(
                body,
                "<tr><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.1}</td></tr>",
                escape(line.table),
                count(line.size as f64),
                line.ns,
                line.bytes_each
            );
        }
        body.push_str("</table></div>");
    }
    document("linerate: how the tables grow", &body)
}

fn nanoseconds(ns: f64) -> String {
    match ns {
        ..1.0 => format!("{ns} ns"),
        _ => duration(ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_curve_and_a_row_for_each_table() {
        let line = |table, size, ns| Line {
            table,
            of: "routes",
            size,
            ns,
            bytes_each: 8.0,
        };
        let lines = [
            line("lpm4.a", 10, 2.0),
            line("lpm4.a", 1000, 4.0),
            line("lpm4.b", 10, 3.0),
            line("exact", 10, 1.0),
        ];
        let page = page("a machine", &lines);
        assert_eq!(page.matches("<h2>").count(), 2);
        assert_eq!(page.matches("<polyline").count(), 2 * 6);
        let legend_marks = page.matches("class=\"key\"").count();
        // The second curve of a chart has other marks, and each legend shows one.
        let marks = page.matches("<circle").count() + page.matches("<polygon").count();
        assert_eq!(marks, 2 * 8 + legend_marks);
        assert_eq!(page.matches("<tr><td>").count(), 4);
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }
}
