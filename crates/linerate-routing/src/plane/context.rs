//! The state that the stages of the path share: what is known of one burst, and what is beside it.
//!
//! Packets keep their position in the burst between the parser and the last two stages, so what is
//! known of a packet is at its position: in arrays, and in masks with a bit for each.

use std::net::IpAddr;

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{BurstContext, DropId, Egress};
use linerate_tables::lpm::NO_ROUTE;
use linerate_tables::parse::{Mask, Parsed};
use linerate_wire::ethernet::HEADER_LEN;

use super::View;
use super::acl::Answer;
use super::exceptions::Exceptions;
use super::hops::{Action, Hop};
use super::interface::{Installed, InterfaceState};
use super::lookup;
use super::original::{self, Headers, ORIGINAL};
use super::punt::Reason;
use super::reasons::Reasons;
use super::transmit::Output;
use crate::model::InterfaceId;

/// What all links of IPv6 take, in bytes (RFC 8200 5). IPv4 that may be fragmented becomes IPv6 of
/// that length at most (RFC 7915 4).
pub(super) const LOWEST_MTU6: u16 = 1280;

/// The verdict on a packet that does not reach the lookup.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// Dropped for a reason.
    Drop(DropId),
    /// Dropped, with an answer to the sender.
    Reject(DropId, Answer),
    /// Dropped, for it has no hop left; its sender is told.
    Expired,
    /// Dropped, for it is longer than this once headers are before it; its sender is told.
    TooBig(u16),
    /// Handed to the slow worker.
    Punt(Reason),
}

/// What is known of the VLAN tags of a burst's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tags {
    /// The port has no VLANs: if a frame has a tag, the parser finds it.
    Unlikely,
    /// The VLAN stage has to look for tags.
    Possible,
    /// The VLAN stage has removed them: a further tag is a second one.
    Off,
}

/// Results of validation for packets that go on, by position in the burst.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// For a multicast group, or the broadcast address.
    pub to_group: Mask,
    /// The source or destination is link-local.
    pub link_local: Mask,
    /// The frame was a link-layer multicast or broadcast.
    pub l2_group: Mask,
    /// Put together here, from fragments.
    pub whole: Mask,
}

/// What is known of the packets of a burst, which came by one interface.
pub struct Packets {
    /// The interface that they came by.
    pub interface: InterfaceId,
    /// What is known of their tags.
    pub tags: Tags,
    /// The first of those that were put together from fragments, if the burst has been validated
    /// before.
    pub first_whole: Option<usize>,
    /// Those that the next stage is to look at.
    pub here: Mask,
    /// Those that are forwarded up to the lookup and beyond; the others have a verdict.
    pub live: Mask,
    /// Of those: ordinary unicast without options, which loops over the burst forward.
    pub plain: Mask,
    /// Those whose headers are written: they leave by `exits`.
    pub ready: Mask,
    /// Their headers. Where addresses are translated, these stay those of the sender.
    pub parsed: Box<Parsed>,
    /// What validation has found.
    pub marks: Marks,
    /// Verdicts on those that are not `live`.
    pub verdicts: [Verdict; Burst::CAPACITY],
    /// Those whose addresses were translated since they came: see [`Packets::translate`].
    pub(super) translated: Mask,
    /// Of these: how their headers were.
    originals: Box<[[u8; ORIGINAL]; Burst::CAPACITY]>,
    /// Of these: those that are of the other version of IP now.
    crossed: Mask,
    /// Of these: those whose original is known for good, whatever translates them next.
    settled: Mask,
    /// Of these: how many bytes longer their headers are.
    grew: [i16; Burst::CAPACITY],
    /// The number of the hop of each packet.
    pub hops: [u32; Burst::CAPACITY],
    /// The number of the interface that each leaves by.
    pub exits: [u32; Burst::CAPACITY],
}

impl Packets {
    pub(super) fn new(reasons: &Reasons) -> Self {
        Self {
            interface: InterfaceId(0),
            tags: Tags::Possible,
            first_whole: None,
            here: Mask::MAX,
            live: 0,
            plain: 0,
            ready: 0,
            parsed: Box::new(Parsed::new()),
            marks: Marks::default(),
            verdicts: [Verdict::Drop(reasons.truncated); Burst::CAPACITY],
            translated: 0,
            originals: Box::new([[0; ORIGINAL]; Burst::CAPACITY]),
            crossed: 0,
            settled: 0,
            grew: [0; Burst::CAPACITY],
            hops: [NO_ROUTE; Burst::CAPACITY],
            exits: [0; Burst::CAPACITY],
        }
    }

