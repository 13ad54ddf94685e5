//! Why a command failed, and what to do about it: printed as `error:` and `fix:` lines.

use std::io;
use std::path::PathBuf;

use linerate_core::MemError;
use linerate_core::env::EnvError;
use linerate_core::port::PortError;

use crate::config::Wrong;

/// "Something was found in an unconfigured or misconfigured state" (sysexits.h).
const EX_CONFIG: u8 = 78;

/// Errors for users.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine or the plan.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// All errors in lines of configuration files.
    #[error("{0}")]
    Config(Wrong),
    /// A file is not a report of a run.
    #[error("{}: not a report: {source}", path.display())]
    Report {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A port.
    #[error("{}", halves(.0).0)]
    Port(#[from] PortError),
    /// Memory for packets.
    #[error("{}", halves(.0).0)]
    Memory(#[from] MemError),
    /// An invalid request, and a valid one.
    #[error("{problem}")]
    Usage {
        /// What is wrong.
        problem: String,
        /// What would be right.
        fix: String,
    },
    /// A table of routes, flows or rules.
    #[error("{}", halves(.0).0)]
    Table(#[from] linerate_tables::TableError),
    /// The output could not be written.
    #[error("writing the output: {0}")]
    Output(#[from] io::Error),
    /// A signal came before all was done.
    #[error("ended by a signal")]
    Interrupted,
    /// The error is in a configuration file: a restart does not help until the file is changed.
    #[error(transparent)]
    Misconfigured(Box<Self>),
    /// The command succeeded; the exit code is its result, without a message.
    #[error("exit code {0}")]
    Found(u8),
}

impl Error {
    /// Without errors this succeeds. Otherwise the last is returned, and the others are printed
    /// here.
    pub fn all(mut errors: Vec<Self>) -> Result<(), Self> {
        let last = errors.pop();
        errors.iter().for_each(Self::print);
        last.map_or(Ok(()), Err)
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Found(code) => *code,
            Self::Misconfigured(_) => EX_CONFIG,
            _ => 1,
        }
    }

    /// Prints it on standard error, with the fix.
    pub fn print(&self) {
        if matches!(self, Self::Found(_)) {
            return;
        }
        eprintln!("error: {self}");
        if let Some(fix) = self.fix() {
            eprintln!("fix: {fix}");
        }
    }

    /// What the user can do, as one imperative sentence or command.
    pub fn fix(&self) -> Option<String> {
        match self {
            Self::Env(error) => error.fix(),
            Self::Misconfigured(error) => error.fix(),
            Self::File { .. } => Some("check the path and its permissions".into()),
            Self::Config(wrong) => Some(wrong.fix()),
            Self::Report { .. } => Some(
                "give a JSON object with \"lcores\": [{\"name\", \"role\", \"cpu\", \
                 \"busy_share\"}], as `linerate l2fwd --json` prints"
                    .into(),
            ),
            Self::Port(PortError::File { source, .. }) => Some(match source.kind() {
                io::ErrorKind::InvalidData => {
                    "give a pcap or pcapng file of Ethernet frames; of a \
                    damaged one `editcap FILE NEW` keeps what is whole"
                        .into()
                }
                io::ErrorKind::StorageFull => "make room on that disk, or write to another".into(),
                _ => "check the path and its permissions".into(),
            }),
            Self::Port(error) => Some(halves(error).1.unwrap_or_else(|| {
                "correct the port; `linerate ports` lists the kinds and their options".into()
            })),
            Self::Memory(error) => halves(error).1,
            Self::Usage { fix, .. } => Some(fix.clone()),
            Self::Table(error) => halves(error).1,
            Self::Output(_) | Self::Interrupted | Self::Found(_) => None,
        }
    }
}

/// Splits a message of the crates below, which has problem and fix in this order.
fn halves(error: &impl std::fmt::Display) -> (String, Option<String>) {
    let text = error.to_string();
    match text.rsplit_once("; ") {
        Some((problem, fix)) => (problem.into(), Some(fix.into())),
        None => (text, None),
    }
}
