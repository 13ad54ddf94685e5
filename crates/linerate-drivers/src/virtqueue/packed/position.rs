//! Where one is in a packed ring.

use super::{AVAILABLE, USED};

/// A place in the ring, and the wrap counter there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(super) at: u16,
    pub(super) wrap: bool,
}

impl Position {
    /// Where both sides begin (2.8.1).
    pub(crate) const START: Self = Self { at: 0, wrap: true };

    /// From 15 bits of place and one of wrap counter, as vhost-user messages and event structures
    /// have it.
    pub(crate) fn from_bits(bits: u16) -> Self {
        Self {
            at: bits & 0x7fff,
            wrap: bits >> 15 == 1,
        }
    }

    /// The other way round.
    #[inline(always)]
    pub(crate) fn bits(self) -> u16 {
        self.at | u16::from(self.wrap) << 15
    }

    /// Whether a ring of that size has it.
    pub(crate) fn is_in(self, size: u16) -> bool {
        self.at < size
    }

    /// `count` places on, at most the whole ring.
    #[inline(always)]
    pub(super) fn plus(self, count: usize, size: u16) -> Self {
        let at = usize::from(self.at) + count;
        match at.checked_sub(usize::from(size)) {
            None => Self {
                at: at as u16,
                ..self
            },
            Some(at) => Self {
                at: at as u16,
                wrap: !self.wrap,
            },
        }
    }

    /// The same place a lap later, or earlier.
    pub(super) fn other_lap(self) -> Self {
        Self {
            wrap: !self.wrap,
            ..self
        }
    }

    /// The flags of a descriptor that is available here (2.8.1).
    #[inline(always)]
    pub(super) fn available(self) -> u16 {
        if self.wrap { AVAILABLE } else { USED }
    }

    /// The flags of one that is used.
    #[inline(always)]
    pub(super) fn used(self) -> u16 {
        if self.wrap { AVAILABLE | USED } else { 0 }
    }
}
