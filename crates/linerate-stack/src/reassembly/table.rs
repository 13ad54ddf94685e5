//! Which datagrams are in the making: found by their key, listed by age, by source and by large slots.
//!
//! Entries lie in one array; each list is a pair of links in them. Since every datagram of a version has
//! the same time, the list by age is the list by expiry too: no timer is kept. Buckets of the index and
//! of sources are found by a hash keyed with a secret, so that nobody can choose keys that meet.

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

/// Which of a datagram's links a list goes by.
#[derive(Clone, Copy)]
enum By {
    Age,
    Source,
    Large,
}

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
        // Two buckets a datagram; sources that share one share its limit, so they have as many.
        let buckets = (count * 2).next_power_of_two();
        Ok(Self {
            datagrams,
            buckets: HugeArray::filled("reassembly index", buckets, NONE)?,
            sources: HugeArray::filled("reassembly sources", buckets, empty)?,
            ages: [List::EMPTY; 2],
            timeouts_ns: [config.timeout4_ns, config.timeout6_ns],
            large: List::EMPTY,
            free: 0,
            last: NONE,
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

    /// The datagram of that key.
    #[inline]
    pub(super) fn find(&mut self, key: &Key) -> Option<u32> {
        // Fragments of a datagram mostly come one after the other.
        if self.last != NONE && self.at(self.last).key == *key {
            return Some(self.last);
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

    /// Whether there is no room for one more.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// The place of a fragment's source.
    #[inline]
    pub(super) fn source(&self, piece: &Piece) -> u32 {
        let [source, vrf] = piece.source;
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

    /// Enters a datagram; there is room. What it is made of is still to be said.
    #[inline]
    pub(super) fn insert(&mut self, piece: &Piece, source: u32, now_ns: u64) -> u32 {
        let at = self.free;
        let bucket = self.bucket(&piece.key);
        let datagrams = &mut self.datagrams[..];
        let datagram = &mut datagrams[at as usize];
        self.free = datagram.next;
        datagram.key = piece.key;
        datagram.next = self.buckets[bucket];
        datagram.source = source;
        datagram.begun_ns = now_ns;
        self.buckets[bucket] = at;
        self.last = at;
        self.ages[usize::from(piece.is_v6)].push(datagrams, By::Age, at);
        let source = &mut self.sources[source as usize];
        source.list.push(datagrams, By::Source, at);
        source.count += 1;
        at
    }

    /// Takes a datagram out, and its slot.
    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Packet {
        let bucket = self.bucket(&self.at(at).key);
        let datagrams = &mut self.datagrams[..];
        let datagram = &mut datagrams[at as usize];
        let (next, source, is_v6) = (datagram.next, datagram.source, datagram.is_v6);
        let packet = datagram.packet.take();
        datagram.next = self.free;
        self.free = at;
        if self.last == at {
            self.last = NONE;
        }
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
        packet.expect("a datagram in the table has its slot")
    }

    pub(super) fn mark_large(&mut self, at: u32) {
        self.large.push(&mut self.datagrams, By::Large, at);
    }

    pub(super) fn unmark_large(&mut self, at: u32) {
        self.large.remove(&mut self.datagrams, By::Large, at);
    }

    /// The one that began first.
    pub(super) fn oldest(&self) -> Option<u32> {
        let oldest = self.ages.iter().filter_map(List::first);
        oldest.min_by_key(|&at| self.at(at).begun_ns)
    }

    /// The one that has had a large slot for the longest time.
    pub(super) fn oldest_large(&self) -> Option<u32> {
        self.large.first()
    }

    /// One whose time is over.
    pub(super) fn overdue(&self, now_ns: u64) -> Option<u32> {
        let (expiry_ns, at) = self.next_expiry()?;
        (expiry_ns <= now_ns).then_some(at)
    }

    pub(super) fn next_expiry_ns(&self) -> Option<u64> {
        self.next_expiry().map(|(expiry_ns, _)| expiry_ns)
    }

    fn next_expiry(&self) -> Option<(u64, u32)> {
        let oldest = self.ages.iter().zip(self.timeouts_ns);
        let expiries = oldest.filter_map(|(list, timeout_ns)| {
            let at = list.first()?;
            Some((self.at(at).begun_ns.saturating_add(timeout_ns), at))
        });
        expiries.min()
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

/// Words that nobody knows who does not know the seed: both halves of it, drawn out as splitmix64
/// does.
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
