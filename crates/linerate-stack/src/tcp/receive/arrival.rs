//! A segment on its way into a queue, and the place where it belongs.

use linerate_core::packet::Packet;

use super::pieces::Span;

/// A segment on its way in.
pub(super) struct Arrival {
    pub(super) packet: Packet,
    pub(super) start: u32,
    pub(super) seq: u32,
    pub(super) end: u32,
}

impl Arrival {
    pub(super) fn len(&self) -> u32 {
        self.end.wrapping_sub(self.seq)
    }

    /// Cuts what lies before `seq`, which is inside.
    pub(super) fn skip_to(&mut self, seq: u32) {
        self.start += seq.wrapping_sub(self.seq);
        self.seq = seq;
    }

    pub(super) fn span(&self) -> Span {
        Span {
            start: self.start,
            len: self.len(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.packet.data()[self.start as usize..][..self.len() as usize]
    }

    /// Moves the bytes to another packet, which takes them; returns the old one.
    pub(super) fn rehouse(&mut self, mut packet: Packet) -> Packet {
        let fits = packet.set_data(self.bytes());
        debug_assert!(fits, "the caller has compared with the slot");
        self.start = 0;
        std::mem::replace(&mut self.packet, packet)
    }
}

/// Where an arrival belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The run before it, which may end where it begins.
    pub(super) run: u32,
    /// The piece that ends where it begins: the last of those to be read, or of `run`.
    pub(super) before: u32,
    /// The run behind its begin, which it may overlap.
    pub(super) behind: u32,
}
