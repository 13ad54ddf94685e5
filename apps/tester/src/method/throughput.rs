//! Throughput (RFC 2544 26.1): the highest rate without a lost frame.
//!
//! The search is binary, with the line's rate first. Shorter trials find the region, and
//! full-length ones search on from there, so that the quoted result always comes from a full-length
//! trial (section 24). A rate that lost frames in a short trial would in a long one. A trial that
//! stays disturbed proves nothing: the search goes on below it, and does not call it a bound.

use std::time::Duration;

use super::runner::{Runner, forwarded_pps, lost, sent_pps};
use super::{Outcome, Tester};
use crate::report::{Report, SearchEnd, Throughput, Trial};
use linerate_appliance::error::Error;
use linerate_traffic::units;

/// Rates below this share of the maximum are not tried.
const LEAST_SHARE: f64 = 1e-4;

/// The state of a search, and the next rate to try.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    most: f64,
    width: f64,
    lower: f64,
    upper: Option<f64>,
    /// The least rate whose trials stayed disturbed: the search goes on below, but it is not a
    /// bound.
    unclear: f64,
    /// Forwarding rate at the last rate that failed.
    guess: f64,
    /// Successive steps the same way, which double.
    up: i32,
    down: i32,
    first: Option<f64>,
}

impl Bounds {
    /// Begins with `first`.
    pub(super) fn new(first: f64, most: f64, upper: Option<f64>, width: f64) -> Self {
        Self {
            most,
            width,
            lower: 0.0,
            upper,
            unclear: f64::MAX,
            guess: f64::MAX,
            up: 0,
            down: 0,
            first: Some(first.min(most)),
        }
    }

    /// The next rate to try; `None` when the bounds are close enough, or nothing is left to try.
    pub(super) fn next(&mut self) -> Option<f64> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let step = |count: i32| self.width * 2_f64.powi(count.min(30));
        let raised = self.lower * (1.0 + step(self.up));
        let upper = self.upper.unwrap_or(f64::MAX).min(self.unclear);
        match (upper < f64::MAX).then_some(upper) {
            None if self.lower >= self.most => None,
            None => Some(raised.min(self.most)),
            Some(upper) if self.lower == 0.0 => {
                let lowered = upper * (1.0 - step(self.down).min(0.5));
                let next = lowered.min(self.guess * (1.0 - self.width / 2.0));
                // A forwarding rate of 0 is no guess.
                let next = next.max(upper / 32.0);
                (next >= self.most * LEAST_SHARE).then_some(next)
            }
            Some(upper) if (upper - self.lower) / upper <= self.width => None,
            Some(upper) => Some(raised.min((self.lower * upper).sqrt())),
        }
    }

    pub(super) fn passed(&mut self, pps: f64) {
        self.lower = self.lower.max(pps);
        self.up += 1;
        self.down = 0;
    }

    pub(super) fn failed(&mut self, pps: f64, forwarded_pps: f64) {
        self.upper = Some(self.upper.map_or(pps, |upper| upper.min(pps)));
        self.guess = forwarded_pps;
        self.down += 1;
        self.up = 0;
    }

    /// Why a search without a next rate has ended.
    fn end(&self) -> SearchEnd {
        match self.upper {
            upper if self.unclear < upper.unwrap_or(f64::MAX) => SearchEnd::Disturbed,
            None => SearchEnd::Most,
            Some(_) => SearchEnd::Bounds,
        }
    }

    /// The trial neither passed nor failed for certain.
    fn undecided(&mut self, pps: f64) {
        self.unclear = self.unclear.min(pps);
        self.guess = f64::MAX;
        self.down += 1;
        self.up = 0;
    }
}

/// What a search found.
pub(super) struct Found {
    /// 0 if every rate lost frames.
    pub(super) lower: f64,
    pub(super) upper: Option<f64>,
    pub(super) end: SearchEnd,
    /// At `lower`; where that is 0, the last that was tried.
    pub(super) quoted: Outcome,
}

