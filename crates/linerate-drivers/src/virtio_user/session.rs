//! How the driver sets its device up over a vhost-user socket: a fixed row of requests, answers
//! within a deadline, and fresh memory for each peer.
//!
//! Unless the peer just ended, kept a record of what it had in flight (`GET_INFLIGHT_FD`), and
//! comes again as the same user who agrees on the same: then it gets the same memory with what is
//! in its rings, and the record.

use crate::peer::exposed::ExposedPools;
use crate::peer::kick::{self, Notifier};
use crate::peer::socket;
use crate::peer::violations::Violation;
use crate::vhost::control::{Shared, Side};
use crate::vhost::message::{Channel, End, Message, bad, feature, protocol, request};
use crate::vhost::{describe, inflight_fields, memory_file};
use crate::virtqueue::active::{Active, AnyRing};
use crate::virtqueue::frames::Shape;
use crate::virtqueue::inflight::Area;
use crate::virtqueue::lent::{self, Lent};
use crate::virtqueue::memory::{Memory, Region};
use crate::virtqueue::queue::takes;
use crate::virtqueue::{Agreed, Filled, buffers, packed, split};
use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::port::Link;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// What the user wants of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) pairs: usize,
    pub(super) size: u16,
    pub(super) buffer: u32,
    pub(super) packed: bool,
    pub(super) in_order: bool,
    pub(super) mergeable: bool,
    pub(super) offloads: bool,
    /// What a back end leaves in the rings is for the next one.
    pub(super) inflight: bool,
    /// There are slots for unsegmented frames.
    pub(super) large: bool,
    /// Buffers are slots of ours: `trust=full`.
    pub(super) lends: bool,
}

/// Whose slots are lent.
pub(super) struct Lending {
    pub(super) pools: ExposedPools,
    /// The application's number of the port, and the receive queues that it has.
    pub(super) port: u16,
    pub(super) queues: usize,
}

const PROTOCOL: u64 =
    protocol::MQ | protocol::REPLY_ACK | protocol::STATUS | protocol::INFLIGHT_SHMFD;
/// Both names that our memory has at the peer begin here: an address that is none of its own.
const BASE: u64 = 1 << 40;
const PAGE: usize = 4096;
/// Peers that get the same memory and go before all is set up, before there is fresh memory.
const MOST_FAILURES: u32 = 1;
/// virtio 1.2, 2.1: ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK.
const RUNNING: u64 = 15;

impl Wish {
    fn features(&self) -> u64 {
        let mut wish = feature::VERSION_1
            | feature::MQ
            | feature::EVENT_IDX
            | feature::ANY_LAYOUT
            | feature::PROTOCOL_FEATURES;
        for (wanted, bit) in [
            (self.packed, feature::RING_PACKED),
            (self.in_order, feature::IN_ORDER),
            (self.mergeable, feature::MRG_RXBUF),
            (self.offloads, feature::HOST_OFFLOADS | feature::GUEST_CSUM),
            (
                self.offloads && self.large && self.mergeable,
                feature::GUEST_OFFLOADS,
            ),
        ] {
            if wanted {
                wish |= bit;
            }
        }
        wish
    }

    /// Bytes of a queue's parts, each on pages of its own, and of its buffers if it has any.
    fn parts(&self, packed: bool) -> [usize; 4] {
        let [a, b, c] = match packed {
            true => packed::bytes(self.size),
            false => split::bytes(self.size),
        };
        let buffers = match self.lends {
            true => 0,
            false => buffers::bytes(self.size, self.buffer),
        };
        [a, b, c, buffers].map(|bytes| bytes.next_multiple_of(PAGE))
    }

    /// Where a queue's parts and its buffers are, for the peer.
    fn places(&self, packed: bool, index: usize) -> [u64; 4] {
        let parts = self.parts(packed);
        let each: usize = parts.iter().sum();
        let mut next = BASE + (index * each) as u64;
        parts.map(|bytes| {
            let at = next;
            next += bytes as u64;
            at
        })
    }
}

/// The front end's side.
pub(super) struct FrontEnd {
    shared: Arc<Shared>,
    wish: Wish,
    lending: Option<Lending>,
    port: String,
    notifier: Option<Notifier>,
    /// Of the peer that is there, or of the last one, if the next one can go on with it.
    memory: Option<Shareable>,
    /// The driver's ends of its rings.
    rings: Vec<AnyRing>,
    /// Peers in a row that went before they had all of it.
    failures: u32,
}

