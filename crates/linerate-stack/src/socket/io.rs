//! The user's calls.

use std::net::{IpAddr, SocketAddr};

use linerate_core::packet::Packet;
use linerate_core::run::Egress;
use linerate_tables::rss::Ports;
use linerate_wire::FlowKey;

use super::Stack;
use super::config::{Connect, IpOptions, Listen};
use super::listener::ListenerId;
use super::poll::Event;
use super::receive::{Uses, local_of};
use super::settle::is_settled;
use super::slots::{NIL, SocketId, is};
use super::steer::PortChoice;
use super::way::Way;
use crate::host::Unreachable;
use crate::host::ping::Ping;
use crate::host::udp::Udp;
use crate::host::{Host, Path};
use crate::tcp::congestion::Algorithm;
use crate::tcp::connection::{Connection, Context, Error, Info, Keepalive};
use crate::tcp::ports::Share;
use crate::tcp::receive::Span;
use crate::tcp::soft::SoftError;
use crate::tcp::tuple::{self, Tuple};

/// Why a connection cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// There is no way there.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// That 4-tuple is in use (EADDRINUSE), or every port is (EADDRNOTAVAIL).
    #[error(
        "no local port is free for a connection to {0}; close some, or widen the range of ports"
    )]
    NoPort(SocketAddr),
    /// The stack has as many connections as it may.
    #[error("the stack has as many connections as it may; raise its limit of connections")]
    NoRoom,
}

/// A stack at a time, with a way out: for the calls of its user. What is written leaves when the
/// call returns; where the port takes long frames, a short one behind them may wait until the first
/// [turn](Stack::turn) of the stack that nothing was written before, for more to make it longer.
pub struct Io<'a> {
    pub(super) stack: &'a mut Stack,
    pub(super) out: &'a mut Egress,
    pub(super) now_ns: u64,
}

