use std::collections::HashMap;

use super::*;
use linerate_testkit::Random;
use linerate_wire::flow::{FlowKey4, FlowKey6};
use linerate_wire::tcp::flag::{ACK, FIN, PSH, RST, SYN};
use proptest::prelude::*;

const SECRET: Secret = Secret::new(3);
const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// A record may stay for two steps of its clock longer.
const LATE: u64 = 2 << 24;
const T0: u64 = 1_000_000 * S;

/// Numbers close to where they wrap.
const SND_NXT: u32 = u32::MAX - 9;
const RCV_NXT: u32 = 5;
const WINDOW: u16 = 1000;

type Table = TimeWait<16, FlowKey4>;

fn key(port: u16) -> FlowKey4 {
    FlowKey4::new([198, 51, 100, 7], [192, 0, 2, 1], port, 80, 6)
}

fn facts(kind: Kind, ts_recent: Option<u32>) -> Lingering {
    Lingering {
        kind,
        snd_nxt: SND_NXT,
        rcv_nxt: RCV_NXT,
        window: WINDOW,
        ts_recent,
    }
}

fn table_of(limit: usize) -> Table {
    let config = Config {
        limit,
        ..Config::default()
    };
    Table::new(&config, SECRET).expect("it is small")
}

/// A table with the one connection `key(1)`.
fn table(kind: Kind, ts_recent: Option<u32>) -> Table {
    let mut table = table_of(8);
    table.insert(&key(1), &facts(kind, ts_recent), T0).unwrap();
    table
}

/// A segment with the numbers that are expected, without data.
fn segment(flags: u8) -> Segment {
    Segment {
        seq: RCV_NXT,
        ack: SND_NXT,
        flags,
        payload_bytes: 0,
        ts: None,
    }
}

fn seq(flags: u8, seq: u32) -> Segment {
    Segment {
        seq,
        ..segment(flags)
    }
}

/// The acknowledgement of a connection without time stamps.
const REPLY: Reply = Reply {
    seq: SND_NXT,
    ack: RCV_NXT,
    window: WINDOW,
    ts: None,
};

/// The FIN that brought the connection to TIME-WAIT.
fn fin_again() -> Segment {
    seq(FIN | ACK, RCV_NXT - 1)
}

fn is_reuse(answer: Option<Answer>) -> bool {
    matches!(answer, Some(Answer::Reuse { .. }))
}

#[test]
fn rfc_9293_3_6_1_a_connection_lingers_for_2_msl() {
    let mut table = table(Kind::TimeWait, None);
    let expected = facts(Kind::TimeWait, None);
    assert_eq!(table.lookup(&key(1), T0), Some(expected));
    assert_eq!(table.lookup(&key(1), T0 + 60 * S), Some(expected));
    assert_eq!(table.lookup(&key(2), T0), None);
    assert_eq!(table.on_segment(&key(2), &segment(ACK), T0), None);
    // It is gone for who asks, and its memory when expiry comes to it.
    assert_eq!(table.lookup(&key(1), T0 + 60 * S + LATE), None);
    assert_eq!(table.len(), 1);
    let due = table.next_expiry_ns(T0).unwrap();
    assert!((T0 + 60 * S..=T0 + 60 * S + LATE).contains(&due));
    assert_eq!((table.expire(due - 1, 9), table.len()), (0, 1));
    assert_eq!((table.expire(due, 9), table.len()), (1, 0));
    assert_eq!(table.next_expiry_ns(due), None);
    assert_eq!(table.counts().expired, 1);
}

#[test]
fn rfc_9293_3_10_7_4_a_fin_again_is_acknowledged_and_restarts_2_msl() {
    let mut table = table(Kind::TimeWait, None);
    for half_minutes in 1..9 {
        let now = T0 + half_minutes * 30 * S;
        let answer = table.on_segment(&key(1), &fin_again(), now);
        assert_eq!(answer, Some(Answer::Ack(REPLY)));
    }
    // With data before it, retransmitted with it.
    let whole = Segment {
        payload_bytes: 100,
        ..seq(FIN | ACK | PSH, (RCV_NXT - 1).wrapping_sub(100))
    };
    let now = T0 + 290 * S;
    let answer = table.on_segment(&key(1), &whole, now);
    assert_eq!(answer, Some(Answer::Ack(REPLY)));
    assert!(table.lookup(&key(1), now + 60 * S).is_some());
    assert!(table.lookup(&key(1), now + 60 * S + LATE).is_none());
}

