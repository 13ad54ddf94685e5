//! What a service sees: packets of one burst, one by one, and what it may say of each.

use std::net::IpAddr;

use linerate_core::packet::{Offload, Packet};
use linerate_core::run::Point;
use linerate_routing::plane::hops::{Action, Hop};
use linerate_routing::plane::{Context, ones};
use linerate_tables::flow::{Direction, FlowId, Hit};
use linerate_tables::parse::Mask;
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::tcp::{Tcp, flag};
use linerate_wire::udp;

use super::Wanted;
use super::host::Host;
use super::report::{Event, Log};

/// What a service says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It goes on, and the next comes here, too.
    Keep,
    /// It goes on; no further packet of this direction comes here.
    Done,
    /// It is dropped.
    Drop,
    /// It is dropped, and all others of its flow.
    Deny,
}

/// The same of all packets that a service saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) done: Mask,
    pub(super) dropped: Mask,
    pub(super) denied: Mask,
}

/// Packets of one burst that want a service.
pub struct Given<'a, 'c> {
    packets: &'a mut [Packet],
    mask: Mask,
    port: u16,
    context: &'a mut Context<'c>,
    wanted: &'a Wanted,
    bit: usize,
    captured: &'a mut Point,
    log: &'a mut Log,
    pub(super) said: Said,
}

