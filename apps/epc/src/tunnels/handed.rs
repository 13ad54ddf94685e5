//! G-PDUs that gateways of one lcore hand to each other: SGW and PGW as one machine has them (TS
//! 23.401 4.4.3).
//!
//! Their lengths and outer checksums have been looked at, and nobody looks at their outer headers
//! again: who takes them out of the tunnel has no use for them, who has them go on writes others.
//! So these are not written in between. What no gateway takes gets them then, for the slow path.

use super::burst::{BURST, move_those};
use super::headers::write_headers;
use linerate_core::packet::Burst;

/// Where a G-PDU goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The address that it comes from.
    pub(crate) from: [u8; 4],
    /// The address of the tunnel's end.
    pub(crate) to: [u8; 4],
    /// Which tunnel there.
    pub(crate) teid: u32,
}

/// Frames with G-PDUs for gateways of this host: room for headers, and the user's packet.
pub struct Handed {
    pub(super) frames: Burst,
    pub(super) ends: [End; BURST],
}

impl Handed {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self {
            frames: Burst::new(),
            ends: [End::default(); BURST],
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The `count`-th of the frames that come next goes there. Frames have room for headers.
    #[inline]
    pub(super) fn expect(&mut self, count: u32, end: End) {
        let at = self.frames.len() + count as usize - 1;
        if let Some(place) = self.ends.get_mut(at) {
            *place = end;
        }
    }

    /// Moves the frames at these positions.
    #[inline]
    pub(super) fn take_those(&mut self, those: u64, to: &mut Burst) {
        if those == 0 {
            return;
        }
        let all = self.frames.mask();
        move_those(&mut self.frames, those, to);
        let mut left = all & !those;
        for at in 0..self.frames.len() {
            self.ends[at] = self.ends[left.trailing_zeros() as usize];
            left &= left - 1;
        }
    }

    /// Puts those that no gateway has taken into a burst that has room for them, with all their
    /// headers but the Ethernet addresses, as if they had come to `port`.
    #[inline]
    pub fn give_up(&mut self, burst: &mut Burst, port: u16) {
        if self.is_empty() {
            return;
        }
        for (frame, end) in self.frames.as_packets_mut().iter_mut().zip(&self.ends) {
            write_headers(frame, end);
            frame.set_port(port);
        }
        self.frames.move_front(self.frames.len(), burst);
    }
}

impl Default for Handed {
    fn default() -> Self {
        Self::new()
    }
}
