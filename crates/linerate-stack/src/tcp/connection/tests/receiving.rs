//! What comes in: RFC 9293 3.10.7.4 and 3.8.6, RFC 7323 5, RFC 2018, RFC 2883, RFC 5681 4.2.

use super::link::{MS, S};
use super::script::{ACK, CWR, ECE, MSS, SYN, Script, config, no_sack};
use crate::tcp::config::{Config, EcnMode};
use crate::tcp::segment::SynOptions;

/// Past the ACKs that go at once.
fn settled() -> (Script, u32) {
    let mut script = Script::open(config());
    let mut at = 0;
    for _ in 0..20 {
        script.now_ns += 5 * MS;
        script.data(at, MSS);
        at += MSS;
        script.read(at - MSS);
    }
    script.wait(S / 10);
    (script, at)
}

#[test]
fn rfc_9293_3_10_7_4_what_is_outside_the_window_is_answered_and_dropped() {
    let mut script = Script::open(config());
    let out = script.segment(ACK, 2_000_000, 0, 10);
    assert_eq!((out.len(), out[0].ack, out[0].seq), (1, 0, 0));
    let out = script.segment(ACK, 0_u32.wrapping_sub(50), 0, 10);
    assert_eq!((out.len(), out[0].ack), (1, 0));
    assert_eq!((script.info().readable_bytes, script.end.slots()), (0, 0));
}

#[test]
fn rfc_9293_3_10_7_4_overlaps_are_cut() {
    let mut script = Script::open(config());
    script.data(0, 100);
    script.segment(ACK, 50, 0, 100);
    script.segment(ACK, 0_u32.wrapping_sub(20), 0, 200);
    script.segment(ACK, 250, 0, 50);
    script.segment(ACK, 170, 0, 200);
    assert_eq!(script.read(0).0, 370);
    assert_eq!(script.end.slots(), 0);
}

#[test]
fn rfc_2018_4_each_ack_tells_of_the_newest_first() {
    let mut script = Script::open(config());
    let out = script.data(1000, 100);
    assert_eq!((out[0].ack, out[0].sacks()), (0, vec![(1000, 1100)]));
    let out = script.data(3000, 100);
    assert_eq!(out[0].sacks(), [(3000, 3100), (1000, 1100)]);
    let out = script.data(0, 1000);
    // RFC 5681 4.2: what fills a hole is acknowledged at once.
    assert_eq!((out[0].ack, out[0].sacks()), (1100, vec![(3000, 3100)]));
    // None without the option.
    let mut script = Script::open(no_sack());
    assert!(script.data(1000, 100)[0].sacks().is_empty());
}

#[test]
fn rfc_2883_4_duplicates_are_told_first() {
    let mut script = Script::open(config());
    script.data(0, 1000);
    let out = script.segment(ACK, 0, 0, 1000);
    assert_eq!((out[0].ack, out[0].sacks()), (1000, vec![(0, 1000)]));
    script.data(2000, 500);
    let out = script.segment(ACK, 2000, 0, 500);
    assert_eq!(out[0].sacks(), [(2000, 2500), (2000, 2500)]);
}

#[test]
fn rfc_9293_3_8_6_3_acks_are_quick_then_delayed() {
    let mut script = Script::open(config());
    assert_eq!(script.data(0, 10).len(), 1);
    let (mut script, at) = settled();
    let begin = script.now_ns;
    assert!(script.data(at, 100).is_empty());
    let out = script.wait(S);
    assert_eq!(out.len(), 1);
    let delay = out[0].at_ns - begin;
    assert!((40 * MS..=200 * MS).contains(&delay), "{delay}");
    // Every second full segment at once (SHLD-18, MUST-58: RFC 5681 4.2).
    let (mut script, at) = settled();
    assert!(script.data(at, MSS).is_empty());
    let out = script.data(at + MSS, MSS);
    assert_eq!((out.len(), out[0].ack), (1, at + 2 * MSS));
}

#[test]
fn rfc_9293_3_8_6_3_an_answer_has_the_ack() {
    let (mut script, at) = settled();
    assert!(script.data(at, 100).is_empty());
    let out = script.write(10);
    assert_eq!((out.len(), out[0].ack, out[0].len), (1, at + 100, 10));
    script.ack(10);
    assert!(script.wait(S).is_empty());
}

