//! Data arrives whole and in order, whatever the link does, and nothing is left behind.

use super::link::{Fate, MS, Net, S};
use crate::tcp::config::Config;
use crate::tcp::connection::State;

fn configs() -> [Config; 2] {
    [Config::default(), Config::default()]
}

#[test]
fn a_connection_opens_and_closes() {
    let mut net = Net::new(configs());
    net.open();
    let info = net.ends[0].connection.as_ref().unwrap().info(net.now_ns);
    assert!(info.sack && info.timestamps && !info.ecn);
    assert_eq!(info.mss, 1448);
    net.close();
    // The side that closes first waits (RFC 9293 3.6).
    assert_eq!(net.ends[0].state(), State::TimeWait);
    assert_eq!(net.ends[1].state(), State::Closed);
    assert_eq!((net.ends[0].error(), net.ends[1].error()), (None, None));
}

#[test]
fn a_megabyte_takes_as_long_as_slow_start_needs() {
    let mut net = Net::new(configs());
    net.open();
    let ns = net.transfer(0, 1 << 20, 100 * S);
    // 14,480 bytes, doubled with each round trip of 20 ms: a megabyte in seven.
    assert!(ns < 180 * MS, "{} ms", ns / MS);
    assert_eq!(net.ends[0].shared.stats.retransmitted, 0);
    assert_eq!(net.ends[0].shared.stats.timeouts, 0);
    net.close();
}

#[test]
fn both_directions_and_unsegmented_frames() {
    let mut net = Net::new(configs());
    for end in &mut net.ends {
        end.wire.gso = 60_000;
    }
    net.open();
    net.transfer(0, 3_000_000, 100 * S);
    net.transfer(1, 3_000_000, 100 * S);
    net.close();
}

#[test]
fn a_bottleneck_with_a_short_queue() {
    let mut net = Net::new(configs());
    (net.rate, net.queue) = (12_500_000, 250_000);
    net.delay_ns = 10 * MS;
    net.open();
    let ns = net.transfer(0, 30_000_000, 100 * S);
    // 2.4 s at the rate, headers aside.
    let stats = net.ends[0].shared.stats;
    assert!(ns < 3 * S, "{} ms, {stats:?}", ns / MS);
    assert!(net.dropped > 0);
    assert_eq!(stats.timeouts, 0, "{stats:?}");
    net.close();
}

/// One in `n` frames, both ways, is dropped, doubled or late.
fn rough(seed: u64, config: &Config, gso: u32) {
    let mut net = Net::new([config.clone(), config.clone()]);
    net.random = linerate_testkit::Random::new(seed);
    for end in 0..2 {
        net.ends[end].wire.gso = gso;
        net.judge[end] = Box::new(|_, _, random| match random.below(100) {
            0..3 => Fate::Drop,
            3..5 => Fate::Twice,
            5..10 => Fate::Delay(random.below(30) * MS),
            _ => Fate::Pass,
        });
    }
    net.ends[0].connect(net.now_ns);
    net.run_for(20 * S);
    assert_eq!(net.ends[0].state(), State::Established, "seed {seed}");
    net.transfer(0, 700_000, 500 * S);
    net.transfer(1, 700_000, 500 * S);
    net.close();
}

#[test]
fn loss_reordering_and_doubles_lose_nothing() {
    for seed in 0..6 {
        rough(seed, &Config::default(), 0);
        rough(seed, &Config::default(), 30_000);
    }
}

#[test]
fn nor_without_sack_time_stamps_or_rack() {
    for seed in 0..4 {
        for (sack, timestamps, rack) in [
            (false, true, false),
            (false, false, false),
            (true, true, false),
            (true, false, true),
        ] {
            let config = Config {
                sack,
                timestamps,
                rack,
                ..Config::default()
            };
            rough(seed, &config, 0);
        }
    }
}

/// RFC 9040, as Linux: a path that reorders is known to the next connection, which waits for what
/// is overtaken from its start.
#[test]
fn rfc_9040_reordering_is_shared_with_the_next_connection() {
    let recoveries = |path_metrics| {
        let config = Config {
            path_metrics,
            ..Config::default()
        };
        let mut net = Net::new([config, Config::default()]);
        net.rate = 12_500_000;
        let mut all = Vec::new();
        for _ in 0..2 {
            let mut count = 0;
            net.judge[0] = Box::new(move |_, segment, _| {
                count += u32::from(segment.len > 0);
                match segment.len > 0 && count % 50 == 7 {
                    true => Fate::Delay(4 * MS),
                    false => Fate::Pass,
                }
            });
            let before = net.ends[0].shared.stats.recoveries;
            net.ends.iter_mut().for_each(|end| end.connection = None);
            net.open();
            net.transfer(0, 1_000_000, 100 * S);
            net.close();
            all.push(net.ends[0].shared.stats.recoveries - before);
        }
        all
    };
    let [first, second] = recoveries(true)[..] else {
        panic!("two connections");
    };
    assert!(first > 0 && second == 0, "{first} {second}");
    let apart = recoveries(false);
    assert!(apart[1] > 0, "{apart:?}");
}
