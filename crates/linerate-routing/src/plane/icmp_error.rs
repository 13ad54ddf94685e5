//! ICMP error: the router's messages to senders of packets that cannot be forwarded, with redirects
//! and TCP resets.
//!
//! [`IcmpErrors::reply`] makes the packet and finds its route back; the caller sends it.
//! `stack::icmp` knows which errors a packet allows, the limiter how many, `origin.rs` the source
//! address.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;

use linerate_core::packet::{Offload, Packet, PoolCache, Pools};
use linerate_core::run::{Egress, Point};
use linerate_stack::icmp::{
    Error4, Error6, Limiter, Limits, MAX_ERROR4_LEN, MAX_ERROR6_LEN, error4, error6, may_answer4,
    may_answer6, may_redirect6, redirect6,
};
use linerate_stack::tcp::{MAX_RESET_LEN, Refusal, refuse};
use linerate_wire::ethernet::{Ethernet, HEADER_LEN, MIN_FRAME_LEN};
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, MacAddr};

use super::View;
use super::acl::Answer;
use super::context::Context;
use super::counters::{Counters, Sent};
use super::hops::Action;
use super::origin::{OutputRoute, leads, link_local, route, source4, source6, vrf};
use super::punt::Reason;
use crate::model::InterfaceId;

/// Why a packet cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IcmpError {
    /// No route holds its destination.
    NoRoute,
    /// An `unreachable` route matches.
    Rejected,
    /// A `prohibit` route or an access list forbids it.
    Prohibited,
    /// The same for a TCP segment, or the port has no listener: answered with a reset.
    Refused(Refusal),
    /// The destination on the link, or the gateway, does not answer.
    NoNeighbour,
    /// The router has no listener for the protocol or port.
    NoProtocol,
    NoPort,
    /// The time to live is exceeded.
    TtlExceeded,
    /// The rest of the datagram did not come.
    ReassemblyExceeded,
    /// The fragment is invalid, so that no datagram can come of it.
    Fragment(Error6),
    /// Longer than the next link takes.
    TooBig {
        mtu: u16,
    },
    /// It asks to be routed by its source.
    SourceRoute,
    /// The byte at `pointer` of its header is wrong.
    Malformed {
        pointer: u8,
    },
    /// Its link-local source must not leave the link.
    BeyondScope,
    /// It is forwarded, and the sender should use this neighbour.
    Redirect {
        to: IpAddr,
        mac: Option<MacAddr>,
    },
}

impl IcmpError {
    fn sent(self) -> Sent {
        match self {
            Self::NoRoute
            | Self::Rejected
            | Self::Prohibited
            | Self::NoNeighbour
            | Self::NoProtocol
            | Self::NoPort
            | Self::SourceRoute
            | Self::BeyondScope => Sent::Unreachable,
            Self::TtlExceeded | Self::ReassemblyExceeded => Sent::TimeExceeded,
            Self::TooBig { .. } => Sent::TooBig,
            Self::Refused(_) => Sent::Reset,
            Self::Malformed { .. } | Self::Fragment(_) => Sent::ParameterProblem,
            Self::Redirect { .. } => Sent::Redirect,
        }
    }

    fn to4(self) -> Option<Error4> {
        Some(match self {
            // RFC 1812 5.2.7.1: code 0 where there is no route.
            Self::NoRoute => Error4::NetUnreachable,
            Self::Rejected | Self::NoNeighbour => Error4::HostUnreachable,
            Self::Prohibited => Error4::AdminProhibited,
            Self::NoProtocol => Error4::ProtocolUnreachable,
            Self::NoPort => Error4::PortUnreachable,
            Self::TtlExceeded => Error4::TtlExceeded,
            Self::ReassemblyExceeded => Error4::ReassemblyExceeded,
            Self::TooBig { mtu } => Error4::FragmentationNeeded { mtu },
            Self::SourceRoute => Error4::SourceRouteFailed,
            Self::Malformed { pointer } => Error4::ParameterProblem { pointer },
            Self::Redirect {
                to: IpAddr::V4(gateway),
                ..
            } => Error4::Redirect { gateway },
            Self::BeyondScope | Self::Fragment(_) | Self::Refused(_) | Self::Redirect { .. } => {
                return None;
            }
        })
    }

