//! A device that keeps a record of what it does: which pages it writes to, for a live migration,
//! and what it has under way, for whoever comes after it.
//!
//! This is a [`Ring`] around a device's ring. Without a record there is none of it, and a queue
//! takes the path that it always took.
//!
//! *Where a record of what is under way matters.* Our device looks at a burst, copies it and gives
//! it back before it looks at the next, so between two bursts nothing is under way, and a process
//! that ends while it copies has moved nothing. What is left is the moment in which a burst is
//! given back. A split ring publishes it by one store. A packed ring by several, and nothing in it
//! says up to where a device was: there the record is what makes a device replaceable. And the
//! device before us may have been one that works out of order; what it left is done first.

use super::gauge::{Gauge, Standing};
use super::inflight::Inflight;
use super::log::Log;
use super::memory::Memory;
use super::{Batch, Look, Ring, Violation};
use linerate_core::mem::Untrusted;
use std::fmt::Debug;
use std::sync::Arc;

/// What of a device's writes is logged.
#[derive(Debug)]
pub(crate) struct Marks {
    pub(crate) log: Log,
    /// Buffers (VHOST_F_LOG_ALL).
    pub(crate) buffers: bool,
    /// The ring (VHOST_VRING_F_LOG), and where the log has it.
    pub(crate) ring: Option<u64>,
}

impl Marks {
    /// What was put into the buffers of some chains.
    fn buffers(&self, batch: &Batch, count: usize) -> Result<(), Violation> {
        for chain in &batch.chains[..count] {
            let mut left = chain.put;
            for segment in batch.segments(chain) {
                let bytes = left.min(segment.bytes);
                self.log.mark(segment.at, bytes.into())?;
                left -= bytes;
            }
        }
        Ok(())
    }
}

/// A device's ring of which a record can be kept.
pub(crate) trait Recordable: Ring + Debug + Send {
    /// Where it stands, as `GET_VRING_BASE` tells it.
    fn base(&self) -> u32;

    /// Ranges of its ring that it wrote when it gave the first `count` chains from `base` on: guest
    /// addresses and lengths. `log`: where the log has the used ring.
    fn given(
        &self,
        memory: &Memory,
        log: u64,
        base: u32,
        batch: &Batch,
        count: usize,
    ) -> Vec<(u64, u64)>;

    /// The range that it wrote to say whether it wants to be notified.
    fn wished(&self, memory: &Memory, log: u64, notify: bool) -> Option<(u64, u64)>;

    /// As [`Ring::take`], but first what another device left under way.
    fn resubmit(
        &mut self,
        inflight: &Inflight,
        memory: &Memory,
        batch: &mut Batch,
        most: usize,
    ) -> Result<(), Violation>;

    /// The first `count` chains are about to be given.
    fn begin(
        &self,
        inflight: &mut Inflight,
        memory: &Memory,
        batch: &Batch,
        count: usize,
    ) -> Result<(), Violation>;

    /// They were.
    fn end(&self, inflight: &mut Inflight) -> Result<(), Violation>;
}

/// The ring with its record.
#[derive(Debug)]
pub(crate) struct Recorded<D> {
    device: D,
    marks: Option<Marks>,
    inflight: Option<Inflight>,
}

impl<D: Recordable> Recorded<D> {
    pub(crate) fn new(device: D, marks: Option<Marks>, inflight: Option<Inflight>) -> Self {
        Self {
            device,
            marks,
            inflight,
        }
    }

    /// The log, and where it has the ring, if writes to that are logged.
    fn ring_marks(&self) -> Option<(&Log, u64)> {
        let marks = self.marks.as_ref()?;
        Some((&marks.log, marks.ring?))
    }
}

/// What control asks of it.
pub(crate) trait Record: Ring + Debug + Send {
    /// Where it stands.
    fn base(&self) -> u32;
    /// Files of the record.
    fn files(&self) -> Vec<Arc<Untrusted>>;
}

impl<D: Recordable> Record for Recorded<D> {
    fn base(&self) -> u32 {
        self.device.base()
    }

    fn files(&self) -> Vec<Arc<Untrusted>> {
        let log = self.marks.as_ref().map(|marks| marks.log.file());
        let inflight = self.inflight.as_ref().map(Inflight::file);
        log.into_iter().chain(inflight).cloned().collect()
    }
}

impl<D: Recordable> Ring for Recorded<D> {
    fn size(&self) -> u16 {
        self.device.size()
    }

    fn take(&mut self, memory: &Memory, batch: &mut Batch, most: usize) -> Result<(), Violation> {
        match &mut self.inflight {
            Some(inflight) if inflight.is_left() => {
                self.device.resubmit(inflight, memory, batch, most)
            }
            _ => self.device.take(memory, batch, most),
        }
    }

    fn give(&mut self, memory: &Memory, batch: &Batch, count: usize) -> Result<(), Violation> {
        if count == 0 {
            return Ok(());
        }
        let base = self.device.base();
        if let Some(marks) = self.marks.as_ref().filter(|marks| marks.buffers) {
            marks.buffers(batch, count)?;
        }
        if let Some(inflight) = &mut self.inflight {
            self.device.begin(inflight, memory, batch, count)?;
        }
        self.device.give(memory, batch, count)?;
        if let Some(inflight) = &mut self.inflight {
            self.device.end(inflight)?;
        }
        if let Some((log, at)) = self.ring_marks() {
            for (at, bytes) in self.device.given(memory, at, base, batch, count) {
                log.mark(at, bytes)?;
            }
        }
        Ok(())
    }

    fn must_notify(&mut self, memory: &Memory, look: Look) -> bool {
        self.device.must_notify(memory, look)
    }

    fn want(&mut self, memory: &Memory, notify: bool) {
        self.device.want(memory, notify);
        if let Some((log, at)) = self.ring_marks()
            && let Some((at, bytes)) = self.device.wished(memory, at, notify)
        {
            // It lies in the ring, all of which the log was seen to cover.
            let _ = log.mark(at, bytes);
        }
    }

    fn is_waiting(&self, memory: &Memory) -> bool {
        self.inflight.as_ref().is_some_and(Inflight::is_left) || self.device.is_waiting(memory)
    }

    fn gauge(&self) -> Gauge {
        self.device.gauge()
    }

    fn standing(&self) -> Standing {
        self.device.standing()
    }
}
