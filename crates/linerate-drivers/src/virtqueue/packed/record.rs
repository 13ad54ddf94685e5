//! What a packed ring's device records (vhost-user, "Inflight I/O tracking", `QueueRegionPacked`).
//!
//! Entries stand for descriptors, which the device overwrites, so each has a copy of one. Free ones
//! are a list, chains are lists, too.

use super::{Device, Driver, INDIRECT, NEXT, Position, Rest};
use crate::virtqueue::inflight::{Area, CURRENT, DESC_NUM, Inflight, VERSION};
use crate::virtqueue::memory::{Memory, Place};
use crate::virtqueue::recorded::Recordable;
use crate::virtqueue::{Batch, Chain, DESCRIPTOR, MOST_SEGMENTS, Ring, Violation};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes before the entries.
pub(crate) const HEAD: usize = 32;
const FREE_HEAD: usize = 12;
const OLD_FREE_HEAD: usize = 14;
const USED_IDX: usize = 16;
const OLD_USED_IDX: usize = 18;
const USED_WRAP: usize = 20;
const OLD_USED_WRAP: usize = 21;

/// Bytes of an entry: mark, padding, next, last, num, counter, and the descriptor.
pub(crate) const ENTRY: usize = 32;
const NEXT_OF: usize = 2;
const LAST: usize = 4;
const NUM: usize = 6;
const COUNTER: usize = 8;
const ID: usize = 16;
const FLAGS: usize = 18;
const LEN: usize = 20;
const ADDR: usize = 24;

fn entry(number: u16) -> usize {
    HEAD + ENTRY * usize::from(number)
}

/// Where used descriptors go, and the head of the free list: now, or before the last batch.
fn state(area: &Area, [index, wrap, free]: [usize; 3]) -> Result<(Position, u16), Violation> {
    let position = Position {
        at: area.u16(index)?.get(),
        wrap: area.u8(wrap)?.get() & 1 == 1,
    };
    Ok((position, area.u16(free)?.get()))
}

fn set_state(
    area: &Area,
    [index, wrap, free]: [usize; 3],
    (position, head): (Position, u16),
) -> Result<(), Violation> {
    area.u16(free)?.set(head);
    area.u16(index)?.set(position.at);
    area.u8(wrap)?.set(position.wrap.into());
    Ok(())
}

const NOW: [usize; 3] = [USED_IDX, USED_WRAP, FREE_HEAD];
const OLD: [usize; 3] = [OLD_USED_IDX, OLD_USED_WRAP, OLD_FREE_HEAD];

/// Places of the ring that some chains take.
fn places(chains: &[Chain]) -> usize {
    chains.iter().map(|chain| usize::from(chain.places)).sum()
}

/// The descriptors of the chain at an entry, as words of a ring.
fn saved(inflight: &Inflight, head: u16) -> Result<Vec<AtomicU64>, Violation> {
    let area = &inflight.area;
    let count = area.u16(entry(head) + NUM)?.get();
    if count == 0 || count > inflight.size {
        return Err(Violation::RegionBad);
    }
    let mut words = Vec::with_capacity(2 * usize::from(count));
    let mut number = head;
    for left in (0..count).rev() {
        let at = entry(inflight.entry(number)?);
        // As many descriptors as were counted, whatever their flags say now.
        let flags = area.u16(at + FLAGS)?.get() & !NEXT | if left > 0 { NEXT } else { 0 };
        let rest = Rest {
            bytes: area.u32(at + LEN)?.get(),
            id: area.u16(at + ID)?.get(),
            flags,
        };
        words.push(AtomicU64::new(area.u64(at + ADDR)?.get()));
        words.push(AtomicU64::new(rest.word()));
        number = area.u16(at + NEXT_OF)?.get();
    }
    Ok(words)
}

