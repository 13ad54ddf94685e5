//! The state machine of one neighbour (RFC 4861 7.2, 7.3), and its queue of packets.

use std::net::IpAddr;

use linerate_core::packet::Packet;
use linerate_wire::arp::Operation;
use linerate_wire::ipv4::Ipv4;
use linerate_wire::ipv6::Ipv6;
use linerate_wire::{EtherType, MacAddr, ndp, vlan};

use super::entries::For;
use super::{DropReason, Event, Ignored, Out, Released, State, Table, arp, can_be_neighbour, nd};

impl Table {
    /// Looks a next hop up. A packet for it, from its Ethernet header on, comes back in `out`:
    /// released with the MAC address that is returned, at once or later, or dropped. Starts the
    /// resolution if it is needed.
    pub fn resolve(
        &mut self,
        interface: u16,
        address: IpAddr,
        packet: Option<Packet>,
        now_ns: u64,
        out: &mut Out,
    ) -> Option<MacAddr> {
        let at = match self.place_for(interface, address, packet.as_ref(), now_ns, out) {
            Ok(at) => at,
            Err(reason) => {
                packet
                    .into_iter()
                    .for_each(|packet| out.drop(interface, reason, packet));
                return None;
            }
        };
        self.entries[at].is_needed = true;
        self.entries.rank(at);
        if let Some(packet) = packet {
            match self.entries[at].state {
                State::Failed => out.drop(interface, DropReason::Unresolved, packet),
                _ => self.enqueue(at, packet, out),
            }
        }
        self.begin(at, now_ns, out);
        self.settle(at, out);
        self.entries[at].known_mac()
    }

    /// Sets whether routes lead by a neighbour. Such a neighbour is resolved without a packet,
    /// repeatedly if it does not answer, and never evicted.
    pub fn hold(
        &mut self,
        interface: u16,
        address: IpAddr,
        is_held: bool,
        now_ns: u64,
        out: &mut Out,
    ) {
        let at = match is_held {
            true => (self.place_for(interface, address, None, now_ns, out)).ok(),
            false => self.entries.find(interface, address),
        };
        if let Some(at) = at {
            self.entries[at].is_held = is_held;
            self.entries.rank(at);
            self.begin(at, now_ns, out);
            self.settle(at, out);
        }
    }

    /// Reports that an upper layer got something from a neighbour that proves that our packets
    /// reach it (RFC 4861 7.3.1).
    pub fn confirm(&mut self, interface: u16, address: IpAddr, now_ns: u64, out: &mut Out) {
        if let Some(at) = self.entries.find(interface, address)
            && let Some(mac) = self.entries[at].known_mac()
            && self.entries[at].state != State::Static
        {
            self.learn(at, mac, true, now_ns, out);
        }
    }

    /// Reports that an upper layer gets no answers through a neighbour (RFC 1122 2.3.2.1 (3):
    /// advice): it is probed at once, unless it is already.
    pub fn suspect(&mut self, interface: u16, address: IpAddr, now_ns: u64, out: &mut Out) {
        if let Some(at) = self.entries.find(interface, address)
            && matches!(
                self.entries[at].state,
                State::Reachable | State::Stale | State::Delay
            )
        {
            self.entries[at].asked = 0;
            self.probe(at, now_ns, out);
            self.settle(at, out);
        }
    }

    /// The entry of a neighbour, created if necessary and if the packet's source is within its
    /// limit.
    fn place_for(
        &mut self,
        id: u16,
        address: IpAddr,
        packet: Option<&Packet>,
        now_ns: u64,
        out: &mut Out,
    ) -> Result<u32, DropReason> {
        if let Some(at) = self.entries.find(id, address) {
            return Ok(at);
        }
        let place = self.interfaces.get(&id).ok_or(DropReason::NoInterface)?;
        if !can_be_neighbour(address) || place.has(address) {
            return Err(DropReason::NotNeighbour);
        }
        if !place.speaks(address.is_ipv4()) {
            return Err(DropReason::NoInterface);
        }
        let source = packet.and_then(source);
        if let Some(source) = source
            && !self.sources.allow(source, now_ns)
        {
            return Err(DropReason::Limited);
        }
        let at = self.create(id, address, For::Packet, out);
        let at = at.ok_or(DropReason::TableFull)?;
        self.entries[at].asked_for = source;
        Ok(at)
    }

