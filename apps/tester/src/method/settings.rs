//! Durations, repeats and precision: those of RFC 2544, and the quick form.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use linerate_appliance::error::Error;
use linerate_traffic::units::RFC2544_SIZES;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurement {
    /// RFC 2544 26.1.
    Throughput,
    /// RFC 2544 26.2, after the throughput.
    Latency,
    /// RFC 2544 26.3.
    Loss,
    /// RFC 9004, after the throughput.
    BackToBack,
    /// All of RFC 2544 section 26 but resets, 26.4 as RFC 9004 has it.
    Rfc2544,
    /// RFC 9971: NDR and PDR in one search, then latency at parts of PDR.
    Ndr,
    /// A long time at one rate.
    Soak,
    /// The maximum rate, and latency at half of that.
    Demo,
}

impl Measurement {
    pub(crate) const ALL: [Self; 8] = [
        Self::Throughput,
        Self::Latency,
        Self::Loss,
        Self::BackToBack,
        Self::Rfc2544,
        Self::Ndr,
        Self::Soak,
        Self::Demo,
    ];

    /// Whether profiles can be asked for with it: it finds the throughput of all subjects.
    pub(crate) fn is_profiled(self) -> bool {
        matches!(self, Self::Throughput | Self::Rfc2544)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Loss => "loss",
            Self::BackToBack => "back2back",
            Self::Rfc2544 => "rfc2544",
            Self::Ndr => "ndr",
            Self::Soak => "soak",
            Self::Demo => "demo",
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Measurement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("`{text}` is no kind of benchmark"))
    }
}

/// Around each trial (RFC 2544 section 23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// Wait after learning frames, before the trial; zero: no learning frames.
    pub(crate) learning: Duration,
    /// Wait for residual frames; zero: as long as frames still come.
    pub(crate) residual: Duration,
    /// For the device to settle, after.
    pub(crate) settle: Duration,
}

impl Waits {
    /// As RFC 2544 section 23 has them.
    pub(crate) const RFC2544: Self = Self {
        learning: Duration::from_secs(2),
        residual: Duration::from_secs(2),
        settle: Duration::from_secs(5),
    };

    /// Their sum.
    pub(crate) fn total(&self) -> Duration {
        self.learning + self.residual + self.settle
    }
}

/// A search goal of MLRsearch (RFC 9971).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Goal {
    /// `NDR`, `PDR`, `RFC2544`.
    pub(crate) name: String,
    /// Goal final trial duration.
    pub(crate) trial: Duration,
    /// Goal duration sum.
    pub(crate) sum: Duration,
    pub(crate) loss_ratio: f64,
    /// Share of the duration sum that may have more loss than `loss_ratio`.
    pub(crate) exceed_ratio: f64,
    /// Largest distance of the bounds, relative to the upper one.
    pub(crate) width: f64,
    /// Length of the first, coarse trials.
    pub(crate) first_trial: Duration,
}

impl Goal {
    /// As CSIT has it: 1 s trials, 21 s in all, half of which may exceed, width 0.5 %.
    pub(crate) fn csit(name: &str, loss_ratio: f64) -> Self {
        Self {
            name: name.into(),
            trial: Duration::from_secs(1),
            sum: Duration::from_secs(21),
            loss_ratio,
            exceed_ratio: 0.5,
            width: 0.005,
            first_trial: Duration::from_secs(1),
        }
    }

    /// The goal whose relevant lower bound is a throughput by RFC 2544: 60 s, no loss, no
    /// exception.
    pub(crate) fn rfc2544() -> Self {
        Self {
            name: "RFC2544".into(),
            trial: Duration::from_secs(60),
            sum: Duration::from_secs(60),
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            width: 0.005,
            first_trial: Duration::from_secs(1),
        }
    }
}

/// All that can be set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// FCS included.
    pub(crate) sizes: Vec<usize>,
    /// Length of the trials that are quoted.
    pub(crate) trial: Duration,
    /// Length of the trials that only search (RFC 2544 section 24 allows shorter ones).
    pub(crate) search_trial: Duration,
    /// The throughput search ends when its bounds are this close, relative to the upper one.
    pub(crate) width: f64,
    /// Searches for each size, for the spread.
    pub(crate) repeats: usize,
    pub(crate) waits: Waits,
    /// Upper limit of the offered rate; `None`: the line rate or the generator's maximum.
    pub(crate) max_pps: Option<f64>,
    /// Length of a latency trial, and how many at the throughput (RFC 2544 26.2: 120 s, 20); at
    /// other loads there is one.
    pub(crate) latency_trial: Duration,
    pub(crate) latency_repeats: usize,
    /// Loads at which latency is measured besides the throughput: shares of PDR, or of the
    /// throughput without a PDR search.
    pub(crate) latency_shares: Vec<f64>,
    /// Length of a trial of the loss curve, and its steps: shares of the most.
    pub(crate) loss_trial: Duration,
    pub(crate) loss_step: f64,
    /// Longest burst (RFC 9004: 30 s), and how often each longest burst is looked for (50).
    pub(crate) burst_limit: Duration,
    pub(crate) burst_repeats: usize,
    /// Between bursts: at least 2 s in RFC 9004.
    pub(crate) burst_wait: Duration,
    /// Searches for each size by MLRsearch, for the spread (CSIT: 10).
    pub(crate) ndr_repeats: usize,
    /// Length of each half of a recovery trial (RFC 2544 26.5: 60 s).
    pub(crate) recovery_trial: Duration,
    /// How often ("a number of times", RFC 2544 26.5).
    pub(crate) recovery_repeats: usize,
    pub(crate) goals: Vec<Goal>,
    pub(crate) soak: Duration,
    /// A soak is cut into trials of this length, so that it can end early and show its course.
    pub(crate) soak_slice: Duration,
    /// Frames a second of a soak; none for 90 % of the throughput.
    pub(crate) soak_pps: Option<f64>,
    /// Approximate time limit for a size, per goal and baseline: then searches and repeats end with
    /// what they have.
    pub(crate) size_limit: Option<Duration>,
    /// How many times a disturbed trial is run at most.
    pub(crate) attempts: usize,
    /// Repeated results that differ by more, relative to their median, are noisy.
    pub(crate) noise: f64,
    /// Whether it is measured what stages of the device take for a packet.
    pub(crate) profile: bool,
    /// How many connections are opened when the rate of that is measured (RFC 9693), if it is.
    pub(crate) connections: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::full()
    }
}

