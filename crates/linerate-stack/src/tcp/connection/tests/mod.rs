//! Each rule by its clause: one connection and a peer by hand ([`script`]), or two connections over
//! a link in virtual time ([`link`]).
#![allow(clippy::unwrap_used)]

mod closing;
mod handshake;
mod link;
mod loss;
mod mtu;
mod options;
mod pacing;
mod receiving;
mod requirements;
mod script;
mod sending;
mod transfer;
