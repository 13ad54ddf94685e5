//! Frames of a capture file, sent with its own timing, faster or slower, once or again and again.
//!
//! A [`Recording`] is loaded whole, so that no file is read while frames are sent; a [`Replay`]
//! gives its frames out. A file that is damaged or ends early is refused before anything is sent.
//! What is sent is what was captured, unless a signature is asked for: it takes the place of a
//! frame's last 18 bytes, whatever they were, and checksums over them become wrong.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use linerate_core::packet::Packet;
use linerate_drivers::pcap::{ReadError, Reader};

use super::schedule::ReplayClock;
use crate::figures::TemplateView;
use crate::signature::{Label, SIGNATURE_BYTES};
use crate::stream::StreamSpec;
use crate::units::FCS_BYTES;
use linerate_appliance::error::Error;

/// Largest recording, in bytes of frames.
pub const MOST_BYTES: usize = 1 << 30;
/// Keys of a stream that apply to a capture.
const KEYS: &[&str] = &[
    "name",
    "port",
    "rate",
    "pacing",
    "weight",
    "count",
    "burst",
    "gap",
    "delay",
    "enabled",
    "signature",
    "seed",
    "pcap",
    "speed",
    "loop",
];
/// An Ethernet header: anything shorter is not a frame.
const SHORTEST: usize = 14;

/// The frames of a capture file, in memory.
#[derive(Debug)]
pub struct Recording {
    name: String,
    bytes: Vec<u8>,
    frames: Vec<Range<usize>>,
    /// From the first frame to each; they never go back.
    times_ns: Vec<u64>,
    shortest: usize,
    longest: usize,
}

impl Recording {
    /// Loads a pcap or pcapng file of up to `most_bytes` bytes of frames.
    ///
    /// # Errors
    /// Where the file cannot be read to its end, has no frame, or has one that `longest_bytes` does
    /// not take. The message names the file, the record, and what to do.
    pub fn load(path: &Path, most_bytes: usize, longest_bytes: usize) -> Result<Self, Error> {
        let name = path.display().to_string();
        let wrong = |problem: &str, fix: String| Error::Usage {
            problem: format!("{name}: {problem}"),
            fix,
        };
        let unreadable = |error: ReadError| {
            let fix = match &error {
                ReadError::NotCapture(_) => "name a file that tcpdump or Wireshark wrote".into(),
                ReadError::LinkType(_) => "only Ethernet can be sent".into(),
                ReadError::Record { number: 1, .. } => "capture it again".into(),
                ReadError::Record { number, .. } => format!(
                    "keep what is whole: `editcap -r {name} whole.pcapng 1-{}`",
                    number - 1
                ),
            };
            wrong(&error.to_string(), fix)
        };
        let file = File::open(path).map_err(|source| Error::File {
            path: path.into(),
            source,
        })?;
        let mut reader = Reader::new(file).map_err(unreadable)?;
        let (mut bytes, mut frames, mut times_ns) = (Vec::new(), Vec::new(), Vec::<u64>::new());
        let mut first_ns = None;
        while let Some(frame) = reader.next().map_err(unreadable)? {
            let (number, len) = (frames.len() + 1, frame.data.len());
            if !(SHORTEST..=longest_bytes).contains(&len) {
                let problem = format!(
                    "frame {number} has {len} bytes, and the port takes {SHORTEST} to \
                     {longest_bytes}"
                );
                let fix = "leave it out, for example with `editcap`".to_string();
                return Err(wrong(&problem, fix));
            }
            if bytes.len() + len > most_bytes {
                let problem = format!("it has more than {most_bytes} bytes of frames");
                return Err(wrong(&problem, format!("send its first {}", frames.len())));
            }
            frames.push(bytes.len()..bytes.len() + len);
            bytes.extend_from_slice(frame.data);
            let first_ns = *first_ns.get_or_insert(frame.timestamp_ns);
            let since = frame.timestamp_ns.saturating_sub(first_ns);
            times_ns.push(since.max(times_ns.last().copied().unwrap_or(0)));
        }
        let lens = || frames.iter().map(Range::len);
        let (Some(shortest), Some(longest)) = (lens().min(), lens().max()) else {
            return Err(wrong("it has no frame", "name a file that has some".into()));
        };
        Ok(Self {
            name,
            bytes,
            frames,
            times_ns,
            shortest,
            longest,
        })
    }

    /// Number of frames.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// When its frames are due at `speed` times the speed at which they were captured. A pass is
    /// followed by the next after the mean gap of the file.
    fn replay_clock(&self, speed: f64, ticks_per_second: f64) -> ReplayClock {
        let ticks = |ns: u64| (ns as f64 / 1e9 / speed * ticks_per_second) as u64;
        let offsets: Arc<[u64]> = self.times_ns.iter().map(|&ns| ticks(ns)).collect();
        let last_ns = self.times_ns.last().copied().unwrap_or(0);
        let gap_ns = last_ns / (self.len() as u64 - 1).max(1);
        ReplayClock::new(offsets, ticks(last_ns + gap_ns).max(1))
    }
}

