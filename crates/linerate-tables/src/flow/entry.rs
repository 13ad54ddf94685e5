//! What a flow is in memory, and what the index knows of it.

use linerate_core::arch::prefetch_read;

use super::key::Direction;
use super::{FlowId, Hit};

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// What a packet reads and writes: whole lines. Packets count on the first one, which has room for
/// 16 bytes more; with 64 of the user's, an IPv4 entry fills two lines and an IPv6 one three.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Entry<F, S, I> {
    pub(super) last_seen: u64,
    pub(super) packets: [u64; 2],
    pub(super) bytes: [u64; 2],
    /// Odd while there is a flow.
    pub(super) generation: u32,
    pub(super) state: u8,
    pub(super) bucket: u8,
    pub(super) translated: bool,
    pub(super) zone: u8,
    pub(super) user: S,
    /// What differs between the key and the reversed key of the answers: nothing, unless the flow
    /// is translated.
    pub(super) translation: F,
    pub(super) key: I,
}

impl<F, S, I> Entry<F, S, I> {
    #[inline(always)]
    pub(super) fn hit(&self, index: u32, direction: Direction) -> Hit {
        Hit {
            flow: FlowId {
                index,
                generation: self.generation,
            },
            direction,
            state: self.state,
        }
    }
}

/// What a flow began with, read when it ends.
#[derive(Clone, Copy)]
pub(super) struct Origin<O> {
    pub(super) created: u64,
    pub(super) key: O,
}

/// What the index knows of a key: the flow's place in 28 bits, and which packets have the key. Two
/// bits are the directions of those whose key is the canonical one and of those whose key is its
/// reverse; two say for either that the flow has no such packets, which is so for one of them if
/// the flow is translated.
#[derive(Clone, Copy)]
pub(super) struct Place(pub(super) u32);

impl Place {
    const DIRECTION: u32 = 28;
    const NONE: u32 = 30;

    /// The place of a flow whose packets in some direction have a key that is the canonical one, or
    /// its reverse if `flipped`; in the other direction the reverse of that key, unless the flow is
    /// translated.
    pub(super) fn new(index: u32, direction: Direction, flipped: bool, translated: bool) -> Self {
        let (this, other) = (u32::from(flipped), u32::from(!flipped));
        let directions = (direction as u32) << this | (direction.other() as u32) << other;
        let none = u32::from(translated) << other;
        Self(index | directions << Self::DIRECTION | none << Self::NONE)
    }

    #[inline(always)]
    pub(super) fn index(self) -> u32 {
        self.0 & ((1 << Self::DIRECTION) - 1)
    }

    #[inline(always)]
    pub(super) fn is_translated(self) -> bool {
        self.0 >= 1 << Self::NONE
    }

    /// The direction of a packet whose key is the canonical one, or is `flipped`; `None` if the
    /// flow has no such packets.
    #[inline(always)]
    pub(super) fn direction(self, flipped: bool) -> Option<Direction> {
        let bits = self.0 >> (Self::DIRECTION + u32::from(flipped));
        let none = bits & 1 << (Self::NONE - Self::DIRECTION) != 0;
        (!none).then(|| Direction::of(bits & 1 != 0))
    }
}

/// Asks for the lines of `object`, which begins on one, that hold its first `bytes` bytes.
#[inline(always)]
pub(super) fn prefetch_lines<T>(object: *const T, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        prefetch_read(object.cast::<u8>().wrapping_add(line));
    }
}