/// Only the FIN does: nobody keeps a record alive who does not know its numbers.
#[test]
fn rfc_9293_3_10_7_4_nothing_else_restarts_2_msl() {
    let others = [
        segment(ACK),
        seq(FIN | ACK, RCV_NXT),     // another FIN
        seq(FIN | ACK, RCV_NXT - 2), // and another
        seq(FIN, RCV_NXT - 1),       // no ACK
        seq(ACK, RCV_NXT.wrapping_sub(100)),
        segment(SYN | ACK),
        segment(RST),
        Segment {
            ack: SND_NXT + 1,
            ..fin_again()
        },
    ];
    for other in others {
        let mut table = table(Kind::TimeWait, None);
        table.on_segment(&key(1), &other, T0 + 30 * S);
        assert_eq!(table.lookup(&key(1), T0 + 60 * S + LATE), None, "{other:?}");
    }
}

#[test]
fn rfc_9293_3_10_7_4_what_is_not_acceptable_is_acknowledged() {
    let unacceptable = [
        seq(ACK, RCV_NXT - 1), // a keep-alive probe
        seq(ACK, RCV_NXT + u32::from(WINDOW)),
        seq(0, RCV_NXT.wrapping_sub(1000)),
        seq(FIN | ACK, RCV_NXT + u32::from(WINDOW)),
        Segment {
            payload_bytes: 50,
            ..seq(ACK, RCV_NXT.wrapping_sub(50))
        },
    ];
    for segment in unacceptable {
        let mut table = table(Kind::TimeWait, None);
        let answer = table.on_segment(&key(1), &segment, T0);
        assert_eq!(answer, Some(Answer::Ack(REPLY)), "{segment:?}");
    }
    let acceptable = [
        segment(ACK),
        seq(ACK, RCV_NXT + u32::from(WINDOW) - 1),
        Segment {
            payload_bytes: 50,
            ..segment(ACK) // seventh: data after the FIN should not occur, and is ignored
        },
        segment(0),                  // fifth: no ACK
        seq(FIN | ACK, RCV_NXT + 1), // eighth: it has had its FIN
    ];
    for segment in acceptable {
        let mut table = table(Kind::TimeWait, None);
        let answer = table.on_segment(&key(1), &segment, T0);
        assert_eq!(answer, Some(Answer::Ignore), "{segment:?}");
    }
}

#[test]
fn rfc_9293_3_10_7_4_an_ack_of_what_was_not_sent_is_answered() {
    for kind in [Kind::TimeWait, Kind::FinWait2] {
        let mut table = table(kind, None);
        let segment = Segment {
            ack: SND_NXT.wrapping_add(1),
            ..segment(ACK)
        };
        let answer = table.on_segment(&key(1), &segment, T0);
        assert_eq!(answer, Some(Answer::Challenge(REPLY)));
    }
}

#[test]
fn rfc_1337_3_a_reset_does_not_end_time_wait() {
    let mut table = table(Kind::TimeWait, None);
    for number in [RCV_NXT, RCV_NXT + 1, RCV_NXT - 1, 0x8000_0000] {
        for flags in [RST, RST | ACK, RST | SYN, RST | FIN] {
            let answer = table.on_segment(&key(1), &seq(flags, number), T0);
            assert_eq!(answer, Some(Answer::Ignore));
        }
    }
    assert!(table.lookup(&key(1), T0).is_some());
}

