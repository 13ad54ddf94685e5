//! Models of devices and generators for tests: a queue that is served at some rate, on a machine
//! that may be shared.

use super::{Connected, Load, Opened, Outcome, Recovered, Tester};
use crate::report::Trial;
use linerate_appliance::error::Error;
use linerate_traffic::figures::Latency;
use linerate_traffic::units::line_rate_pps;

/// A device behind a generator. Trials are deterministic by `seed`.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// Speed of the wire; `None` for memory.
    pub(crate) link_bps: Option<f64>,
    /// What the device serves: so many ns for a frame, and so many for each of its bytes.
    pub(crate) frame_ns: f64,
    pub(crate) byte_ns: f64,
    /// Frames that wait for it at most.
    pub(crate) buffer: f64,
    /// Its rate varies from trial to trial: standard deviation, relative.
    pub(crate) jitter: f64,
    /// Probability that other threads take the CPU in a trial, and for how long; with `marked` the
    /// trial reports it.
    pub(crate) stolen_chance: f64,
    pub(crate) stolen_s: f64,
    pub(crate) marked: bool,
    /// Trials in which other threads take it: all, bursts only, or those of the loss curve only.
    pub(crate) stolen_in: fn(&Load) -> bool,
    /// The generator's maximum, at any size.
    pub(crate) generator_pps: f64,
    /// Maximum of its receiver; it misses the rest.
    pub(crate) receiver_pps: f64,
    /// Whether it hides unsent frames.
    pub(crate) silent: bool,
    /// The device collapses to this share of its rate when it is offered more.
    pub(crate) collapse: f64,
    /// Ends the run with this after so many trials.
    pub(crate) fails: Option<(u64, fn() -> Error)>,
    /// Connections that it sets up in a second, and knows; none if 0.
    pub(crate) set_up_pps: f64,
    pub(crate) room: u64,
    pub(crate) seed: u64,
    /// Trials up to now.
    pub(crate) trials: u64,
    /// Every load that was asked for.
    pub(crate) asked: Vec<Load>,
}

impl Default for Model {
    /// A device of 8.0 Mpps at 64 B on 10 Gbit/s, with 1024 slots, on a machine without other load.
    fn default() -> Self {
        Self {
            link_bps: Some(10e9),
            frame_ns: 115.0,
            byte_ns: 10.0 / 64.0,
            buffer: 1024.0,
            jitter: 0.0,
            stolen_chance: 0.0,
            stolen_s: 0.0,
            marked: true,
            stolen_in: |_| true,
            generator_pps: 1e9,
            receiver_pps: 1e9,
            silent: false,
            collapse: 1.0,
            fails: None,
            set_up_pps: 0.0,
            room: 1 << 18,
            seed: 1,
            trials: 0,
            asked: Vec::new(),
        }
    }
}

impl Model {
    pub(crate) fn service_pps(&self, frame_bytes: usize) -> f64 {
        1e9 / (self.frame_ns + self.byte_ns * frame_bytes as f64)
    }

    /// Uniform in 0..1.
    fn random(&mut self) -> f64 {
        // splitmix64
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.seed;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, of variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random()).sum::<f64>() - 6.0
    }

    fn times(&mut self, load: f64, samples: u64, service_pps: f64) -> Latency {
        // A queue's waiting time grows with 1 / (1 - load), to what a full buffer takes.
        let full_ns = self.buffer / service_pps * 1e9;
        let wait = (4_000.0 / (1.0 - load.min(0.999_999))).min(full_ns);
        let bucket = |number: i32| 3_000.0 + wait * 1.12_f64.powi(number - 30);
        let mut buckets = vec![(bucket(0), 0)];
        let mut left = samples;
        for number in 1..90 {
            // Bell-shaped, with a tail.
            let at = (f64::from(number) - 24.0) / 7.0;
            let weight = 0.045 * (-at * at / 2.0).exp() + 4e-4 * (-f64::from(number) / 9.0).exp();
            let count = ((samples as f64 * weight) as u64).min(left);
            if count > 0 {
                buckets.push((bucket(number), count));
            }
            left -= count;
        }
        buckets[0].1 = left;
        let total: u64 = buckets.iter().map(|bucket| bucket.1).sum();
        let at = |share: f64| {
            let mut sum = 0;
            let mut found = buckets.iter().filter(|bucket| {
                sum += bucket.1;
                sum as f64 >= total as f64 * share
            });
            found.next().map_or(0.0, |bucket| bucket.0)
        };
        Latency {
            samples: total,
            min_ns: 2_900.0,
            mean_ns: buckets.iter().map(|b| b.0 * b.1 as f64).sum::<f64>() / total.max(1) as f64,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: buckets.last().map_or(0.0, |bucket| bucket.0),
            jitter_ns: wait / 16.0,
            ipdv_max_ns: wait,
            buckets,
        }
    }
}

