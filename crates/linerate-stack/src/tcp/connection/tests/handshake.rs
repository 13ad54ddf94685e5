//! How connections begin: RFC 9293 3.5, 3.10.7.2, 3.10.7.3.

use super::link::{MS, S};
use super::script::{ACK, CWR, ECE, MSS, RST, SYN, Script, config};
use crate::tcp::config::{Config, EcnMode};
use crate::tcp::connection::{Error, State, event};
use crate::tcp::segment::SynOptions;
use crate::tcp::soft::SoftError;

const BEFORE: u32 = u32::MAX;

fn calling(config: Config) -> Script {
    let mut script = Script::new(config);
    script.end.connect(script.now_ns);
    script
}

#[test]
fn rfc_9293_3_5_a_connection_is_opened() {
    let mut script = calling(config());
    let options = script.syn_options();
    script.now_ns += 100 * MS;
    let out = script.syn(SYN | ACK, 0, options);
    let (syn, ack) = (&out[0], &out[1]);
    assert_eq!((syn.seq, syn.segment.flags), (BEFORE, SYN));
    assert_eq!(syn.syn.mss, Some(1460));
    assert!(syn.syn.sack_permitted && syn.syn.window_scale.is_some());
    assert_eq!((ack.seq, ack.ack, ack.segment.flags), (0, 0, ACK));
    assert_eq!(script.state(), State::Established);
    assert_ne!(script.call(|c| c.take_events()) & event::CONNECTED, 0);
}

/// ICMP says this of the SYN; whether it is believed.
fn told(script: &mut Script, error: SoftError) -> bool {
    let syn = script.header(ACK, 0, BEFORE).ack;
    let (end, now_ns) = (&mut script.end, script.now_ns);
    end.with(now_ns, |c, cx| c.on_unreachable(cx, syn, error))
}

#[test]
fn rfc_5461_4_2_a_soft_error_ends_an_attempt_only_after_the_syn_was_sent_again() {
    let mut script = calling(config());
    assert!(told(&mut script, SoftError::HostUnreachable));
    assert_eq!((script.state(), script.error()), (State::SynSent, None));
    assert_ne!(script.call(|c| c.take_events()) & event::SOFT_ERROR, 0);
    let kept = script.call(|c| c.take_soft_error());
    assert_eq!(kept, Some(SoftError::HostUnreachable));
    // The SYN goes again, and the next one ends it.
    assert_eq!(script.wait(1500 * MS).len(), 2);
    assert!(told(&mut script, SoftError::HostUnreachable));
    assert_eq!(
        (script.state(), script.error()),
        (State::Closed, Some(Error::Unreachable))
    );
}

#[test]
fn rfc_1122_4_2_3_9_a_hard_error_ends_an_attempt_at_once() {
    for error in [SoftError::PortUnreachable, SoftError::ProtocolUnreachable] {
        let mut script = calling(config());
        // One that quotes another number is not believed.
        let other = script.header(ACK, 0, 0).ack;
        let now_ns = script.now_ns;
        script.end.with(now_ns, |c, cx| {
            assert!(!c.on_unreachable(cx, other, error));
        });
        assert_eq!(script.state(), State::SynSent);
        assert!(told(&mut script, error));
        assert_eq!(
            (script.state(), script.error()),
            (State::Closed, Some(Error::Refused))
        );
    }
}

#[test]
fn rfc_1122_4_2_3_9_in_syn_received_only_hard_errors_end_it() {
    let mut script = Script::new(config());
    let options = script.syn_options();
    script.syn(SYN, 0, options);
    // However often the answer has gone again.
    for wait_ns in [1500 * MS, 2 * S, 4 * S] {
        assert!(told(&mut script, SoftError::HostUnreachable));
        assert!(told(&mut script, SoftError::TtlExceeded));
        assert_eq!(script.state(), State::SynReceived);
        assert_eq!(script.wait(wait_ns).len(), 1);
    }
    assert!(told(&mut script, SoftError::PortUnreachable));
    assert_eq!(
        (script.state(), script.error()),
        (State::Closed, Some(Error::Refused))
    );
}

