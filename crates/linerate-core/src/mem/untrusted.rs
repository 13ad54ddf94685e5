//! Memory that somebody else writes to while we use it: a guest, another process.
//!
//! There is no `&[u8]` of it, for its bytes change under a borrow. Rings and descriptors are seen
//! as slices of atomics, of which each load reads once; bytes are copied, in and out. Every range
//! is checked against what was mapped when it is asked for, so that no number of the peer's leads
//! outside.
//!
//! A file that shrinks under its mapping would end the process by SIGBUS. Such a mapping is
//! replaced by zeros instead, and says so: [`Untrusted::is_lost`].
#![allow(unsafe_code)]

use super::sigbus::{self, Watched};
use crate::MemError;
use crate::arch::peer;
use rustix::fs::{OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Whether what a peer names is checked against what there is. Always: but for a build that shows
/// what it costs (`cargo xtask compare --only vhost.checks`), by `--cfg linerate_unchecked`, since
/// a feature of Cargo's could be turned on by any crate of a build. Such a build maps no memory of
/// peers unless the environment has `LINERATE_UNCHECKED=measure`.
pub const CHECKED: bool = !cfg!(linerate_unchecked);

/// The `N` elements from `at` on, a number of the peer's; `None` if some are outside.
#[inline(always)]
pub fn chunk_at<T, const N: usize>(all: &[T], at: usize) -> Option<&[T; N]> {
    if !CHECKED {
        // SAFETY: none. The build measures what it costs to know.
        return Some(unsafe { &*all.as_ptr().wrapping_add(at).cast() });
    }
    all.get(at..)?.first_chunk()
}

/// Who says which file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFrom {
    /// The peer sent a descriptor. Only memory is taken (tmpfs, which is what a memfd is, and
    /// hugetlbfs): a page of another file may never come (FUSE), and a fault would wait for it.
    Peer,
    /// The user named it, so any file that can be mapped will do (the BAR of a device).
    User,
}

/// A mapping that a peer writes to at any time. Unmapped on drop.
pub struct Untrusted {
    /// The first byte asked for.
    at: NonNull<u8>,
    bytes: usize,
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    watched: Watched,
    sealed: bool,
}

// SAFETY: the memory is reached by atomics and by copies that stand for atomics, nothing else.
unsafe impl Send for Untrusted {}
// SAFETY: as above.
unsafe impl Sync for Untrusted {}

impl Untrusted {
    /// Maps `bytes` of a file from `offset` on, to read and to write. `name` is for messages.
    ///
    /// # Errors
    /// [`MemError::Peer`] says what is wrong with the file: it is none of memory, too short, read
    /// only; or that the kernel does not map it.
    pub fn map(
        name: &str,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        from: FileFrom,
    ) -> Result<Self, MemError> {
        let refused = |reason: String| MemError::Peer {
            name: name.into(),
            reason,
        };
        if !CHECKED && std::env::var("LINERATE_UNCHECKED").as_deref() != Ok("measure") {
            return Err(refused(
                "this build checks nothing, and is for measuring alone".into(),
            ));
        }
        let failed = |what: &str, error: std::io::Error| refused(format!("{what}: {error}"));
        let stat = rustix::fs::fstat(file).map_err(|error| failed("fstat", error.into()))?;
        let page = page_bytes(file, &stat, from).map_err(refused)?;
        let end = offset.checked_add(bytes as u64);
        let size = stat.st_size.cast_unsigned();
        if bytes == 0 || end.is_none_or(|end| from == FileFrom::Peer && end > size) {
            let reason = format!("{bytes} bytes from {offset} on of a file of {size}");
            return Err(refused(reason));
        }
        // Whole pages, of huge ones too.
        let before = offset & page.wrapping_sub(1);
        let whole = before.checked_add(bytes as u64);
        let whole = whole.and_then(|whole| whole.checked_next_multiple_of(page));
        let whole = whole.and_then(|whole| usize::try_from(whole).ok());
        let whole = whole.ok_or_else(|| refused(format!("{bytes} bytes are too many")))?;
        let watched = sigbus::watch().map_err(refused)?;
        let mapped = {
            let (flags, start) = (MapFlags::SHARED, offset ^ before);
            // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), whole, READ_WRITE, flags, file, start) }
        };
        let mapped = mapped.map_err(|error| failed("mmap", error.into()))?;
        let mapped = NonNull::new(mapped.cast::<u8>());
        let mapped = mapped.ok_or_else(|| refused("mmap returned address 0".into()))?;
        watched.begin(mapped, whole);
        // SAFETY: `before` is less than what was mapped.
        let at = unsafe { mapped.add(before as usize) };
        let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        Ok(Self {
            at,
            bytes,
            mapped,
            mapped_bytes: whole,
            watched,
            sealed: seals.contains(SealFlags::SHRINK),
        })
    }