impl Device {
    /// Reads what an earlier device left, sets an unused part up, and says where to go on: where
    /// the part says, or at `base` for an unused one.
    pub(crate) fn inflight(
        area: Area,
        memory: &Memory,
        ring: Place,
        size: u16,
        base: Position,
    ) -> Result<(Inflight, Position), Violation> {
        let mut inflight = Inflight::new(area, size);
        let area = inflight.area.clone();
        match area.u16(VERSION)?.get() {
            0 => {
                for number in 0..size {
                    area.u8(entry(number))?.set(0);
                    area.u16(entry(number) + NEXT_OF)?.set(number + 1);
                }
                area.u16(DESC_NUM)?.set(size);
                set_state(&area, NOW, (base, 0))?;
                set_state(&area, OLD, (base, 0))?;
                area.u16(VERSION)?.set(CURRENT);
                return Ok((inflight, base));
            }
            CURRENT => {}
            _ => return Err(Violation::RegionBad),
        }
        let words = memory
            .at(ring)
            .and_then(|at| at.u64s(ring.at, 2 * usize::from(size)));
        let words = words.ok_or(Violation::RingOutside)?;
        let (mut old, now) = (state(&area, OLD)?, state(&area, NOW)?);
        if !old.0.is_in(size) || !now.0.is_in(size) {
            return Err(Violation::RegionBad);
        }
        // A batch as long as the ring ends where it began, but for the wrap counter.
        if now.0 != old.0 {
            let first = Rest::load(&words[2 * usize::from(old.0.at) + 1]);
            if first.state() != old.0.available() {
                set_state(&area, OLD, now)?;
                old = now;
            }
        }
        set_state(&area, NOW, old)?;
        let (position, mut free) = old;
        for number in 0.. {
            if free >= size {
                break; // what stands behind the last one
            }
            if number == size {
                return Err(Violation::RegionBad); // a circle
            }
            area.u8(entry(free))?.set(0);
            free = area.u16(entry(free) + NEXT_OF)?.get();
        }
        inflight.find(|number| [entry(number), entry(number) + COUNTER])?;
        inflight.restore(words, position)?;
        Ok((inflight, position))
    }
}

/// Where a record says that its device was: after its last batch, or before, if it ended within.
/// `None`: it says nothing that can be.
pub(crate) fn positions(area: &Area) -> Option<[Position; 2]> {
    match area.u16(VERSION).ok()?.get() {
        0 => Some([Position::START; 2]),
        _ => Some([state(area, OLD).ok()?.0, state(area, NOW).ok()?.0]),
    }
}

impl Inflight {
    /// Puts descriptors of what is under way back into the ring, from `position` on. The device
    /// before may have written some of a batch as used before the first one, by which the driver
    /// would have seen it; given back in other batches now, they must not count before their turn.
    fn restore(&self, words: &[AtomicU64], mut position: Position) -> Result<(), Violation> {
        let mut places = 0;
        for &head in &self.left {
            let saved = saved(self, head)?;
            places += saved.len() / 2;
            if places > usize::from(self.size) {
                return Err(Violation::RegionBad);
            }
            for descriptor in saved.chunks_exact(2) {
                let [address, rest] = [0, 1].map(|word| descriptor[word].load(Ordering::Relaxed));
                let mut rest = Rest::load(&AtomicU64::new(rest));
                rest.flags = rest.flags & !(super::AVAILABLE | super::USED) | position.available();
                let at = 2 * usize::from(position.at);
                words[at].store(address, Ordering::Relaxed);
                words[at + 1].store(rest.word(), Ordering::Release);
                position = position.plus(1, self.size);
            }
        }
        Ok(())
    }
}

impl Driver {
    /// Up to where the device used the ring, by what stands there now.
    pub(crate) fn used(&self, memory: &Memory) -> Result<Position, Violation> {
        let words = self.table.view(memory)?;
        let (mut buffers, mut position) = (self.buffers.clone(), self.seen);
        while buffers.offered() > 0 {
            let rest = Rest::load(&words[2 * usize::from(position.at) + 1]);
            if rest.state() != position.used() {
                break;
            }
            let places = match self.table.agreed.in_order {
                true => buffers.release_up_to(rest.id)?,
                false => buffers.release(rest.id)?.into(),
            };
            position = position.plus(places, self.table.size);
        }
        Ok(position)
    }
}

impl Recordable for Device {
    fn base(&self) -> u32 {
        let [seen, used] = Device::base(self).map(Position::bits);
        u32::from(used) << 16 | u32::from(seen)
    }

