use super::*;

const HZ: f64 = 2_596_123_456.789;

fn window(lasts: Option<Duration>) -> Window {
    Window {
        from: 1000,
        lasts,
        ticks_per_second: HZ,
    }
}

fn even(pps: f64, seconds: f64) -> Pacer {
    let lasts = Duration::from_secs_f64(seconds);
    Pacer::new(&Pace::even(Some(pps)), &window(Some(lasts)))
}

/// All times of a pacer.
fn times(mut pacer: Pacer) -> Vec<u64> {
    let mut times = Vec::new();
    while let Some(leaves) = pacer.next() {
        times.push(leaves);
        pacer.advance();
    }
    times
}

#[test]
fn exactly_as_many_frames_are_intended_as_rate_and_time_say() {
    let cases = [
        (1.0, 1.0, 1),
        (0.3, 10.0, 3),
        (3.0, 1.0, 3),
        (1.0, 0.999, 0),
        (7.0, 13.0, 91),
        (1_488_095.238_095_238, 0.1, 148_809),
        (999_999.999, 1.0, 999_999),
        (1_000_003.0, 0.5, 500_001),
        (333_333.333_333, 3.0, 999_999),
    ];
    for (pps, seconds, frames) in cases {
        let times = times(even(pps, seconds));
        assert_eq!(times.len(), frames, "{pps} pps for {seconds} s");
        let end = 1000.0 + seconds * HZ;
        assert!(times.last().is_none_or(|&last| (last as f64) < end));
    }
}

#[test]
fn an_hour_and_a_year_at_odd_rates_end_on_the_tick() {
    for (pps, seconds) in [
        (14_880_952.380_952_38, 3600.0),
        (12_345.678_9, 31_536_000.0),
    ] {
        let mut pacer = even(pps, seconds);
        let frames = whole_frames(pps, Duration::from_secs_f64(seconds));
        assert_eq!(frames, (pps * seconds).floor() as u64);
        // All but the last, in leaps of odd lengths and in steps.
        let (mut gone, mut horizon) = (0, 1000);
        while pacer.left > 1 {
            horizon += (HZ * 997.003) as u64;
            let leap = (((horizon - 1000) as f64 / HZ * pps) as u64).min(frames - 2);
            if leap > gone {
                let at = 1000 + ((leap as f64 - 0.5) * HZ / pps) as u64;
                gone += pacer.skip_through(at, u64::MAX);
                assert_eq!(gone, leap, "by tick {at}");
            }
            pacer.advance();
            gone += 1;
        }
        let wanted = 1000.0 + (frames - 1) as f64 * HZ / pps;
        let last = pacer.next().unwrap();
        assert!(
            (last as f64 - wanted).abs() < 1.0 + wanted * 4e-16,
            "frame {frames} at {last}, not {wanted}"
        );
        pacer.advance();
        assert_eq!(pacer.next(), None);
    }
}

#[test]
fn each_frame_is_within_a_tick_of_its_time() {
    let pps = 1_234_567.891;
    for (number, leaves) in times(even(pps, 0.5)).into_iter().enumerate() {
        let wanted = 1000.0 + number as f64 * HZ / pps;
        assert!((leaves as f64 - wanted).abs() <= 1.0, "frame {number}");
    }
}

#[test]
fn bursts_leave_together_and_keep_the_rate() {
    let pace = Pace {
        burst: 10,
        delay: Duration::from_millis(100),
        ..Pace::even(Some(1005.0))
    };
    let times = times(Pacer::new(
        &pace,
        &window(Some(Duration::from_millis(1100))),
    ));
    assert_eq!(times.len(), 1005);
    let first = 1000 + (HZ * 0.1).ceil() as u64;
    for (number, leaves) in times.into_iter().enumerate() {
        let wanted = first as f64 + (number / 10 * 10) as f64 * HZ / 1005.0;
        assert!((leaves as f64 - wanted).abs() <= 1.0, "frame {number}");
    }
}

#[test]
fn a_gap_lies_between_the_end_of_a_burst_and_the_next() {
    let gap = Duration::from_millis(10);
    let pace = |pps| Pace {
        burst: 3,
        gap: Some(gap),
        ..Pace::even(pps)
    };
    let window = window(Some(Duration::from_millis(100)));
    let ms = |ms: f64| 1000.0 + HZ / 1000.0 * ms;
    // At 1000 pps a burst of 3 takes 3 ms: 0 1 2, 13 14 15, 26 ...
    let spaced = times(Pacer::new(&pace(Some(1000.0)), &window));
    assert_eq!(spaced.len(), 24);
    for (number, leaves) in spaced.into_iter().enumerate() {
        let wanted = ms((number / 3 * 13 + number % 3) as f64);
        assert!((leaves as f64 - wanted).abs() <= 1.0, "frame {number}");
    }
    // Without a rate all leave together.
    let together = times(Pacer::new(&pace(None), &window));
    assert_eq!(together.len(), 30);
    for (number, leaves) in together.into_iter().enumerate() {
        assert!((leaves as f64 - ms((number / 3 * 10) as f64)).abs() <= 1.0);
    }
}

