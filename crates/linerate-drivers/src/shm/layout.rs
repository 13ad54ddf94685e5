//! The layout of the shared file (docs/shm.md), and the two ends of a ring in it.
//!
//! Nothing but `core` is used here, so that the file can be taken as it is into a program without
//! an operating system; a peer in C mirrors it. All numbers are little endian. Whatever is loaded
//! may have been written by a peer that lies: it is loaded once, checked and then used, and no
//! number of the peer's becomes an address.

use core::fmt;

/// The first bytes of the file; written last when a file is set up.
pub const MAGIC: [u8; 8] = *b"LRSHMEM\n";
/// Version of the layout.
pub const VERSION: u32 = 1;
/// As it reads where integers are stored as they should be.
pub const BYTE_ORDER: u32 = 0x0102_0304;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Where the header's fields are.
pub mod at {
    /// `u32`: version.
    pub const VERSION: usize = 8;
    /// `u32`: byte order.
    pub const BYTE_ORDER: usize = 12;
    /// `u32`: byte of the file at which the slots of ring 0 begin.
    pub const RINGS: usize = 16;
    /// `u32`: queues, each a ring there and a ring back.
    pub const QUEUES: usize = 20;
    /// `u32`: slots of each ring, a power of two.
    pub const SLOTS: usize = 24;
    /// `u32`: bytes of each slot, a multiple of 64.
    pub const SLOT_BYTES: usize = 28;
    /// The block of each side, [`super::SIDE_BYTES`] long: the server's, then the client's.
    pub const SIDES: usize = 128;
    /// Ring `r`'s head: `u32` at `HEADS + HEAD_STRIDE * r`.
    pub const HEADS: usize = 512;
}
/// Bytes of a side's block.
pub const SIDE_BYTES: usize = 128;
/// Where the fields are in a side's block.
pub mod side {
    /// `u32`: one more with each start of the side; 0: it was never there.
    pub const GENERATION: usize = 0;
    /// `u32`: 1 while the side is there, 0 when it has left.
    pub const STATE: usize = 4;
    /// `u32`: changes at least twice a second.
    pub const HEARTBEAT: usize = 8;
    /// `u32`: number of the process, for people.
    pub const PROCESS: usize = 12;
    /// 16 bytes that name the running kernel; zeros where the side holds no lock.
    pub const BOOT_ID: usize = 16;
    /// 32 bytes of UTF-8, for people; zeros behind it.
    pub const NAME: usize = 32;
}
/// Between two heads: a pair of cache lines.
pub const HEAD_STRIDE: usize = 128;
/// Bytes of a slot before its frame.
pub const WORD_BYTES: usize = 4;
/// Longest frame of any shape.
pub const MAX_FRAME_BYTES: usize = 65_535;
/// Most queues.
pub const MAX_QUEUES: u32 = 64;
/// Most slots: an index of 32 bits then names a lap of 16.
pub const MAX_SLOTS: u32 = 1 << 15;
const LINE: usize = 64;
const PAGE: usize = 4096;

/// Memory that both sides reach. All places asked for are inside of what [`Shape::file_bytes`]
/// says, words at multiples of four.
pub trait Memory {
    /// Loads a little-endian word; what is read after it was written before it (acquire).
    fn load(&self, at: usize) -> u32;
    /// Stores one; who sees it sees all that was written before it (release).
    fn store(&self, at: usize, value: u32);
    /// Copies bytes that may change meanwhile.
    fn read(&self, at: usize, to: &mut [u8]);
    /// Copies bytes to where the peer sees them.
    fn write(&self, at: usize, from: &[u8]);
}

/// How many rings of how many slots of how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    queues: u32,
    slots: u32,
    slot_bytes: u32,
    rings_at: u32,
}

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// All zeros: nobody has set it up.
    Empty,
    /// Something else is in the file.
    Magic,
    /// Of another version.
    Version(u32),
    /// Written with bytes in another order.
    ByteOrder(u32),
    /// None, or more than there may be.
    Queues(u32),
    /// Not a power of two, or too many.
    Slots(u32),
    /// Not a multiple of 64, too short or too long.
    SlotBytes(u32),
    /// The rings would lie over the heads, or are not on a cache line.
    RingsAt(u32),
}