    /// A neighbour has answered: the tokens for its resolution are returned. So the limits apply to
    /// scans, not to hosts that send to many existing neighbours.
    fn give_back(&mut self, at: u32) {
        let entry = &mut self.entries[at];
        if let Some(source) = entry.asked_for.take() {
            self.sources.give_back(source);
        }
        if entry.state == State::Incomplete && entry.asked > 0 && !entry.is_held {
            self.solicits.give_back(self.solicit_rate);
        }
    }

    /// A new entry, incomplete and not asked for yet; `None` if there is no room and no entry can
    /// be evicted.
    pub(super) fn create(
        &mut self,
        id: u16,
        address: IpAddr,
        who: For,
        out: &mut Out,
    ) -> Option<u32> {
        if let Some(victim) = self.entries.victim(who).ok()? {
            self.evict(victim, out);
        }
        Some(self.entries.insert(id, address, State::Incomplete))
    }

    /// Removes an entry, and drops its packets.
    pub(super) fn evict(&mut self, at: u32, out: &mut Out) {
        self.flush(at, DropReason::Evicted, out);
        let entry = self.entries.remove(at);
        if entry.told.is_some() {
            out.events.push(Event::Neighbour {
                interface: entry.interface,
                address: entry.address,
                mac: None,
            });
        }
    }

    /// Starts the state machine of an entry that has come into use.
    fn begin(&mut self, at: u32, now_ns: u64, out: &mut Out) {
        let entry = &self.entries[at];
        match entry.state {
            State::Incomplete if self.entries.due_ns(at).is_none() => self.ask(at, now_ns, out),
            State::Stale if entry.is_in_use() && entry.is_doubted => {
                self.entries[at].asked = 0;
                self.probe(at, now_ns, out);
            }
            // RFC 4861 7.3.3: the first packet to a stale neighbour is sent, and a probe follows.
            State::Stale if entry.is_in_use() => {
                let due_ns = now_ns + self.config.timers.delay_ns;
                self.entries.enter(at, State::Delay, Some(due_ns));
            }
            _ => {}
        }
    }

    /// Handles an entry's timer.
    pub(super) fn expire(&mut self, at: u32, now_ns: u64, out: &mut Out) {
        let timers = self.config.timers;
        let entry = &self.entries[at];
        match entry.state {
            State::Incomplete if entry.asked < timers.multicast_solicits => {
                self.ask(at, now_ns, out)
            }
            State::Probe if entry.asked < timers.unicast_solicits => self.probe(at, now_ns, out),
            State::Incomplete | State::Probe => self.fail(at, now_ns, out),
            State::Delay => {
                self.entries[at].asked = 0;
                self.probe(at, now_ns, out);
            }
            State::Reachable if entry.is_in_use() => {
                let due_ns = now_ns + timers.delay_ns;
                self.entries.enter(at, State::Delay, Some(due_ns));
            }
            State::Reachable => {
                let due_ns = now_ns + timers.stale_ns;
                self.entries.enter(at, State::Stale, Some(due_ns));
            }
            State::Failed if entry.is_held => {
                self.entries.enter(at, State::Incomplete, None);
                self.ask(at, now_ns, out);
            }
            // Its link has been down since.
            State::Stale if entry.is_held => {
                let due_ns = now_ns + timers.stale_ns;
                self.entries.enter(at, State::Stale, Some(due_ns));
            }
            State::Stale | State::Failed => self.evict(at, out),
            State::Static => {}
        }
    }

