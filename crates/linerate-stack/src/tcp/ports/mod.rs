//! Which local port a connection gets that did not ask for one (RFC 6056).
//!
//! A port is in use per 4-tuple, so connections to other remote ends do not matter, and lingering
//! ones of the same do: the caller knows. Ports are tried in an order that a secret and the remote
//! end decide, from where the last choice for that end left off: the double-hash algorithm (RFC
//! 6056 3.3.4), which Linux has too. So a port comes again late, and nobody predicts the next.
//!
//! Neighbours in that order are often in use together, as connections that began together. After a
//! few failures the search goes on from a random place with a random stride that meets every
//! place once. So it takes 2 tries on average where half of the ports are in use, and 100 where 1
//! of 100 is free, and ends without a port only if there is none. Linux' order, by neighbours and
//! first all of one parity, takes thousands once the half of that parity is used up.
//!
//! A search that finds none has asked for every port: milliseconds. Whoever asks again for the same
//! end within 20 ms is refused without one.
//!
//! Where packets must come to the lcore that connects, only the ports of
//! [`Ports`] do: [`choose_among`](Chooser::choose_among). Where lcores that do not know of each
//! other's connections give out ports of one range, each has a [`Share`] of it.
//!
//! ```
//! use std::collections::HashSet;
//! use linerate_stack::tcp::{ports::Chooser, secret::Secret, tuple};
//! let mut chooser = Chooser::new(&Secret::random());
//! let to = tuple::of4("192.0.2.1:0".parse()?, "198.51.100.7:443".parse()?);
//! let mut used = HashSet::new();
//! for _ in 0..3 {
//!     let port = chooser.choose(&to, 32_768..=60_999, |port| used.contains(&port), 0);
//!     used.extend(port);
//! }
//! assert_eq!(used.len(), 3);
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

use std::ops::RangeInclusive;

use linerate_tables::rss::Ports;

use super::secret::{Secret, Sip};
use super::tuple::Tuple;

/// The ports that Linux gives out unless told otherwise (`ip_local_port_range`). RFC 6056 3.2 would
/// have all from 1024 on.
pub const RANGE: RangeInclusive<u16> = 32_768..=60_999;

/// Remote ends that have a place of their own to go on from: as many as Linux has, 512 KiB. With
/// few of them, who connects to some learns where others go on (CVE-2022-1012).
const ENDS: usize = 1 << 16;

/// Places that are tried in the end's own order. Beyond them the neighbourhood is used up.
const IN_ORDER: usize = 8;

/// For how long an end without free ports is refused without a search, in units of 2^20 ns (1 ms).
const REFUSED_UNITS: u16 = 20;

/// The most places: enough for every port of every RETA entry of a queue.
const PLACES_MAX: usize = 1 << 31;

/// Places an end's order steps by, and those that a search from a random place does. Primes above
/// [`PLACES_MAX`], so each meets all places once, however many there are.
const STRIDE: u32 = 3_068_843_329;
const STRIDES: [u32; 16] = [
    3_990_013_717,
    3_824_673_157,
    3_117_542_081,
    3_424_783_067,
    2_349_477_883,
    2_226_582_473,
    4_015_484_911,
    4_063_840_541,
    3_900_421_199,
    2_786_434_451,
    3_150_021_377,
    2_187_477_199,
    2_525_437_423,
    4_169_327_359,
    3_809_051_621,
    2_854_425_323,
];

/// The part of a range that is one lcore's: each `of`-th port, from the `nth` one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which lcore's, from 0.
    pub nth: u16,
    /// Among how many, at least one.
    pub of: u16,
}

impl Share {
    /// All of it.
    pub const ALL: Self = Self { nth: 0, of: 1 };
}

/// In [`End::refused`]: there was no port of a share of the range, and none of those that come
/// home. The other bits are some of the hash of the end that is refused.
const OF_SHARE: u16 = 1;
const AMONG: u16 = 2;

/// What is remembered of remote ends with one hash.
#[derive(Clone, Copy, Default)]
struct End {
    /// How many places after its first one the end's search goes on.
    next: u32,
    /// Which end was refused what the last time; neither bit: none.
    refused: u16,
    /// Since when, in units of 2^20 ns, modulo 2^16.
    since: u16,
}

const _: () = assert!(size_of::<End>() * ENDS == 512 << 10);

/// What became of choices, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ports that were given.
    pub chosen: u64,
    /// Ports about which the caller was asked.
    pub tried: u64,
    /// Searches that found every port in use.
    pub exhausted: u64,
    /// Choices refused without a search, since there was no port a moment ago.
    pub refused: u64,
}

/// Chooses ports for one stack.
pub struct Chooser {
    secret: Secret,
    ends: Box<[End]>,
    counts: Counts,
}

impl Chooser {
    /// A chooser. `secret` must be the process's own.
    pub fn new(secret: &Secret) -> Self {
        Self {
            secret: secret.derived(u64::from_le_bytes(*b"tcpports")),
            ends: vec![End::default(); ENDS].into(),
            counts: Counts::default(),
        }
    }

