//! What a program shows in a terminal, as a picture: `script` gives it a pseudo-terminal, `vt100` makes
//! a screen of what it writes, and each run of cells of one style becomes a piece of SVG.
//!
//! Lines and blocks are drawn, since fonts differ in how high a cell is; all other text is stretched to
//! its cells, since they differ in how wide one is.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use vt100::{Cell, Color, Parser, Screen};

use super::svg::{escaped, head};
use super::{Recording, Until};
use crate::error::TaskError;
use crate::process;

/// Seconds after which a program that has not ended is ended.
const LIMIT: &str = "120";

/// Runs `program` in a terminal, and returns what is seen in it.
pub(super) fn record(program: &Path, recording: &Recording) -> Result<Screen, TaskError> {
    let size = |length| NonZeroU16::new(length).unwrap_or(NonZeroU16::MIN);
    let parser = Parser::new(size(recording.rows), size(recording.columns), 0);
    let parser = Arc::new(Mutex::new(parser));
    let words = recording.args.iter().map(|word| format!("'{word}'"));
    let line = format!(
        "stty rows {} cols {}; exec '{}' {}",
        recording.rows,
        recording.columns,
        program.display(),
        words.collect::<Vec<_>>().join(" ")
    );
    let mut command = Command::new("timeout");
    command
        .args([LIMIT, "script"])
        .args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &line,
            "/dev/null",
        ])
        .env("TERM", "xterm-256color")
        .env("COLORTERM", "truecolor")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let failed = TaskError::file("script");
    let spelled = process::spelled(&command);
    let mut child = command.spawn().map_err(|_| TaskError::Missing {
        what: "`script`, which runs programs in a terminal, cannot be started".into(),
        fix: "apt-get install bsdutils".into(),
    })?;
    // Its end of the pipe stays open: `script` ends with its standard input.
    let mut keys = child.stdin.take();
    let reader = child.stdout.take().map(|mut output| {
        let parser = Arc::clone(&parser);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                let mut parser = parser.lock().unwrap_or_else(PoisonError::into_inner);
                parser.process(&bytes[..length]);
            }
        })
    });
    let seen = || {
        let parser = parser.lock().unwrap_or_else(PoisonError::into_inner);
        parser.screen().clone()
    };
    let mut screen = None;
    if let (Until::Typed(lines), Some(keys)) = (&recording.until, &mut keys) {
        for (pause, line) in *lines {
            thread::sleep(*pause);
            screen = Some(seen());
            keys.write_all(line.as_bytes())
                .map_err(TaskError::file("script"))?;
        }
    }
    let status = child.wait().map_err(failed)?;
    if let Some(reader) = reader {
        let _ = reader.join();
    }
    let screen = screen.unwrap_or_else(seen);
    match status.success() {
        true => Ok(screen),
        false => Err(TaskError::Failed {
            command: spelled,
            status,
            said: process::last_lines(&screen.contents(), 8),
        }),
    }
}

/// Of a cell, in pixels.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 17.0;
/// From the top of a cell to the line that letters stand on.
const BASE: f64 = 13.0;
const MARGIN: f64 = 14.0;
/// Of the bar with what was typed.
const BAR: f64 = 32.0;

/// A dark terminal on any page: its frame tells it apart from a dark one.
const GROUND: &str = "#0d1117";
const INK: &str = "#e6edf3";
const STYLE: &str = "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,\
'DejaVu Sans Mono','Liberation Mono',monospace;white-space:pre}</style>\n";

/// The 16 colours that have names, for a dark ground.
const NAMED: [&str; 16] = [
    GROUND, "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4", "#6e7681",
    "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#ffffff",
];

/// The picture of a screen, with what was typed above it. Empty lines at the end are left out.
pub(super) fn draw(screen: &Screen, typed: &str) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let is_empty = |row: u16| {
        screen
            .rows(0, columns)
            .nth(row.into())
            .is_none_or(|text| text.trim().is_empty())
    };
    let rows = (0..rows)
        .rev()
        .find(|row| !is_empty(*row))
        .map_or(1, |last| last + 1);
    let width = f64::from(columns) * WIDTH + 2.0 * MARGIN;
    let height = f64::from(rows) * HEIGHT + 2.0 * MARGIN + BAR;
    let mut svg = head(width, height, &format!("a terminal that shows `{typed}`"));
    svg += STYLE;
    let _ = writeln!(
        svg,
        "<rect x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"{GROUND}\" stroke=\"#3d444d\"/>\n\
         <path d=\"M.5 {BAR}H{}\" stroke=\"#3d444d\"/>\n\
         <text x=\"{MARGIN}\" y=\"21\" fill=\"#9198a1\">$ <tspan fill=\"{INK}\">{}</tspan></text>",
        width - 1.0,
        height - 1.0,
        width - 0.5,
        escaped(typed)
    );
    for row in 0..rows {
        line(&mut svg, screen, row, columns);
    }
    svg + "</svg>\n"
}

