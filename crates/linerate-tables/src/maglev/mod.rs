//! Maglev: which backend serves a connection, for many load balancers alike.
//!
//! Eisenbud et al., *Maglev: A Fast and Reliable Software Network Load Balancer* (NSDI 2016),
//! section 3.4. Each backend has a preference order over the table's entries, a permutation from
//! two hashes of its name, and backends take turns to claim their next preferred entry that is
//! free. So every load balancer with the same names, weights and seed has the same table, whatever
//! the order in which backends are given, shares differ by little, and a change of one backend
//! moves few entries besides its own. A backend of weight w has its turn w times as often as one of
//! weight 1; weight 0 drains it: it takes no entries, and existing connections stay with whoever
//! tracks them.
//!
//! | | |
//! |---|---|
//! | lookup | one load: 2 bytes an entry, 128 KiB at the default size |
//! | build | entries x (log2 backends + probes); on average ln(entries) probes an entry |
//! | change | a new table, swapped in by [`linerate_core::publish`] or a message |

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::TableError;

/// The paper's smaller size, for up to 655 backends at 1% deviation between shares.
pub const DEFAULT_ENTRIES: u32 = 65_537;

/// The most backends of one table.
pub const MAX_BACKENDS: usize = u16::MAX as usize;

/// One that connections may be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// What it is known by on every load balancer; no two have the same.
    pub name: String,
    /// How much it takes, relative to the others; 0 takes nothing.
    pub weight: u32,
}

/// How much of a table a backend has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share<'a> {
    /// Whose it is.
    pub backend: &'a Backend,
    /// How many entries it has.
    pub entries: u32,
    /// Number of entries by its weight.
    pub fair: f64,
}

/// A lookup table from hashes to backends, each named by its position in the list given.
///
/// ```
/// use linerate_tables::maglev::{Backend, DEFAULT_ENTRIES, Maglev};
/// let backend = |name: &str, weight| Backend { name: name.into(), weight };
/// let backends = vec![backend("10.0.0.1:80", 1), backend("10.0.0.2:80", 2), backend("10.0.0.3:80", 0)];
/// let table = Maglev::new(backends, DEFAULT_ENTRIES, 1)?;
/// assert!(table.lookup(0x1234_5678) < 2); // the third is drained
/// let shares: Vec<u32> = table.shares().iter().map(|share| share.entries).collect();
/// assert_eq!(shares, [21_846, 43_691, 0]);
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Maglev {
    backends: Vec<Backend>,
    entries: Vec<u16>,
}

impl Maglev {
    /// Fills a table of `entries`, a prime, for `backends`. The same on every machine for the same
    /// names, weights, size and `seed`.
    ///
    /// # Errors
    /// [`TableError::Maglev`]: not a prime (it names the nearest), fewer entries than backends, no
    /// backend with a weight, more than [`MAX_BACKENDS`], or a name given twice.
    pub fn new(backends: Vec<Backend>, entries: u32, seed: u64) -> Result<Self, TableError> {
        check(&backends, entries).map_err(|reason| TableError::Maglev { reason })?;
        // By name, so that the given order does not matter.
        let mut order: Vec<usize> = (0..backends.len()).collect();
        order.sort_unstable_by(|&a, &b| backends[a].name.cmp(&backends[b].name));

        let highest = backends.iter().map(|backend| backend.weight).max();
        let highest = u64::from(highest.unwrap_or(0));
        // The round in which a backend has its n-th turn, of those in which the heaviest has one.
        let round = |turn: u64, weight: u32| (turn * highest).div_ceil(u64::from(weight));
        let mut turns = BinaryHeap::with_capacity(backends.len());
        for (rank, &backend) in order.iter().enumerate() {
            let weight = backends[backend].weight;
            if weight > 0 {
                let preference = Preference::new(&backends[backend].name, entries, seed);
                let turn = Reverse((round(1, weight), rank));
                turns.push((turn, 1, backend, preference));
            }
        }

        let mut table = vec![FREE; entries as usize];
        let mut free = entries;
        while free > 0 {
            let mut next = turns.peek_mut().expect("a backend with a weight is there");
            let (Reverse((when, _)), turn, backend, preference) = &mut *next;
            let entry = loop {
                let entry = preference.next() as usize;
                if table[entry] == FREE {
                    break entry;
                }
            };
            table[entry] = *backend as u16;
            *turn += 1;
            *when = round(*turn, backends[*backend].weight);
            free -= 1;
        }
        Ok(Self {
            backends,
            entries: table,
        })
    }

