//! Connection tracking: what may follow what in a flow.
//!
//! Pure code: bytes and a clock's number in, verdicts out. Flows and their time are in the caller's
//! `linerate_tables::flow` table; here is what a flow keeps ([`Tcp`], 40 bytes, zero for all but
//! TCP), the [`State`]s it is in, and what a packet does to both.
//!
//! # For each packet
//!
//! Fragments have been put together before. `l4` is where the upper layer begins, `end` where the
//! IP packet ends.
//!
//! ```text
//! upper = Upper::read(is_v6, protocol, &frame[l4..end])?            a Reason: drop it
//! if upper is an Error:                                             an ICMP error
//!     quote = Quote::read(frame, &headers)?;  look up quote.key     none: Reason::QuoteNoFlow
//!     quote.check(&flow.tcp, hit.direction)?;  it passes            no state, no refresh
//! if upper is a Query: key = query.key4(key)                        identifiers are ports
//! look up key
//!   no flow: tracker.first(&upper)
//!       First::Begin(tcp, state)    ask the policy; insert a flow with these
//!       First::Drop(reason)
//!   a flow: tracker.next(&mut flow.tcp, hit.direction, hit.state, &upper, now_ms)
//!       Verdict::Pass(state)        count, refresh, set_state if it is another one
//!       Verdict::Unchanged          it passes, and refreshes nothing
//!       Verdict::Anew               as if there were no flow: `first`, and if the policy lets
//!                                   it begin, end the old flow and insert the new one
//!       Verdict::Drop(reason)       refreshes nothing
//! ```
//!
//! What must not refresh a flow must not touch its time: look up first, count after the verdict.
//!
//! Read [`state`] for states and timeouts, [`tcp`] for windows, [`related`] for ICMP errors. The
//! clauses and their tests are in `docs/rfc/tracking.md`.

pub mod icmp;
mod reason;
pub mod related;
mod segment;
pub mod state;
pub mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use linerate_tables::flow::Direction;
use linerate_wire::protocol;

pub use icmp::Query;
pub use reason::Reason;
pub use related::Quote;
pub use segment::{NO_SCALE, Segment};
pub use state::{State, Timeouts};
pub use tcp::Tcp;

use segment::Kind;

/// What tracking needs to know of a packet's upper layer, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upper {
    /// A TCP segment.
    Tcp(Segment),
    /// UDP: all there is to know is in the key.
    Udp,
    /// An ICMP query or its answer.
    Query(Query),
    /// An ICMP error: [`Quote::read`] goes on.
    Error,
    /// Any other protocol.
    Other,
}

impl Upper {
    /// Reads the upper layer of an unfragmented packet of protocol `protocol`; `bytes` end where
    /// the IP packet does.
    ///
    /// # Errors
    /// A [`Reason`] to drop it.
    #[inline(always)]
    pub fn read(v6: bool, protocol: u8, bytes: &[u8]) -> Result<Self, Reason> {
        match protocol {
            protocol::TCP => Segment::read(bytes).map(Upper::Tcp),
            protocol::UDP => Ok(Upper::Udp),
            protocol::ICMP if !v6 => Self::read_icmp(v6, bytes),
            protocol::ICMPV6 if v6 => Self::read_icmp(v6, bytes),
            _ => Ok(Upper::Other),
        }
    }

    fn read_icmp(v6: bool, bytes: &[u8]) -> Result<Self, Reason> {
        icmp::read(v6, bytes).map(|message| match message {
            icmp::Message::Query(query) => Upper::Query(query),
            icmp::Message::Error => Upper::Error,
        })
    }
}

/// What becomes of a packet that belongs to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// It may begin a flow with this state.
    Begin(Tcp, State),
    /// It is dropped.
    Drop(Reason),
}

/// What becomes of a packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes and refreshes the flow, which is in this state now.
    Pass(State),
    /// It passes, refreshes nothing, and leaves the state as it is.
    Unchanged,
    /// It is dropped.
    Drop(Reason),
    /// It begins another flow of the same key, if the policy lets it.
    Anew,
}

/// What becomes of a TCP segment that no flow was begun for by a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pickup {
    /// It is dropped.
    #[default]
    Strict,
    /// It begins a flow amid the connection, with guessed windows: for the time after a restart,
    /// and where only one direction comes here.
    Loose,
}

/// How packets are tracked. One for each worker.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    pickup: Pickup,
}

impl Tracker {
    /// A tracker.
    pub fn new(pickup: Pickup) -> Self {
        Self { pickup }
    }

    /// A packet for which there is no flow.
    pub fn first(&mut self, upper: &Upper) -> First {
        let state = match upper {
            Upper::Tcp(segment) => return self.first_segment(segment),
            Upper::Udp => State::UdpSingle,
            Upper::Query(query) if query.asks => State::IcmpSingle,
            Upper::Query(_) => return First::Drop(Reason::IcmpNoQuery),
            Upper::Error => return First::Drop(Reason::QuoteNoFlow),
            Upper::Other => State::OtherSingle,
        };
        First::Begin(Tcp::default(), state)
    }

    fn first_segment(&mut self, segment: &Segment) -> First {
        match (segment.kind(), self.pickup) {
            (Kind::Syn, _) => First::Begin(Tcp::opened(segment), State::SynSent),
            (Kind::Ack, Pickup::Loose) => First::Begin(Tcp::picked_up(segment), State::PickedUp),
            (Kind::Invalid, _) => First::Drop(Reason::TcpFlags),
            _ => First::Drop(Reason::TcpNoSyn),
        }
    }

    /// A packet of a flow, which is in the state of number `state`, at millisecond `now_ms`.
    #[inline(always)]
    pub fn next(
        &self,
        tcp: &mut Tcp,
        direction: Direction,
        state: u8,
        upper: &Upper,
        now_ms: u64,
    ) -> Verdict {
        let state = State::of(state);
        match upper {
            Upper::Tcp(segment) => tcp.next(direction, segment, state, now_ms),
            Upper::Udp => Verdict::Pass(udp::next(direction, state)),
            Upper::Query(_) if direction == Direction::Forward => Verdict::Pass(state),
            Upper::Query(_) => Verdict::Pass(State::IcmpReplied),
            Upper::Error => Verdict::Drop(Reason::QuoteNoFlow),
            Upper::Other => Verdict::Pass(udp::next_other(direction, state)),
        }
    }
}