impl fmt::Display for BadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "nobody has set it up yet"),
            Self::Magic => write!(f, "it is something else than a file of a `shm` port"),
            Self::Version(is) => write!(f, "it is of version {is}, this is version {VERSION}"),
            Self::ByteOrder(is) => {
                write!(
                    f,
                    "its byte order mark is {is:#x} instead of {BYTE_ORDER:#x}"
                )
            }
            Self::Queues(is) => write!(f, "it has {is} queues instead of 1 to {MAX_QUEUES}"),
            Self::Slots(is) => {
                write!(
                    f,
                    "its rings have {is} slots, no power of two up to {MAX_SLOTS}"
                )
            }
            Self::SlotBytes(is) => {
                let most = slot_bytes(MAX_FRAME_BYTES);
                write!(
                    f,
                    "its slots have {is} bytes, no multiple of {LINE} up to {most}"
                )
            }
            Self::RingsAt(is) => write!(f, "its rings begin at byte {is}, over its heads"),
        }
    }
}

/// Bytes of a slot for frames of so many: an odd number of cache lines, so that the first lines of
/// slots spread over all sets of a cache.
fn slot_bytes(frame_bytes: usize) -> usize {
    let lines = (WORD_BYTES + frame_bytes).div_ceil(LINE);
    (lines | 1) * LINE
}

impl Shape {
    /// `queues` pairs of rings of `slots` each, rounded up to a power of two, for frames of at
    /// least `frame_bytes`. All are brought into what is possible.
    pub fn new(queues: u32, slots: u32, frame_bytes: usize) -> Self {
        let queues = queues.clamp(1, MAX_QUEUES);
        let heads = at::HEADS + HEAD_STRIDE * 2 * queues as usize;
        Self {
            queues,
            slots: slots.clamp(1, MAX_SLOTS).next_power_of_two(),
            slot_bytes: slot_bytes(frame_bytes.min(MAX_FRAME_BYTES)) as u32,
            rings_at: heads.next_multiple_of(PAGE) as u32,
        }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`BadHeader`]: the first thing that is wrong with it.
    pub fn decode(header: &[u8; HEADER_BYTES]) -> Result<Self, BadHeader> {
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if header.iter().all(|&byte| byte == 0) {
            return Err(BadHeader::Empty);
        }
        if header[..MAGIC.len()] != MAGIC {
            // One that is being set up has all but its magic.
            let begun = header[..MAGIC.len()].iter().all(|&byte| byte == 0);
            return Err(if begun {
                BadHeader::Empty
            } else {
                BadHeader::Magic
            });
        }
        let (version, order) = (word(at::VERSION), word(at::BYTE_ORDER));
        if order != BYTE_ORDER {
            return Err(BadHeader::ByteOrder(order));
        }
        if version != VERSION {
            return Err(BadHeader::Version(version));
        }
        let shape = Self {
            queues: word(at::QUEUES),
            slots: word(at::SLOTS),
            slot_bytes: word(at::SLOT_BYTES),
            rings_at: word(at::RINGS),
        };
        if !(1..=MAX_QUEUES).contains(&shape.queues) {
            return Err(BadHeader::Queues(shape.queues));
        }
        if !shape.slots.is_power_of_two() || shape.slots > MAX_SLOTS {
            return Err(BadHeader::Slots(shape.slots));
        }
        let bytes = shape.slot_bytes as usize;
        if bytes == 0 || !bytes.is_multiple_of(LINE) || bytes > slot_bytes(MAX_FRAME_BYTES) {
            return Err(BadHeader::SlotBytes(shape.slot_bytes));
        }
        let least = at::HEADS + HEAD_STRIDE * 2 * shape.queues as usize;
        let rings_at = shape.rings_at as usize;
        if rings_at < least || !rings_at.is_multiple_of(LINE) {
            return Err(BadHeader::RingsAt(shape.rings_at));
        }
        Ok(shape)
    }

