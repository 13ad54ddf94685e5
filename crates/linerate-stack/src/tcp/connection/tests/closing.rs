//! How connections end: RFC 9293 3.6, 3.10.7.4; resets and SYNs in the window: RFC 5961.

use super::link::{MS, S};
use super::script::{ACK, FIN, RST, SYN, Script, config};
use crate::tcp::connection::{Error, State, event};

#[test]
fn rfc_9293_3_6_the_side_that_closes_first_waits() {
    let mut script = Script::open(config());
    let out = script.shutdown();
    assert_eq!((out[0].seq, out[0].segment.flags), (0, FIN | ACK));
    assert_eq!(script.state(), State::FinWait1);
    script.ack(1);
    assert_eq!(script.state(), State::FinWait2);
    // The peer may still send.
    script.data(0, 100);
    assert_eq!(script.read(0).0, 100);
    let out = script.segment(FIN | ACK, 100, 1, 0);
    assert_eq!(
        (out[0].seq, out[0].ack, out[0].segment.flags),
        (1, 101, ACK)
    );
    assert_eq!(script.state(), State::TimeWait);
    assert_ne!(script.call(|c| c.take_events()) & event::TIME_WAIT, 0);
    assert_eq!(script.end.slots(), 0);
}

#[test]
fn rfc_9293_3_6_both_close_at_once() {
    let mut script = Script::open(config());
    script.shutdown();
    let out = script.segment(FIN | ACK, 0, 0, 0);
    assert_eq!((out[0].ack, out[0].segment.flags), (1, ACK));
    assert_eq!(script.state(), State::Closing);
    script.segment(ACK, 1, 1, 0);
    assert_eq!(script.state(), State::TimeWait);
}

#[test]
fn rfc_9293_3_10_7_4_fin_and_ack_in_one_segment() {
    let mut script = Script::open(config());
    script.shutdown();
    script.segment(FIN | ACK, 0, 1, 0);
    assert_eq!(script.state(), State::TimeWait);
}

#[test]
fn rfc_9293_3_6_a_half_closed_connection_goes_on_to_send() {
    let mut script = Script::open(config());
    let out = script.segment(FIN | ACK, 0, 0, 0);
    assert_eq!((out[0].ack, out[0].segment.flags), (1, ACK));
    assert_eq!(script.state(), State::CloseWait);
    assert!(script.call(|c| c.is_at_end()));
    script.seq = 1;
    assert_eq!(script.write(500)[0].len, 500);
    script.ack(500);
    let out = script.close();
    assert_eq!((out[0].seq, out[0].segment.flags), (500, FIN | ACK));
    assert_eq!(script.state(), State::LastAck);
    script.ack(501);
    assert_eq!((script.state(), script.error()), (State::Closed, None));
}

#[test]
fn rfc_9293_3_10_7_4_a_fin_waits_for_what_is_before_it() {
    let mut script = Script::open(config());
    let out = script.segment(FIN | ACK, 100, 0, 50);
    assert_eq!(out[0].ack, 0);
    assert_eq!(script.state(), State::Established);
    let out = script.data(0, 100);
    assert_eq!(out[0].ack, 151);
    assert_eq!(script.state(), State::CloseWait);
    assert_eq!(script.read(0).0, 150);
    // The FIN once more is acknowledged once more.
    assert_eq!(script.segment(FIN | ACK, 150, 0, 0)[0].ack, 151);
}

#[test]
fn rfc_9293_3_6_1_data_for_nobody_is_reset() {
    let mut script = Script::open(config());
    script.close();
    script.ack(1);
    let out = script.data(0, 10);
    assert!(out[0].has(RST));
    assert_eq!(script.state(), State::Closed);
    // RFC 2525 2.17: what was not read.
    let mut script = Script::open(config());
    script.data(0, 10);
    let out = script.close();
    assert!(out[0].has(RST) && out[0].seq == 0);
    assert_eq!((script.state(), script.end.slots()), (State::Closed, 0));
}

