//! The home subscriber server: who the users are, and which MME has each (TS 29.272).
//!
//! Subscribers are ranges of numbers, and their keys are derived, so that only users who are
//! somewhere take memory.

use crate::challenge::{Key, siphash};
use crate::ids::MAX_CORES;
use crate::link::{Link, Node, Notice, Owner, Sink};
use crate::records::Records;
use crate::s6a::connection::{Connection, State};
use crate::s6a::{
    self, Contents, Identity, Name, ROOM, Refusal, Subscription, command, experimental,
};
use crate::{Cores, EpcError};
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_wire::diameter::{self, Diameter, Writer, avp, result};
use linerate_wire::gtpc::ie::Imsi;

/// Subscribers: so many numbers from one on.
#[derive(Clone, Copy, Debug)]
pub struct Subscribers {
    /// The first.
    pub first: Imsi,
    /// How many.
    pub count: u64,
    /// What they may do.
    pub subscription: Subscription,
}

impl Subscribers {
    fn has(&self, user: Imsi) -> bool {
        let offset = user.number().wrapping_sub(self.first.number());
        user.digits() == self.first.digits() && offset < self.count
    }
}

/// How an HSS is to be.
#[derive(Clone, Debug)]
pub struct HssConfig {
    /// Who it is.
    pub who: Identity,
    /// Who the users are.
    pub subscribers: Vec<Subscribers>,
    /// The access point that they may use.
    pub apn: String,
    /// What users' keys are derived from.
    pub operator: u64,
    /// Users who are somewhere, for each core.
    pub users: usize,
    /// Connections.
    pub connections: u16,
    /// Milliseconds of silence before a peer is asked (Tw of RFC 3539: 30 s).
    pub silence_ms: u64,
    /// Makes identifiers and challenges unpredictable.
    pub secret: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // what each counts is its name
pub struct HssCounts {
    pub vectors: u64,
    pub located: u64,
    pub purged: u64,
    /// Users who came to another MME: the one they left was told, if its connection took that.
    pub cancelled: u64,
    /// The same, where the one they left has no connection that is known here.
    pub unreachable: u64,
    /// Requests refused: unknown users, want of room, contents.
    pub refused: u64,
    /// Messages that are none, or came before capabilities were exchanged.
    pub malformed: u64,
}

/// Bits of a core's requests; those of the core are above, 24 in all.
const NUMBER_BITS: u32 = 24 - MAX_CORES.trailing_zeros();

/// Where a user is: the MME's name.
#[derive(Clone, Copy, Default)]
struct Place(Name);

/// One core's part of an HSS.
pub struct Hss {
    config: HssConfig,
    core: u8,
    connections: Box<[Connection]>,
    /// Whom each connection leads to, on every core: they are opened and closed on one.
    peers: Box<[Option<Name>]>,
    places: Records<Place>,
    by_imsi: Exact<8, [u8; 4]>,
    challenges: u64,
    requests: u32,
    /// What was counted.
    pub counts: HssCounts,
}

impl Hss {
    /// The part of `core`.
    ///
    /// # Errors
    /// [`EpcError`] for what does not fit identifiers, and for want of memory.
    pub fn new(config: &HssConfig, cores: Cores, core: u8) -> Result<Self, EpcError> {
        let (users, secret) = (config.users, config.secret);
        let index = ExactConfig::new("hss users", users, Seed::random());
        Ok(Self {
            config: config.clone(),
            core,
            connections: vec![Connection::default(); config.connections.into()].into(),
            peers: vec![None; config.connections.into()].into(),
            places: Records::new("hss places", users, cores, core, secret)?,
            by_imsi: Exact::new(&index)?,
            challenges: 0,
            requests: 0,
            counts: HssCounts::default(),
        })
    }

    /// How many users are somewhere.
    pub fn users(&self) -> usize {
        self.places.len()
    }

    /// How far a connection is, on the core that has its stream.
    pub fn connection(&self, number: u16) -> State {
        let connection = self.connections.get(usize::from(number));
        connection.map_or(State::Closed, Connection::state)
    }

