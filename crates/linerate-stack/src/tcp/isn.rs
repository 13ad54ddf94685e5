//! Initial sequence numbers (RFC 9293 3.4.1, RFC 6528) and time stamp offsets (RFC 7323 5.4).
//!
//! Both are a clock plus what a keyed hash of the 4-tuple adds. So the numbers of one tuple go on
//! from one connection to the next, as the defence against old segments needs, and those of another
//! tuple tell nothing about them. One hash of 64 bits gives both: the halves do not depend on each
//! other. The offset of a tuple's time stamps is the same for all its connections, which lets a
//! new SYN take a lingering connection's place (RFC 6191).
//!
//! ```
//! use linerate_stack::tcp::{isn::Offsets, secret::Secret};
//! use linerate_wire::flow::FlowKey4;
//! let secret = Secret::random(); // once per process
//! let key = FlowKey4::new([198, 51, 100, 7], [192, 0, 2, 1], 40_000, 80, 6);
//! let offsets = Offsets::of(&secret, &key);
//! let (first, later) = (offsets.isn(0), offsets.isn(1_000_000_000));
//! assert_eq!(later.wrapping_sub(first), 250_000);
//! ```

use super::secret::{Secret, Sip};
use super::tuple::Tuple;

/// Nanoseconds of a step of the sequence number clock (RFC 9293 3.4.1, MUST-8).
const SEQ_TICK_NS: u64 = 4_000;
/// Nanoseconds of a step of the time stamp clock: within RFC 7323 5.4's 1 ms to 1 s, as Linux has
/// it.
pub const TS_TICK_NS: u64 = 1_000_000;

/// What the clocks of a 4-tuple are ahead of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Of sequence numbers: F of RFC 6528 3.
    pub seq: u32,
    /// Of time stamps.
    pub ts: u32,
}

impl Offsets {
    /// Those of `tuple`: one hash.
    #[inline]
    pub fn of<const K: usize, T: Tuple<K>>(secret: &Secret, tuple: &T) -> Self {
        Self::from_hash(Sip::new(secret).bytes(tuple.bytes()).finish())
    }

    #[inline(always)]
    pub(super) fn from_hash(hash: u64) -> Self {
        Self {
            seq: hash as u32,
            ts: (hash >> 32) as u32,
        }
    }

    /// The initial sequence number of a connection that begins now: it goes once around in 4.8
    /// hours.
    #[inline]
    pub fn isn(&self, now_ns: u64) -> u32 {
        self.seq.wrapping_add((now_ns / SEQ_TICK_NS) as u32)
    }

    /// The time stamp (TSval) of a segment that is sent now.
    #[inline]
    pub fn ts_val(&self, now_ns: u64) -> u32 {
        self.ts.wrapping_add(ts_clock(now_ns))
    }
}

/// The time stamp clock before any offset: milliseconds.
#[inline]
pub fn ts_clock(now_ns: u64) -> u32 {
    (now_ns / TS_TICK_NS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_testkit::Random;
    use linerate_wire::flow::{FlowKey4, FlowKey6};

    const SECRET: Secret = Secret::new(5);

    fn key(port: u16) -> FlowKey4 {
        FlowKey4::new([198, 51, 100, 7], [192, 0, 2, 1], port, 80, 6)
    }

    #[test]
    fn rfc_9293_3_4_1_the_clock_steps_every_4_us() {
        let offsets = Offsets::of(&SECRET, &key(1));
        let since = |now_ns| offsets.isn(now_ns).wrapping_sub(offsets.isn(0));
        assert_eq!([0, 3_999, 4_000, 8_000].map(since), [0, 0, 1, 2]);
        // It goes around in 2^32 steps, 4.77 hours.
        assert_eq!(since(4_000 << 32), 0);
        assert_eq!(since((4_000 << 32) - 1), u32::MAX);
    }

    #[test]
    fn rfc_6528_3_one_tuple_goes_on_and_others_tell_nothing() {
        assert_eq!(Offsets::of(&SECRET, &key(1)), Offsets::of(&SECRET, &key(1)));
        let numbers = |secret: Secret| {
            let mut all: Vec<_> = (0..10_000)
                .map(|port| Offsets::of(&secret, &key(port)).isn(0))
                .collect();
            let steps: Vec<_> = all.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
            // Neighbouring ports are as far apart as random numbers are: each quarter of the
            // space has a quarter of the steps.
            for quarter in 0..4 {
                let count = steps.iter().filter(|&&step| step >> 30 == quarter).count();
                assert!((2_200..2_800).contains(&count), "{count}");
            }
            all.sort_unstable();
            all.dedup();
            assert!(all.len() >= 9_990);
        };
        numbers(SECRET);
        numbers(Secret::new(6));
        assert_ne!(
            Offsets::of(&SECRET, &key(1)),
            Offsets::of(&Secret::new(6), &key(1))
        );
    }

    /// RFC 6528 3: F is of all four, and every bit of them counts. Zones are part of the tuple.
    #[test]
    fn every_bit_of_the_tuple_changes_both_offsets() {
        fn check<const K: usize, T: Tuple<K>>(random: &mut Random) {
            let mut flips = [0_u32; 64];
            let word = |bytes| {
                let Offsets { seq, ts } = Offsets::of(&SECRET, &T::from_bytes(bytes));
                u64::from(ts) << 32 | u64::from(seq)
            };
            for bit in 0..K * 8 {
                let mut bytes: [u8; K] = std::array::from_fn(|_| random.below(256) as u8);
                let before = word(bytes);
                bytes[bit / 8] ^= 1 << (bit % 8);
                let change = before ^ word(bytes);
                assert!(change as u32 != 0 && change >> 32 != 0);
                for (at, flips) in flips.iter_mut().enumerate() {
                    *flips += (change >> at & 1) as u32;
                }
            }
            for count in flips {
                let share = f64::from(count) / (K * 8) as f64;
                assert!((0.3..0.7).contains(&share), "{share}");
            }
        }
        let mut random = Random::new(11);
        check::<16, FlowKey4>(&mut random);
        check::<40, FlowKey6>(&mut random);
    }

    #[test]
    fn rfc_7323_5_4_time_stamps_count_milliseconds_and_begin_anywhere() {
        let (one, other) = (Offsets::of(&SECRET, &key(1)), Offsets::of(&SECRET, &key(2)));
        let since = |now_ns| one.ts_val(now_ns).wrapping_sub(one.ts_val(0));
        assert_eq!(
            [999_999, 1_000_000, 7_000_000_000].map(since),
            [0, 1, 7_000]
        );
        assert_ne!(one.ts_val(0), other.ts_val(0));
        assert_eq!(one.ts_val(0), one.ts);
    }
}
