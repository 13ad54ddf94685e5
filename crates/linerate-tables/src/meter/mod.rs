//! Meters: srTCM (RFC 2697), trTCM (RFC 2698) and the trTCM of RFC 4115, colour-blind and
//! colour-aware, one by one and over bursts.
//!
//! A profile ([`SrTcm`], [`TrTcm`], [`TrTcm4115`]) holds rates and burst sizes and is shared; the
//! [`Buckets`] are what each meter has for itself; [`Meters`] is an array of them with their
//! profiles. A colour-blind meter is a colour-aware one whose packets all come in green: the RFCs'
//! two modes agree on that.
//!
//! # Exact by units
//!
//! A bucket counts in *byte-ticks*: a tick adds the rate in bytes per second, a byte takes as many
//! as there are ticks in a second. So filling and taking are whole-number products, without a
//! division, a period or a remainder: nothing is rounded, at 1 byte a second or at 400 Gb/s, and
//! nothing drifts. A bucket's size in byte-ticks must stay below 2^62: with a clock of 1 GHz
//! (nanoseconds) 4.6 GB, the bytes of 92 ms at 400 Gb/s. A long idle time cannot overflow: it is
//! cut to the time that fills the bucket.
//!
//! Packet lengths are the IP packet's in all three RFCs; what is counted here is what the caller
//! passes. Cost: O(1), three multiplications; 32 bytes a meter.

use std::hint::select_unpredictable;

use crate::TableError;

mod array;

pub use array::{Meters, ProfileId};

/// What a meter says of a packet, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Color {
    /// Within the committed rate.
    #[default]
    Green,
    /// Above it, within the excess or peak.
    Yellow,
    /// Beyond both.
    Red,
}

/// What one meter has: when it last looked, and the tokens of its two buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    time: u64,
    /// Tc, in byte-ticks.
    committed: u64,
    /// Te or Tp, in byte-ticks.
    other: u64,
}

/// One of the three kinds of profile.
pub trait Profile: Copy + sealed::Sealed {
    /// The buckets of a new meter: full.
    fn full(&self, now: u64) -> Buckets;

    /// Colours a packet of `bytes` that came in as `color` at tick `now`, and takes its tokens. A
    /// `now` before the last one is taken as the last one.
    fn mark(&self, buckets: &mut Buckets, now: u64, bytes: u32, color: Color) -> Color;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::SrTcm {}
    impl Sealed for super::TrTcm {}
    impl Sealed for super::TrTcm4115 {}
}

/// The single rate three color marker of RFC 2697: one rate, and what its bucket (CBS) does not
/// hold goes into a second one (EBS).
///
/// ```
/// use linerate_tables::meter::{Color, Profile, SrTcm, SrTcmConfig};
/// // 1 Mbyte/s, bursts of 2000 and 3000 bytes, a clock of nanoseconds.
/// let hz = 1_000_000_000;
/// let meter = SrTcm::new(&SrTcmConfig { cir: 1_000_000, cbs: 2000, ebs: 3000, hz })?;
/// let mut buckets = meter.full(0);
/// let mut mark = |now, bytes| meter.mark(&mut buckets, now, bytes, Color::Green);
/// assert_eq!(mark(0, 1500), Color::Green);
/// assert_eq!(mark(0, 1500), Color::Yellow);
/// assert_eq!(mark(0, 1501), Color::Red);
/// assert_eq!(mark(1_000_000, 1500), Color::Green); // 1 ms is 1000 bytes
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrTcm {
    /// The rate, and a size of both buckets together.
    both: Bucket,
    committed_size: u64,
    excess_size: u64,
}

/// The two rate three color marker of RFC 2698: green takes from the peak and from the committed
/// bucket, yellow from the peak bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrTcm {
    peak: Bucket,
    committed: Bucket,
}

/// The differentiated service two-rate three-color marker of RFC 4115: green takes from the
/// committed bucket, yellow from the excess bucket, and neither from both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrTcm4115 {
    committed: Bucket,
    excess: Bucket,
}

/// What an [`SrTcm`] is to be, in the words of RFC 2697.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrTcmConfig {
    /// Committed information rate, in bytes a second.
    pub cir: u64,
    /// Committed burst size, in bytes.
    pub cbs: u64,
    /// Excess burst size, in bytes.
    pub ebs: u64,
    /// Ticks of the clock a second.
    pub hz: u64,
}

/// What a [`TrTcm`] is to be, in the words of RFC 2698.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrTcmConfig {
    /// Committed information rate, in bytes a second.
    pub cir: u64,
    /// Committed burst size, in bytes.
    pub cbs: u64,
    /// Peak information rate, in bytes a second: what is committed is a part of it.
    pub pir: u64,
    /// Peak burst size, in bytes.
    pub pbs: u64,
    /// Ticks of the clock a second.
    pub hz: u64,
}

