//! What a front end (QEMU, DPDK's virtio-user) sets up, message by message, and the queues that
//! follow from it.
//!
//! A queue runs while its ring is known, lies in the regions, was started by a kick descriptor and
//! is enabled. Whatever changes one of these takes the queue from its worker first, with where it
//! was, and gives it back after. So a worker has never anything of a region that is unmapped.

use super::config::Config;
use super::control::{Shared, Side};
use super::message::{Channel, End, Message, NO_FILE, bad, feature, protocol, request};
use crate::peer::kick::{self, Notifier};
use crate::peer::violations::Violation;
use crate::virtqueue::active::{Active, AnyRing};
use crate::virtqueue::frames::Shape;
use crate::virtqueue::inflight::{self, Area, Inflight};
use crate::virtqueue::log::Log;
use crate::virtqueue::memory::{MOST_REGIONS, Memory, Region};
use crate::virtqueue::packed::{self, Position};
use crate::virtqueue::queue::takes;
use crate::virtqueue::recorded::{Marks, Recordable, Recorded};
use crate::virtqueue::{Agreed, Filled, Look, split};
use linerate_core::mem::{FileFrom, Untrusted};
use linerate_core::port::Link;
use linerate_wire::MacAddr;
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// What the user lets a front end have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Pairs of queues.
    pub(crate) pairs: usize,
    /// Checksums and segments left to the other side, both ways.
    pub(crate) offloads: bool,
    /// There are slots for unsegmented frames.
    pub(crate) large: bool,
}

/// virtio 1.2, 2.1.
const DRIVER_OK: u64 = 4;
/// In the flags of a ring's addresses: VHOST_VRING_F_LOG.
const RING_LOGGED: u64 = 1;
const PROTOCOL: u64 = protocol::MQ
    | protocol::LOG_SHMFD
    | protocol::RARP
    | protocol::REPLY_ACK
    | protocol::NET_MTU
    | protocol::CONFIG
    | protocol::INFLIGHT_SHMFD
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS
    | protocol::STATUS;

impl Offer {
    pub(crate) fn features(&self) -> u64 {
        let mut features = feature::MRG_RXBUF
            | feature::STATUS
            | feature::CTRL_VQ
            | feature::CTRL_RX
            | feature::GUEST_ANNOUNCE
            | feature::MQ
            | feature::MTU
            | feature::LOG_ALL
            | feature::ANY_LAYOUT
            | feature::INDIRECT_DESC
            | feature::EVENT_IDX
            | feature::PROTOCOL_FEATURES
            | feature::VERSION_1
            | feature::RING_PACKED
            | feature::IN_ORDER;
        if self.offloads {
            features |= feature::GUEST_OFFLOADS | feature::CSUM;
            if self.large {
                features |= feature::HOST_OFFLOADS;
            }
        }
        features
    }
}

/// A ring as it was described, and where it is to go on.
#[derive(Debug, Default)]
struct Vring {
    size: u16,
    /// User addresses: table, available, used (a packed ring: ring, driver's and device's wishes).
    parts: Option<[u64; 3]>,
    /// Where the log has the used ring, if writes to it are logged.
    log: Option<u64>,
    /// As `SET_VRING_BASE` has it; `None`: from the start.
    base: Option<u32>,
    started: bool,
    enabled: bool,
}

/// The region of what is in flight, for queues of so many entries.
struct Tracked {
    mapped: Arc<Untrusted>,
    size: u16,
}

/// One front end's connection.
#[derive(Default)]
struct Session {
    features: u64,
    protocol: u64,
    regions: Vec<Region>,
    memory: Option<Arc<Memory>>,
    vrings: Vec<Vring>,
    status: u64,
    mtu: Option<u64>,
    config: Config,
    log: Option<Log>,
    tracked: Option<Tracked>,
}

/// The back end's side.
pub(crate) struct Backend {
    shared: Arc<Shared>,
    offer: Offer,
    port: String,
    session: Session,
    notifier: Option<Notifier>,
}

