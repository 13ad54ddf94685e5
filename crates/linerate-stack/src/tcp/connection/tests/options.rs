//! Clauses about options and marks: what goes along with segments, and what does not count.

use linerate_testkit::Random;

use super::link::{MS, S};
use super::script::{ACK, CWR, ECE, RST, SYN, Script, config};
use crate::tcp::config::{Config, EcnMode};
use crate::tcp::connection::{Ecn, State};
use crate::tcp::segment::{Segment, SynOptions};

/// Opened from here with what the peer's SYN says, by these settings.
fn opened(config: Config, flags: u8, change: impl FnOnce(&mut SynOptions)) -> Script {
    let mut script = Script::new(config);
    script.end.connect(script.now_ns);
    let mut options = script.syn_options();
    change(&mut options);
    script.now_ns += 100 * MS;
    script.syn(flags, 0, options);
    assert_eq!(script.state(), State::Established);
    script
}

/// With time stamps: those of the peer begin with 1000.
fn stamped() -> Script {
    let mut script = Script::new(Config::default());
    script.end.connect(script.now_ns);
    script.stamps = Some((1000, 5000_u32.wrapping_add(script.end.own.ts_offset)));
    let options = script.syn_options();
    script.now_ns += 100 * MS;
    script.syn(SYN | ACK, 0, options);
    assert!(script.info().timestamps);
    script
}

/// What options say that are unknown, or of lengths that lie, is nothing: the data counts.
#[test]
fn must_6_and_7_options_of_any_bytes_do_no_harm() {
    let mut random = Random::new(11);
    let mut script = Script::open(config());
    for step in 0..20_000 {
        let header = script.header(ACK, step, 0);
        let mut bytes = vec![0; header.len()];
        header.write(2, 1, &mut bytes);
        let options = random.below(11) as usize * 4;
        bytes.extend((0..options).map(|_| match random.below(4) {
            // Mostly of kinds that mean something, and of lengths that nearly fit.
            0 => random.below(256) as u8,
            1 => random.below(12) as u8,
            _ => [0, 1, 2, 3, 4, 5, 8, 10, 34, 254][random.below(10) as usize],
        }));
        bytes[12] = (bytes.len() as u8 / 4) << 4;
        bytes.push((step % 251) as u8);
        // Those of a SYN are read likewise.
        let _ = Segment::syn_options(&bytes);
        let packet = script.end.wire.cache.copy_of(&bytes).unwrap();
        script.end.receive(script.now_ns, packet, false);
        script.out();
        assert_eq!(script.read(step).0, 1, "{bytes:?}");
    }
    assert_eq!(script.state(), State::Established);
    assert_eq!(script.end.slots(), 0);
}

#[test]
fn rfc_7323_5_2_a_reset_is_not_judged_by_its_time_stamp() {
    let mut script = stamped();
    let echo = script.stamps.unwrap().1;
    script.stamps = Some((2000, echo));
    script.data(0, 100);
    script.stamps = Some((1, echo));
    assert!(
        script
            .segment(ACK, 100, 0, 10)
            .iter()
            .all(|seen| seen.ack == 100)
    );
    script.segment(RST, 100, 0, 0);
    assert_eq!(script.state(), State::Closed);
}

/// RFC 7323 5.3 R1, but for a bare ACK that changes nothing (Linux: tcp_disordered_ack): one that
/// tells of another window is too old for that.
#[test]
fn rfc_7323_5_3_an_old_segment_does_not_change_the_window() {
    let mut script = stamped();
    let echo = script.stamps.unwrap().1;
    script.stamps = Some((2000, echo));
    script.data(0, 100);
    script.wait(S);
    script.stamps = Some((1999, echo));
    // As it is: dropped without a word, or not; it says nothing.
    assert!(script.segment(ACK, 100, 0, 0).is_empty());
    let before = script.info().snd_wnd;
    script.window = 1;
    let out = script.segment(ACK, 100, 0, 0);
    assert_eq!((out.len(), out[0].ack), (1, 100));
    assert_eq!(script.info().snd_wnd, before);
    assert_eq!(script.end.shared.stats.too_old, 1);
}

