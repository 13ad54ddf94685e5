//! How a connection comes to be: what client and server tell each other, and what is checked of it.
//!
//! A client makes the memory and tells where its rings are; a server collects regions and rings,
//! and uses them once the client has said that it is all. [`control`](super::control) calls this
//! message by message.

use super::control::{Connection, Control, End, Phase, bad};
use super::exposed::Exposed;
use super::layout::Shape;
use super::message::{Message, RingPlace, SECRET_LEN, VERSION};
use super::receive::RxRing;
use super::ring::{MAX_LOG2_SIZE, NoRing, Regions, Ring};
use super::transmit::TxRing;
use crate::peer::kick;
use crate::peer::violations::Violation;
use linerate_core::mem::{FileFrom, Untrusted};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most regions of a peer.
const MOST_REGIONS: u16 = 256;
/// Most memory of a peer that is mapped: the sum of its regions.
const MOST_BYTES: u64 = 64 << 30;

/// What a client made and told.
pub(super) struct Offer {
    shape: Shape,
    regions: Arc<Regions>,
    /// An eventfd of each ring.
    files: Vec<OwnedFd>,
    /// Whose slots take the place of buffers.
    exposed: Option<Exposed>,
}

/// What a server was told.
#[derive(Default)]
pub(super) struct Told {
    regions: Vec<Untrusted>,
    bytes: u64,
    rings: Vec<(RingPlace, OwnedFd)>,
}

impl Control {
    /// A client answers HELLO: makes its memory and says which interface it wants.
    pub(super) fn introduce(
        &mut self,
        connection: &mut Connection,
        hello: Message,
    ) -> Result<(), End> {
        let Message::Hello {
            name,
            versions,
            max_region,
            max_to_server,
            max_to_client,
            max_log2_size,
        } = hello
        else {
            return Ok(());
        };
        connection.peer.name = name;
        if !(versions.0..=versions.1).contains(&VERSION) {
            let ((low, low_minor), (high, high_minor)) = (split(versions.0), split(versions.1));
            return Err(End::Refused(format!(
                "memif {low}.{low_minor} to {high}.{high_minor} is spoken there, 2.0 here"
            )));
        }
        let most = |ours: usize, highest: u16| ours.min(usize::from(highest) + 1) as u16;
        let shape = Shape {
            to_server: most(self.shared.tx.len(), max_to_server),
            to_client: most(self.shared.rx.len(), max_to_client),
            log2_size: self.settings.log2_size.min(max_log2_size),
            buffer_bytes: self.settings.buffer_bytes,
            has_buffers: self.exposed.is_none(),
        };
        let failed = |error: std::io::Error| End::Refused(format!("out of resources: {error}"));
        let exposed = self.exposed.as_ref();
        let exposed = exposed.map_or(Ok(Vec::new()), |exposed| exposed.pools.files());
        let exposed = exposed.map_err(failed)?;
        if exposed.len() > usize::from(max_region) {
            let (ours, theirs) = (exposed.len(), max_region);
            return Err(End::Refused(format!(
                "{ours} pools are to be shared, and the peer takes {theirs} regions besides the \
                 rings'"
            )));
        }
        let (file, regions) = shape.make(&self.settings.port).map_err(failed)?;
        let mut rest = VecDeque::new();
        let region = Message::AddRegion {
            index: 0,
            bytes: shape.bytes() as u64,
        };
        rest.push_back((region, Some(file)));
        for (index, (file, bytes)) in (1..).zip(exposed) {
            rest.push_back((Message::AddRegion { index, bytes }, Some(file)));
        }
        let mut files = Vec::new();
        for place in shape.places() {
            let file = kick::new_eventfd().map_err(failed)?;
            let theirs = file.try_clone().map_err(failed)?;
            rest.push_back((Message::AddRing(place), Some(theirs)));
            files.push(file);
        }
        let connect = Message::Connect {
            name: self.settings.interface.clone(),
        };
        rest.push_back((connect, None));
        connection.regions = Arc::new(regions);
        let regions = connection.regions.clone();
        let offer = Offer {
            shape,
            regions,
            files,
            exposed: self.exposed.clone(),
        };
        connection.phase = Phase::Telling(rest, offer);
        let init = Message::Init {
            version: VERSION,
            id: self.settings.id,
            mode: 0,
            secret: self.settings.secret,
            name: self.settings.program.clone(),
        };
        connection.say(&init, None)
    }

