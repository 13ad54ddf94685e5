//! A ring's two ends. The sender keeps no index in the file: it finds its place by the receiver's
//! head and by what stands in the slots.

use super::{Memory, Shape, WORD_BYTES};
use core::fmt;

/// Where a ring is.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    head_at: usize,
    slots_at: usize,
    slot_bytes: usize,
    frame_bytes: usize,
    mask: u32,
    shift: u32,
}

impl Ring {
    pub(super) fn new(head_at: usize, slots_at: usize, shape: &Shape) -> Self {
        Self {
            head_at,
            slots_at,
            slot_bytes: shape.slot_bytes as usize,
            frame_bytes: shape.frame_bytes(),
            mask: shape.slots - 1,
            shift: shape.slots.trailing_zeros(),
        }
    }

    #[inline(always)]
    fn slot_at(&self, index: u32) -> usize {
        self.slots_at + (index & self.mask) as usize * self.slot_bytes
    }

    /// What stands in the upper half of the word of frame number `index`: its lap round the ring,
    /// from 1 on.
    #[inline(always)]
    fn lap(&self, index: u32) -> u32 {
        ((index >> self.shift).wrapping_add(1)) << 16
    }

    /// The length that a word gives to frame number `index`; 0 where the frame is not there. A word
    /// that was cleared has length 0 in any lap.
    #[inline(always)]
    fn length(&self, index: u32, word: u32) -> u32 {
        let length = word ^ self.lap(index);
        if length > 0xffff { 0 } else { length }
    }

    #[inline(always)]
    fn put(&self, memory: &impl Memory, index: u32, frame: &[u8]) {
        let at = self.slot_at(index);
        let len = frame.len().min(self.frame_bytes);
        memory.write(at + WORD_BYTES, &frame[..len]);
        memory.store(at, self.lap(index) | len as u32);
    }

    /// Slots.
    pub fn slots(&self) -> u32 {
        self.mask + 1
    }

    /// Makes it a ring of which nobody has sent anything.
    pub fn clear(&self, memory: &impl Memory) {
        memory.store(self.head_at, 0);
        (0..self.slots()).for_each(|index| memory.store(self.slot_at(index), 0));
    }

    /// The longest frame that fits.
    #[inline(always)]
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }
}

/// Why a sender cannot go on where it is: the receiver lies, or somebody else writes to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingFault {
    /// The head is not between the oldest frame under way and the next.
    HeadOutside {
        /// What it is.
        head: u32,
        /// Number of the next frame.
        tail: u32,
    },
    /// The next frame to be received is not where it was written: no receiver goes on from there.
    FrameGone {
        /// Its number.
        head: u32,
        /// What stands there instead.
        word: u32,
    },
}

impl fmt::Display for RingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeadOutside { head, tail } => {
                write!(f, "its head is {head} where {tail} is the next frame")
            }
            Self::FrameGone { head, word } => {
                write!(
                    f,
                    "in place of frame {head}, which was sent, stands {word:#x}"
                )
            }
        }
    }
}

/// The writing end of a ring.
#[derive(Debug)]
pub struct Sender {
    ring: Ring,
    /// Number of the next frame.
    tail: u32,
    /// The receiver's head when it was looked at last.
    head: u32,
}

impl Sender {
    /// Goes on where the last sender of the ring stopped. Frames from the receiver's head on that
    /// are whole stay; what follows the first that is not, is cleared: the last sender may have
    /// died in the middle of a burst.
    pub fn take_up(memory: &impl Memory, ring: Ring) -> Self {
        let head = memory.load(ring.head_at);
        let (mut tail, end) = (head, head.wrapping_add(ring.slots()));
        while tail != end && ring.length(tail, memory.load(ring.slot_at(tail))) != 0 {
            tail = tail.wrapping_add(1);
        }
        let mut free = tail;
        while free != end {
            memory.store(ring.slot_at(free), 0);
            free = free.wrapping_add(1);
        }
        Self { ring, tail, head }
    }

    /// Slots that are free, as far as `wanted` matters: the receiver is asked only where what is
    /// known does not suffice.
    ///
    /// # Errors
    /// [`RingFault::HeadOutside`].
    #[inline(always)]
    pub fn room(&mut self, memory: &impl Memory, wanted: u32) -> Result<u32, RingFault> {
        let known = self.ring.slots() - self.tail.wrapping_sub(self.head);
        if known >= wanted {
            return Ok(known);
        }
        self.look(memory)?;
        Ok(self.ring.slots() - self.under_way())
    }

