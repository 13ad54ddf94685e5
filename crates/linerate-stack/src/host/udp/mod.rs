//! UDP sockets (RFC 768, RFC 1122 4.1, RFC 8085).
//!
//! [`Udp`] has the sockets of one lcore, and stands beside the [`Host`] whose packets it takes:
//! [`Udp::deliver`] after [`Host::receive`] moves datagrams from the burst to the sockets' queues,
//! and ICMP errors to the sockets that they are about. A socket is a [`UdpId`], which is valid
//! until it is closed.
//!
//! A datagram goes to the socket that is connected to its sender; else to one bound to its
//! destination address; else to one bound to any address. Where several are bound alike
//! ([`Bind::reuse`]) the flow's hash chooses, so that a flow stays with one. A broadcast or
//! multicast datagram goes to each.
//!
//! Memory: sockets and waiting packets are in arenas made at set-up; heads of the lists of sockets
//! by port take 256 KiB.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use linerate_core::packet::Packet;
use linerate_core::run::Egress;
use linerate_tables::exact::{Exact, ExactConfig, Seed};

mod deliver;
mod find;
mod send;

use super::inbound::{Arrived, ErrorKind};
use super::queue::{Queue, Waiting};
use super::{Host, HostError, InterfaceId, Path, Unreachable, Unsent};

const NIL: u32 = u32::MAX;

/// Bounds of the sockets of one lcore.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// Limit of sockets.
    pub sockets: u32,
    /// Limit of packets that wait in all queues.
    pub queue_pkts: usize,
    /// Limit of bytes of their slots.
    pub queue_bytes: usize,
    /// Ports for sockets that name none: Linux' range (RFC 6056 3.2 wants it wide).
    pub ephemeral: RangeInclusive<u16>,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            sockets: 4096,
            queue_pkts: 16_384,
            queue_bytes: 32 << 20,
            ephemeral: 32_768..=60_999,
        }
    }
}

/// What a socket is bound to, and how it behaves.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// Our address; `None`: all, of both families; 0.0.0.0 or ::: all of one.
    pub address: Option<IpAddr>,
    /// Our port; 0: one that is free, unpredictable (RFC 6056 3.3.1).
    pub port: u16,
    /// Whether others that say so too may be bound to the same address and port.
    pub reuse: bool,
    /// Whether it may send to broadcast addresses.
    pub broadcast: bool,
    /// Datagrams that come by other interfaces are not for it, and it sends by this one.
    pub interface: Option<InterfaceId>,
    /// Bytes of slots that may wait in its queue.
    pub queue_bytes: u32,
    /// Time to live, or hop limit, of what it sends.
    pub ttl: u8,
    /// DSCP and ECN of what it sends.
    pub tos: u8,
}

impl Default for Bind {
    fn default() -> Self {
        Self {
            address: None,
            port: 0,
            reuse: false,
            broadcast: false,
            interface: None,
            queue_bytes: 256 << 10,
            ttl: crate::icmp::TTL,
            tos: 0,
        }
    }
}

/// A socket. It never leaves its stack, and ends with [`Udp::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpId {
    at: u32,
    generation: u32,
}

/// Why a call on a socket failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UdpError {
    /// It was closed.
    #[error("the socket is closed")]
    Closed,
    /// As many sockets as there may be.
    #[error("no more sockets")]
    NoSocket,
    /// Another socket has that address and port, or all ports are taken.
    #[error("the port is taken")]
    PortTaken,
    /// The address is none of ours, or of the other family.
    #[error("not an address of this host")]
    Address,
    /// No destination was given, and the socket is not connected; or port 0.
    #[error("no destination")]
    NoDestination,
    /// A broadcast destination without [`Bind::broadcast`].
    #[error("the socket may not broadcast")]
    Broadcast,
    /// Longer than a UDP datagram can be.
    #[error("the datagram is too long")]
    TooLong,
    /// No path leads to the destination.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// It was not sent.
    #[error(transparent)]
    Unsent(#[from] Unsent),
}

/// A received datagram, in the packet that brought it.
#[derive(Debug)]
pub struct Datagram {
    /// The packet: its owner frees it, best by [`Egress::consume_one`].
    pub packet: Packet,
    /// Where the payload begins, in bytes from the start of the data.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// About it.
    pub about: Received,
}

impl Datagram {
    /// The payload.
    pub fn payload(&self) -> &[u8] {
        let end = self.start + self.len;
        self.packet.data().get(self.start..end).unwrap_or_default()
    }
}

