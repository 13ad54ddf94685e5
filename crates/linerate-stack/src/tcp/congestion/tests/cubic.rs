//! CUBIC against its formulas in floating point, and its other clauses.

use super::*;

/// RFC 9438 in segments and seconds, as it is written.
struct Formula {
    w_max: f64,
    k: f64,
}

impl Formula {
    fn after(cwnd: f64, w_max: f64) -> Self {
        let k = ((w_max - cwnd).max(0.0) / 0.4).cbrt();
        Self { w_max, k }
    }

    fn at(&self, t: f64) -> f64 {
        0.4 * (t - self.k).powi(3) + self.w_max
    }
}

/// Sends `seconds` of round trips of 100 ms with full windows; calls `look` after each with the
/// time since the start and the window in segments.
fn run(control: &mut Controller, from_ns: u64, seconds: u64, mut look: impl FnMut(f64, f64)) {
    let rtt = 100 * MS;
    let mut now = from_ns;
    while now < from_ns + seconds * S {
        let segments = control.window.cwnd_bytes / MSS;
        for segment in 0..u64::from(segments) {
            let at = now + rtt * segment / u64::from(segments);
            control.on_ack(&ack(control, 1, at));
        }
        now += rtt;
        let cwnd = f64::from(control.window.cwnd_bytes) / f64::from(MSS);
        look((now - from_ns) as f64 / S as f64, cwnd);
    }
}

/// After a loss at 1000 segments: 700, then W_cubic(t), concave up to 1000 at K = 9.1 s and convex
/// after. The window is set for a round trip ahead, and reached at its end.
#[test]
fn rfc9438_4_2_the_window_is_the_cubic_function() {
    let mut control = controller("cubic", 1000, 1000);
    control.on_congestion(Signal::Loss, 1000 * MSS, 5 * S);
    control.on_recovery_end(false, 5 * S);
    assert_eq!(control.window.cwnd_bytes, 700 * MSS);
    let formula = Formula::after(700.0, 1000.0);
    assert!((formula.k - 9.086).abs() < 0.001);
    run(&mut control, 5 * S, 20, |t, cwnd| {
        let (now, next) = (formula.at(t), formula.at(t + 0.1));
        // Between the curve and where it is a round trip later; a segment more or less.
        assert!(
            cwnd > now - 1.5 && cwnd < next + 1.5,
            "at {t} s {cwnd}, not {now} to {next}"
        );
    });
}

/// RFC 9438 4.3: with a small window CUBIC is what Reno would be: alpha is 9/17, and as in Linux it
/// stays so beyond the window of the congestion.
#[test]
fn rfc9438_4_3_small_windows_grow_as_reno() {
    let mut control = controller("cubic", 20, 20);
    control.on_congestion(Signal::Loss, 20 * MSS, 0);
    control.on_recovery_end(false, 0);
    let formula = Formula::after(14.0, 20.0);
    let (mut est, mut is_reno) = (14.0_f64, 0);
    run(&mut control, 0, 6, |t, cwnd| {
        est += 9.0 / 17.0;
        if formula.at(t) < est - 2.0 {
            is_reno += 1;
            assert!((cwnd - est).abs() < 2.5, "at {t} s {cwnd}, not {est}");
        }
    });
    assert!(is_reno > 25, "{is_reno} round trips");
}

#[test]
fn rfc9438_4_6_the_window_is_reduced_to_seven_tenths() {
    let mut control = controller("cubic", 100, 100);
    control.on_congestion(Signal::Ecn, 100 * MSS, 0);
    assert_eq!(control.window.cwnd_bytes, 70 * MSS);
    assert_eq!(control.window.ssthresh_bytes, 70 * MSS);
    assert_eq!(control.window.prior_cwnd_bytes, 100 * MSS);
    // It is of the window, whatever the application has in flight.
    control.on_congestion(Signal::Loss, 5 * MSS, 0);
    assert_eq!(control.window.ssthresh_bytes, 49 * MSS);
}

