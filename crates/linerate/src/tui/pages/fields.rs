//! Pages of what changes from frame to frame: ranges, lists, random fields, and captures replayed.
//! They read the streams' one-line form, so that they show what a user would write.

use crate::apps::pktgen::{Snapshot, StreamView};
use crate::tui::grid::{Cell, Column, Grid};
use crate::tui::theme::Tone;

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
    Pcap(&'a str),
}

/// Keys whose values are names, rates or files, whatever signs they hold.
const NOT_FIELDS: [&str; 4] = ["name", "rate", "port", "payload"];

fn written<'a>(key: &str, value: &'a str) -> Written<'a> {
    if key.starts_with("pcap") || key == "replay" {
        return Written::Pcap(value);
    }
    if NOT_FIELDS.contains(&key) {
        return Written::Fixed;
    }
    if let Some(of) = value.strip_prefix("random") {
        let of = of.strip_prefix(':').unwrap_or(of);
        return Written::Random(if of.is_empty() { "all" } else { of });
    }
    if value.contains(',') || value.starts_with("imix") {
        return Written::List(value.split(',').collect());
    }
    match (value.split_once('-'), value.split_once('/')) {
        (Some((first, rest)), _) if !first.is_empty() => {
            let (last, step) = rest.split_once('/').unwrap_or((rest, "1"));
            Written::Range(first, last, step)
        }
        (_, Some(_)) => Written::Range(value, "", "1"),
        _ => Written::Fixed,
    }
}

/// `key` and `value` of each word of a stream's line.
fn words(stream: &StreamView) -> impl Iterator<Item = (&str, &str)> {
    let words = stream.line.split_whitespace();
    words.filter_map(|word| word.split_once('='))
}

/// A page with a line for each value that `keep` makes cells of.
fn page<'a>(
    snapshot: &'a Snapshot,
    columns: Vec<Column>,
    none: &'static str,
    keep: impl Fn(&'a StreamView, &'a str, Written<'a>) -> Option<Vec<Cell>>,
) -> Grid<'a> {
    let mut lines: Vec<Vec<Cell>> = Vec::new();
    for stream in &snapshot.streams {
        for (key, value) in words(stream) {
            if let Some(cells) = keep(stream, key, written(key, value)) {
                let mut line = vec![
                    Cell::plain(stream.id.to_string()),
                    Cell::plain(stream.port.to_string()),
                    Cell::new(stream.name.clone(), Tone::Label),
                    Cell::new(key, Tone::Label),
                ];
                line.extend(cells);
                lines.push(line);
            }
        }
    }
    let mut all = vec![
        Column::right("#", 5),
        Column::right("port", 4),
        Column::left("stream", 12),
        Column::left("field", 12),
    ];
    all.extend(columns);
    if lines.is_empty() {
        return super::text::lines(vec![none.into()], "", 80);
    }
    Grid {
        columns: all,
        pinned: 4,
        total: false,
        across: "columns",
        down: "fields",
        len: lines.len(),
        line: Box::new(move |at| lines[at].clone()),
    }
}

pub(super) fn range(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![
        Column::left("first", 17),
        Column::left("last", 17),
        Column::left("step", 6),
    ];
    let none =
        "No stream has a field that goes over a range. For one: set 0 dst 198.18.0.1-198.18.0.9";
    page(snapshot, columns, none, |_, _, written| match written {
        Written::Range(first, last, step) => Some([first, last, step].map(Cell::plain).into()),
        _ => None,
    })
}

pub(super) fn seq(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![Column::right("values", 6), Column::left("in turn", 32)];
    let none = "No stream has a field that takes values in turn. For one: set 0 size 64,570,1518";
    page(snapshot, columns, none, |_, _, written| match written {
        Written::List(values) => Some(vec![
            Cell::plain(values.len().to_string()),
            Cell::plain(values.join(", ")),
        ]),
        _ => None,
    })
}

pub(super) fn random(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![Column::left("of", 24), Column::left("seed", 18)];
    let none = "No stream has a random field. For one: set 0 src_port random:1024-65535";
    page(snapshot, columns, none, |_, _, written| match written {
        Written::Random(of) => Some(vec![
            Cell::plain(of),
            Cell::plain(format!("{:#x}", snapshot.seed)),
        ]),
        _ => None,
    })
}

pub(super) fn pcap(snapshot: &Snapshot) -> Grid<'_> {
    let columns = vec![Column::left("value", 40)];
    let none = "No stream replays a capture. For one: set 0 pcap FILE";
    page(snapshot, columns, none, |_, _, written| match written {
        Written::Pcap(value) => Some(vec![Cell::plain(value)]),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_apart_by_how_they_are_written() {
        for (key, value, wanted) in [
            ("size", "64", Written::Fixed),
            (
                "dst_port",
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
            ("src", "random", Written::Random("all")),
            ("src", "random:2001:2::/48", Written::Random("2001:2::/48")),
            ("rate", "9.9Gbit/s-L1", Written::Fixed),
            ("name", "a-b", Written::Fixed),
            ("pcap", "a-b,c.pcap", Written::Pcap("a-b,c.pcap")),
        ] {
            assert_eq!(written(key, value), wanted, "{key}={value}");
        }
    }
}
