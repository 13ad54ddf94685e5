//! The standard library's atomics, or loom's, under one name.
//!
//! What several threads share takes its atomics from here, so that `--cfg loom` model-checks the
//! very code that ships. [`at`] lets a loom model weaken one named ordering, by which it
//! must fail; it vanishes from every other build.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Atomic words that a table shares.
#[cfg(not(loom))]
pub(crate) type Words = linerate_core::mem::HugeArray<AtomicU64>;
#[cfg(loom)]
pub(crate) type Words = Box<[AtomicU64]>;

/// `len` words, all zero; `name` is whose they are.
#[cfg(not(loom))]
pub(crate) fn words(name: &str, len: usize) -> Result<Words, linerate_core::MemError> {
    Words::from_fn(name, len, |_| AtomicU64::new(0))
}
/// `len` words, all zero.
#[cfg(loom)]
pub(crate) fn words(_: &str, len: usize) -> Result<Words, linerate_core::MemError> {
    Ok((0..len).map(|_| AtomicU64::new(0)).collect())
}

/// Bytes that are mapped for them.
pub(crate) fn words_bytes(words: &Words) -> usize {
    #[cfg(not(loom))]
    return words.region().len();
    #[cfg(loom)]
    return words.len() * 8;
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

/// A fence of this ordering at the named site, left out where a loom model weakens it.
#[inline(always)]
pub(crate) fn fence_at(site: &'static str, sound: Ordering) {
    if at(site, sound) == sound {
        fence(sound);
    }
}

/// What loom models plug into [`at`]. All threads of a model are coroutines of one thread.
#[cfg(all(test, loom))]
pub(crate) mod hooks {
    use std::cell::Cell;

    thread_local!(static WEAK: Cell<Option<&'static str>> = const { Cell::new(None) });

    /// Runs `model` with the ordering at `site` relaxed.
    pub(crate) fn weaken(site: &'static str, model: impl FnOnce()) {
        WEAK.with(|weak| weak.set(Some(site)));
        model();
    }

    pub(super) fn weakened(site: &'static str) -> bool {
        WEAK.with(|weak| weak.get() == Some(site))
    }
}