#[test]
fn rfc_7323_5_2_the_reset_of_an_abort_has_time_stamps() {
    let mut script = stamped();
    script.end.with(script.now_ns, |c, cx| c.abort(cx));
    let out = script.out();
    assert!(out[0].has(RST) && out[0].segment.timestamps.is_some());
}

#[test]
fn rfc_7323_3_2_time_stamps_that_were_not_agreed_upon_are_ignored() {
    let mut script = opened(Config::default(), SYN | ACK, |_| ());
    assert!(!script.info().timestamps);
    // Later ones that go backward are of no interest, either.
    for (at, value) in [(0, 7000), (100, 6000)] {
        script.stamps = Some((value, 1));
        let out = script.data(at, 100);
        assert!(out.iter().all(|seen| seen.segment.timestamps.is_none()));
    }
    assert_eq!(script.read(0).0, 200);
}

#[test]
fn rfc_2018_2_and_4_without_the_peers_leave_there_is_no_sack() {
    let mut script = opened(config(), SYN | ACK, |syn| syn.sack_permitted = false);
    assert!(!script.info().sack);
    let out = script.data(1000, 100);
    assert!(!out.is_empty() && out.iter().all(|seen| seen.sacks().is_empty()));
    // The same with it.
    let mut script = opened(config(), SYN | ACK, |_| ());
    let out = script.data(1000, 100);
    assert_eq!(out[0].sacks(), [(1000, 1100)]);
    // RFC 2018 2: the option is in SYNs alone.
    assert!(out.iter().all(|seen| !seen.syn.sack_permitted));
}

#[test]
fn rfc_5961_3_2_a_reset_outside_the_window_is_dropped_in_silence() {
    let mut script = Script::open(config());
    for seq in [
        1 << 20,
        1 << 30,
        0_u32.wrapping_sub(1),
        0_u32.wrapping_sub(5000),
    ] {
        assert!(script.segment(RST, seq, 0, 0).is_empty(), "{seq}");
        assert_eq!(script.state(), State::Established);
    }
    script.segment(RST, 0, 0, 0);
    assert_eq!(script.state(), State::Closed);
}

#[test]
fn rfc_3168_6_1_6_window_probes_are_not_ect_and_have_no_cwr() {
    let ecn = Config {
        ecn: EcnMode::Request,
        ..config()
    };
    let mut script = opened(ecn, SYN | ACK | ECE, |_| ());
    assert!(script.info().ecn);
    script.write(1000);
    script.now_ns += 100 * MS;
    // The window closes, and a mark was met.
    script.window = 0;
    script.segment(ACK | ECE, 0, 1000, 0);
    script.write(5000);
    let probes = script.wait(10 * S);
    assert!(probes.len() > 2, "{probes:?}");
    for probe in &probes {
        assert!(probe.ecn == Ecn::NotCapable && !probe.has(CWR), "{probe:?}");
    }
    // What is sent when it opens says so.
    script.window = 60_000;
    let out = script.segment(ACK, 0, 1000, 0);
    assert!(out[0].len > 0 && out[0].has(CWR) && out[0].ecn == Ecn::Capable);
}

#[test]
fn rfc_3168_6_1_1_a_peer_that_refused_gets_no_marks() {
    let ecn = Config {
        ecn: EcnMode::Request,
        ..config()
    };
    let mut script = opened(ecn, SYN | ACK, |_| ());
    let out = script.write(5000);
    assert!(!out.is_empty() && out.iter().all(|seen| seen.ecn == Ecn::NotCapable));
    // Its ECE means nothing (6.1.2), and a mark is not told (6.1.3).
    script.now_ns += 100 * MS;
    let before = script.info().ssthresh_bytes;
    script.segment(ACK | ECE, 0, 1000, 0);
    assert_eq!(script.info().ssthresh_bytes, before);
    let header = script.header(ACK, 0, 1000);
    let out = script.inject(&header, 10, true);
    assert!(out.iter().all(|seen| !seen.has(ECE)));
}
