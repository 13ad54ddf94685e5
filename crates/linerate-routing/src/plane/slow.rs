//! The slow worker: neighbours, the kernel's host interfaces, and the router's own answers.
//!
//! Packets from the ring were punted by the fast workers ([`Punt`] has the reason), validated and
//! without tags. Packets from a host interface's port are from the kernel, and go out of the
//! interface unchanged. The stack's neighbour table decides about ARP and Neighbor Discovery; its
//! events for routing go to control through `tell`.

mod answer;
mod discovery;

use std::net::IpAddr;
use std::sync::Arc;

use linerate_core::env::Clock;
use linerate_core::packet::{Burst, Packet, Pool, Pools};
use linerate_core::publish::Reader;
use linerate_core::run::{DropId, Egress, Point, Stage};
use linerate_stack::neighbour::{self, DropReason, InterfaceConfig, Neighbour, Out, Table};
use linerate_tables::TableError;
use linerate_tables::lpm::{Fib4, Fib6};
use linerate_wire::ethernet::HEADER_LEN;
use linerate_wire::{MacAddr, set_macs};

use super::change::Change;
use super::counters::Counters;
use super::headers::{destination4, destination6};
use super::hops::Action;
use super::icmp_error::{IcmpError, IcmpErrors};
use super::packet_path::TIMERS_NS;
use super::punt::{Punt, Reason};
use super::settings::{Advertise, Interface, Settings};
use super::trace::Tracer;
use super::{Old, Setup, Tables, original, vlan};
use crate::model::InterfaceId;

/// Events of neighbours, for routing and the operator.
pub use linerate_stack::neighbour::Event;

/// Takes events to control. It must not wait for the worker.
pub type Tell = Box<dyn FnMut(Event) + Send>;

struct SlowReasons {
    /// By [`DropReason`].
    neighbour: [DropId; DropReason::ALL.len()],
    /// For the router itself, on an interface without a host interface, and of a kind that the
    /// router does not answer.
    not_served: DropId,
    no_interface: DropId,
    /// The kernel sent it by the host interface of a loopback.
    loopback: DropId,
    no_buffer: DropId,
    /// Its hop was removed meanwhile.
    no_route: DropId,
}

/// The stage of the slow worker.
pub struct Slow {
    settings: Arc<Settings>,
    tables: Tables,
    clock: Clock,
    /// The port that punts come by.
    punts: u16,
    table: Table,
    /// Actions that a call of the neighbour table returns.
    todo: Out,
    tell: Tell,
    errors: IcmpErrors,
    reasons: SlowReasons,
    counters: Arc<Counters>,
    tracer: Tracer,
    points: Points,
    pools: Pools,
    /// When the timers are looked at next, in ticks.
    due: u64,
}

/// Where packets of this worker are counted and shown.
struct Points {
    /// What passes to and from the kernel.
    slow: Point,
    icmp_error: Point,
}

impl Slow {
    /// A stage whose neighbours are bounded by `config`.
    ///
    /// # Errors
    /// No memory for the neighbour table.
    pub fn new(
        setup: Setup,
        config: neighbour::Config,
        tell: Tell,
        egress: &mut Egress,
    ) -> Result<Self, TableError> {
        let now_ns = setup.clock.ns(setup.clock.now());
        let pools: Vec<Pool> = egress.cache.pools().cloned().collect();
        let mut slow = Self {
            settings: Arc::default(),
            tables: setup.tables,
            clock: setup.clock,
            punts: setup.slow,
            table: Table::new(config, now_ns)?,
            todo: Out::new(),
            tell,
            errors: IcmpErrors::new(),
            reasons: SlowReasons {
                neighbour: DropReason::ALL.map(|reason| egress.reason(reason.name())),
                not_served: egress.reason("not_served"),
                no_interface: egress.reason("no_interface"),
                loopback: egress.reason("loopback"),
                no_buffer: egress.reason("no_buffer"),
                no_route: egress.reason("no_route"),
            },
            counters: Arc::default(),
            tracer: Tracer::default(),
            points: Points {
                slow: Point::new("slow"),
                icmp_error: Point::new("icmp_error"),
            },
            pools: Pools::new(pools),
            due: 0,
        };
        let none = (Settings::default(), Counters::default());
        let change = Change::new(setup.settings, &none.0, &none.1, setup.queues);
        slow.install(change, egress);
        Ok(slow)
    }

