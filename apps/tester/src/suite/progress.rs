//! How far a run is: a bar with the expected end on a terminal, otherwise a line now and then; on
//! standard error, so that results can be piped.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::method::{Estimate, Progress, Step};

/// Steps of the bar.
const LENGTH: u64 = 10_000;
/// Between two plain lines of one phase.
const QUIET: Duration = Duration::from_secs(10);

/// Shows it.
pub(super) struct Shown {
    bar: Option<ProgressBar>,
    phase: String,
    told: Instant,
}

impl Shown {
    pub(super) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(LENGTH), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:24} {percent:>3}% {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            bar,
            phase: String::new(),
            told: Instant::now(),
        }
    }

    /// Shows a step other than a trial.
    pub(super) fn say(&mut self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_string()),
            None => eprintln!("{what}"),
        }
    }

    /// Shows the expected duration.
    pub(super) fn expect(&mut self, estimate: &Estimate) {
        let time = spell(estimate.seconds);
        self.say(&format!("about {} trials, {time}", estimate.trials));
    }

    /// Removes the bar.
    pub(super) fn end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Shown {
    fn begins(&mut self, step: &Step) {
        let left = format!("{} left", spell(step.left_seconds));
        match &self.bar {
            Some(bar) => {
                bar.set_position((step.fraction.clamp(0.0, 1.0) * LENGTH as f64) as u64);
                bar.set_message(format!("{left}  {}, {}", step.phase, step.trial));
            }
            None if step.phase != self.phase || self.told.elapsed() >= QUIET => {
                let percent = step.fraction * 100.0;
                eprintln!("{percent:3.0} %, {left}: {}, {}", step.phase, step.trial);
                self.told = Instant::now();
            }
            None => {}
        }
        self.phase.clone_from(&step.phase);
    }
}

/// `2 min 5 s`.
fn spell(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, min, s) => format!("{min} min {s} s"),
        (h, min, _) => format!("{h} h {min} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_fitting_units() {
        assert_eq!(spell(7.4), "7 s");
        assert_eq!(spell(125.0), "2 min 5 s");
        assert_eq!(spell(7260.0), "2 h 1 min");
        assert_eq!(spell(-1.0), "0 s");
    }
}
