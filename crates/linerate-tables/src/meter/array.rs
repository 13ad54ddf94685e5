//! Many meters, and bursts of packets through them.

use linerate_core::arch::prefetch_read;
use linerate_core::mem::{HugeArray, PageKind};

use super::{Buckets, Color, Profile};
use crate::TableError;

/// How many meters' lines are asked for before the first is needed.
const AHEAD: usize = 16;

/// A profile of one [`Meters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileId(u32);

/// Meters numbered from 0, all of one kind, each with one of a few profiles. One owner; 32 bytes a
/// meter.
///
/// ```
/// use linerate_tables::meter::{Color, Meters, TrTcm, TrTcmConfig};
/// let slow = TrTcmConfig { cir: 100_000, cbs: 1500, pir: 200_000, pbs: 3000, hz: 1_000_000_000 };
/// let fast = TrTcmConfig { cir: 1_000_000, cbs: 9000, pir: 2_000_000, pbs: 9000, ..slow };
/// let mut meters = Meters::new("customers", 1000, TrTcm::new(&slow)?, 0)?;
/// let gold = meters.add(TrTcm::new(&fast)?);
/// meters.assign(7, gold, 0);
/// let mut colors = [Color::Green; 3];
/// meters.mark(0, &[7, 3, 3], &[1500, 1500, 1500], &mut colors);
/// assert_eq!(colors, [Color::Green, Color::Green, Color::Yellow]);
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
pub struct Meters<P> {
    profiles: Vec<P>,
    meters: HugeArray<Meter>,
}

#[derive(Clone, Copy)]
#[repr(align(32))]
struct Meter {
    buckets: Buckets,
    profile: u32,
}

impl<P: Profile> Meters<P> {
    /// `count` meters of one profile, full at tick `now`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(name: &str, count: usize, profile: P, now: u64) -> Result<Self, TableError> {
        let meter = Meter {
            buckets: profile.full(now),
            profile: 0,
        };
        Ok(Self {
            profiles: vec![profile],
            meters: HugeArray::filled(name, count, meter)?,
        })
    }

    /// Adds a profile, for [`Meters::assign`].
    pub fn add(&mut self, profile: P) -> ProfileId {
        self.profiles.push(profile);
        ProfileId(self.profiles.len() as u32 - 1)
    }

    /// Gives `meter` another profile, or the same anew: full at tick `now`.
    ///
    /// # Panics
    /// If there is no such meter, or the profile is another array's.
    pub fn assign(&mut self, meter: u32, profile: ProfileId, now: u64) {
        self.meters[meter as usize] = Meter {
            buckets: self.profiles[profile.0 as usize].full(now),
            profile: profile.0,
        };
    }

    /// How many meters there are.
    pub fn len(&self) -> usize {
        self.meters.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.meters.is_empty()
    }

    /// Memory of the meters, in bytes.
    pub fn bytes(&self) -> usize {
        self.meters.region().len()
    }

    /// What pages back it.
    pub fn pages(&self) -> PageKind {
        self.meters.region().kind()
    }

    /// Colours one packet, as [`Profile::mark`].
    ///
    /// # Panics
    /// If there is no such meter.
    #[inline]
    pub fn mark_one(&mut self, now: u64, meter: u32, bytes: u32, color: Color) -> Color {
        let meter = &mut self.meters[meter as usize];
        let profile = &self.profiles[meter.profile as usize];
        profile.mark(&mut meter.buckets, now, bytes, color)
    }

    /// Colours a burst that came at tick `now`, in order: the i-th packet, of `bytes[i]`, by
    /// `meters[i]`. `colors` are what the packets came in with (all green where the meter is to be
    /// colour-blind), and afterwards what they are.
    ///
    /// # Panics
    /// If the slices differ in length, or there is no such meter.
    #[inline]
    pub fn mark(&mut self, now: u64, meters: &[u32], bytes: &[u32], colors: &mut [Color]) {
        assert!(
            meters.len() == bytes.len() && meters.len() == colors.len(),
            "a meter, a length and a colour for each packet"
        );
        let start = self.meters.as_ptr();
        let prefetch = |meter: &u32| prefetch_read(start.wrapping_add(*meter as usize));
        meters.iter().take(AHEAD).for_each(prefetch);
        for (index, (&meter, &bytes)) in meters.iter().zip(bytes).enumerate() {
            meters.get(index + AHEAD).map(prefetch);
            colors[index] = self.mark_one(now, meter, bytes, colors[index]);
        }
    }
}
