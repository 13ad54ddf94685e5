//! States: their timeouts, and each row of the table of what refreshes a flow and moves it.

use linerate_tables::exact::Seed;
use linerate_tables::flow::{First as FirstOf, FlowConfig, FlowTable4, Inserted};
use linerate_wire::flow::FlowKey4;
use linerate_wire::tcp::flag;

use super::*;
use crate::track::{Query, Timeouts};

#[test]
fn names_and_numbers_name_one_state() {
    for (number, state) in State::ALL.into_iter().enumerate() {
        assert_eq!(state as usize, number);
        assert_eq!(State::of(number as u8), state);
        assert_eq!(State::named(state.name()), Some(state));
    }
    assert_eq!(State::named("nonsense"), None);
    for (number, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, number);
        let same = Reason::ALL.iter().filter(|one| one.name() == reason.name());
        assert_eq!(same.count(), 1);
        assert!(!reason.sentence().is_empty());
    }
}

#[test]
fn rfc_5382_req_5_rfc_4787_req_5_rfc_5508_req_2_no_default_is_below_the_least() {
    let timeouts = Timeouts::default();
    for state in State::ALL {
        assert!(timeouts.of(state) >= state.least_s(), "{state:?}");
    }
    assert_eq!(timeouts.of(State::Established), 2 * 3600 + 4 * 60);
    for transitory in [
        State::SynSent,
        State::SynReceived,
        State::Closing,
        State::TimeWait,
    ] {
        assert_eq!(timeouts.of(transitory), 4 * 60); // RFC 7857 2.1
    }
    assert_eq!(timeouts.of(State::UdpAssured), 5 * 60); // RFC 4787 REQ-5 c
    assert_eq!(timeouts.of(State::IcmpSingle), 60);
}

#[test]
fn rfc_7857_2_1_each_timeout_can_be_set_and_ends_the_flows_of_its_state() {
    let mut timeouts = Timeouts::default();
    for (at, state) in State::ALL.into_iter().enumerate() {
        timeouts.set(state, 10 + at as u32);
    }
    let mut config = FlowConfig::stateful("track", 64, 1, Seed(1));
    config.states = timeouts.flow_states(1000, Some(3));
    let mut table = FlowTable4::<u32>::new(&config, 0).unwrap();
    for (at, state) in State::ALL.into_iter().enumerate() {
        let key = FlowKey4::new([10, 0, 0, 1], [10, 0, 0, 2], at as u16, 80, 6);
        let first = FirstOf {
            state: state as u8,
            owner: 0,
            zone: 0,
            user: 0,
            bytes: 60,
        };
        let inserted = table.insert(0, key, first);
        assert!(matches!(inserted, Ok(Inserted::New { .. })));
    }
    for (at, state) in State::ALL.into_iter().enumerate() {
        table.poll(9_999 + 1000 * at as u64, 1000, |_| {});
        assert_eq!(table.count(state as u8), 1, "{state:?}");
        table.poll(10_000 + 1000 * at as u64, 1000, |_| {});
        assert_eq!(table.count(state as u8), 0, "{state:?}");
    }
    let most = |state: State| config.states[state as usize].most;
    assert_eq!(most(State::SynSent), Some(3));
    assert_eq!(most(State::Established), None);
    timeouts.set(State::Reset, 0);
    assert_eq!(timeouts.of(State::Reset), 1);
}

#[test]
fn syn_sent_is_not_refreshed_by_repetitions_nor_by_forgeries() {
    let mut flow = Flow::opened(syn(100));
    flow.passes_unchanged(F, syn(100));
    flow.passes_unchanged(R, ack(1, 1));
    flow.drops(R, data(1, 1, 1), Reason::TcpHandshake);
    flow.clone().passes(R, syn(500), State::SynReceived);
    flow.clone()
        .passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes(F, rst(101), State::Reset);
}

#[test]
fn syn_received_is_refreshed_within_the_window_and_left_by_the_last_acknowledgment() {
    let mut flow = Flow::opened(syn(100));
    flow.passes(R, syn_ack(500, 101), State::SynReceived);
    flow.passes_unchanged(F, syn(100));
    flow.passes(R, ack(501, 101), State::SynReceived);
    flow.clone().passes(R, rst(501), State::Reset);
    flow.clone().passes(F, rst(101), State::Reset);
    flow.clone().passes(F, fin(101, 501), State::HalfClosed);
    flow.passes(F, ack(101, 501), State::Established);
}

