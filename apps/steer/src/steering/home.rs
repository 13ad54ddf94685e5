//! What a home does with packets from ports: each goes to its owner.
//!
//! | packet | goes to |
//! |---|---|
//! | whole TCP or UDP | the owner by the map, else by hash |
//! | an ICMP error | the owner of what it quotes, reversed |
//! | IPv4 that names a user, by the rule of an application | the user's owner |
//! | a fragment | the home of its addresses, which puts the datagram together and begins anew |
//! | other IP | the lcore that the hash of its addresses says |
//! | answers of ARP and Neighbor Discovery | all owners, as copies: each stack has its neighbours |
//! | anything else | this lcore, if it owns connections; otherwise the first owner |
//!
//! The map with a 4-tuple's entry is at its home. Where the NIC brings packets of a 4-tuple to
//! another lcore than its model says, where an ICMP error or a whole datagram is about a 4-tuple
//! whose home is elsewhere, it goes there first ([`Note::Again`]).

use linerate_core::packet::{Burst, Packet};
use linerate_core::run::Egress;
use linerate_dispatch::ones;
use linerate_stack::reassembly::Outcome;
use linerate_tables::parse::Mask;
use linerate_wire::{EtherType, FlowKey, arp, parse};

use super::note::Note;
use super::plan::{Arrival, Member, key_of};
use super::{Misdirected, Steering, ms};

/// What is done with the packets of a burst, by position.
struct Sorted {
    owners: [u32; Burst::CAPACITY],
    /// Those that go to their homes first.
    again: Mask,
    /// Those that are put together here.
    pieces: Mask,
    /// Those that all owners get.
    all: Mask,
}

impl Steering {
    /// Takes a burst from a port: this lcore's own packets stay in it, in order.
    pub fn receive(&mut self, burst: &mut Burst, out: &mut Egress) {
        let now_ns = self.clock.ns(burst.now);
        self.sort(burst, now_ns, true, out);
    }

    /// Sorts packets of one port, in a burst whose port that is. `is_first`: they come from there,
    /// and not by another lcore.
    pub(super) fn sort(
        &mut self,
        burst: &mut Burst,
        now_ns: u64,
        is_first: bool,
        out: &mut Egress,
    ) {
        self.parser.parse(burst, &mut self.parsed);
        let (all, port) = (burst.mask(), burst.port);
        let class = self.parsed.class;
        let whole = (class.tcp | class.udp) & !class.fragment;
        let otherwise = self.otherwise();
        let mut sorted = Sorted {
            owners: [otherwise.into(); Burst::CAPACITY],
            again: 0,
            pieces: 0,
            all: 0,
        };
        let mut here = whole;
        let mut is_by_hash = false;
        if let Some(port) = self.plan.port(port) {
            port.owners(&self.parsed, whole, otherwise, &mut sorted.owners);
            is_by_hash = *port.arrival() == Arrival::ByHash;
        }
        if is_by_hash && is_first {
            let me = u32::from(self.me);
            let is_elsewhere = |index: &usize| sorted.owners[*index] != me;
            let elsewhere = ones(whole).filter(is_elsewhere);
            sorted.again = elsewhere.fold(0, |sum, index| sum | 1 << index);
            here &= !sorted.again;
            if sorted.again != 0 {
                self.misdirected(port, &sorted);
            }
        }
        if let Some(map) = &mut self.map
            && here & class.tcp != 0
            && !map.is_empty()
        {
            let tcp = (&*self.parsed, here & class.tcp);
            map.owners(ms(now_ns), burst, tcp, &mut sorted.owners);
        }
        for index in ones(all & !whole) {
            self.sort_other(burst, index, &mut sorted);
        }
        if self.rule.is_some() {
            self.sort_by_rule(burst, all & !(whole & !here), &mut sorted);
        }
        let me = u32::from(self.me);
        let mut others: Mask = 0;
        for (index, &owner) in sorted.owners[..burst.len()].iter().enumerate() {
            others |= Mask::from(owner != me) << index;
        }
        others &= all & !sorted.pieces;
        if others != 0 {
            let mut packets = others;
            while packets != 0 {
                let index = packets.trailing_zeros() as usize;
                packets &= packets - 1;
                let packet = &mut burst.as_packets_mut()[index];
                packet.set_port(port);
                packet.set_user(match sorted.again >> index & 1 {
                    0 => Note::Deliver,
                    _ => Note::Again,
                });
            }
            for index in ones(sorted.all & others) {
                self.copy_to_all(&burst.as_packets()[index], out);
            }
            self.counts.handed += u64::from(others.count_ones());
            let ready = |_, _: &mut Burst, _: &mut _| ();
            self.hand_over
                .send(burst, others, &sorted.owners, ready, out);
        }
        if sorted.all & !others != 0 {
            let mut places = ones(all & !others);
            for packet in burst.iter() {
                if places.next().is_some_and(|at| sorted.all >> at & 1 != 0) {
                    self.copy_to_all(packet, out);
                }
            }
        }
        if sorted.pieces != 0 {
            self.put_together(burst, all & !others, (sorted.pieces, now_ns), out);
        }
    }