    /// Multicasts a solicitation for a neighbour (RFC 4861 7.2.2, RFC 826), or schedules it if the
    /// limit of this second is reached.
    fn ask(&mut self, at: u32, now_ns: u64, out: &mut Out) {
        let retransmit_ns = self.config.timers.retransmit_ns;
        // A next hop of routes is not delayed by a scan.
        let is_held = self.entries[at].is_held;
        let wait_ns = match is_held || self.solicits.take(self.solicit_rate, now_ns) {
            true => {
                self.entries[at].asked += 1;
                self.solicit(at, None, out);
                retransmit_ns
            }
            false => retransmit_ns / 8 + self.random.within(0, retransmit_ns / 8),
        };
        self.entries
            .enter(at, State::Incomplete, Some(now_ns + wait_ns));
    }

    /// Probes a neighbour (RFC 4861 7.3.3, RFC 1122 2.3.2.1 (2)): by unicast, or by multicast if
    /// another station may have its address by now (RFC 7048 3).
    pub(super) fn probe(&mut self, at: u32, now_ns: u64, out: &mut Out) {
        let entry = &mut self.entries[at];
        entry.asked += 1;
        let alone = (!entry.is_doubted).then_some(entry.mac);
        self.solicit(at, alone, out);
        let due_ns = now_ns + self.config.timers.retransmit_ns;
        self.entries.enter(at, State::Probe, Some(due_ns));
    }

    /// The neighbour did not answer (RFC 4861 7.2.2, 7.3.3).
    fn fail(&mut self, at: u32, now_ns: u64, out: &mut Out) {
        self.flush(at, DropReason::Unresolved, out);
        let entry = &mut self.entries[at];
        (entry.asked, entry.is_doubted, entry.asked_for) = (0, false, None);
        let due_ns = now_ns + self.config.timers.failed_ns;
        self.entries.enter(at, State::Failed, Some(due_ns));
        self.settle(at, out);
    }

    /// The neighbour may have another MAC address: RFC 4861 7.2.5, first case of (I).
    pub(super) fn doubt(&mut self, at: u32, now_ns: u64) {
        let timers = self.config.timers;
        let (state, wait_ns) = match self.entries[at].is_in_use() {
            true => (State::Delay, timers.delay_ns),
            false => (State::Stale, timers.stale_ns),
        };
        self.entries.enter(at, state, Some(now_ns + wait_ns));
    }

    /// Whether a received MAC address may change an entry's.
    pub(super) fn may_change(&self, at: u32, mac: MacAddr, now_ns: u64) -> Result<(), Ignored> {
        let entry = &self.entries[at];
        if entry.known_mac().is_none_or(|known| known == mac) {
            return Ok(());
        }
        let unlocked_ns = entry.changed_ns.saturating_add(self.config.timers.lock_ns);
        match entry.state {
            State::Static => Err(Ignored::Static),
            _ if now_ns < unlocked_ns => Err(Ignored::Locked),
            _ => Ok(()),
        }
    }

    /// Handles a received MAC address of a neighbour; `is_answer`: it answers our solicitation, so
    /// that both directions are known to work.
    pub(super) fn learn(
        &mut self,
        at: u32,
        mac: MacAddr,
        is_answer: bool,
        now_ns: u64,
        out: &mut Out,
    ) {
        if self.entries[at].state == State::Static {
            return;
        }
        self.give_back(at);
        let entry = &mut self.entries[at];
        let is_changed = entry.known_mac() != Some(mac);
        if is_changed {
            (entry.mac, entry.changed_ns) = (mac, now_ns);
        }
        if is_answer {
            (entry.asked, entry.is_doubted) = (0, false);
            // RFC 4861 6.3.2: a time between half and one and a half of the base.
            let base_ns = self.config.timers.reachable_ns;
            let for_ns = self.random.within(base_ns / 2, base_ns + base_ns / 2);
            self.entries
                .enter(at, State::Reachable, Some(now_ns + for_ns));
        } else if is_changed {
            self.doubt(at, now_ns);
        }
        self.settle(at, out);
    }

