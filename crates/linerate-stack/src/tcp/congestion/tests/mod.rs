//! Clauses of each algorithm, and all of them over a modelled bottleneck.
#![allow(clippy::unwrap_used)]

mod bbr;
mod cubic;
mod hystart;
mod model;
mod rate;
mod reno;
mod sharing;

use super::*;
use model::{MS, MSS, S};

/// A controller with a window of `cwnd` segments, in congestion avoidance or not.
fn controller(name: &str, cwnd: u32, ssthresh: u32) -> Controller {
    let algorithm = Algorithm::from_name(name).unwrap();
    let mut controller = Controller::new(algorithm, MSS as u16, false, 0);
    controller.window.cwnd_bytes = cwnd * MSS;
    controller.window.ssthresh_bytes = ssthresh.saturating_mul(MSS);
    controller
}

/// An ACK for `segments` of a full window.
fn ack(controller: &Controller, segments: u32, now_ns: u64) -> Ack {
    Ack {
        now_ns,
        acked_bytes: segments * MSS,
        in_flight_bytes: controller.window.cwnd_bytes,
        srtt_ns: 100 * MS,
        is_cwnd_limited: true,
        ..Ack::default()
    }
}

/// ACKs for `bytes`, one segment each.
fn acks(controller: &mut Controller, bytes: u32, now_ns: u64) {
    for _ in 0..bytes / MSS {
        controller.on_ack(&ack(controller, 1, now_ns));
    }
}

#[test]
fn rfc6928_2_the_initial_window() {
    for (mss, bytes) in [
        (1, 10),
        (536, 5360),
        (1220, 12_200),
        (1460, 14_600),
        (2000, 14_600),
        (7300, 14_600),
        (8960, 17_920),
        (65_535, 131_070),
    ] {
        assert_eq!(initial_window(mss), bytes, "segments of {mss}");
        assert_eq!(Window::new(mss, false).cwnd_bytes, bytes);
        assert_eq!(loss_window(mss), u32::from(mss));
    }
}

#[test]
fn names_are_those_of_linux() {
    for name in Algorithm::NAMES {
        assert_eq!(Algorithm::from_name(name).unwrap().name(), name);
    }
    assert_eq!(Algorithm::from_name("vegas"), None);
    assert_eq!(Algorithm::default().name(), "cubic");
}

/// Linux' `TCP_CONGESTION` on an open connection.
#[test]
fn another_algorithm_takes_the_window_over() {
    let mut control = controller("reno", 100, 50);
    let cubic = Algorithm::from_name("cubic").unwrap();
    control.set_algorithm(cubic, 5 * S);
    assert_eq!(control.window.cwnd_bytes, 100 * MSS);
    control.on_congestion(Signal::Loss, 100 * MSS, 5 * S);
    assert_eq!(control.window.cwnd_bytes, 70 * MSS);
    control.set_algorithm(Algorithm::from_name("bbr").unwrap(), 6 * S);
    assert!(control.algorithm.pacing_rate().unwrap() > 70_000_000);
}

/// RFC 5681 3.1; Linux counts all that is acknowledged, RFC 9406 4.3 up to 8 segments without
/// pacing.
#[test]
fn slow_start_grows_by_what_is_acknowledged() {
    for name in ["reno", "cubic"] {
        let mut control = controller(name, 10, u32::MAX);
        control.on_ack(&ack(&control, 2, 0));
        assert_eq!(control.window.cwnd_bytes, 12 * MSS, "{name}");
        control.on_ack(&ack(&control, 12, 0));
        assert_eq!(control.window.cwnd_bytes, 20 * MSS, "{name}");
        let algorithm = Algorithm::from_name(name).unwrap();
        let mut paced = Controller::new(algorithm, MSS as u16, true, 0);
        paced.on_ack(&ack(&paced, 10, 0));
        assert_eq!(paced.window.cwnd_bytes, 20 * MSS, "{name}");
        paced.window.set_paced(false);
        paced.on_ack(&ack(&paced, 10, 0));
        assert_eq!(paced.window.cwnd_bytes, 28 * MSS, "{name}");
    }
}

