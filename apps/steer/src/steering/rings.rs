//! What an lcore does with what other lcores have put into its ring.

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_wire::{FlowKey, parse};

use super::map::{Pinned, Refused, Segment, Way};
use super::note::{Note, read_key};
use super::plan::{Member, is_tcp};
use super::stage::Host;
use super::{Steering, ms};

/// For how long a home is not told again where a connection is, in milliseconds.
const TELL_AGAIN_MS: u64 = 1;

impl Steering {
    /// Takes a burst from a ring: packets of this lcore's connections stay in it, in order; the
    /// others are seen to.
    pub fn take(&mut self, burst: &mut Burst, host: &mut impl Host, out: &mut Egress) {
        let is_own = |packet: &Packet| packet.user::<Note>() == Note::Deliver;
        if self.away.is_empty() && burst.iter().all(is_own) {
            return;
        }
        let (now, now_ns) = (burst.now, self.clock.ns(burst.now));
        let mut stays = Burst::new();
        (stays.now, stays.port) = (burst.now, burst.port);
        for packet in burst.drain() {
            match packet.user() {
                Note::Deliver => self.deliver(packet, None, (&mut stays, now_ns), out),
                Note::Follow { from } => {
                    self.deliver(packet, Some(from), (&mut stays, now_ns), out);
                }
                Note::Again => self.sort_one(packet, now, (&mut stays, now_ns), out),
                Note::Leave { port, from, visit } => match self.is_taken(&packet, port, host) {
                    Some(key) => self.refuse(packet, &key, (port, from, visit), out),
                    None => self.leave(packet, (port, from, visit), now_ns, out),
                },
                Note::Refused => {
                    if let Some((_, key)) = outgoing(&packet) {
                        host.refused(&key, out);
                    }
                    out.drop_one(self.no_entry, packet);
                }
                Note::Parcel { from, kind } => host.parcel(from, kind, packet, self, out),
                note => {
                    match read_key(packet.data()) {
                        Some(key) => self.obey(note, &key, host, ms(now_ns), out),
                        None => self.counts.unknown += 1,
                    }
                    out.consume_one(packet);
                }
            }
        }
        std::mem::swap(burst, &mut stays);
    }

    /// Drops those packets of this lcore's from a burst that are of connections which have left,
    /// and sends them after these.
    pub(super) fn follow(&mut self, burst: &mut Burst, out: &mut Egress) {
        if self.away.is_empty() {
            return;
        }
        let now_ns = self.clock.ns(burst.now);
        let mut stays = Burst::new();
        (stays.now, stays.port) = (burst.now, burst.port);
        for mut packet in burst.drain() {
            // Where a packet has come straight from a port, the burst says which.
            packet.set_port(stays.port);
            self.deliver(packet, None, (&mut stays, now_ns), out);
        }
        std::mem::swap(burst, &mut stays);
    }

    /// Keeps a packet that is this lcore's, unless its connection has left. `by`: the former owner
    /// by which it has come.
    fn deliver(
        &mut self,
        packet: Packet,
        by: Option<Member>,
        (stays, now_ns): (&mut Burst, u64),
        out: &mut Egress,
    ) {
        if !self.away.is_empty()
            && let Some(key) = incoming(&packet)
            && let Some(to) = self.away.follow(ms(now_ns), &key)
        {
            self.counts.followed += 1;
            return self.pass(to, Note::Follow { from: self.me }, packet, out);
        }
        if by.is_some() {
            self.tell_again(&packet, ms(now_ns), out);
        }
        // No more packets stay than have come.
        if let Err(packet) = stays.push(packet) {
            out.drop_one(self.no_entry, packet);
        }
    }

    /// Packets of a connection still come by its former owner: if the message to its home has found
    /// no room in the ring or map, it goes again. The former owner's word that the home knows has
    /// not come either, so this ends, but where maps are full.
    #[cold]
    fn tell_again(&mut self, packet: &Packet, now_ms: u64, out: &mut Egress) {
        let Some(key) = incoming(packet) else {
            return;
        };
        if let Some(&(_, moves)) = self.moved.iter().rev().find(|(moved, _)| *moved == key)
            && now_ms >= self.told_ms.saturating_add(TELL_AGAIN_MS)
        {
            self.told_ms = now_ms;
            self.pin(packet.port(), &key, (moves, true), now_ms, out);
        }
    }

