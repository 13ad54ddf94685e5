//! The kit's ground floor: environment, memory, packets, rings, ports and workers.

pub mod env;
