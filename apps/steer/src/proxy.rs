//! The TCP proxy: each connection that comes is joined to one that it opens, on the same lcore.
//!
//! A side that cannot be written to is not read from the other side, so that back-pressure goes
//! through. The end of one direction is passed on as such, and the other one goes on (half-close).
//! What ends one connection by an error ends the other by a reset.

use std::net::SocketAddr;

use linerate_stack::socket::{Event, Io, Listen, SocketId, Source, interest};

use crate::app::{App, Error, Listening, Tokens, connect};
use crate::echo::wait;
use crate::relay::{CHUNK, Moved, relay};

/// Chunks of one direction in a round.
const CHUNKS: usize = 4;

/// Joins connections.
pub struct Proxy {
    on: Listening,
    to: SocketAddr,
    tokens: Tokens,
    pairs: Vec<Option<Pair>>,
    free: Vec<u32>,
    scratch: Box<[u8]>,
    accepted: u64,
    refused: u64,
    failed: u64,
    bytes: u64,
}

/// Two joined connections: of the client, and to the server.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ids: [SocketId; 2],
    /// By side: its peer sends no more, and the other side has been told.
    ended: [bool; 2],
    /// By side: what comes of it finds no room at the other.
    stopped: [bool; 2],
}

impl Proxy {
    /// Listens as `on` says and connects to `to`, with the same options of IP.
    pub fn new(on: Listen, to: SocketAddr, tokens: Tokens) -> Self {
        Self {
            on: Listening::new(on, tokens.token(0)),
            to,
            tokens,
            pairs: Vec::new(),
            free: Vec::new(),
            scratch: vec![0; CHUNK].into(),
            accepted: 0,
            refused: 0,
            failed: 0,
            bytes: 0,
        }
    }

    fn token(&self, pair: u32, side: usize) -> u64 {
        self.tokens.token(1 + u64::from(pair) * 2 + side as u64)
    }

    fn join(&mut self, io: &mut Io<'_>, client: SocketId) {
        self.accepted += 1;
        let Ok(server) = connect(io, self.to, self.on.on.ip) else {
            self.refused += 1;
            return io.abort(client);
        };
        let pair = Pair {
            ids: [client, server],
            ended: [false; 2],
            stopped: [false; 2],
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.pairs[index as usize] = Some(pair);
                index
            }
            None => {
                self.pairs.push(Some(pair));
                self.pairs.len() as u32 - 1
            }
        };
        self.ask(io, index);
    }

    /// Asks for what can be gone on with.
    fn ask(&self, io: &mut Io<'_>, index: u32) {
        let Some(Some(pair)) = self.pairs.get(index as usize) else {
            return;
        };
        for side in 0..2 {
            let mut wanted = 0;
            if !pair.ended[side] && !pair.stopped[side] {
                wanted |= interest::READ;
            }
            if pair.stopped[1 - side] {
                wanted |= interest::WRITE;
            }
            wait(io, pair.ids[side], wanted, self.token(index, side));
        }
    }

    /// Passes on what came on a side; false if that has ended the pair.
    fn pass(&mut self, io: &mut Io<'_>, index: u32, side: usize) -> bool {
        let Some(Some(pair)) = self.pairs.get_mut(index as usize) else {
            return false;
        };
        let (from, to) = (pair.ids[side], pair.ids[1 - side]);
        pair.stopped[side] = false;
        if pair.ended[side] {
            return true;
        }
        for _ in 0..CHUNKS {
            match relay(io, from, to, &mut self.scratch) {
                Ok(Moved::Bytes(count)) => self.bytes += count as u64,
                Ok(Moved::Nothing) => break,
                Ok(Moved::Full) => {
                    pair.stopped[side] = true;
                    break;
                }
                Ok(Moved::End) => {
                    pair.ended[side] = true;
                    if pair.ended == [true; 2] {
                        self.close(io, index);
                        return false;
                    }
                    let _ = io.shutdown(to);
                    break;
                }
                Err(_) => {
                    self.fail(io, index);
                    return false;
                }
            }
        }
        true
    }

    fn close(&mut self, io: &mut Io<'_>, index: u32) {
        if let Some(pair) = self.remove(index) {
            pair.ids.into_iter().for_each(|id| io.close(id));
        }
    }

    fn fail(&mut self, io: &mut Io<'_>, index: u32) {
        if let Some(pair) = self.remove(index) {
            self.failed += 1;
            pair.ids.into_iter().for_each(|id| io.abort(id));
        }
    }

    fn remove(&mut self, index: u32) -> Option<Pair> {
        let pair = self.pairs.get_mut(index as usize)?.take();
        self.free.extend(pair.map(|_| index));
        pair
    }
}

impl App for Proxy {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        self.on.start(io)
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            let id = match event.source {
                Source::Listener(listener) => {
                    while let Some((client, _)) = io.accept(listener) {
                        self.join(io, client);
                    }
                    continue;
                }
                Source::Connection(id) => id,
            };
            let word = Tokens::value(event.token).wrapping_sub(1);
            let (index, side) = ((word / 2) as u32, (word % 2) as usize);
            // An earlier event of this round may have ended it, and another one may have its place.
            let pair = self.pairs.get(index as usize).copied().flatten();
            let Some(_) = pair.filter(|pair| pair.ids[side] == id) else {
                continue;
            };
            if event.ready & interest::ERROR != 0 && io.readable(id) == 0 {
                self.fail(io, index);
                continue;
            }
            let reads = event.ready & (interest::READ | interest::HANG_UP) != 0;
            if reads && !self.pass(io, index, side) {
                continue;
            }
            if event.ready & interest::WRITE != 0 && !self.pass(io, index, 1 - side) {
                continue;
            }
            self.ask(io, index);
        }
    }

    fn accepted(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.join(io, id);
    }

    fn listening(&mut self) -> Option<&mut Listening> {
        Some(&mut self.on)
    }

    fn open(&self) -> u64 {
        (self.pairs.len() - self.free.len()) as u64
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("open", self.open()),
            ("accepted", self.accepted),
            ("refused", self.refused),
            ("failed", self.failed),
            ("bytes", self.bytes),
        ]
    }
}
