//! Rewrite: writes the headers of plain packets whose hop is ready.
//!
//! [`forward4`] and [`forward6`] change all that forwarding changes in a frame: MAC addresses, time
//! to live, header checksum. They work on one packet at a time: its hop is in the cache, and each
//! store goes to a line of its own anyway.

use linerate_core::arch::{Vectors, Work, prefetch_read};
use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{Egress, Stage};
use linerate_tables::parse::Mask;
use linerate_tables::rewrite::decrement_ttl4;
use linerate_wire::ethernet::{HEADER_LEN, MIN_FRAME_LEN};

use super::context::{Context, Packets, ones};
use super::hops::{Action, Hop, Hops, InterfaceIdOrNone};
use super::lookup::member;

/// The stage.
pub struct Rewrite {
    vectors: Vectors,
}

impl Rewrite {
    /// With loops for an instruction set.
    pub fn new(isa: Isa) -> Self {
        Self {
            vectors: Vectors::up_to(isa),
        }
    }

    /// Which packets of `plain` are from neighbours on the interface: those that may get redirects.
    #[inline(always)]
    fn near(&self, plain: Mask, count: usize, context: &Context<'_>) -> Mask {
        let interface = context.interface();
        let parsed = &context.packets.parsed;
        let (v4, v6) = (plain & parsed.class.v4, plain & parsed.class.v6);
        let mut near = 0;
        for &(first, mask) in interface.near4.iter().filter(|_| v4 != 0) {
            let src = &parsed.src4[..count];
            near |= v4 & self.vectors.run(Within { src, first, mask });
        }
        for index in ones(v6) {
            let source = parsed.keys6[index].src().to_bits();
            near |= Mask::from(interface.is_near6(source)) << index;
        }
        near
    }

    /// Which packets of `plain` have a local address, or a broadcast address, as their source.
    #[inline(always)]
    fn with_local_source(&self, plain: Mask, context: &Context<'_>) -> Mask {
        let local = &context.installed.local[context.interface().vrf as usize];
        local.sources(self.vectors, &context.packets.parsed, plain)
    }
}

impl Stage<Context<'_>> for Rewrite {
    #[inline(always)]
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, _: &mut Egress) {
        let hops = context.view.hops.all();
        let packets = &*context.packets;
        let class = &packets.parsed.class;
        let plain = packets.plain & packets.live & !packets.parsed.checks.expired;
        let near = self.near(plain, burst.len(), context);
        let plain = plain & !self.with_local_source(plain, context);
        for &number in &packets.hops[..burst.len()] {
            prefetch_read(hops.get(number));
        }
        // Most bursts are of one family, for which half of the instructions suffice.
        let all = burst.mask();
        let mut ready = match near {
            0 if plain & class.v4 == all => forward_all::<true>(hops, burst, context.packets),
            0 if plain & class.v6 == all => forward_all::<false>(hops, burst, context.packets),
            _ => 0,
        };
        let rest = plain & !ready;
        if rest != 0 {
            ready |= forward_each(rest, near, burst, context);
        }
        context.packets.ready = ready;
        // The exceptions stage handles the others, if there are any.
        context.packets.here = match ready == all {
            true => Mask::MAX,
            false => !ready,
        };
    }
}

/// Forwards those of a burst, all of them plain and of one family, whose hops are neighbours;
/// returns which.
#[inline(always)]
fn forward_all<const V4: bool>(hops: Hops<'_>, burst: &mut Burst, packets: &mut Packets) -> Mask {
    let mut ready = burst.mask();
    let count = burst.len();
    let (numbers, ends) = (&packets.hops[..count], &packets.parsed.end[..count]);
    let found = numbers.iter().zip(ends).zip(&mut packets.exits);
    for ((index, packet), ((&number, &end), exit)) in burst.iter_mut().enumerate().zip(found) {
        let hop = hops.get(number);
        let is_ready = takes(hop, end) && forward(packet, V4, hop, end);
        if !is_ready {
            ready &= !(1 << index);
        }
        *exit = hop.interface.number();
    }
    ready
}