impl Tester for Model {
    fn trial(&mut self, load: &Load) -> Result<Outcome, Error> {
        self.trials += 1;
        self.asked.push(*load);
        if let Some((after, error)) = self.fails
            && self.trials > after
        {
            return Err(error());
        }
        let line = self.line_pps(load.frame_bytes).unwrap_or(f64::MAX);
        let can = self.generator_pps.min(line);
        let asked = load.pps.unwrap_or(can);
        let seconds = match load.count {
            Some(count) => count as f64 / asked,
            None => load.duration.as_secs_f64(),
        };
        let intended = load
            .count
            .map_or(asked * seconds, |count| count as f64)
            .round();
        let sent = intended.min((can * seconds).round());
        let rate = asked.min(can);
        let jitter = 1.0 + self.jitter * self.normal();
        let mut service = self.service_pps(load.frame_bytes) * jitter;
        if rate > service {
            service *= self.collapse;
        }
        let stolen_s = match self.random() < self.stolen_chance && (self.stolen_in)(load) {
            true => self.stolen_s.min(seconds),
            false => 0.0,
        };
        let served = service * (seconds - stolen_s);
        let piled = (sent - served).max(rate * stolen_s);
        let overflow = (piled - self.buffer).max(0.0).ceil();
        let came = (sent - overflow).max(0.0);
        let received = came.min((self.receiver_pps * seconds).round());
        let missed = came - received;
        let latency = self.times(rate / service, received as u64, service);
        let trial = Trial {
            asked_pps: load.pps.unwrap_or(0.0),
            intended: if self.silent {
                sent as u64
            } else {
                intended as u64
            },
            sent: sent as u64,
            received: received as u64,
            lost: (overflow + missed) as u64,
            missed: missed as u64,
            unsent: if self.silent {
                0
            } else {
                (intended - sent) as u64
            },
            seconds,
            stolen_ns: (stolen_s * 1e9) as u64,
            longest_stolen_ns: (stolen_s * 1e9) as u64,
            invalid: (self.marked && stolen_s > 0.0)
                .then(|| format!("others took {:.1} ms of the CPUs", stolen_s * 1e3)),
            ..Trial::default()
        };
        Ok(Outcome {
            received_by_port: vec![trial.received / 2, trial.received - trial.received / 2],
            device_busy_ticks: Some((trial.received as f64 / service * 2.6e9) as u64),
            trial,
            latency,
        })
    }

    fn line_pps(&self, frame_bytes: usize) -> Option<f64> {
        self.link_bps
            .map(|link| line_rate_pps(link, frame_bytes as f64))
    }

    fn recovery(&mut self, over: &Load, then: &Load) -> Result<Option<Recovered>, Error> {
        let (over, then) = (self.trial(over)?.trial, self.trial(then)?.trial);
        Ok(Some(Recovered {
            recovery_ns: Some(self.buffer / self.service_pps(64) * 1e9),
            resolution_ns: 1e5,
            over,
            then,
        }))
    }

    fn connect(&mut self, opened: &Opened) -> Result<Option<Connected>, Error> {
        if self.set_up_pps <= 0.0 {
            return Ok(None);
        }
        let share = (self.set_up_pps / opened.pps).min(1.0);
        let begun = ((opened.connections as f64 * share) as u64).min(self.room);
        let trial = |sent: u64, received: u64| Trial {
            intended: sent,
            sent,
            received,
            lost: sent - received,
            ..Trial::default()
        };
        Ok(Some(Connected {
            first: trial(opened.connections, begun),
            answers: trial(opened.connections, begun),
            known: begun,
            forgotten_ns: begun * 200,
        }))
    }
}
