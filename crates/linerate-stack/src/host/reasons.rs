//! Why packets are dropped: names for operators, and their counters in the [`Egress`].

use linerate_core::run::{DropId, Egress};
use linerate_wire::{Layer, Malformed};

use crate::neighbour::DropReason;
use crate::reassembly::Refusal;

/// A counter for each reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reasons {
    /// The port has no interface.
    pub(crate) no_interface: DropId,
    /// A VLAN tag, and no interface for it.
    pub(crate) unknown_vlan: DropId,
    /// A unicast frame to another station.
    pub(crate) not_for_us: DropId,
    /// Neither IP nor ARP.
    pub(crate) not_ip: DropId,
    /// RFC 1122 3.3.6: a link-layer broadcast whose IP destination is a single host.
    pub(crate) l2_broadcast: DropId,
    /// The frame ends inside its headers.
    pub(crate) truncated: DropId,
    /// RFC 1122 3.2.1.1.
    pub(crate) bad_version: DropId,
    /// RFC 791 3.1.
    pub(crate) bad_header_length: DropId,
    /// RFC 791 3.1, RFC 8200 3.
    pub(crate) bad_length: DropId,
    /// RFC 1122 3.2.1.2: the IPv4 header's.
    pub(crate) bad_checksum: DropId,
    /// TCP's, UDP's, ICMP's (RFC 1122 4.1.3.4, 4.2.2.7; RFC 792; RFC 4443 2.3).
    pub(crate) bad_l4_checksum: DropId,
    /// RFC 1122 3.2.1.3, RFC 4291 2.5.3, 2.7: no single host has this source.
    pub(crate) martian_source: DropId,
    /// From outside, with an address of ours or a broadcast address as its source.
    pub(crate) own_source: DropId,
    /// RFC 1122 3.2.1.3 (g), RFC 4291 2.5.2, 2.5.3.
    pub(crate) martian_destination: DropId,
    /// RFC 1122 3.2.1.3: to another host. A host does not forward (3.3.5).
    pub(crate) not_ours: DropId,
    /// To a group that nobody here has joined.
    pub(crate) multicast: DropId,
    /// RFC 9293 3.9.2.3 (MUST-57): TCP to a group or broadcast address.
    pub(crate) tcp_to_group: DropId,
    /// IPv4 source routes (RFC 7126 4.3, 4.4).
    pub(crate) source_route: DropId,
    /// RFC 1122 3.2.2.5: malformed IPv4 options.
    pub(crate) bad_options: DropId,
    /// RFC 8200 4: IPv6 extension headers that a host does not take.
    pub(crate) bad_extension: DropId,
    /// No protocol of that number here.
    pub(crate) unknown_protocol: DropId,
    /// An ICMP message that a host does not act on (RFC 1122 3.2.2, RFC 6633, RFC 6918).
    pub(crate) icmp_ignored: DropId,
    /// An ICMP error that quotes no packet of ours.
    pub(crate) icmp_not_ours: DropId,
    /// More ICMP errors at once than are reported.
    pub(crate) icmp_too_many: DropId,
    /// Neighbor Discovery or ARP that does not count.
    pub(crate) neighbour_ignored: DropId,
    /// No route to the destination, or no source.
    pub(crate) no_route: DropId,
    /// Longer than the path takes, and not to be fragmented.
    pub(crate) too_big: DropId,
    /// No free slot.
    pub(crate) no_buffer: DropId,
    /// Too many packets to our own addresses at once.
    pub(crate) loopback_full: DropId,
    /// Nothing above IP has taken it, or nobody listens at its port.
    pub(crate) no_listener: DropId,
    /// The socket's queue, or that of all sockets, is full.
    pub(crate) socket_full: DropId,
    /// Fragments that do not become part of a datagram, by [`Refusal`].
    pub(crate) fragment: [DropId; Refusal::ALL.len()],
    /// Packets that waited for a neighbour, by [`DropReason`].
    pub(crate) neighbour: [DropId; DropReason::ALL.len()],
}

impl Reasons {
    /// Set-up only.
    pub(crate) fn new(egress: &mut Egress) -> Self {
        let mut reason = |name| egress.reason(name);
        Self {
            no_interface: reason("no_interface"),
            unknown_vlan: reason("unknown_vlan"),
            not_for_us: reason("not_for_us"),
            not_ip: reason("not_ip"),
            l2_broadcast: reason("l2_broadcast"),
            truncated: reason("truncated"),
            bad_version: reason("bad_version"),
            bad_header_length: reason("bad_header_length"),
            bad_length: reason("bad_length"),
            bad_checksum: reason("bad_checksum"),
            bad_l4_checksum: reason("bad_l4_checksum"),
            martian_source: reason("martian_source"),
            own_source: reason("own_source"),
            martian_destination: reason("martian_destination"),
            not_ours: reason("not_ours"),
            multicast: reason("multicast"),
            tcp_to_group: reason("tcp_to_group"),
            source_route: reason("source_route"),
            bad_options: reason("bad_options"),
            bad_extension: reason("bad_extension"),
            unknown_protocol: reason("unknown_protocol"),
            icmp_ignored: reason("icmp_ignored"),
            icmp_not_ours: reason("icmp_not_ours"),
            icmp_too_many: reason("icmp_too_many"),
            neighbour_ignored: reason("neighbour_ignored"),
            no_route: reason("no_route"),
            too_big: reason("too_big"),
            no_buffer: reason("no_buffer"),
            loopback_full: reason("loopback_full"),
            no_listener: reason("no_listener"),
            socket_full: reason("socket_full"),
            fragment: Refusal::ALL.map(|refusal| reason(refusal.name())),
            neighbour: DropReason::ALL.map(|why| reason(why.name())),
        }
    }

    /// The reason for a malformed frame.
    pub(crate) fn malformed(&self, malformed: Malformed) -> DropId {
        match malformed {
            Malformed::Truncated(Layer::Ethernet | Layer::Vlan) => self.truncated,
            Malformed::TooDeep(Layer::Vlan) => self.unknown_vlan,
            Malformed::TooDeep(_) => self.bad_extension,
            Malformed::Version(_) => self.bad_version,
            Malformed::HeaderLength(_) => self.bad_header_length,
            Malformed::Checksum(_) => self.bad_checksum,
            _ => self.bad_length,
        }
    }

    /// The reason for a packet that no neighbour got.
    pub(crate) fn neighbour(&self, reason: DropReason) -> DropId {
        let at = DropReason::ALL.iter().position(|known| *known == reason);
        self.neighbour[at.unwrap_or(0)]
    }
}
