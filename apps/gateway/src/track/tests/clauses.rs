//! TCP, clause by clause.

use linerate_wire::tcp::flag;

use super::*;
use crate::track::Timeouts;
use crate::track::tcp::NOTE_MS;

#[test]
fn rfc_9293_3_5_three_segments_open_a_connection() {
    let mut flow = Flow::opened(syn(100));
    assert_eq!(flow.state, State::SynSent);
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes(F, ack(101, 501), State::Established);
    flow.passes(F, data(101, 501, 400), State::Established);
    flow.passes(R, data(501, 501, 400), State::Established);
}

#[test]
fn rfc_9293_3_5_the_last_acknowledgment_may_come_with_data() {
    let mut flow = Flow::opened(syn(100));
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes(F, data(101, 501, 10), State::Established);
}

#[test]
fn rfc_9293_3_5_what_acknowledges_another_syn_opens_nothing() {
    let mut flow = Flow::opened(syn(100));
    for wrong in [0, 99, 100, 102, 0x8000_0101] {
        flow.drops(R, syn_ack(500, wrong), Reason::TcpHandshake);
    }
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    for wrong in [0, 499, 500, 502, 0x8000_0501] {
        flow.drops(F, ack(101, wrong), Reason::TcpHandshake);
        flow.drops(F, data(101, wrong, 10), Reason::TcpHandshake);
    }
    flow.passes(F, ack(101, 501), State::Established);
}

#[test]
fn rfc_9293_3_5_who_has_not_been_answered_sends_no_data() {
    let mut flow = Flow::opened(syn(100));
    flow.drops(F, ack(101, 501), Reason::TcpHandshake);
    flow.drops(F, fin(101, 501), Reason::TcpHandshake);
    flow.drops(F, syn_ack(100, 501), Reason::TcpHandshake);
    flow.drops(R, data(501, 101, 10), Reason::TcpHandshake);
}

#[test]
fn rfc_6298_5_a_syn_and_its_answer_may_come_again() {
    let mut flow = Flow::opened(syn(100));
    flow.passes_unchanged(F, syn(100));
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes_unchanged(F, syn(100));
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes(F, ack(101, 501), State::Established);
    // The ACK was lost behind us.
    flow.passes_unchanged(R, syn_ack(500, 101));
    flow.passes(F, ack(101, 501), State::Established);
}

#[test]
fn an_attempt_that_was_given_up_makes_way_for_the_next() {
    let mut flow = Flow::opened(syn(100));
    assert_eq!(flow.segment(F, syn(7000)), Verdict::Unchanged);
    flow.drops(R, syn_ack(500, 101), Reason::TcpHandshake);
    flow.passes(R, syn_ack(500, 7001), State::SynReceived);
    flow.passes(F, ack(7001, 501), State::Established);
}

#[test]
fn rfc_4987_3_6_a_server_with_cookies_may_answer_by_another_number() {
    let mut flow = Flow::opened(syn(100));
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes(R, syn_ack(90_000, 101), State::SynReceived);
    flow.drops(F, ack(101, 501), Reason::TcpHandshake);
    flow.passes(F, ack(101, 90_001), State::Established);
    // Not once it is acknowledged.
    flow.drops(R, syn_ack(500, 101), Reason::TcpOld);
}

#[test]
fn rfc_5382_req_2_simultaneous_open() {
    let mut flow = Flow::opened(syn(100));
    flow.passes(R, syn(500), State::SynReceived);
    flow.passes(F, syn_ack(100, 501), State::SynReceived);
    flow.passes(R, syn_ack(500, 101), State::Established);
    flow.passes(F, data(101, 501, 900), State::Established);
    flow.passes(R, data(501, 1001, 900), State::Established);
}

#[test]
fn rfc_5382_req_2_simultaneous_open_when_one_answer_is_lost() {
    let mut flow = Flow::opened(syn(100));
    flow.passes(R, syn(500), State::SynReceived);
    // The forward side's answer is lost before it comes here: it has the other one's.
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes_unchanged(F, syn(100));
    flow.passes_unchanged(R, syn(500));
    flow.passes(F, ack(101, 501), State::Established);
}

#[test]
fn rfc_5382_req_2_a_forged_syn_in_reverse_does_not_stop_the_real_answer() {
    let mut flow = Flow::opened(syn(100));
    flow.passes(R, syn(77), State::SynReceived);
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes(F, ack(101, 501), State::Established);
}

