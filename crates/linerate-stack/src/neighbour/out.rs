//! Output of a call of the table.

use linerate_core::packet::Packet;
use linerate_wire::ethernet::{self, EtherType, MIN_FRAME_LEN, MacAddr};

use super::{DropReason, Event};

/// A packet whose next hop is known now.
#[derive(Debug)]
pub struct Released {
    /// Output interface.
    pub interface: u16,
    /// The neighbour's MAC address: the frame's new destination.
    pub mac: MacAddr,
    /// The packet as it was passed in.
    pub packet: Packet,
}

/// A packet to be dropped.
#[derive(Debug)]
pub struct Dropped {
    /// Output interface that it was for.
    pub interface: u16,
    /// Why it is dropped.
    pub reason: DropReason,
    /// The packet as it was passed in.
    pub packet: Packet,
}

/// Frames, packets and events, in order. The caller keeps it, passes it to every call, and takes
/// the contents.
#[derive(Debug, Default)]
pub struct Out {
    /// Packets to be sent.
    pub released: Vec<Released>,
    /// Packets to be dropped, and counted.
    pub dropped: Vec<Dropped>,
    /// What happened.
    pub events: Vec<Event>,
    /// Interface and end in `bytes` of each frame.
    frames: Vec<(u16, usize)>,
    bytes: Vec<u8>,
}

impl Out {
    /// An empty output.
    pub fn new() -> Self {
        Self::default()
    }

    /// The frames to be sent, each with the interface that it goes out of: untagged, from the
    /// Ethernet header on, without frame check sequence.
    pub fn frames(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let starts = std::iter::once(0).chain(self.frames.iter().map(|frame| frame.1));
        let frames = self.frames.iter().zip(starts);
        frames.map(|((interface, end), start)| (*interface, &self.bytes[start..*end]))
    }

    /// Empties it; packets that were not taken are freed.
    pub fn clear(&mut self) {
        self.released.clear();
        self.dropped.clear();
        self.events.clear();
        self.frames.clear();
        self.bytes.clear();
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.released.is_empty()
            && self.dropped.is_empty()
            && self.events.is_empty()
            && self.frames.is_empty()
    }

    pub(super) fn send(
        &mut self,
        interface: u16,
        (dst, src): (MacAddr, MacAddr),
        ethertype: EtherType,
        parts: [&[u8]; 2],
    ) {
        let start = self.bytes.len();
        self.bytes.extend(ethernet::header(dst, src, ethertype));
        parts.iter().for_each(|part| self.bytes.extend(*part));
        let end = self.bytes.len().max(start + MIN_FRAME_LEN);
        self.bytes.resize(end, 0);
        self.frames.push((interface, end));
    }

    pub(super) fn drop(&mut self, interface: u16, reason: DropReason, packet: Packet) {
        self.dropped.push(Dropped {
            interface,
            reason,
            packet,
        });
    }
}