/// About a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub from: SocketAddr,
    /// The address that it was sent to (RFC 1122 4.1.3.5: the socket is told).
    pub to: IpAddr,
    /// By which interface it came.
    pub interface: InterfaceId,
    /// Its DSCP and ECN.
    pub tos: u8,
    /// Its time to live, or hop limit, on arrival.
    pub ttl: u8,
    /// Length of its payload in bytes, which a copy may have been too short for.
    pub len: usize,
}

/// An ICMP error about a datagram of a socket (RFC 1122 4.1.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Destination of the datagram.
    pub remote: SocketAddr,
    /// Who says so.
    pub from: IpAddr,
}

/// Counts since the start; drops are counted by the [`Egress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpStats {
    /// Datagrams that went into queues.
    pub received: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams without a socket.
    pub no_socket: u64,
    /// Datagrams that found a full queue.
    pub full: u64,
    /// ICMP errors that a socket got.
    pub faults: u64,
}

/// One socket.
struct Socket {
    generation: u32,
    is_open: bool,
    bind: Bind,
    /// The peer that it is connected to, and our address.
    connected: Option<(SocketAddr, IpAddr)>,
    /// Where the last datagram went, from which address, and how.
    last: Option<(IpAddr, IpAddr, Path)>,
    queue: Queue,
    fault: Option<Fault>,
    /// The next one in the list of its port, if it is not connected; of free ones, if it is free.
    next: u32,
    /// Whether it is in the list of those that something has happened to.
    is_listed: bool,
    next_listed: u32,
}

/// All UDP sockets of one lcore.
pub struct Udp {
    sockets: Vec<Socket>,
    most: u32,
    free: u32,
    open: u32,
    /// The first socket of each local port that is not connected.
    ports: Box<[u32]>,
    /// How many sockets have each local port, in all.
    users: Box<[u16]>,
    /// Connected ones: see `find`.
    connected: Exact<36, u32>,
    waiting: Waiting,
    /// Those that something has happened to, in order.
    listed: (u32, u32),
    ephemeral: RangeInclusive<u16>,
    stats: UdpStats,
}

impl Udp {
    /// No sockets yet.
    ///
    /// # Errors
    /// No memory.
    pub fn new(config: &UdpConfig) -> Result<Self, HostError> {
        let most = config.sockets.clamp(1, NIL - 1);
        let connected = ExactConfig::new("udp connections", most as usize, Seed::random());
        Ok(Self {
            sockets: Vec::with_capacity(most as usize),
            most,
            free: NIL,
            open: 0,
            ports: vec![NIL; 1 << 16].into(),
            users: vec![0; 1 << 16].into(),
            connected: Exact::new(&connected)?,
            waiting: Waiting::new(config.queue_pkts, config.queue_bytes),
            listed: (NIL, NIL),
            ephemeral: config.ephemeral.clone(),
            stats: UdpStats::default(),
        })
    }

    /// Opens a socket.
    ///
    /// # Errors
    /// The address is not ours, the port is taken, or there are too many sockets.
    pub fn bind(&mut self, host: &mut Host, mut bind: Bind) -> Result<UdpId, UdpError> {
        match bind.address {
            Some(address) if !address.is_unspecified() && !host.is_own(address) => {
                return Err(UdpError::Address);
            }
            _ => {}
        }
        if bind.port == 0 {
            bind.port = self.free_port(host)?;
        } else if !self.may_share(&bind) {
            return Err(UdpError::PortTaken);
        }
        let at = match self.free {
            NIL if self.sockets.len() < self.most as usize => self.sockets.len() as u32,
            NIL => return Err(UdpError::NoSocket),
            free => free,
        };
        let mut socket = Socket {
            generation: 0,
            is_open: true,
            bind,
            connected: None,
            last: None,
            queue: Queue::EMPTY,
            fault: None,
            next: self.ports[usize::from(bind.port)],
            is_listed: false,
            next_listed: NIL,
        };
        match self.sockets.get_mut(at as usize) {
            Some(slot) => {
                self.free = slot.next;
                socket.generation = slot.generation;
                // It may still be in the list of what has happened.
                (socket.is_listed, socket.next_listed) = (slot.is_listed, slot.next_listed);
                *slot = socket;
            }
            None => self.sockets.push(socket),
        }
        self.ports[usize::from(bind.port)] = at;
        self.users[usize::from(bind.port)] += 1;
        self.open += 1;
        let generation = self.sockets[at as usize].generation;
        Ok(UdpId { at, generation })
    }