    /// The backend for a hash of the connection, whatever the hash as long as its high bits are
    /// even: an RSS hash will do.
    #[inline]
    pub fn lookup(&self, hash: u32) -> u16 {
        let entry = (u64::from(hash) * self.entries.len() as u64) >> 32;
        self.entries[entry as usize]
    }

    /// The backends for a burst.
    ///
    /// # Panics
    /// If the slices differ in length.
    #[inline]
    pub fn lookup_bulk(&self, hashes: &[u32], backends: &mut [u16]) {
        assert_eq!(hashes.len(), backends.len(), "a backend for each hash");
        for (hash, backend) in hashes.iter().zip(backends) {
            *backend = self.lookup(*hash);
        }
    }

    /// The backends, in the order given.
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Never: the smallest table has two entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory of the entries, in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(self.entries.as_slice())
    }

    /// What each backend has, in the order given.
    pub fn shares(&self) -> Vec<Share<'_>> {
        let mut counts = vec![0; self.backends.len()];
        for &backend in &self.entries {
            counts[usize::from(backend)] += 1;
        }
        let weights: u64 = self.backends.iter().map(|b| u64::from(b.weight)).sum();
        let fair = |backend: &Backend| {
            self.entries.len() as f64 * f64::from(backend.weight) / weights as f64
        };
        let share = |(backend, entries)| Share {
            backend,
            entries,
            fair: fair(backend),
        };
        self.backends.iter().zip(counts).map(share).collect()
    }

    /// How many entries name another backend than in `before`: the connections, in entries, that a
    /// change moves where nobody tracks them. `None` for tables of different sizes.
    pub fn moved_since(&self, before: &Self) -> Option<usize> {
        if self.entries.len() != before.entries.len() {
            return None;
        }
        let differ = |(now, then): &(&u16, &u16)| {
            let now = &self.backends[usize::from(**now)].name;
            *now != before.backends[usize::from(**then)].name
        };
        Some(
            self.entries
                .iter()
                .zip(&before.entries)
                .filter(differ)
                .count(),
        )
    }
}

/// Not a backend.
const FREE: u16 = u16::MAX;

fn check(backends: &[Backend], entries: u32) -> Result<(), String> {
    if !is_prime(entries) {
        let below = (2..entries).rev().find(|&n| is_prime(n));
        let above = (entries.saturating_add(1)..=u32::MAX).find(|&n| is_prime(n));
        let nearest: Vec<String> = [below, above]
            .iter()
            .flatten()
            .map(u32::to_string)
            .collect();
        return Err(format!(
            "{entries} entries is not a prime; the nearest are {}",
            nearest.join(" and ")
        ));
    }
    if backends.len() > MAX_BACKENDS {
        let count = backends.len();
        return Err(format!(
            "{count} backends, at most {MAX_BACKENDS} fit a table"
        ));
    }
    let serving = backends.iter().filter(|backend| backend.weight > 0).count();
    if serving == 0 {
        return Err("no backend has a weight above 0; give one at least".into());
    }
    if serving > entries as usize {
        return Err(format!(
            "{serving} backends on {entries} entries; take a prime a hundred times as large as \
             their number"
        ));
    }
    let mut names: Vec<&str> = backends.iter().map(|b| b.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!(
            "backend `{}` is given twice; give each name once",
            pair[0]
        )),
        None => Ok(()),
    }
}

/// A backend's order over the entries: offset, offset + skip, offset + 2 skip, ... modulo a prime.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    next: u32,
    skip: u32,
    entries: u32,
}

impl Preference {
    fn new(name: &str, entries: u32, seed: u64) -> Self {
        let below = |hash: u64, bound: u32| ((u128::from(hash) * u128::from(bound)) >> 64) as u32;
        Self {
            next: below(hash(name, seed), entries),
            skip: 1 + below(hash(name, !seed), entries - 1),
            entries,
        }
    }

    fn next(&mut self) -> u32 {
        let entry = self.next;
        let left = self.entries - entry;
        self.next = match self.skip < left {
            true => entry + self.skip,
            false => self.skip - left,
        };
        entry
    }
}

/// FNV-1a over the name, then SplitMix64's mix. Names are the operator's, not a stranger's.
fn hash(name: &str, seed: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed;
    for &byte in name.as_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    linerate_core::random::mixed(hash)
}

fn is_prime(n: u32) -> bool {
    let root = n.isqrt();
    n >= 2 && (2..=root).all(|divisor| !n.is_multiple_of(divisor))
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
