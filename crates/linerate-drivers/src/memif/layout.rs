//! A client's memory: rings first, then a buffer for each of their descriptors.

use super::message::RingPlace;
use super::ring::{DESCRIPTOR_LEN, Descriptor, HEADER_LEN, Regions, Ring};
use linerate_core::MemError;
use linerate_core::mem::{FileFrom, Untrusted};
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

const LINE: usize = 64;

/// The buffers of one ring, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Buffers {
    /// Of the first, in region 0.
    at: u32,
    /// From one to the next.
    stride: u32,
    /// Of each.
    pub(super) bytes: u32,
    /// A power of two.
    pub(super) count: u16,
}

impl Buffers {
    /// Where `count` buffers from an index on lie, at most as many as there are: up to the last
    /// one, and from the first one on. Offsets in region 0, and bytes.
    #[inline(always)]
    pub(super) fn spans(self, index: u16, count: usize) -> [(u32, u32); 2] {
        let first = u32::from(index & self.count.wrapping_sub(1));
        let before = (count as u32).min(u32::from(self.count) - first);
        let after = count as u32 - before;
        [
            (self.at + first * self.stride, before * self.stride),
            (self.at, after * self.stride),
        ]
    }

    /// From one buffer to the next, in bytes.
    pub(super) fn stride(self) -> usize {
        self.stride as usize
    }

    /// The descriptor of the buffer at an index that runs on for ever, all of it free.
    #[inline(always)]
    pub(super) fn empty(self, index: u16) -> Descriptor {
        let number = u32::from(index & self.count.wrapping_sub(1));
        let offset = self.at.wrapping_add(number.wrapping_mul(self.stride));
        Descriptor::new(0, offset, self.bytes, false)
    }
}

/// What is agreed on before a client makes its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Rings from client to server.
    pub(super) to_server: u16,
    /// Rings from server to client.
    pub(super) to_client: u16,
    pub(super) log2_size: u8,
    pub(super) buffer_bytes: u32,
    /// Behind the rings there are buffers; otherwise slots of pools are.
    pub(super) has_buffers: bool,
}

impl Shape {
    fn ring_bytes(self) -> usize {
        (HEADER_LEN + (DESCRIPTOR_LEN << self.log2_size)).next_multiple_of(2 * LINE)
    }

    /// An odd number of cache lines: buffers a power of two apart would all lie in a few sets of
    /// the cache.
    fn stride(self) -> usize {
        (self.buffer_bytes as usize).next_multiple_of(LINE) | LINE
    }

    fn rings(self) -> usize {
        usize::from(self.to_server) + usize::from(self.to_client)
    }

    /// Bytes of it all.
    pub(super) fn bytes(self) -> usize {
        let buffers = self.stride() << self.log2_size;
        let buffers = if self.has_buffers { buffers } else { 0 };
        self.rings() * (self.ring_bytes() + buffers)
    }

    /// Where ring `number` is, those to the server first.
    fn place(self, number: usize) -> RingPlace {
        let to_server = number < usize::from(self.to_server);
        let before = if to_server { 0 } else { self.to_server.into() };
        RingPlace {
            to_server,
            index: (number - before) as u16,
            region: 0,
            offset: (number * self.ring_bytes()) as u32,
            log2_size: self.log2_size,
            private_header: 0,
        }
    }

    /// All rings, in the order in which they are told to the server.
    pub(super) fn places(self) -> Vec<RingPlace> {
        (0..self.rings()).map(|number| self.place(number)).collect()
    }

    /// The buffers of ring `number`.
    pub(super) fn buffers(self, number: usize) -> Buffers {
        let rings = self.rings() * self.ring_bytes();
        let each = self.stride() << self.log2_size;
        Buffers {
            at: (rings + number * each) as u32,
            stride: self.stride() as u32,
            bytes: self.buffer_bytes,
            count: 1 << self.log2_size,
        }
    }

    /// Makes the memory, with empty rings in it, and the file to be sent to the server.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn make(self, name: &str) -> io::Result<(OwnedFd, Regions)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("memif region 0", flags)?;
        rustix::fs::ftruncate(&file, self.bytes() as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let memory = Untrusted::map(name, file.as_fd(), 0, self.bytes(), FileFrom::Peer);
        let memory = memory.map_err(|error: MemError| io::Error::other(error.to_string()))?;
        let regions = Regions(vec![memory]);
        for place in self.places() {
            Ring::set_up(&regions, place.offset as usize);
        }
        Ok((file, regions))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// No byte belongs to two rings or buffers, and all are inside.
    #[test]
    fn rings_and_buffers_lie_apart() {
        let shape = Shape {
            to_server: 2,
            to_client: 3,
            log2_size: 4,
            buffer_bytes: 2048,
            has_buffers: true,
        };
        let (_file, regions) = shape.make("test").unwrap();
        let regions = Arc::new(regions);
        let mut spans = Vec::new();
        for (number, place) in shape.places().into_iter().enumerate() {
            let ring = Ring::new(&regions, 0, place.offset, place.log2_size).unwrap();
            assert_eq!((ring.size(), place.to_server), (16, number < 2));
            let start = place.offset as usize;
            spans.push((start, start + HEADER_LEN + 16 * DESCRIPTOR_LEN));
            for index in 0..16 {
                let buffer = shape.buffers(number).empty(index);
                let (offset, len) = (buffer.offset() as usize, buffer.len() as usize);
                assert_eq!(offset % 64, 0);
                assert!(regions.window(0, buffer.offset(), buffer.len()).is_some());
                spans.push((offset, offset + len));
            }
            let buffers = shape.buffers(number);
            assert_eq!(buffers.empty(16), buffers.empty(0));
            for (index, count) in [(0, 16), (3, 0), (15, 1), (15, 16), (18, 15)] {
                let spans = buffers.spans(index, count).into_iter();
                let starts =
                    spans.flat_map(|(at, bytes)| (at..at + bytes).step_by(buffers.stride()));
                let numbers = index..index + count as u16;
                let wanted = numbers.map(|number| buffers.empty(number).offset());
                assert!(starts.eq(wanted), "{count} from {index} on");
            }
        }
        spans.sort_unstable();
        assert!(spans.windows(2).all(|two| two[0].1 <= two[1].0));
        assert!(spans.last().unwrap().1 <= shape.bytes());
        assert!(regions.0[0].is_sealed());
    }
}
