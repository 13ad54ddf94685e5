//! The ownership of one slot, and what its owner may do with it.
#![allow(unsafe_code)]
// Sizes come from callers, and release builds wrap.
#![warn(clippy::arithmetic_side_effects)]

use super::meta::{Handle, Line, Meta, UserData, line_of};
use super::pool::PoolShared;
use std::fmt;

/// One packet: whoever has it owns its slot, alone. Four bytes; dropping it gives the slot back.
///
/// Use after send does not compile:
/// ```compile_fail,E0382
/// fn send(burst: &mut linerate_core::packet::Burst, packet: linerate_core::packet::Packet) {
///     burst.push(packet);
///     packet.len(); // the burst owns it now
/// }
/// ```
/// nor does a second owner:
/// ```compile_fail,E0599
/// fn twice(packet: linerate_core::packet::Packet) -> [linerate_core::packet::Packet; 2] {
///     [packet.clone(), packet]
/// }
/// ```
/// nor keeping the bytes after the packet went:
/// ```compile_fail,E0505
/// fn keep(packet: linerate_core::packet::Packet) -> u8 {
///     let bytes = packet.data();
///     drop(packet);
///     bytes[0]
/// }
/// ```
#[repr(transparent)]
pub struct Packet(Handle);

const _: () = assert!(size_of::<Option<Packet>>() == 4);

impl Packet {
    /// Takes ownership of a slot.
    ///
    /// # Safety
    /// The slot belongs to nobody else, and its metadata line is set up.
    #[inline(always)]
    pub(crate) unsafe fn from_handle(handle: Handle) -> Self {
        Self(handle)
    }

    /// Gives ownership up without returning the slot: the caller must see to it.
    #[inline(always)]
    pub(crate) fn into_handle(self) -> Handle {
        let handle = self.0;
        std::mem::forget(self);
        handle
    }

    #[inline(always)]
    pub(crate) fn handle(&self) -> Handle {
        self.0
    }

    #[inline(always)]
    pub(super) fn line(&self) -> &Line {
        // SAFETY: the packet owns the slot, so the line is mapped and nobody else writes it.
        unsafe { &*line_of(self.0) }
    }

    /// Not for callers: two packets' lines exchanged would be two owners of each slot.
    #[inline(always)]
    fn line_mut(&mut self) -> &mut Line {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { &mut *line_of(self.0) }
    }

    /// What is known of the packet.
    #[inline(always)]
    pub fn meta(&self) -> &Meta {
        &self.line().meta
    }