    /// Exchanges the configuration, and returns the old one. Neighbours of interfaces that stay are
    /// kept.
    pub fn install(&mut self, mut change: Change, egress: &mut Egress) -> Change {
        let now_ns = self.clock.ns(self.clock.now());
        std::mem::swap(&mut self.settings, &mut change.settings);
        let old = &change.settings;
        for (id, interface) in (0..).zip(&self.settings.interfaces) {
            // A reused number is a new interface.
            let before = old.interfaces.get(usize::from(id));
            if before.is_some_and(|before| before.name != interface.name) {
                self.table.remove_interface(id, &mut self.todo);
            }
            // A loopback has no link, so no neighbours.
            if interface.is_loopback() {
                self.table.remove_interface(id, &mut self.todo);
                continue;
            }
            self.table
                .set_interface(id, described(interface), now_ns, &mut self.todo);
        }
        for id in self.settings.interfaces.len()..old.interfaces.len() {
            self.table.remove_interface(id as u16, &mut self.todo);
        }
        change
            .installed
            .counters
            .go_on_from(&self.counters, &change.interfaces);
        std::mem::swap(&mut self.counters, &mut change.installed.counters);
        self.work(now_ns, egress);
        egress.flush();
        change
    }

    /// Takes other forwarding tables over; those that it had are the caller's to free.
    pub fn exchange(&mut self, fib4: Reader<Fib4>, fib6: Reader<Fib6>) -> Old {
        self.tables.exchange(fib4, fib6)
    }

    /// Looks at the newest tables, so that their publisher need not wait for this worker.
    pub fn catch_up(&mut self) {
        self.tables.fib4.read();
        self.tables.fib6.read();
        self.tables.hops.read();
    }

    /// Does what is due; to be called every 100 ms or so.
    pub(super) fn tick(&mut self, now: u64, out: &mut Egress) {
        let now_ns = self.clock.ns(now);
        self.table.tick(now_ns, &mut self.todo);
        self.work(now_ns, out);
        out.flush();
    }

    /// Pins a neighbour to a MAC address, or removes a neighbour, pinned or not. False where there
    /// is no room.
    pub fn pin(
        &mut self,
        id: InterfaceId,
        address: IpAddr,
        mac: Option<MacAddr>,
        out: &mut Egress,
    ) -> bool {
        let todo = &mut self.todo;
        let is_done = match mac {
            Some(mac) => self.table.add_static(id.0, address, mac, todo),
            None => self.table.remove(id.0, address, todo),
        };
        self.work(self.clock.ns(self.clock.now()), out);
        out.flush();
        is_done
    }

    /// Sets whether routes lead by a neighbour: its MAC address is then resolved without a packet,
    /// and kept.
    pub fn hold(&mut self, id: InterfaceId, address: IpAddr, is_held: bool, out: &mut Egress) {
        let now_ns = self.clock.ns(self.clock.now());
        self.table
            .hold(id.0, address, is_held, now_ns, &mut self.todo);
        self.work(now_ns, out);
        out.flush();
    }

    /// The link of an interface went down: its neighbours are removed.
    pub fn link_down(&mut self, id: InterfaceId) {
        let now_ns = self.clock.ns(self.clock.now());
        self.table.link_down(id.0, now_ns);
    }

    /// The link of an interface came up: our addresses are announced again, and neighbours are
    /// probed.
    pub fn link_up(&mut self, id: InterfaceId, out: &mut Egress) {
        let now_ns = self.clock.ns(self.clock.now());
        self.table.link_up(id.0, now_ns, &mut self.todo);
        self.work(now_ns, out);
        out.flush();
    }

    /// Sends the final router advertisements, before the ports stop (RFC 4861 6.2.5).
    pub fn shut_down(&mut self, out: &mut Egress) {
        self.table.shutdown(&mut self.todo);
        self.work(self.clock.ns(self.clock.now()), out);
        out.flush();
    }

    /// All neighbours, to be shown.
    pub fn neighbours(&self) -> Vec<Neighbour> {
        self.table.neighbours().collect()
    }

    /// What has been counted, as [`Fast::counters`](super::Fast::counters).
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The tracer of this worker.
    pub fn tracer(&mut self) -> &mut Tracer {
        &mut self.tracer
    }

