//! The text format of OpenMetrics 1.0 (RFC draft-richih-opsawg-openmetrics): families of samples.

use std::fmt::{Display, Write};

/// What a family's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// Goes up and down.
    Gauge,
    /// Only goes up; its samples end in `_total`.
    Counter,
    /// Always 1, for its labels; its samples end in `_info`.
    Info,
}

/// A text under way.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    suffix: &'static str,
    name: String,
}

impl Exposition {
    /// Begins a family. `name` ends in its unit, where it has one, and begins with `linerate_`.
    pub fn family(&mut self, name: &str, kind: FamilyKind, unit: &str, help: &str) {
        let (word, suffix) = match kind {
            FamilyKind::Gauge => ("gauge", ""),
            FamilyKind::Counter => ("counter", "_total"),
            FamilyKind::Info => ("info", "_info"),
        };
        self.name = format!("linerate_{name}");
        self.suffix = suffix;
        let name = &self.name;
        let _ = writeln!(self.text, "# TYPE {name} {word}");
        if !unit.is_empty() {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name} {}", escaped(help));
    }

    /// Adds a sample to the family that was begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{}", self.name, self.suffix);
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{}\"", escaped(text));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The finished text.
    pub fn end(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

/// Backslashes, quotes and line ends, as the format wants them.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// What `promtool check metrics` and the format's own rules would say of a text.
///
/// # Errors
/// What is wrong, and where.
#[doc(hidden)] // for tests of appliances
pub fn check(text: &str) -> Result<usize, String> {
    use std::collections::HashSet;
    let body = text
        .strip_suffix("# EOF\n")
        .ok_or("it does not end in # EOF")?;
    let (mut families, mut seen) = (HashSet::new(), HashSet::new());
    let (mut name, mut kind, mut helped) = (String::new(), String::new(), false);
    for line in body.lines() {
        let wrong = |why: &str| Err(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (family, word) = rest.split_once(' ').ok_or("TYPE of nothing")?;
            if !families.insert(family.to_string()) {
                return wrong("a family in two pieces");
            }
            if !["gauge", "counter", "info"].contains(&word) {
                return wrong("an unknown type");
            }
            if family.ends_with("_total") || family.ends_with("_info") {
                return wrong("a family named as its samples are");
            }
            (name, kind, helped) = (family.into(), word.into(), false);
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (family, unit) = rest.split_once(' ').ok_or("UNIT of nothing")?;
            if family != name || !family.ends_with(&format!("_{unit}")) {
                return wrong("a name that does not end in its unit");
            }
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.starts_with(&format!("{name} ")) && rest.len() > name.len() + 4;
        } else {
            let (series, value) = line.rsplit_once(' ').ok_or("a sample without a value")?;
            let bare = series.split('{').next().unwrap_or_default();
            let suffix = match kind.as_str() {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            if !helped {
                return wrong("a sample without HELP");
            }
            if bare != format!("{name}{suffix}") {
                return wrong("a sample outside its family");
            }
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if !bare.chars().all(legal) || !bare.starts_with("linerate_") {
                return wrong("a name that is none");
            }
            if value.parse::<f64>().is_err() {
                return wrong("a value that is no number");
            }
            if !seen.insert(series.to_string()) {
                return wrong("the same series twice");
            }
        }
    }
    Ok(seen.len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn families_come_with_type_unit_and_help() {
        let mut page = Exposition::default();
        page.family(
            "port_receive_bytes",
            FamilyKind::Counter,
            "bytes",
            "Bytes \"in\".",
        );
        page.sample(&[("port", "wan")], 7);
        page.sample(&[("port", "a\"b\\c\n")], 8);
        page.family("uptime_seconds", FamilyKind::Gauge, "seconds", "Time.");
        page.sample(&[], 1.5);
        let text = page.end();
        assert_eq!(
            text,
            "# TYPE linerate_port_receive_bytes counter\n\
             # UNIT linerate_port_receive_bytes bytes\n\
             # HELP linerate_port_receive_bytes Bytes \\\"in\\\".\n\
             linerate_port_receive_bytes_total{port=\"wan\"} 7\n\
             linerate_port_receive_bytes_total{port=\"a\\\"b\\\\c\\n\"} 8\n\
             # TYPE linerate_uptime_seconds gauge\n\
             # UNIT linerate_uptime_seconds seconds\n\
             # HELP linerate_uptime_seconds Time.\n\
             linerate_uptime_seconds 1.5\n\
             # EOF\n"
        );
        assert_eq!(check(&text), Ok(3));
    }

    #[test]
    fn the_check_can_fail() {
        let good = "# TYPE linerate_x gauge\n# HELP linerate_x It is.\nlinerate_x 1\n";
        assert_eq!(check(&format!("{good}# EOF\n")), Ok(1));
        for bad in [
            good.to_string(),
            format!("{good}linerate_x 1\n# EOF\n"),
            format!("{good}linerate_y 1\n# EOF\n"),
            format!("{good}{good}# EOF\n"),
            good.replace("HELP", "help") + "# EOF\n",
            good.replace(" 1\n", " one\n") + "# EOF\n",
        ] {
            assert!(check(&bad).is_err(), "{bad}");
        }
    }
}
