//! SYN cookies (RFC 4987 3.6): while a listener has no room, all that a half-open connection needs
//! is in the numbers that its client sends back.
//!
//! The sequence number is the sum of
//!
//! | bits | what |
//! |---|---|
//! | 31 to 0 | the tuple's [offset](Offsets::seq), and the client's sequence number |
//! | 31 to 24 | the time, in periods of 64 s |
//! | 23 to 0 | a hash of tuple, client's sequence number and period, and the class of its MSS |
//!
//! The first two make a tuple's numbers grow as the client's do, so an old connection's segments
//! are seldom within the new one's window. A guess is right if its period is this one or the last
//! (2 of 256) and its class is one of eight (8 of 2^24): once in 2^28. What it gains is a
//! connection that the listener's own limits count.
//!
//! The time stamp, where the client offered them, is the tuple's clock, and its low bits are
//!
//! | bits | what |
//! |---|---|
//! | 5 | ECN was agreed on |
//! | 4 | SACK was agreed on |
//! | 3 to 0 | the client's window scale, or 15 for none |
//!
//! as in Linux. It stays up to 63 ms behind the clock, so the round trip must not be measured by
//! it. These bits are not in the hash: a client that changes them harms itself, and one whose time
//! stamps a middlebox removes still connects, without scale, SACK and ECN.
//!
//! ```
//! use linerate_stack::tcp::{cookie::{Cookies, Echo, Offer}, secret::Secret};
//! use linerate_wire::flow::FlowKey4;
//! let mut cookies = Cookies::new(Secret::random());
//! let key = FlowKey4::new([198, 51, 100, 7], [192, 0, 2, 1], 40_000, 80, 6);
//! let offer = Offer { mss: 1460, window_scale: Some(7), sack: true, ecn: false, has_ts: true };
//! let cookie = cookies.make(&key, 1000, &offer, 0);
//! // The client's ACK, a second later.
//! let echo = Echo { seq: 1001, ack: cookie.isn.wrapping_add(1), ts_ecr: cookie.ts_val };
//! assert_eq!(cookies.check(&key, &echo, 1_000_000_000), Some(offer));
//! assert_eq!(cookies.check(&key, &echo, 128_000_000_000), None);
//! ```

use super::isn::{Offsets, ts_clock};
use super::secret::{Secret, Sip};
use super::tuple::Tuple;

/// Nanoseconds of a period. A cookie holds for the one in which it is made and the next: 64 to 128
/// seconds.
pub const PERIOD_NS: u64 = 64_000_000_000;

/// Bits of the sequence number that the hash fills.
const HASH_BITS: u32 = 24;
const HASH_MASK: u32 = (1 << HASH_BITS) - 1;

/// Bits of the time stamp that say what was agreed on.
const TS_BITS: u32 = 6;
const TS_MASK: u32 = (1 << TS_BITS) - 1;
const TS_NO_SCALE: u32 = 15;
const TS_SACK: u32 = 1 << 4;
const TS_ECN: u32 = 1 << 5;

/// What a cookie's time stamp can be behind the clock: as long as the cookie holds, and what its
/// low bits take.
const TS_AGE_MAX: u32 = ts_clock_of(2 * PERIOD_NS) + TS_MASK;

const fn ts_clock_of(ns: u64) -> u32 {
    (ns / super::isn::TS_TICK_NS) as u32
}

/// What client and listener agree on in their SYNs, from the client's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The longest segment that the client takes, in bytes, or the default where it said none
    /// (RFC 9293 3.7.1). What comes back is the largest of [`Tuple::MSS_CLASSES`] that is not
    /// longer, or the first.
    pub mss: u16,
    /// How far the client's windows are shifted, at most 14; `None` if windows are not scaled (RFC
    /// 7323 2).
    pub window_scale: Option<u8>,
    /// Selective acknowledgements (RFC 2018 2).
    pub sack: bool,
    /// Explicit congestion notification (RFC 3168 6.1.1).
    pub ecn: bool,
    /// Time stamps (RFC 7323 3.2). Without them the three before this one are lost.
    pub has_ts: bool,
}

