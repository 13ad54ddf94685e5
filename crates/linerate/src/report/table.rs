//! Text tables: columns as wide as their widest cell, numbers to the right.

use std::fmt::Write;

/// How a cell is coloured, where colours are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
    Dim,
}

impl Tone {
    /// `text` in this tone, as an ANSI terminal takes it.
    pub(crate) fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            _ if !colour => return text.into(),
            Self::Plain => return text.into(),
            Self::Good => 32,
            Self::Warn => 33,
            Self::Bad => 31,
            Self::Dim => 2,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// One column's heading and side.
pub(crate) struct Column {
    heading: String,
    right: bool,
}

impl Column {
    /// Text, aligned to the left.
    pub(crate) fn text(heading: &str) -> Self {
        Self {
            heading: heading.into(),
            right: false,
        }
    }

    /// Numbers, aligned to the right.
    pub(crate) fn number(heading: &str) -> Self {
        Self {
            heading: heading.into(),
            right: true,
        }
    }
}

pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(value: impl std::fmt::Display) -> Self {
        Self {
            text: value.to_string(),
            tone: Tone::Plain,
        }
    }

    pub(crate) fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

/// Rows under headings.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells stay empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as lines without blanks at their ends; headings dim.
    pub(crate) fn render(&self, colour: bool) -> String {
        let widths: Vec<usize> = (0..self.columns.len()).map(|i| self.width(i)).collect();
        let headings = self
            .columns
            .iter()
            .map(|c| Cell::new(&c.heading).tone(Tone::Dim))
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            let mut pending = 0;
            for ((cell, column), width) in row.iter().zip(&self.columns).zip(&widths) {
                let blank = width - cell.text.chars().count();
                let (before, after) = if column.right { (blank, 0) } else { (0, blank) };
                let _ = write!(
                    line,
                    "{:pending$}{:before$}{}",
                    "",
                    "",
                    cell.tone.paint(&cell.text, colour)
                );
                pending = after + 2;
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self
            .rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.text.chars().count());
        cells
            .chain([self.columns[column].heading.chars().count()])
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([
            Column::text("lcore"),
            Column::number("CPU"),
            Column::text("siblings"),
        ]);
        table.row([
            Cell::new("io0").tone(Tone::Good),
            Cell::new(3),
            Cell::new("3,17"),
        ]);
        table.row([Cell::new("eu10"), Cell::new(14)]);
        table
    }

    #[test]
    fn aligns_text_left_and_numbers_right() {
        assert_eq!(
            table().render(false),
            "lcore  CPU  siblings\nio0      3  3,17\neu10    14\n"
        );
    }

    #[test]
    fn colours_do_not_disturb_the_alignment() {
        let painted = table().render(true);
        assert!(
            painted.contains("\x1b[32mio0\x1b[0m      3  3,17\n"),
            "{painted:?}"
        );
    }
}
