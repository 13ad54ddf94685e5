//! What [`Host::receive`](super::Host::receive) leaves for the protocols above IP.

use std::net::{IpAddr, SocketAddr};

use linerate_core::packet::{Burst, Packet};
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::{FlowKey, FlowKey4, FlowKey6};

use super::config::InterfaceId;

/// ICMP errors that one call of [`Host::receive`](super::Host::receive) reports at most.
pub const MAX_ERRORS: usize = Burst::CAPACITY;

/// Facts of a packet for the protocols above IP, whose headers and addresses were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Length in bytes of what begins at `l4`: header and payload, without padding.
    pub l4_len: u32,
    /// Start of the layer-4 header, in bytes from the start of the data.
    pub l4: u16,
    /// By which interface it came.
    pub interface: InterfaceId,
    /// Protocol above IP, behind extension headers.
    pub protocol: u8,
    /// Type of service or traffic class: DSCP and, in its lowest two bits, ECN (RFC 3168 5).
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Start of the IP header, in bytes from the start of the data.
    pub l3: u8,
    /// Whether it is IPv6.
    pub is_v6: bool,
    /// Whether it is to a group or broadcast address.
    pub is_group: bool,
    /// Whether its checksum was found right, rather than left unfinished by a sender on this
    /// machine, or absent (UDP over IPv4).
    pub is_verified: bool,
}

const _: () = assert!(size_of::<Arrived>() == 16);

impl Arrived {
    pub(super) const NONE: Self = Self {
        l4_len: 0,
        l4: 0,
        interface: InterfaceId::LOOPBACK,
        protocol: 0,
        tos: 0,
        ttl: 0,
        l3: 0,
        is_v6: false,
        is_group: false,
        is_verified: false,
    };

    /// Layer-4 header and payload of the packet that these facts are of.
    #[inline]
    pub fn l4<'a>(&self, packet: &'a Packet) -> &'a [u8] {
        let l4 = usize::from(self.l4);
        let bytes = packet.data().get(l4..l4 + self.l4_len as usize);
        bytes.unwrap_or_default()
    }

    /// Source and destination address.
    #[inline]
    pub fn addresses(&self, packet: &Packet) -> (IpAddr, IpAddr) {
        let ip = packet.data().get(self.l3.into()..).unwrap_or_default();
        if self.is_v6 {
            let at = |at: usize| ip.get(at..).and_then(|ip| ip.first_chunk::<16>());
            let address = |at_: usize| IpAddr::from(at(at_).copied().unwrap_or_default());
            (address(8), address(24))
        } else {
            let at = |at: usize| ip.get(at..).and_then(|ip| ip.first_chunk::<4>());
            let address = |at_: usize| IpAddr::from(at(at_).copied().unwrap_or_default());
            (address(12), address(16))
        }
    }
}

/// What an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A router takes no more than so many bytes and may not fragment (RFC 1191 4, RFC 4443 3.2).
    /// From a router that does not say, the next lower usual MTU (RFC 1191 7).
    TooBig {
        /// Longest IP packet in bytes.
        mtu: u16,
    },
    /// No route (ICMP 3.0, 3.6, 3.11; ICMPv6 1.0, 1.6).
    NetUnreachable,
    /// The host does not answer (ICMP 3.1, 3.7, 3.8, 3.12; ICMPv6 1.2, 1.3), also from this host
    /// itself, of a neighbour.
    HostUnreachable,
    /// The host does not speak that protocol (ICMP 3.2, ICMPv6 4.1).
    ProtocolUnreachable,
    /// Nobody listens there (ICMP 3.3, ICMPv6 1.4).
    PortUnreachable,
    /// A source route cannot be followed (ICMP 3.5).
    SourceRouteFailed,
    /// A filter denies it (ICMP 3.9, 3.10, 3.13 and on; ICMPv6 1.1, 1.5).
    Prohibited,
    /// The TTL or hop limit ran out (ICMP 11.0, ICMPv6 3.0).
    TtlExceeded,
    /// Fragments did not come together in time (ICMP 11.1, ICMPv6 3.1).
    ReassemblyExceeded,
    /// A header field is wrong to somebody (ICMP 12, ICMPv6 4 but 4.1).
    ParameterProblem {
        /// Its offset in bytes from the start of the quoted packet.
        pointer: u32,
    },
}

