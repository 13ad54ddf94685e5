//! A table with simulated time, hand-made frames, and its output as text.
#![allow(clippy::unwrap_used)]

mod advertise;
mod arp;
mod invariants;
mod machine;
mod nd;
mod own;
mod room;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::mem::{PageKind, PagePolicy};
use linerate_core::packet::{Packet, Pool, PoolCache, PoolConfig};
use linerate_wire::arp::{Arp, Operation};
use linerate_wire::ethernet::{self, EtherType, Ethernet};
use linerate_wire::ndp::{self, Message};
use linerate_wire::{MacAddr, ipv6, protocol};

use super::*;

/// Ours, a host's, and another host's.
const US: MacAddr = MacAddr::local(1);
const HOST: MacAddr = MacAddr::local(7);
const OTHER: MacAddr = MacAddr::local(8);

struct World {
    table: Table,
    out: Out,
    now_ns: u64,
    pool: Pool,
    cache: PoolCache,
    /// Whether every address is reached by another interface, for proxies.
    elsewhere: bool,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// 192.0.2.1/24, 2001:db8::1/64 and fe80::1 without detection of duplicates.
fn lan() -> InterfaceConfig {
    InterfaceConfig {
        mac: US,
        addresses: vec![
            (ip("192.0.2.1"), 24),
            (ip("2001:db8::1"), 64),
            (ip("fe80::1"), 64),
        ],
        ..InterfaceConfig::default()
    }
}

impl World {
    /// With an empty table.
    fn empty(config: Config) -> Self {
        let pool = Pool::new(&PoolConfig {
            pages: PagePolicy::Only(PageKind::Base4K),
            ..PoolConfig::new("neighbours", 256)
        })
        .unwrap();
        let now_ns = 1000 * SECOND;
        Self {
            table: Table::new(config, now_ns).unwrap(),
            out: Out::new(),
            now_ns,
            cache: PoolCache::new(std::slice::from_ref(&pool)),
            pool,
            elsewhere: false,
        }
    }

    /// With [`lan`] as interface 0, all announced.
    fn new() -> Self {
        Self::with(Config::default(), lan())
    }

    fn with(config: Config, interface: InterfaceConfig) -> Self {
        let mut world = Self::empty(config);
        world.set(interface);
        world.pass(10_000);
        world.out.clear();
        world
    }

    fn set(&mut self, interface: InterfaceConfig) {
        self.table
            .set_interface(0, interface, self.now_ns, &mut self.out);
    }

    /// Lets time pass, with a tick every 100 ms.
    fn pass(&mut self, ms: u64) {
        let end = self.now_ns + ms * MILLISECOND;
        while self.now_ns < end {
            self.now_ns = (self.now_ns + 100 * MILLISECOND).min(end);
            self.table.tick(self.now_ns, &mut self.out);
        }
    }

    /// A packet of 100 bytes, the first of which tells it from others.
    fn packet(&mut self, first: u8) -> Packet {
        let mut packet = self
            .cache
            .get(&self.pool)
            .expect("the pool is large enough");
        assert!(packet.set_data(&[first; 100]));
        packet
    }

    /// Passes a packet for that next hop.
    fn send(&mut self, address: &str, first: u8) -> Option<MacAddr> {
        let packet = self.packet(first);
        let address = ip(address);
        self.table
            .resolve(0, address, Some(packet), self.now_ns, &mut self.out)
    }

    fn hear(&mut self, frame: &[u8]) -> Result<(), Ignored> {
        let elsewhere = self.elsewhere;
        let elsewhere = move |_| elsewhere;
        let (now_ns, out) = (self.now_ns, &mut self.out);
        match Ethernet::new_checked(frame).unwrap().ethertype() {
            EtherType::ARP => self.table.arp(0, frame, &elsewhere, now_ns, out),
            _ => self.table.ndp(0, frame, &elsewhere, now_ns, out),
        }
    }

    /// Frames sent since the last call, as text.
    fn said(&mut self) -> Vec<String> {
        let said = self.out.frames().map(|(_, frame)| words(frame)).collect();
        let (released, dropped) = (
            std::mem::take(&mut self.out.released),
            std::mem::take(&mut self.out.dropped),
        );
        let events = std::mem::take(&mut self.out.events);
        self.out.clear();
        (self.out.released, self.out.dropped, self.out.events) = (released, dropped, events);
        said
    }

    /// First bytes of the packets that were released, and where to.
    fn released(&mut self) -> Vec<(u8, MacAddr)> {
        let released = self.out.released.drain(..);
        released
            .map(|gone| (gone.packet.data()[0], gone.mac))
            .collect()
    }

    /// First bytes of the packets that were dropped, and why.
    fn dropped(&mut self) -> Vec<(u8, DropReason)> {
        let dropped = self.out.dropped.drain(..);
        dropped
            .map(|gone| (gone.packet.data()[0], gone.reason))
            .collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.out.events)
    }

