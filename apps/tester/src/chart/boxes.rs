//! Spreads side by side: a box from quartile to quartile with the median across, whiskers to the
//! ends, and a dot for each value.

use std::fmt::Write;

use super::{Axis, Key, Style, both, legend, plain, short};

/// Values of one box.
pub(crate) struct Spread {
    name: String,
    colour: usize,
    /// Ascending.
    values: Vec<f64>,
}

impl Spread {
    pub(crate) fn of(name: impl Into<String>, colour: usize, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            name: name.into(),
            colour,
            values,
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        let at = share * self.values.len().saturating_sub(1) as f64;
        let (low, part) = (at.floor() as usize, at.fract());
        let value = |at: usize| self.values.get(at).copied().unwrap_or(f64::NAN);
        match part {
            0.0 => value(low),
            _ => value(low) * (1.0 - part) + value(low + 1) * part,
        }
    }
}

/// Boxes by name; `colours` names the colours.
pub(crate) fn boxes<'a>(
    unit: &str,
    below: &str,
    spreads: &[Spread],
    colours: &[(&'a str, usize)],
) -> String {
    let names: Vec<String> = spreads.iter().map(|spread| spread.name.clone()).collect();
    let x = Axis::categories(&names);
    let y = Axis::around(
        spreads
            .iter()
            .flat_map(|spread| spread.values.iter().copied()),
        |percent| format!("{} %", plain(percent)),
    );
    let key = |(number, (name, colour)): (usize, &(&'a str, usize))| Key {
        name,
        colour: *colour,
        style: Some(Style::Number(number)),
        is_line: false,
    };
    let keys: Vec<Key> = colours.iter().enumerate().map(key).collect();
    let style = |spread: &Spread| {
        let number = colours
            .iter()
            .position(|(_, colour)| *colour == spread.colour);
        Style::Number(number.unwrap_or(0))
    };
    both(unit, &legend(&keys), |canvas| {
        canvas.axes(unit, below, &x, &y);
        let slot = canvas.x(1.0 / names.len().max(1) as f64) - canvas.x(0.0);
        let half = (slot * 0.3).min(26.0);
        for (index, spread) in spreads.iter().enumerate() {
            if spread.values.is_empty() {
                continue;
            }
            let middle = canvas.x(x.place(index as f64 + 0.5));
            let at = |share: f64| canvas.y(y.place(spread.quantile(share)));
            let (low, first, median, third, high) = (at(0.0), at(0.25), at(0.5), at(0.75), at(1.0));
            let colour = spread.colour;
            let _ = write!(
                canvas.svg,
                "<line class=\"stem\" x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{low:.1}\" \
                 y2=\"{high:.1}\"/><rect class=\"box l{colour}\" x=\"{:.1}\" y=\"{third:.1}\" \
                 width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/><line class=\"curve l{colour}\" \
                 x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{median:.1}\" y2=\"{median:.1}\"/>",
                middle - half,
                half * 2.0,
                (first - third).max(1.0),
                middle - half,
                middle + half,
            );
            for value in &spread.values {
                let title = format!("{}: {}", spread.name, short(*value));
                let at = (middle, canvas.y(y.place(*value)));
                canvas.mark(colour, style(spread), at, 2.5, &title);
            }
        }
    })
}