impl ErrorKind {
    /// Whether the destination itself refuses, so that a connection has no hope: RFC 1122 4.2.3.9,
    /// RFC 5461 2. All others may pass.
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::ProtocolUnreachable | Self::PortUnreachable)
    }
}

/// An ICMP error about a packet that an address of ours sent. Nothing says that it is genuine:
/// whoever reacts checks that the quoted packet can be one of its own (RFC 5927 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Who says so; an address of ours if a neighbour did not answer.
    pub from: IpAddr,
    /// Source of the quoted packet: an address of ours, with the port. ICMP echo requests have
    /// their identifier for the port.
    pub local: SocketAddr,
    /// Destination of the quoted packet, with its port; 0 with ICMP.
    pub remote: SocketAddr,
    /// Protocol of the quoted packet.
    pub protocol: u8,
    /// Sequence number of the quoted TCP segment, or of the echo request; 0 with UDP.
    pub seq: u32,
    /// By which interface the error came.
    pub interface: InterfaceId,
}

/// Facts of the packets in a burst, by position, and ICMP errors. The caller keeps it and passes
/// it to each call of [`Host::receive`](super::Host::receive). About 10 KiB.
pub struct Inbound {
    pub(super) parsed: Parsed,
    pub(super) len: usize,
    facts: [Arrived; Burst::CAPACITY],
    keys4: [FlowKey4; Burst::CAPACITY],
    keys6: [FlowKey6; Burst::CAPACITY],
    /// TCP segments.
    tcp: Mask,
    /// UDP datagrams.
    udp: Mask,
    /// ICMP and ICMPv6: replies to our echo requests.
    echo: Mask,
    /// IPv6 packets.
    v6: Mask,
    errors: Vec<IcmpError>,
}

impl Default for Inbound {
    fn default() -> Self {
        Self::new()
    }
}

impl Inbound {
    /// Nothing arrived.
    pub fn new() -> Self {
        Self {
            parsed: Parsed::new(),
            len: 0,
            facts: [Arrived::NONE; Burst::CAPACITY],
            keys4: [FlowKey4([0; 16]); Burst::CAPACITY],
            keys6: [FlowKey6([0; 40]); Burst::CAPACITY],
            tcp: 0,
            udp: 0,
            echo: 0,
            v6: 0,
            errors: Vec::with_capacity(MAX_ERRORS),
        }
    }

