//! The meters against the RFCs' sentences in exact fractions, and by hand.

use super::*;
use Color::{Green, Red, Yellow};
use linerate_testkit::Random;

/// The RFCs word by word: buckets in bytes as fractions over `hz`, 128 bits wide, nothing cut.
struct Model {
    hz: u128,
    time: u64,
    rates: [u128; 2],
    sizes: [u128; 2],
    tokens: [u128; 2],
    kind: MeterKind,
}

#[derive(Clone, Copy, Debug)]
enum MeterKind {
    Rfc2697,
    Rfc2698,
    Rfc4115,
}

impl Model {
    fn new(kind: MeterKind, rates: [u64; 2], sizes: [u64; 2], hz: u64, now: u64) -> Self {
        let hz = u128::from(hz);
        let sizes = sizes.map(|bytes| u128::from(bytes) * hz);
        Self {
            hz,
            time: now,
            rates: rates.map(u128::from),
            sizes,
            tokens: sizes,
            kind,
        }
    }

    fn mark(&mut self, now: u64, bytes: u32, color: Color) -> Color {
        let elapsed = u128::from(now - self.time);
        self.time = now;
        match self.kind {
            // "If Tc is less than CBS, Tc is incremented by one, else if Te is less than EBS, Te
            // is incremented by one, else neither", CIR times a second.
            MeterKind::Rfc2697 => {
                let mut gained = elapsed * self.rates[0];
                for bucket in 0..2 {
                    let room = self.sizes[bucket] - self.tokens[bucket];
                    let taken = room.min(gained);
                    self.tokens[bucket] += taken;
                    gained -= taken;
                }
            }
            MeterKind::Rfc2698 | MeterKind::Rfc4115 => {
                for bucket in 0..2 {
                    let full = self.tokens[bucket] + elapsed * self.rates[bucket];
                    self.tokens[bucket] = full.min(self.sizes[bucket]);
                }
            }
        }
        let need = u128::from(bytes) * self.hz;
        let [first, second] = self.tokens.map(|tokens| tokens >= need);
        let (mark, takes): (Color, &[usize]) = match self.kind {
            MeterKind::Rfc2697 | MeterKind::Rfc4115 => {
                if color == Green && first {
                    (Green, &[0])
                } else if (color == Green || color == Yellow) && second {
                    (Yellow, &[1])
                } else {
                    (Red, &[])
                }
            }
            // Bucket 0 is the committed one, bucket 1 the peak.
            MeterKind::Rfc2698 => {
                if color == Red || !second {
                    (Red, &[])
                } else if color == Yellow || !first {
                    (Yellow, &[1])
                } else {
                    (Green, &[0, 1])
                }
            }
        };
        for &bucket in takes {
            self.tokens[bucket] -= need;
        }
        mark
    }
}

const CLOCKS: &[u64] = &[1, 1000, 1_000_000_000, 2_999_998_123];

/// Rates from a byte a second to 400 Gb/s and beyond.
fn rate(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 1,
        1 => 50_000_000_000,
        2 => 1 << random.below(37),
        _ => {
            let magnitude = random.below(36);
            1 + random.below(2 << magnitude)
        }
    }
}

fn against<P: Profile>(
    random: &mut Random,
    meter: P,
    mut model: Model,
    per_second: u64,
    hz: u64,
    start: u64,
) {
    let (mut buckets, mut now) = (meter.full(start), start);
    let mut seen = [0; 3];
    for packet in 0..2000 {
        let bytes = match random.below(10) {
            0 => 0,
            1 => random.below(1_u64 << 32) as u32,
            _ => 64 + random.below(1500) as u32,
        };
        let color = [Green, Green, Yellow, Red][random.below(4) as usize];
        // About as long as the packet takes at the rate, so that all colours come.
        let apart = u128::from(random.below(2 * 800_u64)) * u128::from(hz) / u128::from(per_second);
        let apart = match random.below(300) {
            0 => random.bits() >> random.below(64),
            _ => apart as u64,
        };
        now = now.saturating_add(apart);
        let (ours, theirs) = (
            meter.mark(&mut buckets, now, bytes, color),
            model.mark(now, bytes, color),
        );
        assert_eq!(ours, theirs, "packet {packet}, {bytes} bytes at {now}");
        seen[ours as usize] += 1;
        if now == u64::MAX {
            break;
        }
    }
    assert!(seen.iter().sum::<u32>() > 0);
}

fn all_kinds(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let hz = CLOCKS[(seed % CLOCKS.len() as u64) as usize];
        let (slow, fast) = (rate(&mut random), rate(&mut random));
        let (slow, fast) = (slow.min(fast), slow.max(fast));
        let sizes = [1 + random.below(20_000), 1 + random.below(100_000)];
        let start = random.bits() >> random.below(64);
        let model = |kind, rates| Model::new(kind, rates, sizes, hz, start);

        let meter = srtcm(slow, sizes[0], sizes[1], hz).unwrap();
        let words = model(MeterKind::Rfc2697, [slow, 0]);
        against(&mut random, meter, words, slow, hz, start);
        let meter = trtcm([slow, sizes[0]], [fast, sizes[1]], hz).unwrap();
        let words = model(MeterKind::Rfc2698, [slow, fast]);
        against(&mut random, meter, words, fast, hz, start);
        let meter = rfc4115([fast, sizes[0]], [slow, sizes[1]], hz).unwrap();
        let words = model(MeterKind::Rfc4115, [fast, slow]);
        against(&mut random, meter, words, fast, hz, start);
    }
}