    /// The header of a file of this shape.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..MAGIC.len()].copy_from_slice(&MAGIC);
        for (at, value) in [
            (at::VERSION, VERSION),
            (at::BYTE_ORDER, BYTE_ORDER),
            (at::RINGS, self.rings_at),
            (at::QUEUES, self.queues),
            (at::SLOTS, self.slots),
            (at::SLOT_BYTES, self.slot_bytes),
        ] {
            header[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        header
    }

    /// Queues.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// Slots of each ring.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The longest frame that a slot takes, in bytes.
    pub fn frame_bytes(&self) -> usize {
        (self.slot_bytes as usize - WORD_BYTES).min(MAX_FRAME_BYTES)
    }

    /// Bytes that the file has at least.
    pub fn file_bytes(&self) -> u64 {
        let ring = u64::from(self.slots) * u64::from(self.slot_bytes);
        u64::from(self.rings_at) + 2 * u64::from(self.queues) * ring
    }

    /// Queue `queue`'s ring to the client, or to the server.
    ///
    /// # Panics
    /// If there is no such queue.
    pub fn ring(&self, queue: u32, to_client: bool) -> Ring {
        assert!(queue < self.queues, "queue {queue} of {}", self.queues);
        let number = 2 * queue as usize + usize::from(!to_client);
        let bytes = self.slots as usize * self.slot_bytes as usize;
        Ring {
            head_at: at::HEADS + HEAD_STRIDE * number,
            slots_at: self.rings_at as usize + number * bytes,
            slot_bytes: self.slot_bytes as usize,
            frame_bytes: self.frame_bytes(),
            mask: self.slots - 1,
            shift: self.slots.trailing_zeros(),
        }
    }
}

/// Where a ring is.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    head_at: usize,
    slots_at: usize,
    slot_bytes: usize,
    frame_bytes: usize,
    mask: u32,
    shift: u32,
}

impl Ring {
    #[inline(always)]
    fn slot_at(&self, index: u32) -> usize {
        self.slots_at + (index & self.mask) as usize * self.slot_bytes
    }

    /// What stands in the upper half of the word of frame number `index`: its lap round the ring,
    /// from 1 on.
    #[inline(always)]
    fn lap(&self, index: u32) -> u32 {
        ((index >> self.shift).wrapping_add(1)) << 16
    }

    /// The length that a word gives to frame number `index`; 0 where the frame is not there. A word
    /// that was cleared has length 0 in any lap.
    #[inline(always)]
    fn length(&self, index: u32, word: u32) -> u32 {
        let length = word ^ self.lap(index);
        if length > 0xffff { 0 } else { length }
    }

    #[inline(always)]
    fn put(&self, memory: &impl Memory, index: u32, frame: &[u8]) {
        let at = self.slot_at(index);
        let len = frame.len().min(self.frame_bytes);
        memory.write(at + WORD_BYTES, &frame[..len]);
        memory.store(at, self.lap(index) | len as u32);
    }

    /// Slots.
    pub fn slots(&self) -> u32 {
        self.mask + 1
    }

    /// Makes it a ring of which nobody has sent anything.
    pub fn clear(&self, memory: &impl Memory) {
        memory.store(self.head_at, 0);
        (0..self.slots()).for_each(|index| memory.store(self.slot_at(index), 0));
    }

    /// The longest frame that fits.
    #[inline(always)]
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }
}

/// The receiver claims a head that is not between the oldest frame under way and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadOutside {
    /// What it claims.
    pub head: u32,
    /// Number of the next frame.
    pub tail: u32,
}

/// The writing end of a ring.
#[derive(Debug)]
pub struct Sender {
    ring: Ring,
    /// Number of the next frame.
    tail: u32,
    /// The receiver's head when it was looked at last.
    head: u32,
}

impl Sender {
    /// Goes on where the last sender of the ring stopped. Frames from the receiver's head on that
    /// are whole stay; what follows the first that is not, is cleared: the last sender may have
    /// died in the middle of a burst.
    pub fn take_up(memory: &impl Memory, ring: Ring) -> Self {
        let head = memory.load(ring.head_at);
        let (mut tail, end) = (head, head.wrapping_add(ring.slots()));
        while tail != end && ring.length(tail, memory.load(ring.slot_at(tail))) != 0 {
            tail = tail.wrapping_add(1);
        }
        let mut free = tail;
        while free != end {
            memory.store(ring.slot_at(free), 0);
            free = free.wrapping_add(1);
        }
        Self { ring, tail, head }
    }

