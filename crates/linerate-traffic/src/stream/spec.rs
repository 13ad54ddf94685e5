//! A stream as users write it. A key has the same name and the same value in a TOML `[[stream]]`,
//! in the one-line form `udp dst=198.19.0.1 size=64`, and in the command `set 0 dst 198.19.0.1`.
//!
//! [`KEYS`] is the table of keys, [`super::values`] the grammar of varying values.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use linerate_wire::ethernet::MacAddr;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::keys::{Field, KEYS};
use super::parts::{HeaderKind, Nest, Pacing, Payload, parse_switch, parse_time, write_time};
use super::size::Sizes;
use super::values::{Varying, number};
use super::{Stream, compile};
use crate::units::Rate;
use linerate_appliance::config::{At, Section};
use linerate_appliance::nearest::offer;
use linerate_appliance::socket::Problem;

/// A stream as users write it. Absent keys have their defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamSpec {
    /// Name for users.
    pub name: Option<String>,
    /// Name or number of the port that sends it.
    pub port: Option<String>,
    /// Headers of its frames.
    pub kind: Option<HeaderKind>,
    /// Frame sizes, FCS included.
    pub size: Option<Sizes>,
    /// Rate of its own; absent: it shares the port's.
    pub rate: Option<Rate>,
    /// Distribution of the gaps between frames.
    pub pacing: Option<Pacing>,
    /// Share of a port's time among streams without a rate.
    pub weight: Option<u32>,
    /// Frames in all; 0: for ever.
    pub count: Option<u64>,
    /// Frames back to back.
    pub burst: Option<u32>,
    /// From the end of a burst to the next.
    pub gap: Option<Duration>,
    /// From the port's start to the first frame.
    pub delay: Option<Duration>,
    /// Whether it is sent; default on.
    pub enabled: Option<bool>,
    /// Whether frames end in a signature; default on.
    pub signature: Option<bool>,
    /// Seed of its random fields; absent: the session's.
    pub seed: Option<u64>,
    /// Fields that run like the digits of a counter.
    pub nest: Option<Nest>,
    /// Bytes behind the headers.
    pub payload: Option<Payload>,
    /// A capture to send instead.
    pub pcap: Option<String>,
    /// Of a capture's timing.
    pub speed: Option<f64>,
    /// Times that a capture is sent; 0: for ever.
    pub repeat: Option<u64>,
    pub(super) fields: BTreeMap<Field, Varying>,
}

/// An error in a stream, and its fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {fix}")]
pub struct StreamError {
    /// What is wrong, with the key and its value.
    pub problem: String,
    /// What would be right.
    pub fix: String,
}

impl StreamError {
    /// An error with this fix.
    pub fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

impl From<StreamError> for Problem {
    fn from(error: StreamError) -> Self {
        Self::new(error.problem, error.fix)
    }
}

impl StreamSpec {
    /// Whether the stream is to be sent.
    pub fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }

    /// Whether its frames end in a signature.
    pub fn has_signature(&self) -> bool {
        self.signature != Some(false)
    }

    /// A table of its keys, such as a `[[stream]]`; errors are collected there.
    pub fn read(section: &Section<'_>) -> Self {
        let mut spec = Self::default();
        for help in KEYS {
            let legal = format!("{}: {}", help.value, help.help);
            if let Some(At { value, line }) = section.scalar(help.key, &legal)
                && let Err(error) = spec.set(help.key, &value)
            {
                section.wrong(line, help.key, error.problem, error.fix);
            }
        }
        section.end();
        spec
    }

