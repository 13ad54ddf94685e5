//! The log of a session, for users: the newest lines.

use std::collections::VecDeque;
use std::time::Instant;

use crate::LogLine;

/// Lines kept.
const LINES: usize = 500;

/// The newest lines of a session's log.
pub(super) struct Log {
    began: Instant,
    lines: VecDeque<LogLine>,
}

impl Log {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            lines: VecDeque::new(),
        }
    }

    pub(super) fn add(&mut self, text: impl Into<String>) {
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(LogLine {
            at_ms: self.began.elapsed().as_millis() as u64,
            text: text.into(),
        });
    }

    pub(super) fn lines(&self) -> Vec<LogLine> {
        self.lines.iter().cloned().collect()
    }
}
