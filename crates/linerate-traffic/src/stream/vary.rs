//! Writes varying fields, a burst at a time.
//!
//! The heads of up to 64 frames lie side by side in rows. Field by field, a burst's values are
//! made, written into the rows, and added to the sums of the checksums over them; the checksums are
//! written last, and the rows copied into the packets. Field, width and checksums are decided once
//! per field and burst.

use std::num::Wrapping;
use std::ops::Shl;

use linerate_core::arch::{Vectors, Work};

use super::generator::{Generator, MOST, Word};
use super::layout::Slot;
use super::values::Values;

/// Sizes of frames, and the words that depend on them.
#[derive(Debug, Default)]
pub(super) struct SizeTable {
    /// In memory, of each size.
    pub(super) lens: Vec<usize>,
    /// Order of the sizes; `None` for a single size.
    pub(super) order: Option<Generator<Wrapping<u32>>>,
    /// Positions of the words that depend on the size; empty for a single size.
    pub(super) patch_at: Vec<usize>,
    /// Those words, for each size.
    pub(super) patches: Vec<[u8; 2]>,
    /// For each size, the sum of each live checksum over the constant bytes.
    pub(super) bases: Vec<u32>,
}

/// A checksum that differs from frame to frame.
#[derive(Debug)]
pub(super) struct LiveSum {
    pub(super) at: usize,
    /// A computed zero is sent as all ones.
    pub(super) nonzero: bool,
    /// Live checksums that cover this one.
    pub(super) feeds: Vec<usize>,
}

/// Heads of a burst's frames.
#[derive(Debug)]
pub(super) enum Rows {
    Short(Box<[[u8; 64]; MOST]>),
    Long(Box<[[u8; 192]; MOST]>),
}

/// The varying fields of a stream.
#[derive(Debug)]
pub(super) struct Variation {
    pub(super) rows: Rows,
    heads: Heads,
}

/// All but the rows.
#[derive(Debug)]
pub(super) struct Heads {
    table: SizeTable,
    /// The size of each row.
    picks: Box<[Wrapping<u32>; MOST]>,
    fields: Vec<FieldWriter>,
    live: Vec<LiveSum>,
    sums: Vec<[u32; MOST]>,
    /// Frames written, and those at the last mark.
    position: u64,
    mark: u64,
}

fn rows<const HEAD: usize>(template: &[u8]) -> Box<[[u8; HEAD]; MOST]> {
    let mut row = [0; HEAD];
    let len = template.len().min(HEAD);
    row[..len].copy_from_slice(&template[..len]);
    Box::new([row; MOST])
}

impl Variation {
    pub(super) fn new(
        table: SizeTable,
        fields: Vec<FieldWriter>,
        live: Vec<LiveSum>,
        template: &[u8],
    ) -> Self {
        let ends = fields.iter().map(FieldWriter::end);
        let ends = ends.chain(live.iter().map(|sum| sum.at + 2));
        let end = ends.chain(table.patch_at.iter().map(|at| at + 2)).max();
        let rows = match end.unwrap_or(0) {
            0..=64 => Rows::Short(rows(template)),
            _ => Rows::Long(rows(template)),
        };
        let heads = Heads {
            table,
            picks: Box::new([Wrapping(0); MOST]),
            fields,
            sums: vec![[0; MOST]; live.len()],
            live,
            position: 0,
            mark: 0,
        };
        Self { rows, heads }
    }

    pub(super) fn split(&mut self) -> (&mut Rows, &mut Heads) {
        (&mut self.rows, &mut self.heads)
    }
}

impl Heads {
    /// Makes the heads of the frames from number `first` on, one in each row. Out of line, since it
    /// is large.
    #[inline(never)]
    pub(super) fn make<const HEAD: usize>(
        &mut self,
        rows: &mut [[u8; HEAD]],
        first: u64,
        vectors: Vectors,
    ) {
        if first != self.position {
            self.seek(first);
        }
        self.mark = first;
        self.position = first + rows.len() as u64;
        vectors.run(Making { heads: self, rows });
    }

