//! Losses, found, repaired and found to be none: RFC 5681 3.2, 6582, 6675, 8985, 5682, 6298, 9937.

use super::link::{MS, S};
use super::script::{ACK, ECE, MSS, SYN, Script, config, no_sack, starts};
use crate::tcp::config::Config;
use crate::tcp::connection::{Phase, State};

/// Ten segments are under way, `more` behind them are written.
fn flight(config: Config, more: u32) -> Script {
    let mut script = Script::open(config);
    assert_eq!(starts(&script.write((10 + more) * MSS)).len(), 10);
    script.now_ns += 100 * MS;
    script
}

#[test]
fn rfc_5681_3_2_three_duplicates_and_the_segment_goes_again() {
    let mut script = flight(no_sack(), 0);
    assert!(script.ack(0).is_empty());
    assert!(script.ack(0).is_empty());
    assert_eq!(starts(&script.ack(0)), [0]);
    assert_eq!(script.info().phase, Phase::Recovery);
    assert!(script.info().ssthresh_bytes < 10 * MSS);
    // A window that changes is no duplicate (2).
    let mut script = flight(no_sack(), 0);
    for window in 0..5 {
        script.window -= 1 + window;
        script.ack(0);
    }
    assert_eq!(script.info().phase, Phase::Open);
    // Nor is what has data, in order or not (2).
    for begin in [0, 1000] {
        let mut script = flight(no_sack(), 0);
        for number in 0..5 {
            script.segment(ACK, begin + number * 10, 0, 10);
        }
        assert_eq!(script.info().phase, Phase::Open);
        assert_eq!(script.end.shared.stats.retransmitted, 0);
    }
    // Nor are those that come when nothing is under way (2).
    let mut script = flight(no_sack(), 0);
    script.ack(10 * MSS);
    for _ in 0..5 {
        assert!(script.ack(10 * MSS).is_empty());
    }
    assert_eq!(starts(&script.write(MSS)), [10 * MSS]);
    assert_eq!(script.end.shared.stats.retransmitted, 0);
}

/// RFC 8985 9.2: how many have overtaken a segment does not count beside RACK, once there was
/// reordering; by RFC 6675 it does.
#[test]
fn rfc_8985_9_2_what_many_have_overtaken_waits_where_rack_is_on() {
    for rack in [true, false] {
        let mut script = flight(Config { rack, ..config() }, 0);
        script.sack(0, &[(MSS, 2 * MSS)]);
        script.now_ns += MS;
        script.ack(2 * MSS);
        assert_eq!(script.end.shared.stats.reordered, 1);
        let again = starts(&script.sack(2 * MSS, &[(3 * MSS, 9 * MSS)]));
        match rack {
            false => assert_eq!(again, [2 * MSS]),
            true => {
                assert!(again.is_empty());
                assert_eq!(script.info().phase, Phase::Disorder);
                // The window is a quarter of the least round trip.
                assert!(script.wait(20 * MS).is_empty());
                assert_eq!(starts(&script.wait(10 * MS)), [2 * MSS]);
            }
        }
    }
}

#[test]
fn rfc_6582_3_2_partial_acks_go_on() {
    let mut script = flight(no_sack(), 0);
    for _ in 0..8 {
        script.ack(0);
    }
    // The first was repaired, the fifth is missing as well.
    assert_eq!(starts(&script.ack(4 * MSS)), [4 * MSS]);
    assert_eq!(script.info().phase, Phase::Recovery);
    script.ack(10 * MSS);
    let threshold = script.info().ssthresh_bytes;
    // 4: late duplicates of this flight begin no other recovery.
    assert_eq!(starts(&script.write(5 * MSS))[0], 10 * MSS);
    for _ in 0..5 {
        let again = starts(&script.ack(10 * MSS));
        assert!(!again.contains(&(10 * MSS)));
    }
    assert_eq!(script.info().ssthresh_bytes, threshold);
    script.ack(11 * MSS);
    assert_eq!(script.info().phase, Phase::Open);
    assert_eq!(script.info().cwnd_bytes / MSS, threshold / MSS);
}