#[test]
fn rfc_9293_3_8_6_2_2_the_window_opens_by_segments() {
    let mut script = Script::open(Config {
        receive_bytes: 8 * MSS,
        receive_bytes_max: 8 * MSS,
        ..config()
    });
    for at in 0..8 {
        script.data(at * MSS, MSS);
    }
    script.wait(S);
    assert_eq!(script.info().rcv_wnd, 0);
    // A probe of one byte is answered and not taken.
    let out = script.segment(ACK, 8 * MSS, 0, 1);
    assert_eq!((out[0].ack, out[0].segment.window), (8 * MSS, 0));
    let mut buffer = vec![0; 10];
    let now_ns = script.now_ns;
    script.end.with(now_ns, |c, cx| {
        assert_eq!(c.read(cx, &mut buffer), Ok(10));
        c.push(cx);
    });
    assert!(script.end.wire.out.is_empty());
    let (_, out) = script.read(10);
    assert!(u32::from(out[0].segment.window) >= 4 * MSS);
}

#[test]
fn rfc_9293_3_8_6_many_segments_of_a_byte_are_taken() {
    let mut script = Script::open(config());
    for at in (0..2000).rev() {
        script.data(at, 1);
    }
    assert_eq!(script.read(0).0, 2000);
    assert_eq!(script.end.slots(), 0);
}

fn stamped() -> Script {
    let mut script = Script::new(Config::default());
    script.end.connect(script.now_ns);
    script.stamps = Some((1000, 5000_u32.wrapping_add(script.end.own.ts_offset)));
    let options = script.syn_options();
    script.now_ns += 100 * MS;
    script.syn(SYN | ACK, 0, options);
    script
}

#[test]
fn rfc_7323_5_3_old_time_stamps_are_refused() {
    let mut script = stamped();
    let echo = script.stamps.unwrap().1;
    script.stamps = Some((2000, echo));
    script.data(0, 100);
    script.stamps = Some((1999, echo));
    let out = script.data(100, 100);
    // "Send an acknowledgment in reply".
    assert_eq!((out.len(), out[0].ack), (1, 100));
    assert_eq!(script.read(0).0, 100);
    assert_eq!(script.end.shared.stats.too_old, 1);
    // 5.5: after 24 days they say nothing.
    script.now_ns += 25 * 24 * 3600 * S;
    script.data(100, 100);
    assert_eq!(script.read(100).0, 100);
}

#[test]
fn rfc_7323_4_3_the_stamp_to_echo_is_of_the_oldest_unacknowledged() {
    let mut script = stamped();
    let echo = script.stamps.unwrap().1;
    script.stamps = Some((1100, echo));
    script.data(0, 100);
    script.stamps = Some((1200, echo));
    let out = script.data(1000, 100);
    assert_eq!(out[0].segment.timestamps.unwrap().1, 1100);
    // Of two that one delayed ACK answers, the first's.
    let mut script = stamped();
    let mut at = 0;
    for _ in 0..20 {
        script.now_ns += 5 * MS;
        script.data(at, MSS - 12);
        at += MSS - 12;
        script.read(at - (MSS - 12));
    }
    script.wait(S / 10);
    for (stamp, from) in [(1100, at), (1200, at + 400)] {
        script.stamps = Some((stamp, echo));
        assert!(script.data(from, 400).is_empty());
    }
    let out = script.wait(S);
    assert_eq!((out.len(), out[0].ack), (1, at + 800));
    assert_eq!(out[0].segment.timestamps.unwrap().1, 1100);
    // The next one counts from there.
    script.stamps = Some((1300, echo));
    let out = script.data(at + 800, 400);
    assert_eq!(out[0].segment.timestamps.unwrap().1, 1300);
}

#[test]
fn rfc_5961_5_2_a_wrong_ack_sets_no_clock() {
    let mut script = stamped();
    let echo = script.stamps.unwrap().1;
    script.stamps = Some((1 << 30, echo));
    script.segment(ACK, 0, 5000, 10);
    script.stamps = Some((1100, echo));
    script.data(0, 100);
    assert_eq!(script.read(0).0, 100);
}

#[test]
fn rfc_3168_6_1_3_marks_are_told_until_cwr() {
    let mut script = Script::new(Config {
        ecn: EcnMode::Request,
        ..config()
    });
    script.end.connect(script.now_ns);
    let options = SynOptions {
        ..script.syn_options()
    };
    script.syn(SYN | ACK | ECE, 0, options);
    let header = script.header(ACK, 0, 0);
    let out = script.inject(&header, 100, true);
    assert!(out[0].has(ECE));
    script.seq = 100;
    assert!(script.data(100, 100)[0].has(ECE));
    let out = script.segment(ACK | CWR, 200, 0, 100);
    assert!(!out[0].has(ECE));
}
