//! `linerate steer`: packets are brought to the lcore that has their connection.
//!
//! | room | what |
//! |---|---|
//! | [`steering`] | who owns a connection, and how its packets get there |
#![forbid(unsafe_code)]

pub mod steering;
