//! Buckets move to another worker under load: their packets keep their order, and none is lost.
//!
//! 1. The new owner is told to expect them: packets of these buckets that come to it wait.
//! 2. Each worker that dispatches turns: from then on it hands such packets to the new owner.
//! 3. What they had handed over before is taken from the rings, by all owners. Then the old owner
//!    has seen its last packet of these buckets, since a ring keeps the order.
//! 4. The old owner gives the state away, as values, a bounded number of flows at a time; what it
//!    has sent by others' transmit queues is taken from those rings, too.
//! 5. The new owner takes it, and then the packets that waited.
//!
//! Control waits for the workers; they do not wait for each other, and go on with all else.
//!
//! Buckets move together that have a flow in common: one direction of it comes by the one, the
//! other direction by the other ([`Ties`]).

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use linerate_core::run::{Egress, Handed, Stage, WorkerGone, WorkerHandle};

use crate::bits::Bits;
use crate::bucket::{BUCKETS, Bucket};
use crate::owners::Owner;
use crate::sorter::{Mark, Sorter};

/// How long control sleeps before it looks at the rings once more.
const LOOK: Duration = Duration::from_micros(20);

/// A stage whose state is in buckets. `P` is some of what it knows of the flows of buckets.
pub trait Sharded<P: Send + 'static>: Stage + 'static {
    /// What packets that it hands over carry with them.
    type Mark: Mark;

    /// Its part in dispatch, if it has one.
    fn sorter(&mut self) -> Option<&mut Sorter<Self::Mark>>;

    /// Takes a part of the state of buckets out, and says whether that was the last one.
    fn take(&mut self, buckets: &Bits) -> (P, bool);

    /// Puts a part in. Of all parts the one that was taken last comes first, then the others as
    /// they were taken.
    fn put(&mut self, part: P, out: &mut Egress);

    /// Handles the packets that have waited for these buckets ([`Sorter::release`]).
    fn release(&mut self, buckets: &Bits, out: &mut Egress);
}

/// Buckets that are to go from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Going {
    /// The buckets.
    pub buckets: Bits,
    /// Who has them.
    pub from: Owner,
    /// Who gets them.
    pub to: Owner,
}

/// What has ended a move.
#[derive(Debug, thiserror::Error)]
pub enum Gone {
    /// A worker that only dispatches has ended: the buckets have moved.
    #[error("{0}; the buckets have moved")]
    Dispatcher(WorkerGone),
    /// The old owner has ended, and the flows with it.
    #[error("{0}, and the flows of these buckets with it")]
    Old(WorkerGone),
    /// The new owner has ended: the buckets are with the old one, as before.
    #[error("{0}; the buckets stay where they were")]
    New(WorkerGone),
}

/// Moves buckets. `dispatchers` are all workers that hand packets to owners, the owners
/// themselves among them where they do.
///
/// # Errors
/// A worker has ended meanwhile; [`Gone`] says what that means for the buckets.
pub fn move_buckets<P: Send + 'static, S: Sharded<P>>(
    dispatchers: &[&WorkerHandle<S>],
    (old, new): (&WorkerHandle<S>, &WorkerHandle<S>),
    going: Going,
) -> Result<(), Gone> {
    let Going { buckets, from, to } = going;
    let expects = new.call(move |worker| {
        if let Some(sorter) = worker.stage.sorter() {
            sorter.expect(&buckets);
        }
    });
    expects.map_err(Gone::New)?;
    let mut gone = None;
    let mut handed = Vec::new();
    for dispatcher in dispatchers {
        let turned = dispatcher.call(move |worker| {
            if let Some(sorter) = worker.stage.sorter() {
                sorter.turn(&buckets, to);
            }
            Arc::new(worker.egress.handed())
        });
        match turned {
            Ok(rings) => handed.push((*dispatcher, rings)),
            // What it handed over is in the rings, and is taken from there.
            Err(error) => gone = Some(Gone::Dispatcher(error)),
        }
    }
    for (dispatcher, rings) in handed {
        wait_until_taken(dispatcher, &rings);
    }
    let mut parts = Vec::new();
    let rings = loop {
        let taken = old.call(move |worker| {
            let (part, is_last) = worker.stage.take(&buckets);
            let rings = is_last.then(|| Arc::new(worker.egress.handed()));
            (part, rings)
        });
        let (part, rings) = taken.map_err(Gone::Old)?;
        parts.push(part);
        if let Some(rings) = rings {
            break rings;
        }
    };
    wait_until_taken(old, &rings);
    let left = match give(new, parts) {
        Ok(()) => {
            match new.call(move |worker| worker.stage.release(&buckets, &mut worker.egress)) {
                Ok(()) => return gone.map_or(Ok(()), Err),
                // Its flows have ended with it.
                Err(error) => (Vec::new(), error),
            }
        }
        Err(left) => left,
    };
    let (parts, error) = left;
    for dispatcher in dispatchers {
        // One that has ended dispatches nothing any more.
        let _ = dispatcher.call(move |worker| {
            if let Some(sorter) = worker.stage.sorter() {
                sorter.turn(&buckets, from);
            }
        });
    }
    give(old, parts).map_err(|(_, error)| Gone::Old(error))?;
    Err(Gone::New(error))
}

