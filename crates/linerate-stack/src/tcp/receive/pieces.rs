//! The arena of one stack: every packet that some receive queue keeps, and what they are charged.

use std::fmt;

use linerate_core::MemError;
use linerate_core::mem::HugeArray;
use linerate_core::packet::Packet;

/// No piece.
pub(super) const NIL: u32 = u32::MAX;

/// Slots of more bytes are large: a pool has few of them, for frames that a kernel put together.
const LARGE_BYTES: u32 = 16_384;

/// Whether a packet's slot is a large one.
pub fn is_large(packet: &Packet) -> bool {
    packet.slot_bytes() as u32 > LARGE_BYTES
}

/// Where in a packet's data its TCP payload lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Bytes before it.
    pub start: u32,
    /// Its length in bytes.
    pub len: u32,
}

/// Received bytes in one slot.
pub(super) struct Piece {
    /// `None` in a free entry.
    packet: Option<Packet>,
    /// Where the bytes begin in the packet's data.
    pub(super) start: u32,
    pub(super) len: u32,
    /// Sequence number of the first byte.
    pub(super) seq: u32,
    /// The following piece of the chain; of a free entry, the next free one.
    pub(super) next: u32,
    /// Of the first piece of a run, the run's last piece. Of no meaning in others.
    pub(super) last: u32,
}

const _: () = assert!(size_of::<Piece>() == 24);

impl Piece {
    fn unused(next: u32) -> Self {
        Self {
            packet: None,
            start: 0,
            len: 0,
            seq: 0,
            next,
            last: NIL,
        }
    }

    /// Sequence number behind the last byte.
    #[inline]
    pub(super) fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len)
    }

    /// The bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        let start = self.start as usize;
        &self.packet().data()[start..start + self.len as usize]
    }

    /// Bytes that the slot has behind these.
    #[inline]
    pub(super) fn tailroom(&self) -> u32 {
        let used = self.packet().headroom() as u32 + self.start + self.len;
        (self.slot_bytes()).saturating_sub(used)
    }

    /// Bytes of the slot.
    #[inline]
    pub(super) fn slot_bytes(&self) -> u32 {
        self.packet().slot_bytes() as u32
    }

    /// Drops the first `bytes`, which the caller knows it to have.
    #[inline]
    pub(super) fn skip(&mut self, bytes: u32) {
        self.start += bytes;
        self.len -= bytes;
        self.seq = self.seq.wrapping_add(bytes);
    }

    /// Copies `bytes` behind these, which the caller knows to fit the slot. What the packet's data
    /// had there, the padding of a short frame, goes. Returns how many bytes were copied.
    pub(super) fn append(&mut self, bytes: &[u8]) -> usize {
        let (start, len) = (self.start as usize, self.len as usize);
        let packet = self.packet_mut();
        let mut at = packet.headroom() + start;
        let mut copied = bytes.len();
        let room = packet.slot_bytes() - at - len;
        // A packet's data begin at most 65,535 bytes into a slot.
        if room < bytes.len() || at > usize::from(u16::MAX) {
            packet.widen();
            packet.data_mut().copy_within(at..at + len, 0);
            copied += len;
            at = 0;
        }
        let fits = packet.set_span(at, len + bytes.len());
        debug_assert!(fits, "the caller has compared with the slot");
        packet.data_mut()[len..].copy_from_slice(bytes);
        self.start = 0;
        self.len += bytes.len() as u32;
        copied
    }

    /// Moves the bytes to the front of another slot, which the caller knows to take them; gives
    /// back the old one.
    pub(super) fn move_to(&mut self, mut packet: Packet) -> Packet {
        let fits = packet.set_data(self.bytes());
        debug_assert!(fits, "the caller has compared with the slot");
        self.start = 0;
        let old = self.packet.replace(packet);
        old.expect("a piece of a chain has its packet")
    }

    #[inline]
    fn packet(&self) -> &Packet {
        let packet = self.packet.as_ref();
        packet.expect("a piece of a chain has its packet")
    }

    #[inline]
    fn packet_mut(&mut self) -> &mut Packet {
        let packet = self.packet.as_mut();
        packet.expect("a piece of a chain has its packet")
    }
}

/// What the queues of a stack have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments all of whose bytes were there already.
    pub duplicates: u64,
    /// Segments that were copied behind the piece before them.
    pub coalesced: u64,
    /// Times that a connection's pieces were copied together.
    pub collapses: u64,
    /// Slots that this freed.
    pub collapsed_slots: u64,
    /// Pieces out of order that were dropped for want of room (RFC 2018 8).
    pub pruned_pieces: u64,
    /// Bytes of these.
    pub pruned_bytes: u64,
    /// Segments that were refused.
    pub refused: u64,
    /// Pieces and runs that were looked at to find a place or to make room.
    pub visits: u64,
    /// Bytes that were copied from slot to slot.
    pub copied_bytes: u64,
    /// Segments that were copied from a large slot into small ones, since too many were kept.
    pub divided: u64,
}

