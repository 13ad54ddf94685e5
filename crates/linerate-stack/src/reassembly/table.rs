//! The incomplete datagrams: indexed by key, listed by age, by source and by large slots.
//!
//! Entries lie in one array; each list is a pair of links in them. Since every datagram of a
//! version has the same timeout, the list by age is the list by expiry too, without timers. Buckets
//! of the index and of sources are found by a hash keyed with a secret, so that an attacker cannot
//! choose colliding keys.

use linerate_core::MemError;
use linerate_core::mem::HugeArray;
use linerate_core::packet::Packet;

use super::Config;
use super::datagram::Datagram;
use super::piece::{Key, Piece};

/// No datagram.
pub(super) const NONE: u32 = u32::MAX;

/// Neighbours in a list: the older and the newer one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    older: u32,
    newer: u32,
}

impl Link {
    pub(super) const LOOSE: Self = Self {
        older: NONE,
        newer: NONE,
    };
}

/// Which of a datagram's links a list uses.
#[derive(Clone, Copy)]
enum By {
    Age,
    Source,
    Large,
}

/// The source of an IPv4 key's first word: the four bytes that come first in memory.
const SOURCE4: u64 = u64::from_ne_bytes([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);

/// How many lists a datagram is in.
pub(super) const LISTS: usize = 3;

/// Datagrams in the order in which they came.
#[derive(Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
    };

    #[inline]
    fn push(&mut self, datagrams: &mut [Datagram], by: By, at: u32) {
        let older = self.newest;
        datagrams[at as usize].links[by as usize] = Link { older, newer: NONE };
        match older {
            NONE => self.oldest = at,
            older => datagrams[older as usize].links[by as usize].newer = at,
        }
        self.newest = at;
    }

    #[inline]
    fn remove(&mut self, datagrams: &mut [Datagram], by: By, at: u32) {
        let Link { older, newer } = datagrams[at as usize].links[by as usize];
        match older {
            NONE => self.oldest = newer,
            older => datagrams[older as usize].links[by as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => datagrams[newer as usize].links[by as usize].older = older,
        }
    }

    fn first(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }
}

/// The datagrams of all sources that share a hash.
#[derive(Clone, Copy)]
struct Source {
    list: List,
    count: u32,
}

pub(super) struct Table {
    datagrams: HugeArray<Datagram>,
    /// First datagram of each bucket; a power of two of them.
    buckets: HugeArray<u32>,
    /// A power of two of them.
    sources: HugeArray<Source>,
    /// By version: IPv4, IPv6.
    ages: [List; 2],
    timeouts_ns: [u64; 2],
    large: List,
    /// First of those not in use.
    free: u32,
    /// The one that was found or inserted last: where the next fragment most likely belongs.
    last: u32,
    /// Whether `last` is still in no bucket and in no list but that of large slots. Most datagrams
    /// are complete before another begins, and never enter any.
    is_loose: bool,
    /// How many are in buckets and lists.
    tied: usize,
    secret: [u64; 8],
}

impl Table {
    pub(super) fn new(config: &Config) -> Result<Self, MemError> {
        let count = (config.max_datagrams as usize).clamp(1, 1 << 28);
        let following = |index: usize| match index + 1 < count {
            true => index as u32 + 1,
            false => NONE,
        };
        let datagrams = HugeArray::from_fn("reassembly", count, |index| {
            Datagram::unused(following(index))
        })?;
        let empty = Source {
            list: List::EMPTY,
            count: 0,
        };
        // Sources that share a hash share the limit.
        let (buckets, sources) = ((count * 2).next_power_of_two(), count.next_power_of_two());
        Ok(Self {
            datagrams,
            buckets: HugeArray::filled("reassembly index", buckets, NONE)?,
            sources: HugeArray::filled("reassembly sources", sources, empty)?,
            ages: [List::EMPTY; 2],
            timeouts_ns: [config.timeout4_ns, config.timeout6_ns],
            large: List::EMPTY,
            free: 0,
            last: NONE,
            is_loose: false,
            tied: 0,
            secret: secret(config.seed.0),
        })
    }

