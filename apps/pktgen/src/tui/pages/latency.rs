//! The latency page: a table over ports, and a histogram of the chosen one, both its axes
//! logarithmic, since one frame in ten million matters.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::latency_of_all;
use crate::tui::grid::Grid;
use crate::tui::number::{Figure, Form, grouped, micros, time};
use crate::tui::sheet::{Sheet, Total};
use crate::tui::theme::{Theme, Tone};
use crate::{Latency, Snapshot};

/// One figure of a distribution, in ns.
type Figured = fn(&Latency) -> f64;

pub(super) fn page(snapshot: &Snapshot, chosen: usize) -> Grid<'_> {
    let mut sheet = Sheet::new(&snapshot.ports);
    let all = latency_of_all(snapshot.ports.iter().map(|port| &port.latency));
    sheet.count("Samples", |port| port.latency.samples);
    let rows: [(&str, Figured); 10] = [
        ("Latency min us", |latency| latency.min_ns),
        ("        mean us", |latency| latency.mean_ns),
        ("        p50 us", |latency| latency.p50_ns),
        ("        p90 us", |latency| latency.p90_ns),
        ("        p99 us", |latency| latency.p99_ns),
        ("        p99.9 us", |latency| latency.p999_ns),
        ("        p99.99 us", |latency| latency.p9999_ns),
        ("        max us", |latency| latency.max_ns),
        ("Jitter us", |latency| latency.jitter_ns),
        ("Change max us", |latency| latency.ipdv_max_ns),
    ];
    for (label, of) in rows {
        let figure = |latency: &Latency| match latency.samples {
            0 => Figure::None,
            _ => micros(of(latency)),
        };
        let total = Total::Of(vec![figure(&all)]);
        sheet.figures(label, Tone::Plain, total, |port| {
            vec![figure(&port.latency)]
        });
    }
    let chosen = snapshot.ports.get(chosen).map(|port| port.number);
    let mut grid = sheet.grid("Port", |port| match chosen == Some(port.number) {
        true => format!("> {} {}", port.number, port.name),
        false => format!("{} {}", port.number, port.name),
    });
    super::total_is_all(&mut grid);
    for (column, port) in grid.columns.iter_mut().skip(1).zip(&snapshot.ports) {
        if chosen == Some(port.number) {
            column.head.tone = Tone::Input;
        }
    }
    grid
}

/// Columns for the numbers at the left of the bars.
const AXIS: u16 = 8;
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Paints the histogram of the chosen port into `area`; with `ascii` its bars are `#`.
pub(in crate::tui) fn histogram(
    snapshot: &Snapshot,
    chosen: usize,
    ascii: bool,
    area: Rect,
    buffer: &mut Buffer,
    theme: &Theme,
) {
    let Some(port) = snapshot.ports.get(chosen) else {
        return;
    };
    let style = |tone| theme.style(tone);
    let latency = &port.latency;
    let title = match latency.samples {
        0 => format!(
            "Port {}: no test frame has come in: no latency is known",
            port.number
        ),
        samples => format!(
            "Port {}: {} frames by latency, both axes logarithmic (Left, Right: port)",
            port.number,
            grouped(samples)
        ),
    };
    buffer.set_stringn(
        area.x,
        area.y,
        &title,
        area.width.into(),
        style(Tone::Label),
    );
    if latency.samples == 0 || area.height < 5 || area.width < AXIS + 20 {
        return;
    }
    let plot = Rect {
        x: area.x + AXIS,
        y: area.y + 1,
        width: area.width - AXIS - 1,
        height: area.height - 4,
    };
    let scale = Scale::over(latency, plot.width);
    let counts = scale.counts(latency);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    // From below 1 (so that one frame is seen) to the next power of ten.
    let decades = (most as f64).log10().ceil().max(1.0);
    let share = |count: u64| ((count as f64).log10() + 0.3) / (decades + 0.3);

    for row in 0..plot.height {
        let y = plot.bottom() - 1 - row;
        for (column, &count) in counts.iter().enumerate() {
            let eighths = match count {
                0 => 0,
                count => (share(count) * f64::from(plot.height) * 8.0)
                    .round()
                    .max(1.0) as i64,
            };
            let here = (eighths - i64::from(row) * 8).clamp(0, 8) as usize;
            let sign = match (ascii, here) {
                (_, 0) => " ",
                (true, 1..4) => ".",
                (true, _) => "#",
                (false, here) => EIGHTHS[here],
            };
            buffer.set_string(plot.x + column as u16, y, sign, style(Tone::Bar));
        }
        buffer.set_string(plot.x - 1, y, "|", style(Tone::Dim));
    }
    // Powers of ten, as many as there is room for.
    let step = (decades / f64::from(plot.height)).ceil().max(1.0) as usize;
    for power in (0..=decades as usize).step_by(step) {
        let up = (share(10u64.pow(power as u32)) * f64::from(plot.height)) as u16;
        let y = plot.bottom() - 1 - up.min(plot.height - 1);
        // 1, 10, 100, 1k and so on.
        let letter = ["", "k", "M", "G", "T", "P", "E"][power / 3 % 7];
        let text = format!("{}{letter}", 10u32.pow(power as u32 % 3));
        buffer.set_string(area.x, y, format!("{text:>6}"), style(Tone::Dim));
    }
    let line = format!("+{}", "-".repeat(plot.width.into()));
    buffer.set_string(plot.x - 1, plot.bottom(), line, style(Tone::Dim));
    for (column, text) in scale.labels() {
        let x = plot.x + column;
        buffer.set_string(x, plot.bottom(), "+", style(Tone::Dim));
        let begin = x
            .saturating_sub(text.len() as u16 / 2)
            .min(area.right().saturating_sub(text.len() as u16));
        buffer.set_string(begin, plot.bottom() + 1, text, style(Tone::Dim));
    }
    percentiles(latency, &scale, plot, buffer, theme);
}

