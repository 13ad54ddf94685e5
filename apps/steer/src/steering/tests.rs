//! Lcores with rings and hosts, on one thread: packets of NICs and distributors meet their
//! connections.
#![allow(clippy::unwrap_used)]

mod hosts;
mod net;
mod plans;
mod running;
mod taken;
