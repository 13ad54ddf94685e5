//! The `lcores` of a run's JSON report: how busy each one was. `linerate plan --suggest` reads it.

use std::fs;
use std::path::Path;

use linerate_core::env::{EnvError, LcoreLoad, Role};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The part of a run's report about the load of lcores; other members are ignored.
#[derive(Debug, Deserialize)]
pub struct RunReport {
    /// The lcores, in any order.
    pub lcores: Vec<LcoreReport>,
}

/// One lcore of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LcoreReport {
    /// `io0`, `eu1`: as `linerate plan` names them.
    pub name: String,
    /// `bg`, `io` or `eu`.
    pub role: String,
    /// The CPU it was bound to, if any.
    #[serde(default)]
    pub cpu: Option<u32>,
    /// The share of its time that went into packets rather than empty polls: 0 to 1.
    pub busy_share: f64,
}

impl RunReport {
    /// Reads a report.
    ///
    /// # Errors
    /// The file cannot be read, or is no report.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::File {
            path: path.into(),
            source,
        })?;
        // Of JSON lines the last one holds the totals.
        let last = text.trim_end().lines().last().unwrap_or_default();
        let whole = serde_json::from_str(&text);
        whole
            .or_else(|error| serde_json::from_str(last).map_err(|_| error))
            .map_err(|source| Error::Report {
                path: path.into(),
                source,
            })
    }

    /// The loads in the planner's form.
    pub fn loads(&self) -> Result<Vec<LcoreLoad>, EnvError> {
        let load = |lcore: &LcoreReport| {
            let role = Role::from_name(&lcore.role).ok_or_else(|| EnvError::BadReport {
                reason: format!(
                    "role of {} is {:?}, not bg, io or eu",
                    lcore.name, lcore.role
                ),
            })?;
            Ok(LcoreLoad {
                name: lcore.name.clone(),
                role,
                cpu: lcore.cpu,
                busy_share: lcore.busy_share,
            })
        };
        self.lcores.iter().map(load).collect()
    }
}
