//! The serving gateway: users' sessions between MME and PGW, their tunnels between base station
//! and PGW, and packets that wait for a user who is idle (TS 23.401 4.4.3.2).
//!
//! One identifier, the record's, is the S11, the S5-C and the S1-U end of a session; the same with
//! the side bit is its S5-U end, so that packets up and down are told apart at one address. A user
//! has one session with one bearer here.

mod buffers;
mod control;
mod joins;
mod user;

pub use buffers::BufferConfig;
pub(crate) use control::tunnel;
pub(crate) use user::link;

use crate::answers::Ask;
use crate::gtp::endpoint::{Arrived, Endpoint, EndpointConfig};
use crate::gtp::paths::Paths;
use crate::gtp::sessions::{self, Sessions};
use crate::link::{Link, MS, Node, Notice, Owner, Sink};
use crate::s1::Tunnel;
use crate::{Cores, EpcError};
use buffers::{Buffers, Queue};
use joins::Joins;
use linerate_tables::exact::{Exact, ExactConfig, Seed};
use linerate_wire::gtpu::Gtpu;
use std::net::{Ipv4Addr, SocketAddrV4};

/// How an SGW is to be.
#[derive(Clone, Debug)]
pub struct SgwConfig {
    /// Its end of GTP-C.
    pub control: EndpointConfig,
    /// Its address of GTP-U.
    pub user: Ipv4Addr,
    /// Sessions, for each core.
    pub sessions: usize,
    /// Packets that wait for idle users, for each core.
    pub buffers: BufferConfig,
    /// Makes identifiers unpredictable.
    pub secret: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // what each counts is its name
pub struct SgwCounts {
    pub created: u64,
    pub deleted: u64,
    /// Sessions made again by a request for a user who had one.
    pub replaced: u64,
    /// Sessions of peers that restarted.
    pub lost: u64,
    pub up_packets: u64,
    pub down_packets: u64,
    pub buffered: u64,
    /// Packets that waited, and were dropped: no room, or the user was not found.
    pub buffer_drops: u64,
    pub notifications: u64,
    /// Packets for tunnels that there are not; an error indication was sent.
    pub unknown_tunnel: u64,
    pub error_indications: u64,
    /// Datagrams of GTP-U that are no message.
    pub malformed: u64,
}

/// A peer's end of control.
#[derive(Clone, Copy, Default)]
struct Peer {
    address: u32,
    teid: u32,
    /// See [`crate::gtp::paths::Peer::epoch`].
    epoch: u16,
}

impl Peer {
    fn socket(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.address.into(), linerate_wire::gtpc::PORT)
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Creating,
    Active,
    Deleting,
}

#[derive(Clone, Copy, Default)]
struct Session {
    imsi: [u8; 8],
    mme: Peer,
    pgw: Peer,
    ebi: u8,
    state: State,
    /// The MME's request that is being worked on.
    ask: Ask,
    /// Our request to the PGW in flight; 0: none.
    request: u32,
    /// Our notification to the MME in flight; 0: none.
    notification: u32,
    /// The MME was told of packets that wait.
    is_notified: bool,
    queue: Queue,
}

impl sessions::Session for Session {
    fn imsi(&self) -> [u8; 8] {
        self.imsi
    }

    fn stands(&self, paths: &Paths) -> bool {
        let mut peers = [self.mme, self.pgw].into_iter();
        peers.all(|peer| paths.is_current(peer.address.into(), peer.epoch))
    }
}

/// What a request in flight is about.
#[derive(Clone, Copy, Default)]
enum About {
    #[default]
    Nothing,
    Create(u32),
    Delete(u32),
    /// What a session that is gone had at the PGW of that address.
    Left(u32),
    Notify(u32),
}

/// One core's part of an SGW.
pub struct Sgw {
    user: Ipv4Addr,
    gtp: Endpoint<About>,
    sessions: Sessions<Session>,
    joins: Joins,
    /// By the base station's end of S1-U, for its error indications.
    by_station: Exact<8, [u8; 4]>,
    buffers: Buffers,
    /// What was counted.
    pub counts: SgwCounts,
}

impl Sgw {
    /// The part of `core`.
    ///
    /// # Errors
    /// [`EpcError`] for what does not fit identifiers, and for want of memory.
    pub fn new(config: &SgwConfig, cores: Cores, core: u8, now_ns: u64) -> Result<Self, EpcError> {
        let (sessions, secret) = (config.sessions, config.secret);
        let stations = ExactConfig::new("sgw tunnels", sessions, Seed::random());
        let table = Sessions::new("sgw sessions", sessions, cores, core, secret)?;
        Ok(Self {
            user: config.user,
            gtp: Endpoint::new(config.control.clone(), cores, core, now_ns)?,
            joins: Joins::new(table.space(), sessions)?,
            sessions: table,
            by_station: Exact::new(&stations)?,
            buffers: Buffers::new(&config.buffers),
            counts: SgwCounts::default(),
        })
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// How many packets wait.
    pub fn buffered(&self) -> usize {
        self.buffers.len()
    }

    /// The end of GTP-C, for its counters and peers.
    pub fn control(&self) -> (&crate::gtp::endpoint::EndpointCounts, &Paths) {
        (&self.gtp.counts, &self.gtp.paths)
    }

    /// Whether every table is empty, and nothing waits.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
            && self.by_station.is_empty()
            && self.buffers.len() == 0
            && self.gtp.in_flight() == 0
    }

