//! The IP stack: the work of hosts and routers on packets other than lookup and forwarding.
//!
//! | room | answers |
//! |---|---|
//! | [`neighbour`] | which MAC address belongs to this IP address (ARP, Neighbor Discovery) |
//! | [`reassembly`] | which datagram do these fragments make |
//! | [`fragment`] | how a datagram is cut to a smaller MTU |
//! | [`icmp`] | which error the sender of a packet gets, and how often |
//! | [`host`] | what a host does with packets, and what sockets need of it |
//! | [`tcp`] | what a TCP connection does with a segment, a timer and its user's calls |
//!
//! Everything here is driven by its caller: packets and the time are arguments, frames to send are
//! results. Nothing here uses a port or a thread.
#![forbid(unsafe_code)]

mod bucket;
pub mod fragment;
pub mod host;
pub mod icmp;
pub mod neighbour;
pub mod reassembly;
pub mod socket;
pub mod tcp;