/// RFC 9438 4.7: the second congestion at less than W_max is a plateau at 0.85 of the window.
#[test]
fn rfc9438_4_7_fast_convergence_lowers_the_plateau() {
    let mut control = controller("cubic", 1000, 1000);
    control.on_congestion(Signal::Loss, 1000 * MSS, 0);
    control.window.cwnd_bytes = 800 * MSS;
    control.on_congestion(Signal::Loss, 800 * MSS, 0);
    control.on_recovery_end(false, 0);
    assert_eq!(control.window.cwnd_bytes, 560 * MSS);
    let formula = Formula::after(560.0, 680.0);
    run(&mut control, 0, 12, |t, cwnd| {
        let (now, next) = (formula.at(t), formula.at(t + 0.1));
        assert!(
            cwnd > now - 1.5 && cwnd < next + 1.5,
            "at {t} s {cwnd}, not {now} to {next}"
        );
    });
    // A higher one than the last is remembered as it is.
    let mut control = controller("cubic", 500, 500);
    control.on_congestion(Signal::Loss, 500 * MSS, 0);
    control.window.cwnd_bytes = 1000 * MSS;
    control.on_congestion(Signal::Loss, 1000 * MSS, 0);
    control.on_recovery_end(false, 0);
    let formula = Formula::after(700.0, 1000.0);
    run(&mut control, 0, 9, |t, cwnd| {
        assert!((cwnd - formula.at(t)).abs() < 12.0, "at {t} s {cwnd}");
    });
}

/// RFC 9438 4.8: after a timeout K is 0, and W_max the window where avoidance begins.
#[test]
fn rfc9438_4_8_after_a_timeout_the_curve_begins_at_its_middle() {
    let mut control = controller("cubic", 1000, 1000);
    control.on_congestion(Signal::Loss, 1000 * MSS, 0);
    control.on_timeout(true, 700 * MSS, 0);
    let threshold = control.window.ssthresh_bytes / MSS;
    assert_eq!(threshold, 490);
    acks(&mut control, threshold * MSS, 0);
    let formula = Formula::after(490.0, 490.0);
    run(&mut control, 0, 10, |t, cwnd| {
        let (now, next) = (formula.at(t), formula.at(t + 0.1));
        let est = 490.0 + t * 10.0 * 9.0 / 17.0;
        assert!(cwnd > now.max(est) - 2.0, "at {t} s {cwnd}, not {now}");
        assert!(cwnd < next.max(est) + 2.0, "at {t} s {cwnd}, not {next}");
    });
}

/// RFC 9438 4.2: time in which the application did not fill the window does not count, and neither
/// do idle times (5.8).
#[test]
fn rfc9438_4_2_and_5_8_the_curve_waits_for_the_application() {
    let start = || {
        let mut control = controller("cubic", 1000, 1000);
        control.on_congestion(Signal::Loss, 1000 * MSS, 0);
        control.on_recovery_end(false, 0);
        run(&mut control, 0, 3, |_, _| {});
        control
    };
    let mut plain = start();
    let mut limited = start();
    for round in 0..600 {
        let mut ack = ack(&limited, 1, 3 * S + round * 100 * MS);
        ack.is_cwnd_limited = false;
        limited.on_ack(&ack);
    }
    let mut idle = start();
    idle.on_idle(60 * S, 1000 * S, 63 * S);
    run(&mut plain, 3 * S, 3, |_, _| {});
    run(&mut limited, 63 * S, 3, |_, _| {});
    run(&mut idle, 63 * S, 3, |_, _| {});
    let segments = |control: &Controller| control.window.cwnd_bytes / MSS;
    assert!(segments(&plain) > 900);
    assert!(
        segments(&plain).abs_diff(segments(&limited)) <= 4,
        "{}",
        segments(&limited)
    );
    assert!(
        segments(&plain).abs_diff(segments(&idle)) <= 4,
        "{}",
        segments(&idle)
    );
}

/// RFC 9438 4.9.2: after a spurious retransmission the curve goes on as if nothing had been.
#[test]
fn rfc9438_4_9_2_the_curve_comes_back() {
    let mut plain = controller("cubic", 1000, 1000);
    plain.on_congestion(Signal::Loss, 1000 * MSS, 0);
    plain.on_recovery_end(false, 0);
    run(&mut plain, 0, 12, |_, _| {});
    let mut undone = plain;
    undone.on_congestion(Signal::Loss, 1000 * MSS, 12 * S);
    undone.undo(12 * S);
    assert_eq!(undone.window.cwnd_bytes, plain.window.cwnd_bytes);
    run(&mut plain, 12 * S, 5, |_, _| {});
    run(&mut undone, 12 * S, 5, |_, _| {});
    assert_eq!(undone.window.cwnd_bytes, plain.window.cwnd_bytes);
}

