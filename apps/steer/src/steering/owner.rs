//! What an owner does: sends packets, gives connections away and takes them.

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_wire::tcp::flag;
use linerate_wire::{FlowKey, parse, protocol};

use super::away::Left;
use super::note::Note;
use super::plan::{Arrival, Member, flow};
use super::rings::outgoing;
use super::{Steering, ms};

/// A connection of which packets may still come by its former owner.
pub(super) type Moved = (FlowKey, u16);

/// How many of these are remembered: the newest.
pub(super) const MOVED: usize = 64;

impl Steering {
    /// Sends packets of this lcore's connections by a port. Those that begin or end a connection
    /// whose packets do not come here by hash go by their home, which has an entry for it, or gets
    /// one before the SYN leaves. One that begins where they do come here goes by a home, too,
    /// since another lcore may have an entry for the same 4-tuple. All others leave at once.
    #[inline]
    pub fn send(&mut self, port: u16, burst: &mut Burst, now_ns: u64, out: &mut Egress) {
        const CONTROLS: u8 = flag::SYN | flag::FIN;
        if self.maps && burst.iter().any(|packet| controls(packet) & CONTROLS != 0) {
            self.send_by_home(port, burst, now_ns, out);
        }
        out.send(port, burst);
    }

    /// Takes those packets out of a burst that go by their homes.
    #[cold]
    fn send_by_home(&mut self, port: u16, burst: &mut Burst, now_ns: u64, out: &mut Egress) {
        let mut by_home = Burst::new();
        let Some(ways) = self.plan.port(port) else {
            return;
        };
        burst.retain(&mut by_home, |packet| {
            let Some((segment, key)) = outgoing(packet) else {
                return true;
            };
            !segment.begins() && (!segment.controls() || ways.owner(&key) == Some(self.me))
        });
        for packet in by_home.drain() {
            if let Some((segment, key)) = outgoing(&packet)
                && segment.begins()
                && self.away.whither(&key).is_some()
            {
                // One with this 4-tuple has left, and its packets come by this lcore still.
                self.refuse(packet, &key, (port, self.me, 0), out);
                continue;
            }
            let first = outgoing(&packet).and_then(|(segment, key)| {
                // Who ends a connection need not be asked whether it is another one's.
                let visit = match segment.begins() {
                    true => 0,
                    false => usize::from(self.asked_first(port, &key).is_some()),
                };
                Some((self.stop(port, &key, (self.me, visit))?, visit as u8))
            });
            let from = self.me;
            match first {
                Some((lcore, visit)) if lcore != self.me => {
                    self.pass(lcore, Note::Leave { port, from, visit }, packet, out);
                }
                Some((_, visit)) => self.leave(packet, (port, from, visit), now_ns, out),
                None => out.send_one(port, packet),
            }
        }
    }

    /// The lcores by which a packet of `from` that begins or ends a connection leaves, by number:
    /// the owner by hash, if it is no home, so that no connection of its is taken from it; then all
    /// homes. Where `from` is that owner, one home is enough: itself, if it is one.
    pub(super) fn stop(
        &self,
        port: u16,
        key: &FlowKey,
        (from, nth): (Member, usize),
    ) -> Option<Member> {
        if self.by_hash(port, key) == Some(from) {
            let home = match self.is_home_of(port, key, from) {
                true => Some(from),
                false => self.nth_home(port, key, 0),
            };
            return home.filter(|_| nth == 0);
        }
        self.nth_stop(port, key, nth)
    }

    /// The same without regard to who sends it.
    fn nth_stop(&self, port: u16, key: &FlowKey, nth: usize) -> Option<Member> {
        match (self.asked_first(port, key), nth) {
            (Some(owner), 0) => Some(owner),
            (Some(_), nth) => self.nth_home(port, key, nth - 1),
            (None, nth) => self.nth_home(port, key, nth),
        }
    }

    /// The owner by hash, if it is no home.
    fn asked_first(&self, port: u16, key: &FlowKey) -> Option<Member> {
        let owner = self.by_hash(port, key)?;
        (!self.is_home_of(port, key, owner)).then_some(owner)
    }

    /// Sends something to the host of another lcore, in order with all else that goes there from
    /// here: a connection, a part of one, a message that is for a user there.
    pub fn send_parcel(&self, to: Member, kind: u16, packet: Packet, out: &mut Egress) {
        let from = self.me;
        self.pass(to, Note::Parcel { from, kind }, packet, out);
    }

    /// A connection leaves for another lcore: packets of it that come here from now on are sent
    /// there. `key` is as packets from the network have it, which come by a port. The host sends
    /// the connection right behind this by [`send_parcel`](Self::send_parcel), with how often it
    /// has moved. False if there is no room for one more on its way: then it stays.
    pub fn give(&mut self, port: u16, key: &FlowKey, to: Member, now_ns: u64) -> bool {
        let homes = self.homes(port);
        self.away.leave(ms(now_ns), key, (port, to), homes)
    }

    /// A connection has come here, by [`give`](Self::give) of another lcore: its home sends packets
    /// here from now on. `moves` is how often it has moved, this time included; the count wraps.
    /// If the home has no room, [`Host::refused`](super::Host::refused) says so, and packets come
    /// by the former owner.
    pub fn keep(&mut self, port: u16, key: &FlowKey, moves: u16, now_ns: u64, out: &mut Egress) {
        let former = self.away.arrive(ms(now_ns), key);
        self.drained(former, key, out);
        if self.moved.len() == MOVED {
            self.moved.pop_front();
        }
        self.moved.push_back((*key, moves));
        self.pin(port, key, (moves, false), ms(now_ns), out);
    }

