//! Flows that share a bottleneck.

use super::model::Link;
use super::*;

/// The share of the first of two flows in `seconds` after `from` seconds.
fn share(link: &mut Link, from: u64, seconds: u64) -> (f64, f64) {
    link.run(from * S);
    let goodputs = link.goodputs((from + seconds) * S);
    let sum: f64 = goodputs.iter().sum();
    (goodputs[0] / sum, sum)
}

/// 20 ms, 2.5 MB/s (20 Mb/s), a queue of two round trips; the second flow starts when the first
/// has everything.
#[test]
fn two_flows_come_to_equal_shares() {
    for name in ["reno", "cubic"] {
        let mut link = Link::new(2_500_000, 100);
        link.flow(name, 20 * MS, 0);
        link.flow(name, 20 * MS, 5 * S);
        let (first, sum) = share(&mut link, 30, 90);
        assert!((first - 0.5).abs() < 0.05, "{name}: {first}");
        assert!(sum > 0.97 * 2.5e6, "{name}: {sum}");
    }
}

/// The same where CUBIC is itself: 100 ms, 4 MB/s.
#[test]
fn two_cubic_flows_come_to_equal_shares_over_a_long_path() {
    let mut link = Link::new(4_000_000, 400);
    link.flow("cubic", 100 * MS, 0);
    link.flow("cubic", 100 * MS, 10 * S);
    let (first, sum) = share(&mut link, 60, 180);
    assert!((first - 0.5).abs() < 0.1, "{first}");
    assert!(sum > 0.97 * 4e6, "{sum}");
}

/// RFC 9438 5.1: over a short path CUBIC takes about what Reno takes.
#[test]
fn rfc9438_5_1_cubic_is_fair_to_reno_over_a_short_path() {
    let mut link = Link::new(2_500_000, 50);
    link.flow("cubic", 10 * MS, 0);
    link.flow("reno", 10 * MS, 0);
    let (cubic, sum) = share(&mut link, 20, 120);
    assert!((0.35..0.65).contains(&cubic), "{cubic}");
    assert!(sum > 0.97 * 2.5e6, "{sum}");
}

#[test]
fn two_bbr_flows_share() {
    let mut link = Link::new(2_500_000, 500);
    link.flow("bbr", 40 * MS, 0);
    link.flow("bbr", 40 * MS, 3 * S);
    let (first, sum) = share(&mut link, 30, 70);
    assert!((first - 0.5).abs() < 0.15, "{first}");
    assert!(sum > 0.93 * 2.5e6, "{sum}");
}

/// RFC 3168: a queue that marks loses nothing, and the flow fills the path all the same.
#[test]
fn rfc3168_marks_replace_losses() {
    for name in ["reno", "cubic"] {
        let mut link = Link::new(2_500_000, 400).marking_from(60);
        link.flow(name, 20 * MS, 0);
        link.run(5 * S);
        let drops = link.drops;
        let goodput = link.goodputs(60 * S)[0];
        assert_eq!(link.drops, drops, "{name}");
        assert!(link.flows[0].reductions > 5, "{name}");
        assert!(goodput > 0.97 * 2.5e6, "{name}: {goodput}");
    }
}

/// Random loss of 1 in 1000 at 100 ms: CUBIC's window is at least Reno's (RFC 9438 5.1 table 1).
#[test]
fn rfc9438_5_1_random_loss_costs_cubic_no_more_than_reno() {
    let goodput = |name: &str| {
        let mut link = Link::new(12_500_000, 1000).losing_one_in(1000);
        link.flow(name, 100 * MS, 0);
        link.run(20 * S);
        link.goodputs(320 * S)[0]
    };
    let (cubic, reno) = (goodput("cubic"), goodput("reno"));
    // Table 1: 38 segments a round trip of 100 ms, for both.
    assert!(
        (0.9..1.6).contains(&(cubic / reno)),
        "cubic {cubic}, reno {reno}"
    );
    assert!((250_000.0..500_000.0).contains(&reno), "{reno}");
}

/// A queue of four packets where the path holds 20: losses all the time, and no collapse.
#[test]
fn tiny_queues_do_not_stop_anybody() {
    for name in Algorithm::NAMES {
        let mut link = Link::new(1_000_000, 5);
        link.flow(name, 20 * MS, 0);
        link.run(5 * S);
        let goodput = link.goodputs(40 * S)[0];
        let flow = &link.flows[0];
        let what = format!(
            "{name}: {goodput}, {} lost, {} timeouts",
            flow.lost, flow.timeouts
        );
        assert!(goodput > 0.6 * 1e6, "{what}");
        assert!(flow.lost > 0 && flow.timeouts < 20, "{what}");
    }
}

/// Receivers that acknowledge every packet, every second one, or a burst of 16 at once: the same
/// path is filled.
#[test]
fn rfc3465_2_1_delayed_and_merged_acks_fill_the_path() {
    for name in Algorithm::NAMES {
        for every in [1, 2, 16] {
            let mut link = Link::new(2_500_000, 100);
            let flow = link.flow(name, 20 * MS, 0);
            link.acks_every(flow, every);
            link.run(5 * S);
            let goodput = link.goodputs(65 * S)[0];
            assert!(
                goodput > 0.97 * 2.5e6,
                "{name}, an ACK for {every}: {goodput}"
            );
        }
    }
}
