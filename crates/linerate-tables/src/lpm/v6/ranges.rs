//! A block of addresses as ranges of its span's value: what a leaf holds.

use crate::lpm::rib::{Descent, Found};
use crate::lpm::{Prefix6, Rib};
use crate::simd::lpm6::{RANGES, SPAN_BITS, span_from, span_of};

/// What a range of addresses leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A next hop.
    Hop(u32),
    /// Routes beyond the span; where they do not reach, this next hop.
    Beyond(u32),
}

/// Where each range begins, and what it leads to. The first begins at 0, wherever its block does.
#[derive(Debug)]
pub(super) struct Ranges {
    pub(super) len: usize,
    pub(super) keys: [u32; RANGES],
    pub(super) whats: [What; RANGES],
}

/// Of the routes around the current one, where each ends.
type Open = [(u64, What); SPAN_BITS as usize + 2];

impl Ranges {
    /// The ranges of `block`, which `at` is at, and to which `hop` applies where no longer route
    /// does; `None` if there are more than `most`. Takes as many steps as `most`, not as there are
    /// routes.
    pub(super) fn of(
        rib: &Rib<u128>,
        at: Descent,
        block: Prefix6,
        hop: u32,
        most: usize,
    ) -> Option<Self> {
        let span = span_from(block.len());
        let (first, end) = (block.first(), end_of(block, span));
        let mut ranges = Self {
            len: 1,
            keys: [0; RANGES],
            whats: [What::Hop(hop); RANGES],
        };
        let start = span_of(first, span).into();
        let mut open: Open = [(end, What::Hop(hop)); SPAN_BITS as usize + 2];
        let mut depth = 1;
        for found in rib.walk_from(at, block, (span + SPAN_BITS).min(128)) {
            let (prefix, hop) = match found {
                Found::Route(prefix, _) if prefix.len() == block.len() => continue,
                Found::Route(prefix, hop) => (prefix, Some(hop)),
                Found::Longer(prefix) => (prefix, None),
            };
            let key = span_of(prefix.first(), span).into();
            while depth > 1 && open[depth - 1].0 <= key {
                depth -= 1;
                ranges.begin(start, open[depth].0, open[depth - 1].1, most)?;
            }
            let what = match (hop, open[depth - 1].1) {
                (Some(hop), _) => What::Hop(hop),
                (None, What::Hop(around)) => What::Beyond(around),
                // The same prefix was found before.
                (None, What::Beyond(_)) => continue,
            };
            ranges.begin(start, key, what, most)?;
            open[depth] = (end_of(prefix, span), what);
            depth += 1;
        }
        while depth > 1 {
            depth -= 1;
            if open[depth].0 < end {
                ranges.begin(start, open[depth].0, open[depth - 1].1, most)?;
            }
        }
        Some(ranges)
    }

    /// From `key` on it is `what`. The block itself begins at `start`.
    fn begin(&mut self, start: u64, key: u64, what: What, most: usize) -> Option<()> {
        let last = self.len - 1;
        let same = match last {
            0 => key == start,
            _ => key == u64::from(self.keys[last]),
        };
        if same {
            self.whats[last] = what;
            return Some(());
        }
        if self.len == most {
            return None;
        }
        self.keys[self.len] = key as u32;
        self.whats[self.len] = what;
        self.len += 1;
        Some(())
    }
}

/// The first value of the span after `prefix`.
fn end_of(prefix: Prefix6, span: u8) -> u64 {
    u64::from(span_of(prefix.first(), span)) + (1 << (span + SPAN_BITS - prefix.len()))
}
