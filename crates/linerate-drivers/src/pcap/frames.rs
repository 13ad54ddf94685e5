//! A whole capture in memory, laid out for copying.

use super::Reader;
use linerate_core::MemError;
use linerate_core::mem::HugeArray;

/// A cache line's worth of a frame.
type Line = [u8; LINE_BYTES];

pub(super) const LINE_BYTES: usize = 64;
/// Frames up to here are copied line by line, without a call.
const SHORT_LINES: usize = 4;

/// The frames of a capture: each starts on a cache line and is filled up to whole ones, so that
/// copying takes no care of odd lengths.
pub(super) struct Frames {
    lines: HugeArray<Line>,
    index: Vec<Entry>,
    longest: usize,
    /// Frames left out because they are shorter than an Ethernet header, or longer than any slot.
    pub(super) runts: u64,
    pub(super) giants: u64,
}

/// One frame.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    first_line: u32,
    pub(super) len: u32,
    pub(super) timestamp_ns: u64,
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
        let (mut lines, mut index) = (Vec::<Line>::new(), Vec::new());
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
                index.push(Entry {
                    first_line: lines.len() as u32, // at most 2^26, for 4 GiB
                    len: len as u32,
                    timestamp_ns: frame.timestamp_ns,
                });
                lines.extend(frame.data.chunks(LINE_BYTES).map(filled_up));
            }
            if lines.len() * LINE_BYTES > most_bytes {
                return Ok(None);
            }
        }
        if index.is_empty() {
            return Ok(None);
        }
        // Aligned, and few pages: what the copying is fed from.
        let lines = HugeArray::from_fn("pcap frames", lines.len(), |at| lines[at])?;
        Ok(Some(Self {
            lines,
            index,
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

    /// Copies a frame, in whole lines, to the start of `to`.
    ///
    /// # Panics
    /// If `to` is shorter than the frame's lines.
    #[inline(always)]
    pub(super) fn copy(&self, entry: Entry, to: &mut [u8]) {
        let first = entry.first_line as usize;
        let count = (entry.len as usize).div_ceil(LINE_BYTES);
        let lines = &self.lines[first..first + count];
        let (to, _) = to.as_chunks_mut::<LINE_BYTES>();
        let to = &mut to[..count];
        if count <= SHORT_LINES {
            for (to, line) in to.iter_mut().zip(lines) {
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