/// Gives a worker all parts, the last one first; those that it has not taken come back when it has
/// ended, in the order in which they were taken.
fn give<P: Send + 'static, S: Sharded<P>>(
    worker: &WorkerHandle<S>,
    mut parts: Vec<P>,
) -> Result<(), (Vec<P>, WorkerGone)> {
    let last = usize::from(!parts.is_empty());
    parts.rotate_right(last);
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        // Where the closure does not run, the part comes back by this.
        let parcel = Arc::new(Mutex::new(Some(part)));
        let inside = parcel.clone();
        let put = worker.call(move |worker| {
            let part = inside.lock().ok().and_then(|mut parcel| parcel.take());
            if let Some(part) = part {
                worker.stage.put(part, &mut worker.egress);
            }
        });
        if let Err(error) = put {
            let part = parcel.lock().ok().and_then(|mut parcel| parcel.take());
            let mut left: Vec<P> = part.into_iter().chain(parts).collect();
            let first = usize::from(!left.is_empty());
            left.rotate_left(first);
            return Err((left, error));
        }
    }
    Ok(())
}

/// Waits until what a worker had handed over has been taken from its rings.
fn wait_until_taken<S: Stage + 'static>(worker: &WorkerHandle<S>, rings: &Arc<Handed>) {
    loop {
        let rings = rings.clone();
        // One that has ended hands nothing over any more.
        if worker
            .call(move |worker| worker.egress.is_taken(&rings))
            .unwrap_or(true)
        {
            return;
        }
        thread::sleep(LOOK);
    }
}

/// Which buckets of a worker have flows in common, or have had: a flow whose first packet is of one
/// bucket, and whose answers are of another.
#[derive(Clone)]
pub struct Ties(Box<[Bits; BUCKETS]>);

impl Default for Ties {
    fn default() -> Self {
        Self(Box::new([Bits::NONE; BUCKETS]))
    }
}

impl Ties {
    /// A flow of these two begins.
    pub fn add(&mut self, one: Bucket, other: Bucket) {
        self.0[usize::from(one)].set(other);
        self.0[usize::from(other)].set(one);
    }

    /// All flows of these buckets have gone, and of those that they were tied to.
    pub fn forget(&mut self, buckets: &Bits) {
        for (bucket, row) in self.0.iter_mut().enumerate() {
            *row = match buckets.has(bucket as Bucket) {
                true => Bits::NONE,
                false => row.and(buckets.not()),
            };
        }
    }

    /// The buckets that have to have the same owner as this one, and itself.
    pub fn with(&self, bucket: Bucket) -> Bits {
        let (mut all, mut next) = (Bits::NONE, Bits::NONE);
        next.set(bucket);
        while let Some(one) = next.first_from(0) {
            all.set(one);
            next = next.or(self.0[usize::from(one)]).and(all.not());
        }
        all
    }
}

#[cfg(test)]
mod tests;
