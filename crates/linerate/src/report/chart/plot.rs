//! Curves on any two scales.

use super::{Axis, both, count, legend};

/// A line through points.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    /// Number of the colour.
    pub(crate) colour: usize,
    /// A limit or an ideal, not a measurement: without dots.
    pub(crate) dashed: bool,
    /// x ascending.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Curves, each point with its value as a tooltip.
pub(crate) fn plot(
    unit: &str,
    below: &str,
    x: &Axis,
    y: &Axis,
    curves: &[Curve],
    spell: impl Fn(f64) -> String,
) -> String {
    let names: Vec<_> = curves
        .iter()
        .map(|c| (c.name, c.colour, c.dashed))
        .collect();
    both(unit, &legend(&names), |canvas| {
        canvas.axes(unit, below, x, y);
        for curve in curves {
            let points = curve.points.iter();
            let placed: Vec<(f64, f64)> = points
                .map(|(a, b)| (canvas.x(x.place(*a)), canvas.y(y.place(*b))))
                .collect();
            canvas.line(curve.colour, curve.dashed, &placed);
            // Many points are a curve of their own.
            if curve.dashed || placed.len() > 24 {
                continue;
            }
            for ((left, up), (_, value)) in placed.into_iter().zip(&curve.points) {
                let title = format!("{}: {}", curve.name, spell(*value));
                canvas.dot(curve.colour, left, up, 4.0, &title);
            }
        }
    })
}

/// Curves on two logarithmic scales; all values above zero.
pub(crate) fn curves(
    unit: &str,
    below: &str,
    curves: &[Curve],
    spell: impl Fn(f64) -> String,
) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let x = Axis::log(points().map(|point| point.0), count);
    let y = Axis::log(points().map(|point| point.1), &spell);
    plot(unit, below, &x, &y, curves, spell)
}