    fn to6(self) -> Option<Error6> {
        Some(match self {
            Self::NoRoute => Error6::NoRoute,
            Self::Rejected => Error6::RejectRoute,
            Self::Prohibited => Error6::AdminProhibited,
            Self::NoNeighbour => Error6::AddressUnreachable,
            Self::NoPort => Error6::PortUnreachable,
            // RFC 4443 3.4: the pointer is to the fixed header's next header field.
            Self::NoProtocol => Error6::UnknownNextHeader { pointer: 6 },
            Self::TtlExceeded => Error6::HopLimitExceeded,
            Self::ReassemblyExceeded => Error6::ReassemblyExceeded,
            Self::Fragment(error) => error,
            Self::TooBig { mtu } => Error6::PacketTooBig { mtu: mtu.into() },
            Self::Malformed { pointer } => Error6::ErroneousHeader {
                pointer: pointer.into(),
            },
            Self::BeyondScope => Error6::BeyondScope,
            Self::SourceRoute | Self::Refused(_) | Self::Redirect { .. } => return None,
        })
    }
}

/// A packet of ours, untagged, without its MAC addresses yet.
#[derive(Debug)]
pub(super) struct Reply<'a> {
    pub(super) packet: Packet,
    pub(super) output_route: OutputRoute<'a>,
}

/// Makes errors, and limits their rate.
pub(super) struct IcmpErrors {
    limiter: Limiter,
    /// A limit of its own for resets, so that neither resets nor errors use up the other's.
    resets: Limiter,
    point: Point,
}

impl IcmpErrors {
    pub(super) fn new() -> Self {
        // The seed is secret, so that an attacker cannot choose whose errors to use up.
        let seed = || RandomState::new().build_hasher().finish();
        Self {
            limiter: Limiter::new(Limits::default(), seed()),
            resets: Limiter::new(Limits::default(), seed()),
            point: Point::new("icmp_error"),
        }
    }

    pub(super) fn point(&mut self) -> &mut Point {
        &mut self.point
    }

