//! The ring that a queue has: of either kind, in either role, with what a burst needs besides.

use super::frames::{Receiving, Shape, Transmitting};
use super::gauge::Posted;
use super::inflight::Area;
use super::lent::Lent;
use super::memory::Memory;
use super::recorded::{Record, Recordable};
use super::{Look, Ring, packed, split};
use crate::peer::exposed::ExposedPools;
use crate::peer::kick::Notify;
use crate::peer::violations::Violation;
use linerate_core::mem::Untrusted;
use linerate_core::packet::{Burst, Offload, PoolCache};
use std::sync::Arc;

/// Either kind of ring in either role: chosen once a burst.
#[derive(Debug)]
pub(crate) enum AnyRing {
    SplitDevice(split::Device),
    PackedDevice(packed::Device),
    SplitDriver(split::Driver),
    PackedDriver(packed::Driver),
    /// A driver of either kind whose buffers are slots of ours.
    SplitLent(Box<Lent<split::Driver>>),
    PackedLent(Box<Lent<packed::Driver>>),
    /// A device of either kind that keeps a record.
    Recorded(Box<dyn Record>),
}

impl AnyRing {
    pub(crate) fn as_dyn(&mut self) -> &mut dyn Ring {
        match self {
            Self::SplitDevice(ring) => ring,
            Self::PackedDevice(ring) => ring,
            Self::SplitDriver(ring) => ring,
            Self::PackedDriver(ring) => ring,
            Self::SplitLent(lent) => &mut lent.ring,
            Self::PackedLent(lent) => &mut lent.ring,
            Self::Recorded(ring) => &mut **ring,
        }
    }

    /// Where a device stands, as `GET_VRING_BASE` tells it; `None` for a driver.
    pub(crate) fn base(&self) -> Option<u32> {
        match self {
            Self::SplitDevice(ring) => Some(Recordable::base(ring)),
            Self::PackedDevice(ring) => Some(Recordable::base(ring)),
            Self::Recorded(ring) => Some(ring.base()),
            _ => None,
        }
    }

    /// Of a driver: up to where the device used the ring, as `SET_VRING_BASE` tells it; `None`
    /// where that cannot be, or for a device.
    pub(crate) fn used(&self, memory: &Memory) -> Option<u32> {
        match self {
            Self::SplitDriver(ring) => ring.used(memory).ok().map(u32::from),
            Self::PackedDriver(ring) => {
                let bits = u32::from(ring.used(memory).ok()?.bits());
                Some(bits << 16 | bits)
            }
            _ => None,
        }
    }

    /// Whether a device that goes by this record finds its place in a driver's ring: a split ring
    /// says itself where it was used up to.
    pub(crate) fn agrees(&self, memory: &Memory, record: &Area) -> bool {
        match self {
            Self::PackedDriver(ring) => {
                let used = ring.used(memory).ok();
                let recorded = packed::record::positions(record);
                used.zip(recorded)
                    .is_some_and(|(used, recorded)| recorded.contains(&used))
            }
            _ => true,
        }
    }

    /// The files of its record.
    pub(super) fn files(&self) -> Vec<Arc<Untrusted>> {
        match self {
            Self::Recorded(ring) => ring.files(),
            _ => Vec::new(),
        }
    }

    /// The pools that the device maps.
    pub(super) fn pools(&self) -> Option<ExposedPools> {
        match self {
            Self::SplitLent(lent) => Some(lent.pools().clone()),
            Self::PackedLent(lent) => Some(lent.pools().clone()),
            _ => None,
        }
    }

    /// Slots of ours that the device has.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::SplitLent(lent) => lent.count(),
            Self::PackedLent(lent) => lent.count(),
            _ => 0,
        }
    }

    /// Where the device is to fill slots of ours: it gets the first ones, inside the gate.
    pub(crate) fn lend_first(&mut self, memory: &Memory, port: u16) -> Result<(), Violation> {
        match self {
            Self::SplitLent(lent) => lent.lend_first(memory, port),
            Self::PackedLent(lent) => lent.lend_first(memory, port),
            _ => Ok(()),
        }
    }
}

/// A queue that runs.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) ring: AnyRing,
    pub(crate) memory: Arc<Memory>,
    pub(crate) shape: Shape,
    /// What the other side finishes of frames that it gets.
    pub(crate) takes: Offload,
    /// Notifies the other side, by the queue's number.
    pub(crate) notify: (Notify, usize),
}

