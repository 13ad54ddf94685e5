//! A region: pages of one kind, mapped into the reserved range, given back on drop.
#![allow(unsafe_code)]

use super::sigbus::{self, Watched};
use super::space::{Extent, GRAIN_BYTES, Space};
use super::sys::{self, Staged};
use crate::MemError;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// What backs a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// 1 GiB pages of hugetlbfs.
    Huge1G,
    /// 2 MiB pages of hugetlbfs.
    Huge2M,
    /// Ordinary memory for which the kernel was asked to use 2 MiB pages.
    Transparent,
    /// 4 KiB pages.
    Base4K,
}

impl PageKind {
    /// Bytes of a page; what alignment and rounding follow.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Huge1G => 1 << 30,
            Self::Huge2M | Self::Transparent => 2 << 20,
            Self::Base4K => 4 << 10,
        }
    }

    /// Whether hugetlbfs has them.
    const fn is_huge(self) -> bool {
        matches!(self, Self::Huge1G | Self::Huge2M)
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Huge1G => "1 GiB huge pages",
            Self::Huge2M => "2 MiB huge pages",
            Self::Transparent => "transparent huge pages",
            Self::Base4K => "4 KiB pages",
        })
    }
}

/// Which pages a region may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PagePolicy {
    /// The largest kind that is to be had and wastes less than half of itself.
    #[default]
    Auto,
    /// This kind or an error.
    Only(PageKind),
}

/// What a region is to be.
#[derive(Clone, Debug, Default)]
pub struct RegionConfig {
    /// Whose memory it is, for messages.
    pub name: String,
    /// Usable bytes; rounded up to whole pages.
    pub bytes: usize,
    /// Which pages.
    pub pages: PagePolicy,
    /// The NUMA node to bind to; `None` leaves it to the kernel.
    pub numa_node: Option<u32>,
    /// The start is a multiple of this power of two, at least a page; 0 asks for no more.
    pub align_bytes: usize,
    /// Behind a memfd, so that a peer can map it too; sealed, so that none can shrink it. Such
    /// memory gets no transparent huge pages.
    pub shared: bool,
}

/// Mapped, zeroed, populated memory in the process's reserved address range.
pub struct Region {
    name: String,
    extent: Extent,
    at: NonNull<u8>,
    bytes: usize,
    kind: PageKind,
    numa_node: Option<u32>,
    memfd: Option<Shared>,
}

/// What a shared region has besides its memory.
struct Shared {
    file: OwnedFd,
    /// A peer can take huge pages out of the file (`FALLOC_FL_PUNCH_HOLE`), and there may be none
    /// to take their place.
    watched: Watched,
}

