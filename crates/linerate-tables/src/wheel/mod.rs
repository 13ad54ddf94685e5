//! Timers on a hierarchical timing wheel: millions of them, each operation O(1), time an argument.
//!
//! [`Wheel`] is the wheel itself: the caller numbers its timers, for example by the entries of a
//! table, and the wheel keeps one link for each. [`Timers`] is the plain form on top: it hands out
//! ids, keeps a value with each timer, and takes a stale id for what it is. Read this file, then
//! [`Timers`].
//!
//! # How it works
//!
//! Varghese and Lauck, *Hashed and Hierarchical Timing Wheels* (SOSP 1987), scheme 7, with the
//! slots found as radix digits: eight levels of 256 slots cover all 64 bits of a tick count, so no
//! deadline is out of range. A timer stands on the level of the highest byte in which its
//! deadline differs from the wheel's time, in the slot that this byte names. So a slot that the
//! time has passed is empty, and the first slot in use, over all levels in order, opens next: two
//! bit scans find it however far the time jumps. A slot of level 0 holds timers of one tick, which
//! fire; a slot of a higher level, when the time reaches it, is cascaded: its timers move to lower
//! levels, each at most seven times in its life, and not at all if due within its 256 ticks.
//!
//! # Bounds
//!
//! Every step of [`Wheel::pop`] that touches a timer (it fires, or it moves down a level) takes
//! one unit of the caller's budget. What is left goes on at the next call, exactly there: timers
//! never fire early, ticks fire in order, timers of one tick in no order that is promised. A timer
//! scheduled into the past counts as due at the wheel's time.
//!
//! | operation | cost |
//! |---|---|
//! | schedule, reschedule, cancel | O(1): the timer's link and its two neighbours |
//! | pop | O(1) for each unit of budget |
//! | next_expiry | O(1) |
//!
//! Memory: 16 bytes a timer and 32 KiB for the slots; [`Timers`] adds 8 bytes and the value. All
//! of it is taken at set-up.

use linerate_core::arch::prefetch_read;
use linerate_core::mem::{HugeArray, PageKind};

use crate::TableError;

mod timers;

pub use timers::{Fired, TimerId, Timers};

const LEVEL_BITS: u32 = 8;
const LEVEL_SLOTS: u32 = 1 << LEVEL_BITS;
/// Slots of all levels: level x 256 + byte of the deadline.
const SLOTS: u32 = LEVEL_SLOTS * (u64::BITS / LEVEL_BITS);
const WORDS: usize = SLOTS as usize / 64;
/// Not in any list; not a slot.
const NONE: u32 = u32::MAX;

/// The most timers that a wheel holds: links are 32 bits wide.
pub const MAX_TIMERS: usize = (NONE - SLOTS) as usize;

/// A timer's place in the list of its slot, or a slot's own link: the ends of its list.
#[derive(Clone, Copy)]
struct Link {
    deadline: u64,
    next: u32,
    prev: u32,
}

/// A timing wheel over timers that the caller numbers from 0. Each is scheduled or not.
///
/// ```
/// use linerate_tables::wheel::Wheel;
/// let mut wheel = Wheel::new("sessions", 1000, 0)?;
/// wheel.schedule(7, 30);
/// wheel.schedule(8, 1_000_000);
/// wheel.schedule(7, 40); // instead of 30
/// let mut budget = 64;
/// assert_eq!(wheel.pop(39, &mut budget), None);
/// assert_eq!(wheel.pop(41, &mut budget), Some((7, 40)));
/// assert!(wheel.cancel(8) && !wheel.cancel(8));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
pub struct Wheel {
    /// The slots', then the timers'.
    links: HugeArray<Link>,
    /// One bit a slot: it has timers.
    occupied: [u64; WORDS],
    /// One bit a word of `occupied`: it is not zero.
    words: u32,
    /// Every tick before this one has fired.
    time: u64,
    /// The slot that is being cascaded. It holds the byte of `time` at its level, so nothing is
    /// scheduled into it.
    cascading: u32,
    scheduled: usize,
}

impl Wheel {
    /// A wheel for timers `0..capacity`, none scheduled, at tick `now`.
    ///
    /// # Errors
    /// [`TableError::TooManyTimers`] above [`MAX_TIMERS`]; no memory.
    pub fn new(name: &str, capacity: usize, now: u64) -> Result<Self, TableError> {
        if capacity > MAX_TIMERS {
            return Err(TableError::TooManyTimers {
                name: name.into(),
                asked: capacity,
                limit: MAX_TIMERS,
            });
        }
        let links = HugeArray::from_fn(name, SLOTS as usize + capacity, |index| {
            // An empty slot's link points to itself.
            let own = if index < SLOTS as usize {
                index as u32
            } else {
                NONE
            };
            Link {
                deadline: 0,
                next: own,
                prev: own,
            }
        })?;
        Ok(Self {
            links,
            occupied: [0; WORDS],
            words: 0,
            time: now,
            cascading: NONE,
            scheduled: 0,
        })
    }

    /// How many timers it has.
    pub fn capacity(&self) -> usize {
        self.links.len() - SLOTS as usize
    }

    /// How many of them are scheduled.
    pub fn len(&self) -> usize {
        self.scheduled
    }

    /// Whether none is scheduled.
    pub fn is_empty(&self) -> bool {
        self.scheduled == 0
    }

    /// The tick up to which everything has fired.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Memory of the links, in bytes.
    pub fn bytes(&self) -> usize {
        self.links.region().len()
    }

    /// What pages back it.
    pub fn pages(&self) -> PageKind {
        self.links.region().kind()
    }

