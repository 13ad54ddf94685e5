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
//!   no flow: tracker.first(key.bytes(), &upper, is_full, now_ms)
//!       First::Begin(tcp, state)    ask the policy; insert a flow with these
//!       First::Answer(made)         ask the policy; the packet ends here, send `made` back
//!       First::Proxy(tcp, made)     ask the policy; insert a flow in state `proxied`; the packet
//!                                   ends here, send `made` onward
//!       First::Drop(reason)
//!   a flow: tracker.next(&mut flow.tcp, hit.direction, hit.state, &upper, now_ms)
//!       Verdict::Pass(state)        count, refresh, set_state if it is another one
//!       Verdict::Unchanged          it passes, and refreshes nothing
//!       Verdict::Anew               as if there were no flow: `first`, and if the policy lets
//!                                   it begin, end the old flow and insert the new one
//!       Verdict::Answer { .. }      the packet ends here; it refreshes the flow, which is in
//!                                   `state` now; send what is given back and onward
//!       Verdict::Drop(reason)       refreshes nothing
//!   where a packet passes and tcp.is_shifted(): tcp.shift(direction, &mut frame[l4..end], ..)
//! ```
//!
//! `is_full` says that as many flows as may be are in the states that [`State::is_half_open`]
//! names. A made segment is written by [`Made::write`] with the addresses of the packet that caused
//! it, as they are before translation: what goes onward is translated as that packet would be, what
//! goes back is not. An error that passes where `tcp.is_shifted()` needs [`Tcp::shift_quote`].
//!
//! What must not refresh a flow must not touch its time: look up first, count after the verdict.
//!
//! Read [`state`] for states and timeouts, [`tcp`] for windows, [`related`] for ICMP errors,
//! [`cookie`] and [`proxy`] for floods of SYNs. The clauses and their tests are in
//! `docs/rfc/tracking.md`.

pub mod cookie;
pub mod icmp;
pub mod proxy;
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

pub use cookie::Cookies;
pub use icmp::Query;
pub use proxy::{MAX_MADE_LEN, Made, Way};
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
    /// There are too many half-open connections: it is answered by a SYN cookie, and no flow
    /// begins.
    Answer(Made),
    /// It brings a SYN cookie back: a flow begins in state `proxied`, and this goes to the server.
    Proxy(Tcp, Made),
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
    /// It ends here, and refreshes the flow, which is in this state now; these are sent instead.
    Answer {
        /// The state.
        state: State,
        /// What its source gets.
        back: Option<Made>,
        /// What its destination gets.
        onward: Option<Made>,
    },
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
    cookies: Option<Cookies>,
}

impl Tracker {
    /// A tracker; without `cookies`, SYNs beyond the limit are the flow table's to refuse.
    pub fn new(pickup: Pickup, cookies: Option<Cookies>) -> Self {
        Self { pickup, cookies }
    }

    /// A packet for which there is no flow. `key` are the bytes of its key; `is_full` says that no
    /// other connection may be half open.
    pub fn first(&mut self, key: &[u8], upper: &Upper, is_full: bool, now_ms: u64) -> First {
        let state = match upper {
            Upper::Tcp(segment) => return self.first_segment(key, segment, is_full, now_ms),
            Upper::Udp => State::UdpSingle,
            Upper::Query(query) if query.asks => State::IcmpSingle,
            Upper::Query(_) => return First::Drop(Reason::IcmpNoQuery),
            Upper::Error => return First::Drop(Reason::QuoteNoFlow),
            Upper::Other => State::OtherSingle,
        };
        First::Begin(Tcp::default(), state)
    }

    fn first_segment(
        &mut self,
        key: &[u8],
        segment: &Segment,
        is_full: bool,
        now_ms: u64,
    ) -> First {
        match segment.kind() {
            Kind::Syn => match &mut self.cookies {
                Some(cookies) if is_full => {
                    let cookie = cookies.give(key, segment, now_ms);
                    First::Answer(Made::cookie(segment, cookie, cookies.mss()))
                }
                _ => First::Begin(Tcp::opened(segment), State::SynSent),
            },
            Kind::Ack => {
                let cookies = self.cookies.as_ref();
                let cookies = cookies.filter(|cookies| cookies.are_out(now_ms));
                let known = cookies.and_then(|cookies| returned(cookies, key, segment, now_ms));
                match (known, self.pickup) {
                    (Some(tcp), _) => First::Proxy(tcp, tcp.server_syn()),
                    (None, Pickup::Loose) => First::Begin(Tcp::picked_up(segment), State::PickedUp),
                    (None, Pickup::Strict) if cookies.is_some() => First::Drop(Reason::TcpCookie),
                    (None, Pickup::Strict) => First::Drop(Reason::TcpNoSyn),
                }
            }
            Kind::Invalid => First::Drop(Reason::TcpFlags),
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
        match upper {
            Upper::Tcp(segment) => tcp.next(direction, segment, state, now_ms),
            Upper::Udp => Verdict::Pass(udp::next(direction, State::of(state))),
            Upper::Query(_) if direction == Direction::Forward => Verdict::Pass(State::of(state)),
            Upper::Query(_) => Verdict::Pass(State::IcmpReplied),
            Upper::Error => Verdict::Drop(Reason::QuoteNoFlow),
            Upper::Other => Verdict::Pass(udp::next_other(direction, State::of(state))),
        }
    }
}

/// The connection of a segment that brings a cookie back: the first after the SYN, or where that
/// was lost a keep-alive, one below, or what follows a probe, one above.
fn returned(cookies: &Cookies, key: &[u8], segment: &Segment, now_ms: u64) -> Option<Tcp> {
    let cookie = segment.ack.wrapping_sub(1);
    [1, 0, 2].into_iter().find_map(|above| {
        let isn = segment.seq.wrapping_sub(above);
        let offer = cookies.check(key, isn, cookie, now_ms)?;
        Some(Tcp::with_cookie(segment, isn, &offer))
    })
}
