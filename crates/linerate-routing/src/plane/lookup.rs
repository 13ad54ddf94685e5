//! Lookup: finds the hop of each packet of a burst.

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{Egress, Stage};
use linerate_tables::lpm::{Choice, NO_ROUTE};
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::ethernet::HEADER_LEN;

use super::View;
use super::context::{Context, ones};
use super::hops::{Action, Hop};
use super::multipath;

/// The stage.
pub struct Lookup {
    /// The layout that IPv4 destinations are looked up in, where a VRF has two. One choice for all
    /// VRFs, since usually only one is large.
    choice: Choice,
    /// IPv6 destinations, packed.
    dst6: Box<[[u8; 16]; Burst::CAPACITY]>,
}

impl Lookup {
    /// With the clock by which the tables' layouts are timed.
    pub fn new(clock: Clock) -> Self {
        Self {
            choice: Choice::new(clock),
            dst6: Box::new([[0; 16]; Burst::CAPACITY]),
        }
    }

    /// Both families in one burst: each is packed, looked up, and unpacked.
    fn lookup_mixed(&mut self, v4: Mask, v6: Mask, context: &mut Context<'_>) {
        let (view, vrf) = (context.view, context.interface().vrf);
        let packets = &mut *context.packets;
        let mut places = [0_u8; Burst::CAPACITY];
        let mut found = [NO_ROUTE; Burst::CAPACITY];
        let mut packed = [0; Burst::CAPACITY];
        let mut count = 0;
        for index in ones(v4) {
            packed[count] = packets.parsed.dst4[index];
            places[count] = index as u8;
            count += 1;
        }
        let (destinations, hops) = (&packed[..count], &mut found[..count]);
        view.fib4
            .lookup_chosen(&mut self.choice, vrf, destinations, hops);
        for (place, hop) in places.iter().zip(&found[..count]) {
            packets.hops[usize::from(*place)] = *hop;
        }
        count = 0;
        for index in ones(v6) {
            self.dst6[count].copy_from_slice(&packets.parsed.keys6[index].0[16..32]);
            places[count] = index as u8;
            count += 1;
        }
        view.fib6
            .lookup_bulk(vrf, &self.dst6[..count], &mut found[..count]);
        for (place, hop) in places.iter().zip(&found[..count]) {
            packets.hops[usize::from(*place)] = *hop;
        }
    }
}

impl Stage<Context<'_>> for Lookup {
    /// Of those packets that go by routes.
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, _: &mut Egress) {
        let (count, vrf) = (burst.len(), context.interface().vrf);
        let packets = &mut *context.packets;
        let class = &packets.parsed.class;
        let (v4, v6) = (packets.live & class.v4, packets.live & class.v6);
        if v6 == 0 {
            // Positions without an IPv4 packet have arbitrary addresses, and their results are
            // ignored.
            let (dst, hops) = (&packets.parsed.dst4[..count], &mut packets.hops[..count]);
            let fib = context.view.fib4;
            return fib.lookup_chosen(&mut self.choice, vrf, dst, hops);
        }
        self.lookup_mixed(v4, v6, context);
    }
}

impl<'a> Context<'a> {
    /// The hop of a packet, through its group if there is one, and its number.
    #[inline]
    pub(super) fn hop(&self, index: usize, packet: &Packet) -> (u32, &'a Hop) {
        let number = self.packets.hops[index];
        let hop = self.view.hops.get(number);
        match hop.action {
            Action::Multipath => member(self.view, &self.packets.parsed, hop.group, index, packet),
            _ => (number, hop),
        }
    }
}

/// The member of a group that the flow of the packet at `index` goes by, and its number.
pub(super) fn member<'a>(
    view: View<'a>,
    parsed: &Parsed,
    group: u32,
    index: usize,
    packet: &Packet,
) -> (u32, &'a Hop) {
    let hash = match parsed.class.v4 >> index & 1 {
        1 => multipath::hash4(&parsed.keys4[index]),
        _ => {
            let label = match packet.data().get(HEADER_LEN..HEADER_LEN + 4) {
                Some(&[_, b, c, d]) => u32::from_be_bytes([0, b & 0xf, c, d]),
                _ => 0,
            };
            let is_fragment = parsed.class.fragment >> index & 1 != 0;
            multipath::hash6(&parsed.keys6[index], label, is_fragment)
        }
    };
    let number = view.hops.member(group, hash);
    (number, view.hops.get(number))
}