    /// The deadline of `timer`, if it is scheduled.
    ///
    /// # Panics
    /// If `timer` is not below the capacity, as with every method that takes one.
    #[inline]
    pub fn deadline(&self, timer: u32) -> Option<u64> {
        let link = self.links[at(timer)];
        (link.next != NONE).then_some(link.deadline)
    }

    /// Lets `timer` fire at tick `deadline` rather than when it would have.
    #[inline]
    pub fn schedule(&mut self, timer: u32, deadline: u64) {
        let timer = at(timer);
        match self.links[timer].next {
            NONE => self.scheduled += 1,
            _ => self.unlink(timer),
        }
        self.links[timer].deadline = deadline;
        self.place(timer);
    }

    /// Takes `timer` off the wheel; says whether it was scheduled.
    #[inline]
    pub fn cancel(&mut self, timer: u32) -> bool {
        let timer = at(timer);
        let scheduled = self.links[timer].next != NONE;
        if scheduled {
            self.unlink(timer);
            self.scheduled -= 1;
        }
        scheduled
    }

    /// Asks for the memory of a timer that will be scheduled soon.
    #[inline(always)]
    pub fn prefetch(&self, timer: u32) {
        prefetch_read(self.links.as_ptr().wrapping_add(at(timer)));
    }

    /// Takes off the next timer that is due at `now`, with its deadline. `None` when nothing more
    /// is due, or when `budget` is zero: each timer fired and each moved takes one of it.
    ///
    /// A `now` before an earlier one is taken as the earlier one.
    #[inline]
    pub fn pop(&mut self, now: u64, budget: &mut usize) -> Option<(u32, u64)> {
        let now = now.max(self.time);
        while *budget > 0 {
            if self.cascading != NONE {
                self.cascade(budget);
                continue;
            }
            let slot = self.first_slot().filter(|&slot| self.opens(slot) <= now);
            let Some(slot) = slot else {
                // Nothing stands between the time and `now`, so every timer keeps its place.
                self.time = now;
                return None;
            };
            self.time = self.opens(slot);
            if slot >= LEVEL_SLOTS {
                self.cascading = slot;
                continue;
            }
            let timer = self.links[slot as usize].next as usize;
            self.unlink(timer);
            self.scheduled -= 1;
            *budget -= 1;
            return Some((timer as u32 - SLOTS, self.links[timer].deadline));
        }
        None
    }

    /// A tick before which nothing is due: how long one may sleep. Exact within the next 256
    /// ticks, else possibly early, never late.
    #[inline]
    pub fn next_expiry(&self) -> Option<u64> {
        let is_cascading = self.cascading != NONE && !self.is_slot_empty(self.cascading);
        match is_cascading {
            true => Some(self.time),
            false => self.first_slot().map(|slot| self.opens(slot)),
        }
    }

    /// Moves timers of the slot that the time has reached to lower levels: from both ends of its
    /// list in turn, since each link must be read before the next one is known.
    fn cascade(&mut self, budget: &mut usize) {
        let slot = self.cascading as usize;
        while *budget > 0 {
            let Link { next, prev, .. } = self.links[slot];
            let timer = if budget.is_multiple_of(2) { next } else { prev } as usize;
            if timer == slot {
                self.cascading = NONE;
                return;
            }
            self.unlink(timer);
            self.place(timer);
            *budget -= 1;
        }
    }

    /// Appends a timer to the slot of its deadline.
    fn place(&mut self, timer: usize) {
        let tick = self.links[timer].deadline.max(self.time);
        let level = ((tick ^ self.time) | 1).ilog2() / LEVEL_BITS;
        let byte = (tick >> (level * LEVEL_BITS)) as u8;
        let slot = level * LEVEL_SLOTS + u32::from(byte);
        let last = std::mem::replace(&mut self.links[slot as usize].prev, timer as u32);
        self.links[last as usize].next = timer as u32;
        self.links[timer].next = slot;
        self.links[timer].prev = last;
        let word = slot / 64;
        self.occupied[word as usize] |= 1 << (slot % 64);
        self.words |= 1 << word;
    }

    fn unlink(&mut self, timer: usize) {
        let Link { next, prev, .. } = self.links[timer];
        self.links[timer].next = NONE;
        self.links[prev as usize].next = next;
        self.links[next as usize].prev = prev;
        if next == prev {
            // Only the slot itself is left.
            let word = next / 64;
            self.occupied[word as usize] &= !(1 << (next % 64));
            if self.occupied[word as usize] == 0 {
                self.words &= !(1 << word);
            }
        }
    }

    fn is_slot_empty(&self, slot: u32) -> bool {
        self.links[slot as usize].next == slot
    }

    /// The slot in use that opens first: levels in order, since a level's slots all lie beyond the
    /// levels below.
    fn first_slot(&self) -> Option<u32> {
        if self.words == 0 {
            return None;
        }
        let word = self.words.trailing_zeros();
        Some(word * 64 + self.occupied[word as usize].trailing_zeros())
    }

    /// The first tick of a slot in use: the time with the slot's byte, and zeros below it.
    fn opens(&self, slot: u32) -> u64 {
        let shift = slot / LEVEL_SLOTS * LEVEL_BITS;
        let above = self.time & !(u64::MAX >> (u64::BITS - LEVEL_BITS - shift));
        above | u64::from(slot % LEVEL_SLOTS) << shift
    }
}

/// Where a timer's link is.
#[inline]
fn at(timer: u32) -> usize {
    SLOTS as usize + timer as usize
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