#[test]
fn rfc_1191_3_1_the_mss_option_is_of_the_link_and_not_of_the_path() {
    let mut script = Script::new(config());
    script.end.own.path_mss = 500;
    script.end.connect(script.now_ns);
    let options = script.syn_options();
    let out = script.syn(SYN | ACK, 0, options);
    assert_eq!(out[0].syn.mss, Some(1460));
    // What goes out keeps to the path.
    assert!(script.write(MSS).iter().all(|seen| seen.len == 500));
    // The same of an answer.
    let mut script = Script::new(config());
    script.end.own.path_mss = 500;
    let out = script.syn(SYN, 0, options);
    assert_eq!(
        (out[0].segment.flags, out[0].syn.mss),
        (SYN | ACK, Some(1460))
    );
    script.ack(0);
    assert!(script.write(MSS).iter().all(|seen| seen.len == 500));
}

#[test]
fn may_3_the_mss_option_is_in_every_syn() {
    // Also of a link for which the default is right.
    for mss in [536, 1220, 9000] {
        let mut script = Script::new(config());
        script.end.own.link_mss = mss;
        let options = script.syn_options();
        assert_eq!(script.syn(SYN, 0, options)[0].syn.mss, Some(mss));
        // The one that goes again has it as well.
        assert_eq!(script.wait(1500 * MS)[0].syn.mss, Some(mss));
        let mut script = Script::new(config());
        script.end.own.link_mss = mss;
        script.end.connect(script.now_ns);
        let all = script.wait(1500 * MS);
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(|seen| seen.syn.mss == Some(mss)));
    }
}

#[test]
fn rfc_9293_3_5_a_connection_is_accepted() {
    let mut script = Script::new(config());
    let options = script.syn_options();
    let out = script.syn(SYN, 0, options);
    assert_eq!(
        (out[0].seq, out[0].ack, out[0].segment.flags),
        (BEFORE, 0, SYN | ACK)
    );
    assert_eq!(script.state(), State::SynReceived);
    assert!(script.ack(0).is_empty());
    assert_eq!(script.state(), State::Established);
}

/// Figure 8.
#[test]
fn rfc_9293_3_5_both_open_at_once() {
    let mut script = calling(config());
    let options = script.syn_options();
    let out = script.syn(SYN, 0, options);
    assert_eq!(out[1].segment.flags, SYN | ACK);
    assert_eq!((out[1].seq, out[1].ack), (BEFORE, 0));
    assert_eq!(script.state(), State::SynReceived);
    script.syn(SYN | ACK, 0, options);
    assert_eq!(script.state(), State::Established);
    assert_eq!(script.info().snd_wnd, 60_000);
    assert_eq!(script.write(10).len(), 1);
}

#[test]
fn rfc_9293_3_10_7_3_wrong_acks_and_resets_of_a_syn() {
    let mut script = calling(config());
    let options = script.syn_options();
    // "If SEG.ACK =< ISS, or SEG.ACK > SND.NXT, send a reset".
    for ack in [BEFORE, 1] {
        let out = script.syn(SYN | ACK, ack, options);
        let reset = out.last().unwrap();
        assert_eq!((reset.seq, reset.segment.flags), (ack, RST));
    }
    // A reset counts if its ACK is acceptable.
    script.segment(RST | ACK, 0, 1, 0);
    script.segment(RST, 0, 0, 0);
    assert_eq!(script.state(), State::SynSent);
    script.segment(RST | ACK, 0, 0, 0);
    assert_eq!(
        (script.state(), script.error()),
        (State::Closed, Some(Error::Refused))
    );
}

#[test]
fn rfc_9293_3_10_7_4_a_wrong_ack_in_syn_received_is_reset() {
    let mut script = Script::new(config());
    let options = script.syn_options();
    script.syn(SYN, 0, options);
    for ack in [BEFORE, 1] {
        let out = script.segment(ACK, 0, ack, 0);
        assert_eq!((out[0].seq, out[0].segment.flags), (ack, RST));
    }
    assert_eq!(script.state(), State::SynReceived);
    script.segment(RST, 0, 0, 0);
    assert_eq!(script.state(), State::Closed);
}

#[test]
fn rfc_6298_5_5_a_syn_is_repeated_and_given_up() {
    let mut script = calling(Config {
        syn_retries: 3,
        ..config()
    });
    let begin = script.now_ns;
    let out = script.wait(100 * S);
    let at: Vec<_> = out.iter().map(|seen| (seen.at_ns - begin) / S).collect();
    // The first is among them: it was sent at once, and seen with the others.
    assert_eq!(at, [1, 1, 3, 7]);
    assert!(out.iter().all(|seen| seen.segment.flags == SYN));
    assert_eq!(script.error(), Some(Error::TimedOut));
}

