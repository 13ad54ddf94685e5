//! What is sent: streams as users write them ([`StreamSpec`]), and compiled ones that write frames
//! ([`Stream`]).

mod compiled;
mod spec;

pub(crate) use compiled::Stream;
pub(crate) use spec::{KEYS, KeyHelp, StreamError, StreamSpec};