    /// The key of a SYN to the network, if packets of it would come to this lcore without an entry,
    /// and it has a connection with that key, or had one that has left.
    fn is_taken(&mut self, packet: &Packet, port: u16, host: &mut impl Host) -> Option<FlowKey> {
        let (segment, key) = outgoing(packet)?;
        let by_hash = self.by_hash(port, &key);
        let is_mine = segment.begins() && by_hash == Some(self.me);
        let is_taken = is_mine && (host.has(&key).is_some() || self.away.whither(&key).is_some());
        is_taken.then_some(key)
    }

    /// A SYN of `from` does not leave; the homes that it has passed forget it.
    pub(super) fn refuse(
        &mut self,
        packet: Packet,
        key: &FlowKey,
        (port, from, visit): (u16, Member, u8),
        out: &mut Egress,
    ) {
        for nth in 0..usize::from(visit) {
            match self.stop(port, key, (from, nth)) {
                Some(home) if home != self.me => {
                    self.tell(home, Note::Delete { owner: from }, key, out);
                }
                _ => self.forget_entry(key, from),
            }
        }
        if from != self.me {
            return self.pass(from, Note::Refused, packet, out);
        }
        // The host hears of it with the next turn; of what is too much, when it tries anew.
        if self.refused.len() < self.refused.capacity() {
            self.refused.push(*key);
        }
        out.drop_one(self.no_entry, packet);
    }

    pub(super) fn forget_entry(&mut self, key: &FlowKey, owner: Member) {
        if let Some(map) = &mut self.map {
            map.delete(key, owner);
        }
    }

    /// A packet of `from` that begins or ends a connection leaves by a port, by this lcore: a home,
    /// or the owner by hash.
    pub(super) fn leave(
        &mut self,
        packet: Packet,
        (port, from, visit): (u16, Member, u8),
        now_ns: u64,
        out: &mut Egress,
    ) {
        let Some((segment, key)) = outgoing(&packet) else {
            return out.send_one(port, packet);
        };
        let by_hash = self.by_hash(port, &key);
        let is_home = self.is_home_of(port, &key, self.me);
        if let Some(map) = self.map.as_mut().filter(|_| is_home) {
            let now_ms = ms(now_ns);
            if !segment.begins() {
                map.observe(now_ms, &key, Way::Out, &segment);
            } else if (by_hash != Some(from) || map.get(&key).is_some())
                && map.enter(now_ms, &key, from).is_err()
            {
                return self.refuse(packet, &key, (port, from, visit), out);
            }
        }
        // Where any of several homes may get the answers, all of them see it before it leaves.
        let next = usize::from(visit) + 1;
        let visit = next as u8;
        match self.stop(port, &key, (from, next)) {
            Some(lcore) if lcore == self.me => {
                self.leave(packet, (port, from, visit), now_ns, out);
            }
            Some(lcore) => self.pass(lcore, Note::Leave { port, from, visit }, packet, out),
            None => out.send_one(port, packet),
        }
    }

    /// Does what a message says.
    fn obey(
        &mut self,
        note: Note,
        key: &FlowKey,
        host: &mut impl Host,
        now_ms: u64,
        out: &mut Egress,
    ) {
        match note {
            Note::Pin {
                owner,
                port,
                moves,
                again,
            } => {
                // A former owner need not be a home.
                if self.is_home_of(port, key, self.me) {
                    self.enter_pin(port, key, (owner, moves, again), now_ms, out);
                }
                self.away.exists(key);
            }
            Note::Delete { owner } => {
                self.forget_entry(key, owner);
                self.away.gone(key, owner);
            }
            Note::Ended { owner, port, visit } => {
                self.forget_entry(key, owner);
                self.pass_end(port, key, (owner, visit.wrapping_add(1)), out);
            }
            Note::Ask { from } => {
                let owner = self.me;
                match (host.has(key), self.away.whither(key)) {
                    // Not a move: any number of moves is at least none. All homes hear of it, since
                    // one may have had no room, or no word, before.
                    (Some((port, moves)), _) => {
                        let again = true;
                        let note = Note::Pin {
                            owner,
                            port,
                            moves,
                            again,
                        };
                        self.pin(port, key, (moves, again), now_ms, out);
                        if !self.is_home_of(port, key, from) {
                            self.tell(from, note, key, out);
                        }
                    }
                    (None, Some(to)) if to != from => {
                        self.tell(to, Note::Ask { from }, key, out);
                    }
                    _ => {
                        self.tell(from, Note::Delete { owner }, key, out);
                    }
                }
            }
            Note::Where { from, port } => self.say_where(key, (from, port), out),
            Note::NoRoom => host.refused(key, out),
            Note::Moved => {
                let next = self.away.moved(key);
                self.drained(next, key, out);
            }
            Note::Drained => {
                let next = self.away.drained(key);
                self.drained(next, key, out);
            }
            _ => self.counts.unknown += 1,
        }
    }

