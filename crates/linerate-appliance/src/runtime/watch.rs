//! Watches workers until the end, and shows what they did.

use std::time::{Duration, Instant};

use linerate_core::env::{PortPlace, Topology};
use linerate_core::run::Stage;

use super::{Interrupts, Running, Sample, show};
use crate::config::PortStanza;
use crate::control::answers::Places;
use crate::control::of_run::{Asked, Control};
use crate::control::reload;
use crate::error::Error;
use crate::output::MachineFacts;

/// How often to check whether every input has ended.
const LOOK: Duration = Duration::from_millis(50);
/// Interval of rates in answers to clients.
const RATES: Duration = Duration::from_secs(1);

/// Duration and output.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Time between two tables of statistics; only the totals without it.
    pub period: Option<Duration>,
    /// Time after which it ends by itself; otherwise on Ctrl-C, or when every input has ended.
    pub duration: Option<Duration>,
    /// JSON lines instead of tables.
    pub json: bool,
    /// Sockets for clients meanwhile.
    pub places: Places,
}

/// Runs until the end, then stops everything and prints the totals. `path` describes what is done
/// with the packets of each port, for the start; `read` reads the files again, if there are any.
pub fn watch<S: Stage + 'static>(
    running: Running<S>,
    watch: &WatchOptions,
    path: impl Fn(usize) -> String,
    read: Option<reload::Read<S>>,
    machine: &MachineFacts,
    interrupts: &Interrupts,
) -> Result<(), Error> {
    let control = Control::listen(&watch.places, read)?;
    show::started(&running, path, watch.json)?;
    if let Some(http) = &control.listeners.http {
        eprintln!("metrics at http://{}/metrics", http.at);
    }
    let began = Instant::now();
    let first = Sample::take(&running);
    let end = watch.duration.map(|duration| began + duration);
    let mut previous = first.clone();
    let mut table = watch.period.map(|period| began + period);
    let mut received = u64::MAX;
    let mut sampled = began;
    let mut asked = Asked {
        running,
        recent: first.clone(),
        first,
        began,
        is_to_end: false,
    };
    loop {
        let events = [Some(Instant::now() + LOOK), end, table];
        let next = events.into_iter().flatten().min().unwrap_or(began);
        if interrupts.wait_until(next) {
            break;
        }
        asked.running.warn();
        let now = Instant::now();
        control.serve(&mut asked);
        let sample = Sample::take(&asked.running);
        if now >= sampled + RATES {
            (sampled, asked.recent) = (now, sample.clone());
        }
        if let Some((due, period)) = table.zip(watch.period).filter(|(due, _)| now >= *due) {
            show::period(&sample.since(&previous), began.elapsed(), watch.json)?;
            previous = sample.clone();
            table = Some(due.max(now - period) + period);
        }
        // The workers are asked only after the inputs have ended.
        let quiet = sample.received() == received;
        received = sample.received();
        let is_over = asked.is_to_end || end.is_some_and(|end| now >= end);
        if is_over || (quiet && asked.running.is_ended()) {
            break;
        }
    }
    let Asked { running, first, .. } = asked;
    let memory = running.memory.clone();
    let (last, balance, errors) = running.stop();
    show::totals(&last.since(&first), &balance, machine, &memory, watch.json)?;
    Error::all(errors)
}

/// NUMA nodes of the ports; errors are left to the drivers.
pub fn places(ports: &[PortStanza], topology: &Topology) -> Vec<PortPlace> {
    let unknown = |port: &PortStanza| PortPlace {
        name: port.name.clone().unwrap_or_else(|| port.spec.clone()),
        node: None,
    };
    ports
        .iter()
        .map(|port| port.place(topology).unwrap_or_else(|_| unknown(port)))
        .collect()
}
