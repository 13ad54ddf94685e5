//! The nodes of an EPC as applications: `linerate_epc` has them without input and output, and here
//! they get sockets.
//!
//! | file | what |
//! |---|---|
//! | this | what an lcore does with a node's messages: read [`Epc`] first |
//! | [`role`] | what is peculiar to each node: whose packets are, what is counted |
//! | `packets` | packets of users at SGi, and the rule that brings packets to lcores |
//! | `ways` | paths of users' packets |
//! | [`streams`] | connections of S1 and S6a, and messages cut out of them |
//! | [`parcel`] | messages that go to another lcore of the node |
//! | [`settings`] | the file |
//!
//! Each lcore has a part of each node, with the users that `core(IMSI)` gives it. A message meets
//! its user's part in one of three ways: datagrams and packets are brought there by what they name
//! ([`Settings::owner_rule`](settings::Settings::owner_rule)); what comes on a connection, which
//! carries many users, goes there as a parcel; what goes out on a connection goes to its lcore as
//! one.
//! Nothing is locked.

mod packets;
pub mod parcel;
pub mod role;
pub mod settings;
pub mod streams;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod ways;

use std::collections::VecDeque;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Packet};
use linerate_core::run::NEVER;
use linerate_epc::tunnels::{Handed, Leaving, Onward};
use linerate_epc::{Cores, Link, Notice, Owner, Sink};
use linerate_stack::host::Path;
use linerate_stack::host::udp::{Bind, UdpId};
use linerate_stack::socket::{Event, Io, Listen, Source};
use linerate_tables::parse::Checksums;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::{ethernet, gtpc, gtpu};

use crate::app::{App, Error, Tokens, done_with, listen};
use crate::steering::plan::Member;
use packets::{Beyond, send_datagram, send_packet};
use parcel::Parcel;
use role::Role;
use streams::{Carrier, Front, Place, Streams};
use ways::{HostWays, Known};

/// Datagrams of a socket in a round.
const DATAGRAMS: usize = 64;
/// Steps that a node takes in a round, of what is due.
const STEPS: usize = 256;
/// Bytes of datagrams that may wait in a socket: bursts of signalling of many users.
const QUEUE_BYTES: u32 = 4 << 20;

/// What is counted of messages, whatever the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages and packets that came here, and that another lcore owned.
    pub handed: u64,
    /// Messages for a connection of another lcore.
    pub relayed: u64,
    /// Messages that could not be sent: no way, no slot, no room at a connection.
    pub unsent: u64,
    /// Packets of users to addresses of ours, which none of them reaches.
    pub to_own: u64,
    /// Packets that came to users of `ran`.
    pub to_users: u64,
    /// Users' packets that a gateway has passed on in bursts, past its sockets.
    pub in_bursts: u64,
}

/// What a node sends in one call.
#[derive(Default)]
struct Outbox {
    sent: Vec<(Link, Range<usize>)>,
    bytes: Vec<u8>,
    told: Vec<Notice>,
}

impl Sink for Outbox {
    fn send(&mut self, to: Link, message: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(message);
        self.sent.push((to, start..self.bytes.len()));
    }

    fn tell(&mut self, notice: Notice) {
        self.told.push(notice);
    }
}

/// Where a node's sockets are.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    /// Its addresses of GTP-C.
    pub control: Option<Ipv4Addr>,
    /// Its addresses of GTP-U.
    pub user: Vec<Ipv4Addr>,
    /// Its connections of S1 and S6a.
    pub carriers: [Option<Carrier>; 2],
}

/// One lcore's part of a node, with its sockets.
pub struct Epc<R> {
    node: R,
    cores: Cores,
    me: u8,
    tokens: Tokens,
    at: Sockets,
    control: Option<UdpId>,
    user: Vec<UdpId>,
    /// Which of the latter has got what is being worked on.
    by: usize,
    streams: Streams,
    known: Known,
    outbox: Outbox,
    /// For other lcores.
    leaving: VecDeque<(Member, Packet)>,
    /// Users' packets that leave by ports; empty between two bursts.
    frames: Leaving<Path>,
    checksums: Checksums,
    /// When the node has something to do, in nanoseconds.
    next_ns: u64,
    counts: Counts,
}

