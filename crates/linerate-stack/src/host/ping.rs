//! Echo requests of ours, and their replies (RFC 792, RFC 1122 3.2.2.6, RFC 4443 4).
//!
//! A socket is an identifier. [`Ping::deliver`] after [`Host::receive`] takes the echo replies out
//! of the burst, and the ICMP errors about requests.

use std::net::IpAddr;

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_wire::icmp::{self, Icmp, v4, v6};
use linerate_wire::protocol;

use super::inbound::{Arrived, ErrorKind, Inbound, ones};
use super::queue::{Queue, Waiting};
use super::{Checksum, Ends, Header, Host, InterfaceId, Unreachable, Unsent};

/// Bounds of ping sockets.
#[derive(Clone, Copy, Debug)]
pub struct PingConfig {
    /// Limit of sockets.
    pub sockets: usize,
    /// Limit of replies that wait in all queues.
    pub queue_pkts: usize,
    /// Limit of bytes of the slots that wait for one socket.
    pub queue_bytes: u32,
}

impl Default for PingConfig {
    fn default() -> Self {
        Self {
            sockets: 64,
            queue_pkts: 1024,
            queue_bytes: 128 << 10,
        }
    }
}

/// A socket, until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PingId {
    ident: u16,
    generation: u32,
}

impl PingId {
    /// The identifier in its requests.
    pub const fn ident(self) -> u16 {
        self.ident
    }
}

/// Why a call on a socket failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PingError {
    /// It was closed.
    #[error("the socket is closed")]
    Closed,
    /// As many sockets as there may be.
    #[error("no more sockets")]
    NoSocket,
    /// Another socket has that identifier.
    #[error("the identifier is taken")]
    Taken,
    /// Longer than an IP packet can be.
    #[error("the request is too long")]
    TooLong,
    /// No path leads to the destination.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// It was not sent.
    #[error(transparent)]
    Unsent(#[from] Unsent),
}

/// One echo request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Destination.
    pub to: IpAddr,
    /// Source; `None`: that of the path.
    pub from: Option<IpAddr>,
    /// Output interface, for link-local destinations.
    pub interface: Option<InterfaceId>,
    /// Sequence number.
    pub seq: u16,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Whether it may not be fragmented.
    pub dont_fragment: bool,
    /// What the reply brings back.
    pub payload: &'a [u8],
}

impl<'a> Request<'a> {
    /// A request with the usual time to live.
    pub fn new(to: IpAddr, seq: u16, payload: &'a [u8]) -> Self {
        Self {
            to,
            from: None,
            interface: None,
            seq,
            ttl: crate::icmp::TTL,
            dont_fragment: false,
            payload,
        }
    }
}

/// A reply, in the packet that brought it.
#[derive(Debug)]
pub struct Reply {
    /// The packet: its owner frees it, best by [`Egress::consume_one`].
    pub packet: Packet,
    /// Who replied.
    pub from: IpAddr,
    /// Sequence number of the request.
    pub seq: u16,
    /// Its time to live, or hop limit, on arrival.
    pub ttl: u8,
    /// Where the payload begins, in bytes from the start of the data.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
}

impl Reply {
    /// What the request had as its payload.
    pub fn payload(&self) -> &[u8] {
        let end = self.start + self.len;
        self.packet.data().get(self.start..end).unwrap_or_default()
    }
}

/// An ICMP error about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Destination of the request.
    pub to: IpAddr,
    /// Its sequence number.
    pub seq: u16,
    /// Who says so.
    pub from: IpAddr,
}

struct Socket {
    id: PingId,
    queue: Queue,
    fault: Option<Fault>,
}

/// All ping sockets of one lcore.
pub struct Ping {
    sockets: Vec<Socket>,
    config: PingConfig,
    waiting: Waiting,
    generation: u32,
}

impl Ping {
    /// No sockets yet.
    pub fn new(config: &PingConfig) -> Self {
        Self {
            sockets: Vec::with_capacity(config.sockets),
            config: *config,
            waiting: Waiting::new(config.queue_pkts, usize::MAX),
            generation: 0,
        }
    }

    /// Opens a socket, with this identifier or an unpredictable one.
    ///
    /// # Errors
    /// It is taken, or there are too many sockets.
    pub fn open(&mut self, host: &mut Host, ident: Option<u16>) -> Result<PingId, PingError> {
        if self.sockets.len() >= self.config.sockets {
            return Err(PingError::NoSocket);
        }
        let is_free = |ident: &u16| self.find(*ident).is_none();
        let ident = match ident {
            Some(ident) => ident,
            None => {
                let start = host.unpredictable(3) as u16;
                let mut all = (0..=u16::MAX).map(|step| start.wrapping_add(step));
                all.find(is_free).ok_or(PingError::Taken)?
            }
        };
        if !is_free(&ident) {
            return Err(PingError::Taken);
        }
        self.generation = self.generation.wrapping_add(1);
        let id = PingId {
            ident,
            generation: self.generation,
        };
        self.sockets.push(Socket {
            id,
            queue: Queue::EMPTY,
            fault: None,
        });
        Ok(id)
    }

    /// Closes a socket, and drops replies that wait.
    ///
    /// # Errors
    /// It is closed already.
    pub fn close(&mut self, host: &Host, id: PingId, out: &mut Egress) -> Result<(), PingError> {
        let at = self.at(id)?;
        let mut socket = self.sockets.swap_remove(at);
        while let Some((packet, _)) = self.waiting.pop(&mut socket.queue) {
            out.drop_one(host.reasons.no_listener, packet);
        }
        Ok(())
    }