    /// Releases the packets of a known entry, and reports it to routing.
    pub(super) fn settle(&mut self, at: u32, out: &mut Out) {
        let entry = &self.entries[at];
        let (interface, address, known) = (entry.interface, entry.address, entry.known_mac());
        if let Some(mac) = known {
            while let Some(packet) = self.dequeue(at) {
                out.released.push(Released {
                    interface,
                    mac,
                    packet,
                });
            }
        }
        let entry = &mut self.entries[at];
        let mac = known.filter(|_| entry.is_in_use());
        if entry.told != mac {
            entry.told = mac;
            out.events.push(Event::Neighbour {
                interface,
                address,
                mac,
            });
        }
    }

    /// Sends a solicitation by multicast, or to one MAC address. Without a source address of ours
    /// nothing is sent, and the attempt counts.
    fn solicit(&self, at: u32, to: Option<MacAddr>, out: &mut Out) {
        let entry = &self.entries[at];
        let Some(place) = self.interfaces.get(&entry.interface) else {
            return;
        };
        let (id, mac) = (entry.interface, place.mac());
        match (entry.address, place.source_for(entry.address)) {
            (IpAddr::V4(target), Some(IpAddr::V4(src))) => {
                let dst = to.unwrap_or(MacAddr::BROADCAST);
                let target = (MacAddr::default(), target);
                arp::send(id, dst, Operation::Request, (mac, src), target, out);
            }
            (IpAddr::V6(target), Some(IpAddr::V6(src))) => {
                let group = ndp::solicited_node(target);
                let (dst_mac, dst) = match to {
                    Some(mac) => (mac, target),
                    None => (ndp::multicast_mac(group), group),
                };
                let message = ndp::Message::NeighbourSolicitation {
                    target,
                    source_mac: Some(mac),
                };
                nd::send(id, (dst_mac, mac), src, dst, message, out);
            }
            _ => {}
        }
    }

    /// Queues a packet; the oldest ones for the same neighbour make room (RFC 4861 7.2.2).
    fn enqueue(&mut self, at: u32, packet: Packet, out: &mut Out) {
        let (bytes, id) = (packet.len(), self.entries[at].interface);
        loop {
            let (config, entry) = (&self.config, &self.entries[at]);
            let fits = entry.queue.len() < config.queue_pkts.max(1)
                && entry.queue_bytes + bytes <= config.queue_bytes
                && self.queued_pkts < config.total_pkts
                && self.queued_bytes + bytes <= config.total_bytes;
            if fits || entry.state.is_known() {
                break;
            }
            match self.dequeue(at) {
                Some(oldest) => out.drop(id, DropReason::QueueFull, oldest),
                None => return out.drop(id, DropReason::QueueFull, packet),
            }
        }
        self.queued_pkts += 1;
        self.queued_bytes += bytes;
        let entry = &mut self.entries[at];
        entry.queue_bytes += bytes;
        entry.queue.push_back(packet);
    }

    fn dequeue(&mut self, at: u32) -> Option<Packet> {
        let entry = &mut self.entries[at];
        let packet = entry.queue.pop_front()?;
        entry.queue_bytes -= packet.len();
        self.queued_pkts -= 1;
        self.queued_bytes -= packet.len();
        Some(packet)
    }

    /// Drops all packets that wait for a neighbour.
    pub(super) fn flush(&mut self, at: u32, reason: DropReason, out: &mut Out) {
        let id = self.entries[at].interface;
        while let Some(packet) = self.dequeue(at) {
            out.drop(id, reason, packet);
        }
    }
}

/// The source address of an IP packet.
fn source(packet: &Packet) -> Option<IpAddr> {
    let frame = packet.data();
    let untagged = vlan::untagged(frame).ok()?;
    let bytes = &frame[untagged.offset..];
    match untagged.ethertype {
        EtherType::IPV4 => Some(Ipv4::new_checked(bytes).ok()?.src().into()),
        EtherType::IPV6 => Some(Ipv6::new_checked(bytes).ok()?.src().into()),
        _ => None,
    }
}