/// A recording that is being sent.
#[derive(Debug)]
pub struct Replay {
    recording: Arc<Recording>,
    /// Number of the session in signatures.
    pub(super) session: u16,
    /// Number of the stream in signatures; `None`: frames are sent as captured.
    id: u16,
    is_signed: bool,
    /// Speed of the recording's own timing; `None`: the stream's rate is used.
    speed: Option<f64>,
    /// Number of passes; `None`: no limit.
    passes: Option<u64>,
    /// The sequence number of the pass's first frame, less what was skipped since.
    base: u64,
}

impl Replay {
    /// `speed`: factor of the captured speed; `None`: the stream's rate. `passes`: number of
    /// passes; `None`: no limit. `is_signed`: whether signatures take the place of the frames' last
    /// bytes.
    ///
    /// # Errors
    /// A recording without time stamps cannot be sent by its own timing.
    pub fn new(
        recording: Arc<Recording>,
        id: u16,
        is_signed: bool,
        speed: Option<f64>,
        passes: Option<u64>,
    ) -> Result<Self, Error> {
        let spans = recording.times_ns.last().is_some_and(|&last| last > 0);
        if speed.is_some() && recording.len() > 1 && !spans {
            return Err(Error::Usage {
                problem: format!("{}: all frames have the same time", recording.name),
                fix: "give the stream a rate, such as rate=1kpps".into(),
            });
        }
        if is_signed && recording.shortest < SIGNATURE_BYTES + SHORTEST {
            return Err(Error::Usage {
                problem: format!(
                    "{}: its shortest frame of {} bytes has no room for a signature",
                    recording.name, recording.shortest
                ),
                fix: "leave out signature=on".into(),
            });
        }
        Ok(Self {
            recording,
            session: 0,
            id,
            is_signed,
            speed,
            passes,
            base: 0,
        })
    }

    /// The replay for a stream with the key `pcap`: with a rate at that rate, otherwise as
    /// captured; once by default.
    ///
    /// # Errors
    /// Those of [`Replay::new`], and keys that have no meaning for a capture.
    pub fn of(spec: &StreamSpec, recording: Arc<Recording>, id: u16) -> Result<Self, Error> {
        let file = spec.pcap.as_deref().unwrap_or_default();
        if let Some((key, value)) = spec.pairs().find(|(key, _)| !KEYS.contains(key)) {
            return Err(Error::Usage {
                problem: format!("pcap={file} {key}={value}: a capture has its own frames"),
                fix: format!("leave out {key}, or pcap"),
            });
        }
        // With a rate of its own the stream has no use for the capture's times.
        let speed = match (spec.speed, spec.rate) {
            (None, Some(_)) => None,
            (speed, _) => Some(speed.unwrap_or(1.0)),
        };
        let passes = Some(spec.repeat.unwrap_or(1)).filter(|&passes| passes > 0);
        Self::new(recording, id, spec.signature == Some(true), speed, passes)
    }

    /// Begins with the first frame, which has the sequence number `next`.
    pub(super) fn begin(&mut self, next: u64) {
        self.base = next;
    }

    /// Its own timing, if it has one.
    pub(super) fn replay_clock(&self, ticks_per_second: f64) -> Option<ReplayClock> {
        Some(self.recording.replay_clock(self.speed?, ticks_per_second))
    }

    /// Whether it has its own timing.
    pub(super) fn keeps_time(&self) -> bool {
        self.speed.is_some()
    }

    /// Frames in all; `None`: no limit.
    pub(super) fn count(&self) -> Option<u64> {
        Some(self.passes?.saturating_mul(self.recording.len() as u64))
    }

    /// Longest frame in memory.
    pub fn max_len(&self) -> usize {
        self.recording.longest
    }

    /// Mean size of its frames, FCS included.
    pub fn mean_frame_bytes(&self) -> f64 {
        self.recording.bytes.len() as f64 / self.recording.len() as f64 + FCS_BYTES as f64
    }

    /// What the display shows.
    pub fn view(&self) -> TemplateView {
        let [shortest, longest] =
            [self.recording.shortest, self.recording.longest].map(|len| len + FCS_BYTES);
        TemplateView {
            kind: format!("capture of {} frames", self.recording.len()),
            size: match shortest == longest {
                true => shortest.to_string(),
                false => format!("{shortest}-{longest}"),
            },
            ..TemplateView::default()
        }
    }

    /// Skips frames that are not sent: later ones take their numbers.
    pub(super) fn skip(&mut self, frames: u64) {
        self.base = self.base.wrapping_sub(frames);
    }

    /// Writes frames, the first with the number `first`.
    pub(super) fn write(&self, packets: &mut [Packet], stamps: &[u64], first: u64) {
        let Recording { bytes, frames, .. } = &*self.recording;
        let mut at = (first.wrapping_sub(self.base) % frames.len() as u64) as usize;
        for ((packet, &stamp), sequence) in packets.iter_mut().zip(stamps).zip(first..) {
            packet.set_data(&bytes[frames[at].clone()]);
            if let (true, Some(tail)) = (self.is_signed, packet.data_mut().last_chunk_mut()) {
                let label = Label {
                    session: self.session,
                    stream: self.id,
                    sequence,
                    stamp,
                };
                label.write(tail);
            }
            at += 1;
            if at == frames.len() {
                at = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
