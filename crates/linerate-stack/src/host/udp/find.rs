//! Which socket a datagram is for.

use std::net::{IpAddr, SocketAddr};

use super::super::address::bits;
use super::super::inbound::Arrived;
use super::{NIL, Socket, Udp, any_of};

/// The key of a connected socket: both addresses and ports.
pub(super) fn key(remote: SocketAddr, local: SocketAddr) -> [u8; 36] {
    let mut key = [0; 36];
    key[..16].copy_from_slice(&bits(remote.ip()).to_be_bytes());
    key[16..32].copy_from_slice(&bits(local.ip()).to_be_bytes());
    key[32..34].copy_from_slice(&remote.port().to_be_bytes());
    key[34..].copy_from_slice(&local.port().to_be_bytes());
    key
}

impl Socket {
    /// How well a socket that is not connected suits a datagram to `to`; `None`: not at all.
    fn rank(&self, to: IpAddr, arrived: &Arrived) -> Option<u8> {
        let by_interface = match self.bind.interface {
            Some(interface) if interface != arrived.interface => return None,
            Some(_) => 1,
            None => 0,
        };
        let by_address = match self.bind.address {
            None => 0,
            Some(own) if own == any_of(to) => 0,
            Some(own) if own == to => 2,
            _ => return None,
        };
        Some(by_interface + by_address)
    }
}

impl Udp {
    /// The socket of a datagram between these, or [`NIL`]. `hash`: of the flow, to choose among
    /// those that share a port.
    pub(super) fn find(
        &self,
        from: SocketAddr,
        to: SocketAddr,
        arrived: &Arrived,
        hash: impl FnOnce() -> u64,
    ) -> u32 {
        if !self.connected.is_empty()
            && let Some(at) = self.connected.lookup(&key(from, to))
        {
            let bound = self.sockets[at as usize].bind.interface;
            if bound.is_none_or(|bound| bound == arrived.interface) {
                return at;
            }
        }
        let (mut best, mut found, mut alike) = (None, NIL, 0);
        for at in self.on_port(to.port()) {
            let rank = self.sockets[at as usize].rank(to.ip(), arrived);
            match rank {
                None => {}
                _ if rank > best => (best, found, alike) = (rank, at, 1),
                _ if rank == best => alike += 1,
                _ => {}
            }
        }
        if alike < 2 {
            return found;
        }
        let mut choice = hash() % alike;
        for at in self.on_port(to.port()) {
            if self.sockets[at as usize].rank(to.ip(), arrived) == best {
                if choice == 0 {
                    return at;
                }
                choice -= 1;
            }
        }
        found
    }

    /// The next socket behind `before` (from [`NIL`]: the first) that a datagram to a group is for.
    pub(super) fn find_of_group(
        &self,
        before: u32,
        from: SocketAddr,
        to: SocketAddr,
        arrived: &Arrived,
    ) -> u32 {
        if self.users[usize::from(to.port())] == 0 {
            return NIL;
        }
        let start = match before {
            NIL => 0,
            before => before as usize + 1,
        };
        let suits = |socket: &Socket| {
            let is_any = socket.bind.address.is_none_or(|own| own == any_of(to.ip()));
            let is_to = socket.bind.address == Some(to.ip());
            let bound = socket.bind.interface;
            socket.is_open
                && socket.bind.port == to.port()
                && (is_any || is_to)
                && bound.is_none_or(|bound| bound == arrived.interface)
                && socket.connected.is_none_or(|(remote, _)| remote == from)
        };
        let all = self.sockets.get(start..).unwrap_or_default();
        let at = all.iter().position(suits);
        at.map_or(NIL, |at| (start + at) as u32)
    }

    /// The sockets of a port that are not connected.
    pub(super) fn on_port(&self, port: u16) -> impl Iterator<Item = u32> {
        let mut at = self.ports[usize::from(port)];
        std::iter::from_fn(move || {
            let this = at;
            at = self.sockets.get(this as usize)?.next;
            Some(this)
        })
    }
}
