//! How far a connection of the server is.

use linerate_stack::socket::SocketId;

use super::NONE;
use crate::http::answer::Status;
use crate::http::body::Body;

/// The part of an exchange that a connection is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is none.
    #[default]
    Free,
    /// A request is waited for, or its head under way.
    Head,
    /// The body of a request is being discarded.
    Body,
    /// The answer is being written.
    Answer,
    /// All is said; what still comes is discarded until the peer ends it.
    Linger,
}

/// What a step has left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next one.
    Next,
    /// Nothing, until this is so.
    Wait(u8),
    /// The connection is no more.
    Gone,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: Option<SocketId>,
    pub(super) phase: Phase,
    /// What was last asked for, so that it is not asked again.
    pub(super) wanted: u8,
    /// Whether it goes on after this answer.
    pub(super) keeps: bool,
    /// Whether the peer may still send, though it does not go on: it was not the peer's wish.
    pub(super) lingers: bool,
    pub(super) is_1_1: bool,
    /// Whether the head of the answer is still to be written.
    pub(super) has_head: bool,
    /// Whether the deadline is that of this answer.
    pub(super) is_timed: bool,
    pub(super) status: Status,
    pub(super) resource: u32,
    /// The request's body.
    pub(super) body: Body,
    pub(super) body_left: u64,
    /// Bytes of the answer's body that are written, and all of them.
    pub(super) at: u64,
    pub(super) end: u64,
    /// Of one that has something to say of a part: bytes of the whole body.
    pub(super) all: u64,
    pub(super) progress: u64,
    pub(super) deadline_ns: u64,
    /// The beginning of a head that came in parts, or of an answer's head for which there was no
    /// room.
    pub(super) part: Vec<u8>,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            id: None,
            phase: Phase::Free,
            wanted: 0,
            keeps: false,
            lingers: false,
            is_1_1: true,
            has_head: false,
            is_timed: false,
            status: Status::Ok,
            resource: NONE,
            body: Body::Length(0),
            body_left: 0,
            at: 0,
            end: 0,
            all: 0,
            progress: 0,
            deadline_ns: 0,
            part: Vec::new(),
        }
    }
}

impl Connection {
    /// Whether all of the answer is.
    pub(super) fn is_written(&self) -> bool {
        !self.has_head && self.at == self.end && self.part.is_empty()
    }
}
