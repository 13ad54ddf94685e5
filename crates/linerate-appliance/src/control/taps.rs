//! Where packets of a running appliance can be watched: the named points of its workers.
//!
//! The thread that owns the run hands [`Taps`] out; whoever watches sets and removes taps from a
//! thread of its own, between two bursts of each worker, and holds nobody up.

use std::sync::{Arc, Mutex, PoisonError};

use linerate_core::run::{Point, Stage, Tap, WorkerHandle};

use crate::nearest::offer;
use crate::socket::Problem;

/// A thread whose packets pass named points.
pub trait Watched: Send {
    /// Shows `visit` each point, in order, between two bursts, and drops it here afterwards. One
    /// that has ended has nothing to show.
    fn visit(&self, visit: Box<dyn FnMut(&mut Point) + Send>);
}

impl<S: Stage + 'static> Watched for WorkerHandle<S> {
    fn visit(&self, mut visit: Box<dyn FnMut(&mut Point) + Send>) {
        drop(self.call(move |worker| {
            worker.points(&mut *visit);
            visit
        }));
    }
}

/// The points of a run, for one who watches. Dropping it removes its taps.
pub struct Taps {
    workers: Vec<Box<dyn Watched>>,
    /// Numbers and names.
    ports: Vec<(u16, String)>,
    others: Vec<(u16, String)>,
    /// Goes by this at each point.
    number: u64,
}

impl Taps {
    /// Of these workers. Nobody else that watches them has that number.
    pub fn new(workers: Vec<Box<dyn Watched>>, ports: Vec<(u16, String)>, number: u64) -> Self {
        let others = Vec::new();
        Self {
            workers,
            ports,
            others,
            number,
        }
    }

    /// With what else packets come and go by, which is watched only where it is named.
    pub fn with_others(mut self, others: Vec<(u16, String)>) -> Self {
        self.others = others;
        self
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Numbers and names of the ports that somebody names; all where none is named.
    ///
    /// # Errors
    /// There is none of a name.
    pub fn ports(&self, wanted: &[String]) -> Result<Vec<(u16, String)>, Problem> {
        if wanted.is_empty() {
            return Ok(self.ports.clone());
        }
        let all = || self.ports.iter().chain(&self.others);
        let find = |name: &String| {
            let known = all().find(|(_, known)| known == name).cloned();
            known.ok_or_else(|| {
                let names = all().map(|(_, name)| name.as_str());
                Problem::new(format!("there is no port `{name}`"), offer(name, names))
            })
        };
        wanted.iter().map(find).collect()
    }

    /// The point of that name.
    ///
    /// # Errors
    /// No worker has one.
    pub fn stage(&self, name: &str) -> Result<&'static str, Problem> {
        let mut known: Vec<&'static str> = Vec::new();
        for worker in &self.workers {
            known.extend(stages(&**worker));
        }
        known.sort_unstable();
        known.dedup();
        let found = known.iter().find(|known| **known == name).copied();
        found.ok_or_else(|| {
            let problem = format!("there is no stage `{name}`");
            Problem::new(problem, offer(name, known))
        })
    }

    /// Sets the taps that `make` makes for each worker, by the names of its points.
    pub fn set(&self, make: impl Fn(usize, &'static str) -> Option<Tap>) {
        for (index, worker) in self.workers.iter().enumerate() {
            let taps = stages(&**worker)
                .into_iter()
                .map(|stage| make(index, stage));
            let taps: Vec<Option<Tap>> = taps.collect();
            let (number, mut next) = (self.number, taps.into_iter());
            worker.visit(Box::new(move |point| {
                if let Some(tap) = next.next().flatten() {
                    point.set_tap(number, tap);
                }
            }));
        }
    }
}

impl Drop for Taps {
    fn drop(&mut self) {
        for worker in &self.workers {
            let (number, room) = (self.number, stages(&**worker).len());
            let mut taken: Vec<Tap> = Vec::with_capacity(room);
            worker.visit(Box::new(move |point| {
                taken.extend(point.remove_tap(number));
            }));
        }
    }
}

/// The names of a worker's points, in order.
fn stages(worker: &dyn Watched) -> Vec<&'static str> {
    let names = Arc::<Mutex<Vec<&'static str>>>::default();
    let all = names.clone();
    worker.visit(Box::new(move |point| {
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(point.name);
    }));
    std::mem::take(&mut *names.lock().unwrap_or_else(PoisonError::into_inner))
}