#[test]
fn rfc_6675_5_what_is_missing_goes_again_and_nothing_else() {
    for rack in [true, false] {
        let mut script = flight(Config { rack, ..config() }, 0);
        let mut again = Vec::new();
        for end in 6..=10 {
            again.extend(starts(
                &script.sack(0, &[(5 * MSS, end * MSS), (MSS, 4 * MSS)]),
            ));
        }
        assert_eq!(again, [0, 4 * MSS], "rack {rack}");
        script.ack(10 * MSS);
        assert_eq!(script.info().phase, Phase::Open);
        assert_eq!(script.end.shared.stats.timeouts, 0);
    }
}

#[test]
fn rfc_8985_6_2_what_is_overtaken_a_little_is_not_lost() {
    let mut script = flight(config(), 0);
    script.sack(0, &[(MSS, 2 * MSS)]);
    assert_eq!(script.info().phase, Phase::Disorder);
    script.now_ns += 10 * MS;
    script.ack(10 * MSS);
    assert_eq!(script.end.shared.stats.retransmitted, 0);
    // The timer of step 5: a quarter of the least round trip.
    let mut script = flight(config(), 0);
    let begin = script.now_ns;
    script.sack(0, &[(MSS, 2 * MSS)]);
    let out = script.wait(S / 10);
    assert_eq!(starts(&out)[0], 0);
    let waited = out[0].at_ns - begin;
    assert!((20 * MS..40 * MS).contains(&waited), "{waited}");
}

#[test]
fn rfc_8985_6_2_a_lost_retransmission_goes_again() {
    let mut script = flight(config(), 20);
    assert_eq!(starts(&script.sack(0, &[(MSS, 5 * MSS)]))[0], 0);
    // New data that was sent after it arrives a round trip later, it does not.
    script.now_ns += 100 * MS;
    let mut again = starts(&script.sack(0, &[(MSS, 10 * MSS)]));
    script.now_ns += 100 * MS;
    let end = script.info().unacked_bytes;
    again.extend(starts(&script.sack(0, &[(MSS, end)])));
    assert!(again.contains(&0), "{again:?}");
    assert_eq!(script.end.shared.stats.timeouts, 0);
    assert_eq!(script.end.shared.stats.lost_retransmissions, 1);
}

#[test]
fn rfc_8985_7_3_a_probe_is_new_data_or_the_last_segment() {
    // Nothing new: the last once more, after two round trips.
    let mut script = flight(config(), 0);
    script.ack(5 * MSS);
    let begin = script.now_ns;
    let out = script.wait(250 * MS);
    assert_eq!(starts(&out), [9 * MSS]);
    assert!((200 * MS..=210 * MS).contains(&(out[0].at_ns - begin)));
    // New data goes instead of it, where there is some that only the window of congestion holds.
    let mut script = flight(config(), 20);
    script.window = 12_000;
    script.sack(0, &[]);
    let begin = script.info().unacked_bytes;
    let out = script.wait(250 * MS);
    assert_eq!(starts(&out), [begin]);
    assert_eq!(script.end.shared.stats.retransmitted, 0);
}

/// Five segments are under way, and the last of them goes again as a loss probe.
fn probed() -> Script {
    let mut script = flight(config(), 0);
    script.ack(5 * MSS);
    assert_eq!(starts(&script.wait(250 * MS)), [9 * MSS]);
    script
}

