//! One incomplete datagram: its slot, the bytes that have come, and its completion.

use linerate_core::packet::{Offload, Packet};

use super::Refusal;
use super::header;
use super::piece::{Key, Piece};
use super::table::{LISTS, Link};

/// Limit of separate runs of bytes of one datagram.
const RUNS: usize = 36;

/// Bytes of the payload that have come, from the first to the one behind the last.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: u16,
    end: u16,
}

/// The effect of a fragment on a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It fills a gap and is recorded, but its bytes do not fit the slot.
    Ok,
    /// All its bytes are there already.
    Duplicate,
    /// It contradicts earlier fragments.
    Abandon(Refusal),
}

/// An entry of the table, used or not. The fields that every fragment reads are in the first cache
/// line.
#[repr(C, align(64))]
pub(super) struct Datagram {
    pub(super) key: Key,
    /// The next one of the bucket, or of those not in use.
    pub(super) next: u32,
    /// Its slot; the packet's data are the whole slot.
    pub(super) packet: Option<Packet>,
    /// Where in the slot the payload begins.
    base: u32,
    /// Bytes of the first fragment's headers, which end at `base`; 0 until it has come.
    header_len: u16,
    /// Bytes of the payload; 0 until the last fragment has come.
    total: u16,
    /// Bytes of it that have come.
    received: u16,
    fragments: u16,
    /// Bytes of payload of the first fragment.
    first_len: u16,
    /// One bit for each ECN codepoint that was seen.
    ecn: u8,
    runs_len: u8,
    pub(super) links: [Link; LISTS],
    pub(super) begun_ns: u64,
    pub(super) source: u32,
    slot_bytes: u32,
    next_at: u16,
    next_header: u8,
    l3: u8,
    pub(super) is_v6: bool,
    /// Whether only one fragment, not the first, has come, and its payload is still at `base`.
    is_lone: bool,
    runs: [Run; RUNS],
}

const _: () = assert!(size_of::<Datagram>() == 256);
const _: () = assert!(std::mem::offset_of!(Datagram, links) == 64);

impl Datagram {
    /// An entry that is not in use, and the next one.
    pub(super) fn unused(next: u32) -> Self {
        Self {
            key: Key::default(),
            next,
            packet: None,
            base: 0,
            header_len: 0,
            total: 0,
            received: 0,
            fragments: 0,
            first_len: 0,
            ecn: 0,
            runs_len: 0,
            links: [Link::LOOSE; LISTS],
            begun_ns: 0,
            source: 0,
            slot_bytes: 0,
            next_at: 0,
            next_header: 0,
            l3: 0,
            is_v6: false,
            is_lone: false,
            runs: [Run::default(); RUNS],
        }
    }

    /// Begins with one fragment, in the slot of `home`.
    #[inline]
    pub(super) fn begin(&mut self, piece: &Piece, home: Home) {
        let Home {
            packet: home,
            base,
            is_lone,
        } = home;
        self.is_lone = is_lone;
        self.slot_bytes = home.len() as u32;
        self.packet = Some(home);
        self.base = base;
        self.header_len = 0;
        self.total = if piece.more { 0 } else { piece.end };
        self.received = piece.end - piece.start;
        self.fragments = 1;
        self.ecn = 1 << piece.ecn;
        self.is_v6 = piece.is_v6;
        self.runs[0] = Run {
            start: piece.start,
            end: piece.end,
        };
        self.runs_len = 1;
        if piece.start == 0 {
            self.note_first(piece);
        }
    }

    /// Makes the slot of a first fragment the datagram's, if there is only one later fragment and
    /// it fits behind: so that of two fragments in the wrong order only one is copied. Returns the
    /// packet that is no longer needed. Otherwise the earlier fragment moves to its place, and
    /// `packet` is returned as an error.
    #[inline(never)]
    fn adopt(&mut self, piece: &Piece, mut packet: Packet) -> Result<Packet, Packet> {
        self.is_lone = false;
        let (run, from) = (self.runs[0], self.base as usize);
        let (start, end) = (usize::from(run.start), usize::from(run.end));
        let base = packet.headroom() + usize::from(piece.header_len);
        let bytes = packet.slot_bytes();
        let is_before = piece.start == 0 && piece.end <= run.start;
        if !is_before || base + end > bytes || bytes != self.slot_bytes() {
            let home = self.home_mut();
            home.data_mut()
                .copy_within(from..from + end - start, from + start);
            return Err(packet);
        }
        packet.widen();
        let old = self.home();
        packet.data_mut()[base + start..base + end]
            .copy_from_slice(&old.data()[from..from + end - start]);
        self.base = base as u32;
        self.note_first(piece);
        self.note_bytes(piece);
        match piece.end == run.start {
            true => self.runs[0].start = 0,
            false => {
                self.runs[1] = Run {
                    start: 0,
                    end: piece.end,
                };
                self.runs_len = 2;
            }
        }
        self.fragments += 1;
        self.ecn |= 1 << piece.ecn;
        let old = self.packet.replace(packet);
        Ok(old.expect("a datagram in the table has its slot"))
    }