impl Settings {
    /// As the RFCs have it. All kinds on seven sizes take hours.
    pub(crate) fn full() -> Self {
        Self {
            sizes: RFC2544_SIZES.to_vec(),
            trial: Duration::from_secs(60),
            search_trial: Duration::from_secs(5),
            width: 0.005,
            repeats: 1,
            waits: Waits::RFC2544,
            max_pps: None,
            latency_trial: Duration::from_secs(120),
            latency_repeats: 20,
            latency_shares: vec![0.1, 0.5, 0.9],
            loss_trial: Duration::from_secs(60),
            loss_step: 0.1,
            burst_limit: Duration::from_secs(30),
            burst_repeats: 50,
            burst_wait: Duration::from_secs(2),
            ndr_repeats: 1,
            recovery_trial: Duration::from_secs(60),
            recovery_repeats: 3,
            goals: vec![
                Goal::csit("NDR", 0.0),
                Goal::csit("PDR", 0.005),
                Goal::rfc2544(),
            ],
            soak: Duration::from_secs(1800),
            soak_slice: Duration::from_secs(60),
            soak_pps: None,
            size_limit: None,
            attempts: 3,
            noise: 0.05,
            profile: false,
            connections: None,
        }
    }

    /// 1 s trials, few repeats, no waits: minutes.
    pub(crate) fn quick() -> Self {
        let quick = |name, loss_ratio| Goal {
            sum: Duration::from_secs(3),
            width: 0.01,
            first_trial: Duration::from_millis(250),
            ..Goal::csit(name, loss_ratio)
        };
        Self {
            trial: Duration::from_secs(1),
            search_trial: Duration::from_millis(250),
            width: 0.01,
            repeats: 3,
            waits: Waits::default(),
            latency_trial: Duration::from_millis(500),
            latency_repeats: 1,
            loss_trial: Duration::from_millis(250),
            burst_limit: Duration::from_secs(1),
            burst_repeats: 3,
            burst_wait: Duration::ZERO,
            recovery_trial: Duration::from_millis(500),
            recovery_repeats: 1,
            goals: vec![quick("NDR", 0.0), quick("PDR", 0.005)],
            soak: Duration::from_secs(30),
            soak_slice: Duration::from_secs(1),
            size_limit: Some(Duration::from_secs(16)),
            ..Self::full()
        }
    }

    /// Checks that a run with these settings is possible.
    ///
    /// # Errors
    /// [`Error::Usage`], with the setting and what it may be.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let usage = |problem: String, fix: &str| {
            Err(Error::Usage {
                problem,
                fix: fix.into(),
            })
        };
        if self.sizes.is_empty() {
            return usage(
                "no frame size to measure".into(),
                "give at least one, such as 64",
            );
        }
        let durations = [
            ("a trial", self.trial),
            ("a search trial", self.search_trial),
            ("a latency trial", self.latency_trial),
            ("a trial of the loss curve", self.loss_trial),
            ("the longest burst", self.burst_limit),
            ("a slice of the soak", self.soak_slice),
        ];
        for (what, duration) in durations {
            if duration < Duration::from_millis(1) {
                return usage(
                    format!("{what} of {} s is too short", duration.as_secs_f64()),
                    "give at least 0.001 s",
                );
            }
        }
        if !(0.0001..=0.5).contains(&self.width) {
            return usage(
                format!("a search to within {} % does not end", self.width * 100.0),
                "give 0.01 % to 50 %",
            );
        }
        for goal in &self.goals {
            let ratio = |ratio: f64| (0.0..1.0).contains(&ratio);
            let ends = goal.trial >= Duration::from_millis(1) && goal.width >= 0.0001;
            if !ratio(goal.loss_ratio) || !ratio(goal.exceed_ratio) || !ends {
                return usage(
                    format!("goal {} cannot be searched for", goal.name),
                    "give ratios from 0 to below 1, trials of at least 0.001 s, and a width of \
                     at                      least 0.01 %",
                );
            }
        }
        Ok(())
    }
}
