//! One cache line about each slot, in an array of its own that no peer ever maps (ADR 1).

use super::pool::PoolShared;
use crate::mem::space;
use std::mem::offset_of;
use std::num::NonZeroU32;

/// Names a slot: the offset of its line in the reserved range, in cache lines.
pub(crate) type Handle = NonZeroU32;

/// The cache line of a slot: what unsafe code trusts, which no reference leaves this module's
/// neighbours with, and [`Meta`], which the application may change as it likes.
///
/// The first 16 bytes belong to the slot for ever; the next 16 are written at once on receive.
#[repr(C, align(64))]
pub(crate) struct Line {
    /// Start of the slot.
    pub(super) slot: *mut u8,
    pub(super) pool: *const PoolShared,
    pub(super) len: u32,
    /// Start of the data, in bytes from the start of the slot.
    pub(super) start: u16,
    /// Index of the receiving port.
    pub(super) port: u16,
    pub(super) meta: Meta,
}

/// What is known of a packet besides its bytes, for the application to read and change. Nothing
/// here says where the packet lies or how long it is: exchanging that of two packets exchanges
/// these fields alone.
///
/// ```
/// # fn two(one: &mut linerate_core::packet::Packet, other: &mut linerate_core::packet::Packet) {
/// std::mem::swap(&mut one.meta_mut().offload, &mut other.meta_mut().offload);
/// std::mem::swap(one.meta_mut(), other.meta_mut());
/// # }
/// ```
/// What unsafe code trusts is not to be had:
/// ```compile_fail,E0609
/// fn longer(packet: &mut linerate_core::packet::Packet) {
///     packet.meta_mut().len = u32::MAX;
/// }
/// ```
/// ```compile_fail,E0609
/// use linerate_core::packet::Packet;
/// fn elsewhere(one: &mut Packet, other: &mut Packet) {
///     std::mem::swap(&mut one.meta_mut().slot, &mut other.meta_mut().slot);
/// }
/// ```
/// ```compile_fail,E0624
/// use linerate_core::packet::Packet;
/// fn whole_line(one: &mut Packet, other: &mut Packet) {
///     std::mem::swap(one.line_mut(), other.line_mut());
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Meta {
    /// What the receiver knows and what the transmitter still has to do.
    pub offload: Offload,
    /// VLAN tag control information, valid with [`Offload::VLAN`].
    pub vlan_tci: u16,
    /// Payload bytes per segment, valid with one of the `GSO` flags.
    pub gso_size: u16,
    /// Where the unfinished checksum begins to sum, in bytes from the start of the data.
    pub csum_start: u16,
    /// Where the checksum goes, in bytes from `csum_start`; both valid with
    /// [`Offload::CSUM_PARTIAL`].
    pub csum_offset: u8,
    /// Start of the layer-3 header, in bytes from the start of the data; 0 where nobody looked.
    pub l3_offset: u8,
    /// Start of the layer-4 header, in bytes from the start of the data; 0 where nobody looked.
    pub l4_offset: u16,
    /// Receive-side scaling hash, valid with [`Offload::RSS`]. In a free slot: the next one.
    pub rss_hash: u32,
    /// When the packet was received: ticks of the worker's clock, or ns of the capture it is from.
    pub timestamp: u64,
    pub(super) user: [u64; 2],
}

const _: () = assert!(size_of::<Line>() == 64);
const _: () = assert!(offset_of!(Line, len) == 16 && offset_of!(Line, meta) == 24);
const _: () = assert!(offset_of!(Meta, csum_offset) == 8 && size_of::<Meta>() == 40);

/// Address of a slot's line.
#[inline(always)]
pub(crate) fn line_of(handle: Handle) -> *mut Line {
    line_at(space::base(), handle.get())
}

/// The same, for loops that read the base once.
#[inline(always)]
pub(super) fn line_at(base: *mut u8, handle: u32) -> *mut Line {
    base.wrapping_add(handle as usize * size_of::<Line>())
        .cast()
}

/// A set of facts and duties of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Offload(u16);

impl Offload {
    /// Nothing known, nothing to do.
    pub const NONE: Self = Self(0);
    /// The layer-4 checksum is a pseudo-header sum that has to be finished before the wire.
    pub const CSUM_PARTIAL: Self = Self(1);
    /// The layer-4 checksum was checked and is right.
    pub const CSUM_VALID: Self = Self(1 << 1);
    /// A VLAN tag was taken off and stands in `vlan_tci`.
    pub const VLAN: Self = Self(1 << 2);
    /// The tag that was taken off is a service tag (802.1ad, 0x88a8).
    pub const VLAN_8021AD: Self = Self(1 << 3);
    /// `rss_hash` is valid.
    pub const RSS: Self = Self(1 << 4);
    /// A TCP frame over IPv4 longer than the wire takes, to be cut at `gso_size`.
    pub const GSO_TCP4: Self = Self(1 << 5);
    /// The same over IPv6.
    pub const GSO_TCP6: Self = Self(1 << 6);
    /// UDP datagrams glued together, to be cut at `gso_size`.
    pub const GSO_UDP: Self = Self(1 << 7);
    /// Any of the `GSO` flags.
    pub const GSO: Self = Self(Self::GSO_TCP4.0 | Self::GSO_TCP6.0 | Self::GSO_UDP.0);

    /// The flags as bits, for vector code that tests those of many packets at once.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether any flag of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all flags of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets the flags of `other`.
    #[inline]
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Clears the flags of `other`.
    #[inline]
    pub fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

impl std::ops::BitOr for Offload {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Sixteen bytes of an application's own in each packet's metadata, as any type that fits.
///
/// ```
/// use linerate_core::packet::UserData;
/// #[derive(Clone, Copy)]
/// struct Route { next_hop: u32, flow: u64 }
/// impl UserData for Route {
///     fn from_words([a, b]: [u64; 2]) -> Self { Self { next_hop: a as u32, flow: b } }
///     fn into_words(self) -> [u64; 2] { [u64::from(self.next_hop), self.flow] }
/// }
/// ```
pub trait UserData: Copy {
    /// Reads the value; any bits must give some value, since a fresh packet carries old ones.
    fn from_words(words: [u64; 2]) -> Self;
    /// Writes the value.
    fn into_words(self) -> [u64; 2];
}

impl UserData for u64 {
    #[inline]
    fn from_words(words: [u64; 2]) -> Self {
        words[0]
    }

    #[inline]
    fn into_words(self) -> [u64; 2] {
        [self, 0]
    }
}

impl UserData for [u64; 2] {
    #[inline]
    fn from_words(words: [u64; 2]) -> Self {
        words
    }

    #[inline]
    fn into_words(self) -> [u64; 2] {
        self
    }
}