/// All pieces of one stack: a fixed number of them, made at start.
///
/// ```
/// use linerate_core::packet::{Pool, PoolCache, PoolConfig};
/// use linerate_stack::tcp::receive::{Limits, Pieces, ReceiveQueue, Span};
/// let pool = Pool::new(&PoolConfig::new("rx", 256))?;
/// let mut cache = PoolCache::new(&[pool]);
/// let mut pieces = Pieces::new(100, 1 << 20)?;
/// let mut queue = ReceiveQueue::new(7000); // RCV.NXT
/// let limits = Limits::for_window(7000 + 65535, 65535);
/// let packet = cache.copy_of(b"header, hello").expect("a fresh pool has free slots");
/// let span = Span { start: 8, len: 5 };
/// let inserted = queue.insert(&mut pieces, &mut cache, packet, span, 7000, &limits);
/// assert_eq!((inserted.advanced_bytes, queue.next()), (5, 7005));
/// let mut bytes = [0; 100];
/// assert_eq!(queue.read(&mut pieces, &mut cache, &mut bytes), 5);
/// assert_eq!(&bytes[..5], b"hello");
/// # Ok::<(), linerate_core::MemError>(())
/// ```
pub struct Pieces {
    pieces: HugeArray<Piece>,
    /// First of those not in use.
    free: u32,
    in_use: u32,
    charged_bytes: u64,
    max_bytes: u64,
    /// Large slots that are kept, and most of them.
    large: u32,
    max_large: u32,
    pub(super) stats: Stats,
}

impl Pieces {
    /// An arena of `count` pieces (at most 2^32 - 2), which together keep slots of at most
    /// `max_bytes`.
    ///
    /// # Errors
    /// As [`HugeArray::from_fn`].
    pub fn new(count: u32, max_bytes: u64) -> Result<Self, MemError> {
        let count = count.min(NIL - 1);
        let following = |index: usize| match index as u32 + 1 {
            next if next < count => next,
            _ => NIL,
        };
        let make = |index| Piece::unused(following(index));
        Ok(Self {
            pieces: HugeArray::from_fn("tcp receive", count as usize, make)?,
            free: if count == 0 { NIL } else { 0 },
            in_use: 0,
            charged_bytes: 0,
            max_bytes,
            large: 0,
            max_large: u32::MAX,
            stats: Stats::default(),
        })
    }

    /// The same with at most so many large slots, of 64 KiB: what comes in more is copied to small
    /// ones, so that connections whose data nobody reads leave slots for frames to come.
    #[must_use]
    pub fn with_large_slots(mut self, most: u32) -> Self {
        self.max_large = most;
        self
    }

    /// Large slots that are kept.
    pub fn large_slots(&self) -> u32 {
        self.large
    }

    /// Whether a slot of so many bytes is a large one too many.
    #[inline]
    pub(super) fn is_too_large(&self, slot_bytes: u32) -> bool {
        slot_bytes > LARGE_BYTES && self.large >= self.max_large
    }

    /// Slots that are kept. Each is one piece.
    pub fn charged_slots(&self) -> u32 {
        self.in_use
    }

    /// Bytes of these slots.
    pub fn charged_bytes(&self) -> u64 {
        self.charged_bytes
    }

    /// Most bytes of slots that are kept.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Pieces, in use or not.
    pub fn count(&self) -> u32 {
        self.pieces.len() as u32
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether a slot of so many bytes may be kept.
    #[inline]
    pub(super) fn has_room(&self, slot_bytes: u32) -> bool {
        self.free != NIL && self.charged_bytes + u64::from(slot_bytes) <= self.max_bytes
    }

    #[inline]
    pub(super) fn at(&self, at: u32) -> &Piece {
        &self.pieces[at as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, at: u32) -> &mut Piece {
        &mut self.pieces[at as usize]
    }

    /// Sequence number behind the run that begins with `run`.
    #[inline]
    pub(super) fn run_end(&self, run: u32) -> u32 {
        self.at(self.at(run).last).end()
    }

    /// The run behind the one that begins with `run`.
    #[inline]
    pub(super) fn run_next(&self, run: u32) -> u32 {
        self.at(self.at(run).last).next
    }

    /// A piece of its own for a packet's bytes, which the caller links: a run by itself. There is
    /// one, as [`has_room`](Self::has_room) said.
    #[inline]
    pub(super) fn keep(&mut self, packet: Packet, span: Span, seq: u32) -> u32 {
        let at = self.free;
        self.charge(&packet);
        self.in_use += 1;
        let piece = &mut self.pieces[at as usize];
        self.free = piece.next;
        *piece = Piece {
            packet: Some(packet),
            start: span.start,
            len: span.len,
            seq,
            next: NIL,
            last: at,
        };
        at
    }

    /// Gives up a piece that no chain has any more. Returns its packet.
    #[inline]
    pub(super) fn release(&mut self, at: u32) -> Packet {
        let piece = &mut self.pieces[at as usize];
        let packet = piece.packet.take();
        let packet = packet.expect("a piece of a chain has its packet");
        piece.next = self.free;
        self.free = at;
        self.in_use -= 1;
        self.discharge(&packet);
        packet
    }

    /// Puts the bytes of a piece into another packet, which the caller knows to take them; returns
    /// the old one.
    pub(super) fn rehouse(&mut self, at: u32, packet: Packet) -> Packet {
        self.charge(&packet);
        self.stats.copied_bytes += u64::from(self.at(at).len);
        let old = self.at_mut(at).move_to(packet);
        self.discharge(&old);
        old
    }

    #[inline]
    fn charge(&mut self, packet: &Packet) {
        self.charged_bytes += packet.slot_bytes() as u64;
        self.large += u32::from(is_large(packet));
    }

    #[inline]
    fn discharge(&mut self, packet: &Packet) {
        self.charged_bytes -= packet.slot_bytes() as u64;
        self.large -= u32::from(is_large(packet));
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces")
            .field("count", &self.count())
            .field("charged_slots", &self.in_use)
            .field("charged_bytes", &self.charged_bytes)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
