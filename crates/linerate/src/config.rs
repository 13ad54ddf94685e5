//! The TOML file of an appliance: the parts that all appliances share.

use std::fs;
use std::path::Path;

use linerate_core::env::PlanSpec;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What every command understands of a configuration file; the rest belongs to the appliance.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Config {
    pub(crate) plan: Option<PlanStanza>,
    #[serde(default)]
    pub(crate) port: Vec<PortStanza>,
}

/// `[plan]`: slots of each role, and optionally the CPU behind each slot.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanStanza {
    pub(crate) bg: Option<String>,
    pub(crate) io: Option<String>,
    pub(crate) eu: Option<String>,
    pub(crate) cpus: Option<String>,
}

/// `[[port]]`: a name and a specification `KIND:TARGET[,key=value...]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortStanza {
    pub(crate) name: Option<String>,
    pub(crate) spec: String,
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        read(path)
    }
}

/// Reads an appliance's file; the error shows the line.
pub(crate) fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Error> {
    Ok(read_text(path)?.0)
}

/// The same, and the text itself, for whoever names lines of it.
pub(crate) fn read_text<T: serde::de::DeserializeOwned>(path: &Path) -> Result<(T, String), Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::File {
        path: path.into(),
        source,
    })?;
    let file = toml::from_str(&text).map_err(|source| Error::Config {
        path: path.into(),
        source: Box::new(source),
    })?;
    Ok((file, text))
}

impl From<PlanStanza> for PlanSpec {
    fn from(stanza: PlanStanza) -> Self {
        Self {
            bg: stanza.bg,
            io: stanza.io,
            eu: stanza.eu,
            cpus: stanza.cpus,
        }
    }
}

impl From<PlanSpec> for PlanStanza {
    fn from(spec: PlanSpec) -> Self {
        Self {
            bg: spec.bg,
            io: spec.io,
            eu: spec.eu,
            cpus: spec.cpus,
        }
    }
}

impl std::fmt::Display for PlanStanza {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "[plan]")?;
        let keys = [
            ("bg", &self.bg),
            ("io", &self.io),
            ("eu", &self.eu),
            ("cpus", &self.cpus),
        ];
        for (key, value) in keys {
            if let Some(value) = value {
                writeln!(f, "{key} = \"{value}\"")?;
            }
        }
        Ok(())
    }
}
