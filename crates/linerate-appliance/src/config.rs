//! The TOML file of an appliance: the parts that all appliances share.

use std::fs;
use std::path::Path;

use linerate_core::env::{EnvError, PlanSpec, PortPlace, Topology};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What every command understands of a configuration file; the rest belongs to the appliance.
#[derive(Debug, Default, Deserialize)]
pub struct Config {
    /// `[plan]`.
    pub plan: Option<PlanStanza>,
    /// All `[[port]]`.
    #[serde(default)]
    pub port: Vec<PortStanza>,
}

/// `[plan]`: slots of each role, and optionally the CPU behind each slot.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlanStanza {
    /// Slots of the background role.
    pub bg: Option<String>,
    /// Slots that poll ports.
    pub io: Option<String>,
    /// Slots that process packets.
    pub eu: Option<String>,
    /// The CPU behind each slot.
    pub cpus: Option<String>,
}

/// `[[port]]`: a name and a specification `KIND:TARGET[,key=value...]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortStanza {
    /// What the user calls it.
    pub name: Option<String>,
    /// Kind, target and options.
    pub spec: String,
}

impl PortStanza {
    /// Where the port is: `KIND:TARGET,...` of the kinds that stand on a device.
    ///
    /// # Errors
    /// The device is there, and what it says of itself cannot be read.
    pub fn place(&self, topology: &Topology) -> Result<PortPlace, EnvError> {
        let (kind, rest) = self.spec.split_once(':').unwrap_or((&self.spec, ""));
        let target = rest.split(',').next().unwrap_or_default();
        let node = match kind {
            "af_packet" | "af_xdp" => topology.interface_node(target)?,
            "pci" => topology.pci_node(target)?,
            _ => None,
        };
        Ok(PortPlace {
            name: self.name.clone().unwrap_or_else(|| self.spec.clone()),
            node,
        })
    }
}

impl Config {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or is wrong; the error shows the line.
    pub fn read(path: &Path) -> Result<Self, Error> {
        read(path)
    }
}

/// Reads an appliance's file; the error shows the line.
pub fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Error> {
    Ok(read_text(path)?.0)
}

/// The same, and the text itself, for whoever names lines of it.
pub fn read_text<T: serde::de::DeserializeOwned>(path: &Path) -> Result<(T, String), Error> {
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
