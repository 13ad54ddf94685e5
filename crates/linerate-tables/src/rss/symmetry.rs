//! What is done to a tuple before it is hashed, so that both directions of a flow hash alike.

use super::{AffineHash, Toeplitz};
use crate::TableError;

/// How source and destination are made to look the same from both sides.
///
/// Only [`None`](Self::None) and [`Xor`](Self::Xor) are linear; the others cannot be inverted by
/// algebra. A symmetric *key* ([`SYMMETRIC_KEY`](super::SYMMETRIC_KEY)) needs none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symmetry {
    /// Source and destination as they are.
    #[default]
    None,
    /// Both become their XOR: `symmetric-xor` of ethtool (RXH_XFRM_SYM_XOR), what E810 does with
    /// HSYMM set.
    Xor,
    /// The first becomes their OR, the second their XOR: `symmetric-or-xor` of ethtool.
    OrXor,
    /// The lower address comes first, and, independently, the lower port: `SYMMETRIC_TOEPLITZ_SORT`
    /// of DPDK.
    Sorted,
}

impl Symmetry {
    /// Rewrites a tuple of 8, 12, 32 or 36 bytes; of other lengths nothing.
    pub fn apply(self, tuple: &mut [u8]) {
        let address = match tuple.len() {
            8 | 12 => 4,
            32 | 36 => 16,
            _ => return,
        };
        let (addresses, ports) = tuple.split_at_mut(2 * address);
        for pair in [addresses, ports] {
            let (src, dst) = pair.split_at_mut(pair.len() / 2);
            match self {
                Self::None => {}
                Self::Sorted if *src > *dst => src.swap_with_slice(dst),
                Self::Sorted => {}
                Self::Xor | Self::OrXor => {
                    for (src, dst) in src.iter_mut().zip(dst) {
                        let (either, odd) = (*src | *dst, *src ^ *dst);
                        *src = if self == Self::Xor { odd } else { either };
                        *dst = odd;
                    }
                }
            }
        }
    }

    /// The hash of tuples of `tuple_bytes` that are rewritten first, for an
    /// [`Inverse`](super::Inverse).
    ///
    /// # Errors
    /// [`TableError::RssNotAffine`] for [`OrXor`](Self::OrXor) and [`Sorted`](Self::Sorted).
    pub fn affine(self, rss: &Toeplitz, tuple_bytes: usize) -> Result<AffineHash, TableError> {
        AffineHash::probe(tuple_bytes, |tuple| {
            let mut tuple = tuple.to_vec();
            self.apply(&mut tuple);
            rss.hash(&tuple)
        })
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;
    use crate::rss::MICROSOFT_KEY;
    use linerate_core::random::Random;
    use linerate_wire::flow::{FlowKey4, FlowKey6};

    #[test]
    fn every_symmetry_is_symmetric() {
        let rss = Toeplitz::new(&MICROSOFT_KEY).unwrap();
        let mut random = Random::new(5);
        for symmetry in [Symmetry::Xor, Symmetry::OrXor, Symmetry::Sorted] {
            for _ in 0..200 {
                let v4 = FlowKey4(std::array::from_fn(|_| random.bits() as u8));
                let v6 = FlowKey6(std::array::from_fn(|_| random.bits() as u8));
                for len in [8, 12, 32, 36] {
                    let (mut there, mut back) = match len {
                        8 | 12 => (v4.0[..len].to_vec(), v4.reversed().0[..len].to_vec()),
                        _ => (v6.0[..len].to_vec(), v6.reversed().0[..len].to_vec()),
                    };
                    symmetry.apply(&mut there);
                    symmetry.apply(&mut back);
                    assert_eq!(rss.hash(&there), rss.hash(&back), "{symmetry:?} {len}");
                }
            }
        }
    }

    #[test]
    fn only_the_linear_ones_can_be_inverted() {
        let rss = Toeplitz::new(&MICROSOFT_KEY).unwrap();
        assert!(Symmetry::None.affine(&rss, 12).is_ok() && Symmetry::Xor.affine(&rss, 36).is_ok());
        for symmetry in [Symmetry::OrXor, Symmetry::Sorted] {
            let error = symmetry.affine(&rss, 12).unwrap_err().to_string();
            assert!(error.contains("not affine"), "{error}");
        }
    }

    #[test]
    fn each_rewrites_as_its_maker_says() {
        let tuple = [3, 0, 0, 1, 5, 0, 0, 0, 0, 9, 0, 5];
        let after = |symmetry: Symmetry| {
            let mut tuple = tuple;
            symmetry.apply(&mut tuple);
            tuple
        };
        assert_eq!(after(Symmetry::None), tuple);
        assert_eq!(after(Symmetry::Xor), [6, 0, 0, 1, 6, 0, 0, 1, 0, 12, 0, 12]);
        assert_eq!(
            after(Symmetry::OrXor),
            [7, 0, 0, 1, 6, 0, 0, 1, 0, 13, 0, 12]
        );
        // Addresses stay, ports are swapped: each pair on its own.
        assert_eq!(
            after(Symmetry::Sorted),
            [3, 0, 0, 1, 5, 0, 0, 0, 0, 5, 0, 9]
        );
    }
}
