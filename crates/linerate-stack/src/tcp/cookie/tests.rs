use super::*;
use linerate_testkit::Random;
use linerate_wire::flow::{FlowKey4, FlowKey6};
use proptest::prelude::*;

const SECRET: Secret = Secret::new(0x0123_4567_89ab_cdef);
const S: u64 = 1_000_000_000;
/// In the middle of a period, at no round time.
const NOW: u64 = 1_000 * PERIOD_NS + 32 * S + 123_456_789;

const OFFER: Offer = Offer {
    mss: 1460,
    window_scale: Some(7),
    sack: true,
    ecn: true,
    has_ts: true,
};

fn key(port: u16) -> FlowKey4 {
    FlowKey4::new([198, 51, 100, 7], [192, 0, 2, 1], port, 80, 6)
}

fn echo(client_isn: u32, cookie: Cookie) -> Echo {
    Echo {
        seq: client_isn.wrapping_add(1),
        ack: cookie.isn.wrapping_add(1),
        ts_ecr: cookie.ts_val,
    }
}

fn round_trip<const K: usize, T: Tuple<K>>(tuple: &T, isn: u32, offer: &Offer) -> Option<Offer> {
    let mut cookies = Cookies::new(SECRET);
    let cookie = cookies.make(tuple, isn, offer, NOW);
    cookies.check(tuple, &echo(isn, cookie), NOW + S)
}

/// All that was offered comes back, but for the MSS, of which the class does.
#[test]
fn rfc_4987_3_6_a_cookie_of_a_syn_tells_what_was_offered() {
    fn check<const K: usize, T: Tuple<K>>(tuple: T) {
        let classes = T::MSS_CLASSES;
        let sizes = (0..=100).chain(classes.iter().flat_map(|&c| c - 1..=c + 1));
        for mss in sizes.chain([u16::MAX]) {
            let class = *(classes.iter().rfind(|&&class| class <= mss)).unwrap_or(&classes[0]);
            for bits in 0..8 {
                for scale in (0..=14).map(Some).chain([None]) {
                    let offer = Offer {
                        mss,
                        window_scale: scale,
                        sack: bits & 1 != 0,
                        ecn: bits & 2 != 0,
                        has_ts: bits & 4 != 0,
                    };
                    let bare = Offer {
                        mss: class,
                        window_scale: None,
                        sack: false,
                        ecn: false,
                        has_ts: false,
                    };
                    let whole = Offer {
                        mss: class,
                        ..offer
                    };
                    let expected = if offer.has_ts { whole } else { bare };
                    assert_eq!(round_trip(&tuple, 7, &offer), Some(expected), "{offer:?}");
                }
            }
        }
    }
    check(key(4000));
    check(FlowKey6::new([1; 16], [2; 16], 4000, 80, 6));
}

#[test]
fn rfc_7323_2_3_a_scale_above_14_is_14() {
    let offer = Offer {
        window_scale: Some(255),
        ..OFFER
    };
    let expected = Some(Some(14));
    assert_eq!(
        round_trip(&key(1), 0, &offer).map(|o| o.window_scale),
        expected
    );
}

/// A middlebox that removes time stamps from the ACK leaves a connection without what they said.
#[test]
fn an_answer_without_time_stamps_has_what_the_sequence_number_says() {
    let mut cookies = Cookies::new(SECRET);
    let cookie = cookies.make(&key(1), 5, &OFFER, NOW);
    let mut echo = echo(5, cookie);
    echo.ts_ecr = None;
    let offer = cookies
        .check(&key(1), &echo, NOW)
        .expect("the number is right");
    assert_eq!(
        (offer.mss, offer.has_ts, offer.window_scale),
        (1460, false, None)
    );
    assert!(!offer.sack && !offer.ecn);
}

#[test]
fn a_cookie_holds_for_its_period_and_the_next() {
    let mut cookies = Cookies::new(SECRET);
    assert!(!cookies.are_out(NOW));
    for made in [0, 1, PERIOD_NS - 1, PERIOD_NS, 300 * PERIOD_NS + 7, 1 << 58] {
        let cookie = cookies.make(&key(1), 5, &OFFER, made);
        let end = (made / PERIOD_NS + 2) * PERIOD_NS;
        let holds = |at| cookies.check(&key(1), &echo(5, cookie), at).is_some();
        assert!(holds(made) && holds(end - 1) && !holds(end), "{made}");
        assert!(cookies.are_out(made) && cookies.are_out(end - 1) && !cookies.are_out(end));
        // The period's eight bits come again after 4.5 hours; its hash does not.
        for later in 2..600 {
            assert!(!holds(made + later * PERIOD_NS), "{made} {later}");
        }
        // A clock that was behind when it comes back refuses, and does not panic.
        assert!(made < PERIOD_NS || !holds(made - PERIOD_NS));
    }
}