    /// Bytes that can be reached.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Never: at least one byte is mapped.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether the file shrank under the mapping, and zeros took its place. For good.
    pub fn is_lost(&self) -> bool {
        self.watched.is_lost()
    }

    /// Whether the file can never shrink (`F_SEAL_SHRINK`).
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// The `count` bytes from byte `at` on, as atomics.
    #[inline(always)]
    pub fn u8s(&self, at: usize, count: usize) -> Option<&[AtomicU8]> {
        self.atomics(at, count)
    }

    /// `count` words of 16 bits from byte `at` on; `None` outside, or where `at` is odd.
    #[inline(always)]
    pub fn u16s(&self, at: usize, count: usize) -> Option<&[AtomicU16]> {
        self.atomics(at, count)
    }

    /// `count` words of 32 bits from byte `at` on; `None` outside, or where they are not aligned.
    #[inline(always)]
    pub fn u32s(&self, at: usize, count: usize) -> Option<&[AtomicU32]> {
        self.atomics(at, count)
    }

    /// `count` words of 64 bits from byte `at` on; `None` outside, or where they are not aligned.
    #[inline(always)]
    pub fn u64s(&self, at: usize, count: usize) -> Option<&[AtomicU64]> {
        self.atomics(at, count)
    }

    /// `T` is an atomic integer, whose size is its alignment.
    #[inline(always)]
    fn atomics<T>(&self, at: usize, count: usize) -> Option<&[T]> {
        let bytes = count.checked_mul(size_of::<T>())?;
        let start = self.address(at, bytes)?.cast::<T>();
        if !start.is_aligned() {
            return None;
        }
        // SAFETY: the range is mapped for as long as `self` is, and any bytes are an integer. What
        // the peer writes at the same time, it writes as seen from atomics.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), count) })
    }

    /// A range of bytes to copy from and to; `None` if a part of it is outside.
    #[inline(always)]
    pub fn window(&self, at: usize, bytes: usize) -> Option<Window<'_>> {
        let at = self.address(at, bytes)?;
        Some(Window {
            at,
            bytes,
            memory: PhantomData,
        })
    }

    #[inline(always)]
    fn address(&self, at: usize, bytes: usize) -> Option<NonNull<u8>> {
        if CHECKED && (at > self.bytes || bytes > self.bytes.wrapping_sub(at)) {
            return None;
        }
        // SAFETY: `at` is at most the end of what is mapped.
        Some(unsafe { self.at.add(at) })
    }
}

impl Drop for Untrusted {
    fn drop(&mut self) {
        self.watched.end();
        // SAFETY: the mapping is this value's, and whoever borrowed from it held it.
        let unmapped =
            unsafe { rustix::mm::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

impl fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Untrusted({} bytes at {:?})", self.bytes, self.at)
    }
}

/// A part of [`Untrusted`] memory, inside for certain. What is copied from it may be half of one
/// value and half of the next: the peer may write meanwhile.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    at: NonNull<u8>,
    bytes: usize,
    memory: PhantomData<&'a Untrusted>,
}

