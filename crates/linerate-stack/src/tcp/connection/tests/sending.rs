//! What goes out, and when: RFC 9293 3.7.4, 3.8.3 to 3.8.6, RFC 5681, RFC 3042, RFC 6928, RFC 3168.

use super::link::{MS, S};
use super::script::{ACK, CWR, ECE, FIN, MSS, RST, SYN, Script, config, no_sack, starts};
use crate::tcp::config::{Config, EcnMode};
use crate::tcp::connection::{Ecn, Error, Keepalive, State, event};
use crate::tcp::soft::SoftError;

#[test]
fn rfc_6928_2_ten_segments_to_begin_with() {
    let mut script = Script::open(config());
    assert_eq!(starts(&script.write(50_000)).len(), 10);
    // RFC 5681 3.1: a segment more for each that is acknowledged.
    assert_eq!(starts(&script.ack(2 * MSS)).len(), 4);
}

#[test]
fn rfc_9293_3_7_4_small_segments_wait_for_each_other() {
    let mut script = Script::open(config());
    assert_eq!(script.write(10).len(), 1);
    assert!(script.write(10).is_empty());
    // A full one does not wait.
    assert_eq!(script.write(MSS)[0].len, MSS);
    let out = script.ack(10 + MSS);
    assert_eq!(out[0].len, 10);
    // MUST-17: it can be turned off.
    let mut script = Script::open(config());
    script
        .end
        .with(script.now_ns, |c, cx| c.set_no_delay(cx, true));
    assert_eq!(script.write(10).len() + script.write(10).len(), 2);
    // A FIN does not wait.
    let mut script = Script::open(config());
    script.write(10);
    script.write(10);
    assert!(script.shutdown()[0].has(FIN));
}

#[test]
fn rfc_9293_3_8_6_2_1_no_silly_segments() {
    let mut script = Script::open(config());
    script.window = 2500;
    script.ack(0);
    assert_eq!(starts(&script.write(10_000)), [0, MSS]);
    // 500 bytes of window are left: neither a segment nor half of the largest window, 60,000.
    script.window = 500;
    assert!(starts(&script.ack(2 * MSS)).is_empty());
    // The override: what the window takes goes after a while.
    let out = script.wait(S);
    assert_eq!(out[0].len, 500);
}

#[test]
fn rfc_9293_3_8_6_1_a_closed_window_is_probed_ever_more_rarely_and_for_ever() {
    let mut script = Script::open(config());
    script.window = 0;
    script.ack(0);
    assert!(script.write(5000).is_empty());
    let mut last = (script.now_ns, 0);
    for number in 0..40 {
        let mut out = Vec::new();
        while out.is_empty() {
            out = script.wait(100 * MS);
        }
        // An answer that says no more than the last.
        let gap = out[0].at_ns - last.0;
        assert!(
            gap >= last.1 && gap <= 120 * S,
            "{number}: {gap} after {}",
            last.1
        );
        if number == 0 {
            assert_eq!(gap, 300 * MS); // the timeout (SHLD-29)
        } else if number < 8 {
            assert!(gap >= 2 * last.1 - 100 * MS); // SHLD-30
        }
        last = (out[0].at_ns, gap);
        script.ack(0);
    }
    assert_eq!(script.state(), State::Established);
    script.window = 60_000;
    assert_eq!(starts(&script.ack(0)).len(), 5);
}

#[test]
fn rfc_9293_3_8_6_1_probes_that_nobody_answers_end() {
    let mut script = Script::open(Config {
        retries: 4,
        ..config()
    });
    script.window = 0;
    script.ack(0);
    script.write(5000);
    assert_eq!(script.wait(1000 * S).len(), 4);
    assert_eq!(script.error(), Some(Error::TimedOut));
    // Nor for ever for what nobody can close any more.
    let mut script = Script::open(Config {
        orphan_retries: 4,
        ..config()
    });
    script.window = 0;
    script.ack(0);
    script.write(5000);
    script.close();
    for _ in 0..3000 {
        script.wait(100 * MS);
        if script.state() != State::Closed {
            script.ack(0);
        }
    }
    assert_eq!(script.state(), State::Closed);
}

#[test]
fn rfc_9293_3_8_6_a_window_that_is_taken_back() {
    let mut script = Script::open(Config {
        retries: 3,
        ..config()
    });
    script.write(3 * MSS);
    script.window = 0;
    script.ack(0);
    // SHLD-17: it is not timed out for what is beyond the window.
    for _ in 0..600 {
        script.wait(S);
        script.ack(0);
    }
    assert_eq!(script.state(), State::Established);
    script.window = 60_000;
    script.ack(3 * MSS);
    assert_eq!(script.info().unacked_bytes, 0);
    // Silence is another matter.
    script.write(MSS);
    script.window = 0;
    script.ack(3 * MSS);
    script.wait(1000 * S);
    assert_eq!(script.error(), Some(Error::TimedOut));
}