    /// Connects a socket: it gets datagrams of that peer only, and sends to it. Another call
    /// changes the peer.
    ///
    /// # Errors
    /// No path leads there, or another socket is connected alike.
    pub fn connect(
        &mut self,
        host: &mut Host,
        id: UdpId,
        remote: SocketAddr,
    ) -> Result<(), UdpError> {
        let at = self.at(id)?;
        if remote.port() == 0 {
            return Err(UdpError::NoDestination);
        }
        let bind = self.sockets[at].bind;
        let (path, source) = path_of(host, &bind, remote.ip())?;
        let key = find::key(remote, SocketAddr::new(source, bind.port));
        if (self.connected.lookup(&key)).is_some_and(|other| other as usize != at) {
            return Err(UdpError::PortTaken);
        }
        self.unlink(at);
        self.sockets[at].connected = Some((remote, source));
        self.sockets[at].last = Some((remote.ip(), source, path));
        // There is room for as many as there are sockets.
        let _ = self.connected.insert(&key, at as u32);
        Ok(())
    }

    /// Closes a socket, and drops what waits for it.
    ///
    /// # Errors
    /// It is closed already.
    pub fn close(&mut self, host: &Host, id: UdpId, out: &mut Egress) -> Result<(), UdpError> {
        let at = self.at(id)?;
        self.unlink(at);
        let socket = &mut self.sockets[at];
        while let Some((packet, _)) = self.waiting.pop(&mut socket.queue) {
            out.drop_one(host.reasons.no_listener, packet);
        }
        let port = usize::from(socket.bind.port);
        socket.is_open = false;
        socket.generation = socket.generation.wrapping_add(1);
        socket.fault = None;
        socket.next = self.free;
        self.free = at as u32;
        self.users[port] -= 1;
        self.open -= 1;
        Ok(())
    }

