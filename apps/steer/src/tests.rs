//! The whole of it, as it is started from a file.
#![allow(clippy::unwrap_used)]

mod nic;
