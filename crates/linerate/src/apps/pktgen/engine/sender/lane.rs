//! One stream in a sender's hands: what to send, how fast, how many.

use std::sync::Arc;
use std::time::Duration;

use linerate_core::packet::Packet;

use super::StreamSent;
use crate::apps::pktgen::engine::schedule::{Beat, Pace, Window};
use crate::apps::pktgen::signature::{Label, SIGNATURE_BYTES};
use crate::apps::pktgen::stream::Stream;
use crate::apps::pktgen::units::FCS_BYTES;

/// One stream in a sender's hands: what to send, how fast, how many.
pub(crate) struct Lane {
    stream: Stream,
    /// Without a rate the lane shares the port's with others.
    pace: Pace,
    pub(super) weight: u32,
    /// Frames in all; none for ever.
    count: Option<u64>,
    enabled: bool,
    pub(super) stats: Arc<StreamSent>,
    /// The next sequence number.
    pub(super) next: u64,
    /// Frames still to be intended.
    pub(super) left: u64,
    /// Frames that were intended since the start, before the lane took another's place.
    drawn: u64,
    /// Its own, while it runs.
    pub(super) beat: Option<Beat>,
    /// With FCS, where all frames have the same.
    frame_bytes: Option<u32>,
}

impl Lane {
    /// `pps`: frames a second; none to share the port's rate. `count`: frames in all; none for ever.
    pub(crate) fn new(
        stream: Stream,
        pps: Option<f64>,
        count: Option<u64>,
        stats: Arc<StreamSent>,
    ) -> Self {
        let longest = stream.max_len() + FCS_BYTES;
        let all_alike = stream.mean_frame_bytes() == longest as f64;
        Self {
            stream,
            pace: Pace::even(pps),
            weight: 1,
            count,
            enabled: true,
            stats,
            next: 0,
            left: 0,
            drawn: 0,
            beat: None,
            frame_bytes: all_alike.then_some(longest as u32),
        }
    }

    /// How often the lane comes among those that share the port's rate.
    pub(crate) fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sends `frames` back to back at a time, and keeps to the rate by the gap between such bursts.
    pub(crate) fn burst(mut self, frames: u32) -> Self {
        self.pace.burst = frames.max(1);
        self
    }

    /// Gaps of a Poisson process instead of equal ones.
    pub(crate) fn poisson(mut self, seed: u64) -> Self {
        self.pace.poisson = Some(seed);
        self
    }

    /// Begins so long after the port. Not for lanes that share a rate.
    pub(crate) fn delay(mut self, delay: Duration) -> Self {
        self.pace.delay = delay;
        self
    }

    /// A disabled lane sends nothing.
    pub(crate) fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Whether it has no rate of its own.
    pub(super) fn shares(&self) -> bool {
        self.pace.pps.is_none()
    }

    /// Gets ready for the frames of a window, from the first on.
    pub(super) fn begin(&mut self, window: &Window) {
        self.drawn = 0;
        self.go_on(window);
    }

    /// Gets ready for the frames of the rest of a window.
    pub(super) fn go_on(&mut self, window: &Window) {
        self.left = match self.enabled {
            true => self.count.unwrap_or(u64::MAX).saturating_sub(self.drawn),
            false => 0,
        };
        let own = self.enabled && !self.shares();
        self.beat = own.then(|| Beat::new(&self.pace, window));
    }

    /// Takes the place of another lane: numbers and counters go on.
    pub(super) fn succeed(&mut self, old: &Self) {
        self.next = old.next;
        self.stats = old.stats.clone();
        self.drawn = match old.enabled {
            true => old.count.unwrap_or(u64::MAX) - old.left,
            false => old.drawn,
        };
    }

    /// Writes its next frames.
    #[inline(always)]
    pub(super) fn write(&mut self, packets: &mut [Packet], stamps: &[u64], bytes: &mut [u32]) {
        self.stream.write(packets, stamps, self.next);
        self.next += packets.len() as u64;
        match self.frame_bytes {
            Some(same) => bytes.fill(same),
            None => {
                for (bytes, packet) in bytes.iter_mut().zip(packets) {
                    *bytes = (packet.len() + FCS_BYTES) as u32;
                }
            }
        }
    }

    /// Frames that the schedule has reached, and that will not be sent.
    pub(super) fn lose(&mut self, frames: u64) {
        self.stats.intended.add(frames);
        self.stats.unsent.add(frames);
        self.skip(frames);
    }

    /// Goes past frames of a recording that are not sent.
    pub(super) fn skip(&mut self, _frames: u64) {}

    /// Gives the next sequence number to a frame that was written with another one.
    pub(super) fn renumber(&mut self, packet: &mut Packet, stamp: u64) {
        let sequence = self.next;
        self.next += 1;
        let tail: Option<&mut [u8; SIGNATURE_BYTES]> = packet.data_mut().last_chunk_mut();
        let Some(tail) = tail else { return };
        let is_ours = |label: &Label| label.stream == self.stream.id();
        if let Some(label) = Label::read(tail).filter(is_ours) {
            let label = Label {
                sequence,
                stamp,
                ..label
            };
            label.write(tail);
        }
    }
}