/// With time stamps in both connections, those decide, whatever the sequence number.
#[test]
fn rfc_6191_2_a_syn_with_a_later_time_stamp_is_a_new_connection() {
    for number in [RCV_NXT - 3, RCV_NXT, RCV_NXT.wrapping_sub(1 << 30)] {
        let mut table = table(Kind::TimeWait, Some(u32::MAX));
        let mut with = |ts_val| {
            let segment = Segment {
                ts: Some((ts_val, 0)),
                ..seq(SYN, number)
            };
            is_reuse(table.on_segment(&key(1), &segment, T0))
        };
        assert!(with(0) && with(1 << 30)); // later: they wrap
        assert!(!with(u32::MAX - 1));
        // The same time stamp: then the number.
        assert_eq!(with(u32::MAX), number == RCV_NXT);
    }
}

#[test]
fn rfc_6191_2_without_time_stamps_a_higher_number_is_a_new_connection() {
    for ts_recent in [None, Some(7)] {
        for (number, is_new) in [
            (RCV_NXT - 2, false),
            (RCV_NXT - 1, false), // that of the FIN
            (RCV_NXT, true),
            (RCV_NXT + 0x7fff_0000, true),
            (RCV_NXT + 0x8000_0000, false),
        ] {
            let mut table = table(Kind::TimeWait, ts_recent);
            let answer = table.on_segment(&key(1), &seq(SYN, number), T0);
            assert_eq!(is_reuse(answer), is_new, "{number}");
            if !is_new {
                // RFC 5961 4.2 rather than silence.
                assert!(matches!(answer, Some(Answer::Challenge(_))), "{answer:?}");
            }
        }
    }
}

/// Segments of the old connection have no time stamps, so they are not taken for the new one's.
#[test]
fn rfc_6191_2_time_stamps_that_are_new_make_a_new_connection() {
    let syn = Segment {
        ts: Some((1, 0)),
        ..seq(SYN, RCV_NXT - 4)
    };
    let mut with = table(Kind::TimeWait, None);
    assert!(is_reuse(with.on_segment(&key(1), &syn, T0)));
    // Unless we have none: then the number decides.
    let config = Config {
        has_ts: false,
        ..Config::default()
    };
    let mut without = Table::new(&config, SECRET).unwrap();
    without
        .insert(&key(1), &facts(Kind::TimeWait, None), T0)
        .unwrap();
    assert!(!is_reuse(without.on_segment(&key(1), &syn, T0)));
}

/// RFC 9293 3.6.1, MAY-2: (1) a larger number, (2) back to TIME-WAIT if it was an old duplicate.
#[test]
fn rfc_9293_3_6_1_a_new_connection_has_a_larger_number_and_can_be_undone() {
    let offsets = Offsets::of(&SECRET, &key(1));
    // The old connection's numbers are behind the clock, and far ahead of it.
    for ahead in [0_u32.wrapping_sub(1 << 20), 0, 65_000, 70_000, 1 << 20] {
        let mut table = table_of(8);
        let old = Lingering {
            snd_nxt: offsets.isn(T0).wrapping_add(ahead),
            ..facts(Kind::TimeWait, None)
        };
        table.insert(&key(1), &old, T0).unwrap();
        let answer = table.on_segment(&key(1), &segment(SYN), T0);
        let Some(Answer::Reuse { isn }) = answer else {
            panic!("{answer:?}");
        };
        let gap = isn.wrapping_sub(old.snd_nxt);
        assert!((65_537..1 << 31).contains(&gap), "{gap}");
        // RFC 6528: the clock's number where that is large enough.
        assert_eq!(isn == offsets.isn(T0), ahead == 0_u32.wrapping_sub(1 << 20));
        assert_eq!(table.lookup(&key(1), T0), Some(old));
        assert!(table.remove(&key(1)) && !table.remove(&key(1)));
        assert_eq!(table.on_segment(&key(1), &segment(SYN), T0), None);
    }
}

