//! Heavy hitters: which keys carry the most, in fixed memory, whatever the number of keys.
//!
//! A count-min sketch (Cormode and Muthukrishnan, J. Algorithms 2005) with conservative update
//! (Estan and Varghese, SIGCOMM 2002), and beside it the keys with the highest estimates. The hash
//! is keyed, so that nobody can choose keys that collide with a victim's.
//!
//! With `n` counted in all over the window, `w` counters a row, four rows:
//!
//! - an estimate is never below the truth;
//! - it is above it by more than `2.72 n / w` with a probability of 2% at most (e^-4; conservative
//!   update only lowers it);
//! - every key whose truth is above the lowest estimate listed is in the list.
//!
//! Chosen over Space-Saving, where each packet of any small flow evicts a key, and scans do so at
//! line rate, and over HeavyKeeper, which draws random numbers, may underestimate, and has no bound
//! for weights such as bytes. Here a packet of a small flow costs a hash and four counters.
//!
//! | operation | cost |
//! |---|---|
//! | add | O(1) for a key not listed, O(log list) for one that is |
//! | advance | once a window, a write to every counter of one window |
//! | memory | two windows of 32 bytes x width, and of about K + 45 bytes a listed key |

use linerate_core::arch::prefetch_read;
use linerate_core::mem::HugeArray;

use crate::TableError;
use crate::exact::Seed;
use crate::exact::hash::KeyedHash;

mod top;

use top::Top;

/// Independent rows of counters: sixteen bits of the hash select in each.
const ROWS: usize = 4;
const WIDTHS: std::ops::RangeInclusive<usize> = 16..=1 << 16;
const LISTS: std::ops::RangeInclusive<usize> = 1..=1 << 16;
/// Keys of a burst whose counters are asked for at once.
const BLOCK: usize = 32;

/// How a sketch is to be.
#[derive(Clone, Debug)]
pub struct SketchConfig {
    /// Whose it is, for messages.
    pub name: String,
    /// Counters a row, a power of two from 16 to 65536: the error is 2.72 / width of the total.
    pub width: usize,
    /// How many keys are listed, 1 to 65536.
    pub listed: usize,
    /// Ticks of a window: afterwards counting begins anew.
    pub window: u64,
    /// What the hash is keyed with.
    pub seed: Seed,
}

/// A key and what it carried, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heavy<const K: usize> {
    /// Whose it is.
    pub key: [u8; K],
    /// Never below the truth.
    pub estimate: u64,
}

/// Counts keys of `K` bytes, and lists the heaviest of this window and of the last whole one.
///
/// ```
/// use linerate_tables::exact::Seed;
/// use linerate_tables::sketch::{HeavyHitters, SketchConfig};
/// let mut bytes = HeavyHitters::<4>::new(
///     &SketchConfig { name: "sources".into(), width: 4096, listed: 10, window: 1000, seed: Seed::random() },
///     0,
/// )?;
/// bytes.add(&[10, 0, 0, 1], 1500);
/// bytes.add(&[10, 0, 0, 2], 64);
/// bytes.add(&[10, 0, 0, 1], 1500);
/// assert_eq!(bytes.top()[0].key, [10, 0, 0, 1]);
/// assert!(bytes.advance(1000)); // the window is over
/// assert_eq!((bytes.top().len(), bytes.last_top()[0].estimate), (0, 3000));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
pub struct HeavyHitters<const K: usize> {
    hash: KeyedHash,
    mask: u64,
    /// Ticks of a window, and when this one ends.
    window: u64,
    ends: u64,
    now: Window<K>,
    last: Window<K>,
}

struct Window<const K: usize> {
    /// Row after row.
    counters: HugeArray<u64>,
    total: u64,
    top: Top<K>,
}

impl<const K: usize> HeavyHitters<K> {
    /// An empty sketch whose first window begins at tick `now`.
    ///
    /// # Errors
    /// [`TableError::Sketch`] for a width, list or window that cannot be; no memory.
    pub fn new(config: &SketchConfig, now: u64) -> Result<Self, TableError> {
        let refuse = |reason: String| TableError::Sketch {
            name: config.name.clone(),
            reason,
        };
        if !config.width.is_power_of_two() || !WIDTHS.contains(&config.width) {
            return Err(refuse(format!(
                "width {} is not a power of two from {} to {}",
                config.width,
                WIDTHS.start(),
                WIDTHS.end()
            )));
        }
        if !LISTS.contains(&config.listed) {
            return Err(refuse(format!(
                "{} keys listed: give {} to {}",
                config.listed,
                LISTS.start(),
                LISTS.end()
            )));
        }
        if config.window == 0 {
            return Err(refuse("a window of 0 ticks: give at least 1".into()));
        }
        let window = || -> Result<Window<K>, TableError> {
            Ok(Window {
                counters: HugeArray::filled(&config.name, config.width * ROWS, 0)?,
                total: 0,
                top: Top::new(&config.name, config.listed, config.seed)?,
            })
        };
        Ok(Self {
            hash: KeyedHash::new(config.seed),
            mask: config.width as u64 - 1,
            window: config.window,
            ends: now.saturating_add(config.window),
            now: window()?,
            last: window()?,
        })
    }

