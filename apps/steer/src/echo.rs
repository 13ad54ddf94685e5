//! The echo application (RFC 862): what comes goes back.

use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, interest};

use crate::app::{App, Error, Tokens, listen};
use crate::relay::{CHUNK, Moved, relay};

/// Chunks of one connection in a round.
const CHUNKS: usize = 4;

/// Sends everything back. A peer that does not read what comes back can send no more at some point.
pub struct Echo {
    on: Listen,
    scratch: Box<[u8]>,
    accepted: u64,
    bytes: u64,
    failed: u64,
}

impl Echo {
    /// Listens as `on` says; its token is ours.
    pub fn new(on: Listen, tokens: Tokens) -> Self {
        let token = tokens.token(0);
        Self {
            on: Listen { token, ..on },
            scratch: vec![0; CHUNK].into(),
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
                Ok(Moved::End) => return io.close(id),
                Err(_) => {
                    self.failed += 1;
                    return io.close(id);
                }
            }
        }
        wait(io, id, interest::READ, token);
    }
}

/// Asks to be told of something of a connection that is there.
pub(crate) fn wait(io: &mut Io<'_>, id: SocketId, wanted: u8, token: u64) {
    // Of one that has ended, its error is told until it is closed.
    let _ = io.register(id, wanted, token);
}

impl App for Echo {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        listen(io, self.on).map(|_| ())
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
        self.accepted += 1;
        wait(io, id, interest::READ, self.on.token);
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("accepted", self.accepted),
            ("bytes", self.bytes),
            ("failed", self.failed),
        ]
    }
}