#[test]
fn rfc_8985_7_4_2_a_loss_that_a_probe_repaired_is_congestion() {
    let mut script = probed();
    script.ack(10 * MSS);
    assert_eq!(script.info().phase, Phase::Open, "it cannot be told yet");
    script.write(20 * MSS);
    let before = script.info().cwnd_bytes;
    // What is behind the probe has arrived, and nothing has told of a second copy of it.
    script.ack(11 * MSS);
    let info = script.info();
    assert_eq!(info.phase, Phase::Cwr);
    assert_eq!(info.ssthresh_bytes, before / 10 * 7);
    assert_eq!(script.end.shared.stats.loss_probe_recoveries, 1);
    // It is reduced once, to the threshold and not below, and nothing goes again but the probe.
    let mut end = 11 * MSS;
    while script.info().phase == Phase::Cwr {
        end += MSS;
        script.ack(end);
    }
    let info = script.info();
    assert!(end <= 30 * MSS && info.phase == Phase::Open, "{info:?}");
    assert_eq!(info.cwnd_bytes / MSS, info.ssthresh_bytes / MSS);
    assert_eq!(script.end.shared.stats.retransmitted, 1);
}

#[test]
fn rfc_8985_7_4_2_a_probe_that_was_needless_is_none() {
    // By a D-SACK: both have arrived.
    let mut by_dsack = probed();
    by_dsack.ack(10 * MSS);
    by_dsack.sack(10 * MSS, &[(9 * MSS, 10 * MSS)]);
    // By a duplicate ACK of the probe's end, of a receiver without D-SACK.
    let mut by_duplicate = probed();
    by_duplicate.ack(10 * MSS);
    by_duplicate.ack(10 * MSS);
    for mut script in [by_dsack, by_duplicate] {
        let before = script.info();
        script.write(MSS);
        script.ack(11 * MSS);
        let info = script.info();
        assert_eq!(info.phase, Phase::Open);
        assert_eq!(info.ssthresh_bytes, before.ssthresh_bytes);
        assert_eq!(script.end.shared.stats.loss_probe_recoveries, 0);
    }
}

/// A recovery does not end the probes of the connection.
#[test]
fn rfc_8985_7_2_there_are_probes_after_a_recovery() {
    let mut script = flight(config(), 0);
    script.sack(0, &[(MSS, 10 * MSS)]);
    script.now_ns += 100 * MS;
    script.ack(10 * MSS);
    script.write(2 * MSS);
    script.now_ns += 100 * MS;
    script.ack(11 * MSS);
    script.write(2 * MSS);
    assert_eq!(script.info().phase, Phase::Open);
    let before = script.end.shared.stats.loss_probes;
    script.wait(S);
    assert_eq!(script.end.shared.stats.loss_probes, before + 1);
}

#[test]
fn rfc_6298_5_the_timeout_doubles_and_karn_measures_nothing() {
    let mut script = flight(no_sack(), 0);
    let srtt = script.info().srtt_ns;
    let out = script.wait(2 * S);
    assert!(starts(&out).iter().all(|&seq| seq == 0));
    let gap = (out[1].at_ns - out[0].at_ns) / MS;
    assert_eq!(gap, 600);
    assert_eq!(script.info().cwnd_bytes, MSS);
    let rto = script.info().rto_ns;
    script.ack(MSS);
    // Karn: neither a sample nor the end of the back-off.
    assert_eq!((script.info().srtt_ns, script.info().rto_ns), (srtt, rto));
}

#[test]
fn rfc_5681_3_1_the_threshold_goes_down_once() {
    let mut script = flight(no_sack(), 0);
    script.wait(250 * MS);
    let first = script.info().ssthresh_bytes;
    assert!(first <= 7 * MSS);
    script.wait(5 * S);
    assert_eq!(script.info().ssthresh_bytes, first);
}

#[test]
fn rfc_5682_2_1_a_timeout_that_was_too_early() {
    for config in [no_sack(), config()] {
        let mut script = flight(
            Config {
                rack: false,
                ..config
            },
            20,
        );
        let before = script.info().cwnd_bytes;
        script.wait(250 * MS);
        assert_eq!(script.end.shared.stats.timeouts, 1);
        // Step 2.b: new data. Step 3.b: what was sent once is acknowledged.
        assert!(starts(&script.ack(MSS)).iter().all(|&seq| seq >= 10 * MSS));
        script.ack(2 * MSS);
        assert!(script.info().cwnd_bytes >= before);
        assert_eq!(script.info().lost_bytes, 0);
        assert_eq!(script.end.shared.stats.spurious_timeouts, 1);
        assert_eq!(script.info().phase, Phase::Open);
    }
}

