//! The ports of one tuple and queue: counted, listed, picked.

use super::{Inverse, PortSet};
use std::ops::RangeInclusive;

/// Tries at a random port before those that are wanted are counted.
const TRIES: u64 = 32;

/// The ports that send one tuple to one queue, from [`Inverse::ports`].
///
/// Ordered by RETA entry, and ascending within each. Counting and picking the n-th take time by
/// RETA entries of the queue, not by ports, as long as nothing is excluded; listing costs a
/// fraction of a nanosecond per port.
#[derive(Clone, Debug)]
pub struct Ports<'a> {
    inverse: &'a Inverse,
    /// The hash of the tuple without the port's free bits.
    fixed: u32,
    /// The bits of the port that are not free.
    kept: u16,
    /// RETA entries of the queue.
    slots: &'a [u16],
    /// What the odd neighbour adds to the hash, and the queue, where pairs are wanted.
    pair: Option<(u32, u16)>,
    range: RangeInclusive<u16>,
    excluded: Option<&'a PortSet>,
}

/// Ports of one RETA entry: a part of the kernel, each plus `offset`.
struct Run<'a> {
    kernel: &'a [u16],
    offset: u16,
}

impl<'a> Ports<'a> {
    pub(super) fn new(inverse: &'a Inverse, fixed: u32, kept: u16, slots: &'a [u16]) -> Self {
        Self {
            inverse,
            fixed,
            kept,
            slots,
            pair: None,
            range: 0..=u16::MAX,
            excluded: None,
        }
    }

    pub(super) fn paired(self, odd: u32, queue: u16) -> Self {
        Self {
            pair: Some((odd, queue)),
            ..self
        }
    }

    /// Only ports from the first to the last.
    pub fn range(self, range: RangeInclusive<u16>) -> Self {
        Self { range, ..self }
    }

    /// None of these.
    pub fn excluding(self, excluded: &'a PortSet) -> Self {
        Self {
            excluded: Some(excluded),
            ..self
        }
    }

    /// Whether no port at all leads to the queue, whatever the range.
    pub(super) fn is_unreachable(&self) -> bool {
        self.offsets().next().is_none()
    }

    /// For each RETA entry that can be reached, one port.
    fn offsets(&self) -> impl Iterator<Item = u16> {
        self.slots.iter().filter_map(|&slot| self.offset(slot))
    }

    /// A port of this RETA entry, if it can be reached.
    #[inline]
    fn offset(&self, slot: u16) -> Option<u16> {
        if let Some((odd, queue)) = self.pair
            && self.inverse.reta().queue(u32::from(slot) ^ odd) != queue
        {
            return None;
        }
        Some(self.inverse.solution(self.fixed, slot)? ^ self.kept)
    }

    fn runs(&self) -> impl Iterator<Item = Run<'a>> {
        let kernel = self.inverse.kernel();
        self.offsets().map(move |offset| {
            let (first, last) = (*self.range.start(), *self.range.end());
            let start = match first {
                0 => 0,
                first => kernel.partition_point(|&vector| vector ^ offset < first),
            };
            let end = match last {
                u16::MAX => kernel.len(),
                last => kernel.partition_point(|&vector| vector ^ offset <= last),
            };
            Run {
                kernel: &kernel[start.min(end)..end],
                offset,
            }
        })
    }

    #[inline]
    fn is_free(&self, port: u16) -> bool {
        self.excluded
            .is_none_or(|excluded| !excluded.contains(port))
    }

    /// All of them, by RETA entry.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        let ports = |run: Run<'a>| run.kernel.iter().map(move |vector| vector ^ run.offset);
        self.runs()
            .flat_map(ports)
            .filter(|&port| self.is_free(port))
    }

    /// Writes as many as there is room for; returns how many.
    pub fn write(&self, out: &mut [u16]) -> usize {
        let mut written = 0;
        for run in self.runs() {
            if written == out.len() {
                break;
            }
            let room = &mut out[written..];
            written += match self.excluded {
                None => run.write(room),
                Some(excluded) => run.write_but(excluded, room),
            };
        }
        written
    }

    /// All of them as a set, which lists them in ascending order.
    pub fn to_set(&self) -> PortSet {
        self.iter().collect()
    }

    /// How many. Without an excluded set nothing is listed.
    pub fn count(&self) -> usize {
        match self.excluded {
            None => self.runs().map(|run| run.kernel.len()).sum(),
            Some(_) => self.iter().count(),
        }
    }

    /// The n-th, counted from 0.
    pub fn nth(&self, n: usize) -> Option<u16> {
        if self.excluded.is_some() {
            return self.iter().nth(n);
        }
        let mut left = n;
        for run in self.runs() {
            match run.kernel.get(left) {
                Some(vector) => return Some(vector ^ run.offset),
                None => left -= run.kernel.len(),
            }
        }
        None
    }

    /// How many places [`at`](Self::at) has: RETA entries of the queue times ports of an entry.
    #[inline]
    pub fn places(&self) -> usize {
        self.slots.len() * self.inverse.kernel().len()
    }

    /// The port at a place, in constant time: each port is at one place, and places whose ports are
    /// out of range, excluded or not to be reached have none. For whoever tries ports in an order
    /// of their own, which [`nth`](Self::nth) makes costly where there is a range.
    #[inline]
    pub fn at(&self, place: usize) -> Option<u16> {
        let kernel = self.inverse.kernel();
        // A kernel has a power of two of vectors.
        let slot = *self.slots.get(place >> kernel.len().trailing_zeros())?;
        let port = self.offset(slot)? ^ kernel[place & (kernel.len() - 1)];
        (self.range.contains(&port) && self.is_free(port)).then_some(port)
    }

    /// One of them, each as likely as the others, by a random word; `None` where all are excluded.
    #[inline]
    pub fn pick(&self, random: u64) -> Option<u16> {
        let mut words = linerate_core::random::Random::new(random);
        let found = (0..TRIES).find_map(|_| self.try_one(words.bits()));
        // So few are left that chance does not find them.
        found.or_else(|| self.pick_counted(words.bits()))
    }

    /// A port of an entry and of the kernel that are drawn, if it is wanted. All entries that can
    /// be reached have as many ports, so each port is as likely as the others.
    #[inline]
    fn try_one(&self, random: u64) -> Option<u16> {
        // The upper half of the product of a random word of 32 bits.
        let place = ((random >> 32) * self.places() as u64) >> 32;
        self.at(place as usize)
    }

    #[cold]
    fn pick_counted(&self, random: u64) -> Option<u16> {
        let free = self.count() as u64;
        self.nth(random.checked_rem(free)? as usize)
    }

    /// Whether the port is one of them.
    pub fn contains(&self, port: u16) -> bool {
        self.range.contains(&port)
            && self.is_free(port)
            && self.offsets().any(|offset| {
                self.inverse
                    .kernel()
                    .binary_search(&(port ^ offset))
                    .is_ok()
            })
    }
}

impl Run<'_> {
    fn write(&self, out: &mut [u16]) -> usize {
        let pairs = out.iter_mut().zip(self.kernel);
        pairs.for_each(|(port, vector)| *port = vector ^ self.offset);
        out.len().min(self.kernel.len())
    }

    fn write_but(&self, excluded: &PortSet, out: &mut [u16]) -> usize {
        let mut written = 0;
        for vector in self.kernel {
            let Some(port) = out.get_mut(written) else {
                break;
            };
            *port = vector ^ self.offset;
            written += usize::from(!excluded.contains(*port));
        }
        written
    }
}
