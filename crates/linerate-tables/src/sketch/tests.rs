//! The promised bounds, on streams whose truth is counted beside.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::*;
use linerate_testkit::Random;

type Key = [u8; 4];

fn sketch(width: usize, listed: usize, seed: u128) -> HeavyHitters<4> {
    let config = SketchConfig {
        name: "test".into(),
        width,
        listed,
        window: 1000,
        seed: Seed(seed),
    };
    HeavyHitters::new(&config, 0).unwrap()
}

/// Packets of 100,000 keys by Zipf's law with exponent `s`, weights as packet lengths.
fn zipf(seed: u64, packets: usize, s: f64) -> Vec<(Key, u64)> {
    let mut random = Random::new(seed);
    let mut sums = Vec::new();
    let mut sum = 0.0;
    for rank in 1..=100_000 {
        sum += f64::from(rank).powf(-s);
        sums.push(sum);
    }
    let mut packet = || {
        let draw = random.below(1_u64 << 53) as f64 / (1_u64 << 53) as f64 * sum;
        let rank = sums.partition_point(|&sum| sum <= draw) as u32;
        (
            rank.wrapping_mul(0x9e37_79b1).to_be_bytes(),
            64 + random.below(1437),
        )
    };
    (0..packets).map(|_| packet()).collect()
}

fn truth(stream: &[(Key, u64)]) -> HashMap<Key, u64> {
    let mut truth = HashMap::new();
    for &(key, weight) in stream {
        *truth.entry(key).or_default() += weight;
    }
    truth
}

fn holds_its_bounds(seed: u64, packets: usize, s: f64, width: usize, listed: usize) {
    println!("seed {seed}, s {s}, width {width}, listed {listed}");
    let stream = zipf(seed, packets, s);
    let truth = truth(&stream);
    let mut sketch = sketch(width, listed, u128::from(seed));
    for &(key, weight) in &stream {
        assert_eq!(sketch.add(&key, weight), sketch.estimate(&key));
    }
    assert_eq!(sketch.total(), truth.values().sum::<u64>());
    let mut beyond = 0;
    for (key, &true_weight) in &truth {
        let estimate = sketch.estimate(key);
        assert!(estimate >= true_weight, "below the truth");
        beyond += usize::from(estimate > true_weight + sketch.error());
    }
    assert!(
        beyond as f64 <= 0.02 * truth.len() as f64,
        "{beyond} beyond the bound"
    );

    let top = sketch.top();
    assert!(top.is_sorted_by_key(|heavy| Reverse(heavy.estimate)));
    assert_eq!(top.len(), listed.min(truth.len()));
    let lowest = top.last().unwrap().estimate;
    let listed: HashMap<Key, u64> = top
        .iter()
        .map(|heavy| (heavy.key, heavy.estimate))
        .collect();
    assert_eq!(listed.len(), top.len(), "a key is listed twice");
    for (key, &true_weight) in &truth {
        match listed.get(key) {
            Some(&estimate) => assert!(estimate >= true_weight),
            None => assert!(true_weight <= lowest, "a heavy key is missing"),
        }
    }
}

#[test]
fn zipf_streams_stay_within_the_bounds() {
    for (seed, s) in [(1, 0.8), (2, 1.0), (3, 1.3)] {
        holds_its_bounds(seed, 200_000, s, 4096, 100);
        holds_its_bounds(seed, 50_000, s, 256, 20);
        holds_its_bounds(seed, 10_000, s, 65_536, 20_000);
    }
}

#[test]
#[ignore = "long: 60 million packets"]
fn zipf_streams_stay_within_the_bounds_for_long() {
    for seed in 10..40 {
        holds_its_bounds(seed, 2_000_000, 0.6 + seed as f64 / 40.0, 4096, 1000);
    }
}

#[test]
fn the_hundred_heaviest_of_a_zipf_stream_are_found() {
    let stream = zipf(9, 300_000, 1.1);
    let truth = truth(&stream);
    let mut sketch = sketch(4096, 200, 9);
    stream.iter().for_each(|(key, weight)| {
        sketch.add(key, *weight);
    });
    let mut heaviest: Vec<_> = truth.iter().collect();
    heaviest.sort_unstable_by_key(|&(_, &weight)| Reverse(weight));
    let listed: Vec<Key> = sketch.top().iter().map(|heavy| heavy.key).collect();
    assert!(heaviest[..100].iter().all(|(key, _)| listed.contains(key)));
}

#[test]
fn a_burst_counts_as_its_packets_one_by_one() {
    let stream = zipf(4, 20_000, 1.0);
    let (keys, weights): (Vec<Key>, Vec<u64>) = stream.iter().copied().unzip();
    let (mut single, mut bulk) = (sketch(1024, 50, 4), sketch(1024, 50, 4));
    for (key, weight) in &stream {
        single.add(key, *weight);
    }
    for (keys, weights) in keys.chunks(45).zip(weights.chunks(45)) {
        bulk.add_bulk(keys, weights);
    }
    assert_eq!(single.top(), bulk.top());
    assert_eq!(*single.now.counters, *bulk.now.counters);
}

#[test]
fn windows_follow_the_time_that_is_given() {
    let mut sketch = sketch(64, 4, 0);
    sketch.add(&[1; 4], 10);
    assert!(!sketch.advance(999));
    assert!(sketch.advance(1000));
    assert_eq!((sketch.estimate(&[1; 4]), sketch.total()), (0, 0));
    sketch.add(&[2; 4], 5);
    assert_eq!(sketch.last_top()[0].key, [1; 4]);
    assert!(sketch.advance(2999));
    assert_eq!(sketch.last_top()[0].key, [2; 4]);
    // The window from 2000 ends at 3000 although the last call came late.
    assert!(sketch.advance(3000));
    assert!(sketch.last_top().is_empty());
    sketch.add(&[3; 4], 5);
    // A whole window without packets lies between.
    assert!(sketch.advance(5000));
    assert!(sketch.top().is_empty() && sketch.last_top().is_empty());
    assert!(sketch.advance(u64::MAX) && sketch.advance(u64::MAX));
}

#[test]
fn an_impossible_shape_is_refused() {
    let shape = |width, listed, window| {
        let config = SketchConfig {
            name: "odd".into(),
            width,
            listed,
            window,
            seed: Seed(1),
        };
        let error = HeavyHitters::<4>::new(&config, 0).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(shape(1000, 1, 1).contains("`odd`: width 1000 is not a power of two"));
    assert!(shape(8, 1, 1).contains("from 16 to 65536"));
    assert!(shape(16, 0, 1).contains("0 keys listed"));
    assert!(shape(16, 1, 0).contains("0 ticks"));
    assert_eq!(shape(16, 1, 1), "");
}
