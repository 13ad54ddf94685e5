//! What control makes for workers: what all of them have of a configuration, and beside that what
//! takes long, and what takes memory.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use linerate_appliance::error::Error;
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::settings::Settings;
use linerate_tables::TableError;

use super::balanced::DIRECT;
use super::turned::TURNS;
use super::{Flows, Limits};
use crate::balance::{Balance, Tables};
use crate::config::Stanzas;
use crate::dispatch::control::Moves;
use crate::dispatch::{Classes, Hash, Marked};
use crate::nat::rules::{At, Rules};
use crate::nat::writer::Writer;
use crate::policy::{Counts, List, Policy};
use crate::services::{Made, Plan, Spec};
use crate::track::Cookies;

/// The segment size that is offered with a SYN cookie: it fits the usual Ethernet in both families.
const COOKIE_MSS: u16 = 1440;

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

/// What all workers have of a configuration.
#[derive(Clone)]
pub struct Shared {
    /// Zones, and what may begin between them.
    pub policy: Arc<Policy>,
    /// What is translated.
    pub rules: Arc<Rules>,
    /// Virtual services.
    pub balance: Arc<Balance>,
    /// Gives SYN cookies: any worker knows those of another.
    pub(super) cookies: Cookies,
    /// What the policy's rules have decided, by worker.
    pub hits: Hits,
    /// Which bucket a packet is of, by what is translated.
    pub classes: Arc<Classes>,
    /// What control knows of buckets that have moved.
    pub(crate) moves: Arc<Moves>,
    /// How many flows there may be, and how long they live.
    pub(super) limits: Arc<Limits>,
    /// Writes what translation records.
    pub log: Option<Arc<Writer>>,
    /// Services, and who is given them.
    pub plan: Arc<Plan>,
    /// The services of workers, made ahead.
    made: MadeAhead,
    /// The number of policy and rules, which no others in this process have.
    pub(super) number: u32,
}

/// The next number of a configuration in this process.
static NUMBER: AtomicU32 = AtomicU32::new(1);

impl Shared {
    /// What the stanzas ask for, between the interfaces of `settings`; what is as in `old` is that.
    ///
    /// # Errors
    /// A list of rules cannot be compiled, or there is no memory for what dispatch goes by.
    pub fn new(stanzas: &Stanzas, settings: &Settings, old: Option<&Self>) -> Result<Self, Error> {
        let prepared = Prepared::new(stanzas, old)?;
        Ok(Self::of(stanzas, settings, old, &prepared)?)
    }

    /// The same of what was prepared of the stanzas, with the same `old`: short.
    ///
    /// # Errors
    /// There is no memory for what dispatch goes by.
    pub fn of(
        stanzas: &Stanzas,
        settings: &Settings,
        old: Option<&Self>,
        prepared: &Prepared,
    ) -> Result<Self, TableError> {
        let interfaces = || settings.interfaces.iter().map(|one| one.name.as_str());
        let names: Vec<&str> = interfaces().collect();
        let before = old.map(|old| &old.policy);
        let policy = Policy::of(&stanzas.policy, &names, before, &prepared.lists);
        let interface = |place: u16| {
            let name = stanzas.interfaces.get(usize::from(place));
            let number = name.and_then(|name| interfaces().position(|one| one == name));
            number.map_or(u16::MAX, |number| number as u16)
        };
        let zone = |place: u16| {
            let zone = stanzas.policy.zones.get(usize::from(place));
            let zone = zone.and_then(|zone| policy.zones().named(&zone.name));
            zone.map_or(u16::MAX, |zone| zone.number().into())
        };
        let config = stanzas.nat.clone().with_numbers(interface, zone);
        let rules = match old.filter(|old| old.rules.config == config) {
            Some(same) => same.rules.clone(),
            None => Arc::new(prepared.rules.numbered(config)),
        };
        let hits = match old {
            Some(old) if Arc::ptr_eq(&old.policy, &policy) => old.hits.clone(),
            Some(old) => Hits::of(&policy, &old.hits),
            None => Hits::default(),
        };
        let balance = Balance::new(&stanzas.balance, old.map(|old| &old.balance));
        let is_alike = |old: &&Self| {
            Arc::ptr_eq(&old.rules, &rules) && old.balance.config() == balance.config()
        };
        let numbers = (0..).map(InterfaceId).take(names.len());
        let at = numbers.map(|id| At {
            zone: policy.zone(id).number().into(),
            interface: id.0,
        });
        let turning: Vec<bool> = at.map(|at| rules.turns_from(at)).collect();
        let is_same = |old: &&Self| is_alike(old) && old.classes.turning() == turning;
        let classes = match old.filter(is_same) {
            Some(same) => same.classes.clone(),
            None => {
                let hash = old.map_or_else(any_hash, |old| old.classes.hash());
                let mut marked = Marked::of_nat(&rules.config);
                balance.config().mark(&mut marked);
                Arc::new(Classes::new(hash, &marked)?.turning_from(turning))
            }
        };
        let (plan, made) = plan(&stanzas.services, &policy, old)?;
        let is_same = |old: &&Self| {
            let is_policy = Arc::ptr_eq(&old.policy, &policy) && Arc::ptr_eq(&old.plan, &plan);
            is_policy && is_alike(old)
        };
        let number = match old.filter(is_same) {
            Some(same) => same.number,
            None => NUMBER.fetch_add(1, Ordering::Relaxed) & !(DIRECT | TURNS),
        };
        let limits = Limits::new(stanzas, policy.zones());
        let limits = match old.filter(|old| old.limits.is(&limits)) {
            Some(same) => same.limits.clone(),
            None => Arc::new(limits),
        };
        let cookies = old.map(|old| old.cookies.clone());
        let moves = old.map(|old| old.moves.clone()).unwrap_or_default();
        let known = old.and_then(|old| old.log.clone());
        let log = rules.config.log.to.clone().map(|to| match known {
            Some(same) if *same.to() == to => same,
            _ => Arc::new(Writer::new(to, |line| eprintln!("{line}"))),
        });
        Ok(Self {
            log,
            policy,
            rules,
            balance,
            hits,
            classes,
            moves,
            limits,
            plan,
            made,
            cookies: cookies.unwrap_or_else(|| {
                let random = RandomState::new();
                let secret = [0, 1].map(|half| u128::from(random.hash_one(half)));
                Cookies::new(secret[0] << 64 | secret[1], COOKIE_MSS)
            }),
            number,
        })
    }

    /// Whether all is as in `other`.
    pub fn is(&self, other: &Self) -> bool {
        self.number == other.number && Arc::ptr_eq(&self.limits, &other.limits)
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
            self.nat.install(new, self.number);
        }
    }
}

/// A hash that nobody outside knows.
fn any_hash() -> Hash {
    Hash::new(RandomState::new().hash_one(0_u64))
}