    /// Counts `weight` (a packet, its bytes) for `key`; returns the key's new estimate.
    #[inline]
    pub fn add(&mut self, key: &[u8; K], weight: u64) -> u64 {
        let places = self.places(key);
        self.count(key, places, weight)
    }

    /// Counts a burst: `weights[i]` for `keys[i]`.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn add_bulk(&mut self, keys: &[[u8; K]], weights: &[u64]) {
        assert_eq!(keys.len(), weights.len(), "a weight for each key");
        for (keys, weights) in keys.chunks(BLOCK).zip(weights.chunks(BLOCK)) {
            let mut places = [[0; ROWS]; BLOCK];
            for (key, places) in keys.iter().zip(&mut places) {
                *places = self.places(key);
                for &place in &*places {
                    prefetch_read(self.now.counters.as_ptr().wrapping_add(place));
                }
            }
            for ((key, places), &weight) in keys.iter().zip(places).zip(weights) {
                self.count(key, places, weight);
            }
        }
    }

    /// What `key` carried in this window, at most.
    pub fn estimate(&self, key: &[u8; K]) -> u64 {
        let places = self.places(key);
        least(places.map(|place| self.now.counters[place]))
    }

    /// Begins a new window if the time has come; says whether it has. To be called once a poll.
    ///
    /// Windows end at multiples of their length from the start; one in which nothing was counted
    /// leaves an empty last window.
    pub fn advance(&mut self, now: u64) -> bool {
        if now < self.ends {
            return false;
        }
        let passed = (now - self.ends) / self.window;
        self.ends = self
            .ends
            .saturating_add((passed + 1).saturating_mul(self.window));
        std::mem::swap(&mut self.now, &mut self.last);
        self.now.clear();
        if passed > 0 {
            self.last.clear();
        }
        true
    }

    /// The heaviest keys of this window, heaviest first.
    pub fn top(&self) -> Vec<Heavy<K>> {
        self.now.top.sorted()
    }

    /// The heaviest keys of the last window.
    pub fn last_top(&self) -> Vec<Heavy<K>> {
        self.last.top.sorted()
    }

    /// What was counted in this window, in all.
    pub fn total(&self) -> u64 {
        self.now.total
    }

    /// By how much an estimate of this window is too high at most, 98 times of 100.
    pub fn error(&self) -> u64 {
        (self.now.total as f64 * std::f64::consts::E / (self.mask + 1) as f64) as u64
    }

    /// All memory, in bytes.
    pub fn bytes(&self) -> usize {
        let window = |window: &Window<K>| window.counters.region().len() + window.top.bytes();
        window(&self.now) + window(&self.last)
    }

    /// The key's counter in each row.
    #[inline(always)]
    fn places(&self, key: &[u8; K]) -> [usize; ROWS] {
        let hash = self.hash.of(key).0;
        std::array::from_fn(|row| {
            let column = (hash >> (row * 16)) & self.mask;
            row * (self.mask as usize + 1) + column as usize
        })
    }

    #[inline(always)]
    fn count(&mut self, key: &[u8; K], places: [usize; ROWS], weight: u64) -> u64 {
        let window = &mut self.now;
        window.total = window.total.saturating_add(weight);
        let before = least(places.map(|place| window.counters[place]));
        let estimate = before.saturating_add(weight);
        for place in places {
            // Conservative update: no counter need be above the estimate.
            let counter = &mut window.counters[place];
            *counter = estimate.max(*counter);
        }
        if estimate > window.top.lowest() {
            window.top.set(key, estimate);
        }
        estimate
    }
}

#[inline(always)]
fn least(counters: [u64; ROWS]) -> u64 {
    let [a, b, c, d] = counters;
    a.min(b).min(c.min(d))
}

impl<const K: usize> Window<K> {
    fn clear(&mut self) {
        self.counters.fill(0);
        self.total = 0;
        self.top.clear();
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