#[test]
fn a_cookie_is_for_one_tuple_and_one_client_sequence_number() {
    let mut cookies = Cookies::new(SECRET);
    let cookie = cookies.make(&key(1), 5, &OFFER, NOW);
    let good = echo(5, cookie);
    let holds = |key: &FlowKey4, echo: &Echo| cookies.check(key, echo, NOW).is_some();
    assert!(holds(&key(1), &good));
    for port in 2..20_000 {
        assert!(!holds(&key(port), &good), "{port}");
    }
    assert!(!holds(&key(1).in_zone(1), &good));
    assert!(!holds(&key(1).reversed(), &good));
    for off in (1..20_000).flat_map(|off: u32| [off, off.wrapping_neg()]) {
        let seq = good.seq.wrapping_add(off);
        assert!(!holds(&key(1), &Echo { seq, ..good }), "{off}");
    }
    let others = Cookies::new(Secret::new(1));
    assert_eq!(others.check(&key(1), &good, NOW), None);
}

/// Of the 2^32 acknowledgment numbers, 16 are right: eight classes in two periods.
#[test]
fn one_guess_in_2_28_is_right() {
    let mut cookies = Cookies::new(SECRET);
    let base = Offsets::of(&SECRET, &key(1)).seq;
    let period = (NOW / PERIOD_NS) as u32;
    let right = |age: u32, low: u32| {
        let rest = (period.wrapping_sub(age) << HASH_BITS) + low;
        let echo = Echo {
            seq: 1,
            ack: base.wrapping_add(rest).wrapping_add(1),
            ts_ecr: None,
        };
        cookies.check(&key(1), &echo, NOW).is_some()
    };
    for age in 0..2 {
        let all = 0..1 << HASH_BITS;
        assert_eq!(all.filter(|&low| right(age, low)).count(), 8, "{age}");
    }
    for age in 2..256 {
        for low in (0..1 << HASH_BITS).step_by(0xfff) {
            assert!(!right(age, low), "{age} {low}");
        }
    }
    // The right ones are one another's neighbours, so that a class is never another period's.
    let made = cookies.make(&key(1), 0, &OFFER, NOW);
    let lower = Offer { mss: 48, ..OFFER };
    let lowest = cookies.make(&key(1), 0, &lower, NOW);
    assert_eq!(made.isn.wrapping_sub(lowest.isn) & HASH_MASK, 6);
}

/// Guesses that follow no pattern.
#[test]
fn forged_answers_are_refused() {
    let cookies = Cookies::new(SECRET);
    let seed = 0x5eed;
    let mut random = Random::new(seed);
    let guess = |random: &mut Random| Echo {
        seq: random.bits() as u32,
        ack: random.bits() as u32,
        ts_ecr: None,
    };
    let right = (0..4_000_000).filter(|_| {
        let echo = guess(&mut random);
        cookies.check(&key(1), &echo, NOW).is_some()
    });
    // 0.015 are expected.
    assert!(right.count() <= 1, "seed {seed}");
}

/// Time stamps that were never ours are refused even where the sequence number is right.
#[test]
fn rfc_7323_3_2_a_time_stamp_that_was_not_sent_is_refused() {
    let mut cookies = Cookies::new(SECRET);
    let cookie = cookies.make(&key(1), 5, &OFFER, NOW);
    let good = echo(5, cookie);
    let with = |ts: u32, now| {
        let echo = Echo {
            ts_ecr: Some(ts),
            ..good
        };
        cookies.check(&key(1), &echo, now).is_some()
    };
    let ts = cookie.ts_val.expect("offered");
    let clock = Offsets::of(&SECRET, &key(1)).ts_val(NOW);
    assert!(with(ts, NOW) && with(clock, NOW));
    assert!(!with(clock.wrapping_add(1), NOW) && with(clock.wrapping_add(1), NOW + S));
    assert!(!with(clock.wrapping_sub(128_064), NOW) && with(clock.wrapping_sub(128_063), NOW));
}

