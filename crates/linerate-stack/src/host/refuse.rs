//! ICMP errors that this host sends (RFC 1122 3.2.2, RFC 4443 2.4).

use std::net::IpAddr;

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_wire::ethernet::HEADER_LEN as L2;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::protocol;

use super::config::InterfaceId;
use super::inbound::{Arrived, ErrorKind, Inbound};
use super::{Host, address};
use crate::icmp::{
    Error4, Error6, MAX_ERROR4_LEN, MAX_ERROR6_LEN, error4, error6, may_answer4, may_answer6,
};

/// An error of either family.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    V4(Error4),
    V6(Error6),
}

impl Refused {
    /// What a socket of this host is told, where it sent the packet itself.
    fn kind(self) -> Option<ErrorKind> {
        match self {
            Self::V4(Error4::PortUnreachable) | Self::V6(Error6::PortUnreachable) => {
                Some(ErrorKind::PortUnreachable)
            }
            Self::V4(Error4::ProtocolUnreachable) | Self::V6(Error6::UnknownNextHeader { .. }) => {
                Some(ErrorKind::ProtocolUnreachable)
            }
            _ => None,
        }
    }
}

impl Host {
    /// Sends an error to the sender of a received packet, whose IP header is at byte `l3`, where
    /// the RFCs and the rate allow it.
    pub(super) fn refuse(
        &mut self,
        packet: &Packet,
        l3: usize,
        error: Refused,
        now_ns: u64,
        out: &mut Egress,
    ) {
        if packet.port() == InterfaceId::LOOPBACK.number() {
            if let Some(kind) = error.kind() {
                self.report_locally(packet, kind);
            }
            return;
        }
        let reply = self.error_for(packet, l3, error, now_ns, out);
        self.stats.errors_sent += u64::from(reply == Some(true));
    }

    fn error_for(
        &mut self,
        packet: &Packet,
        l3: usize,
        error: Refused,
        now_ns: u64,
        out: &mut Egress,
    ) -> Option<bool> {
        let bytes = packet.data().get(l3..)?;
        let is_group = packet.data().first()? & 1 != 0;
        let (to, at, may, most): (IpAddr, IpAddr, _, _) = match error {
            Refused::V4(error) => {
                let ip = Ipv4::new_checked(bytes).ok()?;
                // RFC 1122 3.2.2: none to a broadcast, of the link or of IP.
                let is_broadcast = is_group || self.is_broadcast(ip.dst().into());
                let may = !is_broadcast && may_answer4(bytes, error);
                (ip.src().into(), ip.dst().into(), may, MAX_ERROR4_LEN)
            }
            Refused::V6(error) => {
                let ip = Ipv6::new_checked(bytes).ok()?;
                // Groups are RFC 4443 2.4(e.3)'s, which is asked here.
                let may = may_answer6(bytes, error);
                (ip.src().into(), ip.dst().into(), may, MAX_ERROR6_LEN)
            }
        };
        if !may || !self.limiter.allow(to, now_ns) {
            return None;
        }
        // RFC 1122 3.2.2, RFC 4443 2.2 (a): from the address that the packet was sent to.
        let src = self.is_own(at).then_some(at);
        let on = address::is_link_scoped(to).then(|| self.interface_of(packet.port()));
        let (path, src) = self.path_on(on.flatten(), src, to).ok()?;
        let mut reply = out.cache.get_for(L2 + most)?;
        let is_long = reply.set_len(L2 + most);
        let written = match (error, src, &mut reply.data_mut().get_mut(L2..)) {
            (Refused::V4(error), IpAddr::V4(src), Some(room)) if is_long => {
                error4(bytes, error, src, room)
            }
            (Refused::V6(error), IpAddr::V6(src), Some(room)) if is_long => {
                error6(bytes, error, src, room)
            }
            _ => None,
        };
        let Some(len) = written else {
            out.cache.free_one(reply);
            return None;
        };
        reply.truncate(L2 + len);
        out.made(1);
        Some(self.send_frame(path, reply, to, now_ns, out).is_ok())
    }

    /// Tells the sender of a UDP datagram that nobody listens there (RFC 1122 4.1.3.1: port
    /// unreachable), within the rate of errors.
    pub fn refuse_port(
        &mut self,
        packet: &Packet,
        arrived: &Arrived,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let error = match arrived.is_v6 {
            true => Refused::V6(Error6::PortUnreachable),
            false => Refused::V4(Error4::PortUnreachable),
        };
        if !arrived.is_group {
            self.refuse(packet, arrived.l3.into(), error, now_ns, out);
        }
    }

    /// Drops what no user has taken, at the end of a round: UDP is answered with "port
    /// unreachable". TCP's own answer, a reset, is TCP's to give before.
    pub fn drop_unclaimed(
        &mut self,
        burst: &mut Burst,
        inbound: &mut Inbound,
        now_ns: u64,
        out: &mut Egress,
    ) {
        for (packet, arrived) in burst.iter().zip(inbound.all()) {
            if arrived.protocol == protocol::UDP {
                self.refuse_port(packet, arrived, now_ns, out);
            }
        }
        out.drop_burst(self.reasons.no_listener, burst);
        inbound.clear();
    }
}