    #[inline(always)]
    fn fill<const HEAD: usize>(&mut self, rows: &mut [[u8; HEAD]]) {
        match &mut self.table.order {
            None => {
                for (sums, &base) in self.sums.iter_mut().zip(&self.table.bases) {
                    sums[..rows.len()].fill(base);
                }
            }
            Some(order) => {
                order.mark();
                order.fill(&mut self.picks[..rows.len()]);
                self.apply_sizes(rows);
            }
        }
        for field in &mut self.fields {
            field.write(rows, &mut self.sums);
        }
        for number in 0..self.live.len() {
            self.finish_sum(number, rows);
        }
    }

    /// Length of the frame in row `row`.
    #[inline(always)]
    pub(super) fn len_of(&self, row: usize) -> usize {
        self.table.lens[self.picks[row].0 as usize]
    }

    /// The length of all frames, where they have the same.
    #[inline(always)]
    pub(super) fn only_len(&self) -> Option<usize> {
        match self.table.order {
            None => self.table.lens.first().copied(),
            Some(_) => None,
        }
    }

    #[inline(always)]
    fn apply_sizes<const HEAD: usize>(&mut self, rows: &mut [[u8; HEAD]]) {
        let (count, live) = (self.table.patch_at.len(), self.live.len());
        for (number, &at) in self.table.patch_at.iter().enumerate() {
            assert!(at + 2 <= HEAD, "patches lie in the heads");
            for (row, pick) in rows.iter_mut().zip(self.picks.iter()) {
                let word = self.table.patches[pick.0 as usize * count + number];
                row[at..at + 2].copy_from_slice(&word);
            }
        }
        for (number, sums) in self.sums.iter_mut().enumerate() {
            for (sum, pick) in sums[..rows.len()].iter_mut().zip(self.picks.iter()) {
                *sum = self.table.bases[pick.0 as usize * live + number];
            }
        }
    }

    /// Writes one checksum into the rows.
    #[inline(always)]
    fn finish_sum<const HEAD: usize>(&mut self, number: usize, rows: &mut [[u8; HEAD]]) {
        let live = &self.live[number];
        let sums = &mut self.sums[number];
        // 0 to 0xffff more where zero is no checksum.
        let zero = if live.nonzero { 0xffff } else { 0 };
        for sum in sums[..rows.len()].iter_mut() {
            let folded = (*sum & 0xffff) + (*sum >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            let checksum = !folded & 0xffff;
            *sum = if checksum == 0 { zero } else { checksum };
        }
        assert!(live.at + 2 <= HEAD, "checksums lie in the heads");
        for (row, sum) in rows.iter_mut().zip(sums.iter()) {
            row[live.at..live.at + 2].copy_from_slice(&(*sum as u16).to_be_bytes());
        }
        let checksums = *sums;
        for &over in &live.feeds {
            for (sum, checksum) in self.sums[over].iter_mut().zip(&checksums) {
                *sum += checksum;
            }
        }
    }

    /// Continues with frame `first`: the port took fewer than it was given, or the stream restarts.
    #[cold]
    fn seek(&mut self, first: u64) {
        if (self.mark..self.position).contains(&first) {
            self.fields.iter_mut().for_each(FieldWriter::back);
            self.table.order.iter_mut().for_each(Generator::back);
            self.position = self.mark;
        } else if first < self.position {
            self.fields.iter_mut().for_each(FieldWriter::restart);
            self.table.order.iter_mut().for_each(Generator::restart);
            self.position = 0;
        }
        let mut rows = [[0; 192]; MOST];
        while self.position < first {
            let count = (first - self.position).min(MOST as u64) as usize;
            for field in &mut self.fields {
                field.write(&mut rows[..count], &mut self.sums);
            }
            if let Some(order) = &mut self.table.order {
                order.fill(&mut self.picks[..count]);
            }
            self.position += count as u64;
        }
    }
}

/// One call of [`Heads::make`].
struct Making<'a, const HEAD: usize> {
    heads: &'a mut Heads,
    rows: &'a mut [[u8; HEAD]],
}

impl<const HEAD: usize> Work for Making<'_, HEAD> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.heads.fill(self.rows);
    }
}