    /// The descriptors lie in the guest's memory as such. The address of the used ring that the
    /// front end has for the log is that of our event structure (QEMU) or of the ring (DPDK), so it
    /// is not asked.
    fn given(
        &self,
        memory: &Memory,
        _: u64,
        base: u32,
        batch: &Batch,
        count: usize,
    ) -> Vec<(u64, u64)> {
        let mut position = Position::from_bits((base >> 16) as u16);
        let start = memory.guest(self.table.at.ring);
        let together = self.table.agreed.in_order && self.direction == 0;
        let mut given = Vec::with_capacity(count);
        for chain in &batch.chains[..count] {
            if given.is_empty() || !together {
                // Of a descriptor the second half is written.
                let at = start + (DESCRIPTOR * usize::from(position.at)) as u64;
                given.push((at + 8, 8));
            }
            position = position.plus(chain.places.into(), self.table.size);
        }
        given
    }

    fn wished(&self, memory: &Memory, _: u64, _: bool) -> Option<(u64, u64)> {
        Some((memory.guest(self.table.at.device), super::EVENT as u64))
    }

    fn resubmit(
        &mut self,
        inflight: &Inflight,
        memory: &Memory,
        batch: &mut Batch,
        most: usize,
    ) -> Result<(), Violation> {
        for &head in inflight.left.iter().take(most) {
            let words = saved(inflight, head)?;
            let rest = Rest::load(&words[1]);
            if rest.flags & INDIRECT != 0 && words.len() > 2 {
                return Err(Violation::DescriptorFlags);
            }
            self.add_chain(memory, &words, batch, Position::START, rest)?;
            if batch.segments.len() >= MOST_SEGMENTS {
                break;
            }
        }
        let size = usize::from(self.table.size);
        let whole = batch.chains.len() == inflight.left.len();
        if whole && batch.chains.len() < most && places(&batch.chains) < size {
            // A frame may take more than those. What is new comes behind them.
            let seen = self.seen;
            self.seen = seen.plus(places(&batch.chains), self.table.size);
            let taken = self.take(memory, batch, most);
            self.seen = seen;
            taken?;
        }
        match places(&batch.chains) > size {
            true => Err(Violation::ChainTooLong), // lengths were changed meanwhile
            false => Ok(()),
        }
    }

    fn begin(
        &self,
        inflight: &mut Inflight,
        memory: &Memory,
        batch: &Batch,
        count: usize,
    ) -> Result<(), Violation> {
        let (area, size) = (inflight.area.clone(), self.table.size);
        let words = self.table.view(memory)?;
        let (old, new) = batch.chains[..count].split_at(count.min(inflight.left.len()));
        let mut position = self.seen.plus(places(old), size);
        let mut free = area.u16(FREE_HEAD)?.get();
        inflight.giving.clear();
        inflight.giving.extend(inflight.left.iter().take(count));
        for chain in new {
            let head = inflight.entry(free)?;
            area.u16(entry(head) + NUM)?.set(0);
            area.u64(entry(head) + COUNTER)?.set(inflight.counter);
            area.u8(entry(head))?.set(1);
            inflight.counter = inflight.counter.wrapping_add(1);
            for place in 1..=chain.places {
                let (at, word) = (entry(inflight.entry(free)?), 2 * usize::from(position.at));
                let rest = Rest::load(&words[word + 1]);
                area.u64(at + ADDR)?
                    .set(words[word].load(Ordering::Relaxed));
                area.u32(at + LEN)?.set(rest.bytes);
                area.u16(at + ID)?.set(rest.id);
                area.u16(at + FLAGS)?.set(rest.flags);
                area.u16(entry(head) + LAST)?.set(free);
                area.u16(entry(head) + NUM)?.set(place);
                free = area.u16(at + NEXT_OF)?.get();
                area.u16(FREE_HEAD)?.set(free);
                position = position.plus(1, size);
            }
            area.u16(OLD_FREE_HEAD)?.set(free);
            inflight.giving.push(head);
        }
        for &head in &inflight.giving {
            let last = inflight.entry(area.u16(entry(head) + LAST)?.get())?;
            area.u16(entry(last) + NEXT_OF)?.set(free);
            area.u16(FREE_HEAD)?.set(head);
            free = head;
        }
        area.u16(USED_IDX)?.set(position.at);
        area.u8(USED_WRAP)?.set(position.wrap.into());
        Ok(())
    }

    fn end(&self, inflight: &mut Inflight) -> Result<(), Violation> {
        let area = &inflight.area;
        for &head in &inflight.giving {
            area.u8(entry(head))?.set(0);
        }
        let now = state(area, NOW)?;
        set_state(area, OLD, now)?;
        let done = inflight.giving.len().min(inflight.left.len());
        inflight.left.drain(..done);
        Ok(())
    }
}
