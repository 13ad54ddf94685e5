//! The mobility management entity: attaches users, lets them be idle, finds them, lets them go
//! (TS 23.401 5.3).
//!
//! A user is in one [`State`]; in all but three (connected, idle, ending) exactly one answer is
//! waited for: from the user, the base station, the HSS or the SGW. `flow` has the steps in their
//! order, `network` what comes from HSS and SGW. Who attaches in the name of a user who is there is
//! a newcomer, with a record of its own, until it is proved: there may be several, one behind the
//! other. One identifier, the record's, is the user's S1 identifier, its temporary identity
//! (M-TMSI), and its S11 end.

mod flow;
mod network;

use crate::gtp::endpoint::{Arrived, Endpoint, EndpointConfig, EndpointCounts};
use crate::gtp::paths::Paths;
use crate::link::{Link, Node, Notice, Owner, Sink};
use crate::pending::Patience;
use crate::records::{Records, Search};
use crate::s1::{self, HEADER_LEN, Kind, MAX_LEN, Message, Tunnel, cause};
use crate::s6a::connection::{self, Connection};
use crate::s6a::{Identity, Subscription};
use crate::{Cores, EpcError};
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_wire::diameter::Diameter;
use linerate_wire::gtpc::ie::Imsi;
use std::net::{Ipv4Addr, SocketAddrV4};

/// How an MME is to be.
#[derive(Clone, Debug)]
pub struct MmeConfig {
    /// Its end of GTP-C.
    pub control: EndpointConfig,
    /// Who it is for the HSS.
    pub who: Identity,
    /// Its network.
    pub plmn: [u8; 3],
    /// The SGW of its users.
    pub sgw: SocketAddrV4,
    /// The PGW of its users.
    pub pgw: Ipv4Addr,
    /// The access point of its users.
    pub apn: String,
    /// Users, for each core; as many newcomers, but not more than requests may be in flight.
    pub users: usize,
    /// Base stations.
    pub stations: u16,
    /// How long a user, a base station or the HSS may take to answer, in milliseconds.
    pub answer_ms: u32,
    /// How a user is looked for.
    pub paging: Patience,
    /// Milliseconds of silence before the HSS is asked (Tw of RFC 3539: 30 s).
    pub silence_ms: u64,
    /// Makes identifiers unpredictable.
    pub secret: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // what each counts is its name
pub struct MmeCounts {
    pub attached: u64,
    pub detached: u64,
    pub idled: u64,
    pub services: u64,
    pub pagings: u64,
    /// Users who were paged, and did not answer.
    pub not_found: u64,
    /// Users who attached again, perhaps elsewhere.
    pub superseded: u64,
    /// Users refused: proof, subscription, session.
    pub rejected: u64,
    /// Users refused for want of room.
    pub congestion: u64,
    /// Users lost to a restart or a closed connection of a peer, or to silence.
    pub lost: u64,
    /// Attaches that ended before there was a proof: for another one in the same name, by
    /// silence, or with their connection.
    pub unproved: u64,
    /// S1 messages that are none.
    pub malformed: u64,
    /// S1 and S6a messages that do not fit the state of their user.
    pub unexpected: u64,
}

/// Where a user is in its life; but for the named three, what is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The HSS's challenge.
    #[default]
    Vector,
    /// The user's proof.
    Proof,
    /// The user's consent to the algorithms.
    Securing,
    /// The HSS's subscription.
    Locating,
    /// The SGW's session.
    Creating,
    /// The base station's context.
    Context,
    /// The SGW's change of the bearer to that base station.
    Modifying,
    /// The user has its bearer.
    Connected,
    /// The SGW's release of the bearer.
    Releasing,
    /// The base station's release of the context.
    Released,
    /// The user is somewhere in its tracking area.
    Idle,
    /// The user, who was paged.
    Paging,
    /// The user goes: as soon as there is room for a request, the SGW is asked.
    Ending,
    /// The SGW's deletion of the session.
    Deleting,
    /// The HSS's.
    Purging,
}

#[derive(Clone, Copy, Default)]
struct User {
    imsi: [u8; 8],
    state: State,
    /// What the state waits for; 0: nothing.
    pending: u32,
    /// The base station and its identifier of the user; the latter 0: none.
    station: u16,
    station_id: u32,
    /// Which of the base stations that have had that number.
    opened: u32,
    tac: u16,
    cell: u32,
    xres: [u8; 8],
    may: Subscription,
    address: [u8; 4],
    /// The SGW's end of S11; 0: there is no session.
    sgw_teid: u32,
    /// See [`crate::gtp::paths::Peer::epoch`].
    sgw_epoch: u16,
    /// The SGW's end of S1-U.
    uplink: Tunnel,
    /// The base station's.
    downlink: Tunnel,
    /// It was connected before: the attach is over.
    was_connected: bool,
    /// Something came for the user while it was on the way to being idle.
    is_wanted: bool,
    /// Who attaches in the name of this user, or came after this newcomer; 0: nobody.
    newcomer: u32,
    /// Whose place this user has taken while that one's session was made; 0: nobody's.
    before: u32,
    /// Why the user goes, by its own wish or the network's; NORMAL: it does not.
    ends_by: u8,
}

