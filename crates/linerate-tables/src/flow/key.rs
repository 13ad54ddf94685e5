//! Keys that flow tables take, and which of a flow's two directions a packet has.

use std::hint::select_unpredictable;

use linerate_wire::flow::{FlowKey4, FlowKey6};

/// A flow's key: `K` bytes, and the same flow's key as seen from the other side.
pub trait FlowKey<const K: usize>: Copy + Eq + std::fmt::Debug {
    /// Where a flow's key is kept: in its entry ([`Kept`], otherwise [`NotKept`]). Entries fill
    /// whole lines: 64 bytes of the user's leave an IPv6 entry 40 bytes, an IPv4 one none.
    type Inside: Keep<Self>;
    /// The opposite of [`FlowKey::Inside`].
    type Outside: Keep<Self>;

    /// The key of these bytes.
    fn from_bytes(bytes: [u8; K]) -> Self;

    /// The bytes that are looked up.
    fn bytes(&self) -> &[u8; K];

    /// The key of the other direction.
    #[must_use]
    fn reversed(self) -> Self;

    /// The one of the two directions that stands for both, the lesser, and whether it is the other
    /// one. Which it is cannot be predicted, so implementations select without a branch.
    fn canonical(self) -> (Self, bool);

    /// Which of several networks with the same addresses it is of; both directions have the same.
    fn zone(&self) -> u16;
}

/// A place for a key, or none.
pub trait Keep<F>: Copy {
    /// The place with a key.
    fn keep(key: F) -> Self;
    /// The key, if this is a place for it.
    fn kept(self) -> Option<F>;
}

/// Holds a key.
#[derive(Clone, Copy, Debug)]
pub struct Kept<F>(F);

/// Holds none.
#[derive(Clone, Copy, Debug)]
pub struct NotKept;

impl<F: Copy> Keep<F> for Kept<F> {
    #[inline(always)]
    fn keep(key: F) -> Self {
        Self(key)
    }

    #[inline(always)]
    fn kept(self) -> Option<F> {
        Some(self.0)
    }
}

impl<F> Keep<F> for NotKept {
    #[inline(always)]
    fn keep(_: F) -> Self {
        Self
    }

    #[inline(always)]
    fn kept(self) -> Option<F> {
        None
    }
}

impl FlowKey<16> for FlowKey4 {
    type Inside = NotKept;
    type Outside = Kept<Self>;

    #[inline(always)]
    fn zone(&self) -> u16 {
        FlowKey4::zone(self)
    }

    #[inline(always)]
    fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    #[inline(always)]
    fn reversed(self) -> Self {
        FlowKey4::reversed(self)
    }

    #[inline(always)]
    fn canonical(self) -> (Self, bool) {
        let this = u128::from_be_bytes(self.0);
        let (addresses, rest) = ((this >> 64) as u64, this as u64);
        let addresses = addresses.rotate_left(32);
        let other = (u128::from(addresses) << 64) | u128::from(ports_swapped(rest));
        let flip = other < this;
        let lesser = select_unpredictable(flip, other, this);
        (Self(lesser.to_be_bytes()), flip)
    }
}

impl FlowKey<40> for FlowKey6 {
    type Inside = Kept<Self>;
    type Outside = NotKept;

    #[inline(always)]
    fn zone(&self) -> u16 {
        FlowKey6::zone(self)
    }

    #[inline(always)]
    fn from_bytes(bytes: [u8; 40]) -> Self {
        Self(bytes)
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8; 40] {
        &self.0
    }

    #[inline(always)]
    fn reversed(self) -> Self {
        FlowKey6::reversed(self)
    }

    #[inline(always)]
    fn canonical(self) -> (Self, bool) {
        // Addresses, then ports with what follows: as the bytes compare.
        let parts = |key: &[u8; 40]| {
            let (src, rest) = key.split_first_chunk().expect("16 of 40 bytes");
            let (dst, rest) = rest.split_first_chunk().expect("16 of 24 bytes");
            let rest = rest.first_chunk().expect("8 bytes are left");
            (
                u128::from_be_bytes(*src),
                u128::from_be_bytes(*dst),
                u64::from_be_bytes(*rest),
            )
        };
        let (src, dst, rest) = parts(&self.0);
        let other = ports_swapped(rest);
        let flip = (dst < src) | ((dst == src) & (other < rest));
        let mut key = [0; 40];
        key[..16].copy_from_slice(&select_unpredictable(flip, dst, src).to_be_bytes());
        key[16..32].copy_from_slice(&select_unpredictable(flip, src, dst).to_be_bytes());
        key[32..].copy_from_slice(&select_unpredictable(flip, other, rest).to_be_bytes());
        (Self(key), flip)
    }
}

/// What differs between two keys, bit by bit; with one of them it gives the other.
#[inline(always)]
pub(super) fn difference<F: FlowKey<K>, const K: usize>(one: F, other: F) -> F {
    let (one, other) = (one.bytes(), other.bytes());
    F::from_bytes(std::array::from_fn(|at| one[at] ^ other[at]))
}

/// The two ports that lead the last eight bytes of a key, the other way round.
#[inline(always)]
fn ports_swapped(rest: u64) -> u64 {
    let ports = (rest >> 32) as u32;
    (u64::from(ports.rotate_left(16)) << 32) | (rest & 0xffff_ffff)
}

/// Direction of a packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// As the packet that began the flow.
    Forward,
    /// The answer.
    Reverse,
}

impl Direction {
    /// The opposite one.
    #[must_use]
    pub fn other(self) -> Self {
        Self::of(self == Direction::Forward)
    }

    #[inline(always)]
    pub(super) fn of(reverse: bool) -> Self {
        if reverse {
            Direction::Reverse
        } else {
            Direction::Forward
        }
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;
    use linerate_testkit::Random;

    /// Both directions have one canonical key, the lesser, and one of them at least is it.
    #[test]
    fn both_directions_have_the_lesser_key() {
        fn check<const K: usize, F: FlowKey<K>>(random: &mut Random) {
            // Few different bytes, so that addresses and ports are often equal.
            let key = F::from_bytes(std::array::from_fn(|_| random.below(2) as u8));
            let (lesser, flip) = key.canonical();
            let bytes = [*key.bytes(), *key.reversed().bytes()];
            assert_eq!(lesser.bytes(), bytes.iter().min().unwrap(), "{key:?}");
            assert_eq!(flip, bytes[1] < bytes[0]);
            assert_eq!(key.reversed().canonical().0, lesser);
        }
        let mut random = Random::new(1);
        for _ in 0..100_000 {
            check::<16, FlowKey4>(&mut random);
            check::<40, FlowKey6>(&mut random);
            let side = [random.below(2) as u8; 16];
            let (src, dst) = (random.below(3) as u16, random.below(3) as u16);
            let same = FlowKey6::new(side, side, src, dst, 6);
            assert_eq!(same.canonical().1, dst < src);
        }
    }
}
