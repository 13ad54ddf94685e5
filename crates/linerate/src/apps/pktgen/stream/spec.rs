//! A stream as users write it. A key has the same name and the same value in a TOML `[[stream]]`, in
//! the one-line form `udp dst=198.19.0.1 size=64`, and in the command `set 0 dst 198.19.0.1`.

use std::fmt;
use std::str::FromStr;

use linerate_wire::ethernet::MacAddr;
use serde::{Deserialize, Serialize};

use super::Stream;
use crate::apps::pktgen::units::Rate;

/// One key, for help and completion.
pub(crate) struct KeyHelp {
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    pub(crate) help: &'static str,
}

/// All keys of a stream.
pub(crate) const KEYS: &[KeyHelp] = &[
    KeyHelp {
        key: "name",
        value: "TEXT",
        help: "what the stream is called",
    },
    KeyHelp {
        key: "port",
        value: "PORT",
        help: "the port that sends it; default 0",
    },
    KeyHelp {
        key: "size",
        value: "BYTES",
        help: "frame size, FCS included; default 64",
    },
    KeyHelp {
        key: "rate",
        value: "RATE",
        help: "how much; default max",
    },
    KeyHelp {
        key: "count",
        value: "N",
        help: "frames in all; default 0: for ever",
    },
];

/// A stream as users write it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StreamSpec {
    pub(crate) name: Option<String>,
    pub(crate) port: Option<String>,
    pub(crate) size: Option<String>,
    pub(crate) rate: Option<Rate>,
    pub(crate) count: Option<u64>,
}

/// What is wrong with a stream, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {fix}")]
pub(crate) struct StreamError {
    pub(crate) problem: String,
    pub(crate) fix: String,
}

impl StreamError {
    pub(crate) fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

impl StreamSpec {
    /// Sets one key.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), StreamError> {
        match key {
            "name" => self.name = Some(value.into()),
            "port" => self.port = Some(value.into()),
            "size" => self.size = Some(value.into()),
            "rate" => {
                let bad = |problem: String| StreamError::new(problem, "write 1Mpps");
                self.rate = Some(value.parse().map_err(bad)?);
            }
            "count" => {
                let bad = |_| StreamError::new(format!("count is {value}"), "give a number");
                self.count = Some(value.parse().map_err(bad)?);
            }
            _ => {
                return Err(StreamError::new(
                    format!("a stream has no key `{key}`"),
                    "see help",
                ));
            }
        }
        Ok(())
    }

    /// Compiles the stream for a port whose address is `src`, towards `dst` where the stream does not
    /// say otherwise. `id` goes into signatures; `seed` makes random fields repeatable.
    pub(crate) fn compile(
        &self,
        id: u16,
        src: MacAddr,
        dst: MacAddr,
        seed: u64,
    ) -> Result<Stream, StreamError> {
        let _ = seed;
        let size = self.size.as_deref().unwrap_or("64");
        let bytes = size
            .parse()
            .map_err(|_| StreamError::new(format!("size is {size}"), "give bytes"))?;
        Ok(Stream::new(id, src, dst, bytes))
    }
}

impl FromStr for StreamSpec {
    type Err = StreamError;

    fn from_str(line: &str) -> Result<Self, StreamError> {
        let mut spec = Self::default();
        for word in line.split_whitespace() {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| StreamError::new(format!("`{word}` is no key=value"), "see help"))?;
            spec.set(key, value)?;
        }
        Ok(spec)
    }
}

impl fmt::Display for StreamSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "size={}", self.size.as_deref().unwrap_or("64"))
    }
}