/// The numbers of the SYN-ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Its sequence number.
    pub isn: u32,
    /// Its TSval, where the client offered time stamps.
    pub ts_val: Option<u32>,
}

/// What a segment for no known connection says that may answer a cookie: the client's ACK, or its
/// first data where that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its sequence number.
    pub seq: u32,
    /// Its acknowledgment number.
    pub ack: u32,
    /// Its TSecr, if it has time stamps.
    pub ts_ecr: Option<u32>,
}

/// Makes cookies and knows them again.
#[derive(Clone, Debug)]
pub struct Cookies {
    secret: Secret,
    last_made_ns: Option<u64>,
    /// The shift of our windows that cookies are told with, and that of those before.
    scale: u8,
    scale_before: u8,
    /// When it became another, while there were some with the one before.
    scale_changed_ns: Option<u64>,
}

impl Cookies {
    /// None made yet. `secret` is that of the stack's [`Offsets`].
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            last_made_ns: None,
            scale: 0,
            scale_before: 0,
            scale_changed_ns: None,
        }
    }

    /// The answers to SYNs tell this shift of our windows from now on (RFC 7323 2.2). A cookie has
    /// no bits for it: it is that of the listener's settings, which seldom change.
    #[inline(always)]
    pub fn tell_scale(&mut self, scale: u8, now_ns: u64) {
        if scale != self.scale {
            self.change_scale(scale, now_ns);
        }
    }

    #[cold]
    fn change_scale(&mut self, scale: u8, now_ns: u64) {
        let holds = |at: &u64| now_ns.saturating_sub(*at) < 2 * PERIOD_NS;
        let changed = self.scale_changed_ns.filter(holds);
        self.scale_before = match changed {
            // Of several changes in two minutes the largest: see `told_scale`.
            Some(_) => self.scale_before.max(self.scale),
            None => self.scale,
        };
        self.scale_changed_ns = self.are_out(now_ns).then_some(now_ns);
        self.scale = scale;
    }

    /// The shift of our windows that the client of a cookie that holds was told: the time stamp
    /// says when. Where that is not certain, since it stays up to 63 ms behind, it is the larger
    /// one: then the client takes our windows for smaller than they are, and never for larger.
    pub fn told_scale<const K: usize, T: Tuple<K>>(
        &self,
        tuple: &T,
        ts_ecr: Option<u32>,
        now_ns: u64,
    ) -> u8 {
        let (Some(changed_ns), Some(ts_ecr)) = (self.scale_changed_ns, ts_ecr) else {
            return self.scale;
        };
        let clock = ts_ecr.wrapping_sub(Offsets::of(&self.secret, tuple).ts);
        let age = u64::from(ts_clock(now_ns).wrapping_sub(clock));
        let since = now_ns.saturating_sub(changed_ns) / super::isn::TS_TICK_NS;
        match age {
            _ if age > since + u64::from(TS_MASK) + 1 => self.scale_before,
            _ if age >= since => self.scale.max(self.scale_before),
            _ => self.scale,
        }
    }

    /// Whether one that was made here may still hold. If not, an ACK for no connection is no answer
    /// to one, and is refused without a look: no guess is right where no flood is.
    pub fn are_out(&self, now_ns: u64) -> bool {
        (self.last_made_ns)
            .is_some_and(|made| (now_ns / PERIOD_NS).saturating_sub(made / PERIOD_NS) < 2)
    }

    /// The cookie for a SYN with sequence number `client_isn`. The same SYN gets the same sequence
    /// number within a period.
    #[inline]
    pub fn make<const K: usize, T: Tuple<K>>(
        &mut self,
        tuple: &T,
        client_isn: u32,
        offer: &Offer,
        now_ns: u64,
    ) -> Cookie {
        self.last_made_ns = Some(now_ns);
        let period = now_ns / PERIOD_NS;
        let (offsets, hash) = self.hashes(tuple, client_isn, period);
        // Eight classes: the count of those that are not above is one too many, or zero.
        let fitting = T::MSS_CLASSES.map(|class| u32::from(class <= offer.mss));
        let class = fitting.iter().sum::<u32>().saturating_sub(1);
        let low = hash.wrapping_add(class) & HASH_MASK;
        Cookie {
            isn: base(offsets, client_isn)
                .wrapping_add((period as u32) << HASH_BITS)
                .wrapping_add(low),
            ts_val: offer.has_ts.then(|| {
                let clock = behind(ts_clock(now_ns), ts_bits(offer));
                clock.wrapping_add(offsets.ts)
            }),
        }
    }

    /// What was agreed on, if `echo` answers a cookie that holds.
    ///
    /// Costs one hash, and most of another where the period is right. [`Echo::seq`] and
    /// [`Echo::ack`] are one more than the SYNs' sequence numbers, so only segments that begin
    /// where the client's data does can be an answer.
    #[inline]
    pub fn check<const K: usize, T: Tuple<K>>(
        &self,
        tuple: &T,
        echo: &Echo,
        now_ns: u64,
    ) -> Option<Offer> {
        let client_isn = echo.seq.wrapping_sub(1);
        let state = Sip::new(&self.secret).bytes(tuple.bytes());
        let offsets = Offsets::from_hash(state.finish());
        let rest = (echo.ack.wrapping_sub(1)).wrapping_sub(base(offsets, client_isn));
        // 0 for this period, 1 for the last.
        let now = now_ns / PERIOD_NS;
        let age = (now as u32).wrapping_sub(rest >> HASH_BITS) & 0xff;
        let period = now.checked_sub(u64::from(age)).filter(|_| age < 2)?;
        let hash = hash_of(state, client_isn, period);
        let class = rest.wrapping_sub(hash) & HASH_MASK;
        let mss = *T::MSS_CLASSES.get(class as usize)?;
        let Some(ts_ecr) = echo.ts_ecr else {
            return Some(Offer {
                mss,
                window_scale: None,
                sack: false,
                ecn: false,
                has_ts: false,
            });
        };
        let clock = ts_ecr.wrapping_sub(offsets.ts);
        // No time stamp of ours is from the future or older than the cookie.
        if ts_clock(now_ns).wrapping_sub(clock) > TS_AGE_MAX {
            return None;
        }
        let scale = clock & 0xf;
        Some(Offer {
            mss,
            window_scale: (scale != TS_NO_SCALE).then_some(scale as u8),
            sack: clock & TS_SACK != 0,
            ecn: clock & TS_ECN != 0,
            has_ts: true,
        })
    }

    /// The tuple's offsets, and the hash that only its client can have got from us.
    #[inline(always)]
    fn hashes<const K: usize, T: Tuple<K>>(
        &self,
        tuple: &T,
        client_isn: u32,
        period: u64,
    ) -> (Offsets, u32) {
        let state = Sip::new(&self.secret).bytes(tuple.bytes());
        let offsets = Offsets::from_hash(state.finish());
        (offsets, hash_of(state, client_isn, period))
    }
}

