//! The command table, the JSON interface over a socket, command files, and the command line.

mod args;

pub(crate) use args::{Args, run};
