//! NewReno's own clauses.

use super::*;

#[test]
fn rfc5681_3_1_avoidance_adds_a_segment_each_window() {
    let mut control = controller("reno", 10, 10);
    for round in 0..50 {
        let cwnd = control.window.cwnd_bytes;
        assert_eq!(cwnd, (10 + round) * MSS);
        acks(&mut control, cwnd, 0);
    }
}

/// RFC 3465 2.1: bytes are counted, not ACKs.
#[test]
fn rfc3465_2_1_small_and_stretched_acks_count_what_they_acknowledge() {
    let mut small = controller("reno", 10, 10);
    for _ in 0..10 * MSS / 10 {
        let mut ack = ack(&small, 0, 0);
        ack.acked_bytes = 10;
        small.on_ack(&ack);
    }
    let mut large = controller("reno", 10, 10);
    large.on_ack(&ack(&large, 10, 0));
    assert_eq!(small.window.cwnd_bytes, 11 * MSS);
    assert_eq!(large.window.cwnd_bytes, 11 * MSS);
}

/// RFC 5681 3.1 equation 4: half of FlightSize, not of a window that is not used.
#[test]
fn rfc5681_3_1_the_threshold_is_half_of_what_is_in_flight() {
    let mut control = controller("reno", 100, 100);
    control.on_congestion(Signal::Loss, 60 * MSS, 0);
    assert_eq!(control.window.ssthresh_bytes, 30 * MSS);
    assert_eq!(control.window.cwnd_bytes, 30 * MSS);
    // 3.2 step 2: what limited transmit has added does not count.
    let mut control = controller("reno", 20, 20);
    control.on_congestion(Signal::Loss, 22 * MSS, 0);
    assert_eq!(control.window.ssthresh_bytes, 10 * MSS);
    let mut control = controller("reno", 3, 3);
    control.on_congestion(Signal::Loss, 3 * MSS, 0);
    assert_eq!(control.window.ssthresh_bytes, 2 * MSS);
}
