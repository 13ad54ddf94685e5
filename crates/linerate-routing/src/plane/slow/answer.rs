//! Packets for the router itself: handed to the kernel, or answered here where there is no host
//! interface.

use std::net::IpAddr;

use linerate_core::packet::Packet;
use linerate_core::run::Egress;
use linerate_stack::icmp::{echo4, echo6};
use linerate_wire::ethernet::{Ethernet, HEADER_LEN};
use linerate_wire::{EtherType, MacAddr, protocol, set_macs};

use super::Slow;
use crate::model::InterfaceId;
use crate::plane::counters::Sent;
use crate::plane::headers::{destination4, destination6};
use crate::plane::hops::{Action, Hop};
use crate::plane::icmp_error::{IcmpError, Reply, refusal};
use crate::plane::origin::{OutputRoute, route, vrf};
use crate::plane::punt::{Punt, Reason};
use crate::plane::view;

impl Slow {
    /// Hands a packet for the router to the kernel, or serves it where there is none.
    pub(super) fn for_host_interface(
        &mut self,
        id: InterfaceId,
        packet: Packet,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let interface = self.settings.interfaces.get(usize::from(id.0));
        match interface.and_then(|interface| interface.host_interface) {
            Some(host_interface) => {
                self.points.slow.see_one(host_interface, &packet);
                let Punt { ticket, .. } = packet.user();
                self.tracer.follow(ticket, || "to the kernel".into());
                out.send_one(host_interface, packet);
            }
            // A reload has just removed the host interface; the packet is dropped.
            None if packet.user::<Punt>().reason == Reason::Host => {
                self.refuse(self.reasons.no_interface, packet, out);
            }
            None => self.serve(id, packet, now_ns, out),
        }
    }

    /// Answers for the router: ping, and errors for ports and protocols without a listener.
    fn serve(&mut self, id: InterfaceId, mut packet: Packet, now_ns: u64, out: &mut Egress) {
        let Ok(frame) = Ethernet::new_checked(packet.data()) else {
            return self.refuse(self.reasons.not_served, packet, out);
        };
        let (is_v4, is_group) = (
            frame.ethertype() == EtherType::IPV4,
            frame.dst().is_multicast(),
        );
        let is_ip = is_v4 || frame.ethertype() == EtherType::IPV6;
        if !is_ip || is_group {
            return self.refuse(self.reasons.not_served, packet, out);
        }
        let bytes = &mut packet.data_mut()[HEADER_LEN..];
        if if is_v4 { echo4(bytes) } else { echo6(bytes) } {
            let to = match is_v4 {
                true => destination4(&packet).map(IpAddr::V4),
                false => destination6(&packet).map(IpAddr::V6),
            };
            let view = view(&self.settings, &mut self.tables, now_ns);
            let vrf = vrf(view.settings, id);
            let output_route = match to {
                Some(IpAddr::V6(v6)) if v6.is_unicast_link_local() => OutputRoute::Link(id),
                Some(to) => {
                    let (number, hop) = route(view, vrf, to);
                    OutputRoute::Hop(number, hop)
                }
                None => return self.refuse(self.reasons.not_served, packet, out),
            };
            self.counters.sent(Sent::EchoReply);
            let Punt { ticket, .. } = packet.user();
            self.tracer.follow(ticket, || "answered".into());
            packet.set_user(Punt {
                came_by: id,
                ..Punt::default()
            });
            let own = Own::of(output_route);
            return self.send_own(own, packet, now_ns, out);
        }
        let at = HEADER_LEN + if is_v4 { 9 } else { 6 };
        let error = match packet.data().get(at) {
            Some(&protocol::UDP) => Some(IcmpError::NoPort),
            // RFC 9293 3.5.2.
            Some(&protocol::TCP) => Some(IcmpError::Refused(refusal(&packet))),
            // RFC 1812 4.3.3.1: unknown ICMP messages are ignored.
            Some(&(protocol::ICMP | protocol::ICMPV6 | protocol::NO_NEXT)) => None,
            // Behind extension headers the fixed header does not name the protocol.
            Some(&(protocol::HOP_BY_HOP | protocol::ROUTING | protocol::FRAGMENT)) if !is_v4 => {
                None
            }
            _ => Some(IcmpError::NoProtocol),
        };
        if let Some(error) = error {
            self.icmp_error(id, &packet, error, now_ns, out);
        }
        self.refuse(self.reasons.not_served, packet, out);
    }

    /// Sends an ICMP error to the sender of a packet.
    pub(super) fn icmp_error(
        &mut self,
        id: InterfaceId,
        offending: &Packet,
        error: IcmpError,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let view = view(&self.settings, &mut self.tables, now_ns);
        let packet = offending.data().get(HEADER_LEN..).unwrap_or_default();
        let (cache, pools, counters) = (&mut out.cache, &self.pools, &self.counters);
        let reply = self
            .errors
            .reply(view, id, packet, error, cache, pools, counters);
        if let Some(Reply {
            mut packet,
            output_route,
        }) = reply
        {
            out.made(1);
            let own = Own::of(output_route);
            let point = &mut self.points.icmp_error;
            point.see_one(offending.port(), &packet);
            // Its slot may have held a traced packet before.
            packet.set_user(Punt {
                came_by: id,
                ..Punt::default()
            });
            self.send_own(own, packet, now_ns, out);
        }
    }

    /// Sends a packet of ours.
    fn send_own(&mut self, own: Own, mut packet: Packet, now_ns: u64, out: &mut Egress) {
        match own {
            Own::To { id, dst, src } => {
                let _ = set_macs(packet.data_mut(), dst, src);
                self.send(id, packet, out);
            }
            Own::Resolve { id, number } => self.resolve(id, number, packet, now_ns, out),
            Own::Glean { id } => self.glean(id, packet, now_ns, out),
            Own::Nowhere => out.drop_one(self.reasons.no_route, packet),
        }
    }
}

/// The route of a packet of ours: an [`OutputRoute`] without references.
#[derive(Clone, Copy)]
enum Own {
    To {
        id: InterfaceId,
        dst: MacAddr,
        src: MacAddr,
    },
    Resolve {
        id: InterfaceId,
        number: u32,
    },
    Glean {
        id: InterfaceId,
    },
    Nowhere,
}

impl Own {
    fn of(output_route: OutputRoute<'_>) -> Self {
        let (number, hop): (u32, &Hop) = match output_route {
            OutputRoute::Link(id) => return Self::Glean { id },
            OutputRoute::Hop(number, hop) => (number, hop),
        };
        let (dst, src) = (hop.macs.dst(), hop.macs.src());
        match (hop.action, hop.interface.get()) {
            (Action::Forward, Some(id)) => Self::To { id, dst, src },
            (Action::Resolve, Some(id)) => Self::Resolve { id, number },
            (Action::Glean, Some(id)) => Self::Glean { id },
            _ => Self::Nowhere,
        }
    }
}
