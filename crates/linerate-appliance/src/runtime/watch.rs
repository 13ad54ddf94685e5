//! Watches workers until the end, and shows what they did.

use std::time::{Duration, Instant};

use linerate_core::env::{PortPlace, Topology};
use linerate_core::run::Stage;

use super::{Interrupts, Running, Sample, show};
use crate::config::PortStanza;
use crate::control::of_run::{Asked, Control, Places};
use crate::error::Error;
use crate::output::MachineFacts;

/// How often to look whether every input has ended.
const LOOK: Duration = Duration::from_millis(50);
/// Over which time rates are shown to those who ask.
const RATES: Duration = Duration::from_secs(1);
/// Time between two tables of statistics, unless the user says otherwise.
const PERIOD_S: f64 = 10.0;

/// How long, and how to show it.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Time between two tables of statistics; only the totals without it.
    pub period: Option<Duration>,
    /// After which it ends by itself; otherwise on Ctrl-C, or when every input has ended.
    pub duration: Option<Duration>,
    /// JSON lines instead of tables.
    pub json: bool,
    /// Where it may be asked meanwhile.
    pub places: Places,
}

impl WatchOptions {
    /// From what the user says, in seconds; a period of 0 is none.
    pub fn new(period: Option<f64>, duration: Option<f64>, json: bool) -> Result<Self, Error> {
        let period = seconds("period", period.unwrap_or(PERIOD_S))?;
        Ok(Self {
            period: Some(period).filter(|period| !period.is_zero()),
            duration: duration
                .map(|value| seconds("duration", value))
                .transpose()?,
            json,
            places: Places::default(),
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

/// Runs until the end, then takes all down and prints the totals. `path` says what is done with the
/// packets of each port, to be shown at the start.
pub fn watch<S: Stage + 'static>(
    mut running: Running<S>,
    watch: &WatchOptions,
    path: impl Fn(usize) -> String,
    machine: &MachineFacts,
    interrupts: &Interrupts,
) -> Result<(), Error> {
    let control = Control::listen(&watch.places)?;
    show::started(&running, path, watch.json)?;
    if let Some(http) = &control.http {
        eprintln!("metrics at http://{}/metrics", http.at);
    }
    let began = Instant::now();
    let first = Sample::take(&running);
    let end = watch.duration.map(|duration| began + duration);
    let mut previous = first.clone();
    let mut table = watch.period.map(|period| began + period);
    let mut received = u64::MAX;
    let mut recent = (began, first.clone());
    loop {
        let events = [Some(Instant::now() + LOOK), end, table];
        let next = events.into_iter().flatten().min().unwrap_or(began);
        if interrupts.wait_until(next) {
            break;
        }
        running.warn();
        let now = Instant::now();
        let mut asked = Asked {
            running: &running,
            first: &first,
            recent: &recent.1,
            began,
            is_to_end: false,
        };
        control.serve(&mut asked);
        let is_to_end = asked.is_to_end;
        let sample = Sample::take(&running);
        if now >= recent.0 + RATES {
            recent = (now, sample.clone());
        }
        if let Some((due, period)) = table.zip(watch.period).filter(|(due, _)| now >= *due) {
            show::period(&sample.since(&previous), began.elapsed(), watch.json)?;
            previous = sample.clone();
            table = Some(due.max(now - period) + period);
        }
        // Inputs that ended bring nothing more, so only then are the workers asked.
        let quiet = sample.received() == received;
        received = sample.received();
        if is_to_end || end.is_some_and(|end| now >= end) || (quiet && running.is_ended()) {
            break;
        }
    }
    let memory = running.memory.clone();
    let (last, balance, errors) = running.stop();
    show::totals(&last.since(&first), &balance, machine, &memory, watch.json)?;
    Error::all(errors)
}

/// Where the ports are; the drivers say best what is wrong with one.
pub fn places(ports: &[PortStanza], topology: &Topology) -> Vec<PortPlace> {
    let unknown = |port: &PortStanza| PortPlace {
        name: port.spec.clone(),
        node: None,
    };
    ports
        .iter()
        .map(|port| port.place(topology).unwrap_or_else(|_| unknown(port)))
        .collect()
}
