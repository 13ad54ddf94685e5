//! Charts as SVG, drawn by hand: columns side by side, dots on a logarithmic scale, and curves on
//! two.
//!
//! Colours are classes `s0`, `s1`, ... of the page's style sheet, so that they follow its light and
//! dark modes.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 46.0;

/// Values of one colour: one for each category.
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    /// Number of the colour.
    pub(crate) colour: usize,
    pub(crate) values: Vec<f64>,
}

/// Columns by category, each with its value on top; the scale begins at 0.
pub(crate) fn columns(unit: &str, below: &str, categories: &[String], series: &[Series]) -> String {
    let most = series
        .iter()
        .flat_map(|series| &series.values)
        .fold(0.0, |a: f64, &b| a.max(b));
    let step = round_step(most / 4.0);
    let top = (most / step).ceil().max(1.0) * step;
    let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / top);
    let mut svg = frame(unit, below, categories);
    for line in 0..=(top / step).round() as usize {
        rule(&mut svg, y(line as f64 * step), &plain(line as f64 * step));
    }
    let slot = (WIDTH - LEFT - RIGHT) / categories.len().max(1) as f64;
    let wide = (slot * 0.78 / series.len().max(1) as f64).min(64.0);
    for (number, one) in series.iter().enumerate() {
        for (index, &value) in one.values.iter().enumerate() {
            let middle = LEFT + slot * (index as f64 + 0.5);
            let x = middle + (number as f64 - series.len() as f64 / 2.0) * wide;
            let _ = write!(
                svg,
                "<rect class=\"s{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"><title>{}, {}: {} {unit}</title></rect>",
                one.colour,
                x + 1.0,
                y(value),
                wide - 2.0,
                (y(0.0) - y(value)).max(0.5),
                escape(one.name),
                escape(categories.get(index).map_or("", |name| name)),
                short(value)
            );
            if wide >= 30.0 {
                label(&mut svg, x + wide / 2.0, y(value) - 5.0, &short(value));
            }
        }
    }
    svg + "</svg>" + &legend(&names(series))
}

/// Dots by category on a logarithmic scale, joined within a category from least to most.
pub(crate) fn dots(unit: &str, below: &str, categories: &[String], series: &[Series]) -> String {
    let all = || {
        series
            .iter()
            .flat_map(|series| series.values.iter().map(|value| value.max(1.0)))
    };
    let low = all().fold(f64::MAX, f64::min).log10().floor();
    let high = all().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let y = |value: f64| {
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (value.max(1.0).log10() - low) / (high - low))
    };
    let mut svg = frame(unit, below, categories);
    for power in low as i32..=high as i32 {
        let value = 10_f64.powi(power);
        rule(&mut svg, y(value), &duration(value).replace(".0", ""));
    }
    let slot = (WIDTH - LEFT - RIGHT) / categories.len().max(1) as f64;
    for index in 0..categories.len() {
        let x = LEFT + slot * (index as f64 + 0.5);
        let here = || {
            series
                .iter()
                .filter_map(|one| Some((one, *one.values.get(index)?)))
        };
        let ends = here().fold((f64::MAX, 0.0_f64), |(a, b), (_, value)| {
            (a.min(value), b.max(value))
        });
        let _ = write!(
            svg,
            "<line class=\"stem\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
            y(ends.0),
            y(ends.1)
        );
        let mut last = f64::MAX;
        for (one, value) in here() {
            let _ = write!(
                svg,
                "<circle class=\"s{}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"5\"/>",
                one.colour,
                y(value)
            );
            // Labels that would overlap are in the table.
            if last - y(value) > 13.0 {
                let _ = write!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    x + 9.0,
                    y(value) + 4.0,
                    duration(value)
                );
                last = y(value);
            }
        }
    }
    svg + "</svg>" + &legend(&names(series))
}

/// A line through points.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    /// Number of the colour.
    pub(crate) colour: usize,
    /// Both above zero, x ascending.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Curves on two logarithmic scales, each point with its value as a tooltip; the last is labelled.