    /// Sets one key; the value `default` removes it.
    ///
    /// # Errors
    /// An unknown key, or an invalid value. Nothing has changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), StreamError> {
        let Some(help) = KEYS.iter().find(|help| help.key == key) else {
            return Err(unknown_key(key));
        };
        // `default` resets keys, but is a possible name.
        let value = (value != "default" || key == "name").then_some(value);
        let bad = |reason: String| {
            let value = value.unwrap_or_default();
            let reason = if reason.is_empty() {
                String::new()
            } else {
                format!(": {reason}")
            };
            let fix = format!("{key} takes {}: {}", help.value, help.help);
            StreamError::new(format!("{key}={value}{reason}"), fix)
        };
        if let Some(row) = help.row {
            let values = value.map(|value| Varying::parse(row.notation, row.most, value));
            match values.transpose().map_err(bad)? {
                Some(values) => self.fields.insert(row.field, values),
                None => self.fields.remove(&row.field),
            };
            return Ok(());
        }
        match key {
            "kind" => self.kind = value.map(kind).transpose()?,
            "name" => self.name = value.map(String::from),
            "port" => self.port = value.map(String::from),
            "size" => self.size = value.map(str::parse).transpose().map_err(bad)?,
            "rate" => self.rate = value.map(str::parse).transpose().map_err(bad)?,
            "pacing" => self.pacing = value.map(pacing).transpose().map_err(bad)?,
            "weight" => self.weight = value.map(some_of).transpose().map_err(bad)?,
            "count" => self.count = value.map(whole).transpose().map_err(bad)?,
            "burst" => self.burst = value.map(some_of).transpose().map_err(bad)?,
            "gap" => self.gap = value.map(time).transpose().map_err(bad)?,
            "delay" => self.delay = value.map(time).transpose().map_err(bad)?,
            "enabled" => self.enabled = value.map(switch).transpose().map_err(bad)?,
            "signature" => self.signature = value.map(switch).transpose().map_err(bad)?,
            "seed" => self.seed = value.map(whole).transpose().map_err(bad)?,
            "nest" => self.nest = value.map(str::parse).transpose().map_err(bad)?,
            "payload" => self.payload = value.map(str::parse).transpose().map_err(bad)?,
            "pcap" => self.pcap = value.map(String::from),
            "speed" => self.speed = value.map(factor).transpose().map_err(bad)?,
            "loop" => self.repeat = value.map(whole).transpose().map_err(bad)?,
            _ => return Err(unknown_key(key)),
        }
        Ok(())
    }

    /// The value of a key as [`StreamSpec::set`] takes it; `None` if it has its default.
    pub fn get(&self, key: &str) -> Option<String> {
        let field = KEYS.iter().find(|help| help.key == key)?;
        if let Some(row) = field.row {
            return self.fields.get(&row.field).map(Varying::to_string);
        }
        let switched = |on: bool| if on { "on" } else { "off" }.to_string();
        match key {
            "kind" => self.kind.map(|kind| kind.to_string()),
            "name" => self.name.clone(),
            "port" => self.port.clone(),
            "size" => self.size.as_ref().map(Sizes::to_string),
            "rate" => self.rate.map(|rate| rate.to_string()),
            "pacing" => self.pacing.map(|pacing| pacing.to_string()),
            "weight" => self.weight.map(|weight| weight.to_string()),
            "count" => self.count.map(|count| count.to_string()),
            "burst" => self.burst.map(|burst| burst.to_string()),
            "gap" => self.gap.map(write_time),
            "delay" => self.delay.map(write_time),
            "enabled" => self.enabled.map(switched),
            "signature" => self.signature.map(switched),
            "seed" => self.seed.map(|seed| seed.to_string()),
            "nest" => self.nest.as_ref().map(Nest::to_string),
            "payload" => self.payload.as_ref().map(Payload::to_string),
            "pcap" => self.pcap.clone(),
            "speed" => self.speed.map(|speed| speed.to_string()),
            "loop" => self.repeat.map(|repeat| repeat.to_string()),
            _ => None,
        }
    }

    /// Keys that are set, and their values, in the order of [`KEYS`].
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> {
        KEYS.iter()
            .filter_map(|help| Some((help.key, self.get(help.key)?)))
    }

    /// Compiles the stream for a port whose address is `src`, towards `dst` unless the stream sets
    /// another address. `id` goes into signatures; `seed` makes random fields repeatable, unless
    /// the stream has its own.
    ///
    /// # Errors
    /// Keys that contradict each other, and sizes that do not fit.
    pub fn compile(
        &self,
        id: u16,
        src: MacAddr,
        dst: MacAddr,
        seed: u64,
    ) -> Result<Stream, StreamError> {
        compile::compile(self, id, src, dst, seed)
    }
}

