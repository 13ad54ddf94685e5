//! What is sent: streams as users write them ([`StreamSpec`]), and compiled ones that write frames
//! ([`Stream`]).

mod compile;
mod compiled;
mod generator;
mod keys;
mod layout;
mod parts;
mod size;
mod spec;
mod values;
mod vary;

pub use compiled::Stream;
pub use keys::{KEYS, KeyHelp};
pub use parts::{Pacing, parse_switch, parse_time, write_time};
pub use spec::{StreamError, StreamSpec};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
