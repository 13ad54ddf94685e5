//! Which core owns a user, and identifiers that say so.
//!
//! All state of a user is on one core of each node, `core(IMSI)`. The identifiers that a node gives
//! out (TEIDs, UE identifiers of S1, temporary identities) name that core in their first bits, and
//! its sequence numbers do too, so that whatever comes back finds its core without a table:
//!
//! ```text
//!           31        31-C     30-C              I               0
//! id        | core: C bits | side: 1 | tag: 31-C-I | index: I bits |
//! sequence  | 0 (commands) | core: C | use: 23-C-S | slot: S bits  |   of 24 bits
//! ```
//!
//! `index` is the place of the user's record, so no table is needed behind the core either. `tag`
//! is a pseudo-random number that changes with each use of the place: an identifier that was
//! guessed, or that is over, meets another tag. An identifier is never 0, which in GTP means "none
//! yet". `side` tells the two tunnels of one user apart that end at one address of a gateway.

use crate::EpcError;
use linerate_wire::gtpc::ie::Imsi;

/// The most cores of a node.
pub const MAX_CORES: usize = 64;
/// Bits that a tag has at least.
const TAG_BITS: u32 = 4;
/// Bits of a sequence number that are ours (TS 29.274 7.6: the first is set for commands).
const SEQUENCE_BITS: u32 = 23;

/// How many cores share the work of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores(u8);

impl Cores {
    /// So many.
    ///
    /// # Errors
    /// [`EpcError::Cores`] unless it is 1 to [`MAX_CORES`].
    pub fn new(count: usize) -> Result<Self, EpcError> {
        match count {
            1..=MAX_CORES => Ok(Self(count as u8)),
            _ => Err(EpcError::Cores(count)),
        }
    }

    /// How many.
    pub fn count(self) -> u8 {
        self.0
    }

    /// Bits that number them.
    pub fn bits(self) -> u32 {
        u32::from(self.0).next_power_of_two().trailing_zeros()
    }

    /// The core that owns this user.
    #[inline]
    pub fn owner(self, imsi: Imsi) -> u8 {
        let hash = mix(u64::from_le_bytes(imsi.bytes()));
        ((u128::from(hash) * u128::from(self.0)) >> 64) as u8
    }

    /// The core that an identifier names; `None`: there is no such core, and nobody gave it out.
    #[inline]
    pub fn of_id(self, id: u32) -> Option<u8> {
        let core = match self.bits() {
            0 => 0,
            bits => (id >> (32 - bits)) as u8,
        };
        (core < self.0).then_some(core)
    }

    /// The core that a sequence number names; `None` as above.
    #[inline]
    pub fn of_sequence(self, sequence: u32) -> Option<u8> {
        let core = sequence >> (SEQUENCE_BITS - self.bits());
        (core < u32::from(self.0)).then_some(core as u8)
    }

    /// Refuses a core that there is not.
    ///
    /// # Errors
    /// [`EpcError::Core`].
    pub fn check(self, core: u8) -> Result<(), EpcError> {
        if core < self.0 {
            return Ok(());
        }
        let count = self.0;
        Err(EpcError::Core { core, count })
    }
}

/// The identifiers of one core of a node.
#[derive(Clone, Copy, Debug)]
pub struct IdSpace {
    cores: Cores,
    core: u8,
    index_bits: u32,
    /// Kept, since each packet asks.
    side_bit: u32,
    secret: u64,
}

impl IdSpace {
    /// Identifiers for `records` places on `core`; tags are unpredictable without `secret`.
    ///
    /// # Errors
    /// [`EpcError::Core`], and [`EpcError::Records`] where fewer than 4 bits were left to the tag.
    pub fn new(cores: Cores, core: u8, records: usize, secret: u64) -> Result<Self, EpcError> {
        cores.check(core)?;
        let most = 1 << (31 - TAG_BITS - cores.bits());
        if records > most {
            return Err(EpcError::Records {
                asked: records,
                cores: cores.count(),
                most,
            });
        }
        let index_bits = records.max(2).next_power_of_two().trailing_zeros();
        Ok(Self {
            cores,
            core,
            index_bits,
            side_bit: 1 << (31 - cores.bits()),
            secret,
        })
    }

    /// The identifier of a place in its n-th use.
    #[inline]
    pub fn id(&self, index: u32, uses: u32) -> u32 {
        let bits = self.cores.bits();
        let tag_mask = (1_u32 << (31 - bits - self.index_bits)) - 1;
        let entropy = mix(self.secret ^ mix(u64::from(index) << 32 | u64::from(uses)));
        // A tag that is not 0 makes an identifier that is not 0.
        let tag = (entropy as u32 & tag_mask).max(1);
        let core = match bits {
            0 => 0,
            bits => u32::from(self.core) << (32 - bits),
        };
        core | tag << self.index_bits | index
    }

