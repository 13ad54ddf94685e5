//! Scales: where a value lies between 0 and 1, and which values label the axis.

use super::{plain, round_step};

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Log,
    /// For percentiles: each further nine takes as much room as the one before.
    Nines,
}

/// One of a chart's two scales.
pub(crate) struct Axis {
    scale: Scale,
    /// After [`Scale`]'s function.
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to the next round value.
    pub(crate) fn linear(values: impl Iterator<Item = f64>, spell: impl Fn(f64) -> String) -> Self {
        let most = values.fold(0.0, f64::max);
        let step = round_step(most / 4.0);
        let steps = (most / step - 1e-9).ceil().max(1.0);
        Self::between(0.0, steps * step, step, spell)
    }

    /// From one round value to another, around all values.
    pub(crate) fn around(values: impl Iterator<Item = f64>, spell: impl Fn(f64) -> String) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            return Self::between(0.0, 1.0, 1.0, spell);
        }
        let step = round_step((high - low).max(high.abs() * 0.01) / 4.0);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Self::between(low, high.max(low + step), step, spell)
    }

    /// From one value to another, in steps.
    pub(crate) fn between(low: f64, high: f64, step: f64, spell: impl Fn(f64) -> String) -> Self {
        let count = ((high - low) / step).round() as usize;
        let ticks = (0..=count).map(|number| low + number as f64 * step);
        Self {
            scale: Scale::Linear,
            low,
            high,
            ticks: ticks.map(|value| (value, spell(value))).collect(),
        }
    }

    /// Whole decades around all values above zero.
    pub(crate) fn log(values: impl Iterator<Item = f64>, spell: impl Fn(f64) -> String) -> Self {
        let (low, high) = values
            .filter(|value| *value > 0.0)
            .fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let (low, high) = match low > high {
            true => (0.0, 1.0),
            false => (low.log10().floor(), high.log10().ceil()),
        };
        let high = high.max(low + 1.0);
        let powers = (low as i32..=high as i32).map(|power| 10_f64.powi(power));
        Self {
            scale: Scale::Log,
            low,
            high,
            ticks: powers.map(|value| (value, spell(value))).collect(),
        }
    }

    /// Percentiles, as shares of 0 to 1, up to so many nines.
    pub(crate) fn nines(nines: u32) -> Self {
        let tick = |number: u32| {
            let share = 1.0 - 10_f64.powi(-(number as i32));
            (share, format!("{}%", plain(share * 100.0)))
        };
        let ticks = [(0.0, "0%".to_string()), (0.5, "50%".to_string())];
        Self {
            scale: Scale::Nines,
            low: 0.0,
            high: f64::from(nines.max(1)),
            ticks: ticks
                .into_iter()
                .chain((1..=nines.max(1)).map(tick))
                .collect(),
        }
    }

    /// Names side by side; the first lies at 0.5, the next at 1.5, and so on.
    pub(crate) fn categories(names: &[String]) -> Self {
        let ticks = names.iter().enumerate();
        Self {
            scale: Scale::Linear,
            low: 0.0,
            high: names.len().max(1) as f64,
            ticks: ticks
                .map(|(at, name)| (at as f64 + 0.5, name.clone()))
                .collect(),
        }
    }

    /// The position of a value, clamped to the scale.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(f64::MIN_POSITIVE).log10(),
            Scale::Nines => -(1.0 - value).max(f64::MIN_POSITIVE).log10(),
        };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        self.ticks
            .iter()
            .map(|(value, text)| (self.place(*value), text.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_where_the_scale_says() {
        let linear = Axis::linear([3.0, 7.5].into_iter(), plain);
        assert_eq!(linear.place(4.0), 0.5);
        let log = Axis::log([20.0, 5000.0].into_iter(), plain);
        assert!((log.place(100.0) - 1.0 / 3.0).abs() < 1e-9);
        let nines = Axis::nines(4);
        for (share, wanted) in [
            (0.0, 0.0),
            (0.9, 0.25),
            (0.99, 0.5),
            (0.9999, 1.0),
            (1.0, 1.0),
        ] {
            assert!((nines.place(share) - wanted).abs() < 1e-9, "{share}");
        }
        let texts: Vec<String> = nines.ticks().map(|tick| tick.1).collect();
        assert_eq!(texts, ["0%", "50%", "90%", "99%", "99.9%", "99.99%"]);
        let around = Axis::around([97.0, 103.5].into_iter(), plain);
        let texts: Vec<String> = around.ticks().map(|tick| tick.1).collect();
        assert_eq!(texts, ["96", "98", "100", "102", "104"]);
    }
}
