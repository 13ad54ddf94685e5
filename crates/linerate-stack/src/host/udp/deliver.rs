//! From a burst to the queues of sockets; ICMP errors to the sockets they are about.

use std::hash::BuildHasher;
use std::net::SocketAddr;

use linerate_core::packet::{Burst, Offload, Packet};
use linerate_core::run::Egress;
use linerate_wire::udp::{self, Udp as Header};
use linerate_wire::{FlowKey, protocol};

use super::super::inbound::{Arrived, ErrorKind, Inbound, ones};
use super::{Fault, Host, NIL, Udp};

/// Most datagrams that are glued together (Linux: UDP_MAX_SEGMENTS).
const GLUED_MAX: usize = 128;

impl Udp {
    /// Takes the UDP datagrams out of a burst, as [`Host::receive`] has left it, to the queues of
    /// their sockets, and notes the ICMP errors about datagrams that sockets have sent. Datagrams
    /// without a socket are answered with "port unreachable" (RFC 1122 4.1.3.1).
    pub fn deliver(
        &mut self,
        host: &mut Host,
        burst: &mut Burst,
        inbound: &mut Inbound,
        now_ns: u64,
        out: &mut Egress,
    ) {
        for error in inbound.errors() {
            if error.protocol == protocol::UDP {
                self.note(host, error, now_ns);
            }
        }
        let mask = inbound.udp();
        if mask == 0 {
            return;
        }
        let mut found = [(Arrived::NONE, NIL); Burst::CAPACITY];
        for (place, index) in found.iter_mut().zip(ones(mask)) {
            let arrived = *inbound.arrived(index);
            let at = match arrived.is_group {
                true => NIL,
                false => {
                    let key = inbound.key(index);
                    let (from, to) = ends(&key);
                    let hash = || host.secret.hash_one((from, to));
                    self.find(from, to, &arrived, hash)
                }
            };
            *place = (arrived, at);
        }
        let mut taken = Burst::new();
        inbound.take(mask, burst, &mut taken);
        for (packet, (arrived, at)) in taken.drain().zip(found) {
            let is_glued = packet.meta().offload.intersects(Offload::GSO_UDP);
            if is_glued && (arrived.is_group || at != NIL) {
                self.cut(host, at, packet, &arrived, out);
            } else if arrived.is_group {
                self.deliver_group(host, packet, &arrived, out);
            } else if at == NIL {
                self.stats.no_socket += 1;
                host.refuse_port(&packet, &arrived, now_ns, out);
                out.drop_one(host.reasons.no_listener, packet);
            } else {
                self.enqueue(host, at, packet, arrived, out);
            }
        }
    }

    fn enqueue(
        &mut self,
        host: &Host,
        at: u32,
        packet: Packet,
        arrived: Arrived,
        out: &mut Egress,
    ) {
        let socket = &mut self.sockets[at as usize];
        let limit = socket.bind.queue_bytes;
        match self.waiting.push(&mut socket.queue, packet, arrived, limit) {
            Ok(()) => {
                self.stats.received += 1;
                self.list(at);
            }
            Err(packet) => {
                self.stats.full += 1;
                out.drop_one(host.reasons.socket_full, packet);
            }
        }
    }

    /// A datagram to a group or broadcast address goes to each socket that is bound so; nobody gets
    /// an error (RFC 1122 3.2.2).
    #[cold]
    fn deliver_group(&mut self, host: &Host, packet: Packet, arrived: &Arrived, out: &mut Egress) {
        let (src, dst) = arrived.addresses(&packet);
        let Ok(header) = Header::new_checked(arrived.l4(&packet)) else {
            return out.drop_one(host.reasons.bad_length, packet);
        };
        let from = SocketAddr::new(src, header.src_port());
        let to = SocketAddr::new(dst, header.dst_port());
        let mut at = self.find_of_group(NIL, from, to, arrived);
        if at == NIL {
            self.stats.no_socket += 1;
            return out.drop_one(host.reasons.no_listener, packet);
        }
        loop {
            let next = self.find_of_group(at, from, to, arrived);
            if next == NIL {
                return self.enqueue(host, at, packet, *arrived, out);
            }
            // Without a slot this one goes without.
            if let Some(copy) = out.cache.copy_of(packet.data()) {
                out.made(1);
                self.enqueue(host, at, copy, *arrived, out);
            }
            at = next;
        }
    }