#[test]
fn rfc_7413_data_may_come_with_the_syn() {
    let mut flow = Flow::opened(segment(flag::SYN, 100, 0, 50));
    // The server takes the SYN and not the data, or all of it, and may answer at once.
    let mut taken = flow.clone();
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes(F, data(101, 501, 50), State::Established);
    taken.passes(R, syn_ack(500, 151), State::SynReceived);
    taken.passes(R, data(501, 151, 900), State::SynReceived);
    taken.passes(F, ack(151, 1401), State::Established);
    let mut forged = Flow::opened(segment(flag::SYN, 100, 0, 50));
    forged.drops(R, syn_ack(500, 152), Reason::TcpHandshake);
}

#[test]
fn flags_that_no_tcp_sets_are_dropped() {
    let mut flow = Flow::established();
    for flags in [
        0,
        flag::FIN,
        flag::PSH | flag::URG,
        flag::SYN | flag::FIN,
        flag::SYN | flag::RST,
        flag::FIN | flag::RST | flag::ACK,
        flag::FIN | flag::PSH | flag::URG,
        0xff,
    ] {
        flow.drops(F, segment(flags, 101, 501, 0), Reason::TcpFlags);
        let first = Flow::begun(Pickup::Loose, Upper::Tcp(segment(flags, 101, 501, 0)));
        assert_eq!(first.unwrap_err(), Reason::TcpFlags, "{flags:#x}");
    }
    for more in [flag::URG, flag::PSH, flag::ECE | flag::CWR] {
        flow.passes(
            F,
            segment(flag::ACK | more, 101, 501, 0),
            State::Established,
        );
    }
    // RFC 3168 6.1.1: both are set to offer congestion marks.
    Flow::opened(segment(flag::SYN | flag::ECE | flag::CWR, 1, 0, 0));
}

#[test]
fn rfc_9293_3_10_7_4_what_touches_the_window_passes() {
    let mut flow = Flow::established();
    // The reverse side takes 101 to 1100.
    flow.passes(F, data(101, 501, 1000), State::Established);
    flow.passes(F, data(101, 501, 1000), State::Established); // again
    flow.passes(F, data(100, 501, 1), State::Established); // keep-alive: RFC 9293 3.8.4
    flow.passes(F, data(1101, 501, 1), State::Established); // probes a window of 0
    flow.passes(F, ack(1102, 501), State::Established); // follows the probe
    flow.drops(F, data(1102, 501, 1), Reason::TcpWindow);
    flow.drops(F, ack(1103, 501), Reason::TcpWindow);
    flow.drops(F, data(0x8000_0000, 501, 1), Reason::TcpWindow);
    flow.passes(R, ack(501, 1102), State::Established);
    flow.passes(F, data(2101, 501, 1), State::Established);
}

#[test]
fn rfc_9293_3_8_6_the_window_moves_with_acknowledgments_and_never_back() {
    let mut flow = Flow::established();
    flow.passes(F, data(101, 501, 500), State::Established);
    flow.drops(F, data(1102, 501, 10), Reason::TcpWindow);
    flow.passes(R, ack(501, 601), State::Established);
    flow.passes(R, with_window(ack(501, 601), 0), State::Established);
    flow.passes(F, data(1101, 501, 500), State::Established);
}

#[test]
fn what_was_acknowledged_a_window_ago_is_old() {
    let mut flow = Flow::established();
    for at in 0..10 {
        flow.passes(F, data(101 + at * 1000, 501, 1000), State::Established);
        flow.passes(R, ack(501, 1101 + at * 1000), State::Established);
    }
    flow.passes(F, data(8101, 501, 1000), State::Established);
    flow.passes(F, data(9100, 501, 1), State::Established);
    flow.passes(F, data(9099, 501, 1), State::Established); // keep-alive: RFC 9293 3.8.4
    flow.drops(F, data(9097, 501, 1), Reason::TcpOld);
    flow.drops(F, data(101, 501, 1000), Reason::TcpOld);
}

