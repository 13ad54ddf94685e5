//! Dispatch as a stage of the path: behind all that judges a packet alone, before flows.
//!
//! Whoever receives a packet says its bucket here. Its own packets stay, and so do those that are
//! for no flow: verdicts, groups, link-local addresses, what is not IP. Fragments were put together
//! before, by who received them: they come by one queue. ICMP queries go by their identifiers, as
//! their flows are known; an error goes by the packet that it quotes, reversed.
//!
//! The owner of a packet that another worker has received finds its interface with it. It parses
//! and validates once more, which a line of the frame in the cache is enough for, and does what is
//! behind this stage; what is before, such as policers and access lists, was done.

use std::collections::VecDeque;
use std::sync::Arc;

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{DropId, Egress, Point, Stage};
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::{Context, Mesh, Tags, ones};
use linerate_tables::parse::Mask;

use super::across::Readers;
use super::bucket::Bucket;
use super::class::Classes;
use super::owners::Owners;
use super::sorter::{Handed, NOBODY, ROOM, Sorter};
use crate::nat::bits::Bits;
use crate::stages::flows::read;
use crate::track::{Quote, Upper};

/// The stage.
pub struct Dispatch {
    classes: Arc<Classes>,
    sorter: Sorter,
    /// The port of bursts from other workers.
    handed: Option<u16>,
    buckets: Box<[Bucket; Burst::CAPACITY]>,
    /// Of a burst from another worker, or of packets that have waited: those that are not of the
    /// interface that goes first.
    rest: VecDeque<Packet>,
    /// Packets of the burst from another worker that were put together from fragments.
    whole: Mask,
    no_interface: DropId,
    /// Sorting packets by owner, with those that leave for others' rings: a part of the stage.
    hand_over: Point,
}

impl Dispatch {
    /// The part of one worker; `None` where no packets are handed over.
    pub fn new(classes: Arc<Classes>, mesh: &Mesh, isa: Isa, egress: &mut Egress) -> Option<Self> {
        if mesh.takers == 0 {
            return None;
        }
        let owners = Owners::dealt(mesh.takers.into());
        let outlets = (mesh.first..).take(mesh.takers.into()).collect();
        let me = mesh.me.map_or(NOBODY, |me| me as u8);
        Some(Self {
            sorter: Sorter::new(me, owners, outlets, isa, egress),
            classes,
            handed: mesh.me.map(|me| mesh.first + me),
            buckets: Box::new([0; Burst::CAPACITY]),
            rest: VecDeque::with_capacity(ROOM + Burst::CAPACITY),
            whole: 0,
            no_interface: egress.reason("no_interface"),
            hand_over: Point::new("hand_over"),
        })
    }

    /// Goes by other classes, rules and services.
    pub fn install(&mut self, classes: Arc<Classes>, readers: Readers) {
        self.classes = classes;
        if let Some(across) = self.sorter.across() {
            across.install(readers);
        }
    }

    /// Its sorter.
    pub fn sorter(&mut self) -> &mut Sorter {
        &mut self.sorter
    }

    /// The buckets that are this worker's.
    pub fn mine(&self) -> Bits {
        let mut mine = Bits::NONE;
        let owners = self.sorter.owners();
        owners
            .buckets(self.sorter.me())
            .for_each(|bucket| mine.set(bucket));
        mine
    }

    /// Of the burst from another worker: those that were put together from fragments.
    pub fn whole(&self) -> Mask {
        self.whole
    }

    /// Whether a burst that comes by this port is from another worker.
    #[inline(always)]
    pub fn is_handed(&self, port: u16) -> bool {
        self.handed == Some(port)
    }

    /// The number by which others send to this worker.
    pub fn port(&self) -> Option<u16> {
        self.handed
    }

    /// What has waited for these buckets goes on with the next burst from another worker, which
    /// may be an empty one.
    pub fn release(&mut self, buckets: &Bits) {
        self.sorter.release(buckets, &mut self.rest);
    }

