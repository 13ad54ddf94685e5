//! What one lcore of a node sends another: a head of ten bytes, and a message.
//!
//! ```text
//! byte 0: what it is   1: kind of link   2..10: address, port, number   10..: message, name
//! ```

use std::net::{Ipv4Addr, SocketAddrV4};

use linerate_epc::s6a::Name;
use linerate_epc::{Link, Notice};

/// Bytes of the head.
pub const HEAD: usize = 10;

/// What it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parcel {
    /// A message that came by this link, for the owner of its user.
    Message(Link),
    /// A message to be sent by this link, for the home of the connection.
    Send(Link),
    /// Something that all lcores of the node have to know.
    Notice(Notice),
}

const MESSAGE: u8 = 0;
const SEND: u8 = 1;
const OPENED: u8 = 2;
const CLOSED: u8 = 3;
const RESTARTED: u8 = 4;
const UNREACHABLE: u8 = 5;
const COUNTER: u8 = 6;
const NAMED: u8 = 7;

impl Parcel {
    /// The head.
    pub fn write(&self) -> [u8; HEAD] {
        let of_link = |what, link| {
            let (kind, [a, b, c, d], port) = match link {
                Link::S1(number) => (0, [0; 4], number),
                Link::S6a(number) => (1, [0; 4], number),
                Link::Gtpc(at) => (2, at.ip().octets(), at.port()),
                Link::Gtpu(at) => (3, at.ip().octets(), at.port()),
                Link::Sgi => (4, [0; 4], 0),
                Link::User(id) => (5, id.to_be_bytes(), 0),
            };
            let [m, n] = port.to_be_bytes();
            [what, kind, a, b, c, d, m, n, 0, 0]
        };
        let of_peer = |what, address: Ipv4Addr, restarts| {
            let [a, b, c, d] = address.octets();
            [what, 0, a, b, c, d, 0, restarts, 0, 0]
        };
        match *self {
            Self::Message(link) => of_link(MESSAGE, link),
            Self::Send(link) => of_link(SEND, link),
            Self::Notice(Notice::Opened(link)) => of_link(OPENED, link),
            Self::Notice(Notice::Closed(link)) => of_link(CLOSED, link),
            Self::Notice(Notice::Named(link, _)) => of_link(NAMED, link),
            Self::Notice(Notice::Restarted(peer, restarts)) => of_peer(RESTARTED, peer, restarts),
            Self::Notice(Notice::Counter(peer, restarts)) => of_peer(COUNTER, peer, restarts),
            Self::Notice(Notice::Unreachable(peer)) => of_peer(UNREACHABLE, peer, 0),
        }
    }

    /// What is behind the head, of a parcel that carries no message.
    pub fn rest(&self) -> &[u8] {
        match self {
            Self::Notice(Notice::Named(_, name)) => name.bytes(),
            _ => &[],
        }
    }

    /// Head and message of a parcel; `None` for what none of us wrote.
    pub fn read(bytes: &mut [u8]) -> Option<(Self, &mut [u8])> {
        let (&mut [what, kind, a, b, c, d, m, n, _, _], message) =
            bytes.split_first_chunk_mut::<HEAD>()?;
        let (address, number) = (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([m, n]));
        let link = || {
            Some(match kind {
                0 => Link::S1(number),
                1 => Link::S6a(number),
                2 => Link::Gtpc(SocketAddrV4::new(address, number)),
                3 => Link::Gtpu(SocketAddrV4::new(address, number)),
                4 => Link::Sgi,
                5 => Link::User(address.into()),
                _ => return None,
            })
        };
        let parcel = match what {
            MESSAGE => Self::Message(link()?),
            SEND => Self::Send(link()?),
            OPENED => Self::Notice(Notice::Opened(link()?)),
            CLOSED => Self::Notice(Notice::Closed(link()?)),
            NAMED => Self::Notice(Notice::Named(link()?, Name::new(message)?)),
            RESTARTED => Self::Notice(Notice::Restarted(address, n)),
            COUNTER => Self::Notice(Notice::Counter(address, n)),
            UNREACHABLE => Self::Notice(Notice::Unreachable(address)),
            _ => return None,
        };
        Some((parcel, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let at = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 2123);
        let links = [
            Link::S1(7),
            Link::S6a(300),
            Link::Gtpc(at),
            Link::Gtpu(at),
            Link::Sgi,
            Link::User(0x8000_0001),
        ];
        let of_links = links.into_iter().flat_map(|link| {
            let opened = Parcel::Notice(Notice::Opened(link));
            let closed = Parcel::Notice(Notice::Closed(link));
            let named = Parcel::Notice(Notice::Named(link, Name::new(b"abc").unwrap()));
            [
                Parcel::Message(link),
                Parcel::Send(link),
                opened,
                closed,
                named,
            ]
        });
        let peer = *at.ip();
        let of_peers = [
            Notice::Restarted(peer, 255),
            Notice::Counter(peer, 7),
            Notice::Unreachable(peer),
        ];
        let mut count = 0;
        for parcel in of_links.chain(of_peers.map(Parcel::Notice)) {
            let rest = parcel.rest();
            assert!(rest.is_empty() || rest == b"abc");
            let mut bytes = [&parcel.write()[..], b"abc"].concat();
            let (read, message) = Parcel::read(&mut bytes).unwrap();
            assert_eq!((read, &*message), (parcel, &b"abc"[..]));
            count += 1;
        }
        assert_eq!(count, 33);
    }

    #[test]
    fn what_nobody_wrote_is_none() {
        assert_eq!(Parcel::read(&mut [0; HEAD - 1]), None);
        assert_eq!(Parcel::read(&mut [8; HEAD]), None);
        assert_eq!(Parcel::read(&mut [0, 6, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
