//! Making messages: requests to the kernel, and what others would send, for tests and benchmarks.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{HEADER_LEN, align};

/// `NLM_F_REQUEST`: what every request has.
pub const REQUEST: u16 = 0x01;
/// `NLM_F_ACK`: to be answered even if all went well.
pub const ACK: u16 = 0x04;
/// `NLM_F_DUMP`: all there are.
pub const DUMP: u16 = 0x300;
/// `NLM_F_REPLACE`: in the place of what is there.
pub const REPLACE: u16 = 0x100;
/// `NLM_F_CREATE`: if it is not there.
pub const CREATE: u16 = 0x400;

/// A message in the making.
///
/// ```
/// use linerate_wire::rtnetlink::{Body, Messages, attribute, build, kind};
/// let route = build::Builder::new(kind::NEW_ROUTE, build::REQUEST)
///     .fixed(&[2, 8, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0])
///     .address(attribute::route::DST, [10, 0, 0, 0].into())
///     .u32(attribute::route::OIF, 3)
///     .finish(1);
/// let message = Messages::new(&route).next().unwrap().unwrap();
/// let Ok(Body::NewRoute(route)) = message.read() else { panic!() };
/// assert_eq!((route.len, route.table), (8, 254));
/// assert_eq!(route.vias().next().unwrap().interface, 3);
/// ```
#[derive(Clone, Debug)]
pub struct Builder(Vec<u8>);

impl Builder {
    /// Of a type ([`kind`](super::kind)) and with flags of the header.
    pub fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        Self(bytes)
    }

    /// The fixed part of the body, before any attribute.
    #[must_use]
    pub fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// An attribute of any value.
    #[must_use]
    pub fn bytes(mut self, attribute: u16, value: &[u8]) -> Self {
        put(&mut self.0, attribute, value);
        self
    }

    /// An attribute of 32 bits.
    #[must_use]
    pub fn u32(self, attribute: u16, value: u32) -> Self {
        self.bytes(attribute, &value.to_ne_bytes())
    }

    /// An attribute that is an IP address.
    #[must_use]
    pub fn address(self, attribute: u16, value: IpAddr) -> Self {
        match value {
            IpAddr::V4(v4) => self.bytes(attribute, &v4.octets()),
            IpAddr::V6(v6) => self.bytes(attribute, &v6.octets()),
        }
    }

    /// The next hops of a route with several: gateway, interface, share from 1.
    #[must_use]
    pub fn multipath(self, next_hops: &[(Option<IpAddr>, u32, u16)]) -> Self {
        use super::attribute::route;
        let mut list = Vec::new();
        for &(gateway, interface, weight) in next_hops {
            let start = list.len();
            list.extend_from_slice(&[0, 0, 0, (weight.clamp(1, 256) - 1) as u8]);
            list.extend_from_slice(&interface.to_ne_bytes());
            match gateway {
                Some(IpAddr::V4(v4)) => put(&mut list, route::GATEWAY, &v4.octets()),
                Some(IpAddr::V6(v6)) => put(&mut list, route::GATEWAY, &v6.octets()),
                None => {}
            }
            let len = (list.len() - start) as u16;
            list[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        }
        self.bytes(route::MULTIPATH, &list)
    }

    /// The members of a group of next hops: number, share from 1.
    #[must_use]
    pub fn group(self, members: &[(u32, u16)]) -> Self {
        let mut list = Vec::new();
        for &(id, weight) in members {
            list.extend_from_slice(&id.to_ne_bytes());
            list.extend_from_slice(&(weight.max(1) - 1).to_le_bytes());
            list.extend_from_slice(&[0; 2]);
        }
        self.bytes(super::attribute::nexthop::GROUP, &list)
    }

    /// The message, with its length and a sequence number.
    #[must_use]
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        debug_assert!(self.0.len() >= HEADER_LEN);
        self.0
    }
}

fn put(to: &mut Vec<u8>, attribute: u16, value: &[u8]) {
    to.extend_from_slice(&(value.len() as u16 + 4).to_ne_bytes());
    to.extend_from_slice(&attribute.to_ne_bytes());
    to.extend_from_slice(value);
    to.resize(align(to.len()), 0);
}
