//! Attributes: each a length, a type and a value of the type's own shape.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Flaw, align, family, u16_at};
use crate::MacAddr;
use crate::bytes::array;

/// The attribute's type without the flags that stand in the same 16 bits (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;

/// Attributes one after the other.
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), Flaw>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        // Up to three bytes of padding may be left.
        if bytes.len() < 4 {
            return None;
        }
        let (says, attribute) = (u16_at(bytes, 0), u16_at(bytes, 2) & TYPE_MASK);
        let len = usize::from(says);
        if len < 4 || len > bytes.len() {
            self.0 = &[];
            let has = bytes.len();
            return Some(Err(Flaw::AttributeLength {
                attribute,
                says,
                has,
            }));
        }
        self.0 = bytes.get(align(len)..).unwrap_or(&[]);
        Some(Ok((attribute, &bytes[4..len])))
    }
}

/// An attribute's value, and what to call it when it is wrong.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) kind: u16,
    pub(super) attribute: u16,
    pub(super) bytes: &'a [u8],
}

impl<'a> Value<'a> {
    pub(super) fn wrong(self) -> Flaw {
        Flaw::Value {
            kind: self.kind,
            attribute: self.attribute,
            has: self.bytes.len(),
        }
    }

    pub(super) fn u32(self) -> Result<u32, Flaw> {
        let bytes = self.bytes.try_into().map_err(|_| self.wrong())?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Of either family, by its size.
    pub(super) fn address(self) -> Result<IpAddr, Flaw> {
        address(self.bytes).ok_or(self.wrong())
    }

    /// `struct rtvia`: the family, then an address of it. `None`: of a family that is not IP.
    pub(super) fn via(self) -> Result<Option<IpAddr>, Flaw> {
        let (family, bytes) = self.bytes.split_first_chunk().ok_or(self.wrong())?;
        match (u16::from_ne_bytes(*family), address(bytes)) {
            (2, Some(IpAddr::V4(v4))) => Ok(Some(v4.into())),
            (10, Some(IpAddr::V6(v6))) => Ok(Some(v6.into())),
            (2 | 10, _) => Err(self.wrong()),
            _ => Ok(None),
        }
    }

    /// `None` where the link has addresses of another kind.
    pub(super) fn mac(self) -> Option<MacAddr> {
        self.bytes.try_into().ok().map(MacAddr)
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(array::<4>(bytes, 0)).into()),
        16 => Some(Ipv6Addr::from(array::<16>(bytes, 0)).into()),
        _ => None,
    }
}

/// The address of that family whose bits are all zero.
pub(super) fn unspecified(family: u8) -> Option<IpAddr> {
    match family {
        family::INET => Some(Ipv4Addr::UNSPECIFIED.into()),
        family::INET6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

/// A prefix is no longer than its address.
pub(super) fn check_prefix(address: IpAddr, len: u8) -> Result<(), Flaw> {
    match len > if address.is_ipv4() { 32 } else { 128 } {
        true => Err(Flaw::Prefix { len }),
        false => Ok(()),
    }
}
