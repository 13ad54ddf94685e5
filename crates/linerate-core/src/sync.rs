//! The standard library's atomics, or loom's, under one name.
//!
//! Lock-free code of this crate takes its atomics, cells and `Arc` from here, so that `--cfg loom`
//! model-checks the very code that ships. Two hooks serve the tests and vanish from every other
//! build: [`at`] lets a loom model weaken one named ordering (the model must then fail),
//! and [`window`] lets a test stop a thread between two steps of an operation.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

// Loom's cell hands out its pointer through closures only; where code differs over that, it says
// so.
#[cfg(not(loom))]
pub(crate) use std::cell::UnsafeCell;

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// Hands out a cell's pointer; to loom this is an access for writing.
#[inline(always)]
pub(crate) fn with_cell<T, R>(cell: &UnsafeCell<T>, access: impl FnOnce(*mut T) -> R) -> R {
    #[cfg(loom)]
    return cell.with_mut(access);
    #[cfg(not(loom))]
    access(cell.get())
}

/// The ordering used at the named site: `sound`, unless a loom model weakens that site.
#[inline(always)]
pub(crate) fn at(site: &'static str, sound: Ordering) -> Ordering {
    #[cfg(all(test, loom))]
    if hooks::weakened(site) {
        return Ordering::Relaxed;
    }
    let _ = site;
    sound
}

/// A sequentially consistent fence at the named site, left out where a loom model weakens it.
#[inline(always)]
pub(crate) fn full_fence(site: &'static str) {
    if at(site, Ordering::SeqCst) == Ordering::SeqCst {
        #[cfg(all(target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
        crate::arch::full_fence();
        #[cfg(not(all(target_arch = "x86_64", not(loom), not(tsan), not(miri))))]
        fence(Ordering::SeqCst);
    }
}

/// A point between two steps of an operation, where a test may stop the calling thread.
#[inline(always)]
pub(crate) fn window(name: &'static str) {
    #[cfg(all(test, not(loom)))]
    hooks::reached(name);
    let _ = name;
}

/// What tests plug into [`at`] and [`window`]; both are per thread, so tests do not meet.
/// (All threads of a loom model are coroutines of the one thread that runs it.)
#[cfg(test)]
pub(crate) mod hooks {
    #[cfg(loom)]
    use std::cell::Cell;
    #[cfg(not(loom))]
    use std::cell::RefCell;

    #[cfg(loom)]
    thread_local!(static WEAK: Cell<Option<&'static str>> = const { Cell::new(None) });

    /// Runs `model` with the ordering at `site` relaxed.
    #[cfg(loom)]
    pub(crate) fn weaken(site: &'static str, model: impl FnOnce()) {
        WEAK.with(|weak| weak.set(Some(site)));
        model();
    }

    #[cfg(loom)]
    pub(super) fn weakened(site: &'static str) -> bool {
        WEAK.with(|weak| weak.get() == Some(site))
    }

    #[cfg(not(loom))]
    type Stop = Box<dyn FnMut(&'static str)>;

    #[cfg(not(loom))]
    thread_local!(static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) });

    /// Calls `stop` at every window that this thread reaches from now on.
    #[cfg(not(loom))]
    pub(crate) fn at_windows(stop: impl FnMut(&'static str) + 'static) {
        STOP.with(|slot| *slot.borrow_mut() = Some(Box::new(stop)));
    }

    #[cfg(not(loom))]
    thread_local!(static PORTABLE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

    /// From now on this thread copies blocks of atomics as processors without such copies do.
    #[cfg(not(loom))]
    pub(crate) fn copy_portably(yes: bool) {
        PORTABLE.with(|portable| portable.set(yes));
    }

    #[cfg(not(loom))]
    #[allow(
        dead_code,
        reason = "there is only the one kind of copy on other processors"
    )]
    pub(crate) fn portable() -> bool {
        PORTABLE.with(std::cell::Cell::get)
    }

    #[cfg(not(loom))]
    pub(super) fn reached(name: &'static str) {
        STOP.with(|slot| {
            if let Some(stop) = slot.borrow_mut().as_mut() {
                stop(name);
            }
        });
    }
}
