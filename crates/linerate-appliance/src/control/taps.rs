//! Where packets of a running appliance can be watched: the named points of its workers.
//!
//! The thread that owns the run hands [`Taps`] out; whoever watches sets and removes taps from a
//! thread of its own, between two bursts of each worker, and holds nobody up.

use linerate_core::run::{Stage, Tap, WorkerHandle};

use crate::nearest::offer;
use crate::socket::Problem;

/// The points of a run, for one who watches. Dropping it removes its taps.
pub struct Taps<S: Stage + 'static> {
    workers: Vec<WorkerHandle<S>>,
    /// Numbers and names.
    ports: Vec<(u16, String)>,
    others: Vec<(u16, String)>,
    /// Goes by this at each point.
    number: u64,
}

impl<S: Stage + 'static> Taps<S> {
    /// Of these workers. Nobody else that watches them has that number.
    pub(crate) fn new(
        workers: Vec<WorkerHandle<S>>,
        ports: Vec<(u16, String)>,
        number: u64,
    ) -> Self {
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
            known.extend(stages(worker));
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
            let taps = stages(worker).into_iter().map(|stage| make(index, stage));
            let mut taps: Vec<Option<Tap>> = taps.collect();
            let number = self.number;
            // They come back empty, and are freed here. One that has ended has nothing to show.
            let _ = worker.call(move |worker| {
                let mut next = taps.iter_mut();
                worker.points(&mut |point| {
                    if let Some(tap) = next.next().and_then(Option::take) {
                        point.set_tap(number, tap);
                    }
                });
                taps
            });
        }
    }
}

impl<S: Stage + 'static> Drop for Taps<S> {
    fn drop(&mut self) {
        for worker in &self.workers {
            let (number, room) = (self.number, stages(worker).len());
            let mut taken: Vec<Tap> = Vec::with_capacity(room);
            let taken = worker.call(move |worker| {
                worker.points(&mut |point| taken.extend(point.remove_tap(number)));
                taken
            });
            // Freed here, not by the worker.
            drop(taken);
        }
    }
}

/// The names of a worker's points, in order.
fn stages<S: Stage + 'static>(worker: &WorkerHandle<S>) -> Vec<&'static str> {
    let names = worker.call(|worker| {
        let mut names = Vec::new();
        worker.points(&mut |point| names.push(point.name));
        names
    });
    names.unwrap_or_default()
}
