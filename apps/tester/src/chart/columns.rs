//! Columns side by side, and dots on a logarithmic scale, by category.

use std::fmt::Write;

use super::{Axis, Canvas, Key, Style, both, duration, escape, legend, plain, short};

/// Values of one colour: one for each category.
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    /// Number of the colour.
    pub(crate) colour: usize,
    pub(crate) values: Vec<f64>,
}

/// The legend of areas, or of marks.
fn keys<'a>(series: &[Series<'a>], marks: bool) -> Vec<Key<'a>> {
    let key = |(number, one): (usize, &Series<'a>)| Key {
        name: one.name,
        colour: one.colour,
        style: marks.then_some(Style::Number(number)),
        is_line: false,
    };
    series.iter().enumerate().map(key).collect()
}

/// Columns by category, each with its value on top, and a common limit, if there is one, as a
/// dashed line. The scale begins at 0.
pub(crate) fn columns(
    unit: &str,
    below: &str,
    categories: &[String],
    series: &[Series],
    limit: Option<&Series>,
) -> String {
    let all = series.iter().chain(limit).flat_map(|one| &one.values);
    let y = Axis::linear(all.copied(), plain);
    let x = Axis::categories(categories);
    let mut named = keys(series, false);
    named.extend(limit.map(|limit| Key {
        name: limit.name,
        colour: limit.colour,
        style: Some(Style::Limit),
        is_line: true,
    }));
    both(unit, &legend(&named), |canvas| {
        canvas.axes(unit, below, &x, &y);
        let slot = canvas.x(1.0 / categories.len().max(1) as f64) - canvas.x(0.0);
        let wide = (slot * 0.78 / series.len().max(1) as f64).min(64.0);
        for (number, one) in series.iter().enumerate() {
            for (index, &value) in one.values.iter().enumerate() {
                let middle = canvas.x(0.0) + slot * (index as f64 + 0.5);
                let left = middle + (number as f64 - series.len() as f64 / 2.0) * wide;
                let category = categories.get(index).map_or("", |name| name);
                column(canvas, one, value, (left, wide), &y, (unit, category));
            }
        }
        for (index, &value) in limit
            .iter()
            .flat_map(|limit| limit.values.iter().enumerate())
        {
            let left = canvas.x(0.0) + slot * (index as f64 + 0.06);
            let at = canvas.y(y.place(value));
            let points = [(left, at), (left + slot * 0.88, at)];
            canvas.line(limit.map_or(0, |limit| limit.colour), Style::Limit, &points);
        }
    })
}

fn column(
    canvas: &mut Canvas,
    series: &Series,
    value: f64,
    (left, wide): (f64, f64),
    y: &Axis,
    (unit, category): (&str, &str),
) {
    let (top, bottom) = (canvas.y(y.place(value)), canvas.y(0.0));
    let _ = write!(
        canvas.svg,
        "<rect class=\"s{}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\">\
         <title>{}, {}: {} {unit}</title></rect>",
        series.colour,
        left + 1.0,
        (wide - 2.0).max(1.0),
        (bottom - top).max(0.5),
        escape(series.name),
        escape(category),
        short(value)
    );
    if wide >= 30.0 {
        canvas.label(left + wide / 2.0, top - 5.0, &short(value));
    }
}

/// Times by category on a logarithmic scale, joined within a category from least to most.
pub(crate) fn dots(unit: &str, below: &str, categories: &[String], series: &[Series]) -> String {
    let spell = |ns: f64| duration(ns).replace(".0", "");
    let all = series
        .iter()
        .flat_map(|one| one.values.iter().map(|value| value.max(1.0)));
    let y = Axis::log(all, spell);
    let x = Axis::categories(categories);
    both(unit, &legend(&keys(series, true)), |canvas| {
        canvas.axes(unit, below, &x, &y);
        for (index, category) in categories.iter().enumerate() {
            let at = canvas.x(x.place(index as f64 + 0.5));
            let here = || {
                let values = series
                    .iter()
                    .enumerate()
                    .filter_map(|(number, one)| Some((number, one, *one.values.get(index)?)));
                values.filter(|(_, _, value)| *value > 0.0)
            };
            let ends = here().fold((f64::MAX, 0.0_f64), |(a, b), (_, _, value)| {
                (a.min(value), b.max(value))
            });
            if ends.0 > ends.1 {
                continue;
            }
            let _ = write!(
                canvas.svg,
                "<line class=\"stem\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                canvas.y(y.place(ends.0)),
                canvas.y(y.place(ends.1))
            );
            let mut last = f64::MAX;
            for (number, one, value) in here() {
                let up = canvas.y(y.place(value));
                let title = format!("{}, {category}: {}", one.name, spell(value));
                canvas.mark(one.colour, Style::Number(number), (at, up), 5.0, &title);
                // Labels that would overlap are left out; the table has the values.
                if last - up > 13.0 && !canvas.narrow() {
                    let _ = write!(
                        canvas.svg,
                        "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                        at + 9.0,
                        up + 4.0,
                        escape(&spell(value))
                    );
                    last = up;
                }
            }
        }
    })
}