/// Until that many timeouts have come.
fn wait_for_timeouts(script: &mut Script, count: u64) {
    while script.end.shared.stats.timeouts < count {
        script.wait(10 * MS);
    }
}

/// RFC 5682 2.1 step 1: a recovery has sent again already, so that an ACK tells nothing.
#[test]
fn rfc_5682_2_1_a_timeout_in_a_recovery_is_not_judged() {
    let mut script = flight(config(), 20);
    for end in 2..=4 {
        script.sack(0, &[(MSS, end * MSS)]);
    }
    assert_eq!(script.info().phase, Phase::Recovery);
    wait_for_timeouts(&mut script, 1);
    assert_eq!(script.info().phase, Phase::Loss);
    let end = script.info().unacked_bytes;
    let out = starts(&script.sack(MSS, &[]));
    assert!(
        !out.is_empty() && out.iter().all(|&seq| seq < end),
        "{out:?}"
    );
    script.ack(5 * MSS);
    assert_eq!(script.end.shared.stats.spurious_timeouts, 0);
    assert_eq!(script.info().phase, Phase::Loss);
}

/// As Linux: a second timeout begins anew, where RFC 5682 2.1 goes on without.
#[test]
fn rfc_5682_2_1_after_another_timeout_it_begins_anew() {
    let mut script = flight(
        Config {
            rack: false,
            ..config()
        },
        20,
    );
    let before = script.info().cwnd_bytes;
    wait_for_timeouts(&mut script, 2);
    assert!(starts(&script.ack(MSS)).iter().all(|&seq| seq >= 10 * MSS));
    assert_eq!(script.end.shared.stats.spurious_timeouts, 0);
    script.ack(2 * MSS);
    assert_eq!(script.end.shared.stats.spurious_timeouts, 1);
    assert_eq!(script.info().phase, Phase::Open);
    assert!(script.info().cwnd_bytes >= before);
}

/// RFC 6298 5.1, 5.2, 5.3: it runs from the first that is sent, anew from each ACK of something
/// new, and not when all is acknowledged.
#[test]
fn rfc_6298_5_3_an_ack_of_something_new_restarts_the_timer() {
    let mut script = flight(no_sack(), 0);
    script.ack(MSS);
    let (begin, rto) = (script.now_ns, script.info().rto_ns);
    // 100 ms after it was sent.
    assert!(script.wait(rto - MS).is_empty());
    let out = script.wait(MS);
    assert_eq!((starts(&out), out[0].at_ns - begin), (vec![MSS], rto));
    // What says nothing new restarts nothing.
    let mut script = flight(no_sack(), 0);
    script.ack(MSS);
    script.now_ns += rto / 2;
    script.ack(MSS);
    assert_eq!(starts(&script.wait(rto / 2)), [MSS]);
    let mut script = flight(no_sack(), 0);
    script.ack(10 * MSS);
    assert!(script.wait(1000 * S).is_empty());
    script.write(MSS);
    let (begin, rto) = (script.now_ns, script.info().rto_ns);
    assert_eq!(script.wait(10 * S)[0].at_ns - begin, rto);
}

#[test]
fn rfc_5682_2_1_a_timeout_that_was_true() {
    let mut script = flight(no_sack(), 20);
    script.wait(250 * MS);
    script.ack(MSS);
    // Step 3.a: a duplicate ACK.
    let out = script.ack(MSS);
    assert_eq!(starts(&out)[0], MSS);
    assert_eq!(script.info().phase, Phase::Loss);
    assert_eq!(script.end.shared.stats.spurious_timeouts, 0);
}

#[test]
fn rfc_3708_a_dsack_undoes_what_was_needless() {
    let mut script = flight(config(), 0);
    let before = script.info().cwnd_bytes;
    assert_eq!(starts(&script.sack(0, &[(MSS, 5 * MSS)])), [0]);
    assert!(script.info().ssthresh_bytes < before);
    script.now_ns += 20 * MS;
    script.ack(10 * MSS);
    assert!(script.info().cwnd_bytes < before);
    // With nothing under way.
    script.sack(10 * MSS, &[(0, MSS)]);
    assert!(script.info().cwnd_bytes >= before, "{:?}", script.info());
    assert_eq!(script.info().phase, Phase::Open);
}

