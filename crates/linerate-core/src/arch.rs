//! What depends on the processor: cache lines, prefetch, pause, and block copies of shared words.
//!
//! Everything here is a safe function unless it takes a raw pointer.
//!
//! # Block copies of atomics
//!
//! The MPMC ring reads and writes runs of `AtomicU32` and `AtomicU8`. The compiler never joins
//! atomic accesses into vector ones, so on x86-64 the runs go through `movdqu` in inline assembly.
//! To the language an assembly block may do whatever Rust code in its place could have done: each
//! block stands for one relaxed load or store *per element*. The processor keeps that promise,
//! since an aligned element of 1 or 4 bytes never straddles the pieces into which a vector access
//! may be split. It gives more: x86-64 keeps loads in order among loads and stores among stores,
//! so release and acquire need no instruction, only that the compiler does not move the blocks,
//! which the fences around them see to. Loom, ThreadSanitizer, Miri and other processors take the
//! same steps element by element, with release stores and acquire loads.
//!
//! **A stamp is stored once.** It gives its slot away: receivers may empty the slot and a sender of
//! the next lap may fill it before the next instruction of this thread, so a block that overlaps
//! the one before it would put an old stamp back for ever. `stamp` cuts a run into blocks that do
//! not overlap, in one place for all processors, and the tests stop a thread between any two. Words
//! may be moved twice: no one else uses those of a claimed run, and a copy that loses its race is
//! thrown away.
#![allow(unsafe_code)]

use crate::env::Isa;
use crate::sync::{AtomicU8, AtomicU32};
use std::ops::{Deref, DerefMut};

#[cfg(all(target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
#[path = "arch/x86_64.rs"]
mod blocks;
#[cfg(not(all(target_arch = "x86_64", not(loom), not(tsan), not(miri))))]
#[path = "arch/portable.rs"]
mod blocks;
mod copy;
pub(crate) mod peer;
/// What other processors run, for the stress tests of this one.
#[cfg(all(test, target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
#[path = "arch/portable.rs"]
mod portable;
mod stream;

pub(crate) use copy::WordCopy;
pub(crate) use stream::{LINE_BYTES, stream_fence, stream_lines};

/// Bytes that one core's write takes from another: two lines of 64, since x86-64 prefetches pairs.
pub const CACHE_PAIR: usize = 128;

/// Keeps its content on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A boxed slice that starts on a cache line pair of its own.
pub(crate) struct AlignedSlice<T> {
    start: std::ptr::NonNull<T>,
    len: usize,
}

// SAFETY: it owns its elements, as `Box<[T]>` does.
unsafe impl<T: Send> Send for AlignedSlice<T> {}
// SAFETY: shared access gives out `&T` only, as `Box<[T]>` does.
unsafe impl<T: Sync> Sync for AlignedSlice<T> {}

impl<T> AlignedSlice<T> {
    /// Allocates `len` elements, each made by `make`; `len` and `T` must not be of size zero.
    pub(crate) fn new(len: usize, make: impl Fn() -> T) -> Self {
        let layout = Self::layout(len);
        assert!(
            layout.size() > 0,
            "an aligned slice needs at least one byte"
        );
        // SAFETY: the layout's size is not zero.
        let bytes = unsafe { std::alloc::alloc(layout) };
        let Some(start) = std::ptr::NonNull::new(bytes.cast::<T>()) else {
            std::alloc::handle_alloc_error(layout)
        };
        for index in 0..len {
            // SAFETY: `index` is below `len`, for which the allocation has room.
            let slot = unsafe { start.add(index) };
            // SAFETY: the slot is inside the allocation, aligned, and not read by anybody yet.
            unsafe { slot.write(make()) };
        }
        Self { start, len }
    }

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::array::<T>(len)
            .and_then(|layout| layout.align_to(CACHE_PAIR))
            .expect("a ring's storage stays far below isize::MAX bytes")
    }
}

impl<T> Deref for AlignedSlice<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` initialised `len` elements from `start` on, and `self` owns them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for AlignedSlice<T> {
    fn drop(&mut self) {
        let all = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
        // SAFETY: the elements are initialised, and not used after this.
        unsafe { std::ptr::drop_in_place(all) };
        // SAFETY: allocated in `new` with the same layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr().cast(), Self::layout(self.len)) };
    }
}

/// Work that [`Vectors::run`] compiles for several instruction sets. Mark `run`, and all that its
/// loops call, `#[inline(always)]`: what is not inlined stays as it is.
pub trait Work {
    /// What it returns.
    type Output;

