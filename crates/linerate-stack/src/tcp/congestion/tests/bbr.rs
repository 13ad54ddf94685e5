//! BBR over the modelled bottleneck, and its own events.

use super::model::Link;
use super::*;

/// 100 ms, 2 MB/s, and a queue of 5 times what the path holds: BBR fills the path, and keeps the
/// queue short once startup's is drained.
#[test]
fn bbr_fills_the_path_and_not_the_queue() {
    let mut link = Link::new(2_000_000, 1000);
    link.flow("bbr", 100 * MS, 0);
    link.run(5 * S);
    assert_eq!(link.drops, 0);
    link.longest_queue = 0;
    let goodput = link.goodputs(9 * S)[0];
    assert!(goodput > 0.95 * 2e6, "{goodput}");
    assert!(link.longest_queue < 100, "{} packets", link.longest_queue);
    let mut cubic = Link::new(2_000_000, 1000);
    cubic.flow("cubic", 100 * MS, 0);
    cubic.run(60 * S);
    assert!(cubic.longest_queue > 500, "CUBIC fills any queue");
}

/// The least round trip is looked for every 10 s: the flight falls to 4 segments for 200 ms, and
/// comes back.
#[test]
fn bbr_probes_the_round_trip_every_ten_seconds() {
    let mut link = Link::new(2_000_000, 1000);
    link.flow("bbr", 100 * MS, 0);
    // Beside another there is always a queue.
    link.flow("bbr", 100 * MS, 0);
    let mut least_at = Vec::new();
    for step in 50..450 {
        link.run(step * 100 * MS);
        if link.flows[0].in_flight() <= 4 * MSS {
            least_at.push(step / 10);
        }
    }
    least_at.dedup();
    assert!((3..=8).contains(&least_at.len()), "{least_at:?}");
    let goodput: f64 = link.goodputs(60 * S).iter().sum();
    assert!(goodput > 0.9 * 2e6, "{goodput}");
}

/// 2 % of random loss: BBR keeps its rate, CUBIC does not.
#[test]
fn bbr_keeps_its_rate_under_random_loss() {
    let goodput = |name: &str| {
        let mut link = Link::new(2_000_000, 200).losing_one_in(50);
        link.flow(name, 100 * MS, 0);
        link.run(5 * S);
        link.goodputs(40 * S)[0]
    };
    let (bbr, cubic) = (goodput("bbr"), goodput("cubic"));
    assert!(bbr > 0.8 * 2e6, "bbr {bbr}");
    assert!(cubic < 0.5 * bbr, "cubic {cubic}");
}

/// What the application limits does not lower the bandwidth: when there is more to send, it goes
/// at the path's rate at once.
#[test]
fn bbr_remembers_the_rate_through_app_limited_times() {
    let mut link = Link::new(2_000_000, 1000);
    link.flow("bbr", 100 * MS, 0);
    link.run(4 * S);
    link.offer(0, Some(100_000));
    link.run(6 * S);
    link.offer(0, None);
    link.run(6 * S + 500 * MS);
    let goodput = link.goodputs(8 * S)[0];
    assert!(goodput > 0.9 * 2e6, "{goodput}");
}

#[test]
fn bbr_comes_back_from_a_timeout_to_its_window() {
    let mut link = Link::new(2_000_000, 1000);
    link.flow("bbr", 100 * MS, 0);
    link.run(5 * S);
    let mut control = link.flows[0].control;
    let before = control.window.cwnd_bytes;
    control.on_timeout(true, before, 5 * S);
    assert_eq!(control.window.cwnd_bytes, MSS);
    control.on_recovery_end(true, 6 * S);
    assert_eq!(control.window.cwnd_bytes, before);
    // A spurious recovery too.
    control.on_congestion(Signal::Loss, before, 6 * S);
    control.window.cwnd_bytes = MSS;
    let mut ack = ack(&control, 1, 6 * S);
    ack.in_recovery = true;
    control.on_ack(&ack);
    control.undo(6 * S);
    assert!(control.window.cwnd_bytes >= before);
}

/// Before there is a round trip the rate is that of a millisecond; then that of the handshake's.
#[test]
fn bbr_starts_at_a_window_in_a_round_trip() {
    let mut control = controller("bbr", 10, u32::MAX);
    let rate = control.algorithm.pacing_rate().unwrap();
    assert!(
        rate.abs_diff(10_000_000 * 2885 / 1000) < rate / 50,
        "{rate}"
    );
    let mut first = ack(&control, 1, 100 * MS);
    first.rtt_ns = Some(100 * MS);
    control.on_ack(&first);
    let rate = control.algorithm.pacing_rate().unwrap();
    assert!(rate.abs_diff(100_000 * 2885 / 1000) < rate / 50, "{rate}");
    assert!(!control.algorithm.is_by_prr());
}
