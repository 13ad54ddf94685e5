//! How a port is written: `KIND:TARGET[,key=value...]`.

use super::PortError;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// One option of a kind of port, as `linerate ports` shows it.
#[derive(Clone, Copy, Debug)]
pub struct OptionHelp {
    /// Its key.
    pub key: &'static str,
    /// Form of a value: `on|off`, `N`, `FILE`.
    pub value: &'static str,
    /// What it does, and its default.
    pub help: &'static str,
}

/// A port as the user wrote it, taken apart.
///
/// ```
/// use linerate_core::port::Spec;
/// let spec: Spec = "af_xdp:eth0,queues=2".parse()?;
/// assert_eq!((spec.kind(), spec.target()), ("af_xdp", "eth0"));
/// assert_eq!(spec.number("queues", 1, 1..=64)?, 2);
/// # Ok::<(), linerate_core::port::PortError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spec {
    text: String,
    kind: String,
    target: String,
    options: BTreeMap<String, String>,
}

impl Spec {
    /// The kind of port.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The text between the colon and the first comma, if it is not an option; else empty.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// `KIND:TARGET`, the port's name for users.
    pub fn name(&self) -> String {
        if self.target.is_empty() {
            self.kind.clone()
        } else {
            format!("{}:{}", self.kind, self.target)
        }
    }

    /// An option's text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    /// An option that is `on` or `off`; written without a value, it is on.
    ///
    /// # Errors
    /// [`PortError::BadValue`] for any other word.
    pub fn switch(&self, key: &str, default: bool) -> Result<bool, PortError> {
        match self.text(key) {
            None => Ok(default),
            Some("on" | "true" | "1" | "") => Ok(true),
            Some("off" | "false" | "0") => Ok(false),
            Some(_) => Err(self.bad(key, "`on` or `off`")),
        }
    }

    /// A number within a range.
    ///
    /// # Errors
    /// [`PortError::BadValue`] where it is no number or out of the range.
    pub fn number<N>(
        &self,
        key: &str,
        default: N,
        range: std::ops::RangeInclusive<N>,
    ) -> Result<N, PortError>
    where
        N: FromStr + PartialOrd + fmt::Display,
    {
        let Some(text) = self.text(key) else {
            return Ok(default);
        };
        let expected = || format!("a number from {} to {}", range.start(), range.end());
        let number = text.parse().map_err(|_| self.bad(key, expected()))?;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(self.bad(key, expected()))
        }
    }

    /// Anything that can be parsed, or the default.
    ///
    /// # Errors
    /// [`PortError::BadValue`] with `expected` where it cannot.
    pub fn parsed<T: FromStr>(&self, key: &str, expected: &str) -> Result<Option<T>, PortError> {
        self.text(key)
            .map(|text| text.parse().map_err(|_| self.bad(key, expected)))
            .transpose()
    }

    /// The target, which must not be empty.
    ///
    /// # Errors
    /// [`PortError::BadValue`] where there is none.
    pub fn required_target(&self, expected: &str) -> Result<&str, PortError> {
        if self.target.is_empty() {
            Err(self.bad("target", expected))
        } else {
            Ok(&self.target)
        }
    }

    /// An error about one option of this port (or about its `target`).
    pub fn bad(&self, key: &str, expected: impl Into<String>) -> PortError {
        let value = if key == "target" {
            Some(self.target.as_str())
        } else {
            self.text(key)
        };
        PortError::BadValue {
            spec: self.text.clone(),
            key: key.into(),
            value: value.unwrap_or("").into(),
            expected: expected.into(),
        }
    }

    /// Refuses options that the kind does not have.
    ///
    /// # Errors
    /// [`PortError::UnknownKey`] names the first and the legal ones.
    pub fn check_keys(&self, known: &[OptionHelp]) -> Result<(), PortError> {
        match self
            .options
            .keys()
            .find(|key| known.iter().all(|option| option.key != key.as_str()))
        {
            None => Ok(()),
            Some(key) => Err(PortError::UnknownKey {
                spec: self.text.clone(),
                kind: self.kind.clone(),
                key: key.clone(),
                known: known
                    .iter()
                    .map(|option| option.key)
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
        }
    }
}

impl FromStr for Spec {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let (kind, rest) = text.split_once([':', ',']).unwrap_or((text, ""));
        let mut spec = Self {
            text: text.into(),
            kind: kind.trim().into(),
            target: String::new(),
            options: BTreeMap::new(),
        };
        for (index, part) in rest.split(',').enumerate() {
            // A first part without `=` is the target; so a file name there must not hold one.
            match part.split_once('=') {
                None if index == 0 && text[kind.len()..].starts_with(':') => {
                    spec.target = part.trim().into()
                }
                None if part.is_empty() => {}
                None => drop(spec.options.insert(part.trim().into(), String::new())),
                Some((key, value)) => {
                    let twice = spec.options.insert(key.trim().into(), value.trim().into());
                    if twice.is_some() {
                        return Err(spec.bad(key.trim(), "given once"));
                    }
                }
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Spec {
        text.parse().unwrap()
    }

    #[test]
    fn kinds_targets_and_options_come_apart() {
        let plain = spec("null");
        assert_eq!(
            (plain.kind(), plain.target(), plain.name().as_str()),
            ("null", "", "null")
        );
        let pcap = spec("pcap:rx=in.pcap,tx=out.pcap,loop");
        assert_eq!(
            (pcap.target(), pcap.text("rx"), pcap.text("tx")),
            ("", Some("in.pcap"), Some("out.pcap"))
        );
        assert!(pcap.switch("loop", false).unwrap());
        assert_eq!(spec("null,size=64").number("size", 0, 0..=100).unwrap(), 64);
        assert_eq!(spec("ring:a").name(), "ring:a");
    }

    #[test]
    fn errors_name_the_option_and_the_legal_values() {
        let bad = spec("null:,size=9000")
            .number("size", 64, 14..=2048)
            .unwrap_err()
            .to_string();
        assert!(
            bad.contains("size is `9000`") && bad.contains("from 14 to 2048"),
            "{bad}"
        );
        let known = [OptionHelp {
            key: "size",
            value: "N",
            help: "",
        }];
        let unknown = spec("null:,sise=9")
            .check_keys(&known)
            .unwrap_err()
            .to_string();
        assert!(
            unknown.contains("`sise`") && unknown.contains("takes: size"),
            "{unknown}"
        );
        assert!("null:,a=1,a=2".parse::<Spec>().is_err());
    }
}
