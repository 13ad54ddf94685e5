//! Paths that drop long segments and say nothing (RFC 4821, RFC 2923 2.1), and R1 (RFC 9293 3.8.3).

use super::link::{Fate, Judge, MS, Net, S};
use super::script::{MSS, Script, config};
use crate::tcp::config::Config;
use crate::tcp::connection::event;
use crate::tcp::mtu_search::MtuProbing;

fn with(mtu_probing: MtuProbing) -> Config {
    Config {
        mtu_probing,
        ..Config::default()
    }
}

/// Segments with more payload than this do not arrive.
fn longer_than(most: u32) -> Judge {
    Box::new(move |_, segment, _| match segment.len > most {
        true => Fate::Drop,
        false => Fate::Pass,
    })
}

/// A link of 100 Mb/s, so that no two segments arrive at the same time.
fn net(configs: [Config; 2]) -> Net {
    let mut net = Net::new(configs);
    net.rate = 12_500_000;
    net
}

/// Transfers with pauses: between probes that fail there has to be some time.
fn transfers(net: &mut Net) {
    for _ in 0..10 {
        net.transfer(0, 300_000, 60 * S);
        net.run_for(20 * S);
    }
}

fn mss(net: &Net) -> u32 {
    let connection = net.ends[0].connection.as_ref().unwrap();
    connection.info(net.now_ns).mss.into()
}

#[test]
fn rfc_4821_7_7_a_black_hole_is_found_and_the_search_comes_up_to_what_the_path_takes() {
    for (sack, rack) in [(true, true), (true, false), (false, false)] {
        let config = Config {
            sack,
            rack,
            ..with(MtuProbing::BlackHole)
        };
        let mut net = net([config.clone(), config]);
        net.open();
        assert_eq!(mss(&net), 1448);
        net.judge[0] = longer_than(1200);
        transfers(&mut net);
        let stats = net.ends[0].shared.stats;
        assert_eq!(
            (stats.mtu_black_holes, stats.unanswered),
            (1, 1),
            "{stats:?}"
        );
        assert!(stats.mtu_probes_arrived > 0, "{stats:?}");
        assert!(stats.mtu_probes_lost > 0, "{stats:?}");
        assert!((1193..=1200).contains(&mss(&net)), "{stats:?}");
        // Probes that are lost are no congestion (7.6.2).
        assert_eq!(stats.recoveries, 0, "{stats:?}");
        assert_eq!(stats.timeouts, 4, "{stats:?}");
        net.close();
    }
}

#[test]
fn without_it_nothing_arrives() {
    let mut net = net([with(MtuProbing::Off), with(MtuProbing::Off)]);
    net.open();
    net.judge[0] = longer_than(1200);
    net.ends[0].with(net.now_ns, |c, cx| {
        c.write(cx, &[1; 10_000]).unwrap();
        c.push(cx);
    });
    net.run_for(3000 * S);
    assert_eq!(net.ends[0].shared.stats.given_up, 1);
    assert_eq!(net.ends[0].shared.stats.mtu_black_holes, 0);
}

#[test]
fn a_peer_that_was_away_is_met_with_long_segments_again() {
    for gso in [0, 60_000] {
        let mut net = net([Config::default(), Config::default()]);
        net.ends[0].wire.gso = gso;
        net.open();
        let back_ns = net.now_ns + 10 * S;
        net.judge[0] = Box::new(move |now_ns, _, _| match now_ns < back_ns {
            true => Fate::Drop,
            false => Fate::Pass,
        });
        net.transfer(0, 3_000_000, 60 * S);
        let stats = net.ends[0].shared.stats;
        assert!(stats.mtu_black_holes > 0, "{stats:?}");
        assert!((1441..=1448).contains(&mss(&net)), "{stats:?}");
        // Nothing is left to be found.
        assert!(net.ends[0].shared.searches.is_empty());
        net.close();
    }
}

#[test]
fn rfc_4821_7_2_a_search_may_begin_with_the_connection() {
    for most in [1100, 1300, 1448] {
        let mut net = net([with(MtuProbing::On), with(MtuProbing::On)]);
        net.open();
        assert_eq!(mss(&net), 1024 - 12);
        net.judge[0] = longer_than(most);
        transfers(&mut net);
        let stats = net.ends[0].shared.stats;
        assert!(
            (most - 7..=most).contains(&mss(&net)),
            "{} {stats:?}",
            mss(&net)
        );
        assert_eq!((stats.timeouts, stats.recoveries), (0, 0), "{stats:?}");
        net.close();
    }
}

