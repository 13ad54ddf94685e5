//! Curves on any two scales.

use super::{Axis, Key, Style, both, count, legend};

/// Marks of a curve at most.
const MARKS: usize = 24;

/// A line through points.
pub struct Curve<'a> {
    pub name: &'a str,
    /// Number of the colour.
    pub colour: usize,
    /// A limit or an ideal, not a measurement: without marks.
    pub dashed: bool,
    /// x ascending.
    pub points: Vec<(f64, f64)>,
}

/// Curves, each point with its value as a tooltip.
pub(crate) fn plot<'a>(
    unit: &str,
    below: &str,
    x: &Axis,
    y: &Axis,
    curves: &[Curve<'a>],
    spell: impl Fn(f64) -> String,
) -> String {
    let style = |number: usize| match curves[number].dashed {
        true => Style::Limit,
        // Limits get no number.
        false => Style::Number(
            curves[..number]
                .iter()
                .filter(|curve| !curve.dashed)
                .count(),
        ),
    };
    let key = |(number, curve): (usize, &Curve<'a>)| Key {
        name: curve.name,
        colour: curve.colour,
        style: Some(style(number)),
        is_line: true,
    };
    let keys: Vec<Key> = curves.iter().enumerate().map(key).collect();
    both(unit, &legend(&keys), |canvas| {
        canvas.axes(unit, below, x, y);
        for (number, curve) in curves.iter().enumerate() {
            let points = curve.points.iter();
            let placed: Vec<(f64, f64)> = points
                .map(|(a, b)| (canvas.x(x.place(*a)), canvas.y(y.place(*b))))
                .collect();
            let style = style(number);
            canvas.line(curve.colour, style, &placed);
            // Of many points only some have marks, at other places for each curve.
            let every = placed.len().div_ceil(MARKS).max(1);
            let marked = placed.into_iter().zip(&curve.points).skip(number % every);
            for (at, (_, value)) in marked.step_by(every) {
                let title = format!("{}: {}", curve.name, spell(*value));
                canvas.mark(curve.colour, style, at, 4.0, &title);
            }
        }
    })
}

/// Curves on two logarithmic scales; all values above zero.
pub fn curves(unit: &str, below: &str, curves: &[Curve], spell: impl Fn(f64) -> String) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let x = Axis::log(points().map(|point| point.0), count);
    let y = Axis::log(points().map(|point| point.1), &spell);
    plot(unit, below, &x, &y, curves, spell)
}
