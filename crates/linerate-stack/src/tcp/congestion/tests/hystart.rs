//! HyStart++ (RFC 9406) by rounds, and over a bottleneck.

use super::model::Link;
use super::*;

/// A flow in its first slow start, in rounds whose ACKs all measure the same round trip.
struct Rounds {
    control: Controller,
    una: u32,
}

impl Rounds {
    fn new() -> Self {
        Self {
            control: controller("cubic", 16, u32::MAX),
            una: u32::MAX - 50_000,
        }
    }

    /// One round. Returns by how many segments the window grew for each one acknowledged.
    fn round(&mut self, rtt_ms: u64) -> f64 {
        let cwnd = self.control.window.cwnd_bytes;
        let mut nxt = self.una.wrapping_add(cwnd);
        for _ in 0..cwnd / MSS {
            self.una = self.una.wrapping_add(MSS);
            let mut ack = ack(&self.control, 1, 0);
            (ack.snd_una, ack.snd_nxt) = (self.una, nxt);
            ack.rtt_ns = Some(rtt_ms * MS);
            self.control.on_ack(&ack);
            nxt = self.una.wrapping_add(self.control.window.cwnd_bytes);
        }
        f64::from(self.control.window.cwnd_bytes - cwnd) / f64::from(cwnd)
    }

    fn rounds(&mut self, count: u32, rtt_ms: u64) {
        for _ in 0..count {
            self.round(rtt_ms);
        }
    }

    fn is_over(&self) -> bool {
        !self.control.window.is_first_slow_start()
    }
}

#[test]
fn rfc9406_4_2_steady_round_trips_are_slow_start() {
    let mut rounds = Rounds::new();
    for _ in 0..10 {
        assert_eq!(rounds.round(50), 1.0);
    }
    assert!(!rounds.is_over());
}

/// The threshold is an eighth of the last round's minimum, from 4 to 16 ms.
#[test]
fn rfc9406_4_2_the_increase_that_counts() {
    for (base, threshold) in [(10, 4), (32, 4), (64, 8), (128, 16), (500, 16)] {
        for more in [threshold - 1, threshold] {
            let mut rounds = Rounds::new();
            rounds.rounds(3, base);
            let growth = rounds.round(base + more);
            let is_slower = growth < 0.99;
            assert_eq!(
                is_slower,
                more == threshold,
                "{base} and {more} ms: {growth}"
            );
        }
    }
}

/// Conservative slow start grows a quarter as fast, for five rounds; the round in which it begins
/// is one of them.
#[test]
fn rfc9406_4_2_css_ends_after_five_rounds() {
    let mut rounds = Rounds::new();
    rounds.rounds(3, 50);
    rounds.round(60);
    for _ in 0..4 {
        assert!(!rounds.is_over());
        assert!((rounds.round(60) - 0.25).abs() < 0.05);
    }
    // The ACK that ends the fifth round belongs to it or to the next.
    rounds.round(60);
    assert!(rounds.is_over());
    assert!(rounds.control.window.ssthresh_bytes <= rounds.control.window.cwnd_bytes);
    assert_eq!(
        rounds.control.window.prior_cwnd_bytes,
        rounds.control.window.ssthresh_bytes
    );
}

#[test]
fn rfc9406_4_2_slow_start_goes_on_when_round_trips_are_short_again() {
    let mut rounds = Rounds::new();
    rounds.rounds(3, 50);
    rounds.round(60);
    rounds.round(60);
    rounds.round(50);
    assert!(rounds.round(50) > 0.99);
    rounds.rounds(3, 50);
    assert!(!rounds.is_over());
}

/// RFC 9406 4.2: fewer than 8 samples in a round say nothing.
#[test]
fn rfc9406_4_2_few_samples_say_nothing() {
    let mut control = controller("cubic", 10, u32::MAX);
    let mut una = 0;
    for round in 0..20_u64 {
        let nxt = una + 10 * MSS;
        for sample in 0..10 {
            una += MSS;
            let mut ack = ack(&control, 1, 0);
            (ack.snd_una, ack.snd_nxt) = (una, nxt);
            ack.rtt_ns = (sample < 7).then_some((50 + round * 50) * MS);
            control.on_ack(&ack);
        }
    }
    assert_eq!(control.window.cwnd_bytes, (10 + 200) * MSS);
}

/// RFC 9406 4.2: a loss or a mark ends it, in either phase; the threshold is what the algorithm
/// reduces to (RFC 9438 4.6).
#[test]
fn rfc9406_4_2_a_loss_or_a_mark_ends_it() {
    for signal in [Signal::Loss, Signal::Ecn] {
        for is_conservative in [false, true] {
            let mut rounds = Rounds::new();
            rounds.rounds(3, 50);
            rounds.round(if is_conservative { 60 } else { 50 });
            let cwnd = rounds.control.window.cwnd_bytes;
            rounds.control.on_congestion(signal, cwnd, 0);
            rounds.control.on_recovery_end(false, 0);
            assert!(rounds.is_over() && !rounds.control.window.is_slow_start());
            assert_eq!(rounds.control.window.ssthresh_bytes, cwnd / 10 * 7);
            assert!(rounds.round(60) < 0.1, "avoidance");
        }
    }
}

/// After the first congestion it is plain slow start (RFC 9406 4.3).
#[test]
fn rfc9406_4_3_only_the_first_slow_start() {
    let mut rounds = Rounds::new();
    rounds.rounds(3, 50);
    rounds
        .control
        .on_timeout(true, rounds.control.window.cwnd_bytes, 0);
    for _ in 0..4 {
        assert!(rounds.round(500) >= 0.99);
    }
}

/// The window at which the first slow start ends, in segments, and how many packets its queue of
/// `room` has dropped by then. 100 ms and 2 MB/s: 200 packets fill the path.
fn peak(name: &str, room: usize) -> (u32, u64) {
    let mut link = Link::new(2_000_000, room);
    link.flow(name, 100 * MS, 0);
    while link.flows[0].control.window.is_first_slow_start() {
        let now = link.now_ns;
        assert!(now < 20 * S, "slow start does not end");
        link.run(now + MS);
    }
    link.run(link.now_ns + 2 * S);
    (link.flows[0].first_peak / MSS, link.drops)
}

/// With a queue of ten times what the path holds, slow start ends without a loss: three times
/// faster than it need be, since CSS is five rounds.
#[test]
fn slow_start_ends_before_a_long_queue_overflows() {
    let (reno, reno_drops) = peak("reno", 2000);
    let (cubic, cubic_drops) = peak("cubic", 2000);
    assert!(
        reno > 2200 && reno_drops > 1000,
        "reno {reno}, {reno_drops} drops"
    );
    assert!((200..2200).contains(&cubic), "cubic {cubic}");
    assert_eq!(cubic_drops, 0);
}

/// A queue as long as what the path holds overflows, but by a third less. That round trips are
/// longer is seen in the round after that in which they became so.
#[test]
fn slow_start_overflows_a_short_queue_by_less() {
    let (reno, reno_drops) = peak("reno", 200);
    let (cubic, cubic_drops) = peak("cubic", 200);
    assert!(cubic >= 200, "{cubic} packets do not fill the path");
    assert!(cubic < reno, "cubic {cubic}, reno {reno}");
    assert!(
        cubic_drops < reno_drops * 7 / 10,
        "cubic {cubic_drops}, reno {reno_drops} drops"
    );
}
