//! A stack and its user behind steering: packets come from there, and leave by it.

use std::collections::VecDeque;

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_stack::socket::{Io, Refused, SocketId, Stack};
use linerate_wire::FlowKey;

use super::post::{Moving, Post};
use super::rule::Rules;
use crate::app::{App, Served, done_with};
use crate::steering::plan::Member;
use crate::steering::{Host, Setup, Steering};

/// Segments with SYN or FIN that one call of the stack makes at most.
const DIVERTED: usize = 4096;
/// Ended connections whose entries wait for 2 MSL; beyond that the oldest entry goes early.
const LINGERING: usize = 65_536;
/// 2 MSL (RFC 9293 3.4.2; as long as Linux waits), in nanoseconds.
const MSL_2_NS: u64 = 60_000_000_000;
/// The kind of the parcel behind a connection that moves.
const MOVED: u16 = 1;

/// An application among several lcores: connections may come to it from there, and go.
pub trait User: App {
    /// A connection has come from another lcore, with the token that its events had there. False
    /// if the user does not expect one: then it waits at the listener of its local port to be
    /// accepted, and is ended where nobody listens.
    fn arrived(&mut self, io: &mut Io<'_>, id: SocketId, token: u64) -> bool {
        let _ = (io, id, token);
        false
    }

    /// A connection that was to go to another lcore stays, since it is not open, or there is no
    /// slot or room on the way now.
    fn stayed(&mut self, io: &mut Io<'_>, id: SocketId) {
        let _ = (io, id);
    }

    /// Takes what the user of another lcore has sent, of a kind that it said.
    fn parcel_of(&mut self, io: &mut Io<'_>, kind: u16, packet: Packet) {
        let _ = kind;
        done_with(io, packet);
    }

    /// The next packet for the user of another lcore: which one, and of what kind, from
    /// [`PARCEL`](crate::app::PARCEL) on.
    fn next_parcel(&mut self) -> Option<(Member, u16, Packet)> {
        None
    }
}

/// What has become of connections that were to move, and of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Connections that have left.
    pub left: u64,
    /// Connections that have come.
    pub came: u64,
    /// Connections that were to leave and have stayed: no slot, no room on the way, or not open.
    pub stayed: u64,
    /// Connections that have come and found no room: they went back.
    pub returned: u64,
    /// Connections that found no room twice: they have ended.
    pub lost: u64,
    /// Connections that were to be opened, for which a home had no room.
    pub refused: u64,
    /// Connections that have moved here, for which a home has no room: their packets come by their
    /// former owner.
    pub unmapped: u64,
}

/// A stack, its user and its post: what has the connections of an lcore.
pub struct StackHost<U> {
    /// The stack.
    pub stack: Stack,
    /// Who serves it.
    pub user: U,
    me: Member,
    /// Bursts whose port is below this are from ports.
    ports: u16,
    post: Post,
    /// Entries that go when 2 MSL are over.
    lingering: VecDeque<(u64, FlowKey, u16)>,
    served: Served,
    counts: HostCounts,
    /// The time of the last burst or turn.
    now_ns: u64,
}

impl<U: User> StackHost<U> {
    /// The host of the lcore that `setup` names, whose ports have numbers below `ports`. From now
    /// on the stack chooses local ports, and sends what begins and ends connections, as steering
    /// wants it. All stacks have the same secret, or connections cannot move.
    pub fn new(
        setup: &Setup,
        ports: u16,
        mut stack: Stack,
        user: U,
        post: Post,
        out: &mut Egress,
    ) -> Self {
        let has_maps = setup.map.is_some();
        stack.set_port_rule(Box::new(Rules::new(setup.plan.clone(), setup.me, has_maps)));
        if has_maps {
            stack.host().divert(DIVERTED, out);
        }
        Self {
            stack,
            user,
            me: setup.me,
            ports,
            post,
            lingering: VecDeque::new(),
            served: Served::new(),
            counts: HostCounts::default(),
            now_ns: 0,
        }
    }

    /// What has become of connections that were to move.
    pub fn counts(&self) -> HostCounts {
        self.counts
    }

    /// Takes connections that have come.
    #[cold]
    fn take_post(&mut self, steering: &mut Steering, out: &mut Egress) {
        while let Some((from, moving)) = self.post.take() {
            self.arrive(from, *moving, steering, out);
        }
    }

    fn arrive(&mut self, from: Member, moving: Moving, steering: &mut Steering, out: &mut Egress) {
        let Moving {
            connection,
            port,
            refused,
        } = moving;
        let (key, moves, token) = (connection.key(), connection.moves(), connection.token());
        let now_ns = self.now_ns;
        match self.stack.io(now_ns, out).attach(connection) {
            Ok(id) => {
                self.counts.came += 1;
                steering.keep(port, &key, moves, now_ns, out);
                let mut io = self.stack.io(now_ns, out);
                if !self.user.arrived(&mut io, id, token) && io.offer(id).is_none() {
                    io.abort(id);
                }
            }
            Err(Refused(connection)) => {
                // It is this lcore's until it goes back, so the words about it stay in order.
                steering.keep(port, &key, moves, now_ns, out);
                let moving = Box::new(Moving {
                    connection: connection.moved(),
                    port,
                    refused: refused + 1,
                });
                let may_return = refused == 0 && self.post.has_room(from);
                if may_return && steering.give(port, &key, from, now_ns) {
                    // There is room.
                    if self.post.put(from, moving).is_ok() {
                        self.counts.returned += 1;
                        self.announce(from, steering, out);
                    }
                } else {
                    self.counts.lost += 1;
                    steering.ended(port, &key, out);
                }
            }
        }
    }

