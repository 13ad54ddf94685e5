//! How often TCP answers segments that it does not take (RFC 5961 7).
//!
//! Two limits, as in Linux: one for each connection, so that two ends that disagree do not answer
//! one another for ever, and one for the whole stack, so that a flood is not answered packet by
//! packet. The second one is common to all connections, so how much is left of it must not be
//! readable: by a fixed number per second an attacker counts the answers that *others* got, and
//! learns a connection's ports and sequence numbers (CVE-2016-5696). It is drawn anew each second.

use super::secret::Secret;

/// Nanoseconds between two answers to segments without data on one connection, at least: Linux'
/// `tcp_invalid_ratelimit`.
pub const OUT_OF_WINDOW_INTERVAL_NS: u64 = 500_000_000;

/// Challenge ACKs a second that Linux' `tcp_challenge_ack_limit` long had as its default.
pub const CHALLENGES_PER_S: u32 = 1000;

const MS_NS: u64 = 1_000_000;
const S_NS: u64 = 1_000_000_000;

/// The stack's budget of challenge ACKs.
///
/// In each second it is between half of the limit and one and a half of it, by a keyed hash of the
/// second. A connection asks its own [`OutOfWindow`] first, which an attacker's flood on it uses up
/// before the common budget.
#[derive(Clone, Debug)]
pub struct Challenges {
    secret: Secret,
    per_s: u32,
    second: u64,
    left: u32,
    refused: u64,
}

impl Challenges {
    /// A budget of `per_s` answers a second on average; 0 allows none. `secret` must be the
    /// process's own.
    pub fn new(per_s: u32, secret: &Secret) -> Self {
        let mut challenges = Self {
            secret: secret.derived(u64::from_le_bytes(*b"challeng")),
            per_s,
            second: 0,
            left: 0,
            refused: 0,
        };
        challenges.left = challenges.budget();
        challenges
    }

    /// Allows so many a second on average, from the next second on.
    pub fn set_per_s(&mut self, per_s: u32) {
        self.per_s = per_s;
    }

    /// Whether one more challenge ACK may be sent; counted as sent if so, as refused if not.
    pub fn allow(&mut self, now_ns: u64) -> bool {
        let second = now_ns / S_NS;
        // A clock that another lcore read a moment ago is of no earlier second.
        if second > self.second {
            self.second = second;
            self.left = self.budget();
        }
        let allowed = self.left > 0;
        self.left -= u32::from(allowed);
        self.refused += u64::from(!allowed);
        allowed
    }

    /// How many were refused so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The budget of this second.
    fn budget(&self) -> u32 {
        let hash = self.secret.hash(&[], &[self.second]);
        // A multiple of 2^-32, so that each number up to the limit is as likely as another.
        let share = (u64::from(hash as u32) * u64::from(self.per_s)) >> 32;
        (self.per_s.div_ceil(2)).saturating_add(share as u32)
    }
}

/// When a connection last answered a segment that it did not take.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutOfWindow {
    /// The millisecond of the last answer, modulo 2^32; 0 for none.
    last_ms: u32,
}

const _: () = assert!(size_of::<OutOfWindow>() == 4);

impl OutOfWindow {
    /// Whether the connection may answer another segment without data that it does not take; noted
    /// as answered if so. Segments with data and without SYN are no part of such a loop: they are
    /// answered without asking, as Linux does.
    pub fn allow(&mut self, now_ns: u64) -> bool {
        const INTERVAL_MS: u32 = (OUT_OF_WINDOW_INTERVAL_NS / MS_NS) as u32;
        let now_ms = (now_ns / MS_NS) as u32;
        let allowed = self.last_ms == 0 || now_ms.wrapping_sub(self.last_ms) >= INTERVAL_MS;
        if allowed {
            self.last_ms = now_ms.max(1);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(challenges: &mut Challenges, at_ns: u64) -> usize {
        (0..3000).filter(|_| challenges.allow(at_ns)).count()
    }

    /// RFC 5961 7, and what CVE-2016-5696 needs: the same number of answers each second.
    #[test]
    fn rfc_5961_7_challenges_are_limited_and_their_number_cannot_be_predicted() {
        let mut challenges = Challenges::new(1000, &Secret::new(1));
        let counts: Vec<_> = (0..400)
            .map(|second| sent(&mut challenges, second * S_NS + 17))
            .collect();
        assert!(counts.iter().all(|count| (500..1500).contains(count)));
        let mean = counts.iter().sum::<usize>() / counts.len();
        assert!((950..1050).contains(&mean), "{mean}");
        let mut different = counts.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 250, "{}", different.len());
        let mut other = Challenges::new(1000, &Secret::new(2));
        let others: Vec<_> = (0..400).map(|s| sent(&mut other, s * S_NS)).collect();
        assert_ne!(counts, others);
        let refused = 400 * 3000 - counts.iter().sum::<usize>();
        assert_eq!(challenges.refused(), refused as u64);
    }

    #[test]
    fn a_budget_is_a_seconds_and_is_not_saved_up() {
        let mut challenges = Challenges::new(1000, &Secret::new(1));
        assert!(sent(&mut challenges, 5 * S_NS) >= 500);
        assert_eq!(sent(&mut challenges, 6 * S_NS - 1), 0);
        assert!(sent(&mut challenges, 1000 * S_NS) < 1500);
        assert_eq!(sent(&mut challenges, 999 * S_NS), 0); // a clock that is behind
    }

    #[test]
    fn limits_at_both_ends() {
        let mut none = Challenges::new(0, &Secret::new(1));
        assert_eq!(sent(&mut none, S_NS), 0);
        let mut one = Challenges::new(1, &Secret::new(1));
        assert_eq!(sent(&mut one, S_NS), 1);
        let mut all = Challenges::new(u32::MAX, &Secret::new(1));
        assert_eq!(sent(&mut all, S_NS), 3000);
    }

    #[test]
    fn a_connection_answers_twice_a_second() {
        let mut limit = OutOfWindow::default();
        let ms = |ms: u64| ms * MS_NS;
        assert!(limit.allow(0) && !limit.allow(ms(499)));
        assert!(limit.allow(ms(501)) && !limit.allow(ms(1000)) && limit.allow(ms(1001)));
        // After 49 days the clock begins again.
        let wrap = ms(1 << 32);
        let mut limit = OutOfWindow::default();
        assert!(limit.allow(wrap - ms(100)) && !limit.allow(wrap) && limit.allow(wrap + ms(400)));
    }
}
