//! Addresses and prefixes of either family, as files and commands name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use linerate_tables::lpm::{Prefix4, Prefix6};

/// A prefix of either family. Bits behind its length are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prefix {
    /// IPv4.
    V4(Prefix4),
    /// IPv6.
    V6(Prefix6),
}

impl Prefix {
    /// The first `len` bits of an address; `None` where the family has not so many.
    pub fn of(address: IpAddr, len: u8) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => (len <= 32).then(|| Self::V4(Prefix4::of(u32::from(v4), len))),
            IpAddr::V6(v6) => (len <= 128).then(|| Self::V6(Prefix6::of(u128::from(v6), len))),
        }
    }

    /// The prefix of this address alone.
    pub fn host(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::V4(Prefix4::of(u32::from(v4), 32)),
            IpAddr::V6(v6) => Self::V6(Prefix6::of(u128::from(v6), 128)),
        }
    }

    /// Its first address.
    pub fn first(&self) -> IpAddr {
        match self {
            Self::V4(prefix) => Ipv4Addr::from(prefix.first()).into(),
            Self::V6(prefix) => Ipv6Addr::from(prefix.first()).into(),
        }
    }

    /// Its length in bits.
    #[allow(clippy::len_without_is_empty)] // 0 is the length of all, not of nothing
    pub fn len(&self) -> u8 {
        match self {
            Self::V4(prefix) => prefix.len(),
            Self::V6(prefix) => prefix.len(),
        }
    }

    /// Whether an address is in it; false for one of the other family.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::V4(prefix), IpAddr::V4(v4)) => prefix.contains(u32::from(v4)),
            (Self::V6(prefix), IpAddr::V6(v6)) => prefix.contains(u128::from(v6)),
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.len())
    }
}

/// An address and the prefix length of its network: `192.0.2.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    /// The address, with all its bits.
    pub address: IpAddr,
    /// The length in bits.
    pub len: u8,
}

impl Cidr {
    /// The address with the full prefix length.
    pub fn alone(self) -> Self {
        let len = if self.address.is_ipv4() { 32 } else { 128 };
        Self { len, ..self }
    }

    /// The network that the address is in.
    pub fn network(&self) -> Prefix {
        Prefix::of(self.address, self.len).expect("the length was checked")
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no address with a length, such as 192.0.2.1/24");
        let (address, len) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let len: u8 = len.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if len > most {
            return Err(format!("`{text}`: an address has {most} bits, not {len}"));
        }
        Ok(Self { address, len })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}
