//! What is sent: streams as users write them ([`StreamSpec`]), and compiled ones that write frames
//! ([`Stream`]).

mod compile;
mod compiled;
mod keys;
mod parts;
mod size;
mod spec;
mod values;

pub(crate) use compiled::Stream;
pub(crate) use keys::{KEYS, KeyHelp};
pub(crate) use parts::{Kind, Pacing, Payload};
pub(crate) use spec::{StreamError, StreamSpec};