impl Window<'_> {
    /// Bytes in it.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies its first bytes, as many as `to` has.
    ///
    /// # Panics
    /// If `to` is longer than the window.
    #[inline(always)]
    pub fn read(&self, to: &mut [u8]) {
        assert!(
            !CHECKED || to.len() <= self.bytes,
            "more than the window has"
        );
        // SAFETY: the range is mapped, `to` is ours alone, and both have as many bytes.
        unsafe { peer::copy(to.as_mut_ptr(), self.at.as_ptr(), to.len()) };
    }

    /// Copies all of `from` to its start.
    ///
    /// # Panics
    /// If `from` is longer than the window.
    #[inline(always)]
    pub fn write(&self, from: &[u8]) {
        assert!(
            !CHECKED || from.len() <= self.bytes,
            "more than the window has room for"
        );
        // SAFETY: as above; a peer sees stores to memory that it shares.
        unsafe { peer::copy_to_peer(self.at.as_ptr(), from.as_ptr(), from.len()) };
    }

    /// The 8 bytes from `at` on, the first lowest; `None` if some of them are outside.
    #[inline(always)]
    pub fn read_u64(&self, at: usize) -> Option<u64> {
        let part = self.part(at, 8)?;
        // SAFETY: the part has 8 bytes.
        Some(unsafe { peer::load_u64(part.at.as_ptr()) })
    }

    /// The 4 bytes from `at` on, the first lowest; `None` if some of them are outside.
    #[inline(always)]
    pub fn read_u32(&self, at: usize) -> Option<u32> {
        let part = self.part(at, 4)?;
        // SAFETY: the part has 4 bytes.
        Some(unsafe { peer::load_u32(part.at.as_ptr()) })
    }

    /// A part of it; `None` if some of that is outside. For many ranges of one memory: whoever asks
    /// the same window again and again has its bounds in registers.
    #[inline(always)]
    pub fn part(&self, at: usize, bytes: usize) -> Option<Self> {
        if CHECKED && (at > self.bytes || bytes > self.bytes.wrapping_sub(at)) {
            return None;
        }
        // SAFETY: `at` is at most the window's end.
        let at = unsafe { self.at.add(at) };
        Some(Self { at, bytes, ..*self })
    }

    /// Brings its first cache line near, for writing: away from other cores.
    #[inline(always)]
    pub fn prefetch_write(&self) {
        self.prefetch_write_at(0);
    }

    /// Brings a cache line near every `stride` bytes, for writing: of buffers that lie in a row.
    #[inline(always)]
    pub fn prefetch_write_every(&self, stride: usize) {
        for at in (0..self.bytes).step_by(stride.max(LINE)) {
            crate::arch::prefetch_write(self.at.as_ptr().wrapping_add(at));
        }
    }

    /// Brings all cache lines but the first near, for reading: the processor foresees little of a
    /// frame that another core wrote.
    #[inline(always)]
    pub fn prefetch_rest(&self) {
        for at in (LINE..self.bytes).step_by(LINE) {
            crate::arch::prefetch_read(self.at.as_ptr().wrapping_add(at));
        }
    }

    /// Brings its first cache line near, for reading.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.prefetch_at(0);
    }

    /// Brings the line of byte `at` near for writing; that may be outside, and to no effect.
    #[inline(always)]
    pub fn prefetch_write_at(&self, at: usize) {
        crate::arch::prefetch_write(self.at.as_ptr().wrapping_add(at));
    }

    /// Brings the line of byte `at` near for reading; that may be outside, and to no effect.
    #[inline(always)]
    pub fn prefetch_at(&self, at: usize) {
        crate::arch::prefetch_read(self.at.as_ptr().wrapping_add(at));
    }
}

const LINE: usize = 64;
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// Bytes of the file's pages, a power of two, if it is a file that can be mapped.
fn page_bytes(
    file: BorrowedFd<'_>,
    stat: &rustix::fs::Stat,
    from: FileFrom,
) -> Result<u64, String> {
    let system = rustix::fs::fstatfs(file).map_err(|error| format!("fstatfs: {error}"))?;
    let magic = system.f_type as u64;
    let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    if from == FileFrom::Peer && !(regular && matches!(magic, TMPFS | HUGETLBFS)) {
        return Err("the file is no shared memory (memfd, tmpfs, hugetlbfs)".into());
    }
    let flags = rustix::fs::fcntl_getfl(file).map_err(|error| format!("fcntl: {error}"))?;
    if flags & OFlags::ACCMODE != OFlags::RDWR {
        return Err("the file is not open for reading and writing".into());
    }
    let base = rustix::param::page_size() as u64;
    let huge = (magic == HUGETLBFS).then_some(system.f_bsize as u64);
    Ok(huge
        .filter(|bytes| bytes.is_power_of_two())
        .unwrap_or(base)
        .max(base))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "untrusted/tests.rs"]
mod tests;