/// A number of base stations' connections.
#[derive(Clone, Copy, Default)]
struct Station {
    is_open: bool,
    /// How often it was opened: each time by another base station, which has no users.
    opened: u32,
}

/// What a pending answer is about: a user, whose state says what.
#[derive(Clone, Copy, Default)]
struct About(u32);

/// One core's part of an MME.
pub struct Mme {
    config: MmeConfig,
    gtp: Endpoint<About>,
    hss: Connection,
    hss_link: Link,
    users: Records<User>,
    by_imsi: Exact<8, [u8; 4]>,
    /// Base stations, by connection.
    stations: Box<[Station]>,
    /// For users whose SGW restarted, whose base station is gone, or who end.
    search: Search,
    /// What was counted.
    pub counts: MmeCounts,
}

impl Mme {
    /// The part of `core`, which reaches the HSS by `hss`: each core has a connection of its own.
    ///
    /// # Errors
    /// [`EpcError`] for what does not fit identifiers, a name that is no access point, and for
    /// want of memory.
    pub fn new(
        config: &MmeConfig,
        cores: Cores,
        core: u8,
        hss: Link,
        now_ns: u64,
    ) -> Result<Self, EpcError> {
        if linerate_wire::gtpc::ie::write_apn(&config.apn, &mut [0; 100]).is_none() {
            return Err(EpcError::Apn(config.apn.clone()));
        }
        let (users, secret) = (config.users, config.secret);
        let records = users + users.min(config.control.requests);
        let index = ExactConfig::new("mme users", users, Seed::random());
        let mut gtp = Endpoint::new(config.control.clone(), cores, core, now_ns)?;
        // The one peer, which keeps its place.
        let sgw = *config.sgw.ip();
        gtp.paths.epoch(Self::now_ms(now_ns), sgw);
        gtp.paths.hold(sgw);
        Ok(Self {
            gtp,
            hss: Connection::default(),
            hss_link: hss,
            users: Records::new("mme users", records, cores, core, secret)?,
            by_imsi: Exact::new(&index)?,
            stations: vec![Station::default(); config.stations.into()].into(),
            search: Search::new(records),
            counts: MmeCounts::default(),
            config: config.clone(),
        })
    }

    /// How many users there are, but for newcomers.
    pub fn users(&self) -> usize {
        self.by_imsi.len()
    }

    /// How many users and newcomers are in this state.
    pub fn users_in(&self, state: State) -> usize {
        let users = self.users.iter();
        users.filter(|(_, user)| user.state == state).count()
    }