#[test]
fn slow_start_stops_at_the_threshold_and_hands_over_the_rest() {
    for name in ["reno", "cubic"] {
        let mut control = controller(name, 10, 12);
        control.on_ack(&ack(&control, 6, 0));
        assert_eq!(control.window.cwnd_bytes, 12 * MSS, "{name}");
        assert!(!control.window.is_slow_start());
    }
}

/// RFC 9438 4.6 and 5.8, RFC 7661: a window that is not used does not grow.
#[test]
fn rfc9438_4_6_windows_that_do_not_limit_do_not_grow() {
    for (name, ssthresh) in [
        ("reno", u32::MAX),
        ("cubic", u32::MAX),
        ("reno", 5),
        ("cubic", 5),
    ] {
        let mut control = controller(name, 10, ssthresh);
        for round in 0..100 {
            let mut little = ack(&control, 1, round * 100 * MS);
            little.is_cwnd_limited = false;
            control.on_ack(&little);
        }
        assert_eq!(control.window.cwnd_bytes, 10 * MSS, "{name}");
    }
}

/// What limits is remembered for a round trip; in slow start half a window is enough.
#[test]
fn rfc7661_4_usage_is_that_of_a_round_trip() {
    let avoidance = controller("reno", 10, 5).window;
    let slow_start = controller("reno", 10, 100).window;
    let mut usage = Usage::new(0);
    assert!(!usage.is_limited(&slow_start));
    usage.note_sent(0, 10, 5 * MSS, false);
    assert!(!usage.is_limited(&slow_start));
    usage.note_sent(0, 20, 6 * MSS, false);
    assert!(usage.is_limited(&slow_start) && !usage.is_limited(&avoidance));
    usage.note_sent(5, 30, 10 * MSS, true);
    assert!(usage.is_limited(&avoidance));
    // Within the round trip that was limited, more room says nothing.
    usage.note_sent(29, 50, MSS, false);
    assert!(usage.is_limited(&avoidance));
    usage.note_sent(30, 50, MSS, false);
    assert!(!usage.is_limited(&avoidance) && !usage.is_limited(&slow_start));
}

/// RFC 5681 3.1 equation 4 and what follows it: the threshold is set by the first timeout of an
/// episode only.
#[test]
fn rfc5681_3_1_a_timeout_leaves_one_segment_and_a_second_one_keeps_the_threshold() {
    for (name, threshold) in [("reno", 50), ("cubic", 70)] {
        let mut control = controller(name, 100, 100);
        control.on_timeout(true, 100 * MSS, 0);
        assert_eq!(control.window.cwnd_bytes, MSS, "{name}");
        assert_eq!(control.window.ssthresh_bytes, threshold * MSS, "{name}");
        control.on_timeout(false, MSS, S);
        assert_eq!(control.window.ssthresh_bytes, threshold * MSS, "{name}");
        // Slow start up to it.
        acks(&mut control, threshold * MSS, 2 * S);
        assert_eq!(control.window.cwnd_bytes, threshold * MSS, "{name}");
        control.on_recovery_end(true, 2 * S);
        assert_eq!(control.window.cwnd_bytes, threshold * MSS, "{name}");
    }
}

/// RFC 9937 6.4, RFC 6582 3.2: whatever PRR made of the window.
#[test]
fn rfc9937_6_4_a_recovery_ends_with_the_threshold() {
    for name in ["reno", "cubic"] {
        let mut control = controller(name, 100, 100);
        control.on_congestion(Signal::Loss, 100 * MSS, 0);
        let threshold = control.window.ssthresh_bytes;
        control.window.cwnd_bytes = 3 * MSS;
        let mut during = ack(&control, 50, 0);
        during.in_recovery = true;
        control.on_ack(&during);
        assert_eq!(
            control.window.cwnd_bytes,
            3 * MSS,
            "{name} leaves it to PRR"
        );
        control.on_recovery_end(false, 0);
        assert_eq!(control.window.cwnd_bytes, threshold, "{name}");
    }
}

