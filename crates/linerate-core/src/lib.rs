//! The kit's ground floor: environment, memory, packets, rings, ports and workers.
//!
//! Read in this order: [`env`](mod@env) (the machine, the plan of lcores), [`mem`] (where memory
//! comes from), [`packet`] (who owns a slot of it), [`port`] (how packets come and go), [`ring`]
//! (how they go from lcore to lcore), [`run`] (who moves them), [`publish`] (tables that one
//! changes while others read), [`inbox`] (how other threads talk to a worker).

pub mod arch;
pub mod env;
pub mod error;
pub mod inbox;
pub mod mem;
pub mod packet;
pub mod port;
pub mod publish;
pub mod random;
pub mod ring;
pub mod run;
mod sync;

pub use error::MemError;
