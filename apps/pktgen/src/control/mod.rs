//! The command table, the JSON interface over a socket, command files, and the command line.
//!
//! Start with [`protocol`], the lines, and [`table`], the commands. The session has a thread of its
//! own ([`control`]); [`server`] and [`connection`] pass clients' requests to it; [`headless`] is a
//! run from beginning to end. [`Client`] is the other side of the interface: the screen and scripts
//! are clients.

mod args;
mod asked;
mod client;
mod commands;
mod complete;
mod connection;
mod dump;
mod headless;
mod history;
mod listen;
mod methods;
mod names;
mod owner;
mod pktgen;
mod protocol;
mod remote;
mod runfile;
mod server;
mod summary;
mod table;

pub use args::{Args, run};
pub(crate) use client::{Client, Message};
pub(crate) use history::History;
pub(crate) use protocol::{Candidate, Completion, Problem, Reply, Request, ScreenAction};
pub use runfile::PortEntry;
pub(crate) use table::PAGES;
#[cfg(test)]
pub(crate) use wire::Wire;

#[cfg(any(test, feature = "fuzz"))]
use linerate_appliance::config;
use linerate_appliance::socket::wire;

/// Takes any text as a line of commands, a run file or a port: it is accepted, or refused with a
/// fix.
#[cfg(any(test, feature = "fuzz"))]
pub fn fuzz(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    for line in text.lines() {
        if let Err(problem) = table::parse(&table::expanded(line)) {
            assert!(
                !problem.problem.is_empty(),
                "{line:?} is refused without a word"
            );
        }
        let refused = runfile::PortEntry::parse(line).err();
        assert!(refused.is_none_or(|error| !error.to_string().is_empty()));
    }
    let parsed = config::parse(text, runfile::RunFile::of);
    if parsed.errors.is_empty()
        && let Ok(written) = toml::to_string(&parsed.value)
    {
        let again = config::parse(&written, runfile::RunFile::of);
        let both = (again.value, again.errors);
        assert_eq!(both, (parsed.value, Vec::new()), "{written}");
    }
}
