//! Steering: a packet's *home* is the lcore that NIC or distributor bring it to, its *owner* the
//! one that has its connection. Here is how it gets from the one to the other.
//!
//! | file | what |
//! |---|---|
//! | [`plan`] | the lcores and ports, who is whose home and owner by hash |
//! | [`port_rule`] | the local ports whose answers come home |
//! | [`map`] | Connection Map and FIN Map: owners that no hash says |
//! | [`note`] | what packets carry through rings, and the messages about map entries |
//! | `home` | packets from ports: to their owners |
//! | `rings` | packets and messages from other lcores |
//! | `owner` | packets that an owner sends, connections that move |
//! | [`away`] | connections that have left, as long as packets of theirs may come |
//! | [`stage`] | all of it as the stage of an lcore |
//! | [`user`] | the lcore of a user, whom an extractor finds in a message |
//!
//! # Who decides
//!
//! An owner is `reta[hash(4-tuple)]`: by the hash of the NIC (`hardware`), or by Toeplitz with a
//! secret key (`software`). What has to be elsewhere (`application`) has an entry in the map of its
//! home, which goes before the hash. Entries are the owners' alone: a packet from the network never
//! makes one, so no flood fills the map. A map has one writer, its lcore; owners tell it by what
//! they put into its ring.
//!
//! # What goes through a ring
//!
//! Packets, each with a [`Note`] in its 16 bytes of user data. The SYN of a connection
//! that needs an entry is its own message: it goes by the owner by hash and the home, which enters
//! it and then sends the SYN, so the entry is there before an answer can be. If the map is full, or
//! the 4-tuple another lcore's, the SYN comes back to its owner. A message without a packet is a
//! slot of the sender's pool with the 4-tuple as its data; it is made, taken and freed as packets
//! are, and in the ledger.
//!
//! # Bounds
//!
//! A full ring drops and counts (`tx_full.LCORE`); nobody waits. Maps, tables of connections that
//! have left and reassembly have fixed sizes. Nothing is allocated for a packet.

pub mod away;
mod home;
pub mod map;
pub mod note;
mod owner;
pub mod plan;
pub mod port_rule;
mod rings;
pub mod stage;
#[cfg(test)]
mod tests;
pub mod user;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use linerate_core::env::{Clock, Isa};
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::{DropId, Egress};
use linerate_dispatch::HandOver;
use linerate_stack::reassembly::{self, Reassembler};
use linerate_tables::TableError;
use linerate_tables::parse::{Parsed, Parser};
use linerate_wire::FlowKey;

use away::{Away, Left};
use map::{Map, MapConfig};
use note::Note;
use owner::{MOVED, Moved};
use plan::{Member, Plan};

pub use port_rule::PortRule;
pub use stage::{Host, Steered};
pub use user::{Cores, Extractor, Key};

/// What an lcore's part needs at set-up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Lcores and ports, the same for all.
    pub plan: Arc<Plan>,
    /// Which lcore this is.
    pub me: Member,
    /// By lcore: the outlet that leads to its ring; that of this one is never used.
    pub outlets: Vec<u16>,
    /// The maps of a home; without, there is no `application` mode.
    pub map: Option<MapConfig>,
    /// How datagrams are put together, by homes.
    pub reassembly: reassembly::Config,
    /// Connections that may be on their way from this lcore at a time, of each family.
    pub away: usize,
    /// The level of instructions.
    pub isa: Isa,
    /// The worker's clock.
    pub clock: Clock,
}

/// Why an lcore's part cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A table cannot be as it is asked for.
    #[error(transparent)]
    Table(#[from] TableError),
    /// There is no memory for reassembly.
    #[error(transparent)]
    Memory(#[from] linerate_core::MemError),
}

/// What an lcore has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets from ports that were for another lcore.
    pub handed: u64,
    /// Packets that came to another lcore than the model of the port says.
    pub misdirected: u64,
    /// Packets for connections that had left, which went after them.
    pub followed: u64,
    /// Messages that were not sent, for want of a slot.
    pub no_slot: u64,
    /// Messages that say nothing that can be understood.
    pub unknown: u64,
    /// Datagrams that were put together.
    pub whole: u64,
}