impl<R: Role> Epc<R> {
    /// The part of core `me` of `cores`.
    pub fn new(node: R, at: Sockets, cores: Cores, me: u8, tokens: Tokens) -> Self {
        Self {
            node,
            cores,
            me,
            tokens,
            control: None,
            user: Vec::with_capacity(at.user.len()),
            by: 0,
            streams: Streams::new(at.carriers, cores.count(), me),
            at,
            known: Known::new(),
            outbox: Outbox::default(),
            leaving: VecDeque::new(),
            frames: Leaving::new(),
            checksums: Checksums::new(Isa::detect()),
            next_ns: 0,
            counts: Counts::default(),
        }
    }

    /// Takes a message that came here.
    fn take(&mut self, io: &mut Io<'_>, from: Link, message: &mut [u8]) {
        let owner = match self.node.owner_of(self.cores, from, message) {
            Owner::Home => self.me,
            Owner::Core(core) => core,
            Owner::User(imsi) => self.cores.owner(imsi),
        };
        if owner == self.me {
            self.receive(io, from, message);
        } else {
            self.counts.handed += 1;
            self.hand(io, owner, &Parcel::Message(from), message);
        }
    }

    /// Handles a message of a user of this lcore.
    fn receive(&mut self, io: &mut Io<'_>, from: Link, message: &mut [u8]) {
        let now_ns = io.now_ns();
        self.node.receive(now_ns, from, message, &mut self.outbox);
        self.flush(io);
    }

    fn notice(&mut self, io: &mut Io<'_>, notice: Notice) {
        self.node.notice(io.now_ns(), notice, &mut self.outbox);
        self.flush(io);
    }

    /// Sends what the node has just made. It may have begun to wait for something, too.
    fn flush(&mut self, io: &mut Io<'_>) {
        self.next_ns = 0;
        let mut outbox = mem::take(&mut self.outbox);
        for (to, at) in outbox.sent.drain(..) {
            self.send(io, to, &outbox.bytes[at]);
        }
        outbox.bytes.clear();
        for notice in outbox.told.drain(..) {
            match notice {
                // A connection that the node gives up ends here, which is told by that.
                Notice::Closed(link) if self.home(link) == Some(self.me) => self.give_up(io, link),
                notice => self.tell(io, notice),
            }
        }
        self.outbox = outbox;
    }

    /// The lcore that has a connection.
    fn home(&self, link: Link) -> Option<u8> {
        match link {
            Link::S1(number) | Link::S6a(number) => {
                Some((number % u16::from(self.cores.count())) as u8)
            }
            _ => None,
        }
    }

    fn send(&mut self, io: &mut Io<'_>, to: Link, message: &[u8]) {
        let is_sent = match to {
            Link::S1(_) | Link::S6a(_) => {
                let home = self.home(to).filter(|home| *home != self.me);
                if let Some(home) = home {
                    self.counts.relayed += 1;
                    self.hand(io, home, &Parcel::Send(to), message);
                    return;
                }
                self.streams.write(io, to, message, self.tokens)
            }
            Link::Gtpc(to) => send_datagram(io, self.control, to, message),
            Link::Gtpu(to) => {
                let by = self.user.get(self.by).or(self.user.first());
                send_datagram(io, by.copied(), to, message)
            }
            Link::Sgi => match send_packet(io, message) {
                Beyond::Sent => true,
                Beyond::Unsent => false,
                Beyond::Own => {
                    self.counts.to_own += 1;
                    true
                }
            },
            Link::User(_) => {
                self.counts.to_users += 1;
                true
            }
        };
        self.counts.unsent += u64::from(!is_sent);
    }

    /// Tells all other lcores.
    fn tell(&mut self, io: &mut Io<'_>, notice: Notice) {
        let (count, me) = (self.cores.count(), self.me);
        for core in (0..count).filter(|&core| core != me) {
            let parcel = Parcel::Notice(notice);
            self.hand(io, core, &parcel, parcel.rest());
        }
    }

    /// Puts something on its way to another lcore of the node.
    fn hand(&mut self, io: &mut Io<'_>, to: u8, what: &Parcel, message: &[u8]) {
        let (_, _, out) = io.udp();
        let head = what.write();
        let packet = out.cache.copy_of(message).and_then(|mut packet| {
            // In front of it there is as much room as a tunnel's headers take.
            match packet.prepend(head.len()) {
                Some(front) => {
                    front.copy_from_slice(&head);
                    Some(packet)
                }
                None => {
                    out.cache.free_one(packet);
                    None
                }
            }
        });
        match packet {
            Some(packet) => {
                out.made(1);
                self.leaving.push_back((Member::from(to), packet));
            }
            None => self.counts.unsent += 1,
        }
    }

