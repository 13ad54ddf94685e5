//! The kit's ground floor: environment, memory, packets, rings, ports and workers.

pub mod arch;
pub mod ring;
pub mod run;
mod sync;
