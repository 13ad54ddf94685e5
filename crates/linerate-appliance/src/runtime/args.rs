//! What every forwarder is asked: the options that `l2fwd` and `l3fwd` share, and the same as keys
//! of their files, where the command line goes before.

use std::net::SocketAddr;
use std::path::PathBuf;

use linerate_core::env::PlanSpec;

use super::{Options, WatchOptions};
use crate::config::PlanStanza;
use crate::control::of_run::Places;
use crate::error::Error;

/// Most receive queues of a port, and most packets of a burst.
const MOST: u16 = 64;

/// Options of a forwarder.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Seconds between two tables of statistics; 0 prints only the totals [default: 10]
    #[arg(long, value_name = "SECONDS")]
    period: Option<f64>,
    /// Seconds after which to end; default: on Ctrl-C, or when every input has ended
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
    /// Receive queues of each port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST.into()))]
    queues: Option<u16>,
    /// Packets polled at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST.into()))]
    burst: Option<u16>,
    /// Packets alive at once; default: by ports and queues
    #[arg(long, value_name = "N")]
    pool_slots: Option<u32>,
    /// Poll without ever sleeping
    #[arg(long)]
    no_sleep: bool,
    #[command(flatten)]
    plan: PlanArgs,
    /// Print JSON: one line each period, and one with the totals
    #[arg(long)]
    json: bool,
    /// Listen at this Unix socket for `linerate ctl --socket PATH`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Show metrics at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
}

/// The same as keys of a file.
#[derive(Clone, Debug, Default)]
pub struct RunKeys {
    /// Seconds between two tables.
    pub period: Option<f64>,
    /// Seconds after which to end.
    pub duration: Option<f64>,
    /// Receive queues of each port.
    pub queues: Option<u16>,
    /// Packets polled at once.
    pub burst: Option<u16>,
    /// Packets alive at once.
    pub pool_slots: Option<u32>,
    /// Whether idle lcores sleep.
    pub sleep: Option<bool>,
    /// Socket of `linerate ctl`.
    pub control: Option<PathBuf>,
    /// Address of the metrics page.
    pub metrics: Option<SocketAddr>,
}

/// What was asked for, from both places.
pub struct Run {
    /// Who runs where.
    pub plan: PlanSpec,
    /// How long, and how to show it.
    pub watch: WatchOptions,
    /// How workers run.
    pub options: Options,
}

impl RunArgs {
    /// With what the file says, where these do not say otherwise.
    ///
    /// # Errors
    /// A time that is none.
    pub fn over(&self, plan: Option<PlanStanza>, file: RunKeys) -> Result<Run, Error> {
        let period = self.period.or(file.period);
        let duration = self.duration.or(file.duration);
        Ok(Run {
            plan: self.plan.over(plan.unwrap_or_default()),
            watch: WatchOptions {
                places: Places {
                    control: self.control.clone().or(file.control),
                    metrics: self.metrics.or(file.metrics),
                },
                ..WatchOptions::new(period, duration, self.json)?
            },
            options: Options {
                queues: self.queues.or(file.queues).unwrap_or(1).clamp(1, MOST),
                burst: (self.burst.or(file.burst))
                    .map_or(MOST, |burst| burst.clamp(1, MOST))
                    .into(),
                pool_slots: self.pool_slots.or(file.pool_slots),
                sleep: !self.no_sleep && file.sleep.unwrap_or(true),
                spin: false,
            },
        })
    }
}

/// The plan's keys as options.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PlanArgs {
    /// Slots of the background role, such as 0
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub bg: Option<String>,
    /// Slots that poll ports, such as 1-2
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub io: Option<String>,
    /// Slots that process packets, such as 3-7
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub eu: Option<String>,
    /// The CPU behind each slot, such as 2,4,6-9: slot n is the n-th
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub cpus: Option<String>,
}

impl PlanArgs {
    /// The file's stanza, where the command line does not say otherwise.
    pub fn over(&self, stanza: PlanStanza) -> PlanSpec {
        PlanSpec {
            bg: self.bg.clone().or(stanza.bg),
            io: self.io.clone().or(stanza.io),
            eu: self.eu.clone().or(stanza.eu),
            cpus: self.cpus.clone().or(stanza.cpus),
        }
    }
}
