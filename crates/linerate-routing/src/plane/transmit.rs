//! Transmit: sends frames whose headers are written by their interfaces.
//!
//! Plain ones leave in groups, by interface; exceptions wait in [`Output`] and leave after them.

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{Egress, Stage};
use linerate_tables::parse::Mask;
use linerate_tables::rewrite::Scatter;

use super::change::Change;
use super::context::Context;
use super::hops::Hop;
use super::interface::Installed;
use super::reasons::Reasons;
use super::rewrite::trim;
use super::vlan;

/// Frames that are ready to go, by the interface that they leave by, until their burst is done.
#[derive(Default)]
pub(super) struct Output {
    frames: Vec<Burst>,
    /// Which interfaces may have some, by their number modulo 64.
    filled: u64,
    count: u64,
}

impl Output {
    /// Takes over the interfaces of another configuration. There are no frames between two bursts.
    pub(super) fn install(&mut self, change: &mut Change) {
        std::mem::swap(&mut self.frames, &mut change.frames);
    }

    /// How many frames there are.
    #[inline(always)]
    pub(super) fn kept(&self) -> u64 {
        self.count
    }

    fn take(&mut self, at: usize) -> Burst {
        let frames = std::mem::take(&mut self.frames[at]);
        self.count -= frames.len() as u64;
        frames
    }
}

/// The stage.
pub struct Transmit {
    scatter: Scatter,
}

impl Transmit {
    /// With loops for an instruction set.
    pub fn new(isa: Isa) -> Self {
        Self {
            scatter: Scatter::new(isa),
        }
    }
}

impl Stage<Context<'_>> for Transmit {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let exits = &context.packets.exits;
        let (installed, reasons) = (context.installed, context.reasons);
        self.scatter
            .by_value(burst, Mask::MAX, exits, |exit, packets| {
                send(exit as usize, packets, installed, reasons, out);
            });
        if context.output.filled != 0 {
            context.send_output(out);
        }
    }
}

/// Sends frames, whose headers are written, out of an interface.
#[inline(always)]
fn send(
    at: usize,
    packets: &mut Burst,
    installed: &Installed,
    reasons: &Reasons,
    out: &mut Egress,
) {
    let Some(interface) = installed.interfaces.get(at) else {
        return out.drop_burst(reasons.no_interface, packets);
    };
    if let Some(traffic) = installed.counters.at(at) {
        traffic.out_packets.add(packets.len() as u64);
        traffic.out_bytes.add(packets.bytes());
    }
    if interface.tci != 0 {
        let mut lost = Burst::new();
        packets.retain(&mut lost, |packet| vlan::tag(packet, interface.tci));
        out.drop_burst(reasons.no_buffer, &mut lost);
    }
    out.send(interface.port, packets);
}

impl Context<'_> {
    /// Queues a frame, whose headers are written, for its hop's interface.
    pub(super) fn leave(&mut self, hop: &Hop, end: usize, mut packet: Packet, out: &mut Egress) {
        trim(&mut packet, end);
        self.queue(hop.interface.number() as usize, packet, out);
    }

    /// The same for a frame that is ready.
    pub(super) fn queue(&mut self, at: usize, packet: Packet, out: &mut Egress) {
        let output = &mut *self.output;
        let Some(frames) = output.frames.get_mut(at) else {
            return out.drop_one(self.reasons.no_interface, packet);
        };
        output.filled |= 1 << (at % 64);
        match frames.push(packet) {
            Ok(()) => output.count += 1,
            Err(packet) => self.queue_full(at, packet, out),
        }
    }

    fn queue_full(&mut self, at: usize, packet: Packet, out: &mut Egress) {
        self.send_frames(at, out);
        match self.output.frames[at].push(packet) {
            Ok(()) => self.output.count += 1,
            Err(packet) => out.drop_one(self.reasons.no_buffer, packet),
        }
    }

    /// Sends all frames that are ready.
    #[cold]
    pub(super) fn send_output(&mut self, out: &mut Egress) {
        let mut filled = std::mem::take(&mut self.output.filled);
        while filled != 0 {
            let lowest = filled.trailing_zeros() as usize;
            filled &= filled - 1;
            for at in (lowest..self.output.frames.len()).step_by(64) {
                if !self.output.frames[at].is_empty() {
                    self.send_frames(at, out);
                }
            }
        }
    }

    fn send_frames(&mut self, at: usize, out: &mut Egress) {
        let mut frames = self.output.take(at);
        send(at, &mut frames, self.installed, self.reasons, out);
    }
}
