//! Dispatch as a stage of the path: behind all that judges a packet alone, before flows.
//!
//! Whoever receives a packet says its bucket here. Its own packets stay, and so do those that are
//! for no flow: verdicts, groups, link-local addresses, what is not IP. Fragments were put together
//! before, by who received them: they come by one queue. ICMP queries go by their identifiers, as
//! their flows are known; an error goes by the packet that it quotes, reversed.
//!
//! A packet from one host inside to the outside of another turns: behind its flow, which has made
//! its source an outside one, it goes to the owner of the port that it is for, as if it came from
//! outside ([`turn`](Dispatch::turn)). One that has turned does not turn again, so that no packet
//! is handed over more than twice.
//!
//! The owner of a packet that another worker has received finds its interface with it. It parses
//! and validates once more, which a line of the frame in the cache is enough for, and does what is
//! behind this stage; what is before, such as policers and access lists, was done.

use std::collections::VecDeque;
use std::sync::Arc;

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet, PoolCache};
use linerate_core::run::{DropId, Egress, Point, Stage};
use linerate_dispatch::sorter::ROOM;
use linerate_dispatch::{NOBODY, Owner, Owners, Sorter};
use linerate_routing::model::InterfaceId;
use linerate_routing::plane::{Context, Mesh, Tags, ones};
use linerate_tables::parse::Mask;
use linerate_wire::FlowKey;

use super::across::{Across, Readers};
use super::bucket::{Bucket, of_port};
use super::class::Classes;
use super::handed::{Handed, Sorted};
use crate::nat::bits::Bits;
use crate::stages::flows::read;
use crate::track::{Quote, Upper};

/// The stage.
pub struct Dispatch {
    classes: Arc<Classes>,
    sorter: Sorter<Handed>,
    /// How packets get to owners on other NUMA nodes, where there are any.
    across: Option<Box<Across>>,
    /// The port of bursts from other workers.
    handed: Option<u16>,
    buckets: Box<[Bucket; Burst::CAPACITY]>,
    /// Of a burst from another worker, or of packets that have waited: those that are not of the
    /// interface that goes first.
    rest: VecDeque<Packet>,
    /// Packets of the burst from another worker that were put together from fragments.
    whole: Mask,
    /// Whether that burst has turned, and then those that have their original behind them.
    turned: Option<Mask>,
    /// Packets of the burst that turn here.
    turning: Mask,
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
            across: None,
            classes,
            handed: mesh.me.map(|me| mesh.first + me),
            buckets: Box::new([0; Burst::CAPACITY]),
            rest: VecDeque::with_capacity(ROOM + 2 * Burst::CAPACITY),
            whole: 0,
            turned: None,
            turning: 0,
            no_interface: egress.reason("no_interface"),
            hand_over: Point::new("hand_over"),
        })
    }

    /// Goes by other classes, rules and services.
    pub fn install(&mut self, classes: Arc<Classes>, readers: Readers) {
        self.classes = classes;
        if let Some(across) = &mut self.across {
            across.install(readers);
        }
    }

    /// Its sorter.
    pub fn sorter(&mut self) -> &mut Sorter<Handed> {
        &mut self.sorter
    }

    /// Has owners on other NUMA nodes.
    pub fn set_across(&mut self, across: Option<Box<Across>>) {
        self.across = across;
    }

    /// How packets get to those.
    pub fn across(&mut self) -> Option<&mut Across> {
        self.across.as_deref_mut()
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

    /// Of the burst from another worker, if its packets have turned: those that have the headers
    /// that their senders wrote behind them.
    pub fn turned(&self) -> Option<Mask> {
        self.turned
    }

    /// The next run has these packets turn, which their flows have passed, and nothing else.
    pub fn turn(&mut self, turning: Mask) {
        self.turning = turning;
    }

    /// Whether packets that have turned, or waited, are to go on here.
    #[inline(always)]
    pub fn has_rest(&self) -> bool {
        !self.rest.is_empty()
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
        while let Some((interface, whole, turned)) = self.next(burst) {
            let id = InterfaceId(interface);
            if context.has_interface(id) {
                context.packets.begin(id, Tags::Off);
                // It was counted where it came in, and reassembly is behind it.
                context.packets.first_whole = Some(Burst::CAPACITY);
                (self.whole, self.turned) = (whole, turned);
                return;
            }
            out.drop_burst(self.no_interface, burst);
        }
    }

    /// Makes the burst the next packets of one interface, of which all have turned or none; which
    /// of them were put together from fragments, the interface, and what [`turned`](Self::turned)
    /// says.
    fn next(&mut self, burst: &mut Burst) -> Option<(u16, Mask, Option<Mask>)> {
        if self.rest.is_empty() && !burst.is_empty() {
            let mut handed = burst.iter().map(Packet::user::<Handed>);
            let interface = handed.next().map_or(0, |first| first.interface);
            let is_one = handed
                .all(|other| other.interface == interface && !(other.is_whole | other.has_turned));
            let first: Handed = burst.as_packets()[0].user();
            if is_one && !first.has_turned {
                return Some((interface, first.is_whole.into(), None));
            }
        }
        self.rest.extend(burst.drain());
        let first = self.rest.front()?.user::<Handed>();
        let (mut whole, mut originals) = (0, 0);
        while burst.room() > 0
            && let Some(handed) = self.rest.front().map(Packet::user::<Handed>)
            && (handed.interface, handed.has_turned) == (first.interface, first.has_turned)
            && let Some(packet) = self.rest.pop_front()
        {
            whole |= Mask::from(handed.is_whole) << burst.len();
            originals |= Mask::from(handed.has_original) << burst.len();
            // There is room.
            let _ = burst.push(packet);
        }
        let turned = first.has_turned.then_some(originals);
        Some((first.interface, whole, turned))
    }

    /// Takes the packets that turn out of the burst: they go to the owners of the ports that they
    /// are for now, which may be this worker.
    #[cold]
    fn take_turning(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        let (all, turning) = (burst.mask(), std::mem::take(&mut self.turning));
        let parsed = &context.packets.parsed;
        let (v4, icmp) = (parsed.class.v4, parsed.class.icmp);
        let mut leaving = Burst::new();
        let mut index = 0;
        burst.retain(&mut leaving, |_| {
            index += 1;
            turning >> (index - 1) & 1 == 0
        });
        let whole = context.packets.marks.whole;
        let mut sorted = Sorted {
            turned: true,
            ..Sorted::default()
        };
        for (place, from) in ones(turning & all).enumerate() {
            let packet = &mut leaving.as_packets_mut()[place];
            let parsed = &context.packets.parsed;
            let port = match v4 >> from & 1 {
                1 => parsed.keys4[from].dst_port(),
                _ => parsed.keys6[from].dst_port(),
            };
            let port = match icmp >> from & 1 {
                0 => port,
                _ => quoted_port(packet).unwrap_or(port),
            };
            self.buckets[place] = of_port(port);
            sorted.mask |= 1 << place;
            sorted.whole |= (whole >> from & 1) << place;
            let has_original = context.packets.depart(from, packet);
            sorted.originals |= Mask::from(has_original) << place;
        }
        // As they came to the first worker.
        leaving.port = match leaving.as_packets().first() {
            Some(first) if self.is_handed(burst.port) => first.port(),
            _ => burst.port,
        };
        let (gone, port) = (turning & all, leaving.port);
        let (owners, buckets) = (self.sorter.owners(), &self.buckets);
        context.close_up(all, gone, |index| {
            let place = (gone & !(Mask::MAX << index)).count_ones() as usize;
            format!("turns, to worker {}", owners.of(buckets[place]))
        });
        let interface = context.packets.interface.0;
        let before = leaving.len() as u64;
        let left = self.sort(&mut leaving, sorted, interface, out);
        self.hand_over.packets += before - leaving.len() as u64;
        for (index, mut packet) in ones(sorted.mask & !left).zip(leaving.drain()) {
            packet.set_port(port);
            packet.set_user(sorted.handed(index, interface, self.buckets[index]));
            self.rest.push_back(packet);
        }
    }

    /// Hands packets of one interface over whose buckets, which are known, are others'.
    #[inline(always)]
    fn sort(
        &mut self,
        burst: &mut Burst,
        sorted: Sorted,
        interface: u16,
        out: &mut Egress,
    ) -> Mask {
        let (buckets, across) = (&*self.buckets, &mut self.across);
        let mark = |index: usize| sorted.handed(index, interface, buckets[index]);
        let ready = |owner: Owner, packets: &mut Burst, cache: &mut PoolCache| {
            if let Some(across) = across {
                across.ready(owner, interface, packets, cache);
            }
        };
        self.sorter
            .sort(burst, (buckets, sorted.mask), mark, ready, out)
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
                Some(
                    self.classes
                        .one_from(&quote.key, context.packets.interface.0),
                )
            }
            _ => None,
        }
    }
}