/// A packet that came elsewhere than the model of its port says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misdirected {
    /// The port.
    pub port: u16,
    /// The packet's 4-tuple.
    pub flow: FlowKey,
    /// The lcore that the model says.
    pub expected: Member,
    /// The lcore that it came to.
    pub came_to: Member,
}

impl std::fmt::Display for Misdirected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((from, to), port) = (ends(&self.flow), self.port);
        write!(
            f,
            "port {port}: {from} to {to} came to lcore {} where the model of its RSS says {}; such \
             packets are handed over: check key, table and profile by `bench rss --port`",
            self.came_to, self.expected
        )
    }
}

/// Source and destination of a key.
fn ends(key: &FlowKey) -> (SocketAddr, SocketAddr) {
    let (from, to): ((IpAddr, u16), (IpAddr, u16)) = match key {
        FlowKey::V4(key) => {
            let (from, to) = (key.src().into(), key.dst().into());
            ((from, key.src_port()), (to, key.dst_port()))
        }
        FlowKey::V6(key) => {
            let (from, to) = (key.src().into(), key.dst().into());
            ((from, key.src_port()), (to, key.dst_port()))
        }
    };
    (from.into(), to.into())
}

/// Whose a packet is, by what is inside it: the user's lcore, where a frame names a user. `None`:
/// by 4-tuple. It is the same on all lcores.
pub type OwnerRule = Box<dyn Fn(&[u8]) -> Option<Member> + Send>;

/// An lcore's part in steering.
pub struct Steering {
    plan: Arc<Plan>,
    me: Member,
    hand_over: HandOver,
    map: Option<Map>,
    rule: Option<OwnerRule>,
    away: Away,
    reassembler: Option<Reassembler>,
    parser: Parser,
    parsed: Box<Parsed>,
    clock: Clock,
    counts: Counts,
    first_misdirected: Option<Misdirected>,
    /// Whether homes have maps.
    maps: bool,
    /// Room for connections that have left and are to be asked after; empty between two turns.
    asked: Vec<(FlowKey, Left)>,
    /// Connections that have come here lately.
    moved: VecDeque<Moved>,
    /// Connections of this lcore's that its own map refused; the host has not heard of them yet.
    refused: Vec<FlowKey>,
    /// When a home was last told where one of them is, since packets came by its former owner.
    told_ms: u64,
    /// When to look again whether other owners run.
    look_ns: u64,
    no_entry: DropId,
    no_owner: DropId,
    bad_fragment: DropId,
    timed_out: DropId,
}

impl Steering {
    /// The part of one lcore.
    ///
    /// # Errors
    /// There is no memory, or a table's configuration cannot be.
    pub fn new(setup: &Setup, egress: &mut Egress) -> Result<Self, Error> {
        let is_home = setup.plan.is_home(setup.me);
        let map = setup.map.as_ref().filter(|_| is_home);
        let reassembler = match is_home {
            true => Some(Reassembler::new(&setup.reassembly)?),
            false => None,
        };
        Ok(Self {
            plan: setup.plan.clone(),
            me: setup.me,
            hand_over: HandOver::new(setup.outlets.clone(), setup.isa),
            map: map.map(Map::new).transpose()?,
            rule: None,
            away: Away::new(setup.away)?,
            reassembler,
            parser: Parser::new(setup.isa),
            parsed: Box::new(Parsed::new()),
            clock: setup.clock,
            counts: Counts::default(),
            first_misdirected: None,
            maps: setup.map.is_some(),
            asked: Vec::with_capacity(2 * away::BUDGET),
            moved: VecDeque::with_capacity(MOVED),
            refused: Vec::with_capacity(4 * Burst::CAPACITY),
            told_ms: 0,
            look_ns: 0,
            no_entry: egress.reason("steer_no_entry"),
            no_owner: egress.reason("steer_no_owner"),
            bad_fragment: egress.reason("fragment_malformed"),
            timed_out: egress.reason("fragment_timeout"),
        })
    }

    /// From now on this says whose packets of IPv4 are that come here, before any map or hash does.
    /// An owner that there is not is none.
    pub fn set_owner_rule(&mut self, rule: OwnerRule) {
        self.rule = Some(rule);
    }

    /// Which lcore this is.
    pub fn me(&self) -> Member {
        self.me
    }

