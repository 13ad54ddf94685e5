//! Connections of a node: S1 and S6a over TCP, and messages cut out of them.
//!
//! A connection has a number that says where it is: its lcore is the number modulo the number of
//! lcores. Those that begin here have numbers of ours, and are opened again a second after they
//! have ended; those that come get the first number that is free.

use std::mem;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use linerate_core::run::NEVER;
use linerate_epc::{Link, s1};
use linerate_stack::socket::{Io, SocketId, interest};
use linerate_stack::tcp::connection;
use linerate_wire::diameter;

use crate::app::Tokens;

/// Bytes that are read from a connection in a round.
const READ: usize = 64 << 10;
/// Bytes of messages that may wait for room in a connection's window.
const WAITING: usize = 1 << 20;
/// How long until a connection that has ended is opened again, in nanoseconds.
const RETRY_NS: u64 = 1_000_000_000;

/// Connections of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Those that come.
    Listen {
        /// Where.
        at: SocketAddrV4,
        /// At most, on each lcore.
        most: u16,
    },
    /// Those that begin here: on all lcores together numbers from 0 to below `count`.
    Connect {
        /// From where.
        from: Ipv4Addr,
        /// To whom.
        to: SocketAddrV4,
        /// How many.
        count: u16,
    },
}

/// The place of a connection: of which kind, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    which: usize,
    slot: usize,
}

impl Place {
    /// The word of a listener's events.
    pub fn listener(which: usize) -> u64 {
        which as u64
    }

    fn word(self) -> u64 {
        2 + (self.slot as u64) * 2 + self.which as u64
    }

    fn of(word: u64) -> Option<Self> {
        let word = word.checked_sub(2)?;
        Some(Self {
            which: (word % 2) as usize,
            slot: (word / 2) as usize,
        })
    }
}

#[derive(Debug, Default)]
struct Stream {
    id: Option<SocketId>,
    is_open: bool,
    received: Vec<u8>,
    waiting: Vec<u8>,
    /// When it is opened, if it begins here and is not there.
    retry_ns: u64,
}

/// The connections of one lcore.
pub struct Streams {
    carriers: [Option<Carrier>; 2],
    all: [Vec<Stream>; 2],
    cores: u8,
    me: u8,
}

impl Streams {
    /// S1 and S6a, in this order, of lcore `me` of `cores`.
    pub fn new(carriers: [Option<Carrier>; 2], cores: u8, me: u8) -> Self {
        let slots = |carrier: &Option<Carrier>| match carrier {
            None => 0,
            Some(Carrier::Listen { most, .. }) => usize::from(*most),
            Some(Carrier::Connect { count, .. }) => {
                let own = usize::from(*count).saturating_sub(usize::from(me));
                own.div_ceil(usize::from(cores))
            }
        };
        let make = |carrier| (0..slots(carrier)).map(|_| Stream::default()).collect();
        Self {
            all: [make(&carriers[0]), make(&carriers[1])],
            carriers,
            cores,
            me,
        }
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        let all = self.all.iter().flatten();
        all.filter(|stream| stream.is_open).count()
    }

    fn link(&self, place: Place) -> Link {
        let number = place.slot * usize::from(self.cores) + usize::from(self.me);
        match place.which {
            0 => Link::S1(number as u16),
            _ => Link::S6a(number as u16),
        }
    }

    /// Where a connection of this lcore is.
    pub fn place(&self, link: Link) -> Option<Place> {
        let (which, number) = match link {
            Link::S1(number) => (0, number),
            Link::S6a(number) => (1, number),
            _ => return None,
        };
        let slot = usize::from(number) / usize::from(self.cores);
        Some(Place { which, slot })
    }

    fn at(&mut self, place: Place) -> Option<&mut Stream> {
        self.all.get_mut(place.which)?.get_mut(place.slot)
    }

    /// The connection that an event is about, if it is still that.
    pub fn find(&mut self, word: u64, id: SocketId) -> Option<Place> {
        let place = Place::of(word)?;
        let stream = self.at(place)?;
        (stream.id == Some(id)).then_some(place)
    }

    /// Its socket.
    pub fn id(&mut self, place: Place) -> Option<SocketId> {
        self.at(place).and_then(|stream| stream.id)
    }

    /// Takes a connection that came to the listener with that word; one too many is reset.
    pub fn accept(
        &mut self,
        io: &mut Io<'_>,
        listener: u64,
        id: SocketId,
        tokens: Tokens,
    ) -> Option<Link> {
        let which = (listener % 2) as usize;
        let free = self.all[which]
            .iter()
            .position(|stream| stream.id.is_none());
        let Some(slot) = free else {
            io.abort(id);
            return None;
        };
        let place = Place { which, slot };
        self.all[which][slot] = Stream {
            id: Some(id),
            is_open: true,
            ..Stream::default()
        };
        // Small messages, of users who wait for each.
        let _ = io.set_no_delay(id, true);
        self.go_on(io, place, tokens);
        Some(self.link(place))
    }

