//! Translates forms that Pktgen's users type by habit: `set 0 src ip 10.0.0.1/24` is `set 0 src
//! 10.0.0.1`, `set 0 rate 99` is 99 %, and a range in four commands is collected here.

use std::net::IpAddr;

use super::protocol::Problem;

/// Our key and value for a `set` of Pktgen, where they differ.
pub(super) fn set(key: &str, value: &str) -> Option<(String, String)> {
    let (first, left) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
    let left = left.trim();
    let percent = || {
        value
            .parse()
            .is_ok_and(|rate: f64| (0.0..=100.0).contains(&rate))
    };
    let (key, value) = match (key, first) {
        // The mask is that of the port's own network; the address does not vary.
        ("src" | "dst", "ip") => (key.into(), left.split('/').next().unwrap_or(left).into()),
        ("src" | "dst", "mac") => (format!("{key}_mac"), colons(left)),
        ("rate", _) if percent() => ("rate".into(), format!("{value}%")),
        ("vlanid" | "vlan_id", _) => ("vlan".into(), value.into()),
        ("src_port", _) => ("sport".into(), value.into()),
        ("dst_port", _) => ("dport".into(), value.into()),
        ("proto", "udp" | "tcp" | "icmp") => ("kind".into(), value.into()),
        ("type", "ipv4" | "ipv6" | "arp") => {
            let kind = if first == "ipv6" {
                "udp6"
            } else if first == "arp" {
                "arp"
            } else {
                "udp"
            };
            ("kind".into(), kind.into())
        }
        ("pattern", "none") => ("payload".into(), "zero".into()),
        ("pattern", _) => ("payload".into(), value.into()),
        ("tos", _) => ("dscp".into(), (value.parse::<u8>().ok()? >> 2).to_string()),
        _ => return None,
    };
    Some((key, value))
}

/// Pktgen also accepts `0011:2233:4455`.
fn colons(mac: &str) -> String {
    let digits: String = mac.chars().filter(|c| *c != ':').collect();
    if mac.len() != 14 || digits.len() != 12 {
        return mac.into();
    }
    let pairs: Vec<&str> = (0..6)
        .filter_map(|at| digits.get(2 * at..2 * at + 2))
        .collect();
    pairs.join(":")
}

/// The parts of a range so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    start: Option<String>,
    min: Option<String>,
    max: Option<String>,
    inc: Option<String>,
}

/// Splits Pktgen's `range` into our key and the rest; `None` where it does not have that form.
pub(super) fn range<'a>(key: &'a str, value: &'a str) -> Option<(String, &'a str)> {
    let (first, left) = value.split_once(char::is_whitespace).unwrap_or((value, ""));
    let left = left.trim();
    let part = |word: &str| {
        let word = word.split_whitespace().next().unwrap_or_default();
        ["start", "min", "max", "inc"].contains(&word)
    };
    let (key, rest) = match (key, first) {
        ("src" | "dst", "ip") => (key.into(), left),
        ("src" | "dst", "mac") => (format!("{key}_mac"), left),
        ("src", "port") => ("sport".into(), left),
        ("dst", "port") => ("dport".into(), left),
        _ => (key.into(), value),
    };
    part(rest).then_some((key, rest))
}

impl Parts {
    /// Takes in `start A min B max C inc D`, or some of it.
    pub(super) fn add(&mut self, text: &str) -> Result<(), Problem> {
        let mut words = text.split_whitespace();
        while let Some(part) = words.next() {
            let slot = match part {
                "start" => &mut self.start,
                "min" => &mut self.min,
                "max" => &mut self.max,
                "inc" => &mut self.inc,
                other => {
                    return Err(Problem::new(
                        format!("a range has no `{other}`"),
                        "write start, min, max and inc, each with a value, or 10.0.0.1-10.0.0.9/2",
                    ));
                }
            };
            let value = words.next().ok_or_else(|| {
                Problem::new(
                    format!("`{part}` of what?"),
                    format!("write `{part} VALUE`"),
                )
            })?;
            *slot = Some(value.into());
        }
        Ok(())
    }

    /// The field in our syntax; `None` while a bound is missing.
    pub(super) fn field(&self) -> Option<String> {
        let first = self.min.as_ref().or(self.start.as_ref())?;
        let last = self.max.as_ref()?;
        let step = match &self.inc {
            Some(inc) => step(inc),
            None => "1".into(),
        };
        Some(match step.as_str() {
            "0" => self.start.clone().unwrap_or_else(|| first.clone()),
            "1" => format!("{first}-{last}"),
            step => format!("{first}-{last}/{step}"),
        })
    }
}

/// A step as a number: Pktgen writes those of addresses as addresses.
fn step(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => u32::from(address).to_string(),
        Ok(IpAddr::V6(address)) => u128::from(address).to_string(),
        Err(_) if text.contains(':') => {
            let digits: String = text.chars().filter(|c| *c != ':').collect();
            u64::from_str_radix(&digits, 16).map_or_else(|_| text.into(), |step| step.to_string())
        }
        Err(_) => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pktgens_users_set_is_understood() {
        for (key, value, wanted) in [
            ("src", "ip 10.0.0.1/24", Some(("src", "10.0.0.1"))),
            ("dst", "ip 2001:db8::1", Some(("dst", "2001:db8::1"))),
            (
                "dst",
                "mac 0011:2233:4455",
                Some(("dst_mac", "00:11:22:33:44:55")),
            ),
            (
                "src",
                "mac 00:11:22:33:44:55",
                Some(("src_mac", "00:11:22:33:44:55")),
            ),
            ("rate", "99", Some(("rate", "99%"))),
            ("rate", "0.5", Some(("rate", "0.5%"))),
            ("rate", "5000", None),
            ("rate", "99%", None),
            ("src", "10.0.0.0/24", None),
            ("proto", "tcp", Some(("kind", "tcp"))),
            ("proto", "17", None),
            ("vlanid", "5", Some(("vlan", "5"))),
            ("tos", "184", Some(("dscp", "46"))),
            ("pattern", "abc", Some(("payload", "abc"))),
            ("size", "740", None),
        ] {
            let wanted = wanted.map(|(key, value): (&str, &str)| (key.into(), value.into()));
            assert_eq!(set(key, value), wanted, "{key} {value}");
        }
    }

    #[test]
    fn a_range_in_four_commands_is_one_field() {
        let mut parts = Parts::default();
        for (text, field) in [
            ("start 10.0.0.1", None),
            ("min 10.0.0.1", None),
            ("max 10.0.0.200", Some("10.0.0.1-10.0.0.200")),
            ("inc 0.0.0.2", Some("10.0.0.1-10.0.0.200/2")),
            ("inc 0.0.0.0", Some("10.0.0.1")),
            ("min 5 max 9 inc 1", Some("5-9")),
            ("inc 00:00:00:00:01:00", Some("5-9/256")),
        ] {
            parts.add(text).unwrap();
            assert_eq!(parts.field().as_deref(), field, "{text}");
        }
        assert!(parts.add("min").is_err());
        assert!(parts.add("most 7").is_err());
        assert_eq!(
            range("src", "ip start 1.2.3.4"),
            Some(("src".into(), "start 1.2.3.4"))
        );
        assert_eq!(range("dst", "port max 9"), Some(("dport".into(), "max 9")));
        assert_eq!(
            range("size", "min 64 max 128"),
            Some(("size".into(), "min 64 max 128"))
        );
        assert_eq!(range("src", "10.0.0.1-10.0.0.9"), None);
    }
}
