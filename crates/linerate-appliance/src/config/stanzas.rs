//! `[plan]` and `[[port]]`, which all appliances have. Run keys are read beside the same options:
//! [`RunKeys`](crate::runtime::RunKeys).

use linerate_core::env::{EnvError, PlanSpec, PortPlace, Topology};
use linerate_core::port::{PortError, Spec};
use linerate_drivers::{COMMON_OPTIONS, Drivers};
use serde::Serialize;

use super::{At, Section};
use crate::nearest::offer;
use crate::runtime::claim;
use crate::users::User;

/// Legal lists of slots and CPUs, for errors.
const LIST: &str = "a list such as \"0,2-4\"";

/// `[plan]`: slots of each role, and optionally the CPU behind each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStanza {
    /// What the user calls it.
    pub name: Option<String>,
    /// Kind, target and options.
    pub spec: String,
}

/// `[plan]` of a file.
pub fn plan(file: &Section<'_>) -> PlanStanza {
    let Some(section) = file.table("plan", "plan", "a table: [plan]") else {
        return PlanStanza::default();
    };
    let list = |key| section.text(key, LIST).map(|at| at.value);
    let plan = PlanStanza {
        bg: list("bg"),
        io: list("io"),
        eu: list("eu"),
        cpus: list("cpus"),
    };
    section.end();
    plan
}

/// A user of this machine, by its name or number.
pub fn user(section: &Section<'_>, key: &'static str) -> Option<User> {
    let legal = "a name that `getent passwd` shows, or a number";
    let read = |text: &str| User::find(text).ok_or_else(|| format!("there is no user `{text}`"));
    section.read(key, legal, read).map(|at| at.value)
}

/// All `[[port]]` of a file, with the lines of their names, or their own. A port with errors counts
/// as well, so that references to it cause no further errors.
pub fn ports(file: &Section<'_>) -> Vec<At<PortStanza>> {
    let mut ports: Vec<At<PortStanza>> = Vec::new();
    for section in file.tables("port", "tables: [[port]] with name and spec") {
        let port = port(&section, &ports);
        section.end();
        ports.push(port);
    }
    ports
}

/// `name` and `spec` of a `[[port]]` that comes after `others`; the caller reads further keys.
pub fn port(section: &Section<'_>, others: &[At<PortStanza>]) -> At<PortStanza> {
    let spec = section.required("spec", "KIND:TARGET[,key=value...]; see `linerate ports`");
    let name = section.text("name", "a text");
    let line = name.as_ref().map_or(section.line, |name| name.line);
    if let Some(spec) = &spec {
        check_spec(section, spec);
    }
    let spec_line = spec.as_ref().map_or(line, |spec| spec.line);
    let port = PortStanza {
        name: name.map(|name| name.value),
        spec: spec.map_or(String::new(), |spec| spec.value),
    };
    let called = port.called();
    let is_same = |other: &&At<PortStanza>| {
        let is_named = port.name.is_some() || other.value.name.is_some();
        is_named && other.value.called() == called
    };
    if others.iter().any(|other| is_same(&other)) {
        let problem = format!("`{called}` names two ports");
        section.wrong(line, "name", problem, "a name of its own");
    }
    let wanted = claim::wanted(&port.spec);
    let same =
        |other: &&At<PortStanza>| wanted.is_some() && claim::wanted(&other.value.spec) == wanted;
    if let (Some(other), Some(interface)) = (others.iter().find(same), &wanted) {
        let other = other.value.called();
        let problem = format!("interface `{interface}` is port `{other}` already");
        let legal = "an interface of its own: every frame would come by both";
        section.wrong(spec_line, "spec", problem, legal);
    }
    At { value: port, line }
}

/// Whether the drivers know the kind of port and its options.
fn check_spec(section: &Section<'_>, at: &At<String>) {
    let kinds = || Drivers::kinds().iter().map(|kind| kind.name);
    let spec: Spec = match at.value.parse() {
        Ok(spec) => spec,
        Err(error) => {
            let error: PortError = error;
            return section.wrong(at.line, "spec", error.to_string(), "");
        }
    };
    let kind = Drivers::kinds()
        .iter()
        .find(|kind| kind.name == spec.kind());
    let Some(kind) = kind else {
        let problem = format!("there is no kind of port `{}`", spec.kind());
        return section.wrong(at.line, "spec", problem, offer(spec.kind(), kinds()));
    };
    if let Err(error) = spec.check_keys(&[kind.options, COMMON_OPTIONS].concat()) {
        section.wrong(at.line, "spec", error.to_string(), "");
    }
}

impl PortStanza {
    /// A port as the command line names it.
    pub fn stated(spec: &str) -> Self {
        Self {
            name: None,
            spec: spec.into(),
        }
    }

    /// What users call it: its name, otherwise `KIND:TARGET`.
    pub fn called(&self) -> String {
        let of_spec = || {
            let spec = self.spec.parse::<Spec>();
            spec.map_or_else(|_| self.spec.clone(), |spec| spec.name())
        };
        self.name.clone().unwrap_or_else(of_spec)
    }

    /// Where the port is: `KIND:TARGET,...` of the kinds that stand on a device.
    ///
    /// # Errors
    /// The device exists, but its facts cannot be read.
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