#[test]
fn rfc_3522_3_time_stamps_undo_what_was_needless() {
    let mut script = Script::new(Config::default());
    script.end.connect(script.now_ns);
    let offset = script.end.own.ts_offset;
    script.stamps = Some((1, 5000_u32.wrapping_add(offset)));
    let options = script.syn_options();
    script.now_ns += 100 * MS;
    script.syn(SYN | ACK, 0, options);
    let sent_at = (script.now_ns / MS) as u32;
    let mss = MSS - 12;
    script.write(10 * mss);
    let before = script.info().cwnd_bytes;
    script.now_ns += 100 * MS;
    script.stamps = Some((2, sent_at.wrapping_add(offset)));
    assert_eq!(starts(&script.sack(0, &[(mss, 5 * mss)])), [0]);
    script.now_ns += 10 * MS;
    // The echo is of the original.
    script.ack(10 * mss);
    assert!(script.info().cwnd_bytes >= before, "{:?}", script.info());
}

#[test]
fn rfc_9937_6_the_window_is_never_far_above_what_is_under_way() {
    let mut script = flight(config(), 50);
    for end in 2..=10 {
        script.sack(0, &[(MSS, end * MSS)]);
        let info = script.info();
        let in_flight = info.unacked_bytes + info.retrans_bytes;
        let in_flight = in_flight.saturating_sub(info.sacked_bytes + info.lost_bytes);
        if info.phase == Phase::Recovery {
            assert!(in_flight <= info.cwnd_bytes + MSS, "{info:?}");
        }
    }
    script.now_ns += 100 * MS;
    script.ack(10 * MSS);
    let end = script.info().unacked_bytes + 10 * MSS;
    script.ack(end);
    let info = script.info();
    assert_eq!(info.phase, Phase::Open);
    assert!(info.cwnd_bytes <= info.ssthresh_bytes + 10 * MSS);
}

/// RFC 9937 6.2: an ACK that advances, and shows that something is lost, gives no segment more than
/// it has told of; that it also tells of as much as it makes lost changes nothing.
#[test]
fn rfc_9937_6_2_an_ack_that_shows_losses_is_not_safe() {
    let mut script = flight(config(), 20);
    assert_eq!(
        starts(&script.sack(0, &[(7 * MSS, 10 * MSS)])),
        [0, MSS, 2 * MSS]
    );
    script.now_ns += 100 * MS;
    // What was sent again arrives, but for the second.
    let blocks = [(2 * MSS, 3 * MSS), (7 * MSS, 10 * MSS)];
    assert_eq!(starts(&script.sack(MSS, &blocks)), [MSS, 3 * MSS]);
    assert_eq!(script.end.shared.stats.lost_retransmissions, 1);
    // One without a loss gives a segment more.
    script.now_ns += 100 * MS;
    let blocks = [(7 * MSS, 10 * MSS)];
    let again = starts(&script.sack(4 * MSS, &blocks));
    assert_eq!(again, [4 * MSS, 5 * MSS, 6 * MSS]);
}

/// RFC 9937 6.2: without SACK a receiver that makes duplicate ACKs up gets no more than was under
/// way.
#[test]
fn rfc_9937_6_2_duplicates_without_sack_stand_for_what_was_under_way() {
    let mut script = flight(no_sack(), 50);
    let mut sent = Vec::new();
    for _ in 0..200 {
        sent.extend(starts(&script.ack(0)));
    }
    assert_eq!(script.info().phase, Phase::Recovery);
    // Limited transmit has two, the first goes again, and then seven of ten at most.
    assert_eq!(sent[..3], [10 * MSS, 11 * MSS, 0]);
    assert!(sent.len() > 3 && sent.len() <= 10, "{sent:?}");
    let info = script.info();
    assert!(info.sacked_bytes <= 10 * MSS, "{info:?}");
}

