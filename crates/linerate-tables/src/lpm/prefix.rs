//! Addresses as integers in host order, and prefixes of them whose host bits are zero.
//!
//! Everything in this room that does not care for the width is generic over [`Address`]: `u32` for
//! IPv4, `u128` for IPv6. `10.0.0.0` is `0x0a00_0000`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::TableError;

/// An IP address as an integer in host order: `u32` or `u128`.
pub trait Address: Copy + Ord + std::hash::Hash + fmt::Debug + Send + Sync + 'static {
    /// Bits of an address: 32 or 128.
    const BITS: u8;
    /// The address whose bits are all zero.
    const ZERO: Self;

    /// This address with all bits from `len` on cleared; `len` is at most [`BITS`](Self::BITS).
    fn network(self, len: u8) -> Self;

    /// This address with all bits from `len` on set: the last address of the prefix.
    fn last(self, len: u8) -> Self;

    /// Bit `index`, counted from the most significant; `index` is below [`BITS`](Self::BITS).
    fn bit(self, index: u8) -> bool;

    /// How many leading bits are the same in both.
    fn common(self, other: Self) -> u8;

    /// The address after this one; `None` after the last.
    fn next(self) -> Option<Self>;

    /// The textual form.
    fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Reads the textual form.
    fn read(text: &str) -> Option<Self>;
}

macro_rules! address {
    ($int:ty, $ip:ty) => {
        impl Address for $int {
            const BITS: u8 = <$int>::BITS as u8;
            const ZERO: Self = 0;

            #[inline]
            fn network(self, len: u8) -> Self {
                self & !<$int>::MAX.checked_shr(len.into()).unwrap_or(0)
            }

            #[inline]
            fn last(self, len: u8) -> Self {
                self | <$int>::MAX.checked_shr(len.into()).unwrap_or(0)
            }

            #[inline]
            fn bit(self, index: u8) -> bool {
                self >> (<$int>::BITS - 1 - u32::from(index)) & 1 == 1
            }

            #[inline]
            fn common(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }

            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&<$ip>::from_bits(self), f)
            }

            fn read(text: &str) -> Option<Self> {
                Some(<$ip>::from_str(text).ok()?.to_bits())
            }
        }
    };
}

address!(u32, Ipv4Addr);
address!(u128, Ipv6Addr);

/// A prefix: the `len` leading bits of an address; all others are zero.
///
/// Ordered by address, then by length: what lies inside a prefix follows it.
///
/// ```
/// use linerate_tables::lpm::Prefix4;
/// let net: Prefix4 = "10.1.0.0/16".parse()?;
/// assert!(net.contains(0x0a01_0203));
/// let wrong = "10.1.2.3/16".parse::<Prefix4>().unwrap_err();
/// assert!(wrong.to_string().contains("10.1.0.0/16"));
/// # Ok::<(), linerate_tables::TableError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    len: u8,
}

/// An IPv4 prefix.
pub type Prefix4 = Prefix<u32>;
/// An IPv6 prefix.
pub type Prefix6 = Prefix<u128>;

impl<A: Address> Prefix<A> {
    /// The prefix of length zero, which holds every address.
    pub const ALL: Self = Self {
        address: A::ZERO,
        len: 0,
    };

    /// The prefix `address/len`.
    ///
    /// # Errors
    /// If `len` is longer than an address, or a bit beyond it is set.
    pub fn new(address: A, len: u8) -> Result<Self, TableError> {
        if len > A::BITS {
            return Err(TableError::PrefixTooLong { len, max: A::BITS });
        }
        let prefix = Self::of(address, len);
        if prefix.address != address {
            return Err(TableError::HostBits {
                given: Self { address, len }.to_string(),
                fixed: prefix.to_string(),
            });
        }
        Ok(prefix)
    }

    /// The prefix of length `len` that holds `address`: host bits are dropped.
    ///
    /// # Panics
    /// If `len` is longer than an address.
    #[inline]
    pub fn of(address: A, len: u8) -> Self {
        assert!(len <= A::BITS, "a prefix is no longer than an address");
        Self {
            address: address.network(len),
            len,
        }
    }

    /// The first address.
    #[inline]
    pub fn first(self) -> A {
        self.address
    }

    /// The last address.
    #[inline]
    pub fn last(self) -> A {
        self.address.last(self.len)
    }

    /// How many leading bits are fixed.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // it is a length, not a count
    pub fn len(self) -> u8 {
        self.len
    }

    /// Whether `address` lies inside.
    #[inline]
    pub fn contains(self, address: A) -> bool {
        address.network(self.len) == self.address
    }

    /// Whether all of `other` lies inside; a prefix covers itself.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.address)
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.show(f)?;
        write!(f, "/{}", self.len)
    }
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        let wrong = |reason| TableError::PrefixSyntax {
            text: text.into(),
            reason,
        };
        let (address, len) = text
            .split_once('/')
            .ok_or_else(|| wrong("it has no length: write address/length"))?;
        let address = A::read(address).ok_or_else(|| match A::BITS {
            32 => wrong("what stands before / is no IPv4 address"),
            _ => wrong("what stands before / is no IPv6 address"),
        })?;
        let digits = !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
        let len = digits
            .then(|| len.parse().ok())
            .flatten()
            .ok_or_else(|| wrong("what stands after / is no length in bits"))?;
        Self::new(address, len)
    }
}

#[cfg(test)]
#[cfg(not(linerate_threads))]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "255.255.255.255/32"] {
            assert_eq!(text.parse::<Prefix4>().unwrap().to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "ffff::1/128"] {
            assert_eq!(text.parse::<Prefix6>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_name_the_prefix_and_the_fix() {
        let why = |text: &str| text.parse::<Prefix4>().unwrap_err().to_string();
        assert!(why("10.1.2.3/8").contains("10.0.0.0/8"));
        assert!(why("10.0.0.0/33").contains("33") && why("10.0.0.0/33").contains("32"));
        for text in ["10.0.0.0", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "::/0"] {
            assert!(why(text).contains(text), "{}", why(text));
        }
        let six = "2001:db8::1/32".parse::<Prefix6>().unwrap_err().to_string();
        assert!(six.contains("2001:db8::/32"));
    }

    #[test]
    fn ends_and_covering() {
        let net: Prefix4 = "10.1.0.0/16".parse().unwrap();
        assert_eq!((net.first(), net.last()), (0x0a01_0000, 0x0a01_ffff));
        assert!(net.covers(net) && net.covers(Prefix::of(0x0a01_8000, 17)));
        assert!(!net.covers(Prefix::of(0x0a00_0000, 8)) && !net.contains(0x0a02_0000));
        assert_eq!(Prefix4::ALL.last(), u32::MAX);
        assert_eq!(Prefix6::ALL.last(), u128::MAX);
        assert!(Prefix6::ALL < Prefix6::of(0, 1));
    }
}
