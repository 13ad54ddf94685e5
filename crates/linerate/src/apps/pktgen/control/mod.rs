//! The command table, the JSON interface over a socket, command files, and the command line.
//!
//! Start with [`protocol`], what lines say, and [`table`], the commands. [`Client`] is the other side
//! of the interface: the screen and scripts are clients.

mod args;
mod client;
mod protocol;
mod table;
mod wire;

pub(crate) use args::{Args, run};
pub(crate) use client::{Client, Message};
pub(crate) use protocol::{Candidate, Completion, Problem, Reply, Request, ScreenAction};
pub(crate) use table::{PAGES, THEMES};
pub(crate) use wire::Wire;
