//! Pools of fixed slots: their shape, their memory, and how long they live.
#![allow(unsafe_code)]

use super::depot::{Depot, MAGAZINE, ReturnList, pushes_between};
use super::meta::{Handle, Line, Meta, Offload, line_of};
use crate::MemError;
use crate::arch::CachePadded;
use crate::mem::{PagePolicy, Region, RegionConfig};
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::fmt;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Bytes before the data of a fresh packet: what XDP keeps free too, and room for any tunnel.
pub(super) const HEADROOM_BYTES: usize = 256;

/// How large a frame a pool's slots take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotClass {
    /// At least 2048 bytes behind the headroom (1792 in a [`Layout::Aligned`] pool).
    #[default]
    Small,
    /// At least 65,553 bytes: the largest IP packet with Ethernet and VLAN headers.
    Large,
}

/// How slots follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// An odd number of cache lines apart, so that the same field of neighbouring packets does
    /// not fall into the same cache sets.
    #[default]
    Staggered,
    /// A power of two apart, for devices that want so (AF_XDP's aligned chunks).
    Aligned,
}

const fn slot_bytes(class: SlotClass, layout: Layout) -> usize {
    match (class, layout) {
        (SlotClass::Small, Layout::Staggered) => 37 * 64,
        (SlotClass::Small, Layout::Aligned) => 2048,
        (SlotClass::Large, Layout::Staggered) => 1029 * 64,
        (SlotClass::Large, Layout::Aligned) => 128 << 10,
    }
}

/// What a pool is to be.
#[derive(Clone, Debug, Default)]
pub struct PoolConfig {
    /// For messages, counters and the ledger.
    pub name: String,
    /// Number of slots: as many packets as can be alive at once.
    pub slots: u32,
    /// Size of a slot.
    pub class: SlotClass,
    /// Distance of slots.
    pub layout: Layout,
    /// Which pages.
    pub pages: PagePolicy,
    /// NUMA node, where there is a choice.
    pub numa_node: Option<u32>,
    /// The machine has no such node, and only plays one that has: the memory may be anywhere.
    pub unbound: bool,
    /// Its slots lie in a file of their own, which a port may give to a peer that is trusted with
    /// all of them (ADR 43). The metadata stays private.
    pub exposed: bool,
}

impl PoolConfig {
    /// A pool of small, staggered slots on the best pages there are.
    pub fn new(name: impl Into<String>, slots: u32) -> Self {
        Self {
            name: name.into(),
            slots,
            ..Self::default()
        }
    }
}

/// What a pool and its slots share. Freed when the last [`Pool`] value is gone *and* the last slot
/// is home: until then a packet may outlive every `Pool` that could name it.
pub(super) struct PoolShared {
    name: String,
    first: u32,
    slots: u32,
    slot_bytes: u32,
    class: SlotClass,
    numa_node: Option<u32>,
    /// Metadata lines, then slots, in one region.
    region: Region,
    data_offset: usize,
    /// The slots of an exposed pool, from the start on; `region` has none then.
    exposed: Option<Region>,
    pub(super) depot: Depot,
    pub(super) returns: CachePadded<ReturnList>,
    /// `Pool` values alive; caches hold one each.
    owners: AtomicUsize,
    /// Slots taken from `returns` by caches that are gone or have said so, modulo 2^31.
    pub(super) strays_taken: AtomicU32,
    /// Requests that found no free slot.
    pub(super) refused: AtomicU64,
    /// Packets that were dropped one by one, outside caches.
    plain_drops: AtomicU64,
    /// Sum of what caches that are gone had taken from the shared part less what they gave, modulo
    /// 2^64.
    pub(super) retired: AtomicU64,
}

