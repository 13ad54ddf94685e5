//! Keys that flow tables take, and which of a flow's two directions a packet has.

use linerate_wire::flow::{FlowKey4, FlowKey6};

/// A flow's key: `K` bytes, and the same flow's key as seen from the other side.
pub trait FlowKey<const K: usize>: Copy + Eq + std::fmt::Debug {
    /// The key of these bytes.
    fn from_bytes(bytes: [u8; K]) -> Self;

    /// The bytes that are looked up.
    fn bytes(&self) -> &[u8; K];

    /// The key of packets the other way.
    #[must_use]
    fn reversed(self) -> Self;

    /// The one of the two directions that stands for both, and whether it is the other one.
    #[inline(always)]
    fn canonical(self) -> (Self, bool) {
        let reversed = self.reversed();
        let flip = reversed.bytes() < self.bytes();
        (if flip { reversed } else { self }, flip)
    }
}

impl FlowKey<16> for FlowKey4 {
    #[inline(always)]
    fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    #[inline(always)]
    fn reversed(self) -> Self {
        FlowKey4::reversed(self)
    }
}

impl FlowKey<40> for FlowKey6 {
    #[inline(always)]
    fn from_bytes(bytes: [u8; 40]) -> Self {
        Self(bytes)
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8; 40] {
        &self.0
    }

    #[inline(always)]
    fn reversed(self) -> Self {
        FlowKey6::reversed(self)
    }
}

/// Which way a packet of a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// As the packet that began the flow.
    Forward,
    /// The answer.
    Reverse,
}

impl Direction {
    #[inline(always)]
    pub(super) fn of(reverse: bool) -> Self {
        if reverse {
            Direction::Reverse
        } else {
            Direction::Forward
        }
    }
}