    /// Does it.
    fn run(self) -> Self::Output;
}

/// Vector instructions that this CPU is known to have: plain loops get wider with them, and stay
/// safe.
///
/// ```
/// use linerate_core::arch::{Vectors, Work};
/// use linerate_core::env::Isa;
///
/// struct Sum<'a>(&'a [u32]);
///
/// impl Work for Sum<'_> {
///     type Output = u32;
///
///     #[inline(always)]
///     fn run(self) -> u32 {
///         self.0.iter().sum()
///     }
/// }
/// for isa in Isa::detect().levels() {
///     assert_eq!(Vectors::up_to(isa).run(Sum(&[1, 2, 3])), 6);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Vectors(Isa);

impl Vectors {
    /// Those of `isa`, or as many of them as this CPU has.
    pub fn up_to(isa: Isa) -> Self {
        Self(isa.available())
    }

    /// Does `work`, compiled for these instructions: those of AVX2 at most, since wider ones were
    /// no faster in loops over bursts.
    #[inline(always)]
    pub fn run<W: Work>(self, work: W) -> W::Output {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.0 > Isa::Baseline {
            // SAFETY: only `up_to` makes one of these, and it asked the CPU.
            return unsafe { run_avx2(work) };
        }
        work.run()
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn run_avx2<W: Work>(work: W) -> W::Output {
    work.run()
}

/// Asks for the line at `address` to be brought near for reading. Any address will do.
#[inline(always)]
pub fn prefetch_read<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{a}]", a = in(reg) address, options(nostack, readonly,
            preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// As [`prefetch_read`], for a line that is written soon: other cores lose it.
#[inline(always)]
pub fn prefetch_write<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address; where the processor does not know it,
    // it does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{a}]", a = in(reg) address, options(nostack, readonly,
            preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{a}]", a = in(reg) address, options(nostack, readonly,
            preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// As [`prefetch_read`], for a line that is not read before hundreds of others: it comes into the
/// second-level cache, since it would not last in the first.
#[inline(always)]
pub fn prefetch_later<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{a}]", a = in(reg) address, options(nostack, readonly,
            preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Tells the processor that the caller polls, so that it saves power and yields to a sibling.
#[inline(always)]
pub fn pause() {
    std::hint::spin_loop();
}

/// A sequentially consistent fence by a locked instruction on the stack, which takes a tenth of the
/// time of the `mfence` that the compiler emits (4 against 41 TSC ticks on an EPYC of 2022).
#[cfg(all(target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
#[inline(always)]
pub(crate) fn full_fence() {
    // SAFETY: or-ing 0 changes nothing, and the top of the stack is always mapped and ours.
    unsafe { std::arch::asm!("lock or dword ptr [rsp], 0", options(nostack)) };
}