impl Backend {
    pub(crate) fn new(port: &str, offer: Offer, shared: Arc<Shared>) -> Self {
        Self {
            shared,
            offer,
            port: port.into(),
            session: Session::default(),
            notifier: None,
        }
    }

    fn has(&self, feature: u64) -> bool {
        self.session.features & feature != 0
    }

    fn vring(&mut self, index: u64) -> Result<(usize, &mut Vring), End> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let count = self.session.vrings.len();
        match self.session.vrings.get_mut(at) {
            Some(vring) => Ok((at, vring)),
            None => Err(bad(format!("ring {index} of {count}"))),
        }
    }

    /// Takes a queue from its worker; where it goes on is kept.
    fn pause(&mut self, index: usize) {
        let Some(mut active) = self.shared.queues[index].take() else {
            return;
        };
        active.notify(Look::Late);
        if let Some(base) = active.ring.base() {
            self.session.vrings[index].base = Some(base);
        }
    }

    /// Gives a queue to its worker, if all that it takes is there.
    fn resume(&mut self, index: usize) -> Result<(), Violation> {
        let Some(memory) = self.session.memory.clone() else {
            return Ok(());
        };
        let (Some(notifier), vring) = (&self.notifier, &self.session.vrings[index]) else {
            return Ok(());
        };
        // Without protocol features rings are enabled as they start.
        let enabled = vring.enabled || !self.has(feature::PROTOCOL_FEATURES);
        // virtio 1.2, 2.1.2: a device uses no buffers before DRIVER_OK. A front end that does not
        // tell the status starts rings when they may be used.
        let told = self.session.protocol & protocol::STATUS != 0;
        let enabled = enabled && (!told || self.session.status & DRIVER_OK != 0);
        let (Some(parts), true) = (vring.parts, vring.started && enabled && vring.size > 0) else {
            return Ok(());
        };
        let packed = self.has(feature::RING_PACKED);
        let most = if packed {
            packed::MOST_SIZE
        } else {
            split::MOST_SIZE
        };
        if vring.size > most || !(packed || vring.size.is_power_of_two()) {
            return Err(Violation::RingOutside);
        }
        let bytes = match packed {
            true => packed::bytes(vring.size),
            false => split::bytes(vring.size),
        };
        let place = |part: usize| {
            let found = memory.place(parts[part], bytes[part]);
            found.ok_or(Violation::RingOutside)
        };
        let places = [place(0)?, place(1)?, place(2)?];
        let agreed = Agreed {
            in_order: self.has(feature::IN_ORDER),
            event_index: self.has(feature::EVENT_IDX),
            indirect: self.has(feature::INDIRECT_DESC),
        };
        let filled = match index % 2 {
            0 => Filled::ByDevice,
            _ => Filled::ByDriver,
        };
        let [first, second, third] = places;
        let marks = self.marks(index, &memory, bytes[2])?;
        let area = match &self.session.tracked {
            None => None,
            Some(Tracked { mapped, size: most }) => {
                let area = Area::new(mapped.clone(), index, packed, vring.size, *most);
                let fits = area.filter(|_| vring.size <= *most);
                Some(fits.ok_or(Violation::RegionBad)?)
            }
        };
        let (size, mut inflight) = (vring.size, None);
        let mut ring = if packed {
            let mut position = match vring.base {
                None => Position::START,
                // The upper half would be where used descriptors go, and DPDK's driver leaves it 0;
                // no chain is under way, so it is the same.
                Some(bits) => Position::from_bits(bits as u16),
            };
            if !position.is_in(size) {
                return Err(Violation::RingIndex);
            }
            if let Some(area) = area {
                let (found, at) = packed::Device::inflight(area, &memory, first, size, position)?;
                if let Some(Marks {
                    log, ring: Some(_), ..
                }) = &marks
                    && found.is_left()
                {
                    log.mark(memory.guest(first), bytes[0] as u64)?; // it was put right
                }
                (inflight, position) = (Some(found), at);
            }
            let at = packed::Places {
                ring: first,
                driver: second,
                device: third,
            };
            let device = packed::Device::new(size, at, agreed, filled, [position; 2]);
            recorded(device, AnyRing::PackedDevice, marks, inflight)
        } else {
            let at = split::Places {
                table: first,
                available: second,
                used: third,
            };
            let base = vring.base.unwrap_or(0) as u16;
            let device = split::Device::resume(&memory, size, at, agreed, filled, base)?;
            if let Some(area) = area {
                inflight = Some(device.inflight(area)?);
            }
            recorded(device, AnyRing::SplitDevice, marks, inflight)
        };
        ring.as_dyn().want(&memory, false);
        let modern = self.has(feature::VERSION_1) || self.has(feature::MRG_RXBUF);
        let active = Active {
            ring,
            memory,
            shape: Shape {
                header_bytes: if modern { 12 } else { 10 },
                mergeable: self.has(feature::MRG_RXBUF),
                device: true,
            },
            takes: takes([
                self.has(feature::GUEST_CSUM),
                self.has(feature::GUEST_TSO4),
                self.has(feature::GUEST_TSO6),
                self.has(feature::GUEST_USO4) && self.has(feature::GUEST_USO6),
            ]),
            notify: (notifier.handle(), index),
        };
        self.shared.queues[index].put(active, |_| Ok(()))
    }

    /// What is to be logged of a queue's writes.
    fn marks(
        &self,
        index: usize,
        memory: &Memory,
        used_bytes: usize,
    ) -> Result<Option<Marks>, Violation> {
        let (buffers, ring) = (self.has(feature::LOG_ALL), self.session.vrings[index].log);
        let Some(log) = self.session.log.clone() else {
            return Ok(None);
        };
        if !buffers && ring.is_none() {
            return Ok(None);
        }
        let regions = memory.regions().iter();
        let ranges = regions.map(|region| (region.guest, region.bytes()));
        let used = ring.map(|at| (at, used_bytes as u64));
        if !ranges.chain(used).all(|(at, bytes)| log.covers(at, bytes)) {
            return Err(Violation::LogOutside);
        }
        Ok(Some(Marks { log, buffers, ring }))
    }

    /// Changes what a ring is made of, between two of its bursts.
    fn change(&mut self, index: usize, change: impl FnOnce(&mut Vring)) -> Result<(), End> {
        self.pause(index);
        change(&mut self.session.vrings[index]);
        self.resume(index)
            .map_err(|violation| End::Broke(violation, format!("ring {index}")))
    }

    /// Changes what all rings stand on.
    fn change_all(&mut self, change: impl FnOnce(&mut Session)) -> Result<(), End> {
        self.pause_all();
        change(&mut self.session);
        for index in 0..self.session.vrings.len() {
            self.change(index, |_| {})?;
        }
        Ok(())
    }

    fn pause_all(&mut self) {
        (0..self.session.vrings.len()).for_each(|index| self.pause(index));
    }

    /// Gives the queues a new table of regions. Rings that are not in it rest.
    fn remap(&mut self) -> Result<(), End> {
        let table = Memory::new(self.session.regions.clone());
        let table = table.map_err(|what| End::Broke(Violation::RegionBad, what.into()))?;
        self.session.memory = Some(Arc::new(table));
        for index in 0..self.session.vrings.len() {
            let _ = self.resume(index);
        }
        Ok(())
    }

    /// A region of a message: guest address, bytes, user address, offset into the file.
    fn map(&self, [guest, bytes, user, offset]: [u64; 4], file: &OwnedFd) -> Result<Region, End> {
        let mapped = self.map_file(file, offset, bytes)?;
        Ok(Region {
            guest,
            user,
            mapped: Arc::new(mapped),
        })
    }

    /// A file of a message that is no region of the guest's memory.
    fn map_file(&self, file: &OwnedFd, offset: u64, bytes: u64) -> Result<Untrusted, End> {
        let broke = |detail: String| End::Broke(Violation::RegionBad, detail);
        let len = usize::try_from(bytes).map_err(|_| broke(format!("{bytes} bytes")))?;
        let mapped = Untrusted::map(&self.port, file.as_fd(), offset, len, FileFrom::Peer);
        mapped.map_err(|error| broke(error.to_string()))
    }

    fn set_log(&mut self, message: &mut Message) -> Result<(), End> {
        let [bytes, offset] = message.words()?;
        let file = message.only_file()?;
        let log = Log::new(self.map_file(&file, offset, bytes)?);
        self.change_all(|session| session.log = Some(log))
    }

    /// A fresh region for what is in flight: the front end will hand it to us, and to whoever comes
    /// after us.
    fn new_inflight(&self, message: &Message) -> Result<Message, End> {
        let (_, queues, size) = inflight_fields(message)?;
        if usize::from(queues) > self.session.vrings.len() || size == 0 {
            return Err(bad(format!("to track {queues} queues of {size} entries")));
        }
        let bytes = inflight::bytes(self.has(feature::RING_PACKED), size) * usize::from(queues);
        let file = memory_file("inflight", bytes.max(1)).map_err(unfit)?;
        let numbers = u64::from(size) << 16 | u64::from(queues);
        let answer = Message::with_words(message.request, &[bytes as u64, 0, numbers]);
        Ok(Message {
            // As long as it was asked: some leave the padding behind the numbers out.
            payload: answer.payload[..message.payload.len()].into(),
            files: vec![file],
            ..answer
        })
    }

    fn set_inflight(&mut self, message: &mut Message) -> Result<(), End> {
        let ([bytes, offset], queues, size) = inflight_fields(message)?;
        let file = message.only_file()?;
        let mapped = Arc::new(self.map_file(&file, offset, bytes)?);
        let need = inflight::bytes(self.has(feature::RING_PACKED), size) * usize::from(queues);
        if mapped.len() < need {
            let detail = format!("{bytes} bytes to track {queues} queues of {size} entries");
            return Err(End::Broke(Violation::RegionBad, detail));
        }
        self.change_all(|session| session.tracked = Some(Tracked { mapped, size }))
    }

    /// The answer to a request that is not done, for a front end that asks for one.
    fn refuse(&self, message: &Message, why: &str) -> Result<Option<Message>, End> {
        if self.session.protocol & protocol::REPLY_ACK != 0 && message.needs_reply() {
            return Ok(Some(Message::with_u64(message.request, 1)));
        }
        Err(bad(format!("request {}: {why}", message.request)))
    }

    fn set_memory(&mut self, message: &mut Message) -> Result<(), End> {
        let count = message.word(0) as u32 as usize;
        if message.payload.len() < 8 + count.min(64) * 32 || count != message.files.len() {
            let files = message.files.len();
            return Err(bad(format!("{count} regions with {files} descriptors")));
        }
        self.pause_all();
        self.session.memory = None;
        self.session.regions.clear();
        for (index, file) in std::mem::take(&mut message.files).iter().enumerate() {
            let fields = std::array::from_fn(|field| message.word(1 + 4 * index + field));
            let region = self.map(fields, file)?;
            self.session.regions.push(region);
        }
        self.remap()
    }

    /// Which region is at these addresses.
    fn region(&self, guest: u64, bytes: u64, user: u64) -> Option<usize> {
        let mut regions = self.session.regions.iter();
        regions
            .position(|region| (region.guest, region.bytes(), region.user) == (guest, bytes, user))
    }

    /// QEMU (7.2) says of each region once for each pair of queues that it is there, and that it
    /// goes: the first one to say so is enough.
    fn add_region(&mut self, message: &mut Message) -> Result<(), End> {
        let [_, fields @ ..] = message.words::<5>()?;
        let file = message.only_file()?;
        let [guest, bytes, user, _] = fields;
        let same = self.region(guest, bytes, user);
        if same.is_none() && self.session.regions.len() >= MOST_REGIONS {
            return Err(bad(format!("more than {MOST_REGIONS} regions")));
        }
        let region = self.map(fields, &file)?;
        self.pause_all();
        match same {
            Some(at) => self.session.regions[at] = region,
            None => self.session.regions.push(region),
        }
        self.remap()
    }

    fn remove_region(&mut self, message: &Message) -> Result<(), End> {
        let [_, guest, bytes, user, _] = message.words()?;
        let Some(at) = self.region(guest, bytes, user) else {
            return Ok(());
        };
        self.pause_all();
        self.session.memory = None;
        self.session.regions.remove(at);
        self.remap()
    }

    /// The ring's number of a message about a notification, and the descriptor, if one came.
    fn notification(&self, message: &mut Message) -> Result<(u64, Option<OwnedFd>), End> {
        let value = message.u64()?;
        if value & NO_FILE != 0 {
            return Ok((value & 0xff, None));
        }
        let file = message.only_file()?;
        if !kick::is_eventfd(file.as_fd()).unwrap_or(false) {
            let detail = format!("request {}", message.request);
            return Err(End::Broke(Violation::NotEventfd, detail));
        }
        Ok((value & 0xff, Some(file)))
    }

    fn kick(&mut self, message: &mut Message) -> Result<(), End> {
        let (index, file) = self.notification(message)?;
        let (index, _) = self.vring(index)?;
        if index % 2 == 1 {
            // The driver's transmit queue is what we receive from.
            let wakeups = &self.shared.wakeups[index / 2];
            match file {
                Some(file) => wakeups.watch(file).map_err(unfit)?,
                None => wakeups.unwatch(),
            }
        }
        self.change(index, |vring| vring.started = true)
    }

    fn call(&mut self, message: &mut Message) -> Result<(), End> {
        let (index, file) = self.notification(message)?;
        let (index, _) = self.vring(index)?;
        let name = format!("{} notify", self.port);
        match &mut self.notifier {
            Some(notifier) => notifier.set(index, file, &name).map_err(unfit),
            None => Ok(()),
        }
    }

    fn stop_ring(&mut self, index: u64) -> Result<u32, End> {
        let (index, _) = self.vring(index)?;
        self.pause(index);
        if index % 2 == 1 {
            self.shared.wakeups[index / 2].unwatch();
        }
        let vring = &mut self.session.vrings[index];
        vring.started = false;
        Ok(vring.base.unwrap_or(0))
    }

    fn reset(&mut self) {
        self.pause_all();
        for vring in &mut self.session.vrings {
            // QEMU 7.2 resets a device that stops before it asks where its rings were. Whoever
            // starts them again says where to begin.
            let base = vring.base;
            *vring = Vring {
                base,
                ..Vring::default()
            };
        }
        self.session.status = 0;
        // It was of those rings; the front end asks for a new one.
        self.session.tracked = None;
        self.shared
            .wakeups
            .iter()
            .for_each(|wakeups| wakeups.unwatch());
    }

    /// What a request is answered by; `None` for those without an answer of their own.
    fn answer(&mut self, message: &mut Message) -> Result<Option<Message>, End> {
        let request = message.request;
        let word = |value| Ok(Some(Message::with_u64(request, value)));
        match request {
            request::GET_FEATURES => return word(self.offer.features()),
            request::GET_PROTOCOL_FEATURES => return word(PROTOCOL),
            request::GET_QUEUE_NUM => return word(self.offer.pairs as u64),
            request::GET_MAX_MEM_SLOTS => return word(MOST_REGIONS as u64),
            request::GET_STATUS => return word(self.session.status),
            request::GET_VRING_BASE => {
                let (index, _) = message.state()?;
                let base = self.stop_ring(index.into())?;
                return Ok(Some(Message::with_state(request, index, base)));
            }
            request::SET_FEATURES => {
                let features = message.u64()?;
                if features & !self.offer.features() != 0 {
                    return Err(bad(format!("features {features:#x} that were not offered")));
                }
                self.change_all(|session| session.features = features)?;
            }
            request::SET_PROTOCOL_FEATURES => {
                let features = message.u64()?;
                if features & !PROTOCOL != 0 {
                    return Err(bad(format!("protocol features {features:#x}")));
                }
                self.session.protocol = features;
            }
            request::SET_OWNER | request::RESET_OWNER | request::SET_VRING_ERR => {}
            request::SET_LOG_BASE => {
                self.set_log(message)?;
                // Answered in any case, so that the front end knows when the log is complete.
                return word(0);
            }
            // Who migrates looks at the log when it likes; it need not be told of each page.
            request::SET_LOG_FD => {
                let file = message.only_file()?;
                if !kick::is_eventfd(file.as_fd()).unwrap_or(false) {
                    let detail = format!("request {request}");
                    return Err(End::Broke(Violation::NotEventfd, detail));
                }
            }
            request::GET_INFLIGHT_FD => return self.new_inflight(message).map(Some),
            request::SET_INFLIGHT_FD => self.set_inflight(message)?,
            request::GET_CONFIG => {
                let payload = self.session.config.read(&message.payload);
                return Ok(Some(Message {
                    payload,
                    ..Message::new(request)
                }));
            }
            request::SET_CONFIG => {
                if !self.session.config.write(&message.payload) {
                    return self.refuse(message, "nothing of that can be written");
                }
            }
            request::RESET_DEVICE => self.reset(),
            request::SET_MEM_TABLE => self.set_memory(message)?,
            request::ADD_MEM_REG => self.add_region(message)?,
            request::REM_MEM_REG => self.remove_region(message)?,
            request::SET_VRING_NUM => {
                let (index, size) = message.state()?;
                let (index, _) = self.vring(index.into())?;
                let size = u16::try_from(size).unwrap_or(0);
                if size == 0 || size > split::MOST_SIZE.max(packed::MOST_SIZE) {
                    return Err(bad(format!("ring {index} of an impossible size")));
                }
                self.change(index, |vring| vring.size = size)?;
            }
            request::SET_VRING_ADDR => {
                let [index, table, used, available, log] = message.words()?;
                let logged = index >> 32 & RING_LOGGED != 0;
                let (index, _) = self.vring(index & 0xffff_ffff)?;
                self.change(index, |vring| {
                    vring.parts = Some([table, available, used]);
                    vring.log = logged.then_some(log);
                })?;
            }
            request::SET_VRING_BASE => {
                let (index, base) = message.state()?;
                let (index, _) = self.vring(index.into())?;
                self.change(index, |vring| vring.base = Some(base))?;
            }
            request::SET_VRING_ENABLE => {
                let (index, enabled) = message.state()?;
                let (index, _) = self.vring(index.into())?;
                self.change(index, |vring| vring.enabled = enabled != 0)?;
            }
            request::SET_VRING_KICK => self.kick(message)?,
            request::SET_VRING_CALL => self.call(message)?,
            request::SEND_RARP => {
                let [mac @ .., _, _] = message.u64()?.to_le_bytes();
                if let Some(queue) = self.shared.queues.get(1) {
                    queue.announce(MacAddr(mac));
                }
            }
            request::NET_SET_MTU => {
                let mtu = message.u64()?;
                if !self.session.config.set_mtu(mtu) {
                    return self.refuse(message, &format!("an MTU of {mtu}"));
                }
                self.session.mtu = Some(mtu);
            }
            request::SET_STATUS => {
                let status = message.u64()?;
                if status > 0xff {
                    return Err(bad(format!("a status of {status:#x}")));
                }
                // virtio 1.2, 2.1: a driver writes 0 to reset the device.
                if status == 0 {
                    self.reset();
                }
                self.change_all(|session| session.status = status)?;
            }
            _ => return Err(bad(format!("request {request} is not known"))),
        }
        Ok(None)
    }

    /// What people are told.
    fn show(&self) {
        let active = |index: usize| self.shared.queues[index].is_active();
        let pairs = (0..self.offer.pairs).filter(|pair| active(2 * pair) && active(2 * pair + 1));
        let pairs = pairs.count();
        let mut status = self.shared.status();
        status.link = match pairs {
            0 => Link::Down("the driver has not set a pair of queues up".into()),
            _ => Link::Up,
        };
        let size = |index: usize| self.session.vrings.get(index).map_or(0, |ring| ring.size);
        status.facts = vec![
            ("ring", describe(self.session.features)),
            ("features", format!("{:#x}", self.session.features)),
            ("protocol features", format!("{:#x}", self.session.protocol)),
            ("queue pairs", pairs.to_string()),
            ("ring entries", format!("{}, {}", size(0), size(1))),
        ];
        let mtu = self.session.mtu;
        status
            .facts
            .extend(mtu.map(|mtu| ("MTU of the peer", mtu.to_string())));
        if self.session.tracked.is_some() {
            status.facts.push(("in flight", "tracked".into()));
        }
        if self.session.log.is_some() && self.session.features & feature::LOG_ALL != 0 {
            status.facts.push(("dirty pages", "logged".into()));
        }
    }
}

