//! The TOML file of an appliance: reading, and the stanzas that all appliances share.
//!
//! An appliance reads its file in one pass ([`read`], [`parse`]): its function gets the file as a
//! [`Section`], reads tables and keys from it, and builds its configuration. Each error is recorded
//! with its line and key, so that all are reported at once, as [`Error::Config`].

mod section;
mod stanzas;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::path::Path;

use toml::de::DeTable;

use crate::error::Error;

pub use section::{At, ConfigError, Notes, Section};
pub use stanzas::{PlanStanza, PortStanza, plan, port, ports, user};

/// Lines shown at most: a file of another kind has an error in each.
const SHOWN: usize = 50;

/// The result of reading a text, and its errors.
#[derive(Debug)]
pub struct Parsed<T> {
    /// The value; complete if there are no errors.
    pub value: T,
    /// By line.
    pub errors: Vec<ConfigError>,
    /// Warnings, by line.
    pub warnings: Vec<ConfigError>,
}

/// Builds a value from a text by `build`.
pub fn parse<T>(text: &str, build: impl FnOnce(&Section<'_>) -> T) -> Parsed<T> {
    let notes = Notes::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let line = error.span().map_or(1, |span| notes.line_of(span.start));
        notes.error(line, "", error.message(), "see https://toml.io");
    }
    let value = build(&Section::new("", 0, document.get_ref(), &notes));
    let (errors, warnings) = notes.sorted();
    Parsed {
        value,
        errors,
        warnings,
    }
}

/// Builds a value from a file by `build`.
///
/// # Errors
/// It cannot be read; or all its errors, in one.
pub fn read<T>(path: &Path, build: impl FnOnce(&Section<'_>) -> T) -> Result<T, Error> {
    parse(&text(path)?, build).checked(path)
}

/// The text of a file.
///
/// # Errors
/// It cannot be read.
pub fn text(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::File {
        path: path.into(),
        source,
    })
}

impl<T> Parsed<T> {
    /// The value, if the text, that of a file, has no errors.
    ///
    /// # Errors
    /// All its errors.
    pub fn checked(self, path: &Path) -> Result<T, Error> {
        let mut wrong = Wrong::default();
        wrong.add(path.display(), self.errors);
        wrong.result().map(|()| self.value)
    }
}

/// What is wrong with one or several files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrong {
    /// The file's name, and an error of one of its lines.
    errors: Vec<(String, ConfigError)>,
    /// The command that checks the files again, where there is one.
    check: Option<String>,
}

impl Wrong {
    /// Adds the errors of a file.
    pub fn add(&mut self, file: impl fmt::Display, errors: Vec<ConfigError>) {
        let file = file.to_string();
        let errors = errors.into_iter().map(|error| (file.clone(), error));
        self.errors.extend(errors);
    }

    /// Names the command that checks the files again.
    #[must_use]
    pub fn checked_by(mut self, command: String) -> Self {
        self.check = Some(command);
        self
    }

    /// All errors as one, if there are any.
    ///
    /// # Errors
    /// There are errors.
    pub fn result(self) -> Result<(), Error> {
        match self.errors.is_empty() {
            true => Ok(()),
            false => Err(Error::Config(self)),
        }
    }

    /// What the user can do.
    pub(crate) fn fix(&self) -> String {
        let lines = match self.errors.len() {
            1 => "correct this line",
            _ => "correct these lines",
        };
        match &self.check {
            Some(check) => format!("{lines}; `{check}` looks again"),
            None => lines.into(),
        }
    }
}

impl fmt::Display for Wrong {
    /// A line each: `conf.toml:12: interface.vlan: 5000 is too large; 1 to 4094`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(file, error)] = self.errors.as_slice() {
            return write!(f, "{file}:{error}");
        }
        let mut files: Vec<&str> = self.errors.iter().map(|(file, _)| file.as_str()).collect();
        files.dedup();
        let count = self.errors.len();
        write!(f, "{}: {count} things are wrong", files.join(", "))?;
        for (file, error) in self.errors.iter().take(SHOWN) {
            write!(f, "\n{file}:{error}")?;
        }
        match count > SHOWN {
            true => write!(f, "\nand {} more", count - SHOWN),
            false => Ok(()),
        }
    }
}