fn unknown_key(key: &str) -> StreamError {
    let offered = offer(key, KEYS.iter().map(|help| help.key));
    StreamError::new(
        format!("a stream has no key `{key}`"),
        format!("{offered}; `help stream` says more"),
    )
}

fn kind(text: &str) -> Result<HeaderKind, StreamError> {
    let known = HeaderKind::ALL.iter().find(|(name, _)| *name == text);
    known.map(|(_, kind)| *kind).ok_or_else(|| {
        let names = HeaderKind::ALL.map(|(name, _)| name);
        let problem = format!("kind={text}: there is no such kind of frame");
        StreamError::new(problem, offer(text, names))
    })
}

fn pacing(text: &str) -> Result<Pacing, String> {
    match text {
        "constant" => Ok(Pacing::Constant),
        "poisson" => Ok(Pacing::Poisson),
        _ => Err(String::new()),
    }
}

fn whole(text: &str) -> Result<u64, String> {
    number(text)
        .and_then(|value| value.try_into().ok())
        .ok_or_else(|| "it is no number of 64 bits".into())
}

fn some_of(text: &str) -> Result<u32, String> {
    number(text)
        .and_then(|value| value.try_into().ok())
        .filter(|&value: &u32| value > 0)
        .ok_or_else(|| "it is no number of 1 or more".into())
}

fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).ok_or_else(|| "it is no time; write 10ms, 1.5s, 300us or 50ns".into())
}

fn switch(text: &str) -> Result<bool, String> {
    parse_switch(text).ok_or_else(|| "write on or off".into())
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok();
    factor
        .filter(|factor| *factor > 0.0 && factor.is_finite())
        .ok_or_else(|| "it is no factor over 0".into())
}

impl FromStr for StreamSpec {
    type Err = StreamError;

    /// Reads the one-line form. A value with spaces stands in double quotes, in which `\` takes the
    /// next character as it is.
    fn from_str(line: &str) -> Result<Self, StreamError> {
        let mut spec = Self::default();
        for (number, word) in words(line)?.iter().enumerate() {
            match word.split_once('=') {
                Some((key, value)) => {
                    if spec.get(key).is_some() {
                        let problem = format!("`{key}` is given twice");
                        return Err(StreamError::new(problem, "leave one out"));
                    }
                    spec.set(key, value)?;
                }
                None if number == 0 => spec.set("kind", word)?,
                None => {
                    return Err(StreamError::new(
                        format!("`{word}` is no key=value"),
                        "write words like dst=198.19.0.1; only a kind stands alone, and first",
                    ));
                }
            }
        }
        Ok(spec)
    }
}

/// Words of a line, separated by spaces outside of double quotes.
fn words(line: &str) -> Result<Vec<String>, StreamError> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quoted = false;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' if quoted => word.get_or_insert_default().extend(letters.next()),
            letter if letter.is_whitespace() && !quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    if quoted {
        let problem = format!("a quotation mark is left open in `{line}`");
        return Err(StreamError::new(problem, "close it with another \""));
    }
    words.extend(word);
    Ok(words)
}

impl fmt::Display for StreamSpec {
    /// The one-line form, which reads back as the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (key, value)) in self.pairs().enumerate() {
            if number > 0 {
                f.write_str(" ")?;
            }
            let plain = |letter: char| !letter.is_whitespace() && letter != '"';
            match key {
                "kind" => f.write_str(&value)?,
                _ if !value.is_empty() && value.chars().all(plain) => write!(f, "{key}={value}")?,
                _ => {
                    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
                    write!(f, "{key}=\"{value}\"")?;
                }
            }
        }
        Ok(())
    }
}

impl Serialize for StreamSpec {
    /// A table of its keys: numbers as such, all else as text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in self.pairs() {
            match value.parse::<i64>() {
                Ok(number) if number.to_string() == value && key != "name" => {
                    map.serialize_entry(key, &number)?;
                }
                _ => map.serialize_entry(key, &value)?,
            }
        }
        map.end()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