#[test]
fn rfc_5961_5_acknowledgments_are_of_what_was_sent_and_not_too_old() {
    let mut flow = Flow::established();
    flow.passes(F, data(101, 501, 1000), State::Established);
    flow.drops(R, ack(501, 1102), Reason::TcpAckUnsent);
    flow.drops(R, data(501, 1102, 100), Reason::TcpAckUnsent);
    flow.passes(R, ack(501, 1101), State::Established);
    flow.passes(R, ack(501, 101), State::Established);
    flow.passes(
        R,
        ack(501, 1101_u32.wrapping_sub(132_000)),
        State::Established,
    );
    let late = ack(501, 1101_u32.wrapping_sub(132_001));
    flow.drops(R, late, Reason::TcpAckOld);
}

#[test]
fn rfc_2018_3_blocks_are_of_what_was_sent() {
    let mut flow = Flow::established();
    flow.passes(F, data(101, 501, 500), State::Established);
    let with_sack = |sack| Segment {
        sack,
        ..ack(501, 101)
    };
    flow.passes(R, with_sack(601), State::Established);
    flow.drops(R, with_sack(602), Reason::TcpAckUnsent);
}

#[test]
fn rfc_7323_2_2_windows_are_scaled_if_both_sides_say_so() {
    let open = |forward, reverse| {
        let mut flow = Flow::opened(with_scale(syn(100), forward));
        flow.passes(
            R,
            with_scale(syn_ack(500, 101), reverse),
            State::SynReceived,
        );
        flow.passes(F, ack(101, 501), State::Established);
        flow.passes(R, ack(501, 101), State::Established);
        flow
    };
    // What the forward side may send: by the scale of the reverse side.
    for (forward, reverse, most) in [
        (NO_SCALE, NO_SCALE, 1000),
        (3, NO_SCALE, 1000),
        (NO_SCALE, 3, 1000),
        (0, 3, 8000),
        (3, 0, 1000),
        (14, 14, 1000 << 14),
    ] {
        let mut flow = open(forward, reverse);
        flow.drops(F, data(102 + most, 501, 1), Reason::TcpWindow);
        flow.passes(F, data(101 + most, 501, 1), State::Established);
    }
}

#[test]
fn rfc_7323_2_2_the_windows_of_syns_are_not_scaled() {
    let mut flow = Flow::opened(with_scale(syn(100), 7));
    flow.passes(R, with_scale(syn_ack(500, 101), 7), State::SynReceived);
    flow.passes(F, ack(101, 501), State::Established);
    flow.drops(F, data(1102, 501, 1), Reason::TcpWindow);
    flow.passes(R, ack(501, 101), State::Established);
    flow.passes(F, data(1102, 501, 1), State::Established);
}

#[test]
fn rfc_5961_3_2_a_reset_at_the_edge_ends_the_connection() {
    let mut flow = Flow::established();
    flow.passes(F, data(101, 501, 100), State::Established);
    flow.passes(F, data(201, 501, 100), State::Established);
    flow.passes(R, ack(501, 201), State::Established);
    // What was acknowledged, or all that was sent.
    for edge in [201, 301] {
        flow.clone().passes(F, rst(edge), State::Reset);
    }
    flow.passes(R, rst(501), State::Reset);
}

#[test]
fn rfc_5961_3_2_a_reset_elsewhere_in_the_window_is_the_ends_to_challenge() {
    let mut flow = Flow::established();
    for seq in [102, 500, 1101] {
        flow.passes_unchanged(F, rst(seq));
        assert_eq!(flow.state, State::Established);
    }
    // The challenge, and its answer from a host that knows no connection: RFC 9293 3.10.7.1.
    flow.passes(R, ack(501, 101), State::Established);
    flow.passes(F, rst(101), State::Reset);
}

#[test]
fn rfc_5961_3_2_a_reset_outside_the_window_is_dropped() {
    let mut flow = Flow::established();
    for seq in [0, 100, 1102, 0x8000_0000, u32::MAX] {
        flow.drops(F, rst(seq), Reason::TcpReset);
    }
}

#[test]
fn rfc_5961_4_2_a_syn_is_the_ends_to_challenge_and_changes_nothing() {
    let mut flow = Flow::established();
    for seq in [101, 500, 5_000_000] {
        flow.passes_unchanged(F, syn(seq));
        flow.passes_unchanged(R, syn(seq));
        assert_eq!(flow.state, State::Established);
    }
    flow.passes(F, data(101, 501, 100), State::Established);
    flow.passes(R, ack(501, 201), State::Established);
}