    /// A client's rings come into use: the server has said that it uses them.
    pub(super) fn use_own(&mut self, connection: &mut Connection) -> Result<(), End> {
        let Phase::Telling(_, offer) = std::mem::replace(&mut connection.phase, Phase::Up) else {
            return Ok(());
        };
        let shape = offer.shape;
        let no_ring = |_| End::Refused("its own rings are gone".into());
        let exposed = offer.exposed.as_ref();
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for ((number, place), file) in shape.places().into_iter().enumerate().zip(offer.files) {
            let RingPlace {
                offset, log2_size, ..
            } = place;
            let ring = Ring::new(&offer.regions, 0, offset, log2_size).map_err(no_ring)?;
            let (index, buffers) = (usize::from(place.index), shape.buffers(number));
            if place.to_server {
                let ring = match exposed {
                    None => TxRing::new(ring, Some(buffers)),
                    Some(pools) => TxRing::of_slots(ring, pools),
                };
                sends.push((index, ring, file));
            } else {
                let ring = match exposed {
                    None => RxRing::new(ring, Some(buffers)),
                    Some(pools) => RxRing::of_slots(ring, pools),
                };
                receives.push((index, ring, file));
            }
        }
        self.use_rings(sends, receives)?;
        self.up(connection, shape.to_server.into(), shape.to_client.into());
        Ok(())
    }

    /// A server reads INIT.
    pub(super) fn begin(&mut self, connection: &mut Connection, init: Message) -> Result<(), End> {
        let Message::Init {
            version,
            mode,
            secret,
            name,
            ..
        } = init
        else {
            return Err(bad("the first message is no INIT"));
        };
        connection.peer.name = name;
        if version != VERSION {
            let (major, minor) = split(version);
            return Err(End::Refused(format!(
                "memif {major}.{minor} is spoken there, 2.0 here"
            )));
        }
        if mode != 0 {
            return Err(End::Refused(format!("mode {mode} is not Ethernet's, 0")));
        }
        if self.settings.secret != [0; SECRET_LEN] && !same(&self.settings.secret, &secret) {
            return Err(End::Refused("wrong secret".into()));
        }
        connection.say(&Message::Ack, None)
    }

    /// A server's rings come into use.
    pub(super) fn use_told(&mut self, connection: &mut Connection) -> Result<(), End> {
        let Phase::Listening(told) = std::mem::replace(&mut connection.phase, Phase::Up) else {
            return Ok(());
        };
        let regions = Arc::new(Regions(told.regions));
        connection.regions = regions.clone();
        let mut counts = (0, 0);
        let mut made = Vec::new();
        for (place, file) in told.rings {
            let ring = Ring::new(&regions, place.region, place.offset, place.log2_size);
            let ring = ring.map_err(|reason| no_ring(place, reason))?;
            match place.to_server {
                true => counts.0 += 1,
                false => counts.1 += 1,
            }
            made.push((place, ring, file));
        }
        // Numbers are below the counts of queues and none is there twice; so none is left out.
        let highest = |to_server| {
            let of = made
                .iter()
                .filter(|(place, ..)| place.to_server == to_server);
            of.map(|(place, ..)| usize::from(place.index) + 1)
                .max()
                .unwrap_or(0)
        };
        if (highest(true), highest(false)) != counts {
            return Err(bad("rings are left out"));
        }
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (place, ring, file) in made {
            let index = usize::from(place.index);
            if place.to_server {
                receives.push((index, RxRing::new(ring, None), file));
            } else {
                sends.push((index, TxRing::new(ring, None), file));
            }
        }
        self.use_rings(sends, receives)?;
        let connected = Message::Connected {
            name: self.settings.interface.clone(),
        };
        connection.say(&connected, None)?;
        self.up(connection, counts.0, counts.1);
        Ok(())
    }

