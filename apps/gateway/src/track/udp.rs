//! UDP, and protocols of which nothing is known but their addresses: single, replied, assured.
//!
//! A flow is assured when a packet follows its first answer: a question with its answer, as of the
//! DNS, never is. Packets of either direction refresh it (RFC 4787 REQ-6 and REQ-6 a).

use linerate_tables::flow::Direction;

use super::State;

/// The state after a further UDP packet.
pub(super) fn next(direction: Direction, state: State) -> State {
    match (state, direction) {
        (State::UdpSingle, Direction::Forward) => State::UdpSingle,
        (State::UdpSingle, Direction::Reverse) => State::UdpReplied,
        _ => State::UdpAssured,
    }
}

/// The state after a further packet of another protocol.
pub(super) fn next_other(direction: Direction, state: State) -> State {
    match direction {
        Direction::Forward => state,
        Direction::Reverse => State::OtherReplied,
    }
}
