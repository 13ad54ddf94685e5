//! `linerate steer`: packets are brought to the lcore that has their connection.
//!
//! | room | what |
//! |---|---|
//! | [`core`] | a stack behind steering, and how connections move |
//! | [`steering`] | who owns a connection, and how its packets get there |
#![forbid(unsafe_code)]

pub mod core;
pub mod steering;
