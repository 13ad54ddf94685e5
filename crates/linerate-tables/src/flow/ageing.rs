//! How flows end: timers that fire are set again or end their flow, in batches.

use super::Flow;
use super::key::FlowKey;
use super::table::FlowTable;

/// Timers whose entries are fetched at once.
const BATCH: usize = 32;

/// What a poll did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// Flows that ended.
    pub ended: usize,
    /// Flows that were seen since their timer was set: it was set again.
    pub renewed: usize,
    /// The budget ran out: more may be due, and the next poll goes on with it.
    pub behind: bool,
}

impl<F: FlowKey<K>, S: Copy + Default, const K: usize> FlowTable<F, S, K> {
    /// Ends flows whose timeout has passed at tick `now`, and shows each to `ended`. Takes a unit
    /// of `budget` for each timer that it touches, and stops when there is none left. Flows end in
    /// no order that is promised.
    pub fn poll(&mut self, now: u64, budget: usize, mut ended: impl FnMut(&Flow<F, S>)) -> Polled {
        let (mut budget, mut polled) = (budget, Polled::default());
        loop {
            let mut batch = [0; BATCH];
            let fired = self.fire(now, &mut budget, &mut batch);
            let mut over = 0;
            for at in 0..fired {
                let index = batch[at];
                let ends = self.ends(index);
                if ends > now {
                    self.wheel.schedule(index, ends);
                    polled.renewed += 1;
                    continue;
                }
                self.prefetch_end(index);
                batch[over] = index;
                over += 1;
            }
            for &index in &batch[..over] {
                ended(&self.end(index));
            }
            polled.ended += over;
            if fired < BATCH {
                polled.behind = budget == 0 && self.next_expiry().is_some_and(|at| at <= now);
                return polled;
            }
        }
    }

    /// Takes timers that are due off the wheel, until the batch or the budget ends; asks for the
    /// memory of their flows.
    fn fire(&mut self, now: u64, budget: &mut usize, batch: &mut [u32; BATCH]) -> usize {
        for (at, place) in batch.iter_mut().enumerate() {
            let Some((index, _)) = self.wheel.pop(now, budget) else {
                return at;
            };
            self.prefetch(index);
            *place = index;
        }
        BATCH
    }

    /// A tick before which no timer fires: how long one may sleep. A flow may end later than that,
    /// never earlier.
    pub fn next_expiry(&self) -> Option<u64> {
        self.wheel.next_expiry()
    }
}
