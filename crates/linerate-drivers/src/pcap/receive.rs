//! The two receive queues: from memory ([`Replay`]) and from a file ([`Stream`]).

use super::frames::Frames;
use super::pace::{Pace, Timing};
use super::reader::Reader;
use super::{Input, Status};
use linerate_core::arch::prefetch_later;
use linerate_core::packet::{Burst, Offload, Pool, PoolCache, Pools, RxTemplate};
use linerate_core::port::{DropReason, PortError, QueueStats, RxQueue, SleepOn};
use std::io;
use std::sync::Arc;

/// An Ethernet header.
pub(super) const MIN_FRAME_BYTES: usize = 14;

/// Bytes copied per poll: with more, the first frames leave the first-level cache before anybody
/// reads them, and 1514-byte frames take 35 ns instead of 29.
const POLL_BYTES: usize = 12 << 10;

/// Plays loaded frames endlessly: each is copied into a fresh slot.
pub(super) struct Replay {
    frames: Arc<Frames>,
    /// Index of the next frame, and of its first line.
    next: usize,
    line: usize,
    pace: Pace,
    /// Most frames per poll.
    most: usize,
    pool: Pool,
    template: RxTemplate,
    stats: Arc<QueueStats>,
}

impl Replay {
    pub(super) fn new(
        frames: Arc<Frames>,
        timing: Timing,
        port: u16,
        pools: &Pools,
        stats: Arc<QueueStats>,
    ) -> Self {
        let most = (POLL_BYTES / frames.longest()).clamp(2, Burst::CAPACITY);
        // All frames fit: longer ones were not loaded.
        let pool = pools
            .for_frame(frames.longest())
            .unwrap_or(pools.primary())
            .clone();
        let template = RxTemplate {
            len: 0, // each has its own
            port,
            offload: Offload::NONE,
        };
        stats.dropped(DropReason::Malformed, frames.runts);
        stats.dropped(DropReason::Oversize, frames.giants);
        Self {
            frames,
            next: 0,
            line: 0,
            pace: Pace::new(timing),
            most,
            pool,
            template,
            stats,
        }
    }

    /// How many of the next `most` frames are due, without going past the last one.
    #[inline]
    fn due(&mut self, most: usize) -> usize {
        let entries = &self.frames.entries()[self.next..];
        let timestamp_ns = |entry| self.frames.timestamp_ns(entry);
        let horizon = self.pace.horizon(timestamp_ns(entries[0]));
        let entries = &entries[..most.min(entries.len())];
        if horizon == u64::MAX {
            return entries.len();
        }
        entries
            .iter()
            .take_while(|&&entry| timestamp_ns(entry) <= horizon)
            .count()
    }

    /// Receives up to `count` frames that lie one behind the other; returns how many, and their
    /// bytes.
    #[inline]
    fn run(&mut self, count: usize, burst: &mut Burst, cache: &mut PoolCache) -> (usize, u64) {
        let (frames, mut line, mut bytes) = (&self.frames, self.line, 0);
        let entries = &frames.entries()[self.next..][..count];
        let count = cache.fill_each(&self.pool, burst, count, self.template, |number, room| {
            let entry = entries[number];
            prefetch_later(entries.as_ptr().wrapping_add(number + Burst::CAPACITY));
            frames.copy(line, entry, room);
            line += entry.lines();
            bytes += entry.len() as u64;
            (entry.len() as u32, frames.timestamp_ns(entry))
        });
        self.next += count;
        self.line = line;
        if self.next == self.frames.len() {
            (self.next, self.line) = (0, 0);
            self.pace.restart();
        }
        (count, bytes)
    }
}

impl RxQueue for Replay {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let wanted = burst.room().min(self.most);
        let (mut count, mut bytes) = (0, 0);
        // More than once only where the capture starts again inside the burst.
        while count < wanted {
            let due = self.due(wanted - count);
            let (more, more_bytes) = self.run(due, burst, cache);
            count += more;
            bytes += more_bytes;
            if more < due || more == 0 || self.next > 0 {
                break;
            }
        }
        self.stats.passed(count as u64, bytes);
        count
    }
}

/// How a file is played.
#[derive(Clone, Copy)]
pub(super) struct Play {
    /// Whether to start again at the end.
    pub(super) again: bool,
    pub(super) timing: Timing,
    /// Index of the port.
    pub(super) port: u16,
}