    /// Whether every table is empty, and nothing is waited for.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.by_imsi.is_empty() && self.gtp.in_flight() == 0
    }

    /// How far the connection to the HSS is.
    pub fn hss(&self) -> connection::State {
        self.hss.state()
    }

    /// Asks the HSS to end the connection (RFC 6733 5.4): the MME goes down.
    pub fn disconnect(&mut self, out: &mut impl Sink) {
        self.hss.disconnect(self.hss_link, &self.config.who, out);
    }

    /// The end of GTP-C, for its counters and peers.
    pub fn control(&self) -> (&EndpointCounts, &Paths) {
        (&self.gtp.counts, &self.gtp.paths)
    }

    /// Sends a message of S1.
    fn s1(&self, station: u16, message: &Message, out: &mut impl Sink) {
        let mut room = [0; MAX_LEN];
        out.send(Link::S1(station), message.write(&mut room));
    }

    /// Whether a user has a connection, and the base station is still there.
    fn has_station(&self, user: &User) -> bool {
        let station = self.stations.get(usize::from(user.station));
        let is_it = |station: &Station| station.is_open && station.opened == user.opened;
        user.station_id != 0 && station.is_some_and(is_it)
    }

    /// A base station is there, or is gone: users of another one of that number are looked for.
    fn station_is(&mut self, number: u16, is_open: bool) {
        if let Some(station) = self.stations.get_mut(usize::from(number)) {
            let was_open = std::mem::replace(&mut station.is_open, is_open);
            station.opened = station.opened.wrapping_add(is_open.into());
            if was_open {
                self.search.begin();
            }
        }
    }

    /// Sends a message about a user to its base station, if it has one.
    fn to_user(&self, id: u32, kind: Kind, out: &mut impl Sink, fill: impl FnOnce(&mut Message)) {
        if let Some(user) = self.users.get(id)
            && self.has_station(user)
        {
            let mut message = Message::new(kind, user.station_id, id);
            fill(&mut message);
            self.s1(user.station, &message, out);
        }
    }

    /// What a user waits for is over; its place is for what comes next.
    fn stop_waiting(&mut self, id: u32) {
        if let Some(user) = self.users.get_mut(id) {
            let before = std::mem::take(&mut user.pending);
            self.gtp.end(before);
        }
    }

    /// A user goes on to a state, which waits for the answer of that number; what was waited for
    /// is no longer.
    fn step(&mut self, id: u32, state: State, pending: Option<u32>) {
        if let Some(user) = self.users.get_mut(id) {
            user.state = state;
            let before = std::mem::replace(&mut user.pending, pending.unwrap_or_default());
            if before != user.pending {
                self.gtp.end(before);
            }
        }
    }

    /// The same, for what comes from a user, a base station or the HSS; false: too much is waited
    /// for already, and the user, who waited for nothing, is as it was.
    fn step_and_wait(&mut self, now_ns: u64, id: u32, state: State) -> bool {
        let patience = match state {
            State::Paging => self.config.paging,
            _ => Patience {
                timeout_ms: self.config.answer_ms,
                again: 0,
            },
        };
        self.stop_waiting(id);
        let pending = self.gtp.wait(now_ns, patience, About(id));
        if pending.is_some() {
            self.step(id, state, pending);
        }
        pending.is_some()
    }

    /// A user of that name, and then its newcomers, the oldest first.
    fn of_name(&self, imsi: &[u8; 8]) -> impl Iterator<Item = u32> {
        let first = self.by_imsi.lookup(imsi).map(u32::from_be_bytes);
        std::iter::successors(first, |id| {
            let next = self.users.get(*id)?.newcomer;
            (next != 0).then_some(next)
        })
    }

    /// Whom a newcomer is behind; `None`: it is none.
    fn ahead_of(&self, id: u32, imsi: &[u8; 8]) -> Option<u32> {
        let is_it = |of: &u32| self.users.get(*of).is_some_and(|user| user.newcomer == id);
        self.of_name(imsi).find(is_it)
    }

    /// Another one is behind a user or newcomer from now on.
    fn set_newcomer(&mut self, id: u32, newcomer: u32) {
        if let Some(user) = self.users.get_mut(id) {
            user.newcomer = newcomer;
        }
    }

    /// Forgets a user, whose first newcomer has its place then, or a newcomer.
    fn remove(&mut self, id: u32) {
        let Some(&user) = self.users.get(id) else {
            return;
        };
        let before = self.ahead_of(id, &user.imsi);
        self.users.remove(id);
        self.gtp.end(user.pending);
        let is_first = self.by_imsi.lookup(&user.imsi) == Some(id.to_be_bytes());
        match (before, user.newcomer) {
            (Some(before), newcomer) => self.set_newcomer(before, newcomer),
            (None, 0) if is_first => {
                self.by_imsi.remove(&user.imsi);
            }
            (None, newcomer) if is_first => {
                let newcomer = newcomer.to_be_bytes();
                self.by_imsi.update(&user.imsi, |_| newcomer);
            }
            _ => {}
        }
    }

    /// Looks on for users whose SGW restarted, whose base station is gone, or who end. False: as
    /// many requests as may be are in flight; it goes on when one of them is over.
    fn look_on(&mut self, now_ns: u64, budget: usize, out: &mut impl Sink) -> bool {
        for _ in 0..budget {
            let Some(at) = self.search.step() else {
                return true;
            };
            let Some((id, user)) = self.users.at(at) else {
                continue;
            };
            let sgw = *self.config.sgw.ip();
            // One that is made, in the place of another perhaps, is as new as its answer.
            let has_session = user.sgw_teid != 0 && user.state != State::Creating;
            if has_session && !self.gtp.paths.is_current(sgw, user.sgw_epoch) {
                // TS 23.007 14.1: the session is gone; the user attaches again.
                self.counts.lost += 1;
                self.to_user(id, Kind::Release, out, |message| {
                    message.cause = Some(cause::NETWORK_FAILURE);
                });
                self.remove(id);
                continue;
            }
            let is_asked = match user.state {
                State::Ending => self.delete(now_ns, id, out),
                _ if user.station_id == 0 || self.has_station(user) => true,
                _ => self.station_lost(now_ns, id, out),
            };
            if !is_asked {
                self.search.step_back(at);
                return false;
            }
        }
        true
    }

    fn heard(&mut self, address: Ipv4Addr, restarts: u8, out: &mut impl Sink) {
        if self.gtp.heard(address, restarts, out) {
            self.search.begin();
        }
    }
}