#[test]
fn rfc_9293_3_8_3_r2_ends_it() {
    let mut script = Script::open(Config {
        retries: 3,
        ..config()
    });
    script.write(MSS);
    let out = script.wait(1000 * S);
    assert_eq!(script.error(), Some(Error::TimedOut));
    // A loss probe, three retransmissions, each after twice the time.
    let at: Vec<_> = out.iter().map(|seen| seen.at_ns / MS).collect();
    let gaps: Vec<_> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        gaps.windows(2).all(|pair| pair[1] >= 2 * pair[0] - 10),
        "{gaps:?}"
    );
    assert!(starts(&out).iter().all(|&seq| seq == 0));
}

#[test]
fn rfc_9293_3_9_1_the_user_timeout() {
    let mut script = Script::open(config());
    script.call(|c| c.set_user_timeout(5000));
    script.write(MSS);
    script.wait(4 * S);
    assert_eq!(script.state(), State::Established);
    script.wait(10 * S);
    assert_eq!(script.error(), Some(Error::TimedOut));
}

/// MUST-25: a stack may be told that all of its connections begin with it.
#[test]
fn rfc_9293_3_8_4_keepalive_may_be_on_from_the_start() {
    let mut script = Script::open(Config {
        keepalive: true,
        keep_idle_s: 1,
        keep_interval_s: 1,
        keep_count: 3,
        ..config()
    });
    assert!(script.wait(S / 2).is_empty());
    let probes = script.wait(10 * S);
    assert_eq!(probes.len(), 4, "three, and a reset: {probes:?}");
    assert_eq!(probes[0].seq, 0_u32.wrapping_sub(1));
    assert_eq!(script.error(), Some(Error::TimedOut));
}

#[test]
fn rfc_9293_3_8_4_keepalive() {
    let mut script = Script::open(config());
    assert!(script.wait(30_000 * S).is_empty()); // MUST-25: off by default
    let keepalive = Keepalive {
        idle_s: 10,
        interval_s: 2,
        count: 3,
    };
    script
        .end
        .with(script.now_ns, |c, cx| c.set_keepalive(cx, Some(keepalive)));
    script.ack(0);
    let out = script.wait(11 * S);
    assert_eq!(
        (out.len(), out[0].seq, out[0].segment.flags),
        (1, u32::MAX, ACK)
    );
    assert_eq!(out[0].len, 0, "SHLD-12");
    script.ack(0);
    assert!(script.wait(9 * S).is_empty());
    let out = script.wait(20 * S);
    assert_eq!(out.len(), 4, "{out:?}");
    assert!(out[3].has(RST));
    assert_eq!(script.error(), Some(Error::TimedOut));
}

#[test]
fn rfc_3042_2_limited_transmit() {
    for config in [no_sack(), config()] {
        let is_sack = config.sack;
        let mut script = Script::open(config);
        script.write(50_000);
        for number in 0..2 {
            let out = match is_sack {
                true => script.sack(0, &[(MSS, (2 + number) * MSS)]),
                false => script.ack(0),
            };
            assert_eq!(starts(&out), [(10 + number) * MSS]);
        }
    }
}

#[test]
fn rfc_5681_4_1_after_a_pause_the_window_begins_anew() {
    let mut script = Script::open(config());
    for round in 0..3 {
        script.write(20 * MSS);
        script.now_ns += 100 * MS;
        script.ack(round * 20 * MSS + 10 * MSS);
        script.now_ns += 100 * MS;
        script.ack((round + 1) * 20 * MSS);
    }
    let grown = script.info().cwnd_bytes;
    assert!(grown >= 20 * MSS);
    script.wait(100 * S);
    assert_eq!(starts(&script.write(60_000)).len(), 10);
}

#[test]
fn rfc_9293_3_7_2_growth_needs_use() {
    let mut script = Script::open(config());
    for at in 0..50 {
        script.write(100);
        script.now_ns += 10 * MS;
        script.ack((at + 1) * 100);
    }
    // RFC 7661: what was never used says nothing of the path.
    assert!(
        script.info().cwnd_bytes <= 11 * MSS,
        "{}",
        script.info().cwnd_bytes
    );
}