#[test]
fn rfc_5961_4_2_other_syns_are_challenged() {
    for flags in [SYN | ACK, SYN | FIN, SYN | ACK | FIN] {
        for number in [RCV_NXT - 1, RCV_NXT, RCV_NXT + 100_000] {
            for kind in [Kind::TimeWait, Kind::FinWait2] {
                let mut table = table(kind, None);
                let answer = table.on_segment(&key(1), &seq(flags, number), T0);
                assert_eq!(answer, Some(Answer::Challenge(REPLY)));
            }
        }
    }
    // An orphan is a connection, which no SYN replaces.
    let mut table = table(Kind::FinWait2, None);
    let answer = table.on_segment(&key(1), &segment(SYN), T0);
    assert_eq!(answer, Some(Answer::Challenge(REPLY)));
}

#[test]
fn rfc_7323_5_3_an_old_time_stamp_is_acknowledged_and_goes_no_further() {
    for kind in [Kind::TimeWait, Kind::FinWait2] {
        let mut table = table(kind, Some(1000));
        let with = |ts_val, segment| Segment {
            ts: Some((ts_val, 0)),
            ..segment
        };
        let reply = |table: &mut Table, segment, now| match table.on_segment(&key(1), &segment, now)
        {
            Some(Answer::Ack(reply)) => reply,
            other => panic!("{other:?}"),
        };
        // The peer's latest time stamp is echoed, ours is the tuple's clock.
        let answer = reply(&mut table, with(999, segment(ACK)), T0 + S);
        let ts_val = Offsets::of(&SECRET, &key(1)).ts_val(T0 + S);
        assert_eq!(answer.ts, Some((ts_val, 1000)));
        // A FIN that is old does not restart 2 MSL, nor end FIN-WAIT-2.
        reply(&mut table, with(999, fin_again()), T0 + 30 * S);
        reply(&mut table, with(999, segment(FIN | ACK)), T0 + 40 * S);
        assert_eq!(table.lookup(&key(1), T0 + 60 * S + LATE), None);
        assert_eq!(table.lookup(&key(1), T0).map(|was| was.kind), Some(kind));
    }
}

#[test]
fn rfc_7323_4_3_the_latest_time_stamp_is_kept() {
    let mut table = table(Kind::TimeWait, Some(1000));
    let mut echoed = |segment: Segment, ts_val| {
        let segment = Segment {
            ts: Some((ts_val, 0)),
            ..segment
        };
        table.on_segment(&key(1), &segment, T0);
        table.lookup(&key(1), T0).unwrap().ts_recent
    };
    assert_eq!(echoed(segment(ACK), 1001), Some(1001));
    assert_eq!(echoed(fin_again(), 1002), Some(1002));
    // Not from beyond what was acknowledged, and not from outside the window.
    assert_eq!(echoed(seq(ACK, RCV_NXT + 1), 1003), Some(1002));
    assert_eq!(echoed(seq(ACK, RCV_NXT + 100_000), 1003), Some(1002));
}

#[test]
fn rfc_7323_3_2_a_segment_without_its_time_stamps_is_dropped() {
    let mut table = table(Kind::TimeWait, Some(1000));
    for segment in [fin_again(), segment(ACK), seq(ACK, 0x8000_0000)] {
        let answer = table.on_segment(&key(1), &segment, T0);
        assert_eq!(answer, Some(Answer::Ignore));
    }
}

#[test]
fn rfc_9293_3_10_7_4_the_fin_turns_an_orphan_into_time_wait() {
    for window in [0, WINDOW] {
        let mut table = table_of(8);
        let orphan = Lingering {
            window,
            ..facts(Kind::FinWait2, Some(7))
        };
        table.insert(&key(1), &orphan, T0).unwrap();
        let fin = Segment {
            ts: Some((9, 0)),
            ..segment(FIN | ACK)
        };
        let now = T0 + 30 * S;
        let answer = table.on_segment(&key(1), &fin, now);
        let Some(Answer::Ack(reply)) = answer else {
            panic!("{answer:?}");
        };
        let ts_val = Offsets::of(&SECRET, &key(1)).ts_val(now);
        assert_eq!(
            (reply.ack, reply.ts),
            (RCV_NXT + 1, Some((ts_val, 9))),
            "window {window}"
        );
        let expected = Lingering {
            kind: Kind::TimeWait,
            rcv_nxt: RCV_NXT + 1,
            ts_recent: Some(9),
            ..orphan
        };
        assert_eq!(table.lookup(&key(1), now + 60 * S), Some(expected));
        assert_eq!(table.lookup(&key(1), now + 60 * S + LATE), None);
    }
}