/// Stores `len` words from `from` on into atomics, each relaxed.
///
/// # Safety
/// `to` points at `len` live atomics; `from` is valid for reading `len` words.
#[inline(always)]
pub(crate) unsafe fn store_words(to: *const AtomicU32, from: *const u32, len: usize) {
    #[cfg(all(test, target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
    if crate::sync::hooks::portable() {
        // SAFETY: the caller's promise.
        return unsafe { portable::store_words(to, from, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { blocks::store_words(to, from, len) }
}

/// Loads `len` atomics, each relaxed, into words from `to` on.
///
/// # Safety
/// `from` points at `len` live atomics; `to` is valid for writing `len` words.
#[inline(always)]
pub(crate) unsafe fn load_words(from: *const AtomicU32, to: *mut u32, len: usize) {
    #[cfg(all(test, target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
    if crate::sync::hooks::portable() {
        // SAFETY: the caller's promise.
        return unsafe { portable::load_words(from, to, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { blocks::load_words(from, to, len) }
}

/// Stores `stamp` into `len` atomics, each once, the first first, with release semantics.
///
/// # Safety
/// `to` points at `len` live atomics.
#[inline(always)]
pub(crate) unsafe fn stamp(to: *const AtomicU8, len: usize, stamp: u8) {
    let mut done = 0;
    while len - done >= blocks::STAMPS {
        // SAFETY: as many atomics from `done` on are inside.
        unsafe { put_stamps::<{ blocks::STAMPS }>(to.wrapping_add(done), stamp) };
        done += blocks::STAMPS;
    }
    let rest = len - done;
    if rest & 8 != 0 {
        // SAFETY: the rest has 8 or more.
        unsafe { put_stamps::<8>(to.wrapping_add(done), stamp) };
        done += 8;
    }
    if rest & 4 != 0 {
        // SAFETY: the rest still has 4 or more.
        unsafe { put_stamps::<4>(to.wrapping_add(done), stamp) };
        done += 4;
    }
    if rest & 2 != 0 {
        // SAFETY: the rest still has 2 or more.
        unsafe { put_stamps::<2>(to.wrapping_add(done), stamp) };
        done += 2;
    }
    if rest & 1 != 0 {
        // SAFETY: one is left.
        unsafe { put_stamps::<1>(to.wrapping_add(done), stamp) };
    }
}

/// # Safety
/// `to` points at `N` live atomics.
#[inline(always)]
unsafe fn put_stamps<const N: usize>(to: *const AtomicU8, stamp: u8) {
    #[cfg(all(test, target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
    if crate::sync::hooks::portable() {
        // SAFETY: the caller's promise.
        unsafe { portable::put_stamps::<N>(to, stamp) };
        return crate::sync::window("sender: stamps stored");
    }
    // SAFETY: the caller's promise.
    unsafe { blocks::put_stamps::<N>(to, stamp) };
    crate::sync::window("sender: stamps stored");
}

/// How many of `len` atomics equal `stamp` before the first that does not; acquires what was
/// released before each of those.
///
/// # Safety
/// `from` points at `len + STAMPS_READ_ALONG` live atomics.
#[inline(always)]
pub(crate) unsafe fn stamped(from: *const AtomicU8, len: usize, stamp: u8) -> usize {
    #[cfg(all(test, target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
    if crate::sync::hooks::portable() {
        // SAFETY: the caller's promise.
        return unsafe { portable::stamped(from, len, stamp) };
    }
    // SAFETY: the caller's promise.
    unsafe { blocks::stamped(from, len, stamp) }
}

/// [`stamped`] of fewer than 16, read in the pieces into which [`stamp`] cuts a run of that length,
/// and none beyond the last.
///
/// # Safety
/// `from` points at `len` live atomics.
#[inline(always)]
pub(crate) unsafe fn stamped_short(from: *const AtomicU8, len: usize, stamp: u8) -> usize {
    let mut done = 0;
    if len & 8 != 0 {
        // SAFETY: the run has 8 or more.
        let found = unsafe { read_stamps::<8>(from.wrapping_add(done), stamp) };
        done += found;
        if found < 8 {
            return done;
        }
    }
    if len & 4 != 0 {
        // SAFETY: what is left has 4 or more.
        let found = unsafe { read_stamps::<4>(from.wrapping_add(done), stamp) };
        done += found;
        if found < 4 {
            return done;
        }
    }
    if len & 2 != 0 {
        // SAFETY: what is left has 2 or more.
        let found = unsafe { read_stamps::<2>(from.wrapping_add(done), stamp) };
        done += found;
        if found < 2 {
            return done;
        }
    }
    if len & 1 != 0 {
        // SAFETY: one is left.
        done += unsafe { read_stamps::<1>(from.wrapping_add(done), stamp) };
    }
    done
}

/// As [`stamped`], for `N` atomics.
///
/// # Safety
/// `from` points at `N` live atomics.
#[inline(always)]
unsafe fn read_stamps<const N: usize>(from: *const AtomicU8, stamp: u8) -> usize {
    #[cfg(all(test, target_arch = "x86_64", not(loom), not(tsan), not(miri)))]
    if crate::sync::hooks::portable() {
        // SAFETY: the caller's promise.
        return unsafe { portable::stamped(from, N, stamp) };
    }
    // SAFETY: the caller's promise.
    unsafe { blocks::read_stamps::<N>(from, stamp) }
}

/// How many atomics beyond the last one in question [`stamped`] may read, without judging them.
pub(crate) const STAMPS_READ_ALONG: usize = 32;
