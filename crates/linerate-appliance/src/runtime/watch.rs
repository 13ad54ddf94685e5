//! Watches workers until the end, and shows what they did.

use std::time::{Duration, Instant};

use linerate_core::run::Stage;

use super::{Interrupts, Running, Sample, show};
use crate::control::answers::Places;
use crate::control::of_run::{Asked, Control};
use crate::control::reload;
use crate::error::Error;
use crate::output::MachineFacts;

/// How often to look whether every input has ended.
const LOOK: Duration = Duration::from_millis(50);
/// Over which time rates are shown to those who ask.
const RATES: Duration = Duration::from_secs(1);

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

/// Runs until the end, then takes all down and prints the totals. `path` says what is done with the
/// packets of each port, to be shown at the start; `read` how the files are read again, where there
/// are any.
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
        // Inputs that ended bring nothing more, so only then are the workers asked.
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
