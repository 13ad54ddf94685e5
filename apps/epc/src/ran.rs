//! Base stations and their users: the load of the core.
//!
//! Users do what they are told ([`Ran::attach`], [`Ran::go_idle`], [`Ran::service`],
//! [`Ran::detach`], [`Ran::send`]). A user's identifier is
//! the record's; it is also the base station's S1 identifier of the user and its end of S1-U.

mod user;

use crate::challenge::Key;
use crate::gtp::user::{ROOM, echo_response, error_indication};
use crate::link::{Link, MS, Node, Notice, Owner, Sink};
use crate::pending::{Patience, Pending};
use crate::records::Records;
use crate::s1::{HEADER_LEN, Kind, MAX_LEN, Message, Tunnel};
use crate::{Cores, EpcError};
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_wire::gtpc::ie::Imsi;
use linerate_wire::gtpu::{self, Gtpu};
use std::net::Ipv4Addr;

/// How base stations and users are to be.
#[derive(Clone, Debug)]
pub struct RanConfig {
    /// The first user.
    pub first: Imsi,
    /// How many users there are, on all cores.
    pub users: u64,
    /// What users' keys are derived from.
    pub operator: u64,
    /// Base stations; the n-th has S1 connection n and the n-th address from `address` on.
    pub stations: u16,
    /// The address of GTP-U of the first base station.
    pub address: Ipv4Addr,
    /// The network.
    pub plmn: [u8; 3],
    /// The tracking area.
    pub tac: u16,
    /// How long users wait for an answer, in milliseconds (T3410, T3417, T3421 of TS 24.301).
    pub patience_ms: u32,
    /// Makes identifiers unpredictable.
    pub secret: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // what each counts is its name
pub struct RanCounts {
    pub attached: u64,
    pub detached: u64,
    pub idled: u64,
    pub services: u64,
    pub paged: u64,
    /// Requests that the network refused.
    pub rejected: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// Users that the network let go.
    pub dropped: u64,
    /// Challenges that were not the home's.
    pub forged: u64,
    pub up_packets: u64,
    pub down_packets: u64,
    /// Packets that a user without a bearer wanted to send.
    pub unsent: u64,
    /// Packets for tunnels that there are not; an error indication was sent.
    pub unknown_tunnel: u64,
    /// Messages that are none.
    pub malformed: u64,
    /// Messages that do not fit the state of their user.
    pub unexpected: u64,
}

/// What a user is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It is not attached.
    #[default]
    Off,
    /// It wants to be.
    Attaching,
    /// It has its bearer.
    Connected,
    /// It has said that it is idle.
    Releasing,
    /// It is attached, and has no connection.
    Idle,
    /// It wants its bearer back.
    Requesting,
    /// It wants to go.
    Detaching,
}

#[derive(Clone, Copy, Default)]
struct User {
    imsi: [u8; 8],
    state: State,
    station: u16,
    /// The MME's identifier of the connection; 0: none.
    mme_id: u32,
    /// The temporary identity; 0: none.
    tmsi: u32,
    /// The SGW's end of S1-U; 0: there is no bearer.
    uplink: Tunnel,
    address: [u8; 4],
    pending: u32,
}

/// One core's part of the base stations.
pub struct Ran {
    config: RanConfig,
    users: Records<User>,
    by_tmsi: Exact<4, [u8; 4]>,
    pending: Pending<u32>,
    /// Base stations whose connection is open, by number.
    stations: Box<[bool]>,
    /// What was counted.
    pub counts: RanCounts,
}

impl Ran {
    /// The part of `core`, with the users that it owns.
    ///
    /// # Errors
    /// [`EpcError`] for what does not fit identifiers, and for want of memory.
    pub fn new(config: &RanConfig, cores: Cores, core: u8, now_ns: u64) -> Result<Self, EpcError> {
        let digits = config.first.digits() as u32;
        let number = config.first.number();
        let all = (number..number + config.users).filter_map(|number| Imsi::new(number, digits));
        let own: Vec<Imsi> = all.filter(|imsi| cores.owner(*imsi) == core).collect();
        let count = own.len().max(1);
        let mut users = Records::new("users", count, cores, core, config.secret)?;
        for (number, imsi) in (0_u16..).cycle().zip(own) {
            users.insert(User {
                imsi: imsi.bytes(),
                station: number % config.stations.max(1),
                ..User::default()
            });
        }
        let index = ExactConfig::new("users by identity", count, Seed::random());
        // Each user waits for one answer; numbers of requests allow fewer than there may be users.
        let waits = count.min(1 << 16);
        Ok(Self {
            pending: Pending::new("users", waits, cores, core, now_ns / MS)?,
            by_tmsi: Exact::new(&index)?,
            stations: vec![false; config.stations.into()].into(),
            users,
            counts: RanCounts::default(),
            config: config.clone(),
        })
    }