/// Writes one field into the rows.
#[expect(
    clippy::large_enum_variant,
    reason = "a stream has a few; a box would cost each burst a cache miss"
)]
#[derive(Debug)]
pub(super) enum FieldWriter {
    /// Of 1 or 2 bytes.
    Short(Writer<Wrapping<u16>>),
    /// Of 4.
    Narrow(Writer<Wrapping<u32>>),
    /// Of 6 or 8.
    Wide(Writer<Wrapping<u64>>),
    /// Of 16.
    Broad(Writer<Wrapping<u128>>),
}

#[derive(Debug)]
pub(super) struct Writer<W> {
    generator: Generator<W>,
    slot: Slot,
    /// The other bits of the word; 0 if `mask` is set.
    base: W,
    /// The field's bits of a word that it shares with another varying field.
    mask: Option<W>,
    /// Live checksums over it.
    sums: Vec<usize>,
}

/// The values of a field, and their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn<'a> {
    pub(super) values: &'a Values,
    /// Seed of random values.
    pub(super) seed: u64,
    /// Frames that each value is for.
    pub(super) every: u128,
}

impl FieldWriter {
    pub(super) fn new(
        slot: Slot,
        drawn: Drawn<'_>,
        base: u128,
        mask: Option<u128>,
        sums: Vec<usize>,
    ) -> Self {
        match slot.bytes {
            1..=2 => Self::Short(Writer::new(slot, drawn, base, mask, sums)),
            3..=4 => Self::Narrow(Writer::new(slot, drawn, base, mask, sums)),
            5..=8 => Self::Wide(Writer::new(slot, drawn, base, mask, sums)),
            _ => Self::Broad(Writer::new(slot, drawn, base, mask, sums)),
        }
    }

    /// The first byte behind it.
    fn end(&self) -> usize {
        let slot = match self {
            Self::Short(writer) => writer.slot,
            Self::Narrow(writer) => writer.slot,
            Self::Wide(writer) => writer.slot,
            Self::Broad(writer) => writer.slot,
        };
        slot.at + slot.bytes
    }

    #[inline(always)]
    fn write<const HEAD: usize>(&mut self, rows: &mut [[u8; HEAD]], sums: &mut [[u32; MOST]]) {
        match self {
            Self::Short(writer) => writer.write(rows, sums),
            Self::Narrow(writer) => writer.write(rows, sums),
            Self::Wide(writer) => writer.write(rows, sums),
            Self::Broad(writer) => writer.write(rows, sums),
        }
    }

    fn back(&mut self) {
        match self {
            Self::Short(writer) => writer.generator.back(),
            Self::Narrow(writer) => writer.generator.back(),
            Self::Wide(writer) => writer.generator.back(),
            Self::Broad(writer) => writer.generator.back(),
        }
    }

    fn restart(&mut self) {
        match self {
            Self::Short(writer) => writer.generator.restart(),
            Self::Narrow(writer) => writer.generator.restart(),
            Self::Wide(writer) => writer.generator.restart(),
            Self::Broad(writer) => writer.generator.restart(),
        }
    }
}

impl<W: Stored> Writer<W> {
    fn new(slot: Slot, drawn: Drawn<'_>, base: u128, mask: Option<u128>, sums: Vec<usize>) -> Self {
        Self {
            generator: Generator::new(drawn.values, drawn.seed).slower(drawn.every),
            slot,
            base: W::cut(base),
            mask: mask.map(W::cut),
            sums,
        }
    }

    #[inline(always)]
    fn write<const HEAD: usize>(&mut self, rows: &mut [[u8; HEAD]], sums: &mut [[u32; MOST]]) {
        let mut words = [W::cut(0); MOST];
        let words = &mut words[..rows.len()];
        self.generator.mark();
        self.generator.fill(words);
        let Slot {
            at, bytes, shift, ..
        } = self.slot;
        assert!(at + bytes <= HEAD, "fields lie in the heads");
        if shift > 0 || self.base != W::cut(0) {
            for word in words.iter_mut() {
                *word = (*word << shift) + self.base;
            }
        }
        match self.mask {
            None => W::store(rows, at, bytes, words),
            Some(mask) => W::mix(rows, at, bytes, mask, words),
        }
        // A byte at an even offset is the high one of its 16-bit word.
        let high = bytes == 1 && at.is_multiple_of(2);
        for &over in &self.sums {
            for (sum, &word) in sums[over].iter_mut().zip(words.iter()) {
                *sum += if high { word.part() << 8 } else { word.part() };
            }
        }
    }
}

