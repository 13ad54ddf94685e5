//! Requirements of RFC 9293 by their numbers, and how mechanisms of several RFCs meet.

use super::link::{MS, S};
use super::script::{ACK, FIN, MSS, RST, SYN, Script, config, no_sack, starts};
use crate::tcp::config::Config;
use crate::tcp::connection::{Error, Keepalive, Phase, State};
use crate::tcp::segment::SynOptions;

#[test]
fn must_1_and_rec_1_windows_are_unsigned_and_have_32_bits() {
    let mut script = Script::new(config());
    script.end.connect(script.now_ns);
    let options = SynOptions {
        window_scale: Some(14),
        ..script.syn_options()
    };
    script.syn(SYN | ACK, 0, options);
    script.window = u16::MAX;
    script.ack(0);
    assert_eq!(script.info().snd_wnd, 65_535 << 14);
    assert_eq!(starts(&script.write(10 * MSS)).len(), 10);
    // Without a scale, where bit 15 is the highest.
    let mut script = Script::open(config());
    script.window = 0x8000;
    script.ack(0);
    assert_eq!(script.info().snd_wnd, 0x8000);
    assert_eq!(starts(&script.write(10 * MSS)).len(), 10);
}

#[test]
fn must_11_syn_received_knows_where_it_came_from() {
    // By a simultaneous open: the user is told.
    let mut script = Script::new(config());
    script.end.connect(script.now_ns);
    let options = script.syn_options();
    script.syn(SYN, 0, options);
    assert_eq!(script.state(), State::SynReceived);
    script.segment(RST, 0, 0, 0);
    assert_eq!(script.state(), State::Closed);
    assert_eq!(script.error(), Some(Error::Refused));
}

#[test]
fn must_20_to_23_and_shld_10_11_how_long_it_is_tried() {
    let mut script = Script::open(config());
    let begin = script.now_ns;
    script.write(MSS);
    let out = script.wait(3000 * S);
    assert_eq!(script.error(), Some(Error::TimedOut));
    // SHLD-11: R2 is 100 s at least. (SHLD-10: R1, three retransmissions, is on the way to it.)
    assert!(out.last().unwrap().at_ns - begin >= 100 * S);
    assert!(out.len() > 3);
    // MUST-23: three minutes for a SYN.
    let mut script = Script::new(config());
    let begin = script.now_ns;
    script.end.connect(begin);
    let mut ended = None;
    for second in 0..1000 {
        script.wait(S);
        if script.state() == State::Closed {
            ended = Some(second);
            break;
        }
    }
    assert!(ended.is_some_and(|second| second >= 180), "{ended:?}");
}

#[test]
fn must_25_and_28_keepalives_are_off_and_two_hours_apart() {
    assert!(Config::default().keep_idle_s >= 7200);
    let mut script = Script::open(Config::default());
    assert!(script.wait(86_400 * S).is_empty());
}

#[test]
fn must_66_a_reset_counts_with_a_closed_window() {
    let closed = || {
        let mut script = Script::open(Config {
            receive_bytes: 4 * MSS,
            receive_bytes_max: 4 * MSS,
            ..config()
        });
        for at in 0..4 {
            script.data(at * MSS, MSS);
        }
        script.wait(S);
        assert_eq!(script.info().rcv_wnd, 0);
        script
    };
    let mut script = closed();
    script.segment(RST, 4 * MSS, 0, 0);
    assert_eq!(
        (script.state(), script.error()),
        (State::Closed, Some(Error::Reset))
    );
    // Elsewhere it does not.
    let mut script = closed();
    script.segment(RST, 4 * MSS + 1, 0, 0);
    assert_eq!(script.state(), State::Established);
}

#[test]
fn shld_2_a_reset_may_have_data() {
    let mut script = Script::open(config());
    script.segment(RST | ACK, 0, 0, 20);
    assert_eq!(
        (script.state(), script.error()),
        (State::Closed, Some(Error::Reset))
    );
    assert_eq!(script.end.slots(), 0);
}

#[test]
fn shld_15_and_16_a_window_that_shrinks_holds_new_data_back_and_old_data_goes_again() {
    let mut script = Script::open(no_sack());
    assert_eq!(starts(&script.write(20 * MSS)).len(), 10);
    // To three segments, of which all are under way already.
    script.window = 3 * MSS as u16;
    script.ack(0);
    let out = script.wait(2 * S);
    assert!(!out.is_empty());
    assert!(
        starts(&out).iter().all(|&seq| seq < 3 * MSS),
        "{:?}",
        starts(&out)
    );
    assert!(starts(&out).contains(&0));
    script.window = 60_000;
    let all = starts(&script.ack(10 * MSS));
    assert!(all.iter().all(|&seq| seq >= 10 * MSS) && !all.is_empty());
}

