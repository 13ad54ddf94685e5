//! Sending datagrams.

use std::net::{IpAddr, SocketAddr};

use linerate_core::packet::Packet;
use linerate_core::run::Egress;
use linerate_wire::{protocol, udp};

use super::super::{Checksum, Ends, Header, Path, Unsent, address};
use super::{Host, Udp, UdpError, UdpId, path_of};

/// Longest payload in bytes (RFC 768: 16 bits of length; over IPv4 with its header).
const MOST6: usize = u16::MAX as usize - udp::HEADER_LEN;
const MOST4: usize = MOST6 - linerate_wire::ipv4::HEADER_LEN;

impl Udp {
    /// Sends a copy of `payload`, to the peer of a connected socket where `to` is `None`. What is
    /// longer than the path takes is fragmented.
    ///
    /// # Errors
    /// Why it was not sent.
    pub fn send_to(
        &mut self,
        host: &mut Host,
        id: UdpId,
        payload: &[u8],
        to: Option<SocketAddr>,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<(), UdpError> {
        self.at(id)?;
        if payload.len() > MOST6 {
            return Err(UdpError::TooLong);
        }
        let packet = out.cache.copy_of(payload);
        let packet = packet.ok_or(UdpError::Unsent(Unsent::NoBuffer))?;
        out.made(1);
        self.send_packet(host, id, packet, to, now_ns, out)
    }

    /// Sends a packet whose data is the payload; headers go into its headroom. It is dropped if it
    /// is not sent. The caller has told the egress of a packet that it made
    /// ([`Egress::made`]).
    ///
    /// # Errors
    /// Why it was not sent.
    pub fn send_packet(
        &mut self,
        host: &mut Host,
        id: UdpId,
        packet: Packet,
        to: Option<SocketAddr>,
        now_ns: u64,
        out: &mut Egress,
    ) -> Result<(), UdpError> {
        let (mut packet, way) = match self.prepare(host, id, packet.len(), to) {
            Ok(way) => (packet, way),
            Err(error) => {
                out.drop_one(host.reasons.no_route, packet);
                return Err(error);
            }
        };
        let Way {
            at,
            remote,
            source,
            mut path,
        } = way;
        let bind = self.sockets[at].bind;
        let len = udp::HEADER_LEN + packet.len();
        let Some(front) = packet.prepend(udp::HEADER_LEN) else {
            out.drop_one(host.reasons.no_buffer, packet);
            return Err(UdpError::Unsent(Unsent::NoBuffer));
        };
        front[..2].copy_from_slice(&bind.port.to_be_bytes());
        front[2..4].copy_from_slice(&remote.port().to_be_bytes());
        front[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        front[6..].fill(0);
        let Some(ends) = Ends::new(source, remote.ip()) else {
            out.drop_one(host.reasons.no_route, packet);
            return Err(UdpError::Address);
        };
        let mtu = host.mtu(path, remote.ip(), now_ns);
        let fits = ends.header_len() + len <= usize::from(mtu.bytes);
        let header = Header {
            ends,
            protocol: protocol::UDP,
            tos: bind.tos,
            ttl: bind.ttl,
            // As Linux: what fits helps path MTU discovery, what does not is fragmented.
            dont_fragment: fits && mtu.dont_fragment,
            flow_label: match ends {
                Ends::V4 { .. } => 0,
                Ends::V6 { .. } => {
                    let local = SocketAddr::new(source, bind.port);
                    host.flow_label(local, remote, protocol::UDP)
                }
            },
            // RFC 1122 4.1.3.4: on unless an application asks otherwise, which it cannot.
            checksum: Checksum::At(6),
        };
        let sent = host.transmit(&mut path, packet, &header, now_ns, out);
        self.sockets[at].last = Some((remote.ip(), source, path));
        sent?;
        self.stats.sent += 1;
        Ok(())
    }

    /// Sets the octet with the Diffserv field and ECN of what a socket sends from now on (RFC 8085
    /// 3.1.8, 3.1.7; Linux: IP_TOS, IPV6_TCLASS).
    ///
    /// # Errors
    /// The socket is closed.
    pub fn set_tos(&mut self, id: UdpId, tos: u8) -> Result<(), UdpError> {
        let at = self.at(id)?;
        self.sockets[at].bind.tos = tos;
        Ok(())
    }

    /// Sets the time to live, or hop limit, of what a socket sends from now on (RFC 1122 4.1.4;
    /// Linux: IP_TTL, IPV6_UNICAST_HOPS); 0 is taken for 1.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn set_ttl(&mut self, id: UdpId, ttl: u8) -> Result<(), UdpError> {
        let at = self.at(id)?;
        self.sockets[at].bind.ttl = ttl.max(1);
        Ok(())
    }

    /// Where a datagram of `len` bytes goes.
    fn prepare(
        &self,
        host: &mut Host,
        id: UdpId,
        len: usize,
        to: Option<SocketAddr>,
    ) -> Result<Way, UdpError> {
        let at = self.at(id)?;
        let socket = &self.sockets[at];
        let peer = socket.connected.map(|(remote, _)| remote);
        let remote = to.or(peer).ok_or(UdpError::NoDestination)?;
        let address = remote.ip();
        if remote.port() == 0 {
            return Err(UdpError::NoDestination);
        }
        if len > if address.is_ipv4() { MOST4 } else { MOST6 } {
            return Err(UdpError::TooLong);
        }
        if !socket.bind.broadcast && is_broadcast(host, address) {
            return Err(UdpError::Broadcast);
        }
        let kept = socket.last.filter(|last| last.0 == address);
        let (path, source) = match (kept, socket.connected) {
            (Some((_, source, path)), _) if host.is_current(path) => (path, source),
            // A connected socket keeps its source, or its answers would be lost.
            (_, Some((_, source))) if to.is_none() => {
                host.path_on(socket.bind.interface, Some(source), address)?
            }
            _ => path_of(host, &socket.bind, address)?,
        };
        Ok(Way {
            at,
            remote,
            source,
            path,
        })
    }
}

/// How a datagram goes.
struct Way {
    at: usize,
    remote: SocketAddr,
    source: IpAddr,
    path: Path,
}

/// Whether it is the limited broadcast address, or that of an attached network.
fn is_broadcast(host: &Host, to: IpAddr) -> bool {
    matches!(to, IpAddr::V4(v4) if v4.is_broadcast()
        || host.own.find4(v4.to_bits()) == Some(address::Whose::Broadcast))
}
