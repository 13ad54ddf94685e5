//! RFC 6298 and what Linux adds, clause by clause; the minimum against a plain list.
#![allow(clippy::unwrap_used)]

use linerate_testkit::Random;

use super::*;

const MS: u64 = 1_000_000;

/// Times are kept in units of 32 ns.
fn assert_close(got: u64, expected: u64) {
    assert!(got.abs_diff(expected) <= 256, "{got} ns, not {expected} ns");
}

#[test]
fn rfc6298_2_1_a_second_until_there_is_a_sample() {
    let rtt = Rtt::new();
    assert_eq!(rtt.rto_ns(), RTO_INITIAL_NS);
    assert_eq!((rtt.srtt_ns(), rtt.min_rtt_ns(0)), (None, None));
    assert_eq!(rtt, Rtt::default());
}

#[test]
fn rfc6298_2_2_the_first_sample_gives_three_times_itself() {
    let mut rtt = Rtt::new();
    rtt.sample(500 * MS, 0);
    assert_close(rtt.srtt_ns().unwrap(), 500 * MS);
    assert_close(rtt.rttvar_ns(), 250 * MS);
    assert_close(rtt.rto_ns(), 1500 * MS);
}

#[test]
fn rfc6298_2_3_gains_of_an_eighth_and_a_quarter() {
    let mut rtt = Rtt::new();
    rtt.sample(800 * MS, 0);
    rtt.sample(1600 * MS, 1600 * MS);
    // RTTVAR = 3/4 * 400 + 1/4 * |800 - 1600|; SRTT = 7/8 * 800 + 1/8 * 1600.
    assert_close(rtt.rttvar_ns(), 500 * MS);
    assert_close(rtt.srtt_ns().unwrap(), 900 * MS);
    assert_close(rtt.rto_ns(), 900 * MS + 4 * 500 * MS);
}

#[test]
fn rfc6298_2_4_the_variation_is_at_least_200_ms() {
    let mut rtt = Rtt::new();
    for round in 0..200 {
        rtt.sample(50 * MS, round * 50 * MS);
    }
    assert_close(rtt.srtt_ns().unwrap(), 50 * MS);
    assert_close(rtt.rto_ns(), 250 * MS);
    let mut fast = Rtt::new();
    fast.sample(3_000, 0);
    assert_close(fast.rto_ns(), RTO_MIN_NS + 3_000);
}

#[test]
fn rfc6298_2_5_and_5_5_the_rto_doubles_up_to_120_s() {
    let mut rtt = Rtt::new();
    for expected in [1, 2, 4, 8, 16, 32, 64, 120, 120] {
        assert_eq!(rtt.rto_ns(), expected * 1000 * MS);
        rtt.backoff();
    }
    (0..1000).for_each(|_| rtt.backoff());
    assert_eq!(rtt.rto_ns(), RTO_MAX_NS);
    let mut least = Rtt::new();
    least.sample(1, 0);
    (0..1000).for_each(|_| least.backoff());
    assert_eq!(least.rto_ns(), RTO_MAX_NS);
}

/// Karn: what a backed-off RTO was is kept until a segment that was sent once is acknowledged.
#[test]
fn rfc6298_3_the_rto_stays_backed_off_until_a_sample() {
    let mut rtt = Rtt::new();
    rtt.sample(100 * MS, 0);
    rtt.backoff();
    rtt.backoff();
    assert_eq!((rtt.backoffs(), rtt.rto_ns()), (2, 1200 * MS));
    rtt.sample(100 * MS, 1000 * MS);
    assert_eq!(rtt.backoffs(), 0);
    assert!(rtt.rto_ns() < 301 * MS);
    rtt.backoff();
    rtt.clear_backoff();
    assert_eq!(rtt.backoffs(), 0);
}

#[test]
fn rfc6298_5_7_three_seconds_after_a_syn_that_timed_out() {
    let mut rtt = Rtt::new();
    rtt.backoff();
    rtt.handshake_timed_out();
    assert_close(rtt.rto_ns(), RTO_FALLBACK_NS);
    // Time stamps have told which SYN was answered: there is a sample, which is better.
    let mut stamped = Rtt::new();
    stamped.backoff();
    stamped.sample(100 * MS, 0);
    stamped.handshake_timed_out();
    assert_close(stamped.rto_ns(), 300 * MS);
}

