//! Applications on a stack: what a user writes, and the stage that runs it.
//!
//! An [`App`] is sans-IO as the stack is: it is told which sockets are ready, and calls them. It
//! has one lcore, one stack and no locks. [`StackStage`] turns packets into what it is told, and
//! has all timers; [`Apps`] lets several applications share a stack, and come and go.

mod apps;

pub use apps::{Apps, Change, New, Numbers};

use std::net::SocketAddr;

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{Egress, NEVER, Stage};
use linerate_epc::tunnels::Handed;
use linerate_stack::host::InterfaceId;
use linerate_stack::socket::{Connect, ConnectError, Event, Io, IpOptions};
use linerate_stack::socket::{Listen, ListenerId, SocketId, Stack};

use crate::steering::plan::Member;

/// Sockets that an application is told of at a time: what it does in a round is bounded by this.
const EVENTS: usize = 256;

/// Why an application cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Somebody listens there already.
    #[error("somebody listens to port {0} already: give it another one")]
    Taken(u16),
    /// A table has no memory.
    #[error("{0}")]
    Table(String),
}

/// An application of one lcore.
pub trait App: Send {
    /// Begins: listens to its ports. There is no way out yet, so that it connects in its first
    /// [`turn`](Self::turn).
    ///
    /// # Errors
    /// It cannot.
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error>;

    /// Sockets are ready. What it leaves undone of a level-triggered one it is told again.
    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]);

    /// A connection has been accepted for it: one from another lcore, or one whose user was to be
    /// found first ([`ByUser`](crate::by_user::ByUser)). Who does not listen ends it.
    fn accepted(&mut self, io: &mut Io<'_>, id: SocketId) {
        io.abort(id);
    }

    /// Does what is due, every round. Returns when to come again at the latest, in nanoseconds;
    /// [`NEVER`] if only events give it work.
    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        let _ = io;
        NEVER
    }

    /// A connection that its own listener had has been accepted.
    fn met(&mut self, io: &mut Io<'_>, id: SocketId) {
        self.accepted(io, id);
    }

    /// Where it listens, if it does.
    fn listening(&mut self) -> Option<&mut Listening> {
        None
    }

    /// It ends, or another one of its kind comes in its place: it begins no more connections, and
    /// goes on with those that it has. Its listener is no longer its own.
    fn retire(&mut self, io: &mut Io<'_>, has_successor: bool) {
        let _ = (io, has_successor);
    }

    /// Of one that has retired: the next connection between two exchanges, which it does not know
    /// any more, for its successor.
    fn released(&mut self) -> Option<SocketId> {
        None
    }

    /// The connections that it has, for one that has retired.
    fn open(&self) -> u64 {
        0
    }

    /// Names and values of what it counts.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Whether it takes packets before the stack does: asked once.
    fn is_gateway(&self) -> bool {
        false
    }

    /// A gateway takes of a burst, whole frames to our MAC address, what it can deal with at once.
    /// What goes on in a tunnel that ends at this host is in `handed` then.
    fn burst(&mut self, io: &mut Io<'_>, burst: &mut Burst, handed: &mut Handed) {
        let _ = (io, burst, handed);
    }

    /// A gateway takes what another one has handed on, as far as it is for this one.
    fn handed(&mut self, io: &mut Io<'_>, handed: &mut Handed) {
        let _ = (io, handed);
    }

    /// Whether a gateway takes this packet, a whole frame to our MAC address.
    fn claims(&self, packet: &Packet) -> bool {
        let _ = packet;
        false
    }

    /// Takes a packet that it claims.
    fn packet(&mut self, io: &mut Io<'_>, packet: Packet) {
        done_with(io, packet);
    }

    /// Takes what the same application of another lcore has sent.
    fn parcel(&mut self, io: &mut Io<'_>, packet: Packet) {
        done_with(io, packet);
    }

    /// The next packet that goes to the same application of another lcore. What is made for it was
    /// told to the egress ([`Egress::made`]).
    fn leaving(&mut self) -> Option<(Member, Packet)> {
        None
    }
}

/// Parcels of applications have kinds from this on: the place of the application is added.
pub const PARCEL: u16 = 1 << 8;

/// Frees a packet that an application got, and that has done what it came for.
pub fn done_with(io: &mut Io<'_>, packet: Packet) {
    let (_, _, out) = io.udp();
    out.consume_one(packet);
}

/// Listens to a port for an application that no other one takes the place of.
///
/// # Errors
/// Somebody does.
pub fn listen(io: &mut Io<'_>, listen: Listen) -> Result<ListenerId, Error> {
    io.listen(listen).ok_or(Error::Taken(listen.port))
}

/// Opens a connection whose segments have what `ip` says.
///
/// # Errors
/// Why it cannot be.
pub fn connect(io: &mut Io<'_>, to: SocketAddr, ip: IpOptions) -> Result<SocketId, ConnectError> {
    let how = Connect {
        ip,
        ..Connect::to(to)
    };
    Ok(io.open(&how)?.0)
}

/// Where an application listens.
#[derive(Clone, Copy, Debug)]
pub struct Listening {
    /// How.
    pub on: Listen,
    id: Option<ListenerId>,
}

impl Listening {
    /// To begin by [`start`](Self::start); the token of `on` is the application's.
    pub fn new(on: Listen, token: u64) -> Self {
        Self {
            on: Listen { token, ..on },
            id: None,
        }
    }