pub(crate) fn curves(
    unit: &str,
    below: &str,
    curves: &[Curve],
    spell: impl Fn(f64) -> String,
) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let decades = |of: fn(&(f64, f64)) -> f64| {
        let low = points().map(of).fold(f64::MAX, f64::min).log10().floor();
        let high = points().map(of).fold(f64::MIN_POSITIVE, f64::max).log10();
        (low, high.ceil().max(low + 1.0))
    };
    let (left, right) = decades(|point| point.0);
    let (low, high) = decades(|point| point.1);
    let span = (WIDTH - LEFT - RIGHT - 24.0, HEIGHT - TOP - BOTTOM);
    let x = |value: f64| LEFT + 8.0 + span.0 * (value.log10() - left) / (right - left);
    let y = |value: f64| TOP + span.1 * (1.0 - (value.log10() - low) / (high - low));
    let mut svg = frame(unit, below, &[]);
    for power in low as i32..=high as i32 {
        let value = 10_f64.powi(power);
        rule(&mut svg, y(value), &spell(value));
    }
    for power in left as i32..=right as i32 {
        let value = 10_f64.powi(power);
        label(&mut svg, x(value), HEIGHT - BOTTOM + 18.0, &count(value));
    }
    for curve in curves {
        let path: Vec<String> = curve
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1)))
            .collect();
        let _ = write!(
            svg,
            "<polyline class=\"curve l{}\" points=\"{}\"/>",
            curve.colour,
            path.join(" ")
        );
        for point in &curve.points {
            let _ = write!(
                svg,
                "<circle class=\"s{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}, {}: {}</title></circle>",
                curve.colour,
                x(point.0),
                y(point.1),
                escape(curve.name),
                count(point.0),
                spell(point.1)
            );
        }
    }
    let names: Vec<(&str, usize)> = curves.iter().map(|c| (c.name, c.colour)).collect();
    svg + "</svg>" + &legend(&names)
}

/// `1`, `10 k`, `1 M`.
pub(crate) fn count(value: f64) -> String {
    match value {
        ..1e3 => format!("{value:.0}"),
        ..1e6 => format!("{} k", value / 1e3),
        _ => format!("{} M", value / 1e6),
    }
}

fn frame(unit: &str, below: &str, categories: &[String]) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\"><text class=\"unit\" x=\"0\" y=\"11\">{}</text>",
        escape(unit)
    );
    let slot = (WIDTH - LEFT - RIGHT) / categories.len().max(1) as f64;
    for (index, name) in categories.iter().enumerate() {
        label(
            &mut svg,
            LEFT + slot * (index as f64 + 0.5),
            HEIGHT - BOTTOM + 18.0,
            &escape(name),
        );
    }
    label(
        &mut svg,
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        HEIGHT - 8.0,
        &escape(below),
    );
    svg
}

fn rule(svg: &mut String, y: f64, text: &str) {
    let _ = write!(
        svg,
        "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
        WIDTH - RIGHT,
        LEFT - 8.0,
        y + 4.0
    );
}

fn label(svg: &mut String, x: f64, y: f64, text: &str) {
    let _ = write!(
        svg,
        "<text class=\"mid\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
    );
}

fn names<'a>(series: &[Series<'a>]) -> Vec<(&'a str, usize)> {
    series.iter().map(|one| (one.name, one.colour)).collect()
}

fn legend(series: &[(&str, usize)]) -> String {
    if series.len() < 2 {
        return String::new();
    }
    let one = |(name, colour): &(&str, usize)| {
        format!("<span><i class=\"s{colour}\"></i>{}</span>", escape(name))
    };
    format!(
        "<p class=\"legend\">{}</p>",
        series.iter().map(one).collect::<String>()
    )
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

/// A round number as one writes it.
fn plain(value: f64) -> String {
    // Sums of steps such as 0.1 are a little off.
    ((value * 1e6).round() / 1e6).to_string()
}

/// Three figures are enough.
fn short(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        ..1.0 => format!("{value:.2}"),
        ..10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Nanoseconds in the unit that suits them.
pub(crate) fn duration(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{} µs", short(ns * 1e-3)),
        _ => format!("{} ms", short(ns * 1e-6)),
    }
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
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
            [0.0, 0.234, 2.34, 23.4].map(short),
            ["0", "0.23", "2.3", "23"]
        );
        assert_eq!(
            [640.0, 1500.0, 2.0e6].map(duration),
            ["640 ns", "1.5 µs", "2.0 ms"]
        );
    }

    #[test]
    fn a_chart_has_a_mark_for_each_value() {
        let values = |colour| Series {
            name: "a<b",
            colour,
            values: vec![1.0, 2.0],
        };
        let sizes = ["64".to_string(), "128".to_string()];
        let svg = columns("Mpps", "size", &sizes, &[values(0), values(1)]);
        assert_eq!(svg.matches("<rect").count(), 4);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        assert_eq!(
            dots("ns", "size", &sizes, &[values(0)])
                .matches("<circle")
                .count(),
            2
        );
    }
}