/// A round trip with 500 samples, of which one is late: plain RFC 6298 would have forgotten it at
/// the end of the round trip, when the next late one is due.
#[test]
fn rfc7323_appendix_g_many_samples_a_round_trip_do_not_forget_its_variation() {
    let mut rtt = Rtt::new();
    let (mut now, mut plain) = (0, 0.0_f64);
    for round in 0..20 {
        for sample in 0..500_u64 {
            let late = if sample == 250 { 2000 * MS } else { 0 };
            rtt.sample(1000 * MS + late, now);
            plain = 0.75 * plain + 0.25 * late as f64;
            now += 2 * MS;
        }
        if round > 2 {
            assert!(plain < 1e6, "the plain one has forgotten it");
            assert!(rtt.rto_ns() > 2200 * MS, "{} ns", rtt.rto_ns());
        }
    }
    // Then it is forgotten, by a quarter each round trip.
    for _ in 0..20 * 500 {
        rtt.sample(1000 * MS, now);
        now += 2 * MS;
    }
    assert!(rtt.rto_ns() < 1220 * MS, "{} ns", rtt.rto_ns());
}

#[test]
fn a_round_trip_that_falls_does_not_raise_the_rto() {
    let mut rtt = Rtt::new();
    (0..100).for_each(|round| rtt.sample(2000 * MS, round * 2000 * MS));
    let before = rtt.rto_ns();
    for round in 0..100 {
        rtt.sample(100 * MS, 200_000 * MS + round * 100 * MS);
        assert!(rtt.rto_ns() <= before, "{} ns", rtt.rto_ns());
    }
}

#[test]
fn rfc9040_the_last_connection_makes_the_first_rto_longer_not_shorter() {
    let mut rtt = Rtt::new();
    rtt.expect(300 * MS);
    assert_eq!(rtt.rto_ns(), RTO_INITIAL_NS, "a SYN waits for a second");
    rtt.sample(100 * MS, 0);
    rtt.expect(50 * MS);
    assert_close(rtt.rto_ns(), 300 * MS);
    rtt.expect(300 * MS);
    assert_close(rtt.rto_ns(), 900 * MS);
    assert_close(rtt.srtt_ns().unwrap(), 100 * MS);
}

#[test]
fn samples_of_any_size_keep_everything_in_bounds() {
    let mut random = Random::new(6298);
    let mut rtt = Rtt::new();
    let mut now = 0_u64;
    for step in 0..200_000 {
        let sample = random.bits() >> random.below(64_u32);
        now = now.wrapping_add(random.bits() >> random.below(64_u32));
        rtt.sample(sample, now);
        let (rto, srtt) = (rtt.rto_ns(), rtt.srtt_ns().unwrap());
        assert!(
            (RTO_MIN_NS..=RTO_MAX_NS).contains(&rto),
            "seed 6298, step {step}: {rto}"
        );
        assert!(srtt <= RTO_MAX_NS && rto >= srtt.min(RTO_MAX_NS));
        if random.one_in(3) {
            rtt.backoff();
        }
    }
}

/// What counts as the minimum is that of the last 5 minutes, or of a later part of them that is at
/// least half as long.
#[test]
fn the_minimum_is_that_of_the_window() {
    let mut random = Random::new(11);
    for case in 0..20 {
        let mut rtt = Rtt::new();
        let mut samples = Vec::new();
        let mut now = random.bits() >> 20;
        for _ in 0..2000 {
            now += random.below(2000_u64) * MS;
            let sample = (50 + random.below(100_u64)) * MS;
            rtt.sample(sample, now);
            samples.push((now, sample));
            let least = |within: u64| {
                let fresh = samples.iter().filter(|(at, _)| now - at <= within);
                fresh.map(|&(_, sample)| sample).min().unwrap()
            };
            let got = rtt.min_rtt_ns(now).unwrap();
            let slack = 2 * 1_048_576 + 2000 * MS;
            let (most, fewest) = (MIN_RTT_WINDOW_NS + slack, MIN_RTT_WINDOW_NS / 2 - slack);
            assert!(
                got + 32 >= least(most),
                "seed 11, case {case}: {got} is too old"
            );
            assert!(
                got <= least(fewest),
                "seed 11, case {case}: {got} is too large"
            );
        }
    }
}

#[test]
fn a_minimum_that_nothing_follows_stays_the_best_that_is_known() {
    let mut rtt = Rtt::new();
    rtt.sample(10 * MS, 0);
    assert_close(rtt.min_rtt_ns(10 * MIN_RTT_WINDOW_NS).unwrap(), 10 * MS);
    rtt.sample(40 * MS, 10 * MIN_RTT_WINDOW_NS);
    assert_close(rtt.min_rtt_ns(10 * MIN_RTT_WINDOW_NS).unwrap(), 40 * MS);
}