#[test]
fn rfc_9293_3_6_1_data_for_an_orphan_resets_the_connection() {
    let data = Segment {
        payload_bytes: 10,
        ..segment(ACK)
    };
    let with_fin = Segment {
        flags: FIN | ACK,
        ..data
    };
    let later_fin = seq(FIN | ACK, RCV_NXT + 10); // what is before it got lost
    let overlapping = Segment {
        payload_bytes: 10,
        ..seq(ACK, RCV_NXT.wrapping_sub(9))
    };
    for segment in [data, with_fin, later_fin, overlapping] {
        let mut table = table(Kind::FinWait2, None);
        let answer = table.on_segment(&key(1), &segment, T0);
        assert_eq!(answer, Some(Answer::Reset { seq: SND_NXT }), "{segment:?}");
        assert_eq!((table.len(), table.counts().ended), (0, 1));
    }
    // What was received before is no new data.
    let mut table = table(Kind::FinWait2, None);
    let old = Segment {
        payload_bytes: 9,
        ..overlapping
    };
    assert_eq!(
        table.on_segment(&key(1), &old, T0),
        Some(Answer::Ack(REPLY))
    );
    assert_eq!(
        table.on_segment(&key(1), &segment(ACK), T0),
        Some(Answer::Ignore)
    );
    assert_eq!(table.len(), 1);
}

#[test]
fn rfc_5961_3_2_a_reset_ends_an_orphan_by_the_exact_number_alone() {
    let mut table = table(Kind::FinWait2, None);
    let mut at = |number, now| table.on_segment(&key(1), &seq(RST, number), now);
    let last = RCV_NXT + u32::from(WINDOW) - 1;
    assert_eq!(at(RCV_NXT + 1, T0), Some(Answer::Challenge(REPLY)));
    assert_eq!(at(last, T0 + S), Some(Answer::Challenge(REPLY)));
    assert_eq!(at(last + 1, T0 + 2 * S), Some(Answer::Ignore));
    assert_eq!(at(RCV_NXT - 1, T0 + 3 * S), Some(Answer::Ignore));
    assert_eq!(at(RCV_NXT, T0 + 4 * S), Some(Answer::Closed));
    assert_eq!(at(RCV_NXT, T0 + 5 * S), None);
}

/// Two ends that disagree would answer one another for ever.
#[test]
fn answers_without_data_are_half_a_second_apart() {
    let mut table = table(Kind::TimeWait, None);
    let mut answers = 0;
    for ms in 0..10_000 {
        let answer = table.on_segment(&key(1), &seq(ACK, RCV_NXT - 1), T0 + ms * MS);
        answers += usize::from(answer == Some(Answer::Ack(REPLY)));
    }
    assert!((14..=20).contains(&answers), "{answers}");
    assert_eq!(table.counts().unanswered, 10_000 - answers as u64);
    // Retransmitted data and FINs are no such loop.
    let data = Segment {
        payload_bytes: 1,
        ..seq(ACK, RCV_NXT - 1)
    };
    for segment in [data, fin_again()] {
        for _ in 0..3 {
            let answer = table.on_segment(&key(1), &segment, T0 + 10 * S);
            assert_eq!(answer, Some(Answer::Ack(REPLY)));
        }
    }
}

/// As Linux' `tcp_tw_reuse`.
#[test]
fn our_own_end_connects_again_after_a_second_with_time_stamps() {
    let with = table(Kind::TimeWait, Some(7));
    assert_eq!(with.reconnect(&key(1), T0 + S), None);
    let isn = with.reconnect(&key(1), T0 + S + LATE).unwrap();
    assert!((65_537..1 << 31).contains(&isn.wrapping_sub(SND_NXT)));
    assert_eq!(with.reconnect(&key(2), T0 + 2 * S), None);
    let without = table(Kind::TimeWait, None);
    assert_eq!(without.reconnect(&key(1), T0 + 2 * S), None);
    let orphan = table(Kind::FinWait2, Some(7));
    assert_eq!(orphan.reconnect(&key(1), T0 + 2 * S), None);
}

