//! Options that `l2fwd` and `l3fwd` share, and the same as keys of their files; the command line
//! takes precedence.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_core::env::PlanSpec;

use super::{Options, WatchOptions};
use crate::config::{self, PlanStanza, PortStanza, Section};
use crate::control::answers::Places;
use crate::control::reload;
use crate::error::Error;

/// Most receive queues of a port, and most packets of a burst.
const MOST: u16 = 64;
/// Packets alive at once.
const POOL_SLOTS: RangeInclusive<u32> = 64..=1 << 24;
/// Time between two tables of statistics, unless the user says otherwise.
const PERIOD: Duration = Duration::from_secs(10);

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
    /// Check files and options and say what they mean, without touching anything
    #[arg(long)]
    check: bool,
    /// Listen at this Unix socket for `linerate ctl --socket PATH`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Show metrics at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
}

/// The same as keys of a file of any appliance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunKeys {
    /// Time between two tables.
    pub period: Option<Duration>,
    /// Time after which to end.
    pub duration: Option<Duration>,
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

impl RunKeys {
    /// The keys that have other values.
    fn differ(&self, other: &Self) -> Vec<&'static str> {
        let keys = [
            ("period", self.period != other.period),
            ("duration", self.duration != other.duration),
            ("queues", self.queues != other.queues),
            ("burst", self.burst != other.burst),
            ("pool_slots", self.pool_slots != other.pool_slots),
            ("sleep", self.sleep != other.sleep),
            ("control", self.control != other.control),
            ("metrics", self.metrics != other.metrics),
        ];
        let differing = keys.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(key, _)| key).collect()
    }

    /// Those of an appliance's own table, which has further keys.
    pub fn read(section: &Section<'_>) -> Self {
        let listen = "an address and a port such as \"127.0.0.1:9108\"";
        let metrics = section.parsed::<SocketAddr>("metrics", listen);
        if let Some(at) = metrics.as_ref().filter(|at| !at.value.ip().is_loopback()) {
            let problem = format!("{} can be reached from other machines", at.value.ip());
            let legal = "a loopback address: 127.0.0.1 or [::1]; let a proxy ask for a password";
            section.wrong(at.line, "metrics", problem, legal);
        }
        Self {
            period: section.seconds("period").map(|at| at.value),
            duration: section.seconds("duration").map(|at| at.value),
            queues: section.number("queues", 1..=MOST).map(|at| at.value),
            burst: section.number("burst", 1..=MOST).map(|at| at.value),
            pool_slots: section.number("pool_slots", POOL_SLOTS).map(|at| at.value),
            sleep: section.switch("sleep").map(|at| at.value),
            control: section
                .text("control", "a path such as \"/run/linerate/ctl.sock\"")
                .map(|at| PathBuf::from(at.value)),
            metrics: metrics.map(|at| at.value),
        }
    }
}

/// The common part of all forwarders' files. None of it can change while one runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFile {
    /// `[plan]`.
    pub plan: PlanStanza,
    /// All `[[port]]`.
    pub ports: Vec<PortStanza>,
    /// Keys of the table that has the forwarder's `name`.
    pub keys: RunKeys,
}

impl RunFile {
    /// Reads them. `own` asks for further keys of the table called `name`, if it is there.
    pub fn read<T: Default>(
        file: &Section<'_>,
        name: &'static str,
        own: impl FnOnce(&Section<'_>) -> T,
    ) -> (Self, T) {
        let legal = format!("a table: [{name}]");
        let read = |section: Section<'_>| {
            let both = (RunKeys::read(&section), own(&section));
            section.end();
            both
        };
        let (keys, own) = file.table(name, name, &legal).map(read).unwrap_or_default();
        let all = Self {
            plan: config::plan(file),
            ports: config::ports(file).into_iter().map(|at| at.value).collect(),
            keys,
        };
        (all, own)
    }

    /// Refuses changes that are impossible while the forwarder of that `name` runs, which was
    /// started with this.
    ///
    /// # Errors
    /// The `new` file at `path` asks for it.
    pub fn refuse_changes(&self, new: &Self, path: &Path, name: &str) -> Result<(), Error> {
        let own = self.keys.differ(&new.keys).into_iter();
        let mut keys: Vec<String> = own.map(|key| format!("{name}.{key}")).collect();
        for (key, differs) in [
            ("[plan]", self.plan != new.plan),
            ("[[port]]", self.ports != new.ports),
        ] {
            if differs {
                keys.push(key.into());
            }
        }
        reload::refuse(path, name, &keys)
    }
}

/// The options from both places.
#[derive(Clone, Debug)]
pub struct Run {
    /// The plan of lcores.
    pub plan: PlanSpec,
    /// Duration and output.
    pub watch: WatchOptions,
    /// How workers run.
    pub options: Options,
    /// Whether only to say what would be done.
    pub check: bool,
}

impl RunArgs {
    /// Adds the file's values of options that were not given.
    ///
    /// # Errors
    /// An invalid duration.
    pub fn over(&self, file: &RunFile) -> Result<Run, Error> {
        let (plan, file) = (file.plan.clone(), file.keys.clone());
        let time = |key, value: Option<f64>| value.map(|value| seconds(key, value)).transpose();
        let period = time("period", self.period)?.or(file.period);
        Ok(Run {
            plan: self.plan.over(plan),
            watch: WatchOptions {
                places: Places {
                    control: self.control.clone().or(file.control),
                    metrics: self.metrics.or(file.metrics),
                },
                period: Some(period.unwrap_or(PERIOD)).filter(|period| !period.is_zero()),
                duration: time("duration", self.duration)?.or(file.duration),
                json: self.json,
                separation: None,
            },
            options: Options {
                queues: self.queues.or(file.queues).unwrap_or(1),
                burst: self.burst.or(file.burst).unwrap_or(MOST).into(),
                pool_slots: self.pool_slots.or(file.pool_slots),
                sleep: !self.no_sleep && file.sleep.unwrap_or(true),
                spin: false,
            },
            check: self.check,
        })
    }
}

/// A time in seconds as a duration.
fn seconds(key: &str, value: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(value).map_err(|_| Error::Usage {
        problem: format!("{key} is {value}, which is no time"),
        fix: format!("give {key} in seconds, such as 2.5"),
    })
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
    /// The file's stanza, overridden by the command line.
    pub fn over(&self, stanza: PlanStanza) -> PlanSpec {
        PlanSpec {
            bg: self.bg.clone().or(stanza.bg),
            io: self.io.clone().or(stanza.io),
            eu: self.eu.clone().or(stanza.eu),
            cpus: self.cpus.clone().or(stanza.cpus),
        }
    }
}