/// What a [`TrTcm4115`] is to be, in the words of RFC 4115.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrTcm4115Config {
    /// Committed information rate, in bytes a second.
    pub cir: u64,
    /// Committed burst size, in bytes.
    pub cbs: u64,
    /// Excess information rate, in bytes a second: beside what is committed.
    pub eir: u64,
    /// Excess burst size, in bytes.
    pub ebs: u64,
    /// Ticks of the clock a second.
    pub hz: u64,
}

impl SrTcm {
    /// A profile of these rates.
    ///
    /// # Errors
    /// [`TableError::Meter`]: no rate, both bursts zero, or sizes beyond this clock.
    pub fn new(config: &SrTcmConfig) -> Result<Self, TableError> {
        let &SrTcmConfig { cir, cbs, ebs, hz } = config;
        let refuse = refuse("srTCM (RFC 2697)");
        if cir == 0 {
            return Err(refuse("cir is 0: give bytes per second".into()));
        }
        // RFC 2697 2: at least one of them larger than zero.
        if cbs == 0 && ebs == 0 {
            return Err(refuse(
                "cbs and ebs are both 0: give one at least a packet's size".into(),
            ));
        }
        let both = Bucket::new(cir, cbs.saturating_add(ebs), hz).map_err(&refuse)?;
        Ok(Self {
            both,
            committed_size: cbs * hz,
            excess_size: ebs * hz,
        })
    }
}

impl TrTcm {
    /// A profile of these rates.
    ///
    /// # Errors
    /// [`TableError::Meter`]: no committed rate, a peak below it, a burst of zero, or sizes beyond
    /// this clock.
    pub fn new(config: &TrTcmConfig) -> Result<Self, TableError> {
        let &TrTcmConfig {
            cir,
            cbs,
            pir,
            pbs,
            hz,
        } = config;
        let refuse = refuse("trTCM (RFC 2698)");
        if cir == 0 {
            return Err(refuse("cir is 0: give bytes per second".into()));
        }
        // RFC 2698 2: PIR equal to or greater than CIR, both burst sizes above zero.
        if pir < cir {
            return Err(refuse(format!(
                "pir {pir} is below cir {cir}: raise the peak or lower the committed rate"
            )));
        }
        if pbs == 0 || cbs == 0 {
            return Err(refuse(format!(
                "pbs is {pbs} and cbs {cbs}: give both at least a packet's size"
            )));
        }
        Ok(Self {
            peak: Bucket::new(pir, pbs, hz).map_err(&refuse)?,
            committed: Bucket::new(cir, cbs, hz).map_err(&refuse)?,
        })
    }
}

impl TrTcm4115 {
    /// A profile of these rates, which are independent of each other. One of them may be zero:
    /// nothing is green, or nothing yellow, after the burst.
    ///
    /// # Errors
    /// [`TableError::Meter`]: both rates zero, a rate without a burst, or sizes beyond this clock.
    pub fn new(config: &TrTcm4115Config) -> Result<Self, TableError> {
        let &TrTcm4115Config {
            cir,
            cbs,
            eir,
            ebs,
            hz,
        } = config;
        let refuse = refuse("trTCM (RFC 4115)");
        if cir == 0 && eir == 0 {
            return Err(refuse(
                "cir and eir are both 0: give bytes per second".into(),
            ));
        }
        for (rate, burst, of) in [(cir, cbs, "c"), (eir, ebs, "e")] {
            if rate > 0 && burst == 0 {
                return Err(refuse(format!(
                    "{of}bs is 0 and {of}ir is not: give it at least a packet's size"
                )));
            }
        }
        Ok(Self {
            committed: Bucket::new(cir, cbs, hz).map_err(&refuse)?,
            excess: Bucket::new(eir, ebs, hz).map_err(&refuse)?,
        })
    }
}

fn refuse(kind: &'static str) -> impl Fn(String) -> TableError {
    move |reason| TableError::Meter { kind, reason }
}

// RFC 2697 3. Selections rather than branches: colours of real traffic cannot be predicted.
impl Profile for SrTcm {
    fn full(&self, now: u64) -> Buckets {
        Buckets {
            time: now,
            committed: self.committed_size,
            other: self.excess_size,
        }
    }

