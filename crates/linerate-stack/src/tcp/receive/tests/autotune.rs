//! The size of the buffer.

use super::super::Autotune;

const MSS: u32 = 1448;
const MS: u64 = 1_000_000;

/// Reads `bytes` in each of `trips` round trips of 20 ms.
fn read(tune: &mut Autotune, seq: &mut u32, now_ns: &mut u64, bytes: u32, trips: u32) {
    for _ in 0..trips {
        *now_ns += 20 * MS;
        *seq = seq.wrapping_add(bytes);
        tune.on_echo(20 * MS);
        tune.on_read(*seq, MSS, 6 << 20, *now_ns);
    }
}

#[test]
fn the_buffer_is_ahead_of_a_sender_that_doubles_each_round_trip() {
    let (mut seq, mut now_ns) = (u32::MAX - 5000, 5 * MS);
    let mut tune = Autotune::new(65_535, seq, seq.wrapping_add(65_535), now_ns);
    tune.on_echo(20 * MS);
    let mut window = 10 * MSS;
    while window < 2 << 20 {
        read(&mut tune, &mut seq, &mut now_ns, window, 1);
        window *= 2;
        assert!(tune.buffer() >= window, "{window}: {tune:?}");
    }
}

#[test]
fn a_slow_reader_keeps_a_small_buffer() {
    let (mut seq, mut now_ns) = (7, 0);
    let mut tune = Autotune::new(65_535, seq, seq + 65_535, now_ns);
    for bytes in [64, 500, 2000, 10_000] {
        read(&mut tune, &mut seq, &mut now_ns, bytes, 20);
    }
    assert_eq!(tune.buffer(), 65_535);
}

#[test]
fn the_buffer_stops_at_its_limit_and_never_shrinks() {
    let (mut seq, mut now_ns) = (7, 0);
    let mut tune = Autotune::new(65_535, seq, seq + 65_535, now_ns);
    read(&mut tune, &mut seq, &mut now_ns, 20 << 20, 3);
    assert_eq!(tune.buffer(), 6 << 20);
    read(&mut tune, &mut seq, &mut now_ns, 1, 30);
    assert_eq!(tune.buffer(), 6 << 20);
}

#[test]
fn nothing_grows_before_the_round_trip_is_known() {
    let mut tune = Autotune::new(65_535, 0, 65_535, 0);
    assert!(!tune.on_read(1 << 20, MSS, 6 << 20, 1000 * MS));
    tune.on_echo(2000 * MS);
    assert!(!tune.on_read(2 << 20, MSS, 6 << 20, 1500 * MS));
    assert!(tune.on_read(3 << 20, MSS, 6 << 20, 2500 * MS));
}

#[test]
fn echoed_time_stamps_are_smoothed() {
    let mut tune = Autotune::new(65_535, 0, 65_535, 0);
    tune.on_echo(20 * MS);
    assert_eq!(tune.rtt_us(), 20_000);
    (0..100).for_each(|_| tune.on_echo(40 * MS));
    assert!((39_000..=40_000).contains(&tune.rtt_us()), "{tune:?}");
    tune.on_echo(u64::MAX);
    tune.on_echo(0);
    assert!(tune.rtt_us() < 60_000_000);
}

#[test]
fn without_time_stamps_the_least_time_of_a_window_counts() {
    let mut tune = Autotune::new(65_535, 0, 65_535, 0);
    tune.on_segment(60_000, 120_000, 25 * MS);
    assert_eq!(tune.rtt_us(), 0, "the window is not full yet");
    tune.on_segment(65_535, 131_070, 30 * MS);
    assert_eq!(tune.rtt_us(), 30_000);
    tune.on_segment(131_070, 196_605, 50 * MS);
    assert_eq!(tune.rtt_us(), 20_000);
    tune.on_segment(196_605, 262_140, 150 * MS);
    assert_eq!(tune.rtt_us(), 20_000);
}
