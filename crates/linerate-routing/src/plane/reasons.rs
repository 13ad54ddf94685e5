//! Why packets are dropped: the names that operators see, and their counters in the [`Egress`].

use linerate_core::run::{DropId, Egress};
use linerate_stack::reassembly::Refusal;
use linerate_wire::{Layer, Malformed};

/// A counter for each reason. Those of access lists are made with the lists.
#[derive(Clone, Copy)]
pub(super) struct Reasons {
    /// The port has no interface for frames without a tag.
    pub(super) no_interface: DropId,
    /// A tag that no interface of the port has, or more than one.
    pub(super) unknown_vlan: DropId,
    /// A unicast frame to another station: the link delivers more than our frames.
    pub(super) not_for_us: DropId,
    /// RFC 1812 5.3.4: a link-layer broadcast whose IP destination is unicast.
    pub(super) l2_broadcast: DropId,
    /// The frame ends inside its headers.
    pub(super) truncated: DropId,
    /// RFC 1812 5.2.2 (3).
    pub(super) bad_version: DropId,
    /// RFC 1812 5.2.2 (4).
    pub(super) bad_header_length: DropId,
    /// RFC 1812 5.2.2 (1), (5); RFC 8200 3.
    pub(super) bad_length: DropId,
    /// RFC 1812 5.2.2 (2).
    pub(super) bad_checksum: DropId,
    /// RFC 1812 5.3.7, RFC 4291 2.
    pub(super) martian_source: DropId,
    /// RFC 1812 5.3.8: from outside, with one of our addresses as the source.
    pub(super) own_source: DropId,
    pub(super) martian_destination: DropId,
    /// RFC 3927 7, RFC 4291 2.5.6: link-local addresses are not forwarded.
    pub(super) link_local: DropId,
    /// RFC 1812 5.2.4.1: source routes are not followed.
    pub(super) source_route: DropId,
    /// RFC 5095: nor are routing headers of type 0.
    pub(super) routing_header: DropId,
    /// RFC 1812 5.2.5: malformed options.
    pub(super) bad_options: DropId,
    /// RFC 1812 5.3.1, RFC 8200 3.
    pub(super) ttl_exceeded: DropId,
    pub(super) no_route: DropId,
    /// For the kernel to forward, but the input interface has no host interface to hand it over by.
    pub(super) no_host_interface: DropId,
    pub(super) blackhole: DropId,
    pub(super) unreachable: DropId,
    pub(super) prohibited: DropId,
    /// To a multicast group beyond the link: multicast is not routed.
    pub(super) multicast: DropId,
    /// RFC 1812 5.3.5.2, RFC 2644.
    pub(super) directed_broadcast: DropId,
    /// RFC 3704.
    pub(super) urpf: DropId,
    /// Beyond the interface's policer.
    pub(super) policed: DropId,
    /// An access list cannot judge it, since its TCP, UDP or ICMP header is not in it (RFC 1858,
    /// 3128).
    pub(super) tiny_fragment: DropId,
    /// Longer than the next link takes, and not to be cut.
    pub(super) too_big: DropId,
    /// No free slot for a fragment.
    pub(super) no_buffer: DropId,
    /// Fragments that do not become part of a datagram, by [`Refusal`].
    pub(super) fragment: [DropId; Refusal::ALL.len()],
    /// More punts of a kind in a second than their rate limit.
    pub(super) punt_limited: DropId,
}

impl Reasons {
    /// Set-up only.
    pub(super) fn new(egress: &mut Egress) -> Self {
        let mut reason = |name| egress.reason(name);
        Self {
            no_interface: reason("no_interface"),
            unknown_vlan: reason("unknown_vlan"),
            not_for_us: reason("not_for_us"),
            l2_broadcast: reason("l2_broadcast"),
            truncated: reason("truncated"),
            bad_version: reason("bad_version"),
            bad_header_length: reason("bad_header_length"),
            bad_length: reason("bad_length"),
            bad_checksum: reason("bad_checksum"),
            martian_source: reason("martian_source"),
            own_source: reason("own_source"),
            martian_destination: reason("martian_destination"),
            link_local: reason("link_local"),
            source_route: reason("source_route"),
            routing_header: reason("routing_header"),
            bad_options: reason("bad_options"),
            ttl_exceeded: reason("ttl_exceeded"),
            no_route: reason("no_route"),
            no_host_interface: reason("no_host_interface"),
            blackhole: reason("blackhole"),
            unreachable: reason("unreachable"),
            prohibited: reason("prohibited"),
            multicast: reason("multicast"),
            directed_broadcast: reason("directed_broadcast"),
            urpf: reason("urpf"),
            policed: reason("policed"),
            tiny_fragment: reason("tiny_fragment"),
            too_big: reason("too_big"),
            no_buffer: reason("no_buffer"),
            fragment: Refusal::ALL.map(|refusal| reason(refusal.name())),
            punt_limited: reason("punt_limited"),
        }
    }

    /// The reason for a malformed frame.
    pub(super) fn malformed(&self, malformed: Malformed) -> DropId {
        match malformed {
            Malformed::Truncated(Layer::Ethernet | Layer::Vlan) => self.truncated,
            Malformed::TooDeep(_) => self.unknown_vlan,
            // RFC 1812 5.2.2 (1): shorter than the shortest header.
            Malformed::Truncated(_) | Malformed::TotalLength(_) => self.bad_length,
            Malformed::Version(_) => self.bad_version,
            Malformed::HeaderLength(_) => self.bad_header_length,
            Malformed::Checksum(_) => self.bad_checksum,
            Malformed::NotSegmentable => self.bad_length,
        }
    }
}
