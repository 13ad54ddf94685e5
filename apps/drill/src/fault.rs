//! What is wrong with a script, or with what the stack under test did: a place, a sentence, a fix.

use std::fmt;

/// A place in a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// What kind of fault it is, and so what becomes of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The script is not in the language.
    Syntax,
    /// The script is in the language, and needs what this program or this target does not have: it
    /// is skipped.
    Unsupported,
    /// The stack under test did something else than the script says.
    Mismatch,
    /// The test could not be made: no name space, no device.
    Setup,
}

/// One fault. Its `Display` is `LINE:COLUMN: problem; fix`, for whoever knows the file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What becomes of the script.
    pub kind: Kind,
    /// Where.
    pub at: At,
    /// What is wrong.
    pub problem: String,
    /// What would be right; empty where there is nothing to say.
    pub fix: String,
}

impl Fault {
    /// The text is not in the language.
    pub fn syntax(at: At, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            kind: Kind::Syntax,
            at,
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    /// What the script needs is not there.
    pub fn unsupported(at: At, problem: impl Into<String>) -> Self {
        Self {
            kind: Kind::Unsupported,
            at,
            problem: problem.into(),
            fix: String::new(),
        }
    }

    /// The stack under test did something else.
    pub fn mismatch(at: At, problem: impl Into<String>) -> Self {
        Self {
            kind: Kind::Mismatch,
            at,
            problem: problem.into(),
            fix: String::new(),
        }
    }

    /// The test could not be made.
    pub fn setup(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            kind: Kind::Setup,
            at: At::default(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at.line > 0 {
            write!(f, "{}:{}: ", self.at.line, self.at.column)?;
        }
        f.write_str(&self.problem)?;
        if !self.fix.is_empty() {
            write!(f, "; {}", self.fix)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