/// Goes on from the state of the tuple. The period's low 32 bits are enough: it has 8000 years.
#[inline(always)]
fn hash_of(state: Sip, client_isn: u32, period: u64) -> u32 {
    let word = u64::from(client_isn) << 32 | u64::from(period as u32);
    state.word(word).finish() as u32 & HASH_MASK
}

/// What sequence numbers of the tuple grow from.
#[inline(always)]
fn base(offsets: Offsets, client_isn: u32) -> u32 {
    offsets.seq.wrapping_add(client_isn)
}

/// What the time stamp says.
#[inline(always)]
fn ts_bits(offer: &Offer) -> u32 {
    // RFC 7323 2.3: a scale above 14 counts as 14.
    let scale = (offer.window_scale).map_or(TS_NO_SCALE, |scale| u32::from(scale.min(14)));
    let flag = |set: bool, bit| if set { bit } else { 0 };
    scale | flag(offer.sack, TS_SACK) | flag(offer.ecn, TS_ECN)
}

/// The last time at or before `clock` with these low bits: time stamps never go back.
#[inline(always)]
fn behind(clock: u32, bits: u32) -> u32 {
    let back = clock.wrapping_sub(bits) & TS_MASK;
    clock.wrapping_sub(back)
}

#[cfg(test)]
mod tests;