    /// The next datagram of a socket, in its packet; `None` if none waits.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn recv(&mut self, id: UdpId) -> Result<Option<Datagram>, UdpError> {
        let at = self.at(id)?;
        let queue = &mut self.sockets[at].queue;
        Ok(self.waiting.pop(queue).map(|(packet, arrived)| {
            let about = received(&packet, &arrived);
            Datagram {
                start: usize::from(arrived.l4) + linerate_wire::udp::HEADER_LEN,
                len: about.len,
                about,
                packet,
            }
        }))
    }

    /// Copies the next datagram of a socket to `to`, as much as fits; the rest is lost (RFC 1122
    /// has nothing to say, but all systems do so). `None` if none waits.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn recv_into(
        &mut self,
        id: UdpId,
        to: &mut [u8],
        out: &mut Egress,
    ) -> Result<Option<Received>, UdpError> {
        let Some(datagram) = self.recv(id)? else {
            return Ok(None);
        };
        let payload = datagram.payload();
        let len = payload.len().min(to.len());
        to[..len].copy_from_slice(&payload[..len]);
        let about = datagram.about;
        out.consume_one(datagram.packet);
        Ok(Some(about))
    }

    /// About the next datagram, which stays.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn peek(&self, id: UdpId) -> Result<Option<Received>, UdpError> {
        let queue = &self.sockets[self.at(id)?].queue;
        let front = self.waiting.front(queue);
        Ok(front.map(|(packet, arrived)| received(packet, arrived)))
    }

    /// The last ICMP error about a socket's datagrams, if there was one since the last call.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn take_fault(&mut self, id: UdpId) -> Result<Option<Fault>, UdpError> {
        let at = self.at(id)?;
        Ok(self.sockets[at].fault.take())
    }

    /// A socket that has got a datagram or a fault since it was returned last; each once.
    pub fn pop_ready(&mut self) -> Option<UdpId> {
        while self.listed.0 != NIL {
            let at = self.listed.0;
            let socket = &mut self.sockets[at as usize];
            self.listed.0 = socket.next_listed;
            if self.listed.0 == NIL {
                self.listed.1 = NIL;
            }
            (socket.is_listed, socket.next_listed) = (false, NIL);
            if socket.is_open && !(socket.queue.is_empty() && socket.fault.is_none()) {
                let generation = socket.generation;
                return Some(UdpId { at, generation });
            }
        }
        None
    }

    /// Our address, as far as it is bound or connected, and port.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn local(&self, id: UdpId) -> Result<(Option<IpAddr>, u16), UdpError> {
        let socket = &self.sockets[self.at(id)?];
        let connected = socket.connected.map(|(_, source)| source);
        Ok((connected.or(socket.bind.address), socket.bind.port))
    }

    /// The peer that it is connected to.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn remote(&self, id: UdpId) -> Result<Option<SocketAddr>, UdpError> {
        Ok(self.sockets[self.at(id)?]
            .connected
            .map(|(remote, _)| remote))
    }

    /// Datagrams that wait for a socket.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn waiting(&self, id: UdpId) -> Result<usize, UdpError> {
        Ok(self.sockets[self.at(id)?].queue.len())
    }

    /// How many sockets are open.
    pub fn len(&self) -> usize {
        self.open as usize
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Slots that wait in queues, for the ledger.
    pub fn held(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Counts since the start.
    pub fn stats(&self) -> UdpStats {
        self.stats
    }

    fn at(&self, id: UdpId) -> Result<usize, UdpError> {
        let socket = self.sockets.get(id.at as usize);
        let is_it = |socket: &&Socket| socket.is_open && socket.generation == id.generation;
        socket
            .filter(is_it)
            .map(|_| id.at as usize)
            .ok_or(UdpError::Closed)
    }

    /// A port that no socket has: from an unpredictable one on, the next that is free (RFC 6056
    /// 3.3.1).
    fn free_port(&self, host: &mut Host) -> Result<u16, UdpError> {
        let (first, last) = (*self.ephemeral.start(), *self.ephemeral.end());
        let count = u64::from(last.saturating_sub(first)) + 1;
        let start = host.unpredictable(2) % count;
        (0..count)
            .map(|step| first.wrapping_add(((start + step) % count) as u16))
            .find(|port| *port != 0 && self.users[usize::from(*port)] == 0)
            .ok_or(UdpError::PortTaken)
    }

    /// Whether no other socket has the address and port, or all of those may share it.
    fn may_share(&self, bind: &Bind) -> bool {
        if self.users[usize::from(bind.port)] == 0 {
            return true;
        }
        let on_port = self
            .sockets
            .iter()
            .filter(|other| other.is_open && other.bind.port == bind.port);
        let mut rivals = on_port.filter(|other| {
            let is_elsewhere = match (other.bind.interface, bind.interface) {
                (Some(one), Some(two)) => one != two,
                _ => false,
            };
            !is_elsewhere && overlap(other.bind.address, bind.address)
        });
        rivals.all(|other| other.bind.reuse && bind.reuse)
    }

    /// Takes a socket out of the list of its port, or out of those connected.
    fn unlink(&mut self, at: usize) {
        let socket = &self.sockets[at];
        let port = socket.bind.port;
        if let Some((remote, source)) = socket.connected {
            self.connected
                .remove(&find::key(remote, SocketAddr::new(source, port)));
            return;
        }
        let next = socket.next;
        let head = &mut self.ports[usize::from(port)];
        if *head == at as u32 {
            *head = next;
            return;
        }
        let mut before = *head;
        while let Some(other) = self.sockets.get_mut(before as usize) {
            if other.next == at as u32 {
                other.next = next;
                return;
            }
            before = other.next;
        }
    }

    /// Something has happened to a socket.
    fn list(&mut self, at: u32) {
        let socket = &mut self.sockets[at as usize];
        if socket.is_listed {
            return;
        }
        (socket.is_listed, socket.next_listed) = (true, NIL);
        match self.listed.1 {
            NIL => self.listed.0 = at,
            last => self.sockets[last as usize].next_listed = at,
        }
        self.listed.1 = at;
    }
}

/// Whether some address belongs to both.
fn overlap(one: Option<IpAddr>, two: Option<IpAddr>) -> bool {
    match (one, two) {
        (Some(one), Some(two)) => {
            let is_same = one == two || one.is_unspecified() || two.is_unspecified();
            one.is_ipv4() == two.is_ipv4() && is_same
        }
        _ => true,
    }
}

/// Path and source of a socket's datagrams to an address.
fn path_of(host: &mut Host, bind: &Bind, to: IpAddr) -> Result<(Path, IpAddr), UdpError> {
    let suits = bind.address.is_none_or(|own| own.is_ipv4() == to.is_ipv4());
    if !suits {
        return Err(UdpError::Address);
    }
    let own = bind.address.filter(|own| !own.is_unspecified());
    Ok(host.path_on(bind.interface, own, to)?)
}

fn received(packet: &Packet, arrived: &Arrived) -> Received {
    let (from, to) = arrived.addresses(packet);
    let datagram = linerate_wire::udp::Udp::new_checked(arrived.l4(packet));
    let (port, len) = match &datagram {
        Ok(udp) => (udp.src_port(), udp.payload().len()),
        Err(_) => (0, 0),
    };
    Received {
        from: SocketAddr::new(from, port),
        to,
        interface: arrived.interface,
        tos: arrived.tos,
        ttl: arrived.ttl,
        len,
    }
}

/// The unspecified address of the same family.
fn any_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