/// RFC 9937 6.1: each episode begins with nothing delivered and nothing sent.
#[test]
fn rfc_9937_6_1_each_episode_begins_anew() {
    let mut script = flight(config(), 50);
    script.ack(10 * MSS);
    script.now_ns += 100 * MS;
    let mut next = 10 * MSS;
    for _ in 0..2 {
        let end = next + script.info().unacked_bytes;
        let threshold = script.info().cwnd_bytes / 10 * 7;
        let mut sent = 0;
        for to in (next + 2 * MSS..=end).step_by(MSS as usize) {
            let out = script.sack(next, &[(next + MSS, to)]);
            if script.info().phase == Phase::Recovery {
                sent += out.iter().map(|seen| seen.len).sum::<u32>();
            }
        }
        // RFC 9937 7: as much as the threshold, however much the episodes before have sent.
        assert!(sent.abs_diff(threshold) <= 3 * MSS, "{sent} of {threshold}");
        script.now_ns += 100 * MS;
        next += script.info().unacked_bytes;
        script.ack(next);
        assert_eq!(script.info().phase, Phase::Open);
    }
    assert_eq!(script.end.shared.stats.recoveries, 2);
}

#[test]
fn rfc_2018_8_a_receiver_that_drops_what_it_told_of() {
    let mut script = flight(config(), 0);
    script.sack(0, &[(MSS, 10 * MSS)]);
    // The first has come, the second is what it asks for: although a SACK had it.
    script.ack(MSS);
    let out = script.wait(5 * S);
    let again = starts(&out);
    assert!(again.contains(&MSS), "{again:?}");
    assert_eq!(script.end.shared.stats.reneged, 1);
    assert_eq!(script.info().sacked_bytes, 0);
}

#[test]
fn blocks_that_lie_are_ignored() {
    let mut script = flight(config(), 0);
    let lies = [(20 * MSS, 30 * MSS), (2 * MSS, MSS), (5 * MSS, 5 * MSS)];
    script.sack(0, &lies);
    assert_eq!(script.info().sacked_bytes, 0);
    assert!(script.end.shared.stats.bad_sacks >= 3);
    assert_eq!(script.state(), State::Established);
    script.sack(3 * MSS, &[(0, 1 << 30)]);
    assert_eq!(script.info().unacked_bytes, 7 * MSS);
}

#[test]
fn rfc_5681_3_1_acks_of_parts_do_not_open_the_window_faster() {
    let mut whole = flight(config(), 50);
    whole.ack(MSS);
    let mut parts = flight(config(), 50);
    for at in 1..=MSS / 10 {
        parts.segment(ACK, 0, at * 10, 0);
    }
    assert_eq!(whole.info().cwnd_bytes, parts.info().cwnd_bytes);
}

/// A receiver that drops what its SACKs told of, from the first byte that it lacks on, and then
/// acknowledges a part of it: each segment goes again, and the list by time stays one.
#[test]
fn rfc_2018_8_a_sack_of_the_first_segment_counts_no_more_at_the_timeout() {
    let mut script = Script::open(config());
    assert_eq!(starts(&script.write(4 * MSS)).len(), 4);
    script.now_ns += 100 * MS;
    script.sack(0, &[(0, MSS)]);
    // The loss probe, and the timeout.
    let out = starts(&script.wait(600 * MS));
    assert_eq!(out[out.len() - 1], 0, "{out:?}");
    script.now_ns += 100 * MS;
    script.ack(10);
    script.wait(51 * MS);
    script.now_ns += 100 * MS;
    script.sack(10, &[(MSS, 2 * MSS)]);
    script.now_ns += 100 * MS;
    script.sack(10, &[(3 * MSS, 4 * MSS), (MSS, 2 * MSS)]);
    script.now_ns += 100 * MS;
    script.ack(4 * MSS);
    assert_eq!(script.info().unacked_bytes, 0);
    assert_eq!(script.end.shared.stats.reneged, 1);
}