// SAFETY: a region is memory and numbers; whoever hands out parts of it keeps them apart.
unsafe impl Send for Region {}
// SAFETY: `&Region` gives out no access to the memory but a raw pointer.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region, trying 1 GiB, 2 MiB, transparent and 4 KiB pages in turn under
    /// [`PagePolicy::Auto`].
    ///
    /// # Errors
    /// [`MemError::Map`] names the region and the fix when the kernel refuses,
    /// [`MemError::RangeFull`] when the reserved range has no room.
    pub fn map(config: &RegionConfig) -> Result<Self, MemError> {
        let kinds: &[PageKind] = match config.pages {
            PagePolicy::Auto => &[
                PageKind::Huge1G,
                PageKind::Huge2M,
                PageKind::Transparent,
                PageKind::Base4K,
            ],
            PagePolicy::Only(PageKind::Huge1G) => &[PageKind::Huge1G],
            PagePolicy::Only(PageKind::Huge2M) => &[PageKind::Huge2M],
            PagePolicy::Only(PageKind::Transparent) => &[PageKind::Transparent],
            PagePolicy::Only(PageKind::Base4K) => &[PageKind::Base4K],
        };
        let auto = config.pages == PagePolicy::Auto;
        let mut last = None;
        for &kind in kinds {
            let wasteful = kind != PageKind::Base4K && config.bytes < kind.bytes() / 2;
            let impossible = config.shared && kind == PageKind::Transparent;
            if auto && (wasteful || impossible) {
                continue;
            }
            match Self::map_kind(config, kind) {
                Ok(region) => return Ok(region),
                Err(error @ MemError::Map { .. }) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.expect("4 KiB pages are always tried, and end in Ok or Err"))
    }

    fn map_kind(config: &RegionConfig, kind: PageKind) -> Result<Self, MemError> {
        let space = Space::get()?;
        let (bytes, page) = (config.bytes.max(1), kind.bytes());
        let bytes = bytes.checked_next_multiple_of(page);
        let bytes = bytes.ok_or_else(|| space.full(config.bytes))?;
        let extent = space.take(bytes, page.max(config.align_bytes))?;
        let at = space.address(&extent);
        let failed = |source| MemError::Map {
            name: config.name.clone(),
            bytes,
            pages: kind.to_string(),
            source,
            fix: fix_for(kind, bytes),
        };
        let (kind, staged) = Self::stage(config, kind, bytes).map_err(|error| {
            space.give(&extent);
            failed(error)
        })?;
        // An extent that this fails for is not given back: it may have lost its reservation.
        // SAFETY: the extent was just taken: reserved, unused, aligned to the page size.
        let file = unsafe { staged.put_over(at) }.map_err(failed)?;
        let mut region = Self {
            name: config.name.clone(),
            extent,
            at,
            bytes,
            kind,
            numa_node: config.numa_node,
            memfd: None,
        };
        if let Some(file) = file.filter(|_| config.shared) {
            let watched = sigbus::watch().map_err(|why| failed(std::io::Error::other(why)))?;
            watched.begin(at, bytes);
            region.memfd = Some(Shared { file, watched });
        }
        Ok(region)
    }

    /// Gets the pages, outside the extent; the kind may come back as plain pages where the kernel
    /// has no transparent huge ones.
    fn stage(
        config: &RegionConfig,
        mut kind: PageKind,
        bytes: usize,
    ) -> std::io::Result<(PageKind, Staged)> {
        let staged = if config.shared || kind.is_huge() {
            Staged::file(memfd(config, kind, bytes)?, bytes)?
        } else {
            // Moved by whole tables of pages where both places begin with one.
            Staged::anonymous(bytes, GRAIN_BYTES)?
        };
        config
            .numa_node
            .map_or(Ok(()), |node| staged.bind_numa(node))?;
        if kind == PageKind::Transparent && !staged.advise_huge() {
            kind = PageKind::Base4K;
        }
        staged.populate()?;
        Ok((kind, staged))
    }

    /// Start of the memory.
    pub fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Usable bytes, a whole number of pages.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Never: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes from the start of the reserved range.
    pub(crate) fn offset(&self) -> usize {
        self.extent.offset()
    }

    /// What backs it.
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    /// The NUMA node that it is bound to.
    pub fn numa_node(&self) -> Option<u32> {
        self.numa_node
    }

    /// The file descriptor that a peer maps, if the region is shared.
    pub fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.memfd.as_ref().map(|shared| shared.file.as_fd())
    }

    /// Whether a peer took pages out of the file, and zeros that it does not see took the place of
    /// all of it. For good.
    pub fn is_lost(&self) -> bool {
        let shared = self.memfd.as_ref();
        shared.is_some_and(|shared| shared.watched.is_lost())
    }
}

/// One line for people: name, size, pages, node.
impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes as f64 / f64::from(1 << 20);
        write!(f, "{}: {mib:.1} MiB on {}", self.name, self.kind)?;
        if let Some(node) = self.numa_node {
            write!(f, ", NUMA node {node}")?;
        }
        if self.memfd.is_some() {
            f.write_str(", shared")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({self} at {:?})", self.at)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(shared) = &self.memfd {
            shared.watched.end();
        }
        // SAFETY: the region owns its extent, and whoever used the memory held the region.
        let reserved = unsafe { sys::unmap_to_reserved(self.at, self.bytes) };
        // What may have lost its reservation is nobody's any more.
        if let (Ok(()), Ok(space)) = (reserved, Space::get()) {
            space.give(&self.extent);
        }
    }
}

