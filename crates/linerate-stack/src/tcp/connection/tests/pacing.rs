//! How much leaves at once, with each congestion control (RFC 9937 6.4).

use super::link::{MS, Net, S};
use crate::tcp::config::Config;
use crate::tcp::congestion::Algorithm;

/// The most bytes of data that left at one time while two megabytes went over a path of 10 Mb/s and
/// 20 ms.
fn largest_burst(config: Config) -> u32 {
    let mut net = Net::new([config, Config::default()]);
    (net.rate, net.queue) = (1_250_000, 100_000);
    net.open();
    net.transfer(0, 2_000_000, 100 * S);
    let (mut at, mut bytes, mut most) = (0, 0, 0);
    for &(now_ns, from, segment) in &net.log {
        if from == 0 && segment.len > 0 {
            bytes = if now_ns == at { bytes } else { 0 } + segment.len;
            (at, most) = (now_ns, most.max(bytes));
        }
    }
    net.close();
    most
}

fn of(name: &str, pacing: bool) -> Config {
    Config {
        algorithm: Algorithm::from_name(name).unwrap(),
        pacing,
        ..Config::default()
    }
}

/// How many segments left at once, first of those that were sent behind place `begin` of the log.
fn first_burst(net: &Net, begin: usize) -> usize {
    let sent = || net.log[begin..].iter().filter(|(_, from, _)| *from == 0);
    let first = sent().find(|(_, _, segment)| segment.len > 0);
    let at = first.unwrap().0;
    sent().filter(|(now_ns, ..)| *now_ns == at).count()
}

#[test]
fn bbr_is_paced_whether_it_is_asked_for_or_not() {
    // In startup it sends at 2.89 times the path's rate, in bursts of a millisecond: 3.6 kB.
    for pacing in [false, true] {
        let most = largest_burst(of("bbr", pacing));
        assert!(most <= 3 * 1448, "{most}");
    }
}

#[test]
fn others_are_if_it_is_asked_for() {
    for name in ["cubic", "reno"] {
        assert!(
            largest_burst(of(name, false)) >= 10 * 1448,
            "the first window"
        );
        let most = largest_burst(of(name, true));
        assert!(most <= 3 * 1448, "{most}");
    }
}

#[test]
fn the_rate_goes_with_the_algorithm_that_has_set_it() {
    let mut net = Net::new([of("bbr", false), Config::default()]);
    net.rate = 1_250_000;
    net.open();
    net.transfer(0, 500_000, 100 * S);
    let now_ns = net.now_ns;
    net.ends[0].with(now_ns, |c, _| {
        c.set_algorithm(Algorithm::from_name("cubic").unwrap(), now_ns);
    });
    let begin = net.log.len();
    net.run_for(S);
    net.transfer(0, 500_000, 100 * S);
    // A window at once: after a pause that is ten segments.
    assert!(first_burst(&net, begin) >= 10);
    assert!(net.now_ns > 10 * MS);
    net.close();
}

/// BBR's model of the path is by what the path delivers: small exchanges and its own probes for the
/// round trip say nothing of that (draft-cheng-iccrg-delivery-rate-estimation-00 3.4).
#[test]
fn bbr_takes_what_the_user_or_itself_limits_for_no_bandwidth() {
    let mut net = Net::new([of("bbr", false), Config::default()]);
    (net.rate, net.queue) = (1_250_000, 100_000);
    net.open();
    for _ in 0..40 {
        net.transfer(0, 100, S);
        net.run_for(50 * MS);
    }
    let ns = net.transfer(0, 1_000_000, 100 * S);
    assert!(ns < 1200 * MS, "{} ms, 830 at the path's rate", ns / MS);
    net.close();
    // A probe of the round trip each 10 s, 200 ms of four segments, which are many rounds.
    let mut net = Net::new([of("bbr", false), Config::default()]);
    (net.rate, net.queue, net.delay_ns) = (3_125_000, 100_000, 5 * MS);
    net.open();
    net.transfer(0, 15_000_000, 100 * S);
    let ns = net.transfer(0, 75_000_000, 100 * S);
    assert!(
        ns < 26_500 * MS,
        "{} ms, 24,900 at the path's rate",
        ns / MS
    );
    net.close();
}

/// A reload that ends pacing ends it for connections that are there.
#[test]
fn a_connection_is_paced_no_more_where_its_stack_is_not() {
    let mut net = Net::new([of("cubic", true), Config::default()]);
    (net.rate, net.delay_ns) = (12_500_000, 20 * MS);
    net.open();
    net.transfer(0, 500_000, 100 * S);
    net.ends[0].shared.config.pacing = false;
    net.transfer(0, 500_000, 100 * S);
    let begin = net.log.len();
    net.transfer(0, 100_000, 100 * S);
    assert!(first_burst(&net, begin) >= 10);
    net.close();
}