    /// The error about `offending`, which is an IP packet and came in by the interface `id`.
    /// `None`, counted, where none may or can be sent.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn reply<'a>(
        &mut self,
        view: View<'a>,
        id: InterfaceId,
        offending: &[u8],
        error: IcmpError,
        cache: &mut PoolCache,
        pools: &Pools,
        counters: &Counters,
    ) -> Option<Reply<'a>> {
        let reply = match offending.first()? >> 4 {
            _ if let IcmpError::Refused(refusal) = error => {
                self.reset(view, id, refusal, cache, pools)
            }
            4 => self.reply4(view, id, offending, error, cache, pools),
            _ => self.reply6(view, id, offending, error, cache, pools),
        };
        match reply {
            Ok(reply) => {
                counters.sent(error.sent());
                Some(reply)
            }
            Err(why) => {
                counters.sent(why);
                None
            }
        }
    }

    fn reply4<'a>(
        &mut self,
        view: View<'a>,
        id: InterfaceId,
        offending: &[u8],
        error: IcmpError,
        cache: &mut PoolCache,
        pools: &Pools,
    ) -> Result<Reply<'a>, Sent> {
        let error = error.to4().ok_or(Sent::Withheld)?;
        let ip = Ipv4::new_checked(offending).map_err(|_| Sent::Withheld)?;
        let (to, vrf) = (ip.src(), vrf(view.settings, id));
        let (number, hop) = route(view, vrf, to.into());
        // RFC 1812 4.3.2.7: nor for a packet to a network's broadcast address, which routes know.
        let was_broadcast = || route(view, vrf, ip.dst().into()).1.action == Action::Broadcast;
        if !may_answer4(offending, error) || !leads(hop) || was_broadcast() {
            return Err(Sent::Withheld);
        }
        let source = source4(view.settings, hop, id, to).ok_or(Sent::Withheld)?;
        // The limiter comes last, since what it allows counts as sent.
        if !self.limiter.allow(to.into(), view.now_ns) {
            return Err(Sent::Limited);
        }
        // It has to fit the MTU of the next link, too.
        let most = MAX_ERROR4_LEN.min(hop.mtu.into());
        let packet = blank(EtherType::IPV4, most, cache, pools, |out| {
            error4(offending, error, source, out)
        });
        let packet = packet.ok_or(Sent::Withheld)?;
        let output_route = OutputRoute::Hop(number, hop);
        Ok(Reply {
            packet,
            output_route,
        })
    }

    fn reply6<'a>(
        &mut self,
        view: View<'a>,
        id: InterfaceId,
        offending: &[u8],
        error: IcmpError,
        cache: &mut PoolCache,
        pools: &Pools,
    ) -> Result<Reply<'a>, Sent> {
        let ip = Ipv6::new_checked(offending).map_err(|_| Sent::Withheld)?;
        let (to, settings) = (ip.src(), view.settings);
        let (output_route, out_by) = match to.is_unicast_link_local() {
            true => (OutputRoute::Link(id), None),
            false => {
                let (number, hop) = route(view, vrf(settings, id), to.into());
                (OutputRoute::Hop(number, hop), Some(hop))
            }
        };
        if out_by.is_some_and(|hop| !leads(hop)) {
            return Err(Sent::Withheld);
        }
        // RFC 4861 4.5: from the link-local address of the interface.
        let redirect = match error {
            IcmpError::Redirect {
                to: IpAddr::V6(target),
                mac,
            } => Some((target, mac)),
            _ => None,
        };
        let error = error.to6();
        let may = match (redirect, error) {
            (Some((target, _)), _) => may_redirect6(offending, target),
            (None, error) => error.is_some_and(|error| may_answer6(offending, error)),
        };
        let source = match redirect {
            Some(_) => link_local(settings, id),
            None => source6(settings, out_by, id, to),
        };
        let source = source.filter(|_| may).ok_or(Sent::Withheld)?;
        // The limiter comes last, since what it allows counts as sent.
        if !self.limiter.allow(to.into(), view.now_ns) {
            return Err(Sent::Limited);
        }
        let packet = blank(
            EtherType::IPV6,
            MAX_ERROR6_LEN,
            cache,
            pools,
            |out| match redirect {
                Some((target, mac)) => redirect6(offending, target, mac, source, out),
                None => error6(offending, error?, source, out),
            },
        );
        let packet = packet.ok_or(Sent::Withheld)?;
        Ok(Reply {
            packet,
            output_route,
        })
    }

    /// The TCP reset for a segment that came in by `id`, from the segment's destination.
    fn reset<'a>(
        &mut self,
        view: View<'a>,
        id: InterfaceId,
        refusal: Refusal,
        cache: &mut PoolCache,
        pools: &Pools,
    ) -> Result<Reply<'a>, Sent> {
        let Refusal::Reset(reset) = refusal else {
            return Err(Sent::Withheld);
        };
        let (to, vrf) = (reset.to(), vrf(view.settings, id));
        let output_route = match to {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => OutputRoute::Link(id),
            _ => {
                let (number, hop) = route(view, vrf, to);
                OutputRoute::Hop(number, hop)
            }
        };
        let is_lost = matches!(output_route, OutputRoute::Hop(_, hop) if !leads(hop));
        // RFC 9293 3.9.2.3: no reset from a broadcast address.
        if is_lost || route(view, vrf, reset.from()).1.action == Action::Broadcast {
            return Err(Sent::Withheld);
        }
        if !self.resets.allow(to, view.now_ns) {
            return Err(Sent::Limited);
        }
        let ethertype = match to {
            IpAddr::V4(_) => EtherType::IPV4,
            IpAddr::V6(_) => EtherType::IPV6,
        };
        let packet = padded(ethertype, MAX_RESET_LEN, cache, pools, |out| {
            reset.write(out)
        });
        let packet = packet.ok_or(Sent::Withheld)?;
        Ok(Reply {
            packet,
            output_route,
        })
    }
}

/// The answer to the sender of an untagged frame that an access list rejects.
pub(super) fn rejection(packet: &Packet, answer: Answer) -> IcmpError {
    match answer {
        Answer::Icmp => IcmpError::Prohibited,
        Answer::Reset => match refusal(packet) {
            Refusal::NotTcp => IcmpError::Prohibited,
            refusal => IcmpError::Refused(refusal),
        },
    }
}

/// The TCP reset for the packet of an untagged frame.
pub(super) fn refusal(packet: &Packet) -> Refusal {
    let vouched = Offload::CSUM_PARTIAL | Offload::CSUM_VALID;
    let vouched = packet.meta().offload.intersects(vouched);
    let bytes = packet.data().get(HEADER_LEN..).unwrap_or_default();
    refuse(bytes, vouched)
}