#[test]
fn rfc_9293_3_5_1_a_host_that_lost_a_connection_gets_a_new_one() {
    let mut flow = Flow::established();
    flow.passes_unchanged(F, syn(9000));
    flow.passes(R, ack(501, 101), State::Established); // the challenge
    flow.passes(F, rst(101), State::Reset); // its answer
    assert_eq!(flow.segment(F, syn(9000)), Verdict::Anew);
}

#[test]
fn rfc_9293_3_5_1_an_old_connection_of_the_server_is_reset() {
    let mut flow = Flow::opened(syn(100));
    flow.drops(F, rst(70_000), Reason::TcpReset);
    flow.passes_unchanged(R, ack(40_000, 70_000)); // the challenge
    flow.drops(F, rst(70_001), Reason::TcpReset);
    flow.passes_unchanged(F, rst(70_000)); // its answer
    flow.passes_unchanged(F, syn(100)); // again
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
}

#[test]
fn a_syn_that_the_other_end_answers_as_a_stranger_begins_anew() {
    let refusal = segment(flag::RST | flag::ACK, 0, 9001, 0);
    for (answer, reason) in [
        (syn_ack(70_000_000, 9001), Reason::TcpWindow),
        (refusal, Reason::TcpReset),
    ] {
        let mut flow = Flow::established();
        // Where an end that expects 501 sees 0 as old.
        flow.passes(R, data(501, 101, 100), State::Established);
        flow.now_ms = 1000;
        flow.passes_unchanged(F, syn(9000));
        assert_eq!(flow.segment(R, answer), Verdict::Drop(reason));
        flow.now_ms += NOTE_MS - 256;
        flow.passes_unchanged(F, syn(9000));
        flow.now_ms += 512;
        flow.passes_unchanged(F, syn(9001));
        flow.passes_unchanged(F, syn(9000));
        flow.now_ms += NOTE_MS;
        flow.passes_unchanged(F, syn(9000));
        assert_eq!(flow.segment(R, answer), Verdict::Drop(reason));
        assert_eq!(flow.segment(F, syn(9000)), Verdict::Anew);
    }
}

#[test]
fn a_syn_that_is_answered_as_the_first_before_the_handshake_ends_begins_anew() {
    let half_open = || {
        let mut flow = Flow::opened(syn(100));
        flow.passes(R, syn_ack(500, 101), State::SynReceived);
        flow
    };
    // The client has given up, and so has the server; or it knows nobody, since it gives cookies.
    let mut flow = half_open();
    let answer = syn_ack(70_000_000, 9001);
    for _ in 0..2 {
        flow.passes_unchanged(F, syn(9000));
        let dropped = flow.segment(R, answer);
        assert_eq!(dropped, Verdict::Drop(Reason::TcpHandshake));
    }
    flow.now_ms += NOTE_MS;
    assert_eq!(flow.segment(F, syn(9000)), Verdict::Anew);
    // One that still waits for the first client says so.
    let mut flow = half_open();
    flow.passes_unchanged(F, syn(9000));
    flow.segment(R, answer);
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.now_ms += NOTE_MS;
    flow.passes_unchanged(F, syn(9000));
    flow.passes(F, ack(101, 501), State::Established);
    // Nobody has answered.
    let mut flow = half_open();
    for _ in 0..4 {
        flow.passes_unchanged(F, syn(9000));
        flow.now_ms += NOTE_MS;
    }
    flow.passes(F, ack(101, 501), State::Established);
}

#[test]
fn a_syn_that_is_not_answered_changes_nothing() {
    let mut flow = Flow::established();
    // It was lost behind the gateway, or its checksum was wrong.
    for _ in 0..200 {
        flow.passes_unchanged(F, syn(9000));
        flow.now_ms += 1000;
        // What answers another, or comes from where the SYN does.
        let other = flow.segment(R, syn_ack(70_000_000, 9002));
        assert_eq!(other, Verdict::Drop(Reason::TcpWindow));
        let own = flow.segment(F, syn_ack(70_000_000, 9001));
        assert_eq!(own, Verdict::Drop(Reason::TcpWindow));
    }
    flow.passes(F, data(101, 501, 100), State::Established);
    flow.passes(R, ack(501, 201), State::Established);
}