/// RFC 4821 4: losses that are no congestion are seldom.
#[test]
fn rfc_4821_4_probes_that_fail_are_a_window_of_round_trips_apart() {
    let mut net = net([with(MtuProbing::On), with(MtuProbing::On)]);
    net.open();
    net.judge[0] = longer_than(1100);
    transfers(&mut net);
    let probes = net.log.iter().filter(|(_, _, segment)| segment.len > 1100);
    let at: Vec<u64> = probes.map(|&(at_ns, ..)| at_ns).collect();
    assert!(at.len() > 2, "{at:?}");
    // A probe goes with a window of eleven segments at least.
    let least_ns = 11 * 2 * net.delay_ns;
    let gaps = at.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.min().unwrap() > least_ns, "{at:?}");
    let stats = net.ends[0].shared.stats;
    assert_eq!((stats.timeouts, stats.recoveries), (0, 0), "{stats:?}");
    net.close();
}

/// RFC 4821 7.6.2: a probe that is lost with others is congestion.
#[test]
fn losses_beside_a_probe_are_repaired_as_others() {
    let mut net = net([with(MtuProbing::On), with(MtuProbing::On)]);
    net.open();
    let mut count = 0;
    net.judge[0] = Box::new(move |_, segment, _| {
        count += u32::from(segment.len > 0);
        // Each probe, and what follows it.
        match segment.len > 1100 || count % 40 == 0 {
            true => Fate::Drop,
            false => Fate::Pass,
        }
    });
    net.transfer(0, 3_000_000, 200 * S);
    let stats = net.ends[0].shared.stats;
    assert!(stats.recoveries > 0 && stats.mtu_probes > 0, "{stats:?}");
    assert!(mss(&net) <= 1100);
    net.close();
}

#[test]
fn rfc_1191_reports_bound_the_search() {
    let mut net = net([with(MtuProbing::On), with(MtuProbing::On)]);
    net.open();
    net.ends[0].with(net.now_ns, |c, cx| c.set_path_mss(cx, 1200));
    transfers(&mut net);
    let longest = net.log.iter().map(|(_, _, segment)| segment.len).max();
    assert!((1181..=1188).contains(&longest.unwrap()), "{longest:?}");
    net.close();
}

#[test]
fn shld_9_and_10_the_user_is_told_at_r1() {
    let mut script = Script::open(config());
    script.write(MSS);
    let mut told = Vec::new();
    for _ in 0..12 {
        let out = script.wait(5 * S);
        let events = script.call(|c| c.take_events());
        told.push((script.info().retries, events & event::UNANSWERED != 0));
        drop(out);
    }
    // SHLD-10: after three retransmissions; once, however many follow.
    let first = told.iter().position(|(_, is_told)| *is_told).unwrap();
    assert!(
        told[..first].iter().all(|(retries, _)| *retries <= 3),
        "{told:?}"
    );
    assert!(told[first].0 > 3, "{told:?}");
    assert_eq!(told.iter().filter(|(_, is_told)| *is_told).count(), 1);
    let shared = &script.end.shared;
    assert!(
        script
            .end
            .connection
            .as_ref()
            .unwrap()
            .is_unanswered(&shared.config)
    );
    assert_eq!(shared.stats.unanswered, 1);
    // An answer ends it.
    script.ack(MSS);
    let shared = &script.end.shared;
    assert!(
        !script
            .end
            .connection
            .as_ref()
            .unwrap()
            .is_unanswered(&shared.config)
    );
}

#[test]
fn must_21_r2_is_the_users_to_set_as_well_as_r1() {
    let mut script = Script::open(Config {
        retries1: 5,
        retries: 7,
        ..config()
    });
    script.write(MSS);
    // The timeout, and its doubles: 0.3 s or so.
    let out = script.wait(200 * S);
    assert_eq!(script.end.shared.stats.unanswered, 1);
    // The loss probe, and seven retransmissions.
    assert_eq!(out.len(), 8, "{}", out.len());
    assert!(script.error().is_some());
    assert!(script.now_ns > 100 * MS);
}
