//! vhost-user messages: 12 bytes of header, a payload, descriptors beside it (QEMU,
//! `docs/interop/vhost-user.rst`). Read as they come in parts, of a bounded size, never waiting
//! for a peer but within a deadline.

use crate::peer::socket::{self, Received};
use crate::peer::violations::Violation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Requests of a front end.
pub(crate) mod request {
    pub(crate) const GET_FEATURES: u32 = 1;
    pub(crate) const SET_FEATURES: u32 = 2;
    pub(crate) const SET_OWNER: u32 = 3;
    pub(crate) const RESET_OWNER: u32 = 4;
    pub(crate) const SET_MEM_TABLE: u32 = 5;
    pub(crate) const SET_LOG_BASE: u32 = 6;
    pub(crate) const SET_LOG_FD: u32 = 7;
    pub(crate) const SET_VRING_NUM: u32 = 8;
    pub(crate) const SET_VRING_ADDR: u32 = 9;
    pub(crate) const SET_VRING_BASE: u32 = 10;
    pub(crate) const GET_VRING_BASE: u32 = 11;
    pub(crate) const SET_VRING_KICK: u32 = 12;
    pub(crate) const SET_VRING_CALL: u32 = 13;
    pub(crate) const SET_VRING_ERR: u32 = 14;
    pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(crate) const SET_PROTOCOL_FEATURES: u32 = 16;
    pub(crate) const GET_QUEUE_NUM: u32 = 17;
    pub(crate) const SET_VRING_ENABLE: u32 = 18;
    pub(crate) const SEND_RARP: u32 = 19;
    pub(crate) const NET_SET_MTU: u32 = 20;
    pub(crate) const GET_CONFIG: u32 = 24;
    pub(crate) const SET_CONFIG: u32 = 25;
    pub(crate) const GET_INFLIGHT_FD: u32 = 31;
    pub(crate) const SET_INFLIGHT_FD: u32 = 32;
    pub(crate) const RESET_DEVICE: u32 = 34;
    pub(crate) const GET_MAX_MEM_SLOTS: u32 = 36;
    pub(crate) const ADD_MEM_REG: u32 = 37;
    pub(crate) const REM_MEM_REG: u32 = 38;
    pub(crate) const SET_STATUS: u32 = 39;
    pub(crate) const GET_STATUS: u32 = 40;
}

/// Bits of protocol features.
pub(crate) mod protocol {
    pub(crate) const MQ: u64 = 1;
    pub(crate) const LOG_SHMFD: u64 = 1 << 1;
    pub(crate) const RARP: u64 = 1 << 2;
    pub(crate) const REPLY_ACK: u64 = 1 << 3;
    pub(crate) const NET_MTU: u64 = 1 << 4;
    pub(crate) const CONFIG: u64 = 1 << 9;
    pub(crate) const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub(crate) const RESET_DEVICE: u64 = 1 << 13;
    pub(crate) const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub(crate) const STATUS: u64 = 1 << 16;
}

/// Bits of virtio features (virtio 1.2, 5.1.3 and 6; bits 26 and 30 are vhost's).
pub(crate) mod feature {
    pub(crate) const CSUM: u64 = 1;
    pub(crate) const GUEST_CSUM: u64 = 1 << 1;
    pub(crate) const MTU: u64 = 1 << 3;
    pub(crate) const GUEST_TSO4: u64 = 1 << 7;
    pub(crate) const GUEST_TSO6: u64 = 1 << 8;
    pub(crate) const GUEST_ECN: u64 = 1 << 9;
    pub(crate) const HOST_TSO4: u64 = 1 << 11;
    pub(crate) const HOST_TSO6: u64 = 1 << 12;
    pub(crate) const HOST_ECN: u64 = 1 << 13;
    pub(crate) const MRG_RXBUF: u64 = 1 << 15;
    pub(crate) const STATUS: u64 = 1 << 16;
    pub(crate) const CTRL_VQ: u64 = 1 << 17;
    pub(crate) const CTRL_RX: u64 = 1 << 18;
    pub(crate) const GUEST_ANNOUNCE: u64 = 1 << 21;
    pub(crate) const MQ: u64 = 1 << 22;
    /// VHOST_F_LOG_ALL.
    pub(crate) const LOG_ALL: u64 = 1 << 26;
    pub(crate) const ANY_LAYOUT: u64 = 1 << 27;
    pub(crate) const INDIRECT_DESC: u64 = 1 << 28;
    pub(crate) const EVENT_IDX: u64 = 1 << 29;
    pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
    pub(crate) const RING_PACKED: u64 = 1 << 34;
    pub(crate) const IN_ORDER: u64 = 1 << 35;
    pub(crate) const GUEST_USO4: u64 = 1 << 54;
    pub(crate) const GUEST_USO6: u64 = 1 << 55;
    pub(crate) const HOST_USO: u64 = 1 << 56;