    /// Handles one punted packet.
    fn punted(&mut self, packet: Packet, now_ns: u64, out: &mut Egress) {
        let Punt {
            reason,
            interface,
            hop,
            ..
        } = packet.user();
        match reason {
            Reason::Arp => self.arp(interface, packet, now_ns, out),
            Reason::Nd => self.nd(interface, packet, now_ns, out),
            Reason::Local | Reason::Routing | Reason::Other => {
                self.for_host_interface(interface, packet, now_ns, out);
            }
            Reason::Host => {
                self.counters.by_host.add(1);
                self.for_host_interface(interface, packet, now_ns, out);
            }
            Reason::Resolve => self.resolve(interface, hop, packet, now_ns, out),
            Reason::Glean => self.glean(interface, packet, now_ns, out),
        }
        self.work(now_ns, out);
    }

    /// To the gateway of a hop.
    fn resolve(
        &mut self,
        id: InterfaceId,
        number: u32,
        packet: Packet,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let hop = self.tables.hops.read().get(number);
        let gateway = match (hop.action, hop.gateway) {
            (Action::Forward | Action::Resolve, gateway) if gateway != [0; 16] => {
                Some(IpAddr::from(gateway).to_canonical())
            }
            // The hop has changed meanwhile: the packet is sent to its destination as a neighbour,
            // which is wrong for a moment at most.
            _ => destination(&packet),
        };
        self.wait_for(id, gateway, packet, now_ns, out);
    }

    /// To the destination itself.
    fn glean(&mut self, id: InterfaceId, packet: Packet, now_ns: u64, out: &mut Egress) {
        self.wait_for(id, destination(&packet), packet, now_ns, out);
    }

    /// Sends a packet to its next hop, or queues it until the MAC address is known.
    fn wait_for(
        &mut self,
        id: InterfaceId,
        next: Option<IpAddr>,
        packet: Packet,
        now_ns: u64,
        out: &mut Egress,
    ) {
        let Some(next) = next else {
            return self.refuse(self.reasons.no_route, packet, out);
        };
        let (table, todo) = (&mut self.table, &mut self.todo);
        table.resolve(id.0, next, Some(packet), now_ns, todo);
    }

    /// Drops a packet, and ends its trace.
    fn refuse(&mut self, reason: DropId, packet: Packet, out: &mut Egress) {
        let Punt { ticket, .. } = packet.user();
        self.tracer
            .follow(ticket, || format!("dropped: {}", out.reason_name(reason)));
        out.drop_one(reason, packet);
    }

    /// Sends the kernel's packets out unchanged.
    fn kernel_sent(&mut self, id: InterfaceId, burst: &mut Burst, out: &mut Egress) {
        for packet in burst.drain() {
            self.points.slow.see_one(packet.port(), &packet);
            self.send(id, packet, out);
        }
    }

    /// Sends a whole frame out of an interface, with its tag.
    fn send(&mut self, id: InterfaceId, mut packet: Packet, out: &mut Egress) {
        let Some(interface) = self.settings.interfaces.get(usize::from(id.0)) else {
            return out.drop_one(self.reasons.no_interface, packet);
        };
        if interface.is_loopback() {
            return out.drop_one(self.reasons.loopback, packet);
        }
        if let Some(traffic) = self.counters.at(id.0.into()) {
            traffic.out_packets.add(1);
            traffic.out_bytes.add(packet.len() as u64);
        }
        if let Some(tci) = interface.vlan
            && !vlan::tag(&mut packet, tci)
        {
            return out.drop_one(self.reasons.no_buffer, packet);
        }
        out.send_one(interface.port, packet);
    }

