//! Rates, gains, and what a late sender gets back.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// What leaves in a second by a sender that looks every `step_ns`.
fn leaves(pacer: &mut Pacer, mss: u32, step_ns: u64) -> u64 {
    let mut sent = 0;
    for now in (0..SECOND).step_by(step_ns as usize) {
        while pacer.may_send(now) {
            let bytes = pacer.burst_bytes(mss);
            pacer.sent(bytes, now);
            sent += u64::from(bytes);
        }
    }
    sent
}

#[test]
fn without_a_rate_nothing_waits() {
    let mut pacer = Pacer::new();
    pacer.sent(u32::MAX, 0);
    assert!(pacer.may_send(0) && pacer.rate().is_none());
    assert_eq!(pacer.burst_bytes(1460), BURST_MAX_BYTES);
}

#[test]
fn what_leaves_is_the_rate_times_the_time() {
    for rate in [12_500_000, 125_000_000, 1_250_000_000, 12_500_000_000] {
        let mut pacer = Pacer::new();
        pacer.set_rate(rate);
        assert!(pacer.rate().unwrap().abs_diff(rate) <= rate / 10_000);
        let sent = leaves(&mut pacer, 1460, 10_000);
        assert!(sent.abs_diff(rate) <= rate / 50, "{sent} bytes at {rate}");
    }
}

/// Linux: 200 % in slow start, 120 % afterwards.
#[test]
fn a_window_leaves_in_a_round_trip_or_half_of_one() {
    let mut pacer = Pacer::new();
    pacer.set_window(1_000_000, 100 * MS, Growth::Doubling);
    assert!(pacer.rate().unwrap().abs_diff(20_000_000) < 2_000);
    pacer.set_window(1_000_000, 100 * MS, Growth::Slow);
    assert!(pacer.rate().unwrap().abs_diff(12_000_000) < 2_000);
    let before = pacer;
    pacer.set_window(0, 100 * MS, Growth::Slow);
    pacer.set_window(1_000_000, 0, Growth::Slow);
    assert_eq!(pacer, before);
}

#[test]
fn a_limit_holds_whatever_the_window_allows() {
    let mut pacer = Pacer::new();
    pacer.set_limit(1_000_000);
    assert_eq!(pacer.rate(), Some(1_000_000));
    pacer.set_window(1_000_000, MS, Growth::Doubling);
    assert_eq!(pacer.rate(), Some(1_000_000));
    pacer.set_rate(500_000);
    assert_eq!(pacer.rate(), Some(500_000));
    pacer.set_rate(0);
    assert_eq!(pacer.rate(), Some(1_000_000));
    pacer.set_limit(0);
    assert_eq!(pacer.rate(), None);
}

#[test]
fn a_burst_is_a_millisecond_or_two_segments() {
    let mut pacer = Pacer::new();
    pacer.set_rate(1000);
    assert_eq!(pacer.burst_bytes(1460), 2920);
    pacer.set_rate(10_000_000);
    assert!(pacer.burst_bytes(1460).abs_diff(10_485) < 3);
    pacer.set_rate(10_000_000_000);
    assert_eq!(pacer.burst_bytes(1460) / 10_000, 16); // 16.4 us of 10 GB/s
    pacer.set_rate(1_000_000_000);
    assert_eq!(pacer.burst_bytes(1460), BURST_MAX_BYTES);
    assert_eq!(pacer.burst_bytes(40_000), 80_000);
}

#[test]
fn who_is_late_gets_back_half_a_burst_at_most() {
    let mut pacer = Pacer::new();
    pacer.set_rate(1_000_000);
    pacer.sent(1000, 0);
    pacer.sent(1000, MS + 200_000);
    assert_eq!(pacer.next_ns(), 2 * MS); // 200 us of 1 ms: all of it
    pacer.sent(1000, 100 * MS);
    assert_eq!(pacer.next_ns(), 100 * MS + 500_000);
}

proptest! {
    #[test]
    fn no_number_overflows(
        rate: u64, limit: u64, cwnd: u32, srtt: u64, bytes: u32, now: u64, mss in 1_u32..65_536,
    ) {
        let mut pacer = Pacer::new();
        pacer.set_limit(limit);
        pacer.set_rate(rate);
        pacer.sent(bytes, now);
        pacer.set_window(cwnd, srtt, Growth::Doubling);
        pacer.sent(bytes, now);
        prop_assert!(pacer.burst_bytes(mss) >= 2 * mss && pacer.burst_bytes(mss) <= 1 << 30);
        prop_assert!(bytes == 0 || pacer.next_ns() >= now || pacer.rate().is_none());
    }
}
