//! What connects nodes, and what a message does there.
//!
//! Nodes do no input or output. Messages go in with the [`Link`] they came by and the time; what a
//! node sends goes into a [`Sink`]. Streams are cut into messages by whoever has the sockets
//! ([`s1::frame`](crate::s1::frame), [`diameter::frame`](linerate_wire::diameter::frame)).
//!
//! A message meets two cores. Its *home* is where its connection, or its datagrams, arrive. Its
//! *owner* ([`Node::owner`]) is the core of its user, and handles it. Often both are the same.

use crate::Cores;
use crate::s6a::Name;
use linerate_wire::gtpc::ie::Imsi;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Where a message comes from, or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// A connection between a base station and an MME, by the number its end gave it.
    S1(u16),
    /// A Diameter connection between an MME and an HSS, likewise.
    S6a(u16),
    /// A datagram of GTP-C from or to that address (S11, S5-C).
    Gtpc(SocketAddrV4),
    /// A datagram of GTP-U from or to that address (S1-U, S5-U).
    Gtpu(SocketAddrV4),
    /// An IP packet of a user, beyond the gateway.
    Sgi,
    /// An IP packet at the user with that identifier of `ran`.
    User(u32),
}

/// Whose a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The core's that it arrives at: about a connection, not a user, or no message at all.
    Home,
    /// This core's.
    Core(u8),
    /// The core's that owns this user.
    User(Imsi),
}

/// What all cores of a node have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The peer of that address restarted with this counter (TS 23.007): its sessions are gone.
    Restarted(Ipv4Addr, u8),
    /// The peer of that address, with which sessions are made, says this restart counter.
    Counter(Ipv4Addr, u8),
    /// The peer of that address does not answer echoes.
    Unreachable(Ipv4Addr),
    /// A connection is open.
    Opened(Link),
    /// The peer of a Diameter connection has that name.
    Named(Link, Name),
    /// A connection is closed: what it carried is gone.
    Closed(Link),
}

/// Takes what a node sends.
pub trait Sink {
    /// Sends one message; the bytes are the node's again afterwards.
    fn send(&mut self, to: Link, message: &[u8]);
    /// Passes a notice to the other cores of the node.
    fn tell(&mut self, notice: Notice);
}

/// A node of the core, or one core's part of it.
pub trait Node {
    /// Whose a message is.
    fn owner(cores: Cores, from: Link, message: &[u8]) -> Owner;

    /// Takes a message on the core that owns it. A user's packet may be changed in place.
    fn receive(&mut self, now_ns: u64, from: Link, message: &mut [u8], out: &mut impl Sink);

    /// Takes a notice.
    fn notice(&mut self, now_ns: u64, notice: Notice, out: &mut impl Sink);

    /// Does what is due, at most `budget` steps of it; returns when it wants to be called again,
    /// `None`: never.
    fn poll(&mut self, now_ns: u64, budget: usize, out: &mut impl Sink) -> Option<u64>;
}

/// Nanoseconds in a millisecond: timers here count the latter.
pub(crate) const MS: u64 = 1_000_000;
