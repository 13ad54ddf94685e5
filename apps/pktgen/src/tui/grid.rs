//! One page's table: columns that scroll sideways between pinned ones, lines that scroll up and
//! down. Only the lines that are seen are made, so that thousands of streams cost no more than
//! twenty.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::theme::{Theme, Tone};

/// A piece of text with a meaning.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }

    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Plain)
    }

    pub(super) fn empty() -> Self {
        Self::plain("")
    }
}

/// A column: its head, its width without the space in front, and on which side its text begins.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) head: Cell,
    pub(super) width: u16,
    pub(super) left: bool,
}

impl Column {
    /// Text.
    pub(super) fn left(head: impl Into<String>, width: u16) -> Self {
        Self {
            head: Cell::new(head, Tone::Label),
            width,
            left: true,
        }
    }

    /// Numbers.
    pub(super) fn right(head: impl Into<String>, width: u16) -> Self {
        Self {
            left: false,
            ..Self::left(head, width)
        }
    }
}

/// A table.
pub(super) struct Grid<'a> {
    pub(super) columns: Vec<Column>,
    /// Columns at the left that do not scroll.
    pub(super) pinned: usize,
    /// Whether the last column stays at the right.
    pub(super) total: bool,
    /// What the scrolling columns are, `ports`; where empty, columns are not counted in the title.
    pub(super) across: &'static str,
    /// What the lines are: `rows`, `streams`.
    pub(super) down: &'static str,
    /// Lines.
    pub(super) len: usize,
    pub(super) line: Box<dyn Fn(usize) -> Vec<Cell> + 'a>,
}

/// The scroll position in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// First line, and first of the scrolling columns.
    pub(super) top: usize,
    pub(super) left: usize,
}

/// The part of a table that an area shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The view, no further than the table goes.
    pub(super) view: View,
    /// Scrolling columns seen, and all of them.
    pub(super) columns: usize,
    pub(super) all_columns: usize,
    pub(super) lines: usize,
    pub(super) all_lines: usize,
}

impl Seen {
    /// The largest view that still fills the area.
    pub(super) fn last(&self) -> View {
        View {
            top: self.all_lines.saturating_sub(self.lines),
            left: self.all_columns.saturating_sub(self.columns),
        }
    }
}

impl Grid<'_> {
    /// Those that scroll sideways.
    fn scrolling(&self) -> std::ops::Range<usize> {
        self.pinned..self.columns.len() - usize::from(self.total)
    }

    fn width(&self, column: usize) -> usize {
        usize::from(self.columns[column].width) + usize::from(column > 0)
    }

    /// The part that `width` columns and `height` lines below the heads show.
    pub(super) fn seen(&self, width: u16, height: u16, view: View) -> Seen {
        let range = self.scrolling();
        let fixed: usize = (0..self.columns.len())
            .filter(|column| !range.contains(column))
            .map(|column| self.width(column))
            .sum();
        let room = usize::from(width).saturating_sub(fixed);
        let fit = |widths: &mut dyn Iterator<Item = usize>| {
            let mut used = 0;
            widths
                .take_while(|width| {
                    used += width;
                    used <= room
                })
                .count()
                .max(1)
        };
        // Scrolls right at most until the last column is visible.
        let is_text = range.len() > 1 && self.columns[range.end - 1].left;
        let from_end = match is_text {
            // Text may need all the room there is.
            true => 1,
            false => fit(&mut range.clone().rev().map(|column| self.width(column))),
        };
        let left = view.left.min(range.len().saturating_sub(from_end));
        let columns = fit(&mut range.clone().skip(left).map(|column| self.width(column)));
        let lines = self.len.min(usize::from(height));
        Seen {
            view: View {
                top: view.top.min(self.len - lines),
                left,
            },
            columns: columns.min(range.len()),
            all_columns: range.len(),
            lines,
            all_lines: self.len,
        }
    }

    /// Paints heads and lines into `area`; `seen` is of its width and one line less than its
    /// height.
    pub(super) fn paint(&self, area: Rect, buffer: &mut Buffer, seen: &Seen, theme: &Theme) {
        let range = self.scrolling();
        let first = range.start + seen.view.left;
        let shown: Vec<usize> = (0..range.start)
            .chain(first..(first + seen.columns).min(range.end))
            .chain(range.end..self.columns.len())
            .collect();
        let heads: Vec<Cell> = self
            .columns
            .iter()
            .map(|column| column.head.clone())
            .collect();
        self.paint_line(area, buffer, &shown, &heads, theme);
        for line in 0..seen.lines {
            let at = Rect {
                y: area.y + 1 + line as u16,
                height: 1,
                ..area
            };
            self.paint_line(
                at,
                buffer,
                &shown,
                &(self.line)(seen.view.top + line),
                theme,
            );
        }
    }

    fn paint_line(
        &self,
        area: Rect,
        buffer: &mut Buffer,
        shown: &[usize],
        cells: &[Cell],
        theme: &Theme,
    ) {
        if let ([heading], 2..) = (cells, self.columns.len()) {
            let (width, style) = (usize::from(area.width), theme.style(heading.tone));
            buffer.set_string(area.x, area.y, clip(&heading.text, width), style);
            return;
        }
        let mut x = area.x;
        for (nth, &index) in shown.iter().enumerate() {
            let room = area.right().saturating_sub(x);
            let gap = u16::from(index > 0);
            // The last column may use the remaining width.
            let wanted = match nth + 1 == shown.len() && self.columns[index].left {
                true => room.saturating_sub(gap),
                false => self.columns[index].width,
            };
            let width = wanted.min(room.saturating_sub(gap));
            if let Some(cell) = cells.get(index) {
                let text = clip(&cell.text, usize::from(width));
                let indent = match self.columns[index].left {
                    true => 0,
                    false => usize::from(width).saturating_sub(columns(&text)) as u16,
                };
                buffer.set_stringn(
                    x + gap + indent,
                    area.y,
                    &text,
                    usize::from(width),
                    theme.style(cell.tone),
                );
            }
            x = (x + gap + width).min(area.right());
        }
    }
}

