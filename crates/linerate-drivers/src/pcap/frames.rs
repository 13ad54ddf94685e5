//! A whole capture in memory, laid out for copying.

use super::Reader;
use linerate_core::MemError;
use linerate_core::arch::prefetch_later;
use linerate_core::mem::HugeArray;

/// A cache line's worth of a frame.
type Line = [u8; LINE_BYTES];

pub(super) const LINE_BYTES: usize = 64;
/// Frames up to here are copied line by line, without a call.
const SHORT_LINES: usize = 4;
/// How far ahead of what is copied lines are asked for: a page of 4 KiB, beyond which the processor
/// does not look ahead itself, and a burst of the shortest frames.
const AHEAD_LINES: usize = 64;

/// The frames of a capture: each starts on a cache line and is filled up to whole ones, so that
/// copying takes no care of odd lengths.
pub(super) struct Frames {
    lines: HugeArray<Line>,
    index: HugeArray<Entry>,
    /// When the first one was captured, in ns.
    began_ns: u64,
    longest: usize,
    /// Frames left out because they are shorter than an Ethernet header, or longer than any slot.
    pub(super) runts: u64,
    pub(super) giants: u64,
}

/// One frame: its length in bytes, and above that when it was captured, in ns from the first one
/// on. In 8 bytes, since what is played is far longer than the caches, and these are read along
/// with it.
#[derive(Clone, Copy)]
pub(super) struct Entry(u64);

const LEN_BITS: u32 = 17;
/// Captures that take longer, 39 hours, are streamed.
const LONGEST_NS: u64 = (1 << (u64::BITS - LEN_BITS)) - 1;

impl Entry {
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.0 as usize & ((1 << LEN_BITS) - 1)
    }

    #[inline(always)]
    pub(super) fn lines(self) -> usize {
        self.len().div_ceil(LINE_BYTES)
    }
}

impl Frames {
    /// Loads a capture; `None` if it is damaged, has no frame to replay, or takes more than
    /// `most_bytes`.
    ///
    /// # Errors
    /// Those of memory.
    pub(super) fn load(
        mut reader: Reader,
        most_bytes: usize,
        longest_bytes: usize,
    ) -> Result<Option<Self>, MemError> {
        let (mut lines, mut stamps) = (Vec::<Line>::new(), Vec::new());
        let (mut longest, mut runts, mut giants) = (0, 0, 0);
        loop {
            let frame = match reader.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return Ok(None),
            };
            let len = frame.data.len();
            if len < super::receive::MIN_FRAME_BYTES {
                runts += 1;
            } else if len > longest_bytes {
                giants += 1;
            } else {
                longest = longest.max(len);
                stamps.push((len as u64, frame.timestamp_ns));
                lines.extend(frame.data.chunks(LINE_BYTES).map(filled_up));
            }
            if lines.len() * LINE_BYTES > most_bytes {
                return Ok(None);
            }
        }
        let began_ns = stamps.iter().map(|&(_, ns)| ns).min().unwrap_or(0);
        let is_long = |&(_, ns): &(u64, u64)| ns - began_ns > LONGEST_NS;
        if stamps.is_empty() || longest >> LEN_BITS != 0 || stamps.iter().any(is_long) {
            return Ok(None);
        }
        // Aligned, and few pages: what the copying is fed from.
        let lines = HugeArray::from_fn("pcap frames", lines.len(), |at| lines[at])?;
        let index = HugeArray::from_fn("pcap index", stamps.len(), |at| {
            let (len, ns) = stamps[at];
            Entry((ns - began_ns) << LEN_BITS | len)
        })?;
        Ok(Some(Self {
            lines,
            index,
            began_ns,
            longest,
            runts,
            giants,
        }))
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Memory for the frames, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>() + self.index.len() * size_of::<Entry>()
    }

    /// Length of the longest frame, in bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    #[inline(always)]
    pub(super) fn entries(&self) -> &[Entry] {
        &self.index
    }

    /// When a frame was captured, in ns.
    #[inline(always)]
    pub(super) fn timestamp_ns(&self, entry: Entry) -> u64 {
        self.began_ns + (entry.0 >> LEN_BITS)
    }

    /// Copies a frame that begins at line `first`, in whole lines, to the start of `to`.
    ///
    /// # Panics
    /// If `to` is shorter than the frame's lines.
    #[inline(always)]
    pub(super) fn copy(&self, first: usize, entry: Entry, to: &mut [u8]) {
        let count = entry.lines();
        let lines = &self.lines[first..][..count];
        let (to, _) = to.as_chunks_mut::<LINE_BYTES>();
        let to = &mut to[..count];
        if count <= SHORT_LINES {
            for (to, line) in to.iter_mut().zip(lines) {
                prefetch_later(std::ptr::from_ref(line).wrapping_add(AHEAD_LINES));
                *to = *line;
            }
        } else {
            // A call, which knows the processor's widest registers.
            to.copy_from_slice(lines);
        }
    }
}

fn filled_up(part: &[u8]) -> Line {
    let mut line = [0; LINE_BYTES];
    line[..part.len()].copy_from_slice(part);
    line
}