#[test]
fn when_full_the_oldest_goes_and_is_counted() {
    let mut table = table_of(100);
    for port in 0..250_u16 {
        let now = T0 + u64::from(port) * MS;
        table
            .insert(&key(port), &facts(Kind::TimeWait, None), now)
            .unwrap();
        assert_eq!(table.len(), usize::from(port + 1).min(100));
    }
    for port in 0..250 {
        let lingers = table.lookup(&key(port), T0 + S).is_some();
        assert_eq!(lingers, port >= 150, "{port}");
    }
    assert_eq!(table.counts().evicted, 150);
    // What is over was not evicted.
    table
        .insert(&key(999), &facts(Kind::TimeWait, None), T0 + 99 * S)
        .unwrap();
    assert_eq!((table.counts().evicted, table.counts().expired), (150, 1));
}

/// A peer that repeats its FIN keeps its own record, not those behind it.
#[test]
fn restarted_records_hold_nobody_up() {
    let mut table = table_of(1000);
    for port in 0..500 {
        table
            .insert(&key(port), &facts(Kind::TimeWait, None), T0)
            .unwrap();
    }
    for port in (0..500).step_by(2) {
        table.on_segment(&key(port), &fin_again(), T0 + 30 * S);
    }
    let now = T0 + 60 * S + LATE;
    while table.expire(now, 64) == 64 {}
    assert_eq!((table.len(), table.counts().expired), (250, 250));
    assert!(table.lookup(&key(2), now).is_some());
    while table.expire(now + 30 * S, 64) == 64 {}
    assert!(table.is_empty());
    assert_eq!(table.next_expiry_ns(now), None);
}

#[test]
fn kinds_may_wait_for_different_times() {
    let config = Config {
        limit: 100,
        time_wait_ns: 120 * S,
        fin_wait2_ns: 10 * S,
        has_ts: true,
    };
    let mut table = Table::new(&config, SECRET).unwrap();
    for port in 0..100 {
        let kind = [Kind::TimeWait, Kind::FinWait2][usize::from(port % 2)];
        table.insert(&key(port), &facts(kind, None), T0).unwrap();
    }
    while table.expire(T0 + 10 * S + LATE, 8) == 8 {}
    assert_eq!(table.len(), 50);
    while table.expire(T0 + 120 * S + LATE, 8) == 8 {}
    assert_eq!(table.len(), 0);
}

/// The share of the index and all rounding included.
#[test]
fn a_full_table_takes_64_bytes_a_record() {
    let limit = 200_000;
    let mut four = table_of(limit);
    let mut random = Random::new(1);
    while four.len() < limit {
        let (host, port) = (random.bits() as u32, random.bits() as u16);
        let key = FlowKey4::new(host.to_be_bytes(), [192, 0, 2, 1], port, 80, 6);
        let facts = facts(Kind::TimeWait, None);
        four.insert(&key, &facts, T0).unwrap();
    }
    let each = four.memory_bytes() as f64 / limit as f64;
    assert!(each <= 64.0, "{each}");
    let config = Config {
        limit,
        ..Config::default()
    };
    let mut six = TimeWait::<40, FlowKey6>::new(&config, SECRET).unwrap();
    while six.len() < limit {
        let host = u128::from(random.bits()).to_be_bytes();
        let key = FlowKey6::new(host, [2; 16], 1, 80, 6);
        six.insert(&key, &facts(Kind::TimeWait, None), T0).unwrap();
    }
    let each = six.memory_bytes() as f64 / limit as f64;
    assert!(each <= 152.0, "{each}");
}

#[test]
fn a_limit_of_zero_is_refused() {
    let config = Config {
        limit: 0,
        ..Config::default()
    };
    let error = Table::new(&config, SECRET).err();
    assert!(matches!(error, Some(TableError::ExactLimit { .. })));
}