    /// Sends an echo request.
    ///
    /// # Errors
    /// Why it was not sent.
    pub fn send(
        &mut self,
        host: &mut Host,
        id: PingId,
        request: &Request<'_>,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<(), PingError> {
        self.at(id)?;
        let len = icmp::HEADER_LEN + request.payload.len();
        let (mut path, source) = host.path_on(request.interface, request.from, request.to)?;
        let ends = Ends::new(source, request.to);
        let ends = ends.ok_or(PingError::Unreachable(Unreachable::Family))?;
        if ends.header_len() + len > usize::from(u16::MAX) {
            return Err(PingError::TooLong);
        }
        let packet = out.cache.get_for(len);
        let mut packet = packet.ok_or(PingError::Unsent(Unsent::NoBuffer))?;
        out.made(1);
        if !packet.set_len(len) {
            out.drop_one(host.reasons.no_buffer, packet);
            return Err(PingError::Unsent(Unsent::NoBuffer));
        }
        let is_v4 = request.to.is_ipv4();
        let message = packet.data_mut();
        let kind = if is_v4 {
            v4::ECHO_REQUEST
        } else {
            v6::ECHO_REQUEST
        };
        message[..4].copy_from_slice(&[kind, 0, 0, 0]);
        message[4..6].copy_from_slice(&id.ident.to_be_bytes());
        message[6..8].copy_from_slice(&request.seq.to_be_bytes());
        message[8..].copy_from_slice(request.payload);
        let checksum = match Icmp::new_checked(message) {
            // RFC 792: without a pseudo-header.
            Ok(mut icmp) if is_v4 => {
                icmp.fill_checksum(0);
                Checksum::Done
            }
            _ => Checksum::At(2),
        };
        let header = Header {
            ends,
            protocol: if is_v4 {
                protocol::ICMP
            } else {
                protocol::ICMPV6
            },
            tos: 0,
            ttl: request.ttl,
            dont_fragment: request.dont_fragment,
            flow_label: 0,
            checksum,
        };
        Ok(host.transmit(&mut path, packet, &header, now_ns, out)?)
    }

    /// Takes echo replies out of a burst, as [`Host::receive`] has left it, to their sockets, and
    /// notes ICMP errors about requests. Replies that nobody waits for are dropped.
    pub fn deliver(
        &mut self,
        host: &mut Host,
        burst: &mut Burst,
        inbound: &mut Inbound,
        now_ns: u64,
        out: &mut Egress,
    ) {
        for error in inbound.errors() {
            if !matches!(error.protocol, protocol::ICMP | protocol::ICMPV6) {
                continue;
            }
            let Some(at) = self.find(error.local.port()) else {
                continue;
            };
            if let ErrorKind::TooBig { mtu } = error.kind {
                host.note_too_big(error.remote.ip(), mtu, now_ns);
            }
            self.sockets[at].fault = Some(Fault {
                kind: error.kind,
                to: error.remote.ip(),
                seq: error.seq as u16,
                from: error.from,
            });
        }
        let mask = inbound.echo();
        if mask == 0 {
            return;
        }
        let mut facts = [Arrived::NONE; Burst::CAPACITY];
        for (fact, index) in facts.iter_mut().zip(ones(mask)) {
            *fact = *inbound.arrived(index);
        }
        let mut taken = Burst::new();
        inbound.take(mask, burst, &mut taken);
        for (packet, arrived) in taken.drain().zip(facts) {
            let ident = Icmp::new_checked(arrived.l4(&packet)).map(|icmp| icmp.echo_ident());
            let at = ident.ok().and_then(|ident| self.find(ident));
            let Some(socket) = at.map(|at| &mut self.sockets[at]) else {
                out.drop_one(host.reasons.no_listener, packet);
                continue;
            };
            let limit = self.config.queue_bytes;
            let pushed = self.waiting.push(&mut socket.queue, packet, arrived, limit);
            if let Err(packet) = pushed {
                out.drop_one(host.reasons.socket_full, packet);
            }
        }
    }

    /// The next reply; `None` if none waits.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn recv(&mut self, id: PingId) -> Result<Option<Reply>, PingError> {
        let at = self.at(id)?;
        let Some((packet, arrived)) = self.waiting.pop(&mut self.sockets[at].queue) else {
            return Ok(None);
        };
        let (from, _) = arrived.addresses(&packet);
        let seq = Icmp::new_checked(arrived.l4(&packet)).map_or(0, |icmp| icmp.echo_seq());
        Ok(Some(Reply {
            from,
            seq,
            ttl: arrived.ttl,
            start: usize::from(arrived.l4) + icmp::HEADER_LEN,
            len: (arrived.l4_len as usize).saturating_sub(icmp::HEADER_LEN),
            packet,
        }))
    }

    /// The last ICMP error about a socket's requests, if there was one since the last call.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn take_fault(&mut self, id: PingId) -> Result<Option<Fault>, PingError> {
        let at = self.at(id)?;
        Ok(self.sockets[at].fault.take())
    }

    /// Slots that wait in queues, for the ledger.
    pub fn held(&self) -> u64 {
        self.waiting.len() as u64
    }

    fn find(&self, ident: u16) -> Option<usize> {
        self.sockets
            .iter()
            .position(|socket| socket.id.ident == ident)
    }

    fn at(&self, id: PingId) -> Result<usize, PingError> {
        let at = self.find(id.ident).ok_or(PingError::Closed)?;
        (self.sockets[at].id == id)
            .then_some(at)
            .ok_or(PingError::Closed)
    }
}