/// Plays a file from disk.
pub(super) struct Stream {
    input: Input,
    /// `None` after the end.
    reader: Option<Reader>,
    play: Play,
    pace: Pace,
    /// Frames received, in all, and since the file's start.
    count: u64,
    this_round: u64,
    pools: Pools,
    stats: Arc<QueueStats>,
    status: Arc<Status>,
}

impl Stream {
    pub(super) fn new(
        input: &Input,
        play: Play,
        pools: &Pools,
        stats: Arc<QueueStats>,
        status: Arc<Status>,
    ) -> Result<Self, PortError> {
        let (pace, pools, input) = (Pace::new(play.timing), pools.clone(), input.clone());
        let reader = Some(input.read()?);
        Ok(Self {
            input,
            reader,
            play,
            pace,
            count: 0,
            this_round: 0,
            pools,
            stats,
            status,
        })
    }

    /// What to do with the next frame.
    fn receive_one(
        &mut self,
        burst: &mut Burst,
        cache: &mut PoolCache,
        horizon: &mut Option<u64>,
    ) -> Next {
        let Some(reader) = &mut self.reader else {
            return Next::Stop;
        };
        let frame = match reader.peek() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Next::End,
            Err(error) => return Next::Damaged(error.to_string()),
        };
        let pace = &mut self.pace;
        if frame.timestamp_ns > *horizon.get_or_insert_with(|| pace.horizon(frame.timestamp_ns)) {
            return Next::Stop;
        }
        let primary =
            Some(self.pools.primary()).filter(|pool| frame.data.len() <= pool.room_bytes());
        let dropped = match primary.or_else(|| self.pools.for_frame(frame.data.len())) {
            _ if frame.data.len() < MIN_FRAME_BYTES => Some(DropReason::Malformed),
            None => Some(DropReason::Oversize),
            Some(pool) => {
                // Without a slot the frame waits.
                let Some(mut packet) = cache.get(pool) else {
                    return Next::Stop;
                };
                packet.set_data(frame.data);
                packet.set_port(self.play.port);
                packet.meta_mut().timestamp = frame.timestamp_ns;
                if burst.push(packet).is_err() {
                    return Next::Stop;
                }
                None
            }
        };
        match dropped {
            Some(reason) => self.stats.dropped(reason, 1),
            None => self.this_round += 1,
        }
        reader.advance();
        Next::More
    }

    /// The file is at its end: start again, or leave it.
    fn rewind(&mut self) -> bool {
        let this_round = std::mem::take(&mut self.this_round);
        self.count += this_round;
        // A file without frames would be read endlessly.
        if !self.play.again || this_round == 0 {
            self.end(format!(
                "end of {} after {} packets",
                self.input.path.display(),
                self.count
            ));
            return false;
        }
        self.pace.restart();
        match self.input.read() {
            Ok(reader) => self.reader = Some(reader),
            Err(error) => self.end(error.to_string()),
        }
        self.reader.is_some()
    }

    fn end(&mut self, reason: String) {
        self.reader = None;
        self.status.set(Status::RX, Some(reason));
    }
}

/// The outcome of a frame.
enum Next {
    More,
    /// Nothing more on this poll.
    Stop,
    End,
    Damaged(String),
}

impl RxQueue for Stream {
    fn rx_burst(&mut self, burst: &mut Burst, cache: &mut PoolCache) -> usize {
        let before = burst.len();
        let mut horizon = None;
        while burst.room() > 0 {
            match self.receive_one(burst, cache, &mut horizon) {
                Next::More => {}
                Next::Stop => break,
                Next::End => {
                    horizon = None;
                    if !self.rewind() {
                        break;
                    }
                }
                Next::Damaged(reason) => {
                    self.stats.dropped(DropReason::Malformed, 1);
                    self.reader = None;
                    let text = format!("{}: {reason}", self.input.path.display());
                    let fault = io::Error::new(io::ErrorKind::InvalidData, reason);
                    self.status.fail(Status::RX, text, fault);
                    break;
                }
            }
        }
        let received = &burst.as_packets()[before..];
        let bytes = received.iter().map(|packet| packet.len() as u64).sum();
        self.stats.passed(received.len() as u64, bytes);
        received.len()
    }

    fn sleep_on(&mut self) -> SleepOn {
        if self.reader.is_some() {
            SleepOn::Nothing
        } else {
            SleepOn::Ended
        }
    }
}