    /// The same, to change it.
    #[inline(always)]
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.line_mut().meta
    }

    /// Index of the port that received the packet into this process, as the application numbers its
    /// ports. In-process rings leave it: where a burst came from last says
    /// [`Burst::port`](super::Burst::port).
    #[inline(always)]
    pub fn port(&self) -> u16 {
        self.line().port
    }

    /// Sets the index of the receiving port.
    #[inline(always)]
    pub fn set_port(&mut self, port: u16) {
        self.line_mut().port = port;
    }

    /// Length of the data in bytes, without frame check sequence.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.line().len as usize
    }

    /// The frame, from its Ethernet header on.
    #[inline(always)]
    pub fn data(&self) -> &[u8] {
        let line = self.line();
        // SAFETY: start <= slot size, an invariant of every method that moves it.
        let at = unsafe { line.slot.add(line.start as usize) };
        // SAFETY: start + len <= slot size likewise; slots are zeroed memory, owned by the packet.
        unsafe { std::slice::from_raw_parts(at, line.len as usize) }
    }

    /// The frame, to change it in place.
    #[inline(always)]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let line = self.line();
        // SAFETY: as in `data`.
        let at = unsafe { line.slot.add(line.start as usize) };
        // SAFETY: as in `data`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(at, line.len as usize) }
    }

    #[inline(always)]
    pub(super) fn pool(&self) -> &PoolShared {
        // SAFETY: a pool outlives its slots (see `PoolShared`).
        unsafe { &*self.line().pool }
    }

    /// Bytes free before the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.line().start as usize
    }

    /// Bytes free after the data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        // Never less than 0: an invariant of every method that moves the start or the end.
        self.slot_bytes()
            .saturating_sub(self.headroom())
            .saturating_sub(self.len())
    }

    /// Bytes of its slot: headroom, data and tailroom.
    #[inline]
    pub fn slot_bytes(&self) -> usize {
        self.pool().slot_bytes()
    }

    /// Grows the packet by `bytes` at the front and returns the new part, whatever it holds.
    #[inline]
    pub fn prepend(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let line = self.line_mut();
        let start = usize::from(line.start).checked_sub(bytes)?;
        let len = (line.len as usize).checked_add(bytes)?;
        (line.start, line.len) = (start as u16, len as u32);
        self.data_mut().get_mut(..bytes)
    }

    /// Grows the packet by `bytes` at the end and returns the new part, whatever it holds.
    #[inline]
    pub fn append(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if bytes > self.tailroom() {
            return None;
        }
        let old = self.len();
        self.line_mut().len = old.checked_add(bytes)? as u32;
        self.data_mut().get_mut(old..)
    }

    /// Cuts `bytes` off the front; false, and no change, where there are fewer.
    #[inline]
    pub fn trim_front(&mut self, bytes: usize) -> bool {
        // A start of 16 bits must not wrap, however long a slot is.
        let line = self.line_mut();
        let start = usize::from(line.start).checked_add(bytes);
        let start = start.and_then(|start| u16::try_from(start).ok());
        let len = (line.len as usize).checked_sub(bytes);
        let (Some(start), Some(len)) = (start, len) else {
            return false;
        };
        (line.start, line.len) = (start, len as u32);
        true
    }

    /// Cuts the packet to at most `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        let line = self.line_mut();
        line.len = line.len.min(len.min(u32::MAX as usize) as u32);
    }

    /// Sets the length, showing old bytes of the slot where it grows; false where they do not fit.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.slot_bytes().saturating_sub(self.headroom());
        if fits {
            self.line_mut().len = len as u32;
        }
        fits
    }

    /// Replaces the contents; false, and no change, where they do not fit behind the headroom.
    #[inline]
    pub fn set_data(&mut self, bytes: &[u8]) -> bool {
        let fits = self.set_len(bytes.len());
        if fits {
            self.data_mut().copy_from_slice(bytes);
        }
        fits
    }

    /// Places the data at `start` bytes into the slot with `len` bytes: what a device reports.
    /// False, and no change, where that leaves the slot.
    #[inline]
    pub fn set_span(&mut self, start: usize, len: usize) -> bool {
        let end = start.checked_add(len);
        let fits = start <= u16::MAX as usize && end.is_some_and(|end| end <= self.slot_bytes());
        if fits {
            let line = self.line_mut();
            line.start = start as u16;
            line.len = len as u32;
        }
        fits
    }

    /// Makes the whole slot the packet's data.
    #[inline]
    pub fn widen(&mut self) {
        let bytes = self.slot_bytes();
        let line = self.line_mut();
        (line.start, line.len) = (0, bytes as u32);
    }

    /// Copies what the receiver knew of another packet, but not its bytes.
    pub fn copy_meta(&mut self, other: &Self) {
        self.set_port(other.port());
        *self.meta_mut() = *other.meta();
    }

    /// The application's own 16 bytes.
    #[inline]
    pub fn user<T: UserData>(&self) -> T {
        T::from_words(self.meta().user)
    }

    /// Sets the application's own 16 bytes.
    #[inline]
    pub fn set_user<T: UserData>(&mut self, value: T) {
        self.meta_mut().user = value.into_words();
    }

    /// Names the slot among all slots of the process: a packet keeps it as long as it lives.
    #[inline]
    pub fn number(&self) -> u32 {
        self.0.get()
    }

    /// Index of the slot in its pool, and the pool's name: how a ledger names a packet.
    pub fn slot(&self) -> (u32, &str) {
        let pool = self.pool();
        (self.0.get().wrapping_sub(pool.first()), pool.name())
    }
}

impl Drop for Packet {
    /// The slow way home, for any thread: one push to the pool's return list.
    fn drop(&mut self) {
        let pool = std::ptr::from_ref(self.pool());
        // SAFETY: the packet owns the slot and ends here; the pool lives until its last slot is
        // home.
        unsafe { PoolShared::give_back(pool, self.0) };
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slot, pool) = self.slot();
        write!(
            f,
            "Packet({} bytes, slot {slot} of `{pool}`, from port {})",
            self.len(),
            self.port()
        )
    }
}

// SAFETY: a packet is laid out as its handle, a `NonZeroU32`.
unsafe impl crate::ring::mpmc::Word for Packet {}
