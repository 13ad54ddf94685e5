//! Pages of text: the log and the help.

use crate::Snapshot;
use crate::tui::grid::{Cell, Column, Grid, wrap};
use crate::tui::number::grouped;
use crate::tui::theme::Tone;

/// Lines of text as a page; what begins with `-- ` is a heading.
pub(in crate::tui) fn lines(text: Vec<String>, head: &str, width: u16) -> Grid<'static> {
    let cell = |line: &String| match line.strip_prefix("-- ") {
        Some(heading) => Cell::new(heading, Tone::Label),
        None => Cell::plain(line.clone()),
    };
    let cells: Vec<Cell> = text.iter().map(cell).collect();
    Grid {
        columns: vec![Column::left(head, width)],
        pinned: 0,
        total: false,
        across: "",
        down: "lines",
        len: cells.len(),
        line: Box::new(move |at| vec![cells[at].clone()]),
    }
}

/// `text` in lines of at most `width`, the further ones indented by `hang`.
fn fold(text: &str, width: u16, hang: usize) -> Vec<String> {
    let width = usize::from(width);
    let mut lines = wrap(text, width);
    let first = lines.swap_remove(0);
    let rest = text[first.len()..].trim_start();
    let mut folded = vec![first];
    if !rest.is_empty() {
        let pieces = wrap(rest, width.saturating_sub(hang));
        folded.extend(
            pieces
                .into_iter()
                .map(|piece| format!("{:hang$}{piece}", "")),
        );
    }
    folded
}

pub(super) fn log(snapshot: &Snapshot, width: u16) -> Grid<'_> {
    let mut text: Vec<String> = Vec::new();
    // The newest first, since users look for it.
    for line in snapshot.log.iter().rev() {
        let at = format!("{}.{:03}", grouped(line.at_ms / 1000), line.at_ms % 1000);
        text.extend(fold(
            &format!("{at:>12}  {}", line.text),
            width,
            14 - 12 + 12,
        ));
    }
    lines(text, "    second   what happened, the newest first", width)
}

/// Where in a line of `help` the explanation begins.
const HELP_COLUMN: usize = 45;

/// Keys, then the commands as the session lists them.
pub(super) fn help(commands: &[String], width: u16) -> Grid<'static> {
    let mut text: Vec<String> = KEYS.iter().flat_map(|line| fold(line, width, 22)).collect();
    text.push(String::new());
    text.push("-- commands".into());
    // A usage and, after at least two spaces or in its column, what it does.
    for line in commands {
        let (usage, help) = match line.char_indices().nth(HELP_COLUMN) {
            Some((at, _)) if line[..at].ends_with(' ') => line.split_at(at),
            _ => line.split_once("  ").unwrap_or((line, "")),
        };
        let (usage, help) = (usage.trim(), help.trim());
        match usize::from(width) > HELP_COLUMN + 60 {
            true => text.extend(fold(
                &format!("  {usage:<HELP_COLUMN$} {help}"),
                width,
                HELP_COLUMN + 3,
            )),
            false => {
                text.push(format!("  {usage}"));
                text.extend(fold(&format!("      {help}"), width, 6));
            }
        }
    }
    lines(text, "keys", width)
}

const KEYS: &[&str] = &[
    "  F1 to F12, 1 to 9   a page, in the order of the bar below; F12 and ? are this one",
    "  Tab, Shift-Tab      the next page, the one before",
    "  arrows, PgUp, PgDn  scroll; Home and End go to the first line and to the last",
    "  : or / or a letter  type a command; Tab completes it, Enter gives it, Esc leaves it",
    "  Up, Down            in a command: those given before",
    "  q, Ctrl-C           leave: sending stops, and totals are printed",
    "",
    "-- signs",
    "  !                   what should be zero and is not, or what is not as asked",
    "  -                   nothing was measured, which is not zero",
    "  ~                   text goes on: scroll to it with Left and Right",
    "  L1, L2              bits with preamble and gap (20 bytes a frame), and without; both with \
     FCS",
    "  MB, Mbit            millions of bytes, and of bits",
    "  flags               E answers ARP and ping, C checks checksums, L measures latency, p sends \
     a capture, R random fields,",
    "                      S several streams, V a tag",
    "  taken               times that the CPU was taken away from an lcore for longer than 20 us",
    "  earlier             test frames that were sent before the last `clear`",
    "  unsent              frames that were due and did not go: the generator was too slow, or the \
     port refused them",
];
