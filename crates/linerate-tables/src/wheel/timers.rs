//! Timers by id, each with a value.

use linerate_core::mem::HugeArray;

use super::Wheel;
use crate::TableError;

/// Names one timer until it fires or is cancelled; afterwards it names nothing, even when another
/// timer takes its place (until the same place was taken 2^32 times).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// A timer that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired<T> {
    /// The id that it had.
    pub id: TimerId,
    /// When it was to fire; not after `now`.
    pub deadline: u64,
    /// What it was scheduled with.
    pub value: T,
}

#[derive(Clone, Copy)]
struct Entry<T> {
    /// Counts the timers that had this place.
    generation: u32,
    /// The next free place, while this one is free.
    next_free: u32,
    value: T,
}

/// A fixed number of timers, each with a value: a connection's number, a port, a reason.
///
/// ```
/// use linerate_tables::wheel::Timers;
/// let mut timers = Timers::new("retransmit", 1000, 0)?;
/// let id = timers.schedule(200, "syn")?;
/// timers.schedule(900, "keepalive")?;
/// assert!(timers.reschedule(id, 300));
///
/// // Once per poll of the lcore: 64 timers at most.
/// let mut budget = 64;
/// while let Some(fired) = timers.pop(500, &mut budget) {
///     assert_eq!((fired.value, fired.deadline), ("syn", 300));
///     timers.schedule(fired.deadline + 600, "syn again")?;
/// }
/// assert_eq!(timers.cancel(id), None); // it has fired
/// assert!(timers.next_expiry().is_some_and(|tick| tick <= 900));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
pub struct Timers<T> {
    name: String,
    wheel: Wheel,
    entries: HugeArray<Entry<T>>,
    free: u32,
}

/// The end of the list of free places.
const NONE: u32 = u32::MAX;

impl<T: Copy + Default> Timers<T> {
    /// Room for `capacity` timers, at tick `now`.
    ///
    /// # Errors
    /// As [`Wheel::new`].
    pub fn new(name: &str, capacity: usize, now: u64) -> Result<Self, TableError> {
        let wheel = Wheel::new(name, capacity, now)?;
        let entries = HugeArray::from_fn(name, capacity, |index| Entry {
            generation: 0,
            next_free: match index + 1 {
                next if next < capacity => next as u32,
                _ => NONE,
            },
            value: T::default(),
        })?;
        Ok(Self {
            name: name.into(),
            wheel,
            entries,
            free: if capacity == 0 { NONE } else { 0 },
        })
    }

    /// Schedules a timer for tick `deadline`.
    ///
    /// # Errors
    /// [`TableError::TimersFull`] when all are scheduled.
    #[inline]
    pub fn schedule(&mut self, deadline: u64, value: T) -> Result<TimerId, TableError> {
        let index = self.free;
        if index == NONE {
            return Err(self.full());
        }
        let entry = &mut self.entries[index as usize];
        self.free = entry.next_free;
        entry.value = value;
        let generation = entry.generation;
        self.wheel.schedule(index, deadline);
        Ok(TimerId { index, generation })
    }

    #[cold]
    fn full(&self) -> TableError {
        TableError::TimersFull {
            name: self.name.clone(),
            limit: self.wheel.capacity(),
        }
    }

    /// Whether `id` has neither fired nor been cancelled.
    #[inline]
    pub fn is_scheduled(&self, id: TimerId) -> bool {
        let entry = self.entries.get(id.index as usize);
        entry.is_some_and(|entry| entry.generation == id.generation)
            && self.wheel.deadline(id.index).is_some()
    }

    /// Lets a timer fire at `deadline` instead; false, and nothing else, for a stale id.
    #[inline]
    pub fn reschedule(&mut self, id: TimerId, deadline: u64) -> bool {
        let live = self.is_scheduled(id);
        if live {
            self.wheel.schedule(id.index, deadline);
        }
        live
    }

    /// Cancels a timer and returns its value; `None`, and nothing else, for a stale id.
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        if !self.is_scheduled(id) {
            return None;
        }
        self.wheel.cancel(id.index);
        Some(self.release(id.index))
    }

    /// The next timer that is due at `now`, as [`Wheel::pop`]; its id is stale from here on.
    #[inline]
    pub fn pop(&mut self, now: u64, budget: &mut usize) -> Option<Fired<T>> {
        let (index, deadline) = self.wheel.pop(now, budget)?;
        let generation = self.entries[index as usize].generation;
        Some(Fired {
            id: TimerId { index, generation },
            deadline,
            value: self.release(index),
        })
    }

    /// As [`Wheel::next_expiry`].
    pub fn next_expiry(&self) -> Option<u64> {
        self.wheel.next_expiry()
    }

    /// How many are scheduled.
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether none is scheduled.
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// How many there can be.
    pub fn capacity(&self) -> usize {
        self.wheel.capacity()
    }

    /// All memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.wheel.bytes() + self.entries.region().len()
    }

    /// Makes the place free; its id is stale.
    fn release(&mut self, index: u32) -> T {
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = self.free;
        self.free = index;
        entry.value
    }
}
