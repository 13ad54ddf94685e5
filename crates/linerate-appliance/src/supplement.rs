//! The files that an appliance comes with, which `--print` shows.

use crate::error::Error;
use crate::output;

/// Which of an appliance's files is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Supplement {
    /// A configuration to begin with
    Example,
    /// The unit of a systemd service
    Unit,
    /// The user that the appliance is once root has started it, for systemd-sysusers
    Sysusers,
    /// A dashboard of its metrics for Grafana
    Dashboard,
}

/// The text of each file of an appliance.
#[derive(Clone, Copy, Debug)]
pub struct Supplements {
    /// A configuration to begin with.
    pub example: &'static str,
    /// The unit of a systemd service.
    pub unit: &'static str,
    /// The user of the service, for systemd-sysusers.
    pub sysusers: &'static str,
    /// A dashboard for Grafana.
    pub dashboard: &'static str,
}

impl Supplements {
    /// Prints one of them.
    ///
    /// # Errors
    /// Standard output takes no more.
    pub fn print(&self, which: Supplement) -> Result<(), Error> {
        output::print(match which {
            Supplement::Example => self.example,
            Supplement::Unit => self.unit,
            Supplement::Sysusers => self.sysusers,
            Supplement::Dashboard => self.dashboard,
        })
    }
}
