//! Watches workers until the end, and shows what they did.

use std::time::{Duration, Instant};

use linerate_core::run::Stage;

use super::{Interrupts, Readings, Running, Sample, Separation, show};
use crate::control::answers::Places;
use crate::control::of_run::{Asked, Control, More};
use crate::control::reload;
use crate::error::Error;
use crate::notify::Notify;
use crate::output::MachineFacts;

/// How often to check whether every input has ended.
const LOOK: Duration = Duration::from_millis(50);

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
    /// Where this process has given its privileges away.
    pub separation: Option<Separation>,
}

/// Runs until the end, then stops everything and prints the totals. `path` describes what is done
/// with the packets of each port, for the start; `read` reads the files again, if there are any;
/// `more` is what can be asked besides what all runs show.
pub fn watch<S: Stage + 'static>(
    running: Running<S>,
    watch: &WatchOptions,
    path: impl Fn(usize) -> String,
    read: Option<reload::Read<S>>,
    more: Option<More<S>>,
    machine: &MachineFacts,
    interrupts: &Interrupts,
) -> Result<(), Error> {
    let separation = watch.separation.as_ref();
    let door = separation.and_then(|separation| separation.door.clone());
    let mut manager = match separation {
        Some(separation) => separation.take_manager(),
        None => Notify::from_environment(),
    };
    let control = Control::listen(&watch.places, door, read)?;
    show::started(&running, path, watch.json)?;
    let status = format!("running, ports: {}", running.ports().len());
    manager.ready(&status);
    let (began, first) = (Instant::now(), Sample::take(&running));
    let end = watch.duration.map(|duration| began + duration);
    let mut received = u64::MAX;
    let mut ended = None;
    let mut asked = Asked {
        running,
        readings: Readings::new(began, first, watch.period),
        cleared: None,
        is_to_end: false,
        more,
        manager,
        status,
    };
    loop {
        let Asked { readings, .. } = &asked;
        let events = [Some(Instant::now() + LOOK), end, readings.period_due()];
        let next = events.into_iter().flatten().min().unwrap_or(began);
        if interrupts.wait_until(next) {
            break;
        }
        asked.running.warn();
        if let Some(Err(error)) = separation.map(Separation::check) {
            ended = Some(error);
            break;
        }
        let now = Instant::now();
        asked.manager.alive(now);
        control.serve(&mut asked);
        let sample = Sample::take(&asked.running);
        // The workers are asked only after the inputs have ended.
        let quiet = sample.received() == received;
        received = sample.received();
        if asked.readings.is_due(now) {
            asked.readings.renew(now, sample.clone());
        }
        if let Some(reading) = asked.readings.period(now, || sample) {
            show::period(&reading, began.elapsed(), watch.json)?;
        }
        let is_over = asked.is_to_end || end.is_some_and(|end| now >= end);
        if is_over || (quiet && asked.running.is_ended()) {
            break;
        }
    }
    asked.manager.stopping();
    let Asked {
        running, readings, ..
    } = asked;
    let memory = running.memory.clone();
    let (last, balance, errors) = running.stop();
    let totals = last.since(&readings.first);
    show::totals(&totals, &balance, machine, &memory, watch.json)?;
    Error::all(ended.into_iter().chain(errors).collect())
}