/// The line of marks at the percentiles, as far as they fit.
fn percentiles(latency: &Latency, scale: &Scale, plot: Rect, buffer: &mut Buffer, theme: &Theme) {
    let mut free = plot.x;
    for (name, ns) in [
        ("p50", latency.p50_ns),
        ("p90", latency.p90_ns),
        ("p99", latency.p99_ns),
        ("p99.9", latency.p999_ns),
        ("max", latency.max_ns),
    ] {
        let value = micros(ns).print(Form::Grouped);
        let text = format!("^{name} {value} us");
        let x = plot.x + scale.column(ns);
        // Written to the left of its mark where there is no room to the right.
        let (begin, text) = match x + text.len() as u16 <= plot.right() + 1 {
            true => (x, text),
            false => {
                let text = format!("{name} {value} us^");
                ((x + 1).saturating_sub(text.len() as u16), text)
            }
        };
        if begin >= free {
            buffer.set_string(begin, plot.bottom() + 2, &text, theme.style(Tone::Total));
            free = begin + text.len() as u16 + 1;
        }
    }
}

/// The logarithmic axis of times: from and to a power of ten around what was measured.
struct Scale {
    first: f64,
    last: f64,
    width: u16,
}

impl Scale {
    fn over(latency: &Latency, width: u16) -> Self {
        let first = latency.min_ns.max(1.0).log10().floor();
        // The upper bound of the last bucket may lie above the maximum.
        let bounds = latency.buckets.iter().map(|(bound, _)| *bound);
        let most = bounds.fold(latency.max_ns, f64::max);
        let last = most.max(1.0).log10().ceil().max(first + 1.0);
        Self { first, last, width }
    }

    fn column(&self, ns: f64) -> u16 {
        let share = (ns.max(1.0).log10() - self.first) / (self.last - self.first);
        let column = share * f64::from(self.width);
        (column.max(0.0) as u16).min(self.width - 1)
    }

    /// Frames in each column; they sum to those of the buckets.
    fn counts(&self, latency: &Latency) -> Vec<u64> {
        let mut counts = vec![0; usize::from(self.width)];
        for (bound, count) in &latency.buckets {
            counts[usize::from(self.column(*bound))] += count;
        }
        counts
    }

    /// Times to write below the axis: powers of ten, and 2 and 5 of them where there is room.
    fn labels(&self) -> Vec<(u16, String)> {
        let each = f64::from(self.width) / (self.last - self.first);
        let factors: &[f64] = if each >= 36.0 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let mut labels = Vec::new();
        let mut free = 0;
        for power in self.first as i32..=self.last as i32 {
            for factor in factors {
                let ns = factor * 10f64.powi(power);
                let (column, text) = (self.column(ns), time(ns));
                let begin = column.saturating_sub(text.len() as u16 / 2);
                if ns.log10() <= self.last && begin >= free {
                    free = begin + text.len() as u16 + 2;
                    labels.push((column, text));
                }
            }
        }
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_is_in_one_column_of_the_histogram() {
        let latency = Latency {
            samples: 111,
            min_ns: 800.0,
            max_ns: 2.5e6,
            buckets: vec![(1000.0, 100), (1e6, 10), (2.6e6, 1)],
            ..Latency::default()
        };
        for width in [20, 71, 191] {
            let scale = Scale::over(&latency, width);
            assert_eq!((scale.first, scale.last), (2.0, 7.0));
            let counts = scale.counts(&latency);
            assert_eq!(counts.iter().sum::<u64>(), 111);
            assert!(scale.column(1000.0) < scale.column(1e6));
            assert_eq!(counts[usize::from(scale.column(1e6))], 10);
        }
    }
}
