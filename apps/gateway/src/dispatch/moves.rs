//! A bucket moves to another worker under load: its packets keep their order, and none is lost.
//!
//! 1. The new owner is told to expect it: packets of the bucket that come to it wait.
//! 2. Each worker that dispatches turns: from then on it hands such packets to the new owner.
//! 3. What they had handed over before is taken from the rings, by all owners. Then the old owner
//!    has seen its last packet of this bucket, since a ring keeps the order.
//! 4. The old owner gives the state away, as a value; what it has sent by others' transmit queues
//!    is taken from those rings, too.
//! 5. The new owner takes it, and then the packets that waited.
//!
//! Control waits for the workers; they do not wait for each other, and go on with all else.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use linerate_core::run::{Egress, Handed, Stage, WorkerGone, WorkerHandle};

use super::bucket::Bucket;
use super::owners::Move;
use super::sorter::Sorter;

/// How long control sleeps before it looks at the rings once more.
const LOOK: Duration = Duration::from_micros(20);

/// A stage whose state is in buckets.
pub trait Sharded: Stage + 'static {
    /// All that it knows of the flows of a bucket.
    type State: Send + 'static;

    /// Its part in dispatch.
    fn sorter(&mut self) -> &mut Sorter;

    /// Takes the state of a bucket out.
    fn take(&mut self, bucket: Bucket) -> Self::State;

    /// Puts the state of a bucket in, and handles the packets that have waited for it
    /// ([`Sorter::release`]).
    fn put(&mut self, bucket: Bucket, state: Self::State, out: &mut Egress);
}

/// What has ended a move.
#[derive(Debug)]
pub enum Gone {
    /// A worker that only dispatches has ended: the bucket has moved.
    Dispatcher(WorkerGone),
    /// The old owner has ended, and the flows with it.
    Old(WorkerGone),
    /// The new owner has ended: the bucket is with the old one, as before.
    New(WorkerGone),
}

/// Moves a bucket. `dispatchers` are all workers that hand packets to owners, the owners
/// themselves among them where they do.
///
/// # Errors
/// A worker has ended meanwhile; [`Gone`] says what that means for the bucket.
pub fn move_bucket<S: Sharded>(
    dispatchers: &[WorkerHandle<S>],
    owners: &[WorkerHandle<S>],
    step: Move,
) -> Result<(), Gone> {
    let Move { bucket, from, to } = step;
    let (Some(old), Some(new)) = (owners.get(usize::from(from)), owners.get(usize::from(to)))
    else {
        return Ok(());
    };
    new.call(move |worker| worker.stage.sorter().expect(bucket))
        .map_err(Gone::New)?;
    let mut gone = None;
    let mut handed = Vec::new();
    for dispatcher in dispatchers {
        let turned = dispatcher.call(move |worker| {
            worker.stage.sorter().turn(bucket, to);
            Arc::new(worker.egress.handed())
        });
        match turned {
            Ok(rings) => handed.push((dispatcher, rings)),
            // What it handed over is in the rings, and is taken from there.
            Err(error) => gone = Some(Gone::Dispatcher(error)),
        }
    }
    for (dispatcher, rings) in handed {
        wait_until_taken(dispatcher, &rings);
    }
    let taken = old.call(move |worker| {
        let state = worker.stage.take(bucket);
        (state, Arc::new(worker.egress.handed()))
    });
    let (state, rings) = taken.map_err(Gone::Old)?;
    wait_until_taken(old, &rings);
    // Where the closure does not run, the state comes back by this.
    let parcel = Arc::new(Mutex::new(Some(state)));
    let inside = parcel.clone();
    let put = new.call(move |worker| {
        let state = inside.lock().ok().and_then(|mut parcel| parcel.take());
        if let Some(state) = state {
            worker.stage.put(bucket, state, &mut worker.egress);
        }
    });
    let Err(error) = put else {
        return gone.map_or(Ok(()), Err);
    };
    for dispatcher in dispatchers {
        // One that has ended dispatches nothing any more.
        let _ = dispatcher.call(move |worker| worker.stage.sorter().turn(bucket, from));
    }
    let state = parcel.lock().ok().and_then(|mut parcel| parcel.take());
    if let Some(state) = state {
        let back = old.call(move |worker| worker.stage.put(bucket, state, &mut worker.egress));
        back.map_err(Gone::Old)?;
    }
    Err(Gone::New(error))
}

/// Waits until what a worker had handed over has been taken from its rings.
fn wait_until_taken<S: Sharded>(worker: &WorkerHandle<S>, rings: &Arc<Handed>) {
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

#[cfg(test)]
mod tests;