#[test]
fn time_stamps_never_run_ahead_of_the_clock() {
    let mut cookies = Cookies::new(SECRET);
    let offsets = Offsets::of(&SECRET, &key(1));
    for ms in (0..500).chain((1 << 32) - 300..(1 << 32) + 300) {
        let now = ms * 1_000_000;
        for scale in [None, Some(0), Some(14)] {
            let offer = Offer {
                window_scale: scale,
                ..OFFER
            };
            let cookie = cookies.make(&key(1), 5, &offer, now);
            let ts = cookie.ts_val.expect("offered");
            let behind = offsets.ts_val(now).wrapping_sub(ts);
            assert!(behind <= TS_MASK, "{ms}: {behind}");
            assert_eq!(
                cookies.check(&key(1), &echo(5, cookie), now),
                Some(Offer { mss: 1460, ..offer })
            );
        }
    }
}

/// RFC 9293 3.4.1: a tuple's next connection begins beyond its last one, if its client's does.
#[test]
fn numbers_of_a_tuple_grow_with_the_clients_and_with_time() {
    let mut cookies = Cookies::new(SECRET);
    let mut make = |client, period| {
        let now = period * PERIOD_NS;
        cookies.make(&key(1), client, &OFFER, now).isn
    };
    for period in 0..600 {
        let step = make(9 + (1 << HASH_BITS), period + 1).wrapping_sub(make(9, period));
        assert!((1..1 << 31).contains(&step), "{period}: {step}");
    }
    // The same SYN again gets the same number, and another one an unrelated hash.
    assert_eq!(make(9, 3), make(9, 3));
    assert_ne!(make(10, 3), make(9, 3).wrapping_add(1));
}

proptest! {
    #[test]
    fn never_panics_and_agrees_with_itself(
        port: u16, isn: u32, mss: u16, bits: u8, now: u64, later in 0..PERIOD_NS,
        guess: (u32, u32, Option<u32>),
    ) {
        let offer = Offer {
            mss,
            window_scale: (bits & 1 != 0).then_some(bits >> 4),
            sack: bits & 2 != 0,
            ecn: bits & 4 != 0,
            has_ts: bits & 8 != 0,
        };
        let mut cookies = Cookies::new(SECRET);
        let cookie = cookies.make(&key(port), isn, &offer, now);
        let at = now.saturating_add(later);
        let answer = cookies.check(&key(port), &echo(isn, cookie), at);
        prop_assert_eq!(answer.map(|o| o.has_ts), Some(offer.has_ts));
        let _ = cookies.check(&key(port), &Echo { seq: guess.0, ack: guess.1, ts_ecr: guess.2 },
            at);
    }
}

/// RFC 7323 2.2: a client was told one scale, and the settings may have another by now.
#[test]
fn rfc_7323_2_2_the_scale_is_that_of_the_time_of_the_cookie() {
    const MS: u64 = 1_000_000;
    let key = key(1);
    for (first, second) in [(3, 8), (8, 3)] {
        let mut cookies = Cookies::new(Secret::new(1));
        let make = |cookies: &mut Cookies, scale, at_ms: u64| {
            cookies.tell_scale(scale, at_ms * MS);
            cookies.make(&key, 1000, &OFFER, at_ms * MS).ts_val
        };
        let old = make(&mut cookies, first, 10_000);
        let late = make(&mut cookies, first, 29_999);
        let new = make(&mut cookies, second, 30_000);
        let newer = make(&mut cookies, second, 30_100);
        for now_ms in [30_100, 31_000, 73_000] {
            let told = |ts_val| cookies.told_scale(&key, ts_val, now_ms * MS);
            assert_eq!((told(old), told(newer)), (first, second), "{now_ms}");
            // Never smaller than what was told.
            assert!(told(late) >= first && told(new) >= second, "{now_ms}");
        }
        // Another change while those of the first hold: not less than any of them.
        make(&mut cookies, 5, 40_000);
        let last = make(&mut cookies, 5, 40_100);
        let told = |ts_val| cookies.told_scale(&key, ts_val, 41_000 * MS);
        assert_eq!(told(last), 5);
        assert!(told(old) >= first && told(newer) >= second);
        // After two minutes without one there is nothing to remember.
        let again = make(&mut cookies, 9, 500_000);
        assert_eq!(cookies.told_scale(&key, again, 500_000 * MS), 9);
    }
}