    /// What says of frames to the driver that it finishes them, and the other way.
    pub(crate) const GUEST_OFFLOADS: u64 =
        GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_USO4 | GUEST_USO6;
    pub(crate) const HOST_OFFLOADS: u64 = CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_USO;
}

const HEADER_BYTES: usize = 12;
/// Longest payload: a table of 8 regions has 264.
const MOST_PAYLOAD: usize = 512;
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;
/// In the number of a message about a notification: none comes with it.
pub(crate) const NO_FILE: u64 = 1 << 8;
/// Regions in one table, and so descriptors beside one message.
pub(crate) const MOST_FILES: usize = 8;

/// One message.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) request: u32,
    pub(crate) flags: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) files: Vec<OwnedFd>,
}

/// Why there is no more to say to a peer.
#[derive(Debug)]
pub(crate) enum End {
    /// It closed the connection.
    Closed,
    /// The port stops.
    Stopped,
    /// It broke a rule, and how.
    Broke(Violation, String),
    /// It lacks something, or has too little of it; not its fault.
    Unfit(String),
}

/// A violation by a message.
pub(crate) fn bad(what: impl Into<String>) -> End {
    End::Broke(Violation::MessageBad, what.into())
}

impl Message {
    pub(crate) fn new(request: u32) -> Self {
        Self {
            request,
            ..Self::default()
        }
    }

    pub(crate) fn with_u64(request: u32, value: u64) -> Self {
        Self {
            payload: value.to_le_bytes().into(),
            ..Self::new(request)
        }
    }

    /// A vring's number, and a value for it.
    pub(crate) fn with_state(request: u32, index: u32, value: u32) -> Self {
        Self {
            payload: [index.to_le_bytes(), value.to_le_bytes()].concat(),
            ..Self::new(request)
        }
    }

    pub(crate) fn with_words(request: u32, words: &[u64]) -> Self {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        Self {
            payload: bytes.collect(),
            ..Self::new(request)
        }
    }