    #[inline]
    fn mark(&self, buckets: &mut Buckets, now: u64, bytes: u32, color: Color) -> Color {
        let need = self.both.need(bytes);
        let filled = buckets.committed + self.both.gained(buckets.pass(now));
        let committed = lesser(filled, self.committed_size);
        let excess = lesser(buckets.other + (filled - committed), self.excess_size);
        let green = (color == Color::Green) & (committed >= need);
        let yellow = !green & (color != Color::Red) & (excess >= need);
        buckets.committed = committed - taken(green, need);
        buckets.other = excess - taken(yellow, need);
        of(green, yellow)
    }
}

// RFC 2698 3.
impl Profile for TrTcm {
    fn full(&self, now: u64) -> Buckets {
        Buckets {
            time: now,
            committed: self.committed.size,
            other: self.peak.size,
        }
    }

    #[inline]
    fn mark(&self, buckets: &mut Buckets, now: u64, bytes: u32, color: Color) -> Color {
        let need = self.peak.need(bytes);
        let elapsed = buckets.pass(now);
        let peak = self.peak.filled(buckets.other, elapsed);
        let committed = self.committed.filled(buckets.committed, elapsed);
        let within_peak = (color != Color::Red) & (peak >= need);
        let green = within_peak & (color == Color::Green) & (committed >= need);
        buckets.other = peak - taken(within_peak, need);
        buckets.committed = committed - taken(green, need);
        of(green, within_peak)
    }
}

// RFC 4115 3.
impl Profile for TrTcm4115 {
    fn full(&self, now: u64) -> Buckets {
        Buckets {
            time: now,
            committed: self.committed.size,
            other: self.excess.size,
        }
    }

    #[inline]
    fn mark(&self, buckets: &mut Buckets, now: u64, bytes: u32, color: Color) -> Color {
        let need = self.committed.need(bytes);
        let elapsed = buckets.pass(now);
        let committed = self.committed.filled(buckets.committed, elapsed);
        let excess = self.excess.filled(buckets.other, elapsed);
        let green = (color == Color::Green) & (committed >= need);
        let yellow = !green & (color != Color::Red) & (excess >= need);
        buckets.committed = committed - taken(green, need);
        buckets.other = excess - taken(yellow, need);
        of(green, yellow)
    }
}

/// What a packet takes from a bucket, without a branch.
#[inline(always)]
fn taken(takes: bool, need: u64) -> u64 {
    select_unpredictable(takes, need, 0)
}

/// The lesser of two numbers, without a branch.
#[inline(always)]
fn lesser(a: u64, b: u64) -> u64 {
    select_unpredictable(a < b, a, b)
}

#[inline(always)]
fn of(green: bool, yellow: bool) -> Color {
    const COLORS: [Color; 4] = [Color::Red, Color::Yellow, Color::Green, Color::Green];
    COLORS[usize::from(green) * 2 + usize::from(yellow)]
}

impl Buckets {
    /// The ticks since the last packet; time never goes back.
    #[inline]
    fn pass(&mut self, now: u64) -> u64 {
        let elapsed = now.saturating_sub(self.time);
        self.time += elapsed;
        elapsed
    }
}

/// A token bucket's constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    /// Bytes a second, which is byte-ticks a tick.
    rate: u64,
    /// In byte-ticks; twice it and a tick's gain fit 64 bits.
    size: u64,
    /// Ticks that fill it from empty.
    fill: u64,
    /// Byte-ticks that a byte takes.
    hz: u64,
}

impl Bucket {
    fn new(rate: u64, bytes: u64, hz: u64) -> Result<Self, String> {
        if hz == 0 {
            return Err("the clock's hz is 0: give its ticks per second".into());
        }
        let limit = 1_u64 << 62;
        let size = bytes.checked_mul(hz).filter(|&size| size < limit);
        let Some(size) = size else {
            return Err(format!(
                "bursts of {bytes} bytes, at most {} with a clock of {hz} ticks a second: lower \
                 them or count in coarser ticks",
                (limit - 1) / hz
            ));
        };
        if rate >= limit {
            return Err(format!("a rate of {rate} bytes a second: at most {limit}"));
        }
        let fill = match rate {
            0 => 0,
            _ => size.div_ceil(rate),
        };
        Ok(Self {
            rate,
            size,
            fill,
            hz,
        })
    }

    /// What a packet takes; too much for any bucket if it does not fit.
    #[inline]
    fn need(&self, bytes: u32) -> u64 {
        u64::from(bytes).saturating_mul(self.hz)
    }

    /// What `elapsed` ticks bring, cut to little more than a bucket full.
    #[inline]
    fn gained(&self, elapsed: u64) -> u64 {
        lesser(elapsed, self.fill) * self.rate
    }

    #[inline]
    fn filled(&self, tokens: u64, elapsed: u64) -> u64 {
        lesser(tokens + self.gained(elapsed), self.size)
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests;