fn memfd(config: &RegionConfig, kind: PageKind, bytes: usize) -> std::io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match kind {
        PageKind::Huge1G => flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
        PageKind::Huge2M => flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        PageKind::Transparent | PageKind::Base4K => {}
    }
    let name: String = config
        .name
        .chars()
        .filter(|c| *c != '\0')
        .take(200)
        .collect();
    let fd = memfd_create(name, flags)?;
    ftruncate(&fd, bytes as u64)?;
    if config.shared {
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    }
    Ok(fd)
}

fn fix_for(kind: PageKind, bytes: usize) -> String {
    let pages = bytes.div_ceil(kind.bytes());
    match kind {
        PageKind::Huge1G => {
            format!("boot with `hugepagesz=1G hugepages={pages}`, or let the kit pick the pages")
        }
        PageKind::Huge2M => format!(
            "reserve them as root: `echo {pages} > \
             /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`"
        ),
        PageKind::Transparent | PageKind::Base4K => "free memory, or use fewer slots".to_string(),
    }
}

const _: () = assert!(GRAIN_BYTES == PageKind::Huge2M.bytes());

#[cfg(test)]
mod tests {
    use super::*;

    fn config(bytes: usize, pages: PagePolicy) -> RegionConfig {
        RegionConfig {
            name: "test".into(),
            bytes,
            pages,
            ..RegionConfig::default()
        }
    }

    #[test]
    fn auto_finds_zeroed_writable_pages_without_privileges() {
        let region = Region::map(&config(3 << 20, PagePolicy::Auto)).unwrap();
        assert!(region.len() >= 3 << 20);
        // SAFETY: the region is this test's own.
        let memory = unsafe { std::slice::from_raw_parts_mut(region.as_ptr(), region.len()) };
        assert!(memory.iter().all(|&byte| byte == 0));
        memory.fill(0xa5);
        assert!(region.to_string().contains("MiB on"), "{region}");
    }

    #[test]
    fn memory_that_came_back_is_zero_again() {
        for _ in 0..3 {
            let region = Region::map(&config(1 << 20, PagePolicy::Only(PageKind::Base4K))).unwrap();
            // SAFETY: as above.
            let memory = unsafe { std::slice::from_raw_parts_mut(region.as_ptr(), region.len()) };
            assert_eq!(memory[0], 0);
            memory[0] = 1;
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel's memory")]
    fn missing_huge_pages_name_the_fix() {
        // More 1 GiB pages than any test machine reserves.
        let error = Region::map(&config(64 << 30, PagePolicy::Only(PageKind::Huge1G))).unwrap_err();
        assert!(error.to_string().contains("hugepagesz=1G"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel's memory")]
    fn shared_memory_is_seen_through_its_descriptor() {
        let shared = RegionConfig {
            shared: true,
            ..config(64 << 10, PagePolicy::Only(PageKind::Base4K))
        };
        let region = Region::map(&shared).unwrap();
        // SAFETY: the first byte of a region that is this test's own.
        unsafe { region.as_ptr().write(7) };
        let mut byte = [0];
        rustix::io::pread(region.memfd().unwrap(), &mut byte, 0).unwrap();
        assert_eq!(byte, [7]);
        let cut = rustix::fs::ftruncate(region.memfd().unwrap(), 0);
        assert_eq!(cut, Err(rustix::io::Errno::PERM), "a peer cannot shrink it");
        assert!(!region.is_lost());
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the kernel's memory")]
    fn a_region_binds_to_node_0() {
        let bound = RegionConfig {
            numa_node: Some(0),
            ..config(1 << 20, PagePolicy::Auto)
        };
        let region = Region::map(&bound).unwrap();
        assert!(region.to_string().ends_with("NUMA node 0"), "{region}");
    }
}
