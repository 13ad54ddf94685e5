use super::*;
use crate::snapshot::Tally;
use crate::units::{L1_BYTES, Rate, l1_bps, l2_bps, line_rate_pps};

/// Ticks a second of the tests' clock.
const HZ: f64 = 2.6e9;

fn count(seconds: f64, packets: u64, frame_bytes: u64) -> Count {
    Count {
        ticks: (seconds * HZ) as u64,
        packets,
        bytes: packets * frame_bytes,
    }
}

/// Receive rates of eight ports over one second, frames of 740 bytes with FCS: the first and the
/// sum are the talk's.
const TALK_RX: [u64; 8] = [
    1_626_475, 1_627_062, 1_626_833, 1_627_204, 1_626_911, 1_626_998, 1_627_030, 1_627_005,
];

#[test]
fn the_talks_screen_adds_up_when_both_layers_are_named() {
    assert_eq!(TALK_RX.iter().sum::<u64>(), 13_015_518);
    let mut meter = Meter::new(HZ, 0);
    let counts = (0u16..)
        .zip(TALK_RX)
        .map(|(queue, packets)| (Series::Rx(0, queue), count(1.0, packets, 740)));
    meter.take(HZ as u64, counts.clone().collect());
    let all = meter.traffic(0, true, counts.map(|(_, count)| count));
    assert_eq!((all.packets, all.pps.round()), (13_015_518, 13_015_518.0));
    assert_eq!(format!("{:.2}", all.l2_bps / 1e9), "77.05");
    assert_eq!(format!("{:.2}", all.l1_bps / 1e9), "79.13");
    assert_eq!(all.max_pps, all.pps);
    assert_eq!(format!("{:.2}", l2_bps(13_015_518.0, 740.0) / 1e9), "77.05");
    assert_eq!(format!("{:.2}", l1_bps(13_015_518.0, 740.0) / 1e9), "79.13");
}

#[test]
fn ninety_nine_percent_of_ten_gigabits_is_known_to_the_frame() {
    let pps = Rate::Percent(99.0).pps(740.0, Some(10e9));
    assert_eq!(pps.map(|pps| pps.map(f64::round)), Ok(Some(1_628_289.0)));
    // What the talk's ports sent was 0.02 to 0.10 % less, and differed by 0.08 %.
    for (sent, off) in [(1_626_661.0, -0.10_f64), (1_628_000.0, -0.02)] {
        let percent = (sent / 1_628_289.0 - 1.0) * 100.0;
        assert!((percent - off).abs() < 0.005, "{sent}: {percent}");
    }
}

#[test]
fn the_talks_megabytes_are_megabits_with_preamble_and_gap() {
    let (packets, frame) = (12_378_659u64, 740u64);
    let bits_l1 = packets * (frame + L1_BYTES as u64) * 8;
    assert_eq!(bits_l1 / 1_000_000, 75_262);
    // Bytes of frames, in MB, are what our row of that name shows.
    assert_eq!(packets * frame / 1_000_000, 9_160);
}

#[test]
fn the_talks_size_class_exceeds_its_total_by_two_epochs() {
    // 512-1023 says 13,678,363, the total 12,378,659. One set of counters cannot disagree: a
    // receiver counts only classes, and their sum is the total.
    let receiver = crate::session::sample::ReceiverCount {
        packets: 12_378_659,
        sizes: [0, 0, 0, 0, 12_378_659, 0, 0],
        ..Default::default()
    };
    assert_eq!(receiver.sizes.iter().sum::<u64>(), receiver.packets);
    assert_eq!(13_678_363u64 - receiver.packets, 1_299_704);
}

#[test]
fn loss_is_shown_for_a_pair_of_ports() {
    // Where 0 and 1 are a pair, one column's Tx less the other's Rx was 79 to 6,558 frames: lost,
    // under way, or read at two moments. A tally has one sender, one receiver and one moment.
    for (missing, ppm) in [(79, 6.4), (6_558, 529.5)] {
        let received = 12_378_659;
        let tally = Tally {
            sent: received + missing,
            received,
            lost: missing,
            ..Tally::default()
        };
        assert_eq!(tally.received + tally.lost, tally.sent);
        assert!((tally.lost_ppm() - ppm).abs() < 0.1, "{}", tally.lost_ppm());
    }
}

#[test]
fn rates_are_divided_by_the_time_that_passed() {
    // The same frames over one second and over 1.42 (when a timer fires late).
    for seconds in [1.0, 1.42] {
        let speed = Speed::between(count(5.0, 100, 64), count(5.0 + seconds, 1_488_195, 64), HZ);
        assert!(
            (speed.pps - 1_488_095.0 / seconds).abs() < 0.01,
            "{speed:?}"
        );
    }
    // Counted at line rate, never above it, whatever the interval.
    let line = line_rate_pps(1e9, 64.0);
    for seconds in [0.1, 0.25, 0.999, 1.0, 7.3] {
        let frames = (line * seconds).floor() as u64;
        let speed = Speed::between(count(0.0, 0, 64), count(seconds, frames, 64), HZ);
        assert!(speed.pps <= line * (1.0 + 1e-8) && speed.l1_bps <= 1e9 * (1.0 + 1e-8));
    }
    assert_eq!(
        Speed::between(count(1.0, 5, 64), count(1.0, 9, 64), HZ),
        Speed::default()
    );
}

#[test]
fn short_intervals_keep_the_rates_and_the_most_is_kept() {
    let mut meter = Meter::new(HZ, 0);
    let take = |meter: &mut Meter, seconds: f64, packets| {
        let counts = HashMap::from([(Series::Tx(3, 0), count(seconds, packets, 64))]);
        meter.take((seconds * HZ) as u64, counts);
        meter.traffic(3, false, [count(seconds, packets, 64)].into_iter())
    };
    assert_eq!(take(&mut meter, 0.05, 1000).pps, 0.0);
    assert_eq!(take(&mut meter, 0.5, 1000).pps.round(), 2000.0);
    // 50 ms later: the rate stays, the count grows.
    let soon = take(&mut meter, 0.55, 1400);
    assert_eq!((soon.pps.round(), soon.packets), (2000.0, 1400));
    let later = take(&mut meter, 1.5, 1500);
    assert_eq!((later.pps.round(), later.max_pps.round()), (500.0, 2000.0));
    assert_eq!(meter.interval(), HZ as u64);
}
