//! The echo application (RFC 862): what comes goes back.

use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, interest};

use crate::app::{App, Error, Listening, Tokens};
use crate::relay::{CHUNK, Moved, relay};

/// Chunks of one connection in a round.
const CHUNKS: usize = 4;

/// Sends everything back. A peer that does not read what comes back can send no more at some point.
pub struct Echo {
    on: Listening,
    scratch: Box<[u8]>,
    open: u64,
    accepted: u64,
    bytes: u64,
    failed: u64,
}

impl Echo {
    /// Listens as `on` says; its token is ours.
    pub fn new(on: Listen, tokens: Tokens) -> Self {
        Self {
            on: Listening::new(on, tokens.token(0)),
            scratch: vec![0; CHUNK].into(),
            open: 0,
            accepted: 0,
            bytes: 0,
            failed: 0,
        }
    }

    fn serve(&mut self, io: &mut Io<'_>, id: SocketId, token: u64) {
        for _ in 0..CHUNKS {
            match relay(io, id, id, &mut self.scratch) {
                Ok(Moved::Bytes(count)) => self.bytes += count as u64,
                // Until there is, there is no use in being told of more to read.
                Ok(Moved::Full) => return wait(io, id, interest::WRITE, token),
                Ok(Moved::Nothing) => break,
                Ok(Moved::End) => return self.end(io, id),
                Err(_) => {
                    self.failed += 1;
                    return self.end(io, id);
                }
            }
        }
        wait(io, id, interest::READ, token);
    }

    fn end(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.open -= 1;
        io.close(id);
    }
}

/// Asks to be told of something of a connection that is there.
pub(crate) fn wait(io: &mut Io<'_>, id: SocketId, wanted: u8, token: u64) {
    // Of one that has ended, its error is told until it is closed.
    let _ = io.register(id, wanted, token);
}

impl App for Echo {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        self.on.start(io)
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        self.accepted(io, id);
                    }
                }
                Source::Connection(id) => self.serve(io, id, event.token),
            }
        }
    }

    fn accepted(&mut self, io: &mut Io<'_>, id: SocketId) {
        (self.open, self.accepted) = (self.open + 1, self.accepted + 1);
        wait(io, id, interest::READ, self.on.on.token);
    }

    fn listening(&mut self) -> Option<&mut Listening> {
        Some(&mut self.on)
    }

    fn open(&self) -> u64 {
        self.open
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("open", self.open),
            ("accepted", self.accepted),
            ("bytes", self.bytes),
            ("failed", self.failed),
        ]
    }
}