    /// Says whose packets are that name users. What goes to its home first is sorted there.
    fn sort_by_rule(&self, burst: &Burst, all: Mask, sorted: &mut Sorted) {
        let class = &self.parsed.class;
        let of_users = all & class.v4 & !class.group & !sorted.again & !sorted.pieces & !sorted.all;
        for index in ones(of_users) {
            let owner = self
                .rule
                .as_ref()
                .and_then(|rule| rule(burst.as_packets()[index].data()));
            if let Some(owner) = owner.filter(|&owner| owner < self.plan.owners()) {
                sorted.owners[index] = owner.into();
            }
        }
    }

    /// Who gets what has no owner.
    fn otherwise(&self) -> Member {
        match self.plan.owns(self.me) {
            true => self.me,
            false => 0,
        }
    }

    /// Counts packets that came elsewhere than the model says, and keeps the first.
    #[cold]
    fn misdirected(&mut self, port: u16, sorted: &Sorted) {
        if self.counts.misdirected == 0 {
            let index = sorted.again.trailing_zeros() as usize;
            self.first_misdirected = Some(Misdirected {
                port,
                flow: key_of(&self.parsed, index),
                expected: sorted.owners[index] as Member,
                came_to: self.me,
            });
        }
        self.counts.misdirected += u64::from(sorted.again.count_ones());
    }

    /// Says what becomes of a packet that is neither whole TCP nor whole UDP.
    #[cold]
    fn sort_other(&self, burst: &Burst, index: usize, sorted: &mut Sorted) {
        let class = &self.parsed.class;
        let has = |mask: Mask| mask >> index & 1 != 0;
        let packet = &burst.as_packets()[index];
        let Some(port) = self.plan.port(burst.port) else {
            return;
        };
        if has(class.fragment) {
            let home = port.home_of_fragments(&key_of(&self.parsed, index));
            match home.filter(|&home| home != self.me) {
                Some(home) => {
                    sorted.owners[index] = home.into();
                    sorted.again |= 1 << index;
                }
                None => sorted.pieces |= 1 << index,
            }
            return;
        }
        if has(class.icmp) {
            let Some(key) = quoted(packet) else {
                if is_neighbours(packet) {
                    sorted.all |= 1 << index;
                } else if let Some(owner) = self.of_addresses(burst.port, index) {
                    sorted.owners[index] = owner.into();
                }
                return;
            };
            match port.home(&key).filter(|&home| home != self.me) {
                Some(home) => {
                    sorted.owners[index] = home.into();
                    sorted.again |= 1 << index;
                }
                None => {
                    let known = self.map.as_ref().and_then(|map| map.get(&key));
                    let owner = known.map(|(_, entry)| entry.owner);
                    let owner = owner.or_else(|| port.owner(&key));
                    sorted.owners[index] = owner.unwrap_or(self.otherwise()).into();
                }
            }
            return;
        }
        if has((class.v4 | class.v6) & !class.group) {
            if let Some(owner) = self.of_addresses(burst.port, index) {
                sorted.owners[index] = owner.into();
            }
        } else if is_neighbours(packet) {
            sorted.all |= 1 << index;
        }
    }

    /// Whose a packet is that is for no connection: where a NIC has chosen an lcore, that one.
    fn of_addresses(&self, port: u16, index: usize) -> Option<Member> {
        let port = self.plan.port(port)?;
        match port.arrival() {
            Arrival::ByHash => None,
            _ => port.owner(&key_of(&self.parsed, index)),
        }
    }

    /// Gives all other owners a copy of what each of them has to know.
    #[cold]
    fn copy_to_all(&mut self, packet: &Packet, out: &mut Egress) {
        let first = self.otherwise();
        for owner in (0..self.plan.owners()).filter(|&owner| owner != first) {
            let Some(mut copy) = out.cache.copy_of(packet.data()) else {
                self.counts.no_slot += 1;
                return;
            };
            out.made(1);
            copy.set_port(packet.port());
            self.pass(owner, Note::Deliver, copy, out);
        }
    }