#[test]
fn a_syn_is_forgotten_when_the_other_end_speaks() {
    let mut flow = Flow::established();
    flow.passes_unchanged(F, syn(9000));
    flow.passes(R, ack(501, 101), State::Established);
    for _ in 0..3 {
        flow.now_ms += 2000;
        flow.passes_unchanged(F, syn(9000));
        let forged = flow.segment(R, syn_ack(70_000_000, 9001));
        assert_eq!(forged, Verdict::Drop(Reason::TcpWindow));
        flow.passes(R, data(501, 101, 1), State::Established);
    }
    // Nor does another SYN count as its repetition, or one from the other side.
    flow.passes_unchanged(F, syn(9000));
    flow.now_ms += 2000;
    flow.passes_unchanged(F, syn(9001));
    flow.passes_unchanged(R, syn(9001));
    flow.now_ms += 2000;
    flow.passes_unchanged(R, syn(9001));
}

#[test]
fn rfc_9293_3_10_7_3_a_refused_connection() {
    let refusal = |ack| segment(flag::RST | flag::ACK, 0, ack, 0);
    let mut flow = Flow::opened(syn(100));
    flow.drops(R, rst(0), Reason::TcpReset);
    flow.drops(R, refusal(100), Reason::TcpReset);
    flow.drops(R, refusal(102), Reason::TcpReset);
    flow.passes(R, refusal(101), State::Reset);
    // The server has gone away behind its SYN-ACK.
    let mut flow = Flow::opened(syn(100));
    flow.passes(R, syn_ack(50_000_000, 101), State::SynReceived);
    flow.drops(R, refusal(102), Reason::TcpReset);
    flow.passes(R, refusal(101), State::Reset);
    // The client gives up.
    let mut flow = Flow::opened(syn(100));
    flow.passes(F, rst(101), State::Reset);
}

#[test]
fn rfc_7857_2_2_what_follows_a_reset_still_passes() {
    let mut flow = Flow::established();
    flow.passes(F, data(101, 501, 100), State::Established);
    flow.passes(R, rst(501), State::Reset);
    flow.passes(F, data(201, 501, 100), State::Reset);
    flow.passes(F, data(101, 501, 100), State::Reset);
    flow.passes_unchanged(R, rst(501));
    flow.drops(R, rst(5000), Reason::TcpReset);
    flow.drops(F, data(5000, 501, 100), Reason::TcpWindow);
}

#[test]
fn rfc_6146_3_5_2_2_a_reset_that_was_forged_is_forgotten_when_its_side_goes_on() {
    let mut flow = Flow::established();
    flow.passes(F, data(101, 501, 100), State::Established);
    flow.passes(R, rst(501), State::Reset);
    // Nothing new: it may have overtaken the RST.
    flow.passes(R, ack(501, 101), State::Reset);
    flow.passes(R, data(501, 201, 100), State::Established);
}

#[test]
fn rfc_9293_3_6_both_sides_close() {
    let mut flow = Flow::established();
    flow.passes(F, fin(101, 501), State::HalfClosed);
    flow.passes(R, ack(501, 102), State::HalfClosed);
    flow.passes(R, fin(501, 102), State::Closing);
    flow.passes(F, ack(102, 502), State::TimeWait);
    // The last ACK was lost: RFC 9293 3.6.1, the wait begins again.
    flow.passes(R, fin(501, 102), State::TimeWait);
    assert_eq!(flow.segment(F, ack(102, 502)), Verdict::Unchanged);
    flow.drops(F, data(102, 502, 10), Reason::TcpWindow);
}

#[test]
fn rfc_9293_3_6_both_sides_close_at_once() {
    let mut flow = Flow::established();
    flow.passes(F, fin(101, 501), State::HalfClosed);
    flow.passes(R, fin(501, 101), State::Closing);
    flow.passes(F, ack(102, 502), State::Closing);
    flow.passes(R, ack(502, 102), State::TimeWait);
}