/// Random use against a map: nothing is lost, nothing stays, and the counts add up.
#[test]
fn every_record_is_accounted_for() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let limit = 1 + random.below(60) as usize;
        let mut table = table_of(limit);
        // The tuple's number among all inserts, and when it is over.
        let mut model: HashMap<u16, u64> = HashMap::new();
        let mut now = T0;
        for _ in 0..20_000 {
            now += random.below(2 * S);
            let port = random.below(100) as u16;
            let evicted = table.counts().evicted;
            match random.below(10) {
                0..4 => {
                    let kind = [Kind::TimeWait, Kind::FinWait2][random.below(2) as usize];
                    table.insert(&key(port), &facts(kind, None), now).unwrap();
                    if table.counts().evicted > evicted {
                        let lost = |port: &u16| table.lookup(&key(*port), now).is_none();
                        let over = |port: &u16| model[port] <= now;
                        let lost: Vec<_> = (model.keys().copied())
                            .filter(|p| lost(p) && !over(p))
                            .collect();
                        assert!(lost.len() <= 1, "seed {seed}");
                        lost.iter().for_each(|port| _ = model.remove(port));
                    }
                    model.insert(port, now + 60 * S);
                }
                4 => assert_eq!(
                    table.remove(&key(port)),
                    model.remove(&port).is_some(),
                    "seed {seed}"
                ),
                5 => {
                    table.expire(now, random.below(8) as usize);
                }
                _ => {
                    let segment = Segment {
                        seq: RCV_NXT.wrapping_add(random.below(4) as u32).wrapping_sub(2),
                        payload_bytes: random.below(3) as u32,
                        ..segment(random.below(32) as u8)
                    };
                    let was = table.lookup(&key(port), now);
                    let answer = table.on_segment(&key(port), &segment, now);
                    assert_eq!(answer.is_some(), was.is_some(), "seed {seed}");
                    if was.is_some() {
                        match table.lookup(&key(port), now) {
                            None => _ = model.remove(&port),
                            // Whether it was restarted shows in its time only.
                            Some(_) => {
                                if table.lookup(&key(port), model[&port] + LATE).is_some() {
                                    model.insert(port, now + 60 * S);
                                }
                            }
                        }
                    }
                }
            }
            // Looking up what is over in the table removes it in the model too.
            model.retain(|port, over| {
                let lingers = table.lookup(&key(*port), now).is_some();
                assert!(lingers || now >= *over, "seed {seed}: {port} is lost");
                assert!(!lingers || now <= *over + LATE, "seed {seed}: {port} stays");
                lingers || table.index.lookup(&key(*port).0).is_some()
            });
            let counts = table.counts();
            let gone = counts.expired + counts.evicted + counts.removed + counts.ended;
            assert_eq!(counts.inserted, gone + table.len() as u64, "seed {seed}");
            assert!(table.len() <= limit && table.ring.len() <= limit);
            assert_eq!(table.len(), model.len(), "seed {seed}");
        }
        while !table.is_empty() {
            now += S;
            table.expire(now, 16);
        }
        // Places that were left are given back when they come to the front.
        assert!(
            table
                .ring
                .iter()
                .all(|record| record.stamp.kind().is_none())
        );
    }
}

proptest! {
    #[test]
    fn never_panics(
        fields: (u32, u32, u8, u32, Option<(u32, u32)>),
        now: u64,
        kind in prop_oneof![Just(Kind::TimeWait), Just(Kind::FinWait2)],
        ts_recent: Option<u32>,
    ) {
        let mut table = table(kind, ts_recent);
        let (seq, ack, flags, payload_bytes, ts) = fields;
        let segment = Segment { seq, ack, flags, payload_bytes, ts };
        for now in [T0, now] {
            let _ = table.on_segment(&key(1), &segment, now);
            let _ = (table.reconnect(&key(1), now), table.next_expiry_ns(now));
            table.expire(now, 3);
        }
    }
}
