//! Packets in and out of a virtqueue, over either kind of ring, as its device or its driver.
//!
//! Bytes are copied: no slot of ours lies in memory that the other side sees. A burst goes in three
//! steps, each over all of it: chains are looked at and their buffers asked for (prefetched), then
//! bytes are copied, then the chains are given back at once. What is plain (a frame in one
//! segment, nothing left to do on it) goes fast; everything else frame by frame.

use super::memory::{AtHand, Memory};
use super::{Batch, HEADER_BYTES, Ring, Violation};
use crate::vnet;
use linerate_core::mem::Window;
use linerate_core::packet::{Burst, Offload, Packet, PoolCache, Pools, RxTemplate};
use linerate_core::port::{DropReason, QueueStats};
use linerate_wire::ethernet;
use std::sync::Arc;

/// Most chains that are looked at at once: a few more than the longest frame takes buffers of
/// [`LEAST_BUFFER_BYTES`].
pub(crate) const MOST_CHAINS: usize = 96;
/// Least bytes of a driver's buffers.
pub(crate) const LEAST_BUFFER_BYTES: u32 = 1024;
type Header = [u8; HEADER_BYTES];

/// What stands before a frame (5.1.6), and how frames may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of the header: 12, or 10 in the legacy form without mergeable buffers.
    pub(crate) header_bytes: usize,
    /// A frame that the device fills in may go over several buffers (VIRTIO_NET_F_MRG_RXBUF).
    pub(crate) mergeable: bool,
    /// We are the device.
    pub(crate) device: bool,
}

/// What the receiving half of a port has besides the ring.
pub(crate) struct Receiving {
    pub(crate) shape: Shape,
    /// Number of the port.
    pub(crate) index: u16,
    pub(crate) pools: Pools,
    pub(crate) stats: Arc<QueueStats>,
    batch: Batch,
    /// Chains that the next frame lies in, if the last burst saw too few.
    wanted: usize,
}

/// What came of looking at one frame.
enum Frame {
    Packet(Packet),
    Dropped(DropReason),
    /// No slot, or not all of its buffers are there.
    Later,
}

impl Receiving {
    pub(crate) fn new(shape: Shape, index: u16, pools: &Pools, stats: Arc<QueueStats>) -> Self {
        Self {
            shape,
            index,
            pools: pools.clone(),
            stats,
            batch: Batch::new(false),
            wanted: 0,
        }
    }

    /// Adds frames to the burst; how many. What finds no slot stays in the ring.
    #[inline]
    pub(crate) fn receive<R: Ring + ?Sized>(
        &mut self,
        ring: &mut R,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        self.batch.clear();
        let most = burst.room().max(std::mem::take(&mut self.wanted));
        ring.take(memory, &mut self.batch, most)?;
        let before = burst.len();
        let (mut done, mut bytes) = (0, 0);
        let mut frames = [None; Burst::CAPACITY];
        while done < self.batch.chains.len() && burst.room() > 0 {
            let plain = self.plain(memory, done, &mut frames[..burst.room()]);
            if plain > 0 {
                let (count, more) = self.copy_plain(&frames[..plain], burst, cache);
                done += count;
                bytes += more;
                if count < plain {
                    break;
                }
                continue;
            }
            let (frame, chains) = self.copy_frame(memory, done, ring.size(), cache)?;
            match frame {
                Frame::Packet(mut packet) => {
                    packet.meta_mut().timestamp = burst.now;
                    bytes += packet.len() as u64;
                    let pushed = burst.push(packet);
                    debug_assert!(pushed.is_ok(), "the burst had room");
                }
                Frame::Dropped(reason) => self.stats.dropped(reason, 1),
                Frame::Later => {
                    // What it lies in may be more than a burst: the next one looks at all of it.
                    self.wanted = if done == 0 { chains } else { 0 };
                    break;
                }
            }
            done += chains;
        }
        if done > 0 {
            ring.give(memory, &self.batch, done)?;
        }
        let count = burst.len() - before;
        self.stats.passed(count as u64, bytes);
        Ok(count)
    }

    /// How many chains from `from` on are each a frame in one segment, which fits a small slot and
    /// on which nothing is left to do; and where the frames are.
    #[inline(always)]
    fn plain<'m>(
        &self,
        memory: &'m Memory,
        from: usize,
        frames: &mut [Option<Window<'m>>],
    ) -> usize {
        let (chains, mut region) = (&self.batch.chains[from..], self.batch.last);
        let most = chains.len().min(frames.len());
        let mut count = 0;
        while count < most
            && let Some(here) = memory.at_hand(region)
        {
            count += self.plain_here(here, &chains[count..], &mut frames[count..]);
            // The next one may lie in another region.
            match chains[..most]
                .get(count)
                .and_then(|next| memory.other(region, next.at))
            {
                Some(other) => region = other,
                None => break,
            }
        }
        count
    }