    /// Whether an answer is asked for that the request itself has none of.
    pub(crate) fn needs_reply(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// The payload as words of 64 bits, of which there must be as many.
    pub(crate) fn words<const N: usize>(&self) -> Result<[u64; N], End> {
        if self.payload.len() != N * 8 {
            let (request, bytes) = (self.request, self.payload.len());
            return Err(bad(format!("request {request} with {bytes} bytes")));
        }
        Ok(std::array::from_fn(|index| self.word(index)))
    }

    /// A word of the payload, zero behind its end.
    pub(crate) fn word(&self, index: usize) -> u64 {
        let word = self.payload.get(index * 8..).and_then(<[u8]>::first_chunk);
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    pub(crate) fn u64(&self) -> Result<u64, End> {
        self.words::<1>().map(|[word]| word)
    }

    pub(crate) fn state(&self) -> Result<(u32, u32), End> {
        let word = self.u64()?;
        Ok((word as u32, (word >> 32) as u32))
    }

    /// The only descriptor beside it.
    pub(crate) fn only_file(&mut self) -> Result<OwnedFd, End> {
        let count = self.files.len();
        match (self.files.pop(), count) {
            (Some(file), 1) => Ok(file),
            _ => {
                let detail = format!("request {} with {count} descriptors", self.request);
                Err(End::Broke(Violation::FilesBad, detail))
            }
        }
    }
}

/// A connection: messages from what comes of a stream.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    /// Of the next message.
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

/// How long a peer may take to read what is sent to it, or to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

impl Channel {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            bytes: Vec::new(),
            files: Vec::new(),
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next message, if all of it is there.
    pub(crate) fn receive(&mut self) -> Result<Option<Message>, End> {
        loop {
            let wanted = match self.payload_bytes()? {
                None => HEADER_BYTES,
                Some(payload) => HEADER_BYTES + payload,
            };
            // Never more than of this message, so that descriptors are its own.
            let have = self.bytes.len();
            if have == wanted && have > 0 {
                return Ok(Some(self.message()));
            }
            let mut buffer = [0; HEADER_BYTES + MOST_PAYLOAD];
            let room = MOST_FILES - self.files.len();
            match socket::receive(self.socket.as_fd(), &mut buffer[..wanted - have], room) {
                Received::Message(count, files) => {
                    self.bytes.extend(&buffer[..count]);
                    self.files.extend(files);
                }
                Received::Nothing => return Ok(None),
                Received::Closed => return Err(End::Closed),
                Received::TooMuch => {
                    let detail = format!("more than {MOST_FILES} descriptors");
                    return Err(End::Broke(Violation::FilesBad, detail));
                }
            }
            if self.bytes.len() == HEADER_BYTES && self.payload_bytes()? == Some(0) {
                return Ok(Some(self.message()));
            }
        }
    }

    fn field(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Length of the payload that belongs to the header, once that is there.
    fn payload_bytes(&self) -> Result<Option<usize>, End> {
        if self.bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        if self.field(4) & VERSION_MASK != VERSION {
            return Err(bad(format!("flags {:#x}: another version", self.field(4))));
        }
        let bytes = self.field(8) as usize;
        if bytes > MOST_PAYLOAD {
            return Err(bad(format!("request {} with {bytes} bytes", self.field(0))));
        }
        Ok(Some(bytes))
    }

    fn message(&mut self) -> Message {
        let (request, flags) = (self.field(0), self.field(4));
        let payload = self.bytes.split_off(HEADER_BYTES);
        self.bytes.clear();
        Message {
            request,
            flags,
            payload,
            files: std::mem::take(&mut self.files),
        }
    }

    /// Sends a message, its files with it.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), End> {
        self.put(message, VERSION | message.flags)
    }

    /// Answers a request.
    pub(crate) fn reply(&mut self, message: &Message) -> Result<(), End> {
        self.put(message, VERSION | REPLY)
    }

    fn put(&mut self, message: &Message, flags: u32) -> Result<(), End> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + message.payload.len());
        for field in [message.request, flags, message.payload.len() as u32] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(&message.payload);
        let files: Vec<_> = message.files.iter().map(|file| file.as_fd()).collect();
        let (start, mut files) = (Instant::now(), &files[..]);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match socket::send(self.socket.as_fd(), rest, files) {
                Ok(count) => {
                    rest = &rest[count..];
                    files = &[];
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT, start, None)?;
                }
                Err(_) => return Err(End::Closed),
            }
        }
        Ok(())
    }

    /// Sends a request and waits for its answer. `bell` is rung when the port is to stop.
    pub(crate) fn ask(&mut self, message: &Message, bell: &OwnedFd) -> Result<Message, End> {
        self.send(message)?;
        let start = Instant::now();
        loop {
            if let Some(answer) = self.receive()? {
                if answer.request == message.request && answer.flags & REPLY != 0 {
                    return Ok(answer);
                }
                return Err(bad(format!(
                    "an answer to request {} instead of {}",
                    answer.request, message.request
                )));
            }
            self.wait(PollFlags::IN, start, Some(bell))?;
        }
    }

    /// Sends a request that is acknowledged, where that was agreed on.
    pub(crate) fn tell(
        &mut self,
        mut message: Message,
        acknowledged: bool,
        bell: &OwnedFd,
    ) -> Result<(), End> {
        if !acknowledged {
            return self.send(&message);
        }
        message.flags |= NEED_REPLY;
        match self.ask(&message, bell)?.u64()? {
            0 => Ok(()),
            _ => Err(End::Unfit(format!(
                "it refused request {}",
                message.request
            ))),
        }
    }

    fn wait(&self, what: PollFlags, start: Instant, bell: Option<&OwnedFd>) -> Result<(), End> {
        let Some(left) = PATIENCE.checked_sub(start.elapsed()) else {
            let detail = format!("no answer within {} s", PATIENCE.as_secs());
            return Err(End::Broke(Violation::TooSlow, detail));
        };
        let left = Timespec::try_from(left).ok();
        let mut fds = vec![PollFd::new(&self.socket, what)];
        fds.extend(bell.map(|bell| PollFd::new(bell, PollFlags::IN)));
        let _ = poll(&mut fds, left.as_ref());
        let rung = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        if rung { Err(End::Stopped) } else { Ok(()) }
    }
}
