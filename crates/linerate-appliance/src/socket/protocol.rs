//! Lines to and from an instance: one JSON object each.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;

/// Longest request in bytes, its line end included.
pub const REQUEST_BYTES: usize = 64 * 1024;

/// A request: a command line, or a method with parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Comes back with the answer: a number or a text.
    #[serde(default)]
    pub id: Value,
    /// A command line, for instances that accept such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What is to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// With what.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub params: Value,
}

impl Request {
    /// A command as a user types it.
    pub fn command(line: &str) -> Self {
        Self {
            command: Some(line.into()),
            ..Self::default()
        }
    }

    /// A method and its parameters.
    pub fn method(name: &str, params: Value) -> Self {
        Self {
            method: Some(name.into()),
            params,
            ..Self::default()
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The `id` of the request.
    pub id: Value,
    /// Whether it was done.
    pub ok: bool,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

impl Answer {
    /// The answer to the request of that number.
    pub fn new(id: Value, result: Result<Value, Problem>) -> Self {
        let ok = result.is_ok();
        let (result, error) = match result {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            id,
            ok,
            result,
            error,
        }
    }
}

/// An error of a request, its fix, and near names for an unknown one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{problem}")]
pub struct Problem {
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    #[serde(default)]
    pub fix: String,
    /// Names that may have been meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<String>,
}

impl Problem {
    /// A problem without names.
    pub fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            fix: fix.into(),
            nearest: Vec::new(),
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Usage {
            problem: problem.problem,
            fix: problem.fix,
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::new(error.to_string(), error.fix().unwrap_or_default())
    }
}