    /// Tells a former owner of a connection that this home sends it no more packets of that, if so.
    pub(super) fn say_where(
        &mut self,
        key: &FlowKey,
        (from, port): (Member, u16),
        out: &mut Egress,
    ) {
        let by_map = self.map.as_ref().and_then(|map| map.get(key));
        let by_map = by_map.map(|(_, entry)| entry.owner);
        let to = by_map.or_else(|| self.by_hash(port, key));
        if to.is_none_or(|to| to == from) {
            return;
        }
        if from == self.me {
            let next = self.away.moved(key);
            return self.drained(next, key, out);
        }
        self.tell(from, Note::Moved, key, out);
    }

    /// A connection is an owner's: enters it in this home's map.
    pub(super) fn enter_pin(
        &mut self,
        port: u16,
        key: &FlowKey,
        (owner, moves, again): (Member, u16, bool),
        now_ms: u64,
        out: &mut Egress,
    ) {
        let by_hash = self.by_hash(port, key);
        let Some(map) = &mut self.map else {
            return;
        };
        let before = match map.pin(now_ms, key, (owner, moves), by_hash) {
            Ok(Pinned::From(before)) => before,
            // It has had its word, or will do without.
            Ok(Pinned::Stale) if again => return,
            Ok(Pinned::Stale) => owner,
            Ok(Pinned::Kept) => return,
            Err(Refused::Full | Refused::Taken) if owner != self.me && !again => {
                self.tell(owner, Note::NoRoom, key, out);
                return;
            }
            Err(_) => return,
        };
        // Behind all packets that this home has put into that ring.
        if before == self.me {
            let next = self.away.moved(key);
            return self.drained(next, key, out);
        }
        self.tell(before, Note::Moved, key, out);
    }

    /// Tells the next owner of a connection, if there is one, that no more packets of it come from
    /// here.
    pub(super) fn drained(&mut self, next: Option<Member>, key: &FlowKey, out: &mut Egress) {
        if let Some(next) = next {
            self.tell(next, Note::Drained, key, out);
        }
    }

    /// The answer to a question that this home has for itself.
    pub(super) fn answer(&mut self, key: &FlowKey, host: &mut impl Host, now_ms: u64) {
        let has = host.has(key);
        let by_hash = has.and_then(|(port, _)| self.by_hash(port, key));
        let Some(map) = &mut self.map else {
            return;
        };
        match has {
            Some((_, moves)) => {
                // It has its entry, so there is room.
                let _ = map.pin(now_ms, key, (self.me, moves), by_hash);
            }
            None => map.delete(key, self.me),
        }
    }
}

/// The 4-tuple of a TCP packet from the network.
fn incoming(packet: &Packet) -> Option<FlowKey> {
    let headers = parse(packet.data()).ok()?;
    headers.ports.filter(|_| !headers.is_fragment)?;
    headers.flow_key(packet.data()).filter(is_tcp)
}

/// A TCP packet to the network, and its 4-tuple as answers have it.
pub(super) fn outgoing(packet: &Packet) -> Option<(Segment, FlowKey)> {
    let headers = parse(packet.data()).ok()?;
    let key = headers.flow_key(packet.data()).filter(is_tcp)?;
    let segment = Segment::read(packet.data().get(headers.l4?..headers.end)?)?;
    Some((segment, key.reversed()))
}