impl PoolShared {
    #[inline(always)]
    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes as usize
    }

    #[inline(always)]
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Handles that differ from `first` only below this power of two are this pool's: `first` is
    /// a multiple of it, and what follows the metadata lines up to it are the pool's own slots.
    pub(super) fn span(&self) -> u32 {
        self.slots.next_power_of_two()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Pushes one slot to the return list, and frees an orphaned pool with its last slot.
    ///
    /// # Safety
    /// The caller owns the slot and gives it up; `this` is the slot's pool.
    pub(super) unsafe fn give_back(this: *const Self, slot: Handle) {
        // SAFETY: the slot is not home yet, so the pool is alive until the push.
        let shared = unsafe { &*this };
        shared.plain_drops.fetch_add(1, Ordering::Release);
        // SAFETY: until it is pushed, the slot's line is this thread's.
        let set_next = |next| unsafe { set_next(slot, next) };
        let last = shared.returns.push(slot.get(), 1, set_next);
        if last {
            // SAFETY: exactly one push brings the last slot home, and no `Pool` is left.
            drop(unsafe { Box::from_raw(this.cast_mut()) });
        }
    }

    fn new(config: &PoolConfig) -> Result<NonNull<Self>, MemError> {
        let shape = |reason: String| MemError::PoolShape {
            name: config.name.clone(),
            reason,
        };
        let slot_bytes = slot_bytes(config.class, config.layout);
        let slots = config.slots as usize;
        let data_offset =
            (slots * size_of::<Line>()).next_multiple_of(slot_alignment(config.layout));
        if slots == 0 {
            return Err(shape("0 slots; give at least 1".into()));
        }
        if slots >= 1 << 30 {
            return Err(shape(format!(
                "{slots} slots; at most {} are possible",
                (1 << 30) - 1
            )));
        }
        let span_bytes = slots.next_power_of_two() * size_of::<Line>();
        let together = RegionConfig {
            name: format!("pool `{}`", config.name),
            bytes: data_offset + slots * slot_bytes,
            pages: config.pages,
            numa_node: config.numa_node.filter(|_| !config.unbound),
            align_bytes: span_bytes,
            shared: false,
        };
        let (region, exposed) = if config.exposed {
            // No other pool's lines are among the handles of this one's span.
            let lines = RegionConfig {
                name: format!("metadata of pool `{}`", config.name),
                bytes: span_bytes,
                pages: PagePolicy::Auto,
                ..together.clone()
            };
            let data = RegionConfig {
                bytes: slots * slot_bytes,
                align_bytes: 0,
                shared: true,
                ..together
            };
            (Region::map(&lines)?, Some(Region::map(&data)?))
        } else {
            (Region::map(&together)?, None)
        };
        let first = (region.offset() / size_of::<Line>()) as u32;
        let shared = Box::new(Self {
            name: config.name.clone(),
            first,
            slots: config.slots,
            slot_bytes: slot_bytes as u32,
            class: config.class,
            numa_node: config.numa_node,
            region,
            data_offset,
            exposed,
            depot: Depot::new(slots),
            returns: CachePadded::new(ReturnList::new()),
            owners: AtomicUsize::new(1),
            strays_taken: AtomicU32::new(0),
            refused: AtomicU64::new(0),
            plain_drops: AtomicU64::new(0),
            retired: AtomicU64::new(0),
        });
        // From here on the pool is known by this pointer only, by which it will be freed, too.
        let shared = NonNull::from(Box::leak(shared));
        // SAFETY: leaked a line above, and nobody else knows it.
        let pool = unsafe { shared.as_ref() };
        pool.write_lines(shared.as_ptr());
        pool.stock();
        Ok(shared)
    }

    /// Writes what belongs to each slot for ever.
    fn write_lines(&self, pool: *const Self) {
        for index in 0..self.slots {
            let slot = self
                .data_ptr()
                .wrapping_add(index as usize * self.slot_bytes());
            let at = line_of(self.handle(index));
            let line = Line {
                slot,
                pool,
                len: 0,
                start: HEADROOM_BYTES as u16,
                port: 0,
                meta: Meta {
                    offload: Offload::NONE,
                    vlan_tci: 0,
                    gso_size: 0,
                    csum_start: 0,
                    csum_offset: 0,
                    l3_offset: 0,
                    l4_offset: 0,
                    rss_hash: 0,
                    timestamp: 0,
                    user: [0; 2],
                },
            };
            // SAFETY: the line lies in the region, which nobody else knows yet.
            unsafe { at.write(line) };
        }
    }

    /// Puts all slots into the depot, and what does not fit there on the return list.
    fn stock(&self) {
        let mut index = 0;
        while index + MAGAZINE as u32 <= self.slots {
            let magazine = std::array::from_fn(|i| self.first + index + i as u32);
            if !self.depot.put(&magazine) {
                break;
            }
            index += MAGAZINE as u32;
        }
        for rest in index..self.slots {
            let slot = self.handle(rest);
            // SAFETY: nobody has the slot yet.
            self.returns
                .push(slot.get(), 1, |next| unsafe { set_next(slot, next) });
        }
    }

    fn handle(&self, index: u32) -> Handle {
        NonZeroU32::new(self.first + index).expect("the reserved range starts with an unused grain")
    }

    pub(super) fn data_ptr(&self) -> *mut u8 {
        match &self.exposed {
            Some(data) => data.as_ptr(),
            None => self.region.as_ptr().wrapping_add(self.data_offset),
        }
    }

    /// Where the slots are.
    fn data_region(&self) -> &Region {
        self.exposed.as_ref().unwrap_or(&self.region)
    }

    /// Slots in the depot and on the return list; exact only while nobody takes any.
    fn home(&self, pushes: u32) -> u32 {
        let strays = pushes_between(self.strays_taken.load(Ordering::Acquire), pushes);
        self.depot.count_handles() as u32 + strays
    }
}