    fn request(&mut self, connection: u16, message: &Diameter<&[u8]>, out: &mut impl Sink) {
        let contents = Contents::read(message);
        let session = contents.as_ref().ok().and_then(|found| found.session);
        let done = contents.and_then(|found| self.handle(connection, message, &found, out));
        let code = done.as_ref().map_or_else(|code| *code, |_| result::SUCCESS);
        let mut room = [0; ROOM];
        let mut to = s6a::answer(&mut room, &self.config.who, message, session, code);
        match done {
            Ok(Done::Vector(user)) => {
                self.challenges += 1;
                let key = [self.config.secret, u64::from(self.core) | 1 << 32];
                let half = |half: u64| {
                    let number = [self.challenges, half].map(u64::to_le_bytes).concat();
                    siphash(key, &number).to_be_bytes()
                };
                let mut rand = [0; 16];
                rand[..8].copy_from_slice(&half(0));
                rand[8..].copy_from_slice(&half(1));
                let key = Key::derive(self.config.operator, user);
                s6a::put_vector(&mut to, &key.vector(rand));
            }
            Ok(Done::Located(user, subscription)) => {
                s6a::put_subscription(&mut to, user, &self.config.apn, &subscription);
            }
            Ok(Done::Purged) => s6a::put_purged(&mut to),
            Err(_) => self.counts.refused += 1,
        }
        finish(Link::S6a(connection), to, out);
    }

    fn handle(
        &mut self,
        connection: u16,
        message: &Diameter<&[u8]>,
        found: &Contents<'_>,
        out: &mut impl Sink,
    ) -> Result<Done, Refusal> {
        let user = found.user.ok_or(result::MISSING_AVP)?;
        found.session.ok_or(result::MISSING_AVP)?;
        let mut subscribers = self.config.subscribers.iter();
        let subscribers = subscribers.find(|subscribers| subscribers.has(user));
        let subscription = subscribers.ok_or(experimental::USER_UNKNOWN)?.subscription;
        match message.command() {
            command::AUTHENTICATION_INFORMATION => {
                found.plmn.ok_or(result::MISSING_AVP)?;
                self.counts.vectors += 1;
                Ok(Done::Vector(user))
            }
            command::UPDATE_LOCATION => {
                found.plmn.ok_or(result::MISSING_AVP)?;
                let host = found.origin_host.ok_or(result::MISSING_AVP)?;
                let name = Name::new(host).ok_or(result::INVALID_AVP_VALUE)?;
                // The lcore that has the stream tells once whom it leads to, and may not be heard.
                if let Some(peer) = self.peers.get_mut(usize::from(connection)) {
                    *peer = Some(name);
                }
                self.locate(user, name, out)?;
                self.counts.located += 1;
                Ok(Done::Located(user, subscription))
            }
            command::PURGE_UE => {
                let host = found.origin_host.ok_or(result::MISSING_AVP)?;
                self.purge(user, host);
                Ok(Done::Purged)
            }
            _ => Err(result::COMMAND_UNSUPPORTED),
        }
    }

    /// The user is there now; the MME that had it is told (TS 29.272 5.2.1.2).
    fn locate(&mut self, user: Imsi, name: Name, out: &mut impl Sink) -> Result<(), Refusal> {
        let place = Place(name);
        let known = self.by_imsi.lookup(&user.bytes()).map(u32::from_be_bytes);
        if let Some(old) = known.and_then(|id| self.places.get_mut(id)) {
            let left = std::mem::replace(old, place);
            if left.0 != place.0 {
                self.cancel(user, &left.0, out);
            }
            return Ok(());
        }
        let id = self.places.insert(place).ok_or(result::UNABLE_TO_COMPLY)?;
        let bytes = id.to_be_bytes();
        if self.by_imsi.insert(&user.bytes(), bytes).is_err() {
            self.places.remove(id);
            return Err(result::UNABLE_TO_COMPLY);
        }
        Ok(())
    }

    /// Tells the MME of that name, by whichever connection it has now.
    fn cancel(&mut self, user: Imsi, left: &Name, out: &mut impl Sink) {
        let mut peers = self.peers.iter();
        let Some(connection) = peers.position(|peer| peer.as_ref() == Some(left)) else {
            self.counts.unreachable += 1;
            return;
        };
        self.counts.cancelled += 1;
        self.requests = self.requests.wrapping_add(1) & ((1 << NUMBER_BITS) - 1);
        // All cores say something on it: each has numbers of its own (RFC 6733 3).
        let number = u32::from(self.core) << NUMBER_BITS | self.requests;
        let (mut room, who) = ([0; ROOM], &self.config.who);
        let command = command::CANCEL_LOCATION;
        let mut to = s6a::request(&mut room, who, command, number, user);
        s6a::put_cancellation(&mut to, left.bytes());
        finish(Link::S6a(connection as u16), to, out);
    }