impl<'a, 'c> Given<'a, 'c> {
    pub(super) fn new(
        (packets, mask, port): (&'a mut [Packet], Mask, u16),
        context: &'a mut Context<'c>,
        (wanted, bit): (&'a Wanted, usize),
        (captured, log): (&'a mut Point, &'a mut Log),
    ) -> Self {
        Self {
            packets,
            mask,
            port,
            context,
            wanted,
            bit,
            captured,
            log,
            said: Said::default(),
        }
    }

    /// When the burst came, in nanoseconds of the worker's clock.
    pub fn now_ns(&self) -> u64 {
        self.context.now_ns()
    }

    /// Asks `serve` about each packet, in their order.
    pub fn each(&mut self, mut serve: impl FnMut(&mut One<'_, 'c>) -> Outcome) {
        for index in ones(self.mask) {
            let (Some(packet), Some(hit)) = (self.packets.get_mut(index), self.wanted.hit(index))
            else {
                continue;
            };
            let mut one = One {
                index,
                packet,
                hit,
                is_of_v4: self.wanted.is_v4(index),
                port: self.port,
                bit: self.bit,
                context: self.context,
                captured: self.captured,
                log: self.log,
            };
            let bit = 1 << index;
            match serve(&mut one) {
                Outcome::Keep => {}
                Outcome::Done => self.said.done |= bit,
                Outcome::Drop => self.said.dropped |= bit,
                Outcome::Deny => self.said.denied |= bit,
            }
        }
    }
}

/// A flow's name for those who keep something about it: it is never that of another flow.
pub type FlowName = (FlowId, bool);

/// One packet, as it leaves: where addresses are translated they are so already, and its MAC
/// addresses are those that it came with.
pub struct One<'a, 'c> {
    index: usize,
    packet: &'a mut Packet,
    hit: Hit,
    /// Whether its flow is one of IPv4.
    is_of_v4: bool,
    port: u16,
    bit: usize,
    context: &'a mut Context<'c>,
    captured: &'a mut Point,
    log: &'a mut Log,
}

/// What TCP or UDP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried<'a> {
    /// Of TCP: the number of its first byte.
    pub seq: Option<u32>,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl One<'_, '_> {
    /// Its flow: an identifier in the table of one family, and whether that is IPv4.
    pub fn flow(&self) -> FlowName {
        (self.hit.flow, self.is_of_v4)
    }

    /// Which way it goes.
    pub fn direction(&self) -> Direction {
        self.hit.direction
    }

    /// Whether it is IPv4.
    pub fn is_v4(&self) -> bool {
        self.context.packets.parsed.class.v4 >> self.index & 1 != 0
    }

    /// Whether it is TCP.
    pub fn is_tcp(&self) -> bool {
        self.context.packets.parsed.class.tcp >> self.index & 1 != 0
    }

    /// The length of its IP packet in bytes.
    pub fn ip_len(&self) -> u32 {
        let end = self.context.packets.parsed.end[self.index];
        end.saturating_sub(HEADER_LEN as u32)
    }

    /// Who has sent it, as the sender knows itself; behind NAT64 in IPv6.
    pub fn sender(&self) -> IpAddr {
        let parsed = &self.context.packets.parsed;
        match self.is_of_v4 {
            true => parsed.src4[self.index].to_be_bytes().into(),
            false => parsed.keys6[self.index].src().into(),
        }
    }

    /// Where it goes, as the receiver knows itself.
    pub fn receiver(&self) -> IpAddr {
        let parsed = &self.context.packets.parsed;
        match self.is_v4() {
            true => parsed.dst4[self.index].to_be_bytes().into(),
            false => parsed.keys6[self.index].dst().into(),
        }
    }

    /// The host that has begun the flow; behind NAT64 in IPv6.
    pub fn beginner(&self) -> IpAddr {
        let parsed = &self.context.packets.parsed;
        match self.hit.direction {
            Direction::Forward => self.sender(),
            Direction::Reverse if self.is_of_v4 => parsed.dst4[self.index].to_be_bytes().into(),
            Direction::Reverse => parsed.keys6[self.index].dst().into(),
        }
    }

    /// Where packets to `to` go that come in like this one, and the longest one that fits there;
    /// `None` if they are not forwarded.
    pub fn route_mtu(&self, to: IpAddr) -> Option<u16> {
        let hop: &Hop = self.context.route(self.index, to, self.packet);
        let leaves = matches!(
            hop.action,
            Action::Forward | Action::Resolve | Action::Glean
        );
        leaves.then_some(hop.mtu)
    }

    /// Its upper layer, to the end of its IP packet; empty if it is not known.
    pub fn upper(&self) -> &[u8] {
        let (start, end) = self.upper_span();
        self.packet.data().get(start..end).unwrap_or_default()
    }

    /// The same, to be changed, and whether its checksum is only begun: the sum of the
    /// pseudo-header, which whoever sends the frame completes.
    pub fn upper_mut(&mut self) -> (&mut [u8], bool) {
        let (start, end) = self.upper_span();
        let is_partial = self.packet.meta().offload.intersects(Offload::CSUM_PARTIAL);
        let upper = self.packet.data_mut().get_mut(start..end);
        (upper.unwrap_or_default(), is_partial)
    }

    fn upper_span(&self) -> (usize, usize) {
        let end = self.context.packets.parsed.end[self.index] as usize;
        match usize::from(self.packet.meta().l4_offset) {
            0 => (end, end),
            start => (start, end),
        }
    }

    /// What it carries; `None` if it is neither TCP nor UDP.
    pub fn carried(&self) -> Option<Carried<'_>> {
        let upper = self.upper();
        if self.is_tcp() {
            let segment = Tcp::new_checked(upper).ok()?;
            // What a SYN carries has the number after it (RFC 7413 2).
            let syn = u32::from(segment.flags() & flag::SYN != 0);
            let bytes = upper.get(segment.header_len()..).unwrap_or_default();
            return Some(Carried {
                seq: Some(segment.seq().wrapping_add(syn)),
                bytes,
            });
        }
        let is_udp = self.context.packets.parsed.class.udp >> self.index & 1 != 0;
        let bytes = upper.get(udp::HEADER_LEN..).filter(|_| is_udp)?;
        Some(Carried { seq: None, bytes })
    }

    /// Shows it to captures.
    pub fn capture(&mut self) {
        self.captured.see_one(self.port, self.packet);
    }

    /// Has a line logged about its flow: a number that [`Make::event`](super::Make::event) knows,
    /// or a name.
    pub fn log(&mut self, what: u32, host: Option<&Host>) {
        self.log.add(Event {
            service: self.bit,
            what,
            host: host.copied(),
            flow: self.flow(),
            tuple: None,
        });
    }

    /// Notes in its trace what was done with it.
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        self.context.note(self.index, "services", text);
    }
}
