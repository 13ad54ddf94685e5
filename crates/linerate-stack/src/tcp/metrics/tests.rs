//! Merging as Linux does it, lifetimes, and eviction against a plain list.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_testkit::Random;

use super::*;

const S: u64 = SECOND_NS;
const MS: u64 = 1_000_000;

fn metrics(hosts: usize) -> Metrics {
    let config = MetricsConfig {
        hosts,
        is_ssthresh_shared: true,
        seed: Seed(1),
        ..MetricsConfig::default()
    };
    Metrics::new(&config).unwrap()
}

fn host(number: u32) -> IpAddr {
    match number % 2 {
        0 => Ipv4Addr::from_bits(0x0a00_0000 + number).into(),
        _ => Ipv6Addr::from_bits(0xfd << 120 | u128::from(number)).into(),
    }
}

fn with_rtt(ms: u64) -> Closed {
    Closed {
        srtt_ns: Some(ms * MS),
        rttvar_ns: ms * MS / 4,
        ..Closed::default()
    }
}

#[test]
fn a_longer_round_trip_is_taken_at_once_a_shorter_one_by_an_eighth() {
    let mut metrics = metrics(4);
    let srtt = |metrics: &mut Metrics| metrics.lookup(host(0), 0).unwrap().srtt_ns;
    metrics.note_closed(host(0), &with_rtt(80), 0);
    assert_eq!(srtt(&mut metrics), Some(80 * MS));
    metrics.note_closed(host(0), &with_rtt(160), 0);
    assert_eq!(srtt(&mut metrics), Some(160 * MS));
    metrics.note_closed(host(0), &with_rtt(80), 0);
    assert_eq!(srtt(&mut metrics), Some(150 * MS));
}

#[test]
fn what_two_means_differ_by_is_variation() {
    let mut metrics = metrics(4);
    metrics.note_closed(host(0), &with_rtt(100), 0);
    assert_eq!(metrics.lookup(host(0), 0).unwrap().rttvar_ns, Some(25 * MS));
    metrics.note_closed(host(0), &with_rtt(300), 0);
    assert_eq!(
        metrics.lookup(host(0), 0).unwrap().rttvar_ns,
        Some(100 * MS)
    );
}

/// A connection whose answers did not come in time has no round trip, and what was known is wrong.
#[test]
fn a_connection_without_a_round_trip_makes_it_unknown() {
    let mut metrics = metrics(4);
    metrics.note_closed(host(0), &with_rtt(100), 0);
    metrics.note_closed(host(0), &Closed::default(), 0);
    assert_eq!(metrics.lookup(host(0), 0), None);
}

#[test]
fn rfc9040_windows_are_merged_by_what_they_mean() {
    let mut metrics = metrics(4);
    let mut closed = with_rtt(10);
    let mut note = |window| {
        closed.window = Some(window);
        metrics.note_closed(host(0), &closed, 0);
        let known = metrics.lookup(host(0), 0).unwrap();
        (known.ssthresh_bytes, known.cwnd_bytes)
    };
    // The path carries this much at least; a threshold there is none.
    let first = Ended::FirstSlowStart { cwnd_bytes: 50_000 };
    assert_eq!(note(first), (None, Some(50_000)));
    let avoidance = Ended::Avoidance {
        cwnd_bytes: 100_000,
        ssthresh_bytes: 70_000,
    };
    assert_eq!(note(avoidance), (Some(70_000), Some(75_000)));
    let recovering = Ended::Recovering {
        ssthresh_bytes: 25_000,
    };
    assert_eq!(note(recovering), (Some(70_000), Some(50_000)));
    let more = Ended::FirstSlowStart {
        cwnd_bytes: 200_000,
    };
    assert_eq!(note(more), (Some(100_000), Some(200_000)));
}

/// Linux' `tcp_no_ssthresh_metrics_save`, on by default.
#[test]
fn thresholds_are_not_shared_unless_asked_for() {
    let config = MetricsConfig::default();
    assert!(!config.is_ssthresh_shared);
    let mut metrics = Metrics::new(&config).unwrap();
    let mut closed = with_rtt(10);
    closed.window = Some(Ended::Avoidance {
        cwnd_bytes: 100_000,
        ssthresh_bytes: 70_000,
    });
    metrics.note_closed(host(0), &closed, 0);
    assert_eq!(metrics.lookup(host(0), 0).unwrap().ssthresh_bytes, None);
}

#[test]
fn what_was_measured_counts_for_an_hour() {
    let mut metrics = metrics(4);
    metrics.note_closed(host(0), &with_rtt(100), 10 * S);
    assert!(metrics.lookup(host(0), 3610 * S).is_some());
    assert_eq!(metrics.lookup(host(0), 3612 * S), None);
    // A shorter one is not merged with what is too old.
    metrics.note_closed(host(0), &with_rtt(10), 7000 * S);
    let known = metrics.lookup(host(0), 7000 * S).unwrap();
    assert_eq!(known.srtt_ns, Some(10 * MS));
}

#[test]
fn a_path_that_has_reordered_is_known_for_an_hour() {
    let mut metrics = metrics(4);
    let note = |metrics: &mut Metrics, reordering, at_ns| {
        let closed = Closed {
            reordering,
            ..with_rtt(10)
        };
        metrics.note_closed(host(0), &closed, at_ns);
        metrics.lookup(host(0), at_ns).unwrap().reordering
    };
    assert_eq!(note(&mut metrics, None, 0), None);
    assert_eq!(note(&mut metrics, Some(3), S), Some(3));
    assert_eq!(note(&mut metrics, Some(1), 2 * S), Some(3));
    assert_eq!(note(&mut metrics, None, 3 * S), Some(3));
    assert_eq!(note(&mut metrics, None, 4000 * S), None);
}