impl Node for Mme {
    fn owner(cores: Cores, from: Link, message: &[u8]) -> Owner {
        match from {
            Link::S1(_) => s1_owner(cores, message).unwrap_or(Owner::Home),
            Link::S6a(_) => s6a_owner(cores, message),
            Link::Gtpc(_) => Endpoint::<About>::owner(cores, message),
            _ => Owner::Home,
        }
    }

    fn receive(&mut self, now_ns: u64, from: Link, message: &mut [u8], out: &mut impl Sink) {
        match from {
            Link::S1(station) if usize::from(station) < self.stations.len() => {
                match Message::read(message) {
                    Ok(message) => self.station_says(now_ns, station, &message, out),
                    Err(_) => self.counts.malformed += 1,
                }
            }
            Link::S6a(_) => {
                let Ok(message) = Diameter::new_checked(&*message) else {
                    self.counts.malformed += 1;
                    return;
                };
                // By another core's connection only what that has taken comes here.
                let is_own = from == self.hss_link;
                let who = &self.config.who;
                if !is_own || self.hss.take(now_ns, from, &message, who, out) {
                    self.hss_says(now_ns, from, &message, out);
                }
            }
            Link::Gtpc(from) => match self.gtp.arrive(now_ns, from, message, out) {
                Some(Arrived::Request(gtpc)) => self.sgw_says(now_ns, from, &gtpc, out),
                Some(Arrived::Response(gtpc)) => self.answered(now_ns, from, &gtpc, out),
                Some(Arrived::Counter(restarts)) => self.heard(*from.ip(), restarts, out),
                None => {}
            },
            _ => {}
        }
    }

    fn notice(&mut self, now_ns: u64, notice: Notice, out: &mut impl Sink) {
        match notice {
            Notice::Restarted(..) | Notice::Counter(..) => {
                if self.gtp.told(now_ns, notice) {
                    self.search.begin();
                }
            }
            Notice::Unreachable(_) => {}
            Notice::Opened(link) if link == self.hss_link => {
                let who = &self.config.who;
                self.hss.opened(now_ns, link, who, true, out);
            }
            Notice::Closed(link) if link == self.hss_link => self.hss.closed(),
            Notice::Opened(Link::S1(station)) => self.station_is(station, true),
            Notice::Closed(Link::S1(station)) => self.station_is(station, false),
            Notice::Opened(_) | Notice::Closed(_) | Notice::Named(..) => {}
        }
    }

    fn poll(&mut self, now_ns: u64, budget: usize, out: &mut impl Sink) -> Option<u64> {
        let mut left = budget;
        while let Some((sequence, About(id), again)) = self.gtp.poll(now_ns, &mut left, out) {
            self.overdue(now_ns, id, sequence, again, out);
        }
        let goes_on = self.look_on(now_ns, budget, out);
        let (who, silence_ms) = (&self.config.who, self.config.silence_ms);
        let watchdog = self.hss.poll(now_ns, self.hss_link, who, silence_ms, out);
        let next = self.gtp.next_ns().into_iter().chain(watchdog);
        match goes_on && self.search.is_under_way() {
            true => Some(now_ns),
            false => next.min(),
        }
    }
}

/// A message of S1 names its user by the MME's identifier or, before it has one, by itself.
fn s1_owner(cores: Cores, message: &[u8]) -> Option<Owner> {
    let id = *message.get(8..HEADER_LEN)?.first_chunk::<4>()?;
    let id = u32::from_be_bytes(id);
    if id != 0 {
        return cores.of_id(id).map(Owner::Core);
    }
    let message = s1::Message::read(message).ok()?;
    let by_imsi = message.imsi.and_then(Imsi::from_bytes).map(Owner::User);
    let by_tmsi = || message.tmsi.and_then(|tmsi| cores.of_id(tmsi));
    by_imsi.or_else(|| by_tmsi().map(Owner::Core))
}

/// An answer of the HSS comes to the core that asked, as its number says; requests name a user.
fn s6a_owner(cores: Cores, message: &[u8]) -> Owner {
    match Diameter::new_checked(message) {
        Ok(diameter) if diameter.application() == 0 => Owner::Home,
        Ok(diameter) if diameter.is_request() => crate::hss::owner(message),
        Ok(diameter) => {
            let core = cores.of_sequence(diameter.hop_by_hop());
            core.map_or(Owner::Home, Owner::Core)
        }
        Err(_) => Owner::Home,
    }
}