    /// Opens those that begin here; returns when to come again, in nanoseconds.
    pub fn connect(&mut self, io: &mut Io<'_>, tokens: Tokens) -> u64 {
        let (now_ns, mut next_ns) = (io.now_ns(), NEVER);
        for which in 0..2 {
            let Some(Carrier::Connect { from, to, .. }) = self.carriers[which] else {
                continue;
            };
            for slot in 0..self.all[which].len() {
                let stream = &mut self.all[which][slot];
                if stream.id.is_some() {
                    continue;
                }
                if stream.retry_ns <= now_ns {
                    let local = SocketAddr::new(from.into(), 0);
                    stream.id = io.connect(Some(local), to.into()).ok();
                    stream.retry_ns = now_ns + RETRY_NS;
                }
                match stream.id {
                    Some(id) => {
                        let _ = io.set_no_delay(id, true);
                        self.go_on(io, Place { which, slot }, tokens);
                    }
                    None => next_ns = next_ns.min(stream.retry_ns),
                }
            }
        }
        next_ns
    }

    /// The link of a connection that turns out to be open now.
    pub fn opened(&mut self, place: Place) -> Option<Link> {
        let link = self.link(place);
        let stream = self.at(place)?;
        let was_open = mem::replace(&mut stream.is_open, true);
        (!was_open).then_some(link)
    }

    /// What was received of a connection, and its link; it is to be [given
    /// back](Self::give_back).
    pub fn lend(&mut self, place: Place) -> Option<(Link, Vec<u8>)> {
        let link = self.link(place);
        let stream = self.at(place)?;
        stream.id?;
        Some((link, mem::take(&mut stream.received)))
    }

    /// Takes it back.
    pub fn give_back(&mut self, place: Place, received: Vec<u8>) {
        if let Some(stream) = self.at(place) {
            stream.received = received;
        }
    }

    /// Ends a connection; its link, if it was open.
    pub fn close(&mut self, io: &mut Io<'_>, place: Place) -> Option<Link> {
        let (link, retry_ns) = (self.link(place), io.now_ns() + RETRY_NS);
        let stream = self.at(place)?;
        let id = stream.id.take()?;
        let was_open = stream.is_open;
        *stream = Stream {
            retry_ns,
            ..Stream::default()
        };
        io.close(id);
        was_open.then_some(link)
    }

    /// Writes a message to a connection of this lcore; false where it is not open, or does not
    /// take what was written before.
    pub fn write(&mut self, io: &mut Io<'_>, to: Link, message: &[u8], tokens: Tokens) -> bool {
        let Some(place) = self.place(to) else {
            return false;
        };
        let Some(stream) = self.at(place).filter(|stream| stream.is_open) else {
            return false;
        };
        let Some(id) = stream.id else { return false };
        let written = match stream.waiting.is_empty() {
            true => match io.write(id, message) {
                Ok(written) => written,
                Err(connection::Error::WouldBlock) => 0,
                // It has ended, as an event will say.
                Err(_) => return false,
            },
            false => 0,
        };
        // A part of a message goes on with the rest of it, or the stream would be broken.
        if written == 0 && stream.waiting.len() + message.len() > WAITING {
            return false;
        }
        stream.waiting.extend_from_slice(&message[written..]);
        if !stream.waiting.is_empty() {
            self.go_on(io, place, tokens);
        }
        true
    }

    /// Writes what waits, and asks for what can be gone on with.
    pub fn go_on(&mut self, io: &mut Io<'_>, place: Place, tokens: Tokens) {
        let Some(stream) = self.at(place) else { return };
        let Some(id) = stream.id else { return };
        if stream.is_open && !stream.waiting.is_empty() {
            let written = io.write(id, &stream.waiting).unwrap_or(0);
            stream.waiting.drain(..written);
        }
        let mut wanted = interest::READ;
        if !stream.is_open || !stream.waiting.is_empty() {
            wanted |= interest::WRITE;
        }
        crate::echo::wait(io, id, wanted, tokens.token(place.word()));
    }
}

/// Reads what there is of a connection into `buffer`; false if it has ended.
pub fn fill(io: &mut Io<'_>, id: Option<SocketId>, buffer: &mut Vec<u8>) -> bool {
    let Some(id) = id else { return false };
    let readable = io.readable(id).min(READ);
    let len = buffer.len();
    // With nothing to read, one byte of room tells the end from a pause.
    buffer.resize(len + readable.max(1), 0);
    let read = io.read(id, &mut buffer[len..]);
    buffer.truncate(len + read.unwrap_or(0));
    match read {
        Ok(count) => count > 0,
        Err(error) => error == connection::Error::WouldBlock,
    }
}

/// What begins some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A message of so many bytes.
    Whole(usize),
    /// A part of one.
    Part,
    /// No message, so that nothing says where the next one begins.
    Broken,
}

/// What begins `bytes` of a link's kind.
pub fn front(link: Link, bytes: &[u8]) -> Front {
    let len = match link {
        Link::S1(_) => s1::frame(bytes).ok(),
        _ => diameter::frame(bytes).ok(),
    };
    match len {
        None => Front::Broken,
        Some(Some(len)) if len <= bytes.len() => Front::Whole(len),
        Some(_) => Front::Part,
    }
}
