//! What path MTU discovery has found, by destination (RFC 1191, RFC 8201).
//!
//! A bounded cache: sets of four, chosen by a keyed hash, so that forged reports neither allocate
//! nor choose whose entry they replace. An entry only ever falls, and is forgotten ten minutes
//! after it last did (RFC 1191 6.3, RFC 8201 4).

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use super::address::bits;
use linerate_wire::ipv6;

/// The least that is believed of an IPv4 path, as Linux's `min_pmtu` (512 bytes of data and the
/// longest usual headers): below, a forged report could make a host send tiny segments.
pub const LEAST_MTU4: u16 = 552;
/// The least of an IPv6 path (RFC 8201 4, RFC 8200 5).
pub const LEAST_MTU6: u16 = ipv6::MIN_MTU as u16;

/// What a path takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// Longest IP packet in bytes.
    pub bytes: u16,
    /// Whether packets may forbid fragmentation: not where a router has asked for less than
    /// [`LEAST_MTU4`], for then it has to cut them.
    pub dont_fragment: bool,
}

const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    destination: u128,
    until_ns: u64,
    mtu: u16,
    is_cut: bool,
}

const _: () = assert!(size_of::<Entry>() == 32);

#[derive(Debug)]
pub(super) struct PathMtus {
    sets: Box<[[Entry; WAYS]]>,
    hash: RandomState,
    lifetime_ns: u64,
    /// When the last entry will have expired: the cache is empty from then on.
    last_ns: u64,
}

impl PathMtus {
    pub(super) fn new(entries: usize, lifetime_ns: u64) -> Self {
        let sets = entries.div_ceil(WAYS).next_power_of_two();
        Self {
            sets: vec![[Entry::default(); WAYS]; sets].into(),
            hash: RandomState::new(),
            lifetime_ns,
            last_ns: 0,
        }
    }

    fn set(&self, destination: u128) -> usize {
        self.hash.hash_one(destination) as usize & (self.sets.len() - 1)
    }

    /// What is known of a destination whose first link takes `most`.
    #[inline]
    pub(super) fn get(&self, to: IpAddr, most: u16, now_ns: u64) -> PathMtu {
        let nothing = PathMtu {
            bytes: most,
            dont_fragment: true,
        };
        // As a rule no report has come for ten minutes.
        if now_ns >= self.last_ns {
            return nothing;
        }
        let destination = bits(to);
        let mut set = self.sets[self.set(destination)].iter();
        match set.find(|entry| entry.destination == destination && now_ns < entry.until_ns) {
            Some(entry) => PathMtu {
                bytes: entry.mtu.min(most),
                dont_fragment: !entry.is_cut,
            },
            None => nothing,
        }
    }

    /// A router takes no more than `mtu` bytes on the way to a destination; `most` is what is
    /// known so far. Returns what counts now, if that is less.
    pub(super) fn note(&mut self, to: IpAddr, mtu: u16, most: u16, now_ns: u64) -> Option<PathMtu> {
        let least = match to {
            IpAddr::V4(_) => LEAST_MTU4,
            // RFC 8201 4: such a report is discarded.
            IpAddr::V6(_) if mtu < LEAST_MTU6 => return None,
            IpAddr::V6(_) => LEAST_MTU6,
        };
        let before = self.get(to, most, now_ns);
        let is_cut = mtu < least;
        let bytes = mtu.max(least).min(before.bytes);
        if bytes >= before.bytes && is_cut != before.dont_fragment {
            return None;
        }
        let (destination, until_ns) = (bits(to), now_ns.saturating_add(self.lifetime_ns));
        let at = self.set(destination);
        let set = &mut self.sets[at];
        let known = set
            .iter()
            .position(|entry| entry.destination == destination);
        // Else the one that expires first, long ago or not.
        let oldest = || (0..WAYS).min_by_key(|way| set[*way].until_ns).unwrap_or(0);
        let way = known.unwrap_or_else(oldest);
        self.sets[at][way] = Entry {
            destination,
            until_ns,
            mtu: bytes,
            is_cut,
        };
        self.last_ns = self.last_ns.max(until_ns);
        Some(PathMtu {
            bytes,
            dont_fragment: !is_cut,
        })
    }
}

/// RFC 1191 7, table 7-1: the next lower of the MTUs that links have, for a router that names none,
/// by the length of the packet that was too long for it.
pub(super) fn plateau(len: u16) -> u16 {
    const PLATEAUS: [u16; 10] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];
    (PLATEAUS.into_iter().find(|plateau| *plateau < len)).unwrap_or(68)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn rfc_1191_6_3_a_path_mtu_falls_and_is_forgotten_after_ten_minutes() {
        let mut mtus = PathMtus::new(64, 600 * SECOND);
        let to = at("203.0.113.9");
        let fell = mtus.note(to, 1400, 1500, 0).unwrap();
        assert_eq!((fell.bytes, fell.dont_fragment), (1400, true));
        assert_eq!(mtus.note(to, 1450, 1500, SECOND), None, "it never rises");
        assert_eq!(
            mtus.note(to, 1400, 1500, SECOND),
            None,
            "nor is it kept alive"
        );
        assert_eq!(mtus.get(to, 1500, 599 * SECOND).bytes, 1400);
        assert_eq!(mtus.get(to, 1300, 599 * SECOND).bytes, 1300);
        assert_eq!(mtus.get(at("203.0.113.8"), 1500, 0).bytes, 1500);
        assert_eq!(mtus.get(to, 1500, 600 * SECOND).bytes, 1500);
    }

    #[test]
    fn rfc_8201_4_reports_below_1280_are_discarded() {
        let mut mtus = PathMtus::new(64, 600 * SECOND);
        let to = at("2001:db8::9");
        assert_eq!(mtus.note(to, 1279, 1500, 0), None);
        assert_eq!(mtus.note(to, 1280, 1500, 0).unwrap().bytes, 1280);
    }

    #[test]
    fn ipv4_has_a_floor_below_which_routers_cut() {
        let mut mtus = PathMtus::new(64, 600 * SECOND);
        let to = at("203.0.113.9");
        let floor = PathMtu {
            bytes: LEAST_MTU4,
            dont_fragment: false,
        };
        assert_eq!(mtus.note(to, 68, 1500, 0), Some(floor));
        assert_eq!(mtus.note(to, 300, 1500, 1), None);
        assert_eq!(mtus.get(to, 1500, 2), floor);
    }

    #[test]
    fn rfc_1191_7_plateaus() {
        assert_eq!(
            [1500, 1492, 576, 68, 20].map(plateau),
            [1492, 1006, 508, 68, 68]
        );
    }

    #[test]
    fn forged_reports_replace_the_oldest_and_no_more() {
        let mut mtus = PathMtus::new(16, 600 * SECOND);
        for n in 0..10_000_u32 {
            let to = IpAddr::V4(n.wrapping_add(0x0a00_0000).into());
            assert!(mtus.note(to, 1000, 1500, n.into()).is_some());
            assert_eq!(mtus.get(to, 1500, n.into()).bytes, 1000);
        }
        assert_eq!(mtus.sets.len() * WAYS, 16);
    }
}