#[test]
fn rfc_9293_3_6_a_half_closed_connection_lasts() {
    let mut flow = Flow::established();
    flow.passes(F, fin(101, 501), State::HalfClosed);
    flow.passes(R, ack(501, 102), State::HalfClosed);
    for at in 0..1000 {
        flow.passes(R, data(501 + at * 1000, 102, 1000), State::HalfClosed);
        flow.passes(F, ack(102, 1501 + at * 1000), State::HalfClosed);
    }
    flow.drops(F, data(102, 1_000_501, 1), Reason::TcpWindow);
    flow.passes(R, fin(1_000_501, 102), State::Closing);
    flow.passes(F, ack(102, 1_000_502), State::TimeWait);
    let timeouts = Timeouts::default();
    assert!(timeouts.of(State::HalfClosed) >= 7440);
}

#[test]
fn a_fin_that_has_not_arrived_does_not_end_what_goes_on() {
    let mut flow = Flow::established();
    flow.passes(F, fin(550, 501), State::HalfClosed); // in the window, of a stranger
    flow.passes(F, data(101, 501, 500), State::Established);
    flow.passes(R, ack(501, 601), State::Established);
    flow.passes(F, data(601, 501, 500), State::Established);
}

#[test]
fn a_fin_may_overtake_data() {
    let mut flow = Flow::established();
    flow.passes(
        F,
        segment(flag::FIN | flag::ACK, 301, 501, 100),
        State::HalfClosed,
    );
    flow.passes(F, data(101, 501, 200), State::HalfClosed);
    flow.passes(R, ack(501, 402), State::HalfClosed);
}

fn time_wait() -> Flow {
    let mut flow = Flow::established();
    flow.passes(F, fin(101, 501), State::HalfClosed);
    flow.passes(R, fin(501, 102), State::Closing);
    flow.passes(F, ack(102, 502), State::TimeWait);
    flow
}

#[test]
fn rfc_1122_4_2_2_13_a_higher_number_reopens_a_closed_connection() {
    assert_eq!(time_wait().segment(F, syn(103)), Verdict::Anew);
    assert_eq!(time_wait().segment(F, syn(0x7fff_0000)), Verdict::Anew);
    assert_eq!(time_wait().segment(R, syn(503)), Verdict::Anew);
}

#[test]
fn rfc_1122_4_2_2_13_a_lower_number_does_not_reopen() {
    let mut flow = time_wait();
    for seq in [102, 100, 0x9000_0000] {
        flow.passes_unchanged(F, syn(seq));
    }
    // The end in TIME-WAIT answers, its peer resets it: RFC 9293 3.5.1.
    flow.passes(R, fin(501, 102), State::TimeWait);
    flow.passes(F, rst(102), State::Reset);
    assert_eq!(flow.segment(F, syn(100)), Verdict::Anew);
}

#[test]
fn strict_begins_with_a_syn_alone() {
    for other in [ack(1, 1), data(1, 1, 1), fin(1, 1), rst(1), syn_ack(1, 1)] {
        let first = Flow::begun(Pickup::Strict, Upper::Tcp(other));
        assert_eq!(first.unwrap_err(), Reason::TcpNoSyn);
    }
    for other in [fin(1, 1), rst(1), syn_ack(1, 1)] {
        let first = Flow::begun(Pickup::Loose, Upper::Tcp(other));
        assert_eq!(first.unwrap_err(), Reason::TcpNoSyn);
    }
}

#[test]
fn loose_picks_up_a_connection_and_checks_what_it_learns() {
    let picked_up = || Flow::begun(Pickup::Loose, Upper::Tcp(data(10_000, 50_000, 100))).unwrap();
    let mut flow = picked_up();
    assert_eq!(flow.state, State::PickedUp);
    flow.passes(F, data(10_100, 50_000, 100), State::PickedUp);
    // It acknowledges what was sent before we looked, or behind what we have seen.
    flow.passes(R, data(50_000, 10_500, 100), State::Established);
    flow.passes(F, data(10_500, 50_100, 100), State::Established);
    flow.drops(F, data(10_500 + 0x7000_0000, 50_100, 1), Reason::TcpWindow);
    flow.drops(R, data(50_100 + 0x7000_0000, 10_500, 1), Reason::TcpWindow);
    flow.drops(R, rst(50_100 + 0x7000_0000), Reason::TcpReset);
    flow.passes(R, rst(50_100), State::Reset);

    let mut one_way = picked_up();
    for at in 0..100 {
        one_way.passes(F, data(10_100 + at * 1000, 50_000, 1000), State::PickedUp);
    }
}
