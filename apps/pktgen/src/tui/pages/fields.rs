//! Pages of fields that change from frame to frame: ranges, lists, random fields, and captures
//! replayed. They read the streams' one-line form, so that they show what a user would write.

use crate::stream::KEYS;
use crate::tui::grid::{Cell, Column, Grid};
use crate::tui::theme::Tone;
use crate::{Snapshot, StreamView};

/// How a key's value is written.
#[derive(Debug, PartialEq, Eq)]
enum Written<'a> {
    Fixed,
    /// First, last and step.
    Range(&'a str, &'a str, &'a str),
    /// Values in turn.
    List(Vec<&'a str>),
    /// Of what.
    Random(&'a str),
}

fn written<'a>(key: &str, value: &'a str) -> Written<'a> {
    let varies = KEYS.iter().any(|row| row.key == key && row.row.is_some());
    if key == "weight" || key == "size" && value.starts_with("imix") {
        let mix = value.strip_prefix("imix:").unwrap_or(value);
        return Written::List(mix.split(',').collect());
    }
    if !varies && key != "size" {
        return Written::Fixed;
    }
    if let Some(of) = value.strip_prefix("random") {
        let of = of.strip_prefix(':').unwrap_or(of);
        return Written::Random(if of.is_empty() { "all" } else { of });
    }
    if value.contains(',') {
        return Written::List(value.split(',').collect());
    }
    match (value.split_once('-'), value.contains('/')) {
        (Some((first, rest)), _) => {
            let (last, step) = rest.split_once('/').unwrap_or((rest, "1"));
            Written::Range(first, last, step)
        }
        // The hosts of a prefix.
        (None, true) => Written::Range(value, "", "1"),
        (None, false) => Written::Fixed,
    }
}

/// `key` and `value` of each word of a stream's line.
fn words(stream: &StreamView) -> impl Iterator<Item = (&str, &str)> {
    let words = stream.line.split_whitespace();
    words.filter_map(|word| word.split_once('='))
}

/// The cells that identify the stream of a line.
fn of_stream(stream: &StreamView) -> Vec<Cell> {
    vec![
        Cell::plain(stream.id.to_string()),
        Cell::plain(stream.port.to_string()),
        Cell::new(stream.name.clone(), Tone::Label),
    ]
}

fn table<'a>(columns: Vec<Column>, lines: Vec<Vec<Cell>>, none: &str) -> Grid<'a> {
    if lines.is_empty() {
        return super::text::lines(vec![String::new(), none.into()], "", 80);
    }
    let mut all = vec![
        Column::right("#", 5),
        Column::right("port", 4),
        Column::left("stream", 12),
    ];
    all.extend(columns);
    Grid {
        columns: all,
        pinned: 3,
        total: false,
        across: "columns",
        down: "fields",
        len: lines.len(),
        line: Box::new(move |at| lines[at].clone()),
    }
}

/// A page with a line for each field whose value `keep` makes cells of.
fn page<'a>(
    snapshot: &'a Snapshot,
    columns: Vec<Column>,
    none: &str,
    keep: impl Fn(Written<'a>) -> Option<Vec<Cell>>,
) -> Grid<'a> {
    let mut lines = Vec::new();
    for stream in &snapshot.streams {
        for (key, value) in words(stream) {
            if let Some(cells) = keep(written(key, value)) {
                let mut line = of_stream(stream);
                line.push(Cell::new(key, Tone::Label));
                line.extend(cells);
                lines.push(line);
            }
        }
    }
    let mut all = vec![Column::left("field", 12)];
    all.extend(columns);
    table(all, lines, none)
}

pub(super) fn range(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![
        Column::left("first", 17),
        Column::left("last", 17),
        Column::left("step", 6),
    ];
    let none = "No stream has a field that goes over a range. For one: set 0 dport 1000-1999";
    page(snapshot, columns, none, |written| match written {
        Written::Range(first, last, step) => Some([first, last, step].map(Cell::plain).into()),
        _ => None,
    })
}

pub(super) fn seq(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![Column::right("values", 6), Column::left("in turn", 24)];
    let none = "No stream has a field that takes values in turn. For one: set 0 size imix";
    page(snapshot, columns, none, |written| match written {
        Written::List(values) => Some(vec![
            Cell::plain(values.len().to_string()),
            Cell::plain(values.join(", ")),
        ]),
        _ => None,
    })
}

pub(super) fn random(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![Column::left("of", 24), Column::left("seed", 18)];
    let none = "No stream has a random field. For one: set 0 sport random";
    page(snapshot, columns, none, |written| match written {
        Written::Random(of) => Some(vec![
            Cell::plain(of),
            Cell::plain(format!("{:#x}", snapshot.seed)),
        ]),
        _ => None,
    })
}

pub(super) fn pcap(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![
        Column::right("speed", 8),
        Column::right("loop", 8),
        Column::right("sent", 15),
        Column::left("capture", 16),
    ];
    let value = |stream: &StreamView, wanted: &str| {
        let mut words = words(stream);
        let found = words.find(|(key, _)| *key == wanted);
        found.map(|(_, value)| value.to_owned())
    };
    let lines = snapshot.streams.iter().filter_map(|stream| {
        let file = value(stream, "pcap")?;
        let mut line = of_stream(stream);
        // The defaults, as the key's help says them.
        let speed = value(stream, "speed").unwrap_or_else(|| match value(stream, "rate") {
            Some(_) => "by rate".into(),
            None => "1".into(),
        });
        line.push(Cell::plain(speed));
        line.push(Cell::plain(
            value(stream, "loop").unwrap_or_else(|| "1".into()),
        ));
        line.push(Cell::plain(crate::tui::number::grouped(stream.tally.sent)));
        line.push(Cell::plain(file));
        Some(line)
    });
    let none = "No stream replays a capture. For one: set 0 pcap FILE";
    table(columns, lines.collect(), none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_apart_by_how_they_are_written() {
        for (key, value, wanted) in [
            ("size", "64", Written::Fixed),
            (
                "dport",
                "1024-65535/3",
                Written::Range("1024", "65535", "3"),
            ),
            (
                "dst",
                "198.19.0.0/24",
                Written::Range("198.19.0.0/24", "", "1"),
            ),
            (
                "size",
                "64,570,1518",
                Written::List(vec!["64", "570", "1518"]),
            ),
            (
                "size",
                "imix:64*28,570*16",
                Written::List(vec!["64*28", "570*16"]),
            ),
            ("size", "imix", Written::List(vec!["imix"])),
            ("src", "random", Written::Random("all")),
            ("src", "random:2001:2::/48", Written::Random("2001:2::/48")),
            ("rate", "9.9Gbit/s-L1", Written::Fixed),
            ("name", "a-b", Written::Fixed),
            ("pcap", "a-b,c.pcap", Written::Fixed),
        ] {
            assert_eq!(written(key, value), wanted, "{key}={value}");
        }
    }
}
