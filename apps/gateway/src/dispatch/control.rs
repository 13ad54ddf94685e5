//! Who has buckets moved: a user by `linerate ctl move bucket B worker W`, or, where
//! `[dispatch] rebalance` says so, loads that are not even.
//!
//! All of it runs on control's thread, which asks the workers between two bursts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_appliance::runtime::Running;
use linerate_appliance::socket::Problem;
use linerate_core::run::WorkerHandle;
use linerate_dispatch::owners::{FEW, Loads, MOVES, TOLERANCE};
use linerate_dispatch::{Going, Gone, NOBODY, Owner, Owners, move_buckets};
use linerate_routing::worker::RouterStage;
use serde_json::{Value, json};

use super::bucket::{BUCKETS, Bucket};
use crate::nat::bits::Bits;
use crate::path::on_path;
use crate::stages::flows::buckets::Scan;

/// What control knows of moves, from one reload to the next.
#[derive(Debug, Default)]
pub(crate) struct Moves(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Buckets that have moved.
    moved: u64,
    /// When loads were looked at last, and what they were then.
    looked: Option<(Instant, Box<Loads>)>,
    /// Each bucket's packets in the last period.
    last: Option<Box<Loads>>,
}

impl Moves {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Buckets that have moved since the start.
    pub(crate) fn moved(&self) -> u64 {
        self.known().moved
    }

    /// Each bucket's packets in the last period, where loads are evened out.
    pub(crate) fn loads(&self) -> Option<Box<Loads>> {
        self.known().last.clone()
    }
}

/// Workers that dispatch, and those of them that own buckets.
pub(crate) struct Crew<'a> {
    dispatchers: Vec<&'a WorkerHandle<RouterStage>>,
    /// By owner: the worker's number.
    workers: BTreeMap<Owner, (usize, &'a WorkerHandle<RouterStage>)>,
    pub(crate) owners: Owners,
}

impl<'a> Crew<'a> {
    /// Those that run; `None` where packets are not handed over.
    pub(crate) fn of(running: &'a Running<RouterStage>) -> Option<Self> {
        let mut crew = Self {
            dispatchers: Vec::new(),
            workers: BTreeMap::new(),
            owners: Owners::dealt(1),
        };
        for (number, handle) in running.handles().enumerate() {
            let asked = on_path(handle, |path, _| {
                let sorter = path.dispatch()?.sorter();
                Some((sorter.me(), sorter.owners().clone()))
            });
            let Some((me, owners)) = asked.flatten() else {
                continue;
            };
            crew.dispatchers.push(handle);
            if me != NOBODY {
                crew.workers.insert(me, (number, handle));
            }
            crew.owners = owners;
        }
        (!crew.dispatchers.is_empty()).then_some(crew)
    }

    /// The owner that a worker is, by the worker's number.
    fn owner(&self, worker: usize) -> Option<Owner> {
        let mut all = self.workers.iter();
        let found = all.find(|(_, (number, _))| *number == worker);
        found.map(|(owner, _)| *owner)
    }

    /// The numbers of the workers that own buckets.
    fn numbers(&self) -> String {
        let numbers = self.workers.values().map(|(number, _)| number.to_string());
        numbers.collect::<Vec<_>>().join(", ")
    }

    /// Moves a bucket to an owner, and with it those that it has flows in common with. Returns
    /// which.
    fn move_with(&mut self, bucket: Bucket, to: Owner) -> Result<Bits, Gone> {
        let from = self.owners.of(bucket);
        let (Some((_, old)), Some((_, new))) = (self.workers.get(&from), self.workers.get(&to))
        else {
            return Ok(Bits::NONE);
        };
        if from == to {
            return Ok(Bits::NONE);
        }
        let (old, new) = (*old, *new);
        // From here on no flow ties another bucket to these.
        keep_apart(old, true);
        let mut mine = Bits::NONE;
        self.owners
            .buckets(from)
            .for_each(|bucket| mine.set(bucket));
        let mut buckets = with_bucket(old, bucket);
        if buckets.len() > 1 {
            let mut scan = Scan::default();
            while let Some((next, false)) = scan_ties(old, scan) {
                scan = next;
            }
            buckets = with_bucket(old, bucket);
        }
        buckets = buckets.and(mine);
        let going = Going { buckets, from, to };
        let moved = move_buckets(&self.dispatchers, (old, new), going);
        keep_apart(old, false);
        if !matches!(moved, Err(Gone::New(_))) {
            (buckets.iter()).for_each(|bucket| self.owners.set(bucket, to));
        }
        moved.map(|()| buckets)
    }
}

fn keep_apart(worker: &WorkerHandle<RouterStage>, only: bool) {
    on_path(worker, move |path, _| path.flows().keep_apart(only));
}

