//! The layout of the shared file (docs/shm.md), and the two ends of a ring in it.
//!
//! Nothing but `core` is used here, so that the folder can be taken as it is into a program without
//! an operating system; a peer in C mirrors it. All numbers are little endian. Whatever is loaded
//! may have been written by a peer that lies: it is loaded once, checked and then used, and no
//! number of the peer's becomes an address.

mod ring;

pub use ring::{Frames, Receiver, Ring, RingFault, Sender, Waiting};

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
        Ring::new(
            at::HEADS + HEAD_STRIDE * number,
            self.rings_at as usize + number * bytes,
            self,
        )
    }
}