    fn state(&self, address: &str) -> Option<State> {
        let address = ip(address);
        let mut all = self.table.neighbours();
        all.find(|neighbour| neighbour.address == address)
            .map(|neighbour| neighbour.state)
    }

    fn mac(&self, address: &str) -> Option<MacAddr> {
        self.table.mac(0, ip(address))
    }

    /// Makes a neighbour reachable, by an answer after a packet.
    fn meet(&mut self, address: &str, mac: MacAddr) {
        self.send(address, 0);
        let answer = match ip(address) {
            IpAddr::V4(v4) => arp(US, Operation::Reply, (mac, v4), (US, self::v4("192.0.2.1"))),
            IpAddr::V6(v6) => na(mac, v6, self::v6("2001:db8::1"), v6, Some(mac), "S"),
        };
        self.hear(&answer).unwrap();
        assert_eq!(self.state(address), Some(State::Reachable));
        self.out.clear();
    }
}

fn told(address: &str, mac: Option<MacAddr>) -> Event {
    Event::Neighbour {
        interface: 0,
        address: ip(address),
        mac,
    }
}

/// An ARP frame from the sender's MAC address.
fn arp(
    dst: MacAddr,
    operation: Operation,
    sender: (MacAddr, Ipv4Addr),
    target: (MacAddr, Ipv4Addr),
) -> Vec<u8> {
    let mut frame = ethernet::header(dst, sender.0, EtherType::ARP).to_vec();
    frame.extend(linerate_wire::arp::packet(operation, sender, target));
    frame.resize(60, 0);
    frame
}

/// A broadcast request for `target`.
fn who_has(target: &str, mac: MacAddr, sender: &str) -> Vec<u8> {
    let target = (MacAddr::default(), v4(target));
    arp(
        MacAddr::BROADCAST,
        Operation::Request,
        (mac, v4(sender)),
        target,
    )
}

/// An answer to 192.0.2.1.
fn is_at(sender: &str, mac: MacAddr) -> Vec<u8> {
    arp(
        US,
        Operation::Reply,
        (mac, v4(sender)),
        (US, v4("192.0.2.1")),
    )
}

/// A frame with a message of Neighbor Discovery.
fn nd(from: MacAddr, src: Ipv6Addr, dst: Ipv6Addr, message: Message<'_>) -> Vec<u8> {
    let mut bytes = [0; 1280];
    let len = message.write(src, dst, &mut bytes).unwrap();
    let to = if dst.is_multicast() {
        ndp::multicast_mac(dst)
    } else {
        US
    };
    let mut frame = ethernet::header(to, from, EtherType::IPV6).to_vec();
    frame.extend(ipv6::header(protocol::ICMPV6, 255, src, dst, len as u16));
    frame.extend(&bytes[..len]);
    frame
}

/// A solicitation to the target's group, with the sender's MAC address unless it sends from
/// nowhere.
fn ns(mac: MacAddr, src: &str, target: &str) -> Vec<u8> {
    let (src, target) = (v6(src), v6(target));
    let source_mac = (!src.is_unspecified()).then_some(mac);
    let message = Message::NeighbourSolicitation { target, source_mac };
    nd(mac, src, ndp::solicited_node(target), message)
}

/// An advertisement with flags of "RSO".
fn na(
    from: MacAddr,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    target: Ipv6Addr,
    target_mac: Option<MacAddr>,
    flags: &str,
) -> Vec<u8> {
    let message = Message::NeighbourAdvertisement {
        target,
        target_mac,
        router: flags.contains('R'),
        solicited: flags.contains('S'),
        override_known: flags.contains('O'),
    };
    nd(from, src, dst, message)
}

/// A frame of ours as text, with its destination.
fn words(frame: &[u8]) -> String {
    let ethernet = Ethernet::new_checked(frame).unwrap();
    assert_eq!(ethernet.src(), US);
    assert!(frame.len() >= 60);
    let to = match ethernet.dst() {
        MacAddr::BROADCAST => "all".to_string(),
        MacAddr([0x33, 0x33, ..]) => "group".to_string(),
        mac => format!("{}", mac.0[5]),
    };
    if ethernet.ethertype() == EtherType::ARP {
        let arp = Arp::new_checked(ethernet.payload()).unwrap();
        assert_eq!(arp.sender_mac(), US);
        return format!("{to}: {arp}");
    }
    let accepted = ndp::accept(ethernet.payload()).expect("what we send is valid");
    let message = accepted.message;
    if accepted.dst.is_multicast() {
        assert_eq!(ethernet.dst(), ndp::multicast_mac(accepted.dst));
    }
    let flag = |is_set: bool, name: &'static str| if is_set { name } else { "" };
    let flags = [
        flag(message.is_router(), "R"),
        flag(message.is_solicited(), "S"),
        flag(message.is_override(), "O"),
    ]
    .concat();
    let (src, dst) = (accepted.src, accepted.dst);
    format!("{to}: {src} > {dst} {message} {flags}")
        .trim_end()
        .to_string()
}