    /// A connection of this lcore's that may have an entry has ended: by a RST that was accepted or
    /// sent, by a time-out, or because it was never answered; or in any way, if it has moved. After
    /// both FINs the entry of one that has not moved goes without this.
    pub fn ended(&mut self, port: u16, key: &FlowKey, out: &mut Egress) {
        self.pass_end(port, key, (self.me, 0), out);
    }

    /// A connection of `owner` has ended: all homes hear of it by the way of its SYN, which may be
    /// on its way there.
    pub(super) fn pass_end(
        &mut self,
        port: u16,
        key: &FlowKey,
        (owner, first): (Member, u8),
        out: &mut Egress,
    ) {
        for visit in first.. {
            match self.nth_stop(port, key, visit.into()) {
                Some(lcore) if lcore == self.me => self.forget_entry(key, owner),
                Some(lcore) => {
                    let note = Note::Ended { owner, port, visit };
                    self.tell(lcore, note, key, out);
                    return;
                }
                None => return,
            }
        }
    }

    /// Tells the homes of a connection that it is here.
    pub(super) fn pin(
        &mut self,
        port: u16,
        key: &FlowKey,
        (moves, again): (u16, bool),
        now_ms: u64,
        out: &mut Egress,
    ) {
        let owner = self.me;
        self.each_home(port, key, out, |this, home, out| match home == owner {
            true => this.enter_pin(port, key, (owner, moves, again), now_ms, out),
            false => {
                let note = Note::Pin {
                    owner,
                    port,
                    moves,
                    again,
                };
                this.tell(home, note, key, out);
            }
        });
    }

    /// Does something for each home that packets of a connection may come to.
    fn each_home(
        &mut self,
        port: u16,
        key: &FlowKey,
        out: &mut Egress,
        mut does: impl FnMut(&mut Self, Member, &mut Egress),
    ) {
        let mut nth = 0;
        while let Some(home) = self.nth_home(port, key, nth) {
            does(self, home, out);
            nth += 1;
        }
    }

    /// The homes that packets of a connection may come to, by number. Where a NIC hashes more than
    /// the 4-tuple, and nobody knows what, there is none.
    fn nth_home(&self, port: u16, key: &FlowKey, nth: usize) -> Option<Member> {
        let port = self.plan.port(port)?;
        match port.arrival() {
            Arrival::Any(homes) => homes.get(nth).copied(),
            _ if nth > 0 => None,
            _ => port.home(key),
        }
    }

    /// How many homes packets of a connection may come to. Where nobody knows, it counts as one
    /// that never says a word: only the owner can say that it is over.
    fn homes(&self, port: u16) -> u16 {
        match self.plan.port(port).map(|port| port.arrival()) {
            Some(Arrival::Any(homes)) => homes.len() as u16,
            _ => 1,
        }
    }

    /// Whose packets of a connection are without an entry, as far as a hash says it.
    pub(super) fn by_hash(&self, port: u16, key: &FlowKey) -> Option<Member> {
        self.plan.port(port)?.owner(key)
    }

    /// Whether an lcore is a home that packets of a connection may come to.
    pub(super) fn is_home_of(&self, port: u16, key: &FlowKey, lcore: Member) -> bool {
        let port = self.plan.port(port);
        port.is_some_and(|port| match port.arrival() {
            Arrival::Any(homes) => homes.contains(&lcore),
            _ => port.home(key) == Some(lcore),
        })
    }

    /// Asks after a connection that has left: homes, whether they still send packets of it here,
    /// and its owner, whether it exists.
    #[cold]
    pub(super) fn ask_after(&mut self, key: &FlowKey, left: Left, out: &mut Egress) {
        let (from, port) = (self.me, left.port);
        self.away.asks(key, self.homes(port));
        self.each_home(port, key, out, |this, home, out| match home == from {
            true => this.say_where(key, (from, port), out),
            false => {
                this.tell(home, Note::Where { from, port }, key, out);
            }
        });
        self.tell(left.to, Note::Ask { from }, key, out);
    }

    /// Whether packets of a connection come to this lcore without an entry.
    pub fn comes_home(&self, port: u16, key: &FlowKey) -> bool {
        let port = self.plan.port(port);
        port.and_then(|port| port.model().queue(&flow(key), false)) == Some(self.me.into())
    }
}

/// The flags of a TCP packet that this machine has made; 0 of others. What its metadata says of
/// headers may be of the packet that was in its slot before, so the frame itself is asked: most are
/// without tags, options and extension headers.
#[inline(always)]
fn controls(packet: &Packet) -> u8 {
    let data = packet.data();
    match data {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, 0x45, ..] if data.len() >= 54 => {
            match data[23] == protocol::TCP {
                true => data[47],
                false => 0,
            }
        }
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, ..]
            if data.len() >= 74 && data[20] == protocol::TCP =>
        {
            data[67]
        }
        _ => {
            let headers = parse(data).ok();
            headers
                .and_then(|headers| headers.tcp_flags(data))
                .unwrap_or(0)
        }
    }
}
