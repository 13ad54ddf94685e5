//! One writer, many readers, without waiting: a table in two copies.
//!
//! Readers use one copy; the writer changes the other, which has no readers, and swaps them. The
//! changes are then replayed on the copy that the readers left, as soon as the last of them has
//! switched. So a reader never shares memory with a write, vector loads are allowed, and a burst
//! sees one state of the table from its first packet to its last.
//!
//! A [`Reader`] is asked once per burst ([`Reader::read`]): one load of a shared counter that
//! changes only when something was published. The [`Publisher`] takes changes one at a time
//! ([`push`](Publisher::push)) and makes them visible together ([`publish`](Publisher::publish)).
//! While a reader still holds the copy that is to be written, they wait, in order; the caller tries
//! again, has the lcore look (`WorkerHandle::call` with a `read`), or pays for a third copy
//! ([`publish_on_copy`](Publisher::publish_on_copy)).
//!
//! Cost: twice the table's memory, each change applied twice. All of it is safe code: ownership of
//! the copy to be written is [`Arc::get_mut`].

use crate::MemError;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering};
use std::sync::PoisonError;

/// A table that can be kept in two equal copies.
pub trait Apply<Op>: Sized {
    /// Makes the change. It cannot fail, and its outcome depends on the table's content and `op`
    /// alone: it runs once on each copy. Check limits before the change is pushed.
    fn apply(&mut self, op: &Op);

    /// Another table with the same content.
    ///
    /// # Errors
    /// If there is no memory for it.
    fn copy(&self) -> Result<Self, MemError>;
}

/// What readers see, with the number of the publication.
struct Shared<T> {
    /// That number again, to be looked at without the lock.
    hint: AtomicU64,
    newest: Mutex<(u64, Arc<T>)>,
}

/// The writing side: the only one that changes the table.
pub struct Publisher<T, Op> {
    shared: Arc<Shared<T>>,
    number: u64,
    /// What readers see.
    newest: Arc<T>,
    /// What they saw before; some may still hold it.
    previous: Arc<T>,
    /// Published, and not yet applied to `previous`.
    behind: Vec<Op>,
    pending: Vec<Op>,
}

impl<T: Apply<Op>, Op> Publisher<T, Op> {
    /// Publishes `table` as it is.
    ///
    /// # Errors
    /// If there is no memory for the second copy.
    pub fn new(table: T) -> Result<Self, MemError> {
        let previous = Arc::new(table.copy()?);
        let newest = Arc::new(table);
        Ok(Self {
            shared: Arc::new(Shared {
                hint: AtomicU64::new(0),
                newest: Mutex::new((0, newest.clone())),
            }),
            number: 0,
            newest,
            previous,
            behind: Vec::new(),
            pending: Vec::new(),
        })
    }

    /// Another reader, for one lcore.
    pub fn reader(&self) -> Reader<T> {
        Reader {
            shared: self.shared.clone(),
            number: self.number,
            table: self.newest.clone(),
        }
    }

    /// The copy that readers see, or will see with their next look.
    pub fn newest(&self) -> &T {
        &self.newest
    }

    /// Adds a change to those that the next publication makes visible.
    pub fn push(&mut self, op: Op) {
        self.pending.push(op);
    }

    /// Changes that wait for a publication.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Makes all pending changes visible at once. `false` if a reader still holds the copy that
    /// has to be written: nothing has changed then, and the changes go on waiting. O(changes),
    /// those of the publication before included.
    pub fn publish(&mut self) -> bool {
        if self.pending.is_empty() {
            return true;
        }
        let Some(table) = Arc::get_mut(&mut self.previous) else {
            return false;
        };
        for op in self.behind.drain(..) {
            table.apply(&op);
        }
        for op in &self.pending {
            table.apply(op);
        }
        std::mem::swap(&mut self.behind, &mut self.pending);
        std::mem::swap(&mut self.newest, &mut self.previous);
        self.number += 1;
        self.show();
        true
    }

    /// As [`publish`](Self::publish), but if a reader still has the older copy it makes a new one
    /// instead of waiting: O(table), and a third copy in memory until that reader moves on.
    ///
    /// # Errors
    /// If there is no memory for the copy; the changes go on waiting.
    pub fn publish_on_copy(&mut self) -> Result<(), MemError> {
        if !self.publish() {
            self.previous = Arc::new(self.newest.copy()?);
            self.behind.clear();
            let published = self.publish();
            debug_assert!(published, "no reader has seen the new copy");
        }
        Ok(())
    }

    /// Hands `newest` to the readers. The lock is held for as long as it takes to clone or to
    /// replace a handle; readers never wait for it.
    fn show(&self) {
        let mut shared = self.shared.lock();
        *shared = (self.number, self.newest.clone());
        self.shared.hint.store(self.number, Ordering::Release);
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, (u64, Arc<T>)> {
        // A thread that panicked while holding it was replacing or cloning a handle, and both leave
        // it valid.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reading side, one for each lcore.
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    number: u64,
    table: Arc<T>,
}

impl<T> Reader<T> {
    /// The newest table. Call it once per burst: publications since the last call are visible from
    /// now on, and the older copy is returned to the publisher.
    ///
    /// Never waits: while the publisher replaces the table, the last one is returned again.
    #[inline]
    pub fn read(&mut self) -> &T {
        if self.shared.hint.load(Ordering::Acquire) != self.number {
            self.refresh();
        }
        &self.table
    }

    #[cold]
    fn refresh(&mut self) {
        if let Ok(newest) = self.shared.newest.try_lock() {
            // The number under the lock, not the hint: that may be one ahead of the handle.
            self.number = newest.0;
            self.table = newest.1.clone();
        }
    }
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            number: self.number,
            table: self.table.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
