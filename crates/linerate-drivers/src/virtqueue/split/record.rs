//! What a split ring's device records (vhost-user, "Inflight I/O tracking", `QueueRegionSplit`).

use super::{Descriptor, Device, Driver, INDIRECT, NEXT, RING_HEAD, WRITE, index_of};
use crate::virtqueue::inflight::{Area, CURRENT, DESC_NUM, Inflight, VERSION};
use crate::virtqueue::memory::Memory;
use crate::virtqueue::recorded::Recordable;
use crate::virtqueue::{Batch, MOST_SEGMENTS, Ring, Violation};
use std::sync::atomic::Ordering;

/// Bytes before the entries.
pub(crate) const HEAD: usize = 16;
const LAST_BATCH_HEAD: usize = 12;
const USED_IDX: usize = 14;

/// Bytes of an entry, which stands for a descriptor: mark, padding, next, counter.
pub(crate) const ENTRY: usize = 16;
const NEXT_OF: usize = 6;
const COUNTER: usize = 8;

fn entry(number: u16) -> usize {
    HEAD + ENTRY * usize::from(number)
}

impl Device {
    /// Reads what an earlier device left, and sets an unused part up. This device stands where the
    /// used ring says.
    pub(crate) fn inflight(&self, area: Area) -> Result<Inflight, Violation> {
        let size = self.rings.size;
        let mut inflight = Inflight::new(area, size);
        let area = inflight.area.clone();
        match area.u16(VERSION)?.get() {
            0 => {
                for number in 0..size {
                    area.u8(entry(number))?.set(0);
                }
                area.u16(DESC_NUM)?.set(size);
                area.u16(LAST_BATCH_HEAD)?.set(0);
                area.u16(USED_IDX)?.set(self.used);
                area.u16(VERSION)?.set(CURRENT);
                return Ok(inflight);
            }
            CURRENT => {}
            _ => return Err(Violation::RegionBad),
        }
        let batch = self.used.wrapping_sub(area.u16(USED_IDX)?.get());
        if batch > size {
            return Err(Violation::RegionBad);
        }
        if batch > 0 {
            // The driver has those back, marked or not.
            let mut number = area.u16(LAST_BATCH_HEAD)?.get();
            for _ in 0..batch {
                let at = entry(inflight.entry(number)?);
                area.u8(at)?.set(0);
                number = area.u16(at + NEXT_OF)?.get();
            }
            area.u16(USED_IDX)?.set(self.used);
        }
        inflight.find(|number| [entry(number), entry(number) + COUNTER])?;
        Ok(inflight)
    }
}

impl Driver {
    /// Up to where the device used the ring, by what stands there now.
    pub(crate) fn used(&self, memory: &Memory) -> Result<u16, Violation> {
        let used = self.rings.view(memory)?.used;
        let index = index_of(used[0].load(Ordering::Acquire));
        self.rings.ahead(index, self.seen).map(|_| index)
    }
}

impl Recordable for Device {
    fn base(&self) -> u32 {
        Device::base(self).into()
    }

    fn given(&self, _: &Memory, log: u64, base: u32, _: &Batch, count: usize) -> Vec<(u64, u64)> {
        let mask = self.rings.size - 1;
        let entries = (0..self.entries(count)).map(|index| {
            let at = (base as u16).wrapping_add(index as u16) & mask;
            (log + RING_HEAD as u64 + 8 * u64::from(at), 8)
        });
        entries.chain([(log + 2, 2)]).collect()
    }

    fn wished(&self, _: &Memory, log: u64, notify: bool) -> Option<(u64, u64)> {
        let event = log + RING_HEAD as u64 + 8 * u64::from(self.rings.size);
        match self.rings.agreed.event_index {
            false => Some((log, 2)),
            true => notify.then_some((event, 2)),
        }
    }

    fn resubmit(
        &mut self,
        inflight: &Inflight,
        memory: &Memory,
        batch: &mut Batch,
        most: usize,
    ) -> Result<(), Violation> {
        let mut near = memory.near(batch.last);
        let table = self.rings.view(memory)?.table;
        for &head in inflight.left.iter().take(most) {
            let first = Descriptor::load(table, head.into()).ok_or(Violation::DescriptorIndex)?;
            if first.flags & (NEXT | INDIRECT | WRITE) == self.direction {
                batch.add(&mut near, first.at, first.bytes, head)?;
            } else {
                self.add_chain(memory, table, batch, head, first)?;
            }
            if batch.segments.len() >= MOST_SEGMENTS {
                break;
            }
        }
        batch.last = near.region;
        let left = inflight.left.len();
        if batch.chains.len() < left || left >= most || batch.segments.len() >= MOST_SEGMENTS {
            return Ok(());
        }
        // A frame may take more than those. What is new comes behind them.
        let seen = self.seen;
        self.seen = seen.wrapping_add(left as u16);
        let taken = self.take(memory, batch, most - left);
        self.seen = seen;
        taken
    }

    fn begin(
        &self,
        inflight: &mut Inflight,
        _: &Memory,
        batch: &Batch,
        count: usize,
    ) -> Result<(), Violation> {
        let area = inflight.area.clone();
        let left = inflight.left.len();
        inflight.giving.clear();
        for (index, chain) in batch.chains[..count].iter().enumerate() {
            inflight.giving.push(inflight.entry(chain.id)?);
            if index >= left {
                area.u64(entry(chain.id) + COUNTER)?.set(inflight.counter);
                area.u8(entry(chain.id))?.set(1);
                inflight.counter = inflight.counter.wrapping_add(1);
            }
        }
        let mut last = area.u16(LAST_BATCH_HEAD)?.get();
        for &number in &inflight.giving {
            area.u16(entry(number) + NEXT_OF)?.set(last);
            area.u16(LAST_BATCH_HEAD)?.set(number);
            last = number;
        }
        Ok(())
    }

    fn end(&self, inflight: &mut Inflight) -> Result<(), Violation> {
        for &number in &inflight.giving {
            inflight.area.u8(entry(number))?.set(0);
        }
        inflight.area.u16(USED_IDX)?.set(self.used);
        let done = inflight.giving.len().min(inflight.left.len());
        inflight.left.drain(..done);
        Ok(())
    }
}
