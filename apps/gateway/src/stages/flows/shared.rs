//! What control makes for workers beside them: what takes long, and what takes memory.

use std::sync::{Arc, Mutex, PoisonError};

use linerate_appliance::error::Error;
use linerate_tables::TableError;

use super::{Flows, Shared};
use crate::balance::Tables;
use crate::config::Stanzas;
use crate::nat::rules::Rules;
use crate::policy::{Counts, List, Policy};
use crate::services::{Made, Plan, Spec};

/// What takes long of a configuration: lists of rules, and the addresses of pools. It is made on
/// the thread that reads the file.
#[derive(Debug)]
pub struct Prepared {
    /// By `[[policy]]`.
    pub lists: Vec<Arc<List>>,
    /// With interfaces and zones by their places in the file.
    pub(super) rules: Rules,
}

impl Prepared {
    /// What the stanzas ask for; lists that are as in `old` are those.
    ///
    /// # Errors
    /// A list of rules cannot be compiled.
    pub fn new(stanzas: &Stanzas, old: Option<&Shared>) -> Result<Self, Error> {
        let lists = Policy::prepare(&stanzas.policy, old.map(|old| &old.policy));
        Ok(Self {
            lists: lists.map_err(|error| Error::Usage {
                problem: error.to_string(),
                fix: "divide the list among zones, or take rules out".into(),
            })?,
            rules: Rules::new(stanzas.nat.clone(), old.map(|old| &*old.rules)),
        })
    }
}

/// What the rules of one policy have decided, by worker. Each writes its own; here they are made
/// and read.
#[derive(Clone, Debug, Default)]
pub struct Hits(Arc<Mutex<Vec<Counts>>>);

impl Hits {
    /// Those of workers that have `old`, for another policy: lists that stay go on counting.
    pub(super) fn of(policy: &Policy, old: &Self) -> Self {
        let new = |counts: &Counts| Counts::new(policy, counts);
        Self(Arc::new(Mutex::new(old.all().iter().map(new).collect())))
    }

    /// Those of one worker.
    pub(super) fn worker(&self, policy: &Policy, worker: usize) -> Counts {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while all.len() <= worker {
            all.push(Counts::new(policy, &Counts::default()));
        }
        all[worker].clone()
    }

    /// Those of all workers.
    pub fn all(&self) -> Vec<Counts> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The part of one worker in a change: its counters were made for it, and what it had before comes
/// back by it, so that a worker neither takes nor frees memory.
pub struct Part {
    pub(super) shared: Shared,
    pub(super) hits: Counts,
    pub(super) balance: Arc<Tables>,
    pub(super) begun: Vec<u64>,
    made: Made,
}

/// Services that were made for workers, until these take them.
pub(super) type MadeAhead = Arc<Mutex<Vec<Option<Made>>>>;

/// The services of a policy, and those of the workers that `old` has; where all is as there, that
/// plan, and none.
pub(super) fn plan(
    known: &[Spec],
    policy: &Arc<Policy>,
    old: Option<&Shared>,
) -> Result<(Arc<Plan>, MadeAhead), TableError> {
    let plan = Plan::new(known, policy);
    let is_same = |old: &&Shared| Arc::ptr_eq(&old.policy, policy) && old.plan.specs == plan.specs;
    if let Some(same) = old.filter(is_same) {
        return Ok((same.plan.clone(), MadeAhead::default()));
    }
    let workers = old.map_or(0, |old| old.hits.all().len());
    let made: Result<Vec<_>, _> = (0..workers).map(|_| Made::new(&plan).map(Some)).collect();
    Ok((Arc::new(plan), Arc::new(Mutex::new(made?))))
}

impl Shared {
    /// The part of one worker.
    pub fn part(&self, worker: usize) -> Part {
        let balance = self.balance.board().tables();
        let mut ahead = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let made = ahead.get_mut(worker).and_then(Option::take);
        Part {
            shared: self.clone(),
            hits: self.hits.worker(&self.policy, worker),
            begun: vec![0; balance.numbers()],
            balance,
            made: made
                .or_else(|| Made::new(&self.plan).ok())
                .unwrap_or_default(),
        }
    }
}

impl Flows {
    /// Takes another configuration over; `part` becomes the one that it had.
    pub(super) fn exchange(&mut self, part: &mut Part) {
        if !Arc::ptr_eq(&self.policy, &part.shared.policy) {
            // Lists have other numbers now: what was logged by the old ones is only counted.
            let logged = std::mem::take(&mut self.logged);
            self.logged.more = logged.more + logged.iter().count() as u64;
        }
        std::mem::swap(&mut self.hits, &mut part.hits);
        for (new, old) in part.begun.iter_mut().zip(&self.begun) {
            *new = *old;
        }
        std::mem::swap(&mut self.begun, &mut part.begun);
        std::mem::swap(&mut self.balance, &mut part.balance);
        std::mem::swap(&mut self.policy, &mut part.shared.policy);
        std::mem::swap(&mut self.number, &mut part.shared.number);
        self.services
            .exchange(&mut part.shared.plan, &mut part.made);
        std::mem::swap(&mut self.classes, &mut part.shared.classes);
        if !Arc::ptr_eq(&self.limits, &part.shared.limits) {
            std::mem::swap(&mut self.limits, &mut part.shared.limits);
            self.limit();
        }
        if !Arc::ptr_eq(self.nat.rules(), &part.shared.rules) {
            // Flows of mappings that are gone end at their next packet.
            let old = self.nat.rules().clone();
            let new = std::mem::replace(&mut part.shared.rules, old);
            self.nat.install(new);
        }
    }
}