    /// Executes the neighbour table's actions.
    fn work(&mut self, now_ns: u64, out: &mut Egress) {
        // The senders of dropped packets get errors, for which further neighbours may have to be
        // resolved.
        for _ in 0..4 {
            if self.todo.is_empty() {
                return;
            }
            let mut todo = std::mem::take(&mut self.todo);
            for (id, frame) in todo.frames() {
                let pool = self.pools.for_frame(frame.len());
                let Some(mut packet) = pool.and_then(|pool| out.cache.get(pool)) else {
                    continue; // it will be asked again
                };
                packet.set_data(frame);
                out.made(1);
                self.counters.neighbour_sent.add(1);
                self.send(InterfaceId(id), packet, out);
            }
            for released in todo.released.drain(..) {
                let id = InterfaceId(released.interface);
                let mut packet = released.packet;
                let own = self.settings.interfaces.get(usize::from(id.0));
                let mac = own.map_or(MacAddr::default(), |own| own.mac);
                if set_macs(packet.data_mut(), released.mac, mac) {
                    let Punt { ticket, .. } = packet.user();
                    let name = own.map_or("no interface", |own| own.name.as_str());
                    let mac = released.mac;
                    self.tracer
                        .follow(ticket, || format!("sent by {name} to {mac}"));
                    self.send(id, packet, out);
                } else {
                    self.refuse(self.reasons.no_buffer, packet, out);
                }
            }
            for mut dropped in todo.dropped.drain(..) {
                let Punt {
                    came_by: id,
                    headers,
                    ..
                } = dropped.packet.user();
                if dropped.reason == DropReason::Unresolved
                    && original::take(&mut dropped.packet, headers)
                {
                    // RFC 1812 3.3.2, RFC 4861 7.2.2. The sender's VRF may differ from that of the
                    // output interface.
                    self.icmp_error(id, &dropped.packet, IcmpError::NoNeighbour, now_ns, out);
                }
                let reason = self.reasons.neighbour[dropped.reason as usize];
                self.refuse(reason, dropped.packet, out);
            }
            for event in todo.events.drain(..) {
                (self.tell)(event);
            }
            todo.clear();
            if self.todo.is_empty() {
                self.todo = todo; // with the memory that it has
            }
        }
    }
}

fn destination(packet: &Packet) -> Option<IpAddr> {
    match packet.data().get(HEADER_LEN)? >> 4 {
        4 => destination4(packet).map(IpAddr::V4),
        6 => destination6(packet).map(IpAddr::V6),
        _ => None,
    }
}

/// An interface as the neighbour table needs it.
fn described(interface: &Interface) -> InterfaceConfig {
    let advertise = |advertise: Advertise| neighbour::Advertise {
        interval_s: advertise.interval_s,
        lifetime_s: advertise.lifetime_s,
        managed: advertise.managed,
        other: advertise.other,
        mtu: Some(interface.mtu.into()),
        ..neighbour::Advertise::default()
    };
    let addresses = interface.addresses.iter();
    InterfaceConfig {
        mac: interface.mac,
        addresses: addresses.map(|cidr| (cidr.address, cidr.len)).collect(),
        host: false,
        proxy: interface.proxy || !interface.answered.is_empty(),
        detect6: true,
        detect4: false,
        verified: interface.verified.clone(),
        advertise: interface.advertise.map(advertise),
    }
}

impl Stage for Slow {
    fn run(&mut self, burst: &mut Burst, (): &mut (), out: &mut Egress) {
        if burst.port == self.punts {
            let now_ns = self.clock.ns(burst.now);
            for packet in burst.drain() {
                self.punted(packet, now_ns, out);
            }
            return;
        }
        let interfaces = (0..).map(InterfaceId).zip(&self.settings.interfaces);
        let host_interface = |own: &Interface| own.host_interface == Some(burst.port);
        let found = interfaces
            .filter(|(_, own)| host_interface(own))
            .map(|(id, _)| id)
            .next();
        match found {
            Some(id) => self.kernel_sent(id, burst, out),
            None => out.drop_burst(self.reasons.no_interface, burst),
        }
    }

    #[inline]
    fn turn(&mut self, now: u64, (): &mut (), out: &mut Egress) -> u64 {
        if now >= self.due {
            self.due = now + self.clock.ticks(TIMERS_NS);
            self.tick(now, out);
        }
        self.due
    }

    fn points(&mut self, visit: &mut dyn FnMut(&mut Point)) {
        let points = &mut self.points;
        visit(&mut points.slow);
        visit(&mut points.icmp_error);
    }

    /// Packets that wait for the address of a neighbour, and those that have waited.
    fn held(&self) -> u64 {
        let waited = self.todo.released.len() + self.todo.dropped.len();
        (self.table.queued().0 + waited) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_words_for_counters() {
        for reason in DropReason::ALL {
            let name = reason.name();
            let is_word = |byte: u8| byte == b'_' || byte.is_ascii_lowercase();
            assert!(name.bytes().all(is_word), "{name}");
        }
    }
}