/// The same for the packets of `plain` in any burst, one by one, with groups of hops and redirects.
#[inline(never)]
fn forward_each(plain: Mask, near: Mask, burst: &mut Burst, context: &mut Context<'_>) -> Mask {
    let view = context.view;
    let packets = &mut *context.packets;
    let (v4, back) = (
        packets.parsed.class.v4,
        InterfaceIdOrNone::from(packets.interface),
    );
    let mut ready = 0;
    for (index, packet) in burst.iter_mut().enumerate() {
        if plain >> index & 1 == 0 {
            continue;
        }
        let mut hop = view.hops.get(packets.hops[index]);
        if hop.action == Action::Multipath {
            hop = member(view, &packets.parsed, hop.group, index, packet).1;
        }
        let is_back = near >> index & 1 != 0 && hop.interface == back;
        let end = packets.parsed.end[index];
        if !is_back && takes(hop, end) && forward(packet, v4 >> index & 1 != 0, hop, end) {
            packets.exits[index] = hop.interface.number();
            ready |= 1 << index;
        }
    }
    ready
}

/// Whether a frame whose packet ends at byte `end` can go to a hop as it is.
#[inline(always)]
fn takes(hop: &Hop, end: u32) -> bool {
    hop.action == Action::Forward && end <= u32::from(hop.mtu) + HEADER_LEN as u32
}

/// Readies a frame, whose packet ends at byte `end`, for its hop; false as in [`forward4`].
#[inline(always)]
fn forward(packet: &mut Packet, is_v4: bool, hop: &Hop, end: u32) -> bool {
    let frame = packet.data_mut();
    let len = frame.len();
    let is_written = match is_v4 {
        true => forward4(frame, hop),
        false => forward6(frame, hop),
    };
    let end = (end as usize).max(MIN_FRAME_LEN);
    if len > end {
        packet.truncate(end);
    }
    is_written
}

/// Finds the sources on a network.
struct Within<'a> {
    src: &'a [u32],
    /// Its first address and its mask.
    first: u32,
    mask: u32,
}

impl Work for Within<'_> {
    type Output = Mask;

    #[inline(always)]
    fn run(self) -> Mask {
        let is_within = |src: u32| src & self.mask == self.first;
        let mut any = false;
        for &src in self.src {
            any |= is_within(src);
        }
        let mut within = 0;
        if any {
            for (index, &src) in self.src.iter().enumerate() {
                within |= Mask::from(is_within(src)) << index;
            }
        }
        within
    }
}

/// Readies an untagged IPv4 frame for its hop. False, and nothing useful written, where the frame
/// is shorter than its headers, which the parser excludes.
#[inline(always)]
pub(super) fn forward4(frame: &mut [u8], hop: &Hop) -> bool {
    let Some(front) = frame.first_chunk_mut::<34>() else {
        return false;
    };
    if let Some(word) = front[22..].first_chunk_mut() {
        *word = decrement_ttl4(u32::from_le_bytes(*word)).to_le_bytes();
    }
    hop.macs.store(front);
    true
}

/// The same for IPv6, which has no checksum.
#[inline(always)]
pub(super) fn forward6(frame: &mut [u8], hop: &Hop) -> bool {
    let Some(front) = frame.first_chunk_mut::<{ HEADER_LEN + 40 }>() else {
        return false;
    };
    front[21] = front[21].wrapping_sub(1);
    hop.macs.store(front);
    true
}

/// Cuts off the padding of the last link, which may exceed the next one's MTU.
#[inline(always)]
pub(super) fn trim(packet: &mut Packet, end: usize) {
    let end = end.max(MIN_FRAME_LEN);
    if packet.len() > end {
        packet.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_tables::rewrite::Macs;
    use linerate_wire::MacAddr;
    use linerate_wire::ipv4::Ipv4;

    #[test]
    fn the_checksum_is_what_the_whole_header_sums_to_whatever_it_was() {
        let hop = Hop {
            macs: Macs::new(MacAddr::local(1), MacAddr::local(2)),
            ..Hop::default()
        };
        for ident in 0..=u16::MAX {
            let mut frame = [0_u8; 60];
            frame[14..34].copy_from_slice(&[
                0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
            ]);
            frame[18..20].copy_from_slice(&ident.to_be_bytes());
            let mut ip = Ipv4::new_checked(&mut frame[14..]).expect("written above");
            ip.fill_checksum();
            assert!(forward4(&mut frame, &hop));
            let mut expected = frame;
            let mut ip = Ipv4::new_checked(&mut expected[14..]).expect("written above");
            assert!(ip.verify(), "{ident}");
            ip.fill_checksum();
            assert_eq!(ip.ttl(), 63);
            assert_eq!(frame, expected, "{ident}");
            assert_eq!(frame[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        }
    }
}
