//! Bars of parts on top of each other, by category.

use std::fmt::Write;

use super::{Axis, Key, Series, both, escape, legend, plain, short};

/// A bar for each category, of one part from each series, the first at the bottom, its sum on top.
pub(crate) fn stack<'a>(
    unit: &str,
    below: &str,
    categories: &[String],
    parts: &[Series<'a>],
) -> String {
    let value = |part: &Series, at: usize| part.values.get(at).copied().unwrap_or(0.0);
    let sum = |at: usize| parts.iter().map(|part| value(part, at)).sum::<f64>();
    let y = Axis::linear((0..categories.len()).map(sum), plain);
    let x = Axis::categories(categories);
    let key = |part: &Series<'a>| Key {
        name: part.name,
        colour: part.colour,
        style: None,
        is_line: false,
    };
    let keys: Vec<Key> = parts.iter().map(key).collect();
    both(unit, &legend(&keys), |canvas| {
        canvas.axes(unit, below, &x, &y);
        let slot = canvas.x(1.0 / categories.len().max(1) as f64) - canvas.x(0.0);
        let wide = (slot * 0.6).min(90.0);
        for (at, category) in categories.iter().enumerate() {
            let middle = canvas.x(0.0) + slot * (at as f64 + 0.5);
            let mut base = 0.0;
            for part in parts {
                let value = value(part, at);
                if value <= 0.0 {
                    continue;
                }
                let (top, bottom) = (canvas.y(y.place(base + value)), canvas.y(y.place(base)));
                base += value;
                let _ = write!(
                    canvas.svg,
                    "<rect class=\"s{}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" \
                     height=\"{:.1}\"><title>{}, {}: {} {unit}</title></rect>",
                    part.colour,
                    middle - wide / 2.0,
                    (bottom - top - 0.6).max(0.3),
                    escape(category),
                    escape(part.name),
                    short(value)
                );
            }
            let top = canvas.y(y.place(base));
            canvas.label(middle, top - 5.0, &short(base));
        }
    })
}