#[test]
fn rfc1191_6_3_a_path_mtu_counts_for_ten_minutes() {
    let mut metrics = metrics(4);
    metrics.note_pmtu(host(1), 1280, 100 * S);
    assert_eq!(metrics.lookup(host(1), 700 * S).unwrap().pmtu, Some(1280));
    assert_eq!(metrics.lookup(host(1), 702 * S), None);
}

#[test]
fn rfc7413_4_1_1_cookies_are_of_4_to_16_bytes_and_even() {
    for len in 0..40 {
        let bytes = vec![7; len];
        let is_sound = (4..=16).contains(&len) && len % 2 == 0;
        let cookie = Cookie::new(&bytes);
        assert_eq!(cookie.is_some(), is_sound, "{len} bytes");
        assert!(cookie.is_none_or(|cookie| cookie.bytes() == bytes));
    }
}

#[test]
fn rfc7413_4_1_3_cookies_are_kept_and_lost_syns_pause_them() {
    let mut metrics = metrics(4);
    let cookie = Cookie::new(&[1, 2, 3, 4, 5, 6, 7, 8]);
    metrics.note_fast_open(host(2), cookie, 1400);
    let known = metrics.lookup(host(2), 0).unwrap();
    assert_eq!((known.cookie, known.mss), (cookie, Some(1400)));
    let has_cookie = |metrics: &mut Metrics, s: u64| {
        let known = metrics.lookup(host(2), s * S).unwrap();
        known.cookie.is_some()
    };
    metrics.note_fast_open_lost(host(2), 100 * S);
    assert!(!has_cookie(&mut metrics, 159) && has_cookie(&mut metrics, 160));
    metrics.note_fast_open_lost(host(2), 200 * S);
    assert!(!has_cookie(&mut metrics, 319) && has_cookie(&mut metrics, 320));
    (0..300).for_each(|_| metrics.note_fast_open_lost(host(2), 1000 * S));
    assert!(!has_cookie(&mut metrics, 1000 + 3839) && has_cookie(&mut metrics, 1000 + 3840));
    // An answer without a new cookie: the path lets data through.
    metrics.note_fast_open_lost(host(2), 9000 * S);
    metrics.note_fast_open(host(2), None, 1400);
    assert_eq!(metrics.lookup(host(2), 9001 * S).unwrap().cookie, cookie);
}

#[test]
fn a_lookup_without_anything_known_makes_no_entry() {
    let mut metrics = metrics(4);
    assert_eq!(metrics.lookup(host(0), 0), None);
    assert!(metrics.is_empty());
    assert!(
        Metrics::new(&MetricsConfig {
            hosts: 0,
            ..MetricsConfig::default()
        })
        .is_err()
    );
}

#[test]
fn hosts_are_listed_by_their_last_use() {
    let mut metrics = metrics(4);
    assert_eq!(metrics.iter(0).count(), 0);
    for number in 0..6 {
        let closed = with_rtt(10 + u64::from(number));
        metrics.note_closed(host(number), &closed, u64::from(number) * S);
    }
    metrics.lookup(host(3), 5 * S);
    let listed: Vec<_> = metrics.iter(5 * S).map(|(host, _)| host).collect();
    assert_eq!(listed, [host(3), host(5), host(4), host(2)]);
    let srtt = metrics.iter(5 * S).next().unwrap().1.srtt_ns;
    assert_eq!(srtt, Some(13 * MS));
    // Of the others nothing is known any more an hour after they were.
    assert_eq!(metrics.iter(3605 * S).count(), 1);
}

/// The host that was unused the longest gives its place up; against a plain list.
#[test]
fn the_room_is_bounded_and_the_longest_unused_goes_first() {
    let mut random = Random::new(9040);
    let mut metrics = metrics(8);
    let mut model: Vec<(u32, u64)> = Vec::new();
    for step in 0..20_000 {
        let number = random.below(20_u32);
        let at = model.iter().position(|&(known, _)| known == number);
        let what = format!("seed 9040, step {step}, host {number}");
        if random.one_in(2) {
            let found = metrics.lookup(host(number), 0).and_then(|it| it.srtt_ns);
            assert_eq!(found, at.map(|at| model[at].1), "{what}");
        } else {
            let srtt = (1 + random.below(1000_u64)) * MS;
            let closed = Closed {
                srtt_ns: Some(srtt),
                ..Closed::default()
            };
            metrics.note_closed(host(number), &closed, 0);
            let merged = match at.map(|at| model[at].1) {
                Some(known) if known > srtt => {
                    let us = |ns: u64| ns / 1000;
                    (us(known) - (us(known) - us(srtt)) / 8) * 1000
                }
                _ => srtt,
            };
            match at {
                Some(at) => model[at].1 = merged,
                None => model.push((number, merged)),
            }
        }
        if let Some(at) = model.iter().position(|&(known, _)| known == number) {
            let used = model.remove(at);
            model.push(used);
        }
        if model.len() > 8 {
            model.remove(0);
        }
        assert_eq!(metrics.len(), model.len(), "{what}");
    }
    metrics.clear();
    assert!(metrics.is_empty() && metrics.lookup(host(0), 0).is_none());
    assert_eq!(metrics.capacity(), 8);
}