#[test]
fn marks_as_the_rfcs_say_in_exact_fractions() {
    all_kinds(0..200);
}

#[test]
#[ignore = "long: 60 million packets"]
fn marks_as_the_rfcs_say_in_exact_fractions_for_long() {
    all_kinds(1000..11_000);
}

const HZ: u64 = 1_000_000_000;

fn srtcm(cir: u64, cbs: u64, ebs: u64, hz: u64) -> Result<SrTcm, crate::TableError> {
    SrTcm::new(&SrTcmConfig { cir, cbs, ebs, hz })
}

/// Each a rate and its burst.
fn trtcm([cir, cbs]: [u64; 2], [pir, pbs]: [u64; 2], hz: u64) -> Result<TrTcm, crate::TableError> {
    TrTcm::new(&TrTcmConfig {
        cir,
        cbs,
        pir,
        pbs,
        hz,
    })
}

fn rfc4115(
    [cir, cbs]: [u64; 2],
    [eir, ebs]: [u64; 2],
    hz: u64,
) -> Result<TrTcm4115, crate::TableError> {
    TrTcm4115::new(&TrTcm4115Config {
        cir,
        cbs,
        eir,
        ebs,
        hz,
    })
}

/// What packets of these lengths and colours, all at tick `now`, are marked.
fn marks<P: Profile>(
    meter: P,
    buckets: &mut Buckets,
    now: u64,
    packets: &[(u32, Color)],
) -> Vec<Color> {
    let mark = |&(bytes, color)| meter.mark(buckets, now, bytes, color);
    packets.iter().map(mark).collect()
}

#[test]
fn rfc2697_3_one_rate_fills_the_committed_bucket_first() {
    // CIR 1000 bytes/s, CBS 2000, EBS 3000; both start full.
    let meter = srtcm(1000, 2000, 3000, HZ).unwrap();
    let mut buckets = meter.full(0);
    let burst = [
        (1500, Green),
        (500, Green),
        (1, Green),
        (2999, Green),
        (1, Green),
    ];
    let expected = [Green, Green, Yellow, Yellow, Red];
    assert_eq!(marks(meter, &mut buckets, 0, &burst), expected);
    // Both are empty. After 2.5 s Tc is full and Te has the 500 that overflowed.
    let burst = [
        (2001, Green),
        (501, Yellow),
        (500, Yellow),
        (2000, Green),
        (1, Green),
    ];
    let expected = [Red, Red, Yellow, Green, Red];
    let now = 2_500_000_000;
    assert_eq!(marks(meter, &mut buckets, now, &burst), expected);
    // Colour-aware: what came in yellow never takes committed tokens, red takes none.
    let burst = [
        (1000, Red),
        (1000, Yellow),
        (1000, Green),
        (1000, Yellow),
        (1000, Green),
    ];
    let expected = [Red, Yellow, Green, Yellow, Green];
    let now = 2 * now + 10 * HZ;
    assert_eq!(marks(meter, &mut buckets, now, &burst), expected);
}

#[test]
fn rfc2698_3_green_takes_from_both_buckets() {
    // PIR 2000, PBS 3000, CIR 1000, CBS 1500.
    let meter = trtcm([1000, 1500], [2000, 3000], HZ).unwrap();
    let mut buckets = meter.full(0);
    let burst = [
        (1500, Green),
        (1, Green),
        (1499, Green),
        (1, Green),
        (0, Green),
    ];
    let expected = [Green, Yellow, Yellow, Red, Green];
    assert_eq!(marks(meter, &mut buckets, 0, &burst), expected);
    // A second later Tp is 2000, Tc 1000. What exceeds the peak takes nothing, even if committed
    // tokens would do.
    let burst = [
        (2001, Green),
        (500, Yellow),
        (1000, Green),
        (501, Green),
        (500, Red),
    ];
    let expected = [Red, Yellow, Green, Red, Red];
    assert_eq!(marks(meter, &mut buckets, HZ, &burst), expected);
}

#[test]
fn rfc4115_3_yellow_leaves_the_committed_bucket_alone() {
    // CIR 1000, CBS 1500, EIR 2000, EBS 3000, independent.
    let meter = rfc4115([1000, 1500], [2000, 3000], HZ).unwrap();
    let mut buckets = meter.full(0);
    let burst = [
        (3000, Yellow),
        (1, Yellow),
        (1500, Green),
        (1, Green),
        (0, Red),
    ];
    let expected = [Yellow, Red, Green, Red, Red];
    assert_eq!(marks(meter, &mut buckets, 0, &burst), expected);
    // Half a second: Tc 500, Te 1000.
    let burst = [(501, Green), (499, Yellow), (500, Green), (1, Green)];
    let expected = [Yellow, Yellow, Green, Red];
    assert_eq!(marks(meter, &mut buckets, HZ / 2, &burst), expected);
    // Without a committed rate nothing is green once the burst is gone.
    let meter = rfc4115([0, 0], [2000, 3000], HZ).unwrap();
    let mut buckets = meter.full(0);
    assert_eq!(
        marks(meter, &mut buckets, 0, &[(64, Green), (64, Red)]),
        [Yellow, Red]
    );
}