    #[inline]
    pub(super) fn at(&self, at: u32) -> &Datagram {
        &self.datagrams[at as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, at: u32) -> &mut Datagram {
        &mut self.datagrams[at as usize]
    }

    /// The datagram that was found or inserted last, if it has that key: fragments of a datagram
    /// mostly come one after the other.
    #[inline(always)]
    pub(super) fn find_last(&self, key: &Key) -> Option<u32> {
        (self.last != NONE && self.at(self.last).key == *key).then_some(self.last)
    }

    /// The datagram of that key, of those that are tied.
    pub(super) fn find(&mut self, key: &Key) -> Option<u32> {
        if self.tied == 0 {
            return None;
        }
        let mut at = self.buckets[self.bucket(key)];
        while at != NONE {
            let datagram = self.at(at);
            if datagram.key == *key {
                self.last = at;
                return Some(at);
            }
            at = datagram.next;
        }
        None
    }

    /// The datagram that came last, if it is in no bucket and no list.
    #[inline(always)]
    pub(super) fn loose(&self) -> Option<u32> {
        self.is_loose.then_some(self.last)
    }

    /// Puts the loose datagram into its bucket and its lists.
    pub(super) fn tie(&mut self, at: u32, source: u32) {
        self.is_loose = false;
        self.tied += 1;
        let bucket = self.bucket(&self.at(at).key);
        let datagrams = &mut self.datagrams[..];
        let datagram = &mut datagrams[at as usize];
        let is_v6 = datagram.is_v6;
        datagram.source = source;
        datagram.next = self.buckets[bucket];
        self.buckets[bucket] = at;
        self.ages[usize::from(is_v6)].push(datagrams, By::Age, at);
        let source = &mut self.sources[source as usize];
        source.list.push(datagrams, By::Source, at);
        source.count += 1;
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.tied + usize::from(self.is_loose)
    }

    /// Fragments of all of them.
    pub(super) fn fragments(&self) -> u64 {
        let newer = |&at: &u32| {
            let Link { newer, .. } = self.at(at).links[By::Age as usize];
            (newer != NONE).then_some(newer)
        };
        let tied = self
            .ages
            .iter()
            .flat_map(|list| std::iter::successors(list.first(), newer));
        tied.chain(self.loose())
            .map(|at| self.at(at).fragments())
            .sum()
    }

    /// Whether there is no room for one more.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// The place of a datagram's source: the VRF, and the IPv4 address or the first half of the
    /// IPv6 one.
    pub(super) fn source(&self, at: u32) -> u32 {
        let datagram = self.at(at);
        let [first, second, .., last] = datagram.key.0;
        let (source, vrf) = match datagram.is_v6 {
            false => (first & SOURCE4, second >> 32),
            true => (first, last >> 32),
        };
        let hash = fold(source ^ self.secret[6], vrf ^ self.secret[7]);
        (hash as usize & (self.sources.len() - 1)) as u32
    }

    /// The oldest datagram of a source that has `most` of them, or more.
    #[inline]
    pub(super) fn over_share(&self, source: u32, most: u32) -> Option<u32> {
        let source = &self.sources[source as usize];
        match source.count >= most {
            true => source.list.first(),
            false => None,
        }
    }

    /// Enters a datagram, loose; there is room, and the last one is [tied](Self::tie). What it is
    /// made of is still to be said.
    #[inline]
    pub(super) fn insert(&mut self, piece: &Piece, now_ns: u64) -> u32 {
        let at = self.free;
        let datagram = self.at_mut(at);
        let next = datagram.next;
        datagram.key = piece.key;
        datagram.begun_ns = now_ns;
        self.free = next;
        self.last = at;
        self.is_loose = true;
        at
    }

    /// Removes a datagram, and returns its slot.
    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Packet {
        let is_last = self.last == at;
        if !(is_last && self.is_loose) {
            self.untie(at);
        }
        if is_last {
            self.last = NONE;
            self.is_loose = false;
        }
        let free = self.free;
        let datagram = self.at_mut(at);
        datagram.next = free;
        let packet = datagram.packet.take();
        self.free = at;
        packet.expect("a datagram in the table has its slot")
    }

    /// Removes a datagram from its bucket and its lists.
    fn untie(&mut self, at: u32) {
        self.tied -= 1;
        let bucket = self.bucket(&self.at(at).key);
        let datagrams = &mut self.datagrams[..];
        let datagram = &datagrams[at as usize];
        let (next, source, is_v6) = (datagram.next, datagram.source, datagram.is_v6);
        match self.buckets[bucket] {
            first if first == at => self.buckets[bucket] = next,
            first => {
                let mut before = first as usize;
                while datagrams[before].next != at {
                    before = datagrams[before].next as usize;
                }
                datagrams[before].next = next;
            }
        }
        self.ages[usize::from(is_v6)].remove(datagrams, By::Age, at);
        let source = &mut self.sources[source as usize];
        source.list.remove(datagrams, By::Source, at);
        source.count -= 1;
    }

    pub(super) fn mark_large(&mut self, at: u32) {
        self.large.push(&mut self.datagrams, By::Large, at);
    }

    pub(super) fn unmark_large(&mut self, at: u32) {
        self.large.remove(&mut self.datagrams, By::Large, at);
    }

    /// The one that began first.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.first_of_each().min_by_key(|&at| self.at(at).begun_ns)
    }

