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
//! [`Ports`] do: [`choose_among`](Chooser::choose_among).
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

/// Remote ends that have a place of their own to go on from: as many as Linux has, 512 KiB. With few
/// of them, who connects to some learns where others go on (CVE-2022-1012).
const ENDS: usize = 1 << 16;

/// Places that are tried in the end's own order. Beyond them the neighbourhood is used up.
const IN_ORDER: usize = 8;

/// For how long an end without free ports is refused without a search, in units of 2^20 ns (1 ms).
const REFUSED_UNITS: u16 = 20;

/// Places an end's order steps by, and those that a search from a random place does. Primes above
/// 2^32, so each meets all of up to 2^32 places once.
const STRIDE: u64 = 1_047_031_431_977;
const STRIDES: [u64; 16] = [
    655_389_627_973,
    1_062_134_823_787,
    743_109_329_309,
    551_169_697_187,
    922_172_641_979,
    837_513_345_737,
    674_416_558_141,
    658_270_560_119,
    849_524_062_241,
    988_614_586_459,
    1_055_944_706_389,
    698_925_653_303,
    993_755_265_917,
    836_814_148_117,
    1_023_108_215_153,
    812_855_296_037,
];

/// What is remembered of remote ends with one hash.
#[derive(Clone, Copy, Default)]
struct End {
    /// Where the search goes on, modulo 2^32.
    next: u32,
    /// Some bits of the hash of the end that is refused; 0 for none.
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
        let (first, last) = range.into_inner();
        let places = usize::from(last) + 1;
        let places = places.saturating_sub(first.into());
        let at = |place| Some(first + place as u16);
        self.search(tuple, places, at, is_used, now_ns)
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
            ports.places(),
            |place| ports.at(place),
            is_used,
            now_ns,
        )
    }

    #[inline]
    fn search<const K: usize, T: Tuple<K>>(
        &mut self,
        tuple: &T,
        places: usize,
        at: impl Fn(usize) -> Option<u16>,
        mut is_used: impl FnMut(u16) -> bool,
        now_ns: u64,
    ) -> Option<u16> {
        let state = Sip::new(&self.secret).bytes(tuple.with_local_port(0).bytes());
        let hash = state.finish();
        // One for each choice: what is drawn tells nothing of what will be.
        let choices = self.counts.chosen + self.counts.exhausted;
        let random = state.word(choices).finish();
        let end = &mut self.ends[hash as usize % ENDS];
        let mark = (hash >> 16) as u16 | 1;
        let now = (now_ns >> 20) as u16;
        if end.refused == mark {
            if now.wrapping_sub(end.since) < REFUSED_UNITS {
                self.counts.refused += 1;
                return None;
            }
            end.refused = 0;
        }
        let mut tried = 0;
        let mut free = |place| {
            let port = at(place)?;
            tried += 1;
            (!is_used(port)).then_some(port)
        };
        let start = (hash >> 32) + u64::from(end.next);
        let in_order = walk(places, start, STRIDE).take(IN_ORDER);
        // Up to seven places are left out, as in Linux, so that the steps do not count connections.
        let first = end.next.wrapping_add(1 + (random as u32 & 7));
        let found = in_order.zip(0..).find_map(|(place, step)| {
            end.next = first.wrapping_add(step);
            free(place)
        });
        let found = found.or_else(|| {
            end.next = end.next.wrapping_add((random >> 8) as u32);
            let stride = STRIDES[(random >> 4 & 0xf) as usize];
            walk(places, random >> 32, stride).find_map(free)
        });
        self.counts.tried += tried;
        match found {
            Some(_) => self.counts.chosen += 1,
            None => {
                self.counts.exhausted += 1;
                (end.refused, end.since) = (mark, now);
            }
        }
        found
    }
}

/// All places from the `start`-th of an order on, each once. The order is by the stride.
#[inline]
fn walk(places: usize, start: u64, stride: u64) -> impl Iterator<Item = usize> {
    let count = places as u64;
    let reduced = |number: u64| number.checked_rem(count).unwrap_or(0);
    let step = reduced(stride);
    let mut place = reduced(reduced(start) * step);
    (0..places).map(move |_| {
        let this = place;
        place += step;
        if place >= count {
            place -= count;
        }
        this as usize
    })
}

#[cfg(test)]
mod tests;