/// What makes neighbouring cells one piece of text.
#[derive(PartialEq)]
struct Look {
    ink: String,
    ground: Option<String>,
    is_bold: bool,
    is_dim: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let (ink, ground) = (colour(cell.fgcolor()), colour(cell.bgcolor()));
        let (ink, ground) = match cell.inverse() {
            true => (ground.or(Some(GROUND.into())), ink.or(Some(INK.into()))),
            false => (ink, ground),
        };
        Self {
            ink: ink.unwrap_or_else(|| INK.into()),
            ground,
            is_bold: cell.bold(),
            is_dim: cell.dim(),
        }
    }
}

/// None: the terminal's own.
fn colour(colour: Color) -> Option<String> {
    let cube = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    let rgb = |r, g, b| Some(format!("#{r:02x}{g:02x}{b:02x}"));
    match colour {
        Color::Default => None,
        Color::Idx(named @ 0..16) => Some(NAMED[usize::from(named)].into()),
        Color::Idx(index @ 16..232) => {
            let index = index - 16;
            rgb(cube(index / 36), cube(index / 6 % 6), cube(index % 6))
        }
        Color::Idx(grey) => rgb(
            8 + 10 * (grey - 232),
            8 + 10 * (grey - 232),
            8 + 10 * (grey - 232),
        ),
        Color::Rgb(r, g, b) => rgb(r, g, b),
    }
}

fn line(svg: &mut String, screen: &Screen, row: u16, columns: u16) {
    let cells: Vec<&Cell> = (0..columns)
        .filter_map(|column| screen.cell(row, column))
        .collect();
    let y = f64::from(row) * HEIGHT + MARGIN + BAR;
    let mut first = 0;
    while let Some(cell) = cells.get(first) {
        let look = Look::of(cell);
        let same = cells[first..]
            .iter()
            .take_while(|cell| Look::of(cell) == look)
            .count();
        let x = first as f64 * WIDTH + MARGIN;
        if let Some(ground) = &look.ground {
            let width = same as f64 * WIDTH;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{ground}\"/>"
            );
        }
        pieces(svg, &cells[first..first + same], &look, (x, y));
        first += same;
    }
}

/// Cells of one look: what is drawn letter by letter, and text without long gaps.
fn pieces(svg: &mut String, cells: &[&Cell], look: &Look, (x, y): (f64, f64)) {
    let mut paths = String::new();
    let mut text = String::new();
    let mut begin = 0;
    let mut flush = |text: &mut String, begin: usize| {
        let shown = text.trim_end();
        if !shown.is_empty() {
            let weight = if look.is_bold {
                " font-weight=\"bold\""
            } else {
                ""
            };
            let opacity = if look.is_dim { " opacity=\".65\"" } else { "" };
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
                 fill=\"{}\"{weight}{opacity}>{}</text>",
                x + begin as f64 * WIDTH,
                y + BASE,
                shown.chars().count() as f64 * WIDTH,
                look.ink,
                escaped(shown)
            );
        }
        text.clear();
    };
    for (index, cell) in cells.iter().enumerate() {
        let letter = cell.contents().chars().next().unwrap_or(' ');
        let shape = shape(letter, x + index as f64 * WIDTH, y);
        paths += shape.as_deref().unwrap_or_default();
        // Two blanks end a piece: the next one begins in its own place, whatever the font.
        if shape.is_some() || text.ends_with("  ") && letter != ' ' {
            flush(&mut text, begin);
        }
        if shape.is_none() && (letter != ' ' || !text.is_empty()) {
            if text.is_empty() {
                begin = index;
            }
            text.push(letter);
        }
    }
    flush(&mut text, begin);
    if !paths.is_empty() {
        let opacity = if look.is_dim { " opacity=\".65\"" } else { "" };
        let _ = writeln!(svg, "<path d=\"{paths}\" fill=\"{}\"{opacity}/>", look.ink);
    }
}