/// Links a free slot to the next one on the return list; 0 ends the list.
///
/// # Safety
/// The caller alone has the slot.
pub(super) unsafe fn set_next(slot: Handle, next: u32) {
    // SAFETY: the line is mapped, and the caller's.
    unsafe { (*line_of(slot)).meta.rss_hash = next };
}

/// The slot after this one on a list that was taken.
///
/// # Safety
/// The caller alone has the list.
pub(super) unsafe fn next_of(slot: Handle) -> u32 {
    // SAFETY: the line is mapped, and the caller's.
    unsafe { (*line_of(slot)).meta.rss_hash }
}

const fn slot_alignment(layout: Layout) -> usize {
    match layout {
        Layout::Staggered => 4096,
        // A device may see the pool as whole 2 MiB pages.
        Layout::Aligned => 128 << 10,
    }
}

/// A share in a pool; clones name the same pool. Packets may outlive all of them.
///
/// ```
/// use linerate_core::packet::{Pool, PoolCache, PoolConfig};
/// let pool = Pool::new(&PoolConfig::new("rx", 1024))?;
/// let mut cache = PoolCache::new(&[pool.clone()]);
/// let mut packet = cache.get(&pool).expect("a fresh pool has free slots");
/// assert!(packet.set_data(b"hello"));
/// cache.free_one(packet);
/// # Ok::<(), linerate_core::MemError>(())
/// ```
pub struct Pool {
    shared: NonNull<PoolShared>,
}

// SAFETY: what is shared is atomic or constant.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}
// SAFETY: the depot and the counters are atomic, the rest is constant after `new`.
unsafe impl Sync for PoolShared {}

impl Pool {
    /// Maps the memory and stocks the pool.
    ///
    /// # Errors
    /// [`MemError::PoolShape`] for 0 or 2^30 and more slots, and what [`Region::map`] says.
    pub fn new(config: &PoolConfig) -> Result<Self, MemError> {
        let shared = PoolShared::new(config)?;
        Ok(Self { shared })
    }

    #[inline(always)]
    pub(super) fn shared(&self) -> &PoolShared {
        // SAFETY: freed only after the last `Pool` is gone.
        unsafe { self.shared.as_ref() }
    }