    /// Has the node pass users' packets on, and sends those that leave.
    #[inline]
    fn pass(
        &mut self,
        io: &mut Io<'_>,
        handed: &mut Handed,
        work: impl FnOnce(&mut R, &mut Onward<'_, HostWays<'_>>) -> usize,
    ) {
        let (now_ns, (_, host, out)) = (io.now_ns(), io.udp());
        let mut onward = Onward {
            leaving: &mut self.frames,
            handed,
            ways: &mut HostWays::new(host, &mut self.known, now_ns),
        };
        self.counts.in_bursts += work(&mut self.node, &mut onward) as u64;
        self.counts.unsent += ways::send(&mut self.frames, host, now_ns, out);
    }

    /// A connection is open, or is no longer.
    fn changed(&mut self, io: &mut Io<'_>, notice: Notice) {
        self.notice(io, notice);
        // Users of all lcores are behind a base station. A connection of Diameter has the watchdog
        // of its own lcore; the others pass messages on without, and forget whom it led to.
        if !matches!(notice, Notice::Opened(Link::S6a(_))) {
            self.tell(io, notice);
        }
    }

    /// Reads a connection, and handles its messages.
    fn read(&mut self, io: &mut Io<'_>, place: Place) {
        let Some((link, mut buffer)) = self.streams.lend(place) else {
            return;
        };
        let id = self.streams.id(place);
        let (mut at, goes_on) = (0, streams::fill(io, id, &mut buffer));
        let is_sound = loop {
            match streams::front(link, &buffer[at..]) {
                Front::Whole(len) => {
                    self.take(io, link, &mut buffer[at..at + len]);
                    at += len;
                    // That may have ended it.
                    if self.streams.id(place) != id {
                        return;
                    }
                }
                Front::Part => break true,
                Front::Broken => break false,
            }
        };
        buffer.drain(..at);
        self.streams.give_back(place, buffer);
        if !(goes_on && is_sound) {
            self.close(io, place);
        }
    }

    fn give_up(&mut self, io: &mut Io<'_>, link: Link) {
        if let Some(place) = self.streams.place(link) {
            self.close(io, place);
        }
    }

    fn close(&mut self, io: &mut Io<'_>, place: Place) {
        if let Some(link) = self.streams.close(io, place) {
            self.changed(io, Notice::Closed(link));
        }
    }

    /// Takes datagrams that wait; whether there may be more.
    fn datagrams(&mut self, io: &mut Io<'_>) -> bool {
        let mut has_more = false;
        let (control, count) = (self.control, self.user.len());
        for (place, id) in control.into_iter().map(|id| (None, id)).chain(
            (0..count)
                .map(|at| (Some(at), self.user[at]))
                .collect::<Vec<_>>(),
        ) {
            for turn in 0.. {
                if turn == DATAGRAMS {
                    has_more = true;
                    break;
                }
                let (udp, _, _) = io.udp();
                let Ok(Some(mut datagram)) = udp.recv(id) else {
                    break;
                };
                let SocketAddr::V4(from) = datagram.about.from else {
                    done_with(io, datagram.packet);
                    continue;
                };
                let link = match place {
                    None => Link::Gtpc(from),
                    Some(_) => Link::Gtpu(from),
                };
                self.by = place.unwrap_or_default();
                let payload = datagram.start..datagram.start + datagram.len;
                if let Some(message) = datagram.packet.data_mut().get_mut(payload) {
                    self.take(io, link, message);
                }
                self.by = 0;
                done_with(io, datagram.packet);
            }
        }
        has_more
    }

    /// What the node has, for `ctl show apps`.
    fn named_counts(&self) -> Vec<(&'static str, u64)> {
        let Counts {
            handed,
            relayed,
            unsent,
            to_own,
            to_users,
            in_bursts,
        } = self.counts;
        let mut all = self.node.counts();
        all.extend([
            ("handed", handed),
            ("relayed", relayed),
            ("unsent", unsent),
            ("to_own", to_own),
            ("to_users", to_users),
            ("in_bursts", in_bursts),
            ("connections", self.streams.open() as u64),
        ]);
        all
    }
}

