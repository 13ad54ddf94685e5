//! A stream ready to write frames: a template, and its varying fields.

use linerate_core::arch::{Vectors, Work};
use linerate_core::env::Isa;
use linerate_core::packet::Packet;

use super::generator::MOST;
use super::vary::{Heads, Rows, Variation};
use crate::figures::TemplateView;
use crate::signature::Label;

/// A stream ready to write frames.
#[derive(Debug)]
pub struct Stream {
    /// For its signatures: the session, and the stream's number in it.
    pub session: u16,
    id: u16,
    is_signed: bool,
    /// The longest frame. Words that vary are not yet in it.
    template: Box<[u8]>,
    mean_frame_bytes: f64,
    view: TemplateView,
    variation: Option<Box<Variation>>,
    vectors: Vectors,
}

/// A buffer for a frame.
trait Room {
    /// Exactly `len` bytes of it; `None` if it is too small.
    fn take(&mut self, len: usize) -> Option<&mut [u8]>;
}

impl Room for Packet {
    #[inline(always)]
    fn take(&mut self, len: usize) -> Option<&mut [u8]> {
        (self.len() == len || self.set_len(len)).then(|| self.data_mut())
    }
}

impl Room for Vec<u8> {
    fn take(&mut self, len: usize) -> Option<&mut [u8]> {
        self.resize(len, 0);
        Some(self)
    }
}

impl Stream {
    pub(super) fn new(
        id: u16,
        is_signed: bool,
        template: Vec<u8>,
        mean_frame_bytes: f64,
        view: TemplateView,
        variation: Option<Variation>,
    ) -> Self {
        Self {
            session: 0,
            id,
            is_signed,
            template: template.into(),
            mean_frame_bytes,
            view,
            variation: variation.map(Box::new),
            vectors: Vectors::up_to(Isa::detect()),
        }
    }

    /// Longest frame in memory: bytes without FCS. Packets need slots that take it.
    pub fn max_len(&self) -> usize {
        self.template.len()
    }

    /// Mean size of its frames, FCS included: used for rates in bits a second.
    pub fn mean_frame_bytes(&self) -> f64 {
        self.mean_frame_bytes
    }

    /// What the display shows.
    pub fn view(&self) -> TemplateView {
        self.view.clone()
    }

    /// Writes its next frames into `packets`, fresh ones of any length (best of
    /// [`Stream::max_len`]), one for each of `stamps` (the ticks at which each is to be sent).
    /// Sequence numbers go up from `first`; varying fields depend on them, so that refused frames
    /// are written the same again.
    ///
    /// Packets whose slots are too small are left as they are.
    #[inline]
    pub fn write(&mut self, packets: &mut [Packet], stamps: &[u64], first: u64) {
        self.vectors.run(Writing {
            stream: self,
            rooms: packets,
            stamps,
            first,
        });
    }

    /// The next `count` frames from number `first` on, all with the stamp 0: to look at.
    pub fn frames(&mut self, first: u64, count: usize) -> Vec<Vec<u8>> {
        let mut frames = vec![Vec::new(); count];
        self.write_into(&mut frames, &vec![0; count], first);
        frames
    }

    #[inline(always)]
    fn write_into<R: Room>(&mut self, rooms: &mut [R], stamps: &[u64], first: u64) {
        let bursts = rooms.chunks_mut(MOST).zip(stamps.chunks(MOST));
        for ((rooms, stamps), first) in bursts.zip((first..).step_by(MOST)) {
            let labels = Labels {
                session: self.session,
                stream: self.id,
                is_signed: self.is_signed,
                first,
                stamps,
            };
            let template = &*self.template;
            let Some(variation) = &mut self.variation else {
                match (template.len(), Ends::of(template), Ends::of(template)) {
                    (32..=64, Some(ends), _) => copies::<_, 32>(rooms, &labels, template, ends),
                    (65..=128, _, Some(ends)) => copies::<_, 64>(rooms, &labels, template, ends),
                    _ => copies_of_any(rooms, &labels, template),
                }
                continue;
            };
            let (rows, heads) = variation.split();
            match rows {
                Rows::Short(rows) => varied(rooms, &labels, template, rows, heads, self.vectors),
                Rows::Long(rows) => varied(rooms, &labels, template, rows, heads, self.vectors),
            }
        }
    }
}

/// One call of [`Stream::write`].
struct Writing<'a, R> {
    stream: &'a mut Stream,
    rooms: &'a mut [R],
    stamps: &'a [u64],
    first: u64,
}

impl<R: Room> Work for Writing<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.stream.write_into(self.rooms, self.stamps, self.first);
    }
}