    /// The pool of a slot, unless all its `Pool` values are gone: an orphan stays one.
    ///
    /// # Safety
    /// The caller owns the slot.
    pub(super) unsafe fn of_slot(slot: Handle) -> Option<Self> {
        // SAFETY: the caller owns the slot, so its line is mapped.
        let shared = NonNull::new(unsafe { (*line_of(slot)).pool }.cast_mut())?;
        // SAFETY: the slot is not home, so its pool is alive.
        let owners = unsafe { &shared.as_ref().owners };
        let more = |owners: usize| (owners > 0).then_some(owners + 1);
        owners
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, more)
            .ok()?;
        Some(Self { shared })
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.shared().slots
    }

    /// Bytes of a slot, headroom included.
    pub fn slot_bytes(&self) -> usize {
        self.shared().slot_bytes()
    }

    /// Largest frame that a fresh packet takes behind its headroom, in bytes.
    pub fn room_bytes(&self) -> usize {
        self.slot_bytes() - HEADROOM_BYTES
    }

    /// Bytes before the data of a fresh packet.
    pub fn headroom_bytes(&self) -> usize {
        HEADROOM_BYTES
    }

    /// Size class of the slots.
    pub fn class(&self) -> SlotClass {
        self.shared().class
    }

    /// The memory, in one line for people.
    pub fn describe(&self) -> String {
        format!(
            "{}, {} slots of {} bytes",
            self.shared().data_region(),
            self.slots(),
            self.slot_bytes()
        )
    }

    /// What backs the pool.
    pub fn page_kind(&self) -> crate::mem::PageKind {
        self.shared().data_region().kind()
    }

    /// The NUMA node that its memory is bound to.
    pub fn numa_node(&self) -> Option<u32> {
        self.shared().numa_node
    }

    /// Bytes the pool takes in all: slots, metadata, rounding to pages, magazines.
    pub fn total_bytes(&self) -> usize {
        let magazines = self.slots() as usize / MAGAZINE * (MAGAZINE + 1) * size_of::<u32>();
        let exposed = self.shared().exposed.as_ref().map_or(0, Region::len);
        self.shared().region.len() + exposed + magazines + size_of::<PoolShared>()
    }

    /// The part of memory that slots lie in, for a device to register: start and bytes.
    pub fn data_span(&self) -> (*mut u8, usize) {
        (
            self.shared().data_ptr(),
            self.slots() as usize * self.slot_bytes(),
        )
    }

    /// The file of an exposed pool, which holds [`Pool::data_span`] from its start on.
    pub fn exposed(&self) -> Option<BorrowedFd<'_>> {
        self.shared().exposed.as_ref()?.memfd()
    }

    /// Whether a peer took pages out of an exposed pool's file: what it maps is the pool no more.
    pub fn is_lost(&self) -> bool {
        let exposed = self.shared().exposed.as_ref();
        exposed.is_some_and(Region::is_lost)
    }

    /// Whether a packet's slot is one of this pool's.
    #[inline]
    pub fn owns(&self, packet: &super::Packet) -> bool {
        packet.handle().get().wrapping_sub(self.shared().first) < self.slots()
    }

    /// Where in [`Pool::data_span`] a packet's slot starts, in bytes; `None` for another pool's.
    #[inline]
    pub fn slot_offset(&self, packet: &super::Packet) -> Option<usize> {
        let index = packet.handle().get().wrapping_sub(self.shared().first);
        (index < self.slots()).then(|| index as usize * self.slot_bytes())
    }

    /// Gives a packet to a device, which will name it by its slot's offset in [`Pool::data_span`].
    ///
    /// # Errors
    /// The packet itself, if it is another pool's.
    #[inline]
    pub fn lend(&self, packet: super::Packet) -> Result<usize, super::Packet> {
        match self.slot_offset(&packet) {
            Some(offset) => {
                let _ = packet.into_handle();
                Ok(offset)
            }
            None => Err(packet),
        }
    }

    /// Takes a packet back from a device by any offset inside its slot.
    ///
    /// # Safety
    /// The slot was given away by [`Pool::lend`] and has not been taken back since.
    #[inline]
    pub unsafe fn take_back(&self, offset: usize) -> Option<super::Packet> {
        let index = offset / self.slot_bytes();
        if index >= self.slots() as usize {
            return None;
        }
        // SAFETY: the caller says that nobody has the slot.
        Some(unsafe { super::Packet::from_handle(self.shared().handle(index as u32)) })
    }

    /// Packets dropped one by one so far.
    pub(crate) fn plain_drops(&self) -> u64 {
        self.shared().plain_drops.load(Ordering::Acquire)
    }

    /// For the ledger: what came to the shared part outside the caches that are alive.
    pub(crate) fn returned_to_shared(&self) -> i64 {
        self.plain_drops() as i64 - self.shared().retired.load(Ordering::Relaxed) as i64
    }

    /// Counters of the pool.
    pub fn stats(&self) -> PoolStats {
        let shared = self.shared();
        PoolStats {
            slots: shared.slots,
            free_shared: shared.home(shared.returns.pushes()).min(shared.slots),
            plain_drops: self.plain_drops(),
            refused: shared.refused.load(Ordering::Relaxed),
        }
    }
}

/// Counters of a pool at about one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// All slots.
    pub slots: u32,
    /// Free slots in the depot and on the return list; those in lcores' caches come on top.
    pub free_shared: u32,
    /// Packets dropped one by one instead of through a cache.
    pub plain_drops: u64,
    /// Requests that got fewer slots than they asked for.
    pub refused: u64,
}

impl Clone for Pool {
    fn clone(&self) -> Self {
        self.shared().owners.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared,
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.shared().owners.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let shared = self.shared();
        // No `Pool` and so no cache is left: only pushes can come, and `orphan` sees them all.
        let all_home = shared
            .returns
            .orphan(|pushes| shared.slots - shared.home(pushes));
        if all_home {
            // SAFETY: every slot is home, so no packet will look for its pool.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}

impl PartialEq for Pool {
    fn eq(&self, other: &Self) -> bool {
        self.shared == other.shared
    }
}

impl Eq for Pool {}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({})", self.describe())
    }
}

/// The pools that packets of one appliance come from, by size class.
#[derive(Clone, Debug)]
pub struct Pools(Vec<Pool>);

impl Pools {
    /// The first pool is the one that ports receive into.
    ///
    /// # Panics
    /// With no pool at all.
    pub fn new(pools: Vec<Pool>) -> Self {
        assert!(!pools.is_empty(), "an appliance has at least one pool");
        Self(pools)
    }

    /// Where ports receive into.
    pub fn primary(&self) -> &Pool {
        &self.0[0]
    }

    /// The smallest slots that take a frame of `bytes`.
    pub fn for_frame(&self, bytes: usize) -> Option<&Pool> {
        self.0
            .iter()
            .filter(|pool| pool.room_bytes() >= bytes)
            .min_by_key(|pool| pool.room_bytes())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.0.iter()
    }

    /// As a slice, for [`PoolCache::new`](super::PoolCache::new).
    pub fn as_slice(&self) -> &[Pool] {
        &self.0
    }
}