    /// A burst from another worker, or what is left of one: the packets of one interface stay in
    /// it, as its burst.
    fn take(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        self.sorter.admit(burst, out);
        while let Some((interface, whole)) = self.next(burst) {
            let id = InterfaceId(interface);
            if context.has_interface(id) {
                context.packets.begin(id, Tags::Off);
                // It was counted where it came in, and reassembly is behind it.
                context.packets.first_whole = Some(Burst::CAPACITY);
                self.whole = whole;
                return;
            }
            out.drop_burst(self.no_interface, burst);
        }
    }

    /// Makes the burst the next packets of one interface; which of them were put together from
    /// fragments, and the interface.
    fn next(&mut self, burst: &mut Burst) -> Option<(u16, Mask)> {
        if self.rest.is_empty() && !burst.is_empty() {
            let mut handed = burst.iter().map(Packet::user::<Handed>);
            let interface = handed.next().map_or(0, |first| first.interface);
            let is_one = handed.all(|other| other.interface == interface && !other.is_whole);
            let first: Handed = burst.as_packets()[0].user();
            if is_one {
                return Some((interface, first.is_whole.into()));
            }
        }
        self.rest.extend(burst.drain());
        let interface = self.rest.front()?.user::<Handed>().interface;
        let mut whole = 0;
        while burst.room() > 0
            && let Some(handed) = self.rest.front().map(Packet::user::<Handed>)
            && handed.interface == interface
            && let Some(packet) = self.rest.pop_front()
        {
            whole |= Mask::from(handed.is_whole) << burst.len();
            // There is room.
            let _ = burst.push(packet);
        }
        Some((interface, whole))
    }

    /// The bucket of an ICMP message: that of the query's flow, or of what an error quotes.
    #[cold]
    fn of_icmp(&self, index: usize, packet: &Packet, context: &Context<'_>) -> Option<Bucket> {
        let parsed = &context.packets.parsed;
        let is_v4 = parsed.class.v4 >> index & 1 != 0;
        let (key4, key6) = (parsed.keys4[index], parsed.keys6[index]);
        let number = if is_v4 {
            key4.protocol()
        } else {
            key6.protocol()
        };
        match (read(packet, is_v4, number, parsed.end[index]).ok()?, is_v4) {
            (Upper::Query(query), true) => Some(self.classes.one4(&query.key4(key4))),
            (Upper::Query(query), false) => Some(self.classes.one6(&query.key6(key6))),
            (Upper::Error, _) => {
                let headers = linerate_wire::parse(packet.data()).ok()?;
                let quote = Quote::read(packet.data(), &headers).ok()?;
                Some(self.classes.one(&quote.key))
            }
            _ => None,
        }
    }
}

impl Stage<Context<'_>> for Dispatch {
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        if self.is_handed(burst.port) {
            return self.take(burst, context, out);
        }
        let packets = &*context.packets;
        let marks = &packets.marks;
        let tracked = packets.live & !(marks.to_group | marks.link_local | marks.l2_group);
        let (all, whole) = (burst.mask(), marks.whole);
        if tracked == 0 {
            return;
        }
        self.classes.buckets(&packets.parsed, &mut self.buckets);
        for index in ones(tracked & packets.parsed.class.icmp) {
            if let Some(bucket) = self.of_icmp(index, &burst.as_packets()[index], context) {
                self.buckets[index] = bucket;
            }
        }
        let id = context.packets.interface.0;
        let sorter = &mut self.sorter;
        if self.hand_over.is_watched() {
            let is_others = |index: &usize| sorter.owners().of(self.buckets[*index]) != sorter.me();
            for index in ones(tracked).filter(is_others) {
                self.hand_over
                    .see_one(burst.port, &burst.as_packets()[index]);
            }
        }
        let began = self.hand_over.starts();
        let gone = sorter.sort(burst, &self.buckets, (tracked, whole), id, out);
        match self.hand_over.is_watched() {
            true => self.hand_over.ends(began, all.count_ones().into()),
            false => self.hand_over.packets += u64::from(gone.count_ones()),
        }
        if gone != 0 {
            let (owners, buckets) = (sorter.owners(), &self.buckets);
            let to = |index: usize| format!("handed to worker {}", owners.of(buckets[index]));
            context.close_up(all, gone, to);
        }
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        visit(&mut self.hand_over);
    }

    fn held(&self) -> u64 {
        self.sorter.held() + self.rest.len() as u64
    }
}