    /// The identifiers of all users.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.users.iter().map(|(id, _)| id)
    }

    /// What a user is doing.
    pub fn state(&self, id: u32) -> State {
        self.users.get(id).map_or(State::Off, |user| user.state)
    }

    /// A user's address, while it has a bearer or is idle.
    pub fn address(&self, id: u32) -> Option<Ipv4Addr> {
        let user = self.users.get(id)?;
        (user.tmsi != 0).then(|| user.address.into())
    }

    /// A user's number.
    pub fn imsi(&self, id: u32) -> Option<Imsi> {
        Imsi::from_bytes(self.users.get(id)?.imsi)
    }

    /// How many users are in this state.
    pub fn users_in(&self, state: State) -> usize {
        let users = self.users.iter();
        users.filter(|(_, user)| user.state == state).count()
    }

    /// How many users wait for an answer.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// The GTP-U address of a base station.
    fn station_address(&self, station: u16) -> [u8; 4] {
        (u32::from(self.config.address) + u32::from(station)).to_be_bytes()
    }

    fn key(&self, user: &User) -> Option<Key> {
        let imsi = Imsi::from_bytes(user.imsi)?;
        Some(Key::derive(self.config.operator, imsi))
    }

    fn say(&self, id: u32, kind: Kind, out: &mut impl Sink, fill: impl FnOnce(&mut Message)) {
        if let Some(user) = self.users.get(id) {
            let mut message = Message::new(kind, id, user.mme_id);
            fill(&mut message);
            let mut room = [0; MAX_LEN];
            out.send(Link::S1(user.station), message.write(&mut room));
        }
    }

    /// A user goes on to a state; what it waited for is no longer.
    fn step(&mut self, id: u32, state: State) {
        if let Some(user) = self.users.get_mut(id) {
            user.state = state;
            self.pending.end(std::mem::take(&mut user.pending));
        }
    }

    /// The same, and it waits for an answer; false where too many wait already.
    fn step_and_wait(&mut self, now_ns: u64, id: u32, state: State) -> bool {
        let patience = Patience {
            timeout_ms: self.config.patience_ms,
            again: 0,
        };
        let Some(pending) = self.pending.begin(now_ns / MS, patience, id) else {
            return false;
        };
        self.step(id, state);
        if let Some(user) = self.users.get_mut(id) {
            user.pending = pending;
        }
        true
    }
}

impl Node for Ran {
    fn owner(cores: Cores, from: Link, message: &[u8]) -> Owner {
        match from {
            Link::S1(_) => {
                let id = message.get(4..HEADER_LEN).and_then(|ids| ids.first_chunk());
                let id = id.map_or(0, |id| u32::from_be_bytes(*id));
                let of_paging = || Message::read(message).ok()?.tmsi;
                let id = Some(id).filter(|id| *id != 0).or_else(of_paging);
                let core = id.and_then(|id| cores.of_id(id));
                core.map_or(Owner::Home, Owner::Core)
            }
            Link::Gtpu(_) => crate::sgw::user_owner(cores, message),
            _ => Owner::Home,
        }
    }

    fn receive(&mut self, now_ns: u64, from: Link, message: &mut [u8], out: &mut impl Sink) {
        match from {
            Link::S1(station) => match Message::read(message) {
                Ok(message) => self.network_says(now_ns, station, &message, out),
                Err(_) => self.counts.malformed += 1,
            },
            Link::Gtpu(from) => {
                let mut room = [0; ROOM];
                let Ok(packet) = Gtpu::new_checked(&*message) else {
                    self.counts.malformed += 1;
                    return;
                };
                let id = packet.teid();
                match packet.message() {
                    gtpu::message::ECHO_REQUEST => {
                        let sequence = packet.sequence().unwrap_or_default();
                        out.send(Link::Gtpu(from), echo_response(sequence, &mut room));
                    }
                    gtpu::message::G_PDU => {
                        let user = self.users.get(id);
                        // A bearer that the SGW is still to hear of has its packets too.
                        match user.filter(|user| user.uplink.teid != 0) {
                            Some(_) => {
                                self.counts.down_packets += 1;
                                out.send(Link::User(id), packet.payload());
                            }
                            None => {
                                self.counts.unknown_tunnel += 1;
                                let station = self.users.get(id).map_or(0, |user| user.station);
                                let own = self.station_address(station);
                                let error = error_indication(id, own, &mut room);
                                out.send(Link::Gtpu(from), error);
                            }
                        }
                    }
                    gtpu::message::END_MARKER | gtpu::message::ERROR_INDICATION => {}
                    _ => self.counts.malformed += 1,
                }
            }
            Link::User(id) => {
                self.send(now_ns, id, message, out);
            }
            _ => {}
        }
    }

    fn notice(&mut self, _: u64, notice: Notice, out: &mut impl Sink) {
        let (Notice::Opened(Link::S1(station)) | Notice::Closed(Link::S1(station))) = notice else {
            return;
        };
        let Some(place) = self.stations.get_mut(usize::from(station)) else {
            return;
        };
        *place = matches!(notice, Notice::Opened(_));
        match *place {
            true => self.set_up(station, out),
            false => self.cut_off(station),
        }
    }

    fn poll(&mut self, now_ns: u64, budget: usize, _: &mut impl Sink) -> Option<u64> {
        let mut left = budget;
        while let Some(overdue) = self.pending.poll(now_ns / MS, &mut left) {
            self.overdue(overdue.value, overdue.sequence);
        }
        self.pending.next_ms().map(|next| next * MS)
    }
}