#[test]
fn rfc_3168_6_1_2_ece_reduces_once_in_a_round_trip() {
    let mut script = Script::new(Config {
        ecn: EcnMode::Request,
        ..config()
    });
    script.end.connect(script.now_ns);
    let options = script.syn_options();
    script.now_ns += 100 * MS;
    script.syn(SYN | ACK | ECE, 0, options);
    let out = script.write(30_000);
    assert!(
        out.iter()
            .all(|seen| seen.len == 0 || seen.ecn == Ecn::Capable)
    );
    script.now_ns += 100 * MS;
    script.segment(ACK | ECE, 0, MSS, 0);
    let threshold = script.info().ssthresh_bytes;
    assert!(threshold < 10 * MSS);
    let mut out = Vec::new();
    for at in 2..=8 {
        out.extend(script.segment(ACK | ECE, 0, at * MSS, 0));
    }
    assert_eq!(script.info().ssthresh_bytes, threshold);
    // The first new segment says CWR, once.
    let with_cwr: Vec<_> = out.iter().map(|seen| seen.has(CWR)).collect();
    assert!(
        with_cwr[0] && !with_cwr[1..].contains(&true),
        "{with_cwr:?}"
    );
    // 6.1.5: not what is sent again, 6.1.4: nor bare ACKs.
    let out = script.wait(S);
    let again: Vec<_> = out.iter().filter(|seen| seen.seq < 10 * MSS).collect();
    assert!(!again.is_empty() && again.iter().all(|seen| seen.ecn == Ecn::NotCapable));
    let out = script.data(0, 10);
    assert_eq!(out.last().unwrap().ecn, Ecn::NotCapable);
}

#[test]
fn rfc_1191_6_4_a_smaller_path_sends_again_and_keeps_the_threshold() {
    let mut script = Script::open(config());
    script.write(3 * MSS);
    let before = script.info().ssthresh_bytes;
    script
        .end
        .with(script.now_ns, |c, cx| c.set_path_mss(cx, 500));
    let out = script.out();
    assert_eq!(starts(&out), [0, 500, 1000, 1500, 2000, 2500]);
    script.sack(0, &[(500, 1000)]);
    assert_eq!(script.info().ssthresh_bytes, before);
    script.ack(3 * MSS);
    assert_eq!(
        (script.info().unacked_bytes, script.info().lost_bytes),
        (0, 0)
    );
    // A larger one is not believed.
    script
        .end
        .with(script.now_ns, |c, cx| c.set_path_mss(cx, 1400));
    assert_eq!(script.info().mss, 500);
}

/// The pacer's time passes while the peer's window or Nagle holds back what there is.
#[test]
fn what_waits_for_a_window_is_not_due_for_the_pacer() {
    let mut script = Script::open(Config {
        pacing: true,
        ..config()
    });
    script.window = 3000;
    script.ack(0);
    script.write(20_000);
    script.wait(50 * MS);
    script.ack(3000);
    script.wait(50 * MS);
    script.ack(6000);
    // It would panic if a deadline did not move.
    script.wait(100 * S);
}

#[test]
fn rfc_5927_5_errors_end_only_what_is_not_established() {
    let mut script = Script::open(config());
    script.write(100);
    let quoted = script.header(ACK, 0, 0).ack;
    let now_ns = script.now_ns;
    let mut told = |quoted| {
        let error = SoftError::PortUnreachable;
        let end = &mut script.end;
        end.with(now_ns, |c, cx| c.on_unreachable(cx, quoted, error))
    };
    assert!(told(quoted));
    assert!(!told(quoted.wrapping_add(100)));
    assert_eq!(script.state(), State::Established);
}

/// RFC 1122 4.2.3.9, Linux (tcp_write_err): a connection that nobody answers any more ends with
/// what ICMP has said of it; one that was answered since does not.
#[test]
fn a_soft_error_is_what_an_unanswered_connection_ends_with() {
    for is_answered in [false, true] {
        let mut script = Script::open(config());
        script.write(100);
        let quoted = script.header(ACK, 0, 0).ack;
        let now_ns = script.now_ns;
        script.end.with(now_ns, |c, cx| {
            assert!(c.on_unreachable(cx, quoted, SoftError::HostUnreachable));
            assert_ne!(c.take_events() & event::SOFT_ERROR, 0);
        });
        if is_answered {
            script.ack(100);
            script.write(100);
        }
        script.wait(2000 * S);
        let error = script.end.with(script.now_ns, |c, _| c.error());
        let expected = match is_answered {
            false => Error::Unreachable,
            true => Error::TimedOut,
        };
        assert_eq!((script.state(), error), (State::Closed, Some(expected)));
    }
}

/// RFC 9406 4.3: HyStart++ has as many samples as a round has ACKs, also without time stamps.
#[test]
fn rfc_9406_4_3_each_ack_measures_a_round_trip() {
    let mut script = Script::open(config());
    assert_eq!(starts(&script.write(10 * MSS)).len(), 10);
    script.now_ns += 100 * MS;
    for segment in 1..=10 {
        let before = script.info().srtt_ns;
        script.now_ns += 20 * MS;
        script.ack(segment * MSS);
        assert!(script.info().srtt_ns > before, "{segment}");
    }
}

/// As Linux: what is corked goes when Nagle's algorithm is turned off; what is written then waits.
#[test]
fn what_is_corked_goes_once_when_nagle_is_turned_off() {
    let mut script = Script::open(config());
    script.call(|c| c.set_cork(true));
    assert!(script.write(40).is_empty());
    script
        .end
        .with(script.now_ns, |c, cx| c.set_no_delay(cx, true));
    assert_eq!(starts(&script.out()), [0]);
    assert!(script.write(40).is_empty());
}