/// RFC 3168 6.1.2, RFC 9438 4.6: marks reduce the window down to one segment, losses to two.
#[test]
fn rfc3168_6_1_2_marks_reduce_down_to_one_segment() {
    for name in ["reno", "cubic"] {
        for (signal, least) in [(Signal::Ecn, MSS), (Signal::Loss, 2 * MSS)] {
            let mut control = controller(name, 8, 8);
            for round in 0..10 {
                let before = control.window.cwnd_bytes;
                control.on_congestion(signal, before, round * S);
                assert!(
                    control.window.cwnd_bytes < before || before == least,
                    "{name}"
                );
                let target = control.window.target_bytes();
                control.on_recovery_end(false, round * S);
                assert_eq!(control.window.cwnd_bytes, target, "{name}");
            }
            assert_eq!(control.window.cwnd_bytes, least, "{name}, {signal:?}");
            assert_eq!(control.window.ssthresh_bytes, 2 * MSS, "{name}");
        }
        // A loss, a timeout or an undo ends that.
        let mut single = controller(name, 2, 2);
        single.on_congestion(Signal::Ecn, 2 * MSS, 0);
        assert_eq!(single.window.target_bytes(), MSS);
        let mut undone = single;
        undone.undo(0);
        assert_eq!(undone.window.target_bytes(), 2 * MSS);
        single.on_timeout(true, MSS, 0);
        assert_eq!(single.window.target_bytes(), 2 * MSS);
    }
}

/// RFC 4015 3.4: a reduction for nothing is undone; windows that have grown beyond stay.
#[test]
fn rfc4015_3_4_what_was_reduced_for_nothing_comes_back() {
    for name in ["reno", "cubic"] {
        let mut control = controller(name, 100, 80);
        control.on_timeout(true, 100 * MSS, 0);
        control.undo(0);
        assert_eq!(control.window.cwnd_bytes, 100 * MSS, "{name}");
        assert_eq!(control.window.ssthresh_bytes, 80 * MSS, "{name}");
        control.on_congestion(Signal::Loss, 100 * MSS, 0);
        control.window.cwnd_bytes = 150 * MSS;
        control.undo(0);
        assert_eq!(control.window.cwnd_bytes, 150 * MSS, "{name}");
    }
    // In the first slow start there was no threshold.
    let mut control = controller("cubic", 100, u32::MAX);
    control.on_congestion(Signal::Loss, 100 * MSS, 0);
    control.undo(0);
    assert!(control.window.is_first_slow_start());
}

/// RFC 5681 4.1 by RFC 2861's steps: halved for each RTO, down to the restart window.
#[test]
fn rfc5681_4_1_idle_windows_decay_to_the_restart_window() {
    for name in ["reno", "cubic"] {
        for (rtos, cwnd) in [(0, 100), (1, 50), (2, 25), (3, 12), (4, 10), (1000, 10)] {
            let mut control = controller(name, 100, 60);
            control.on_idle(rtos * 300 * MS + 1, 300 * MS, 0);
            assert_eq!(control.window.cwnd_bytes / MSS, cwnd, "{name}, {rtos} RTOs");
            let remembered = if rtos == 0 { 60 } else { 75 };
            assert_eq!(control.window.ssthresh_bytes, remembered * MSS, "{name}");
        }
        // A window below the restart window stays what it is.
        let mut control = controller(name, 4, 60);
        control.on_idle(S, 300 * MS, 0);
        assert_eq!(control.window.cwnd_bytes, 4 * MSS, "{name}");
        let mut control = controller(name, 100, u32::MAX);
        control.on_idle(S, 300 * MS, 0);
        assert!(control.window.is_first_slow_start(), "{name}");
    }
}

