//! Charts as SVG, drawn by hand: [`columns()`] and [`dots`] by category, [`plot()`] of curves on
//! any two [`Axis`]es, and [`boxes()`] of spreads.
//!
//! Colours are classes `s0`, `s1`, ... (filled) and `l0`, `l1`, ... (lines) of the page's style
//! sheet, so that they follow its light and dark modes. Each chart is drawn twice, for wide and
//! narrow places; the style sheet shows the one that fits, so that text is never scaled to nothing.

mod axis;
mod boxes;
mod columns;
mod plot;
mod stack;

use std::fmt::Write;

pub(crate) use axis::Axis;
pub(crate) use boxes::{Spread, boxes};
pub(crate) use columns::{Series, columns, dots};
pub(crate) use plot::plot;
pub use plot::{Curve, curves};
pub(crate) use stack::stack;

/// Room around a chart's field.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 46.0;

/// A chart under way.
struct Canvas {
    svg: String,
    width: f64,
    height: f64,
}

impl Canvas {
    fn x(&self, share: f64) -> f64 {
        LEFT + (self.width - LEFT - RIGHT) * share
    }

    fn y(&self, share: f64) -> f64 {
        TOP + (self.height - TOP - BOTTOM) * (1.0 - share)
    }

    /// Whether this is the chart for narrow places.
    fn narrow(&self) -> bool {
        self.width < 500.0
    }

    /// A line across, with its value to the left.
    fn rule(&mut self, y: f64, text: &str) {
        let right = self.width - RIGHT;
        let _ = write!(
            self.svg,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }

    /// Text with its middle at `x`.
    fn label(&mut self, x: f64, y: f64, text: &str) {
        let _ = write!(
            self.svg,
            "<text class=\"mid\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            escape(text)
        );
    }

    /// Draws both scales with their names and values; values that would overlap are left out.
    fn axes(&mut self, unit: &str, below: &str, x: &Axis, y: &Axis) {
        let _ = write!(
            self.svg,
            "<text class=\"unit\" x=\"0\" y=\"11\">{}</text>",
            escape(unit)
        );
        for (share, text) in y.ticks() {
            let at = self.y(share);
            self.rule(at, &escape(&text));
        }
        let bottom = self.height - BOTTOM + 18.0;
        let mut free = f64::MIN;
        for (share, text) in x.ticks() {
            let at = self.x(share);
            let half = text.chars().count() as f64 * 3.6;
            if at - half > free {
                self.label(at, bottom, &text);
                free = at + half + 4.0;
            }
        }
        let (middle, bottom) = (self.x(0.5), self.height - 8.0);
        self.label(middle, bottom, below);
    }

    /// A line through points, in the pattern of its style.
    fn line(&mut self, colour: usize, style: Style, points: &[(f64, f64)]) {
        let dashed = style.class();
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = write!(
            self.svg,
            "<polyline class=\"curve l{colour} {dashed}\" points=\"{}\"/>",
            path.join(" ")
        );
    }

    /// A mark in the form of its style.
    fn mark(&mut self, colour: usize, style: Style, (x, y): (f64, f64), radius: f64, title: &str) {
        let title = format!("<title>{}</title>", escape(title));
        self.svg += &style.mark(colour, (x, y), radius, &title);
    }
}

/// Draws a chart for wide and for narrow places, with its legend.
fn both(name: &str, legend: &str, draw: impl Fn(&mut Canvas)) -> String {
    let mut html = String::from("<div class=\"chart\">");
    for (class, width, height) in [("big", 760.0, 300.0), ("small", 400.0, 280.0)] {
        let mut canvas = Canvas {
            svg: format!(
                "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
                 aria-label=\"{}\">",
                escape(name)
            ),
            width,
            height,
        };
        draw(&mut canvas);
        html.push_str(&canvas.svg);
        html.push_str("</svg>");
    }
    html + legend + "</div>"
}

/// What distinguishes a series from others without its colour: by the pattern of its line and the
/// form of its marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// The n-th of a chart.
    Number(usize),
    /// A limit or an ideal.
    Limit,
}

impl Style {
    const COUNT: usize = 8;

    /// The pattern's class.
    fn class(self) -> String {
        match self {
            Self::Number(number) => format!("p{}", number % Self::COUNT),
            Self::Limit => "dashed".into(),
        }
    }

    fn mark(self, colour: usize, (x, y): (f64, f64), radius: f64, inside: &str) -> String {
        let Self::Number(number) = self else {
            return String::new();
        };
        // Corners as parts of the radius: a square, triangles, a diamond, a cross, a plus, a star
        // of three.
        let corners: &[(f64, f64)] = match number % Self::COUNT {
            0 => {
                return format!(
                    "<circle class=\"s{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" \
                     r=\"{radius}\">{inside}</circle>"
                );
            }
            1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            2 => &[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
            3 => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
            4 => &[(0.0, 1.2), (1.1, -0.9), (-1.1, -0.9)],
            5 => &[
                (-0.4, -1.2),
                (0.4, -1.2),
                (0.4, -0.4),
                (1.2, -0.4),
                (1.2, 0.4),
                (0.4, 0.4),
                (0.4, 1.2),
                (-0.4, 1.2),
                (-0.4, 0.4),
                (-1.2, 0.4),
                (-1.2, -0.4),
                (-0.4, -0.4),
            ],
            6 => &[(-1.2, -0.5), (1.2, -0.5), (1.2, 0.5), (-1.2, 0.5)],
            _ => &[(-0.5, -1.3), (0.5, -1.3), (0.5, 1.3), (-0.5, 1.3)],
        };
        let points: Vec<String> = corners
            .iter()
            .map(|(a, b)| format!("{:.1},{:.1}", x + a * radius, y + b * radius))
            .collect();
        format!(
            "<polygon class=\"s{colour}\" points=\"{}\">{inside}</polygon>",
            points.join(" ")
        )
    }
}

/// The legend's entry of a series.
struct Key<'a> {
    name: &'a str,
    colour: usize,
    /// Style of its line and marks; `None` for an area.
    style: Option<Style>,
    /// Whether there is a line.
    is_line: bool,
}