/// Memory that a peer has, and its next one may have.
struct Shareable {
    memory: Arc<Memory>,
    file: OwnedFd,
    record: Option<Record>,
    agreement: Agreement,
    /// As whom the peer runs.
    user: Option<u32>,
}

/// The region of what is in flight.
struct Record {
    file: OwnedFd,
    mapped: Arc<Untrusted>,
    /// Of the message about it: bytes, offset, queues and their size.
    fields: [u64; 3],
}

impl Shareable {
    /// Where rings are to go on, by what the last peer left there. `None` where that is nothing
    /// that a driver goes on with, or a device that goes by the record.
    fn bases(&self, rings: &[AnyRing], size: u16) -> Option<Vec<u32>> {
        let record = self.record.as_ref()?;
        let packed = self.agreement.has(feature::RING_PACKED);
        let bases = rings.iter().enumerate().map(|(index, ring)| {
            let area = Area::new(record.mapped.clone(), index, packed, size, size)?;
            let agrees = ring.agrees(&self.memory, &area);
            ring.used(&self.memory).filter(|_| agrees)
        });
        bases.collect()
    }
}

/// What was agreed on with a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Agreement {
    features: u64,
    protocol: u64,
    pairs: usize,
}

impl Agreement {
    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }
}

impl FrontEnd {
    pub(super) fn new(
        port: &str,
        wish: Wish,
        lending: Option<Lending>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            shared,
            wish: Wish {
                lends: lending.is_some(),
                ..wish
            },
            lending,
            port: port.into(),
            notifier: None,
            memory: None,
            rings: Vec::new(),
            failures: 0,
        }
    }

    fn agree(&self, channel: &mut Channel) -> Result<Agreement, End> {
        let bell = &*self.shared.bell;
        let mut ask = |request| channel.ask(&Message::new(request), bell)?.u64();
        let offered = ask(request::GET_FEATURES)?;
        let mut features = offered & self.wish.features();
        let mut agreed = 0;
        let mut pairs = 1;
        if features & feature::PROTOCOL_FEATURES != 0 {
            agreed = ask(request::GET_PROTOCOL_FEATURES)? & PROTOCOL;
            if !self.wish.inflight {
                agreed &= !protocol::INFLIGHT_SHMFD;
            }
            if agreed & protocol::MQ != 0 {
                let most = ask(request::GET_QUEUE_NUM)?;
                pairs = usize::try_from(most).unwrap_or(usize::MAX);
            }
        }
        let pairs = match features & feature::MQ != 0 {
            true => pairs.clamp(1, self.wish.pairs),
            false => 1,
        };
        if pairs == 1 {
            features &= !feature::MQ;
        }
        if features & feature::CSUM == 0 {
            features &= !feature::HOST_OFFLOADS;
        }
        if features & feature::GUEST_CSUM == 0 {
            features &= !feature::GUEST_OFFLOADS;
        }
        if features & feature::PROTOCOL_FEATURES != 0 {
            channel.send(&Message::with_u64(request::SET_PROTOCOL_FEATURES, agreed))?;
        }
        Ok(Agreement {
            features,
            protocol: agreed,
            pairs,
        })
    }

    /// Fresh memory for the queues, and its file: it can neither shrink nor grow.
    fn memory(&self, bytes: usize) -> Result<(Arc<Memory>, OwnedFd), End> {
        let file = memory_file("virtio_user", bytes);
        let file = file.map_err(|error| End::Unfit(format!("no memory to share: {error}")))?;
        let mapped = Untrusted::map(&self.port, file.as_fd(), 0, bytes, FileFrom::User);
        let mapped = mapped.map_err(|error| End::Unfit(error.to_string()))?;
        let region = Region {
            guest: BASE,
            user: BASE,
            mapped: Arc::new(mapped),
        };
        let memory = Memory::new(vec![region]).map_err(|what| End::Unfit(what.into()))?;
        Ok((Arc::new(memory), file))
    }

    /// The driver's end of a queue, its rings and buffers as [`Wish::places`] has them.
    fn ring(
        &self,
        memory: &Memory,
        index: usize,
        agreement: &Agreement,
    ) -> Result<AnyRing, Violation> {
        let Wish { size, buffer, .. } = self.wish;
        let packed = agreement.has(feature::RING_PACKED);
        let [parts @ .., buffers] = self.wish.places(packed, index);
        let filled = match index % 2 {
            0 => Filled::ByDevice,
            _ => Filled::ByDriver,
        };
        let agreed = Agreed {
            in_order: agreement.has(feature::IN_ORDER),
            event_index: agreement.has(feature::EVENT_IDX),
            indirect: false,
        };
        let place = |part: usize, bytes| memory.place(parts[part], bytes);
        let [x, y, z] = match packed {
            true => packed::bytes(size),
            false => split::bytes(size),
        };
        let (Some(first), Some(second), Some(third)) = (place(0, x), place(1, y), place(2, z))
        else {
            return Err(Violation::RingOutside);
        };
        let split = split::Places {
            table: first,
            available: second,
            used: third,
        };
        let at = packed::Places {
            ring: first,
            driver: second,
            device: third,
        };
        let mut ring = match (packed, self.lending.as_ref()) {
            (true, Some(Lending { pools, .. })) => {
                let room = lent::room(pools);
                let driver = packed::Driver::of_slots(size, at, agreed, filled, room);
                AnyRing::PackedLent(Box::new(Lent::new(driver, pools)))
            }
            (false, Some(Lending { pools, .. })) => {
                let room = lent::room(pools);
                let driver = split::Driver::of_slots(size, split, agreed, filled, room);
                AnyRing::SplitLent(Box::new(Lent::new(driver, pools)))
            }
            (true, None) => {
                let mut driver = packed::Driver::new(size, at, agreed, filled, buffers, buffer);
                if filled == Filled::ByDevice {
                    driver.offer_all(memory)?;
                }
                AnyRing::PackedDriver(driver)
            }
            (false, None) => {
                let mut driver = split::Driver::new(size, split, agreed, filled, buffers, buffer);
                if filled == Filled::ByDevice {
                    driver.offer_all(memory)?;
                }
                AnyRing::SplitDriver(driver)
            }
        };
        ring.as_dyn().want(memory, false);
        Ok(ring)
    }

    /// Describes a queue to the device, and starts it.
    fn start(
        &mut self,
        channel: &mut Channel,
        index: usize,
        base: u32,
        agreement: &Agreement,
    ) -> Result<(), End> {
        let vring = index as u32;
        let packed = agreement.has(feature::RING_PACKED);
        let [table, available, used, _] = self.wish.places(packed, index);
        let call = kick::new_eventfd().map_err(unfit)?;
        let ours = call.try_clone().map_err(unfit)?;
        if index.is_multiple_of(2) {
            self.shared.wakeups[index / 2].watch(ours).map_err(unfit)?;
        }
        let bell = kick::new_eventfd().map_err(unfit)?;
        let name = format!("{} notify", self.port);
        if let Some(notifier) = &mut self.notifier {
            let bell = bell.try_clone().map_err(unfit)?;
            notifier.set(index, Some(bell), &name).map_err(unfit)?;
        }
        let with_file = |request, file| Message {
            files: vec![file],
            ..Message::with_u64(request, index as u64)
        };
        // DPDK's back end wants to know first whom to call.
        channel.send(&with_file(request::SET_VRING_CALL, call))?;
        let size = self.wish.size.into();
        for message in [
            Message::with_state(request::SET_VRING_NUM, vring, size),
            Message::with_state(request::SET_VRING_BASE, vring, base),
            Message::with_words(
                request::SET_VRING_ADDR,
                &[index as u64, table, used, available, 0],
            ),
            with_file(request::SET_VRING_KICK, bell),
        ] {
            channel.send(&message)?;
        }
        Ok(())
    }

    /// Whether what was agreed on will do for a queue of our slots.
    fn fits(&self, agreement: &Agreement) -> Result<(), End> {
        let Some(Lending { pools, .. }) = &self.lending else {
            return Ok(());
        };
        if pools.is_lost() {
            let detail = "huge pages were taken out of a pool that peers map; start anew";
            return Err(End::Broke(Violation::MemoryLost, detail.into()));
        }
        if !agreement.has(feature::VERSION_1) {
            let reason = "it knows no VERSION_1, which `trust=full` needs: leave that out";
            return Err(End::Unfit(reason.into()));
        }
        Ok(())
    }

    fn negotiate(&mut self, channel: &mut Channel) -> Result<Agreement, End> {
        let agreement = self.agree(channel)?;
        self.fits(&agreement)?;
        let acknowledged = agreement.protocol & protocol::REPLY_ACK != 0;
        let count = 2 * agreement.pairs;
        let user = socket::user_of(channel.socket());
        let same = |was: &Shareable| was.agreement == agreement && was.user == user;
        let before = self.memory.take().filter(same);
        let rings = std::mem::take(&mut self.rings);
        let notified = self.shared.notified.clone();
        self.notifier = Some(Notifier::new(count, notified).map_err(unfit)?);

        let bell = self.shared.bell.clone();
        channel.send(&Message::new(request::SET_OWNER))?;
        let features = Message::with_u64(request::SET_FEATURES, agreement.features);
        channel.tell(features, acknowledged, &bell)?;
        let found = before.and_then(|was| Some((was.bases(&rings, self.wish.size)?, was)));
        let (shareable, rings, bases) = match found {
            Some((bases, was)) if bases.len() == count => (was, rings, bases),
            _ => self.fresh(channel, agreement, user)?,
        };
        let started = self.share(channel, &shareable, acknowledged);
        let started = started.and_then(|()| self.start_all(channel, &bases, &agreement));
        let memory = shareable.memory.clone();
        self.memory = Some(shareable);
        match started {
            Ok(()) => {
                let activated = self.activate(rings, &memory, &agreement);
                activated.map_err(|violation| End::Unfit(violation.name().into()))?;
                self.failures = 0;
                Ok(agreement)
            }
            Err(end) => {
                // It may have used some of them already. But one that goes each time does not like
                // what it gets.
                self.failures += 1;
                if self.failures <= MOST_FAILURES {
                    self.rings = rings;
                } else {
                    (self.memory, self.failures) = (None, 0);
                }
                Err(end)
            }
        }
    }

    fn start_all(
        &mut self,
        channel: &mut Channel,
        bases: &[u32],
        agreement: &Agreement,
    ) -> Result<(), End> {
        for (index, &base) in bases.iter().enumerate() {
            self.start(channel, index, base, agreement)?;
        }
        if agreement.has(feature::PROTOCOL_FEATURES) {
            for index in 0..bases.len() {
                let enable = Message::with_state(request::SET_VRING_ENABLE, index as u32, 1);
                channel.send(&enable)?;
            }
        }
        if agreement.protocol & protocol::STATUS != 0 {
            channel.send(&Message::with_u64(request::SET_STATUS, RUNNING))?;
        }
        // An answer to anything says that all before it was read.
        let bell = self.shared.bell.clone();
        channel.ask(&Message::new(request::GET_FEATURES), &bell)?;
        Ok(())
    }

    /// Memory, rings in it, and where they begin, for a peer that knows nothing of an earlier one.
    fn fresh(
        &self,
        channel: &mut Channel,
        agreement: Agreement,
        user: Option<u32>,
    ) -> Result<(Shareable, Vec<AnyRing>, Vec<u32>), End> {
        let packed = agreement.has(feature::RING_PACKED);
        let (count, each) = (2 * agreement.pairs, self.wish.parts(packed));
        let (memory, file) = self.memory(count * each.iter().sum::<usize>())?;
        let rings = (0..count).map(|index| self.ring(&memory, index, &agreement));
        let rings = rings.collect::<Result<_, _>>();
        let rings = rings.map_err(|violation: Violation| End::Unfit(violation.name().into()))?;
        let mut record = None;
        if agreement.protocol & protocol::INFLIGHT_SHMFD != 0 {
            let numbers = u64::from(self.wish.size) << 16 | count as u64;
            let ask = Message::with_words(request::GET_INFLIGHT_FD, &[0, 0, numbers]);
            let mut answer = channel.ask(&ask, &self.shared.bell)?;
            let ([bytes, offset], ..) = inflight_fields(&answer)?;
            let file = answer.only_file()?;
            let from = FileFrom::Peer;
            let len = usize::try_from(bytes).unwrap_or(usize::MAX);
            let mapped = Untrusted::map(&self.port, file.as_fd(), offset, len, from);
            let mapped =
                mapped.map_err(|error| End::Broke(Violation::RegionBad, error.to_string()))?;
            record = Some(Record {
                file,
                mapped: Arc::new(mapped),
                fields: [bytes, offset, numbers],
            });
        }
        // Both wrap counters of a packed ring begin at 1 (virtio 1.2, 2.8.1).
        let base = if packed { 1 << 15 | 1 << 31 } else { 0 };
        let shareable = Shareable {
            memory,
            file,
            record,
            agreement,
            user,
        };
        Ok((shareable, rings, vec![base; count]))
    }

    /// Gives the peer the memory.
    fn share(
        &self,
        channel: &mut Channel,
        shareable: &Shareable,
        acknowledged: bool,
    ) -> Result<(), End> {
        let region = shareable.memory.regions().iter().map(Region::bytes);
        let mut words = vec![1, BASE, region.sum(), BASE, 0];
        let mut files = vec![shareable.file.try_clone().map_err(unfit)?];
        if let Some(Lending { pools, .. }) = &self.lending {
            for (index, (file, bytes)) in pools.files().map_err(unfit)?.into_iter().enumerate() {
                let at = lent::guest(index);
                words.extend([at, bytes, at, 0]);
                files.push(file);
            }
        }
        words[0] = files.len() as u64;
        let table = Message {
            files,
            ..Message::with_words(request::SET_MEM_TABLE, &words)
        };
        channel.tell(table, acknowledged, &self.shared.bell)?;
        let Some(Record { file, fields, .. }) = &shareable.record else {
            return Ok(());
        };
        let record = Message {
            files: vec![file.try_clone().map_err(unfit)?],
            ..Message::with_words(request::SET_INFLIGHT_FD, fields)
        };
        channel.tell(record, acknowledged, &self.shared.bell)
    }

    fn activate(
        &self,
        rings: Vec<AnyRing>,
        memory: &Arc<Memory>,
        agreement: &Agreement,
    ) -> Result<(), Violation> {
        let Some(notify) = self.notifier.as_ref().map(Notifier::handle) else {
            return Ok(());
        };
        let modern = agreement.has(feature::VERSION_1) || agreement.has(feature::MRG_RXBUF);
        // Those to send to come first: what a worker has received it may send at once, and without
        // a ring that would be dropped.
        let mut rings: Vec<_> = rings.into_iter().enumerate().collect();
        rings.sort_by_key(|(index, _)| index % 2 == 0);
        for (index, ring) in rings {
            let active = Active {
                ring,
                memory: memory.clone(),
                shape: Shape {
                    header_bytes: if modern { 12 } else { 10 },
                    mergeable: agreement.has(feature::MRG_RXBUF),
                    device: false,
                },
                takes: takes([
                    agreement.has(feature::CSUM),
                    agreement.has(feature::HOST_TSO4),
                    agreement.has(feature::HOST_TSO6),
                    agreement.has(feature::HOST_USO),
                ]),
                notify: (notify.clone(), index),
            };
            let lending = self.lending.as_ref();
            let lending = lending.filter(|of| index % 2 == 0 && index / 2 < of.queues);
            self.shared.queues[index].put(active, |active| match lending {
                Some(lending) => active.ring.lend_first(memory, lending.port),
                None => Ok(()),
            })?;
            notify.notify(index); // there are buffers, or what the last peer left
        }
        Ok(())
    }
}

