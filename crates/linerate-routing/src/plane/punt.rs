//! Punt: hands packets that the fast path does not handle to the slow worker, with a rate limit per
//! reason. The reason is in the packet's 16 user bytes.

use linerate_core::packet::{Packet, UserData};
use linerate_core::run::{Egress, Point};

use super::context::Context;
use super::original::Headers;
use super::policer::Meter;
use crate::model::InterfaceId;

/// Why the slow worker gets a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// ARP, requests and replies.
    Arp,
    /// Neighbor Discovery (RFC 4861): router and neighbour solicitations and advertisements,
    /// redirects.
    Nd,
    /// For an address of the router, or a group or broadcast address that it listens to.
    #[default]
    Local,
    /// The same, of a routing protocol: with a limit of its own, so that a flood of other packets
    /// does not end its sessions.
    Routing,
    /// Neither IP nor ARP: other protocols of the link (LLDP, IS-IS) go to the host interface.
    Other,
    /// To be sent to the gateway of the hop, whose MAC address is not known. Only its link-layer
    /// header is missing.
    Resolve,
    /// The same for the destination itself, a neighbour on the interface.
    Glean,
    /// To be forwarded by the kernel.
    Host,
}

impl Reason {
    /// All reasons, in the order of the enum.
    pub const ALL: [Self; 8] = [
        Self::Arp,
        Self::Nd,
        Self::Local,
        Self::Routing,
        Self::Other,
        Self::Resolve,
        Self::Glean,
        Self::Host,
    ];

    /// Its name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Arp => "arp",
            Self::Nd => "nd",
            Self::Local => "local",
            Self::Routing => "routing",
            Self::Other => "other",
            Self::Resolve => "resolve",
            Self::Glean => "glean",
            Self::Host => "host",
        }
    }

    fn of(byte: u8) -> Self {
        Self::ALL
            .get(usize::from(byte))
            .copied()
            .unwrap_or_default()
    }
}

/// How many packets a second one fast worker hands over for each reason at most: so that a flood of
/// one kind does not use up the ring and the slow worker's time. A fifth of a second's worth may
/// come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates([u32; Reason::ALL.len()]);

impl Default for Rates {
    fn default() -> Self {
        Self(Reason::ALL.map(|reason| match reason {
            Reason::Local | Reason::Host => 200_000,
            Reason::Routing => 100_000,
            Reason::Resolve => 20_000,
            Reason::Arp | Reason::Nd | Reason::Glean => 5_000,
            Reason::Other => 1_000,
        }))
    }
}

impl Rates {
    /// Packets a second.
    pub fn of(&self, reason: Reason) -> u32 {
        self.0[reason as usize]
    }

    /// Sets the limit of a reason, in packets a second.
    pub fn set(&mut self, reason: Reason, pps: u32) {
        self.0[reason as usize] = pps;
    }
}

/// What a punted packet carries with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Punt {
    /// Why the packet was punted.
    pub reason: Reason,
    /// The interface that it came in by; for [`Reason::Resolve`] and [`Reason::Glean`], the one
    /// that it leaves by.
    pub interface: InterfaceId,
    /// Of [`Reason::Resolve`]: the number of the hop.
    pub hop: u32,
    /// The interface that it came in by, whose VRF has the route back to its sender.
    pub came_by: InterfaceId,
    /// The ticket of a traced packet's trace, 48 bits; 0: not traced.
    pub ticket: u64,
    /// Where the headers are that its sender has written.
    pub headers: Headers,
}

/// The bits of a ticket.
const TICKET: u64 = (1 << 48) - 1;

impl UserData for Punt {
    fn from_words([a, b]: [u64; 2]) -> Self {
        Self {
            reason: Reason::of(a as u8),
            headers: Headers::of((a >> 8) as u8),
            interface: InterfaceId((a >> 16) as u16),
            hop: (a >> 32) as u32,
            came_by: InterfaceId((b >> 48) as u16),
            ticket: b & TICKET,
        }
    }

    fn into_words(self) -> [u64; 2] {
        let (reason, interface) = (self.reason as u64, u64::from(self.interface.0));
        let headers = self.headers as u64;
        [
            reason | headers << 8 | interface << 16 | u64::from(self.hop) << 32,
            self.ticket & TICKET | u64::from(self.came_by.0) << 48,
        ]
    }
}

/// Hands packets to the slow worker.
pub(super) struct Punts {
    /// The outlet to it.
    slow: u16,
    /// The rate limit of each reason.
    meters: [Meter; Reason::ALL.len()],
    point: Point,
}

impl Punts {
    pub(super) fn new(slow: u16, rates: &Rates) -> Self {
        let meters = Reason::ALL.map(|reason| {
            let pps = u64::from(rates.of(reason));
            Meter::new(pps, pps / 5)
        });
        Self {
            slow,
            meters,
            point: Point::new("punt"),
        }
    }

    pub(super) fn point(&mut self) -> &mut Point {
        &mut self.point
    }
}

impl Context<'_> {
    /// Hands a packet that came by `interface`, or leaves by it, to the slow worker.
    pub(super) fn punt(
        &mut self,
        index: usize,
        reason: Reason,
        interface: InterfaceId,
        hop: u32,
        packet: Packet,
        out: &mut Egress,
    ) {
        let punt = Punt {
            reason,
            interface,
            hop,
            came_by: interface,
            ..Punt::default()
        };
        self.hand_over(index, punt, packet, out);
    }

    /// Hands a packet to the slow worker, and its trace as well.
    pub(super) fn hand_over(
        &mut self,
        index: usize,
        punt: Punt,
        mut packet: Packet,
        out: &mut Egress,
    ) {
        let punts = &mut self.exceptions.punts;
        if !punts.meters[punt.reason as usize].passes(self.view.now_ns, 1) {
            return self.drop_one(index, self.reasons.punt_limited, packet, out);
        }
        let slow = punts.slow;
        punts.point.see_one(packet.port(), &packet);
        let ticket = self.exceptions.tracer.hand_over(index, punt.reason);
        packet.set_user(Punt { ticket, ..punt });
        out.send_one(slow, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_punt_survives_its_words_and_any_words_are_one() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number, "ALL is in the order of the enum");
            let punt = Punt {
                reason,
                interface: InterfaceId(0xfffe),
                hop: 0xdead_beef,
                came_by: InterfaceId(0xfffd),
                ticket: 1 << 40,
                headers: Headers::of(number as u8 % 3),
            };
            assert_eq!(Punt::from_words(punt.into_words()), punt);
        }
        assert_eq!(Punt::from_words([u64::MAX; 2]).reason, Reason::Local);
    }
}