#[test]
fn rfc_9293_3_8_1_a_fin_is_sent_again() {
    let mut script = Script::open(config());
    script.close();
    let out = script.wait(S);
    assert!(!out.is_empty() && out.iter().all(|seen| seen.has(FIN) && seen.seq == 0));
    script.ack(1);
    // RFC 9293 3.6.1, Linux: tcp_fin_timeout. Nobody waits for the peer's for ever.
    assert_eq!(script.state(), State::FinWait2);
    script.wait(61 * S);
    assert_eq!(script.state(), State::Closed);
}

fn in_each_state(mut check: impl FnMut(Script)) {
    let steps: [fn(&mut Script); 6] = [
        |_| (),
        |script| drop(script.shutdown()),
        |script| {
            script.shutdown();
            script.ack(1);
        },
        |script| drop(script.segment(FIN | ACK, 0, 0, 0)),
        |script| {
            script.shutdown();
            script.segment(FIN | ACK, 0, 0, 0);
        },
        |script| {
            script.segment(FIN | ACK, 0, 0, 0);
            script.shutdown();
        },
    ];
    for step in steps {
        let mut script = Script::open(config());
        step(&mut script);
        assert!(script.state().is_synchronized());
        if script.call(|c| c.last_words().1) != script.header(ACK, 0, 0).seq {
            script.seq = 1;
        }
        script.wait(S / 10);
        check(script);
    }
}

#[test]
fn rfc_5961_3_2_a_reset_counts_at_the_next_number_only() {
    in_each_state(|mut script| {
        let (before, seq) = (script.state(), script.seq);
        assert!(
            script
                .segment(RST, seq.wrapping_sub(70_000), 0, 0)
                .is_empty()
        );
        assert!(script.segment(RST, seq + 1_000_000, 0, 0).is_empty());
        assert_eq!(script.state(), before);
        let out = script.segment(RST, seq + 100, 0, 0);
        assert_eq!((out.len(), out[0].segment.flags, out[0].ack), (1, ACK, seq));
        // Not another at once (RFC 5961 7).
        assert!(script.segment(RST, seq + 101, 0, 0).is_empty());
        assert_eq!(script.state(), before);
        assert!(script.segment(RST, seq, 0, 0).is_empty());
        assert_eq!(script.state(), State::Closed, "from {before:?}");
        let error = match before {
            State::CloseWait => Some(Error::Closed),
            State::Closing | State::LastAck => None,
            _ => Some(Error::Reset),
        };
        assert_eq!(script.error(), error);
    });
}

#[test]
fn rfc_5961_4_2_a_syn_is_challenged_in_each_state() {
    in_each_state(|mut script| {
        let (before, seq) = (script.state(), script.seq);
        let out = script.segment(SYN, seq + 5, 0, 0);
        assert_eq!((out.len(), out[0].segment.flags, out[0].ack), (1, ACK, seq));
        assert!(script.segment(SYN, seq + 6, 0, 0).is_empty());
        // Whatever its number.
        for far in [seq.wrapping_sub(70_000), seq + 1_000_000] {
            script.now_ns += 600 * MS;
            let out = script.segment(SYN, far, 0, 0);
            let all: Vec<_> = out
                .iter()
                .map(|seen| (seen.segment.flags, seen.ack))
                .collect();
            assert_eq!(all, [(ACK, seq)], "{far}");
        }
        assert_eq!(script.state(), before);
    });
}

#[test]
fn rfc_5961_5_2_an_ack_of_what_was_never_sent_is_challenged() {
    let mut script = Script::open(config());
    script.write(100);
    let out = script.segment(ACK, 0, 101, 50);
    assert_eq!((out.len(), out[0].segment.flags, out[0].ack), (1, ACK, 0));
    assert_eq!(script.info().unacked_bytes, 100);
    // Its data does not count either, nor that of one from far below.
    script.now_ns += 600 * MS;
    script.segment(ACK, 0, 0_u32.wrapping_sub(70_000), 50);
    assert_eq!(script.info().readable_bytes, 0);
}

#[test]
fn rfc_9293_3_10_7_4_without_ack_a_segment_is_dropped() {
    let mut script = Script::open(config());
    assert!(script.segment(0, 0, 0, 50).is_empty());
    assert_eq!(script.info().readable_bytes, 0);
    assert_eq!(script.end.slots(), 0);
}