    /// Another burst begins, or what is left of one after it came by another way: the packets of
    /// one interface.
    #[inline(always)]
    pub fn begin(&mut self, interface: InterfaceId, tags: Tags) {
        (self.interface, self.tags) = (interface, tags);
        self.first_whole = None;
        self.here = Mask::MAX;
        (self.translated, self.crossed, self.settled) = (0, 0, 0);
    }

    /// Notes how the untagged frame at `index` is, before somebody translates its addresses: an
    /// error that its sender gets quotes what the sender sent (RFC 5508 4.2).
    #[inline(always)]
    pub fn translate(&mut self, index: usize, frame: &[u8]) {
        if self.settled >> index & 1 != 0 {
            // It is of the other version meanwhile, or another worker has translated it.
            return;
        }
        self.grew[index] = 0;
        let headers = frame.get(HEADER_LEN..).unwrap_or_default();
        let original = &mut self.originals[index];
        match headers.first_chunk::<ORIGINAL>() {
            Some(headers) => *original = *headers,
            None => original[..headers.len()].copy_from_slice(headers),
        }
        self.translated |= 1 << index;
    }

    /// Notes that a packet that was [translated](Self::translate) is of the other version of IP
    /// now, with a header that is so many bytes longer, and ends at byte `end` of its frame.
    pub fn grow(&mut self, index: usize, bytes: i16, end: usize) {
        self.crossed |= 1 << index;
        self.settled |= 1 << index;
        self.grew[index] += bytes;
        if end > HEADER_LEN + usize::from(LOWEST_MTU6) && self.ident4(index).is_some() {
            self.plain &= !(1 << index);
        }
    }

    /// The identification of the IPv4 packet that the one at `index` was, which is of IPv6 now, if
    /// it may be fragmented and is no fragment.
    pub(super) fn ident4(&self, index: usize) -> Option<u16> {
        let original = self.originals.get(index)?;
        let [first, _, _, _, a, b, flags, offset, ..] = *original;
        let may_be_cut = self.crossed >> index & 1 != 0 && first >> 4 == 4;
        let may_be_cut = may_be_cut && flags & 0x7f == 0 && offset == 0;
        may_be_cut.then_some(u16::from_be_bytes([a, b]))
    }

    /// The largest packet of what its sender sent that is not too big, if that is `mtu` now.
    pub(super) fn original_mtu(&self, index: usize, mtu: u16) -> u16 {
        let is_moved = index < Burst::CAPACITY && self.translated >> index & 1 != 0;
        let grew = if is_moved { self.grew[index] } else { 0 };
        (i32::from(mtu) - i32::from(grew)).clamp(0, u16::MAX.into()) as u16
    }

    /// Makes a packet what its sender sent.
    pub(super) fn restore(&self, index: usize, packet: &mut Packet) {
        if index < Burst::CAPACITY && self.translated >> index & 1 != 0 {
            let crossed = self.crossed >> index & 1 != 0;
            let grew = crossed.then_some(self.grew[index]);
            original::restore(packet, &self.originals[index], grew);
        }
    }

    /// Puts behind a packet, as far as there is room, what [`restore`](Self::restore) would write:
    /// for errors of the slow worker. See [`original::take`].
    pub(super) fn leave_original(&self, index: usize, packet: &mut Packet) -> Headers {
        let is_same = index >= Burst::CAPACITY || self.translated >> index & 1 == 0;
        match is_same {
            true => Headers::Same,
            false if self.crossed >> index & 1 != 0 => Headers::Lost,
            false => original::put(packet, &self.originals[index]),
        }
    }

    /// Puts behind a packet that is about to go to another worker what it was before it was
    /// [translated](Self::translate). Whether that is there: [`arrive`](Self::arrive) takes it.
    pub fn depart(&self, index: usize, packet: &mut Packet) -> bool {
        self.leave_original(index, packet) == Headers::Behind
    }

    /// Notes what the packet at `index` was before another worker translated it, which lies behind
    /// it: errors about it are about that.
    pub fn arrive(&mut self, index: usize, packet: &mut Packet) {
        if original::read(packet, &mut self.originals[index]) {
            self.grew[index] = 0;
            self.translated |= 1 << index;
            self.settled |= 1 << index;
        }
    }