impl<R: Role> App for Epc<R> {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Error> {
        let bind = |io: &mut Io<'_>, address: Ipv4Addr, port| {
            let bind = Bind {
                address: Some(address.into()),
                port,
                queue_bytes: QUEUE_BYTES,
                ..Bind::default()
            };
            let (udp, host, _) = io.udp();
            let bound = udp.bind(host, bind);
            bound.map_err(|error| Error::Table(format!("{address}, UDP port {port}: {error}")))
        };
        if let Some(address) = self.at.control {
            self.control = Some(bind(io, address, gtpc::PORT)?);
        }
        for at in 0..self.at.user.len() {
            let id = bind(io, self.at.user[at], gtpu::PORT)?;
            self.user.push(id);
        }
        for (which, carrier) in self.at.carriers.iter().enumerate() {
            if let Some(Carrier::Listen { at, .. }) = carrier {
                let on = Listen {
                    address: Some(IpAddr::V4(*at.ip())),
                    token: self.tokens.token(Place::listener(which)),
                    ..Listen::on(at.port())
                };
                listen(io, on)?;
            }
        }
        Ok(())
    }

    fn ready(&mut self, io: &mut Io<'_>, events: &[Event]) {
        for event in events {
            let word = Tokens::value(event.token);
            let id = match event.source {
                Source::Listener(listener) => {
                    while let Some((id, _)) = io.accept(listener) {
                        let link = self.streams.accept(io, word, id, self.tokens);
                        if let Some(link) = link {
                            self.changed(io, Notice::Opened(link));
                        }
                    }
                    continue;
                }
                Source::Connection(id) => id,
            };
            // An earlier event of this round may have ended it, and another one may have its place.
            let Some(place) = self.streams.find(word, id) else {
                continue;
            };
            if io.error(id).is_some() {
                self.close(io, place);
                continue;
            }
            if let Some(link) = self.streams.opened(place) {
                self.changed(io, Notice::Opened(link));
            }
            self.read(io, place);
            self.streams.go_on(io, place, self.tokens);
        }
    }

    fn turn(&mut self, io: &mut Io<'_>) -> u64 {
        let now_ns = io.now_ns();
        let has_more = self.datagrams(io);
        if self.next_ns <= now_ns {
            let next_ns = self.node.poll(now_ns, STEPS, &mut self.outbox);
            self.flush(io);
            self.next_ns = next_ns.unwrap_or(NEVER);
        }
        let retry_ns = self.streams.connect(io, self.tokens);
        match has_more {
            true => now_ns,
            false => self.next_ns.min(retry_ns),
        }
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.named_counts()
    }

    fn is_gateway(&self) -> bool {
        self.node.is_gateway()
    }

    fn burst(&mut self, io: &mut Io<'_>, burst: &mut Burst, handed: &mut Handed) {
        self.pass(io, handed, |node, onward| node.forward(burst, onward));
    }

    fn handed(&mut self, io: &mut Io<'_>, handed: &mut Handed) {
        self.pass(io, handed, |node, onward| node.forward_handed(onward));
    }

    fn claims(&self, packet: &Packet) -> bool {
        let pool = self.node.pool();
        pool.is_some_and(|pool| packets::claims(&pool, packet))
    }

    fn packet(&mut self, io: &mut Io<'_>, packet: Packet) {
        let mut one = Burst::new();
        // An empty burst has room.
        let _ = one.push(packet);
        self.checksums.complete_partial(&mut one);
        for mut packet in one.drain() {
            let len = Ipv4::new_checked(&packet.data()[ethernet::HEADER_LEN..]);
            let len = len.map(|ip| ip.total_len());
            let data = &mut packet.data_mut()[ethernet::HEADER_LEN..];
            match len {
                // The header's length says where padding begins, and was checked.
                Ok(len) => self.take(io, Link::Sgi, &mut data[..len]),
                Err(_) => self.counts.unsent += 1,
            }
            done_with(io, packet);
        }
    }

    fn parcel(&mut self, io: &mut Io<'_>, mut packet: Packet) {
        match Parcel::read(packet.data_mut()) {
            Some((Parcel::Message(from), message)) => self.receive(io, from, message),
            Some((Parcel::Send(to), message)) => self.send(io, to, message),
            Some((Parcel::Notice(notice), _)) => self.notice(io, notice),
            None => self.counts.unsent += 1,
        }
        done_with(io, packet);
    }

    fn leaving(&mut self) -> Option<(Member, Packet)> {
        self.leaving.pop_front()
    }
}