fn unfit(error: io::Error) -> End {
    End::Unfit(error.to_string())
}

impl Side for FrontEnd {
    fn connected(&mut self, channel: &mut Channel) -> Result<(), End> {
        let agreement = self.negotiate(channel)?;
        let mut status = self.shared.status();
        status.link = Link::Up;
        status.facts = vec![
            ("ring", describe(agreement.features)),
            ("features", format!("{:#x}", agreement.features)),
            ("protocol features", format!("{:#x}", agreement.protocol)),
            ("queue pairs", agreement.pairs.to_string()),
            ("ring entries", self.wish.size.to_string()),
        ];
        if agreement.protocol & protocol::INFLIGHT_SHMFD != 0 {
            status.facts.push(("in flight", "tracked".into()));
        }
        Ok(())
    }

    fn message(&mut self, _: &mut Channel, message: Message) -> Result<(), End> {
        Err(bad(format!("request {} to a driver", message.request)))
    }

    fn leaves(&mut self, end: &End) {
        let tracked = self.memory.as_ref().is_some_and(|was| was.record.is_some());
        if !matches!(end, End::Closed) || !tracked {
            (self.memory, self.rings) = (None, Vec::new());
            return;
        }
        let count = self
            .memory
            .as_ref()
            .map_or(0, |was| 2 * was.agreement.pairs);
        let queues = self.shared.queues.iter().take(count);
        let rings = queues.map(|queue| {
            let active = queue.take()?;
            queue.broken().is_none().then_some(active.ring)
        });
        // All, or none; where it went before they ran, they are here already.
        if let Some(rings) = rings.collect::<Option<_>>() {
            self.rings = rings;
        }
        if self.rings.is_empty() {
            self.memory = None;
        }
    }

    fn gone(&mut self) {
        self.notifier = None;
    }
}