    /// Moves what is known of translated packets to their new positions.
    #[cold]
    pub(super) fn close_up_originals(&mut self, kept: Mask) {
        for (to, from) in ones(kept).enumerate() {
            self.originals[to] = self.originals[from];
            self.grew[to] = self.grew[from];
        }
    }

    /// Which packets were translated, which of these are of the other version, and which have their
    /// original for good.
    pub(super) fn translations(&mut self) -> [&mut Mask; 3] {
        [&mut self.translated, &mut self.crossed, &mut self.settled]
    }

    /// Those of `live` go on, and the next stage looks at them.
    #[inline(always)]
    pub fn keep(&mut self, live: Mask) {
        (self.live, self.here) = (live, live);
    }

    /// Passes a verdict on the packet at `index`.
    pub fn judge(&mut self, index: usize, verdict: Verdict) {
        self.verdicts[index] = verdict;
    }
}

/// All that a stage of the path sees besides its own state.
pub struct Context<'a> {
    /// Configuration and tables, as of this burst.
    pub(super) view: View<'a>,
    pub(super) installed: &'a Installed,
    pub(super) reasons: &'a Reasons,
    /// The packets of the burst.
    pub packets: &'a mut Packets,
    /// Frames that are ready to go.
    pub(super) output: &'a mut Output,
    /// Handling of packets that are not forwarded: punts, ICMP errors, drops.
    pub(super) exceptions: &'a mut Exceptions,
}

impl BurstContext for Context<'_> {
    #[inline(always)]
    fn mask(&self, burst: &Burst) -> u64 {
        self.packets.here & burst.mask()
    }

    #[inline(always)]
    fn kept(&self) -> u64 {
        self.output.kept()
    }
}

impl<'a> Context<'a> {
    /// What the loops know of the interface that the burst came by.
    #[inline(always)]
    pub fn interface(&self) -> &'a InterfaceState {
        &self.installed.interfaces[usize::from(self.packets.interface.0)]
    }

    /// Whether there is an interface of that number.
    #[inline(always)]
    pub fn has_interface(&self, id: InterfaceId) -> bool {
        self.installed.has(id)
    }

    /// When the burst came, in nanoseconds of the worker's clock.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        self.view.now_ns
    }

    /// Where packets to `to` go that come in like the packet at `index`.
    pub fn route(&self, index: usize, to: IpAddr, packet: &Packet) -> &'a Hop {
        let (view, vrf, parsed) = (self.view, self.interface().vrf, &self.packets.parsed);
        let found = match to {
            IpAddr::V4(v4) => view.fib4.lookup(vrf, v4.to_bits()),
            IpAddr::V6(v6) => view.fib6.lookup(vrf, v6.octets()),
        };
        let hop = view.hops.get(found.unwrap_or(NO_ROUTE));
        match hop.action {
            Action::Multipath => lookup::member(view, parsed, hop.group, index, packet).1,
            _ => hop,
        }
    }

    /// Whether an access list of any interface looks at what goes out.
    #[inline(always)]
    pub fn any_acl_out(&self) -> bool {
        self.installed.any_acl_out
    }

    /// Whether the burst has a packet that is not ready to be sent.
    #[inline(always)]
    pub fn has_exceptions(&self, burst: &Burst) -> bool {
        self.packets.ready != burst.mask()
    }

    /// Which packets of the burst are traced, for a stage that has to look for what it notes.
    #[inline(always)]
    pub fn traced(&self) -> Mask {
        self.exceptions.tracer.traced()
    }

    /// Notes what a stage did with a packet, if that is traced.
    #[inline(always)]
    pub fn note(&mut self, index: usize, stage: &'static str, text: impl FnOnce() -> String) {
        if self.exceptions.tracer.is_traced(index) {
            self.exceptions.tracer.note(index, stage, text());
        }
    }

    /// Drops a packet: counts the reason, and ends its trace.
    pub(super) fn drop_one(
        &mut self,
        index: usize,
        reason: DropId,
        packet: Packet,
        out: &mut Egress,
    ) {
        let tracer = &mut self.exceptions.tracer;
        tracer.end(index, || format!("dropped: {}", out.reason_name(reason)));
        out.drop_one(reason, packet);
    }
}

/// The places of the bits that are set, from the lowest.
pub fn ones(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (lowest < 64).then_some(lowest)
    })
}
