//! The receive ring: TPACKET_V3 blocks that the kernel fills and hands over whole.
//!
//! Layout as in linux/if_packet.h and Documentation/networking/packet_mmap.rst: a ring of blocks;
//! each begins with a descriptor whose status word says who owns it, and holds a chain of frames.
//! The kernel is trusted to write what it documents, but every offset is still checked against
//! the block: a check costs less than a proof.

use super::sys;
use crate::vnet;
use linerate_core::arch::prefetch_read;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Shape of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of a block, a power of two and whole pages.
    pub(super) block_bytes: usize,
    /// Number of blocks.
    pub(super) blocks: usize,
}

/// The ring, mapped; it keeps its socket open.
pub(super) struct RxRing {
    at: NonNull<u8>,
    shape: Shape,
    /// Index of the block that is read, or that the kernel will hand over next.
    block: usize,
    /// Whether the block is ours, with frames read or to be read.
    open: bool,
    /// Offset of the next frame in the block, and frames left there.
    next: usize,
    left: u32,
    /// Whether a block said that frames were lost since this was last asked.
    losing: bool,
    socket: OwnedFd,
}

// SAFETY: the mapping is reached through this value alone.
unsafe impl Send for RxRing {}

/// One received frame, in the ring until the next one is asked for.
pub(super) struct Frame<'a> {
    /// The bytes, without a tag that the kernel stripped; cut where a block was too short.
    pub(super) data: &'a [u8],
    /// Bytes that the frame has.
    pub(super) len: usize,
    /// What is left to do on it.
    pub(super) vnet: vnet::Header,
    /// A stripped VLAN tag: tag protocol identifier and tag control information.
    pub(super) tag: Option<(u16, u16)>,
}

impl RxRing {
    /// Gives the socket a ring and maps it.
    pub(super) fn new(socket: OwnedFd, shape: Shape) -> io::Result<Self> {
        // Frames of V3 have no fixed size; the kernel only wants the numbers to agree.
        let frame_bytes = 2048;
        sys::set_rx_ring(
            &socket,
            &libc::tpacket_req3 {
                tp_block_size: shape.block_bytes as u32,
                tp_block_nr: shape.blocks as u32,
                tp_frame_size: frame_bytes as u32,
                tp_frame_nr: (shape.blocks * (shape.block_bytes / frame_bytes)) as u32,
                tp_retire_blk_tov: 1, // ms, the least there is
                tp_sizeof_priv: 0,
                tp_feature_req_word: 0,
            },
        )?;
        use rustix::mm::{MapFlags, ProtFlags};
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = shape.block_bytes * shape.blocks;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, rw, flags, &socket, 0) }?;
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { at, shape, block: 0, open: false, next: 0, left: 0, losing: false, socket })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether frames were lost since the last call.
    pub(super) fn take_losing(&mut self) -> bool {
        std::mem::take(&mut self.losing)
    }

    /// The next frame, if the kernel has handed one over. Never waits.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Frame<'_>> {
        if self.left == 0 {
            self.release();
            if !self.acquire() {
                return None;
            }
        }
        let header: libc::tpacket3_hdr = self.read(self.next)?;
        self.left -= 1;
        let frame = self.next;
        self.next += header.tp_next_offset as usize;
        prefetch_read(self.base().wrapping_add(self.next));

        let start = frame + usize::from(header.tp_mac);
        let bytes = header.tp_snaplen as usize;
        let vnet = self.read(start.checked_sub(vnet::LEN)?)?;
        let tpid = match header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
            0 => libc::ETH_P_8021Q as u16,
            _ => header.hv1.tp_vlan_tpid,
        };
        let tagged = header.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
        Some(Frame {
            data: self.bytes(start, bytes)?,
            len: header.tp_len as usize,
            vnet,
            tag: tagged.then_some((tpid, header.hv1.tp_vlan_tci as u16)),
        })
    }

    /// Opens the next block if it is ours and has frames.
    fn acquire(&mut self) -> bool {
        // Acquire: what the kernel wrote into the block before its status is seen after it.
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return false;
        }
        self.open = true;
        self.losing |= status & libc::TP_STATUS_LOSING != 0;
        let header = offset_of!(libc::tpacket_block_desc, hdr);
        let Some(block) = self.read::<libc::tpacket_hdr_v1>(header) else { return false };
        self.left = block.num_pkts;
        self.next = block.offset_to_first_pkt as usize;
        self.left > 0
    }

    /// Gives a block that was read back to the kernel.
    fn release(&mut self) {
        if self.open {
            // Release: everything was read before the kernel may write.
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.open = false;
            self.block = if self.block + 1 == self.shape.blocks { 0 } else { self.block + 1 };
        }
    }

    /// Start of the block.
    fn base(&self) -> *mut u8 {
        self.at.as_ptr().wrapping_add(self.block * self.shape.block_bytes)
    }

    /// The word that says who owns the block.
    fn status(&self) -> &AtomicU32 {
        let offset =
            offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
        let word = self.base().wrapping_add(offset).cast();
        // SAFETY: in bounds of the mapping and aligned; both sides access it atomically.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// Copies plain integers out of the block; `None` beyond its end.
    #[inline]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        if offset.checked_add(size_of::<T>())? > self.shape.block_bytes {
            return None;
        }
        let at = self.base().wrapping_add(offset).cast::<T>();
        // SAFETY: in bounds, the block is ours, and any bits are a `Plain` value.
        Some(unsafe { at.read_unaligned() })
    }

    /// Bytes of the block, which is ours while the borrow lasts: only `&mut self` gives it back.
    #[inline]
    fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        if offset.checked_add(len)? > self.shape.block_bytes {
            return None;
        }
        let at = self.base().wrapping_add(offset);
        // SAFETY: in bounds of a block that the kernel does not write while it is ours.
        Some(unsafe { std::slice::from_raw_parts(at, len) })
    }
}

/// Types of which any bits are a value.
trait Plain: Copy {}
impl Plain for libc::tpacket3_hdr {}
impl Plain for libc::tpacket_hdr_v1 {}
impl Plain for vnet::Header {}

impl Drop for RxRing {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and reached through this value alone.
        let unmapped = unsafe {
            rustix::mm::munmap(self.at.as_ptr().cast(), self.shape.block_bytes * self.shape.blocks)
        };
        debug_assert!(unmapped.is_ok(), "cannot unmap a receive ring: {unmapped:?}");
    }
}
