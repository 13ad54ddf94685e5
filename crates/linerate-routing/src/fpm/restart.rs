//! Decides when routes that were not repeated are removed.
//!
//! Routes are stale from the end of a connection on. If no connection comes in the grace time, they
//! are removed. If one comes, the grace time begins anew, and is up to doubled while the peer keeps
//! sending.

use std::time::{Duration, Instant};

/// A peer that has sent nothing for so long is not in the middle of its table: zebra pauses for a
/// second when its buffer is full.
const QUIET: Duration = Duration::from_secs(3);

/// Whether routes are stale, and since when.
#[derive(Debug)]
pub(super) struct Restart {
    graceful: Duration,
    /// While routes are stale: since when, or since when there is a connection again.
    since: Option<Instant>,
    heard: Option<Instant>,
}

impl Restart {
    pub(super) fn new(graceful: Duration) -> Self {
        Self {
            graceful,
            since: None,
            heard: None,
        }
    }

    /// All routes are stale from now on.
    pub(super) fn disconnected(&mut self, now: Instant) {
        (self.since, self.heard) = (Some(now), None);
    }

    /// If routes are stale, the grace time begins anew.
    pub(super) fn connected(&mut self, now: Instant) {
        self.since = self.since.map(|_| now);
        self.heard = None;
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Whether the grace time ends now; `true` once.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let Some(since) = self.since else {
            return false;
        };
        let passed = now.saturating_duration_since(since);
        let speaks = |heard| now.saturating_duration_since(heard) < QUIET;
        let limit = match self.heard.is_some_and(speaks) {
            true => 2 * self.graceful,
            false => self.graceful,
        };
        let over = passed >= limit;
        if over {
            self.since = None;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    #[test]
    fn stale_routes_go_when_no_zebra_connects_in_time() {
        let (start, mut restart) = (Instant::now(), Restart::new(GRACE));
        let at = |seconds| start + Duration::from_secs(seconds);
        restart.connected(at(0));
        assert!(!restart.is_over(at(1000)), "no route was stale");
        restart.disconnected(at(1000));
        assert!(!restart.is_over(at(1059)));
        assert!(restart.is_over(at(1060)));
        assert!(!restart.is_over(at(2000)));
    }

    #[test]
    fn a_connection_has_the_time_again() {
        let (start, mut restart) = (Instant::now(), Restart::new(GRACE));
        let at = |seconds| start + Duration::from_secs(seconds);
        restart.disconnected(at(0));
        restart.connected(at(50));
        restart.heard(at(51));
        assert!(
            !restart.is_over(at(100)),
            "silence does not end the grace time"
        );
        assert!(restart.is_over(at(110)));
    }

    #[test]
    fn who_goes_on_speaking_is_waited_for_but_not_forever() {
        let (start, mut restart) = (Instant::now(), Restart::new(GRACE));
        let at = |seconds| start + Duration::from_secs(seconds);
        restart.disconnected(at(0));
        restart.connected(at(0));
        for second in 0..120 {
            restart.heard(at(second));
            assert!(!restart.is_over(at(second)), "{second}");
        }
        restart.heard(at(120));
        assert!(restart.is_over(at(120)));
    }
}