    /// How many packets there are: those of the burst.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are neither packets nor errors.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.errors.is_empty()
    }

    /// Facts of the packet at `index` in the burst.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn arrived(&self, index: usize) -> &Arrived {
        &self.facts[..self.len][index]
    }

    /// Facts of all packets.
    #[inline]
    pub fn all(&self) -> &[Arrived] {
        &self.facts[..self.len]
    }

    /// Flow keys of the IPv4 packets by position, in zone 0; of others whatever was there before.
    /// As received: the source is the peer.
    #[inline]
    pub fn keys4(&self) -> &[FlowKey4] {
        &self.keys4[..self.len]
    }

    /// The same of IPv6.
    #[inline]
    pub fn keys6(&self) -> &[FlowKey6] {
        &self.keys6[..self.len]
    }

    /// Flow key of the packet at `index`.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn key(&self, index: usize) -> FlowKey {
        match self.arrived(index).is_v6 {
            true => FlowKey::V6(self.keys6[index]),
            false => FlowKey::V4(self.keys4[index]),
        }
    }

    /// Positions of TCP segments.
    #[inline]
    pub fn tcp(&self) -> Mask {
        self.tcp
    }

    /// Positions of UDP datagrams.
    #[inline]
    pub fn udp(&self) -> Mask {
        self.udp
    }

    /// Positions of echo replies.
    #[inline]
    pub fn echo(&self) -> Mask {
        self.echo
    }

    /// Positions of IPv6 packets.
    #[inline]
    pub fn v6(&self) -> Mask {
        self.v6
    }

    /// ICMP errors about packets of ours, in the order that they came in.
    #[inline]
    pub fn errors(&self) -> &[IcmpError] {
        &self.errors
    }

    /// Takes the packets at the positions of `mask` out of the burst that these facts are of, in
    /// order, to the end of `to`, which must have room for them. The facts of the others move to
    /// their new positions.
    pub fn take(&mut self, mask: Mask, burst: &mut Burst, to: &mut Burst) {
        let mask = mask & burst.mask();
        if mask == 0 {
            return;
        }
        assert!(
            to.room() >= mask.count_ones() as usize,
            "room for what is taken"
        );
        let stays = burst.mask() & !mask;
        burst.parts().take(mask, to);
        self.keep(stays);
    }

    /// Moves the facts of the packets at these positions to the front, and forgets all others: the
    /// packets themselves were taken out of the burst.
    pub(crate) fn keep(&mut self, stays: Mask) {
        let (tcp, udp, echo, v6) = (self.tcp, self.udp, self.echo, self.v6);
        (self.tcp, self.udp, self.echo, self.v6, self.len) = (0, 0, 0, 0, 0);
        for from in ones(stays) {
            let at = self.len;
            self.facts[at] = self.facts[from];
            match v6 >> from & 1 {
                0 => self.keys4[at] = self.keys4[from],
                _ => self.keys6[at] = self.keys6[from],
            }
            for (mask, was) in [
                (&mut self.tcp, tcp),
                (&mut self.udp, udp),
                (&mut self.echo, echo),
                (&mut self.v6, v6),
            ] {
                *mask |= (was >> from & 1) << at;
            }
            self.len += 1;
        }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        (self.tcp, self.udp, self.echo, self.v6) = (0, 0, 0, 0);
        self.errors.clear();
    }

    /// Room for further errors.
    pub(super) fn report(&mut self, error: IcmpError) -> bool {
        let has_room = self.errors.len() < MAX_ERRORS;
        if has_room {
            self.errors.push(error);
        }
        has_room
    }

    /// Takes note of one more packet, a TCP segment over IPv4.
    #[inline(always)]
    pub(super) fn push_plain(&mut self, key: FlowKey4, arrived: Arrived) {
        let at = self.len;
        if let (Some(fact), Some(known)) = (self.facts.get_mut(at), self.keys4.get_mut(at)) {
            (*fact, *known) = (arrived, key);
            self.tcp |= 1 << at;
            self.len += 1;
        }
    }

    /// Takes note of one more packet, which is at `index` in what was parsed last.
    #[inline(always)]
    pub(super) fn push(&mut self, index: usize, arrived: Arrived) {
        use linerate_wire::protocol::{TCP, UDP};
        let Some(fact) = self.facts.get_mut(self.len) else {
            return;
        };
        *fact = arrived;
        match arrived.is_v6 {
            true => self.keys6[self.len] = self.parsed.keys6[index],
            false => self.keys4[self.len] = self.parsed.keys4[index],
        }
        let bit: Mask = 1 << self.len;
        match arrived.protocol {
            TCP => self.tcp |= bit,
            UDP => self.udp |= bit,
            _ => self.echo |= bit,
        }
        self.v6 |= Mask::from(arrived.is_v6) << self.len;
        self.len += 1;
    }
}

/// The positions of a mask, in order.
#[inline(always)]
pub(crate) fn ones(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (index < Burst::CAPACITY).then_some(index)
    })
}