    /// Slots that are free, as far as `wanted` matters: the receiver is asked only where what is
    /// known does not suffice.
    ///
    /// # Errors
    /// [`HeadOutside`] where the receiver lies.
    #[inline(always)]
    pub fn room(&mut self, memory: &impl Memory, wanted: u32) -> Result<u32, HeadOutside> {
        let known = self.ring.slots() - self.tail.wrapping_sub(self.head);
        if known >= wanted {
            return Ok(known);
        }
        let (head, tail) = (memory.load(self.ring.head_at), self.tail);
        let under_way = tail.wrapping_sub(head);
        if under_way > self.ring.slots() {
            return Err(HeadOutside { head, tail });
        }
        self.head = head;
        Ok(self.ring.slots() - under_way)
    }

    /// Sends as many frames as there is room for, said by [`room`](Self::room), none longer than
    /// [`Ring::frame_bytes`]. The first is written last: the receiver looks for that one, and finds
    /// the others with it.
    #[inline(always)]
    pub fn send<'f>(&mut self, memory: &impl Memory, count: u32, frame: impl Fn(u32) -> &'f [u8]) {
        // By value: see `Frames`.
        let (ring, tail) = (self.ring, self.tail);
        let put = |number: u32| ring.put(memory, tail.wrapping_add(number), frame(number));
        (1..count).for_each(put);
        if count > 0 {
            put(0);
        }
        self.tail = tail.wrapping_add(count);
    }

    /// Where it is.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Frames that were sent and, as far as is known, not received.
    pub fn under_way(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    /// Number of the next frame.
    head: u32,
}

impl Receiver {
    /// Goes on where the last receiver of the ring stopped.
    pub fn take_up(memory: &impl Memory, ring: Ring) -> Self {
        let head = memory.load(ring.head_at);
        Self { ring, head }
    }

    /// The frames that wait, as long as none is given back.
    #[inline(always)]
    pub fn frames(&self) -> Frames {
        Frames {
            ring: self.ring,
            first: self.head,
        }
    }

    /// Gives the slots of the first `count` waiting frames back to the sender. Called once a poll,
    /// also for none: whatever the peer wrote over the head is gone then.
    #[inline(always)]
    pub fn release(&mut self, memory: &impl Memory, count: u32) {
        self.head = self.head.wrapping_add(count);
        memory.store(self.ring.head_at, self.head);
    }

    /// Where it is.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}

/// Frames from a receiver's head on. A value, so that a compiler keeps it at hand: what the peer's
/// memory is written by, it must take for a change of everything.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    ring: Ring,
    first: u32,
}

/// How many frames wait, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Frames.
    pub count: usize,
    /// Bytes of the shortest; without frames, the most that there can be.
    pub shortest: u32,
    /// Bytes of the longest, which may not fit a slot: see [`Ring::frame_bytes`].
    pub longest: u32,
    /// Bytes of all.
    pub bytes: u64,
}

impl Frames {
    /// Looks for frames and writes down their lengths, none of which is 0, as many as fit into
    /// `lengths`.
    #[inline(always)]
    pub fn waiting(&self, memory: &impl Memory, lengths: &mut [u16]) -> Waiting {
        let (mut shortest, mut longest, mut bytes) = (u32::MAX, 0, 0);
        let mut count = 0;
        for to in lengths {
            let index = self.first.wrapping_add(count as u32);
            let length = self
                .ring
                .length(index, memory.load(self.ring.slot_at(index)));
            if length == 0 {
                break;
            }
            *to = length as u16;
            (shortest, longest) = (length.min(shortest), length.max(longest));
            bytes += u64::from(length);
            count += 1;
        }
        Waiting {
            count,
            shortest,
            longest,
            bytes,
        }
    }

    /// Copies the first bytes of frame number `number`, as many as `to` has, and no more than a
    /// slot.
    #[inline(always)]
    pub fn read(&self, memory: &impl Memory, number: u32, to: &mut [u8]) {
        let at = self.ring.slot_at(self.first.wrapping_add(number)) + WORD_BYTES;
        let len = to.len().min(self.ring.frame_bytes);
        memory.read(at, &mut to[..len]);
    }
}
