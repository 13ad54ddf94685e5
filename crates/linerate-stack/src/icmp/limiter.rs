//! Limits the rate of errors: in all, and to one destination (RFC 1812 4.3.2.8, RFC 4443 2.4(f)).

use std::net::IpAddr;

use crate::bucket::{Bucket, Rate};
use linerate_core::random::mixed;

/// Token buckets. Rates in messages a second; a burst is the number at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages a second to all destinations together; 0: none at all.
    pub total_per_s: u32,
    /// Burst to all destinations.
    pub total_burst: u32,
    /// Messages a second to one IPv4 address or one IPv6 /64; 0: none at all.
    pub each_per_s: u32,
    /// Burst to one destination: a traceroute sends three probes for each hop, sixteen at a time.
    pub each_burst: u32,
    /// Number of destinations with buckets of their own; 16 bytes of memory each. Rounded up to a
    /// power of two.
    pub destinations: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total_per_s: 1000,
            total_burst: 100,
            each_per_s: 10,
            each_burst: 10,
            destinations: 4096,
        }
    }
}

/// Decides whether a message may be sent. One owner; no allocation after [`Limiter::new`].
///
/// Destinations hash to sets of four buckets. A destination whose set is full of other recently
/// busy ones shares the bucket that is fullest: it may get less than its rate, never more. Without
/// the seed an attacker cannot choose destinations that share a set.
#[derive(Clone, Debug)]
pub struct Limiter {
    total_rate: Rate,
    each_rate: Rate,
    total: Bucket,
    sets: Box<[[Slot; WAYS]]>,
    seed: u64,
}

const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    destination: u64,
    bucket: Bucket,
}

impl Limiter {
    /// Full buckets.
    pub fn new(limits: Limits, seed: u64) -> Self {
        let sets = limits.destinations.div_ceil(WAYS).next_power_of_two();
        Self {
            total_rate: Rate::new(limits.total_per_s, limits.total_burst),
            each_rate: Rate::new(limits.each_per_s, limits.each_burst),
            total: Bucket::default(),
            sets: vec![[Slot::default(); WAYS]; sets].into(),
            seed,
        }
    }

    /// Whether a message may go to `destination` now; if so, it is counted.
    pub fn allow(&mut self, destination: IpAddr, now_ns: u64) -> bool {
        if !self.total.has(self.total_rate, now_ns) {
            return false;
        }
        let (destination, set) = self.place(destination);
        let set = &mut self.sets[set];
        let known = set.iter().position(|slot| slot.destination == destination);
        let at = known.unwrap_or_else(|| {
            let fullest = (0..WAYS).min_by_key(|at| set[*at].bucket).unwrap_or(0);
            // A full bucket has no state to lose.
            if set[fullest].bucket.is_full(now_ns) {
                set[fullest].destination = destination;
            }
            fullest
        });
        let may = set[at].bucket.take(self.each_rate, now_ns);
        may && self.total.take(self.total_rate, now_ns)
    }

    /// Undoes the count of a message to `destination`. If its bucket has been reused nothing is
    /// returned, which at worst gives it less than its rate.
    pub fn give_back(&mut self, destination: IpAddr) {
        let (destination, set) = self.place(destination);
        let mut slots = self.sets[set].iter_mut();
        if let Some(slot) = slots.find(|slot| slot.destination == destination) {
            slot.bucket.give_back(self.each_rate);
            self.total.give_back(self.total_rate);
        }
    }

    /// The key of a destination, and the set that it is in.
    fn place(&self, destination: IpAddr) -> (u64, usize) {
        // A host with one IPv6 address can use its whole /64.
        let bits = match destination {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        };
        let destination = mixed(bits ^ self.seed) ^ u64::from(destination.is_ipv4());
        let set = mixed(destination ^ self.seed.rotate_left(32)) as usize & (self.sets.len() - 1);
        (destination, set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const SECOND: u64 = 1_000_000_000;

    fn limits() -> Limits {
        Limits {
            total_per_s: 100,
            total_burst: 50,
            each_per_s: 10,
            each_burst: 5,
            destinations: 64,
        }
    }

    fn v4(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    #[test]
    fn rfc_1812_4_3_2_8_one_destination_gets_its_rate_and_others_theirs() {
        let mut limiter = Limiter::new(limits(), 1);
        let sent =
            |limiter: &mut Limiter, n, now| (0..20).filter(|_| limiter.allow(v4(n), now)).count();
        assert_eq!(sent(&mut limiter, 1, 0), 5);
        assert_eq!(sent(&mut limiter, 2, 0), 5);
        assert_eq!(sent(&mut limiter, 1, SECOND / 10), 1);
        assert_eq!(sent(&mut limiter, 1, 10 * SECOND), 5);
    }

    #[test]
    fn rfc_4443_2_4_f_all_together_get_no_more_than_the_total() {
        // A storm from spoofed sources, for ten seconds.
        let mut limiter = Limiter::new(limits(), 2);
        let mut sent = 0;
        for step in 0..100_000_u32 {
            let now = u64::from(step) * (10 * SECOND / 100_000);
            sent += u32::from(limiter.allow(v4(step), now));
        }
        assert!((900..=1050).contains(&sent), "{sent}");
    }

    #[test]
    fn an_ipv6_network_counts_as_one_destination() {
        let mut limiter = Limiter::new(limits(), 3);
        let host = |n: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n));
        assert_eq!((0..20).filter(|n| limiter.allow(host(*n), 0)).count(), 5);
    }

    #[test]
    fn more_destinations_than_buckets_never_get_more_than_their_rate() {
        let mut limiter = Limiter::new(
            Limits {
                total_per_s: 1_000_000,
                total_burst: 1_000_000,
                destinations: 4,
                ..limits()
            },
            4,
        );
        for round in 0..10 {
            for n in 0..100 {
                let _ = limiter.allow(v4(n), 0);
            }
            let more = limiter.allow(v4(7), 0);
            assert!(round == 0 || !more, "all buckets are empty by now");
        }
    }

    #[test]
    fn what_is_given_back_may_be_sent_again() {
        let mut limiter = Limiter::new(limits(), 6);
        let sent =
            |limiter: &mut Limiter, n| (0..20).filter(|_| limiter.allow(v4(n), SECOND)).count();
        assert_eq!(sent(&mut limiter, 1), 5);
        (0..3).for_each(|_| limiter.give_back(v4(1)));
        limiter.give_back(v4(2)); // without a bucket yet
        assert_eq!((sent(&mut limiter, 1), sent(&mut limiter, 2)), (3, 5));
    }

    #[test]
    fn a_rate_of_zero_turns_errors_off() {
        let off = Limits {
            each_per_s: 0,
            ..limits()
        };
        assert!(!Limiter::new(off, 5).allow(v4(1), SECOND));
        let off = Limits {
            total_per_s: 0,
            ..limits()
        };
        assert!(!Limiter::new(off, 5).allow(v4(1), SECOND));
    }
}