    /// The MME forgot the user, if it is the one that has it.
    fn purge(&mut self, user: Imsi, host: &[u8]) {
        let id = self.by_imsi.lookup(&user.bytes()).map(u32::from_be_bytes);
        let Some(id) = id else { return };
        if self
            .places
            .get(id)
            .is_some_and(|place| place.0.bytes() == host)
        {
            self.places.remove(id);
            self.by_imsi.remove(&user.bytes());
            self.counts.purged += 1;
        }
    }
}

enum Done {
    Vector(Imsi),
    Located(Imsi, Subscription),
    Purged,
}

fn finish(link: Link, to: Writer<'_>, out: &mut impl Sink) {
    // Names come from the configuration: one that is too long makes no message at all.
    if let Some(message) = to.finish() {
        out.send(link, message);
    }
}

/// Whose a Diameter message is: the user's that it names; all else is the connection's.
pub(crate) fn owner(message: &[u8]) -> Owner {
    let Ok(message) = Diameter::new_checked(message) else {
        return Owner::Home;
    };
    if message.application() == 0 {
        return Owner::Home;
    }
    let mut avps = message.avps().flatten();
    let user = avps.find(|found| found.is(avp::USER_NAME, None));
    let user = user.and_then(|user| Imsi::from_text(user.data));
    user.map_or(Owner::Home, Owner::User)
}

impl Node for Hss {
    fn owner(_: Cores, from: Link, message: &[u8]) -> Owner {
        match from {
            Link::S6a(_) => owner(message),
            _ => Owner::Home,
        }
    }

    fn receive(&mut self, now_ns: u64, from: Link, message: &mut [u8], out: &mut impl Sink) {
        let Link::S6a(number) = from else { return };
        let Ok(message) = Diameter::new_checked(&*message) else {
            self.counts.malformed += 1;
            return;
        };
        // A connection whose stream another core has is closed here, and open there: it has
        // passed the message on. One that has ended here is closed, too: what it had passed on
        // before is handled elsewhere, and what comes by it still is handled here.
        let at = usize::from(number);
        if let Some(connection) = self.connections.get_mut(at)
            && connection.state() != State::Closed
        {
            let is_s6a = connection.take(now_ns, from, &message, &self.config.who, out);
            let is_capabilities = !is_s6a
                && message.is_request()
                && message.command() == diameter::command::CAPABILITIES_EXCHANGE;
            if is_capabilities && connection.state() == State::Open {
                let contents = Contents::read(&message).ok();
                let name = contents.and_then(|found| Name::new(found.origin_host?));
                self.peers[at] = name;
                if let Some(name) = name {
                    out.tell(Notice::Named(from, name));
                }
            } else if connection.state() == State::Closed {
                self.peers[at] = None;
            }
            if !is_s6a {
                let is_early = message.application() != 0;
                self.counts.malformed += u64::from(is_early);
                return;
            }
        }
        if message.application() == s6a::APPLICATION {
            // Answers to cancellations say nothing that is needed.
            if message.is_request() {
                self.request(number, &message, out);
            }
        } else if message.is_request() {
            let (mut room, who) = ([0; ROOM], &self.config.who);
            let code = result::APPLICATION_UNSUPPORTED;
            let to = s6a::answer(&mut room, who, &message, None, code);
            finish(from, to, out);
        }
    }

    fn notice(&mut self, now_ns: u64, notice: Notice, out: &mut impl Sink) {
        let (link, name) = match notice {
            Notice::Opened(link) | Notice::Closed(link) => (link, None),
            Notice::Named(link, name) => (link, Some(name)),
            _ => return,
        };
        let Link::S6a(number) = link else { return };
        let Some(connection) = self.connections.get_mut(usize::from(number)) else {
            return;
        };
        self.peers[usize::from(number)] = name;
        match notice {
            Notice::Opened(_) => connection.opened(now_ns, link, &self.config.who, false, out),
            Notice::Closed(_) => connection.closed(),
            _ => {}
        }
    }

    fn poll(&mut self, now_ns: u64, _: usize, out: &mut impl Sink) -> Option<u64> {
        let (who, silence_ms) = (&self.config.who, self.config.silence_ms);
        let connections = self.connections.iter_mut().zip(&mut self.peers).enumerate();
        let next = connections.filter_map(|(number, (connection, peer))| {
            let link = Link::S6a(number as u16);
            let was_closed = connection.state() == State::Closed;
            let next = connection.poll(now_ns, link, who, silence_ms, out);
            if !was_closed && next.is_none() {
                *peer = None;
            }
            next
        });
        next.min()
    }
}