#[test]
fn a_year_at_an_odd_rate_does_not_drift_by_a_fraction_of_a_byte() {
    let (cir, cbs, hz) = (1_234_567, 1_500_000_000, 2_999_998_123);
    let meter = srtcm(cir, cbs, 0, hz).unwrap();
    let mut buckets = meter.full(0);
    let mut random = Random::new(1);
    let (mut now, mut green) = (0, 0_u128);
    while now < 365 * 86_400 * hz {
        while meter.mark(&mut buckets, now, 20_000_001, Green) == Green {
            green += 20_000_001;
        }
        // Never so long that the bucket overflows.
        now += random.below(1000 * hz);
    }
    meter.mark(&mut buckets, now, u32::MAX, Green);
    let hz = u128::from(hz);
    let earned = u128::from(cbs) * hz + u128::from(now) * u128::from(cir);
    assert_eq!(u128::from(buckets.committed), earned - green * hz);
}

#[test]
fn packets_longer_than_a_bucket_are_never_green_and_take_nothing() {
    let meter = srtcm(1000, 50, 0, u64::MAX >> 8).unwrap();
    let mut buckets = meter.full(0);
    assert_eq!(
        meter.mark(&mut buckets, u64::MAX, u32::MAX, Green),
        Red,
        "the product saturates"
    );
    assert_eq!(meter.mark(&mut buckets, u64::MAX, 50, Green), Green);
}

#[test]
fn time_that_runs_backwards_stands_still() {
    let meter = srtcm(1000, 1000, 0, 1000).unwrap();
    let mut buckets = meter.full(5000);
    assert_eq!(meter.mark(&mut buckets, 5000, 1000, Green), Green);
    assert_eq!(meter.mark(&mut buckets, 0, 1, Green), Red);
    assert_eq!(meter.mark(&mut buckets, 5001, 1, Green), Green);
    assert_eq!(meter.mark(&mut buckets, 5001, 1, Green), Red);
}

#[test]
fn a_burst_is_marked_as_its_packets_one_by_one() {
    let mut random = Random::new(3);
    let profile = trtcm([100_000, 1500], [200_000, 3000], HZ).unwrap();
    let faster = trtcm([500_000, 6000], [900_000, 9000], HZ).unwrap();
    let mut meters = Meters::new("m", 50, profile, 0).unwrap();
    let fast = meters.add(faster);
    meters.assign(49, fast, 0);
    let mut alone: Vec<Buckets> = (0..50)
        .map(|meter| if meter == 49 { faster } else { profile }.full(0))
        .collect();
    for now in (0..3000).map(|burst| burst * 1_000_000) {
        let count = random.below(70) as usize;
        let numbers: Vec<u32> = (0..count).map(|_| random.below(50) as u32).collect();
        let bytes: Vec<u32> = (0..count).map(|_| random.below(1600) as u32).collect();
        let mut colors = vec![Green; count];
        meters.mark(now, &numbers, &bytes, &mut colors);
        for ((&meter, &bytes), &color) in numbers.iter().zip(&bytes).zip(&colors) {
            let profile = if meter == 49 { faster } else { profile };
            let buckets = &mut alone[meter as usize];
            assert_eq!(profile.mark(buckets, now, bytes, Green), color);
        }
    }
}

#[test]
fn what_the_rfcs_rule_out_is_refused_by_name() {
    let message = |error: Result<(), crate::TableError>| error.unwrap_err().to_string();
    for (error, says) in [
        (srtcm(0, 1, 1, HZ).map(drop), "cir is 0"),
        (srtcm(1, 0, 0, HZ).map(drop), "cbs and ebs are both 0"),
        (srtcm(1, 1, 1, 0).map(drop), "hz is 0"),
        (srtcm(1, 5_000_000_000, 0, HZ).map(drop), "4611686018"),
        (
            srtcm(1, u64::MAX, u64::MAX, HZ).map(drop),
            "bursts of 18446744073709551615",
        ),
        (srtcm(1 << 62, 1, 1, 1).map(drop), "a rate of"),
        (trtcm([0, 1], [0, 1], HZ).map(drop), "cir is 0"),
        (
            trtcm([2, 1], [1, 1], HZ).map(drop),
            "pir 1 is below cir 2: raise",
        ),
        (trtcm([1, 1], [2, 0], HZ).map(drop), "pbs is 0 and cbs 1"),
        (rfc4115([0, 1], [0, 1], HZ).map(drop), "both 0"),
        (rfc4115([1, 0], [1, 1], HZ).map(drop), "cbs is 0"),
        (rfc4115([1, 1], [1, 0], HZ).map(drop), "ebs is 0"),
    ] {
        let message = message(error);
        assert!(message.contains(says), "{message}");
    }
}