    /// Takes the fragments out of a burst, and sorts the datagrams that have become whole. `places`
    /// are the positions that its packets had.
    #[cold]
    fn put_together(
        &mut self,
        burst: &mut Burst,
        places: Mask,
        (pieces, now_ns): (Mask, u64),
        out: &mut Egress,
    ) {
        let (now, port) = (burst.now, burst.port);
        let mut places = ones(places);
        let mut fragments = Burst::new();
        burst.retain(&mut fragments, |_| {
            places.next().is_none_or(|at| pieces >> at & 1 == 0)
        });
        for packet in fragments.drain() {
            let Some(all) = &mut self.reassembler else {
                out.drop_one(self.bad_fragment, packet);
                continue;
            };
            let l3 = usize::from(packet.meta().l3_offset);
            let before = all.held().fragments;
            match all.push(packet, l3, 0, now_ns, &mut out.cache) {
                // What was evicted for it has been freed there.
                Outcome::Held => {
                    let gone = (before + 1).saturating_sub(all.held().fragments);
                    out.count_drops(self.timed_out, gone);
                }
                Outcome::Dropped(_, packet) => {
                    let gone = before.saturating_sub(all.held().fragments);
                    out.count_drops(self.timed_out, gone);
                    out.drop_one(self.bad_fragment, packet);
                }
                Outcome::Whole(packet) => {
                    let gone = before.saturating_sub(all.held().fragments);
                    // All but the one that goes on have done what they came for.
                    out.consumed(gone);
                    self.counts.whole += 1;
                    self.dispatch_whole(packet, (now, port), (burst, now_ns), out);
                }
            }
        }
    }

    /// Dispatches a datagram that is whole now: by its home, which another lcore may be.
    fn dispatch_whole(
        &mut self,
        mut packet: Packet,
        (now, port): (u64, u16),
        (stays, now_ns): (&mut Burst, u64),
        out: &mut Egress,
    ) {
        packet.set_port(port);
        let key = parse(packet.data()).ok().and_then(|headers| {
            headers.ports?;
            headers.flow_key(packet.data())
        });
        let home = key.and_then(|key| self.plan.port(port)?.home(&key));
        match home.filter(|&home| home != self.me) {
            Some(home) => self.pass(home, Note::Again, packet, out),
            None => self.sort_one(packet, now, (stays, now_ns), out),
        }
    }

    /// Sorts one packet whose home this is, and which another lcore has received; its port is in
    /// it. If it is this lcore's own, it goes into `stays`.
    pub(super) fn sort_one(
        &mut self,
        packet: Packet,
        now: u64,
        (stays, now_ns): (&mut Burst, u64),
        out: &mut Egress,
    ) {
        let mut one = Burst::new();
        (one.now, one.port) = (now, packet.port());
        // An empty burst has room.
        let _ = one.push(packet);
        self.sort(&mut one, now_ns, false, out);
        for packet in one.drain() {
            // No more come out of a burst than have gone in.
            if let Err(packet) = stays.push(packet) {
                out.drop_one(self.bad_fragment, packet);
            }
        }
    }
}

/// The 4-tuple that an ICMP error is about, as packets of its connection have it that come from
/// the network; `None` where it is no error, or quotes no TCP or UDP.
fn quoted(packet: &Packet) -> Option<FlowKey> {
    let headers = parse(packet.data()).ok()?;
    let quoted = headers.quoted(packet.data()).ok()??;
    quoted.ports?;
    quoted.flow_key(packet.data()).map(FlowKey::reversed)
}

/// Whether it is an answer of ARP or Neighbor Discovery.
fn is_neighbours(packet: &Packet) -> bool {
    let Ok(headers) = parse(packet.data()) else {
        return false;
    };
    match headers.ethertype {
        EtherType::ARP => {
            let arp = packet.data().get(headers.l3..).map(arp::Arp::new_checked);
            matches!(arp, Some(Ok(arp)) if arp.operation() == arp::Operation::Reply)
        }
        EtherType::IPV6 => {
            let kind = headers.icmp_type_code(packet.data());
            // RFC 4861 4.4: Neighbor Advertisement.
            kind.is_some_and(|(kind, _)| kind == 136)
        }
        _ => false,
    }
}