    /// Loads the receiver's head.
    #[inline(always)]
    fn look(&mut self, memory: &impl Memory) -> Result<(), RingFault> {
        let (head, tail) = (memory.load(self.ring.head_at), self.tail);
        if tail.wrapping_sub(head) > self.ring.slots() {
            return Err(RingFault::HeadOutside { head, tail });
        }
        self.head = head;
        Ok(())
    }

    /// Whether the receiver can go on: that the next frame is there, as it was sent. To be asked
    /// now and then, between two bursts: where it is not, the receiver waits for it for ever, and
    /// the sender in the end for the receiver.
    ///
    /// # Errors
    /// [`RingFault`]: [`take_up`](Self::take_up) the ring anew.
    pub fn check(&mut self, memory: &impl Memory) -> Result<(), RingFault> {
        self.look(memory)?;
        let (head, word) = (self.head, memory.load(self.ring.slot_at(self.head)));
        // The receiver may have taken it since: then it stands there all the same.
        if self.under_way() > 0 && self.ring.length(head, word) == 0 {
            return Err(RingFault::FrameGone { head, word });
        }
        Ok(())
    }

    /// Sends as many frames as there is room for, said by [`room`](Self::room), none empty or
    /// longer than [`Ring::frame_bytes`]. The first is written last: the receiver looks for that
    /// one, and finds the others with it.
    #[inline(always)]
    pub fn send<'f>(&mut self, memory: &impl Memory, count: u32, frame: impl Fn(u32) -> &'f [u8]) {
        // By value: see `Frames`.
        let (ring, tail) = (self.ring, self.tail);
        let put = |number: u32| ring.put(memory, tail.wrapping_add(number), frame(number));
        (1..count).for_each(put);
        if count > 0 {
            put(0);
        }
        self.tail = tail.wrapping_add(count);
    }

    /// Where it is.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Frames that were sent and, as far as is known, not received.
    pub fn under_way(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    /// Number of the next frame.
    head: u32,
}

impl Receiver {
    /// Goes on where the last receiver of the ring stopped.
    pub fn take_up(memory: &impl Memory, ring: Ring) -> Self {
        let head = memory.load(ring.head_at);
        Self { ring, head }
    }

    /// The frames that wait, as long as none is given back.
    #[inline(always)]
    pub fn frames(&self) -> Frames {
        Frames {
            ring: self.ring,
            first: self.head,
        }
    }

    /// Gives the slots of the first `count` waiting frames back to the sender. Called once a poll,
    /// also for none: whatever the peer wrote over the head is gone then.
    #[inline(always)]
    pub fn release(&mut self, memory: &impl Memory, count: u32) {
        self.head = self.head.wrapping_add(count);
        memory.store(self.ring.head_at, self.head);
    }

    /// Where it is.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}

/// Frames from a receiver's head on. A value, so that a compiler keeps it at hand: what the peer's
/// memory is written by, it must take for a change of everything.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    ring: Ring,
    first: u32,
}

/// How many frames wait, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Frames.
    pub count: usize,
    /// Bytes of the shortest; without frames, the most that there can be.
    pub shortest: u32,
    /// Bytes of the longest, which may not fit a slot: see [`Ring::frame_bytes`].
    pub longest: u32,
    /// Bytes of all.
    pub bytes: u64,
}

impl Frames {
    /// Looks for frames and writes down their lengths, none of which is 0, as many as fit into
    /// `lengths`.
    #[inline(always)]
    pub fn waiting(&self, memory: &impl Memory, lengths: &mut [u16]) -> Waiting {
        let (mut shortest, mut longest, mut bytes) = (u32::MAX, 0, 0);
        let mut count = 0;
        for to in lengths {
            let index = self.first.wrapping_add(count as u32);
            let length = self
                .ring
                .length(index, memory.load(self.ring.slot_at(index)));
            if length == 0 {
                break;
            }
            *to = length as u16;
            (shortest, longest) = (length.min(shortest), length.max(longest));
            bytes += u64::from(length);
            count += 1;
        }
        Waiting {
            count,
            shortest,
            longest,
            bytes,
        }
    }

    /// Copies the first bytes of frame number `number`, as many as `to` has, and no more than a
    /// slot.
    #[inline(always)]
    pub fn read(&self, memory: &impl Memory, number: u32, to: &mut [u8]) {
        let at = self.ring.slot_at(self.first.wrapping_add(number)) + WORD_BYTES;
        let len = to.len().min(self.ring.frame_bytes);
        memory.read(at, &mut to[..len]);
    }
}
