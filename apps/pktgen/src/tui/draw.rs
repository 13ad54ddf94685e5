//! A picture of the screen: a function of the snapshot, the state of the screen and the size.
//!
//! ```text
//! title    what is seen of how much, page, run time, epoch, profile
//! summary  all ports in one line, on each page
//! page     heads and lines
//! bar      the pages
//! note     the last answer; an error with its fix
//! prompt
//! ```

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::grid::{Cell, Grid, Seen, clip, columns, wrap};
use super::number::clock;
use super::pages::{self, Page};
use super::theme::Tone;
use super::ui::Ui;
use crate::Snapshot;

/// The smallest screen, columns and lines.
pub(super) const LEAST: (u16, u16) = (80, 24);
/// Most lines of candidates, and of a note.
const CANDIDATES: usize = 8;
const NOTE: usize = 5;
const PROMPT: &str = "linerate> ";

/// Where to put the cursor, and how far the page can scroll.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    pub(super) cursor: Option<Position>,
    pub(super) seen: Seen,
}

/// Paints the whole screen; without a snapshot yet, that it waits for one.
pub(super) fn draw(snapshot: Option<&Snapshot>, ui: &Ui, buffer: &mut Buffer) -> Drawn {
    let area = buffer.area;
    buffer.set_style(area, ui.theme.style(Tone::Plain));
    if area.width < LEAST.0 || area.height < LEAST.1 {
        too_small(ui, area, buffer);
        return Drawn::default();
    }
    let row = |y: u16, height: u16| Rect { y, height, ..area };
    let note = note_lines(snapshot, ui, area.width);
    let prompt = area.bottom() - 1;
    let note_top = prompt - note.len() as u16;
    let bar = note_top - 1;
    let body = row(2, bar - 2);

    let drawn = match snapshot {
        Some(snapshot) => {
            let (grid, table) = page(snapshot, ui, body, buffer);
            let seen = grid.seen(table.width, table.height - 1, ui.view());
            grid.paint(table, buffer, &seen, &ui.theme);
            title(snapshot, ui, &grid, &seen, row(0, 1), buffer);
            summary(snapshot, ui, row(1, 1), buffer);
            seen
        }
        None => {
            let text = "waiting for the session's first counts";
            buffer.set_string(area.x, 0, text, ui.theme.style(Tone::Dim));
            Seen::default()
        }
    };
    page_bar(ui, row(bar, 1), buffer);
    candidates(ui, body, buffer);
    for (y, cell) in (note_top..).zip(&note) {
        buffer.set_stringn(
            area.x,
            y,
            &cell.text,
            area.width.into(),
            ui.theme.style(cell.tone),
        );
    }
    Drawn {
        cursor: prompt_line(ui, row(prompt, 1), buffer),
        seen: drawn,
    }
}

/// Returns the table of the page and its area; paints the rest.
fn page<'a>(
    snapshot: &'a Snapshot,
    ui: &'a Ui,
    body: Rect,
    buffer: &mut Buffer,
) -> (Grid<'a>, Rect) {
    if let Some(sheet) = &ui.sheet {
        let width = usize::from(body.width);
        let lines = sheet
            .lines
            .iter()
            .flat_map(|line| wrap(line, width))
            .collect();
        return (pages::lines(lines, "Esc goes back", body.width), body);
    }
    let grid = pages::grid(ui.page, snapshot, &ui.extra, body.width);
    if ui.page != Page::Latency {
        return (grid, body);
    }
    // The histogram gets at least a few lines; the table scrolls.
    let height = (grid.len as u16 + 1).min(body.height.saturating_sub(8));
    let chart = Rect {
        y: body.y + height,
        height: body.height - height,
        ..body
    };
    pages::histogram(
        snapshot,
        ui.extra.chosen,
        ui.ascii,
        chart,
        buffer,
        &ui.theme,
    );
    (grid, Rect { height, ..body })
}

fn too_small(ui: &Ui, area: Rect, buffer: &mut Buffer) {
    let text = format!(
        "The screen needs {} columns and {} lines; this terminal has {} and {}. \
         Make it larger, or leave with q and use --headless.",
        LEAST.0, LEAST.1, area.width, area.height
    );
    let lines = wrap(&text, usize::from(area.width));
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        buffer.set_string(area.x, y, line, ui.theme.style(Tone::Bad));
    }
}

fn title(
    snapshot: &Snapshot,
    ui: &Ui,
    grid: &Grid<'_>,
    seen: &Seen,
    area: Rect,
    buffer: &mut Buffer,
) {
    let style = ui.theme.style(Tone::Title);
    buffer.set_style(area, style);
    let turning = ['\\', '|', '/', '-'][(ui.pictures % 4) as usize];
    let (first, more) = (seen.view.left, seen.view.left + seen.columns);
    let before = if first > 0 { "<" } else { " " };
    let after = if more < seen.all_columns { ">" } else { " " };
    let across = match grid.across {
        "" => String::new(),
        // Ports are counted from 0, as they are named.
        "ports" if seen.all_columns > 0 => format!(
            " {before} Ports {first}-{} of {} {after}",
            more - 1,
            seen.all_columns
        ),
        what => format!(
            " {before} {what} {}-{more} of {} {after}",
            first + 1,
            seen.all_columns
        ),
    };
    let (top, end) = (seen.view.top, seen.view.top + seen.lines);
    let above = if top > 0 { "^" } else { " " };
    let below = if end < seen.all_lines { "v" } else { " " };
    let down = format!(
        "{} {}-{end} of {} {above}{below}",
        grid.down,
        (top + 1).min(end),
        seen.all_lines
    );
    let name = ui.page.name();
    let left = format!("{turning}{across} <{name}> {down}");
    buffer.set_stringn(area.x, area.y, &left, area.width.into(), style);
    // Facts of the run go to the right, as many as fit.
    let mut facts = vec![
        format!("run {}", clock(snapshot.since_clear_ns)),
        format!("epoch {}", snapshot.epoch),
    ];
    if !snapshot.profile.is_empty() {
        facts.push(snapshot.profile.clone());
    }
    facts.push(concat!("linerate ", env!("CARGO_PKG_VERSION")).into());
    let room = usize::from(area.width).saturating_sub(columns(&left) + 2);
    while facts.len() > 1 && columns(&facts.join("  ")) > room {
        facts.pop();
    }
    let right = facts.join("  ");
    if columns(&right) <= room {
        let x = area.right() - columns(&right) as u16;
        buffer.set_string(x, area.y, right, style);
    }
}