    /// Listens, unless it does already.
    ///
    /// # Errors
    /// Somebody else does.
    pub fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        if self.id.is_none() {
            self.id = Some(io.listen(self.on).ok_or(Error::Taken(self.on.port))?);
        }
        Ok(())
    }

    /// Takes the listener of another application over, if it is at the same address and port: what
    /// waits there waits for this one.
    fn succeed(&mut self, former: &mut Self, io: &mut Io<'_>) {
        let Some(id) = former.id else { return };
        if io.relisten(id, self.on) {
            self.id = former.id.take();
        }
    }
}

/// The tokens of one application among others on a stack: its number is in the highest byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens(u8);

impl Tokens {
    /// Those of the application of this number.
    pub const fn of(number: u8) -> Self {
        Self(number)
    }

    /// The token for a value below 2^56.
    pub const fn token(self, value: u64) -> u64 {
        (self.0 as u64) << 56 | value & ((1 << 56) - 1)
    }

    /// The value of a token.
    pub const fn value(token: u64) -> u64 {
        token & ((1 << 56) - 1)
    }

    /// The number of the application whose token this is.
    const fn number(token: u64) -> usize {
        (token >> 56) as usize
    }
}

/// A stack and its application as the stage of an lcore.
pub struct StackStage<A> {
    /// The stack.
    pub stack: Stack,
    /// The application.
    pub app: A,
    clock: Clock,
    served: Served,
}

/// A stack's application, as whoever drives both calls them.
pub(crate) struct Served {
    events: Box<[Event]>,
}

impl Served {
    pub(crate) fn new() -> Self {
        Self {
            events: vec![Event::default(); EVENTS].into(),
        }
    }

    /// Brings packets of this lcore to the application, where it claims them, and to the stack.
    #[inline]
    pub(crate) fn receive(
        (stack, app): (&mut Stack, &mut impl App),
        burst: &mut Burst,
        now_ns: u64,
        out: &mut Egress,
    ) {
        if app.is_gateway() {
            let (mut others, mut claimed) = (Burst::new(), Burst::new());
            let host = stack.host();
            // As a rule all are, and none is moved.
            if !burst.iter().all(|packet| host.is_to_us(packet)) {
                burst.retain(&mut others, |packet| host.is_to_us(packet));
            }
            let mut handed = Handed::new();
            let mut io = stack.io(now_ns, out);
            app.burst(&mut io, burst, &mut handed);
            // The stack takes them as what has come to this host from itself.
            handed.give_up(burst, InterfaceId::LOOPBACK.number());
            burst.retain(&mut claimed, |packet| !app.claims(packet));
            for packet in claimed.drain() {
                app.packet(&mut io, packet);
            }
            others.move_front(others.len(), burst);
        }
        stack.receive(burst, now_ns, out);
    }

    /// Tells the application what is ready and does what is due; returns when timers come next.
    #[inline]
    pub(crate) fn work(
        &mut self,
        (stack, app): (&mut Stack, &mut impl App),
        now_ns: u64,
        out: &mut Egress,
    ) -> u64 {
        let mut io = stack.io(now_ns, out);
        let count = io.poll(&mut self.events);
        if count > 0 {
            app.ready(&mut io, &self.events[..count]);
        }
        let next = app.turn(&mut io);
        // Last: the calls above may have set timers.
        next.min(stack.turn(now_ns, out))
    }

    /// When to come again, `next` being when timers do.
    #[inline]
    pub(crate) fn due(stack: &Stack, now_ns: u64, next: u64) -> u64 {
        match stack.has_ready() || stack.has_waiting() {
            true => now_ns,
            false => next,
        }
    }
}

impl<A: App> StackStage<A> {
    /// The stage of an lcore with this clock. The application is to be [started](App::start).
    pub fn new(stack: Stack, app: A, clock: Clock) -> Self {
        Self {
            stack,
            app,
            clock,
            served: Served::new(),
        }
    }

    /// The time of the worker's clock in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.clock.ns(self.clock.now())
    }

    /// Packets of this lcore at a time.
    pub fn receive(&mut self, burst: &mut Burst, now_ns: u64, out: &mut Egress) {
        Served::receive((&mut self.stack, &mut self.app), burst, now_ns, out);
    }

    /// Tells the application what is ready and does what is due; returns when to come again, in
    /// nanoseconds.
    pub fn work(&mut self, now_ns: u64, out: &mut Egress) -> u64 {
        let both = (&mut self.stack, &mut self.app);
        let next = self.served.work(both, now_ns, out);
        Served::due(&self.stack, now_ns, next)
    }
}

impl<A: App> Stage for StackStage<A> {
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        let now_ns = self.clock.ns(burst.now);
        self.receive(burst, now_ns, out);
    }

    fn turn(&mut self, now: u64, (): &mut (), out: &mut Egress) -> u64 {
        let now_ns = self.clock.ns(now);
        match self.work(now_ns, out) {
            NEVER => NEVER,
            next if next <= now_ns => now,
            // Rounded up: a turn before its time would be one for nothing.
            next => self.clock.ticks(next).saturating_add(1),
        }
    }

    fn held(&self) -> u64 {
        self.stack.held()
    }

    fn held_packets(&self) -> u64 {
        self.stack.held_packets()
    }
}
