//! The receive rings, which the kernel fills: TPACKET_V3, handed over block by block, and
//! TPACKET_V2, frame by frame.
//!
//! Layouts as in linux/if_packet.h and Documentation/networking/packet_mmap.rst: a ring of units
//! (V3: blocks, each with a chain of frames; V2: one frame each) whose status word says who owns
//! them. The kernel is trusted to write what it documents, but every offset is still checked
//! against the unit: a check costs less than a proof.
#![allow(unsafe_code)]

#[cfg(any(test, feature = "fuzz"))]
pub(super) mod fuzz;

use super::sys;
use crate::vnet;
use linerate_core::arch::prefetch_read;
use std::fmt;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// When the kernel hands frames over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandOver {
    /// By the block, when it is full or after 1 ms.
    Block,
    /// Each at once.
    Frame,
}

/// Shape of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of a block, a power of two and whole pages.
    pub(super) block_bytes: usize,
    /// Number of blocks.
    pub(super) blocks: usize,
    pub(super) hand_over: HandOver,
}

/// One line for people.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kib, blocks) = (self.block_bytes >> 10, self.blocks);
        match self.hand_over {
            HandOver::Block => {
                write!(
                    f,
                    "TPACKET_V3, {blocks} blocks of {kib} KiB, handed over full or after 1 ms"
                )
            }
            HandOver::Frame => write!(
                f,
                "TPACKET_V2, {} KiB, frames handed over at once",
                blocks * kib
            ),
        }
    }
}

/// One received frame, in the ring until the next one is asked for.
pub(super) struct Frame<'a> {
    /// The bytes, without a tag that the kernel stripped; cut where a unit was too short.
    pub(super) data: &'a [u8],
    /// Bytes that the frame has.
    pub(super) len: usize,
    /// Whether a frame that was cut waits whole in the socket's queue.
    pub(super) queued: bool,
    /// What is left to do on it.
    pub(super) vnet: vnet::Header,
    /// A stripped VLAN tag.
    pub(super) tag: Option<Tag>,
}

/// A VLAN tag.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    /// Tag protocol identifier.
    pub(super) tpid: u16,
    /// Tag control information.
    pub(super) tci: u16,
}

impl Tag {
    /// The tag that the kernel stripped, by a frame's header.
    #[inline]
    fn stripped(status: u32, tpid: u16, tci: u16) -> Option<Self> {
        let named = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let tpid = if named {
            tpid
        } else {
            libc::ETH_P_8021Q as u16
        };
        (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(Self { tpid, tci })
    }
}

/// A receive ring; it keeps its socket open.
pub(super) struct RxRing {
    ring: Mapping,
    hand_over: HandOver,
    /// Whether the unit is ours, with frames read or to be read.
    open: bool,
    /// V3: offset of the next frame in the block, and frames left there.
    next: usize,
    left: u32,
    /// Whether frames were lost since the last call.
    losing: bool,
}

impl RxRing {
    /// Gives the socket a ring for frames of an interface with this MTU, and maps it.
    pub(super) fn new(socket: OwnedFd, shape: Shape, mtu: usize) -> io::Result<Self> {
        let bytes = shape.block_bytes * shape.blocks;
        // V3 has frames of any length; the kernel only wants the numbers to agree. V2 needs room
        // for its own header too, at most 128 bytes; longer frames take the slow way.
        let frame_bytes = match shape.hand_over {
            HandOver::Block => 2048,
            HandOver::Frame => (mtu + 128)
                .next_power_of_two()
                .clamp(2048, shape.block_bytes),
        };
        let request = libc::tpacket_req3 {
            tp_block_size: shape.block_bytes as u32,
            tp_block_nr: shape.blocks as u32,
            tp_frame_size: frame_bytes as u32,
            tp_frame_nr: (bytes / frame_bytes) as u32,
            tp_retire_blk_tov: 1, // ms, the least there is
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let unit_bytes = match shape.hand_over {
            HandOver::Block => {
                sys::set_rx_ring(&socket, libc::tpacket_versions::TPACKET_V3, &request)?;
                shape.block_bytes
            }
            HandOver::Frame => {
                sys::set_number(&socket, libc::PACKET_COPY_THRESH, 1)?;
                sys::set_rx_ring(&socket, libc::tpacket_versions::TPACKET_V2, &request)?;
                frame_bytes
            }
        };
        Ok(Self {
            ring: Mapping::new(socket, unit_bytes, bytes / unit_bytes)?,
            hand_over: shape.hand_over,
            open: false,
            next: 0,
            left: 0,
            losing: false,
        })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.ring.socket
    }

    /// Whether frames were lost since the last call.
    pub(super) fn take_losing(&mut self) -> bool {
        std::mem::take(&mut self.losing)
    }

    /// The next frame, if the kernel has handed one over. Never waits.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Frame<'_>> {
        match self.hand_over {
            HandOver::Block => self.next_of_block(),
            HandOver::Frame => self.next_unit(),
        }
    }

    #[inline]
    fn next_of_block(&mut self) -> Option<Frame<'_>> {
        if self.left == 0 {
            let header = offset_of!(libc::tpacket_block_desc, hdr);
            self.release(header + offset_of!(libc::tpacket_hdr_v1, block_status));
            self.acquire(header + offset_of!(libc::tpacket_hdr_v1, block_status))?;
            let block: libc::tpacket_hdr_v1 = self.ring.read(header)?;
            self.next = block.offset_to_first_pkt as usize;
            self.left = block.num_pkts;
            self.left.checked_sub(1)?;
        }
        let at = self.next;
        // A frame outside of the block ends the block: it was not written by the kernel.
        let left = std::mem::take(&mut self.left) - 1;
        let header: libc::tpacket3_hdr = self.ring.read(at)?;
        let step = header.tp_next_offset as usize;
        if left > 0 && step >= size_of::<libc::tpacket3_hdr>() {
            (self.next, self.left) = (at + step, left);
        }
        prefetch_read(self.ring.unit().wrapping_add(self.next));

