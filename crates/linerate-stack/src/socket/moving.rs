//! Connections that go to another lcore.

use std::net::SocketAddr;

use linerate_wire::FlowKey;

use super::io::Io;
use super::receive::{ends_of, local_of};
use super::slots::{SocketId, is};
use super::way::Way;
use crate::host::{IpFields, Path};
use crate::tcp::connection::{self, Connection, Context, Error, State};
use crate::tcp::tuple::Tuple;

/// A connection that has left its stack, to go on in another one: it is `Send`, and goes there
/// through a ring. Segments that arrive meanwhile are for the stack that attaches it.
///
/// ```compile_fail,E0382
/// use linerate_stack::socket::{Detached, Io};
/// fn twice(io: &mut Io<'_>, connection: Detached) {
///     let _ = io.attach(connection);
///     let _ = io.attach(connection); // it is in the stack
/// }
/// ```
/// ```
/// fn goes<T: Send>() {}
/// goes::<linerate_stack::socket::Detached>();
/// ```
pub struct Detached {
    connection: connection::Detached,
    key: FlowKey,
    fields: IpFields,
    moves: u16,
    token: u64,
}

impl Detached {
    /// Our end and the peer's.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let remote = match &self.key {
            FlowKey::V4(key) => key.remote(),
            FlowKey::V6(key) => key.remote(),
        };
        (local_of(&self.key).into(), remote)
    }

    /// How often it has moved, this time included; the count wraps.
    pub fn moves(&self) -> u16 {
        self.moves
    }

    /// The same, having moved once more.
    #[must_use]
    pub fn moved(mut self) -> Self {
        self.moves = self.moves.wrapping_add(1);
        self
    }

    /// What its events had with them.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Its key, as segments have it that arrive.
    pub fn key(&self) -> FlowKey {
        self.key
    }
}

/// Why a connection cannot go on in a stack; it comes back.
#[derive(thiserror::Error)]
#[error("the stack has no room for the connection, or has one of the same addresses and ports")]
pub struct Refused(pub Box<Detached>);

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Refused({:?})", self.0.addresses())
    }
}

impl Io<'_> {
    /// Takes a connection out of the stack: its id means nothing any more.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is none, or one that has ended.
    pub fn detach(&mut self, id: SocketId) -> Result<Detached, Error> {
        self.stack.slots.get(id).ok_or(Error::NotConnected)?;
        let (slot, connection) = self.stack.slots.both(id.slot);
        let is_over = matches!(connection.state(), State::Closed | State::TimeWait);
        if is_over || slot.is & (is::INDEXED | is::QUEUED | is::HALF_OPEN) != is::INDEXED {
            return Err(Error::NotConnected);
        }
        let (key, fields) = (slot.key, slot.fields);
        let (moves, token) = (slot.moves.wrapping_add(1), slot.token);
        // It goes on: its entry is the other lcore's from now on.
        slot.set_mapped(false);
        let connection = std::mem::replace(connection, Connection::closed());
        let connection = connection.detach(&mut self.stack.shared);
        self.stack.free(id.slot, self.now_ns, self.out);
        Ok(Detached {
            connection,
            key,
            fields,
            moves,
            token,
        })
    }

    /// Has a connection go on in this stack. Nothing is registered for it.
    ///
    /// # Errors
    /// The connection, where there is no room for it.
    pub fn attach(&mut self, detached: Detached) -> Result<SocketId, Refused> {
        let Detached {
            connection,
            key,
            fields,
            moves,
            token,
        } = detached;
        let back = |connection| {
            Refused(Box::new(Detached {
                connection,
                key,
                fields,
                moves,
                token,
            }))
        };
        if self.stack.slots.room() == 0 || self.stack.slots.find(&key).is_some() {
            return Err(back(connection));
        }
        // Where there is none now, the first segment looks again.
        let (local, remote) = ends_of(&key);
        let path = self.stack.host.path(Some(local), remote);
        let mut path = path.map_or(Path::UNKNOWN, |(path, _)| path);
        let mut way = Way {
            host: &mut self.stack.host,
            out: self.out,
            key: &key,
            path: &mut path,
            fields,
            now_ns: self.now_ns,
        };
        let mut cx = Context {
            now_ns: self.now_ns,
            shared: &mut self.stack.shared,
            wire: &mut way,
        };
        let connection = match Connection::attach(&mut cx, connection) {
            Ok(connection) => connection,
            Err(connection) => return Err(back(*connection)),
        };
        let inserted = self.stack.slots.insert(connection, key, path, fields);
        let index = match inserted {
            Ok(index) => index,
            Err(connection) => return Err(back(connection.detach(&mut self.stack.shared))),
        };
        let slot = &mut self.stack.slots[index];
        slot.is |= is::OWNED;
        slot.set_mapped(true);
        slot.moves = moves;
        self.stack.settle(index, self.now_ns, self.out);
        Ok(self.stack.slots.id(index))
    }
}