/// The signatures of a burst's frames.
#[derive(Clone, Copy)]
struct Labels<'a> {
    session: u16,
    stream: u16,
    is_signed: bool,
    first: u64,
    stamps: &'a [u64],
}

impl Labels<'_> {
    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = Label> {
        let numbered = self.stamps.iter().zip(self.first..);
        numbered.map(|(&stamp, sequence)| Label {
            session: self.session,
            stream: self.stream,
            sequence,
            stamp,
        })
    }

    #[inline(always)]
    fn sign(&self, frame: &mut [u8], label: Label) {
        if let (true, Some(tail)) = (self.is_signed, frame.last_chunk_mut()) {
            label.write(tail);
        }
    }
}

/// The first and the last bytes of a template that has no others; they may overlap.
#[derive(Clone, Copy)]
struct Ends<const HALF: usize> {
    first: [u8; HALF],
    last: [u8; HALF],
}

impl<const HALF: usize> Ends<HALF> {
    fn of(template: &[u8]) -> Option<Self> {
        let (first, last) = (*template.first_chunk()?, *template.last_chunk()?);
        (template.len() <= 2 * HALF).then_some(Self { first, last })
    }
}

/// Frames that differ in their signatures only, of up to twice `HALF` bytes: they come out of
/// registers.
#[inline(always)]
fn copies<R: Room, const HALF: usize>(
    rooms: &mut [R],
    labels: &Labels<'_>,
    template: &[u8],
    ends: Ends<HALF>,
) {
    for (room, label) in rooms.iter_mut().zip(labels.each()) {
        let Some(frame) = room.take(template.len()) else {
            continue;
        };
        if let Some(to) = frame.first_chunk_mut() {
            *to = ends.first;
        }
        if let Some(to) = frame.last_chunk_mut() {
            *to = ends.last;
        }
        labels.sign(frame, label);
    }
}

/// The same of any length.
#[inline(always)]
fn copies_of_any<R: Room>(rooms: &mut [R], labels: &Labels<'_>, template: &[u8]) {
    for (room, label) in rooms.iter_mut().zip(labels.each()) {
        let Some(frame) = room.take(template.len()) else {
            continue;
        };
        frame.copy_from_slice(template);
        labels.sign(frame, label);
    }
}

/// Frames whose heads differ.
#[inline(always)]
fn varied<R: Room, const HEAD: usize>(
    rooms: &mut [R],
    labels: &Labels<'_>,
    template: &[u8],
    rows: &mut [[u8; HEAD]; MOST],
    heads: &mut Heads,
    vectors: Vectors,
) {
    let rows = &mut rows[..rooms.len().min(labels.stamps.len())];
    heads.make(rows, labels.first, vectors);
    let only = heads.only_len();
    let frames = rooms.iter_mut().zip(labels.each());
    for (number, (row, (room, label))) in rows.iter().zip(frames).enumerate() {
        let len = only.unwrap_or_else(|| heads.len_of(number));
        let (Some(frame), Some(template)) = (room.take(len), template.get(..len)) else {
            continue;
        };
        copy_row(frame, row, template);
        labels.sign(frame, label);
    }
}

/// Copies a head, and what is behind it from the template. Both others are of the frame's length.
#[inline(always)]
fn copy_row<const HEAD: usize>(frame: &mut [u8], row: &[u8; HEAD], template: &[u8]) {
    let len = frame.len();
    let Some(behind) = len.checked_sub(HEAD) else {
        return match len {
            ..=64 => copy_short(frame, &row[..len]),
            65..=128 => copy_middle(frame, &row[..len]),
            _ => frame.copy_from_slice(&row[..len]),
        };
    };
    if behind > 64 {
        frame[HEAD..len - 64].copy_from_slice(&template[HEAD..len - 64]);
    }
    if let (Some(to), Some(from)) = (frame.last_chunk_mut::<64>(), template.last_chunk::<64>()) {
        *to = *from;
    }
    // Last, since the tail's copy may reach into the head.
    if let Some(to) = frame.first_chunk_mut() {
        *to = *row;
    }
}

/// Copies 32 to 64 bytes, without a call: the shortest frames.
#[inline(always)]
fn copy_short(to: &mut [u8], from: &[u8]) {
    copy_halves::<32>(to, from);
}

/// Copies 64 to 128 bytes.
#[inline(always)]
fn copy_middle(to: &mut [u8], from: &[u8]) {
    copy_halves::<64>(to, from);
}

/// Copies `HALF` to twice as many bytes: the first ones and the last ones, which may overlap.
#[inline(always)]
fn copy_halves<const HALF: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<HALF>(), from.first_chunk()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<HALF>(), from.last_chunk()) {
        *to = *from;
    }
}