    /// Datagrams that a sender on this machine left glued together, for one socket, or for those
    /// of a group. More than Linux glues are a lie: each costs a slot, and may have a byte.
    #[cold]
    fn cut(&mut self, host: &Host, at: u32, packet: Packet, arrived: &Arrived, out: &mut Egress) {
        let head = usize::from(arrived.l4) + udp::HEADER_LEN;
        let size = usize::from(packet.meta().gso_size).max(1);
        let l4 = arrived.l4(&packet);
        let Ok(datagram) = Header::new_checked(l4) else {
            return out.drop_one(host.reasons.bad_length, packet);
        };
        if datagram.payload().len() > GLUED_MAX * size {
            return out.drop_one(host.reasons.bad_length, packet);
        }
        for part in datagram.payload().chunks(size) {
            let Some(mut copy) = out.cache.get_for(head + part.len()) else {
                out.count_drops(host.reasons.no_buffer, 1);
                out.made(1);
                continue;
            };
            out.made(1);
            let fits = copy.set_len(head + part.len());
            assert!(fits, "the pool was chosen for that length");
            let frame = copy.data_mut();
            frame[..head].copy_from_slice(&packet.data()[..head]);
            frame[head..].copy_from_slice(part);
            let len = udp::HEADER_LEN + part.len();
            let field = usize::from(arrived.l4) + 4; // RFC 768: length
            frame[field..field + 2].copy_from_slice(&(len as u16).to_be_bytes());
            let arrived = Arrived {
                l4_len: len as u32,
                ..*arrived
            };
            match arrived.is_group {
                true => self.deliver_group(host, copy, &arrived, out),
                false => self.enqueue(host, at, copy, arrived, out),
            }
        }
        out.consume_one(packet);
    }

    /// An ICMP error about a datagram that a socket can have sent (RFC 1122 4.1.3.3).
    fn note(&mut self, host: &mut Host, error: &super::super::IcmpError, now_ns: u64) {
        let at = self.sender(error.remote, error.local);
        let Some(socket) = self.sockets.get_mut(at as usize) else {
            return;
        };
        if let ErrorKind::TooBig { mtu } = error.kind {
            // It is fragmented from now on, so that the socket need not know.
            host.note_too_big(error.remote.ip(), mtu, now_ns);
            return;
        }
        socket.fault = Some(Fault {
            kind: error.kind,
            remote: error.remote,
            from: error.from,
        });
        self.stats.faults += 1;
        self.list(at);
    }

    /// The socket that sends from `local` to `remote`.
    fn sender(&self, remote: SocketAddr, local: SocketAddr) -> u32 {
        if let Some(at) = self.connected.lookup(&super::find::key(remote, local)) {
            return at;
        }
        // Errors come back by any interface.
        let suits = |at: &u32| {
            let bind = &self.sockets[*at as usize].bind;
            let any = super::any_of(local.ip());
            bind.address
                .is_none_or(|own| own == local.ip() || own == any)
        };
        self.on_port(local.port()).find(suits).unwrap_or(NIL)
    }
}

/// Source and destination of a datagram.
fn ends(key: &FlowKey) -> (SocketAddr, SocketAddr) {
    match key {
        FlowKey::V4(key) => (
            SocketAddr::new(key.src().into(), key.src_port()),
            SocketAddr::new(key.dst().into(), key.dst_port()),
        ),
        FlowKey::V6(key) => (
            SocketAddr::new(key.src().into(), key.src_port()),
            SocketAddr::new(key.dst().into(), key.dst_port()),
        ),
    }
}