/// Names with their colours, patterns and marks; one alone needs none.
fn legend(keys: &[Key]) -> String {
    if keys.len() < 2 {
        return String::new();
    }
    let one = |key: &Key| {
        let colour = key.colour;
        let Some(style) = key.style else {
            return format!(
                "<span><i class=\"s{colour}\"></i>{}</span>",
                escape(key.name)
            );
        };
        let line = match key.is_line {
            true => format!(
                "<line class=\"curve l{colour} {}\" x1=\"0\" x2=\"34\" y1=\"7\" y2=\"7\"/>",
                style.class()
            ),
            false => String::new(),
        };
        format!(
            "<span><svg class=\"key\" viewBox=\"0 0 34 14\">{line}{}</svg>{}</span>",
            style.mark(colour, (17.0, 7.0), 4.0, ""),
            escape(key.name)
        )
    };
    let names: String = keys.iter().map(one).collect();
    format!("<p class=\"legend\">{names}</p>")
}

/// `1`, `10 k`, `1 M`.
pub fn count(value: f64) -> String {
    match value {
        ..1e3 => format!("{value:.0}"),
        ..1e6 => format!("{} k", plain(value / 1e3)),
        _ => format!("{} M", plain(value / 1e6)),
    }
}

/// The next 1, 2 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-6).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(power)
}

/// A round number without trailing zeros.
pub(crate) fn plain(value: f64) -> String {
    // Sums of steps such as 0.1 are a little off.
    ((value * 1e6).round() / 1e6).to_string()
}

/// Three figures are enough.
pub(crate) fn short(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        ..0.995 => format!("{value:.2}"),
        ..9.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Nanoseconds in the unit that suits them.
pub fn duration(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{} µs", short(ns * 1e-3)),
        ..1e9 => format!("{} ms", short(ns * 1e-6)),
        _ => format!("{} s", short(ns * 1e-9)),
    }
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_steps_and_values_few_figures() {
        assert_eq!(
            [0.03, 0.7, 1.2, 23.0].map(round_step),
            [0.05, 1.0, 2.0, 50.0]
        );
        assert_eq!(
            [0.0, 0.234, 2.34, 9.97, 23.4].map(short),
            ["0", "0.23", "2.3", "10", "23"]
        );
        assert_eq!(
            [640.0, 1500.0, 2.0e6, 3e9].map(duration),
            ["640 ns", "1.5 µs", "2.0 ms", "3.0 s"]
        );
    }

    #[test]
    fn a_chart_has_a_mark_for_each_value_in_each_width() {
        let values = |colour| Series {
            name: "a<b",
            colour,
            values: vec![1.0, 2.0],
        };
        let sizes = ["64".to_string(), "128".to_string()];
        let svg = columns("Mpps", "size", &sizes, &[values(0), values(1)], None);
        assert_eq!(svg.matches("<rect").count(), 2 * 4);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        let svg = dots("ns", "size", &sizes, &[values(0)]);
        assert_eq!(svg.matches("<circle").count(), 2 * 2);
        let curve = |dashed| Curve {
            name: "c",
            colour: 0,
            dashed,
            points: vec![(1.0, 10.0), (100.0, 0.0)],
        };
        let points = || [1.0, 100.0].into_iter();
        let svg = plot(
            "%",
            "x",
            &Axis::log(points(), count),
            &Axis::linear(points(), plain),
            &[curve(false), curve(true)],
            plain,
        );
        assert_eq!(svg.matches("<polyline").count(), 2 * 2);
        // Series differ without colours, too: each has a pattern and a mark, and the legend has
        // both.
        let curve = |name| Curve {
            name,
            ..curve(false)
        };
        let (x, y) = (Axis::log(points(), count), Axis::linear(points(), plain));
        let svg = plot("%", "x", &x, &y, &[curve("a"), curve("b")], plain);
        assert_eq!(svg.matches("l0 p1").count(), 3);
        assert_eq!(
            (
                svg.matches("<circle").count(),
                svg.matches("<polygon").count()
            ),
            (5, 5)
        );
        let marks = (0..Style::COUNT).map(|n| Style::Number(n).mark(0, (0.0, 0.0), 1.0, ""));
        let mut marks: Vec<String> = marks.collect();
        marks.sort();
        marks.dedup();
        assert_eq!(marks.len(), Style::COUNT);

        let spread = Spread::of("64", 0, vec![1.0, 2.0, 4.0]);
        let svg = boxes("%", "size", &[spread], &[]);
        assert_eq!(svg.matches("<circle").count(), 2 * 3);
    }

    #[test]
    fn nothing_to_show_is_no_broken_chart() {
        let none = || std::iter::empty::<f64>();
        let all = [
            columns("a", "b", &[], &[], None),
            dots("a", "b", &[], &[]),
            plot(
                "a",
                "b",
                &Axis::linear(none(), plain),
                &Axis::log(none(), plain),
                &[],
                plain,
            ),
            boxes("a", "b", &[], &[]),
        ];
        for svg in all {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
