//! A table with one column for each port and their total: the main page and its like.
//!
//! Totals are sums of what is printed in the columns, all from one snapshot, so that a page adds
//! up.

use super::grid::{Cell, Column, Grid, columns, wrap};
use super::number::{Figure, Form};
use super::theme::Tone;
use crate::PortView;

/// Widths of the names, of a port's column, and of the totals: two ports and their total take 80
/// columns.
pub(super) const LABEL: u16 = 18;
pub(super) const COLUMN: u16 = 19;
pub(super) const TOTAL: u16 = 21;

/// The content of the column of totals.
pub(super) enum Total {
    /// The sum of the columns.
    Sum,
    /// Given values, since percentiles have no sum.
    Of(Vec<Figure>),
    Nothing,
}

/// Rows under construction.
pub(super) struct Sheet<'a> {
    ports: &'a [PortView],
    lines: Vec<Vec<Cell>>,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(ports: &'a [PortView]) -> Self {
        Self {
            ports,
            lines: Vec::new(),
        }
    }

    /// One count for each port, and their sum.
    pub(super) fn count(&mut self, label: &str, of: impl Fn(&PortView) -> u64) {
        self.figures(label, Tone::Plain, Total::Sum, |port| {
            vec![Figure::Count(of(port))]
        });
    }

    /// A count that should be zero.
    pub(super) fn fault(&mut self, label: &str, of: impl Fn(&PortView) -> u64) {
        self.figures(label, Tone::Bad, Total::Sum, |port| {
            vec![Figure::Count(of(port))]
        });
    }

    /// Two figures with a `/` between them, and both sums.
    pub(super) fn pair(&mut self, label: &str, of: impl Fn(&PortView) -> (Figure, Figure)) {
        self.figures(label, Tone::Plain, Total::Sum, |port| {
            let (a, b) = of(port);
            vec![a, b]
        });
    }

    /// Figures with a `/` between them. With a `tone` of [`Tone::Bad`] or [`Tone::Warn`], what is
    /// not zero is marked.
    pub(super) fn figures(
        &mut self,
        label: &str,
        tone: Tone,
        total: Total,
        of: impl Fn(&PortView) -> Vec<Figure>,
    ) {
        self.row(label, tone, total, &of);
    }

    // Not generic: there are dozens of rows.
    fn row(
        &mut self,
        label: &str,
        tone: Tone,
        total: Total,
        of: &dyn Fn(&PortView) -> Vec<Figure>,
    ) {
        let rounded = |port| of(port).into_iter().map(Figure::rounded).collect();
        let cells: Vec<Vec<Figure>> = self.ports.iter().map(rounded).collect();
        let total = match total {
            Total::Of(figures) => Some(figures),
            Total::Nothing => None,
            Total::Sum => cells.iter().cloned().reduce(|sum, cell| {
                let both = sum.into_iter().zip(cell);
                both.map(|(a, b)| a.plus(b)).collect()
            }),
        };
        let print = |figures: &Vec<Figure>, form| {
            let parts: Vec<String> = figures.iter().map(|figure| figure.print(form)).collect();
            parts.join("/")
        };
        let marked = |figures: &[Figure]| {
            matches!(tone, Tone::Bad | Tone::Warn) && figures.iter().any(|f| f.value() != 0.0)
        };
        let fits = |figures: &Vec<Figure>, form, width: u16| {
            let length = print(figures, form).len() + usize::from(marked(figures));
            length <= usize::from(width)
        };
        // Ports are compared with each other, and have one form; their sum may need a shorter one.
        let first = |fits: &dyn Fn(Form) -> bool| {
            let mut forms = Form::ALL.into_iter();
            forms.find(|form| fits(*form)).unwrap_or(Form::Scaled)
        };
        let form = first(&|form| cells.iter().all(|figures| fits(figures, form, COLUMN)));
        let cell = |figures: &Vec<Figure>, form, plain| match marked(figures) {
            true => Cell::new(format!("!{}", print(figures, form)), tone),
            false => Cell::new(print(figures, form), plain),
        };
        let mut names = wrap(label, usize::from(LABEL));
        let last = names.pop().unwrap_or_default();
        let above = |name| vec![Cell::new(name, Tone::Label), Cell::empty()];
        self.lines.extend(names.into_iter().map(above));
        let mut line = vec![Cell::new(last, Tone::Label)];
        line.extend(cells.iter().map(|figures| cell(figures, form, Tone::Plain)));
        line.push(total.map_or_else(Cell::empty, |figures| {
            let form = first(&|form| fits(&figures, form, TOTAL));
            cell(&figures, form, Tone::Total)
        }));
        self.lines.push(line);
    }

    /// Text for each port, in as many lines as the longest takes.
    pub(super) fn text(&mut self, label: &str, of: impl Fn(&PortView) -> String) {
        self.toned(label, |port| Cell::plain(of(port)));
    }

    pub(super) fn toned(&mut self, label: &str, of: impl Fn(&PortView) -> Cell) {
        self.texts(label, &of);
    }

    fn texts(&mut self, label: &str, of: &dyn Fn(&PortView) -> Cell) {
        let cells: Vec<Cell> = self.ports.iter().map(of).collect();
        let pieces: Vec<Vec<String>> = cells
            .iter()
            .map(|cell| wrap(&cell.text, usize::from(COLUMN)))
            .collect();
        let height = pieces.iter().map(Vec::len).max().unwrap_or(1);
        for nth in 0..height {
            let label = if nth == 0 { label } else { "" };
            let mut line = vec![Cell::new(label, Tone::Label)];
            line.extend(cells.iter().zip(&pieces).map(|(cell, pieces)| {
                let piece = pieces.get(nth).cloned().unwrap_or_default();
                Cell::new(piece, cell.tone)
            }));
            line.push(Cell::empty());
            self.lines.push(line);
        }
    }

    /// A heading between groups of rows, over all columns.
    pub(super) fn heading(&mut self, text: &str) {
        self.lines
            .push(vec![Cell::new(format!("-- {text}"), Tone::Dim)]);
    }

    /// The table; `head` says what stands above a port's column, `corner` above the names.
    pub(super) fn grid(self, corner: &str, head: impl Fn(&PortView) -> String) -> Grid<'a> {
        let mut heads = vec![Column::left(corner, LABEL)];
        heads.extend(self.ports.iter().map(|port| {
            let head = head(port);
            debug_assert!(columns(&head) > 0);
            Column::right(head, COLUMN)
        }));
        let mut total = Column::right("---Total Rate---", TOTAL);
        total.head.tone = Tone::Total;
        heads.push(total);
        let lines = self.lines;
        Grid {
            columns: heads,
            pinned: 1,
            total: true,
            across: "ports",
            down: "rows",
            len: lines.len(),
            line: Box::new(move |at| lines[at].clone()),
        }
    }
}