impl Io<'_> {
    /// The time in nanoseconds.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// UDP sockets, and what their calls need.
    pub fn udp(&mut self) -> (&mut Udp, &mut Host, &mut Egress) {
        (&mut self.stack.udp, &mut self.stack.host, self.out)
    }

    /// Ping sockets, and what their calls need.
    pub fn ping(&mut self) -> (&mut Ping, &mut Host, &mut Egress) {
        (&mut self.stack.ping, &mut self.stack.host, self.out)
    }

    /// Listens to a port; `None` where somebody does on the same address.
    pub fn listen(&mut self, listen: Listen) -> Option<ListenerId> {
        self.stack.listeners.add(listen)
    }

    /// Listens to the same address and port as `listen` says from now on: its token, its limits.
    /// Connections that wait to be accepted and those that are half-open go on. False where nobody
    /// listens by this id, or elsewhere.
    pub fn relisten(&mut self, id: ListenerId, listen: Listen) -> bool {
        let place = |listen: &Listen| (listen.address, listen.port);
        match self.stack.listeners.get(id) {
            Some(known) if place(&known.listen) == place(&listen) => {
                known.listen = listen;
                true
            }
            _ => false,
        }
    }

    /// Listens no more. Connections that are half-open or were not accepted are ended.
    pub fn close_listener(&mut self, id: ListenerId) {
        if self.stack.listeners.get(id).is_none() {
            return; // an old one, whose place another may have
        }
        while let Some((waiting, _)) = self.accept(id) {
            self.abort(waiting);
        }
        self.stack.listeners.close(id);
        self.stack.drop_half_open(id.index, self.now_ns, self.out);
    }

    /// Takes the connection that has waited longest, and the peer's address.
    pub fn accept(&mut self, id: ListenerId) -> Option<(SocketId, SocketAddr)> {
        let listener = self.stack.listeners.get(id)?;
        let index = listener.head;
        if index == NIL {
            return None;
        }
        let slot = &mut self.stack.slots[index];
        listener.head = std::mem::replace(&mut slot.next, NIL);
        if listener.head == NIL {
            listener.tail = NIL;
        }
        listener.waiting -= 1;
        slot.is &= !is::QUEUED;
        if slot.is & is::HALF_OPEN == 0 {
            slot.listener = NIL;
        }
        let remote = match &slot.key {
            FlowKey::V4(key) => key.remote(),
            FlowKey::V6(key) => key.remote(),
        };
        Some((self.stack.slots.id(index), remote))
    }

    /// Opens a connection, from `local` where that is given, with any port where its port is 0.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn connect(
        &mut self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<SocketId, ConnectError> {
        let how = Connect {
            local,
            ..Connect::to(remote)
        };
        Ok(self.open(&how)?.0)
    }

    /// Opens a connection as `how` says. Returns it, and how many bytes of its data were taken:
    /// none where Fast Open is off, or where no cookie of the peer is known; then the SYN asks for
    /// one.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn open(&mut self, how: &Connect<'_>) -> Result<(SocketId, usize), ConnectError> {
        let Connect { local, remote, .. } = *how;
        let source = local
            .map(|local| local.ip())
            .filter(|ip| !ip.is_unspecified());
        if self.stack.host.is_group(remote.ip()) {
            return Err(Unreachable::Group.into());
        }
        let (path, source) = self.stack.host.path(source, remote.ip())?;
        let port = local.map_or(0, |local| local.port());
        let Some(key) = tuple::of((source, port).into(), remote) else {
            return Err(Unreachable::Family.into());
        };
        let found = match port {
            0 => self.with_port(key, path),
            _ => Some(key).filter(|key| !self.stack.uses().has(key, self.now_ns)),
        };
        let found = found.and_then(|key| Some((key, self.stack.needs_entry(&key, path)?)));
        let Some((key, needs_entry)) = found else {
            self.stack.stats.no_port += 1;
            return Err(ConnectError::NoPort(remote));
        };
        let isn = self.stack.isn_behind(&key, self.now_ns);
        let Some((path, own)) = self.stack.own(&key, isn, self.now_ns) else {
            return Err(Unreachable::NoRoute.into());
        };
        let own = own.limited(how.max_segment);
        let wants_fast = how.asks_cookie || !how.data.is_empty();
        let is_fast = self.stack.shared.config.fast_open.client && wants_fast;
        let mut taken = 0;
        let opened = self
            .stack
            .open(&key, (path, how.ip), self.now_ns, self.out, |cx| {
                if !is_fast {
                    return Connection::connect(cx, &own);
                }
                let (connection, count) = Connection::connect_fast(cx, &own, how.data);
                taken = count;
                connection
            });
        let Some(index) = opened else {
            self.stack.stats.no_room += 1;
            return Err(ConnectError::NoRoom);
        };
        let slot = &mut self.stack.slots[index];
        slot.is |= is::OWNED;
        slot.set_mapped(needs_entry);
        self.stack.settle(index, self.now_ns, self.out);
        Ok((self.stack.slots.id(index), taken))
    }

    /// The key with a local port that is free and brings answers to this lcore.
    fn with_port(&mut self, key: FlowKey, path: Path) -> Option<FlowKey> {
        let port = self.stack.host.port_of(path);
        // Back in its place below; nothing in between calls for it.
        let rule = self.stack.rule.take();
        let choice = match (&rule, port) {
            (Some(rule), Some(port)) => rule.ports(port, &key),
            _ => PortChoice::Any,
        };
        let found = match choice {
            PortChoice::Any => self.any_port(key, Share::ALL),
            PortChoice::Mapped(share) => self.any_port(key, share),
            PortChoice::Among(ports) => self.port_among(key, ports).or_else(|| {
                let share = rule.as_ref().and_then(|rule| rule.mapped());
                self.any_port(key, share?)
            }),
            PortChoice::Nothing => None,
        };
        self.stack.rule = rule;
        found
    }

    /// The key with one of these local ports that is free.
    fn port_among(&mut self, key: FlowKey, ports: Ports<'_>) -> Option<FlowKey> {
        let now_ns = self.now_ns;
        let stack = &mut *self.stack;
        let ports = ports.range(stack.ports.clone());
        let uses = Uses {
            slots: &stack.slots,
            lingering4: &stack.lingering4,
            lingering6: &stack.lingering6,
        };
        match key {
            FlowKey::V4(tuple) => {
                let is_used = |port| uses.has4(&tuple.with_local_port(port), now_ns);
                let port = stack
                    .chooser
                    .choose_among(&tuple, &ports, is_used, now_ns)?;
                Some(FlowKey::V4(tuple.with_local_port(port)))
            }
            FlowKey::V6(tuple) => {
                let is_used = |port| uses.has6(&tuple.with_local_port(port), now_ns);
                let port = stack
                    .chooser
                    .choose_among(&tuple, &ports, is_used, now_ns)?;
                Some(FlowKey::V6(tuple.with_local_port(port)))
            }
        }
    }

    /// The key with any local port of a share that is free.
    fn any_port(&mut self, key: FlowKey, share: Share) -> Option<FlowKey> {
        let now_ns = self.now_ns;
        let range = (self.stack.ports.clone(), share);
        let stack = &mut *self.stack;
        let uses = Uses {
            slots: &stack.slots,
            lingering4: &stack.lingering4,
            lingering6: &stack.lingering6,
        };
        let port = match &key {
            FlowKey::V4(tuple) => {
                let is_used = |port| {
                    let tuple = tuple.with_local_port(port);
                    uses.has4(&tuple, now_ns)
                };
                stack.chooser.choose_of(tuple, range, is_used, now_ns)
            }
            FlowKey::V6(tuple) => {
                let is_used = |port| {
                    let tuple = tuple.with_local_port(port);
                    uses.has6(&tuple, now_ns)
                };
                stack.chooser.choose_of(tuple, range, is_used, now_ns)
            }
        }?;
        Some(match key {
            FlowKey::V4(tuple) => FlowKey::V4(tuple.with_local_port(port)),
            FlowKey::V6(tuple) => FlowKey::V6(tuple.with_local_port(port)),
        })
    }

    /// Does something with a connection, and sends what comes of it.
    #[inline]
    fn with<R>(
        &mut self,
        id: SocketId,
        work: impl FnOnce(&mut Connection, &mut Context<'_, Way<'_>>) -> R,
    ) -> Result<R, Error> {
        self.with_for::<false, R>(id, work)
    }

    /// The same of what writes: a short frame behind long ones may wait for the stack's turn.
    #[inline]
    fn with_write<R>(
        &mut self,
        id: SocketId,
        work: impl FnOnce(&mut Connection, &mut Context<'_, Way<'_>>) -> R,
    ) -> Result<R, Error> {
        self.with_for::<true, R>(id, work)
    }

    #[inline(always)]
    fn with_for<const WRITES: bool, R>(
        &mut self,
        id: SocketId,
        work: impl FnOnce(&mut Connection, &mut Context<'_, Way<'_>>) -> R,
    ) -> Result<R, Error> {
        let Io { stack, out, now_ns } = self;
        let Some((slot, connection)) = stack.slots.get_both(id) else {
            return Err(Error::NotConnected);
        };
        let mut way = Way::new(&mut stack.host, out, slot, *now_ns);
        let mut cx = Context {
            now_ns: *now_ns,
            shared: &mut stack.shared,
            wire: &mut way,
        };
        let done = work(connection, &mut cx);
        let waits = match WRITES && stack.written.len() < stack.written.capacity() {
            true => connection.push_written(&mut cx),
            false => {
                connection.push(&mut cx);
                false
            }
        };
        if !is_settled(slot, connection) {
            stack.settle(id.slot, *now_ns, out);
        }
        if waits {
            stack.note_written(id.slot);
        }
        Ok(done)
    }

    /// Reads up to `out.len()` bytes; 0 is the end.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is nothing yet; what has ended the connection.
    #[inline]
    pub fn read(&mut self, id: SocketId, out: &mut [u8]) -> Result<usize, Error> {
        self.with(id, |connection, cx| connection.read(cx, out))?
    }

    /// Takes the next piece of what can be read as it came: the packet, and where in its data the
    /// bytes lie. `None` is the end. The packet goes back by [`give`](Self::give).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn take(&mut self, id: SocketId) -> Result<Option<(Packet, Span)>, Error> {
        self.with(id, |connection, cx| connection.take(cx))?
    }

    /// Gives a packet back that was taken.
    #[inline]
    pub fn give(&mut self, packet: Packet) {
        self.out.cache.free_one(packet);
    }

    /// Shows `look` the next bytes that can be read, as far as they lie together (none where there
    /// are none); it says how many of them are done with.
    ///
    /// # Errors
    /// As [`read`](Self::read), but where there is nothing `look` is not called.
    pub fn consume(
        &mut self,
        id: SocketId,
        look: impl FnOnce(&[u8]) -> usize,
    ) -> Result<usize, Error> {
        self.with(id, |connection, cx| {
            if connection.readable() == 0 {
                return connection.read(cx, &mut []);
            }
            let done = look(connection.front(cx));
            Ok(connection.discard(cx, done.min(u32::MAX as usize) as u32) as usize)
        })?
    }

    /// Copies the next bytes that can be read to `out`, and leaves them. Returns how many; 0 where
    /// there are none.
    pub fn peek(&mut self, id: SocketId, out: &mut [u8]) -> usize {
        let peeked = self.with(id, |connection, cx| connection.peek(cx, out));
        peeked.unwrap_or(0)
    }

    /// Writes as many bytes as there is room for.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where there is no room now; [`Error::Closed`] after a close; what has
    /// ended the connection.
    #[inline]
    pub fn write(&mut self, id: SocketId, bytes: &[u8]) -> Result<usize, Error> {
        self.with_write(id, |connection, cx| connection.write(cx, bytes))?
    }

    /// The same, and the last byte ends urgent data (MSG_OOB; RFC 9293 3.8.5).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_urgent(&mut self, id: SocketId, bytes: &[u8]) -> Result<usize, Error> {
        self.with(id, |connection, cx| connection.write_urgent(cx, bytes))?
    }

    /// Bytes to be read up to the end of urgent data, whether they have come or not (RFC 9293
    /// 3.8.5); `None` where nothing urgent is ahead.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn urgent(&mut self, id: SocketId) -> Result<Option<u32>, Error> {
        self.with(id, |connection, cx| connection.urgent(cx.shared))
    }

    /// Whether what is read next is the last urgent byte, or comes behind it where that is kept
    /// apart (POSIX: sockatmark). A read ends there.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn is_at_mark(&mut self, id: SocketId) -> Result<bool, Error> {
        self.with(id, |connection, cx| connection.is_at_mark(cx.shared))
    }

    /// Keeps the last urgent byte apart for [`read_urgent`](Self::read_urgent), or no longer. By
    /// default it is read in its place (RFC 6093 6; Linux: SO_OOBINLINE).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_urgent_apart(&mut self, id: SocketId, on: bool) -> Result<(), Error> {
        self.with(id, |connection, _| connection.set_urgent_apart(on))
    }

    /// The last urgent byte, where it is kept apart; each is given once. `None` where there is
    /// none.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] where it was announced, and has not come yet; [`Error::NotConnected`]
    /// where there is no such connection.
    pub fn read_urgent(&mut self, id: SocketId) -> Result<Option<u8>, Error> {
        self.with(id, |connection, cx| connection.read_urgent(cx))?
    }

    /// The same of several slices, one after the other.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_vectored(&mut self, id: SocketId, slices: &[&[u8]]) -> Result<usize, Error> {
        self.with_write(id, |connection, cx| {
            let mut sum = 0;
            for bytes in slices.iter().filter(|bytes| !bytes.is_empty()) {
                match connection.write(cx, bytes) {
                    Ok(count) if count == bytes.len() => sum += count,
                    Ok(count) => return Ok(sum + count),
                    Err(Error::WouldBlock) if sum > 0 => return Ok(sum),
                    Err(error) => return Err(error),
                }
            }
            Ok(sum)
        })?
    }

    /// Has `fill` write up to `count` bytes straight to where they are sent from; it gets room for
    /// so many or fewer, and says how many it has written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with(
        &mut self,
        id: SocketId,
        count: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, Error> {
        self.with_write(id, |connection, cx| {
            let room = connection.reserve(cx, count)?;
            let written = fill(room).min(count);
            connection.commit(cx, written);
            Ok(written)
        })?
    }

    /// The same of up to `count` bytes that need not lie together: `fill` is called with room after
    /// room, until it leaves some of one or there is no more. They leave as what one write has
    /// written, in frames as long as the port takes.
    ///
    /// # Errors
    /// As [`write`](Self::write), where nothing was written.
    pub fn write_rooms(
        &mut self,
        id: SocketId,
        count: usize,
        mut fill: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<usize, Error> {
        self.with_write(id, |connection, cx| {
            let mut sum = 0;
            while sum < count {
                let room = match connection.reserve(cx, count - sum) {
                    Ok(room) => room,
                    Err(_) if sum > 0 => break,
                    Err(error) => return Err(error),
                };
                let len = room.len();
                let written = fill(room).min(len);
                connection.commit(cx, written);
                sum += written;
                if written < len {
                    break;
                }
            }
            Ok(sum)
        })?
    }

    /// Bytes that a write takes now, or fewer where the stack as a whole is short of room; 0 where
    /// there is no connection.
    #[inline]
    pub fn writable(&mut self, id: SocketId) -> usize {
        match self.stack.slots.get(id) {
            Some(_) => self.stack.slots.connection(id.slot).writable() as usize,
            None => 0,
        }
    }

    /// Bytes that can be read; 0 where there is no connection.
    #[inline]
    pub fn readable(&mut self, id: SocketId) -> usize {
        match self.stack.slots.get(id) {
            Some(_) => self.stack.slots.connection(id.slot).readable() as usize,
            None => 0,
        }
    }

    /// Says that nothing more will be written; what was written is sent first.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn shutdown(&mut self, id: SocketId) -> Result<(), Error> {
        self.with(id, |connection, cx| connection.shutdown(cx))
    }

    /// Closes a connection: its id means nothing any more. What was written is sent first.
    pub fn close(&mut self, id: SocketId) {
        if self.with(id, |connection, cx| connection.close(cx)).is_ok() {
            self.disown(id);
        }
    }

    /// Ends a connection at once, with a reset.
    pub fn abort(&mut self, id: SocketId) {
        if self.with(id, |connection, cx| connection.abort(cx)).is_ok() {
            self.disown(id);
        }
    }

    fn disown(&mut self, id: SocketId) {
        if self.stack.slots.get(id).is_some() {
            self.stack.disown(id.slot, self.now_ns, self.out);
        }
    }

    /// Sets what one wants to know of a connection (bits of [`interest`](super::interest)) and the
    /// word that comes with it.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn register(&mut self, id: SocketId, wanted: u8, token: u64) -> Result<(), Error> {
        self.stack.slots.get(id).ok_or(Error::NotConnected)?;
        self.stack.set_interest(id.slot, wanted, token);
        Ok(())
    }

    /// Writes what is ready into `events`; returns how many. What does not fit comes with the next
    /// call.
    #[inline]
    pub fn poll(&mut self, events: &mut [Event]) -> usize {
        self.stack.poll(events)
    }

    /// Our end and the peer's.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn addresses(&mut self, id: SocketId) -> Result<(SocketAddr, SocketAddr), Error> {
        let slot = self.stack.slots.get(id).ok_or(Error::NotConnected)?;
        let remote = match &slot.key {
            FlowKey::V4(key) => key.remote(),
            FlowKey::V6(key) => key.remote(),
        };
        Ok((local_of(&slot.key).into(), remote))
    }

    /// What is known of a connection.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn info(&mut self, id: SocketId) -> Result<Info, Error> {
        let now_ns = self.now_ns;
        self.stack.slots.get(id).ok_or(Error::NotConnected)?;
        let slots = &self.stack.slots;
        Ok(slots.look(id.slot, |connection| connection.info(now_ns)))
    }

    /// What has ended a connection, if anything has.
    pub fn error(&mut self, id: SocketId) -> Option<Error> {
        self.stack.slots.get(id)?;
        self.stack.slots.connection(id.slot).error()
    }

    /// What ICMP has said of a connection that goes on, if it has since this was asked last (RFC
    /// 9293 3.9.1.8, MUST-47; Linux: SO_ERROR). Who wants to hear of it at once asks for
    /// [reports](super::interest::REPORT).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn take_soft_error(&mut self, id: SocketId) -> Result<Option<SoftError>, Error> {
        self.stack.slots.get(id).ok_or(Error::NotConnected)?;
        Ok(self.stack.slots.connection(id.slot).take_soft_error())
    }

    /// Small segments do not wait for others' ACKs (TCP_NODELAY).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_no_delay(&mut self, id: SocketId, on: bool) -> Result<(), Error> {
        self.with(id, |connection, cx| connection.set_no_delay(cx, on))
    }

    /// Only full segments are sent, until this is taken back (TCP_CORK).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_cork(&mut self, id: SocketId, on: bool) -> Result<(), Error> {
        self.with(id, |connection, _| connection.set_cork(on))
    }

    /// ACKs are not delayed (TCP_QUICKACK).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_quick_ack(&mut self, id: SocketId, on: bool) -> Result<(), Error> {
        self.with(id, |connection, _| connection.set_quick_ack(on))
    }

    /// Probes an idle peer, or no longer (SO_KEEPALIVE).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_keepalive(
        &mut self,
        id: SocketId,
        keepalive: Option<Keepalive>,
    ) -> Result<(), Error> {
        self.with(id, |connection, cx| connection.set_keepalive(cx, keepalive))
    }

    /// How long what was sent may be unacknowledged, in milliseconds; 0 for the usual
    /// (TCP_USER_TIMEOUT).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_user_timeout(&mut self, id: SocketId, ms: u32) -> Result<(), Error> {
        self.with(id, |connection, _| connection.set_user_timeout(ms))
    }

    /// Goes on with another congestion control (TCP_CONGESTION).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_algorithm(&mut self, id: SocketId, algorithm: Algorithm) -> Result<(), Error> {
        let now_ns = self.now_ns;
        self.with(id, |connection, _| {
            connection.set_algorithm(algorithm, now_ns)
        })
    }

    /// The most that may be written and unacknowledged, in bytes (SO_SNDBUF).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_send_limit(&mut self, id: SocketId, bytes: u32) -> Result<(), Error> {
        self.with(id, |connection, _| connection.set_send_limit(bytes))
    }

    /// The most that it is paced at, in bytes a second; 0 for no limit (SO_MAX_PACING_RATE).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_pacing_limit(&mut self, id: SocketId, bytes_per_s: u64) -> Result<(), Error> {
        self.with(id, |connection, _| connection.set_pacing_limit(bytes_per_s))
    }

    /// The Diffserv codepoint of what is sent from now on (RFC 9293 3.9.1.9, MUST-48, SHLD-21;
    /// Linux: IP_TOS, IPV6_TCLASS). It goes to IP as it is; more than
    /// [`MAX_DSCP`](crate::host::MAX_DSCP) is cut to 6 bits. Who changes it often may see segments
    /// overtake each other (SHLD-23).
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_dscp(&mut self, id: SocketId, dscp: u8) -> Result<(), Error> {
        let slot = self.stack.slots.get(id).ok_or(Error::NotConnected)?;
        slot.fields = slot.fields.with_dscp(dscp);
        Ok(())
    }

    /// The time to live, or hop limit, of what is sent from now on (MUST-49; Linux: IP_TTL,
    /// IPV6_UNICAST_HOPS); 0 is taken for 1.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn set_ttl(&mut self, id: SocketId, ttl: u8) -> Result<(), Error> {
        let slot = self.stack.slots.get(id).ok_or(Error::NotConnected)?;
        slot.fields = slot.fields.with_ttl(ttl);
        Ok(())
    }

    /// Both of a connection.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no such connection.
    pub fn ip_options(&mut self, id: SocketId) -> Result<IpOptions, Error> {
        let slot = self.stack.slots.get(id).ok_or(Error::NotConnected)?;
        Ok(IpOptions {
            dscp: Some(slot.fields.dscp()),
            ttl: Some(slot.fields.ttl()),
        })
    }

    /// Addresses, ports and facts of all connections, in no order.
    pub fn connections(&mut self) -> impl Iterator<Item = (SocketAddr, SocketAddr, Info)> + '_ {
        let now_ns = self.now_ns;
        let slots = &self.stack.slots;
        slots.indices().map(move |index| {
            let slot = &slots[index];
            let remote = match &slot.key {
                FlowKey::V4(key) => key.remote(),
                FlowKey::V6(key) => key.remote(),
            };
            (
                local_of(&slot.key).into(),
                remote,
                slots.look(index, |connection| connection.info(now_ns)),
            )
        })
    }

    /// Address, port, connections that wait, half-open ones, and those that found no room, of each
    /// listener.
    pub fn listeners(
        &self,
    ) -> impl Iterator<Item = (ListenerId, Option<IpAddr>, u16, u32, u32, u64)> + '_ {
        self.stack.listeners.iter().map(|(id, listener)| {
            let listen = &listener.listen;
            let (waiting, half_open) = (listener.waiting, listener.half_open);
            (
                id,
                listen.address,
                listen.port,
                waiting,
                half_open,
                listener.refused,
            )
        })
    }
}