#[test]
fn picked_up_is_left_when_the_other_side_is_heard() {
    let flow = Flow::begun(Pickup::Loose, Upper::Tcp(ack(100, 500))).unwrap();
    flow.clone().passes(F, data(100, 500, 1), State::PickedUp);
    flow.clone().passes_unchanged(F, syn(100));
    flow.clone().passes(F, fin(100, 500), State::HalfClosed);
    flow.clone().passes(R, rst(500), State::Reset);
    flow.clone().passes(R, ack(500, 100), State::Established);
}

#[test]
fn established_and_what_follows_are_refreshed_within_the_windows_alone() {
    let mut flow = Flow::established();
    for state in [State::Established, State::HalfClosed, State::Closing] {
        assert_eq!(flow.state, state);
        flow.passes(F, ack(flow.tcp.sides[0].end, 501), state);
        flow.passes_unchanged(F, syn(1));
        flow.passes_unchanged(R, rst(1000));
        flow.drops(R, rst(100), Reason::TcpReset);
        flow.drops(R, data(5000, 101, 1), Reason::TcpWindow);
        flow.clone()
            .passes(R, rst(flow.tcp.sides[1].end), State::Reset);
        match state {
            State::Established => flow.passes(F, fin(101, 501), State::HalfClosed),
            _ => flow.passes(R, fin(501, 101), State::Closing),
        }
    }
    flow.passes(F, ack(102, 502), State::Closing);
    flow.passes(R, ack(502, 102), State::TimeWait);
    // time_wait: by a repeated FIN.
    assert_eq!(flow.segment(F, ack(102, 502)), Verdict::Unchanged);
    flow.passes(F, fin(101, 502), State::TimeWait);
    assert_eq!(flow.clone().segment(F, syn(200)), Verdict::Anew);
    flow.passes(R, rst(502), State::Reset);
    // reset.
    flow.passes(F, ack(102, 502), State::Reset);
    flow.passes_unchanged(F, rst(102));
    assert_eq!(flow.segment(R, syn(1)), Verdict::Anew);
}

#[test]
fn rfc_4787_req_6_udp_is_refreshed_both_ways_and_assured_by_a_packet_after_the_answer() {
    for (upper, states) in [
        (
            Upper::Udp,
            [State::UdpSingle, State::UdpReplied, State::UdpAssured],
        ),
        (
            Upper::Other,
            [State::OtherSingle, State::OtherReplied, State::OtherReplied],
        ),
    ] {
        let mut flow = Flow::begun(Pickup::Strict, upper).unwrap();
        assert_eq!(flow.state, states[0]);
        assert_eq!(flow.takes(F, upper), Verdict::Pass(states[0]));
        assert_eq!(flow.takes(R, upper), Verdict::Pass(states[1]));
        for direction in [F, R] {
            let verdict = flow.clone().takes(direction, upper);
            assert_eq!(verdict, Verdict::Pass(states[2]));
        }
        flow.takes(F, upper);
        assert_eq!(flow.takes(R, upper), Verdict::Pass(states[2]));
        assert_eq!(flow.tcp, Tcp::default());
    }
}

#[test]
fn rfc_5508_req_1_queries_and_their_answers_pass() {
    let query = |asks| {
        Upper::Query(Query {
            ident: 7,
            kind: 8,
            asks,
        })
    };
    let mut flow = Flow::begun(Pickup::Strict, query(true)).unwrap();
    assert_eq!(flow.state, State::IcmpSingle);
    assert_eq!(flow.takes(F, query(true)), Verdict::Pass(State::IcmpSingle));
    assert_eq!(
        flow.takes(R, query(false)),
        Verdict::Pass(State::IcmpReplied)
    );
    assert_eq!(
        flow.takes(F, query(true)),
        Verdict::Pass(State::IcmpReplied)
    );
    let answer = Flow::begun(Pickup::Loose, query(false));
    assert_eq!(answer.unwrap_err(), Reason::IcmpNoQuery);
}

#[test]
fn an_error_begins_nothing() {
    let error = Flow::begun(Pickup::Loose, Upper::Error);
    assert_eq!(error.unwrap_err(), Reason::QuoteNoFlow);
    let mut flow = Flow::established();
    assert_eq!(
        flow.takes(R, Upper::Error),
        Verdict::Drop(Reason::QuoteNoFlow)
    );
}

#[test]
fn a_reset_with_acknowledgment_is_one_too() {
    let mut flow = Flow::established();
    flow.passes(R, segment(flag::RST | flag::ACK, 501, 101, 0), State::Reset);
}