/// RFC 3465 2.1: bytes count, not ACKs: those that a receiver delays or a NIC merges grow the
/// window as much.
#[test]
fn rfc3465_2_1_merged_acks_grow_the_window_as_much() {
    for (name, cwnd) in [("reno", 100), ("cubic", 100), ("cubic", 1000)] {
        let after = |every: u32| {
            let mut control = controller(name, cwnd, cwnd);
            control.on_congestion(Signal::Loss, cwnd * MSS, 0);
            control.on_recovery_end(false, 0);
            for round in 1..100 {
                let acks = control.window.cwnd_bytes / MSS / every;
                for _ in 0..acks {
                    control.on_ack(&ack(&control, every, round * 100 * MS));
                }
            }
            control.window.cwnd_bytes / MSS
        };
        let (one, two, many) = (after(1), after(2), after(16));
        assert!(one.abs_diff(two) <= 2, "{name}: {one} {two}");
        // The rest of a window below 16 segments is not acknowledged here.
        assert!(one.abs_diff(many) <= one / 10, "{name}: {one} {many}");
    }
}

#[test]
fn another_mss_keeps_the_bytes() {
    let mut window = Window::new(1460, false);
    window.set_mss(536);
    assert_eq!((window.mss(), window.cwnd_bytes), (536, 14_600));
    window.cwnd_bytes = 536;
    window.set_mss(1000);
    assert_eq!(window.cwnd_bytes, 1000);
    window.set_mss(0);
    assert_eq!(window.mss(), 1);
}

/// Whatever comes, windows are of at least a segment and at most 1 GiB, and nothing overflows.
#[test]
fn any_order_of_events_keeps_the_windows_in_bounds() {
    for seed in 0..60 {
        let mut random = linerate_testkit::Random::new(seed);
        let name = random.of(&Algorithm::NAMES);
        let mss = 1 + random.below(u32::MAX) as u16 % 9000;
        let algorithm = Algorithm::from_name(name).unwrap();
        let mut control = Controller::new(algorithm, mss, random.one_in(2), random.bits() >> 8);
        let mut now = random.bits() >> 8;
        for step in 0..5000 {
            now += random.bits() >> (20 + random.below(44_u32));
            let mut any = || random.bits() as u32 >> random.below(32_u32);
            let flight = any();
            let sample = RateSample {
                prior_delivered: any(),
                delivered: any(),
                interval_ns: any().into(),
                is_app_limited: any() & 1 == 0,
            };
            let heard = Ack {
                now_ns: now,
                acked_bytes: any(),
                in_flight_bytes: flight,
                lost_bytes: any() & any(),
                snd_una: any(),
                snd_nxt: any(),
                rtt_ns: (any() & 3 > 0).then(|| u64::from(any()) << (any() & 15)),
                srtt_ns: any().into(),
                is_cwnd_limited: any() & 3 > 0,
                in_recovery: any() & 7 == 0,
                delivery: (any() & 3 > 0).then_some(sample),
            };
            match random.below(12_u32) {
                0 => control.on_congestion(Signal::Loss, flight, now),
                1 => control.on_congestion(Signal::Ecn, flight, now),
                2 => control.on_timeout(random.one_in(2), flight, now),
                3 => control.on_recovery_end(random.one_in(2), now),
                4 => control.undo(now),
                5 => control.on_idle(random.bits() >> 30, 200 * MS, now),
                _ => control.on_ack(&heard),
            }
            let window = control.window;
            let what = format!("seed {seed}, {name}, step {step}: {window:?}");
            assert!(
                (window.mss()..=CWND_MAX_BYTES).contains(&window.cwnd_bytes),
                "{what}"
            );
            assert!(
                window.ssthresh_bytes >= window.mss() || name == "bbr",
                "{what}"
            );
        }
    }
}
