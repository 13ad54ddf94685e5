//! Peers that say and write what a test wants.

use super::super::layout::Shape;
use super::super::message::{LEN, Message, RingPlace, SECRET_LEN, VERSION};
use super::super::ring::{Regions, Ring};
use super::PATIENCE;
use crate::peer::kick::new_eventfd;
use crate::peer::socket::{self, Received, UnixAccess, UnixAddress, UnixKind};
use linerate_core::mem::{FileFrom, Untrusted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The shape of a well-behaved client's memory.
pub(super) const SHAPE: Shape = Shape {
    to_server: 1,
    to_client: 1,
    log2_size: 6,
    buffer_bytes: 2048,
    has_buffers: true,
};

/// One end of a control channel.
pub(super) struct Raw {
    pub(super) socket: OwnedFd,
}

impl Raw {
    /// Waits where more connections than fit have not been accepted yet.
    pub(super) fn connect(path: &str) -> Self {
        let (address, start) = (UnixAddress::parse(path).unwrap(), Instant::now());
        loop {
            match socket::connect(&address, UnixKind::Messages) {
                Ok(socket) => return Self { socket },
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for a client of ours.
    pub(super) fn accept(listener: &OwnedFd) -> Self {
        wait_readable(listener.as_fd());
        let socket = socket::accept(listener.as_fd()).unwrap().unwrap();
        Self { socket }
    }

    pub(super) fn say(&self, message: &Message, files: &[BorrowedFd<'_>]) {
        // The other end may have hung up already.
        let _ = socket::send(self.socket.as_fd(), &message.write(), files);
    }

    pub(super) fn hear(&self) -> (Message, Vec<OwnedFd>) {
        self.hear_or_end().expect("the other end is open")
    }

    /// `None` where the other end has gone.
    fn hear_or_end(&self) -> Option<(Message, Vec<OwnedFd>)> {
        wait_readable(self.socket.as_fd());
        let mut buffer = [0; LEN];
        match socket::receive(self.socket.as_fd(), &mut buffer, 1) {
            Received::Message(len, files) => Some((Message::read(&buffer[..len]).unwrap(), files)),
            Received::Closed => None,
            other => panic!("no message: {other:?}"),
        }
    }

    pub(super) fn hear_ack(&self) {
        assert_eq!(self.hear().0, Message::Ack);
    }

    /// The reason of a DISCONNECT.
    pub(super) fn hear_no(&self) -> String {
        loop {
            if let Message::Disconnect { reason, .. } = self.hear().0 {
                return reason;
            }
        }
    }

    /// To the point where regions are told. The server may not have noticed yet that the client
    /// before is gone.
    pub(super) fn introduce(path: &str) -> Self {
        let start = Instant::now();
        loop {
            let raw = Self::connect(path);
            assert!(matches!(raw.hear().0, Message::Hello { .. }));
            raw.say(&init(), &[]);
            match raw.hear().0 {
                Message::Ack => return raw,
                Message::Disconnect { reason, .. } if reason.contains("another peer") => {
                    assert!(start.elapsed() < PATIENCE, "{reason}");
                    std::thread::sleep(Duration::from_millis(1));
                }
                other => panic!("no ACK: {other:?}"),
            }
        }
    }

    pub(super) fn tell_region(&self, index: u16, bytes: u64, file: &OwnedFd) {
        self.say(&Message::AddRegion { index, bytes }, &[file.as_fd()]);
    }

    pub(super) fn tell_ring(&self, place: RingPlace) {
        let file = new_eventfd().unwrap();
        self.say(&Message::AddRing(place), &[file.as_fd()]);
    }

    pub(super) fn tell_connect(&self) {
        let name = "raw".to_owned();
        self.say(&Message::Connect { name }, &[]);
    }
}

pub(super) fn init() -> Message {
    Message::Init {
        version: VERSION,
        id: 0,
        mode: 0,
        secret: [0; SECRET_LEN],
        name: "raw".into(),
    }
}

pub(super) fn hello() -> Message {
    Message::Hello {
        name: "raw".into(),
        versions: (VERSION, VERSION),
        max_region: 255,
        max_to_server: 0,
        max_to_client: 0,
        max_log2_size: 14,
    }
}

/// A client of a server of ours whose rings are in its own hands: by honest numbers so far.
pub(super) struct Client {
    pub(super) raw: Raw,
    pub(super) file: OwnedFd,
    pub(super) regions: Arc<Regions>,
    pub(super) to_server: Ring,
    pub(super) to_client: Ring,
}

impl Client {
    pub(super) fn join(path: &str) -> Self {
        let (file, regions) = SHAPE.make("raw").unwrap();
        Self::join_with(path, file, regions)
    }

    /// A client that has sent a frame, and lent a buffer, before it asks to be connected.
    pub(super) fn join_with_a_frame(path: &str) -> Self {
        let (file, regions) = SHAPE.make("raw").unwrap();
        let mapped = Arc::new(Regions(vec![map(&file, SHAPE.bytes())]));
        let [frame, room] = [0, 1].map(|number| SHAPE.buffers(number).empty(0));
        let first = [frame.holding(60, false), room];
        for (ring, descriptor) in rings(&mapped).iter().zip(first) {
            let view = ring.view().unwrap();
            view.write(0, descriptor);
            view.set_head(1);
        }
        Self::join_with(path, file, regions)
    }

    fn join_with(path: &str, file: OwnedFd, regions: Regions) -> Self {
        let raw = Raw::introduce(path);
        raw.tell_region(0, SHAPE.bytes() as u64, &file);
        raw.hear_ack();
        for place in SHAPE.places() {
            raw.tell_ring(place);
            raw.hear_ack();
        }
        raw.tell_connect();
        assert!(matches!(raw.hear().0, Message::Connected { .. }));
        let regions = Arc::new(regions);
        let [to_server, to_client] = rings(&regions);
        Self {
            raw,
            file,
            regions,
            to_server,
            to_client,
        }
    }

    /// The same with a file that can shrink, and with a canary behind the region: the rest of its
    /// last page, which is mapped on both sides.
    pub(super) fn join_unsealed(path: &str) -> Self {
        let whole = SHAPE.bytes().next_multiple_of(4096);
        assert!(whole > SHAPE.bytes());
        let file = memory(whole as u64);
        let regions = Regions(vec![map(&file, whole)]);
        let canary = vec![CANARY; whole - SHAPE.bytes()];
        regions.0[0]
            .window(SHAPE.bytes(), canary.len())
            .unwrap()
            .write(&canary);
        for place in SHAPE.places() {
            Ring::set_up(&regions, place.offset as usize);
        }
        Self::join_with(path, file, regions)
    }
}

const CANARY: u8 = 0xc7;

impl Client {
    /// Whether all bytes behind the region are as they were: of [`Client::join_unsealed`].
    pub(super) fn canary_is_whole(&self) -> bool {
        let memory = &self.regions.0[0];
        let mut bytes = vec![0; memory.len() - SHAPE.bytes()];
        memory
            .window(SHAPE.bytes(), bytes.len())
            .unwrap()
            .read(&mut bytes);
        !bytes.is_empty() && bytes.iter().all(|&byte| byte == CANARY)
    }
}

/// Maps memory as a peer does.
pub(super) fn map(file: &OwnedFd, bytes: usize) -> Untrusted {
    Untrusted::map("raw", file.as_fd(), 0, bytes, FileFrom::Peer).unwrap()
}

/// A server of a client of ours.
pub(super) struct Server {
    _raw: Raw,
    pub(super) regions: Arc<Regions>,
    pub(super) to_server: Ring,
    pub(super) to_client: Ring,
}

impl Server {
    /// Serves the next client that does not give up before.
    pub(super) fn serve(listener: &OwnedFd) -> Self {
        loop {
            if let Some(server) = Self::try_serve(listener) {
                return server;
            }
        }
    }

    fn try_serve(listener: &OwnedFd) -> Option<Self> {
        let raw = Raw::accept(listener);
        raw.say(&hello(), &[]);
        let (mut regions, mut places) = (Vec::new(), Vec::new());
        loop {
            let (message, files) = raw.hear_or_end()?;
            match message {
                Message::AddRegion { bytes, .. } => {
                    regions.push(map(&files[0], bytes as usize));
                }
                Message::AddRing(place) => places.push(place),
                Message::Connect { .. } => break,
                _ => {}
            }
            raw.say(&Message::Ack, &[]);
        }
        let name = "raw".to_owned();
        raw.say(&Message::Connected { name }, &[]);
        let regions = Arc::new(Regions(regions));
        let ring = |place: &RingPlace| {
            Ring::new(&regions, place.region, place.offset, place.log2_size).unwrap()
        };
        Some(Self {
            to_server: ring(&places[0]),
            to_client: ring(&places[1]),
            _raw: raw,
            regions,
        })
    }
}

pub(super) fn listener(path: &str) -> OwnedFd {
    let address = UnixAddress::parse(path).unwrap();
    socket::listen(&address, UnixKind::Messages, UnixAccess::default()).unwrap()
}

fn rings(regions: &Arc<Regions>) -> [Ring; 2] {
    let places = SHAPE.places();
    let ring = |number: usize| Ring::new(regions, 0, places[number].offset, SHAPE.log2_size);
    [0, 1].map(|number| ring(number).unwrap())
}

/// Memory as a peer would send it, not sealed.
pub(super) fn memory(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("raw", flags).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    file
}

fn wait_readable(file: BorrowedFd<'_>) {
    let wait = Timespec::try_from(PATIENCE).unwrap();
    let mut polled = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    assert_eq!(poll(&mut polled, Some(&wait)), Ok(1), "waited in vain");
}
