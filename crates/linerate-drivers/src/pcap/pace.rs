//! When a captured frame is due.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

/// How fast a capture is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Timing {
    /// As fast as it is polled.
    #[default]
    Fast,
    /// So many times as fast as it was captured.
    Times(f64),
}

impl FromStr for Timing {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "fast" => Ok(Self::Fast),
            "original" => Ok(Self::Times(1.0)),
            _ => {
                let times: f64 = text.strip_prefix('x').ok_or(())?.parse().map_err(|_| ())?;
                if times.is_finite() && times > 0.0 {
                    Ok(Self::Times(times))
                } else {
                    Err(())
                }
            }
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fast => f.write_str("as fast as it is polled"),
            Self::Times(times) => write!(f, "{times} times as fast as captured"),
        }
    }
}

/// The clock of one replay, read once per poll.
#[derive(Debug)]
pub(super) struct Pace {
    timing: Timing,
    /// When the first frame was due, and its time in the capture.
    first: Option<(Instant, u64)>,
}

impl Pace {
    pub(super) fn new(timing: Timing) -> Self {
        Self {
            timing,
            first: None,
        }
    }

    /// Up to which capture time, in ns, frames are due now; `next_ns` is the next frame's.
    pub(super) fn horizon(&mut self, next_ns: u64) -> u64 {
        let Timing::Times(times) = self.timing else {
            return u64::MAX;
        };
        let now = Instant::now();
        let (start, first_ns) = *self.first.get_or_insert((now, next_ns));
        let passed = now.duration_since(start).as_nanos() as f64 * times;
        first_ns.saturating_add(passed as u64)
    }

    /// The capture starts again.
    pub(super) fn restart(&mut self) {
        self.first = None;
    }
}
