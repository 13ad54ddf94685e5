//! How numbers are printed. Figures of one row share a form, so that columns can be compared; the
//! form changes only where a figure would not fit its column: separators go first, then digits.

/// A number in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Figure {
    /// No value: printed as `-`.
    None,
    Count(u64),
    /// A value and its decimals.
    Decimal(f64, usize),
}

/// From the most readable to the shortest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `1,626,475.3`
    Grouped,
    /// `1626475.3`
    Plain,
    /// `1626475`
    Whole,
    /// `1.626M`
    Scaled,
}

impl Form {
    pub(super) const ALL: [Self; 4] = [Self::Grouped, Self::Plain, Self::Whole, Self::Scaled];
}

impl Figure {
    pub(super) fn print(self, form: Form) -> String {
        let (value, decimals) = match (self, form) {
            (Self::None, _) => return "-".into(),
            (Self::Decimal(value, _), _) if !value.is_finite() => return "-".into(),
            (Self::Count(value), Form::Grouped) => return grouped(value),
            (Self::Count(value), Form::Plain | Form::Whole) => return value.to_string(),
            (Self::Count(value), Form::Scaled) => return scaled(value as f64),
            (Self::Decimal(value, decimals), Form::Grouped | Form::Plain) => (value, decimals),
            (Self::Decimal(value, _), Form::Whole) => (value, 0),
            (Self::Decimal(value, _), Form::Scaled) => return scaled(value),
        };
        match form {
            Form::Grouped => decimal(value, decimals),
            _ => format!("{value:.decimals$}"),
        }
    }

    /// The figure as it is printed, so that printed sums agree with what is summed.
    pub(super) fn rounded(self) -> Self {
        match self {
            Self::Decimal(value, decimals) => {
                let unit = 10f64.powi(decimals as i32);
                Self::Decimal((value * unit).round() / unit, decimals)
            }
            figure => figure,
        }
    }

    /// The sum of two figures of one kind; [`Self::None`] counts as 0.
    pub(super) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, figure) | (figure, Self::None) => figure,
            (Self::Count(a), Self::Count(b)) => Self::Count(a.saturating_add(b)),
            (a, b) => {
                let decimals = a.decimals().max(b.decimals());
                Self::Decimal(a.value() + b.value(), decimals)
            }
        }
    }

    pub(super) fn value(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Count(value) => value as f64,
            Self::Decimal(value, _) => value,
        }
    }

    fn decimals(self) -> usize {
        match self {
            Self::Decimal(_, decimals) => decimals,
            _ => 0,
        }
    }
}

/// `1,626,475`
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `-1,626,475.31`
pub(super) fn decimal(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text
        .find('.')
        .map_or((text.as_str(), ""), |dot| text.split_at(dot));
    // What rounds to zero has no sign.
    let zero = text.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let sign = if value < 0.0 && !zero { "-" } else { "" };
    match whole.parse() {
        Ok(whole) => format!("{sign}{}{rest}", grouped(whole)),
        Err(_) => format!("{sign}{text}"),
    }
}

/// Four digits or five and a letter: `13.02M`.
pub(super) fn scaled(value: f64) -> String {
    const LETTERS: [(f64, &str); 5] =
        [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // 999,999 is a million when printed in five digits.
    let letter = LETTERS
        .iter()
        .find(|(unit, _)| value.abs() >= unit * 0.99999);
    let (scaled, letter) = letter.map_or((value, ""), |(unit, letter)| (value / unit, letter));
    match scaled.abs() {
        size if letter.is_empty() && size.fract() == 0.0 => format!("{scaled:.0}"),
        size if size < 100.0 => format!("{scaled:.2}{letter}"),
        _ => format!("{scaled:.1}{letter}"),
    }
}

/// `00:12:03`; days in front where there are some.
pub(super) fn clock(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let time = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    match days {
        0 => time,
        days => format!("{days}d {time}"),
    }
}

/// A link's speed: `10 Gbit/s`.
pub(super) fn speed(bps: f64) -> String {
    let (unit, name) = if bps >= 1e9 { (1e9, "G") } else { (1e6, "M") };
    format!("{} {name}bit/s", bps / unit)
}

/// Bits a second: `79.13 Gbit/s`.
pub(super) fn bits(bps: f64) -> String {
    let text = scaled(bps);
    let number = text.trim_end_matches(char::is_alphabetic);
    format!("{number} {}bit/s", &text[number.len()..])
}

/// A time on an axis: `100 ns`, `5 us`, `2 ms`.
pub(super) fn time(ns: f64) -> String {
    let (unit, name) = match ns {
        ns if ns >= 1e9 => (1e9, "s"),
        ns if ns >= 1e6 => (1e6, "ms"),
        ns if ns >= 1e3 => (1e3, "us"),
        _ => (1.0, "ns"),
    };
    format!("{} {name}", ns / unit)
}

/// Nanoseconds as microseconds, to the nanosecond.
pub(super) fn micros(ns: f64) -> Figure {
    Figure::Decimal(ns / 1e3, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_and_zero_has_no_sign() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(decimal(-1_626_475.26, 1), "-1,626,475.3");
        assert_eq!(decimal(-0.04, 1), "0.0");
        assert_eq!(decimal(0.0, 0), "0");
    }

    #[test]
    fn scaled_never_shows_a_thousand_of_a_unit() {
        for (value, text) in [
            (0.0, "0"),
            (64.0, "64"),
            (0.5, "0.50"),
            (1626.0, "1.63k"),
            (999_999.0, "1.00M"),
            (13_015_518.0, "13.02M"),
            (79.134e9, "79.13G"),
            (148_809_524.0, "148.8M"),
        ] {
            assert_eq!(scaled(value), text, "{value}");
        }
    }

    #[test]
    fn forms_get_shorter() {
        let figure = Figure::Decimal(1_626_475.26, 1);
        let texts = Form::ALL.map(|form| figure.print(form));
        assert_eq!(texts, ["1,626,475.3", "1626475.3", "1626475", "1.63M"]);
        assert_eq!(Figure::Decimal(f64::NAN, 1).print(Form::Grouped), "-");
    }

    #[test]
    fn printed_parts_add_up_to_the_printed_sum() {
        let parts = [0.14, 0.14, 0.14].map(|value| Figure::Decimal(value, 1).rounded());
        let sum = parts.into_iter().fold(Figure::None, Figure::plus);
        assert_eq!(sum.print(Form::Grouped), "0.3");
    }

    #[test]
    fn times_and_speeds_carry_their_units() {
        assert_eq!(clock(723 * 1_000_000_000), "00:12:03");
        assert_eq!(clock(90_061 * 1_000_000_000), "1d 01:01:01");
        assert_eq!(speed(10e9), "10 Gbit/s");
        assert_eq!(speed(2.5e9), "2.5 Gbit/s");
        assert_eq!(time(5000.0), "5 us");
        assert_eq!(bits(79.134e9), "79.13 Gbit/s");
        assert_eq!(bits(0.0), "0 bit/s");
    }
}
