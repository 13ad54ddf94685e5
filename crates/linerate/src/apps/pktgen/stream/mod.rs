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

pub(crate) use compiled::Stream;
pub(crate) use keys::{KEYS, KeyHelp};
pub(crate) use parts::{Pacing, parse_switch, parse_time, write_time};
pub(crate) use spec::{StreamError, StreamSpec};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