#[test]
fn rfc_6298_5_7_after_a_repeated_syn_the_window_is_one_segment() {
    let mut script = calling(config());
    script.wait(1500 * MS);
    let options = script.syn_options();
    script.syn(SYN | ACK, 0, options);
    assert_eq!(script.info().cwnd_bytes, MSS);
    assert_eq!(script.info().rto_ns, 3 * S);
}

#[test]
fn rfc_9293_3_8_1_the_answer_to_a_syn_is_repeated() {
    let mut script = Script::new(Config {
        syn_ack_retries: 2,
        ..config()
    });
    let options = script.syn_options();
    script.syn(SYN, 0, options);
    // By the SYN, again, and by the timer.
    script.now_ns += 600 * MS;
    assert_eq!(script.syn(SYN, 0, options)[0].segment.flags, SYN | ACK);
    let out = script.wait(100 * S);
    assert_eq!(out.len(), 2, "{out:?}");
    assert!(out.iter().all(|seen| seen.segment.flags == SYN | ACK));
    assert_eq!(script.state(), State::Closed);
}

#[test]
fn rfc_7323_2_2_windows_are_scaled_by_both_or_none() {
    let mut script = calling(config());
    let options = SynOptions {
        window_scale: Some(3),
        ..script.syn_options()
    };
    script.syn(SYN | ACK, 0, options);
    let (theirs, ours) = script.info().scales;
    assert!(theirs == 3 && ours > 0);
    // That of a SYN is not.
    assert_eq!(script.info().snd_wnd, 60_000);
    script.ack(0);
    assert_eq!(script.info().snd_wnd, 480_000);
    assert_eq!(Script::open(config()).info().scales, (0, 0));
}

#[test]
fn rfc_9293_3_7_1_without_the_option_segments_have_536_bytes() {
    let mut script = calling(config());
    let options = SynOptions {
        mss: None,
        ..script.syn_options()
    };
    script.syn(SYN | ACK, 0, options);
    assert_eq!(script.info().mss, 536);
}

#[test]
fn rfc_9293_3_7_1_a_silly_segment_size_is_not_followed() {
    let mut script = calling(config());
    let options = SynOptions {
        mss: Some(1),
        ..script.syn_options()
    };
    script.syn(SYN | ACK, 0, options);
    assert_eq!(script.info().mss, 48);
}

#[test]
fn rfc_7323_3_2_time_stamps_are_agreed_upon() {
    let mut script = calling(Config::default());
    let options = script.syn_options();
    let syn_stamp = 5000_u32.wrapping_add(script.end.own.ts_offset);
    script.stamps = Some((77, syn_stamp));
    script.now_ns += 100 * MS;
    let out = script.syn(SYN | ACK, 0, options);
    assert!(script.info().timestamps);
    // Less the option's 12 bytes (RFC 9293 3.7.1).
    assert_eq!(u32::from(script.info().mss), MSS - 12);
    assert_eq!(out.last().unwrap().segment.timestamps.unwrap().1, 77);
}

#[test]
fn rfc_3168_6_1_1_ecn_is_asked_for_and_agreed_upon() {
    let asking = Config {
        ecn: EcnMode::Request,
        ..config()
    };
    for (flags, agreed) in [(SYN | ACK | ECE, true), (SYN | ACK, false)] {
        let mut script = calling(asking.clone());
        let options = script.syn_options();
        let out = script.syn(flags, 0, options);
        assert_eq!(out[0].segment.flags, SYN | ECE | CWR);
        assert_eq!(script.info().ecn, agreed);
    }
    // Both flags in the answer: a peer that only reflects (6.1.1).
    let mut script = calling(asking);
    let options = script.syn_options();
    script.syn(SYN | ACK | ECE | CWR, 0, options);
    assert!(!script.info().ecn);
    // Asked for by the peer.
    let mut script = Script::new(config());
    let out = script.syn(SYN | ECE | CWR, 0, options);
    assert_eq!(out[0].segment.flags, SYN | ACK | ECE);
}

#[test]
fn rfc_3168_6_1_1_1_the_third_syn_does_without() {
    let mut script = calling(Config {
        ecn: EcnMode::Request,
        ..config()
    });
    let out = script.wait(4 * S);
    let flags: Vec<_> = out.iter().map(|seen| seen.segment.flags).collect();
    assert_eq!(flags, [SYN | ECE | CWR, SYN | ECE | CWR, SYN]);
}

#[test]
fn rfc_9293_3_10_4_a_close_before_the_answer_says_nothing() {
    let mut script = calling(config());
    assert_eq!(script.close().len(), 1);
    assert_eq!((script.state(), script.error()), (State::Closed, None));
}