/// Searches with trials of one length.
fn bracket(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    duration: Duration,
    mut bounds: Bounds,
    log: &mut Vec<Trial>,
) -> Result<Found, Error> {
    let mut quoted = Outcome::default();
    let mut end = None;
    while let Some(pps) = bounds.next() {
        if bounds.lower > 0.0 && run.is_late() {
            end = Some(SearchEnd::Limit);
            break;
        }
        let load = run.load(size, Some(pps), duration);
        let outcome = run.trial(tester, &load, log)?;
        let passed = lost(&outcome.trial) == 0 && outcome.trial.received > 0;
        match (passed, &outcome.trial.invalid) {
            (true, _) => bounds.passed(pps),
            (false, None) => bounds.failed(pps, forwarded_pps(&outcome.trial)),
            (false, Some(_)) => bounds.undecided(pps),
        }
        if passed || bounds.lower == 0.0 {
            quoted = outcome;
        }
    }
    Ok(Found {
        lower: bounds.lower,
        upper: bounds.upper,
        end: end.unwrap_or_else(|| bounds.end()),
        quoted,
    })
}

/// One search; `near` is where an earlier one ended.
pub(super) fn search(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    most: f64,
    near: Option<f64>,
    log: &mut Vec<Trial>,
) -> Result<Found, Error> {
    let width = run.settings.width;
    let near = near.filter(|pps| *pps > 0.0);
    let bounds = Bounds::new(near.unwrap_or(most), most, None, width);
    let (short, full) = (run.settings.search_trial, run.settings.trial);
    let found = bracket(run, tester, size, short.min(full), bounds, log)?;
    if short >= full || found.lower == 0.0 {
        return Ok(found);
    }
    let bounds = Bounds::new(found.lower, most, found.upper, width);
    bracket(run, tester, size, full, bounds, log)
}

/// The first trial: it warms everything up and is not reported. Returns the maximum to offer: the
/// line rate; without one the generator's tested maximum, else what it sends now.
pub(super) fn warm_up(
    run: &mut Runner,
    tester: &mut dyn Tester,
    size: usize,
    generator_pps: Option<f64>,
) -> Result<f64, Error> {
    let line = tester.line_pps(size);
    let load = run.load(size, line, run.settings.search_trial);
    let outcome = run.trial(tester, &load, &mut Vec::new())?;
    let most = line
        .or(generator_pps)
        .unwrap_or_else(|| sent_pps(&outcome.trial));
    Ok(run.settings.max_pps.map_or(most, |limit| most.min(limit)))
}

/// The generator's maximum at this size, if it was tested on the device's kind of path.
pub(super) fn generator_pps(report: &Report, size: usize) -> Option<f64> {
    let mut tests = report.self_test.iter();
    let found = tests.find(|test| test.frame_bytes == size && test.stand_in.is_none());
    found.map(|test| test.max_pps).filter(|pps| *pps > 0.0)
}

/// A search's result as a row: the bit rates, and what a packet costs.
pub(super) fn row(
    report: &Report,
    size: usize,
    line_pps: Option<f64>,
    most: f64,
    found: &Found,
) -> Throughput {
    let trial = &found.quoted.trial;
    let pps = found.lower;
    let per_second = |count: &u64| *count as f64 / trial.seconds.max(f64::MIN_POSITIVE);
    let ticks = found.quoted.device_busy_ticks;
    let ticks_per_packet = ticks.map_or(0.0, |ticks| ticks as f64 / trial.received.max(1) as f64);
    let mhz = report.machine.get("clock_mhz").and_then(|mhz| mhz.as_f64());
    let ns_per_packet = match mhz.filter(|mhz| *mhz > 0.0 && ticks_per_packet > 0.0) {
        Some(mhz) => ticks_per_packet / mhz * 1e3,
        None if pps > 0.0 => 1e9 / pps,
        None => 0.0,
    };
    Throughput {
        frame_bytes: size,
        goal: "throughput".into(),
        line_pps,
        generator_pps: generator_pps(report, size).unwrap_or(most),
        pps,
        lower_pps: found.lower,
        upper_pps: found.upper,
        end: found.end,
        regular: found.end == SearchEnd::Bounds && pps > 0.0,
        conditional_pps: pps,
        l2_bps: units::l2_bps(pps, size as f64),
        l1_bps: units::l1_bps(pps, size as f64),
        quoted: trial.clone(),
        ticks_per_packet,
        ns_per_packet,
        per_port_pps: found
            .quoted
            .received_by_port
            .iter()
            .map(per_second)
            .collect(),
        ..Throughput::default()
    }
}

/// The median of repeated searches, whose bounds and trial are quoted.
pub(super) fn middle(mut found: Vec<Found>) -> Option<Found> {
    found.sort_by(|a, b| a.lower.total_cmp(&b.lower));
    let middle = found.len().saturating_sub(1) / 2;
    found.into_iter().nth(middle)
}
