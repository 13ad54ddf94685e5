//! The JSON interface: the lines to and from a session.
//!
//! Each line is one JSON object. A client asks with a [`Request`], either a command as a user types
//! it, `{"id": 1, "command": "set 0 rate 99%"}`, or a method with parameters, `{"id": 2, "method":
//! "start", "params": {"ports": "0", "seconds": 2}}`. Each request has one [`Answer`] with its
//! `id`; after `subscribe` there are [`Event`]s as well. `docs/pktgen.md` lists the methods.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Snapshot;
pub(crate) use linerate_appliance::socket::protocol::{Answer, Problem, REQUEST_BYTES, Request};

/// Version of requests and answers; grows when a member changes its meaning or is removed.
pub(crate) const VERSION: u32 = 1;
/// Longest answer in bytes that a [`Client`](super::Client) takes: snapshots of thousands of
/// streams.
pub(crate) const ANSWER_BYTES: usize = 256 << 20;

/// An event, which a subscriber gets without a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// The `id` of the `subscribe` request.
    pub(crate) id: Value,
    /// `snapshot`.
    pub(crate) event: String,
    /// Events skipped since the one before, because the client did not read.
    pub(crate) skipped: u64,
    pub(crate) result: Snapshot,
}

/// What a screen is to do after a command, the same for each client that draws one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ScreenAction {
    /// Show this page, one of [`PAGES`](super::PAGES).
    Page(String),
    /// Take these colours, one of `THEMES`.
    Theme(String),
    /// Show this text until a key is pressed.
    Show(String),
    /// The session ends.
    Quit,
}

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Text for users: one line, or several.
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) screen: Option<ScreenAction>,
    /// Data for programs, where it has more than the text.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) data: Value,
}

/// One candidate for completing a command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Candidate {
    /// What replaces the word under the cursor.
    pub(crate) text: String,
    /// What it means, in a few words.
    pub(crate) help: String,
}

/// How a line may be completed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Completion {
    /// Byte at which the word begins that a candidate replaces; it ends at the cursor.
    pub(crate) begins: usize,
    pub(crate) candidates: Vec<Candidate>,
}
