//! What is due, and when.

use std::time::{Duration, Instant};

/// Between two looks at links, and two ticks of the workers' timers.
const TICK: Duration = Duration::from_millis(100);
/// Longest time that a route change waits for others to be published with it.
const BATCH: Duration = Duration::from_millis(10);

/// What the control thread has to do without being asked.
pub(super) struct Schedule {
    /// Whether the kernel or FRR may have more to say.
    pub(super) fed: bool,
    /// Since when route changes wait for publication.
    dirty: Option<Instant>,
    ticked: Instant,
    /// When all ends.
    end: Option<Instant>,
}

impl Schedule {
    /// Begins now; ends after `duration`, if there is one.
    pub(super) fn new(now: Instant, duration: Option<Duration>) -> Self {
        Self {
            fed: false,
            dirty: None,
            ticked: now,
            end: duration.map(|duration| now + duration),
        }
    }

    /// How long nothing is due.
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        if self.fed {
            return Duration::ZERO;
        }
        let dues = [
            Some(self.ticked + TICK),
            self.dirty.map(|since| since + BATCH),
            self.end,
        ];
        let next = dues.into_iter().flatten().min().unwrap_or(now);
        next.saturating_duration_since(now)
    }

    /// Routes have changed: they are published soon.
    pub(super) fn changed(&mut self) {
        self.dirty.get_or_insert_with(Instant::now);
    }

    /// Whether workers go by all that has changed.
    pub(super) fn is_published(&self) -> bool {
        self.dirty.is_none()
    }

    /// Whether what has changed is to be published now.
    pub(super) fn is_publication_due(&self, now: Instant) -> bool {
        self.dirty.is_some_and(|since| now >= since + BATCH)
    }

    /// All changes are published.
    pub(super) fn published(&mut self) {
        self.dirty = None;
    }

    /// Whether it is time again for what is done ten times a second.
    pub(super) fn takes_tick(&mut self, now: Instant) -> bool {
        let is_due = now >= self.ticked + TICK;
        if is_due {
            self.ticked = now;
        }
        is_due
    }

    /// Ends in that time, if not sooner.
    pub(super) fn end_after(&mut self, time: Duration) {
        let end = Instant::now() + time;
        self.end = Some(self.end.map_or(end, |known| known.min(end)));
    }

    /// Whether all is to end.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.end.is_some_and(|end| now >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_thing_that_is_due_bounds_the_wait() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now, Some(Duration::from_millis(150)));
        assert_eq!(schedule.time_left(now), TICK);
        schedule.changed();
        assert!(schedule.time_left(now) <= BATCH + now.elapsed());
        assert!(!schedule.is_publication_due(now) && !schedule.is_published());
        let later = now + Duration::from_secs(1);
        assert!(schedule.is_publication_due(later));
        schedule.published();
        assert!(!schedule.is_publication_due(later) && schedule.is_published());
        assert!(!schedule.takes_tick(now));
        assert!(schedule.takes_tick(now + TICK));
        assert!(!schedule.takes_tick(now + TICK));
        assert_eq!(schedule.time_left(now + TICK), TICK / 2);
        assert!(!schedule.is_over(now));
        schedule.end_after(Duration::from_secs(9));
        assert!(schedule.is_over(now + Duration::from_millis(150)));
        schedule.fed = true;
        assert_eq!(schedule.time_left(now), Duration::ZERO);
    }
}