        let start = at + usize::from(header.tp_mac);
        let (tpid, tci) = (header.hv1.tp_vlan_tpid, header.hv1.tp_vlan_tci as u16);
        Some(Frame {
            data: self.ring.bytes(start, header.tp_snaplen as usize)?,
            len: header.tp_len as usize,
            queued: false,
            vnet: self.ring.read(start.checked_sub(vnet::LEN)?)?,
            tag: Tag::stripped(header.tp_status, tpid, tci),
        })
    }

    #[inline]
    fn next_unit(&mut self) -> Option<Frame<'_>> {
        let status = offset_of!(libc::tpacket2_hdr, tp_status);
        self.release(status);
        self.acquire(status)?;
        let header: libc::tpacket2_hdr = self.ring.read(0)?;
        let start = usize::from(header.tp_mac);
        let status = header.tp_status;
        Some(Frame {
            data: self.ring.bytes(start, header.tp_snaplen as usize)?,
            len: header.tp_len as usize,
            queued: status & libc::TP_STATUS_COPY != 0,
            vnet: self.ring.read(start.checked_sub(vnet::LEN)?)?,
            tag: Tag::stripped(status, header.tp_vlan_tpid, header.tp_vlan_tci),
        })
    }

    /// Opens the unit if it is ours. `at` is the position of its status.
    #[inline]
    fn acquire(&mut self, at: usize) -> Option<()> {
        // Acquire: what the kernel wrote into the unit before its status is seen after it.
        let status = self.ring.word(at)?.load(Ordering::Acquire);
        self.open = status & libc::TP_STATUS_USER != 0;
        self.losing |= self.open && status & libc::TP_STATUS_LOSING != 0;
        self.open.then_some(())
    }

    /// Gives a unit that was read back to the kernel.
    #[inline]
    fn release(&mut self, at: usize) {
        if self.open
            && let Some(status) = self.ring.word(at)
        {
            // Release: everything was read before the kernel may write.
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.open = false;
            self.ring.advance();
        }
    }
}

/// A mapped ring of units, and the one that is read or comes next.
struct Mapping {
    at: NonNull<u8>,
    unit_bytes: usize,
    units: usize,
    index: usize,
    socket: OwnedFd,
}

// SAFETY: the mapping is reached through this value alone.
unsafe impl Send for Mapping {}

/// Types that are read from and written to memory that the kernel shares.
///
/// # Safety
/// Any bits are a value.
unsafe trait Plain: Copy {}
// SAFETY: integers.
unsafe impl Plain for libc::tpacket2_hdr {}
// SAFETY: integers.
unsafe impl Plain for libc::tpacket3_hdr {}
// SAFETY: integers.
unsafe impl Plain for libc::tpacket_hdr_v1 {}
// SAFETY: integers.
unsafe impl Plain for vnet::Header {}

impl Mapping {
    fn new(socket: OwnedFd, unit_bytes: usize, units: usize) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags};
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = unit_bytes * units;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, rw, flags, &socket, 0) }?;
        let none = || io::Error::other("mmap returned address 0");
        let at = NonNull::new(at.cast()).ok_or_else(none)?;
        Ok(Self {
            at,
            unit_bytes,
            units,
            index: 0,
            socket,
        })
    }

    /// Start of the unit.
    #[inline]
    fn unit(&self) -> *mut u8 {
        self.at.as_ptr().wrapping_add(self.index * self.unit_bytes)
    }

    #[inline]
    fn advance(&mut self) {
        self.index = if self.index + 1 == self.units {
            0
        } else {
            self.index + 1
        };
    }

    /// Where `len` bytes at `offset` in the unit are; `None` beyond its end.
    #[inline]
    fn locate(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let fits = offset.checked_add(len)? <= self.unit_bytes;
        fits.then(|| self.unit().wrapping_add(offset))
    }

    /// A status word.
    #[inline]
    fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let word = self.locate(offset, size_of::<u32>())?.cast::<u32>();
        debug_assert!(word.is_aligned());
        // SAFETY: in bounds of the mapping and aligned; both sides access it atomically.
        Some(unsafe { AtomicU32::from_ptr(word) })
    }

    /// Copies plain integers out of the unit.
    #[inline]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        let at = self.locate(offset, size_of::<T>())?.cast::<T>();
        // SAFETY: in bounds, and any bits are a `Plain` value.
        Some(unsafe { at.read_unaligned() })
    }

    /// Bytes of the unit, which is ours while the borrow lasts: giving it back takes `&mut self`.
    #[inline]
    fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let at = self.locate(offset, len)?;
        // SAFETY: in bounds of a unit that the kernel does not write while it is ours.
        Some(unsafe { std::slice::from_raw_parts(at, len) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let bytes = self.unit_bytes * self.units;
        // SAFETY: mapped by `new` with this length, and reached through this value alone.
        let unmapped = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), bytes) };
        debug_assert!(
            unmapped.is_ok(),
            "cannot unmap a receive ring: {unmapped:?}"
        );
    }
}