    /// What became of choices so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A port of `range` with which the connection is new, as far as `is_used` knows; `None` if
    /// every one is in use. The local port of `tuple` does not matter.
    pub fn choose<const K: usize, T: Tuple<K>>(
        &mut self,
        tuple: &T,
        range: RangeInclusive<u16>,
        is_used: impl FnMut(u16) -> bool,
        now_ns: u64,
    ) -> Option<u16> {
        self.choose_of(tuple, (range, Share::ALL), is_used, now_ns)
    }

    /// A port of a share of `range`, as [`choose`](Self::choose) does.
    pub fn choose_of<const K: usize, T: Tuple<K>>(
        &mut self,
        tuple: &T,
        (range, share): (RangeInclusive<u16>, Share),
        is_used: impl FnMut(u16) -> bool,
        now_ns: u64,
    ) -> Option<u16> {
        let (first, last) = range.into_inner();
        let of = usize::from(share.of.max(1));
        let first = usize::from(first) + usize::from(share.nth);
        let places = (usize::from(last) + 1).saturating_sub(first).div_ceil(of);
        let at = |place| Some((first + place * of) as u16);
        self.search(tuple, (OF_SHARE, places), at, is_used, now_ns)
    }

    /// One of `ports`, those whose packets come to the right queue, as [`choose`](Self::choose)
    /// does.
    pub fn choose_among<const K: usize, T: Tuple<K>>(
        &mut self,
        tuple: &T,
        ports: &Ports<'_>,
        is_used: impl FnMut(u16) -> bool,
        now_ns: u64,
    ) -> Option<u16> {
        self.search(
            tuple,
            (AMONG, ports.places()),
            |place| ports.at(place),
            is_used,
            now_ns,
        )
    }

    #[inline]
    fn search<const K: usize, T: Tuple<K>>(
        &mut self,
        tuple: &T,
        (kind, places): (u16, usize),
        at: impl Fn(usize) -> Option<u16>,
        mut is_used: impl FnMut(u16) -> bool,
        now_ns: u64,
    ) -> Option<u16> {
        let state = Sip::new(&self.secret).bytes(tuple.with_local_port(0).bytes());
        let hash = state.finish();
        // One for each choice: what was drawn tells nothing of what will be.
        let choices = self.counts.chosen + self.counts.exhausted;
        let random = state.word(choices).finish();
        let end = &mut self.ends[hash as usize % ENDS];
        let mark = (hash >> 16) as u16 & !(OF_SHARE | AMONG);
        let now = (now_ns >> 20) as u16;
        let is_it = end.refused & !(OF_SHARE | AMONG) == mark;
        if is_it && now.wrapping_sub(end.since) >= REFUSED_UNITS {
            end.refused = mark;
        }
        let refused = if is_it { end.refused } else { mark };
        if refused & kind != 0 {
            self.counts.refused += 1;
            return None;
        }
        let mut tried = 0;
        let mut free = |place| {
            let port = at(place)?;
            tried += 1;
            (!is_used(port)).then_some(port)
        };
        let places = places.min(PLACES_MAX) as u32;
        let step = STRIDE.checked_rem(places).unwrap_or(0);
        let next = end.next.checked_rem(places).unwrap_or(0);
        let home = scaled(hash >> 32, places);
        let in_order = walk(places, wrapped(home + next, places), step).take(IN_ORDER);
        let found = in_order.zip(1..).find_map(|(place, steps)| {
            let port = free(place)?;
            // Up to seven places are left out, as in Linux: steps do not count connections.
            let steps = steps + (random & 7);
            end.next = ((u64::from(next) + steps * u64::from(step)) % u64::from(places)) as u32;
            Some(port)
        });
        let found = found.or_else(|| {
            end.next = scaled(random << 24 >> 32, places);
            let stride = STRIDES[(random >> 4 & 0xf) as usize];
            let step = stride.checked_rem(places).unwrap_or(0);
            walk(places, scaled(random >> 32, places), step).find_map(free)
        });
        self.counts.tried += tried;
        match found {
            Some(_) => self.counts.chosen += 1,
            None => {
                self.counts.exhausted += 1;
                (end.refused, end.since) = (refused | kind, now);
            }
        }
        found
    }
}

/// All places from `place` on, each once, if `step` has no divisor in common with their number.
#[inline]
fn walk(places: u32, mut place: u32, step: u32) -> impl Iterator<Item = usize> {
    (0..places).map(move |_| {
        let this = place;
        place = wrapped(place + step, places);
        this as usize
    })
}

/// `place` modulo the number of places, if it is below twice that.
#[inline]
fn wrapped(place: u32, places: u32) -> u32 {
    place.checked_sub(places).unwrap_or(place)
}

/// A random word of 32 bits as a place.
#[inline]
fn scaled(word: u64, places: u32) -> u32 {
    ((word * u64::from(places)) >> 32) as u32
}

#[cfg(test)]
mod tests;