    /// The same of the first chains, in the region at hand.
    #[inline(always)]
    fn plain_here<'m>(
        &self,
        here: AtHand<'m>,
        chains: &[super::Chain],
        frames: &mut [Option<Window<'m>>],
    ) -> usize {
        let header = self.shape.header_bytes;
        let least = header + ethernet::HEADER_LEN;
        let room = header + self.pools.primary().room_bytes();
        let one = u32::from(self.shape.mergeable && !self.shape.device);
        let frame_in = |chain: &super::Chain| {
            let bytes = chain.bytes as usize;
            if chain.segments != 1 || bytes < least || bytes > room {
                return None;
            }
            let window = here.window(chain.at, chain.bytes)?;
            // At least `least` bytes are there, which are more than these.
            let (offloads, buffers) = (window.read_u32(0)?, window.read_u32(8)?);
            // Flags and kind of segmentation; in how many buffers the frame lies.
            let plain = offloads & 0xffff == 0 && (one == 0 || buffers >> 16 == one);
            window.part(header, bytes - header).filter(|_| plain)
        };
        let mut count = 0;
        for (chain, frame) in chains.iter().zip(frames) {
            *frame = frame_in(chain);
            if frame.is_none() {
                break;
            }
            count += 1;
        }
        count
    }

    /// Copies plain frames; how many, and their bytes.
    #[inline(always)]
    fn copy_plain(
        &self,
        frames: &[Option<Window<'_>>],
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> (usize, u64) {
        let template = RxTemplate {
            port: self.index,
            ..RxTemplate::default()
        };
        let (now, mut bytes) = (burst.now, 0);
        let (pool, count) = (self.pools.primary(), frames.len());
        let count = cache.fill_each(pool, burst, count, template, |index, room| {
            let frame = frames[index].as_ref();
            let Some((frame, room)) =
                frame.and_then(|frame| Some((frame, room.get_mut(..frame.len())?)))
            else {
                return (0, now); // no frame that `plain` found
            };
            frame.read(room);
            bytes += room.len() as u64;
            (room.len() as u32, now)
        });
        (count, bytes)
    }

    /// Copies one frame, however it lies; and how many chains it was.
    #[inline(never)]
    fn copy_frame(
        &self,
        memory: &Memory,
        from: usize,
        size: u16,
        cache: &mut PoolCache,
    ) -> Result<(Frame, usize), Violation> {
        let header_bytes = self.shape.header_bytes;
        let mut header: Header = [0; HEADER_BYTES];
        let mut reader = Reader::new(memory, &self.batch, from);
        let first = self.batch.chains[from].bytes as usize;
        if first < header_bytes || !reader.read(&mut header[..header_bytes]) {
            return Ok((Frame::Dropped(DropReason::Malformed), 1));
        }
        let mut chains = 1;
        if self.shape.mergeable && !self.shape.device {
            chains = usize::from(num_buffers(&header)).max(1);
            if chains > usize::from(size) {
                return Err(Violation::ChainTooLong);
            }
            if chains > MOST_CHAINS - 32 {
                return Ok((Frame::Dropped(DropReason::Oversize), 1));
            }
        }
        let Some(run) = self.batch.chains.get(from..from + chains) else {
            return Ok((Frame::Later, chains));
        };
        let bytes: u64 = run.iter().map(|chain| u64::from(chain.bytes)).sum();
        let len = usize::try_from(bytes).map_or(usize::MAX, |bytes| bytes - header_bytes);
        if len < ethernet::HEADER_LEN {
            return Ok((Frame::Dropped(DropReason::Malformed), chains));
        }
        let Some(pool) = self.pools.for_frame(len) else {
            return Ok((Frame::Dropped(DropReason::Oversize), chains));
        };
        let Some(mut packet) = cache.get(pool) else {
            return Ok((Frame::Later, 0));
        };
        packet.set_port(self.index);
        let [ref basic @ .., _, _] = header;
        let whole = packet.set_len(len) && reader.read(packet.data_mut());
        if !whole || !vnet::read(basic, packet.meta_mut(), 0) {
            cache.free_one(packet);
            return Ok((Frame::Dropped(DropReason::Malformed), chains));
        }
        Ok((Frame::Packet(packet), chains))
    }
}

/// How many buffers a frame lies in (5.1.6.4).
pub(super) fn num_buffers(header: &Header) -> u16 {
    u16::from_le_bytes([header[10], header[11]])
}

/// Reads the segments of some chains in order.
struct Reader<'a> {
    memory: &'a Memory,
    batch: &'a Batch,
    /// Chain, segment of it, byte of that.
    at: (usize, usize, u32),
}

impl<'a> Reader<'a> {
    fn new(memory: &'a Memory, batch: &'a Batch, chain: usize) -> Self {
        Self {
            memory,
            batch,
            at: (chain, 0, 0),
        }
    }