/// RFC 9438 4.9.2: one whose window has grown beyond what it was goes on with what it has.
#[test]
fn rfc9438_4_9_2_a_window_that_has_grown_beyond_goes_on_as_it_is() {
    let reduced = || {
        let mut control = controller("cubic", 100, u32::MAX);
        control.on_congestion(Signal::Loss, 100 * MSS, 0);
        control.on_recovery_end(false, 0);
        control
    };
    let mut grown = reduced();
    run(&mut grown, 0, 30, |_, _| {});
    assert!(grown.window.cwnd_bytes > 100 * MSS);
    let before = grown;
    grown.undo(30 * S);
    assert_eq!(grown, before);
    // A smaller one gets back that no congestion was known.
    let mut small = reduced();
    small.undo(0);
    assert_eq!(small.window.cwnd_bytes, 100 * MSS);
    assert!(small.window.is_first_slow_start());
}

/// RFC 9438 4.10: slow start that HyStart++ ends leaves no W_max: the curve begins at its middle.
#[test]
fn rfc9438_4_10_after_hystart_the_curve_begins_at_its_middle() {
    let mut control = controller("cubic", 16, u32::MAX);
    let (mut una, mut round) = (0_u32, 0);
    while control.window.is_first_slow_start() {
        let segments = control.window.cwnd_bytes / MSS;
        for _ in 0..segments {
            una += MSS;
            let mut ack = ack(&control, 1, 0);
            (ack.snd_una, ack.snd_nxt) = (una, una + control.window.cwnd_bytes);
            // Long from the fourth round on.
            ack.rtt_ns = Some(if round < 3 { 50 } else { 90 } * MS);
            control.on_ack(&ack);
        }
        round += 1;
        assert!(round < 20, "slow start does not end");
    }
    let start = f64::from(control.window.cwnd_bytes) / f64::from(MSS);
    assert_eq!(control.window.prior_cwnd_bytes, control.window.cwnd_bytes);
    let formula = Formula::after(start, start);
    run(&mut control, 0, 12, |t, cwnd| {
        let (now, next) = (formula.at(t), formula.at(t + 0.1));
        let est = start + t * 10.0 * 9.0 / 17.0;
        assert!(cwnd > now.max(est) - 2.0, "at {t} s {cwnd}, not {now}");
        assert!(cwnd < next.max(est) + 2.0, "at {t} s {cwnd}, not {next}");
    });
}

/// RFC 9438 4.2: never more than half of the window in a round trip.
#[test]
fn rfc9438_4_2_the_target_is_at_most_half_a_window_more() {
    let mut control = controller("cubic", 10, 10);
    control.on_congestion(Signal::Loss, 10 * MSS, 0);
    control.on_recovery_end(false, 0);
    let mut before = 7.0;
    run(&mut control, 0, 30, |t, cwnd| {
        assert!(cwnd <= before * 1.5 + 1.0, "at {t} s {cwnd} after {before}");
        before = cwnd;
    });
    assert!(before > 5000.0);
}

/// RFC 9438 5.1 table 1: the average window with a loss after each 1/p segments, at 100 ms; and
/// Reno's, of the same table. The table's CUBIC is without fast convergence, which takes off up to
/// a fifth where each loss comes at about the same window.
#[test]
fn rfc9438_5_1_table_1_average_windows() {
    let average = |name: &str, between: u32| {
        let mut control = controller(name, 10, 10);
        let (mut until, mut sum, mut rounds) = (between, 0.0, 0);
        let mut losses = 0;
        let mut now = 0;
        while losses < 60 {
            let segments = control.window.cwnd_bytes / MSS;
            for segment in 0..segments {
                let at = now + 100 * MS * u64::from(segment) / u64::from(segments);
                control.on_ack(&ack(&control, 1, at));
                until -= 1;
                if until == 0 {
                    let flight = control.window.cwnd_bytes;
                    control.on_congestion(Signal::Loss, flight, at);
                    control.on_recovery_end(false, at);
                    (until, losses) = (between, losses + 1);
                }
            }
            now += 100 * MS;
            if losses >= 20 {
                (sum, rounds) = (sum + f64::from(segments), rounds + 1);
            }
        }
        sum / f64::from(rounds)
    };
    for (between, reno, cubic) in [
        (100, 12.0, 12.0),
        (1000, 38.0, 38.0),
        (10_000, 120.0, 187.0),
        (100_000, 379.0, 1054.0),
    ] {
        let (a, b) = (average("reno", between), average("cubic", between));
        assert!(
            (0.85..1.15).contains(&(a / reno)),
            "{between}: reno {a}, not {reno}"
        );
        assert!(
            (0.8..1.15).contains(&(b / cubic)),
            "{between}: cubic {b}, not {cubic}"
        );
    }
}