    /// Wakes the lcore that a connection has gone to. Without a slot it is found with its next
    /// turn.
    fn announce(&self, to: Member, steering: &Steering, out: &mut Egress) {
        if let Some(packet) = out.cache.copy_of(&[0]) {
            out.made(1);
            steering.send_parcel(to, MOVED, packet, out);
        }
    }

    /// Has a connection go to another lcore, if it can.
    fn move_to(&mut self, id: SocketId, to: Member, steering: &mut Steering, out: &mut Egress) {
        let is_elsewhere = to != self.me && steering.plan().owns(to);
        let movable = self.stack.movable(id).filter(|_| is_elsewhere);
        let now_ns = self.now_ns;
        let can_go = movable
            .filter(|(key, port)| self.post.has_room(to) && steering.give(*port, key, to, now_ns));
        let Some((_, port)) = can_go else {
            self.counts.stayed += 1;
            let mut io = self.stack.io(now_ns, out);
            return self.user.stayed(&mut io, id);
        };
        // It is movable, and there is room, as was seen above.
        if let Ok(connection) = self.stack.io(now_ns, out).detach(id) {
            let moving = Box::new(Moving {
                connection,
                port,
                refused: 0,
            });
            if self.post.put(to, moving).is_ok() {
                self.counts.left += 1;
                self.announce(to, steering, out);
            }
        }
    }

    /// What follows a call of the stack: what it keeps for steering leaves, homes hear of ends.
    #[inline]
    pub(crate) fn settle(&mut self, steering: &mut Steering, out: &mut Egress) {
        while let Some((id, to)) = self.stack.take_leaving() {
            self.move_to(id, to, steering, out);
        }
        let mut burst = Burst::new();
        for (port, packet) in self.stack.host().diverted() {
            // It is empty: each goes alone, since neighbours in it need not have one port.
            let _ = burst.push(packet);
            steering.send(port, &mut burst, self.now_ns, out);
        }
        while let Some(ended) = self.stack.take_ended() {
            match ended.lingers {
                false => steering.ended(ended.port, &ended.key, out),
                true => self.linger(ended.key, ended.port, steering, out),
            }
        }
    }

    /// An entry goes when no segment of its connection can come any more.
    fn linger(&mut self, key: FlowKey, port: u16, steering: &mut Steering, out: &mut Egress) {
        if self.lingering.len() == LINGERING
            && let Some((_, key, port)) = self.lingering.pop_front()
        {
            self.forget(&key, port, steering, out);
        }
        self.lingering
            .push_back((self.now_ns.saturating_add(MSL_2_NS), key, port));
    }

    fn forget(&self, key: &FlowKey, port: u16, steering: &mut Steering, out: &mut Egress) {
        // One that has begun anew has the entry now.
        if self.stack.steered(key).is_none() {
            steering.ended(port, key, out);
        }
    }
}

impl<U: User> Host for StackHost<U> {
    fn receive(&mut self, burst: &mut Burst, steering: &mut Steering, out: &mut Egress) {
        self.now_ns = steering.ns(burst.now);
        if self.post.has_come() {
            self.take_post(steering, out);
        }
        if burst.port < self.ports {
            let port = burst.port;
            for packet in burst.as_packets_mut() {
                packet.set_port(port);
            }
        }
        let both = (&mut self.stack, &mut self.user);
        Served::receive(both, burst, self.now_ns, out);
        self.settle(steering, out);
    }

    fn has(&mut self, key: &FlowKey) -> Option<(u16, u16)> {
        self.stack.steered(key)
    }

    fn refused(&mut self, key: &FlowKey, out: &mut Egress) {
        match self.stack.refuse_connect(key, self.now_ns, out) {
            true => self.counts.refused += 1,
            false => self.counts.unmapped += 1,
        }
    }

    fn parcel(
        &mut self,
        _: Member,
        kind: u16,
        packet: Packet,
        steering: &mut Steering,
        out: &mut Egress,
    ) {
        if kind == MOVED {
            out.consume_one(packet);
            return self.take_post(steering, out);
        }
        let mut io = self.stack.io(self.now_ns, out);
        self.user.parcel_of(&mut io, kind, packet);
    }

    fn arrivals(&mut self, now_ns: u64, steering: &mut Steering, out: &mut Egress) {
        self.now_ns = now_ns;
        if self.post.has_come() {
            self.take_post(steering, out);
        }
    }

    fn turn(&mut self, now_ns: u64, steering: &mut Steering, out: &mut Egress) -> u64 {
        self.now_ns = now_ns;
        if self.post.has_come() {
            self.take_post(steering, out);
        }
        let both = (&mut self.stack, &mut self.user);
        let mut next = self.served.work(both, now_ns, out);
        self.settle(steering, out);
        while let Some((to, kind, packet)) = self.user.next_parcel() {
            steering.send_parcel(to, kind, packet, out);
        }
        while let Some(&(due, key, port)) = self.lingering.front() {
            if due > now_ns {
                next = next.min(due);
                break;
            }
            self.lingering.pop_front();
            self.forget(&key, port, steering, out);
        }
        Served::due(&self.stack, now_ns, next)
    }

    fn held(&self) -> u64 {
        self.stack.held()
    }

    fn held_packets(&self) -> u64 {
        self.stack.held_packets()
    }
}
