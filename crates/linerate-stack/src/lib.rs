//! The IP stack: what hosts and routers do with packets besides looking up where they go.
//!
//! | room | answers |
//! |---|---|
//! | [`neighbour`] | which MAC address belongs to this IP address (ARP, Neighbor Discovery), and what waits for it |
//! | [`reassembly`] | which datagram do these fragments make |
//! | [`fragment`] | how a datagram is cut to a smaller MTU |
//! | [`icmp`] | what the sender is told of a packet that cannot go on, and how often |
//! | [`tcp`] | the reset for a segment that nobody takes |
//!
//! Everything here is driven by its caller: packets and the time are arguments, frames to send are
//! results. Nothing knows a port or a thread.
#![forbid(unsafe_code)]

mod bucket;
pub mod fragment;
pub mod icmp;
pub mod neighbour;
pub mod reassembly;
pub mod tcp;