    /// The time of a burst, in nanoseconds.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        self.clock.ns(ticks)
    }

    /// Lcores and ports.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What it has seen.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The first packet that came elsewhere than the model says, once: for a message to the user.
    pub fn take_misdirected(&mut self) -> Option<Misdirected> {
        self.first_misdirected.take()
    }

    /// The maps, of a home.
    pub fn map(&self) -> Option<&Map> {
        self.map.as_ref()
    }

    /// An owner that has ended, by a fault, has left entries: they go, some with each turn.
    #[cold]
    fn look_for_ended(&mut self, out: &Egress) {
        let Some(map) = &mut self.map else {
            return;
        };
        for owner in (0..self.plan.owners()).filter(|&owner| owner != self.me) {
            if map.owned(owner) > 0 && out.has_ended(self.hand_over.outlet(owner)) {
                map.remove_owner(owner);
            }
        }
    }

    /// Whether the host has to hear of connections that were refused here.
    fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Slots that are kept here between two bursts.
    pub fn held(&self) -> u64 {
        let held = self.reassembler.as_ref().map(|all| all.held().fragments);
        held.unwrap_or(0)
    }

    /// Handles timers at `now_ns`: entries that have been idle are asked for at their owners, those
    /// of ended owners go, incomplete datagrams are given up. Returns when to come again, in
    /// nanoseconds of the same clock; [`u64::MAX`]: not before a packet comes.
    pub fn turn(&mut self, now_ns: u64, host: &mut impl Host, out: &mut Egress) -> u64 {
        let mut next = u64::MAX;
        self.refused
            .drain(..)
            .for_each(|key| host.refused(&key, out));
        if self.map.is_some() && now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(LOOK_NS);
            self.look_for_ended(out);
        }
        if let Some(map) = &mut self.map {
            let now_ms = ms(now_ns);
            let mut idle = std::mem::take(&mut map.idle);
            map.poll(now_ms, &mut idle);
            next = map.next_ms(now_ms).map_or(next, ns);
            for (key, owner) in idle.drain(..) {
                if owner == self.me {
                    self.answer(&key, host, now_ms);
                } else {
                    self.tell(owner, Note::Ask { from: self.me }, &key, out);
                }
            }
            if let Some(map) = &mut self.map {
                map.idle = idle;
            }
        }
        let mut asked = std::mem::take(&mut self.asked);
        let poll = self
            .away
            .poll(ms(now_ns), |key, left| asked.push((key, left)));
        next = next.min(poll.map_or(u64::MAX, ns));
        for (key, left) in asked.drain(..) {
            match left.to {
                away::HERE if host.has(&key).is_some() => self.away.exists(&key),
                away::HERE => self.away.gone(&key, left.to),
                _ => self.ask_after(&key, left, out),
            }
        }
        self.asked = asked;
        if let Some(all) = &mut self.reassembler {
            let mut ended = Burst::new();
            let before = all.held().fragments;
            all.expire(now_ns, Burst::CAPACITY, &mut out.cache, &mut ended);
            let freed = before - all.held().fragments - ended.len() as u64;
            out.count_drops(self.timed_out, freed);
            out.drop_burst(self.timed_out, &mut ended);
            next = next.min(all.next_expiry_ns().unwrap_or(u64::MAX));
        }
        next
    }

    /// Puts a message about a connection into the ring of an lcore. False where there is no slot
    /// for it; whether the ring has room shows at the end of the round only, and is counted there.
    fn tell(&mut self, to: Member, note: Note, key: &FlowKey, out: &mut Egress) -> bool {
        let mut bytes = [0; note::MESSAGE_BYTES];
        let len = note::write_key(key, &mut bytes);
        let Some(mut packet) = out.cache.copy_of(&bytes[..len]) else {
            self.counts.no_slot += 1;
            return false;
        };
        out.made(1);
        packet.set_user(note);
        out.send_one(self.hand_over.outlet(to), packet);
        true
    }

    /// Sends a packet to an lcore, with a note.
    fn pass(&self, to: Member, note: Note, mut packet: Packet, out: &mut Egress) {
        packet.set_user(note);
        out.send_one(self.hand_over.outlet(to), packet);
    }
}

/// How often a home looks whether other owners run, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// Milliseconds, in which entries age.
fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

/// Nanoseconds.
fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}