    /// Fills all of `to`; false where there are not as many bytes.
    fn read(&mut self, mut to: &mut [u8]) -> bool {
        while !to.is_empty() {
            let Some(chain) = self.batch.chains.get(self.at.0) else {
                return false;
            };
            let Some(segment) = self.batch.segments(chain).nth(self.at.1) else {
                self.at = (self.at.0 + 1, 0, 0);
                continue;
            };
            let left = segment.bytes - self.at.2;
            let count = to.len().min(left as usize);
            let at = segment.at + u64::from(self.at.2);
            let window = self.memory.near(self.batch.last).window(at, count as u32);
            let (head, rest) = to.split_at_mut(count);
            match window {
                Some(window) => window.read(head),
                None => return false,
            }
            to = rest;
            self.at.2 += count as u32;
            if count == left as usize {
                self.at = (self.at.0, self.at.1 + 1, 0);
            }
        }
        true
    }
}

/// What the transmitting half of a port has besides the ring.
pub(crate) struct Transmitting {
    pub(crate) shape: Shape,
    /// Longest frame that is sent unless it is to be cut by the other side, without a tag.
    pub(crate) most: usize,
    pub(crate) stats: Arc<QueueStats>,
    batch: Batch,
    /// Bytes of the chain that was seen last.
    usual: usize,
}

impl Transmitting {
    pub(crate) fn new(shape: Shape, most: usize, stats: Arc<QueueStats>) -> Self {
        Self {
            shape,
            most,
            stats,
            batch: Batch::new(true),
            usual: 1526,
        }
    }

    /// Sends frames from the front of the burst, on which nothing is left that the other side does
    /// not do; how many it took.
    #[inline]
    pub(crate) fn transmit<R: Ring + ?Sized>(
        &mut self,
        ring: &mut R,
        memory: &Memory,
        burst: &mut Burst,
        cache: &mut PoolCache,
    ) -> Result<usize, Violation> {
        if burst.is_empty() {
            return Ok(0);
        }
        self.batch.clear();
        let header = self.shape.header_bytes;
        let longest = burst.iter().map(Packet::len).max().unwrap_or(0);
        let mut most = burst.len();
        if longest + header > self.usual {
            most += burst.bytes() as usize / self.usual.max(64) + 1;
            most = most.min(MOST_CHAINS);
        }
        ring.take(memory, &mut self.batch, most)?;
        if let Some(first) = self.batch.chains.first() {
            self.usual = first.bytes as usize;
        }
        let (mut chains, mut taken, mut sent, mut bytes) = (0, 0, 0, 0);
        while taken < burst.len() && chains < self.batch.chains.len() {
            let (count, more) = self.copy_plain(memory, chains, &burst.as_packets()[taken..]);
            chains += count;
            taken += count;
            sent += count as u64;
            bytes += more;
            if chains == self.batch.chains.len() {
                break;
            }
            let Some(packet) = burst.iter().nth(taken) else {
                break;
            };
            match self.copy_frame(memory, chains, packet, ring.size()) {
                Ok(0) => break,
                Ok(count) => {
                    chains += count;
                    sent += 1;
                    bytes += packet.len() as u64;
                }
                Err(reason) => self.stats.dropped(reason, 1),
            }
            taken += 1;
        }
        if chains > 0 {
            ring.give(memory, &self.batch, chains)?;
        }
        self.stats.passed(sent, bytes);
        cache.free_front(burst, taken);
        Ok(taken)
    }

    /// Copies frames on which nothing is left to do, each into one segment, up to the first that is
    /// not such a one; how many, and their bytes.
    #[inline(always)]
    fn copy_plain(&mut self, memory: &Memory, from: usize, packets: &[Packet]) -> (usize, u64) {
        let (mut region, mut count, mut bytes) = (self.batch.last, 0, 0);
        if self.shape.header_bytes != HEADER_BYTES {
            return (0, 0);
        }
        while let Some(here) = memory.at_hand(region) {
            let (more, their_bytes) = self.copy_here(here, from + count, &packets[count..]);
            count += more;
            bytes += their_bytes;
            // The next one may lie in another region.
            let next = self.batch.chains.get(from + count);
            let next = next.filter(|_| count < packets.len());
            match next.and_then(|next| memory.other(region, next.at)) {
                Some(other) => region = other,
                None => break,
            }
        }
        (count, bytes)
    }

