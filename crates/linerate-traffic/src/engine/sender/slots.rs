//! The frames between the schedule and the queue: their streams, and their intended times.

use linerate_core::packet::Burst;

const ROOM: usize = Burst::CAPACITY;

/// Up to a burst of frames, in the order in which they are to leave. The first `written` of them
/// are packets in the sender's burst.
pub(super) struct Slots {
    pub(super) stream: [u32; ROOM],
    /// Ticks at which each was intended, or first offered if it has no intended time.
    pub(super) stamp: [u64; ROOM],
    /// With FCS; of those that are written.
    pub(super) bytes: [u32; ROOM],
    /// A bit for each that has an intended time.
    pub(super) timed: u64,
    pub(super) len: usize,
    /// Frames at a time; frames pushed before a reduction still leave.
    pub(super) most: usize,
    pub(super) written: usize,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            stream: [0; ROOM],
            stamp: [0; ROOM],
            bytes: [0; ROOM],
            timed: 0,
            len: 0,
            most: ROOM,
            written: 0,
        }
    }
}

impl Slots {
    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        self.most.saturating_sub(self.len)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, stream: u32, stamp: u64, timed: bool) {
        let at = self.len;
        self.stream[at] = stream;
        self.stamp[at] = stamp;
        self.timed |= u64::from(timed) << at;
        self.len += 1;
    }

    /// Adds frames of one stream without times, first offered at `now`.
    #[inline]
    pub(super) fn push_alike(&mut self, stream: u32, now: u64, count: usize) {
        let part = self.len..self.len + count;
        self.stream[part.clone()].fill(stream);
        self.stamp[part].fill(now);
        self.len += count;
    }

    /// The end of the run of one stream's frames that begins at `at`, before `end`.
    #[inline]
    pub(super) fn run(&self, at: usize, end: usize) -> usize {
        let stream = self.stream[at];
        let others = self.stream[at..end]
            .iter()
            .position(|&other| other != stream);
        others.map_or(end, |len| at + len)
    }

    #[inline(always)]
    pub(super) fn is_timed(&self, at: usize) -> bool {
        self.timed >> at & 1 == 1
    }

    /// How many in a part have a time.
    #[inline(always)]
    pub(super) fn timed_in(&self, at: usize, end: usize) -> u64 {
        u64::from((self.timed & bits(end) & !bits(at)).count_ones())
    }

    pub(super) fn any_timed(&self) -> bool {
        self.timed != 0
    }

    /// A bit for each.
    pub(super) fn all(&self) -> u64 {
        bits(self.len)
    }

    /// A bit for each that was intended before tick `when`.
    pub(super) fn late(&self, when: u64) -> u64 {
        let before = |at: usize| u64::from(self.is_timed(at) && self.stamp[at] < when) << at;
        (0..self.len).map(before).sum()
    }

    /// Removes the first `count`; the rest moves up.
    #[inline]
    pub(super) fn take_front(&mut self, count: usize) {
        if count == self.len {
            (self.len, self.written, self.timed) = (0, 0, 0);
            return;
        }
        let rest = count..self.len;
        self.stream.copy_within(rest.clone(), 0);
        self.stamp.copy_within(rest.clone(), 0);
        self.bytes.copy_within(rest, 0);
        self.timed >>= count;
        self.len -= count;
        self.written -= count;
    }

    /// Keeps those whose bits are set; none is written yet.
    pub(super) fn retain(&mut self, keep: u64) {
        let (len, timed) = (self.len, self.timed);
        (self.len, self.timed) = (0, 0);
        for at in (0..len).filter(|at| keep >> at & 1 == 1) {
            self.push(self.stream[at], self.stamp[at], timed >> at & 1 == 1);
        }
    }
}

/// The lowest `count` bits.
#[inline(always)]
fn bits(count: usize) -> u64 {
    1u64.checked_shl(count as u32)
        .map_or(u64::MAX, |bit| bit - 1)
}
