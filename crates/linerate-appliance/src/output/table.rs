//! Text tables: columns as wide as their widest cell, numbers to the right.

use std::fmt::Write;

/// How a cell is coloured, where colours are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As text is.
    Plain,
    /// Normal.
    Good,
    /// A warning.
    Warn,
    /// Wrong.
    Bad,
    /// Less important.
    Dim,
}

impl Tone {
    /// `text` in this tone, as an ANSI terminal takes it.
    pub fn paint(self, text: &str, colour: bool) -> String {
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
pub struct Column {
    heading: String,
    right: bool,
}

impl Column {
    /// Text, aligned to the left.
    pub fn text(heading: &str) -> Self {
        Self {
            heading: heading.into(),
            right: false,
        }
    }

    /// Numbers, aligned to the right.
    pub fn number(heading: &str) -> Self {
        Self {
            heading: heading.into(),
            right: true,
        }
    }
}

/// One cell: a text and its tone.
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A plain cell.
    pub fn new(value: impl std::fmt::Display) -> Self {
        Self {
            text: value.to_string(),
            tone: Tone::Plain,
        }
    }

    /// In this tone.
    pub fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

/// Rows under headings.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as lines without blanks at their ends; headings dim.
    pub fn render(&self, colour: bool) -> String {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        self.render_columns(&all, colour)
    }

    /// The same within `width` characters, as far as its cells go: columns that do not fit follow
    /// in further tables, each behind the first column and after an empty line.
    pub fn render_within(&self, width: usize, colour: bool) -> String {
        let mut parts: Vec<Vec<usize>> = vec![vec![0]];
        let first = self.width(0);
        let mut taken = first;
        for column in 1..self.columns.len() {
            let more = 2 + self.width(column);
            if taken + more > width && taken > first {
                parts.push(vec![0]);
                taken = first;
            }
            taken += more;
            parts
                .last_mut()
                .into_iter()
                .for_each(|part| part.push(column));
        }
        let parts = parts.iter().map(|part| self.render_columns(part, colour));
        parts.collect::<Vec<_>>().join("\n")
    }

    fn render_columns(&self, columns: &[usize], colour: bool) -> String {
        let headings = self
            .columns
            .iter()
            .map(|c| Cell::new(&c.heading).tone(Tone::Dim))
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            let mut pending = 0;
            for &at in columns {
                let Some(cell) = row.get(at) else { break };
                let (column, width) = (&self.columns[at], self.width(at));
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
    fn columns_that_do_not_fit_follow_behind_the_first() {
        let lines = |width| table().render_within(width, false);
        assert_eq!(lines(80), table().render(false));
        assert_eq!(
            lines(12),
            "lcore  CPU\nio0      3\neu10    14\n\nlcore  siblings\nio0    3,17\neu10\n"
        );
        // No narrower than a column beside the first.
        assert_eq!(lines(0), lines(12));
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
