//! Tracking of flows whose answers may go another way: a backend that answers clients itself is
//! heard here only if the gateway is its router.
//!
//! Half a conversation has no windows to check: a state follows from flags, and those of the other
//! direction count where they are seen. The backend's own stack checks what it gets. Of a client
//! alone nothing says that it has heard the backend: it may be forged, so its flow lives for four
//! minutes, which each of its segments renews. A backend sends data to whom it knows.
//!
//! | in state | by | becomes |
//! |---|---|---|
//! | none | SYN | `syn_sent`: half open, so it makes room under a flood |
//! | `syn_sent` | SYN-ACK of the backend | `syn_received` |
//! | `syn_sent`, `syn_received`, `reset` | any other segment of the client | `picked_up` |
//! | `picked_up` | data of the backend | `established` |
//! | any | FIN of either side | `closing`: four minutes, which each further segment renews |
//! | any | RST of either side | `reset` |
//! | `closing`, `reset` | SYN of the client | another flow, which chooses its backend anew |
//!
//! Where the backend is down, a SYN of the client begins another flow in any state, before this is
//! asked.

use linerate_tables::flow::Direction;
use linerate_wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::track::{First, Reason, State, Tcp, Upper};

/// What becomes of a packet of such a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It passes, and the flow is in this state.
    Pass(State),
    /// It begins another flow.
    Anew,
}

/// Whether a packet may begin a flow, and in which state.
pub fn first(upper: &Upper) -> First {
    match upper {
        Upper::Tcp(segment) if segment.flags & (SYN | ACK | RST | FIN) == SYN => {
            First::Begin(Tcp::default(), State::SynSent)
        }
        Upper::Tcp(_) => First::Drop(Reason::TcpNoSyn),
        _ => First::Begin(Tcp::default(), State::UdpSingle),
    }
}

/// The state after a further packet.
pub fn next(direction: Direction, state: State, upper: &Upper) -> Next {
    let Upper::Tcp(segment) = upper else {
        return Next::Pass(match (state, direction) {
            (State::UdpSingle, Direction::Reverse) => State::UdpReplied,
            (State::UdpReplied, _) => State::UdpAssured,
            _ => state,
        });
    };
    let has = |flag: u8| segment.flags & flag != 0;
    let is_client = direction == Direction::Forward;
    Next::Pass(match state {
        _ if has(RST) => State::Reset,
        State::Closing | State::Reset if is_client && has(SYN) => return Next::Anew,
        _ if has(FIN) => State::Closing,
        State::SynSent if has(SYN) && !is_client => State::SynReceived,
        State::SynSent | State::SynReceived | State::Reset if is_client && !has(SYN) => {
            State::PickedUp
        }
        State::PickedUp if !is_client && !has(SYN) && segment.len > 0 => State::Established,
        state => state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::Segment;

    /// Beside flags: the segment has a byte of data.
    const DATA: u8 = 128;

    fn segment(flags: u8) -> Upper {
        let mut bytes = [0; 21];
        (bytes[12], bytes[13]) = (5 << 4, flags & !DATA);
        let len = 20 + usize::from(flags & DATA != 0);
        Upper::Tcp(Segment::read(&bytes[..len]).unwrap())
    }

    /// The flow's states from its SYN on.
    fn states(packets: &[(Direction, u8)]) -> Vec<State> {
        let First::Begin(_, mut state) = first(&segment(SYN)) else {
            panic!("a SYN begins a flow");
        };
        let mut all = vec![state];
        for (direction, flags) in packets {
            match next(*direction, state, &segment(*flags)) {
                Next::Pass(then) => state = then,
                Next::Anew => panic!("{direction:?} {flags}: anew"),
            }
            all.push(state);
        }
        all
    }

    #[test]
    fn half_a_conversation_is_picked_up_and_closes() {
        use Direction::Forward;
        assert_eq!(
            states(&[
                (Forward, ACK),
                (Forward, ACK),
                (Forward, FIN | ACK),
                (Forward, ACK)
            ]),
            [
                State::SynSent,
                State::PickedUp,
                State::PickedUp,
                State::Closing,
                State::Closing
            ]
        );
    }

    #[test]
    fn the_other_half_counts_where_it_is_seen() {
        use Direction::{Forward, Reverse};
        assert_eq!(
            states(&[
                (Reverse, SYN | ACK),
                (Forward, ACK),
                (Reverse, SYN | ACK),
                (Reverse, ACK),
                (Reverse, ACK | DATA),
                (Reverse, ACK),
                (Reverse, FIN | ACK),
                (Reverse, RST),
                (Forward, ACK)
            ]),
            [
                State::SynSent,
                State::SynReceived,
                State::PickedUp,
                State::PickedUp,
                State::PickedUp,
                State::Established,
                State::Established,
                State::Closing,
                State::Reset,
                State::PickedUp
            ]
        );
    }

    #[test]
    fn only_a_syn_begins_and_a_closed_flow_begins_anew() {
        for flags in [ACK, SYN | ACK, RST, FIN | ACK, SYN | FIN] {
            let refused = matches!(first(&segment(flags)), First::Drop(Reason::TcpNoSyn));
            assert!(refused || Segment::read(&[0; 20]).is_err(), "{flags}");
        }
        for state in [State::Closing, State::Reset] {
            assert_eq!(next(Direction::Forward, state, &segment(SYN)), Next::Anew);
        }
        let open = next(Direction::Forward, State::Established, &segment(SYN));
        assert_eq!(open, Next::Pass(State::Established));
    }

    #[test]
    fn datagrams_pass_in_both_directions() {
        use Direction::{Forward, Reverse};
        let after = |direction, state| next(direction, state, &Upper::Udp);
        assert_eq!(
            after(Forward, State::UdpSingle),
            Next::Pass(State::UdpSingle)
        );
        assert_eq!(
            after(Reverse, State::UdpSingle),
            Next::Pass(State::UdpReplied)
        );
        assert_eq!(
            after(Forward, State::UdpReplied),
            Next::Pass(State::UdpAssured)
        );
    }
}