    /// Adds a fragment, and returns the packet that is no longer needed; or the fragment, and the
    /// reason why it was not added.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        piece: &Piece,
        mut packet: Packet,
    ) -> Result<Packet, (Added, Packet)> {
        if self.is_lone {
            packet = match self.adopt(piece, packet) {
                Ok(old) => return Ok(old),
                Err(packet) => packet,
            };
        }
        match self.admit(piece, &packet) {
            Added::Ok if self.has_room(piece) => {
                self.place(piece, &packet);
                Ok(packet)
            }
            added => Err((added, packet)),
        }
    }

    /// Returns the effect of a fragment, and records it if it fills a gap.
    #[inline(always)]
    fn admit(&mut self, piece: &Piece, packet: &Packet) -> Added {
        let run = &mut self.runs[0];
        // In order, with the end unknown; or in reverse, before earlier bytes.
        if self.runs_len == 1 && piece.start == run.end && self.total == 0 {
            run.end = piece.end;
            self.note_bytes(piece);
            return Added::Ok;
        }
        if self.runs_len == 1 && piece.end == run.start && piece.more {
            run.start = piece.start;
            self.note_bytes(piece);
            return Added::Ok;
        }
        self.admit_anywhere(piece, packet.data())
    }

    #[inline(never)]
    fn admit_anywhere(&mut self, piece: &Piece, frame: &[u8]) -> Added {
        let runs_len = usize::from(self.runs_len);
        // RFC 791 3.2, RFC 8200 4.5: the last fragment says where the datagram ends.
        let is_past_end = match (self.total, piece.more) {
            (0, true) => false,
            (0, false) => self.end() > usize::from(piece.end),
            (total, true) => piece.end >= total,
            (total, false) => piece.end != total,
        };
        if is_past_end {
            return Added::Abandon(Refusal::Overlap);
        }
        let (mut before, mut behind) = (None, None);
        for (index, run) in self.runs[..runs_len].iter().enumerate() {
            if piece.start < run.end && run.start < piece.end {
                let is_inside = run.start <= piece.start && piece.end <= run.end;
                return match is_inside && self.has_same_bytes(piece, frame) {
                    true => Added::Duplicate,
                    false => Added::Abandon(Refusal::Overlap),
                };
            }
            if run.end == piece.start {
                before = Some(index);
            }
            if run.start == piece.end {
                behind = Some(index);
            }
        }
        match (before, behind) {
            (Some(before), None) => self.runs[before].end = piece.end,
            (None, Some(behind)) => self.runs[behind].start = piece.start,
            (Some(before), Some(behind)) => {
                self.runs[before].end = self.runs[behind].end;
                self.runs[behind] = self.runs[runs_len - 1];
                self.runs_len -= 1;
            }
            (None, None) => {
                let Some(run) = self.runs.get_mut(runs_len) else {
                    return Added::Abandon(Refusal::Scattered);
                };
                (run.start, run.end) = (piece.start, piece.end);
                self.runs_len += 1;
            }
        }
        self.note_bytes(piece);
        Added::Ok
    }

    #[inline(always)]
    fn note_bytes(&mut self, piece: &Piece) {
        if !piece.more {
            self.total = piece.end;
        }
        self.received += piece.end - piece.start;
    }

    /// Whether the fragment, and its headers if it is the first, fit the slot.
    #[inline]
    fn has_room(&self, piece: &Piece) -> bool {
        let headers_fit = piece.start != 0 || u32::from(piece.header_len) <= self.base;
        headers_fit && self.base as usize + usize::from(piece.end) <= self.slot_bytes()
    }

    /// Copies an admitted fragment to its place.
    #[inline(always)]
    pub(super) fn place(&mut self, piece: &Piece, packet: &Packet) {
        let (frame, base) = (packet.data(), self.base as usize);
        let home = self.home_mut();
        let payload = piece.payload(frame);
        let data = home.data_mut();
        data[base + usize::from(piece.start)..][..payload.len()].copy_from_slice(payload);
        if piece.start == 0 {
            let headers = &frame[..usize::from(piece.header_len)];
            data[base - headers.len()..base].copy_from_slice(headers);
            home.copy_meta(packet);
            self.note_first(piece);
        }
        self.fragments += 1;
        self.ecn |= 1 << piece.ecn;
    }

    /// Whether no byte is missing; then the first fragment is there too.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.received == self.total
    }

    /// Makes the packet of a complete datagram.
    #[inline]
    pub(super) fn finish(&mut self) -> Result<(), Refusal> {
        // RFC 3168 5.3: a mark by one router must be kept, but is invalid if another fragment is
        // not ECN-capable.
        let is_marked = self.ecn & 1 << 3 != 0;
        let may_be_marked = self.ecn & 1 == 0;
        let (l3, header_len) = (usize::from(self.l3), usize::from(self.header_len));
        let (next_at, next, is_v6) = (self.next_at, self.next_header, self.is_v6);
        let home = self.show(self.total);
        if is_marked && !may_be_marked {
            return Err(Refusal::Ecn);
        }
        match is_v6 {
            false => header::finish4(&mut home.data_mut()[l3..], is_marked),
            true => {
                header::strip(home, header_len, next_at, next);
                header::finish6(&mut home.data_mut()[l3..], is_marked)
            }
        }
    }

    /// Makes the packet the first fragment as it came; false where that has not come.
    pub(super) fn show_first(&mut self) -> bool {
        let has_first = self.has_first();
        if has_first {
            self.show(self.first_len);
        }
        has_first
    }

    /// Makes the packet the first fragment's headers and so much of the payload.
    #[inline]
    fn show(&mut self, payload_len: u16) -> &mut Packet {
        let (l3, header_len) = (self.l3, usize::from(self.header_len));
        let start = self.base as usize - header_len;
        let home = self.home_mut();
        // Its data are the whole slot, whose length need not be looked up again.
        home.trim_front(start);
        home.truncate(header_len + usize::from(payload_len));
        let meta = home.meta_mut();
        meta.l3_offset = l3;
        meta.l4_offset = 0;
        meta.offload.remove(Offload::CSUM_VALID);
        meta.offload.remove(Offload::CSUM_PARTIAL);
        home
    }

    fn has_first(&self) -> bool {
        self.header_len != 0
    }

    /// How many fragments have come.
    #[inline]
    pub(super) fn fragments(&self) -> u64 {
        self.fragments.into()
    }

    /// Bytes of its slot.
    #[inline]
    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes as usize
    }

    /// Length of a frame that holds the bytes so far and an admitted fragment.
    pub(super) fn frame_bytes_with(&self, piece: &Piece) -> usize {
        self.headers_with(piece) + self.end()
    }

    /// Moves to a fresh packet of at least [`frame_bytes_with`](Self::frame_bytes_with); gives back
    /// the old one.
    pub(super) fn move_to(&mut self, mut home: Packet, piece: &Piece) -> Packet {
        let base = home.headroom() + self.headers_with(piece);
        home.widen();
        let old_base = self.base as usize;
        let old = self.home();
        let headers = usize::from(self.header_len);
        let bytes = (old.len() - old_base).min(self.end());
        let data = &mut home.data_mut()[base - headers..][..headers + bytes];
        data.copy_from_slice(&old.data()[old_base - headers..old_base + bytes]);
        home.copy_meta(old);
        self.base = base as u32;
        self.slot_bytes = home.len() as u32;
        self.packet
            .replace(home)
            .expect("a datagram in the table has its slot")
    }

    /// Bytes of headers that the slot must have room for.
    fn headers_with(&self, piece: &Piece) -> usize {
        match piece.start == 0 || !self.has_first() {
            true => piece.header_len.into(),
            false => self.header_len.into(),
        }
    }

    /// One behind the last byte that has come.
    fn end(&self) -> usize {
        let runs = &self.runs[..usize::from(self.runs_len)];
        runs.iter().map(|run| run.end).max().unwrap_or(0).into()
    }

    #[inline]
    fn note_first(&mut self, piece: &Piece) {
        self.header_len = piece.header_len;
        self.first_len = piece.end - piece.start;
        self.l3 = piece.l3;
        self.next_at = piece.next_at;
        self.next_header = piece.next;
    }

    fn has_same_bytes(&self, piece: &Piece, frame: &[u8]) -> bool {
        let start = self.base as usize + usize::from(piece.start);
        self.home().data()[start..][..piece.len()] == *piece.payload(frame)
    }

    #[inline]
    fn home(&self) -> &Packet {
        let home = self.packet.as_ref();
        home.expect("a datagram in the table has its slot")
    }

    #[inline]
    fn home_mut(&mut self) -> &mut Packet {
        let home = self.packet.as_mut();
        home.expect("a datagram in the table has its slot")
    }
}

/// The first slot of a datagram.
pub(super) struct Home {
    pub(super) packet: Packet,
    base: u32,
    is_lone: bool,
}

/// Makes a fragment's own slot the datagram's; it fits there up to its end.
#[inline]
pub(super) fn settle(mut packet: Packet, piece: &Piece) -> Home {
    let base = packet.headroom() + usize::from(piece.header_len);
    packet.widen();
    Home {
        packet,
        base: base as u32,
        is_lone: piece.start != 0,
    }
}

/// Makes a fresh packet the datagram's slot, and copies the fragment to its place there.
#[cold]
pub(super) fn settle_in(mut home: Packet, packet: &Packet, piece: &Piece) -> Home {
    let (headers, frame) = (usize::from(piece.header_len), packet.data());
    let base = home.headroom() + headers;
    home.widen();
    let data = home.data_mut();
    data[base - headers..base].copy_from_slice(&frame[..headers]);
    let payload = piece.payload(frame);
    data[base + usize::from(piece.start)..][..payload.len()].copy_from_slice(payload);
    home.copy_meta(packet);
    Home {
        packet: home,
        base: base as u32,
        is_lone: false,
    }
}