impl Active {
    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        receiving: &mut Receiving,
        burst: &mut Burst,
        cache: &mut PoolCache,
        posted: &Posted,
    ) -> Result<usize, Violation> {
        receiving.shape = self.shape;
        let memory = &*self.memory;
        let (done, standing) = match &mut self.ring {
            AnyRing::SplitDevice(ring) => {
                let done = receiving.receive(ring, memory, burst, cache);
                (done, ring.standing())
            }
            AnyRing::PackedDevice(ring) => {
                let done = receiving.receive(ring, memory, burst, cache);
                (done, ring.standing())
            }
            AnyRing::SplitDriver(ring) => {
                let done = receiving.receive(ring, memory, burst, cache);
                (done, ring.standing())
            }
            AnyRing::PackedDriver(ring) => {
                let done = receiving.receive(ring, memory, burst, cache);
                (done, ring.standing())
            }
            AnyRing::SplitLent(lent) => {
                let done = lent.receive(receiving, memory, burst, cache);
                (done, lent.ring.standing())
            }
            AnyRing::PackedLent(lent) => {
                let done = lent.receive(receiving, memory, burst, cache);
                (done, lent.ring.standing())
            }
            AnyRing::Recorded(ring) => {
                let done = receiving.receive(&mut **ring, memory, burst, cache);
                (done, ring.standing())
            }
        };
        posted.set(standing);
        done
    }

    #[inline(always)]
    pub(super) fn transmit(
        &mut self,
        sending: &mut Transmitting,
        burst: &mut Burst,
        cache: &mut PoolCache,
        posted: &Posted,
    ) -> Result<usize, Violation> {
        sending.shape = self.shape;
        let memory = &*self.memory;
        let (done, standing) = match &mut self.ring {
            AnyRing::SplitDevice(ring) => {
                let done = sending.transmit(ring, memory, burst, cache);
                (done, ring.standing())
            }
            AnyRing::PackedDevice(ring) => {
                let done = sending.transmit(ring, memory, burst, cache);
                (done, ring.standing())
            }
            AnyRing::SplitDriver(ring) => {
                let done = sending.transmit(ring, memory, burst, cache);
                (done, ring.standing())
            }
            AnyRing::PackedDriver(ring) => {
                let done = sending.transmit(ring, memory, burst, cache);
                (done, ring.standing())
            }
            AnyRing::SplitLent(lent) => {
                let done = lent.transmit(sending, memory, burst, cache);
                (done, lent.ring.standing())
            }
            AnyRing::PackedLent(lent) => {
                let done = lent.transmit(sending, memory, burst, cache);
                (done, lent.ring.standing())
            }
            AnyRing::Recorded(ring) => {
                let done = sending.transmit(&mut **ring, memory, burst, cache);
                (done, ring.standing())
            }
        };
        posted.set(standing);
        done
    }

    /// Takes slots back that the device has read.
    pub(super) fn reclaim(
        &mut self,
        cache: &mut PoolCache,
        posted: &Posted,
    ) -> Result<(), Violation> {
        let (done, standing) = match &mut self.ring {
            AnyRing::SplitLent(lent) => {
                let done = lent.reclaim(&self.memory, cache);
                (done, lent.ring.standing())
            }
            AnyRing::PackedLent(lent) => {
                let done = lent.reclaim(&self.memory, cache);
                (done, lent.ring.standing())
            }
            _ => return Ok(()),
        };
        posted.set(standing);
        done
    }

    /// Notifies the other side of what was given, if it wants that.
    #[inline(always)]
    pub(crate) fn notify(&mut self, look: Look) {
        let wanted = match &mut self.ring {
            AnyRing::SplitDevice(ring) => ring.must_notify(&self.memory, look),
            AnyRing::PackedDevice(ring) => ring.must_notify(&self.memory, look),
            AnyRing::SplitDriver(ring) => ring.must_notify(&self.memory, look),
            AnyRing::PackedDriver(ring) => ring.must_notify(&self.memory, look),
            AnyRing::SplitLent(lent) => lent.ring.must_notify(&self.memory, look),
            AnyRing::PackedLent(lent) => lent.ring.must_notify(&self.memory, look),
            AnyRing::Recorded(ring) => ring.must_notify(&self.memory, look),
        };
        if wanted {
            self.notify.0.notify(self.notify.1);
        }
    }
}
