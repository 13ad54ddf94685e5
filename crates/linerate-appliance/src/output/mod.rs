//! What commands print: aligned tables for people, JSON for programs, and the facts about the
//! machine that every report carries.

mod lcores;
mod machine;
mod table;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::error::Error;

pub use lcores::{LcoreReport, RunReport};
pub use machine::MachineFacts;
pub use table::{Cell, Column, Table, Tone};

/// Whether to colour: only on a terminal, and not where NO_COLOR is set (<https://no-color.org>).
pub fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes a finished text. A reader that closes early (`| head`) is not an error.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes one JSON document.
pub fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let mut text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    text.push('\n');
    print(&text)
}
