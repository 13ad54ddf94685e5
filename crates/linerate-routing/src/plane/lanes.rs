//! Lanes: frames that are ready to go, by the interface that they leave by, until their burst is done.

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;

use super::engine::Engine;
use super::hops::Hop;
use super::trace::Stage;
use super::vlan;

/// The shortest Ethernet frame, without FCS: what is padded stays that long.
pub(super) const SHORTEST: usize = 60;

impl Engine {
    /// Puts a frame, whose headers are written, into the lane of its hop's interface.
    pub(super) fn leave(&mut self, hop: &Hop, end: usize, mut packet: Packet, out: &mut Egress) {
        trim(&mut packet, end);
        self.queue(hop.interface.number() as usize, packet, out);
    }

    /// Puts a frame that is ready into an interface's lane.
    pub(super) fn queue(&mut self, at: usize, packet: Packet, out: &mut Egress) {
        let Some(lane) = self.lanes.get_mut(at) else {
            return out.drop_one(self.reasons.no_interface, packet);
        };
        self.filled |= 1 << (at % 64);
        if let Err(packet) = lane.push(packet) {
            self.leave_full(at, packet, out);
        }
    }

    fn leave_full(&mut self, at: usize, packet: Packet, out: &mut Egress) {
        self.send_lane(at, out);
        if let Err(packet) = self.lanes[at].push(packet) {
            out.drop_one(self.reasons.no_buffer, packet);
        }
    }

    /// Sends what is in the lanes.
    #[inline(always)]
    pub(super) fn send_lanes(&mut self, out: &mut Egress) {
        let mut filled = std::mem::take(&mut self.filled);
        while filled != 0 {
            let lowest = filled.trailing_zeros() as usize;
            filled &= filled - 1;
            for at in (lowest..self.lanes.len()).step_by(64) {
                if !self.lanes[at].is_empty() {
                    self.send_lane(at, out);
                }
            }
        }
    }

    fn send_lane(&mut self, at: usize, out: &mut Egress) {
        let mut lane = std::mem::take(&mut self.lanes[at]);
        self.send(at, &mut lane, out);
    }

    /// Sends frames, whose headers are written, out of an interface.
    #[inline(always)]
    pub(super) fn send(&mut self, at: usize, packets: &mut Burst, out: &mut Egress) {
        let Some(face) = self.faces.get(at) else {
            return out.drop_burst(self.reasons.no_interface, packets);
        };
        let (port, tci) = (face.port, face.tci);
        if let Some(traffic) = self.counters.at(at) {
            traffic.out_packets.add(packets.len() as u64);
            traffic.out_bytes.add(packets.bytes());
        }
        if tci != 0 {
            let mut lost = Burst::new();
            packets.sift(&mut lost, |packet| vlan::tag(packet, tci));
            out.drop_burst(self.reasons.no_buffer, &mut lost);
        }
        if self.watch.is_tapped() {
            self.watch.show(Stage::Output, port, packets);
        }
        out.send(port, packets);
    }
}

/// Cuts off the padding that the last link needed, and the next may have no room for.
#[inline(always)]
pub(super) fn trim(packet: &mut Packet, end: usize) {
    let end = end.max(SHORTEST);
    if packet.len() > end {
        packet.truncate(end);
    }
}