/// A device's ring, with its record if it has to keep one.
fn recorded<D: Recordable + 'static>(
    device: D,
    plain: fn(D) -> AnyRing,
    marks: Option<Marks>,
    inflight: Option<Inflight>,
) -> AnyRing {
    match marks.is_some() || inflight.is_some() {
        true => AnyRing::Recorded(Box::new(Recorded::new(device, marks, inflight))),
        false => plain(device),
    }
}

/// Bytes and offset of a region of what is in flight; queues, and entries of each.
pub(crate) fn inflight_fields(message: &Message) -> Result<([u64; 2], u16, u16), End> {
    // 20 bytes, which a C compiler makes 24.
    if !matches!(message.payload.len(), 20 | 24) {
        let (request, bytes) = (message.request, message.payload.len());
        return Err(bad(format!("request {request} with {bytes} bytes")));
    }
    let numbers = message.payload[16..].first_chunk::<4>();
    let numbers = numbers.map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let place = [message.word(0), message.word(1)];
    Ok((place, numbers as u16, (numbers >> 16) as u16))
}

/// Memory to share, which can neither shrink nor grow.
pub(crate) fn memory_file(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// The kind of ring, for people.
pub(crate) fn describe(features: u64) -> String {
    let has = |feature: u64| features & feature != 0;
    let mut words = vec![if has(feature::RING_PACKED) {
        "packed"
    } else {
        "split"
    }];
    for (feature, word) in [
        (feature::IN_ORDER, "in order"),
        (feature::MRG_RXBUF, "mergeable"),
        (feature::EVENT_IDX, "event index"),
    ] {
        if has(feature) {
            words.push(word);
        }
    }
    words.join(", ")
}

fn unfit(error: io::Error) -> End {
    End::Unfit(error.to_string())
}

impl Side for Backend {
    fn connected(&mut self, _: &mut Channel) -> Result<(), End> {
        let vrings = (0..2 * self.offer.pairs).map(|_| Vring::default());
        self.session = Session {
            vrings: vrings.collect(),
            config: Config::new(self.offer.pairs),
            ..Session::default()
        };
        let notified = self.shared.notified.clone();
        self.notifier = Some(Notifier::new(2 * self.offer.pairs, notified).map_err(unfit)?);
        self.show();
        Ok(())
    }

    fn message(&mut self, channel: &mut Channel, mut message: Message) -> Result<(), End> {
        let files_belong = matches!(
            message.request,
            request::SET_MEM_TABLE
                | request::SET_LOG_BASE
                | request::SET_LOG_FD
                | request::SET_INFLIGHT_FD
                | request::ADD_MEM_REG
                | request::REM_MEM_REG
                | request::SET_VRING_KICK
                | request::SET_VRING_CALL
                | request::SET_VRING_ERR
        );
        if !files_belong && !message.files.is_empty() {
            let detail = format!("request {} with descriptors", message.request);
            return Err(End::Broke(Violation::FilesBad, detail));
        }
        let answer = self.answer(&mut message)?;
        self.show();
        match answer {
            Some(answer) => channel.reply(&answer),
            None if self.session.protocol & protocol::REPLY_ACK != 0 && message.needs_reply() => {
                channel.reply(&Message::with_u64(message.request, 0))
            }
            None => Ok(()),
        }
    }

    fn gone(&mut self) {
        self.session = Session::default();
        self.notifier = None;
    }
}