    /// The same into the region at hand. A loop of its own, in which nothing is called, has all
    /// that it needs in registers.
    #[inline(never)]
    fn copy_here(&mut self, here: AtHand<'_>, from: usize, packets: &[Packet]) -> (usize, u64) {
        let header = self.header([0; vnet::LEN], 1);
        let [a, b, c, d, e, f, g, h, i, j, k, l] = header;
        let head = Some(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        let tail = Some(u32::from_le_bytes([i, j, k, l]));
        let (most, mut count, mut bytes) = (self.most, 0, 0);
        for (chain, packet) in self.batch.chains[from..].iter_mut().zip(packets) {
            let (offload, data) = (packet.meta().offload, packet.data());
            let (len, put) = (data.len(), HEADER_BYTES + data.len());
            if offload.intersects(Offload::CSUM_PARTIAL | Offload::GSO)
                || chain.segments != 1
                || len > most
                || put > chain.bytes as usize
            {
                break;
            }
            let window = here.window(chain.at, put as u32);
            let frame = window.and_then(|window| window.part(HEADER_BYTES, len));
            let (Some(window), Some(frame)) = (window, frame) else {
                break;
            };
            // Most headers are alike: one that stands there already is left alone, so that its line
            // can stay in both caches. Where the other side changed it meanwhile, that is its loss.
            if window.read_u64(0) != head || window.read_u32(8) != tail {
                window.write(&header);
            }
            frame.write(data);
            chain.put = put as u32;
            bytes += len as u64;
            count += 1;
        }
        (count, bytes)
    }

    /// A whole header. 5.1.6.4.1: a device says in how many buffers a frame lies, even where it
    /// can be only one; a driver says nothing there.
    #[inline(always)]
    fn header(&self, basic: vnet::Header, buffers: u16) -> Header {
        let mut header: Header = [0; HEADER_BYTES];
        header[..vnet::LEN].copy_from_slice(&basic);
        if self.shape.device {
            header[vnet::LEN..].copy_from_slice(&buffers.to_le_bytes());
        }
        header
    }

    /// Copies one frame, however the buffers lie; how many chains it took, 0 if there are too few
    /// now.
    #[inline(never)]
    fn copy_frame(
        &mut self,
        memory: &Memory,
        from: usize,
        packet: &Packet,
        size: u16,
    ) -> Result<usize, DropReason> {
        let whole = !packet.meta().offload.intersects(Offload::GSO);
        if whole && packet.len() > self.most {
            return Err(DropReason::Oversize);
        }
        let header_bytes = self.shape.header_bytes;
        let need = (header_bytes + packet.len()) as u64;
        // Our own buffers are linked; those of a driver hold parts of one frame where it said so.
        let several = self.shape.mergeable || !self.shape.device;
        let chains = &self.batch.chains[from..];
        let (mut count, mut room) = (0, 0);
        for chain in chains {
            if room >= need || (count > 0 && !several) {
                break;
            }
            room += u64::from(chain.bytes);
            count += 1;
        }
        if room < need {
            // Never, if what there is now is all that there can be.
            let all = count == usize::from(size) || (count >= MOST_CHAINS && from == 0);
            let never = !several || all;
            return if never {
                Err(DropReason::Oversize)
            } else {
                Ok(0)
            };
        }
        if (chains[0].bytes as usize) < header_bytes {
            return Err(DropReason::Refused);
        }
        let header = self.header(vnet::write(packet), count as u16);
        let mut parts = [&header[..header_bytes], packet.data()];
        for index in from..from + count {
            let mut put = 0;
            for segment in self.batch.segments(&self.batch.chains[index]) {
                let mut done = 0;
                for part in &mut parts {
                    let bytes = part.len().min((segment.bytes - done) as usize);
                    let at = segment.at + u64::from(done);
                    let window = memory.near(self.batch.last).window(at, bytes as u32);
                    let (head, rest) = part.split_at(bytes);
                    match window {
                        Some(window) => window.write(head),
                        None => return Err(DropReason::Refused),
                    }
                    *part = rest;
                    done += bytes as u32;
                }
                put += done;
            }
            let chain = &mut self.batch.chains[index];
            chain.put = put;
            chain.goes_on = index + 1 < from + count;
            self.batch.linked |= chain.goes_on;
        }
        Ok(count)
    }
}
