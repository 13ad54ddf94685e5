//! Samples of the delivery rate.

use super::*;
use crate::tcp::congestion::rate::{Delivery, Sampler, SendStamp};

fn finish(delivery: &mut Delivery, acked: &[(SendStamp, u64)], now: u64) -> Option<RateSample> {
    let mut sampler = Sampler::default();
    for (stamp, sent) in acked {
        sampler.deliver(delivery, stamp, *sent, MSS);
    }
    sampler.finish(delivery, now, Some(10 * MS))
}

/// A segment each millisecond over a path of 10 ms: 1 MB/s.
#[test]
fn a_steady_flow_measures_its_rate() {
    let mut delivery = Delivery::default();
    let mut sent = Vec::new();
    let mut rates = Vec::new();
    for ms in 0..100_u64 {
        if ms >= 10 {
            let acked = [sent[ms as usize - 10]];
            let sample = finish(&mut delivery, &acked, ms * MS).unwrap();
            rates.push(sample.rate());
        }
        sent.push((delivery.on_send(ms * MS, ms == 0), ms * MS));
    }
    assert!(
        rates[10..]
            .iter()
            .all(|rate| rate.abs_diff(1_000_000) < 1000),
        "{rates:?}"
    );
    // In the first flight nothing had been acknowledged: less, never more.
    assert!(rates.iter().all(|&rate| rate < 1_001_000));
}

/// ACKs that a network held back come at once: the rate is that at which the data was sent.
#[test]
fn acks_that_come_together_measure_no_more_than_was_sent() {
    let mut delivery = Delivery::default();
    let sent: Vec<_> = (0..50)
        .map(|ms| (delivery.on_send(ms * MS, ms == 0), ms * MS))
        .collect();
    for acked in &sent {
        let sample = finish(&mut delivery, &[*acked], 200 * MS).unwrap();
        assert!(sample.rate() <= 1_021_000, "{}", sample.rate());
    }
}

#[test]
fn what_the_application_limits_is_marked_until_it_is_delivered() {
    let mut delivery = Delivery::default();
    let first = (delivery.on_send(0, true), 0);
    delivery.on_app_limited(MSS);
    let second = (delivery.on_send(MS, false), MS);
    let sample = finish(&mut delivery, &[first], 10 * MS).unwrap();
    assert!(!sample.is_app_limited && delivery.is_app_limited());
    let sample = finish(&mut delivery, &[second], 11 * MS).unwrap();
    assert!(sample.is_app_limited && !delivery.is_app_limited());
    let third = (delivery.on_send(12 * MS, true), 12 * MS);
    assert!(
        !finish(&mut delivery, &[third], 22 * MS)
            .unwrap()
            .is_app_limited
    );
}

#[test]
fn intervals_below_the_least_round_trip_say_nothing() {
    let mut delivery = Delivery::default();
    let stamp = (delivery.on_send(0, true), 0);
    let sample = finish(&mut delivery, &[stamp], MS).unwrap();
    assert_eq!((sample.interval_ns, sample.rate()), (0, 0));
    assert_eq!(finish(&mut delivery, &[], 2 * MS), None);
}

/// The segment that was sent last decides, in whatever order they are told.
#[test]
fn the_newest_segment_decides() {
    let mut delivery = Delivery::default();
    let one = (delivery.on_send(0, true), 0);
    let two = (delivery.on_send(5 * MS, false), 5 * MS);
    let mut other = delivery;
    let forth = finish(&mut delivery, &[one, two], 20 * MS);
    let back = finish(&mut other, &[two, one], 20 * MS);
    assert_eq!(forth, back);
    assert_eq!(delivery, other);
    assert_eq!(forth.unwrap().bytes(), 2 * MSS);
}

#[test]
fn counts_and_times_wrap() {
    let mut delivery = Delivery::default();
    // Both the count and the clock pass their ends.
    let start = (1_u64 << 38) - 50 * MS;
    let mut now = start;
    let mut rates = Vec::new();
    let mut last = (delivery.on_send(now, true), now);
    for _ in 0..100 {
        now += 20 * MS;
        let mut sampler = Sampler::default();
        sampler.deliver(&mut delivery, &last.0, last.1, 1 << 27);
        rates.push(sampler.finish(&mut delivery, now, None).unwrap().rate());
        last = (delivery.on_send(now, false), now);
    }
    let expected = (1_u64 << 27) * 50;
    assert!(
        rates
            .iter()
            .all(|rate| rate.abs_diff(expected) < expected / 1000),
        "{rates:?}"
    );
}