/// Letters that join their neighbours, as an area in the cell at `x`, `y`.
fn shape(letter: char, x: f64, y: f64) -> Option<String> {
    // From, to in eighths of the cell.
    let area = |left: f64, top: f64, right: f64, bottom: f64| {
        format!(
            "M{:.1} {:.1}H{:.1}V{:.1}H{:.1}z",
            x + left / 8.0 * WIDTH,
            y + top / 8.0 * HEIGHT,
            x + right / 8.0 * WIDTH,
            y + bottom / 8.0 * HEIGHT,
            x + left / 8.0 * WIDTH
        )
    };
    let eighths = f64::from(u32::from(letter) & 0xf);
    match letter {
        '▀' => Some(area(0.0, 0.0, 8.0, 4.0)),
        '▁'..='█' => Some(area(0.0, 8.0 - eighths, 8.0, 8.0)),
        '▉'..='▏' => Some(area(0.0, 0.0, 16.0 - eighths, 8.0)),
        _ => {
            // Half lines from the middle: left, right, up, down.
            let [left, right, up, down] = match letter {
                '─' => [true, true, false, false],
                '│' => [false, false, true, true],
                '┌' | '╭' => [false, true, false, true],
                '┐' | '╮' => [true, false, false, true],
                '└' | '╰' => [false, true, true, false],
                '┘' | '╯' => [true, false, true, false],
                '├' => [false, true, true, true],
                '┤' => [true, false, true, true],
                '┬' => [true, true, false, true],
                '┴' => [true, true, true, false],
                '┼' => [true, true, true, true],
                _ => return None,
            };
            let (thick_x, thick_y) = (0.6, 0.3);
            let mut lines = String::new();
            if left || right {
                let from = if left { 0.0 } else { 4.0 - thick_x };
                let to = if right { 8.0 } else { 4.0 + thick_x };
                lines += &area(from, 4.0 - thick_y, to, 4.0 + thick_y);
            }
            if up || down {
                let from = if up { 0.0 } else { 4.0 - thick_y };
                let to = if down { 8.0 } else { 4.0 + thick_y };
                lines += &area(4.0 - thick_x, from, 4.0 + thick_x, to);
            }
            Some(lines)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn drawn(bytes: &[u8]) -> String {
        let mut parser = Parser::new(3.try_into().unwrap(), 20.try_into().unwrap(), 0);
        parser.process(bytes);
        draw(parser.screen(), "a & b")
    }

    #[test]
    fn text_keeps_its_cells_colours_and_weight() {
        let svg = drawn(b"ab  \x1b[1;31mc<\x1b[0m\r\n  \x1b[7mx\x1b[0m");
        let first = format!(
            "x=\"{MARGIN:.1}\" y=\"{}\" textLength=\"16.8\"",
            BAR + MARGIN + BASE
        );
        assert!(svg.contains(&first) && svg.contains(">ab</text>"), "{svg}");
        let red = format!("fill=\"{}\" font-weight=\"bold\">c&lt;</text>", NAMED[1]);
        assert!(svg.contains(&red), "{svg}");
        // Reversed: a ground of the ink's colour.
        let ground = format!("width=\"8.4\" height=\"{HEIGHT}\" fill=\"{INK}\"/>");
        assert!(
            svg.contains(&ground) && svg.contains(&format!("fill=\"{GROUND}\">x<")),
            "{svg}"
        );
        assert!(svg.contains("a &amp; b"));
        // The third line is empty.
        assert!(
            svg.contains(&format!("height=\"{}\"", 2.0 * HEIGHT + 2.0 * MARGIN + BAR)),
            "{svg}"
        );
    }

    #[test]
    fn lines_and_blocks_are_drawn() {
        let svg = drawn("┌─┐ ▄".as_bytes());
        let texts = svg.matches("<text").count();
        assert_eq!(texts, 1, "only what was typed: {svg}");
        // The lower half of the fifth cell.
        let x = MARGIN + 4.0 * WIDTH;
        let y = MARGIN + BAR + HEIGHT / 2.0;
        assert!(
            svg.contains(&format!("M{x:.1} {y:.1}H{:.1}", x + WIDTH)),
            "{svg}"
        );
    }

    #[test]
    fn what_a_program_writes_is_seen() {
        let recording = Recording {
            file: "",
            typed: "",
            args: &["-c", "stty size"],
            columns: 33,
            rows: 5,
            until: Until::End,
        };
        let Ok(screen) = record(Path::new("/bin/sh"), &recording) else {
            println!("SKIP needs the program script");
            return;
        };
        assert_eq!(screen.contents().trim(), "5 33");
        let failing = Recording {
            args: &["-c", "echo no; exit 3"],
            ..recording
        };
        let error = record(Path::new("/bin/sh"), &failing)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("no") && error.contains("script"), "{error}");
    }
}