    /// The one that has had a large slot for the longest time.
    pub(super) fn oldest_large(&self) -> Option<u32> {
        self.large.first()
    }

    /// A datagram whose timeout is over.
    pub(super) fn overdue(&self, now_ns: u64) -> Option<u32> {
        let (expiry_ns, at) = self.next_expiry()?;
        (expiry_ns <= now_ns).then_some(at)
    }

    pub(super) fn next_expiry_ns(&self) -> Option<u64> {
        self.next_expiry().map(|(expiry_ns, _)| expiry_ns)
    }

    fn next_expiry(&self) -> Option<(u64, u32)> {
        let expiries = self.first_of_each().map(|at| {
            let datagram = self.at(at);
            let timeout_ns = self.timeouts_ns[usize::from(datagram.is_v6)];
            (datagram.begun_ns.saturating_add(timeout_ns), at)
        });
        expiries.min()
    }

    /// The oldest of each version, and the one that is in no list.
    fn first_of_each(&self) -> impl Iterator<Item = u32> {
        self.ages.iter().filter_map(List::first).chain(self.loose())
    }

    #[inline]
    fn bucket(&self, key: &Key) -> usize {
        let [a, b, c, d, e] = key.0;
        let [s, t, u, v, w, x, ..] = self.secret;
        let sum = fold(a ^ s, b ^ t).wrapping_add(fold(c ^ u, d ^ v));
        fold(sum ^ w, e ^ x) as usize & (self.buckets.len() - 1)
    }
}

/// The high and the low half of the product, one on top of the other.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Secret words from both halves of the seed, by splitmix64.
fn secret(seed: u128) -> [u64; 8] {
    let (mut low, high) = (seed as u64, (seed >> 64) as u64);
    std::array::from_fn(|_| {
        low = low.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (low ^ high ^ (low >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27) ^ high.rotate_left(32)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
impl Table {
    /// Most datagrams in one bucket.
    pub(super) fn longest_chain(&self) -> usize {
        let chain = |&first: &u32| {
            let following = |&at: &u32| Some(self.at(at).next).filter(|&next| next != NONE);
            std::iter::successors(Some(first).filter(|&first| first != NONE), following).count()
        };
        self.buckets.iter().map(chain).max().unwrap_or(0)
    }
}