fn summary(snapshot: &Snapshot, ui: &Ui, area: Rect, buffer: &mut Buffer) {
    let mut x = area.x;
    for cell in pages::summary(snapshot, usize::from(area.width)) {
        let room = usize::from(area.right().saturating_sub(x));
        buffer.set_stringn(x, area.y, &cell.text, room, ui.theme.style(cell.tone));
        x = x.saturating_add(columns(&cell.text) as u16 + 2);
    }
}

fn page_bar(ui: &Ui, area: Rect, buffer: &mut Buffer) {
    let dim = ui.theme.style(Tone::Dim);
    let numbered = area.width >= 110;
    let mut x = area.x;
    for (at, page) in (1..).zip(Page::ALL) {
        let text = match (numbered, page) {
            (true, Page::Help) => "F12 help".to_owned(),
            (true, Page::Log) => "log".to_owned(),
            (true, page) => format!("F{at} {}", page.name()),
            (false, page) => page.name().to_owned(),
        };
        let style = match page == ui.page {
            true => ui.theme.style(Tone::Title),
            false => dim,
        };
        let gap = if numbered { 2 } else { 1 };
        // Brackets mark the page on terminals without colour.
        let text = match page == ui.page {
            true => format!("[{text}]"),
            false => text,
        };
        let room = usize::from(area.right().saturating_sub(x));
        buffer.set_stringn(x, area.y, &text, room, style);
        x = (x + text.len() as u16 + gap).min(area.right());
    }
}

/// Above the bar, over the page's last lines.
fn candidates(ui: &Ui, body: Rect, buffer: &mut Buffer) {
    let Some(choice) = &ui.choice else { return };
    let all = choice.candidates.len();
    let shown = all.min(CANDIDATES).min(usize::from(body.height));
    let picked = choice.picked.unwrap_or(0);
    let first = (picked + 1).saturating_sub(shown);
    let width = choice.candidates.iter().map(|one| columns(&one.text)).max();
    let width = width.unwrap_or(0).min(40);
    for nth in 0..shown {
        let one = &choice.candidates[first + nth];
        let y = body.bottom() - (shown - nth) as u16;
        let tone = match choice.picked == Some(first + nth) {
            true => Tone::Title,
            false => Tone::Input,
        };
        let more = match nth + 1 == shown && first + shown < all {
            true => format!("  ({} more)", all - first - shown),
            false => String::new(),
        };
        let text = format!(" {:width$}  {}{more}", one.text, one.help);
        let text = format!("{:1$}", clip(&text, body.width.into()), body.width.into());
        buffer.set_string(body.x, y, text, ui.theme.style(tone));
    }
}

fn note_lines(snapshot: Option<&Snapshot>, ui: &Ui, width: u16) -> Vec<Cell> {
    let note = &ui.note;
    let width = usize::from(width);
    let mut lines = Vec::new();
    let mut add = |text: &str, tone| {
        lines.extend(
            wrap(text, width)
                .into_iter()
                .map(|line| Cell::new(line, tone)),
        );
    };
    let invalid = snapshot.map_or(&[][..], |snapshot| &snapshot.invalid);
    match (note.is_error, note.text.as_str()) {
        (true, text) => {
            add(&format!("error: {text}"), Tone::Bad);
            if !note.fix.is_empty() {
                add(&format!("fix: {}", note.fix), Tone::Plain);
            }
        }
        (false, "") if ui.pending > 0 => add("...", Tone::Dim),
        (false, "") if !invalid.is_empty() => {
            add(
                &format!("!this run is invalid: {}", invalid.join("; ")),
                Tone::Bad,
            );
        }
        (false, "") => add(
            "-- ? help  Tab next page  arrows scroll  : command  q leave",
            Tone::Dim,
        ),
        (false, text) => add(text, Tone::Plain),
    }
    lines.truncate(NOTE);
    lines
}

fn prompt_line(ui: &Ui, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    let input = ui.theme.style(Tone::Input);
    buffer.set_string(area.x, area.y, PROMPT, ui.theme.style(Tone::Label));
    if !ui.typing {
        return None;
    }
    let x = area.x + PROMPT.len() as u16;
    let (text, cursor) = ui.line.window(usize::from(area.right() - x));
    buffer.set_string(x, area.y, &text, input);
    let before: String = text.chars().take(cursor).collect();
    Some(Position {
        x: (x + columns(&before) as u16).min(area.right() - 1),
        y: area.y,
    })
}