/// The port that an answer to what an ICMP error quotes would be for.
fn quoted_port(packet: &Packet) -> Option<u16> {
    let headers = linerate_wire::parse(packet.data()).ok()?;
    Some(match Quote::read(packet.data(), &headers).ok()?.key {
        FlowKey::V4(key) => key.dst_port(),
        FlowKey::V6(key) => key.dst_port(),
    })
}

impl Stage<Context<'_>> for Dispatch {
    fn run(&mut self, burst: &mut Burst, context: &mut Context<'_>, out: &mut Egress) {
        if self.turning != 0 {
            return self.take_turning(burst, context, out);
        }
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
        let from = packets.interface.0;
        self.classes
            .buckets(&packets.parsed, from, &mut self.buckets);
        for index in ones(tracked & packets.parsed.class.icmp) {
            if let Some(bucket) = self.of_icmp(index, &burst.as_packets()[index], context) {
                self.buckets[index] = bucket;
            }
        }
        let id = context.packets.interface.0;
        let sorter = &self.sorter;
        if self.hand_over.is_watched() {
            let is_others = |index: &usize| sorter.owners().of(self.buckets[*index]) != sorter.me();
            for index in ones(tracked).filter(is_others) {
                self.hand_over
                    .see_one(burst.port, &burst.as_packets()[index]);
            }
        }
        let began = self.hand_over.starts();
        let sorted = Sorted {
            mask: tracked,
            whole,
            ..Sorted::default()
        };
        let gone = self.sort(burst, sorted, id, out);
        match self.hand_over.is_watched() {
            true => self.hand_over.ends(began, all.count_ones().into()),
            false => self.hand_over.packets += u64::from(gone.count_ones()),
        }
        if gone != 0 {
            let (owners, buckets) = (self.sorter.owners(), &self.buckets);
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