    /// Forgets a session: its packets, its places in the indexes, its requests in flight.
    fn remove(&mut self, id: u32) {
        self.leave_station(id);
        self.joins.close(id);
        let Some(mut session) = self.sessions.remove(id) else {
            return;
        };
        self.counts.buffer_drops += self.buffers.clear(&mut session.queue);
        self.gtp.end(session.request);
        self.gtp.end(session.notification);
        for peer in [session.mme, session.pgw] {
            self.gtp.paths.release(peer.address.into());
        }
    }

    /// Forgets the base station's end of a session.
    fn leave_station(&mut self, id: u32) {
        let left = self.joins.disconnect(id);
        if left.teid != 0 {
            let key = station_key(left);
            if self.by_station.lookup(&key) == Some(id.to_be_bytes()) {
                self.by_station.remove(&key);
            }
        }
    }
}

fn station_key(tunnel: Tunnel) -> [u8; 8] {
    let ([a, b, c, d], [w, x, y, z]) = (tunnel.teid.to_be_bytes(), tunnel.address);
    [a, b, c, d, w, x, y, z]
}

/// Whose a GTP-U datagram is: the core's that its tunnel names.
pub(crate) fn user_owner(cores: Cores, datagram: &[u8]) -> Owner {
    let teid = Gtpu::new_checked(datagram).ok().map(|gtpu| gtpu.teid());
    let core = teid
        .filter(|teid| *teid != 0)
        .and_then(|teid| cores.of_id(teid));
    core.map_or(Owner::Home, Owner::Core)
}

impl Node for Sgw {
    fn owner(cores: Cores, from: Link, message: &[u8]) -> Owner {
        match from {
            Link::Gtpc(_) => Endpoint::<About>::owner(cores, message),
            Link::Gtpu(_) => user_owner(cores, message),
            _ => Owner::Home,
        }
    }

    fn receive(&mut self, now_ns: u64, from: Link, message: &mut [u8], out: &mut impl Sink) {
        match from {
            Link::Gtpc(from) => match self.gtp.arrive(now_ns, from, message, out) {
                Some(Arrived::Request(gtpc)) => self.request(now_ns, from, &gtpc, out),
                Some(Arrived::Response(gtpc)) => self.response(now_ns, from, &gtpc, out),
                Some(Arrived::Counter(restarts)) => self.heard(*from.ip(), restarts, out),
                None => {}
            },
            Link::Gtpu(from) => self.packet(now_ns, from, message, out),
            _ => {}
        }
    }

    fn notice(&mut self, now_ns: u64, notice: Notice, _: &mut impl Sink) {
        if self.gtp.told(now_ns, notice) {
            self.sessions.doubt();
        }
    }

    fn poll(&mut self, now_ns: u64, budget: usize, out: &mut impl Sink) -> Option<u64> {
        let mut left = budget;
        while let Some(id) = self.sessions.next_lost(&self.gtp.paths, &mut left) {
            self.remove(id);
            self.counts.lost += 1;
        }
        let mut left = budget;
        while let Some((_, about, _)) = self.gtp.poll(now_ns, &mut left, out) {
            self.overdue(now_ns, about, out);
        }
        let next_ns = self.gtp.next_ns();
        match self.sessions.is_in_doubt() {
            true => Some(now_ns),
            false => next_ns.map(|next| next.max(now_ns / MS * MS)),
        }
    }
}