/// RFC 5682 2.1: without SACK an ACK of all tells nothing of what came behind the hole that was
/// filled: the timeout was right, and its reduction stays.
#[test]
fn rfc_5682_2_1_without_sack_a_repaired_loss_is_no_spurious_timeout() {
    let mut script = flight(no_sack(), 0);
    assert_eq!(starts(&script.wait(250 * MS))[0], 0);
    script.ack(10 * MSS);
    let info = script.info();
    assert_eq!(script.end.shared.stats.timeouts, 1);
    assert_eq!(script.end.shared.stats.spurious_timeouts, 0);
    assert!(
        info.cwnd_bytes < 10 * MSS && info.ssthresh_bytes < 10 * MSS,
        "{info:?}"
    );
}

/// Without SACK the duplicate ACKs of a timeout's repair are over with it: they begin no recovery.
#[test]
fn duplicate_acks_of_a_timeout_count_no_more_when_it_is_repaired() {
    let mut script = flight(no_sack(), 20);
    script.wait(250 * MS);
    assert_eq!(script.info().phase, Phase::Loss);
    // RFC 5682 2.1 2.b: two new ones. Their duplicates: the timeout was right.
    assert_eq!(starts(&script.ack(MSS)), [10 * MSS, 11 * MSS]);
    for _ in 0..5 {
        script.ack(MSS);
    }
    script.ack(11 * MSS);
    let info = script.info();
    assert_eq!(script.end.shared.stats.recoveries, 0, "{info:?}");
    assert_eq!((info.phase, info.sacked_bytes), (Phase::Open, 0));
}

/// RFC 3168 6.1.2: what went down for a mark stays down, whatever D-SACKs say of a retransmission
/// that followed.
#[test]
fn rfc_3168_6_1_2_a_reduction_for_a_mark_is_not_undone() {
    for with_ece in [false, true] {
        let ecn = Config {
            ecn: crate::tcp::config::EcnMode::Request,
            ..config()
        };
        let mut script = Script::new(ecn);
        script.end.connect(script.now_ns);
        script.now_ns += 100 * MS;
        let options = script.syn_options();
        script.syn(SYN | ACK | ECE, 0, options);
        assert_eq!(starts(&script.write(10 * MSS)).len(), 10);
        script.now_ns += 100 * MS;
        script.segment(ACK | ECE, 0, MSS, 0);
        let reduced = script.info().ssthresh_bytes;
        assert!(reduced < 10 * MSS);
        // Three overtake the second, which goes again, and had only been late.
        let flags = if with_ece { ACK | ECE } else { ACK };
        let mut header = script.header(flags, 0, MSS);
        let end = 0xffff_ff01_u32;
        header
            .sacks
            .push((end.wrapping_add(2 * MSS), end.wrapping_add(6 * MSS)));
        assert_eq!(starts(&script.inject(&header, 0, false))[0], MSS);
        script.sack(6 * MSS, &[(MSS, 2 * MSS)]);
        script.ack(10 * MSS);
        let info = script.info();
        assert!(info.ssthresh_bytes <= reduced, "{info:?}, {reduced}");
        assert_eq!(script.end.shared.stats.undone, 0);
    }
}

/// A receiver may tell of the bytes of a last segment without its FIN: they have arrived, and what
/// is missing before them goes again without a timeout.
#[test]
fn rfc_6675_5_blocks_may_leave_a_fin_out() {
    let mut script = Script::open(config());
    script.write(8 * MSS + 700);
    script.shutdown();
    script.now_ns += 100 * MS;
    script.ack(7 * MSS);
    let out = script.sack(7 * MSS, &[(8 * MSS, 8 * MSS + 700)]);
    let mut again = starts(&out);
    again.extend(starts(&script.wait(100 * MS)));
    assert_eq!(again, [7 * MSS]);
    assert_eq!(script.end.shared.stats.timeouts, 0);
    script.ack(8 * MSS + 701);
    assert_eq!(script.state(), State::FinWait2);
}
