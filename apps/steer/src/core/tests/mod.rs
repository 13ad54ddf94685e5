//! Real stacks behind steering, on one thread, in virtual time.
#![allow(clippy::unwrap_used)]

mod net;
mod running;
mod user;
