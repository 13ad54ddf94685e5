//! Messages of Linux's routing netlink: routes, next hops, neighbours, addresses, links.
//!
//! The kernel sends them on its sockets, and FRR's zebra in the stream that [`fpm`](crate::fpm)
//! cuts into messages. [`Messages`] walks a buffer of messages, [`Message::read`] decodes one. What
//! a message says about lengths is checked here and nowhere else; what follows from its content
//! (which table, which interface) is the reader's business. Integers are in the host's order.
//! [`build`] makes messages.
//!
//! After `linux/netlink.h`, `linux/rtnetlink.h`, `linux/nexthop.h`, `linux/if_addr.h` and
//! `linux/neighbour.h`.

mod attributes;
pub mod build;
mod flaw;
mod interface;
mod names;
mod route;
#[cfg(test)]
mod tests;

use crate::bytes::array;
use attributes::{Attributes, Value};

pub use flaw::Flaw;
pub use interface::{Address, Link, Neighbour};
pub use names::{attribute, family, kind};
pub use route::{Nexthop, Route, RouteKind, Via, Vias, by_zebra, protocol_name};

/// Bytes of a message's header.
pub const HEADER_LEN: usize = 16;
/// `RTPROT_KERNEL`: the kernel made the route itself, from an address.
pub const PROTOCOL_KERNEL: u8 = 2;

/// The messages of a buffer, one after the other. Ends after the first flaw.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Of what was received.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Flaw>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        if bytes.is_empty() {
            return None;
        }
        self.0 = &[];
        let says = match bytes.len() {
            0..4 => 0,
            _ => u32_at(bytes, 0),
        };
        let len = says as usize;
        if len < HEADER_LEN || len > bytes.len() {
            let has = bytes.len();
            return Some(Err(Flaw::Length { says, has }));
        }
        self.0 = bytes.get(align(len)..).unwrap_or(&[]);
        Some(Ok(Message {
            kind: u16_at(bytes, 4),
            flags: u16_at(bytes, 6),
            sequence: u32_at(bytes, 8),
            port: u32_at(bytes, 12),
            payload: &bytes[HEADER_LEN..len],
        }))
    }
}

/// One message, its body unread.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its type: [`kind`].
    pub kind: u16,
    /// `NLM_F_...`.
    pub flags: u16,
    /// Of the request that it answers.
    pub sequence: u32,
    /// Of the socket that it is for; 0: of none.
    pub port: u32,
    /// What stands behind the header.
    pub payload: &'a [u8],
}

/// Content of a message.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// The end of a dump.
    Done,
    /// A request's outcome: 0, or a negative errno.
    Error(i32),
    /// Messages were lost.
    Overrun,
    /// A link is there, or has changed.
    NewLink(Link<'a>),
    /// A link was removed.
    DelLink(Link<'a>),
    /// An interface has an address.
    NewAddress(Address),
    /// It has it no more.
    DelAddress(Address),
    /// A route is there, or has changed.
    NewRoute(Route<'a>),
    /// A route was removed.
    DelRoute(Route<'a>),
    /// A neighbour is there, or has changed.
    NewNeighbour(Neighbour),
    /// A neighbour was removed.
    DelNeighbour(Neighbour),
    /// A next hop or a group of them is there, or has changed.
    NewNexthop(Nexthop<'a>),
    /// It is gone.
    DelNexthop(Nexthop<'a>),
    /// Of a type or family that is not read here: MPLS, bridges, rules and the rest.
    Other,
}

impl<'a> Message<'a> {
    /// Decodes the body.
    ///
    /// # Errors
    /// Where lengths do not fit.
    pub fn read(&self) -> Result<Body<'a>, Flaw> {
        Ok(match self.kind {
            kind::DONE => Body::Done,
            kind::OVERRUN => Body::Overrun,
            kind::ERROR => Body::Error(u32_at(self.fixed::<4>()?, 0) as i32),
            kind::NEW_LINK => Link::read(self)?.map_or(Body::Other, Body::NewLink),
            kind::DEL_LINK => Link::read(self)?.map_or(Body::Other, Body::DelLink),
            kind::NEW_ADDRESS => Address::read(self)?.map_or(Body::Other, Body::NewAddress),
            kind::DEL_ADDRESS => Address::read(self)?.map_or(Body::Other, Body::DelAddress),
            kind::NEW_ROUTE => Route::read(self)?.map_or(Body::Other, Body::NewRoute),
            kind::DEL_ROUTE => Route::read(self)?.map_or(Body::Other, Body::DelRoute),
            kind::NEW_NEIGHBOUR => Neighbour::read(self)?.map_or(Body::Other, Body::NewNeighbour),
            kind::DEL_NEIGHBOUR => Neighbour::read(self)?.map_or(Body::Other, Body::DelNeighbour),
            kind::NEW_NEXTHOP => Nexthop::read(self)?.map_or(Body::Other, Body::NewNexthop),
            kind::DEL_NEXTHOP => Nexthop::read(self)?.map_or(Body::Other, Body::DelNexthop),
            _ => Body::Other,
        })
    }

    /// The fixed part of the body.
    fn fixed<const N: usize>(&self) -> Result<&'a [u8; N], Flaw> {
        let (kind, has) = (self.kind, self.payload.len());
        self.payload.first_chunk().ok_or(Flaw::Short { kind, has })
    }

    /// The attributes behind a fixed part of `N` bytes, each handed to `take` with its type.
    fn attributes<const N: usize>(
        &self,
        mut take: impl FnMut(u16, Value<'a>) -> Result<(), Flaw>,
    ) -> Result<(), Flaw> {
        for attribute in Attributes(&self.payload[N..]) {
            let (attribute, bytes) = attribute?;
            let kind = self.kind;
            take(
                attribute,
                Value {
                    kind,
                    attribute,
                    bytes,
                },
            )?;
        }
        Ok(())
    }
}

/// Messages and attributes begin at multiples of 4.
fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array(bytes, at))
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array(bytes, at))
}