/// Words as they go into rows, big endian, and into sums.
pub(super) trait Stored: Word + Shl<usize, Output = Self> {
    /// Writes the low `bytes` of each word into its row.
    fn store<const HEAD: usize>(rows: &mut [[u8; HEAD]], at: usize, bytes: usize, words: &[Self]);

    /// Writes those bits that `mask` has, and leaves the others.
    fn mix<const HEAD: usize>(
        rows: &mut [[u8; HEAD]],
        at: usize,
        bytes: usize,
        mask: Self,
        words: &[Self],
    ) {
        for (row, &word) in rows.iter_mut().zip(words) {
            let old = row[at..at + bytes].iter();
            let old = old.fold(0, |old, &byte| old << 8 | u128::from(byte));
            let new = (old & !mask.wide() | word.wide()).to_be_bytes();
            row[at..at + bytes].copy_from_slice(&new[16 - bytes..]);
        }
    }

    /// What it adds to a one's complement sum: its 16-bit words.
    fn part(self) -> u32;
}

impl Stored for Wrapping<u16> {
    #[inline(always)]
    fn store<const HEAD: usize>(rows: &mut [[u8; HEAD]], at: usize, bytes: usize, words: &[Self]) {
        let pairs = rows.iter_mut().zip(words);
        match bytes {
            1 => pairs.for_each(|(row, word)| row[at] = word.0 as u8),
            _ => pairs.for_each(|(row, word)| {
                row[at..at + 2].copy_from_slice(&word.0.to_be_bytes());
            }),
        }
    }

    #[inline(always)]
    fn part(self) -> u32 {
        self.0.into()
    }
}

impl Stored for Wrapping<u32> {
    #[inline(always)]
    fn store<const HEAD: usize>(rows: &mut [[u8; HEAD]], at: usize, _: usize, words: &[Self]) {
        for (row, word) in rows.iter_mut().zip(words) {
            row[at..at + 4].copy_from_slice(&word.0.to_be_bytes());
        }
    }

    #[inline(always)]
    fn part(self) -> u32 {
        (self.0 & 0xffff) + (self.0 >> 16)
    }
}

impl Stored for Wrapping<u64> {
    #[inline(always)]
    fn store<const HEAD: usize>(rows: &mut [[u8; HEAD]], at: usize, bytes: usize, words: &[Self]) {
        let pairs = rows.iter_mut().zip(words);
        match bytes {
            6 => pairs.for_each(|(row, word)| {
                row[at..at + 6].copy_from_slice(&word.0.to_be_bytes()[2..]);
            }),
            _ => pairs.for_each(|(row, word)| {
                row[at..at + 8].copy_from_slice(&word.0.to_be_bytes());
            }),
        }
    }

    #[inline(always)]
    fn part(self) -> u32 {
        sum_of(self.0)
    }
}

impl Stored for Wrapping<u128> {
    #[inline(always)]
    fn store<const HEAD: usize>(rows: &mut [[u8; HEAD]], at: usize, _: usize, words: &[Self]) {
        for (row, word) in rows.iter_mut().zip(words) {
            row[at..at + 16].copy_from_slice(&word.0.to_be_bytes());
        }
    }

    #[inline(always)]
    fn part(self) -> u32 {
        sum_of(self.0 as u64) + sum_of((self.0 >> 64) as u64)
    }
}

/// Sum of the four 16-bit words of a number.
#[inline(always)]
fn sum_of(word: u64) -> u32 {
    let halves = (word & 0xffff_ffff) + (word >> 32);
    ((halves & 0xffff) + (halves >> 16 & 0xffff) + (halves >> 32)) as u32
}