/// The buckets that move with this one.
fn with_bucket(worker: &WorkerHandle<RouterStage>, bucket: Bucket) -> Bits {
    let asked = on_path(worker, move |path, _| path.flows().with_bucket(bucket));
    asked.unwrap_or_else(|| {
        let mut one = Bits::NONE;
        one.set(bucket);
        one
    })
}

/// A part of a look through the flows; whether it was the last.
fn scan_ties(worker: &WorkerHandle<RouterStage>, mut scan: Scan) -> Option<(Scan, bool)> {
    on_path(worker, move |path, _| {
        let is_last = path.flows().scan_ties(&mut scan);
        (scan, is_last)
    })
}

/// Does what a user asks: moves a bucket to a worker.
pub(crate) fn move_bucket(
    running: &Running<RouterStage>,
    moves: &Moves,
    params: &Value,
) -> Result<Value, Problem> {
    let number = |key: &str| params[key].as_u64();
    let bucket = number("bucket").and_then(|bucket| Bucket::try_from(bucket).ok());
    let bucket = bucket.ok_or_else(|| {
        let problem = format!("move: bucket is {}, which is none", params["bucket"]);
        Problem::new(problem, format!("give a bucket, 0 to {}", BUCKETS - 1))
    })?;
    let mut crew = Crew::of(running).ok_or_else(|| {
        let fix = "say [dispatch] mode = \"balanced\" or \"dispatcher\", and start it again";
        Problem::new("move: no packets are handed over, so no bucket moves", fix)
    })?;
    let worker = number("worker").and_then(|worker| usize::try_from(worker).ok());
    let to = worker.and_then(|worker| crew.owner(worker));
    let (Some(worker), Some(to)) = (worker, to) else {
        let problem = format!("move: worker {} owns no flows", params["worker"]);
        let fix = format!("name one of {}: `show workers`", crew.numbers());
        return Err(Problem::new(problem, fix));
    };
    if crew.owners.of(bucket) == to {
        let text = format!("bucket {bucket} is worker {worker}'s already");
        return Ok(json!({ "text": text, "buckets": [] }));
    }
    let began = Instant::now();
    let buckets = crew.move_with(bucket, to).map_err(|gone| {
        let fix = "see its log, and start the gateway again";
        Problem::new(format!("bucket {bucket}: {gone}"), fix)
    })?;
    moves.known().moved += u64::from(buckets.len());
    let all: Vec<Bucket> = buckets.iter().collect();
    let text = match all.len() {
        0 => format!("bucket {bucket} is with a worker that has ended"),
        1 => format!("bucket {bucket} is worker {worker}'s now"),
        many => format!(
            "bucket {bucket} is worker {worker}'s now, and so are the {} others that it has flows \
             in common with",
            many - 1
        ),
    };
    let us = began.elapsed().as_micros() as u64;
    Ok(json!({ "text": text, "buckets": all, "microseconds": us }))
}

/// Packets of each bucket, as all workers have counted them.
fn counted(crew: &Crew<'_>) -> Box<Loads> {
    let mut sums: Box<Loads> = Box::new([0; BUCKETS]);
    for dispatcher in &crew.dispatchers {
        let asked = on_path(dispatcher, |path, _| {
            let loads = path.dispatch()?.sorter().loads();
            loads.map(|loads| Box::new(*loads))
        });
        if let Some(loads) = asked.flatten() {
            sums.iter_mut()
                .zip(loads.iter())
                .for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
        }
    }
    sums
}

/// Moves buckets that make the workers' loads even, if it is time to look at them again. Returns
/// what has gone wrong.
pub(crate) fn rebalance(
    running: &Running<RouterStage>,
    moves: &Arc<Moves>,
    interval: Duration,
) -> Option<Gone> {
    let now = Instant::now();
    let mut known = moves.known();
    let is_due = |(then, _): &(Instant, Box<Loads>)| now.duration_since(*then) >= interval;
    if known.looked.as_ref().is_some_and(|looked| !is_due(looked)) {
        return None;
    }
    let mut crew = Crew::of(running)?;
    let sums = counted(&crew);
    let before = known.looked.replace((now, sums.clone()));
    let (_, before) = before?;
    let loads: Box<Loads> = Box::new(std::array::from_fn(|at| sums[at].wrapping_sub(before[at])));
    known.last = Some(loads.clone());
    if loads.iter().sum::<u64>() < FEW {
        return None;
    }
    let workers = crew.workers.last_key_value()?.0;
    let workers = usize::from(*workers) + 1;
    for _ in 0..MOVES {
        let next = crew.owners.next_move(&loads, workers, TOLERANCE)?;
        match crew.move_with(next.bucket, next.to) {
            Ok(buckets) => {
                known.moved += u64::from(buckets.len());
                // Where others had to come along, loads are not what this goes by.
                if buckets.len() != 1 {
                    return None;
                }
            }
            Err(gone) => return Some(gone),
        }
    }
    None
}