    /// Gives workers their rings, each with its number and eventfd. Those to send to come first:
    /// what a worker has received it may send at once, and without a ring that would be dropped.
    fn use_rings(
        &mut self,
        sends: Vec<(usize, TxRing, OwnedFd)>,
        receives: Vec<(usize, RxRing, OwnedFd)>,
    ) -> Result<(), End> {
        let failed = |error: std::io::Error| End::Refused(format!("out of resources: {error}"));
        let (name, count) = (format!("{} notify", self.settings.interface), sends.len());
        for (index, ring, file) in sends {
            let set = self.notifier.set(index, Some(file), &name);
            set.map_err(failed)?;
            self.shared.put_tx(index, ring);
        }
        self.shared.tx_rings.store(count, Ordering::Release);
        for (index, ring, file) in receives {
            self.shared.wakeups[index].watch(file).map_err(failed)?;
            let first = |ring: &mut RxRing| ring.lend_first(index);
            self.shared.put_rx(index, ring, first);
        }
        Ok(())
    }

    fn up(&mut self, connection: &mut Connection, to_server: usize, to_client: usize) {
        let peer = &mut connection.peer;
        peer.rings = (to_server, to_client);
        let exposed = self.exposed.as_ref();
        let exposed = exposed.map_or(0, |exposed| exposed.pools.spans().len());
        peer.regions = connection.regions.0.len() + exposed;
        peer.sealed = connection.regions.0.iter().all(Untrusted::is_sealed);
        peer.ring_size = self.shared.ring_size();
        self.shared.set_up(peer.clone());
    }
}

/// In a time that does not tell how much of it is right.
fn same(ours: &[u8; SECRET_LEN], theirs: &[u8; SECRET_LEN]) -> bool {
    let pairs = ours.iter().zip(theirs);
    pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn split(version: u16) -> (u16, u16) {
    (version >> 8, version & 0xff)
}

fn no_ring(place: RingPlace, reason: NoRing) -> End {
    let RingPlace {
        index,
        region,
        offset,
        log2_size,
        ..
    } = place;
    let why = match reason {
        NoRing::Size => format!("2^{log2_size} descriptors are more than 2^{MAX_LOG2_SIZE}"),
        NoRing::Outside => "it is outside of the region, or not aligned".into(),
        NoRing::Cookie => "its cookie is wrong".into(),
    };
    let detail = format!("ring {index} at {offset} of region {region}: {why}");
    End::Fault((Violation::RingOutside, detail))
}

impl Told {
    pub(super) fn add_region(
        &mut self,
        index: u16,
        bytes: u64,
        file: Option<OwnedFd>,
    ) -> Result<(), End> {
        let region = |detail: String| End::Fault((Violation::RegionBad, detail));
        if usize::from(index) != self.regions.len() || index >= MOST_REGIONS {
            let next = self.regions.len();
            return Err(region(format!(
                "region {index}, where {next} would be next"
            )));
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_BYTES {
            let most = MOST_BYTES >> 30;
            return Err(region(format!("regions of more than {most} GiB together")));
        }
        let Some(file) = file else {
            return Ok(());
        };
        let name = format!("region {index}");
        let memory = Untrusted::map(&name, file.as_fd(), 0, bytes as usize, FileFrom::Peer);
        let memory = memory.map_err(|error| region(error.to_string()))?;
        self.regions.push(memory);
        Ok(())
    }

    /// `queues`: those from client to server, and those from server to client.
    pub(super) fn add_ring(
        &mut self,
        place: RingPlace,
        file: Option<OwnedFd>,
        queues: (usize, usize),
    ) -> Result<(), End> {
        let most = if place.to_server { queues.0 } else { queues.1 };
        if usize::from(place.index) >= most {
            return Err(bad(format!("ring {}, of {most}", place.index)));
        }
        let twice = |&(known, _): &(RingPlace, OwnedFd)| {
            (known.to_server, known.index) == (place.to_server, place.index)
        };
        if self.rings.iter().any(twice) {
            return Err(bad(format!("ring {} twice", place.index)));
        }
        if place.private_header != 0 {
            return Err(bad("a private header in front of packets"));
        }
        let Some(file) = file else {
            return Ok(());
        };
        if !kick::is_eventfd(file.as_fd()).unwrap_or(false) {
            let detail = format!("the descriptor of ring {}", place.index);
            return Err(End::Fault((Violation::NotEventfd, detail)));
        }
        self.rings.push((place, file));
        Ok(())
    }

    /// For fuzzing: what was told.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn into_parts(self) -> (Vec<Untrusted>, Vec<RingPlace>) {
        let places = self.rings.into_iter().map(|(place, _)| place);
        (self.regions, places.collect())
    }
}
