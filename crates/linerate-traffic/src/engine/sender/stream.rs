//! One stream that a sender sends: what to send, how fast, how many.

use std::sync::Arc;
use std::time::Duration;

use linerate_core::packet::Packet;

use super::StreamSent;
use crate::engine::Replay;
use crate::engine::schedule::{Pace, Pacer, Window};
use crate::figures::TemplateView;
use crate::stream::Stream;
use crate::units::FCS_BYTES;

/// Where frames come from.
pub enum Content {
    /// A template and what varies in it.
    Stream(Box<Stream>),
    /// A capture file.
    Replay(Replay),
}

impl From<Stream> for Content {
    fn from(stream: Stream) -> Self {
        Self::Stream(stream.into())
    }
}

impl From<Replay> for Content {
    fn from(replay: Replay) -> Self {
        Self::Replay(replay)
    }
}

impl Content {
    /// The session that its signatures name.
    pub fn set_session(&mut self, session: u16) {
        match self {
            Self::Stream(stream) => stream.session = session,
            Self::Replay(replay) => replay.session = session,
        }
    }

    /// Longest frame in memory.
    pub fn max_len(&self) -> usize {
        match self {
            Self::Stream(stream) => stream.max_len(),
            Self::Replay(replay) => replay.max_len(),
        }
    }

    /// Mean size of its frames, FCS included.
    pub fn mean_frame_bytes(&self) -> f64 {
        match self {
            Self::Stream(stream) => stream.mean_frame_bytes(),
            Self::Replay(replay) => replay.mean_frame_bytes(),
        }
    }

    /// What the display shows.
    pub fn view(&self) -> TemplateView {
        match self {
            Self::Stream(stream) => stream.view(),
            Self::Replay(replay) => replay.view(),
        }
    }
}

/// One stream that a sender sends.
pub struct ScheduledStream {
    content: Content,
    /// A stream without a rate shares the port's rate with others like it. Delays, bursts and gaps
    /// are for streams with a rate or a gap of their own.
    pace: Pace,
    weight: u32,
    /// Frames in all; `None`: no limit.
    count: Option<u64>,
    enabled: bool,
    pub(super) stats: Arc<StreamSent>,
    /// The next sequence number.
    pub(super) next: u64,
    /// Frames still to be intended.
    pub(super) left: u64,
    /// Unsent frames that may be replaced by later ones, so that the count is reached. There is one
    /// per frame of the count, so that sending ends even on a port that takes nothing.
    pub(super) spare: u64,
    /// Frames that were intended since the start, before the stream took another's place.
    drawn: u64,
    /// Its own pacer, while it runs.
    pub(super) pacer: Option<Pacer>,
    /// With FCS, where all frames have the same.
    frame_bytes: Option<u32>,
}

impl ScheduledStream {
    /// `pps`: frames a second; `None`: shares the port's rate. `count`: frames in all; `None`: no
    /// limit.
    pub fn new(
        content: impl Into<Content>,
        pps: Option<f64>,
        count: Option<u64>,
        stats: Arc<StreamSent>,
    ) -> Self {
        Self {
            content: content.into(),
            pace: Pace::even(pps),
            weight: 1,
            count,
            enabled: true,
            stats,
            next: 0,
            left: 0,
            spare: 0,
            drawn: 0,
            pacer: None,
            frame_bytes: None,
        }
    }

    /// How often the stream comes among those that share the port's rate.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sends `frames` back to back at a time; the gap between such bursts keeps to the rate.
    pub fn burst(mut self, frames: u32) -> Self {
        self.pace.burst = frames.max(1);
        self
    }

    /// From the end of a burst to the next; the frames of a burst then follow at the rate.
    pub fn gap(mut self, gap: Duration) -> Self {
        self.pace.gap = Some(gap);
        self
    }

    /// Gaps of a Poisson process instead of equal ones.
    pub fn poisson(mut self, seed: u64) -> Self {
        self.pace.poisson = Some(seed);
        self
    }

    /// Begins so long after the port.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.pace.delay = delay;
        self
    }

    /// A disabled stream sends nothing.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Whether it has a rate or timing of its own.
    fn has_own_times(&self) -> bool {
        let cued = matches!(&self.content, Content::Replay(replay) if replay.keeps_time());
        cued || !self.pace.is_max()
    }

    /// Longest frame in memory.
    pub(super) fn max_len(&self) -> usize {
        self.content.max_len()
    }

    /// Its weight in the shared rate.
    pub(super) fn share(&self) -> u32 {
        match self.left > 0 && !self.has_own_times() {
            true => self.weight,
            false => 0,
        }
    }

    /// Gets ready for the frames of a window, from the first on.
    pub(super) fn begin(&mut self, window: &Window) {
        self.drawn = 0;
        self.spare = match &self.content {
            Content::Stream(_) => self.count.unwrap_or(0),
            // Each frame of a recording has its index and its time.
            Content::Replay(_) => 0,
        };
        self.go_on(window);
    }

    /// Replaces another stream: numbers and counters continue.
    pub(super) fn succeed(&mut self, old: &Self) {
        self.next = old.next;
        self.spare = match &self.content {
            Content::Stream(_) => old.spare.min(self.count.unwrap_or(0)),
            Content::Replay(_) => 0,
        };
        self.stats = old.stats.clone();
        self.drawn = match old.enabled {
            true => old.total() - old.left,
            false => old.drawn,
        };
    }

    /// Gets ready for the frames of the rest of a window. A recording begins again.
    pub(super) fn go_on(&mut self, window: &Window) {
        let longest = self.content.max_len() + FCS_BYTES;
        let all_alike = self.content.mean_frame_bytes() == longest as f64;
        self.frame_bytes = all_alike.then_some(longest as u32);
        self.left = match self.enabled {
            true => self.total().saturating_sub(self.drawn),
            false => 0,
        };
        self.pacer = None;
        let replay_clock = match &mut self.content {
            Content::Replay(replay) => {
                replay.begin(self.next);
                replay.replay_clock(window.ticks_per_second)
            }
            Content::Stream(_) => None,
        };
        if self.enabled && self.has_own_times() {
            self.pacer = Some(match replay_clock {
                Some(replay_clock) => Pacer::cued(replay_clock, self.pace.delay, window),
                None => Pacer::new(&self.pace, window),
            });
        }
    }

    /// Frames in all.
    fn total(&self) -> u64 {
        let of_content = match &self.content {
            Content::Replay(replay) => replay.count(),
            Content::Stream(_) => None,
        };
        let most = self.count.unwrap_or(u64::MAX);
        of_content.map_or(most, |count| most.min(count))
    }

    /// Writes its next frames.
    #[inline(always)]
    pub(super) fn write(&mut self, packets: &mut [Packet], stamps: &[u64], bytes: &mut [u32]) {
        match &mut self.content {
            Content::Stream(stream) => stream.write(packets, stamps, self.next),
            Content::Replay(replay) => replay.write(packets, stamps, self.next),
        }
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

    /// Counts frames that the schedule has reached and that will not be sent.
    pub(super) fn lose(&mut self, frames: u64) {
        self.stats.intended.add(frames);
        self.stats.unsent.add(frames);
        self.skip(frames);
    }

    /// How many of these unsent frames later ones replace.
    pub(super) fn make_up(&mut self, frames: u64) -> u64 {
        let made_up = frames.min(self.spare);
        self.spare -= made_up;
        made_up
    }

    /// Skips frames of a recording that are not sent.
    pub(super) fn skip(&mut self, frames: u64) {
        if let Content::Replay(replay) = &mut self.content {
            replay.skip(frames);
        }
    }
}