    /// The place that an identifier names, whether or not it is current.
    #[inline]
    pub fn index(&self, id: u32) -> u32 {
        id & ((1 << self.index_bits) - 1)
    }

    /// The same place, seen from its second side.
    #[inline]
    pub fn second_side(&self, id: u32) -> u32 {
        id | self.side_bit
    }

    /// The identifier without its side, and whether it was the second.
    #[inline]
    pub fn split_side(&self, id: u32) -> (u32, bool) {
        (id & !self.side_bit, id & self.side_bit != 0)
    }
}

/// Sequence numbers of one core of a node: 24 bits whose first is 0.
#[derive(Clone, Copy, Debug)]
pub struct SequenceSpace {
    core_part: u32,
    use_mask: u32,
    slot_bits: u32,
}

impl SequenceSpace {
    /// Numbers for `slots` requests in flight on `core`.
    ///
    /// # Errors
    /// [`EpcError::Core`], and [`EpcError::Requests`] where a slot would have fewer than 16 uses
    /// before a number comes again.
    pub fn new(cores: Cores, core: u8, slots: usize) -> Result<Self, EpcError> {
        cores.check(core)?;
        let left = SEQUENCE_BITS - cores.bits();
        let most = 1 << (left - 4);
        if slots > most {
            return Err(EpcError::Requests {
                asked: slots,
                cores: cores.count(),
                most,
            });
        }
        let slot_bits = slots.max(2).next_power_of_two().trailing_zeros();
        Ok(Self {
            core_part: u32::from(core) << left,
            use_mask: (1 << (left - slot_bits)) - 1,
            slot_bits,
        })
    }

    /// The number of a slot in its n-th use.
    #[inline]
    pub fn sequence(&self, slot: u32, uses: u32) -> u32 {
        self.core_part | (uses & self.use_mask) << self.slot_bits | slot
    }

    /// The slot that a number names, whether or not it is current.
    #[inline]
    pub fn slot(&self, sequence: u32) -> u32 {
        sequence & ((1 << self.slot_bits) - 1)
    }
}

/// SplitMix64's finish: every bit of the input reaches every bit of the output.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn identifiers_and_sequences_name_core_and_place(
            count in 1_usize..=64, core: u8, index in 0_u32..5000, uses: u32, secret: u64,
        ) {
            let cores = Cores::new(count).unwrap();
            let core = core % cores.count();
            let space = IdSpace::new(cores, core, 5000, secret).unwrap();
            let id = space.id(index, uses);
            prop_assert_ne!(id, 0);
            prop_assert_eq!(cores.of_id(id), Some(core));
            prop_assert_eq!(space.index(id), index);
            let second = space.second_side(id);
            prop_assert_eq!(cores.of_id(second), Some(core));
            prop_assert_eq!(space.split_side(second), (id, true));
            prop_assert_eq!(space.split_side(id), (id, false));

            let space = SequenceSpace::new(cores, core, 5000).unwrap();
            let sequence = space.sequence(index, uses);
            prop_assert!(sequence < 1 << 23);
            prop_assert_eq!(cores.of_sequence(sequence), Some(core));
            prop_assert_eq!(space.slot(sequence), index);
        }
    }

    #[test]
    fn users_are_spread_over_all_cores() {
        for count in [1, 2, 3, 7, 64] {
            let cores = Cores::new(count).unwrap();
            let mut users = vec![0_u32; count];
            for number in 0..64_000 {
                let imsi = Imsi::new(1_010_000_000_000 + number, 15).unwrap();
                users[usize::from(cores.owner(imsi))] += 1;
            }
            let share = 64_000 / count as u32;
            assert!(
                users
                    .iter()
                    .all(|&n| n > share * 8 / 10 && n < share * 12 / 10)
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(Cores::new(0).is_err() && Cores::new(65).is_err());
        let cores = Cores::new(64).unwrap();
        assert!(IdSpace::new(cores, 64, 1, 0).is_err());
        assert!(IdSpace::new(cores, 0, 1 << 21, 0).is_ok());
        assert!(IdSpace::new(cores, 0, (1 << 21) + 1, 0).is_err());
        assert!(SequenceSpace::new(cores, 0, 1 << 13).is_ok());
        assert!(SequenceSpace::new(cores, 0, (1 << 13) + 1).is_err());
        // Core bits beyond the count were given out by nobody.
        let cores = Cores::new(3).unwrap();
        assert_eq!(cores.of_id(0xc000_0001), None);
        assert_eq!(cores.of_sequence(3 << 21), None);
    }
}