/// Columns that `text` takes on a terminal.
pub(super) fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// At most `width` columns of `text`; `~` at the end where some are cut off.
pub(super) fn clip(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.into();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        if columns(&kept) + 1 >= width || letter.is_control() {
            break;
        }
        kept.push(letter);
    }
    if width > 0 {
        kept.push('~');
    }
    kept
}

/// `text` in pieces of at most `width` columns: cut after a space, or else after a separator of
/// addresses and ranges, or else anywhere. Nothing is lost but the spaces at cuts.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut pieces = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while rest.len() > width {
        let within = |wanted: &dyn Fn(char) -> bool| {
            let found = rest[..width].iter().rposition(|&letter| wanted(letter));
            found.map(|at| at + 1).filter(|&cut| cut > width / 3)
        };
        let space = match rest[width] {
            ' ' => Some(width),
            _ => within(&|letter| letter == ' '),
        };
        let cut = space
            .or_else(|| within(&|letter| matches!(letter, ':' | ',' | '-' | '/' | ';' | '|')))
            .unwrap_or(width);
        let piece: String = rest.drain(..cut).collect();
        pieces.push(piece.trim_end().to_owned());
        let spaces = rest.iter().take_while(|&&letter| letter == ' ').count();
        rest.drain(..spaces);
    }
    pieces.push(rest.into_iter().collect());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(columns: usize, len: usize, total: bool) -> Grid<'static> {
        let heads = (0..columns).map(|column| Column::right(column.to_string(), 9));
        Grid {
            columns: heads.collect(),
            pinned: 1,
            total,
            across: "ports",
            down: "rows",
            len,
            line: Box::new(|_| Vec::new()),
        }
    }

    #[test]
    fn as_many_columns_as_fit_are_seen_and_the_view_ends_with_the_last() {
        // The first takes 9, each further one 10.
        let table = grid(14, 50, true);
        let seen = table.seen(80, 20, View { top: 0, left: 0 });
        assert_eq!((seen.columns, seen.all_columns), (6, 12));
        let far = table.seen(
            80,
            20,
            View {
                top: 999,
                left: 999,
            },
        );
        assert_eq!(far.view, View { top: 30, left: 6 });
        assert_eq!(far.view, far.last());
        assert_eq!((far.columns, far.lines), (6, 20));
        // Even the narrowest area shows one column.
        assert_eq!(table.seen(5, 20, View::default()).columns, 1);
    }

    #[test]
    fn a_short_table_does_not_scroll() {
        let seen = grid(3, 4, false).seen(80, 20, View { top: 3, left: 1 });
        assert_eq!(seen.view, View::default());
        assert_eq!((seen.lines, seen.columns), (4, 2));
    }

    #[test]
    fn text_is_cut_visibly_and_wrapped_without_loss() {
        assert_eq!(clip("abcdef", 6), "abcdef");
        assert_eq!(clip("abcdef", 4), "abc~");
        let address = "2001:0db8:1111:2222:3333:4444:5555:6666";
        let pieces = wrap(address, 19);
        assert!(pieces.iter().all(|piece| piece.len() <= 19), "{pieces:?}");
        assert_eq!(pieces.concat(), address);
        assert_eq!(
            wrap("not sending: no link", 12),
            ["not sending:", "no link"]
        );
        assert_eq!(wrap("", 5), [""]);
    }
}
