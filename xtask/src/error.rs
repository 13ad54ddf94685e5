//! Why a task could not be carried out. A failing test or a missed target is a result, not an
//! error.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Why a task stopped; each message names the thing, the reason and, where there is one, the fix.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// A program could not be started at all.
    #[error("cannot start `{program}`: {source}; is it installed and in PATH?")]
    Start {
        program: String,
        source: std::io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed ({status}){said}")]
    Failed {
        command: String,
        status: ExitStatus,
        /// The end of what it printed, already indented, or nothing.
        said: String,
    },
    /// A file or a kernel knob could not be read or written.
    #[error("{path}: {source}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Something this machine lacks.
    #[error("{what}; {fix}")]
    Missing { what: String, fix: String },
    /// Another program's output could not be read.
    #[error("{who} printed `{text}`, expected {expected}")]
    Unexpected {
        who: String,
        text: String,
        expected: &'static str,
    },
}

impl TaskError {
    /// Ties an I/O error to the file it befell; for `map_err`.
    pub(crate) fn file(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> TaskError {
        let path = path.as_ref().to_owned();
        move |source| TaskError::File { path, source }
    }
}