#[test]
fn leaps_and_steps_agree() {
    let (us, replay_clock) = (
        Duration::from_micros,
        ReplayClock::new([0, 5, 5, 999].into(), 5000),
    );
    let window = window(Some(Duration::from_secs(1)));
    let pacers =
        [(1, None), (7, None), (7, Some(us(100))), (1, Some(us(3)))].map(|(burst, gap)| {
            let pace = Pace {
                burst,
                gap,
                ..Pace::even(Some(123_456.7))
            };
            Pacer::new(&pace, &window)
        });
    for pacer in pacers
        .into_iter()
        .chain([Pacer::cued(replay_clock, us(7), &window)])
    {
        let mut stepped = pacer;
        let mut leapt = stepped.clone();
        // First within bursts, then over many.
        let within = (0..3_000_000u64).step_by(7001);
        for horizon in within.chain((3_000_000..2_700_000_000).step_by(7_654_321)) {
            let mut steps = 0;
            while stepped.next().is_some_and(|leaves| leaves <= horizon) {
                stepped.advance();
                steps += 1;
            }
            assert_eq!(leapt.skip_through(horizon, u64::MAX), steps, "to {horizon}");
            assert_eq!(leapt.next(), stepped.next());
        }
        assert_eq!(leapt.next(), None);
    }
}

#[test]
fn poisson_gaps_have_the_mean_and_the_variance_of_their_seed() {
    for seed in [1, 2, 77] {
        let (pps, seconds) = (100_000.0, 10.0);
        let pace = Pace {
            poisson: Some(seed),
            ..Pace::even(Some(pps))
        };
        let pacer = Pacer::new(&pace, &window(Some(Duration::from_secs_f64(seconds))));
        let all = times(pacer.clone());
        assert_eq!(all, times(pacer), "the same seed, the same times");
        let wanted = pps * seconds;
        // A Poisson count's standard deviation is the root of its mean: here 1000.
        assert!(
            (all.len() as f64 - wanted).abs() < 4.0 * wanted.sqrt(),
            "seed {seed}: {} frames",
            all.len()
        );
        let gaps: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (mean * pps / HZ - 1.0).abs() < 0.005,
            "seed {seed}: mean {mean}"
        );
        // An exponential distribution's variance is its mean squared.
        assert!(
            (variance / (mean * mean) - 1.0).abs() < 0.02,
            "seed {seed}: variance {variance}"
        );
    }
}

#[test]
fn what_is_left_of_a_window_counts_from_there() {
    let whole = window(Some(Duration::from_secs(10)));
    let rest = whole.rest(1000 + (HZ * 4.0) as u64);
    let frames = times(Pacer::new(&Pace::even(Some(10.0)), &rest)).len();
    assert!((59..=60).contains(&frames), "{frames}");
    assert_eq!(whole.rest(0), whole);
}

#[test]
fn a_rate_of_nothing_sends_nothing() {
    assert_eq!(even(0.0, 1.0).next(), None);
    assert_eq!(
        Pacer::new(&Pace::even(Some(0.0)), &window(None)).next(),
        None
    );
}

#[test]
fn an_order_gives_each_lane_its_weight_and_never_drifts_a_frame_off() {
    let mut random = Random::new(5);
    for round in 0..200 {
        let streams = 1 + (random.bits() % 12) as usize;
        let weights: Vec<u32> = (0..streams).map(|_| (random.bits() % 40) as u32).collect();
        let total: u32 = weights.iter().sum();
        let order = weighted_order(&weights).unwrap();
        let Some(shrunk) = (total as usize).checked_div(order.len()) else {
            assert_eq!(total, 0);
            continue;
        };
        let mut seen = vec![0u32; streams];
        for (slot, &stream) in order.iter().enumerate() {
            seen[stream as usize] += 1;
            for (stream, &weight) in weights.iter().enumerate() {
                let share = (slot + 1) as f64 * f64::from(weight) / f64::from(total);
                let off = f64::from(seen[stream]) - share;
                assert!(
                    off.abs() < 1.0,
                    "round {round} {weights:?}: stream {stream} {off}"
                );
            }
        }
        for (stream, &weight) in weights.iter().enumerate() {
            assert_eq!(seen[stream] * shrunk as u32, weight, "round {round}");
        }
    }
    assert_eq!(weighted_order(&[28, 16, 4]).unwrap().len(), 12);
    assert_eq!(weighted_order(&[5, 1, 1]).unwrap(), [0, 1, 0, 0, 2, 0, 0]);
    assert_eq!(
        weighted_order(&[9; 5000]).unwrap(),
        (0..5000).collect::<Vec<u32>>()
    );
    assert_eq!(weighted_order(&[65_536, 1]), None);
}
