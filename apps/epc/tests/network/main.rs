//! All nodes in one memory, in virtual time: users attach, are idle, are found, go, over links
//! that lose, repeat and reorder; peers restart; strangers lie. What is said is read by tshark,
//! and Debian's `nextepc-sgw` takes the place of our SGW.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod hostile;
mod life;
mod location;
mod nextepc;
mod peers;
mod restart;
mod seeds;
mod tshark;
mod world;