#[test]
fn shld_15_nothing_new_goes_beyond_a_window_that_has_shrunk() {
    let mut script = Script::open(config());
    script.window = 3 * MSS as u16;
    script.ack(0);
    assert_eq!(starts(&script.write(3 * MSS)).len(), 3);
    // Its edge is in the middle of what is under way.
    script.window = MSS as u16;
    assert!(script.ack(MSS).is_empty());
    assert!(script.info().cwnd_bytes >= 10 * MSS);
    assert!(script.write(2 * MSS).is_empty());
    script.window = 4 * MSS as u16;
    assert_eq!(starts(&script.ack(MSS)), [3 * MSS, 4 * MSS]);
}

#[test]
fn must_26_no_keepalive_goes_while_something_is_under_way() {
    let mut script = Script::open(config());
    let keepalive = Keepalive {
        idle_s: 1,
        interval_s: 1,
        count: 3,
    };
    let now_ns = script.now_ns;
    script
        .end
        .with(now_ns, |c, cx| c.set_keepalive(cx, Some(keepalive)));
    script.write(100);
    let out = script.wait(3 * S);
    assert!(
        out.len() > 1 && out.iter().all(|seen| seen.seq == 0),
        "{out:?}"
    );
    assert_eq!(script.end.shared.stats.keepalives, 0);
    // Then there are some.
    script.ack(100);
    let out = script.wait(1500 * MS);
    assert_eq!((out.len(), out[0].seq, out[0].len), (1, 99, 0));
    assert_eq!(script.end.shared.stats.keepalives, 1);
}

#[test]
fn rfc_5681_3_1_a_recovery_that_ends_in_a_timeout_reduces_once() {
    for config in [config(), no_sack()] {
        let is_sack = config.sack;
        let mut script = Script::open(config);
        script.write(10 * MSS);
        script.now_ns += 100 * MS;
        let before = script.info().cwnd_bytes;
        for number in 1..=4 {
            match is_sack {
                true => script.sack(0, &[(MSS, (1 + number) * MSS)]),
                false => script.ack(0),
            };
        }
        assert_eq!(script.info().phase, Phase::Recovery);
        let threshold = script.info().ssthresh_bytes;
        assert!(threshold < before);
        // The repair is lost too, and so is all that comes after it.
        script.wait(5 * S);
        assert_eq!(script.info().phase, Phase::Loss);
        assert!(script.end.shared.stats.timeouts > 0);
        assert_eq!(script.info().ssthresh_bytes, threshold, "SACK: {is_sack}");
    }
}

#[test]
fn rfc_4015_3_4_what_was_undone_is_not_reduced_by_the_end_of_the_recovery() {
    let mut script = Script::open(config());
    script.write(10 * MSS);
    script.now_ns += 100 * MS;
    let before = script.info().cwnd_bytes;
    assert_eq!(starts(&script.sack(0, &[(MSS, 5 * MSS)])), [0]);
    assert_eq!(script.info().phase, Phase::Recovery);
    script.now_ns += 10 * MS;
    // The original was late: a part is acknowledged, and then the repair is told of as a duplicate.
    script.ack(5 * MSS);
    script.sack(5 * MSS, &[(0, MSS)]);
    assert_eq!(script.end.shared.stats.undone, 1);
    assert!(script.info().cwnd_bytes >= before);
    // Past the point at which the recovery would have ended.
    script.ack(10 * MSS);
    script.write(MSS);
    script.ack(11 * MSS);
    assert!(script.info().cwnd_bytes >= before, "{:?}", script.info());
    assert_eq!(script.info().phase, Phase::Open);
}

#[test]
fn rfc_5681_4_1_a_pause_counts_once() {
    let mut script = Script::open(config());
    for round in 0..3 {
        script.write(20 * MSS);
        script.now_ns += 100 * MS;
        script.ack(round * 20 * MSS + 10 * MSS);
        script.now_ns += 100 * MS;
        script.ack((round + 1) * 20 * MSS);
    }
    script.window = 0;
    script.ack(60 * MSS);
    let grown = script.info().cwnd_bytes;
    // Not long enough for the window to go down to where it began.
    let rto = script.info().rto_ns;
    script.now_ns += rto + rto / 2;
    script.write(100);
    let first = (script.info().cwnd_bytes, script.info().ssthresh_bytes);
    assert!(first.0 < grown);
    for _ in 0..5 {
        script.write(100);
    }
    let last = (script.info().cwnd_bytes, script.info().ssthresh_bytes);
    assert_eq!(first, last);
}

#[test]
fn must_13_the_side_that_closes_first_is_told_apart() {
    // The passive side goes without TIME-WAIT; the other one has it, for 2 MSL (`time_wait`).
    let mut script = Script::open(config());
    script.segment(FIN | ACK, 0, 0, 0);
    script.seq = 1;
    script.close();
    script.ack(1);
    assert_eq!(script.state(), State::Closed);
    let mut script = Script::open(config());
    script.close();
    script.segment(FIN | ACK, 0, 1, 0);
    assert_eq!(script.state(), State::TimeWait);
}