/// As [`blank`], and not shorter than frames are.
fn padded(
    ethertype: EtherType,
    most: usize,
    cache: &mut PoolCache,
    pools: &Pools,
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<Packet> {
    let least = MIN_FRAME_LEN - HEADER_LEN;
    blank(ethertype, most.max(least), cache, pools, |out| {
        // Zero, so that padding does not leak what the slot held before.
        out.fill(0);
        Some(write(out)?.max(least))
    })
}

/// A packet with room for `most` bytes behind the Ethernet header, as many of them as `write` says.
fn blank(
    ethertype: EtherType,
    most: usize,
    cache: &mut PoolCache,
    pools: &Pools,
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<Packet> {
    let pool = pools.for_frame(HEADER_LEN + most)?;
    let mut packet = cache.get(pool)?;
    packet.set_len(HEADER_LEN + most);
    let Some(len) = write(&mut packet.data_mut()[HEADER_LEN..]) else {
        cache.free_one(packet);
        return None;
    };
    packet.truncate(HEADER_LEN + len);
    if let Ok(mut frame) = Ethernet::new_checked(packet.data_mut()) {
        frame.set_ethertype(ethertype);
    }
    packet.meta_mut().l3_offset = HEADER_LEN as u8;
    Some(packet)
}

impl Context<'_> {
    /// Answers the sender of `offending`, an untagged frame that came in by `id`.
    #[cold]
    pub(super) fn icmp_error(
        &mut self,
        id: InterfaceId,
        offending: &Packet,
        error: IcmpError,
        out: &mut Egress,
    ) {
        let counters = &self.installed.counters;
        let frame = offending.data();
        // RFC 1812 4.3.2.7, RFC 4443 2.4 (e.4): no error for a link-layer broadcast.
        if frame.first().is_some_and(|byte| byte & 1 != 0) {
            return counters.sent(Sent::Withheld);
        }
        let packet = frame.get(HEADER_LEN..).unwrap_or_default();
        let pools = &self.exceptions.pools;
        let errors = &mut self.exceptions.icmp_errors;
        let cache = &mut out.cache;
        let reply = errors.reply(self.view, id, packet, error, cache, pools, counters);
        if let Some(reply) = reply {
            out.made(1);
            errors.point.see_one(offending.port(), &reply.packet);
            self.send_own(reply, out);
        }
    }

    /// Sends a packet of ours to `to`, by the routes of the interface that the burst came by.
    /// `write` writes it from its IP header on, into at most so many bytes, and says how many it
    /// has.
    #[cold]
    pub fn send(
        &mut self,
        to: IpAddr,
        most: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
        out: &mut Egress,
    ) {
        let ethertype = match to {
            IpAddr::V4(_) => EtherType::IPV4,
            IpAddr::V6(_) => EtherType::IPV6,
        };
        let (cache, pools) = (&mut out.cache, &self.exceptions.pools);
        let Some(packet) = padded(ethertype, most, cache, pools, write) else {
            return;
        };
        let id = self.packets.interface;
        let (number, hop) = route(self.view, vrf(self.view.settings, id), to);
        let output_route = OutputRoute::Hop(number, hop);
        out.made(1);
        let reply = Reply {
            packet,
            output_route,
        };
        self.send_own(reply, out);
    }

    /// Sends a packet of ours.
    fn send_own(&mut self, reply: Reply<'_>, out: &mut Egress) {
        // Not a packet of the burst, so it is not traced.
        const NONE: usize = usize::MAX;
        let Reply {
            mut packet,
            output_route,
        } = reply;
        let (number, hop) = match output_route {
            OutputRoute::Link(id) => return self.punt(NONE, Reason::Glean, id, 0, packet, out),
            OutputRoute::Hop(number, hop) => (number, hop),
        };
        match (hop.action, hop.interface.get()) {
            (Action::Forward, _) => {
                if let Ok(mut frame) = Ethernet::new_checked(packet.data_mut()) {
                    frame.set_dst(hop.macs.dst());
                    frame.set_src(hop.macs.src());
                }
                let end = packet.len();
                self.leave(hop, end, packet, out);
            }
            (Action::Resolve, Some(id)) => {
                self.punt(NONE, Reason::Resolve, id, number, packet, out);
            }
            (Action::Glean, Some(id)) => {
                self.punt(NONE, Reason::Glean, id, number, packet, out);
            }
            // The route existed when the message was made; it is counted as sent.
            _ => out.drop_one(self.reasons.no_route, packet),
        }
    }
}
